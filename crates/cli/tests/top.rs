//! `gleaner top`, driven in a terminal: what is on the screen, what keys do, and that the terminal is given back.

mod common;

use common::daemon::{Daemon, WATCHED, group};
use common::program::Program;
use common::tmux::Tmux;
use common::{GLEANER, comes_true, finish, gleaner, send};
use std::path::PathBuf;

/// A daemon that watches one program, and a terminal that shows it, by way of a link to its socket.
struct Shown {
    tmux: Tmux,
    daemon: Daemon,
    program: Program,
    folder: tempfile::TempDir,
}

impl Shown {
    /// `None` where there is no tmux.
    fn start(environment: &[(&str, &str)], more: &str) -> Option<Self> {
        let Some(tmux) = Tmux::start(environment) else {
            gleaner_testing::skipped("needs tmux");
            return None;
        };
        let program = Program::start();
        let daemon = Daemon::start(&group("one", &program, WATCHED));
        let shown = Self { tmux, daemon, program, folder: tempfile::tempdir().unwrap() };
        shown.ask(&shown.daemon);
        // What is on the screen before, and how the terminal is set.
        shown.tmux.enter(&format!("stty -g > {}; echo be''fore", shown.file("before")));
        shown.tmux.shows("before");
        shown.tmux.enter(&format!("{GLEANER} top --interval 100ms --socket {} {more}", shown.socket().display()));
        shown.tmux.shows("[one]");
        assert!(shown.tmux.is_taken());
        Some(shown)
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("link")
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// This daemon from now on.
    fn ask(&self, daemon: &Daemon) {
        let _ = std::fs::remove_file(self.socket());
        std::os::unix::fs::symlink(daemon.state().join("gleaner.sock"), self.socket()).unwrap();
    }

    /// The terminal is as it was, and top ended with this status.
    #[track_caller]
    fn is_given_back(&self, status: i32) {
        assert!(comes_true(|| !self.tmux.is_taken()), "{}", self.tmux.screen());
        self.tmux.enter("echo sta''tus=$?");
        self.tmux.shows(&format!("status={status}\n"));
        self.tmux.shows("before");
        self.tmux.enter(&format!("stty -g > {}; echo do''ne", self.file("after")));
        self.tmux.shows("done");
        let setting = |name| std::fs::read_to_string(self.file(name)).unwrap();
        assert_eq!(setting("after"), setting("before"));
    }

    fn ends(self) {
        assert_eq!(self.daemon.ends(), (Some(0), false));
        self.program.ends_well();
    }
}

#[test]
fn groups_appear_are_held_and_released_and_quitting_gives_the_terminal_back() {
    let Some(shown) = Shown::start(&[], "") else { return };
    let Shown { tmux, daemon, program, .. } = &shown;
    tmux.shows("watched");
    tmux.shows("profile observe-only");
    tmux.shows(" all ");
    let another = Program::start();
    std::fs::write(daemon.configuration(), group("one", program, WATCHED) + &group("two", &another, WATCHED)).unwrap();
    daemon.signal(libc::SIGHUP);
    tmux.shows(" two");
    tmux.press(&["Tab"]);
    tmux.shows("[two]");
    let is_held = |n: usize| {
        let said = daemon.asked(&["status", "--json"]).with_status(0).stdout;
        let status: serde_json::Value = serde_json::from_str(&said).unwrap();
        status["groups"][n]["held"] == true
    };
    tmux.press(&["H"]);
    tmux.shows("any other key: no");
    tmux.press(&["y"]);
    tmux.shows("[two (held)]");
    tmux.shows("left alone: held by hand");
    assert!(is_held(1) && !is_held(0));
    tmux.press(&["H"]);
    tmux.shows("any other key: no");
    tmux.press(&["y"]);
    tmux.shows("[two]");
    assert!(!is_held(1));
    tmux.press(&["/", "o", "n"]);
    tmux.shows("/on_");
    tmux.shows("[one]");
    tmux.shows_no("two");
    tmux.press(&["Escape"]);
    tmux.shows("[two]");
    tmux.press(&["p"]);
    tmux.shows("PAUSED");
    another.ends_well();
    tmux.press(&["p"]);
    tmux.shows("waiting (1):  two, for process");
    tmux.shows_no("[two]");
    tmux.press(&["?"]);
    tmux.shows("quit");
    tmux.shows("gleaner explain GROUP");
    tmux.press(&["q"]);
    shown.is_given_back(0);
    shown.ends();
}

#[test]
fn the_terminal_is_given_back_however_it_ends() {
    let Some(shown) = Shown::start(&[], "") else { return };
    let again = || {
        shown.tmux.enter(&format!("clear; echo be''fore; {GLEANER} top --socket {}", shown.socket().display()));
        shown.tmux.shows("[one]");
    };
    shown.tmux.press(&["C-c"]);
    shown.is_given_back(0);
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        again();
        send(shown.tmux.child(), signal);
        shown.is_given_back(128 + signal);
    }
    again();
    shown.tmux.press(&["C-z"]);
    assert!(comes_true(|| !shown.tmux.is_taken()));
    shown.tmux.enter("fg");
    assert!(comes_true(|| shown.tmux.is_taken()));
    shown.tmux.shows("[one]");
    shown.tmux.press(&["q"]);
    shown.is_given_back(0);
    shown.ends();
}

