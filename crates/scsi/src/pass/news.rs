// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Unit attentions of a device (SAM-5 §5.14): it tells one nexus, which is all that it knows of,
//! with whatever command comes next. Whose command that was has heard it; every other nexus of the
//! unit hears it with its own next one.

use crate::attention::Attention;
use crate::lun::LogicalUnit;
use crate::lun::NexusState;
use alloc::vec::Vec;
use wire::scsi::Sense;
use wire::scsi::SenseKey;

/// Codes that wait for one nexus: hosts look at the device anew for the first one.
const NEWS_MAX: usize = 4;

/// Additional sense code of POWER ON, RESET, OR BUS DEVICE RESET OCCURRED.
const RESET_OCCURRED: u8 = 0x29;
/// I_T NEXUS LOSS OCCURRED: of the nexus between this system and the device.
const NEXUS_LOSS: u8 = 0x07;

/// Codes of a device without a name in [`Attention`], in order; each stands here once.
#[derive(Debug, Default)]
pub(crate) struct News(spin::Mutex<Vec<(u8, u8)>>);

impl NexusState {
    /// The condition to report next, which ends with that.
    pub(crate) fn take_attention(&self) -> Option<Sense> {
        let next = self.attentions.take()?;
        if next != Attention::OfDevice {
            return Some(next.sense());
        }
        let mut news = self.news.0.lock();
        if news.is_empty() {
            return None;
        }
        let (asc, ascq) = news.remove(0);
        if !news.is_empty() {
            self.attentions.establish(Attention::OfDevice);
        }
        Some(Sense::new(SenseKey::UnitAttention, asc, ascq))
    }

    /// The condition to report next, which stays, and whether others will be reported after it.
    pub(crate) fn peek_attention(&self) -> Option<(Sense, bool)> {
        let (next, more) = self.attentions.peek()?;
        if next != Attention::OfDevice {
            return Some((next.sense(), more));
        }
        let news = self.news.0.lock();
        let (asc, ascq) = news.first()?;
        Some((Sense::new(SenseKey::UnitAttention, *asc, *ascq), news.len() > 1))
    }

    fn hear(&self, asc: u8, ascq: u8) {
        let named = match (asc, ascq) {
            // Whatever kind of reset it was: the unit is as after power on.
            (RESET_OCCURRED, _) => Some(Attention::PowerOn),
            _ => Attention::named(asc, ascq),
        };
        if let Some(attention) = named {
            return self.attentions.establish(attention);
        }
        let mut news = self.news.0.lock();
        // What was told before a reset, which covers it, is of no matter any more.
        if !self.attentions.has(Attention::OfDevice) {
            news.clear();
        }
        if news.len() < NEWS_MAX && !news.contains(&(asc, ascq)) {
            news.push((asc, ascq));
        }
        self.attentions.establish(Attention::OfDevice);
    }
}

/// `sense`, which the device has given to a command of the nexus with `nexus_state`, for everybody
/// else.
pub(crate) fn spread(unit: &LogicalUnit, nexus_state: Option<&NexusState>, sense: &Sense) {
    if sense.key != SenseKey::UnitAttention || sense.deferred {
        return;
    }
    if (sense.asc, sense.ascq) == (RESET_OCCURRED, NEXUS_LOSS) {
        return;
    }
    if sense.asc == RESET_OCCURRED {
        unit.end_legacy_reservation(None);
        unit.each_nexus(|other| other.medium.allow_removal());
    }
    unit.each_nexus(|other| {
        if !nexus_state.is_some_and(|own| core::ptr::eq(own, other)) {
            other.hear(sense.asc, sense.ascq);
        }
    });
}
