//! The last lines of `make test`: how many tests there were, who passed only when tried again, and who was skipped for
//! what.

use std::collections::BTreeMap;
use std::fmt;

/// One line of the file of skips: the test, and why.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Skip {
    /// Binary and name.
    pub test: String,
    /// In its own words.
    pub reason: String,
}

impl Skip {
    /// What is counted: the reason up to the first colon.
    pub fn kind(&self) -> &str {
        self.reason.split(':').next().unwrap_or_default().trim()
    }
}

/// The lines of a file of skips. A test that was tried twice is one.
pub fn skips(text: &str) -> Vec<Skip> {
    let mut found: Vec<Skip> = text.lines().filter_map(parse).collect();
    found.sort();
    found.dedup_by(|a, b| a.test == b.test);
    found
}

fn parse(line: &str) -> Option<Skip> {
    let (test, reason) = line.split_once('\t')?;
    Some(Skip { test: test.trim().to_owned(), reason: reason.trim().to_owned() })
}

/// Skips that are not in the list of those that are allowed: there, a line is a test, a tab and the kind of reason; `#`
/// begins a comment.
pub fn not_allowed<'a>(skips: &'a [Skip], allowed: &str) -> Vec<&'a Skip> {
    let allowed: Vec<Skip> = allowed.lines().filter(|line| !line.starts_with('#')).filter_map(parse).collect();
    let is_allowed = |skip: &Skip| allowed.iter().any(|one| one.test == skip.test && one.reason == skip.kind());
    skips.iter().filter(|skip| !is_allowed(skip)).collect()
}

/// What nextest's JUnit file says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tests {
    /// How many there were.
    pub run: usize,
    /// Those that failed, however often they were tried.
    pub failed: Vec<String>,
    /// Those that passed only when tried again.
    pub flaky: Vec<String>,
    /// Seconds that each took, the longest first.
    pub seconds: Vec<(f64, String)>,
    /// Seconds of all, from the first to the last.
    pub total_s: f64,
}

/// Reads nextest's JUnit file.
///
/// # Errors
/// Where it is no XML.
pub fn tests(junit: &str) -> Result<Tests, roxmltree::Error> {
    let document = roxmltree::Document::parse(junit)?;
    let number = |node: roxmltree::Node, name| node.attribute(name).and_then(|text| text.parse::<f64>().ok());
    let mut tests = Tests { total_s: number(document.root_element(), "time").unwrap_or(0.0), ..Tests::default() };
    for case in document.descendants().filter(|node| node.has_tag_name("testcase")) {
        let name = format!(
            "{} {}",
            case.attribute("classname").unwrap_or_default(),
            case.attribute("name").unwrap_or_default()
        );
        let has = |tags: &[&str]| case.children().any(|child| tags.iter().any(|tag| child.has_tag_name(*tag)));
        if has(&["skipped"]) {
            continue;
        }
        tests.run += 1;
        tests.seconds.push((number(case, "time").unwrap_or(0.0), name.clone()));
        if has(&["failure", "error"]) {
            tests.failed.push(name);
        } else if has(&["flakyFailure", "flakyError"]) {
            tests.flaky.push(name);
        }
    }
    tests.seconds.sort_by(|a, b| b.0.total_cmp(&a.0));
    Ok(tests)
}

/// What is printed.
#[derive(Debug)]
pub struct Summary<'a> {
    /// Where there was nextest.
    pub tests: Option<&'a Tests>,
    /// All of them.
    pub skips: &'a [Skip],
    /// Those among them that fail the whole.
    pub not_allowed: &'a [&'a Skip],
}

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Tests { run, failed, flaky, seconds, total_s }) = self.tests {
            let (minutes, rest_s) = ((total_s / 60.0).floor(), total_s % 60.0);
            writeln!(
                f,
                "tests: {run} in {minutes:.0}:{rest_s:02.0}, {} failed, {} passed only when tried again",
                failed.len(),
                flaky.len()
            )?;
            for (what, names) in [("FAILED", failed), ("FLAKY", flaky)] {
                names.iter().try_for_each(|name| writeln!(f, "  {what} {name}"))?;
            }
            let longest = seconds.iter().take(5).map(|(seconds, name)| format!("{name} {seconds:.0} s"));
            writeln!(f, "  longest: {}", longest.collect::<Vec<_>>().join(", "))?;
        }
        let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
        for skip in self.skips {
            *kinds.entry(skip.kind()).or_default() += 1;
        }
        writeln!(f, "skipped: {}", self.skips.len())?;
        kinds.iter().try_for_each(|(kind, count)| writeln!(f, "  {count:3} {kind}"))?;
        for skip in self.not_allowed {
            writeln!(f, "  NOT ALLOWED here: {} ({})", skip.test, skip.reason)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JUNIT: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="nextest-run" tests="4" failures="1" errors="0" time="125.4">
  <testsuite name="gleaner" tests="4">
    <testcase name="quick" classname="gleaner::run" time="0.2"/>
    <testcase name="late" classname="gleaner::run" time="61.0"><flakyFailure time="2" type="test failure">x</flakyFailure></testcase>
    <testcase name="wrong" classname="gleaner::run" time="3"><failure type="test failure"/><rerunFailure/></testcase>
    <testcase name="left out" classname="gleaner::run" time="0"><skipped/></testcase>
  </testsuite>
</testsuites>"#;

    #[test]
    fn who_passed_only_when_tried_again_is_named() {
        let tests = tests(JUNIT).unwrap();
        assert_eq!((tests.run, &tests.flaky[..]), (3, &["gleaner::run late".to_owned()][..]));
        assert_eq!(tests.failed, ["gleaner::run wrong"]);
        let text = Summary { tests: Some(&tests), skips: &[], not_allowed: &[] }.to_string();
        assert!(text.starts_with("tests: 3 in 2:05, 1 failed, 1 passed only when tried again\n"), "{text}");
        assert!(text.contains("\n  FLAKY gleaner::run late\n") && text.contains("late 61 s"), "{text}");
        assert!(tests_of("no xml").is_err());
    }

    fn tests_of(text: &str) -> Result<Tests, roxmltree::Error> {
        super::tests(text)
    }

    #[test]
    fn skips_are_counted_by_reason_and_compared_with_those_that_are_allowed() {
        let text = "a::b one\tneeds root\nc two\tneeds resctrl: none here\na::b one\tneeds root\nc three\tneeds root\n";
        let all = skips(text);
        assert_eq!(all.len(), 3, "one that was tried twice is one");
        // For another reason, or another test: not allowed.
        let allowed = "# comment\na::b one\tneeds root\nc two\tneeds resctrl\nc three\tneeds FUSE\n";
        let wrong = not_allowed(&all, allowed);
        assert_eq!(wrong.iter().map(|skip| &*skip.test).collect::<Vec<_>>(), ["c three"]);
        let text = Summary { tests: None, skips: &all, not_allowed: &wrong }.to_string();
        let expected = "skipped: 3\n    1 needs resctrl\n    2 needs root\n  NOT ALLOWED here: c three (needs root)\n";
        assert_eq!(text, expected);
        assert!(not_allowed(&all[..1], allowed).is_empty());
    }
}
