//! A skipped test is noted: by this binary itself, run once more for the purpose.

use gleaner_testing::{SKIPS_VARIABLE, skip};
use std::process::Command;

const CHILD: &str = "GLEANER_TEST_SKIP";

/// Skipped where it is asked to be; otherwise nothing.
#[test]
fn one_that_is_skipped() {
    if std::env::var_os(CHILD).is_some() {
        skip!("needs {}: a\nreason of two lines", "nothing");
    }
}

#[test]
fn a_skip_is_a_line_with_the_test_and_the_reason() {
    for nextest in [None, Some("the::binary")] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("skips");
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "one_that_is_skipped"]).env(CHILD, "1").env(SKIPS_VARIABLE, &file);
        command.env_remove("NEXTEST_BINARY_ID").env_remove("NEXTEST_TEST_NAME");
        if let Some(binary) = nextest {
            command.env("NEXTEST_BINARY_ID", binary).env("NEXTEST_TEST_NAME", "one_that_is_skipped");
        }
        for _ in 0..2 {
            assert!(command.output().unwrap().status.success());
        }
        let line = format!("{} one_that_is_skipped\tneeds nothing: a reason of two lines\n", nextest.unwrap_or("skip"));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), line.repeat(2));
    }
}
