// SPDX-License-Identifier: Apache-2.0 OR MIT

use super::super::Filter;
use super::super::Terms;
use super::super::tags::TAGS_MAX;
use super::super::tests::ends;
use super::super::tests::read;
use super::super::tests::terms;
use super::*;
use std::collections::HashSet;

const NOW: Duration = Duration::from_secs(1_700_000_000);
const NONE: Framing = Framing { header_digest: false, data_digest: false };
const TARGET: &str = "iqn.a:disk";

/// A PDU: opcode and flags, bytes of its header by their places, data.
fn pdu(opcode: u8, flags: u8, fields: &[(usize, &[u8])], data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; BHS_LEN];
    (bytes[0], bytes[1]) = (opcode, flags);
    bytes[5..8].copy_from_slice(&u32::try_from(data.len()).unwrap().to_be_bytes()[1..]);
    for (at, field) in fields {
        bytes[*at..*at + field.len()].copy_from_slice(field);
    }
    bytes.extend(data);
    bytes.resize(pad4(bytes.len()), 0);
    bytes
}

fn filtered(filter: Filter) -> Trace {
    Trace::new(Terms { filter, ..terms(u64::MAX) })
}

fn of_target(name: &str) -> Trace {
    filtered(Filter { target: Some(name.to_owned()), ..Filter::default() })
}

/// Opcodes of what was recorded.
fn recorded(trace: &Trace) -> Vec<u8> {
    read(trace).iter().filter_map(|(_, _, kept, _)| kept.first().copied()).collect()
}

const NAMES: &[u8] = b"InitiatorName=iqn.b:host\0SessionType=Normal\0TargetName=iqn.a:disk\0";

/// A login with a secret, which succeeds or fails.
fn log_in(follower: &mut Follower, status: u8) {
    let request = pdu(0x43, 0x81, &[], NAMES);
    let (first, second) = request.split_at(50);
    follower.received(NOW, first, NONE);
    follower.received(NOW, second, NONE);
    follower.sent_bytes(NOW, &pdu(0x23, 0x01, &[], b"CHAP_C=0x1234\0"), NONE);
    follower.received(NOW, &pdu(0x43, 0x87, &[], b"CHAP_R=0x5678\0"), NONE);
    let fields: &[(usize, &[u8])] = &[(TSIH_AT, &[0, 9]), (STATUS_CLASS_AT, &[status])];
    follower.sent_bytes(NOW, &pdu(0x23, 0x87, fields, b""), NONE);
}

#[test]
fn a_login_is_recorded_without_its_secrets() {
    let trace = filtered(Filter::default());
    let mut follower = Follower::of_new(&trace, ends(), NOW);
    log_in(&mut follower, 0);
    follower.closed(NOW);
    let seen = read(&trace);
    let ports: Vec<_> = seen.iter().map(|seen| seen.0).collect();
    assert_eq!(ports, [40_000, 3260, 40_000, 40_000, 3260, 40_000, 3260, 3260]);
    assert!(seen[3].2[BHS_LEN..].starts_with(NAMES), "names are shown");
    assert!(seen[4].2[BHS_LEN..].starts_with(b"CHAP_C=******\0"));
    assert!(seen[5].2[BHS_LEN..].starts_with(b"CHAP_R=******\0"));
    // Each begins where the one before ended.
    let first = seen[0].1;
    let mut next = [(40_000, first), (3260, first)];
    for (port, sequence, kept, length) in &seen {
        assert_eq!(kept.len(), *length);
        let place = next.iter_mut().find(|(of, _)| of == port).unwrap();
        let begins = place.1 == first && kept.is_empty();
        assert_eq!(*sequence, place.1);
        place.1 += u32::from(begins) + u32::try_from(*length).unwrap();
    }
}

/// What was said before is not known: a value may go on.
#[test]
fn a_login_that_is_under_way_shows_no_end_of_a_secret() {
    let trace = filtered(Filter::default());
    let mut follower = Follower::of_old(&trace, ends(), None, 0).unwrap();
    follower.received(NOW, &pdu(0x43, 0x87, &[], b"5678\0CHAP_N=me\0"), NONE);
    follower.sent_bytes(NOW, &pdu(0x23, 0x87, &[], b"9abc\0CHAP_N=you\0"), NONE);
    let seen = read(&trace);
    assert!(seen[0].2[BHS_LEN..].starts_with(b"****\0CHAP_N=me\0"));
    assert!(seen[1].2[BHS_LEN..].starts_with(b"****\0CHAP_N=you\0"));
}

/// A reader tells connections that come after each other between the same ends by their numbers.
#[test]
fn another_connection_between_the_same_ends_has_other_numbers() {
    let first = |millisecond: u64| {
        let trace = filtered(Filter::default());
        let now = NOW + Duration::from_millis(millisecond);
        let mut follower = Follower::of_new(&trace, ends(), now);
        follower.received(now, &pdu(0x43, 0x87, &[], NAMES), NONE);
        follower.closed(now);
        read(&trace)[0].1
    };
    let all: HashSet<u32> = (0..100).map(first).collect();
    assert_eq!(all.len(), 100);
}

