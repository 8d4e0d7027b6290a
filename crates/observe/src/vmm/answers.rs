//! What monitors said a while ago: whoever looks for VMs every second neither connects to each monitor every second,
//! nor waits every second for one that is taken.

use super::address::MonitorAddress;
use super::qmp::{MonitorAnswer, Patience, QmpCpu, QmpError, query_cpus_until};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long an answer, or that there was none, is good: a vCPU that is plugged in later is seen within a minute.
const GOOD_FOR: Duration = Duration::from_secs(60);
/// Most answers kept: VMs come and go.
const MOST_ANSWERS: usize = 1000;

/// A monitor: its socket, and the process that has it, by id and start time. Where a socket was named by somebody, no
/// process is known.
type Asked = (MonitorAddress, Option<(i32, u64)>);
pub(super) type Answer = Result<MonitorAnswer, QmpError>;

/// Answers of monitors, kept for a minute. Copies share them.
#[derive(Clone, Debug, Default)]
pub struct MonitorAnswers(Arc<Mutex<BTreeMap<Asked, (Instant, Answer)>>>);

impl MonitorAnswers {
    /// What a monitor says, or said a moment ago.
    pub(super) fn ask(&self, socket: &MonitorAddress, process: Option<(i32, u64)>, patience: Patience<'_>) -> Answer {
        self.known(socket, process).unwrap_or_else(|| {
            if let Some(why) = patience.is_over() {
                return Err(QmpError::Unasked { socket: socket.clone(), why });
            }
            let answer = query_cpus_until(socket, patience);
            if matches!(answer, Err(QmpError::Unasked { .. })) {
                return answer;
            }
            let asked = (socket.clone(), process);
            let mut kept = self.kept();
            if kept.len() >= MOST_ANSWERS {
                kept.retain(|_, (at, _)| at.elapsed() < GOOD_FOR);
            }
            if kept.len() < MOST_ANSWERS {
                // From now on: the question itself takes its time.
                kept.insert(asked, (Instant::now(), answer.clone()));
            }
            answer
        })
    }

    /// What it said a moment ago.
    pub(super) fn known(&self, socket: &MonitorAddress, process: Option<(i32, u64)>) -> Option<Answer> {
        let kept = self.kept();
        let (at, answer) = kept.get(&(socket.clone(), process))?;
        (at.elapsed() < GOOD_FOR).then(|| answer.clone())
    }

    /// Forgets what the monitor said: it was of a process that is gone.
    pub(super) fn forget(&self, socket: &MonitorAddress) {
        self.kept().retain(|(kept, _), _| kept != socket);
    }

    fn kept(&self) -> MutexGuard<'_, BTreeMap<Asked, (Instant, Answer)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What was learnt of one process before looking at it.
pub(super) struct Known<'a> {
    pub(super) qmp: Option<&'a Vec<QmpCpu>>,
    /// vCPU index to thread, as the kernel's debugfs has it.
    pub(super) debugfs: Option<&'a BTreeMap<u32, i32>>,
    pub(super) answers: &'a MonitorAnswers,
    /// How long its monitors are waited for; `None`: not yet.
    pub(super) patience: Option<Patience<'a>>,
    /// Whether one of them would have to be.
    pub(super) unasked: Cell<bool>,
}

impl Known<'_> {
    /// Whether a monitor or KVM said that it is a VM.
    pub(super) fn is_named(&self) -> bool {
        self.qmp.is_some() || self.debugfs.is_some()
    }

    /// What the monitor says of which there are `all`, `left` of them unheard; `None` where it is not waited for yet.
    pub(super) fn ask(
        &self,
        monitor: &MonitorAddress,
        process: Option<(i32, u64)>,
        (left, all): (usize, usize),
    ) -> Option<Result<MonitorAnswer, QmpError>> {
        let answers = self.answers;
        let Some(patience) = self.patience else {
            let known = answers.known(monitor, process);
            self.unasked.set(known.is_none());
            return known;
        };
        Some(answers.ask(monitor, process, patience.share(left, all)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_monitor_is_asked_once_for_each_process_that_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("qmp");
        let listener = UnixListener::bind(&socket).unwrap();
        let socket = MonitorAddress::Path(socket);
        listener.set_nonblocking(true).unwrap();
        let mut asked = 0;
        let mut come = || {
            asked += std::iter::from_fn(|| listener.accept().ok()).count();
            asked
        };
        let answers = MonitorAnswers::default();
        let ask = |answers: &MonitorAnswers, process| {
            answers.ask(&socket, process, Patience::new(Duration::from_millis(20), None))
        };
        for (process, times) in [(Some((7, 1)), 1), (Some((7, 1)), 1), (Some((7, 2)), 2), (None, 3), (None, 3)] {
            assert!(matches!(ask(&answers.clone(), process), Err(QmpError::Silent { .. })));
            assert_eq!(come(), times, "{process:?}");
        }
        assert!(answers.known(&socket, None).is_some());
        answers.forget(&socket);
        assert!(answers.known(&socket, None).is_none());
        ask(&answers, None).unwrap_err();
        assert_eq!(come(), 4);
        ask(&MonitorAnswers::default(), None).unwrap_err();
        assert_eq!(come(), 5, "another observer's answers are its own");
    }
}
