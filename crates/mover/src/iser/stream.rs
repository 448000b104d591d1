// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What both roles have below iSER: the start of MPA, then a queue pair, the STags of the
//! connection and one buffer for the messages that come; or the queue pair of an adapter.
//!
//! ```text
//!   asked, waiting --agreed--> up --closed, Terminate, broken rule--> over
//!         '------- rejected, broken rule ------------------------------^
//!   adapter -------- closed, broken rule, what the adapter says ------> over
//! ```
//!
//! Messages are given out one at a time, and are lent until the next bytes are taken: one that came
//! in one segment from where that lies, others from one buffer, which serves a connection, however
//! many commands are on their way. An adapter has one for each PDU that may come, and gets back
//! what was lent when the next one is given out.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

use buf::Buf;
use buf::SgList;
use clock::Instant;
use rdma::adapter::Depths;
use rdma::adapter::Done;
use rdma::adapter::Post;
use rdma::adapter::Queue;
use rdma::adapter::Read;
use rdma::adapter::Registry;
use rdma::limits::SEGMENT_LEN;
use rdma::mpa;
use rdma::mpa::Agreed;
use rdma::mpa::Checks;
use rdma::mpa::Offer;
use rdma::mpa::PrivateData;
use rdma::mpa::Reply;
use rdma::qp::QueuePair;
use rdma::region::Memory;
use rdma::region::Place;
use rdma::region::Regions;
use rdma::region::StreamId;
use rdma::region::Withdrawn;
use rdma::verbs::End;
use rdma::verbs::Event;
use rdma::verbs::Head;
use rdma::verbs::Lender;
use rdma::verbs::Lent;
use rdma::verbs::Notify;
use rdma::verbs::Received;
use rdma::verbs::Work;
use rdma::verbs::WorkId;
use wire::iser::Advertised;
use wire::iwarp::Cause;
use wire::iwarp::Stag;
use wire::iwarp::TaggedOffset;

use super::message::MESSAGE_LEN_MAX;
use crate::limits::POSTED_MAX;
use crate::limits::SEGMENT_LEN_MAX;
use crate::limits::TRANSMIT_BYTES_MAX;

/// The first four bytes of private data: what the sender cannot do, or will not (the iSER header
/// of connection management, as deployed stacks have it).
const ZERO_BASED: u8 = 0x80;
const INVALIDATES_NOT: u8 = 0x40;

/// What an initiator says when it asks an adapter for a connection. Memory that a program shows to
/// one is not ended by the peer: few adapters can.
pub(super) const ASKED: [u8; 4] = [ZERO_BASED | INVALIDATES_NOT, 0, 0, 0];

/// The one stream of the table of STags.
const STREAM: StreamId = StreamId(0);

/// Offsets of memory of ours begin here: not at zero, so that who forgets to add it is found out.
pub(super) const BASE: TaggedOffset = TaggedOffset(0x1_0000);

/// The connection below one end.
#[derive(Debug)]
pub(super) struct Stream {
    state: State,
    pub(super) regions: Regions,
    /// Bytes of the start that are to be sent.
    start: Vec<u8>,
    /// What was handed out last was of the start.
    start_in_flight: bool,
    /// Events behind one that was found while sending.
    events: VecDeque<Event>,
    /// The message that was given out last, in the buffer of the next one. None while the queue
    /// pair has that, or nobody has.
    message: Option<(Buf, usize)>,
    /// Who has it in place of the buffer, and where.
    lent: Option<(Lender, Range<usize>)>,
    /// Of the peer's segments, and of ours.
    incoming_len_max: usize,
    segment_len: usize,
    /// Sends and Writes that were posted, and that have left.
    posted: u64,
    left: u64,
    /// Bytes of each that has not left.
    leaving: VecDeque<usize>,
    leaving_len: usize,
    /// Nothing was to be sent when this was asked last.
    is_quiet: bool,
    /// The peer takes Send with Invalidate.
    invalidates: bool,
}

#[derive(Debug)]
enum State {
    Asked(mpa::Initiator),
    Waiting(mpa::Responder),
    Up(Box<QueuePair>),
    /// An adapter carries it out; see [`Stream::poll_post`].
    Adapter(Box<Queue>),
    /// Over before it began.
    Over,
}

