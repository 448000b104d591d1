// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a queue pair takes and gives, in the words of RFC 5040 and of verbs.

use crate::limits::HEAD_LEN_MAX;
use crate::region::Withdrawn;
use crate::violation::Violation;
use buf::Buf;
use buf::Slice;
use core::fmt;
use core::ops::Range;
use wire::iwarp::Cause;
use wire::iwarp::Opcode;
use wire::iwarp::Stag;
use wire::iwarp::TaggedOffset;

/// Names an operation for who posted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkId(pub u64);

/// Whether a Send wakes who receives it (RFC 5040 §5.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // it does, or it does not
pub enum Notify {
    /// It waits to be found.
    #[default]
    Quietly,
    /// Send with Solicited Event.
    Solicited,
}

/// The first bytes of a Send, by value: the headers of the upper layer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Head {
    bytes: [u8; HEAD_LEN_MAX],
    len: usize,
}

impl Head {
    /// Without any bytes.
    pub const EMPTY: Self = Self { bytes: [0; HEAD_LEN_MAX], len: 0 };

    /// One behind the other; None: they are more than [`HEAD_LEN_MAX`].
    #[must_use]
    pub fn of(parts: &[&[u8]]) -> Option<Self> {
        let mut head = Self::EMPTY;
        for part in parts {
            let end = head.len.checked_add(part.len())?;
            head.bytes.get_mut(head.len..end)?.copy_from_slice(part);
            head.len = end;
        }
        Some(head)
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl fmt::Debug for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Head").field("len", &self.len).finish_non_exhaustive()
    }
}

/// What is posted to be sent.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_enums)] // RFC 5040 has these
pub enum Work {
    /// A message for the next buffer of the peer.
    Send {
        /// How the message begins.
        head: Head,
        /// The rest of it.
        payload: Slice,
        /// An STag of the peer that ends with it.
        invalidate: Option<Stag>,
        /// Whether the peer is woken.
        notify: Notify,
    },
    /// Bytes for memory of the peer.
    Write {
        /// The bytes.
        payload: Slice,
        /// The memory.
        stag: Stag,
        /// The place in it.
        offset: TaggedOffset,
    },
    /// Bytes from memory of the peer.
    Read {
        /// Our memory.
        sink: Stag,
        /// The place in it.
        sink_offset: TaggedOffset,
        /// The peer's.
        source: Stag,
        /// The place in it.
        source_offset: TaggedOffset,
        /// How many.
        length: u32,
    },
}

impl Work {
    /// Bytes that it sends.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Send { head, payload, .. } => head.bytes().len().saturating_add(payload.len()),
            Self::Write { payload, .. } => payload.len(),
            Self::Read { .. } => 0,
        }
    }

    /// It sends no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What the message is on the wire.
    pub(crate) const fn opcode(&self) -> Opcode {
        match self {
            Self::Send { invalidate: None, notify: Notify::Quietly, .. } => Opcode::Send,
            Self::Send { invalidate: None, .. } => Opcode::SendSolicited,
            Self::Send { notify: Notify::Quietly, .. } => Opcode::SendInvalidate,
            Self::Send { .. } => Opcode::SendSolicitedInvalidate,
            Self::Write { .. } => Opcode::Write,
            Self::Read { .. } => Opcode::ReadRequest,
        }
    }
}

/// Why an operation was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // the caller acts upon each
pub enum Refusal {
    /// The queue is full.
    Full,
    /// The connection takes no more work.
    Ended,
    /// A message has at most 2^32-1 bytes (RFC 5040 §3).
    TooLong,
    /// The sink is no memory of ours that takes the bytes.
    Sink,
    /// The peer serves no RDMA Reads.
    Depth,
}

/// An operation that was not taken, and why.
#[derive(Debug)]
pub struct Refused {
    /// Why.
    pub refusal: Refusal,
    /// The operation.
    pub work: Work,
}

/// A message that has come.
#[derive(Debug)]
pub struct Received {
    /// The operation that gave the buffer.
    pub id: WorkId,
    /// The buffer.
    pub buf: Buf,
    /// Bytes of it that the message has.
    pub length: usize,
    /// The STag that the message ended, with what it named.
    pub invalidated: Option<(Stag, Withdrawn)>,
    /// Whether the peer wants us woken.
    pub notify: Notify,
}

/// A message that has come in one segment, and is lent: no buffer has it.
#[derive(Debug)]
pub struct Lent {
    /// Who has it, as long as no more bytes are taken.
    pub lender: Lender,
    /// Where it is there.
    pub at: Range<usize>,
    /// The STag that the message ended, with what it named.
    pub invalidated: Option<(Stag, Withdrawn)>,
}

/// Who has a message that is lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // there is nobody else
pub enum Lender {
    /// Whoever gave the bytes of which it was the last segment.
    Giver,
    /// The queue pair: its segment did not come whole ([`staged`](crate::qp::QueuePair::staged)).
    QueuePair,
}

/// What a queue pair tells.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums)] // a mover acts upon each
pub enum Event {
    /// A message has come, after all that the peer wrote before it.
    Received(Received),
    /// As `Received`, where messages are lent.
    Lent(Lent),
    /// A Send or Write has left.
    Sent(WorkId),
    /// The bytes of a Read are in place.
    Read(WorkId),
    /// Ours to close: nothing is pending, and the sending side of the connection is to be shut.
    Shutdown,
    /// The connection is over. What is still to be transmitted goes out, and then it is closed.
    Ended(End),
    /// An operation that was under way when it ended; nothing more comes of it.
    Flushed(WorkId),
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // a mover tells each
pub enum End {
    /// With nothing pending.
    Closed,
    /// The peer broke a rule, or is gone.
    Violated(Violation),
    /// The peer sent a Terminate; None: one that nobody can read.
    ByPeer(Option<Cause>),
    /// By our own upper layer.
    Local(Cause),
}
