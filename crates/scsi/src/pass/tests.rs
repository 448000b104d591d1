// SPDX-License-Identifier: Apache-2.0 OR MIT

use super::*;
use crate::Identity;
use crate::UnitError;
use crate::testing::codes;
use crate::testing::names;
use crate::testing::request;
use crate::testing::run;
use crate::testing::sense_of;
use alloc::collections::VecDeque;
use alloc::vec;
use buf::Pool;
use proptest::prelude::*;
use store::Outcome;
use store::Store;
use store::device::Command;
use store::device::Passage;
use store::device::answer_of;
use store::foreign::Answers;
use store::foreign::Completer;
use store::foreign::Errand;
use store::foreign::Foreign;
use wire::scsi::Lun;

/// What a fake device does with a command.
#[derive(Clone, Debug)]
enum Given {
    /// GOOD with these bytes, as far as there is room, or with all that was sent.
    Data(Vec<u8>),
    Status(u8, Vec<u8>, Vec<u8>),
    Failed(Failure),
}

/// A device that answers as it was told, and with GOOD when it was told no more.
#[derive(Debug)]
pub(crate) struct Fake {
    facts: Facts,
    given: Arc<spin::Mutex<VecDeque<Given>>>,
    seen: spin::Mutex<Vec<Command>>,
    sent: spin::Mutex<Vec<Command>>,
}

#[derive(Debug)]
struct Work {
    command: Command,
    given: Arc<spin::Mutex<VecDeque<Given>>>,
}

impl Foreign for Work {
    fn begin(&self, mut completer: Completer) {
        let given = self.given.lock().pop_front().unwrap_or_else(|| Given::Data(vec![]));
        let (status, sense, bytes) = match given {
            Given::Failed(failure) => return completer.fail_command(failure),
            Given::Data(bytes) => (0, vec![], bytes),
            Given::Status(status, sense, bytes) => (status, sense, bytes),
        };
        let moved = match &self.command.transfer {
            Transfer::Nothing => 0,
            Transfer::Out(data) => data.len(),
            Transfer::In(_) => {
                let room = completer.room();
                let moved = bytes.len().min(room.len());
                room[..moved].copy_from_slice(&bytes[..moved]);
                moved
            }
        };
        completer.answer_command(status, sense, u32::try_from(moved).expect("small"));
    }
}

impl Device for Fake {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn carry_out(&self, command: Command) -> Errand {
        self.seen.lock().push(command.clone());
        let room = if let Transfer::In(room) = command.transfer { room } else { 0 };
        Errand::reading(Arc::new(Work { command, given: Arc::clone(&self.given) }), room)
    }

    fn reset(&self) -> Errand {
        unreachable!("a pump resets devices")
    }

    fn send(&self, command: Command) {
        self.sent.lock().push(command);
    }

    fn close(&self) -> Result<(), store::Error> {
        Ok(())
    }
}

/// Carries out what a step asks of a device, as a pump would.
pub(crate) fn carried_out(errand: &Errand) -> Answer {
    #[derive(Debug, Default)]
    struct Inbox(spin::Mutex<Option<Outcome>>);
    impl Answers for Inbox {
        fn answer(&self, _: u64, outcome: Outcome) {
            *self.0.lock() = Some(outcome);
        }
    }
    let pool = Pool::new(8 << 20).expect("room");
    let room = usize::try_from(errand.room()).expect("small");
    let buf = (room > 0).then(|| pool.take(room).expect("room"));
    let inbox = Arc::new(Inbox::default());
    let to = Arc::clone(&inbox);
    errand.begin(to, 0, buf);
    let outcome = inbox.0.lock().take();
    answer_of(outcome.expect("a fake device answers at once"))
}

/// A device and two initiators that have heard its first unit attention.
struct Bench {
    device: Arc<Fake>,
    unit: Arc<LogicalUnit>,
    nexuses: [Nexus; 2],
}

