//! Pictures of made-up machines.

use super::*;
use gleaner_report::{
    DecisionRecord, LengthStats, ObservedLengths, StatusGroup, StatusMachine, StatusRecent, StatusReport, StatusTimes,
    StatusTrial, StatusVcpu, StatusVcpuTimes, StatusWaiting, VerifiedFile,
};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent};
use ratatui::style::Color;

const PLAIN: Look = Look { colour: false, unicode: true };
const ASCII: Look = Look { colour: false, unicode: false };

fn picture(app: &App, look: Look, (columns, rows): (u16, u16)) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal.draw(|frame| draw(frame, app, look)).unwrap();
    terminal.backend().buffer().clone()
}

/// With the footer, unlike [`text_of`].
fn text(app: &App, look: Look, size: (u16, u16)) -> String {
    let buffer = picture(app, look, size);
    let rows = buffer.content.chunks(usize::from(size.0));
    let row = |row: &[ratatui::buffer::Cell]| row.iter().map(ratatui::buffer::Cell::symbol).collect::<String>();
    rows.map(|cells| row(cells).trim_end().to_owned() + "\n").collect()
}

fn times(vcpus: u32, observed_ns: u64) -> StatusTimes {
    let of = |vcpu: u32| {
        let stolen = u64::from(vcpu % 3);
        let work = u64::from(vcpu * 13 % 70);
        let awake = (95 - work) / 2;
        let known = |percent: u64| Some(observed_ns / 100 * percent);
        StatusVcpuTimes {
            vcpu,
            busy_ns: known(work),
            retained_ns: known(awake),
            halted_ns: known(100 - work - awake - stolen),
            steal_ns: known(stolen),
        }
    };
    StatusTimes {
        observed_ns,
        idle_entries: Some(observed_ns / 23_000),
        halts: Some(observed_ns / 80_000),
        vcpus: (0..vcpus).map(of).collect(),
    }
}

fn group(name: &str, vcpus: u32) -> StatusGroup {
    let decision = |s: u64, action: &str, vcpu, reason: &str| DecisionRecord {
        at_ns: s * 1_000_000_000,
        action: action.into(),
        vcpu,
        reason: reason.into(),
    };
    let begins = "a trial whether bridging idle periods pays";
    StatusGroup {
        name: name.into(),
        target: format!("cgroup /sys/fs/cgroup/system.slice/{name}.service"),
        profile: "latency".into(),
        policy: "retain".into(),
        since_ns: 2_000_000_000,
        vcpus: vcpus.into(),
        state: format!("vCPUs 0-{} kept awake", vcpus - 1),
        active: (0..vcpus).collect(),
        retaining: (0..vcpus).collect(),
        timeout_ns: Some(200_000),
        cpu_time_ns: 30_000_000_000,
        voluntary_switches: 1_000_000,
        threads_max: Some(6),
        idle_entries: Some(1_000_000),
        lengths: ObservedLengths {
            wake_to_run: Some(LengthStats { mean_ns: 9e3, n: Some(5), p50_ns: Some(8_191), p99_ns: Some(40_959) }),
            ..ObservedLengths::default()
        },
        recent: StatusRecent {
            observed_ns: 1_400_000_000,
            cpu_time_ns: 700_000_000,
            voluntary_switches: 30_000,
            idle_entries: Some(60_000),
            l_comp_ns: Some(11_666.5),
            g_comp_ns: Some(23_333.0),
            l_idle_ns: Some(35_000.0),
        },
        turns: None,
        trial: Some(StatusTrial {
            at_ns: 4_000_000_000,
            pays: true,
            reason: "bridging idle periods pays".into(),
            rate_ratio: Some(1.31),
            rate_range: Some([1.18, 1.4]),
            pairs: 4,
            next_at_ns: Some(34_000_000_000),
        }),
        decisions_count: 40,
        decisions: vec![
            decision(2, "release", Some(0), begins),
            decision(2, "release", Some(1), begins),
            decision(4, "retain", Some(0), "bridging idle periods pays: 1.31 times the rate without"),
            decision(61, "release", Some(1), "the host took 17 % of its time in the last 200ms, above 15 %"),
        ],
        ..StatusGroup::default()
    }
}

