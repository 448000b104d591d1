// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Block commands (SBC-3 §5).

pub(crate) mod capacity;
pub(crate) mod clear;
pub(crate) mod compare;
pub(crate) mod media;
pub(crate) mod rw;
pub(crate) mod same;
pub(crate) mod start_stop;
pub(crate) mod status;
pub(crate) mod sync;
pub(crate) mod unmap;
pub(crate) mod verify;
pub(crate) mod wipe;
pub(crate) mod write_verify;

#[cfg(test)]
mod tests;
