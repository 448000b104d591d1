// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The word that says "nothing special" of a unit, or what is.

use super::LogicalUnit;
use crate::sense;
use crate::spc::modes::Parameters;
use core::sync::atomic::Ordering;

/// What is out of the ordinary with a unit, so that one load tells that nothing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Special {
    /// By START STOP UNIT.
    Stopped = 1,
    /// A command reads, decides and writes as one.
    Claimed = 2,
    /// Somebody holds a reservation.
    Reserved = 4,
    /// SWP: writing is refused.
    WriteProtected = 8,
    /// D_SENSE: sense data are in descriptor format.
    DescriptorSense = 16,
    /// Tasks are listed: some are not SIMPLE, or there is an ACA condition.
    Queued = 32,
    /// An ACA condition: tasks that run may have to stop.
    Aca = 64,
    /// WCE is off though the store has a cache: what is written goes to stable storage.
    WriteThrough = 128,
    /// A target port group is in a state that does not let every command through.
    Asymmetric = 256,
    /// ROD tokens stand for some of its blocks.
    Tokens = 1 << 20,
    /// FORMAT UNIT or SANITIZE is under way.
    Wiping = 1 << 21,
    /// The last of them has failed.
    WipeFailed = 1 << 22,
    /// It is no longer served: copies that other units carry out end.
    Withdrawn = 1 << 23,
    /// The tray is open: there is no medium.
    Ejected = 1 << 16,
}

impl Special {
    /// What stops commands that have passed everything else.
    pub(super) const OBSTACLES: u32 = Self::Stopped as u32
        | Self::Asymmetric as u32
        | Self::Ejected as u32
        | Self::Wiping as u32
        | Self::WipeFailed as u32;
}

impl LogicalUnit {
    /// Why the medium cannot be used, if it cannot.
    #[inline]
    pub(crate) fn not_ready(&self) -> Option<wire::scsi::Sense> {
        const NOT_READY: u32 = Special::Stopped as u32 | Special::Ejected as u32;
        match self.special.load(Ordering::SeqCst) & NOT_READY {
            0 => None,
            why if why & Special::Ejected as u32 != 0 => Some(sense::TRAY_OPEN),
            _ => Some(sense::STOPPED),
        }
    }

    pub(crate) fn stop(&self) {
        self.make_special(Special::Stopped);
    }

    pub(crate) fn restart(&self) {
        self.make_ordinary(Special::Stopped);
    }

    /// True if tasks that run need a closer look at each step.
    #[inline]
    pub(crate) fn watches_steps(&self) -> bool {
        const WATCHED: u32 = Special::Aca as u32 | Special::WriteThrough as u32;
        self.special.load(Ordering::SeqCst) & WATCHED != 0
    }

    /// Sets the bits that commands read.
    pub(super) fn show_modes(&self) {
        let Parameters { control, caching } = self.modes.current();
        for (special, holds) in [
            (Special::DescriptorSense, control.descriptor_sense),
            (Special::WriteProtected, control.software_write_protect),
            (Special::WriteThrough, self.modes.has_cache() && !caching.write_cache),
        ] {
            if holds {
                self.make_special(special);
            } else {
                self.make_ordinary(special);
            }
        }
    }

    #[inline]
    pub(crate) fn specials(&self) -> u32 {
        self.special.load(Ordering::SeqCst)
    }

    #[inline]
    pub(crate) fn is_special(&self, special: Special) -> bool {
        self.special.load(Ordering::SeqCst) & special as u32 != 0
    }

    /// True if it was not so before.
    pub(crate) fn make_special(&self, special: Special) -> bool {
        self.special.fetch_or(special as u32, Ordering::SeqCst) & special as u32 == 0
    }

    pub(crate) fn make_ordinary(&self, special: Special) {
        self.special.fetch_and(!(special as u32), Ordering::SeqCst);
    }
}
