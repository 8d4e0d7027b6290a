//! What monitors said a while ago: whoever looks for VMs every second neither connects to each monitor every second,
//! nor waits every second for one that is taken.

use super::address::MonitorAddress;
use super::qmp::{MonitorAnswer, QmpError, query_cpus};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long an answer, or that there was none, is good: a vCPU that is plugged in later is seen within a minute.
const GOOD_FOR: Duration = Duration::from_secs(60);
/// Most answers kept: VMs come and go.
const MOST_ANSWERS: usize = 1000;

/// A monitor: its socket, and the process that has it, by id and start time. Where a socket was named by somebody, no
/// process is known.
type Asked = (MonitorAddress, Option<(i32, u64)>);
type Answer = Result<MonitorAnswer, QmpError>;

/// Answers of monitors, kept for a minute. Copies share them.
#[derive(Clone, Debug, Default)]
pub struct MonitorAnswers(Arc<Mutex<BTreeMap<Asked, (Instant, Answer)>>>);

impl MonitorAnswers {
    /// What a monitor says, or said a moment ago.
    pub(super) fn ask(&self, socket: &MonitorAddress, process: Option<(i32, u64)>, timeout: Duration) -> Answer {
        let asked = (socket.clone(), process);
        let kept = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = kept().get(&asked).filter(|(at, _)| at.elapsed() < GOOD_FOR).map(|(_, answer)| answer.clone());
        known.unwrap_or_else(|| {
            let answer = query_cpus(socket, timeout);
            let mut kept = kept();
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

    /// Forgets what the monitor said: it was of a process that is gone.
    pub(super) fn forget(&self, socket: &MonitorAddress) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|(kept, _), _| kept != socket);
    }

    /// Whether it was asked a moment ago, where no process is known.
    pub(super) fn know(&self, socket: &MonitorAddress) -> bool {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get(&(socket.clone(), None)).is_some_and(|(at, _)| at.elapsed() < GOOD_FOR)
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
        let ask = |answers: &MonitorAnswers, process| answers.ask(&socket, process, Duration::from_millis(20));
        for (process, times) in [(Some((7, 1)), 1), (Some((7, 1)), 1), (Some((7, 2)), 2), (None, 3), (None, 3)] {
            assert!(matches!(ask(&answers.clone(), process), Err(QmpError::Silent { .. })));
            assert_eq!(come(), times, "{process:?}");
        }
        assert!(answers.know(&socket));
        answers.forget(&socket);
        assert!(!answers.know(&socket));
        ask(&answers, None).unwrap_err();
        assert_eq!(come(), 4);
        ask(&MonitorAnswers::default(), None).unwrap_err();
        assert_eq!(come(), 5, "another observer's answers are its own");
    }
}
