// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Our initiator at a disk that tells once that acknowledged writes have failed: by a deferred
//! error (SPC-4 §4.5.7), or by a flush that fails (SBC-3 §5.22). Whoever asks again is told that
//! all is well.
#![allow(clippy::unwrap_used)] // a test that panics has failed

use initiator::Disk;
use initiator::Kind;
use lunwire_conformance::disk::Event;
use lunwire_conformance::disk::Lab;
use wire::scsi::sam::CHECK_CONDITION;

const CACHING: Option<(bool, bool)> = Some((true, false));

/// It is about a command that was acknowledged, and the one that hears of it was not carried out.
#[test]
fn a_deferred_error_is_of_what_was_written_before() {
    for code in [0x71, 0xf1, 0x73] {
        for (key, asc) in [(0x0b, 0x0c), (3, 0x0c), (4, 0x44), (1, 0x0c), (5, 0x24), (2, 4)] {
            let lab = Lab::new(CACHING);
            let disk = Disk::open(&lab.session, 0).unwrap();
            disk.write_at(0, &[1; 512]).unwrap();
            lab.next(Event::Sense(code, key, asc, 0));
            let next = disk.write_at(512, &[2; 512]);
            assert!(next.is_ok(), "{code:02x}h, key {key:x}: it has not failed: {next:?}");
            let error = disk.flush().expect_err("the first write is lost");
            assert!(matches!(error.kind(), Kind::WritesLost), "{code:02x}h, key {key:x}: {error}");
        }
    }
}

/// A target may tell of it without being asked.
#[test]
fn an_asynchronous_event_may_tell_of_lost_writes() {
    for (event, lost) in [
        (Event::Told(0x71, 3, 0x0c, 0), true),
        (Event::Told(0x70, 6, 0x29, 0), true),
        (Event::Told(0x70, 6, 0x2a, 9), false),
    ] {
        let lab = Lab::new(CACHING);
        let disk = Disk::open(&lab.session, 0).unwrap();
        disk.write_at(0, &[1; 512]).unwrap();
        lab.next(event);
        disk.write_at(512, &[2; 512]).unwrap();
        assert_eq!(disk.flush().is_err(), lost, "{event:?}");
    }
}

#[test]
fn a_failed_flush_is_not_believed_when_it_is_repeated() {
    for (event, lost) in [
        (Event::Sense(0x70, 0x0b, 0x44, 0), true),
        (Event::Sense(0x72, 0x0b, 0x44, 0), true),
        (Event::Sense(0x70, 3, 0x0c, 2), true),
        (Event::Sense(0x70, 4, 0x44, 0), true),
        (Event::Status(CHECK_CONDITION), true),
        // TASK ABORTED.
        (Event::Status(0x40), true),
        (Event::Silence, true),
        (Event::Break, true),
        // It was not carried out: BUSY, TASK SET FULL, REPORTED LUNS DATA HAS CHANGED.
        (Event::Status(8), false),
        (Event::Status(0x28), false),
        (Event::Sense(0x70, 6, 0x3f, 0x0e), false),
    ] {
        let lab = Lab::new(CACHING);
        let disk = Disk::open(&lab.session, 0).unwrap();
        disk.write_at(0, &[1; 512]).unwrap();
        lab.flushes(event);
        // Sent again where that may be done; else the error is there to see.
        let first = disk.flush();
        let second = disk.flush();
        assert_eq!(first.is_err(), lost, "{event:?}: {first:?}");
        assert_eq!(second.is_err(), lost, "{event:?}: {second:?}");
        assert!(!lost || matches!(second.unwrap_err().kind(), Kind::WritesLost), "{event:?}");
        let disk = Disk::open(&lab.session, 0).unwrap();
        disk.write_at(0, &[1; 512]).unwrap();
        disk.flush().expect("what was written again is safe");
    }
}

/// Such a disk promises nothing that it could keep.
#[test]
fn a_cache_that_cannot_be_flushed_is_no_stable_storage() {
    for (caching, fails) in [
        (Some((true, false)), true),
        (Some((true, true)), true),
        (Some((false, false)), false),
        (None, false),
    ] {
        for asc in [0x20, 0x24] {
            let lab = Lab::new(caching);
            let disk = Disk::open(&lab.session, 0).unwrap();
            disk.write_at(0, &[1; 512]).unwrap();
            lab.flushes(Event::Sense(0x70, 5, asc, 0));
            let flushed = disk.flush();
            assert_eq!(flushed.is_err(), fails, "{caching:?}: {flushed:?}");
        }
    }
}

