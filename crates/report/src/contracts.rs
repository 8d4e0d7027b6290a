//! Every schema's name, once; and that each result prints what its document says.

use crate::show::Shown;
use crate::{
    AbReport, CaptureReport, DoctorReport, HostListReport, HostProbeReport, HostRunReport, ProbeReport, ReplayReport,
    ReproductionReport, RunReport, ScenarioReport, SimReport, StatusReport, SweepReport, VerifyReport, WorkloadReport,
    XenSliceReport,
};
use std::fmt;

macro_rules! contracts {
    ($($of:ty: $schema:literal,)*) => { $(
        impl $of {
            pub const SCHEMA: &'static str = $schema;
        }

        impl fmt::Display for $of {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.document().fmt(f)
            }
        }
    )* };
}

contracts! {
    AbReport: "gleaner.ab/1",
    CaptureReport: "gleaner.capture/1",
    DoctorReport: "gleaner.doctor/1",
    HostListReport: "gleaner.host-list/1",
    HostProbeReport: "gleaner.host-probe/1",
    HostRunReport: "gleaner.host-run/1",
    ProbeReport: "gleaner.probe/1",
    ReplayReport: "gleaner.replay/1",
    ReproductionReport: "gleaner.reproduction/1",
    RunReport: "gleaner.run/1",
    ScenarioReport: "gleaner.scenario/1",
    SimReport: "gleaner.sim/1",
    StatusReport: "gleaner.status/1",
    SweepReport: "gleaner.sweep/1",
    VerifyReport: "gleaner.verify/1",
    WorkloadReport: "gleaner.workload/1",
    XenSliceReport: "gleaner.xen-slice/1",
}