#[test]
fn a_login_is_recorded_as_soon_as_it_is_known_whose_it_is() {
    for (name, is_wanted) in [(TARGET, true), ("iqn.a:other", false)] {
        let trace = of_target(name);
        for status in [0, 2] {
            log_in(&mut Follower::of_new(&trace, ends(), NOW), status);
        }
        let opcodes = [0x43, 0x23, 0x43, 0x23, 0x43, 0x23, 0x43, 0x23];
        let expected = if is_wanted { &opcodes[..] } else { &[] };
        assert_eq!(recorded(&trace), expected);
        assert_eq!(trace.figures().connections, if is_wanted { 2 } else { 0 });
    }
}

#[test]
fn the_handle_of_a_session_is_known_when_its_login_is_over() {
    for (tsih, count) in [(9, 4), (8, 0)] {
        let trace = filtered(Filter { tsih: Some(tsih), ..Filter::default() });
        log_in(&mut Follower::of_new(&trace, ends(), NOW), 0);
        assert_eq!(recorded(&trace).len(), count);
    }
}

#[test]
fn who_says_no_name_is_not_waited_for() {
    let trace = of_target(TARGET);
    let mut follower = Follower::of_new(&trace, ends(), NOW);
    for _ in 0..20 {
        follower.received(NOW, &pdu(0x43, 0x40, &[], &[b'x'; 8000]), NONE);
    }
    assert!(recorded(&trace).is_empty());
    follower.know(NOW, Who { target: Some(TARGET.to_owned()), ..Who::default() });
    let figures = trace.figures();
    assert_eq!(figures.pdus + figures.lost, 20, "what was not kept is counted");
    assert!(figures.lost > 0);
    let mut other = Follower::of_new(&of_target(TARGET), ends(), NOW);
    other.know(NOW, Who::default());
    assert!(!other.is_wanted(), "a discovery session has no target");
}

#[test]
fn a_session_that_is_there_is_followed_from_the_next_pdu_on() {
    let who = |target: &str| Some(Who { target: Some(target.to_owned()), ..Who::default() });
    let trace = of_target(TARGET);
    assert!(Follower::of_old(&trace, ends(), who("iqn.a:other"), 0).is_none());
    let mut follower = Follower::of_old(&trace, ends(), who(TARGET), 10).unwrap();
    let command = pdu(0x01, 0x81, &[], b"");
    follower.received(NOW, &[&[0x43; 10][..], &command].concat(), NONE);
    assert_eq!(recorded(&trace), [0x01]);
}

#[test]
fn one_unit_alone_with_what_belongs_to_its_commands() {
    let trace = filtered(Filter { lun: Some(3), ..Filter::default() });
    let mut follower = Follower::of_old(&trace, ends(), None, 0).unwrap();
    let tag = |tag: u8| [0, 0, 0, tag];
    for (lun, number) in [([0, 3], 1), ([0, 4], 2), ([0x40, 3], 3), ([0x80, 3], 4)] {
        let fields: &[(usize, &[u8])] = &[(8, &lun), (16, &tag(number))];
        follower.received(NOW, &pdu(0x01, 0x81, fields, b""), NONE);
    }
    assert_eq!(recorded_again(&trace), [0x01, 0x01], "both ways to write the number");
    for number in 1..=4 {
        follower.sent_bytes(NOW, &pdu(0x25, 0x00, &[(16, &tag(number))], b"ab"), NONE);
        follower.sent_bytes(NOW, &pdu(0x21, 0x80, &[(16, &tag(number))], b""), NONE);
        follower.sent_bytes(NOW, &pdu(0x21, 0x80, &[(16, &tag(number))], b""), NONE);
    }
    follower.received(NOW, &pdu(0x00, 0x80, &[], b""), NONE);
    assert_eq!(recorded_again(&trace), [0x25, 0x21, 0x25, 0x21, 0x00], "and what is for no unit");
}

