//! The time-outs that groups request for vCPUs they share, and which one is in force.
//!
//! The longest time-out wins: to a group that wants a shorter one the longer one does no harm. What a shared vCPU polls
//! counts for the budget of each of its groups. While a group tries whether retention pays, its requests alone count:
//! else it would compare retention with retention.

use gleaner_model::{Nanos, VcpuId};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A managed group, for as long as it is one; never used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupId(pub u64);

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "group {}", self.0)
    }
}

/// The time-outs that are requested, and those in force.
#[derive(Clone, Debug, Default)]
pub(crate) struct TimeoutRequests {
    by_group: BTreeMap<GroupId, BTreeMap<VcpuId, Nanos>>,
    alone: Option<GroupId>,
    held: BTreeSet<GroupId>,
    in_force: BTreeMap<VcpuId, Nanos>,
    /// Something may have to be done.
    changed: bool,
}

impl TimeoutRequests {
    /// `group` wants idle periods of `vcpu` bridged up to `timeout`, or not at all.
    pub(crate) fn set(&mut self, group: GroupId, vcpu: VcpuId, timeout: Option<Nanos>) {
        self.changed = true;
        let own = self.by_group.entry(group).or_default();
        match timeout {
            Some(timeout) => own.insert(vcpu, timeout),
            None => own.remove(&vcpu),
        };
    }

    /// `group` wants nothing any more.
    pub(crate) fn forget(&mut self, group: GroupId) {
        self.changed |= self.by_group.remove(&group).is_some() || self.alone == Some(group);
        self.alone = self.alone.filter(|alone| *alone != group);
    }

    /// What `group` wants counts alone; `None`: what all want.
    pub(crate) fn count_alone(&mut self, group: Option<GroupId>) {
        self.changed |= self.alone != group;
        self.alone = group;
    }

    /// What `group` wants does not count from now on, or counts again.
    pub(crate) fn hold(&mut self, group: GroupId, held: bool) {
        self.changed |= if held { self.held.insert(group) } else { self.held.remove(&group) };
    }

    /// The time-outs in force.
    pub(crate) fn in_force(&self) -> &BTreeMap<VcpuId, Nanos> {
        &self.in_force
    }

    /// Nothing can be applied any more.
    pub(crate) fn end(&mut self) {
        self.by_group.clear();
        self.in_force.clear();
        self.alone = None;
    }

    /// Whether there may be [changes](Self::changes): of hundreds of groups hardly any wants something new.
    pub(crate) fn have_changed(&self) -> bool {
        self.changed
    }

    /// What has to be changed for the requests to be in force; from here on they are.
    pub(crate) fn changes(&mut self) -> Vec<(VcpuId, Option<Nanos>)> {
        self.changed = false;
        let mut wanted: BTreeMap<VcpuId, Nanos> = BTreeMap::new();
        let counts = |group: &GroupId| self.alone.is_none_or(|alone| alone == *group) && !self.held.contains(group);
        for (vcpu, timeout) in self.by_group.iter().filter(|(group, _)| counts(group)).flat_map(|(_, own)| own) {
            let longest = wanted.entry(*vcpu).or_default();
            *longest = (*timeout).max(*longest);
        }
        let ended = self.in_force.keys().filter(|vcpu| !wanted.contains_key(vcpu)).map(|vcpu| (*vcpu, None));
        let others = wanted.iter().filter(|(vcpu, timeout)| self.in_force.get(vcpu) != Some(timeout));
        let changes = ended.chain(others.map(|(vcpu, timeout)| (*vcpu, Some(*timeout)))).collect();
        self.in_force = wanted;
        changes
    }

    /// This one could not be changed: as before, and to be tried again.
    pub(crate) fn stays(&mut self, vcpu: VcpuId, before: Option<Nanos>) {
        self.changed = true;
        match before {
            Some(timeout) => self.in_force.insert(vcpu, timeout),
            None => self.in_force.remove(&vcpu),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_request_is_in_force_and_each_change_is_told_once() {
        let (redis, batch) = (GroupId(1), GroupId(2));
        let (one, two) = (VcpuId(1), VcpuId(2));
        let us = |us| Some(Nanos::from_micros(us));
        let mut requests = TimeoutRequests::default();
        requests.set(redis, one, us(30));
        requests.set(batch, one, us(200));
        requests.set(batch, two, us(10));
        assert_eq!(requests.changes(), [(one, us(200)), (two, us(10))]);
        assert!(!requests.have_changed());
        assert_eq!(requests.changes(), []);
        requests.set(batch, one, None);
        assert_eq!(requests.changes(), [(one, us(30))]);
        requests.set(redis, one, us(0));
        assert_eq!(requests.changes(), [(one, us(0))]);
        requests.forget(batch);
        assert_eq!(requests.changes(), [(two, None)]);
        requests.forget(redis);
        assert_eq!(requests.changes(), [(one, None)]);
        assert!(requests.in_force().is_empty());
    }

    #[test]
    fn what_could_not_be_changed_is_tried_again() {
        let (group, vcpu, us) = (GroupId(1), VcpuId(1), |us| Some(Nanos::from_micros(us)));
        let mut requests = TimeoutRequests::default();
        requests.set(group, vcpu, us(30));
        assert_eq!(requests.changes(), [(vcpu, us(30))]);
        requests.stays(vcpu, None);
        assert!(requests.in_force().is_empty() && requests.have_changed());
        assert_eq!(requests.changes(), [(vcpu, us(30))]);
        requests.set(group, vcpu, None);
        assert_eq!(requests.changes(), [(vcpu, None)]);
        requests.stays(vcpu, us(30));
        assert_eq!(requests.in_force()[&vcpu], Nanos::from_micros(30));
        assert_eq!(requests.changes(), [(vcpu, None)]);
    }

    #[test]
    fn what_a_held_group_wants_does_not_count_until_it_is_released() {
        let (held, other) = (GroupId(1), GroupId(2));
        let (vcpu, us) = (VcpuId(0), |us| Some(Nanos::from_micros(us)));
        let mut requests = TimeoutRequests::default();
        requests.set(held, vcpu, us(50));
        assert_eq!(requests.changes(), [(vcpu, us(50))]);
        requests.hold(held, true);
        assert_eq!(requests.changes(), [(vcpu, None)]);
        requests.set(held, vcpu, us(70));
        requests.set(other, vcpu, us(20));
        assert_eq!(requests.changes(), [(vcpu, us(20))]);
        requests.hold(held, false);
        assert_eq!(requests.changes(), [(vcpu, us(70))]);
    }

    #[test]
    fn whoever_tries_has_the_vcpus_to_itself() {
        let (trying, other) = (GroupId(1), GroupId(2));
        let (vcpu, timeout) = (VcpuId(0), Some(Nanos::from_micros(50)));
        let mut requests = TimeoutRequests::default();
        requests.set(other, vcpu, timeout);
        assert_eq!(requests.changes(), [(vcpu, timeout)]);
        requests.count_alone(Some(trying));
        assert_eq!(requests.changes(), [(vcpu, None)], "a block without retention");
        requests.set(trying, vcpu, timeout);
        assert_eq!(requests.changes(), [(vcpu, timeout)]);
        requests.set(trying, vcpu, None);
        assert_eq!(requests.changes(), [(vcpu, None)]);
        requests.forget(trying);
        assert_eq!(requests.changes(), [(vcpu, timeout)], "it is gone, and the other's request counts again");
    }
}
