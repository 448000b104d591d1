// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Receive buffers of a port and the views of received bytes.

use std::cell::Cell;
use std::cell::RefCell;
use std::fmt;
use std::io;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU16;
use std::sync::atomic::Ordering;

use io_uring::types::BufRingEntry;

use crate::limits;
use crate::memory::Mapping;
use crate::ring::Producer;

/// Received bytes: readable by `Deref`, given back to the port by dropping.
///
/// A port has few receive buffers; a chunk that is kept is missing there. Stays usable after its
/// port is gone. `From<Vec<u8>>` is for ports without a kernel.
pub struct Chunk(Inner);

enum Inner {
    Buffer { home: Rc<ReceiveBuffers>, id: u16, len: usize },
    Lent { lender: Rc<Lender>, lent: Lent },
    Heap(Vec<u8>),
}

/// A chunk on its way to another thread, whose [`Lender`] makes one of it again.
#[derive(Debug)]
pub(crate) struct Lent {
    id: u16,
    len: usize,
}

impl Chunk {
    /// The same bytes for another thread. Only chunks of ports that have receive buffers are lent.
    pub(crate) fn lend(mut self) -> Lent {
        match std::mem::replace(&mut self.0, Inner::Heap(Vec::new())) {
            Inner::Buffer { id, len, .. } => Lent { id, len },
            Inner::Lent { lent, .. } => lent,
            Inner::Heap(_) => panic!("a port of the kernel receives into its buffers"),
        }
    }
}

impl Deref for Chunk {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            // SAFETY: `id` was taken from `home` for this chunk, so nobody writes to the buffer
            // until drop gives it back; `len` is clamped to its size and mappings start zeroed.
            Inner::Buffer { home, id, len } => unsafe {
                std::slice::from_raw_parts(home.address(*id), *len)
            },
            // SAFETY: as above; it was lent to us with the chunk, and goes back with its drop.
            Inner::Lent { lender, lent } => unsafe {
                std::slice::from_raw_parts(lender.address(lent.id), lent.len)
            },
            Inner::Heap(bytes) => bytes,
        }
    }
}

impl From<Vec<u8>> for Chunk {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Inner::Heap(bytes))
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        match &self.0 {
            Inner::Buffer { home, id, .. } => home.give_back(*id),
            Inner::Lent { lender, lent } => lender.give_back(lent.id),
            Inner::Heap(_) => {}
        }
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chunk").field("len", &self.len()).finish()
    }
}

/// Equal buffers in one mapping, handed out by this side (epoll) or by the kernel (io_uring).
pub(crate) struct ReceiveBuffers {
    memory: Arc<Mapping>,
    bytes: usize,
    available: Cell<usize>,
    returns: Returns,
    spares: Spares,
}

/// Where buffers go back to.
enum Returns {
    /// A stack, so that the buffer used last, whose memory is in the cache, is used next.
    Stack(Cell<Vec<u16>>),
    /// The ring that the kernel takes buffers from, in turn.
    Ring(ProvidedRing),
}

/// Buffers that the kernel does not have, because those that it has are enough.
#[derive(Default)]
struct Spares {
    ids: Cell<Vec<u16>>,
    /// How many the kernel shall have.
    wanted: Cell<usize>,
    /// Buffers that came back since `wanted` was changed.
    returned: Cell<u32>,
}

impl ReceiveBuffers {
    /// `count` buffers of `bytes` bytes in a stack.
    pub(crate) fn stack(count: u16, bytes: usize) -> io::Result<Rc<Self>> {
        let free = (0..count).rev().collect();
        Self::new(count, bytes, Returns::Stack(Cell::new(free)))
    }

    /// `count` buffers of `bytes` bytes in a ring for the kernel; `count` is a power of two.
    pub(crate) fn ring(count: u16, bytes: usize) -> io::Result<Rc<Self>> {
        if !count.is_power_of_two() || count > limits::RECEIVE_BUFFERS_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let ring = ProvidedRing::new(count)?;
        let new = Self::new(count, bytes, Returns::Ring(ring))?;
        new.available.set(0);
        new.spares.wanted.set(limits::RECEIVE_BUFFERS_HOT);
        (0..count).for_each(|id| new.give_back(id));
        Ok(new)
    }

    fn new(count: u16, bytes: usize, returns: Returns) -> io::Result<Rc<Self>> {
        let total = bytes.checked_mul(usize::from(count)).ok_or(io::ErrorKind::OutOfMemory)?;
        let memory = Arc::new(Mapping::new(total)?);
        let available = Cell::new(usize::from(count));
        Ok(Rc::new(Self { memory, bytes, available, returns, spares: Spares::default() }))
    }

