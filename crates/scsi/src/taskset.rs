// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Task sets: which commands may run, and the ACA condition (SAM-5 §5.9, §8).
//!
//! ```text
//! accepted --> counted -------------------------------> over      SIMPLE, nothing special
//! accepted --> listed, dormant --> counted -----------> over      SIMPLE behind others
//! accepted --> listed, dormant --> listed, enabled ---> over      ORDERED, HEAD OF QUEUE, ACA
//! ```
//!
//! As a rule a SIMPLE task counts itself in the state of its own nexus, which no other reactor
//! writes to, then looks at the word of the unit and runs: no lock, no memory. A task of another
//! kind, or an ACA condition, sets [`Special::Queued`]; from then on all that come are listed under
//! a lock, and what is counted is older than what is listed. One of the two sees the other, for the
//! orders count-then-look and set-then-count are sequentially consistent.

use crate::limits;
use crate::lun::LogicalUnit;
use crate::lun::NexusState;
use crate::lun::Special;
use crate::sense;
use crate::sense::Fault;
use alloc::vec::Vec;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering;
use wire::iscsi::Attribute;

/// Tasks of one nexus that run and are not listed.
#[derive(Debug, Default)]
pub(crate) struct Running(AtomicU32);

/// Where a task stands in the task set of its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskSetEntry {
    /// Over, or of no unit.
    Nowhere,
    /// Counted with its nexus: it runs.
    Counted,
    /// In the list.
    Listed(Ticket),
}

/// Names a listed task; a later one is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(u64);

/// Whether a task may run now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Now,
    Later,
}

/// How tasks of several nexuses stand to each other: TST and QERR (SPC-4 §7.5.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// TST = 000b.
    AllNexuses,
    /// TST = 001b.
    EachNexus,
}

/// What is out of the ordinary with the tasks of a unit.
#[derive(Debug, Default)]
pub(crate) struct TaskSet {
    next: u64,
    /// Ascending by ticket.
    listed: Vec<Listed>,
    /// Nexuses with an ACA condition; one at most where they share a task set.
    faulted: Vec<LinkId>,
}

#[derive(Debug)]
struct Listed {
    ticket: Ticket,
    attribute: Attribute,
    nexus_state: LinkId,
}

/// The address of the state of a nexus, which lives as long as its tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LinkId(usize);

/// What a new task is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) attribute: Attribute,
    pub(crate) naca: bool,
    /// PERSISTENT RESERVE OUT with PREEMPT AND ABORT, which gets past the ACA condition of another
    /// nexus (SAM-5 §5.9.2).
    pub(crate) preempts: bool,
}

impl Running {
    /// Counts a SIMPLE task; false if there is something special, and it must be listed.
    #[inline]
    pub(crate) fn enter(&self, unit: &LogicalUnit) -> bool {
        self.0.fetch_add(1, Ordering::SeqCst);
        if unit.is_special(Special::Queued) {
            self.leave();
            return false;
        }
        true
    }

    #[inline]
    fn leave(&self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }

    fn any(&self) -> bool {
        self.0.load(Ordering::SeqCst) != 0
    }
}

impl LinkId {
    fn of(nexus_state: &NexusState) -> Self {
        Self(core::ptr::from_ref(nexus_state).addr())
    }
}

impl TaskSetEntry {
    /// The task is over.
    #[inline]
    pub(crate) fn leave(&mut self, unit: &LogicalUnit, nexus_state: &NexusState) {
        match core::mem::replace(self, Self::Nowhere) {
            Self::Nowhere => {}
            Self::Counted => nexus_state.running.leave(),
            Self::Listed(ticket) => {
                let mut set = unit.task_set().lock();
                set.listed.retain(|task| task.ticket != ticket);
                set.tidy(unit);
            }
        }
    }

    /// Tries to run.
    #[cold]
    pub(crate) fn advance(&mut self, unit: &LogicalUnit, nexus_state: &NexusState) -> Turn {
        let Self::Listed(ticket) = *self else { return Turn::Now };
        let mut set = unit.task_set().lock();
        let Some(at) = set.listed.iter().position(|task| task.ticket == ticket) else {
            return Turn::Now;
        };
        if !set.may_run(at, unit, nexus_state) {
            return Turn::Later;
        }
        if set.listed.get(at).is_some_and(Listed::is_simple) {
            nexus_state.running.0.fetch_add(1, Ordering::SeqCst);
            set.listed.remove(at);
            *self = Self::Counted;
            set.tidy(unit);
        }
        Turn::Now
    }
}

impl TaskSet {
    /// Lists a task, or refuses it (SAM-5 §5.9.2, §8.6).
    pub(crate) fn accept(
        &mut self,
        unit: &LogicalUnit,
        nexus_state: &NexusState,
        arrival: Arrival,
    ) -> Result<TaskSetEntry, Fault> {
        let nexus_state = LinkId::of(nexus_state);
        let own = self.faulted.contains(&nexus_state);
        let blocked = self.is_blocked(unit, nexus_state);
        match arrival.attribute {
            Attribute::Aca
                if own && !self.listed.iter().any(|task| task.is_aca_of(nexus_state)) => {}
            _ if own => return Err(Fault::ACA_ACTIVE),
            _ if blocked && arrival.preempts => {}
            _ if blocked && arrival.naca => return Err(Fault::ACA_ACTIVE),
            _ if blocked => return Err(Fault::BUSY),
            Attribute::Aca => return Err(sense::INVALID_MESSAGE.into()),
            _ => {}
        }
        if self.listed.len() >= limits::LISTED_TASKS_MAX {
            return Err(Fault::TASK_SET_FULL);
        }
        unit.make_special(Special::Queued);
        let ticket = Ticket(self.next);
        self.next += 1;
        // What preempts must run even where all others are blocked.
        let attribute =
            if blocked && arrival.preempts { Attribute::Aca } else { arrival.attribute };
        self.listed.push(Listed { ticket, attribute, nexus_state });
        Ok(TaskSetEntry::Listed(ticket))
    }

