// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Copies within the target, and commands that go on after their answer, over the wire.
//!
//! Two hosts share a target on two reactors: `ALL` sees disks 0, 1 (memory) and 2 (a file), `ONE`
//! sees disk 0 alone.

use std::time::Duration;
use std::time::Instant;

use lunwire_conformance::initiator::pattern;
use lunwire_conformance::server::BLOCK;
use lunwire_conformance::server::FILE_LUN;
use lunwire_conformance::server::TARGET;
use lunwire_conformance::server::plan;
use lunwire_conformance::*;
use target::AccessRule;
use target::Plan;
use target::Shrink;
use wire::iscsi::*;
use wire::scsi::copy;
use wire::scsi::copy::Cscd;
use wire::scsi::copy::ListIdUsage;
use wire::scsi::copy::Segment;
use wire::scsi::token;
use wire::scsi::token::Populate;
use wire::scsi::token::Range;
use wire::scsi::token::WriteUsing;

const ALL: &str = "iqn.2026-01.example.conformance:all";
const ONE: &str = "iqn.2026-01.example.conformance:one";
/// Nothing here takes a fraction of it, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

struct Host {
    session: Initiator,
}

fn on_each(check: impl Fn(&Server)) {
    on_each_plan(|_| {}, check);
}

fn on_each_plan(adjust: impl Fn(&mut Plan), check: impl Fn(&Server)) {
    let uring = engine::choose(engine::Choice::Auto) == engine::Choice::Uring;
    let engines = [Some(engine::Choice::Epoll), uring.then_some(engine::Choice::Uring)];
    for engine in engines.into_iter().flatten() {
        let mut plan = plan(engine, iscsi::target_role::Settings::default());
        plan.reactors = 2;
        let node = plan.nodes.iter_mut().find(|node| node.name == TARGET).expect("the target");
        let rule = |name: &str, luns| AccessRule {
            initiator: name.into(),
            luns,
            account: None,
            target_reset: None,
        };
        node.access = vec![rule(ALL, None), rule(ONE, Some(vec![0]))];
        adjust(&mut plan);
        check(&Server::start(plan));
    }
}

impl Host {
    fn new(server: &Server, name: &str) -> Self {
        let plan = LoginPlan { initiator: Some(name.to_owned()), ..LoginPlan::new() };
        let mut session = server.login_with(&plan);
        for lun in if name == ALL { 0..3 } else { 0..1 } {
            session.settle(lun);
        }
        Self { session }
    }

    fn out(&mut self, lun: u8, cdb: &[u8], data: &[u8]) -> (u8, u8, u8) {
        let expected_length = u32::try_from(data.len()).expect("short");
        let write = expected_length > 0;
        let command = self.session.command(lun, cdb);
        let command = ScsiCommand { write, expected_length, ..command };
        self.session.send(&Request::Command(command), data);
        self.session.finish(command.itt).sense_code()
    }

    fn data(&mut self, lun: u8, cdb: &[u8], length: u32) -> Vec<u8> {
        let command = self.session.command(lun, cdb);
        let status =
            self.session.run(&ScsiCommand { read: true, expected_length: length, ..command });
        assert_eq!(status.code, 0, "{:?}", status.sense_code());
        status.data
    }

    fn write(&mut self, lun: u8, lba: u32, data: &[u8]) {
        let blocks = u16::try_from(data.len() / BLOCK as usize).expect("short");
        let cdb = initiator::cdb10(0x2a, lba, blocks);
        assert_eq!(self.out(lun, &cdb, data), (0, 0, 0));
    }

    fn read(&mut self, lun: u8, lba: u32, blocks: u16) -> Vec<u8> {
        let length = u32::from(blocks) * BLOCK;
        self.data(lun, &initiator::cdb10(0x28, lba, blocks), length)
    }

    fn ready(&mut self, lun: u8) -> (u8, u8, u8) {
        let command = self.session.test_unit_ready(lun);
        self.session.run(&command).sense_code()
    }
}

/// The NAA of a disk.
fn naa(server: &Server, lun: u16) -> Vec<u8> {
    let units = server.target().units(TARGET).expect("the target");
    let (_, unit) = units.iter().find(|(number, _)| *number == lun).expect("the disk");
    unit.identity().naa.clone()
}