fn status(vcpus: u32) -> StatusReport {
    StatusReport {
        version: "0.1.0".into(),
        pid: 4711,
        up_ns: 62_000_000_000,
        machine: StatusMachine {
            hypervisor: Some("KVM".into()),
            kernel: "6.12.38+deb13-amd64".into(),
            vcpus: vcpus.into(),
        },
        observer: "procfs".into(),
        times: times(vcpus, 60_000_000_000),
        recent: times(vcpus, 1_400_000_000),
        window_ns: 100_000_000,
        overhead_cpu_ns: 200_000_000,
        retention: Some("haltpoll".into()),
        retained_ns: 9_000_000_000,
        guard_trips: 1,
        retaining: (0..vcpus)
            .filter(|vcpu| vcpu % 4 != 3)
            .map(|vcpu| StatusVcpu { vcpu, timeout_ns: 200_000 })
            .collect(),
        groups: vec![group("redis", vcpus.min(4)), group("matmul", vcpus.min(4))],
        ..StatusReport::default()
    }
}

/// After a history in which vCPUs were taken away and came back.
fn app(last: &StatusReport) -> App {
    let mut app = App::new(None);
    for n in 0..30 {
        let mut earlier = last.clone();
        earlier.up_ns = last.up_ns - (30 - n) * 1_000_000_000;
        for group in &mut earlier.groups {
            group.active.truncate(if n % 10 < 5 { 4 } else { 2 });
            group.retaining.truncate(usize::try_from(n % 5).unwrap());
        }
        app.show(Box::new(earlier));
    }
    app.show(Box::new(last.clone()));
    app
}

fn press(app: &mut App, text: &str) {
    for letter in text.chars() {
        app.key(KeyEvent::from(KeyCode::Char(letter)));
    }
}

#[test]
fn on_80_by_24() {
    insta::assert_snapshot!(text(&app(&status(4)), PLAIN, (80, 24)));
}

#[test]
fn on_200_by_60() {
    insta::assert_snapshot!(text(&app(&status(4)), PLAIN, (200, 60)));
}

#[test]
fn with_256_vcpus_on_80_by_24() {
    let mut app = app(&status(256));
    insta::assert_snapshot!("with_256_vcpus_on_80_by_24", text(&app, PLAIN, (80, 24)));
    app.key(KeyEvent::from(KeyCode::PageDown));
    let scrolled = text(&app, PLAIN, (80, 24));
    assert!(scrolled.contains("\n  50*"), "{scrolled}");
    // There is no more than the end.
    (0..100).for_each(|_| drop(app.key(KeyEvent::from(KeyCode::PageDown))));
    assert!(text(&app, PLAIN, (80, 24)).contains(" 255 "));
}

#[test]
fn with_256_vcpus_on_200_by_60() {
    let shown = text(&app(&status(256)), PLAIN, (200, 60));
    (0..256).for_each(|vcpu| assert!(shown.contains(&format!(" {vcpu}*")) || shown.contains(&format!(" {vcpu} "))));
    insta::assert_snapshot!(shown);
}

#[test]
fn in_ascii_bars_are_told_apart() {
    let shown = text(&app(&status(4)), ASCII, (80, 24));
    assert!(shown.is_ascii(), "{shown}");
    insta::assert_snapshot!(shown);
}

#[test]
fn without_colours_there_is_none_and_with_them_each_part_has_its_own() {
    let colours = |look| -> std::collections::BTreeSet<String> {
        let buffer = picture(&app(&status(4)), look, (80, 24));
        let used = buffer.content.iter().flat_map(|cell| [cell.fg, cell.bg]);
        used.filter(|colour| *colour != Color::Reset).map(|colour| colour.to_string()).collect()
    };
    assert!(colours(PLAIN).is_empty());
    assert_eq!(colours(Look { colour: true, ..PLAIN }).into_iter().collect::<Vec<_>>(), ["Green", "Red", "Yellow"]);
}

