// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Block commands against a disk in memory.

mod anchor;
mod atomic;
mod exclusive;
mod further;

use crate::Input;
use crate::Step;
use crate::limits;
use crate::task::Completion;
use crate::testing::BLOCKS;
use crate::testing::Bench;
use crate::testing::Seen;
use crate::testing::codes;
use crate::testing::geometry;
use crate::testing::request;
use crate::testing::sense_of;
use alloc::vec;
use alloc::vec::Vec;
use buf::Slice;
use store::Error;
use store::Geometry;
use store::Outcome;
use store::Space;
use wire::scsi::Lun;
use wire::scsi::cdb::BlockCommand;
use wire::scsi::opcode::Opcode;
use wire::scsi::sense::FieldOf;
use wire::scsi::unmap::Range;
use wire::scsi::unmap::emit;

const FUA: u8 = 0x08;
const READS: [Opcode; 4] = [Opcode::READ_6, Opcode::READ_10, Opcode::READ_12, Opcode::READ_16];
const WRITES: [Opcode; 4] = [Opcode::WRITE_6, Opcode::WRITE_10, Opcode::WRITE_12, Opcode::WRITE_16];
const VERIFIES: [Opcode; 3] = [Opcode::VERIFY_10, Opcode::VERIFY_12, Opcode::VERIFY_16];
const SAMES: [Opcode; 2] = [Opcode::WRITE_SAME_10, Opcode::WRITE_SAME_16];

fn block_cdb(opcode: Opcode, lba: u64, length: u32, flags: u8) -> Vec<u8> {
    let command = BlockCommand { opcode, lba, length, flags, group_number: 0 };
    command.emit().expect("values fit the group").bytes[..16].to_vec()
}

fn bytes_of(completion: Completion) -> Vec<u8> {
    completion.data_in.map(|data| data.to_vec()).unwrap_or_default()
}

fn large() -> Bench {
    Bench::with(Geometry { bytes: 32 << 20, ..geometry() }, 512)
}

fn pattern(length: usize) -> Vec<u8> {
    (0_usize..length).map(|index| u8::try_from(index * 7 % 251).expect("below 251")).collect()
}

/// Covers-scsi: 08, 0A, 28, 2A, A8, AA, 88, 8A.
#[test]
fn what_was_written_is_read_in_each_form() {
    let bench = Bench::new();
    for (index, (write, read)) in (0_u8..).zip(WRITES.into_iter().zip(READS)) {
        let data: Vec<u8> = pattern(1024).iter().map(|byte| byte ^ index).collect();
        let lba = 3 + 16 * u64::from(index);
        let written = bench.run(&block_cdb(write, lba, 2, 0), &data, 0);
        assert_eq!((written.status, written.presented), (0, 1024));
        let got = bench.run(&block_cdb(read, lba, 2, 0), &[], 1024);
        assert_eq!((got.status, got.presented), (0, 1024));
        assert_eq!(bytes_of(got), data);
        let offset = lba * 512;
        assert_eq!(bench.log(), [Seen::Write(offset, 1024), Seen::Read(offset, 1024)]);
    }
}

/// Covers-scsi: 08.
#[test]
fn read_6_of_zero_is_256_blocks() {
    let bench = Bench::new();
    let got = bench.run(&[0x08, 0, 0, 0, 0, 0], &[], 1 << 20);
    assert_eq!(got.presented, 256 * 512);
}

#[test]
fn zero_blocks_move_nothing_but_check_the_address() {
    let bench = Bench::new();
    let others = [Opcode::READ_10, Opcode::READ_16, Opcode::WRITE_12, Opcode::WRITE_16];
    for opcode in others.into_iter().chain(VERIFIES) {
        assert_eq!(bench.sense(&block_cdb(opcode, BLOCKS, 0, 0)), None);
        for lba in [BLOCKS + 1, 0x8000_0000, 0xffff_ffff] {
            let sense = bench.sense(&block_cdb(opcode, lba, 0, 0));
            assert_eq!(codes(sense), (5, 0x21, 0), "{opcode:?} {lba:x}");
        }
    }
    assert_eq!(bench.log(), []);
}

