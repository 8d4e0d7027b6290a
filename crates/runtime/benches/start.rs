//! What beginning beside a program takes, by phase, on this machine's vCPUs; then what of it needs no kernel, by
//! fixtures of 2, 16 and 256.
//!
//! `cargo bench -p gleaner-runtime --bench start [-- --rounds N]`, as root for BPF. The program runs meanwhile: it
//! waits for none of this, but shares the CPUs with it. A fixture's files lie in memory, which makes them cheaper to
//! read than the kernel's.

use gleaner_act::IdleGroup;
use gleaner_decide::guest::{GuestParams, GuestPolicy, GuestSetup};
use gleaner_model::{CpuSet, Policy, RetainMeans};
use gleaner_observe::{Observer, ObserverChoice, ObserverConfig, ProcRoot};
use gleaner_runtime::{Config, Event, Opening, Runtime, Session, guard, open_one, start_yielding};
use gleaner_settings::{GroupSettings, Profile, RetainChoice};
use gleaner_sys::{topology, usable_cpus};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Milliseconds of each round, by phase, in the order in which phases came first.
#[derive(Default)]
struct Phases(Vec<(String, Vec<f64>)>);

impl Phases {
    fn time<T>(&mut self, name: &str, work: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let done = work();
        let ms = began.elapsed().as_secs_f64() * 1e3;
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, all)) => all.push(ms),
            None => self.0.push((name.to_owned(), vec![ms])),
        }
        done
    }
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    // A session's guardian is this binary too.
    if let Some(journal) = words.iter().position(|word| word == "guardian").and_then(|at| words.get(at + 1)) {
        guard(journal.as_ref()).expect("it guards");
        return;
    }
    let rounds = words.iter().position(|word| word == "--rounds").and_then(|at| words.get(at + 1)?.parse().ok());
    // `cargo test` runs benches too, with --test: then once.
    let rounds = if words.iter().any(|word| word == "--bench") { rounds.unwrap_or(20) } else { 1 };
    let vcpus = usable_cpus(&ProcRoot::default());
    let mut phases = Phases::default();
    for _ in 0..rounds {
        parts(&mut phases, &vcpus);
        for (name, config) in configs() {
            whole(&mut phases, name, &config, &vcpus);
        }
    }
    for vcpus in [2, 16, 256] {
        fixture(&mut phases, vcpus, rounds);
    }
    println!("{} vCPUs, {rounds} rounds, ms:", vcpus.len());
    println!("{:44} {:>8} {:>8}", "phase", "median", "most");
    for (name, mut all) in phases.0 {
        all.sort_by(f64::total_cmp);
        println!("{name:44} {:8.2} {:8.2}", all[all.len() / 2], all[all.len() - 1]);
    }
}

/// Each by itself.
fn parts(phases: &mut Phases, vcpus: &CpuSet) {
    let config = ObserverConfig { allowed: Some(vcpus.clone()), ..ObserverConfig::default() };
    for (name, choice) in [("/proc", ObserverChoice::Procfs), ("BPF", ObserverChoice::Bpf)] {
        let opened = phases.time(&format!("observer by {name}: open"), || Observer::new(choice, &config));
        if let Ok((observer, _)) = opened {
            phases.time(&format!("observer by {name}: close"), || drop(observer));
        }
    }
    let Ok(mut session) = phases.time("session: begin", || Session::begin(Arc::new(|_: &Event| {}))) else { return };
    let params = GuestParams::default();
    for means in RetainMeans::ALL {
        let opening = Opening { vcpus, params: &params, observer: None };
        let opened =
            phases.time(&format!("{means}: open, or refused"), || open_one(means, &opening, &mut session.journal));
        phases.time(&format!("{means}: close"), || drop(opened));
    }
    let all = || start_yielding(vcpus, &IdleGroup::none(), &params, |_| None);
    let yields = phases.time("yielding threads: all of them", all);
    phases.time("yielding threads: end", || drop(yields));
    phases.time("session: end", || session.end()).expect("all is undone");
}

/// As `run` does it, beside a program.
fn whole(phases: &mut Phases, name: &str, config: &Config, vcpus: &CpuSet) {
    let mut program = program();
    let pid = i32::try_from(program.id()).unwrap_or(0);
    let prepared =
        phases.time(&format!("{name}: prepare"), || Runtime::prepare(config, vcpus.clone(), Arc::new(|_: &Event| {})));
    if let Ok(mut runtime) = prepared {
        phases.time(&format!("{name}: attach"), || runtime.attach_child(pid));
        std::thread::sleep(Duration::from_millis(100));
        phases.time(&format!("{name}: a window"), || runtime.tick(gleaner_model::Nanos::ZERO));
        phases.time(&format!("{name}: end"), || runtime.end());
    }
    let _ = program.kill();
    let _ = program.wait();
}

