// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Plays everybody around a session, and watches what it says.

pub(crate) use wire::scsi::sam::CHECK_CONDITION;

use buf::{Pool, Slice};
use clock::Instant;
use core::time::Duration;
use iscsi::datamover::{Capabilities, DataError, Event, Immediate, Markers, Op, TaskId};
use iscsi::service::{Command, Completion, Indication};
use iscsi::target_role::{
    ConnectionId, DigestPolicy, LoggedIn, Output, Parameters, RdmaParameters, Room, Session,
    Settings, TargetRecord, TaskReporting,
};
use std::collections::{HashMap, HashSet};
use wire::iscsi::{
    Attribute, Cdb, Cid, CmdSn, Isid, Itt, LogoutRequest, LunField, NopOut, Numbers, Request,
    Response, ScsiCommand, ScsiResponse, StatSn, TaskManagementRequest, TextRequest, Tsih, Ttt,
};

pub(crate) const OWN: ConnectionId = ConnectionId(0);
pub(crate) const CMD_SN: u32 = 100;
pub(crate) const STAT_SN: u32 = 500;
pub(crate) const CID: u16 = 7;
pub(crate) const TARGET: &str = "iqn.2001-04.com.example:disk";

/// What the SCSI side says to a command at once.
pub(crate) enum Answer {
    Later,
    Complete(Completion),
    Receive(u32),
}

/// What a session is made of.
pub(crate) struct Setup {
    pub(crate) parameters: Parameters,
    pub(crate) settings: Settings,
    pub(crate) discovery: bool,
    /// The initiator has proved who it is.
    pub(crate) proved: bool,
    pub(crate) target: Option<String>,
    pub(crate) cmd_sn: u32,
    pub(crate) stat_sn: u32,
    /// Of its movers.
    pub(crate) capabilities: Capabilities,
}

impl Setup {
    pub(crate) fn new() -> Self {
        let parameters = Parameters {
            header_digest: false,
            data_digest: false,
            max_send_data_segment_length: 65536,
            max_recv_data_segment_length: 32768,
            max_burst_length: 262_144,
            first_burst_length: 65536,
            initial_r2t: false,
            immediate_data: true,
            max_outstanding_r2t: 1,
            time2wait: 2,
            time2retain: 0,
            max_connections: 1,
            error_recovery_level: 0,
            data_pdu_in_order: true,
            data_sequence_in_order: true,
            task_reporting: TaskReporting::Rfc3720,
            protocol_level: 1,
            markers: Markers::default(),
            rdma: None,
        };
        let settings = Settings {
            max_recv_data_segment_length: 32768,
            max_burst_length: 262_144,
            first_burst_length: 65536,
            initial_r2t: false,
            immediate_data: true,
            max_outstanding_r2t: 1,
            queue_depth: 8,
            max_connections: 4,
            header_digest: DigestPolicy::Any,
            data_digest: DigestPolicy::Any,
            login_timeout: Duration::from_secs(10),
            ping_interval: Duration::ZERO,
            ping_timeout: Duration::from_secs(5),
            time2wait: 2,
            time2retain: 0,
            kept_bytes_max: 1 << 20,
            ..Settings::default()
        };
        let target = Some(TARGET.to_string());
        Self {
            parameters,
            settings,
            discovery: false,
            proved: true,
            target,
            cmd_sn: CMD_SN,
            stat_sn: STAT_SN,
            capabilities: Capabilities::STREAM,
        }
    }

    pub(crate) fn discovery() -> Self {
        Self { discovery: true, target: None, ..Self::new() }
    }

    pub(crate) fn over_rdma() -> Self {
        let (solicited_only, hello) = (true, false);
        let (unexpected_max, own_unexpected_max) = (0, 0);
        let rdma = RdmaParameters { unexpected_max, own_unexpected_max, solicited_only, hello };
        let setup = Self { capabilities: Capabilities::RDMA, ..Self::new() };
        setup.keys(|keys| keys.rdma = Some(rdma))
    }

    pub(crate) fn depth(mut self, depth: u16) -> Self {
        self.settings.queue_depth = depth;
        self
    }

    pub(crate) fn keys(mut self, change: impl FnOnce(&mut Parameters)) -> Self {
        change(&mut self.parameters);
        self
    }

    pub(crate) fn start(self) -> Driver {
        Driver::new(self)
    }
}

