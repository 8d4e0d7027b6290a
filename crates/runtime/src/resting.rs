//! Quiet groups among many rest: what the machine did meanwhile is put together, and they get it as one window.
//!
//! Problem: of two hundred groups ten do something, and a window in which nothing happened tells the others nothing.
//! How: a group that is quiet and wants nothing rests from this window on. It leaves when something happens to it or
//! somebody asks, with one window for all the time before; and in any case after a while, so that what is counted of it
//! goes on. Groups take turns in that. Where there are few groups, each has every window.
//!
//! ```text
//!   windows    0 1 2 3 4 5 6 7 8 9 | 10 11 ...      periods of ten
//!   spans      |-----------------| |-------        the whole period
//!                    |-----------|                 from where somebody began to rest to the period's end
//! ```
//!
//! A rest is one span, and the whole periods after it: nothing is added up for a group before it leaves.

use crate::timeout_requests::GroupId;
use gleaner_model::{Distribution, Nanos, VcpuWindow, Window};
use gleaner_observe::SeenGroup;
use std::collections::{BTreeMap, VecDeque};

/// Fewer groups than this do not rest.
pub(crate) const CROWD: usize = 8;
/// Windows of a period.
const PERIOD: u64 = 10;
/// A group for which vCPUs are kept awake rests for no more windows than this, nor for longer: its budget is to hold.
const RETAINING: (u64, Nanos) = (PERIOD, Nanos::from_secs(1));
/// Any other.
const LONGEST: (u64, Nanos) = (50, Nanos::from_secs(5));
/// Its turn comes in one of so many windows: few spans begin.
const STEP: u64 = 5;

/// What the machine did from a window on.
type Span = (u64, Window);

/// Who rests, and since when.
#[derive(Debug, Default)]
pub struct Resting {
    /// Windows added so far, and their time.
    added: u64,
    length: Nanos,
    /// Of this period, until now; the first is all of it.
    open: Vec<Span>,
    /// Of each of those before, to its end.
    closed: VecDeque<Vec<Span>>,
    groups: BTreeMap<GroupId, Rest>,
}

#[derive(Debug)]
struct Rest {
    since: u64,
    /// [`Resting::length`] then.
    length: Nanos,
    /// What the group looked like.
    seen: SeenGroup,
}

impl Resting {
    /// Whether this window may follow those of the spans: the same vCPUs, seen by the same observer.
    pub fn fits(&self, window: &Window) -> bool {
        let last = self.open.first().or_else(|| self.closed.back()?.first());
        let same = |(_, span): &Span| {
            let ids = |window: &Window| window.vcpus.iter().map(|vcpu| vcpu.id).collect::<Vec<_>>();
            span.source == window.source && span.vcpus.len() == window.vcpus.len() && ids(span) == ids(window)
        };
        last.is_none_or(same)
    }

    /// Whether it is this group's turn to take what came. `retains`: vCPUs are kept awake for it.
    pub fn is_due(&self, group: GroupId, retains: bool) -> bool {
        let (windows, longest) = if retains { RETAINING } else { LONGEST };
        let step = if retains { 1 } else { STEP };
        let turn = self.added.is_multiple_of(step) && (self.added / step + group.0).is_multiple_of(windows / step);
        turn || self.groups.get(&group).is_some_and(|rest| self.length - rest.length >= longest)
    }

    /// This group rests from the window on that is [added](Self::add) next, unless it does already.
    pub fn join(&mut self, group: GroupId, seen: impl FnOnce() -> SeenGroup) {
        let (since, length) = (self.added, self.length);
        self.groups.entry(group).or_insert_with(|| Rest { since, length, seen: seen() });
    }

    /// One window, for all who rest.
    pub fn add(&mut self, window: &Window) {
        if self.added.is_multiple_of(PERIOD) {
            self.close();
        }
        self.open.iter_mut().for_each(|(_, span)| append(span, window));
        if self.open.is_empty() || self.groups.values().any(|rest| rest.since == self.added) {
            self.open.push((self.added, window.clone()));
        }
        self.added += 1;
        self.length += window.length;
    }

