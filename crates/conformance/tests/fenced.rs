// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Work of commands that have ended, on a store that does not answer: whoever wants them to be over
//! is answered all the same, in a bounded time, and nothing that comes later is seen beside the
//! work or comes before it.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use iscsi::target_role::TargetReset;
use lunwire_conformance::elsewhere::Elsewhere;
use lunwire_conformance::elsewhere::LUN;
use lunwire_conformance::elsewhere::Work;
use lunwire_conformance::elsewhere::with_deaf_remote;
use lunwire_conformance::elsewhere::with_deaf_remote_of;
use lunwire_conformance::elsewhere::with_deaf_remotes;
use lunwire_conformance::initiator::BLOCK_BYTES;
use lunwire_conformance::initiator::GOOD;
use lunwire_conformance::initiator::Status;
use lunwire_conformance::initiator::cdb10;
use lunwire_conformance::initiator::pattern;
use lunwire_conformance::server::BLOCK;
use lunwire_conformance::server::TARGET;
use lunwire_conformance::tasks::ABORT_TASK;
use lunwire_conformance::tasks::ABORT_TASK_SET;
use lunwire_conformance::tasks::CLEAR_TASK_SET;
use lunwire_conformance::tasks::I_T_NEXUS_RESET;
use lunwire_conformance::tasks::LOGICAL_UNIT_RESET;
use lunwire_conformance::tasks::PATIENCE;
use lunwire_conformance::tasks::TARGET_COLD_RESET;
use lunwire_conformance::tasks::TARGET_WARM_RESET;
use lunwire_conformance::tasks::manage;
use lunwire_conformance::tasks::managed;
use lunwire_conformance::*;
use scsi::Identity;
use scsi::LogicalUnit;
use scsi::limits::LEFT_READS_MAX;
use store::spec::Spec;
use target::NewLun;
use target::VolumeError;
use wire::iscsi::*;
use wire::scsi::sam::BUSY;
use wire::scsi::sam::TASK_ABORTED;

/// Nobody waits longer for what has ended.
const END_WAIT: Duration = Duration::from_millis(200);

/// PERSISTENT RESERVE OUT.
const REGISTER: u8 = 0;
const PREEMPT_AND_ABORT: u8 = 5;

const TASK_REASSIGN: u8 = 8;

/// A block of the unit, and one that is not near.
const PLACE: u32 = 5;
const ELSEWHERE: u32 = 900;

fn session(server: &Server) -> Initiator {
    session_of(server, &LoginPlan::new())
}

fn session_of(server: &Server, plan: &LoginPlan) -> Initiator {
    let mut session = server.login_with(plan);
    session.settle(0);
    session.settle(LUN);
    session
}

fn block(seed: u8) -> Vec<u8> {
    pattern(BLOCK_BYTES, seed)
}

fn write(session: &mut Initiator, lun: u8, place: u32, data: &[u8]) -> Status {
    let command = session.write_blocks(lun, place, 1);
    session.send(&Request::Command(command), data);
    session.finish(command.itt)
}

fn read(session: &mut Initiator, lun: u8, place: u32) -> Status {
    let command = session.read_blocks(lun, place, 1);
    session.run(&command)
}

fn flush(session: &mut Initiator) -> Status {
    let command = session.command(LUN, &cdb10(0x35, 0, 0));
    session.run(&command)
}

/// A write of `PLACE`, as the store has it.
fn begin_write(session: &mut Initiator, elsewhere: &Arc<Elsewhere>, data: &[u8]) -> (Itt, Work) {
    let command = session.write_blocks(LUN, PLACE, 1);
    session.send(&Request::Command(command), data);
    let work = elsewhere.take(1).pop().expect("one");
    (command.itt, work)
}

