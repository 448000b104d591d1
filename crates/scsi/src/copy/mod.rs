// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The copy manager: EXTENDED COPY, ROD tokens, and what is known of copies (SPC-4 §5.16).
//!
//! Sources and destinations are looked for in the LUN map of the nexus that asks and nowhere else:
//! what a host cannot read it cannot have copied.

pub(crate) mod extended;
pub(crate) mod machine;
pub(crate) mod page;
pub(crate) mod records;
pub(crate) mod results;
#[cfg(test)]
mod tests;
pub(crate) mod tokens;
pub(crate) mod using;

use crate::sense;
use crate::sense::Fault;
use wire::scsi::copy::Malformed;

/// What is wrong with a list, as sense data.
fn refused(malformed: Malformed) -> Fault {
    match malformed {
        Malformed::Field(at) => sense::invalid_parameter(at).into(),
        _ => sense::PARAMETER_LIST_LENGTH.into(),
    }
}

/// A place in a list, for a field pointer.
fn place(at: usize) -> u16 {
    u16::try_from(at).unwrap_or(u16::MAX)
}
