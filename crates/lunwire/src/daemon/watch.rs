// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Looks from time to time whether files behind disks have grown, whether they are still there, and
//! what space is left for them.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use target::Target;

use super::periodic::Periodic;

/// Between two looks at the space that is left: a fast host writes some GB meanwhile.
const PERIOD: Duration = Duration::from_secs(5);

/// Looks at space between two looks at sizes: who grows a file has `lunwire lun rescan`.
const SIZES_EVERY: u32 = 6;

/// Looks until it is dropped.
pub(crate) fn start(target: Arc<Target>) -> Result<Periodic> {
    let mut turn = 0_u32;
    Periodic::start("watch", PERIOD, move || {
        // Sizes were just seen when it begins.
        if turn > 0 && turn.is_multiple_of(SIZES_EVERY) {
            // What grew is logged; what is smaller is told to who asks.
            let _ = target.rescan();
        }
        turn = turn.wrapping_add(1);
        target.note_usage();
        target.note_names();
        let _ = target.note_sizes();
    })
}
