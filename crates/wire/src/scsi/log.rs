// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Log pages (SPC-4 §7.3): as LOG SENSE gives them and as LOG SELECT takes them.

use super::cdb::CdbView;
use super::copy::Malformed;
use super::field::get_u8;
use super::field::get_u16;
use super::field::get_u64;
use super::field::put;
use alloc::vec::Vec;

/// Supported log pages.
pub const SUPPORTED_PAGES: u8 = 0x00;
/// Write error counters.
pub const WRITE_ERRORS: u8 = 0x02;
/// Read error counters.
pub const READ_ERRORS: u8 = 0x03;
/// Verify error counters.
pub const VERIFY_ERRORS: u8 = 0x05;
/// Temperature.
pub const TEMPERATURE: u8 = 0x0d;
/// General statistics and performance.
pub const GENERAL_STATISTICS: u8 = 0x19;
/// Informational exceptions.
pub const INFORMATIONAL_EXCEPTIONS: u8 = 0x2f;
/// Every subpage.
pub const ALL_SUBPAGES: u8 = 0xff;

/// TOTAL UNCORRECTED ERRORS, parameter of the error counter pages (SPC-4 §7.3.7).
pub const UNCORRECTED: u16 = 0x0006;

/// Reads without data: the temperature is not known.
const TEMPERATURE_UNKNOWN: u8 = 0xff;

/// PC: which values of the parameters are meant (SPC-4 §6.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // two bits
pub enum Values {
    /// Thresholds in force.
    Threshold,
    /// What was counted.
    Cumulative,
    /// Thresholds by default.
    DefaultThreshold,
    /// Counts by default.
    DefaultCumulative,
}

impl Values {
    const fn from_code(code: u8) -> Self {
        match code & 3 {
            0 => Self::Threshold,
            1 => Self::Cumulative,
            2 => Self::DefaultThreshold,
            _ => Self::DefaultCumulative,
        }
    }
}

/// LOG SENSE (SPC-4 §6.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sense {
    /// PC.
    pub values: Values,
    /// PAGE CODE.
    pub code: u8,
    /// SUBPAGE CODE.
    pub subpage: u8,
    /// PARAMETER POINTER: those before are left out.
    pub pointer: u16,
    /// ALLOCATION LENGTH, bytes.
    pub allocation: u16,
}

impl Sense {
    /// Reads a CDB with this operation code.
    #[must_use]
    pub fn parse(cdb: &CdbView<'_>) -> Self {
        Self {
            values: Values::from_code(cdb.byte(2) >> 6),
            code: cdb.byte(2) & 0x3f,
            subpage: cdb.byte(3),
            pointer: cdb.u16_at(5),
            allocation: cdb.u16_at(7),
        }
    }
}

/// LOG SELECT (SPC-4 §6.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Select {
    /// PCR: counters begin anew.
    pub resets: bool,
    /// PC.
    pub values: Values,
    /// PAGE CODE.
    pub code: u8,
    /// SUBPAGE CODE.
    pub subpage: u8,
    /// PARAMETER LIST LENGTH, bytes.
    pub length: u16,
}

impl Select {
    /// Reads a CDB with this operation code.
    #[must_use]
    pub fn parse(cdb: &CdbView<'_>) -> Self {
        Self {
            resets: cdb.bit(1, 1),
            values: Values::from_code(cdb.byte(2) >> 6),
            code: cdb.byte(2) & 0x3f,
            subpage: cdb.byte(3),
            length: cdb.u16_at(7),
        }
    }
}

/// FORMAT AND LINKING of a parameter (SPC-4 §7.3.2.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // the two that are in use
pub enum Format {
    /// A counter that stops at its largest value: 00b.
    Counter,
    /// A binary list: 11b.
    List,
}

