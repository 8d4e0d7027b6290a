//! Commands to which the kernel refuses a system call, by a filter of their own.

use std::os::unix::process::CommandExt;
use std::process::Command;

fn statement(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: u16::try_from(code).unwrap(), jt: 0, jf: 0, k }
}

/// Goes on where the value looked at last is `k`; else passes over `otherwise` statements.
fn is(k: u32, otherwise: u8) -> libc::sock_filter {
    libc::sock_filter { jf: otherwise, ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, k) }
}

/// Looks at the struct that the kernel hands to the filter: the call's number is at 0, its first argument at 16.
fn look_at(offset: u32) -> libc::sock_filter {
    statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset)
}

/// What a filter answers.
#[derive(Clone, Copy, Debug)]
pub enum Answer {
    /// This error.
    Error(i32),
    /// SIGSYS, of which whoever asks dies with all of its threads: what systemd does where nobody says otherwise.
    Death,
}

fn answer(answer: Answer) -> libc::sock_filter {
    match answer {
        Answer::Error(errno) => refuse(errno),
        Answer::Death => statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_KILL_PROCESS),
    }
}

fn refuse(errno: i32) -> libc::sock_filter {
    statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | errno.unsigned_abs())
}

fn number(call: libc::c_long) -> u32 {
    u32::try_from(call).unwrap()
}

/// `command` with these system calls answered so, as a container's or a service's filter does.
pub fn forbidding(command: &mut Command, calls: &[libc::c_long], so: Answer) {
    let each = calls.iter().flat_map(|call| [is(number(*call), 1), answer(so)]);
    under(command, std::iter::once(look_at(0)).chain(each).collect());
}

/// `command` with this one of bpf's own commands refused: what came before it is done already.
pub fn refusing_bpf(command: &mut Command, bpf_command: u32) {
    under(
        command,
        vec![look_at(0), is(number(libc::SYS_bpf), 3), look_at(16), is(bpf_command, 1), refuse(libc::EPERM)],
    );
}

fn under(command: &mut Command, mut filter: Vec<libc::sock_filter>) {
    filter.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW));
    let install = move || {
        let program =
            libc::sock_fprog { len: u16::try_from(filter.len()).unwrap_or(0), filter: filter.as_ptr().cast_mut() };
        // SAFETY: the kernel copies the program, which outlives both calls.
        let failed = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
                || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) != 0
        };
        if failed { Err(std::io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: two system calls, and no allocation.
    unsafe { command.pre_exec(install) };
}
