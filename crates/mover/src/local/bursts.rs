// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The books of the target's half: which data is expected. One message answers each.
//!
//! ```text
//!             open               data: told
//!   (free) ----------> wanted ---------------> (free)
//!                        |
//!                        +--abandon--> abandoned --data or forget, nothing told--> (free)
//! ```
//!
//! What was asked for is found by its transfer tag: slot number below, generation of the slot
//! above, so that a tag from an earlier use of the slot is never taken for the present one. What
//! comes unasked is found by the tag of its task.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use iscsi::datamover::DataError;
use iscsi::datamover::Event;
use iscsi::datamover::TaskId;
use wire::iscsi::Itt;
use wire::iscsi::Ttt;

use super::message::Data;
use crate::limits::SOLICITED_MAX;
use crate::limits::UNSOLICITED_MAX;

/// What makes a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Asked for.
    Solicited,
    /// Comes unasked (RFC 7143 §4.2.5.2).
    Unsolicited,
    /// Comes unasked, and nobody wants it: only its end counts.
    Discard,
}

/// Data that is expected.
#[derive(Clone, Copy, Debug)]
pub(super) struct Burst {
    pub(super) kind: Kind,
    pub(super) task: TaskId,
    pub(super) itt: Itt,
    pub(super) offset: u32,
    pub(super) length: u32,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    burst: Burst,
    abandoned: bool,
    /// The core has not looked for it yet.
    fresh: bool,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u16,
    entry: Option<Entry>,
}

/// All bursts of one connection.
#[derive(Debug, Default)]
pub(super) struct Bursts {
    slots: Vec<Slot>,
    /// Free slots, oldest first, so that a tag is used again as late as possible.
    free: VecDeque<u16>,
    /// Slots of what comes unasked; few, and scanned.
    unsolicited: Vec<(Itt, u16)>,
    open: usize,
    abandoned: usize,
}

impl Bursts {
    /// Expects a burst; None if there are as many as may be.
    pub(super) fn open(&mut self, burst: Burst) -> Option<Ttt> {
        let is_unsolicited = burst.kind != Kind::Solicited;
        if is_unsolicited && let Some(index) = self.unsolicited_of(burst.itt) {
            // A task tag that comes again names a new task.
            self.remove(index);
        }
        if self.is_full(burst.kind) {
            // A peer that never answers must not use up the table.
            self.remove_where(|entry| entry.abandoned);
        }
        if self.is_full(burst.kind) {
            return None;
        }
        if self.free.is_empty() {
            self.free.push_back(u16::try_from(self.slots.len()).ok()?);
            self.slots.push(Slot::default());
        }
        let index = self.free.pop_front()?;
        let slot = self.slots.get_mut(usize::from(index))?;
        slot.entry = Some(Entry { burst, abandoned: false, fresh: true });
        self.open += 1;
        if is_unsolicited {
            self.unsolicited.push((burst.itt, index));
        }
        Some(Ttt(u32::from(slot.generation) << 16 | u32::from(index)))
    }

    /// The burst that data answers, which is over with that, and whether it is wanted.
    pub(super) fn answered(&mut self, data: &Data) -> Option<(Burst, bool)> {
        let index = match data.ttt {
            Ttt::NONE => self.unsolicited_of(data.itt)?,
            Ttt(tag) => u16::try_from(tag & 0xffff).ok()?,
        };
        let slot = self.slots.get(usize::from(index))?;
        let Entry { burst, abandoned, .. } = slot.entry?;
        let is_current = data.ttt == Ttt::NONE
            || burst.kind == Kind::Solicited && u32::from(slot.generation) == data.ttt.0 >> 16;
        if !is_current || burst.itt != data.itt {
            return None;
        }
        self.remove(index);
        Some((burst, !abandoned))
    }

