//! Why BPF cannot be used here, and what to do about it.

use std::io;

/// A reason for doing without.
#[derive(Debug, thiserror::Error)]
pub enum BpfRefusal {
    /// It was not to be used.
    #[error("BPF was not asked for")]
    NotAsked,
    /// The kernel does not let this user load BPF programs.
    #[error("no permission to load BPF programs ({step}: {source}); run as root, or with CAP_BPF and CAP_PERFMON")]
    NotPermitted {
        step: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// Whoever tries is killed.
    #[error("the system call filter around gleaner (seccomp) kills whoever calls {call}; allow it, or have it refused")]
    Deadly {
        /// What must not be called.
        call: &'static str,
    },
    /// The kernel does not describe its types.
    #[error("this kernel has no {path}; one built with CONFIG_DEBUG_INFO_BTF is needed")]
    NoBtf {
        /// What was looked for.
        path: String,
    },
    /// Thread ids here are not those that the kernel sees.
    #[error("gleaner runs in a PID namespace (a container) of its own; run it on the machine itself")]
    NotInitialPidNamespace,
    /// Nobody says whether thread ids here are those that the kernel sees.
    #[error("/proc does not tell whether process ids here are the kernel's own (/proc/self/ns/pid cannot be read)")]
    UnknownNamespace,
    /// The clock here is not the one that the kernel's programs read.
    #[error(
        "gleaner runs in a time namespace of its own, whose clock is not the kernel's; run it on the machine itself"
    )]
    NotInitialTimeNamespace,
    /// The kernel is older than Gleaner's programs, and lacks something.
    #[error("this kernel ({release}) is too old: Linux 6.1 or later is needed ({step}: {log})")]
    KernelTooOld {
        /// `uname -r`.
        release: String,
        /// What failed.
        step: &'static str,
        /// The end of libbpf's log.
        log: String,
    },
    /// The kernel refused a program or a map.
    #[error(
        "the kernel refused gleaner's BPF program ({step}): {log}; please report this with the output of `uname -r`"
    )]
    Rejected {
        /// What failed.
        step: &'static str,
        /// The end of libbpf's log, the verifier's words included.
        log: String,
    },
}
