// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stages, transitions, numbers, time: what stands in the headers.

use core::time::Duration;

use clock::Instant;
use iscsi::datamover::DataError;
use iscsi::datamover::Event;
use iscsi::datamover::Immediate;
use iscsi::datamover::StreamViolation;
use iscsi::datamover::TaskId;
use iscsi::target_role::Admission;
use iscsi::target_role::Redirection;
use wire::iscsi::Cid;
use wire::iscsi::CmdSn;
use wire::iscsi::Isid;
use wire::iscsi::Itt;
use wire::iscsi::LoginRequest;
use wire::iscsi::LunField;
use wire::iscsi::NopOut;
use wire::iscsi::Request;
use wire::iscsi::Stage;
use wire::iscsi::StatSn;
use wire::iscsi::Tsih;
use wire::iscsi::Ttt;

use crate::driver::Driver;
use crate::driver::FIRST_STAT_SN;
use crate::driver::TIMEOUT;
use crate::driver::last;
use crate::driver::operational;
use crate::driver::request;
use crate::driver::security;

fn nop_out() -> Event {
    let nop = NopOut {
        immediate: true,
        lun: LunField::default(),
        itt: Itt(1),
        ttt: Ttt::NONE,
        cmd_sn: CmdSn(0),
        exp_stat_sn: StatSn(0),
    };
    Event::Control { request: Request::NopOut(nop), immediate: Immediate::None }
}

/// The header bytes of a Login Request with `byte1`.
fn raw_login(byte1: u8) -> [u8; 48] {
    let mut header = [0; 48];
    header[0] = 0x43;
    header[1] = byte1;
    header[8..14].copy_from_slice(&[0x80, 1, 0x23, 0x45, 0, 1]);
    header[19] = 0x77;
    header
}

#[test]
fn a_normal_login_in_one_round_trip() {
    let mut driver = Driver::new();
    let step = driver.named(
        last(),
        &[
            "SessionType=Normal",
            "HeaderDigest=None",
            "DataDigest=None",
            "MaxRecvDataSegmentLength=65536",
        ],
    );
    let expected = [
        "TargetPortalGroupTag=1",
        "HeaderDigest=None",
        "DataDigest=None",
        "MaxRecvDataSegmentLength=262144",
    ];
    assert_eq!(step.answers(), expected);
    let done = step.done();
    assert_eq!(done.tsih, Tsih(7));
    assert_eq!(done.exp_cmd_sn, CmdSn(5));
    assert_eq!(done.cid, Cid(1));
    assert_eq!(done.parameters.max_send_data_segment_length, 65536);
    assert_eq!(done.parameters.max_recv_data_segment_length, 262_144);
    let keys = step.keys.expect("the mover is told");
    assert_eq!(keys.max_send_data_segment_length, 65536);
    assert_eq!(keys.first_burst_length, 65536, "the default");
}

/// The header of a login in bytes, both ways.
#[test]
fn a_login_on_the_wire() {
    let mut bytes = [0_u8; 48];
    bytes[..12].copy_from_slice(&[0x43, 0x87, 0, 0, 0, 0, 0, 0xa7, 0x80, 1, 0x23, 0x45]);
    bytes[12..28].copy_from_slice(&[0, 1, 0, 0, 0, 0, 0, 0x10, 0, 1, 0, 0, 0, 0, 0, 5]);
    let Ok(Request::Login(request)) = Request::parse(&bytes) else { panic!("a login request") };
    let mut driver = Driver::new();
    driver.tsih = Ok(Tsih(1));
    let step = driver.named(request, &["SessionType=Normal", "HeaderDigest=None"]);
    let reply = step.reply();
    let length = u32::try_from(reply.data.len()).expect("short");
    let mut expected = [0_u8; 48];
    expected[..3].copy_from_slice(&[0x23, 0x87, 0]);
    expected[7] = u8::try_from(length).expect("short");
    expected[8..20].copy_from_slice(&[0x80, 1, 0x23, 0x45, 0, 1, 0, 1, 0, 0, 0, 0x10]);
    expected[24..36].copy_from_slice(&[0xff, 0xff, 0xff, 0xfe, 0, 0, 0, 5, 0, 0, 0, 0x24]);
    assert_eq!(reply.header.emit(length), expected);
}

