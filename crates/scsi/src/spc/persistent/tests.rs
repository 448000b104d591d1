// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reservations seen from several initiators.

use super::*;
use crate::Completion;
use crate::Keeper;
use crate::Kept;
use crate::Task;
use crate::table;
use crate::testing::Bench;
use crate::testing::codes;
use crate::testing::names;
use crate::testing::request;
use crate::testing::run;
use crate::testing::sense_of;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;
use wire::scsi::Lun;
use wire::scsi::Sense;
use wire::scsi::opcode::Opcode;
use wire::scsi::persistent::*;

const CONFLICT: u8 = 0x18;

/// A unit and three initiators, a, b and c, that have heard of its birth.
struct World {
    bench: Bench,
    nexuses: [Nexus; 3],
}

const A: usize = 0;
const B: usize = 1;
const C: usize = 2;

fn port(index: usize) -> String {
    alloc::format!("iqn.{index},i,0x00000000000{index}")
}

impl World {
    fn new() -> Self {
        Self::of(Bench::new())
    }

    fn of(bench: Bench) -> Self {
        let nexuses = [A, B, C].map(|index| {
            let nexus = Nexus::new(names(&port(index)), vec![(0, Arc::clone(&bench.unit))]);
            run(&nexus, request(Lun::Unit(0), &[0; 6], &[], 0), &[]);
            nexus
        });
        run(&bench.nexus, request(Lun::Unit(0), &[0; 6], &[], 0), &[]);
        Self { bench, nexuses }
    }

    fn run(&self, who: usize, cdb: &[u8], out: &[u8]) -> Completion {
        run(&self.nexuses[who], request(Lun::Unit(0), cdb, out, 4096), out)
    }

    fn data(&self, cdb: &[u8]) -> Vec<u8> {
        let done = run(&self.bench.nexus, request(Lun::Unit(0), cdb, &[], 4096), &[]);
        done.data_in.map(|data| data.to_vec()).unwrap_or_default()
    }

    /// Status of a PERSISTENT RESERVE OUT, and sense codes.
    fn out(&self, who: usize, action: u16, kind: u8, keys: (u64, u64), flags: u8) -> (u8, u8, u8) {
        let mut list = vec![0; 24];
        list[..8].copy_from_slice(&keys.0.to_be_bytes());
        list[8..16].copy_from_slice(&keys.1.to_be_bytes());
        list[20] = flags;
        verdict(&self.run(who, &out_cdb(action, kind, list.len()), &list))
    }

    fn register(&self, who: usize, key: u64) {
        assert_eq!(self.out(who, REGISTER_AND_IGNORE_EXISTING_KEY, 0, (0, key), 0), GOOD);
    }

    fn keys(&self) -> Vec<u64> {
        let data = self.data(&in_cdb(READ_KEYS));
        data[8..].as_chunks().0.iter().map(|key| u64::from_be_bytes(*key)).collect()
    }

    fn generation(&self) -> u32 {
        u32::from_be_bytes(*self.data(&in_cdb(READ_KEYS)).first_chunk().expect("a header"))
    }

    /// Key and type of the reservation.
    fn reservation(&self) -> Option<(u64, u8)> {
        let data = self.data(&in_cdb(READ_RESERVATION));
        let key = data.get(8..)?.first_chunk()?;
        Some((u64::from_be_bytes(*key), data[21]))
    }

    /// The next unit attention of `who`.
    fn attention(&self, who: usize) -> (u8, u8, u8) {
        let data = self.run(who, &[3, 0, 0, 0, 252, 0], &[]).data_in.expect("data");
        codes(Sense::parse(&data.to_vec()))
    }