#[test]
fn beyond_the_end_is_out_of_range_with_the_first_bad_block() {
    let bench = Bench::new();
    let data = vec![0; 1 << 18];
    let all = READS.into_iter().chain(WRITES).chain(VERIFIES).chain(SAMES);
    for opcode in all.chain([Opcode::SYNCHRONIZE_CACHE_10, Opcode::SYNCHRONIZE_CACHE_16]) {
        for (lba, length) in [(BLOCKS - 1, 2), (BLOCKS, 1), (BLOCKS - 100, 101), (0x1f_ffff, 255)] {
            let sense = bench.sense_out(&block_cdb(opcode, lba, length, 0), &data);
            assert_eq!(codes(sense), (5, 0x21, 0), "{opcode:?} {lba:x} {length}");
            assert_eq!(sense.and_then(|sense| sense.information), Some(lba.max(BLOCKS)));
        }
    }
    for opcode in [Opcode::READ_16, Opcode::WRITE_16, Opcode::VERIFY_16, Opcode::WRITE_SAME_16] {
        for (lba, length) in [(u64::MAX, 1), (u64::MAX, u32::MAX), (1 << 63, 1), (u64::MAX >> 9, 9)]
        {
            let sense = bench.sense_out(&block_cdb(opcode, lba, length, 0), &data);
            assert_eq!(codes(sense), (5, 0x21, 0), "{opcode:?} {lba:x} {length}");
        }
    }
    assert_eq!(bench.log(), []);
}

#[test]
fn longer_than_the_maximum_points_at_the_length() {
    let bench = large();
    let max = limits::TRANSFER_MAX / 512;
    let cases = [
        (Opcode::READ_10, 7),
        (Opcode::WRITE_10, 7),
        (Opcode::VERIFY_10, 7),
        (Opcode::READ_12, 6),
        (Opcode::WRITE_12, 6),
        (Opcode::READ_16, 10),
        (Opcode::WRITE_16, 10),
        (Opcode::VERIFY_16, 10),
    ];
    for (opcode, byte) in cases {
        let sense = bench.sense(&block_cdb(opcode, 0, max + 1, 0)).expect("refused");
        assert_eq!(codes(Some(sense)), (5, 0x24, 0));
        let field = sense.field.expect("a field pointer");
        assert_eq!((field.of, field.byte, field.bit), (FieldOf::Cdb, byte, None));
    }
    assert_eq!(bench.log(), []);
    let whole = bench.run(&block_cdb(Opcode::READ_16, 0, max, 0), &[], limits::TRANSFER_MAX);
    assert_eq!(whole.presented, u64::from(limits::TRANSFER_MAX));
    assert_eq!(bench.log(), [Seen::Read(0, u64::from(limits::TRANSFER_MAX))]);
}

/// Covers-scsi: 28, 2A.
#[test]
fn force_unit_access_reaches_the_medium() {
    let bench = Bench::new();
    for opcode in [Opcode::WRITE_10, Opcode::WRITE_12, Opcode::WRITE_16] {
        assert_eq!(bench.sense_out(&block_cdb(opcode, 1, 1, FUA), &[1; 512]), None);
        assert_eq!(bench.log(), [Seen::Durable(512, 512)]);
        assert_eq!(bench.sense(&block_cdb(Opcode::READ_10, 1, 1, FUA)), None);
        assert_eq!(bench.log(), [Seen::Flush, Seen::Read(512, 512)]);
    }
    let safe = Bench::with(Geometry { volatile_cache: false, ..geometry() }, 512);
    assert_eq!(safe.sense(&block_cdb(Opcode::READ_10, 1, 1, FUA)), None);
    assert_eq!(safe.log(), [Seen::Read(512, 512)]);
}

