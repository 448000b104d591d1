// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parameter lists of FORMAT UNIT (SBC-3 §5.2) and SANITIZE (SBC-3 §5.20).

use super::copy::Malformed;
use super::field::get_u8;
use super::field::get_u16;
use super::field::get_u32;

/// SANITIZE: OVERWRITE.
pub const OVERWRITE: u16 = 0x01;
/// SANITIZE: BLOCK ERASE.
pub const BLOCK_ERASE: u16 = 0x02;
/// SANITIZE: EXIT FAILURE MODE.
pub const EXIT_FAILURE_MODE: u16 = 0x1f;

/// Bytes of an OVERWRITE list before the pattern.
pub const OVERWRITE_HEADER_LEN: usize = 4;
/// Bytes of a FORMAT UNIT short parameter list header.
pub const FORMAT_SHORT_LEN: usize = 4;
/// Bytes of a FORMAT UNIT long parameter list header.
pub const FORMAT_LONG_LEN: usize = 8;

/// Which header a FORMAT UNIT parameter list has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // LONGLIST
pub enum FormatHeader {
    /// LONGLIST = 0.
    Short,
    /// LONGLIST = 1.
    Long,
}

/// A FORMAT UNIT parameter list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format<'a> {
    /// PROTECTION FIELD USAGE.
    pub protection_usage: u8,
    /// IMMED.
    pub immediate: bool,
    /// P_I_INFORMATION and PROTECTION INTERVAL EXPONENT of a long header.
    pub protection_interval: u8,
    /// Bytes of the defect list.
    pub defects_len: u32,
    /// The initialization pattern: empty is the default.
    pub pattern: &'a [u8],
}

impl<'a> Format<'a> {
    /// Reads a list.
    ///
    /// # Errors
    /// If it is shorter than it says, or its bits contradict each other.
    pub fn parse(bytes: &'a [u8], header: FormatHeader) -> Result<Self, Malformed> {
        let (len, defects_len, interval) = match header {
            FormatHeader::Short => (FORMAT_SHORT_LEN, get_u16(bytes, 2).map(u32::from), Some(0)),
            FormatHeader::Long => (FORMAT_LONG_LEN, get_u32(bytes, 4), get_u8(bytes, 3)),
        };
        let (Some(usage), Some(flags)) = (get_u8(bytes, 0), get_u8(bytes, 1)) else {
            return Err(Malformed::Length);
        };
        let (Some(defects_len), Some(protection_interval)) = (defects_len, interval) else {
            return Err(Malformed::Length);
        };
        // FOV says that DPRY, DCRT, STPF and IP mean what they say.
        let options = flags & 0x78;
        if flags & 0x80 == 0 && options != 0 {
            return Err(Malformed::Field(1));
        }
        let pattern = if options & 0x08 == 0 { &[] } else { initialization(bytes, len)? };
        Ok(Self {
            protection_usage: usage & 7,
            immediate: flags & 2 != 0,
            protection_interval,
            defects_len,
            pattern,
        })
    }
}

/// The pattern of an initialization pattern descriptor at `at`.
fn initialization(bytes: &[u8], at: usize) -> Result<&[u8], Malformed> {
    let field = u16::try_from(at).unwrap_or(0);
    let kind = get_u8(bytes, at + 1).ok_or(Malformed::Length)?;
    let length = usize::from(get_u16(bytes, at + 2).ok_or(Malformed::Length)?);
    // IP MODIFIER is obsolete; SI asks for what every format does here.
    if get_u8(bytes, at).is_none_or(|first| first & 0xc0 != 0) {
        return Err(Malformed::Field(field));
    }
    let pattern = bytes.get(at + 4..).and_then(|rest| rest.get(..length));
    match (kind, length) {
        (0, 0) => Ok(&[]),
        (1, 1..) => pattern.ok_or(Malformed::Length),
        (0 | 1, _) => Err(Malformed::Field(field + 2)),
        _ => Err(Malformed::Field(field + 1)),
    }
}

