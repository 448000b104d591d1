// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Our initiator with connections that break: commands outlive them at ErrorRecoveryLevel 2, and
//! with several connections in a session (RFC 7143 §6.3.4, §7.1.4.3, §7.2, §11.14).
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

use conformance::Digests;
use conformance::Fate;
use conformance::Passing;
use conformance::Proxy;
use conformance::Server;
use conformance::initiator::pattern;
use conformance::on_each_engine;
use conformance::server::TARGET;
use initiator::Config;
use initiator::Data;
use initiator::Disk;
use initiator::Initiator;
use initiator::Options;
use initiator::Policy;
use initiator::Request as Post;
use initiator::Retry;
use initiator::Session;
use wire::iscsi::Cdb;
use wire::iscsi::*;

use lunwire_conformance as conformance;

/// Task management function TASK REASSIGN (RFC 7143 §11.5.1).
const TASK_REASSIGN: u8 = 8;

/// Logout for recovery (RFC 7143 §11.14.1).
const RECOVER: u8 = 2;

const PLAIN: Digests = Digests { header: false, data: false };

/// A session at `level` with so many connections. None of its commands is sent anew when a session
/// is lost, so a session that was lost shows.
fn options(proxy: &Proxy, level: u8, connections: u16) -> Options {
    let mut options = Options::new(proxy.portal().to_string(), Some(TARGET.to_owned()));
    options.settings.error_recovery_level = level;
    options.settings.connections = connections;
    options.settings.max_recv_data_segment_length = 8192;
    options.settings.max_burst_length = 64 << 10;
    options.settings.first_burst_length = 16 << 10;
    options.reconnect_patience = Duration::ZERO;
    options
}

fn connect(proxy: &Proxy, level: u8, connections: u16) -> (Initiator, Session) {
    let initiator = Initiator::start(&Config::default()).unwrap();
    let session = initiator.connect(options(proxy, level, connections)).unwrap();
    (initiator, session)
}

fn short_waits(settings: &mut iscsi::target_role::Settings) {
    (settings.time2wait, settings.time2retain) = (0, 20);
    settings.max_recv_data_segment_length = 8192;
}

/// Commands of 64 KiB that are not sent again if they may have been carried out.
fn write_once(session: &Session, block: u32, seed: u8) -> initiator::Pending {
    let data = pattern(64 << 10, seed);
    post(session, 0x2a, block, Data::Out(buf::Slice::from(data)))
}

fn read_once(session: &Session, block: u32) -> initiator::Pending {
    post(session, 0x28, block, Data::In(64 << 10))
}

fn post(session: &Session, opcode: u8, block: u32, data: Data) -> initiator::Pending {
    let mut bytes = [0; 32];
    let cdb = conformance::initiator::cdb10(opcode, block, 128);
    bytes.get_mut(..10).unwrap().copy_from_slice(&cdb);
    session.post(Post { lun: 0, cdb: Cdb { bytes, len: 10 }, data, retry: Retry::IfNotDone })
}

/// Sixteen writes, then as many reads, side by side: each is carried out once.
fn work(session: &Session, round: u8) {
    let blocks = || (0..16).map(|at| at * 128);
    let seed = |block: u32| u8::try_from(block / 128).unwrap() + round * 16;
    let writes: Vec<_> = blocks().map(|block| write_once(session, block, seed(block))).collect();
    for write in writes {
        write.wait().unwrap_or_else(|error| panic!("round {round}: {error}"));
    }
    let reads: Vec<_> = blocks().map(|block| (block, read_once(session, block))).collect();
    for (block, read) in reads {
        let done = read.wait().unwrap_or_else(|error| panic!("round {round}: {error}"));
        let data = done.data.unwrap();
        assert!(data.to_vec() == pattern(64 << 10, seed(block)), "block {block}, round {round}");
    }
}

