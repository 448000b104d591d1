// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The face of a disk to other programs: operations whose ends come by a queue with a descriptor,
//! and what happens to disks.
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;
use std::time::Instant;

use buf::Slice;
use conformance::disk;
use conformance::mock;
use conformance::mock::Mock;
use conformance::server::BLOCK;
use conformance::server::FILE_LUN;
use conformance::server::Server;
use conformance::server::TARGET;
use conformance::server::UNIT_BYTES;
use conformance::server::on_each_engine;
use initiator::Chunks;
use initiator::Completion;
use initiator::CompletionQueue;
use initiator::Config;
use initiator::Disk;
use initiator::DiskEvent;
use initiator::Durability;
use initiator::Error;
use initiator::Initiator;
use initiator::Kind;
use initiator::Operation;
use initiator::Options;
use initiator::Session;
use initiator::Space;
use target::Found;
use target::Shrink;
use wire::iscsi::*;
use wire::scsi::sam::CHECK_CONDITION;
use wire::scsi::sam::GOOD;

use lunwire_conformance as conformance;

const MIB: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(20);

fn connect(server: &Server) -> Session {
    let initiator = Initiator::start(&Config::default()).unwrap();
    let options = Options::new(server.portal().to_string(), Some(TARGET.to_owned()));
    initiator.connect(options).unwrap()
}

fn bytes(seed: u8, length: u64) -> Slice {
    let bytes = (0..length).map(|at| u8::try_from(at % 251).unwrap() ^ seed);
    Slice::from(bytes.collect::<Vec<u8>>())
}

/// The next entry, once the descriptor says that there is one.
fn next(queue: &CompletionQueue) -> Completion {
    let by = Instant::now() + PATIENCE;
    loop {
        if let Some(entry) = queue.reap() {
            return entry;
        }
        assert!(Instant::now() < by, "nothing came");
        let _ = queue.wait(Some(PATIENCE));
    }
}

fn ended(queue: &CompletionQueue) -> (u64, Result<Chunks, Error>) {
    match next(queue) {
        Completion::Ended { tag, result } => (tag, result),
        other => panic!("{other:?}"),
    }
}

fn event(queue: &CompletionQueue, tag: u64) -> DiskEvent {
    match next(queue) {
        Completion::Event { tag: of, event } if of == tag => event,
        other => panic!("{other:?}"),
    }
}

fn run(disk: &Disk, queue: &CompletionQueue, operation: Operation) -> Result<Vec<u8>, Error> {
    disk.submit(queue, 77, operation).unwrap();
    let (tag, result) = ended(queue);
    assert_eq!(tag, 77);
    let chunks = result?;
    let mut all = vec![0; chunks.bytes()];
    chunks.copy_to(&mut all);
    Ok(all)
}

#[test]
fn every_operation_comes_to_its_queue() {
    on_each_engine(
        |_| {},
        |server| {
            let session = connect(server);
            let queue = CompletionQueue::new().unwrap();
            for lun in [0, u16::from(FILE_LUN)] {
                let disk = Disk::open(&session, lun).unwrap();
                let go = |operation| run(&disk, &queue, operation);
                // More than one command takes.
                let (written, long) = (bytes(1, 9 * MIB), 9 * MIB);
                assert_eq!(go(Operation::write(MIB, written.clone())).unwrap(), [0; 0]);
                assert_eq!(go(Operation::read(MIB, long)).unwrap(), written.to_vec());
                let stable = bytes(2, 4096);
                go(Operation::write(0, stable.clone()).durable()).unwrap();
                assert_eq!(go(Operation::read(0, 4096)).unwrap(), stable.to_vec());
                go(Operation::Flush).unwrap();
                go(Operation::discard(MIB, MIB).durable()).unwrap();
                for space in [Space::Keep, Space::GiveBack] {
                    let (offset, length) = (2 * MIB, MIB);
                    let durability = Durability::Stable;
                    go(Operation::write(offset, bytes(3, length))).unwrap();
                    go(Operation::Zero { offset, length, space, durability }).unwrap();
                    assert!(go(Operation::read(offset, length)).unwrap().iter().all(|b| *b == 0));
                }
                assert_eq!(
                    go(Operation::read(3 * MIB, 512)).unwrap()[..],
                    written.to_vec()[2 * (1 << 20)..][..512]
                );
            }
        },
    );
}

