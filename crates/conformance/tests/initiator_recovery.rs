// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Our initiator at ErrorRecoveryLevel 1 over a bad network: what is damaged or lost is asked for,
//! and nothing wrong reaches whoever reads (RFC 7143 §7.8, §7.9, §11.16).
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::collections::HashSet;
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
use initiator::Data;
use initiator::DigestOffer;
use initiator::Disk;
use initiator::Initiator;
use initiator::Kind;
use initiator::Options;
use initiator::Request as Post;
use initiator::Retry;
use initiator::Session;
use wire::iscsi::Cdb;
use wire::iscsi::*;

use lunwire_conformance as conformance;

/// Types of SNACK (RFC 7143 §11.16.1).
const DATA_OR_R2T: u8 = 0;
const STATUS: u8 = 1;
const DATA_ACK: u8 = 2;

/// Both digests, after the login.
const BOTH: Digests = Digests { header: true, data: true };

/// A session at ErrorRecoveryLevel 1 through `proxy`. A second session would hide what the first
/// one did not repair, so there is none.
fn options(proxy: &Proxy) -> Options {
    let mut options = Options::new(proxy.portal().to_string(), Some(TARGET.to_owned()));
    options.settings.header_digest = DigestOffer::Required;
    options.settings.data_digest = DigestOffer::Required;
    options.settings.error_recovery_level = 1;
    options.settings.max_recv_data_segment_length = 8192;
    options.settings.max_burst_length = 64 << 10;
    options.settings.first_burst_length = 16 << 10;
    options.reconnect_patience = Duration::ZERO;
    options
}

/// Deals once with each PDU that `of` names.
fn once(
    of: fn(&Passing) -> Option<[u32; 2]>,
    fate: Fate,
) -> Box<dyn FnMut(&Passing) -> Fate + Send> {
    let mut seen = HashSet::new();
    Box::new(move |pdu| match of(pdu) {
        Some(name) if seen.insert(name) => fate,
        _ => Fate::Pass,
    })
}

/// Runs `work` with a session whose PDUs fare as `script` says.
fn over_a_bad_network(
    script: impl Fn() -> Box<dyn FnMut(&Passing) -> Fate + Send>,
    adjust: fn(&mut Options),
    work: impl Fn(&Session, &Proxy),
) {
    on_each_engine(
        |_| {},
        |server: &Server| {
            let proxy = Proxy::start(server.portal(), BOTH, script());
            let mut options = options(&proxy);
            adjust(&mut options);
            let initiator = Initiator::start(&Config::default()).unwrap();
            let session = initiator.connect(options).unwrap();
            work(&session, &proxy);
            session.logout();
        },
    );
}

fn write_and_read(session: &Session, length: usize) {
    let disk = Disk::open(session, 0).unwrap();
    let data = pattern(length, 7);
    disk.write_at(4096, &data).unwrap();
    let mut back = vec![0; length];
    disk.read_at(4096, &mut back).unwrap();
    assert!(back == data, "what was read is what was written");
}

fn snacks(proxy: &Proxy, kind: u8) -> Vec<Snack> {
    let of = |request| match request {
        Request::Snack(snack) if snack.kind == kind => Some(snack),
        _ => None,
    };
    proxy.requests().into_iter().filter_map(|(_, request)| of(request)).collect()
}

fn is_data_in(pdu: &Passing) -> Option<DataIn> {
    match pdu.response() {
        Some(Response::DataIn(data)) => Some(data),
        _ => None,
    }
}

/// Covers: DGT-08, DGT-09, SNK-05, SNK-10, ERL-12, SNK-11c, ERL-02/I.
#[test]
fn damaged_data_is_asked_for_before_its_status_is_acknowledged() {
    let damage = |pdu: &Passing| match is_data_in(pdu) {
        Some(_) if pdu.index % 5 == 3 => Fate::Damage,
        _ => Fate::Pass,
    };
    over_a_bad_network(
        || Box::new(damage),
        |_| {},
        |session, proxy| {
            write_and_read(session, 1 << 20);
            let snacks = snacks(proxy, DATA_OR_R2T);
            assert!(snacks.len() > 10, "{} SNACKs", snacks.len());
            for snack in &snacks {
                assert_ne!(snack.itt, Itt::NONE);
                assert_eq!((snack.tag, snack.run_length), (Ttt::NONE.0, 1));
                assert_eq!(snack.lun, LunField::default(), "reserved");
            }
            check_acknowledgements(&proxy.passed());
        },
    );
}

