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
//! An event is about one session, connection or job, which is looked up once and lent as a view
//! (`view.rs`) to the functions that carry it.
//!
//! A READ enters in [`Pump::received`], reaches SCSI in [`SessionView::command`] and the store in
//! [`SessionView::advance`] (`services.rs`), comes back through [`Pump::io_done`] (`storing.rs`) if
//! the store needed the engine, and leaves in [`ConnectionView::transmit`] (`sending.rs`).

mod adapters;
mod admission;
mod awaiting_memory;
mod buffers;
mod complaint;
mod context;
mod course;
mod devices;
mod exchange;
mod fencing;
mod figures;
mod followers;
mod foreign;
mod held;
mod jobs;
mod join;
mod keeping;
mod letter;
mod letters;
mod lifecycle;
mod listening;
mod management;
mod owed;
mod quiescence;
mod rdma;
mod reservations;
mod review;
mod sending;
mod services;
mod shared;
mod silence;
mod stopping;
mod storing;
mod sweep;
mod tally;
mod transport;
mod view;
mod waiting;
mod watching;

pub(crate) use followers::Followers;
pub(crate) use join::Handover;
pub(crate) use letter::Letter;
pub(crate) use shared::Shared;
pub use transport::LocalEnd;
pub(crate) use transport::OurEnd;
pub(crate) use waiting::Board;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use buf::Buf;
use buf::Pool;
use clock::Instant;
use engine::Event;
use engine::Port;
use engine::Token;
use iscsi::datamover::TaskId;
use iscsi::service::Indication;
use iscsi::target_role::ConnectionId;
use iscsi::target_role::Output;
use mover::Mover;
use store::Io;
use store::IoResult;
use store::foreign::Errand;
use wire::iscsi::BHS_LEN;
use wire::iscsi::BhsView;
use wire::iscsi::Cdb;
use wire::iscsi::OPCODE_LOGIN_REQUEST;
use wire::iscsi::OPCODE_SCSI_COMMAND;
use wire::iscsi::StatSn;
use wire::iscsi::Tsih;

use context::Context;
use course::Courses;
use held::Held;
use view::ConnectionView;
use view::Effect;
use view::SessionView;

use crate::catalogue::Terms;
use crate::ends::Ends;
use crate::ends::Peer;
use crate::figures::Traffic;
use crate::registry::Identity;
use crate::stopwatch::Layer;
use crate::strangers::Ticket;
use crate::table::Key;
use crate::table::Table;

/// A sleep whose end nobody has set.
const REST_MAX: Duration = Duration::from_secs(60);

/// Where the CDB is in the BHS of a SCSI Command (RFC 7143 §11.3).
const CDB_AT: usize = 32;

/// Events worth waking for while answers are held back.
const HOLD_EVENTS: usize = 8;

/// Sessions that wait on one reactor for their initiators to come back; one more ends the oldest.
/// An initiator that comes and goes under ever new names must not use up all sessions.
pub(crate) const DESERTED_MAX: usize = 1024;

/// One reactor's share of a target.
#[derive(Debug)]
pub(crate) struct Pump<P> {
    connections: Table<Connection>,
    sessions: Table<Session>,
    jobs: Table<jobs::Job>,
    context: Context<P>,
    door: admission::Door,
    deserted: lifecycle::Deserted,
    /// What sessions and connections have carried that are there no more.
    gone: Traffic,
}

