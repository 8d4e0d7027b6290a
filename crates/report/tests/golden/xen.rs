//! `gleaner.xen-slice/1`.

use super::{check, units_are_named};
use gleaner_report::{XenPoolTimes, XenSliceReport};

#[test]
fn xen_slice() {
    let credit = |slice_ns, ratelimit_ns| XenPoolTimes { slice_ns: Some(slice_ns), ratelimit_ns };
    let whole = XenSliceReport {
        schema: XenSliceReport::SCHEMA.into(),
        pool: "Pool-0".into(),
        scheduler: "credit".into(),
        was: credit(30_000_000, 1_000_000),
        set: credit(1_000_000, 500_000),
        held_ns: 5_000_000_000,
        restored: true,
    };
    units_are_named(&check("xen_slice_whole", &whole), &[]);
    let times = XenPoolTimes { slice_ns: None, ratelimit_ns: 0 };
    let unknown = XenSliceReport { scheduler: "credit2".into(), was: times, set: times, held_ns: 0, ..whole };
    check("xen_slice_unknown", &unknown);
}
