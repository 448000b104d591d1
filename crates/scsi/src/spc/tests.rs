// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Primary commands against a disk in memory.

mod attentions;
mod saved;
mod select;

use crate::Nexus;
use crate::limits;
use crate::testing::BLOCKS;
use crate::testing::Bench;
use crate::testing::Seen;
use crate::testing::codes;
use crate::testing::geometry;
use crate::testing::names;
use crate::testing::request;
use crate::testing::run;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use store::Geometry;
use wire::scsi::Lun;
use wire::scsi::Sense;
use wire::scsi::inquiry::Standard;
use wire::scsi::mode;
use wire::scsi::mode::BlockDescriptor;
use wire::scsi::mode::Header;
use wire::scsi::mode::ModeData;
use wire::scsi::opcode::Opcode;
use wire::scsi::rsoc;
use wire::scsi::vpd;
use wire::scsi::vpd::Association;
use wire::scsi::vpd::BlockLimits;
use wire::scsi::vpd::Designator;

fn page(bench: &Bench, code: u8) -> Vec<u8> {
    let bytes = bench.data(&[0x12, 1, code, 0xff, 0xff, 0]);
    let length = usize::from(u16::from_be_bytes([bytes[2], bytes[3]]));
    assert_eq!((bytes[0], bytes[1], bytes.len()), (0, code, 4 + length));
    bytes[4..].to_vec()
}

fn field_of(bench: &Bench, cdb: &[u8]) -> Option<(u16, Option<u8>)> {
    let sense = bench.sense(cdb).expect("refused");
    assert_eq!(codes(Some(sense)), (5, 0x24, 0));
    sense.field.map(|field| (field.byte, field.bit))
}

/// Covers-scsi: 12.
#[test]
fn standard_inquiry_is_that_of_a_disk() {
    let bench = Bench::new();
    let bytes = bench.data(&[0x12, 0, 0, 1, 4, 0]);
    assert_eq!(bytes.len(), 96);
    assert_eq!(bytes[..8], [0, 0, 6, 0x32, 91, 0x18, 0, 2]);
    let standard = Standard::parse(&bytes).expect("whole");
    assert_eq!(&standard.vendor, b"LUNWIRE ");
    assert_eq!(standard.version_descriptors[..4], [0x00a0, 0x0460, 0x04c0, 0x0960]);
}

#[test]
fn inquiry_is_cut_at_any_allocation_length() {
    let bench = Bench::new();
    let whole = bench.data(&[0x12, 0, 0, 2, 0, 0]);
    for length in 0..=255_u8 {
        let data = bench.data(&[0x12, 0, 0, 0, length, 0]);
        assert_eq!(data, whole[..usize::from(length).min(96)]);
    }
}

/// Covers-scsi: 12.
#[test]
fn inquiry_refuses_pages_it_does_not_have() {
    let bench = Bench::new();
    assert_eq!(field_of(&bench, &[0x12, 0, 1, 0, 255, 0]), Some((2, None)));
    let listed = page(&bench, 0);
    assert_eq!(listed, [0x00, 0x80, 0x83, 0x86, 0x8f, 0xb0, 0xb1, 0xb2]);
    for code in 0..=u8::MAX {
        if listed.contains(&code) {
            page(&bench, code);
        } else {
            assert_eq!(field_of(&bench, &[0x12, 1, code, 0, 255, 0]), Some((2, None)));
        }
    }
}

#[test]
fn the_serial_number_is_that_of_the_identity() {
    let bench = Bench::new();
    assert_eq!(page(&bench, 0x80), bench.unit.identity().serial.as_bytes());
}

/// Covers: NAM-13, NAM-14.
#[test]
fn device_identification_names_unit_port_and_device() {
    let bench = Bench::new();
    let mut names = names("iqn.z,i,0x1");
    names.portal_group_tag = 0x2a;
    names.relative_port = 3;
    let nexus = Nexus::new(names, vec![(0, Arc::clone(&bench.unit))]);
    let cdb = [0x12, 1, 0x83, 0x10, 0, 0];
    let bytes =
        run(&nexus, request(Lun::Unit(0), &cdb, &[], 4096), &[]).data_in.expect("data").to_vec();
    let list = vpd::designators(vpd::content(&bytes, 0x83).expect("page 83"));
    let name = |of, name: &[u8]| Designator::ScsiName { of, name: name.to_vec() };
    assert!(list.contains(&Designator::Naa(bench.unit.identity().naa.clone())));
    assert!(list.contains(&Designator::RelativeTargetPort(3)));
    let device = b"iqn.2026-01.org.example:target";
    assert!(list.contains(&name(Association::TargetDevice, device)));
    let port = b"iqn.2026-01.org.example:target,t,0x002a";
    assert!(list.contains(&name(Association::TargetPort, port)));
    let at = bytes.windows(port.len()).position(|window| window == port).expect("the port name");
    assert_eq!(bytes[at + port.len()], 0, "null terminated");
    assert!(
        list.iter()
            .any(|one| matches!(one, Designator::T10Vendor(text) if text.starts_with(b"LUNWIRE ")))
    );
}

