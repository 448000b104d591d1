// SPDX-License-Identifier: Apache-2.0 OR MIT
//! WRITE AND VERIFY, PRE-FETCH, GET LBA STATUS, READ DEFECT DATA and the 32-byte commands.

use super::*;
use wire::scsi::opcode;
use wire::scsi::protection::ProtectionType;
use wire::scsi::status;
use wire::scsi::status::Provisioning;

const BOTH: [Opcode; 3] =
    [Opcode::WRITE_AND_VERIFY_10, Opcode::WRITE_AND_VERIFY_12, Opcode::WRITE_AND_VERIFY_16];

/// Covers-scsi: 2E, AE, 8E.
#[test]
fn write_and_verify_reads_back_what_is_on_stable_storage() {
    let bench = Bench::new();
    for opcode in BOTH {
        for flags in [0, 2] {
            let done = bench.run(&block_cdb(opcode, 4, 2, flags), &pattern(1024), 0);
            assert_eq!((done.status, done.presented), (0, 1024));
            assert_eq!(bench.log(), [Seen::Durable(2048, 1024), Seen::Read(2048, 1024)]);
        }
        for flags in [4, 6] {
            let sense = bench.sense_out(&block_cdb(opcode, 4, 2, flags), &pattern(1024));
            let field = sense.and_then(|sense| sense.field).expect("a field");
            assert_eq!((field.byte, field.bit), (1, Some(2)));
        }
        let part = bench.run(&block_cdb(opcode, 4, 2, 2), &pattern(512), 0);
        assert_eq!((part.status, part.presented), (0, 1024));
        bench.log();
        assert_eq!(bench.sense(&block_cdb(opcode, BLOCKS, 0, 0)), None);
        assert_eq!(bench.log(), []);
    }
}

/// Covers-scsi: 2E, AE, 8E.
#[test]
fn write_and_verify_finds_a_difference() {
    for opcode in BOTH {
        finds_a_difference(opcode);
    }
}

fn finds_a_difference(opcode: Opcode) {
    let bench = Bench::new();
    let cdb = block_cdb(opcode, 0, 1, 2);
    let (mut task, _) = bench.nexus.start(&request(Lun::Unit(0), &cdb, &[1; 512], 0));
    task.resume(&bench.nexus, Input::DataOut(Slice::from(vec![1; 512])));
    let step = task.resume(&bench.nexus, Input::Store(Outcome::Done));
    assert!(matches!(step, Step::Store(store::Op::Read { offset: 0, length: 512 })));
    let mut read = vec![1; 512];
    read[300] = 2;
    let step = task.resume(&bench.nexus, Input::Store(Outcome::Data(Slice::from(read))));
    let Step::Complete(completion) = step else { panic!("{step:?}") };
    let sense = sense_of(&completion).expect("a miscompare");
    assert_eq!((codes(Some(sense)), sense.information), ((0xe, 0x1d, 0), Some(300)));
}

/// Covers-scsi: 34, 90.
#[test]
fn pre_fetch_reads_and_says_that_it_is_there() {
    let bench = Bench::new();
    for opcode in [Opcode::PRE_FETCH_10, Opcode::PRE_FETCH_16] {
        let run = |lba, length, flags| bench.run(&block_cdb(opcode, lba, length, flags), &[], 0);
        assert_eq!(run(8, 4, 0).status, 4);
        assert_eq!(bench.log(), [Seen::Read(4096, 2048)]);
        assert_eq!(run(BLOCKS - 2, 0, 0).status, 4);
        assert_eq!(bench.log(), [Seen::Read((BLOCKS - 2) * 512, 1024)], "to the end");
        assert_eq!(run(8, 4, 2).status, 4);
        assert_eq!(run(BLOCKS, 0, 0).status, 4);
        assert_eq!(bench.log(), []);
        assert_eq!(codes(sense_of(&run(BLOCKS - 1, 2, 0))), (5, 0x21, 0));
    }
    let large = large();
    let whole = large.run(&block_cdb(Opcode::PRE_FETCH_16, 0, 0, 0), &[], 0);
    assert_eq!((whole.status, large.log()), (0, vec![]));
}

