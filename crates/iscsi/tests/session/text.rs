// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Text exchanges and SendTargets.

use super::driver::*;
use iscsi::datamover::Op;
use iscsi::service::Completion;
use iscsi::target_role::{Output, Parameters, RdmaParameters, TargetRecord, TaskReporting};
use wire::iscsi::{
    Itt, LunField, Request, Response, Snack, StatSn, TextRequest, TextResponse, Ttt,
};

const OTHER: &str = "iqn.2001-04.com.example:other";

fn answer(outputs: &[Output]) -> TextResponse {
    match only(outputs) {
        Response::Text(response) => response,
        other => panic!("{other:?}"),
    }
}

fn text(outputs: &[Output]) -> String {
    answer(outputs);
    String::from_utf8(segment(outputs)).unwrap()
}

fn record(name: &str) -> TargetRecord {
    let addresses = vec!["192.0.2.1:3260,1".to_string(), "[2001:db8::1]:3260,1".to_string()];
    TargetRecord { name: name.to_string(), addresses }
}

/// What was asked of the node.
fn lookup(outputs: &[Output]) -> Option<String> {
    let asked = |output: &Output| match output {
        Output::Targets(only) => Some(only.clone()),
        _ => None,
    };
    outputs.iter().find_map(asked).expect("the node is asked")
}

/// The next request of an exchange.
fn next(driver: &mut Driver, former: TextRequest, ttt: Ttt) -> TextRequest {
    let cmd_sn = driver.take_cmd_sn();
    TextRequest { ttt, cmd_sn, exp_stat_sn: StatSn(driver.exp_stat_sn), ..former }
}

/// A request and its whole answer, fetched part by part.
fn fetch(driver: &mut Driver, records: Vec<TargetRecord>) -> String {
    let first = driver.text();
    let outputs = driver.ask(first, b"SendTargets=All\0");
    assert_eq!(lookup(&outputs), None);
    let mut outputs = driver.targets(records);
    let mut all = text(&outputs);
    loop {
        let part = answer(&outputs);
        assert_eq!(part.final_, part.ttt == Ttt::NONE);
        if part.final_ {
            assert!(!part.continue_);
            return all;
        }
        assert!(part.continue_);
        let request = next(driver, first, part.ttt);
        outputs = driver.ask(request, b"");
        all += &text(&outputs);
    }
}

/// Covers: DIS-02, DIS-06, DIS-08.
#[test]
fn discovery_lists_all_targets() {
    let mut driver = Setup::discovery().start();
    let list = fetch(&mut driver, vec![record(TARGET), record(OTHER)]);
    let expected = [TARGET, OTHER].map(|name| {
        format!(
            "TargetName={name}\0TargetAddress=192.0.2.1:3260,1\0\
             TargetAddress=[2001:db8::1]:3260,1\0"
        )
    });
    assert_eq!(list, expected.concat());
}

/// Covers: DIS-03.
#[test]
fn discovery_of_one_target() {
    let mut driver = Setup::discovery().start();
    let request = driver.text();
    let outputs = driver.ask(request, format!("SendTargets={OTHER}\0").as_bytes());
    assert_eq!(lookup(&outputs).as_deref(), Some(OTHER));
    let longer = format!("{OTHER}.2");
    let records = [TARGET, OTHER, &longer].map(record).to_vec();
    let list = text(&driver.targets(records));
    let names: Vec<&str> =
        list.split('\0').filter(|pair| pair.starts_with("TargetName=")).collect();
    assert_eq!(names, [format!("TargetName={OTHER}")]);
    let request = driver.text();
    driver.ask(request, b"SendTargets=iqn.2001-04.com.example:unknown\0");
    let outputs = driver.targets(Vec::new());
    assert!(answer(&outputs).final_ && text(&outputs).is_empty());
}

/// Covers: DIS-07.
#[test]
fn an_initiator_without_targets_gets_an_empty_list() {
    let mut driver = Setup::discovery().start();
    assert_eq!(fetch(&mut driver, Vec::new()), "");
}

