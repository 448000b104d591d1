// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is negotiated in full feature phase.

use alloc::format;
use alloc::string::String;

use super::recovery::OTHER;
use super::recovery::alone;
use super::recovery::join;
use super::recovery::two;
use super::*;
use crate::initiator::DeclareError;
use crate::initiator::TaskReporting;
use crate::initiator::datamover::Keys;
use crate::initiator::datamover::Run;
use crate::initiator::limits;

impl Lab {
    /// The Text Requests that went out.
    fn texts(&self) -> Vec<(TextRequest, Vec<u8>)> {
        let texts = self.ops.iter().filter_map(|op| match op {
            Op::SendControl { request: Request::Text(text), data } => Some((*text, data.clone())),
            _ => None,
        });
        texts.collect()
    }

    fn notices(&self) -> Vec<Keys> {
        let notices = self.ops.iter().filter_map(|op| match op {
            Op::NoticeKeys(keys) => Some(*keys),
            _ => None,
        });
        notices.collect()
    }

    /// Answers the last Text Request: with F, or with a tag.
    fn text(&mut self, ttt: Option<Ttt>, continue_: bool, data: &[u8]) {
        let (asked, _) = self.texts().pop().expect("a text request");
        let (final_, ttt) = (ttt.is_none(), ttt.unwrap_or(Ttt::NONE));
        let (lun, itt, numbers) = (LunField::default(), asked.itt, self.numbers(0));
        let answer = TextResponse { final_, continue_, lun, itt, ttt, numbers };
        self.control(Response::Text(answer), data);
    }

    fn declare(&mut self, length: u32) {
        self.session.declare(length, START).unwrap();
        self.drain();
    }

    fn declared(&self) -> Option<Result<(), DeclareError>> {
        match self.told.last() {
            Some(Indication::Declared(result)) => Some(*result),
            _ => None,
        }
    }
}

/// What is asked, and what is refused, hangs on no key of commands.
///
/// Covers: KEY-05c/I, KEY-14c/I, KEY-15c/I, KEY-23c/I, KEY-24c/I, KEY-28c/I, KEY-29c/I, KEY-30c/I,
/// KEY-35c/I, P44-01c/I.
#[test]
fn keys_of_commands_change_nothing_in_discovery() {
    let whole = |change: fn(&mut Parameters)| {
        let mut lab = Lab::with(true, change);
        lab.session.send_targets(START).unwrap();
        lab.drain();
        lab.text(Some(Ttt(7)), true, b"TargetName=iqn.2026-01.com.exa");
        lab.text(None, false, b"mple:a\0TargetAddress=192.0.2.1:3260,1\0");
        let message = lab.asynchronous(5, (0, 0, 0));
        lab.control(message, &[]);
        lab.session.logout(START);
        lab.drain();
        (format!("{:?}", lab.ops), format!("{:?}", lab.told))
    };
    let plain = whole(|_| {});
    let changes: [fn(&mut Parameters); 10] = [
        |keys| keys.max_connections = 8,
        |keys| keys.initial_r2t = !keys.initial_r2t,
        |keys| keys.immediate_data = !keys.immediate_data,
        |keys| keys.max_burst_length = 512,
        |keys| keys.first_burst_length = 512,
        |keys| keys.max_outstanding_r2t = 8,
        |keys| keys.data_pdu_in_order = !keys.data_pdu_in_order,
        |keys| keys.data_sequence_in_order = !keys.data_sequence_in_order,
        |keys| keys.task_reporting = TaskReporting::ResponseFence,
        |keys| keys.protocol_level = 0,
    ];
    for (change, place) in changes.into_iter().zip(0..) {
        assert_eq!(whole(change), plain, "key {place}");
    }
}

/// Its Login Request had left with the length before.
#[test]
fn a_connection_that_logs_in_late_declares_what_was_declared_meanwhile() {
    for answered_before in [true, false] {
        let mut lab = alone(0);
        lab.declare(4096);
        if answered_before {
            lab.text(None, false, b"");
        }
        join(&mut lab, OTHER);
        while lab.texts().len() < 2 {
            assert_eq!(lab.declared(), None);
            lab.text(None, false, b"");
        }
        assert_eq!(lab.notices().len(), 1);
        lab.text(None, false, b"");
        assert_eq!(lab.declared(), Some(Ok(())));
        assert_eq!((lab.texts().len(), lab.notices().len()), (2, 2));
    }
}

