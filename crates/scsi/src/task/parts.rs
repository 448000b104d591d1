// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What many commands begin and end with.

use super::CONDITION_MET;
use super::Completion;
use super::Input;
use super::Machine;
use super::Started;
use super::Step;
use crate::sense;
use crate::sense::Fault;
use alloc::vec::Vec;
use buf::Slice;
use store::Outcome;

/// A command that ends at once with GOOD.
pub(crate) const fn good(presented: u64) -> Started {
    (Machine::Done, Step::Complete(sense::good(presented)))
}

/// The end of a PRE-FETCH whose blocks are all there.
pub(crate) fn condition_met() -> Completion {
    Completion { status: CONDITION_MET, ..sense::good(0) }
}

/// A command that ends at once with parameter data, cut to its allocation length. The cut is no
/// residual (RFC 7143 §11.4.5.3).
pub(crate) fn data(mut bytes: Vec<u8>, allocation: u32) -> Started {
    bytes.truncate(usize::try_from(allocation).unwrap_or(usize::MAX));
    let presented = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    let data_in = (!bytes.is_empty()).then(|| Slice::from(bytes));
    let completion = Completion { data_in, ..sense::good(presented) };
    (Machine::Done, Step::Complete(completion))
}

/// The first `length` bytes that were asked for as Data-Out.
pub(crate) fn data_out(input: Input, length: u32) -> Result<Slice, Fault> {
    let Input::DataOut(data) = input else { return Err(sense::INTERNAL.into()) };
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    data.into_part(0..length).ok_or_else(|| sense::INTERNAL.into())
}

/// The outcome of an operation whose first block is `lba`.
pub(crate) fn done(input: Input, lba: u64) -> Result<(), Fault> {
    match input {
        Input::Store(Outcome::Done) => Ok(()),
        Input::Store(Outcome::Failed(error)) => Err(sense::store_failed(error, lba)),
        _ => Err(sense::INTERNAL.into()),
    }
}

/// The `length` bytes of a read whose first block is `lba`.
pub(crate) fn data_in(input: Input, lba: u64, length: u32) -> Result<Slice, Fault> {
    match input {
        Input::Store(Outcome::Data(data)) if usize::try_from(length) == Ok(data.len()) => Ok(data),
        Input::Store(Outcome::Failed(error)) => Err(sense::store_failed(error, lba)),
        _ => Err(sense::INTERNAL.into()),
    }
}