#[test]
fn dpo_and_fua_nv_are_hints() {
    let bench = Bench::new();
    for flags in [0x10, 0x02, 0x12] {
        assert_eq!(bench.sense_out(&block_cdb(Opcode::WRITE_10, 1, 1, flags), &[1; 512]), None);
        assert_eq!(bench.sense(&block_cdb(Opcode::READ_16, 1, 1, flags)), None);
    }
}

/// Covers-scsi: 28.
#[test]
fn a_read_moves_what_the_initiator_has_room_for() {
    let bench = Bench::new();
    let cdb = block_cdb(Opcode::READ_10, 0, 8, 0);
    for (expected, read) in [(4096, 4096), (8192, 4096), (2048, 2048), (200, 512)] {
        let got = bench.run(&cdb, &[], expected);
        assert_eq!((got.status, got.presented), (0, 4096));
        assert_eq!(bench.log(), [Seen::Read(0, read)]);
        assert_eq!(bytes_of(got).len() as u64, read);
    }
    let nothing = bench.run(&cdb, &[], 0);
    assert_eq!((nothing.status, nothing.presented), (0, 4096));
    let as_write = bench.run(&cdb, &[0; 4096], 0);
    assert_eq!(as_write.status, 0);
    assert_eq!(bench.log(), []);
}

/// Covers-scsi: 2A.
#[test]
fn a_write_takes_what_its_cdb_says_or_what_is_sent() {
    let bench = Bench::new();
    let cdb = block_cdb(Opcode::WRITE_10, 0, 8, 0);
    let longer = bench.run(&cdb, &[1; 8192], 0);
    assert_eq!((longer.status, longer.presented), (0, 4096));
    assert_eq!(bench.log(), [Seen::Write(0, 4096)]);
    let cases: [(usize, &[Seen]); 4] = [
        (0, &[]),
        (200, &[Seen::Read(0, 512), Seen::Write(0, 512)]),
        (2048, &[Seen::Write(0, 2048)]),
        (700, &[Seen::Write(0, 512), Seen::Read(512, 512), Seen::Write(512, 512)]),
    ];
    for (short, seen) in cases {
        bench.run(&cdb, &[1; 4096], 0);
        bench.log();
        let taken = bench.run(&cdb, &vec![2; short], 0);
        assert_eq!((taken.status, taken.presented), (0, 4096), "the residual stays truthful");
        assert_eq!(bench.log(), seen);
        let now = bytes_of(bench.run(&block_cdb(Opcode::READ_10, 0, 8, 0), &[], 4096));
        assert!(now[..short].iter().all(|byte| *byte == 2), "{short} bytes are new");
        assert!(now[short..].iter().all(|byte| *byte == 1), "the rest is kept");
        bench.log();
    }
}

#[test]
fn a_read_only_store_refuses_every_change() {
    let bench = Bench::with(Geometry { read_only: true, ..geometry() }, 512);
    let list = emit(&[Range { lba: 0, blocks: 8 }]).expect("a short list");
    let unmap = [0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0];
    assert_eq!(codes(bench.sense_out(&unmap, &list)), (7, 0x27, 0));
    for opcode in WRITES.into_iter().chain(SAMES) {
        let sense = bench.sense_out(&block_cdb(opcode, 0, 1, 0), &[0; 512]);
        assert_eq!(codes(sense), (7, 0x27, 0));
    }
    assert_eq!(bench.sense(&block_cdb(Opcode::READ_10, 0, 1, 0)), None);
    assert_eq!(bench.log(), [Seen::Read(0, 512)]);
}

