// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Protection information over the wire: lengths and residuals, CDBs of 32 bytes, checks, FORMAT
//! UNIT, and many hosts at the same blocks.

use std::thread;

use lunwire_conformance::host::Host;
use lunwire_conformance::host::cdb16;
use lunwire_conformance::host::inquiry;
use lunwire_conformance::host::service_in_16;
use lunwire_conformance::host::unmap;
use lunwire_conformance::initiator::pattern;
use lunwire_conformance::server::Medium;
use lunwire_conformance::server::add_protected;
use lunwire_conformance::*;
use scsi::ProtectionType;
use scsi::ProtectionType::{One, Three, Two};
use wire::iscsi::*;
use wire::scsi::capacity::Capacity;
use wire::scsi::protection::Information;
use wire::scsi::sam::CHECK_CONDITION;
use wire::scsi::sam::GOOD;

const GUARD: (u8, u8, u8) = (0xb, 0x10, 1);
const REFERENCE: (u8, u8, u8) = (0xb, 0x10, 3);
const FIELD: (u8, u8, u8) = (5, 0x24, 0);
const OPCODE: (u8, u8, u8) = (5, 0x20, 0);

/// What goes with a command itself, bytes: less than what it writes.
const IMMEDIATE: usize = 4096;

const PAIR: u32 = 520;

/// The disks with protection information: two of each type, in a file where the number is odd.
fn disks() -> impl Iterator<Item = (u8, ProtectionType, Medium)> {
    let kinds = [One, Three, Two].into_iter().flat_map(|kind| [kind; 2]);
    (3_u8..).zip(kinds).map(|(number, kind)| {
        (number, kind, if number % 2 == 1 { Medium::File } else { Medium::Memory })
    })
}

fn on_each(check: impl Fn(&Server)) {
    on_each_plan(
        |_| {},
        |plan| {
            for (number, kind, medium) in disks() {
                add_protected(plan, u16::from(number), kind, medium);
            }
        },
        check,
    );
}

fn host(server: &Server, lun: u8, name: &str) -> Host {
    let initiator = Some(format!("iqn.2026-01.example.conformance:{name}"));
    let mut session = server.login_with(&LoginPlan { initiator, ..LoginPlan::new() });
    session.settle(lun);
    Host::new(session, lun, IMMEDIATE)
}

/// A block command with a protection field: of 32 bytes for type 2.
fn command(kind: ProtectionType, opcode: u8, code: u8, block: u32, count: u32) -> Vec<u8> {
    if kind != Two {
        return cdb16(opcode, code << 5, block.into(), count).to_vec();
    }
    let action = match opcode {
        READ => 0x09,
        WRITE => 0x0b,
        VERIFY => 0x0a,
        WRITE_VERIFY => 0x0c,
        _ => 0x0d,
    };
    let mut cdb = vec![0x7f, 0, 0, 0, 0, 0, 0, 0x18, 0, action, code << 5, 0];
    cdb.extend_from_slice(&u64::from(block).to_be_bytes());
    // The reference tag that is expected first, no application tag.
    cdb.extend_from_slice(&block.to_be_bytes());
    cdb.extend_from_slice(&[0; 4]);
    cdb.extend_from_slice(&count.to_be_bytes());
    cdb
}

const READ: u8 = 0x88;
const WRITE: u8 = 0x8a;
const WRITE_VERIFY: u8 = 0x8e;
const VERIFY: u8 = 0x8f;
const SAME: u8 = 0x93;

/// Blocks with what belongs to each.
fn pairs(seed: u8, block: u32, count: u32) -> Vec<u8> {
    let data = pattern(512 * count as usize, seed);
    let pair = |(data, reference): (&[u8], u32)| {
        let guard = crc::crc16_t10dif(data);
        let information = Information { guard, application: seed.into(), reference };
        [data, &information.emit()].concat()
    };
    data.chunks(512).zip(block..).flat_map(pair).collect()
}

/// Covers-scsi: 88, 8A, 8E, 8F, 7F/0009, 7F/000A, 7F/000B, 7F/000C.
#[test]
fn blocks_travel_with_eight_bytes_more() {
    on_each(|server| {
        for (lun, kind, _) in disks() {
            let mut host = host(server, lun, "a");
            // Immediate data and several R2Ts.
            let out = pairs(1, 100, 300);
            host.write(&command(kind, WRITE, 1, 100, 300), &out);
            let back = host.read_whole(&command(kind, READ, 1, 100, 300), 300 * PAIR);
            assert!(back == out, "LUN {lun}");
            // Room for the data alone: eight bytes a block are left over.
            let status = host.receive(&command(kind, READ, 1, 100, 8), 8 * 512);
            assert_eq!((status.code, status.residual), (GOOD, Residual::Overflow(64)));
            let status = host.receive(&command(kind, READ, 0, 100, 8), 8 * PAIR);
            assert_eq!((status.code, status.residual), (GOOD, Residual::Underflow(64)));
            host.write(&command(kind, WRITE_VERIFY, 1, 100, 9), &pairs(2, 100, 9));
            let mut verify = command(kind, VERIFY, 1, 100, 9);
            verify[if kind == Two { 10 } else { 1 }] |= 2;
            host.write(&verify, &pairs(2, 100, 9));
            let status = host.send(&verify, &pairs(3, 100, 9));
            assert_eq!(status.sense_code(), (0xe, 0x1d, 0));
            host.must(&command(kind, VERIFY, 1, 100, 300));
            host.session.leave();
        }
    });
}

