//! Who belongs to the group, who may observe it, and what is left of an observer that was killed.

mod support;

use gleaner_model::Window;
use gleaner_observe::{Observer, ObserverChoice, ObserverConfig};
use libbpf_rs::query::ProgInfoIter;
use std::time::Duration;
use support::{Player, alone, bpf_expected, is_root, play};

#[test]
fn player() {
    play();
}

/// Both observers, where BPF can be expected.
fn choices() -> Vec<ObserverChoice> {
    let mut choices = vec![ObserverChoice::Procfs];
    if bpf_expected() {
        choices.push(ObserverChoice::Bpf);
    }
    choices
}

/// Lets `player` play under `choice`; returns its window, its threads and itself.
fn observe(choice: ObserverChoice, start: impl FnOnce() -> Player) -> (Window, Vec<i32>, Player) {
    let mut observer = Observer::new(choice, &ObserverConfig::default()).unwrap().0;
    let mut player = start();
    observer.adopted(player.pid());
    observer.start(&[]).unwrap();
    player.go();
    player.wait_done();
    std::thread::sleep(Duration::from_millis(50));
    let window = observer.window(&[]).unwrap();
    let mut threads = observer.threads();
    threads.sort_unstable();
    (window, threads, player)
}

#[test]
fn children_and_orphans_belong_to_the_group() {
    let _turn = alone();
    // Orphans come to the owner, as they do in gleaner.
    // SAFETY: sets an attribute of this process and touches no memory.
    unsafe { assert_eq!(libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1), 0) };
    for choice in choices() {
        let script = "sleep 600 > /dev/null & (sleep 600 > /dev/null &)";
        let (window, threads, player) = observe(choice, || Player::shell(script));
        assert_eq!((window.group.threads, threads.len()), (3, 3), "{choice:?}: {threads:?}");
        assert!(threads.contains(&player.pid()));
        let sleepers: Vec<i32> = threads.into_iter().filter(|tid| *tid != player.pid()).collect();
        player.finish();
        // They would be managed by the next observer. Since their parents have ended they are this process's children.
        for pid in sleepers {
            // SAFETY: a signal to a process that this test started, and waits for only then; no memory is passed.
            unsafe {
                libc::kill(pid, libc::SIGKILL);
                libc::waitpid(pid, std::ptr::null_mut(), 0);
            }
        }
    }
}

#[test]
fn groups_come_and_go_and_each_has_its_own_window() {
    let _turn = alone();
    choices().into_iter().for_each(groups_come_and_go);
}

fn groups_come_and_go(choice: ObserverChoice) {
    let (busy, idle) = (Player::shell("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"), Player::shell("sleep 0.1"));
    let config = ObserverConfig { groups_max: 2, ..ObserverConfig::default() };
    let mut observer = Observer::new(choice, &config).unwrap().0;
    observer.remove_group(0);
    observer.start(&[]).unwrap();
    assert!(observer.windows(&[]).unwrap().is_empty() && observer.window(&[]).is_err());
    assert!(observer.add_group(&[idle.pid()], None) && observer.add_group(&[busy.pid()], None));
    let mut players = [idle, busy];
    players.iter_mut().for_each(Player::go);
    for player in &mut players {
        player.wait_done();
    }
    let windows = observer.windows(&[]).unwrap();
    let [of_idle, of_busy] = &windows[..] else { panic!("{windows:?}") };
    assert_eq!((of_idle.group.threads, of_busy.group.threads), (1, 1));
    assert!(of_busy.group.cpu_time > of_idle.group.cpu_time, "{windows:?}");
    assert_eq!(of_busy.group.new_threads, 0, "it ran already");
    let of_machine = |window: &Window| window.vcpus.iter().map(|vcpu| (vcpu.busy, vcpu.halted)).collect::<Vec<_>>();
    assert_eq!((of_machine(of_idle), of_idle.at), (of_machine(of_busy), of_busy.at));
    observer.remove_group(0);
    let [left] = &observer.windows(&[]).unwrap()[..] else { panic!("one is left") };
    assert_eq!(left.group.threads, 1);
    assert_eq!(observer.threads(), [players[1].pid()]);
    players.into_iter().for_each(Player::finish);
}

/// The kernel answers a read of `children` a page at a time: some 600 ids.
#[test]
fn a_thousand_children_of_one_process_belong_to_the_group() {
    let _turn = alone();
    for choice in choices() {
        let (window, threads, player) = observe(choice, || Player::start("children:1000"));
        // The player's own threads, of which the test harness may have two.
        assert!((1001..=1003).contains(&threads.len()), "{choice:?}: {}", threads.len());
        assert_eq!(window.group.threads, threads.len() as u64, "{choice:?}");
        player.finish();
    }
}

#[test]
fn a_thread_that_calls_exec_becomes_its_process() {
    let _turn = alone();
    for choice in choices() {
        let (window, threads, player) = observe(choice, || Player::start("exec"));
        assert_eq!((window.group.threads, threads), (1, vec![player.pid()]), "{choice:?}");
        assert!(window.group.execs.is_none_or(|execs| execs == 1), "{choice:?}: {:?}", window.group.execs);
        // An entry that another thread left behind would make it wrap.
        assert!(window.group.cpu_time.0 < 10_000_000_000, "{choice:?}: {}", window.group.cpu_time);
        player.finish();
    }
}

#[test]
fn without_privilege_proc_observes_and_says_why_not_bpf() {
    if !is_root() {
        gleaner_testing::skip!("needs root");
    }
    let _turn = alone();
    let mut player = Player::start_as_nobody("observe");
    player.go();
    let said = player.wait_done();
    assert!(said.starts_with("Procfs no permission to load BPF programs"), "{said}");
    assert!(said.contains("run as root"), "{said}");
    player.finish();
}

/// The BPF programs that a process holds attached, by the kernel's own listing of its descriptors.
fn programs_of(pid: i32) -> Vec<u32> {
    let texts = std::fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap().flatten();
    let texts = texts.filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
    let linked = texts.filter(|text| text.contains("link_id:"));
    linked.filter_map(|text| text.lines().find_map(|line| line.strip_prefix("prog_id:")?.trim().parse().ok())).collect()
}

#[test]
fn nothing_stays_in_the_kernel_when_the_observer_is_killed() {
    if !bpf_expected() {
        return;
    }
    let _turn = alone();
    let mut player = Player::start("observe");
    player.go();
    player.wait_done();
    let held = programs_of(player.pid());
    assert!(held.len() >= 4, "{held:?}");
    player.kill();
    let left = || ProgInfoIter::default().filter(|program| held.contains(&program.id)).count();
    // The kernel frees programs after a grace period.
    for _ in 0..1_200 {
        if left() == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{} of {held:?} are still loaded", left());
}

#[test]
fn bpf_or_nothing_fails_where_it_is_refused() {
    let root = gleaner_observe::ProcRoot::below(std::path::Path::new("/nonexistent"));
    let config = ObserverConfig { root, ..ObserverConfig::default() };
    let error = Observer::new(ObserverChoice::Bpf, &config).unwrap_err();
    assert!(error.to_string().contains("/nonexistent/sys/kernel/btf/vmlinux"), "{error}");
}