/// Nothing that an initiator says acknowledges the status of a command before all PDUs of its data
/// passed unharmed, and no command is asked for after its status is acknowledged.
fn check_acknowledgements(passed: &[Passing]) {
    let harmed: Vec<(usize, DataIn)> = passed
        .iter()
        .enumerate()
        .filter(|(_, pdu)| pdu.fate != Fate::Pass)
        .filter_map(|(at, pdu)| Some((at, is_data_in(pdu)?)))
        .collect();
    assert!(!harmed.is_empty());
    for (at, data) in harmed {
        let again = passed.iter().skip(at + 1).position(|pdu| {
            let same = |other: DataIn| (other.itt, other.data_sn) == (data.itt, data.data_sn);
            pdu.fate == Fate::Pass && is_data_in(pdu).is_some_and(same)
        });
        let healed = at + 1 + again.expect("it came again");
        let status = passed.iter().find_map(|pdu| match pdu.response() {
            Some(Response::DataIn(end)) if end.itt == data.itt && end.status.is_some() => {
                Some(end.numbers.stat_sn)
            }
            Some(Response::Scsi(end)) if end.itt == data.itt => Some(end.numbers.stat_sn),
            _ => None,
        });
        let status = status.expect("every command has a status");
        for pdu in passed.get(at..healed).unwrap() {
            let Some(Request::Snack(Snack { exp_stat_sn, .. })) = pdu.request() else { continue };
            assert!(exp_stat_sn.0 <= status.0, "{status:?} was acknowledged too early");
        }
    }
}

/// Covers: DIN-09, SNK-06, SNK-10, SNK-13, SNK-11a.
#[test]
fn data_is_acknowledged_where_the_target_asks_for_it() {
    // Late, and some of them where the target asks: what comes after a hole is not acknowledged.
    fn late(pdu: &Passing) -> Option<[u32; 2]> {
        let data = is_data_in(pdu)?;
        let is_late = matches!(data.data_sn.0, 100 | 103 | 111 | 120);
        is_late.then_some([data.itt.0, data.data_sn.0])
    }
    over_a_bad_network(
        || once(late, Fate::Damage),
        |_| {},
        |session, proxy| {
            write_and_read(session, 1 << 20);
            let passed = proxy.passed();
            let asked: Vec<DataIn> =
                passed.iter().filter_map(is_data_in).filter(|data| data.acknowledge).collect();
            let acknowledged = snacks(proxy, DATA_ACK);
            assert!(asked.len() >= 10, "{} were asked for", asked.len());
            assert!(acknowledged.len() >= 12, "{} DataACKs", acknowledged.len());
            for snack in &acknowledged {
                let by =
                    asked.iter().find(|data| data.ttt.0 == snack.tag).expect("it was asked for");
                assert_eq!((snack.itt, snack.lun), (Itt::NONE, by.lun));
                assert_eq!(snack.run_length, 0);
                assert!(snack.beg_run > by.data_sn.0);
            }
            check_not_asked_again(&passed, &asked);
        },
    );
}

/// What was acknowledged is not asked for any more.
fn check_not_asked_again(passed: &[Passing], asked: &[DataIn]) {
    let mut confirmed: Vec<(Itt, u32)> = Vec::new();
    for pdu in passed {
        let Some(Request::Snack(snack)) = pdu.request() else { continue };
        if snack.kind == DATA_ACK {
            let by = asked.iter().find(|data| data.ttt.0 == snack.tag).unwrap();
            confirmed.push((by.itt, snack.beg_run));
        } else if snack.kind == DATA_OR_R2T {
            let before = confirmed.iter().filter(|(itt, _)| *itt == snack.itt);
            assert!(before.clone().all(|(_, next)| *next <= snack.beg_run), "{snack:?}");
        }
    }
}

