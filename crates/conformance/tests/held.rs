// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is answered only when work under way is over, on a store that holds its answers until the
//! test lets them go (RFC 7143 §11.5, §11.14).

use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use iscsi::target_role::TargetReset;
use lunwire_conformance::elsewhere::Elsewhere;
use lunwire_conformance::elsewhere::LUN;
use lunwire_conformance::elsewhere::Work;
use lunwire_conformance::elsewhere::with_deaf_remote_of;
use lunwire_conformance::elsewhere::with_remote;
use lunwire_conformance::initiator::GOOD;
use lunwire_conformance::tasks::ABORT_TASK;
use lunwire_conformance::tasks::ABORT_TASK_SET;
use lunwire_conformance::tasks::CLEAR_TASK_SET;
use lunwire_conformance::tasks::I_T_NEXUS_RESET;
use lunwire_conformance::tasks::LOGICAL_UNIT_RESET;
use lunwire_conformance::tasks::TARGET_COLD_RESET;
use lunwire_conformance::tasks::TARGET_WARM_RESET;
use lunwire_conformance::tasks::TASK_ABORTED;
use lunwire_conformance::tasks::attention;
use lunwire_conformance::tasks::manage;
use lunwire_conformance::tasks::managed;
use lunwire_conformance::tasks::part_task_sets;
use lunwire_conformance::*;
use wire::iscsi::*;

/// Long for what takes some milliseconds.
const SOON: Duration = Duration::from_secs(3);

const RESET: (u8, u8, u8) = (0x06, 0x29, 0x03);

fn session(server: &Server) -> Initiator {
    let mut session = server.login();
    session.settle(0);
    session.settle(LUN);
    session
}

/// A read and a write of `session`, as the store has them.
struct Begun {
    read: Itt,
    write: Itt,
    works: Vec<Work>,
}

impl Begun {
    fn new(session: &mut Initiator, elsewhere: &Arc<Elsewhere>) -> Self {
        let read = session.read_blocks(LUN, 0, 1);
        session.start(&read);
        let mut works = elsewhere.take(1);
        let write = session.write_blocks(LUN, 8, 1);
        session.send(&Request::Command(write), &[1; 512]);
        works.extend(elsewhere.take(1));
        Self { read: read.itt, write: write.itt, works }
    }

    /// Both end as if nothing had happened.
    fn finish(self, session: &mut Initiator, elsewhere: &Arc<Elsewhere>) {
        let mut finish = |work, itt| {
            elsewhere.carry_out(work);
            assert_eq!(session.finish(itt).code, GOOD);
        };
        for (work, itt) in self.works.into_iter().zip([self.read, self.write]) {
            finish(work, itt);
        }
    }
}

/// Nothing has come, though all that the target had to do was done: `other` has had an answer.
fn expect_nothing(session: &mut Initiator, other: &mut Initiator) {
    other.expect_quiet();
    let heard = session.hear(Duration::from_millis(20));
    assert!(matches!(heard, Heard::Nothing), "too early: {heard:?}");
}

