// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What Windows sends when it attaches a disk, formats it, reclaims space and takes it into a
//! failover cluster, in that order, and what it wants back. A simulation after public documents,
//! which docs/TESTED-WITH.md names; not the product.

use lunwire_conformance::host::*;
use lunwire_conformance::initiator::*;
use lunwire_conformance::*;
use wire::iscsi::*;

/// The operational keys of the initiator.
const KEYS: [(&str, &str); 14] = [
    ("HeaderDigest", "None,CRC32C"),
    ("DataDigest", "None,CRC32C"),
    ("ErrorRecoveryLevel", "2"),
    ("InitialR2T", "No"),
    ("ImmediateData", "Yes"),
    ("MaxRecvDataSegmentLength", "65536"),
    ("MaxBurstLength", "262144"),
    ("FirstBurstLength", "65536"),
    ("MaxConnections", "8"),
    ("DataPDUInOrder", "Yes"),
    ("DataSequenceInOrder", "Yes"),
    ("DefaultTime2Wait", "0"),
    ("DefaultTime2Retain", "60"),
    ("MaxOutstandingR2T", "16"),
];

const REGISTER: u8 = 0;
const RESERVE: u8 = 1;
const RELEASE: u8 = 2;
const CLEAR: u8 = 3;
const PREEMPT: u8 = 4;
const REGISTER_AND_IGNORE: u8 = 6;
const REGISTRANTS_ONLY: u8 = 5;
const INVALID_FIELD: (u8, u8, u8) = (5, 0x24, 0x00);

/// A session of the Windows host `host`; `path`: which of its sessions.
fn plan(host: &str, path: u8) -> LoginPlan {
    let mut plan = LoginPlan::new();
    // An EN format ISID with the number that Microsoft has from IANA.
    plan.isid = Isid([0x40, 0x00, 0x01, 0x37, 0x00, path]);
    plan.initiator = Some(format!("iqn.1991-05.com.microsoft:{host}"));
    plan
}

/// Logs in in two stages: security, where no method is wanted, then operational.
fn log_in(server: &Server, plan: &LoginPlan) -> Initiator {
    let mut raw = server.connect();
    let request =
        LoginRequest { current: Stage::Security, next: Some(Stage::Operational), ..plan.request() };
    let method = raw::text(&[("AuthMethod", "None")]);
    raw.send(&Request::Login(request), &[plan.text(), method].concat());
    let pdu = raw.read();
    let Response::Login(answer) = pdu.response() else { panic!("{pdu:x?}") };
    assert_eq!((answer.status, answer.transit, answer.next), (0, true, request.next));
    let pairs = pdu.pairs();
    assert!(pairs.contains(&("AuthMethod".to_owned(), "None".to_owned())), "{pairs:?}");
    // Names are said once; operational keys follow.
    let second = LoginPlan { initiator: None, target: None, discovery: false, ..plan.clone() };
    Initiator::login(raw, &second.with(&KEYS))
}

fn attached(server: &Server, host: &str, path: u8, lun: u8) -> Host {
    let mut host = Host::new(log_in(server, &plan(host, path)), lun, 65536);
    host.session.settle(lun);
    host
}

fn as_each_engine(check: impl Fn(&Server)) {
    on_each_transport(|_| {}, check);
}

/// A discovery session ends by a logout with an answer (Linux just hangs up: SPDK issue 198); the
/// next one follows at once.
#[test]
fn discovery_logs_out() {
    as_each_engine(|server| {
        for _ in 0..3 {
            let discovery = LoginPlan { target: None, discovery: true, ..plan("discoverer", 0) };
            let mut session = log_in(server, &discovery);
            let request = session.text();
            session.send(&Request::Text(request), &raw::text(&[("SendTargets", "All")]));
            let pairs = session.read().pairs();
            let name = ("TargetName".to_owned(), server::TARGET.to_owned());
            assert!(pairs.contains(&name), "{pairs:?}");
            let request = session.logout(0);
            session.send(&Request::Logout(request), &[]);
            let pdu = session.read();
            let Response::Logout(answer) = pdu.response() else { panic!("{pdu:x?}") };
            assert_eq!((answer.itt, answer.response), (request.itt, 0));
            session.expect_closed();
        }
    });
}