/// Neither when the target asks for a negotiation meanwhile, which the answer that is due is part
/// of.
///
/// Covers: TXT-02.
#[test]
fn nothing_is_asked_where_an_answer_is_due() {
    let mut lab = alone(0);
    lab.session.send_targets(START).unwrap();
    lab.drain();
    let negotiate = lab.asynchronous(4, (0, 0, 4));
    lab.control(negotiate, &[]);
    assert_eq!(lab.texts().len(), 1);
    assert_eq!(lab.session.declare(1024, START), Err(Refused::Full));
    lab.text(Some(Ttt(7)), true, b"TargetName=iqn.2026-01.com.exa");
    lab.control(negotiate, &[]);
    assert_eq!(lab.session.send_targets(START), Err(Refused::Full));
    assert_eq!(lab.texts().len(), 2, "the rest of it is asked for, and nothing else");
}

/// Covers: NEG-13/I, NEG-16/I, NEG-23/I, KEY-01/I, KEY-20c/I, NEG-11b/I.
#[test]
fn a_declaration_takes_effect_with_the_last_response() {
    let mut lab = Lab::new();
    lab.declare(4096);
    let texts = lab.texts();
    let [(first, data)] = texts.as_slice() else { panic!("{texts:?}") };
    assert_eq!(data, b"MaxRecvDataSegmentLength=4096\0");
    assert!(first.final_ && !first.continue_ && first.ttt == Ttt::NONE);
    assert_eq!(lab.session.declare(1024, START), Err(Refused::Full));
    assert_eq!(lab.session.send_targets(START), Err(Refused::Full));
    assert_eq!(lab.texts().len(), 1, "one is unanswered");
    // In two steps, the first one cut in two.
    lab.text(Some(Ttt(7)), true, b"MaxRecvDataSegm");
    assert_eq!(lab.texts().last().map(|(text, data)| (text.ttt, data.len())), Some((Ttt(7), 0)));
    let keys = b"entLength=1024\0X-what=1\0TargetAlias=disks\0MaxBurstLength=512\0";
    lab.text(Some(Ttt(8)), false, keys);
    let (second, answers) = lab.texts().pop().unwrap();
    assert_eq!((second.itt, second.ttt, second.immediate), (first.itt, Ttt(8), first.immediate));
    assert_eq!(answers, b"X-what=NotUnderstood\0MaxBurstLength=Reject\0");
    assert!(lab.notices().is_empty() && lab.declared().is_none());
    lab.text(None, false, b"TargetAddress=192.0.2.1:3260,1\0");
    let [keys] = lab.notices()[..] else { panic!("one notice") };
    assert_eq!(
        (keys.max_recv_data_segment_length, keys.max_send_data_segment_length),
        (4096, 1024)
    );
    assert_eq!(keys.max_burst_length, 65536, "nothing else has changed");
    assert!(lab.texts().iter().all(|(text, _)| text.final_ != text.continue_), "F or C");
    assert_eq!(lab.declared(), Some(Ok(())));
    // Commands are cut to what the target takes now.
    lab.command(8192, 0);
    let commands = lab.commands();
    let [(command, immediate, end)] = commands.as_slice() else { panic!("a command") };
    assert_eq!((command.final_, *immediate, *end), (false, 1024, 8192));
}

/// Also where a piece is a text of its own: nothing of it is answered before the last one is there.
///
/// Covers: NEG-02/I.
#[test]
fn a_text_of_the_target_may_be_cut_anywhere() {
    let whole = b"X-a=1\0MaxRecvDataSegmentLength=1024\0X-b=1\0";
    for cut in 0..=whole.len() {
        for again in [cut, cut.midpoint(whole.len()), whole.len()] {
            let mut lab = Lab::new();
            lab.declare(4096);
            for (ttt, piece) in [(7, &whole[..cut]), (8, &whole[cut..again])] {
                lab.text(Some(Ttt(ttt)), true, piece);
                let (request, data) = lab.texts().pop().unwrap();
                assert_eq!((request.ttt, data), (Ttt(ttt), Vec::new()), "cut at {cut}, {again}");
            }
            lab.text(Some(Ttt(9)), false, &whole[again..]);
            let (request, data) = lab.texts().pop().unwrap();
            assert_eq!(request.ttt, Ttt(9));
            assert_eq!(data, b"X-a=NotUnderstood\0X-b=NotUnderstood\0", "cut at {cut}, {again}");
            lab.text(None, false, b"");
            assert_eq!(lab.notices()[0].max_send_data_segment_length, 1024);
        }
    }
    // What there is to be found comes the same way.
    let whole = b"TargetName=iqn.2026-01.com.example:a\0TargetName=iqn.2026-01.com.example:b\0";
    for cut in 0..=whole.len() {
        let mut lab = Lab::with(true, |_| {});
        lab.session.send_targets(START).unwrap();
        lab.drain();
        lab.text(Some(Ttt(7)), true, &whole[..cut]);
        assert!(lab.told.is_empty());
        lab.text(None, false, &whole[cut..]);
        let Some(Indication::Targets(Ok(targets))) = lab.told.last() else { panic!("{cut}") };
        let names: Vec<&str> = targets.iter().map(|target| target.name.as_str()).collect();
        assert_eq!(names, ["iqn.2026-01.com.example:a", "iqn.2026-01.com.example:b"]);
    }
}

