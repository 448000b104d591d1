// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How sessions and connections end, and their timers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use buf::Pool;
use clock::Instant;
use engine::Port;
use engine::Token;
use engine::Work;
use engine::wheel::Timers;
use iscsi::target_role::ConnectionId;
use iscsi::target_role::Traffic;
use store::IoResult;

use super::DESERTED_MAX;
use super::Kind;
use super::Phase;
use super::Pump;
use super::awaiting_memory::MemoryQueue;
use super::context::Context;
use super::decode;
use super::token;
use super::waiting::Waiting;
use crate::answers::Inbox;
use crate::mail::Letter;
use crate::reactor::Shared;
use crate::stepped::Holdings;
use crate::stopwatch::Stopwatch;
use crate::table::Key;
use crate::table::Table;

/// A connection that said all it has to say waits so long for the peer to close.
const LINGER: Duration = Duration::from_secs(3);

impl<P: Port> Pump<P> {
    pub(crate) fn new(port: P, pool: Pool, shared: Arc<Shared>, reactor: usize) -> Self {
        let inbox = Arc::new(Inbox::new(port.waker()));
        let context = Context {
            port,
            pool,
            shared,
            reactor,
            ios: Table::default(),
            inbox,
            managements: Table::default(),
            timers: Timers::new(),
            locals: Vec::new(),
            dirty: Vec::new(),
            flushing: Vec::new(),
            held: Vec::new(),
            send_at: None,
            owed: 0,
            runnable: VecDeque::new(),
            waiting: Waiting::default(),
            memory_queue: MemoryQueue::default(),
            sweeps: false,
            jobs: Table::default(),
            job_turns: VecDeque::new(),
            stopping: None,
            watch: Stopwatch::default(),
        };
        Self {
            connections: Table::default(),
            sessions: Table::default(),
            context,
            listeners: Vec::new(),
            accepted: 0,
            answers: Vec::new(),
            deserted: VecDeque::new(),
        }
    }

    pub(crate) fn listen(&mut self, listeners: Vec<std::os::fd::OwnedFd>) {
        for fd in listeners {
            let socket = self.context.port.add_socket(fd);
            self.listeners.push(socket);
            let token = Token((Kind::Accept as u64) << super::KIND_SHIFT);
            self.context.port.submit(token, Work::Accept { socket });
        }
    }

    /// The transport gives nothing more.
    pub(super) fn receive_ended(&mut self, key: Key, error: Option<i32>) {
        self.disconnected(key, error);
    }

    /// The transport of a connection is gone.
    pub(super) fn disconnected(&mut self, key: Key, error: Option<i32>) {
        let now = self.context.port.now();
        let Some(connection) = self.connections.get(key) else { return };
        let session = match connection.phase {
            Phase::Session { session, id } => Some((session, id)),
            Phase::Login(_) => {
                self.abandon_login(key);
                None
            }
            Phase::Moving(_) | Phase::Closing => None,
        };
        if let Some((session, id)) = session {
            if let Some(entry) = self.sessions.get_mut(session) {
                if let Some(errno) = error {
                    let error = std::io::Error::from_raw_os_error(errno);
                    let initiator = &entry.login.initiator;
                    tracing::warn!(%error, initiator, tsih = entry.tsih.0, "connection lost");
                }
                entry.machine.handle_disconnect(id, now);
            }
            self.settle(session);
        }
        self.remove_connection(key);
    }

    pub(super) fn remove_connection(&mut self, key: Key) {
        if let Some(connection) = self.connections.remove(key) {
            self.context.shared.strangers.leave(connection.ticket.as_ref());
            connection.line.close(&mut self.context.port);
            self.context.timers.cancel(token(Kind::ConnectionTimer, key).0);
        }
    }

    /// Half-closes a connection that has sent its last PDU and waits a little for the peer's end.
    pub(super) fn end_if_terminated(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        if connection.ended || !connection.mover.is_terminated() {
            return;
        }
        connection.ended = true;
        if let Phase::Session { session, id } = connection.phase {
            self.finish_connection(session, id);
        }
        self.begin_closing(key);
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.line.shutdown(&mut self.context.port);
        if connection.line.is_over() {
            self.remove_connection(key);
        }
    }

