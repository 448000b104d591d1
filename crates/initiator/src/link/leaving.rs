// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a session ends from this side.
//!
//! One with nothing under way logs out. What was sent and may change a unit may be on its way for
//! long, though, in this machine, in the network or at the target, and come over what others write
//! there next. Once another session is in the place of the one that sent it, the target carries out
//! nothing of it any more (RFC 7143 §6.3.5). So such a session is abandoned: its connections are
//! reset, and the next login of the same initiator port, in the same portal group, takes its place
//! and logs out. A try that fails is followed by another one, for a bounded time.

use std::time::Duration;

use clock::Instant;
use engine::Port;

use super::SessionDriver;
use super::State;
use crate::Error;
use crate::Event;
use crate::Kind;
use crate::limits;
use crate::pump::Context;

impl SessionDriver {
    /// Ends the session in order, where that can be had.
    pub(crate) fn close<P: Port>(&mut self, context: &mut Context<'_, P>) {
        // What was posted goes before the logout.
        self.issue(context);
        self.log_out(context);
    }

    fn log_out<P: Port>(&mut self, context: &mut Context<'_, P>) {
        self.closing = true;
        let is_in_doubt = self.is_in_doubt();
        match &mut self.state {
            State::Up(session) if session.is_connected() => {
                session.logout(context.now);
                self.settle(context);
            }
            State::Dead(_) => {}
            _ if is_in_doubt => self.abandon(context),
            _ => {
                self.hang_up(context);
                self.die(None, context);
            }
        }
    }

    /// Ends the session at once: what is under way gets an error, and what was only posted does not
    /// leave any more. Another session takes its place if something of it may still change a unit,
    /// also where it was given up before.
    pub(crate) fn abandon<P: Port>(&mut self, context: &mut Context<'_, P>) {
        if !self.is_in_doubt() {
            return self.log_out(context);
        }
        self.portals.doubt();
        self.closing = true;
        let until = context.now + limits::REPLACE_PATIENCE;
        self.replace_until.get_or_insert(until);
        if matches!(self.state, State::Up(_) | State::Dead(_)) {
            self.hang_up(context);
            self.identities.clear();
            self.attempts = 0;
            self.connect(context);
        } else if let State::Waiting(at) = &mut self.state {
            *at = context.now;
        }
        self.end_requests(&self.error(Kind::Closed), context);
    }

    /// Whether something that was sent may still change a unit.
    pub(crate) fn is_in_doubt(&self) -> bool {
        let is_busy = || self.jobs.may_change() || !self.managements.is_empty();
        self.portals.is_in_doubt() || matches!(self.state, State::Up(_)) && is_busy()
    }

    /// Since when a command is told that the target is busy, of those that wait to be tried again.
    pub(crate) fn busy_since(&self) -> Option<Instant> {
        matches!(self.state, State::Up(_)).then(|| self.jobs.busy_since()).flatten()
    }

    /// Whether the session that is to take the place of this one has a connection, on which it logs
    /// in.
    pub(crate) const fn is_being_replaced(&self) -> bool {
        self.replace_until.is_some() && matches!(self.state, State::Login)
    }

    /// A session that is not wanted any more is gone, or could not be had.
    pub(super) fn lost_while_closing<P: Port>(
        &mut self,
        error: Error,
        context: &mut Context<'_, P>,
    ) {
        if !self.portals.is_in_doubt() {
            return self.die(None, context);
        }
        let until = context.now + limits::REPLACE_PATIENCE;
        let until = *self.replace_until.get_or_insert(until);
        if context.now >= until {
            return self.die(Some(self.error(Kind::NotReplaced)), context);
        }
        self.state = State::Waiting(context.now + self.pause(limits::REPLACE_PAUSE_MAX));
        self.end_requests(&self.error(Kind::Closed), context);
        context.tell(Event::Down { session: self.id, error });
    }

    /// Before the next try to connect.
    pub(super) fn pause(&self, most: Duration) -> Duration {
        (limits::BACKOFF_MIN * (1 << self.attempts.min(8)) / 2).min(most)
    }
}
