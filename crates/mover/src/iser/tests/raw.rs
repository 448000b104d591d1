// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A peer that writes its segments by hand, to either end: what it may not do is told by a
//! Terminate, and moves no byte.

use super::*;
use crate::iser::message::MESSAGE_LEN_MAX;
use iscsi::datamover::StreamViolation;
use rdma::mpa::Framing;
use rdma::mpa::Receiver;
use rdma::mpa::Sender;
use wire::iser::Advertised;
use wire::iser::IserHeader;
use wire::iwarp::Cause;
use wire::iwarp::Ddp;
use wire::iwarp::Msn;
use wire::iwarp::Opcode;
use wire::iwarp::QueueNumber;
use wire::iwarp::ReadRequest;
use wire::iwarp::Stag;
use wire::iwarp::Tagged;
use wire::iwarp::TaggedOffset;
use wire::iwarp::Terminate;
use wire::iwarp::Untagged;

const REQUEST: &[u8] = b"MPA ID Req Frame\x50\x02\x00\x08\x00\x04\x00\x04\x00\x00\x00\x00";
const REPLY_LEN: usize = 28;

/// A target, and an initiator that says what it likes.
struct Raw {
    pool: Pool,
    far: Target,
    sender: Sender,
    receiver: Receiver,
    sends: u32,
    events: Vec<target::Event>,
    /// Segments of the target.
    said: Vec<Vec<u8>>,
}

impl Raw {
    /// MPA has begun; nothing has been said.
    fn stranger() -> Self {
        Self::stranger_to(3)
    }

    /// As `stranger`, to a connection whose STags follow from `seed`.
    fn stranger_to(seed: u32) -> Self {
        Self::begin(REQUEST, seed)
    }

    fn begin(request: &[u8], seed: u32) -> Self {
        let (pool, framing) = (Pool::new(16 << 20).unwrap(), Framing::default());
        let far = Target::of_stranger(seed);
        let (sender, receiver) = (Sender::new(framing), Receiver::new(framing));
        let (events, said) = (Vec::new(), Vec::new());
        let mut raw = Self { pool, far, sender, receiver, sends: 0, events, said };
        raw.feed(request);
        let mut list = SgList::new();
        assert!(raw.far.poll_transmit(&mut list));
        assert!(list.to_vec().starts_with(b"MPA ID Rep Frame") && list.len() == REPLY_LEN);
        raw.far.handle_sent();
        raw
    }

    /// In full feature phase.
    fn new() -> Self {
        Self::stranger().log_in()
    }

    fn log_in(self) -> Self {
        let mut raw = self;
        let mut pdu = Vec::new();
        login().emit(0, &mut pdu);
        raw.say(&IserHeader::PLAIN, &pdu);
        assert!(matches!(raw.events[..], [target::Event::Control { .. }]), "{:?}", raw.events);
        raw.far.submit(target::Op::NoticeKeys(target::Keys::LOGIN));
        raw.events.clear();
        raw
    }

    fn feed(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() || self.far.has_more() {
            let (taken, event) = self.far.feed(rest, &self.pool);
            rest = &rest[taken..];
            self.events.extend(event);
            self.far.check();
        }
    }

