//! From events to programs: for each thread what it computed, whom it woke where, and what it waited for.
//!
//! Each block is matched with the wake-up that ended it. Was the waker recorded, the block becomes a wait and the
//! wake-up a post at the waker's place, which is its CPU time then: the interval's CPU time is spread evenly over its
//! length, as what the host stole from it cannot be placed. Was it not (timers, devices, other programs), the block
//! lasts as long as it did. Wake-ups that ended no block are dropped. So there are as many posts as waits, each
//! semaphore has one thread that waits, and what could happen once in the recorded order ends in any order: a replay
//! cannot deadlock.
//!
//! The wake-up may be written down before the block that it ends, when the waker is on its way while the thread still
//! leaves: such a one is kept (`early`) until the block shows that it was meant.

use super::costs::{LatencyDigest, WakeLatencies};
use super::{Header, Reader, RecordingError, Summary};
use crate::engine::Time;
use crate::program::{Group, Op, Shared, Span, Workload};
use gleaner_model::{Left, ThreadEvent, ThreadHappening};
use std::collections::BTreeMap;
use std::io::Read;

/// Most instructions of a workload made of a recording; each takes some 50 bytes, three times over.
pub const INSTRUCTIONS_MAX: usize = 4_000_000;

/// A recording, ready to be simulated.
#[derive(Clone, Debug)]
pub struct Replay {
    /// Where it was made, and of what.
    pub header: Header,
    /// What came of it.
    pub summary: Summary,
    /// Its threads; a thread's end counts as an item done.
    pub workload: Workload,
    /// What is in it.
    pub facts: Conversion,
}

/// What a recording has in it, and what became of that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conversion {
    /// Threads.
    pub threads: u64,
    /// Of them, those that had not ended: their programs stop where the recording does.
    pub unfinished: u64,
    /// From the first event to the last.
    pub wall_ns: Time,
    /// CPU time.
    pub cpu_ns: Time,
    /// Time threads wanted a vCPU that another one had taken from them.
    pub displaced_ns: Time,
    /// Blocks that a recorded thread ended.
    pub waits: u64,
    /// Blocks that somebody else ended: timers, devices, other programs.
    pub delays: u64,
    /// How long those lasted.
    pub delays_ns: Time,
    /// Wake-ups that ended no block.
    pub idle_wakeups: u64,
    /// What waking another vCPU took; `None` with fewer than 20 such wake-ups.
    pub latency: Option<LatencyDigest>,
}

/// Reads a recording to its end.
///
/// # Errors
/// If it is cut off, damaged, empty or too long.
pub fn convert<R: Read>(mut reader: Reader<R>) -> Result<Replay, RecordingError> {
    let mut converter = Converter::default();
    while let Some(event) = reader.event()? {
        converter.see(&event);
        if converter.instructions > INSTRUCTIONS_MAX {
            return Err(RecordingError::TooLong { most: INSTRUCTIONS_MAX });
        }
    }
    if converter.threads.is_empty() {
        return Err(RecordingError::Empty);
    }
    let summary = reader.summary().unwrap_or_default();
    let (workload, facts) = converter.finish();
    Ok(Replay { header: reader.header().clone(), summary, workload, facts })
}

/// Part of a thread's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Item {
    Compute(Time),
    /// By its number in `posts`.
    Post(u32),
    Wait,
    Delay(Time),
}

/// A wake-up by a recorded thread.
#[derive(Clone, Copy, Debug)]
struct Post {
    to: u32,
    /// It ended a block.
    meant: bool,
}

#[derive(Clone, Copy, Debug)]
struct Wake {
    at: Time,
    cpu: u32,
    /// `None`: from outside.
    post: Option<u32>,
}

#[derive(Debug, Default)]
struct Thread {
    items: Vec<Item>,
    /// On a vCPU since then.
    running_since: Option<Time>,
    /// Posts made in the interval in progress.
    posts: Vec<(Time, u32)>,
    /// Blocked since then, at that item, and nobody has ended it.
    blocked: Option<(Time, usize)>,
    /// A wake-up that found it running.
    early: Option<Wake>,
    woken: Option<Wake>,
    displaced_at: Option<Time>,
    ended: bool,
}

