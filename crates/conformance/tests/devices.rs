// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Units whose commands a device carries out, over the wire: what the device says is what hosts
//! hear, and task management waits for it.

use std::sync::Arc;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::Weak;
use std::time::Duration;
use std::time::Instant;

use lunwire_conformance::elsewhere::LUN;
use lunwire_conformance::initiator::CHECK_CONDITION;
use lunwire_conformance::initiator::GOOD;
use lunwire_conformance::server::TARGET;
use lunwire_conformance::server::on_each_plan;
use lunwire_conformance::tasks::ABORT_TASK;
use lunwire_conformance::tasks::LOGICAL_UNIT_RESET;
use lunwire_conformance::tasks::PATIENCE;
use lunwire_conformance::tasks::TASK_ABORTED;
use lunwire_conformance::tasks::manage;
use lunwire_conformance::*;
use scsi::Identity;
use scsi::LogicalUnit;
use store::Outcome;
use store::device::Command;
use store::device::Device;
use store::device::Facts;
use store::device::Failure;
use store::device::Passage;
use store::device::Transfer;
use store::foreign::Completer;
use store::foreign::Errand;
use store::foreign::Foreign;
use target::Plan;
use wire::iscsi::*;
use wire::scsi::sam::BUSY;

/// A tape drive that does what a test says.
#[derive(Debug)]
struct Drive {
    facts: Facts,
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    changed: Condvar,
    unit: Mutex<Weak<LogicalUnit>>,
}

#[derive(Debug, Default)]
struct State {
    commands: Vec<(Command, Completer)>,
    resets: Vec<Completer>,
    cancelled: usize,
}

#[derive(Debug)]
enum Work {
    Command(Arc<Inner>, Command),
    Reset(Arc<Inner>),
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("whole")
    }

    fn expect(&self, what: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let wait = self.changed.wait_timeout_while(self.state(), PATIENCE, |state| !what(state));
        let (state, late) = wait.expect("whole");
        assert!(!late.timed_out(), "{state:?}");
        state
    }

    fn take(&self) -> (Command, Completer) {
        self.expect(|state| !state.commands.is_empty()).commands.remove(0)
    }
}

impl Foreign for Work {
    fn begin(&self, completer: Completer) {
        let inner = match self {
            Self::Command(inner, command) => {
                inner.state().commands.push((command.clone(), completer));
                inner
            }
            Self::Reset(inner) => {
                inner.state().resets.push(completer);
                inner
            }
        };
        inner.changed.notify_all();
    }

    fn cancel(&self) {
        let (Self::Command(inner, _) | Self::Reset(inner)) = self;
        inner.state().cancelled += 1;
        inner.changed.notify_all();
    }
}

impl Device for Drive {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn carry_out(&self, command: Command) -> Errand {
        let room = if let Transfer::In(room) = command.transfer { room } else { 0 };
        Errand::reading(Arc::new(Work::Command(Arc::clone(&self.inner), command)), room)
    }

    fn reset(&self) -> Errand {
        Errand::new(Arc::new(Work::Reset(Arc::clone(&self.inner))))
    }

    fn send(&self, _: Command) {}

    fn close(&self) -> Result<(), store::Error> {
        Ok(())
    }
}

/// Runs `check` on each engine with a tape drive at [`LUN`].
fn with_drive(check: impl Fn(&Server, &Arc<Inner>)) {
    with_drive_for(None, check);
}

/// The same where nobody waits longer than `end_wait` for the ends of what was ended.
fn with_drive_for(end_wait: Option<Duration>, check: impl Fn(&Server, &Arc<Inner>)) {
    let places: Mutex<Arc<Inner>> = Mutex::default();
    let widen = |plan: &mut Plan| {
        let inner = Arc::new(Inner::default());
        let facts = Facts { kind: 1, removable: true, transfer_max: 1 << 20, capacity: None };
        let drive = Arc::new(Drive { facts, inner: Arc::clone(&inner) });
        let identity = Identity::derive(TARGET, LUN.into(), "LUNWIRE", "TAPE");
        let unit = LogicalUnit::passing(identity, Arc::new(Passage::new(drive)));
        plan.end_wait = end_wait.unwrap_or(plan.end_wait);
        let node = plan.nodes.iter_mut().find(|node| node.name == TARGET).expect("the target");
        let unit = Arc::new(unit.expect("a device"));
        *inner.unit.lock().expect("whole") = Arc::downgrade(&unit);
        node.luns.push((LUN.into(), unit));
        *places.lock().expect("whole") = inner;
    };
    on_each_plan(
        |_| {},
        widen,
        |server| {
            let inner = Arc::clone(&places.lock().expect("whole"));
            check(server, &inner);
            let mut state = inner.state();
            state.commands.clear();
            state.resets.clear();
        },
    );
}

