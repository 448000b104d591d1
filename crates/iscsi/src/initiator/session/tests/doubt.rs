// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What becomes of commands when nobody knows whether they were aborted.

use super::recovery::OTHER;
use super::recovery::alone;
use super::recovery::join;
use super::*;
use crate::initiator::limits::ABORT_TIMEOUT;
use crate::initiator::limits::MANAGEMENTS_MAX;

const UNIT: LunField = LunField([0, 1, 0, 0, 0, 0, 0, 0]);

/// A session with two connections and so many commands, which take turns.
fn busy(level: u8, commands: usize) -> (Lab, Vec<TaskId>) {
    let mut lab = alone(level);
    join(&mut lab, OTHER);
    lab.session.ping_interval = Duration::ZERO;
    lab.session.max_cmd_sn = lab.session.cmd_sn.plus(40);
    let tasks = (0..commands).map(|_| lab.command(0, 512)).collect();
    (lab, tasks)
}

fn functions(lab: &Lab) -> Vec<TaskManagementRequest> {
    let functions = lab.requests().into_iter().filter_map(|request| match request {
        Request::TaskManagement(function) => Some(function),
        _ => None,
    });
    functions.collect()
}

fn answer(lab: &mut Lab, at: ConnectionId, function: &TaskManagementRequest, response: u8) {
    let numbers = Numbers { stat_sn: lab.session.exp_stat_sn_at(at), ..lab.numbers(0) };
    let answer = TaskManagementResponse { response, additional: 0, itt: function.itt, numbers };
    let response = Response::TaskManagement(answer);
    lab.session.handle_event_at(at, Event::Control { response }, &[], START);
    lab.drain();
}

#[test]
fn what_a_lost_function_was_to_end_is_aborted_by_itself() {
    for (function, response) in [
        (Function::AbortTaskSet(LunField::default()), 1),
        (Function::ClearTaskSet(LunField::default()), 0),
        (Function::LogicalUnitReset(LunField::default()), 1),
        (Function::TargetWarmReset, 1),
    ] {
        let (mut lab, tasks) = busy(0, 2);
        let id = lab.session.manage(function, START).unwrap();
        lab.drain();
        let later = [lab.command(0, 512), lab.command(0, 512)];
        lab.session.handle_disconnect_at(LEADING, START);
        lab.drain();
        assert!(matches!(lab.told.last(),
            Some(Indication::Managed { id: of, response: None }) if *of == id));
        // That of the connection that is gone waits for its logout.
        let [_, abort] = functions(&lab)[..] else { panic!("one abort: {:?}", functions(&lab)) };
        assert_eq!((abort.function, abort.referenced_task), (1, itt(tasks[1])));
        assert_eq!(Some(abort.ref_cmd_sn), lab.session.tasks.get(tasks[1]).unwrap().sent);
        assert_eq!(lab.outcome(tasks[1]), None);
        answer(&mut lab, OTHER, &abort, response);
        assert_eq!(lab.outcome(tasks[1]), Some(&Outcome::Failed(Ending::Aborted)));
        assert_eq!((lab.outcome(later[1]), lab.closed), (None, None), "it came behind it");
    }
}

#[test]
fn commands_of_other_units_are_in_no_doubt() {
    let (mut lab, _) = busy(0, 4);
    lab.session.manage(Function::AbortTaskSet(UNIT), START).unwrap();
    lab.session.handle_disconnect_at(LEADING, START);
    lab.drain();
    assert_eq!(functions(&lab).len(), 1);
}