#[test]
fn a_disk_arrives() {
    as_each_engine(|server| {
        let session = log_in(server, &plan("arrival", 1));
        let mut host = Host::new(session, 0, 65536);
        let list = host.read(&report_luns(1024), 1024);
        assert_eq!(list.len() as u64 - 8, number(&list[..4]));
        for lun in 0..server::LUNS.to_be_bytes()[1] {
            host.lun = lun;
            let standard = host.read(&inquiry(None, 36), 36);
            assert_eq!((standard[0], standard[1] & 0x80), (0, 0), "a fixed disk");
            host.session.settle(lun);
            the_disk_is_described(&mut host);
        }
        host.session.leave();
    });
}

fn the_disk_is_described(host: &mut Host) {
    let listed = host.vital(0x00);
    for page in [0x80, 0x83, 0xb0, 0xb1, 0xb2] {
        assert!(listed[4..].contains(&page), "page {page:#x}");
        host.vital(page);
    }
    // Offload by tokens is asked for by page 8F, which is there or refused.
    if !listed[4..].contains(&0x8f) {
        let refused = host.receive(&inquiry(Some(0x8f), 255), 255);
        assert_eq!((refused.code, refused.sense_code()), (CHECK_CONDITION, INVALID_FIELD));
    }
    let short = host.read_whole(&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], 8);
    let long = host.read_whole(&service_in_16(0x10, 0, 32), 32);
    assert_eq!((&short[..4], &short[4..]), (&long[4..8], &long[8..12]));
    // Provisioning: both places agree, or "a disk format hang issue may occur" (Microsoft, Thin
    // Provisioning).
    let thin = long[14] & 0x80 != 0;
    let provisioning = host.vital(0xb2);
    assert_eq!(provisioning[5] & 0x80 != 0, thin, "LBPU and LBPME");
    // MODE SENSE with more room than there is: the residual is exact; DPOFUA by the header.
    for page in [0x3f, 0x08, 0x1c] {
        let six = host.read(&[0x1a, 0, page, 0, 192, 0], 192);
        assert_eq!((six.len(), six[2] & 0x90), (usize::from(six[0]) + 1, 0x10), "page {page:#x}");
        let ten = host.read(&[0x5a, 0, page, 0, 0, 0, 0, 1, 0, 0], 256);
        assert_eq!(ten.len() as u64, number(&ten[..2]) + 2, "page {page:#x}");
        assert_eq!(ten[8..], six[4..], "both forms of page {page:#x}");
    }
    // A bare header, as a removable-media poll sends it.
    let header = host.read_whole(&[0x1a, 8, 0x3f, 0, 4, 0], 4);
    assert!(header[0] > 4);
    host.must(&[0; 6]);
}

/// Format: a partition table, zones of metadata at both ends, then all of it read again. A tgt of
/// old put offset 0 into the last Data-In, which carries the status, and the format failed (commit
/// 26cf5c9): offset, DataSN and residual of every Data-In are looked at here.
#[test]
fn a_disk_is_formatted() {
    as_each_engine(|server| {
        for lun in [0, 2] {
            let mut host = attached(server, "formatter", 1, lun);
            let blocks = server::UNIT_BYTES / 512;
            let last = u32::try_from(blocks).unwrap();
            let piece = pattern(128 * BLOCK_BYTES, 11);
            for block in [0, 128, 2048, 4096, last - 128] {
                host.write(&cdb10(0x2a, block, 128), &piece);
            }
            // The boot sector and its copy go through the cache.
            let mut through = cdb10(0x2a, 2048, 1);
            through[1] = 0x08;
            host.write(&through, &piece[..512]);
            host.must(&cdb10(0x35, 0, 0));
            // VERIFY of what a full format wrote, without data.
            host.must(&cdb10(0x2f, 0, 256));
            host.must(&cdb16(0x8f, 0, u64::from(last) - 128, 128));
            for (block, count) in [(0, 1), (0, 128), (last - 128, 128), (4096, 3)] {
                let length = u32::from(count) * 512;
                let data = host.read_whole(&cdb10(0x28, block, count), length);
                assert_eq!(data[..], piece[..data.len()], "block {block}");
            }
            data_in_is_exact(&mut host);
            // Behind the end: 5/21/00, and not a byte.
            let beyond = host.receive(&cdb10(0x28, last - 1, 2), 1024);
            assert_eq!((beyond.code, beyond.sense_code()), (CHECK_CONDITION, (5, 0x21, 0)));
            assert_eq!(beyond.data.len(), 0);
            host.must(&[0x1b, 0, 0, 0, 1, 0]);
        }
    });
}

