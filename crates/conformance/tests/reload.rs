// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is served becomes another while sessions go on: targets, access, accounts, portals.

use std::net::SocketAddr;
use std::net::TcpListener;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

use iscsi::target_role::Settings;
use lunwire_conformance::initiator::BLOCK_BYTES;
use lunwire_conformance::initiator::GOOD;
use lunwire_conformance::initiator::pattern;
use lunwire_conformance::raw::text;
use lunwire_conformance::server::BLOCK;
use lunwire_conformance::server::CLOSED_TARGET;
use lunwire_conformance::server::FRIEND;
use lunwire_conformance::server::TARGET;
use lunwire_conformance::server::plan;
use lunwire_conformance::*;
use scsi::Identity;
use scsi::LogicalUnit;
use store::spec::Spec;
use target::AccessRule;
use target::Change;
use target::ChangeError;
use target::Changed;
use target::Demand;
use target::Node;
use target::Outdated;
use target::Stores;
use wire::iscsi::*;

use crate::identity::SECRET;
use crate::identity::exchange;
use crate::identity::leading;
use crate::identity::log_in;
use crate::identity::policy;

/// A target that comes.
const NEW: &str = "iqn.2026-01.example.conformance:new";

/// What ends whatever the peer does has ended after this time, on a machine under load too.
const BOUND: Duration = Duration::from_secs(20);

const LOGOUT_REQUESTED: u8 = 1;
const LUNS_CHANGED: (u8, u8, u8) = (6, 0x3f, 0x0e);

fn change(server: &Server, change: Change) -> Result<Changed, ChangeError> {
    server.target().change(|_| Ok(change))
}

/// The target of a test with other terms.
fn terms(name: &str) -> Node {
    Node::new(name.to_owned(), Vec::new())
}

fn rule(initiator: &str) -> AccessRule {
    AccessRule { initiator: initiator.to_owned(), luns: None, account: None, target_reset: None }
}

fn initiator() -> String {
    LoginPlan::new().initiator.expect("it has one")
}

/// A target on one disk.
fn node(stores: &mut Stores, name: &str, word: &str) -> Node {
    let spec: Spec = word.parse().expect("a store");
    let store = stores.open(&spec).expect("it opens");
    let identity = Identity::derive(name, 0, "LUNWIRE", "VIRTUAL DISK");
    let unit = LogicalUnit::new(identity, store, BLOCK).expect("a legal unit");
    Node::new(name.to_owned(), vec![(0, Arc::new(unit))])
}

fn add(server: &Server, name: &str, word: &str) -> Result<Changed, ChangeError> {
    server
        .target()
        .change(|stores| Ok(Change { add: vec![node(stores, name, word)], ..Change::default() }))
}

fn remove(server: &Server, name: &str, grace: Duration) -> Changed {
    let gone = Change { remove: vec![name.to_owned()], grace, ..Change::default() };
    change(server, gone).expect("it is there")
}

fn file(folder: &Path) -> String {
    format!("file:{},size=1M", folder.join("disk").display())
}

fn to(name: &str) -> LoginPlan {
    LoginPlan { target: Some(name.to_owned()), ..LoginPlan::new() }
}

fn ready(session: &mut Initiator, lun: u8) -> (u8, u8, u8) {
    let command = session.test_unit_ready(lun);
    session.run(&command).sense_code()
}