/// Covers: DIS-04.
#[test]
fn a_normal_session_may_ask_for_its_own_target() {
    for value in ["", TARGET] {
        let mut driver = Setup::new().start();
        let request = driver.text();
        let outputs = driver.ask(request, format!("SendTargets={value}\0").as_bytes());
        assert_eq!(lookup(&outputs).as_deref(), Some(TARGET));
        let list = text(&driver.targets(vec![record(TARGET), record(OTHER)]));
        assert!(list.contains(TARGET) && !list.contains(OTHER));
    }
}

/// Covers: DIS-05.
#[test]
fn a_normal_session_may_not_ask_for_others() {
    for value in ["All", OTHER] {
        let mut driver = Setup::new().start();
        let request = driver.text();
        let outputs = driver.ask(request, format!("SendTargets={value}\0").as_bytes());
        assert_eq!(text(&outputs), "SendTargets=Reject\0");
    }
    let mut driver = Setup::discovery().start();
    let request = driver.text();
    assert_eq!(text(&driver.ask(request, b"SendTargets=\0")), "SendTargets=Reject\0");
}

/// Covers: DIS-09, TXT-05, TXT-16, NEG-11b/T, TXT-14b.
#[test]
fn a_long_list_comes_in_parts() {
    let setup = Setup { discovery: true, target: None, ..Setup::new() };
    let mut driver = setup.keys(|keys| keys.max_send_data_segment_length = 512).start();
    let names: Vec<String> = (0..500).map(|n| format!("iqn.2001-04.com.example:disk{n}")).collect();
    let list = fetch(&mut driver, names.iter().map(|name| record(name)).collect());
    for name in &names {
        assert!(list.contains(&format!("TargetName={name}\0")));
    }
    let parts = list.len().div_ceil(512);
    assert_eq!(driver.exp_stat_sn as usize, STAT_SN as usize + parts);
}

#[test]
fn ten_thousand_targets_fit() {
    let setup = Setup { discovery: true, target: None, ..Setup::new() };
    let mut driver = setup.keys(|keys| keys.max_send_data_segment_length = 65536).start();
    let names: Vec<String> =
        (0..10_000).map(|n| format!("iqn.2001-04.com.example:disk{n}")).collect();
    let list = fetch(&mut driver, names.iter().map(|name| record(name)).collect());
    assert_eq!(list.matches("TargetName=").count(), 10_000);
}

/// Covers: TXT-10.
#[test]
fn a_list_beyond_all_bounds_is_rejected() {
    let mut driver = Setup::discovery().start();
    let request = driver.text();
    driver.header = vec![0xcd; 48];
    driver.ask(request, b"SendTargets=All\0");
    let long = TargetRecord { name: "x".repeat(5 << 20), addresses: Vec::new() };
    let outputs = driver.targets(vec![long]);
    assert_eq!(reject(&outputs), 0x0a);
    assert_eq!(segment(&outputs), [0xcd; 48]);
}

/// Covers: TXT-04, TXT-15, NEG-16/T.
#[test]
fn an_open_request_has_an_open_answer() {
    let mut driver = Setup::new().start();
    let request = TextRequest { final_: false, ..driver.text() };
    let outputs = driver.ask(request, b"X-com.example.key=1\0");
    let part = answer(&outputs);
    assert!(!part.final_ && !part.continue_ && part.ttt != Ttt::NONE);
    assert_eq!(text(&outputs), "X-com.example.key=NotUnderstood\0");
    let last = TextRequest { final_: true, ..next(&mut driver, request, part.ttt) };
    let outputs = driver.ask(last, b"");
    assert!(answer(&outputs).final_ && text(&outputs).is_empty());
}

/// What a login alone settles, and markers, are known and refused.
///
/// Covers: KEY-05b/T, KEY-14b/T, KEY-15b/T, KEY-23b/T, KEY-24b/T, KEY-26b/T, KEY-27b/T, KEY-28b/T,
/// KEY-29b/T, KEY-30b/T, KEY-32b/T, KEY-35b/T, OBS-02/T.
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
        let mut driver = Setup::new().start();
        let request = driver.text();
        let outputs = driver.ask(request, format!("{pair}\0").as_bytes());
        let (key, _) = pair.split_once('=').unwrap();
        assert_eq!(text(&outputs), format!("{key}=Reject\0"));
    }
}