/// A read in several PDUs, the last of which carries the status, unless a response follows.
fn data_in_is_exact(host: &mut Host) {
    let read = host.session.command(host.lun, &cdb10(0x28, 0, 512));
    let read = ScsiCommand { read: true, expected_length: 512 * 512, ..read };
    host.session.start(&read);
    let (mut at, mut number) = (0, 0);
    loop {
        let pdu = host.session.read();
        let part = match pdu.response() {
            Response::DataIn(part) => part,
            Response::Scsi(answer) => {
                assert_eq!((at, answer.status, answer.residual), (512 * 512, GOOD, Residual::None));
                return;
            }
            other => panic!("data or a status was due: {other:?}"),
        };
        assert_eq!((part.offset, part.data_sn), (at, DataSn(number)));
        at += u32::try_from(pdu.data.len()).expect("a short list");
        number += 1;
        if let Some(status) = part.status {
            assert!(part.final_, "a status ends the sequence");
            assert_eq!((at, status.status, status.residual), (512 * 512, GOOD, Residual::None));
            return;
        }
    }
}

/// Retrim: several extents in one UNMAP, and the state of extents by GET LBA STATUS.
#[test]
fn space_is_reclaimed() {
    as_each_engine(|server| {
        for lun in [0, 2] {
            let mut host = attached(server, "trimmer", 1, lun);
            let piece = pattern(2048 * BLOCK_BYTES / 8, 3);
            for block in [0, 4096, 8192] {
                host.write(&cdb10(0x2a, block, 256), &piece);
            }
            let (cdb, list) = unmap(&[(0, 2048), (4096, 2048), (16384, 2048)]);
            host.write(&cdb, &list);
            for (block, gone) in [(0, true), (4096, true), (8192, false)] {
                let status = host.read(&service_in_16(0x12, block, 24), 24);
                assert_eq!(number(&status[8..16]), block);
                assert!(number(&status[16..20]) > 0);
                assert_eq!(status[20] & 0x0f, u8::from(gone), "block {block}");
                let data = host.read_whole(&cdb10(0x28, block.try_into().unwrap(), 8), 4096);
                assert_eq!(data == vec![0; 4096], gone, "block {block}");
            }
            // No extent at all is no mistake.
            let (cdb, list) = unmap(&[]);
            host.write(&cdb, &list);
        }
    });
}

fn keys(host: &mut Host) -> Vec<u64> {
    let data = host.read(&[0x5e, 0, 0, 0, 0, 0, 0, 0x10, 0, 0], 4096);
    assert_eq!(data.len() as u64, number(&data[4..8]) + 8);
    data[8..].chunks(8).map(number).collect()
}

/// Key of the holder and type of the reservation.
fn holder(host: &mut Host) -> Option<(u64, u8)> {
    let data = host.read(&[0x5e, 1, 0, 0, 0, 0, 0, 0x10, 0, 0], 4096);
    (data.len() > 8).then(|| (number(&data[8..16]), data[21]))
}

