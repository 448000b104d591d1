// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One command under way (SAM-5 §5): request, steps, completion.
//!
//! ```text
//! start --> ReceiveDataOut --> Store --> Complete
//!                              ^  |
//!                              +--+
//!
//! -->  one call of resume; each step but Complete may be left out, Store may come many times, and
//!      before any step the task may have to Wait for others
//! ```

mod machine;
mod parts;
mod step;
#[cfg(test)]
mod tests;

pub(crate) use machine::Machine;
pub(crate) use machine::Started;
pub(crate) use parts::condition_met;
pub(crate) use parts::data;
pub(crate) use parts::data_in;
pub(crate) use parts::data_out;
pub(crate) use parts::done;
pub(crate) use parts::good;
pub(crate) use step::ACA_ACTIVE;
pub(crate) use step::BUSY;
pub(crate) use step::CHECK_CONDITION;
pub(crate) use step::CONDITION_MET;
pub use step::Completion;
pub use step::DRAWN_LEN;
pub use step::Drawn;
pub(crate) use step::GOOD;
pub use step::Input;
pub(crate) use step::RESERVATION_CONFLICT;
pub use step::Request;
pub use step::Step;
pub(crate) use step::TASK_SET_FULL;
pub use step::Victims;

use crate::Nexus;
use crate::exclusion::Access;
use crate::exclusion::Hold;
use crate::kept::KeepFailed;
use crate::lun::LogicalUnit;
use crate::lun::Special;
use crate::nexus::Mapped;
use crate::protect::FailedCheck;
use crate::sense;
use crate::sense::Fault;
use crate::sense::Format;
use crate::taskset::Arrival;
use crate::taskset::Sharing;
use crate::taskset::TaskSetEntry;
use crate::taskset::Turn;
use alloc::boxed::Box;
use alloc::sync::Arc;
use store::Op;
use store::Outcome;
use store::Store;
use store::device::Answer;
use wire::iscsi::Attribute;
use wire::scsi::Sense;
use wire::scsi::cdb::CdbView;
use wire::scsi::mode::QueueError;
use wire::scsi::opcode::Opcode;
use wire::scsi::persistent;

/// A command under way. What it holds of the unit is free again when it is complete or dropped: a
/// task that ends while the store works for it must be told so ([`Task::outlast`]), and kept until
/// that work is done.
#[derive(Debug)]
pub struct Task {
    mapped: Option<Arc<Mapped>>,
    machine: Machine,
    hold: Hold,
    /// The unit that its store operation is for, if that may be another one than `mapped`: what it
    /// holds is held there.
    there: Option<Arc<Mapped>>,
    place: TaskSetEntry,
    /// NACA.
    naca: bool,
    /// An ACA condition does not stop it.
    passes_aca: bool,
    /// What it wrote may still be in a cache that must not be relied on.
    unflushed: bool,
    /// It has ended, and reservations are others by it.
    changed_reservations: bool,
    /// What it waits to do.
    waiting: Option<Box<Waiting>>,
}

/// What a task cannot do yet.
#[derive(Debug)]
enum Waiting {
    /// Begin: others of the task set come first.
    Begin(Request),
    /// Take this step.
    Step(Step),
    /// End so, when the store has flushed.
    Flush(Completion),
    /// End so, when the others are aborted.
    Abort(Completion),
}

impl Task {
    /// A command for no unit.
    pub(crate) fn elsewhere(started: Result<Started, Fault>) -> (Self, Step) {
        let (machine, step) = started
            .unwrap_or_else(|fault| (Machine::Done, Step::Complete(fault.complete(Format::Fixed))));
        debug_assert!(matches!(step, Step::Complete(_)), "without a unit there is nothing to do");
        (Self::new(None, machine, TaskSetEntry::Nowhere), step)
    }