/// Covers: DGT-12, SNK-10, SNK-11c, STS-07b.
#[test]
fn lost_statuses_are_asked_for() {
    fn with_sense(pdu: &Passing) -> Option<[u32; 2]> {
        match pdu.response()? {
            Response::Scsi(end) if !pdu.data.is_empty() => Some([end.numbers.stat_sn.0, 0]),
            _ => None,
        }
    }
    // What has no data cannot be damaged, but it gets lost.
    fn without(pdu: &Passing) -> Option<[u32; 2]> {
        match pdu.response()? {
            Response::Scsi(end) if pdu.data.is_empty() => Some([end.numbers.stat_sn.0, 1]),
            _ => None,
        }
    }
    let script = || -> Box<dyn FnMut(&Passing) -> Fate + Send> {
        let mut damage = once(with_sense, Fate::Damage);
        let mut lose = once(without, Fate::Drop);
        Box::new(move |pdu| match damage(pdu) {
            Fate::Pass => lose(pdu),
            fate => fate,
        })
    };
    over_a_bad_network(
        script,
        |options| options.settings.ping_interval = Duration::from_millis(20),
        |session, proxy| {
            let disk = Disk::open(session, 0).unwrap();
            for turn in 0..4 {
                disk.write_at(turn * 4096, &pattern(4096, 3)).unwrap_or_else(|error| {
                    panic!("write {turn}: {error}");
                });
                let beyond = session.execute(read(0x00ff_ffff, 1, Retry::Never));
                let error = beyond.expect_err("a block beyond the end");
                let Kind::Status { sense: Some(sense), .. } = error.kind() else {
                    panic!("{error}")
                };
                assert_eq!((sense.asc, sense.ascq), (0x21, 0x00), "the right sense");
            }
            let snacks = snacks(proxy, STATUS);
            assert!(snacks.len() >= 8, "{} SNACKs", snacks.len());
            for snack in snacks {
                assert_eq!((snack.itt, snack.tag), (Itt::NONE, Ttt::NONE.0));
                assert_eq!(snack.exp_stat_sn, StatSn(snack.beg_run), "not acknowledged");
            }
        },
    );
}

fn read(block: u32, count: u16, retry: Retry) -> Post {
    let mut bytes = [0; 32];
    let cdb = conformance::initiator::cdb10(0x28, block, count);
    bytes.get_mut(..10).unwrap().copy_from_slice(&cdb);
    let data = Data::In(u32::from(count) * 512);
    Post { lun: 0, cdb: Cdb { bytes, len: 10 }, data, retry }
}

/// Covers: CMD-19, CMD-25, CMD-23b.
#[test]
fn write_data_that_was_damaged_is_sent_again() {
    let script = || -> Box<dyn FnMut(&Passing) -> Fate + Send> {
        let mut writes = 0;
        Box::new(move |pdu: &Passing| match pdu.request() {
            Some(Request::Command(command)) if command.write => {
                writes += 1;
                if writes % 3 == 1 { Fate::Damage } else { Fate::Pass }
            }
            Some(Request::DataOut(_)) if pdu.index % 7 == 2 => Fate::Damage,
            _ => Fate::Pass,
        })
    };
    over_a_bad_network(
        script,
        |_| {},
        |session, proxy| {
            write_and_read(session, 1 << 20);
            write_and_read(session, 64 << 10);
            let commands: Vec<(ScsiCommand, Fate)> = proxy
                .passed()
                .iter()
                .filter_map(|pdu| match pdu.request() {
                    Some(Request::Command(command)) => Some((command, pdu.fate)),
                    _ => None,
                })
                .collect();
            let damaged = commands.iter().filter(|(_, fate)| *fate == Fate::Damage);
            assert!(damaged.clone().count() > 0);
            for (command, _) in damaged {
                let same = |(other, _): &&(ScsiCommand, Fate)| other.itt == command.itt;
                let tries: Vec<_> = commands.iter().filter(same).collect();
                assert!(tries.len() >= 2, "it was sent again");
                for (other, _) in tries {
                    // In all but what it acknowledges.
                    let exp_stat_sn = command.exp_stat_sn;
                    assert_eq!(ScsiCommand { exp_stat_sn, ..*other }, *command);
                }
            }
        },
    );
}

