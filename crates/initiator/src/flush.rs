// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a unit is asked until it is known whether what was written before is on stable storage.
//!
//! ```text
//! Synchronize --good--> kept
//!   |   `------some were written before a reset--> Caching --writes through--> kept
//!   `--no such command--> Nothing --no MODE SENSE either--> Ready
//!                            `--no volatile cache------------`--> kept
//! ```
//!
//! A unit that writes through has nothing to lose by a reset. A failure that it tells of is never
//! excused: what it says of its cache is what has turned out to be wrong.

use wire::iscsi::Cdb;
use wire::scsi::command;
use wire::scsi::mode;
use wire::scsi::opcode::Opcode;

use crate::Data;
use crate::Done;
use crate::Error;
use crate::Fate;
use crate::FlushMark;
use crate::Geometry;
use crate::Kind;
use crate::Ledger;
use crate::scsi::caching;
use crate::scsi::is_unsupported;
use crate::scsi::writes_back;

/// How a flush has ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // the unit has the command, or it has not
pub enum Flushed {
    /// By SYNCHRONIZE CACHE.
    Done,
    /// The unit has no such command and, as far as it says, no need of one: nothing has confirmed
    /// its writes but their own ends.
    Nothing,
}

/// A flush of what was written until it began. Whoever has it sends [`Flush::question`] and passes
/// on what comes of it.
#[derive(Debug)]
pub(crate) struct Flush {
    mark: FlushMark,
    question: Question,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    /// SYNCHRONIZE CACHE.
    Synchronize,
    /// Whether the unit still writes through, for writes from before a reset.
    Caching,
    /// Whether it has no cache, since it has no SYNCHRONIZE CACHE.
    Nothing,
    /// Whether it has failed, where it has nothing else to say.
    Ready,
}

impl Flush {
    /// Covers what is in `ledger`.
    pub(crate) const fn new(ledger: &Ledger) -> Self {
        Self { mark: ledger.mark(), question: Question::Synchronize }
    }

    /// The next command.
    pub(crate) fn question(&self) -> (Cdb, Data) {
        match self.question {
            Question::Synchronize => (command::synchronize_cache(), Data::None),
            Question::Caching | Question::Nothing => {
                (command::mode_sense_6(mode::ALL_PAGES, 255), Data::In(255))
            }
            Question::Ready => (command::plain(Opcode::TEST_UNIT_READY), Data::None),
        }
    }

    /// What came of the question, at a unit that was found to be as `geometry` says; gives the end,
    /// if it is that.
    pub(crate) fn answer(
        &mut self,
        result: Result<Done, Error>,
        geometry: Option<&Geometry>,
        ledger: &mut Ledger,
    ) -> Option<Result<Flushed, Error>> {
        let done = match result {
            Ok(done) => Some(done),
            Err(error) if is_unsupported(&error) => None,
            Err(error) => return Some(Err(error)),
        };
        let told = done.as_ref().and_then(|done| done.data.as_deref());
        match (self.question, &done) {
            (Question::Synchronize, None) => self.ask(Question::Nothing),
            (Question::Synchronize, Some(done)) => {
                match ledger.flushed(self.mark, done.generation) {
                    Fate::Kept => Some(Ok(Flushed::Done)),
                    Fate::Reset if geometry.is_none_or(|geometry| !geometry.volatile_cache) => {
                        self.ask(Question::Caching)
                    }
                    Fate::Reset | Fate::Failed => Some(Err(Error::new(Kind::WritesLost))),
                }
            }
            // One that wrote through had nothing to lose, if it still does.
            (Question::Caching, _) if told.is_none_or(writes_back) => {
                Some(Err(Error::new(Kind::WritesLost)))
            }
            (Question::Caching, _) => {
                ledger.excuse_resets();
                Some(Ok(Flushed::Done))
            }
            (Question::Nothing, _)
                if told.and_then(caching).is_some_and(|caching| caching.write_cache)
                    && ledger.has_cached() =>
            {
                Some(Err(Error::new(Kind::CannotFlush)))
            }
            (Question::Nothing, None) => self.ask(Question::Ready),
            (Question::Nothing | Question::Ready, Some(done)) => {
                if ledger.has_failed(done.generation) {
                    return Some(Err(Error::new(Kind::WritesLost)));
                }
                ledger.excuse_resets();
                Some(Ok(Flushed::Nothing))
            }
            // A disk has TEST UNIT READY (SBC-3 §5.1): it says nothing at all.
            (Question::Ready, None) => Some(Err(Error::new(Kind::CannotFlush))),
        }
    }

    const fn ask<T>(&mut self, question: Question) -> Option<T> {
        self.question = question;
        None
    }
}
