// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands that a target does not answer (RFC 7143 §7.11).
//!
//! The session aborts them. What is sent again and meets the same silence makes more of a stir each
//! time: the second time its unit is reset, the third time there is a new session, and then it
//! fails.

use engine::Port;
use iscsi::initiator::Step;
use iscsi::initiator::datamover::TaskId;
use wire::scsi::Lun;

use super::SessionDriver;
use super::State;
use crate::Event;
use crate::Kind;
use crate::pump::Context;

/// What is done beyond the abort before a command is sent once more, by how often it was overdue.
pub(super) const fn beyond_abort(timeouts: u32) -> Option<Step> {
    match timeouts {
        0 | 1 => None,
        2 => Some(Step::Reset),
        _ => Some(Step::Session),
    }
}

impl SessionDriver {
    /// A command is not answered; says what is done about it.
    pub(super) fn overdue<P: Port>(
        &mut self,
        task: TaskId,
        step: Step,
        context: &mut Context<'_, P>,
    ) {
        let after = self.options.settings.command_timeout;
        let Some((tag, lun, cdb)) = self.jobs.named(task) else { return };
        let error = self.error(Kind::Overdue { after, step }).at_lun(lun).during(&cdb);
        context.tell(Event::Overdue { session: self.id, tag, error });
    }

    /// Does more than the abort about a command that was overdue again.
    pub(super) fn escalate<P: Port>(
        &mut self,
        task: TaskId,
        step: Step,
        lun: u16,
        context: &mut Context<'_, P>,
    ) {
        self.overdue(task, step, context);
        let State::Up(session) = &mut self.state else { return };
        let reset = step == Step::Reset && session.reset_unit(Lun::Unit(lun).emit(), context.now);
        if !reset {
            session.leave();
        }
    }
}
