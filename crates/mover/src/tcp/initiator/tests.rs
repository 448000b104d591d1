// SPDX-License-Identifier: Apache-2.0 OR MIT

use alloc::vec;
use alloc::vec::Vec;

use buf::Pool;
use buf::SgList;
use buf::Slice;
use iscsi::initiator::datamover::Event;
use iscsi::initiator::datamover::Keys;
use iscsi::initiator::datamover::Op;
use iscsi::initiator::datamover::TaskId;
use iscsi::initiator::datamover::Violation;
use iscsi::initiator::datamover::itt;
use proptest::prelude::*;
use wire::iscsi::*;

use super::Tcp;

const TASK: TaskId = TaskId { index: 3, generation: 2 };

const KEYS: Keys = Keys {
    header_digest: false,
    data_digest: false,
    max_send_data_segment_length: 1024,
    max_recv_data_segment_length: 1024,
    max_burst_length: 4096,
    max_outstanding_r2t: 2,
    ..Keys::LOGIN
};

const DIGESTS: Keys = Keys { header_digest: true, data_digest: true, ..KEYS };

fn numbers(max: u32) -> Numbers {
    Numbers { stat_sn: StatSn(5), exp_cmd_sn: CmdSn(2), max_cmd_sn: CmdSn(max) }
}

fn data_in(data_sn: u32, offset: u32, status: Option<u8>) -> DataIn {
    DataIn {
        final_: status.is_some(),
        acknowledge: false,
        status: status.map(|status| CollapsedStatus { status, residual: Residual::None }),
        lun: LunField::default(),
        itt: itt(TASK),
        ttt: Ttt::NONE,
        numbers: numbers(9),
        data_sn: DataSn(data_sn),
        offset,
    }
}

/// The unit of all commands.
const UNIT: LunField = LunField([0, 1, 0, 0, 0, 0, 0, 0]);

fn r2t(r2t_sn: u32, offset: u32, length: u32) -> R2t {
    R2t {
        lun: UNIT,
        itt: itt(TASK),
        ttt: Ttt(77 + r2t_sn),
        numbers: numbers(9),
        r2t_sn: R2tSn(r2t_sn),
        offset,
        desired_length: length,
    }
}

fn status(status: u8, exp_data_sn: u32) -> ScsiResponse {
    ScsiResponse {
        response: 0,
        status,
        itt: itt(TASK),
        snack_tag: 0,
        numbers: numbers(9),
        exp_data_sn: DataSn(exp_data_sn),
        bidi_read_residual: Residual::None,
        residual: Residual::None,
        status_qualifier: 0,
    }
}

/// A PDU of a target, with digests where they are on.
fn pdu(keys: Keys, response: Response, data: &[u8]) -> Vec<u8> {
    let header = response.emit(u32::try_from(data.len()).unwrap());
    let mut bytes = header.to_vec();
    if keys.header_digest {
        bytes.extend_from_slice(&crc::crc32c(&header).to_le_bytes());
    }
    let mut padded = data.to_vec();
    padded.resize(pad4(data.len()), 0);
    bytes.extend_from_slice(&padded);
    if keys.data_digest && !data.is_empty() {
        bytes.extend_from_slice(&crc::crc32c(&padded).to_le_bytes());
    }
    bytes
}

fn command(read: bool, length: u32) -> ScsiCommand {
    ScsiCommand {
        immediate: false,
        final_: true,
        read,
        write: !read,
        attribute: Attribute::Simple,
        priority: 0,
        lun: UNIT,
        itt: itt(TASK),
        expected_length: length,
        cmd_sn: CmdSn(1),
        exp_stat_sn: StatSn(0),
        cdb: Cdb { bytes: [0; 32], len: 16 },
        bidi_read_length: None,
    }
}

/// A mover with a READ of `length` bytes under way.
fn reading(keys: Keys, length: u32) -> Tcp {
    let pool = Pool::new(1 << 20).unwrap();
    let mut tcp = Tcp::new();
    tcp.submit(Op::NoticeKeys(keys));
    tcp.submit(Op::Attach { task: TASK, write: None, read: pool.take(length as usize) });
    let command = command(true, length);
    tcp.submit(Op::SendCommand { task: TASK, command, immediate: 0, unsolicited_end: 0 });
    sent(&mut tcp);
    tcp
}

