//! What the daemon may still do once it has begun: what its means need, and nothing new by starting a program.
//!
//! Capabilities are each thread's own. Those that talk to others keep none; the one that acts keeps what [`needed`]
//! says, and so do the threads and the guardian that it starts. Root needs none to write root's own files: haltpoll's
//! parameters, PM QoS limits, cgroups.

use gleaner_settings::ObserverChoice;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs};
use std::io;

/// `acts`: whether it may ever change something in a guest; `host`: whether it runs the host agent. A means that is not
/// to be had is replaced by any other, so who acts keeps what each of them needs.
pub(crate) fn needed(observer: ObserverChoice, acts: bool, host: bool) -> CapabilitySet {
    // Processes that /proc hides, the first one's folders, progress files of others.
    let look = CapabilitySet::SYS_PTRACE | CapabilitySet::DAC_READ_SEARCH;
    // Linux before 5.11 counts programs' memory as locked.
    let bpf = CapabilitySet::BPF | CapabilitySet::PERFMON | CapabilitySet::SYS_RESOURCE;
    // Haltpoll has to write to idle states, where the kernel asks for no less.
    let states = CapabilitySet::SYS_ADMIN;
    // A thread at the lowest priority is given a higher one again.
    let yielding = CapabilitySet::SYS_NICE;
    // Slices of others' threads, and tickers that no page fault delays.
    let slices = look | bpf | CapabilitySet::SYS_NICE | CapabilitySet::IPC_LOCK;
    let guest = match observer {
        _ if acts => look | bpf | states | yielding,
        ObserverChoice::Bpf => look | bpf,
        ObserverChoice::Auto | ObserverChoice::Procfs => look,
    };
    if host { guest | slices } else { guest }
}

/// This thread, and what it starts, keeps those of `needed` that it has. Returns what it keeps, and how many it gave
/// up.
///
/// # Errors
/// When the kernel refuses; everything is as it was then.
pub(crate) fn keep_only(needed: CapabilitySet) -> io::Result<(CapabilitySet, u32)> {
    // Else root would have all of them again in a program that it starts.
    set_no_new_privs(true)?;
    let had = capabilities(None)?;
    let kept = had.permitted & needed;
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: had.inheritable & needed };
    set_capabilities(None, sets)?;
    Ok((kept, (had.permitted - kept).bits().count_ones()))
}

/// For threads that only read, wait and answer.
pub(crate) fn keep_none() {
    if let Err(error) = keep_only(CapabilitySet::empty()) {
        tracing::info!("capabilities stay as they were: {error}");
    }
}

/// As capabilities(7) writes them; `none` where there is none.
pub(crate) fn names(set: CapabilitySet) -> String {
    let names: Vec<String> = set.iter_names().map(|(name, _)| format!("CAP_{name}")).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_only_watches_keeps_the_least() {
        let (bpf, nice, admin) = (CapabilitySet::BPF, CapabilitySet::SYS_NICE, CapabilitySet::SYS_ADMIN);
        for (observer, acts, has) in [
            (ObserverChoice::Auto, true, bpf | nice | admin),
            (ObserverChoice::Procfs, true, bpf | nice | admin),
            (ObserverChoice::Bpf, false, bpf),
            (ObserverChoice::Auto, false, CapabilitySet::empty()),
        ] {
            let set = needed(observer, acts, false);
            assert_eq!(set & (bpf | nice | admin), has, "{observer:?}");
            assert!(!set.intersects(CapabilitySet::DAC_OVERRIDE | CapabilitySet::SYS_MODULE | CapabilitySet::SETUID));
            let host = needed(observer, acts, true);
            assert!(host.contains(nice | bpf) && host.contains(admin) == has.contains(admin));
        }
    }

    #[test]
    fn a_thread_keeps_what_is_named_and_others_are_left_alone() {
        let before = capabilities(None).unwrap();
        let inside = std::thread::spawn(|| {
            keep_none();
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            (capabilities(None).unwrap(), status)
        });
        let (kept, status) = inside.join().unwrap();
        assert_eq!((kept.effective, kept.permitted), (CapabilitySet::empty(), CapabilitySet::empty()));
        assert!(status.contains("NoNewPrivs:\t1\n"), "{status}");
        assert_eq!(capabilities(None).unwrap(), before);
    }

    #[test]
    fn they_are_named_as_the_manual_does() {
        assert_eq!(names(CapabilitySet::BPF | CapabilitySet::SYS_NICE), "CAP_SYS_NICE, CAP_BPF");
        assert_eq!(names(CapabilitySet::empty()), "none");
    }
}
