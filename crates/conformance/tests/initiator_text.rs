// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Our initiator negotiates in full feature phase: a longest data segment that is declared anew,
//! data that was on its way meanwhile, targets that name a key twice (RFC 7143 §6.4, §11.16.3).
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::collections::HashSet;
use std::sync::mpsc;
use std::time::Duration;

use conformance::Digests;
use conformance::Fate;
use conformance::Mock;
use conformance::Passing;
use conformance::Proxy;
use conformance::Server;
use conformance::initiator::pattern;
use conformance::mock;
use conformance::on_each_engine;
use conformance::on_each_transport;
use conformance::server::TARGET;
use initiator::Config;
use initiator::Data;
use initiator::DigestOffer;
use initiator::Disk;
use initiator::Initiator;
use initiator::Kind;
use initiator::Options;
use initiator::Pending;
use initiator::Request as Post;
use initiator::Retry;
use initiator::Session;
use wire::iscsi::Cdb;
use wire::iscsi::*;

use lunwire_conformance as conformance;

const BOTH: Digests = Digests { header: true, data: true };

/// Bytes that are read while something changes.
const LENGTH: usize = 64 << 10;

/// Longer than anything takes; a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// SNACK types (RFC 7143 §11.16.1).
const DATA_OR_R2T: u8 = 0;
const R_DATA: u8 = 3;

fn options(portal: std::net::SocketAddr) -> Options {
    let mut options = Options::new(portal.to_string(), Some(TARGET.to_owned()));
    options.settings.header_digest = DigestOffer::Required;
    options.settings.data_digest = DigestOffer::Required;
    options.settings.error_recovery_level = 1;
    options.settings.max_recv_data_segment_length = 8192;
    // A second session would hide what the first one did not repair.
    options.reconnect_patience = Duration::ZERO;
    options
}

/// Posts a READ(10) of the first [`LENGTH`] bytes that is not sent twice.
fn read(session: &Session) -> Pending {
    let mut bytes = [0; 32];
    let blocks = u16::try_from(LENGTH / 512).unwrap();
    bytes[..10].copy_from_slice(&conformance::initiator::cdb10(0x28, 0, blocks));
    let (cdb, data) = (Cdb { bytes, len: 16 }, Data::In(u32::try_from(LENGTH).unwrap()));
    session.post(Post { lun: 0, cdb, data, retry: Retry::Never })
}

fn data_in(pdu: &Passing) -> Option<DataIn> {
    match pdu.response() {
        Some(Response::DataIn(data)) => Some(data),
        _ => None,
    }
}

fn is_text(pdu: &Passing) -> bool {
    matches!(pdu.request(), Some(Request::Text(_)))
}

fn snacks(proxy: &Proxy) -> Vec<Snack> {
    let of = |request| match request {
        Request::Snack(snack) => Some(snack),
        _ => None,
    };
    proxy.requests().into_iter().filter_map(|(_, request)| of(request)).collect()
}

/// Reads while `length` is declared, and some PDUs fare ill when that was asked for, once each;
/// what was read must be what was written.
fn change_under_a_read(
    length: u32,
    ill: fn(DataSn) -> bool,
    fate: Fate,
    check: impl Fn(&Proxy, Itt),
) {
    on_each_transport(|_| {}, |server: &Server| change(server, length, (ill, fate), &check));
}

