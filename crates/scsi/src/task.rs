// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One command under way (SAM-5 §5): request, steps, completion.
//!
//! ```text
//! start ──> ReceiveDataOut ──> Store ──> Complete      every arrow is a resume; each step may be left out,
//!                               └──┘                   Store may come many times
//! ```

use crate::Nexus;
use crate::lun::LogicalUnit;
use crate::sbc::rw::Read;
use crate::sbc::rw::Write;
use crate::sbc::same::Same;
use crate::sbc::sync::Sync;
use crate::sbc::unmap::Unmap;
use crate::sbc::verify::Verify;
use crate::sense;
use crate::sense::Fault;
use alloc::sync::Arc;
use alloc::vec::Vec;
use buf::Slice;
use store::Op;
use store::Outcome;
use wire::iscsi::Attribute;
use wire::iscsi::Cdb;
use wire::iscsi::LunField;

/// Status GOOD (SAM-5 §5.3).
pub(crate) const GOOD: u8 = 0x00;
/// Status CHECK CONDITION (SAM-5 §5.3).
pub(crate) const CHECK_CONDITION: u8 = 0x02;

/// One command as SAM gives it (SAM-5 §5.4.2).
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The LUN bytes as they came.
    pub lun: LunField,
    /// The CDB as it came.
    pub cdb: Cdb,
    /// Task attribute.
    pub attribute: Attribute,
    /// Bytes that the initiator means to send.
    pub expected_out: u32,
    /// Bytes that the initiator has room for.
    pub expected_in: u32,
}

/// What must happen next.
#[derive(Debug)]
#[allow(clippy::exhaustive_enums)] // the pump must know every one
pub enum Step {
    /// Receive Data-Out: resume with [`Input::DataOut`] when `length` bytes are there. Never more than
    /// [`Request::expected_out`].
    ReceiveDataOut {
        /// Bytes, from offset 0.
        length: u32,
    },
    /// Run on the store of [`Task::unit`]; resume with [`Input::Store`].
    Store(Op),
    /// Over.
    Complete(Completion),
}

/// How a command ended.
#[derive(Debug)]
pub struct Completion {
    /// SAM status code.
    pub status: u8,
    /// Sense data; only with CHECK CONDITION.
    pub sense: Vec<u8>,
    /// Data for the initiator, of which the first [`Request::expected_in`] bytes travel. May be shorter than
    /// `presented` where the initiator has no room for more.
    pub data_in: Option<Slice>,
    /// Bytes that the command had for, or asked of, the initiator: the base of the residual (RFC 7143 §11.4.5).
    pub presented: u64,
}

/// What a step gave.
#[derive(Debug)]
#[allow(clippy::exhaustive_enums)] // the pump must know every one
pub enum Input {
    /// The bytes that were asked for.
    DataOut(Slice),
    /// How the store operation ended.
    Store(Outcome),
}

/// A command under way.
#[derive(Debug)]
pub struct Task {
    unit: Option<Arc<LogicalUnit>>,
    machine: Machine,
}

/// The commands that take more than one step.
#[derive(Debug)]
pub(crate) enum Machine {
    /// Complete.
    Done,
    Read(Read),
    Write(Write),
    Verify(Verify),
    Same(Same),
    Sync(Sync),
    Unmap(Unmap),
}

/// What a handler makes of a command.
pub(crate) type Started = (Machine, Step);

impl Task {
    pub(crate) fn new(
        unit: Option<&Arc<LogicalUnit>>,
        started: Result<Started, Fault>,
    ) -> (Self, Step) {
        let (machine, step) = match started {
            Ok(started) => started,
            Err(fault) => (Machine::Done, Step::Complete(fault.complete())),
        };
        (Self { unit: unit.cloned(), machine }, step)
    }

    /// Takes what the last step gave. An input that was not asked for, or after the end, completes the command with
    /// INTERNAL TARGET FAILURE.
    pub fn resume(&mut self, _nexus: &Nexus, input: Input) -> Step {
        let result = match &self.unit {
            Some(unit) => self.machine.resume(unit, input),
            None => Err(sense::INTERNAL.into()),
        };
        let step = result.unwrap_or_else(|fault| Step::Complete(fault.complete()));
        if matches!(step, Step::Complete(_)) {
            self.machine = Machine::Done;
        }
        step
    }

    /// The logical unit that the command addresses; None for a LUN that is not mapped.
    #[must_use]
    pub const fn unit(&self) -> Option<&Arc<LogicalUnit>> {
        self.unit.as_ref()
    }
}

impl Machine {
    fn resume(&mut self, unit: &LogicalUnit, input: Input) -> Result<Step, Fault> {
        match self {
            Self::Done => Err(sense::INTERNAL.into()),
            Self::Read(read) => read.resume(unit, input),
            Self::Write(write) => write.resume(unit, input),
            Self::Verify(verify) => verify.resume(unit, input),
            Self::Same(same) => same.resume(unit, input),
            Self::Sync(sync) => sync.resume(unit, input),
            Self::Unmap(unmap) => unmap.resume(unit, input),
        }
    }
}

/// A command that ends at once with GOOD.
pub(crate) const fn good(presented: u64) -> Started {
    (Machine::Done, Step::Complete(sense::good(presented)))
}

/// A command that ends at once with parameter data, cut to its allocation length. The cut is no residual
/// (RFC 7143 §11.4.5.3).
pub(crate) fn data(mut bytes: Vec<u8>, allocation: u32) -> Started {
    bytes.truncate(usize::try_from(allocation).unwrap_or(usize::MAX));
    let presented = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    let data_in = (!bytes.is_empty()).then(|| Slice::from(bytes));
    let completion = Completion { status: GOOD, sense: Vec::new(), data_in, presented };
    (Machine::Done, Step::Complete(completion))
}

/// The first `length` bytes that were asked for as Data-Out.
pub(crate) fn data_out(input: Input, length: u32) -> Result<Slice, Fault> {
    let Input::DataOut(data) = input else { return Err(sense::INTERNAL.into()) };
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    data.part(0..length).ok_or_else(|| sense::INTERNAL.into())
}

/// The outcome of an operation whose first block is `lba`.
pub(crate) fn done(input: Input, lba: u64) -> Result<(), Fault> {
    match input {
        Input::Store(Outcome::Done) => Ok(()),
        Input::Store(Outcome::Failed(error)) => Err(sense::store_failed(error, lba).into()),
        Input::Store(Outcome::Data(_)) | Input::DataOut(_) => Err(sense::INTERNAL.into()),
    }
}

/// The `length` bytes of a read whose first block is `lba`.
pub(crate) fn data_in(input: Input, lba: u64, length: u32) -> Result<Slice, Fault> {
    match input {
        Input::Store(Outcome::Data(data)) if usize::try_from(length) == Ok(data.len()) => Ok(data),
        Input::Store(Outcome::Failed(error)) => Err(sense::store_failed(error, lba).into()),
        Input::Store(_) | Input::DataOut(_) => Err(sense::INTERNAL.into()),
    }
}