#[test]
fn store_errors_become_sense_data() {
    let bench = Bench::new();
    let cases = [
        (Error::Read, (3, 0x11, 0), Some(5)),
        (Error::Write, (3, 0x0c, 0), Some(5)),
        (Error::Space, (7, 0x27, 7), Some(5)),
        (Error::ReadOnly, (7, 0x27, 0), None),
        (Error::Internal, (4, 0x44, 0), None),
    ];
    for (error, expected, information) in cases {
        *bench.disk.error.lock() = Some(error);
        for opcode in [Opcode::READ_10, Opcode::WRITE_10, Opcode::VERIFY_10, Opcode::WRITE_SAME_10]
        {
            let completion = bench.run(&block_cdb(opcode, 5, 1, 0), &[1; 512], 512);
            let sense = sense_of(&completion);
            assert_eq!(codes(sense), expected, "{opcode:?}");
            assert_eq!(sense.and_then(|sense| sense.information), information);
            assert_eq!(completion.presented, 0);
        }
    }
    for (error, status) in
        [(Error::Busy, wire::scsi::sam::TASK_SET_FULL), (Error::Silent, wire::scsi::sam::BUSY)]
    {
        *bench.disk.error.lock() = Some(error);
        let completion = bench.run(&block_cdb(Opcode::WRITE_10, 5, 1, 0), &[1; 512], 512);
        assert_eq!((completion.status, completion.sense.len()), (status, 0));
    }
}

/// Covers-scsi: 2F, AF, 8F.
#[test]
fn verify_compares_as_byte_check_says() {
    let bench = Bench::new();
    let data = pattern(4 * 512);
    bench.run(&block_cdb(Opcode::WRITE_10, 8, 4, 0), &data, 0);
    for opcode in VERIFIES {
        bench.log();
        for (length, seen) in [(4, &[Seen::Read(8 * 512, 4 * 512)][..]), (0, &[])] {
            assert_eq!(bench.sense(&block_cdb(opcode, 8, length, 0x00)), None);
            assert_eq!(bench.log(), seen, "it is read, although nothing is compared");
        }
        *bench.disk.error.lock() = Some(Error::Read);
        assert_eq!(codes(bench.sense(&block_cdb(opcode, 8, 4, 0x00))), (3, 0x11, 0));
        *bench.disk.error.lock() = None;
        assert_eq!(codes(bench.sense(&block_cdb(opcode, BLOCKS - 1, 2, 0))), (5, 0x21, 0));
        assert_eq!(bench.sense_out(&block_cdb(opcode, 8, 4, 0x02), &data), None);
        for at in [0, 511, 512, 2047] {
            let mut other = data.clone();
            other[at] ^= 1;
            let sense = bench.sense_out(&block_cdb(opcode, 8, 4, 0x02), &other);
            assert_eq!(codes(sense), (0xe, 0x1d, 0), "byte {at}");
            assert_eq!(bench.sense_out(&block_cdb(opcode, 8, 4, 0x00), &other), None);
        }
        let one = bench.sense_out(&block_cdb(opcode, 8, 4, 0x06), &data[..512]);
        assert_eq!(codes(one), (0xe, 0x1d, 0));
        assert_eq!(bench.sense_out(&block_cdb(opcode, 100, 4, 0x06), &[0; 512]), None);
        let short = bench.sense_out(&block_cdb(opcode, 8, 4, 0x02), &data[..512]);
        assert_eq!(codes(short), (5, 0x0e, 3));
        let reserved = bench.sense(&block_cdb(opcode, 8, 4, 0x04)).expect("refused");
        assert_eq!(reserved.field.map(|field| (field.byte, field.bit)), Some((1, Some(2))));
        assert_eq!(codes(bench.sense(&block_cdb(opcode, 8, 4, 0x20))), (5, 0x24, 0));
    }
}

#[test]
fn verify_goes_in_pieces() {
    let bench = large();
    let blocks = 3 * limits::PIECE_MAX / 512 + 1;
    let length = blocks as usize * 512;
    let mut data = pattern(length);
    bench.run(&block_cdb(Opcode::WRITE_16, 0, blocks, 0), &data, 0);
    bench.log();
    let cdb = block_cdb(Opcode::VERIFY_16, 0, blocks, 0x02);
    assert_eq!(bench.sense_out(&cdb, &data), None);
    let piece = u64::from(limits::PIECE_MAX);
    assert_eq!(
        bench.log(),
        [
            Seen::Read(0, piece),
            Seen::Read(piece, piece),
            Seen::Read(2 * piece, piece),
            Seen::Read(3 * piece, 512)
        ]
    );
    data[length - 1] ^= 1;
    assert_eq!(codes(bench.sense_out(&cdb, &data)), (0xe, 0x1d, 0));
}

