// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A queue pair over a stream of bytes. Read first: RFC 5040 §5 and §6, RFC 5044 §7.
//!
//! ```text
//!   agreed --> ready -- close, nothing pending --> closing -- the peer's FIN --> ended
//!                '----- violation, Terminate, loss --------------------------------^
//! ```
//!
//! Order of polling: `handle_bytes`, `poll_event` until there is none, `poll_transmit` once;
//! `handle_sent` when its list has left, and again. After [`Event::Ended`] there may be a Terminate
//! to transmit, and then the connection is closed.

use crate::inbound::Arrival;
use crate::inbound::Inbound;
use crate::inbound::behind;
use crate::limits::RECEIVES_MAX;
use crate::limits::SEGMENT_LEN;
use crate::limits::WORKS_MAX;
use crate::mpa::Agreed;
use crate::mpa::Framing;
use crate::mpa::Receiver;
use crate::mpa::Side;
use crate::outbound::Outbound;
use crate::region::Denied;
use crate::region::Place;
use crate::region::Regions;
use crate::region::StreamId;
use crate::region::Withdrawn;
use crate::verbs::End;
use crate::verbs::Event;
use crate::verbs::Lender;
use crate::verbs::Lent;
use crate::verbs::Refusal;
use crate::verbs::Refused;
use crate::verbs::Work;
use crate::verbs::WorkId;
use crate::violation::Violation;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use buf::Buf;
use buf::SgList;
use core::ops::Range;
use wire::iwarp::Cause;
use wire::iwarp::Ddp;
use wire::iwarp::LENGTH_LEN;
use wire::iwarp::Opcode;
use wire::iwarp::ReadRequest;
use wire::iwarp::Stag;
use wire::iwarp::TAGGED_LEN;
use wire::iwarp::Tagged;
use wire::iwarp::Terminate;

/// One end of a connection that has begun.
#[derive(Debug)]
pub struct QueuePair {
    stream: StreamId,
    ird: usize,
    ord: usize,
    framing: Framing,
    state: State,
    /// A responder sends nothing before it has received something (RFC 5044 §7.1.2).
    may_send: bool,
    /// A list is with the transport.
    in_flight: bool,
    receiver: Receiver,
    inbound: Inbound,
    outbound: Outbound,
    /// The tagged segment that comes, as far as its payload is in place.
    placing: Option<Placing>,
    events: VecDeque<Event>,
}

/// A tagged segment whose payload goes to its place as it comes.
#[derive(Clone, Copy, Debug)]
struct Placing {
    header: Tagged,
    /// Bytes of its payload, and how many of them have come.
    length: usize,
    came: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    /// Our sending side is shut, or will be.
    Closing,
    Ended(End),
}

/// Something is pending: who cannot wait for it drops the connection (RFC 5040 §6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending;

impl QueuePair {
    /// Goes on with what a start agreed on. The STags of `stream` are the peer's to use.
    #[must_use]
    pub fn new(stream: StreamId, agreed: Agreed) -> Self {
        let mut outbound = Outbound::new(agreed.framing, SEGMENT_LEN);
        let ready = agreed.ready;
        let mut inbound = Inbound::new(stream, ready.filter(|_| agreed.side == Side::Responder));
        if agreed.side == Side::Initiator
            && let Some(ready) = ready
        {
            outbound.begin(ready);
            outbound.asked().for_each(|read| inbound.expect(read));
        }
        Self {
            stream,
            ird: agreed.depths.ird.into(),
            ord: agreed.depths.ord.into(),
            framing: agreed.framing,
            state: State::Ready,
            may_send: agreed.side == Side::Initiator,
            in_flight: false,
            receiver: Receiver::new(agreed.framing),
            inbound,
            outbound,
            placing: None,
            events: VecDeque::new(),
        }
    }

    /// Tells how long segments of TCP are, so that each takes one FPDU or more (RFC 5044 §4.5).
    pub fn set_segment_len(&mut self, segment_len: usize) {
        self.outbound.set_segment_len(segment_len);
    }

    /// Takes no longer segments than that of the peer, until this is said again.
    pub fn set_segment_len_max(&mut self, segment_len_max: usize) {
        self.receiver.set_segment_len_max(segment_len_max);
    }

    /// Whether these bytes end a segment, so that a message may need a buffer.
    #[must_use]
    pub fn completes(&self, bytes: &[u8]) -> bool {
        self.receiver.completes(bytes)
    }

