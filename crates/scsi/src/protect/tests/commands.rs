// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What each command reads, writes and leaves beside its blocks.

use super::*;
use crate::Input;
use crate::Step;
use crate::testing::BLOCKS;
use crate::testing::Seen;
use crate::testing::request;
use crate::testing::submit;
use buf::Slice;
use proptest::prelude::*;
use wire::scsi::Lun;

#[test]
fn what_is_written_is_read_with_what_stands_beside_it() {
    for kind in ProtectionType::ALL {
        let rig = Rig::new(kind);
        let out = pairs(9, 70, 5);
        assert_eq!(rig.codes(Ask::new(Name::Write, 1, 70, 5), &out), GOOD);
        assert_eq!(rig.read(1, 70, 5), out);
        let data: Vec<u8> = out.chunks(520).flat_map(|pair| pair[..512].to_vec()).collect();
        assert_eq!(rig.read(0, 70, 5), data);
        assert_eq!(rig.bench.disk.bytes.lock()[70 * 512..75 * 512], data, "data lie as ever");
        // Once more, with others: the other slot.
        let again = pairs(40, 70, 5);
        assert_eq!(rig.codes(Ask::new(Name::Write, 1, 70, 5), &again), GOOD);
        assert_eq!(rig.read(1, 70, 5), again);
    }
}

#[test]
fn blocks_of_4096_bytes_have_one_piece_of_information_each() {
    let (bench, _) = Bench::protected(Some(One), 4096);
    let data = vec![7; 4096];
    let out = pair(&data, right(&data, 3));
    let cdb = |name| Ask::new(name, 1, 3, 1).short();
    assert_eq!(bench.sense_out(&cdb(Name::Write), &out), None);
    assert_eq!(bench.data(&cdb(Name::Read)), out);
}

#[test]
fn without_information_the_unit_makes_it() {
    for (kind, reference) in [(One, 33), (Two, u32::MAX), (Three, u32::MAX)] {
        for (owned, application) in [(false, 0), (true, u16::MAX)] {
            let rig = Rig::new(kind);
            if owned {
                rig.own_tags();
            }
            let guard = crc::crc16_t10dif(&block(2));
            assert_eq!(rig.codes(Ask::new(Name::Write, 0, 33, 1), &block(2)), GOOD);
            assert_eq!(rig.beside(33, 1), [Information { guard, application, reference }]);
        }
    }
}

#[test]
fn old_commands_of_6_and_10_bytes_are_protected_too() {
    let rig = Rig::new(One);
    assert_eq!(rig.bench.sense_out(&[0x0a, 0, 0, 5, 1, 0], &block(1)), None);
    assert_eq!(rig.beside(5, 1)[0].guard, crc::crc16_t10dif(&block(1)));
    rig.bench.disk.bytes.lock()[5 * 512] ^= 1;
    for cdb in [&[0x08, 0, 0, 5, 1, 0][..], &[0x28, 0, 0, 0, 0, 5, 0, 0, 1, 0]] {
        assert_eq!(codes(rig.bench.sense(cdb)), GUARD, "a changed byte on the medium");
    }
}

#[test]
fn blocks_that_were_never_written_have_ones_beside_them() {
    let rig = Rig::new(One);
    let mut expected = vec![0; 512];
    expected.extend([0xff; 8]);
    assert_eq!(rig.read(1, 200, 1), expected);
}

#[test]
fn lengths_grow_by_eight_bytes_a_block() {
    let rig = Rig::new(One);
    let write = Ask::new(Name::Write, 1, 8, 4).short();
    let out = pairs(1, 8, 4);
    let completion = rig.bench.run(&write, &out, 0);
    assert_eq!((completion.status, completion.presented), (0, 4 * 520));
    // Less than asked for: whole blocks or nothing.
    let completion = rig.bench.run(&write, &out[..1040], 0);
    assert_eq!((completion.status, completion.presented), (0, 4 * 520));
    let sense = rig.bench.run(&write, &out[..1024], 0);
    assert_eq!((sense.status, sense.presented), (2, 4 * 520));
    let read = Ask::new(Name::Read, 1, 8, 4).short();
    for (room, gives) in [(0, 0), (1, 520), (520, 520), (521, 1040), (9999, 2080)] {
        let completion = rig.bench.run(&read, &[], room);
        assert_eq!((completion.status, completion.presented), (0, 2080));
        assert_eq!(completion.data_in.map_or(0, |data| data.len()), gives);
    }
}

