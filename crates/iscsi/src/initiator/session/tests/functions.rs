// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Task management functions as they go out, and commands.

use super::recovery::OTHER;
use super::recovery::two;
use super::*;
use crate::initiator::TaskReporting;

impl Lab {
    /// The function that went out last, and where.
    fn managed(&mut self, function: Function) -> (ConnectionId, TaskManagementRequest) {
        self.session.manage(function, START).unwrap();
        let mut sent = None;
        while let Some((at, output)) = self.session.poll_output_at() {
            if let Output::Op(op) = output {
                if let Op::SendControl { request: Request::TaskManagement(tmf), data } = &op {
                    assert!(data.is_empty());
                    assert!(sent.replace((at, *tmf)).is_none(), "one request");
                }
                self.ops.push(op);
            }
        }
        sent.expect("a function")
    }

    fn answer_function(&mut self, request: TaskManagementRequest, response: u8) {
        let (itt, numbers) = (request.itt, self.numbers(0));
        let answer = TaskManagementResponse { response, additional: 0, itt, numbers };
        self.control(Response::TaskManagement(answer), &[]);
    }
}

/// Covers: TMF-05a, TMF-06, TMF-07, TMF-27/I.
#[test]
fn functions_name_a_task_where_they_are_about_one() {
    let mut lab = two(0, |_| {});
    let tasks: Vec<TaskId> = (0..4).map(|_| lab.command(512, 0)).collect();
    for (task, (command, ..)) in tasks.iter().zip(lab.commands()) {
        let home = lab.session.tasks.get(*task).unwrap().connection;
        let (at, abort) = lab.managed(Function::AbortTask(*task));
        assert_eq!((at, abort.function, abort.referenced_task), (home, 1, itt(*task)));
        assert_eq!(abort.ref_cmd_sn, command.cmd_sn);
        assert_eq!(abort.cmd_sn, lab.session.cmd_sn);
    }
    let homes = tasks.iter().map(|task| lab.session.tasks.get(*task).unwrap().connection);
    assert_eq!(homes.filter(|home| *home == OTHER).count(), 2, "they take turns");
    let unit = LunField::default();
    for (function, code) in [
        (Function::AbortTaskSet(unit), 2),
        (Function::ClearTaskSet(unit), 4),
        (Function::LogicalUnitReset(unit), 5),
        (Function::TargetWarmReset, 6),
    ] {
        let mut lab = Lab::new();
        lab.command(512, 0);
        let (_, request) = lab.managed(function);
        assert_eq!((request.function, request.referenced_task), (code, Itt::NONE));
    }
}

/// R2Ts of what a function ends are answered until it is answered (RFC 7143 §4.2.3.3): neither is
/// the mover told to be quiet, nor to forget the tasks.
///
/// Covers: TMF-12, TMF-18a.
#[test]
fn data_goes_out_until_a_function_is_answered() {
    let unit = LunField::default();
    for function in [
        Function::AbortTaskSet(unit),
        Function::ClearTaskSet(unit),
        Function::LogicalUnitReset(unit),
        Function::TargetWarmReset,
    ] {
        let mut lab = Lab::new();
        let tasks = [lab.command(65536, 0), lab.command(65536, 0)];
        let (_, request) = lab.managed(function);
        let stops = |op: &Op| matches!(op, Op::Quiet { .. } | Op::Release { .. });
        assert!(!lab.ops.iter().any(stops), "{function:?}");
        lab.answer_function(request, 0);
        for task in tasks {
            assert_eq!(lab.outcome(task), Some(&Outcome::Failed(Ending::Aborted)));
        }
        assert_eq!(lab.ops.iter().filter(|op| stops(op)).count(), 2, "{function:?}");
    }
}