/// Cuts each connection before its `index`th PDU of one direction, at most `times` times.
fn cut(outward: bool, index: usize, times: usize) -> impl FnMut(&Passing) -> Fate + Send {
    let done = AtomicUsize::new(0);
    move |pdu| {
        let here = pdu.outward == outward && pdu.index == index;
        let is_cut = here && done.fetch_add(1, Ordering::Relaxed) < times;
        if is_cut { Fate::Cut } else { Fate::Pass }
    }
}

/// Covers: REA-01, REA-06, REA-07, SES-14, SES-33, TMF-28, ERL-05b, ERL-05c.
#[test]
fn commands_outlive_their_only_connection() {
    on_each_engine(short_waits, |server: &Server| {
        for (outward, index) in [(true, 12), (true, 40), (false, 9), (false, 60), (false, 75)] {
            let proxy = Proxy::start(server.portal(), PLAIN, cut(outward, index, 2));
            let (_initiator, session) = connect(&proxy, 2, 1);
            Disk::open(&session, 0).unwrap();
            work(&session, 1);
            work(&session, 2);
            session.logout();
            check_reassignment(&proxy.passed());
        }
    });
}

/// Every login but the first names session and connection, and commands are reassigned after it.
fn check_reassignment(passed: &[Passing]) {
    let logins: Vec<(usize, LoginRequest)> = passed
        .iter()
        .filter_map(|pdu| match pdu.request() {
            Some(Request::Login(login)) => Some((pdu.connection, login)),
            _ => None,
        })
        .collect();
    let leading = logins.first().unwrap().1;
    let later = logins.iter().filter(|(at, _)| *at > 0);
    assert!(later.clone().count() > 0, "a connection was replaced");
    for (at, login) in later {
        assert_ne!(login.tsih, Tsih(0), "of the session");
        assert_eq!((login.cid, login.isid), (leading.cid, leading.isid));
        check_successor(passed, *at, login);
    }
}

fn check_successor(passed: &[Passing], at: usize, login: &LoginRequest) {
    let of = |connection: usize| passed.iter().filter(move |pdu| pdu.connection == connection);
    let Some(before) = at.checked_sub(1) else { return };
    // What the login acknowledges is what had come.
    let told: Vec<u32> = of(before)
        .filter(|pdu| pdu.fate == Fate::Pass)
        .filter_map(|pdu| match pdu.response()? {
            Response::Scsi(end) => Some(end.numbers.stat_sn.0),
            Response::DataIn(end) if end.status.is_some() => Some(end.numbers.stat_sn.0),
            Response::Login(login) => Some(login.numbers.stat_sn.0),
            Response::TaskManagement(end) => Some(end.numbers.stat_sn.0),
            _ => None,
        })
        .collect();
    let is_first = of(at).next().is_some_and(|pdu| pdu.request() == Some(Request::Login(*login)));
    if is_first && let Some(newest) = told.iter().max() {
        assert!(login.exp_stat_sn.0 <= newest + 1, "only what came is acknowledged");
        assert!(login.exp_stat_sn.0 > *told.iter().min().unwrap());
    }
    let full = of(at).position(|pdu| match pdu.response() {
        Some(Response::Login(login)) => login.next == Some(Stage::FullFeature) && login.transit,
        _ => false,
    });
    let reassigns = of(at).enumerate().filter_map(|(place, pdu)| match pdu.request() {
        Some(Request::TaskManagement(tmf)) if tmf.function == TASK_REASSIGN => Some((place, tmf)),
        _ => None,
    });
    for (place, tmf) in reassigns {
        assert!(tmf.immediate, "TASK REASSIGN is immediate");
        assert!(full.is_some_and(|full| full < place), "only after the login");
        assert_ne!(tmf.referenced_task, Itt::NONE);
        let asked = of(at).filter_map(|pdu| match pdu.request() {
            Some(Request::Snack(snack)) if snack.itt == tmf.referenced_task => Some(snack),
            _ => None,
        });
        assert!(asked.into_iter().all(|snack| snack.beg_run >= tmf.exp_data_sn.0));
    }
}

