// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks that change while they are in use, and stores that are more than a file: sizes, filters,
//! stripes, discs.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use engine::Choice;
use iscsi::target_role::Settings;
use lunwire_conformance::initiator::BLOCK_BYTES;
use lunwire_conformance::initiator::CHECK_CONDITION;
use lunwire_conformance::initiator::GOOD;
use lunwire_conformance::initiator::Status;
use lunwire_conformance::initiator::cdb10;
use lunwire_conformance::initiator::pattern;
use lunwire_conformance::server::BLOCK;
use lunwire_conformance::server::TARGET;
use lunwire_conformance::server::plan;
use lunwire_conformance::*;
use scsi::Identity;
use scsi::LogicalUnit;
use store::spec::Spec;
use target::Shrink;
use target::VolumeError;
use wire::iscsi::*;

/// The number under which the store of a test stands.
const LUN: u8 = 9;
const MIB: u64 = 1 << 20;
/// More than any file system has that the tests run on: a sparse file that is larger runs short.
const SPACE_WARNING: u64 = 1 << 61;

/// A server with the store of `word` at [`LUN`], on each engine, with two reactors.
fn with_store(word: &str, check: impl Fn(&Server)) {
    let uring = engine::choose(Choice::Auto) == Choice::Uring;
    for choice in [Some(Choice::Epoll), uring.then_some(Choice::Uring)].into_iter().flatten() {
        let mut plan = plan(choice, Settings::default());
        plan.reactors = 2;
        let spec: Spec = word.parse().expect("a store");
        let store = plan.stores.open(&spec).expect("it opens");
        let identity = Identity::derive(TARGET, LUN.into(), "LUNWIRE", "VIRTUAL DISK");
        let unit = if spec.is_optical() {
            LogicalUnit::optical(identity, store)
        } else {
            LogicalUnit::new(identity, store, BLOCK)
        };
        let unit = unit.expect("a legal unit").with_space_warning(SPACE_WARNING);
        plan.nodes[0].luns.push((LUN.into(), Arc::new(unit)));
        check(&Server::start(plan));
    }
}

/// A file of a MiB and the word of the store in it.
fn file(folder: &Path) -> String {
    let path = folder.join("disk").display().to_string();
    let _ = std::fs::remove_file(&path);
    format!("file:{path},size=1M")
}

/// The size of the file for the next engine.
fn as_it_was(server: &Server) {
    let resized = server.target().resize(TARGET, LUN.into(), MIB, Shrink::Allowed);
    assert_eq!(resized.expect("room").now, MIB);
}

fn session(server: &Server) -> Initiator {
    let mut session = server.login();
    session.settle(LUN);
    session
}

fn last_lba(status: &Status) -> u32 {
    let bytes = status.data.first_chunk().copied().expect("READ CAPACITY data");
    u32::from_be_bytes(bytes)
}

/// READ CAPACITY(10), past a unit attention if that is allowed.
fn capacity(session: &mut Initiator) -> Status {
    let command = session.command(LUN, &cdb10(0x25, 0, 0));
    session.run(&ScsiCommand { read: true, expected_length: 8, ..command })
}

fn write(session: &mut Initiator, block: u32, data: &[u8]) -> Status {
    let count = u16::try_from(data.len() / BLOCK_BYTES).expect("short");
    let command = session.write_blocks(LUN, block, count);
    session.send(&Request::Command(command), data);
    session.finish(command.itt)
}

fn read(session: &mut Initiator, block: u32, count: u16) -> Status {
    let command = session.read_blocks(LUN, block, count);
    session.run(&command)
}

