//! `gleaner.llc/1`.

use super::{check, units_are_named};
use gleaner_report::{LlcChange, LlcGroup, LlcHost, LlcReport, LlcVmResult};

/// Counts, and figures per 1,000 instructions.
const PLAIN: &[&str] = &[
    "caches",
    "mask_bits_min",
    "classes_free",
    "pid",
    "threads",
    "threads_left_alone",
    "accesses_pki",
    "misses_full_pki",
    "misses_minimal_pki",
    "occupancy_bytes",
    "memory_bytes",
    "changes_left_out",
];

fn whole() -> LlcReport {
    let vm = |name: &str, pid, class: &str, share: &str| LlcVmResult {
        name: name.into(),
        pid,
        threads: 4,
        threads_left_alone: 1,
        class: Some(class.into()),
        told: false,
        accesses_pki: Some(31.5),
        misses_full_pki: Some(30.25),
        misses_minimal_pki: Some(31.0),
        share: Some(share.into()),
        occupancy_bytes: Some(3 << 20),
        memory_bytes: Some(5 << 30),
    };
    LlcReport {
        schema: LlcReport::SCHEMA.into(),
        mode: "allocate".into(),
        wall_ns: 60_000_000_000,
        interval_ns: 1_000_000_000,
        host: LlcHost {
            resctrl: Some("/sys/fs/resctrl".into()),
            mounted_here: true,
            caches: Some(2),
            ways_mask: Some("7ff".into()),
            mask_bits_min: Some(1),
            shared_with_devices_mask: Some("600".into()),
            taken_mask: Some("0".into()),
            classes_free: Some(15),
            cdp: Some(false),
            monitoring: vec!["llc_occupancy".into(), "mbm_total_bytes".into()],
            counters: true,
        },
        missing: Vec::new(),
        changed: true,
        groups: vec![
            LlcGroup { share: "minimal".into(), name: Some("/gleaner-1-2-thrash".into()), ways_mask: "400".into() },
            LlcGroup { share: "rest".into(), name: Some("/gleaner-1-2-friendly".into()), ways_mask: "3ff".into() },
        ],
        vms: vec![vm("batch", 100, "thrashing", "minimal"), vm("web", 200, "cache-friendly", "rest")],
        changes: vec![LlcChange {
            at_ns: 2_000_000_000,
            vm: "batch".into(),
            pid: 100,
            to: "minimal".into(),
            reason: "it is thrashing".into(),
        }],
        changes_left_out: 2,
        warnings: vec!["not every VM is monitored: no id is left".into()],
        restored: true,
    }
}

#[test]
fn llc() {
    units_are_named(&check("llc_whole", &whole()), PLAIN);
    let mut unknown = whole();
    unknown.host = LlcHost::default();
    unknown.missing = vec!["cache allocation: this host has no CAT that the kernel can use".into()];
    (unknown.changed, unknown.changes_left_out) = (false, 0);
    unknown.groups.clear();
    unknown.changes.clear();
    unknown.warnings.clear();
    unknown.vms.truncate(1);
    for vm in &mut unknown.vms {
        (vm.class, vm.share) = (None, None);
        (vm.accesses_pki, vm.misses_full_pki, vm.misses_minimal_pki) = (None, None, None);
        (vm.occupancy_bytes, vm.memory_bytes) = (None, None);
    }
    units_are_named(&check("llc_unknown", &unknown), PLAIN);
}