/// Covers-scsi: 8E, 7F/000C.
#[test]
fn write_and_verify_writes_durably_and_reads_back() {
    for kind in ProtectionType::ALL {
        let rig = Rig::new(kind);
        let out = pairs(9, 16, 3);
        for flags in [0, 2] {
            let ask = Ask::new(Name::WriteVerify, 1, 16, 3).flags(flags);
            assert_eq!(rig.codes(ask, &out), GOOD);
        }
        let bad = rig.codes(Ask::new(Name::WriteVerify, 1, 17, 2), &pairs(9, 16, 2));
        assert_eq!(bad, if kind == Three { GOOD } else { REFERENCE });
        assert!(rig.bench.log().iter().any(|seen| matches!(seen, Seen::Durable(8192, 1536))));
        assert!(rig.side.log.lock().iter().any(|seen| matches!(seen, Seen::Durable(..))));
        assert_eq!(rig.read(1, 16, 1), out[..520]);
    }
}

#[test]
fn fua_is_of_both_and_reading_with_it_flushes_both() {
    let rig = Rig::new(One);
    let out = pairs(9, 16, 1);
    assert_eq!(rig.codes(Ask::new(Name::Write, 1, 16, 1).flags(8), &out), GOOD);
    assert!(matches!(rig.bench.log()[..], [Seen::Read(..), Seen::Durable(8192, 512)]));
    assert!(matches!(rig.side.log.lock()[..], [Seen::Read(..), Seen::Durable(4608, 32)]));
    rig.side.log.lock().clear();
    assert_eq!(rig.codes(Ask::new(Name::Read, 1, 16, 1).flags(8), &[]), GOOD);
    assert!(matches!(rig.bench.log()[..], [Seen::Flush, Seen::Read(..)]));
    assert!(matches!(rig.side.log.lock()[..], [Seen::Flush, Seen::Read(..)]));
    rig.side.log.lock().clear();
    assert_eq!(rig.bench.sense(&[0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0]), None);
    assert_eq!(rig.side.log.lock()[..], [Seen::Flush]);
}

/// Covers-scsi: 93, 7F/000D.
#[test]
fn write_same_counts_the_reference_tags_up() {
    for kind in ProtectionType::ALL {
        let rig = Rig::new(kind);
        // Longer than a piece.
        let blocks = 2500;
        assert_eq!(rig.codes(Ask::new(Name::Same, 1, 300, blocks), &pairs(5, 300, 1)), GOOD);
        let last = rig.beside(300 + 2499, 1)[0];
        let reference = if kind == Three { 300 } else { 2799 };
        assert_eq!(last, Information { reference, ..right(&block(5), 300) });
        assert_eq!(rig.codes(Ask::new(Name::Verify, 1, 300, blocks), &[]), GOOD);
        let bad = rig.codes(Ask::new(Name::Same, 1, 301, 2), &pairs(5, 300, 1));
        assert_eq!(bad, if kind == Three { GOOD } else { REFERENCE });
        // Without information the unit makes it; ones are written as they come.
        assert_eq!(rig.codes(Ask::new(Name::Same, 0, 8, 3), &block(6)), GOOD);
        assert_eq!(rig.beside(10, 1)[0].guard, crc::crc16_t10dif(&block(6)));
        let ones = pair(&block(6), Information::ONES);
        assert_eq!(rig.codes(Ask::new(Name::Same, 1, 8, 3), &ones), GOOD);
        assert_eq!(rig.beside(8, 3), [Information::ONES; 3]);
    }
}

