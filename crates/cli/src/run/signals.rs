//! Signals during `run`: the program shall notice no difference.
//!
//! Gleaner and the program are one process group, as with time(1). What the terminal sends (Ctrl-C, Ctrl-Z) reaches
//! both by itself; what somebody sends to Gleaner is passed on. A signal that somebody sends to the whole group (`kill
//! -- -PGID`) reaches the program twice: the kernel does not say that it was for the group (docs/safety.md).

use gleaner_command::failure::Failure;
use gleaner_sys::{Limit, Limits};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::ops::RangeInclusive;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Instant;

/// Passed on when sent to us, and all real-time signals. SIGTTIN and SIGTTOU keep their default action: the terminal
/// sends them to the whole group. What tells of a fault in this very process (SIGSEGV and the like) is nobody else's.
const PASSED_ON: [i32; 16] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGWINCH,
    libc::SIGTSTP,
    libc::SIGCONT,
    libc::SIGIO,
    libc::SIGPROF,
    libc::SIGVTALRM,
    libc::SIGXCPU,
    libc::SIGXFSZ,
    libc::SIGPWR,
];

/// What a terminal sends, to every process of the job.
const BY_TERMINAL: [i32; 6] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTSTP, libc::SIGCONT, libc::SIGWINCH];

fn passed_on() -> impl Iterator<Item = i32> {
    PASSED_ON.into_iter().chain(libc::SIGRTMIN()..=libc::SIGRTMAX())
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A child changed its state.
    Child,
    /// A signal for the program; `by_terminal`: it has it already.
    Signal { signal: i32, by_terminal: bool },
}

/// How this process was started: what the program has to find again.
#[derive(Clone)]
pub struct Inherited {
    /// Bit 0 is signal 1.
    ignored: u64,
    blocked: libc::sigset_t,
    /// Resource limits, of which Gleaner lifts its own.
    pub limits: Limits,
}

/// Sent by the kernel to a process that exceeds a limit of its own: Gleaner's are not the program's.
const OF_LIMITS: [i32; 2] = [libc::SIGXCPU, libc::SIGXFSZ];

/// Which signals were ignored when this process began (bit 0 is signal 1): before Rust's runtime ignored SIGPIPE, and
/// the C library took two for its threads.
static WERE_IGNORED: AtomicU64 = AtomicU64::new(0);
/// Which of stdin, stdout and stderr were closed (bits 0 to 2) before Rust's runtime opened /dev/null there.
static WERE_CLOSED: AtomicU8 = AtomicU8::new(0);
const SIGNALS: RangeInclusive<i32> = 1..=64;
/// The soft limit of the stack, where that was too small for Gleaner itself and was lifted; else all bits are set.
static STACK_WAS: AtomicU64 = AtomicU64::new(u64::MAX);
/// Bytes of stack that reading the command line needs.
pub const LEAST_STACK: u64 = 1 << 20;

/// Run by the C library before `main`, and so before that runtime: nobody can tell afterwards.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK_FIRST: extern "C" fn() = {
    extern "C" fn look() {
        for signal in SIGNALS.filter(|signal| disposition(*signal, None) == Some(libc::SIG_IGN)) {
            WERE_IGNORED.fetch_or(1 << (signal - 1), Ordering::Relaxed);
        }
        for fd in 0..3 {
            // SAFETY: no memory is passed. The call may be forbidden, too.
            let closed = unsafe { libc::fcntl(fd, libc::F_GETFD) < 0 && *libc::__errno_location() == libc::EBADF };
            if closed {
                WERE_CLOSED.fetch_or(1 << fd, Ordering::Relaxed);
            }
        }
        // Reading the command line would overflow a smaller one.
        let (stack, _) = Limit::STACK.now();
        if stack < LEAST_STACK && Limit::STACK.lift().is_ok() {
            STACK_WAS.store(stack, Ordering::Relaxed);
        }
    }
    look
};

/// What is done at a signal, and what is to be done from now on: SIG_IGN, SIG_DFL or a handler. The kernel's own call,
/// because the C library hides two signals. Async-signal-safe.
fn disposition(signal: i32, new: Option<libc::sighandler_t>) -> Option<libc::sighandler_t> {
    // The kernel's struct: the handler, then flags, restorer and mask, none of which SIG_IGN and SIG_DFL need.
    let mut old = [0_usize; 4];
    let set = new.map(|handler| [handler, 0, 0, 0]);
    let new = set.as_ref().map_or(std::ptr::null(), |set| set.as_ptr());
    // SAFETY: both arrays are as long as the struct, and outlive the call; 8 is the size of its mask.
    let status = unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, new, old.as_mut_ptr(), 8_usize) };
    (status == 0).then_some(old[0])
}

/// Whether this process was started with the signal ignored (nohup), or ignores it by now.
pub fn is_ignored(signal: i32) -> bool {
    disposition(signal, None) == Some(libc::SIG_IGN)
}

