// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Write bursts: which Data-Out belongs where, and whether it came in order.
//!
//! Read first: RFC 7143 §4.2.2.4 (DataSN), §7.8 and §7.9 (errors), §11.7 (Data-Out), §11.8 (R2T).
//!
//! ```text
//!             open                        F: DataDone
//!   (free) ----------> fine ------------------------------> (free)
//!                        | wrong DataSN, offset, digest,
//!                        | amount           F: DataFailed
//!                        +----> failed -------------------> (free)
//!   fine, failed --abandon--> abandoned --F or forget, nothing told-> (free)
//! ```
//!
//! A burst of R2T is found by its target transfer tag: slot number below, generation of the slot
//! above, so that a tag from an earlier use of the slot is never taken for the present one. An
//! unsolicited burst is found by its initiator task tag.
//!
//! With DataPDUInOrder=No the PDUs of a burst may come in any order, each byte once. DataSN still
//! counts them as they come. What has come is then in a [`Coverage`], from the first PDU on that
//! is out of order.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use iscsi::datamover::{DataError, Event, NumberedGet, TaskId};
use wire::iscsi::{DataOut, Itt, LunField, Ttt};

use super::coverage::{Coverage, Refusal};
use super::frame::Integrity;
use crate::limits::{SOLICITED_MAX, UNSOLICITED_MAX};

/// What makes a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Asked for by an R2T.
    Solicited,
    /// Sent without R2T (RFC 7143 §4.2.5.2).
    Unsolicited,
    /// Sent without R2T, and nobody wants it: only its end counts.
    Discard,
}

/// A burst as the core asks for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) kind: Kind,
    pub(super) task: TaskId,
    pub(super) itt: Itt,
    pub(super) lun: LunField,
    pub(super) offset: u32,
    pub(super) length: u32,
}

/// Names an open burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BurstKey {
    index: u16,
    generation: u16,
}

impl BurstKey {
    /// The tag for the wire. Never 0xffffffff: the index stays below 0xffff (`limits`).
    pub(super) fn ttt(self) -> Ttt {
        Ttt(u32::from(self.generation) << 16 | u32::from(self.index))
    }

    fn of(ttt: Ttt) -> Self {
        let [g1, g0, i1, i0] = ttt.0.to_be_bytes();
        Self { index: u16::from_be_bytes([i1, i0]), generation: u16::from_be_bytes([g1, g0]) }
    }
}

/// What is to become of a Data-Out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// No open burst takes it: Reject 0x09 (RFC 7143 §11.17.1).
    Refused,
    /// Of an abandoned burst: dropped without a word (RFC 7143 §10.7).
    Ignored(BurstKey),
    /// Its first `room` bytes go to offset `at` of the task's buffer; the rest is dropped.
    Accepted { key: BurstKey, at: u32, room: u32 },
}

#[derive(Clone, Copy, Debug)]
struct Burst {
    request: Request,
    /// Where the next PDU begins; [`ANYWHERE`] once one came out of order that may.
    expected: u64,
    /// Bytes that came so far.
    received: u32,
    /// DataSN of the next PDU.
    data_sn: u32,
    error: Option<DataError>,
    abandoned: bool,
    /// Something came since the core last looked for what is overdue.
    stirred: bool,
}

/// No offset of a PDU: it has 32 bits.
const ANYWHERE: u64 = u64::MAX;

#[derive(Debug, Default)]
struct Slot {
    generation: u16,
    burst: Option<Burst>,
    /// What came of a burst whose PDUs came out of order.
    coverage: Coverage,
}

/// All open bursts of one connection. A table of its own kind: its slots are used again as late as
/// possible, and keep the memory of their coverage.
#[derive(Debug, Default)]
pub(super) struct Bursts {
    slots: Vec<Slot>,
    /// Free slots, oldest first, so that a tag is reused as late as possible.
    free: VecDeque<u16>,
    /// Open unsolicited bursts; few, and scanned.
    unsolicited: Vec<(Itt, BurstKey)>,
    open: usize,
    abandoned: usize,
    /// DataPDUInOrder=No.
    any_order: bool,
}

impl Bursts {
    /// Whether PDUs of a burst must come in order of their offsets (RFC 7143 §13.18).
    pub(super) fn set_order(&mut self, in_order: bool) {
        self.any_order = !in_order;
    }