    /// What the target has to say.
    fn listen(&mut self) {
        let mut list = SgList::new();
        while self.far.poll_transmit(&mut list) {
            let bytes = list.to_vec();
            list.clear();
            self.far.handle_sent();
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let (taken, segment) = self.receiver.feed(rest).unwrap();
                rest = &rest[taken..];
                self.said.extend(segment.map(<[u8]>::to_vec));
            }
        }
    }

    fn fpdu(&mut self, header: &[u8], payload: &[u8]) -> Vec<u8> {
        let mut list = SgList::new();
        self.sender.frame(header, &Slice::from(payload.to_vec()), &mut list);
        list.to_vec()
    }

    fn segment(&mut self, header: &[u8], payload: &[u8]) {
        let bytes = self.fpdu(header, payload);
        self.feed(&bytes);
        self.listen();
    }

    fn header(&mut self) -> Untagged {
        self.sends += 1;
        Untagged { msn: Msn(self.sends), ..untagged(Opcode::Send, 0, 0) }
    }

    fn say(&mut self, header: &IserHeader, pdu: &[u8]) {
        let send = self.header().emit();
        self.segment(&send, &[&header.emit()[..], pdu].concat());
    }

    /// A WRITE of 64 bytes of which the target has asked for all: the name of its buffer.
    fn write(&mut self) -> ReadRequest {
        let memory = Advertised { stag: Stag(0x77), base: TaggedOffset(0x5000) };
        let mut pdu = Vec::new();
        command(TASK, false, 64).emit(0, &mut pdu);
        self.say(&IserHeader::Control { write: Some(memory), read: None }, &pdu);
        let mut buf = self.pool.take(64).unwrap();
        buf.fill(0x55);
        self.far.submit(target::Op::Attach { task: TASK, buf });
        self.far.submit(get(0, 64));
        self.listen();
        let asked = self.said.pop().unwrap();
        let request = ReadRequest::parse(asked[18..].first_chunk().unwrap());
        assert_eq!((request.source_stag, request.length), (memory.stag, 64));
        assert_eq!(request.source_offset, memory.base);
        self.events.clear();
        request
    }

    fn answer(&mut self, asked: &ReadRequest, at: u64, payload: &[u8]) {
        let offset = TaggedOffset(asked.sink_offset.0.wrapping_add(at));
        let header = tagged(Opcode::ReadResponse, asked.sink_stag, offset);
        self.segment(&header.emit(), payload);
    }

    /// The target has ended the connection, with this as its last word.
    fn assert_ended(&mut self, wanted: Cause) {
        let told = StreamViolation::Rdma(Some(wanted));
        assert!(
            matches!(self.events[..], [.., target::Event::Violation(found)] if found == told),
            "{:?}",
            self.events
        );
        assert_eq!(terminate(self.said.last().unwrap()), Some(wanted));
        let said = self.said.len();
        self.segment(&untagged(Opcode::Send, 0, 9).emit(), b"more");
        assert_eq!(self.said.len(), said, "it is the last one");
    }

    fn buf(&mut self) -> Vec<u8> {
        self.far.submit(target::Op::Detach { task: TASK }).unwrap().to_vec()
    }
}

fn untagged(opcode: Opcode, queue: u32, msn: u32) -> Untagged {
    let (last, control, queue) = (true, opcode.control(), QueueNumber(queue));
    Untagged { last, control, invalidate: Stag(0), queue, msn: Msn(msn), offset: 0 }
}

fn tagged(opcode: Opcode, stag: Stag, offset: TaggedOffset) -> Tagged {
    Tagged { last: true, control: opcode.control(), stag, offset }
}

/// Why a segment ends a stream, if it does.
fn terminate(segment: &[u8]) -> Option<Cause> {
    let header = Ddp::parse(segment).ok()?;
    let is_terminate = header.control() == Opcode::Terminate.control();
    let told = Terminate::parse(&segment[header.len()..]).ok().filter(|_| is_terminate);
    told.map(|told| told.cause)
}

#[test]
fn who_is_not_known_costs_what_it_has_sent_and_no_more() {
    let mut raw = Raw::stranger();
    assert_eq!(raw.pool.bytes_in_use(), 0, "MPA alone");
    let send = raw.header().emit();
    let mut pdu = Vec::new();
    login().emit(8192, &mut pdu);
    let message = [&IserHeader::PLAIN.emit()[..], &pdu, &[b'x'; 8192]].concat();
    let fpdu = raw.fpdu(&send, &message);
    let (most, last) = fpdu.split_at(fpdu.len() - 1);
    raw.feed(most);
    assert_eq!(raw.pool.bytes_in_use(), 0, "a message that is not whole");
    assert!(raw.far.bytes_held() <= MESSAGE_LEN_MAX + 32, "{}", raw.far.bytes_held());
    raw.feed(last);
    assert!(matches!(raw.events[..], [target::Event::Control { .. }]));
    assert!(raw.pool.bytes_in_use() <= 16 << 10, "one message");
    assert!(raw.far.bytes_held() <= MESSAGE_LEN_MAX + 32);
    // What it announces costs nothing.
    let mut raw = Raw::stranger();
    raw.feed(&[0xff, 0xff, 0x41]);
    raw.listen();
    raw.assert_ended(Cause::UNTAGGED_TOO_LONG);
    assert_eq!((raw.pool.bytes_in_use(), raw.far.bytes_held()), (0, 0));
    // Who has logged in may send long segments.
    let mut raw = Raw::new();
    raw.feed(&[0xff, 0xff, 0x41]);
    assert!(raw.events.is_empty());
}

