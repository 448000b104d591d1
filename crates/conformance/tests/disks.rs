// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Our initiator against our target: disks over each engine, with and without digests.
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::Context;
use std::task::Poll;
use std::task::Wake;
use std::thread;
use std::time::Duration;

use buf::Slice;
use conformance::server::BLOCK;
use conformance::server::CLOSED_TARGET;
use conformance::server::FILE_LUN;
use conformance::server::LUNS;
use conformance::server::Server;
use conformance::server::TARGET;
use conformance::server::UNIT_BYTES;
use conformance::server::on_each_engine;
use initiator::Config;
use initiator::Data;
use initiator::DigestOffer;
use initiator::Disk;
use initiator::Event;
use initiator::Initiator;
use initiator::Kind;
use initiator::Options;
use initiator::OptionsError;
use initiator::Queue;
use initiator::Request;
use initiator::Retry;
use initiator::Settings;
use initiator::scsi;
use wire::iscsi::Isid;

use lunwire_conformance as conformance;

fn options(server: &Server) -> Options {
    Options::new(server.portal().to_string(), Some(TARGET.to_owned()))
}

/// Bytes that tell where they belong.
fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut state = u32::try_from(seed % 997).unwrap().wrapping_mul(2_654_435_761) | 1;
    let mut bytes = Vec::with_capacity(length);
    while bytes.len() < length {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        bytes.extend_from_slice(&state.to_be_bytes());
    }
    bytes.truncate(length);
    bytes
}

#[test]
fn what_is_written_is_read() {
    on_each_engine(
        |_| {},
        |server| {
            for offer in [DigestOffer::Off, DigestOffer::Required] {
                let initiator = Initiator::start(&Config::default()).unwrap();
                let mut options = options(server);
                options.settings.header_digest = offer;
                options.settings.data_digest = offer;
                let session = initiator.connect(options).unwrap();
                for lun in [0, u16::from(FILE_LUN)] {
                    let disk = Disk::open(&session, lun).unwrap();
                    assert_eq!(disk.size(), UNIT_BYTES);
                    for (offset, length) in [(0, 512), (4096, 65536), (1 << 20, 3 << 20)] {
                        let bytes = pattern(u64::from(lun) + 7, length);
                        disk.write_at(offset, &bytes).unwrap();
                        let mut back = vec![0; length];
                        disk.read_at(offset, &mut back).unwrap();
                        assert!(back == bytes, "LUN {lun}, {length} bytes at {offset}");
                    }
                    disk.flush().unwrap();
                }
                session.logout();
            }
        },
    );
}

/// A process that serves disks and uses disks is one node: it logs in under the name that it is
/// discovered by, here even to itself.
///
/// Covers: NAM-02/T, NAM-02/I.
#[test]
fn a_node_has_one_name_in_both_roles() {
    on_each_engine(
        |_| {},
        |server| {
            let initiator = Initiator::start(&Config::default()).unwrap();
            let mut discovery = Options::new(server.portal().to_string(), None);
            discovery.initiator = TARGET.to_owned();
            let found = initiator.discover(discovery).unwrap();
            let mut options = options(server);
            options.initiator.clone_from(&found[0].name);
            let session = initiator.connect(options).unwrap();
            let sessions = server.target().sessions();
            let own = sessions.iter().find(|session| session.target.is_some()).unwrap();
            assert_eq!(own.target.as_deref(), Some(own.initiator.as_str()));
            let disk = Disk::open(&session, 0).unwrap();
            disk.write_at(0, &[7; 512]).unwrap();
            session.logout();
        },
    );
}

/// A dead connection is noticed and replaced before a command is given up.
///
/// Covers: TMO-05/I.
#[test]
fn timers_of_the_transport_are_shorter_than_those_of_commands() {
    let settings = Settings::default();
    let recovery = settings.ping_interval + settings.ping_timeout + settings.login_timeout;
    assert!(recovery < settings.command_timeout);
}

#[test]
fn every_way_of_sending_write_data() {
    for (initial_r2t, immediate) in [(true, true), (true, false), (false, true), (false, false)] {
        on_each_engine(
            |settings| {
                settings.max_recv_data_segment_length = 8192;
                settings.first_burst_length = 32768;
                settings.max_burst_length = 65536;
            },
            |server| {
                let initiator = Initiator::start(&Config::default()).unwrap();
                let mut options = options(server);
                options.settings.initial_r2t = initial_r2t;
                options.settings.immediate_data = immediate;
                options.settings.max_outstanding_r2t = 3;
                let session = initiator.connect(options).unwrap();
                let disk = Disk::open(&session, 0).unwrap();
                for length in [512, 4096, 8192, 32768, 33280, 65536, 1 << 20] {
                    let bytes = pattern(length as u64, length);
                    disk.write_at(512, &bytes).unwrap();
                    let mut back = vec![0; length];
                    disk.read_at(512, &mut back).unwrap();
                    assert!(back == bytes, "{length} bytes");
                }
            },
        );
    }
}

