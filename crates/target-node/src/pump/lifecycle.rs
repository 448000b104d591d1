// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How sessions and connections end, and their timers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use buf::Pool;
use clock::Instant;
use engine::Port;
use engine::wheel::Timers;
use iscsi::target_role::ConnectionId;
use iscsi::target_role::Ending;
use store::IoResult;

use super::Connection;
use super::DESERTED_MAX;
use super::Kind;
use super::Phase;
use super::Pump;
use super::Session;
use super::admission::Door;
use super::awaiting_memory::MemoryQueue;
use super::context::Context;
use super::decode;
use super::held::HeldBoard;
use super::letter::Letter;
use super::owed::Owed;
use super::quiescence::Managements;
use super::sending::Sending;
use super::services::Runnable;
use super::shared::Shared;
use super::tally::Tally;
use super::token;
use super::transport::Line;
use super::view::ConnectionView;
use super::view::Effect;
use super::view::Effects;
use super::view::SessionView;
use super::view::never;
use super::waiting::Waiting;
use crate::answers::Inbox;
use crate::catalogue::Way;
use crate::events::Event;
use crate::figures::Holdings;
use crate::figures::Traffic;
use crate::stopwatch::Stopwatch;
use crate::table::Key;
use crate::table::Table;

/// A connection that said all it has to say waits so long for the peer to close.
const LINGER: Duration = Duration::from_secs(3);

impl<P: Port> Pump<P> {
    pub(crate) fn new(port: P, pool: Pool, shared: Arc<Shared>, reactor: usize) -> Self {
        let inbox = Arc::new(Inbox::new(port.waker()));
        let is_observed = shared.capture.is_some();
        let context = Context {
            port,
            pool,
            shared,
            reactor,
            ios: Table::default(),
            inbox,
            errands: 0,
            looks_for_silence: false,
            left: 0,
            answers: Vec::new(),
            managements: Managements::default(),
            timers: Timers::new(),
            to_arm: Vec::new(),
            locals: Vec::new(),
            stirred: Vec::new(),
            knocks: Vec::new(),
            sending: Sending::default(),
            owed: Owed::default(),
            runnable: Runnable::default(),
            waiting: Waiting::default(),
            held: HeldBoard::default(),
            memory_queue: MemoryQueue::default(),
            sweeps: false,
            job_turns: VecDeque::new(),
            effects: Effects::new(),
            stopping: None,
            traces: Vec::new(),
            is_observed,
            watch: Stopwatch::default(),
            tally: Tally::default(),
        };
        Self {
            connections: Table::default(),
            sessions: Table::default(),
            jobs: Table::default(),
            context,
            door: Door::default(),
            gone: Traffic::default(),
            deserted: Deserted::default(),
        }
    }

    /// The transport gives nothing more.
    pub(super) fn receive_ended(&mut self, key: Key, error: Option<i32>) {
        if let Some(view) = self.connection(key) {
            if matches!(view.connection.phase, Phase::Moving(_))
                && matches!(view.connection.line, Line::Adapter(_))
            {
                return self.detached(key, None);
            }
            view.connection.line.note_ended(error, &view.context.port);
        }
        self.disconnected(key, error);
    }

    /// The transport of a connection is gone; it may be gone itself by now.
    pub(super) fn disconnected(&mut self, key: Key, error: Option<i32>) {
        let Some(mut view) = self.connection(key) else { return };
        let session = match view.connection.phase {
            Phase::Session { session, .. } => {
                view.disconnect(error);
                self.settle(session);
                Some(session)
            }
            Phase::Login(_) => {
                view.abandon_login();
                None
            }
            Phase::Moving(_) | Phase::Closing => None,
        };
        self.remove_connection(key);
        self.owes_it_no_more(session);
    }

