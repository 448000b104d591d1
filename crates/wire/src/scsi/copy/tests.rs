// SPDX-License-Identifier: Apache-2.0 OR MIT

use super::*;
use alloc::vec;
use proptest::prelude::*;

fn cscd() -> Cscd {
    Cscd { device_type: 0, naa: vec![0x31, 2, 3, 4, 5, 6, 7, 8], block: 512 }
}

fn segment() -> Segment {
    Segment {
        source: 0,
        destination: 1,
        in_destination_blocks: true,
        blocks: 0x0203,
        source_lba: 4,
        destination_lba: 5,
    }
}

#[test]
fn vectors() {
    let list = emit_lid1(7, ListIdUsage::Discard, &[cscd()], &[segment()]).expect("small");
    assert_eq!(list[..16], [7, 0x10, 0, 32, 0, 0, 0, 0, 0, 0, 0, 28, 0, 0, 0, 0]);
    assert_eq!(list[16..28], [0xe4, 0, 0, 0, 1, 3, 0, 8, 0x31, 2, 3, 4]);
    assert_eq!(list[44..48], [0, 0, 2, 0]);
    assert_eq!(list[48..60], [2, 2, 0, 0x18, 0, 0, 0, 1, 0, 0, 2, 3]);
    assert_eq!(list[67], 4);
    assert_eq!(list[75], 5);
    let list = emit_lid4(0x0102_0304, true, &[cscd()], &[segment()]).expect("small");
    assert_eq!(list[..4], [1, 0, 0, 0x20]);
    assert_eq!((list[15], list[16]), (2, 0xff));
    assert_eq!(list[20..24], [1, 2, 3, 4]);
    assert_eq!(list[42..48], [0, 32, 0, 28, 0, 0]);
    assert_eq!(list.len(), 48 + 32 + 28);
}