#[test]
fn a_disk_that_grows_is_seen_at_once_by_everybody() {
    let folder = tempfile::tempdir().expect("a folder");
    let word = file(folder.path());
    with_store(&word, |server| {
        let mut sessions = [session(server), session(server)];
        let before = u32::try_from(MIB).expect("small") / BLOCK - 1;
        for session in &mut sessions {
            assert_eq!(last_lba(&capacity(session)), before);
            assert_eq!(read(session, before + 1, 1).sense_code(), (5, 0x21, 0));
        }
        let resized = server.target().resize(TARGET, LUN.into(), 3 * MIB, Shrink::Refused);
        let resized = resized.expect("room");
        assert_eq!((resized.before, resized.now), (MIB, 3 * MIB));
        let data = pattern(BLOCK_BYTES, 7);
        for session in &mut sessions {
            let told = capacity(session);
            assert_eq!((told.code, told.sense_code()), (CHECK_CONDITION, (6, 0x2a, 9)));
            assert_eq!(last_lba(&capacity(session)), before * 3 + 2, "told once");
        }
        let end = before * 3 + 2;
        assert_eq!(write(&mut sessions[0], end, &data).code, GOOD);
        assert_eq!(read(&mut sessions[1], end, 1).data, data);
        assert_eq!(server.target().disk_bytes(TARGET, LUN.into()), Some(3 * MIB));
        for bytes in [0, 1000] {
            let refused = server.target().resize(TARGET, LUN.into(), bytes, Shrink::Allowed);
            assert!(matches!(refused, Err(VolumeError::Size { .. })), "{refused:?}");
        }
        as_it_was(server);
    });
}

#[test]
fn a_disk_becomes_smaller_only_if_that_was_said() {
    let folder = tempfile::tempdir().expect("a folder");
    // Requests wait before they begin, so that they meet the new end on their way.
    let word = format!("{},delay=write:400ms", file(folder.path()));
    let path = folder.path().join("disk");
    with_store(&word, |server| {
        let mut session = session(server);
        let refused = server.target().resize(TARGET, LUN.into(), MIB / 2, Shrink::Refused);
        let error = refused.expect_err("what lies behind is not lost by accident").to_string();
        assert!(error.contains("--shrink"), "{error}");
        assert_eq!(std::fs::metadata(&path).expect("a file").len(), MIB);
        let end = u32::try_from(MIB / 2).expect("small") / BLOCK;
        let data = pattern(BLOCK_BYTES, 3);
        let late = session.write_blocks(LUN, end, 1);
        session.send(&Request::Command(late), &data);
        session.expect_quiet();
        let resized = server.target().resize(TARGET, LUN.into(), MIB / 2, Shrink::Allowed);
        assert_eq!(resized.expect("it was said").now, MIB / 2);
        assert_eq!(session.finish(late.itt).sense_code(), (5, 0x21, 0), "on its way meanwhile");
        assert_eq!(std::fs::metadata(&path).expect("a file").len(), MIB / 2);
        assert_eq!(capacity(&mut session).sense_code(), (6, 0x2a, 9));
        assert_eq!(last_lba(&capacity(&mut session)), end - 1);
        assert_eq!(read(&mut session, end - 1, 1).code, GOOD);
        assert_eq!(read(&mut session, end, 1).sense_code(), (5, 0x21, 0));
        as_it_was(server);
    });
}

#[test]
fn a_file_that_grew_is_noticed_and_one_that_shrank_is_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let word = file(folder.path());
    let path = folder.path().join("disk");
    with_store(&word, |server| {
        let mut session = session(server);
        assert_eq!(server.target().rescan(), []);
        let outside = std::fs::File::options().write(true).open(&path).expect("a file");
        outside.set_len(2 * MIB + 100).expect("room");
        let found = server.target().rescan();
        let [grown] = &*found else { panic!("one disk: {found:?}") };
        assert_eq!((grown.lun, grown.before, grown.now), (LUN.into(), MIB, 2 * MIB));
        assert_eq!(capacity(&mut session).sense_code(), (6, 0x2a, 9));
        let blocks = u32::try_from(2 * MIB).expect("small") / BLOCK;
        assert_eq!(last_lba(&capacity(&mut session)), blocks - 1);
        outside.set_len(MIB).expect("shorter");
        for _ in 0..2 {
            let found = server.target().rescan();
            assert_eq!(found.first().map(|found| found.now), Some(MIB));
        }
        assert_eq!(last_lba(&capacity(&mut session)), blocks - 1, "hosts are told the old size");
        assert_eq!(read(&mut session, blocks - 1, 1).sense_code(), (3, 0x11, 0));
    });
}

