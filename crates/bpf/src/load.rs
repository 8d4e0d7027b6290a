//! Loads with libbpf's words kept, so that a refusal can show them.

use crate::BpfRefusal;
use gleaner_model::KernelVersion;
use gleaner_sys::filter;
use libbpf_rs::PrintLevel;
use libbpf_rs::libbpf_sys::{bpf_prog_get_info_by_fd, bpf_prog_info};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// First Linux that Gleaner is made for.
const OLDEST: KernelVersion = KernelVersion(6, 1);
/// How much of libbpf's log a refusal shows.
const LOG_TAIL: usize = 1500;

/// What libbpf says, kept while one thread loads. The print callback takes no context, hence a static.
static LOG: Mutex<String> = Mutex::new(String::new());
/// One loads at a time, or their logs would mix.
static LOADING: Mutex<()> = Mutex::new(());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[expect(clippy::needless_pass_by_value, reason = "the type of libbpf-rs's callback")]
fn keep_log(_level: PrintLevel, message: String) {
    tracing::debug!(target: "libbpf", "{}", message.trim_end());
    let mut log = lock(&LOG);
    log.push_str(&message);
    // The verifier may talk for megabytes; its last words count.
    if log.len() > 64 * LOG_TAIL {
        let surplus = log.len() - tail(&log).len();
        log.drain(..surplus);
    }
}

fn tail(log: &str) -> &str {
    let log = log.trim_end();
    let mut start = log.len().saturating_sub(LOG_TAIL);
    while !log.is_char_boundary(start) {
        start += 1;
    }
    &log[start..]
}

/// Runs what loads programs, one at a time, with libbpf's words kept for [`refusal`].
///
/// # Errors
/// What `load` refuses; before that [`BpfRefusal::NoBtf`], where `sys` (`/sys`) does not describe the kernel's types,
/// and [`BpfRefusal::Deadly`].
pub fn loading<T, E: From<BpfRefusal>>(sys: &Path, load: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    if let Some(call) = filter::deadly().bpf {
        return Err(BpfRefusal::Deadly { call }.into());
    }
    let btf = sys.join("kernel/btf/vmlinux");
    if !btf.exists() {
        return Err(BpfRefusal::NoBtf { path: btf.display().to_string() }.into());
    }
    let _one_at_a_time = lock(&LOADING);
    lock(&LOG).clear();
    let print_before = libbpf_rs::set_print(Some((PrintLevel::Info, keep_log)));
    let loaded = load();
    libbpf_rs::set_print(print_before);
    loaded
}

/// Turns an error into the refusal it stands for, with the end of libbpf's log.
pub fn refusal(step: &'static str, error: &libbpf_rs::Error) -> BpfRefusal {
    let code = os_error(&error.to_string());
    // The verifier says EACCES too, but root is not lacking permission.
    let unprivileged = !rustix::process::geteuid().is_root();
    if code == Some(libc::EPERM) || (unprivileged && error.kind() == libbpf_rs::ErrorKind::PermissionDenied) {
        let source = io::Error::from_raw_os_error(code.unwrap_or(libc::EPERM));
        return BpfRefusal::NotPermitted { step, source };
    }
    let log = lock(&LOG);
    let log = format!("{error}: {}", tail(&log));
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    if KernelVersion::of_release(&release).is_some_and(|version| version < OLDEST) {
        return BpfRefusal::KernelTooOld { release, step, log };
    }
    BpfRefusal::Rejected { step, log }
}

/// How often a program has run, and for how many nanoseconds altogether, as far as the kernel counts that
/// (`kernel.bpf_stats_enabled`).
pub fn run_time(program: BorrowedFd<'_>) -> Option<(u64, u64)> {
    let mut info = bpf_prog_info::default();
    let mut length = u32::try_from(size_of_val(&info)).ok()?;
    // SAFETY: the kernel fills a local of this length, and follows none of its pointers, because their counts are 0.
    let failed = unsafe { bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut length) };
    (failed == 0).then_some((info.run_cnt, info.run_time_ns))
}

/// The system's error number in an error's text: libbpf-rs hands it out in no other way.
fn os_error(text: &str) -> Option<i32> {
    text.rsplit_once("(os error ")?.1.split_once(')')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_refuses_is_no_fault_of_the_program() {
        let of = |code| refusal("loading", &libbpf_rs::Error::from_raw_os_error(code));
        assert!(matches!(of(libc::EPERM), BpfRefusal::NotPermitted { step: "loading", .. }));
        assert_eq!(os_error(&libbpf_rs::Error::from_raw_os_error(libc::ENOENT).to_string()), Some(libc::ENOENT));
        assert_eq!(os_error("no number here"), None);
    }

    #[test]
    fn the_tail_of_a_log_never_splits_a_character() {
        let log = "é".repeat(LOG_TAIL);
        assert!(tail(&log).len() <= LOG_TAIL);
        assert_eq!(tail("short\n"), "short");
    }

    #[test]
    fn a_kernel_without_types_is_refused_before_anything_is_loaded() {
        let refused = loading(Path::new("/nonexistent"), || -> Result<(), BpfRefusal> { unreachable!("loaded") });
        assert!(refused.unwrap_err().to_string().contains("/nonexistent/kernel/btf/vmlinux"));
    }
}
