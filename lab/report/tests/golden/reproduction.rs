//! `gleaner.reproduction/1`.

use super::{check, has, units_are_named};
use gleaner_lab_report::{ReproductionParameter, ReproductionReport, ReproductionRow};
use serde_json::Value;

fn row(case: &str, metric: &str, simulated: Option<f64>) -> ReproductionRow {
    ReproductionRow {
        case: case.into(),
        metric: metric.into(),
        paper: None,
        paper_order: None,
        simulated,
        calibrated: None,
        agrees: None,
        smoke: false,
        note: None,
        basis: None,
        error_ratio: None,
    }
}

fn reproduction() -> ReproductionReport {
    let statement = |case: &str, words: Option<&str>, agrees| ReproductionRow {
        paper_order: words.map(Into::into),
        agrees,
        note: words.map(|_| "by the means of all mixes".into()),
        ..row(case, "1ms cpi_ratio", Some(1.25))
    };
    ReproductionReport {
        schema: ReproductionReport::SCHEMA.into(),
        id: "micro:fig10".into(),
        title: "CPI of 1 ms slices against 30 ms".into(),
        smoke: false,
        parameters: vec![ReproductionParameter { name: "quanta of 30 ms".into(), value: "10 for each context".into() }],
        rows: vec![
            row("mix-9 A omnetpp", "1ms cpi_ratio", Some(1.592)),
            row("mix-9 A omnetpp", "DIP cpi_ratio", Some(1.168)),
            ReproductionRow { calibrated: Some(1.3), ..row("mix-9 B gcc", "1ms cpi_ratio", Some(1.351)) },
            row("mix-9 B gcc", "memory cpi", Some(0.5)),
            statement("type-4", Some("gains most"), Some(true)),
            statement("type-5", Some("gains less"), Some(false)),
            ReproductionRow {
                paper: Some(1.42),
                calibrated: Some(1.5),
                ..statement("bzip2", Some("suffers"), Some(true))
            },
            ReproductionRow { paper: Some(30.0), ..statement("ratio", None, None) },
        ],
        notes: vec!["programs are made up by profile".into()],
    }
}

/// Of `sim reproduce`: rows say whether anything of them was fitted.
fn scheduling() -> ReproductionReport {
    let figure = |case: &str, simulated, agrees, basis: &str, note: Option<&str>| ReproductionRow {
        paper: Some(46.9),
        agrees: Some(agrees),
        note: note.map(Into::into),
        basis: Some(basis.into()),
        error_ratio: Some(simulated / 46.9 - 1.0),
        ..row(case, "run time s", Some(simulated))
    };
    ReproductionReport {
        id: "gleaner:table1".into(),
        title: "dedup natively, dedicated and shared".into(),
        parameters: Vec::new(),
        rows: vec![
            figure("native, 1 core", 46.9, true, "calibrated", None),
            figure("dedicated, 16 cores", 41.5, true, "predicted", None),
            figure("shared, 16 cores", 12.0, false, "predicted", Some("no cause found")),
        ],
        ..reproduction()
    }
}

#[test]
fn reproduction_whole() {
    let json = check("reproduction_whole", &reproduction());
    // The design's keys, and the issue's.
    has(&json, &["rows[].case", "rows[].metric", "rows[].paper", "rows[].simulated", "rows[].calibrated"]);
    has(&json, &["id", "smoke", "rows[].paper_order", "rows[].agrees", "rows[].smoke", "rows[].note"]);
    // A row's unit is the last word of its metric.
    units_are_named(&json, &["paper", "simulated", "calibrated"]);
}

#[test]
fn reproduction_predicted() {
    let json = check("reproduction_predicted", &scheduling());
    assert_eq!(json["rows"][1]["basis"], "predicted");
    assert!(scheduling().to_string().contains("1 of 2 predicted rows agree."), "{}", scheduling());
}

#[test]
fn reproduction_unknown() {
    let report = ReproductionReport {
        smoke: true,
        parameters: Vec::new(),
        rows: vec![
            row("mix-9 A omnetpp", "1ms cpi_ratio", None),
            ReproductionRow { paper_order: Some("gains most".into()), smoke: true, ..row("type-4", "cpi_ratio", None) },
        ],
        notes: Vec::new(),
        ..reproduction()
    };
    let json = check("reproduction_unknown", &report);
    for key in ["paper", "simulated", "calibrated", "agrees", "note"] {
        assert_eq!(json["rows"][1][key], Value::Null, "{key}");
    }
}
