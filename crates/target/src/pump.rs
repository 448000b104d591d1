// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The pump: the one loop where engine, mover, iscsi, scsi and store meet.
//!
//! Machines take values and give values; the pump carries them across the borders:
//!
//! ```text
//! engine --bytes--> mover --Event--> iscsi --Indication--> scsi --Op--> store --Io--> engine
//!        <-SgList--       <--Op----        <-Completion--       <-Outcome--     <-Event-
//! ```
//!
//! A READ enters in [`Pump::received`], reaches SCSI in [`Pump::command`], the store in
//! [`Pump::advance`], comes back through [`Pump::io_done`] (`storing.rs`) if the store needed the
//! engine, and leaves in [`Pump::transmit`] (`sending.rs`).

mod admission;
mod buffers;
mod jobs;
mod join;
mod lifecycle;
mod management;
mod sending;
mod storing;
mod waiting;

pub(crate) use join::Handover;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use buf::Buf;
use buf::Pool;
use buf::SgList;
use buf::Slice;
use clock::Instant;
use engine::Event;
use engine::Port;
use engine::Socket;
use engine::Token;
use engine::wheel::Timers;
use iscsi::datamover::TaskId;
use iscsi::service;
use iscsi::service::Indication;
use iscsi::target::ConnectionId;
use iscsi::target::Output;
use mover::tcp::Tcp;
use scsi::Input;
use scsi::Step;
use store::Io;
use store::IoResult;
use store::Submitted;
use wire::iscsi::StatSn;
use wire::iscsi::Tsih;

use crate::reactor::Shared;
use crate::registry::Identity;
use crate::stopwatch::Layer;
use crate::stopwatch::Stopwatch;
use crate::table::Key;
use crate::table::Table;

/// Status codes of SAM-5 §5.3.1 that the pump itself gives.
const TASK_SET_FULL: u8 = 0x28;

/// Synchronous store steps that one command may take before others get their turn.
const STEPS_PER_TURN: u32 = 16;

/// Events worth waking for while answers are held back.
const HOLD_EVENTS: usize = 8;

/// Sessions that wait on one reactor for their initiators to come back; one more ends the oldest.
/// An initiator that comes and goes under ever new names must not use up all sessions.
pub(crate) const DESERTED_MAX: usize = 1024;

/// One reactor's share of a target.
#[derive(Debug)]
pub(crate) struct Pump<P> {
    port: P,
    pool: Pool,
    shared: Arc<Shared>,
    reactor: usize,
    listeners: Vec<Socket>,
    connections: Table<Connection>,
    sessions: Table<Session>,
    ios: Table<PendingIo>,
    managements: Table<management::Management>,
    timers: Timers,
    /// Connections that may have something to send.
    dirty: Vec<Key>,
    /// `dirty` of the turn before, kept for its memory.
    flushing: Vec<Key>,
    /// Connections whose answers are held back.
    held: Vec<Key>,
    /// When the first connection whose answers are held back must send.
    send_at: Option<Instant>,
    /// Commands that used up their turn.
    runnable: VecDeque<(Key, TaskId, Step)>,
    /// Commands that wait for others.
    waiting: waiting::Waiting,
    jobs: Table<jobs::Job>,
    /// Jobs that can go on.
    job_turns: VecDeque<jobs::Turn>,
    /// Sessions that were left without a connection, the oldest first.
    deserted: VecDeque<Key>,
    accepted: usize,
    stopping: Option<lifecycle::Stopping>,
    watch: Stopwatch,
}

#[derive(Debug)]
struct Connection {
    socket: Socket,
    peer: SocketAddr,
    local: SocketAddr,
    mover: Tcp,
    phase: Phase,
    /// The list to fill; None while it is under way.
    list: Option<SgList>,
    dirty: bool,
    paused: bool,
    /// Everything has been said and the socket is half closed.
    ended: bool,
    /// Answers are held back until then, to go with others.
    held_until: Option<Instant>,
    /// Answers before this number have left.
    told: StatSn,
}