    /// From now on a connection only sends what is queued; a peer that does not take it is cut.
    pub(super) fn begin_closing(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.phase = Phase::Closing;
        let deadline = self.context.port.now() + LINGER;
        self.context.timers.set(token(Kind::ConnectionTimer, key).0, deadline);
        self.mark_dirty(key);
    }

    /// A session whose connection has ended by its own will needs to hear of it only if it still
    /// lives.
    fn finish_connection(&mut self, session: Key, id: ConnectionId) {
        let now = self.context.port.now();
        if let Some(entry) = self.sessions.get_mut(session)
            && !entry.closed
        {
            entry.machine.handle_disconnect(id, now);
            self.settle(session);
        }
    }

    /// A connection has left a session that goes on.
    pub(super) fn close_connection(&mut self, key: Key, id: ConnectionId, reason: &str) {
        let Some(session) = self.sessions.get(key) else { return };
        let Some(connection) = session.connections.get(usize::from(id.0)).copied() else { return };
        tracing::info!(
            initiator = session.login.initiator,
            tsih = session.tsih.0,
            reason,
            "connection closed"
        );
        let deserted = session.machine.connections().next().is_none();
        self.begin_closing(connection);
        if deserted {
            self.bound_deserted(key);
        }
    }

    /// A session waits for its initiator to come back: not too many may. One that was opened
    /// without a proof ends before all that were opened with one: whoever can open those could else
    /// push these out, under ever new names.
    fn bound_deserted(&mut self, key: Key) {
        self.deserted.retain(|other| *other != key && self.sessions.get(*other).is_some());
        self.deserted.push_back(key);
        if self.deserted.len() <= DESERTED_MAX {
            return;
        }
        let has_user = |key: &Key| self.sessions.get(*key).is_some_and(|one| one.user.is_some());
        let open = self.deserted.iter().position(|key| !has_user(key));
        let Some(oldest) = self.deserted.remove(open.unwrap_or(0)) else { return };
        if let Some(session) = self.sessions.get_mut(oldest)
            && session.machine.connections().next().is_none()
        {
            session.machine.drop_session();
            self.settle(oldest);
        }
    }

