use super::*;
use crate::cgroup::RemoveCgroup;
use crate::journal::still_needed;

fn line<T: Change>(change: &T) -> Entry {
    serde_json::from_value(serde_json::json!({ (T::NAME): change })).unwrap()
}

fn choice(tid: i32, start_time: u64, own: &str) -> Entry {
    line(&ThreadAffinity { tid, start_time, own: own.to_owned() })
}

#[test]
fn only_what_an_undo_needs_is_kept() {
    let step = |active: &str| line(&AffinityStep { active: active.to_owned() });
    let other = || line(&RemoveCgroup { path: "/nowhere".into() });
    let all = vec![
        other(),
        step("0-1"),
        choice(1, 1, "0"),
        choice(1, 1, "1"),
        choice(2, 1, "2"),
        choice(3, 1, "2"),
        step("0"),
        step("0-1"),
        choice(4, 1, "2"),
    ];
    let kept = still_needed(all, needed(|tid, _| tid <= 2));
    let expected = vec![
        other(),
        // Superseded, but a child may have inherited it.
        choice(1, 1, "0"),
        choice(1, 1, "1"),
        choice(2, 1, "2"),
        step("0"),
        step("0-1"),
        choice(4, 1, "2"),
    ];
    assert_eq!(kept, expected);
}
