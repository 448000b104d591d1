// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections: two ends, a pipe each way, and what can befall them.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use buf::SgList;
use clock::Instant;
use engine::Landing;
use engine::Token;

use crate::adapters::Op;
use crate::adapters::Verbs;
use crate::frames::Frames;
use crate::news::News;
use crate::tap::Tap;

/// Names a connection; numbers are never used again within a run.
pub(crate) type LinkId = u64;

/// Which end: 0 is who connected (the initiator), 1 who was connected to (the target).
pub(crate) type Side = usize;

/// An end of a connection whose number its port knows, or will.
#[derive(Debug, Default)]
pub(crate) struct End {
    /// The port it belongs to.
    pub(crate) desk: usize,
    /// Kept so that its number stays taken.
    pub(crate) fd: Option<OwnedFd>,
    /// The token of `Work::Receive`.
    pub(crate) receiving: Option<Token>,
    /// Where the next bytes go, and how many have gone there.
    pub(crate) landing: Option<(Landing, usize)>,
    pub(crate) paused: bool,
    /// Has arrived and was not yet given to the port.
    pub(crate) unread: VecDeque<u8>,
    /// The peer sends no more, or (with an errno) there is no connection any more.
    pub(crate) ending: Option<Option<i32>>,
    pub(crate) sending: Option<Sending>,
    /// End of stream follows the send under way.
    pub(crate) shut: bool,
    /// The token of `Work::Detach`, and the number that the end has at its port.
    pub(crate) detaching: Option<(Token, u32)>,
    /// The port has given it up.
    pub(crate) closed: bool,
}

/// A `Work::Send` under way.
#[derive(Debug)]
pub(crate) struct Sending {
    pub(crate) token: Token,
    pub(crate) list: SgList,
    /// Bytes that the pipe has taken.
    pub(crate) taken: usize,
    /// All bytes, if they are not those of the list. Else each piece is read from memory as late as
    /// a kernel would, so that whoever changes it too early is found out.
    pub(crate) bytes: Option<Vec<u8>>,
}

/// What is on its way.
#[derive(Debug)]
pub(crate) enum Segment {
    Bytes(Vec<u8>),
    /// What an adapter was given to do.
    Op(Op),
    /// End of stream.
    Fin,
    /// The connection is gone.
    Reset,
}

/// One direction.
#[derive(Debug, Default)]
pub(crate) struct Pipe {
    pub(crate) segments: VecDeque<(Instant, Segment)>,
    /// Bytes in `segments`.
    pub(crate) bytes: usize,
    /// Bytes that have come to the other side.
    pub(crate) arrived: u64,
    /// Nothing arrives before what was sent before it.
    pub(crate) last: Instant,
    /// A byte of the next data is to be flipped.
    pub(crate) flips: u32,
    /// So many of the next headers are to lie.
    pub(crate) lies: u32,
    /// The next FPDU never ends.
    pub(crate) tears: u32,
    /// One has not: what is sent behind it is lost.
    pub(crate) is_torn: bool,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) ends: [End; 2],
    /// By the side that sends.
    pub(crate) pipes: [Pipe; 2],
    /// Nothing arrives before.
    pub(crate) stalled_until: Instant,
    /// Nothing arrives any more.
    pub(crate) dead: bool,
    /// Window of each direction, bytes.
    pub(crate) window: usize,
    /// What it is, as far as the bytes tell.
    pub(crate) tap: Tap,
    pub(crate) news: News,
    /// It is one of adapters.
    pub(crate) verbs: Option<Verbs>,
    /// It goes over raw Ethernet.
    pub(crate) frames: Option<Box<Frames>>,
}

impl Link {
    /// Room for bytes from `side`.
    pub(crate) fn room(&self, side: Side) -> usize {
        let used = self.pipes[side].bytes + self.ends[1 - side].unread.len();
        self.window.saturating_sub(used)
    }

    /// Nobody holds an end any more and nothing is on its way that anybody would notice.
    pub(crate) fn is_over(&self) -> bool {
        self.ends.iter().all(|end| end.closed)
    }
}

/// All connections.
#[derive(Debug, Default)]
pub(crate) struct Net {
    pub(crate) links: BTreeMap<LinkId, Link>,
    next: LinkId,
}

impl Net {
    pub(crate) fn insert(&mut self, link: Link) -> LinkId {
        self.next += 1;
        self.links.insert(self.next, link);
        self.next
    }
}
