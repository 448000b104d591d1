// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What stands in the messages of an initiator, and which of a target it takes: a target that
//! writes its segments by hand.

use super::*;
use rdma::mpa::Framing;
use rdma::mpa::Receiver;
use rdma::mpa::Sender;
use wire::iser::IserHeader;
use wire::iwarp::Msn;
use wire::iwarp::Opcode;
use wire::iwarp::QueueNumber;
use wire::iwarp::ReadRequest;
use wire::iwarp::Stag;
use wire::iwarp::TaggedOffset;
use wire::iwarp::Untagged;

/// An initiator, and what it is told by hand.
struct Facing {
    pool: Pool,
    near: Initiator,
    sender: Sender,
    receiver: Receiver,
    /// RDMA Reads that it serves.
    ird: u16,
    msn: [u32; 2],
}

impl Facing {
    fn new() -> Self {
        let (pool, framing) = (Pool::new(16 << 20).unwrap(), Framing::default());
        let near = Initiator::new(&pool, 5).unwrap();
        let (sender, receiver) = (Sender::new(framing), Receiver::new(framing));
        let mut facing = Self { pool, near, sender, receiver, ird: 0, msn: [0; 2] };
        let mut list = SgList::new();
        assert!(facing.near.poll_transmit(&mut list, StatSn(1)));
        facing.near.handle_sent();
        let request = list.to_vec();
        facing.ird = u16::from_be_bytes([request[20], request[21]]) & 0x3fff;
        assert!(facing.feed(b"MPA ID Rep Frame\x50\x02\x00\x04\x00\x10\x00\x10").is_empty());
        facing
    }

    fn feed(&mut self, bytes: &[u8]) -> Vec<initiator::Event> {
        let (mut events, mut rest) = (Vec::new(), bytes);
        while !rest.is_empty() || self.near.has_more() {
            let (taken, event) = self.near.feed(rest);
            rest = &rest[taken..];
            events.extend(event);
        }
        events
    }

    fn fpdu(&mut self, opcode: Opcode, queue: u32, invalidate: Stag, payload: &[u8]) -> Vec<u8> {
        let msn = &mut self.msn[queue as usize];
        *msn += 1;
        let (last, control, msn, offset) = (true, opcode.control(), Msn(*msn), 0);
        let queue = QueueNumber(queue);
        let header = Untagged { last, control, invalidate, queue, msn, offset }.emit();
        let mut list = SgList::new();
        self.sender.frame(&header, &Slice::from(payload.to_vec()), &mut list);
        list.to_vec()
    }

    fn say(&mut self, opcode: Opcode, invalidate: Stag, pdu: &[u8]) -> Vec<initiator::Event> {
        let message = [&IserHeader::PLAIN.emit()[..], pdu].concat();
        let fpdu = self.fpdu(opcode, 0, invalidate, &message);
        self.feed(&fpdu)
    }

    /// The segments of the initiator.
    fn segments(&mut self) -> Vec<Vec<u8>> {
        let (mut segments, mut list) = (Vec::new(), SgList::new());
        while self.near.poll_transmit(&mut list, StatSn(1)) {
            let bytes = list.to_vec();
            list.clear();
            self.near.handle_sent();
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let (taken, segment) = self.receiver.feed(rest).unwrap();
                rest = &rest[taken..];
                segments.extend(segment.map(<[u8]>::to_vec));
            }
        }
        segments
    }

    /// The one message that it sends for this.
    fn message(&mut self, op: initiator::Op) -> Vec<u8> {
        self.near.submit(op);
        let segments = self.segments();
        let [segment] = &segments[..] else { panic!("{segments:?}") };
        segment[18..].to_vec()
    }

    fn command(&mut self, command: ScsiCommand, immediate: u32) -> Vec<u8> {
        let length = command.expected_length;
        let buf = (command.read && length > 0).then(|| self.pool.take(length as usize).unwrap());
        let write = command.write.then(|| Slice::from(bytes(1, length)));
        self.near.submit(initiator::Op::Release { task: TASK });
        self.near.submit(initiator::Op::Attach { task: TASK, write, read: buf });
        let (task, unsolicited_end) = (TASK, immediate);
        self.message(initiator::Op::SendCommand { task, command, immediate, unsolicited_end })
    }
}

fn ping_with(data: &[u8]) -> initiator::Op {
    let request = ping(Itt(1), Ttt::NONE);
    initiator::Op::SendControl { request, data: data.to_vec() }
}

