//! Times and lengths, as the report has them.

use gleaner_report::{LengthStats, ObservedLengths, StatusRecent, StatusTimes, StatusVcpuTimes};
use gleaner_runtime::{LengthSummaries, LengthSummary, MachineTimes, RecentFigures, VcpuTime};

/// `steal_is_reported`: whether the hypervisor has ever told of any.
pub(super) fn times(times: &MachineTimes, steal_is_reported: bool) -> StatusTimes {
    let of_vcpu = |(id, time): (&gleaner_model::VcpuId, &VcpuTime)| {
        // Something takes up the time of a vCPU: where nothing does, it came a moment ago, and nothing is known of it.
        let known = |ns: gleaner_model::Nanos| (*time != VcpuTime::default()).then_some(ns.0);
        StatusVcpuTimes {
            vcpu: id.0,
            busy_ns: known(time.busy),
            retained_ns: known(time.retained),
            halted_ns: known(time.halted),
            steal_ns: known(time.steal).filter(|_| steal_is_reported),
        }
    };
    StatusTimes {
        observed_ns: times.observed.0,
        idle_entries: times.idle_entries,
        halts: times.halts,
        vcpus: times.vcpus.iter().map(of_vcpu).collect(),
    }
}

pub(super) fn recent(figures: &RecentFigures) -> StatusRecent {
    StatusRecent {
        observed_ns: figures.observed.0,
        cpu_time_ns: figures.cpu_time.0,
        voluntary_switches: figures.voluntary_switches,
        idle_entries: figures.idle_entries,
        l_comp_ns: figures.l_comp(),
        g_comp_ns: figures.g_comp(),
        l_idle_ns: figures.l_idle(),
    }
}

pub(super) fn lengths(lengths: &LengthSummaries) -> ObservedLengths {
    let stats = |length: &Option<LengthSummary>| match length.as_ref()? {
        LengthSummary::Mean(mean) => LengthStats::from_mean(*mean),
        LengthSummary::Distribution(all) => LengthStats::from_distribution(all),
    };
    ObservedLengths {
        l_comp: stats(&lengths.l_comp),
        g_comp: stats(&lengths.g_comp),
        l_idle: stats(&lengths.l_idle),
        wake_to_run: stats(&lengths.wake_to_run),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gleaner_model::{Nanos, VcpuId};

    #[test]
    fn what_is_not_known_is_null_and_not_0() {
        let seen = VcpuTime { busy: Nanos(3), halted: Nanos(7), ..VcpuTime::default() };
        let all = MachineTimes {
            observed: Nanos(10),
            vcpus: [(VcpuId(0), seen), (VcpuId(1), VcpuTime::default())].into(),
            ..MachineTimes::default()
        };
        let told = times(&all, false);
        let known = StatusVcpuTimes {
            busy_ns: Some(3),
            retained_ns: Some(0),
            halted_ns: Some(7),
            ..StatusVcpuTimes::default()
        };
        assert_eq!(told.vcpus, [known, StatusVcpuTimes { vcpu: 1, ..StatusVcpuTimes::default() }]);
        assert_eq!(told.idle_entries, None);
        assert_eq!(times(&all, true).vcpus[0].steal_ns, Some(0), "it tells, and took nothing");
    }
}