#[derive(Debug)]
struct Connection {
    line: transport::Line,
    peer: Peer,
    local: SocketAddr,
    mover: Mover,
    /// What its session has of the pool.
    pool: Pool,
    phase: Phase,
    /// Its entry among the strangers, until it is known who it is.
    ticket: Option<Ticket>,
    dirty: bool,
    paused: bool,
    /// Bytes of messages that waited on it when it was looked at last, which are counted for all.
    messages: usize,
    /// Data may go from the port straight to its buffer.
    lands: bool,
    /// Everything has been said and the socket is half closed.
    ended: bool,
    /// Answers are held back until then, to go with others.
    held_until: Option<Instant>,
    /// Answers before this number have left.
    told: StatSn,
    progress: sweep::Progress,
    /// Traces are told what it carries.
    followers: Option<Box<Followers>>,
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
    machine: iscsi::target_role::Session,
    /// None in a discovery session.
    nexus: Option<scsi::Nexus>,
    /// What the session has of the reactor's pool: buffers of its commands, and their data.
    pool: Pool,
    login: iscsi::target_role::LoggedIn,
    /// On which it was let in, or would be now.
    terms: Terms,
    identity: Identity,
    /// Whom the initiator has proved to be, by CHAP; all connections must have the same.
    user: Option<String>,
    tsih: Tsih,
    since: Instant,
    /// Who began it.
    peer: Peer,
    /// By connection id.
    connections: Vec<Key>,
    /// Commands in the hands of the device server, by `TaskId::index`.
    tasks: Vec<Option<services::Task>>,
    courses: Courses,
    /// What limits hold.
    held: Held,
    /// Those that wait for memory, the oldest first.
    awaiting_memory: VecDeque<awaiting_memory::Waiter>,
    /// Numbers that have another unit, of which its initiator need not know yet.
    exchanges: Vec<exchange::Exchange>,
    /// Bytes that wait to leave for its initiator, at most.
    owed: usize,
    /// And what of stores in memory they keep from others.
    lent: owed::Lent,
    /// When some of that left last while commands waited for it.
    paid: Instant,
    /// Store work under way that its end waits for; a session is gone only when there is none.
    ios: usize,
    /// Logins that wait for the end of this session: reactor and connection.
    waiters: Vec<(usize, Key)>,
    closed: bool,
    /// Its timer is set at the end of the turn.
    to_arm: bool,
    commands: u64,
    bytes_in: u64,
    bytes_out: u64,
    /// How long its commands took, of those that were timed.
    took: tally::Took,
}

#[derive(Debug)]
struct PendingIo {
    session: Key,
    task: TaskId,
    doing: Doing,
    /// The task if it has ended before its work: what it holds of the unit stays held until then.
    ended: Option<Box<scsi::Task>>,
    /// Task management that waits for this work of an ended task.
    managements: Vec<Key>,
    /// How long it is waited for.
    patience: fencing::Patience,
    /// It is under way at least since then: somebody began to wait for the end of other work.
    seen: Option<Instant>,
    /// When it began, by the stop-watch.
    stamp: u64,
    /// When it began, if a store has it done elsewhere.
    begun: Option<Instant>,
    /// Of a sync or durable write.
    watching: Option<watching::Watching>,
}

