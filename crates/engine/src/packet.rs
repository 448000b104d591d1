// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames of one EtherType on a network interface (packet(7)).
//!
//! What comes is in a ring that the kernel fills (PACKET_MMAP): no system call for a frame, and one
//! copy, which is the kernel's. What goes is handed over in one call for each frame, and copied by
//! the kernel from where it lies.
//!
//! The ring is of version 2, whose frames can be read as they come. Version 3 hands out blocks of
//! frames, a millisecond late at best where they do not fill one: as much as several round trips.

use std::io;
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::ptr;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;

use rustix::mm::MapFlags;
use rustix::mm::ProtFlags;
use rustix::net::AddressFamily;
use rustix::net::SocketFlags;
use rustix::net::SocketType;

use crate::limits::PACKET_BLOCK_BYTES;
use crate::limits::PACKET_RING_BYTES;
use crate::limits::PACKET_SLOT_BYTES_MAX;
use crate::limits::PACKET_SLOT_BYTES_MIN;
use crate::netdevice::done;
use crate::netdevice::facts;

/// A socket for whole frames, Ethernet's header included.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
    ring: Ring,
    index: u32,
    mac: [u8; 6],
    mtu: usize,
}

impl PacketSocket {
    /// Frames of `ethertype` that come to us on `interface`, from now on.
    ///
    /// # Errors
    /// There is no such interface, it is no Ethernet or is down, or we may not (CAP_NET_RAW).
    pub fn open(interface: &str, ethertype: u16) -> io::Result<Self> {
        let (family, kind) = (AddressFamily::PACKET, SocketType::RAW);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Without a protocol nothing comes before it is bound to the interface.
        let fd = rustix::net::socket_with(family, kind, flags, None)?;
        let index = rustix::net::netdevice::name_to_index(&fd, interface)?;
        let (mac, mtu) = facts(&fd, interface)?;
        let ring = Ring::new(&fd, mtu)?;
        bind(&fd, index, ethertype)?;
        Ok(Self { fd, ring, index, mac, mtu })
    }

    /// Whether this process may have one, whatever the interface.
    ///
    /// # Errors
    /// What the system says.
    pub fn examine() -> io::Result<()> {
        let (family, kind) = (AddressFamily::PACKET, SocketType::RAW);
        rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
        Ok(())
    }

    /// The address of the interface.
    #[must_use]
    pub const fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// Bytes that a frame may have behind Ethernet's header, as the interface is set now.
    #[must_use]
    pub const fn mtu(&self) -> usize {
        self.mtu
    }

    /// Whether it is still at its interface. It leaves one that is deleted, or goes to another
    /// network, for ever: also where that comes back, or another one has its number.
    #[must_use]
    pub fn is_attached(&self) -> bool {
        // Who is not told takes it for granted.
        bound(&self.fd).map_or(true, |index| u32::try_from(index) == Ok(self.index))
    }

    /// Gives the frames to `take` that have come, at most `count` of them; whether there may be
    /// more.
    pub fn receive(&mut self, count: usize, mut take: impl FnMut(&[u8])) -> bool {
        (0..count).all(|_| self.ring.take(&mut take))
    }

    /// Sends a frame that lies in pieces.
    ///
    /// # Errors
    /// `WouldBlock`: not now, see [`PacketSocket::as_fd`]. Others: the interface is down, or has
    /// dropped it.
    pub fn send(&self, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        let flags = rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL;
        let mut control = rustix::net::SendAncillaryBuffer::default();
        rustix::net::sendmsg(&self.fd, pieces, &mut control, flags)?;
        Ok(())
    }

    /// Takes the error that [`PacketSocket::as_fd`] is told to have, as when the interface has gone
    /// down: until then every wait for it ends at once. Who sends hears of what goes on.
    pub fn forget_error(&self) {
        let _ = rustix::net::sockopt::socket_error(&self.fd);
    }
}

