//! A set of vCPUs, in the kernel's list format (`0-3,7`).

use crate::VcpuId;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The largest CPU number the kernel can be built for (`CONFIG_NR_CPUS`); a limit for hostile input.
const MAX_CPU: u32 = 8191;

/// A set of vCPUs, ordered by id. Reads and prints the kernel's list format (`cpuset.cpus`, `Cpus_allowed_list`), which
/// is also how it is serialized.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct CpuSet(
    /// Ascending, each once: read far more often than changed, and copied whole.
    Vec<VcpuId>,
);

impl CpuSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// vCPUs 0 to `n` - 1.
    pub fn first(n: u32) -> Self {
        (0..n).map(VcpuId).collect()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `id` is in the set.
    pub fn contains(&self, id: VcpuId) -> bool {
        self.place(id).is_ok()
    }

    /// Adds `id`; says whether it was new.
    pub fn insert(&mut self, id: VcpuId) -> bool {
        let place = self.place(id);
        place.map_err(|place| self.0.insert(place, id)).is_err()
    }

    /// Removes `id`; says whether it was there.
    pub fn remove(&mut self, id: VcpuId) -> bool {
        self.place(id).map(|place| self.0.remove(place)).is_ok()
    }

    /// Where it is, or would be.
    fn place(&self, id: VcpuId) -> Result<usize, usize> {
        // Mostly there are no gaps.
        let without_gaps = self.0.first().and_then(|first| id.0.checked_sub(first.0)).map_or(0, |place| place as usize);
        if self.0.get(without_gaps) == Some(&id) { Ok(without_gaps) } else { self.0.binary_search(&id) }
    }

    /// The members, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = VcpuId> + '_ {
        self.0.iter().copied()
    }

    /// The members that are in `other` too.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self(self.iter().filter(|id| other.contains(*id)).collect())
    }

    /// The members that are not in `other`.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        Self(self.iter().filter(|id| !other.contains(*id)).collect())
    }

    /// Whether every member is in `other`.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.iter().all(|id| other.contains(id))
    }
}

impl FromIterator<VcpuId> for CpuSet {
    fn from_iter<I: IntoIterator<Item = VcpuId>>(iter: I) -> Self {
        let mut ids: Vec<VcpuId> = iter.into_iter().collect();
        if !ids.is_sorted_by(|a, b| a < b) {
            ids.sort_unstable();
            ids.dedup();
        }
        Self(ids)
    }
}

impl Extend<VcpuId> for CpuSet {
    fn extend<I: IntoIterator<Item = VcpuId>>(&mut self, iter: I) {
        *self = self.iter().chain(iter).collect();
    }
}

impl From<CpuSet> for String {
    fn from(set: CpuSet) -> Self {
        set.to_string()
    }
}

impl TryFrom<String> for CpuSet {
    type Error = ParseCpuSetError;

    fn try_from(list: String) -> Result<Self, Self::Error> {
        list.parse()
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ids = self.0.iter().map(|id| id.0).peekable();
        let mut first = true;
        while let Some(start) = ids.next() {
            let mut end = start;
            while ids.next_if_eq(&(end + 1)).is_some() {
                end += 1;
            }
            if !first {
                f.write_str(",")?;
            }
            first = false;
            if start == end { write!(f, "{start}")? } else { write!(f, "{start}-{end}")? }
        }
        Ok(())
    }
}

/// A CPU list that does not parse.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{part}' in CPU list '{list}' is neither a CPU number nor a range such as 0-3 (0 to {MAX_CPU})")]
pub struct ParseCpuSetError {
    list: String,
    part: String,
}

impl FromStr for CpuSet {
    type Err = ParseCpuSetError;

    fn from_str(list: &str) -> Result<Self, Self::Err> {
        let (mut ids, mut named) = (Vec::new(), 0);
        for part in list.trim().split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let error = || ParseCpuSetError { list: list.trim().to_owned(), part: part.to_owned() };
            let number = |text: &str| text.parse::<u32>().ok().filter(|n| *n <= MAX_CPU).ok_or_else(error);
            let (start, end) = match part.split_once('-') {
                Some((start, end)) => (number(start)?, number(end)?),
                None => (number(part)?, number(part)?),
            };
            // A list that names the same numbers again and again would take for ever.
            named += u64::from(end.saturating_sub(start)) + 1;
            if start > end || named > u64::from(MAX_CPU) + 1 {
                return Err(error());
            }
            ids.extend((start..=end).map(VcpuId));
        }
        Ok(ids.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_list_that_repeats_itself_without_end_is_refused() {
        assert_eq!("0-8191".parse::<CpuSet>().unwrap().len(), 8192);
        assert!("0-8191,".repeat(100_000).parse::<CpuSet>().is_err());
    }

    #[test]
    fn reads_and_prints_the_kernel_list_format() {
        for (text, printed) in [("0-3,7", "0-3,7"), ("1\n", "1"), ("", ""), ("3,1,2", "1-3"), ("0,2-2", "0,2")] {
            assert_eq!(text.parse::<CpuSet>().unwrap().to_string(), printed);
        }
    }

    #[test]
    fn refuses_what_is_no_list_and_names_the_part() {
        for bad in ["x", "3-1", "1-", "-1", "0-99999999", "1,,y"] {
            let error = bad.parse::<CpuSet>().unwrap_err().to_string();
            assert!(error.contains("CPU list"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn it_is_a_set(
            ids in proptest::collection::vec(0u32..20, 0..40),
            others in proptest::collection::vec(0u32..20, 0..9),
        ) {
            use std::collections::BTreeSet;
            let sets = |ids: &[u32]| {
                let ids = || ids.iter().copied().map(VcpuId);
                (ids().collect::<CpuSet>(), ids().collect::<BTreeSet<VcpuId>>())
            };
            let same = |set: &CpuSet, model: &BTreeSet<VcpuId>| set.iter().eq(model.iter().copied());
            let ((mut set, mut model), (other, other_model)) = (sets(&ids), sets(&others));
            prop_assert!(same(&set.intersection(&other), &model.intersection(&other_model).copied().collect()));
            prop_assert!(same(&set.difference(&other), &model.difference(&other_model).copied().collect()));
            prop_assert_eq!(set.is_subset(&other), model.is_subset(&other_model));
            prop_assert_eq!(set.cmp(&other), model.cmp(&other_model));
            for id in others.iter().copied().map(VcpuId) {
                prop_assert_eq!(set.contains(id), model.contains(&id));
                prop_assert_eq!(set.remove(id), model.remove(&id));
                prop_assert_eq!(set.insert(id), model.insert(id));
                prop_assert_eq!(set.insert(id), model.insert(id));
            }
            set.extend(other.iter());
            model.extend(other.iter());
            prop_assert!(same(&set, &model));
        }

        #[test]
        fn printing_then_reading_gives_the_same_set(ids in proptest::collection::btree_set(0u32..200, 0..40)) {
            let set: CpuSet = ids.into_iter().map(VcpuId).collect();
            prop_assert_eq!(set.to_string().parse::<CpuSet>().unwrap(), set);
        }
    }
}
