// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Vital product data pages (SPC-4 §7.8, SBC-3 §6.6).

use super::field::get_u8;
use super::field::get_u16;
use super::field::get_u32;
use super::field::get_u64;
use super::field::put;
use alloc::vec;
use alloc::vec::Vec;

/// Supported VPD pages.
pub const SUPPORTED_PAGES: u8 = 0x00;
/// Unit serial number.
pub const UNIT_SERIAL_NUMBER: u8 = 0x80;
/// Device identification.
pub const DEVICE_IDENTIFICATION: u8 = 0x83;
/// Extended INQUIRY data.
pub const EXTENDED_INQUIRY: u8 = 0x86;
/// Third-party copy.
pub const THIRD_PARTY_COPY: u8 = 0x8f;
/// Block limits.
pub const BLOCK_LIMITS: u8 = 0xb0;
/// Block device characteristics.
pub const BLOCK_DEVICE_CHARACTERISTICS: u8 = 0xb1;
/// Logical block provisioning.
pub const LOGICAL_BLOCK_PROVISIONING: u8 = 0xb2;

/// Vendor specific: numbers of the gateways through which a unit is served ([`gateways`]).
pub const GATEWAYS: u8 = 0xd7;

/// By what that page is known to be ours.
const GATEWAYS_MARK: [u8; 8] = *b"LUNWIRE1";

/// Content of the page of gateways, the nearest one first.
#[must_use]
pub fn emit_gateways(numbers: &[u64]) -> Vec<u8> {
    let numbers = numbers.iter().flat_map(|number| number.to_be_bytes());
    GATEWAYS_MARK.into_iter().chain(numbers).collect()
}

/// The same read; empty for what is none of ours.
#[must_use]
pub fn gateways(content: &[u8]) -> Vec<u64> {
    let numbers = content.strip_prefix(&GATEWAYS_MARK).unwrap_or_default();
    (0..numbers.len() / 8).filter_map(|at| get_u64(numbers, at * 8)).collect()
}

/// Bytes before the content.
pub const HEADER_LEN: usize = 4;
/// Content length of pages 86, B0 and B1.
const LONG_CONTENT_LEN: usize = 0x3c;

/// A page: header and content. `peripheral` is byte 0 of the standard INQUIRY data. Content beyond
/// 65535 bytes is cut.
#[must_use]
pub fn page(peripheral: u8, code: u8, content: &[u8]) -> Vec<u8> {
    let content = content.get(..usize::from(u16::MAX)).unwrap_or(content);
    let length = u16::try_from(content.len()).unwrap_or(u16::MAX).to_be_bytes();
    let mut bytes = Vec::with_capacity(HEADER_LEN + content.len());
    bytes.extend_from_slice(&[peripheral, code, length[0], length[1]]);
    bytes.extend_from_slice(content);
    bytes
}

/// The content of a page with code `code`, as much as is both announced and there.
#[must_use]
pub fn content(bytes: &[u8], code: u8) -> Option<&[u8]> {
    if get_u8(bytes, 1)? != code {
        return None;
    }
    let announced = usize::from(get_u16(bytes, 2)?);
    let rest = bytes.get(HEADER_LEN..)?;
    Some(rest.get(..announced).unwrap_or(rest))
}

/// What a designator names (SPC-4 §7.8.5.1, ASSOCIATION).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // two bits, one value reserved and refused by `parse`
pub enum Association {
    /// The logical unit.
    LogicalUnit,
    /// The target port of this nexus.
    TargetPort,
    /// The target device.
    TargetDevice,
}

/// Tells [`Designator::Content`] from what other vendors say in descriptors of their own.
pub const CONTENT_MARK: [u8; 8] = *b"LUNWIREC";