/// What has come.
#[derive(Debug)]
pub(super) enum Arrival {
    /// A message, which is lent. It may have ended an STag of ours.
    Message { invalidated: Option<(Stag, Withdrawn)> },
    /// The oldest RDMA Read of ours is complete.
    Read,
    /// The connection is over.
    Ended(Option<Cause>),
}

impl Stream {
    /// As the initiator, who asks. `buf`: for messages. `seed`: of its STags.
    pub(super) fn initiator(buf: Buf, seed: u32, checks: Checks) -> Self {
        // Whoever logs in has a deadline for all of it.
        let private_data = private(ZERO_BASED);
        let offer = Offer { private_data, checks, ..Offer::default() };
        let (asked, start) = mpa::Initiator::new(offer, Instant::default());
        Self { start, ..Self::new(State::Asked(asked), Some(buf), seed) }
    }

    /// As the target, who is asked. Without `buf` there is one when a message has come.
    pub(super) fn target(buf: Option<Buf>, seed: u32) -> Self {
        Self::new(State::Waiting(mpa::Responder::new(Instant::default())), buf, seed)
    }

    /// As the target, over an adapter, and what the initiator is told: it has said this. None if
    /// it is no initiator of iSER.
    pub(super) fn adapter(said: &[u8], depths: Depths) -> Option<(Self, [u8; 4])> {
        let flags = *said.first()?;
        let mut stream = Self::new(State::Adapter(Box::new(Queue::new(depths))), None, 0);
        stream.invalidates = flags & INVALIDATES_NOT == 0;
        Some((stream, [ZERO_BASED | flags & INVALIDATES_NOT, 0, 0, 0]))
    }

    /// As the initiator, over an adapter, whose connection stands.
    pub(super) fn adapter_initiator(depths: Depths, registry: Box<dyn Registry>) -> Self {
        let queue = Queue::with_registry(depths, registry);
        Self::new(State::Adapter(Box::new(queue)), None, 0)
    }

    fn new(state: State, buf: Option<Buf>, seed: u32) -> Self {
        Self {
            state,
            regions: Regions::new(seed),
            start: Vec::new(),
            start_in_flight: false,
            events: VecDeque::new(),
            message: buf.map(|buf| (buf, 0)),
            lent: None,
            incoming_len_max: usize::MAX,
            segment_len: SEGMENT_LEN,
            posted: 0,
            left: 0,
            leaving: VecDeque::new(),
            leaving_len: 0,
            is_quiet: false,
            invalidates: true,
        }
    }

    /// Bytes that go out before anything else: the end of what the connection was before.
    pub(super) fn go_on_behind(&mut self, bytes: Vec<u8>) {
        let start = core::mem::replace(&mut self.start, bytes);
        self.start.extend(start);
    }

    /// Takes no longer segments than that of the peer, until this is said again.
    pub(super) fn limit_incoming(&mut self, length_max: usize) {
        self.incoming_len_max = length_max;
        if let State::Up(qp) = &mut self.state {
            qp.set_segment_len_max(length_max);
        }
    }

    /// See [`QueuePair::set_segment_len`].
    pub(super) fn set_segment_len(&mut self, segment_len: usize) {
        self.segment_len = segment_len.min(SEGMENT_LEN_MAX);
        if let State::Up(qp) = &mut self.state {
            qp.set_segment_len(self.segment_len);
        }
    }

    /// Takes bytes up to the next thing that happens: how many, and that. Without bytes: what has
    /// happened already. `new_buf` is asked when a message comes and there is no buffer for it.
    pub(super) fn feed(
        &mut self,
        bytes: &[u8],
        new_buf: impl Fn() -> Option<Buf>,
    ) -> (usize, Option<Arrival>) {
        let (mut taken, mut before) = (0, 0);
        loop {
            while let Some(event) = self.next_event() {
                if let Some(arrival) = self.arrival(event, before) {
                    return (taken, Some(arrival));
                }
            }
            let rest = bytes.get(taken..).unwrap_or_default();
            if rest.is_empty() {
                return (taken, None);
            }
            self.lent = None;
            match self.take(rest, &new_buf) {
                Ok(more) => (before, taken) = (taken, taken + more),
                Err(cause) => {
                    if let State::Asked(asked) = &self.state {
                        // Who has said yes is told why it is over all the same (RFC 6581 §9).
                        self.start.extend(asked.terminate().unwrap_or_default());
                    }
                    self.state = State::Over;
                    return (bytes.len(), Some(Arrival::Ended(Some(cause))));
                }
            }
        }
    }