    /// From now on a message that comes in one segment is lent ([`Event::Lent`]) and takes no
    /// buffer. It is no longer than that.
    pub const fn lend_messages(&mut self, length_max: usize) {
        self.inbound.lend(length_max);
    }

    /// The segment of a message that the queue pair lends.
    #[must_use]
    pub fn staged(&self) -> &[u8] {
        self.receiver.staged().unwrap_or_default()
    }

    /// Gives a buffer for one message.
    ///
    /// # Errors
    /// The buffer, if there are too many, or the connection is over.
    pub fn post_receive(&mut self, id: WorkId, buf: Buf) -> Result<(), Buf> {
        if matches!(self.state, State::Ended(_)) || self.inbound.receives() >= RECEIVES_MAX {
            return Err(buf);
        }
        self.inbound.post(id, buf);
        Ok(())
    }

    /// Takes an operation, to be sent in order.
    ///
    /// # Errors
    /// The operation, and why it is not taken.
    pub fn post_send(
        &mut self,
        id: WorkId,
        work: Work,
        regions: &Regions,
    ) -> Result<(), Box<Refused>> {
        match self.refusal(&work, regions) {
            Some(refusal) => Err(Box::new(Refused { refusal, work })),
            None => {
                self.outbound.post(id, work);
                Ok(())
            }
        }
    }

    /// Takes bytes of the stream, all of them.
    pub fn handle_bytes(&mut self, mut bytes: &[u8], regions: &mut Regions) {
        while !bytes.is_empty() {
            let taken = self.handle_segment(bytes, regions);
            bytes = bytes.get(taken..).unwrap_or_default();
        }
    }

    /// Takes bytes of the stream, of one segment at most: how many. Who asks for events after each
    /// call can give the buffer of a message back before the next one needs it.
    pub fn handle_segment(&mut self, bytes: &[u8], regions: &mut Regions) -> usize {
        if matches!(self.state, State::Ended(_)) {
            return bytes.len();
        }
        if let Some(placing) = self.placing {
            return self.go_on_placing(placing, bytes, regions);
        }
        // What is wrong is found where it is whole: its CRC comes first.
        if let Some((header, length)) = self.receiver.tagged(bytes)
            && length > 0
            && self.inbound.admit(header, length, regions).is_ok()
        {
            let taken = self.receiver.begin_passing(bytes, length);
            let placing = Placing { header, length, came: 0 };
            self.placing = Some(placing);
            let rest = bytes.get(taken..).unwrap_or_default();
            return taken + self.go_on_placing(placing, rest, regions);
        }
        match self.receiver.feed(bytes) {
            Ok((taken, segment)) => {
                let Some(segment) = segment else { return taken };
                self.may_send = true;
                let free = self.ird.saturating_sub(self.outbound.responses());
                let end = segment.len();
                match self.inbound.handle_segment(segment, regions, free) {
                    Ok(Some(Arrival::Lent(length, invalidated))) => {
                        self.handle_lent(end - length..end, invalidated);
                    }
                    Ok(Some(arrival)) => self.handle_arrival(arrival),
                    Ok(None) => self.handle_nothing(),
                    Err(violation) => {
                        let terminate = terminate_for(violation, segment);
                        self.end(End::Violated(violation), Some(&terminate));
                    }
                }
                taken
            }
            Err(violation) => self.unframed(violation, bytes),
        }
    }

    /// Takes bytes of the tagged segment that comes: how many. Its payload is copied to its place
    /// and counted for its CRC in one go; nothing has come of it before that is seen to be right.
    fn go_on_placing(&mut self, placing: Placing, bytes: &[u8], regions: &mut Regions) -> usize {
        let Placing { header, length, came } = placing;
        let (part, rest) = bytes.split_at(bytes.len().min(self.receiver.to_pass()));
        let placed = regions.place_counted(self.place_of(&placing), part, self.receiver.sum());
        if let Err(denied) = placed {
            return self.displaced(&placing, denied, bytes);
        }
        self.receiver.passed(part.len());
        self.placing = Some(Placing { came: came + part.len(), ..placing });
        match self.receiver.end_passing(rest) {
            Ok((taken, false)) => part.len() + taken,
            Ok((taken, true)) => {
                self.placing = None;
                self.may_send = true;
                match self.inbound.placed(header, length) {
                    Some(arrival) => self.handle_arrival(arrival),
                    None => self.handle_nothing(),
                }
                part.len() + taken
            }
            Err(violation) => self.unframed(violation, bytes),
        }
    }

