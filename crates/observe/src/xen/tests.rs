//! On what xl of Xen 4.17.7 printed in a dom0 (captured by hand with `testbed/xen.sh`; the RTDS ones with the same Xen
//! built with RTDS, which Debian's is not; `rtds-cpupool-list` is written after xl's source).

use super::*;
use gleaner_model::XenSetting;

/// What `xl` printed, by its arguments; what is not captured fails the test.
fn captured(scheduler: &str) -> Result<XenHost, XenReadError<String>> {
    xen_host(|words| {
        let text = match (scheduler, words.join(" ").as_str()) {
            (_, "info") => include_str!("fixtures/info.txt"),
            ("credit", "cpupool-list") => include_str!("fixtures/credit-cpupool-list.txt"),
            ("credit", "list") => include_str!("fixtures/credit-list.txt"),
            ("credit", "vcpu-list") => include_str!("fixtures/credit-vcpu-list.txt"),
            ("credit", "sched-credit") => include_str!("fixtures/credit-sched.txt"),
            ("credit2", "cpupool-list") => include_str!("fixtures/credit2-cpupool-list.txt"),
            ("credit2", "list") => include_str!("fixtures/credit2-list.txt"),
            ("credit2", "vcpu-list") => include_str!("fixtures/credit2-vcpu-list.txt"),
            ("credit2", "sched-credit2") => include_str!("fixtures/credit2-sched.txt"),
            ("rtds", "cpupool-list") => include_str!("fixtures/rtds-cpupool-list.txt"),
            ("rtds", "list") => include_str!("fixtures/rtds-list.txt"),
            ("rtds", "vcpu-list") => include_str!("fixtures/rtds-vcpu-list.txt"),
            ("rtds", "sched-rtds -v all") => include_str!("fixtures/rtds-sched.txt"),
            (_, other) => return Err(format!("{other} was not captured")),
        };
        Ok(text.to_owned())
    })
}

fn pool_0(pcpus: u32, scheduler: XenScheduler, settings: Vec<XenSetting>) -> XenPool {
    XenPool { name: "Pool-0".to_owned(), scheduler, pcpus, settings }
}

#[test]
fn credit() {
    let host = captured("credit").unwrap();
    assert_eq!(host.version.as_deref(), Some("4.17.7"));
    let setting = XenSetting::Credit { pool: "Pool-0".to_owned(), slice_ms: 30, ratelimit_us: 1000 };
    assert_eq!(host.pools, [pool_0(2, XenScheduler::Credit, vec![setting])]);
    let names: Vec<_> =
        host.domains.iter().map(|domain| (domain.id, domain.name.as_str(), domain.vcpus.len())).collect();
    assert_eq!(names, [(0, "Domain-0", 2), (1, "guest-one", 3), (2, "web", 2)]);
    let dom0 = &host.domains[0];
    assert_eq!((dom0.memory_mib, dom0.weight, dom0.cap_percent), (512, Some(256), Some(0)));
    assert_eq!(dom0.pool.as_deref(), Some("Pool-0"));
    let all = || "all".to_owned();
    let vcpu = XenVcpu {
        index: 1,
        pcpu: Some(1),
        state: XenVcpuState::Blocked,
        cpu_time_s: 25.4,
        hard_affinity: all(),
        soft_affinity: all(),
    };
    assert_eq!((dom0.vcpus[0].state, &dom0.vcpus[1]), (XenVcpuState::Running, &vcpu));
    let web = &host.domains[2].vcpus[0];
    assert_eq!((web.pcpu, web.state, web.hard_affinity.as_str()), (None, XenVcpuState::Paused, "1"));
    assert_eq!(host.domain("web").map(|domain| domain.id), Some(2));
    assert_eq!(host.domain("1").map(|domain| domain.name.as_str()), Some("guest-one"));
    assert_eq!(host.domain("nobody"), None);
}

