// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the pump tells of sessions.

use std::time::Duration;

use initiator::Error;
use initiator::Event;
use initiator::Kind;
use initiator::PathChange;
use initiator::SessionId;

use super::Host;
use super::ending::kind_name;
use super::knowing::Acquaintance;
use crate::stage::Stage;

impl Host {
    fn slot_of(&self, session: SessionId) -> Option<usize> {
        self.slots.iter().position(|slot| slot.id == Some(session))
    }

    pub(super) fn event(&mut self, event: Event, stage: &mut Stage) {
        match event {
            Event::Done { session, tag, result } => {
                let Some(slot) = self.slot_of(session) else { return };
                if self.is_acquainted(slot, tag, &result) {
                    return;
                }
                let Some(operation) = self.slots[slot].operations.remove(&tag) else {
                    return stage.fail(format!("request {tag} of host {} ended twice", self.index));
                };
                self.ended(slot, &operation, result, stage);
                self.plan(slot, Duration::from_micros(1));
            }
            Event::Up { session, .. } => {
                let Some(slot) = self.slot_of(session) else { return };
                self.slots[slot].up = true;
                let (host, now) = (self.index, self.world.borrow().now);
                self.world.borrow_mut().tally.mark("session up");
                if self.slots[slot].plan.paths > 1 {
                    // That another path is there says nothing of what went over those before.
                    return self.plan(slot, Duration::from_micros(1));
                }
                // The session is a new one in the place of the old one: nothing of that can come.
                let Stage { ghosts, models, .. } = stage;
                ghosts.retain(|ghost| {
                    let laid = ghost.host == host
                        && ghost.slot == slot
                        && !ghost.links.is_empty()
                        && !ghost.job;
                    if laid {
                        models[ghost.unit].exorcise(ghost.lba, ghost.count, now);
                    }
                    !laid
                });
                self.plan(slot, Duration::from_micros(1));
            }
            Event::Down { session, error } => {
                let Some(slot) = self.slot_of(session) else { return };
                self.slots[slot].up = false;
                let mut world = self.world.borrow_mut();
                world.tally.end(&format!("down: {}", kind_name(&error)));
                let now = world.now;
                world.trace.note(now, || format!("host {}: {error}", self.index));
                drop(world);
                if !stage.may_lose {
                    stage.fail(format!("a session was lost without a fault: {error}"));
                }
            }
            Event::Path { change: PathChange::Lost(error), .. } => {
                let mut world = self.world.borrow_mut();
                world.tally.mark("path lost");
                let now = world.now;
                world.trace.note(now, || format!("host {}: path: {error}", self.index));
                drop(world);
                if !stage.may_lose {
                    stage.fail(format!("a path was lost without a fault: {error}"));
                }
            }
            Event::Path { change: PathChange::Back, .. } => {
                self.world.borrow_mut().tally.mark("path back");
            }
            Event::Path { change: PathChange::Refused(error), .. } => {
                stage.fail(format!("a path is refused: {error}"));
            }
            Event::Managed { result, .. } => {
                let how = result.as_ref().map_or_else(kind_name, |()| "good".to_owned());
                self.world.borrow_mut().tally.end(&format!("management {how}"));
                if let Err(error) = result
                    && matches!(error.kind(), Kind::Management(_))
                {
                    stage.fail(format!("a task management function fails: {error}"));
                }
            }
            Event::Deferred { session, error } => {
                let Some(slot) = self.slot_of(session) else { return };
                let units = &stage.units[self.slots[slot].plan.target];
                let unit = error.lun().and_then(|lun| units.get(usize::from(lun)));
                let now = self.world.borrow().now;
                if let Some(unit) = unit {
                    self.slots[slot].promises.entry(*unit).or_default().failed(now);
                }
            }
            Event::Ended { session, error } => self.closed(session, error, stage),
            _ => {}
        }
    }

    fn closed(&mut self, session: SessionId, error: Option<Error>, stage: &mut Stage) {
        let Some(slot) = self.slot_of(session) else { return };
        if let Some(pump) = &mut self.pump {
            pump.forget(session);
        }
        self.drop_steps(slot, stage);
        (self.slots[slot].id, self.slots[slot].up) = (None, false);
        self.slots[slot].known = Acquaintance::default();
        for ghost in &mut stage.ghosts {
            // The next session has another name and takes no place.
            if ghost.host == self.index && ghost.slot == slot {
                ghost.slot = usize::MAX;
            }
        }
        if let Some(error) = error {
            self.world.borrow_mut().tally.end(&format!("given up: {}", kind_name(&error)));
            if !stage.may_lose {
                stage.fail(format!("a session ended without a fault: {error}"));
            }
        }
        let pause = self.rng.micros(1000..=5_000_000);
        self.plan(slot, pause);
    }
}