/// A designation descriptor of page 83 (SPC-4 §7.8.5).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Designator {
    /// T10 vendor ID based, ASCII: eight bytes of vendor, then text.
    T10Vendor(Vec<u8>),
    /// NAA of 8 or 16 bytes.
    Naa(Vec<u8>),
    /// EUI-64 based, 8, 12 or 16 bytes.
    Eui(Vec<u8>),
    /// Relative target port identifier.
    RelativeTargetPort(u16),
    /// Target port group.
    TargetPortGroup(u16),
    /// SCSI name string in UTF-8, written null terminated and padded to four bytes; PIV and
    /// protocol iSCSI are set where it names a port or a device.
    ScsiName {
        /// What it names.
        of: Association,
        /// The string without its null.
        name: Vec<u8>,
    },
    /// What the unit holds, by a number that is another one when it has begun anew, under the same
    /// names: vendor specific, [`CONTENT_MARK`] and the number.
    Content(u64),
    /// Any other descriptor, by its type.
    Unknown(u8),
}

impl Designator {
    /// Appends the descriptor; an identifier beyond 255 bytes is left out, for its length byte
    /// cannot say it.
    pub fn emit(&self, to: &mut Vec<u8>) {
        let port = |number: u16| {
            let [high, low] = number.to_be_bytes();
            vec![0, 0, high, low]
        };
        let (code_set, flags, value) = match self {
            Self::T10Vendor(text) => (0x02, 0x01, text.clone()),
            Self::Naa(naa) => (0x01, 0x03, naa.clone()),
            Self::Eui(eui) => (0x01, 0x02, eui.clone()),
            Self::RelativeTargetPort(number) => (0x51, 0x94, port(*number)),
            Self::TargetPortGroup(number) => (0x51, 0x95, port(*number)),
            Self::ScsiName { of, name } => {
                let (protocol, association) = match of {
                    Association::LogicalUnit => (0x00, 0x00),
                    Association::TargetPort => (0x50, 0x90),
                    Association::TargetDevice => (0x50, 0xa0),
                };
                let mut value = name.clone();
                value.resize((name.len() + 4) & !3, 0);
                (protocol | 0x03, association | 0x08, value)
            }
            Self::Content(number) => (0x01, 0x00, [CONTENT_MARK, number.to_be_bytes()].concat()),
            Self::Unknown(_) => return,
        };
        if let Ok(length) = u8::try_from(value.len()) {
            to.extend_from_slice(&[code_set, flags, 0, length]);
            to.extend_from_slice(&value);
        }
    }

    fn parse(head: [u8; 2], value: &[u8]) -> Self {
        let kind = head[1] & 0x0f;
        let association = match head[1] >> 4 & 3 {
            0 => Some(Association::LogicalUnit),
            1 => Some(Association::TargetPort),
            2 => Some(Association::TargetDevice),
            _ => None,
        };
        match (kind, association) {
            (0, Some(Association::LogicalUnit)) => {
                let number =
                    value.strip_prefix(&CONTENT_MARK).and_then(|rest| rest.try_into().ok());
                number
                    .map_or(Self::Unknown(kind), |number| Self::Content(u64::from_be_bytes(number)))
            }
            (1, Some(Association::LogicalUnit)) => Self::T10Vendor(value.to_vec()),
            (2, Some(Association::LogicalUnit)) => Self::Eui(value.to_vec()),
            (3, Some(Association::LogicalUnit)) => Self::Naa(value.to_vec()),
            (4, Some(Association::TargetPort)) => {
                get_u16(value, 2).map_or(Self::Unknown(kind), Self::RelativeTargetPort)
            }
            (5, Some(Association::TargetPort)) => {
                get_u16(value, 2).map_or(Self::Unknown(kind), Self::TargetPortGroup)
            }
            (8, Some(of)) => {
                let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
                Self::ScsiName { of, name: value.get(..end).unwrap_or_default().to_vec() }
            }
            _ => Self::Unknown(kind),
        }
    }
}

/// Whether no other unit in the world has this NAA (SPC-4 §7.8.6.6): not one of local assignment
/// (3h), and not a registered one (5h, 6h) without the number of a company, as tgtd's. Targets
/// count these from one.
#[must_use]
pub fn is_world_wide(naa: &[u8]) -> bool {
    match *naa {
        [a, b, c, d, ..] if matches!(a >> 4, 5 | 6) => {
            u32::from_be_bytes([a & 0x0f, b, c, d & 0xf0]) != 0
        }
        [first, ..] => first >> 4 != 3,
        [] => false,
    }
}