    /// A command that runs.
    #[inline]
    pub(crate) fn running(
        mapped: Arc<Mapped>,
        request: &Request,
        started: Result<Started, Fault>,
    ) -> (Self, Step) {
        let (machine, step) = started_by(&mapped, started);
        let naca = asks_for_aca(&mapped.unit, request);
        let mut task = Self::new(Some(mapped), machine, TaskSetEntry::Counted);
        task.naca = naca;
        let step = task.pass(step);
        (task, step)
    }

    /// A command that is not SIMPLE, or comes while something is special with the task set.
    #[cold]
    pub(crate) fn listed(nexus: &Nexus, mapped: Arc<Mapped>, request: &Request) -> (Self, Step) {
        let arrival = Arrival {
            attribute: request.attribute,
            naca: asks_for_aca(&mapped.unit, request),
            preempts: is_preempt_and_abort(request),
        };
        let (unit, nexus_state) = (&mapped.unit, &mapped.nexus_state);
        let place = unit.task_set().lock().accept(unit, nexus_state, arrival);
        match place {
            Err(fault) => {
                let step = Step::Complete(unit.fault(fault));
                (Self::new(None, Machine::Done, TaskSetEntry::Nowhere), step)
            }
            Ok(place) => {
                let mut task = Self::new(Some(mapped), Machine::Done, place);
                task.naca = arrival.naca;
                task.passes_aca = arrival.attribute == Attribute::Aca || arrival.preempts;
                let step = task.begin(nexus, *request);
                (task, step)
            }
        }
    }

    const fn new(mapped: Option<Arc<Mapped>>, machine: Machine, place: TaskSetEntry) -> Self {
        Self {
            mapped,
            machine,
            hold: Hold::Nothing,
            there: None,
            place,
            naca: false,
            passes_aca: false,
            unflushed: false,
            changed_reservations: false,
            waiting: None,
        }
    }

    /// Work that belongs to no nexus; begin it with Turn.
    pub(crate) const fn job(mapped: Arc<Mapped>, machine: Machine) -> Self {
        Self::new(Some(mapped), machine, TaskSetEntry::Nowhere)
    }

    /// Like `resume`, for a task that came with [`Step::Spawn`]. Its end means nothing for the task
    /// set of its unit.
    pub fn work(&mut self, input: Input) -> Step {
        let step = match (self.waiting.take().map(|waiting| *waiting), input) {
            (Some(Waiting::Step(step)), Input::Turn) => match &self.machine {
                Machine::Copy(copy) => copy.go_on(step),
                _ => Ok(step),
            },
            (Some(_), _) => Err(sense::INTERNAL.into()),
            (None, input) => match (&mut self.machine, &self.mapped) {
                (Machine::Copy(copy), _) => copy.resume(input),
                (Machine::Wipe(wipe), Some(mapped)) => wipe.resume(&mapped.unit, input),
                _ => Err(sense::INTERNAL.into()),
            },
        };
        match step {
            Ok(Step::Complete(completion)) => self.end(completion),
            Ok(step) => match self.acquire(step) {
                Step::Complete(completion) => self.end(completion),
                step => step,
            },
            Err(fault) => self.end(fault.complete(Format::Fixed)),
        }
    }

    /// There is no memory for the Read of its last step: a step in its place that needs less. None
    /// if there is no such step; see [`Task::postpone`] for one that `work` gave.
    #[cold]
    pub fn shorten(&mut self) -> Option<Step> {
        let Machine::Copy(copy) = &mut self.machine else { return None };
        let step = copy.shorten()?;
        Some(self.acquire(step))
    }

    /// There can never be memory for its last step: the command ends.
    #[cold]
    pub fn lacks_resources(&mut self) -> Step {
        let Some(mapped) = &self.mapped else { return self.broken() };
        let completion = mapped.unit.fault(sense::INSUFFICIENT_RESOURCES.into());
        self.pass(Step::Complete(completion))
    }