#[test]
fn pairs_may_be_cut_by_the_c_bit() {
    let mut driver = Setup::discovery().start();
    let first = TextRequest { final_: false, continue_: true, ..driver.text() };
    let outputs = driver.ask(first, b"SendTar");
    let part = answer(&outputs);
    assert!(!part.final_ && !part.continue_ && segment(&outputs).is_empty());
    let last = TextRequest { final_: true, continue_: false, ..next(&mut driver, first, part.ttt) };
    assert_eq!(lookup(&driver.ask(last, b"gets=All\0")), None);
}

/// Also where a piece is a text of its own: no key of it has an answer, or an effect, before the
/// last piece is there.
///
/// Covers: NEG-02/T.
#[test]
fn a_text_may_be_cut_anywhere() {
    let whole = b"X-a=1\0MaxRecvDataSegmentLength=512\0X-b=1\0";
    for cut in 0..=whole.len() {
        for again in [cut, cut.midpoint(whole.len()), whole.len()] {
            let mut driver = Setup::new().start();
            let mut request = TextRequest { final_: false, continue_: true, ..driver.text() };
            for piece in [&whole[..cut], &whole[cut..again]] {
                let outputs = driver.ask(request, piece);
                let part = answer(&outputs);
                assert!(segment(&outputs).is_empty(), "cut at {cut}, {again}");
                assert!(!part.final_ && !part.continue_);
                request = next(&mut driver, request, part.ttt);
            }
            let last = TextRequest { final_: true, continue_: false, ..request };
            let outputs = driver.ask(last, &whole[again..]);
            let said = String::from_utf8(segment(&outputs)).unwrap();
            assert_eq!(said, "X-a=NotUnderstood\0X-b=NotUnderstood\0", "cut at {cut}, {again}");
            let nop = driver.nop(Itt(77), Ttt::NONE);
            let outputs = driver.request(Request::NopOut(nop), &[1; 4096]);
            assert_eq!(segment(&outputs).len(), 512);
        }
    }
}

#[test]
fn an_empty_text_with_the_c_bit() {
    let mut driver = Setup::discovery().start();
    let first = TextRequest { final_: false, continue_: true, ..driver.text() };
    assert!(!answer(&driver.ask(first, b"")).final_);
    let both = TextRequest { continue_: true, ..driver.text() };
    assert_eq!(reject(&driver.ask(both, b"")), 4);
}

/// Covers: TXT-08.
#[test]
fn a_new_request_starts_over() {
    let setup = Setup { discovery: true, target: None, ..Setup::new() };
    let mut driver = setup.keys(|keys| keys.max_send_data_segment_length = 512).start();
    let records: Vec<TargetRecord> = (0..20).map(|n| record(&format!("disk{n}"))).collect();
    let first = driver.text();
    driver.ask(first, b"SendTargets=All\0");
    let outputs = driver.targets(records.clone());
    let start = text(&outputs);
    let again = TextRequest { itt: first.itt, ..driver.text() };
    driver.ask(again, b"SendTargets=All\0");
    assert_eq!(text(&driver.targets(records)), start);
}

/// Covers: NEG-13/T.
#[test]
fn a_second_request_before_the_answer_is_rejected() {
    let mut driver = Setup { discovery: true, target: None, ..Setup::new() }.start();
    let first = driver.text();
    assert_eq!(lookup(&driver.ask(first, b"SendTargets=All\0")), None);
    let second = driver.text();
    assert_eq!(reject(&driver.ask(second, b"SendTargets=\0")), 4);
    assert_eq!(
        driver.exp_cmd_sn(),
        first.cmd_sn.0 + 1,
        "a rejected request counts as not received"
    );
    // The first exchange goes on as if nothing had come.
    let outputs = driver.targets(vec![record("disk")]);
    assert_eq!(answer(&outputs).itt, first.itt);
    assert!(text(&outputs).contains("TargetName=disk"));
}

/// Covers: TXT-09.
#[test]
fn a_stale_tag_is_rejected_and_not_counted() {
    let setup = Setup { discovery: true, target: None, ..Setup::new() };
    let mut driver = setup.keys(|keys| keys.max_send_data_segment_length = 512).start();
    let first = driver.text();
    driver.ask(first, b"SendTargets=All\0");
    let records: Vec<TargetRecord> = (0..40).map(|n| record(&format!("disk{n}"))).collect();
    let old = answer(&driver.targets(records)).ttt;
    let second = next(&mut driver, first, old);
    assert!(!answer(&driver.ask(second, b"")).final_);
    let expected = driver.exp_cmd_sn();
    let stale = next(&mut driver, first, old);
    assert_eq!(reject(&driver.ask(stale, b"")), 9);
    assert_eq!(driver.exp_cmd_sn(), expected, "a rejected request counts as not received");
}

