//! Resource limits: those that the caller set are for the program that is to run. Gleaner lifts its own where it may,
//! and the program gets back exactly what there was.

use std::io;

/// A kind of limit, by the kernel's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit(libc::__rlimit_resource_t);

impl Limit {
    /// CPU time of the process, in seconds (`ulimit -t`).
    pub const CPU: Self = Self(libc::RLIMIT_CPU);
    /// Size of a file that is written, in bytes (`ulimit -f`).
    pub const FILE_SIZE: Self = Self(libc::RLIMIT_FSIZE);
    /// Address space, in bytes (`ulimit -v`).
    pub const ADDRESS_SPACE: Self = Self(libc::RLIMIT_AS);
    /// Stack of the first thread, in bytes (`ulimit -s`).
    pub const STACK: Self = Self(libc::RLIMIT_STACK);
    /// Open files (`ulimit -n`).
    pub const OPEN_FILES: Self = Self(libc::RLIMIT_NOFILE);
    /// Processes and threads of the user (`ulimit -u`).
    pub const PROCESSES: Self = Self(libc::RLIMIT_NPROC);

    /// Raised to what is allowed: what this process itself could run into.
    const LIFTED: [Self; 8] = [
        Self::CPU,
        Self::FILE_SIZE,
        Self::ADDRESS_SPACE,
        Self(libc::RLIMIT_DATA),
        Self::STACK,
        Self::OPEN_FILES,
        Self::PROCESSES,
        Self(libc::RLIMIT_SIGPENDING),
    ];

    /// The soft and the hard limit now; `u64::MAX` is none.
    pub fn now(self) -> (u64, u64) {
        let limit = self.get();
        (limit.rlim_cur, limit.rlim_max)
    }

    /// Lifts it for this process: to none where it may (`CAP_SYS_RESOURCE`), else up to the hard limit, which anybody
    /// may.
    pub fn lift(self) -> io::Result<()> {
        let none = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        let hard = self.get().rlim_max;
        self.set(&none).or_else(|_| self.set(&libc::rlimit { rlim_cur: hard, rlim_max: hard }))
    }

    /// Lowers the soft limit of this process. Where it is refused, it stays.
    pub fn lower(self, most: u64) {
        let now = self.get();
        let _ = self.set(&libc::rlimit { rlim_cur: now.rlim_cur.min(most), rlim_max: now.rlim_max });
    }

    fn get(self) -> libc::rlimit {
        let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: the kernel fills a local of the type asked for; where it refuses, there is no limit to speak of.
        unsafe { libc::getrlimit(self.0, &raw mut limit) };
        limit
    }

    fn set(self, limit: &libc::rlimit) -> io::Result<()> {
        // SAFETY: the kernel reads a value that outlives the call.
        let status = unsafe { libc::setrlimit(self.0, &raw const *limit) };
        if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// How many kinds there are (`RLIM_NLIMITS`).
const KINDS: usize = 16;

/// All limits of this process at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Limits([libc::rlimit; KINDS]);

impl Limits {
    /// Lifts what this process itself could run into. What is not to be had is done without.
    pub fn lift_own() {
        for limit in Limit::LIFTED {
            let _ = limit.lift();
        }
    }

    /// As they are now.
    pub fn now() -> Self {
        let mut kinds = 0..;
        Self([(); KINDS].map(|()| Limit(kinds.next().unwrap_or(0)).get()))
    }

    /// The soft limit of this kind; `u64::MAX` is none.
    pub fn soft(&self, limit: Limit) -> u64 {
        self.0.get(limit.0 as usize).map_or(u64::MAX, |limit| limit.rlim_cur)
    }

    /// Sets the soft limit that [`Self::restore`] will set.
    pub fn set_soft(&mut self, limit: Limit, soft: u64) {
        if let Some(limit) = self.0.get_mut(limit.0 as usize) {
            limit.rlim_cur = soft;
        }
    }

    /// Sets them again. Async-signal-safe.
    ///
    /// # Errors
    /// What the kernel says; lowering a limit is never refused.
    pub fn restore(&self) -> io::Result<()> {
        for (kind, limit) in (0..).zip(&self.0) {
            let now = Limit(kind).get();
            if (now.rlim_cur, now.rlim_max) != (limit.rlim_cur, limit.rlim_max) {
                Limit(kind).set(limit)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifted_limits_are_given_back_as_they_were() {
        // In a child: this process's limits are other tests' too.
        // SAFETY: the child makes system calls only, and ends without running anything else.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let (_, most) = Limit::FILE_SIZE.now();
            let soft = libc::rlimit { rlim_cur: 5, rlim_max: most };
            let ok = Limit::FILE_SIZE.set(&soft).is_ok() && {
                let had = Limits::now();
                Limits::lift_own();
                let lifted = Limit::FILE_SIZE.now();
                lifted.0 >= most && had.restore().is_ok() && Limit::FILE_SIZE.now() == (5, most)
            };
            // SAFETY: ends this process at once.
            unsafe { libc::_exit(i32::from(!ok)) };
        }
        let mut status = 0;
        // SAFETY: the status outlives the call.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    }
}