    /// Opens a burst; None if there are as many as may be.
    pub(super) fn open(&mut self, request: Request) -> Option<BurstKey> {
        if request.kind != Kind::Solicited {
            self.forget_unsolicited(request.itt);
        }
        if self.is_full(request.kind) {
            self.reclaim();
        }
        if self.is_full(request.kind) {
            return None;
        }
        let key = self.take_slot()?;
        let expected = request.offset.into();
        let burst = Burst {
            request,
            expected,
            received: 0,
            data_sn: 0,
            error: None,
            abandoned: false,
            stirred: true,
        };
        self.slots.get_mut(usize::from(key.index))?.burst = Some(burst);
        self.open += 1;
        if request.kind != Kind::Solicited {
            self.unsolicited.push((request.itt, key));
        }
        Some(key)
    }

    /// Decides on a Data-Out with `length` data bytes and counts it.
    pub(super) fn admit(&mut self, pdu: &DataOut, length: u32) -> Admission {
        let Some(key) = self.find(pdu) else { return Admission::Refused };
        let any_order = self.any_order;
        let Some(slot) = self.slots.get_mut(usize::from(key.index)) else {
            return Admission::Refused;
        };
        let Slot { generation, burst: Some(burst), coverage } = slot else {
            return Admission::Refused;
        };
        if burst.abandoned {
            return Admission::Ignored(key);
        }
        if *generation != key.generation || !burst.belongs(pdu) {
            return Admission::Refused;
        }
        let (at, room) = match burst.enter(pdu, length) {
            None if any_order => (pdu.offset, burst.scatter(pdu, length, coverage)),
            entered => entered.unwrap_or_else(|| burst.disorder(pdu, length)),
        };
        Admission::Accepted { key, at, room }
    }

    /// The task whose buffer takes data of this burst; None if it was ended meanwhile or wants
    /// none.
    pub(super) fn landing(&self, key: BurstKey) -> Option<TaskId> {
        let burst = self.get(key)?;
        let wanted = !burst.abandoned && burst.request.kind != Kind::Discard;
        wanted.then_some(burst.request.task)
    }

    /// The burst is open and was not abandoned.
    pub(super) fn is_wanted(&self, key: BurstKey) -> bool {
        self.get(key).is_some_and(|burst| !burst.abandoned)
    }

    /// Marks a burst as failed; the first error counts.
    pub(super) fn fail(&mut self, key: BurstKey, error: DataError) {
        if let Some(burst) = self.get_mut(key) {
            burst.error.get_or_insert(error);
        }
    }

    /// A PDU of the burst is complete. With F the burst is over and the event tells how.
    pub(super) fn finish(
        &mut self,
        key: BurstKey,
        pdu: &DataOut,
        data: Integrity,
    ) -> Option<Event> {
        if data == Integrity::Corrupt {
            self.fail(key, DataError::Digest);
        }
        if !pdu.final_ {
            return None;
        }
        let burst = self.remove(key)?;
        (!burst.abandoned).then(|| burst.result())
    }

    /// From now on the Data-Outs of all bursts of `task` are dropped silently, until F or until
    /// their slot is needed.
    pub(super) fn abandon(&mut self, task: TaskId) {
        for slot in &mut self.slots {
            let Some(burst) = slot.burst.as_mut() else { continue };
            if burst.request.task == task && !burst.abandoned {
                burst.abandoned = true;
                self.abandoned += 1;
                self.open -= 1;
            }
        }
    }

    /// Abandons each burst of `task` to which nothing has come since the last call.
    pub(super) fn overdue(&mut self, task: TaskId, events: &mut VecDeque<Event>) {
        let mut count = 0;
        for burst in self.slots.iter_mut().filter_map(|slot| slot.burst.as_mut()) {
            if burst.request.task != task || burst.abandoned {
                continue;
            }
            if core::mem::take(&mut burst.stirred) {
                continue;
            }
            burst.error = Some(DataError::Overdue);
            burst.abandoned = true;
            count += 1;
            events.push_back(burst.result());
        }
        self.abandoned += count;
        self.open -= count;
    }