/// Covers: TXT-11.
#[test]
fn a_key_may_come_once() {
    let mut driver = Setup::new().start();
    // Also those that a target may repeat.
    let pairs = [
        "MaxRecvDataSegmentLength=512",
        "InitiatorAlias=a",
        "SendTargets=",
        "TargetName=iqn.2001-04.com.example:disk",
        "TargetAddress=192.0.2.1",
        "TargetAlias=a",
        "TargetPortalGroupTag=1",
        "MaxBurstLength=512",
        "X-a=1",
    ];
    for pair in pairs {
        let request = driver.text();
        assert_eq!(reject(&driver.ask(request, format!("{pair}\0{pair}\0").as_bytes())), 4);
        driver.cmd_sn = request.cmd_sn.0;
    }
    let first = TextRequest { final_: false, ..driver.text() };
    let part = answer(&driver.ask(first, b"MaxRecvDataSegmentLength=512\0"));
    let last = TextRequest { final_: true, ..next(&mut driver, first, part.ttt) };
    assert_eq!(reject(&driver.ask(last, b"MaxRecvDataSegmentLength=1024\0")), 4);
    driver.cmd_sn = last.cmd_sn.0;
    // A text in two parts, of which the second one ends the key.
    let first = TextRequest { final_: false, continue_: true, ..driver.text() };
    let part = answer(&driver.ask(first, b"InitiatorAlias=a\0Initiator"));
    let request = next(&mut driver, first, part.ttt);
    let last = TextRequest { final_: true, continue_: false, ..request };
    assert_eq!(reject(&driver.ask(last, b"Alias=b\0")), 4);
}

/// Covers: NEG-23/T, TXT-13/T.
#[test]
fn a_failed_exchange_changes_nothing() {
    let mut driver = Setup::new().start();
    let first = TextRequest { final_: false, ..driver.text() };
    let outputs = driver.ask(first, b"MaxRecvDataSegmentLength=512\0");
    let part = answer(&outputs);
    let last = TextRequest { final_: true, ..next(&mut driver, first, part.ttt) };
    let outputs = driver.ask(last, b"no pair");
    assert_eq!(reject(&outputs), 4);
    assert!(!outputs.iter().any(|o| matches!(o, Output::Op(_, Op::NoticeKeys(_)))));
    let nop = driver.nop(Itt(77), Ttt::NONE);
    let outputs = driver.request(Request::NopOut(nop), &[1; 4096]);
    assert_eq!(segment(&outputs).len(), 4096);
}

/// Covers: KEY-20c/T, KEY-21b/T.
#[test]
fn a_new_segment_limit_holds_after_the_answer() {
    let mut driver = Setup::new().start();
    let request = driver.text();
    let outputs = driver.ask(request, b"MaxRecvDataSegmentLength=512\0");
    assert!(text(&outputs).is_empty());
    let keys = outputs.iter().position(|o| matches!(o, Output::Op(_, Op::NoticeKeys(_))));
    assert_eq!(keys, Some(1), "after the answer");
    let nop = driver.nop(Itt(77), Ttt::NONE);
    let outputs = driver.request(Request::NopOut(nop), &[1; 4096]);
    assert_eq!(segment(&outputs).len(), 512);
    // Texts and sense data, too.
    let request = driver.text();
    let many: String = (0..60).map(|n| format!("X-k{n}=1\0")).collect();
    let outputs = driver.ask(request, many.as_bytes());
    assert_eq!((segment(&outputs).len(), answer(&outputs).continue_), (512, true));
    let command = driver.command();
    let task = driver.start(command);
    let sense = Completion { sense: vec![0x72; 4096], ..status(2) };
    assert!((2..=512).contains(&segment(&driver.complete(task, sense)).len()));
}

