//! The kernel's files and calls, read in one place.
//!
//! ```text
//!   root        where /proc and /sys are; files read again and again without allocating
//!   affinity    which CPUs a thread may use, for any number of CPUs
//!   cpus        which CPUs this process may use; online and possible ones
//!   topology    which CPUs share a core, a cache, a memory node
//!   system      /proc/stat
//!   stat        /proc/PID/stat and schedstat, /proc/PID/status
//!   cgroup      /proc/PID/cgroup and mountinfo: which mount shows the cgroup that this process is in
//!   quota       whether a cgroup's CPU time is limited, how many processes it may still have, and how much memory
//!   namespace   whose /proc this is
//!   limits      what this process may use, and what its caller gave it
//!   filter      which system calls a filter (seccomp) refuses, and which end this process
//!   clock       CPU time of a thread or process, monotonic time
//!   aside       ends without waiting what takes long to end
//! ```
//!
//! Names are bytes, because the kernel's are. Every reader takes a [`ProcRoot`] or the text itself, so tests need no
//! machine. The `procfs` crate was looked at: it has names as `String`, and makes a map of all of `status` where two
//! numbers are wanted, for every thread in every window.

#[cfg(not(target_arch = "x86_64"))]
compile_error!(
    "Gleaner is made for x86-64: neither its BPF programs nor its system calls were tried on another processor"
);

mod affinity;
mod aside;
mod cgroup;
mod clock;
mod cpus;
mod error;
pub mod filter;
mod limits;
mod namespace;
mod quota;
mod root;
mod stat;
mod system;
mod topology;

pub use affinity::{MAX_CPUS, affinity_of, set_affinity, set_affinity_to_all};
pub use aside::drop_aside;
pub use cgroup::{Mount, cgroup_path, hierarchy_folder, mounts};
pub use clock::{monotonic, process_cpu_time, thread_cpu_time};
pub use cpus::{OnlineReader, online_cpus, own_affinity, possible_cpus, usable_cpus};
pub use error::{SysError, is_gone, why_refused};
pub use limits::{Limit, Limits};
pub use namespace::{Namespaces, OwnProc, own_proc, user_is_initial};
pub use quota::{Quota, cpu_quota, memory_limit, processes_left, tasks_of_user};
pub use root::{ProcRoot, numbered, read_optional, reread};
pub use stat::{Stat, children, children_of_all, parents, schedstat, status_field, switches};
pub use system::{CpuTimes, StatReader, SystemStat};
pub use topology::topology;
