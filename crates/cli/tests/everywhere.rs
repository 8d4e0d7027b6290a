//! What every command takes: colours, and how much is said.

mod common;

use common::terminal::Terminal;
use common::{GLEANER, finish, gleaner, lasting};

const ESCAPE: &str = "\x1b[";

/// A complaint of the parser's, and a failure of a command's own.
const WRONG: [&[&str]; 2] =
    [&["run", "--no-such-option"], &["report", "/no/such/result.json", "-o", "/no/such/page.html"]];

#[test]
fn colours_are_where_they_are_asked_for() {
    let [_, words] = WRONG;
    for (color, no_color, expected) in [
        (None, false, false),
        (Some("auto"), false, false),
        (Some("always"), false, true),
        (Some("always"), true, true),
        (Some("never"), false, false),
    ] {
        let color = color.map(|color| format!("--color={color}"));
        let mut command = gleaner(color.iter().map(String::as_str).chain(words.iter().copied()));
        command.env_remove("CLICOLOR_FORCE").env_remove("NO_COLOR").envs(no_color.then_some(("NO_COLOR", "1")));
        let said = finish(&mut command).with_status(2);
        assert_eq!(said.stderr.contains(ESCAPE), expected, "{color:?}, NO_COLOR {no_color}: {said:#?}");
    }
}

#[test]
fn a_terminal_has_colours_unless_no_color_is_set() {
    for words in WRONG.map(|words| words.join(" ")) {
        for (set, expected) in [("TERM=xterm", true), ("TERM=xterm NO_COLOR=1", false), ("TERM=dumb", false)] {
            let mut terminal = Terminal::open();
            terminal.type_in(&format!("unset NO_COLOR CI CLICOLOR_FORCE; {set} {GLEANER} {words}; echo done:$?:\n"));
            assert_eq!(terminal.number_after("done:"), 2, "{}", terminal.shown());
            assert_eq!(terminal.shown().contains(ESCAPE), expected, "{set}: {:?}", terminal.shown());
        }
    }
}

#[test]
fn quiet_leaves_json_and_errors() {
    let work = ["workload", "independent", "--threads", "1", "--items", "1"];
    let loud = finish(&mut gleaner(work)).with_status(0);
    assert!(!loud.stdout.is_empty(), "{loud:#?}");
    for quiet in ["-q", "--quiet"] {
        let said = finish(&mut gleaner(work.iter().chain(&[quiet]))).with_status(0);
        assert_eq!((&*said.stdout, &*said.stderr), ("", ""), "{quiet}");
    }
    let json = finish(&mut gleaner(work.iter().chain(&["-q", "--json"]))).with_status(0);
    assert!(json.stdout.contains("gleaner.workload/1") && json.stderr.is_empty(), "{json:#?}");
    finish(&mut gleaner(["-q", "report", "/no/such/result.json", "-o", "/no/such/page.html"]))
        .with_status(2)
        .naming(&["/no/such/result.json"]);
}

#[test]
fn verbose_says_what_happens_inside() {
    let run = ["run", "--retain-for", "1ms", "--policy", "retain"];
    let said = |more: &[&str]| {
        let words = [&run[..], more, &["--", "sleep"]].concat();
        lasting(|seconds| finish(gleaner(&words).arg(seconds))).with_status(0).stderr
    };
    assert!(!said(&[]).contains("DEBUG"));
    assert!(said(&["-vv"]).contains("DEBUG"));
}

#[test]
fn the_version_names_the_commit_it_was_built_from() {
    let said = finish(&mut gleaner(["--version"])).with_status(0);
    let commit = said.stdout.split_once("(commit ").and_then(|(_, rest)| rest.strip_suffix(")\n")).expect("a commit");
    let git = std::process::Command::new("git").args(["log", "-1", "--format=%H"]).output();
    let head = git.ok().filter(|found| found.status.success()).map(|found| String::from_utf8(found.stdout).unwrap());
    // Somebody may have named another one, or built this without git.
    if let (None, Some(head)) = (std::env::var_os("GLEANER_COMMIT"), head) {
        assert!(commit == "unknown" || (commit.len() == 12 && head.starts_with(commit)), "{commit} of {head}");
    }
    finish(&mut gleaner(["-V"])).with_status(0).saying(&format!("gleaner {}\n", env!("CARGO_PKG_VERSION")));
}