    fn write(&self, who: usize) -> u8 {
        self.run(who, &[0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[1; 512]).status
    }

    fn read(&self, who: usize) -> u8 {
        self.run(who, &[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[]).status
    }
}

const GOOD: (u8, u8, u8) = (0, 0, 0);
const CONFLICTS: (u8, u8, u8) = (CONFLICT, 0, 0);

fn verdict(completion: &Completion) -> (u8, u8, u8) {
    match completion.status {
        0 => GOOD,
        CONFLICT => {
            assert!(completion.sense.is_empty());
            CONFLICTS
        }
        _ => codes(sense_of(completion)),
    }
}

fn in_cdb(action: u16) -> [u8; 10] {
    [0x5e, u8::try_from(action).expect("small"), 0, 0, 0, 0, 0, 4, 0, 0]
}

fn out_cdb(action: u16, kind: u8, length: usize) -> [u8; 10] {
    let [high, low] = u16::try_from(length).expect("short").to_be_bytes();
    [0x5f, u8::try_from(action).expect("small"), kind, 0, 0, 0, 0, high, low, 0]
}

/// The conflict matrix, written down apart from the code: for each command whether a nexus that
/// does not hold the reservation may do it, under WE as stranger, WE as registrant, EA as stranger,
/// EA as registrant, and the same for the RO and AR types. `+` may, `-` may not.
const MATRIX: &[(&str, &[u8])] = &[
    // READ and its like; also MODE SENSE and what reports on commands.
    (
        "++--++-+",
        &[0x08, 0x28, 0xa8, 0x88, 0x2f, 0xaf, 0x8f, 0x34, 0x90, 0x37, 0xb7, 0x1a, 0x5a, 0x3c, 0x1c],
    ),
    // What changes the medium or the unit.
    (
        "-----+-+",
        &[
            0x0a, 0x2a, 0xaa, 0x8a, 0x2e, 0xae, 0x8e, 0x42, 0x41, 0x93, 0x89, 0x8b, 0x9c, 0x35,
            0x91, 0x04, 0x48, 0x15, 0x55, 0x4c, 0x3b, 0x1d, 0x1e, 0x83, 0x84, 0xa4,
        ],
    ),
    // What tells who is there.
    ("++++++++", &[0x00, 0x03, 0x12, 0xa0, 0x25, 0x4d, 0x5e]),
];

/// The same for operation codes whose service actions differ.
fn row(opcode: u8, action: Option<u16>) -> &'static str {
    match (opcode, action) {
        (0x9e, Some(0x10)) => "++++++++",
        // GET LBA STATUS, and POPULATE TOKEN, which stands for a read.
        (0x9e, Some(0x12)) | (0x83, Some(0x10)) => "++--++-+",
        (0xa3, Some(0x0c | 0x0d)) => "++--++-+",
        (0xa3, Some(0x05 | 0x0a | 0x0f)) => "++++++++",
        (0x7f, Some(0x09 | 0x0a)) => "++--++-+",
        (0x7f, Some(_)) => "-----+-+",
        // Neither starts nor has a power condition: it stops.
        (0x1b, None) => "-----+-+",
        // While there are registrants, these are theirs, and change nothing.
        (0x16 | 0x17 | 0x56 | 0x57, None) => "-+-+-+-+",
        // Looks at its parameter list first, and this one has none.
        (0x5f, Some(_)) => "++++++++",
        _ => {
            let mut rows = MATRIX.iter().filter(|(_, opcodes)| opcodes.contains(&opcode));
            rows.next().unwrap_or_else(|| panic!("no row for {opcode:02x}")).0
        }
    }
}

#[test]
fn every_command_under_every_type_for_everybody() {
    for kind in Type::ALL {
        let world = World::new();
        world.register(A, 1);
        world.register(B, 2);
        assert_eq!(world.out(A, RESERVE, kind as u8, (1, 0), 0), GOOD);
        let exclusive = matches!(kind as u8, 3 | 6 | 8);
        let others = kind as u8 >= 5;
        for entry in table::all() {
            let (opcode, action) = (entry.opcode, entry.service_action);
            if opcode == Opcode::START_STOP_UNIT {
                // It would stop the unit for the rest.
                assert_eq!(world.run(A, &[0x1b, 0, 0, 0, 1, 0], &[]).status, 0);
            }
            let what = (kind, opcode.name(), action);
            assert_ne!(world.run(A, &entry.bare(), &[]).status, CONFLICT, "holder {what:?}");
            assert_eq!(world.run(A, &[0x1b, 0, 0, 0, 1, 0], &[]).status, 0);
            for (who, registered) in [(B, true), (C, false)] {
                let column =
                    usize::from(registered) + 2 * usize::from(exclusive) + 4 * usize::from(others);
                let may = row(opcode.0, action).as_bytes()[column] == b'+';
                // With the all registrants types a registrant is a holder.
                let may = may || (registered && kind as u8 >= 7);
                let status = world.run(who, &entry.bare(), &[]).status;
                assert_eq!(status != CONFLICT, may, "{who} {what:?}");
                assert_eq!(world.run(A, &[0x1b, 0, 0, 0, 1, 0], &[]).status, 0);
            }
        }
        for who in [B, C] {
            assert_eq!(world.run(who, &[0x1b, 0, 0, 0, 1, 0], &[]).status, 0, "only starts");
        }
    }
}

#[test]
fn nothing_conflicts_without_a_reservation() {
    let world = World::new();
    world.register(A, 1);
    for who in [A, B, C] {
        assert_eq!((world.write(who), world.read(who)), (0, 0));
    }
}

/// Covers-scsi: 5E/00, 5F/00, 5F/06.
#[test]
fn registrations_follow_their_keys() {
    let world = World::new();
    assert_eq!(world.out(A, REGISTER, 0, (5, 1), 0), CONFLICTS, "there is no key yet");
    assert_eq!(world.out(A, REGISTER, 0, (0, 1), 0), GOOD);
    assert_eq!(world.out(A, REGISTER, 0, (0, 2), 0), CONFLICTS, "the key is known");
    assert_eq!(world.out(A, REGISTER, 0, (1, 2), 0), GOOD);
    assert_eq!(world.out(B, REGISTER_AND_IGNORE_EXISTING_KEY, 0, (77, 9), 0), GOOD);
    assert_eq!((world.keys(), world.generation()), (vec![2, 9], 3));
    assert_eq!(world.out(C, REGISTER, 0, (0, 0), 0), GOOD, "nothing to undo");
    assert_eq!(world.out(A, REGISTER, 0, (2, 0), 0), GOOD);
    assert_eq!((world.keys(), world.generation()), (vec![9], 4));
    assert_eq!(world.out(B, REGISTER, 0, (9, 3), 1), (5, 0x26, 0), "nobody keeps it");
    assert_eq!(world.out(A, REGISTER_AND_IGNORE_EXISTING_KEY, 0, (0, 3), 1), (5, 0x26, 0));
    assert_eq!((world.keys(), world.generation()), (vec![9], 4));
    for action in [RESERVE, RELEASE, CLEAR, PREEMPT, PREEMPT_AND_ABORT] {
        assert_eq!(world.out(A, action, 1, (2, 9), 0), CONFLICTS, "{action}");
        assert_eq!(world.out(B, action, 1, (2, 9), 0), CONFLICTS, "{action}: wrong key");
    }
    assert_eq!(world.out(A, REGISTER_AND_IGNORE_EXISTING_KEY, 0, (0, 0), 0), GOOD, "has no key");
    assert_eq!((world.keys(), world.generation()), (vec![9], 4));
    assert_eq!(world.out(B, REGISTER_AND_IGNORE_EXISTING_KEY, 0, (77, 0), 0), GOOD);
    assert_eq!((world.keys(), world.generation()), (vec![], 5));
}

/// Covers-scsi: 5E/01, 5F/01, 5F/02.
#[test]
fn reserve_and_release() {
    for kind in Type::ALL.map(|kind| kind as u8) {
        let world = World::new();
        world.register(A, 1);
        world.register(B, 2);
        assert_eq!(world.out(A, RESERVE, kind, (1, 0), 0), GOOD);
        assert_eq!(world.out(A, RESERVE, kind, (1, 0), 0), GOOD, "again");
        let other = if kind == 1 { 3 } else { 1 };
        assert_eq!(world.out(A, RESERVE, other, (1, 0), 0), CONFLICTS);
        assert_eq!(world.out(A, RELEASE, other, (1, 0), 0), (5, 0x26, 4));
        let all = kind >= 7;
        assert_eq!(world.reservation(), Some((if all { 0 } else { 1 }, kind)));
        assert_eq!(world.out(B, RESERVE, kind, (2, 0), 0), if all { GOOD } else { CONFLICTS });
        if !all {
            assert_eq!(world.out(B, RELEASE, kind, (2, 0), 0), GOOD, "without effect");
            assert!(world.reservation().is_some());
        }
        let generation = world.generation();
        assert_eq!(world.out(A, RELEASE, kind, (1, 0), 0), GOOD);
        assert_eq!((world.reservation(), world.generation()), (None, generation));
        assert_eq!(world.attention(B), if kind >= 5 { (6, 0x2a, 4) } else { GOOD });
        assert_eq!((world.attention(A), world.attention(C)), (GOOD, GOOD));
        assert_eq!(world.write(C), 0);
    }
}

#[test]
fn scope_type_and_lengths_are_checked() {
    let world = World::new();
    world.register(A, 1);
    for action in [RESERVE, RELEASE, PREEMPT, PREEMPT_AND_ABORT] {
        for kind in [0, 2, 4, 9, 0xf, 0x11] {
            assert_eq!(world.out(A, action, kind, (1, 1), 0), (5, 0x24, 0), "{kind:x}");
        }
    }
    for length in [0, 1, 23, 25] {
        let done = world.run(A, &out_cdb(REGISTER, 0, length), &vec![0; length]);
        assert_eq!(verdict(&done), (5, 0x1a, 0), "{length}");
    }
    let short = world.run(A, &out_cdb(REGISTER, 0, 24), &[0; 23]);
    assert_eq!(verdict(&short), (5, 0x0e, 3));
    assert_eq!(world.out(A, REGISTER, 0, (1, 1), 1), (5, 0x26, 0), "nobody keeps it");
}

#[test]
fn the_holder_that_unregisters_releases() {
    for kind in Type::ALL.map(|kind| kind as u8) {
        let world = World::new();
        world.register(A, 1);
        world.register(B, 2);
        world.out(A, RESERVE, kind, (1, 0), 0);
        assert_eq!(world.out(A, REGISTER, 0, (1, 0), 0), GOOD);
        let stays = kind >= 7;
        assert_eq!(world.reservation().is_some(), stays, "{kind}");
        assert_eq!(world.attention(B), if matches!(kind, 5 | 6) { (6, 0x2a, 4) } else { GOOD });
        assert_eq!(world.out(B, REGISTER, 0, (2, 0), 0), GOOD);
        assert_eq!(world.reservation(), None, "the last one is gone");
    }
}

/// Covers-scsi: 5F/03.
#[test]
fn clear_takes_everything_away() {
    let world = World::new();
    world.register(A, 1);
    world.register(B, 2);
    world.out(A, RESERVE, 3, (1, 0), 0);
    assert_eq!(world.read(B), CONFLICT);
    assert_eq!(world.out(B, CLEAR, 0, (2, 0), 0), GOOD);
    assert_eq!((world.keys(), world.reservation()), (vec![], None));
    assert_eq!(world.attention(A), (6, 0x2a, 3));
    assert_eq!((world.attention(B), world.attention(C)), (GOOD, GOOD));
    assert_eq!(world.write(C), 0);
}

/// Covers-scsi: 5F/04.
#[test]
fn preempt_takes_over_from_the_holder() {
    let world = World::new();
    for (who, key) in [(A, 1), (B, 2), (C, 3)] {
        world.register(who, key);
    }
    world.out(A, RESERVE, 1, (1, 0), 0);
    assert_eq!(world.out(B, PREEMPT, 5, (2, 99), 0), CONFLICTS, "no such key");
    assert_eq!(world.out(B, PREEMPT, 5, (2, 0), 0), (5, 0x26, 0));
    assert_eq!(world.out(B, PREEMPT, 5, (2, 3), 0), GOOD, "only a registrant");
    assert_eq!(world.reservation(), Some((1, 1)));
    assert_eq!(world.attention(C), (6, 0x2a, 5));
    world.register(C, 3);
    assert_eq!(world.out(B, PREEMPT, 5, (2, 1), 0), GOOD);
    assert_eq!((world.keys(), world.reservation()), (vec![2, 3], Some((2, 5))));
    assert_eq!(world.attention(A), (6, 0x2a, 5));
    assert_eq!(world.attention(C), (6, 0x2a, 4), "the type has changed");
    assert_eq!((world.write(A), world.write(B), world.write(C)), (CONFLICT, 0, 0));
    assert_eq!(world.out(B, PREEMPT, 3, (2, 2), 0), GOOD, "itself");
    assert_eq!((world.keys(), world.reservation()), (vec![2, 3], Some((2, 3))));
}

#[test]
fn preempt_among_all_registrants() {
    let world = World::new();
    for (who, key) in [(A, 1), (B, 2), (C, 3)] {
        world.register(who, key);
    }
    world.out(A, RESERVE, 8, (1, 0), 0);
    assert_eq!(world.out(B, PREEMPT, 1, (2, 3), 0), GOOD);
    assert_eq!((world.keys(), world.reservation()), (vec![1, 2], Some((0, 8))));
    assert_eq!(world.out(B, PREEMPT, 1, (2, 0), 0), GOOD);
    assert_eq!((world.keys(), world.reservation()), (vec![2], Some((2, 1))));
    assert_eq!((world.attention(A), world.attention(C)), ((6, 0x2a, 5), (6, 0x2a, 5)));
    assert_eq!((world.read(A), world.write(A), world.write(B)), (0, CONFLICT, 0));
}

/// Covers-scsi: 5F/05.
#[test]
fn preempt_and_abort_names_whose_tasks_end() {
    let world = World::new();
    world.register(A, 1);
    world.register(B, 2);
    world.out(A, RESERVE, 3, (1, 0), 0);
    let mut list = [0; 24];
    (list[7], list[15]) = (2, 1);
    let cdb = out_cdb(PREEMPT_AND_ABORT, 3, 24);
    let nexus = &world.nexuses[B];
    let (mut task, _) = nexus.start(&request(Lun::Unit(0), &cdb, &list, 0));
    let step = task.resume(nexus, Input::DataOut(Slice::from(list.to_vec())));
    let Step::Abort { victims: Victims::Ports(initiator_ports) } = step else { panic!("{step:?}") };
    assert_eq!(initiator_ports, [port(A)]);
    assert_eq!(world.write(A), CONFLICT, "fenced before its tasks are gone");
    let step = task.resume(nexus, Input::Turn);
    let Step::Complete(done) = step else { panic!("{step:?}") };
    assert_eq!((done.status, done.presented), (0, 24));
    assert!(done.fence, "others hear of it first");
}

fn move_list(keys: (u64, u64), flags: u8, target: u16, initiator: &str) -> Vec<u8> {
    let mut list = vec![0; 24];
    list[..8].copy_from_slice(&keys.0.to_be_bytes());
    list[8..16].copy_from_slice(&keys.1.to_be_bytes());
    list[17] = flags;
    list[18..20].copy_from_slice(&target.to_be_bytes());
    let id = emit_transport_id(initiator);
    list[20..24].copy_from_slice(&u32::try_from(id.len()).expect("short").to_be_bytes());
    list.extend(id);
    list
}

/// Covers-scsi: 5F/07.
#[test]
fn register_and_move_hands_over() {
    let world = World::new();
    world.register(A, 1);
    let moved = |who, keys, flags, target, to: &str| {
        let list = move_list(keys, flags, target, to);
        verdict(&world.run(who, &out_cdb(REGISTER_AND_MOVE, 0, list.len()), &list))
    };
    let (a, b) = (port(A), port(B));
    assert_eq!(moved(A, (1, 2), 0, 1, &b), CONFLICTS, "there is no reservation");
    world.out(A, RESERVE, 6, (1, 0), 0);
    assert_eq!(moved(C, (1, 2), 0, 1, &b), CONFLICTS, "not registered");
    assert_eq!(moved(A, (1, 0), 0, 1, &b), (5, 0x26, 0));
    assert_eq!(moved(A, (1, 2), 0, 7, &b), (5, 0x26, 0), "no such port");
    assert_eq!(moved(A, (1, 2), 0, 1, &a), (5, 0x26, 0), "itself");
    assert_eq!(moved(A, (1, 2), 0, 1, "iqn.b"), (5, 0x26, 0), "no port");
    assert_eq!(moved(A, (1, 2), 2, 1, &b), GOOD);
    assert_eq!((world.keys(), world.reservation()), (vec![2], Some((2, 6))));
    assert_eq!((world.write(A), world.write(B)), (CONFLICT, 0));
    let list = move_list((2, 3), 0, 1, &a);
    let cut = world.run(B, &out_cdb(REGISTER_AND_MOVE, 0, list.len() - 4), &list);
    assert_eq!(verdict(&cut), (5, 0x1a, 0));
}

/// Covers-scsi: 5E/03, 5F/00.
#[test]
fn initiators_register_others() {
    let world = World::new();
    let list = |ports: &[String]| {
        let mut list = vec![0; 24];
        (list[15], list[20]) = (4, 0x0c);
        let ids: Vec<u8> = ports.iter().flat_map(|port| emit_transport_id(port)).collect();
        list.extend(u32::try_from(ids.len()).expect("short").to_be_bytes());
        list.extend(ids);
        list
    };
    let run =
        |who, action, list: &[u8]| verdict(&world.run(who, &out_cdb(action, 0, list.len()), list));
    let both = list(&[port(B), port(7)]);
    assert_eq!(run(A, REGISTER_AND_IGNORE_EXISTING_KEY, &both), (5, 0x26, 0));
    let mut bad = both.clone();
    bad[28] = 0;
    assert_eq!(run(A, REGISTER, &bad), (5, 0x26, 0));
    assert_eq!(world.keys(), []);
    assert_eq!(run(A, REGISTER, &both), GOOD);
    assert_eq!(world.keys(), [4, 4, 4]);
    assert_eq!(run(C, REGISTER, &both), CONFLICTS, "b is registered");
    world.out(B, RESERVE, 3, (4, 0), 0);
    let data = world.data(&in_cdb(READ_FULL_STATUS));
    assert_eq!(data[..4], [0, 0, 0, 1], "one REGISTER had an effect");
    assert_eq!(data[8 + 12] & 3, 3, "b holds, at all target ports");
    assert_eq!(data[8 + 13], 3);
    let later = Nexus::new(names(&port(7)), vec![(0, Arc::clone(&world.bench.unit))]);
    let status = |cdb: &[u8]| run_status(&later, cdb);
    assert_eq!(status(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0]), 2, "29/00 comes before a conflict");
    assert_eq!(status(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0]), CONFLICT);
    world.out(B, RELEASE, 3, (4, 0), 0);
    world.out(B, RESERVE, 6, (4, 0), 0);
    assert_eq!(status(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0]), 0, "registered before it came");
}

