//! Did every VM get what it is entitled to? (Paper, section III-B: short slices bring the VMs closer to their capped
//! solo runs.)
//!
//! Only vCPUs that never stopped wanting a pCPU can be judged: who sleeps gives part of its share away. Of those that
//! may use the same pCPUs, each is entitled to its weight's part of what they got together, but to no more than one
//! whole pCPU. vCPUs that may use different pCPUs and some of the same cannot be judged against each other: what each
//! pCPU had to give is not known. Which VMs have no share because of that is told. A VM that a cap holds back got what
//! the cap gives it, so it is not judged, and the others share what they got without it.

use gleaner_model::{CpuSet, HostWindow, Nanos, VcpuId, VmId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What a VM's continuously runnable vCPUs got.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VmShare {
    pub vm: VmId,
    /// How many of its vCPUs were continuously runnable and had company.
    pub vcpus: usize,
    /// What they got over what they were entitled to: 1 is fair.
    pub ratio: f64,
    /// What one of them was entitled to, on average, in the time that is looked at.
    pub entitled: Nanos,
}

/// One vCPU over one window.
#[derive(Clone, Debug)]
struct Turn {
    id: (VmId, VcpuId),
    pcpus: CpuSet,
    weight: u64,
    run: Nanos,
    wait: Nanos,
    /// Its VM's, of the whole window.
    limit: Option<Nanos>,
}

/// Shares over the last windows.
#[derive(Clone, Debug)]
pub struct FairnessMeter {
    span: Nanos,
    runnable_share_min: f64,
    windows: VecDeque<(Nanos, Vec<Turn>)>,
}

/// Most windows kept, whatever their length.
const WINDOWS_MAX: usize = 1000;

/// A VM that used so much of what its cap lets it have is held back by the cap: throttling is never exact.
const AT_ITS_CAP: f64 = 0.95;

/// One vCPU over all windows.
struct Total {
    weight: u64,
    run: Nanos,
    windows: usize,
    wanted: Nanos,
}

impl FairnessMeter {
    /// Takes shares over `span`; a vCPU counts if it was runnable for `runnable_share_min` of that.
    pub fn new(span: Nanos, runnable_share_min: f64) -> Self {
        Self { span, runnable_share_min, windows: VecDeque::new() }
    }