/// Covers-scsi: 93, 42, 41.
#[test]
fn what_is_unmapped_has_ones_beside_it() {
    let rig = Rig::new(One);
    let unmap = |anchor: u8, lba: u8, blocks: u8| {
        let list =
            [0, 22, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, lba, 0, 0, 0, blocks, 0, 0, 0, 0];
        rig.bench.sense_out(&[0x42, anchor, 0, 0, 0, 0, 0, 0, 24, 0], &list)
    };
    let same =
        |code, flags, out: &[u8]| rig.codes(Ask::new(Name::Same, code, 8, 8).flags(flags), out);
    let write = || {
        assert_eq!(rig.codes(Ask::new(Name::Write, 1, 8, 8), &pairs(9, 8, 8)), GOOD);
    };
    let zeros = vec![0; 512];
    let checks: [&dyn Fn(); 8] = [
        &|| assert_eq!(unmap(0, 8, 8), None),
        &|| assert_eq!(unmap(1, 8, 8), None, "ANCHOR"),
        &|| assert_eq!(same(0, 0x18, &zeros), GOOD, "ANCHOR"),
        &|| assert_eq!(same(0, 0x19, &[]), GOOD, "ANCHOR and NDOB"),
        &|| assert_eq!(same(0, 0x08, &zeros), GOOD),
        &|| assert_eq!(same(1, 0x08, &pair(&zeros, Information::ONES)), GOOD),
        &|| assert_eq!(same(0, 0x09, &[]), GOOD, "UNMAP and NDOB"),
        &|| assert_eq!(same(1, 0x01, &[]), GOOD, "NDOB"),
    ];
    for (number, clear) in checks.iter().enumerate() {
        write();
        clear();
        assert_eq!(rig.beside(8, 8), [Information::ONES; 8], "{number}");
        assert_eq!(rig.read(0, 8, 8), vec![0; 8 * 512]);
    }
    // Zeros that are protected stay so.
    write();
    assert_eq!(same(1, 0x08, &pair(&zeros, right(&zeros, 8))), GOOD);
    assert_eq!(rig.beside(9, 1), [right(&zeros, 9)]);
    // Its neighbours keep what they have.
    assert_eq!(rig.codes(Ask::new(Name::Write, 1, 7, 1), &pairs(1, 7, 1)), GOOD);
    assert_eq!(unmap(0, 8, 8), None);
    assert_eq!(rig.read(1, 7, 1), pairs(1, 7, 1));
}

/// Covers-scsi: 93, 42, 7F/000D.
#[test]
fn what_is_anchored_has_space_beside_it_too() {
    for kind in [One, Two] {
        let rig = Rig::new(kind);
        let seen = |data: &[Seen], side: &[Seen]| {
            assert_eq!(rig.bench.log(), data);
            assert_eq!(*rig.side.log.lock(), side);
            rig.side.log.lock().clear();
        };
        let records = |blocks: u64| Seen::Anchor(4096 + 8 * 32, blocks * 32);
        rig.bench.log();
        rig.side.log.lock().clear();
        let list = [0, 22, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 4, 0, 0, 0, 0];
        assert_eq!(rig.bench.sense_out(&[0x42, 1, 0, 0, 0, 0, 0, 0, 24, 0], &list), None);
        seen(&[Seen::Anchor(8 * 512, 4 * 512)], &[records(4)]);
        assert_eq!(rig.codes(Ask::new(Name::Same, 1, 8, 2).flags(0x19), &[]), GOOD);
        seen(&[Seen::Anchor(8 * 512, 2 * 512)], &[records(2)]);
    }
}

/// Covers-scsi: 89.
#[test]
fn compare_and_write_sends_information_with_both_halves() {
    for kind in [One, Three] {
        let rig = Rig::new(kind);
        assert_eq!(rig.codes(Ask::new(Name::Write, 1, 40, 2), &pairs(1, 40, 2)), GOOD);
        let cdb = |code: u8| [0x89, code << 5, 0, 0, 0, 0, 0, 0, 0, 40, 0, 0, 0, 2, 0, 0];
        let halves = [pairs(1, 40, 2), pairs(8, 40, 2)].concat();
        assert_eq!(rig.bench.sense_out(&cdb(1), &halves), None);
        assert_eq!(rig.read(1, 40, 2), pairs(8, 40, 2));
        let sense = rig.bench.sense_out(&cdb(1), &halves).expect("it is not there any more");
        assert_eq!((codes(Some(sense)), sense.information), ((0xe, 0x1d, 0), Some(0)));
        let mut bad = [pairs(8, 40, 2), pairs(1, 40, 2)].concat();
        bad[1040 + 520 + 3] ^= 1;
        let sense = rig.bench.sense_out(&cdb(4), &bad).expect("spoiled");
        assert_eq!((codes(Some(sense)), sense.information), (GUARD, Some(41)));
        let plain = [block(8), block(9), block(1), block(2)].concat();
        assert_eq!(rig.bench.sense_out(&cdb(0), &plain), None);
        assert_eq!(rig.beside(40, 1)[0].guard, crc::crc16_t10dif(&block(1)));
        assert_eq!(codes(rig.bench.sense_out(&cdb(1), &plain)), (5, 0x0e, 3));
    }
}