/// What is done for a task.
#[derive(Debug)]
enum Doing {
    /// This, for its store.
    Store { op: store::Op, io: Io },
    /// A state of its unit is being kept.
    Keep,
    /// The device of its unit carries it out.
    Device(Errand),
    /// The device of a unit is reset, for nobody's task.
    Reset(Errand),
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
    MemoryTimer = 8,
    Sweep = 9,
    EndTimer = 10,
    SilenceTimer = 11,
    Adapter = 12,
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
        8 => Some(Kind::MemoryTimer),
        9 => Some(Kind::Sweep),
        10 => Some(Kind::EndTimer),
        11 => Some(Kind::SilenceTimer),
        12 => Some(Kind::Adapter),
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
        self.context.watch.laps.begin();
        while let Some((token, event)) = self.context.port.next_event() {
            self.dispatch(token, event);
        }
        self.context.watch.laps.lap(Layer::Protocol);
        self.take_messages();
        self.letters();
        self.take_answers();
        self.expire();
        self.take_turns();
        self.try_again();
        self.release_held();
        self.take_job_turns();
        self.serve_memory_queue();
        self.context.watch.laps.lap(Layer::Other);
        self.flush();
        self.arm_sessions();
        self.context.watch.laps.lap(Layer::Send);
        debug_assert!(self.context.effects.is_empty(), "who has a view sees to what it means");
        if self.is_finished() {
            self.leave();
            return false;
        }
        let again = match self.context.waiting.is_empty() {
            true => None,
            false => self.context.waiting.next_try(self.context.port.now()),
        };
        let again = again.into_iter().chain(self.next_look()).chain(self.context.held.next()).min();
        let kernel = self.context.port.kernel_cycles();
        match (self.context.sending.send_at(), again) {
            _ if !(self.context.runnable.is_empty() && self.context.job_turns.is_empty()) => {
                self.context.port.wait(Some(self.context.port.now()))
            }
            (hold, Some(at)) => {
                let others = [hold, self.context.timers.next_deadline()];
                self.context.port.wait(others.into_iter().flatten().chain([at]).min());
            }
            (Some(at), None) => self.context.port.wait_n(HOLD_EVENTS, at),
            (None, None) => self.rest(),
        }
        self.context.watch.laps.waited(self.context.port.kernel_cycles().wrapping_sub(kernel));
        true
    }

    /// Waits for what comes next. While threads of others work for us it is they who need the
    /// processor, so there is no spinning then.
    fn rest(&mut self) {
        let Context { port, timers, errands, .. } = &mut self.context;
        match *errands {
            0 => port.wait(timers.next_deadline()),
            _ => port.wait_n(1, timers.next_deadline().unwrap_or_else(|| port.now() + REST_MAX)),
        }
    }

    fn dispatch(&mut self, token: Token, event: Event) {
        let (kind, key) = decode(token.0);
        match event {
            Event::Received { bytes } => {
                if self.context.is_observed {
                    self.note_received(key, &bytes);
                }
                self.received(key, &bytes);
            }
            Event::Landed { buf, bytes } => self.landed(key, buf, bytes),
            Event::Sent { list, result } => self.sent(key, list, result),
            Event::Read { buf, result } => {
                let result = result.map(|length| {
                    let mut buf = buf;
                    buf.truncate(length);
                    buf.freeze()
                });
                self.io_done(key, IoResult::Read(result));
            }
            Event::Wrote { result } | Event::Synced { result } | Event::Cleared { result } => {
                self.io_done(key, IoResult::Other(result))
            }
            Event::Allocation { result } => self.io_done(key, IoResult::ProvisioningStatus(result)),
            Event::Ready if kind == Some(Kind::Adapter) => self.knocked(key),
            Event::Ready => self.stirred(key),
            // No more come in.
            Event::ReceiveEnded { .. } if kind == Some(Kind::Adapter) => {}
            Event::ReceiveEnded { error } => self.receive_ended(key, error),
            Event::Accepted { connection, peer, local } => {
                self.accepted(connection, Ends { peer: Peer::Address(peer), local });
            }
            Event::Detached { connection } => self.detached(key, connection),
            Event::AcceptFailed { errno } => {
                debug_assert_eq!(kind, Some(Kind::Accept));
                self.accept_failed(key, errno);
            }
            Event::Ran { result } => self.kept(key, result),
            Event::Woken => {}
        }
    }

    #[cold]
    fn note_received(&mut self, key: Key, bytes: &[u8]) {
        if let Some(mut view) = self.connection(key) {
            view.note_received(bytes);
        }
    }

    /// Bytes of a connection: READ and WRITE begin here.
    fn received(&mut self, key: Key, bytes: &[u8]) {
        let mut rest = bytes;
        let now = self.context.port.now();
        // What came before may have ended it.
        while let Some(mut view) = self.connection(key)
            && (!rest.is_empty() || transport::has_more(&view.connection.mover))
        {
            let connection = &mut *view.connection;
            match &mut connection.phase {
                Phase::Closing => return,
                Phase::Moving(moving) => {
                    if !moving.keep(rest) {
                        self.disconnected(key, None);
                    }
                    return;
                }
                Phase::Login(login) if login.first.is_none() => {
                    let first = rest.first().copied().unwrap_or_default();
                    if !self.tell_kind(key, first) {
                        return self.disconnected(key, None);
                    }
                    continue;
                }
                Phase::Login(_) | Phase::Session { .. } => {}
            }
            let (taken, event) = transport::feed(&mut connection.mover, rest, &connection.pool);
            rest = rest.get(taken..).unwrap_or_default();
            view.context.watch.laps.fed(taken);
            if let Some(event) = event {
                view.foresee(rest);
                let next = view.take_event(event, now);
                self.settle_next(key, next);
            }
        }
        self.go_on_receiving(key);
    }

    /// Bytes have come where they belong.
    fn landed(&mut self, key: Key, buf: Buf, bytes: usize) {
        let Some(mut view) = self.connection(key) else { return };
        let now = view.context.port.now();
        let connection = &mut *view.connection;
        if let Some(followers) = &mut connection.followers {
            followers.landed(view.context.port.wall_clock(), bytes, &connection.mover);
        }
        let event = transport::landed(&mut connection.mover, buf, bytes, &connection.pool);
        view.context.watch.laps.fed(0);
        if let Some(event) = event {
            let next = view.take_event(event, now);
            self.settle_next(key, next);
        }
        self.go_on_receiving(key);
    }

    fn settle_next(&mut self, key: Key, next: ToSettle) {
        match next {
            ToSettle::Login => self.settle_login(key),
            ToSettle::Session(session) => {
                self.settle(session);
                self.context.watch.laps.lap(Layer::Protocol);
            }
            ToSettle::Nobody => {}
        }
    }

    /// What was received may have ended the connection.
    fn go_on_receiving(&mut self, key: Key) {
        if let Some(mut view) = self.connection(key) {
            view.connection.land(&mut view.context.port);
            view.mark_dirty();
        }
    }

    /// Carries everything that a session has to say, and what that means for others.
    fn settle(&mut self, key: Key) {
        self.carry_out_effects();
        while let Some(mut view) = self.session(key) {
            match view.settle() {
                Settled::All => return,
                Settled::Over => return self.vacate(key),
                Settled::InPart => self.carry_out_effects(),
            }
        }
    }
}

