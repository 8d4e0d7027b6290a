//! Work that may take long: how far it is, how long it still takes, and ending it early with what is done.
//!
//! A signal, or a limit that was given, ends the work; what there is by then is the result, and says so. Whatever does
//! not look at its [`Watch`] (a read from a pipe that gives nothing) is ended a few seconds after the signal all the
//! same: nothing here has to be undone.

use clap::Args;
use gleaner_command::args::duration_within;
use gleaner_command::failure::Failure;
use gleaner_command::output::{form, shown, tell};
use gleaner_sim::Moment;
use indicatif::ProgressBar;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Limits that the user may give.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct MaxTime {
    /// End after so long, with what is done by then (e.g. 30s, 10m, 2h)
    #[arg(long, value_name = "DURATION", value_parser = long_time)]
    pub max_time: Option<Duration>,
}

fn long_time(text: &str) -> Result<Duration, String> {
    duration_within(text, Duration::from_millis(1)..=Duration::from_secs(30 * 86_400))
}

/// What ended the work before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoppedBy {
    Interrupt,
    MaxTime,
    /// `--max-events`, `--max-accesses`.
    MaxCount,
}

impl StoppedBy {
    /// As results say it; `count` is the option that counts.
    pub fn word(self, count: &str) -> String {
        match self {
            Self::Interrupt => "interrupt",
            Self::MaxTime => "max-time",
            Self::MaxCount => count,
        }
        .to_owned()
    }

    /// The command's status: a limit was asked for, a signal was not.
    pub fn status(stopped: Option<Self>) -> u8 {
        if stopped == Some(Self::Interrupt) { 130 } else { 0 }
    }
}

/// After a signal, work that does not look gets so long, seconds.
const GRACE_S: u32 = 3;
/// And what is to be written then, so long.
const WRITING_S: u32 = 20;

/// Set by SIGINT, SIGTERM and SIGHUP, which end the process a little later if it does not end by itself. Only for work
/// without anything to undo.
pub fn flag() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let flag = Arc::clone(&flag);
        let stop = move || {
            if !flag.swap(true, Ordering::SeqCst) {
                // SAFETY: async-signal-safe, and nobody else here uses the alarm.
                unsafe { libc::alarm(GRACE_S) };
            }
        };
        // SAFETY: the handler makes async-signal-safe calls only.
        unsafe { signal_hook::low_level::register(signal, stop) }.map_err(Failure::work)?;
    }
    let end = || {
        const WORDS: &[u8] = b"gleaner: ended by a signal before there was a result\n";
        // SAFETY: async-signal-safe, and the words are there.
        unsafe {
            libc::write(libc::STDERR_FILENO, WORDS.as_ptr().cast(), WORDS.len());
            libc::_exit(130);
        }
    };
    // SAFETY: as above.
    unsafe { signal_hook::low_level::register(libc::SIGALRM, end) }.map_err(Failure::work)?;
    Ok(flag)
}

/// Looks after work: shows how far it is, and says when it is to end.
pub struct Watch {
    bar: ProgressBar,
    interrupted: Arc<AtomicBool>,
    began: Instant,
    max_time: Option<Duration>,
    /// `StoppedBy`, once it is.
    stopped: AtomicU8,
    /// Where nobody sees the bar, a line is written then, seconds after the beginning; each time twice as late.
    says_at_s: AtomicU64,
}

/// How often work beside is looked at.
const LOOKS_EVERY: Duration = Duration::from_millis(100);
/// Parts of the whole that the bar shows.
const PARTS: u64 = 10_000;
/// A line comes after so long where stderr is no terminal, seconds.
const FIRST_WORD_S: u64 = 10;

impl Watch {
    /// Begins; `what` is being done.
    pub fn new(what: &str, limits: MaxTime) -> Result<Self, Failure> {
        Ok(Self::of(what, limits, flag()?))
    }

    /// As [`Self::new`], for work that is all or nothing: a signal ends the process as it does any.
    pub fn without_signals(what: &str, limits: MaxTime) -> Self {
        Self::of(what, limits, Arc::default())
    }

    fn of(what: &str, limits: MaxTime, interrupted: Arc<AtomicBool>) -> Self {
        let bar = shown(ProgressBar::new(PARTS));
        form(&bar, "  {prefix} [{bar:30}] {percent} % {msg} {left}");
        bar.set_prefix(what.to_owned());
        Self {
            bar,
            interrupted,
            began: Instant::now(),
            max_time: limits.max_time,
            stopped: AtomicU8::new(0),
            says_at_s: AtomicU64::new(FIRST_WORD_S),
        }
    }