    /// There is no memory yet for `op`, which `work` gave: it gives that once more for
    /// [`Input::Turn`]. Nothing is held meanwhile, for those who have the memory may wait for that.
    #[cold]
    pub fn postpone(&mut self, op: Op) {
        self.release_hold();
        self.waiting = Some(Box::new(Waiting::Step(Step::Store(op))));
    }

    /// The command waits for something before it takes `step`, its first one: it gives that once
    /// more for [`Input::Turn`]. Nothing is held meanwhile.
    #[cold]
    pub fn hold_back(&mut self, step: Step) {
        self.release_hold();
        self.waiting = Some(Box::new(Waiting::Step(step)));
    }

    /// Begins if it is its turn.
    #[cold]
    fn begin(&mut self, nexus: &Nexus, request: Request) -> Step {
        let Some(mapped) = &self.mapped else { return self.broken() };
        if self.place.advance(&mapped.unit, &mapped.nexus_state) == Turn::Later {
            self.waiting = Some(Box::new(Waiting::Begin(request)));
            return Step::Wait;
        }
        let (machine, step) = started_by(mapped, nexus.begin(mapped, &request));
        self.machine = machine;
        self.pass(step)
    }

    /// Takes what the last step gave. An input that was not asked for, or after the end, completes
    /// the command with INTERNAL TARGET FAILURE.
    pub fn resume(&mut self, nexus: &Nexus, input: Input) -> Step {
        if self.waiting.is_some() {
            return self.go_on(nexus, input);
        }
        let Some(mapped) = &self.mapped else { return self.broken() };
        let step = match self.machine.resume(nexus, &mapped.unit, input) {
            Ok(step) => step,
            Err(fault) => Step::Complete(mapped.unit.fault(fault)),
        };
        self.pass(step)
    }

    /// What it waited for has happened, or may have.
    #[cold]
    fn go_on(&mut self, nexus: &Nexus, input: Input) -> Step {
        match (self.waiting.take().map(|waiting| *waiting), input) {
            (Some(Waiting::Begin(request)), Input::Turn) => self.begin(nexus, request),
            (Some(Waiting::Step(step)), Input::Turn) => self.pass(step),
            (Some(Waiting::Abort(completion)), Input::Turn) => self.end(completion),
            (Some(Waiting::Flush(completion)), Input::Store(Outcome::Done)) => self.end(completion),
            (Some(Waiting::Flush(_)), Input::Store(Outcome::Failed(error))) => {
                self.unflushed = false;
                match &self.mapped {
                    Some(mapped) => {
                        let completion = mapped.unit.fault(sense::store_failed(error, 0));
                        self.pass(Step::Complete(completion))
                    }
                    None => self.broken(),
                }
            }
            _ => self.broken(),
        }
    }

    /// Lets a step out only with what it needs to hold of the unit.
    #[inline]
    fn pass(&mut self, step: Step) -> Step {
        let Some(mapped) = &self.mapped else { return step };
        match step {
            step if mapped.unit.watches_steps() => self.pass_watched(step),
            Step::Complete(completion) => self.complete(completion),
            step => self.acquire(step),
        }
    }

    #[inline]
    fn complete(&mut self, completion: Completion) -> Step {
        if completion.status == CHECK_CONDITION {
            return self.fail(completion);
        }
        if let Some(mapped) = &self.mapped {
            match &self.machine {
                Machine::Read(read) => mapped.nexus_state.traffic.count_read(read.bytes()),
                Machine::Write(write) => mapped.nexus_state.traffic.count_write(write.bytes()),
                Machine::Protected(protected) => protected.count(&mapped.nexus_state.traffic),
                Machine::Passing(passing) => passing.count(&mapped.nexus_state.traffic),
                _ => {}
            }
        }
        self.end(completion)
    }