#[test]
fn without_a_buffer_for_its_message_a_stranger_is_told_so() {
    let mut raw = Raw::stranger();
    raw.pool = Pool::new(0).unwrap();
    let begun = Untagged { last: false, ..raw.header() };
    raw.segment(&begun.emit(), &[0x10; 40]);
    raw.assert_ended(Cause::UNTAGGED_NO_BUFFER);
}

/// Covers: ISE-02/T.
#[test]
fn a_terminate_is_the_end_in_each_state() {
    let say = |raw: &mut Raw, payload: &[u8]| {
        raw.events.clear();
        raw.said.clear();
        raw.segment(&untagged(Opcode::Terminate, 2, 1).emit(), payload);
        let [target::Event::Violation(StreamViolation::Rdma(cause))] = raw.events[..] else {
            panic!("{:?}", raw.events)
        };
        assert!(raw.said.is_empty(), "nothing is said to that");
        raw.far.submit(control(pong(Itt(1)), &[]));
        raw.listen();
        assert!(raw.said.is_empty(), "nor to anything else");
        cause
    };
    let crc = [0x20, 2, 0, 0];
    assert_eq!(say(&mut Raw::stranger(), &crc), Some(Cause::MPA_CRC));
    assert_eq!(say(&mut Raw::new(), &crc), Some(Cause::MPA_CRC));
    assert_eq!(say(&mut Raw::new(), b"x"), None, "nobody can read it");
    let mut raw = Raw::new();
    let asked = raw.write();
    assert_eq!(say(&mut raw, &crc), Some(Cause::MPA_CRC));
    raw.events.clear();
    raw.answer(&asked, 0, &[9; 64]);
    assert!(!matches!(raw.events[..], [target::Event::DataDone { .. }]));
    assert_eq!(raw.buf(), [0x55; 64]);
    // In the middle of a message.
    let mut raw = Raw::new();
    let begun = Untagged { last: false, ..raw.header() };
    raw.segment(&begun.emit(), &[0x10; 40]);
    assert_eq!(say(&mut raw, &crc), Some(Cause::MPA_CRC));
}

/// Covers: ISE-03/T.
#[test]
fn an_initiator_breaks_no_rule_of_the_transport() {
    type Say = fn(&mut Raw, &ReadRequest);
    let cases: &[(&str, Cause, Say)] = &[
        ("a name that nobody gave", Cause::TAGGED_INVALID_STAG, |raw, asked| {
            let stag = Stag(asked.sink_stag.0 ^ 0x100);
            raw.segment(&tagged(Opcode::Write, stag, asked.sink_offset).emit(), &[9; 64]);
        }),
        ("more than the buffer", Cause::TAGGED_BOUNDS, |raw, asked| {
            raw.segment(
                &tagged(Opcode::Write, asked.sink_stag, asked.sink_offset).emit(),
                &[9; 65],
            );
        }),
        ("more than was asked for", Cause::TAGGED_BOUNDS, |raw, asked| {
            raw.answer(asked, 0, &[9; 65]);
        }),
        ("less than was asked for", Cause::TAGGED_BOUNDS, |raw, asked| {
            raw.answer(asked, 0, &[9; 63]);
        }),
        ("elsewhere", Cause::TAGGED_BOUNDS, |raw, asked| raw.answer(asked, 1, &[9; 63])),
        ("another name", Cause::TAGGED_INVALID_STAG, |raw, asked| {
            let asked = ReadRequest { sink_stag: Stag(asked.sink_stag.0 ^ 1), ..*asked };
            raw.answer(&asked, 0, &[9; 64]);
        }),
        ("our buffer is not to be read", Cause::REMOTE_ACCESS, |raw, asked| {
            let request = ReadRequest {
                source_stag: asked.sink_stag,
                source_offset: asked.sink_offset,
                ..*asked
            };
            raw.segment(&untagged(Opcode::ReadRequest, 1, 1).emit(), &request.emit());
        }),
        ("our name is not theirs to end", Cause::UNEXPECTED_OPCODE, |raw, asked| {
            let header = Untagged {
                control: Opcode::SendInvalidate.control(),
                invalidate: asked.sink_stag,
                ..raw.header()
            };
            raw.segment(&header.emit(), &IserHeader::PLAIN.emit());
        }),
        ("a number left out", Cause::UNTAGGED_MSN, |raw, _| {
            raw.sends += 1;
            raw.say(&IserHeader::PLAIN, &[0; 48]);
        }),
        ("a message that begins in its middle", Cause::UNTAGGED_OFFSET, |raw, _| {
            let header = Untagged { offset: 4, ..raw.header() };
            raw.segment(&header.emit(), &[0; 76]);
        }),
        ("a queue that there is not", Cause::UNTAGGED_QUEUE, |raw, _| {
            let header = Untagged { queue: QueueNumber(3), ..raw.header() };
            raw.segment(&header.emit(), &[0; 76]);
        }),
        ("a message longer than any", Cause::UNTAGGED_TOO_LONG, |raw, _| {
            let header = raw.header().emit();
            raw.segment(&header, &[0; 10_000]);
        }),
        ("a crc", Cause::MPA_CRC, |raw, _| {
            let header = raw.header().emit();
            let mut bytes = raw.fpdu(&header, &[0; 76]);
            bytes[30] ^= 1;
            raw.feed(&bytes);
            raw.listen();
        }),
        ("a length without a header", Cause::MPA_MARKER, |raw, _| {
            raw.feed(&[0, 3, 0, 0, 0, 0, 0, 0]);
            raw.listen();
        }),
    ];
    for (what, cause, say) in cases {
        let mut raw = Raw::new();
        let asked = raw.write();
        say(&mut raw, &asked);
        raw.assert_ended(*cause);
        // Of a name that was ended the memory is gone.
        let buf = raw.far.submit(target::Op::Detach { task: TASK });
        assert_eq!(buf.is_none(), *cause == Cause::UNEXPECTED_OPCODE, "{what}");
        assert!(buf.is_none_or(|buf| buf[..] == [0x55; 64]), "{what}");
    }
}