pub(crate) struct Driver {
    pub(crate) session: Session,
    login: LoggedIn,
    pub(crate) now: Instant,
    pub(crate) cmd_sn: u32,
    /// What the initiator acknowledges; follows the session unless `silent`.
    pub(crate) exp_stat_sn: u32,
    /// The connection that requests come on.
    pub(crate) at: ConnectionId,
    /// What the initiator acknowledges on the other connections.
    elsewhere: HashMap<ConnectionId, u32>,
    /// The initiator acknowledges nothing more.
    pub(crate) silent: bool,
    /// The mover releases at once.
    pub(crate) releases: bool,
    /// What becomes of data that comes before the SCSI side has asked for it.
    pub(crate) room: Room,
    /// The SCSI side's instant answer.
    pub(crate) answer: Box<dyn FnMut(&Command) -> Answer>,
    pub(crate) commands: Vec<Command>,
    pub(crate) terminated: bool,
    pub(crate) closed: Option<String>,
    pub(crate) header: Vec<u8>,
    itt: u32,
    watch: Watch,
    pool: Pool,
}

/// What must hold for all that leaves.
struct Watch {
    /// The next StatSN of each open connection.
    stat_sn: HashMap<ConnectionId, u32>,
    /// That of connections that have ended.
    last_stat_sn: HashMap<ConnectionId, u32>,
    /// Where each task belongs.
    allegiance: HashMap<TaskId, ConnectionId>,
    exp_cmd_sn: u32,
    max_cmd_sn: u32,
    depth: u32,
    parameters: Parameters,
    /// The longest segment that an initiator takes, where it has declared it anew.
    segments: HashMap<ConnectionId, u32>,
    bursts: HashMap<TaskId, Vec<(u32, u32)>>,
    asked_to: HashMap<TaskId, u32>,
    answered: HashSet<TaskId>,
    released: HashSet<TaskId>,
    /// Connections whose tasks ended without a release: they take no command any more.
    gone: HashSet<ConnectionId>,
    indicated: HashSet<TaskId>,
    nexus_lost: bool,
    /// Tasks whose buffer waits for another connection.
    buffers: HashSet<TaskId>,
    /// Tasks for which a buffer was asked for ahead of the SCSI side.
    reserved: HashSet<TaskId>,
}

impl Driver {
    fn new(setup: Setup) -> Self {
        let login = LoggedIn {
            initiator: "iqn.2001-04.com.example:host".to_string(),
            initiator_alias: None,
            target: setup.target,
            discovery: setup.discovery,
            proved: setup.proved,
            isid: Isid([0x80, 1, 2, 3, 4, 5]),
            cid: Cid(CID),
            tsih: Tsih(9),
            exp_cmd_sn: CmdSn(setup.cmd_sn),
            stat_sn: StatSn(setup.stat_sn),
            exp_stat_sn: StatSn(0),
            parameters: setup.parameters.clone(),
            capabilities: setup.capabilities,
        };
        let now = Instant(1_000_000_000);
        let depth = u32::from(setup.settings.queue_depth);
        let session = Session::new(login.clone(), &setup.settings, now);
        session.check();
        Self {
            session,
            login,
            now,
            cmd_sn: setup.cmd_sn,
            exp_stat_sn: setup.stat_sn,
            at: OWN,
            elsewhere: HashMap::new(),
            silent: false,
            releases: true,
            room: Room::Attached,
            answer: Box::new(|_| Answer::Later),
            commands: Vec::new(),
            terminated: false,
            closed: None,
            header: vec![0xab; 48],
            itt: 0x1000,
            watch: Watch {
                stat_sn: HashMap::from([(OWN, setup.stat_sn)]),
                last_stat_sn: HashMap::new(),
                segments: HashMap::new(),
                allegiance: HashMap::new(),
                exp_cmd_sn: setup.cmd_sn,
                max_cmd_sn: setup.cmd_sn.wrapping_add(depth).wrapping_sub(1),
                depth,
                parameters: setup.parameters,
                bursts: HashMap::new(),
                asked_to: HashMap::new(),
                answered: HashSet::new(),
                released: HashSet::new(),
                gone: HashSet::new(),
                indicated: HashSet::new(),
                nexus_lost: false,
                buffers: HashSet::new(),
                reserved: HashSet::new(),
            },
            pool: Pool::new(256 << 20).unwrap(),
        }
    }

    /// Another connection joins, with its login's keys as those of the first.
    pub(crate) fn join(&mut self, cid: u16, stat_sn: u32) -> (ConnectionId, Vec<Output>) {
        self.join_with(cid, stat_sn, |_| {})
    }

