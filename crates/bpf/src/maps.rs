//! Memory that BPF programs and Gleaner share, and the only unsafe code for it.
//!
//! Arrays created with `BPF_F_MMAPABLE` are mapped once and read without a system call. Every access is volatile: the
//! other side writes whenever it likes, and consistency is the caller's business.
//!
//! What can go wrong is excluded by types: only plain old data (`bytemuck::Pod`: every pattern of bytes is a value,
//! none is padding) is read and written, and only a mapping that was made [`Writable`] is written to.

use bytemuck::Pod;
use std::ffi::c_void;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// What may be done with a mapping.
pub trait Access {
    /// How the memory is mapped.
    const PROTECTION: ProtFlags;
}

#[derive(Debug)]
pub enum ReadOnly {}

/// It is read and written.
#[derive(Debug)]
pub enum Writable {}

impl Access for ReadOnly {
    const PROTECTION: ProtFlags = ProtFlags::READ;
}

impl Access for Writable {
    const PROTECTION: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);
}

/// A mapping of a file descriptor's memory, unmapped when dropped.
#[derive(Debug)]
pub struct Mapping<A> {
    start: NonNull<u8>,
    len: usize,
    access: PhantomData<A>,
}

// SAFETY: the memory belongs to no thread, and is only reached through volatile accesses.
unsafe impl<A> Send for Mapping<A> {}
// SAFETY: as above.
unsafe impl<A> Sync for Mapping<A> {}

impl<A: Access> Mapping<A> {
    /// Maps `len` bytes at `offset`.
    pub fn new(fd: BorrowedFd<'_>, offset: usize, len: usize) -> io::Result<Self> {
        // SAFETY: a fresh mapping at an address of the kernel's choice disturbs nothing.
        let start = unsafe { mmap(ptr::null_mut(), len, A::PROTECTION, MapFlags::SHARED, fd, offset as u64)? };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len, access: PhantomData })
    }
}

impl<A> Mapping<A> {
    /// The address of a `T` at `offset`, which must be aligned and inside.
    fn at<T>(&self, offset: usize) -> *mut T {
        let inside = offset.checked_add(size_of::<T>()).is_some_and(|end| end <= self.len);
        assert!(inside && offset.is_multiple_of(align_of::<T>()), "no {} at {offset}", std::any::type_name::<T>());
        // SAFETY: inside the mapping, as just checked.
        unsafe { self.start.as_ptr().add(offset).cast() }
    }

    /// Copies a `T` out.
    pub fn read<T: Pod>(&self, offset: usize) -> T {
        // SAFETY: `at` gives a valid, aligned address of readable memory, and any bytes are a `T`.
        unsafe { ptr::read_volatile(self.at(offset)) }
    }
}

impl Mapping<Writable> {
    pub fn write<T: Pod>(&self, offset: usize, value: T) {
        // SAFETY: as for `read`; the memory is writable, and a `T` has no padding whose bytes would be undefined.
        unsafe { ptr::write_volatile(self.at(offset), value) }
    }

    /// Takes a word of bits, and leaves none: what is set meanwhile stays for the next time.
    pub fn take_bits(&self, offset: usize) -> u64 {
        // SAFETY: `at` gives a valid, aligned address of writable memory that lives as long as `self`, and everybody
        // here reaches it by atomic or volatile accesses alone.
        unsafe { AtomicU64::from_ptr(self.at(offset)) }.swap(0, Ordering::AcqRel)
    }
}

impl<A> Drop for Mapping<A> {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length, and nothing borrows from it past its life.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast::<c_void>(), self.len) };
        debug_assert!(unmapped.is_ok());
    }
}

/// A mapped BPF array of `T`.
#[derive(Debug)]
pub struct MappedArray<T, A = Writable> {
    mapping: Mapping<A>,
    stride: usize,
    len: usize,
    item: PhantomData<T>,
}