/// Whatever their length, so that there is room for it or not.
///
/// Covers: NAM-13.
#[test]
fn names_of_ports_end_with_a_null() {
    for tail in ["", "a", "ab", "abc"] {
        let bench = Bench::new();
        let mut names = names("iqn.z,i,0x1");
        names.target_device.push_str(tail);
        let port = format!("{},t,0x{:04x}", names.target_device, names.portal_group_tag);
        let nexus = Nexus::new(names, vec![(0, Arc::clone(&bench.unit))]);
        let cdb = [0x12, 1, 0x83, 0x10, 0, 0];
        let request = request(Lun::Unit(0), &cdb, &[], 4096);
        let bytes = run(&nexus, request, &[]).data_in.expect("data").to_vec();
        let place = bytes.windows(port.len()).position(|window| window == port.as_bytes());
        let at = place.expect("the port name");
        let length = usize::from(bytes[at - 1]);
        assert_eq!(length, (port.len() + 1).next_multiple_of(4), "{port}");
        assert!(bytes[at + port.len()..at + length].iter().all(|byte| *byte == 0), "{port}");
    }
}

#[test]
fn block_limits_are_those_that_hold() {
    for (block, shift) in [(512, 9), (4096, 12)] {
        let bench = Bench::with(geometry(), block);
        let parsed = BlockLimits::parse(&page(&bench, 0xb0)).expect("whole");
        assert_eq!(parsed.transfer_max, limits::TRANSFER_MAX >> shift);
        assert_eq!(parsed.write_same_max, u64::from(limits::WRITE_SAME_MAX >> shift));
        assert!(parsed.write_same_non_zero);
        // QEMU aborts on blocks of 4096 bytes where it is told of a granularity.
        assert_eq!(parsed.unmap_granularity, if block == 512 { 8 } else { 0 });
        assert_eq!(parsed.unmap_alignment, (block == 512).then_some(0));
        assert_eq!(parsed.transfer_granularity, 4096 >> shift);
        assert_eq!(parsed.unmap_blocks_max, limits::UNMAP_BLOCKS_MAX);
    }
    let thick = Bench::with(Geometry { discard_granularity: None, ..geometry() }, 512);
    let parsed = BlockLimits::parse(&page(&thick, 0xb0)).expect("whole");
    assert_eq!((parsed.unmap_blocks_max, parsed.unmap_descriptors_max), (0, 0));
    assert_eq!(page(&thick, 0xb2), [0, 0, 0, 0]);
    assert_eq!(page(&Bench::new(), 0xb2), [11, 0xe6, 2, 0]);
    let plain = Bench::with(Geometry { anchors: false, ..geometry() }, 512);
    assert_eq!(page(&plain, 0xb2), [11, 0xe4, 2, 0]);
}

#[test]
fn characteristics_tell_flash_from_disk() {
    assert_eq!(page(&Bench::new(), 0xb1)[..2], [0, 1]);
    let disk = Bench::with(Geometry { rotational: true, ..geometry() }, 512);
    assert_eq!(page(&disk, 0xb1)[..2], [0, 0]);
    assert_eq!(page(&Bench::new(), 0x86)[2], 1, "V_SUP");
}

/// Covers-scsi: 03.
#[test]
fn request_sense_speaks_both_formats() {
    let bench = Bench::new();
    assert_eq!(bench.data(&[3, 0, 0, 0, 252, 0]).len(), 18);
    bench.nexus.commands_cleared(&bench.unit);
    let data = bench.data(&[3, 1, 0, 0, 252, 0]);
    assert_eq!(data[0], 0x72);
    assert_eq!(codes(Sense::parse(&data)), (6, 0x2f, 0));
    assert_eq!(codes(Sense::parse(&bench.data(&[3, 1, 0, 0, 252, 0]))), (0, 0, 0));
}