    /// Another connection joins, whose login has agreed on something else.
    pub(crate) fn join_with(
        &mut self,
        cid: u16,
        stat_sn: u32,
        change: impl FnOnce(&mut Parameters),
    ) -> (ConnectionId, Vec<Output>) {
        self.session.admits(Cid(cid), self.login.capabilities).expect("it may join");
        let stat = StatSn(stat_sn);
        let mut login = LoggedIn { cid: Cid(cid), stat_sn: stat, ..self.login.clone() };
        change(&mut login.parameters);
        let id = self.session.add_connection(&login, self.now);
        assert_eq!(self.watch.stat_sn.insert(id, stat_sn), None, "the id is free");
        self.watch.segments.remove(&id);
        self.watch.gone.remove(&id);
        self.elsewhere.insert(id, stat_sn);
        if id == self.at {
            self.exp_stat_sn = stat_sn;
        }
        (id, self.drain())
    }

    /// Requests come on `id` from now on.
    pub(crate) fn on(&mut self, id: ConnectionId) -> &mut Self {
        self.elsewhere.insert(self.at, self.exp_stat_sn);
        self.at = id;
        self.exp_stat_sn = self.elsewhere.get(&id).copied().unwrap_or_default();
        self
    }

    /// The transport of a connection is gone.
    pub(crate) fn lose(&mut self, id: ConnectionId) -> Vec<Output> {
        self.session.handle_disconnect(id, self.now);
        self.drain()
    }

    /// The open connections.
    pub(crate) fn open(&self) -> Vec<ConnectionId> {
        self.session.connections().map(|(id, _)| id).collect()
    }

    pub(crate) fn next_itt(&mut self) -> Itt {
        self.itt += 1;
        Itt(self.itt)
    }

    /// The next CmdSN, which counts.
    pub(crate) fn take_cmd_sn(&mut self) -> CmdSn {
        let number = CmdSn(self.cmd_sn);
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
        number
    }

    pub(crate) fn exp_cmd_sn(&self) -> u32 {
        self.watch.exp_cmd_sn
    }

    pub(crate) fn max_cmd_sn(&self) -> u32 {
        self.watch.max_cmd_sn
    }

    /// A command in CmdSN order: no data.
    pub(crate) fn command(&mut self) -> ScsiCommand {
        let (itt, cmd_sn) = (self.next_itt(), self.take_cmd_sn());
        ScsiCommand {
            immediate: false,
            final_: true,
            read: false,
            write: false,
            attribute: Attribute::Simple,
            priority: 0,
            lun: LunField::default(),
            itt,
            expected_length: 0,
            cmd_sn,
            exp_stat_sn: StatSn(self.exp_stat_sn),
            cdb: Cdb { bytes: [0; 32], len: 16 },
            bidi_read_length: None,
        }
    }

    pub(crate) fn read(&mut self, length: u32) -> ScsiCommand {
        ScsiCommand { read: true, expected_length: length, ..self.command() }
    }

    pub(crate) fn write(&mut self, length: u32) -> ScsiCommand {
        ScsiCommand { write: true, expected_length: length, ..self.command() }
    }

    /// A write with F=0.
    pub(crate) fn write_more(&mut self, length: u32) -> ScsiCommand {
        ScsiCommand { final_: false, ..self.write(length) }
    }

    /// An immediate form: carries the next CmdSN without taking it.
    pub(crate) fn immediate(&mut self, command: ScsiCommand) -> ScsiCommand {
        assert_eq!(command.cmd_sn.0.wrapping_add(1), self.cmd_sn);
        self.cmd_sn = command.cmd_sn.0;
        ScsiCommand { immediate: true, ..command }
    }

    pub(crate) fn staged(&self, length: u32, buffer: u32) -> Immediate {
        let data = self.pool.take(buffer as usize).unwrap();
        Immediate::Staged { data, length }
    }

    pub(crate) fn send(&mut self, command: ScsiCommand) -> Vec<Output> {
        self.send_with(command, Immediate::None)
    }

    pub(crate) fn send_with(&mut self, command: ScsiCommand, immediate: Immediate) -> Vec<Output> {
        self.event(Event::Control { request: Request::Command(command), immediate }, &[])
    }

    pub(crate) fn request(&mut self, request: Request, data: &[u8]) -> Vec<Output> {
        self.event(Event::Control { request, immediate: Immediate::None }, data)
    }

    /// Sends a command and gives its task.
    pub(crate) fn start(&mut self, command: ScsiCommand) -> TaskId {
        self.send(command);
        self.commands.last().expect("the command reached the SCSI side").task
    }