/// A log page with `content`; SPF is set where there is a subpage.
#[must_use]
pub fn page(code: u8, subpage: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(content.len()).unwrap_or(u16::MAX).to_be_bytes();
    let subpage_format = if subpage == 0 { 0 } else { 0x40 };
    let mut bytes = Vec::with_capacity(4 + content.len());
    bytes.extend_from_slice(&[code & 0x3f | subpage_format, subpage, high, low]);
    bytes.extend_from_slice(content);
    bytes
}

/// A log parameter.
#[must_use]
pub fn parameter(code: u16, format: Format, value: &[u8]) -> Vec<u8> {
    let [high, low] = code.to_be_bytes();
    let control = if format == Format::List { 0x03 } else { 0 };
    let length = u8::try_from(value.len()).unwrap_or(u8::MAX);
    let mut bytes = Vec::with_capacity(4 + value.len());
    bytes.extend_from_slice(&[high, low, control, length]);
    bytes.extend_from_slice(value);
    bytes
}

/// List of supported pages, or with subpages too (SPC-4 §7.3.17, §7.3.18), of which page 00h alone
/// has one.
#[must_use]
pub fn supported(pages: impl Iterator<Item = u8>, subpage: u8) -> Vec<u8> {
    let list: Vec<u8> = if subpage == ALL_SUBPAGES {
        pages.flat_map(|page| [page, 0]).chain([SUPPORTED_PAGES, ALL_SUBPAGES]).collect()
    } else {
        pages.collect()
    };
    page(SUPPORTED_PAGES, subpage, &list)
}

/// The value of a counter.
#[must_use]
pub fn counter(count: u64) -> Vec<u8> {
    count.to_be_bytes().to_vec()
}

/// Value of both parameters of the temperature page (SPC-4 §7.3.20): not known.
#[must_use]
pub fn temperature() -> Vec<u8> {
    Vec::from([0, TEMPERATURE_UNKNOWN])
}

/// Value of parameter 0000h of the informational exceptions page (SPC-4 §7.3.10): none, at a
/// temperature that is not known.
#[must_use]
pub fn no_exception() -> Vec<u8> {
    Vec::from([0, 0, TEMPERATURE_UNKNOWN, 0])
}

/// A log page of the parameter list of LOG SELECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page<'a> {
    /// PAGE CODE.
    pub code: u8,
    /// SUBPAGE CODE; zero without SPF.
    pub subpage: u8,
    /// Where it begins in the list.
    pub at: u16,
    content: &'a [u8],
}

/// A log parameter of such a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter<'a> {
    /// PARAMETER CODE.
    pub code: u16,
    /// Where it begins in the list.
    pub at: u16,
    /// PARAMETER VALUE.
    pub value: &'a [u8],
}

impl Parameter<'_> {
    /// The value as a counter; None if it has no byte, or more than eight.
    #[must_use]
    pub fn count(&self) -> Option<u64> {
        match self.value.len() {
            1..=8 => Some(self.value.iter().fold(0, |count, byte| count << 8 | u64::from(*byte))),
            _ => None,
        }
    }
}

/// Bytes before the content of a page, and before the value of a parameter.
const HEADER_LEN: usize = 4;

/// Takes the parameter list of LOG SELECT apart (SPC-4 §6.7): pages in ascending order.
///
/// # Errors
/// [`Malformed::Length`] for a page that is cut; [`Malformed::Field`] for one that is out of order,
/// or has a subpage without SPF.
pub fn parse_pages(list: &[u8]) -> Result<Vec<Page<'_>>, Malformed> {
    const SUBPAGE_FORMAT: u8 = 0x40;
    let mut pages: Vec<Page<'_>> = Vec::new();
    let mut at = 0;
    while at < list.len() {
        let (here, content) = item(list, at, |header| get_u16(header, 2).map(usize::from))?;
        let (Some(first), Some(subpage)) = (get_u8(list, at), get_u8(list, at + 1)) else {
            return Err(Malformed::Length);
        };
        if first & SUBPAGE_FORMAT == 0 && subpage != 0 {
            return Err(Malformed::Field(here + 1));
        }
        let page = Page { code: first & 0x3f, subpage, at: here, content };
        let order = |page: &Page<'_>| (page.code, page.subpage);
        if pages.last().is_some_and(|last| order(last) >= order(&page)) {
            return Err(Malformed::Field(here));
        }
        at += HEADER_LEN + content.len();
        pages.push(page);
    }
    Ok(pages)
}