#[test]
fn a_daemon_that_goes_is_told_and_another_is_shown() {
    let Some(mut shown) = Shown::start(&[], "") else { return };
    let program = Program::start();
    let another = Daemon::start(&group("another", &program, WATCHED));
    let first = std::mem::replace(&mut shown.daemon, another);
    assert_eq!(first.ends(), (Some(0), false));
    shown.tmux.shows("No news, asking again: no daemon runs here");
    // What was seen last stays.
    shown.tmux.shows("[one]");
    shown.ask(&shown.daemon);
    shown.tmux.shows("[another]");
    shown.tmux.shows_no("No news");
    shown.tmux.press(&["q"]);
    shown.is_given_back(0);
    shown.ends();
    program.ends_well();
}

#[test]
fn colours_are_left_out_where_they_are_not_wanted() {
    let coloured = |environment: &[(&str, &str)]| {
        let shown = Shown::start(environment, "")?;
        // Bars come with the first windows.
        shown.tmux.shows(" all ");
        let coloured = shown.tmux.coloured();
        shown.tmux.press(&["q"]);
        shown.is_given_back(0);
        shown.ends();
        Some(coloured)
    };
    let Some(with) = coloured(&[]) else { return };
    // 39 is the terminal's own.
    let has_colours = |text: &str| ["[38;5;", "[31m", "[32m", "[33m"].iter().any(|code| text.contains(code));
    assert!(has_colours(&with), "{with:?}");
    let without = coloured(&[("NO_COLOR", "1")]).unwrap();
    assert!(!has_colours(&without), "{without:?}");
}

#[test]
fn without_a_terminal_it_says_what_to_use_instead() {
    let folder = tempfile::tempdir().unwrap();
    let mut top = gleaner(["top", "--socket", folder.path().join("s").to_str().unwrap()]);
    finish(&mut top).with_status(2).naming(&["needs a terminal", "gleaner status", "--once"]);
    finish(top.arg("--once")).with_status(1).naming(&["no daemon runs here"]);
    let Some(tmux) = Tmux::start(&[]) else { gleaner_testing::skip!("needs tmux") };
    tmux.enter(&format!("TERM=dumb {GLEANER} top; echo sta''tus=$?"));
    tmux.shows("TERM=dumb cannot move its cursor");
    tmux.shows("status=2");
    tmux.enter(&format!("clear; {GLEANER} top --socket {}/s; echo sta''tus=$?", folder.path().display()));
    tmux.shows("no daemon runs here");
    tmux.shows("status=1");
    assert!(!tmux.is_taken());
}

#[test]
fn one_screen_is_printed() {
    let program = Program::start();
    let daemon = Daemon::start(&group("one", &program, WATCHED));
    let socket = daemon.state().join("gleaner.sock");
    let mut top = gleaner(["top", "--once", "--socket", socket.to_str().unwrap()]);
    top.env("LC_ALL", "C").env("COLUMNS", "100");
    // Until a window has seen the vCPUs.
    let mut shown = String::new();
    let is_shown = comes_true(|| {
        shown = finish(&mut top).with_status(0).stdout;
        shown.contains("# work")
    });
    assert!(is_shown && shown.contains("[one]") && shown.is_ascii(), "{shown}");
    assert_eq!(daemon.ends(), (Some(0), false));
    program.ends_well();
}