#[test]
fn what_is_not_known_is_said_and_never_0() {
    let mut unknown = status(2);
    unknown.machine.hypervisor = None;
    unknown.retention = None;
    unknown.retaining.clear();
    let recent = &mut unknown.recent;
    (recent.idle_entries, recent.halts) = (None, None);
    // One tells of no steal, one has just come, one has gone.
    recent.vcpus[0].steal_ns = None;
    recent.vcpus[1] = StatusVcpuTimes { vcpu: 1, ..StatusVcpuTimes::default() };
    unknown.times.vcpus.push(StatusVcpuTimes { vcpu: 2, busy_ns: Some(5), ..StatusVcpuTimes::default() });
    unknown.groups = vec![StatusGroup {
        trial: None,
        turns: None,
        lengths: ObservedLengths::default(),
        recent: StatusRecent { observed_ns: 100_000_000, ..StatusRecent::default() },
        decisions: Vec::new(),
        decisions_count: 0,
        retaining: Vec::new(),
        state: "watched".into(),
        ..group("redis", 2)
    }];
    let mut app = App::new(None);
    app.show(Box::new(unknown));
    insta::assert_snapshot!(text(&app, PLAIN, (80, 24)));
}

#[test]
fn a_daemon_without_groups_is_shown() {
    let mut app = App::new(None);
    let recent = StatusTimes { observed_ns: 0, ..StatusTimes::default() };
    let waiting = vec![
        StatusWaiting { name: "web".into(), waits_for: "unit web.service to start".into() },
        StatusWaiting { name: "db".into(), waits_for: "process 7 to be there".into() },
    ];
    let idle =
        StatusReport { groups: Vec::new(), recent, up_ns: 63_000_000_000, waiting: waiting.clone(), ..status(4) };
    app.show(Box::new(StatusReport { waiting: waiting.clone(), ..status(4) }));
    let some = text(&app, PLAIN, (80, 24));
    assert!(some.contains("[redis]") && some.contains("waiting (2):  web, for unit web.service to start"), "{some}");
    app.show(Box::new(idle));
    let shown = text(&app, PLAIN, (80, 24));
    let names = "waiting (2):  web, for unit web.service to start  db, for process 7 to be there";
    assert!(shown.contains(names), "{shown}");
    assert!(
        shown.contains("nobody looks") && shown.contains("Nothing of what the configuration names runs"),
        "{shown}"
    );
}

#[test]
fn a_held_group_a_lost_daemon_a_pause_and_a_filter_are_seen() {
    let mut held = status(4);
    held.groups[0].held = true;
    held.groups[0].state = "left alone: held by hand".into();
    held.warnings = vec!["one".into(), "two".into()];
    let mut app = app(&held);
    assert!(text(&app, PLAIN, (80, 24)).contains("Note: two (and 1 more)"));
    let changed = VerifiedFile {
        path: "/sys/x".into(),
        expected: vec!["7".into()],
        found: Some("0".into()),
        as_set: false,
        changed_by: Some("somebody".into()),
    };
    let mut drifted = held.clone();
    drifted.up_ns += 1;
    drifted.settings_differ = vec![changed.clone(), changed];
    app.show(Box::new(drifted));
    let alert = "Somebody else set /sys/x: 0, and not 7; changed by somebody (and 1 more)";
    assert!(text(&app, PLAIN, (80, 24)).contains(alert));
    app.lose("no daemon runs here".into());
    press(&mut app, "p/red");
    let shown = text(&app, PLAIN, (80, 24));
    for words in
        ["[redis (held)]", "left alone: held", " PAUSED", "No news, asking again: no daemon", "/red_   Enter keeps"]
    {
        assert!(shown.contains(words), "{words:?} is not in {shown}");
    }
    assert!(!shown.contains("matmul"));
    press(&mut app, "x");
    assert!(text(&app, PLAIN, (80, 24)).contains("None of 2 groups has redx in its name"));
}

#[test]
fn a_trial_is_one_line_decisions_fill_the_height_and_scroll() {
    let begins = "a trial whether bridging idle periods pays";
    let decision = |s: u64, action: &str, vcpu, reason: &str| DecisionRecord {
        at_ns: s * 1_000_000_000,
        action: action.into(),
        vcpu,
        reason: reason.into(),
    };
    let mut long = status(4);
    let group = &mut long.groups[0];
    group.decisions =
        (0..6).map(|n| decision(2, if n % 2 == 0 { "release" } else { "retain" }, Some(n / 2), begins)).collect();
    group.decisions.push(decision(3, "hold", None, "somebody ordered it"));
    group.decisions.extend((4..50).map(|at| decision(at, "release", Some(0), "the host took 17 %")));
    let mut app = app(&long);
    let shown = |app: &App| text(app, PLAIN, (80, 60));
    let rows = shown(&app).lines().filter(|line| line.contains("the host took")).count();
    assert!(rows > 35, "{rows}: {}", shown(&app));
    assert!(shown(&app).lines().nth(58).unwrap().contains("the host took"), "to the last row: {}", shown(&app));
    press(&mut app, &"j".repeat(100));
    let end = shown(&app);
    assert!(end.contains("47 newer above") && end.contains("ago  trial vCPUs 0-2: "), "{end}");
    press(&mut app, "k");
    assert!(shown(&app).contains("59s ago  hold: somebody ordered it\n"), "{}", shown(&app));
}