fn third_party(action: u16, length: usize) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = 0x83;
    cdb[1] = u8::try_from(action).expect("five bits");
    cdb[10..14].copy_from_slice(&u32::try_from(length).expect("short").to_be_bytes());
    cdb
}

fn status(action: u16, id: u8) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = 0x84;
    cdb[1] = u8::try_from(action).expect("five bits");
    cdb[5] = id;
    cdb[12] = 4;
    cdb
}

fn segment(blocks: u16, from: u64, to: u64) -> Segment {
    Segment {
        source: 0,
        destination: 1,
        in_destination_blocks: false,
        blocks,
        source_lba: from,
        destination_lba: to,
    }
}

fn cscds(server: &Server, from: u16, to: u16) -> [Cscd; 2] {
    [from, to].map(|lun| Cscd { device_type: 0, naa: naa(server, lun), block: BLOCK })
}

/// EXTENDED COPY(LID1) sent to disk 0.
fn copy_blocks(host: &mut Host, cscds: &[Cscd], segment: Segment) -> (u8, u8, u8) {
    let list = copy::emit_lid1(1, ListIdUsage::Hold, cscds, &[segment]).expect("small");
    host.out(0, &third_party(copy::EXTENDED_COPY_LID1, list.len()), &list)
}

/// Covers-scsi: 83/00.
#[test]
fn blocks_go_from_disk_to_disk_in_every_pairing_of_stores() {
    on_each(|server| {
        let mut host = Host::new(server, ALL);
        let bytes = pattern(64 * BLOCK as usize, 3);
        for (from, to) in [(0, 1), (0, FILE_LUN), (FILE_LUN, 1), (FILE_LUN, FILE_LUN), (1, 1)] {
            host.write(from, 0, &bytes);
            host.write(from, 8000, &bytes);
            let pair = cscds(server, from.into(), to.into());
            let copied = segment(8064, 0, 8192);
            assert_eq!(copy_blocks(&mut host, &pair, copied), (0, 0, 0), "{from} to {to}");
            assert_eq!(host.read(to, 8192, 64), bytes);
            assert_eq!(host.read(to, 16192, 64), bytes);
        }
    });
}

/// A host that is told to come back later would be told so for ever.
#[test]
fn a_pool_that_is_smaller_than_a_piece_is_enough_for_a_copy() {
    on_each_plan(
        |plan| plan.pool_bytes_max = 256 << 10,
        |server| {
            let mut host = Host::new(server, ALL);
            let bytes = pattern(64 * BLOCK as usize, 3);
            host.write(FILE_LUN, 0, &bytes);
            host.write(FILE_LUN, 8000, &bytes);
            let pair = cscds(server, FILE_LUN.into(), 1);
            assert_eq!(copy_blocks(&mut host, &pair, segment(8064, 0, 8192)), (0, 0, 0));
            assert!(host.read(1, 8192, 64) == bytes, "the beginning");
            assert!(host.read(1, 16192, 64) == bytes, "the end");
        },
    );
}

/// CVE-2020-28374: a copy must not reach what the LUN map of the host does not have.
#[test]
fn a_host_cannot_copy_from_or_to_what_it_does_not_see() {
    on_each(|server| {
        let (mut all, mut one) = (Host::new(server, ALL), Host::new(server, ONE));
        all.write(1, 0, &pattern(512, 9));
        let unseen = (0xa, 0x0d, 0x02);
        assert_eq!(copy_blocks(&mut one, &cscds(server, 1, 0), segment(1, 0, 0)), unseen);
        assert_eq!(copy_blocks(&mut one, &cscds(server, 0, 1), segment(1, 0, 0)), unseen);
        assert_eq!(one.read(0, 0, 1), [0; 512]);
        assert_eq!(all.read(1, 0, 1), pattern(512, 9));
        assert_eq!(copy_blocks(&mut one, &cscds(server, 0, 0), segment(1, 0, 5)), (0, 0, 0));
    });
}