/// Whatever would meet the old work is told BUSY, wherever it is on the disk, and does not reach
/// the store. All else is answered, other units are served.
fn expect_fence(session: &mut Initiator, elsewhere: &Arc<Elsewhere>) {
    for place in [PLACE, ELSEWHERE] {
        assert_eq!(write(session, LUN, place, &block(9)).code, BUSY);
        assert_eq!(read(session, LUN, place).code, BUSY);
    }
    assert_eq!(flush(session).code, BUSY);
    assert!(elsewhere.state().waiting.is_empty(), "nothing goes to the store");
    let ready = session.test_unit_ready(LUN);
    assert_eq!(session.run(&ready).code, GOOD);
    assert_eq!(write(session, 0, PLACE, &block(8)).code, GOOD);
    assert!(read(session, 0, PLACE).data == block(8));
}

/// The old work is done, late: what comes then sees it, and what is written then stays.
fn end_fence(session: &mut Initiator, elsewhere: &Arc<Elsewhere>, work: Work, data: &[u8]) {
    elsewhere.carry_out(work);
    elsewhere.state().is_eager = true;
    let since = Instant::now();
    let seen = loop {
        let seen = read(session, LUN, PLACE);
        if seen.code != BUSY {
            break seen;
        }
        assert!(since.elapsed() < PATIENCE, "the fence is there still");
    };
    assert!((seen.code, &seen.data[..]) == (GOOD, data), "it was done before");
    assert_eq!(write(session, LUN, PLACE, &block(77)).code, GOOD);
    assert_eq!(flush(session).code, GOOD);
    assert!(read(session, LUN, PLACE).data == block(77));
    elsewhere.state().is_eager = false;
}

/// Covers: TMF-09, TMF-20.
#[test]
fn task_management_is_answered_while_the_store_is_silent() {
    const LEVEL: (&str, &str) = ("iSCSIProtocolLevel", "2");
    with_deaf_remote(END_WAIT, |server, elsewhere| {
        for function in [
            ABORT_TASK,
            ABORT_TASK_SET,
            CLEAR_TASK_SET,
            LOGICAL_UNIT_RESET,
            TARGET_WARM_RESET,
            I_T_NEXUS_RESET,
        ] {
            let mut one = session_of(server, &LoginPlan::new().with(&[LEVEL]));
            let mut other = session(server);
            let data = block(function);
            let (itt, work) = begin_write(&mut one, elsewhere, &data);
            let task = if function == ABORT_TASK { itt } else { Itt::NONE };
            let lun = if matches!(function, TARGET_WARM_RESET | I_T_NEXUS_RESET) { 0 } else { LUN };
            let since = Instant::now();
            manage(&mut one, function, lun, task);
            assert_eq!(managed(&mut one), 0, "function {function}");
            assert!(since.elapsed() >= END_WAIT, "as long as hosts wait, it is waited for");
            for session in [&mut one, &mut other] {
                session.settle(0);
                session.settle(LUN);
                expect_fence(session, elsewhere);
            }
            // Who has waited once does not wait again.
            manage(&mut other, LOGICAL_UNIT_RESET, LUN, Itt::NONE);
            assert_eq!(managed(&mut other), 0);
            other.settle(LUN);
            expect_fence(&mut other, elsewhere);
            end_fence(&mut other, elsewhere, work, &data);
            one.settle(LUN);
            one.leave();
            other.leave();
        }
    });
}

/// Covers: SES-10, CLR-02.
#[test]
fn a_session_is_reinstated_while_the_store_is_silent() {
    with_deaf_remote(END_WAIT, |server, elsewhere| {
        let plan = LoginPlan::new();
        let mut old = session_of(server, &plan);
        let (_, work) = begin_write(&mut old, elsewhere, &block(1));
        for _ in 0..2 {
            let mut new = session_of(server, &plan);
            old.expect_closed();
            assert_ne!(old.tsih, new.tsih);
            expect_fence(&mut new, elsewhere);
            old = new;
        }
        end_fence(&mut old, elsewhere, work, &block(1));
        old.leave();
    });
}