#[derive(Debug)]
enum Phase {
    Login(Box<admission::LoginPhase>),
    Session {
        session: Key,
        id: ConnectionId,
    },
    /// On the way to the reactor of the session that it wants to join.
    Moving(Box<join::Moving>),
    /// Sends what is queued, then closes.
    Closing,
}

/// A session as the pump holds it.
#[derive(Debug)]
struct Session {
    machine: iscsi::target::Session,
    /// None in a discovery session.
    nexus: Option<scsi::Nexus>,
    login: iscsi::target::LoggedIn,
    identity: Identity,
    /// Whom the initiator has proved to be, by CHAP; all connections must have the same.
    user: Option<String>,
    tsih: Tsih,
    since: Instant,
    /// By connection id.
    connections: Vec<Key>,
    /// Commands in the hands of the device server, by `TaskId::index`.
    tasks: Vec<Option<Task>>,
    /// Store work under way; a session is gone only when there is none.
    ios: usize,
    /// Logins that wait for the end of this session: reactor and connection.
    waiters: Vec<(usize, Key)>,
    closed: bool,
    commands: u64,
    bytes_in: u64,
    bytes_out: u64,
}

/// A command in the hands of the device server.
#[derive(Debug)]
struct Task {
    id: TaskId,
    scsi: scsi::Task,
    immediate: Option<(Buf, u32)>,
    expected_out: u32,
    /// Bytes of write data that the device server asked for and the initiator can give.
    wanted: u32,
}

#[derive(Debug)]
struct PendingIo {
    session: Key,
    task: TaskId,
    op: store::Op,
    io: Io,
    /// The task if it has ended before its work: what it holds of the unit stays held until then.
    ended: Option<scsi::Task>,
    /// Task management that waits for this work of an ended task.
    managements: Vec<Key>,
    /// When it began, by the stop-watch.
    stamp: u64,
}

/// What a token of the port means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Accept = 1,
    Receive = 2,
    Send = 3,
    Io = 4,
    ConnectionTimer = 5,
    SessionTimer = 6,
    JobTimer = 7,
}

const KIND_SHIFT: u32 = 56;

fn token(kind: Kind, key: Key) -> Token {
    Token((kind as u64) << KIND_SHIFT | key.to_bits())
}

fn decode(token: u64) -> (Option<Kind>, Key) {
    let kind = match token >> KIND_SHIFT {
        1 => Some(Kind::Accept),
        2 => Some(Kind::Receive),
        3 => Some(Kind::Send),
        4 => Some(Kind::Io),
        5 => Some(Kind::ConnectionTimer),
        6 => Some(Kind::SessionTimer),
        7 => Some(Kind::JobTimer),
        _ => None,
    };
    (kind, Key::from_bits(token & ((1 << KIND_SHIFT) - 1)))
}

impl<P: Port> Pump<P> {
    /// Serves until a letter tells it to stop and the last connection is closed.
    pub(crate) fn serve(&mut self) {
        while self.turn() {}
    }

    /// Does what there is to do, then waits once. False: it is stopped and all is over.
    pub(crate) fn turn(&mut self) -> bool {
        self.watch.laps.begin();
        while let Some((token, event)) = self.port.next_event() {
            self.dispatch(token, event);
        }
        self.watch.laps.lap(Layer::Protocol);
        self.letters();
        self.expire();
        self.take_turns();
        self.try_again();
        self.take_job_turns();
        self.watch.laps.lap(Layer::Other);
        self.flush();
        self.watch.laps.lap(Layer::Send);
        if self.is_finished() {
            return false;
        }
        let again = match self.waiting.is_empty() {
            true => None,
            false => self.waiting.next_try(self.port.now()),
        };
        let kernel = self.port.kernel_cycles();
        match (self.send_at, again) {
            _ if !(self.runnable.is_empty() && self.job_turns.is_empty()) => {
                self.port.wait(Some(self.port.now()))
            }
            (hold, Some(at)) => {
                let others = [hold, self.timers.next_deadline()];
                self.port.wait(others.into_iter().flatten().chain([at]).min());
            }
            (Some(at), None) => self.port.wait_n(HOLD_EVENTS, at),
            (None, None) => self.port.wait(self.timers.next_deadline()),
        }
        self.watch.laps.waited(self.port.kernel_cycles().wrapping_sub(kernel));
        true
    }

