// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The whole initiator machine against a target that lies: a session, its connections with their
//! movers, commands with their buffers, and time, in any order of steps.
//!
//! The steps are structured by `arbitrary`: most PDUs are nearly right, so that they get far. The
//! invariants of every machine are checked after each step; each command ends exactly once, and at
//! the end nothing may be left.

use std::collections::BTreeSet;
use std::time::Duration;

use arbitrary::Arbitrary;
use arbitrary::Unstructured;
use buf::Pool;
use buf::SgList;
use buf::Slice;
use clock::Instant;
use iscsi::initiator::Authenticated;
use iscsi::initiator::Command;
use iscsi::initiator::ConnectionId;
use iscsi::initiator::Function;
use iscsi::initiator::Indication;
use iscsi::initiator::LoggedIn;
use iscsi::initiator::Output;
use iscsi::initiator::Parameters;
use iscsi::initiator::Policy;
use iscsi::initiator::Session;
use iscsi::initiator::Settings;
use iscsi::initiator::TaskReporting;
use iscsi::initiator::datamover::Markers;
use iscsi::initiator::datamover::Op;
use iscsi::initiator::datamover::TaskId;
use iscsi::initiator::datamover::itt;
use mover::tcp::initiator::Tcp;
use wire::iscsi::*;

use crate::with_pool;

const CONNECTIONS: usize = 3;
const STEPS_MAX: usize = 400;
const TASKS_MAX: usize = 32;
/// Bytes of the buffer of a command.
const LENGTH: u32 = 8192;
const SEGMENT: usize = 1024;

/// What happens next. Places are taken modulo what there is, numbers are offsets to right ones.
#[derive(Arbitrary, Debug)]
enum Step {
    Command {
        write: bool,
    },
    DataIn {
        at: u8,
        task: u8,
        sn: i8,
        offset: i8,
        length: u16,
        flags: u8,
    },
    R2t {
        at: u8,
        task: u8,
        sn: i8,
        offset: i8,
        length: u16,
    },
    /// `how`: status, response, sense data.
    Status {
        at: u8,
        task: u8,
        how: (u8, bool, bool),
        stat_sn: i8,
        exp_data_sn: u8,
    },
    NopIn {
        at: u8,
        itt: bool,
        ttt: bool,
        stat_sn: i8,
    },
    /// An answer to the last request of a kind.
    Answer {
        at: u8,
        kind: u8,
        response: u8,
        stat_sn: i8,
    },
    Async {
        at: u8,
        event: u8,
        parameter: u8,
        stat_sn: i8,
    },
    /// Of the last PDU of ours.
    Reject {
        at: u8,
        reason: u8,
        stat_sn: i8,
    },
    Window {
        ahead: i8,
    },
    Noise(u8, [u8; 8]),
    /// The next PDU is damaged.
    Damage,
    Cut(u8),
    Join {
        fails: bool,
        hopeless: bool,
    },
    Time(u8),
    Manage(u8, u8),
    Targets,
    Logout,
}

/// Steps until the input ends.
pub fn initiator_machine(data: &[u8]) {
    with_pool(|pool| {
        let mut input = Unstructured::new(data);
        let Ok(policy) = input.arbitrary::<[u8; 3]>() else { return };
        let mut world = World::new(pool, policy);
        for _ in 0..STEPS_MAX {
            let Ok(step) = input.arbitrary::<Step>() else { break };
            world.step(&step);
            world.settle();
            world.check();
            if input.is_empty() {
                break;
            }
        }
        world.end();
    });
}

struct Wire {
    mover: Tcp,
    before: Option<Tcp>,
    up: bool,
    /// Of the next numbered PDU.
    stat_sn: u32,
}

struct World<'a> {
    pool: &'a Pool,
    session: Session,
    parameters: Parameters,
    wires: Vec<Wire>,
    tasks: Vec<TaskId>,
    /// Commands whose buffers no mover has.
    fresh: BTreeSet<TaskId>,
    /// Data-In and R2Ts of each task so far, and the next offset.
    sent: Vec<(u32, u32)>,
    ended: BTreeSet<TaskId>,
    begun: usize,
    last: [Vec<u8>; CONNECTIONS],
    requests: Vec<Request>,
    window: u32,
    damage: bool,
    closed: bool,
    now: Instant,
}

fn offset(base: u32, by: i8) -> u32 {
    base.wrapping_add_signed(by.into())
}