    pub(super) fn remove_connection(&mut self, key: Key) {
        if let Some(connection) = self.connections.remove(key) {
            self.context.owed.replace_messages(connection.messages, 0);
            self.gone.connections.join(connection.mover.counters());
            self.context.shared.strangers.leave(connection.ticket.as_ref());
            if let Some(followers) = connection.followers {
                followers.closed(self.context.port.wall_clock());
            }
            connection.line.close(&mut self.context.port);
            self.context.timers.cancel(token(Kind::ConnectionTimer, key).0);
        }
    }

    /// Half-closes a connection that has sent its last PDU and waits a little for the peer's end.
    pub(super) fn end_connection(&mut self, key: Key) {
        let Some(mut view) = self.connection(key) else {
            return never("it has just been looked at");
        };
        view.connection.ended = true;
        let session = view.finish();
        if let Some(session) = session {
            self.settle(session);
        }
        if let Some(view) = self.connection(key) {
            view.context.begin_closing(key, view.connection);
            view.connection.line.shutdown(&mut view.context.port);
            if view.connection.line.is_over() {
                self.remove_connection(key);
            }
        }
        self.owes_it_no_more(session);
    }

    /// What a connection that has gone had to send holds up no read on the others of its session.
    fn owes_it_no_more(&mut self, session: Option<Key>) {
        if let Some(mut view) = session.and_then(|key| self.session(key)) {
            view.owes_less();
        }
    }

    /// A session waits for its initiator to come back: not too many may. One that was opened
    /// without a proof ends before all that were opened with one: whoever can open those could else
    /// push these out, under ever new names.
    pub(super) fn bound_deserted(&mut self, key: Key) {
        if let Some(one) = self.deserted.bound(key, &self.sessions)
            && let Some(view) = self.session(one)
            && view.session.machine.connections().next().is_none()
        {
            self.drop_session(one);
        }
    }

    /// Ends a session, if it is still there, without a word.
    pub(super) fn drop_session(&mut self, key: Key) {
        if let Some(view) = self.session(key) {
            view.session.machine.drop_session();
        }
        self.settle(key);
    }

    /// Frees the place of a closed session when the engine holds nothing of it any more that its
    /// end waits for.
    pub(super) fn vacate(&mut self, key: Key) {
        let is_free = |session: &Session| session.closed && session.ios == 0;
        if !self.sessions.get(key).is_some_and(is_free) {
            return;
        }
        let Some(session) = self.sessions.remove(key) else { return never("it is there") };
        self.gone.count_session(session.commands, session.bytes_in, session.bytes_out);
        self.context.owed.close(&session.lent);
        let shared = &self.context.shared;
        shared.registry.release(&session.identity, session.tsih);
        for (reactor, connection) in session.waiters {
            shared.mailboxes[reactor].send(Letter::Vacated { connection });
        }
    }

    /// Sets the timers of sessions that something has happened to.
    pub(super) fn arm_sessions(&mut self) {
        while let Some(key) = self.context.to_arm.pop() {
            let Some(view) = self.session(key) else { continue };
            view.session.to_arm = false;
            if let Some(deadline) = view.session.machine.poll_timeout() {
                view.context.timers.set(token(Kind::SessionTimer, key).0, deadline);
            }
        }
    }

    pub(super) fn expire(&mut self) {
        let now = self.context.port.now();
        while let Some(expired) = self.context.timers.pop_expired(now) {
            match decode(expired) {
                (Some(Kind::SessionTimer), key) => {
                    if let Some(mut view) = self.session(key) {
                        view.note_traffic(now);
                        view.session.machine.handle_timeout(now);
                        self.settle(key);
                    }
                }
                (Some(Kind::JobTimer), key) => self.context.wake_job(key),
                (Some(Kind::MemoryTimer), key) => {
                    if let Some(mut view) = self.session(key) {
                        view.refuse_overdue();
                    }
                    self.settle(key);
                }
                (Some(Kind::Sweep), _) => self.sweep(),
                (Some(Kind::ConnectionTimer), key) => self.connection_timeout(key, now),
                (Some(Kind::Io), key) => self.io_done(key, IoResult::Clock(now)),
                (Some(Kind::EndTimer), key) => self.leave_behind(key),
                (Some(Kind::SilenceTimer), _) => self.find_silences(),
                // The stop's own, which is looked at below.
                (None, _) => {}
                (Some(kind @ (Kind::Accept | Kind::Receive | Kind::Send | Kind::Adapter)), _) => {
                    debug_assert!(false, "{kind:?} is no timer");
                }
            }
        }
        self.advance_stop(now);
    }

