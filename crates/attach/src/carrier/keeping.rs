// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was written and not flushed, beside what is under way: who may begin, and what becomes of
//! what ends while the unit may have lost something.

use std::collections::VecDeque;
use std::time::Instant;

use initiator::Chunks;
use initiator::DiskEvent;
use initiator::Durability;
use initiator::Fate;
use initiator::Kind;
use initiator::Operation;
use initiator::SenseKey;
use initiator::scsi::status::RESERVATION_CONFLICT;

use super::Carrier;
use super::Gone;
use super::OWN_FLUSH;
use super::REWRITE;
use super::Task;
use crate::keep;
use crate::keep::Content;
use crate::keep::Flushed;
use crate::keep::Footing;
use crate::keep::Keep;
use crate::keep::Rewritten;
use crate::keep::Stamp;
use crate::keep::Step;
use crate::keep::Waits;
use crate::limits;
use crate::server::News;

/// What is kept, and who waits for it.
#[derive(Debug)]
pub(super) struct Keeping {
    pub(super) keep: Keep,
    /// Jobs that begin, or begin again, when all is written again.
    pub(super) again: Vec<usize>,
    /// Jobs that wait for room, in order.
    lacking: VecDeque<usize>,
    /// What the flush covers that is under way for room.
    background: Option<Stamp>,
    /// Something has failed for now: when it may be tried again.
    again_at: Option<Instant>,
    /// Whether the disk has told that it has no volatile cache: it ends as soon as it can.
    is_over: bool,
}

/// How an operation has ended; None: it was refused here, and never sent.
pub(super) type Outcome = Result<Chunks, Option<initiator::Error>>;

/// What the end of an operation is to who waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Answer,
    /// It begins again when all that was lost is written again.
    Again,
}

impl Keeping {
    pub(super) fn new(bytes_max: u64, footing: Footing) -> Self {
        Self {
            keep: Keep::new(bytes_max, footing),
            again: Vec::new(),
            lacking: VecDeque::new(),
            background: None,
            again_at: None,
            is_over: false,
        }
    }

    /// Whether it is too early for another try.
    fn is_pausing(&mut self) -> bool {
        self.again_at = self.again_at.filter(|at| Instant::now() < *at);
        self.again_at.is_some()
    }

    /// Whether it has to be looked at again by itself.
    pub(super) const fn has_paused(&self) -> bool {
        self.again_at.is_some()
    }

    /// The main operation of a task has ended.
    pub(super) fn judge(&mut self, task: &mut Task, result: &Outcome) -> Verdict {
        let keep = &mut self.keep;
        let cost = std::mem::take(&mut task.cost);
        let error = match result {
            Ok(_) => None,
            Err(None) => {
                keep.release(cost);
                return Verdict::Answer;
            }
            Err(Some(error)) => Some(error),
        };
        let lost = error.is_some_and(is_lost);
        if lost && keep.is_steady() {
            keep.doubt(Fate::Reset);
        }
        match (&task.operation, error) {
            (Some(Operation::Read { .. }), None) if !keep.is_steady() => Verdict::Again,
            (Some(Operation::Flush), _) if !keep.is_steady() => Verdict::Again,
            (Some(Operation::Flush), None) => {
                keep.flushed(task.mark);
                Verdict::Answer
            }
            (Some(_), Some(_)) if lost => {
                task.cost = cost;
                Verdict::Again
            }
            (_, Some(_)) => {
                keep.release(cost);
                Verdict::Answer
            }
            (_, None) => {
                if let Some(operation) = task.operation.take() {
                    note(keep, operation, cost);
                }
                Verdict::Answer
            }
        }
    }
}

/// A change has ended well.
fn note(keep: &mut Keep, operation: Operation, cost: u64) {
    let (start, length, content, durability) = match operation {
        Operation::Write { offset, data, durability } => {
            (offset, data.len() as u64, Content::Data(data), durability)
        }
        Operation::Zero { offset, length, space, durability } => {
            (offset, length, Content::Zero(space), durability)
        }
        Operation::Discard { offset, length, durability } => {
            (offset, length, Content::Discard, durability)
        }
        _ => return,
    };
    let range = start..start.saturating_add(length);
    match durability {
        Durability::Stable => keep.wrote_durably(range, cost),
        Durability::Cached => keep.wrote(range, content, cost),
    }
}

/// What it will cost to keep `operation`; None: it changes nothing.
pub(super) fn cost_of(operation: &Operation) -> Option<u64> {
    match operation {
        Operation::Write { data, .. } => Some(keep::data_cost(data.len())),
        Operation::Zero { .. } | Operation::Discard { .. } => Some(limits::RANGE_COST),
        _ => None,
    }
}

fn is_lost(error: &initiator::Error) -> bool {
    matches!(error.kind(), Kind::WritesLost)
}

