// SPDX-License-Identifier: Apache-2.0 OR MIT

use alloc::vec;
use alloc::vec::Vec;

use wire::iscsi::*;

use super::commands::CHECK_CONDITION;
use super::*;
use crate::initiator::Authenticated;
use crate::initiator::Parameters;
use crate::initiator::datamover::Ended;
use crate::initiator::datamover::Violation;
use crate::initiator::datamover::itt;
use crate::target_role::RdmaParameters;

const START: Instant = Instant(1_000_000_000);

fn parameters() -> Parameters {
    Parameters {
        header_digest: false,
        data_digest: false,
        max_send_data_segment_length: 8192,
        max_recv_data_segment_length: 8192,
        max_burst_length: 65536,
        first_burst_length: 16384,
        initial_r2t: false,
        immediate_data: true,
        max_outstanding_r2t: 1,
        time2wait: 2,
        time2retain: 0,
        max_connections: 1,
        error_recovery_level: 0,
        data_pdu_in_order: true,
        data_sequence_in_order: true,
        protocol_level: 1,
        markers: crate::datamover::Markers::default(),
        rdma: None,
        task_reporting: crate::target_role::TaskReporting::Rfc3720,
    }
}

/// A session and what it said.
struct Lab {
    session: Session,
    ops: Vec<Op>,
    told: Vec<Indication>,
    /// What was to be reassigned, and where.
    reassigned: Vec<(ConnectionId, TaskId)>,
    reassignments: Vec<TaskManagementRequest>,
    closed: Option<(SessionError, Duration)>,
}

impl Lab {
    fn with(discovery: bool, adjust: impl FnOnce(&mut Parameters)) -> Self {
        let mut parameters = parameters();
        adjust(&mut parameters);
        let login = LoggedIn {
            tsih: Tsih(1),
            cid: Cid(0),
            discovery,
            target_alias: None,
            portal_group_tag: None,
            foreign_isid: None,
            authentication: Authenticated::Nobody,
            cmd_sn: CmdSn(u32::MAX - 1),
            exp_cmd_sn: CmdSn(u32::MAX - 1),
            max_cmd_sn: CmdSn(1),
            exp_stat_sn: StatSn(u32::MAX),
            parameters,
        };
        let session = Session::new(login, &Settings::default(), START);
        let (ops, told, reassigned, reassignments) = Default::default();
        Self { session, ops, told, reassigned, reassignments, closed: None }
    }

    fn new() -> Self {
        Self::with(false, |_| {})
    }

    fn drain(&mut self) {
        while let Some((at, output)) = self.session.poll_output_at() {
            match output {
                Output::Op(Op::Reassign { task, request }) => {
                    self.reassigned.push((at, task));
                    self.reassignments.push(request);
                }
                Output::Op(op) => self.ops.push(op),
                Output::Indication(indication) => self.told.push(indication),
                Output::Closed { error, time2wait } => self.closed = Some((error, time2wait)),
            }
        }
        self.session.check();
    }

    fn command(&mut self, data_out: u32, data_in: u32) -> TaskId {
        self.command_at(data_out, data_in, START)
    }

    fn command_at(&mut self, data_out: u32, data_in: u32, now: Instant) -> TaskId {
        let cdb = Cdb { bytes: [0; 32], len: 16 };
        let (lun, attribute) = (LunField::default(), Attribute::Simple);
        let command = Command { lun, cdb, attribute, data_out, data_in };
        let task = self.session.command(command, now).unwrap();
        self.drain();
        task
    }

    fn event(&mut self, event: Event, data: &[u8]) {
        self.session.handle_event(event, data, START);
        self.drain();
    }

    fn control(&mut self, response: Response, data: &[u8]) {
        self.event(Event::Control { response }, data);
    }

    /// The commands that went out.
    fn commands(&self) -> Vec<(ScsiCommand, u32, u32)> {
        let commands = self.ops.iter().filter_map(|op| match op {
            Op::SendCommand { command, immediate, unsolicited_end, .. } => {
                Some((*command, *immediate, *unsolicited_end))
            }
            _ => None,
        });
        commands.collect()
    }

    fn requests(&self) -> Vec<Request> {
        let requests = self.ops.iter().filter_map(|op| match op {
            Op::SendControl { request, .. } => Some(*request),
            _ => None,
        });
        requests.collect()
    }

    fn numbers(&self, ahead: u32) -> Numbers {
        Numbers {
            stat_sn: self.session.exp_stat_sn().plus(ahead),
            exp_cmd_sn: self.session.cmd_sn,
            max_cmd_sn: self.session.cmd_sn.plus(3),
        }
    }

    fn status(&self, task: TaskId, status: u8) -> Ended {
        let response = ScsiResponse {
            response: 0,
            status,
            itt: itt(task),
            snack_tag: 0,
            numbers: self.numbers(0),
            exp_data_sn: DataSn(0),
            bidi_read_residual: Residual::None,
            residual: Residual::None,
            status_qualifier: 0,
        };
        Ended { task, response, received: 0, damaged: false }
    }

    fn end(&mut self, task: TaskId) {
        let ended = self.status(task, 0);
        self.event(Event::Ended(ended), &[]);
    }

