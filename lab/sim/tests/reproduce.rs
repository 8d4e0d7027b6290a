//! The papers' results: every identifier gives rows, little of them is calibrated, and threads change nothing.

use gleaner_sim::reproduce::{AGREES_WITHIN, Basis, Extent, IDS, ReproduceError, Reproduced, reproduce};

const SMOKE: Extent = Extent { smoke: true, seed: 1 };

fn gleaner(id: &str) -> Reproduced {
    reproduce(&format!("gleaner:{id}"), &SMOKE).unwrap()
}

fn calibrated_share(reproduced: &Reproduced) -> f64 {
    let compared = reproduced.rows.iter().filter(|row| row.is_compared());
    let calibrated = compared.clone().filter(|row| row.basis == Basis::Calibrated).count();
    calibrated as f64 / compared.count() as f64
}

/// What holds for each.
fn check(id: &str) -> Reproduced {
    let reproduced = gleaner(id);
    assert!(!reproduced.title.is_empty() && !reproduced.parameters.is_empty(), "{id}");
    assert!(reproduced.rows.iter().any(gleaner_sim::reproduce::Row::is_compared), "{id}");
    for row in &reproduced.rows {
        let missing = row.simulated.is_none() && row.note.is_none();
        assert!(!missing, "{id}: {} {} has no figure, and no reason", row.case, row.metric);
        let judged = row.paper.zip(row.simulated).map(|(paper, here)| (here - paper).abs() <= AGREES_WITHIN * paper);
        let open = row.agrees.is_none();
        assert!(row.paper.is_none() || open || row.agrees == Some(judged == Some(true)), "{id}: {row:?}");
        assert!(!open || !row.is_compared() || row.case == "SPLASH2X", "{id}: {} is not judged", row.case);
        assert!(row.paper_order.is_none() || row.note.is_some(), "{id}: {} has no criterion", row.case);
    }
    reproduced
}

#[test]
fn table1_has_the_papers_21_figures() {
    let table = check("table1");
    assert_eq!(table.rows.len(), 21);
    assert!(calibrated_share(&table) <= 0.2, "{}", calibrated_share(&table));
}

#[test]
fn table2_is_met_and_is_all_inputs() {
    let table = check("table2");
    let figures: Vec<_> = table.rows.iter().filter(|row| row.metric == "wake-up us" && row.paper.is_some()).collect();
    assert_eq!(figures.len(), 8);
    for row in figures {
        assert_eq!((row.simulated, row.basis), (row.paper, Basis::Calibrated), "{}", row.case);
    }
}

#[test]
fn figures_of_the_benchmarks() {
    for id in ["fig1", "fig2", "fig5", "fig7"] {
        let share = calibrated_share(&check(id));
        assert!(share <= 0.2, "{id}: {share} of the rows are calibrated");
    }
}

#[test]
fn figures_of_mysql_say_that_its_granularity_has_no_source() {
    for id in ["fig8", "fig9"] {
        let figure = check(id);
        let mysql = |row: &&gleaner_sim::reproduce::Row| {
            id == "fig8" || row.metric.contains("mysql") || row.case.contains("MySQL")
        };
        assert!(figure.rows.iter().filter(mysql).all(|row| row.basis == Basis::Calibrated), "{id}");
    }
}

#[test]
fn threads_and_repetition_change_nothing() {
    let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    assert_eq!(one.install(|| gleaner("table1")), gleaner("table1"));
}

#[test]
fn an_unknown_identifier_is_told_which_there_are() {
    let error = reproduce("gleaner:fig6", &SMOKE).unwrap_err();
    assert_eq!(error, ReproduceError::Unknown("gleaner:fig6".to_owned()));
    assert!(IDS.iter().all(|id| error.to_string().contains(id)), "{error}");
}
