//! What can go wrong while observing, with the file it went wrong in.

use gleaner_model::VcpuId;
use gleaner_sys::SysError;
use std::path::PathBuf;

/// An observation that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// A file of `/proc` or `/sys` that every Linux has could not be read, or is not what its format promises.
    #[error(transparent)]
    Sys(#[from] SysError),
    /// The process ids in `/proc` are not those of this process.
    #[error(
        "{} is that of another PID namespace, so its process ids mean other processes; mount one for this namespace \
         (mount -t proc proc /proc, unshare --mount-proc)",
        path.display()
    )]
    OtherProc {
        /// Which `/proc`.
        path: PathBuf,
    },
    /// The CPUs in a file are not those of the kernel.
    #[error(
        "{} numbers its CPUs otherwise than the kernel does (it has no {cpu}, which this process may use), as a \
         container's own file may (lxcfs); so it cannot be told how long they were idle",
        path.display()
    )]
    OtherCpus {
        /// Which file.
        path: PathBuf,
        /// A CPU that it should have and has not.
        cpu: VcpuId,
    },
    /// A group's window was asked for, and there is no group.
    #[error("no group is observed")]
    NoGroup,
    /// Gleaner was told to observe with BPF only.
    #[error(transparent)]
    Bpf(#[from] gleaner_bpf::BpfRefusal),
}