/// Covers: LGO-02, SES-18.
#[test]
fn logouts_and_new_connections_do_not_wait_for_ever() {
    with_deaf_remote(END_WAIT, |server, elsewhere| {
        for replaced in [false, true] {
            let plan = LoginPlan::new().with(&[("MaxConnections", "2")]);
            let mut first = session_of(server, &plan);
            let join = |first: &Initiator| {
                let plan = LoginPlan { cid: Cid(2), ..plan.clone() };
                Initiator::rejoin(first, server.connect(), &plan)
            };
            let mut second = join(&first);
            let (_, work) = begin_write(&mut second, elsewhere, &block(2));
            first.cmd_sn = second.cmd_sn;
            if replaced {
                let heir = join(&first);
                second.expect_closed();
                first.cmd_sn = heir.cmd_sn;
                second = heir;
            } else {
                let request = LogoutRequest { cid: Cid(2), ..first.logout(1) };
                first.send(&Request::Logout(request), &[]);
                let Response::Logout(answer) = first.read().response() else { panic!("a logout") };
                assert_eq!(answer.response, 0);
            }
            // It is told that commands were cleared.
            first.settle(LUN);
            expect_fence(&mut first, elsewhere);
            first.leave();
            drop(second);
            let mut next = session(server);
            expect_fence(&mut next, elsewhere);
            end_fence(&mut next, elsewhere, work, &block(2));
            next.leave();
        }
    });
}

/// PERSISTENT RESERVE OUT.
fn reserve_out(session: &mut Initiator, action: u8, keys: [u64; 2]) -> Itt {
    let command = session.command(LUN, &[0x5f, action, 1, 0, 0, 0, 0, 0, 24, 0]);
    let command = ScsiCommand { write: true, expected_length: 24, ..command };
    let list = [keys[0].to_be_bytes(), keys[1].to_be_bytes(), [0; 8]].concat();
    session.send(&Request::Command(command), &list);
    command.itt
}

#[test]
fn who_aborts_by_preempting_does_not_wait_for_ever() {
    with_deaf_remote(END_WAIT, |server, elsewhere| {
        let (mut one, mut other) = (session(server), session(server));
        for (session, key) in [(&mut one, 1), (&mut other, 2)] {
            let itt = reserve_out(session, REGISTER, [0, key]);
            assert_eq!(session.finish(itt).code, GOOD);
        }
        let (aborted, work) = begin_write(&mut other, elsewhere, &block(6));
        let since = Instant::now();
        let itt = reserve_out(&mut one, PREEMPT_AND_ABORT, [1, 2]);
        assert_eq!(one.finish(itt).code, GOOD);
        assert_eq!(other.finish(aborted).code, TASK_ABORTED);
        assert!(since.elapsed() >= END_WAIT);
        other.settle(LUN);
        expect_fence(&mut one, elsewhere);
        expect_fence(&mut other, elsewhere);
        end_fence(&mut one, elsewhere, work, &block(6));
        one.leave();
        other.leave();
    });
}

/// A command that goes on over another connection is none that has ended; of one that somebody else
/// has ended meanwhile that is told there.
///
/// Covers: REA-03.
#[test]
fn what_is_reassigned_goes_on_and_what_is_fenced_does_not() {
    with_deaf_remote(END_WAIT, |server, elsewhere| {
        let keys = [("ErrorRecoveryLevel", "2"), ("DefaultTime2Retain", "20")];
        let plan = LoginPlan::new().with(&keys);
        for is_fenced in [false, true] {
            let (mut one, mut other) = (session_of(server, &plan), session(server));
            let (itt, work) = begin_write(&mut one, elsewhere, &block(7));
            one.raw.finish();
            if is_fenced {
                manage(&mut other, LOGICAL_UNIT_RESET, LUN, Itt::NONE);
                assert_eq!(managed(&mut other), 0);
                other.settle(LUN);
                expect_fence(&mut other, elsewhere);
            }
            let again = LoginPlan { exp_stat_sn: one.exp_stat_sn, ..plan.clone() };
            one = Initiator::rejoin(&one, server.connect(), &again);
            manage(&mut one, TASK_REASSIGN, LUN, itt);
            assert_eq!(managed(&mut one), 0);
            if is_fenced {
                assert_eq!(one.finish(itt).code, TASK_ABORTED);
                one.settle(LUN);
                expect_fence(&mut one, elsewhere);
                end_fence(&mut one, elsewhere, work, &block(7));
            } else {
                std::thread::sleep(2 * END_WAIT);
                elsewhere.carry_out(work);
                assert_eq!(one.finish(itt).code, GOOD, "it was not ended, however late");
                elsewhere.state().is_eager = true;
                assert!(read(&mut other, LUN, PLACE).data == block(7));
                elsewhere.state().is_eager = false;
            }
            one.leave();
            other.leave();
        }
    });
}