    /// Another period begins.
    fn close(&mut self) {
        let mut spans = std::mem::take(&mut self.open);
        let Some(first) = spans.first().map(|(began, _)| *began) else { return };
        spans.retain(|(began, _)| *began == first || self.groups.values().any(|rest| rest.since == *began));
        self.closed.push_back(spans);
        // Nobody rests since then.
        if self.closed.len() as u64 > LONGEST.0 / PERIOD {
            self.closed.pop_front();
        }
    }

    /// What the machine did since a group began to rest.
    fn since(&self, since: u64) -> Option<Window> {
        let mut periods = self.closed.iter().chain([&self.open]).skip_while(|spans| {
            let begins = |(began, _): &Span| *began == since;
            !spans.iter().any(begins)
        });
        let (_, span) = periods.next()?.iter().find(|(began, _)| *began == since)?;
        let mut window = span.clone();
        periods.filter_map(|spans| spans.first()).for_each(|(_, whole)| append(&mut window, whole));
        Some(window)
    }

    /// The group rests no more: the window of the time that it did.
    pub fn leave(&mut self, group: GroupId) -> Option<Window> {
        let Rest { since, seen, .. } = self.groups.remove(&group)?;
        Some(seen.on(self.since(since)?))
    }

    /// The same, where nothing happened to it in the window either that the machine had last.
    pub fn leave_after(&mut self, group: GroupId, machine: &Window) -> Option<Window> {
        let mut window = self.leave(group)?;
        append(&mut window, machine);
        Some(window)
    }

    /// Who rests.
    pub fn groups(&self) -> Vec<GroupId> {
        self.groups.keys().copied().collect()
    }

    /// Nobody rests, and nothing was seen.
    pub fn forget(&mut self) {
        self.open.clear();
        self.closed.clear();
        self.groups.clear();
    }
}

/// Two windows of the same vCPUs, one after the other, as one.
fn append(first: &mut Window, next: &Window) {
    first.at = next.at;
    first.length += next.length;
    first.idle_entries = plus(first.idle_entries, next.idle_entries);
    first.halts = plus(first.halts, next.halts);
    for (vcpu, next) in first.vcpus.iter_mut().zip(&next.vcpus) {
        append_vcpu(vcpu, next);
    }
}

fn append_vcpu(first: &mut VcpuWindow, next: &VcpuWindow) {
    first.busy += next.busy;
    first.retained += next.retained;
    first.halted += next.halted;
    first.steal += next.steal;
    first.idle_entries = plus(first.idle_entries, next.idle_entries);
    first.halts = plus(first.halts, next.halts);
    first.polls_held = plus(first.polls_held, next.polls_held);
    first.yield_switches = plus(first.yield_switches, next.yield_switches);
    first.idle_ended_by = first.idle_ended_by.zip(next.idle_ended_by).map(|(mut ended, next)| {
        ended += next;
        ended
    });
    merge(&mut first.l_comp, next.l_comp.as_ref());
    merge(&mut first.l_idle, next.l_idle.as_ref());
}

/// Unknown where one of them is.
fn plus(first: Option<u64>, next: Option<u64>) -> Option<u64> {
    Some(first? + next?)
}

