// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What VMware ESXi sends when it attaches a disk, puts a datastore on it and lives with it, in
//! that order, and what it wants back. A simulation after public documents, which
//! docs/TESTED-WITH.md names; not the product.

use std::time::Duration;
use std::time::Instant;

use lunwire_conformance::host::*;
use lunwire_conformance::initiator::*;
use lunwire_conformance::*;
use wire::iscsi::*;

/// The keys of the software initiator with the defaults of `esxcli iscsi adapter param get`.
const KEYS: [(&str, &str); 16] = [
    ("HeaderDigest", "None"),
    ("DataDigest", "None"),
    ("DefaultTime2Wait", "2"),
    ("DefaultTime2Retain", "0"),
    ("IFMarker", "No"),
    ("OFMarker", "No"),
    ("ErrorRecoveryLevel", "0"),
    ("InitialR2T", "No"),
    ("ImmediateData", "Yes"),
    ("MaxBurstLength", "262144"),
    ("FirstBurstLength", "262144"),
    ("MaxOutstandingR2T", "1"),
    ("MaxConnections", "1"),
    ("DataPDUInOrder", "Yes"),
    ("DataSequenceInOrder", "Yes"),
    ("MaxRecvDataSegmentLength", "131072"),
];

/// LoginTimeout of the same list, seconds.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(5);

/// What goes with the command itself, bytes.
const IMMEDIATE: usize = 8192;

const MISCOMPARE: (u8, u8, u8) = (0x0e, 0x1d, 0x00);
const INVALID_OPCODE: (u8, u8, u8) = (5, 0x20, 0x00);
const INVALID_FIELD: (u8, u8, u8) = (5, 0x24, 0x00);
const FUNCTION_COMPLETE: u8 = 0;

fn plan(host: &str) -> LoginPlan {
    let mut plan = LoginPlan::new();
    plan.isid = Isid([0x00, 0x02, 0x3d, 0x00, 0x00, 0x01]);
    plan.cid = Cid(0);
    plan.initiator = Some(format!("iqn.1998-01.com.vmware:{host}"));
    plan
}

/// A host that has claimed unit `lun`.
fn attached(server: &Server, host: &str, lun: u8) -> Host {
    let begin = Instant::now();
    let session = server.login_with(&plan(host).with(&KEYS));
    assert!(begin.elapsed() < LOGIN_TIMEOUT, "a login of {:?}", begin.elapsed());
    let wanted = [("ImmediateData", "Yes"), ("ErrorRecoveryLevel", "0"), ("MaxConnections", "1")];
    for (key, value) in wanted {
        assert_eq!(session.answer(key), Some(value), "{key}");
    }
    let mut host = Host::new(session, lun, IMMEDIATE);
    host.session.settle(lun);
    host
}

fn as_each_engine(check: impl Fn(&Server)) {
    on_each_transport(|_| {}, check);
}

#[test]
fn discovery_finds_the_target_and_ends() {
    as_each_engine(|server| {
        let mut plan = plan("discoverer");
        (plan.target, plan.discovery) = (None, true);
        let keys = [KEYS[0], KEYS[1], KEYS[15]];
        let mut session = server.login_with(&plan.with(&keys));
        let request = session.text();
        session.send(&Request::Text(request), &raw::text(&[("SendTargets", "All")]));
        let pairs = session.read().pairs();
        let name = ("TargetName".to_owned(), server::TARGET.to_owned());
        let address = ("TargetAddress".to_owned(), format!("{},1", server.portal()));
        assert!(pairs.windows(2).any(|two| two == [name.clone(), address.clone()]), "{pairs:?}");
        session.leave();
    });
}