    /// Sends a command that the SCSI side at once asks `length` bytes for.
    pub(crate) fn start_write(
        &mut self,
        command: ScsiCommand,
        immediate: Immediate,
        length: u32,
    ) -> (TaskId, Vec<Output>) {
        self.answer = Box::new(move |_| Answer::Receive(length));
        let outputs = self.send_with(command, immediate);
        self.answer = Box::new(|_| Answer::Later);
        (self.commands.last().expect("the command reached the SCSI side").task, outputs)
    }

    pub(crate) fn event(&mut self, event: Event, data: &[u8]) -> Vec<Output> {
        let header = self.header.clone();
        self.session.handle_event(self.at, event, &header, data, self.now);
        self.drain()
    }

    pub(crate) fn done(&mut self, task: TaskId, offset: u32, length: u32) -> Vec<Output> {
        let bursts = self.watch.bursts.get_mut(&task).expect("a burst is open");
        let at = bursts.iter().position(|burst| *burst == (offset, length));
        bursts.remove(at.expect("this burst is open"));
        self.event(Event::DataDone { task, offset, length }, &[])
    }

    pub(crate) fn failed(&mut self, task: TaskId, error: DataError) -> Vec<Output> {
        let bursts = self.watch.bursts.get_mut(&task).expect("a burst is open");
        let (offset, length) = bursts.remove(0);
        self.event(Event::DataFailed { task, offset, length, error }, &[])
    }

    /// The oldest open burst of a task.
    pub(crate) fn open_burst(&self, task: TaskId) -> Option<(u32, u32)> {
        self.watch.bursts.get(&task)?.first().copied()
    }

    /// Tasks that wait for data.
    pub(crate) fn tasks_with_bursts(&self) -> Vec<TaskId> {
        let open = self.watch.bursts.iter().filter(|(_, bursts)| !bursts.is_empty());
        let mut tasks: Vec<TaskId> = open.map(|(task, _)| *task).collect();
        tasks.sort_by_key(|task| (task.index, task.generation));
        tasks
    }

    pub(crate) fn open_bursts(&self, task: TaskId) -> usize {
        self.watch.bursts.get(&task).map_or(0, Vec::len)
    }

    pub(crate) fn released(&mut self, task: TaskId) -> Vec<Output> {
        self.event(Event::Released { task }, &[])
    }

    pub(crate) fn complete(&mut self, task: TaskId, completion: Completion) -> Vec<Output> {
        self.session.complete(task, completion);
        self.drain()
    }

    pub(crate) fn receive(&mut self, task: TaskId, length: u32) -> Vec<Output> {
        if self.session.connection_of(task).is_some_and(|at| self.open().contains(&at)) {
            // The pump gives it to the mover itself.
            self.watch.buffers.remove(&task);
        }
        self.session.receive_data_out(task, length);
        self.drain()
    }

    pub(crate) fn abort(&mut self, task: TaskId) -> Vec<Output> {
        self.session.abort(task);
        self.drain()
    }

    pub(crate) fn targets(&mut self, records: Vec<TargetRecord>) -> Vec<Output> {
        self.session.targets(records);
        self.drain()
    }

    pub(crate) fn wait(&mut self, time: Duration) -> Vec<Output> {
        self.now = self.now + time;
        if self.session.poll_timeout().is_some_and(|deadline| deadline <= self.now) {
            self.session.handle_timeout(self.now);
        }
        self.drain()
    }

    /// A NOP-Out that only acknowledges.
    pub(crate) fn acknowledge(&mut self) -> Vec<Output> {
        let nop = self.nop(Itt::NONE, Ttt::NONE);
        self.request(Request::NopOut(nop), &[])
    }

    /// An immediate NOP-Out.
    pub(crate) fn nop(&self, itt: Itt, ttt: Ttt) -> NopOut {
        NopOut {
            immediate: true,
            lun: LunField::default(),
            itt,
            ttt,
            cmd_sn: CmdSn(self.cmd_sn),
            exp_stat_sn: StatSn(self.exp_stat_sn),
        }
    }

    /// An immediate request.
    pub(crate) fn management(&mut self, function: u8) -> TaskManagementRequest {
        TaskManagementRequest {
            immediate: true,
            function,
            lun: LunField::default(),
            itt: self.next_itt(),
            referenced_task: Itt::NONE,
            cmd_sn: CmdSn(self.cmd_sn),
            exp_stat_sn: StatSn(self.exp_stat_sn),
            ref_cmd_sn: CmdSn(0),
            exp_data_sn: Default::default(),
        }
    }

    pub(crate) fn manage(&mut self, request: TaskManagementRequest) -> Vec<Output> {
        self.request(Request::TaskManagement(request), &[])
    }

