// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One queue of an interface: its socket, the memory of its frames, and four rings. What the
//! kernel says in them is checked before it is used.

use std::collections::VecDeque;
use std::io;
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::net::SendFlags;
use rustix::net::sockopt;
use rustix::net::xdp::SocketAddrXdp;
use rustix::net::xdp::SocketAddrXdpFlags;
use rustix::net::xdp::XDP_PGOFF_RX_RING;
use rustix::net::xdp::XDP_PGOFF_TX_RING;
use rustix::net::xdp::XDP_UMEM_PGOFF_COMPLETION_RING;
use rustix::net::xdp::XDP_UMEM_PGOFF_FILL_RING;
use rustix::net::xdp::XdpDesc;
use rustix::net::xdp::XdpDescOptions;
use rustix::net::xdp::XdpOptionsFlags;
use rustix::net::xdp::XdpUmemReg;
use rustix::net::xdp::XdpUmemRegFlags;

use super::Copies;
use super::ring::Mapping;
use super::ring::Ring;
use crate::limits::XDP_CHUNK_BYTES_MAX;
use crate::limits::XDP_CHUNK_BYTES_MIN;
use crate::limits::XDP_FRAME_BYTES_MAX;
use crate::limits::XDP_HEADROOM_BYTES;
use crate::limits::XDP_KICK_FRAMES;
use crate::limits::XDP_KICKS_MAX;
use crate::limits::XDP_MEMORY_BYTES;
use crate::limits::XDP_QUEUE_PATIENCE;

/// How memory is divided, by what a frame may carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) chunk_bytes: u32,
    /// A frame may be longer than a chunk.
    pub(super) in_pieces: bool,
}

impl Shape {
    pub(super) fn of(mtu: usize) -> Self {
        let frame = mtu.saturating_add(ETHERNET_BYTES).min(XDP_FRAME_BYTES_MAX);
        let needed = u32::try_from(frame).unwrap_or(u32::MAX).saturating_add(XDP_HEADROOM_BYTES);
        let chunk_bytes =
            if needed <= XDP_CHUNK_BYTES_MIN { XDP_CHUNK_BYTES_MIN } else { XDP_CHUNK_BYTES_MAX };
        Self { chunk_bytes, in_pieces: needed > chunk_bytes }
    }

    /// What is longer the kernel throws away without a word, and with its chunks.
    pub(super) fn frame_bytes_max(self) -> usize {
        match self.in_pieces {
            true => XDP_FRAME_BYTES_MAX,
            false => usize::try_from(self.chunk_bytes).unwrap_or(usize::MAX),
        }
    }

    pub(super) fn flags(self, copies: Copies) -> SocketAddrXdpFlags {
        // Zero copy where there is one: without a word the kernel falls back by itself.
        let mut flags = SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
        flags.set(SocketAddrXdpFlags::XDP_USE_SG, self.in_pieces);
        flags.set(SocketAddrXdpFlags::XDP_ZEROCOPY, copies == Copies::Refused);
        flags
    }
}

/// One queue of the interface: a socket, its memory, its rings.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) fd: OwnedFd,
    memory: Mapping,
    chunk_bytes: usize,
    frame_bytes_max: usize,
    /// By chunk: the kernel has it. Those to be received into come first.
    lent: Vec<bool>,
    /// Chunks that may be written to.
    free: VecDeque<usize>,
    fill: Ring<u64>,
    completion: Ring<u64>,
    come: Ring<XdpDesc>,
    go: Ring<XdpDesc>,
    /// A frame in pieces, as far as it has come.
    pieces: Pieces,
    pub(super) is_zero_copy: bool,
    /// Frames that were sent since the kernel was last called.
    unflushed: u32,
    /// The interface was down, or gone, when the kernel was last called.
    is_down: bool,
}

#[derive(Debug, Default)]
pub(super) struct Pieces {
    frame: Vec<u8>,
    is_open: bool,
    /// It is none of ours.
    is_too_long: bool,
}