/// Whether a write that failed so may go well a little later: the unit is not ready, has no space
/// now, or belongs to another host. What the initiator has tried for its time is over.
fn may_pass(error: &initiator::Error) -> bool {
    let Kind::Status { status, .. } = error.kind() else { return false };
    match error.sense().map(|sense| (sense.key, sense.asc, sense.ascq)) {
        // It is becoming ready, or its ports are between two states or take nothing.
        Some((SenseKey::NotReady, 0x04, 0x01 | 0x0a..=0x0c)) => false,
        Some((SenseKey::NotReady | SenseKey::AbortedCommand, ..)) => true,
        Some((SenseKey::DataProtect, 0x27, 0x07)) => true,
        Some(_) => false,
        None => *status == RESERVATION_CONFLICT,
    }
}

impl<O> Carrier<O> {
    /// Whether a job may begin now; one that may not is noted.
    pub(super) fn may_begin(&mut self, number: usize) -> bool {
        let Some(keeping) = &mut self.keeping else { return true };
        if keeping.keep.is_broken() {
            self.refuse(number);
            return false;
        }
        if !keeping.keep.is_steady() {
            keeping.again.push(number);
            return false;
        }
        let Some(task) = self.jobs.get_mut(number) else { return false };
        let Some(cost) = task.keeping_cost().filter(|_| task.cost == 0) else { return true };
        if !keeping.lacking.is_empty() || !keeping.keep.reserve(cost) {
            keeping.lacking.push_back(number);
            return false;
        }
        task.cost = cost;
        true
    }

    /// The unit may have lost something.
    pub(super) fn doubt(&mut self, fate: Fate) {
        let Some(keeping) = &mut self.keeping else { return };
        let was_broken = keeping.keep.is_broken();
        keeping.keep.doubt(fate);
        if keeping.keep.is_broken() && !was_broken {
            let cause = "the disk told that it failed to keep what it had written durably";
            self.give_up(cause.to_owned(), true);
        }
    }

    fn give_up(&mut self, cause: String, may_be_lost: bool) {
        self.news.push(News::Broken { cause: cause.clone(), may_be_lost });
        self.gone = Some(Gone { cause, may_be_lost });
    }

    /// There is another disk in the place of the one that was.
    pub(super) fn on_other_disk(&mut self, error: &initiator::Error) {
        if self.gone.is_some() {
            return;
        }
        let may_be_lost = match &mut self.keeping {
            Some(keeping) => {
                let holds_some = keeping.keep.holds_some();
                keeping.keep.give_up();
                holds_some
            }
            None => self.is_at_risk(),
        };
        self.give_up(error.to_string(), may_be_lost);
    }

    /// Something that was written again has ended.
    pub(super) fn on_rewritten(&mut self, result: Result<(), initiator::Error>) {
        let Some(keeping) = &mut self.keeping else { return };
        let how = match &result {
            Ok(()) => Rewritten::Good,
            Err(error) if may_pass(error) => {
                keeping.again_at = Some(Instant::now() + limits::DELAY);
                Rewritten::NotYet
            }
            Err(_) => Rewritten::Failed,
        };
        let step = keeping.keep.rewritten(how);
        if let (Some(Step::Broken), Err(error)) = (step, result) {
            self.give_up(error.to_string(), true);
        }
    }

    /// A flush that no client has asked for has ended.
    pub(super) fn on_own_flush(&mut self, result: Result<(), initiator::Error>) {
        let Some(keeping) = &mut self.keeping else { return };
        if result.as_ref().is_err_and(|error| !is_lost(error)) {
            keeping.again_at = Some(Instant::now() + limits::DELAY);
        }
        let keep = &mut keeping.keep;
        let step = match keeping.background.take() {
            // Under way until it ended, as whatever clients ask for.
            Some(mark) => {
                self.at_disk -= 1;
                match &result {
                    _ if !keep.is_steady() => None,
                    Ok(()) => {
                        keep.flushed(mark);
                        None
                    }
                    Err(error) if is_lost(error) => {
                        keep.doubt(Fate::Reset);
                        None
                    }
                    Err(error) if matches!(error.kind(), Kind::CannotFlush) => {
                        return self.keep_no_more();
                    }
                    Err(_) => keep.delay(),
                }
            }
            None => keep.flush_ended(match &result {
                Ok(()) => Flushed::Good,
                Err(error) if is_lost(error) => Flushed::Lost,
                Err(_) => Flushed::Failed,
            }),
        };
        match (step, result) {
            (Some(Step::Steady), _) => self.news.push(News::WrittenAgain),
            (Some(Step::Broken), Err(error)) => self.give_up(error.to_string(), true),
            _ => {}
        }
    }

    /// The disk has a volatile cache and no flush: there is no end of what would be kept.
    fn keep_no_more(&mut self) {
        self.keep_bytes = 0;
        self.news.push(News::KeepsNothing);
        self.end_keeping();
    }

