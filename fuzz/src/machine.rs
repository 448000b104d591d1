// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The whole target machine: connections that log in, join, do I/O and vanish, a session, a disk
//! that answers when it likes, and time, in any order of steps.
//!
//! The steps are structured by `arbitrary`: most PDUs are nearly right, so that they get far. The
//! invariants of every machine are checked after each step; at the end nothing may be left.

mod commands;

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::time::Duration;

use arbitrary::Arbitrary;
use arbitrary::Unstructured;
use buf::Pool;
use buf::SgList;
use clock::Instant;
use iscsi::datamover::Capabilities;
use iscsi::datamover::Event;
use iscsi::datamover::Op;
use iscsi::datamover::TaskId;
use iscsi::service::Indication;
use iscsi::target_role::Admission;
use iscsi::target_role::Authentication;
use iscsi::target_role::ConnectionId;
use iscsi::target_role::LoggedIn;
use iscsi::target_role::Login;
use iscsi::target_role::LoginOutput;
use iscsi::target_role::Output;
use iscsi::target_role::Session;
use iscsi::target_role::Settings;
use iscsi::target_role::TargetRecord;
use mover::tcp::Tcp;
use wire::iscsi::StatSn;
use wire::iscsi::Tsih;

use crate::authentication::authentication;
use crate::disk::Disk;
use crate::pdu::Knowledge;
use crate::pdu::LoginStep;
use crate::pdu::PduStep;
use crate::with_pool;

use commands::Command;

const CONNECTIONS: usize = 4;
const STEPS_MAX: usize = 400;
const SESSION_DOES_NOT_EXIST: u16 = 0x020a;

/// What happens next.
#[derive(Arbitrary, Debug)]
enum Step {
    /// A Login Request; on a connection that does not exist it makes one.
    Login(u8, LoginStep),
    /// A PDU of full feature phase, in pieces of so many bytes.
    Pdu(u8, PduStep, u8),
    /// Bytes that are nothing.
    Noise(u8, [u8; 8]),
    /// Time passes: milliseconds as a power of two.
    Time(u8),
    /// The connection takes what waits for it, or takes no more.
    Flow(u8, bool),
    /// The disk goes on with this one of its commands.
    Disk(u8),
    /// From now on the disk answers at once, or when it is told to.
    Eager(bool),
    /// The transport of a connection is gone.
    Cut(u8),
    /// Administration.
    RequestLogout(u8),
    /// Administration.
    Drop,
}

/// Steps until the input ends.
pub fn target_machine(data: &[u8]) {
    with_pool(|pool| {
        let mut input = Unstructured::new(data);
        let Ok(policy) = input.arbitrary::<(u8, bool, bool)>() else { return };
        let mut world = World::new(pool, policy);
        for _ in 0..STEPS_MAX {
            if input.is_empty() {
                break;
            }
            let Ok(step) = input.arbitrary::<Step>() else { break };
            world.step(step);
            world.try_again();
            world.check();
        }
        world.end();
    });
}

struct World<'a> {
    pool: &'a Pool,
    demand: Authentication,
    settings: Settings,
    connections: [Option<Connection>; CONNECTIONS],
    session: Option<Session>,
    /// Which connection has which id.
    members: Vec<Option<usize>>,
    disk: Disk,
    tasks: BTreeMap<TaskId, Command>,
    /// Commands that wait for the disk, with their next step.
    waiting: VecDeque<(TaskId, scsi::Step)>,
    /// Commands that wait for others.
    blocked: Vec<TaskId>,
    /// Questions that wait for the disk.
    quiesce: VecDeque<u32>,
    management: VecDeque<u32>,
    eager: bool,
    known: Knowledge,
    now: Instant,
}

struct Connection {
    mover: Tcp,
    login: Option<Login>,
    tsih: Tsih,
    cid: wire::iscsi::Cid,
    member: Option<ConnectionId>,
    stalled: bool,
    over: bool,
}

