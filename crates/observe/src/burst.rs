//! Bursts: a packed group has more to do than its vCPUs can take. Told at once, to a thread that waits for nothing
//! else.
//!
//! With BPF the scheduler's own events tell (`bpf/gleaner.bpf.c`). Without, a look at `/proc` does, every 8 ms and only
//! while a group is packed: how long threads waited for a vCPU since the last look (`schedstat`), and how long they
//! then had it. Threads that hand over to each other wait often, and briefly. In a burst they wait for whole time
//! slices.

use crate::bpf::busy::Ring;
use gleaner_model::{Burst, BurstWatch, Nanos};
use gleaner_sys::{ProcRoot, reread, schedstat, thread_cpu_time};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(8);
/// ... and this many times what a look costs: a hundredth of a CPU.
const COST_TIMES: u32 = 100;
/// Threads looked at: of more, these stand for all.
const THREADS_MAX: usize = 256;

/// Sleeps until there is a burst. Belongs to the thread that waits.
#[derive(Debug)]
pub struct BurstSignal(Kind);

#[derive(Debug)]
enum Kind {
    Ring { ring: Ring, waker: Arc<OwnedFd> },
    Look(Arc<BurstLook>, BTreeMap<i32, Seen>),
}

/// Ends the waits of a [`BurstSignal`] for good.
#[derive(Clone, Debug)]
pub struct BurstStop(Stop);

#[derive(Clone, Debug)]
enum Stop {
    Ring(Arc<OwnedFd>),
    Look(Arc<BurstLook>),
}

impl BurstSignal {
    pub(crate) fn of_ring(ring: Ring) -> io::Result<Self> {
        let waker = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        Ok(Self(Kind::Ring { ring, waker }))
    }

    /// Where no program tells: `look` says what of.
    pub fn by_looking(look: Arc<BurstLook>) -> Self {
        Self(Kind::Look(look, BTreeMap::new()))
    }

    /// What ends it.
    pub fn stop(&self) -> BurstStop {
        BurstStop(match &self.0 {
            Kind::Ring { waker, .. } => Stop::Ring(Arc::clone(waker)),
            Kind::Look(look, _) => Stop::Look(Arc::clone(look)),
        })
    }

    /// Sleeps until there may be a burst, and says true; false when it was ended.
    pub fn wait(&mut self) -> bool {
        match &mut self.0 {
            Kind::Ring { ring, waker } => loop {
                let mut fds = [PollFd::new(ring.fd(), PollFlags::IN), PollFd::new(&**waker, PollFlags::IN)];
                let ready = poll(&mut fds, None);
                if fds[1].revents().contains(PollFlags::IN)
                    || ready.is_err_and(|error| error != rustix::io::Errno::INTR)
                {
                    return false;
                }
                if ring.drain() {
                    return true;
                }
            },
            Kind::Look(look, seen) => look.wait(seen),
        }
    }
}

impl BurstStop {
    /// Ends the wait in progress, and all that follow.
    pub fn stop(&self) {
        match &self.0 {
            // It fails only when the counter is full: then the wait ends anyway.
            Stop::Ring(waker) => drop(rustix::io::write(&**waker, &1_u64.to_ne_bytes())),
            Stop::Look(look) => {
                look.state().stopped = true;
                look.changed.notify_all();
            }
        }
    }
}

/// Looks for the bursts of one group, for an observer that cannot tell of them.
#[derive(Debug, Default)]
pub struct BurstLook {
    root: ProcRoot,
    state: Mutex<LookState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct LookState {
    watch: Option<BurstWatch>,
    threads: Vec<i32>,
    burst: Option<Burst>,
    stopped: bool,
}

/// A thread as it was at the last look.
#[derive(Debug)]
struct Seen {
    file: File,
    figures: Figures,
}

/// Cumulative: time on a CPU, time it could have run and waited, and how often it got a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Figures {
    run_ns: u64,
    waited_ns: u64,
    slices: u64,
}

impl BurstLook {
    /// Below these folders.
    pub fn new(root: ProcRoot) -> Self {
        Self { root, ..Self::default() }
    }

    /// From now on `threads` are looked at; with `None` nothing is.
    pub fn watch(&self, watch: Option<BurstWatch>, threads: Vec<i32>) {
        let mut state = self.state();
        let begins = state.watch.is_none() && watch.is_some();
        (state.watch, state.threads, state.burst) = (watch, threads, None);
        drop(state);
        if begins {
            self.changed.notify_all();
        }
    }

    /// The last burst, once. Its time is not known.
    pub fn take_burst(&self) -> Option<Burst> {
        self.state().burst.take()
    }

