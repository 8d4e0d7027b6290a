//! The VM of one page: made, run some thousand times, timed, and gone. What the times mean is the parent's.

use super::{HostExitError, Series};
use gleaner_model::Nanos;
use kvm_bindings::{kvm_regs, kvm_userspace_memory_region};
use kvm_ioctls::{Kvm, VcpuExit, VcpuFd, VmFd};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::arch::x86_64::_rdtsc;
use std::ffi::c_void;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::thread::JoinHandleExt;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// Turns in a batch: as many as the guest's side takes, so that the percentiles mean the same.
const TURNS: u64 = 10;
const BATCHES: usize = 1000;
/// Turns without an exit that show what one takes; some batches are enough for a median.
const MANY_TURNS: u64 = 1000;
const LONG_BATCHES: usize = 15;
/// Not counted: they make KVM's tables for the page.
const WARM_UP: usize = 5;
/// Time for the batches, however slow the machine is.
const LONGEST: Duration = Duration::from_millis(500);

const PAGE: usize = 4096;
/// Where the guest finds its page; not 0, where a real-mode machine has its interrupt table.
const CODE_AT: u64 = 0x1000;
/// `turns: xor eax, eax; cpuid; dec si; jnz turns; hlt`, in real mode. The largest leaf is the cheapest to answer.
const LEAVING: [u8; 9] = [0x66, 0x31, 0xc0, 0x0f, 0xa2, 0x4e, 0x75, 0xf8, 0xf4];
/// The same without `cpuid`.
const IDLE: [u8; 7] = [0x66, 0x31, 0xc0, 0x4e, 0x75, 0xfa, 0xf4];
const IDLE_OFFSET: usize = 64;

/// Ends a run that takes too long. By default it does nothing, so it cannot hurt anybody it reaches by mistake.
const WAKE: libc::c_int = libc::SIGURG;

/// Runs it in a thread of its own, which is called back when the time is up.
pub fn measured(limit: Duration) -> Result<Series, HostExitError> {
    within(limit, series)
}

fn within<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> Result<T, HostExitError> + Send + 'static,
) -> Result<T, HostExitError> {
    let (done, result) = sync_channel(1);
    let thread = thread::Builder::new().name("gleaner-exit".to_owned()).spawn(move || {
        let outcome = block_signals().and_then(|()| work());
        // Nobody waits any more where the time was up twice.
        let _ = done.send(outcome);
    });
    let thread = thread.map_err(|source| HostExitError::Kvm { what: "its thread", source })?;
    let timed_out = || HostExitError::TimedOut { limit: Nanos::from(limit) };
    match result.recv_timeout(limit) {
        Ok(outcome) => {
            let _ = thread.join();
            outcome
        }
        Err(RecvTimeoutError::Disconnected) => Err(HostExitError::Stopped("a fault of Gleaner's own".to_owned())),
        Err(RecvTimeoutError::Timeout) => {
            // SAFETY: the thread is neither joined nor detached, so its id is good even if it has just ended.
            unsafe { libc::pthread_kill(thread.as_pthread_t(), WAKE) };
            // It closes its files and ends; a kernel that does not even let it is waited for no longer.
            if result.recv_timeout(limit).is_ok() {
                let _ = thread.join();
            }
            Err(timed_out())
        }
    }
}

/// No signal reaches this thread: one that KVM_RUN lets through stays pending, runs nobody's handler, and ends with the
/// thread.
fn block_signals() -> Result<(), HostExitError> {
    // SAFETY: a set of signals is plain data, filled before it is used.
    let error = unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut())
    };
    if error == 0 {
        Ok(())
    } else {
        Err(HostExitError::Kvm { what: "blocking signals", source: io::Error::from_raw_os_error(error) })
    }
}

fn series() -> Result<Series, HostExitError> {
    let mut vm = OnePage::new(&LEAVING)?;
    for _ in 0..WARM_UP {
        vm.run(LEAVING_AT, TURNS)?;
        vm.run(IDLE_AT, TURNS)?;
    }
    let (mut leaving, mut idle, mut idle_long) = (Vec::new(), Vec::new(), Vec::new());
    let (began, cycles_before) = (Instant::now(), cycles());
    while idle_long.len() < LONG_BATCHES && (idle_long.is_empty() || began.elapsed() < LONGEST / 4) {
        idle_long.push(vm.run(IDLE_AT, MANY_TURNS)?);
    }
    // In turn, so that whatever else goes on here falls on both.
    while leaving.len() < BATCHES && (leaving.is_empty() || began.elapsed() < LONGEST) {
        leaving.push(vm.run(LEAVING_AT, TURNS)?);
        idle.push(vm.run(IDLE_AT, TURNS)?);
    }
    let cycles_per_ns = (cycles() - cycles_before) as f64 / began.elapsed().as_nanos().max(1) as f64;
    Ok(Series { leaving, idle, idle_long, turns: TURNS, many_turns: MANY_TURNS, cycles_per_ns })
}

const LEAVING_AT: u64 = CODE_AT;
const IDLE_AT: u64 = CODE_AT + IDLE_OFFSET as u64;

fn cycles() -> u64 {
    // SAFETY: every x86-64 processor has a time-stamp counter, and Linux lets programs read it unless they ask
    // otherwise.
    unsafe { _rdtsc() }
}