/// A SANITIZE parameter list with OVERWRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overwrite<'a> {
    /// INVERT: every second pass writes the complement.
    pub invert: bool,
    /// TEST.
    pub test: u8,
    /// OVERWRITE COUNT.
    pub count: u8,
    /// INITIALIZATION PATTERN.
    pub pattern: &'a [u8],
}

impl<'a> Overwrite<'a> {
    /// Reads a list.
    ///
    /// # Errors
    /// If it is shorter than it says.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let first = get_u8(bytes, 0).ok_or(Malformed::Length)?;
        let length = usize::from(get_u16(bytes, 2).ok_or(Malformed::Length)?);
        let pattern = bytes.get(OVERWRITE_HEADER_LEN..).and_then(|rest| rest.get(..length));
        Ok(Self {
            invert: first & 0x80 != 0,
            test: first >> 5 & 3,
            count: first & 0x1f,
            pattern: pattern.ok_or(Malformed::Field(2))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn format_headers() {
        let short = Format::parse(&[1, 0x02, 0, 0], FormatHeader::Short).expect("good");
        assert_eq!((short.protection_usage, short.immediate, short.pattern), (1, true, &[][..]));
        let list = [0, 0x88, 0, 0, 0x20, 1, 0, 2, 0xab, 0xcd];
        let pattern = Format::parse(&list, FormatHeader::Short).expect("good");
        assert_eq!((pattern.immediate, pattern.pattern), (false, &[0xab, 0xcd][..]));
        let long = Format::parse(&[0, 0xa0, 0, 0x13, 0, 0, 0, 9], FormatHeader::Long);
        let long = long.expect("good");
        assert_eq!((long.protection_interval, long.defects_len), (0x13, 9));
    }

    #[test]
    fn format_lists_that_contradict_themselves() {
        let short = |bytes: &[u8]| Format::parse(bytes, FormatHeader::Short).map(|_| ());
        assert_eq!(short(&[0, 0x08, 0, 0]), Err(Malformed::Field(1)), "IP without FOV");
        assert_eq!(short(&[0, 0x88, 0, 0]), Err(Malformed::Length), "no descriptor");
        assert_eq!(short(&[0, 0x88, 0, 0, 0, 1, 0, 2, 1]), Err(Malformed::Length), "cut");
        assert_eq!(short(&[0, 0x88, 0, 0, 0, 1, 0, 0]), Err(Malformed::Field(6)));
        assert_eq!(short(&[0, 0x88, 0, 0, 0, 0, 0, 1, 1]), Err(Malformed::Field(6)));
        assert_eq!(short(&[0, 0x88, 0, 0, 0, 2, 0, 1, 1]), Err(Malformed::Field(5)));
        assert_eq!(short(&[0, 0x88, 0, 0, 0x40, 1, 0, 1, 1]), Err(Malformed::Field(4)));
        for cut in 0..4 {
            assert_eq!(short(&[0; 4][..cut]), Err(Malformed::Length));
        }
    }

    #[test]
    fn overwrite_lists() {
        let list = Overwrite::parse(&[0xa3, 0, 0, 2, 7, 8]).expect("good");
        assert_eq!((list.invert, list.test, list.count), (true, 1, 3));
        assert_eq!(list.pattern, [7, 8]);
        assert_eq!(Overwrite::parse(&[1, 0, 0, 3, 7, 8]), Err(Malformed::Field(2)));
        assert_eq!(Overwrite::parse(&[1, 0, 0]), Err(Malformed::Length));
    }

    proptest! {
        #[test]
        fn parse_is_total(bytes in proptest::collection::vec(any::<u8>(), 0..40), small: u8) {
            let mut bytes = bytes;
            for at in [2, 6, 10] {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = 0;
                }
            }
            if let Some(byte) = bytes.get_mut(1) {
                *byte = small;
            }
            let _ = Format::parse(&bytes, FormatHeader::Short);
            let _ = Format::parse(&bytes, FormatHeader::Long);
            let _ = Overwrite::parse(&bytes);
        }
    }
}
