// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The limits of this crate, each with its reason.

use std::time::Duration;

/// Without a session for so long, new operations end with BUSY: as long as hosts wait for a command
/// before they give it up.
pub(crate) const BUSY_AFTER: Duration = Duration::from_secs(30);

/// A question for the size is waited for so long: people wait for the answer.
pub(crate) const LOOK_MAX: Duration = Duration::from_secs(10);

/// The last flush and the logout may take so long, as with the files of a stop.
pub(crate) const CLOSE_MAX: Duration = Duration::from_secs(30);

/// And so long without a session: many who stop a daemon kill it after 10 s.
pub(crate) const CLOSE_LOST_MAX: Duration = Duration::from_secs(5);

/// Gateways in a row: more is hardly meant, and what a circle that is being closed looks like.
pub(crate) const GATEWAYS_MAX: usize = 8;

/// Room for a list of VPD pages, or for that of gateways, bytes: all pages that there may be, and
/// more than GATEWAYS_MAX of the latter.
pub(crate) const PAGE_BYTES: u16 = 4 + 256;

/// Room for an answer to GET LBA STATUS, bytes: a header of 8, and 16 for the one run that counts.
pub(crate) const STATUS_BYTES: u32 = 8 + 16;

/// Sizes of stores are multiples of it, bytes.
pub(crate) const BLOCK_MIN: u64 = 512;

/// Who waits for the end of what is under way looks so often.
pub(crate) const SETTLE_LOOK: Duration = Duration::from_millis(50);