/// The designators of the content of page 83; ends at the first one that is cut.
#[must_use]
pub fn designators(content: &[u8]) -> Vec<Designator> {
    let mut list = Vec::new();
    let mut rest = content;
    while let Some([code_set, flags, _, length]) = super::field::get::<4>(rest, 0) {
        let Some((descriptor, after)) = rest.split_at_checked(4 + usize::from(length)) else {
            break;
        };
        list.push(Designator::parse([code_set, flags], descriptor.get(4..).unwrap_or_default()));
        rest = after;
    }
    list
}

/// Content of page 86 (SPC-4 §7.8.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtendedInquiry {
    /// SPT, GRD_CHK, APP_CHK and REF_CHK: the unit can be formatted with protection information of
    /// types 1, 2 and 3, all of whose fields are checked.
    pub protection: bool,
    /// V_SUP: a volatile cache is there.
    pub volatile_cache: bool,
    /// MAXIMUM SUPPORTED SENSE DATA LENGTH, bytes.
    pub sense_len_max: u8,
}

/// SPT = 111b, GRD_CHK, APP_CHK, REF_CHK.
const EVERY_PROTECTION: u8 = 0x3f;

impl ExtendedInquiry {
    /// Writes the content; HEADSUP, ORDSUP, SIMPSUP and LUICLR are set.
    #[must_use]
    pub fn emit(&self) -> [u8; LONG_CONTENT_LEN] {
        let mut bytes = [0; LONG_CONTENT_LEN];
        bytes[0] = if self.protection { EVERY_PROTECTION } else { 0 };
        bytes[1] = 0x07;
        bytes[2] = u8::from(self.volatile_cache);
        bytes[3] = 0x01;
        bytes[9] = self.sense_len_max;
        bytes
    }

    /// Reads the content; None if short.
    #[must_use]
    pub fn parse(content: &[u8]) -> Option<Self> {
        Some(Self {
            protection: get_u8(content, 0)? & EVERY_PROTECTION == EVERY_PROTECTION,
            volatile_cache: get_u8(content, 2)? & 1 != 0,
            sense_len_max: get_u8(content, 9)?,
        })
    }
}

/// Content of page B0 (SBC-3 §6.6.4). Lengths in blocks; zero is "not reported" but for UNMAP,
/// where it is "not supported".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockLimits {
    /// WSNZ: WRITE SAME of zero blocks is refused.
    pub write_same_non_zero: bool,
    /// MAXIMUM COMPARE AND WRITE LENGTH.
    pub compare_and_write_max: u8,
    /// OPTIMAL TRANSFER LENGTH GRANULARITY.
    pub transfer_granularity: u16,
    /// MAXIMUM TRANSFER LENGTH.
    pub transfer_max: u32,
    /// OPTIMAL TRANSFER LENGTH.
    pub transfer_optimal: u32,
    /// MAXIMUM PREFETCH LENGTH.
    pub prefetch_max: u32,
    /// MAXIMUM UNMAP LBA COUNT.
    pub unmap_blocks_max: u32,
    /// MAXIMUM UNMAP BLOCK DESCRIPTOR COUNT.
    pub unmap_descriptors_max: u32,
    /// OPTIMAL UNMAP GRANULARITY.
    pub unmap_granularity: u32,
    /// UNMAP GRANULARITY ALIGNMENT, 31 bits, if UGAVALID.
    pub unmap_alignment: Option<u32>,
    /// MAXIMUM WRITE SAME LENGTH.
    pub write_same_max: u64,
    /// MAXIMUM ATOMIC TRANSFER LENGTH.
    pub atomic_max: u32,
}

