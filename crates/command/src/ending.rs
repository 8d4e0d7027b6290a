//! Ending as a program does that a signal ends: by that signal. A shell takes a status of 130 for one that handled
//! Ctrl-C, and goes on with its loop.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicI32, Ordering};

/// The signal that ended what this command ran, or told this command to end.
static OF: AtomicI32 = AtomicI32::new(0);

/// What this command ran ended so.
pub fn as_program(status: ExitStatus) {
    OF.store(status.signal().unwrap_or(0), Ordering::Relaxed);
}

/// The signal told this command to end. Async-signal-safe.
pub fn told(signal: i32) {
    OF.store(signal, Ordering::Relaxed);
}

/// The signal; 0: none.
pub fn signal() -> i32 {
    OF.load(Ordering::Relaxed)
}

/// Ends this process by the signal that `status` (128+n) tells of. To be called last: nothing is done after it. Comes
/// back where there was none, or where it cannot be raised, as by the first process of a container.
pub fn by_signal(status: u8) {
    let signal = signal();
    if signal == 0 || i32::from(status) != 128 + signal {
        return;
    }
    // Nothing is left to do for what cannot be written.
    let _ = crate::output::flushed();
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: all structs are plain data that outlive the calls. No core: the program may have dumped its own.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        let mut default: libc::sigaction = std::mem::zeroed();
        default.sa_sigaction = libc::SIG_DFL;
        libc::sigaction(signal, &raw const default, std::ptr::null_mut());
        let mut only: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut only);
        libc::sigaddset(&raw mut only, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const only, std::ptr::null_mut());
        libc::raise(signal);
    }
}