/// What failed.
pub(super) struct Step(pub(super) &'static str, pub(super) io::Error);

impl Queue {
    pub(super) fn open(fd: OwnedFd, at: &SocketAddrXdp, shape: Shape) -> Result<Self, Step> {
        let step = |name| move |error: Errno| Step(name, error.into());
        let memory = Mapping::anonymous(XDP_MEMORY_BYTES).map_err(|error| Step(MEMORY, error))?;
        let chunk_bytes = usize::try_from(shape.chunk_bytes).unwrap_or(usize::MAX);
        let chunks = XDP_MEMORY_BYTES / chunk_bytes;
        // All that is given for frames that come is in either ring at most; so with the others.
        let entries = u32::try_from(chunks / 2).unwrap_or(0);
        let registered = XdpUmemReg {
            addr: memory.address(),
            len: u64::try_from(XDP_MEMORY_BYTES).unwrap_or(0),
            chunk_size: shape.chunk_bytes,
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        sockopt::set_xdp_umem_reg(&fd, registered).map_err(step(MEMORY))?;
        sockopt::set_xdp_umem_fill_ring_size(&fd, entries).map_err(step(RINGS))?;
        sockopt::set_xdp_umem_completion_ring_size(&fd, entries).map_err(step(RINGS))?;
        sockopt::set_xdp_rx_ring_size(&fd, entries).map_err(step(RINGS))?;
        sockopt::set_xdp_tx_ring_size(&fd, entries).map_err(step(RINGS))?;
        let offsets = sockopt::xdp_mmap_offsets(&fd).map_err(step(RINGS))?;
        let wrong = |error| Step(RINGS, error);
        let of = fd.as_fd();
        let fill = Ring::map(of, XDP_UMEM_PGOFF_FILL_RING, offsets.fr, entries).map_err(wrong)?;
        let completion = Ring::map(of, XDP_UMEM_PGOFF_COMPLETION_RING, offsets.cr, entries);
        let completion = completion.map_err(wrong)?;
        let come = Ring::map(of, XDP_PGOFF_RX_RING, offsets.rx, entries).map_err(wrong)?;
        let go = Ring::map(of, XDP_PGOFF_TX_RING, offsets.tx, entries).map_err(wrong)?;
        let (lent, free) = (vec![false; chunks], (chunks / 2..chunks).collect());
        let (pieces, is_zero_copy, unflushed) = (Pieces::default(), false, 0);
        let mut queue = Self {
            fd,
            memory,
            chunk_bytes,
            frame_bytes_max: shape.frame_bytes_max(),
            lent,
            free,
            fill,
            completion,
            come,
            go,
            pieces,
            is_zero_copy,
            unflushed,
            is_down: false,
        };
        (0..chunks / 2).for_each(|chunk| queue.lend(chunk));
        queue.fill.publish_put();
        bind(&queue.fd, at).map_err(step(QUEUE))?;
        let options = sockopt::xdp_options(&queue.fd).map_err(step(RINGS))?;
        queue.is_zero_copy = options.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY);
        Ok(queue)
    }

    /// The kernel may put a frame there.
    fn lend(&mut self, chunk: usize) {
        if let Some(lent) = self.lent.get_mut(chunk) {
            let place = u64::try_from(chunk * self.chunk_bytes).unwrap_or(0);
            *lent = self.fill.put(place);
        }
    }

    pub(super) fn receive(&mut self, count: usize, take: &mut impl FnMut(&[u8])) -> bool {
        let mut taken = 0;
        while taken < count
            && let Some(come) = self.come.take()
        {
            taken += 1;
            let in_receiving = self.lent.len() / 2;
            let goes_on = come.options.contains(XdpDescOptions::XDP_PKT_CONTD);
            let found = self.found(come.addr, come.len);
            let Some((chunk, at, len)) = found.filter(|(chunk, ..)| *chunk < in_receiving) else {
                self.pieces.lose(goes_on);
                continue;
            };
            self.lent[chunk] = false;
            // SAFETY: the chunk was lent, the kernel has given it back by this entry, and gets it
            // again below.
            let bytes = unsafe { self.memory.bytes(at, len) }.unwrap_or_default();
            self.pieces.take(bytes, goes_on, take);
            self.lend(chunk);
        }
        if taken > 0 {
            self.come.publish_taken();
            self.fill.publish_put();
        }
        if self.is_zero_copy && self.fill.needs_wakeup() {
            // That is all that it does; there is nothing to be received by it.
            let _ = rustix::net::recv(&self.fd, &mut [0; 0], RecvFlags::DONTWAIT);
        }
        taken == count
    }

    /// Chunk, place and length of what an entry of the kernel names, if it has that chunk and all
    /// is within it.
    fn found(&self, address: u64, len: u32) -> Option<(usize, usize, usize)> {
        let at = usize::try_from(address).ok()?;
        let len = usize::try_from(len).ok()?;
        let chunk = at / self.chunk_bytes;
        let is_lent = self.lent.get(chunk).is_some_and(|lent| *lent);
        let is_within = (at % self.chunk_bytes).checked_add(len)? <= self.chunk_bytes;
        (is_lent && is_within).then_some((chunk, at, len))
    }

    /// Chunks that were sent are free again.
    fn reap(&mut self) {
        let (mut taken, sending) = (false, self.lent.len() / 2);
        while let Some(address) = self.completion.take() {
            taken = true;
            if let Some((chunk, ..)) = self.found(address, 0)
                && chunk >= sending
            {
                self.lent[chunk] = false;
                self.free.push_back(chunk);
            }
        }
        if taken {
            self.completion.publish_taken();
        }
    }

    pub(super) fn send(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        let len: usize = pieces.iter().map(|piece| piece.len()).sum();
        if len == 0 || len > self.frame_bytes_max {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let chunks = len.div_ceil(self.chunk_bytes);
        if self.free.len() < chunks {
            self.reap();
        }
        let room = usize::try_from(self.go.room()).unwrap_or(0);
        if self.free.len() < chunks || room < chunks {
            self.flush();
            // Where nothing leaves, what is sent is lost, as with a wire that was pulled.
            let why = if self.is_down { Errno::NETDOWN } else { Errno::AGAIN };
            return Err(why.into());
        }
        let mut source = Gathered::new(pieces);
        let mut left = len;
        while left > 0 {
            let Some(chunk) = self.free.pop_front() else { break };
            let (at, part) = (chunk * self.chunk_bytes, left.min(self.chunk_bytes));
            // SAFETY: the chunk is free, so the kernel has given it back or never had it.
            let place = unsafe { self.memory.bytes_mut(at, part) }.unwrap_or_default();
            source.copy_to(place);
            left -= part;
            let mut options = XdpDescOptions::empty();
            options.set(XdpDescOptions::XDP_PKT_CONTD, left > 0);
            let addr = u64::try_from(at).unwrap_or(0);
            let len = u32::try_from(part).unwrap_or(0);
            self.lent[chunk] = self.go.put(XdpDesc { addr, len, options });
        }
        self.go.publish_put();
        self.unflushed += 1;
        if self.unflushed >= XDP_KICK_FRAMES {
            self.flush();
        }
        Ok(())
    }

    pub(super) fn flush(&mut self) -> bool {
        self.unflushed = 0;
        for _ in 0..XDP_KICKS_MAX {
            if self.go.waiting() == 0 || !self.go.needs_wakeup() {
                return true;
            }
            // What it says is not of single frames: what is still in the ring has not left.
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let sent = rustix::net::send(&self.fd, &[], flags);
            // It takes nothing however soon it is asked again: what is sent next asks.
            self.is_down = matches!(sent, Err(Errno::NETDOWN | Errno::NXIO));
            if self.is_down {
                return true;
            }
        }
        self.go.waiting() == 0
    }
}

/// Whoever had the queue before may have gone: the kernel lets it go a little later.
fn bind(fd: &OwnedFd, at: &SocketAddrXdp) -> rustix::io::Result<()> {
    let begin = Instant::now();
    loop {
        match rustix::net::bind(fd, at) {
            Err(Errno::BUSY) if begin.elapsed() < XDP_QUEUE_PATIENCE => {
                std::thread::sleep(XDP_QUEUE_PATIENCE / 20);
            }
            result => return result,
        }
    }
}

impl Pieces {
    /// One more piece; `goes_on`: another one follows.
    pub(super) fn take(&mut self, bytes: &[u8], goes_on: bool, take: &mut impl FnMut(&[u8])) {
        if !goes_on && !self.is_open {
            return take(bytes);
        }
        self.is_open = goes_on;
        self.is_too_long |= self.frame.len() + bytes.len() > XDP_FRAME_BYTES_MAX;
        if !self.is_too_long {
            self.frame.extend_from_slice(bytes);
        }
        if !goes_on {
            if !self.is_too_long {
                take(&self.frame);
            }
            self.frame.clear();
            self.is_too_long = false;
        }
    }

    /// One more piece, of which nothing is known: its frame is none of ours.
    pub(super) fn lose(&mut self, goes_on: bool) {
        if goes_on || self.is_open {
            self.is_too_long = true;
            self.take(&[], goes_on, &mut |_| ());
        }
    }
}

/// Pieces, to be copied in order.
pub(super) struct Gathered<'a> {
    pieces: &'a [IoSlice<'a>],
    /// Bytes of the first one that were copied.
    done: usize,
}

impl<'a> Gathered<'a> {
    pub(super) const fn new(pieces: &'a [IoSlice<'a>]) -> Self {
        Self { pieces, done: 0 }
    }

    /// Fills `place`, or as much of it as there is.
    pub(super) fn copy_to(&mut self, mut place: &mut [u8]) {
        while !place.is_empty()
            && let Some((first, others)) = self.pieces.split_first()
        {
            let rest = first.get(self.done..).unwrap_or_default();
            let count = rest.len().min(place.len());
            let (front, behind) = place.split_at_mut(count);
            front.copy_from_slice(&rest[..count]);
            place = behind;
            self.done += count;
            if self.done >= first.len() {
                (self.pieces, self.done) = (others, 0);
            }
        }
    }
}

const MEMORY: &str = "memory for frames";
const RINGS: &str = "rings for frames";
pub(super) const QUEUE: &str = "a queue of the interface";

/// Ethernet's header.
const ETHERNET_BYTES: usize = 14;
