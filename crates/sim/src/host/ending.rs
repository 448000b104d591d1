// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How requests end, and whether they may end like that.

use clock::Instant;
use initiator::Done;
use initiator::Error;
use initiator::Generation;
use initiator::Kind;
use iscsi::initiator::Ending;
use wire::scsi::sense::SenseKey;

use super::Host;
use super::Slot;
use super::promises::Word;
use crate::claims::Access;
use crate::claims::Action;
use crate::copies::Step;
use crate::model::Model;
use crate::model::Version;
use crate::news::Refused;
use crate::request::Form;
use crate::request::What;
use crate::resizing::Size;
use crate::stage::Ghost;
use crate::stage::Operation;
use crate::stage::Stage;

impl Host {
    /// A request ended.
    pub(super) fn ended(
        &mut self,
        slot: usize,
        operation: &Operation,
        result: Result<Done, Error>,
        stage: &mut Stage,
    ) {
        let Operation { what, unit, lba, count, asked, .. } = *operation;
        let now = self.world.borrow().now;
        let name = what.name();
        let how = match &result {
            Ok(_) => format!("{name} good"),
            Err(error) => format!("{name} {}", kind_name(error)),
        };
        let mut world = self.world.borrow_mut();
        world.tally.end(&how);
        let parts = [4, self.index as u64, lba as u64, count as u64, u64::from(result.is_ok())];
        world.trace.step(now, &parts, || {
            let host = self.index;
            format!("host {host}: {what:?} of unit {unit} at {lba}, {count} blocks, ends {how}")
        });
        drop(world);
        let bound = stage.time_max().filter(|_| !operation.may_be_kept());
        if bound.is_some_and(|most| now.since(asked) > most) {
            stage.fail(format!("a request took {:?} without a fault", now.since(asked)));
        }
        if stage.judges_silence {
            let error = result.as_ref().err();
            let wrong = self.world.borrow().judge_silence(stage.disks[unit], operation, error);
            wrong.into_iter().for_each(|wrong| stage.fail(wrong));
        }
        match &result {
            Ok(_) => self.judge_disk(slot, operation, stage),
            Err(error) if matches!(error.kind(), Kind::OtherDisk { .. }) => {
                self.begin_anew(slot, operation, stage);
            }
            Err(_) => {}
        }
        let judged = self.judge(slot, operation, &result, stage);
        if let Err(why) = judged.and_then(|()| within(operation, &result, now, stage)) {
            return stage.fail(why);
        }
        if matches!(what, What::Write { .. }) && !is_of_copy(what) && result.is_ok() {
            stage.tokens[unit].rest(lba, count, asked, now);
        }
        match (what, result) {
            (What::Guard(action), result) => {
                let nexus = self.slots[slot].nexus;
                if action == Action::Join && result.is_ok() {
                    stage.claims[unit].join(nexus, asked, now);
                }
                stage.claims[unit].end(nexus, action, result.is_ok(), now);
            }
            (What::Setting(setting), Ok(done)) => {
                let bytes = done.data.as_deref().unwrap_or_default();
                if let Err(why) = stage.settings[unit].done(setting, bytes) {
                    stage.fail(why);
                }
            }
            (What::Flush, Ok(done)) => {
                stage.models[unit].flushed(asked);
                self.flushed(slot, operation, done.generation, stage);
            }
            (What::Read, Ok(done)) => {
                let bytes = done.data.as_deref().unwrap_or_default();
                if let Err(why) = read(operation, bytes, now, &mut stage.models[unit]) {
                    stage.fail(why);
                }
            }
            (What::Copy(version, step), Ok(done)) => {
                let bytes = done.data.as_deref().unwrap_or_default();
                self.copied(slot, (version, step), (bytes, asked), stage);
            }
            (What::Write { version, form: Form::Token { immediate: true }, .. }, Ok(_)) => {
                judge_token(version, stage);
                self.goes_on(slot, version, stage);
            }
            (What::Write { durable, .. }, Ok(done)) => {
                let durable = durable || stage.always_durable[self.slots[slot].plan.target];
                let promises = self.slots[slot].promises.entry(unit).or_default();
                promises.wrote(done.generation, durable, now);
                self.written(slot, operation, stage);
            }
            (_, Err(error)) => self.failed(slot, operation, &error, stage),
        }
    }

    /// A flush was acknowledged: it may not stand for a write that the power was lost behind.
    fn flushed(
        &mut self,
        slot: usize,
        operation: &Operation,
        generation: Generation,
        stage: &mut Stage,
    ) {
        let Some(mark) = operation.mark else { return };
        let outages = &stage.outages[self.slots[slot].plan.target];
        let refused = self.refused(slot, operation, stage);
        let promises = self.slots[slot].promises.entry(operation.unit).or_default();
        let word = promises.flushed(mark, generation, operation.asked, outages, refused);
        match word {
            Word::Kept => {}
            Word::Lost => self.world.borrow_mut().tally.mark("flush told of a loss"),
            Word::Broken => stage.fail("a flush stands for writes that were lost".to_owned()),
        }
    }