    /// Lets time pass until so many requests have gone out; gives the time.
    fn until_requests(&mut self, count: usize) -> Instant {
        for _ in 0..10_000 {
            let at = self.session.poll_timeout().expect("something is to be done");
            self.look(at, Carried::default());
            if self.requests().len() >= count || self.closed.is_some() {
                return at;
            }
        }
        panic!("it never does more than {:?}", self.requests());
    }

    /// Does what is due, at a pump that tells how far the commands are: as they were.
    fn look(&mut self, at: Instant, carried: Carried) {
        self.look_with(at, carried, |_| 0);
    }

    fn look_with(&mut self, at: Instant, carried: Carried, progress: impl Fn(TaskId) -> u64) {
        self.session.note_carried(LEADING, carried, at);
        if self.session.looks_at().is_some_and(|due| due <= at) {
            self.session.note_progress(|_, task| Some(progress(task)), at);
        }
        self.session.handle_timeout(at);
        self.drain();
    }

    fn outcome(&self, task: TaskId) -> Option<&Outcome> {
        self.told.iter().find_map(|told| match told {
            Indication::Ended { task: of, outcome } if *of == task => Some(outcome),
            _ => None,
        })
    }

    fn nop_in(&self, itt: Itt, ttt: Ttt) -> Response {
        let lun = LunField([0, 7, 0, 0, 0, 0, 0, 0]);
        Response::NopIn(NopIn { lun, itt, ttt, numbers: self.numbers(0) })
    }

    fn asynchronous(&self, event: u8, parameters: (u16, u16, u16)) -> Response {
        Response::Async(AsyncMessage {
            lun: LunField::default(),
            numbers: self.numbers(0),
            event,
            vcode: 0,
            parameter1: parameters.0,
            parameter2: parameters.1,
            parameter3: parameters.2,
        })
    }
}

/// Covers: CMD-04, CMD-15, LGN-33, CMD-01/I.
#[test]
fn commands_are_numbered_in_order_and_wait_for_the_window() {
    let mut lab = Lab::new();
    let tasks: Vec<TaskId> = (0..6).map(|_| lab.command(0, 512)).collect();
    let numbers: Vec<u32> = lab.commands().iter().map(|(c, ..)| c.cmd_sn.0).collect();
    assert_eq!(numbers, [u32::MAX - 1, u32::MAX, 0, 1], "up to MaxCmdSN, around the wrap");
    // What is immediate goes before it under the same number.
    let mut early = Lab::new();
    early.control(early.nop_in(Itt::NONE, Ttt(3)), &[]);
    let Some(Request::NopOut(nop)) = early.requests().first().copied() else { panic!("a ping") };
    assert_eq!((nop.immediate, nop.cmd_sn), (true, CmdSn(u32::MAX - 1)));
    early.command(0, 512);
    assert_eq!(early.commands()[0].0.cmd_sn, CmdSn(u32::MAX - 1));
    assert!(lab.commands().iter().all(|(c, ..)| c.final_ && c.read && !c.write && !c.immediate));
    lab.end(tasks[0]);
    let numbers: Vec<u32> = lab.commands().iter().skip(4).map(|(c, ..)| c.cmd_sn.0).collect();
    assert_eq!(numbers, [2, 3], "the window has moved");
    assert_eq!(lab.session.task_count(), 5);
}

#[test]
fn commands_wait_where_few_may_be_with_the_target() {
    let mut lab = Lab::new();
    lab.session.commands_max = 2;
    let tasks: Vec<TaskId> = (0..4).map(|_| lab.command(0, 512)).collect();
    assert_eq!(lab.commands().len(), 2, "the window is wider");
    lab.end(tasks[0]);
    assert_eq!(lab.commands().len(), 3);
    lab.end(tasks[1]);
    lab.end(tasks[2]);
    assert_eq!(lab.commands().len(), 4);
}

/// Covers: CMD-13, CMD-14.
#[test]
fn the_window_never_moves_back() {
    let mut lab = Lab::new();
    let window = |exp: u32, max: u32| {
        let (exp_cmd_sn, max_cmd_sn) = (CmdSn(exp), CmdSn(max));
        Event::Window(Numbers { stat_sn: StatSn(0), exp_cmd_sn, max_cmd_sn })
    };
    lab.event(window(u32::MAX, 0), &[]);
    assert_eq!(lab.session.max_cmd_sn, CmdSn(1), "a smaller one changes nothing");
    lab.event(window(10, 8), &[]);
    assert_eq!(lab.session.max_cmd_sn, CmdSn(1), "one that contradicts itself neither");
    assert_eq!(lab.session.exp_cmd_sn, CmdSn(u32::MAX));
    lab.event(window(10, 9), &[]);
    assert_eq!((lab.session.exp_cmd_sn, lab.session.max_cmd_sn), (CmdSn(10), CmdSn(9)));
    // Each of both by itself: an old PDU may know of more room.
    lab.event(window(5, 12), &[]);
    assert_eq!((lab.session.exp_cmd_sn, lab.session.max_cmd_sn), (CmdSn(10), CmdSn(12)));
    lab.event(window(11, 10), &[]);
    assert_eq!((lab.session.exp_cmd_sn, lab.session.max_cmd_sn), (CmdSn(11), CmdSn(12)));
    // What is from before the wrap is older, however large it looks.
    lab.event(window(u32::MAX - 3, u32::MAX - 1), &[]);
    assert_eq!((lab.session.exp_cmd_sn, lab.session.max_cmd_sn), (CmdSn(11), CmdSn(12)));
    let mut lab = Lab::new();
    for cmd_sn in [u32::MAX - 8, u32::MAX - 4] {
        (lab.session.exp_cmd_sn, lab.session.max_cmd_sn) = (CmdSn(cmd_sn), CmdSn(cmd_sn));
        lab.event(window(2, 7), &[]);
        assert_eq!((lab.session.exp_cmd_sn, lab.session.max_cmd_sn), (CmdSn(2), CmdSn(7)));
    }
}