    /// The burst that this R2T asked for, if it is open.
    pub(super) fn find_open(&self, get: &NumberedGet) -> Option<BurstKey> {
        let asked = |burst: &Burst| {
            let Request { kind, task, offset, length, .. } = burst.request;
            !burst.abandoned
                && kind == Kind::Solicited
                && (task, offset, length) == (get.task, get.offset, get.length)
        };
        let index = self.slots.iter().position(|slot| slot.burst.as_ref().is_some_and(asked))?;
        let generation = self.slots.get(index)?.generation;
        Some(BurstKey { index: u16::try_from(index).ok()?, generation })
    }

    /// Closes all bursts of `task` that were not abandoned: further Data-Outs of them are refused.
    pub(super) fn close(&mut self, task: TaskId) {
        for index in 0..self.slots.len() {
            let Some(slot) = self.slots.get(index) else { continue };
            let Some(burst) = slot.burst.as_ref() else { continue };
            if burst.request.task == task && !burst.abandoned {
                let Ok(index) = u16::try_from(index) else { continue };
                self.remove(BurstKey { index, generation: slot.generation });
            }
        }
    }

    /// Closes the abandoned bursts of `task`: further Data-Outs of them are refused.
    pub(super) fn forget(&mut self, task: TaskId) {
        self.remove_abandoned(|burst| burst.request.task == task);
    }

    /// Bursts that are open and wanted.
    pub(super) fn open_count(&self) -> usize {
        self.open
    }

    /// Abandoned bursts whose F has not come.
    pub(super) fn abandoned_count(&self) -> usize {
        self.abandoned
    }

    /// Asserts what always holds.
    pub(super) fn check(&self) {
        let bursts = || self.slots.iter().filter_map(|slot| slot.burst.as_ref());
        let abandoned = bursts().filter(|burst| burst.abandoned).count();
        assert_eq!(self.abandoned, abandoned, "abandoned bursts");
        assert_eq!(self.open + self.abandoned, bursts().count(), "open bursts");
        assert_eq!(self.free.len() + bursts().count(), self.slots.len(), "free slots");
        let unsolicited = bursts().filter(|burst| burst.request.kind != Kind::Solicited).count();
        assert_eq!(self.unsolicited.len(), unsolicited, "unsolicited bursts");
        assert!(self.unsolicited.iter().all(|(_, key)| self.get(*key).is_some()), "they are open");
        assert!(self.unsolicited.len() <= UNSOLICITED_MAX, "few");
        assert!(self.slots.len() <= SOLICITED_MAX + UNSOLICITED_MAX, "bounded");
        self.slots.iter().for_each(|slot| slot.coverage.check());
    }

    fn find(&self, pdu: &DataOut) -> Option<BurstKey> {
        if pdu.ttt == Ttt::NONE {
            return self.unsolicited.iter().find(|(itt, _)| *itt == pdu.itt).map(|(_, key)| *key);
        }
        let key = BurstKey::of(pdu.ttt);
        (self.get(key)?.request.kind == Kind::Solicited).then_some(key)
    }

    fn get(&self, key: BurstKey) -> Option<&Burst> {
        let slot = self.slots.get(usize::from(key.index))?;
        if slot.generation == key.generation { slot.burst.as_ref() } else { None }
    }

    fn get_mut(&mut self, key: BurstKey) -> Option<&mut Burst> {
        let slot = self.slots.get_mut(usize::from(key.index))?;
        if slot.generation == key.generation { slot.burst.as_mut() } else { None }
    }

    fn is_full(&self, kind: Kind) -> bool {
        match kind {
            Kind::Solicited => self.open + self.abandoned - self.unsolicited.len() >= SOLICITED_MAX,
            Kind::Unsolicited | Kind::Discard => self.unsolicited.len() >= UNSOLICITED_MAX,
        }
    }

    fn take_slot(&mut self) -> Option<BurstKey> {
        if self.free.is_empty() {
            self.free.push_back(u16::try_from(self.slots.len()).ok()?);
            self.slots.push(Slot::default());
        }
        let index = self.free.pop_front()?;
        Some(BurstKey { index, generation: self.slots.get(usize::from(index))?.generation })
    }

    /// Makes room at the cost of all abandoned bursts: a peer that never ends them must not use up
    /// the table.
    fn reclaim(&mut self) {
        self.remove_abandoned(|_| true);
    }

    fn remove_abandoned(&mut self, which: impl Fn(&Burst) -> bool) {
        for index in 0..self.slots.len() {
            let Some(slot) = self.slots.get(index) else { continue };
            if !slot.burst.is_some_and(|burst| burst.abandoned && which(&burst)) {
                continue;
            }
            if let Ok(index) = u16::try_from(index) {
                self.remove(BurstKey { index, generation: slot.generation });
            }
        }
    }