impl<'a> World<'a> {
    fn new(pool: &'a Pool, [level, flags, more]: [u8; 3]) -> Self {
        let on = |bit: u8| flags & 1 << bit != 0;
        let parameters = Parameters {
            header_digest: on(0),
            data_digest: on(1),
            max_send_data_segment_length: 1024,
            max_recv_data_segment_length: 1024,
            max_burst_length: 4096,
            first_burst_length: 2048,
            initial_r2t: on(2),
            immediate_data: on(3),
            max_outstanding_r2t: u16::from(more & 3) + 1,
            time2wait: 0,
            time2retain: u16::from(more >> 2),
            max_connections: u16::from(on(4)) * 2 + 1,
            error_recovery_level: level % 3,
            data_pdu_in_order: on(5),
            data_sequence_in_order: on(5),
            task_reporting: if on(6) { TaskReporting::FastAbort } else { TaskReporting::Rfc3720 },
            protocol_level: 1,
            markers: Markers::default(),
            rdma: None,
        };
        let policy = if on(7) { Policy::LeastOutstanding } else { Policy::RoundRobin };
        let settings = Settings { connections: 3, policy, ..Settings::default() };
        let login = logged_in(&parameters, 1, (1, 8));
        let mut world = Self {
            pool,
            session: Session::new(login, &settings, Instant(0)),
            parameters,
            wires: Vec::new(),
            tasks: Vec::new(),
            fresh: BTreeSet::new(),
            sent: Vec::new(),
            ended: BTreeSet::new(),
            begun: 0,
            last: Default::default(),
            requests: Vec::new(),
            window: 8,
            damage: false,
            closed: false,
            now: Instant(0),
        };
        let wire = world.wire();
        world.wires.push(wire);
        world
    }