/// Covers: LGN-02.
#[test]
fn another_first_pdu_closes_in_silence() {
    Driver::new().event(nop_out(), &[], &[]).assert_silent();
    Driver::new().event(Event::Violation(StreamViolation::NotLogin), b"GET /", &[]).assert_silent();
    let rejected = Event::Rejected { reason: 5 };
    Driver::new().event(rejected, &[0x1c; 48], &[]).assert_silent();
}

/// Covers: LGN-03.
#[test]
fn another_pdu_during_login_is_invalid() {
    // NOP-Out, command, task management, text, data, logout, SNACK.
    for opcode in [0x40, 0x01, 0x42, 0x04, 0x05, 0x06, 0x10] {
        let mut header = [0; 48];
        header[..2].copy_from_slice(&[opcode, 0x80]);
        if opcode == 0x40 {
            // It is no answer to a ping.
            header[20..24].fill(0xff);
        }
        let request = Request::parse(&header).unwrap();
        let mut driver = Driver::new();
        assert!(driver.named(operational(), &[]).failed.is_none());
        let event = Event::Control { request, immediate: Immediate::None };
        driver.event(event, &[], &[]).assert_failed(0x020b);
    }
    let mut driver = Driver::new();
    assert!(driver.named(operational(), &[]).failed.is_none());
    driver.event(Event::Rejected { reason: 5 }, &[0x1c; 48], &[]).assert_failed(0x020b);
}

/// Covers: LGN-05/T.
#[test]
fn a_request_before_the_answer_ends_login() {
    let mut driver = Driver::new();
    let login =
        |request| Event::Control { request: Request::Login(request), immediate: Immediate::None };
    let names = crate::driver::text(&[crate::driver::INITIATOR, crate::driver::TARGET]);
    driver.login.handle_event(login(operational()), &[], &names, Instant(0));
    // The node has not answered yet.
    driver.login.handle_event(login(last()), &[], &[], Instant(0));
    assert!(driver.login.poll_timeout().is_none(), "over");
}

/// Covers: LGN-05/T.
#[test]
fn each_request_has_one_response() {
    let mut driver = Driver::new();
    let names = crate::driver::text(&[crate::driver::INITIATOR, crate::driver::TARGET]);
    let (continued, stays) = (request(Stage::Security, None), request(Stage::Security, None));
    let steps: [(LoginRequest, &[u8]); 6] = [
        (LoginRequest { continue_: true, ..continued }, &names),
        (stays, b"AuthMethod=None\0"),
        (stays, b""),
        (request(Stage::Security, Some(Stage::Operational)), b""),
        (operational(), b"X-a=1\0"),
        (last(), b""),
    ];
    for (request, text) in steps {
        assert_eq!(driver.send(request, text).responses.len(), 1, "{request:?}");
    }
}

/// Covers: LGN-06/T.
#[test]
fn login_segments_hold_8192_bytes_whatever_was_declared() {
    let mut driver = Driver::new();
    let filler = format!("X-filler={}", "x".repeat(8000));
    let first = driver.named(operational(), &["MaxRecvDataSegmentLength=16777215", &filler]);
    assert!(first.failed.is_none() && first.keys.is_none());
    let many: Vec<u8> = (0..900).flat_map(|n| format!("X-{n}=\0").into_bytes()).collect();
    let step = driver.send(operational(), &many[..many.len().min(8192)]);
    assert_eq!(step.reply().data.len(), 8192);
    assert!(step.reply().header.continue_);
    // Nor does the mover hear of it before the end.
    assert!(driver.keys(operational(), &[]).keys.is_none());
    let mut driver = Driver::new();
    let violation = StreamViolation::SegmentTooLong { length: 8196, limit: 8192 };
    driver.event(Event::Violation(violation), &raw_login(0x87), &[]).assert_failed(0x0200);
}

/// Covers: LGN-53.
#[test]
fn an_additional_header_segment_ends_login() {
    let mut driver = Driver::new();
    let violation = Event::Violation(StreamViolation::AdditionalHeader);
    let step = driver.event(violation, &raw_login(0x87), &[]);
    step.assert_failed(0x0200);
    assert_eq!(step.reply().header.itt, Itt(0x77));
    assert_eq!(step.reply().header.isid, Isid([0x80, 1, 0x23, 0x45, 0, 1]));
}

