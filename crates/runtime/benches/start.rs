//! What beginning beside a program takes, by phase, on this machine's vCPUs.
//!
//! `cargo bench -p gleaner-runtime --bench start [-- --rounds N]`, as root for BPF. The program runs meanwhile: it
//! waits for none of this, but shares the CPUs with it.

#![allow(missing_docs, reason = "a benchmark")]

use gleaner_act::{CgroupHierarchies, CgroupRoots, IdleGroup};
use gleaner_decide::guest::GuestParams;
use gleaner_model::{CpuSet, Policy, RetainMeans};
use gleaner_observe::{Observer, ObserverChoice, ObserverConfig, ProcRoot};
use gleaner_runtime::{Config, Event, Opening, Runtime, Session, guard, open_one, start_yielding};
use gleaner_settings::{GroupSettings, Profile, RetainChoice};
use gleaner_sys::usable_cpus;
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
    let hierarchies = CgroupHierarchies::find(&CgroupRoots::default());
    let params = GuestParams::default();
    for means in RetainMeans::ALL {
        let opening = Opening { vcpus, params: &params, hierarchies: &hierarchies, observer: None };
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