    fn dispatch(&mut self, token: Token, event: Event) {
        let (kind, key) = decode(token.0);
        match event {
            Event::Received { bytes } => self.received(key, &bytes),
            Event::Sent { list, result } => self.sent(key, list, result),
            Event::Read { buf, result } => {
                let result = result.map(|length| {
                    let mut buf = buf;
                    buf.truncate(length);
                    buf.freeze()
                });
                self.io_done(key, IoResult::Read(result));
            }
            Event::Wrote { result }
            | Event::Synced { result }
            | Event::Punched { result }
            | Event::Zeroed { result } => self.io_done(key, IoResult::Other(result)),
            Event::ReceiveEnded { error } => self.receive_ended(key, error),
            Event::Accepted { connection, peer } => self.accepted(connection, peer),
            Event::Detached { connection } => self.detached(key, connection),
            Event::AcceptFailed { errno } => {
                debug_assert_eq!(kind, Some(Kind::Accept));
                let error = std::io::Error::from_raw_os_error(errno);
                tracing::warn!(%error, "could not accept a connection");
            }
            Event::Woken => {}
        }
    }

    /// Bytes of a connection: READ and WRITE begin here.
    fn received(&mut self, key: Key, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let now = self.port.now();
            let Some(connection) = self.connections.get_mut(key) else { return };
            match &mut connection.phase {
                Phase::Closing => return,
                Phase::Moving(moving) => {
                    if moving.keep(rest) {
                        return;
                    }
                    return self.disconnected(key, None);
                }
                Phase::Login(_) | Phase::Session { .. } => {}
            }
            let (taken, event) = connection.mover.feed(rest, &self.pool);
            rest = rest.get(taken..).unwrap_or_default();
            self.watch.laps.fed(taken);
            let Some(event) = event else { continue };
            match &mut connection.phase {
                Phase::Login(login) => {
                    let mover = &connection.mover;
                    login.machine.handle_event(event, mover.header(), mover.control_data(), now);
                    self.settle_login(key);
                }
                Phase::Session { session, id } => {
                    let (session, id) = (*session, *id);
                    if let Some(entry) = self.sessions.get_mut(session) {
                        let mover = &connection.mover;
                        let (header, data) = (mover.header(), mover.control_data());
                        entry.machine.handle_event(id, event, header, data, now);
                    }
                    self.settle(session);
                    self.watch.laps.lap(Layer::Protocol);
                }
                Phase::Moving(_) | Phase::Closing => return,
            }
        }
        self.mark_dirty(key);
    }

    /// Carries everything that a session has to say.
    fn settle(&mut self, key: Key) {
        while let Some(session) = self.sessions.get_mut(key) {
            match session.machine.poll_output() {
                Some(Output::Op(id, op)) => {
                    let connection = session.connections.get(usize::from(id.0)).copied();
                    if let Some(connection) = connection
                        && let Some(entry) = self.connections.get_mut(connection)
                    {
                        entry.mover.submit(op);
                        self.mark_dirty(connection);
                    }
                }
                Some(Output::Indication(indication)) => self.indicate(key, indication),
                Some(Output::Targets(only)) => self.tell_targets(key, only.as_deref()),
                Some(Output::Reserve { task, length, staged, .. }) => {
                    self.reserve_buf(key, task, (length, staged));
                }
                Some(Output::Detach { connection, task }) => self.detach_buf(key, connection, task),
                Some(Output::Attach { connection, task }) => self.attach_buf(key, connection, task),
                Some(Output::ConnectionClosed { connection, reason }) => {
                    self.close_connection(key, connection, &reason);
                }
                Some(Output::Closed { reason }) => self.close_session(key, &reason),
                None if self.mover_events(key) => {}
                None => break,
            }
        }
        self.arm_session(key);
    }

    /// Feeds what submitting and sending made of movers' events; false if there were none.
    fn mover_events(&mut self, key: Key) -> bool {
        let now = self.port.now();
        let Some(session) = self.sessions.get_mut(key) else { return false };
        let mut any = false;
        for (index, connection) in (0..).zip(&session.connections) {
            let Some(connection) = self.connections.get_mut(*connection) else { continue };
            while let Some(event) = connection.mover.poll_event() {
                session.machine.handle_event(ConnectionId(index), event, &[], &[], now);
                any = true;
            }
        }
        any
    }

    fn indicate(&mut self, key: Key, indication: Indication) {
        match indication {
            Indication::Command(command) => self.command(key, command),
            Indication::DataOutReceived { task } => self.data_out_received(key, task),
            Indication::Dropped { task } => {
                self.drop_task(key, task);
            }
            Indication::Cleared { task } => self.clear_task(key, task),
            Indication::Quiesce { id } => self.quiesce_for_logout(key, id),
            // Its mover has given the buffer back.
            Indication::Ended { .. } => {}
            Indication::Management(request) => self.manage(key, request),
            Indication::OutOfBuffers => {
                self.give_up_kept_data();
            }
            Indication::NexusLost => self.lose_nexus(key),
        }
    }

    /// SCSI Command Received.
    fn command(&mut self, key: Key, command: service::Command) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.commands += 1;
        self.watch.command();
        let id = command.task;
        let Some(nexus) = &session.nexus else {
            return session.machine.complete(id, empty_completion(TASK_SET_FULL));
        };
        if command.exhausted {
            return session.machine.complete(id, empty_completion(TASK_SET_FULL));
        }
        let (scsi, step) = nexus.start(&scsi::Request {
            lun: command.lun,
            cdb: command.cdb,
            attribute: command.attribute,
            expected_out: command.expected_out,
            expected_in: command.expected_in,
        });
        self.watch.laps.lap(Layer::Scsi);
        let task = Task {
            id,
            scsi,
            immediate: command.immediate,
            expected_out: command.expected_out,
            wanted: 0,
        };
        session.put_task(task);
        self.advance(key, id, step);
    }

    /// Runs a command until it waits for data, for the engine or for its next turn, or is complete.
    fn advance(&mut self, key: Key, id: TaskId, mut step: Step) {
        for _ in 0..STEPS_PER_TURN {
            let op = match step {
                Step::ReceiveDataOut { length } => return self.receive_data_out(key, id, length),
                Step::Complete(completion) => return self.complete(key, id, completion),
                Step::Wait => return self.wait_for_others(key, id),
                Step::Abort { victims } => return self.preempt(key, id, victims),
                Step::Clock => return self.tell_time(key, id),
                Step::Draw => return self.draw(key, id),
                Step::Spawn { job, completion } => return self.spawn(key, id, *job, completion),
                Step::Store(op) => op,
            };
            let Some(session) = self.sessions.get_mut(key) else { return };
            let (Some(nexus), Some(task)) = (&session.nexus, task_of(&mut session.tasks, id))
            else {
                return;
            };
            let Some(store) = task.scsi.store() else { return };
            match store.submit(&op) {
                Submitted::Done(outcome) => {
                    self.watch.stored(&op);
                    step = task.scsi.resume(nexus, Input::Store(outcome));
                    self.watch.laps.lap(Layer::Scsi);
                }
                Submitted::Io(io) => return self.submit_io(key, id, op, io),
            }
        }
        match step {
            Step::Wait => self.wait_for_others(key, id),
            Step::Store(_) | Step::Abort { .. } | Step::Clock | Step::Draw | Step::Spawn { .. } => {
                self.runnable.push_back((key, id, step))
            }
            Step::ReceiveDataOut { length } => self.receive_data_out(key, id, length),
            Step::Complete(completion) => self.complete(key, id, completion),
        }
    }

    /// Gives commands that used up their turn another one.
    fn take_turns(&mut self) {
        for _ in 0..self.runnable.len() {
            let Some((key, id, step)) = self.runnable.pop_front() else { return };
            self.advance(key, id, step);
            self.settle(key);
        }
    }

    /// Gives a command what it waits for.
    fn resume(&mut self, key: Key, id: TaskId, input: Input) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let (Some(nexus), Some(task)) = (&session.nexus, task_of(&mut session.tasks, id)) else {
            return;
        };
        let step = task.scsi.resume(nexus, input);
        self.advance(key, id, step);
    }

    /// Receive Data-Out: the task gets a buffer before the initiator is asked for the rest.
    fn receive_data_out(&mut self, key: Key, id: TaskId, length: u32) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let Some(task) = task_of(&mut session.tasks, id) else { return };
        task.wanted = length.min(task.expected_out);
        let need = session.machine.buffer_need(id, length);
        let staged = task.immediate.take();
        let staged = if need.is_reserved { self.take_reserved(key, id).or(staged) } else { staged };
        let buf = self.widen(staged, need.length as usize);
        let Some(session) = self.sessions.get_mut(key) else { return };
        let Some(buf) = buf else {
            session.take_task(id);
            return session.machine.complete(id, empty_completion(TASK_SET_FULL));
        };
        let connection = session.connection_of(id);
        match connection.and_then(|key| self.connections.get_mut(key)) {
            Some(connection) => connection.mover.attach(id, buf),
            // Its connection is gone: the buffer waits with the task for another one.
            None => session.park_buf(id, buf),
        }
        session.machine.receive_data_out(id, length);
    }

    /// Data-Out Received: all write data is in the task's buffer.
    fn data_out_received(&mut self, key: Key, id: TaskId) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let connection = session.connection_of(id);
        let Some(connection) = connection.and_then(|key| self.connections.get_mut(key)) else {
            return;
        };
        let Some(mut buf) = connection.mover.detach(id) else { return };
        let (Some(nexus), Some(task)) = (&session.nexus, task_of(&mut session.tasks, id)) else {
            return;
        };
        buf.truncate(task.wanted as usize);
        session.bytes_out += u64::from(task.wanted);
        self.watch.laps.lap(Layer::Protocol);
        let step = task.scsi.resume(nexus, Input::DataOut(buf.freeze()));
        self.watch.laps.lap(Layer::Scsi);
        self.advance(key, id, step);
    }

    /// Send SCSI Command Complete.
    fn complete(&mut self, key: Key, id: TaskId, completion: scsi::Completion) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        if session.take_task(id).is_none() {
            return;
        }
        if completion.fence {
            session.machine.set_now(self.port.now());
        }
        self.waiting.somebody_ended();
        session.bytes_in += completion.data_in.as_ref().map_or(0, |data| data.len() as u64);
        let data_in = match completion.data_in {
            Some(data) if session.machine.keeps_data() => {
                self.watch.copied += data.len() as u64;
                Some(buffers::private(&self.pool, data))
            }
            data => data,
        };
        let completion = service::Completion {
            status: completion.status,
            sense: completion.sense,
            data_in,
            presented: completion.presented,
            fence: completion.fence,
        };
        session.machine.complete(id, completion);
    }
}

impl Session {
    /// The connection of a task that has not been answered.
    fn connection_of(&self, task: TaskId) -> Option<Key> {
        let id = self.machine.connection_of(task)?;
        self.connections.get(usize::from(id.0)).copied()
    }

    fn put_task(&mut self, task: Task) {
        let index = task.id.index as usize;
        if self.tasks.len() <= index {
            self.tasks.resize_with(index + 1, || None);
        }
        if let Some(slot) = self.tasks.get_mut(index) {
            *slot = Some(task);
        }
    }

    fn take_task(&mut self, id: TaskId) -> Option<Task> {
        let slot = self.tasks.get_mut(id.index as usize)?;
        slot.take_if(|task| task.id == id)
    }
}

fn task_of(tasks: &mut [Option<Task>], id: TaskId) -> Option<&mut Task> {
    tasks.get_mut(id.index as usize)?.as_mut().filter(|task| task.id == id)
}

/// A completion that is a status and nothing else.
fn empty_completion(status: u8) -> service::Completion {
    let (sense, data_in) = (Vec::new(), None::<Slice>);
    service::Completion { status, sense, data_in, presented: 0, fence: false }
}
