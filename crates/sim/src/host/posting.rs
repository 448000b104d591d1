// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a session asks for: the load, what comes beside it, and all blocks at the end.

use std::time::Duration;

use initiator::Management;
use initiator::Request;
use initiator::Retry;

use super::Host;
use super::ending::kind_name;
use crate::claims::Action;
use crate::claims::Sweep;
use crate::copies::Step;
use crate::options::RESTS;
use crate::options::SessionPlan;
use crate::request::Form;
use crate::request::What;
use crate::stage::Operation;
use crate::stage::Stage;
use crate::world::Due;
use crate::world::Plan;

/// So many of a thousand requests of a guard are about its reservation.
const GUARDS: u64 = 80;

impl Host {
    /// Posts one request of the load. False if there was no place for it.
    pub(super) fn post(&mut self, slot: usize, stage: &mut Stage) -> bool {
        let entry = &self.slots[slot];
        if entry.operations.len() >= entry.plan.depth {
            return false;
        }
        let units = &stage.units[entry.plan.target];
        let lun = self.rng.index(units.len());
        let unit = units[lun];
        let model = &stage.models[unit];
        let count = 1 + self.rng.index(entry.plan.blocks_max.min(model.len()));
        let lba = self.rng.index(model.len() - count + 1);
        let durable = self.rng.chance(150);
        let mut what = match self.rng.below(100) {
            0..45 => What::Read,
            45..92 => What::Write { version: stage.next_version, durable, form: Form::Write },
            _ => What::Flush,
        };
        if entry.plan.copies > 0 && self.rng.chance(entry.plan.copies) {
            return self.begin_copy(slot, stage);
        }
        if entry.plan.floods > 0 && self.rng.chance(entry.plan.floods) {
            return self.begin_flood(slot, stage);
        }
        let mut count = count;
        if entry.plan.rare > 0 && self.rng.chance(entry.plan.rare) {
            count = what.vary(model, lba, count, &mut self.rng);
        }
        if entry.plan.guard
            && self.rng.chance(GUARDS)
            && let Some(action) = stage.claims[unit].next(entry.nexus)
        {
            what = What::Guard(action);
        }
        if entry.plan.registers && self.rng.chance(GUARDS) {
            what = What::Guard(Action::Join);
        }
        if entry.plan.modes > 0
            && self.rng.chance(entry.plan.modes)
            && let Some(setting) = stage.settings[unit].next(self.rng.chance(400))
        {
            what = What::Setting(setting);
        }
        if matches!(what, What::Write { .. }) && !model.is_free(lba, count) {
            return true;
        }
        self.slots[slot].left = self.slots[slot].left.saturating_sub(1);
        self.maybe_rest(slot);
        let operation = self.operation(what, unit, lba, count);
        self.submit(slot, lun, operation, stage);
        self.maybe_manage(slot, lun);
        true
    }

    pub(super) fn operation(&self, what: What, unit: usize, lba: usize, count: usize) -> Operation {
        Operation { what, unit, lba, count, asked: self.world.borrow().now, mark: None }
    }

    /// Aborts or resets what is under way on the unit, now and then.
    fn maybe_manage(&mut self, slot: usize, lun: usize) {
        let entry = &self.slots[slot];
        if entry.plan.manages == 0 || !self.rng.chance(entry.plan.manages) {
            return;
        }
        let lun = u16::try_from(lun).unwrap_or(0);
        let management = match self.rng.below(3) {
            0 => Management::AbortTaskSet(lun),
            1 => Management::ClearTaskSet(lun),
            _ => Management::LogicalUnitReset(lun),
        };
        self.tag += 1;
        let (Some(pump), Some(id)) = (&mut self.pump, entry.id) else { return };
        // A session that is lost, or has asked for enough, takes none.
        let taken = pump.post_management(id, self.tag, management).is_ok();
        let mut world = self.world.borrow_mut();
        world.tally.mark(if taken { "management asked" } else { "management not taken" });
    }