/// Covers: LGN-34, SES-27, MCS-01, STS-04.
#[test]
fn commands_are_shared_out_over_connections() {
    for policy in [Policy::RoundRobin, Policy::LeastOutstanding] {
        on_each_engine(short_waits, |server| {
            let proxy = Proxy::start(server.portal(), PLAIN, |_| Fate::Pass);
            let initiator = Initiator::start(&Config::default()).unwrap();
            let mut options = options(&proxy, 0, 3);
            options.settings.policy = policy;
            let session = initiator.connect(options).unwrap();
            until_joined(&session, &proxy, 3);
            work(&session, 3);
            session.logout();
            for connection in 0..3 {
                let commands = proxy
                    .requests()
                    .iter()
                    .filter(|(at, request)| {
                        *at == connection && matches!(request, Request::Command(_))
                    })
                    .count();
                assert!(commands >= 6, "{commands} commands on connection {connection}");
            }
            check_numbers(&proxy.requests());
            check_statuses(&proxy.passed());
        });
    }
}

/// Each connection acknowledges what came on it, and nothing else.
fn check_statuses(passed: &[Passing]) {
    for connection in 0..3 {
        let (mut next, mut told) = (None::<StatSn>, Vec::new());
        for pdu in passed.iter().filter(|pdu| pdu.connection == connection) {
            let numbers = match pdu.response() {
                Some(Response::Login(pdu)) => Some(pdu.numbers),
                Some(Response::Scsi(pdu)) => Some(pdu.numbers),
                Some(Response::DataIn(pdu)) => pdu.status.map(|_| pdu.numbers),
                _ => None,
            };
            if let Some(numbers) = numbers {
                next = Some(StatSn(numbers.stat_sn.0.wrapping_add(1)));
            }
            if let (Some(Request::Command(command)), Some(next)) = (pdu.request(), next) {
                let ahead = next.0.wrapping_sub(command.exp_stat_sn.0);
                assert!(ahead < 64, "{next:?} and {:?} on {connection}", command.exp_stat_sn);
                told.push(command.exp_stat_sn);
            }
        }
        let moved = told.last().unwrap().0.wrapping_sub(told.first().unwrap().0);
        assert!(moved > 0, "connection {connection}");
    }
}

/// Works until so many connections carry commands.
fn until_joined(session: &Session, proxy: &Proxy, connections: usize) {
    let end = Instant::now() + Duration::from_secs(30);
    let mut round = 0;
    loop {
        work(session, round);
        round = (round + 1) % 8;
        let requests = proxy.requests();
        let mut used: Vec<usize> = requests
            .iter()
            .filter(|(_, request)| matches!(request, Request::Command(_)))
            .map(|(at, _)| *at)
            .collect();
        used.sort_unstable();
        used.dedup();
        if used.len() >= connections {
            return;
        }
        assert!(Instant::now() < end, "{} connections of {connections}", used.len());
    }
}

/// A login of a session that exists carries the next CmdSN, which a command has after it.
fn check_numbers(requests: &[(usize, Request)]) {
    let mut next: Option<CmdSn> = None;
    let mut tsih = Vec::new();
    for (at, request) in requests {
        match request {
            Request::Login(login) if *at > 0 => {
                let next = next.expect("the leading connection comes first");
                let ahead = next.0.wrapping_sub(login.cmd_sn.0);
                // Commands of another connection may pass the proxy before or after the login.
                assert!(!(64..=u32::MAX - 64).contains(&ahead), "{next:?} and {:?}", login.cmd_sn);
                tsih.push((*at, login.tsih));
            }
            Request::Login(login) => next = Some(login.cmd_sn),
            Request::Command(command) => {
                let after = CmdSn(command.cmd_sn.0.wrapping_add(1));
                next = next.map(
                    |next| {
                        if after.0.wrapping_sub(next.0) < 1 << 31 { after } else { next }
                    },
                );
            }
            _ => {}
        }
    }
    assert!(tsih.iter().all(|(_, tsih)| *tsih != Tsih(0)));
    assert!(tsih.windows(2).all(|pair| pair[0].1 == pair[1].1), "one session: {tsih:?}");
    let mut numbers: Vec<u32> = requests
        .iter()
        .filter_map(|(_, request)| match request {
            Request::Command(command) if !command.immediate => Some(command.cmd_sn.0),
            _ => None,
        })
        .collect();
    numbers.sort_unstable();
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "one series, without a gap");
}