/// The RDMA Reads that the initiator may have under way are agreed on; these ask for nothing.
#[test]
fn more_reads_than_agreed_on_end_the_connection() {
    let mut raw = Raw::new();
    let none = ReadRequest::parse(&[0; 28]);
    let mut bytes = Vec::new();
    for msn in 1..=4 {
        bytes.extend(raw.fpdu(&untagged(Opcode::ReadRequest, 1, msn).emit(), &none.emit()));
    }
    raw.feed(&bytes);
    assert!(raw.events.is_empty());
    raw.listen();
    assert_eq!(raw.said.len(), 4, "each is answered by nothing");
    let mut bytes = Vec::new();
    for msn in 5..=9 {
        bytes.extend(raw.fpdu(&untagged(Opcode::ReadRequest, 1, msn).emit(), &none.emit()));
    }
    raw.feed(&bytes);
    raw.listen();
    raw.assert_ended(Cause::UNTAGGED_NO_BUFFER);
}

#[test]
fn a_buffer_is_reached_no_more_when_all_of_it_has_come() {
    let mut raw = Raw::new();
    let asked = raw.write();
    let header = tagged(Opcode::ReadResponse, asked.sink_stag, asked.sink_offset);
    raw.segment(&Tagged { last: false, ..header }.emit(), &[7; 63]);
    assert!(raw.events.is_empty(), "a byte is missing");
    raw.answer(&asked, 63, &[7]);
    assert!(matches!(raw.events[..], [target::Event::DataDone { task: TASK, length: 64, .. }]));
    raw.segment(&tagged(Opcode::Write, asked.sink_stag, asked.sink_offset).emit(), &[9; 64]);
    raw.assert_ended(Cause::TAGGED_INVALID_STAG);
    assert_eq!(raw.buf(), [7; 64]);
    let mut raw = Raw::new();
    let asked = raw.write();
    raw.answer(&asked, 0, &[7; 64]);
    raw.answer(&asked, 0, &[9; 64]);
    raw.assert_ended(Cause::UNEXPECTED_OPCODE);
    assert_eq!(raw.buf(), [7; 64], "nobody asked a second time");
}

#[test]
fn data_that_has_no_place_is_not_left_out() {
    let mut raw = Raw::new();
    let mut pdu = Vec::new();
    command(TASK, false, 64).emit(0, &mut pdu);
    let memory = Some(Advertised { stag: Stag(0x77), base: TaggedOffset(0x5000) });
    raw.say(&IserHeader::Control { write: memory, read: None }, &pdu);
    raw.events.clear();
    raw.far.submit(put(&[1; 64], 0));
    raw.far.submit(control(status(TASK), &[]));
    raw.listen();
    assert_eq!(raw.said.len(), 1, "no status says that all is well");
    assert_eq!(terminate(&raw.said[0]), Some(Cause::CATASTROPHIC_STREAM));
}