/// Covers: ISP-03, ISP-19/I.
#[test]
fn memory_is_named_by_commands_that_move_data_and_by_nothing_else() {
    let mut facing = Facing::new();
    let none = [&[0x10][..], &[0; 27]].concat();
    for (data, length) in [(&b""[..], 0), (b"1", 4), (b"12345", 8)] {
        let message = facing.message(ping_with(data));
        assert_eq!((&message[..28], message.len()), (&none[..], 28 + 48 + length));
        assert_eq!(message[28 + 5..28 + 8], [0, 0, data.len().to_le_bytes()[0]]);
        assert!(message[28 + 48 + data.len()..].iter().all(|byte| *byte == 0), "padding");
    }
    let message = facing.command(command(TASK, true, 0), 0);
    assert_eq!(message[..28], none);
    let message = facing.command(command(TASK, true, 100), 0);
    assert_eq!((message[0], message.len()), (0x14, 28 + 48));
    assert!(message[1..16].iter().all(|byte| *byte == 0) && message[16..20] != [0; 4]);
    assert_eq!(message[20..28], 0x1_0000_u64.to_be_bytes());
    let message = facing.command(command(TASK, false, 100), 33);
    assert_eq!((message[0], message.len()), (0x18, 28 + 48 + 36));
    assert!(message[4..8] != [0; 4] && message[8..16] == 0x1_0000_u64.to_be_bytes());
    assert!(message[16..28].iter().all(|byte| *byte == 0));
    let message = facing.command(command(TASK, false, 100), 100);
    assert_eq!(message[..28], none, "all of it is here");
}

/// Covers: ISP-11.
#[test]
fn a_status_may_come_in_each_kind_of_send() {
    for (opcode, ends) in [
        (Opcode::Send, false),
        (Opcode::SendSolicited, false),
        (Opcode::SendInvalidate, true),
        (Opcode::SendSolicitedInvalidate, true),
    ] {
        let mut facing = Facing::new();
        let message = facing.command(command(TASK, true, 100), 0);
        let stag = Stag(u32::from_be_bytes(*message[16..].first_chunk().unwrap()));
        let invalidate = if ends { stag } else { Stag(0) };
        let events = facing.say(opcode, invalidate, &status(TASK).emit(0));
        assert!(matches!(events[..], [initiator::Event::Ended(_)]), "{opcode:?} {events:?}");
        assert_eq!(facing.near.advertised(), 0);
        assert!(facing.near.submit(initiator::Op::Detach { task: TASK }).is_some());
        facing.near.check();
        // The connection goes on.
        let events = facing.say(Opcode::Send, Stag(0), &pong(Itt(1)).emit(0));
        assert!(matches!(events[..], [initiator::Event::Control { .. }]), "{events:?}");
    }
}

/// Covers: ISF-09.
#[test]
fn as_many_reads_are_served_at_once_as_was_announced() {
    let mut facing = Facing::new();
    let message = facing.command(command(TASK, false, 4096), 0);
    let stag = Stag(u32::from_be_bytes(*message[4..].first_chunk().unwrap()));
    let (count, mut all) = (facing.ird, Vec::new());
    assert!(count > 0);
    for at in 0..count {
        let offset = u64::from(at);
        let request = ReadRequest {
            sink_stag: Stag(7),
            sink_offset: TaggedOffset(offset),
            length: 1,
            source_stag: stag,
            source_offset: TaggedOffset(0x1_0000 + offset),
        };
        all.extend(facing.fpdu(Opcode::ReadRequest, 1, Stag(0), &request.emit()));
    }
    assert!(facing.feed(&all).is_empty());
    let answers: Vec<u8> = facing.segments().iter().map(|segment| segment[14]).collect();
    assert_eq!(answers, bytes(1, count.into()), "in order");
}

/// Covers: ISF-03.
#[test]
fn the_longest_pdu_of_a_target_finds_room() {
    let mut facing = Facing::new();
    let keys = initiator::Keys { max_recv_data_segment_length: 8192, ..initiator::Keys::LOGIN };
    facing.near.submit(initiator::Op::NoticeKeys(keys));
    let data = bytes(3, 8192);
    let pdu = [&pong(Itt(1)).emit(8192)[..], &data].concat();
    let events = facing.say(Opcode::Send, Stag(0), &pdu);
    assert!(matches!(events[..], [initiator::Event::Control { .. }]), "{events:?}");
    assert_eq!(facing.near.control_data(), data);
    // In two segments it needs a buffer.
    let message = [&IserHeader::PLAIN.emit()[..], &pdu].concat();
    let header = Untagged {
        last: false,
        control: Opcode::Send.control(),
        invalidate: Stag(0),
        queue: QueueNumber(0),
        msn: Msn(2),
        offset: 0,
    };
    let mut list = SgList::new();
    for (last, range) in [(false, 0..100), (true, 100..message.len())] {
        let offset = u32::try_from(range.start).unwrap();
        let header = Untagged { last, offset, ..header }.emit();
        facing.sender.frame(&header, &Slice::from(message[range].to_vec()), &mut list);
    }
    let events = facing.feed(&list.to_vec());
    assert!(matches!(events[..], [initiator::Event::Control { .. }]), "{events:?}");
    assert_eq!(facing.near.control_data(), data);
}