#[derive(Debug, Default)]
struct Converter {
    threads: Vec<Thread>,
    /// The present thread of each id.
    by_tid: BTreeMap<u32, u32>,
    posts: Vec<Post>,
    first_at: Option<Time>,
    last_at: Time,
    instructions: usize,
    latencies: WakeLatencies,
    facts: Conversion,
}

impl Converter {
    fn see(&mut self, event: &ThreadEvent) {
        let at = event.at.0;
        self.first_at.get_or_insert(at);
        self.last_at = self.last_at.max(at);
        match event.what {
            ThreadHappening::Born { parent } => self.born(at, event.tid, parent),
            ThreadHappening::In { from_idle } => {
                let t = self.thread(event.tid, at);
                self.runs(t, at);
                let woken = self.threads[t as usize].woken.take();
                let other_idle_vcpu = |wake: &Wake| from_idle && wake.post.is_some() && wake.cpu != event.cpu;
                if let Some(wake) = woken.filter(other_idle_vcpu) {
                    self.latencies.add(at.saturating_sub(wake.at));
                }
            }
            ThreadHappening::Out { ran, why } => self.leaves(event.tid, at, ran.0, why),
            ThreadHappening::Woken { waker } => self.woken(event, waker),
        }
    }

    /// The thread of that id. One whose birth was not seen is there from then on.
    fn thread(&mut self, tid: u32, at: Time) -> u32 {
        if let Some(known) = self.by_tid.get(&tid) {
            return *known;
        }
        let late = at - self.first_at.unwrap_or(at).min(at);
        self.add(tid, Item::Delay(late))
    }

    fn add(&mut self, tid: u32, first: Item) -> u32 {
        let number = u32::try_from(self.threads.len()).unwrap_or(u32::MAX);
        self.threads.push(Thread { items: vec![first], ..Thread::default() });
        self.by_tid.insert(tid, number);
        self.instructions += 1;
        number
    }

    fn born(&mut self, at: Time, tid: u32, parent: Option<u32>) {
        let Some(parent) = parent else {
            self.add(tid, Item::Delay(0));
            return;
        };
        let parent = self.thread(parent, at);
        let child = self.add(tid, Item::Wait);
        let post = self.post(parent, at, child);
        self.posts[post as usize].meant = true;
        self.facts.waits += 1;
    }

    /// Notes a wake-up at its waker's place.
    fn post(&mut self, by: u32, at: Time, to: u32) -> u32 {
        let number = u32::try_from(self.posts.len()).unwrap_or(u32::MAX);
        self.posts.push(Post { to, meant: false });
        if self.threads[by as usize].running_since.is_none() {
            // How it came to run was lost.
            self.runs(by, at);
        }
        self.threads[by as usize].posts.push((at, number));
        self.instructions += 1;
        number
    }

    fn woken(&mut self, event: &ThreadEvent, waker: Option<u32>) {
        let at = event.at.0;
        let t = self.thread(event.tid, at);
        let waker = waker.filter(|waker| *waker != event.tid).map(|waker| self.thread(waker, at));
        let post = waker.map(|waker| self.post(waker, at, t));
        let wake = Wake { at, cpu: event.cpu, post };
        if self.threads[t as usize].blocked.is_some() {
            self.unblock(t, wake);
        } else {
            self.threads[t as usize].early = Some(wake);
        }
    }

    /// The wake-up ended the thread's block.
    fn unblock(&mut self, t: u32, wake: Wake) {
        let thread = &mut self.threads[t as usize];
        let Some((since, item)) = thread.blocked.take() else { return };
        thread.woken = Some(wake);
        thread.early = None;
        if let Some(post) = wake.post {
            thread.items[item] = Item::Wait;
            self.posts[post as usize].meant = true;
            self.facts.waits += 1;
        } else {
            let lasted = wake.at.saturating_sub(since);
            thread.items[item] = Item::Delay(lasted);
            self.facts.delays += 1;
            self.facts.delays_ns = self.facts.delays_ns.saturating_add(lasted);
        }
    }