impl<'a> Page<'a> {
    /// Its parameters, in ascending order.
    ///
    /// # Errors
    /// [`Malformed::Length`] for one that is cut; [`Malformed::Field`] for one out of order.
    pub fn parameters(&self) -> Result<Vec<Parameter<'a>>, Malformed> {
        let start = self.at + 4;
        let mut parameters: Vec<Parameter<'a>> = Vec::new();
        let mut at = 0;
        while at < self.content.len() {
            let (here, value) =
                item(self.content, at, |header| get_u8(header, 3).map(usize::from))?;
            let code = get_u16(self.content, at).ok_or(Malformed::Length)?;
            let here = start.checked_add(here).ok_or(Malformed::Length)?;
            if parameters.last().is_some_and(|last| last.code >= code) {
                return Err(Malformed::Field(here));
            }
            parameters.push(Parameter { code, at: here, value });
            at += HEADER_LEN + value.len();
        }
        Ok(parameters)
    }
}

/// What follows the header at `at`, and `at` as a field pointer.
fn item(
    bytes: &[u8],
    at: usize,
    length: impl Fn(&[u8]) -> Option<usize>,
) -> Result<(u16, &[u8]), Malformed> {
    let (header, rest) = bytes
        .get(at..)
        .and_then(|rest| rest.split_at_checked(HEADER_LEN))
        .ok_or(Malformed::Length)?;
    let content = length(header).and_then(|length| rest.get(..length)).ok_or(Malformed::Length)?;
    let here = u16::try_from(at).map_err(|_| Malformed::Length)?;
    Ok((here, content))
}

/// Parameter 0001h of the general statistics and performance page (SPC-4 §7.3.8), without the time
/// that commands took, which is not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GeneralStatistics {
    /// NUMBER OF READ COMMANDS.
    pub reads: u64,
    /// NUMBER OF WRITE COMMANDS.
    pub writes: u64,
    /// NUMBER OF LOGICAL BLOCKS RECEIVED.
    pub blocks_received: u64,
    /// NUMBER OF LOGICAL BLOCKS TRANSMITTED.
    pub blocks_transmitted: u64,
}

impl GeneralStatistics {
    /// Writes the value of the parameter.
    #[must_use]
    pub fn emit(&self) -> [u8; 64] {
        let mut bytes = [0; 64];
        let counts = [self.reads, self.writes, self.blocks_received, self.blocks_transmitted];
        for (count, at) in counts.into_iter().zip((0..).step_by(8)) {
            put(&mut bytes, at, count.to_be_bytes());
        }
        bytes
    }

    /// Reads the value; None if it is cut.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            reads: get_u64(bytes, 0)?,
            writes: get_u64(bytes, 8)?,
            blocks_received: get_u64(bytes, 16)?,
            blocks_transmitted: get_u64(bytes, 24)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iscsi::Cdb;
    use proptest::prelude::*;

    #[test]
    fn log_sense_and_select_vectors() {
        let cdb = Cdb::new(&[0x4d, 0, 0x59, 0xff, 0, 1, 2, 3, 4, 0]).expect("short");
        let expected = Sense {
            values: Values::Cumulative,
            code: GENERAL_STATISTICS,
            subpage: ALL_SUBPAGES,
            pointer: 0x102,
            allocation: 0x304,
        };
        assert_eq!(Sense::parse(&CdbView::new(&cdb)), expected);
        let cdb = Cdb::new(&[0x4c, 0x02, 0xc2, 0, 0, 0, 0, 0, 8, 0]).expect("short");
        let expected = Select {
            resets: true,
            values: Values::DefaultCumulative,
            code: WRITE_ERRORS,
            subpage: 0,
            length: 8,
        };
        assert_eq!(Select::parse(&CdbView::new(&cdb)), expected);
    }

