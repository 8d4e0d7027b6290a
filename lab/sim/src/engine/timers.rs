//! The event queue: one timer for each thing that can have one, in a heap that knows where each of them is.
//!
//! Every vCPU, pCPU, thread and virtual machine owns a *slot* and re-arms it as its plans change, many times for each
//! time that it expires. A queue of events would fill with stale ones; here re-arming moves the slot's one entry. Of
//! timers due at the same moment the one armed first goes first, so a run depends on nothing but its input.
//!
//! A heap with four children a node: half as deep as a binary one, and the four keys of siblings are one cache line.
//! The place of what was taken out last stays open, for most events arm a timer anew: that one is put there and sinks,
//! once instead of twice.

use super::Time;

/// Not in the heap.
const ABSENT: u32 = u32::MAX;
/// Low bits of a key: the slot.
const SLOT_BITS: u32 = 20;
const CHILDREN: usize = 4;
/// The first place: the children of place `n` are the line `n - ROOT + 1`, so the first line has the root alone, as its
/// last.
const ROOT: usize = CHILDREN - 1;
/// Nobody's key, behind all.
const NOBODY: u128 = u128::MAX;
/// In the root's place when nobody is there, before all.
const OPEN: u128 = 0;

/// Siblings.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Line([u128; CHILDREN]);

/// Timers by slot. Nothing is allocated after [`Timers::new`].
#[derive(Clone, Debug)]
pub struct Timers {
    /// Time, then order of arming, then slot: one comparison. What is not used has `NOBODY`.
    heap: Vec<Line>,
    /// Behind the last place in use; `ROOT` if there is none.
    end: usize,
    /// Where each slot's key is.
    place: Vec<u32>,
    armed: u64,
}

impl Timers {
    /// Most slots.
    pub const SLOTS_MAX: usize = 1 << SLOT_BITS;

    /// For slots 0 to `slots` - 1, none armed. `slots` is at most [`Timers::SLOTS_MAX`].
    pub fn new(slots: usize) -> Self {
        assert!(slots <= Self::SLOTS_MAX, "the caller checks how much it builds");
        // The root's line, those of `slots` keys, and one with nobody where the last ones look for children.
        let heap = vec![Line([NOBODY; CHILDREN]); slots.div_ceil(CHILDREN) + 2];
        Self { heap, end: ROOT, place: vec![ABSENT; slots], armed: 0 }
    }

    /// Arms a slot, or moves it. A slot armed for the same time already keeps its turn.
    pub fn set(&mut self, slot: u32, time: Time) {
        let at = self.place[slot as usize];
        if at != ABSENT && time_of(self.key(at as usize)) == time {
            return;
        }
        self.armed += 1;
        let key = u128::from(time) << 64 | u128::from(self.armed << SLOT_BITS | u64::from(slot));
        if at != ABSENT {
            let at = at as usize;
            let before = self.key(at);
            if key < before { self.up(at, key) } else { self.down(at, key) }
        } else if self.is_open() {
            self.down(ROOT, key);
        } else {
            self.end += 1;
            self.up(self.end - 1, key);
        }
    }

    /// Disarms a slot, if it was armed.
    pub fn cancel(&mut self, slot: u32) {
        let at = std::mem::replace(&mut self.place[slot as usize], ABSENT);
        if at != ABSENT {
            self.remove(at as usize);
        }
    }

    /// Takes the next timer: when, and whose.
    pub fn pop(&mut self) -> Option<(Time, u32)> {
        if self.is_open() {
            self.remove(ROOT);
        }
        if self.end == ROOT {
            return None;
        }
        let key = std::mem::replace(&mut self.heap[0].0[ROOT], OPEN);
        self.place[slot_of(key) as usize] = ABSENT;
        Some((time_of(key), slot_of(key)))
    }

    /// When a slot will expire, if it is armed.
    pub fn due(&self, slot: u32) -> Option<Time> {
        let at = self.place[slot as usize];
        (at != ABSENT).then(|| time_of(self.key(at as usize)))
    }

    /// When the next timer expires.
    pub fn next_time(&self) -> Option<Time> {
        let next = if self.is_open() { self.least_child(ROOT).1 } else { self.key(ROOT) };
        (next != NOBODY).then(|| time_of(next))
    }

    /// Whether the root was taken out and nobody has its place yet.
    fn is_open(&self) -> bool {
        self.heap[0].0[ROOT] == OPEN
    }

