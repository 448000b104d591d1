// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a unit knows of its last or present wipe, and keeps of it over a loss of power.
//!
//! Kept is one byte: 0 while the medium is as it should be, else 1 and the code of the [`Kind`]
//! that has begun. Only a wipe that ends well makes it 0 again, or EXIT FAILURE MODE. So a medium
//! that is wiped in part is never taken for a whole one: a wipe that a crash has cut short has
//! failed (SBC-3 §4.11.4).

use crate::kept;
use crate::kept::Keep;
use crate::kept::Keeper;
use crate::kept::Kept;
use crate::kept::RestoreError;
use crate::lun::LogicalUnit;
use crate::lun::Special;
use crate::sense;
use alloc::sync::Arc;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::AtomicU8;
use core::sync::atomic::AtomicU16;
use core::sync::atomic::Ordering;
use wire::scsi::Sense;

/// The wipe of one unit.
#[derive(Debug, Default)]
pub(crate) struct Wiping {
    /// Parts of 65536.
    pub(super) progress: AtomicU16,
    /// Of [`Kind`].
    kind: AtomicU8,
    /// None begins.
    is_held_back: AtomicBool,
    keeper: Option<Arc<dyn Keeper>>,
}

/// What wipes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Format = 0,
    /// A failure is left by another SANITIZE only.
    Sanitize = 1,
    /// AUSE: a failure is left by EXIT FAILURE MODE too.
    SanitizeUnrestricted = 2,
}

impl Kind {
    const fn of(code: u8) -> Self {
        match code {
            0 => Self::Format,
            1 => Self::Sanitize,
            _ => Self::SanitizeUnrestricted,
        }
    }

    /// What medium access commands are told after a failure, and who asked for it.
    pub(super) const fn failed(self) -> Sense {
        match self {
            Self::Format => sense::FORMAT_FAILED,
            Self::Sanitize | Self::SanitizeUnrestricted => sense::SANITIZE_FAILED,
        }
    }
}

impl Wiping {
    /// With somebody who keeps it, and what was kept of the unit `number` last: the wipe that has
    /// not ended well, if any.
    pub(crate) fn keep(
        &mut self,
        keeper: Arc<dyn Keeper>,
        state: Option<&[u8]>,
        number: u64,
    ) -> Result<Option<Kind>, RestoreError> {
        self.keeper = Some(keeper);
        let Some(state) = state else { return Ok(None) };
        let mut rest = kept::open(Kept::Wipe, number, state)?;
        let [code] = rest.take()?;
        rest.end()?;
        match code {
            0 => Ok(None),
            1..=3 => {
                let kind = Kind::of(code - 1);
                self.begin(kind);
                Ok(Some(kind))
            }
            _ => Err(RestoreError::Damaged),
        }
    }

    pub(super) fn begin(&self, kind: Kind) {
        self.kind.store(kind as u8, Ordering::Release);
        self.progress.store(0, Ordering::Release);
    }

    fn note(&self, kind: Option<Kind>, number: u64) -> Option<Keep> {
        let code = kind.map_or(0, |kind| 1 + kind as u8);
        Some(Keep::new(self.keeper.as_ref()?, kept::seal(Kept::Wipe, number, &[code])))
    }
}

impl LogicalUnit {
    /// True if the last FORMAT UNIT or SANITIZE failed or was cut short: the medium gives nothing
    /// until another one ends well.
    #[must_use]
    pub fn wipe_has_failed(&self) -> bool {
        self.is_special(Special::WipeFailed)
    }

    /// True while FORMAT UNIT or SANITIZE is under way.
    #[must_use]
    pub fn is_being_wiped(&self) -> bool {
        self.is_special(Special::Wiping)
    }

    /// Another process is about to serve in the place of this one: changes of what ends with this
    /// one are held back, and no FORMAT UNIT or SANITIZE begins, which would end with it though it
    /// was acknowledged. Those under way go on: who has called this looks behind it for them.
    pub fn hold_back(&self) {
        self.wiping().is_held_back.store(true, Ordering::SeqCst);
        self.store().hold_back();
    }

    /// The end of [`hold_back`](Self::hold_back).
    pub fn let_on(&self) {
        self.wiping().is_held_back.store(false, Ordering::SeqCst);
        self.store().let_on();
    }

    /// Whether no wipe is to begin now.
    pub(super) fn holds_wipes_back(&self) -> bool {
        self.wiping().is_held_back.load(Ordering::SeqCst) || self.store().is_held_back()
    }

    /// What says that a wipe has begun, or with None that the medium is as it should be; None where
    /// nothing is kept. Only who has marked the unit as being wiped may ask for it.
    pub(super) fn note_wipe(&self, kind: Option<Kind>) -> Option<Keep> {
        debug_assert!(self.is_being_wiped(), "one at a time");
        self.wiping().note(kind, self.number())
    }

    /// How far FORMAT UNIT or SANITIZE is.
    pub(crate) fn wiping_sense(&self) -> Sense {
        let sense = match self.wiping_kind() {
            Kind::Format => sense::FORMAT_IN_PROGRESS,
            Kind::Sanitize | Kind::SanitizeUnrestricted => sense::SANITIZE_IN_PROGRESS,
        };
        sense.with_progress(self.wiping().progress.load(Ordering::Acquire))
    }

    /// What is told of a wipe that failed.
    pub(crate) fn wipe_failed_sense(&self) -> Sense {
        self.wiping_kind().failed()
    }

    pub(crate) fn wiping_kind(&self) -> Kind {
        Kind::of(self.wiping().kind.load(Ordering::Acquire))
    }

    /// With what was kept of a wipe.
    pub(crate) fn keep_wipes(
        &mut self,
        keeper: Arc<dyn Keeper>,
        state: Option<&[u8]>,
    ) -> Result<(), RestoreError> {
        let number = self.number();
        if self.wiping_mut().keep(keeper, state, number)?.is_some() {
            self.make_special(Special::WipeFailed);
        }
        Ok(())
    }
}