    fn connection_timeout(&mut self, key: Key, now: Instant) {
        let Some(ConnectionView { connection, .. }) = self.connection(key) else { return };
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
        let Some(mut view) = self.session(key) else { return };
        view.session.waiters.push(waiter);
        view.context.tally.visits.reinstated_sessions += 1;
        let connections = view.session.connections.clone();
        if view.close(Ending::Reinstated) {
            self.vacate(key);
        }
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
            held: self.sessions.iter().map(|(_, session)| session.held.count()).sum(),
            jobs: self.jobs.len(),
            pool_bytes: self.context.pool.bytes_in_use(),
            warm_bytes: self.context.pool.bytes_resident(),
        }
    }
}

/// Sessions that were left without a connection, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Deserted(VecDeque<Key>);

impl Deserted {
    /// Another one was left; gives the one that is too many.
    fn bound(&mut self, key: Key, sessions: &Table<Session>) -> Option<Key> {
        self.0.retain(|other| *other != key && sessions.get(*other).is_some());
        self.0.push_back(key);
        if self.0.len() <= DESERTED_MAX {
            return None;
        }
        let has_user = |key: &Key| sessions.get(*key).is_some_and(|one| one.user.is_some());
        let open = self.0.iter().position(|key| !has_user(key));
        self.0.remove(open.unwrap_or(0))
    }
}

impl<P: Port> Context<P> {
    /// From now on a connection only sends what is queued; a peer that does not take it is cut.
    pub(super) fn begin_closing(&mut self, key: Key, connection: &mut Connection) {
        connection.phase = Phase::Closing;
        let deadline = self.port.now() + LINGER;
        self.timers.set(token(Kind::ConnectionTimer, key).0, deadline);
        self.sending.mark(key, &mut connection.dirty);
    }
}

impl<P: Port> ConnectionView<'_, P> {
    /// Its session hears that its transport is gone.
    fn disconnect(&mut self, error: Option<i32>) {
        let now = self.context.port.now();
        if error.is_some() {
            self.context.tally.visits.lost_connections += 1;
        }
        let Some((connection, session, id)) = self.session() else { return };
        if let Some(errno) = error {
            let error = std::io::Error::from_raw_os_error(errno);
            let (peer, initiator) = (connection.peer, &session.login.initiator);
            let tsih = session.tsih.0;
            tracing::warn!(
                name: Event::Loss.name(), %peer, initiator, tsih, %error, "connection lost"
            );
        }
        session.machine.handle_disconnect(id, now);
    }

    /// It has ended by its own will: its session needs to hear of it only if it still lives.
    fn finish(&mut self) -> Option<Key> {
        let now = self.context.port.now();
        let (_, session, id) = self.session()?;
        if session.closed {
            return None;
        }
        session.machine.handle_disconnect(id, now);
        match self.connection.phase {
            Phase::Session { session, .. } => Some(session),
            Phase::Login(_) | Phase::Moving(_) | Phase::Closing => None,
        }
    }
}