impl<'a> World<'a> {
    fn new(pool: &'a Pool, (policy, any_order, markers): (u8, bool, bool)) -> Self {
        let settings = Settings {
            data_pdu_in_order: !any_order,
            data_sequence_in_order: !any_order,
            markers,
            queue_depth: 8,
            time2retain: 20,
            ..Settings::default()
        };
        Self {
            pool,
            demand: authentication(policy),
            settings,
            connections: [const { None }; CONNECTIONS],
            session: None,
            members: Vec::new(),
            disk: Disk::new(),
            tasks: BTreeMap::new(),
            waiting: VecDeque::new(),
            blocked: Vec::new(),
            quiesce: VecDeque::new(),
            management: VecDeque::new(),
            eager: true,
            known: Knowledge::default(),
            now: Instant(0),
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Login(at, login) => {
                let at = usize::from(at) % CONNECTIONS;
                if self.connections[at].is_none() {
                    self.connections[at] = Some(self.connect());
                }
                let bytes = login.emit(&self.known);
                self.receive(at, &bytes, bytes.len());
            }
            Step::Pdu(at, pdu, piece) => {
                let bytes = pdu.emit(&mut self.known);
                self.receive(usize::from(at) % CONNECTIONS, &bytes, usize::from(piece) * 7 + 1);
            }
            Step::Noise(at, bytes) => self.receive(usize::from(at) % CONNECTIONS, &bytes, 3),
            Step::Time(power) => self.pass(Duration::from_millis(1 << (power % 18))),
            Step::Flow(at, stalled) => {
                if let Some(connection) = &mut self.connections[usize::from(at) % CONNECTIONS] {
                    connection.stalled = stalled;
                }
                self.settle();
            }
            Step::Disk(which) => self.turn(usize::from(which)),
            Step::Eager(eager) => {
                self.eager = eager;
                self.settle();
            }
            Step::Cut(at) => self.cut(usize::from(at) % CONNECTIONS),
            Step::RequestLogout(seconds) => {
                if let Some(session) = &mut self.session {
                    session.request_logout(seconds.into());
                }
                self.settle();
            }
            Step::Drop => {
                if let Some(session) = &mut self.session {
                    session.drop_session();
                }
                self.settle();
            }
        }
    }

    fn connect(&self) -> Connection {
        Connection {
            mover: Tcp::new(),
            login: Some(Login::new(
                self.now,
                StatSn(1),
                Duration::from_secs(15),
                Capabilities::STREAM,
            )),
            tsih: Tsih(0),
            cid: wire::iscsi::Cid(0),
            member: None,
            stalled: false,
            over: false,
        }
    }

    /// Bytes for a connection, in pieces.
    fn receive(&mut self, at: usize, bytes: &[u8], piece: usize) {
        for part in bytes.chunks(piece) {
            let mut rest = part;
            while !rest.is_empty() {
                let Some(connection) = &mut self.connections[at] else { return };
                if connection.over {
                    return;
                }
                let (taken, event) = connection.mover.feed(rest, self.pool);
                rest = rest.get(taken..).expect("a mover takes no more than it is given");
                if let Some(event) = event {
                    self.event(at, event);
                } else {
                    assert!(rest.is_empty(), "feed always goes on");
                }
            }
        }
    }

    fn event(&mut self, at: usize, event: Event) {
        let Some(connection) = &mut self.connections[at] else { return };
        let mover = &connection.mover;
        if let Some(login) = &mut connection.login {
            login.handle_event(event, mover.header(), mover.control_data(), self.now);
        } else if let (Some(id), Some(session)) = (connection.member, &mut self.session) {
            session.handle_event(id, event, mover.header(), mover.control_data(), self.now);
        }
        self.login(at);
        self.settle();
    }

    /// Carries out what a login says.
    fn login(&mut self, at: usize) {
        while let Some(connection) = &mut self.connections[at]
            && let Some(login) = &mut connection.login
        {
            match login.poll_output() {
                None => return,
                Some(LoginOutput::Op(op)) => drop(connection.mover.submit(op)),
                Some(LoginOutput::Admit(request)) => {
                    (connection.tsih, connection.cid) = (request.tsih, request.cid);
                    login.admit(Admission::Granted {
                        portal_group_tag: 1,
                        target_alias: None,
                        settings: self.settings.clone(),
                        authentication: self.demand.clone(),
                    });
                }
                Some(LoginOutput::Establish) => self.establish(at),
                Some(LoginOutput::Done(logged_in)) => self.enter(at, logged_in),
                Some(LoginOutput::Failed { .. }) => connection.over = true,
            }
        }
    }

