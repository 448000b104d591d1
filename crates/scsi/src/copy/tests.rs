// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two disks, two hosts: `all` sees both disks, `one` sees the first alone.

mod memory;

use crate::Identity;
use crate::LogicalUnit;
use crate::Nexus;
use crate::limits;
use crate::task::BUSY;
use crate::task::CHECK_CONDITION;
use crate::task::Input;
use crate::task::Step;
use crate::task::TASK_SET_FULL;
use crate::testing::BLOCKS;
use crate::testing::Disk;
use crate::testing::Seen;
use crate::testing::codes;
use crate::testing::drawn;
use crate::testing::geometry;
use crate::testing::names;
use crate::testing::request;
use crate::testing::run;
use crate::testing::run_at;
use crate::testing::sense_of;
use crate::testing::submit;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use core::time::Duration;
use store::Error;
use store::Op;
use wire::scsi::Lun;
use wire::scsi::Sense;
use wire::scsi::copy;
use wire::scsi::copy::Cscd;
use wire::scsi::copy::ListIdUsage;
use wire::scsi::copy::OffsetSegment;
use wire::scsi::copy::Segment;
use wire::scsi::third_party;
use wire::scsi::token;
use wire::scsi::token::Populate;
use wire::scsi::token::Range;
use wire::scsi::token::WriteUsing;

const READY: [u8; 6] = [0; 6];

struct Hosts {
    disks: [Arc<Disk>; 2],
    units: [Arc<LogicalUnit>; 2],
    all: Nexus,
    one: Nexus,
}

fn hosts() -> Hosts {
    let disks = [Disk::new(geometry()), Disk::new(geometry())];
    let mut number = 0;
    let units = disks.clone().map(|disk| {
        let identity = Identity::derive("iqn.a", number, "LUNWIRE", "disk");
        number += 1;
        Arc::new(LogicalUnit::new(identity, disk, 512).expect("a good disk"))
    });
    let map = |count: usize| (0..).zip(units.iter().take(count).cloned()).collect::<Vec<_>>();
    let all = Nexus::new(names("iqn.all,i,0x1"), map(2));
    let one = Nexus::new(names("iqn.one,i,0x1"), map(1));
    for (nexus, lun) in [(&all, 0), (&all, 1), (&one, 0)] {
        assert_eq!(codes(sense(nexus, lun, &READY, &[])), (6, 0x29, 0));
    }
    Hosts { disks, units, all, one }
}

fn sense(nexus: &Nexus, lun: u16, cdb: &[u8], out: &[u8]) -> Option<Sense> {
    sense_of(&run(nexus, request(Lun::Unit(lun), cdb, out, 4096), out))
}

fn data(nexus: &Nexus, lun: u16, cdb: &[u8]) -> Vec<u8> {
    let completion = run(nexus, request(Lun::Unit(lun), cdb, &[], 4096), &[]);
    assert_eq!(completion.status, 0, "{:?}", Sense::parse(&completion.sense));
    completion.data_in.expect("data").to_vec()
}

fn cscd(unit: &LogicalUnit) -> Cscd {
    Cscd { device_type: 0, naa: unit.identity().naa.clone(), block: 512 }
}

fn segment(source: u16, destination: u16, blocks: u16, from: u64, to: u64) -> Segment {
    let in_destination_blocks = false;
    let (source_lba, destination_lba) = (from, to);
    Segment { source, destination, in_destination_blocks, blocks, source_lba, destination_lba }
}

fn out(action: u16, length: usize) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = 0x83;
    cdb[1] = u8::try_from(action).expect("five bits");
    cdb[10..14].copy_from_slice(&u32::try_from(length).expect("short").to_be_bytes());
    cdb
}

fn results(action: u16, id: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = 0x84;
    cdb[1] = u8::try_from(action).expect("five bits");
    if action < copy::COPY_STATUS_LID4 {
        cdb[2] = u8::try_from(id).expect("one byte");
    } else {
        cdb[2..6].copy_from_slice(&id.to_be_bytes());
    }
    cdb[12] = 0x10;
    cdb
}