/// Covers: LGN-08/T.
#[test]
fn either_stage_or_both_lead_to_full_feature() {
    let mut driver = Driver::new();
    assert!(driver.named(last(), &[]).done.is_some());
    let mut driver = Driver::new();
    let step = driver.named(request(Stage::Security, Some(Stage::FullFeature)), &[]);
    assert_eq!(step.done().parameters.max_recv_data_segment_length, 8192, "not declared");
    let mut driver = Driver::new();
    let step =
        driver.named(request(Stage::Security, Some(Stage::Operational)), &["AuthMethod=None"]);
    assert!(step.reply().header.transit);
    assert!(driver.keys(last(), &[]).done.is_some());
    // Security cannot come second.
    let mut driver = Driver::new();
    driver.named(operational(), &[]);
    driver.keys(security(), &[]).assert_failed_for(0x0200, "Security");
}

/// Covers: LGN-09/T.
#[test]
fn other_transitions_are_refused() {
    let steps = [
        (Stage::Operational, Stage::Security),
        (Stage::Operational, Stage::Operational),
        (Stage::Security, Stage::Security),
        (Stage::FullFeature, Stage::FullFeature),
    ];
    for (current, next) in steps {
        Driver::new().named(request(current, Some(next)), &[]).assert_failed(0x0200);
    }
    Driver::new().named(request(Stage::FullFeature, None), &[]).assert_failed(0x0200);
    // A stage that was left does not come back, nor is one skipped without T.
    let mut driver = Driver::new();
    driver.named(security(), &[]);
    driver.keys(operational(), &[]).assert_failed(0x0200);
}

/// Covers: LGN-10/T.
#[test]
fn the_reserved_stage_is_refused() {
    for byte1 in [0x08, 0x82, 0x86] {
        let event = Event::Rejected { reason: 9 };
        Driver::new().event(event, &raw_login(byte1), &[]).assert_failed(0x0200);
    }
    let mut driver = Driver::new();
    driver.named(operational(), &[]);
    let step = driver.event(Event::Rejected { reason: 9 }, &raw_login(0x86), &[]);
    step.assert_failed(0x0200);
    assert_eq!(step.reply().header.itt, Itt(0x10), "the tag of the phase");
}

/// Covers: LGN-11.
#[test]
fn the_next_stage_is_the_one_asked_for() {
    let mut driver = Driver::new();
    let step = driver.named(request(Stage::Security, Some(Stage::Operational)), &[]);
    assert_eq!(step.reply().header.current, Stage::Security);
    assert_eq!(step.reply().header.next, Some(Stage::Operational));
    for (request, next) in [(operational(), None), (last(), Some(Stage::FullFeature))] {
        let header = driver.keys(request, &[]).reply().header;
        assert_eq!((header.current, header.next), (Stage::Operational, next));
    }
    let mut driver = Driver::new();
    let stays = driver.named(request(Stage::Security, None), &[]).reply().header;
    assert_eq!((stays.current, stays.next), (Stage::Security, None));
    let over = driver.keys(request(Stage::Security, Some(Stage::FullFeature)), &[]);
    let header = over.reply().header;
    assert_eq!((header.current, header.next), (Stage::Security, Some(Stage::FullFeature)));
}

