// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Page-aligned memory straight from the kernel, for what the kernel writes into.

use std::io;
use std::ptr;
use std::ptr::NonNull;

use rustix::mm::MapFlags;
use rustix::mm::ProtFlags;

/// A private, zeroed, page-aligned mapping.
///
/// JUSTIFICATION: the kernel holds addresses of it while no borrow of ours may exist; a `Vec`
/// cannot say that, and its alignment would cost up to half of the throughput.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

impl Mapping {
    /// A mapping of `len` bytes, which must not be zero.
    pub(crate) fn new(len: usize) -> io::Result<Self> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: an anonymous mapping at an address that the kernel chooses touches no memory
        // of anybody else.
        let base = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), len, access, flags) }?;
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, len })
    }

    /// Address of the first byte.
    pub(crate) const fn as_ptr(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// All bytes; nobody else may use them meanwhile, which `&mut self` proves for ours.
    pub(crate) const fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: base and len describe a live, initialised (zeroed) mapping that this value owns
        // alone, and the borrow of self keeps it so.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}

// SAFETY: the mapping belongs to this value alone and is not tied to a thread.
unsafe impl Send for Mapping {}

// SAFETY: who shares it learns its address and nothing else; `bytes_mut` needs it alone.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: base and len are those of a mapping that only this value owned.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