/// Covers: SCC-01, SCC-02, SCC-03.
#[test]
fn commands_say_which_way_data_goes_and_whether_more_follows() {
    for (initial_r2t, immediate_data) in
        [(true, false), (true, true), (false, false), (false, true)]
    {
        for (data_out, data_in) in
            [(0, 0), (0, 512), (512, 0), (8192, 0), (16384, 0), (20000, 0), (0, 1 << 20)]
        {
            let mut lab = Lab::with(false, |agreed| {
                (agreed.initial_r2t, agreed.immediate_data) = (initial_r2t, immediate_data);
            });
            lab.command(data_out, data_in);
            let (command, immediate, unsolicited_end) = lab.commands()[0];
            assert!(command.write || command.final_, "{data_out} {data_in}");
            assert_eq!((command.write, command.read), (data_out > 0, data_in > 0));
            assert_eq!(command.expected_length, data_out.max(data_in));
            assert_eq!(command.final_, unsolicited_end == immediate, "{data_out} {data_in}");
        }
    }
}

/// Covers: SCC-04/I.
#[test]
fn a_command_has_the_attribute_that_was_asked_for() {
    let attributes = [
        (Attribute::Untagged, 0),
        (Attribute::Simple, 1),
        (Attribute::Ordered, 2),
        (Attribute::HeadOfQueue, 3),
        (Attribute::Aca, 4),
    ];
    for (attribute, code) in attributes {
        let mut lab = Lab::new();
        let cdb = Cdb { bytes: [0; 32], len: 16 };
        let lun = LunField::default();
        let command = Command { lun, cdb, attribute, data_out: 0, data_in: 0 };
        lab.session.command(command, START).unwrap();
        lab.drain();
        let mut header = Vec::new();
        Request::Command(lab.commands()[0].0).emit(0, &mut header);
        assert_eq!(header[1] & 7, code);
    }
}

/// No command goes out without the length of its read part: one that has both is refused.
///
/// Covers: FMT-14.
#[test]
fn a_command_of_both_directions_is_not_sent() {
    let mut lab = Lab::new();
    let cdb = Cdb { bytes: [0; 32], len: 16 };
    let (lun, attribute) = (LunField::default(), Attribute::Simple);
    let both = Command { lun, cdb, attribute, data_out: 512, data_in: 512 };
    assert_eq!(lab.session.command(both, START).err(), Some(Refused::Bidirectional));
    lab.drain();
    assert!(lab.commands().is_empty());
}

/// A code that no standard defines is neither success nor a known failure.
///
/// Covers: FMT-03/I.
#[test]
fn reserved_codes_in_answers_are_errors() {
    for code in [2, 7, 0x7f] {
        let mut lab = Lab::new();
        let task = lab.command(0, 512);
        let mut ended = lab.status(task, 0);
        ended.response.response = code;
        lab.event(Event::Ended(ended), &[]);
        let failed = Outcome::Failed(Ending::TargetFailure(code));
        assert_eq!(lab.outcome(task), Some(&failed));

        let mut lab = Lab::new();
        let task = lab.command(0, 512);
        let (_, request) = lab.managed(Function::AbortTask(task));
        lab.answer_function(request, code.max(7));
        assert_eq!(lab.outcome(task), None, "nothing has ended it");
        let (_, request) = lab.managed(Function::LogicalUnitReset(LunField::default()));
        lab.answer_function(request, code.max(7));
        assert_eq!(lab.outcome(task), None, "nothing has ended it");

        let mut lab = two(2, |_| {});
        lab.session.handle_disconnect_at(OTHER, START);
        lab.drain();
        let Some(Request::Logout(logout)) = lab.requests().last().copied() else { panic!() };
        let answer = LogoutResponse {
            response: code.max(4),
            itt: logout.itt,
            numbers: lab.numbers(0),
            time2wait: 0,
            time2retain: 20,
        };
        lab.control(Response::Logout(answer), &[]);
        assert!(matches!(lab.closed, Some((SessionError::NotRecovered, _))), "{:?}", lab.closed);
    }
}

/// With FastAbort, or several connections, what a function has ended may still be answered.
///
/// Covers: FAB-03.
#[test]
fn late_answers_are_passed_over_where_there_may_be_some() {
    for (reporting, connections, expected) in [
        (TaskReporting::FastAbort, 1, true),
        (TaskReporting::ResponseFence, 2, true),
        (TaskReporting::Rfc3720, 1, false),
    ] {
        let lab = Lab::with(false, |agreed| {
            (agreed.task_reporting, agreed.max_connections) = (reporting, connections);
        });
        assert_eq!(lab.session.login().keys().strays, expected, "{reporting:?} {connections}");
    }
}