/// Hosts go from disk to disk, and each would cost them as long.
#[test]
fn many_disks_that_hang_are_waited_for_once() {
    const LONG: Duration = Duration::from_secs(1);
    with_deaf_remotes(LONG, 3, |server, elsewheres| {
        let mut session = server.login_with(&LoginPlan::new());
        let luns = || LUN..LUN + 3;
        let mut works = Vec::new();
        luns().for_each(|lun| session.settle(lun));
        for (lun, elsewhere) in luns().zip(elsewheres) {
            let command = session.write_blocks(lun, PLACE, 1);
            session.send(&Request::Command(command), &block(lun));
            works.extend(elsewhere.take(1));
        }
        let since = Instant::now();
        for lun in luns() {
            manage(&mut session, LOGICAL_UNIT_RESET, lun, Itt::NONE);
            assert_eq!(managed(&mut session), 0);
        }
        let waited = since.elapsed();
        assert!(waited >= LONG && waited < 2 * LONG, "{waited:?}");
        for lun in luns() {
            session.settle(lun);
            assert_eq!(read(&mut session, lun, PLACE).code, BUSY);
        }
        for (work, elsewhere) in works.into_iter().zip(elsewheres) {
            elsewhere.carry_out(work);
        }
        // What begins now is waited for as ever: nothing hangs.
        elsewheres[0].state().is_eager = true;
        let since = Instant::now();
        while read(&mut session, LUN, PLACE).code == BUSY {
            assert!(since.elapsed() < PATIENCE, "the fence is there still");
        }
        elsewheres[0].state().is_eager = false;
        let (_, work) = begin_write(&mut session, &elsewheres[0], &block(1));
        let since = Instant::now();
        manage(&mut session, LOGICAL_UNIT_RESET, LUN, Itt::NONE);
        assert_eq!(managed(&mut session), 0);
        assert!(since.elapsed() >= LONG);
        elsewheres[0].carry_out(work);
        session.leave();
    });
}

/// Each of them may have to wait for what does not answer, and who stops a daemon does not wait for
/// ever.
#[test]
fn a_stop_lets_go_of_all_disks_at_once() {
    const LONG: Duration = Duration::from_secs(1);
    with_deaf_remotes(END_WAIT, 4, |server, elsewheres| {
        elsewheres.iter().for_each(|elsewhere| elsewhere.state().lingers = LONG);
        let since = Instant::now();
        server.target().stop(Duration::ZERO).expect("nothing is lost");
        let waited = since.elapsed();
        assert!(waited >= LONG && waited < 3 * LONG, "{waited:?}");
        elsewheres.iter().for_each(|elsewhere| elsewhere.state().lingers = Duration::ZERO);
    });
}