    /// The unit may have lost what was not on stable storage. One that was reset may have a
    /// volatile cache though it had none before: what it acknowledges from now on is kept until it
    /// has said so. What it had acknowledged before is on stable storage: nothing is written again.
    pub(super) fn on_loss(&mut self, fate: Fate) {
        if self.keeping.is_some() {
            return self.doubt(fate);
        }
        match fate {
            Fate::Reset => self.begin_keeping(),
            // What is lost by that is kept nowhere: flushes say so from now on.
            Fate::Failed if self.disk.has_unconfirmed() => self.keep_bytes = 0,
            _ => {}
        }
        if self.keeping.is_none() {
            self.news.push(News::Disk(DiskEvent::MayHaveLost(fate)));
        }
    }

    /// The disk has told whether it has a volatile cache.
    pub(super) fn on_cache(&mut self, volatile: bool) {
        if volatile {
            self.begin_keeping();
        }
        if std::mem::replace(&mut self.is_volatile, volatile) != volatile {
            self.news.push(News::Disk(DiskEvent::Cache { volatile }));
        }
        let Some(keeping) = &mut self.keeping else { return };
        keeping.is_over = !volatile;
    }

    /// What is under way counts as begun since.
    fn begin_keeping(&mut self) {
        if self.keeping.is_some() || self.keep_bytes == 0 {
            return;
        }
        let mut keeping = Keeping::new(self.keep_bytes, self.footing);
        if self.disk.has_unconfirmed() {
            keeping.keep.follows_durable_writes();
        }
        for task in self.jobs.under_way() {
            task.cost = task.keeping_cost().unwrap_or_default();
            keeping.keep.reserve_in_any_case(task.cost);
        }
        self.keeping = Some(keeping);
    }

    fn end_keeping(&mut self) {
        let Some(keeping) = self.keeping.take() else { return };
        self.footing = keeping.keep.next_footing();
        for number in keeping.lacking.into_iter().chain(keeping.again) {
            self.launch(number);
        }
    }

    /// Writes again what may be lost, and lets begin what has waited for that or for room.
    pub(super) fn go_on(&mut self) {
        while let Some(keeping) = &mut self.keeping
            && !keeping.is_pausing()
            && let Some(step) = keeping.keep.next(self.at_disk == 0)
        {
            match step {
                Step::Begin(bytes) => {
                    let is_news = bytes > 0 && !keeping.keep.is_delayed();
                    match keeping.keep.has_durable() {
                        true => self.disk.begin_again_cached(),
                        false => self.disk.begin_again(),
                    }
                    if is_news {
                        self.news.push(News::WritesAgain { bytes });
                    }
                }
                Step::Write(operation) => {
                    let sent = self.disk.submit(&self.completions, REWRITE, operation);
                    if sent.is_err() {
                        self.on_rewritten(sent);
                    }
                }
                Step::Flush => self.send_own_flush(),
                Step::Steady | Step::Broken => {}
            }
        }
        let Some(keeping) = &mut self.keeping else { return };
        let keep = &keeping.keep;
        if !keep.is_steady() && !keep.is_broken() {
            return;
        }
        let mut begin = std::mem::take(&mut keeping.again);
        if keep.is_broken() {
            begin.extend(keeping.lacking.drain(..));
        }
        for number in begin {
            self.launch(number);
        }
        match &self.keeping {
            Some(Keeping { is_over: true, background: None, keep, .. }) if keep.is_steady() => {
                self.end_keeping();
            }
            _ => self.make_room_to_keep(),
        }
    }

    /// Lets those begin that find room now, and makes some where it is time for that.
    fn make_room_to_keep(&mut self) {
        while let Some(keeping) = &mut self.keeping
            && let Some(&number) = keeping.lacking.front()
        {
            let Some(task) = self.jobs.get_mut(number) else { return };
            let cost = task.keeping_cost().unwrap_or_default();
            if !keeping.keep.is_steady() || !keeping.keep.reserve(cost) {
                break;
            }
            task.cost = cost;
            keeping.lacking.pop_front();
            self.launch(number);
        }
        let Some(keeping) = &mut self.keeping else { return };
        let waits = if keeping.lacking.is_empty() { Waits::Nobody } else { Waits::ForRoom };
        let may_flush = keeping.background.is_none() && !keeping.is_pausing();
        if may_flush && keeping.keep.wants_flush(waits) {
            keeping.background = Some(keeping.keep.mark());
            self.at_disk += 1;
            self.send_own_flush();
        }
    }

    fn send_own_flush(&mut self) {
        let sent = self.disk.submit(&self.completions, OWN_FLUSH, Operation::Flush);
        if sent.is_err() {
            self.on_own_flush(sent);
        }
    }
}