    /// Does what does not look at the watch, in a thread beside; `None` where it was ended before. `done` says how far
    /// it is. What is not needed any more ends with the process.
    pub fn beside<T: Send + 'static>(
        &self,
        done: impl Fn() -> f64,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Option<T>, Failure> {
        let (sender, receiver) = channel();
        let work = move || {
            // Nobody listens any more where it was ended.
            let _ = sender.send(work());
        };
        std::thread::Builder::new().spawn(work).map_err(|error| {
            Failure::work(format!(
                "the system refuses a thread ({error}); end other programs, or raise pids.max or ulimit -u"
            ))
        })?;
        loop {
            match receiver.recv_timeout(LOOKS_EVERY) {
                Ok(done) => return Ok(Some(done)),
                Err(RecvTimeoutError::Disconnected) => return Err(Failure::work("the work ended without a result")),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if !self.go_on(done()) {
                return Ok(None);
            }
        }
    }

    /// What is being done now, in few words.
    pub fn doing(&self, what: impl Into<String>) {
        self.bar.set_message(what.into());
    }

    /// Whether to go on; `done` is how much of the whole is done, 0 to 1. Cheap, but not for every single step.
    pub fn go_on(&self, done: f64) -> bool {
        let passed = self.began.elapsed();
        if self.interrupted.load(Ordering::Relaxed) {
            self.stop(StoppedBy::Interrupt);
        } else if self.max_time.is_some_and(|most| passed >= most) {
            self.stop(StoppedBy::MaxTime);
        }
        self.show(done.clamp(0.0, 1.0), passed);
        self.stopped().is_none()
    }

    /// Ends the work.
    pub fn stop(&self, by: StoppedBy) {
        let by = by as u8 + 1;
        let first = self.stopped.compare_exchange(0, by, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if first && self.interrupted.load(Ordering::Relaxed) {
            // SAFETY: async-signal-safe. It was noticed; what is left is to write the result.
            unsafe { libc::alarm(WRITING_S) };
        }
    }

    /// What ended it early.
    pub fn stopped(&self) -> Option<StoppedBy> {
        match self.stopped.load(Ordering::SeqCst) {
            1 => Some(StoppedBy::Interrupt),
            2 => Some(StoppedBy::MaxTime),
            3 => Some(StoppedBy::MaxCount),
            _ => None,
        }
    }

    /// Whether a signal or the time ended it, whoever notices first.
    pub fn look(&self) -> Option<StoppedBy> {
        self.go_on(self.bar.position() as f64 / PARTS as f64);
        self.stopped()
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to PARTS")]
    fn show(&self, done: f64, passed: Duration) {
        self.bar.set_position((done * PARTS as f64) as u64);
        let due = self.says_at_s.load(Ordering::Relaxed);
        let late = self.bar.is_hidden() && passed.as_secs() >= due && self.stopped().is_none();
        if late && self.says_at_s.compare_exchange(due, due * 2, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            tell(&format!("gleaner-lab: {}", words(done, passed)));
        }
    }

    /// Takes the bar away.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}

fn words(done: f64, passed: Duration) -> String {
    let whole = |time: Duration| humantime::format_duration(Duration::from_secs(time.as_secs()));
    let left = Duration::try_from_secs_f64(passed.as_secs_f64() * (1.0 - done) / done);
    let left = match left {
        Ok(left) if done > 0.0 => format!("about {} left", whole(left)),
        _ => "no end in sight".to_owned(),
    };
    format!("{:.1} % done after {}, {left}; Ctrl-C or SIGTERM ends it with what is done", done * 100.0, whole(passed))
}

/// How much of a simulation is over, at least: its measured work may end before its time does.
pub fn share(at: Moment) -> f64 {
    at.now_ns as f64 / at.end_ns.max(1) as f64
}

/// Ended before there was anything to tell.
pub fn nothing_done(stopped: Option<StoppedBy>) -> Failure {
    let message = "ended before anything was simulated: there is no result".to_owned();
    let status = if stopped == Some(StoppedBy::Interrupt) { 130 } else { 1 };
    Failure { status, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_long_it_takes_is_told_where_it_can_be() {
        let minute = Duration::from_secs(60);
        assert!(
            words(0.25, minute).starts_with("25.0 % done after 1m, about 3m left; Ctrl-C"),
            "{}",
            words(0.25, minute)
        );
        for done in [0.0, f64::MIN_POSITIVE] {
            assert!(words(done, minute).contains("no end in sight"), "{}", words(done, minute));
        }
    }

    #[test]
    fn the_first_reason_stands() {
        let watch = Watch::new("testing", MaxTime { max_time: Some(Duration::ZERO) }).unwrap();
        assert_eq!(watch.stopped(), None);
        watch.stop(StoppedBy::MaxCount);
        assert!(!watch.go_on(0.5));
        assert_eq!((watch.stopped(), StoppedBy::status(watch.stopped())), (Some(StoppedBy::MaxCount), 0));
        assert_eq!(StoppedBy::status(Some(StoppedBy::Interrupt)), 130);
    }

    #[test]
    fn limits_have_units() {
        assert_eq!(long_time("10m"), Ok(Duration::from_secs(600)));
        for bad in ["10", "0s", "1year", "-1s", ""] {
            assert!(long_time(bad).is_err(), "{bad}");
        }
    }
}