impl<T: Pod, A: Access> MappedArray<T, A> {
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
        let bytes = stride.checked_mul(len).ok_or(io::ErrorKind::OutOfMemory)?;
        let mapping = Mapping::new(map.as_fd(), 0, bytes)?;
        Ok(Self { mapping, stride, len, item: PhantomData })
    }

    /// How many elements there are.
    #[expect(clippy::len_without_is_empty, reason = "no map is empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Copies element `index` out.
    pub fn read(&self, index: usize) -> T {
        self.mapping.read(self.field::<T>(index, 0))
    }

    /// Reads one field, `offset` bytes into element `index`.
    pub fn read_field<F: Pod>(&self, index: usize, offset: usize) -> F {
        self.mapping.read(self.field::<F>(index, offset))
    }

    /// Where a field is, which must be one of an element's.
    fn field<F>(&self, index: usize, offset: usize) -> usize {
        let inside = index < self.len && offset.checked_add(size_of::<F>()).is_some_and(|end| end <= self.stride);
        assert!(inside, "element {index} of {} has no field at {offset}", self.len);
        index * self.stride + offset
    }
}

impl<T: Pod> MappedArray<T, Writable> {
    /// Writes one field, `offset` bytes into element `index`.
    pub fn write_field<F: Pod>(&self, index: usize, offset: usize, value: F) {
        self.mapping.write(self.field::<F>(index, offset), value);
    }

    /// Takes the bits of one word, `offset` bytes into element `index`, and leaves none. Where there is none that is
    /// but a reading.
    pub fn take_bits(&self, index: usize, offset: usize) -> u64 {
        let at = self.field::<u64>(index, offset);
        if self.mapping.read::<u64>(at) == 0 { 0 } else { self.mapping.take_bits(at) }
    }
}

/// Says of structs that a skeleton generates that they are plain old data, and has the compiler look: all of their
/// fields are, and are all there is. A struct that has changed since does not compile.
#[macro_export]
macro_rules! plain_old_data {
    ($($name:ident { $($field:ident),* $(,)? })*) => {$(
        const _: () = {
            const fn size<F: $crate::bytemuck::Pod>(_: &F) -> usize {
                size_of::<F>()
            }
            const fn sizes(value: &$name) -> usize {
                let $name { $($field),* } = value;
                0 $(+ size($field))*
            }
            // SAFETY: only numbers and what is made of them, for which zeros are fine: `sizes` asks for it.
            const ZEROS: $name = unsafe { std::mem::zeroed() };
            assert!(sizes(&ZEROS) == size_of::<$name>(), "padding");
        };
        // SAFETY: its fields are numbers, arrays and structs of them, which may all be zero; see above.
        unsafe impl $crate::bytemuck::Zeroable for $name {}
        // SAFETY: all its fields are plain old data, and there is nothing between them; see above.
        unsafe impl $crate::bytemuck::Pod for $name {}
    )*};
}
#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use std::os::fd::OwnedFd;

    fn memory(bytes: u64) -> OwnedFd {
        let fd = memfd_create("maps", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&fd, bytes).unwrap();
        fd
    }

    #[test]
    fn what_one_mapping_writes_another_reads() {
        let fd = memory(64);
        let array: MappedArray<[u64; 2]> = MappedArray::new(&fd, 16, 4).unwrap();
        let seen: MappedArray<[u64; 2], ReadOnly> = MappedArray::new(&fd, 16, 4).unwrap();
        array.write_field(2, 8, 7_u64);
        assert_eq!((seen.read(2), seen.read_field::<u32>(2, 8), seen.len()), ([0, 7], 7, 4));
        assert_eq!((array.take_bits(2, 8), array.take_bits(2, 8), seen.read(2)), (7, 0, [0, 0]));
        assert!(MappedArray::<[u64; 2]>::new(&fd, 8, 4).is_err(), "values smaller than their type");
        assert!(MappedArray::<[u64; 2]>::new(&fd, 16, usize::MAX / 8).is_err());
    }

    #[test]
    fn nothing_outside_an_element_is_reached() {
        let fd = memory(4096);
        let array: MappedArray<[u64; 2]> = MappedArray::new(&fd, 16, 4).unwrap();
        for (index, offset) in [(4, 0), (0, 16), (3, 12), (usize::MAX, 0), (0, usize::MAX), (1, 1)] {
            let reading = std::panic::AssertUnwindSafe(|| array.read_field::<u64>(index, offset));
            assert!(std::panic::catch_unwind(reading).is_err(), "{index} {offset}");
        }
    }
}
