// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Standard INQUIRY data (SPC-4 §6.6.2).

use super::field::get_u8;
use super::field::get_u16;
use super::field::put;

/// Length of the data as written here, bytes: up to the end of the reserved part that most hosts
/// read.
pub const STANDARD_LEN: usize = 96;
/// ADDITIONAL LENGTH: what follows byte 4.
const ADDITIONAL_LEN: u8 = 91;
const _: () = assert!(STANDARD_LEN == ADDITIONAL_LEN as usize + 5);
/// Version descriptors that fit.
pub const VERSION_DESCRIPTORS_MAX: usize = 8;

/// PERIPHERAL DEVICE TYPE of a direct access block device.
pub const TYPE_DISK: u8 = 0x00;
/// PERIPHERAL DEVICE TYPE of a CD or DVD drive.
pub const TYPE_OPTICAL: u8 = 0x05;
/// PERIPHERAL DEVICE TYPE of a well known logical unit.
pub const TYPE_WELL_KNOWN: u8 = 0x1e;
/// Byte 0 for a LUN that no device can ever be at: qualifier 011b, type 1Fh.
pub const NOT_SUPPORTED: u8 = 0x7f;
/// VERSION: SPC-4.
pub const VERSION_SPC_4: u8 = 0x06;

/// Version descriptor of SAM-5.
pub const SAM_5: u16 = 0x00a0;
/// Version descriptor of SPC-4.
pub const SPC_4: u16 = 0x0460;
/// Version descriptor of SBC-3.
pub const SBC_3: u16 = 0x04c0;
/// Version descriptor of MMC-6.
pub const MMC_6: u16 = 0x04e0;
/// Version descriptor of iSCSI.
pub const ISCSI: u16 = 0x0960;

/// TPGS: who changes asymmetric access states (SPC-4 §6.6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[expect(clippy::exhaustive_enums)] // two bits
pub enum PortGroups {
    /// There are none.
    None = 0,
    /// The device server alone.
    Implicit = 1,
    /// SET TARGET PORT GROUPS alone.
    Explicit = 2,
    /// Both.
    Both = 3,
}

impl PortGroups {
    const fn of(byte: u8) -> Self {
        match byte >> 4 & 3 {
            0 => Self::None,
            1 => Self::Implicit,
            2 => Self::Explicit,
            _ => Self::Both,
        }
    }
}

/// Standard INQUIRY data of a unit with command queuing, hierarchical LUNs and nothing optional.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standard {
    /// Byte 0: PERIPHERAL QUALIFIER and PERIPHERAL DEVICE TYPE.
    pub peripheral: u8,
    /// VERSION.
    pub version: u8,
    /// T10 VENDOR IDENTIFICATION, blank padded.
    pub vendor: [u8; 8],
    /// PRODUCT IDENTIFICATION, blank padded.
    pub product: [u8; 16],
    /// PRODUCT REVISION LEVEL, blank padded.
    pub revision: [u8; 4],
    /// NORMACA: NACA is understood.
    pub normal_aca: bool,
    /// TPGS.
    pub port_groups: PortGroups,
    /// 3PC: third-party copies.
    pub third_party_copy: bool,
    /// PROTECT: the unit can be formatted with protection information.
    pub protect: bool,
    /// Version descriptors, zero where there is none.
    pub version_descriptors: [u16; VERSION_DESCRIPTORS_MAX],
}

impl Standard {
    /// Writes the data.
    #[must_use]
    pub fn emit(&self) -> [u8; STANDARD_LEN] {
        let mut bytes = [0; STANDARD_LEN];
        bytes[0] = self.peripheral;
        bytes[1] = if self.peripheral == TYPE_OPTICAL { 0x80 } else { 0 }; // RMB
        bytes[2] = self.version;
        // HISUP, response data format 2.
        bytes[3] = 0x12 | if self.normal_aca { 0x20 } else { 0 };
        bytes[4] = ADDITIONAL_LEN;
        bytes[5] = (self.port_groups as u8) << 4 | u8::from(self.third_party_copy) << 3;
        bytes[5] |= u8::from(self.protect);
        bytes[7] = 0x02; // CMDQUE
        put(&mut bytes, 8, self.vendor);
        put(&mut bytes, 16, self.product);
        put(&mut bytes, 32, self.revision);
        for (descriptor, at) in self.version_descriptors.iter().zip((58..).step_by(2)) {
            put(&mut bytes, at, descriptor.to_be_bytes());
        }
        bytes
    }

    /// Reads the data; fields beyond the end are zero. None if it is shorter than 36 bytes.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut version_descriptors = [0; VERSION_DESCRIPTORS_MAX];
        for (descriptor, at) in version_descriptors.iter_mut().zip((58..).step_by(2)) {
            *descriptor = get_u16(bytes, at).unwrap_or(0);
        }
        Some(Self {
            peripheral: get_u8(bytes, 0)?,
            version: get_u8(bytes, 2)?,
            vendor: super::field::get(bytes, 8)?,
            product: super::field::get(bytes, 16)?,
            revision: super::field::get(bytes, 32)?,
            normal_aca: get_u8(bytes, 3)? & 0x20 != 0,
            port_groups: PortGroups::of(get_u8(bytes, 5)?),
            third_party_copy: get_u8(bytes, 5)? & 0x08 != 0,
            protect: get_u8(bytes, 5)? & 0x01 != 0,
            version_descriptors,
        })
    }
}

/// `text` as a field of SPC-4 §4.3.1: printable ASCII, left aligned, blank padded, cut to fit.
/// Other characters become `?`.
#[must_use]
pub fn ascii<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [b' '; N];
    for (to, from) in field.iter_mut().zip(text.chars()) {
        *to = u8::try_from(from).ok().filter(|byte| (0x20..0x7f).contains(byte)).unwrap_or(b'?');
    }
    field
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn vector() {
        let standard = Standard {
            peripheral: TYPE_DISK,
            version: VERSION_SPC_4,
            vendor: ascii("LUNWIRE"),
            product: ascii("disk"),
            revision: ascii("0.1.0"),
            normal_aca: true,
            port_groups: PortGroups::Implicit,
            third_party_copy: true,
            protect: true,
            version_descriptors: [SAM_5, SPC_4, SBC_3, ISCSI, 0, 0, 0, 0],
        };
        let bytes = standard.emit();
        assert_eq!(bytes[..8], [0, 0, 6, 0x32, 91, 0x19, 0, 2]);
        assert_eq!(&bytes[8..36], b"LUNWIRE disk            0.1.");
        assert_eq!(bytes[58..68], [0x00, 0xa0, 0x04, 0x60, 0x04, 0xc0, 0x09, 0x60, 0, 0]);
    }

    #[test]
    fn text_is_printable_ascii() {
        assert_eq!(&ascii::<6>("a\u{e9}\n"), b"a??   ");
    }

    proptest! {
        #[test]
        fn round_trip(
            peripheral: u8, version: u8, vendor: [u8; 8], product: [u8; 16], revision: [u8; 4],
            version_descriptors: [u16; 8], port_groups in 0_u8..4, third_party_copy: bool,
            normal_aca: bool, protect: bool,
        ) {
            let standard = Standard {
                peripheral,
                version,
                vendor,
                product,
                revision,
                normal_aca,
                port_groups: PortGroups::of(port_groups << 4),
                third_party_copy,
                protect,
                version_descriptors,
            };
            prop_assert_eq!(Standard::parse(&standard.emit()), Some(standard));
        }

        #[test]
        fn parse_is_total(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = Standard::parse(&bytes);
        }
    }
}
