//! What things cost: every duration that is not computation, by name, with its unit in the name and its source beside
//! it.
//!
//! Table 2 of the Gleaner paper says what a wake-up takes as a sum of operations; differences of its rows give each:
//! A = RT, B = IPI + RT, C = IPI + RV + RT, D = IPI + PV + RV + RT.

use serde::Serialize;

macro_rules! costs {
    ($(
        $(#[$doc:meta])*
        $name:ident: $meaning:literal, [$vm:literal, $pm:literal, $xen:literal], $source:literal;
    )*) => {
        /// Durations in nanoseconds.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
        pub struct Costs {
            $($(#[$doc])* #[doc = $meaning] pub $name: u64,)*
        }

        impl Costs {
            /// Nothing costs anything: for theory.
            pub const FREE: Self = Self { $($name: 0,)* };
            /// A KVM guest on the Gleaner paper's machine (two Xeon E5-2665, Linux 3.9).
            pub const KVM_2014: Self = Self { $($name: $vm,)* };
            /// That machine without virtualization.
            pub const NATIVE_2014: Self = Self { $($name: $pm,)* };
            /// A Xen guest on the micro-sliced paper's machine (Xeon E5620, Xen 4.2).
            pub const XEN_2014: Self = Self { $($name: $xen,)* };

            /// Every cost: name, value, meaning, source of the presets' values.
            pub fn described(&self) -> Vec<CostDescription> {
                vec![$(
                    CostDescription { name: stringify!($name), ns: self.$name, meaning: $meaning, source: $source },
                )*]
            }

            /// Sets a cost by its name; `false` if there is none of that name.
            pub fn set(&mut self, name: &str, ns: u64) -> bool {
                match name {
                    $(stringify!($name) => self.$name = ns,)*
                    _ => return false,
                }
                true
            }
        }
    };
}

/// What there is to say about a cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CostDescription {
    /// Its name, with the unit.
    pub name: &'static str,
    /// Its value.
    pub ns: u64,
    /// What it is paid for.
    pub meaning: &'static str,
    /// Where the presets' values are from.
    pub source: &'static str,
}

costs! {
    guest_switch_ns: "RT: the guest switches to another thread",
        [6_000, 4_000, 6_000], "Gleaner Table 2, row A";
    ipi_ns: "IPI: from sending an interrupt to another vCPU to its arrival there, if it runs",
        [11_000, 4_000, 11_000], "Gleaner Table 2, B - A";
    ipi_send_ns: "of that, time of the sending vCPU (its exit)",
        [830, 0, 830], "micro-sliced Table III, Westmere: 1988 cycles at 2.4 GHz; none without a hypervisor";
    poll_wake_ns: "from another vCPU's write until a polling idle task sees it",
        [4_000, 4_000, 4_000], "Gleaner Table 2, physical machine, B - A: no interrupt is needed, the cache line is";
    vcpu_resume_ns: "RV: an idle pCPU takes up a vCPU that was halted",
        [20_000, 0, 20_000], "Gleaner Table 2, C - B";
    vcpu_preempt_ns: "PV: a wake-up takes a pCPU from another vCPU",
        [59_000, 9_000, 59_000], "Gleaner Table 2, D - C (a lower bound there)";
    vcpu_switch_ns: "a pCPU changes from one vCPU to another at the end of a slice or at a halt",
        [1_660, 0, 1_660], "micro-sliced Table III, Westmere: an exit and an entry for each of the two";
    cache_refill_ns: "a vCPU that returns to a pCPU on which another one ran meanwhile finds its cache cold",
        [0, 0, 0], "none in either paper: the workload's; contained in PV for wake-ups";
    thread_migration_ns: "a thread goes on on another vCPU: its cache is cold",
        [0, 0, 0], "none in either paper: the workload's";
    interrupt_ns: "a device's or timer's interrupt is handled by the guest",
        [1_660, 500, 1_660], "micro-sliced Table III, Westmere: two exits; native: ours";
    flush_ns: "a vCPU invalidates its TLB when another one asks",
        [2_160, 500, 2_160], "ours: 500 for the handler; virtual: two exits more, micro-sliced Table III, Westmere";
    timer_slack_ns: "a sleep takes so much longer than asked for",
        [50_000, 50_000, 50_000], "Linux: default slack of a normal thread's timers";
    ple_exit_ns: "a pause-loop exit and the host's look for somebody else",
        [830, 0, 830], "micro-sliced Table III, Westmere: 1988 cycles at 2.4 GHz";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_2_is_the_sum_of_its_operations() {
        for (costs, table) in [(Costs::KVM_2014, [6, 17, 37, 96]), (Costs::NATIVE_2014, [4, 8, 8, 17])] {
            let a = costs.guest_switch_ns;
            let b = costs.ipi_ns + a;
            let c = b + costs.vcpu_resume_ns;
            let d = c + costs.vcpu_preempt_ns;
            assert_eq!([a, b, c, d].map(|ns| ns / 1_000), table);
        }
    }

    #[test]
    fn a_cost_is_set_by_its_name() {
        let mut costs = Costs::FREE;
        assert!(costs.set("ipi_ns", 5) && costs.ipi_ns == 5);
        assert!(!costs.set("ipi", 5));
        assert!(costs.described().iter().all(|cost| cost.name.ends_with("_ns") && !cost.source.is_empty()));
    }
}
