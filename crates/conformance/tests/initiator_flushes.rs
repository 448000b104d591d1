// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Our initiator at a disk that tells once that acknowledged writes have failed: by a deferred
//! error (SPC-4 §4.5.7), or by a flush that fails (SBC-3 §5.22). Whoever asks again is told that
//! all is well.
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

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

/// What becomes of a command in place of a good end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// Sense data: its response code, sense key and codes.
    Sense(u8, u8, u8, u8),
    Status(u8),
    /// No answer, and the next session hears that its nexus was lost, no more.
    Break,
    /// No answer until it is aborted.
    Silence,
    /// A good end behind an asynchronous event with sense data as above.
    Told(u8, u8, u8, u8),
}

/// A disk of 2048 blocks.
struct Unit {
    /// WCE and DPOFUA, where the unit tells them.
    caching: Option<(bool, bool)>,
    /// What the next commands meet, whichever they are.
    next: VecDeque<Event>,
    /// What the next flushes meet.
    flushes: VecDeque<Event>,
}

/// Sense data behind its length.
fn sense(event: Event) -> Vec<u8> {
    let (Event::Sense(code, key, asc, ascq) | Event::Told(code, key, asc, ascq)) = event else {
        return Vec::new();
    };
    match code & 0x7f {
        0x72 | 0x73 => vec![0, 8, code, key, asc, ascq, 0, 0, 0, 0],
        _ => vec![0, 18, code, 0, key, 0, 0, 0, 0, 10, 0, 0, 0, 0, asc, ascq, 0, 0, 0, 0],
    }
}

impl Unit {
    fn answer(&mut self, request: &Request, numbers: Numbers) -> Answers {
        let command = match request {
            Request::Command(command) => command,
            Request::TaskManagement(pdu) => {
                let (response, additional, itt) = (0, 0, pdu.itt);
                let answer = TaskManagementResponse { response, additional, itt, numbers };
                return vec![(Response::TaskManagement(answer), Vec::new())];
            }
            _ => return Vec::new(),
        };
        let flushes = matches!(command.cdb.bytes, [0x35 | 0x91, ..]);
        let event = self.next.pop_front();
        match event.or_else(|| self.flushes.pop_front().filter(|_| flushes)) {
            None => self.carry_out(command, numbers),
            Some(Event::Status(status)) => mock::ended(command, numbers, status, None),
            Some(event @ Event::Sense(..)) => {
                let answer = mock::status(command, numbers, CHECK_CONDITION);
                vec![(Response::Scsi(answer), sense(event))]
            }
            Some(Event::Silence) => Vec::new(),
            Some(Event::Break) => {
                self.next.push_back(Event::Sense(0x70, 6, 0x29, 7));
                let itt = Itt(0x0bad);
                let (response, time2wait, time2retain) = (0, 0, 0);
                let answer = LogoutResponse { response, itt, numbers, time2wait, time2retain };
                vec![(Response::Logout(answer), Vec::new())]
            }
            Some(event @ Event::Told(..)) => {
                let lun = LunField::default();
                let (parameter1, parameter2, parameter3) = (0, 0, 0);
                let (event, vcode, data) = (0, 0, sense(event));
                let message =
                    AsyncMessage { lun, numbers, event, vcode, parameter1, parameter2, parameter3 };
                let mut answers = vec![(Response::Async(message), data)];
                let behind = Numbers { stat_sn: StatSn(numbers.stat_sn.0 + 1), ..numbers };
                answers.extend(self.carry_out(command, behind));
                answers
            }
        }
    }

    fn carry_out(&self, command: &ScsiCommand, numbers: Numbers) -> Answers {
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
            [0x1a, ..] => Some(match self.caching {
                None => vec![3, 0, 0, 0],
                Some((on, fua)) => {
                    let mut page = vec![0; 24];
                    (page[0], page[2], page[4], page[5]) = (23, u8::from(fua) << 4, 0x08, 18);
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
    fn new(caching: Option<(bool, bool)>) -> Self {
        let unit = Unit { caching, next: VecDeque::new(), flushes: VecDeque::new() };
        let unit = Arc::new(Mutex::new(unit));
        let of_script = Arc::clone(&unit);
        let mock = Mock::start(move |request, _, numbers| {
            of_script.lock().unwrap().answer(request, numbers)
        });
        let target = Some("iqn.2026-01.example:t".to_owned());
        let initiator = Initiator::start(&Config::default()).unwrap();
        let mut options = Options::new(mock.portal().to_string(), target);
        options.settings.command_timeout = Duration::from_millis(500);
        let session = initiator.connect(options).unwrap();
        Self { unit, session, _mock: mock }
    }

    fn next(&self, event: Event) {
        self.unit.lock().unwrap().next.push_back(event);
    }

    fn flushes(&self, event: Event) {
        self.unit.lock().unwrap().flushes.push_back(event);
    }
}

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
        (Event::Status(0x40), true),
        (Event::Told(0x71, 3, 0x0c, 0), true),
        (deferred, true),
        // Nothing was told.
        (Event::Sense(0x70, 6, 0x29, 0), false),
        (Event::Break, false),
        (Event::Silence, false),
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