/// The fields go in this order: KVM lets go of the page before it is given back.
struct OnePage {
    vcpu: VcpuFd,
    _vm: VmFd,
    _page: Page,
}

impl OnePage {
    /// With `code` where [`LEAVING_AT`] points, and [`IDLE`].
    fn new(code: &[u8]) -> Result<Self, HostExitError> {
        let kvm = Kvm::new().map_err(|error| match io::Error::from(error).kind() {
            io::ErrorKind::NotFound => HostExitError::NoKvm,
            io::ErrorKind::PermissionDenied => HostExitError::NotPermitted,
            _ => failed("/dev/kvm")(error),
        })?;
        let vm = kvm.create_vm().map_err(failed("KVM_CREATE_VM"))?;
        let page = Page::new().map_err(|source| HostExitError::Kvm { what: "its page", source })?;
        page.write(0, code);
        page.write(IDLE_OFFSET, &IDLE);
        let region = kvm_userspace_memory_region {
            slot: 0,
            flags: 0,
            guest_phys_addr: CODE_AT,
            memory_size: PAGE as u64,
            userspace_addr: page.start as u64,
        };
        // SAFETY: the page is mapped, and outlives the VM.
        unsafe { vm.set_user_memory_region(region) }.map_err(failed("KVM_SET_USER_MEMORY_REGION"))?;
        let vcpu = vm.create_vcpu(0).map_err(failed("KVM_CREATE_VCPU"))?;
        let mut segments = vcpu.get_sregs().map_err(failed("KVM_GET_SREGS"))?;
        (segments.cs.base, segments.cs.selector) = (0, 0);
        vcpu.set_sregs(&segments).map_err(failed("KVM_SET_SREGS"))?;
        let_through(&vcpu, WAKE)?;
        Ok(Self { vcpu, _vm: vm, _page: page })
    }

    /// Runs the code at `at` from its start to its HLT; how long KVM_RUN took, in ns.
    fn run(&mut self, at: u64, turns: u64) -> Result<u64, HostExitError> {
        // The second bit of the flags is always 1.
        let registers = kvm_regs { rip: at, rsi: turns, rflags: 2, ..kvm_regs::default() };
        self.vcpu.set_regs(&registers).map_err(failed("KVM_SET_REGS"))?;
        let began = Instant::now();
        let exit = self.vcpu.run();
        let took = began.elapsed();
        match exit {
            Ok(VcpuExit::Hlt) => Ok(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)),
            Ok(other) => Err(HostExitError::Stopped(format!("{other:?}"))),
            Err(error) => Err(failed("KVM_RUN")(error)),
        }
    }
}

fn failed(what: &'static str) -> impl Fn(kvm_ioctls::Error) -> HostExitError {
    move |error| HostExitError::Kvm { what, source: error.into() }
}

/// Blocks all signals but one while the vCPU runs. kvm-ioctls has no call for it.
fn let_through(vcpu: &VcpuFd, signal: libc::c_int) -> Result<(), HostExitError> {
    /// `struct kvm_signal_mask` with the kernel's set of 64 signals.
    #[repr(C)]
    struct Mask {
        len: u32,
        blocked: [u8; 8],
    }
    /// `_IOW(KVMIO, 0x8b, struct kvm_signal_mask)`: the size in it is that of `len` alone.
    const KVM_SET_SIGNAL_MASK: libc::Ioctl = 0x4004_ae8b;
    let mask = Mask { len: 8, blocked: (!(1_u64 << (signal - 1))).to_ne_bytes() };
    // SAFETY: the kernel reads the mask, of the size that it says, and keeps no pointer to it.
    if unsafe { libc::ioctl(vcpu.as_raw_fd(), KVM_SET_SIGNAL_MASK, &raw const mask) } == 0 {
        Ok(())
    } else {
        Err(HostExitError::Kvm { what: "KVM_SET_SIGNAL_MASK", source: io::Error::last_os_error() })
    }
}

/// The guest's memory.
struct Page {
    start: *mut c_void,
}

impl Page {
    fn new() -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, of nobody's memory.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), PAGE, access, MapFlags::PRIVATE)? };
        Ok(Self { start })
    }

    fn write(&self, offset: usize, code: &[u8]) {
        assert!(offset + code.len() <= PAGE);
        // SAFETY: within the page, which is mapped, writable, and nobody else's until the vCPU runs.
        unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), self.start.cast::<u8>().add(offset), code.len()) };
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`; the VM that used it is closed.
        let _ = unsafe { munmap(self.start, PAGE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_never_ends_is_ended() {
        // A guest that jumps to itself: what a KVM that goes round in circles looks like from here.
        let limit = Duration::from_millis(200);
        let began = Instant::now();
        let outcome = within(limit, || OnePage::new(&[0xeb, 0xfe])?.run(CODE_AT, 1));
        match outcome {
            Err(HostExitError::TimedOut { .. }) => assert!(began.elapsed() >= limit),
            // No KVM for this user here: then there is nothing to end.
            Err(error) => gleaner_testing::skipped(format_args!("needs KVM: {error}")),
            Ok(took) => panic!("ended by itself after {took} ns"),
        }
    }
}
