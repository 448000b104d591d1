// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands of CD and DVD drives (MMC-6 §6): one disc with one data track, which can be taken out.

pub(crate) mod medium;
pub(crate) mod mode;
pub(crate) mod read;
pub(crate) mod report;

#[cfg(test)]
mod tests;
