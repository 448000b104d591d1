// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Owned, aligned, bounded buffers, slices of them and scatter-gather lists; any crate may call it.
//! (Skeleton: the bodies are being written.)
#![allow(missing_docs, unused_variables, dead_code, clippy::all)]
extern crate alloc;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::{Deref, DerefMut, Range};

/// A bounded pool of page-aligned buffers in size classes. Cheap to clone; buffers go back on drop.
#[derive(Clone, Debug)]
pub struct Pool(Arc<()>);
impl Pool {
    /// `bytes_max`: hard bound on what is handed out at once.
    pub fn new(bytes_max: usize) -> std::io::Result<Self> { todo!() }
    /// A buffer of `len` bytes (contents: zero or bytes of earlier use; the taker overwrites all that it exposes). None when the bound is reached or len > BUF_LEN_MAX.
    pub fn take(&self, len: usize) -> Option<Buf> { todo!() }
    pub fn bytes_in_use(&self) -> usize { todo!() }
}
/// Largest buffer, bytes.
pub const BUF_LEN_MAX: usize = 8 << 20;

/// A unique, page-aligned buffer; Send.
#[derive(Debug)]
pub struct Buf(Pool);
impl Deref for Buf { type Target = [u8]; fn deref(&self) -> &[u8] { todo!() } }
impl DerefMut for Buf { fn deref_mut(&mut self) -> &mut [u8] { todo!() } }
impl Buf {
    /// Shortens the visible length; never grows.
    pub fn truncate(&mut self, len: usize) { todo!() }
    /// Gives up the right to write: the bytes can now be shared.
    pub fn freeze(self) -> Slice { todo!() }
}

/// A shared, read-only run of bytes that stay alive as long as the slice: part of a frozen `Buf`, of a
/// `Region`, or of static memory. Clone is a reference count.
#[derive(Clone, Debug)]
pub struct Slice(Arc<()>);
impl Slice {
    pub fn empty() -> Self { todo!() }
    pub fn len(&self) -> usize { todo!() }
    pub fn is_empty(&self) -> bool { todo!() }
    /// The part `range`; None if out of bounds.
    pub fn part(&self, range: Range<usize>) -> Option<Self> { todo!() }
    /// The bytes, if nobody can change them: None for a part of a Region.
    pub fn bytes(&self) -> Option<&[u8]> { todo!() }
    /// Copies all into `to` (same length).
    pub fn copy_to(&self, to: &mut [u8]) { todo!() }
    /// Address for the kernel; valid while self lives.
    pub fn as_ptr(&self) -> *const u8 { todo!() }
}
impl From<Vec<u8>> for Slice { fn from(v: Vec<u8>) -> Self { todo!() } }

/// Zeroed, sparse memory that several threads and the kernel read and write at once (a RAM disk).
#[derive(Debug)]
pub struct Region(());
impl Region {
    pub fn new(len: u64) -> std::io::Result<Arc<Self>> { todo!() }
    pub fn len(&self) -> u64 { todo!() }
    /// A part that others may change meanwhile.
    pub fn slice(self: &Arc<Self>, offset: u64, len: usize) -> Option<Slice> { todo!() }
    pub fn read(&self, offset: u64, to: &mut [u8]) { todo!() }
    pub fn write(&self, offset: u64, from: &[u8]) { todo!() }
    pub fn write_slice(&self, offset: u64, from: &Slice) { todo!() }
    /// Gives whole pages back to the system and zeroes the rest: reads as zero afterwards.
    pub fn discard(&self, offset: u64, len: u64) { todo!() }
}

/// Bytes to send: headers copied into an arena of the list, data by reference. Kept and reused: no allocation in steady state.
#[derive(Debug, Default)]
pub struct SgList(());
impl SgList {
    pub fn new() -> Self { todo!() }
    /// Total bytes.
    pub fn len(&self) -> usize { todo!() }
    pub fn is_empty(&self) -> bool { todo!() }
    /// Number of gather elements (adjoining arena bytes count as one).
    pub fn pieces(&self) -> usize { todo!() }
    pub fn push_bytes(&mut self, bytes: &[u8]) { todo!() }
    pub fn push(&mut self, slice: Slice) { todo!() }
    /// The elements in order, as (address, length): addresses are valid until the list is changed.
    pub fn iter(&self) -> impl Iterator<Item = (*const u8, usize)> + '_ { core::iter::empty() }
    /// Copies all bytes out (tests, digests).
    pub fn to_vec(&self) -> Vec<u8> { todo!() }
    /// Drops the references, keeps the memory.
    pub fn clear(&mut self) { todo!() }
}
