// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A store's work that is done elsewhere, in threads that are not ours: it is work under way like
//! that of the engine, and ends when its answer is here ([`store::foreign`]).

use engine::Port;
use store::Error;
use store::Io;
use store::IoResult;
use store::Outcome;
use store::foreign::Errand;

use super::Doing;
use super::PendingIo;
use super::Pump;
use crate::table::Key;

impl<P: Port> Pump<P> {
    /// Takes the answers that have come. One whose work is not known any more, since a stop has
    /// given it up, is for nobody.
    pub(super) fn take_answers(&mut self) {
        let mut answers = std::mem::take(&mut self.context.answers);
        self.context.inbox.take(&mut answers);
        self.context.errands = self.context.errands.saturating_sub(answers.len());
        for (ticket, outcome) in answers.drain(..) {
            self.io_done(Key::from_bits(ticket), IoResult::Foreign(outcome));
        }
        self.context.answers = answers;
    }

    /// Whoever has not answered until now is not waited for any more: the process ends.
    #[cold]
    pub(super) fn give_up_errands(&mut self) {
        let left = self.context.ios.iter().filter(|(_, io)| io.errand().is_some());
        let left: Vec<Key> = left.map(|(key, _)| key).collect();
        if !left.is_empty() {
            let count = left.len();
            tracing::error!(
                count,
                "stopped before stores had answered: what was asked of them may be done or not"
            );
        }
        for io in left {
            self.io_done(io, IoResult::Foreign(Outcome::Failed(Error::Internal)));
        }
    }
}

impl PendingIo {
    /// What is done elsewhere, if that is what is done.
    pub(super) fn errand(&self) -> Option<&Errand> {
        let Doing::Store { io, .. } = &self.doing else { return None };
        match io.innermost() {
            Io::Foreign(errand) => Some(errand),
            Io::Read { .. }
            | Io::Write { .. }
            | Io::Sync { .. }
            | Io::Clear { .. }
            | Io::ProvisioningStatus { .. }
            | Io::Clock { .. }
            | Io::Pause { .. }
            | Io::Part(_) => None,
        }
    }
}
