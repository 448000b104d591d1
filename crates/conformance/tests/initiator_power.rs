// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Our initiator at a disk that loses what it had acknowledged: a flush does not stand for what was
//! written before (SPC-4 §5.14, SBC-3 §4.15).
#![allow(clippy::unwrap_used)] // a test that panics has failed

use initiator::Completion;
use initiator::CompletionQueue;
use initiator::Data;
use initiator::Disk;
use initiator::DiskEvent;
use initiator::Fate;
use initiator::Kind;
use initiator::Operation;
use initiator::Retry;
use initiator::scsi::Opcode;
use initiator::scsi::command;
use lunwire_conformance::disk::Event;
use lunwire_conformance::disk::Lab;

/// A unit attention that the next command meets.
const fn attention(asc: u8, ascq: u8) -> Event {
    Event::Sense(0x70, 6, asc, ascq)
}

/// A disk that tells WCE, or does not.
fn lab(write_cache: Option<bool>) -> Lab {
    Lab::new(write_cache.map(|on| (on, false)))
}

/// Whether a flush behind `event`, which comes behind a write, says that all is well.
fn is_well(write_cache: Option<bool>, event: Option<Event>) -> bool {
    let lab = lab(write_cache);
    let disk = Disk::open(&lab.session, 0).unwrap();
    disk.write_at(0, &[1; 512]).unwrap();
    if let Some(event) = event {
        lab.next(event);
    }
    match disk.flush() {
        Ok(()) => true,
        Err(error) => {
            assert!(matches!(error.kind(), Kind::WritesLost), "{error}");
            false
        }
    }
}

#[test]
fn a_flush_behind_a_reset_does_not_stand_for_what_was_written_before() {
    for cache in [None, Some(true)] {
        assert!(is_well(cache, None));
        for (asc, ascq) in [(0x29, 0), (0x29, 1), (0x29, 3), (0x29, 4), (0x2a, 0), (0x2a, 1)] {
            assert!(!is_well(cache, Some(attention(asc, ascq))), "{asc:02x}/{ascq:02x}");
        }
        // The unit says that the nexus alone was lost, or something else.
        assert!(is_well(cache, Some(attention(0x29, 7))));
        assert!(is_well(cache, Some(attention(0x3f, 0x0e))));
        assert!(!is_well(cache, Some(Event::Vanish)), "a target that says nothing");
    }
}

#[test]
fn a_disk_that_writes_through_loses_nothing() {
    for event in [attention(0x29, 0), attention(0x2a, 1), Event::Vanish] {
        assert!(is_well(Some(false), Some(event)), "{event:?}");
    }
}

/// Whoever flushes next may have written what is lost.
#[test]
fn every_flush_tells_of_a_loss_until_the_disk_is_opened_again() {
    let lab = lab(Some(true));
    let disk = Disk::open(&lab.session, 0).unwrap();
    let other = disk.clone();
    disk.write_at(0, &[1; 512]).unwrap();
    disk.flush().unwrap();
    lab.next(attention(0x29, 0));
    disk.flush().expect("what was flushed is safe");
    disk.write_at(0, &[2; 512]).unwrap();
    lab.next(attention(0x29, 0));
    for disk in [&other, &disk, &other] {
        assert!(matches!(disk.flush().unwrap_err().kind(), Kind::WritesLost));
    }
    let disk = Disk::open(&lab.session, 0).unwrap();
    disk.write_at(0, &[2; 512]).unwrap();
    disk.flush().unwrap();
}

