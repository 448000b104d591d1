// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A completion queue with its depth, and where the data of reads goes.

use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::time::Duration;

use initiator::Completion;
use initiator::CompletionQueue;
use initiator::DiskEvent;
use initiator::Fate;
use initiator::Operation;
use initiator::PathChange;
use slots::Id;
use slots::Slots;

use crate::border::Destination;
use crate::code::Code;
use crate::code::Failure;
use crate::disk::Disk;
use crate::limits;

/// A completion queue.
#[derive(Debug)]
pub(crate) struct Ring {
    queue: CompletionQueue,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    flights: Slots<FlightId, Flight>,
    /// Why some of what was reaped last failed, by its place there.
    failures: Vec<(usize, Failure)>,
    /// It was freed: calls that had begun touch no buffer any more.
    freed: bool,
}

/// One operation under way.
#[derive(Debug)]
struct Flight {
    tag: u64,
    bytes: u64,
    to: Option<Destination>,
    /// Nobody wants to hear of it.
    forgotten: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FlightId(u64);

impl Id for FlightId {
    fn new(index: u32, generation: u32) -> Self {
        Self(u64::from(index) | u64::from(generation) << u32::BITS)
    }

    fn index(self) -> u32 {
        u32::try_from(self.0 & u64::from(u32::MAX)).unwrap_or_default()
    }

    fn generation(self) -> u32 {
        u32::try_from(self.0 >> u32::BITS).unwrap_or_default()
    }
}

/// What a program reaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reaped {
    pub(crate) tag: u64,
    pub(crate) what: What,
    /// Why it failed, or what an event was about.
    pub(crate) code: Option<Code>,
    pub(crate) bytes: u64,
}

/// As `enum lunwire_what` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum What {
    Operation = 0,
    Resized = 1,
    Attention = 2,
    Lost = 3,
    Back = 4,
    Ended = 5,
    MayHaveLost = 6,
    Path = 7,
}

impl Ring {
    pub(crate) fn new(depth: u32) -> Result<Self, Failure> {
        if !(1..=limits::DEPTH_MAX).contains(&depth) {
            let text = format!("a depth is 1 to {}", limits::DEPTH_MAX);
            return Err(Failure::new(Code::Argument, text));
        }
        let state = State { flights: Slots::new(depth), failures: Vec::new(), freed: false };
        Ok(Self { queue: CompletionQueue::new()?, state: Mutex::new(state) })
    }

    /// Starts an operation. The data of a read goes `to` there when it is reaped.
    pub(crate) fn submit(
        &self,
        disk: &Disk,
        tag: u64,
        operation: Operation,
        to: Option<Destination>,
    ) -> Result<(), Failure> {
        let bytes = match &operation {
            Operation::Read { length, .. }
            | Operation::Discard { length, .. }
            | Operation::Zero { length, .. } => *length,
            Operation::Write { data, .. } => data.len() as u64,
            Operation::CompareAndWrite { new, .. } => new.len() as u64,
            _ => 0,
        };
        let flight = Flight { tag, bytes, to, forgotten: false };
        let mut state = self.state();
        if state.freed {
            return Err(Failure::new(Code::Handle, "the queue was freed meanwhile"));
        }
        let inserted = state.flights.try_insert_with(|_| flight);
        drop(state);
        let Some(id) = inserted else {
            return Err(Failure::new(
                Code::Full,
                "as many operations are under way as the queue is deep",
            ));
        };
        disk.remote().submit(&self.queue, id.0, operation).map_err(|error| {
            self.state().flights.discard(id);
            error.into()
        })
    }

    /// Has what happens to the disk told under `tag`.
    pub(crate) fn watch(&self, disk: &Disk, tag: u64) {
        disk.remote().watch(&self.queue, tag);
    }

    /// Nothing more is heard of operations with this tag, and no buffer of theirs is touched.
    pub(crate) fn forget(&self, tag: u64) -> usize {
        let mut state = self.state();
        let known =
            state.flights.values_mut().filter(|flight| flight.tag == tag && !flight.forgotten);
        known.map(|flight| (flight.forgotten, flight.to) = (true, None)).count()
    }

    /// The same for all, and for good; nobody waits for it any more.
    pub(crate) fn free(&self) {
        let mut state = self.state();
        state.freed = true;
        for flight in state.flights.values_mut() {
            (flight.forgotten, flight.to) = (true, None);
        }
        // Nobody lowers it again.
        self.queue.interrupt();
    }