/// Covers: KEY-16, KEY-18, KEY-19, SCC-05, SCC-06, SCC-07, KEY-21b/I, KEY-22b, SCC-16/I.
#[test]
fn unsolicited_data_is_what_the_keys_allow() {
    // InitialR2T, ImmediateData, length; immediate bytes, end of unsolicited data.
    let cases = [
        (true, false, 4096, 0, 0),
        (true, true, 4096, 4096, 4096),
        (true, true, 20000, 8192, 8192),
        (false, false, 4096, 0, 4096),
        (false, false, 20000, 0, 16384),
        (false, true, 8192, 8192, 8192),
        (false, true, 10000, 8192, 10000),
        (false, true, 20000, 8192, 16384),
    ];
    for (initial_r2t, immediate_data, length, immediate, end) in cases {
        let mut lab = Lab::with(false, |agreed| {
            (agreed.initial_r2t, agreed.immediate_data) = (initial_r2t, immediate_data);
        });
        lab.command(length, 0);
        let (command, sent, unsolicited_end) = lab.commands()[0];
        assert_eq!((sent, unsolicited_end), (immediate, end), "{length} bytes");
        assert_eq!(command.final_, end == immediate);
        assert!(command.write && !command.read);
        assert_eq!(command.expected_length, length);
    }
}

/// A target that expects two PDUs says nothing of the first one before it has the second one.
///
/// Covers: ISF-04.
#[test]
fn data_is_not_sent_unasked_where_the_target_expects_fewer_pdus() {
    for (unexpected_max, immediate_data, length, immediate, end) in [
        (0, true, 20_000, 8192, 16_384),
        (2, true, 20_000, 8192, 16_384),
        (2, false, 20_000, 0, 0),
        (3, false, 20_000, 0, 16_384),
        (2, false, 8192, 0, 8192),
    ] {
        let mut lab = Lab::with(false, |agreed| {
            let (solicited_only, hello, own_unexpected_max) = (false, false, 0);
            (agreed.initial_r2t, agreed.immediate_data) = (false, immediate_data);
            agreed.rdma =
                Some(RdmaParameters { unexpected_max, own_unexpected_max, solicited_only, hello });
        });
        lab.command(length, 0);
        let (command, sent, unsolicited_end) = lab.commands()[0];
        assert_eq!((sent, unsolicited_end), (immediate, end), "{unexpected_max} {length}");
        assert_eq!(command.final_, end == immediate);
    }
}

/// Covers: STS-04, STS-10.
#[test]
fn statuses_are_counted_and_old_ones_dropped() {
    let mut lab = Lab::new();
    let (first, second) = (lab.command(0, 512), lab.command(0, 512));
    let early = lab.status(second, 0);
    lab.end(first);
    assert_eq!(lab.session.exp_stat_sn(), StatSn(0));
    lab.event(Event::Ended(early), &[]);
    assert!(lab.outcome(second).is_none(), "a StatSN that came before is no status");
    lab.end(second);
    assert!(matches!(lab.outcome(second), Some(Outcome::Done(done)) if done.status == 0));
    assert!(lab.closed.is_none());
}

/// Covers: STS-07a.
#[test]
fn a_lost_status_ends_the_session() {
    let mut lab = Lab::new();
    let task = lab.command(0, 512);
    let mut ended = lab.status(task, 0);
    ended.response.numbers = lab.numbers(1);
    lab.event(Event::Ended(ended), &[]);
    assert!(matches!(lab.closed, Some((SessionError::StatusLost { .. }, _))));
    let lost = Outcome::Failed(Ending::Lost { sent: true });
    assert_eq!(lab.outcome(task), Some(&lost));
    assert!(matches!(lab.ops.last(), Some(Op::Terminate)));
}

/// Covers: SRS-02, SRS-09.
#[test]
fn service_failures_and_missing_sense() {
    let mut lab = Lab::new();
    let (task, other) = (lab.command(0, 512), lab.command(0, 512));
    let mut ended = lab.status(task, 0);
    ended.response.response = 1;
    lab.event(Event::Ended(ended), &[]);
    assert_eq!(lab.outcome(task), Some(&Outcome::Failed(Ending::TargetFailure(1))));
    // Whatever else it says: neither sense data is missed nor a residual counted.
    for code in [1, 0x80, 0xff] {
        let task = lab.command(0, 512);
        let mut ended = lab.status(task, 2);
        (ended.response.response, ended.response.residual) = (code, Residual::Overflow(7));
        lab.event(Event::Ended(ended), &[]);
        let failure = Outcome::Failed(Ending::TargetFailure(code));
        assert_eq!(lab.outcome(task), Some(&failure));
        assert!(lab.closed.is_none());
    }
    let ended = lab.status(other, 2);
    lab.event(Event::Ended(ended), &[]);
    assert!(matches!(lab.closed, Some((SessionError::NoSense, _))));
    let mut lab = Lab::new();
    let task = lab.command(0, 512);
    let ended = lab.status(task, 2);
    lab.event(Event::Ended(ended), &[0, 3, 0x70, 0, 5, 9, 9]);
    let Some(Outcome::Done(done)) = lab.outcome(task) else { panic!("no status") };
    assert_eq!((done.status, done.sense.as_slice()), (2, &[0x70, 0, 5][..]));
}

