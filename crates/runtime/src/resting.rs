//! Quiet groups among many rest: what the machine did meanwhile is put together, and they get it as one window.
//!
//! Problem: of two hundred groups ten do something, and a window in which nothing happened tells the others nothing.
//! How: a group that is quiet and wants nothing joins the span that begins with this window. It leaves when something
//! happens to it, with one window for all the time before; and at every tenth window in any case, so that what is
//! counted of it goes on. Groups take turns in that. Where there are few groups, each has every window.

use crate::timeout_requests::GroupId;
use gleaner_model::{Distribution, Nanos, VcpuWindow, Window};
use gleaner_observe::SeenGroup;
use std::collections::{BTreeMap, VecDeque};

/// Fewer groups than this do not rest.
pub(crate) const CROWD: usize = 8;
/// No group rests for more windows than this, nor for longer than the longest window.
const LONGEST: u64 = 10;
const LONGEST_TIME: Nanos = Nanos::from_secs(1);

/// Who rests, and since when.
#[derive(Debug, Default)]
pub struct Resting {
    /// Windows added so far.
    added: u64,
    /// What the machine did since it had added so many: a span for each window with which somebody began to rest.
    spans: VecDeque<(u64, Window)>,
    /// The span of each group, and what it looked like.
    groups: BTreeMap<GroupId, (u64, SeenGroup)>,
}

impl Resting {
    /// Whether this window may follow those of the spans: the same vCPUs, seen by the same observer.
    pub fn fits(&self, window: &Window) -> bool {
        let same = |(_, span): &(u64, Window)| {
            let ids = |window: &Window| window.vcpus.iter().map(|vcpu| vcpu.id).collect::<Vec<_>>();
            span.source == window.source && span.vcpus.len() == window.vcpus.len() && ids(span) == ids(window)
        };
        self.spans.front().is_none_or(same)
    }

    /// Whether it is this group's turn to take what came.
    pub fn is_due(&self, group: GroupId) -> bool {
        let has_long_rested = || self.span(group).is_some_and(|span| span.length >= LONGEST_TIME);
        (self.added + group.0).is_multiple_of(LONGEST) || has_long_rested()
    }

    fn span(&self, group: GroupId) -> Option<&Window> {
        let (since, _) = self.groups.get(&group)?;
        self.spans.iter().find(|(began, _)| began == since).map(|(_, span)| span)
    }

    /// This group rests from the window on that is [added](Self::add) next, unless it does already.
    pub fn join(&mut self, group: GroupId, seen: impl FnOnce() -> SeenGroup) {
        let next = self.added;
        self.groups.entry(group).or_insert_with(|| (next, seen()));
    }

    /// One window, for all who rest.
    pub fn add(&mut self, window: &Window) {
        self.spans.iter_mut().for_each(|(_, span)| append(span, window));
        if self.groups.values().any(|(since, _)| *since == self.added) {
            self.spans.push_back((self.added, window.clone()));
        }
        self.added += 1;
        // Nobody rests since then.
        while self.spans.front().is_some_and(|(began, _)| began + LONGEST < self.added) {
            self.spans.pop_front();
        }
    }

    /// The group rests no more: the window of the time that it did.
    pub fn leave(&mut self, group: GroupId) -> Option<Window> {
        let span = self.span(group).cloned();
        let (_, seen) = self.groups.remove(&group)?;
        Some(seen.on(span?))
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
        self.spans.clear();
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
    fn each_group_takes_its_turn_in_ten_windows_and_no_window_twice() {
        let mut resting = Resting::default();
        let mut had = BTreeMap::<u64, Nanos>::new();
        for n in 1..=40 {
            for id in 0..30 {
                let id = GroupId(id);
                if resting.is_due(id) {
                    let last = resting.leave_after(id, &window(n)).unwrap_or_else(|| window(n));
                    *had.entry(id.0).or_default() += last.length;
                    assert!(last.length <= Nanos::from_secs(1) && last.at == window(n).at);
                } else {
                    resting.join(id, || seen(1));
                }
            }
            assert!(resting.groups().len() == 27 && resting.spans.len() <= 10);
            resting.add(&window(n));
        }
        let left = resting.groups().into_iter().map(|id| (id.0, resting.leave(id).unwrap().length)).collect::<Vec<_>>();
        for (id, length) in left {
            *had.entry(id).or_default() += length;
        }
        assert!(had.len() == 30 && had.values().all(|all| *all == Nanos::from_secs(4)), "{had:?}");
    }

    #[test]
    fn long_windows_and_another_machine_end_a_rest() {
        let mut resting = Resting::default();
        resting.join(GroupId(1), || seen(1));
        resting.add(&Window { length: LONGEST_TIME, ..window(1) });
        assert!(resting.is_due(GroupId(1)));
        let one_vcpu = Window { vcpus: window(1).vcpus.split_off(1), ..window(1) };
        assert!(!resting.fits(&one_vcpu));
        assert!(!resting.fits(&Window { source: Source::Procfs, ..window(1) }));
        resting.forget();
        assert!(resting.fits(&one_vcpu) && resting.groups().is_empty());
    }
}