impl Inherited {
    /// To be asked before a [`Listener`] is made.
    pub fn now() -> Self {
        let ignored = WERE_IGNORED.load(Ordering::Relaxed);
        // SAFETY: sigset_t is plain data, filled by the call; a null new set only asks.
        let blocked = unsafe {
            let mut blocked: libc::sigset_t = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut blocked);
            blocked
        };
        let mut limits = Limits::now();
        let stack = STACK_WAS.load(Ordering::Relaxed);
        if stack != u64::MAX {
            limits.set_soft(Limit::STACK, stack);
        }
        Self { ignored, blocked, limits }
    }

    fn ignores(&self, signal: i32) -> bool {
        self.ignored & (1 << (signal - 1)) != 0
    }

    /// Lifts the limits that were meant for the program from this process, as far as it may, and lives on where one is
    /// exceeded. To be called once all that was inherited is known.
    pub fn lift_limits() {
        Limits::lift_own();
        for signal in OF_LIMITS {
            // A `Listener` made later listens to them all the same.
            disposition(signal, Some(libc::SIG_IGN));
        }
    }

    /// Makes it so again. To be called between fork and exec: async-signal-safe, allocates nothing.
    pub fn restore(&self) {
        for signal in OF_LIMITS {
            disposition(signal, Some(libc::SIG_DFL));
        }
        for signal in SIGNALS.filter(|signal| self.ignores(*signal)) {
            disposition(signal, Some(libc::SIG_IGN));
        }
        for fd in (0..3).filter(|fd| WERE_CLOSED.load(Ordering::Relaxed) & (1 << fd) != 0) {
            // SAFETY: nothing of this process uses the descriptor any more.
            unsafe { libc::close(fd) };
        }
        // Lowering a limit is never refused.
        let _ = self.limits.restore();
        // SAFETY: the set outlives the call; the old one is not wanted.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.blocked, std::ptr::null_mut()) };
    }
}

/// With SIGCHLD ignored the kernel would tell nobody how a child ended. For every command; the program finds it as it
/// was.
pub fn hear_of_children() {
    if is_ignored(libc::SIGCHLD) {
        disposition(libc::SIGCHLD, Some(libc::SIG_DFL));
    }
}

/// This thread takes no signal any more.
pub fn block_all() {
    // SAFETY: sigset_t is plain data, which the calls fill and read.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
    }
}

/// Hears every signal from the moment it is made, except those that are to stay ignored. They are blocked and read, so
/// there is no handler: every thread that is begun later blocks them too.
pub struct Listener(OwnedFd);

impl Listener {
    pub fn new(inherited: &Inherited) -> Result<Self, Failure> {
        let wanted = passed_on().filter(|signal| !inherited.ignores(*signal)).chain([libc::SIGCHLD]);
        // SAFETY: sigset_t is plain data, which the calls fill and read. No other signal stays blocked: a program that
        // blocks some finds them so. The descriptor is nobody else's.
        let fd = unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in wanted {
                libc::sigaddset(&raw mut set, signal);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
            match libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC) {
                fd if fd < 0 => Err(Failure::run(std::io::Error::last_os_error())),
                fd => Ok(OwnedFd::from_raw_fd(fd)),
            }
        };
        fd.map(Self)
    }

    /// The next one; `None`: there was none until then.
    pub fn next(&self, until: Option<Instant>) -> Option<Event> {
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let limit = left.and_then(|left| Timespec::try_from(left).ok());
            match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], limit.as_ref()) {
                Ok(0) => return None,
                Ok(_) => {}
                // A stop, or one that is nobody else's.
                Err(_) => continue,
            }
            // SAFETY: the struct is plain data, and as long as what is read.
            let info = unsafe {
                let mut info: libc::signalfd_siginfo = std::mem::zeroed();
                let size = size_of_val(&info);
                if libc::read(self.0.as_raw_fd(), (&raw mut info).cast(), size) != size.cast_signed() {
                    continue;
                }
                info
            };
            if let Some(event) = event(&info) {
                return Some(event);
            }
        }
    }
}

/// `None` for what is nobody else's.
fn event(info: &libc::signalfd_siginfo) -> Option<Event> {
    let signal = i32::try_from(info.ssi_signo).ok()?;
    let of_kernel = info.ssi_code == libc::SI_KERNEL;
    Some(match signal {
        libc::SIGCHLD => Event::Child,
        // SIGXFSZ says that it comes from this process, SIGXCPU from the kernel.
        signal if OF_LIMITS.contains(&signal) && (of_kernel || info.ssi_pid == std::process::id()) => return None,
        // The kernel sends others too, such as an inherited alarm's: those are for the program.
        signal => Event::Signal { signal, by_terminal: of_kernel && BY_TERMINAL.contains(&signal) },
    })
}

/// Passes signals on to one program.
pub struct Relay {
    program: i32,
    /// Whether the program was told to stop by us, and not by its terminal.
    stopped: bool,
}

impl Relay {
    pub fn to(program: i32) -> Self {
        Self { program, stopped: false }
    }

    /// Passes a signal on, and stops with the program when it is told to stop.
    pub fn pass_on(&mut self, signal: i32, by_terminal: bool) {
        // Who continues a job (a shell's fg and bg) continues the program too. A second SIGCONT, a little late, could
        // undo the next Ctrl-Z: it is for the program that we have stopped.
        let is_for_it = if signal == libc::SIGCONT { std::mem::take(&mut self.stopped) } else { !by_terminal };
        if is_for_it {
            // SAFETY: kill takes no memory. The program may have ended: then there is nobody to tell.
            unsafe { libc::kill(self.program, signal) };
        }
        if signal == libc::SIGTSTP {
            self.stopped = !by_terminal;
            stop();
        }
    }
}

/// Stops as SIGTSTP does by itself, until somebody continues this process: the shell must see it stopped, and by what.
fn stop() {
    // SAFETY: sigset_t is plain data, which the calls fill and read. The signal is blocked until now, and again.
    unsafe {
        let mut only: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut only);
        libc::sigaddset(&raw mut only, libc::SIGTSTP);
        libc::raise(libc::SIGTSTP);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const only, std::ptr::null_mut());
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const only, std::ptr::null_mut());
    }
}
