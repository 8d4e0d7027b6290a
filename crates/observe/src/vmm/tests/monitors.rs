//! Monitors that are asked, and those that do not answer.

use super::*;

/// A monitor at `socket` that answers `times` clients: vCPU 0 is `tid`.
fn monitor(socket: &Path, times: usize, tid: i32) {
    use std::io::{BufRead, BufReader, Write};
    let listener = std::os::unix::net::UnixListener::bind(socket).unwrap();
    std::thread::spawn(move || {
        for _ in 0..times {
            let Ok((mut stream, _)) = listener.accept() else { return };
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let answer = format!("{{\"return\": [{{\"cpu-index\": 0, \"thread-id\": {tid}}}]}}\n");
            for said in ["{\"QMP\": {}}\n", "{\"return\": {}}\n", &answer] {
                let _ = stream.write_all(said.as_bytes());
                let _ = lines.next();
            }
        }
    });
}

#[test]
fn the_next_monitor_is_asked_where_one_does_not_answer() {
    let tree = Tree::new();
    let path = |name: &str| tree.folder.path().join(name);
    monitor(&path("second"), 1, 81);
    monitor(&path("configured"), 1, 91);
    let socket = |name: &str| format!("unix:{},server,nowait", path(name).display());
    let args = ["qemu-system-x86_64", "--qmp", &socket("none"), "-qmp", &socket("second")];
    tree.process(80, &args, "/", &[(81, "qemu-system-x86")]);
    let vm = tree.only();
    assert_eq!((threads(&vm), vm.notes), (vec![(0, 81)], vec![]));
    // Named in a file of options, with a chardev after the monitor that has it.
    fs::remove_dir_all(path("proc/80")).unwrap();
    let config = format!(
        "[name]\n guest = \"filed\"\n[mon]\n chardev = \"m\"\n mode = \"control\"\n[chardev \"m\"]\n backend = \"socket\"\n server = \"on\"\n path = \"{}\"\n",
        path("configured").display()
    );
    tree.file("vm.cfg", config);
    let file = path("vm.cfg").display().to_string();
    tree.process(90, &["/usr/bin/kvm", "-readconfig", &file], "/", &[(91, "kvm")]);
    let vm = tree.only();
    assert_eq!((vm.name.as_str(), threads(&vm)), ("filed", vec![(0, 91)]));
}

/// As many QEMUs without names of threads, each with a monitor that is not served yet.
fn with_monitors(tree: &Tree, count: i32) -> Vec<std::os::unix::net::UnixListener> {
    (0..count)
        .map(|at| {
            let socket = tree.folder.path().join(format!("qmp{at}"));
            let (pid, tid) = (100 + 10 * at, 101 + 10 * at);
            let qmp = format!("unix:{},server=on", socket.display());
            tree.process(pid, &["qemu-system-x86_64", "-qmp", &qmp], "/", &[(tid, "qemu-system-x86")]);
            std::os::unix::net::UnixListener::bind(&socket).unwrap()
        })
        .collect()
}

#[test]
fn monitors_are_asked_side_by_side() {
    use std::io::{BufRead, BufReader, Write};
    let tree = Tree::new();
    let monitors = with_monitors(&tree, 6);
    // None answers before all were asked: whoever asks one after the other takes the first for silent.
    let serve = move || {
        let clients: Vec<_> = monitors.iter().map(|monitor| monitor.accept().unwrap().0).collect();
        for (at, mut client) in clients.into_iter().enumerate() {
            let mut lines = BufReader::new(client.try_clone().unwrap()).lines();
            let answer = format!("{{\"return\": [{{\"cpu-index\": 0, \"thread-id\": {}}}]}}\n", 101 + 10 * at);
            for said in ["{\"QMP\": {}}\n", "{\"return\": {}}\n", &answer] {
                let _ = client.write_all(said.as_bytes());
                let _ = lines.next();
            }
        }
    };
    std::thread::spawn(serve);
    let options = DiscoverOptions { qmp_timeout: Duration::from_secs(60), ..DiscoverOptions::default() };
    let vms = discover(&tree.root, &options).unwrap();
    assert_eq!(
        vms.iter().map(threads).collect::<Vec<_>>(),
        (0..6).map(|at| vec![(0, 101 + 10 * at)]).collect::<Vec<_>>()
    );
}