/// Linux's ib_iser has room for no more, whatever it has negotiated.
#[test]
fn sense_data_over_rdma_is_short() {
    let (solicited_only, hello) = (true, false);
    let plain = RdmaParameters { unexpected_max: 0, own_unexpected_max: 0, solicited_only, hello };
    for (rdma, length) in [(None, 2 + 252), (Some(plain), 2 + 126)] {
        let mut driver = Setup::new().keys(|keys| keys.rdma = rdma).start();
        let command = driver.command();
        let task = driver.start(command);
        let sense = Completion { sense: vec![0x72; 300], ..status(2) };
        assert_eq!(segment(&driver.complete(task, sense)).len(), length);
    }
}

/// Covers: KEY-20c/T.
#[test]
fn a_segment_limit_is_that_of_its_connection() {
    let mut driver = Setup::new().keys(|keys| keys.max_connections = 2).start();
    let (second, _) = driver.join(8, 9000);
    driver.on(second);
    let request = driver.text();
    driver.ask(request, b"MaxRecvDataSegmentLength=512\0");
    for (connection, length) in [(second, 512), (OWN, 4096)] {
        driver.on(connection);
        let nop = driver.nop(Itt(77), Ttt::NONE);
        let outputs = driver.request(Request::NopOut(nop), &[1; 4096]);
        assert_eq!(segment(&outputs).len(), length);
    }
}

#[test]
fn segment_limits_out_of_range_are_refused() {
    for value in ["511", "16777216", "-1", "many", ""] {
        let mut driver = Setup::new().start();
        let request = driver.text();
        let pair = format!("MaxRecvDataSegmentLength={value}\0");
        let outputs = driver.ask(request, pair.as_bytes());
        assert_eq!(text(&outputs), "MaxRecvDataSegmentLength=Reject\0", "{value}");
    }
}

/// Covers: TXT-18, KEY-01/T.
#[test]
fn keys_of_the_login_are_refused() {
    let mut driver = Setup::new().start();
    let names = [
        "MaxBurstLength",
        "FirstBurstLength",
        "InitialR2T",
        "ImmediateData",
        "HeaderDigest",
        "DataDigest",
        "MaxConnections",
        "ErrorRecoveryLevel",
        "MaxOutstandingR2T",
        "SessionType",
        "InitiatorName",
        "TargetName",
        "AuthMethod",
        "DefaultTime2Wait",
        "IFMarker",
    ];
    for name in names {
        let request = driver.text();
        let outputs = driver.ask(request, format!("{name}=512\0").as_bytes());
        assert_eq!(text(&outputs), format!("{name}=Reject\0"));
        assert!(!outputs.iter().any(|o| matches!(o, Output::Op(_, Op::NoticeKeys(_)))));
    }
    let request = driver.text();
    assert_eq!(text(&driver.ask(request, b"InitiatorAlias=me\0")), "");
}

#[test]
fn text_has_bounds() {
    let mut driver = Setup::new().start();
    let mut request = TextRequest { final_: false, continue_: true, ..driver.text() };
    for _ in 0..2 {
        let part = answer(&driver.ask(request, &[b'a'; 8192]));
        request = next(&mut driver, request, part.ttt);
    }
    assert_eq!(reject(&driver.ask(request, b"a")), 0x0a);
    let many: String = (0..200).map(|n| format!("X-k{n}=1\0")).collect();
    let mut driver = Setup::new().start();
    let request = driver.text();
    assert_eq!(reject(&driver.ask(request, many.as_bytes())), 0x0a);
}

#[test]
fn keys_in_the_middle_of_an_answer_are_an_error() {
    let setup = Setup { discovery: true, target: None, ..Setup::new() };
    let mut driver = setup.keys(|keys| keys.max_send_data_segment_length = 512).start();
    let first = driver.text();
    driver.ask(first, b"SendTargets=All\0");
    let records = (0..20).map(|n| record(&format!("disk{n}"))).collect();
    let part = answer(&driver.targets(records));
    let second = next(&mut driver, first, part.ttt);
    assert_eq!(reject(&driver.ask(second, b"SendTargets=All\0")), 4);
}