pub(super) fn status_cdb(lba: u64, allocation: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1]) = (0x9e, 0x12);
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&allocation.to_be_bytes());
    cdb
}

fn status_of(bench: &Bench, lba: u64, allocation: u32) -> Vec<(u64, u32, bool)> {
    let data = bench.data(&status_cdb(lba, allocation));
    let list = status::parse(&data).expect("a header");
    list.iter().map(|one| (one.lba, one.blocks, one.provisioning == Provisioning::Mapped)).collect()
}

/// Covers-scsi: 9E/12.
#[test]
fn lba_status_lists_runs() {
    let bench = Bench::new();
    let all = u32::try_from(BLOCKS).expect("small");
    assert_eq!(status_of(&bench, 0, 1000), [(0, all, false)]);
    bench.sense_out(&block_cdb(Opcode::WRITE_10, 10, 2, 0), &[1; 1024]);
    bench.sense_out(&block_cdb(Opcode::WRITE_10, 14, 1, 0), &[1; 512]);
    let runs =
        [(0, 10, false), (10, 2, true), (12, 2, false), (14, 1, true), (15, all - 15, false)];
    assert_eq!(status_of(&bench, 0, 1000), runs);
    assert_eq!(status_of(&bench, 0, 40), runs[..2], "as many as there is room for");
    assert_eq!(status_of(&bench, 11, 24), [(11, 1, true)]);
    assert_eq!(bench.data(&status_cdb(0, 8)), [0, 0, 0, 20, 0, 0, 0, 0]);
    assert_eq!(bench.data(&status_cdb(0, 0)), []);
    assert_eq!(codes(bench.sense(&status_cdb(BLOCKS, 24))), (5, 0x21, 0));
    assert_eq!(status_of(&Bench::with(geometry(), 4096), 511, 24), [(511, 1, false)]);
    *bench.disk.error.lock() = Some(Error::Read);
    assert_eq!(codes(bench.sense(&status_cdb(0, 24))), (3, 0x11, 0));
}

#[test]
fn a_long_disk_is_asked_about_in_pieces() {
    let bench = Bench::with(Geometry { bytes: 40 << 40, ..geometry() }, 512);
    let request = request(Lun::Unit(0), &status_cdb(0, 1000), &[], 1000);
    let (mut task, mut step) = bench.nexus.start(&request);
    let completion = loop {
        match step {
            Step::Complete(completion) => break completion,
            Step::Store(store::Op::ProvisioningStatus { length, .. }) => {
                let run = store::Run { space: Space::Deallocated, length };
                step = task.resume(&bench.nexus, Input::Store(Outcome::ProvisioningStatus(run)));
            }
            step => panic!("{step:?}"),
        }
    };
    let list = status::parse(&bytes_of(completion)).expect("a header");
    let per_question = limits::STATUS_LENGTH_MAX / 512;
    let blocks: u64 = list.iter().map(|one| u64::from(one.blocks)).sum();
    assert_eq!(blocks, per_question * u64::from(limits::STATUS_QUESTIONS_MAX));
    assert!(list.windows(2).all(|two| two[0].lba + u64::from(two[0].blocks) == two[1].lba));
}

/// Covers-scsi: 37, B7.
#[test]
fn there_are_no_defects() {
    let bench = Bench::new();
    assert_eq!(bench.data(&[0x37, 0, 0x1d, 0, 0, 0, 0, 0, 100, 0]), [0, 0x1d, 0, 0]);
    let twelve = [0xb7, 0x18, 0, 0, 0, 0, 0, 0, 0, 100, 0, 0];
    assert_eq!(bench.data(&twelve), [0, 0x18, 0, 0, 0, 0, 0, 0]);
    // No more than the allocation length.
    assert_eq!(bench.data(&[0x37, 0, 0x1d, 0, 0, 0, 0, 0, 2, 0]), [0, 0x1d]);
    assert_eq!(bench.data(&[0xb7, 0x18, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0]), [0, 0x18]);
}