fn populate(host: &mut Host, lun: u8, ranges: &[(u64, u32)]) -> [u8; token::TOKEN_LEN] {
    let ranges = ranges.iter().map(|&(lba, blocks)| Range { lba, blocks }).collect();
    let list = Populate { immediate: true, inactivity_s: 0, rod_type: 0, ranges };
    let list = list.emit().expect("small");
    let mut cdb = third_party(copy::POPULATE_TOKEN, list.len());
    cdb[9] = 1;
    assert_eq!(host.out(lun, &cdb, &list), (0, 0, 0));
    let information = host.data(lun, &status(copy::ROD_TOKEN_INFORMATION, 1), 1024);
    token::in_information(&information).expect("a token")
}

fn write_using(
    host: &mut Host,
    lun: u8,
    token: &[u8; token::TOKEN_LEN],
    range: (u64, u32),
) -> (u8, u8, u8) {
    let ranges = vec![Range { lba: range.0, blocks: range.1 }];
    let list = WriteUsing { immediate: false, delete: false, offset: 0, token: *token, ranges };
    let list = list.emit().expect("small");
    let mut cdb = third_party(copy::WRITE_USING_TOKEN, list.len());
    cdb[9] = 2;
    host.out(lun, &cdb, &list)
}

/// Covers-scsi: 83/10, 83/11, 84/07.
#[test]
fn a_token_carries_data_for_those_who_see_its_source_until_that_changes() {
    on_each(|server| {
        let (mut all, mut one) = (Host::new(server, ALL), Host::new(server, ONE));
        let bytes = pattern(16 * 512, 1);
        all.write(FILE_LUN, 100, &bytes);
        let token = populate(&mut all, FILE_LUN, &[(100, 16)]);
        assert_eq!(write_using(&mut one, 0, &token, (0, 16)), (5, 0x23, 0x04), "not for it");
        assert_eq!(one.read(0, 0, 16), vec![0; 16 * 512]);
        assert_eq!(write_using(&mut all, 0, &token, (0, 16)), (0, 0, 0));
        assert_eq!(one.read(0, 0, 16), bytes, "the disk that both see");
        all.write(FILE_LUN, 115, &pattern(512, 2));
        assert_eq!(write_using(&mut all, 0, &token, (0, 16)), (5, 0x23, 0x06), "revoked");
        assert_eq!(write_using(&mut all, 1, &token::zero(), (0, 16)), (0, 0, 0));
    });
}

/// A token must not give what a disk has in place of blocks that were cut off.
#[test]
fn a_disk_that_shrinks_and_grows_again_revokes_tokens_of_what_was_cut_off() {
    on_each(|server| {
        let mut all = Host::new(server, ALL);
        let lun = u16::from(FILE_LUN);
        let before = server.target().disk_bytes(TARGET, lun).expect("a disk");
        let last = u32::try_from(before / u64::from(BLOCK)).expect("small") - 16;
        all.write(FILE_LUN, 0, &pattern(16 * 512, 1));
        all.write(FILE_LUN, last, &pattern(16 * 512, 2));
        let near = populate(&mut all, FILE_LUN, &[(0, 16)]);
        let far = populate(&mut all, FILE_LUN, &[(last.into(), 16)]);
        for bytes in [before / 2, before] {
            let resized = server.target().resize(TARGET, lun, bytes, Shrink::Allowed);
            assert_eq!(resized.expect("room").now, bytes);
        }
        all.session.settle(FILE_LUN);
        assert_eq!(write_using(&mut all, 0, &near, (0, 16)), (0, 0, 0));
        assert_eq!(write_using(&mut all, 0, &far, (0, 16)), (5, 0x23, 0x06));
    });
}

