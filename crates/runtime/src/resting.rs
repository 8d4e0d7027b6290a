//! Quiet groups among many rest: what the machine did meanwhile is put together, and they get it as one window.
//!
//! Problem: of two hundred groups ten do something, and a window in which nothing happened tells the others nothing.
//! How: a group that is quiet and wants nothing joins the span that begins with this window. It leaves when something
//! happens to it, with one window for all the time before; and once a second in any case, so that what is counted of it
//! goes on. Where there are few groups, each has every window.

use crate::wishes::GroupId;
use gleaner_model::{Distribution, Nanos, VcpuWindow, Window};
use gleaner_observe::SeenGroup;
use std::collections::BTreeMap;

/// Fewer groups than this do not rest.
pub(crate) const CROWD: usize = 8;
/// Spans are over after this time: as long as the longest windows are.
const LONGEST: Nanos = Nanos::from_secs(1);

/// Who rests, and since when.
#[derive(Debug, Default)]
pub struct Resting {
    /// What the machine did in each span, oldest first.
    spans: Vec<Window>,
    /// The span of each group, and what it looked like.
    groups: BTreeMap<GroupId, (usize, SeenGroup)>,
}

impl Resting {
    /// Whether this window may follow those of the spans: the same vCPUs, seen by the same observer.
    pub fn fits(&self, window: &Window) -> bool {
        let same = |span: &Window| {
            let ids = |window: &Window| window.vcpus.iter().map(|vcpu| vcpu.id).collect::<Vec<_>>();
            span.source == window.source && span.vcpus.len() == window.vcpus.len() && ids(span) == ids(window)
        };
        self.spans.first().is_none_or(same)
    }

    /// This group rests from the window on that is [added](Self::add) next, unless it does already.
    pub fn join(&mut self, group: GroupId, seen: impl FnOnce() -> SeenGroup) {
        let next = self.spans.len();
        self.groups.entry(group).or_insert_with(|| (next, seen()));
    }

    /// One window, for all who rest.
    pub fn add(&mut self, window: &Window) {
        self.spans.iter_mut().for_each(|span| append(span, window));
        if self.groups.values().any(|(span, _)| *span == self.spans.len()) {
            self.spans.push(window.clone());
        }
    }

    /// The group rests no more: the window of the time that it did.
    pub fn leave(&mut self, group: GroupId) -> Option<Window> {
        let (span, seen) = self.groups.remove(&group)?;
        Some(seen.on(self.spans.get(span)?.clone()))
    }

    /// Whether all who rest are to leave, and spans to begin anew.
    pub fn is_over(&self) -> bool {
        self.spans.first().is_some_and(|span| span.length >= LONGEST)
    }

    /// Who rests.
    pub fn groups(&self) -> Vec<GroupId> {
        self.groups.keys().copied().collect()
    }

    /// Nobody rests, and nothing was seen.
    pub fn forget(&mut self) {
        *self = Self::default();
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
        assert!(!resting.is_over() && resting.fits(&window(4)));
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
    fn spans_are_over_after_a_second_and_where_the_machine_is_another() {
        let mut resting = Resting::default();
        resting.join(GroupId(1), || seen(1));
        for n in 1..=10 {
            assert!(!resting.is_over(), "{n}");
            resting.add(&window(n));
        }
        assert!(resting.is_over());
        let one_vcpu = Window { vcpus: window(1).vcpus.split_off(1), ..window(1) };
        assert!(!resting.fits(&one_vcpu));
        assert!(!resting.fits(&Window { source: Source::Procfs, ..window(1) }));
        assert_eq!(resting.groups(), [GroupId(1)]);
        resting.forget();
        assert!(resting.fits(&one_vcpu) && resting.groups().is_empty());
    }
}