/// A mover with a WRITE of `length` bytes under way, and what it sent unasked.
fn writing(keys: Keys, length: u32, immediate: u32, unsolicited_end: u32) -> (Tcp, Vec<Pdu>) {
    let bytes: Vec<u8> = (0..length).map(|at| at.to_le_bytes()[0]).collect();
    let mut tcp = Tcp::new();
    tcp.submit(Op::NoticeKeys(keys));
    tcp.submit(Op::Attach { task: TASK, write: Some(Slice::from(bytes)), read: None });
    let command = ScsiCommand { final_: immediate == unsolicited_end, ..command(false, length) };
    tcp.submit(Op::SendCommand { task: TASK, command, immediate, unsolicited_end });
    let pdus = split(keys, &sent(&mut tcp));
    (tcp, pdus)
}

/// Covers: FMT-01/I, FMT-10/I.
#[test]
fn a_write_with_its_data_is_laid_out_as_the_standard_has_it() {
    const LENGTH: u32 = 0x0102;
    let mut tcp = Tcp::new();
    let data: Vec<u8> = (0..LENGTH).map(|at| at.to_le_bytes()[0]).collect();
    tcp.submit(Op::NoticeKeys(Keys::LOGIN));
    tcp.submit(Op::Attach { task: TASK, write: Some(Slice::from(data)), read: None });
    let command = ScsiCommand { cmd_sn: CmdSn(0x0304_0506), ..command(false, LENGTH) };
    let (immediate, unsolicited_end) = (LENGTH, LENGTH);
    tcp.submit(Op::SendCommand { task: TASK, command, immediate, unsolicited_end });
    let bytes = sent(&mut tcp);
    // RFC 7143 §11.3: F, W and a simple task; TotalAHSLength 0, DataSegmentLength of three bytes.
    assert_eq!(bytes[..8], [0x01, 0xa1, 0, 0, 0, 0, 1, 2]);
    // Expected data transfer length, CmdSN, ExpStatSN, and a CDB of zeros.
    assert_eq!(bytes[20..32], [0, 0, 1, 2, 3, 4, 5, 6, 0, 0, 0, 42]);
    assert_eq!(bytes[32..BHS_LEN], [0; 16]);
    assert_eq!(bytes.len(), BHS_LEN + pad4(LENGTH as usize));
}

/// A PDU of ours.
type Pdu = (Request, Vec<u8>);

fn sent(tcp: &mut Tcp) -> Vec<u8> {
    let mut list = SgList::new();
    let mut bytes = Vec::new();
    while tcp.poll_transmit(&mut list, StatSn(42)) {
        bytes.extend_from_slice(&list.to_vec());
        assert!(!tcp.poll_transmit(&mut SgList::new(), StatSn(0)), "one list at a time");
        tcp.handle_sent();
    }
    tcp.check();
    bytes
}

/// Takes a stream of ours apart and checks its digests.
fn split(keys: Keys, mut bytes: &[u8]) -> Vec<Pdu> {
    let mut pdus = Vec::new();
    while !bytes.is_empty() {
        let (header, rest) = bytes.split_at(BHS_LEN);
        let request = Request::parse(header).unwrap();
        let length = BhsView::new_checked(header).unwrap().data_segment_length() as usize;
        let mut rest = rest;
        if keys.header_digest {
            let (digest, after) = rest.split_at(4);
            assert_eq!(digest, crc::crc32c(header).to_le_bytes());
            rest = after;
        }
        let (data, mut after) = rest.split_at(pad4(length));
        if keys.data_digest && length > 0 {
            assert_eq!(after[..4], crc::crc32c(data).to_le_bytes());
            after = &after[4..];
        }
        pdus.push((request, data[..length].to_vec()));
        bytes = after;
    }
    pdus
}

fn events(tcp: &mut Tcp, mut bytes: &[u8]) -> Vec<Event> {
    let mut events = Vec::new();
    while !bytes.is_empty() {
        let (taken, event) = tcp.feed(bytes);
        bytes = &bytes[taken..];
        events.extend(event);
    }
    tcp.check();
    events
}

#[track_caller]
fn violates(tcp: &mut Tcp, bytes: &[u8], expected: impl Fn(&Violation) -> bool) {
    let events = events(tcp, bytes);
    let Some(Event::Violation(violation)) = events.last() else { panic!("{events:?}") };
    assert!(expected(violation), "{violation}");
    let (taken, event) = tcp.feed(&[1, 2, 3]);
    assert!(taken == 3 && matches!(event, Some(Event::Violation(again)) if again == *violation));
}

