// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A cable between two stations of one process, for tests: it needs no interface and no right, and
//! loses, doubles and reorders frames as it is told. To whom frames pass over it, it is a network
//! interface with a name that no other has.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use rustix::event::EventfdFlags;
use wire::ether::Mac;

use crate::Interface;
use crate::Place;

/// A cable, as long as it is there. One station at a time takes connections at one end of it, and
/// this process opens them at the other one.
#[derive(Debug)]
pub struct Cable {
    name: String,
}

/// What a cable does to frames: one in so many, none if zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs)] // all that it does
pub struct Faults {
    /// Is lost.
    pub lost: u64,
    /// Comes twice.
    pub doubled: u64,
    /// Comes behind the next one.
    pub late: u64,
    /// Bytes that a frame may have behind Ethernet's header.
    pub mtu: usize,
}

impl Faults {
    /// A cable as it should be.
    pub const NONE: Self = Self { lost: 0, doubled: 0, late: 0, mtu: 1500 };

    /// One that nobody should use; with jumbo frames, so that much data takes little time all the
    /// same.
    pub const MANY: Self = Self { lost: 250, doubled: 100, late: 50, mtu: 9000 };
}

/// Which end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Opens,
    Takes,
}

/// A station's end.
pub(crate) struct End {
    mac: Mac,
    faults: Faults,
    draws: u64,
    /// One that comes behind the next one.
    late: Option<Vec<u8>>,
    come: Arc<Queue>,
    go: Arc<Queue>,
}

/// One direction.
struct Queue {
    frames: Mutex<VecDeque<Vec<u8>>>,
    /// Readable as long as there are some.
    there: OwnedFd,
}

/// Both directions: to who takes connections, and to who opens them.
struct Strands {
    faults: Faults,
    queues: [Arc<Queue>; 2],
}

static CABLES: Mutex<BTreeMap<String, Strands>> = Mutex::new(BTreeMap::new());

/// Cables of this process so far.
static LAID: AtomicU64 = AtomicU64::new(0);

/// Frames that a direction has room for; what is beyond is dropped, as by a switch.
const FRAMES_MAX: usize = 1024;

const OPENS: Mac = Mac([2, 0, 0, 0, 0, 1]);
const TAKES: Mac = Mac([2, 0, 0, 0, 0, 2]);

impl Cable {
    /// Lays one.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn lay(faults: Faults) -> io::Result<Self> {
        let number = LAID.fetch_add(1, Ordering::Relaxed);
        // As long as the name of an interface may be.
        let name = format!("c{}-{}", std::process::id() % 10_000_000, number % 100_000);
        let queues = [Arc::new(Queue::new()?), Arc::new(Queue::new()?)];
        cables().insert(name.clone(), Strands { faults, queues });
        Ok(Self { name })
    }

    /// The name that it has as an interface.
    #[must_use]
    pub fn interface(&self) -> &str {
        &self.name
    }

    /// Where the station is that takes connections.
    #[must_use]
    pub fn place(&self) -> Place {
        Place { mac: TAKES, interface: Interface::from(self.name.as_str()) }
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        cables().remove(&self.name);
    }
}

impl End {
    /// An end of the cable with this name, if it is one of a cable.
    pub(crate) fn find(name: &str, role: Role) -> Option<Self> {
        let cables = cables();
        let Strands { faults, queues: [to_taker, to_opener] } = cables.get(name)?;
        let (mac, come, go) = match role {
            Role::Opens => (OPENS, to_opener, to_taker),
            Role::Takes => (TAKES, to_taker, to_opener),
        };
        let (come, go, draws) = (Arc::clone(come), Arc::clone(go), u64::from(mac.0[5]));
        Some(Self { mac, faults: *faults, draws, late: None, come, go })
    }

    pub(crate) const fn mac(&self) -> Mac {
        self.mac
    }

    pub(crate) const fn mtu(&self) -> usize {
        self.faults.mtu
    }

    /// As [`engine::packet::PacketSocket::receive`].
    pub(crate) fn receive(&mut self, count: usize, mut take: impl FnMut(&[u8])) -> bool {
        (0..count).all(|_| match self.come.pop() {
            Some(frame) => {
                take(&frame);
                true
            }
            None => false,
        })
    }

    /// A frame that lies in pieces goes on its way, if it does.
    pub(crate) fn send(&mut self, pieces: &[IoSlice<'_>]) {
        let Faults { lost, doubled, late, .. } = self.faults;
        if self.one_in(lost) {
            return;
        }
        let mut frame = Vec::with_capacity(pieces.iter().map(|piece| piece.len()).sum());
        pieces.iter().for_each(|piece| frame.extend_from_slice(piece));
        if self.late.is_none() && self.one_in(late) {
            self.late = Some(frame);
            return;
        }
        if self.one_in(doubled) {
            self.go.push(frame.clone());
        }
        self.go.push(frame);
        if let Some(late) = self.late.take() {
            self.go.push(late);
        }
    }

    /// SplitMix64.
    const fn one_in(&mut self, count: u64) -> bool {
        self.draws = self.draws.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.draws ^ self.draws >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        count > 0 && (word ^ word >> 31).is_multiple_of(count)
    }
}

impl AsFd for End {
    /// Readable when frames have come.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.come.there.as_fd()
    }
}

impl Queue {
    fn new() -> io::Result<Self> {
        let there = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { frames: Mutex::default(), there })
    }

    fn push(&self, frame: Vec<u8>) {
        let mut frames = self.frames.lock().unwrap_or_else(PoisonError::into_inner);
        if frames.len() < FRAMES_MAX {
            frames.push_back(frame);
            // It counts up to a number that no queue reaches.
            let _ = rustix::io::write(&self.there, &1_u64.to_ne_bytes());
        }
    }

    fn pop(&self) -> Option<Vec<u8>> {
        let mut frames = self.frames.lock().unwrap_or_else(PoisonError::into_inner);
        let frame = frames.pop_front();
        if frames.is_empty() {
            let _ = rustix::io::read(&self.there, &mut [0; 8]);
        }
        frame
    }
}

fn cables() -> MutexGuard<'static, BTreeMap<String, Strands>> {
    CABLES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("End").field("mac", &self.mac).finish_non_exhaustive()
    }
}