impl AsFd for PacketSocket {
    /// Readable when frames have come, writable when some may be sent.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The number of the interface that it is bound to; none has a negative one.
///
/// JUSTIFICATION: as [`bind`].
fn bound(fd: &OwnedFd) -> io::Result<i32> {
    let mut address = at(0, 0);
    let mut len = u32::try_from(size_of_val(&address)).unwrap_or(0);
    // SAFETY: the address lives during the call, `len` is its length, and any bytes are one.
    let result =
        unsafe { libc::getsockname(fd.as_raw_fd(), (&raw mut address).cast(), &raw mut len) };
    done(result).map(|()| address.sll_ifindex)
}

/// JUSTIFICATION: rustix knows addresses of packet sockets no more than the standard library does.
fn bind(fd: &OwnedFd, index: u32, ethertype: u16) -> io::Result<()> {
    let address = at(i32::try_from(index).map_err(|_| io::ErrorKind::InvalidInput)?, ethertype);
    let len = u32::try_from(size_of_val(&address)).unwrap_or(0);
    // SAFETY: the address is whole and lives during the call, and `len` is its length.
    let result = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) };
    done(result)
}

fn at(index: i32, ethertype: u16) -> libc::sockaddr_ll {
    libc::sockaddr_ll {
        sll_family: u16::try_from(libc::AF_PACKET).unwrap_or(0),
        sll_protocol: ethertype.to_be(),
        sll_ifindex: index,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    }
}

/// Slots of memory that the kernel fills with frames, in turn.
///
/// JUSTIFICATION: nothing else receives frames without a system call for each; a library that
/// wraps it has the same unsafe code.
#[derive(Debug)]
struct Ring {
    base: NonNull<u8>,
    slot_bytes: usize,
    /// The slot whose turn it is.
    next: usize,
}

/// `struct tpacket_req` (linux/if_packet.h).
#[repr(C)]
struct Request {
    block_size: u32,
    block_nr: u32,
    frame_size: u32,
    frame_nr: u32,
}

/// SOL_PACKET and its options, and what they take (linux/if_packet.h).
const SOL_PACKET: i32 = 263;
const PACKET_RX_RING: i32 = 5;
const PACKET_VERSION: i32 = 10;
const TPACKET_V2: i32 = 1;
const TP_STATUS_USER: u32 = 1;

/// Offsets in `struct tpacket2_hdr`, whose first word is the status.
const CAPTURED: usize = 8;
const MAC: usize = 12;
/// Longer than that header, an address behind it, and what aligns the frame.
const SLOT_FRONT: usize = 128;

impl Ring {
    fn new(fd: &OwnedFd, mtu: usize) -> io::Result<Self> {
        set(fd, PACKET_VERSION, &TPACKET_V2)?;
        let slot_bytes = (mtu + SLOT_FRONT).next_power_of_two();
        let slot_bytes = slot_bytes.clamp(PACKET_SLOT_BYTES_MIN, PACKET_SLOT_BYTES_MAX);
        let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let request = Request {
            block_size: number(PACKET_BLOCK_BYTES),
            block_nr: number(PACKET_RING_BYTES / PACKET_BLOCK_BYTES),
            frame_size: number(slot_bytes),
            frame_nr: number(PACKET_RING_BYTES / slot_bytes),
        };
        set(fd, PACKET_RX_RING, &request)?;
        let (access, flags, len) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, PACKET_RING_BYTES);
        // SAFETY: the kernel chooses the address, so no memory of anybody else is touched.
        let base = unsafe { rustix::mm::mmap(ptr::null_mut(), len, access, flags, fd, 0) }?;
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, slot_bytes, next: 0 })
    }

    /// Gives the next frame to `take`, if it has come, and its slot back.
    fn take(&mut self, take: &mut impl FnMut(&[u8])) -> bool {
        let start = self.base.as_ptr().wrapping_add(self.next * self.slot_bytes);
        let status = start.cast::<u32>();
        // SAFETY: the word is in the mapping and aligned; both sides use it atomically.
        let status = unsafe { AtomicU32::from_ptr(status) };
        if status.load(Ordering::Acquire) & TP_STATUS_USER == 0 {
            return false;
        }
        let behind = start.wrapping_add(size_of::<u32>()).cast_const();
        // SAFETY: the slot is in the mapping, which is live, and ours alone until its status says
        // otherwise; the kernel has written it before it set the status, which is left out.
        let slot = unsafe { std::slice::from_raw_parts(behind, self.slot_bytes - 4) };
        take(frame(slot));
        self.next = (self.next + 1) % (PACKET_RING_BYTES / self.slot_bytes);
        status.store(0, Ordering::Release);
        true
    }
}

