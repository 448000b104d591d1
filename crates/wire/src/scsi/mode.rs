// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mode parameters (SPC-4 §7.5, SBC-3 §6.5): headers and block descriptors.

mod cdb;
mod page;

pub use cdb::Select;
pub use cdb::Sense;
pub use page::CONTROL_EXTENSION;
pub use page::Caching;
pub use page::Control;
pub use page::ControlExtension;
pub use page::QueueError;
pub use page::informational_exceptions;

use super::cdb::CdbView;
use super::field::get_u8;
use super::field::get_u16;
use super::field::get_u32;
use super::field::get_u64;
use super::field::put;
use super::opcode::Opcode;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// Caching.
pub const CACHING: u8 = 0x08;
/// Control.
pub const CONTROL: u8 = 0x0a;
/// Informational exceptions control.
pub const INFORMATIONAL_EXCEPTIONS: u8 = 0x1c;
/// Every page.
pub const ALL_PAGES: u8 = 0x3f;
/// Every subpage.
pub const ALL_SUBPAGES: u8 = 0xff;

/// PC: which values of the pages are asked for (SPC-4 §6.11.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // two bits
pub enum PageControl {
    /// In force now.
    Current,
    /// A mask of what MODE SELECT can change.
    Changeable,
    /// After power on without saved values.
    Default,
    /// Kept over power off.
    Saved,
}

impl PageControl {
    /// From the low two bits of `code`.
    #[must_use]
    pub const fn from_code(code: u8) -> Self {
        match code & 3 {
            0 => Self::Current,
            1 => Self::Changeable,
            2 => Self::Default,
            _ => Self::Saved,
        }
    }
}

/// Which header MODE SENSE writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // two commands
pub enum Header {
    /// MODE SENSE(6): 4 bytes.
    Six,
    /// MODE SENSE(10): 8 bytes.
    Ten,
}

impl Header {
    /// Of a MODE SENSE or MODE SELECT; all but the short ones have the long header.
    const fn of(opcode: Opcode) -> Self {
        match opcode {
            Opcode::MODE_SENSE_6 | Opcode::MODE_SELECT_6 => Self::Six,
            _ => Self::Ten,
        }
    }

    /// Bytes of it: where a block descriptor begins.
    #[must_use]
    pub const fn size(self) -> u16 {
        match self {
            Self::Six => 4,
            Self::Ten => 8,
        }
    }

    /// Where DEVICE-SPECIFIC PARAMETER stands.
    const fn specific_at(self) -> usize {
        match self {
            Self::Six => 2,
            Self::Ten => 3,
        }
    }

    /// ALLOCATION LENGTH, PARAMETER LIST LENGTH.
    fn length_in(self, cdb: &CdbView<'_>) -> u16 {
        match self {
            Self::Six => u16::from(cdb.byte(4)),
            Self::Ten => cdb.u16_at(7),
        }
    }
}

/// DEVICE-SPECIFIC PARAMETER of a block device (SBC-3 §6.5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceSpecific {
    /// WP: the medium is write protected.
    pub write_protected: bool,
    /// DPOFUA: DPO and FUA are understood.
    pub dpo_fua: bool,
}

impl DeviceSpecific {
    const WP: u8 = 0x80;
    const DPOFUA: u8 = 0x10;

    /// Reads it out of mode data; None if it is cut before.
    #[must_use]
    pub fn parse(header: Header, data: &[u8]) -> Option<Self> {
        let flags = get_u8(data, header.specific_at())?;
        Some(Self { write_protected: flags & Self::WP != 0, dpo_fua: flags & Self::DPOFUA != 0 })
    }

    const fn flags(self) -> u8 {
        (if self.write_protected { Self::WP } else { 0 })
            | if self.dpo_fua { Self::DPOFUA } else { 0 }
    }

    /// Takes the place of what mode data says; nothing is done if it is cut before.
    pub fn put_into(self, header: Header, data: &mut [u8]) {
        if let Some(flags) = data.get_mut(header.specific_at()) {
            *flags = *flags & !(Self::WP | Self::DPOFUA) | self.flags();
        }
    }
}

/// Mode parameter block descriptor of a block device (SBC-3 §6.5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // the two forms of LONGLBA
pub enum BlockDescriptor {
    /// 8 bytes.
    Short {
        /// Blocks; FFFFFFFFh if there are more.
        blocks: u32,
        /// Bytes in a block, 24 bits.
        length: u32,
    },
    /// 16 bytes, LONGLBA = 1.
    Long {
        /// Blocks.
        blocks: u64,
        /// Bytes in a block.
        length: u32,
    },
}

