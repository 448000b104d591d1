// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Our initiator at a disk that loses what it had acknowledged: a flush does not stand for what was
//! written before (SPC-4 §5.14, SBC-3 §4.15).
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::sync::Arc;
use std::sync::Mutex;

use initiator::Config;
use initiator::Disk;
use initiator::Initiator;
use initiator::Kind;
use initiator::Options;
use initiator::Session;
use lunwire_conformance::mock;
use lunwire_conformance::mock::Answers;
use lunwire_conformance::mock::Mock;
use wire::iscsi::*;
use wire::scsi::sam::CHECK_CONDITION;
use wire::scsi::sam::GOOD;
use wire::scsi::vpd;

/// A unit attention that the next command meets, or the end of the session.
#[derive(Clone, Copy, Debug)]
enum Event {
    Attention(u8, u8),
    Break,
}

/// A disk of 2048 blocks.
struct Unit {
    /// WCE, where the unit tells it.
    write_cache: Option<bool>,
    next: Option<Event>,
}

impl Unit {
    fn answer(&mut self, request: &Request, numbers: Numbers) -> Answers {
        let Request::Command(command) = request else { return Vec::new() };
        match self.next.take() {
            Some(Event::Attention(asc, ascq)) => {
                let sense = Some([6, asc, ascq]);
                return mock::ended(command, numbers, CHECK_CONDITION, sense);
            }
            Some(Event::Break) => {
                let answer = LogoutResponse {
                    response: 0,
                    itt: Itt(0x0bad),
                    numbers,
                    time2wait: 0,
                    time2retain: 0,
                };
                return vec![(Response::Logout(answer), Vec::new())];
            }
            None => {}
        }
        match self.data(&command.cdb.bytes) {
            Some(data) => mock::data(command, numbers, data),
            None => mock::ended(command, numbers, GOOD, None),
        }
    }

    fn data(&self, cdb: &[u8]) -> Option<Vec<u8>> {
        match cdb {
            [0x12, 0, ..] => Some([&[0, 0, 5, 2, 31][..], &[0; 31]].concat()),
            [0x12, 1, page, ..] => Some(vpd::page(0, *page, &[0])),
            [0x9e, 0x10, ..] => {
                Some([&2047u64.to_be_bytes()[..], &512u32.to_be_bytes(), &[0; 20]].concat())
            }
            [0x1a, ..] => Some(match self.write_cache {
                None => vec![3, 0, 0, 0],
                Some(on) => {
                    let mut page = vec![0; 24];
                    (page[0], page[4], page[5]) = (23, 0x08, 18);
                    page[6] = u8::from(on) << 2;
                    page
                }
            }),
            _ => None,
        }
    }
}

struct Lab {
    unit: Arc<Mutex<Unit>>,
    session: Session,
    _mock: Mock,
}

impl Lab {
    fn new(write_cache: Option<bool>) -> Self {
        let unit = Arc::new(Mutex::new(Unit { write_cache, next: None }));
        let of_script = Arc::clone(&unit);
        let mock = Mock::start(move |request, _, numbers| {
            of_script.lock().unwrap().answer(request, numbers)
        });
        let target = Some("iqn.2026-01.example:t".to_owned());
        let initiator = Initiator::start(&Config::default()).unwrap();
        let session = initiator.connect(Options::new(mock.portal().to_string(), target)).unwrap();
        Self { unit, session, _mock: mock }
    }

    fn next(&self, event: Event) {
        self.unit.lock().unwrap().next = Some(event);
    }
}

/// Whether a flush behind `event`, which comes behind a write, says that all is well.
fn is_well(write_cache: Option<bool>, event: Option<Event>) -> bool {
    let lab = Lab::new(write_cache);
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
            assert!(!is_well(cache, Some(Event::Attention(asc, ascq))), "{asc:02x}/{ascq:02x}");
        }
        // The unit says that the nexus alone was lost, or something else.
        assert!(is_well(cache, Some(Event::Attention(0x29, 7))));
        assert!(is_well(cache, Some(Event::Attention(0x3f, 0x0e))));
        assert!(!is_well(cache, Some(Event::Break)), "a target that says nothing");
    }
}

#[test]
fn a_disk_that_writes_through_loses_nothing() {
    for event in [Event::Attention(0x29, 0), Event::Attention(0x2a, 1), Event::Break] {
        assert!(is_well(Some(false), Some(event)), "{event:?}");
    }
}

/// Whoever flushes next may have written what is lost.
#[test]
fn every_flush_tells_of_a_loss_until_the_disk_is_opened_again() {
    let lab = Lab::new(Some(true));
    let disk = Disk::open(&lab.session, 0).unwrap();
    let other = disk.clone();
    disk.write_at(0, &[1; 512]).unwrap();
    disk.flush().unwrap();
    lab.next(Event::Attention(0x29, 0));
    disk.flush().expect("what was flushed is safe");
    disk.write_at(0, &[2; 512]).unwrap();
    lab.next(Event::Attention(0x29, 0));
    for disk in [&other, &disk, &other] {
        assert!(matches!(disk.flush().unwrap_err().kind(), Kind::WritesLost));
    }
    let disk = Disk::open(&lab.session, 0).unwrap();
    disk.write_at(0, &[2; 512]).unwrap();
    disk.flush().unwrap();
}