/// Covers: REA-01, TMF-28, MCS-05, MCS-06.
#[test]
fn one_connection_takes_over_from_another() {
    for level in [0, 1, 2] {
        on_each_engine(short_waits, |server| {
            let proxy = Proxy::start(server.portal(), PLAIN, |pdu| {
                // One of three, in the middle of its work, once.
                let is_it = pdu.connection == 1 && !pdu.outward && pdu.index == 70;
                if is_it { Fate::Cut } else { Fate::Pass }
            });
            let (_initiator, session) = connect(&proxy, level, 3);
            let disk = Disk::open(&session, 0).unwrap();
            let end = Instant::now() + Duration::from_secs(60);
            for round in (0..8).cycle() {
                if level == 2 {
                    work(&session, round);
                } else {
                    // Below level 2 commands of a connection that is gone have ended: reads and
                    // writes are sent again.
                    let data = pattern(512 << 10, round);
                    disk.write_at(0, &data).unwrap();
                    let mut back = vec![0; data.len()];
                    disk.read_at(0, &mut back).unwrap();
                    assert!(back == data, "round {round}");
                }
                let requests = proxy.requests();
                let has = |wanted: fn(&Request) -> bool| {
                    requests.iter().any(|(_, request)| wanted(request))
                };
                let logged_out = has(|request| match request {
                    Request::Logout(logout) => logout.reason != 0,
                    _ => false,
                });
                if logged_out && requests.iter().any(|(at, _)| *at == 3) {
                    break;
                }
                assert!(Instant::now() < end, "the connection was not replaced");
            }
            check_takeover(&proxy.passed(), level);
            session.logout();
        });
    }
}

fn check_takeover(passed: &[Passing], level: u8) {
    let logout = passed.iter().position(|pdu| match pdu.request() {
        Some(Request::Logout(logout)) if logout.reason != 0 => {
            assert_eq!(logout.reason == RECOVER, level == 2, "the reason fits the level");
            assert_ne!(pdu.connection, 1, "another connection asks");
            true
        }
        _ => false,
    });
    let logout = logout.expect("a logout of the connection that is gone");
    let answer = passed.iter().position(|pdu| match pdu.response() {
        Some(Response::Logout(answer)) => answer.response <= 1,
        _ => false,
    });
    let answer = answer.expect("an answer");
    assert!(logout < answer);
    let reassigned = passed.iter().position(|pdu| match pdu.request() {
        Some(Request::TaskManagement(tmf)) => tmf.function == TASK_REASSIGN,
        _ => false,
    });
    if let Some(reassigned) = reassigned {
        assert!(level == 2 && answer < reassigned, "only after the logout succeeded");
    }
}

#[test]
fn a_session_that_cannot_be_recovered_is_made_again() {
    on_each_engine(
        |settings| (settings.time2wait, settings.time2retain) = (0, 1),
        |server| {
            let proxy = Proxy::start(server.portal(), PLAIN, |_| Fate::Pass);
            let initiator = Initiator::start(&Config::default()).unwrap();
            let mut options = options(&proxy, 2, 2);
            options.reconnect_patience = Duration::from_secs(30);
            let session = initiator.connect(options).unwrap();
            let disk = Disk::open(&session, 0).unwrap();
            let data = pattern(256 << 10, 9);
            disk.write_at(0, &data).unwrap();
            proxy.shut();
            let opened = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_secs(3));
                proxy.open();
                proxy
            });
            let mut back = vec![0; data.len()];
            disk.read_at(0, &mut back).unwrap();
            assert!(back == data);
            session.logout();
            drop(opened.join().unwrap());
        },
    );
}
