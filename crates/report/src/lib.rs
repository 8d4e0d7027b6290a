//! Results: the JSON that other programs read (`gleaner.doctor/1`, `gleaner.probe/1`, `gleaner.run/1`), and the same in
//! plain words.
//!
//! The schemas are contracts: a field is never renamed or given another meaning within a version. Units are in the
//! names. What is unknown is null, never 0, and nothing is ever not-a-number. Golden files in `tests/` hold them still.

mod ab;
mod capture;
mod contracts;
mod doctor;
mod dump;
mod host_list;
mod host_probe;
mod host_run;
pub mod html;
mod probe;
mod replay;
mod run;
pub mod show;
mod status;
pub mod text;
mod told;
mod verify;
mod workload;
mod xen;

pub use ab::{AbComparison, AbMachine, AbMedians, AbMetric, AbMode, AbReport, AbRun, AbSideCosts, AbSpeedup, AbSpread};
pub use capture::CaptureReport;
pub use doctor::{Capability, DoctorReport, HaltCost, MachineFacts, Neighbour, StealFacts, Verdict};
pub use dump::{DumpDecision, DumpGroup, DumpLine, DumpMachine, DumpVcpu, DumpWindow};
pub use host_list::{HostListReport, HostVcpu, HostVm};
pub use host_probe::{
    Finding, HaltPollingFacts, HostProbeReport, HostVerdict, PauseExitFacts, RefillFigures, SliceIssueFact,
    SwitchFigures, VmNesting,
};
pub use host_run::{
    HostDecisionRecord, HostEnforcement, HostInTurn, HostPrice, HostRunReport, HostRunSet, HostRunVm, HostSlice,
    HostTurn, HostTurnFigures, HostVmFigures, decision_lines, unfair_words,
};
pub use probe::{MeansCell, MeansResult, ProbeReport, SettingResult, TimeOuts};
pub use replay::{DamageRecord, ReplayAction, ReplayChange, ReplayDifference, ReplayGroup, ReplayReport};
pub use run::{DecisionRecord, IdleEndedBy, LengthStats, Means, ObservedLengths, RunReport, VcpuTimes};
pub use status::{
    StatusCost, StatusGroup, StatusHost, StatusMachine, StatusRecent, StatusReport, StatusTimes, StatusTrial,
    StatusVcpu, StatusVcpuTimes, StatusVm, StatusWaiting,
};
pub use told::{Told, told};
pub use verify::{VerifiedFile, VerifyReport};
pub use workload::{LatencyReport, WorkloadReport};
pub use xen::{XenPoolTimes, XenSliceReport};
