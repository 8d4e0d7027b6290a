//! Groups are looked for on a machine whose processes and cgroups say whatever they like.

use gleaner_observe::{ProcRoot, Selector, Target};
use gleaner_testing::fuzz::{folder, fuzz};
use std::fs;
use std::path::Path;

const STAT: &[u8] = b"10 (redis) S 1 10 10 0 -1 4194560 1 0 0 0 12 3 0 0 20 0 5 0 777 1000 200\n";

#[test]
fn fuzz_what_processes_and_cgroups_say() {
    let folder = folder();
    let root = ProcRoot::below(folder.path());
    let cgroup = root.sys.join("fs/cgroup/system.slice/redis.service");
    fs::create_dir_all(&cgroup).unwrap();
    for pid in ["1", "10", "11"] {
        fs::create_dir_all(root.proc.join(pid).join("task").join(pid)).unwrap();
    }
    let all = [
        Selector::unit("redis").unwrap(),
        Selector::unit("r*").unwrap(),
        Selector::Pid(10),
        Selector::Program("redis".to_owned()),
    ];
    let seeds: [&[u8]; 3] = [STAT, b"redis\n", b"10\n11\n"];
    let mut found = 0;
    fuzz("groups", &seeds, |input| {
        let process = root.proc.join("10");
        for (file, own) in [("stat", STAT), ("comm", b"redis\n"), ("status", b"Cpus_allowed_list:\t0-1\n")] {
            fs::write(process.join(file), if input.len() % 3 == 0 { own } else { input }).unwrap();
        }
        fs::write(process.join("task/10/stat"), input).unwrap();
        fs::write(cgroup.join("cgroup.procs"), if input.len() % 2 == 0 { b"10\n11\n" } else { input }).unwrap();
        for selector in &all {
            for (target, roots) in selector.find(&root, 5) {
                found += roots.len();
                let _ = (target.to_string(), target.roots(&root), target.command(&root));
            }
        }
        let _ = (Target::process(&root, 10), Target::cgroup(&root, Path::new("/system.slice/redis.service")));
    });
    assert!(found > 0, "no input was understood");
}

#[test]
fn fuzz_what_is_asked_for() {
    let folder = folder();
    let root = ProcRoot::below(folder.path());
    fs::create_dir_all(root.sys.join("fs/cgroup/a.slice/b.service")).unwrap();
    fs::write(root.sys.join("fs/cgroup/a.slice/b.service/cgroup.procs"), "").unwrap();
    fs::create_dir_all(&root.proc).unwrap();
    let seeds: [&[u8]; 4] = [b"web@*", b"/kubepods.slice/**/x[a-z]?", b"b.service", b"redis-server"];
    fuzz("selectors", &seeds, |input| {
        let Ok(text) = std::str::from_utf8(input) else { return };
        for selector in [Selector::unit(text), Selector::cgroup(text)].into_iter().flatten() {
            let _ = (selector.to_string(), selector.find(&root, 5));
        }
        let _ = (Target::unit(&root, text), Target::cgroup(&root, Path::new(text)));
    });
}