    /// Where the next byte of a payload goes.
    fn place_of(&self, placing: &Placing) -> Place {
        let Placing { header: Tagged { stag, offset, .. }, came, .. } = *placing;
        Place { stream: self.stream, stag, offset: behind(offset, came) }
    }

    /// What a segment names has ended while it came.
    fn displaced(&mut self, placing: &Placing, denied: Denied, bytes: &[u8]) -> usize {
        self.may_send = true;
        let violation = Violation::Placing(denied);
        let terminate = Terminate {
            segment_length: u16::try_from(TAGGED_LEN + placing.length).ok(),
            header: Some(Ddp::Tagged(placing.header)),
            ..bare(violation.cause())
        };
        self.end(End::Violated(violation), Some(&terminate));
        bytes.len()
    }

    /// There is no segment where one should be.
    fn unframed(&mut self, violation: Violation, bytes: &[u8]) -> usize {
        self.may_send = true;
        self.end(End::Violated(violation), Some(&bare(violation.cause())));
        bytes.len()
    }

    /// The peer has shut its sending side (RFC 5044 §7.2): the end of both directions.
    pub fn handle_shut(&mut self) {
        let is_clean = self.receiver.is_between() && self.is_idle();
        let end = if is_clean { End::Closed } else { End::Violated(Violation::Lost) };
        self.end(end, None);
    }

    /// The connection is gone.
    pub fn handle_lost(&mut self) {
        self.end(End::Violated(Violation::Lost), None);
    }

    /// What was transmitted has left.
    pub fn handle_sent(&mut self) {
        self.in_flight = false;
        self.events.extend(self.outbound.sent().map(Event::Sent));
    }

    /// Closes in good order: then [`Event::Shutdown`] comes.
    ///
    /// # Errors
    /// Something is pending.
    pub fn close(&mut self) -> Result<(), Pending> {
        if self.state != State::Ready || !self.is_idle() || !self.receiver.is_between() {
            return Err(Pending);
        }
        self.state = State::Closing;
        self.events.push_back(Event::Shutdown);
        Ok(())
    }

    /// Ends the connection for a reason of our own: of the upper layer's protocol, or a defect
    /// (RFC 5040 §7).
    pub fn terminate(&mut self, cause: Cause) {
        let said = if self.state == State::Closing { None } else { Some(bare(cause)) };
        self.end(End::Local(cause), said.as_ref());
    }

    /// What has happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Appends what is to be sent; false if there is nothing, or a list is still on its way.
    pub fn poll_transmit(&mut self, out: &mut SgList) -> bool {
        if self.in_flight || !self.may_send {
            return false;
        }
        let before = out.len();
        let free = self.ord.saturating_sub(self.inbound.reads());
        self.outbound.poll_transmit(out, free);
        self.outbound.asked().for_each(|read| self.inbound.expect(read));
        self.in_flight = out.len() > before;
        self.in_flight
    }

    /// How it ended, if it has.
    #[must_use]
    pub const fn ended(&self) -> Option<End> {
        match self.state {
            State::Ended(end) => Some(end),
            State::Ready | State::Closing => None,
        }
    }

    /// RDMA Reads of ours that may still be posted and go out at once.
    #[must_use]
    pub fn free_reads(&self) -> usize {
        self.ord.saturating_sub(self.inbound.reads())
    }

    /// What FPDUs look like.
    #[must_use]
    pub const fn framing(&self) -> Framing {
        self.framing
    }

    /// RDMA Reads at once: those of the peer that are served, and ours that the peer serves.
    #[must_use]
    pub const fn depths(&self) -> (usize, usize) {
        (self.ird, self.ord)
    }

    /// Bytes of the longest FPDU that is sent, without markers.
    #[must_use]
    pub const fn fpdu_len(&self) -> usize {
        self.outbound.fpdu_len()
    }

    /// Receive buffers that wait for a message.
    #[must_use]
    pub fn receives(&self) -> usize {
        self.inbound.receives()
    }

    /// Memory that it holds of the stream, in bytes.
    #[must_use]
    pub const fn bytes_held(&self) -> usize {
        self.receiver.bytes_held()
    }