#[test]
fn what_cannot_be_resized_says_so() {
    with_store("memory:1M", |server| {
        let resize = |target: &str, lun: u16| {
            let result = server.target().resize(target, lun, 2 * MIB, Shrink::Refused);
            result.expect_err("not possible").to_string()
        };
        assert!(resize(TARGET, LUN.into()).contains("file:"));
        assert!(resize(TARGET, 77).contains("no LUN 77"));
        assert!(resize("iqn.2026-01.example:none", 0).contains("no target"));
    });
}

/// The work of a disk goes on while its size changes back and forth.
#[test]
fn requests_under_way_are_safe_while_the_size_changes() {
    let folder = tempfile::tempdir().expect("a folder");
    let word = file(folder.path());
    with_store(&word, |server| {
        let mut session = session(server);
        std::thread::scope(|scope| {
            let changes = scope.spawn(|| {
                for turn in 0..20 {
                    let bytes = if turn % 2 == 0 { MIB / 2 } else { MIB };
                    let resized =
                        server.target().resize(TARGET, LUN.into(), bytes, Shrink::Allowed);
                    assert_eq!(resized.expect("room").now, bytes);
                }
            });
            let half = u32::try_from(MIB / 2).expect("small") / BLOCK;
            let mut seed = 0_u8;
            while !changes.is_finished() {
                seed = seed.wrapping_add(1);
                let data = pattern(BLOCK_BYTES, seed);
                for block in [half - 1, half] {
                    let status = write(&mut session, block, &data);
                    match (status.code, status.sense_code()) {
                        (GOOD, _) | (_, (6, 0x2a, 9)) => {}
                        (_, (5, 0x21, 0)) if block == half => {}
                        other => panic!("block {block}: {other:?}"),
                    }
                }
            }
        });
        session.settle(LUN);
        let length = std::fs::metadata(folder.path().join("disk")).expect("a file").len();
        assert_eq!(length, MIB, "no late write has moved the end");
        let data = pattern(BLOCK_BYTES, 1);
        assert_eq!(write(&mut session, 0, &data).code, GOOD);
        assert_eq!(read(&mut session, 0, 1).data, data);
    });
}

#[test]
fn a_delay_is_kept_and_ends_with_its_command() {
    const DELAY: Duration = Duration::from_secs(2);
    with_store("memory:1M,delay=read:2s", |server| {
        let mut session = session(server);
        let begun = Instant::now();
        assert_eq!(read(&mut session, 0, 1).data, [0; BLOCK_BYTES]);
        assert!(begun.elapsed() >= DELAY);
        let command = session.test_unit_ready(LUN);
        let quick = Instant::now();
        assert_eq!(session.run(&command).code, GOOD);
        assert!(quick.elapsed() < DELAY, "only reads wait");
    });
    // A minute lies before this read: nothing waits for it once nobody wants it any more.
    with_store("memory:1M,delay=60s", |server| {
        let mut session = session(server);
        let command = session.read_blocks(LUN, 0, 1);
        session.start(&command);
        session.expect_quiet();
        let begun = Instant::now();
        let abort = session.management(1, LUN, command.itt);
        session.send(&Request::TaskManagement(abort), &[]);
        assert_eq!(session.read_management(), 0);
        let another = session.read_blocks(LUN, 0, 1);
        session.start(&another);
        session.expect_quiet();
        server.target().stop(Duration::ZERO).expect("it stops");
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    });
}

#[test]
fn a_limit_spreads_commands() {
    with_store("memory:1M,limit=50iops,log", |server| {
        let mut session = session(server);
        let begun = Instant::now();
        for _ in 0..20 {
            assert_eq!(read(&mut session, 0, 1).code, GOOD);
        }
        // A tenth of a second's worth is free.
        assert!(begun.elapsed() >= Duration::from_millis(250), "{:?}", begun.elapsed());
    });
}