/// Covers-scsi: 35, 91.
#[test]
fn synchronize_cache_flushes() {
    let bench = Bench::new();
    for opcode in [Opcode::SYNCHRONIZE_CACHE_10, Opcode::SYNCHRONIZE_CACHE_16] {
        for (lba, length, flags) in
            [(0, 0, 0), (5, 7, 0), (BLOCKS, 0, 0), (0, 0, 0x02), (0, 0, 0x04)]
        {
            assert_eq!(bench.sense(&block_cdb(opcode, lba, length, flags)), None);
            assert_eq!(bench.log(), [Seen::Flush]);
        }
        *bench.disk.error.lock() = Some(Error::Write);
        assert_eq!(codes(bench.sense(&block_cdb(opcode, 0, 0, 0))), (3, 0x0c, 0));
        *bench.disk.error.lock() = None;
        bench.log();
        for (lba, length) in [(BLOCKS, 1), (BLOCKS - 1, 2), (BLOCKS + 1, 0)] {
            assert_eq!(codes(bench.sense(&block_cdb(opcode, lba, length, 0))), (5, 0x21, 0));
        }
        assert_eq!(bench.log(), [], "a range that is not there");
    }
}

/// Covers-scsi: 41, 93.
#[test]
fn write_same_repeats_a_pattern_in_pieces() {
    let bench = large();
    let block = pattern(512);
    let blocks = 2 * limits::PIECE_MAX / 512 + 3;
    for opcode in SAMES {
        let done = bench.run(&block_cdb(opcode, 9, blocks, 0x08), &block, 0);
        assert_eq!((done.status, done.presented), (0, 512));
        let piece = u64::from(limits::PIECE_MAX);
        let start = 9 * 512;
        assert_eq!(
            bench.log(),
            [
                Seen::Write(start, piece),
                Seen::Write(start + piece, piece),
                Seen::Write(start + 2 * piece, 3 * 512)
            ]
        );
        let bytes = bench.disk.bytes.lock();
        let end = 9 * 512 + blocks as usize * 512;
        assert!(bytes[9 * 512..end].chunks(512).all(|written| written == block));
        assert!(bytes[end..].iter().all(|byte| *byte == 0));
        assert!(bytes[..9 * 512].iter().all(|byte| *byte == 0));
    }
}

/// Covers-scsi: 93.
#[test]
fn write_same_of_zeros_zeroes_or_discards() {
    let bench = large();
    let max = limits::WRITE_SAME_MAX / 512;
    for opcode in SAMES {
        assert_eq!(bench.sense_out(&block_cdb(opcode, 0, max, 0), &[0; 512]), None);
        let piece = limits::ZERO_MAX;
        let zeroed: Vec<_> = (0..4).map(|index| Seen::Zero(index * piece, piece)).collect();
        assert_eq!(bench.log(), zeroed);
        assert_eq!(bench.sense_out(&block_cdb(opcode, 8, 16, 0x08), &[0; 512]), None);
        assert_eq!(bench.log(), [Seen::Discard(8 * 512, 16 * 512)]);
    }
    assert_eq!(bench.sense(&block_cdb(Opcode::WRITE_SAME_16, 8, 16, 0x09)), None);
    assert_eq!(bench.log(), [Seen::Discard(8 * 512, 16 * 512)]);
    assert_eq!(bench.sense(&block_cdb(Opcode::WRITE_SAME_16, 8, 16, 0x01)), None);
    assert_eq!(bench.log(), [Seen::Zero(8 * 512, 16 * 512)]);
}