    /// A final Text Request that starts an exchange.
    pub(crate) fn text(&mut self) -> TextRequest {
        TextRequest {
            immediate: false,
            final_: true,
            continue_: false,
            lun: LunField::default(),
            itt: self.next_itt(),
            ttt: Ttt::NONE,
            cmd_sn: self.take_cmd_sn(),
            exp_stat_sn: StatSn(self.exp_stat_sn),
        }
    }

    pub(crate) fn ask(&mut self, text: TextRequest, data: &[u8]) -> Vec<Output> {
        self.request(Request::Text(text), data)
    }

    pub(crate) fn logout(&mut self, reason: u8) -> LogoutRequest {
        LogoutRequest {
            immediate: true,
            reason,
            itt: self.next_itt(),
            cid: Cid(CID),
            cmd_sn: CmdSn(self.cmd_sn),
            exp_stat_sn: StatSn(self.exp_stat_sn),
        }
    }

    /// Where no task is under way, nothing is left to wait for.
    pub(crate) fn log_out(&mut self, request: LogoutRequest) -> Vec<Output> {
        let is_idle = self.session.tasks(None).is_empty();
        let mut outputs = self.request(Request::Logout(request), &[]);
        let asked = outputs.iter().find_map(quiesce_id);
        if let Some(id) = asked.filter(|_| is_idle) {
            self.session.quiesced(id);
            outputs.extend(self.drain());
        }
        outputs
    }

    /// Takes all outputs, as a pump does.
    pub(crate) fn drain(&mut self) -> Vec<Output> {
        let mut outputs = Vec::new();
        loop {
            self.session.check();
            let Some(output) = self.session.poll_output() else { break };
            if let Output::Indication(Indication::Command(command)) = &output
                && let Some(id) = self.session.connection_of(command.task)
            {
                self.watch.allegiance.insert(command.task, id);
            }
            self.watch.see(&output);
            match &output {
                Output::Op(_, Op::Terminate) => self.terminated = true,
                Output::Op(_, Op::Release { task }) if self.releases => {
                    let event = Event::Released { task: *task };
                    self.session.handle_event(OWN, event, &[], &[], self.now);
                }
                Output::Reserve { task, .. } => self.session.reserved(*task, self.room),
                Output::Closed { reason } => self.closed = Some(reason.to_string()),
                _ => {}
            }
            if let Output::Indication(Indication::Command(command)) = output {
                let task = command.task;
                match (self.answer)(&command) {
                    Answer::Later => {}
                    Answer::Complete(completion) => self.session.complete(task, completion),
                    Answer::Receive(length) => self.session.receive_data_out(task, length),
                }
                self.commands.push(command);
            } else {
                outputs.push(output);
            }
        }
        if !self.silent {
            self.elsewhere.clone_from(&self.watch.stat_sn);
            let Watch { stat_sn, last_stat_sn, .. } = &self.watch;
            if let Some(next) = stat_sn.get(&self.at).or_else(|| last_stat_sn.get(&self.at)) {
                self.exp_stat_sn = *next;
            }
        }
        outputs
    }
}

impl Watch {
    fn see(&mut self, output: &Output) {
        match output {
            Output::Op(id, Op::Terminate) => {
                let next = self.stat_sn.remove(id).expect("terminated once");
                self.last_stat_sn.insert(*id, next);
            }
            Output::Op(id, op) => {
                assert!(self.stat_sn.contains_key(id), "nothing follows Terminate: {op:?}");
                self.see_op(*id, op);
            }
            Output::Indication(indication) => {
                assert!(
                    !self.nexus_lost
                        || matches!(
                            indication,
                            Indication::Ended { .. } | Indication::Quiesce { .. }
                        )
                );
                match indication {
                    Indication::Command(command) => {
                        let own = self.allegiance.get(&command.task);
                        let gone = own.is_some_and(|own| self.gone.contains(own));
                        assert!(!gone, "no command of a connection that is gone");
                        assert!(self.indicated.insert(command.task), "told once");
                    }
                    Indication::Ended { task } => {
                        assert!(self.indicated.remove(task));
                        // A task also ends with its connection, without a release.
                        if self.released.insert(*task) {
                            self.gone.extend(self.allegiance.get(task));
                        }
                    }
                    Indication::NexusLost => self.nexus_lost = true,
                    _ => {}
                }
            }
            Output::Closed { .. } => assert!(self.nexus_lost && self.stat_sn.is_empty()),
            Output::ConnectionClosed { connection, .. } => {
                assert!(!self.stat_sn.contains_key(connection), "closed after its Terminate");
            }
            Output::Reserve { connection, task, length, staged } => {
                assert!(self.stat_sn.contains_key(connection));
                self.see_allegiance(*connection, *task);
                assert!(self.reserved.insert(*task), "a buffer is asked for once");
                assert!(!self.released.contains(task) && !self.asked_to.contains_key(task));
                assert!(*length <= self.parameters.first_burst_length);
                assert!(staged.as_ref().is_none_or(|(_, valid)| valid <= length));
            }
            Output::Detach { connection, task } => {
                assert!(self.recovers() && self.stat_sn.contains_key(connection));
                assert!(self.buffers.insert(*task), "a buffer is taken back once");
            }
            Output::Attach { connection, task } => {
                assert!(self.stat_sn.contains_key(connection));
                self.allegiance.insert(*task, *connection);
                self.buffers.remove(task);
            }
            Output::Targets(_) => {}
        }
    }

