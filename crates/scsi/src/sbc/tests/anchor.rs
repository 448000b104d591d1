// SPDX-License-Identifier: Apache-2.0 OR MIT
//! ANCHOR, and what GET LBA STATUS says of it.

use super::further::status_cdb;
use super::*;
use store::Space;
use wire::scsi::status;
use wire::scsi::status::Provisioning;

/// Covers-scsi: 41, 93.
#[test]
fn write_same_anchors_zeros_and_writes_the_rest() {
    let bench = large();
    let max = limits::WRITE_SAME_MAX / 512;
    for opcode in SAMES {
        assert_eq!(bench.sense_out(&block_cdb(opcode, 0, max, 0x18), &[0; 512]), None);
        let piece = limits::ZERO_MAX;
        let anchored: Vec<_> = (0..4).map(|index| Seen::Anchor(index * piece, piece)).collect();
        assert_eq!(bench.log(), anchored);
        assert_eq!(bench.sense_out(&block_cdb(opcode, 8, 16, 0x18), &[1; 512]), None);
        assert_eq!(bench.log(), [Seen::Write(8 * 512, 16 * 512)]);
    }
    assert_eq!(bench.sense(&block_cdb(Opcode::WRITE_SAME_16, 8, 16, 0x19)), None);
    assert_eq!(bench.log(), [Seen::Anchor(8 * 512, 16 * 512)]);
    *bench.disk.error.lock() = Some(Error::Space);
    let full = bench.sense(&block_cdb(Opcode::WRITE_SAME_16, 8, 16, 0x19));
    assert_eq!(codes(full), (7, 0x27, 7), "SPACE ALLOCATION FAILED WRITE PROTECT");
}

/// Covers-scsi: 42.
#[test]
fn unmap_anchors_each_range() {
    let bench = Bench::new();
    bench.disk.bytes.lock().fill(0xff);
    let list = emit(&[Range { lba: 8, blocks: 8 }, Range { lba: 1, blocks: 1 }]).expect("short");
    let [high, low] = u16::try_from(list.len()).expect("short").to_be_bytes();
    let cdb = [0x42, 1, 0, 0, 0, 0, 0, high, low, 0];
    assert_eq!(bench.sense_out(&cdb, &list), None);
    assert_eq!(bench.log(), [Seen::Anchor(8 * 512, 8 * 512), Seen::Anchor(512, 512)]);
    assert_eq!(bench.disk.bytes.lock()[512..1024], [0; 512]);
    *bench.disk.error.lock() = Some(Error::Space);
    assert_eq!(codes(bench.sense_out(&cdb, &list)), (7, 0x27, 7));
}

/// Covers-scsi: 9E/12.
#[test]
fn lba_status_tells_what_is_anchored() {
    let bench = Bench::new();
    let states = |bench: &Bench| -> Vec<(u64, u32, Provisioning)> {
        let list = status::parse(&bench.data(&status_cdb(0, 1000))).expect("a header");
        list.iter().map(|one| (one.lba, one.blocks, one.provisioning)).collect()
    };
    let all = u32::try_from(BLOCKS).expect("small");
    let anchor = |bench: &Bench| bench.sense(&block_cdb(Opcode::WRITE_SAME_16, 8, 8, 0x19));
    assert_eq!(anchor(&bench), None);
    bench.sense_out(&block_cdb(Opcode::WRITE_10, 12, 1, 0), &[1; 512]);
    let expected = [
        (0, 8, Provisioning::Deallocated),
        (8, 4, Provisioning::Anchored),
        (12, 1, Provisioning::Mapped),
        (13, 3, Provisioning::Anchored),
        (16, all - 16, Provisioning::Deallocated),
    ];
    assert_eq!(states(&bench), expected);
    // Whoever cannot have blocks anchored is not told of any: they take space.
    let plain = Bench::with(Geometry { anchors: false, ..geometry() }, 512);
    plain.disk.run(&store::Op::Clear { offset: 8 * 512, length: 8 * 512, leave: Space::Anchored });
    let expected = [
        (0, 8, Provisioning::Deallocated),
        (8, 8, Provisioning::Mapped),
        (16, all - 16, Provisioning::Deallocated),
    ];
    assert_eq!(states(&plain), expected);
    let thick = Bench::with(Geometry { discard_granularity: None, ..geometry() }, 512);
    assert_eq!(states(&thick), [(0, all, Provisioning::Mapped)]);
}