    fn state(&self) -> MutexGuard<'_, LookState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, seen: &mut BTreeMap<i32, Seen>) -> bool {
        let (mut pause, mut last) = (LOOK, None);
        loop {
            let state = self.state();
            let waits = |state: &mut LookState| state.watch.is_none() && !state.stopped;
            if state.watch.is_none() {
                // Whoever was seen before has run for long unseen.
                last = None;
            }
            let state = self.changed.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner);
            let slept = self.changed.wait_timeout_while(state, pause, |state| !state.stopped);
            let (state, _) = slept.unwrap_or_else(PoisonError::into_inner);
            if state.stopped {
                return false;
            }
            let Some(watch) = state.watch else { continue };
            let threads: Vec<i32> = state.threads.iter().copied().take(THREADS_MAX).collect();
            drop(state);
            let cost_before = thread_cpu_time();
            let now = Instant::now();
            let since = last.replace(now).map(|last| now.saturating_duration_since(last));
            let figures = self.look(&threads, seen);
            pause = LOOK.max(Duration::from(thread_cpu_time() - cost_before).saturating_mul(COST_TIMES));
            let Some(burst) = since.and_then(|since| burst(figures, since.into(), &watch)) else { continue };
            self.state().burst = Some(burst);
            return true;
        }
    }

    /// What these threads did since they were last looked at.
    fn look(&self, threads: &[i32], seen: &mut BTreeMap<i32, Seen>) -> Figures {
        let mut buffer = Vec::new();
        let mut sum = Figures::default();
        seen.retain(|tid, _| threads.contains(tid));
        for tid in threads {
            let known = match seen.remove(tid) {
                Some(seen) => Some(seen),
                None => File::open(self.root.proc.join(format!("{tid}/task/{tid}/schedstat")))
                    .ok()
                    .map(|file| Seen { file, figures: Figures::default() }),
            };
            let Some(Seen { file, figures: before }) = known else { continue };
            let read = reread(&file, &mut buffer).ok().and_then(schedstat);
            let Some((run_ns, waited_ns, slices)) = read else { continue };
            let figures = Figures { run_ns, waited_ns, slices };
            if before != Figures::default() {
                sum.run_ns += run_ns.saturating_sub(before.run_ns);
                sum.waited_ns += waited_ns.saturating_sub(before.waited_ns);
                sum.slices += slices.saturating_sub(before.slices);
            }
            seen.insert(*tid, Seen { file, figures });
        }
        sum
    }
}

/// What threads that did so much `since` the last look say of a burst. The mean wait says how long it has lasted, but
/// no more than the mean stay on a vCPU: a vCPU that the hypervisor took makes threads wait, and none stay.
fn burst(figures: Figures, since: Nanos, watch: &BurstWatch) -> Option<Burst> {
    let Figures { run_ns, waited_ns, slices } = figures;
    if slices == 0 || since == Nanos::ZERO {
        return None;
    }
    // Rounded.
    let waiting = (waited_ns + since.0 / 2) / since.0;
    let lasted = Nanos(waited_ns.min(run_ns) / slices);
    let runnable = u64::from(watch.active) + waiting;
    let is_burst = waiting > 0 && lasted >= watch.after;
    is_burst.then_some(Burst { at: Nanos::ZERO, runnable, lasted, delay: Nanos::ZERO })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_wait_for_whole_slices_are_a_burst_and_those_that_hand_over_are_none() {
        let ms = Nanos::from_millis;
        let watch = BurstWatch { active: 1, after: Nanos::from_micros(250), delay: ms(2) };
        // (run us, waited us, slices, runnable)
        for (run, waited, slices, expected) in [
            // Two hogs on one vCPU, with slices of 4 ms.
            (8_000, 8_000, 2, Some(2)),
            (8_000, 24_000, 2, Some(4)),
            // A barrier of four threads that compute for 20 us each.
            (7_900, 20_000, 400, None),
            // The hypervisor took the vCPU for 6 ms.
            (200, 6_000, 4, None),
            (8_000, 100, 2, None),
            (0, 0, 0, None),
        ] {
            let figures = Figures { run_ns: run * 1_000, waited_ns: waited * 1_000, slices };
            let found = burst(figures, ms(8), &watch).map(|burst| burst.runnable);
            assert_eq!(found, expected, "{figures:?}");
        }
    }

    #[test]
    fn a_look_ends_when_it_is_told_to() {
        let look = Arc::new(BurstLook::default());
        let mut signal = BurstSignal::by_looking(Arc::clone(&look));
        let stop = signal.stop();
        let waiting = std::thread::spawn(move || signal.wait());
        stop.stop();
        assert!(!waiting.join().unwrap());
    }
}