impl BlockDescriptor {
    /// Where LOGICAL BLOCK LENGTH stands.
    #[must_use]
    pub const fn length_at(&self) -> u16 {
        match self {
            Self::Short { .. } => 5,
            Self::Long { .. } => 12,
        }
    }

    /// The same number of blocks as now: the field says nothing (SBC-3 §6.5.3).
    #[must_use]
    pub const fn keeps_blocks(&self) -> bool {
        match *self {
            Self::Short { blocks, .. } => blocks == 0 || blocks == u32::MAX,
            Self::Long { blocks, .. } => blocks == 0 || blocks == u64::MAX,
        }
    }

    fn emit(self) -> Vec<u8> {
        match self {
            Self::Short { blocks, length } => {
                let mut bytes = vec![0; 8];
                put(&mut bytes, 0, blocks.to_be_bytes());
                put(&mut bytes, 4, (length & 0x00ff_ffff).to_be_bytes());
                bytes
            }
            Self::Long { blocks, length } => {
                let mut bytes = vec![0; 16];
                put(&mut bytes, 0, blocks.to_be_bytes());
                put(&mut bytes, 12, length.to_be_bytes());
                bytes
            }
        }
    }
}

/// Writes mode data: header, block descriptor, pages. MODE DATA LENGTH is that of the whole,
/// whatever is cut off later.
#[must_use]
pub fn emit(
    header: Header,
    specific: DeviceSpecific,
    descriptor: Option<BlockDescriptor>,
    pages: &[u8],
) -> Vec<u8> {
    let descriptor_bytes = descriptor.map(BlockDescriptor::emit).unwrap_or_default();
    let flags = specific.flags();
    let descriptor_len = u8::try_from(descriptor_bytes.len()).unwrap_or(0);
    let rest = descriptor_bytes.len() + pages.len();
    let mut bytes = match header {
        Header::Six => {
            vec![u8::try_from(rest + 3).unwrap_or(u8::MAX), 0, flags, descriptor_len]
        }
        Header::Ten => {
            let [high, low] = u16::try_from(rest + 6).unwrap_or(u16::MAX).to_be_bytes();
            let long = matches!(descriptor, Some(BlockDescriptor::Long { .. }));
            vec![high, low, 0, flags, u8::from(long), 0, 0, descriptor_len]
        }
    };
    bytes.extend_from_slice(&descriptor_bytes);
    bytes.extend_from_slice(pages);
    bytes
}

/// Mode data taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModeData<'a> {
    /// Bits of the header.
    pub specific: DeviceSpecific,
    /// The first block descriptor.
    pub descriptor: Option<BlockDescriptor>,
    /// All pages, as much as is both announced and there.
    pub pages: &'a [u8],
}

impl<'a> ModeData<'a> {
    /// Reads mode data; None if the header or the descriptors it announces are cut.
    #[must_use]
    pub fn parse(header: Header, bytes: &'a [u8]) -> Option<Self> {
        let specific = DeviceSpecific::parse(header, bytes)?;
        let is_long = header == Header::Ten && get_u8(bytes, 4)? & 1 == 1;
        let pages = pages_place(header, bytes)?;
        let descriptors = bytes.get(usize::from(header.size())..pages.start)?;
        let pages = bytes.get(pages)?;
        let descriptor = if descriptors.is_empty() {
            None
        } else if is_long {
            let (blocks, length) = (get_u64(descriptors, 0)?, get_u32(descriptors, 12)?);
            Some(BlockDescriptor::Long { blocks, length })
        } else {
            let (blocks, length) = (get_u32(descriptors, 0)?, get_u32(descriptors, 4)?);
            Some(BlockDescriptor::Short { blocks, length: length & 0x00ff_ffff })
        };
        Some(Self { specific, descriptor, pages })
    }

    /// Reads the parameter list of MODE SELECT, whose length fields say nothing; None if the header
    /// or the descriptors it announces are cut, or there is more than one descriptor.
    #[must_use]
    pub fn parse_list(header: Header, bytes: &'a [u8]) -> Option<Self> {
        let (length, long, descriptor_len) = match header {
            Header::Six => (4, false, u16::from(get_u8(bytes, 3)?)),
            Header::Ten => (8, get_u8(bytes, 4)? & 1 == 1, get_u16(bytes, 6)?),
        };
        let (descriptors, pages) =
            bytes.get(length..)?.split_at_checked(usize::from(descriptor_len))?;
        let descriptor = match (descriptor_len, long) {
            (0, _) => None,
            (8, false) => Some(BlockDescriptor::Short {
                blocks: get_u32(descriptors, 0)?,
                length: get_u32(descriptors, 4)? & 0x00ff_ffff,
            }),
            (16, true) => Some(BlockDescriptor::Long {
                blocks: get_u64(descriptors, 0)?,
                length: get_u32(descriptors, 12)?,
            }),
            _ => return None,
        };
        let specific = DeviceSpecific { write_protected: false, dpo_fua: false };
        Some(Self { specific, descriptor, pages })
    }