impl BlockLimits {
    /// Writes the content.
    #[must_use]
    pub fn emit(&self) -> [u8; LONG_CONTENT_LEN] {
        let mut bytes = [0; LONG_CONTENT_LEN];
        bytes[0] = u8::from(self.write_same_non_zero);
        bytes[1] = self.compare_and_write_max;
        put(&mut bytes, 2, self.transfer_granularity.to_be_bytes());
        put(&mut bytes, 4, self.transfer_max.to_be_bytes());
        put(&mut bytes, 8, self.transfer_optimal.to_be_bytes());
        put(&mut bytes, 12, self.prefetch_max.to_be_bytes());
        put(&mut bytes, 16, self.unmap_blocks_max.to_be_bytes());
        put(&mut bytes, 20, self.unmap_descriptors_max.to_be_bytes());
        put(&mut bytes, 24, self.unmap_granularity.to_be_bytes());
        if let Some(alignment) = self.unmap_alignment {
            put(&mut bytes, 28, (alignment | 1 << 31).to_be_bytes());
        }
        put(&mut bytes, 32, self.write_same_max.to_be_bytes());
        put(&mut bytes, 40, self.atomic_max.to_be_bytes());
        bytes
    }

    /// Reads the content; None if short of byte 43 of the page.
    #[must_use]
    pub fn parse(content: &[u8]) -> Option<Self> {
        let alignment = get_u32(content, 28)?;
        Some(Self {
            write_same_non_zero: get_u8(content, 0)? & 1 != 0,
            compare_and_write_max: get_u8(content, 1)?,
            transfer_granularity: get_u16(content, 2)?,
            transfer_max: get_u32(content, 4)?,
            transfer_optimal: get_u32(content, 8)?,
            prefetch_max: get_u32(content, 12)?,
            unmap_blocks_max: get_u32(content, 16)?,
            unmap_descriptors_max: get_u32(content, 20)?,
            unmap_granularity: get_u32(content, 24)?,
            unmap_alignment: (alignment >> 31 == 1).then_some(alignment & 0x7fff_ffff),
            write_same_max: get_u64(content, 32)?,
            // Pages of older standards end before it.
            atomic_max: get_u32(content, 40).unwrap_or(0),
        })
    }
}

/// Content of page B1 (SBC-3 §6.6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockDeviceCharacteristics {
    /// MEDIUM ROTATION RATE: 0 not reported, 1 non-rotating.
    pub rotation_rate: u16,
    /// WABEREQ = 01b: after SANITIZE with BLOCK ERASE blocks can be read; else it is not built.
    pub read_after_block_erase: bool,
}

impl BlockDeviceCharacteristics {
    /// Writes the content.
    #[must_use]
    pub fn emit(&self) -> [u8; LONG_CONTENT_LEN] {
        let mut bytes = [0; LONG_CONTENT_LEN];
        put(&mut bytes, 0, self.rotation_rate.to_be_bytes());
        bytes[3] = u8::from(self.read_after_block_erase) << 6;
        bytes
    }

    /// Reads the content; None if short.
    #[must_use]
    pub fn parse(content: &[u8]) -> Option<Self> {
        Some(Self {
            rotation_rate: get_u16(content, 0)?,
            read_after_block_erase: get_u8(content, 3)? >> 6 == 1,
        })
    }
}

/// Content of page B2 (SBC-3 §6.6.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogicalBlockProvisioning {
    /// LBPU: UNMAP works.
    pub unmap: bool,
    /// LBPWS and, when written, LBPWS10: the UNMAP bit of WRITE SAME(16) and (10) works.
    pub same: bool,
    /// LBPRZ = xx1b: unmapped blocks read as zero.
    pub zeros: bool,
    /// ANC_SUP = 001b: blocks can be anchored.
    pub anchors: bool,
    /// PROVISIONING TYPE: 0 not reported, 1 resource, 2 thin.
    pub provisioning_type: u8,
    /// THRESHOLD EXPONENT: blocks of a threshold set as a power of two; 0 without thresholds.
    pub threshold_exponent: u8,
}

impl LogicalBlockProvisioning {
    /// Writes the content.
    #[must_use]
    pub fn emit(&self) -> [u8; 4] {
        let unmap = if self.unmap { 0x80 } else { 0 };
        let same = if self.same { 0x60 } else { 0 };
        let zeros = if self.zeros { 0x04 } else { 0 };
        let anchors = if self.anchors { 0x02 } else { 0 };
        [self.threshold_exponent, unmap | same | zeros | anchors, self.provisioning_type & 7, 0]
    }