/// Ten seconds' worth of commands that somebody asked for and nobody wants any more: those who
/// come later, or were behind them, do not wait for them.
#[test]
fn a_limit_charges_nothing_that_is_not_wanted_any_more() {
    for stripe in [false, true] {
        let word = if stripe { "stripe:4K(memory:1M;memory:1M,limit=10iops)" } else { "" };
        let word = if stripe { word } else { "memory:1M,limit=10iops" };
        with_store(word, |server| {
            for is_lost in [false, true] {
                let mut hog = Some(session(server));
                let asker = hog.as_mut().expect("a session");
                for _ in 0..100 {
                    let command = asker.read_blocks(LUN, 8, 1);
                    asker.start(&command);
                }
                std::thread::sleep(Duration::from_millis(100));
                let mut patient = session(server);
                let behind = patient.read_blocks(LUN, 8, 1);
                patient.start(&behind);
                std::thread::sleep(Duration::from_millis(100));
                let begun = Instant::now();
                if is_lost {
                    hog = None;
                } else {
                    let abort = asker.management(2, LUN, Itt::NONE);
                    asker.send(&Request::TaskManagement(abort), &[]);
                }
                assert_eq!(patient.finish(behind.itt).code, GOOD);
                let mut later = session(server);
                assert_eq!(read(&mut later, 8, 1).code, GOOD);
                assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
                drop(hog);
            }
        });
    }
}

#[test]
fn errors_on_purpose_are_what_hosts_see() {
    with_store("memory:1M,error=read@4K+512,error=space:2", |server| {
        let mut session = session(server);
        assert_eq!(read(&mut session, 0, 8).code, GOOD);
        assert_eq!(read(&mut session, 8, 1).sense_code(), (3, 0x11, 0));
        let data = pattern(BLOCK_BYTES, 1);
        assert_eq!(write(&mut session, 0, &data).code, GOOD);
        assert_eq!(write(&mut session, 0, &data).sense_code(), (7, 0x27, 7));
    });
    with_store("memory:1M,readonly", |server| {
        let mut session = session(server);
        let data = pattern(BLOCK_BYTES, 1);
        assert_eq!(write(&mut session, 0, &data).sense_code(), (7, 0x27, 0));
        assert_eq!(read(&mut session, 0, 1).code, GOOD);
    });
}

/// Without discard a disk says so in every place, and UNMAP is no command.
#[test]
fn discard_off_is_honoured_everywhere() {
    with_store("memory:1M,discard=off", |server| {
        let mut session = session(server);
        let mut inquire = |page| {
            let command = session.command(LUN, &[0x12, 1, page, 0, 255, 0]);
            session.run(&ScsiCommand { read: true, expected_length: 255, ..command }).data
        };
        let limits = inquire(0xb0);
        assert_eq!(limits[20..32], [0; 12], "no UNMAP limits");
        let provisioning = inquire(0xb2);
        assert_eq!((provisioning[5] & 0xe0, provisioning[6] & 7), (0, 0));
        let mut capacity_16 = [0; 16];
        (capacity_16[0], capacity_16[1], capacity_16[13]) = (0x9e, 0x10, 32);
        let command = session.command(LUN, &capacity_16);
        let answer = session.run(&ScsiCommand { read: true, expected_length: 32, ..command });
        assert_eq!(answer.data[14] & 0xc0, 0, "LBPME");
        let unmap = session.command(LUN, &[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0]);
        let unmap = ScsiCommand { write: true, expected_length: 24, ..unmap };
        session.send(&Request::Command(unmap), &[0; 24]);
        assert_eq!(session.finish(unmap.itt).sense_code(), (5, 0x20, 0));
        let mut same = [0; 16];
        (same[0], same[1], same[13]) = (0x93, 0x08, 1);
        let same = session.command(LUN, &same);
        let same = ScsiCommand { write: true, expected_length: BLOCK, ..same };
        session.send(&Request::Command(same), &[0; BLOCK_BYTES]);
        assert_eq!(session.finish(same.itt).sense_code(), (5, 0x24, 0));
    });
}