/// Covers: MPE-06.
#[test]
fn a_reply_that_an_initiator_cannot_work_with_is_answered_by_a_terminate() {
    let pool = Pool::new(1 << 20).unwrap();
    let reply = b"MPA ID Rep Frame\x50\x02\x00\x04\x00\x01\x3f\x00";
    let mut near = Initiator::new(&pool, 1).unwrap();
    let mut list = SgList::new();
    assert!(near.poll_transmit(&mut list, StatSn(1)));
    near.handle_sent();
    list.clear();
    let (_, event) = near.feed(reply);
    let wanted = initiator::Violation::Rdma(Some(Cause::MPA_IRD));
    assert!(matches!(event, Some(initiator::Event::Violation(found)) if found == wanted));
    assert!(near.poll_transmit(&mut list, StatSn(1)));
    let fpdu = list.to_vec();
    let mut receiver = Receiver::new(Framing::default());
    let (_, segment) = receiver.feed(&fpdu).unwrap();
    assert_eq!(terminate(segment.unwrap()), Some(Cause::MPA_IRD));
}

/// Covers: ISF-02.
#[test]
fn the_longest_pdu_of_an_initiator_finds_room() {
    let mut raw = Raw::new();
    let mut pdu = Vec::new();
    command(TASK, false, 8192).emit(8192, &mut pdu);
    pdu[4] = 64;
    // Additional headers of a type that nobody knows, as many as an initiator may send.
    pdu.extend([0, 253, 0x3f, 0]);
    pdu.resize(48 + 256, 0);
    pdu.extend([7; 8192]);
    let message = [&IserHeader::PLAIN.emit()[..], &pdu].concat();
    // Whole, it is lent; in two segments it needs a buffer.
    for cut in [0, 100] {
        let (first, second) = message.split_at(cut);
        raw.events.clear();
        let header = raw.header();
        if cut > 0 {
            raw.segment(&Untagged { last: false, ..header }.emit(), first);
        }
        let offset = u32::try_from(cut).unwrap();
        raw.segment(&Untagged { offset, ..header }.emit(), second);
        assert!(
            matches!(
                raw.events[..],
                [target::Event::Control { .. } | target::Event::Rejected { .. }]
            ),
            "{:?}",
            raw.events
        );
    }
}

/// Covers: ISC-10.
#[test]
fn a_hello_is_the_first_message_behind_a_login_by_rdma_too() {
    let hello = IserHeader::Hello { max_version: 10, min_version: 10, ird: 2 };
    let mut raw = Raw::new();
    raw.say(&hello, &[]);
    raw.assert_ended(Cause::UNEXPECTED_OPCODE);
    for is_said in [true, false] {
        let mut raw = Raw::stranger();
        let mut pdu = Vec::new();
        login().emit(0, &mut pdu);
        raw.say(&IserHeader::PLAIN, &pdu);
        let keys = target::Keys { hello: true, ..target::Keys::LOGIN };
        raw.far.submit(target::Op::NoticeKeys(keys));
        if is_said {
            raw.say(&hello, &[]);
            let said = raw.said.pop().unwrap();
            let reply = IserHeader::parse(&said[18..]).unwrap();
            assert!(matches!(reply, IserHeader::HelloReply { rejected: false, ord: 2, .. }));
            // It is asked for once.
            raw.far.submit(target::Op::NoticeKeys(keys));
        }
        raw.events.clear();
        pdu.clear();
        ping(Itt(1), Ttt::NONE).emit(0, &mut pdu);
        raw.say(&IserHeader::PLAIN, &pdu);
        if is_said {
            assert!(matches!(raw.events[..], [target::Event::Control { .. }]));
        } else {
            raw.assert_ended(Cause::UNEXPECTED_OPCODE);
        }
    }
}

#[test]
fn a_start_may_come_byte_by_byte() {
    let mut raw = Raw::stranger();
    let mut far = Target::of_stranger(4);
    let send = raw.header().emit();
    let mut pdu = Vec::new();
    login().emit(0, &mut pdu);
    let fpdu = raw.fpdu(&send, &[&IserHeader::PLAIN.emit()[..], &pdu].concat());
    let bytes = [REQUEST, &fpdu].concat();
    let mut events = Vec::new();
    for byte in &bytes {
        let (taken, event) = far.feed(&[*byte], &raw.pool);
        assert_eq!(taken, 1);
        events.extend(event);
    }
    assert!(matches!(events[..], [target::Event::Control { .. }]), "{events:?}");
}

