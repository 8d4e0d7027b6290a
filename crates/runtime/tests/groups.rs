//! Groups that come and go while a runtime runs, whichever observer sees them.

use gleaner_model::{Nanos, Policy, Source};
use gleaner_observe::ProcRoot;
use gleaner_runtime::{Config, Event, Members, Runtime, Warning};
use gleaner_settings::{GroupSettings, ObserverChoice, RetainChoice};
use gleaner_sys::usable_cpus;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn watching(groups_max: usize) -> Config {
    let group = GroupSettings { policy: Some(Policy::Observe), ..GroupSettings::default() };
    Config { retain: RetainChoice::None, groups_max, dry_run: true, ..Config::of("watched".into(), group) }
}

/// A process that computes, and starts others now and then; killed at the end.
struct Busy(Child);

impl Busy {
    fn start() -> Self {
        let script = "while :; do i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done; sleep 0.01; done";
        Self(Command::new("sh").args(["-c", script]).stdin(Stdio::null()).spawn().unwrap())
    }

    fn pid(&self) -> i32 {
        self.0.id().cast_signed()
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// CPU time of each group by now.
fn cpu_times(runtime: &Runtime) -> Vec<Nanos> {
    runtime.snapshot().groups.iter().map(|group| group.totals.cpu_time).collect()
}

fn tick(runtime: &mut Runtime) {
    std::thread::sleep(Duration::from_millis(300));
    runtime.tick(Nanos::ZERO);
}

#[test]
fn time_goes_on_where_there_is_no_group() {
    let vcpus = usable_cpus(&ProcRoot::default());
    let config = Config { observer: ObserverChoice::Procfs, ..watching(2) };
    let mut runtime = Runtime::open(&config, vcpus.clone(), Arc::new(|_: &Event| {})).unwrap();
    tick(&mut runtime);
    let before = runtime.snapshot().at;
    assert!(before >= Nanos::from_millis(300), "{before}");
    let program = Busy::start();
    let members = Members::ProcessTree { root: program.pid() };
    runtime.adopt(&config, &vcpus, members, &[program.pid()]).unwrap();
    tick(&mut runtime);
    let snapshot = runtime.snapshot();
    let managed = snapshot.at - snapshot.groups[0].since;
    assert!(managed >= Nanos::from_millis(300) && managed < snapshot.at, "{managed} of {}", snapshot.at);
}

#[test]
fn more_groups_than_bpf_has_room_for_are_seen_through_proc_and_it_is_said() {
    if !rustix::process::geteuid().is_root() || !std::path::Path::new("/sys/kernel/btf/vmlinux").exists() {
        gleaner_testing::skip!("needs root and a kernel with BTF");
    }
    let said = Arc::new(Mutex::new(Vec::new()));
    let listener = {
        let said = Arc::clone(&said);
        Arc::new(move |event: &Event| said.lock().unwrap().push(event.clone()))
    };
    let config = watching(2);
    let vcpus = usable_cpus(&ProcRoot::default());
    let mut runtime = Runtime::open(&config, vcpus.clone(), listener).unwrap();
    let programs = [Busy::start(), Busy::start(), Busy::start()];
    let mut ids = Vec::new();
    for (program, source) in programs.iter().zip([Source::Bpf, Source::Bpf, Source::Procfs]) {
        runtime.tick(Nanos::ZERO);
        let members = Members::ProcessTree { root: program.pid() };
        ids.extend(runtime.adopt(&config, &vcpus, members, &[program.pid()]));
        let snapshot = runtime.snapshot();
        assert!(snapshot.groups.iter().all(|group| group.source == source), "{:?}", snapshot.groups);
    }
    let told = said.lock().unwrap().clone();
    assert!(told.iter().any(|event| matches!(event, Event::Warned(Warning::TooManyForBpf { .. }))), "{told:?}");
    assert_eq!(ids.len(), 3);
    // Those that BPF saw are seen on, each by itself.
    let before = cpu_times(&runtime);
    tick(&mut runtime);
    let after = cpu_times(&runtime);
    assert!(before.iter().zip(&after).all(|(before, after)| after > before), "{before:?} {after:?}");
    runtime.let_go(ids[0]);
    tick(&mut runtime);
    let rest = cpu_times(&runtime);
    assert!(rest.len() == 2 && rest[0] > after[1] && rest[1] > after[2], "{after:?} {rest:?}");
    assert!(runtime.end().1);
}