/// Covers-scsi: 8B.
#[test]
fn orwrite_makes_the_guard_of_what_it_leaves() {
    let rig = Rig::new(One);
    let (old, new) = (vec![0x0f; 512], vec![0x30; 512]);
    assert_eq!(rig.codes(Ask::new(Name::Write, 1, 6, 1), &pair(&old, right(&old, 6))), GOOD);
    assert_eq!(rig.codes(Ask::new(Name::Or, 1, 6, 1), &pair(&new, right(&new, 6))), GOOD);
    let all = vec![0x3f; 512];
    assert_eq!(rig.read(1, 6, 1), pair(&all, right(&all, 6)));
    assert_eq!(rig.codes(Ask::new(Name::Or, 0, 6, 1), &vec![0x40; 512]), GOOD);
    assert_eq!(rig.beside(6, 1)[0].guard, crc::crc16_t10dif(&[0x7f; 512]));
    rig.bench.disk.bytes.lock()[6 * 512] ^= 1;
    assert_eq!(rig.codes(Ask::new(Name::Or, 0, 6, 1), &all), GUARD, "what is there is checked");
}

#[test]
fn what_changes_on_the_medium_is_found_out() {
    for kind in ProtectionType::ALL {
        let rig = Rig::new(kind);
        assert_eq!(rig.codes(Ask::new(Name::Write, 1, 12, 3), &pairs(4, 12, 3)), GOOD);
        rig.bench.disk.bytes.lock()[13 * 512 + 100] ^= 0x80;
        let sense = rig.sense(Ask::new(Name::Read, 1, 12, 3), &[]).expect("changed");
        assert_eq!((codes(Some(sense)), sense.information), (GUARD, Some(13)));
        assert_eq!(rig.read(3, 12, 3).len(), 1560, "who checks nothing gets it");
        // It is whole again once it is written.
        assert_eq!(rig.codes(Ask::new(Name::Write, 1, 13, 1), &pairs(5, 13, 1)), GOOD);
        assert_eq!(rig.codes(Ask::new(Name::Read, 1, 12, 3), &[]), GOOD);
    }
}

#[test]
fn who_touches_the_same_blocks_waits() {
    let rig = Rig::new(One);
    let nexus = &rig.bench.nexus;
    let start = |ask: Ask, out: &[u8]| {
        let (mut task, step) = nexus.start(&request(Lun::Unit(0), &ask.short(), out, 4096));
        match step {
            Step::ReceiveDataOut { .. } => {
                let step = task.resume(nexus, Input::DataOut(Slice::from(out.to_vec())));
                (task, step)
            }
            step => (task, step),
        }
    };
    let (mut first, mut step) = start(Ask::new(Name::Write, 1, 8, 2), &pairs(1, 8, 2));
    let (mut second, waits) = start(Ask::new(Name::Write, 1, 9, 2), &pairs(5, 9, 2));
    let (mut reader, late) = start(Ask::new(Name::Read, 1, 8, 1), &[]);
    assert!(matches!((&waits, late), (Step::Wait, Step::Wait)));
    let (_, apart) = start(Ask::new(Name::Read, 1, 10, 1), &[]);
    assert!(matches!(apart, Step::Wait), "who came before it and waits goes first");
    assert!(matches!(start(Ask::new(Name::Read, 1, 11, 1), &[]).1, Step::Store(_)));
    while let Step::Store(op) = step {
        assert!(matches!(second.resume(nexus, Input::Turn), Step::Wait));
        step = first.resume(nexus, Input::Store(submit(&first, &op)));
    }
    assert!(matches!(step, Step::Complete(_)));
    assert!(matches!(reader.resume(nexus, Input::Turn), Step::Store(_)));
    let step = second.resume(nexus, Input::Turn);
    assert!(matches!(step, Step::Store(_)));
    // An abort gives the blocks free.
    drop(second);
    assert_eq!(rig.codes(Ask::new(Name::Write, 1, 9, 2), &pairs(7, 9, 2)), GOOD);
}