fn merge(first: &mut Option<Distribution>, next: Option<&Distribution>) {
    match (first.as_mut(), next) {
        (Some(first), Some(next)) if next.count() > 0 => first.merge(next),
        (Some(_), Some(_)) => {}
        _ => *first = None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gleaner_model::{GroupWindow, Source, VcpuId};

    fn window(n: u64) -> Window {
        let idle = |n| {
            let mut lengths = Distribution::new();
            lengths.record(Nanos(n));
            Some(lengths)
        };
        let vcpu = |id| VcpuWindow {
            busy: Nanos(10 * n),
            halted: Nanos(90 * n),
            idle_entries: Some(n),
            halts: if id == 0 { Some(n) } else { None },
            l_idle: idle(n),
            ..VcpuWindow::new(VcpuId(id))
        };
        Window {
            at: Nanos::from_millis(100 * n),
            length: Nanos::from_millis(100),
            source: Source::Bpf,
            vcpus: vec![vcpu(0), vcpu(1)],
            idle_entries: Some(2 * n),
            halts: None,
            group: GroupWindow::default(),
        }
    }

    fn seen(threads: u64) -> SeenGroup {
        SeenGroup::at_rest(GroupWindow { threads, ..GroupWindow::default() })
    }

    #[test]
    fn who_rests_gets_all_that_came_since_it_began_and_nothing_before() {
        let mut resting = Resting::default();
        let (one, two) = (GroupId(1), GroupId(2));
        resting.add(&window(1));
        resting.join(one, || seen(7));
        resting.add(&window(2));
        resting.join(two, || seen(8));
        resting.join(one, || panic!("it rests already"));
        resting.add(&window(3));
        assert!(resting.fits(&window(4)));
        let of_one = resting.leave(one).unwrap();
        assert_eq!((of_one.at, of_one.length), (window(3).at, Nanos::from_millis(200)));
        assert_eq!((of_one.group.threads, of_one.idle_entries, of_one.halts), (7, Some(10), None));
        let vcpu = &of_one.vcpus[1];
        assert_eq!((vcpu.busy, vcpu.halted, vcpu.idle_entries, vcpu.halts), (Nanos(50), Nanos(450), Some(5), None));
        assert_eq!((of_one.vcpus[0].halts, vcpu.l_idle.as_ref().unwrap().count()), (Some(5), 2));
        assert_eq!(resting.leave(two).unwrap(), Window { group: seen(8).group, ..window(3) });
        assert_eq!(resting.leave(two), None);
    }

    #[test]
    fn each_group_takes_its_turn_and_no_window_twice() {
        for (retains, windows) in [(true, 10), (false, 50)] {
            let mut resting = Resting::default();
            let mut had = BTreeMap::<u64, (Nanos, u64)>::new();
            for n in 1..=200 {
                for id in 0..100 {
                    let id = GroupId(id);
                    // One in a hundred is busy, another one each time.
                    let rests = !(n + id.0).is_multiple_of(100);
                    let due = rests && resting.is_due(id, retains);
                    if rests && !due {
                        resting.join(id, || seen(1));
                        continue;
                    }
                    let all = if due { resting.leave_after(id, &window(n)) } else { None };
                    let last = if all.is_none() { Some(window(n)) } else { None };
                    for all in all.or_else(|| resting.leave(id)).into_iter().chain(last) {
                        let (length, entries) = had.entry(id.0).or_default();
                        *length += all.length;
                        *entries += all.idle_entries.unwrap();
                        assert!(all.length <= Nanos::from_millis(100 * windows), "{}", all.length);
                    }
                }
                resting.add(&window(n));
                let spans = resting.closed.iter().map(Vec::len).sum::<usize>() + resting.open.len();
                assert!(spans <= 66 && resting.closed.len() <= 5, "{spans}");
            }
            for id in resting.groups() {
                let left = resting.leave(id).unwrap();
                let (length, entries) = had.entry(id.0).or_default();
                *length += left.length;
                *entries += left.idle_entries.unwrap();
            }
            let all = (Nanos::from_secs(20), (1..=200).map(|n| 2 * n).sum::<u64>());
            assert!(had.len() == 100 && had.values().all(|had| *had == all), "{had:?}");
        }
    }

    #[test]
    fn long_windows_and_another_machine_end_a_rest() {
        let mut resting = Resting::default();
        resting.add(&window(1));
        resting.join(GroupId(1), || seen(1));
        resting.add(&Window { length: RETAINING.1, ..window(1) });
        assert!(resting.is_due(GroupId(1), true) && !resting.is_due(GroupId(1), false));
        resting.add(&Window { length: LONGEST.1 - RETAINING.1, ..window(1) });
        assert!(resting.is_due(GroupId(1), false));
        let one_vcpu = Window { vcpus: window(1).vcpus.split_off(1), ..window(1) };
        assert!(!resting.fits(&one_vcpu));
        assert!(!resting.fits(&Window { source: Source::Procfs, ..window(1) }));
        resting.forget();
        assert!(resting.fits(&one_vcpu) && resting.groups().is_empty());
    }
}
