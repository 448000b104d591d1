// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Block commands (SBC-3 §5).

pub(crate) mod capacity;
pub(crate) mod rw;
pub(crate) mod same;
pub(crate) mod start_stop;
pub(crate) mod sync;
pub(crate) mod unmap;
pub(crate) mod verify;

#[cfg(test)]
mod tests;