#[test]
fn what_is_compared_is_written_only_if_it_is_the_same() {
    on_each_engine(
        |_| {},
        |server| {
            let session = connect(server);
            let disk = Disk::open(&session, 0).unwrap();
            let [old, new] = [bytes(1, 1024).to_vec(), bytes(2, 1024).to_vec()];
            disk.write_at(8192, &old).unwrap();
            let mut wrong = old.clone();
            wrong[700] ^= 1;
            let error = disk.compare_and_write(8192, &wrong, &new).unwrap_err();
            assert!(matches!(error.kind(), Kind::Miscompare { at: Some(700) }), "{error}");
            disk.compare_and_write(8192, &old, &new).unwrap();
            let mut back = vec![0; 1024];
            disk.read_at(8192, &mut back).unwrap();
            assert_eq!(back, new);

            let max = usize::from(disk.geometry().compare_max);
            let long = vec![0; (max + 1) * BLOCK as usize];
            let error = disk.compare_and_write(0, &long, &long).unwrap_err();
            assert!(matches!(error.kind(), Kind::TooLong { .. }), "{error}");
            let error = disk.compare_and_write(0, &old, &new[..512]).unwrap_err();
            assert!(matches!(error.kind(), Kind::Uneven { .. }), "{error}");
        },
    );
}

#[test]
fn hundreds_of_operations_end_once_each() {
    const COUNT: u64 = 600;
    on_each_engine(
        |_| {},
        |server| {
            let session = connect(server);
            let disk = Disk::open(&session, 0).unwrap();
            let queue = CompletionQueue::new().unwrap();
            let length = 4096;
            for tag in 0..COUNT {
                let data = bytes(u8::try_from(tag % 251).unwrap(), length);
                disk.submit(&queue, tag, Operation::write(tag * length, data)).unwrap();
            }
            // Waits for nothing and gives no end.
            let beyond = disk.submit(&queue, COUNT, Operation::read(UNIT_BYTES, length));
            assert!(matches!(beyond.unwrap_err().kind(), Kind::Range { .. }));
            let mut seen = vec![0; usize::try_from(COUNT).unwrap()];
            for _ in 0..COUNT {
                let (tag, result) = ended(&queue);
                result.unwrap();
                seen[usize::try_from(tag).unwrap()] += 1;
            }
            assert!(seen.iter().all(|times| *times == 1));
            for tag in 0..COUNT {
                disk.submit(&queue, tag, Operation::read(tag * length, length)).unwrap();
            }
            let mut entries = Vec::new();
            while entries.len() < seen.len() {
                if queue.reap_all(&mut entries) == 0 {
                    assert!(queue.wait(Some(PATIENCE)));
                }
            }
            for entry in entries {
                let Completion::Ended { tag, result } = entry else { panic!("{entry:?}") };
                let mut back = vec![0; 4096];
                result.unwrap().copy_to(&mut back);
                assert_eq!(back, bytes(u8::try_from(tag % 251).unwrap(), length).to_vec());
            }
        },
    );
}

#[test]
fn the_size_of_a_disk_follows_the_unit() {
    on_each_engine(
        |_| {},
        |server| {
            let session = connect(server);
            let (disk, queue) =
                (Disk::open(&session, FILE_LUN.into()).unwrap(), CompletionQueue::new().unwrap());
            disk.watch(&queue, 5);
            let resized = 2 * UNIT_BYTES;
            let lun = FILE_LUN.into();
            server.target().resize(TARGET, lun, resized, Shrink::Refused).unwrap();
            assert!(disk.read(UNIT_BYTES, 512).is_err(), "nobody has told yet");
            // The unit tells it to whatever comes next.
            let mut block = [0; 512];
            disk.read_at(0, &mut block).unwrap();
            let DiskEvent::Attention(sense) = event(&queue, 5) else { panic!() };
            assert_eq!((sense.asc, sense.ascq), (0x2a, 9));
            let DiskEvent::Resized { was, now } = event(&queue, 5) else { panic!() };
            assert_eq!((was, now), (UNIT_BYTES, resized));
            assert_eq!(disk.clone().size(), resized);
            disk.write_at(UNIT_BYTES, &[7; 512]).unwrap();
            server.target().resize(TARGET, lun, UNIT_BYTES, Shrink::Allowed).unwrap();
            assert_eq!(disk.learn().unwrap().bytes(), UNIT_BYTES);
            assert!(disk.read(UNIT_BYTES, 512).is_err());
        },
    );
}

#[test]
fn watchers_hear_that_a_session_is_lost_and_back_and_over() {
    let server = Server::start(conformance::server::plan(
        engine::Choice::Auto,
        iscsi::target_role::Settings::default(),
    ));
    let session = connect(&server);
    let (disk, queue) = (Disk::open(&session, 0).unwrap(), CompletionQueue::new().unwrap());
    disk.watch(&queue, 9);
    let tsih = server.target().sessions()[0].tsih;
    assert_eq!(server.target().drop_session(tsih), Found::Here);
    let lost = event(&queue, 9);
    assert!(matches!(lost, DiskEvent::Lost(_)), "{lost:?}");
    let back = event(&queue, 9);
    assert!(matches!(back, DiskEvent::Back), "{back:?}");
    disk.write_at(0, &[1; 512]).unwrap();
    session.logout();
    // What the unit told of the lost session may come before.
    while !matches!(event(&queue, 9), DiskEvent::Ended(_)) {}
    let error = disk.read_at(0, &mut [0; 512]).unwrap_err();
    assert!(matches!(error.kind(), Kind::Closed), "{error}");
}