/// Covers: SRS-06.
#[test]
fn what_was_received_is_bounded_by_the_residual() {
    for (residual, received, expected) in [
        (Residual::None, 512, 512),
        (Residual::Underflow(416), 96, 96),
        (Residual::Underflow(416), 512, 96),
        (Residual::Underflow(u32::MAX), 512, 0),
        (Residual::Overflow(100), 512, 512),
    ] {
        let mut lab = Lab::new();
        let task = lab.command(0, 512);
        let mut ended = lab.status(task, 0);
        ended.received = received;
        ended.response.residual = residual;
        lab.event(Event::Ended(ended), &[]);
        let Some(Outcome::Done(done)) = lab.outcome(task) else { panic!("no status") };
        assert_eq!(done.received, expected, "{residual:?}");
    }
}

/// Covers: DGT-09.
#[test]
fn damaged_data_fails_its_command_alone() {
    let mut lab = Lab::new();
    let task = lab.command(0, 512);
    let mut ended = lab.status(task, 0);
    ended.damaged = true;
    lab.event(Event::Ended(ended), &[]);
    assert_eq!(lab.outcome(task), Some(&Outcome::Failed(Ending::Damaged)));
    assert!(lab.closed.is_none());
}

/// Covers: NOP-02, NOP-03, NOP-04, NOP-08, CMD-03.
#[test]
fn pings_are_answered_and_sent_in_silence() {
    let mut lab = Lab::new();
    let before = lab.session.cmd_sn;
    let ping = lab.nop_in(Itt::NONE, Ttt(5));
    lab.control(ping, &[]);
    let requests = lab.requests();
    let [Request::NopOut(answer)] = requests.as_slice() else { panic!("one answer") };
    assert!(answer.immediate && answer.itt == Itt::NONE && answer.ttt == Ttt(5));
    assert_eq!((answer.lun.0[1], answer.cmd_sn), (7, before));
    let quiet = lab.nop_in(Itt::NONE, Ttt::NONE);
    lab.control(quiet, &[]);
    assert_eq!(lab.requests().len(), 1, "what wants no answer gets none");
    assert_eq!(lab.session.exp_stat_sn(), StatSn(u32::MAX), "and takes no number");
    let at = lab.session.poll_timeout().unwrap();
    lab.session.handle_timeout(at);
    lab.drain();
    let requests = lab.requests();
    let Some(Request::NopOut(ping)) = requests.get(1) else { panic!("a ping") };
    assert!(ping.immediate && ping.itt != Itt::NONE && ping.ttt == Ttt::NONE);
    assert_eq!(lab.session.cmd_sn, before);
    let answer = lab.nop_in(ping.itt, Ttt::NONE);
    lab.control(answer, &[]);
    assert!(lab.closed.is_none());
    assert_eq!(lab.session.exp_stat_sn(), StatSn(0));
}

/// Covers: NOP-10/I.
#[test]
fn a_ping_without_answer_ends_the_session() {
    let mut lab = Lab::new();
    for _ in 0..2 {
        let at = lab.session.poll_timeout().unwrap();
        lab.session.handle_timeout(at);
        lab.drain();
    }
    assert!(matches!(lab.closed, Some((SessionError::PingTimeout, _))));
    assert_eq!(lab.session.poll_timeout(), None);
}

/// On a slow line the answer comes behind all that was asked for before.
#[test]
fn a_ping_waits_behind_data_that_moves() {
    let mut lab = Lab::new();
    let mut look = |carried| {
        let at = lab.session.poll_timeout().unwrap();
        lab.look(at, Carried { received: carried, ..Carried::default() });
        lab.closed.is_some()
    };
    assert!(!look(0), "a ping");
    assert!((1..100).all(|step| !look(step << 16)));
    assert!(look((99 << 16) + 100), "nothing but a ping or two");
}

/// Covers: LGO-13.
#[test]
fn commands_that_take_too_long_are_aborted() {
    let mut lab = Lab::with(false, |_| {});
    lab.session.ping_interval = Duration::ZERO;
    let task = lab.command(512, 0);
    let at = lab.until_requests(1);
    assert_eq!(at, START + lab.session.command_timeout);
    let requests = lab.requests();
    let [Request::TaskManagement(abort)] = requests.as_slice() else { panic!("one abort") };
    assert_eq!((abort.function, abort.referenced_task), (1, itt(task)));
    assert_eq!(abort.ref_cmd_sn, CmdSn(u32::MAX - 1));
    assert!(abort.immediate);
    let response = TaskManagementResponse {
        response: 0,
        additional: 0,
        itt: abort.itt,
        numbers: lab.numbers(0),
    };
    lab.control(Response::TaskManagement(response), &[]);
    assert_eq!(lab.outcome(task), Some(&Outcome::Failed(Ending::TimedOut)));
    assert!(lab.closed.is_none());
}

