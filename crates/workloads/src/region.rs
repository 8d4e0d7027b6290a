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

    /// Takes the right to write away from the whole region, so that other vCPUs must forget their translations, looks at it,
    /// and gives it back.
    pub(crate) fn while_read_only<T>(&mut self, look: impl FnOnce(&[u8]) -> T) -> Result<T, WorkloadError> {
        self.protect(MprotectFlags::READ)?;
        let seen = look(self);
        self.protect(MprotectFlags::READ | MprotectFlags::WRITE)?;
        Ok(seen)
    }

    /// Must not be left without the right to write: `deref_mut` counts on it.
    fn protect(&mut self, flags: MprotectFlags) -> Result<(), WorkloadError> {
        // SAFETY: exactly the mapping made above, and nobody else has a reference into it.
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
        // SAFETY: as above, and writable whenever nobody is inside `while_read_only`.
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
        assert_eq!(region.while_read_only(|bytes| bytes[4_999]).unwrap(), 7);
        region[0] = 1;
        assert_eq!((region[0], region.len()), (1, 5_000));
    }

    #[test]
    fn what_the_kernel_does_not_have_is_an_error() {
        let error = Region::map(usize::MAX / 2).err().unwrap().to_string();
        assert!(error.contains("cannot map"), "{error}");
    }
}