/// What the target says on one connection is of that one, and so is what it was told there.
///
/// Covers: KEY-20c/I.
#[test]
fn a_segment_length_is_that_of_its_connection() {
    let mut lab = two(0, |_| {});
    let lengths = |lab: &Lab| {
        [ConnectionId(0), OTHER].map(|id| {
            let keys = lab.session.connections.get(id).unwrap().keys;
            (keys.max_recv_data_segment_length, keys.max_send_data_segment_length)
        })
    };
    let [before, same] = lengths(&lab);
    assert_eq!(before, same);
    lab.declare(4096);
    assert_eq!(lengths(&lab), [before; 2], "nobody has answered");
    lab.text(None, false, b"MaxRecvDataSegmentLength=1024\0");
    let mut after = lengths(&lab);
    after.sort_by_key(|lengths| *lengths == before);
    assert_eq!(after, [(4096, 1024), before]);
    lab.text(None, false, b"MaxRecvDataSegmentLength=2048\0");
    let mut after = lengths(&lab);
    after.sort_unstable();
    assert_eq!(after, [(4096, 1024), (4096, 2048)]);
    assert_eq!(lab.declared(), Some(Ok(())));
}

/// What a login alone settles, and markers, are known and refused.
///
/// Covers: KEY-05b/I, KEY-14b/I, KEY-15b/I, KEY-23b/I, KEY-24b/I, KEY-26b/I, KEY-27b/I, KEY-28b/I,
/// KEY-29b/I, KEY-30b/I, KEY-32b/I, KEY-35b/I, OBS-02/I.
#[test]
fn keys_of_a_login_are_refused_behind_it() {
    for pair in [
        "MaxConnections=1",
        "InitialR2T=No",
        "InitialR2T=Yes",
        "ImmediateData=Yes",
        "MaxBurstLength=512",
        "FirstBurstLength=512",
        "DefaultTime2Wait=0",
        "DefaultTime2Retain=0",
        "MaxOutstandingR2T=1",
        "DataPDUInOrder=Yes",
        "DataSequenceInOrder=Yes",
        "ErrorRecoveryLevel=0",
        "TaskReporting=RFC3720",
        "OFMarkInt=2048",
        "IFMarkInt=2048~8192",
    ] {
        let mut lab = Lab::new();
        lab.declare(4096);
        lab.text(Some(Ttt(8)), false, format!("{pair}\0").as_bytes());
        let (key, _) = pair.split_once('=').unwrap();
        let answer = lab.texts().pop().map(|(_, data)| data);
        assert_eq!(answer, Some(format!("{key}=Reject\0").into_bytes()));
    }
}

