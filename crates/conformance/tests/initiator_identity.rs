// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Our initiator at a LUN behind which another disk comes: nothing that is meant for the first one
//! reaches the second one.
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;
use std::time::Instant;

use initiator::Config;
use initiator::Disk;
use initiator::Error;
use initiator::Initiator;
use initiator::Kind;
use initiator::Management;
use initiator::Options;
use initiator::Session;
use lunwire_conformance::disk;
use lunwire_conformance::mock;
use lunwire_conformance::mock::Answers;
use lunwire_conformance::mock::Mock;
use wire::iscsi::*;
use wire::scsi::sam::CHECK_CONDITION;
use wire::scsi::sam::GOOD;
use wire::scsi::vpd;
use wire::scsi::vpd::Designator;

/// Who a unit is.
#[derive(Clone, Debug)]
struct Who {
    naa: Option<[u8; 8]>,
    serial: Option<&'static str>,
    last_lba: u64,
    block: u32,
    /// It is not ready, and its size is not known.
    hides_size: bool,
    absent: bool,
}

const A: Who = Who {
    naa: Some([0x60, 1, 2, 3, 4, 5, 6, 7]),
    serial: Some("a"),
    last_lba: 2047,
    block: 512,
    hides_size: false,
    absent: false,
};
const B: Who = Who { naa: Some([0x60, 1, 2, 3, 4, 5, 6, 8]), ..A };
const SERIAL_A: Who = Who { naa: None, ..A };
/// A name that says the place, as some targets give.
const PLACE_A: Who = Who { naa: Some([0x30, 0, 0, 0, 0, 0, 0, 1]), ..A };
const NAMELESS: Who = Who { naa: None, serial: None, ..A };

/// What a write meets; the unit is another one from then on.
#[derive(Clone, Copy, Debug)]
enum Change {
    /// The session ends.
    Break,
    /// A unit attention.
    Attention(u8, u8),
}

struct Unit {
    who: Who,
    next: Option<(Change, Who)>,
    /// So many INQUIRYs are answered by INQUIRY DATA HAS CHANGED first.
    unrest: usize,
    is_told: bool,
    writes: Vec<Option<&'static str>>,
}

impl Unit {
    fn answer(&mut self, request: &Request, numbers: Numbers) -> Answers {
        let Request::Command(command) = request else { return Vec::new() };
        let is_write = matches!(command.cdb.bytes[0], 0x2a | 0x8a);
        if is_write && let Some((change, who)) = self.next.take() {
            self.who = who;
            return match change {
                Change::Attention(asc, ascq) => {
                    mock::ended(command, numbers, CHECK_CONDITION, Some([6, asc, ascq]))
                }
                Change::Break => disk::hang_up(numbers),
            };
        }
        if command.cdb.bytes[0] == 0x12 && self.unrest > 0 {
            self.is_told = !self.is_told;
            if self.is_told {
                return mock::ended(command, numbers, CHECK_CONDITION, Some([6, 0x3f, 3]));
            }
            self.unrest -= 1;
        }
        if self.who.absent && command.cdb.bytes[0] != 0x12 {
            return mock::ended(command, numbers, CHECK_CONDITION, Some([5, 0x25, 0]));
        }
        if self.who.hides_size && command.cdb.bytes[0] == 0x9e {
            return mock::ended(command, numbers, CHECK_CONDITION, Some([2, 4, 2]));
        }
        if is_write {
            self.writes.push(self.who.serial);
        }
        match self.data(&command.cdb.bytes) {
            Some(data) => mock::data(command, numbers, data),
            None => mock::ended(command, numbers, GOOD, None),
        }
    }