    /// Gives an adapter buffers for messages, until it has `count`: whether it has.
    pub(super) fn provide(&mut self, count: usize, new_buf: impl Fn() -> Option<Buf>) -> bool {
        let State::Adapter(queue) = &mut self.state else { return true };
        while queue.receives() < count {
            let posted = new_buf().is_some_and(|buf| queue.post_receive(buf).is_ok());
            if !posted {
                return false;
            }
        }
        true
    }

    /// Keeps a buffer for the next message that does not come in one piece: whether there is one.
    pub(super) fn keep(&mut self, new_buf: impl FnOnce() -> Option<Buf>) -> bool {
        let State::Up(qp) = &self.state else { return true };
        if self.message.is_none() && qp.receives() == 0 {
            self.message = new_buf().map(|buf| (buf, 0));
        }
        self.message.is_some() || qp.receives() > 0
    }

    /// What an adapter is to do next.
    pub(super) fn poll_post(&mut self) -> Option<Post> {
        match &mut self.state {
            State::Adapter(queue) => queue.poll_post(),
            _ => None,
        }
    }

    /// An adapter has done something; `feed` tells the rest.
    pub(super) fn handle_done(&mut self, done: Done) {
        let State::Adapter(queue) = &mut self.state else { return };
        let mut done = Some(done);
        queue.handle(&mut done);
        match done {
            Some(Done::Received { buf, length }) => {
                let (id, invalidated, notify) = (WorkId(0), None, Notify::Solicited);
                let received = Received { id, buf, length, invalidated, notify };
                self.events.push_back(Event::Received(received));
            }
            Some(Done::Sent(_)) => self.note_left(),
            Some(Done::Read(id)) => self.events.push_back(Event::Read(id)),
            // Who drives the adapter ends the connection.
            Some(Done::Ended(_)) => {
                self.leaving.clear();
                self.leaving_len = 0;
            }
            Some(Done::Returned(..)) | None => {}
        }
    }

    /// Something has happened that `feed` has not told.
    pub(super) fn has_more(&self) -> bool {
        !self.events.is_empty()
    }

    /// The message that was given out last. `given`: the bytes that `feed` found it in.
    pub(super) fn message<'a>(&'a self, given: &'a [u8]) -> &'a [u8] {
        message_of(self.message.as_ref(), self.lent.as_ref(), &self.state, given)
    }

    /// The message is a copy of what came: it did not come in one piece.
    pub(super) const fn is_copied(&self) -> bool {
        !matches!((&self.lent, &self.state), (Some((Lender::Giver, _)), _) | (_, State::Adapter(_)))
    }

    /// Posts a Send.
    pub(super) fn send(&mut self, head: Head, payload: buf::Slice, invalidate: Option<Stag>) {
        let length = head.bytes().len() + payload.len();
        let notify = Notify::Solicited;
        self.post(Work::Send { head, payload, invalidate, notify }, length);
    }

    /// Posts an RDMA Write.
    pub(super) fn write(&mut self, payload: buf::Slice, stag: Stag, offset: TaggedOffset) {
        let length = payload.len();
        self.post(Work::Write { payload, stag, offset }, length);
    }

    /// Posts an RDMA Read; false if its sink, or the peer, does not take it.
    pub(super) fn read(&mut self, work: Work) -> bool {
        match &mut self.state {
            State::Up(qp) => qp.post_send(WorkId(u64::MAX), work, &self.regions).is_ok(),
            State::Adapter(queue) => {
                let Work::Read { sink, sink_offset, source, source_offset, length } = work else {
                    return false;
                };
                let at = sink_offset.0.checked_sub(BASE.0).and_then(|at| usize::try_from(at).ok());
                let Some(sink_offset) = at else { return false };
                let read = Read { sink, buf: None, sink_offset, source, source_offset, length };
                queue.post_read(WorkId(u64::MAX), read).is_ok()
            }
            _ => false,
        }
    }