fn long_cdb(action: u16, lba: u64, length: u32, flags: u8) -> [u8; 32] {
    let mut cdb = [0; 32];
    (cdb[0], cdb[7], cdb[10]) = (0x7f, 0x18, flags);
    cdb[8..10].copy_from_slice(&action.to_be_bytes());
    cdb[12..20].copy_from_slice(&lba.to_be_bytes());
    // The tag of a block that was written without one (SBC-3 §5.32).
    cdb[20..24].fill(0xff);
    cdb[28..].copy_from_slice(&length.to_be_bytes());
    cdb
}

/// Covers-scsi: 7F/0009, 7F/000A, 7F/000B, 7F/000C, 7F/000D.
#[test]
fn long_commands_do_what_the_short_ones_do() {
    let (bench, _) = Bench::protected(Some(ProtectionType::Two), 512);
    let data = pattern(512);
    assert_eq!(bench.sense_out(&long_cdb(opcode::WRITE_32, 5, 1, FUA), &data), None);
    assert_eq!(bench.data(&long_cdb(opcode::READ_32, 5, 1, 0)), data);
    assert_eq!(bench.sense_out(&long_cdb(opcode::VERIFY_32, 5, 1, 2), &data), None);
    let other = bench.sense_out(&long_cdb(opcode::VERIFY_32, 5, 1, 2), &[0; 512]);
    assert_eq!(codes(other), (0xe, 0x1d, 0));
    let anew = [0x77; 512];
    assert_eq!(bench.sense_out(&long_cdb(opcode::WRITE_AND_VERIFY_32, 5, 1, 2), &anew), None);
    assert_eq!(bench.data(&long_cdb(opcode::READ_32, 5, 1, 0)), anew);
    assert_eq!(bench.sense(&long_cdb(opcode::WRITE_SAME_32, 0, 8, 0x09)), None);
    assert_eq!(bench.data(&long_cdb(opcode::READ_32, 5, 1, 0)), [0; 512]);
    // The address has 64 bits.
    for lba in [BLOCKS, 1 << 32, 1 << 63] {
        for action in [opcode::READ_32, opcode::WRITE_SAME_32] {
            assert_eq!(codes(bench.sense(&long_cdb(action, lba, 1, 0))), (5, 0x21, 0), "{lba:x}");
        }
        for action in [opcode::WRITE_32, opcode::VERIFY_32, opcode::WRITE_AND_VERIFY_32] {
            let beyond = bench.sense_out(&long_cdb(action, lba, 1, 2), &data);
            assert_eq!(codes(beyond), (5, 0x21, 0), "{action:x} {lba:x}");
        }
    }
}

#[test]
fn long_commands_check_their_length_and_flags() {
    let (bench, _) = Bench::protected(Some(ProtectionType::Two), 512);
    let field = |cdb: &[u8]| {
        let sense = bench.sense(cdb).expect("refused");
        sense.field.map(|field| (field.byte, field.bit))
    };
    let good = long_cdb(opcode::READ_32, 0, 1, 0);
    let mut short = good;
    short[7] = 0x10;
    assert_eq!(field(&short), Some((7, None)));
    assert_eq!(field(&good[..16]), Some((7, None)), "without the rest");
    assert_eq!(field(&long_cdb(0x000e, 0, 1, 0)), Some((8, None)));
    assert_eq!(field(&long_cdb(opcode::READ_32, 0, 1, 0xc0)), Some((10, Some(7))));
    assert_eq!(field(&long_cdb(opcode::VERIFY_32, 0, 1, 4)), Some((10, Some(2))));
    assert_eq!(field(&long_cdb(opcode::WRITE_SAME_32, 0, 1, 0x10)), Some((10, Some(4))));
}

#[test]
fn long_commands_are_for_type_two_protection_alone() {
    let kinds = [None, Some(ProtectionType::One), Some(ProtectionType::Three)];
    let benches = kinds.map(|kind| Bench::protected(kind, 512).0);
    for bench in benches.iter().chain([&Bench::new()]) {
        for action in [
            opcode::READ_32,
            opcode::VERIFY_32,
            opcode::WRITE_32,
            opcode::WRITE_AND_VERIFY_32,
            opcode::WRITE_SAME_32,
        ] {
            assert_eq!(codes(bench.sense(&long_cdb(action, 0, 1, 0))), (5, 0x20, 0), "{action}");
        }
    }
}