    /// The page `code` (without subpages), with its two header bytes.
    #[must_use]
    pub fn page(&self, code: u8) -> Option<&'a [u8]> {
        self.pages.get(page_place(self.pages, code)?)
    }
}

/// The page `code` (without subpages) of mode data, with its two header bytes, to be changed.
#[must_use]
pub fn page_mut(header: Header, bytes: &mut [u8], code: u8) -> Option<&mut [u8]> {
    let place = pages_place(header, bytes)?;
    let pages = bytes.get_mut(place)?;
    let place = page_place(pages, code)?;
    pages.get_mut(place)
}

/// Where the pages of mode data are, as far as they are both announced and there; None if what is
/// before them is cut.
fn pages_place(header: Header, bytes: &[u8]) -> Option<Range<usize>> {
    let (total, descriptor_len) = match header {
        Header::Six => (1 + usize::from(get_u8(bytes, 0)?), u16::from(get_u8(bytes, 3)?)),
        Header::Ten => (2 + usize::from(get_u16(bytes, 0)?), get_u16(bytes, 6)?),
    };
    let (start, end) =
        (usize::from(header.size()) + usize::from(descriptor_len), total.min(bytes.len()));
    (start <= end).then_some(start..end)
}

/// Where the page `code` (without subpages) is in `pages`, with its header.
fn page_place(pages: &[u8], code: u8) -> Option<Range<usize>> {
    let mut at = 0;
    loop {
        let rest = pages.get(at..)?;
        let header = PageHeader::parse(rest)?;
        let length = usize::from(header.header) + usize::from(header.length);
        if length > rest.len() {
            return None;
        }
        if header.header == 2 && header.code == code {
            return Some(at..at + length);
        }
        at += length;
    }
}

/// PAGE CODE and SUBPAGE CODE of the page at the front; None if they are cut.
#[must_use]
pub fn page_code(bytes: &[u8]) -> Option<(u8, u8)> {
    let subpage = if has_subpage(bytes) { get_u8(bytes, 1)? } else { 0 };
    Some((get_u8(bytes, 0)? & 0x3f, subpage))
}

/// SPF: the page has a subpage code.
fn has_subpage(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|first| first & 0x40 != 0)
}

/// The header of a mode page, in either format (SPC-4 §7.5.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageHeader {
    /// PAGE CODE.
    pub code: u8,
    /// SUBPAGE CODE; zero in the format without.
    pub subpage: u8,
    /// PAGE LENGTH: bytes behind the header.
    pub length: u16,
    /// Bytes of the header: 2, or 4 in the SPF format.
    pub header: u8,
}

