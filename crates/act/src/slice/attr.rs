//! `sched_getattr` and `sched_setattr`: a thread's slice, with everything else about it left alone.
//!
//! The call that sets the slice (`sched_runtime` of a normal thread, since Linux 6.12) also sets policy and nice value,
//! so both are read first and the policy is kept by flag. What the call leaves out (utilization clamps, reset-on-fork)
//! stays.
//!
//! Reading gives the slice in force, whether somebody chose it or not. A thread whose slice is the machine's base slice
//! is taken for one that chose nothing: giving it back "0" makes it follow the base slice again, as it did.

use crate::ActError;
use gleaner_model::Nanos;
use rustix::io::Errno;
use std::mem::size_of;

/// The scheduling attributes of one thread that matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadAttr {
    /// Its scheduling policy, as `SCHED_OTHER`, `SCHED_BATCH` and so on number them.
    pub policy: u32,
    /// Its nice value.
    pub nice: i32,
    /// Its slice; zero where the kernel has none (before 6.12), or the thread is of a class without.
    pub slice: Nanos,
}

impl ThreadAttr {
    /// Whether threads of its class have slices: the fair ones.
    pub fn is_fair(&self) -> bool {
        let fair = [libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE];
        fair.iter().any(|policy| u32::try_from(*policy).is_ok_and(|policy| policy == self.policy))
    }
}

fn raw_attr(tid: i32) -> Result<libc::sched_attr, Errno> {
    // SAFETY: sched_attr is plain data, and the kernel fills at most the size it is told.
    let (attr, status) = unsafe {
        let mut attr: libc::sched_attr = std::mem::zeroed();
        let size = size_of::<libc::sched_attr>();
        let status = libc::syscall(libc::SYS_sched_getattr, tid, &raw mut attr, size, 0);
        (attr, status)
    };
    if status == 0 { Ok(attr) } else { Err(last_errno()) }
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}

/// Policy, nice value and slice of a thread (0: the calling one).
pub fn thread_attr(tid: i32) -> Result<ThreadAttr, ActError> {
    let attr = raw_attr(tid).map_err(ActError::thread("sched_getattr", tid))?;
    let slice = ThreadAttr { policy: attr.sched_policy, nice: attr.sched_nice, slice: Nanos::ZERO };
    Ok(if slice.is_fair() { ThreadAttr { slice: Nanos(attr.sched_runtime), ..slice } } else { slice })
}

/// Sets the slice; zero gives the base slice back. Policy and nice value stay what they are.
pub(crate) fn set_slice(tid: i32, slice: Nanos) -> Result<(), Errno> {
    let mut attr = raw_attr(tid)?;
    let keep = u64::try_from(libc::SCHED_FLAG_KEEP_POLICY).unwrap_or(0);
    attr.size = u32::try_from(size_of::<libc::sched_attr>()).unwrap_or(0);
    // Reset-on-fork is part of the policy that is kept; the clamps are not touched without their flags.
    attr.sched_flags = keep;
    attr.sched_runtime = slice.0;
    (attr.sched_deadline, attr.sched_period) = (0, 0);
    // SAFETY: the struct is as long as it says and outlives the call.
    let status = unsafe { libc::syscall(libc::SYS_sched_setattr, tid, &raw const attr, 0) };
    if status == 0 { Ok(()) } else { Err(last_errno()) }
}

/// What this kernel does with slices: tried on a thread of our own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceSupport {
    /// The slice of a thread that chose none; `None` where threads have no slice of their own (before Linux 6.12).
    pub base: Option<Nanos>,
}

impl SliceSupport {
    /// Tries it out on a thread that ends at once; where none is to be had, on the calling one, which keeps what it
    /// had.
    pub fn probe() -> Self {
        let thread = std::thread::Builder::new().spawn(try_slice);
        let base = match thread {
            Ok(thread) => thread.join().ok().flatten(),
            Err(_) => thread_attr(0).ok().and_then(|before| {
                let base = try_slice();
                set_slice(0, before.slice).ok().and(base)
            }),
        };
        Self { base: base.filter(|base| *base > Nanos::ZERO) }
    }
}

/// The base slice, if the calling thread can be given another.
fn try_slice() -> Option<Nanos> {
    let odd = Nanos(1_234_567);
    set_slice(0, odd).ok()?;
    let took = thread_attr(0).ok()?.slice == odd;
    set_slice(0, Nanos::ZERO).ok()?;
    thread_attr(0).ok().map(|attr| attr.slice).filter(|_| took)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_changes_and_nothing_else() {
        let Some(base) = SliceSupport::probe().base else {
            gleaner_testing::skip!("needs slices of threads (Linux 6.12)");
        };
        let seen = std::thread::spawn(|| {
            // SAFETY: no memory is passed; who = 0 is the calling thread on Linux.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 7) };
            let param = libc::sched_param { sched_priority: 0 };
            // SAFETY: pid 0 is the calling thread; the parameter outlives the call.
            unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const param) };
            let before = thread_attr(0).unwrap();
            set_slice(0, Nanos::from_micros(700)).unwrap();
            let set = thread_attr(0).unwrap();
            set_slice(0, Nanos::ZERO).unwrap();
            (before, set, thread_attr(0).unwrap())
        });
        let (before, set, after) = seen.join().unwrap();
        assert_eq!((before.nice, before.policy), (7, u32::try_from(libc::SCHED_BATCH).unwrap()));
        assert_eq!(set, ThreadAttr { slice: Nanos::from_micros(700), ..before });
        assert_eq!(after, ThreadAttr { slice: base, ..before });
    }

    #[test]
    fn nobody_has_no_attributes() {
        assert!(thread_attr(i32::MAX).unwrap_err().to_string().contains("2147483647"));
        assert!(set_slice(i32::MAX, Nanos::from_millis(1)).is_err());
    }
}