/// A session that has heard what the unit tells a new one, which the drive never hears of.
fn session(server: &Server) -> Initiator {
    let mut session = server.login();
    session.settle(0);
    let first = session.test_unit_ready(LUN);
    assert_eq!(session.run(&first).sense_code(), (6, 0x29, 0));
    session
}

fn read_6(session: &mut Initiator, bytes: u32) -> Itt {
    let [_, high, middle, low] = bytes.to_be_bytes();
    let mut command = session.command(LUN, &[0x08, 0, high, middle, low, 0]);
    command.read = true;
    command.expected_length = bytes;
    session.start(&command);
    command.itt
}

fn ready(session: &mut Initiator) -> Itt {
    let command = session.test_unit_ready(LUN);
    session.start(&command);
    command.itt
}

fn fixed(key: u8, asc: u8, ascq: u8) -> Vec<u8> {
    let mut sense = vec![0; 18];
    (sense[0], sense[2], sense[7], sense[12], sense[13]) = (0x70, key, 10, asc, ascq);
    sense
}

#[test]
fn data_and_sense_of_one_command_both_arrive() {
    with_drive(|server, drive| {
        let mut session = session(server);
        let itt = read_6(&mut session, 2048);
        let (command, mut completer) = drive.take();
        assert_eq!(command.cdb[..6], [0x08, 0, 0, 8, 0, 0]);
        completer.room()[..1000].fill(7);
        let mut short = fixed(0, 0, 0);
        short[2] = 0x20;
        completer.answer_command(CHECK_CONDITION, short.clone(), 1000);
        let status = session.finish(itt);
        assert_eq!((status.code, status.data), (CHECK_CONDITION, vec![7; 1000]));
        assert_eq!(status.sense, short, "ILI");
        assert_eq!(status.residual, Residual::Underflow(1048));

        let mut command = session.command(LUN, &[0x0a, 0, 0, 2, 0, 0]);
        (command.write, command.expected_length) = (true, 512);
        session.send(&Request::Command(command), &[3; 512]);
        let (sent, completer) = drive.take();
        assert!(matches!(&sent.transfer, Transfer::Out(data) if data.to_vec() == [3; 512]));
        completer.answer_command(GOOD, vec![], 512);
        let status = session.finish(command.itt);
        assert_eq!((status.code, status.residual), (GOOD, Residual::None));
    });
}

#[test]
fn a_unit_attention_of_the_device_reaches_each_session() {
    with_drive(|server, drive| {
        let (mut first, mut other) = (session(server), session(server));
        let itt = ready(&mut first);
        drive.take().1.answer_command(CHECK_CONDITION, fixed(6, 0x28, 0), 0);
        assert_eq!(first.finish(itt).sense_code(), (6, 0x28, 0));
        let itt = ready(&mut other);
        assert_eq!(other.finish(itt).sense_code(), (6, 0x28, 0));
        let itt = ready(&mut other);
        drive.take().1.answer_command(GOOD, vec![], 0);
        assert_eq!(other.finish(itt).code, GOOD);
    });
}

#[test]
fn an_aborted_command_is_over_when_the_device_says_so() {
    with_drive(|server, drive| {
        let mut session = session(server);
        let itt = read_6(&mut session, 512);
        let (_, completer) = drive.take();
        manage(&mut session, ABORT_TASK, LUN, itt);
        drop(drive.expect(|state| state.cancelled == 1));
        session.expect_quiet();
        completer.fail_command(Failure::Aborted);
        assert_eq!(session.read_management(), 0);
        assert!(drive.state().resets.is_empty(), "others may be at work");
    });
}

