// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lines that are slow, targets that forget, and who is which.

use super::*;

const MIB: u32 = 1 << 20;

/// Far less than sixteen commands of 1 MiB need to be through in time.
const SLOW: u64 = 150_000;

/// As much as a socket takes.
const SOCKET: u64 = 4 << 20;

fn lab(window: u32) -> Lab {
    let mut lab = Lab::new();
    lab.session.max_cmd_sn = lab.session.cmd_sn.plus(window - 1);
    lab
}

/// What a line of `rate` bytes a second has carried by then.
fn by(at: Instant, rate: u64) -> u64 {
    let millis = u64::try_from(at.since(START).as_millis()).unwrap();
    millis * rate / 1000
}

/// Bytes of the `place`th command that are among the first `bytes`.
fn part(bytes: u64, place: usize) -> u64 {
    let before = u64::from(MIB) * u64::try_from(place).unwrap();
    bytes.saturating_sub(before).min(MIB.into())
}

/// An answer to each ping comes at once.
fn answer_pings(lab: &mut Lab, at: Instant) {
    let Some(Request::NopOut(ping)) = lab.requests().pop() else { return };
    if ping.itt != Itt::NONE {
        let answer = lab.nop_in(ping.itt, Ttt::NONE);
        lab.session.handle_event(Event::Control { response: answer }, &[], at);
        lab.drain();
        lab.ops.clear();
    }
}

/// Runs until all commands have ended, each after its bytes; gives when.
fn run(lab: &mut Lab, tasks: &[TaskId], carried: impl Fn(u64) -> (Carried, u64)) -> Instant {
    let mut ended = 0;
    while let Some(at) = lab.session.poll_timeout().filter(|_| ended < tasks.len()) {
        let (carried, given) = carried(by(at, SLOW));
        let place = |task| tasks.iter().position(|of| *of == task).unwrap();
        lab.look_with(at, carried, |task| part(given, place(task)));
        answer_pings(lab, at);
        let done = carried.received.max(carried.taken);
        while ended < tasks.len() && part(done, ended) == u64::from(MIB) {
            let status = lab.status(tasks[ended], 0);
            lab.session.handle_event(Event::Ended(status), &[], at);
            lab.drain();
            ended += 1;
        }
        assert!(lab.requests().is_empty(), "after {:?}: {:?}", at.since(START), lab.requests());
        assert_eq!(lab.closed, None);
        if ended == tasks.len() {
            return at;
        }
    }
    panic!("{ended} commands have ended");
}

#[test]
fn reads_that_come_slowly_are_not_late() {
    let mut lab = lab(16);
    let tasks: Vec<TaskId> = (0..16).map(|_| lab.command(0, MIB)).collect();
    lab.ops.clear();
    let end = run(&mut lab, &tasks, |received| {
        (Carried { received, arriving: 8192, ..Carried::default() }, received)
    });
    assert!(end.since(START) > lab.session.command_timeout * 3);
}

/// The socket takes much at once, and keeps it long.
#[test]
fn writes_that_leave_slowly_are_not_late() {
    let mut lab = lab(16);
    let tasks: Vec<TaskId> = (0..16).map(|_| lab.command(MIB, 0)).collect();
    lab.ops.clear();
    let end = run(&mut lab, &tasks, |taken| {
        let given = (taken + SOCKET).min(16 << 20);
        (Carried { taken, leaving: given - taken.min(given), ..Carried::default() }, given)
    });
    assert!(end.since(START) > lab.session.command_timeout * 3);
}

#[test]
fn commands_that_wait_for_the_window_of_a_slow_line_are_not_late() {
    let mut lab = lab(4);
    let tasks: Vec<TaskId> = (0..16).map(|_| lab.command(0, MIB)).collect();
    assert_eq!(lab.commands().len(), 4);
    lab.ops.clear();
    let end =
        run(&mut lab, &tasks, |received| (Carried { received, ..Carried::default() }, received));
    assert!(end.since(START) > lab.session.command_timeout * 3);
}

/// When a command is aborted that the target forgets, at a line that has carried so much by then.
fn forget(lab: &mut Lab, carried: impl Fn(Instant) -> Carried) -> Duration {
    loop {
        let at = lab.session.poll_timeout().unwrap();
        lab.look(at, carried(at));
        answer_pings(lab, at);
        if matches!(lab.requests().as_slice(), [Request::TaskManagement(pdu)] if pdu.function == 1)
        {
            return at.since(START);
        }
        assert!(lab.requests().is_empty(), "{:?}", lab.requests());
    }
}

