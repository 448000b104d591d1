// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tray: START STOP UNIT, PREVENT ALLOW MEDIUM REMOVAL, GET EVENT STATUS NOTIFICATION and
//! MECHANISM STATUS (MMC-6 §6.42, §6.14, §6.7, §6.11).
//!
//! There is one tray for all initiators: who opens it opens it for everybody, and nobody can while
//! any of them prevents it. Loading brings the same disc back.

use crate::attention::Attention;
use crate::lun::Context;
use crate::lun::Special;
use crate::sense;
use crate::sense::Fault;
use crate::task::Started;
use crate::task::data;
use crate::task::good;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::AtomicU8;
use core::sync::atomic::Ordering;
use wire::scsi::mmc;
use wire::scsi::mmc::MediaEvent;

/// What one nexus has to do with the tray.
#[derive(Debug, Default)]
pub(crate) struct MediumOfNexus {
    /// It prevents removal.
    prevents: AtomicBool,
    /// The last [`MediaEvent`] that it has not asked about.
    event: AtomicU8,
}

impl MediumOfNexus {
    /// It prevents removal no longer.
    pub(crate) fn allow_removal(&self) {
        self.prevents.store(false, Ordering::Relaxed);
    }

    pub(crate) fn prevent_removal(&self, prevents: bool) {
        self.prevents.store(prevents, Ordering::Relaxed);
    }

    pub(crate) fn prevents(&self) -> bool {
        self.prevents.load(Ordering::Relaxed)
    }

    fn note(&self, event: MediaEvent) {
        self.event.store(event as u8, Ordering::Relaxed);
    }

    fn take_event(&self) -> MediaEvent {
        match self.event.swap(MediaEvent::None as u8, Ordering::Relaxed) {
            event if event == MediaEvent::New as u8 => MediaEvent::New,
            event if event == MediaEvent::Removed as u8 => MediaEvent::Removed,
            _ => MediaEvent::None,
        }
    }
}

/// START STOP UNIT: opens and closes the tray; starting and stopping alone are nothing to a file.
pub(crate) fn start_stop(context: &Context<'_>) -> Result<Started, Fault> {
    let (cdb, unit) = (&context.cdb, context.unit);
    if cdb.byte(4) >> 4 != 0 {
        return Err(sense::invalid_bit(4, 7).into());
    }
    match (cdb.bit(4, 1), cdb.bit(4, 0)) {
        (false, _) => {}
        (true, false) => {
            if unit.any_nexus(|nexus_state| nexus_state.medium.prevents()) {
                return Err(sense::REMOVAL_PREVENTED.into());
            }
            if unit.make_special(Special::Ejected) {
                unit.each_nexus(|nexus_state| nexus_state.medium.note(MediaEvent::Removed));
            }
        }
        (true, true) => {
            if unit.is_special(Special::Ejected) {
                unit.make_ordinary(Special::Ejected);
                unit.each_nexus(|nexus_state| {
                    nexus_state.medium.note(MediaEvent::New);
                    nexus_state.attentions.establish(Attention::MediumChanged);
                });
            }
        }
    }
    Ok(good(0))
}

/// PREVENT ALLOW MEDIUM REMOVAL, for this nexus. The persistent forms are not supported.
pub(crate) fn prevent_allow(context: &Context<'_>) -> Result<Started, Fault> {
    if context.cdb.bit(4, 1) {
        return Err(sense::invalid_bit(4, 1).into());
    }
    context.nexus_state.medium.prevents.store(context.cdb.bit(4, 0), Ordering::Relaxed);
    Ok(good(0))
}

/// GET EVENT STATUS NOTIFICATION: polled, of the media class.
pub(crate) fn event_status(context: &Context<'_>) -> Result<Started, Fault> {
    let cdb = &context.cdb;
    if !cdb.bit(1, 0) {
        return Err(sense::invalid_bit(1, 0).into());
    }
    let allocation = u32::from(cdb.u16_at(7));
    let asked = cdb.bit(4, mmc::MEDIA_CLASS);
    let media = asked.then(|| {
        // Who has no room for it has not been told.
        let told = allocation > 4;
        let event = if told { context.nexus_state.medium.take_event() } else { MediaEvent::None };
        (event, !context.unit.is_special(Special::Ejected))
    });
    Ok(data(mmc::event_status(media), allocation))
}

/// MECHANISM STATUS.
pub(crate) fn mechanism_status(context: &Context<'_>) -> Result<Started, Fault> {
    let bytes = mmc::mechanism_status(context.unit.is_special(Special::Ejected));
    Ok(data(bytes.to_vec(), u32::from(context.cdb.u16_at(8))))
}
