//! Clocks.

use gleaner_model::Nanos;
use rustix::time::{ClockId, clock_gettime};

/// Monotonic time. Async-signal-safe. In a time namespace it is not the kernel's own.
#[inline]
pub fn monotonic() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    Nanos::from_secs(u64::try_from(time.tv_sec).unwrap_or(0)) + Nanos(u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// CPU time of the calling thread.
#[inline]
pub fn thread_cpu_time() -> Nanos {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills a local of the type asked for. Where the call is forbidden, nothing was used.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Nanos::from_secs(u64::try_from(time.tv_sec).unwrap_or(0)) + Nanos(u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// CPU time of a process by its own clock (`clock_getcpuclockid`; 0: this one): exact now, without waiting for a tick,
/// and with the threads that are no more. Needs no privilege. `None` when it is gone.
pub fn process_cpu_time(pid: i32) -> Option<Nanos> {
    let mut clock = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both pointers are to locals of the type asked for.
    let failed = unsafe {
        libc::clock_getcpuclockid(pid, &raw mut clock) != 0 || libc::clock_gettime(clock, &raw mut time) != 0
    };
    if failed {
        return None;
    }
    Some(Nanos(u64::try_from(time.tv_sec).ok()? * 1_000_000_000 + u64::try_from(time.tv_nsec).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_go_on() {
        let (clock, thread, process) = (monotonic(), thread_cpu_time(), process_cpu_time(0).unwrap());
        while thread_cpu_time() == thread {}
        assert!(monotonic() > clock && process_cpu_time(0).unwrap() > process);
        assert_eq!(process_cpu_time(1 << 25), None);
    }
}