/// What a unit says of its cache excuses resets, and no failure that it tells of.
#[test]
fn a_failure_that_was_told_is_not_excused_where_the_unit_writes_through() {
    let deferred = Event::Sense(0x71, 3, 0x0c, 0);
    for fua in [false, true] {
        let lab = Lab::new(Some((false, fua)));
        let disk = Disk::open(&lab.session, 0).unwrap();
        disk.write_at(0, &[1; 512]).unwrap();
        lab.next(deferred);
        disk.write_at(512, &[2; 512]).unwrap();
        for _ in 0..2 {
            let error = disk.flush().expect_err("the first write is lost");
            assert!(matches!(error.kind(), Kind::WritesLost), "{error}");
        }
    }
    for (event, lost) in [
        (Event::Sense(0x70, 0x0b, 0x44, 0), true),
        (Event::Told(0x71, 3, 0x0c, 0), true),
        (deferred, true),
        // Nothing was told.
        (Event::Sense(0x70, 6, 0x29, 0), false),
        (Event::Break, false),
        (Event::Silence, false),
        // TASK ABORTED, by another host.
        (Event::Status(0x40), false),
    ] {
        let lab = Lab::new(Some((false, false)));
        let disk = Disk::open(&lab.session, 0).unwrap();
        disk.write_at(0, &[1; 512]).unwrap();
        lab.flushes(event);
        let _ = disk.flush();
        assert_eq!(disk.flush().is_err(), lost, "{event:?}");
    }
}

/// A reset is excused for what was written before it, and for nothing else.
#[test]
fn what_is_written_behind_an_excused_reset_is_still_asked_after() {
    let lab = Lab::new(Some((false, false)));
    let disk = Disk::open(&lab.session, 0).unwrap();
    disk.write_at(0, &[1; 512]).unwrap();
    lab.next(Event::Sense(0x70, 6, 0x29, 0));
    disk.flush().unwrap();
    disk.write_at(0, &[1; 512]).unwrap();
    lab.next(Event::Sense(0x71, 3, 0x0c, 0));
    let error = disk.flush().expect_err("the second write is lost");
    assert!(matches!(error.kind(), Kind::WritesLost), "{error}");
}

/// Nobody is told but whoever asks something else.
#[test]
fn a_failure_is_heard_of_where_there_is_nothing_to_flush() {
    for caching in [Some((false, false)), None] {
        let lab = Lab::new(caching);
        let disk = Disk::open(&lab.session, 0).unwrap();
        disk.write_at(0, &[1; 512]).unwrap();
        lab.flushes(Event::Sense(0x70, 5, 0x20, 0));
        disk.flush().unwrap();
        lab.next(Event::Sense(0x71, 3, 0x0c, 0));
        lab.flushes(Event::Sense(0x70, 5, 0x20, 0));
        let error = disk.flush().expect_err("nothing has confirmed the write");
        assert!(matches!(error.kind(), Kind::WritesLost), "{caching:?}: {error}");
    }
}

/// FUA has promised too much; whoever relies on it never flushes.
#[test]
fn a_durable_write_tells_of_an_earlier_one_that_failed() {
    for caching in [Some((true, true)), Some((false, true))] {
        let lab = Lab::new(caching);
        let disk = Disk::open(&lab.session, 0).unwrap();
        let write = |at| {
            let data = initiator::Slice::from(vec![1; 512]);
            disk.start(initiator::Operation::write(at, data).durable()).unwrap().wait().map(drop)
        };
        write(0).unwrap();
        disk.flush().unwrap();
        lab.next(Event::Sense(0x71, 3, 0x0c, 0));
        write(512).expect("what was flushed is safe");
        lab.next(Event::Sense(0x70, 6, 0x29, 0));
        write(1024).expect("a reset takes nothing that is on stable storage");
        disk.flush().expect("nor does a flush say so");
        write(512).unwrap();
        lab.next(Event::Sense(0x71, 3, 0x0c, 0));
        for at in [1024, 1536] {
            let error = write(at).expect_err("that before is lost");
            assert!(matches!(error.kind(), Kind::WritesLost), "{caching:?}: {error}");
        }
        disk.flush().expect_err("and so the flush says");
    }
}