/// Covers: DIS-12b, DIS-12c, DIS-15.
#[test]
fn a_discovery_session_takes_text_and_logout_only() {
    let mut driver = Setup::discovery().start();
    let command = driver.command();
    assert_eq!(reject(&driver.send(command)), 4);
    let request = driver.management(5);
    assert_eq!(reject(&driver.manage(request)), 4);
    let nop = driver.nop(Itt(5), Ttt::NONE);
    assert_eq!(reject(&driver.request(Request::NopOut(nop), &[])), 4);
    for reason in [1, 2] {
        let request = driver.logout(reason);
        assert_eq!(reject(&driver.log_out(request)), 4);
    }
    let snack = Snack {
        kind: 1,
        lun: LunField::default(),
        itt: Itt::NONE,
        tag: u32::MAX,
        exp_stat_sn: StatSn(driver.exp_stat_sn),
        beg_run: 0,
        run_length: 0,
    };
    assert_eq!(reject(&driver.request(Request::Snack(snack), &[])), 4);
    driver.cmd_sn = CMD_SN;
    assert_eq!(fetch(&mut driver, Vec::new()), "");
    let request = driver.logout(0);
    let outputs = driver.log_out(request);
    assert!(matches!(only(&outputs), Response::Logout(response) if response.response == 0));
}

/// What its initiator is told, and what is not taken, hangs on no key of commands.
///
/// Covers: KEY-05c/T, KEY-14c/T, KEY-15c/T, KEY-23c/T, KEY-24c/T, KEY-28c/T, KEY-29c/T, KEY-30c/T,
/// KEY-35c/T, P44-01c/T.
#[test]
fn keys_of_commands_change_nothing_in_discovery() {
    let whole = |change: fn(&mut Parameters)| {
        let mut driver = Setup::discovery().keys(change).start();
        let command = driver.command();
        assert_eq!(reject(&driver.send(command)), 4);
        driver.cmd_sn = CMD_SN;
        let records = (0..20).map(|n| record(&format!("iqn.2001-04.com.example:disk{n}")));
        let list = fetch(&mut driver, records.collect());
        let parts = driver.exp_stat_sn;
        let request = driver.logout(0);
        let ends = only(&driver.log_out(request));
        (list, parts, format!("{ends:?}"), driver.closed.clone())
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
        |keys| keys.task_reporting = TaskReporting::FastAbort,
        |keys| keys.protocol_level = 2,
    ];
    for (change, place) in changes.into_iter().zip(0..) {
        assert_eq!(whole(change), plain, "key {place}");
    }
}

/// Covers: DIS-12a.
#[test]
fn a_discovery_session_takes_send_targets_alone() {
    let mut driver = Setup::discovery().start();
    let others: [&[u8]; 6] = [
        b"MaxRecvDataSegmentLength=8192\0",
        b"InitiatorAlias=me\0",
        b"MaxBurstLength=512\0",
        b"X-com.example.foo=1\0",
        b"SendTargets=All\0InitiatorAlias=me\0",
        b"",
    ];
    for other in others {
        let request = driver.text();
        assert_eq!(reject(&driver.ask(request, other)), 4, "{}", String::from_utf8_lossy(other));
        // What is rejected does not count.
        driver.cmd_sn = CMD_SN;
    }
    assert_eq!(fetch(&mut driver, Vec::new()), "");
}

#[test]
fn an_idle_discovery_session_ends_without_a_word() {
    let mut driver = Setup::discovery().start();
    let outputs = driver.wait(core::time::Duration::from_secs(300));
    assert!(responses(&outputs).is_empty() && driver.terminated);
    // Strangers get a moment, and no longer by asking again and again.
    let mut driver = Setup { proved: false, ..Setup::discovery() }.start();
    let outputs = driver.wait(core::time::Duration::from_secs(10));
    assert!(responses(&outputs).is_empty() && driver.terminated);
    let mut driver = Setup { proved: false, ..Setup::discovery() }.start();
    for _ in 0..7 {
        driver.wait(core::time::Duration::from_secs(8));
        assert!(!driver.terminated);
        fetch(&mut driver, Vec::new());
    }
    driver.wait(core::time::Duration::from_secs(4));
    assert!(driver.terminated);
    let mut driver = Setup::discovery().start();
    driver.session.request_logout(5);
    assert!(responses(&driver.drain()).is_empty());
    assert!(driver.terminated);
}

#[test]
fn records_that_nobody_asked_for_are_ignored() {
    let mut driver = Setup::discovery().start();
    assert!(driver.targets(vec![record(TARGET)]).is_empty());
}