    /// Buffers that are ready to be filled.
    pub(crate) const fn available(&self) -> usize {
        self.available.get()
    }

    /// Where the buffers are, one after the other.
    pub(crate) fn memory(&self) -> Arc<Mapping> {
        Arc::clone(&self.memory)
    }

    /// Size of each buffer.
    pub(crate) const fn buffer_bytes(&self) -> usize {
        self.bytes
    }

    /// Address of the ring of descriptors for the kernel; None for a stack.
    pub(crate) fn ring_address(&self) -> Option<u64> {
        match &self.returns {
            Returns::Ring(ring) => Some(ring.entries.as_ptr().addr() as u64),
            Returns::Stack(_) => None,
        }
    }

    /// Takes a buffer from the stack; None if all are in use.
    pub(crate) fn take(&self) -> Option<u16> {
        let Returns::Stack(free) = &self.returns else { return None };
        let mut ids = free.take();
        let id = ids.pop();
        free.set(ids);
        if id.is_some() {
            self.available.set(self.available.get() - 1);
        }
        id
    }

    /// Whether there is a buffer that the kernel does not have.
    pub(crate) fn has_spare(&self) -> bool {
        let ids = self.spares.ids.take();
        let has = !ids.is_empty();
        self.spares.ids.set(ids);
        has
    }

    /// Takes one of those: the last one that came back.
    pub(crate) fn take_spare(&self) -> Option<u16> {
        let mut ids = self.spares.ids.take();
        let id = ids.pop();
        self.spares.ids.set(ids);
        id
    }

    /// Gives it back as it was.
    pub(crate) fn put_spare(&self, id: u16) {
        let mut ids = self.spares.ids.take();
        ids.push(id);
        self.spares.ids.set(ids);
    }

    /// Notes that the kernel took `id` from the ring.
    pub(crate) fn taken(&self) {
        self.available.set(self.available.get().saturating_sub(1));
    }

    /// Gives `id` back: the caller must be the one who holds it.
    pub(crate) fn give_back(&self, id: u16) {
        match &self.returns {
            Returns::Stack(free) => {
                let mut ids = free.take();
                ids.push(id);
                free.set(ids);
            }
            Returns::Ring(ring) => {
                if !self.is_wanted() {
                    let mut ids = self.spares.ids.take();
                    ids.push(id);
                    return self.spares.ids.set(ids);
                }
                ring.push(self.address(id), self.bytes, id);
            }
        }
        self.available.set(self.available.get() + 1);
    }

    /// Whether the kernel shall have one more. From time to time it shall have fewer.
    fn is_wanted(&self) -> bool {
        let Spares { wanted, returned, .. } = &self.spares;
        returned.set(returned.get() + 1);
        if returned.get() >= limits::RECEIVE_BUFFERS_COOLING {
            returned.set(0);
            wanted.set(wanted.get().saturating_sub(1).max(limits::RECEIVE_BUFFERS_HOT));
        }
        self.available.get() < wanted.get()
    }

    /// So many sockets found no buffer: each shall find one. A single socket that is faster than we
    /// are gets no more, since it would only fill what has left the cache.
    pub(crate) fn want(&self, sockets: usize) {
        let Returns::Ring(ring) = &self.returns else { return };
        let Spares { ids, wanted, returned } = &self.spares;
        let more = limits::RECEIVE_BUFFERS_HOT + sockets.saturating_sub(1);
        let more = more.min(usize::from(ring.mask) + 1);
        if more > wanted.get() {
            wanted.set(more);
            returned.set(0);
        }
        let mut spares = ids.take();
        while self.available.get() < wanted.get()
            && let Some(id) = spares.pop()
        {
            ring.push(self.address(id), self.bytes, id);
            self.available.set(self.available.get() + 1);
        }
        ids.set(spares);
    }

    /// Address of buffer `id`.
    pub(crate) fn address(&self, id: u16) -> *mut u8 {
        self.memory.as_ptr().wrapping_add(usize::from(id) * self.bytes)
    }

    /// A view of the first `len` bytes of `id`, which the caller holds and hands over.
    pub(crate) fn chunk(self: &Rc<Self>, id: u16, len: usize) -> Chunk {
        Chunk(Inner::Buffer { home: Rc::clone(self), id, len: len.min(self.bytes) })
    }
}

impl fmt::Debug for ReceiveBuffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("ReceiveBuffers");
        fields.field("bytes", &self.bytes).field("available", &self.available).finish()
    }
}

