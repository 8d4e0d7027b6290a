//! Costs of wake-ups as `gleaner probe` measured them, in place of a paper's.

use gleaner_command::failure::Failure;
use gleaner_report::ProbeReport;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// No result of `gleaner probe` is longer.
const PROBE_BYTES_MAX: u64 = 1 << 20;

/// Single costs by name, as a scenario's `cost_ns` takes them, from a `gleaner.probe/1` file.
pub fn costs(path: &Path) -> Result<BTreeMap<String, u64>, Failure> {
    let wrong = |why: &dyn std::fmt::Display| Failure::input(format!("--probe {}: {why}", path.display()));
    let mut text = Vec::new();
    let file = File::open(path).map_err(|error| wrong(&error))?;
    file.take(PROBE_BYTES_MAX + 1).read_to_end(&mut text).map_err(|error| wrong(&error))?;
    if text.len() as u64 > PROBE_BYTES_MAX {
        return Err(wrong(&format_args!(
            "longer than {} MiB, and no result of gleaner probe is",
            PROBE_BYTES_MAX >> 20
        )));
    }
    let probe: ProbeReport = serde_json::from_slice(&text)
        .map_err(|error| wrong(&format_args!("not a result of gleaner probe --json: {error}")))?;
    if probe.schema != ProbeReport::SCHEMA {
        return Err(wrong(&format_args!("its schema is {:?}, not {:?}", probe.schema, ProbeReport::SCHEMA)));
    }
    of(&probe).map_err(|setting| {
        wrong(&format_args!(
            "setting {setting} was not measured; run gleaner probe --json without --setting, on two vCPUs or more"
        ))
    })
}

/// Differences of Table 2's rows, medians: A = RT, B = IPI + RT, C = IPI + RV + RT, D = IPI + PV + RV + RT. A row that
/// came out below the one it contains costs nothing more. `Err`: the setting that is missing. D counts where another VM
/// made it.
fn of(probe: &ProbeReport) -> Result<BTreeMap<String, u64>, &'static str> {
    let p50 = |name: &'static str| probe.setting(name).map(|setting| setting.p50_ns).ok_or(name);
    let (a, b, c) = (p50("A")?, p50("B")?, p50("C")?);
    let mut costs = BTreeMap::from([
        ("guest_switch_ns".to_owned(), a),
        ("ipi_ns".to_owned(), b.saturating_sub(a)),
        ("vcpu_resume_ns".to_owned(), c.saturating_sub(b.max(a))),
    ]);
    if let (Some("host"), Ok(d)) = (probe.d_kind.as_deref(), p50("D")) {
        costs.insert("vcpu_preempt_ns".to_owned(), d.saturating_sub(c));
    }
    Ok(costs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gleaner_report::SettingResult;

    fn probe(settings: &[(&str, u64)], d_kind: Option<&str>) -> ProbeReport {
        let setting = |&(setting, p50_ns): &(&str, u64)| SettingResult {
            setting: setting.to_owned(),
            n: 1000,
            mean_ns: 1,
            p50_ns,
            p90_ns: 1,
            p99_ns: 1,
            max_ns: 1,
            steal_ratio: None,
        };
        ProbeReport {
            means: None,
            schema: ProbeReport::SCHEMA.to_owned(),
            gap_ns: 1,
            waiter_vcpu: 0,
            waker_vcpu: Some(1),
            d_kind: d_kind.map(str::to_owned),
            settings: settings.iter().map(setting).collect(),
            timeouts: None,
            notes: Vec::new(),
        }
    }

    #[test]
    fn the_papers_table_gives_the_papers_costs() {
        let costs = of(&probe(&[("A", 6_000), ("B", 17_000), ("C", 37_000), ("D", 96_000)], Some("host"))).unwrap();
        let expected =
            [("guest_switch_ns", 6_000), ("ipi_ns", 11_000), ("vcpu_preempt_ns", 59_000), ("vcpu_resume_ns", 20_000)];
        assert_eq!(costs.into_iter().collect::<Vec<_>>(), expected.map(|(name, ns)| (name.to_owned(), ns)));
    }

    #[test]
    fn a_hog_in_the_guest_says_nothing_of_the_host_and_noise_costs_nothing() {
        let costs = of(&probe(&[("A", 6_000), ("B", 5_000), ("C", 5_500), ("D", 96_000)], Some("guest"))).unwrap();
        assert_eq!((costs["ipi_ns"], costs["vcpu_resume_ns"], costs.get("vcpu_preempt_ns")), (0, 0, None));
        assert_eq!(of(&probe(&[("A", 1), ("C", 3)], None)), Err("B"));
    }
}
