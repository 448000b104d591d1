// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Our initiator against our target in one process: over messages in place of a network, and over
//! raw Ethernet on a cable that loses, doubles and reorders frames.
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::io;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use conformance::server::CLOSED_TARGET;
use conformance::server::FILE_LUN;
use conformance::server::FRIEND;
use conformance::server::TARGET;
use conformance::server::UNIT_BYTES;
use conformance::server::plan;
use engine::Choice;
use initiator::Account;
use initiator::Algorithm;
use initiator::Config;
use initiator::Data;
use initiator::DigestOffer;
use initiator::Disk;
use initiator::Event;
use initiator::Initiator;
use initiator::Kind;
use initiator::LocalTarget;
use initiator::LoginError;
use initiator::Management;
use initiator::Options;
use initiator::Queue;
use initiator::Request;
use initiator::Retry;
use initiator::Secret;
use initiator::Transport;
use initiator::scsi;
use iscsi::chap::Credentials;
use iscsi::target_role::Settings;
use station::cable::Cable;
use station::cable::Faults;
use target::AuthenticationPolicy;
use target::Demand;
use target::Found;
use target::Peer;
use target::Plan;
use target::Target;

use lunwire_conformance as conformance;

/// Secret of the initiator, and of the target.
const SECRETS: [&[u8]; 2] = [b"secret of the host", b"secret of the disk"];

/// Runs `check` on each engine, with one reactor and with two, and over frames.
fn on_each_reactor(check: impl Fn(&Arc<Target>)) {
    let uring = engine::choose(Choice::Auto) == Choice::Uring;
    let engines = [Some(Choice::Epoll), uring.then_some(Choice::Uring)].into_iter().flatten();
    for (choice, reactors) in engines.flat_map(|choice| [1, 2].map(|reactors| (choice, reactors))) {
        let settings = Settings { time2wait: 0, ..Settings::default() };
        let plan = Plan { reactors, ..plan(choice, settings) };
        let target = Arc::new(Target::start(plan).unwrap());
        check(&target);
        target.stop(Duration::ZERO).unwrap();
    }
    let cable = Cable::lay(Faults::MANY).unwrap();
    let settings = Settings { time2wait: 0, ..Settings::default() };
    let ether = vec![cable.interface().into()];
    let plan = Plan { reactors: 2, ether, ..plan(Choice::Auto, settings) };
    let target = Arc::new(Target::start(plan).unwrap());
    check(&target);
    target.stop(Duration::ZERO).unwrap();
}

fn way_to(target: &Arc<Target>) -> LocalTarget {
    let target = Arc::downgrade(target);
    LocalTarget::new(move || {
        let target = target.upgrade().ok_or_else(|| io::Error::other("the target is gone"))?;
        Ok(target.connect_local())
    })
}

fn options(target: &Arc<Target>) -> Options {
    match target.stations().first() {
        Some((place, _)) => {
            let options = Options::new(place.to_string(), Some(TARGET.to_owned()));
            Options { transport: Transport::Ether, ..options }
        }
        None => Options::within_process(way_to(target), Some(TARGET.to_owned())),
    }
}

fn pattern(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + at / 512 + seed).to_le_bytes()[0]).collect()
}

fn account(names: [&str; 2], secrets: [&[u8]; 2]) -> Arc<Account> {
    let [own, other] = [0, 1].map(|at| {
        let secret = Secret::new(secrets[at]).unwrap();
        Credentials::new(names[at].to_owned(), secret).unwrap()
    });
    Arc::new(Account::new(own, Some(other)).unwrap())
}