#[test]
fn silent_monitors_share_the_time_and_a_signal_ends_it() {
    let tree = Tree::new();
    let _monitors = with_monitors(&tree, 3);
    let path = |name: &str| tree.folder.path().join(name);
    let _two = [path("a"), path("b")].map(|path| std::os::unix::net::UnixListener::bind(path).unwrap());
    let [a, b] = ["a", "b"].map(|name| format!("unix:{},server=on", path(name).display()));
    tree.process(90, &["qemu-system-x86_64", "-qmp", &a, "-qmp", &b], "/", &[(91, "qemu-system-x86")]);
    let options = DiscoverOptions { qmp_timeout: Duration::from_millis(200), ..DiscoverOptions::default() };
    let vms = discover(&tree.root, &options).unwrap();
    for (vm, timeouts) in vms.iter().zip([&["100 ms", "100 ms"][..], &["200 ms"], &["200 ms"], &["200 ms"]]) {
        let found = vm.notes.iter().zip(timeouts).filter(|(note, timeout)| note.contains(*timeout)).count();
        assert_eq!(found, timeouts.len(), "{vm:?}");
    }

    // Whoever waits for an hour hears of a signal; and what was not asked is asked next time.
    let interrupted = Arc::new(AtomicBool::new(false));
    let options = DiscoverOptions {
        qmp_timeout: Duration::from_secs(3600),
        interrupted: Some(Arc::clone(&interrupted)),
        ..DiscoverOptions::default()
    };
    let vms = std::thread::scope(|scope| {
        let looking = scope.spawn(|| discover(&tree.root, &options).unwrap());
        std::thread::sleep(Duration::from_millis(20));
        interrupted.store(true, std::sync::atomic::Ordering::Relaxed);
        looking.join().unwrap()
    });
    assert!(vms.iter().all(|vm| vm.vcpus.is_empty() && vm.notes[0].contains("a signal came")), "{vms:?}");
    let options = DiscoverOptions { qmp_timeout: Duration::from_millis(20), interrupted: None, ..options };
    assert!(discover(&tree.root, &options).unwrap()[1].notes[0].contains("20 ms"));
}

#[test]
fn vcpus_that_qemu_emulates_in_one_thread_are_called_that() {
    let tree = Tree::new();
    let all = (82, "ALL CPUs/TCG");
    tree.process(80, &["qemu-system-aarch64", "-accel", "tcg,thread=single"], "/", &[(81, "call_rcu"), all]);
    let vm = tree.only();
    assert_eq!((threads(&vm), vm.vmm, vm.accelerator), (vec![(0, 82)], Vmm::Qemu, Some(Accelerator::Tcg)));
    assert!(vm.notes.len() == 1 && vm.notes[0].contains("in one thread"), "{vm:?}");
    // Under a name that nobody knows, and where a monitor names the same thread for each vCPU.
    fs::remove_dir_all(tree.folder.path().join("proc/80")).unwrap();
    tree.process(80, &["emulator"], "/", &[all]);
    assert_eq!((threads(&tree.only()), tree.only().vmm), (vec![(0, 82)], Vmm::Qemu));
    let cpus = [0, 1].map(|index| QmpCpu { index, thread_id: 82 }).to_vec();
    let told = BTreeMap::from([(80, cpus)]);
    let vms = vms_at(&tree.root, &DiscoverOptions::default(), &told, Instant::now()).unwrap();
    assert_eq!(threads(&vms[0]), [(0, 82)]);
}

#[test]
fn a_monitors_threads_are_those_of_its_process_and_of_its_namespace() {
    let tree = Tree::new();
    let socket = tree.folder.path().join("qmp");
    // In its container the vCPU is thread 7; here thread 7 is another process's.
    monitor(&socket, 2, 7);
    let qmp = format!("unix:{},server=on", socket.display());
    tree.process(80, &["qemu-system-x86_64", "-qmp", &qmp], "/", &[(81, "qemu-system-x86")]);
    tree.process(7, &["/bin/bash"], "/", &[]);
    let vm = tree.only();
    assert!(vm.vcpus.is_empty() && vm.notes[0].contains("no thread of this process"), "{vm:?}");
    for (tid, inside) in [(80, 1), (81, 7)] {
        tree.file(&format!("proc/80/task/{tid}/status"), format!("Name:\tx\nNSpid:\t{tid}\t{inside}\n"));
    }
    assert_eq!(threads(&tree.only()), [(0, 81)]);
    // Nor are they taken for the other process's where the monitor is named by hand.
    let cpus = [QmpCpu { index: 0, thread_id: 7 }];
    assert_eq!(process::process_of_monitor(&tree.root, &cpus, Some(80)), Some(80));
    assert_eq!(process::process_of_monitor(&tree.root, &cpus, None), Some(7));
    tree.file("proc/7/status", "Name:\tx\nTgid:\t7\nNSpid:\t7\t1\n");
    assert_eq!(process::process_of_monitor(&tree.root, &cpus, None), None);
}