/// Covers: TXT-12, NEG-23/I, TXT-13/I.
#[test]
fn a_key_that_comes_twice_begins_the_negotiation_anew() {
    let twice = b"MaxRecvDataSegmentLength=1024\0MaxRecvDataSegmentLength=512\0".as_slice();
    for nonsense in [twice, b"MaxRecvDataSegmentLength=7\0", b"no pair\0", b"=\0"] {
        for ttt in [None, Some(Ttt(9))] {
            let mut lab = Lab::new();
            lab.declare(4096);
            for again in 1..=usize::from(limits::TEXT_RESETS_MAX) {
                lab.text(ttt, false, nonsense);
                let texts = lab.texts();
                assert_eq!(texts.len(), again + 1);
                assert_eq!(texts[again].0.itt, texts[0].0.itt);
                assert_eq!((texts[again].0.ttt, &texts[again].1), (Ttt::NONE, &texts[0].1));
            }
            lab.text(ttt, false, nonsense);
            assert_eq!(lab.declared(), Some(Err(DeclareError::Nonsense)));
            assert!(lab.notices().is_empty(), "what was in force is");
            assert!(lab.session.is_active());
        }
    }
    // Also across the steps of one negotiation.
    let mut lab = Lab::new();
    lab.declare(4096);
    for _ in 0..2 {
        lab.text(Some(Ttt(9)), false, b"MaxRecvDataSegmentLength=1024\0");
    }
    assert_eq!(lab.texts().last().map(|(text, _)| text.ttt), Some(Ttt::NONE));
    lab.text(None, false, b"MaxRecvDataSegmentLength=512\0");
    assert_eq!(lab.declared(), Some(Ok(())));
    assert_eq!(lab.notices()[0].max_send_data_segment_length, 512, "nothing of the first try");
}

/// A target may have several addresses, and names each (RFC 7143 §6.4).
///
/// Covers: TXT-12.
#[test]
fn an_address_may_come_more_than_once() {
    let mut lab = Lab::new();
    lab.declare(4096);
    lab.text(Some(Ttt(9)), false, b"TargetAddress=192.0.2.1,1\0TargetAddress=192.0.2.2,1\0");
    assert_eq!(lab.texts().last().map(|(text, _)| text.ttt), Some(Ttt(9)), "it goes on");
    lab.text(None, false, b"TargetAddress=192.0.2.1,1\0MaxRecvDataSegmentLength=512\0");
    assert_eq!(lab.declared(), Some(Ok(())));
    assert_eq!(lab.notices()[0].max_send_data_segment_length, 512);
    // Nothing else of the target may.
    for key in ["TargetAlias=a", "TargetPortalGroupTag=1", "X-a=1", "MaxBurstLength=512"] {
        let mut lab = Lab::new();
        lab.declare(4096);
        lab.text(Some(Ttt(9)), false, format!("{key}\0{key}\0").as_bytes());
        assert_eq!(lab.texts().last().map(|(text, _)| text.ttt), Some(Ttt::NONE), "{key}");
    }
}

/// Covers: TXT-13/I.
#[test]
fn what_the_target_refuses_leaves_all_as_it_was() {
    let mut lab = Lab::new();
    lab.declare(4096);
    lab.text(None, false, b"MaxRecvDataSegmentLength=Reject\0");
    assert_eq!(lab.declared(), Some(Err(DeclareError::Refused)));
    lab.declare(4096);
    let mut header = Vec::new();
    Request::Text(lab.texts().pop().unwrap().0).emit(0, &mut header);
    let reject = Reject { reason: 5, numbers: lab.numbers(0), data_sn: DataSn(0) };
    lab.control(Response::Reject(reject), &header);
    assert_eq!(lab.declared(), Some(Err(DeclareError::Rejected(5))));
    assert!(lab.notices().is_empty());
    // The range of the key; what is in force already needs no notice.
    lab.declare(1);
    assert_eq!(lab.texts().pop().unwrap().1, b"MaxRecvDataSegmentLength=512\0");
    lab.session.handle_disconnect();
    lab.drain();
    assert!(
        lab.told.iter().any(|told| matches!(told, Indication::Declared(Err(DeclareError::Lost))))
    );
}

#[test]
fn a_target_that_does_not_answer_loses_its_session() {
    let allowed = Settings::default().command_timeout;
    for (targets, limit) in [
        (false, allowed),
        (true, allowed),
        (true, Duration::from_secs(2)),
        (false, Duration::from_secs(2)),
        (true, Duration::ZERO),
    ] {
        let mut lab = Lab::with(targets, |_| {});
        lab.session.command_timeout = limit;
        match targets {
            true => lab.session.send_targets(START).unwrap(),
            false => lab.session.declare(4096, START).unwrap(),
        }
        let at = START + if limit.is_zero() { limits::TEXT_TIMEOUT } else { limit };
        assert!(lab.session.poll_timeout().is_some_and(|due| due <= at));
        lab.session.handle_timeout(at);
        lab.drain();
        let Some((SessionError::TextTimeout(asked), _)) = lab.closed else { panic!("it is over") };
        let expected = if targets { "SendTargets" } else { "MaxRecvDataSegmentLength" };
        assert_eq!(asked, expected);
    }
}

