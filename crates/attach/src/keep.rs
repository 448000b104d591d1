// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the disk has acknowledged and no flush has confirmed, so that nothing of it is lost when a
//! target with a volatile cache begins anew. No I/O.
//!
//! ```text
//!                   +----------------------lost meanwhile----------------------+
//!                   v                                                         |
//! Steady --doubt--> Draining --nothing under way--> Rewriting --all--> Flushing |
//!   ^                  '--nothing is kept--+           '--fails--+        |  '--+--too often--+
//!   +--------------------------------------+---------------------|--good--'                   |
//!                                                                '--> Broken <----------------'
//!
//! A write of these that fails for now is as a flush that does.
//! ```
//!
//! The initiator tells that a unit may have lost something before it tells the end of anything that
//! was carried out after that. So whatever ends while this is steady was carried out before: what
//! was read is right, and what was written is kept here. From then on nothing begins. What was
//! under way may have been carried out before or after, or in part: what was written counts as
//! kept, what was read or flushed is done again when all is written again and flushed. What is
//! lost meanwhile the flush behind it tells.
//!
//! It rests on two things that its owner does: of two writes that overlap one waits for the other,
//! so that the last word here is that on the disk, and a flush covers what had ended before it was
//! sent.

mod ranges;
#[cfg(test)]
mod tests;

use std::ops::Range;

use initiator::Fate;
use initiator::Operation;

pub(crate) use self::ranges::Content;
use self::ranges::Ranges;
use crate::limits;

/// How many writes had ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stamp(u64);

/// How often something may have been lost: what was read on one is right on it alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Footing(u64);

/// What is kept, and what is being done about a loss.
#[derive(Debug)]
pub(crate) struct Keep {
    ranges: Ranges,
    /// Most that may be kept or be on its way to it, bytes.
    bytes_max: u64,
    /// For writes that are under way.
    reserved: u64,
    /// The last write that has ended, and the last one that was on stable storage when it did.
    written: Stamp,
    durable: Stamp,
    /// What the last good flush covers.
    confirmed: Stamp,
    state: State,
    footing: Footing,
    /// How often since the last good flush the unit failed to keep something.
    failures: u32,
    /// How often since then it failed for now: to flush, or to take what is written again.
    delays: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Steady,
    Draining,
    /// What begins before `next` was sent.
    Rewriting {
        next: u64,
        under_way: usize,
        /// Some failed for now: all is written again when the others have ended.
        is_halted: bool,
    },
    Flushing,
    Broken,
}

/// What its owner is to do.
#[derive(Debug)]
pub(crate) enum Step {
    /// The initiator is to forget that something was lost; so many bytes are written again.
    Begin(u64),
    /// Write this again, and tell [`Keep::rewritten`].
    Write(Operation),
    /// Flush, and tell [`Keep::flush_ended`].
    Flush,
    /// All goes on.
    Steady,
    /// Nothing does any more: something is lost.
    Broken,
}

/// How a flush has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flushed {
    Good,
    /// Something may be lost.
    Lost,
    Failed,
}

/// How something that was written again has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rewritten {
    Good,
    /// It may go well when it is tried once more.
    NotYet,
    Failed,
}

impl Keep {
    /// Keeps at most `bytes_max` bytes.
    pub(crate) fn new(bytes_max: u64, footing: Footing) -> Self {
        Self {
            ranges: Ranges::default(),
            bytes_max,
            reserved: 0,
            written: Stamp::default(),
            durable: Stamp::default(),
            confirmed: Stamp::default(),
            state: State::Steady,
            footing,
            failures: 0,
            delays: 0,
        }
    }

    /// What was written before, and is not kept, is on stable storage as far as the unit says, and
    /// no flush has confirmed it.
    pub(crate) const fn follows_durable_writes(&mut self) {
        self.written.0 += 1;
        self.durable = self.written;
    }

    /// Whether something may fail that is kept nowhere.
    pub(crate) fn has_durable(&self) -> bool {
        self.durable > self.confirmed
    }

    /// Whether anything may begin.
    pub(crate) fn is_steady(&self) -> bool {
        self.state == State::Steady
    }

    /// None while nothing may begin.
    pub(crate) fn footing(&self) -> Option<Footing> {
        self.is_steady().then_some(self.footing)
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.state == State::Broken
    }

    /// A write that will cost so much is about to begin. False: there is no room, it waits.
    pub(crate) fn reserve(&mut self, cost: u64) -> bool {
        let taken = self.ranges.cost() + self.reserved;
        let fits = taken == 0 || taken.saturating_add(cost) <= self.bytes_max;
        if fits {
            self.reserved += cost;
        }
        fits
    }

    /// The same for a write that has begun already.
    pub(crate) fn reserve_in_any_case(&mut self, cost: u64) {
        self.reserved = self.reserved.saturating_add(cost);
    }

    /// What stood on this one, or on any before, does not stand on the one that begins there.
    pub(crate) const fn next_footing(&self) -> Footing {
        Footing(self.footing.0 + 1)
    }

