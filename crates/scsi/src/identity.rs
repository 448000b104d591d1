// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who a logical unit is.

use alloc::format;
use alloc::string::String;
use alloc::string::ToString;
use alloc::vec::Vec;

/// Who the logical unit is: stable for the life of the volume and equal through all paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// T10 VENDOR IDENTIFICATION; eight characters are shown.
    pub vendor: String,
    /// PRODUCT IDENTIFICATION; sixteen characters are shown.
    pub product: String,
    /// PRODUCT REVISION LEVEL; four characters are shown.
    pub revision: String,
    /// Unit serial number, ASCII.
    pub serial: String,
    /// NAA designator, 16 bytes (type 6) or 8 (type 3).
    pub naa: Vec<u8>,
    /// What the unit holds, where that is gone with its target and its names are not: another
    /// number each time that it begins anew. It names nothing.
    pub content: Option<u64>,
}

/// Of the four characters that are shown, none cuts a number off.
const REVISION: &str =
    concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"));

impl Identity {
    /// The identity of the disk with this number, which follows it for its life. The NAA is locally
    /// assigned (type 3), for types 5 and 6 need a company id of the IEEE.
    #[must_use]
    pub fn of(number: u64, vendor: &str, product: &str) -> Self {
        Self {
            vendor: vendor.to_string(),
            product: product.to_string(),
            revision: REVISION.to_string(),
            serial: format!("{number:016x}"),
            naa: (0x3 << 60 | number >> 4).to_be_bytes().to_vec(),
            content: None,
        }
    }

    /// The identity that a serial number says: every disk with this one is the same to hosts,
    /// whatever its target and its daemon.
    #[must_use]
    pub fn of_serial(serial: &str, vendor: &str, product: &str) -> Self {
        let mut identity = Self::of(Self::number_of(b"serial", serial.as_bytes()), vendor, product);
        identity.serial = serial.to_string();
        identity
    }

    /// The identity of what is at a place, whatever that is: [`Identity::of`] with
    /// [`Identity::number_of_place`].
    #[must_use]
    pub fn derive(target_name: &str, lun: u16, vendor: &str, product: &str) -> Self {
        Self::of(Self::number_of_place(target_name, lun), vendor, product)
    }

    /// The number that follows from the names alone.
    #[must_use]
    pub fn number_of_place(target_name: &str, lun: u16) -> u64 {
        Self::number_of(target_name.as_bytes(), &lun.to_be_bytes())
    }

    /// A number that follows from facts, and is another one for other facts. Never to be changed:
    /// hosts know their disks by it.
    #[must_use]
    pub fn number_of(place: &[u8], facts: &[u8]) -> u64 {
        // FNV-1a, then mixed so that each input bit reaches each output bit.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for byte in place.iter().chain(&[0]).chain(facts) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        hash = (hash ^ hash >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
        hash = (hash ^ hash >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        hash ^ hash >> 33
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_changes() {
        let identity = Identity::derive("iqn.2026-01.org.example:disk", 3, "LUNWIRE", "disk");
        assert_eq!(identity.serial, "dff4accea03d273a");
        assert_eq!(identity.naa.len(), 8);
        assert_eq!(identity.naa[0] >> 4, 3);
        assert_eq!(
            identity,
            Identity::derive("iqn.2026-01.org.example:disk", 3, "LUNWIRE", "disk")
        );
    }

    #[test]
    fn a_serial_number_says_all() {
        let identity = Identity::of_serial("A1", "LUNWIRE", "disk");
        assert_eq!((&*identity.serial, identity.naa[0] >> 4), ("A1", 3));
        assert_eq!(identity.naa, [0x3c, 0xfc, 0x26, 0x0a, 0xf5, 0x6e, 0x5f, 0x22]);
        assert_ne!(identity.naa, Identity::of_serial("A2", "LUNWIRE", "disk").naa);
    }

    #[test]
    fn units_and_targets_differ() {
        let serials: alloc::collections::BTreeSet<_> = ["iqn.a", "iqn.b"]
            .iter()
            .flat_map(|name| (0..1000).map(move |lun| Identity::derive(name, lun, "v", "p").serial))
            .collect();
        assert_eq!(serials.len(), 2000);
    }
}