/// As a port does it: the header by `feed`, the data into its buffer, at most `long` bytes at once.
fn land(tcp: &mut Tcp, mut bytes: &[u8], long: usize) -> (usize, Vec<Event>) {
    let (mut landed, mut told) = (0, Vec::new());
    while !bytes.is_empty() {
        if let Some((mut buf, at, end)) = tcp.landing() {
            let (part, after) = bytes.split_at(bytes.len().min(end - at).min(long));
            buf[at..at + part.len()].copy_from_slice(part);
            landed += part.len();
            bytes = after;
            told.extend(tcp.landed(buf, part.len()));
        } else {
            let (part, after) = bytes.split_at(bytes.len().min(BHS_LEN));
            told.extend(events(tcp, part));
            bytes = after;
        }
    }
    tcp.check();
    (landed, told)
}

#[test]
fn large_data_may_come_into_its_buffer_without_the_mover() {
    const LENGTH: u32 = 200_001;
    for keys in [KEYS, DIGESTS] {
        let keys = Keys { max_recv_data_segment_length: 1 << 20, ..keys };
        let bytes: Vec<u8> = (0..LENGTH).map(|at| at.to_le_bytes()[1]).collect();
        let (first, rest) = bytes.split_at(100_000);
        let first = pdu(keys, Response::DataIn(data_in(0, 0, None)), first);
        let rest = pdu(keys, Response::DataIn(data_in(1, 100_000, Some(0))), rest);
        for long in [1 << 20, 50_000] {
            let mut tcp = reading(keys, LENGTH);
            let (landed, told) = land(&mut tcp, &[first.clone(), rest.clone()].concat(), long);
            assert!(landed > 130_000, "{landed}");
            assert!(matches!(told.as_slice(), [.., Event::Ended { .. }]), "{told:?}");
            let byte_counters = tcp.byte_counters();
            assert_eq!(byte_counters.copied + landed as u64, u64::from(LENGTH));
            assert!(tcp.submit(Op::Detach { task: TASK }).is_some_and(|buf| buf[..] == bytes[..]));
        }
    }
}

#[test]
fn a_read_that_ends_while_its_buffer_is_away_ends_without_it() {
    let keys = Keys { max_recv_data_segment_length: 1 << 20, ..KEYS };
    let data = pdu(keys, Response::DataIn(data_in(0, 0, Some(0))), &[7; 100_000]);
    let mut tcp = reading(keys, 100_000);
    events(&mut tcp, &data[..BHS_LEN]);
    let (buf, at, end) = tcp.landing().unwrap();
    assert_eq!((at, end), (0, 100_000));
    assert!(tcp.submit(Op::Detach { task: TASK }).is_none());
    tcp.submit(Op::Release { task: TASK });
    tcp.landed(buf, end);
    tcp.check();
    assert_eq!(tcp.task_count(), 0);
}

/// Covers: DIN-05.
#[test]
fn data_lands_in_the_buffer_and_status_in_either_form() {
    for keys in [KEYS, DIGESTS] {
        let bytes: Vec<u8> = (0..2000u32).map(|at| at.to_le_bytes()[0]).collect();
        let first = DataIn { acknowledge: true, ttt: Ttt(1), ..data_in(0, 0, None) };
        let first = pdu(keys, Response::DataIn(first), &bytes[..1024]);
        for collapsed in [true, false] {
            let second = data_in(1, 1024, collapsed.then_some(0));
            let mut stream = first.clone();
            stream.extend(pdu(keys, Response::DataIn(second), &bytes[1024..]));
            if !collapsed {
                stream.extend(pdu(keys, Response::Scsi(status(0, 2)), &[]));
            }
            let mut tcp = reading(keys, 2000);
            let told = events(&mut tcp, &stream);
            let [Event::Window(_), Event::Ended(ended)] = told.as_slice() else {
                panic!("{told:?}");
            };
            assert_eq!((ended.task, ended.received, ended.damaged), (TASK, 2000, false));
            assert_eq!(*tcp.submit(Op::Detach { task: TASK }).unwrap(), bytes);
            tcp.submit(Op::Release { task: TASK });
            assert_eq!(tcp.task_count(), 0);
        }
    }
}

