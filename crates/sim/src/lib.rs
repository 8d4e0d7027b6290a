//! A deterministic discrete-event simulator of a host scheduler under guest schedulers.

pub mod config;
mod costs;
mod engine;
mod guest;
mod host;
mod ids;
mod observer;
mod policies;
pub mod program;
mod result;
mod setup;
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
