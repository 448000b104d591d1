// SPDX-License-Identifier: Apache-2.0 OR MIT
//! iSCSI PDUs (RFC 7143 §11) and text keys (§6).

mod number;
mod repr;

pub use number::*;
pub use repr::*;

/// Length of the basic header segment that all PDUs share, in bytes (RFC 7143 §11.2.1).
pub const BHS_LEN: usize = 48;