fn change(
    server: &Server,
    length: u32,
    (ill, fate): (fn(DataSn) -> bool, Fate),
    check: &impl Fn(&Proxy, Itt),
) {
    // It is asked for when the target has cut the data, which goes no further before that.
    let (comes, come) = mpsc::channel();
    let (mut is_asked, mut seen) = (false, HashSet::new());
    let proxy = Proxy::start(server.portal(), BOTH, move |pdu| {
        is_asked |= is_text(pdu);
        let number = data_in(pdu).map(|data| data.data_sn);
        match number.filter(|number| ill(*number) && !seen.contains(&number.0)) {
            Some(number) if is_asked => {
                seen.insert(number.0);
                fate
            }
            Some(_) => {
                let _ = comes.send(());
                Fate::Wait
            }
            None => Fate::Pass,
        }
    });
    let initiator = Initiator::start(&Config::default()).unwrap();
    let session = initiator.connect(options(proxy.portal())).unwrap();
    let data = pattern(LENGTH, 3);
    Disk::open(&session, 0).unwrap().write_at(0, &data).unwrap();
    let under_way = read(&session);
    come.recv_timeout(PATIENCE).unwrap();
    session.resize_segments(length).unwrap();
    let done = under_way.wait().unwrap();
    assert!(done.data.as_deref() == Some(data.as_slice()), "what was written");
    let of = |(_, request)| match request {
        Request::Command(command) if command.cdb.bytes[0] == 0x28 => Some(command.itt),
        _ => None,
    };
    let read_itt = proxy.requests().into_iter().rev().find_map(of).unwrap();
    check(&proxy, read_itt);
    // Afterwards data comes in the new length, and is asked for one by one again.
    let after = proxy.passed().len();
    assert!(read(&session).wait().unwrap().data.as_deref() == Some(data.as_slice()));
    let longest = proxy.passed().split_off(after);
    let longest = longest.iter().filter(|pdu| data_in(pdu).is_some());
    let longest = longest.map(|pdu| pdu.data.len()).max();
    assert_eq!(longest, Some(length as usize));
    session.logout();
}

/// The one request for data: an R-Data SNACK as it must be.
fn check_r_data(proxy: &Proxy, itt: Itt) {
    let asked = snacks(proxy);
    let of_data = asked.iter().filter(|snack| matches!(snack.kind, DATA_OR_R2T | R_DATA));
    let of_data: Vec<&Snack> = of_data.collect();
    let [snack] = of_data.as_slice() else { panic!("{asked:?}") };
    assert_eq!((snack.kind, snack.itt), (R_DATA, itt));
    assert!(![0, u32::MAX].contains(&snack.tag), "{snack:?}");
    assert_eq!((snack.beg_run, snack.run_length), (0, 0));
    let tagged = |pdu: &Passing| {
        matches!(pdu.response(),
        Some(Response::Scsi(status)) if status.itt == itt && status.snack_tag == snack.tag)
    };
    assert!(proxy.passed().iter().any(tagged), "a status for what came again");
}

/// The last two PDUs are lost with the status, so that the loss is found when the change is in
/// force.
///
/// Covers: SNK-08, SNK-05, SNK-10, SNK-13, TXT-01, TXT-03, SNK-11b.
#[test]
fn data_from_before_a_change_is_cut_anew() {
    for length in [2048, 32 << 10] {
        change_under_a_read(
            length,
            |number| [6, 7].contains(&number.0),
            Fate::Drop,
            |proxy, itt| {
                check_r_data(proxy, itt);
                let pdus = proxy.passed();
                let changed = |pdu: &Passing| matches!(pdu.response(), Some(Response::Text(_)));
                let asked = |pdu: &Passing| {
                    matches!(pdu.request(), Some(Request::Snack(Snack { kind: R_DATA, .. })))
                };
                let changed = pdus.iter().position(changed);
                assert!(changed < pdus.iter().position(asked), "it was in force");
            },
        );
    }
}

/// Data is damaged while the initiator does not know whether the change is in force.
///
/// Covers: SNK-08.
#[test]
fn data_that_is_lost_during_a_change_is_cut_anew() {
    change_under_a_read(1024, |number| number.0 == 2, Fate::Damage, check_r_data);
}