    #[test]
    fn general_statistics() {
        let values =
            GeneralStatistics { reads: 1, writes: 2, blocks_received: 3, blocks_transmitted: 4 };
        let bytes = values.emit();
        assert_eq!((bytes[7], bytes[15], bytes[23], bytes[31]), (1, 2, 3, 4));
        assert_eq!(GeneralStatistics::parse(&bytes), Some(values));
        assert_eq!(GeneralStatistics::parse(&bytes[..31]), None);
    }

    #[test]
    fn lists_are_taken_apart() {
        let mut list = page(READ_ERRORS, 0, &parameter(6, Format::Counter, &counter(7)));
        let second: Vec<u8> = [(0, [1, 2]), (1, [0, 255])]
            .into_iter()
            .flat_map(|(code, value)| parameter(code, Format::List, &value))
            .collect();
        list.extend(page(TEMPERATURE, 0, &second));
        let pages = parse_pages(&list).unwrap();
        assert_eq!(
            pages.iter().map(|page| (page.code, page.at)).collect::<Vec<_>>(),
            [(READ_ERRORS, 0), (TEMPERATURE, 16)]
        );
        let first = pages[0].parameters().unwrap();
        assert_eq!((first.len(), first[0].code, first[0].at), (1, 6, 4));
        assert_eq!(first[0].count(), Some(7));
        let second = pages[1].parameters().unwrap();
        assert_eq!((second[1].code, second[1].at, second[1].value), (1, 26, &[0, 255][..]));
        for cut in 1..list.len() {
            let parsed = parse_pages(&list[..cut]);
            assert_eq!(parsed.is_ok(), cut == 16, "{cut}");
        }
        assert_eq!(parse_pages(&[]), Ok(Vec::new()));
    }

    #[test]
    fn lists_out_of_order_and_with_false_lengths_are_refused() {
        let list = [3, 0, 0, 0, 2, 0, 0, 0];
        assert_eq!(parse_pages(&list), Err(Malformed::Field(4)));
        assert_eq!(parse_pages(&[2, 0, 0, 0, 2, 0, 0, 0]), Err(Malformed::Field(4)));
        assert_eq!(parse_pages(&[2, 1, 0, 0]), Err(Malformed::Field(1)), "no SPF");
        let list = [2, 0, 0, 8, 0, 6, 0, 0, 0, 6, 0, 0];
        assert_eq!(parse_pages(&list).unwrap()[0].parameters(), Err(Malformed::Field(8)));
        let list = [2, 0, 0, 5, 0, 6, 0, 2, 1];
        assert_eq!(parse_pages(&list).unwrap()[0].parameters(), Err(Malformed::Length));
        let long = Parameter { code: 6, at: 4, value: &[0; 9] };
        assert_eq!(long.count(), None);
    }

    proptest! {
        #[test]
        fn lists_are_taken_apart_without_a_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..80),
        ) {
            if let Ok(pages) = parse_pages(&bytes) {
                for page in pages {
                    let _ = page.parameters();
                }
            }
        }
    }

    #[test]
    fn vectors() {
        assert_eq!(supported([0, 2].into_iter(), 0), [0, 0, 0, 2, 0, 2]);
        let all = supported([0, 2].into_iter(), ALL_SUBPAGES);
        assert_eq!(all, [0x40, 0xff, 0, 6, 0, 0, 2, 0, 0, 0xff]);
        let counter = parameter(6, Format::Counter, &[1, 2]);
        assert_eq!(counter, [0, 6, 0, 2, 1, 2]);
        assert_eq!(page(READ_ERRORS, 0, &counter), [3, 0, 0, 6, 0, 6, 0, 2, 1, 2]);
        assert_eq!(page(SUPPORTED_PAGES, 0xff, &[0, 0]), [0x40, 0xff, 0, 2, 0, 0]);
        assert_eq!(parameter(0, Format::List, &[0])[2], 3);
    }
}