    fn see_allegiance(&self, id: ConnectionId, task: TaskId) {
        let own = self.allegiance.get(&task).copied().unwrap_or(id);
        assert_eq!(own, id, "all PDUs of a command go to its connection");
    }

    fn see_op(&mut self, id: ConnectionId, op: &Op) {
        match op {
            Op::SendControl { response, data, task } => {
                let (numbers, advances) = numbers(response);
                let next = self.stat_sn.get(&id).copied().expect("an open connection");
                if self.recovers() && advances && numbers.stat_sn.0 != next {
                    // Sent again, with the window as it is now.
                    let back = next.wrapping_sub(numbers.stat_sn.0);
                    assert!((1..1 << 16).contains(&back), "it was sent before");
                    self.see_numbers(id, Numbers { stat_sn: StatSn(next), ..numbers }, false);
                } else {
                    self.see_numbers(id, numbers, advances);
                }
                let segment = self.segments.get(&id).copied();
                let longest = segment.unwrap_or(self.parameters.max_send_data_segment_length);
                assert!(data.len() <= longest as usize);
                if let Some(task) = task {
                    self.see_allegiance(id, *task);
                    assert!(matches!(response, Response::Scsi(_)));
                    self.see_answer(*task);
                }
                if let Response::Scsi(response) = response {
                    assert_eq!(task.is_some(), !self.recovers());
                    assert_eq!(response.response, 0);
                    assert!(self.recovers() || response.snack_tag == 0);
                }
            }
            Op::PutData { task, data, burst, numbers, status, .. } => {
                self.see_allegiance(id, *task);
                self.see_numbers(id, *numbers, status.is_some());
                assert!(!data.is_empty());
                assert!((1..=self.parameters.max_burst_length).contains(burst));
                assert!(!self.answered.contains(task) && !self.released.contains(task));
                if let Some(status) = status {
                    assert!(matches!(status.status, 0 | 4), "only good status collapses");
                    self.see_answer(*task);
                }
            }
            Op::PutNumbered(put) => {
                self.see_allegiance(id, put.task);
                let next = self.stat_sn.get(&id).copied().expect("an open connection");
                match put.status {
                    // Sent again under its number.
                    Some(_) if put.numbers.stat_sn.0 != next => {
                        let numbers = Numbers { stat_sn: StatSn(next), ..put.numbers };
                        self.see_numbers(id, numbers, false);
                    }
                    status => self.see_numbers(id, put.numbers, status.is_some()),
                }
                assert!(self.recovers() && !put.data.is_empty() && put.segment > 0);
                assert!((1..=self.parameters.max_burst_length).contains(&put.burst));
                let in_whole_segments = put.burst.is_multiple_of(put.segment);
                assert!(in_whole_segments || put.data.len() <= put.burst as usize);
                assert!(!self.released.contains(&put.task));
            }
            Op::GetNumbered(get) => {
                self.see_allegiance(id, get.task);
                self.see_numbers(id, get.numbers, false);
                assert!(self.recovers());
                assert!((1..=self.parameters.max_burst_length).contains(&get.length));
                self.bursts.entry(get.task).or_default().push((get.offset, get.length));
                let end = get.offset + get.length;
                let before = self.asked_to.get(&get.task).copied().unwrap_or(get.offset);
                assert!(get.offset == before || end <= before, "R2Ts adjoin, or ask again");
                self.asked_to.insert(get.task, end.max(before));
            }
            Op::AskAgain(get) => {
                self.see_allegiance(id, get.task);
                self.see_numbers(id, get.numbers, false);
                assert!(self.bursts[&get.task].contains(&(get.offset, get.length)));
            }
            Op::Overdue { task } => assert!(!self.released.contains(task)),
            Op::Suspend { task, .. } => {
                assert!(self.recovers());
                self.bursts.remove(task);
                // Whoever takes it over.
                self.allegiance.remove(task);
            }
            Op::GetData { task, offset, length, numbers, .. } => {
                self.see_allegiance(id, *task);
                self.see_numbers(id, *numbers, false);
                assert!((1..=self.parameters.max_burst_length).contains(length));
                let bursts = self.bursts.entry(*task).or_default();
                bursts.push((*offset, *length));
                assert!(bursts.len() <= usize::from(self.parameters.max_outstanding_r2t) + 1);
                if let Some(end) = self.asked_to.insert(*task, offset + length) {
                    assert_eq!(end, *offset, "R2Ts adjoin");
                }
            }
            Op::ExpectUnsolicited { task, offset, length, .. } => {
                self.bursts.entry(*task).or_default().push((*offset, *length));
                assert_eq!(self.asked_to.insert(*task, offset + length), None);
            }
            Op::Release { task } => assert!(self.released.insert(*task), "released once"),
            Op::Abandon { task } => {
                assert!(!self.released.contains(task));
                self.bursts.remove(task);
            }
            Op::NoticeKeys(keys) => {
                self.segments.insert(id, keys.max_send_data_segment_length);
            }
            Op::Forget { task } => assert!(self.released.contains(task), "only what has ended"),
            Op::Attach { task, .. } | Op::Detach { task } => {
                panic!("the SCSI side has the buffers, also that of {task:?}")
            }
            Op::Unname { .. } | Op::Terminate => {}
        }
    }