    /// A task tag that comes again names a new task: what was left of the old one is void.
    fn forget_unsolicited(&mut self, itt: Itt) {
        let old = self.unsolicited.iter().find(|(open, _)| *open == itt).map(|(_, key)| *key);
        if let Some(key) = old {
            self.remove(key);
        }
    }

    fn remove(&mut self, key: BurstKey) -> Option<Burst> {
        let slot = self.slots.get_mut(usize::from(key.index))?;
        if slot.generation != key.generation {
            return None;
        }
        let burst = slot.burst.take()?;
        if burst.expected == ANYWHERE {
            slot.coverage.clear();
        }
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push_back(key.index);
        if burst.abandoned {
            self.abandoned -= 1;
        } else {
            self.open -= 1;
        }
        if burst.request.kind != Kind::Solicited {
            self.unsolicited.retain(|(_, open)| *open != key);
        }
        Some(burst)
    }
}

impl Burst {
    /// ITT and, where an R2T told it, the LUN; without TTT the LUN is reserved (RFC 7143 §11.7.4).
    fn belongs(&self, pdu: &DataOut) -> bool {
        let solicited = self.request.kind == Kind::Solicited;
        pdu.itt == self.request.itt && (!solicited || pdu.lun == self.request.lun)
    }

    /// A PDU in order: checks the amount (RFC 7143 §11.7.5, §11.7.6) and returns where the data
    /// goes and how much of it. None, with nothing entered, if it is not in order.
    fn enter(&mut self, pdu: &DataOut, length: u32) -> Option<(u32, u32)> {
        let in_order = pdu.data_sn.0 == self.data_sn
            && (length == 0 || u64::from(pdu.offset) == self.expected);
        if !in_order {
            return None;
        }
        let left = self.request.length.saturating_sub(self.received);
        if length > left {
            self.error.get_or_insert(DataError::Amount);
        }
        self.count(length);
        self.expected = self.expected.saturating_add(length.into());
        Some((pdu.offset, length.min(left)))
    }

    /// A PDU out of order where all must be in order: its data goes nowhere.
    fn disorder(&mut self, pdu: &DataOut, length: u32) -> (u32, u32) {
        self.error.get_or_insert(DataError::Sequence);
        self.count(length);
        self.expected = self.expected.saturating_add(length.into());
        (pdu.offset, 0)
    }

    /// A PDU that may come out of order: returns how much of its data goes to its offset, which is
    /// all or nothing.
    fn scatter(&mut self, pdu: &DataOut, length: u32, coverage: &mut Coverage) -> u32 {
        let Request { offset, length: total, .. } = self.request;
        let end = offset.saturating_add(total);
        if self.expected != ANYWHERE {
            self.expected = ANYWHERE;
            let entered = coverage.insert(offset, offset.saturating_add(self.received).min(end));
            debug_assert_eq!(entered, Ok(()), "nothing was covered");
        }
        let pdu_end = pdu.offset.checked_add(length).filter(|pdu_end| *pdu_end <= end);
        let error = match pdu_end {
            _ if pdu.data_sn.0 != self.data_sn => Some(DataError::Sequence),
            Some(pdu_end) if pdu.offset >= offset => match coverage.insert(pdu.offset, pdu_end) {
                Ok(()) => None,
                Err(Refusal::Overlap) => Some(DataError::Amount),
                Err(Refusal::Scattered) => Some(DataError::Sequence),
            },
            _ => Some(DataError::Amount),
        };
        self.count(length);
        let Some(error) = error else { return length };
        self.error.get_or_insert(error);
        0
    }

    fn count(&mut self, length: u32) {
        self.stirred = true;
        self.data_sn = self.data_sn.wrapping_add(1);
        self.received = self.received.saturating_add(length);
    }

    fn result(&self) -> Event {
        let Request { kind, task, offset, length, .. } = self.request;
        let error = match self.error {
            None if self.received < length => Some(DataError::Amount),
            error => error,
        };
        match error {
            Some(error) if kind != Kind::Discard => {
                Event::DataFailed { task, offset, length, error }
            }
            _ => Event::DataDone { task, offset, length },
        }
    }
}
