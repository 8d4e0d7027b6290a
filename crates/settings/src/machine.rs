//! What is set of a whole machine.

use crate::settings;
use crate::{GroupsMax, ObserverChoice, Overhead, RetainChoice};

settings! {
    /// What is the machine's, and not a group's.
    #[derive(clap::Args)]
    pub struct MachineSettings in "daemon" {
        /// What keeps idle vCPUs awake
        retain: RetainChoice, "auto: the first that the machine has", arg(long, value_enum);
        /// What sees what groups do. auto: BPF where something is retained and not by polling in the idle task, or
        /// where there are more threads than `procfs_threads_max`, and /proc where that is refused. bpf: nothing is
        /// managed without
        observer: ObserverChoice, "auto", arg(long, value_enum);
        /// CPU time that observing may take, in per cent of one CPU; more lets Gleaner learn faster, where there are
        /// many threads or the machine is slow. Windows get longer where it is dear
        overhead: Overhead, "0.5%", arg(long, value_name = "PERCENT");
        /// Groups managed at once. Those beyond are left alone, and said to be
        groups_max: GroupsMax, "100", arg(skip);
    }
}

impl MachineSettings {
    /// What keeps vCPUs awake.
    pub fn retain(&self) -> RetainChoice {
        self.retain.unwrap_or_default()
    }

    /// Who sees what groups do.
    pub fn observer(&self) -> ObserverChoice {
        self.observer.unwrap_or_default()
    }

    /// What observing may take, as a share of one CPU.
    pub fn overhead_ratio(&self) -> f64 {
        self.overhead.as_ref().map_or(0.005, Overhead::ratio)
    }

    /// Groups managed at most.
    pub fn groups_max(&self) -> usize {
        self.groups_max.map_or(100, |most| most.0)
    }
}