    /// When a flush did not end well, and was asked for again: if there is no other one that it may
    /// have been.
    fn refused(&self, slot: usize, operation: &Operation, stage: &Stage) -> Option<Instant> {
        let Slot { plan, operations, .. } = &self.slots[slot];
        let is_other =
            |other: &Operation| other.what == What::Flush && other.unit == operation.unit;
        if operations.values().any(is_other) {
            return None;
        }
        let world = self.world.borrow();
        let here = |refused: &&Refused| {
            let unit = stage.units[plan.target].get(usize::from(refused.lun));
            refused.host == self.desk
                && refused.target == plan.target
                && unit == Some(&operation.unit)
                && operation.asked < refused.at
                && refused.at <= world.now
        };
        world.refused.iter().find(here).map(|refused| refused.at)
    }

    /// A write was acknowledged.
    fn written(&mut self, slot: usize, operation: &Operation, stage: &mut Stage) {
        let Operation { what, unit, lba, count, .. } = *operation;
        let What::Write { version, durable, form } = what else { return };
        let now = self.world.borrow().now;
        let durable = durable || stage.always_durable[self.slots[slot].plan.target];
        if matches!(form, Form::Token { .. }) {
            judge_token(version, stage);
            return self.copy_done(slot, version, stage);
        }
        let model = &mut stage.models[unit];
        match form {
            Form::Compare { equal: false, .. } => {
                stage.fail(format!("what was compared at {lba} was never there"));
            }
            // Blocks may stay as they are.
            Form::Unmap => {
                model.doubt(lba, count);
                model.exorcise(lba, count, now);
            }
            _ => model.acknowledge(lba, count, version, durable, now),
        }
    }

    /// A request was not carried out, or nobody knows.
    fn failed(&mut self, slot: usize, operation: &Operation, error: &Error, stage: &mut Stage) {
        let Operation { what, unit, lba, count, asked, .. } = *operation;
        if is_of_copy(what) {
            return self.copy_failed(slot, operation, error, stage);
        }
        let now = self.world.borrow().now;
        let model = &mut stage.models[unit];
        let conflict = is_conflict(error);
        let beyond = is_out_of_range(error);
        if let What::Setting(setting) = what {
            // Without losses it was sent once, and a status means that it was not done.
            let cleanly = !stage.may_lose && matches!(error.kind(), Kind::Status { .. });
            stage.settings[unit].failed(setting, cleanly);
        }
        if what == What::Flush && has_failed(error) {
            self.slots[slot].promises.entry(unit).or_default().failed(now);
        }
        if let What::Write { version, form, .. } = what {
            match (form, error.kind()) {
                (Form::Compare { with, equal }, _) if is_miscompare(error) => {
                    let there = equal && model.was(lba, with, version, (asked, now));
                    model.retract(lba, count, version);
                    if there {
                        stage.fail(format!("what was compared at {lba} is there: version {with}"));
                    }
                    return;
                }
                // Without faults it was sent once.
                _ if conflict && !stage.may_lose => model.retract(lba, count, version),
                (_, Kind::OtherDisk { .. }) => model.refused(lba, count, version),
                (
                    _,
                    Kind::Status { .. }
                    | Kind::Ending(Ending::Aborted | Ending::TimedOut | Ending::Reset),
                ) => {
                    // It is over, but how far did it get?
                    model.doubt(lba, count);
                    model.exorcise(lba, count, now);
                }
                _ => self.haunt(slot, operation, stage),
            }
        }
        if !stage.may_fail && !conflict && !beyond {
            stage.fail(format!("a request failed without a fault: {error}"));
        }
    }

    /// Whether the reservation of the unit, if there is one, let it end like that.
    fn judge(
        &self,
        slot: usize,
        operation: &Operation,
        result: &Result<Done, Error>,
        stage: &Stage,
    ) -> Result<(), String> {
        let Operation { what, unit, asked, .. } = *operation;
        let (claim, nexus) = (&stage.claims[unit], self.slots[slot].nexus);
        let conflict = result.as_ref().is_err_and(is_conflict);
        let carried_out = match result {
            Ok(_) => true,
            Err(error) => is_miscompare(error),
        };
        let Some(access) = what.access() else { return Ok(()) };
        if conflict && !claim.refuses(nexus, asked, access) {
            return Err(format!("a reservation that nobody has refuses {what:?} of unit {unit}"));
        }
        if carried_out && !claim.lets(nexus, asked, access) {
            return Err(format!("a reservation did not keep {what:?} out of unit {unit}"));
        }
        let mark = match access {
            Access::Read if conflict => Some("read kept out by a reservation"),
            Access::Write if conflict => Some("write kept out by a reservation"),
            Access::Write if carried_out && claim.is_others(nexus, asked) => {
                Some("registrant let in by a reservation")
            }
            _ => None,
        };
        mark.into_iter().for_each(|mark| self.world.borrow_mut().tally.mark(mark));
        Ok(())
    }

