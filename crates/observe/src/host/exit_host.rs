//! What leaving a guest and coming back costs, measured from the host's side: a VM of one page whose code does nothing
//! but leave.
//!
//! ```text
//!   turns: xor eax, eax     KVM is left with HLT, which ends the run: KVM_RUN returns.
//!          cpuid            leaves the guest; KVM answers in the kernel and goes back
//!          dec si           What the run itself costs, and the loop, is in the same code
//!          jnz turns        without CPUID, and is taken off.
//!          hlt
//! ```
//!
//! It needs /dev/kvm and nothing else: no firmware, no kernel, no disk, and nothing is left of it when its files are
//! closed.
//!
//! It ends by construction (`si` has 16 bits, and there is nothing to interrupt it) unless KVM itself goes round in
//! circles, as broken nested virtualization does. So it has a thread of its own, and a signal ends its run when the
//! time is up.
//!
//! Not every KVM lets the processor run such code: some emulate real mode, instruction by instruction, and no guest is
//! left by CPUID there. A loop without CPUID that is about as slow as one with it gives them away.

use super::exit::ExitCost;
use gleaner_model::Nanos;
use gleaner_sys::ProcRoot;
use std::io;
use std::time::Duration;

/// Why a VM exit could not be measured from the host's side.
#[derive(Debug, thiserror::Error)]
pub enum HostExitError {
    /// There is no such device.
    #[error(
        "there is no /dev/kvm: load kvm_intel or kvm_amd, with virtualization turned on in the firmware (in a VM: by its hypervisor)"
    )]
    NoKvm,
    /// The device may not be opened.
    #[error("/dev/kvm may not be opened: run as root, or as a member of its group (kvm)")]
    NotPermitted,
    /// The device, or a call on it, failed.
    #[error("a VM of one page cannot be made: {what}: {source}")]
    Kvm {
        /// What failed.
        what: &'static str,
        /// How.
        source: io::Error,
    },
    /// The VM stopped elsewhere than at its end.
    #[error("a VM of one page does not run here: KVM_RUN returned with {0}; the kernel's log may say more")]
    Stopped(String),
    /// The VM's run was ended from outside.
    #[error(
        "a VM of one page did not come to its end within {limit}: KVM does not work here, or the host is overloaded: try again"
    )]
    TimedOut {
        /// What it had.
        limit: Nanos,
    },
    /// KVM emulates the guest's code.
    #[error(
        "{module} emulates this VM's code instead of having the processor run it ({idle_turn} a turn of a loop that leaves no guest, \
         at most {turn} of one with CPUID): no guest is left, and the figure would be the emulator's"
    )]
    Emulated {
        /// Which KVM, as the list of modules has it.
        module: String,
        /// A turn of the loop without CPUID.
        idle_turn: Nanos,
        /// A turn with it.
        turn: Nanos,
    },
    /// No code is known for this architecture.
    #[error("the code of the VM of one page is x86-64's: this architecture has none yet")]
    Architecture,
}

/// Time for all of it, however slow the machine is; thousands of times what it takes.
const LIMIT: Duration = Duration::from_secs(3);

/// Measures it; takes some milliseconds, at most half a second where exits are slow, and never more than some seconds.
///
/// # Errors
///
/// Where /dev/kvm is missing or closed to this user, or does not do what it should.
pub fn exit_cost_from_host(root: &ProcRoot) -> Result<ExitCost, HostExitError> {
    let series = measured(LIMIT)?;
    judge(&series, || module(root))
}

/// What the runs took.
#[derive(Clone, Debug, PartialEq)]
struct Series {
    /// Of `turns` turns with CPUID each, in ns.
    leaving: Vec<u64>,
    /// As many without it.
    idle: Vec<u64>,
    /// `many_turns` without it: what one turn takes where the run itself hardly counts.
    idle_long: Vec<u64>,
    turns: u64,
    many_turns: u64,
    /// Cycles of the time-stamp counter in a nanosecond.
    cycles_per_ns: f64,
}

/// A processor does a turn of the empty loop in a hundredth of an exit or less; an emulator needs about as long for any
/// instruction.
const EMULATED_FROM_RATIO: f64 = 0.25;