    /// It is on a vCPU from now on. If it was blocked and nobody was seen to wake it, its wake-up came early, or was
    /// lost.
    fn runs(&mut self, t: u32, at: Time) {
        let thread = &mut self.threads[t as usize];
        if thread.blocked.is_some() {
            let wake = thread.early.unwrap_or(Wake { at, cpu: u32::MAX, post: None });
            self.unblock(t, wake);
        }
        let thread = &mut self.threads[t as usize];
        thread.early = None;
        thread.running_since = Some(at);
        if let Some(since) = thread.displaced_at.take() {
            self.facts.displaced_ns = self.facts.displaced_ns.saturating_add(at.saturating_sub(since));
        }
    }

    fn leaves(&mut self, tid: u32, at: Time, ran: Time, why: Left) {
        let t = self.thread(tid, at);
        if self.threads[t as usize].running_since.is_none() {
            self.runs(t, at);
        }
        let thread = &mut self.threads[t as usize];
        self.instructions += thread.interval_ends(at, ran) + 1;
        self.facts.cpu_ns = self.facts.cpu_ns.saturating_add(ran);
        match why {
            Left::Displaced => thread.displaced_at = Some(at),
            Left::Blocked => {
                thread.blocked = Some((at, thread.items.len()));
                thread.items.push(Item::Delay(0));
            }
            Left::Ended => {
                thread.ended = true;
                self.by_tid.remove(&tid);
            }
        }
    }

    fn finish(mut self) -> (Workload, Conversion) {
        for thread in &mut self.threads {
            if let Some((_, item)) = thread.blocked {
                // What would have ended it is not in the recording: neither is what follows.
                thread.items.truncate(item);
            }
            if let Some(since) = thread.running_since {
                let ran = self.last_at.saturating_sub(since);
                self.facts.cpu_ns = self.facts.cpu_ns.saturating_add(ran);
                thread.interval_ends(self.last_at, ran);
            }
            self.facts.unfinished += u64::from(!thread.ended);
        }
        let semaphores = u32::try_from(self.threads.len()).unwrap_or(u32::MAX);
        let mut workload = Workload { shared: Shared { semaphores, ..Shared::default() }, ..Workload::default() };
        for (thread, number) in self.threads.iter().zip(0..) {
            workload.programs.push(program(number, &thread.items, &self.posts));
            workload.groups.push(Group { program: number, count: 1, vcpus: 0 });
        }
        self.facts.threads = u64::from(semaphores);
        self.facts.wall_ns = self.last_at - self.first_at.unwrap_or(self.last_at);
        self.facts.idle_wakeups = self.posts.iter().filter(|post| !post.meant).count() as u64;
        self.facts.latency = self.latencies.digest();
        (workload, self.facts)
    }
}

impl Thread {
    /// Puts what it did since it got its vCPU into its program; says how many items that took.
    fn interval_ends(&mut self, at: Time, ran: Time) -> usize {
        let since = self.running_since.take().unwrap_or(at);
        let length = u128::from(at.saturating_sub(since)).max(1);
        let before = self.items.len();
        let mut done = 0;
        for (when, post) in std::mem::take(&mut self.posts) {
            let place = u128::from(ran) * u128::from(when.saturating_sub(since)) / length;
            let place = u64::try_from(place).unwrap_or(ran).clamp(done, ran);
            self.compute(place - done);
            self.items.push(Item::Post(post));
            done = place;
        }
        self.compute(ran - done);
        self.items.len() - before
    }

    fn compute(&mut self, time: Time) {
        match self.items.last_mut() {
            Some(Item::Compute(before)) => *before = before.saturating_add(time),
            _ if time > 0 => self.items.push(Item::Compute(time)),
            _ => {}
        }
    }
}

fn program(own: u32, items: &[Item], posts: &[Post]) -> Vec<Op> {
    let mut ops = Vec::with_capacity(items.len() + 2);
    for item in items {
        match *item {
            Item::Compute(time) => match ops.last_mut() {
                // A dropped post was between them.
                Some(Op::Compute(Span::Fixed(before))) => *before = before.saturating_add(time),
                _ => ops.push(Op::Compute(Span::Fixed(time))),
            },
            Item::Post(number) => {
                let post = posts[number as usize];
                ops.extend(post.meant.then_some(Op::Post(post.to)));
            }
            Item::Wait => ops.push(Op::Wait(own)),
            Item::Delay(0) => {}
            Item::Delay(time) => ops.push(Op::Io(Span::Fixed(time))),
        }
    }
    ops.extend([Op::Done, Op::Exit]);
    ops
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