/// The first commands to a path (a log of ESXi 6.5 shows them: SPDK issue 405).
#[test]
fn a_path_is_claimed() {
    as_each_engine(|server| {
        let session = server.login_with(&plan("claimer").with(&KEYS));
        let mut host = Host::new(session, 0, IMMEDIATE);
        // The unit attention of a new nexus is expected once, and taken for a retry.
        let first = host.run(&[0; 6]);
        assert_eq!((first.code, first.sense_code().0), (CHECK_CONDITION, 6));
        host.session.settle(0);

        // The list says how long it is whether or not it fits (TalAloni/iSCSIConsole issue 6).
        let short = host.read(&report_luns(16), 16);
        assert_eq!(number(&short[..4]), u64::from(server::LUNS) * 8);
        let list = host.read(&report_luns(1024), 1024);
        let luns: Vec<&[u8]> = list[8..].chunks(8).collect();
        let wanted: Vec<[u8; 8]> =
            (0..server::LUNS).map(|lun| [0, lun.to_be_bytes()[1], 0, 0, 0, 0, 0, 0]).collect();
        assert_eq!(luns, wanted);

        let standard = host.read(&inquiry(None, 36), 36);
        assert_eq!((standard[0], standard[1] & 0x80), (0, 0), "a disk that stays where it is");
        assert!(standard[2] >= 5 && standard[3] & 0x0f == 2, "SPC-3 or later");
        assert_eq!(standard[7] & 2, 2, "CMDQUE");
        let whole = host.read(&inquiry(None, 255), 255);
        assert_eq!(whole.len(), usize::from(whole[4]) + 5);
        assert_eq!(whole[..36], standard);

        pages_are_as_listed(&mut host);
        the_name_is_an_naa(&mut host);
        // A unit that is not there is not taken for one that is.
        host.lun = 9;
        let nothing = host.read(&inquiry(None, 36), 36);
        assert_eq!(nothing[0], 0x7f, "no unit at this number");
    });
}

/// Every page of the list can be read; what is not listed is refused in the one way that the host
/// passes over (Broadcom article 343525).
fn pages_are_as_listed(host: &mut Host) {
    let listed = host.vital(0x00);
    assert!(listed[4..].is_sorted());
    for page in [0x00, 0x80, 0x83, 0x86, 0xb0, 0xb1, 0xb2] {
        assert!(listed[4..].contains(&page), "page {page:#x} is not listed");
    }
    for page in 0..=u8::MAX {
        if listed[4..].contains(&page) {
            host.vital(page);
        } else {
            let refused = host.receive(&inquiry(Some(page), 255), 255);
            assert_eq!((refused.code, refused.sense_code()), (CHECK_CONDITION, INVALID_FIELD));
        }
    }
}

/// The host names the disk `naa.` after page 83, and knows it again by that name.
fn the_name_is_an_naa(host: &mut Host) {
    let serial = host.vital(0x80);
    assert!(serial.len() > 4 && serial[4..].iter().all(u8::is_ascii_graphic), "{serial:x?}");
    let page = host.vital(0x83);
    let names: Vec<_> = designators(&page).into_iter().filter(|name| name.0 == 0).collect();
    let naa: Vec<_> = names.iter().filter(|name| name.1 == 3).collect();
    assert_eq!(naa.len(), 1, "one NAA of the unit: {names:x?}");
    let (_, _, value) = naa[0];
    assert!(matches!((value[0] >> 4, value.len()), (6, 16) | (3 | 5, 8)), "{value:x?}");
}

#[test]
fn the_device_is_asked_what_it_can() {
    as_each_engine(|server| {
        let mut host = attached(server, "asker", 0);
        let blocks = server::UNIT_BYTES / u64::from(server::BLOCK);
        let short = host.read_whole(&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], 8);
        assert_eq!((number(&short[..4]), number(&short[4..])), (blocks - 1, 512));
        let long = host.read_whole(&service_in_16(0x10, 0, 32), 32);
        assert_eq!((number(&long[..8]), number(&long[8..12])), (blocks - 1, 512));

        // MODE SENSE (6): all pages for write protection, caching, and the control page as the
        // format asks for it (SPDK issue 1414 shows `1a 08 0a 00 10 00`).
        let all = host.read(&[0x1a, 0, 0x3f, 0, 255, 0], 255);
        assert_eq!((usize::from(all[0]) + 1, all[2] & 0x80), (all.len(), 0), "not protected");
        let caching = host.read(&[0x1a, 8, 0x08, 0, 255, 0], 255);
        assert_eq!((caching[4] & 0x3f, caching.len()), (0x08, 24));
        let control = host.read_whole(&[0x1a, 8, 0x0a, 0, 16, 0], 16);
        assert_eq!((control[0], control[3], control[4] & 0x3f), (15, 0, 0x0a));

        // ALUA: what INQUIRY promises, REPORT TARGET PORT GROUPS keeps; this path is one of them.
        let standard = host.read(&inquiry(None, 96), 96);
        if standard[5] & 0x30 != 0 {
            let groups = host.read(&[0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0], 1024);
            assert_eq!(number(&groups[..4]) + 4, groups.len() as u64);
            assert!(matches!(groups[4] & 0x0f, 0 | 1), "an active path: {groups:x?}");
            let page = host.vital(0x83);
            let group = designators(&page).into_iter().find(|name| name.1 == 5);
            let (of, _, value) = group.expect("a target port group designator");
            assert_eq!((of, &value[2..]), (1, &groups[6..8]));
        }

        // SMART by ATA PASS-THROUGH, every some minutes: no such command, and no harm done.
        let mut smart = [0; 16];
        smart[0] = 0x85;
        let refused = host.receive(&smart, 512);
        assert_eq!((refused.code, refused.sense_code()), (CHECK_CONDITION, INVALID_OPCODE));
        host.must(&[0; 6]);
        host.session.leave();
    });
}