/// So many operations are not wanted any more.
fn expect_cancelled(elsewhere: &Elsewhere, count: usize) {
    let since = Instant::now();
    while elsewhere.state().cancelled < count {
        assert!(since.elapsed() < SOON, "work goes on for what should have ended");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Another session has ended both commands, and TAS is 1, as it is by default.
fn expect_both_aborted(session: &mut Initiator) {
    for _ in 0..2 {
        let Response::Scsi(answer) = session.read().response() else { panic!("a status") };
        assert_eq!(answer.status, TASK_ABORTED);
    }
}

/// Covers: LGO-02.
#[test]
fn a_logout_is_answered_when_the_last_work_of_its_tasks_is_over() {
    with_remote(|server, elsewhere| {
        let mut watching = session(server);
        for (reason, closed) in [(0, 1), (1, 1), (1, 2)] {
            elsewhere.state().cancelled = 0;
            let mut plan = LoginPlan::new().with(&[("MaxConnections", "2")]);
            let mut first = server.login_with(&plan);
            first.settle(LUN);
            (plan.tsih, plan.keys, plan.cid) = (first.tsih, Vec::new(), Cid(2));
            plan.cmd_sn = first.cmd_sn;
            let mut second = server.login_with(&plan);
            let of_first = Begun::new(&mut first, elsewhere);
            second.cmd_sn = first.cmd_sn;
            let of_second = Begun::new(&mut second, elsewhere);
            first.cmd_sn = second.cmd_sn;
            let request = LogoutRequest { cid: Cid(closed), ..first.logout(reason) };
            first.send(&Request::Logout(request), &[]);
            let (mut ending, mut kept) = match closed {
                1 => (of_first, of_second),
                _ => (of_second, of_first),
            };
            if reason == 0 {
                ending.works.append(&mut kept.works);
            }
            let count = ending.works.len();
            expect_nothing(&mut first, &mut watching);
            expect_cancelled(elsewhere, count);
            for work in ending.works {
                expect_nothing(&mut first, &mut watching);
                elsewhere.carry_out(work);
            }
            match first.read().response() {
                Response::Logout(answer) => assert_eq!(answer.response, 0),
                other => panic!("a Logout Response was due: {other:?}"),
            }
            // What the other connection has under way goes on, where that is there.
            match (reason, closed) {
                (0, _) => second.expect_closed(),
                (_, 1) => kept.finish(&mut second, elsewhere),
                _ => kept.finish(&mut first, elsewhere),
            }
            if reason == 0 || closed == 1 { &mut first } else { &mut second }.expect_closed();
        }
    });
}

/// The old session is closed in silence, and the new one is there when the last work of its tasks
/// is over.
///
/// Covers: SES-10.
#[test]
fn a_session_is_reinstated_when_the_last_work_of_its_tasks_is_over() {
    with_remote(|server, elsewhere| {
        let mut watching = session(server);
        elsewhere.state().cancelled = 0;
        let plan = LoginPlan::new();
        let mut old = server.login_with(&plan);
        old.settle(LUN);
        let begun = Begun::new(&mut old, elsewhere);
        let mut new = server.connect();
        new.send(&Request::Login(plan.request()), &plan.text());
        old.expect_closed();
        expect_cancelled(elsewhere, 2);
        for work in begun.works {
            watching.expect_quiet();
            let heard = new.hear(Duration::from_millis(20));
            assert!(matches!(heard, Heard::Nothing), "too early: {heard:?}");
            elsewhere.carry_out(work);
        }
        let Response::Login(answer) = new.read().response() else { panic!("a login response") };
        assert_eq!((answer.status, answer.transit), (0, true));
        assert_ne!(answer.tsih, old.tsih);
    });
}

/// Who lost commands to a reset hears of it, also where who asked has gone before it was done; and
/// nobody hears of it before.
///
/// Covers: TMF-21.
#[test]
fn a_reset_is_finished_for_who_has_gone() {
    with_remote(|server, elsewhere| {
        elsewhere.state().cancelled = 0;
        let (mut writing, mut idle) = (session(server), session(server));
        // Nothing is retained for it.
        let times = [("DefaultTime2Wait", "0"), ("DefaultTime2Retain", "0")];
        let mut resetting = server.login_with(&LoginPlan::new().with(&times));
        resetting.settle(LUN);
        let begun = Begun::new(&mut writing, elsewhere);
        manage(&mut resetting, LOGICAL_UNIT_RESET, LUN, Itt::NONE);
        expect_nothing(&mut resetting, &mut idle);
        expect_cancelled(elsewhere, 2);
        let gone = resetting.tsih.0;
        drop(resetting);
        let is_there = || server.target().sessions().iter().any(|one| one.tsih == gone);
        let since = Instant::now();
        while is_there() {
            assert!(since.elapsed() < SOON, "its session is there still");
        }
        drop(begun.works);
        expect_both_aborted(&mut writing);
        let since = Instant::now();
        for session in [&mut writing, &mut idle] {
            loop {
                match attention(session, LUN) {
                    RESET => break,
                    other => assert_eq!(other, (0, 0, 0)),
                }
                assert!(since.elapsed() < SOON, "a unit attention was due");
            }
            assert_eq!(attention(session, LUN), (0, 0, 0), "once");
        }
    });
}

/// Each function ends what it is for and nothing else, and is answered when the last work of that
/// is over: of an own task nothing is heard any more, of another session's its status, as TAS says
/// by default.
///
/// Covers: TMF-04, TMF-09, TMF-20, TMF-21, TMF-25, P44-05.
#[test]
fn a_function_is_answered_when_the_last_work_of_what_it_ends_is_over() {
    const LEVEL: (&str, &str) = ("iSCSIProtocolLevel", "2");
    with_remote(|server, elsewhere| {
        let mut watching = session(server);
        for (function, parted, of_own, of_other) in [
            (ABORT_TASK, false, 1, 0),
            (ABORT_TASK_SET, false, 2, 0),
            (CLEAR_TASK_SET, false, 2, 2),
            (CLEAR_TASK_SET, true, 2, 0),
            (LOGICAL_UNIT_RESET, false, 2, 2),
            (LOGICAL_UNIT_RESET, true, 2, 2),
            (TARGET_WARM_RESET, false, 2, 2),
            (I_T_NEXUS_RESET, false, 2, 0),
        ] {
            let mut one = server.login_with(&LoginPlan::new().with(&[LEVEL]));
            one.settle(LUN);
            part_task_sets(&mut one, LUN, parted);
            let mut two = session(server);
            watching.settle(LUN);
            elsewhere.state().cancelled = 0;
            let mut own = Begun::new(&mut one, elsewhere);
            let other = Begun::new(&mut two, elsewhere);
            let task = if function == ABORT_TASK { own.read } else { Itt::NONE };
            // A function for all units names none.
            let lun = if matches!(function, TARGET_WARM_RESET | I_T_NEXUS_RESET) { 0 } else { LUN };
            manage(&mut one, function, lun, task);
            expect_nothing(&mut one, &mut watching);
            let ended = of_own + of_other;
            expect_cancelled(elsewhere, ended);
            watching.expect_quiet();
            assert_eq!(elsewhere.state().cancelled, ended, "function {function}");
            let kept = own.works.split_off(of_own);
            let (works, spared) = match of_other {
                0 => (own.works, Some(other)),
                _ => ([own.works, other.works].into_iter().flatten().collect(), None),
            };
            for work in works {
                expect_nothing(&mut one, &mut watching);
                elsewhere.carry_out(work);
            }
            assert_eq!(managed(&mut one), 0, "function {function}");
            one.expect_quiet();
            for work in kept {
                elsewhere.carry_out(work);
                assert_eq!(one.finish(own.write).code, GOOD);
            }
            match spared {
                Some(begun) => begun.finish(&mut two, elsewhere),
                None => expect_both_aborted(&mut two),
            }
            two.expect_quiet();
            one.leave();
            two.leave();
        }
    });
}

/// As after a loss of power nobody hears of a command that has ended, whatever TAS says.
///
/// Covers: CLR-05.
#[test]
fn a_cold_reset_leaves_the_commands_of_others_without_a_status() {
    let allow = |plan: &mut target::Plan| {
        for node in &mut plan.nodes {
            node.settings.target_reset = TargetReset::Cold;
        }
    };
    // It waits for its own work longer than the test.
    with_deaf_remote_of(Duration::from_secs(60), allow, |server, elsewhere| {
        elsewhere.state().cancelled = 0;
        let (mut one, mut two) = (session(server), session(server));
        let own = Begun::new(&mut one, elsewhere);
        let other = Begun::new(&mut two, elsewhere);
        manage(&mut one, TARGET_COLD_RESET, 0, Itt::NONE);
        expect_cancelled(elsewhere, 4);
        for work in other.works {
            elsewhere.carry_out(work);
        }
        expect_nothing(&mut two, &mut one);
        for work in own.works {
            elsewhere.carry_out(work);
        }
        assert_eq!(managed(&mut one), 0);
        for mut session in [one, two] {
            assert_eq!(session.expect_dropped().event, 3);
        }
    });
}