#[test]
fn write_same_refuses_what_it_cannot_do() {
    let bench = large();
    let refused = |opcode, length, flags, out: &[u8]| {
        let sense = bench.sense_out(&block_cdb(opcode, 0, length, flags), out).expect("refused");
        (codes(Some(sense)), sense.field.map(|field| (field.byte, field.bit)))
    };
    let invalid = (5, 0x24, 0);
    for (opcode, at) in [(Opcode::WRITE_SAME_10, 7), (Opcode::WRITE_SAME_16, 10)] {
        assert_eq!(refused(opcode, 0, 0, &[0; 512]), (invalid, Some((at, None))), "WSNZ");
        let above = limits::WRITE_SAME_MAX / 512 + 1;
        assert_eq!(refused(opcode, above, 0, &[0; 512]), (invalid, Some((at, None))));
        assert_eq!(refused(opcode, 1, 0x10, &[0; 512]), (invalid, Some((1, Some(4)))), "ANCHOR");
        assert_eq!(refused(opcode, 1, 0x20, &[0; 512]), (invalid, Some((1, Some(7)))));
        for wrong in [0, 256, 1024] {
            assert_eq!(refused(opcode, 1, 0x08, &vec![0; wrong]), ((5, 0x0e, 3), None));
        }
    }
    assert_eq!(refused(Opcode::WRITE_SAME_10, 1, 0x01, &[0; 512]), (invalid, Some((1, Some(0)))));
    assert_eq!(bench.log(), []);
    let plain = Bench::with(Geometry { anchors: false, ..geometry() }, 512);
    let thick = Bench::with(Geometry { discard_granularity: None, ..geometry() }, 512);
    for (opcode, disk, flags, bit) in SAMES.into_iter().flat_map(|opcode| {
        [
            (opcode, &thick, 0x08, 3),
            (opcode, &thick, 0x18, 4),
            (opcode, &plain, 0x18, 4),
            (opcode, &plain, 0x10, 4),
        ]
    }) {
        let sense = disk.sense_out(&block_cdb(opcode, 0, 1, flags), &[0; 512]).expect("refused");
        assert_eq!(sense.field.map(|field| (field.byte, field.bit)), Some((1, Some(bit))));
        assert_eq!(disk.log(), []);
    }
}

fn unmap(bench: &Bench, list: &[u8]) -> (u8, u8, u8) {
    let [high, low] = u16::try_from(list.len()).expect("a short list").to_be_bytes();
    codes(bench.sense_out(&[0x42, 0, 0, 0, 0, 0, 0, high, low, 0], list))
}

fn unmap_ranges(bench: &Bench, ranges: &[Range]) -> (u8, u8, u8) {
    unmap(bench, &emit(ranges).expect("a short list"))
}

/// Covers-scsi: 42.
#[test]
fn unmap_discards_each_range() {
    let bench = Bench::new();
    bench.disk.bytes.lock().fill(0xff);
    let ranges = [
        Range { lba: 8, blocks: 8 },
        Range { lba: BLOCKS, blocks: 0 },
        Range { lba: 1, blocks: 1 },
    ];
    assert_eq!(unmap_ranges(&bench, &ranges), (0, 0, 0));
    assert_eq!(bench.log(), [Seen::Discard(8 * 512, 8 * 512), Seen::Discard(512, 512)]);
    assert_eq!(bench.disk.bytes.lock()[512..1024], [0; 512]);
    assert_eq!(unmap_ranges(&bench, &[]), (0, 0, 0));
    assert_eq!(unmap(&bench, &[]), (0, 0, 0));
    let many = vec![Range { lba: 3, blocks: 1 }; 256];
    assert_eq!(unmap_ranges(&bench, &many), (0, 0, 0));
    assert_eq!(bench.log().len(), 256);
}