    /// Whether answers are kept: at level 1 only where something can be lost.
    fn recovers(&self) -> bool {
        let level = self.parameters.error_recovery_level;
        level == 2 || level == 1 && self.parameters.rdma.is_none()
    }

    fn see_answer(&mut self, task: TaskId) {
        assert!(self.answered.insert(task), "one response for each command");
        assert!(!self.released.contains(&task));
        let open = self.bursts.get(&task).map_or(0, Vec::len);
        assert_eq!(open, 0, "no status while data is on its way");
    }

    fn see_numbers(&mut self, id: ConnectionId, numbers: Numbers, advances: bool) {
        let Numbers { stat_sn, exp_cmd_sn, max_cmd_sn } = numbers;
        let next = self.stat_sn.get_mut(&id).expect("an open connection");
        assert_eq!(stat_sn.0, *next, "StatSN in order");
        if advances {
            *next = next.wrapping_add(1);
        }
        let forward = |new: u32, old: u32| new.wrapping_sub(old) < 1 << 31;
        assert!(forward(exp_cmd_sn.0, self.exp_cmd_sn), "ExpCmdSN only grows");
        assert!(forward(max_cmd_sn.0, self.max_cmd_sn), "MaxCmdSN only grows");
        let size = max_cmd_sn.0.wrapping_add(1).wrapping_sub(exp_cmd_sn.0);
        assert!(size <= self.depth, "window of {size}");
        (self.exp_cmd_sn, self.max_cmd_sn) = (exp_cmd_sn.0, max_cmd_sn.0);
    }
}

/// The numbers of a response, and whether it advances StatSN.
pub(crate) fn numbers(response: &Response) -> (Numbers, bool) {
    match response {
        Response::NopIn(pdu) => (pdu.numbers, pdu.itt != Itt::NONE),
        Response::Scsi(pdu) => (pdu.numbers, true),
        Response::TaskManagement(pdu) => (pdu.numbers, true),
        Response::Login(pdu) => (pdu.numbers, true),
        Response::Text(pdu) => (pdu.numbers, true),
        Response::DataIn(pdu) => (pdu.numbers, pdu.status.is_some()),
        Response::Logout(pdu) => (pdu.numbers, true),
        Response::R2t(pdu) => (pdu.numbers, false),
        Response::Async(pdu) => (pdu.numbers, true),
        Response::Reject(pdu) => (pdu.numbers, true),
    }
}

pub(crate) fn good() -> Completion {
    status(0)
}

pub(crate) fn status(status: u8) -> Completion {
    Completion { status, sense: Vec::new(), data_in: None, presented: 0, fence: false }
}

pub(crate) fn data(length: usize) -> Completion {
    let bytes: Vec<u8> = (0..length).map(|n| (n % 251) as u8).collect();
    Completion {
        status: 0,
        sense: Vec::new(),
        data_in: Some(Slice::from(bytes)),
        presented: length as u64,
        fence: false,
    }
}

/// The PDUs among outputs.
pub(crate) fn responses(outputs: &[Output]) -> Vec<Response> {
    let control = |output: &Output| match output {
        Output::Op(_, Op::SendControl { response, .. }) => Some(*response),
        _ => None,
    };
    outputs.iter().filter_map(control).collect()
}