/// Opcodes of what came since the last call.
/// Commands that end without a word: others may have their tags then.
#[test]
fn tags_of_aborted_commands_are_forgotten() {
    const ABORT_TASK: u8 = 0x81;
    const LUN_RESET: u8 = 0x85;
    let unit = |lun: u8| [0, lun];
    let command = |follower: &mut Follower, lun: u8, number: u32| {
        let fields: &[(usize, &[u8])] = &[(8, &unit(lun)), (16, &number.to_be_bytes())];
        follower.received(NOW, &pdu(0x01, 0xc1, fields, b""), NONE);
    };
    let answer = |follower: &mut Follower, number: u32| {
        follower.sent_bytes(NOW, &pdu(0x21, 0x80, &[(16, &number.to_be_bytes())], b""), NONE);
    };
    let manage = |follower: &mut Follower, function: u8, number: u32, about: u32| {
        let (number, about) = (number.to_be_bytes(), about.to_be_bytes());
        let fields: &[(usize, &[u8])] = &[(8, &unit(3)), (16, &number), (20, &about)];
        follower.received(NOW, &pdu(0x42, function, fields, b""), NONE);
    };
    let managed = |follower: &mut Follower, number: u32, response: u8| {
        let fields: &[(usize, &[u8])] = &[(2, &[response]), (16, &number.to_be_bytes())];
        follower.sent_bytes(NOW, &pdu(0x22, 0x80, fields, b""), NONE);
    };
    let trace = filtered(Filter { lun: Some(3), ..Filter::default() });
    let mut follower = Follower::of_old(&trace, ends(), Some(Who::default()), 0).unwrap();
    command(&mut follower, 3, 1);
    command(&mut follower, 3, 2);
    manage(&mut follower, ABORT_TASK, 10, 1);
    // It was on its way already.
    answer(&mut follower, 2);
    managed(&mut follower, 10, 0);
    assert_eq!(recorded(&trace), [0x01, 0x01, 0x42, 0x21, 0x22]);
    answer(&mut follower, 1);
    assert_eq!(recorded_again(&trace), [], "that command is over");
    // What comes behind a reset is not ended by it; one that was refused ends nothing.
    command(&mut follower, 3, 3);
    manage(&mut follower, LUN_RESET, 11, 0);
    command(&mut follower, 3, 4);
    managed(&mut follower, 11, 0);
    answer(&mut follower, 3);
    answer(&mut follower, 4);
    command(&mut follower, 3, 5);
    manage(&mut follower, LUN_RESET, 12, 0);
    managed(&mut follower, 12, 255);
    answer(&mut follower, 5);
    let seen = [0x01, 0x42, 0x01, 0x22, 0x21, 0x01, 0x42, 0x22, 0x21];
    assert_eq!(recorded_again(&trace), seen);
    // Another host has reset the unit: nothing tells it, and the tag is used again.
    command(&mut follower, 3, 6);
    command(&mut follower, 4, 6);
    answer(&mut follower, 6);
    assert_eq!(recorded_again(&trace), [0x01]);
    // So it goes on: those of commands that are under way have room.
    for number in 100..100 + 2 * u32::try_from(TAGS_MAX).unwrap() {
        command(&mut follower, 3, number);
    }
    let last = 99 + 2 * u32::try_from(TAGS_MAX).unwrap();
    drop(recorded_again(&trace));
    answer(&mut follower, last);
    assert_eq!(recorded_again(&trace), [0x21]);
}

fn recorded_again(trace: &Trace) -> Vec<u8> {
    let super::super::Taken::Records(records) = trace.take(Duration::ZERO) else {
        return Vec::new();
    };
    let mut rest = records.strip_prefix(&wire::pcap::file_header()[..]).unwrap_or(&records);
    let mut opcodes = Vec::new();
    while let Some(kept) = rest.get(8..12) {
        let kept = u32::from_le_bytes(*kept.first_chunk().unwrap()) as usize;
        opcodes.push(rest[16 + 40]);
        rest = &rest[16 + kept..];
    }
    opcodes
}

#[test]
fn a_message_is_recorded_as_the_pdu_that_it_would_be() {
    let trace = filtered(Filter::default());
    let mut follower = Follower::of_old(&trace, ends(), None, 0).unwrap();
    let data_in = pdu(0x25, 0x81, &[], &[1; 1000]);
    follower.message(NOW, Side::Target, &data_in[..BHS_LEN], &[1; 1000]);
    let text = pdu(0x04, 0x80, &[], b"X-a=secret\0");
    follower.message(NOW, Side::Initiator, &text[..BHS_LEN], b"X-a=secret\0");
    let command = pdu(0x01, 0x80, &[], &[1; 512]);
    follower.message(NOW, Side::Initiator, &command[..BHS_LEN], &[]);
    follower.message(NOW, Side::Initiator, b"short", &[]);
    let seen: Vec<_> = read(&trace)
        .into_iter()
        .map(|(_, _, kept, length)| (kept[0], kept.len(), length))
        .collect();
    assert_eq!(seen, [(0x25, 48, 1048), (0x04, 60, 60), (0x01, 48, 560)]);
}

#[test]
fn a_trace_that_is_over_costs_and_keeps_nothing() {
    let trace = filtered(Filter::default());
    let mut follower = Follower::of_new(&trace, ends(), NOW);
    trace.stop(super::super::TraceEnd::Reader);
    log_in(&mut follower, 0);
    follower.closed(NOW);
    assert!(read(&trace).is_empty());
}