/// Covers: DSN-09a, DSN-09b.
#[test]
fn what_comes_twice_counts_once() {
    let twice = |pdu: &Passing| match pdu.response() {
        Some(Response::DataIn(data)) if data.status.is_none() => Fate::Twice,
        Some(Response::R2t(_)) => Fate::Twice,
        Some(Response::Scsi(_)) if pdu.index.is_multiple_of(2) => Fate::Twice,
        _ => Fate::Pass,
    };
    over_a_bad_network(
        || Box::new(twice),
        |_| {},
        |session, proxy| {
            write_and_read(session, 1 << 20);
            let passed = proxy.passed();
            assert!(passed.iter().any(|pdu| pdu.fate == Fate::Twice && is_data_in(pdu).is_some()));
            // Each R2T is answered once.
            let r2ts = passed.iter().filter(|pdu| matches!(pdu.response(), Some(Response::R2t(_))));
            let ends = passed.iter().filter(|pdu| {
                let Some(Request::DataOut(out)) = pdu.request() else { return false };
                out.ttt != Ttt::NONE && out.final_
            });
            assert_eq!(r2ts.count(), ends.count());
        },
    );
}

/// Covers: R2T-10, DSN-07a, DSN-07b.
#[test]
fn a_lost_r2t_is_asked_for_by_its_number() {
    fn lost(pdu: &Passing) -> Option<[u32; 2]> {
        match pdu.response()? {
            Response::R2t(r2t) if r2t.r2t_sn == R2tSn(1) => Some([r2t.itt.0, 1]),
            Response::DataIn(data) if data.data_sn == DataSn(2) => Some([data.itt.0, 2]),
            _ => None,
        }
    }
    // The target asks for one burst after the other and waits some seconds for one that does not
    // come, so that one engine must do.
    let server = Server::start(plan(Choice::Epoll, iscsi::target_role::Settings::default()));
    let proxy = Proxy::start(server.portal(), BOTH, once(lost, Fate::Drop));
    let initiator = Initiator::start(&Config::default()).unwrap();
    let session = initiator.connect(options(&proxy)).unwrap();
    write_and_read(&session, 512 << 10);
    let dropped = proxy.passed().iter().filter(|pdu| pdu.fate == Fate::Drop).count();
    assert_eq!(dropped, 2, "an R2T and a Data-In");
    assert!(snacks(&proxy, DATA_OR_R2T).len() >= dropped);
    session.logout();
}

/// Covers: DGT-11.
#[test]
fn data_that_the_target_does_not_keep_fails_its_command() {
    on_each_engine(
        |settings| settings.kept_bytes_max = 0,
        |server| {
            let damage = |pdu: &Passing| match is_data_in(pdu) {
                Some(data) if data.data_sn == DataSn(1) => Fate::Damage,
                _ => Fate::Pass,
            };
            let proxy = Proxy::start(server.portal(), BOTH, damage);
            let initiator = Initiator::start(&Config::default()).unwrap();
            let session = initiator.connect(options(&proxy)).unwrap();
            Disk::open(&session, 0).unwrap();
            let error = session.execute(read(0, 64, Retry::Never)).expect_err("it is not whole");
            let said = error.to_string();
            let rejected = proxy
                .passed()
                .iter()
                .any(|pdu| matches!(pdu.response(), Some(Response::Reject(_))));
            assert!(rejected, "the SNACK was rejected");
            assert!(said.contains("wrong digest"), "{said}");
            session.execute(read(0, 8, Retry::Never)).expect("the session goes on");
            session.logout();
        },
    );
}