/// The only PDU among outputs.
pub(crate) fn only(outputs: &[Output]) -> Response {
    let all = responses(outputs);
    assert_eq!(all.len(), 1, "{outputs:?}");
    all[0]
}

/// The data segment of the only PDU.
pub(crate) fn segment(outputs: &[Output]) -> Vec<u8> {
    let control = |output: &Output| match output {
        Output::Op(_, Op::SendControl { data, .. }) => Some(data.clone()),
        _ => None,
    };
    outputs.iter().find_map(control).expect("a PDU")
}

/// The only PDU, which is a SCSI Response.
pub(crate) fn scsi(outputs: &[Output]) -> ScsiResponse {
    match only(outputs) {
        Response::Scsi(response) => response,
        other => panic!("{other:?}"),
    }
}

/// Reason of the only PDU, which is a Reject.
pub(crate) fn reject(outputs: &[Output]) -> u8 {
    match only(outputs) {
        Response::Reject(reject) => reject.reason,
        other => panic!("{other:?}"),
    }
}

/// Response code of the only PDU, which is a Task Management Function Response.
pub(crate) fn managed(outputs: &[Output]) -> u8 {
    match only(outputs) {
        Response::TaskManagement(response) => response.response,
        other => panic!("{other:?}"),
    }
}

/// Key, code and qualifier of the only PDU, which is CHECK CONDITION with fixed sense.
pub(crate) fn sense(outputs: &[Output]) -> (u8, u8, u8) {
    assert_eq!(scsi(outputs).status, CHECK_CONDITION);
    let data = segment(outputs);
    assert_eq!(data[..2], [0, 18]);
    assert_eq!((data.len(), data[2], data[9]), (20, 0x70, 10));
    (data[4], data[14], data[15])
}

pub(crate) fn indications(outputs: &[Output]) -> Vec<&Indication> {
    let indication = |output: &'_ Output| matches!(output, Output::Indication(_));
    let all = outputs.iter().filter(|output| indication(output));
    all.map(|output| match output {
        Output::Indication(indication) => indication,
        _ => unreachable!(),
    })
    .collect()
}

pub(crate) fn dropped(outputs: &[Output], id: TaskId) -> bool {
    let drops = |i: &&Indication| matches!(i, Indication::Dropped { task } if *task == id);
    indications(outputs).iter().any(drops)
}

pub(crate) fn received(outputs: &[Output], id: TaskId) -> bool {
    let all = |i: &&Indication| matches!(i, Indication::DataOutReceived { task } if *task == id);
    indications(outputs).iter().any(all)
}

pub(crate) fn ended(outputs: &[Output], id: TaskId) -> bool {
    let ends = |i: &&Indication| matches!(i, Indication::Ended { task } if *task == id);
    indications(outputs).iter().any(ends)
}

pub(crate) fn nexus_lost(outputs: &[Output]) -> bool {
    indications(outputs).iter().any(|i| matches!(i, Indication::NexusLost))
}

/// Offsets and lengths of R2Ts.
pub(crate) fn asked(outputs: &[Output]) -> Vec<(u32, u32)> {
    let get = |output: &Output| match output {
        Output::Op(_, Op::GetData { offset, length, .. }) => Some((*offset, *length)),
        Output::Op(_, Op::GetNumbered(get)) => Some((get.offset, get.length)),
        _ => None,
    };
    outputs.iter().filter_map(get).collect()
}

/// Offset, length and whether it is dropped, of announced unsolicited data.
pub(crate) fn expected(outputs: &[Output]) -> Vec<(u32, u32, bool)> {
    let expect = |output: &Output| match output {
        Output::Op(_, Op::ExpectUnsolicited { offset, length, discard, .. }) => {
            Some((*offset, *length, *discard))
        }
        _ => None,
    };
    outputs.iter().filter_map(expect).collect()
}

/// The Management indication among outputs.
pub(crate) fn management(outputs: &[Output]) -> iscsi::service::Management {
    let all = indications(outputs);
    let found = all.iter().find_map(|i| match i {
        Indication::Management(management) => Some(*management),
        _ => None,
    });
    found.expect("a task management indication")
}

pub(crate) fn has_management(outputs: &[Output]) -> bool {
    indications(outputs).iter().any(|i| matches!(i, Indication::Management(_)))
}

/// The question whether work of ended tasks is left.
pub(crate) fn quiesce_id(output: &Output) -> Option<u32> {
    match output {
        Output::Indication(Indication::Quiesce { id }) => Some(*id),
        _ => None,
    }
}