/// Covers-scsi: 88, 8A, 93, 42.
#[test]
fn what_is_wrong_is_told_with_its_block() {
    on_each(|server| {
        for (lun, kind, _) in disks() {
            let mut host = host(server, lun, "a");
            let mut out = pairs(1, 40, 20);
            let at = 7 * PAIR as usize;
            out[at + 3] ^= 0x10;
            let status = host.send(&command(kind, WRITE, 1, 40, 20), &out);
            assert_eq!((status.code, status.sense_code()), (CHECK_CONDITION, GUARD));
            assert_eq!(status.sense[0], 0xf0, "VALID");
            assert_eq!(status.sense[3..7], 47_u32.to_be_bytes(), "INFORMATION");
            out[at + 3] ^= 0x10;
            out[at + 519] ^= 1;
            let status = host.send(&command(kind, WRITE, 1, 40, 20), &out);
            let wanted = if kind == Three { (0, 0, 0) } else { REFERENCE };
            assert_eq!(status.sense_code(), wanted);
            // Written without a check, and found by who reads.
            host.write(&command(kind, WRITE, 3, 40, 20), &out);
            let status = host.receive(&command(kind, READ, 1, 40, 20), 20 * PAIR);
            assert_eq!(status.sense_code(), wanted);
            assert_eq!(status.data.is_empty(), kind != Three);
            assert!(host.read(&command(kind, READ, 3, 40, 20), 20 * PAIR) == out);
            for (code, sense) in [(6, FIELD), (7, FIELD)] {
                let status = host.run(&command(kind, READ, code, 40, 1));
                assert_eq!(status.sense_code(), sense);
            }
            let foreign = command(if kind == Two { One } else { Two }, READ, 1, 40, 1);
            assert_eq!(host.run(&foreign).sense_code(), OPCODE);
            // Unmapped blocks have ones beside them.
            let (cdb, list) = unmap(&[(40, 20)]);
            host.write(&cdb, &list);
            let back = host.read_whole(&command(kind, READ, 1, 40, 20), 20 * PAIR);
            let bare = [&[0; 512][..], &[0xff; 8]].concat();
            assert!(back.chunks(PAIR as usize).all(|pair| pair == bare));
            host.write(&command(kind, SAME, 1, 40, 20), &pairs(9, 40, 1));
            host.must(&command(kind, VERIFY, 1, 40, 20));
            host.session.leave();
        }
    });
}

/// Covers-scsi: 04, 12, 9E/10.
#[test]
fn a_host_formats_a_disk_with_another_type() {
    on_each(|server| {
        for (lun, kind, _) in disks() {
            let mut host = host(server, lun, "a");
            assert_eq!(host.read(&inquiry(None, 96), 96)[5] & 1, 1, "PROTECT");
            assert_eq!(host.vital(0x86)[4], 0x3f);
            let capacity = |host: &mut Host| {
                let data = host.read_whole(&service_in_16(0x10, 0, 32), 32);
                Capacity::parse_16(&data).expect("capacity").protection
            };
            assert_eq!(capacity(&mut host), Some(kind));
            host.write(&command(kind, WRITE, 1, 5, 1), &pairs(1, 5, 1));
            for (information, usage, wanted) in
                [(3, 1, Some(Three)), (2, 0, Some(One)), (0, 0, None), (3, 0, Some(Two))]
            {
                host.write(&[4, information << 6 | 0x10, 0, 0, 0, 0], &[usage, 0, 0, 0]);
                assert_eq!(capacity(&mut host), wanted);
                let Some(kind) = wanted else {
                    let status = host.run(&command(One, READ, 1, 5, 1));
                    assert_eq!(status.sense_code(), FIELD);
                    continue;
                };
                let bare = [&[0; 512][..], &[0xff; 8]].concat();
                assert!(host.read(&command(kind, READ, 1, 5, 1), PAIR) == bare);
                host.write(&command(kind, WRITE, 1, 5, 1), &pairs(1, 5, 1));
                assert!(host.read(&command(kind, READ, 1, 5, 1), PAIR) == pairs(1, 5, 1));
            }
            host.session.leave();
        }
    });
}

/// Two hosts write the same blocks over and over, two read them: each sees whole blocks that belong
/// to what stands beside them.
#[test]
fn who_reads_while_others_write_finds_what_belongs_together() {
    on_each(|server| {
        for (lun, kind, _) in disks().filter(|(_, kind, _)| *kind != Three) {
            let mut first = host(server, lun, "a");
            first.write(&command(kind, WRITE, 1, 200, 16), &pairs(1, 200, 16));
            thread::scope(|scope| {
                for writer in 0..2_u8 {
                    scope.spawn(move || {
                        let name = if writer == 0 { "b" } else { "c" };
                        let mut host = host(server, lun, name);
                        for round in 0..40 {
                            let (block, count) = (200 + u32::from(round % 5), 8);
                            let out = pairs(round * 2 + writer, block, count);
                            host.write(&command(kind, WRITE, 1, block, count), &out);
                        }
                        host.session.leave();
                    });
                }
                scope.spawn(move || {
                    let mut host = host(server, lun, "d");
                    for _ in 0..60 {
                        host.read_whole(&command(kind, READ, 1, 200, 16), 16 * PAIR);
                        host.must(&command(kind, VERIFY, 1, 200, 16));
                    }
                    host.session.leave();
                });
            });
            first.read_whole(&command(kind, READ, 1, 200, 16), 16 * PAIR);
            first.session.leave();
        }
    });
}