    /// From now on data of `task` is dropped silently.
    pub(super) fn abandon(&mut self, task: TaskId) {
        for entry in self.slots.iter_mut().filter_map(|slot| slot.entry.as_mut()) {
            if entry.burst.task == task && !entry.abandoned {
                entry.abandoned = true;
                self.abandoned += 1;
                self.open -= 1;
            }
        }
    }

    /// Abandons each burst of `task` that was there at the last call.
    pub(super) fn overdue(&mut self, task: TaskId, events: &mut VecDeque<Event>) {
        for entry in self.slots.iter_mut().filter_map(|slot| slot.entry.as_mut()) {
            if entry.burst.task != task || entry.abandoned {
                continue;
            }
            if core::mem::take(&mut entry.fresh) {
                continue;
            }
            entry.abandoned = true;
            self.abandoned += 1;
            self.open -= 1;
            events.push_back(entry.burst.result(Some(DataError::Overdue)));
        }
    }

    /// Closes all bursts of `task` that were not abandoned: data of them is refused.
    pub(super) fn close(&mut self, task: TaskId) {
        self.remove_where(|entry| entry.burst.task == task && !entry.abandoned);
    }

    /// Closes the abandoned bursts of `task`: data of them is refused.
    pub(super) fn forget(&mut self, task: TaskId) {
        self.remove_where(|entry| entry.burst.task == task && entry.abandoned);
    }

    pub(super) fn open_count(&self) -> usize {
        self.open
    }

    pub(super) fn abandoned_count(&self) -> usize {
        self.abandoned
    }

    /// Asserts what always holds.
    pub(super) fn check(&self) {
        let entries = || self.slots.iter().filter_map(|slot| slot.entry.as_ref());
        let abandoned = entries().filter(|entry| entry.abandoned).count();
        assert_eq!(self.abandoned, abandoned, "abandoned bursts");
        assert_eq!(self.open + self.abandoned, entries().count(), "open bursts");
        assert_eq!(self.free.len() + entries().count(), self.slots.len(), "free slots");
        let unsolicited = entries().filter(|entry| entry.burst.kind != Kind::Solicited).count();
        assert_eq!(self.unsolicited.len(), unsolicited, "unsolicited bursts");
        assert!(self.unsolicited.len() <= UNSOLICITED_MAX, "few");
        assert!(self.slots.len() <= SOLICITED_MAX + UNSOLICITED_MAX, "bounded");
    }

    fn unsolicited_of(&self, itt: Itt) -> Option<u16> {
        self.unsolicited.iter().find(|(of, _)| *of == itt).map(|(_, index)| *index)
    }

    fn is_full(&self, kind: Kind) -> bool {
        match kind {
            Kind::Solicited => self.open + self.abandoned - self.unsolicited.len() >= SOLICITED_MAX,
            Kind::Unsolicited | Kind::Discard => self.unsolicited.len() >= UNSOLICITED_MAX,
        }
    }

    fn remove_where(&mut self, which: impl Fn(&Entry) -> bool) {
        for index in 0..self.slots.len() {
            let entry = self.slots.get(index).and_then(|slot| slot.entry.as_ref());
            if entry.is_some_and(&which)
                && let Ok(index) = u16::try_from(index)
            {
                self.remove(index);
            }
        }
    }

    fn remove(&mut self, index: u16) {
        let Some(slot) = self.slots.get_mut(usize::from(index)) else { return };
        let Some(entry) = slot.entry.take() else { return };
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push_back(index);
        match entry.abandoned {
            true => self.abandoned -= 1,
            false => self.open -= 1,
        }
        if entry.burst.kind != Kind::Solicited {
            self.unsolicited.retain(|(_, of)| *of != index);
        }
    }
}

impl Burst {
    /// What the core is told of its end.
    pub(super) fn result(&self, error: Option<DataError>) -> Event {
        let Self { kind, task, offset, length, .. } = *self;
        match error {
            Some(error) if kind != Kind::Discard => {
                Event::DataFailed { task, offset, length, error }
            }
            _ => Event::DataDone { task, offset, length },
        }
    }
}