#[test]
fn unmap_goes_in_pieces() {
    let bench = Bench::with(Geometry { bytes: 1 << 40, ..geometry() }, 4096);
    let blocks = u32::try_from(limits::DISCARD_MAX / 4096).expect("small") + 1;
    let list = emit(&[Range { lba: 1, blocks }]).expect("a short list");
    let cdb = [0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0];
    let (mut task, step) = bench.nexus.start(&request(Lun::Unit(0), &cdb, &list, 0));
    assert!(matches!(step, Step::ReceiveDataOut { length: 24 }));
    let step = task.resume(&bench.nexus, Input::DataOut(Slice::from(list)));
    let Step::Store(store::Op::Clear { offset: 4096, length, leave: Space::Deallocated }) = step
    else {
        panic!("a discard, not {step:?}")
    };
    assert_eq!(length, limits::DISCARD_MAX);
    let step = task.resume(&bench.nexus, Input::Store(Outcome::Done));
    assert!(
        matches!(
            step,
            Step::Store(store::Op::Clear { length: 4096, leave: Space::Deallocated, .. })
        ),
        "{step:?}"
    );
    let step = task.resume(&bench.nexus, Input::Store(Outcome::Done));
    assert!(matches!(step, Step::Complete(Completion { status: 0, presented: 24, .. })));
}

/// Covers-scsi: 42.
#[test]
fn a_hostile_unmap_list_touches_nothing() {
    let bench = Bench::with(Geometry { bytes: 1 << 40, ..geometry() }, 512);
    let good = Range { lba: 0, blocks: 8 };
    let end = (1 << 40) / 512;
    let out_of_range = (5, 0x21, 0);
    for bad in [(end, 1), (u64::MAX, 1), (u64::MAX, u32::MAX), (end + 1, 0), (end - 1, 2)] {
        let bad = Range { lba: bad.0, blocks: bad.1 };
        assert_eq!(unmap_ranges(&bench, &[good, bad]), out_of_range, "{bad:?}");
    }
    let half = limits::UNMAP_BLOCKS_MAX / 2;
    let halves = [half, half, 1].map(|blocks| Range { lba: 0, blocks });
    assert_eq!(unmap_ranges(&bench, &halves), (5, 0x26, 0));
    assert_eq!(unmap_ranges(&bench, &[good; 257]), (5, 0x26, 0));
    let list = emit(&[good]).expect("a short list");
    for cut in 1..list.len() {
        assert_eq!(unmap(&bench, &list[..cut]), (5, 0x1a, 0), "cut at {cut}");
    }
    let mut lies = list.clone();
    lies[3] = 64;
    assert_eq!(unmap(&bench, &lies), (5, 0x26, 0));
    lies[1] = 255;
    assert_eq!(unmap(&bench, &lies), (5, 0x1a, 0));
    assert_eq!(bench.log(), []);
}

/// Covers-scsi: 42.
#[test]
fn unmap_is_unknown_where_the_store_cannot() {
    let thick = Bench::with(Geometry { discard_granularity: None, ..geometry() }, 512);
    assert_eq!(unmap_ranges(&thick, &[Range { lba: 0, blocks: 1 }]), (5, 0x20, 0));
    let plain = Bench::with(Geometry { anchors: false, ..geometry() }, 512);
    let anchor = plain.sense(&[0x42, 1, 0, 0, 0, 0, 0, 0, 0, 0]).expect("refused");
    assert_eq!(anchor.field.map(|field| (field.byte, field.bit)), Some((1, Some(0))));
}