/// Whoever keeps what it has written hears of a loss before it hears of anything that was carried
/// out behind it, and may have it written again then.
#[test]
fn a_loss_is_told_before_what_is_carried_out_behind_it() {
    for (event, loss) in [
        (attention(0x29, 0), Some(Fate::Reset)),
        (Event::Vanish, Some(Fate::Reset)),
        (Event::Sense(0x71, 3, 0x0c, 0), Some(Fate::Failed)),
        (Event::Told(0x70, 6, 0x29, 0), Some(Fate::Reset)),
        (attention(0x29, 7), None),
        (Event::Break, None),
    ] {
        let lab = lab(Some(true));
        let disk = Disk::open(&lab.session, 0).unwrap();
        let queue = CompletionQueue::new().unwrap();
        disk.watch(&queue, 7);
        disk.write_at(0, &[1; 512]).unwrap();
        lab.next(event);
        disk.submit(&queue, 1, Operation::read(0, 512)).unwrap();
        let mut told = None;
        loop {
            match queue.reap() {
                Some(Completion::Event { tag: 7, event: DiskEvent::MayHaveLost(fate) }) => {
                    told = Some(fate);
                }
                Some(Completion::Ended { .. }) => break,
                Some(_) => {}
                None => drop(queue.wait(None)),
            }
        }
        assert_eq!(told, loss, "{event:?}");
        assert_eq!(disk.flush().is_err(), loss.is_some(), "{event:?}");
        disk.begin_again();
        disk.write_at(0, &[1; 512]).unwrap();
        disk.flush().unwrap();
    }
}

/// Meets what comes next.
fn ask(disk: &Disk) {
    let ready = command::plain(Opcode::TEST_UNIT_READY);
    disk.post(ready, Data::None, Retry::Always).wait().unwrap();
}

/// What the unit has told of its cache, waited for.
fn told_cache(queue: &CompletionQueue) -> bool {
    loop {
        match queue.reap() {
            Some(Completion::Event { event: DiskEvent::Cache { volatile }, .. }) => {
                return volatile;
            }
            Some(_) => {}
            None => drop(queue.wait(None)),
        }
    }
}

/// A unit may have another cache when it begins anew, and a host may switch it on (SPC-4 §5.13.3):
/// it is asked again.
#[test]
fn a_cache_that_comes_while_the_disk_is_used_is_heard_of() {
    for event in [attention(0x29, 0), attention(0x2a, 1), Event::Vanish, Event::Break] {
        let lab = lab(Some(false));
        let disk = Disk::open(&lab.session, 0).unwrap();
        let queue = CompletionQueue::new().unwrap();
        disk.watch(&queue, 7);
        disk.write_at(0, &[1; 512]).unwrap();
        lab.has_cache((true, true));
        lab.next(event);
        // It is carried out behind that.
        ask(&disk);
        assert!(told_cache(&queue), "{event:?}");
        let geometry = disk.geometry();
        assert!(geometry.volatile_cache && geometry.write_through, "{event:?}");
        disk.flush().expect("what was written before was not in a cache");
        disk.write_at(0, &[2; 512]).unwrap();
        lab.next(attention(0x29, 0));
        let lost = disk.flush().unwrap_err();
        assert!(matches!(lost.kind(), Kind::WritesLost), "{event:?}");
        disk.begin_again();
        lab.has_cache((false, false));
        lab.next(attention(0x2a, 1));
        ask(&disk);
        while told_cache(&queue) {}
        assert!(!disk.geometry().volatile_cache && !disk.geometry().write_through);
    }
}

/// Before a unit that was reset has told of its cache, it may have one.
#[test]
fn a_write_behind_a_reset_may_be_in_a_cache_that_nobody_knows_of_yet() {
    let lab = lab(Some(false));
    let disk = Disk::open(&lab.session, 0).unwrap();
    let queue = CompletionQueue::new().unwrap();
    disk.watch(&queue, 7);
    lab.has_cache((true, false));
    lab.next(attention(0x29, 0));
    disk.write_at(0, &[1; 512]).unwrap();
    lab.next(attention(0x29, 0));
    ask(&disk);
    assert!(told_cache(&queue));
    assert!(matches!(disk.flush().unwrap_err().kind(), Kind::WritesLost));
}