/// A datastore is made: RESERVE (6) must be there (SPDK issue 1414, tcmu-runner request 108), and
/// 34 blocks of which 8 KiB are immediate must leave no residual (SPDK issue 405).
#[test]
fn a_datastore_is_made() {
    as_each_engine(|server| {
        let mut host = attached(server, "maker", 2);
        let mut other = attached(server, "other", 2);
        let table = pattern(34 * BLOCK_BYTES, 1);
        assert_eq!(host.read_whole(&cdb10(0x28, 0, 1), 512).len(), 512);
        host.must(&[0x16, 0, 0, 0, 0, 0]);
        host.write(&cdb10(0x2a, 0, 34), &table);
        host.write(&cdb16(0x8a, 0, 2048, 34), &table);
        for cdb in [cdb10(0x28, 0, 1), cdb10(0x2a, 0, 1)] {
            let code = match cdb[0] {
                0x28 => other.receive(&cdb, 512).code,
                _ => other.send(&cdb, &[0; 512]).code,
            };
            assert_eq!(code, RESERVATION_CONFLICT, "{cdb:x?}");
        }
        host.must(&[0x17, 0, 0, 0, 0, 0]);
        assert_eq!(other.read_whole(&cdb10(0x28, 0, 34), 34 * 512), table);
        assert_eq!(other.read_whole(&cdb16(0x88, 0, 2048, 34), 34 * 512), table);
        // One host reserves and dies: a reset of the unit by the other one frees it.
        host.must(&[0x16, 0, 0, 0, 0, 0]);
        drop(host);
        let reset = other.session.management(5, 2, Itt::NONE);
        other.session.send(&Request::TaskManagement(reset), &[]);
        assert_eq!(other.session.read_management(), FUNCTION_COMPLETE);
        other.session.settle(2);
        other.write(&cdb10(0x2a, 0, 1), &table[..512]);
        other.session.leave();
    });
}

/// Hardware assisted locking: of two hosts that swap the same old block exactly one succeeds. The
/// other learns E/1D/00 and nothing else: any other answer takes the datastore off line (Broadcom
/// article 326437).
#[test]
fn locks_are_taken_by_compare_and_write() {
    as_each_engine(|server| {
        for lun in [0, 2] {
            let mut one = attached(server, "one", lun);
            let mut two = attached(server, "two", lun);
            assert!(one.vital(0xb0)[5] >= 1, "MAXIMUM COMPARE AND WRITE LENGTH");
            let (free, mine, theirs) = ([0; 512], [1; 512], [2; 512]);
            let (cdb, data) = compare_and_write(70, &free, &mine);
            one.write(&cdb, &data);
            let (cdb, data) = compare_and_write(70, &free, &theirs);
            let lost = two.send(&cdb, &data);
            assert_eq!((lost.code, lost.sense_code()), (CHECK_CONDITION, MISCOMPARE));
            // INFORMATION is the offset of the first byte that differs.
            assert_eq!(number(&lost.sense[3..7]), 0, "{:x?}", lost.sense);
            assert_eq!(two.read_whole(&cdb10(0x28, 70, 1), 512), mine, "nothing was written");
            // A heartbeat: the holder swaps its own block, in the last bytes only.
            let mut beat = mine;
            beat[508] = 9;
            let (cdb, data) = compare_and_write(70, &mine, &beat);
            one.write(&cdb, &data);
            let stale = one.send(&cdb, &data);
            assert_eq!((stale.code, stale.sense_code()), (CHECK_CONDITION, MISCOMPARE));
            assert_eq!(number(&stale.sense[3..7]), 508);
        }
    });
}