#[test]
fn aborts_of_many_commands_go_out_a_few_at_a_time() {
    let mut lab = Lab::with(false, |_| {});
    lab.session.ping_interval = Duration::ZERO;
    lab.session.max_cmd_sn = lab.session.cmd_sn.plus(20);
    let tasks: Vec<TaskId> = (0..7).map(|_| lab.command(512, 0)).collect();
    let at = lab.until_requests(1);
    assert_eq!(lab.requests().len(), crate::initiator::limits::MANAGEMENTS_MAX);
    assert!(lab.session.poll_timeout() > Some(at), "there is nothing to do before an answer");
    for answered in 0..tasks.len() {
        let requests = lab.requests();
        let Some(Request::TaskManagement(abort)) = requests.get(answered) else { panic!("no") };
        let (itt, numbers) = (abort.itt, lab.numbers(0));
        let response = TaskManagementResponse { response: 0, additional: 0, itt, numbers };
        lab.control(Response::TaskManagement(response), &[]);
        lab.session.handle_timeout(at);
        lab.drain();
    }
    for task in tasks {
        assert_eq!(lab.outcome(task), Some(&Outcome::Failed(Ending::TimedOut)));
    }
    assert!(lab.closed.is_none());
}

/// A session with two commands on one unit, of which one takes too long, at a target that answers
/// functions as `answers` say, and others never; the functions that it was asked for.
fn escalate(answers: &[(u8, u8)]) -> (Lab, [TaskId; 2], Vec<u8>) {
    let mut lab = Lab::with(false, |_| {});
    lab.session.ping_interval = Duration::ZERO;
    let first = lab.command(512, 0);
    let later = START + lab.session.command_timeout / 2;
    let second = lab.command_at(512, 0, later);
    let mut functions = Vec::new();
    while let Some(at) = lab.session.poll_timeout() {
        lab.look(at, Carried::default());
        while let Some(Request::TaskManagement(pdu)) = lab.requests().get(functions.len()) {
            functions.push(pdu.function);
            let answer = answers.iter().find(|(of, _)| *of == pdu.function);
            if let Some((_, response)) = answer {
                let (itt, numbers) = (pdu.itt, lab.numbers(0));
                let response =
                    TaskManagementResponse { response: *response, additional: 0, itt, numbers };
                lab.control(Response::TaskManagement(response), &[]);
            }
        }
    }
    (lab, [first, second], functions)
}

#[test]
fn a_command_that_cannot_be_aborted_has_its_unit_reset() {
    // Without an answer to ABORT TASK, and with a refusal.
    for answers in [&[(5, 0)][..], &[(1, 5), (5, 0)]] {
        let (lab, [first, second], functions) = escalate(answers);
        assert_eq!(functions, [1, 5], "{answers:?}");
        assert_eq!(lab.outcome(first), Some(&Outcome::Failed(Ending::TimedOut)));
        assert_eq!(lab.outcome(second), Some(&Outcome::Failed(Ending::Reset)));
        assert!(lab.closed.is_none(), "{answers:?}: {:?}", lab.closed);
    }
}

#[test]
fn a_reset_that_fails_ends_the_session() {
    for answers in [&[][..], &[(5, 255)]] {
        let (lab, [first, _], functions) = escalate(answers);
        assert!(functions.starts_with(&[1, 5]), "{functions:?}");
        assert!(matches!(lab.closed, Some((SessionError::AbortTimeout, _))), "{answers:?}");
        let lost = Outcome::Failed(Ending::Lost { sent: true });
        assert_eq!(lab.outcome(first), Some(&lost));
    }
}

/// An abort was given up for a reset, which ended its command: however late it is answered, that
/// means nothing any more.
///
/// Covers: TMF-18b.
#[test]
fn the_answer_to_an_abort_that_was_given_up_is_discarded() {
    for later in [0, 5, 10, 15, 100, 1000] {
        let mut lab = Lab::with(false, |_| {});
        lab.session.ping_interval = Duration::ZERO;
        let task = lab.command(512, 0);
        lab.until_requests(1);
        let at = lab.until_requests(2);
        let requests = lab.requests();
        let [Request::TaskManagement(abort), Request::TaskManagement(reset)] = requests[..] else {
            panic!("{requests:?}")
        };
        assert_eq!((abort.function, reset.function), (1, 5));
        let answer = |lab: &mut Lab, itt| {
            let numbers = lab.numbers(0);
            let answer = TaskManagementResponse { response: 0, additional: 0, itt, numbers };
            lab.control(Response::TaskManagement(answer), &[]);
        };
        answer(&mut lab, reset.itt);
        assert_eq!(lab.outcome(task), Some(&Outcome::Failed(Ending::TimedOut)));
        lab.look(at + Duration::from_secs(later), Carried::default());
        let expected = lab.session.exp_stat_sn();
        answer(&mut lab, abort.itt);
        assert!(lab.closed.is_none(), "{later} s later: {:?}", lab.closed);
        assert_eq!(lab.session.exp_stat_sn(), expected.plus(1), "it counts");
        answer(&mut lab, abort.itt);
        assert!(lab.closed.is_some(), "there is one answer");
    }
}