/// Covers-scsi: 1A, 5A.
#[test]
fn mode_sense_has_the_same_pages_in_both_forms() {
    let bench = Bench::new();
    let six = bench.data(&[0x1a, 0, 0x3f, 0, 255, 0]);
    assert_eq!(six[..12], [67, 0, 0x10, 8, 0, 0, 0x10, 0, 0, 0, 2, 0]);
    let ten = bench.data(&[0x5a, 0x10, 0x3f, 0xff, 0, 0, 0, 1, 0, 0]);
    let six = ModeData::parse(Header::Six, &six).expect("whole");
    let ten = ModeData::parse(Header::Ten, &ten).expect("whole");
    let extension = 12 + 20 + 12..12 + 20 + 12 + 32;
    assert_eq!(ten.pages[extension.clone()][..2], [0x4a, 1]);
    let thresholds = ten.pages.len() - 24..;
    assert_eq!(ten.pages[thresholds.clone()][..2], [0x5c, 2]);
    let between = &ten.pages[extension.end..thresholds.start];
    assert_eq!(six.pages, [&ten.pages[..extension.start], between].concat());
    assert_eq!(ten.descriptor, Some(BlockDescriptor::Long { blocks: 4096, length: 512 }));
    let caching = six.page(mode::CACHING).expect("page 08");
    assert_eq!((caching.len(), caching[2]), (20, 0x04));
    assert_eq!(six.page(mode::CONTROL).expect("page 0A")[2], 0, "D_SENSE is off");
    assert_eq!(six.page(mode::INFORMATIONAL_EXCEPTIONS).map(<[u8]>::len), Some(12));
    for code in [0x01, 0x08, 0x0a] {
        let one = bench.data(&[0x1a, 0x08, code, 0, 255, 0]);
        assert_eq!(one[3], 0, "DBD");
        assert_eq!(Some(&one[4..]), six.page(code));
        let subpages = bench.data(&[0x1a, 0x08, code, 0xff, 255, 0]);
        assert_eq!(subpages.get(4..one.len()), one.get(4..));
        let extension = if code == mode::CONTROL { 32 } else { 0 };
        assert_eq!(subpages.len(), one.len() + extension);
    }
}

/// Covers-scsi: 1A.
#[test]
fn what_of_mode_pages_can_be_changed() {
    let bench = Bench::new();
    let changeable = bench.data(&[0x1a, 0x08, 0x7f, 0, 255, 0]);
    let data = ModeData::parse(Header::Six, &changeable).expect("whole");
    for code in [0x08, 0x0a, 0x1c] {
        let page = data.page(code).expect("there");
        let may = [
            (mode::CACHING, 2, 0x04),
            (mode::CONTROL, 2, 0x24),
            (mode::CONTROL, 3, 0x06),
            (mode::CONTROL, 4, 0x08),
            (mode::CONTROL, 5, 0x40),
        ];
        for (at, byte) in page.iter().enumerate().skip(2) {
            let mask = may.iter().find(|(of, index, _)| (*of, *index) == (code, at));
            assert_eq!(*byte, mask.map_or(0, |(.., mask)| *mask), "{code:x} {at}");
        }
    }
    let current = bench.data(&[0x1a, 0, 0x3f, 0, 255, 0]);
    assert_eq!(bench.data(&[0x1a, 0, 0xbf, 0, 255, 0]), current, "default values");
    assert_eq!(codes(bench.sense(&[0x1a, 0, 0xff, 0, 255, 0])), (5, 0x39, 0));
    assert_eq!(field_of(&bench, &[0x1a, 0, 0x02, 0, 255, 0]), Some((2, Some(5))));
    assert_eq!(field_of(&bench, &[0x1a, 0, 0x0a, 2, 255, 0]), Some((3, None)));
    assert_eq!(field_of(&bench, &[0x1a, 0, 0x08, 1, 255, 0]), Some((3, None)));
    assert_eq!(field_of(&bench, &[0x1a, 0, 0x3f, 1, 255, 0]), Some((3, None)));
    let extension = bench.data(&[0x1a, 8, 0x0a, 1, 255, 0]);
    assert_eq!(extension[4..8], [0x4a, 1, 0, 28]);
    assert_eq!(bench.data(&[0x1a, 0, 0x3f, 0, 4, 0]).len(), 4);
}

#[test]
fn mode_sense_shows_protection_and_cache() {
    let quiet = Geometry { read_only: true, volatile_cache: false, ..geometry() };
    let bench = Bench::with(quiet, 512);
    let bytes = bench.data(&[0x1a, 0, 0x08, 0, 255, 0]);
    assert_eq!(bytes[2], 0x90);
    assert_eq!(bytes[12 + 2], 0);
}