/// Fifty races for one lock: never two winners, never none.
#[test]
fn a_contended_lock_has_one_winner() {
    as_each_engine(|server| {
        let mut hosts = [attached(server, "first", 0), attached(server, "second", 0)];
        let mut now = [0; 512];
        for round in 1..50u8 {
            let mut wishes = Vec::new();
            for (number, host) in (1u8..).zip(&mut hosts) {
                let mut new = [round; 512];
                new[0] = number;
                let (cdb, data) = compare_and_write(80, &now, &new);
                let command = host.session.command(0, &cdb);
                let command = ScsiCommand { write: true, expected_length: 1024, ..command };
                host.session.send(&Request::Command(command), &data);
                wishes.push((command.itt, new));
            }
            let mut won = Vec::new();
            for (host, (itt, new)) in hosts.iter_mut().zip(wishes) {
                let status = host.session.finish(itt);
                match status.code {
                    GOOD => won.push(new),
                    _ => assert_eq!(status.sense_code(), MISCOMPARE),
                }
            }
            assert_eq!(won.len(), 1, "winners of round {round}");
            assert_eq!(hosts[0].read_whole(&cdb10(0x28, 80, 1), 512), won[0]);
            now = won[0];
        }
    });
}

/// Block zeroing: 1 MiB by one block of zeros, as far as page B0 allows.
#[test]
fn blocks_are_zeroed_by_write_same() {
    as_each_engine(|server| {
        for lun in [0, 2] {
            let mut host = attached(server, "zeroer", lun);
            let limit = number(&host.vital(0xb0)[36..44]);
            assert!(limit == 0 || limit >= 2048, "MAXIMUM WRITE SAME LENGTH {limit}");
            let old = pattern(64 * BLOCK_BYTES, 5);
            host.write(&cdb10(0x2a, 0, 64), &old);
            host.write(&cdb10(0x2a, 2040, 64), &old);
            host.write(&cdb16(0x93, 0, 8, 2048), &[0; 512]);
            assert_eq!(host.read_whole(&cdb10(0x28, 0, 8), 8 * 512), old[..8 * 512]);
            assert_eq!(host.read_whole(&cdb10(0x28, 8, 56), 56 * 512), vec![0; 56 * 512]);
            assert_eq!(host.read_whole(&cdb10(0x28, 2040, 16), 16 * 512), vec![0; 16 * 512]);
            assert_eq!(host.read_whole(&cdb10(0x28, 2056, 48), 48 * 512), old[16 * 512..]);
        }
    });
}

/// Space reclamation of VMFS 6: only where all of READ CAPACITY (16), page B2 and page B0 say so,
/// with a granularity of at most 1 MiB.
#[test]
fn space_is_given_back_by_unmap() {
    as_each_engine(|server| {
        for lun in [0, 2] {
            let mut host = attached(server, "reclaimer", lun);
            let capacity = host.read_whole(&service_in_16(0x10, 0, 32), 32);
            assert_eq!(capacity[14] & 0xc0, 0xc0, "LBPME and LBPRZ");
            let provisioning = host.vital(0xb2);
            assert_eq!(provisioning[5] & 0x80, 0x80, "LBPU");
            assert_eq!(provisioning[6] & 7, 2, "thin");
            let limits = host.vital(0xb0);
            assert!(number(&limits[20..24]) >= 2048, "MAXIMUM UNMAP LBA COUNT");
            assert!(number(&limits[24..28]) >= 1, "MAXIMUM UNMAP BLOCK DESCRIPTOR COUNT");
            let granularity = number(&limits[28..32]);
            assert!((1..=2048).contains(&granularity), "{granularity} blocks");
            assert_eq!(limits[32] & 0x80, 0x80, "UGAVALID");
            assert_eq!(number(&limits[32..36]) & 0x7fff_ffff, 0, "aligned at the first block");

            let old = pattern(8 * BLOCK_BYTES, 7);
            host.write(&cdb10(0x2a, 2048, 8), &old);
            host.write(&cdb10(0x2a, 4096, 8), &old);
            let (cdb, list) = unmap(&[(2048, 2048), (8192, 2048)]);
            host.write(&cdb, &list);
            assert_eq!(host.read_whole(&cdb10(0x28, 2048, 8), 8 * 512), vec![0; 8 * 512]);
            assert_eq!(host.read_whole(&cdb10(0x28, 4096, 8), 8 * 512), old, "beside it");
        }
    });
}