/// Who has something to say after an event of a mover.
enum ToSettle {
    Login,
    Session(Key),
    Nobody,
}

/// How far a session has said what it has to say.
enum Settled {
    All,
    /// What it means for others comes first.
    InPart,
    /// It is closed, and nothing of it is under way.
    Over,
}

impl<P: Port> ConnectionView<'_, P> {
    #[cold]
    fn note_received(&mut self, bytes: &[u8]) {
        let (connection, port) = (&mut *self.connection, &self.context.port);
        connection.line.note_received(bytes, port);
        // RDMA may begin with the first byte.
        let is_new = |login: &admission::LoginPhase| login.first.is_none();
        let begins = matches!(&connection.phase, Phase::Login(login) if is_new(login));
        let opcode = bytes.first().copied().unwrap_or_default() & 0x3f;
        if let Some(followers) = &mut connection.followers
            && (!begins || opcode == OPCODE_LOGIN_REQUEST)
        {
            followers.received(port.wall_clock(), bytes, &connection.mover);
        }
    }

    #[cold]
    fn note_heard(&mut self, event: &iscsi::datamover::Event) {
        let connection = &mut *self.connection;
        if let Some(followers) = &mut connection.followers {
            followers.heard(self.context.port.wall_clock(), event, &connection.mover);
        }
    }

    /// While this command is carried out the memory can fetch what the next one is about.
    #[inline]
    fn foresee(&mut self, rest: &[u8]) {
        let Ok(bhs) = BhsView::new_checked(rest) else { return };
        if bhs.opcode() == OPCODE_SCSI_COMMAND
            && let Some(cdb) = rest.get(CDB_AT..BHS_LEN).and_then(Cdb::new)
            && let Some((_, Session { nexus: Some(nexus), .. }, _)) = self.session()
        {
            nexus.foresee(bhs.lun(), &cdb);
        }
    }

    /// What a mover made of bytes.
    fn take_event(&mut self, event: iscsi::datamover::Event, now: Instant) -> ToSettle {
        if self.context.is_observed {
            self.note_heard(&event);
        }
        if let Phase::Login(login) = &mut self.connection.phase {
            let mover = &self.connection.mover;
            login.machine.handle_event(event, mover.header(), mover.control_data(), now);
            return ToSettle::Login;
        }
        let Phase::Session { session: key, .. } = self.connection.phase else {
            return ToSettle::Nobody;
        };
        if let Some((connection, session, id)) = self.session() {
            if let Some(expected) = connection.mover.take_acknowledged() {
                session.machine.acknowledge(id, expected, now);
            }
            let mover = &connection.mover;
            session.machine.handle_event(id, event, mover.header(), mover.control_data(), now);
        }
        ToSettle::Session(key)
    }
}

