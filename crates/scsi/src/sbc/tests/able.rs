// SPDX-License-Identifier: Apache-2.0 OR MIT
//! COMPARE AND WRITE and WRITE SAME of a store that does them by itself.

use super::exclusive::compare_cdb;
use super::exclusive::halves;
use super::*;
use store::Op;

fn bench() -> Bench {
    Bench::able(geometry(), 512, 4096)
}

/// MAXIMUM COMPARE AND WRITE LENGTH.
fn compare_max(bench: &Bench) -> u8 {
    bench.data(&[0x12, 1, 0xb0, 0, 64, 0])[5]
}

/// Covers-scsi: 89.
#[test]
fn the_store_compares_and_writes_one_block() {
    let bench = bench();
    let (old, new) = (vec![0; 512], pattern(512));
    let done = bench.run(&compare_cdb(7, 1), &halves(&old, &new), 0);
    assert_eq!((done.status, done.presented), (0, 1024));
    assert_eq!(bench.log(), [Seen::Compare(3584, 512)], "one operation");
    let mut late = new.clone();
    late[511] ^= 1;
    let miss = bench.sense_out(&compare_cdb(7, 1), &halves(&late, &old)).expect("a miscompare");
    assert_eq!((codes(Some(miss)), miss.information), ((0xe, 0x1d, 0), Some(511)));
    assert_eq!(bench.log(), [Seen::Compare(3584, 512)], "nothing else is tried");
    let mut durable = compare_cdb(7, 1);
    durable[1] = FUA;
    assert_eq!(bench.sense_out(&durable, &halves(&new, &old)), None);
    assert_eq!(bench.log(), [Seen::DurableCompare(3584, 512)]);
    assert_eq!(bytes_of(bench.run(&block_cdb(Opcode::READ_16, 7, 1, 0), &[], 512)), old);
}

/// Covers-scsi: 89.
#[test]
fn what_is_not_one_operation_is_not_offered() {
    let bench = bench();
    assert_eq!(compare_max(&bench), 1);
    let two = bench.sense_out(&compare_cdb(0, 2), &[0; 2048]).expect("refused");
    assert_eq!(two.field.map(|field| field.byte), Some(13));
    assert_eq!(bench.log(), []);
    // A unit that no block fits in.
    let small = Bench::able(geometry(), 4096, 512);
    assert_eq!(compare_max(&small), 16);
    assert_eq!(small.sense_out(&compare_cdb(0, 1), &[0; 8192]), None);
    assert_eq!(small.log(), [Seen::Read(0, 4096), Seen::Write(0, 4096)]);
}

/// Covers-scsi: 89.
#[test]
fn what_the_store_cannot_do_after_all_is_done_by_reads_and_writes() {
    let bench = bench();
    let sent = halves(&[0; 512], &pattern(512));
    let request = request(Lun::Unit(0), &compare_cdb(7, 1), &sent, 0);
    let (mut task, _) = bench.nexus.start(&request);
    let mut resume = |input| match task.resume(&bench.nexus, input) {
        Step::Store(op) => op,
        step => panic!("{step:?}"),
    };
    let first = resume(Input::DataOut(Slice::from(sent)));
    assert!(matches!(first, Op::CompareAndWrite { .. }), "{first:?}");
    let read = resume(Input::Store(Outcome::Failed(Error::Unsupported)));
    let Op::Read { offset: 3584, length: 512 } = read else { panic!("{read:?}") };
    let write = resume(Input::Store(bench.disk.run(&read)));
    let Op::Write { offset: 3584, data, durable: false } = write else { panic!("{write:?}") };
    assert_eq!(data.to_vec(), pattern(512));
    let step = task.resume(&bench.nexus, Input::Store(Outcome::Done));
    assert!(matches!(step, Step::Complete(completion) if completion.status == 0));
}

/// Covers-scsi: 89.
#[test]
fn failures_of_the_store_are_told() {
    let bench = bench();
    let begin = |outcome| {
        let sent = halves(&[0; 512], &[1; 512]);
        let request = request(Lun::Unit(0), &compare_cdb(7, 1), &sent, 0);
        let (mut task, _) = bench.nexus.start(&request);
        let step = task.resume(&bench.nexus, Input::DataOut(Slice::from(sent)));
        assert!(matches!(step, Step::Store(_)));
        let Step::Complete(end) = task.resume(&bench.nexus, Input::Store(outcome)) else {
            panic!("goes on")
        };
        sense_of(&end).expect("a failure")
    };
    let failed = begin(Outcome::Failed(Error::Write));
    assert_eq!((codes(Some(failed)), failed.information), ((3, 0x0c, 0), Some(7)));
    let nowhere = begin(Outcome::Miscompare(None));
    assert_eq!((codes(Some(nowhere)), nowhere.information), ((0xe, 0x1d, 0), None));
    assert_eq!(codes(Some(begin(Outcome::Data(Slice::empty())))), (4, 0x44, 0));
}

/// With the cache off by its mode page, what is compared and written lasts, as what is written.
///
/// Covers-scsi: 89, 93.
#[test]
fn a_cache_that_is_switched_off_is_written_through() {
    let bench = bench();
    let caching = [0, 0, 0, 0, 0x08, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(bench.sense_out(&[0x15, 0x10, 0, 0, 24, 0], &caching), None);
    bench.log();
    assert_eq!(bench.sense_out(&compare_cdb(7, 1), &halves(&[0; 512], &[1; 512])), None);
    assert_eq!(bench.log(), [Seen::DurableCompare(3584, 512)]);
    let same = block_cdb(Opcode::WRITE_SAME_16, 0, 4, 0);
    assert_eq!(bench.sense_out(&same, &pattern(512)), None);
    assert_eq!(bench.log(), [Seen::Same(0, 2048), Seen::Flush]);
}

/// Covers-scsi: 41, 93.
#[test]
fn the_store_repeats_a_block() {
    let bench = Bench::able(Geometry { bytes: 32 << 20, ..geometry() }, 512, 4096);
    let (block, blocks) = (pattern(512), limits::WRITE_SAME_MAX / 512);
    for opcode in SAMES {
        let done = bench.run(&block_cdb(opcode, 9, blocks, 0x08), &block, 0);
        assert_eq!((done.status, done.presented), (0, 512));
        assert_eq!(bench.log(), [Seen::Same(9 * 512, u64::from(limits::WRITE_SAME_MAX))]);
    }
    let bytes = bench.disk.bytes.lock();
    let end = 9 * 512 + limits::WRITE_SAME_MAX as usize;
    assert!(bytes[9 * 512..end].chunks(512).all(|written| written == block));
    assert!(bytes[..9 * 512].iter().chain(&bytes[end..]).all(|byte| *byte == 0));
    drop(bytes);
    // Zeros are no pattern.
    assert_eq!(bench.sense_out(&block_cdb(Opcode::WRITE_SAME_16, 0, 8, 0), &[0; 512]), None);
    assert_eq!(bench.log(), [Seen::Zero(0, 4096)]);
}
