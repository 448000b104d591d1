// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Unit attention conditions of one I_T nexus and one logical unit (SAM-5 §5.14).
//!
//! There is one bit for each code, in order of priority. So the queue is bounded by itself, takes
//! no lock, and "nothing is pending" is one load.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering;
use wire::scsi::Sense;
use wire::scsi::SenseKey;

macro_rules! attentions {
    ($($(#[$doc:meta])* $name:ident = $asc:literal, $ascq:literal;)*) => {
        /// A condition, highest priority first (SAM-5 §5.14.2).
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Attention {
            $($(#[$doc])* $name,)*
        }

        impl Attention {
            pub(crate) const ALL: &[Self] = &[$(Self::$name),*];

            /// The sense data that reports it.
            pub(crate) const fn sense(self) -> Sense {
                let (asc, ascq) = match self {
                    $(Self::$name => ($asc, $ascq),)*
                };
                Sense::new(SenseKey::UnitAttention, asc, ascq)
            }
        }
    };
}

attentions! {
    /// POWER ON, RESET, OR BUS DEVICE RESET OCCURRED: the first nexus of an initiator port.
    PowerOn = 0x29, 0x00;
    /// BUS DEVICE RESET FUNCTION OCCURRED: LOGICAL UNIT RESET.
    DeviceReset = 0x29, 0x03;
    /// I_T NEXUS LOSS OCCURRED.
    NexusLoss = 0x29, 0x07;
    /// NOT READY TO READY CHANGE, MEDIUM MAY HAVE CHANGED.
    MediumChanged = 0x28, 0x00;
    /// CAPACITY DATA HAS CHANGED.
    CapacityChanged = 0x2a, 0x09;
    /// ASYMMETRIC ACCESS STATE CHANGED.
    AccessStateChanged = 0x2a, 0x06;
    /// RESERVATIONS PREEMPTED.
    ReservationsPreempted = 0x2a, 0x03;
    /// RESERVATIONS RELEASED.
    ReservationsReleased = 0x2a, 0x04;
    /// REGISTRATIONS PREEMPTED.
    RegistrationsPreempted = 0x2a, 0x05;
    /// MODE PARAMETERS CHANGED.
    ModeChanged = 0x2a, 0x01;
    /// LOG PARAMETERS CHANGED.
    LogChanged = 0x2a, 0x02;
    /// TIMESTAMP CHANGED.
    TimestampChanged = 0x2a, 0x10;
    /// DEVICE IDENTIFIER CHANGED.
    IdentifierChanged = 0x3f, 0x05;
    /// REPORTED LUNS DATA HAS CHANGED.
    LunsChanged = 0x3f, 0x0e;
    /// THIN PROVISIONING SOFT THRESHOLD REACHED.
    SoftThreshold = 0x38, 0x07;
    /// COMMANDS CLEARED BY ANOTHER INITIATOR.
    CommandsCleared = 0x2f, 0x00;
    /// SOME COMMANDS CLEARED BY ISCSI PROTOCOL EVENT.
    ClearedByIscsi = 0x47, 0x7f;
    /// What a device has told another nexus and has no name here: [`crate::pass::news`] knows it.
    OfDevice = 0x00, 0x00;
}

impl Attention {
    /// The condition with these codes, if it has a name here.
    pub(crate) fn named(asc: u8, ascq: u8) -> Option<Self> {
        let is = |one: &&Self| {
            **one != Self::OfDevice && {
                let sense = one.sense();
                (sense.asc, sense.ascq) == (asc, ascq)
            }
        };
        Self::ALL.iter().find(is).copied()
    }

    /// Bits of the reset family: reporting one makes those of lower priority redundant.
    const RESETS: u32 = Self::PowerOn.bit() | Self::DeviceReset.bit() | Self::NexusLoss.bit();

    const fn bit(self) -> u32 {
        1 << self as u32
    }

    /// The bits that are void once this is reported.
    const fn covers(self) -> u32 {
        if self.bit() & Self::RESETS != 0 { Self::RESETS } else { self.bit() }
    }
}

const _: () = assert!(Attention::ALL.len() <= 32, "one bit each");

/// What is pending.
#[derive(Debug, Default)]
pub(crate) struct Attentions(AtomicU32);

impl Attentions {
    /// Adds a condition; a second one of the same code is the same.
    pub(crate) fn establish(&self, attention: Attention) {
        self.0.fetch_or(attention.bit(), Ordering::AcqRel);
    }

    /// Takes the one to report next (UA_INTLCK_CTRL = 00b: reporting clears it).
    pub(crate) fn take(&self) -> Option<Attention> {
        let mut pending = self.0.load(Ordering::Acquire);
        while let Some(next) = Attention::ALL.iter().find(|next| pending & next.bit() != 0) {
            let rest = pending & !next.covers();
            match self.0.compare_exchange(pending, rest, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(*next),
                Err(now) => pending = now,
            }
        }
        None
    }

    /// True if the one to report next is of a reset.
    pub(crate) fn begins_with_reset(&self) -> bool {
        self.0.load(Ordering::Acquire) & Attention::RESETS != 0
    }

    /// The one to report next, which stays, and whether others will be reported after it.
    pub(crate) fn peek(&self) -> Option<(Attention, bool)> {
        let pending = self.0.load(Ordering::Acquire);
        let next = *Attention::ALL.iter().find(|next| pending & next.bit() != 0)?;
        Some((next, pending & !next.covers() != 0))
    }

    pub(crate) fn has(&self, attention: Attention) -> bool {
        self.0.load(Ordering::Acquire) & attention.bit() != 0
    }

    /// What `attention` says has been seen by other means.
    pub(crate) fn withdraw(&self, attention: Attention) {
        self.0.fetch_and(!attention.bit(), Ordering::AcqRel);
    }

    /// Nothing but `attention` is true any more.
    pub(crate) fn replace(&self, attention: Attention) {
        self.0.store(attention.bit(), Ordering::Release);
    }

    /// True if a command must be stopped for a report.
    #[inline]
    pub(crate) fn pending(&self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_in_order_of_priority() {
        for (index, attention) in (0..).zip(Attention::ALL) {
            assert_eq!(attention.bit(), 1 << index);
        }
    }

    #[test]
    fn one_entry_a_code_highest_first() {
        let attentions = Attentions::default();
        attentions.establish(Attention::ClearedByIscsi);
        attentions.establish(Attention::CommandsCleared);
        attentions.establish(Attention::CommandsCleared);
        attentions.establish(Attention::NexusLoss);
        assert_eq!(attentions.take(), Some(Attention::NexusLoss));
        assert_eq!(attentions.take(), Some(Attention::CommandsCleared));
        assert!(attentions.pending());
        assert_eq!(attentions.take(), Some(Attention::ClearedByIscsi));
        assert_eq!(attentions.take(), None);
        assert!(!attentions.pending());
    }

    #[test]
    fn a_reset_covers_the_lower_ones_of_its_family() {
        let attentions = Attentions::default();
        attentions.establish(Attention::NexusLoss);
        attentions.establish(Attention::PowerOn);
        attentions.establish(Attention::CommandsCleared);
        assert_eq!(attentions.take(), Some(Attention::PowerOn));
        assert_eq!(attentions.take(), Some(Attention::CommandsCleared));
        assert_eq!(attentions.take(), None);
    }
}
