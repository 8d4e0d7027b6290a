//! Which CPUs a thread may use. The C library's mask ends at 1024 CPUs, and the kernel refuses a mask that is too short
//! for the machine; so this one holds as many as a kernel can be built for.

use gleaner_model::{CpuSet, VcpuId};
use std::io;

/// The most CPUs that a kernel can be built for (`CONFIG_NR_CPUS`).
pub const MAX_CPUS: usize = 8192;
const BITS: usize = usize::BITS as usize;

type Mask = [usize; MAX_CPUS / BITS];

/// The CPUs that `tid` may use now (0: the calling thread). The kernel leaves out those that are offline, and has cut
/// the mask to the thread's cpuset.
///
/// # Errors
/// When the thread is gone, or the call is forbidden here.
pub fn affinity_of(tid: i32) -> io::Result<CpuSet> {
    // A negative id is nobody's, and the kernel takes it for an address in some calls.
    if tid < 0 {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    let mut mask: Mask = [0; MAX_CPUS / BITS];
    // SAFETY: the kernel writes at most `size` bytes into the mask, which outlives the call.
    let written = unsafe { libc::syscall(libc::SYS_sched_getaffinity, tid, size_of::<Mask>(), mask.as_mut_ptr()) };
    if written < 0 { Err(io::Error::last_os_error()) } else { Ok(set_of(&mask)) }
}

/// Sets it; CPUs that the machine cannot have are ignored.
///
/// # Errors
/// When the thread is gone or another user's, or none of the CPUs is online and in its cpuset.
pub fn set_affinity(tid: i32, set: &CpuSet) -> io::Result<()> {
    let mut mask: Mask = [0; MAX_CPUS / BITS];
    for cpu in set.iter().map(|cpu| cpu.0 as usize).filter(|cpu| *cpu < MAX_CPUS) {
        mask[cpu / BITS] |= 1 << (cpu % BITS);
    }
    set_mask(tid, &mask)
}

/// Lets a thread run wherever its cpuset allows.
///
/// # Errors
/// As [`set_affinity`].
pub fn set_affinity_to_all(tid: i32) -> io::Result<()> {
    set_mask(tid, &[usize::MAX; MAX_CPUS / BITS])
}

fn set_mask(tid: i32, mask: &Mask) -> io::Result<()> {
    if tid < 0 {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    // SAFETY: the kernel reads at most `size` bytes of the mask, which outlives the call.
    let status = unsafe { libc::syscall(libc::SYS_sched_setaffinity, tid, size_of::<Mask>(), mask.as_ptr()) };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn set_of(mask: &Mask) -> CpuSet {
    let mut set = CpuSet::new();
    for (index, word) in mask.iter().enumerate() {
        let mut rest = *word;
        while rest != 0 {
            let cpu = index * BITS + rest.trailing_zeros() as usize;
            rest &= rest - 1;
            set.extend(u32::try_from(cpu).ok().map(VcpuId));
        }
    }
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_holds_any_numbers() {
        let mut mask: Mask = [0; MAX_CPUS / BITS];
        for cpu in [0, 5, 63, 64, 1023, 1024, 4097, 8191] {
            mask[cpu / BITS] |= 1 << (cpu % BITS);
        }
        assert_eq!(set_of(&mask).to_string(), "0,5,63-64,1023-1024,4097,8191");
    }

    #[test]
    fn what_is_set_is_read_and_numbers_beyond_the_machine_are_ignored() {
        std::thread::spawn(|| {
            let all = affinity_of(0).unwrap();
            let first = all.iter().next().unwrap();
            let beyond: CpuSet = [first, VcpuId(8191)].into_iter().collect();
            set_affinity(0, &beyond).unwrap();
            assert_eq!(affinity_of(0).unwrap(), std::iter::once(first).collect());
            assert!(set_affinity(0, &CpuSet::new()).is_err());
            set_affinity_to_all(0).unwrap();
            assert_eq!(affinity_of(0).unwrap(), all);
        })
        .join()
        .unwrap();
        assert!(affinity_of(-1).is_err() && set_affinity(-1, &CpuSet::first(1)).is_err());
    }
}