    /// RDMA Reads that may go out now.
    pub(super) fn free_reads(&self) -> usize {
        match &self.state {
            State::Up(qp) => qp.free_reads(),
            State::Adapter(queue) => queue.free_reads(),
            _ => 0,
        }
    }

    /// Puts a part of the message, which `feed` found in `given`, into memory of ours; false if it
    /// does not fit.
    pub(super) fn place(
        &mut self,
        stag: Stag,
        offset: u32,
        given: &[u8],
        part: &Range<usize>,
    ) -> bool {
        let Self { regions, message, lent, state, .. } = self;
        if let State::Adapter(queue) = state {
            let kept = message.as_ref().and_then(|(buf, _)| buf.get(part.clone()));
            let bytes = kept.unwrap_or_default();
            return usize::try_from(offset).is_ok_and(|offset| queue.place(stag, offset, bytes));
        }
        let bytes = message_of(message.as_ref(), lent.as_ref(), state, given);
        let bytes = bytes.get(part.clone()).unwrap_or_default();
        let offset = TaggedOffset(BASE.0 + u64::from(offset));
        regions.place(Place { stream: STREAM, stag, offset }, bytes).is_ok()
    }

    /// Names memory for the peer; None if there are too many names.
    pub(super) fn advertise(&mut self, memory: Memory) -> Result<Stag, Memory> {
        match &mut self.state {
            State::Adapter(queue) => queue.advertise(memory),
            _ => self.regions.advertise(STREAM, BASE, memory),
        }
    }

    /// Names memory that the peer reaches, until `end_name`.
    pub(super) fn name(&mut self, memory: Memory) -> Result<Advertised, Memory> {
        let (stag, base) = match &mut self.state {
            State::Adapter(queue) => queue.show(memory)?,
            _ => (self.regions.advertise(STREAM, BASE, memory)?, BASE),
        };
        Ok(Advertised { stag, base })
    }

    /// The peer reaches this memory no more.
    pub(super) fn end_name(&mut self, stag: Stag) -> Option<Withdrawn> {
        match &mut self.state {
            State::Adapter(queue) => queue.take_back(stag),
            _ => self.regions.invalidate(stag),
        }
    }

    /// Names that the peer has, and bytes of the memory.
    pub(super) fn named(&self) -> (usize, usize) {
        match &self.state {
            State::Adapter(queue) => (queue.shown().keys, queue.shown().bytes),
            _ => (self.regions.len(), self.regions.bytes()),
        }
    }

    /// Bytes of memory that the peer has moved; an adapter does not tell before the end.
    pub(super) fn moved(&self, stag: Stag) -> u64 {
        self.regions.moved(stag)
    }

    /// Takes memory back that Reads have filled: None while they do.
    pub(super) fn withdraw(&mut self, sink: Stag) -> Option<Buf> {
        if let State::Adapter(queue) = &mut self.state {
            return queue.withdraw(sink);
        }
        match self.regions.invalidate(sink)?.memory {
            Memory::Sink(buf) => Some(buf),
            Memory::Source(_) => None,
        }
    }

    /// Ends the connection for a fault of the peer that this layer has found.
    pub(super) fn terminate(&mut self, cause: Cause) {
        self.leaving.clear();
        self.leaving_len = 0;
        match &mut self.state {
            State::Up(qp) => qp.terminate(cause),
            // What a Terminate says is the adapter's business.
            State::Adapter(queue) => queue.disconnect(End::Local(cause)),
            state => *state = State::Over,
        }
    }

    /// Appends what is to be sent; false if there is nothing, or something is on its way.
    pub(super) fn poll_transmit(&mut self, out: &mut SgList) -> bool {
        if !self.start.is_empty() {
            out.push_bytes(&self.start);
            self.start.clear();
            self.start_in_flight = true;
            return true;
        }
        let any = match &mut self.state {
            State::Up(qp) => qp.poll_transmit(out),
            _ => false,
        };
        self.is_quiet = !any;
        any
    }