fn wait_for(host: &mut Host, id: u8) -> u8 {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let now = host.data(0, &status(copy::COPY_STATUS_LID4, id), 1024)[5];
        if !(0x10..0x20).contains(&now) {
            return now;
        }
        assert!(Instant::now() < deadline, "the copy has no end");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Covers-scsi: 83/01, 83/1C.
#[test]
fn a_copy_goes_on_after_its_answer_until_it_is_done_or_aborted() {
    on_each(|server| {
        let mut host = Host::new(server, ALL);
        let bytes = pattern(64 * 512, 5);
        host.write(0, 0, &bytes);
        let pair = cscds(server, 0, FILE_LUN.into());
        let segments = [segment(64, 0, 64)];
        let list = copy::emit_lid4(7, true, &pair, &segments).expect("small");
        let cdb = third_party(copy::EXTENDED_COPY_LID4, list.len());
        assert_eq!(host.out(0, &cdb, &list), (0, 0, 0));
        assert_eq!(wait_for(&mut host, 7), 1);
        assert_eq!(host.read(FILE_LUN, 64, 64), bytes);
        let mut abort = third_party(copy::COPY_OPERATION_ABORT, 0);
        abort[5] = 8;
        assert_eq!(host.out(0, &abort, &[]), (5, 0x24, 0), "nothing to abort");
        let long: Vec<_> = (0..60).map(|_| segment(16000, 0, 0)).collect();
        let list = copy::emit_lid4(8, true, &pair, &long).expect("small");
        let cdb = third_party(copy::EXTENDED_COPY_LID4, list.len());
        assert_eq!(host.out(0, &cdb, &list), (0, 0, 0));
        assert_eq!(host.out(0, &cdb, &list), (5, 0x00, 0x16), "its identifier is taken");
        assert_eq!(host.out(0, &abort, &[]), (0, 0, 0));
        assert_eq!(wait_for(&mut host, 8), 0x60, "terminated");
    });
}

#[test]
fn sanitize_answers_at_once_and_keeps_everybody_out_until_it_is_done() {
    on_each(|server| {
        let (mut all, mut one) = (Host::new(server, ALL), Host::new(server, ONE));
        for (lun, immediate) in [(0, true), (FILE_LUN, true), (FILE_LUN, false)] {
            all.write(lun, 0, &pattern(512, 1));
            let flags = if immediate { 0x81 } else { 0x01 };
            let mut list = vec![0x1f, 0, 0, 4];
            list.extend_from_slice(&[0xc3; 4]);
            let sanitize = [0x48, flags, 0, 0, 0, 0, 0, 0, 8, 0];
            assert_eq!(all.out(lun, &sanitize, &list), (0, 0, 0));
            if lun == 0 {
                assert_eq!(one.ready(0), (2, 0x04, 0x1b), "31 passes take a while");
            }
            let deadline = Instant::now() + PATIENCE;
            while all.ready(lun) == (2, 0x04, 0x1b) {
                assert!(immediate, "the command had waited");
                assert!(Instant::now() < deadline, "SANITIZE has no end");
                std::thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(all.read(lun, 0, 1), [0xc3; 512]);
        }
    });
}

/// The end of the session does not stop what must not be stopped.
/// Covers-scsi: 48/01.
#[test]
fn sanitize_outlives_its_session() {
    on_each(|server| {
        let mut first = Host::new(server, ALL);
        first.write(1, 32_767, &pattern(512, 1));
        let sanitize = [0x48, 0x81, 0, 0, 0, 0, 0, 0, 8, 0];
        assert_eq!(first.out(1, &sanitize, &[0x1f, 0, 0, 4, 7, 7, 7, 7]), (0, 0, 0));
        first.session.leave();
        let mut second = Host::new_unsettled(server);
        let deadline = Instant::now() + PATIENCE;
        while second.ready(1) != (0, 0, 0) {
            assert!(Instant::now() < deadline, "SANITIZE has no end");
        }
        assert_eq!(second.read(1, 32_767, 1), [7; 512]);
    });
}

impl Host {
    fn new_unsettled(server: &Server) -> Self {
        let plan = LoginPlan { initiator: Some(ALL.to_owned()), ..LoginPlan::new() };
        Self { session: server.login_with(&plan) }
    }
}

/// Covers-scsi: 04.
#[test]
fn format_unit_clears_the_disk() {
    on_each(|server| {
        let mut host = Host::new(server, ALL);
        for lun in [0, FILE_LUN] {
            host.write(lun, 50, &pattern(512, 1));
            assert_eq!(host.out(lun, &[4, 0, 0, 0, 0, 0], &[]), (0, 0, 0));
            assert_eq!(host.read(lun, 50, 1), [0; 512]);
        }
    });
}