/// Covers-scsi: 25, 9E/10.
#[test]
fn read_capacity_tells_the_geometry() {
    let bench = Bench::new();
    assert_eq!(bench.data(&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0]), [0, 0, 0x0f, 0xff, 0, 0, 2, 0]);
    let mut cdb = [0; 16];
    (cdb[0], cdb[1], cdb[13]) = (0x9e, 0x10, 32);
    let mut expected = vec![0, 0, 0, 0, 0, 0, 0x0f, 0xff, 0, 0, 2, 0, 0, 3, 0xc0, 0];
    expected.resize(32, 0);
    assert_eq!(bench.data(&cdb), expected);
    for length in 0..16 {
        cdb[13] = length;
        assert_eq!(bench.data(&cdb).len(), usize::from(length));
    }
    let huge = Geometry { bytes: 4 << 40, discard_granularity: None, ..geometry() };
    let huge = Bench::with(huge, 512);
    assert_eq!(huge.data(&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0])[..4], [0xff; 4]);
    cdb[13] = 32;
    assert_eq!(huge.data(&cdb)[14], 0);
    let native = Bench::with(geometry(), 4096);
    assert_eq!(native.data(&cdb)[8..14], [0, 0, 0x10, 0, 0, 0]);
}

/// Covers-scsi: 00, 1B.
#[test]
fn a_stopped_unit_is_not_ready_until_it_starts() {
    let bench = Bench::new();
    let stop = |flags| bench.sense(&[0x1b, 0, 0, 0, flags, 0]);
    assert_eq!(stop(0), None);
    assert_eq!(bench.log(), [Seen::Flush]);
    for entry in crate::table::all()
        .filter(|entry| entry.supported(&bench.unit))
        .filter(|entry| entry.has(crate::table::Flag::Medium))
    {
        assert_eq!(codes(bench.sense(&entry.bare())), (2, 4, 2), "{:?}", entry.opcode.name());
    }
    assert_eq!(codes(bench.sense(&[0; 6])), (2, 4, 2), "TEST UNIT READY");
    assert_eq!(bench.sense(&[0x12, 0, 0, 0, 36, 0]), None);
    assert_eq!(bench.data(&[3, 0, 0, 0, 18, 0])[12..14], [4, 2]);
    assert_eq!(stop(1), None);
    assert_eq!(bench.sense(&[0; 6]), None);
    assert_eq!(stop(4), None);
    assert_eq!(bench.log(), [], "NO_FLUSH");
    bench.unit.logical_unit_reset();
    assert_eq!(codes(bench.sense(&[0; 6])), (6, 0x29, 3));
    assert_eq!(bench.sense(&[0; 6]), None, "a reset starts the unit");
}

/// Covers-scsi: 1B, 1E.
#[test]
fn start_stop_has_nothing_to_eject_and_no_power_conditions() {
    let bench = Bench::new();
    for (flags, bit) in [(0x02, 1), (0x03, 1), (0x10, 7), (0x31, 7)] {
        let sense = bench.sense(&[0x1b, 0, 0, 0, flags, 0]).expect("refused");
        assert_eq!(codes(Some(sense)), (5, 0x24, 0));
        assert_eq!(sense.field.map(|field| (field.byte, field.bit)), Some((4, Some(bit))));
    }
    assert_eq!(bench.sense(&[0; 6]), None, "still started");
    assert_eq!(bench.sense(&[0x1e, 0, 0, 0, 1, 0]), None);
    assert_eq!(bench.sense(&[0x1e, 0, 0, 0, 0, 0]), None);
    assert_eq!(codes(bench.sense(&[0x1e, 0, 0, 0, 2, 0])), (5, 0x24, 0));
}

#[test]
fn an_input_that_was_not_asked_for_fails_the_command() {
    let bench = Bench::new();
    let read = request(Lun::Unit(0), &block_cdb(Opcode::READ_10, 0, 1, 0), &[], 512);
    let wrong = [
        Input::DataOut(Slice::from(vec![0; 512])),
        Input::Store(Outcome::Done),
        Input::Store(Outcome::Data(Slice::from(vec![0; 511]))),
    ];
    for input in wrong {
        let (mut task, _) = bench.nexus.start(&read);
        let Step::Complete(completion) = task.resume(&bench.nexus, input) else {
            panic!("the command must end")
        };
        assert_eq!(codes(sense_of(&completion)), (4, 0x44, 0));
        let again = task.resume(&bench.nexus, Input::Store(Outcome::Done));
        assert!(matches!(again, Step::Complete(Completion { status: 2, .. })));
    }
}