fn run_status(nexus: &Nexus, cdb: &[u8]) -> u8 {
    run(nexus, request(Lun::Unit(0), cdb, &[], 4096), &[]).status
}

#[test]
fn registrations_have_a_limit() {
    let world = World::new();
    let mut list = vec![0; 24];
    (list[15], list[20]) = (4, 0x08);
    let ids: Vec<u8> = (0..limits::REGISTRANTS_MAX)
        .flat_map(|index| emit_transport_id(&alloc::format!("iqn.x,i,0x{index:012x}")))
        .collect();
    list.extend(u32::try_from(ids.len()).expect("short").to_be_bytes());
    list.extend(ids);
    let done = world.run(A, &out_cdb(REGISTER, 0, list.len()), &list);
    assert_eq!(verdict(&done), (5, 0x55, 4));
    assert_eq!(world.keys(), [], "all or none");
}

#[test]
fn reservations_outlive_sessions_and_resets() {
    let mut world = World::new();
    world.register(A, 1);
    world.out(A, RESERVE, 1, (1, 0), 0);
    world.bench.unit.logical_unit_reset();
    let again = Nexus::new(names(&port(A)), vec![(0, Arc::clone(&world.bench.unit))]);
    core::mem::replace(&mut world.nexuses[A], again).lost();
    assert_eq!(world.attention(A), (6, 0x29, 3));
    assert_eq!(world.attention(B), (6, 0x29, 3));
    assert_eq!((world.write(A), world.write(B)), (0, CONFLICT));
}

