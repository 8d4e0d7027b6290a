//! A deterministic discrete-event simulator of a host scheduler under guest schedulers, for hosts and guests that you
//! do not have.
//!
//! Two schedulers that know nothing of each other are one above the other: the guest puts threads on vCPUs, the host
//! puts vCPUs on pCPUs. Everything that the two papers measured comes from there: a vCPU that halts has to be taken up
//! again, and a vCPU that waits for its pCPU holds locks, tickets, interrupts. None of it is put in as an effect;
//! tests/phenomena has the arithmetic.
//!
//! ```text
//!   scenario (TOML) --> config --> setup --> run --> result, timeline (Chrome trace)
//!                                             |  takes the next timer, and has deal with it whom it concerns
//!          +----------------+-----------------+----------------+
//!          v                v                                  v
//!        host/            guest/                       policies, observer, slices
//!        vCPUs on pCPUs   threads on vCPUs             Gleaner: Window --> decide's GuestPolicy --> Action
//!          |                |  exec: a thread's instructions until time or block   |
//!          |                |  idle: halt, poll, haltpoll; interrupt; yielder      |
//!          +----------------+-----------------+----------------+
//!                                             v
//!        world/    what there is: pCPUs, vCPUs, guests, threads; charges time, and knows none of the above
//!                  vcpu: run + kernel + retained + polled + overhead + ready + halted = wall; entity: schedulers' arithmetic
//!                                             v
//!        program/  threads and their instructions: compute, lock, wait, spin, sleep, ask a device
//!        engine/   clock, timers, random streams
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
//! To add an instruction: a variant of [`program::Op`], its check in `Workload::flaw`, its case in `guest/exec.rs`
//! (`step`); if it takes time on the vCPU, a variant of `Doing` with its length in `World::activity_lasts` and its end
//! in `finish`. To add a host scheduler: a variant of [`config::Scheduler`] and its line in each function of
//! `world/entity.rs`. docs/research/simulator.md says what is modelled, from where, and what is left out.

pub mod config;
mod costs;
mod engine;
mod guest;
mod host;
mod ids;
mod observer;
mod policies;
pub mod program;
pub mod reproduce;
mod result;
mod run;
pub mod scenario;
mod setup;
mod slices;
mod timeline;
mod totals;
mod world;

pub use costs::{CostDescription, Costs};
pub use engine::{Time, Timers};
pub use ids::{PcpuIx, ThreadIx, VcpuIx, VmIx};
pub use result::{SimResult, VmResult};
pub use setup::Simulation;
pub use timeline::{ChromeEvent, Timeline, TimelineSpan};
pub use totals::{VcpuTotals, VmTotals};
pub use world::wakeup_costs;