    /// True if an ACA condition stops the tasks of `nexus_state`.
    fn is_blocked(&self, unit: &LogicalUnit, nexus_state: LinkId) -> bool {
        match unit.sharing() {
            Sharing::AllNexuses => !self.faulted.is_empty(),
            Sharing::EachNexus => self.faulted.contains(&nexus_state),
        }
    }

    /// True if an ACA condition holds up a task of `nexus_state` that runs already.
    pub(crate) fn holds_up(&self, unit: &LogicalUnit, nexus_state: &NexusState) -> bool {
        self.is_blocked(unit, LinkId::of(nexus_state))
    }

    /// SAM-5 §8.6: what must end before the task at `at` begins.
    fn may_run(&self, at: usize, unit: &LogicalUnit, nexus_state: &NexusState) -> bool {
        let Some(task) = self.listed.get(at) else { return true };
        let sharing = unit.sharing();
        let alike = |other: &&Listed| {
            sharing == Sharing::AllNexuses || other.nexus_state == task.nexus_state
        };
        let mut heads = self.listed.iter().filter(alike).filter(|other| other.is_head());
        let mut older = self.listed.iter().take(at).filter(alike);
        match task.attribute {
            Attribute::Aca => true,
            _ if self.is_blocked(unit, task.nexus_state) => false,
            Attribute::HeadOfQueue => true,
            Attribute::Ordered => {
                heads.next().is_none()
                    && older.next().is_none()
                    && match sharing {
                        Sharing::AllNexuses => {
                            !unit.any_nexus(|nexus_state| nexus_state.running.any())
                        }
                        Sharing::EachNexus => !nexus_state.running.any(),
                    }
            }
            Attribute::Simple | Attribute::Untagged => {
                heads.next().is_none() && !older.any(|other| other.attribute == Attribute::Ordered)
            }
        }
    }

    /// Establishes an ACA condition for the nexus of `nexus_state` (SAM-5 §5.9.1).
    pub(crate) fn fault(&mut self, unit: &LogicalUnit, nexus_state: &NexusState) {
        let nexus_state = LinkId::of(nexus_state);
        if !self.faulted.contains(&nexus_state) {
            self.faulted.push(nexus_state);
        }
        unit.make_special(Special::Queued);
        unit.make_special(Special::Aca);
    }

    /// Ends the ACA condition of one nexus, or of all for None; true if there was one.
    pub(crate) fn clear_fault(
        &mut self,
        unit: &LogicalUnit,
        nexus_state: Option<&NexusState>,
    ) -> bool {
        let before = self.faulted.len();
        let id = nexus_state.map(LinkId::of);
        self.faulted.retain(|faulted| id.is_some_and(|id| *faulted != id));
        let cleared = self.faulted.len() != before;
        self.tidy(unit);
        cleared
    }

    /// True if an ACA condition exists.
    pub(crate) fn is_faulted(&self) -> bool {
        !self.faulted.is_empty()
    }

    /// Asserts what always holds.
    pub(crate) fn check(&self, unit: &LogicalUnit) {
        let tickets = || self.listed.iter().map(|task| task.ticket);
        assert!(tickets().is_sorted_by(|one, next| one < next), "the older one stands before");
        assert!(tickets().all(|ticket| ticket.0 < self.next), "no ticket is given out twice");
        assert!(self.listed.len() <= limits::LISTED_TASKS_MAX, "the list is bounded");
        assert_eq!(unit.is_special(Special::Aca), self.is_faulted(), "commands see an ACA");
        let queued = self.is_faulted() || !self.listed.is_empty();
        assert_eq!(unit.is_special(Special::Queued), queued, "commands see those that are listed");
        for nexus_state in &self.faulted {
            let own = self.faulted.iter().filter(|other| *other == nexus_state);
            assert_eq!(own.count(), 1, "a nexus has one ACA condition");
        }
    }

    /// Makes the word of the unit ordinary again where it is.
    fn tidy(&self, unit: &LogicalUnit) {
        if self.faulted.is_empty() {
            unit.make_ordinary(Special::Aca);
            if self.listed.is_empty() {
                unit.make_ordinary(Special::Queued);
            }
        }
    }
}

impl Listed {
    fn is_simple(&self) -> bool {
        matches!(self.attribute, Attribute::Simple | Attribute::Untagged)
    }

    fn is_head(&self) -> bool {
        self.attribute == Attribute::HeadOfQueue
    }

    fn is_aca_of(&self, nexus_state: LinkId) -> bool {
        self.attribute == Attribute::Aca && self.nexus_state == nexus_state
    }
}

#[cfg(test)]
mod tests;
