// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who wants to hear when something ends that commands of a unit may wait for.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering;

/// A bit for each thread whose commands wait; the driver gives the bits their meaning.
///
/// Who begins to wait sets its bit and then tries once more; who ends a task does that and then
/// looks at the bits. One of the two sees the other, for both orders are sequentially consistent.
#[derive(Debug, Default)]
pub struct Watchers(AtomicU64);

impl Watchers {
    /// From now on `bit` is told; true if it was not before.
    pub fn add(&self, bit: u64) -> bool {
        self.0.fetch_or(bit, Ordering::SeqCst) & bit == 0
    }

    /// `bit` is not told any more.
    pub fn remove(&self, bit: u64) {
        self.0.fetch_and(!bit, Ordering::SeqCst);
    }

    /// Who is to be told.
    #[inline]
    pub fn bits(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}