    /// Reads the content; None if short.
    #[must_use]
    pub fn parse(content: &[u8]) -> Option<Self> {
        let flags = get_u8(content, 1)?;
        Some(Self {
            threshold_exponent: get_u8(content, 0)?,
            unmap: flags & 0x80 != 0,
            same: flags & 0x40 != 0,
            // 010b is a pattern of the maker (SBC-4 §6.6.9).
            zeros: flags & 0x04 != 0,
            anchors: flags & 0x02 != 0,
            provisioning_type: get_u8(content, 2)? & 7,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn gateways_are_told_in_order_and_nothing_else_is_taken_for_them() {
        for numbers in [vec![], vec![1], vec![u64::MAX, 0, 7]] {
            assert_eq!(gateways(&emit_gateways(&numbers)), numbers);
        }
        assert_eq!(gateways(b"ANOTHER1\0\0\0\0\0\0\0\0"), []);
        assert_eq!(gateways(b"LUNWIRE1\0\0\0\0\0\0\0"), [], "it is cut");
    }

    #[test]
    fn names_without_a_company_are_none_of_the_world() {
        for naa in [[0x60, 0, 0, 0x10], [0x50, 0, 1, 0], [0x5f, 0, 0, 0], [0x20, 0, 0, 0]] {
            assert!(is_world_wide(&naa), "{naa:x?}");
        }
        for naa in [&[0x60, 0, 0, 0x0f][..], &[0x50, 0, 0, 0, 1], &[0x3f, 1, 1, 1], &[]] {
            assert!(!is_world_wide(naa), "{naa:x?}");
        }
    }

    #[test]
    fn header_vector() {
        let bytes = page(0, SUPPORTED_PAGES, &[0x00, 0x80, 0x83]);
        assert_eq!(bytes, [0, 0, 0, 3, 0x00, 0x80, 0x83]);
        assert_eq!(content(&bytes, SUPPORTED_PAGES), Some(&[0x00, 0x80, 0x83][..]));
        assert_eq!(content(&bytes, UNIT_SERIAL_NUMBER), None);
    }

    #[test]
    fn designator_vectors() {
        let mut bytes = Vec::new();
        Designator::Naa(vec![0x30, 1, 2, 3, 4, 5, 6, 7]).emit(&mut bytes);
        assert_eq!(bytes, [0x01, 0x03, 0, 8, 0x30, 1, 2, 3, 4, 5, 6, 7]);
        bytes.clear();
        Designator::RelativeTargetPort(1).emit(&mut bytes);
        assert_eq!(bytes, [0x51, 0x94, 0, 4, 0, 0, 0, 1]);
        bytes.clear();
        let name = b"iqn.a,t,0x0001".to_vec();
        Designator::ScsiName { of: Association::TargetPort, name }.emit(&mut bytes);
        assert_eq!(bytes[..4], [0x53, 0x98, 0, 16]);
        assert_eq!(&bytes[4..], b"iqn.a,t,0x0001\0\0");
        bytes.clear();
        let name = b"iqn.abcd".to_vec();
        Designator::ScsiName { of: Association::TargetDevice, name }.emit(&mut bytes);
        assert_eq!(bytes[..4], [0x53, 0xa8, 0, 12]);
        assert_eq!(&bytes[4..], b"iqn.abcd\0\0\0\0");
    }

    #[test]
    fn block_limits_vector() {
        let limits = BlockLimits {
            write_same_non_zero: true,
            transfer_granularity: 8,
            transfer_max: 0x2000,
            unmap_blocks_max: 0x10_0000,
            unmap_descriptors_max: 256,
            unmap_granularity: 8,
            unmap_alignment: Some(0),
            write_same_max: 0x8000,
            ..BlockLimits::default()
        };
        let bytes = page(0, BLOCK_LIMITS, &limits.emit());
        assert_eq!(bytes[..12], [0, 0xb0, 0, 0x3c, 1, 0, 0, 8, 0, 0, 0x20, 0]);
        assert_eq!(bytes[20..36], [0, 0x10, 0, 0, 0, 0, 1, 0, 0, 0, 0, 8, 0x80, 0, 0, 0]);
        assert_eq!(bytes[36..44], [0, 0, 0, 0, 0, 0, 0x80, 0]);
    }

    #[test]
    fn small_page_vectors() {
        let lbp = LogicalBlockProvisioning {
            unmap: true,
            same: true,
            zeros: true,
            anchors: true,
            provisioning_type: 2,
            threshold_exponent: 11,
        };
        assert_eq!(lbp.emit(), [11, 0xe6, 2, 0]);
        let pattern = LogicalBlockProvisioning::parse(&[0, 0x88, 2, 0]).expect("whole");
        assert!(pattern.unmap && !pattern.same && !pattern.zeros, "LBPRZ = 010b");
        assert_eq!(LogicalBlockProvisioning::parse(&lbp.emit()), Some(lbp));
        let flat = BlockDeviceCharacteristics { rotation_rate: 1, read_after_block_erase: true };
        assert_eq!(flat.emit()[..4], [0, 1, 0, 0x40]);
        assert_eq!(BlockDeviceCharacteristics::parse(&flat.emit()), Some(flat));
        let extended =
            ExtendedInquiry { protection: true, volatile_cache: true, sense_len_max: 252 };
        assert_eq!(extended.emit()[..10], [0x3f, 7, 1, 1, 0, 0, 0, 0, 0, 252]);
        assert_eq!(ExtendedInquiry::parse(&extended.emit()), Some(extended));
    }

    #[test]
    fn what_other_vendors_say_is_no_content() {
        let mut bytes = Vec::new();
        Designator::Content(7).emit(&mut bytes);
        assert_eq!(bytes, b"\x01\x00\x00\x10LUNWIREC\x00\x00\x00\x00\x00\x00\x00\x07");
        for (at, value) in [(1, 0x10), (4, b'X'), (3, 15)] {
            let mut other = bytes.clone();
            other[at] = value;
            assert_eq!(designators(&other).first(), Some(&Designator::Unknown(0)));
        }
    }

    fn any_designator() -> impl Strategy<Value = Designator> {
        let bytes = || proptest::collection::vec(1_u8..=255, 1..200);
        let of = prop_oneof![
            Just(Association::LogicalUnit),
            Just(Association::TargetPort),
            Just(Association::TargetDevice)
        ];
        prop_oneof![
            bytes().prop_map(Designator::T10Vendor),
            bytes().prop_map(Designator::Naa),
            bytes().prop_map(Designator::Eui),
            any::<u16>().prop_map(Designator::RelativeTargetPort),
            any::<u16>().prop_map(Designator::TargetPortGroup),
            any::<u64>().prop_map(Designator::Content),
            (of, bytes()).prop_map(|(of, name)| Designator::ScsiName { of, name }),
        ]
    }

    proptest! {
        #[test]
        fn designators_round_trip(list in proptest::collection::vec(any_designator(), 0..6)) {
            let mut bytes = Vec::new();
            list.iter().for_each(|designator| designator.emit(&mut bytes));
            prop_assert_eq!(designators(&bytes), list);
        }

        #[test]
        fn block_limits_round_trip(
            numbers: (bool, u8, u16, u32, u32, u32, u32), unmap: (u32, u32, u32),
            write_same_max: u64,
            unmap_alignment in proptest::option::of(0_u32..1 << 31),
        ) {
            let limits = BlockLimits {
                write_same_non_zero: numbers.0,
                compare_and_write_max: numbers.1,
                transfer_granularity: numbers.2,
                transfer_max: numbers.3,
                transfer_optimal: numbers.4,
                prefetch_max: numbers.5,
                unmap_blocks_max: unmap.0,
                unmap_descriptors_max: unmap.1,
                unmap_granularity: unmap.2,
                unmap_alignment,
                write_same_max,
                atomic_max: numbers.6,
            };
            prop_assert_eq!(BlockLimits::parse(&limits.emit()), Some(limits));
        }

        #[test]
        fn parsers_are_total(bytes in proptest::collection::vec(any::<u8>(), 0..80), code: u8) {
            let _ = (content(&bytes, code), designators(&bytes), BlockLimits::parse(&bytes));
            let _ = (ExtendedInquiry::parse(&bytes), LogicalBlockProvisioning::parse(&bytes));
            let _ = BlockDeviceCharacteristics::parse(&bytes);
        }
    }
}
