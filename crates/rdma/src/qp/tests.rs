// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two queue pairs that talk to each other, and what each test needs.

mod ends;
mod faults;
mod flows;
mod random;

use super::*;
use crate::mpa::Checks;
use crate::mpa::Depths;
use crate::mpa::Framing;
use crate::mpa::ReadyType;
use crate::mpa::Sender;
use crate::region::Memory;
use crate::region::Withdrawn;
use crate::verbs::Head;
use crate::verbs::Lender;
use crate::verbs::Lent;
use crate::verbs::Notify;
use crate::verbs::Received;
use alloc::vec;
use alloc::vec::Vec;
use buf::Pool;
use buf::Slice;
use wire::iwarp::Markers;
use wire::iwarp::Msn;
use wire::iwarp::QueueNumber;
use wire::iwarp::Stag;
use wire::iwarp::Tagged;
use wire::iwarp::TaggedOffset;
use wire::iwarp::Untagged;

const STREAM: StreamId = StreamId(7);
const BASE: TaggedOffset = TaggedOffset(0x1000);

fn agreed(side: Side) -> Agreed {
    Agreed { side, framing: Framing::default(), depths: Depths { ird: 4, ord: 4 }, ready: None }
}

/// One end with its memory.
struct Node {
    qp: QueuePair,
    regions: Regions,
    pool: Pool,
    events: Vec<Event>,
}

impl Node {
    fn new(agreed: Agreed) -> Self {
        Self {
            qp: QueuePair::new(STREAM, agreed),
            regions: Regions::new(0),
            pool: Pool::new(16 << 20).expect("address space"),
            events: Vec::new(),
        }
    }

    fn buf(&self, len: usize) -> Buf {
        let mut buf = self.pool.take(len).expect("room");
        buf.fill(0);
        buf
    }

    fn receive(&mut self, id: u64, len: usize) {
        let buf = self.buf(len);
        self.qp.post_receive(WorkId(id), buf).expect("it is open");
    }

    fn sink(&mut self, len: usize) -> Stag {
        let buf = self.buf(len);
        self.regions.advertise(STREAM, BASE, Memory::Sink(buf)).expect("room")
    }

    fn source(&mut self, bytes: &[u8]) -> Stag {
        let slice = Slice::from(bytes.to_vec());
        self.regions.advertise(STREAM, BASE, Memory::Source(slice)).expect("room")
    }

    fn post(&mut self, id: u64, work: Work) {
        self.qp.post_send(WorkId(id), work, &self.regions).expect("it is taken");
    }

    /// The bytes of a sink.
    fn bytes(&mut self, stag: Stag) -> Vec<u8> {
        match self.regions.invalidate(stag).map(|withdrawn| withdrawn.memory) {
            Some(Memory::Sink(buf)) => buf.to_vec(),
            other => panic!("{other:?}"),
        }
    }

    fn feed(&mut self, bytes: &[u8]) {
        self.qp.handle_bytes(bytes, &mut self.regions);
        self.collect();
    }

    fn collect(&mut self) {
        self.qp.check();
        self.events.extend(core::iter::from_fn(|| self.qp.poll_event()));
    }

    /// All that it sends now.
    fn output(&mut self) -> Vec<u8> {
        let (mut bytes, mut list) = (Vec::new(), SgList::new());
        while self.qp.poll_transmit(&mut list) {
            bytes.extend(list.to_vec());
            list.clear();
            self.qp.handle_sent();
        }
        self.collect();
        bytes
    }

    /// The segments that it sends now.
    fn segments(&mut self) -> Vec<Vec<u8>> {
        let (bytes, mut receiver) = (self.output(), Receiver::new(Framing::default()));
        let (mut rest, mut segments) = (&bytes[..], Vec::new());
        while !rest.is_empty() {
            let (taken, segment) = receiver.feed(rest).expect("good FPDUs");
            segments.extend(segment.map(<[u8]>::to_vec));
            rest = &rest[taken..];
        }
        segments
    }

