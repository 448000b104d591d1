// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The process ends at any point: what is written then is whole, block by block, old or new.

use super::*;
use crate::Input;
use crate::Step;
use crate::testing::request;
use buf::Slice;
use store::Op;
use store::Outcome;
use store::Space;
use wire::scsi::Lun;

/// Lets a command run until `left` units of change have reached the disk: a unit is a block of data
/// or what is beside it, as those are what the system writes as a whole. False if it ended before.
fn run_until(rig: &Rig, cdb: &[u8], out: &[u8], mut left: usize) -> bool {
    let nexus = &rig.bench.nexus;
    let (mut task, mut step) = nexus.start(&request(Lun::Unit(0), cdb, out, 0));
    loop {
        let input = match step {
            Step::ReceiveDataOut { .. } => Input::DataOut(Slice::from(out.to_vec())),
            Step::Store(op) => {
                let each = if op.range().0 < store::beside::SIDE { 512 } else { 32 };
                let units = if op.changes() { size(op.range().1.div_ceil(each)) } else { 0 };
                if units > left {
                    // The last units of it, so that the order within an operation is not relied
                    // on.
                    let of = op.range().1 - left as u64 * each;
                    submit(&task, &cut(&op, of));
                    return true;
                }
                left -= units;
                Input::Store(submit(&task, &op))
            }
            Step::Complete(completion) => {
                assert_eq!(completion.status, 0);
                return false;
            }
            other => panic!("{other:?}"),
        };
        step = task.resume(nexus, input);
    }
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).expect("small")
}

fn submit(task: &crate::Task, op: &Op) -> Outcome {
    crate::testing::submit(task, op)
}

/// `op` without its first `skip` bytes.
fn cut(op: &Op, skip: u64) -> Op {
    match op {
        Op::Write { offset, data, durable } => {
            let data = data.part(size(skip)..data.len()).expect("within");
            Op::Write { offset: offset + skip, data, durable: *durable }
        }
        Op::Clear { offset, length, leave: Space::Deallocated } => {
            Op::Clear { offset: offset + skip, length: length - skip, leave: Space::Deallocated }
        }
        other => panic!("{other:?}"),
    }
}

/// Every point at which `cdb` can be cut, after all that was cut there before: each block is then
/// one of those that were written to it, with what belongs to it.
fn cut_everywhere(kind: ProtectionType, cdb: &[u8], out: &[u8], allowed: &[Vec<u8>]) {
    let mut cuts = 0;
    loop {
        let rig = Rig::new(kind);
        let old = pairs(50, 8, 4);
        // Twice, so that both slots are in use.
        for out in [pairs(60, 8, 4), old.clone()] {
            assert_eq!(rig.codes(Ask::new(Name::Write, 1, 8, 4), &out), GOOD);
        }
        let ended = !run_until(&rig, cdb, out, cuts);
        check(&rig, allowed, cuts);
        // The same again, cut at each point once more: what the first cut left is no obstacle.
        for again in [1, 3, 4, 6] {
            run_until(&rig, cdb, out, again);
            check(&rig, allowed, cuts);
        }
        assert!(!run_until(&rig, cdb, out, usize::MAX), "it can be done in the end");
        check(&rig, &allowed[1..], cuts);
        if ended {
            break;
        }
        cuts += 1;
    }
    assert!(cuts >= 4, "{cuts}");
}

fn check(rig: &Rig, allowed: &[Vec<u8>], cuts: usize) {
    let read = rig.read(1, 8, 4);
    for (at, pair) in read.chunks(520).enumerate() {
        let found = allowed.iter().any(|all| all[at * 520..][..520] == *pair);
        assert!(found, "block {at} after {cuts}");
    }
}

#[test]
fn a_write_leaves_each_block_old_or_new() {
    for kind in ProtectionType::ALL {
        let new = pairs(90, 8, 4);
        let cdb = Ask::new(Name::Write, 1, 8, 4).cdb(kind);
        cut_everywhere(kind, &cdb, &new, &[pairs(50, 8, 4), new.clone()]);
    }
}