#[test]
fn a_queue_keeps_thousands_of_commands() {
    on_each_engine(
        |settings| settings.queue_depth = 64,
        |server| {
            let mut queue = Queue::new(&Config::default()).unwrap();
            let session = queue.login(options(server)).unwrap();
            let geometry = scsi::geometry(&mut queue.unit(session, 0)).unwrap();
            let count = 4000;
            for lba in 0..count as u64 {
                let request = Request {
                    lun: 0,
                    cdb: geometry.write(lba, 1),
                    data: Data::Out(Slice::from(pattern(lba, BLOCK as usize))),
                    retry: Retry::Always,
                };
                queue.post(session, lba, request).unwrap();
            }
            drain(&mut queue, count);
            for lba in 0..count as u64 {
                let request = Request {
                    lun: 0,
                    cdb: geometry.read(lba, 1),
                    data: Data::In(BLOCK),
                    retry: Retry::Always,
                };
                queue.post(session, lba, request).unwrap();
            }
            for (tag, data) in drain(&mut queue, count) {
                assert_eq!(*data.unwrap(), pattern(tag, BLOCK as usize));
            }
            queue.logout(session);
        },
    );
}

fn drain(queue: &mut Queue, count: usize) -> Vec<(u64, Option<buf::Buf>)> {
    let mut ended = Vec::new();
    while ended.len() < count {
        queue.wait_n(1, Duration::from_secs(10));
        while let Some(event) = queue.reap() {
            if let Event::Done { tag, result, .. } = event {
                ended.push((tag, result.unwrap().data));
            }
        }
    }
    ended
}

#[test]
fn discovery_finds_what_may_be_seen() {
    on_each_engine(
        |_| {},
        |server| {
            let initiator = Initiator::start(&Config::default()).unwrap();
            let mut options = options(server);
            options.target = None;
            let targets = initiator.discover(options).unwrap();
            let found = targets.iter().find(|target| target.name == TARGET).unwrap();
            assert_eq!(found.addresses.first().unwrap().portal, server.portal().to_string());
            assert!(targets.iter().all(|target| target.name != CLOSED_TARGET));
        },
    );
}

#[test]
fn units_tell_what_they_are() {
    on_each_engine(
        |_| {},
        |server| {
            let mut queue = Queue::new(&Config::default()).unwrap();
            let session = queue.login(options(server)).unwrap();
            let unit = &mut queue.unit(session, 0);
            assert_eq!(scsi::report_luns(unit).unwrap(), (0..LUNS).collect::<Vec<_>>());
            assert_eq!(&scsi::inquiry(unit).unwrap().vendor, b"LUNWIRE ");
            assert_eq!(scsi::capacity(unit).unwrap().block_length, BLOCK);
            assert!(scsi::supported_commands(unit).unwrap().len() > 20);
            assert_eq!(scsi::reservations(unit).unwrap(), (Vec::new(), None));
            let geometry = scsi::geometry(unit).unwrap();
            assert!(geometry.unmap_max > 0 && !geometry.read_only);
            let error = scsi::geometry(&mut queue.unit(session, 9)).unwrap_err();
            assert!(matches!(error.kind(), Kind::NotADisk(_)), "{error}");
        },
    );
}

#[test]
fn errors_say_which_unit_and_what_it_said() {
    on_each_engine(
        |_| {},
        |server| {
            let mut queue = Queue::new(&Config::default()).unwrap();
            let session = queue.login(options(server)).unwrap();
            let geometry = scsi::geometry(&mut queue.unit(session, 1)).unwrap();
            let beyond = Request {
                lun: 1,
                cdb: geometry.read(geometry.blocks, 8),
                data: Data::In(8 * BLOCK),
                retry: Retry::Always,
            };
            let error = queue.execute(session, beyond).unwrap_err().to_string();
            assert!(error.contains(TARGET) && error.contains("LUN 1"), "{error}");
            assert!(error.contains("READ(10) of 8 blocks at block 32768"), "{error}");
            assert!(error.contains("ILLEGAL REQUEST: logical block address out of"), "{error}");
        },
    );
}

#[test]
fn refused_logins_say_why() {
    on_each_engine(
        |_| {},
        |server| {
            let initiator = Initiator::start(&Config::default()).unwrap();
            let mut options = options(server);
            options.target = Some("iqn.2026-01.example.conformance:none".to_owned());
            let error = initiator.connect(options.clone()).unwrap_err().to_string();
            assert!(error.contains("no such target"), "{error}");
            options.target = Some(CLOSED_TARGET.to_owned());
            assert!(initiator.connect(options.clone()).is_err());
            options.portals = vec!["127.0.0.1:1".to_owned()];
            let error = initiator.connect(options).unwrap_err();
            assert!(matches!(error.kind(), Kind::Unreachable { .. }), "{error}");
        },
    );
}