/// Covers: LGN-12, LGN-13/T.
#[test]
fn no_transition_unless_asked_for() {
    let mut driver = Driver::new();
    let stays = request(Stage::Security, None);
    assert!(!driver.named(stays, &[]).reply().header.transit);
    assert!(!driver.keys(stays, &[]).reply().header.transit);
    let mut driver = Driver::new();
    assert!(!driver.named(operational(), &["MaxBurstLength=65536"]).reply().header.transit);
    assert!(!driver.keys(operational(), &[]).reply().header.transit);
    assert!(driver.keys(last(), &[]).reply().header.transit);
    // T=1 answered with T=0 because the answer needs two responses, then T=0 again.
    let mut driver = Driver::new();
    let many: Vec<u8> = (0..900).flat_map(|n| format!("X-{n}=\0").into_bytes()).collect();
    driver.named(operational(), &[]);
    assert!(!driver.send(last(), &many[..many.len().min(8192)]).reply().header.transit);
    let step = driver.keys(operational(), &[]);
    assert!(!step.reply().header.transit && step.failed.is_none());
    assert!(driver.keys(last(), &[]).done.is_some());
    // The same where the first request of all has T=1.
    let mut driver = Driver::new();
    let first =
        [&crate::driver::text(&[crate::driver::INITIATOR, crate::driver::TARGET]), &many[..]]
            .concat();
    assert!(!driver.send(last(), &first).reply().header.transit);
    let step = driver.keys(operational(), &[]);
    assert!(!step.reply().header.transit && step.failed.is_none());
    assert!(!driver.keys(operational(), &[]).reply().header.transit);
    assert!(driver.keys(last(), &[]).done.is_some());
}

/// Covers: LGN-15.
#[test]
fn a_transition_carries_no_offer_of_ours() {
    let mut driver = Driver::new().alias("disk of host");
    let step = driver.named(last(), &[]);
    assert!(step.reply().header.transit);
    // Nothing was offered, so these are declarations, which need no answer.
    let expected =
        ["TargetPortalGroupTag=1", "TargetAlias=disk of host", "MaxRecvDataSegmentLength=262144"];
    assert_eq!(step.answers(), expected);
}

/// Covers: LGN-16.
#[test]
fn the_final_response_answers_the_final_request() {
    let mut driver = Driver::new();
    let step = driver.named(request(Stage::Security, Some(Stage::Operational)), &[]);
    assert!(!step.established && step.done.is_none());
    let step = driver.keys(operational(), &[]);
    assert!(!step.established && step.done.is_none() && !step.reply().header.transit);
    let step = driver.keys(last(), &[]);
    assert!(step.established);
    assert_eq!(step.reply().header.next, Some(Stage::FullFeature));
    assert_eq!(step.reply().header.status, 0);
}

/// Covers: LGN-23.
#[test]
fn security_may_be_passed_without_a_method() {
    let mut driver = Driver::new();
    let step = driver.named(request(Stage::Security, Some(Stage::Operational)), &[]);
    assert!(step.reply().header.transit);
    assert_eq!(step.answers(), ["TargetPortalGroupTag=1"]);
}

/// Covers: LGN-25, SES-06, SES-07.
#[test]
fn the_tsih_comes_with_the_final_response() {
    let mut driver = Driver::new();
    let step = driver.named(request(Stage::Security, Some(Stage::FullFeature)), &[]);
    assert_eq!(step.reply().header.tsih, Tsih(7));
    let mut driver = Driver::new();
    let step = driver.named(request(Stage::Security, Some(Stage::Operational)), &[]);
    assert_eq!(step.reply().header.tsih, Tsih(0));
    assert_eq!(driver.keys(operational(), &[]).reply().header.tsih, Tsih(0));
    assert_eq!(driver.keys(last(), &[]).reply().header.tsih, Tsih(7));
    // A node that gives none has a defect, and the initiator must not believe it.
    let mut driver = Driver::new();
    driver.tsih = Ok(Tsih(0));
    driver.named(last(), &[]).assert_failed(0x0300);
}

/// Covers: SES-28/T, LGN-28/T, LGN-30/T.
#[test]
fn what_names_the_login_stays_the_same() {
    type Change = fn(&mut LoginRequest);
    let changes: [(&str, Change); 7] = [
        ("task tag", |request| request.itt = Itt(0x11)),
        ("connection id", |request| request.cid = Cid(2)),
        ("ISID", |request| request.isid = Isid([0x80, 1, 0x23, 0x45, 0, 2])),
        ("TSIH", |request| request.tsih = Tsih(1)),
        ("CmdSN", |request| request.cmd_sn = CmdSn(6)),
        ("lowest version", |request| request.version_min = 1),
        ("highest version", |request| request.version_max = 1),
    ];
    for (what, change) in changes {
        let mut driver = Driver::new();
        driver.named(operational(), &[]);
        let mut second = last();
        change(&mut second);
        let event = Event::Control { request: Request::Login(second), immediate: Immediate::None };
        driver.event(event, &[], &[]).assert_failed_for(0x0200, what);
    }
    let cid = Cid(0xfffe);
    let mut driver = Driver::new();
    driver.named(LoginRequest { cid, ..operational() }, &[]);
    let second = Request::Login(LoginRequest { cid, ..last() });
    let event = Event::Control { request: second, immediate: Immediate::None };
    assert_eq!(driver.event(event, &[], &[]).done().cid, cid);
}