    /// Waits if it needs to hold something of the unit that others have.
    #[inline]
    fn acquire(&mut self, step: Step) -> Step {
        let (Step::Store(op), Some(mapped)) = (&step, &self.mapped) else {
            return self.acquire_device(step);
        };
        let access = self.machine.access(&mapped.unit, op);
        if access == Access::There {
            return self.acquire_there(step);
        }
        let got = self.hold.acquire(access, &mapped.unit, &mapped.nexus_state, op);
        if got { step } else { self.wait(step) }
    }

    /// What a device is asked for may change its medium, or nobody knows.
    #[inline]
    fn acquire_device(&mut self, step: Step) -> Step {
        let (Step::Device(_), Some(mapped)) = (&step, &self.mapped) else { return step };
        if matches!(&self.machine, Machine::Passing(passing) if passing.only_asks()) {
            return step;
        }
        let (unit, nexus_state) = (&mapped.unit, &mapped.nexus_state);
        // No token stands for blocks of a device, so which ones it may change is of no matter.
        let got = self.hold.acquire(Access::Shared, unit, nexus_state, &Op::Flush);
        if got { step } else { self.wait(step) }
    }

    /// The same for an operation that may be for another unit; what the last one held is given
    /// back. One that waits keeps its place.
    #[cold]
    fn acquire_there(&mut self, step: Step) -> Step {
        if !self.hold.waits() {
            self.release_hold();
            if let Machine::Copy(copy) = &self.machine {
                self.there = copy.place().cloned();
            }
        }
        let (Step::Store(op), Some(there)) = (&step, &self.there) else { return self.broken() };
        if there.unit.is_special(Special::Withdrawn) {
            return self.turn_away(sense::UNIT_NOT_SUPPORTED);
        }
        let shared = op.changes() || there.unit.counts_readers();
        let access = if shared { Access::Shared } else { Access::Free };
        let got = self.hold.acquire(access, &there.unit, &there.nexus_state, op);
        if got { step } else { self.wait(step) }
    }

    /// Nobody waits for the end of FORMAT UNIT or SANITIZE, or for a unit that has gone.
    #[cold]
    fn turn_away(&mut self, sense: Sense) -> Step {
        let fault = Fault::from(sense);
        if let Machine::Copy(copy) = &self.machine {
            copy.fail(&fault);
        }
        let completion = match &self.mapped {
            Some(mapped) => mapped.unit.fault(fault),
            None => fault.complete(Format::Fixed),
        };
        self.complete(completion)
    }

    #[cold]
    fn wait(&mut self, step: Step) -> Step {
        let mapped = self.there.as_ref().or(self.mapped.as_ref());
        if let (Step::Store(_), Some(mapped)) = (&step, mapped)
            && mapped.unit.is_special(Special::Wiping)
            && !matches!(self.machine, Machine::Wipe(_))
        {
            let sense = mapped.unit.wiping_sense();
            return self.turn_away(sense);
        }
        if let (Step::Store(_) | Step::Device(_), Some(mapped)) = (&step, mapped)
            && mapped.unit.outlasting().is_fenced()
            && !self.machine.is_job()
        {
            let completion = mapped.unit.fault(Fault::BUSY);
            return self.end(completion);
        }
        self.waiting = Some(Box::new(Waiting::Step(step)));
        Step::Wait
    }