    /// What was handed out has left.
    pub(super) fn handle_sent(&mut self) {
        if core::mem::take(&mut self.start_in_flight) {
            return;
        }
        let State::Up(qp) = &mut self.state else { return };
        qp.handle_sent();
        let mut left = 0;
        while let Some(event) = qp.poll_event() {
            match event {
                Event::Sent(_) => left += 1,
                other => self.events.push_back(other),
            }
        }
        (0..left).for_each(|_| self.note_left());
    }

    /// The oldest Send or Write has left.
    fn note_left(&mut self) {
        self.left += 1;
        let length = self.leaving.pop_front().unwrap_or_default();
        self.leaving_len = self.leaving_len.saturating_sub(length);
    }

    /// Sends and Writes that were posted so far.
    pub(super) const fn posted(&self) -> u64 {
        self.posted
    }

    /// Whether all has left that was posted when there were `posted`, or never will.
    pub(super) fn has_left(&self, posted: u64) -> bool {
        self.left >= posted || self.is_over()
    }

    /// Bytes that were posted and have not left.
    pub(super) const fn leaving_len(&self) -> usize {
        self.leaving_len
    }

    /// An adapter carries it out.
    pub(super) const fn is_of_adapter(&self) -> bool {
        matches!(self.state, State::Adapter(_))
    }

    /// A connection that is over sends at most why.
    pub(super) fn is_over(&self) -> bool {
        match &self.state {
            State::Up(qp) => qp.ended().is_some(),
            State::Adapter(queue) => queue.ended().is_some(),
            State::Over => true,
            State::Asked(_) | State::Waiting(_) => false,
        }
    }

    /// Whether more may be posted: as much as goes out at once is not.
    pub(super) fn takes_more(&self) -> bool {
        let is_up = match &self.state {
            State::Up(_) => true,
            State::Adapter(queue) => queue.free_sends() > 0,
            _ => false,
        };
        is_up && self.leaving_len < TRANSMIT_BYTES_MAX && self.leaving.len() < POSTED_MAX
    }

    /// Memory that holds what has come of a segment, in bytes.
    #[cfg(test)]
    pub(super) fn bytes_held(&self) -> usize {
        match &self.state {
            State::Up(qp) => qp.bytes_held(),
            _ => 0,
        }
    }

    /// All that was to be sent has been.
    pub(super) fn is_drained(&self) -> bool {
        let is_taken = !matches!(&self.state, State::Adapter(queue) if !queue.is_taken());
        is_taken && self.is_quiet && self.start.is_empty() && self.has_left(self.posted)
    }

    /// The peer takes Send with Invalidate.
    pub(super) const fn invalidates(&self) -> bool {
        self.invalidates
    }

    pub(super) fn check(&self) {
        assert_eq!(self.leaving_len, self.leaving.iter().sum::<usize>(), "bytes that leave");
        match &self.state {
            State::Up(qp) => qp.check(),
            State::Adapter(queue) => queue.check(),
            _ => {}
        }
    }

    /// None: it has not begun, is over, or is an adapter's.
    pub(super) fn queue_pair(&self) -> Option<&QueuePair> {
        match &self.state {
            State::Up(qp) => Some(qp),
            State::Asked(_) | State::Waiting(_) | State::Adapter(_) | State::Over => None,
        }
    }