    fn establish(&mut self, at: usize) {
        let Some(connection) = &mut self.connections[at] else { return };
        let (tsih, cid) = (connection.tsih, connection.cid);
        let required = matches!(self.demand, Authentication::Required(_));
        let Some(login) = &mut connection.login else { return };
        assert!(!required || login.authenticated().is_some(), "a login without its proof");
        if tsih == Tsih(0) {
            // Session reinstatement: there is one session here.
            if let Some(mut session) = self.session.take() {
                session.drop_session();
                self.session = Some(session);
                self.settle();
                self.forget_session();
            }
            let tsih = Tsih(self.known.next_tsih());
            self.answer(at, None, Ok(tsih));
            return;
        }
        let admitted = match &self.session {
            Some(session) if tsih == self.known.tsih() => session.admits(cid, Capabilities::STREAM),
            _ => Err(SESSION_DOES_NOT_EXIST),
        };
        if let Err(status) = admitted {
            return self.answer(at, None, Err(status));
        }
        if let Some(session) = &mut self.session {
            session.replace_connection(cid, self.now);
        }
        self.settle();
        match &self.session {
            Some(session) if session.admits(cid, Capabilities::STREAM).is_ok() => {
                let window = session.command_window();
                self.answer(at, Some(window), Ok(tsih));
            }
            _ => self.answer(at, None, Err(SESSION_DOES_NOT_EXIST)),
        }
    }

    fn answer(
        &mut self,
        at: usize,
        window: Option<(wire::iscsi::CmdSn, wire::iscsi::CmdSn)>,
        result: Result<Tsih, u16>,
    ) {
        let Some(Connection { login: Some(login), .. }) = &mut self.connections[at] else { return };
        if let Some(window) = window {
            login.join(window);
        }
        login.establish(result);
    }

    fn enter(&mut self, at: usize, logged_in: LoggedIn) {
        let Some(connection) = &mut self.connections[at] else { return };
        connection.login = None;
        let id = match &mut self.session {
            Some(session) => session.add_connection(&logged_in, self.now),
            None => {
                self.known.begin(&logged_in);
                self.session = Some(Session::new(logged_in, &self.settings, self.now));
                ConnectionId(0)
            }
        };
        connection.member = Some(id);
        let index = usize::from(id.0);
        if self.members.len() <= index {
            self.members.resize(index + 1, None);
        }
        self.members[index] = Some(at);
        self.settle();
    }

    /// Whatever can go on now, goes on.
    fn settle(&mut self) {
        loop {
            while let Some(output) = self.session.as_mut().and_then(Session::poll_output) {
                self.carry_out(output);
            }
            for at in 0..CONNECTIONS {
                self.transmit(at);
            }
            let told = self.mover_events();
            if self.eager && !self.waiting.is_empty() {
                self.turn(0);
            } else if self.eager && self.answer_questions() {
            } else if !told {
                break;
            }
        }
        if self.session.as_ref().is_some_and(|session| session.connections().count() == 0)
            && self.session.as_ref().is_some_and(|session| session.poll_timeout().is_none())
        {
            self.forget_session();
        }
    }

