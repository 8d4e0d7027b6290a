use super::*;
use gleaner_report::{StatusMachine, StatusRecent, StatusTimes, StatusTrial, StatusVcpuTimes, VerifiedFile};
use std::collections::BTreeMap;

fn group(name: &str, trial: Option<f64>) -> StatusGroup {
    let trial = trial.map(|ratio| StatusTrial {
        at_ns: 1,
        pays: true,
        reason: String::new(),
        rate_ratio: Some(ratio),
        rate_range: None,
        pairs: 4,
        next_at_ns: None,
    });
    StatusGroup {
        name: name.into(),
        target: String::new(),
        profile: "latency".into(),
        policy: "retain".into(),
        observer: "bpf".into(),
        since_ns: 0,
        vcpus: 2,
        state: String::new(),
        retaining: vec![0, 1],
        timeout_ns: None,
        cpu_time_ns: 2_500_000_000,
        voluntary_switches: 7,
        threads_max: Some(1),
        recent: StatusRecent {
            g_comp_ns: trial.is_some().then_some(5e3),
            l_idle_ns: trial.is_some().then_some(2e4),
            ..StatusRecent::default()
        },
        trial,
        decisions_count: 3,
        ..StatusGroup::default()
    }
}

fn times(steal_ns: Option<u64>) -> StatusVcpuTimes {
    StatusVcpuTimes { steal_ns, busy_ns: Some(1_500_000_000), halted_ns: Some(0), ..StatusVcpuTimes::default() }
}

fn status() -> StatusReport {
    StatusReport {
        schema: StatusReport::SCHEMA.into(),
        version: "0".into(),
        pid: 1,
        up_ns: 60_000_000_000,
        machine: StatusMachine { vcpus: 2, ..StatusMachine::default() },
        times: StatusTimes {
            idle_entries: Some(5),
            halts: Some(9),
            vcpus: vec![times(Some(4_000_000_000)), times(Some(2_000_000_000)), times(None)],
            ..StatusTimes::default()
        },
        began_unix_ns: 1_700_000_000_000_000_000,
        settings_differ: vec![VerifiedFile {
            path: "/sys/x".into(),
            expected: vec!["7".into()],
            found: None,
            as_set: false,
            changed_by: None,
        }],
        window_ns: 100_000_000,
        overhead_cpu_ns: 1,
        groups: vec![group("redis", Some(1.31)), group("a\"b\\", None)],
        ..StatusReport::default()
    }
}

