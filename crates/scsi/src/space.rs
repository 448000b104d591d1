// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Space that a thin unit takes, and the warning when it runs out (SBC-3 §4.7.3.7).
//!
//! What a store in memory uses it says itself; what a file uses only the system knows, so the
//! driver notes it from time to time. A warning is due while less than the threshold is left and
//! less than the unit may still need: a file that has all its space needs none.

use crate::attention::Attention;
use crate::lun::LogicalUnit;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering;
use store::Usage;
use wire::scsi::provisioning::ErrorRecovery;
use wire::scsi::provisioning::Resources;
use wire::scsi::provisioning::Thresholds;

/// Bytes of a threshold set, as a shift: one MiB.
const SET_SHIFT: u32 = 20;

/// What is known of the space of a unit.
#[derive(Debug, Default)]
pub(crate) struct Space {
    /// Bytes: less than that must be left for a warning; zero: no warning.
    threshold: u64,
    /// The last usage that was noted.
    used: AtomicU64,
    available: AtomicU64,
    noted: AtomicBool,
    /// The threshold is reached, and every nexus was told.
    reached: AtomicBool,
}

impl LogicalUnit {
    /// The same with a warning to hosts when less than `bytes` are left for what the unit may still
    /// need (THIN PROVISIONING SOFT THRESHOLD REACHED). Nothing for zero.
    #[must_use]
    pub fn with_space_warning(mut self, bytes: u64) -> Self {
        self.space_mut().threshold = bytes;
        self
    }

    /// Takes notice of the space that the file behind the unit takes and that is left for it.
    pub fn note_usage(&self, usage: Usage) {
        let space = self.space();
        space.used.store(usage.used, Ordering::Relaxed);
        space.available.store(usage.available, Ordering::Relaxed);
        space.noted.store(true, Ordering::Release);
        let bytes = self.blocks() * u64::from(self.block());
        let needs = bytes.saturating_sub(usage.used);
        let reached =
            self.can_discard() && usage.available < space.threshold && usage.available < needs;
        if reached && !space.reached.swap(true, Ordering::Relaxed) {
            self.establish_everywhere(Attention::SoftThreshold);
        } else if !reached {
            space.reached.store(false, Ordering::Relaxed);
        }
    }

    /// True if space runs out: the threshold is reached.
    #[must_use]
    pub fn is_short_of_space(&self) -> bool {
        self.space().reached.load(Ordering::Relaxed)
    }

    /// The space that the unit takes and that is left for it, if that is known.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        let space = self.space();
        self.store().usage().or_else(|| {
            space.noted.load(Ordering::Acquire).then(|| Usage {
                used: space.used.load(Ordering::Relaxed),
                available: space.available.load(Ordering::Relaxed),
                shared: true,
            })
        })
    }

    /// THRESHOLD EXPONENT: blocks of a threshold set, as a power of two; zero where there are none.
    pub(crate) fn threshold_exponent(&self) -> u8 {
        let shift = SET_SHIFT.saturating_sub(self.block().trailing_zeros());
        if self.can_discard() { u8::try_from(shift).unwrap_or(0) } else { 0 }
    }

    /// The mode page of thresholds.
    pub(crate) fn thresholds(&self) -> Thresholds {
        let threshold = self.space().threshold;
        Thresholds { available: (threshold > 0).then(|| sets(threshold)) }
    }

    /// The read-write error recovery page.
    pub(crate) fn error_recovery(&self) -> ErrorRecovery {
        ErrorRecovery { threshold_notices: self.can_discard() && self.space().threshold > 0 }
    }

    /// What is available and what is used, as the log page has it.
    pub(crate) fn resources(&self) -> Option<[Resources; 2]> {
        let Usage { used, available, shared } = self.usage().filter(|_| self.can_discard())?;
        let available = Resources { count: sets(available), shared };
        Some([available, Resources { count: sets(used), shared: false }])
    }
}