/// The frame in a slot; `slot` begins behind the status.
fn frame(slot: &[u8]) -> &[u8] {
    let field = |at: usize| slot.get(at - size_of::<u32>()..).unwrap_or_default();
    let captured = field(CAPTURED).first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes));
    let mac = field(MAC).first_chunk().map_or(0, |bytes| u16::from_ne_bytes(*bytes));
    let rest = slot.get(usize::from(mac).saturating_sub(size_of::<u32>())..).unwrap_or_default();
    rest.get(..usize::try_from(captured).unwrap_or(usize::MAX)).unwrap_or_default()
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: base and length are those of a mapping that only this value owned.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), PACKET_RING_BYTES) };
    }
}

// SAFETY: the mapping belongs to this value alone and is not tied to a thread.
unsafe impl Send for Ring {}

fn set<T>(fd: &OwnedFd, option: i32, value: &T) -> io::Result<()> {
    let len = u32::try_from(size_of::<T>()).unwrap_or(0);
    let value = ptr::from_ref(value).cast();
    // SAFETY: the value lives during the call, and `len` is its length.
    let result = unsafe { libc::setsockopt(fd.as_raw_fd(), SOL_PACKET, option, value, len) };
    done(result)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;
    use std::time::Instant;

    use rustix::event::PollFd;
    use rustix::event::PollFlags;
    use rustix::event::Timespec;

    use super::*;

    /// Local experimental, the second one: nobody else's tests use it.
    const ETHERTYPE: u16 = 0x88B6;

    /// None, and a word about it, where this process may not.
    fn open() -> Option<PacketSocket> {
        match PacketSocket::open("lo", ETHERTYPE) {
            Ok(socket) => Some(socket),
            Err(error) => {
                println!("skipped: no packet socket on lo: {error}");
                None
            }
        }
    }

    #[test]
    fn frames_come_back_whole_and_in_order() {
        let Some(mut socket) = open() else { return };
        assert_eq!(socket.mac(), [0; 6]);
        assert!(socket.mtu() >= 1500);
        let mut header = [0; 14];
        header[12..].copy_from_slice(&ETHERTYPE.to_be_bytes());
        let run = std::process::id().to_ne_bytes();
        let payload: Vec<u8> = (0..9000_u32).map(|at| at.to_le_bytes()[0]).collect();
        for number in 0..200_u16 {
            let number = number.to_be_bytes();
            let pieces = [&header[..], &run, &number, &payload].map(IoSlice::new);
            socket.send(&pieces).unwrap();
        }
        let (mut next, begin) = (0_u16, Instant::now());
        while next < 200 && begin.elapsed() < Duration::from_secs(10) {
            socket.receive(64, |frame| {
                let (front, rest) = frame.split_at(14);
                assert_eq!(front[12..], header[12..]);
                if rest[..4] == run {
                    assert_eq!(rest[4..6], next.to_be_bytes());
                    assert_eq!(rest[6..], payload);
                    next += 1;
                }
            });
        }
        assert_eq!(next, 200);
    }

    /// In a network of its own, since no other test may lose its loopback interface.
    #[test]
    fn an_interface_that_goes_down_is_told_of_once() {
        let alone = || {
            let network = rustix::thread::UnshareFlags::NEWNET;
            // SAFETY: of what is shared this thread alone has another network from now on.
            unsafe { rustix::thread::unshare_unsafe(network) }.ok()?;
            let set = |word| {
                let ip =
                    std::process::Command::new("ip").args(["link", "set", "lo", word]).status();
                ip.ok().filter(std::process::ExitStatus::success)
            };
            set("up")?;
            let socket = open()?;
            let is_told_of = || {
                let mut polled = [PollFd::new(&socket, PollFlags::IN)];
                let wait = Timespec { tv_sec: 0, tv_nsec: 0 };
                rustix::event::poll(&mut polled, Some(&wait)).unwrap() > 0
            };
            assert!(!is_told_of());
            for word in ["down", "up"] {
                set(word)?;
                assert_eq!(is_told_of(), word == "down");
                socket.forget_error();
                assert!(!is_told_of());
            }
            Some(())
        };
        if std::thread::spawn(alone).join().unwrap().is_none() {
            println!("skipped: no network of its own");
        }
    }

    #[test]
    fn what_is_no_interface_is_an_error() {
        if open().is_some() {
            assert!(PacketSocket::open("nowhere0", ETHERTYPE).is_err());
        }
    }
}
