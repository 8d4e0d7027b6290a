//! Memory mapped from the kernel and given back, the way allocators and dedup do it.

use crate::plan::WorkloadError;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use std::ops::{Deref, DerefMut};
use std::ptr::null_mut;

/// A private anonymous mapping, writable; unmapped when dropped.
pub(crate) struct Region {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: the mapping is this value's alone, as a box's is.
unsafe impl Send for Region {}

impl Region {
    /// Maps so many bytes (at least one), all zero.
    pub(crate) fn map(bytes: usize) -> Result<Self, WorkloadError> {
        // SAFETY: the kernel chooses where, so it is on nobody else's memory.
        let start = unsafe { mmap_anonymous(null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) };
        let start = start.map_err(|errno| WorkloadError::Memory { call: "map", bytes, source: errno.into() })?;
        Ok(Self { start: start.cast(), bytes })
    }

    /// Takes the right to write away from the whole region, so that other vCPUs must forget their translations, looks
    /// at it, and gives it back. If the kernel refuses that, the region is unmapped.
    pub(crate) fn while_read_only<T>(self, look: impl FnOnce(&[u8]) -> T) -> Result<(Self, T), WorkloadError> {
        self.protect(MprotectFlags::READ)?;
        let seen = look(&self);
        self.protect(MprotectFlags::READ | MprotectFlags::WRITE)?;
        Ok((self, seen))
    }

    fn protect(&self, flags: MprotectFlags) -> Result<(), WorkloadError> {
        // SAFETY: exactly the mapping made above. Only `while_read_only` calls this, which owns it: nobody has a
        // reference into it.
        let done = unsafe { mprotect(self.start.cast(), self.bytes, flags) };
        done.map_err(|errno| WorkloadError::Memory { call: "mprotect", bytes: self.bytes, source: errno.into() })
    }
}

impl Deref for Region {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping is so long, readable, and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.start, self.bytes) }
    }
}

impl DerefMut for Region {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and writable: `while_read_only` owns a region that is not, and returns none.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made above; no reference into it is left.
        // A refusal would leave the memory mapped, and there is nobody to tell.
        let _ = unsafe { munmap(self.start.cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut region = Region::map(5_000).unwrap();
        assert!(region.iter().all(|byte| *byte == 0));
        region[4_999] = 7;
        let (mut region, seen) = region.while_read_only(|bytes| bytes[4_999]).unwrap();
        assert_eq!(seen, 7);
        region[0] = 1;
        assert_eq!((region[0], region.len()), (1, 5_000));
    }

    #[test]
    fn what_the_kernel_does_not_have_is_an_error() {
        let error = Region::map(usize::MAX / 2).err().unwrap().to_string();
        assert!(error.contains("cannot map"), "{error}");
    }

    /// What a region's pages may be, as the kernel says it; `None` where nothing is mapped.
    fn rights(start: usize) -> Option<String> {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().find_map(|line| {
            let (range, rest) = line.split_once(' ')?;
            let (from, to) = range.split_once('-')?;
            let at = |hex| usize::from_str_radix(hex, 16).ok();
            (at(from)?..at(to)?).contains(&start).then(|| rest[..4].to_owned())
        })
    }

    #[test]
    fn nobody_gets_a_region_that_is_left_without_the_right_to_write() {
        let region = Region::map(1 << 20).unwrap();
        let start = region.start.addr();
        let looking = std::panic::AssertUnwindSafe(|| {
            region.while_read_only(|_| {
                assert_eq!(rights(start).as_deref(), Some("r--p"));
                panic!("while it is read-only");
            })
        });
        assert!(std::panic::catch_unwind(looking).is_err());
        assert_ne!(rights(start).as_deref(), Some("r--p"), "it was unmapped, and may be somebody else's by now");
        let (region, ()) = Region::map(1 << 20).unwrap().while_read_only(|_| ()).unwrap();
        assert_eq!(rights(region.start.addr()).as_deref(), Some("rw-p"));
    }
}