    fn key(&self, at: usize) -> u128 {
        self.heap[at / CHILDREN].0[at % CHILDREN]
    }

    /// Takes out what is at `at`, whose slot is marked absent already.
    fn remove(&mut self, at: usize) {
        self.end -= 1;
        let last = std::mem::replace(&mut self.heap[self.end / CHILDREN].0[self.end % CHILDREN], NOBODY);
        if at == self.end {
            return;
        }
        let gone = self.key(at);
        if last < gone { self.up(at, last) } else { self.down(at, last) }
    }

    /// Puts `key` at `at` or above.
    fn up(&mut self, mut at: usize, key: u128) {
        while at > ROOT {
            let parent = at / CHILDREN + ROOT - 1;
            let above = self.key(parent);
            if above <= key {
                break;
            }
            self.put(at, above);
            at = parent;
        }
        self.put(at, key);
    }

    /// Puts `key` at `at` or below.
    fn down(&mut self, mut at: usize, key: u128) {
        loop {
            let (child, least) = self.least_child(at);
            if key <= least {
                break;
            }
            self.put(at, least);
            at = child;
        }
        self.put(at, key);
    }

    /// The child that comes first; `NOBODY` if there is none.
    fn least_child(&self, at: usize) -> (usize, u128) {
        let line = at - ROOT + 1;
        let Some(Line([a, b, c, d])) = self.heap.get(line) else { return (at, NOBODY) };
        let (left, right) = (if b < a { (1, *b) } else { (0, *a) }, if d < c { (3, *d) } else { (2, *c) });
        let (nth, key) = if right.1 < left.1 { right } else { left };
        (line * CHILDREN + nth, key)
    }

    fn put(&mut self, at: usize, key: u128) {
        self.heap[at / CHILDREN].0[at % CHILDREN] = key;
        // Places fit: there are at most SLOTS_MAX.
        #[allow(clippy::cast_possible_truncation)]
        let place = at as u32;
        self.place[slot_of(key) as usize] = place;
    }
}

#[allow(clippy::cast_possible_truncation)]
fn time_of(key: u128) -> Time {
    (key >> 64) as Time
}

#[allow(clippy::cast_possible_truncation)]
fn slot_of(key: u128) -> u32 {
    key as u32 & ((1 << SLOT_BITS) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn of_equal_times_the_first_armed_goes_first() {
        let mut timers = Timers::new(4);
        for slot in [2, 0, 3, 1] {
            timers.set(slot, 7);
        }
        timers.set(2, 7);
        let order: Vec<u32> = std::iter::from_fn(|| timers.pop()).map(|(_, slot)| slot).collect();
        assert_eq!(order, [2, 0, 3, 1]);
    }

    #[derive(Clone, Debug)]
    enum Do {
        Set(u32, Time),
        Cancel(u32),
        Pop,
    }

    proptest! {
        /// Against a sorted map of (time, order of arming).
        #[test]
        fn behaves_like_a_sorted_map(steps in proptest::collection::vec(
            prop_oneof![
                3 => (0u32..40, 0u64..50).prop_map(|(slot, time)| Do::Set(slot, time)),
                1 => (0u32..40).prop_map(Do::Cancel),
                2 => Just(Do::Pop),
            ], 0..400))
        {
            let mut timers = Timers::new(40);
            let mut naive: BTreeMap<(Time, usize), u32> = BTreeMap::new();
            for (turn, step) in steps.into_iter().enumerate() {
                let find = |naive: &BTreeMap<(Time, usize), u32>, slot| {
                    naive.iter().find(|(_, of)| **of == slot).map(|(key, _)| *key)
                };
                match step {
                    Do::Set(slot, time) => {
                        timers.set(slot, time);
                        let known = find(&naive, slot);
                        if known.is_none_or(|(before, _)| before != time) {
                            known.map(|key| naive.remove(&key));
                            naive.insert((time, turn), slot);
                        }
                        prop_assert_eq!(timers.due(slot), Some(time));
                    }
                    Do::Cancel(slot) => {
                        timers.cancel(slot);
                        find(&naive, slot).map(|key| naive.remove(&key));
                        prop_assert_eq!(timers.due(slot), None);
                    }
                    Do::Pop => {
                        let expected = naive.pop_first().map(|((time, _), slot)| (time, slot));
                        prop_assert_eq!(timers.pop(), expected);
                    }
                }
                prop_assert_eq!(timers.next_time(), naive.keys().next().map(|(time, _)| *time));
            }
        }
    }
}