/// The same where a status came after the abort was sent.
///
/// Covers: TMF-18b.
#[test]
fn the_late_answer_to_an_abort_that_was_not_needed_is_discarded() {
    for later in [0, 5, 15, 100] {
        let mut lab = Lab::with(false, |_| {});
        lab.session.ping_interval = Duration::ZERO;
        let task = lab.command(512, 0);
        let at = lab.until_requests(1);
        let requests = lab.requests();
        let [Request::TaskManagement(abort)] = requests[..] else { panic!("{requests:?}") };
        lab.end(task);
        assert!(matches!(lab.outcome(task), Some(Outcome::Done(_))));
        lab.look(at + Duration::from_secs(later), Carried::default());
        let (itt, numbers) = (abort.itt, lab.numbers(0));
        let answer = TaskManagementResponse { response: 1, additional: 0, itt, numbers };
        lab.control(Response::TaskManagement(answer), &[]);
        assert!(lab.closed.is_none(), "{later} s later: {:?}", lab.closed);
        assert_eq!(lab.requests().len(), 1);
    }
}

/// Covers: TMF-18b.
#[test]
fn a_command_that_ends_while_it_is_aborted_ends_once() {
    let mut lab = Lab::new();
    let task = lab.command(512, 0);
    let id = lab.session.manage(Function::AbortTask(task), START).unwrap();
    lab.drain();
    let requests = lab.requests();
    let [Request::TaskManagement(abort)] = requests.as_slice() else { panic!("one abort") };
    let itt = abort.itt;
    lab.end(task);
    assert!(matches!(lab.outcome(task), Some(Outcome::Done(_))));
    let response =
        TaskManagementResponse { response: 1, additional: 0, itt, numbers: lab.numbers(0) };
    lab.control(Response::TaskManagement(response), &[]);
    let ends = lab.told.iter().filter(|told| matches!(told, Indication::Ended { .. })).count();
    assert_eq!(ends, 1);
    assert!(matches!(lab.told.last(),
        Some(Indication::Managed { id: of, response: Some(1) }) if *of == id));
    assert!(lab.closed.is_none());
}

/// Covers: TMF-18a.
#[test]
fn a_reset_ends_the_tasks_of_its_unit() {
    let mut lab = Lab::new();
    let tasks = [lab.command(512, 0), lab.command(0, 512)];
    let id = lab.session.manage(Function::LogicalUnitReset(LunField::default()), START).unwrap();
    lab.drain();
    let requests = lab.requests();
    let [Request::TaskManagement(reset)] = requests.as_slice() else { panic!("one reset") };
    assert_eq!((reset.function, reset.referenced_task), (5, Itt::NONE));
    let later = lab.command(0, 512);
    let releases = |lab: &Lab| lab.ops.iter().any(|op| matches!(op, Op::Release { .. }));
    assert!(!releases(&lab), "R2Ts are answered up to the response");
    let (itt, numbers) = (reset.itt, lab.numbers(0));
    let response = TaskManagementResponse { response: 0, additional: 0, itt, numbers };
    lab.control(Response::TaskManagement(response), &[]);
    for task in tasks {
        assert_eq!(lab.outcome(task), Some(&Outcome::Failed(Ending::Aborted)));
    }
    assert_eq!(lab.outcome(later), None, "what came behind it goes on");
    assert!(matches!(lab.told.last(),
        Some(Indication::Managed { id: of, response: Some(0) }) if *of == id));
}

/// Covers: ASY-03, ASY-04, LGO-01, LGO-14.
#[test]
fn a_logout_that_is_asked_for_follows_the_last_command() {
    let mut lab = Lab::new();
    let task = lab.command(0, 512);
    let message = lab.asynchronous(1, (0, 0, 10));
    lab.control(message, &[]);
    let cdb = Cdb { bytes: [0; 32], len: 16 };
    let (lun, attribute) = (LunField::default(), Attribute::Simple);
    let command = Command { lun, cdb, attribute, data_out: 0, data_in: 0 };
    assert_eq!(lab.session.command(command, START), Err(Refused::Closed));
    assert!(lab.requests().is_empty());
    lab.end(task);
    let requests = lab.requests();
    let [Request::Logout(logout)] = requests.as_slice() else { panic!("one logout") };
    assert_eq!((logout.reason, logout.exp_stat_sn), (0, lab.session.exp_stat_sn()));
    let ping = lab.nop_in(Itt::NONE, Ttt(5));
    lab.control(ping, &[]);
    assert_eq!(lab.requests().len(), 1, "nothing is asked after a logout");
    let (itt, numbers) = (logout.itt, lab.numbers(0));
    let (time2wait, time2retain) = (7, 0);
    let response = LogoutResponse { response: 0, itt, numbers, time2wait, time2retain };
    lab.control(Response::Logout(response), &[]);
    let expected = (SessionError::LogoutRequested, Duration::from_secs(7));
    assert_eq!(lab.closed, Some(expected));
}