impl Bench {
    fn of(kind: u8) -> Self {
        let facts = Facts { kind, removable: kind != 0, transfer_max: 1 << 20, capacity: None };
        let device = Arc::new(Fake {
            facts,
            given: Arc::default(),
            seen: spin::Mutex::default(),
            sent: spin::Mutex::default(),
        });
        let store = Passage::new(Arc::<Fake>::clone(&device));
        let unit = LogicalUnit::passing(identity(), Arc::new(store));
        let unit = Arc::new(unit.expect("a device"));
        let nexuses = ["iqn.a,i,0x1", "iqn.b,i,0x1"]
            .map(|name| Nexus::new(names(name), vec![(0, Arc::clone(&unit))]));
        let bench = Self { device, unit, nexuses };
        for at in 0..2 {
            assert_eq!(codes(bench.sense(at, &TEST_UNIT_READY)), (6, 0x29, 0));
        }
        assert!(bench.seen().is_empty(), "what the unit tells the device need not hear of");
        bench
    }

    fn will(&self, given: Given) {
        self.device.given.lock().push_back(given);
    }

    fn run(&self, at: usize, cdb: &[u8], out: &[u8], room: u32) -> Completion {
        run(&self.nexuses[at], request(Lun::Unit(0), cdb, out, room), out)
    }

    fn sense(&self, at: usize, cdb: &[u8]) -> Option<Sense> {
        sense_of(&self.run(at, cdb, &[], 0))
    }

    fn data(&self, at: usize, cdb: &[u8], room: u32) -> Vec<u8> {
        let completion = self.run(at, cdb, &[], room);
        assert_eq!(completion.status, GOOD);
        completion.data_in.map(|data| data.to_vec()).unwrap_or_default()
    }

    /// Operation codes that have reached the device since the last time.
    fn seen(&self) -> Vec<u8> {
        core::mem::take(&mut *self.device.seen.lock()).iter().map(|seen| seen.cdb[0]).collect()
    }
}

fn identity() -> Identity {
    Identity::derive("iqn.2026-01.org.example:target", 0, "LUNWIRE", "device")
}

const TEST_UNIT_READY: [u8; 6] = [0; 6];
const DISK: u8 = 0;
const TAPE: u8 = 1;
const OPTICAL: u8 = 5;
const CHANGER: u8 = 8;

fn fixed(key: u8, asc: u8, ascq: u8) -> Vec<u8> {
    let mut sense = vec![0; 18];
    (sense[0], sense[2], sense[7], sense[12], sense[13]) = (0x70, key, 10, asc, ascq);
    sense
}

#[test]
fn a_store_with_blocks_is_no_device() {
    let store: Arc<dyn Store> = Arc::new(store::null::Null::new(512).expect("a store"));
    assert_eq!(LogicalUnit::passing(identity(), store).err(), Some(UnitError::NoDevice));
}

#[test]
fn data_status_sense_and_residual_are_those_of_the_device() {
    let bench = Bench::of(TAPE);
    bench.will(Given::Data(vec![7; 300]));
    let read = bench.run(0, &[0x08, 0, 0, 2, 0, 0], &[], 512);
    assert_eq!((read.status, read.presented), (GOOD, 300));
    assert_eq!(read.data_in.expect("data").to_vec(), [7; 300]);
    // A short block: data, ILI and the difference in INFORMATION.
    let mut short = fixed(0, 0, 0);
    (short[0], short[2]) = (0xf0, 0x20);
    bench.will(Given::Status(CHECK_CONDITION, short.clone(), vec![8; 100]));
    let read = bench.run(0, &[0x08, 0, 0, 2, 0, 0], &[], 512);
    assert_eq!((read.status, read.presented, read.sense), (CHECK_CONDITION, 100, short));
    assert_eq!(read.data_in.expect("data").to_vec(), [8; 100]);
    bench.will(Given::Status(0x28, vec![], vec![]));
    assert_eq!(bench.run(0, &TEST_UNIT_READY, &[], 0).status, 0x28);
    let written = bench.run(1, &[0x0a, 0, 0, 0, 3, 0], &[1, 2, 3], 0);
    assert_eq!((written.status, written.presented), (GOOD, 3));
    let seen = bench.device.seen.lock().pop().expect("a write");
    assert!(matches!(&seen.transfer, Transfer::Out(data) if data.to_vec() == [1, 2, 3]));
    let totals = bench.unit.figures();
    assert_eq!((totals.reads, totals.bytes_read), (1, 300));
    assert_eq!((totals.writes, totals.bytes_written), (1, 3));
}