fn out(host: &mut Host, action: u8, key: u64, action_key: u64) -> u8 {
    let kind = if matches!(action, RESERVE | RELEASE | PREEMPT) { REGISTRANTS_ONLY } else { 0 };
    let (cdb, list) = reserve_out(action, kind, key, action_key);
    host.send(&cdb, &list).code
}

/// Arbitration in a failover cluster: the owner registers and reserves (write exclusive,
/// registrants only), a challenger preempts it, the loser notices and keeps away.
#[test]
fn a_cluster_arbitrates() {
    as_each_engine(|server| {
        let (first, second) = (0x7465_7374_0001, 0x7465_7374_0002);
        let mut one = attached(server, "node1", 1, 1);
        let mut two = attached(server, "node2", 1, 1);
        // Validation: the same unit through both nodes, with a serial number and an NAA.
        assert_eq!(one.vital(0x80), two.vital(0x80));
        let units = [&mut one, &mut two].map(|host| {
            let page = host.vital(0x83);
            let unit = designators(&page).into_iter().filter(|name| name.0 == 0);
            unit.collect::<Vec<_>>()
        });
        assert_eq!(units[0], units[1]);
        assert!(units[0].iter().any(|name| name.1 == 3), "an NAA");
        let capabilities = one.read(&[0x5e, 2, 0, 0, 0, 0, 0, 0, 8, 0], 8);
        assert_eq!((capabilities[3] & 0x80, capabilities[4] & 0x20), (0x80, 0x20));

        assert_eq!((keys(&mut one), holder(&mut one)), (vec![], None));
        assert_eq!(out(&mut one, REGISTER_AND_IGNORE, 0, first), GOOD);
        assert_eq!(out(&mut one, RESERVE, first, 0), GOOD);
        assert_eq!(holder(&mut two), Some((first, REGISTRANTS_ONLY)));
        // Whoever is not registered reads, and does not write.
        assert_eq!(two.read_whole(&cdb10(0x28, 0, 8), 4096).len(), 4096);
        assert_eq!(two.send(&cdb10(0x2a, 0, 1), &[0; 512]).code, RESERVATION_CONFLICT);
        assert_eq!(out(&mut two, RESERVE, 0, 0), RESERVATION_CONFLICT);

        // The owner defends itself by reading the keys; the challenger waits, then takes over.
        assert_eq!(out(&mut two, REGISTER, 0, second), GOOD);
        assert_eq!(keys(&mut one), [first, second]);
        two.write(&cdb10(0x2a, 0, 1), &[1; 512]);
        assert_eq!(out(&mut two, RESERVE, second, 0), RESERVATION_CONFLICT);
        assert_eq!(out(&mut two, PREEMPT, second, first), GOOD);
        assert_eq!((keys(&mut two), holder(&mut two)), (vec![second], Some((second, 5))));
        // The loser is told once, and kept out.
        let told = one.run(&[0; 6]);
        assert_eq!((told.code, told.sense_code()), (CHECK_CONDITION, (6, 0x2a, 0x05)));
        assert_eq!(one.send(&cdb10(0x2a, 0, 1), &[2; 512]).code, RESERVATION_CONFLICT);
        assert_eq!(out(&mut one, RESERVE, first, 0), RESERVATION_CONFLICT);
        assert_eq!(two.read_whole(&cdb10(0x28, 0, 1), 512), [1; 512]);

        // A node comes back with a path of its own, and the disk leaves the cluster.
        assert_eq!(out(&mut one, REGISTER_AND_IGNORE, 0, first), GOOD);
        one.write(&cdb10(0x2a, 0, 1), &[3; 512]);
        assert_eq!(out(&mut two, RELEASE, second, 0), GOOD);
        one.session.settle(1);
        assert_eq!(out(&mut one, CLEAR, first, 0), GOOD);
        two.session.settle(1);
        assert_eq!((keys(&mut two), holder(&mut two)), (vec![], None));
        two.write(&cdb10(0x2a, 0, 1), &[0; 512]);
    });
}

