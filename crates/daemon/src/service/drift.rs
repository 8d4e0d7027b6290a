//! Drift: what the daemon has set in the kernel's files, and somebody else has changed since.

use super::Service;
use crate::verify::verify;
use gleaner_act::{SetValue, default_state_dir};
use gleaner_report::VerifiedFile;
use std::path::Path;

/// What was found at the last look.
#[derive(Debug, Default)]
pub(super) struct Drift(Vec<VerifiedFile>);

impl Drift {
    /// Files that hold something else.
    pub(super) fn differ(&self) -> &[VerifiedFile] {
        &self.0
    }

    /// Looks again. What is new, a line each.
    fn look(&mut self, set: &[SetValue], state_dir: &Path) -> Vec<String> {
        let all = verify(set, state_dir).files;
        let is_new =
            |file: &&VerifiedFile| !self.0.iter().any(|known| (&known.path, &known.found) == (&file.path, &file.found));
        let differs = all.iter().filter(|file| !file.as_set);
        let mut news: Vec<String> = differs.clone().filter(is_new).map(VerifiedFile::difference).collect();
        let again = |file: &&VerifiedFile| file.as_set && self.0.iter().any(|known| known.path == file.path);
        news.extend(all.iter().filter(again).map(|file| format!("{}: as the daemon set it again", file.path)));
        self.0 = differs.cloned().collect();
        news
    }

    /// What is left as others set it, a line each.
    fn stays(&self) -> impl Iterator<Item = String> + '_ {
        let value = |file: &VerifiedFile| file.found.clone().unwrap_or_else(|| "as it is".to_owned());
        self.0.iter().map(move |file| format!("{} stays {}: somebody else set it", file.path, value(file)))
    }
}

impl Service {
    pub(super) fn look_for_drift(&mut self) {
        for line in self.drift.look(&self.runtime.set_values(), &default_state_dir()) {
            (self.say)(&format!("gleaner: {line}"));
        }
    }

    /// Before everything is undone.
    pub(super) fn say_what_stays(&mut self) {
        self.look_for_drift();
        self.drift.stays().for_each(|line| (self.say)(&format!("gleaner: {line}")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_change_is_said_once_and_what_is_theirs_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("guest_halt_poll_ns");
        let set = [SetValue { path: path.clone(), one_of: vec!["200000".into()] }];
        let mut drift = Drift::default();
        let mut look = |text: &str| {
            fs::write(&path, text).unwrap();
            (drift.look(&set, Path::new("/no/such/folder")), drift.stays().collect::<Vec<String>>())
        };
        assert_eq!(look("200000"), (Vec::new(), Vec::new()));
        let (news, stays) = look("0");
        assert_eq!((news.len(), stays.len()), (1, 1));
        assert!(news[0].contains(": 0, and not 200000; changed by somebody other than Gleaner"), "{news:?}");
        assert!(stays[0].ends_with(" stays 0: somebody else set it"), "{stays:?}");
        assert_eq!(look("0").0, Vec::<String>::new(), "said");
        assert_eq!(look("5").0.len(), 1, "another value is news");
        let (news, stays) = look("200000");
        assert!(news[0].ends_with("as the daemon set it again") && stays.is_empty(), "{news:?} {stays:?}");
        assert_eq!(look("200000").0, Vec::<String>::new());
    }
}