/// Covers: DSN-07a, DSN-07c, DIN-13/I.
#[test]
fn what_a_target_may_not_say() {
    let small = [0; 100];
    let of = |response, data: &[u8]| pdu(KEYS, response, data);
    let read =
        |data_sn, offset, data: &[u8]| of(Response::DataIn(data_in(data_sn, offset, None)), data);
    let mut tcp = reading(KEYS, 500);
    violates(&mut tcp, &read(1, 0, &small), |v| matches!(v, Violation::Sequence { .. }));
    let mut tcp = reading(KEYS, 500);
    violates(&mut tcp, &read(0, 4, &small), |v| matches!(v, Violation::Offset { .. }));
    let mut tcp = reading(KEYS, 500);
    violates(&mut tcp, &read(0, 401, &small), |v| matches!(v, Violation::Range { .. }));
    let mut tcp = reading(KEYS, 500);
    violates(&mut tcp, &read(0, u32::MAX, &small), |v| matches!(v, Violation::Range { .. }));
    let mut tcp = reading(KEYS, 500);
    violates(&mut tcp, &read(0, 0, &[0; 1025]), |v| {
        matches!(v, Violation::SegmentTooLong { length: 1025, limit: 1024 })
    });
    let mut tcp = reading(KEYS, 500);
    let stranger = DataIn { itt: Itt(3), ..data_in(0, 0, None) };
    violates(&mut tcp, &of(Response::DataIn(stranger), &small), |v| {
        matches!(v, Violation::UnknownTask(Itt(3)))
    });
    let mut tcp = reading(KEYS, 500);
    let stranger = ScsiResponse { itt: Itt(9), ..status(0, 0) };
    violates(&mut tcp, &of(Response::Scsi(stranger), &[]), |v| {
        matches!(v, Violation::UnknownTask(_))
    });
    let mut tcp = reading(KEYS, 500);
    violates(&mut tcp, &of(Response::Scsi(status(0, 2)), &[]), |v| {
        matches!(v, Violation::Sequence { .. })
    });
    let mut tcp = reading(KEYS, 500);
    violates(&mut tcp, &of(Response::R2t(r2t(0, 0, 4)), &[]), |v| {
        matches!(v, Violation::R2tRange { buffer: 0, .. })
    });
    let mut tcp = reading(KEYS, 500);
    let mut request = of(Response::Scsi(status(0, 0)), &[]);
    request[0] = 0x01;
    violates(&mut tcp, &request, |v| matches!(v, Violation::Malformed { opcode: 1 }));
    let mut tcp = reading(KEYS, 500);
    let mut with_ahs = of(Response::Scsi(status(0, 0)), &[]);
    with_ahs[4] = 255;
    violates(&mut tcp, &with_ahs, |v| matches!(v, Violation::Malformed { .. }));
}

/// Covers: DOU-07, R2T-10, KEY-22a, KEY-28a/I, CMD-32a/I, DSN-07b.
#[test]
fn r2ts_that_ask_for_too_much_are_refused() {
    for (r2ts, expected) in [
        (vec![r2t(0, 0, 4097)], "range"),
        (vec![r2t(0, 8000, 1000)], "range"),
        (vec![r2t(0, u32::MAX, 2)], "range"),
        (vec![r2t(0, 100, 100), r2t(1, 150, 100)], "range"),
        (vec![r2t(1, 0, 100)], "sequence"),
        (vec![r2t(0, 0, 8), r2t(1, 8, 8), r2t(2, 16, 8)], "many"),
        (vec![R2t { lun: LunField([0, 2, 0, 0, 0, 0, 0, 0]), ..r2t(0, 0, 8) }], "unit"),
        (vec![r2t(0, 0, 8), R2t { lun: LunField::default(), ..r2t(1, 8, 8) }], "unit"),
    ] {
        let (mut tcp, _) = writing(KEYS, 8192, 0, 0);
        let stream: Vec<u8> =
            r2ts.iter().flat_map(|r2t| pdu(KEYS, Response::R2t(*r2t), &[])).collect();
        violates(&mut tcp, &stream, |violation| match expected {
            "range" => matches!(violation, Violation::R2tRange { .. }),
            "sequence" => matches!(violation, Violation::Sequence { .. }),
            "unit" => matches!(violation, Violation::R2tUnit),
            _ => matches!(violation, Violation::TooManyR2ts(2)),
        });
    }
}

