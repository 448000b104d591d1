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
}

impl Identity {
    /// An identity that follows from the names alone, so that it outlives restarts. The NAA is
    /// locally assigned (type 3), for types 5 and 6 need a company id of the IEEE.
    #[must_use]
    pub fn derive(target_name: &str, lun: u16, vendor: &str, product: &str) -> Self {
        let hash = stable_hash(target_name, lun);
        Self {
            vendor: vendor.to_string(),
            product: product.to_string(),
            revision: env!("CARGO_PKG_VERSION").to_string(),
            serial: format!("{hash:016x}"),
            naa: (0x3 << 60 | hash >> 4).to_be_bytes().to_vec(),
        }
    }
}

/// FNV-1a over name and number, then mixed so that each input bit reaches each output bit. Never to
/// be changed: hosts know their disks by it.
fn stable_hash(name: &str, lun: u16) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in name.bytes().chain([0]).chain(lun.to_be_bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash = (hash ^ hash >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ hash >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ hash >> 33
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
    fn units_and_targets_differ() {
        let serials: alloc::collections::BTreeSet<_> = ["iqn.a", "iqn.b"]
            .iter()
            .flat_map(|name| (0..1000).map(move |lun| Identity::derive(name, lun, "v", "p").serial))
            .collect();
        assert_eq!(serials.len(), 2000);
    }
}
