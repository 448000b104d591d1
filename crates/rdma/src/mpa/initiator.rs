// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The start of a connection, as the side that asks for it. Read first: RFC 5044 §7.1.2,
//! RFC 6581 §4 and §9.
//!
//! ```text
//!   new: request goes out --> waiting --> agreed, rejected, violated
//! ```

use super::Agreed;
use super::Checks;
use super::Framing;
use super::Offer;
use super::Sender;
use super::Side;
use super::depths;
use super::start;
use super::start::Collector;
use super::start::Frame;
use crate::limits::START_TIMEOUT;
use crate::violation::Violation;
use alloc::vec::Vec;
use buf::SgList;
use buf::Slice;
use clock::Instant;
use wire::iwarp::Enhanced;
use wire::iwarp::Markers;
use wire::iwarp::Msn;
use wire::iwarp::Opcode;
use wire::iwarp::Stag;
use wire::iwarp::Start;
use wire::iwarp::StartKind;
use wire::iwarp::TERMINATE_QUEUE;
use wire::iwarp::Terminate;
use wire::iwarp::Untagged;

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // a reply says yes or no
pub enum Reply {
    /// The connection goes on as agreed.
    Agreed {
        /// With what.
        agreed: Agreed,
        /// What the peer's upper layer says.
        private_data: Vec<u8>,
    },
    /// It is over.
    Rejected {
        /// What the peer's upper layer says.
        private_data: Vec<u8>,
    },
}

/// The side that asks.
#[derive(Debug)]
pub struct Initiator {
    offer: Offer,
    collector: Collector,
    deadline: Instant,
    /// Known once a reply says yes, whatever else is wrong with it.
    framing: Option<Framing>,
    over: Option<Violation>,
}

impl Initiator {
    /// Begins, with the bytes of the request, which are the first of the connection to go out.
    pub fn new(offer: Offer, now: Instant) -> (Self, Vec<u8>) {
        let head = Start {
            kind: StartKind::Request,
            markers: offer.markers == Markers::Sent,
            crc: offer.checks == Checks::Crc,
            reject: false,
            enhanced: true,
            revision: 2,
            private_data_length: 0,
        };
        let enhanced = Enhanced {
            peer_to_peer: offer.ready.is_some(),
            ready: offer.ready.unwrap_or_default(),
            ird: offer.depths.ird,
            ord: offer.depths.ord,
        };
        let request = start::emit(head, Some(enhanced), &offer.private_data);
        let deadline = now + START_TIMEOUT;
        let collector = Collector::default();
        (Self { offer, collector, deadline, framing: None, over: None }, request)
    }

    /// Takes bytes of the reply: how many, and what it says when it is whole. What is not taken
    /// belongs to the first FPDUs.
    ///
    /// # Errors
    /// What the peer did wrong; the same again from then on.
    pub fn handle_bytes(&mut self, bytes: &[u8]) -> Result<(usize, Option<Reply>), Violation> {
        if let Some(violation) = self.over {
            return Err(violation);
        }
        let outcome = self.collector.take(bytes, StartKind::Reply).and_then(|(taken, frame)| {
            let reply = frame.map(|frame| self.reply(frame)).transpose()?;
            Ok((taken, reply))
        });
        self.over = outcome.as_ref().err().copied();
        outcome
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    #[must_use]
    pub const fn poll_timeout(&self) -> Instant {
        self.deadline
    }

    /// Ends the start if it has taken too long (RFC 5044 §7.1.2).
    ///
    /// # Errors
    /// When it has.
    pub fn handle_timeout(&mut self, now: Instant) -> Result<(), Violation> {
        if now >= self.deadline {
            self.over.get_or_insert(Violation::StartTimeout);
        }
        self.over.map_or(Ok(()), Err)
    }

    /// The Terminate that tells the peer why, where it takes one: its reply said yes
    /// (RFC 6581 §9). Then the connection is closed.
    #[must_use]
    pub fn terminate(&self) -> Option<Vec<u8>> {
        let (framing, violation) = (self.framing?, self.over?);
        let header = Untagged {
            last: true,
            control: Opcode::Terminate.control(),
            invalidate: Stag(0),
            queue: TERMINATE_QUEUE,
            msn: Msn(1),
            offset: 0,
        };
        let message = Terminate {
            cause: violation.cause(),
            segment_length: None,
            header: None,
            read_request: None,
        };
        let mut out = SgList::new();
        Sender::new(framing).frame(&header.emit(), &Slice::from(message.emit()), &mut out);
        Some(out.to_vec())
    }

    fn reply(&mut self, frame: Frame) -> Result<Reply, Violation> {
        let Frame { start: head, enhanced, private_data } = frame;
        if head.reject {
            return Ok(Reply::Rejected { private_data });
        }
        let framing = start::framing(&self.offer, &head);
        self.framing = Some(framing);
        let own = self.offer.depths;
        let (depths, ready) = match enhanced {
            Some(answered) => depths::settle(own, self.offer.ready, answered)?,
            // A peer of revision 1 negotiates no depths, and waits for us in any case.
            None => (own, None),
        };
        let agreed = Agreed { side: Side::Initiator, framing, depths, ready };
        Ok(Reply::Agreed { agreed, private_data })
    }
}