fn rsoc_one(option: u8, opcode: u8, action: u16) -> [u8; 12] {
    let [high, low] = action.to_be_bytes();
    [0xa3, 0x0c, option, opcode, high, low, 0, 0, 1, 0, 0, 0]
}

/// Covers-scsi: A3/0C.
#[test]
fn supported_opcodes_agree_with_what_is_dispatched() {
    let bench = Bench::new();
    let all = bench.data(&[0xa3, 0x0c, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0]);
    let list = rsoc::parse_all(&all).expect("whole");
    let supported = crate::table::all().filter(|entry| entry.supported(&bench.unit));
    assert_eq!(list.len(), supported.count());
    let timed = bench.data(&[0xa3, 0x0c, 0x80, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0]);
    assert_eq!(rsoc::parse_all(&timed), Some(list.clone()));
    for command in list {
        let (opcode, action) = (command.opcode.0, command.service_action);
        let (right, wrong) = if action.is_some() { (2, 1) } else { (1, 2) };
        let number = action.unwrap_or(0);
        assert_eq!(field_of(&bench, &rsoc_one(wrong, opcode, number)), Some((2, Some(2))));
        for option in [right, 3] {
            let bytes = bench.data(&rsoc_one(option, opcode, number));
            let (support, usage) = rsoc::parse_one(&bytes).expect("whole");
            assert_eq!((support, usage.len()), (3, usize::from(command.cdb_len)));
            assert_eq!(usage[0], opcode);
            match action {
                Some(action) if opcode == 0x7f => {
                    assert_eq!(usage[7..10], [0x18, 0, u8::try_from(action).expect("small")]);
                }
                Some(action) => assert_eq!(u16::from(usage[1] & 0x1f), action),
                None => {}
            }
        }
    }
}

/// Covers-scsi: A3/0C.
#[test]
fn unsupported_commands_are_said_to_be() {
    let bench = Bench::new();
    for cdb in [
        rsoc_one(1, 0x05, 0),
        rsoc_one(1, 0xff, 0),
        rsoc_one(2, 0x9e, 0x11),
        rsoc_one(2, 0x7f, 0x0e),
        rsoc_one(3, 0x87, 0),
        rsoc_one(3, 0x28, 1),
    ] {
        assert_eq!(bench.data(&cdb), [0, 1, 0, 0]);
    }
    assert_eq!(field_of(&bench, &rsoc_one(4, 0, 0)), Some((2, Some(2))));
    let thick = Bench::with(Geometry { discard_granularity: None, ..geometry() }, 512);
    assert_eq!(thick.data(&rsoc_one(1, 0x42, 0)), [0, 1, 0, 0]);
    assert_eq!(thick.data(&rsoc_one(1, 0x93, 0))[5], 0x01);
    let plain = Bench::with(Geometry { anchors: false, ..geometry() }, 512);
    for (bench, flags, unmap_flags) in [(&plain, 0x09, 0), (&bench, 0x19, 1)] {
        assert_eq!(bench.data(&rsoc_one(1, 0x93, 0))[5], flags);
        assert_eq!(bench.data(&rsoc_one(1, 0x42, 0))[5], unmap_flags);
    }
    assert_eq!(bench.data(&rsoc_one(1, Opcode::READ_10.0, 0))[5] & 0x18, 0x18);
}

/// Covers-scsi: A3/0D.
#[test]
fn task_management_functions_are_five() {
    let bench = Bench::new();
    let cdb = [0xa3, 0x0d, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0];
    assert_eq!(bench.data(&cdb), [0xf8, 0, 0, 0]);
    let mut extended = cdb;
    extended[2] = 0x80;
    assert_eq!(bench.data(&extended).len(), 16);
}

/// Covers-scsi: 1D.
#[test]
fn send_diagnostic_runs_the_default_self_test() {
    let bench = Bench::new();
    assert_eq!(bench.sense(&[0x1d, 0x04, 0, 0, 0, 0]), None);
    assert_eq!(bench.sense(&[0x1d, 0x14, 0, 0, 0, 0]), None);
    assert_eq!(field_of(&bench, &[0x1d, 0x20, 0, 0, 0, 0]), Some((1, Some(7))));
    assert_eq!(field_of(&bench, &[0x1d, 0x04, 0, 0, 1, 0]), Some((3, None)));
    assert_eq!(bench.sense(&[0x1d, 0, 0, 0, 0, 0]), None, "nothing is asked for");
    assert_eq!(field_of(&bench, &[0x1d, 0xa4, 0, 0, 0, 0]), Some((1, Some(7))));
}

