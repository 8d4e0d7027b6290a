//! Memory that BPF programs and Gleaner share, and the only unsafe code for it.
//!
//! Arrays created with `BPF_F_MMAPABLE` are mapped once and read without a system call. Every access is volatile: the
//! other side writes whenever it likes, and consistency is the caller's business.

use std::ffi::c_void;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A mapping of a file descriptor's memory, unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory belongs to no thread, and is only reached through volatile accesses.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes at `offset`, writable if asked.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn new(fd: BorrowedFd<'_>, offset: usize, len: usize, writable: bool) -> io::Result<Self> {
        let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a fresh mapping at an address of the kernel's choice disturbs nothing.
        let start = unsafe { mmap(ptr::null_mut(), len, protection, MapFlags::SHARED, fd, offset as u64)? };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len })
    }

    /// The address of a `T` at `offset`, which must be aligned and inside.
    fn at<T>(&self, offset: usize) -> *mut T {
        assert!(offset + size_of::<T>() <= self.len && offset.is_multiple_of(align_of::<T>()));
        // SAFETY: inside the mapping, as just checked.
        unsafe { self.start.as_ptr().add(offset).cast() }
    }

    /// Copies a `T` out.
    pub fn read<T: Copy>(&self, offset: usize) -> T {
        // SAFETY: `at` gives a valid, aligned address; any bytes are a T, because callers only name integers and
        // structs of integers.
        unsafe { ptr::read_volatile(self.at(offset)) }
    }

    /// Writes a `T`; only to a mapping made writable.
    pub fn write<T: Copy>(&self, offset: usize, value: T) {
        // SAFETY: as for `read`.
        unsafe { ptr::write_volatile(self.at(offset), value) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length, and nothing borrows from it past its life.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast::<c_void>(), self.len) };
        debug_assert!(unmapped.is_ok());
    }
}

/// A mapped BPF array of `T`.
#[derive(Debug)]
pub struct MappedArray<T> {
    mapping: Mapping,
    stride: usize,
    len: usize,
    item: PhantomData<T>,
}

impl<T: Copy> MappedArray<T> {
    /// Maps all of an array map: `value_size` bytes apart, `len` of them.
    ///
    /// # Errors
    /// When the kernel refuses, or a value is smaller than a `T`.
    pub fn new(map: &impl AsFd, value_size: u32, len: usize) -> io::Result<Self> {
        // The kernel rounds each element up to eight bytes.
        let stride = (value_size as usize).next_multiple_of(8);
        if stride < size_of::<T>() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the map's values are smaller than their type"));
        }
        let mapping = Mapping::new(map.as_fd(), 0, stride * len, true)?;
        Ok(Self { mapping, stride, len, item: PhantomData })
    }

    /// How many elements there are.
    #[expect(clippy::len_without_is_empty, reason = "no map is empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Copies element `index` out.
    pub fn read(&self, index: usize) -> T {
        self.mapping.read(index * self.stride)
    }

    /// Reads one field, `offset` bytes into element `index`.
    pub fn read_field<F: Copy>(&self, index: usize, offset: usize) -> F {
        self.mapping.read(index * self.stride + offset)
    }

    /// Writes one field, `offset` bytes into element `index`.
    pub fn write_field<F: Copy>(&self, index: usize, offset: usize, value: F) {
        self.mapping.write(index * self.stride + offset, value);
    }
}
