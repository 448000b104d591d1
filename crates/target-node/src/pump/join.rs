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
use super::Kind;
use super::Phase;
use super::Pump;
use super::admission::AUTHENTICATION_FAILURE;
use super::admission::LoginPhase;
use super::admission::SESSION_DOES_NOT_EXIST;
use super::token;
use super::transport::Carrier;
use crate::mail::Ends;
use crate::mail::Letter;
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
}

impl<P: Port> Pump<P> {
    /// The session that a login names, if the connection may join it. None: it lives on another
    /// reactor, where the connection goes now.
    ///
    /// # Errors
    /// The status of a refusal, which must not be told before authentication.
    pub(super) fn find_session(
        &mut self,
        key: Key,
        request: &AdmissionRequest,
        identity: &Identity,
    ) -> Result<Option<Key>, u16> {
        let home =
            self.context.shared.registry.find(identity).filter(|home| home.tsih == request.tsih);
        let home = home.ok_or(SESSION_DOES_NOT_EXIST)?;
        if home.reactor != self.context.reactor {
            self.move_login(key, home.reactor, request);
            return Ok(None);
        }
        let connection = self.connections.get(key).ok_or(SESSION_DOES_NOT_EXIST)?;
        let capabilities = connection.mover.capabilities();
        let session = self.session_by_tsih(home.tsih).ok_or(SESSION_DOES_NOT_EXIST)?;
        let entry = self.sessions.get(session).ok_or(SESSION_DOES_NOT_EXIST)?;
        if entry.login.discovery != request.discovery {
            return Err(SESSION_DOES_NOT_EXIST);
        }
        entry.machine.admits(request.cid, capabilities)?;
        if let Some(connection) = self.connections.get_mut(key)
            && let Phase::Login(login) = &mut connection.phase
        {
            login.cid = request.cid;
        }
        Ok(Some(session))
    }

    fn move_login(&mut self, key: Key, reactor: usize, request: &AdmissionRequest) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let phase = std::mem::replace(&mut connection.phase, Phase::Closing);
        let Phase::Login(login) = phase else { return };
        let request = request.clone();
        let moving = Moving { reactor, login, request, early: Vec::new() };
        connection.phase = Phase::Moving(Box::new(moving));
        connection.line.detach(token(Kind::Receive, key), &mut self.context.port);
    }

    /// The port has given a moving connection back.
    pub(super) fn detached(&mut self, key: Key, fd: Option<OwnedFd>) {
        let Some(connection) = self.connections.remove(key) else { return };
        self.context.timers.cancel(token(Kind::ConnectionTimer, key).0);
        self.context.shared.strangers.leave(connection.ticket.as_ref());
        let Phase::Moving(moving) = connection.phase else { return };
        let Connection { line, peer, local, mover, .. } = connection;
        let Some(carrier) = line.into_carrier(fd) else { return };
        let ends = Ends { peer, local };
        let reactor = moving.reactor;
        let handover = Handover { carrier, ends, mover, moving };
        self.context.shared.mailboxes[reactor].send(Letter::TakeOver(Box::new(handover)));
    }

    /// Goes on with a login that another reactor began.
    pub(super) fn take_over(&mut self, handover: Handover) {
        if self.is_full() {
            return;
        }
        let Handover { carrier, ends, mover, moving } = handover;
        let Moving { login, request, early, .. } = *moving;
        let Some(key) = self.insert_connection(carrier, ends, mover, login) else { return };
        let admission = self.admit(key, &request);
        if let Some(admission) = admission
            && let Some(connection) = self.connections.get_mut(key)
            && let Phase::Login(login) = &mut connection.phase
        {
            login.machine.admit(admission);
        }
        self.settle_login(key);
        self.received(key, &early);
    }

    /// A login that joins is done but for its last response: takes the place of a connection with
    /// the same CID, whose tasks must be gone before.
    pub(super) fn join(&mut self, key: Key) {
        let now = self.context.port.now();
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Phase::Login(login) = &mut connection.phase else { return };
        let (Some(Ok(session)), cid) = (login.joins, login.cid) else { return };
        let Some(entry) = self.sessions.get_mut(session) else {
            login.machine.establish(Err(SESSION_DOES_NOT_EXIST));
            return self.settle_login(key);
        };
        // One identity for all connections of a session (RFC 7143 §9.2).
        if entry.user.as_deref() != login.machine.authenticated() {
            login.machine.establish(Err(AUTHENTICATION_FAILURE));
            return self.settle_login(key);
        }
        if let Err(status) = entry.machine.admits(cid, connection.mover.capabilities()) {
            login.machine.establish(Err(status));
            return self.settle_login(key);
        }
        if entry.machine.connections().any(|(_, other)| other == cid) {
            entry.machine.replace_connection(cid, now);
            self.settle(session);
            return self.quiesce_for_join(key);
        }
        login.machine.join(entry.machine.command_window());
        login.machine.establish(Ok(entry.tsih));
        self.settle_login(key);
    }

    /// A finished login becomes a connection of its session.
    pub(super) fn joined(&mut self, key: Key, session: Key, login: &LoggedIn) {
        let now = self.context.port.now();
        self.settle(session);
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Some(entry) = self.sessions.get_mut(session) else { return };
        let id: ConnectionId = entry.machine.add_connection(login, now);
        let index = usize::from(id.0);
        if entry.connections.len() <= index {
            entry.connections.resize(index + 1, key);
        }
        if let Some(slot) = entry.connections.get_mut(index) {
            *slot = key;
        }
        tracing::info!(
            peer = %connection.peer,
            initiator = login.initiator,
            tsih = entry.tsih.0,
            cid = login.cid.0,
            reactor = self.context.reactor,
            "connection joined"
        );
        connection.pool = entry.pool.clone();
        connection.lands =
            login.capabilities.lands && entry.login.parameters.error_recovery_level == 0;
        connection.phase = Phase::Session { session, id };
        if let Some(ticket) = connection.ticket.take() {
            self.context.shared.strangers.forget(&ticket);
        }
        self.context.timers.cancel(token(Kind::ConnectionTimer, key).0);
        self.settle(session);
    }
}
