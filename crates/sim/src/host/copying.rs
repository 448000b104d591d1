// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Copies by token, step by step, and what came of them.

use std::time::Duration;

use clock::Instant;
use initiator::Error;
use initiator::Kind;
use iscsi::initiator::Ending;
use wire::scsi::sense::SenseKey;
use wire::scsi::token;
use wire::scsi::token::TOKEN_LEN;

use super::Host;
use super::ending::is_of_copy;
use crate::copies;
use crate::copies::Copy;
use crate::copies::Progress;
use crate::copies::Step;
use crate::model::COPY;
use crate::model::Version;
use crate::options::Resize;
use crate::options::SessionPlan;
use crate::request::Form;
use crate::request::What;
use crate::resizing::Sizes;
use crate::stage::Ghost;
use crate::stage::Operation;
use crate::stage::Stage;
use crate::world::Due;
use crate::world::Plan;

/// How often to ask how far a copy is.
pub(super) const POLL: Duration = Duration::from_millis(100);

/// Copies of a session under way at one time: fewer than a target takes.
const COPIES_MAX: usize = 4;

/// Longest copy, blocks.
const BLOCKS_MAX: usize = 64;

/// When a disk may become smaller under a copy, microseconds after that began.
const RESIZED_WITHIN: u64 = 2_000_000;

/// Tokens that fill a table, and the one over: the first ones expire before it is full if each
/// takes long.
const FLOOD: u32 = 270;

/// What comes next of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Step(Step),
    /// WRITE USING TOKEN.
    Use,
    /// What it wrote is read.
    Look,
}

impl Host {
    /// Draws a copy, and asks for its token.
    pub(super) fn begin_copy(&mut self, slot: usize, stage: &mut Stage) -> bool {
        let entry = &self.slots[slot];
        let busy = entry.operations.values().filter(|one| is_of_copy(one.what)).count();
        let units = &stage.units[entry.plan.target];
        let [from, to] = [(); 2].map(|()| units[self.rng.index(units.len())]);
        let length = stage.models[from].len();
        let long = entry.plan.long_copies;
        let most = BLOCKS_MAX.min(length / 2);
        let count = if long { most } else { 1 + self.rng.index(most) };
        let [lba, other] = [(); 2].map(|()| self.rng.index(length - count + 1));
        let overlaps = from == to && lba < other + count && other < lba + count;
        let now = self.world.borrow().now;
        let copy = Copy {
            source: (from, lba),
            destination: (to, other),
            count,
            run: if long { 1 } else { self.rng.pick(&[1, 1, 4, BLOCKS_MAX]) },
            inactivity: if long { 1 } else { self.rng.pick(&[0, 1, 1, 5]) },
            immediate: self.rng.chance(400),
            delete: self.rng.chance(200),
            asked: now,
            populated: now,
            used: now,
            token: [0; TOKEN_LEN],
        };
        if overlaps || busy + entry.steps.len() >= COPIES_MAX {
            return true;
        }
        let version = stage.next_version | COPY;
        stage.next_version += 1;
        stage.copies.insert(version, copy);
        self.slots[slot].left = self.slots[slot].left.saturating_sub(1);
        self.next_step(slot, version, Next::Step(Step::Populate), Duration::ZERO);
        true
    }

    /// Fills the table of tokens of a unit, one after the other, beside copies.
    pub(super) fn begin_flood(&mut self, slot: usize, stage: &mut Stage) -> bool {
        let entry = &mut self.slots[slot];
        if entry.flood > 0 {
            return true;
        }
        entry.flood = FLOOD;
        entry.left = entry.left.saturating_sub(1);
        let units = &stage.units[entry.plan.target];
        let unit = units[self.rng.index(units.len())];
        let lba = self.rng.index(stage.models[unit].len());
        let now = self.world.borrow().now;
        let copy = Copy {
            source: (unit, lba),
            destination: (unit, lba),
            count: 1,
            run: 1,
            inactivity: 0,
            immediate: false,
            delete: false,
            asked: now,
            populated: now,
            used: now,
            token: [0; TOKEN_LEN],
        };
        let version = stage.next_version | COPY;
        stage.next_version += 1;
        stage.copies.insert(version, copy);
        self.next_step(slot, version, Next::Step(Step::Fill), Duration::ZERO);
        true
    }

