//! System call filters (seccomp) around `gleaner run`: whatever they refuse, and whoever they kill for it, the program
//! runs to its end and its status is passed on.

mod common;

use common::seccomp::Answer::{self, Death, Error};
use common::seccomp::forbidding;
use common::unprivileged::Unprivileged;
use common::{GLEANER, Said, finish, is_root};
use std::process::Command;

/// Long enough for everything beside it to be set up.
const LASTING: &str = "echo ran; sleep 0.1; exit 3";

/// `run` of this script, under the filter.
fn filtered(mut run: Command, options: &[&str], script: &str, calls: &[libc::c_long], so: Answer) -> Said {
    run.args(["run", "--retain-for", "1ms"]).args(options).args(["--", "sh", "-c", script]);
    run.env_remove("GLEANER_LOG").env_remove("GLEANER_RUN_ID");
    forbidding(&mut run, calls, so);
    finish(&mut run).with_status(3).saying("ran\n")
}

#[test]
fn forbidden_system_calls_cost_nobody_a_run() {
    let processes: Vec<libc::c_long> = vec![libc::SYS_clone, libc::SYS_clone3];
    let one = |call| vec![call];
    for (calls, errno, why) in [
        (one(libc::SYS_sched_getaffinity), libc::EPERM, ""),
        (one(libc::SYS_sched_setaffinity), libc::EPERM, ""),
        (one(libc::SYS_sched_setaffinity), libc::ENOSYS, ""),
        (vec![libc::SYS_sched_getaffinity, libc::SYS_sched_setaffinity, libc::SYS_getcpu], libc::EPERM, ""),
        (one(libc::SYS_sched_setscheduler), libc::EPERM, ""),
        (one(libc::SYS_bpf), libc::EPERM, ""),
        (one(libc::SYS_bpf), libc::ENOSYS, ""),
        (one(libc::SYS_perf_event_open), libc::EPERM, ""),
        (one(libc::SYS_perf_event_open), libc::ENOSYS, ""),
        (one(libc::SYS_pidfd_open), libc::EPERM, ""),
        (one(libc::SYS_pidfd_open), libc::ENOSYS, ""),
        (one(libc::SYS_socketpair), libc::EPERM, "in Gleaner's place"),
        (one(libc::SYS_pipe2), libc::EMFILE, ""),
        (one(libc::SYS_flock), libc::ENOSYS, ""),
        (one(libc::SYS_fcntl), libc::EPERM, ""),
        (one(libc::SYS_prlimit64), libc::EPERM, ""),
        (one(libc::SYS_prctl), libc::EPERM, ""),
        (one(libc::SYS_prctl), libc::ENOSYS, ""),
        (one(libc::SYS_waitid), libc::ENOSYS, ""),
        (one(libc::SYS_statx), libc::ENOSYS, ""),
        (one(libc::SYS_getrandom), libc::ENOSYS, ""),
        (one(libc::SYS_clock_gettime), libc::EPERM, ""),
        // Without these nobody can wait for a program.
        (one(libc::SYS_ppoll), libc::ENOSYS, "forbids `ppoll`"),
        (one(libc::SYS_recvfrom), libc::EPERM, "forbids `recvfrom`"),
        (one(libc::SYS_rt_sigprocmask), libc::EPERM, "forbids `rt_sigprocmask`"),
        (one(libc::SYS_getuid), libc::EPERM, "forbids `getuid`"),
        // Neither a process nor a thread can be had: by the shell neither.
        (processes, libc::EAGAIN, "in Gleaner's place"),
        (one(libc::SYS_wait4), libc::EPERM, "forbids `wait4`"),
    ] {
        let lasts = !calls.contains(&libc::SYS_clone) && !calls.contains(&libc::SYS_wait4);
        let script = if lasts { LASTING } else { "echo ran; exit 3" };
        for retain in ["auto", "yielding"] {
            let said = filtered(Command::new(GLEANER), &["--retain", retain], script, &calls, Error(errno));
            assert!(said.stderr.contains(why), "{calls:?}: {said:#?}");
        }
    }
}

/// What systemd does to a unit with `SystemCallFilter=@system-service`, or with `~@resources`.
#[test]
fn filters_that_kill_cost_nobody_a_run() {
    const UNMANAGED: &str = "the program ran unmanaged: the system call filter";
    let resources = [libc::SYS_sched_setaffinity, libc::SYS_sched_setscheduler, libc::SYS_setpriority];
    let service = [libc::SYS_bpf, libc::SYS_perf_event_open];
    let of_setpriv = [libc::SYS_prctl, libc::SYS_socket];
    let user = is_root().then(Unprivileged::new);
    for (calls, why) in [
        (&service[..], ""),
        (&resources[..1], UNMANAGED),
        (&resources[1..], UNMANAGED),
        (&[libc::SYS_setsid], UNMANAGED),
        (&[libc::SYS_socket, libc::SYS_connect], ""),
        (&[libc::SYS_pidfd_open], ""),
        (&[libc::SYS_socketpair], "forbids `socketpair`"),
        (&[libc::SYS_prctl], "forbids `prctl`"),
        (&[libc::SYS_recvfrom], "forbids `recvfrom`"),
    ] {
        for retain in ["auto", "yielding"] {
            for unprivileged in [false, true] {
                let command = match &user {
                    // Who becomes that user makes these calls too.
                    Some(user) if unprivileged && !calls.iter().any(|call| of_setpriv.contains(call)) => {
                        user.gleaner(&[])
                    }
                    _ => Command::new(GLEANER),
                };
                let said = filtered(command, &["--retain", retain], LASTING, calls, Death);
                assert!(said.stderr.contains(why), "{calls:?}: {said:#?}");
            }
        }
    }
    // Asked for by name it is an error, as where it is refused.
    let mut run = Command::new(GLEANER);
    run.args(["run", "--observer", "bpf", "--", "true"]);
    forbidding(&mut run, &service, Death);
    finish(&mut run).with_status(125);
}