/// A made-up machine of so many vCPUs.
fn fixture(phases: &mut Phases, vcpus: u32, rounds: usize) {
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    let folder = folder.expect("a folder");
    let root = ProcRoot::below(folder.path());
    make(&root, vcpus);
    for _ in 0..rounds {
        let mut time = |what: &str, work: &mut dyn FnMut()| phases.time(&format!("{vcpus} made up: {what}"), work);
        let (mut usable, mut lies) = (CpuSet::new(), gleaner_model::Topology::default());
        time("which vCPUs, and what they share", &mut || {
            usable = usable_cpus(&root);
            lies = topology(&root, &usable);
        });
        assert_eq!(usable.len(), vcpus as usize, "all are made up");
        let config = ObserverConfig { root: root.clone(), owner_pid: 1, ..ObserverConfig::default() };
        let mut observer = None;
        time("observer by /proc: open, start", &mut || {
            let (mut opened, _) = Observer::new(ObserverChoice::Procfs, &config).expect("an observer");
            opened.start(&[]).expect("it starts");
            observer = Some(opened);
        });
        let mut policy = None;
        time("policy: set up, begin", &mut || {
            let mut new = GuestPolicy::of(setup(&usable, &lies));
            new.begin();
            policy = Some(new);
        });
        let (mut observer, mut policy) = (observer.expect("it is open"), policy.expect("it is set up"));
        let mut window = None;
        time("first window: look", &mut || window = observer.window(&[]).ok());
        let window = window.expect("it looks");
        time("first window: decide", &mut || drop(policy.step(&window)));
    }
}

fn setup(vcpus: &CpuSet, lies: &gleaner_model::Topology) -> GuestSetup {
    GuestSetup {
        policy: Policy::Full,
        profile: gleaner_model::Profile::Balanced,
        params: GuestParams::default(),
        vcpus: vcpus.clone(),
        means: Some(RetainMeans::Haltpoll),
        timeout: None,
        budget: None,
        topology: lies.clone(),
    }
}

/// Two threads a core, 64 a cache.
fn make(root: &ProcRoot, vcpus: u32) {
    let write = |path: std::path::PathBuf, text: String| {
        std::fs::create_dir_all(path.parent().expect("it has one")).expect("a folder");
        std::fs::write(path, text).expect("a file");
    };
    let cpus = root.sys.join("devices/system/cpu");
    write(cpus.join("online"), format!("0-{}\n", vcpus - 1));
    for cpu in 0..vcpus {
        let folder = cpus.join(format!("cpu{cpu}"));
        let (core, cache) = (cpu / 2 * 2, cpu / 64 * 64);
        write(folder.join("topology/core_cpus_list"), format!("{core}-{}\n", core + 1));
        for (index, level) in ["1", "1", "2", "3"].into_iter().enumerate() {
            let last = if level == "3" { (cache + 63).min(vcpus - 1) } else { core + 1 };
            let first = if level == "3" { cache } else { core };
            write(folder.join(format!("cache/index{index}/level")), format!("{level}\n"));
            write(folder.join(format!("cache/index{index}/shared_cpu_list")), format!("{first}-{last}\n"));
        }
    }
    let of_each: Vec<String> = (0..vcpus).map(|cpu| format!("cpu{cpu} 1 0 0 1 0 0 0 0 0 0\n")).collect();
    let of_each = of_each.concat();
    let rest = "intr 5 0\nctxt 7\nbtime 1\nprocesses 5\nprocs_running 1\n";
    write(root.proc.join("stat"), format!("cpu  1 0 0 1 0 0 0 0 0 0\n{of_each}{rest}"));
    write(root.proc.join("1/task/1/children"), String::new());
}

fn program() -> Child {
    Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().expect("sleep runs")
}

fn configs() -> [(&'static str, Config); 4] {
    let config = |policy, profile, retain| {
        let group = GroupSettings { profile: Some(profile), policy: Some(policy), ..GroupSettings::default() };
        Config { retain, ..Config::of("bench".into(), group) }
    };
    [
        ("observe", config(Policy::Observe, Profile::Balanced, RetainChoice::None)),
        ("full", config(Policy::Full, Profile::Balanced, RetainChoice::Auto)),
        ("full, latency", config(Policy::Full, Profile::Latency, RetainChoice::Auto)),
        ("full, yielding", config(Policy::Full, Profile::Balanced, RetainChoice::Yielding)),
    ]
}
