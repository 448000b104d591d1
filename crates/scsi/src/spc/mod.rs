// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Primary commands (SPC-4 §6).

pub(crate) mod alua;
pub(crate) mod buffer;
pub(crate) mod diagnostic;
pub(crate) mod identification;
pub(crate) mod inquiry;
pub(crate) mod log;
pub(crate) mod misc;
pub(crate) mod mode;
pub(crate) mod mode_select;
pub(crate) mod modes;
pub(crate) mod parameters;
pub(crate) mod persistent;
pub(crate) mod rsoc;
pub(crate) mod timestamp;

#[cfg(test)]
mod tests;