    /// Goes to rest after each part of the load.
    fn maybe_rest(&mut self, slot: usize) {
        let entry = &mut self.slots[slot];
        let SessionPlan { rest, operations, .. } = entry.plan;
        if rest == 0 || entry.left == 0 || !entry.left.is_multiple_of(operations / (RESTS + 1)) {
            return;
        }
        let mut world = self.world.borrow_mut();
        let until = world.now + Duration::from_secs(1 + self.rng.below(rest));
        entry.rests_until = until;
        world.at(until, Due::Plan(Plan::Load(self.index, slot)));
        world.tally.mark("rest");
    }

    /// Posts the next request that reads a unit as a whole. A guard lets everybody read before.
    pub(super) fn verify(&mut self, slot: usize, stage: &mut Stage) -> bool {
        let entry = &mut self.slots[slot];
        let units = &stage.units[entry.plan.target];
        for (lun, unit) in units.iter().copied().enumerate().filter(|_| entry.plan.guard) {
            match stage.claims[unit].sweep(entry.nexus) {
                Sweep::Clean => {}
                Sweep::Wait => return false,
                Sweep::Do(action) => {
                    let operation = self.operation(What::Guard(action), unit, 0, 0);
                    self.submit(slot, lun, operation, stage);
                    return true;
                }
            }
        }
        let open = (0..)
            .zip(&entry.verified)
            .find(|(lun, at)| units.get(*lun).is_some_and(|unit| **at < stage.models[*unit].len()));
        let Some((lun, lba)) = open.map(|(lun, at)| (lun, *at)) else { return false };
        let unit = units[lun];
        let most = entry.plan.blocks_max.min(stage.readable[entry.plan.target]);
        let count = most.min(stage.models[unit].len() - lba);
        entry.verified[lun] += count;
        let operation = self.operation(What::Read, unit, lba, count);
        self.submit(slot, lun, operation, stage);
        true
    }

    pub(super) fn submit(
        &mut self,
        slot: usize,
        lun: usize,
        mut operation: Operation,
        stage: &mut Stage,
    ) {
        let Operation { what, unit, lba, count, asked, .. } = operation;
        let model = &mut stage.models[unit];
        if let What::Write { version, .. } = what {
            stage.next_version += 1;
            model.begin(lba, count, version, asked);
            stage.tokens[unit].touch(lba, count, asked);
        }
        if what == What::Flush {
            let promises = self.slots[slot].promises.entry(unit).or_default();
            operation.mark = Some(promises.mark());
        }
        let copy = match what {
            What::Write { version, .. } | What::Copy(version, _) => stage.copies.get(&version),
            _ => None,
        };
        let entry = &mut self.slots[slot];
        let reservation = (stage.claims[unit].kind(), stage.keeps[entry.plan.target]);
        let (cdb, data) = what.command(model, lba, count, reservation, copy);
        if let What::Setting(setting) = what {
            stage.settings[unit].ask(setting);
        }
        if let What::Guard(action) = what {
            stage.claims[unit].ask(entry.nexus, action, asked);
        }
        let retry = match what {
            _ if !what.repeats() => Retry::IfNotDone,
            What::Write { .. } if !entry.plan.repeat => Retry::IfNotDone,
            _ => Retry::Always,
        };
        let lun = u16::try_from(lun).unwrap_or(0);
        self.tag += 1;
        let request = Request { lun, cdb, data, retry };
        let (Some(pump), Some(id)) = (&mut self.pump, entry.id) else { return };
        match pump.post(id, self.tag, request) {
            Ok(()) => {
                entry.operations.insert(self.tag, operation);
            }
            Err((error, _)) => {
                match what {
                    What::Write { version, .. } => model.retract(lba, count, version),
                    What::Guard(action) => {
                        stage.claims[unit].end(entry.nexus, action, false, asked);
                    }
                    What::Setting(setting) => stage.settings[unit].failed(setting, true),
                    What::Copy(version, Step::Progress) => self.abandon(slot, version, stage),
                    What::Read | What::Flush | What::Copy(..) => {}
                }
                self.world.borrow_mut().tally.end(&format!("not taken: {}", kind_name(&error)));
            }
        }
    }
}