const RESERVES: [u8; 2] = [0x16, 0x56];

/// Covers-scsi: 16, 17, 56, 57.
#[test]
fn legacy_reservations_exclude_others() {
    for code in RESERVES {
        let mut world = World::new();
        let reserve = [code, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let release = [code + 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(world.run(A, &reserve, &[]).status, 0);
        assert_eq!(world.run(A, &reserve, &[]).status, 0, "again");
        assert_eq!(world.run(B, &reserve, &[]).status, CONFLICT);
        assert_eq!(world.run(B, &[0; 6], &[]).status, CONFLICT);
        assert_eq!(world.run(B, &in_cdb(READ_KEYS), &[]).status, CONFLICT);
        assert_eq!(world.out(B, REGISTER, 0, (0, 1), 0), CONFLICTS);
        assert_eq!((world.read(B), world.write(B)), (CONFLICT, CONFLICT));
        assert_eq!((world.read(A), world.write(A)), (0, 0));
        assert_eq!(world.run(B, &[0x12, 0, 0, 0, 36, 0], &[]).status, 0);
        assert_eq!(world.run(B, &release, &[]).status, 0, "without effect");
        assert_eq!(world.write(B), CONFLICT);
        assert_eq!(world.run(A, &release, &[]).status, 0);
        assert_eq!(world.write(B), 0);
        world.run(A, &reserve, &[]);
        world.bench.unit.logical_unit_reset();
        assert_eq!((world.attention(B), world.attention(A)), ((6, 0x29, 3), (6, 0x29, 3)));
        assert_eq!(world.write(B), 0, "a reset ends it");
        world.run(A, &reserve, &[]);
        let again = Nexus::new(names(&port(A)), vec![(0, Arc::clone(&world.bench.unit))]);
        core::mem::replace(&mut world.nexuses[A], again).lost();
        assert_eq!(world.write(B), 0, "so does the loss of the nexus");
    }
}

/// Whether a command of RESERVE or RELEASE changes anything.
fn changes(world: &World, who: usize, cdb: &[u8]) -> bool {
    let (task, step) = world.nexuses[who].start(&request(Lun::Unit(0), cdb, &[], 0));
    assert!(matches!(step, Step::Complete(Completion { status: 0, .. })), "{step:?}");
    task.has_changed_reservations()
}

#[test]
fn a_command_tells_whether_it_has_changed_anything() {
    for code in RESERVES {
        let world = World::new();
        let reserve = [code, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let release = [code + 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert!(!changes(&world, A, &release), "nobody has it");
        assert!(changes(&world, A, &reserve));
        assert!(!changes(&world, A, &reserve), "it has it already");
        assert!(!changes(&world, B, &release), "it is of another one");
        assert!(changes(&world, A, &release));
        world.register(A, 1);
        assert!(!changes(&world, A, &reserve) && !changes(&world, A, &release), "CRH");
    }
}

#[test]
fn who_ends_a_reservation_of_reserve_is_told_of_it() {
    let world = World::new();
    let unit = &world.bench.unit;
    let reserve = [0x16, 0, 0, 0, 0, 0];
    assert!(changes(&world, A, &reserve));
    assert_eq!(world.nexuses[B].end_reservations().len(), 0, "it is not its own");
    let ended = world.nexuses[A].end_reservations();
    assert!(matches!(&*ended, [one] if Arc::ptr_eq(one, unit)));
    assert_eq!(world.nexuses[A].end_reservations().len(), 0, "it has ended");
    assert!(changes(&world, A, &reserve));
    assert!(unit.logical_unit_reset());
    assert!(!unit.logical_unit_reset() && !unit.power_on());
    world.attention(A);
    assert!(changes(&world, A, &reserve));
    assert!(unit.power_on());
    world.attention(A);
    world.register(A, 1);
    assert!(!unit.logical_unit_reset(), "registrations stay");
    assert!(unit.power_on(), "and go");
}

#[test]
fn a_null_behind_the_name_is_no_part_of_it() {
    let world = World::new();
    world.register(B, 2);
    let with_null = alloc::format!("{}\0", port(B));
    let again = Nexus::new(names(&with_null), vec![(0, Arc::clone(&world.bench.unit))]);
    let nexus_state = again.state_at(&world.bench.unit).expect("mapped");
    assert!(nexus_state.standing.load().registered);
}

/// Begins REGISTER with APTPL up to where it is to be kept.
fn registering(world: &World, who: usize, key: u64) -> (Task, Keep) {
    let nexus = &world.nexuses[who];
    let mut list = [0; 24];
    list[8..16].copy_from_slice(&u64::to_be_bytes(key));
    list[20] = 1;
    let request = request(Lun::Unit(0), &out_cdb(REGISTER, 0, 24), &list, 0);
    let (mut task, step) = nexus.start(&request);
    assert!(matches!(step, Step::ReceiveDataOut { length: 24 }));
    match task.resume(nexus, Input::DataOut(Slice::from(list.to_vec()))) {
        Step::Keep(keep) => (task, keep),
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_change_at_a_time() {
    let shelf = Arc::new(Shelf::default());
    let world = kept(&shelf);
    let (mut first, keep) = registering(&world, A, 1);
    let list = [0; 24];
    let clear = request(Lun::Unit(0), &out_cdb(CLEAR, 0, 24), &list, 0);
    let (mut second, step) = world.nexuses[B].start(&clear);
    assert!(matches!(step, Step::ReceiveDataOut { .. }));
    let step = second.resume(&world.nexuses[B], Input::DataOut(Slice::from(list.to_vec())));
    assert!(matches!(step, Step::Wait));
    assert!(matches!(second.resume(&world.nexuses[B], Input::Turn), Step::Wait));
    assert_eq!(world.keys(), [], "whoever looks sees what was before");
    let step = first.resume(&world.nexuses[A], Input::Kept(keep.run()));
    assert!(matches!(step, Step::Complete(Completion { status: 0, .. })));
    assert_eq!(world.keys(), [1]);
    let step = second.resume(&world.nexuses[B], Input::Turn);
    assert!(matches!(step, Step::Complete(Completion { status: CONFLICT, .. })));
}

#[test]
fn a_task_that_ends_while_it_is_kept_leaves_one_truth() {
    let shelf = Arc::new(Shelf::default());
    let world = kept(&shelf);
    // Dropped before anybody keeps it.
    drop(registering(&world, A, 1));
    assert_eq!((world.keys(), shelf.0.lock().is_none()), (vec![], true));
    // Kept, and not kept, after its end.
    let (mut task, keep) = registering(&world, A, 2);
    assert!(matches!(task.kept_late(keep.run()), Step::Complete(_)));
    assert_eq!(world.keys(), [2]);
    let (mut task, _) = registering(&world, B, 3);
    let step = task.kept_late(Err(KeepFailed));
    assert!(matches!(step, Step::Complete(Completion { status: 2, .. })));
    assert_eq!(world.keys(), [2]);
    assert_eq!(kept(&shelf).keys(), [2]);
    world.register(B, 4);
}

/// Whoever is preempted by a task that has ended does not go on either.
#[test]
fn a_preempt_that_is_kept_after_its_end_aborts() {
    let shelf = Arc::new(Shelf::default());
    let world = kept(&shelf);
    for (who, key) in [(A, 1), (B, 2)] {
        assert_eq!(world.out(who, REGISTER, 0, (0, key), 1), GOOD);
    }
    let nexus = &world.nexuses[A];
    let mut list = [0; 24];
    (list[7], list[15]) = (1, 2);
    let request = request(Lun::Unit(0), &out_cdb(PREEMPT_AND_ABORT, 1, 24), &list, 0);
    let (mut task, _) = nexus.start(&request);
    let Step::Keep(keep) = task.resume(nexus, Input::DataOut(Slice::from(list.to_vec()))) else {
        panic!("it persists")
    };
    match task.kept_late(keep.run()) {
        Step::Abort { victims: Victims::Ports(ports) } => {
            assert_eq!(ports, [world.nexuses[B].names().initiator_port.clone()]);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn power_on_and_the_loss_of_a_nexus_while_a_change_is_kept() {
    // What it makes persist stays.
    let shelf = Arc::new(Shelf::default());
    let world = kept(&shelf);
    world.register(B, 7);
    let (mut task, keep) = registering(&world, A, 1);
    world.bench.unit.power_on();
    let step = task.resume(&world.nexuses[A], Input::Kept(keep.run()));
    assert!(matches!(step, Step::Complete(_)), "{step:?}");
    assert_eq!(world.bench.unit.reservations().lock().registry.registrants.len(), 2);
    assert_eq!(kept(&shelf).keys(), [7, 1]);
    // Nothing came of it, so nothing persists.
    let shelf = Arc::new(Shelf::default());
    let world = kept(&shelf);
    world.register(B, 7);
    let (mut task, _) = registering(&world, A, 1);
    world.bench.unit.power_on();
    assert_eq!(world.bench.unit.reservations().lock().registry.registrants.len(), 1, "not yet");
    task.kept_late(Err(KeepFailed));
    assert_eq!(world.bench.unit.reservations().lock().registry, Registry::default());
}

/// Covers-scsi: 5E/02.
#[test]
fn capabilities_say_what_there_is() {
    let world = World::new();
    assert_eq!(world.data(&in_cdb(REPORT_CAPABILITIES)), [0, 8, 0x1c, 0x80, 0xea, 1, 0, 0]);
}

#[derive(Debug, Default)]
struct Shelf(spin::Mutex<Option<Vec<u8>>>, core::sync::atomic::AtomicBool);

impl Keeper for Shelf {
    fn keep(&self, state: &[u8]) -> Result<(), KeepFailed> {
        if self.1.load(core::sync::atomic::Ordering::Relaxed) {
            return Err(KeepFailed);
        }
        *self.0.lock() = Some(state.to_vec());
        Ok(())
    }
}

fn kept(shelf: &Arc<Shelf>) -> World {
    let state = shelf.0.lock().clone();
    let mut bench = Bench::new();
    let Bench { unit, nexus, .. } = &mut bench;
    let store = Arc::clone(unit.store());
    let fresh = LogicalUnit::new(unit.identity().clone(), store, 512).expect("good");
    let keeper = Arc::<Shelf>::clone(shelf);
    *unit =
        Arc::new(fresh.with_keeper(Kept::Reservations, keeper, state.as_deref()).expect("our own"));
    *nexus = Nexus::new(names("iqn.z,i,0x1"), vec![(0, Arc::clone(unit))]);
    World::of(bench)
}

/// Covers-scsi: 5E/02.
#[test]
fn what_persists_survives_a_loss_of_power() {
    let shelf = Arc::new(Shelf::default());
    let world = kept(&shelf);
    assert_eq!(world.data(&in_cdb(REPORT_CAPABILITIES))[2..4], [0x1d, 0x80]);
    world.register(A, 1);
    assert_eq!(*shelf.0.lock(), None, "not asked for");
    assert_eq!(world.out(A, REGISTER, 0, (1, 1), 1), GOOD);
    assert_eq!(world.out(A, RESERVE, 3, (1, 0), 0), GOOD);
    assert_eq!(world.data(&in_cdb(REPORT_CAPABILITIES))[3], 0x81);
    let world = kept(&shelf);
    assert_eq!((world.keys(), world.reservation()), (vec![1], Some((1, 3))));
    assert_eq!((world.write(A), world.write(B)), (0, CONFLICT));
    shelf.1.store(true, core::sync::atomic::Ordering::Relaxed);
    assert_eq!(world.out(A, CLEAR, 0, (1, 0), 0), (4, 0x44, 0), "it cannot be kept");
    assert_eq!((world.keys(), world.write(B)), (vec![1], CONFLICT), "so it did not happen");
    shelf.1.store(false, core::sync::atomic::Ordering::Relaxed);
    assert_eq!(world.out(A, REGISTER, 0, (1, 1), 0), GOOD, "no longer");
    assert_eq!(kept(&shelf).keys(), []);
}

/// The next process that serves a unit has what a loss of power would end.
#[test]
fn what_does_not_persist_is_carried_to_another_process() {
    let world = World::new();
    assert_eq!(world.bench.unit.carried_reservations(), None);
    world.register(A, 1);
    world.register(B, 2);
    assert_eq!(world.out(A, RESERVE, 3, (1, 0), 0), GOOD);
    let state = world.bench.unit.carried_reservations().expect("there are some");
    let next = World::new();
    assert!(next.bench.unit.carry_reservations(&state[1..]).is_err());
    assert_eq!((next.keys(), next.reservation()), (vec![], None));
    next.bench.unit.carry_reservations(&state).expect("they are of this unit");
    assert_eq!((next.keys(), next.reservation()), (vec![1, 2], Some((1, 3))));
    assert_eq!((next.write(A), next.write(C)), (0, CONFLICT));
    let again = next.bench.unit.carried_reservations();
    assert_eq!(again.as_deref(), Some(&state[..]), "a loss of power would end them as before");
    let shelf = Arc::new(Shelf::default());
    let world = kept(&shelf);
    assert_eq!(world.out(A, REGISTER, 0, (0, 1), 1), GOOD);
    assert_eq!(world.bench.unit.carried_reservations(), None, "they are kept elsewhere");
}

proptest! {
    /// Whatever is done in whatever order: holders are registered, the words that commands read say
    /// what the registry says, and what persists can be restored.
    #[test]
    fn any_sequence_is_sound(
        steps in proptest::collection::vec(
            (0..3_usize, 0..7_u16, 0..9_u8, 0..4_u64, 0..4_u64), 0..40,
        ),
    ) {
        let shelf = Arc::new(Shelf::default());
        let world = kept(&shelf);
        for (who, action, kind, key, other) in steps {
            world.out(who, action, kind, (key, other), u8::from(other % 2 == 1));
            let registry = world.bench.unit.reservations().lock().registry.clone();
            for index in [A, B, C] {
                let nexus = &world.nexuses[index];
                let nexus_state = nexus.state_at(&world.bench.unit).expect("mapped");
                let standing = registry.standing(&Port::from(nexus.names()));
                prop_assert_eq!(nexus_state.standing.load(), standing);
                prop_assert!(standing.registered || !standing.holds);
            }
            if let Some(held) = &registry.reservation {
                let all = held.kind.is_of_all_registrants();
                prop_assert!(all || registry.standing(&held.holder).holds);
                prop_assert!(!registry.registrants.is_empty());
            }
            if registry.persists {
                let state = shelf.0.lock().clone().expect("kept");
                let mut expected = registry;
                expected.generation = 0;
                expected.persists = !expected.registrants.is_empty();
                let mut restored = restore(&state, world.bench.unit.number()).expect("our own");
                if let (Some(held), Some(is)) = (&expected.reservation, &mut restored.reservation)
                    && held.kind.is_of_all_registrants()
                {
                    is.holder = held.holder.clone();
                }
                prop_assert_eq!(restored, expected);
            }
        }
    }
}
