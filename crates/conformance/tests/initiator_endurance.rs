// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A load with verified content while our own target is killed and started again, and while a
//! firewall cuts and refuses connections: nothing that was acknowledged is lost, nothing wrong is
//! read.
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use conformance::Digests;
use conformance::Fate;
use conformance::Proxy;
use conformance::Server;
use conformance::server::BLOCK;
use conformance::server::TARGET;
use conformance::server::UNIT_BYTES;
use conformance::server::plan;
use engine::Choice;
use initiator::Config;
use initiator::Disk;
use initiator::Initiator;
use initiator::Options;
use initiator::Session;
use iscsi::target_role::Settings;
use lunwire_conformance as conformance;
use scsi::Identity;
use scsi::LogicalUnit;
use store::spec::FileSpec;
use store::spec::Spec;
use target::Plan;

/// Bytes of one request of the load.
const CHUNK: usize = 32 << 10;

/// Threads of the load, each with its own part of the disk.
const WORKERS: u64 = 4;

/// Chunks in the part of a thread.
const CHUNKS: usize = 16;

/// A target whose unit 0 is the file at `path`.
fn on_file(path: &str, settings: Settings) -> Plan {
    let mut plan = plan(Choice::Epoll, settings);
    let spec = FileSpec {
        path: path.to_owned(),
        size: None,
        direct: false,
        read_only: false,
        sync: false,
        raw: false,
    };
    let store = plan.stores.open(&Spec::File(spec)).unwrap();
    let identity = Identity::derive(TARGET, 0, "LUNWIRE", "VIRTUAL DISK");
    let unit = Arc::new(LogicalUnit::new(identity, store, BLOCK).unwrap());
    for node in plan.nodes.iter_mut().filter(|node| node.name == TARGET) {
        node.luns = vec![(0, Arc::clone(&unit))];
    }
    plan
}

/// What a chunk holds after its `round`th write.
fn content(chunk: u64, round: u64) -> Vec<u8> {
    let mark = (chunk << 32 | round).to_be_bytes();
    mark.iter().copied().cycle().take(CHUNK).collect()
}

/// Writes and reads its part of the disk until `over`.
fn worker(session: &Session, worker: u64, over: &AtomicBool, done: &AtomicU64) {
    let disk = Disk::open(session, 0).unwrap();
    let mut rounds = [0; CHUNKS];
    let first = worker * CHUNKS as u64;
    let mut turn: usize = 0;
    while !over.load(Ordering::SeqCst) {
        let place = turn % CHUNKS;
        let chunk = first + place as u64;
        let at = chunk * CHUNK as u64;
        let round = rounds.get_mut(place).unwrap();
        let mut back = vec![0; CHUNK];
        if *round > 0 {
            disk.read_at(at, &mut back).unwrap_or_else(|error| panic!("read: {error}"));
            assert!(back == content(chunk, *round), "chunk {chunk} is as it was written");
        }
        *round += 1;
        let data = content(chunk, *round);
        disk.write_at(at, &data).unwrap_or_else(|error| panic!("write: {error}"));
        done.fetch_add(1, Ordering::SeqCst);
        turn += 7;
    }
    for (place, round) in (0..).zip(rounds).filter(|(_, round)| *round > 0) {
        let chunk: u64 = first + place;
        let mut back = vec![0; CHUNK];
        disk.read_at(chunk * CHUNK as u64, &mut back).unwrap();
        assert!(back == content(chunk, round), "chunk {chunk} at the end");
    }
}

/// Runs the load over `proxy` while `trouble` goes on; each step of it begins when the load has
/// got on since the last one.
fn under_load(proxy: &Proxy, level: u8, connections: u16, mut trouble: impl FnMut(u32)) {
    let initiator = Initiator::start(&Config::default()).unwrap();
    let mut options = Options::new(proxy.portal().to_string(), Some(TARGET.to_owned()));
    options.reconnect_patience = Duration::from_secs(120);
    options.settings.error_recovery_level = level;
    options.settings.connections = connections;
    let session = initiator.connect(options).unwrap();
    let (over, done) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for number in 0..WORKERS {
            let (session, over, done) = (&session, &over, &done);
            scope.spawn(move || {
                // The others end, too, if this one fails.
                let end = EndOnPanic(over);
                worker(session, number, over, done);
                drop(end);
            });
        }
        for step in 0..10 {
            let before = done.load(Ordering::SeqCst);
            let deadline = Instant::now() + Duration::from_secs(60);
            while done.load(Ordering::SeqCst) < before + 20 && !over.load(Ordering::SeqCst) {
                assert!(Instant::now() < deadline, "the load does not get on at step {step}");
                thread::sleep(Duration::from_millis(2));
            }
            trouble(step);
        }
        over.store(true, Ordering::SeqCst);
    });
    session.logout();
}

struct EndOnPanic<'a>(&'a AtomicBool);

impl Drop for EndOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.store(true, Ordering::SeqCst);
        }
    }
}

fn file() -> (tempfile::NamedTempFile, String) {
    let file = tempfile::NamedTempFile::new().unwrap();
    File::options().write(true).open(file.path()).unwrap().set_len(UNIT_BYTES).unwrap();
    let path = file.path().to_str().unwrap().to_owned();
    (file, path)
}

fn settings() -> Settings {
    Settings { time2wait: 0, time2retain: 5, ..Settings::default() }
}

#[test]
fn the_target_is_stopped_and_started_ten_times() {
    let (_file, path) = file();
    let mut server = Some(Server::start(on_file(&path, settings())));
    let portal = server.as_ref().unwrap().portal();
    let proxy = Proxy::start(portal, Digests::default(), |_| Fate::Pass);
    under_load(&proxy, 0, 1, |_| {
        server = None;
        let mut plan = on_file(&path, settings());
        plan.portals = vec![portal.into()];
        server = Some(Server::start(plan));
    });
}

#[test]
fn a_firewall_cuts_and_refuses() {
    for (level, connections) in [(0, 1), (2, 1), (2, 3)] {
        let (_file, path) = file();
        let server = Server::start(on_file(&path, settings()));
        let proxy = Proxy::start(server.portal(), Digests::default(), |_| Fate::Pass);
        under_load(&proxy, level, connections, |step| {
            if step % 2 == 0 {
                return proxy.cut();
            }
            proxy.shut();
            thread::sleep(Duration::from_millis(200));
            proxy.open();
        });
        drop(server);
    }
}