#[test]
fn a_write_that_changes_only_what_is_beside_is_old_or_new() {
    let other: Vec<u8> = (0..4)
        .flat_map(|index| {
            let data = block(50 + index);
            pair(&data, Information { application: 9, ..right(&data, 8 + u64::from(index)) })
        })
        .collect();
    let cdb = Ask::new(Name::Write, 1, 8, 4).cdb(One);
    let mut cuts = 0;
    loop {
        let rig = Rig::new(One);
        assert_eq!(rig.codes(Ask::new(Name::Write, 1, 8, 4), &pairs(50, 8, 4)), GOOD);
        let ended = !run_until(&rig, &cdb, &other, cuts);
        check(&rig, &[pairs(50, 8, 4), other.clone()], cuts);
        cuts += 1;
        if ended {
            break;
        }
    }
}

#[test]
fn write_same_compare_and_write_and_orwrite_leave_each_block_old_or_new() {
    let pairs_of =
        |data: &[u8]| -> Vec<u8> { (8..12).flat_map(|lba| pair(data, right(data, lba))).collect() };
    let same = pairs_of(&block(3));
    let cdb = Ask::new(Name::Same, 1, 8, 4).short();
    cut_everywhere(One, &cdb, &same[..520], &[pairs(50, 8, 4), same.clone()]);
    let ones = vec![0xff; 512];
    let cdb = Ask::new(Name::Or, 1, 8, 4).short();
    cut_everywhere(One, &cdb, &pairs_of(&ones), &[pairs(50, 8, 4), pairs_of(&ones)]);
}

/// What is beside goes first: a block that was to be unmapped and is not has lost its protection,
/// and nothing else.
#[test]
fn an_unmap_leaves_each_block_readable() {
    let zeros: Vec<u8> = (0..4).flat_map(|_| pair(&[0; 512], Information::ONES)).collect();
    let bare: Vec<u8> = (0..4).flat_map(|at| pair(&block(50 + at), Information::ONES)).collect();
    let allowed = [pairs(50, 8, 4), zeros, bare];
    for cuts in 0..9 {
        for unmap in [false, true] {
            let rig = Rig::new(One);
            assert_eq!(rig.codes(Ask::new(Name::Write, 1, 8, 4), &pairs(50, 8, 4)), GOOD);
            let list = [0, 22, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 4, 0, 0, 0, 0];
            if unmap {
                run_until(&rig, &[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], &list, cuts);
            } else {
                run_until(&rig, &Ask::new(Name::Same, 0, 8, 4).flags(9).short(), &[], cuts);
            }
            check(&rig, &allowed, cuts);
        }
    }
}

/// Blocks that lay there before the disk was protected, or were unmapped, are no worse off.
#[test]
fn a_first_write_leaves_each_block_old_or_new() {
    for filled in [false, true] {
        let old: Vec<u8> = (0..4)
            .flat_map(|at| {
                let data = if filled { block(50 + at) } else { vec![0; 512] };
                pair(&data, Information::ONES)
            })
            .collect();
        let new = pairs(90, 8, 4);
        for cuts in 0..9 {
            let rig = Rig::new(One);
            for (at, pair) in old.chunks(520).enumerate() {
                rig.bench.disk.bytes.lock()[(8 + at) * 512..][..512].copy_from_slice(&pair[..512]);
            }
            run_until(&rig, &Ask::new(Name::Write, 1, 8, 4).short(), &new, cuts);
            check(&rig, &[old.clone(), new.clone()], cuts);
            rig.bench.disk.bytes.lock()[11 * 512 + 5] ^= 4;
            if cuts > 0 {
                assert_eq!(rig.codes(Ask::new(Name::Read, 1, 11, 1), &[]), GUARD);
            }
        }
    }
}

/// A record that is not there is no right to accept what does not fit: a block that another program
/// changed is found out even if the cut left both slots filled.
#[test]
fn a_cut_is_no_excuse_for_a_changed_block() {
    let rig = Rig::new(One);
    assert_eq!(rig.codes(Ask::new(Name::Write, 1, 8, 4), &pairs(50, 8, 4)), GOOD);
    let cdb = Ask::new(Name::Write, 1, 8, 4).short();
    assert!(run_until(&rig, &cdb, &pairs(90, 8, 4), 4));
    rig.bench.disk.bytes.lock()[8 * 512 + 1] ^= 1;
    assert_eq!(rig.codes(Ask::new(Name::Read, 1, 8, 1), &[]), GUARD);
    assert_eq!(rig.codes(Ask::new(Name::Read, 1, 9, 3), &[]), GOOD);
}