    /// A step while there is an ACA condition, or while the cache of the store must not be relied
    /// on.
    #[cold]
    fn pass_watched(&mut self, step: Step) -> Step {
        let Some(mapped) = &self.mapped else { return step };
        let (unit, nexus_state) = (&mapped.unit, &mapped.nexus_state);
        // What reads, decides and writes as one is not stopped in between; nor is work that has
        // begun and belongs to no nexus, for it would not outlive the task;
        // nor is a change that others wait for.
        let goes_on = matches!(step, Step::Spawn { .. } | Step::Keep(_));
        let stops = !self.passes_aca && self.hold != Hold::Exclusive && !goes_on;
        if stops
            && unit.is_special(Special::Aca)
            && unit.task_set().lock().holds_up(unit, nexus_state)
        {
            self.release_hold();
            return self.wait(step);
        }
        let through = unit.is_special(Special::WriteThrough);
        match step {
            Step::Store(Op::Write { offset, data, durable }) => {
                let durable = durable || through;
                self.acquire(Step::Store(Op::Write { offset, data, durable }))
            }
            Step::Store(Op::CompareAndWrite { offset, old, new, durable }) => {
                let durable = durable || through;
                self.acquire(Step::Store(Op::CompareAndWrite { offset, old, new, durable }))
            }
            Step::Store(op) => {
                self.unflushed =
                    !matches!(op, Op::Flush) && (self.unflushed || through && op.changes());
                self.acquire(Step::Store(op))
            }
            Step::Complete(completion) if self.unflushed && completion.status == GOOD => {
                self.unflushed = false;
                self.waiting = Some(Box::new(Waiting::Flush(completion)));
                Step::Store(Op::Flush)
            }
            Step::Complete(completion) => self.complete(completion),
            step => step,
        }
    }

    /// The command ends with CHECK CONDITION: what that means for others (SAM-5 §5.9.1, SPC-4
    /// §7.5.8).
    #[cold]
    fn fail(&mut self, mut completion: Completion) -> Step {
        if let Machine::Protected(protected) = &self.machine
            && let Some(failed) = protected.failed_check()
        {
            self.machine = Machine::Unfit(failed);
        }
        let Some(mapped) = &self.mapped else { return self.end(completion) };
        let (unit, nexus_state) = (&mapped.unit, &mapped.nexus_state);
        {
            let mut set = unit.task_set().lock();
            if self.naca {
                // RFC 7143 §4.2.2.3.4 c.
                completion.fence = true;
                set.fault(unit, nexus_state);
            } else if self.passes_aca {
                set.clear_fault(unit, Some(nexus_state));
            }
        }
        let victims = match (unit.modes().current().control.queue_error, unit.sharing()) {
            (QueueError::Continue, _) => return self.end(completion),
            (QueueError::AbortTaskSet, Sharing::AllNexuses) => Victims::Everybody,
            (QueueError::AbortTaskSet, Sharing::EachNexus) | (QueueError::AbortNexus, _) => {
                Victims::OwnNexus
            }
        };
        self.release();
        self.waiting = Some(Box::new(Waiting::Abort(completion)));
        Step::Abort { victims }
    }

    #[inline]
    fn end(&mut self, completion: Completion) -> Step {
        if let Machine::Persistent(persistent) = &self.machine {
            self.changed_reservations = persistent.has_changed();
        }
        if !matches!(self.machine, Machine::Unfit(_)) {
            self.machine = Machine::Done;
        }
        self.release();
        Step::Complete(completion)
    }

    /// The pump has given what was not asked for.
    #[cold]
    fn broken(&mut self) -> Step {
        self.end(Fault::from(sense::INTERNAL).complete(Format::Fixed))
    }

    #[inline]
    fn release(&mut self) {
        self.release_hold();
        if let Some(mapped) = &self.mapped {
            self.place.leave(&mapped.unit, &mapped.nexus_state);
        }
    }

    #[inline]
    fn release_hold(&mut self) {
        if let Some(mapped) = self.there.as_ref().or(self.mapped.as_ref()) {
            self.hold.release(&mapped.unit, &mapped.nexus_state);
        }
    }

    /// The task has ended while the store works for it. Until it is dropped, after that work, no
    /// other command begins to read or change the medium that this work may change.
    #[cold]
    pub fn outlast(&mut self) {
        if let Some(mapped) = self.there.as_ref().or(self.mapped.as_ref()) {
            self.hold.outlast(&mapped.unit);
        }
    }

    /// A device has answered a task that had ended ([`Task::outlast`]): what others have to hear of
    /// that, they hear.
    #[cold]
    pub fn answered_late(&self, answer: &Answer) {
        if let (Machine::Passing(passing), Some(mapped)) = (&self.machine, &self.mapped) {
            passing.answered_late(&mapped.unit, answer);
        }
    }

