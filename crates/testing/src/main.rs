//! `gleaner-testing JUNIT SKIPS ALLOWED`: the last lines of `make test`; status 1 where a skip is not allowed.

use gleaner_testing::summary::{Summary, not_allowed, skips, tests};
use std::fs;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [junit, skips_file, allowed] = &arguments[..] else {
        eprintln!("usage: gleaner-testing JUNIT SKIPS ALLOWED");
        return ExitCode::from(2);
    };
    // Without nextest there is no JUnit file, and where nothing was skipped no file of skips.
    let junit = fs::read_to_string(junit).ok().and_then(|text| tests(&text).ok());
    let skipped = skips(&fs::read_to_string(skips_file).unwrap_or_default());
    let Ok(allowed) = fs::read_to_string(allowed).inspect_err(|error| eprintln!("{allowed}: {error}")) else {
        return ExitCode::from(2);
    };
    let wrong = not_allowed(&skipped, &allowed);
    print!("{}", Summary { tests: junit.as_ref(), skips: &skipped, not_allowed: &wrong });
    if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