impl<P: Port> SessionView<'_, P> {
    /// Carries what the session has to say, until that means something for others.
    fn settle(&mut self) -> Settled {
        while self.context.effects.is_empty() {
            match self.session.machine.poll_output() {
                Some(Output::Op(id, op)) => {
                    let connection = self.session.connection(self.connections, id);
                    if let Some((key, entry)) = connection {
                        if let Some(followers) = &mut entry.followers {
                            followers.said(self.context.port.wall_clock(), &op, &entry.mover);
                        }
                        entry.mover.submit(op);
                        self.context.sending.mark(key, &mut entry.dirty);
                    }
                }
                Some(Output::Indication(indication)) => self.indicate(indication),
                Some(Output::Targets(only)) => self.tell_targets(only.as_deref()),
                Some(Output::Reserve { task, length, staged, .. }) => {
                    self.reserve_buf(task, (length, staged));
                }
                Some(Output::Detach { connection, task }) => self.detach_buf(connection, task),
                Some(Output::Attach { connection, task }) => self.attach_buf(connection, task),
                Some(Output::ConnectionClosed { connection, reason }) => {
                    self.close_connection(connection, reason);
                }
                Some(Output::Closed { reason }) => {
                    if self.close(reason) {
                        return Settled::Over;
                    }
                }
                None if self.mover_events() => {}
                None => {
                    self.arm_later();
                    return Settled::All;
                }
            }
        }
        Settled::InPart
    }

    /// Feeds what submitting and sending made of movers' events; false if there were none.
    fn mover_events(&mut self) -> bool {
        let mut now = None;
        for (index, connection) in (0..).zip(&self.session.connections) {
            let Some(connection) = self.connections.get_mut(*connection) else { continue };
            while let Some(event) = connection.mover.poll_event() {
                let id = ConnectionId(index);
                let now = *now.get_or_insert_with(|| self.context.port.now());
                if let iscsi::datamover::Event::Released { task } = event {
                    self.context.owed.come_back(self.session.lent.take(task));
                }
                self.session.machine.handle_event(id, event, &[], &[], now);
            }
        }
        now.is_some()
    }

    fn indicate(&mut self, indication: Indication) {
        match indication {
            Indication::Command(command) => self.command(command),
            Indication::DataOutReceived { task } => self.data_out_received(task),
            Indication::Dropped { task } => self.drop_task(task),
            Indication::Cleared { task } => self.clear_task(task),
            Indication::Quiesce { id } => self.quiesce_for_logout(id),
            // Its mover has given the buffer back.
            Indication::Ended { .. } => {}
            Indication::Management(request) => self.effect(Effect::Manage(request)),
            Indication::OutOfBuffers => self.effect(Effect::GiveUpKeptData),
            Indication::NexusLost => self.lose_nexus(),
        }
    }
}
