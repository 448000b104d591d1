// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Logical block provisioning thresholds (SBC-3 §4.7.3.7): mode page 1C/02, log page 0C, and the
//! switch in the read-write error recovery page.

use super::field::get_u8;
use super::field::get_u32;
use super::field::put;
use super::mode::INFORMATIONAL_EXCEPTIONS;

/// Read-write error recovery mode page.
pub const ERROR_RECOVERY: u8 = 0x01;
/// Subpage of the logical block provisioning mode page, of page 1C.
pub const THRESHOLDS: u8 = 0x02;
/// Logical block provisioning log page.
pub const LOG_PAGE: u8 = 0x0c;

/// Read-write error recovery mode page (SBC-3 §6.5.7), 12 bytes: nothing is retried, for the store
/// does what can be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorRecovery {
    /// LBPERE: a threshold that is reached is told.
    pub threshold_notices: bool,
}

impl ErrorRecovery {
    /// Writes the page.
    #[must_use]
    pub fn emit(&self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[0] = ERROR_RECOVERY;
        bytes[1] = 10;
        bytes[7] = if self.threshold_notices { 0x80 } else { 0 };
        bytes
    }

    /// Reads the page; None if short.
    #[must_use]
    pub fn parse(page: &[u8]) -> Option<Self> {
        Some(Self { threshold_notices: get_u8(page, 7)? & 0x80 != 0 })
    }
}

/// Logical block provisioning mode page (SBC-3 §6.5.8), 24 bytes, with one threshold: a soft one on
/// what is available, which is armed as it falls. Every nexus is told (SITUA = 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// THRESHOLD COUNT, in threshold sets: reached when less is available. None: no threshold is
    /// enabled.
    pub available: Option<u32>,
}

impl Thresholds {
    /// Writes the page.
    #[must_use]
    pub fn emit(&self) -> [u8; 24] {
        const ENABLED: u8 = 0x80;
        const AVAILABLE: u8 = 0x01;
        let mut bytes = [0; 24];
        bytes[0] = 0x40 | INFORMATIONAL_EXCEPTIONS;
        bytes[1] = THRESHOLDS;
        bytes[3] = 20;
        bytes[17] = AVAILABLE;
        if let Some(count) = self.available {
            bytes[16] = ENABLED;
            put(&mut bytes, 20, count.to_be_bytes());
        }
        bytes
    }

    /// Reads the page; None if short.
    #[must_use]
    pub fn parse(page: &[u8]) -> Option<Self> {
        let enabled = get_u8(page, 16)? & 0x80 != 0;
        let count = get_u32(page, 20)?;
        Some(Self { available: enabled.then_some(count) })
    }
}

/// Parameter of the log page: resources in threshold sets (SBC-3 §6.4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resources {
    /// RESOURCE COUNT.
    pub count: u32,
    /// SCOPE: true if they may not be for this unit alone.
    pub shared: bool,
}

/// Parameter code of what is available.
pub const AVAILABLE_RESOURCES: u16 = 0x0001;
/// Parameter code of what is used.
pub const USED_RESOURCES: u16 = 0x0002;

impl Resources {
    /// Writes the value of the parameter.
    #[must_use]
    pub fn emit(&self) -> [u8; 8] {
        let mut bytes = [0; 8];
        put(&mut bytes, 0, self.count.to_be_bytes());
        bytes[4] = if self.shared { 2 } else { 1 };
        bytes
    }

    /// Reads the value; None if short.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<Self> {
        Some(Self { count: get_u32(value, 0)?, shared: get_u8(value, 4)? & 3 == 2 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn vectors() {
        let page = Thresholds { available: Some(0x1234) }.emit();
        assert_eq!(page[..4], [0x5c, 2, 0, 20]);
        assert_eq!(page[16..], [0x80, 1, 0, 0, 0, 0, 0x12, 0x34]);
        assert_eq!(
            ErrorRecovery { threshold_notices: true }.emit()[..8],
            [1, 10, 0, 0, 0, 0, 0, 0x80]
        );
        let value = Resources { count: 7, shared: true }.emit();
        assert_eq!(value, [0, 0, 0, 7, 2, 0, 0, 0]);
    }

    proptest! {
        #[test]
        fn round_trip(count: u32, enabled: bool, shared: bool) {
            let page = Thresholds { available: enabled.then_some(count) };
            prop_assert_eq!(Thresholds::parse(&page.emit()), Some(page));
            let recovery = ErrorRecovery { threshold_notices: enabled };
            prop_assert_eq!(ErrorRecovery::parse(&recovery.emit()), Some(recovery));
            let resources = Resources { count, shared };
            prop_assert_eq!(Resources::parse(&resources.emit()), Some(resources));
        }

        #[test]
        fn parse_is_total(bytes in proptest::collection::vec(any::<u8>(), 0..30)) {
            let _ = (Thresholds::parse(&bytes), ErrorRecovery::parse(&bytes));
            let _ = Resources::parse(&bytes);
        }
    }
}