/// A disk that is taken away while work for it hangs is not let go; its number is free, and what
/// comes there is another disk, which is served. Seen once, since it takes as long as who removes a
/// disk waits.
#[test]
fn another_disk_takes_the_number_of_one_that_hangs() {
    let is_seen = Cell::new(false);
    with_deaf_remote(END_WAIT, |server, elsewhere| {
        if is_seen.replace(true) {
            return;
        }
        let mut session = session(server);
        let (itt, work) = begin_write(&mut session, elsewhere, &block(5));
        manage(&mut session, ABORT_TASK, LUN, itt);
        assert_eq!(managed(&mut session), 0);
        expect_fence(&mut session, elsewhere);
        let removed = server.target().remove_lun(TARGET, LUN.into());
        assert!(matches!(removed, Err(VolumeError::Lingers { .. })), "{removed:?}");
        let wanted = NewLun { number: Some(LUN.into()), initiators: Vec::new() };
        let spec: Spec = "memory:1M".parse().expect("a store");
        let make = |stores: &mut target::Stores, number| {
            let store = stores.open(&spec).expect("it opens");
            let identity = Identity::derive("another", number, "LUNWIRE", "VIRTUAL DISK");
            Ok::<_, VolumeError>(LogicalUnit::new(identity, store, BLOCK).expect("a legal unit"))
        };
        let added = server.target().add_lun(TARGET, wanted, make);
        assert_eq!(added.expect("the number is free"), u16::from(LUN));
        session.settle(LUN);
        session.settle(0);
        assert_eq!(write(&mut session, LUN, PLACE, &block(6)).code, GOOD);
        elsewhere.carry_out(work);
        assert!(read(&mut session, LUN, PLACE).data == block(6), "it is another disk");
        session.leave();
    });
}

/// Covers: TMF-23.
#[test]
fn a_cold_reset_does_not_wait_for_ever() {
    let allow = |plan: &mut target::Plan| {
        for node in &mut plan.nodes {
            node.settings.target_reset = TargetReset::Cold;
        }
    };
    with_deaf_remote_of(END_WAIT, allow, |server, elsewhere| {
        let (mut one, mut other) = (session(server), session(server));
        let (_, work) = begin_write(&mut other, elsewhere, &block(3));
        manage(&mut one, TARGET_COLD_RESET, 0, Itt::NONE);
        assert_eq!(managed(&mut one), 0);
        one.expect_dropped();
        other.expect_dropped();
        let mut next = session(server);
        expect_fence(&mut next, elsewhere);
        end_fence(&mut next, elsewhere, work, &block(3));
        next.leave();
    });
}

/// What waits for the work already, when the fence is put up, is told BUSY, too.
#[test]
fn who_waits_is_told() {
    with_deaf_remote(END_WAIT, |server, elsewhere| {
        let (mut one, mut other) = (session(server), session(server));
        let (itt, work) = begin_write(&mut one, elsewhere, &block(4));
        manage(&mut one, ABORT_TASK, LUN, itt);
        drop(elsewhere.expect(|state| state.cancelled == 1));
        assert_eq!(read(&mut other, LUN, PLACE).code, BUSY);
        assert_eq!(managed(&mut one), 0);
        end_fence(&mut other, elsewhere, work, &block(4));
        elsewhere.state().cancelled = 0;
    });
}

/// What only reads keeps nobody out, unless there is much of it.
#[test]
fn reads_that_are_left_do_not_fence_a_unit() {
    with_deaf_remote(END_WAIT, |server, elsewhere| {
        let mut session = session(server);
        let mut works = Vec::new();
        let leave_reads = |session: &mut Initiator, works: &mut Vec<Work>, count: usize| {
            for _ in 0..count {
                let command = session.read_blocks(LUN, PLACE, 1);
                session.start(&command);
                works.extend(elsewhere.take(1));
            }
            manage(session, ABORT_TASK_SET, LUN, Itt::NONE);
            assert_eq!(managed(session), 0);
        };
        leave_reads(&mut session, &mut works, LEFT_READS_MAX as usize);
        elsewhere.state().is_eager = true;
        assert_eq!(write(&mut session, LUN, PLACE, &block(1)).code, GOOD);
        elsewhere.state().is_eager = false;
        leave_reads(&mut session, &mut works, 1);
        expect_fence(&mut session, elsewhere);
        let last = works.pop().expect("the one that is too many");
        end_fence(&mut session, elsewhere, last, &block(1));
        // Their ends are for nobody.
        works.into_iter().for_each(|work| elsewhere.carry_out(work));
        session.expect_quiet();
        session.leave();
    });
}