/// Covers: LGN-31, LGN-30/T.
#[test]
fn version_zero_must_be_in_the_range() {
    let mut driver = Driver::new();
    let step = driver.named(LoginRequest { version_min: 1, version_max: 2, ..last() }, &[]);
    step.assert_failed(0x0205);
    assert_eq!(step.reply().header.version_active, 0);
    assert_eq!(step.reply().header.version_max, 0);
    let mut driver = Driver::new();
    let step = driver.named(LoginRequest { version_max: 2, ..last() }, &[]);
    assert_eq!(step.reply().header.version_active, 0);
    assert!(step.done.is_some());
}

/// Covers: LGN-32, LGN-39.
#[test]
fn the_window_begins_at_the_cmd_sn_of_the_login() {
    let mut driver = Driver::new();
    let step = driver.named(LoginRequest { cmd_sn: CmdSn(0xffff_fff0), ..last() }, &[]);
    let numbers = step.reply().header.numbers;
    assert_eq!(numbers.exp_cmd_sn, CmdSn(0xffff_fff0));
    assert_eq!(numbers.max_cmd_sn, CmdSn(0x0000_000f), "32 commands");
    assert_eq!(step.done().exp_cmd_sn, CmdSn(0xffff_fff0));
}

/// In each response, also before it is known who asks and how deep its queue is.
///
/// Covers: LGN-39.
#[test]
fn every_good_response_has_valid_numbers() {
    let mut driver = Driver::new();
    let names = crate::driver::text(&[crate::driver::INITIATOR, crate::driver::TARGET]);
    let continued = LoginRequest { continue_: true, ..operational() };
    let steps: [(LoginRequest, &[u8], u32); 4] = [
        (continued, &names, 5),
        (operational(), b"X-a=1\0", 36),
        (operational(), b"", 36),
        (last(), b"", 36),
    ];
    for ((request, text, max), turn) in steps.into_iter().zip(0..) {
        let numbers = driver.send(request, text).reply().header.numbers;
        assert_eq!(numbers.stat_sn, StatSn(FIRST_STAT_SN.wrapping_add(turn)));
        assert_eq!((numbers.exp_cmd_sn, numbers.max_cmd_sn), (CmdSn(5), CmdSn(max)));
    }
}

/// Covers: LGN-37.
#[test]
fn stat_sn_counts_responses() {
    let mut driver = Driver::new();
    for turn in 0..3_u32 {
        let step = if turn == 0 {
            driver.named(operational(), &[])
        } else {
            driver.keys(operational(), &[])
        };
        assert_eq!(step.reply().header.numbers.stat_sn, StatSn(FIRST_STAT_SN.wrapping_add(turn)));
    }
    let step = driver.keys(last(), &[]);
    assert_eq!(step.reply().header.numbers.stat_sn, StatSn(1));
    assert_eq!(step.done().stat_sn, StatSn(2));
}

/// Covers: LGN-38/T.
#[test]
fn a_refusal_closes_the_connection() {
    let step = Driver::new().keys(last(), &[]);
    step.assert_failed(0x0207);
    assert!(step.terminated);
    // Each class, in the first response and in the last one.
    let address = || "192.0.2.7:3260".to_owned();
    let moved = |duration| Admission::Redirected { address: address(), duration };
    let refused = |status| Admission::Refused { status, reason: "it is so" };
    for (admission, status) in [
        (moved(Redirection::Temporary), 0x0101),
        (moved(Redirection::Permanent), 0x0102),
        (refused(0x0202), 0x0202),
        (refused(0x0301), 0x0301),
    ] {
        let mut driver = Driver::new();
        driver.admission = admission;
        let step = driver.named(operational(), &[]);
        assert_eq!((step.reply().header.status, step.terminated), (status, true));
    }
    for status in [0x0206, 0x0302] {
        let mut driver = Driver::new();
        driver.tsih = Err(status);
        let step = driver.named(last(), &[]);
        assert_eq!((step.reply().header.status, step.terminated), (status, true));
    }
}