#[test]
fn a_dead_portal_delays_nothing() {
    let server = Server::start(conformance::server::plan(
        engine::Choice::Epoll,
        iscsi::target_role::Settings::default(),
    ));
    let initiator = Initiator::start(&Config::default()).unwrap();
    let mut options = options(&server);
    // 192.0.2.0/24 is for documentation: nothing answers there (RFC 5737).
    options.portals.insert(0, "192.0.2.1:3260".to_owned());
    options.portals.insert(0, "127.0.0.1:1".to_owned());
    let session = initiator.connect(options).unwrap();
    assert!(Disk::open(&session, 0).is_ok());
}

/// Covers: ERL-09, SES-20, ERL-01/I.
#[test]
fn a_lost_session_is_reinstated_and_commands_go_on() {
    let server = Server::start(conformance::server::plan(
        engine::Choice::Epoll,
        iscsi::target_role::Settings::default(),
    ));
    let initiator = Initiator::start(&Config::default()).unwrap();
    let session = initiator.connect(options(&server)).unwrap();
    let disk = Disk::open(&session, 0).unwrap();
    let before = server.target().sessions();
    let [first] = before.as_slice() else { panic!("one session") };
    let bytes = pattern(1, 1 << 20);
    let writer = {
        let (disk, bytes) = (disk.clone(), bytes.clone());
        thread::spawn(move || {
            for round in 0..64 {
                disk.write_at((round % 4) << 20, &bytes).unwrap();
            }
        })
    };
    for _ in 0..3 {
        thread::sleep(Duration::from_millis(20));
        for session in server.target().sessions() {
            let _ = server.target().drop_session(session.tsih);
        }
    }
    writer.join().unwrap();
    let mut back = vec![0; 1 << 20];
    disk.read_at(2 << 20, &mut back).unwrap();
    assert!(back == bytes);
    let after = server.target().sessions();
    assert_eq!(after.len(), 1);
    assert_eq!(after[0].isid, first.isid, "the same nexus");
}

/// Where the caller names the ISID, too: a second session would end the first one.
///
/// Covers: SES-02.
#[test]
fn an_isid_has_one_session_with_a_portal() {
    let server = Server::start(conformance::server::plan(
        engine::Choice::Epoll,
        iscsi::target_role::Settings::default(),
    ));
    let mut queue = Queue::new(&Config::default()).unwrap();
    let isid = Isid([0x80, 1, 2, 3, 4, 5]);
    let named = || Options { isid: Some(isid), ..options(&server) };
    let first = queue.login(named()).unwrap();
    let before = server.target().sessions();
    let error = queue.login(named()).expect_err("it is in use");
    assert!(
        matches!(error.kind(), Kind::Options(OptionsError::IsidInUse(of)) if *of == isid),
        "{error}"
    );
    let tsih = |sessions: &[target::SessionSnapshot]| sessions[0].tsih;
    let after = server.target().sessions();
    assert_eq!((after.len(), tsih(&after)), (1, tsih(&before)), "the first one is there");
    // Another initiator has ISIDs of its own, and so has a session that is over.
    let other = "iqn.2026-01.com.example:other".to_owned();
    queue.login(Options { initiator: other, ..named() }).unwrap();
    assert_eq!(server.target().sessions().len(), 2);
    queue.logout(first);
    queue.login(named()).unwrap();
}

/// Covers: SES-02, SES-25.
#[test]
fn each_session_has_an_isid_of_its_own() {
    let server = Server::start(conformance::server::plan(
        engine::Choice::Epoll,
        iscsi::target_role::Settings::default(),
    ));
    let mut queue = Queue::new(&Config::default()).unwrap();
    for _ in 0..8 {
        queue.login(options(&server)).unwrap();
    }
    let sessions = server.target().sessions();
    assert_eq!(sessions.len(), 8, "none has taken another's place");
    for session in sessions {
        // T = 10: 24 random bits and a qualifier.
        assert!(session.isid.starts_with("80"), "{}", session.isid);
    }
}

struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The smallest executor.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Arc::new(Unpark(thread::current())).into();
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

#[test]
fn futures_need_no_runtime() {
    on_each_engine(
        |_| {},
        |server| {
            let initiator = Initiator::start(&Config::default()).unwrap();
            let mut options = options(server);
            options.settings = Settings { ping_interval: Duration::ZERO, ..options.settings };
            let session = block_on(initiator.begin(options)).unwrap();
            let disk = block_on(Disk::begin(&session, 0)).unwrap();
            assert_eq!(disk.geometry(), Disk::open(&session, 0).unwrap().geometry());
            let missing = block_on(Disk::begin(&session, 77)).unwrap_err();
            assert!(matches!(missing.kind(), Kind::NotADisk(_)), "{missing}");
            let bytes = Slice::from(pattern(9, 4 << 20));
            block_on(disk.write(0, &bytes).unwrap()).unwrap();
            let parts = block_on(disk.read(0, 4 << 20).unwrap()).unwrap();
            let back: Vec<u8> = parts.iter().flat_map(|part| part.to_vec()).collect();
            assert!(back == bytes.to_vec());
        },
    );
}