#[test]
fn what_is_written_is_read() {
    on_each_reactor(|target| {
        let initiator = Initiator::start(&Config::default()).unwrap();
        let session = initiator.connect(options(target)).unwrap();
        for lun in [0, u16::from(FILE_LUN)] {
            let disk = Disk::open(&session, lun).unwrap();
            assert_eq!(disk.size(), UNIT_BYTES);
            for (offset, length) in [(0, 512), (4096, 65536), (1 << 20, 5 << 20), (512, 300_032)] {
                let bytes = pattern(usize::from(lun) + length, length);
                disk.write_at(offset, &bytes).unwrap();
                let mut back = vec![0; length];
                disk.read_at(offset, &mut back).unwrap();
                assert!(back == bytes, "LUN {lun}, {length} bytes at {offset}");
            }
            disk.compare_and_write(512, &pattern(usize::from(lun) + 300_032, 512), &[1; 512])
                .unwrap();
            assert!(disk.compare_and_write(512, &[2; 512], &[3; 512]).is_err());
            disk.zero(0, 4096).unwrap();
            disk.flush().unwrap();
            let mut back = vec![9; 4096];
            disk.read_at(0, &mut back).unwrap();
            assert!(back.iter().all(|byte| *byte == 0));
        }
        session.logout();
        assert!(target.sessions().is_empty(), "it was told");
    });
}

#[test]
fn write_data_comes_in_every_way() {
    for (initial_r2t, immediate) in [(true, true), (true, false), (false, true), (false, false)] {
        on_each_reactor(|target| {
            let mut queue = Queue::new(&Config::default()).unwrap();
            let mut options = options(target);
            options.settings.initial_r2t = initial_r2t;
            options.settings.immediate_data = immediate;
            options.settings.first_burst_length = 16384;
            options.settings.max_burst_length = 65536;
            let session = queue.login(options).unwrap();
            let disk = scsi::geometry(&mut queue.unit(session, 0)).unwrap();
            for length in [512, 16384, 16896, 65536, 1 << 20] {
                let bytes = pattern(length, length);
                let data = queue.pool().take(length).map(|mut buf| {
                    buf.copy_from_slice(&bytes);
                    buf.freeze()
                });
                let blocks = u32::try_from(length / 512).unwrap();
                let write = disk.write(0, blocks);
                let read = disk.read(0, blocks);
                let retry = Retry::Always;
                let data = Data::Out(data.unwrap());
                queue.execute(session, Request { lun: 0, cdb: write, data, retry }).unwrap();
                let data = Data::In(u32::try_from(length).unwrap());
                let done =
                    queue.execute(session, Request { lun: 0, cdb: read, data, retry }).unwrap();
                assert!(done.data.unwrap()[..] == bytes[..], "{length} bytes");
            }
            queue.logout(session);
        });
    }
}

#[test]
fn a_session_has_what_the_mover_can_do_and_is_shown_as_what_it_is() {
    on_each_reactor(|target| {
        let mut options = options(target);
        options.settings.header_digest = DigestOffer::Required;
        options.settings.data_digest = DigestOffer::Required;
        options.settings.error_recovery_level = 2;
        let initiator = Initiator::start(&Config::default()).unwrap();
        let session = initiator.connect(options).unwrap();
        let shown = target.sessions();
        let connection = &shown[0].connections[0];
        let (level, peer) = (shown[0].parameters.error_recovery_level, connection.peer);
        match target.stations().is_empty() {
            true => assert_eq!((level, peer, connection.transport), (0, Peer::Local, "local")),
            false => {
                assert_eq!((level, connection.transport), (2, "ether"));
                assert!(matches!(peer, Peer::Station(_)));
                let figures = target.station_figures(Duration::from_secs(10));
                assert_eq!(figures[0].len(), 1);
                assert!(figures[0][0].come > 0 && figures[0][0].acknowledged > 0);
            }
        }
        let disk = Disk::open(&session, 0).unwrap();
        disk.write_at(0, &[1; 512]).unwrap();
        let discovery = Options::within_process(way_to(target), None);
        let found = initiator.discover(discovery).unwrap();
        assert!(found.iter().any(|target| target.name == TARGET));
    });
}