/// Covers: LGN-47/T.
#[test]
fn seven_exchanges_are_no_reason_to_give_up() {
    let mut driver = Driver::new();
    driver.named(operational(), &[]);
    for turn in 0..5 {
        assert!(driver.keys(operational(), &[&format!("X-{turn}=1")]).failed.is_none());
    }
    assert!(driver.keys(last(), &[]).done.is_some());
}

/// Covers: LGN-48/T.
#[test]
fn endless_exchanges_are() {
    let mut driver = Driver::new();
    driver.named(operational(), &[]);
    let mut turns = 1;
    let end = loop {
        let step = driver.keys(operational(), &[]);
        turns += 1;
        if step.failed.is_some() {
            break step;
        }
        assert!(turns <= iscsi::limits::LOGIN_EXCHANGES_MAX);
    };
    end.assert_failed_for(0x0200, "login requests");
}

/// Covers: LGN-52.
#[test]
fn a_login_has_a_deadline() {
    // Silence.
    let mut driver = Driver::new();
    assert_eq!(driver.login.poll_timeout(), Some(Instant(0) + TIMEOUT));
    driver.login.handle_timeout(Instant(0) + (TIMEOUT - Duration::from_nanos(1)));
    assert!(driver.login.poll_output().is_none());
    driver.login.handle_timeout(Instant(0) + TIMEOUT);
    driver.drain().assert_silent();
    // A trickle of requests does not move it.
    let mut driver = Driver::new();
    driver.named(operational(), &[]);
    for second in 1..15 {
        driver.now = Instant(0) + Duration::from_secs(second);
        assert!(driver.keys(operational(), &[]).failed.is_none());
        assert_eq!(driver.login.poll_timeout(), Some(Instant(0) + TIMEOUT));
    }
    driver.now = Instant(0) + TIMEOUT;
    driver.keys(last(), &[]).assert_silent();
}

#[test]
fn a_node_that_answers_too_late_is_not_heard() {
    let mut driver = Driver::new();
    let names = crate::driver::text(&[crate::driver::INITIATOR, crate::driver::TARGET]);
    let login = Event::Control { request: Request::Login(last()), immediate: Immediate::None };
    driver.login.handle_event(login, &[], &names, Instant(0));
    driver.login.handle_timeout(Instant(0) + TIMEOUT);
    driver.login.admit(driver.admission.clone());
    driver.login.establish(Ok(Tsih(1)));
    while driver.login.poll_output().is_some() {}
    assert!(driver.login.poll_timeout().is_none());
}

#[test]
fn nothing_happens_after_the_end() {
    let mut driver = Driver::new();
    driver.named(last(), &[]).done();
    let step = driver.keys(last(), &[]);
    assert!(step.responses.is_empty() && step.failed.is_none());
    driver.login.handle_timeout(Instant(0) + TIMEOUT);
    assert!(driver.login.poll_output().is_none());
}

#[test]
fn events_of_tasks_mean_nothing_here() {
    let mut driver = Driver::new();
    let task = TaskId { index: 0, generation: 0 };
    for event in [
        Event::DigestError,
        Event::Released { task },
        Event::DataDone { task, offset: 0, length: 0 },
        Event::DataFailed { task, offset: 0, length: 4, error: DataError::Digest },
    ] {
        assert!(driver.event(event, &[], &[]).failed.is_none());
    }
    driver.named(last(), &[]).done();
}

#[test]
fn digests_begin_after_the_final_response() {
    // The driver refuses a response after the keys were told to the mover.
    let mut driver = Driver::new();
    let step = driver.named(last(), &["HeaderDigest=CRC32C", "DataDigest=CRC32C"]);
    let keys = step.keys.expect("the mover is told");
    assert!(keys.header_digest && keys.data_digest);
}
