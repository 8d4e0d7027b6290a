//! The way of a burst from who sees it to the event loop: a thread that waits for nothing else.
//!
//! It begins when a group is first packed, so a program that never is pays nothing.

use crate::observing::Observing;
use gleaner_model::{Burst, BurstWatch};
use gleaner_observe::{BurstLook, BurstSignal, BurstStop, ProcRoot};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Tells the event loop that [`crate::Runtime::burst`] has something to do.
pub(crate) type Tell = Arc<dyn Fn() + Send + Sync>;

/// Who waits, and by what.
#[derive(Default)]
pub(crate) struct Bursts {
    tell: Option<Tell>,
    waiting: Option<Waiting>,
    /// Where the observer cannot tell: who looks, and at the group of which place. One group at a time.
    look: Option<Arc<BurstLook>>,
    looked_at: Option<usize>,
}

struct Waiting {
    stop: BurstStop,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Bursts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bursts").field("waits", &self.waiting.is_some()).finish_non_exhaustive()
    }
}

impl Bursts {
    /// Bursts are told by this from now on.
    pub(crate) fn tell_by(&mut self, tell: Tell) {
        self.tell = Some(tell);
    }

    /// Whether nobody waits, although somebody is to be told: see [`Self::begin`].
    pub(crate) fn is_to_begin(&self, watch: Option<&BurstWatch>) -> bool {
        self.tell.is_some() && self.waiting.is_none() && watch.is_some()
    }

    /// Somebody waits from now on. Starts a thread.
    pub(crate) fn begin(&mut self, observing: &Observing) -> io::Result<()> {
        let Some(tell) = self.tell.clone() else { return Ok(()) };
        let mut signal = if let Some(signal) = observing.burst_signal() {
            signal?
        } else {
            let look = Arc::new(BurstLook::new(ProcRoot::default()));
            self.look = Some(Arc::clone(&look));
            BurstSignal::by_looking(look)
        };
        let stop = signal.stop();
        let waits = move || {
            while signal.wait() {
                tell();
            }
        };
        let thread = std::thread::Builder::new().name("gleaner-burst".to_owned()).spawn(waits)?;
        self.waiting = Some(Waiting { stop, thread: Some(thread) });
        Ok(())
    }

    /// Nobody tries again.
    pub(crate) fn give_up(&mut self) {
        self.tell = None;
    }

    /// The group at this place is to be watched, or no more.
    pub(crate) fn watch(&mut self, observing: &mut Observing, place: usize, watch: Option<BurstWatch>) {
        let watch = watch.filter(|_| self.waiting.is_some());
        if observing.watch_bursts(place, watch.as_ref()) {
            return;
        }
        let Some(look) = &self.look else { return };
        match watch {
            Some(_) if self.looked_at.is_none_or(|at| at == place) => {
                self.looked_at = Some(place);
                look.watch(watch, observing.threads_at(place));
            }
            None if self.looked_at == Some(place) => self.look_at_nobody(),
            _ => {}
        }
    }

    fn look_at_nobody(&mut self) {
        self.looked_at = None;
        if let Some(look) = &self.look {
            look.watch(None, Vec::new());
        }
    }

    /// The group at this place is gone, and those behind it have moved up.
    pub(crate) fn group_removed(&mut self, place: usize) {
        match self.looked_at {
            Some(at) if at == place => self.look_at_nobody(),
            Some(at) if at > place => self.looked_at = Some(at - 1),
            _ => {}
        }
    }

    /// The burst of the group at this place, once.
    pub(crate) fn take(&self, observing: &mut Observing, place: usize) -> Option<Burst> {
        let looked = || {
            let look = self.look.as_ref().filter(|_| self.looked_at == Some(place))?;
            look.take_burst()
        };
        match observing.take_burst(place) {
            Some(burst) => Some(burst),
            None => looked().map(|burst| Burst { at: observing.now(), ..burst }),
        }
    }

    /// There is another observer: who waits for the old one waits in vain.
    pub(crate) fn end(&mut self) {
        (self.waiting, self.look, self.looked_at) = (None, None, None);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            // A panic there has been told.
            let _ = thread.join();
        }
    }
}
