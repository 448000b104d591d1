// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Logins that join a session that exists: a further connection, connection reinstatement, session
//! continuation (RFC 7143 §6.3.1, §6.3.4, §6.3.6).
//!
//! All connections of a session live on its reactor. The first Login Request names the session, so
//! a login on the wrong reactor moves before it is answered: the port gives the socket back, and a
//! letter brings it there with mover, login machine, the question that stands open, and bytes that
//! came too early.

use std::os::fd::OwnedFd;

use engine::Port;
use iscsi::target_role::AdmissionRequest;
use iscsi::target_role::ConnectionId;
use iscsi::target_role::LoggedIn;
use mover::Mover;

use super::Connection;
use super::Followers;
use super::Kind;
use super::Phase;
use super::Pump;
use super::admission::AUTHENTICATION_FAILURE;
use super::admission::Elsewhere;
use super::admission::LoginPhase;
use super::admission::LoginView;
use super::admission::SESSION_DOES_NOT_EXIST;
use super::letter::Letter;
use super::token;
use super::transport::Carrier;
use super::view::ConnectionView;
use super::view::never;
use crate::ends::Ends;
use crate::events::Event;
use crate::registry::Identity;
use crate::table::Key;

/// Bytes that a peer may send before its login is answered: it has nothing to say then.
const EARLY_BYTES_MAX: usize = 64 << 10;

/// A login that waits for its socket to be free.
#[derive(Debug)]
pub(super) struct Moving {
    reactor: usize,
    login: Box<LoginPhase>,
    request: AdmissionRequest,
    /// What came meanwhile.
    early: Vec<u8>,
}

impl Moving {
    /// Keeps bytes for the other reactor; false if there are too many.
    pub(super) fn keep(&mut self, bytes: &[u8]) -> bool {
        if self.early.len() + bytes.len() > EARLY_BYTES_MAX {
            return false;
        }
        self.early.extend_from_slice(bytes);
        true
    }
}

/// A login under way, as it goes to another reactor.
#[derive(Debug)]
pub(crate) struct Handover {
    carrier: Carrier,
    ends: Ends,
    mover: Mover,
    moving: Box<Moving>,
    followers: Option<Box<Followers>>,
}

impl<P: Port> LoginView<'_, P> {
    /// The session that a login names, if the connection may join it, or the status of a refusal,
    /// which must not be told before authentication.
    ///
    /// # Errors
    /// It lives on another reactor.
    pub(super) fn find_session(
        &mut self,
        request: &AdmissionRequest,
        identity: &Identity,
    ) -> Result<Result<Key, u16>, Elsewhere> {
        let home = self.context.shared.registry.find(identity);
        let Some(home) = home.filter(|home| home.tsih == request.tsih) else {
            return Ok(Err(SESSION_DOES_NOT_EXIST));
        };
        if home.reactor != self.context.reactor {
            return Err(Elsewhere { reactor: home.reactor });
        }
        let capabilities = self.login.machine.capabilities();
        let mut sessions = self.sessions.iter();
        let found = sessions.find(|(_, entry)| entry.tsih == home.tsih);
        let found = found.filter(|(_, entry)| entry.login.discovery == request.discovery);
        let found = found.ok_or(SESSION_DOES_NOT_EXIST);
        let joins = found.and_then(|(key, entry)| {
            entry.machine.admits(request.cid, capabilities).map(|()| (key, entry))
        });
        if let Ok((_, entry)) = joins {
            self.login.cid = request.cid;
            if entry.login.parameters.rdma.is_some() {
                self.login.machine.join_rdma();
            }
        }
        Ok(joins.map(|(key, _)| key))
    }

    /// A login that joins is done but for its last response: takes the place of a connection with
    /// the same CID, whose tasks must be gone before. Gives the session if it had one.
    pub(super) fn join(&mut self, session: Key) -> Option<Key> {
        let now = self.context.port.now();
        let login = &mut *self.login;
        let (cid, capabilities) = (login.cid, login.machine.capabilities());
        let admitted = match self.sessions.get_mut(session) {
            None => Err(SESSION_DOES_NOT_EXIST),
            // One identity for all connections of a session (RFC 7143 §9.2).
            Some(entry) if entry.user.as_deref() != login.machine.authenticated() => {
                Err(AUTHENTICATION_FAILURE)
            }
            Some(entry) => entry.machine.admits(cid, capabilities).map(|()| entry),
        };
        match admitted {
            Err(status) => login.machine.establish(Err(status)),
            Ok(entry) if entry.machine.connections().any(|(_, other)| other == cid) => {
                entry.machine.replace_connection(cid, now);
                return Some(session);
            }
            Ok(entry) => {
                login.machine.join(entry.machine.command_window());
                login.machine.establish(Ok(entry.tsih));
            }
        }
        None
    }
}