    /// Gives to `sink` what has ended or happened, at most `count`; says how many that was.
    pub(crate) fn reap(&self, count: usize, mut sink: impl FnMut(usize, Reaped)) -> usize {
        let mut state = self.state();
        state.failures.clear();
        let mut given = 0;
        while given < count && !state.freed {
            let Some(entry) = self.queue.reap() else { break };
            let Some(reaped) = state.take(entry, given) else { continue };
            sink(given, reaped);
            given += 1;
        }
        given
    }

    /// Why the entry at `index` of what was reaped last failed.
    pub(crate) fn failure(&self, index: usize) -> Option<Failure> {
        let state = self.state();
        state.failures.iter().find(|(at, _)| *at == index).map(|(_, failure)| failure.clone())
    }

    pub(crate) fn wait(&self, timeout: Option<Duration>) -> bool {
        self.queue.wait(timeout)
    }

    pub(crate) fn descriptor(&self) -> i32 {
        self.queue.as_fd().as_raw_fd()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// None if nobody wants to hear of it.
    fn take(&mut self, entry: Completion, index: usize) -> Option<Reaped> {
        match entry {
            Completion::Ended { tag, result } => {
                let Flight { tag, bytes, to, forgotten } = self.flights.remove(FlightId(tag))?;
                if forgotten {
                    return None;
                }
                let code = match result {
                    Ok(chunks) => {
                        if let Some(mut to) = to {
                            to.fill(0, &chunks);
                        }
                        None
                    }
                    Err(error) => Some(self.note(index, error.into())),
                };
                let bytes = if code.is_some() { 0 } else { bytes };
                Some(Reaped { tag, what: What::Operation, code, bytes })
            }
            Completion::Event { tag, event } => {
                let (what, failure, bytes) = told(event)?;
                let code = failure.map(|failure| self.note(index, failure));
                Some(Reaped { tag, what, code, bytes })
            }
            _ => None,
        }
    }

    fn note(&mut self, index: usize, failure: Failure) -> Code {
        let code = failure.code();
        self.failures.push((index, failure));
        code
    }
}

/// An event as C has it: what, why, and how many. None: it has no number there.
fn told(event: DiskEvent) -> Option<(What, Option<Failure>, u64)> {
    Some(match event {
        DiskEvent::Resized { now, .. } => (What::Resized, None, now),
        DiskEvent::Attention(_) => (What::Attention, None, 0),
        DiskEvent::Lost(error) => (What::Lost, Some(error.into()), 0),
        DiskEvent::Back => (What::Back, None, 0),
        DiskEvent::Ended(error) => (What::Ended, Some(error.into()), 0),
        DiskEvent::MayHaveLost(fate) => {
            let why = match fate {
                Fate::Failed => "the unit told that it failed to keep what it had acknowledged",
                _ => "the unit was reset, or began anew, and may have lost what was not flushed",
            };
            (What::MayHaveLost, Some(Failure::new(Code::WritesLost, why)), 0)
        }
        DiskEvent::Path { path, change } => {
            let why = match change {
                PathChange::Lost(error) | PathChange::Refused(error) => Some(error.into()),
                _ => None,
            };
            (What::Path, why, path as u64)
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_to_a_disk_has_its_numbers() {
        let error = || initiator::Error::unreachable(&[], "gone".into());
        let path = |change| DiskEvent::Path { path: 3, change };
        for (event, what, code, bytes) in [
            (DiskEvent::Resized { was: 1, now: 2 }, What::Resized, None, 2),
            (DiskEvent::Lost(error()), What::Lost, Some(Code::Unreachable), 0),
            (DiskEvent::Back, What::Back, None, 0),
            (DiskEvent::Ended(error()), What::Ended, Some(Code::Unreachable), 0),
            (DiskEvent::MayHaveLost(Fate::Reset), What::MayHaveLost, Some(Code::WritesLost), 0),
            (DiskEvent::MayHaveLost(Fate::Failed), What::MayHaveLost, Some(Code::WritesLost), 0),
            (path(PathChange::Lost(error())), What::Path, Some(Code::Unreachable), 3),
            (path(PathChange::Refused(error())), What::Path, Some(Code::Unreachable), 3),
            (path(PathChange::Back), What::Path, None, 3),
        ] {
            let shown = format!("{event:?}");
            let (told, why, number) = told(event).expect(&shown);
            assert_eq!((told, why.map(|why| why.code()), number), (what, code, bytes), "{shown}");
        }
    }
}