/// `bytes` in threshold sets, rounded up.
fn sets(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(1 << SET_SHIFT)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Identity;
    use crate::Nexus;
    use crate::testing::Disk;
    use crate::testing::codes;
    use crate::testing::geometry;
    use crate::testing::names;
    use crate::testing::request;
    use crate::testing::run;
    use crate::testing::sense_of;
    use alloc::sync::Arc;
    use alloc::vec;
    use alloc::vec::Vec;
    use store::Geometry;
    use wire::scsi::Lun;
    use wire::scsi::Sense;

    const GIB: u64 = 1 << 30;

    /// A thin GiB, of which hosts hear when less than 100 MiB are left.
    fn thin(discard_granularity: Option<u32>) -> (Arc<LogicalUnit>, Nexus) {
        let geometry = Geometry { bytes: GIB, discard_granularity, ..geometry() };
        let identity = Identity::derive("iqn.a", 0, "v", "p");
        let unit = LogicalUnit::new(identity, Disk::new(geometry), 512).expect("a good disk");
        let unit = Arc::new(unit.with_space_warning(100 << 20));
        let nexus = Nexus::new(names("iqn.a,i,0x1"), vec![(0, Arc::clone(&unit))]);
        assert_eq!(ready(&nexus), (6, 0x29, 0));
        (unit, nexus)
    }

    fn ready(nexus: &Nexus) -> (u8, u8, u8) {
        codes(sense_of(&run(nexus, request(Lun::Unit(0), &[0; 6], &[], 0), &[])))
    }

    fn data(nexus: &Nexus, cdb: &[u8]) -> Result<Vec<u8>, Option<Sense>> {
        let completion = run(nexus, request(Lun::Unit(0), cdb, &[], 4096), &[]);
        match sense_of(&completion) {
            None => Ok(completion.data_in.expect("data").to_vec()),
            sense => Err(sense),
        }
    }

    const fn usage(used: u64, available: u64) -> Usage {
        Usage { used, available, shared: true }
    }

    #[test]
    fn a_warning_comes_once_each_time_that_space_runs_out() {
        let (unit, nexus) = thin(Some(4096));
        unit.note_usage(usage(0, GIB));
        assert_eq!(ready(&nexus), (0, 0, 0));
        unit.note_usage(usage(GIB / 2, 90 << 20));
        unit.note_usage(usage(GIB / 2, 80 << 20));
        assert!(unit.is_short_of_space());
        assert_eq!(ready(&nexus), (6, 0x38, 7));
        assert_eq!(ready(&nexus), (0, 0, 0));
        unit.note_usage(usage(GIB / 2, GIB));
        assert!(!unit.is_short_of_space());
        unit.note_usage(usage(GIB / 2, 1 << 20));
        assert_eq!(ready(&nexus), (6, 0x38, 7), "armed again");
        unit.note_usage(usage(GIB, GIB));
        unit.note_usage(usage(GIB, 1 << 20));
        assert_eq!(ready(&nexus), (0, 0, 0), "it has all its space");
    }

    #[test]
    fn hosts_can_read_thresholds_and_what_is_left() {
        let (unit, nexus) = thin(Some(4096));
        let log = [0x4d, 0, 0x4c, 0, 0, 0, 0, 1, 0, 0];
        assert!(data(&nexus, &log).is_err(), "nothing is known yet");
        unit.note_usage(usage(GIB / 2, 300 << 20));
        let page = data(&nexus, &log).expect("a page");
        assert_eq!(page[..4], [0x0c, 0, 0, 24]);
        assert_eq!(page[4..16], [0, 1, 3, 8, 0, 0, 1, 0x2c, 2, 0, 0, 0]);
        assert_eq!(page[16..28], [0, 2, 3, 8, 0, 0, 2, 0, 1, 0, 0, 0]);
        let pages = data(&nexus, &[0x4d, 0, 0x40, 0, 0, 0, 0, 1, 0, 0]).expect("a list");
        assert!(pages[4..].contains(&0x0c));
        let b2 = data(&nexus, &[0x12, 1, 0xb2, 0, 255, 0]).expect("a page");
        assert_eq!(b2[4], 11, "2048 blocks of 512 bytes are a MiB");
        let mode = data(&nexus, &[0x1a, 8, 0x1c, 2, 255, 0]).expect("a page");
        assert_eq!(mode[4..8], [0x5c, 2, 0, 20]);
        assert_eq!(mode[20..28], [0x80, 1, 0, 0, 0, 0, 0, 100]);
        let recovery = data(&nexus, &[0x1a, 8, 1, 0, 255, 0]).expect("a page");
        assert_eq!((recovery[4], recovery[11]), (1, 0x80));
        let changeable = data(&nexus, &[0x1a, 8, 0x5c, 2, 255, 0]).expect("a mask");
        assert!(changeable[8..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn without_thin_provisioning_there_are_no_thresholds() {
        let (unit, nexus) = thin(None);
        unit.note_usage(usage(0, 1));
        assert_eq!(ready(&nexus), (0, 0, 0));
        assert!(data(&nexus, &[0x1a, 8, 0x1c, 2, 255, 0]).is_err());
        assert!(data(&nexus, &[0x4d, 0, 0x4c, 0, 0, 0, 0, 1, 0, 0]).is_err());
        let b2 = data(&nexus, &[0x12, 1, 0xb2, 0, 255, 0]).expect("a page");
        assert_eq!(b2[4], 0);
        let recovery = data(&nexus, &[0x1a, 8, 1, 0, 255, 0]).expect("a page");
        assert_eq!(recovery[11], 0);
    }
}