/// Receive buffers of a port in another thread: chunks are made of what that thread lent, and go
/// back to it over a ring.
#[derive(Debug)]
pub(crate) struct Lender {
    memory: Arc<Mapping>,
    bytes: usize,
    returns: RefCell<Producer<u16>>,
}

impl Lender {
    /// `memory` has buffers of `bytes` bytes each; `returns` has room for all of them.
    pub(crate) const fn new(memory: Arc<Mapping>, bytes: usize, returns: Producer<u16>) -> Self {
        Self { memory, bytes, returns: RefCell::new(returns) }
    }

    /// What was lent, to be read here.
    pub(crate) fn chunk(self: &Rc<Self>, lent: Lent) -> Chunk {
        Chunk(Inner::Lent { lender: Rc::clone(self), lent })
    }

    /// True if the owner sleeps and waits for buffers that have gone back.
    pub(crate) fn must_ring(&self) -> bool {
        self.returns.borrow().must_ring()
    }

    fn address(&self, id: u16) -> *const u8 {
        self.memory.as_ptr().wrapping_add(usize::from(id) * self.bytes)
    }

    fn give_back(&self, id: u16) {
        let pushed = self.returns.borrow_mut().push(id);
        debug_assert!(pushed.is_ok(), "there is room for all buffers");
    }
}

/// The descriptors of free buffers, shared with the kernel (io_uring_register_buf_ring(3)).
struct ProvidedRing {
    entries: Mapping,
    mask: u16,
    tail: Cell<u16>,
}

impl ProvidedRing {
    fn new(count: u16) -> io::Result<Self> {
        let entries = Mapping::new(usize::from(count) * size_of::<BufRingEntry>())?;
        Ok(Self { entries, mask: count - 1, tail: Cell::new(0) })
    }

    fn push(&self, address: *mut u8, bytes: usize, id: u16) {
        let tail = self.tail.get();
        let base = self.entries.as_ptr().cast::<BufRingEntry>();
        let slot = base.wrapping_add(usize::from(tail & self.mask));
        // SAFETY: the slot is inside the mapping (masked) and aligned (the mapping is page
        // aligned); the kernel does not read it before the tail is moved, and only reads.
        let entry = unsafe { &mut *slot };
        entry.set_addr(address.addr() as u64);
        entry.set_len(u32::try_from(bytes).unwrap_or(u32::MAX));
        entry.set_bid(id);
        let next = tail.wrapping_add(1);
        self.tail.set(next);
        // SAFETY: `base` is the first entry of the ring, which is live and initialised.
        let tail = unsafe { BufRingEntry::tail(base) };
        // SAFETY: the tail is an aligned u16 inside the mapping; both sides use it atomically.
        let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
        tail.store(next, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_go_back_and_outlive_the_port() {
        let home = ReceiveBuffers::stack(2, 4096).unwrap();
        let a = home.take().unwrap();
        let b = home.take().unwrap();
        assert_ne!(a, b);
        assert_eq!(home.take(), None);
        let chunk = home.chunk(a, 10);
        assert_eq!(chunk.len(), 10);
        drop(chunk);
        assert_eq!(home.available(), 1);
        assert_eq!(home.take(), Some(a));
        let last = home.chunk(b, 1 << 20);
        drop(home);
        assert_eq!(last.len(), 4096);
        assert!(last.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn the_kernel_has_more_buffers_while_more_sockets_need_them() {
        let home = ReceiveBuffers::ring(64, 4096).unwrap();
        assert_eq!(home.available(), limits::RECEIVE_BUFFERS_HOT);
        home.want(1);
        assert_eq!(home.available(), limits::RECEIVE_BUFFERS_HOT);
        home.want(20);
        assert_eq!(home.available(), limits::RECEIVE_BUFFERS_HOT + 19);
        home.want(1000);
        assert_eq!(home.available(), 64);
        for _ in 0..limits::RECEIVE_BUFFERS_COOLING * 60 {
            home.taken();
            drop(home.chunk(3, 1));
        }
        assert_eq!(home.available(), limits::RECEIVE_BUFFERS_HOT);
    }

    #[test]
    fn a_ring_takes_only_powers_of_two() {
        assert!(ReceiveBuffers::ring(3, 4096).is_err());
        let home = ReceiveBuffers::ring(4, 4096).unwrap();
        assert_eq!(home.available(), 4);
        home.taken();
        drop(home.chunk(2, 1));
        assert_eq!(home.available(), 4);
        assert_eq!(&*Chunk::from(vec![1, 2]), &[1, 2]);
    }
}
