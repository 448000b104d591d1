// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sessions that have units say who they are before they use them, where disks are exchanged: the
//! initiator keeps them from all others then.

use std::time::Duration;

use clock::Instant;
use initiator::Data;
use initiator::Done;
use initiator::Error;
use initiator::Request;
use initiator::Retry;
use wire::scsi::command;
use wire::scsi::vpd;

use super::Host;
use crate::stage::Operation;
use crate::stage::Stage;

/// Room for a list of names, bytes.
const NAMES: u16 = 512;

/// What a session knows of the units of its target.
#[derive(Clone, Debug, Default)]
pub(super) struct Acquaintance {
    /// When each unit said who it is.
    since: Vec<Option<Instant>>,
    /// Tag and unit of what is asked.
    asked: Vec<(u64, usize)>,
}

impl Host {
    /// Asks those units that have not said who they are. True: all have.
    pub(super) fn knows_all(&mut self, slot: usize, stage: &Stage) -> bool {
        let entry = &mut self.slots[slot];
        let units = stage.units[entry.plan.target].len();
        entry.known.since.resize(units, None);
        let (Some(pump), Some(id)) = (&mut self.pump, entry.id) else { return false };
        for unit in 0..units {
            let is_asked = entry.known.asked.iter().any(|(_, of)| *of == unit);
            if entry.known.since[unit].is_some() || is_asked {
                continue;
            }
            self.tag += 1;
            let cdb = command::inquiry(Some(vpd::DEVICE_IDENTIFICATION), NAMES);
            let (lun, data) = (u16::try_from(unit).unwrap_or(0), Data::In(NAMES.into()));
            let request = Request { lun, cdb, data, retry: Retry::Always };
            if pump.post(id, self.tag, request).is_ok() {
                entry.known.asked.push((self.tag, unit));
            }
        }
        entry.known.since.iter().all(Option::is_some)
    }

    /// Whether a request was one of these, which has ended.
    pub(super) fn is_acquainted(
        &mut self,
        slot: usize,
        tag: u64,
        result: &Result<Done, Error>,
    ) -> bool {
        let now = self.world.borrow().now;
        let known = &mut self.slots[slot].known;
        let Some(at) = known.asked.iter().position(|(asked, _)| *asked == tag) else {
            return false;
        };
        let (_, unit) = known.asked.swap_remove(at);
        known.since[unit] = result.is_ok().then_some(now);
        self.plan(slot, Duration::from_millis(if result.is_ok() { 0 } else { 1000 }));
        true
    }

    /// Fails if a request was carried out by another disk than the session knows.
    pub(super) fn judge_disk(&self, slot: usize, operation: &Operation, stage: &mut Stage) {
        let units = &stage.units[self.slots[slot].plan.target];
        let lun = units.iter().position(|unit| *unit == operation.unit).unwrap_or(0);
        let since = self.slots[slot].known.since.get(lun).copied().flatten();
        let other = stage.exchanges[operation.unit]
            .iter()
            .any(|at| since.is_some_and(|since| since < *at) && *at < operation.asked);
        if other {
            let (what, unit) = (operation.what, operation.unit);
            stage.fail(format!("{what:?} of unit {unit} went to another disk than was known"));
        }
    }

    /// A request met another disk than the session knows: whoever wants that one begins anew.
    pub(super) fn begin_anew(&mut self, slot: usize, operation: &Operation, stage: &Stage) {
        self.world.borrow_mut().tally.mark("another disk noticed");
        let entry = &mut self.slots[slot];
        let units = &stage.units[entry.plan.target];
        let lun = units.iter().position(|unit| *unit == operation.unit);
        if stage.verifying
            && let Some(at) = lun.and_then(|lun| entry.verified.get_mut(lun))
        {
            *at = operation.lba.min(*at);
        }
        if let (Some(pump), Some(id)) = (&mut self.pump, entry.id) {
            pump.close(id);
        }
    }
}