#[test]
fn commands_in_doubt_are_aborted_a_few_at_a_time() {
    let (mut lab, tasks) = busy(0, 14);
    lab.session.manage(Function::AbortTaskSet(LunField::default()), START).unwrap();
    lab.session.handle_disconnect_at(LEADING, START);
    lab.drain();
    assert_eq!(functions(&lab).len(), 1 + MANAGEMENTS_MAX);
    // One ends by itself before its turn comes, another one while it is aborted.
    let of_other: Vec<TaskId> = tasks.into_iter().skip(1).step_by(2).collect();
    for ended in [of_other[0], of_other[6]] {
        let mut ended = lab.status(ended, 0);
        ended.response.numbers.stat_sn = lab.session.exp_stat_sn_at(OTHER);
        lab.session.handle_event_at(OTHER, Event::Ended(ended), &[], START);
        lab.drain();
    }
    for answered in 1..=of_other.len() - 1 {
        let Some(abort) = functions(&lab).get(answered).copied() else { panic!("no {answered}") };
        answer(&mut lab, OTHER, &abort, if answered == 1 { 255 } else { 1 });
    }
    assert_eq!(functions(&lab).len(), of_other.len());
    for task in of_other {
        assert!(lab.outcome(task).is_some());
    }
    assert!(lab.closed.is_none());
}

#[test]
fn a_target_that_leaves_commands_in_doubt_loses_its_session() {
    for response in [None, Some(5), Some(255)] {
        let (mut lab, tasks) = busy(0, 2);
        lab.session.manage(Function::AbortTaskSet(LunField::default()), START).unwrap();
        lab.session.handle_disconnect_at(LEADING, START);
        lab.drain();
        let Some(abort) = functions(&lab).last().copied() else { panic!("an abort") };
        match response {
            Some(response) => answer(&mut lab, OTHER, &abort, response),
            None => lab.look(START + ABORT_TIMEOUT, Carried::default()),
        }
        let lost = Outcome::Failed(Ending::Lost { sent: true });
        assert_eq!(lab.outcome(tasks[1]), Some(&lost), "{response:?}");
        assert!(lab.closed.is_some(), "{response:?}");
    }
}

/// One that was not aborted has its time again, though that was over meanwhile.
#[test]
fn a_command_whose_abort_is_refused_is_watched_again() {
    let mut lab = Lab::new();
    lab.session.ping_interval = Duration::ZERO;
    let task = lab.command(0, 512);
    let over = START + lab.session.command_timeout;
    lab.session.manage(Function::AbortTask(task), over).unwrap();
    lab.look(over, Carried::default());
    let [abort] = functions(&lab)[..] else { panic!("one abort") };
    answer(&mut lab, LEADING, &abort, 255);
    lab.look(over, Carried::default());
    assert_eq!(functions(&lab).len(), 2, "it is aborted as any that is late");
}

/// Aborts that are never answered give their places to reassignments when they are given up.
#[test]
fn reassignments_do_not_wait_for_ever_behind_aborts() {
    let mut lab = alone(2);
    lab.session.ping_interval = Duration::ZERO;
    lab.session.max_cmd_sn = lab.session.cmd_sn.plus(40);
    for _ in 0..MANAGEMENTS_MAX {
        lab.command(0, 512);
    }
    let late = START + lab.session.command_timeout + ABORT_TIMEOUT;
    for at in [START + lab.session.command_timeout, late] {
        lab.look(at, Carried::default());
    }
    let Some(reset) = functions(&lab).last().copied() else { panic!("a reset") };
    assert_eq!((reset.function, functions(&lab).len()), (5, MANAGEMENTS_MAX + 1));
    answer(&mut lab, LEADING, &reset, 0);
    assert_eq!(lab.session.task_count(), 0);
    join(&mut lab, OTHER);
    let tasks = [lab.command_at(0, 512, late), lab.command_at(0, 512, late)];
    lab.session.handle_disconnect_at(OTHER, late);
    lab.drain();
    let Some(Request::Logout(logout)) = lab.requests().last().copied() else { panic!("a logout") };
    let (itt, numbers) = (logout.itt, lab.numbers(0));
    let answer = LogoutResponse { response: 0, itt, numbers, time2wait: 0, time2retain: 20 };
    lab.control(Response::Logout(answer), &[]);
    assert!(lab.reassigned.is_empty(), "as many functions are under way as may be");
    lab.look(late + ABORT_TIMEOUT, Carried::default());
    let [(LEADING, task)] = lab.reassigned[..] else { panic!("{:?}", lab.reassigned) };
    assert!(tasks.contains(&task));
    assert!(lab.closed.is_none());
}