#[test]
fn commands_that_nobody_knows_go_as_the_initiator_says() {
    let bench = Bench::of(DISK);
    bench.will(Given::Data(vec![1; 8]));
    assert_eq!(bench.data(0, &[0xc1, 0, 0, 9], 8), [1; 8]);
    assert_eq!(bench.run(0, &[0xc2, 0, 0, 9], &[5; 7], 0).presented, 7);
    assert_eq!(bench.run(0, &[0xc3], &[], 0).status, GOOD);
    assert_eq!(bench.seen(), [0xc1, 0xc2, 0xc3]);
    // Both ways at once, or more than there is room for.
    assert_eq!(codes(sense_of(&bench.run(0, &[0xc4], &[1], 1))), (5, 0x20, 0));
    let long = bench.run(0, &[0x28, 0, 0, 0, 0, 0, 0, 9, 0, 0], &[], (1 << 20) + 1);
    assert_eq!(codes(sense_of(&long)), (5, 0x24, 0));
    assert!(bench.seen().is_empty());
}

#[test]
fn a_unit_attention_of_the_device_is_for_every_nexus() {
    let bench = Bench::of(DISK);
    bench.will(Given::Status(CHECK_CONDITION, fixed(6, 0x28, 0), vec![]));
    assert_eq!(codes(bench.sense(0, &TEST_UNIT_READY)), (6, 0x28, 0));
    assert_eq!(bench.seen(), [0]);
    assert_eq!(bench.sense(0, &TEST_UNIT_READY), None, "it has heard it");
    assert_eq!(codes(bench.sense(1, &TEST_UNIT_READY)), (6, 0x28, 0));
    assert_eq!(bench.sense(1, &TEST_UNIT_READY), None);
    // Codes without a name here, each once, and what a reset covers not at all.
    for (asc, ascq) in [(0x3f, 0x01), (0x5d, 0x10), (0x3f, 0x01)] {
        bench.will(Given::Status(CHECK_CONDITION, fixed(6, asc, ascq), vec![]));
        assert_eq!(codes(bench.sense(0, &TEST_UNIT_READY)), (6, asc, ascq));
    }
    assert_eq!(bench.nexuses[1].pending_sense(&bench.unit).map(|next| next.more), Some(true));
    let told = bench.data(1, &[3, 0, 0, 0, 18, 0], 18);
    assert_eq!(codes(Sense::parse(&told)), (6, 0x3f, 0x01));
    assert_eq!(codes(bench.sense(1, &TEST_UNIT_READY)), (6, 0x5d, 0x10));
    assert_eq!(bench.sense(1, &TEST_UNIT_READY), None);
    bench.will(Given::Status(CHECK_CONDITION, fixed(6, 0x29, 0x02), vec![]));
    assert_eq!(codes(bench.sense(1, &TEST_UNIT_READY)), (6, 0x29, 2));
    assert_eq!(codes(bench.sense(0, &TEST_UNIT_READY)), (6, 0x29, 0));
}

#[test]
fn request_sense_asks_the_device_when_the_unit_has_nothing_to_tell() {
    let bench = Bench::of(DISK);
    bench.unit.logical_unit_reset();
    let told = bench.data(0, &[3, 0, 0, 0, 18, 0], 18);
    assert_eq!(codes(Sense::parse(&told)), (6, 0x29, 3));
    assert!(bench.seen().is_empty());
    bench.will(Given::Data(fixed(2, 4, 4)));
    let told = bench.data(0, &[3, 0, 0, 0, 18, 0], 18);
    assert_eq!(codes(Sense::parse(&told)), (2, 4, 4));
    assert_eq!(bench.seen(), [3]);
}

#[test]
fn a_unit_attention_that_request_sense_takes_is_for_every_nexus() {
    let bench = Bench::of(TAPE);
    bench.will(Given::Data(fixed(6, 0x28, 0)));
    let told = bench.data(0, &[3, 0, 0, 0, 18, 0], 18);
    assert_eq!(codes(Sense::parse(&told)), (6, 0x28, 0));
    assert_eq!(bench.sense(0, &TEST_UNIT_READY), None, "it has heard it");
    assert_eq!(codes(bench.sense(1, &TEST_UNIT_READY)), (6, 0x28, 0));
}

