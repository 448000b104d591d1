// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The way to a clean stop.

use std::time::Duration;

use clock::Instant;
use engine::Port;

use super::Phase;
use super::Pump;
use super::letter::Letter;
use super::view::SessionView;
use crate::table::Key;

/// After the time for logging out, connections get so long to take our goodbye.
const GOODBYE: Duration = Duration::from_secs(1);

/// Then those who do work of stores elsewhere get so long to answer, which they were asked for when
/// the sessions were dropped: a cluster that is out of reach never will, and nobody is there any
/// more who would hear the answer. With what a store takes to close, a daemon ends within the 10 s
/// that `docker stop` gives it.
const LAST_ANSWERS: Duration = Duration::from_secs(3);

/// A stop under way.
#[derive(Debug)]
pub(super) struct Stopping {
    /// When sessions that did not log out are dropped.
    drop_at: Instant,
    /// When connections that do not close are cut.
    cut_at: Instant,
    dropped: bool,
    /// Who has not answered by now is not waited for any more.
    given_up: bool,
}

impl<P: Port> Pump<P> {
    /// Begins a clean stop: no new connections, initiators are asked to log out.
    pub(super) fn stop(&mut self, grace: Duration) {
        if self.context.stopping.is_some() {
            return;
        }
        self.stop_listening();
        let drop_at = self.context.port.now() + grace;
        let cut_at = drop_at + GOODBYE;
        self.context.stopping = Some(Stopping { drop_at, cut_at, dropped: false, given_up: false });
        self.context.timers.set(0, drop_at);
        self.context.hurry_jobs();
        let logins: Vec<Key> = self
            .connections
            .iter()
            .filter(|(_, entry)| matches!(entry.phase, Phase::Login(_) | Phase::Moving(_)))
            .map(|(key, _)| key)
            .collect();
        for key in logins {
            self.abandon_login(key);
            self.remove_connection(key);
        }
        let seconds = u16::try_from(grace.as_secs().max(1)).unwrap_or(u16::MAX);
        let sessions: Vec<Key> = self.sessions.keys().collect();
        for key in sessions {
            if let Some(SessionView { session, context, .. }) = self.session(key) {
                session.machine.set_now(context.port.now());
                session.machine.request_logout(seconds);
            }
            self.settle(key);
        }
    }

    pub(super) fn advance_stop(&mut self, now: Instant) {
        let Some(stopping) = &mut self.context.stopping else { return };
        if !stopping.dropped && now >= stopping.drop_at {
            stopping.dropped = true;
            let cut_at = stopping.cut_at;
            self.context.timers.set(0, cut_at);
            let sessions: Vec<Key> = self.sessions.keys().collect();
            for key in sessions {
                self.drop_session(key);
            }
        } else if stopping.dropped && now >= stopping.cut_at {
            let give_up_at = stopping.cut_at + LAST_ANSWERS;
            match now < give_up_at {
                true => self.context.timers.set(0, give_up_at),
                false => {
                    stopping.given_up = true;
                    self.give_up_errands();
                }
            }
            self.forget_listeners();
            let connections: Vec<Key> = self.connections.keys().collect();
            for key in connections {
                self.disconnected(key, None);
            }
        }
    }

    /// Work ends since a stop does not wait for it any more, and not since it is done.
    pub(super) fn has_given_up(&self) -> bool {
        self.context.stopping.as_ref().is_some_and(|stopping| stopping.given_up)
    }

    pub(super) fn is_finished(&self) -> bool {
        self.context.stopping.is_some()
            && self.connections.is_empty()
            && self.context.ios.is_empty()
            && !self.listens()
    }

    /// It reads no more letters. Reactors that others keep going do not wait for it: it has no
    /// tasks that they could want to end.
    pub(super) fn leave(&self) {
        let mailboxes = &self.context.shared.mailboxes;
        for letter in mailboxes[self.context.reactor].close() {
            if let Letter::AbortUnits { reactor, management, .. } = letter {
                mailboxes[reactor].send(Letter::UnitsAborted { management });
            }
        }
    }
}