/// Covers: ASY-08, ASY-11, ASY-12.
#[test]
fn other_messages_of_the_target() {
    let mut lab = Lab::new();
    let unknown = lab.asynchronous(77, (0, 0, 0));
    lab.control(unknown, &[]);
    assert!(lab.closed.is_none());
    assert_eq!(lab.session.exp_stat_sn(), StatSn(0), "it is acknowledged");
    let vendor = lab.asynchronous(255, (1, 2, 3));
    lab.control(vendor, b"what only its vendor understands");
    assert!(lab.closed.is_none() && lab.told.is_empty() && lab.ops.is_empty());
    assert_eq!(lab.session.exp_stat_sn(), StatSn(1));
    let scsi = lab.asynchronous(0, (0, 0, 0));
    lab.control(scsi, &[0, 2, 0x70, 0]);
    assert!(matches!(lab.told.last(),
        Some(Indication::Asynchronous { sense, .. }) if *sense == [0x70, 0]));
    let another = lab.asynchronous(2, (9, 1, 0));
    lab.control(another, &[]);
    assert!(lab.closed.is_none(), "a connection that is not ours");
    let drop = lab.asynchronous(3, (0, 4, 0));
    lab.control(drop, &[]);
    assert_eq!(lab.closed, Some((SessionError::Dropped, Duration::from_secs(4))));
}

/// Covers: DIS-22.
#[test]
fn targets_are_asked_for_as_often_as_one_likes() {
    let mut lab = Lab::with(true, |_| {});
    for _ in 0..2 {
        lab.session.send_targets(START).unwrap();
        lab.drain();
        let Some(Request::Text(asked)) = lab.requests().pop() else { panic!("a text request") };
        let (itt, ttt, numbers) = (asked.itt, Ttt::NONE, lab.numbers(0));
        let lun = LunField::default();
        let answer = TextResponse { final_: true, continue_: false, lun, itt, ttt, numbers };
        lab.control(Response::Text(answer), b"TargetName=iqn.2026-01.com.example:a\0");
    }
    let answers = lab.told.iter().filter(|told| {
        matches!(told,
        Indication::Targets(Ok(targets)) if targets.len() == 1)
    });
    assert_eq!(answers.count(), 2);
}

/// Covers: TXT-07.
#[test]
fn any_tag_of_a_last_list_of_targets_is_ignored() {
    let mut lab = Lab::with(true, |_| {});
    for (before, ttt) in [Ttt(0), Ttt(1), Ttt(u32::MAX - 1), Ttt::NONE].into_iter().enumerate() {
        lab.session.send_targets(START).unwrap();
        lab.drain();
        let requests = lab.requests();
        let Some(Request::Text(request)) = requests.last().copied() else { panic!("a request") };
        assert_eq!((requests.len(), request.ttt), (before + 1, Ttt::NONE));
        let (lun, numbers) = (LunField::default(), lab.numbers(0));
        let itt = request.itt;
        let last = TextResponse { final_: true, continue_: false, lun, itt, ttt, numbers };
        lab.control(Response::Text(last), b"TargetName=iqn.2026-01.com.example:a\0");
        assert_eq!(lab.requests().len(), before + 1, "nothing is left to be said");
        let told = lab.told.pop();
        assert!(matches!(told, Some(Indication::Targets(Ok(_)))), "{told:?}");
    }
}

/// Covers: DIS-11, KEY-06, TXT-01, TXT-02, TXT-03, TXT-06, TXT-07.
#[test]
fn targets_are_asked_for_piece_by_piece() {
    let mut lab = Lab::with(true, |_| {});
    lab.session.send_targets(START).unwrap();
    assert_eq!(lab.session.send_targets(START), Err(Refused::Full));
    lab.drain();
    let Some(Op::SendControl { request: Request::Text(first), data }) = lab.ops.first() else {
        panic!("a text request");
    };
    let first = *first;
    assert_eq!(data, b"SendTargets=All\0");
    assert!(data.len() <= 512, "the smallest MaxRecvDataSegmentLength");
    assert!(first.final_ && first.ttt == Ttt::NONE);
    let lun = LunField([0, 3, 0, 0, 0, 0, 0, 0]);
    let piece = TextResponse {
        final_: false,
        continue_: true,
        lun,
        itt: first.itt,
        ttt: Ttt(9),
        numbers: lab.numbers(0),
    };
    lab.control(Response::Text(piece), b"TargetName=iqn.2026-01.com.exa");
    let Some(Op::SendControl { request: Request::Text(next), data }) = lab.ops.last() else {
        panic!("another request");
    };
    assert_eq!((next.itt, next.ttt, next.lun), (first.itt, Ttt(9), lun));
    assert!(data.is_empty() && next.immediate == first.immediate);
    let numbers = lab.numbers(0);
    let last = TextResponse { final_: true, continue_: false, ttt: Ttt(1), numbers, ..piece };
    lab.control(Response::Text(last), b"mple:a\0");
    let Some(Indication::Targets(Ok(targets))) = lab.told.last() else { panic!("targets") };
    assert_eq!(targets[0].name, "iqn.2026-01.com.example:a");
    assert_eq!(lab.requests().len(), 2, "its tag names nothing");
    lab.session.send_targets(START).unwrap();
    lab.drain();
    let Some(Request::Text(anew)) = lab.requests().last().copied() else { panic!("a request") };
    assert_eq!((anew.ttt, anew.lun), (Ttt::NONE, LunField::default()));
    let command = Command {
        lun,
        cdb: Cdb { bytes: [0; 32], len: 16 },
        attribute: Attribute::Simple,
        data_out: 0,
        data_in: 0,
    };
    assert_eq!(lab.session.command(command, START), Err(Refused::Discovery));
}