    /// A write may come about at any time until its session is known to be over.
    pub(super) fn haunt(&self, slot: usize, operation: &Operation, stage: &mut Stage) {
        let Operation { unit, lba, count, .. } = *operation;
        let target = self.slots[slot].plan.target;
        let world = self.world.borrow();
        // Whichever of its reactors has it.
        let between = |link: &crate::net::Link| {
            link.ends[0].desk == self.desk && world.desks[link.ends[1].desk].home == target
        };
        let links = world.net.links.iter().filter(|(_, link)| between(link));
        let links: Vec<u64> = links.map(|(id, _)| *id).collect();
        stage.models[unit].doubt(lba, count);
        let slot = if self.pump.is_some() { slot } else { usize::MAX };
        let (host, mark) = (self.index, None);
        let job = is_of_copy(operation.what);
        stage.ghosts.push(Ghost { unit, lba, count, host, slot, target, links, mark, job });
    }
}

/// A token was good: it was still one.
fn judge_token(version: Version, stage: &mut Stage) {
    let Some(copy) = stage.copies.get(&version) else { return };
    if let Some(why) = stage.tokens[copy.source.0].must_be_refused(copy) {
        stage.fail(why.to_owned());
    }
}

/// Data as long as was asked for, of contents that may be there.
fn read(
    operation: &Operation,
    bytes: &[u8],
    now: Instant,
    model: &mut Model,
) -> Result<(), String> {
    let Operation { lba, count, asked, .. } = *operation;
    let expected = count * model.block_len();
    if bytes.len() != expected {
        return Err(format!("{} bytes came instead of {expected}", bytes.len()));
    }
    model.check(lba, bytes, asked, now).map_err(|wrong| wrong.0)
}

/// What is behind the end of a unit is refused, and nothing else is for that.
fn within(
    operation: &Operation,
    result: &Result<Done, Error>,
    now: Instant,
    stage: &Stage,
) -> Result<(), String> {
    let Operation { what, unit, lba, count, asked, .. } = *operation;
    if matches!(
        what,
        What::Guard(_) | What::Setting(_) | What::Copy(_, Step::Fetch | Step::Progress)
    ) {
        return Ok(());
    }
    let Size { least, most, seen } = stage.sizes[unit].between(asked, now);
    // Of these the range alone is looked at before they are answered.
    let by_range = matches!(
        what,
        What::Flush | What::Copy(..) | What::Write { form: Form::Token { immediate: true }, .. }
    );
    let most = if by_range { seen } else { most };
    match result {
        Ok(_) if lba + count > most => {
            Err(format!("{what:?} is good at {lba}, {count} blocks of a unit of {most}"))
        }
        Err(error) if is_out_of_range(error) && lba + count <= least => {
            Err(format!("{what:?} at {lba}, {count} blocks is not within a unit of {least}"))
        }
        _ => Ok(()),
    }
}

/// LOGICAL BLOCK ADDRESS OUT OF RANGE (SBC-4 §4.5).
fn is_out_of_range(error: &Error) -> bool {
    matches!(error.kind(), Kind::Status { sense: Some(sense), .. }
        if sense.key == SenseKey::IllegalRequest && sense.asc == 0x21)
}

/// RESERVATION CONFLICT (SAM-5 §5.3.1).
fn is_conflict(error: &Error) -> bool {
    matches!(error.kind(), Kind::Status { status: 0x18, .. })
}

/// What was to be flushed may be lost, which is told once.
fn has_failed(error: &Error) -> bool {
    matches!(error.kind(), Kind::Status { sense: Some(sense), .. }
    if matches!(
        sense.key,
        SenseKey::MediumError | SenseKey::HardwareError | SenseKey::AbortedCommand
    ))
}

/// MISCOMPARE (SPC-4 §4.5.6).
fn is_miscompare(error: &Error) -> bool {
    matches!(error.kind(), Kind::Status { sense: Some(sense), .. }
        if sense.key == SenseKey::Miscompare)
}

/// A command of a copy by token.
pub(super) const fn is_of_copy(what: What) -> bool {
    matches!(what, What::Copy(..) | What::Write { form: Form::Token { .. }, .. })
}

/// A short name for counting.
pub(super) fn kind_name(error: &Error) -> String {
    match error.kind() {
        Kind::Unreachable { .. } => "unreachable".to_owned(),
        Kind::Login(error) => format!("login {error:?}"),
        Kind::Session(error) => {
            let text = format!("{error:?}");
            text.split(['(', ' ', '{']).next().unwrap_or_default().to_owned()
        }
        Kind::Ending(ending) => format!("{ending:?}"),
        Kind::Status { status, sense, .. } => {
            let sense = sense.map(|sense| format!("{:?}/{:02x}", sense.key, sense.asc));
            format!("status {status:02x} {}", sense.unwrap_or_default())
        }
        Kind::OtherDisk { .. } => "another disk".to_owned(),
        Kind::Closed => "closed".to_owned(),
        other => other.to_string(),
    }
}