/// The burst that goes out unasked is none of them.
///
/// Covers: KEY-28a/I.
#[test]
fn an_unsolicited_burst_is_no_r2t() {
    let mut tcp = Tcp::new();
    tcp.submit(Op::NoticeKeys(KEYS));
    tcp.submit(Op::Attach { task: TASK, write: Some(Slice::from(vec![7; 8192])), read: None });
    let command = ScsiCommand { final_: false, ..command(false, 8192) };
    let (immediate, unsolicited_end) = (0, 4096);
    tcp.submit(Op::SendCommand { task: TASK, command, immediate, unsolicited_end });
    // Nothing of it has left.
    for (r2t_sn, offset) in [(0, 4096), (1, 4104)] {
        let told = events(&mut tcp, &pdu(KEYS, Response::R2t(r2t(r2t_sn, offset, 8)), &[]));
        assert!(!told.iter().any(|told| matches!(told, Event::Violation(_))), "{told:?}");
    }
    let third = pdu(KEYS, Response::R2t(r2t(2, 4112, 8)), &[]);
    violates(&mut tcp, &third, |violation| matches!(violation, Violation::TooManyR2ts(2)));
}

/// Covers: DGT-08, DGT-04/I, DGT-14/I.
#[test]
fn damage_is_found() {
    let bytes = [7; 200];
    let good = pdu(DIGESTS, Response::DataIn(data_in(0, 0, None)), &bytes);
    let end = pdu(DIGESTS, Response::DataIn(data_in(1, 200, Some(0))), &bytes);
    for at in 0..good.len() {
        let mut tcp = reading(DIGESTS, 400);
        let mut stream = good.clone();
        stream[at] ^= 0x10;
        stream.extend_from_slice(&end);
        let told = events(&mut tcp, &stream);
        match told.last() {
            Some(Event::Violation(Violation::HeaderDigest)) => assert!(at < 52, "byte {at}"),
            Some(Event::Ended(ended)) => assert!(ended.damaged && at >= 52, "byte {at}"),
            other => panic!("byte {at}: {other:?}"),
        }
    }
    let mut tcp = reading(DIGESTS, 200);
    let mut stream = pdu(DIGESTS, Response::DataIn(data_in(0, 0, Some(0))), &bytes);
    *stream.last_mut().unwrap() ^= 1;
    violates(&mut tcp, &stream, |v| *v == Violation::DataDigest);
    let mut tcp = reading(DIGESTS, 200);
    let mut stream = pdu(DIGESTS, Response::Scsi(status(2, 0)), &[0, 1, 0x70]);
    *stream.last_mut().unwrap() ^= 1;
    violates(&mut tcp, &stream, |v| *v == Violation::DataDigest);
}

/// Covers: DSN-02, DOU-01, DOU-02, DOU-03, DOU-04, DOU-09, KEY-21a/I.
#[test]
fn write_data_goes_out_as_it_was_asked_for() {
    for keys in [KEYS, DIGESTS] {
        let (mut tcp, unasked) = writing(keys, 8190, 1024, 3000);
        let [(Request::Command(command), data), outs @ ..] = unasked.as_slice() else {
            panic!("a command");
        };
        assert!(!command.final_ && data.len() == 1024);
        assert_eq!(command.exp_stat_sn, StatSn(42), "the newest");
        check_burst(outs, Ttt::NONE, 1024, 3000);
        for (offset, length, r2t_sn) in [(3000, 4096, 0), (7096, 1094, 1)] {
            let r2t = r2t(r2t_sn, offset, length);
            let told = events(&mut tcp, &pdu(keys, Response::R2t(r2t), &[]));
            assert!(told.len() <= 1, "nobody above hears of it: {told:?}");
            let outs = split(keys, &sent(&mut tcp));
            check_burst(&outs, r2t.ttt, offset, offset + length);
        }
        let told = events(&mut tcp, &pdu(keys, Response::Scsi(status(0, 2)), &[]));
        assert!(matches!(told.as_slice(), [Event::Ended(_)]));
    }
}

#[track_caller]
fn check_burst(outs: &[Pdu], ttt: Ttt, from: u32, to: u32) {
    let mut next = from;
    for (number, (request, data)) in outs.iter().enumerate() {
        let Request::DataOut(pdu) = request else { panic!("{request:?}") };
        let length = u32::try_from(data.len()).unwrap();
        assert_eq!((pdu.ttt, pdu.offset, pdu.itt), (ttt, next, itt(TASK)));
        assert_eq!(pdu.data_sn.0 as usize, number);
        assert_eq!(pdu.final_, number + 1 == outs.len());
        assert!(length <= 1024 && pdu.exp_stat_sn == StatSn(42));
        assert!(data.iter().zip(next..).all(|(byte, at)| *byte == at.to_le_bytes()[0]));
        if ttt != Ttt::NONE {
            assert_eq!(pdu.lun.0[1], 1, "a copy from the R2T");
        }
        next += length;
    }
    assert_eq!(next, to);
}

