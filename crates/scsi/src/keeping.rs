// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands whose change is on stable storage before it is in force. While it is on its way there
//! the old state is in force, and nobody else changes the same kind of state of the unit.
//!
//! ```text
//!              Step::Keep                Kept
//! claimed ------------------> on the way ------> in force, or as before
//!    | dropped                    | the task ends
//!    v                            v
//! as before                   the outcome counts all the same (Task::kept_late)
//! ```

use crate::attention::Attention;
use crate::kept::Keep;
use crate::kept::KeepFailed;
use crate::lun::LogicalUnit;
use crate::lun::NexusState;
use crate::sbc::wipe::Beginning;
use crate::sbc::wipe::sanitize;
use crate::sense;
use crate::sense::Fault;
use crate::spc::identification::Texts;
use crate::spc::modes::Parameters;
use crate::task::Machine;
use crate::task::Started;
use crate::task::Step;
use alloc::boxed::Box;

/// What takes effect when it is kept.
#[derive(Debug)]
pub(crate) enum Change {
    /// MODE SELECT with SP.
    Modes(Parameters),
    /// SET IDENTIFYING INFORMATION.
    Identification(Texts),
    /// FORMAT UNIT or SANITIZE.
    WipeBegins(Beginning),
    /// SANITIZE, EXIT FAILURE MODE.
    WipeFailureEnds,
}

/// A command that awaits that its change is kept.
#[derive(Debug)]
pub(crate) struct Keeping {
    /// None: it has been decided.
    change: Option<Change>,
    presented: u64,
}

impl Keeping {
    /// Who makes it has claimed the state for the change.
    pub(crate) fn begin(change: Change, keep: Keep, presented: u64) -> Started {
        let machine = Self { change: Some(change), presented };
        (Machine::Keeping(Box::new(machine)), Step::Keep(keep))
    }

    /// The change is kept, or not. All nexuses but that of `nexus_state` are told of it; all, if
    /// that is no more.
    pub(crate) fn finish(
        &mut self,
        unit: &LogicalUnit,
        nexus_state: Option<&NexusState>,
        result: Result<(), KeepFailed>,
    ) -> Result<(Machine, Step), Fault> {
        let tell = |attention| match nexus_state {
            Some(nexus_state) => unit.establish_elsewhere(nexus_state, attention),
            None => unit.establish_everywhere(attention),
        };
        let done = (Machine::Done, Step::Complete(sense::good(self.presented)));
        let change = self.change.take().ok_or(sense::INTERNAL)?;
        match change {
            Change::Modes(wanted) => {
                unit.modes_are_kept(wanted, result)?;
                tell(Attention::ModeChanged);
            }
            Change::Identification(texts) => {
                unit.identification().finish(texts, result)?;
                tell(Attention::IdentifierChanged);
            }
            Change::WipeBegins(beginning) => return beginning.finish(unit, result),
            Change::WipeFailureEnds => sanitize::finish_exit(unit, result)?,
        }
        Ok(done)
    }

    /// The change never left.
    pub(crate) fn abandon(&mut self, unit: &LogicalUnit) {
        if self.change.is_some() {
            // The same as if it had failed.
            let _ = self.finish(unit, None, Err(KeepFailed));
        }
    }
}

impl From<KeepFailed> for Fault {
    fn from(_: KeepFailed) -> Self {
        sense::INTERNAL.into()
    }
}