impl Hosts {
    fn fill(&self, disk: usize, at: usize, bytes: &[u8]) {
        self.disks[disk].bytes.lock()[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn bytes(&self, disk: usize, at: usize, length: usize) -> Vec<u8> {
        self.disks[disk].bytes.lock()[at..at + length].to_vec()
    }

    /// EXTENDED COPY(LID1) of both disks, sent to the first.
    fn copy(&self, nexus: &Nexus, segments: &[Segment]) -> Option<Sense> {
        let cscds = [cscd(&self.units[0]), cscd(&self.units[1])];
        let list = copy::emit_lid1(7, ListIdUsage::Hold, &cscds, segments).expect("small");
        sense(nexus, 0, &out(copy::EXTENDED_COPY_LID1, list.len()), &list)
    }

    fn populate(&self, nexus: &Nexus, lun: u16, ranges: &[(u64, u32)]) -> [u8; token::TOKEN_LEN] {
        let ranges = ranges.iter().map(|&(lba, blocks)| Range { lba, blocks }).collect();
        let list = Populate { immediate: false, inactivity_s: 0, rod_type: 0, ranges };
        let list = list.emit().expect("small");
        let mut cdb = out(copy::POPULATE_TOKEN, list.len());
        cdb[9] = 1;
        assert_eq!(sense(nexus, lun, &cdb, &list), None);
        let information = data(nexus, lun, &results(copy::ROD_TOKEN_INFORMATION, 1));
        assert_eq!((information[4], information[5]), (0x10, 1));
        token::in_information(&information).expect("a token")
    }

    fn write(
        &self,
        nexus: &Nexus,
        lun: u16,
        token: &[u8; token::TOKEN_LEN],
        offset: u64,
        ranges: &[(u64, u32)],
    ) -> Option<Sense> {
        self.write_at(nexus, lun, token, offset, ranges, 0)
    }

    fn write_at(
        &self,
        nexus: &Nexus,
        lun: u16,
        token: &[u8; token::TOKEN_LEN],
        offset: u64,
        ranges: &[(u64, u32)],
        seconds: u64,
    ) -> Option<Sense> {
        let ranges = ranges.iter().map(|&(lba, blocks)| Range { lba, blocks }).collect();
        let list = WriteUsing { immediate: false, delete: false, offset, token: *token, ranges };
        let list = list.emit().expect("small");
        let mut cdb = out(copy::WRITE_USING_TOKEN, list.len());
        cdb[9] = 2;
        let request = request(Lun::Unit(lun), &cdb, &list, 0);
        sense_of(&run_at(nexus, request, &list, Duration::from_secs(seconds)))
    }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..251_u8).cycle().take(length).collect()
}

/// Covers-scsi: 83/00, 84/00, 84/01, 84/05, 84/06.
#[test]
fn segments_are_copied_between_disks_and_within_one() {
    let hosts = hosts();
    let bytes = pattern(512 * 100);
    hosts.fill(0, 0, &bytes);
    let done = hosts.copy(&hosts.all, &[segment(0, 1, 100, 0, 50), segment(1, 0, 10, 60, 300)]);
    assert_eq!(done, None);
    assert_eq!(hosts.bytes(1, 512 * 50, bytes.len()), bytes);
    assert_eq!(hosts.bytes(0, 512 * 300, 5120), bytes[5120..10240]);
    let status = data(&hosts.all, 0, &results(copy::COPY_STATUS_LID1, 7));
    assert_eq!(status, [0, 0, 0, 8, 1, 0, 2, 0xf1, 0, 0, 0, 110]);
    let status = data(&hosts.all, 0, &results(copy::COPY_STATUS_LID4, 7));
    assert_eq!((status[4], status[5], status[23]), (0, 1, 110));
    assert_eq!(data(&hosts.all, 0, &results(copy::COPY_DATA_LID1, 7)), [0; 4], "none are held");
    let held = data(&hosts.all, 0, &results(copy::COPY_DATA_LID4, 7));
    assert_eq!((held.len(), held[5], &held[32..]), (36, 1, &[0; 4][..]));
}

/// A LID1 list of both disks with one segment block to block with offset.
fn with_offset(hosts: &Hosts, segment: OffsetSegment) -> Vec<u8> {
    let cscds = [cscd(&hosts.units[0]), cscd(&hosts.units[1])];
    let mut list = copy::emit_lid1(7, ListIdUsage::Hold, &cscds, &[]).expect("small");
    let bytes = segment.emit();
    list[11] = u8::try_from(bytes.len()).expect("short");
    list.extend_from_slice(&bytes);
    list
}

/// Covers-scsi: 83/00, 84/03.
#[test]
fn segments_with_offset_count_bytes_of_whole_blocks() {
    let hosts = hosts();
    let bytes = pattern(512 * 3000);
    hosts.fill(0, 0, &bytes);
    let run = |segment: OffsetSegment| {
        let list = with_offset(&hosts, segment);
        codes(sense(&hosts.all, 0, &out(copy::EXTENDED_COPY_LID1, list.len()), &list))
    };
    let good = OffsetSegment {
        source: 0,
        destination: 1,
        bytes: 512 * 2900,
        source_lba: 1,
        destination_lba: 3,
        source_offset: 1024,
        destination_offset: 512,
    };
    assert_eq!(run(good), (0, 0, 0));
    assert_eq!(hosts.bytes(1, 512 * 4, 512 * 2900), bytes[512 * 3..512 * 2903]);
    assert_eq!(hosts.bytes(1, 0, 512 * 4), [0; 512 * 4]);
    assert_eq!(run(OffsetSegment { bytes: 0, ..good }), (0, 0, 0), "nothing is legal");
    for (wrong, expected) in [
        (OffsetSegment { bytes: 513, ..good }, (0xa, 0x26, 0x0a)),
        (OffsetSegment { bytes: limits::COPY_SEGMENT_MAX + 512, ..good }, (5, 0x26, 0)),
        (OffsetSegment { source_offset: 1, ..good }, (5, 0x26, 0)),
        (OffsetSegment { destination_offset: 511, ..good }, (5, 0x26, 0)),
        (OffsetSegment { source_lba: u64::MAX, ..good }, (0xa, 0, 0)),
        (OffsetSegment { destination_lba: BLOCKS - 1, ..good }, (0xa, 0, 0)),
        (OffsetSegment { destination: 2, ..good }, (0xa, 0x08, 0x04)),
    ] {
        assert_eq!(run(wrong), expected, "{wrong:?}");
    }
    let parameters = data(&hosts.all, 0, &results(copy::OPERATING_PARAMETERS, 0));
    assert_eq!(parameters[43..], [3, 0x02, 0x0a, 0xe4]);
}

#[test]
fn a_copy_that_overlaps_itself_moves_the_bytes() {
    for (from, to) in [(0_u64, 3_u64), (3, 0), (0, 1), (5, 5)] {
        let hosts = hosts();
        let bytes = pattern(512 * 500);
        let at = |lba: u64| usize::try_from(lba * 512).expect("small");
        hosts.fill(0, at(from), &bytes);
        assert_eq!(hosts.copy(&hosts.all, &[segment(0, 0, 500, from, to)]), None);
        assert!(hosts.bytes(0, at(to), bytes.len()) == bytes, "{from} to {to}");
    }
}

/// Covers-scsi: 83/00.
#[test]
fn disks_that_a_host_does_not_see_cannot_be_named() {
    let hosts = hosts();
    hosts.fill(1, 0, &[0x5e; 512]);
    for segment in [segment(1, 0, 1, 0, 0), segment(0, 1, 1, 0, 0)] {
        assert_eq!(codes(hosts.copy(&hosts.one, &[segment])), (0xa, 0x0d, 0x02));
    }
    assert_eq!(hosts.bytes(0, 0, 512), [0; 512]);
    assert_eq!(hosts.bytes(1, 0, 512), [0x5e; 512]);
    assert_eq!(hosts.copy(&hosts.one, &[segment(0, 0, 1, 0, 9)]), None, "its own disk is there");
    let own = segment(copy::CSCD_SELF, copy::CSCD_SELF, 1, 0, 9);
    assert_eq!(hosts.copy(&hosts.one, &[own]), None);
}

#[test]
fn a_token_of_a_disk_that_a_host_does_not_see_is_unknown_to_it() {
    let hosts = hosts();
    hosts.fill(1, 0, &[0x5e; 512]);
    let token = hosts.populate(&hosts.all, 1, &[(0, 1)]);
    assert_eq!(codes(hosts.write(&hosts.one, 0, &token, 0, &[(0, 1)])), (5, 0x23, 0x04));
    assert_eq!(hosts.bytes(0, 0, 512), [0; 512]);
    assert_eq!(hosts.write(&hosts.all, 0, &token, 0, &[(0, 1)]), None);
    assert_eq!(hosts.bytes(0, 0, 512), [0x5e; 512]);
}

#[test]
fn reservations_and_write_protection_of_the_destination_count() {
    let hosts = hosts();
    let register = [0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0];
    let mut list = [0; 24];
    list[15] = 1;
    assert_eq!(sense(&hosts.one, 0, &register, &list), None);
    let reserve = [0x5f, 1, 1, 0, 0, 0, 0, 0, 24, 0];
    list[7] = 1;
    list[15] = 0;
    assert_eq!(sense(&hosts.one, 0, &reserve, &list), None, "write exclusive");
    let cscds = [cscd(&hosts.units[0]), cscd(&hosts.units[1])];
    let copied = |segment: Segment| {
        let list = copy::emit_lid1(7, ListIdUsage::Hold, &cscds, &[segment]).expect("small");
        codes(sense(&hosts.all, 1, &out(copy::EXTENDED_COPY_LID1, list.len()), &list))
    };
    assert_eq!(copied(segment(1, 0, 1, 0, 0)), (0xa, 0x0d, 0x01), "it may not write there");
    assert_eq!(copied(segment(0, 1, 1, 0, 0)), (0, 0, 0), "it may read there");
}

/// Covers-scsi: 83/00.
#[test]
fn lists_are_checked_before_anything_is_copied() {
    let hosts = hosts();
    hosts.fill(0, 0, &[1; 512]);
    let cases = [
        (segment(0, 1, 1, BLOCKS, 0), (0xa, 0, 0)),
        (segment(0, 1, 1, 0, BLOCKS), (0xa, 0, 0)),
        (segment(0, 2, 1, 0, 0), (0xa, 0x08, 0x04)),
    ];
    for (wrong, expected) in cases {
        let refused = hosts.copy(&hosts.all, &[segment(0, 1, 1, 0, 0), wrong]);
        assert_eq!(codes(refused), expected);
        assert_eq!(hosts.bytes(1, 0, 512), [0; 512]);
    }
    let many = vec![segment(0, 1, 1, 0, 0); usize::from(limits::COPY_SEGMENTS_MAX) + 1];
    assert_eq!(codes(hosts.copy(&hosts.all, &many)), (5, 0x26, 0x08));
    assert_eq!(hosts.copy(&hosts.all, &many[1..]), None);
    let cscds = vec![cscd(&hosts.units[0]); usize::from(limits::CSCDS_MAX) + 1];
    let send = |cscds: &[Cscd], edit: fn(&mut Vec<u8>)| {
        let segments = [segment(0, 0, 1, 0, 1)];
        let mut list = copy::emit_lid1(8, ListIdUsage::Hold, cscds, &segments).expect("small");
        edit(&mut list);
        codes(sense(&hosts.all, 0, &out(copy::EXTENDED_COPY_LID1, list.len()), &list))
    };
    assert_eq!(send(&cscds, |_| {}), (5, 0x26, 0x06));
    assert_eq!(send(&cscds[1..], |_| {}), (0, 0, 0));
    assert_eq!(send(&cscds[..1], |list| list[16] = 0xe0), (5, 0x26, 0x07));
    assert_eq!(send(&cscds[..1], |list| list[48] = 0x03), (5, 0x26, 0x09));
    assert_eq!(send(&cscds[..1], |list| list[47] = 1), (5, 0x26, 0x00), "block length");
    assert_eq!(send(&cscds[..1], |list| list.truncate(75)), (5, 0x1a, 0x00));
    assert_eq!(send(&cscds[..1], |list| list[1] = 0x08), (5, 0x26, 0x00), "list id usage");
    assert_eq!(send(&cscds[..1], |list| list[1] = 0x18), (5, 0x26, 0x00), "an id for none");
    let unknown = results(copy::COPY_STATUS_LID1, 99);
    assert_eq!(codes(sense(&hosts.all, 0, &unknown, &[])), (5, 0x24, 0));
}

#[test]
fn a_failing_store_ends_the_copy_and_its_status_says_so() {
    let hosts = hosts();
    *hosts.disks[1].error.lock() = Some(Error::Write);
    assert_eq!(codes(hosts.copy(&hosts.all, &[segment(0, 1, 8, 0, 0)])), (0xa, 0x0d, 0x01));
    let status = data(&hosts.all, 0, &results(copy::COPY_STATUS_LID4, 7));
    assert_eq!((status[5], status[12]), (2, 2));
    assert_eq!(codes(Sense::parse(&status[32..])), (0xa, 0x0d, 0x01));
    *hosts.disks[1].error.lock() = Some(Error::Space);
    assert_eq!(codes(hosts.copy(&hosts.all, &[segment(0, 1, 8, 0, 0)])), (7, 0x27, 0x07));
}

/// Who asks again gets it. What has been written in part may have changed what is read.
///
/// Covers-scsi: 83/00, 84/05.
#[test]
fn a_copy_to_what_is_held_back_ends_busy_where_nothing_is_written() {
    let hosts = hosts();
    hosts.disks[1].held.store(true, Ordering::Relaxed);
    let cscds = [cscd(&hosts.units[0]), cscd(&hosts.units[1])];
    for (segments, status) in [
        (vec![segment(0, 1, 8, 0, 0)], BUSY),
        (vec![segment(0, 0, 8, 0, 64), segment(0, 1, 8, 0, 0)], CHECK_CONDITION),
    ] {
        let list = copy::emit_lid1(7, ListIdUsage::Hold, &cscds, &segments).expect("small");
        let cdb = out(copy::EXTENDED_COPY_LID1, list.len());
        let done = run(&hosts.all, request(Lun::Unit(0), &cdb, &list, 0), &list);
        assert_eq!(done.status, status);
        let told = data(&hosts.all, 0, &results(copy::COPY_STATUS_LID4, 7));
        assert_eq!((told[5], told[12]), (2, status));
    }
}

/// As a write that finds no room for now.
///
/// Covers-scsi: 83/00.
#[test]
fn a_copy_to_what_others_use_too_much_of_can_be_asked_again() {
    let hosts = hosts();
    *hosts.disks[1].error.lock() = Some(Error::Busy);
    let cscds = [cscd(&hosts.units[0]), cscd(&hosts.units[1])];
    let list = copy::emit_lid1(7, ListIdUsage::Hold, &cscds, &[segment(0, 1, 8, 0, 0)]);
    let list = list.expect("small");
    let cdb = out(copy::EXTENDED_COPY_LID1, list.len());
    let done = run(&hosts.all, request(Lun::Unit(0), &cdb, &list, 0), &list);
    assert_eq!(done.status, TASK_SET_FULL);
}

/// Covers-scsi: 83/01, 84/05.
#[test]
fn with_immed_the_copy_goes_on_after_its_command() {
    let hosts = hosts();
    hosts.fill(0, 0, &pattern(4096));
    let cscds = [cscd(&hosts.units[0])];
    let list = copy::emit_lid4(0x0102_0304, true, &cscds, &[segment(0, 0, 8, 0, 100)]);
    let list = list.expect("small");
    assert_eq!(sense(&hosts.all, 0, &out(copy::EXTENDED_COPY_LID4, list.len()), &list), None);
    let status = data(&hosts.all, 0, &results(copy::COPY_STATUS_LID4, 0x0102_0304));
    assert_eq!((status[4], status[5], status[23]), (1, 1, 8));
    assert_eq!(hosts.bytes(0, 51200, 4096), pattern(4096));
}

/// Covers-scsi: 83/10, 83/11, 84/07.
#[test]
fn token_ranges_are_put_together_in_order() {
    let hosts = hosts();
    let bytes = pattern(512 * 30);
    hosts.fill(0, 0, &bytes);
    let token = hosts.populate(&hosts.all, 0, &[(20, 4), (0, 6)]);
    assert_eq!(hosts.write(&hosts.all, 1, &token, 2, &[(100, 3), (200, 5)]), None);
    let mut joined = bytes[512 * 22..512 * 24].to_vec();
    joined.extend_from_slice(&bytes[..512 * 6]);
    assert_eq!(hosts.bytes(1, 51200, 512 * 3), joined[..512 * 3]);
    assert_eq!(hosts.bytes(1, 102_400, 512 * 5), joined[512 * 3..]);
    let status = data(&hosts.all, 1, &results(copy::ROD_TOKEN_INFORMATION, 2));
    assert_eq!((status[4], status[5], status[23]), (0x11, 1, 8));
    assert_eq!(token::in_information(&status), None);
    assert_eq!(codes(hosts.write(&hosts.all, 1, &token, 3, &[(0, 8)])), (5, 0x26, 0));
}

/// Covers-scsi: 83/11.
#[test]
fn any_change_of_the_source_revokes_its_tokens_and_no_others() {
    let changes: [(&str, Vec<u8>, Vec<u8>); 4] = [
        ("WRITE", vec![0x2a, 0, 0, 0, 0, 9, 0, 0, 1, 0], vec![7; 512]),
        ("WRITE SAME", vec![0x41, 0, 0, 0, 0, 9, 0, 0, 1, 0], vec![7; 512]),
        ("UNMAP", vec![0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], {
            let range = wire::scsi::unmap::Range { lba: 8, blocks: 8 };
            wire::scsi::unmap::emit(&[range]).expect("one")
        }),
        ("COMPARE AND WRITE", vec![0x89, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0], {
            let mut both = vec![0; 512];
            both.resize(1024, 7);
            both
        }),
    ];
    for (name, cdb, out) in changes {
        let hosts = hosts();
        let hit = hosts.populate(&hosts.all, 0, &[(8, 4)]);
        let near = hosts.populate(&hosts.all, 0, &[(20, 4)]);
        assert_eq!(sense(&hosts.one, 0, &cdb, &out), None, "{name}");
        let refused = hosts.write(&hosts.all, 1, &hit, 0, &[(0, 4)]);
        assert_eq!(codes(refused), (5, 0x23, 0x06), "{name}");
        assert_eq!(hosts.write(&hosts.all, 1, &near, 0, &[(0, 4)]), None, "{name}");
    }
}

/// A WRITE USING TOKEN of two blocks, of which the first is there when `meanwhile` happens.
fn write_while(
    hosts: &Hosts,
    token: &[u8; token::TOKEN_LEN],
    meanwhile: impl FnOnce(),
) -> Option<Sense> {
    let ranges = vec![Range { lba: 0, blocks: 1 }, Range { lba: 9, blocks: 1 }];
    let list = WriteUsing { immediate: false, delete: false, offset: 0, token: *token, ranges };
    let list = list.emit().expect("small");
    let mut cdb = out(copy::WRITE_USING_TOKEN, list.len());
    cdb[9] = 2;
    let (mut task, mut step) = hosts.all.start(&request(Lun::Unit(1), &cdb, &list, 0));
    let mut meanwhile = Some(meanwhile);
    loop {
        let input = match step {
            Step::Complete(completion) => return sense_of(&completion),
            Step::ReceiveDataOut { .. } => Input::DataOut(list.clone().into()),
            Step::Draw => Input::Drawn(drawn(Duration::ZERO)),
            Step::Store(op) => {
                let outcome = submit(&task, &op);
                if matches!(op, Op::Write { .. })
                    && let Some(meanwhile) = meanwhile.take()
                {
                    meanwhile();
                }
                Input::Store(outcome)
            }
            other => panic!("{other:?}"),
        };
        step = task.resume(&hosts.all, input);
    }
}

fn change_source(hosts: &Hosts) {
    let write = [0x2a, 0, 0, 0, 0, 1, 0, 0, 1, 0];
    assert_eq!(sense(&hosts.one, 0, &write, &[7; 512]), None);
}

/// What a copy uses is revoked by a writer, whatever has become of the token meanwhile.
#[test]
fn a_token_that_a_copy_uses_is_not_forgotten() {
    type Forget = fn(&Hosts);
    let cases: [(&str, Forget); 2] = [
        ("the oldest of many", |hosts| {
            for _ in 0..limits::TOKENS_MAX {
                hosts.populate(&hosts.one, 0, &[(100, 1)]);
            }
        }),
        ("expired", |hosts| {
            let ranges = vec![Range { lba: 100, blocks: 1 }];
            let list = Populate { immediate: false, inactivity_s: 0, rod_type: 0, ranges };
            let list = list.emit().expect("small");
            let cdb = out(copy::POPULATE_TOKEN, list.len());
            let request = request(Lun::Unit(0), &cdb, &list, 0);
            let late = Duration::from_secs(7200);
            assert_eq!(sense_of(&run_at(&hosts.one, request, &list, late)), None);
        }),
    ];
    for (name, forget) in cases {
        let hosts = hosts();
        let token = hosts.populate(&hosts.all, 0, &[(0, 2)]);
        let ended = write_while(&hosts, &token, || {
            forget(&hosts);
            change_source(&hosts);
        });
        assert_eq!(codes(ended), (5, 0x23, 0x06), "{name}: the second block is of another time");
        let token = hosts.populate(&hosts.all, 0, &[(0, 2)]);
        assert_eq!(write_while(&hosts, &token, || forget(&hosts)), None, "{name}: nothing changed");
    }
}

/// One token more than there is room for, all of them in use: the oldest copy ends.
#[test]
fn a_token_in_use_that_must_make_room_ends() {
    let hosts = hosts();
    let token = hosts.populate(&hosts.all, 0, &[(0, 2)]);
    let unit = &hosts.units[0];
    let ended = write_while(&hosts, &token, || {
        let mut used = Vec::new();
        for length in (1..).take(limits::TOKENS_MAX) {
            let token = hosts.populate(&hosts.one, 0, &[(100, length)]);
            used.push(unit.tokens().find(&token, clock::Instant(2)).expect("just made"));
        }
    });
    assert_eq!(codes(ended), (5, 0x23, 0x06));
}

#[test]
fn a_shrink_revokes_the_tokens_of_what_is_cut_off() {
    let hosts = hosts();
    let (near, far) = (
        hosts.populate(&hosts.all, 0, &[(0, 4)]),
        hosts.populate(&hosts.all, 0, &[(BLOCKS - 4, 4)]),
    );
    hosts.units[0].cut_off((BLOCKS - 2) * 512);
    assert_eq!(hosts.write(&hosts.all, 1, &near, 0, &[(0, 4)]), None);
    assert_eq!(codes(hosts.write(&hosts.all, 1, &far, 0, &[(0, 1)])), (5, 0x23, 0x06));
}

/// WCE off: what a copy has written after its answer is on stable storage when it is at its end.
#[test]
fn zeros_of_a_copy_are_flushed_where_the_cache_is_off() {
    for immediate in [false, true] {
        let hosts = hosts();
        let select = [0x15, 0x10, 0, 0, 24, 0];
        let mut list = [0; 24];
        (list[4], list[5]) = (8, 18);
        assert_eq!(sense(&hosts.all, 1, &select, &list), None);
        let ranges = vec![Range { lba: 1, blocks: 2 }, Range { lba: 7, blocks: 2 }];
        let token = token::zero();
        let list = WriteUsing { immediate, delete: false, offset: 0, token, ranges };
        let list = list.emit().expect("small");
        hosts.disks[1].log.lock().clear();
        let cdb = out(copy::WRITE_USING_TOKEN, list.len());
        assert_eq!(sense(&hosts.all, 1, &cdb, &list), None);
        let seen = hosts.disks[1].log.lock().clone();
        let expected = [Seen::Zero(512, 1024), Seen::Zero(3584, 1024), Seen::Flush];
        assert_eq!(seen, expected, "immediate: {immediate}");
    }
}

#[test]
fn tokens_expire_by_disuse_and_by_age() {
    let hosts = hosts();
    let token = hosts.populate(&hosts.all, 0, &[(0, 1)]);
    let at = |seconds| codes(hosts.write_at(&hosts.all, 1, &token, 0, &[(0, 1)], seconds));
    assert_eq!(at(59), (0, 0, 0));
    assert_eq!(at(118), (0, 0, 0), "each use counts");
    assert_eq!(at(178), (5, 0x23, 0x07));
    let token = hosts.populate(&hosts.all, 0, &[(0, 1)]);
    let at = |seconds| codes(hosts.write_at(&hosts.all, 1, &token, 0, &[(0, 1)], seconds));
    for seconds in (50..3600).step_by(50) {
        assert_eq!(at(seconds), (0, 0, 0), "{seconds}");
    }
    assert_eq!(at(3600), (5, 0x23, 0x07));
}

#[test]
fn a_token_cannot_be_made_up_or_changed() {
    let hosts = hosts();
    let token = hosts.populate(&hosts.all, 0, &[(0, 1)]);
    let other = hosts.populate(&hosts.all, 0, &[(0, 1)]);
    assert_ne!(token, other, "equal ranges, other secret");
    let write =
        |token: &[u8; token::TOKEN_LEN]| codes(hosts.write(&hosts.all, 1, token, 0, &[(0, 1)]));
    for at in (0..token::TOKEN_LEN).step_by(7).chain([8, 63, 256, 287]) {
        let mut forged = token;
        forged[at] ^= 1;
        let (key, asc, _) = write(&forged);
        assert_eq!((key, asc), (5, 0x23), "byte {at}");
    }
    assert_eq!(write(&token), (0, 0, 0));
}

#[test]
fn the_token_of_zeros_writes_zeros() {
    let hosts = hosts();
    hosts.fill(1, 0, &[9; 2048]);
    assert_eq!(hosts.write(&hosts.all, 1, &token::zero(), 0, &[(1, 2)]), None);
    assert_eq!(hosts.bytes(1, 0, 512), [9; 512]);
    assert_eq!(hosts.bytes(1, 512, 1024), [0; 1024]);
    assert_eq!(hosts.bytes(1, 1536, 512), [9; 512]);
    let mut wrong = token::zero();
    wrong[300] = 1;
    assert_eq!(codes(hosts.write(&hosts.all, 1, &wrong, 0, &[(0, 1)])), (5, 0x23, 0x05));
}

#[test]
fn a_token_can_end_with_its_use() {
    let hosts = hosts();
    let token = hosts.populate(&hosts.all, 0, &[(0, 1)]);
    let ranges = vec![Range { lba: 0, blocks: 1 }];
    let list = WriteUsing { immediate: true, delete: true, offset: 0, token, ranges };
    let list = list.emit().expect("small");
    let cdb = out(copy::WRITE_USING_TOKEN, list.len());
    assert_eq!(sense(&hosts.all, 1, &cdb, &list), None);
    assert_eq!(codes(sense(&hosts.all, 1, &cdb, &list)), (5, 0x23, 0x09));
}

#[test]
fn populate_token_refuses_what_it_cannot_keep() {
    let hosts = hosts();
    let send = |ranges: &[(u64, u32)], rod_type: u32, inactivity_s: u32| {
        let ranges = ranges.iter().map(|&(lba, blocks)| Range { lba, blocks }).collect();
        let list = Populate { immediate: false, inactivity_s, rod_type, ranges };
        let list = list.emit().expect("small");
        let cdb = out(copy::POPULATE_TOKEN, list.len());
        codes(sense(&hosts.all, 0, &cdb, &list))
    };
    assert_eq!(send(&[(0, 1)], token::TYPE_CHANGE_VULNERABLE, 600), (0, 0, 0));
    assert_eq!(send(&[(0, 1)], 0x0001_0000, 0), (5, 0x23, 0x01));
    assert_eq!(send(&[(0, 1)], 0, 601), (5, 0x26, 0));
    assert_eq!(send(&[(BLOCKS, 1)], 0, 0), (5, 0x21, 0));
    assert_eq!(send(&[(0, 2), (1, 1)], 0, 0), (5, 0x26, 0), "a block twice");
    let many = vec![(0, 0); usize::from(limits::TOKEN_RANGES_MAX) + 1];
    assert_eq!(send(&many, 0, 0), (5, 0x26, 0x08), "too many");
}

/// Covers-scsi: 84/03.
#[test]
fn the_unit_says_what_it_can_copy() {
    let hosts = hosts();
    assert_eq!(data(&hosts.all, 0, &[0x12, 0, 0, 0, 96, 0])[5] & 8, 8, "3PC");
    let page = data(&hosts.all, 0, &[0x12, 1, 0x8f, 4, 0, 0]);
    let codes: Vec<u16> = third_party::descriptors(&page[4..]).map(|(code, _)| code).collect();
    assert_eq!(codes, [0, 1, 4, 8, 0xc, 0x106, 0x108, 0x8001]);
    let (_, commands) = third_party::descriptors(&page[4..]).nth(1).expect("commands");
    assert_eq!(commands[..16], [15, 0x83, 5, 0, 1, 0x10, 0x11, 0x1c, 0x84, 6, 0, 1, 3, 5, 6, 7]);
    let parameters = data(&hosts.all, 0, &results(copy::OPERATING_PARAMETERS, 0));
    let mut expected = [0; 47];
    expected[3] = 43;
    expected[4] = 1; // SNLID
    expected[8..12].copy_from_slice(&[0, 16, 0, 64]);
    expected[12..16].copy_from_slice(&limits::COPY_DESCRIPTORS_LEN_MAX.to_be_bytes());
    expected[16..20].copy_from_slice(&limits::COPY_SEGMENT_MAX.to_be_bytes());
    expected[35..37].fill(8); // concurrent copies, in all and of each host
    expected[37] = 9; // segments are of whole blocks of 512 bytes
    expected[43..].copy_from_slice(&[3, 0x02, 0x0a, 0xe4]);
    assert_eq!(parameters, expected);
    let mut short = results(copy::OPERATING_PARAMETERS, 0);
    (short[12], short[13]) = (0, 38);
    assert_eq!(data(&hosts.all, 0, &short), expected[..38]);
}

#[test]
fn losing_the_nexus_forgets_its_copies() {
    let hosts = hosts();
    assert_eq!(hosts.copy(&hosts.all, &[segment(0, 1, 1, 0, 0)]), None);
    hosts.all.reset();
    assert_eq!(codes(sense(&hosts.all, 0, &READY, &[])), (6, 0x29, 7));
    let status = results(copy::COPY_STATUS_LID1, 7);
    assert_eq!(codes(sense(&hosts.all, 0, &status, &[])), (5, 0x24, 0));
}
