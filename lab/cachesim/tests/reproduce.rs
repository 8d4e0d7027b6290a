//! The reproduction of the paper's figures: one mix at a time, over as little as runs at all.

use gleaner_cachesim::reproduce::programs::{MIXES, PROGRAMS};
use gleaner_cachesim::reproduce::{Extent, Figure, Progress, Reproduction, Source, reproduce};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

fn run(figure: Figure, mixes: &[u32], source: &Source, jobs: usize) -> Result<Reproduction, String> {
    let extent = Extent { quanta: 1, mixes: mixes.to_vec() };
    reproduce(figure, &extent, source, jobs, &()).map_err(|error| error.to_string())
}

fn value(found: &Reproduction, case: &str, metric: &str) -> f64 {
    let row = found.rows.iter().find(|row| row.case == case && row.metric == metric);
    row.unwrap_or_else(|| panic!("no {case} {metric}")).simulated.unwrap()
}

#[test]
fn friendly_beside_thrashing_suffers_at_1_ms_and_each_remedy_helps() {
    let found = run(Figure::Ten, &[13], &Source::default(), 0).unwrap();
    let cpi = |technique: &str| value(&found, "mix-13 A bzip2", &format!("{technique} cpi_ratio"));
    assert!(cpi("1ms") > 1.2, "{}", cpi("1ms"));
    for technique in ["prefetch", "DIP", "DIP+prefetch", "SIP-best"] {
        assert!(cpi(technique) < 1.0 + (cpi("1ms") - 1.0) / 2.0, "{technique}: {}", cpi(technique));
    }
    // One mix says nothing about types.
    assert!(found.rows.iter().all(|row| row.agrees.is_none()));
    assert!(found.notes.iter().any(|note| note.contains("smoke run")), "{:?}", found.notes);
}

#[test]
fn rows_do_not_depend_on_how_many_run_at_a_time() {
    #[derive(Default)]
    struct Count(AtomicU64, AtomicU64);
    impl Progress for Count {
        fn planned(&self, simulations: u64) {
            self.0.fetch_add(simulations, Ordering::Relaxed);
        }
        fn done(&self) {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }
    let extent = Extent { quanta: 1, mixes: vec![17, 7] };
    let count = Count::default();
    let alone = reproduce(Figure::Eight, &extent, &Source::default(), 1, &count).unwrap();
    assert_eq!((count.0.into_inner(), count.1.into_inner()), (4, 4));
    assert_eq!(reproduce(Figure::Eight, &extent, &Source::default(), 3, &()).unwrap(), alone);
}

/// A program that goes round some lines, as a recording.
fn record(folder: &Path, name: &str, lines: u64) {
    let file = File::create(folder.join(format!("{name}.lackey.zst"))).unwrap();
    let mut recording = zstd::Encoder::new(file, 1).unwrap().auto_finish();
    for turn in 0..4 * lines {
        recording.write_all("I  401000,4\n".repeat(40).as_bytes()).unwrap();
        writeln!(recording, " L {:x},8", 0x1000_0000 + turn % lines * 64).unwrap();
    }
}

#[test]
fn recordings_stand_for_programs_and_mixes_without_are_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let source = Source::new(Some(folder.path().to_owned()));
    let said = run(Figure::Eight, &[12], &source, 0).unwrap_err();
    assert!(said.contains("no mix to run") && said.contains("cc1.lackey.zst"), "{said}");
    record(folder.path(), "sjeng", 1_000);
    record(folder.path(), "libquantum", 60_000);
    let found = run(Figure::Eight, &[12, 7], &source, 0).unwrap();
    let cpi = |case: &str| value(&found, case, "1ms cpi");
    assert!(cpi("mix-7 B libquantum") > 2.0 * cpi("mix-7 A sjeng"));
    assert!(found.rows.iter().all(|row| !row.case.starts_with("mix-12")));
    assert!(
        found
            .notes
            .iter()
            .any(|note| note.contains("left out for want of recordings: 12;") && note.contains("cc1.lackey.zst"))
    );
}

#[test]
fn bad_input_is_named() {
    let said = run(Figure::Ten, &[3, 18], &Source::default(), 1).unwrap_err();
    assert!(said.contains("no mix 18") && said.contains("1 to 17"), "{said}");
    let folder = tempfile::tempdir().unwrap();
    for name in ["sjeng", "libquantum"] {
        std::fs::write(folder.path().join(format!("{name}.lackey.zst")), b"no recording").unwrap();
    }
    let said = run(Figure::Eight, &[7], &Source::new(Some(folder.path().to_owned())), 1).unwrap_err();
    assert!(said.contains(".lackey.zst"), "{said}");
}

#[test]
fn every_figure_has_a_name_and_every_program_a_mix() {
    let ids: Vec<&str> = Figure::ALL.map(Figure::id).to_vec();
    assert_eq!(ids, ["micro:fig7", "micro:fig8", "micro:fig10", "micro:fig11", "micro:fig12"]);
    for program in PROGRAMS {
        assert!(MIXES.iter().any(|mix| mix.programs.contains(&program.name)), "{}", program.name);
    }
}