#[test]
fn whatever_ends_a_session_ends_everything_in_it() {
    let mut lab = Lab::new();
    let tasks: Vec<TaskId> = (0..6).map(|_| lab.command(512, 0)).collect();
    let id = lab.session.manage(Function::TargetWarmReset, START).unwrap();
    lab.session.send_targets(START).unwrap();
    lab.session.handle_disconnect();
    lab.drain();
    for (task, sent) in tasks.iter().zip([true, true, true, true, false, false]) {
        let lost = Outcome::Failed(Ending::Lost { sent });
        assert_eq!(lab.outcome(*task), Some(&lost));
    }
    assert!(lab.told.iter().any(|told| matches!(told,
        Indication::Managed { id: of, response: None } if *of == id)));
    let released = lab.ops.iter().filter(|op| matches!(op, Op::Release { .. })).count();
    assert_eq!(released, 6);
    assert!(matches!(lab.closed, Some((SessionError::Disconnected, _))));
    lab.event(Event::Violation(Violation::HeaderDigest), &[]);
    lab.session.handle_timeout(Instant(u64::MAX));
    lab.session.logout(START);
    lab.drain();
    assert_eq!(lab.ops.iter().filter(|op| matches!(op, Op::Terminate)).count(), 1);
}

/// Covers: REJ-10.
#[test]
fn a_rejected_command_is_not_sent_again() {
    // What was not taken may be sent again only if its digest was wrong; what was taken never.
    for (reason, open, expected) in [
        (0x09, false, Ending::Rejected(9)),
        (0x09, true, Ending::Rejected(9)),
        (0x04, true, Ending::Rejected(4)),
        (0x02, false, Ending::Lost { sent: true }),
    ] {
        let mut lab = Lab::new();
        let task = lab.command(0, 512);
        let mut header = Vec::new();
        Request::Command(lab.commands()[0].0).emit(0, &mut header);
        let mut numbers = lab.numbers(0);
        if open {
            numbers.exp_cmd_sn = lab.session.exp_cmd_sn;
        }
        let reject = Reject { reason, numbers, data_sn: DataSn(0) };
        lab.control(Response::Reject(reject), &header);
        assert_eq!(lab.outcome(task), Some(&Outcome::Failed(expected)));
        assert!(matches!(lab.closed, Some((SessionError::Rejected(_), _))));
        assert!(lab.requests().is_empty() && lab.commands().len() == 1);
    }
    // Of all reasons with which a command may come back, one is that it came damaged.
    for reason in (0..=u8::MAX).filter(|reason| *reason != 0x02) {
        let mut lab = Lab::new();
        let task = lab.command(512, 0);
        let mut header = Vec::new();
        Request::Command(lab.commands()[0].0).emit(0, &mut header);
        let numbers = Numbers { exp_cmd_sn: lab.session.exp_cmd_sn, ..lab.numbers(0) };
        lab.control(Response::Reject(Reject { reason, numbers, data_sn: DataSn(0) }), &header);
        assert_eq!(lab.commands().len(), 1, "reason {reason}");
        assert_eq!(lab.outcome(task), Some(&Outcome::Failed(Ending::Rejected(reason))));
    }
}

/// Covers: ISP-17/I.
#[test]
fn answers_to_nothing_end_the_session() {
    let lab = Lab::new();
    let numbers = lab.numbers(0);
    let itt = control_itt_of_nobody();
    let responses = vec![
        lab.nop_in(itt, Ttt::NONE),
        Response::TaskManagement(TaskManagementResponse {
            response: 0,
            additional: 0,
            itt,
            numbers,
        }),
        Response::Logout(LogoutResponse {
            response: 0,
            itt,
            numbers,
            time2wait: 0,
            time2retain: 0,
        }),
        Response::Login(LoginResponse {
            transit: true,
            continue_: false,
            current: Stage::Operational,
            next: Some(Stage::FullFeature),
            version_max: 0,
            version_active: 0,
            isid: Isid([0x80, 1, 2, 3, 4, 5]),
            tsih: Tsih(1),
            itt,
            numbers,
            status: 0,
        }),
    ];
    for response in responses {
        let mut lab = Lab::new();
        lab.control(response, &[]);
        assert!(matches!(lab.closed, Some((SessionError::UnexpectedPdu(_), _))), "{response:?}");
    }
}

fn control_itt_of_nobody() -> Itt {
    crate::initiator::datamover::control_itt(999)
}

#[path = "tests/numbers.rs"]
mod numbers;

#[path = "tests/recovery.rs"]
mod recovery;

#[path = "tests/text.rs"]
mod text;

#[path = "tests/leaving.rs"]
mod leaving;

#[path = "tests/functions.rs"]
mod functions;

#[path = "tests/patience.rs"]
mod patience;

#[path = "tests/doubt.rs"]
mod doubt;