fn judge(series: &Series, module: impl FnOnce() -> String) -> Result<ExitCost, HostExitError> {
    let median = |times: &[u64]| {
        let mut times = times.to_vec();
        times.sort_unstable();
        times.get(times.len() / 2).copied().unwrap_or(0)
    };
    let (leaving, idle) = (median(&series.leaving), median(&series.idle));
    let idle_turn = median(&series.idle_long).saturating_sub(idle) / (series.many_turns - series.turns).max(1);
    let turn = leaving.saturating_sub(idle) / series.turns;
    // The whole run, not the difference: under an emulator that may be nothing at all.
    let turn_at_most = leaving / series.turns;
    if turn == 0 || idle_turn as f64 >= EMULATED_FROM_RATIO * turn_at_most as f64 {
        return Err(HostExitError::Emulated {
            module: module(),
            idle_turn: Nanos(idle_turn),
            turn: Nanos(turn_at_most),
        });
    }
    let exits = series.leaving.iter().map(|time| time.saturating_sub(idle) / series.turns).collect();
    Ok(ExitCost::of(exits, series.cycles_per_ns))
}

/// Which KVM this is: the only module that is built upon `kvm`, where there is one.
fn module(root: &ProcRoot) -> String {
    let entries = std::fs::read_dir(root.sys.join("module")).into_iter().flatten().flatten();
    let mut names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let found = names.by_ref().find(|name| name.starts_with("kvm_"));
    match found {
        Some(name) if !names.any(|other| other.starts_with("kvm_")) => name,
        _ => "KVM".to_owned(),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn measured(_: Duration) -> Result<Series, HostExitError> {
    Err(HostExitError::Architecture)
}

#[cfg(target_arch = "x86_64")]
use one_page::measured;

#[cfg(target_arch = "x86_64")]
#[path = "exit_host_vm.rs"]
mod one_page;

#[cfg(test)]
mod tests {
    use super::*;

    fn series(leaving: &[u64], idle: u64, idle_long: u64) -> Series {
        Series {
            leaving: leaving.to_vec(),
            idle: vec![idle; 5],
            idle_long: vec![idle_long; 5],
            turns: 10,
            many_turns: 1010,
            cycles_per_ns: 2.0,
        }
    }

    #[test]
    fn the_run_itself_is_taken_off_and_the_95th_percentile_is_of_batches() {
        // Exits of 1,000 ns, some of 3,000, in runs that cost 2,000 themselves; a turn of the empty loop takes a
        // nanosecond.
        let mut leaving = vec![12_000; 90];
        leaving.extend([32_000; 10]);
        let cost = judge(&series(&leaving, 2_000, 3_000), || unreachable!()).unwrap();
        assert_eq!((cost.n, cost.p50, cost.p95, cost.p95_cycles), (100, Nanos(1_000), Nanos(3_000), 6_000));
    }

    #[test]
    fn an_emulator_gives_itself_away() {
        // As kvm_pvm does it: 2,000 ns a turn, with CPUID or without.
        for leaving in [20_500, 19_500, 28_000] {
            let error = judge(&series(&[leaving; 9], 20_500, 2_020_500), || "kvm_pvm".into()).unwrap_err();
            assert!(matches!(error, HostExitError::Emulated { .. }), "{error:?}");
            let text = error.to_string();
            assert!(text.contains("kvm_pvm emulates") && text.contains("2.00us a turn"), "{text}");
        }
        // An exit that cannot be told from the run is none either.
        assert!(judge(&series(&[2_005; 9], 2_000, 3_000), || "KVM".into()).is_err());
    }

    #[test]
    fn the_module_is_named_where_only_one_can_be_meant() {
        let folder = tempfile::tempdir().unwrap();
        let root = ProcRoot::below(folder.path());
        assert_eq!(module(&root), "KVM");
        for (name, found) in [("kvm", "KVM"), ("kvm_amd", "kvm_amd"), ("kvm_intel", "KVM")] {
            std::fs::create_dir_all(root.sys.join("module").join(name)).unwrap();
            assert_eq!(module(&root), found, "{name}");
        }
    }

    #[test]
    fn a_vm_of_one_page_on_this_machine_costs_something_or_says_why_not() {
        match exit_cost_from_host(&ProcRoot::default()) {
            Ok(cost) => assert!(cost.p50.0 > 0 && cost.p50 <= cost.p95 && cost.n > 0, "{cost:?}"),
            Err(error) => eprintln!("not measured: {error}"),
        }
        // Whatever it said, no VM is left of it.
        let files = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let targets = files.filter_map(|file| std::fs::read_link(file.path()).ok());
        let kvm: Vec<_> = targets.filter(|target| target.to_string_lossy().contains("kvm")).collect();
        assert!(kvm.is_empty(), "{kvm:?}");
    }
}