#[test]
fn operating_parameters_are_where_hosts_look() {
    let operating = Operating {
        cscds_max: 16,
        segments_max: 64,
        descriptors_len_max: 0x0102,
        segment_max: 0x0304_0506,
        copies_total: 9,
        copies_max: 8,
        granularity: 9,
    };
    let bytes = operating.emit();
    assert_eq!(bytes[..5], [0, 0, 0, 43, 1]);
    assert_eq!(bytes[8..20], [0, 16, 0, 64, 0, 0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(bytes[34..38], [0, 9, 8, 9]);
    assert_eq!(bytes[43..], [3, 0x02, 0x0a, 0xe4]);
}

#[test]
fn status_in_both_forms() {
    let progress = Progress {
        service_action: EXTENDED_COPY_LID4,
        status: CopyStatus::Failed,
        segments: 3,
        blocks: 0x1_0000_0000,
        delay_ms: 100,
        completion: 2,
        sense: &[0x72, 0x0a],
    };
    assert_eq!(progress.emit_lid1(), [0, 0, 0, 8, 2, 0, 3, 0xf1, 0xff, 0xff, 0xff, 0xff]);
    let long = progress.emit_lid4();
    assert_eq!(long[..8], [0, 0, 0, 30, 1, 2, 0, 0]);
    assert_eq!(long[8..16], [0xff, 0xff, 0xff, 0xfe, 2, 2, 2, 0xf1]);
    assert_eq!(long[16..26], [0, 0, 0, 1, 0, 0, 0, 0, 0, 3]);
    assert_eq!(long[32..], [0x72, 0x0a]);
    let busy = Progress { status: CopyStatus::Background, ..progress };
    assert_eq!(busy.emit_lid1()[4], 0);
    assert_eq!(busy.emit_lid4()[8..12], [0, 0, 0, 100]);
}

#[test]
fn lengths_that_lie() {
    let lid1 = emit_lid1(1, ListIdUsage::Hold, &[cscd()], &[segment()]).expect("small");
    let lid4 = emit_lid4(1, false, &[cscd()], &[segment()]).expect("small");
    for cut in 0..lid1.len() {
        assert_eq!(List::lid1(&lid1[..cut]).err(), Some(Malformed::Length), "cut at {cut}");
    }
    for cut in 0..lid4.len() {
        assert_eq!(List::lid4(&lid4[..cut]).err(), Some(Malformed::Length), "cut at {cut}");
    }
    let mut odd = lid1.clone();
    odd[3] = 31;
    assert_eq!(List::lid1(&odd).err(), Some(Malformed::Length), "not whole descriptors");
    for (at, value, field) in [(0, 0, 0), (3, 0, 2), (16, 0, 16), (1, 0x08, 1)] {
        let mut wrong = lid4.clone();
        wrong[at] = value;
        assert_eq!(List::lid4(&wrong).err(), Some(Malformed::Field(field)));
    }
    let mut inline = lid1;
    inline[15] = 1;
    assert_eq!(List::lid1(&inline).err(), Some(Malformed::Length));
}

#[test]
fn segments_are_taken_one_by_one() {
    let mut list = segment().emit().to_vec();
    list.extend_from_slice(&[0x03, 0, 0, 0x10]);
    list.extend_from_slice(&[0; 16]);
    list.extend_from_slice(&[0x02, 0, 0, 0x18, 0]);
    let all: Vec<_> = segments(&list).collect();
    assert_eq!(
        all,
        [
            (0, SegmentKind::BlockToBlock(segment())),
            (28, SegmentKind::Unsupported),
            (48, SegmentKind::Cut)
        ]
    );
}

#[test]
fn a_segment_with_offset_as_the_standard_draws_it() {
    let segment = OffsetSegment {
        source: 0x0102,
        destination: 0x0304,
        bytes: 0x0506_0708,
        source_lba: 0x1112_1314_1516_1718,
        destination_lba: 0x2122_2324_2526_2728,
        source_offset: 0x3132,
        destination_offset: 0x4142,
    };
    let bytes = segment.emit();
    assert_eq!(bytes[..12], [0x0a, 0, 0, 0x1c, 1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(bytes[12..20], [0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18]);
    assert_eq!(bytes[20..28], [0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28]);
    assert_eq!(bytes[28..], [0x31, 0x32, 0x41, 0x42]);
    let mut list = bytes.to_vec();
    list.extend_from_slice(&[0x0a, 0, 0, 0x18]);
    list.extend_from_slice(&[0; 24]);
    let all: Vec<_> = segments(&list).collect();
    assert_eq!(all, [(0, SegmentKind::WithOffset(segment)), (32, SegmentKind::Unsupported)]);
}

proptest! {
    #[test]
    fn round_trip(
        id in any::<u8>(), naa in proptest::collection::vec(any::<u8>(), 0..21),
        block in 0_u32..1 << 24, device_type in 0_u8..32,
        list in proptest::collection::vec(any::<(u16, u16, bool, u16, u64, u64)>(), 0..5),
    ) {
        let cscds = [Cscd { device_type, naa, block }];
        let written: Vec<Segment> = list.into_iter().map(
            |(source, destination, in_destination_blocks, blocks, source_lba, destination_lba)| {
                Segment {
                    source, destination, in_destination_blocks, blocks, source_lba, destination_lba,
                }
            }).collect();
        let lid1 = emit_lid1(id, ListIdUsage::Hold, &cscds, &written).expect("small");
        let lid4 = emit_lid4(id.into(), true, &cscds, &written).expect("small");
        for parsed in [List::lid1(&lid1), List::lid4(&lid4)] {
            let parsed = parsed.expect("well formed");
            prop_assert_eq!(parsed.id, u32::from(id));
            prop_assert_eq!(Cscd::parse(parsed.cscds), Some(cscds[0].clone()));
            let read: Vec<_> = segments(parsed.segments).map(|(_, kind)| kind).collect();
            let expected: Vec<_> = written.iter().map(|s| SegmentKind::BlockToBlock(*s)).collect();
            prop_assert_eq!(read, expected);
        }
    }

    #[test]
    fn parse_is_total(
        bytes in proptest::collection::vec(any::<u8>(), 0..200), small in 0_u8..80,
    ) {
        let mut bytes = bytes;
        let _ = (Cscd::parse(&bytes), segments(&bytes).count());
        for at in [3, 11, 43, 45] {
            if bytes.len() > 48 {
                bytes[at - 1] = 0;
                bytes[at] = small;
            }
        }
        for list in [List::lid1(&bytes), List::lid4(&bytes)].into_iter().flatten() {
            let _ = (Cscd::parse(list.cscds), segments(list.segments).count());
        }
    }
}