/// Every operation has an end, also when the initiator goes in the middle of it.
#[test]
fn no_operation_outlives_its_initiator() {
    let server = Server::start(conformance::server::plan(
        engine::Choice::Auto,
        iscsi::target_role::Settings::default(),
    ));
    let queue = CompletionQueue::new().unwrap();
    let (begun, transfer) = {
        let session = connect(&server);
        let disk = Disk::open(&session, 0).unwrap();
        for tag in 0..100 {
            disk.submit(&queue, tag, Operation::read(0, MIB)).unwrap();
        }
        (100, disk.read(0, MIB).unwrap())
    };
    let mut tags: Vec<u64> = (0..begun).map(|_| ended(&queue).0).collect();
    tags.sort_unstable();
    assert!(tags.into_iter().eq(0..begun));
    // However it ended, it did.
    let _ = transfer.wait();
}

/// A disk of 2048 blocks that notes the commands it gets.
#[derive(Clone, Default)]
struct Noted(Arc<Mutex<Vec<[u8; 2]>>>);

impl Noted {
    fn start(&self, dpo_fua: bool) -> Mock {
        let noted = Arc::clone(&self.0);
        Mock::start(move |request, _, numbers| {
            let Request::Command(command) = request else { return Vec::new() };
            let cdb = &command.cdb.bytes;
            noted.lock().unwrap().push([cdb[0], cdb[1]]);
            let data = match cdb[0] {
                0x1a => Some(vec![3, 0, if dpo_fua { 0x10 } else { 0 }, 0]),
                0x41 | 0x93 => {
                    return mock::ended(command, numbers, CHECK_CONDITION, Some([5, 0x20, 0]));
                }
                _ => disk::data(cdb, None),
            };
            match data {
                Some(data) => mock::data(command, numbers, data),
                None => mock::ended(command, numbers, GOOD, None),
            }
        })
    }

    fn take(&self) -> Vec<[u8; 2]> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

fn open(mock: &Mock) -> (Disk, CompletionQueue) {
    let initiator = Initiator::start(&Config::default()).unwrap();
    let target = Some("iqn.2026-01.example:t".to_owned());
    let session = initiator.connect(Options::new(mock.portal().to_string(), target)).unwrap();
    (Disk::open(&session, 0).unwrap(), CompletionQueue::new().unwrap())
}

#[test]
fn durable_means_fua_where_there_is_fua_and_a_flush_where_not() {
    let (write, fua, flush) = ([0x2a, 0], [0x2a, 8], [0x35, 0]);
    for (dpo_fua, sent) in [(true, vec![fua]), (false, vec![write, flush])] {
        let noted = Noted::default();
        let mock = noted.start(dpo_fua);
        let (disk, queue) = open(&mock);
        noted.take();
        run(&disk, &queue, Operation::write(0, bytes(1, 512)).durable()).unwrap();
        assert_eq!(noted.take(), sent);
        // Neither UNMAP nor WRITE SAME is there: nothing to do for the one, and for the other
        // zeroes are written.
        run(&disk, &queue, Operation::discard(0, 512)).unwrap();
        assert_eq!(noted.take(), [[0; 2]; 0]);
        run(&disk, &queue, Operation::zero(0, 512).durable()).unwrap();
        assert_eq!(noted.take(), [write, flush]);
    }
}

/// Who takes no answers, and asks for more and more, has us keep a bounded number of them.
#[test]
fn a_target_that_asks_and_takes_no_answers_is_left() {
    const READ_10: u8 = 0x28;
    // No fixed number of pings is sure to be more than the sockets keep of the answers.
    let mock = Mock::that_repeats(READ_10, move |request, _, numbers| {
        let Request::Command(command) = request else { return Vec::new() };
        if command.cdb.bytes[0] == READ_10 {
            let (lun, itt, ttt) = (LunField::default(), Itt::NONE, Ttt(5));
            return vec![(Response::NopIn(NopIn { lun, itt, ttt, numbers }), Vec::new())];
        }
        match disk::data(&command.cdb.bytes, None) {
            Some(data) => mock::data(command, numbers, data),
            None => mock::ended(command, numbers, GOOD, None),
        }
    });
    let initiator = Initiator::start(&Config::default()).unwrap();
    let target = Some("iqn.2026-01.example:t".to_owned());
    let options = Options::new(mock.portal().to_string(), target);
    let reconnect_patience = Duration::ZERO;
    let session = initiator.connect(Options { reconnect_patience, ..options }).unwrap();
    let disk = Disk::open(&session, 0).unwrap();
    let error = disk.read(0, 512).unwrap().wait().unwrap_err().to_string();
    assert!(error.contains("it asks for answers to pings"), "{error}");
}