/// MPIO: two sessions of one host are two paths to one disk; one ends, the other goes on.
#[test]
fn two_paths_are_one_disk() {
    as_each_engine(|server| {
        let mut one = attached(server, "mpio", 1, 2);
        let mut two = attached(server, "mpio", 2, 2);
        assert_eq!(one.vital(0x83), two.vital(0x83), "one portal group, one name");
        one.write(&cdb10(0x2a, 100, 8), &pattern(4096, 1));
        assert_eq!(two.read_whole(&cdb10(0x28, 100, 8), 4096), pattern(4096, 1));
        drop(one);
        two.write(&cdb10(0x2a, 100, 8), &pattern(4096, 2));
        let mut again = attached(server, "mpio", 1, 2);
        assert_eq!(again.read_whole(&cdb10(0x28, 100, 8), 4096), pattern(4096, 2));
    });
}

/// Ranges of blocks as copies by token have them.
fn ranges(runs: &[(u64, u32)]) -> Vec<u8> {
    let pieces = runs.iter().flat_map(|(block, count)| {
        [block.to_be_bytes().as_slice(), &count.to_be_bytes(), &[0; 4]].concat()
    });
    pieces.collect()
}

/// A parameter list with its length in front, of which these bytes are the rest.
fn list_of(rest: &[u8]) -> Vec<u8> {
    let length = u16::try_from(rest.len()).expect("a short list");
    [length.to_be_bytes().as_slice(), rest].concat()
}

/// What RECEIVE ROD TOKEN INFORMATION says of a copy that is done: the blocks that were copied,
/// and the token if there is one.
fn copied(host: &mut Host, list: u32) -> (u64, Option<Vec<u8>>) {
    let data = host.read(&copy_in(7, list, 1024), 1024);
    assert_eq!(data.len() as u64, number(&data[..4]) + 4);
    assert_eq!(data[5] & 0x7f, 0x01, "done without errors: {data:x?}");
    let tokens = 32 + usize::from(data[13]);
    let token = match number(&data[tokens..tokens + 4]) {
        0 => None,
        _ => Some(data[tokens + 6..tokens + 518].to_vec()),
    };
    (number(&data[16..24]), token)
}

/// Offloaded data transfer, where page 8F offers it: a token for some blocks of one disk is
/// written to another disk.
#[test]
fn copies_are_offloaded_by_tokens() {
    as_each_engine(|server| {
        let mut host = attached(server, "copier", 1, 0);
        if !host.vital(0x00)[4..].contains(&0x8f) {
            return;
        }
        let page = host.read(&inquiry(Some(0x8f), 1024), 1024);
        assert!(number(&page[2..4]) >= 0x24, "PageLength must be >= 0x24");
        assert_eq!(page.len() as u64, number(&page[2..4]) + 4);
        assert_eq!(number(&page[4..6]), 0, "block device token limits come first");
        let mut other = attached(server, "copier", 1 + 1, 2);
        let piece = pattern(256 * BLOCK_BYTES, 31);
        host.write(&cdb10(0x2a, 512, 256), &piece);

        let source = ranges(&[(512, 256)]);
        let head = [&[0; 12], &16u16.to_be_bytes()[..]].concat();
        let list = list_of(&[head, source].concat());
        host.write(&copy_out(0x10, 0xaaaa, list.len()), &list);
        let (count, token) = copied(&mut host, 0xaaaa);
        let token = token.expect("a token");
        assert_eq!((count, token.len()), (256, 512));

        let target = ranges(&[(1024, 256)]);
        let head = [&[0; 14], &token[..], &[0; 6], &16u16.to_be_bytes()].concat();
        let list = list_of(&[head, target].concat());
        other.write(&copy_out(0x11, 0xbbbb, list.len()), &list);
        assert_eq!(copied(&mut other, 0xbbbb).0, 256);
        assert_eq!(other.read_whole(&cdb10(0x28, 1024, 256), 256 * 512), piece);
    });
}