fn expect_sessions(server: &Server, count: usize) {
    let begun = Instant::now();
    while server.target().sessions().len() != count {
        assert!(begun.elapsed() < BOUND, "{:?}", server.target().sessions());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Values of SendTargets=All with this key.
fn discovered(server: &Server, key: &str) -> Vec<String> {
    let mut session = server.login_with(&LoginPlan::discovery());
    let request = session.text();
    session.send(&Request::Text(request), &text(&[("SendTargets", "All")]));
    let pairs = session.read().pairs();
    session.leave();
    pairs.into_iter().filter(|(name, _)| name == key).map(|(_, value)| value).collect()
}

#[test]
fn a_target_comes_and_goes() {
    on_each_engine(
        |_| {},
        |server| {
            let folder = tempfile::tempdir().expect("a folder");
            let mut other = server.login();
            other.settle(0);
            to(NEW).expect_refused(server.connect(), 0x0203);
            for round in 0..2 {
                let changed = add(server, NEW, &file(folder.path())).expect("a new name");
                assert!(changed.ended.is_empty() && changed.silent.is_empty(), "{changed:?}");
                assert_eq!(discovered(server, "TargetName"), [TARGET, NEW]);
                assert_eq!(server.target().names(), [TARGET, CLOSED_TARGET, NEW]);
                let mut session = server.login_with(&to(NEW));
                session.settle(0);
                let data = pattern(BLOCK_BYTES, 7);
                if round == 0 {
                    let write = session.write_blocks(0, 3, 1);
                    session.send(&Request::Command(write), &data);
                    assert_eq!(session.finish(write.itt).code, GOOD);
                } else {
                    let read = session.read_blocks(0, 3, 1);
                    assert_eq!(session.run(&read).data, data, "its file was given back");
                }
                let changed = remove(server, NEW, Duration::ZERO);
                assert_eq!(changed.left.len(), 0, "{changed:?}");
                let [ended] = &changed.ended[..] else { panic!("{changed:?}") };
                assert_eq!((ended.tsih, ended.why), (session.tsih.0, Outdated::TargetGone));
                session.expect_dropped();
                to(NEW).expect_refused(server.connect(), 0x0203);
                assert_eq!(discovered(server, "TargetName"), [TARGET]);
            }
            assert_eq!(ready(&mut other, 0), (0, 0, 0), "nobody else notices");
            other.expect_quiet();
        },
    );
}

/// Who has to go is asked to, and may write what it still has until its time is over.
#[test]
fn a_target_goes_when_its_initiators_have_logged_out() {
    on_each_engine(
        |_| {},
        |server| {
            let folder = tempfile::tempdir().expect("a folder");
            add(server, NEW, &file(folder.path())).expect("a new name");
            let mut session = server.login_with(&to(NEW));
            session.settle(0);
            std::thread::scope(|scope| {
                let gone = scope.spawn(|| remove(server, NEW, Duration::from_secs(15)));
                match session.read().response() {
                    Response::Async(message) => {
                        assert_eq!((message.event, message.parameter3), (LOGOUT_REQUESTED, 15));
                    }
                    other => panic!("a request to log out was due: {other:?}"),
                }
                to(NEW).expect_refused(server.connect(), 0x0203);
                let write = session.write_blocks(0, 0, 1);
                session.send(&Request::Command(write), &pattern(BLOCK_BYTES, 3));
                assert_eq!(session.finish(write.itt).code, GOOD);
                let begun = Instant::now();
                session.leave();
                let changed = gone.join().expect("no panic");
                assert!(begun.elapsed() < Duration::from_secs(10), "it does not wait longer");
                assert!(changed.left.is_empty(), "{changed:?}");
            });
        },
    );
}

#[test]
fn who_may_not_any_more_is_ended_and_others_go_on() {
    on_each_engine(
        |_| {},
        |server| {
            let mut friend = server
                .login_with(&LoginPlan { initiator: Some(FRIEND.into()), ..LoginPlan::new() });
            let mut stranger = server.login();
            friend.settle(0);
            stranger.settle(0);
            let closed = || Change {
                replace: vec![Node { access: vec![rule(FRIEND)], ..terms(TARGET) }],
                ..Change::default()
            };
            let seen = server.target().preview(&closed()).expect("it can be");
            assert_eq!((seen.len(), seen[0].tsih), (1, stranger.tsih.0));
            assert_eq!(ready(&mut stranger, 0), (0, 0, 0), "a preview changes nothing");
            let changed = change(server, closed()).expect("it can be");
            assert_eq!((changed.ended.len(), changed.ended[0].tsih), (1, stranger.tsih.0));
            assert_eq!(changed.ended[0].why, Outdated::NotAdmitted);
            stranger.expect_dropped();
            assert_eq!(ready(&mut friend, 0), (0, 0, 0));
            friend.expect_quiet();
            LoginPlan::new().expect_refused(server.connect(), 0x0202);
            let hidden = Change { hide_targets: Some(true), ..Change::default() };
            assert!(change(server, hidden).expect("it can be").ended.is_empty());
            LoginPlan::new().expect_refused(server.connect(), 0x0203);
            let open = Change { replace: vec![terms(TARGET)], ..Change::default() };
            assert!(change(server, open).expect("it can be").ended.is_empty());
            server.login().leave();
            assert_eq!(ready(&mut friend, 0), (0, 0, 0));
        },
    );
}

#[test]
fn masks_change_under_sessions() {
    on_each_engine(
        |_| {},
        |server| {
            let mut session = server.login();
            (0..3).for_each(|lun| session.settle(lun));
            let masked = AccessRule { luns: Some(vec![0]), ..rule(&initiator()) };
            let replace = vec![Node { access: vec![masked], ..terms(TARGET) }];
            let changed = change(server, Change { replace, ..Change::default() });
            assert!(changed.expect("it can be").ended.is_empty());
            assert_eq!(ready(&mut session, 0), LUNS_CHANGED);
            assert_eq!(ready(&mut session, 1), (5, 0x25, 0));
            // What comes later is seen as the new rules say.
            let late = server.target().add_lun(TARGET, target::NewLun::default(), |stores, lun| {
                let store = stores.open(&Spec::Memory { bytes: 1 << 20 }).expect("memory");
                let identity = Identity::derive(TARGET, lun, "LUNWIRE", "VIRTUAL DISK");
                Ok::<_, target::VolumeError>(
                    LogicalUnit::new(identity, store, BLOCK).expect("legal"),
                )
            });
            let late = u8::try_from(late.expect("room")).expect("small");
            assert_eq!(ready(&mut session, late), (5, 0x25, 0));
            let open = Change { replace: vec![terms(TARGET)], ..Change::default() };
            change(server, open).expect("it can be");
            assert_eq!(ready(&mut session, 0), LUNS_CHANGED);
            session.settle(late);
            assert_eq!(ready(&mut session, late), (0, 0, 0), "its units were kept");
        },
    );
}

#[test]
fn disks_of_a_target_that_stays_come_and_go_at_once() {
    on_each_engine(
        |_| {},
        |server| {
            let mut session = server.login();
            (0..3).for_each(|lun| session.settle(lun));
            let held = server.target().units(TARGET).expect("it is there");
            let held = held.into_iter().find(|(lun, _)| *lun == 1).expect("it has it");
            let naa = held.1.identity().naa.clone();
            drop(held);
            let changed = server.target().change::<ChangeError>(|stores| {
                let mut come = |lun, serial| {
                    let store = stores.open(&Spec::Memory { bytes: 1 << 20 }).expect("memory");
                    let identity = Identity::derive(serial, lun, "LUNWIRE", "VIRTUAL DISK");
                    let unit = LogicalUnit::new(identity, store, BLOCK).expect("legal");
                    (TARGET.to_owned(), lun, Arc::new(unit))
                };
                // The number of one that goes, and one of its own.
                let add_luns = vec![come(1, "another"), come(9, "one more")];
                let remove_luns = vec![(TARGET.to_owned(), 1), (TARGET.to_owned(), 2)];
                Ok(Change { add_luns, remove_luns, ..Change::default() })
            });
            let changed = changed.expect("it can be");
            assert!(changed.ended.is_empty() && changed.left.is_empty(), "{changed:?}");
            assert_eq!(ready(&mut session, 0), LUNS_CHANGED);
            assert_eq!(ready(&mut session, 0), (0, 0, 0), "it is told once");
            assert_eq!(ready(&mut session, 2), (5, 0x25, 0));
            for lun in [1, 9] {
                session.settle(lun);
                assert_eq!(ready(&mut session, lun), (0, 0, 0));
            }
            assert!(server.target().find_disk(&naa).is_none(), "the old one is gone");
            let here = |number| vec![(TARGET.to_owned(), number)];
            for (wanted, expected) in [
                (Change { remove_luns: here(2), ..Change::default() }, "LUN 2"),
                (Change { remove_luns: [here(1), here(1)].concat(), ..Change::default() }, "LUN 1"),
                (
                    Change { remove_luns: vec![(NEW.to_owned(), 0)], ..Change::default() },
                    "no target",
                ),
            ] {
                let refused = change(server, wanted).expect_err(expected).to_string();
                assert!(refused.contains(expected), "{refused}");
            }
            let (_, unit) = server.target().units(TARGET).expect("it is there").remove(0);
            let taken = vec![(TARGET.to_owned(), 0, unit)];
            let refused = change(server, Change { add_luns: taken, ..Change::default() });
            assert!(refused.is_err(), "its number is taken");
            assert_eq!(ready(&mut session, 0), (0, 0, 0), "nothing has changed");
        },
    );
}

#[test]
fn a_target_that_has_moved_sends_its_initiators_there() {
    on_each_engine(
        |_| {},
        |server| {
            let mut session = server.login();
            let address = "192.0.2.7:3260".to_owned();
            let duration = target::Redirection::Temporary;
            let redirect = Some(target::Redirect { address, duration });
            let replace = vec![Node { redirect, ..terms(TARGET) }];
            let changed = change(server, Change { replace, ..Change::default() });
            assert_eq!(changed.expect("it can be").ended[0].why, Outdated::TargetMoved);
            session.expect_dropped();
            LoginPlan::new().expect_refused(server.connect(), 0x0101);
        },
    );
}

/// A proof of what was demanded before does not do any more; without the need of one none was
/// wrong.
#[test]
fn an_account_that_changes_ends_its_sessions() {
    let server = Server::start(plan(engine::Choice::Auto, Settings::default()));
    let with = |demand| Change {
        replace: vec![Node { authentication: policy(demand), ..terms(TARGET) }],
        ..Change::default()
    };
    change(&server, with(Demand::Optional)).expect("it can be");
    let mut walked = server.login();
    let mut proved = server.connect();
    let proof = log_in(&mut proved, &leading(), SECRET);
    assert_eq!(proof.last().expect("an answer").status, 0);
    let changed = change(&server, with(Demand::Required)).expect("it can be");
    assert_eq!((changed.ended.len(), changed.ended[0].tsih), (1, walked.tsih.0));
    assert_eq!(changed.ended[0].why, Outdated::ProofChanged);
    walked.expect_dropped();
    expect_sessions(&server, 1);
    let mut other = with(Demand::Required);
    let credentials = iscsi::chap::Credentials::new(
        "host".into(),
        target::Secret::new(b"another secret!!").expect("long"),
    );
    let account = target::Account::new(credentials.expect("a name"), None).expect("one secret");
    other.replace[0].authentication.account = Some(Arc::new(account));
    let changed = change(&server, other).expect("it can be");
    assert_eq!(changed.ended[0].why, Outdated::ProofChanged);
    expect_sessions(&server, 0);
    let refused = log_in(&mut server.connect(), &leading(), SECRET);
    assert_eq!(refused.last().expect("an answer").status, 0x0201);
    let changed = change(&server, with(Demand::Off)).expect("it can be");
    assert!(changed.ended.is_empty());
    server.login().leave();
}

/// A login that was let in by what is not served any more when it is done is over at once.
#[test]
fn a_login_under_way_meets_the_change() {
    on_each_engine(
        |_| {},
        |server| {
            add(server, NEW, "memory:1M").expect("a new name");
            let mut raw = server.connect();
            let plan = to(NEW);
            let mut first = plan.text();
            first.extend(text(&[("AuthMethod", "None")]));
            let (begun, _) = exchange(&mut raw, &plan, false, &first);
            assert_eq!(begun.status, 0);
            let changed = remove(server, NEW, Duration::ZERO);
            assert!(changed.left.is_empty(), "{changed:?}");
            let (done, _) = exchange(&mut raw, &plan, true, &[]);
            assert_eq!((done.status, done.next), (0, Some(Stage::FullFeature)));
            assert!(matches!(raw.read().response(), Response::Async(_)), "it is dropped");
            raw.expect_closed();
            expect_sessions(server, 0);
        },
    );
}

/// Two generations of one target that differ in two things: no login sees one of each.
#[test]
fn a_login_sees_one_whole_generation() {
    on_each_engine(
        |_| {},
        |server| {
            let generation = |alias: &str, max_burst_length| {
                let settings = Settings { max_burst_length, ..Settings::default() };
                let alias = Some(alias.to_owned());
                Change {
                    replace: vec![Node { alias, settings, ..terms(TARGET) }],
                    ..Change::default()
                }
            };
            let both = [("odd", 65_536), ("even", 131_072)];
            change(server, generation(both[0].0, both[0].1)).expect("it can be");
            let over = AtomicBool::new(false);
            let mut working = server.login();
            working.settle(0);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        for (alias, length) in both {
                            let changed = change(server, generation(alias, length));
                            assert!(changed.expect("it can be").ended.is_empty());
                        }
                    }
                });
                for _ in 0..60 {
                    let plan = LoginPlan::new().with(&[("MaxBurstLength", "16776192")]);
                    let session = server.login_with(&plan);
                    let told = (
                        session.answer("TargetAlias").expect("it has one"),
                        session.answer("MaxBurstLength").expect("it is answered"),
                    );
                    assert!(told == ("odd", "65536") || told == ("even", "131072"), "{told:?}");
                    session.leave();
                    assert_eq!(ready(&mut working, 0), (0, 0, 0));
                }
                over.store(true, Ordering::Relaxed);
            });
        },
    );
}