/// A host that is reset, or gives up, with a command under way that the device ends after all.
#[test]
fn what_a_device_says_to_a_command_that_has_ended_is_not_lost() {
    let late = |kind, cdb: &[u8], out: &[u8], given: Given| {
        let bench = Bench::of(kind);
        bench.will(given);
        let (mut gone, mut step) = bench.nexuses[0].start(&request(Lun::Unit(0), cdb, out, 0));
        if let Step::ReceiveDataOut { .. } = step {
            step = gone.resume(&bench.nexuses[0], Input::DataOut(out.to_vec().into()));
        }
        let Step::Device(errand) = step else { panic!("{step:?}") };
        gone.outlast();
        gone.answered_late(&carried_out(&errand));
        drop(gone);
        bench
    };
    // Nobody has heard a unit attention, not even who met it.
    let medium = Given::Status(CHECK_CONDITION, fixed(6, 0x28, 0), vec![]);
    let bench = late(DISK, &[0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[0; 512], medium);
    for at in 0..2 {
        assert_eq!(codes(bench.sense(at, &TEST_UNIT_READY)), (6, 0x28, 0));
        assert_eq!(bench.sense(at, &TEST_UNIT_READY), None);
    }
    // What it has changed has changed.
    let bench = late(TAPE, &[0x15, 0x10, 0, 0, 12, 0], &[0; 12], Given::Data(vec![]));
    for at in 0..2 {
        assert_eq!(codes(bench.sense(at, &TEST_UNIT_READY)), (6, 0x2a, 1));
    }
    // Who was not told that removal is prevented does not prevent it.
    let prevent = [0x1e, 0, 0, 0, 1, 0];
    let bench = late(OPTICAL, &prevent, &[], Given::Data(vec![]));
    let sent: Vec<_> =
        bench.device.sent.lock().drain(..).map(|sent| sent.cdb[..6].to_vec()).collect();
    assert_eq!(sent, [[0x1e, 0, 0, 0, 0, 0]]);
    let bench = late(DISK, &[0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[0; 512], Given::Data(vec![]));
    assert_eq!(bench.sense(1, &TEST_UNIT_READY), None, "nothing to hear");
}

#[test]
fn reservations_are_kept_here_and_the_device_never_hears_of_them() {
    let bench = Bench::of(TAPE);
    assert_eq!(bench.run(0, &[0x16, 0, 0, 0, 0, 0], &[], 0).status, GOOD);
    // What nobody knows conflicts, too; INQUIRY does not.
    for cdb in [&[0x08, 0, 0, 0, 9, 0][..], &[0x01, 0, 0, 0, 0, 0], &[0xc9]] {
        assert_eq!(bench.run(1, cdb, &[], 0).status, 0x18, "{cdb:x?}");
    }
    assert!(bench.seen().is_empty());
    bench.run(1, &[0x12, 0, 0, 0, 36, 0], &[], 36);
    bench.run(0, &[0x08, 0, 0, 0, 9, 0], &[], 9);
    assert_eq!(bench.seen(), [0x12, 0x08]);
    assert_eq!(bench.run(0, &[0x17, 0, 0, 0, 0, 0], &[], 0).status, GOOD);
    // Persistent: registered, reserved for writing alone.
    let register = |key: u8| {
        let mut list = [0; 24];
        list[15] = key;
        list
    };
    assert_eq!(bench.run(0, &OUT, &register(1), 0).status, GOOD);
    let mut list = [0; 24];
    list[7] = 1;
    assert_eq!(bench.run(0, &[0x5f, 1, 1, 0, 0, 0, 0, 0, 24, 0], &list, 0).status, GOOD);
    assert_eq!(bench.run(1, &[0x08, 0, 0, 0, 9, 0], &[], 9).status, GOOD);
    assert_eq!(bench.run(1, &[0x0a, 0, 0, 0, 3, 0], &[1, 2, 3], 0).status, 0x18);
    assert_eq!(bench.data(1, &[0x5e, 0, 0, 0, 0, 0, 0, 0, 16, 0], 16)[15], 1);
    assert_eq!(bench.seen(), [0x08]);
}

const OUT: [u8; 10] = [0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0];

#[test]
fn a_reset_of_the_device_ends_the_reservation_of_reserve() {
    let bench = Bench::of(DISK);
    assert_eq!(bench.run(0, &[0x16, 0, 0, 0, 0, 0], &[], 0).status, GOOD);
    bench.will(Given::Failed(Failure::Reset));
    assert_eq!(codes(bench.sense(0, &[0x28; 10])), (6, 0x29, 0));
    assert_eq!(codes(bench.sense(1, &TEST_UNIT_READY)), (6, 0x29, 0));
    assert_eq!(bench.run(1, &[0x28; 10], &[], 0).status, GOOD);
}

/// What a device is still asked for by a command that has ended keeps out what could come before.
#[test]
fn work_that_outlasts_its_command_keeps_others_out() {
    let bench = Bench::of(DISK);
    let write = [0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    let asked = request(Lun::Unit(0), &write, &[0; 512], 0);
    let (mut gone, step) = bench.nexuses[0].start(&asked);
    assert!(matches!(step, Step::ReceiveDataOut { length: 512 }));
    let sent = gone.resume(&bench.nexuses[0], Input::DataOut(vec![0; 512].into()));
    assert!(matches!(sent, Step::Device(_)));
    gone.outlast();
    let read = request(Lun::Unit(0), &[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[], 512);
    let (mut waits, step) = bench.nexuses[1].start(&read);
    assert!(matches!(step, Step::Wait), "{step:?}");
    assert_eq!(bench.sense(1, &TEST_UNIT_READY), None, "whoever only asks");
    assert!(gone.fence());
    let Step::Complete(busy) = waits.resume(&bench.nexuses[1], Input::Turn) else {
        panic!("nobody waits for it");
    };
    assert_eq!(busy.status, 0x08);
    drop(gone);
    assert_eq!(bench.run(1, &[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[], 512).status, GOOD);
}

#[test]
fn an_aca_condition_is_ours_whatever_the_command() {
    let bench = Bench::of(DISK);
    bench.will(Given::Status(CHECK_CONDITION, fixed(3, 0x0c, 0), vec![]));
    let write = [0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 4];
    assert_eq!(bench.run(0, &write, &[0; 512], 0).status, CHECK_CONDITION);
    let seen = bench.device.seen.lock().pop().expect("a write");
    assert_eq!(seen.cdb[9], 0, "the device never has one");
    assert_eq!(bench.run(0, &write, &[0; 512], 0).status, 0x30, "ACA ACTIVE");
    assert!(bench.seen().is_empty());
    bench.nexuses[0].clear_aca(&bench.unit);
    assert_eq!(bench.run(0, &write, &[0; 512], 0).status, GOOD);
}

#[test]
fn copies_by_others_and_rights_of_nexuses_are_refused() {
    let bench = Bench::of(DISK);
    for opcode in [0x83, 0x84, 0x86, 0x87] {
        assert_eq!(codes(sense_of(&bench.run(0, &[opcode, 0], &[], 0))), (5, 0x20, 0));
        let one = bench.data(0, &[0xa3, 0x0c, 1, opcode, 0, 0, 0, 0, 0, 64, 0, 0], 64);
        assert_eq!(one[1] & 7, 1, "not supported");
    }
    assert!(bench.seen().is_empty());
    // A list of the device: EXTENDED COPY with timeouts, READ(10) without.
    let mut list = vec![0, 0, 0, 28, 0x83, 0, 0, 0, 0, 2, 0, 16];
    list.extend([0; 12]);
    list.extend([0x28, 0, 0, 0, 0, 0, 0, 10]);
    bench.will(Given::Data(list));
    let told = bench.data(0, &[0xa3, 0x0c, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], 256);
    assert_eq!(told, [0, 0, 0, 8, 0x28, 0, 0, 0, 0, 0, 0, 10]);
    bench.run(0, &[0xa3, 0x0c, 1, 0x28, 0, 0, 0, 0, 0, 64, 0, 0], &[], 64);
    assert_eq!(bench.seen(), [0xa3; 2]);
    let ours = bench.data(0, &[0xa3, 0x0c, 1, 0x16, 0, 0, 0, 0, 0, 64, 0, 0], 64);
    assert_eq!((ours[1] & 7, bench.seen()), (3, vec![]), "RESERVE is answered here");
}

#[test]
fn on_a_drive_the_same_codes_are_keys() {
    let bench = Bench::of(OPTICAL);
    bench.will(Given::Data(vec![3; 4]));
    assert_eq!(bench.data(0, &[0xa4, 0x0a, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0], 4), [3; 4]);
    bench.unit.logical_unit_reset();
    bench.will(Given::Data(vec![9; 8]));
    let event = bench.data(0, &[0x4a, 1, 0, 0, 0x10, 0, 0, 0, 8, 0], 8);
    assert_eq!((event, bench.seen()), (vec![9; 8], vec![0xa4, 0x4a]), "stopped by no attention");
}

#[test]
fn what_one_nexus_changes_others_are_told() {
    let bench = Bench::of(TAPE);
    bench.run(0, &[0x15, 0x10, 0, 0, 4, 0], &[0; 4], 0);
    assert_eq!(codes(bench.sense(1, &TEST_UNIT_READY)), (6, 0x2a, 1));
    bench.run(1, &[0x1b, 0, 0, 0, 1, 0], &[], 0);
    assert_eq!(codes(bench.sense(0, &TEST_UNIT_READY)), (6, 0x28, 0));
    bench.will(Given::Status(CHECK_CONDITION, fixed(5, 0x26, 0), vec![]));
    bench.run(0, &[0x15, 0x10, 0, 0, 4, 0], &[0; 4], 0);
    assert_eq!(bench.sense(1, &TEST_UNIT_READY), None, "nothing has changed");
    assert_eq!(bench.sense(0, &TEST_UNIT_READY), None);
    let changer = Bench::of(CHANGER);
    changer.run(0, &[0x1b, 0, 0, 0, 1, 0], &[], 0);
    assert_eq!(changer.sense(1, &TEST_UNIT_READY), None, "it has no LOEJ");
}

#[test]
fn removal_is_allowed_when_nobody_prevents_it() {
    let mut bench = Bench::of(TAPE);
    let (prevent, allow) = ([0x1e, 0, 0, 0, 1, 0], [0x1e, 0, 0, 0, 0, 0]);
    for at in 0..2 {
        assert_eq!(bench.run(at, &prevent, &[], 0).status, GOOD);
    }
    assert_eq!(bench.seen(), [0x1e; 2]);
    assert_eq!(bench.run(0, &allow, &[], 0).status, GOOD);
    assert!(bench.seen().is_empty(), "the other one prevents it");
    assert_eq!(bench.run(0, &prevent, &[], 0).status, GOOD);
    assert_eq!(bench.run(1, &allow, &[], 0).status, GOOD);
    assert_eq!(bench.seen(), [0x1e]);
    let [first, second] = bench.nexuses;
    second.lost();
    assert!(bench.device.sent.lock().is_empty());
    first.lost();
    let sent = bench.device.sent.lock().pop().expect("it is allowed");
    assert_eq!(sent.cdb[..6], allow);
    bench.nexuses = ["iqn.a,i,0x1", "iqn.b,i,0x1"]
        .map(|name| Nexus::new(names(name), vec![(0, Arc::clone(&bench.unit))]));
    assert_eq!(codes(bench.sense(0, &TEST_UNIT_READY)), (6, 0x29, 7));
}

#[test]
fn who_the_unit_is_the_device_says_and_its_ports_are_ours() {
    let bench = Bench::of(DISK);
    let mut standard = vec![0; 36];
    (standard[3], standard[5], standard[8]) = (0x02, 0xd9, b'A');
    bench.will(Given::Data(standard));
    let told = bench.data(0, &[0x12, 0, 0, 0, 36, 0], 36);
    assert_eq!((told[3], told[5], told[7], told[8]), (0x22, 0x91, 0x02, b'A'));
    // The unit by NAA, a port by NAA, and one that is cut.
    let mut page = vec![0, 0x83, 0, 28, 1, 3, 0, 8, 0x50, 1, 2, 3, 4, 5, 6, 7];
    page.extend([0x61, 0x93, 0, 8, 0x50, 9, 9, 9, 9, 9, 9, 9, 1, 2, 0, 99]);
    bench.will(Given::Data(page));
    let told = bench.data(0, &[0x12, 1, 0x83, 1, 0, 0], 256);
    let list = wire::scsi::vpd::designators(&told[4..]);
    use wire::scsi::vpd::Designator;
    assert_eq!(list[0], Designator::Naa(vec![0x50, 1, 2, 3, 4, 5, 6, 7]));
    assert_eq!(list[1], Designator::RelativeTargetPort(1));
    assert!(list.iter().all(|one| !matches!(one, Designator::Unknown(_))));
    assert_eq!(list.len(), 5, "{list:?}");
    let seen = bench.device.seen.lock().pop().expect("asked");
    assert_eq!(seen.cdb[..6], [0x12, 1, 0x83, 0, 255, 0]);
    // One that has no page 83 gets ours, and the initiator no more than it asks for.
    bench.will(Given::Status(CHECK_CONDITION, fixed(5, 0x24, 0), vec![]));
    let told = bench.data(0, &[0x12, 1, 0x83, 0, 16, 0], 16);
    assert_eq!((told.len(), &told[4..6]), (16, &[1, 3][..]));
    bench.will(Given::Data(vec![0, 0, 0, 4, 0, 0x80, 0x88, 0x8f]));
    assert_eq!(bench.data(0, &[0x12, 1, 0, 0, 64, 0], 64), [0, 0, 0, 4, 0, 0x80, 0x83, 0xb0]);
    bench.seen();
    for hidden in [0x88, 0x8f, 0x90, 0x91] {
        assert_eq!(codes(sense_of(&bench.run(0, &[0x12, 1, hidden, 0, 64, 0], &[], 64))).0, 5);
    }
    assert!(bench.seen().is_empty());
}

#[test]
fn a_disk_says_what_its_host_adapter_takes() {
    let bench = Bench::of(DISK);
    let mut page = vec![0, 0xb0, 0, 0x3c];
    page.resize(64, 0);
    page[8..12].copy_from_slice(&0x10_0000_u32.to_be_bytes());
    page[12..16].copy_from_slice(&16_u32.to_be_bytes());
    bench.will(Given::Data(page));
    let told = bench.data(0, &[0x12, 1, 0xb0, 0, 64, 0], 64);
    assert_eq!(told[8..16], [0, 0, 1, 0, 0, 0, 0, 16], "1 MiB in blocks that may have 4096 bytes");
    bench.will(Given::Status(CHECK_CONDITION, fixed(5, 0x24, 0), vec![]));
    assert_eq!(bench.data(0, &[0x12, 1, 0xb0, 0, 64, 0], 64)[8..12], [0, 0, 1, 0]);
    let tape = Bench::of(TAPE);
    tape.will(Given::Status(CHECK_CONDITION, fixed(5, 0x24, 0), vec![]));
    assert_eq!(codes(sense_of(&tape.run(0, &[0x12, 1, 0xb0, 0, 64, 0], &[], 64))), (5, 0x24, 0));
}

#[test]
fn a_device_that_does_not_answer_is_told_as_what_it_is() {
    let bench = Bench::of(DISK);
    for (failure, expected) in [
        (Failure::Gone, (2, 0x05, 0)),
        (Failure::TimedOut, (0xb, 0x2e, 2)),
        (Failure::Aborted, (0xb, 0, 0)),
        (Failure::NotPermitted, (5, 0x20, 0)),
        (Failure::DoesNotFit, (5, 0x24, 0)),
        (Failure::Transport, (0xb, 0x08, 0)),
    ] {
        bench.will(Given::Failed(failure));
        assert_eq!(codes(bench.sense(0, &TEST_UNIT_READY)), expected, "{failure:?}");
    }
    bench.will(Given::Failed(Failure::Busy));
    assert_eq!(bench.run(0, &TEST_UNIT_READY, &[], 0).status, 0x08);
    assert_eq!(bench.sense(1, &TEST_UNIT_READY), None);
}

proptest! {
    #[test]
    fn whatever_a_device_and_an_initiator_say_ends_well(
        kind in prop::sample::select(vec![DISK, TAPE, OPTICAL, CHANGER]),
        cdb in prop::collection::vec(any::<u8>(), 1..=32),
        out in prop::collection::vec(any::<u8>(), 0..64),
        room in 0..600_u32,
        status in prop::sample::select(vec![0_u8, 2, 8, 0x18, 0x28]),
        sense in prop::collection::vec(any::<u8>(), 0..40),
        bytes in prop::collection::vec(any::<u8>(), 0..600),
        pages in any::<bool>(),
    ) {
        let bench = Bench::of(kind);
        bench.will(Given::Status(status, if status == 2 { sense } else { vec![] }, bytes));
        let page = [0, 0x83, 0xb0][usize::from(cdb[0]) % 3];
        let cdb = if pages { vec![0x12, 1, page, 1, 0, 0] } else { cdb };
        let completion = bench.run(0, &cdb, &out, room);
        let data = completion.data_in.map_or(0, |data| data.len());
        prop_assert!(data as u64 <= completion.presented);
        prop_assert!(completion.sense.is_empty() || completion.status == 2);
        prop_assert!(bench.seen().len() <= 1);
    }
}