impl<P: Port> ConnectionView<'_, P> {
    /// The socket is to be free, for another reactor.
    fn move_away(&mut self, reactor: usize, request: AdmissionRequest) {
        let phase = std::mem::replace(&mut self.connection.phase, Phase::Closing);
        let Phase::Login(login) = phase else {
            return never("only a login moves");
        };
        let moving = Moving { reactor, login, request, early: Vec::new() };
        self.connection.phase = Phase::Moving(Box::new(moving));
        let receiving = token(Kind::Receive, self.key);
        self.connection.line.detach(receiving, &mut self.context.port);
    }

    /// A finished login becomes a connection of a session, unless that has just ended.
    fn join(&mut self, session: Key, login: &LoggedIn) {
        let now = self.context.port.now();
        let Some(entry) = self.sessions.get_mut(session) else { return };
        let connection = &mut *self.connection;
        let id: ConnectionId = entry.machine.add_connection(login, now);
        let index = usize::from(id.0);
        if entry.connections.len() <= index {
            entry.connections.resize(index + 1, self.key);
        }
        if let Some(slot) = entry.connections.get_mut(index) {
            *slot = self.key;
        }
        tracing::info!(
            name: Event::Login.name(),
            peer = %connection.peer,
            initiator = login.initiator,
            tsih = entry.tsih.0,
            cid = login.cid.0,
            reactor = self.context.reactor,
            "connection joined"
        );
        connection.pool = entry.pool.clone();
        if let Some(followers) = &mut connection.followers {
            followers.know(self.context.port.wall_clock(), &entry.who());
        }
        let level = entry.login.parameters.error_recovery_level;
        connection.lands = login.capabilities.lands && level == 0 && !connection.line.is_captured();
        connection.phase = Phase::Session { session, id };
        if let Some(ticket) = connection.ticket.take() {
            self.context.shared.strangers.forget(&ticket);
        }
        self.context.timers.cancel(token(Kind::ConnectionTimer, self.key).0);
    }
}

impl<P: Port> Pump<P> {
    pub(super) fn move_login(&mut self, key: Key, reactor: usize, request: AdmissionRequest) {
        if let Some(mut view) = self.connection(key) {
            view.move_away(reactor, request);
        }
    }

    /// The port has given a moving connection back.
    pub(super) fn detached(&mut self, key: Key, fd: Option<OwnedFd>) {
        // It may have been cut while it moved.
        let Some(connection) = self.connections.remove(key) else { return };
        self.context.timers.cancel(token(Kind::ConnectionTimer, key).0);
        self.context.shared.strangers.leave(connection.ticket.as_ref());
        let Connection { line, peer, local, mover, phase, messages, followers, .. } = connection;
        self.context.owed.replace_messages(messages, 0);
        let (Phase::Moving(moving), Some(carrier)) = (phase, line.into_carrier(fd)) else { return };
        let ends = Ends { peer, local };
        let reactor = moving.reactor;
        let handover = Handover { carrier, ends, mover, moving, followers };
        self.context.shared.mailboxes[reactor].send(Letter::TakeOver(Box::new(handover)));
    }

    /// Goes on with a login that another reactor began.
    pub(super) fn take_over(&mut self, handover: Handover) {
        if self.is_full() {
            return;
        }
        let Handover { carrier, ends, mover, moving, followers } = handover;
        let Moving { login, request, early, .. } = *moving;
        let Some(key) = self.insert_connection(carrier, ends, mover, login) else { return };
        self.follow_on(key, followers);
        if let Some(mut view) = self.login(key) {
            match view.admit(&request) {
                Ok(admission) => view.login.machine.admit(admission),
                Err(Elsewhere { reactor }) => self.move_login(key, reactor, request),
            }
        }
        self.settle_login(key);
        self.received(key, &early);
    }

    /// A login whose place is free goes on.
    pub(super) fn go_on_joining(&mut self, key: Key) {
        self.establish(key);
        self.settle_login(key);
    }

    /// A finished login becomes a connection of its session.
    pub(super) fn joined(&mut self, key: Key, session: Key, login: &LoggedIn) {
        self.settle(session);
        if let Some(mut view) = self.connection(key) {
            view.join(session, login);
        }
        self.settle(session);
    }
}