    /// Verifies what must always hold.
    pub fn check(&self) {
        assert!(self.inbound.receives() <= RECEIVES_MAX, "receive buffers are bounded");
        assert!(self.outbound.works() <= WORKS_MAX, "work is bounded");
        assert!(self.inbound.reads() <= self.ord + 1, "Reads are bounded, the first one apart");
        assert!(self.outbound.responses() <= self.ird + 1, "and so are the peer's");
        if matches!(self.state, State::Ended(_)) {
            let left = self.inbound.receives() + self.inbound.reads() + self.outbound.works();
            assert_eq!(left, 0, "nothing is owed after the end");
        }
    }

    /// Nothing of either side is on its way.
    fn is_idle(&self) -> bool {
        self.inbound.is_idle() && self.outbound.is_idle() && !self.in_flight
    }

    fn refusal(&self, work: &Work, regions: &Regions) -> Option<Refusal> {
        if self.state != State::Ready {
            return Some(Refusal::Ended);
        }
        if self.outbound.works() >= WORKS_MAX {
            return Some(Refusal::Full);
        }
        match *work {
            Work::Send { ref head, ref payload, .. } => {
                too_long(head.bytes().len().saturating_add(payload.len()))
            }
            Work::Write { ref payload, .. } => too_long(payload.len()),
            Work::Read { .. } if self.ord == 0 => Some(Refusal::Depth),
            Work::Read { sink, sink_offset, length, .. } => {
                let place = Place { stream: self.stream, stag: sink, offset: sink_offset };
                regions.may_place(place, length).is_err().then_some(Refusal::Sink)
            }
        }
    }

    fn handle_arrival(&mut self, arrival: Arrival) {
        match arrival {
            Arrival::Terminated(cause) => self.end(End::ByPeer(cause), None),
            // We have said that we send no more: whoever goes on does not get an answer.
            _ if self.state == State::Closing => self.handle_lost(),
            Arrival::Received(received) => self.events.push_back(Event::Received(received)),
            Arrival::Lent(..) => debug_assert!(false, "its segment is known no more"),
            Arrival::Asked(response) => self.outbound.respond(response),
            Arrival::Read(id) => self.events.extend(id.map(Event::Read)),
        }
    }

    /// A message is here, at that place of its segment.
    fn handle_lent(&mut self, at: Range<usize>, invalidated: Option<(Stag, Withdrawn)>) {
        if self.state == State::Closing {
            return self.handle_lost();
        }
        let (lender, at) = match self.receiver.staged() {
            Some(_) => (Lender::QueuePair, at),
            None => (Lender::Giver, at.start + LENGTH_LEN..at.end + LENGTH_LEN),
        };
        self.events.push_back(Event::Lent(Lent { lender, at, invalidated }));
    }

    /// A segment that nobody hears of.
    fn handle_nothing(&mut self) {
        if self.state == State::Closing {
            self.handle_lost();
        }
    }

    /// The first reason is the one that is told.
    fn end(&mut self, end: End, terminate: Option<&Terminate>) {
        if matches!(self.state, State::Ended(_)) {
            return;
        }
        let terminate = terminate.filter(|_| self.state == State::Ready);
        self.state = State::Ended(end);
        self.events.push_back(Event::Ended(end));
        let flushed = self.outbound.terminate(terminate);
        let flushed = flushed.into_iter().chain(self.inbound.flush());
        self.events.extend(flushed.map(Event::Flushed));
    }
}

fn too_long(len: usize) -> Option<Refusal> {
    u32::try_from(len).is_err().then_some(Refusal::TooLong)
}

/// A Terminate that blames no segment.
const fn bare(cause: Cause) -> Terminate {
    Terminate { cause, segment_length: None, header: None, read_request: None }
}

/// A Terminate with the headers of the segment that broke a rule (RFC 5040 §4.8).
fn terminate_for(violation: Violation, segment: &[u8]) -> Terminate {
    // A header of another version is none that anybody could repeat.
    let Ok(header) = Ddp::parse(segment) else { return bare(violation.cause()) };
    let is_request = Opcode::parse(header.control()) == Ok(Opcode::ReadRequest);
    let payload = segment.get(header.len()..).unwrap_or_default();
    let read_request = payload.first_chunk().map(ReadRequest::parse);
    let refused = is_request && matches!(violation, Violation::Reading(_));
    Terminate {
        segment_length: u16::try_from(segment.len()).ok(),
        header: Some(header),
        read_request: read_request.filter(|_| refused),
        ..bare(violation.cause())
    }
}

#[cfg(test)]
mod tests;