/// A command that starves is aborted, and the connection lives on (SPDK issue 2001).
#[test]
fn a_starved_command_is_aborted() {
    as_each_engine(|server| {
        let mut host = attached(server, "patient", 0);
        let write = host.session.write_blocks(0, 0, 64);
        host.session.start(&write);
        host.session.read_r2t();
        let abort = host.session.management(1, 0, write.itt);
        let abort = TaskManagementRequest { ref_cmd_sn: write.cmd_sn, ..abort };
        host.session.send(&Request::TaskManagement(abort), &[]);
        assert_eq!(host.session.read_management(), FUNCTION_COMPLETE);
        host.session.expect_quiet();
        host.must(&[0; 6]);
        assert_eq!(host.read_whole(&cdb10(0x28, 0, 64), 64 * 512), vec![0; 64 * 512]);
        host.session.leave();
    });
}

/// The NAA name of the unit.
fn naa(host: &mut Host) -> Vec<u8> {
    let page = host.vital(0x83);
    let unit = designators(&page).into_iter().find(|name| (name.0, name.1) == (0, 3));
    unit.expect("an NAA").2
}

/// Cloning: INQUIRY says whether there is EXTENDED COPY (3PC); the operating parameters say how
/// much of it; a segment of 4 MiB is copied from unit to unit and within one.
#[test]
fn blocks_are_cloned_by_extended_copy() {
    const BLOCKS: u16 = 8192;
    as_each_engine(|server| {
        let mut host = attached(server, "cloner", 0);
        let mut other = attached(server, "cloner2", 2);
        let names = [naa(&mut host), naa(&mut other)];
        assert_ne!(names[0], names[1]);
        if host.read(&inquiry(None, 96), 96)[5] & 0x08 == 0 {
            let list = copy_list([&names[0], &names[1]], 1, [0, 0]);
            let refused = host.send(&copy_out(0, 0, list.len()), &list);
            assert_eq!(refused.sense_code(), INVALID_OPCODE, "3PC is zero");
            return;
        }
        let limits = host.read(&copy_in(3, 0, 1024), 1024);
        assert!(number(&limits[8..10]) >= 2 && number(&limits[10..12]) >= 1, "{limits:x?}");
        assert!(number(&limits[16..20]) >= u64::from(BLOCKS) * 512, "MAXIMUM SEGMENT LENGTH");
        assert!(limits[44..].contains(&0x02) && limits[44..].contains(&0xe4), "{limits:x?}");

        let piece = pattern(256 * BLOCK_BYTES, 21);
        for block in (0..u32::from(BLOCKS)).step_by(256) {
            host.write(&cdb10(0x2a, block, 256), &piece);
        }
        let list = copy_list([&names[0], &names[1]], BLOCKS, [0, 8192]);
        host.write(&copy_out(0, 0, list.len()), &list);
        let list = copy_list([&names[0], &names[0]], 1024, [256, 16384]);
        host.write(&copy_out(0, 0, list.len()), &list);
        for block in [8192, 8192 + u32::from(BLOCKS) - 256] {
            assert_eq!(other.read_whole(&cdb10(0x28, block, 256), 256 * 512), piece);
        }
        assert_eq!(host.read_whole(&cdb10(0x28, 16384, 256), 256 * 512), piece);
        // A unit that the host does not see is not copied to, whoever else sees it.
        let mut hidden = names[1].clone();
        *hidden.last_mut().unwrap() ^= 0xff;
        let list = copy_list([&names[0], &hidden], 1, [0, 0]);
        let refused = host.send(&copy_out(0, 0, list.len()), &list);
        assert_eq!(refused.code, CHECK_CONDITION);
        assert!(matches!(refused.sense_code().0, 5 | 0x0a), "{:x?}", refused.sense_code());
    });
}