#[test]
fn the_help_has_room_on_80_by_24() {
    let mut app = app(&status(4));
    press(&mut app, "?");
    let shown = text(&app, PLAIN, (80, 24));
    assert!(shown.contains("gleaner explain GROUP"), "{shown}");
    let body = |text: &str| text.lines().skip(3).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(body(&shown), body(&text(&app, PLAIN, (200, 24))), "nothing is cut off");
    insta::assert_snapshot!(shown);
}

#[test]
fn of_200_groups_those_around_the_open_one_have_tabs() {
    let mut many = status(4);
    many.groups = (0..200).map(|n| group(&format!("web/w@{n}"), 4)).collect();
    let mut app = App::new(Some("web/w@100".into()));
    app.show(Box::new(many));
    let shown = text(&app, PLAIN, (80, 24));
    let tabs = shown.lines().find(|line| line.contains("[web/w@100]")).unwrap();
    assert!(tabs.starts_with("< ") && tabs.ends_with("> 200") && tabs.contains(" web/w@101 "), "{tabs:?}");
    assert!(tabs.contains(" web/w@99 ") && tabs.chars().count() <= 80, "{tabs:?}");
}

#[test]
fn of_200_groups_on_256_vcpus_those_that_do_something_have_tabs() {
    let mut many = status(256);
    many.groups = (0..200).map(|n| group(&format!("web/w@{n}"), 256)).collect();
    for (n, group) in many.groups.iter_mut().enumerate().filter(|(n, _)| n % 20 != 0) {
        group.recent.cpu_time_ns = n as u64;
        group.retaining.clear();
    }
    many.groups[40].recent.cpu_time_ns = 5 << 40;
    let mut app = App::new(None);
    app.show(Box::new(many));
    let began = std::time::Instant::now();
    let shown = text(&app, PLAIN, (80, 24));
    let tabs = shown.lines().find(|line| line.contains("[web/w@40]")).unwrap();
    assert!(tabs.starts_with("[web/w@40]") && tabs.contains("190 idle (i)"), "{tabs:?}");
    assert!(tabs.chars().count() <= 80 && shown.contains("decisions ("), "{shown}");
    eprintln!("a picture took {:?}", began.elapsed());
}

#[test]
fn names_cannot_steer_the_terminal() {
    let mut bad = status(2);
    bad.groups[0].name = "a\u{1b}[2Jb\u{202e}c".into();
    let mut app = App::new(None);
    app.show(Box::new(bad));
    let mut buffer = picture(&app, PLAIN, (80, 24));
    crate::screen::defuse(&mut buffer);
    let shown = text_of(&buffer);
    assert!(!shown.contains(['\u{1b}', '\u{202e}']), "{shown:?}");
}

fn cases() -> proptest::prelude::ProptestConfig {
    proptest::prelude::ProptestConfig { cases: 200, failure_persistence: None, ..Default::default() }
}

proptest::proptest! {
    #![proptest_config(cases())]

    /// However small the screen and whatever is pressed, there is a picture.
    #[test]
    fn every_size_has_a_picture(
        size in (1_u16..250, 1_u16..70), vcpus in 1_u32..300, groups in 0_usize..5, keys in "[a-zH?/ ]{0,6}",
        unicode in proptest::bool::ANY
    ) {
        let mut shown = status(vcpus);
        shown.groups = (0..groups).map(|n| group(&format!("g{n}"), vcpus)).collect();
        let mut app = App::new(None);
        app.show(Box::new(shown));
        press(&mut app, &keys);
        drop(picture(&app, Look { colour: true, unicode }, size));
    }
}