    /// The messages that have come, in order.
    fn messages(&self) -> Vec<(u64, Vec<u8>)> {
        let received = self.events.iter().filter_map(|event| match event {
            Event::Received(one) => Some((one.id.0, one.buf[..one.length].to_vec())),
            _ => None,
        });
        received.collect()
    }

    /// A letter for each event, with its number.
    fn told(&self) -> Vec<(char, u64)> {
        let told = self.events.iter().map(|event| match event {
            Event::Received(one) => ('m', one.id.0),
            Event::Lent(_) => ('l', 0),
            Event::Sent(id) => ('s', id.0),
            Event::Read(id) => ('r', id.0),
            Event::Shutdown => ('c', 0),
            Event::Ended(_) => ('e', 0),
            Event::Flushed(id) => ('f', id.0),
        });
        told.collect()
    }
}

/// Two ends that have agreed on this.
fn pair_of(agreed: Agreed) -> (Node, Node) {
    let framing =
        Framing { sent: agreed.framing.received, received: agreed.framing.sent, ..agreed.framing };
    let depths = Depths { ird: agreed.depths.ord, ord: agreed.depths.ird };
    let other = Agreed { side: Side::Responder, framing, depths, ..agreed };
    (Node::new(agreed), Node::new(other))
}

fn pair() -> (Node, Node) {
    pair_of(agreed(Side::Initiator))
}

/// Carries bytes in pieces until both are quiet.
fn exchange(a: &mut Node, b: &mut Node, piece: usize) {
    loop {
        let (to_b, to_a) = (a.output(), b.output());
        if to_a.is_empty() && to_b.is_empty() {
            return;
        }
        to_b.chunks(piece).for_each(|bytes| b.feed(bytes));
        to_a.chunks(piece).for_each(|bytes| a.feed(bytes));
    }
}

fn send(payload: &[u8]) -> Work {
    let payload = Slice::from(payload.to_vec());
    Work::Send { head: Head::EMPTY, payload, invalidate: None, notify: Notify::Quietly }
}

fn write(stag: Stag, offset: u64, payload: &[u8]) -> Work {
    let payload = Slice::from(payload.to_vec());
    Work::Write { payload, stag, offset: TaggedOffset(offset) }
}

fn read(sink: Stag, source: Stag, at: u64, length: u32) -> Work {
    let offset = TaggedOffset(BASE.0 + at);
    Work::Read { sink, sink_offset: offset, source, source_offset: offset, length }
}

fn of_length(len: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from(at % 251).expect("below 251")).collect()
}

/// FPDUs of these segments.
fn fpdus(segments: &[Vec<u8>]) -> Vec<u8> {
    let (mut sender, mut out) = (Sender::new(Framing::default()), SgList::new());
    for segment in segments {
        let (header, payload) = segment.split_at(14.min(segment.len()));
        sender.frame(header, &Slice::from(payload.to_vec()), &mut out);
    }
    out.to_vec()
}

/// An untagged segment of a whole message.
const fn untagged(control: u8, queue: u32, msn: u32) -> Untagged {
    Untagged {
        last: true,
        control,
        invalidate: Stag(0),
        queue: QueueNumber(queue),
        msn: Msn(msn),
        offset: 0,
    }
}

const fn tagged(control: u8, stag: Stag, offset: u64) -> Tagged {
    Tagged { last: true, control, stag, offset: TaggedOffset(offset) }
}

fn segment(header: &[u8], payload: &[u8]) -> Vec<u8> {
    [header, payload].concat()
}

fn request(source: Stag, offset: u64, length: u32) -> ReadRequest {
    ReadRequest {
        sink_stag: Stag(0xaabb_ccdd),
        sink_offset: TaggedOffset(5),
        length,
        source_stag: source,
        source_offset: TaggedOffset(offset),
    }
}
