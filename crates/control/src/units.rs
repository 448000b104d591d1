// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Values with units, as people write them: `15s`, `50us`.

use std::time::Duration;

/// The units of time, longest name first where one ends with another.
const UNITS: [(&str, u64); 5] =
    [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000), ("m", 60_000_000_000)];

/// Reads a duration: a whole number and `ns`, `us`, `ms`, `s` or `m`; `0` needs no unit.
///
/// # Errors
/// A text that says what would be right.
pub fn duration(text: &str) -> Result<Duration, &'static str> {
    const RIGHT: &str = "a whole number with ns, us, ms, s or m is right, for example 15s";
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| RIGHT)?;
    let (_, nanos) = UNITS.iter().find(|(name, _)| *name == unit).ok_or(RIGHT)?;
    number.checked_mul(*nanos).map(Duration::from_nanos).ok_or("it is too long")
}

/// Reads whole seconds where a number alone has always been one of seconds: `30`, `30s`, `2m`.
///
/// # Errors
/// A text that says what would be right.
pub fn seconds(text: &str) -> Result<u16, &'static str> {
    const RIGHT: &str = "whole seconds are right, at most 65535, for example 30s";
    if let Ok(seconds) = text.parse() {
        return Ok(seconds);
    }
    let time = duration(text).map_err(|_| RIGHT)?;
    let whole = time.subsec_nanos() == 0;
    u16::try_from(time.as_secs()).ok().filter(|_| whole).ok_or(RIGHT)
}

/// Bytes for people: `1.5 GiB`.
#[must_use]
pub fn bytes(count: u64) -> String {
    const NAMES: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut unit = 0;
    let mut scaled = u128::from(count) * 10 / 1024;
    while scaled >= 10_240 && unit + 1 < NAMES.len() {
        scaled /= 1024;
        unit += 1;
    }
    let name = NAMES.get(unit).copied().unwrap_or("PiB");
    if scaled.is_multiple_of(10) {
        format!("{} {name}", scaled / 10)
    } else {
        format!("{}.{} {name}", scaled / 10, scaled % 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("15s"), Ok(Duration::from_secs(15)));
        assert_eq!(duration("50us"), Ok(Duration::from_micros(50)));
        assert_eq!(duration("0"), Ok(Duration::ZERO));
        for wrong in ["", "s", "15", "1.5s", "-1s", "15 s", "15h", "99999999999999999999s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
        assert!(duration("18446744073709551615m").is_err());
    }

    #[test]
    fn seconds_may_have_their_unit() {
        for (text, right) in [("30", 30), ("30s", 30), ("2m", 120), ("1000ms", 1), ("0", 0)] {
            assert_eq!(seconds(text), Ok(right), "{text}");
        }
        for wrong in ["", "s", "500ms", "65536", "65536s", "-1", "+", "1.5s", "1h"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn bytes_read_well() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1 << 30), "1 GiB");
        assert_eq!(bytes(3 << 29), "1.5 GiB");
        assert_eq!(bytes(u64::MAX), "16383.9 PiB");
    }
}
