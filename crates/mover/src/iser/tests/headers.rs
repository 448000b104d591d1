// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What stands in the messages of an initiator, and which of a target it takes: a target that
//! writes its segments by hand.

use super::*;
use rdma::mpa::Framing;
use rdma::mpa::Receiver;
use rdma::mpa::Sender;
use wire::iser::IserHeader;
use wire::iwarp::Cause;
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
    msn: [u32; 3],
}

impl Facing {
    fn new() -> Self {
        let (pool, framing) = (Pool::new(16 << 20).unwrap(), Framing::default());
        let near = Initiator::new(&pool, 5).unwrap();
        let (sender, receiver) = (Sender::new(framing), Receiver::new(framing));
        let mut facing = Self { pool, near, sender, receiver, ird: 0, msn: [0; 3] };
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

/// Covers: ISP-03, ISP-19/I, FMT-10/I.
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
    // Nor by data that comes unasked.
    let mut facing = Facing::new();
    let write = Some(Slice::from(bytes(1, 100)));
    facing.near.submit(initiator::Op::Attach { task: TASK, write, read: None });
    let command = ScsiCommand { final_: false, ..command(TASK, false, 100) };
    let (task, immediate, unsolicited_end) = (TASK, 10, 50);
    let op = initiator::Op::SendCommand { task, command, immediate, unsolicited_end };
    facing.near.submit(op);
    let segments = facing.segments();
    let [_, data] = &segments[..] else { panic!("{segments:?}") };
    assert_eq!((&data[18..18 + 28], data[18 + 28]), (&none[..], 0x05));
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

/// All that is no data travels as a byte stream has it, but for what guards bytes there.
///
/// Covers: ISP-18/I, DAP-14/I.
#[test]
fn requests_travel_as_they_are() {
    let (cmd_sn, exp_stat_sn, lun) = (CmdSn(0x0102_0304), StatSn(1), UNIT);
    let (itt, ttt) = (Itt(0x1111), Ttt(0x2222));
    let requests = [
        Request::NopOut(NopOut { immediate: true, lun, itt: Itt::NONE, ttt, cmd_sn, exp_stat_sn }),
        Request::Text(TextRequest {
            immediate: false,
            final_: true,
            continue_: false,
            lun,
            itt,
            ttt,
            cmd_sn,
            exp_stat_sn,
        }),
        Request::TaskManagement(TaskManagementRequest {
            immediate: true,
            function: 1,
            lun,
            itt,
            referenced_task: Itt(0x3333),
            cmd_sn,
            exp_stat_sn,
            ref_cmd_sn: CmdSn(7),
            exp_data_sn: DataSn(0),
        }),
        Request::Logout(LogoutRequest {
            immediate: false,
            reason: 0,
            itt,
            cid: Cid(5),
            cmd_sn,
            exp_stat_sn,
        }),
    ];
    let mut facing = Facing::new();
    for request in requests {
        let takes_data = matches!(request, Request::NopOut(_) | Request::Text(_));
        let data = if takes_data { b"k=v\0".to_vec() } else { Vec::new() };
        let mut wanted = Vec::new();
        request.emit(u32::try_from(data.len()).unwrap(), &mut wanted);
        wanted.extend(&data);
        let message = facing.message(initiator::Op::SendControl { request, data });
        assert_eq!(message[..28], IserHeader::PLAIN.emit());
        assert_eq!(message[28..], wanted, "{request:?}");
    }
}

/// Covers: ISE-02/I.
#[test]
fn a_terminate_of_a_target_is_the_end() {
    let mut facing = Facing::new();
    facing.command(command(TASK, true, 100), 0);
    let terminate = facing.fpdu(Opcode::Terminate, 2, Stag(0), &[0x20, 2, 0, 0]);
    let events = facing.feed(&terminate);
    let told = initiator::Violation::Rdma(Some(Cause::MPA_CRC));
    assert!(matches!(events[..], [initiator::Event::Violation(found)] if found == told));
    facing.near.submit(ping_with(b""));
    assert!(facing.segments().is_empty(), "nothing is said to that");
}

/// Covers: ISE-05/I.
#[test]
fn a_pdu_that_no_target_sends_is_a_protocol_error() {
    for opcode in [0x2f, 0x01] {
        let mut facing = Facing::new();
        let mut pdu = pong(Itt(1)).emit(0);
        pdu[0] = opcode;
        let events = facing.say(Opcode::Send, Stag(0), &pdu);
        let wrong = initiator::Violation::Malformed { opcode };
        assert!(
            matches!(events[..], [initiator::Event::Violation(found)] if found == wrong),
            "{events:?}"
        );
    }
}

fn greeting() -> Facing {
    let mut facing = Facing::new();
    let keys = initiator::Keys { hello: true, ..initiator::Keys::LOGIN };
    facing.near.submit(initiator::Op::NoticeKeys(keys));
    facing
}

/// Covers: ISC-08, ISC-13/I.
#[test]
fn a_hello_comes_first_and_nothing_goes_out_before_it_is_answered() {
    let mut facing = Facing::new();
    facing.near.submit(initiator::Op::NoticeKeys(initiator::Keys::LOGIN));
    assert_eq!(facing.message(ping_with(b""))[0], 0x10, "nobody has asked for one");
    let mut facing = greeting();
    let ird = facing.ird;
    let (max_version, version) = (10, 10);
    let hello = IserHeader::Hello { max_version, min_version: 10, ird };
    let message = facing.message(ping_with(b""));
    assert_eq!(message, hello.emit());
    facing.near.submit(ping_with(b""));
    assert!(facing.segments().is_empty(), "it is not answered");
    let reply = IserHeader::HelloReply { rejected: false, max_version, version, ord: 1 }.emit();
    let fpdu = facing.fpdu(Opcode::Send, 0, Stag(0), &reply);
    assert!(facing.feed(&fpdu).is_empty());
    assert_eq!(facing.segments().len(), 2);
    // What is told once more begins nothing again.
    let keys = initiator::Keys { hello: true, ..initiator::Keys::LOGIN };
    facing.near.submit(initiator::Op::NoticeKeys(keys));
    assert_eq!(facing.message(ping_with(b""))[0], 0x10);
}

/// Covers: ISC-12.
#[test]
fn who_is_rejected_or_not_answered_goes() {
    let (max_version, ord) = (10, 1);
    for (rejected, version, cause) in [(true, 10, None), (false, 9, Some(Cause::UNEXPECTED_OPCODE))]
    {
        let mut facing = greeting();
        facing.segments();
        let reply = IserHeader::HelloReply { rejected, max_version, version, ord }.emit();
        let fpdu = facing.fpdu(Opcode::Send, 0, Stag(0), &reply);
        let events = facing.feed(&fpdu);
        let over = initiator::Violation::Rdma(cause);
        assert!(
            matches!(events[..], [initiator::Event::Violation(found)] if found == over),
            "{events:?}"
        );
    }
    let mut facing = greeting();
    facing.segments();
    let events = facing.say(Opcode::Send, Stag(0), &pong(Itt(1)).emit(0));
    let over = initiator::Violation::Rdma(Some(Cause::UNEXPECTED_OPCODE));
    assert!(matches!(events[..], [initiator::Event::Violation(found)] if found == over));
}