/// Covers: ASY-09.
#[test]
fn a_wish_to_negotiate_is_met_by_a_text_request() {
    let mut lab = Lab::new();
    let message = lab.asynchronous(4, (0, 0, 10));
    lab.control(message, &[]);
    let [Request::Text(_)] = lab.requests()[..] else { panic!("a text request") };
    // One that is pending is enough.
    let message = lab.asynchronous(4, (0, 0, 10));
    lab.control(message, &[]);
    assert_eq!(lab.requests().len(), 1);
    lab.text(None, false, b"MaxRecvDataSegmentLength=2048\0");
    assert_eq!(lab.notices()[0].max_send_data_segment_length, 2048);
    assert!(lab.told.is_empty() && lab.session.is_active());
}

/// Covers: SNK-08, SNK-13, SNK-11b, SNK-11c, SNK-10.
#[test]
fn data_from_before_the_change_is_asked_for_as_a_whole() {
    let mut lab = Lab::with(false, |parameters| parameters.error_recovery_level = 1);
    let (old, write) = (lab.command(0, 65536), lab.command(65536, 0));
    lab.declare(4096);
    let lose = |lab: &mut Lab, task| {
        let (lost, numbers) = (Some(Run { first: 3, count: 1 }), lab.numbers(0));
        lab.event(Event::Incomplete { task, lost, has_status: false, numbers }, &[]);
        lab.ops.pop()
    };
    // Both sides may differ about what holds: that is so until the response is here.
    let asked = |op: Option<Op>| match op {
        Some(Op::Resegment { task, request }) => (task, request),
        other => panic!("{other:?}"),
    };
    let (task, first) = asked(lose(&mut lab, old));
    assert_eq!((task, first.kind, first.itt), (old, 3, itt(old)));
    assert_eq!((first.beg_run, first.run_length), (0, 0));
    lab.text(None, false, b"");
    let (_, second) = asked(lose(&mut lab, old));
    assert!(first.tag != second.tag);
    assert!([first.tag, second.tag].into_iter().all(|tag| !matches!(tag, 0 | u32::MAX)));
    // From then on its data has the length that holds now.
    let is_plain = |op| {
        matches!(op, Some(Op::SendControl { request: Request::Snack(snack), .. })
            if snack.kind == 0 && snack.tag == u32::MAX && snack.beg_run == 3)
    };
    assert!(is_plain(lose(&mut lab, old)));
    let new = lab.command(0, 65536);
    assert!(is_plain(lose(&mut lab, new)), "it was sent after the change");
    assert!(is_plain(lose(&mut lab, write)), "an R2T has no data");
}

/// Whatever the target wants to be answered: 512 bytes is what every peer takes.
///
/// Covers: TXT-14a, KEY-21b/I.
#[test]
fn text_fits_the_smallest_segment() {
    let mut lab = Lab::new();
    lab.declare(4096);
    let keys: Vec<String> = (0..16).map(|n| format!("X-{n}{}=1\0", "k".repeat(50))).collect();
    lab.text(Some(Ttt(9)), false, keys.concat().as_bytes());
    let texts = lab.texts();
    assert!(texts.len() > 1 && texts.iter().all(|(_, data)| data.len() <= 512), "{texts:?}");
}

/// What comes with the last response names nothing, also where lengths are declared.
///
/// Covers: TXT-07.
#[test]
fn the_tag_of_a_last_response_is_ignored() {
    let mut lab = Lab::new();
    lab.session.declare(4096, START).unwrap();
    lab.drain();
    let Some(Request::Text(first)) = lab.requests().last().copied() else { panic!("a request") };
    let last = TextResponse {
        final_: true,
        continue_: false,
        lun: LunField([0, 3, 0, 0, 0, 0, 0, 0]),
        itt: first.itt,
        ttt: Ttt(5),
        numbers: lab.numbers(0),
    };
    lab.control(Response::Text(last), b"");
    assert_eq!(lab.requests().len(), 1, "nothing is left to be said");
    assert!(matches!(lab.told.last(), Some(Indication::Declared(Ok(())))));
    lab.session.declare(8192, START).unwrap();
    lab.drain();
    let Some(Request::Text(next)) = lab.requests().last().copied() else { panic!("a request") };
    assert_eq!((next.ttt, next.lun), (Ttt::NONE, LunField::default()));
}
