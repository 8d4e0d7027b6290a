//! System call filters (seccomp) around this process: which calls they refuse, and which they answer with death.
//!
//! Most refusals are an answer like any other. But a filter may kill instead: systemd's does, where a unit names no
//! `SystemCallErrorNumber`. Nothing tells what a filter does, so calls are tried, with arguments that do nothing. A
//! child tries them where they may be deadly.

use crate::status_field;
use libc::c_long;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A system call, with arguments with which it does nothing, whoever makes it.
#[derive(Debug)]
struct Call {
    name: &'static str,
    number: c_long,
    arguments: [c_long; 5],
}

const fn call(name: &'static str, number: c_long, arguments: [c_long; 5]) -> Call {
    Call { name, number, arguments }
}

/// No descriptor, process, clock, command or operation.
const NONE: [c_long; 5] = [-1, 0, 0, 0, 0];

/// Without these a program can be started, and nobody can wait for it.
const WAITING: [Call; 10] = [
    // More descriptors than there can be.
    call("ppoll", libc::SYS_ppoll, [0, 0xffff_ffff, 0, 0, 0]),
    // No such options.
    call("wait4", libc::SYS_wait4, [-1, 0, 0xffff, 0, 0]),
    call("recvfrom", libc::SYS_recvfrom, NONE),
    // A set of no bytes.
    call("rt_sigprocmask", libc::SYS_rt_sigprocmask, [0; 5]),
    call("read", libc::SYS_read, NONE),
    call("close", libc::SYS_close, NONE),
    // A word that is none.
    call("futex", libc::SYS_futex, [1, 129, 0, 0, 0]),
    call("getpid", libc::SYS_getpid, [0; 5]),
    call("getuid", libc::SYS_getuid, [0; 5]),
    call("geteuid", libc::SYS_geteuid, [0; 5]),
];

/// What starting a program takes besides. A refusal is told, and another way found.
const STARTING: [Call; 6] = [
    call("socketpair", libc::SYS_socketpair, NONE),
    call("pipe2", libc::SYS_pipe2, [0; 5]),
    // Signals that are shared, without the memory.
    call("clone", libc::SYS_clone, [libc::CLONE_SIGHAND as c_long, 0, 0, 0, 0]),
    call("signalfd4", libc::SYS_signalfd4, NONE),
    call("prctl", libc::SYS_prctl, NONE),
    call("dup3", libc::SYS_dup3, [-1, -1, 0, 0, 0]),
];

/// What managing it takes, of what usual filters leave out.
const MANAGING: [Call; 8] = [
    call("sched_setaffinity", libc::SYS_sched_setaffinity, NONE),
    call("sched_setscheduler", libc::SYS_sched_setscheduler, NONE),
    call("setpriority", libc::SYS_setpriority, NONE),
    call("sched_getaffinity", libc::SYS_sched_getaffinity, NONE),
    call("flock", libc::SYS_flock, NONE),
    call("waitid", libc::SYS_waitid, NONE),
    call("setsid", libc::SYS_setsid, [0; 5]),
    call("clone3", libc::SYS_clone3, [0; 5]),
];

/// What asking a daemon takes.
const ASKING: [Call; 5] = [
    call("socket", libc::SYS_socket, NONE),
    call("connect", libc::SYS_connect, NONE),
    call("sendto", libc::SYS_sendto, NONE),
    call("recvmsg", libc::SYS_recvmsg, NONE),
    call("pidfd_open", libc::SYS_pidfd_open, NONE),
];

/// What only observing by BPF, and polling by it, takes.
const BPF: [Call; 2] =
    [call("bpf", libc::SYS_bpf, NONE), call("perf_event_open", libc::SYS_perf_event_open, [0, 0, -1, -1, 0])];

impl Call {
    fn make(&self) -> c_long {
        let [first, second, third, fourth, fifth] = self.arguments;
        // SAFETY: with these arguments the kernel changes nothing, and reads and writes no memory.
        unsafe { libc::syscall(self.number, first, second, third, fourth, fifth, 0) }
    }
}