    /// A write for which `cost` was reserved has ended, and is not to be kept.
    pub(crate) fn release(&mut self, cost: u64) {
        self.reserved = self.reserved.saturating_sub(cost);
    }

    /// A write for which `cost` was reserved has ended well.
    pub(crate) fn wrote(&mut self, range: Range<u64>, content: Content, cost: u64) {
        self.release(cost);
        self.written.0 += 1;
        self.ranges.insert(range, content, self.written, cost);
    }

    /// The same, of one that is on stable storage.
    pub(crate) fn wrote_durably(&mut self, range: Range<u64>, cost: u64) {
        self.release(cost);
        self.written.0 += 1;
        self.durable = self.written;
        self.ranges.remove(range);
    }

    /// What a flush covers that is sent now.
    pub(crate) const fn mark(&self) -> Stamp {
        self.written
    }

    /// A flush has ended well, and nothing was lost before.
    pub(crate) fn flushed(&mut self, mark: Stamp) {
        (self.failures, self.delays) = (0, 0);
        if mark > self.confirmed {
            self.confirmed = mark;
            self.ranges.forget(mark);
        }
    }

    /// Whether it is time for a flush; `waits`: somebody waits for room.
    pub(crate) fn wants_flush(&self, waits: Waits) -> bool {
        let is_much = self.ranges.cost() >= self.bytes_max / 2;
        self.is_steady() && !self.ranges.is_empty() && (is_much || waits == Waits::ForRoom)
    }

    /// The unit may have lost something.
    pub(crate) fn doubt(&mut self, fate: Fate) {
        self.footing.0 += 1;
        if fate == Fate::Failed {
            self.failures += 1;
            // It may be one that was to be on stable storage, and is kept nowhere.
            if self.has_durable() || self.failures > limits::FAILURES_MAX {
                self.state = State::Broken;
            }
        }
        if self.is_steady() {
            self.state = State::Draining;
        }
    }

    /// What is to be done now; called until there is nothing. `idle`: nothing of the owner's is
    /// under way.
    pub(crate) fn next(&mut self, idle: bool) -> Option<Step> {
        match self.state {
            State::Draining if idle && self.ranges.is_empty() => {
                self.state = State::Steady;
                (self.failures, self.delays) = (0, 0);
                Some(Step::Begin(0))
            }
            State::Draining if idle => {
                self.state = State::Rewriting { next: 0, under_way: 0, is_halted: false };
                Some(Step::Begin(self.ranges.bytes()))
            }
            State::Rewriting { next, under_way, is_halted: false }
                if under_way < limits::REWRITES_MAX =>
            {
                if let Some((operation, next)) = self.ranges.next(next) {
                    let under_way = under_way + 1;
                    self.state = State::Rewriting { next, under_way, is_halted: false };
                    return Some(Step::Write(operation));
                }
                if under_way > 0 {
                    return None;
                }
                self.state = State::Flushing;
                Some(Step::Flush)
            }
            _ => None,
        }
    }

    /// Something that was written again has ended.
    pub(crate) fn rewritten(&mut self, how: Rewritten) -> Option<Step> {
        let State::Rewriting { under_way, is_halted, .. } = &mut self.state else { return None };
        *under_way = under_way.saturating_sub(1);
        match how {
            Rewritten::Good => {}
            Rewritten::NotYet => *is_halted = true,
            Rewritten::Failed => return self.give_up(),
        }
        if !*is_halted || *under_way > 0 {
            return None;
        }
        self.state = State::Draining;
        self.delay()
    }

    /// The flush behind what was written again has ended.
    pub(crate) fn flush_ended(&mut self, flushed: Flushed) -> Option<Step> {
        if self.state != State::Flushing {
            return None;
        }
        match flushed {
            Flushed::Good => {
                self.flushed(self.written);
                self.state = State::Steady;
                Some(Step::Steady)
            }
            Flushed::Lost => {
                self.state = State::Draining;
                None
            }
            Flushed::Failed => {
                self.state = State::Draining;
                self.delay()
            }
        }
    }

    /// A flush, or what is written again, has failed for now, and nothing is known to be lost.
    pub(crate) fn delay(&mut self) -> Option<Step> {
        self.delays += 1;
        if self.delays > limits::DELAYS_MAX { self.give_up() } else { None }
    }

    /// Whether what is to be done now is another try.
    pub(crate) const fn is_delayed(&self) -> bool {
        self.delays > 0
    }

    /// Whether something is kept, or may come to be.
    pub(crate) fn holds_some(&self) -> bool {
        !self.ranges.is_empty() || self.reserved > 0
    }

    /// Nothing that is kept can be written again. Some, once.
    pub(crate) fn give_up(&mut self) -> Option<Step> {
        if self.is_broken() {
            return None;
        }
        self.state = State::Broken;
        Some(Step::Broken)
    }
}

/// Whether somebody waits for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    ForRoom,
    Nobody,
}

/// What it costs to keep so many bytes of data: the memory that holds them.
pub(crate) fn data_cost(length: usize) -> u64 {
    (buf::Pool::cost(length) as u64).max(limits::RANGE_COST)
}