#[test]
fn a_task_that_was_released_sends_nothing_more() {
    let (mut tcp, _) = writing(KEYS, 8192, 0, 0);
    events(&mut tcp, &pdu(KEYS, Response::R2t(r2t(0, 0, 4096)), &[]));
    tcp.submit(Op::Release { task: TASK });
    assert!(sent(&mut tcp).is_empty());
    tcp.submit(Op::Terminate);
    assert!(tcp.is_terminated());
}

#[test]
fn the_window_is_told_where_it_changes() {
    let mut tcp = reading(KEYS, 300);
    let mut stream = Vec::new();
    for number in 0..3 {
        let max = if number == 2 { 12 } else { 9 };
        let data = DataIn { numbers: numbers(max), ..data_in(number, number * 100, None) };
        stream.extend(pdu(KEYS, Response::DataIn(data), &[0; 100]));
    }
    let told = events(&mut tcp, &stream);
    assert!(matches!(told.as_slice(), [Event::Window(_), Event::Window(last)]
        if last.max_cmd_sn == CmdSn(12)));
}

proptest! {
    /// Any split of the stream gives the same events.
    #[test]
    fn splits_make_no_difference(cuts in proptest::collection::vec(1..90usize, 1..40)) {
        let bytes = [3; 301];
        let mut stream = pdu(DIGESTS, Response::DataIn(data_in(0, 0, None)), &bytes);
        let (lun, numbers) = (LunField::default(), numbers(9));
        let nop = NopIn { lun, itt: Itt::NONE, ttt: Ttt(1), numbers };
        stream.extend(pdu(DIGESTS, Response::NopIn(nop), b"ping"));
        stream.extend(pdu(DIGESTS, Response::DataIn(data_in(1, 301, Some(0))), &bytes));
        let whole = events(&mut reading(DIGESTS, 602), &stream);
        let whole: Vec<_> = whole.iter().map(|event| alloc::format!("{event:?}")).collect();
        let mut tcp = reading(DIGESTS, 602);
        let (mut told, mut rest) = (Vec::new(), stream.as_slice());
        for cut in cuts.iter().cycle() {
            let (now, later) = rest.split_at((*cut).min(rest.len()));
            told.extend(events(&mut tcp, now).iter().map(|event| alloc::format!("{event:?}")));
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(told, whole);
    }

    /// Whatever comes, nothing is written beside a buffer and nothing panics.
    #[test]
    fn noise_is_harmless(
        noise in proptest::collection::vec(any::<u8>(), 0..300),
        at in 0..200usize,
    ) {
        let mut stream = pdu(KEYS, Response::DataIn(data_in(0, 0, None)), &[1; 64]);
        stream.extend(pdu(KEYS, Response::Scsi(status(0, 1)), &[]));
        for (place, byte) in stream.iter_mut().skip(at).zip(&noise) {
            *place ^= byte;
        }
        let mut tcp = reading(KEYS, 64);
        let _ = events(&mut tcp, &stream);
        let _ = sent(&mut tcp);
    }
}

#[path = "tests/agreed.rs"]
mod agreed;
/// Another connection, which all tasks of `old` have moved to and where TASK is reassigned.
fn reassigned(old: &mut Tcp, keys: Keys) -> Tcp {
    let mut new = Tcp::new();
    new.submit(Op::NoticeKeys(keys));
    for carried in old.carry_all() {
        new.adopt(carried);
    }
    let request = TaskManagementRequest {
        immediate: true,
        function: 8,
        lun: LunField::default(),
        itt: Itt(1),
        referenced_task: itt(TASK),
        cmd_sn: CmdSn(1),
        exp_stat_sn: StatSn(0),
        ref_cmd_sn: CmdSn(0),
        exp_data_sn: DataSn(0),
    };
    new.submit(Op::Reassign { task: TASK, request });
    new
}

#[path = "tests/anew.rs"]
mod anew;
#[path = "tests/framing.rs"]
mod framing;
#[path = "tests/order.rs"]
mod order;
#[path = "tests/recovery.rs"]
mod recovery;
#[path = "tests/sequences.rs"]
mod sequences;