    /// A copy goes on after its command; maybe its disk becomes smaller under way.
    pub(super) fn goes_on(&mut self, slot: usize, version: Version, stage: &Stage) {
        self.next_step(slot, version, Next::Step(Step::Progress), POLL);
        let SessionPlan { target, resized, .. } = self.slots[slot].plan;
        let Some(copy) = stage.copies.get(&version).filter(|_| resized > 0) else { return };
        if self.rng.chance(resized) {
            let lun = stage.units[target].iter().position(|unit| *unit == copy.destination.0);
            let lun = lun.and_then(|lun| u16::try_from(lun).ok()).unwrap_or(0);
            let at = self.rng.micros(0..=RESIZED_WITHIN);
            let resize = Resize { at, target, lun, left: self.rng.pick(&[1, 100, 500]) };
            self.world.borrow_mut().after(at, Due::Plan(Plan::Resize(resize)));
        }
    }

    /// Does `next` of a copy after `delay`.
    pub(super) fn next_step(&mut self, slot: usize, version: Version, next: Next, delay: Duration) {
        let mut world = self.world.borrow_mut();
        let due = world.now + delay;
        self.slots[slot].steps.push((due, version, next));
        world.at(due, Due::Plan(Plan::Load(self.index, slot)));
    }

    /// Posts what is due of a copy; false if nothing is.
    pub(super) fn go_on_copying(&mut self, slot: usize, stage: &mut Stage) -> bool {
        let now = self.world.borrow().now;
        let entry = &mut self.slots[slot];
        let Some(at) = entry.steps.iter().position(|(due, ..)| *due <= now) else { return false };
        let (_, version, next) = entry.steps.remove(at);
        let Some(copy) = stage.copies.get_mut(&version) else { return true };
        let Copy { source, destination, count, immediate, .. } = *copy;
        let (what, (unit, lba)) = match next {
            Next::Step(step @ (Step::Populate | Step::Fill | Step::Fetch)) => {
                if step != Step::Fetch {
                    copy.asked = now;
                    stage.tokens[source.0].ask(now);
                }
                (What::Copy(version, step), source)
            }
            Next::Step(Step::Progress) => (What::Copy(version, Step::Progress), destination),
            Next::Use => {
                copy.used = now;
                let form = Form::Token { immediate };
                (What::Write { version, durable: false, form }, destination)
            }
            Next::Look => {
                stage.copies.remove(&version);
                (What::Read, destination)
            }
        };
        if next == Next::Use && !stage.models[unit].is_free(lba, count) {
            stage.copies.remove(&version);
            return true;
        }
        let units = &stage.units[self.slots[slot].plan.target];
        let lun = units.iter().position(|one| *one == unit).unwrap_or(0);
        let operation = self.operation(what, unit, lba, count);
        self.submit(slot, lun, operation, stage);
        true
    }

    /// A step of a copy was answered.
    pub(super) fn copied(
        &mut self,
        slot: usize,
        (version, step): (Version, Step),
        (bytes, asked): (&[u8], Instant),
        stage: &mut Stage,
    ) {
        let Some(copy) = stage.copies.get_mut(&version) else { return };
        match step {
            Step::Fill => {
                let now = self.world.borrow().now;
                stage.tokens[copy.source.0].made(asked, now);
                let entry = &mut self.slots[slot];
                entry.flood = entry.flood.saturating_sub(1);
                if entry.flood > 0 {
                    return self.next_step(slot, version, Next::Step(step), Duration::ZERO);
                }
                self.world.borrow_mut().tally.mark("table of tokens filled");
                stage.copies.remove(&version);
            }
            Step::Populate => {
                copy.populated = self.world.borrow().now;
                self.next_step(slot, version, Next::Step(Step::Fetch), Duration::ZERO);
            }
            Step::Fetch => match token::in_information(bytes) {
                Some(token) => {
                    copy.token = token;
                    let delay = self.rng.pick(&[0, 0, 0, 100_000, 3_000_000]);
                    let delay = self.rng.micros(0..=delay);
                    self.next_step(slot, version, Next::Use, delay);
                }
                None => stage.fail("there is no token where one was made".to_owned()),
            },
            Step::Progress => match copies::progress(bytes) {
                Progress::Underway => {
                    self.next_step(slot, version, Next::Step(Step::Progress), POLL);
                }
                Progress::Done => self.copy_done(slot, version, stage),
                Progress::Failed => {
                    let cut = stage.sizes.iter().any(Sizes::have_changed);
                    let revoked = stage.tokens[copy.source.0].may_be_revoked(copy);
                    if !stage.may_fail && !cut && !revoked {
                        stage.fail("a copy whose source nobody changed has failed".to_owned());
                    }
                    self.abandon(slot, version, stage);
                }
            },
        }
    }

