// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The limits of this crate, each with its reason.

/// Bytes that are copied before their CRC is taken: source and destination of a step fit the
/// nearest cache (32 KiB and more) together with the tables.
pub(crate) const COPY_STEP: usize = 4096;
