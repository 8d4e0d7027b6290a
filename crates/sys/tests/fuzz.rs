//! Whatever stands in the files of `/proc` and of cgroups, their readers go on: programs choose their names.

use gleaner_sys::{
    ProcRoot, Stat, StatReader, cgroup_path, children, cpu_quota, hierarchy_folder, mounts, online_cpus, possible_cpus,
    processes_left, schedstat, status_field, switches,
};
use gleaner_testing::fuzz::{folder, fuzz};
use std::fs;
use std::path::Path;

#[test]
fn fuzz_the_files_of_a_process() {
    let seeds: [&[u8]; 5] = [
        b"1234 (redis (x) y) S 1 1234 1234 0 -1 4194560 1 0 0 0 12 3 0 0 20 0 5 0 777 1000 200 18446744073709551615 1\n",
        b"1234567 89012 345\n",
        b"Name:\tredis\nState:\tS\nCapEff:\t00\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n",
        b"12 13 14 ",
        b"",
    ];
    fuzz("process", &seeds, |input| {
        if let Some(stat) = Stat::parse(input) {
            let _ = (stat.state(), stat.parent(), stat.start_time(), stat.number::<u64>(52), stat.field(0));
        }
        let _ = (schedstat(input), switches(input), status_field(input, b"State"), children(input).count());
    });
}

#[test]
fn fuzz_mounts_and_cgroups() {
    let seeds: [&[u8]; 3] = [
        b"30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
        b"31 23 0:27 /a\\040b /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n",
        b"0::/system.slice/redis.service\n4:cpu,cpuacct:/a/../b\n1:name=systemd:/x:y\n",
    ];
    fuzz("mounts and cgroups", &seeds, |input| {
        let path = [None, Some("cpu")].map(|controller| cgroup_path(input, controller));
        for mount in mounts(input) {
            for path in path.into_iter().flatten().chain([Path::new("/a/b")]) {
                if let Some(folder) = hierarchy_folder(&mount, path) {
                    assert!(folder.starts_with(&mount.point), "{} of {mount:?}", folder.display());
                }
            }
        }
    });
}

#[test]
fn fuzz_the_files_of_the_machine() {
    let folder = folder();
    let root = ProcRoot::below(folder.path());
    let cpus = root.sys.join("devices/system/cpu");
    fs::create_dir_all(&cpus).unwrap();
    fs::create_dir_all(&root.proc).unwrap();
    let group = root.sys.join("fs/cgroup/a");
    fs::create_dir_all(&group).unwrap();
    let seeds: [&[u8]; 5] = [
        b"cpu  10 0 5 100 1 0 2 3 0 0\ncpu0 5 0 2 50 1 0 1 1 0 0\ncpu1 5 0 3 50 0 0 1 2 0 0\nctxt 99\nprocesses 12\n",
        b"0-3,8,10-11\n",
        b"200000 100000\n",
        b"max 100000\n",
        b"4096\n",
    ];
    fuzz("machine", &seeds, |input| {
        for file in [root.proc.join("stat"), cpus.join("online"), cpus.join("possible")] {
            fs::write(file, input).unwrap();
        }
        for file in ["cpu.max", "pids.max", "pids.current", "cpu.cfs_quota_us", "cpu.cfs_period_us"] {
            fs::write(group.join(file), input).unwrap();
        }
        let _ = StatReader::open(&root).unwrap().read();
        let _ = (online_cpus(&root), possible_cpus(&root));
        let top = root.sys.join("fs/cgroup");
        let _ = (cpu_quota(&top, &group), processes_left(&top, &group));
    });
}
