// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which task tags are of commands that a trace is about.
//!
//! Read first: RFC 7143 §11.5 (task management).

use std::collections::HashMap;

/// Tags of commands for one unit that are remembered: more than a session may have. Where there are
/// more, those there have ended without a word, as others reset the unit.
pub(super) const TAGS_MAX: usize = 64 << 10;

/// Task management requests whose answers are awaited: more than anybody has under way.
const ENDING_MAX: usize = 64;

/// Functions of a Task Management Function Request (RFC 7143 §11.5.1).
const ABORT_TASK: u8 = 1;
const ABORT_TASK_SET: u8 = 2;
const CLEAR_TASK_SET: u8 = 4;
const LOGICAL_UNIT_RESET: u8 = 5;
const TARGET_WARM_RESET: u8 = 6;
const TARGET_COLD_RESET: u8 = 7;

/// Tags of what is for the unit that is wanted, from the request to the last word about it.
#[derive(Debug, Default)]
pub(super) struct Tags {
    /// With how many there were before.
    open: HashMap<u32, u64>,
    begun: u64,
    /// Tasks that are to end without a word, by the tag of the request that wants it.
    ending: HashMap<u32, Ending>,
}

#[derive(Clone, Copy, Debug)]
enum Ending {
    One(u32),
    /// All that had begun before so many.
    Before(u64),
}

impl Tags {
    /// Whatever had the tag is over.
    pub(super) fn begin(&mut self, tag: u32, is_it: bool) -> bool {
        if !is_it {
            self.open.remove(&tag);
            return false;
        }
        if self.open.len() >= TAGS_MAX {
            self.open.clear();
        }
        self.open.insert(tag, self.begun);
        self.begun += 1;
        true
    }

    pub(super) fn has(&self, tag: u32) -> bool {
        self.open.contains_key(&tag)
    }

    /// Whether it was there.
    pub(super) fn end(&mut self, tag: u32) -> bool {
        self.open.remove(&tag).is_some()
    }

    pub(super) fn is_to_end(&mut self, tag: u32, function: u8, about: u32) {
        let ending = match function {
            ABORT_TASK => Ending::One(about),
            ABORT_TASK_SET | CLEAR_TASK_SET | LOGICAL_UNIT_RESET | TARGET_WARM_RESET
            | TARGET_COLD_RESET => Ending::Before(self.begun),
            _ => return,
        };
        if self.ending.len() >= ENDING_MAX {
            self.ending.clear();
        }
        self.ending.insert(tag, ending);
    }

    /// A request that wanted some to end was answered: `is_done` or not.
    pub(super) fn has_ended(&mut self, tag: u32, is_done: bool) {
        match self.ending.remove(&tag).filter(|_| is_done) {
            Some(Ending::One(about)) => drop(self.open.remove(&about)),
            // The request itself has begun behind them.
            Some(Ending::Before(begun)) => self.open.retain(|_, number| *number >= begun),
            None => {}
        }
    }
}