/// A parser of OpenMetrics text, as far as the text goes: samples by name and labels; families with type, unit and
/// help.
fn parse(text: &str) -> (BTreeMap<String, f64>, BTreeMap<String, [String; 3]>) {
    let mut families: BTreeMap<String, [String; 3]> = BTreeMap::new();
    let mut samples = BTreeMap::new();
    let (body, end) = text.split_at(text.len() - "# EOF\n".len());
    assert_eq!(end, "# EOF\n");
    for line in body.lines() {
        if let Some(rest) = line.strip_prefix("# ") {
            let mut words = rest.splitn(3, ' ');
            let (kind, name, said) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
            let at = ["TYPE", "UNIT", "HELP"].iter().position(|known| *known == kind).expect("a known comment");
            families.entry(name.to_owned()).or_default()[at] = said.to_owned();
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        let name = series.split('{').next().unwrap();
        let family = name.strip_suffix("_total").unwrap_or(name);
        let [kind, unit, help] = families.get(family).unwrap_or_else(|| panic!("{name} is not described"));
        assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
        assert!(unit.is_empty() || family.ends_with(unit.as_str()), "{line}");
        assert!(!help.is_empty());
        let value: f64 = value.parse().unwrap();
        assert!(value.is_finite() && samples.insert(series.to_owned(), value).is_none(), "{line}");
    }
    (samples, families)
}

#[test]
fn a_parser_reads_what_is_served_and_each_family_is_in_the_table() {
    let (samples, families) = parse(&text(&status(), false));
    let described: Vec<String> =
        METRICS.iter().map(|metric| metric.sample_name().trim_end_matches("_total").to_owned()).collect();
    for family in families.keys() {
        assert!(described.contains(family), "{family}");
    }
    assert_eq!(families.len(), METRICS.len(), "{families:?}");
    let mut unseen = status();
    unseen.times = StatusTimes { vcpus: vec![times(None)], ..StatusTimes::default() };
    for name in ["gleaner_idle_entries", "gleaner_halts", "gleaner_stolen"] {
        assert!(!text(&unseen, false).contains(name), "{name}: what is unknown is no 0");
    }
    assert!(text(&unseen, false).contains("gleaner_busy_seconds_total 1.5\n"));
    assert_eq!(samples.get("gleaner_stolen_seconds_total"), Some(&6.0));
    assert_eq!(samples.get("gleaner_acting"), Some(&0.0), "no means");
    let is = |series: &str| samples.get(series).copied();
    assert_eq!(is("gleaner_uptime_seconds"), Some(60.0));
    assert_eq!(is("gleaner_build_info{version=\"0\"}"), Some(1.0));
    assert_eq!(is("process_start_time_seconds"), Some(1.7e9), "as every program's is called");
    assert_eq!(is("gleaner_settings_differ"), Some(1.0));
    assert!(samples.keys().all(|series| !series.contains("vcpu=")), "nobody asked for them");
    assert_eq!(is("gleaner_group_cpu_seconds_total{group=\"redis\"}"), Some(2.5));
    assert_eq!(is("gleaner_group_trial_rate_ratio{group=\"redis\"}"), Some(1.31));
    assert_eq!(is("gleaner_group_granularity_seconds{group=\"redis\"}"), Some(5e-6));
    assert_eq!(is("gleaner_group_trial_rate_ratio{group=\"a\\\"b\\\\\"}"), None, "not tried");
    assert_eq!(is("gleaner_group_decisions_total{group=\"a\\\"b\\\\\"}"), Some(3.0));
}

#[test]
fn requests_are_answered_as_http_has_it() {
    let mut ask = |_| Answer::Status(Box::new(status()));
    let mut said = |request: &[u8]| respond(request, &mut ask).map(|bytes| String::from_utf8(bytes).unwrap());
    let page = said(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let (head, body) = page.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("openmetrics-text"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())));
    parse(body);
    for target in
        ["/metrics?x=1", "/?", "/metrics?a=b&c=%20#d", "http://localhost:9469/metrics", "http://h", "http://h/?x"]
    {
        let page = said(format!("GET {target} HTTP/1.1\r\n\r\n").as_bytes()).unwrap();
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{target}: {page}");
    }
    for (target, asks) in [("/?vcpus=1", true), ("/metrics?a=b&vcpus=1#x", true), ("/metrics?vcpus=0", false)] {
        let page = said(format!("GET {target} HTTP/1.1\r\n\r\n").as_bytes()).unwrap();
        let (samples, _) = parse(page.split_once("\r\n\r\n").unwrap().1);
        let of = |state| samples.get(&format!("gleaner_vcpu_seconds_total{{vcpu=\"0\",state=\"{state}\"}}")).copied();
        assert_eq!((of("busy").is_some(), of("retained")), (asks, None), "{target}: what is unknown is no 0");
    }
    // The same head, and nothing else.
    for (target, method) in [("/metrics", "GET"), ("/x", "GET"), ("/metrics", "HEAD")] {
        let [whole, head] =
            [method, "HEAD"].map(|method| said(format!("{method} {target} HTTP/1.1\r\n\r\n").as_bytes()).unwrap());
        assert!(whole.starts_with(&head) && head.ends_with("\r\n\r\n") && head.matches("\r\n\r\n").count() == 1);
        assert!(head.contains("Content-Length: ") && !head.contains("Content-Length: 0"), "{head}");
    }
    let long = [&b"HEAD /"[..], &[b'x'; HEAD_BYTES_MAX]].concat();
    assert!(said(&long).unwrap().starts_with("HTTP/1.1 431 ") && said(&long).unwrap().ends_with("\r\n\r\n"));
    for (request, status) in [
        (&b"GET /x HTTP/1.1\r\n\r\n"[..], "404"),
        (b"GET /metricsx?/metrics HTTP/1.1\r\n\r\n", "404"),
        (b"GET http:///x HTTP/1.1\r\n\r\n", "404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
        (b"\r\n\r\n", "405"),
        (&[b'x'; HEAD_BYTES_MAX + 1], "431"),
    ] {
        assert!(said(request).unwrap().starts_with(&format!("HTTP/1.1 {status} ")), "{status}");
    }
    assert_eq!(said(b"GET /metrics HTTP/1.1\r\n"), None);
}

#[test]
fn addresses_of_others_are_refused() {
    for right in ["127.0.0.1:9469", "[::1]:1", "unix:/run/x", "public:0.0.0.0:9469", "public:[::]:1"] {
        assert_eq!(MetricsAddress::parse(right).unwrap().to_string(), right);
    }
    assert!(MetricsAddress::parse("0.0.0.0:9469").unwrap_err().contains("or public:0.0.0.0:9469 to let everybody"));
    for wrong in ["0.0.0.0:9469", "10.0.0.1:80", "9469", "unix:x", "localhost:1", "public:9469", "public:x:1", ""] {
        assert!(MetricsAddress::parse(wrong).is_err(), "{wrong}");
    }
}

/// As expfmt, which node_exporter reads with, has it: each sample's own name is described before it.
#[test]
fn the_textfile_describes_each_sample_by_its_own_name() {
    let text = textfile(&status());
    let mut kinds = BTreeMap::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            kinds.insert(name.to_owned(), kind.to_owned());
        } else if !line.starts_with("# HELP ") {
            let name = line.split(['{', ' ']).next().unwrap();
            let kind = kinds.get(name).unwrap_or_else(|| panic!("{line} is not described"));
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
        }
    }
    assert_eq!(kinds.get("gleaner_overhead_cpu_seconds_total").map(String::as_str), Some("counter"));
    assert!(
        text.contains("gleaner_group_cpu_seconds_total{group=\"redis\"} 2.5\n") && !text.contains("# EOF"),
        "{text}"
    );
}
