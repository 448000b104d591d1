// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Units that are not accessible over the portal of the session, but may be over another one
//! (asymmetric access, SPC-4 §5.15.2).
//!
//! The session ends in order, with nothing under way that might come about late, and the next login
//! goes to another portal. A request is refused once by each portal at most before it fails: when
//! it comes back to one that has refused it, no other one could be had.

use engine::Port;
use wire::scsi::Sense;

use super::SessionDriver;
use super::State;
use super::connection::Connection;
use crate::Event;
use crate::Kind;
use crate::limits;
use crate::pump::Context;

/// What a unit that is NOT READY says of the way to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// It is between two states.
    Soon,
    /// It takes nothing over this port: standby, unavailable.
    Elsewhere,
}

impl Access {
    pub(super) const fn of(sense: Sense) -> Option<Self> {
        match (sense.asc, sense.ascq) {
            (0x04, 0x0a) => Some(Self::Soon),
            (0x04, 0x0b | 0x0c) => Some(Self::Elsewhere),
            _ => None,
        }
    }
}

impl SessionDriver {
    /// A request met a unit that is not accessible here: whether it is tried over another portal.
    pub(super) fn moves_for<P: Port>(
        &mut self,
        place: usize,
        kind: &Kind,
        context: &mut Context<'_, P>,
    ) -> bool {
        let here =
            self.connections.iter().map(Connection::portal).find(|portal| !portal.is_empty());
        let (Some(here), Some(job)) = (here, self.jobs.get_mut(place)) else { return false };
        if self.closing || job.refused_by.iter().any(|portal| portal == here) {
            return false;
        }
        job.refused_by.push(here.to_owned());
        if !self.portals.leave(&job.refused_by) {
            return false;
        }
        let (tag, lun, cdb) = (job.tag, job.request.lun, job.request.cdb);
        if self.jobs.is_news(lun, kind, context.now) {
            let error = self.error(kind.clone()).at_lun(lun).during(&cdb);
            context.tell(Event::Elsewhere { session: self.id, tag, error });
        }
        if !self.moving
            && let State::Up(session) = &mut self.state
        {
            self.moving = true;
            session.drain(limits::MOVE_PATIENCE, context.now);
        }
        true
    }

    /// The session has ended the one before, and is where this path does not lead.
    pub(super) fn leave_refuge<P: Port>(&mut self, context: &mut Context<'_, P>) {
        let State::Up(session) = &mut self.state else { return };
        self.moving = true;
        session.drain(limits::MOVE_PATIENCE, context.now);
        self.settle(context);
    }

    /// A session that was given up is tried again, with what is still in doubt of it.
    pub(crate) fn revive<P: Port>(&mut self, context: &mut Context<'_, P>) {
        if matches!(self.state, State::Dead(_)) && !self.closing {
            (self.up_since, self.down_since, self.attempts) = (None, Some(context.now), 0);
            self.connect(context);
        }
    }

    /// The session has ended to begin anew over another portal.
    pub(super) fn moved<P: Port>(&mut self, context: &mut Context<'_, P>) {
        (self.up_since, self.down_since, self.attempts) = (None, None, 0);
        self.connect(context);
    }
}
