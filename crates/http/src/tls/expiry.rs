// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When a certificate ends (RFC 5280 section 4.1.2.5), so that its owner is warned: whom it is
//! shown looks himself.

use std::time::Duration;
use std::time::SystemTime;

/// Tags of DER.
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// After this moment nobody takes it for good. None: it cannot be told.
pub(super) fn end(certificate: &[u8]) -> Option<SystemTime> {
    let (_, certificate, _) = part(certificate)?;
    let (_, fields, _) = part(certificate)?;
    let (tag, _, behind) = part(fields)?;
    let mut rest = if tag == VERSION { behind } else { fields };
    for _ in ["serialNumber", "signature", "issuer"] {
        (.., rest) = part(rest)?;
    }
    let (_, validity, _) = part(rest)?;
    let (_, _, end) = part(validity)?;
    let (tag, text, _) = part(end)?;
    let seconds = seconds(tag, std::str::from_utf8(text).ok()?)?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

/// Tag and content of what comes first, and what comes behind.
fn part(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = der.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (len, rest) = match *first {
        len @ 0..=0x7f => (usize::from(len), rest),
        long @ 0x81..=0x83 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(long & 0x7f))?;
            (bytes.iter().fold(0, |len, byte| (len << 8) | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(len)?;
    Some((*tag, content, rest))
}

/// Since 1970, as certificates write it: to the second, in UTC.
fn seconds(tag: u8, text: &str) -> Option<u64> {
    let number = |text: &str| text.parse::<u64>().ok();
    let (year, rest) = match tag {
        UTC_TIME => {
            let (year, rest) = text.split_at_checked(2)?;
            let year = number(year)?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = text.split_at_checked(4)?;
            (number(year)?, rest)
        }
        _ => return None,
    };
    let pair = |at: usize| number(rest.get(at..at + 2)?);
    let (month, day) = (pair(0)?, pair(2)?);
    let (hours, minutes, seconds) = (pair(4)?, pair(6)?, pair(8)?);
    if rest.get(10..) != Some("Z") || !(1..=12).contains(&month) || day == 0 {
        return None;
    }
    // Years that begin in March have the day that comes each fourth one at their end.
    let (year, month) =
        if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    let days = days.checked_sub(719_468)?;
    Some(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds() {
        for (tag, text, wanted) in [
            (UTC_TIME, "700101000000Z", Some(0)),
            (UTC_TIME, "491231235959Z", Some(2_524_607_999)),
            (UTC_TIME, "500101000000Z", None),
            (GENERALIZED_TIME, "20500101000000Z", Some(2_524_608_000)),
            (GENERALIZED_TIME, "20240229120000Z", Some(1_709_208_000)),
            (GENERALIZED_TIME, "99991231235959Z", Some(253_402_300_799)),
            (GENERALIZED_TIME, "00000101000000Z", None),
            (UTC_TIME, "700101000000", None),
            (UTC_TIME, "701301000000Z", None),
            (UTC_TIME, "7001\u{e9}1000000Z", None),
            (4, "700101000000Z", None),
        ] {
            assert_eq!(seconds(tag, text), wanted, "{text}");
        }
    }

    #[test]
    fn what_is_no_certificate_has_no_end() {
        for none in [&b""[..], b"0", b"0\x80", b"0\x84\0\0\0\0", b"0\x81\xff0", b"0\x020\0"] {
            assert_eq!(end(none), None, "{none:?}");
        }
    }
}
