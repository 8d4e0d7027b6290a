use super::*;
use crate::config::Configuration;
use gleaner_decide::guest::{GuestParams, GuestPolicy};
use gleaner_model::{Action, Profile, Reason};
use gleaner_observe::Target;
use gleaner_runtime::GroupId;

fn explanation(policy: Policy) -> Explanation {
    GuestPolicy::new(policy, Profile::Balanced, GuestParams::default(), None, CpuSet::first(2)).explain()
}

fn adopted(profile: &str) -> Adopted {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("c.toml");
    std::fs::write(&file, format!("[group.a]\npid = 1\nprofile = \"{profile}\"\n")).unwrap();
    let entry = Configuration::load(Some(&file)).unwrap().groups.remove(0);
    let target = Target::Process { pid: 1, start_time: 0 };
    Adopted { id: GroupId(1), name: "a".into(), entry, target, roots: vec![1], joined: None, holds: Vec::new() }
}

#[test]
fn each_state_is_said_with_what_would_change_it() {
    let set = |list: &str| list.parse::<CpuSet>().unwrap();
    let untried = explanation(Policy::Retain);
    let base = Explanation { retention_stopped: false, ..untried.clone() };
    let record = TrialRecord {
        at: Nanos(5),
        pays: false,
        reason: Reason::RetentionNoFaster { rate_ratio: 0.9 },
        rates: Vec::new(),
    };
    let (retains, watched) = (adopted("latency"), adopted("observe-only"));
    for (explanation, said, changes) in [
        (Explanation { retaining: set("0-1"), ..base.clone() }, "vCPUs 0-1 kept awake", "more than 15 %"),
        (Explanation { contended: set("1"), ..base.clone() }, "contended (vCPUs 1)", "below 5 %"),
        (untried.clone(), "until a trial", "once there are 50 wake-ups"),
        (
            Explanation { trial: Some(record.clone()), ..untried.clone() },
            "does not pay",
            "30.0s to 600s after the last",
        ),
        (
            Explanation { active: set("1"), turns: Some(TrialRecord { pays: true, ..record.clone() }), ..base.clone() },
            "on vCPU 1: its threads take turns",
            "hand over 2 times as seldom",
        ),
        (
            Explanation {
                active: set("1"),
                retaining: set("1"),
                turns: Some(TrialRecord { pays: true, ..record.clone() }),
                ..base.clone()
            },
            "on vCPU 1, kept awake: its threads take turns",
            "hand over 2 times as seldom",
        ),
        (base.clone(), "too long to bridge", "idle periods of vCPUs 0-1 get shorter"),
    ] {
        let state = state(&explanation, Policy::Retain, false);
        assert!(state.contains(said), "{state}");
        let lines = would_change(&explanation, &retains, false).join("\n");
        assert!(lines.contains(changes), "{lines}");
    }
    assert_eq!(state(&base, Policy::Observe, false), "watched");
    assert!(would_change(&base, &watched, false)[0].contains("observe-only"));
    let dry = Explanation { retaining: set("0"), ..base };
    assert!(state(&dry, Policy::Retain, true).contains("would be kept"));
    assert!(would_change(&dry, &retains, true)[0].contains("--dry-run"));
}

#[test]
fn holds_are_among_the_decisions_and_the_newest_lines_stay() {
    let decision = |at: u64, vcpu, reason| Decision {
        at: Nanos::from_millis(at),
        action: Action::Release { vcpu: VcpuId(vcpu) },
        reason,
    };
    // Trials a minute apart, each of six changes on four vCPUs.
    let trial = |of: u64| {
        (0..24).map(move |n| decision(of * 60_000 + n / 4 * 100, u32::try_from(n % 4).unwrap(), Reason::RetentionTrial))
    };
    let decisions: Vec<Decision> = (0..9).flat_map(trial).collect();
    let at = Nanos::from_secs(500);
    let kept = newest(&decisions, &[ordered(Nanos::from_secs(1), true), ordered(at, true), ordered(at, false)]);
    let lines: Vec<String> = told(&kept).iter().map(ToString::to_string).collect();
    assert_eq!(
        lines.iter().filter(|line| line.starts_with("trial vCPUs 0-3: ")).count(),
        NEWEST_DECISIONS / 24,
        "{lines:#?}"
    );
    let of =
        |action: &str| kept.iter().filter(|decision| decision.action == action).map(|decision| decision.at_ns).max();
    assert_eq!((of("hold"), of("manage")), (Some(at.0), Some(at.0)), "{lines:#?}");
    let single = |n: u64| decision(n * 20_000, 0, Reason::ContentionOver);
    assert_eq!(newest(&(0..90).map(single).collect::<Vec<_>>(), &[]).len(), NEWEST);
    let mut group = adopted("latency");
    (0..100).for_each(|n| group.add_hold(ordered(Nanos(n), true)));
    assert!(group.holds.len() < 100 && group.holds.last().unwrap().at_ns == 99);
}

#[test]
fn a_trial_is_its_median_with_its_range() {
    let record = TrialRecord {
        at: Nanos(5),
        pays: true,
        reason: Reason::RetentionFaster { rate_ratio: 1.3 },
        rates: vec![1.4, 1.2, 1.3, 1.1],
    };
    let told = trial(&record, Some(Nanos(7)));
    assert_eq!((told.rate_ratio, told.rate_range, told.pairs), (Some(1.25), Some([1.1, 1.4]), 4));
    assert!(told.is_shown() && told.next_at_ns == Some(7));
    assert_eq!(told.next(3), Some("in 4ns or later".into()));
    assert_eq!(told.next(9), Some("as soon as it is quiet".into()));
    assert_eq!(trial(&TrialRecord { rates: Vec::new(), ..record.clone() }, None).rate_ratio, None);
    let busy = trial(&TrialRecord { rates: vec![0.82, 1.07, 1.0, 1.0], ..record }, None);
    assert!(!busy.is_shown() && busy.next(3).is_none(), "a range over 1 shows nothing");
}