    /// The session is over: its connections close, its place is free once no store work is left.
    pub(super) fn close_session(&mut self, key: Key, reason: &str) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        if session.closed {
            return;
        }
        session.closed = true;
        tracing::info!(
            initiator = session.login.initiator,
            target = session.login.target.as_deref().unwrap_or("(discovery)"),
            tsih = session.tsih.0,
            commands = session.commands,
            reason,
            "session closed"
        );
        self.context.timers.cancel(token(Kind::SessionTimer, key).0);
        let connections = session.connections.clone();
        self.lose_nexus(key);
        for connection in connections {
            self.begin_closing(connection);
        }
        self.vacate(key);
    }

    /// Frees the place of a closed session when the engine holds nothing of it any more.
    pub(super) fn vacate(&mut self, key: Key) {
        let Some(session) = self.sessions.get(key) else { return };
        if !session.closed || session.ios > 0 {
            return;
        }
        let Some(session) = self.sessions.remove(key) else { return };
        self.context.owed = self.context.owed.saturating_sub(session.owed);
        self.context.shared.registry.release(&session.identity, session.tsih);
        for (reactor, connection) in session.waiters {
            self.context.shared.mailboxes[reactor].send(Letter::Vacated { connection });
        }
    }

    /// I_T nexus loss (SAM-5 §6.3.4): the device server forgets the nexus and its tasks.
    pub(super) fn lose_nexus(&mut self, key: Key) {
        self.context.runnable.retain(|(session, _, _)| *session != key);
        self.context.waiting.forget_session(key);
        let Some(session) = self.sessions.get_mut(key) else { return };
        let tasks = std::mem::take(&mut session.tasks);
        session.awaiting_memory.clear();
        if let Some(nexus) = session.nexus.take() {
            // The next session of the same initiator port hears of them (RFC 7143 §11.14.5).
            for unit in tasks.iter().flatten().filter_map(|task| task.scsi.unit()) {
                nexus.commands_cleared_by_iscsi(unit);
            }
            match session.waiters.is_empty() {
                true => nexus.lost(),
                false => nexus.reinstated(),
            }
        }
        for task in tasks.into_iter().flatten() {
            self.keep(key, task.id, task.scsi);
        }
        self.tell_waiting(None);
    }

    pub(super) fn tell_targets(&mut self, key: Key, only: Option<&str>) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let mut live = session.connections.iter().filter_map(|key| self.connections.get(*key));
        let local = live.next();
        let Some(local) = local.map(|connection| connection.local) else { return };
        let records = self.context.shared.nodes.records(&session.login.initiator, only, local);
        session.machine.targets(records);
    }

    pub(super) fn arm_session(&mut self, key: Key) {
        let Some(session) = self.sessions.get(key) else { return };
        if let Some(deadline) = session.machine.poll_timeout() {
            self.context.timers.set(token(Kind::SessionTimer, key).0, deadline);
        }
    }

    pub(super) fn expire(&mut self) {
        let now = self.context.port.now();
        while let Some(expired) = self.context.timers.pop_expired(now) {
            match decode(expired) {
                (Some(Kind::SessionTimer), key) => {
                    self.note_traffic(key, now);
                    if let Some(session) = self.sessions.get_mut(key) {
                        session.machine.handle_timeout(now);
                        self.settle(key);
                    }
                }
                (Some(Kind::JobTimer), key) => self.wake_job(key),
                (Some(Kind::MemoryTimer), key) => self.refuse_overdue(key),
                (Some(Kind::Sweep), _) => self.sweep(),
                (Some(Kind::ConnectionTimer), key) => self.connection_timeout(key, now),
                (Some(Kind::Io), key) => self.io_done(key, IoResult::Clock(now)),
                // The stop's own, which is looked at below.
                (None, _) => {}
                (Some(kind @ (Kind::Accept | Kind::Receive | Kind::Send)), _) => {
                    debug_assert!(false, "{kind:?} is no timer");
                }
            }
        }
        self.advance_stop(now);
    }

    /// Tells a session what its connections have carried.
    fn note_traffic(&mut self, key: Key, now: Instant) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        for (index, connection) in (0..).zip(&session.connections) {
            let Some(connection) = self.connections.get(*connection) else { continue };
            let carried = connection.mover.carried();
            let taken = connection.line.acknowledged(&self.context.port);
            let traffic = Traffic {
                taken: taken.unwrap_or(carried.left),
                asked: carried.left.saturating_add(connection.mover.backlog() as u64),
                received: carried.received,
                data_outs: carried.data_outs,
            };
            session.machine.note_traffic(ConnectionId(index), traffic, now);
        }
    }

    fn connection_timeout(&mut self, key: Key, now: Instant) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        match &mut connection.phase {
            Phase::Login(login) => {
                login.machine.handle_timeout(now);
                self.settle_login(key);
                self.arm_login(key);
            }
            Phase::Moving(_) | Phase::Closing => self.remove_connection(key),
            Phase::Session { .. } => {}
        }
    }

    /// Ends a session without a word to make room for the one that reinstates it (RFC 7143 §6.3.5).
    pub(super) fn reinstate(&mut self, key: Key, waiter: (usize, Key)) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.waiters.push(waiter);
        let connections = session.connections.clone();
        self.close_session(key, "session reinstatement");
        for connection in connections {
            self.remove_connection(connection);
        }
    }

    pub(crate) fn holdings(&self) -> Holdings {
        Holdings {
            connections: self.connections.len(),
            sessions: self.sessions.len(),
            ios: self.context.ios.len(),
            managements: self.context.managements.len(),
            waiting: self.context.waiting.len(),
            jobs: self.context.jobs.len(),
            pool_bytes: self.context.pool.bytes_in_use(),
            warm_bytes: self.context.pool.bytes_resident(),
        }
    }
}