    fn mover_events(&mut self) -> bool {
        let mut any = false;
        for connection in self.connections.iter_mut().flatten() {
            while let Some(event) = connection.mover.poll_event() {
                any = true;
                if let (Some(id), Some(session)) = (connection.member, &mut self.session) {
                    session.handle_event(id, event, &[], &[], self.now);
                }
            }
        }
        any
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Op(id, op) => {
                if let Some(connection) = self.member(id) {
                    connection.mover.submit(op);
                }
            }
            Output::Targets(_) => {
                let record = TargetRecord {
                    name: "iqn.2026-01.test.lunwire:disk".to_owned(),
                    addresses: vec!["127.0.0.1:3260,1".to_owned(); 40],
                };
                if let Some(session) = &mut self.session {
                    session.targets(vec![record]);
                }
            }
            Output::ConnectionClosed { connection, .. } => self.close(connection),
            Output::Closed { .. } => {
                for index in 0..self.members.len() {
                    self.close(ConnectionId(u16::try_from(index).expect("few")));
                }
            }
            Output::Indication(indication) => self.indicate(indication),
            Output::Reserve { connection, task, length, staged } => {
                self.reserve(connection, task, (length, staged));
            }
            Output::Detach { connection, task } => {
                let buf =
                    self.member(connection).and_then(|at| at.mover.submit(Op::Detach { task }));
                self.park(task, buf);
            }
            Output::Attach { connection, task } => {
                let buf = self.unpark(task);
                if let (Some(at), Some(buf)) = (self.member(connection), buf) {
                    at.mover.submit(Op::Attach { task, buf });
                }
            }
        }
    }

    fn member(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        let at = self.members.get(usize::from(id.0)).copied().flatten()?;
        self.connections[at].as_mut()
    }

    /// A connection belongs to the session no more; it says what it has to say, then it is gone.
    fn close(&mut self, id: ConnectionId) {
        if let Some(connection) = self.member(id) {
            connection.member = None;
            connection.over = true;
        }
        if let Some(member) = self.members.get_mut(usize::from(id.0)) {
            *member = None;
        }
    }

    fn indicate(&mut self, indication: Indication) {
        match indication {
            Indication::Command(command) => self.start(command),
            Indication::DataOutReceived { task } => self.data_out(task),
            Indication::Dropped { task } | Indication::Cleared { task } => self.forget(task),
            Indication::Quiesce { id } => self.quiesce.push_back(id),
            Indication::Ended { task } => {
                for connection in self.connections.iter_mut().flatten() {
                    drop(connection.mover.submit(Op::Detach { task }));
                }
            }
            Indication::Management(request) => {
                let tasks = self.session.as_ref().map(|session| session.tasks(None));
                for task in tasks.unwrap_or_default() {
                    self.forget(task);
                }
                self.management.push_back(request.id);
            }
            Indication::OutOfBuffers => {
                if let Some(session) = &mut self.session {
                    session.give_up_kept_data();
                }
            }
            Indication::NexusLost => {
                self.tasks.clear();
                self.waiting.clear();
            }
        }
    }

    /// Sends what waits, and remembers what the initiator learns from it.
    fn transmit(&mut self, at: usize) {
        let Some(connection) = &mut self.connections[at] else { return };
        let mut list = SgList::new();
        while !connection.stalled && connection.mover.poll_transmit(&mut list) {
            let bytes = list.to_vec();
            connection.mover.handle_sent();
            self.known.hear(&bytes);
        }
        if connection.over && (connection.mover.is_terminated() || connection.stalled) {
            self.connections[at] = None;
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        for at in 0..CONNECTIONS {
            if let Some(Connection { login: Some(login), .. }) = &mut self.connections[at] {
                login.handle_timeout(self.now);
            }
            self.login(at);
        }
        if let Some(session) = &mut self.session
            && session.poll_timeout().is_some_and(|due| due <= self.now)
        {
            session.handle_timeout(self.now);
        }
        self.settle();
    }

    fn cut(&mut self, at: usize) {
        let Some(connection) = &mut self.connections[at] else { return };
        connection.over = true;
        if let (Some(id), Some(session)) = (connection.member, &mut self.session) {
            session.handle_disconnect(id, self.now);
        }
        // Tasks that live on take their buffers along.
        self.settle();
        let Some(connection) = self.connections[at].take() else { return };
        if let Some(id) = connection.member
            && let Some(member) = self.members.get_mut(usize::from(id.0))
        {
            *member = None;
        }
    }

    /// The session is over: nothing of it is left.
    fn forget_session(&mut self) {
        self.session = None;
        self.tasks.clear();
        self.waiting.clear();
        self.quiesce.clear();
        self.management.clear();
        for (index, member) in std::mem::take(&mut self.members).into_iter().enumerate() {
            let Some(at) = member else { continue };
            if let Some(connection) = &mut self.connections[at] {
                debug_assert_eq!(connection.member, Some(ConnectionId(index as u16)));
                connection.member = None;
                connection.over = true;
            }
        }
        for at in 0..CONNECTIONS {
            self.transmit(at);
        }
    }

    fn check(&self) {
        if let Some(session) = &self.session {
            session.check();
        }
        for connection in self.connections.iter().flatten() {
            connection.mover.check();
        }
    }

    /// Everybody leaves; every buffer must come back.
    fn end(&mut self) {
        self.eager = true;
        for at in 0..CONNECTIONS {
            self.cut(at);
        }
        self.pass(Duration::from_secs(10_000));
        if let Some(session) = &mut self.session {
            session.drop_session();
        }
        self.settle();
        self.check();
        self.forget_session();
    }
}