#[test]
fn who_may_log_in_is_asked_as_over_a_network() {
    let uring = engine::choose(Choice::Auto);
    let mut plan = plan(uring, Settings::default());
    for node in &mut plan.nodes {
        node.authentication = AuthenticationPolicy {
            demand: Demand::Mutual,
            algorithms: vec![Algorithm::Sha256],
            account: Some(account(["host", "disk"], SECRETS)),
        };
    }
    let target = Arc::new(Target::start(plan).unwrap());
    let mut queue = Queue::new(&Config::default()).unwrap();
    let with = |secrets, name: &str| {
        let account = Some(account(["host", "disk"], secrets));
        Options { account, target: Some(name.to_owned()), ..options(&target) }
    };
    let session = queue.login(with(SECRETS, TARGET)).unwrap();
    scsi::identify(&mut queue.unit(session, 0)).unwrap();
    queue.logout(session);
    let wrong: [&[u8]; 2] = [b"another secret", SECRETS[1]];
    let error = queue.login(with(wrong, TARGET)).unwrap_err();
    assert!(matches!(error.kind(), Kind::Login(LoginError::Refused(0x0201))), "{error}");
    let foreign: [&[u8]; 2] = [SECRETS[0], b"another secret"];
    assert!(queue.login(with(foreign, TARGET)).is_err(), "the target has to prove itself");
    let error = queue.login(options(&target)).unwrap_err();
    assert!(matches!(error.kind(), Kind::Login(_)), "{error}");
    let error = queue.login(with(SECRETS, CLOSED_TARGET)).unwrap_err();
    assert!(matches!(error.kind(), Kind::Login(LoginError::Refused(_))), "{error}");
    let friend = Options { initiator: FRIEND.to_owned(), ..with(SECRETS, CLOSED_TARGET) };
    let session = queue.login(friend).unwrap();
    queue.logout(session);
    target.stop(Duration::ZERO).unwrap();
}

#[test]
fn task_management_is_carried_out() {
    on_each_reactor(|target| {
        let mut queue = Queue::new(&Config::default()).unwrap();
        let session = queue.login(options(target)).unwrap();
        scsi::identify(&mut queue.unit(session, 0)).unwrap();
        for management in [
            Management::AbortTaskSet(0),
            Management::ClearTaskSet(0),
            Management::LogicalUnitReset(0),
        ] {
            queue.manage(session, management).unwrap();
        }
        let error = queue.manage(session, Management::LogicalUnitReset(77)).unwrap_err();
        assert!(matches!(error.kind(), Kind::Management(2)), "{error}");
        scsi::test_unit_ready(&mut queue.unit(session, 0)).unwrap();
        let disk = scsi::geometry(&mut queue.unit(session, 0)).unwrap();
        // A reset while much is under way: what was ended comes again.
        for tag in 0..64 {
            let data = Data::In(64 << 10);
            let cdb = disk.read(tag * 128, 128);
            let request = Request { lun: 0, cdb, data, retry: Retry::Always };
            queue.post(session, tag, request).unwrap();
        }
        queue.post_management(session, 99, Management::LogicalUnitReset(0)).unwrap();
        let mut left = 65;
        while left > 0 {
            queue.wait();
            while let Some(event) = queue.reap() {
                match event {
                    Event::Done { result, .. } => drop(result.unwrap()),
                    Event::Managed { result, .. } => result.unwrap(),
                    _ => continue,
                }
                left -= 1;
            }
        }
        queue.logout(session);
    });
}

#[test]
fn a_session_that_the_target_ends_comes_back() {
    on_each_reactor(|target| {
        let initiator = Initiator::start(&Config::default()).unwrap();
        let session = initiator.connect(options(target)).unwrap();
        let disk = Disk::open(&session, 0).unwrap();
        for round in 0..3_u8 {
            let bytes = vec![round; 128 << 10];
            disk.write_at(0, &bytes).unwrap();
            let tsih = target.sessions()[0].tsih;
            assert_eq!(target.drop_session(tsih), Found::Here);
            let mut back = vec![0; 128 << 10];
            disk.read_at(0, &mut back).unwrap();
            assert!(back == bytes);
        }
        session.logout();
    });
}

#[test]
fn a_target_that_has_stopped_is_unreachable() {
    let plan = plan(engine::choose(Choice::Auto), Settings::default());
    let target = Arc::new(Target::start(plan).unwrap());
    let mut queue = Queue::new(&Config::default()).unwrap();
    let options = Options { reconnect_patience: Duration::from_secs(1), ..options(&target) };
    let session = queue.login(options.clone()).unwrap();
    target.stop(Duration::ZERO).unwrap();
    let begun = Instant::now();
    let error = scsi::test_unit_ready(&mut queue.unit(session, 0)).unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(20), "{error}");
    drop(target);
    let error = queue.login(options).unwrap_err();
    assert!(error.to_string().contains("the target is gone"), "{error}");
}