/// A call that a filter does not allow, and without which nobody can wait for a program. To be asked before it is
/// started; `None`: all is well.
pub fn in_the_way_of_waiting() -> Option<&'static str> {
    let refused = WAITING.iter().find(|call| {
        let error = || std::io::Error::last_os_error().raw_os_error();
        call.make() < 0 && matches!(error(), Some(libc::EPERM | libc::ENOSYS | libc::EACCES))
    });
    refused.map(|call| call.name)
}

/// Calls that end this process, by what they are for.
#[derive(Debug, Default)]
pub struct Deadly {
    /// Without it no program can be started and waited for.
    pub starting: Option<&'static str>,
    /// Without it no daemon can be asked.
    pub asking: Option<&'static str>,
    /// Without it none can be managed.
    pub managing: Option<&'static str>,
    /// Without it BPF cannot be used.
    pub bpf: Option<&'static str>,
}

/// Which calls are deadly. Costs nothing where no filter is; else a short-lived child, the first time.
pub fn deadly() -> &'static Deadly {
    static DEADLY: OnceLock<Deadly> = OnceLock::new();
    DEADLY.get_or_init(|| {
        // Nobody to ask: as if there were one.
        let is_filtered = std::fs::read("/proc/self/status")
            .map_or(true, |status| status_field(&status, b"Seccomp").is_some_and(|mode| mode == b"2"));
        if !is_filtered {
            return Deadly::default();
        }
        let starting = || WAITING.iter().chain(&STARTING);
        if first_deadly(starting().chain(&ASKING).chain(&MANAGING).chain(&BPF)).is_none() {
            return Deadly::default();
        }
        Deadly {
            starting: first_deadly(starting()),
            asking: first_deadly(ASKING.iter()),
            managing: first_deadly(MANAGING.iter()),
            bpf: first_deadly(BPF.iter()),
        }
    })
}

/// The first call of which a child dies.
fn first_deadly(calls: impl Iterator<Item = &'static Call> + Clone) -> Option<&'static str> {
    let page = Shared::new()?;
    // SAFETY: a fork by another name: the child has its own memory, makes system calls, and ends. Its end sends no
    // signal, and whoever waits for other children does not see it.
    let pid = unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) };
    if pid == 0 {
        no_core();
        for (at, call) in calls.enumerate() {
            page.at().store(at + 1, Ordering::Relaxed);
            call.make();
        }
        page.at().store(0, Ordering::Relaxed);
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(0) };
    }
    let pid = i32::try_from(pid).ok().filter(|pid| *pid > 0)?;
    // SAFETY: the status is not wanted; the child is ours, and nobody else waits for it.
    while unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::__WALL) } < 0
        && std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR)
    {}
    let at = page.at().load(Ordering::Relaxed).checked_sub(1)?;
    calls.clone().nth(at).map(|call| call.name)
}

/// Whoever dies of a filter leaves a core file where it may.
fn no_core() {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel reads the struct, which outlives the call.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) };
}

/// Memory that a child shares with its parent.
struct Shared(*mut libc::c_void);

impl Shared {
    const BYTES: usize = size_of::<AtomicUsize>();

    fn new() -> Option<Self> {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: new memory, wherever there is room.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), Self::BYTES, access, kind, -1, 0) };
        (at != libc::MAP_FAILED).then_some(Self(at))
    }

    fn at(&self) -> &AtomicUsize {
        // SAFETY: mapped until the drop, zeroed by the kernel, and aligned to a page.
        unsafe { &*self.0.cast::<AtomicUsize>() }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and nobody has a reference any more.
        unsafe { libc::munmap(self.0, Self::BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_are_tried_do_nothing_and_kill_nobody() {
        assert_eq!(in_the_way_of_waiting(), None);
        let all = || WAITING.iter().chain(&STARTING).chain(&ASKING).chain(&MANAGING).chain(&BPF);
        assert_eq!(first_deadly(all()), None);
        let answers = all().filter(|call| call.name != "setsid").map(|call| (call.name, call.make()));
        let answered: Vec<_> = answers.filter(|(_, answer)| *answer >= 0).map(|(name, _)| name).collect();
        assert_eq!(answered, ["getpid", "getuid", "geteuid"]);
    }
}