/// Covers: TXT-14a.
#[test]
fn each_connection_of_a_session_declares() {
    on_each_engine(
        |_| {},
        |server: &Server| {
            let proxy = Proxy::start(server.portal(), BOTH, |_| Fate::Pass);
            let mut options = options(proxy.portal());
            options.settings.connections = 2;
            options.settings.error_recovery_level = 2;
            let initiator = Initiator::start(&Config::default()).unwrap();
            let session = initiator.connect(options).unwrap();
            let data = pattern(LENGTH, 9);
            let disk = Disk::open(&session, 0).unwrap();
            disk.write_at(0, &data).unwrap();
            let carries_commands = |at| {
                let is_command = |(of, request): &(usize, Request)| {
                    *of == at && matches!(request, Request::Command(_))
                };
                proxy.requests().iter().any(is_command)
            };
            while !(carries_commands(0) && carries_commands(1)) {
                disk.read_at(0, &mut [0; 512]).unwrap();
            }
            session.resize_segments(1024).unwrap();
            let texts = |at| {
                let is_text = |(of, request): &(usize, Request)| {
                    *of == at && matches!(request, Request::Text(_))
                };
                proxy.requests().into_iter().filter(is_text).count()
            };
            assert_eq!((texts(0), texts(1)), (1, 1));
            let after = proxy.passed().len();
            let mut back = vec![0; LENGTH];
            for _ in 0..4 {
                disk.read_at(0, &mut back).unwrap();
                assert!(back == data);
            }
            let longest = proxy.passed().split_off(after);
            let longest = longest.iter().filter(|pdu| data_in(pdu).is_some());
            assert_eq!(longest.map(|pdu| pdu.data.len()).max(), Some(1024));
            session.logout();
        },
    );
}

fn text_answer(of: &TextRequest, ttt: Ttt, numbers: Numbers) -> Response {
    let (final_, continue_) = (ttt == Ttt::NONE, false);
    Response::Text(TextResponse { final_, continue_, lun: of.lun, itt: of.itt, ttt, numbers })
}

fn session_with(mock: &Mock) -> (Initiator, Session) {
    let mut options = Options::new(mock.portal().to_string(), Some(TARGET.to_owned()));
    options.reconnect_patience = Duration::ZERO;
    let initiator = Initiator::start(&Config::default()).unwrap();
    let session = initiator.connect(options).unwrap();
    (initiator, session)
}

/// Covers: TXT-12, TXT-01.
#[test]
fn a_key_that_a_target_names_twice_begins_the_negotiation_anew() {
    const TWICE: &[u8] = b"MaxRecvDataSegmentLength=4096\0MaxRecvDataSegmentLength=2048\0";
    let mut count = 0;
    let mock = Mock::start(move |request, _, numbers| {
        let Request::Text(text) = request else { return Vec::new() };
        count += 1;
        let (ttt, data) = match count {
            1 => (Ttt(5), TWICE),
            2 => (Ttt::NONE, TWICE),
            _ => (Ttt::NONE, b"MaxRecvDataSegmentLength=4096\0".as_slice()),
        };
        vec![(text_answer(text, ttt, numbers), data.to_vec())]
    });
    let (_initiator, session) = session_with(&mock);
    session.resize_segments(2048).unwrap();
    let said = mock.said();
    assert_eq!(said.len(), 3, "{said:?}");
    let texts = said.iter().map(|(request, data)| match request {
        Request::Text(text) => (text.itt, text.immediate, text.ttt, text.final_, data.clone()),
        other => panic!("{other:?}"),
    });
    let texts: Vec<_> = texts.collect();
    assert_eq!(texts[0].4, b"MaxRecvDataSegmentLength=2048\0");
    assert_eq!((texts[0].2, texts[0].3), (Ttt::NONE, true));
    assert!(texts.iter().all(|text| *text == texts[0]), "the same from the beginning: {texts:?}");
    session.logout();
}

/// Covers: TXT-13/I.
#[test]
fn a_session_goes_on_when_the_target_does_not_negotiate() {
    let mock = Mock::start(|request, _, numbers| match request {
        Request::Text(text) => {
            let data = b"MaxRecvDataSegmentLength=Reject\0".to_vec();
            vec![(text_answer(text, Ttt::NONE, numbers), data)]
        }
        Request::Command(command) => {
            // What holds is the length of the login.
            mock::data(command, numbers, vec![7; 4096])
        }
        _ => Vec::new(),
    });
    let (_initiator, session) = session_with(&mock);
    let error = session.resize_segments(512).unwrap_err();
    assert!(matches!(error.kind(), Kind::Declaration(_)), "{error}");
    let (cdb, data) = (Cdb { bytes: [0x12; 32], len: 16 }, Data::In(4096));
    let done = session.execute(Post { lun: 0, cdb, data, retry: Retry::Never }).unwrap();
    assert_eq!(done.data.as_deref(), Some([7; 4096].as_slice()));
    session.logout();
}
