// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections over RDMA adapters: how they come in, and what carries them.
//!
//! An adapter takes posts and tells what it has done, without a socket: of the port it needs only
//! to be woken. Login, sessions and iSER are as over software iWARP.

use engine::Port;
use engine::Socket;
use engine::Token;
use engine::Work;
use mover::Mover;
use mover::iser;
use rdma::adapter::Done;
use rdma::verbs::End;

use super::Connection;
use super::Kind;
use super::Phase;
use super::Pump;
use super::token;
use super::transport::Carrier;
use super::transport::Line;
use super::transport::Sent;
use crate::ends::Ends;
use crate::ends::Peer;
use crate::table::Key;

/// What carries a connection over an adapter.
#[derive(Debug)]
pub(super) struct Adapter {
    connection: Box<dyn verbs::Adapter>,
    /// What wakes the port. None: it cannot be watched, and the connection ends.
    watched: Option<Socket>,
    list: buf::SgList,
    /// What comes is not looked at.
    paused: bool,
    /// It is to be looked at once more.
    stirred: bool,
    /// Posts that were begun and have not ended.
    sends: usize,
}

/// Where adapters take connections.
#[derive(Debug)]
pub(super) struct Entrance {
    listener: verbs::Listener,
    watched: Socket,
}

/// Connections that are taken in at once, before others have their turn.
const KNOCKS_MAX: usize = 64;

/// `ECONNRESET`.
const RESET: i32 = 104;

impl Adapter {
    pub(super) fn open<P: Port>(connection: Box<dyn verbs::Adapter>, port: &mut P) -> Self {
        let watched = match connection.watched() {
            Ok(fd) => Some(port.add_socket(fd)),
            Err(error) => {
                tracing::warn!(%error, "an RDMA connection cannot be watched");
                None
            }
        };
        let list = buf::SgList::default();
        Self { connection, watched, list, paused: false, stirred: false, sends: 0 }
    }

    pub(super) fn begin<P: Port>(&self, receiving: Token, port: &mut P) {
        if let Some(socket) = self.watched {
            port.submit(receiving, Work::Watch { socket });
        }
    }

    pub(super) fn send(&mut self, mover: &mut iser::Target) -> Sent {
        let any = mover.poll_transmit(&mut self.list);
        debug_assert!(!any, "an adapter is given posts, and no bytes");
        let mut posts = 0;
        while let Some(post) = mover.poll_post() {
            self.connection.post(post);
            posts += 1;
        }
        self.stirred |= self.connection.has_done();
        self.sends = self.connection.under_way();
        match posts {
            0 if mover.has_events() => Sent::Left,
            0 => Sent::Nothing,
            _ => Sent::Begun,
        }
    }

    pub(super) fn is_busy(&self) -> bool {
        self.sends > 0
    }

    pub(super) fn pause(&mut self) {
        self.paused = true;
    }

    pub(super) fn resume(&mut self) {
        self.paused = false;
        self.stirred = true;
    }

    pub(super) fn shutdown(&self) {
        self.connection.shutdown();
    }

    /// The port does not watch it any more.
    pub(super) fn leave<P: Port>(&self, port: &mut P) {
        if let Some(socket) = self.watched {
            port.close(socket);
        }
    }

    pub(super) fn into_connection(self) -> Box<dyn verbs::Adapter> {
        self.connection
    }
}

impl Line {
    /// None: it is no adapter's.
    pub(super) fn adapter_facts(&self) -> Option<verbs::Facts> {
        match self {
            Self::Adapter(line) => Some(line.connection.facts()),
            Self::Socket { .. } | Self::Local(_) => None,
        }
    }

    /// It is to be looked at once more, though nothing tells of it; asked once.
    pub(super) fn is_stirred(&mut self) -> bool {
        match self {
            Self::Adapter(line) => std::mem::take(&mut line.stirred),
            Self::Socket { .. } | Self::Local(_) => false,
        }
    }
}

impl<P: Port> Pump<P> {
    /// Takes connections that come to this listener.
    pub(crate) fn listen_at_adapters(&mut self, listener: verbs::Listener) {
        match listener.watched() {
            Ok(fd) => {
                let watched = self.context.port.add_socket(fd);
                let key = self.door.adapters.insert(Entrance { listener, watched });
                let work = Work::Watch { socket: watched };
                self.context.port.submit(token(Kind::Adapter, key), work);
            }
            Err(error) => {
                tracing::error!(portal = %listener.address(), %error, "cannot watch a portal");
            }
        }
    }

