//! `gleaner.xen-list/1` and `gleaner.xen-slice/1`.

use super::{check, units_are_named};
use gleaner_model::XenSetting;
use gleaner_report::{
    XenListDomain, XenListPool, XenListReport, XenListVcpu, XenSliceChange, XenSliceReport, XenTimes,
};

/// Numbers without a unit (ids, counts), and those in units of other kinds.
const PLAIN: &[&str] = &["pcpus", "vcpus", "id", "weight", "cap_percent", "memory_mib", "cpu_time_s", "index", "pcpu"];

fn credit(slice_ms: u32, ratelimit_us: u32) -> XenTimes {
    XenTimes::from(&XenSetting::Credit { pool: "Pool-0".into(), slice_ms, ratelimit_us })
}

fn rtds(period_us: u32, budget_us: u32) -> XenTimes {
    XenTimes::from(&XenSetting::Rtds { domain: 3, vcpu: 0, period_us, budget_us, extratime: true })
}

fn vcpu(state: &str, times: XenTimes) -> XenListVcpu {
    XenListVcpu {
        index: 0,
        pcpu: Some(1),
        state: state.into(),
        cpu_time_s: 25.4,
        hard_affinity: "0-1".into(),
        soft_affinity: "all".into(),
        times,
    }
}

fn pool(name: &str, scheduler: &str, vcpus: u64, times: XenTimes) -> XenListPool {
    let scheduling_latency_ns = times.slice_ns.map(|slice| slice * vcpus.saturating_sub(1));
    XenListPool { name: name.into(), scheduler: scheduler.into(), pcpus: 1, vcpus, times, scheduling_latency_ns }
}

fn domain(id: u32, name: &str, pool: Option<&str>, vcpus: Vec<XenListVcpu>) -> XenListDomain {
    XenListDomain {
        id,
        name: name.into(),
        pool: pool.map(Into::into),
        memory_mib: 512,
        weight: pool.map(|_| 256),
        cap_percent: pool.map(|_| 50),
        vcpus,
    }
}

#[test]
fn xen_list() {
    let whole = XenListReport {
        schema: XenListReport::SCHEMA.into(),
        xen_version: Some("4.17.7".into()),
        pools: vec![pool("Pool-0", "credit", 3, credit(30, 0)), pool("fast", "rtds", 1, XenTimes::default())],
        domains: vec![
            domain(0, "Domain-0", Some("Pool-0"), vec![vcpu("running", XenTimes::default())]),
            domain(3, "web server", Some("fast"), vec![vcpu("blocked", rtds(250, 100))]),
        ],
        notes: vec![],
    };
    units_are_named(&check("xen_list_whole", &whole), PLAIN);
    let offline = XenListVcpu { pcpu: None, ..vcpu("paused", XenTimes::default()) };
    let unknown = XenListReport {
        xen_version: None,
        pools: vec![pool("Pool-0", "arinc653", 0, XenTimes::default())],
        domains: vec![domain(0, "Domain-0", None, vec![offline])],
        notes: vec!["cpupool Pool-0 is scheduled by arinc653, of which no times are known".into()],
        ..whole
    };
    check("xen_list_unknown", &unknown);
}

#[test]
fn xen_slice() {
    let change = XenSliceChange { target: "cpupool Pool-0".into(), was: credit(30, 1000), set: credit(1, 500) };
    let whole = XenSliceReport {
        schema: XenSliceReport::SCHEMA.into(),
        requested_ns: Some(1_000_000),
        requested_ratelimit_ns: Some(500_000),
        method: "xen-credit".into(),
        changes: vec![change],
        held_ns: 5_000_000_000,
        delivered_p50_ns: None,
        delivered_p90_ns: None,
        restored: true,
        notes: vec!["nothing was measured".into()],
    };
    units_are_named(&check("xen_slice_whole", &whole), &[]);
    let unknown = XenSliceReport {
        requested_ns: None,
        requested_ratelimit_ns: None,
        changes: vec![],
        held_ns: 0,
        notes: vec![],
        ..whole
    };
    check("xen_slice_unknown", &unknown);
}