/// One block of a model: data and what stands beside them.
#[derive(Clone, Debug, PartialEq)]
struct Cell(Vec<u8>, Information);

#[derive(Clone, Debug)]
enum Act {
    Write { code: u8, fill: u8 },
    Same { code: u8, fill: u8 },
    Unmap,
    Or { fill: u8 },
}

fn any_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        (0_u8..6, any::<u8>()).prop_map(|(code, fill)| Act::Write { code, fill }),
        (0_u8..6, any::<u8>()).prop_map(|(code, fill)| Act::Same { code, fill }),
        Just(Act::Unmap),
        any::<u8>().prop_map(|fill| Act::Or { fill }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn a_disk_is_as_its_model(
        acts in proptest::collection::vec((any_act(), 0_u64..20, 1_u32..8), 1..20),
        type_one: bool,
    ) {
        let kind = if type_one { One } else { Three };
        let rig = Rig::new(kind);
        let mut model = vec![Cell(vec![0; 512], Information::ONES); 32];
        for (act, lba, blocks) in acts {
            let generated = |data: &[u8], lba: u64| {
                let of_lba = u32::try_from(lba).expect("small");
                let reference = if type_one { of_lba } else { u32::MAX };
                Information { guard: crc::crc16_t10dif(data), application: 0, reference }
            };
            let first = usize::try_from(lba).expect("small");
            let range = first..first + usize::try_from(blocks).expect("small");
            let cells = model[range].iter_mut().zip(lba..).zip(0_u8..);
            match act {
                Act::Write { code, fill } => {
                    let out = pairs(fill, lba, blocks);
                    let plain = out.chunks(520).flat_map(|pair| &pair[..512]).copied().collect();
                    let out = if code == 0 { plain } else { out };
                    let ask = Ask::new(Name::Write, code, lba, blocks);
                    prop_assert_eq!(rig.codes(ask, &out), GOOD);
                    for ((cell, lba), index) in cells {
                        let data = block(fill.wrapping_add(index));
                        let beside = match code {
                            0 => generated(&data, lba),
                            _ => right(&data, lba),
                        };
                        *cell = Cell(data, beside);
                    }
                }
                Act::Same { code, fill } => {
                    let out = if code == 0 { block(fill) } else { pairs(fill, lba, 1) };
                    let ask = Ask::new(Name::Same, code, lba, blocks);
                    prop_assert_eq!(rig.codes(ask, &out), GOOD);
                    for ((cell, at), _) in cells {
                        let of = if type_one { at } else { lba };
                        let beside = match code {
                            0 => generated(&block(fill), at),
                            _ => right(&block(fill), of),
                        };
                        *cell = Cell(block(fill), beside);
                    }
                }
                Act::Unmap => {
                    let cdb = Ask::new(Name::Same, 0, lba, blocks).flags(9);
                    prop_assert_eq!(rig.codes(cdb, &[]), GOOD);
                    cells.for_each(|((cell, _), _)| *cell = Cell(vec![0; 512], Information::ONES));
                }
                Act::Or { fill } => {
                    let out: Vec<u8> = (0..blocks).flat_map(|_| block(fill)).collect();
                    prop_assert_eq!(rig.codes(Ask::new(Name::Or, 0, lba, blocks), &out), GOOD);
                    for ((cell, lba), _) in cells {
                        cell.0.iter_mut().zip(block(fill)).for_each(|(to, from)| *to |= from);
                        cell.1 = generated(&cell.0, lba);
                    }
                }
            }
            let expected: Vec<u8> =
                model.iter().flat_map(|cell| pair(&cell.0, cell.1)).collect();
            prop_assert_eq!(rig.read(1, 0, 32), expected);
        }
        prop_assert!(rig.bench.unit.blocks() == BLOCKS);
    }
}