#[test]
fn credit2() {
    let host = captured("credit2").unwrap();
    let setting = XenSetting::Credit2 { pool: "Pool-0".to_owned(), ratelimit_us: 1000 };
    assert_eq!(host.pools, [pool_0(2, XenScheduler::Credit2, vec![setting])]);
    assert_eq!(host.domains.len(), 1);
    assert_eq!(host.domains[0].weight, Some(256));
}

#[test]
fn rtds_and_a_name_with_a_space() {
    let host = captured("rtds").unwrap();
    let vcpu = |domain, vcpu| XenSetting::Rtds { domain, vcpu, period_us: 10_000, budget_us: 4000, extratime: true };
    assert_eq!(host.pools, [pool_0(2, XenScheduler::Rtds, vec![vcpu(0, 0), vcpu(0, 1), vcpu(1, 0), vcpu(1, 1)])]);
    let domain = host.domain("web server").unwrap();
    assert_eq!((domain.id, domain.weight, domain.pool.as_deref()), (1, None, Some("Pool-0")));
    assert_eq!(host.rtds(1, 1), Some(&vcpu(1, 1)));
    assert_eq!(host.rtds(1, 2), None);
}

/// A host of which the cpupools are these; `sched-credit` says `credit`.
fn pools(table: &str, credit: &str) -> Result<Vec<XenPool>, XenReadError<String>> {
    let host = xen_host(|words| {
        Ok(match words {
            ["cpupool-list"] => format!("Name               CPUs   Sched     Active   Domain count\n{table}"),
            ["sched-credit"] => credit.to_owned(),
            _ => String::new(),
        })
    })?;
    Ok(host.pools)
}

#[test]
fn several_cpupools_and_schedulers_without_settings() {
    let table = "Pool-0               3    credit       y          1\n\
                 my fast pool         1    credit       y          0\n\
                 pinned               4      null       y          2\n";
    let credit = "Cpupool Pool-0: tslice=30ms ratelimit=1000us migration-delay=0us\n\
                  Name                                ID Weight  Cap\n\
                  Domain-0                             0    256    0\n\
                  Cpupool my fast pool: [sched params unavailable]\n\
                  Name                                ID Weight  Cap\n";
    let found = pools(table, credit).unwrap();
    let short: Vec<_> = found.iter().map(|pool| (pool.name.as_str(), pool.pcpus, pool.settings.len())).collect();
    assert_eq!(short, [("Pool-0", 3, 1), ("my fast pool", 1, 0), ("pinned", 4, 0)]);
    assert_eq!(found[2].scheduler, XenScheduler::Other("null".to_owned()));
}

#[test]
fn what_is_not_understood_is_named() {
    let pool = "Pool-0               3    credit       y          1\n";
    for (table, credit, line) in [
        ("Pool-0 many credit y 1\n", "", "Pool-0 many credit y 1"),
        ("3 credit y 1\n", "", "3 credit y 1"),
        (pool, "Domain-0 0 256 0\n", "Domain-0 0 256 0"),
        (pool, "Cpupool Pool-0: x\nDomain-0 0 heavy 0\n", "Domain-0 0 heavy 0"),
        (pool, "Cpupool without an end\n", "Cpupool without an end"),
    ] {
        let error = pools(table, credit).unwrap_err().to_string();
        assert!(error.contains(line) && error.contains("does not understand"), "{error}");
    }
    let refused = xen_host(|_| Err::<String, _>("no privilege".to_owned()));
    assert_eq!(refused, Err(XenReadError::Xl("no privilege".to_owned())));
}

#[test]
fn only_dom0_may_ask() {
    let folder = tempfile::tempdir().unwrap();
    let root = ProcRoot::below(folder.path());
    assert!(!is_xen_dom0(&root));
    std::fs::create_dir_all(root.proc.join("xen")).unwrap();
    // As in a guest of Xen's with xenfs mounted.
    std::fs::write(root.proc.join("xen/capabilities"), "").unwrap();
    assert!(!is_xen_dom0(&root));
    std::fs::write(root.proc.join("xen/capabilities"), "control_d\n").unwrap();
    assert!(is_xen_dom0(&root));
}