    /// A connection that is logged in.
    fn wire(&self) -> Wire {
        let mut mover = Tcp::new();
        let login = logged_in(&self.parameters, 1, (1, self.window));
        mover.submit(Op::NoticeKeys(login.keys()));
        Wire { mover, before: None, up: true, stat_sn: 1 }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Command { write } => self.command(write),
            Step::Window { ahead } => self.window = offset(self.window, ahead.max(0)),
            Step::Damage => self.damage = true,
            Step::Noise(at, bytes) => self.feed(usize::from(at), &bytes),
            Step::Cut(at) => {
                let at = usize::from(at) % self.wires.len();
                if let Some(wire) = self.wires.get_mut(at)
                    && wire.up
                {
                    wire.up = false;
                    self.session.handle_disconnect_at(id(at), self.now);
                }
            }
            Step::Join { fails, hopeless } => self.join(fails, hopeless),
            Step::Time(power) => {
                self.now = self.now + Duration::from_millis(1 << (power % 18));
                self.session.handle_timeout(self.now);
            }
            Step::Manage(kind, task) => self.manage(kind, task),
            Step::Targets => drop(self.session.send_targets(self.now)),
            Step::Logout => self.session.logout(self.now),
            _ => self.answer(step),
        }
    }

    fn command(&mut self, write: bool) {
        let (data_out, data_in) = if write { (LENGTH, 0) } else { (0, LENGTH) };
        let command = Command {
            lun: LunField::default(),
            cdb: Cdb { bytes: [0; 32], len: 16 },
            attribute: Attribute::Simple,
            data_out,
            data_in,
        };
        if self.begun - self.ended.len() >= TASKS_MAX {
            return;
        }
        if let Ok(task) = self.session.command(command, self.now) {
            self.begun += 1;
            self.fresh.insert(task);
            self.tasks.push(task);
            self.sent.push((0, 0));
        }
    }

    fn manage(&mut self, kind: u8, task: u8) {
        let lun = LunField::default();
        let function = match (kind % 5, self.pick(task)) {
            (0, Some((_, task))) => Function::AbortTask(task),
            (1, _) => Function::ClearTaskSet(lun),
            (2, _) => Function::LogicalUnitReset(lun),
            (3, _) => Function::TargetWarmReset,
            _ => Function::AbortTaskSet(lun),
        };
        let _ = self.session.manage(function, self.now);
    }

    fn join(&mut self, fails: bool, hopeless: bool) {
        let Some(wanted) = self.session.wanted(self.now) else { return };
        self.session.begin_join(wanted);
        let joining = self.session.joining(wanted).expect("it was wanted");
        if fails {
            return self.session.join_failed(wanted, hopeless, self.now);
        }
        let at = usize::from(wanted.0);
        let mut fresh = self.wire();
        while self.wires.len() <= at {
            self.wires.push(Wire { mover: Tcp::new(), before: None, up: false, stat_sn: 1 });
        }
        let wire = self.wires.get_mut(at).expect("it was made");
        for mut old in wire.before.take().into_iter().chain([core::mem::take(&mut wire.mover)]) {
            for carried in old.carry_all() {
                fresh.mover.adopt(carried);
            }
        }
        *wire = fresh;
        let expected = joining.cmd_sn.0;
        let login = logged_in(&self.parameters, 1, (expected, self.window));
        self.session.joined(wanted, &login, self.now);
    }

    /// A task, mostly a late one.
    fn pick(&self, task: u8) -> Option<(usize, TaskId)> {
        let count = self.tasks.len();
        let place = count.checked_sub(1 + usize::from(task) % count.max(1))?;
        self.tasks.get(place).map(|task| (place, *task))
    }

    fn numbers(&self, at: usize, stat_sn: i8) -> Numbers {
        let base = self.wires.get(at).map_or(0, |wire| wire.stat_sn);
        Numbers {
            stat_sn: StatSn(offset(base, stat_sn)),
            exp_cmd_sn: CmdSn(self.window.wrapping_sub(7)),
            max_cmd_sn: CmdSn(self.window),
        }
    }

    /// A PDU of the target.
    fn answer(&mut self, step: &Step) {
        let (at, response, data) = match *step {
            Step::DataIn { at, task, sn, offset: by, length, flags } => {
                let Some((place, task)) = self.pick(task) else { return };
                let Some(books) = self.sent.get_mut(place) else { return };
                let length = usize::from(length) % (SEGMENT + 1);
                let (data_sn, at_offset) = (offset(books.0, sn), offset(books.1, by));
                books.0 = books.0.wrapping_add(1);
                books.1 = books.1.wrapping_add(u32::try_from(length).unwrap_or(0));
                let collapsed = CollapsedStatus { status: 0, residual: Residual::None };
                let pdu = DataIn {
                    final_: flags & 7 == 1,
                    acknowledge: flags & 8 != 0,
                    status: (flags & 7 == 1).then_some(collapsed),
                    lun: LunField::default(),
                    itt: itt(task),
                    ttt: if flags & 8 != 0 { Ttt(5) } else { Ttt::NONE },
                    numbers: self.numbers(self.place(at), 0),
                    data_sn: DataSn(data_sn),
                    offset: at_offset,
                };
                (at, Response::DataIn(pdu), vec![7; length])
            }
            Step::R2t { at, task, sn, offset: by, length } => {
                let Some((place, task)) = self.pick(task) else { return };
                let Some(books) = self.sent.get_mut(place) else { return };
                let (r2t_sn, at_offset) = (offset(books.0, sn), offset(books.1, by));
                let desired_length = u32::from(length) % 4200 + 1;
                books.0 = books.0.wrapping_add(1);
                books.1 = books.1.wrapping_add(desired_length);
                let pdu = R2t {
                    lun: LunField::default(),
                    itt: itt(task),
                    ttt: Ttt(r2t_sn & 0xff),
                    numbers: self.numbers(self.place(at), 0),
                    r2t_sn: R2tSn(r2t_sn),
                    offset: at_offset,
                    desired_length,
                };
                (at, Response::R2t(pdu), Vec::new())
            }
            Step::Status { at, task, how: (status, response, sense), stat_sn, exp_data_sn } => {
                let Some((place, task)) = self.pick(task) else { return };
                let came = self.sent.get(place).map_or(0, |books| books.0);
                let pdu = ScsiResponse {
                    response: u8::from(response),
                    status: [0, 2, 8, 0x28][usize::from(status) % 4],
                    status_qualifier: 0,
                    itt: itt(task),
                    snack_tag: 0,
                    numbers: self.numbers(self.place(at), stat_sn / 64),
                    exp_data_sn: DataSn(came + u32::from(exp_data_sn / 128)),
                    bidi_read_residual: Residual::None,
                    residual: Residual::None,
                };
                (at, Response::Scsi(pdu), if sense { vec![0, 1, 0x70] } else { Vec::new() })
            }
            Step::NopIn { at, itt, ttt, stat_sn } => {
                let itt = if itt { self.last_tag() } else { Itt::NONE };
                let ttt = if ttt { Ttt(1) } else { Ttt::NONE };
                let numbers = self.numbers(self.place(at), stat_sn / 64);
                (at, Response::NopIn(NopIn { lun: LunField::default(), itt, ttt, numbers }), vec![])
            }
            Step::Answer { at, kind, response, stat_sn } => {
                let numbers = self.numbers(self.place(at), stat_sn / 64);
                let itt = self.last_tag();
                let response = [0, 0, 0, 1, 3, 255][usize::from(response) % 6];
                let answer = match kind % 3 {
                    0 => Response::TaskManagement(TaskManagementResponse {
                        response,
                        additional: 0,
                        itt,
                        numbers,
                    }),
                    1 => {
                        let (time2wait, time2retain) = (0, 20);
                        let pdu = LogoutResponse { response, itt, numbers, time2wait, time2retain };
                        Response::Logout(pdu)
                    }
                    _ => Response::Text(TextResponse {
                        final_: response == 0,
                        continue_: false,
                        lun: LunField::default(),
                        itt,
                        ttt: Ttt::NONE,
                        numbers,
                    }),
                };
                (at, answer, Vec::new())
            }
            Step::Async { at, event, parameter, stat_sn } => {
                let pdu = AsyncMessage {
                    lun: LunField::default(),
                    numbers: self.numbers(self.place(at), stat_sn / 64),
                    event: event % 6,
                    vcode: 0,
                    parameter1: u16::from(parameter % 4),
                    parameter2: 0,
                    parameter3: 1,
                };
                (at, Response::Async(pdu), Vec::new())
            }
            Step::Reject { at, reason, stat_sn } => {
                let numbers = self.numbers(self.place(at), stat_sn / 64);
                let reason = [2, 2, 3, 4, 9][usize::from(reason) % 5];
                let header = self.last.get(self.place(at)).cloned().unwrap_or_default();
                (at, Response::Reject(Reject { reason, numbers, data_sn: DataSn(0) }), header)
            }
            _ => return,
        };
        self.send(self.place(at), &response, &data);
    }

    fn place(&self, at: u8) -> usize {
        usize::from(at) % self.wires.len()
    }

    fn last_tag(&self) -> Itt {
        match self.requests.last() {
            Some(Request::TaskManagement(pdu)) => pdu.itt,
            Some(Request::Logout(pdu)) => pdu.itt,
            Some(Request::Text(pdu)) => pdu.itt,
            Some(Request::NopOut(pdu)) => pdu.itt,
            _ => Itt(0xfffe),
        }
    }

    fn send(&mut self, at: usize, response: &Response, data: &[u8]) {
        let length = u32::try_from(data.len()).expect("a short segment");
        let header = response.emit(length);
        let mut bytes = header.to_vec();
        if self.parameters.header_digest {
            bytes.extend_from_slice(&crc(&header));
        }
        let mut padded = data.to_vec();
        padded.resize(pad4(data.len()), 0);
        bytes.extend_from_slice(&padded);
        if self.parameters.data_digest && !data.is_empty() {
            bytes.extend_from_slice(&crc(&padded));
        }
        if core::mem::take(&mut self.damage) && !data.is_empty() {
            let end = bytes.len();
            bytes[end - 1] ^= 1;
        }
        let counts = match response {
            Response::NopIn(pdu) => pdu.itt != Itt::NONE,
            Response::DataIn(pdu) => pdu.status.is_some(),
            Response::R2t(_) => false,
            _ => true,
        };
        if counts && let Some(wire) = self.wires.get_mut(at) {
            wire.stat_sn = wire.stat_sn.wrapping_add(1);
        }
        self.feed(at, &bytes);
    }

    fn feed(&mut self, at: usize, bytes: &[u8]) {
        let at = at % self.wires.len();
        let mut rest = bytes;
        while !rest.is_empty() {
            let Some(wire) = self.wires.get_mut(at).filter(|wire| wire.up) else { return };
            let (taken, event) = wire.mover.feed(rest);
            rest = &rest[taken..];
            if let Some(event) = event {
                let data = wire.mover.control_data();
                self.session.handle_event_at(id(at), event, data, self.now);
                self.settle();
            }
        }
    }

    /// What the pump does.
    fn settle(&mut self) {
        while let Some((at, output)) = self.session.poll_output_at() {
            match output {
                Output::Op(op) => self.carry_out(usize::from(at.0), op),
                Output::Indication(Indication::Ended { task, .. }) => {
                    assert!(self.ended.insert(task), "a command ended twice");
                }
                Output::Indication(_) => {}
                Output::Closed { .. } => self.closed = true,
            }
        }
        for (place, wire) in self.wires.iter_mut().enumerate() {
            let mut list = SgList::new();
            while wire.up
                && wire.mover.poll_transmit(&mut list, self.session.exp_stat_sn_at(id(place)))
            {
                if let (Some(last), bytes) = (self.last.get_mut(place), list.to_vec())
                    && let Some(header) = bytes.first_chunk::<BHS_LEN>()
                {
                    *last = header.to_vec();
                }
                wire.mover.handle_sent();
            }
        }
    }

    fn carry_out(&mut self, at: usize, op: Op) {
        match &op {
            Op::SendCommand { task, .. } if self.fresh.remove(task) => {
                let write = Slice::from(vec![3; LENGTH as usize]);
                let read = self.pool.take(LENGTH as usize);
                if let Some(wire) = self.wires.get_mut(at) {
                    wire.mover.submit(Op::Attach { task: *task, write: Some(write), read });
                }
            }
            Op::SendCommand { task, .. } | Op::Reassign { task, .. } => self.bring(*task, at),
            Op::Release { task } => {
                self.fresh.remove(task);
                for wire in &mut self.wires {
                    wire.mover.submit(Op::Release { task: *task });
                    if let Some(before) = &mut wire.before {
                        before.submit(Op::Release { task: *task });
                    }
                }
                return;
            }
            Op::SendControl { request, .. } => self.requests.push(*request),
            _ => {}
        }
        if let Op::Reassign { request, .. } = &op {
            self.requests.push(Request::TaskManagement(*request));
        }
        let Some(wire) = self.wires.get_mut(at) else { return };
        if matches!(op, Op::Terminate) {
            wire.up = false;
            return;
        }
        wire.mover.submit(op);
    }

    fn bring(&mut self, task: TaskId, to: usize) {
        if self.wires.get(to).is_some_and(|wire| wire.mover.holds(task)) {
            return;
        }
        let carried = self.wires.iter_mut().find_map(|wire| wire.mover.carry(task));
        let carried = carried.expect("a command that was sent is with a mover");
        self.wires.get_mut(to).expect("a connection").mover.adopt(carried);
    }

    fn check(&self) {
        self.session.check();
        for wire in &self.wires {
            wire.mover.check();
        }
        assert_eq!(self.session.task_count(), self.begun - self.ended.len(), "live commands");
        assert!(!self.closed || self.session.task_count() == 0, "nothing outlives the session");
    }

    fn end(&mut self) {
        self.session.logout(self.now);
        self.settle();
        for at in 0..self.wires.len() {
            self.session.handle_disconnect_at(id(at), self.now);
        }
        self.settle();
        // Whatever it waits for comes to an end in bounded time.
        for _ in 0..100 {
            self.now = self.now + Duration::from_secs(60);
            self.session.handle_timeout(self.now);
            self.settle();
        }
        self.check();
        assert!(self.closed, "a session without connections ends");
        assert_eq!(self.ended.len(), self.begun, "each command has ended");
    }
}

fn id(at: usize) -> ConnectionId {
    ConnectionId(u16::try_from(at).expect("few connections"))
}

fn crc(bytes: &[u8]) -> [u8; 4] {
    let mut crc = crc::Crc32c::new();
    crc.update(bytes);
    crc.finish().to_le_bytes()
}

fn logged_in(parameters: &Parameters, stat_sn: u32, (exp, max): (u32, u32)) -> LoggedIn {
    LoggedIn {
        tsih: Tsih(1),
        cid: Cid(0),
        discovery: false,
        target_alias: None,
        portal_group_tag: None,
        foreign_isid: None,
        authentication: Authenticated::Nobody,
        cmd_sn: CmdSn(1),
        exp_cmd_sn: CmdSn(exp),
        max_cmd_sn: CmdSn(max),
        exp_stat_sn: StatSn(stat_sn),
        parameters: parameters.clone(),
    }
}