    /// The task has ended, and nobody waits any longer for the store's work for it: until it is
    /// dropped, other commands that would wait for that work are told BUSY. It has no place in the
    /// task set any more. True if that fences a unit that was not fenced before.
    #[cold]
    pub fn fence(&mut self) -> bool {
        if let Some(mapped) = &self.mapped {
            self.place.leave(&mapped.unit, &mapped.nexus_state);
        }
        let mapped = self.there.as_ref().or(self.mapped.as_ref());
        mapped.is_some_and(|mapped| self.hold.fence(&mapped.unit))
    }

    /// The same for a task that came with [`Step::Spawn`], if that is a copy that was cancelled and
    /// ends with its next step. None: it goes on, so nobody has to wait for its end.
    #[cold]
    pub fn fence_cancelled(&mut self) -> Option<bool> {
        match &self.machine {
            Machine::Copy(copy) if copy.is_cancelled() => Some(self.fence()),
            _ => None,
        }
    }

    /// The task had ended when its [`Step::Keep`] was done: its change is in force if it was kept.
    /// What others have to do for it is an Abort or a Spawn; any other step is for nobody.
    #[cold]
    pub fn kept_late(&mut self, result: Result<(), KeepFailed>) -> Step {
        let Some(mapped) = &self.mapped else { return self.broken() };
        match self.machine.kept_late(mapped, result) {
            Ok(step) => step,
            Err(fault) => Step::Complete(mapped.unit.fault(fault)),
        }
    }

    /// What its [`Step::Store`] is for.
    #[must_use]
    #[inline]
    pub fn store(&self) -> Option<&Arc<dyn Store>> {
        self.place().map(|unit| unit.store())
    }

    /// The unit that its [`Step::Store`] is for.
    #[must_use]
    #[inline]
    pub fn place(&self) -> Option<&Arc<LogicalUnit>> {
        let mapped = self.there.as_ref().or(self.mapped.as_ref());
        mapped.map(|mapped| &mapped.unit)
    }

    /// Whether it has ended, and has changed what is reserved of its unit, or who is registered.
    #[must_use]
    pub const fn has_changed_reservations(&self) -> bool {
        self.changed_reservations
    }

    /// The check of protection information that has ended it, if one has.
    #[must_use]
    pub const fn failed_check(&self) -> Option<FailedCheck> {
        match &self.machine {
            Machine::Unfit(failed) => Some(*failed),
            _ => None,
        }
    }

    /// The logical unit that the command addresses; None for a LUN that is not mapped.
    #[must_use]
    pub fn unit(&self) -> Option<&Arc<LogicalUnit>> {
        self.mapped.as_ref().map(|mapped| &mapped.unit)
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if let Some(mapped) = &self.mapped {
            self.machine.abandon(&mapped.unit);
        }
        self.release();
    }
}

#[inline]
fn started_by(mapped: &Mapped, started: Result<Started, Fault>) -> Started {
    match started {
        Ok(started) => started,
        Err(fault) => (Machine::Done, Step::Complete(mapped.unit.fault(fault))),
    }
}

/// NACA of the CONTROL byte (SAM-5 §5.2), which an unknown command may have elsewhere.
const NACA: u8 = 0x04;

#[inline]
fn asks_for_aca(unit: &LogicalUnit, request: &Request) -> bool {
    let cdb = CdbView::new(&request.cdb);
    cdb.control() & NACA != 0 && unit.commands().knows_control(cdb.opcode())
}

fn is_preempt_and_abort(request: &Request) -> bool {
    let cdb = CdbView::new(&request.cdb);
    cdb.opcode() == Opcode::PERSISTENT_RESERVE_OUT
        && cdb.service_action() == persistent::PREEMPT_AND_ABORT
}