    /// Adds a window, and forgets those that are past the span.
    pub fn push(&mut self, window: &HostWindow) {
        let turns = window.vms.iter().flat_map(|vm| {
            vm.vcpus.iter().map(|vcpu| Turn {
                id: (vm.vm, vcpu.vcpu),
                pcpus: vcpu.pcpus.clone(),
                weight: vm.weight,
                run: vcpu.run,
                wait: vcpu.wait,
                limit: vm.limit,
            })
        });
        self.windows.push_back((window.length, turns.collect()));
        while self.windows.len() > 1
            && (self.windows.len() > WINDOWS_MAX
                || self.length() - self.windows.front().map_or(Nanos::ZERO, |oldest| oldest.0) >= self.span)
        {
            self.windows.pop_front();
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.windows.clear();
    }

    /// The time it knows about.
    pub fn length(&self) -> Nanos {
        self.windows.iter().map(|(length, _)| *length).sum()
    }

    /// What each VM got that has continuously runnable vCPUs with company, ascending by VM.
    pub fn shares(&self) -> Vec<VmShare> {
        let mut by_vm: BTreeMap<VmId, (usize, f64, f64)> = BTreeMap::new();
        for group in self.groups().values().filter(|group| group.len() > 1) {
            let capacity: f64 = group.iter().map(|(_, total)| total.run.as_f64()).sum();
            let weights: Vec<f64> = group.iter().map(|(_, total)| total.weight.max(1) as f64).collect();
            let entitled = water_fill(capacity, &weights, self.length().as_f64());
            for ((vm, total), entitled) in group.iter().zip(entitled) {
                let sum = by_vm.entry(*vm).or_default();
                *sum = (sum.0 + 1, sum.1 + total.run.as_f64(), sum.2 + entitled);
            }
        }
        by_vm
            .into_iter()
            .filter(|(_, (_, _, entitled))| *entitled > 0.0)
            .map(|(vm, (vcpus, run, entitled))| VmShare {
                vm,
                vcpus,
                ratio: run / entitled,
                entitled: Nanos::from_f64(entitled / vcpus as f64),
            })
            .collect()
    }

    /// VMs that have no share although their vCPUs never stopped wanting a pCPU beside others: they share some pCPUs,
    /// and not all, with those.
    pub fn unjudged(&self) -> Vec<VmId> {
        let (groups, judged) = (self.groups(), self.shares());
        let meets_others =
            |pcpus: &CpuSet| groups.keys().any(|other| *other != pcpus && !other.intersection(pcpus).is_empty());
        let met = groups.iter().filter(|(pcpus, _)| meets_others(pcpus)).flat_map(|(_, vcpus)| vcpus);
        let met: BTreeSet<VmId> = met.map(|(vm, _)| *vm).collect();
        met.into_iter().filter(|vm| judged.iter().all(|share| share.vm != *vm)).collect()
    }

    /// The VM among `vms` that is furthest from its entitlement.
    pub fn worst(&self, vms: &[VmId]) -> Option<VmShare> {
        let shares = self.shares().into_iter().filter(|share| vms.contains(&share.vm));
        shares.max_by(|a, b| deviation(a).total_cmp(&deviation(b)))
    }

    /// Half of the range of a VM's ratio over the single windows: by so much the windows themselves differ.
    pub fn spread(&self, vm: VmId) -> f64 {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for window in &self.windows {
            let one =
                Self { windows: VecDeque::from([window.clone()]), ..Self::new(self.span, self.runnable_share_min) };
            for share in one.shares().iter().filter(|share| share.vm == vm) {
                (low, high) = (low.min(share.ratio), high.max(share.ratio));
            }
        }
        (high - low).max(0.0) / 2.0
    }

    /// VMs that had a cap throughout and used it up.
    fn capped(&self) -> BTreeSet<VmId> {
        let mut used: BTreeMap<VmId, (Nanos, Option<Nanos>)> = BTreeMap::new();
        for (_, turns) in &self.windows {
            let mut limits = BTreeMap::new();
            for turn in turns {
                used.entry(turn.id.0).or_insert((Nanos::ZERO, Some(Nanos::ZERO))).0 += turn.run;
                limits.insert(turn.id.0, turn.limit);
            }
            for (vm, limit) in limits {
                if let Some((_, sum)) = used.get_mut(&vm) {
                    *sum = sum.zip(limit).map(|(sum, limit)| sum + limit);
                }
            }
        }
        let at_its_cap = |(run, limit): (Nanos, Option<Nanos>)| {
            limit.is_some_and(|limit| run.as_f64() >= limit.as_f64() * AT_ITS_CAP)
        };
        used.into_iter().filter(|(_, used)| at_its_cap(*used)).map(|(vm, _)| vm).collect()
    }

    /// Continuously runnable vCPUs by the pCPUs they may use.
    fn groups(&self) -> BTreeMap<&CpuSet, Vec<(VmId, Total)>> {
        let capped = self.capped();
        let mut totals: BTreeMap<((VmId, VcpuId), &CpuSet), Total> = BTreeMap::new();
        for turn in self.windows.iter().flat_map(|(_, turns)| turns) {
            let total = totals.entry((turn.id, &turn.pcpus)).or_insert(Total {
                weight: turn.weight,
                run: Nanos::ZERO,
                windows: 0,
                wanted: Nanos::ZERO,
            });
            total.weight = turn.weight;
            total.run += turn.run;
            total.wanted += turn.run + turn.wait;
            total.windows += 1;
        }
        let mut groups: BTreeMap<&CpuSet, Vec<(VmId, Total)>> = BTreeMap::new();
        for (((vm, _), pcpus), total) in totals {
            let throughout = total.windows == self.windows.len();
            let judged = throughout && !capped.contains(&vm);
            if judged && total.wanted.share_of(self.length()) >= self.runnable_share_min {
                groups.entry(pcpus).or_default().push((vm, total));
            }
        }
        groups
    }
}

/// Whether a share is further from fair than `allowed`. That one slice more or less falls into the time that is looked
/// at is not unfair: of a short time it is much.
pub fn is_unfair(share: &VmShare, allowed: f64, slice: Nanos) -> bool {
    deviation(share) > allowed + slice.share_of(share.entitled)
}

/// How far from fair, as a share of the entitlement.
pub fn deviation(share: &VmShare) -> f64 {
    (share.ratio - 1.0).abs()
}

/// Divides `capacity` by `weights`, nobody more than `cap`: what is over goes to the others.
fn water_fill(capacity: f64, weights: &[f64], cap: f64) -> Vec<f64> {
    let mut parts = vec![None; weights.len()];
    // Each turn caps at least one, or ends.
    for _ in 0..weights.len() {
        let left = capacity - parts.iter().flatten().sum::<f64>();
        let open: f64 = weights.iter().zip(&parts).filter(|(_, part)| part.is_none()).map(|(weight, _)| weight).sum();
        let over: Vec<usize> =
            (0..weights.len()).filter(|&i| parts[i].is_none() && left * weights[i] / open > cap).collect();
        if over.is_empty() {
            return (0..weights.len()).map(|i| parts[i].unwrap_or(left * weights[i] / open)).collect();
        }
        for i in over {
            parts[i] = Some(cap);
        }
    }
    parts.into_iter().map(|part| part.unwrap_or(cap)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gleaner_model::{HostVcpuWindow, VmWindow};

    /// (VM, pCPUs, weight, run ms, wait ms) of one second.
    fn window(vcpus: &[(u32, &str, u64, u64, u64)]) -> HostWindow {
        let vm = |&(id, pcpus, weight, run, wait): &(u32, &str, u64, u64, u64)| VmWindow {
            vm: VmId(id),
            slice: None,
            weight,
            limit: None,
            refill: None,
            vcpus: vec![HostVcpuWindow {
                run: Nanos::from_millis(run),
                wait: Nanos::from_millis(wait),
                ..HostVcpuWindow::new(VcpuId(0), pcpus.parse().unwrap())
            }],
        };
        let vms = vcpus.iter().map(vm).collect();
        HostWindow { at: Nanos::from_secs(1), length: Nanos::from_secs(1), vms, tick: None }
    }

    fn check(vcpus: &[(u32, &str, u64, u64, u64)], expected: &[(u32, f64)]) {
        let mut meter = FairnessMeter::new(Nanos::from_secs(10), 0.95);
        meter.push(&window(vcpus));
        let found: Vec<(u32, f64)> =
            meter.shares().iter().map(|share| (share.vm.0, (share.ratio * 1e3).round() / 1e3)).collect();
        assert_eq!(found, expected, "{vcpus:?}");
    }

    #[test]
    fn shares_are_compared_with_weights_among_those_who_never_slept() {
        check(&[(1, "0", 1024, 500, 500), (2, "0", 1024, 500, 500)], &[(1, 1.0), (2, 1.0)]);
        check(&[(1, "0", 1024, 600, 400), (2, "0", 1024, 400, 600)], &[(1, 1.2), (2, 0.8)]);
        check(&[(1, "0", 2048, 600, 400), (2, "0", 1024, 300, 700)], &[(1, 1.0), (2, 1.0)]);
        // The third sleeps: it is not judged, and the others share what they got.
        check(&[(1, "0", 1024, 450, 550), (2, "0", 1024, 450, 550), (3, "0", 1024, 100, 20)], &[(1, 1.0), (2, 1.0)]);
        // Others on other pCPUs have nothing to do with it, and one alone cannot be treated unfairly.
        check(&[(1, "0", 1024, 500, 500), (2, "1", 1024, 1000, 0)], &[]);
        // Two pCPUs for three: the heavy one can use no more than one whole.
        check(
            &[(1, "0-1", 4096, 1000, 0), (2, "0-1", 1024, 500, 500), (3, "0-1", 1024, 500, 500)],
            &[(1, 1.0), (2, 1.0), (3, 1.0)],
        );
    }

    #[test]
    fn unfair_is_what_is_beyond_the_allowed_and_a_slice() {
        for (what, run_ms, entitled_ms, slice_us, unfair) in [
            ("to the dot", 5_000, 5_000, 1_000, false),
            ("2.9 % less", 4_855, 5_000, 1_000, false),
            ("3.1 % less", 4_845, 5_000, 1_000, true),
            ("3.1 % more", 5_155, 5_000, 1_000, true),
            ("3.5 % less, of which one slice is 0.6", 4_825, 5_000, 30_000, false),
            ("3.7 % less, of which one slice is 0.6", 4_815, 5_000, 30_000, true),
            ("20 % less of a moment that three slices fill", 80, 100, 30_000, false),
            ("40 % less of it", 60, 100, 30_000, true),
            ("nothing at all", 0, 5_000, 1_000, true),
        ] {
            let entitled = Nanos::from_millis(entitled_ms);
            let ratio = Nanos::from_millis(run_ms).share_of(entitled);
            let share = VmShare { vm: VmId(1), vcpus: 1, ratio, entitled };
            assert_eq!(is_unfair(&share, 0.03, Nanos::from_micros(slice_us)), unfair, "{what}");
        }
    }

    #[test]
    fn what_a_vcpu_is_entitled_to_is_told_beside_its_share() {
        let mut meter = FairnessMeter::new(Nanos::from_secs(10), 0.95);
        for _ in 0..2 {
            meter.push(&window(&[(1, "0", 2048, 600, 400), (2, "0", 1024, 300, 700)]));
        }
        let entitled: Vec<Nanos> = meter.shares().iter().map(|share| share.entitled).collect();
        assert_eq!(entitled, [Nanos::from_millis(1_200), Nanos::from_millis(600)]);
    }

    #[test]
    fn who_overlaps_in_part_is_said_to_have_no_share() {
        for (vcpus, unjudged) in [
            (&[(1, "0-1", 1024, 900, 100), (2, "1-2", 1024, 900, 100)][..], &[1, 2][..]),
            // The same pCPUs, other pCPUs, and one that sleeps.
            (&[(1, "0", 1024, 500, 500), (2, "0", 1024, 500, 500), (3, "5", 1024, 1000, 0)], &[]),
            (&[(1, "0-1", 1024, 900, 100), (2, "1-2", 1024, 100, 20)], &[]),
            // The first two are judged by each other.
            (&[(1, "0", 1024, 300, 700), (2, "0", 1024, 300, 700), (3, "0-1", 1024, 900, 100)], &[3]),
        ] {
            let mut meter = FairnessMeter::new(Nanos::from_secs(10), 0.95);
            meter.push(&window(vcpus));
            assert_eq!(meter.unjudged(), unjudged.iter().map(|vm| VmId(*vm)).collect::<Vec<_>>(), "{vcpus:?}");
        }
    }

    #[test]
    fn who_is_held_back_by_a_cap_is_not_judged() {
        for (limit_ms, judged) in [(Some(200), &[2, 3][..]), (Some(400), &[1, 2, 3]), (None, &[1, 2, 3])] {
            let mut meter = FairnessMeter::new(Nanos::from_secs(10), 0.95);
            let mut one = window(&[(1, "0", 1024, 195, 805), (2, "0", 1024, 400, 600), (3, "0", 1024, 400, 600)]);
            one.vms[0].limit = limit_ms.map(Nanos::from_millis);
            meter.push(&one);
            let shares = meter.shares();
            assert_eq!(shares.iter().map(|share| share.vm.0).collect::<Vec<_>>(), judged, "{limit_ms:?}");
            // Without the first, the two share what they got alike.
            let fair = shares.iter().filter(|share| (share.ratio - 1.0).abs() < 1e-9).count();
            assert_eq!(fair, if judged.len() == 2 { 2 } else { 0 }, "{limit_ms:?}");
        }
    }

    #[test]
    fn the_past_is_forgotten_after_the_span() {
        let mut meter = FairnessMeter::new(Nanos::from_secs(3), 0.95);
        meter.push(&window(&[(1, "0", 1024, 1000, 0), (2, "0", 1024, 0, 1000)]));
        assert_eq!(meter.worst(&[VmId(1), VmId(2)]).map(|share| share.ratio), Some(0.0));
        for _ in 0..3 {
            meter.push(&window(&[(1, "0", 1024, 500, 500), (2, "0", 1024, 500, 500)]));
        }
        assert_eq!(meter.length(), Nanos::from_secs(3));
        assert_eq!(meter.worst(&[VmId(1), VmId(2)]).map(|share| deviation(&share)), Some(0.0));
        assert_eq!(meter.worst(&[VmId(7)]), None);
    }

    #[test]
    fn a_newcomer_is_not_judged_yet() {
        let mut meter = FairnessMeter::new(Nanos::from_secs(3), 0.95);
        meter.push(&window(&[(1, "0", 1024, 1000, 0)]));
        meter.push(&window(&[(1, "0", 1024, 500, 500), (2, "0", 1024, 500, 500)]));
        assert_eq!(meter.shares(), []);
    }
}