/// Covers-scsi: 1D.
#[test]
fn a_self_test_reads_and_flushes() {
    let bench = Bench::new();
    for test in [0x04, 0xa0, 0xc0] {
        bench.log();
        assert_eq!(bench.sense(&[0x1d, test, 0, 0, 0, 0]), None);
        let end = BLOCKS * 512;
        let steps = [Seen::Read(0, 512), Seen::Read(end - 512, 512), Seen::Flush];
        assert_eq!(bench.log(), steps);
    }
    *bench.disk.error.lock() = Some(store::Error::Read);
    assert_eq!(codes(bench.sense(&[0x1d, 0x04, 0, 0, 0, 0])), (4, 0x3e, 3));
    bench.unit.stop();
    assert_eq!(codes(bench.sense(&[0x1d, 0x04, 0, 0, 0, 0])), (2, 4, 2));
}

/// Covers-scsi: 1C, 1D.
#[test]
fn diagnostic_pages_are_listed() {
    let bench = Bench::new();
    let send = |list: &[u8]| {
        let length = u8::try_from(list.len()).expect("short");
        codes(bench.sense_out(&[0x1d, 0x10, 0, 0, length, 0], list))
    };
    assert_eq!(send(&[0, 0, 0, 0]), (0, 0, 0));
    for pcv in [0, 1] {
        assert_eq!(bench.data(&[0x1c, pcv, 0, 0, 255, 0]), [0, 0, 0, 1, 0]);
        assert_eq!(field_of(&bench, &[0x1c, pcv, 0x40, 0, 255, 0]), Some((2, None)));
    }
    assert_eq!(send(&[0x40, 0, 0, 0]), (5, 0x26, 0));
    assert_eq!(send(&[0, 0, 0, 1]), (5, 0x26, 0));
    for length in [1, 2, 3, 5, 6] {
        assert_eq!(send(&vec![0; length]), (5, 0x1a, 0));
    }
    assert_eq!(field_of(&bench, &[0x1d, 0, 0, 0, 4, 0]), Some((1, Some(4))));
}

/// Covers-scsi: 3B, 3C.
#[test]
fn an_echo_buffer_is_of_one_nexus_and_ends_with_it() {
    let bench = Bench::new();
    let read = |mode: u8| [0x3c, mode, 0, 0, 0, 0, 0, 0x20, 0, 0];
    let write = |length: u16| {
        let [high, low] = length.to_be_bytes();
        [0x3b, 0x0a, 0, 0, 0, 0, 0, high, low, 0]
    };
    assert_eq!(bench.data(&read(0x0b)), [0, 0, 0x10, 0]);
    assert_eq!(bench.data(&read(3)), [0; 4]);
    assert_eq!(codes(bench.sense(&read(0x0a))), (5, 0x2c, 0));
    assert_eq!(bench.sense_out(&write(4096), &[7; 4096]), None);
    assert_eq!(bench.data(&read(0x0a)), [7; 4096]);
    assert_eq!(bench.sense_out(&write(3), b"abc"), None);
    assert_eq!(bench.data(&read(0x0a)), b"abc");
    assert_eq!(bench.data(&[0x3c, 0x0a, 0, 0, 0, 0, 0, 0, 2, 0]), b"ab");
    let long = bench.sense_out(&write(4097), &[0; 4097]).expect("refused");
    assert_eq!(long.field.map(|field| field.byte), Some(6));
    let new = || Nexus::new(names("iqn.e,i,0x5"), vec![(0, Arc::clone(&bench.unit))]);
    let at = |nexus: &Nexus, cdb: &[u8], out: &[u8]| {
        run(nexus, request(Lun::Unit(0), cdb, out, 4096), out)
    };
    let other = new();
    at(&other, &[0; 6], &[]);
    assert_eq!(codes(Sense::parse(&at(&other, &read(0x0a), &[]).sense)), (5, 0x2c, 0));
    assert_eq!(at(&other, &write(1), b"x").status, 0);
    assert_eq!(bench.data(&read(0x0a)), b"abc");
    other.lost();
    let again = new();
    at(&again, &[0; 6], &[]);
    assert_eq!(codes(Sense::parse(&at(&again, &read(0x0a), &[]).sense)), (5, 0x2c, 0));
    for mode in [0, 1, 2, 4, 0x0c, 0x1f] {
        assert_eq!(field_of(&bench, &read(mode)), Some((1, Some(4))));
    }
    for mode in [0, 2, 4, 5, 7, 0x0b, 0x0d] {
        let mut cdb = write(0);
        cdb[1] = mode;
        assert_eq!(field_of(&bench, &cdb), Some((1, Some(4))), "no microcode either");
    }
}