#[test]
fn a_stripe_is_one_disk() {
    let folder = tempfile::tempdir().expect("a folder");
    let word = format!(
        "stripe:4K({};memory:1M,delay=1ms;memory:1M),limit=100000iops",
        file(folder.path())
    );
    with_store(&word, |server| {
        let mut session = session(server);
        let blocks = u32::try_from(3 * MIB).expect("small") / BLOCK;
        assert_eq!(last_lba(&capacity(&mut session)), blocks - 1);
        let data = pattern(16 * BLOCK_BYTES, 5);
        for block in [0, 7, 1000, blocks - 16] {
            assert_eq!(write(&mut session, block, &data).code, GOOD);
            assert_eq!(read(&mut session, block, 16).data, data);
        }
        let flush = session.command(LUN, &cdb10(0x35, 0, 0));
        assert_eq!(session.run(&flush).code, GOOD);
    });
    let kept = std::fs::read(folder.path().join("disk")).expect("a file");
    let first = 7 * BLOCK_BYTES;
    let in_file = kept[..first] == pattern(16 * BLOCK_BYTES, 5)[..first];
    assert!(in_file, "the first chunk is in the file");
}

/// A sparse file that is larger than what is left for it: hosts are warned, and can ask.
#[test]
fn hosts_hear_when_space_runs_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("disk");
    let made = std::fs::File::create(&path).expect("room");
    // As large as the file system allows; with terabytes free nothing can be shown.
    let largest = [1 << 43, 15 << 40, 1 << 50].into_iter().rev();
    if largest.into_iter().find(|bytes| made.set_len(*bytes).is_ok()).is_none() {
        return;
    }
    with_store(&format!("file:{}", path.display()), |server| {
        let mut session = session(server);
        server.target().note_usage();
        let command = session.test_unit_ready(LUN);
        let status = session.run(&command);
        let mut log = [0; 10];
        (log[0], log[2], log[8]) = (0x4d, 0x4c, 255);
        let command = session.command(LUN, &log);
        let page = session.run(&ScsiCommand { read: true, expected_length: 255, ..command });
        // A file system that cannot punch holes makes no thin disks.
        if page.code == GOOD {
            assert_eq!(status.sense_code(), (6, 0x38, 7));
            assert_eq!((page.data.len(), page.data[0]), (28, 0x0c));
            assert_ne!(page.data[8..12], [0; 4], "something is left");
        }
        server.target().note_usage();
        let command = session.test_unit_ready(LUN);
        assert_eq!(session.run(&command).code, GOOD, "told once");
    });
}

#[test]
fn a_disc_is_read_and_taken_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("disc.iso");
    let content = pattern(100 * 2048, 9);
    std::fs::write(&path, &content).expect("room");
    with_store(&format!("iso:{}", path.display()), |server| {
        let mut session = session(server);
        let command = session.command(LUN, &[0x12, 0, 0, 0, 96, 0]);
        let inquiry = session.run(&ScsiCommand { read: true, expected_length: 96, ..command });
        assert_eq!(inquiry.data[..2], [5, 0x80]);
        assert_eq!(capacity(&mut session).data, [0, 0, 0, 99, 0, 0, 8, 0]);
        let command = session.command(LUN, &cdb10(0x28, 98, 2));
        let read = session.run(&ScsiCommand { read: true, expected_length: 4096, ..command });
        assert_eq!(read.data, content[98 * 2048..]);
        let eject = session.command(LUN, &[0x1b, 0, 0, 0, 2, 0]);
        assert_eq!(session.run(&eject).code, GOOD);
        assert_eq!(capacity(&mut session).sense_code(), (2, 0x3a, 2));
        let load = session.command(LUN, &[0x1b, 0, 0, 0, 3, 0]);
        assert_eq!(session.run(&load).code, GOOD);
        assert_eq!(capacity(&mut session).sense_code(), (6, 0x28, 0));
        assert_eq!(capacity(&mut session).code, GOOD);
    });
}
