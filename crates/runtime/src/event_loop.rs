//! The one loop of everything that runs for a while: ticks, and what happens between them.

use gleaner_model::Nanos;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// What runs in the loop.
pub trait Task {
    /// What may happen between two ticks: a signal, a child's end.
    type Event;
    /// What it comes to.
    type Outcome;

    /// Sleeps until then; `Some`: what happened before. Something that has happened already is told although it is
    /// late.
    fn wait_until(&mut self, due: Instant) -> Option<Self::Event>;

    /// The work of one tick, so `late`; then how long until the next.
    fn tick(&mut self, late: Nanos) -> ControlFlow<Self::Outcome, Duration>;

    /// Something happened; `Some`: the next tick is due so long from now, whenever it was.
    fn event(&mut self, event: Self::Event) -> ControlFlow<Self::Outcome, Option<Duration>>;
}

/// Runs `task` until it breaks. Its first tick is due after `first`.
pub fn run<T: Task>(task: &mut T, first: Duration) -> T::Outcome {
    let mut due = Instant::now() + first;
    loop {
        // Neither starves the other: not ticks in a storm of events, nor events where ticks take longer than they are
        // apart.
        if let Some(late) = Instant::now().checked_duration_since(due) {
            match task.tick(late.into()) {
                ControlFlow::Break(outcome) => return outcome,
                ControlFlow::Continue(next) => due = Instant::now() + next,
            }
        }
        if let Some(event) = task.wait_until(due) {
            match task.event(event) {
                ControlFlow::Break(outcome) => return outcome,
                ControlFlow::Continue(Some(next)) => due = Instant::now() + next,
                ControlFlow::Continue(None) => {}
            }
        }
    }
}

/// What comes through a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received<E> {
    /// Something that was sent.
    Event(E),
    /// Nobody is left to send.
    Closed,
}

/// For [`Task::wait_until`], where events come through a channel.
pub fn receive_until<E>(events: &Receiver<E>, due: Instant) -> Option<Received<E>> {
    match events.recv_timeout(due.saturating_duration_since(Instant::now())) {
        Ok(event) => Some(Received::Event(event)),
        Err(RecvTimeoutError::Timeout) => None,
        Err(RecvTimeoutError::Disconnected) => Some(Received::Closed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// Ends after so many of both.
    struct Counting {
        events: VecDeque<u32>,
        ticks: u32,
        heard: Vec<(u32, u32)>,
        next: Duration,
        moved: Option<Duration>,
    }

    impl Task for Counting {
        type Event = u32;
        type Outcome = ();

        fn wait_until(&mut self, due: Instant) -> Option<u32> {
            let event = self.events.pop_front();
            if event.is_none() {
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
            }
            event
        }

        fn tick(&mut self, _: Nanos) -> ControlFlow<(), Duration> {
            self.ticks += 1;
            if self.ticks < 3 { ControlFlow::Continue(self.next) } else { ControlFlow::Break(()) }
        }

        fn event(&mut self, event: u32) -> ControlFlow<(), Option<Duration>> {
            self.heard.push((event, self.ticks));
            ControlFlow::Continue(self.moved)
        }
    }

    fn counting(events: u32, next: Duration, moved: Option<Duration>) -> Counting {
        Counting { events: (0..events).collect(), ticks: 0, heard: Vec::new(), next, moved }
    }

    #[test]
    fn events_are_heard_although_each_tick_is_late() {
        let mut task = counting(9, Duration::ZERO, None);
        run(&mut task, Duration::ZERO);
        assert_eq!((task.ticks, task.heard), (3, vec![(0, 1), (1, 2)]));
    }

    #[test]
    fn ticks_come_although_events_never_end() {
        let mut task = counting(u32::MAX >> 12, Duration::from_millis(1), None);
        run(&mut task, Duration::from_millis(1));
        assert_eq!(task.ticks, 3);
        assert!(!task.events.is_empty(), "the storm was over before");
    }

    #[test]
    fn an_event_may_put_the_next_tick_off() {
        let hour = Duration::from_secs(3600);
        let mut task = counting(3, Duration::ZERO, Some(Duration::ZERO));
        // Without the events it would come in an hour.
        run(&mut task, hour);
        assert_eq!(task.heard, [(0, 0), (1, 1), (2, 2)]);
    }

    #[test]
    fn a_channel_tells_events_and_that_nobody_is_left() {
        let (sender, events) = std::sync::mpsc::channel();
        assert_eq!(receive_until::<u32>(&events, Instant::now()), None);
        sender.send(7).unwrap();
        assert_eq!(receive_until(&events, Instant::now()), Some(Received::Event(7)));
        drop(sender);
        assert_eq!(receive_until(&events, Instant::now() + Duration::from_secs(3600)), Some(Received::Closed));
    }
}