    fn next_event(&mut self) -> Option<Event> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        match &mut self.state {
            State::Up(qp) => qp.poll_event(),
            _ => None,
        }
    }

    /// What an event of the bytes behind the first `before` ones means.
    fn arrival(&mut self, event: Event, before: usize) -> Option<Arrival> {
        match event {
            Event::Lent(Lent { lender, at, invalidated }) => {
                let before = if lender == Lender::Giver { before } else { 0 };
                self.lent = Some((lender, before + at.start..before + at.end));
                Some(Arrival::Message { invalidated })
            }
            Event::Received(received) => {
                if let State::Adapter(queue) = &mut self.state
                    && let Some((buf, _)) = self.message.take()
                {
                    // What was lent is needed no more. Who has as many as may be needs it neither.
                    drop(queue.post_receive(buf));
                }
                self.message = Some((received.buf, received.length));
                Some(Arrival::Message { invalidated: received.invalidated })
            }
            Event::Read(_) => Some(Arrival::Read),
            Event::Ended(end) => {
                self.leaving.clear();
                self.leaving_len = 0;
                Some(Arrival::Ended(cause(end)))
            }
            Event::Sent(_) | Event::Flushed(_) | Event::Shutdown => None,
        }
    }

    /// Takes bytes of the start, or of one segment.
    fn take(&mut self, bytes: &[u8], new_buf: impl Fn() -> Option<Buf>) -> Result<usize, Cause> {
        match &mut self.state {
            State::Asked(asked) => {
                let (taken, reply) = asked.handle_bytes(bytes).map_err(|found| found.cause())?;
                match reply {
                    None => {}
                    Some(Reply::Agreed { agreed, .. }) => self.agree(agreed),
                    Some(Reply::Rejected { .. }) => return Err(Cause::MPA_START),
                }
                Ok(taken)
            }
            State::Waiting(waiting) => {
                let (taken, request) =
                    waiting.handle_bytes(bytes).map_err(|found| found.cause())?;
                if let Some(request) = request {
                    // Who says nothing of invalidating is not relied on.
                    let flags = request.private_data().first().copied().unwrap_or(INVALIDATES_NOT);
                    self.invalidates = flags & INVALIDATES_NOT == 0;
                    let private_data = private(ZERO_BASED | flags & INVALIDATES_NOT);
                    // CRCs are the initiator's choice: Linux's siw asks for none, and takes one for
                    // wrong that TCP splits (siw_get_trailer).
                    let checks = Checks::None;
                    let (agreed, reply) =
                        request.accept(&Offer { private_data, checks, ..Offer::default() });
                    self.start.extend(reply);
                    self.agree(agreed);
                }
                Ok(taken)
            }
            State::Up(qp) => {
                if qp.receives() == 0 && qp.completes(bytes) {
                    // What was lent is needed no more.
                    let buf = self.message.take().map(|(buf, _)| buf).or_else(new_buf);
                    let refused = buf.and_then(|buf| qp.post_receive(WorkId(0), buf).err());
                    self.message = refused.map(|buf| (buf, 0));
                }
                Ok(qp.handle_segment(bytes, &mut self.regions))
            }
            State::Adapter(_) | State::Over => Ok(bytes.len()),
        }
    }

    fn agree(&mut self, agreed: Agreed) {
        let mut qp = QueuePair::new(STREAM, agreed);
        qp.set_segment_len(self.segment_len);
        qp.set_segment_len_max(self.incoming_len_max);
        qp.lend_messages(MESSAGE_LEN_MAX);
        self.state = State::Up(Box::new(qp));
    }

    fn post(&mut self, work: Work, length: usize) {
        let id = WorkId(self.posted);
        let is_posted = match &mut self.state {
            State::Up(qp) => qp.post_send(id, work, &self.regions).is_ok(),
            State::Adapter(queue) => queue.post_send(id, work).is_ok(),
            _ => false,
        };
        if is_posted {
            self.posted += 1;
            self.leaving.push_back(length);
            self.leaving_len += length;
        }
    }
}

/// See [`Stream::message`].
fn message_of<'a>(
    kept: Option<&'a (Buf, usize)>,
    lent: Option<&(Lender, Range<usize>)>,
    state: &'a State,
    given: &'a [u8],
) -> &'a [u8] {
    let message = match (lent, state) {
        (Some((Lender::Giver, at)), _) => given.get(at.clone()),
        (Some((Lender::QueuePair, at)), State::Up(qp)) => qp.staged().get(at.clone()),
        _ => kept.and_then(|(buf, length)| buf.get(..*length)),
    };
    message.unwrap_or_default()
}

/// What the upper layers tell each other in a request or reply.
fn private(flags: u8) -> PrivateData {
    PrivateData::try_from([flags, 0, 0, 0].to_vec()).unwrap_or_default()
}

/// What a Terminate says of it; None: nothing was wrong, or nobody can read it.
const fn cause(end: End) -> Option<Cause> {
    match end {
        End::Closed => None,
        End::Violated(violation) => Some(violation.cause()),
        End::ByPeer(cause) => cause,
        End::Local(cause) => Some(cause),
    }
}