    fn data(&self, cdb: &[u8]) -> Option<Vec<u8>> {
        let peripheral = if self.who.absent { 0x7f } else { 0 };
        let page = |code, content: &[u8]| Some(vpd::page(peripheral, code, content));
        match (cdb[0], cdb[1], cdb[2]) {
            (0x12, 0, _) => Some([&[peripheral, 0, 5, 2, 31][..], &[b' '; 31]].concat()),
            (0x12, 1, 0) => {
                let names = self.who.naa.map(|_| 0x83);
                let serial = self.who.serial.map(|_| 0x80);
                page(0, &[Some(0), serial, names].into_iter().flatten().collect::<Vec<_>>())
            }
            (0x12, 1, 0x80) => page(0x80, self.who.serial.unwrap_or_default().as_bytes()),
            (0x12, 1, 0x83) => {
                let mut content = Vec::new();
                // Others are of the port, and may change.
                Designator::RelativeTargetPort(7).emit(&mut content);
                let naa = self.who.naa.iter().map(|naa| Designator::Naa(naa.to_vec()));
                naa.for_each(|naa| naa.emit(&mut content));
                page(0x83, &content)
            }
            (0x9e, 0x10, _) => {
                let mut capacity = disk::capacity(self.who.last_lba);
                capacity[8..12].copy_from_slice(&self.who.block.to_be_bytes());
                Some(capacity)
            }
            (0x1a, ..) => Some(vec![3, 0, 0, 0]),
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
    fn new(who: &Who) -> Self {
        Self::with(who, |_| {})
    }

    fn with(who: &Who, set: impl FnOnce(&mut Options)) -> Self {
        let (next, unrest, is_told, writes) = (None, 0, false, Vec::new());
        let unit = Unit { who: who.clone(), next, unrest, is_told, writes };
        let unit = Arc::new(Mutex::new(unit));
        let of_script = Arc::clone(&unit);
        let mock = Mock::start(move |request, _, numbers| {
            of_script.lock().unwrap().answer(request, numbers)
        });
        let target = Some("iqn.2026-01.example:t".to_owned());
        let initiator = Initiator::start(&Config::default()).unwrap();
        let mut options = Options::new(mock.portal().to_string(), target);
        set(&mut options);
        let session = initiator.connect(options).unwrap();
        Self { unit, session, _mock: mock }
    }

    /// How a write ends that meets `change`, behind which there is `after`.
    fn write(&self, change: Change, after: &Who) -> Result<(), Error> {
        let disk = Disk::open(&self.session, 0).unwrap();
        disk.write_at(0, &[1; 512]).unwrap();
        let mut unit = self.unit.lock().unwrap();
        unit.next = Some((change, after.clone()));
        unit.writes.clear();
        drop(unit);
        disk.write_at(512, &[2; 512])
    }

    fn writes(&self) -> usize {
        self.unit.lock().unwrap().writes.len()
    }
}

#[track_caller]
fn assert_refused(before: &Who, change: Change, after: &Who) -> Error {
    let lab = Lab::new(before);
    let error = lab.write(change, after).expect_err("it is another disk");
    assert!(matches!(error.kind(), Kind::OtherDisk { .. }), "{change:?}: {error}");
    // And so it stays, whatever is asked.
    assert!(matches!(Disk::open(&lab.session, 0).unwrap_err().kind(), Kind::OtherDisk { .. }));
    let reset = lab.session.manage(Management::LogicalUnitReset(0)).unwrap_err();
    assert!(matches!(reset.kind(), Kind::OtherDisk { .. }), "{reset}");
    assert_eq!(lab.writes(), 0, "{change:?}: a write reached the other disk");
    error
}

#[track_caller]
fn assert_goes_on(before: &Who, change: Change, after: &Who) {
    let lab = Lab::new(before);
    lab.write(change, after).unwrap();
    assert_eq!(lab.writes(), 1);
}

#[test]
fn nothing_goes_to_another_disk_behind_a_new_session() {
    let error = assert_refused(&A, Change::Break, &B);
    let text = error.to_string();
    assert!(text.contains("naa.6001020304050607"), "{text}");
    assert!(text.contains("naa.6001020304050608"), "{text}");
    assert_refused(&A, Change::Break, &Who { naa: None, ..A });
    assert_refused(&SERIAL_A, Change::Break, &Who { serial: Some("b"), ..SERIAL_A });
    assert_refused(&PLACE_A, Change::Break, &Who { serial: Some("b"), ..PLACE_A });
}

/// Also where nothing comes from the target meanwhile: what it is refused for is known here.
#[test]
fn what_is_meant_for_another_disk_is_refused_at_once() {
    let lab = Lab::with(&A, |options| options.settings.ping_interval = Duration::ZERO);
    let disk = Disk::open(&lab.session, 0).unwrap();
    lab.write(Change::Break, &B).expect_err("it is another disk");
    let (end, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || end.send(disk.write_at(0, &[1; 512])));
    let ended = ended.recv_timeout(Duration::from_secs(5)).expect("nobody is told");
    assert!(matches!(ended.unwrap_err().kind(), Kind::OtherDisk { .. }));
    assert_eq!(lab.writes(), 0);
}

#[test]
fn a_disk_without_names_is_known_by_its_size() {
    assert_refused(&NAMELESS, Change::Break, &Who { last_lba: 4095, ..NAMELESS });
    assert_goes_on(&NAMELESS, Change::Break, &NAMELESS);
}

/// Each block would be another one.
#[test]
fn nothing_goes_to_a_disk_whose_blocks_have_another_length() {
    for who in [&A, &SERIAL_A, &PLACE_A, &NAMELESS] {
        let after = Who { block: 4096, last_lba: 255, ..who.clone() };
        let error = assert_refused(who, Change::Break, &after).to_string();
        assert!(error.contains("512 bytes") && error.contains("4096 bytes"), "{error}");
        assert_refused(who, Change::Attention(0x2a, 0x09), &after);
    }
}

#[test]
fn the_same_disk_is_gone_on_with() {
    for who in [&A, &SERIAL_A, &PLACE_A] {
        assert_goes_on(who, Change::Break, who);
        let grown = Who { last_lba: 4095, ..who.clone() };
        assert_goes_on(who, Change::Break, &grown);
        assert_goes_on(who, Change::Attention(0x2a, 0x09), &grown);
    }
    // What it is told, START STOP UNIT too, waits for no size.
    assert_goes_on(&A, Change::Break, &Who { hides_size: true, ..A });
    // One name is enough, whatever else has changed.
    assert_goes_on(&A, Change::Break, &Who { serial: Some("b"), ..A });
}

/// Units are exchanged while sessions go on.
#[test]
fn nothing_goes_to_another_disk_within_a_session() {
    for (asc, ascq) in [(0x3f, 0x0e), (0x3f, 0x03), (0x3f, 0x05)] {
        assert_refused(&A, Change::Attention(asc, ascq), &B);
        assert_goes_on(&A, Change::Attention(asc, ascq), &A);
    }
    // The first one is what each new session hears.
    let lab = Lab::new(&A);
    lab.write(Change::Attention(0x29, 0), &A).unwrap();
    let error = lab.write(Change::Attention(0x29, 0), &B).unwrap_err();
    assert!(matches!(error.kind(), Kind::OtherDisk { .. }), "{error}");
}

#[test]
fn a_unit_that_is_gone_is_no_other_one_and_may_come_back() {
    let lab = Lab::new(&A);
    let error = lab.write(Change::Break, &Who { absent: true, ..A }).unwrap_err();
    assert_eq!(error.sense().map(|sense| (sense.asc, sense.ascq)), Some((0x25, 0)), "{error}");
    let unit = || lab.unit.lock().unwrap();
    unit().who = A;
    // It may have been asked for the last time just before.
    let until = Instant::now() + Duration::from_secs(20);
    let disk = loop {
        match Disk::open(&lab.session, 0) {
            Ok(disk) => break disk,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
    };
    disk.write_at(0, &[1; 512]).unwrap();
    unit().who.absent = true;
    disk.write_at(0, &[1; 512]).unwrap_err();
    unit().who = B;
    let error = disk.write_at(0, &[1; 512]).unwrap_err();
    assert!(matches!(error.kind(), Kind::OtherDisk { .. }), "{error}");
}

/// Each time it is asked who it is it says first that this has changed.
#[test]
fn a_unit_that_changes_while_it_is_asked_is_asked_again_and_not_for_ever() {
    for (who, unrest, settles) in [
        (&A, 1, true),
        (&A, 5, true),
        (&NAMELESS, 3, true),
        (&A, usize::MAX, false),
        (&PLACE_A, usize::MAX, false),
    ] {
        let lab = Lab::new(who);
        let disk = Disk::open(&lab.session, 0).unwrap();
        let set = |unrest, next| {
            let mut unit = lab.unit.lock().unwrap();
            (unit.unrest, unit.next) = (unrest, next);
        };
        set(unrest, Some((Change::Attention(0x3f, 3), who.clone())));
        let (end, ended) = std::sync::mpsc::channel();
        let writer = disk.clone();
        std::thread::spawn(move || end.send(writer.write_at(0, &[1; 512])));
        let ended = ended.recv_timeout(Duration::from_secs(20)).expect("it is asked for ever");
        assert_eq!(ended.is_ok(), settles, "{who:?}, {unrest}: {ended:?}");
        assert_eq!(lab.writes(), usize::from(settles), "{who:?}, {unrest}");
        if let Err(error) = ended {
            assert!(matches!(error.kind(), Kind::Unsettled { .. }), "{error}");
            assert!(error.to_string().contains("LUN 0"), "{error}");
        }
        // That is not the last word.
        set(0, None);
        disk.write_at(0, &[1; 512]).unwrap();
    }
}