#[test]
fn a_command_that_is_forgotten_is_late_while_others_are_served() {
    let mut lab = lab(16);
    lab.command(0, MIB);
    lab.ops.clear();
    // Those that are under way when its time is over end, and others take their place.
    let limit = lab.session.command_timeout;
    for _ in 0..15 {
        lab.command_at(0, MIB, START + limit / 2);
    }
    lab.ops.clear();
    let time = forget(&mut lab, |at| Carried {
        received: by(at, 100_000_000),
        taken: by(at, 100_000),
        ..Carried::default()
    });
    assert!(time >= limit && time <= limit + limit / 4, "{time:?}");
}

/// What came for others before says nothing about a target that has stopped.
#[test]
fn a_target_that_stops_is_noticed_whatever_it_did_before() {
    for came in [0, 10 << 20] {
        let mut lab = lab(16);
        for _ in 0..16 {
            lab.command(0, MIB);
        }
        lab.ops.clear();
        let limit = lab.session.command_timeout;
        let at = START + Duration::from_secs(1);
        let received = came;
        lab.session.note_carried(LEADING, Carried { received, ..Carried::default() }, at);
        let mut first = None;
        while first.is_none() {
            let at = lab.session.poll_timeout().unwrap();
            lab.look(at, Carried { received, ..Carried::default() });
            answer_pings(&mut lab, at);
            first = (!lab.requests().is_empty()).then(|| at.since(START));
        }
        assert!(first.is_some_and(|time| time >= limit && time <= limit + limit / 4), "{first:?}");
    }
}

/// Pings are no data: they keep no command that was forgotten.
#[test]
fn pings_and_their_answers_are_no_progress() {
    let mut lab = lab(16);
    lab.command(MIB, 0);
    lab.command(MIB, 0);
    lab.ops.clear();
    let limit = lab.session.command_timeout;
    loop {
        let at = lab.session.poll_timeout().unwrap();
        let bytes = by(at, 10);
        lab.look(at, Carried { received: bytes, taken: bytes, ..Carried::default() });
        answer_pings(&mut lab, at);
        if !lab.requests().is_empty() {
            assert!(at.since(START) <= limit + limit / 4);
            return;
        }
    }
}

/// When a command is aborted of which the target moves so many bytes a second until `end`.
fn worked_on(rate: u64, length: u32, end: Instant) -> Duration {
    let mut lab = lab(16);
    let task = lab.command(0, length);
    lab.ops.clear();
    loop {
        let at = lab.session.poll_timeout().unwrap();
        let worked = by(at.min(end), rate).min(length.into());
        let carried = Carried { received: worked, arriving: 8192, ..Carried::default() };
        lab.look_with(at, carried, |of| if of == task { worked } else { 0 });
        answer_pings(&mut lab, at);
        if !lab.requests().is_empty() {
            return at.since(START);
        }
    }
}

/// Bytes of its own that move give a command its time anew.
#[test]
fn a_command_on_which_the_target_works_is_not_late() {
    let limit = lab(1).session.command_timeout;
    for rate in [200, 1000, 100_000] {
        let time = worked_on(rate, 64 * MIB, START + limit * 4);
        // The last look that found it moving was up to the longest look before the end.
        let longest = crate::initiator::limits::PROGRESS_TIME;
        assert!(time >= limit * 5 - longest && time <= limit * 5 + limit / 4, "{rate}: {time:?}");
    }
}

/// A byte now and then is no work: a target could hold a command with it for days.
#[test]
fn a_target_that_trickles_holds_no_command() {
    let limit = lab(1).session.command_timeout;
    for (rate, length) in [(1, MIB), (2, MIB), (2, 512), (50, MIB)] {
        let time = worked_on(rate, length, START + limit * 40);
        assert!(time >= limit && time <= limit + limit / 4, "{rate} of {length}: {time:?}");
    }
}

/// The answer to an abort comes behind data that was asked for before.
#[test]
fn an_abort_waits_for_a_slow_line() {
    let mut lab = lab(16);
    lab.session.ping_interval = Duration::ZERO;
    let task = lab.command(0, 512);
    for _ in 0..4 {
        lab.command(0, MIB);
    }
    lab.session.manage(Function::AbortTask(task), START).unwrap();
    lab.drain();
    lab.ops.clear();
    let limit = crate::initiator::limits::ABORT_TIMEOUT;
    while lab.closed.is_none() {
        let at = lab.session.poll_timeout().unwrap();
        let received = by(at, SLOW).min(4 << 20);
        lab.look(at, Carried { received, ..Carried::default() });
        let time = at.since(START);
        // Four commands of 1 MiB take 28 s.
        let late = time >= Duration::from_secs(28);
        assert!(lab.closed.is_none() || late, "{time:?}");
        assert!(time <= Duration::from_secs(28) + limit * 2, "{time:?}");
    }
    assert!(matches!(lab.closed, Some((SessionError::AbortTimeout, _))));
}