/// Covers: ISP-18/T, ISP-19/T, DAP-14/T.
#[test]
fn responses_travel_as_they_are() {
    let (itt, lun, ttt, numbers) = (Itt(0x1111), UNIT, Ttt(0x2222), numbers());
    let responses = [
        Response::NopIn(NopIn { lun, itt: Itt::NONE, ttt, numbers }),
        Response::Text(TextResponse { final_: true, continue_: false, lun, itt, ttt, numbers }),
        Response::TaskManagement(TaskManagementResponse {
            response: 0,
            additional: 0,
            itt,
            numbers,
        }),
        Response::Logout(LogoutResponse {
            response: 0,
            itt,
            numbers,
            time2wait: 2,
            time2retain: 0,
        }),
        Response::Async(AsyncMessage {
            lun,
            numbers,
            event: 1,
            vcode: 0,
            parameter1: 1,
            parameter2: 2,
            parameter3: 3,
        }),
        Response::Reject(Reject { reason: 4, numbers, data_sn: DataSn(0) }),
    ];
    for response in responses {
        let is_bare = matches!(response, Response::TaskManagement(_) | Response::Logout(_));
        for length in if is_bare { 0..1 } else { 0..9_u8 } {
            let mut raw = Raw::new();
            raw.listen();
            raw.said.clear();
            let data: Vec<u8> = (1..=length).collect();
            raw.far.submit(control(response, &data));
            raw.listen();
            let [segment] = &raw.said[..] else { panic!("{:?}", raw.said) };
            let message = &segment[18..];
            assert_eq!(message[..28], IserHeader::PLAIN.emit());
            let (header, rest) = message[28..].split_at(48);
            assert_eq!(header, response.emit(length.into()));
            let (told, padding) = rest.split_at(data.len());
            assert_eq!((told, rest.len()), (&data[..], data.len().next_multiple_of(4)));
            assert!(padding.iter().all(|byte| *byte == 0));
        }
    }
}

/// Covers: IST-02/T, IST-05.
#[test]
fn a_sink_is_for_the_data_that_was_asked_for_on_its_connection() {
    let mut other = Raw::stranger_to(8).log_in();
    let theirs = other.write();
    let mut raw = Raw::new();
    let ours = raw.write();
    assert_ne!(ours.sink_stag, theirs.sink_stag);
    raw.answer(&theirs, 0, &[9; 64]);
    raw.assert_ended(Cause::TAGGED_INVALID_STAG);
    assert_eq!(raw.buf(), [0x55; 64]);
    other.answer(&theirs, 0, &[9; 64]);
    assert!(matches!(other.events[..], [target::Event::DataDone { .. }]), "{:?}", other.events);
    assert_eq!(other.buf(), [9; 64]);
}

/// Covers: ISE-05/T.
#[test]
fn a_pdu_that_no_initiator_sends_is_rejected_and_the_next_one_is_taken() {
    let mut raw = Raw::new();
    let mut pdu = Vec::new();
    ping(Itt(1), Ttt::NONE).emit(0, &mut pdu);
    let good = pdu.clone();
    pdu[0] = 0x1f;
    raw.say(&IserHeader::PLAIN, &pdu);
    assert!(matches!(raw.events[..], [target::Event::Rejected { .. }]), "{:?}", raw.events);
    raw.events.clear();
    raw.say(&IserHeader::PLAIN, &good);
    assert!(matches!(raw.events[..], [target::Event::Control { .. }]), "{:?}", raw.events);
}

/// Who says that it takes no Send with Invalidate gets none.
///
/// Covers: ISP-10.
#[test]
fn a_status_ends_no_name_of_who_does_not_want_that() {
    for (flags, opcode) in [(0, 6), (0x40, 5)] {
        let request = [&REQUEST[..24], &[flags, 0, 0, 0]].concat();
        let mut raw = Raw::begin(&request, 3).log_in();
        let memory = Advertised { stag: Stag(0x77), base: TaggedOffset(0x5000) };
        let mut pdu = Vec::new();
        command(TASK, true, 64).emit(0, &mut pdu);
        raw.say(&IserHeader::Control { write: None, read: Some(memory) }, &pdu);
        raw.far.submit(control(status(TASK), &[]));
        raw.listen();
        let said = raw.said.last().unwrap();
        let ended = Stag(u32::from_be_bytes(*said[2..].first_chunk().unwrap()));
        let wanted = if flags == 0 { memory.stag } else { Stag(0) };
        assert_eq!((said[1] & 0x0f, ended), (opcode, wanted));
    }
}