    /// A copy was said to have ended well: what it wrote is looked at.
    pub(super) fn copy_done(&mut self, slot: usize, version: Version, stage: &mut Stage) {
        let Some(copy) = stage.copies.get(&version) else { return };
        let (unit, lba) = copy.destination;
        let now = self.world.borrow().now;
        copy.succeeded(version, &mut stage.models);
        let durable = stage.always_durable[self.slots[slot].plan.target];
        stage.models[unit].acknowledge(lba, copy.count, version, durable, now);
        self.world.borrow_mut().tally.mark("copy by token");
        if stage.loading {
            self.next_step(slot, version, Next::Look, Duration::ZERO);
        }
    }

    /// A command of a copy failed, or nobody knows how it ended.
    pub(super) fn copy_failed(
        &mut self,
        slot: usize,
        operation: &Operation,
        error: &Error,
        stage: &mut Stage,
    ) {
        let Operation { what, unit, lba, count, .. } = *operation;
        let is_write = matches!(what, What::Write { .. });
        // Either of its units may have lost blocks of it on the way.
        let cut = stage.sizes.iter().any(Sizes::have_changed);
        let is_allowed =
            stage.may_fail || cut || is_write && self.is_refused_rightly(what, error, stage);
        if !is_allowed {
            stage.fail(format!("a copy failed without a fault: {error}"));
        }
        let now = self.world.borrow().now;
        match (what, error.kind()) {
            (What::Copy(version, Step::Progress), _) => self.abandon(slot, version, stage),
            (What::Write { version, .. }, Kind::Status { .. }) => {
                if let Some(copy) = stage.copies.get(&version) {
                    copy.failed(version, now, &mut stage.models);
                }
                stage.models[unit].doubt(lba, count);
                stage.models[unit].exorcise(lba, count, now);
            }
            (
                What::Write { form: Form::Token { immediate: false }, .. },
                Kind::Ending(Ending::Aborted | Ending::TimedOut | Ending::Reset),
            ) => {
                stage.models[unit].doubt(lba, count);
                stage.models[unit].exorcise(lba, count, now);
            }
            (What::Write { .. }, _) => self.haunt(slot, operation, stage),
            _ => {}
        }
        if let What::Copy(version, Step::Populate | Step::Fill | Step::Fetch)
        | What::Write { version, .. } = what
        {
            if matches!(what, What::Copy(_, Step::Fill)) {
                self.slots[slot].flood = 0;
            }
            stage.copies.remove(&version);
        }
    }

    /// Whether the use of a token was refused for a reason.
    fn is_refused_rightly(&self, what: What, error: &Error, stage: &Stage) -> bool {
        let What::Write { version, .. } = what else { return false };
        let (Some(ascq), Some(copy)) = (about_token(error), stage.copies.get(&version)) else {
            return false;
        };
        stage.tokens[copy.source.0].may_be_refused(ascq, copy, self.world.borrow().now)
    }

    /// Nobody will know how a copy ends that goes on after its command: it does when the target has
    /// no jobs left.
    pub(super) fn abandon(&self, slot: usize, version: Version, stage: &mut Stage) {
        let Some(copy) = stage.copies.remove(&version) else { return };
        let ((unit, lba), count) = (copy.destination, copy.count);
        let target = self.slots[slot].plan.target;
        stage.models[unit].doubt(lba, count);
        let (host, slot, links, mark, job) = (self.index, usize::MAX, Vec::new(), None, true);
        stage.ghosts.push(Ghost { unit, lba, count, host, slot, target, links, mark, job });
    }

    /// The session is gone, and with it what was known of its copies.
    pub(super) fn drop_steps(&mut self, slot: usize, stage: &mut Stage) {
        self.slots[slot].flood = 0;
        for (_, version, next) in std::mem::take(&mut self.slots[slot].steps) {
            if next == Next::Step(Step::Progress) {
                self.abandon(slot, version, stage);
            }
            stage.copies.remove(&version);
        }
    }
}

/// INVALID TOKEN OPERATION, and its qualifier (SPC-4 §5.16.6.5).
fn about_token(error: &Error) -> Option<u8> {
    match error.kind() {
        Kind::Status { sense: Some(sense), .. }
            if sense.key == SenseKey::IllegalRequest && sense.asc == 0x23 =>
        {
            Some(sense.ascq)
        }
        _ => None,
    }
}
