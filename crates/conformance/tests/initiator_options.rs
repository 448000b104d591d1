// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What our initiator may ask for, over real sockets: data in any order, markers, FastAbort; and
//! targets that are elsewhere.
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::time::Duration;

use conformance::Digests;
use conformance::Fate;
use conformance::Passing;
use conformance::Proxy;
use conformance::Server;
use conformance::initiator::pattern;
use conformance::on_each_engine;
use conformance::server::TARGET;
use conformance::server::plan;
use engine::Choice;
use initiator::Config;
use initiator::DigestOffer;
use initiator::Disk;
use initiator::Initiator;
use initiator::Kind;
use initiator::Options;
use iscsi::target_role::Redirection;
use iscsi::target_role::Settings;
use lunwire_conformance as conformance;
use target::Redirect;
use wire::iscsi::Request;

const PLAIN: Digests = Digests { header: false, data: false };

/// Opcode of a Reject.
const REJECT: u8 = 0x3f;

fn write_and_read(options: Options) {
    let initiator = Initiator::start(&Config::default()).unwrap();
    let session = initiator.connect(options).unwrap();
    let disk = Disk::open(&session, 0).unwrap();
    let data = pattern(1 << 20, 11);
    disk.write_at(512, &data).unwrap();
    let mut back = vec![0; data.len()];
    disk.read_at(512, &mut back).unwrap();
    assert!(back == data);
    session.logout();
}

/// Covers: REJ-12.
#[test]
fn everything_at_once() {
    on_each_engine(
        |settings| {
            settings.markers = true;
            settings.max_recv_data_segment_length = 8192;
        },
        |server| {
            for digest in [DigestOffer::Off, DigestOffer::Required] {
                let mut options = Options::new(server.portal().to_string(), Some(TARGET.into()));
                options.settings.markers = true;
                options.settings.data_pdu_in_order = false;
                options.settings.data_sequence_in_order = false;
                options.settings.fast_abort = true;
                options.settings.error_recovery_level = 2;
                options.settings.connections = 2;
                options.settings.header_digest = digest;
                options.settings.data_digest = digest;
                write_and_read(options.clone());
                // Targets without markers go without.
                options.settings.markers = false;
                write_and_read(options);
            }
            let proxy = Proxy::start(server.portal(), PLAIN, |_| Fate::Pass);
            let mut options = Options::new(proxy.portal().to_string(), Some(TARGET.into()));
            (options.settings.fast_abort, options.settings.data_pdu_in_order) = (true, false);
            write_and_read(options);
            let said = login_text(&proxy.passed());
            for pair in ["TaskReporting=FastAbort", "DataPDUInOrder=No"] {
                assert!(said.contains(pair), "{pair} in {said}");
            }
            let rejects = |pdu: &&Passing| pdu.outward && pdu.header[0] & 0x3f == REJECT;
            assert_eq!(proxy.passed().iter().filter(rejects).count(), 0);
        },
    );
}

/// What a target said in its logins.
fn login_text(passed: &[Passing]) -> String {
    let of = |pdu: &&Passing| !pdu.outward && pdu.header[0] & 0x3f == 0x23;
    let texts = passed.iter().filter(of).map(|pdu| String::from_utf8_lossy(&pdu.data));
    texts.collect::<Vec<_>>().join("").replace('\0', " ")
}

/// A target that says that it is at `address`.
fn elsewhere(address: &str, duration: Redirection) -> Server {
    let mut plan = plan(Choice::Epoll, Settings::default());
    for node in &mut plan.nodes {
        node.redirect = Some(Redirect { address: address.to_owned(), duration });
    }
    Server::start(plan)
}

fn logins(proxy: &Proxy) -> usize {
    let first = |(_, request): &&(usize, Request)| matches!(request, Request::Login(_));
    let mut connections: Vec<usize> =
        proxy.requests().iter().filter(first).map(|(at, _)| *at).collect();
    connections.dedup();
    connections.len()
}

/// Covers: RDR-05.
#[test]
fn a_permanent_redirection_is_remembered_and_a_temporary_one_is_not() {
    for (duration, asked) in [(Redirection::Temporary, 2), (Redirection::Permanent, 1)] {
        let server = Server::start(plan(Choice::Epoll, Settings::default()));
        let there = Proxy::start(server.portal(), PLAIN, |_| Fate::Pass);
        let gone = elsewhere(&there.portal().to_string(), duration);
        let here = Proxy::start(gone.portal(), PLAIN, |_| Fate::Pass);
        let initiator = Initiator::start(&Config::default()).unwrap();
        let mut options = Options::new(here.portal().to_string(), Some(TARGET.to_owned()));
        options.reconnect_patience = Duration::from_secs(60);
        let session = initiator.connect(options).unwrap();
        let disk = Disk::open(&session, 0).unwrap();
        assert_eq!((logins(&here), logins(&there)), (1, 1));
        there.cut();
        disk.read_at(0, &mut [0; 512]).unwrap();
        assert_eq!((logins(&here), logins(&there)), (asked, 2), "{duration:?}");
        session.logout();
    }
}

/// Covers: RDR-07.
#[test]
fn redirections_do_not_go_round_for_ever() {
    // The second one points to the first one by a proxy that is started before it.
    let first = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = first.local_addr().unwrap();
    let second = elsewhere(&address.to_string(), Redirection::Temporary);
    drop(first);
    let mut plan = plan(Choice::Epoll, Settings::default());
    plan.portals = vec![address.into()];
    for node in &mut plan.nodes {
        let address = second.portal().to_string();
        node.redirect = Some(Redirect { address, duration: Redirection::Permanent });
    }
    let _first = Server::start(plan);
    let initiator = Initiator::start(&Config::default()).unwrap();
    let mut options = Options::new(address.to_string(), Some(TARGET.to_owned()));
    options.connect_patience = Duration::from_secs(60);
    let error = initiator.connect(options).expect_err("a circle");
    assert!(matches!(error.kind(), Kind::Redirections(_)), "{error}");
}