impl<P: Port> SessionView<'_, P> {
    /// A connection has left a session that goes on.
    pub(super) fn close_connection(&mut self, id: ConnectionId, reason: Ending) {
        let session = &*self.session;
        let peer = session.connection(self.connections, id);
        let peer = peer.map_or(session.peer, |(_, connection)| connection.peer);
        let (initiator, tsih) = (&session.login.initiator, session.tsih.0);
        let (is_orderly, reason) = (reason.is_orderly(), &*reason.to_string());
        match is_orderly {
            true => tracing::info!(
                name: Event::Logout.name(), %peer, initiator, tsih, reason, "connection closed"
            ),
            false => tracing::info!(
                name: Event::Loss.name(), %peer, initiator, tsih, reason, "connection closed"
            ),
        }
        if let Some((key, connection)) = session.connection(self.connections, id) {
            self.context.begin_closing(key, connection);
        }
        if session.machine.connections().next().is_none() {
            self.effect(Effect::Deserted);
        }
    }

    /// The session is over: its connections close. True if its place is free; else it is when no
    /// store work of it is left.
    pub(super) fn close(&mut self, reason: Ending) -> bool {
        let session = &mut *self.session;
        if session.closed {
            return false;
        }
        session.closed = true;
        session.tell_end(reason);
        self.context.timers.cancel(token(Kind::SessionTimer, self.key).0);
        self.lose_nexus();
        for key in &self.session.connections {
            if let Some(connection) = self.connections.get_mut(*key) {
                self.context.begin_closing(*key, connection);
            }
        }
        self.session.ios == 0
    }

    /// I_T nexus loss (SAM-5 §6.3.4): the device server forgets the nexus and its tasks.
    pub(super) fn lose_nexus(&mut self) {
        // Who is back already keeps it (RFC 7143 §4.4.3.2).
        if self.session.waiters.is_empty() {
            self.end_reservations("NEXUS LOSS");
        }
        let (session, context, own) = (&mut *self.session, &mut *self.context, self.key);
        context.runnable.forget_session(own);
        context.waiting.forget_session(own);
        session.held.forget_all();
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
            context.keep(own, task.id, task.scsi);
        }
        context.tell_waiting(None);
    }

    pub(super) fn tell_targets(&mut self, only: Option<&str>) {
        let session = &mut *self.session;
        let mut live = session.connections.iter().filter_map(|key| self.connections.get(*key));
        let reached = live.next().map(|connection| {
            let adapter = connection.line.adapter_facts();
            (adapter.map_or(Way::Socket, |_| Way::Adapter), connection.local)
        });
        let Some(reached) = reached else { return never("who asks has a connection") };
        let nodes = self.context.shared.catalogue.now();
        let records = nodes.records(&session.login.initiator, only, reached);
        session.machine.targets(records);
    }

    /// A timer is set once for all that a turn brings.
    #[inline]
    pub(super) fn arm_later(&mut self) {
        if !std::mem::replace(&mut self.session.to_arm, true) {
            self.context.to_arm.push(self.key);
        }
    }

    /// Tells the session what its connections have carried.
    fn note_traffic(&mut self, now: Instant) {
        for (index, connection) in (0..).zip(&self.session.connections) {
            let Some(connection) = self.connections.get(*connection) else { continue };
            let (mover, left) = (&connection.mover, connection.mover.left());
            let taken = connection.line.acknowledged(&self.context.port);
            let traffic = iscsi::target_role::Traffic {
                taken: taken.unwrap_or(left),
                asked: left.saturating_add(mover.backlog() as u64),
                received: mover.counters().bytes_in,
                data_outs: mover.counters().pdus_in.data_out,
            };
            self.session.machine.note_traffic(ConnectionId(index), traffic, now);
        }
    }
}

impl Session {
    /// For the log.
    fn tell_end(&self, reason: Ending) {
        let (initiator, tsih, commands) = (&self.login.initiator, self.tsih.0, self.commands);
        let peer = self.peer;
        let target = self.login.target.as_deref().unwrap_or("(discovery)");
        let (is_orderly, reason) = (reason.is_orderly(), &*reason.to_string());
        match is_orderly {
            true => tracing::info!(
                name: Event::Logout.name(), %peer, initiator, target, tsih, commands, reason,
                "session closed"
            ),
            false => tracing::info!(
                name: Event::Loss.name(), %peer, initiator, target, tsih, commands, reason,
                "session closed"
            ),
        }
    }
}