#[test]
fn a_reset_resets_the_device_and_is_answered_when_all_is_over() {
    with_drive(|server, drive| {
        let (mut first, mut other) = (session(server), session(server));
        let itt = read_6(&mut first, 512);
        let (_, completer) = drive.take();
        manage(&mut other, LOGICAL_UNIT_RESET, LUN, Itt::NONE);
        let reset = drive.expect(|state| !state.resets.is_empty()).resets.remove(0);
        drop(drive.expect(|state| state.cancelled == 1));
        assert_eq!(first.finish(itt).code, TASK_ABORTED);
        completer.fail_command(Failure::Reset);
        other.expect_quiet();
        reset.complete_with(Outcome::Done);
        assert_eq!(other.read_management(), 0);
        for session in [&mut first, &mut other] {
            let itt = ready(session);
            assert_eq!(session.finish(itt).sense_code(), (6, 0x29, 3));
        }
        let itt = ready(&mut first);
        drive.take().1.answer_command(GOOD, vec![], 0);
        assert_eq!(first.finish(itt).code, GOOD);
    });
}

/// What the device never ends keeps out what comes later, and holds up nobody who waits.
#[test]
fn a_command_that_is_never_answered_fences_the_unit() {
    with_drive_for(Some(Duration::from_millis(100)), |server, drive| {
        let mut session = session(server);
        let itt = read_6(&mut session, 512);
        let (_, completer) = drive.take();
        manage(&mut session, ABORT_TASK, LUN, itt);
        assert_eq!(session.read_management(), 0, "it is not waited for any longer");
        let itt = read_6(&mut session, 512);
        assert_eq!(session.finish(itt).code, BUSY);
        // Whoever only asks may.
        let itt = ready(&mut session);
        drive.take().1.answer_command(GOOD, vec![], 0);
        assert_eq!(session.finish(itt).code, GOOD);
        // Nor does a reset that does not come about.
        manage(&mut session, LOGICAL_UNIT_RESET, LUN, Itt::NONE);
        let reset = drive.expect(|state| !state.resets.is_empty()).resets.remove(0);
        assert_eq!(session.read_management(), 0);
        reset.complete_with(Outcome::Done);
        completer.fail_command(Failure::Reset);
        let itt = ready(&mut session);
        assert_eq!(session.finish(itt).sense_code(), (6, 0x29, 3));
        let unit = drive.unit.lock().expect("whole").upgrade().expect("it is served");
        let begin = Instant::now();
        while unit.is_fenced() {
            assert!(begin.elapsed() < PATIENCE, "it is over");
        }
        let itt = read_6(&mut session, 512);
        drive.take().1.answer_command(GOOD, vec![], 0);
        assert_eq!(session.finish(itt).code, GOOD);
    });
}

#[test]
fn a_session_that_is_lost_leaves_the_device_to_others() {
    with_drive(|server, drive| {
        let mut first = session(server);
        read_6(&mut first, 512);
        let (_, completer) = drive.take();
        drop(first);
        drop(drive.expect(|state| state.cancelled == 1));
        let mut other = session(server);
        let itt = ready(&mut other);
        drive.take().1.answer_command(GOOD, vec![], 0);
        assert_eq!(other.finish(itt).code, GOOD);
        completer.answer_command(GOOD, vec![], 512);
    });
}

/// A host that has crashed, or has given a command up, does not hear what the device says to it.
#[test]
fn what_the_device_says_to_nobody_everybody_hears() {
    with_drive(|server, drive| {
        let mut other = session(server);
        let mut lost = session(server);
        read_6(&mut lost, 512);
        let (_, completer) = drive.take();
        drop(lost);
        drop(drive.expect(|state| state.cancelled == 1));
        completer.answer_command(CHECK_CONDITION, fixed(6, 0x28, 0), 0);
        // The answer takes a moment, as the device does until then.
        let begin = Instant::now();
        let code = loop {
            assert!(begin.elapsed() < PATIENCE, "another medium is there");
            let itt = ready(&mut other);
            let passed = drive.changed.wait_timeout(drive.state(), Duration::from_millis(20));
            if let Some((_, completer)) = passed.expect("whole").0.commands.pop() {
                completer.answer_command(GOOD, vec![], 0);
            }
            let status = other.finish(itt);
            if status.code == CHECK_CONDITION {
                break status.sense_code();
            }
        };
        assert_eq!(code, (6, 0x28, 0));

        let itt = read_6(&mut other, 512);
        let (_, completer) = drive.take();
        manage(&mut other, ABORT_TASK, LUN, itt);
        drop(drive.expect(|state| state.cancelled == 2));
        completer.answer_command(CHECK_CONDITION, fixed(6, 0x2a, 1), 0);
        assert_eq!(other.read_management(), 0);
        let itt = ready(&mut other);
        assert_eq!(other.finish(itt).sense_code(), (6, 0x2a, 1), "its command was aborted");
    });
}