    pub(super) fn stop_adapters(&mut self) {
        let keys: Vec<Key> = self.door.adapters.keys().collect();
        keys.into_iter().for_each(|key| self.shut_entrance(key));
    }

    fn shut_entrance(&mut self, key: Key) {
        if let Some(entrance) = self.door.adapters.remove(key) {
            self.context.port.close(entrance.watched);
        }
    }

    /// Somebody wants to connect.
    pub(super) fn knocked(&mut self, key: Key) {
        for _ in 0..KNOCKS_MAX {
            let Some(entrance) = self.door.adapters.get(key) else { return };
            match entrance.listener.next() {
                Ok(Some(incoming)) => self.let_in(Box::new(incoming)),
                Ok(None) => return,
                Err(error @ verbs::VerbsError::Gone { .. }) => {
                    tracing::warn!(%error, "RDMA adapters take no connections there any more");
                    return self.shut_entrance(key);
                }
                Err(error) => tracing::warn!(%error, "could not accept an RDMA connection"),
            }
        }
        // The others are told of once, which has been.
        self.context.knocks.push(key);
        self.context.port.waker().wake();
    }

    /// A new connection: this reactor's own, or a letter to the next one in turn.
    pub(crate) fn let_in(&mut self, incoming: Box<dyn verbs::Asking>) {
        let reactor = self.next_reactor();
        match self.context.shared.mailboxes.get(reactor) {
            Some(mailbox) if reactor != self.context.reactor => {
                mailbox.send(super::Letter::Incoming(incoming));
            }
            _ => self.take_in(incoming),
        }
    }

    /// Begins the login phase of a connection over an adapter.
    pub(super) fn take_in(&mut self, incoming: Box<dyn verbs::Asking>) {
        let ends = Ends { peer: Peer::Address(incoming.peer()), local: incoming.local() };
        let peer = ends.peer;
        if self.refuses(&ends) {
            return;
        }
        let pool = &self.context.pool;
        let made = iser::Target::of_adapter(incoming.private_data(), incoming.depths(), pool);
        let Some((mut mover, answer)) = made else {
            let reason = "it is none of iSER, or there is no memory for it";
            tracing::warn!(%peer, reason, "refused an RDMA connection");
            return;
        };
        let connection = incoming.prepare(pool).and_then(|mut connection| {
            // Buffers come first: the initiator speaks as soon as it hears from us.
            while let Some(post) = mover.poll_post() {
                connection.post(post);
            }
            connection.accept(&answer).map(|()| connection)
        });
        match connection {
            Ok(connection) => {
                let device = connection.facts().device;
                tracing::debug!(%peer, device, "a connection over an RDMA adapter");
                let carrier = Carrier::Adapter(connection);
                let _ = self.begin_login(carrier, Mover::Iser(Box::new(mover)), ends);
            }
            Err(error) => tracing::warn!(%peer, %error, "refused an RDMA connection"),
        }
    }

    /// An adapter has done something.
    pub(super) fn stirred(&mut self, key: Key) {
        if let Some(view) = self.connection(key)
            && let Line::Adapter(line) = &mut view.connection.line
        {
            line.connection.look();
            self.take_from_adapter(key);
        }
    }

    /// Looks at connections and listeners once more that asked for it.
    pub(super) fn serve_stirred(&mut self) {
        for key in std::mem::take(&mut self.context.knocks) {
            self.knocked(key);
        }
        for key in std::mem::take(&mut self.context.stirred) {
            self.take_from_adapter(key);
        }
    }

    /// Takes what an adapter has done. That is bounded: it gets nothing to do meanwhile.
    fn take_from_adapter(&mut self, key: Key) {
        let Some(view) = self.connection(key) else { return };
        let Connection { line, mover, progress, phase, .. } = &mut *view.connection;
        let (Line::Adapter(line), Mover::Iser(mover)) = (line, mover) else { return };
        if matches!(phase, Phase::Moving(_)) {
            return;
        }
        let (mut ended, mut any_left) = (None, false);
        while let Some(done) = line.connection.poll() {
            match &done {
                Done::Sent(_) | Done::Read(_) => {
                    any_left = true;
                    progress.count_list();
                }
                Done::Ended(end) => ended = Some(*end),
                Done::Received { .. } | Done::Returned(..) => {}
            }
            mover.handle_done(done);
        }
        line.sends = line.connection.under_way();
        if !line.paused || ended.is_some() {
            self.received(key, &[]);
        }
        if any_left {
            self.settle_left(key);
        }
        match ended {
            None => self.mark_dirty(key),
            Some(End::Closed) => self.receive_ended(key, None),
            Some(_) => self.receive_ended(key, Some(RESET)),
        }
    }
}
