// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections that are, or become, RDMA streams (RFC 7145 §5.1): which those are, and when.
//!
//! Software iWARP runs over a connection of TCP, so the engine has nothing to do with it. The first
//! byte of the initiator tells whether a connection begins with MPA or with a login; a login can
//! agree that MPA follows it.

use engine::Port;
use iscsi::target_role::LoggedIn;
use iscsi::target_role::Login;
use mover::Mover;
use mover::iser;
use wire::iscsi::StatSn;

use super::Phase;
use super::Pump;
use super::admission::LoginView;
use super::admission::OUT_OF_RESOURCES;
use super::view::ConnectionView;
use crate::rdma::Rdma;
use crate::table::Key;

impl<P: Port> Pump<P> {
    /// The first bytes of a connection are here: whether it goes on.
    #[cold]
    pub(super) fn tell_kind(&mut self, key: Key, first: u8) -> bool {
        self.connection(key).is_none_or(|mut view| view.tell_kind(first))
    }

    /// A login is done that has agreed on RDMA: what follows is MPA.
    pub(super) fn go_on_with_rdma(&mut self, key: Key, login: &LoggedIn) {
        if let Some(mut view) = self.connection(key) {
            view.go_on_with_rdma(login);
        }
    }
}

impl<P: Port> ConnectionView<'_, P> {
    fn tell_kind(&mut self, first: u8) -> bool {
        let context = &mut *self.context;
        let connection = &mut *self.connection;
        let Phase::Login(login) = &mut connection.phase else { return true };
        login.first = Some(first);
        if login.rdma == Rdma::Off || !login.begins_with_rdma() {
            return true;
        }
        let Some(seed) = seed(&mut context.port) else { return false };
        let mut mover = iser::Target::of_stranger(seed);
        connection.line.fit(&mut mover, &context.port);
        let (now, timeout) = (context.port.now(), context.shared.login_timeout);
        login.machine = Login::new(now, StatSn(1), timeout, mover.capabilities());
        connection.mover = Mover::Iser(Box::new(mover));
        true
    }

    fn go_on_with_rdma(&mut self, login: &LoggedIn) {
        let connection = &mut *self.connection;
        let Phase::Login(phase) = &mut connection.phase else { return };
        let (Some(mut mover), Mover::Tcp(before)) = (phase.successor.take(), &mut connection.mover)
        else {
            return;
        };
        connection.line.fit(&mut mover, &self.context.port);
        // Its last response goes out first.
        let last = before.take_queued();
        if let Some(followers) = &mut connection.followers {
            followers.sent_bytes(self.context.port.wall_clock(), &last);
        }
        mover.follow(last, login.keys());
        connection.mover = Mover::Iser(mover);
    }
}

impl<P: Port> LoginView<'_, P> {
    /// The last response of a login that has agreed on RDMA goes out when there is memory for what
    /// follows (RFC 7145 §5.1.2); false if there is none, which the login has been told.
    pub(super) fn prepare_rdma(&mut self) -> bool {
        if !self.login.machine.becomes_rdma() {
            return true;
        }
        if let Mover::Iser(mover) = &mut *self.mover {
            let is_prepared = mover.prepare(&self.context.pool);
            if !is_prepared {
                self.login.machine.establish(Err(OUT_OF_RESOURCES));
            }
            return is_prepared;
        }
        if !matches!(self.mover, Mover::Tcp(_)) {
            return true;
        }
        let seed = seed(&mut self.context.port);
        let successor = seed.and_then(|seed| iser::Target::of_login(&self.context.pool, seed));
        self.login.successor = successor.map(Box::new);
        if self.login.successor.is_none() {
            self.login.machine.establish(Err(OUT_OF_RESOURCES));
        }
        self.login.successor.is_some()
    }
}

/// Of the STags of one connection, which nobody guesses who is not told.
fn seed<P: Port>(port: &mut P) -> Option<u32> {
    let mut bytes = [0; 4];
    port.random(&mut bytes).ok()?;
    Some(u32::from_ne_bytes(bytes))
}
