//! `gleaner verify`: does the machine have what the daemon set; if not, who changed it.

use gleaner_act::{SetValue, list_journals};
use gleaner_report::{VerifiedFile, VerifyReport};
use std::fs;
use std::path::Path;

/// Looks at each file that was set. `state_dir` has the journals of every Gleaner.
pub(crate) fn verify(set: &[SetValue], state_dir: &Path) -> VerifyReport {
    let files: Vec<VerifiedFile> = set.iter().map(|value| file(value, state_dir)).collect();
    let as_set = files.iter().all(|file| file.as_set);
    VerifyReport { schema: VerifyReport::SCHEMA.to_owned(), as_set, files }
}

fn file(set: &SetValue, state_dir: &Path) -> VerifiedFile {
    let found = set.found();
    let as_set = found.as_ref().is_some_and(|found| set.one_of.contains(found));
    let path = set.path.display().to_string();
    let changed_by = (!as_set).then(|| who(&path, state_dir));
    VerifiedFile { path, expected: set.one_of.clone(), found, as_set, changed_by }
}

/// Whose journal names the file beside our own; the kernel does not say who wrote it.
fn who(path: &str, state_dir: &Path) -> String {
    let own = format!("{}-", std::process::id());
    let name = |journal: &Path| journal.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let others =
        list_journals(state_dir).unwrap_or_default().into_iter().filter(|other| !name(other).starts_with(&own));
    let mut names_it = others.filter(|other| fs::read_to_string(other).is_ok_and(|text| text.contains(path)));
    match names_it.next() {
        Some(other) => format!("another Gleaner, process {}", name(&other).split('-').next().unwrap_or("?")),
        None => "somebody other than Gleaner".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_somebody_changed_is_named_with_what_it_should_hold() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let set = |path, one_of: &[&str]| SetValue { path, one_of: one_of.iter().map(ToString::to_string).collect() };
        let all = [
            set(file("a", "50000\n"), &["50000"]),
            set(file("b", "n/a\n"), &["0", "n/a"]),
            set(file("c", "7\n"), &["0"]),
            set(folder.path().join("d"), &["0"]),
        ];
        let report = verify(&all[..2], Path::new("/no/such/folder"));
        assert!(report.as_set && report.files.iter().all(|file| file.changed_by.is_none()), "{report:?}");
        let report = verify(&all, Path::new("/no/such/folder"));
        let differs: Vec<bool> = report.files.iter().map(|file| !file.as_set).collect();
        assert_eq!((report.as_set, &differs[..]), (false, &[false, false, true, true][..]));
        assert_eq!(report.files[2].changed_by.as_deref(), Some("somebody other than Gleaner"));
    }
}