impl PageHeader {
    /// Reads the header of a page; None if it is cut.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (code, subpage) = page_code(bytes)?;
        if has_subpage(bytes) {
            Some(Self { code, subpage, length: get_u16(bytes, 2)?, header: 4 })
        } else {
            let length = u16::from(get_u8(bytes, 1)?);
            Some(Self { code, subpage, length, header: 2 })
        }
    }

    /// Where PAGE LENGTH stands.
    #[must_use]
    pub const fn length_at(&self) -> u16 {
        if self.header == 4 { 2 } else { 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OPEN: DeviceSpecific = DeviceSpecific { write_protected: false, dpo_fua: true };

    #[test]
    fn mode_sense_6_vector() {
        let pages = Caching { write_cache: true }.emit();
        let short = BlockDescriptor::Short { blocks: 0x800, length: 512 };
        let bytes = emit(Header::Six, OPEN, Some(short), &pages);
        assert_eq!(bytes[..15], [31, 0, 0x10, 8, 0, 0, 8, 0, 0, 0, 2, 0, 0x08, 18, 0x04]);
        assert_eq!(bytes.len(), 32);
    }

    #[test]
    fn mode_sense_10_vector() {
        let long = BlockDescriptor::Long { blocks: 1 << 32, length: 4096 };
        let specific = DeviceSpecific { write_protected: true, dpo_fua: true };
        let control = Control {
            task_set_each_nexus: true,
            descriptor_sense: true,
            queue_error: QueueError::AbortNexus,
            software_write_protect: true,
            task_aborted_status: true,
            application_tag_owner: true,
            protection_unchecked_if_zero: true,
        };
        let pages = control.emit();
        assert_eq!(Control::parse(&pages), Some(control));
        for (at, bit) in [(2, 0x40), (3, 0x02)] {
            let mut reserved = pages;
            reserved[at] ^= bit;
            assert_eq!(Control::parse(&reserved), None, "a reserved value in {at}");
        }
        let off = Control::default().emit();
        let differs: Vec<u8> = pages.iter().zip(off).map(|(on, off)| on ^ off).collect();
        assert_eq!(differs[2..], Control::PROTECTED_CHANGEABLE[2..]);
        let bytes = emit(Header::Ten, specific, Some(long), &pages);
        assert_eq!(bytes[..8], [0, 34, 0, 0x90, 1, 0, 0, 16]);
        assert_eq!(bytes[8..24], [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0]);
        assert_eq!(bytes[24..], [0x0a, 10, 0x2c, 0x16, 8, 0xc0, 0, 0, 0xff, 0xff, 0, 0]);
    }

    #[test]
    fn control_extension_vector() {
        let page = ControlExtension { scsi_precedence: true, sense_len_max: 28 };
        let bytes = page.emit();
        assert_eq!(bytes[..8], [0x4a, 1, 0, 28, 2, 0, 28, 0]);
        assert_eq!(ControlExtension::parse(&bytes), Some(page));
        let header = PageHeader { code: 0x0a, subpage: 1, length: 28, header: 4 };
        assert_eq!(PageHeader::parse(&bytes), Some(header));
    }

    #[test]
    fn pages_are_found_by_code() {
        let mut pages = Vec::new();
        pages.extend_from_slice(&Caching { write_cache: true }.emit());
        pages.extend_from_slice(&[0x4a, 1, 0, 2, 9, 9]);
        pages.extend_from_slice(&informational_exceptions());
        let bytes = emit(Header::Six, OPEN, None, &pages);
        let data = ModeData::parse(Header::Six, &bytes).expect("whole");
        assert_eq!(data.page(INFORMATIONAL_EXCEPTIONS), Some(&informational_exceptions()[..]));
        assert_eq!(
            data.page(CACHING).and_then(Caching::parse).map(|page| page.write_cache),
            Some(true)
        );
        assert_eq!(data.page(CONTROL), None);
        let descriptor = BlockDescriptor::Short { blocks: 1, length: 512 };
        for header in [Header::Six, Header::Ten] {
            let mut bytes = emit(header, OPEN, Some(descriptor), &pages);
            pages[2] &= !0x04;
            Caching { write_cache: false }
                .put_into(page_mut(header, &mut bytes, CACHING).expect("it is there"));
            assert_eq!(bytes, emit(header, OPEN, Some(descriptor), &pages));
            pages[2] |= 0x04;
            assert_eq!(page_mut(header, &mut bytes, CONTROL), None);
            let size = usize::from(header.size()) + 8 + pages.len();
            let cut = size - pages.len() + 19;
            assert_eq!(page_mut(header, &mut bytes[..cut], CACHING), None, "it is cut");
        }
    }

    #[test]
    fn what_is_said_of_the_device_can_be_replaced() {
        for header in [Header::Six, Header::Ten] {
            for (write_protected, dpo_fua) in [(true, true), (true, false), (false, true)] {
                let specific = DeviceSpecific { write_protected, dpo_fua };
                let mut bytes = emit(header, OPEN, None, &[]);
                specific.put_into(header, &mut bytes);
                assert_eq!(bytes, emit(header, specific, None, &[]));
            }
            OPEN.put_into(header, &mut []);
        }
    }

    proptest! {
        #[test]
        fn round_trip(
            six: bool, write_protected: bool, dpo_fua: bool, long in 0_u8..3, blocks: u64,
            length in 0_u32..1 << 24, pages in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let header = if six { Header::Six } else { Header::Ten };
            let descriptor = match long {
                0 => None,
                1 if !six => Some(BlockDescriptor::Long { blocks, length }),
                _ => {
                    let blocks = u32::try_from(blocks >> 32).expect("32 bits");
                    Some(BlockDescriptor::Short { blocks, length })
                }
            };
            let specific = DeviceSpecific { write_protected, dpo_fua };
            let bytes = emit(header, specific, descriptor, &pages);
            let data = ModeData::parse(header, &bytes).expect("whole");
            prop_assert_eq!(data, ModeData { specific, descriptor, pages: &pages });
        }

        #[test]
        fn parse_is_total(
            bytes in proptest::collection::vec(any::<u8>(), 0..80), code in 0_u8..64,
        ) {
            for header in [Header::Six, Header::Ten] {
                let _ = ModeData::parse_list(header, &bytes);
                let page = ModeData::parse(header, &bytes).and_then(|data| data.page(code));
                let mut same = bytes.clone();
                prop_assert_eq!(page_mut(header, &mut same, code).map(|page| &*page), page);
            }
        }
    }
}