/// Numbers of REPORT TARGET PORT GROUPS.
fn port_groups(session: &mut Initiator) -> Vec<u8> {
    let command = session.command(0, &[0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
    let groups = session.run(&ScsiCommand { read: true, expected_length: 256, ..command });
    groups.data[4..].chunks_exact(12).map(|group| group[3]).collect()
}

/// Where port groups say which path is good, there is no path that is in none.
#[test]
fn a_portal_belongs_to_a_port_group_of_each_disk_that_has_any() {
    let mut plan = plan(engine::Choice::Auto, Settings::default());
    let store = plan.stores.open(&Spec::Memory { bytes: 1 << 20 }).expect("memory");
    let identity = Identity::derive(TARGET, 9, "LUNWIRE", "VIRTUAL DISK");
    let state = scsi::AccessState::ActiveOptimized;
    let group = scsi::PortGroup { number: 10, ports: vec![1, 2], preferred: false, state };
    let unit = LogicalUnit::new(identity, store, BLOCK).expect("a legal unit");
    let unit = unit.with_port_groups(vec![group], scsi::Explicit::No).expect("one group");
    plan.nodes[0].luns.push((9, Arc::new(unit)));
    let server = Server::start(plan);
    let at = |group| {
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        Change { listen: vec![target::Portal { group, ..address.into() }], ..Change::default() }
    };
    let refused = change(&server, at(3)).expect_err("it is in none").to_string();
    assert!(refused.contains("portal group 3 is in no port group of LUN 9"), "{refused}");
    assert_eq!(server.target().portal_groups(), [1]);
    change(&server, at(2)).expect("it is in one");
    assert_eq!(server.target().portal_groups(), [1, 2]);
}

/// Whether a portal answers who begins with MPA.
fn speaks_iser(portal: SocketAddr) -> bool {
    let mut stream = TcpStream::connect(portal).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a time");
    // What is no Login Request has no answer, whatever is told of it.
    let request = [&b"MPA ID Req Frame\x00\x01\x00\x04"[..], &[0xc0, 0, 0, 0]].concat();
    let request = [request, vec![0; 48]].concat();
    std::io::Write::write_all(&mut stream, &request).expect("it takes some bytes");
    let mut said = [0; 16];
    std::io::Read::read_exact(&mut stream, &mut said).is_ok() && said == *b"MPA ID Rep Frame"
}

#[test]
fn a_portal_that_is_there_speaks_iser_or_not_from_now_on() {
    on_each_engine(
        |_| {},
        |server| {
            let portal = server.portal();
            let mut session =
                Initiator::login(Raw::connect(portal).expect("it listens"), &LoginPlan::new());
            session.settle(0);
            for rdma in [target::Rdma::Iwarp, target::Rdma::Off, target::Rdma::Iwarp] {
                let listen = vec![target::Portal { rdma: Some(rdma), ..portal.into() }];
                change(server, Change { listen, ..Change::default() }).expect("it is there");
                assert_eq!(speaks_iser(portal), rdma != target::Rdma::Off);
                assert_eq!(server.target().portals(), [portal]);
                assert_eq!(
                    server.target().iser_portals().len(),
                    usize::from(rdma != target::Rdma::Off)
                );
                assert_eq!(ready(&mut session, 0), (0, 0, 0), "who is there stays");
            }
        },
    );
}

#[test]
fn portals_come_and_go() {
    on_each_engine(
        |_| {},
        |server| {
            let first = server.portal();
            let any = SocketAddr::from(([127, 0, 0, 1], 0));
            let listen = vec![target::Portal { group: 7, ..any.into() }];
            change(server, Change { listen, ..Change::default() }).expect("a free port");
            let [own, new] = server.target().portals()[..] else { panic!("two portals") };
            assert_eq!(own, first);
            assert_eq!(server.target().portal_groups(), [1, 7]);
            let addresses = [format!("{first},1"), format!("{new},7")];
            assert_eq!(discovered(server, "TargetAddress"), addresses);
            let raw = Raw::connect(new).expect("it listens");
            let mut session = Initiator::login(raw, &LoginPlan::new());
            assert_eq!(session.answer("TargetPortalGroupTag"), Some("7"));
            session.settle(0);
            assert_eq!(port_groups(&mut session), [7], "REPORT TARGET PORT GROUPS");
            let gone = Change { unlisten: vec![new], ..Change::default() };
            let changed = change(server, gone).expect("it is one");
            assert!(changed.ended.is_empty() && changed.silent.is_empty(), "{changed:?}");
            assert!(TcpStream::connect(new).is_err(), "nobody listens");
            assert_eq!(discovered(server, "TargetAddress"), [format!("{first},1")]);
            assert_eq!(ready(&mut session, 0), (0, 0, 0), "who is there stays");
            // Its port is free for another one at once, which may be ours again.
            let listen = vec![new.into()];
            change(server, Change { listen, ..Change::default() }).expect("it is free");
            Initiator::login(Raw::connect(new).expect("it listens"), &LoginPlan::new()).leave();
        },
    );
}

#[test]
fn what_cannot_be_changes_nothing() {
    let server = Server::start(plan(engine::Choice::Auto, Settings::default()));
    let mut session = server.login();
    session.settle(0);
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().map(|address| (taken, address)).expect("an address");
    let unit = server.target().units(TARGET).expect("it is there").remove(0);
    let with_disk = Node::new(TARGET.to_owned(), vec![unit]);
    let gone = || vec![TARGET.to_owned()];
    let cases = [
        (Change { remove: vec![NEW.to_owned()], ..Change::default() }, "no target"),
        (Change { replace: vec![terms(NEW)], ..Change::default() }, "no target"),
        (Change { add: vec![terms(TARGET)], ..Change::default() }, "is served already"),
        (Change { add: vec![terms(NEW), terms(NEW)], ..Change::default() }, "is named twice"),
        (
            Change { remove: gone(), replace: vec![terms(TARGET)], ..Change::default() },
            "is named twice",
        ),
        (Change { replace: vec![with_disk], ..Change::default() }, "lun add"),
        (Change { remove: gone(), unlisten: vec![taken.1], ..Change::default() }, "is no portal"),
        (
            Change { remove: gone(), listen: vec![taken.1.into()], ..Change::default() },
            "cannot listen on",
        ),
    ];
    for (wanted, expected) in cases {
        let refused = change(&server, wanted).expect_err(expected).to_string();
        assert!(refused.contains(expected), "{refused}");
        assert_eq!(server.target().names(), [TARGET, CLOSED_TARGET]);
        assert_eq!(server.target().portals(), [server.portal()]);
    }
    assert_eq!(ready(&mut session, 0), (0, 0, 0));
    session.expect_quiet();
}
