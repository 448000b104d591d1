// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The start of a connection, as the side that is asked. Read first: RFC 5044 §7.1.2, RFC 6581 §4
//! and §9.
//!
//! ```text
//!   waiting --> request --> accept: reply goes out, agreed
//!      |           '------> reject: reply goes out, over
//!      '------> violated
//! ```

use super::Agreed;
use super::Checks;
use super::Offer;
use super::PrivateData;
use super::ReadyType;
use super::Side;
use super::depths;
use super::start;
use super::start::Collector;
use super::start::Frame;
use crate::limits::START_TIMEOUT;
use crate::violation::Violation;
use alloc::vec::Vec;
use clock::Instant;
use wire::iwarp::Enhanced;
use wire::iwarp::Markers;
use wire::iwarp::Start;
use wire::iwarp::StartKind;

/// The side that is asked.
#[derive(Debug)]
pub struct Responder {
    collector: Collector,
    deadline: Instant,
    over: Option<Violation>,
}

/// A request that waits for its answer.
#[derive(Debug)]
pub struct Request {
    frame: Frame,
}

impl Responder {
    /// Waits for a request from now on.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self { collector: Collector::default(), deadline: now + START_TIMEOUT, over: None }
    }

    /// Takes bytes of the request: how many, and the request when it is whole. Nothing may follow
    /// it before it is answered (RFC 5044 §7.1.2); what is not taken belongs to FPDUs.
    ///
    /// # Errors
    /// What the peer did wrong; the same again from then on.
    pub fn handle_bytes(&mut self, bytes: &[u8]) -> Result<(usize, Option<Request>), Violation> {
        if let Some(violation) = self.over {
            return Err(violation);
        }
        let outcome = self.collector.take(bytes, StartKind::Request);
        self.over = outcome.as_ref().err().copied();
        outcome.map(|(taken, frame)| (taken, frame.map(|frame| Request { frame })))
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
}

impl Request {
    /// What the peer's upper layer says.
    #[must_use]
    pub fn private_data(&self) -> &[u8] {
        &self.frame.private_data
    }

    /// Says yes: what goes on, and the reply, which goes out now.
    #[must_use]
    pub fn accept(&self, offer: &Offer) -> (Agreed, Vec<u8>) {
        let framing = start::framing(offer, &self.frame.start);
        let answered = self.frame.enhanced.map(|asked| depths::answer(offer.depths, asked));
        let (depths, enhanced) = answered.unzip();
        let agreed = Agreed {
            side: Side::Responder,
            framing,
            depths: depths.unwrap_or(offer.depths),
            ready: enhanced.and_then(|enhanced| ReadyType::choose(enhanced.ready)),
        };
        let head = Start {
            markers: offer.markers == Markers::Sent,
            crc: framing.checks == Checks::Crc,
            ..self.head()
        };
        (agreed, start::emit(head, enhanced, &offer.private_data))
    }

    /// Says no: the reply, which is the last that goes out.
    #[must_use]
    pub fn reject(&self, private_data: &PrivateData) -> Vec<u8> {
        let enhanced = self.frame.enhanced.map(|_| Enhanced::default());
        start::emit(Start { reject: true, ..self.head() }, enhanced, private_data)
    }

    /// In the peer's revision.
    const fn head(&self) -> Start {
        Start {
            kind: StartKind::Reply,
            markers: false,
            crc: self.frame.start.crc,
            reject: false,
            enhanced: false,
            revision: self.frame.start.revision,
            private_data_length: 0,
        }
    }
}
