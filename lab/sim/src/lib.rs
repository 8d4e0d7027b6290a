//! A deterministic discrete-event simulator of a host scheduler under guest schedulers, for hosts and guests that you
//! do not have.
//!
//! Two schedulers that know nothing of each other are one above the other: the guest puts threads on vCPUs, the host
//! puts vCPUs on pCPUs. Everything that the two papers measured comes from there: a vCPU that halts has to be taken up
//! again, and a vCPU that waits for its pCPU holds locks, tickets, interrupts. None of it is put in as an effect;
//! tests/phenomena has the arithmetic.
//!
//! ```text
//!   scenario (TOML) --> config --> setup --> world <---- engine (clock, timers, random streams)
//!                                              |
//!        program/   threads' instructions      |  what a thread does: compute, lock, wait, spin, sleep, ask a device
//!           |  exec: run until time or block   |
//!        guest/     threads on vCPUs           |  queues, wake-ups, balancing; idle: halt, poll, haltpoll;
//!           |                                  |  interrupt; yielder runs decide's YieldingThread
//!        vcpu       debts, activity, totals    |  run + kernel + retained + polled + overhead + ready + halted = wall
//!           |                                  |
//!        host/      vCPUs on pCPUs             |  entity: schedulers' arithmetic; groups; balance, rebalance; credit; pause (PLE)
//!                                              |
//!        observer --Window--> policies (decide's GuestPolicy) --Action--> guest/
//!                                              |
//!                                              +--> result, timeline (Chrome trace)
//! ```
//!
//! **Time** is integer nanoseconds. Each vCPU, pCPU, thread and VM has its own timers ([`Timers`]); whatever changes
//! what a vCPU does first charges the time that has passed (`World::charge`), then re-arms (`World::arm`). No tick, no
//! scan: the cost of an event grows with the logarithm of the machine. **Ties** go in the order of arming, so the same
//! input and seed give the same result to the last byte. **No decision within a decision**: whoever makes a pCPU's
//! choice stale only lists the pCPU (`World::look`), and the list is worked off when the event has been dealt with;
//! guests are told by interrupts, which are timers.
//!
//! **The policy is the one that ships**: `GuestPolicy` gets [`gleaner_model::Window`]s, and each vCPU's yielding thread
//! is decide's `YieldingThread`, driven through `YieldMachine` as act's runner drives it.
//!
//! To add an instruction: a variant of [`program::Op`], its check in `Workload::flaw`, its case in `program/exec.rs`
//! (`step`); if it takes time on the vCPU, a variant of `Doing` with its length in `World::activity_lasts` and its end
//! in `finish`. To add a host scheduler: a variant of [`config::Scheduler`] and its line in each function of
//! `host/entity.rs`. docs/research/simulator.md says what is modelled, from where, and what is left out.

pub mod config;
mod costs;
mod engine;
mod guest;
mod host;
mod ids;
mod observer;
mod policies;
pub mod program;
pub mod recording;
pub mod reproduce;
mod result;
pub mod scenario;
mod setup;
mod slices;
mod timeline;
mod vcpu;
mod world;

pub use costs::{CostDescription, Costs};
pub use engine::{Time, Timers};
pub use ids::{PcpuIx, ThreadIx, VcpuIx, VmIx};
pub use policies::wakeup_costs;
pub use result::{SimResult, VmResult, VmTotals};
pub use setup::Simulation;
pub use timeline::{ChromeEvent, Timeline, TimelineSpan};
pub use vcpu::VcpuTotals;
pub use world::Moment;
