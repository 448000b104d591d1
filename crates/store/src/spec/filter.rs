// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Filters as they are written: `readonly`, `discard=off`, `delay=10ms`, `error=read:100`,
//! `limit=500iops`, `log`.

use super::SpecError;
use super::parse_size;
use super::size::ExactTime;
use super::size::parse_count;
use super::size::parse_time;
use crate::filter::{Delayed, Fault, Rate, When};
use alloc::borrow::ToOwned;
use core::fmt;
use core::str::FromStr;
use core::time::Duration;

/// A filter to be put in front of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // the opener must handle each of them
pub enum Filter {
    /// `readonly`: refuses every change.
    ReadOnly,
    /// `discard=off`: space is never given back.
    NoDiscard,
    /// `delay=[read:|write:]TIME`: operations wait before they begin.
    Delay {
        /// Which.
        which: Delayed,
        /// How long.
        length: Duration,
    },
    /// `error=read|write|space|flush[:N|@OFFSET+LENGTH]`: operations fail.
    Error {
        /// Which, and how.
        fault: Fault,
        /// When.
        when: When,
    },
    /// `limit=Niops` or `limit=SIZE/s`: no more than that in a second.
    Limit(Rate),
    /// `log`: tells of every operation.
    Log,
    /// `physical=SIZE`: another physical block size, bytes.
    Physical(u32),
    /// `atomic`: writes that are whole for everybody, in front of a store that forgets all when the
    /// process ends.
    Atomic,
}

const DELAY_RIGHT: &str = "TIME, read:TIME or write:TIME, such as 10ms (us, ms, s; up to 60s)";
const ERROR_RIGHT: &str = "read, write, space or flush, with :N for every N-th or @OFFSET+LENGTH";
const PHYSICAL_RIGHT: &str = "512 to 64K, a power of two, such as 4K";
const LIMIT_RIGHT: &str = "operations such as 500iops, or bytes such as 20M/s";

impl Filter {
    /// The filter that `option` of a store of this kind means; None if it is no filter.
    pub(super) fn parse(
        kind: &'static str,
        option: &str,
        value: Option<&str>,
    ) -> Result<Option<Self>, SpecError> {
        let (option, right, filter) = match option {
            // No file promises that a write is whole after a crash.
            "atomic" if !matches!(kind, "memory" | "null") => return Ok(None),
            "readonly" | "log" | "atomic" => {
                let (option, filter) = match option {
                    "log" => ("log", Self::Log),
                    "atomic" => ("atomic", Self::Atomic),
                    _ => ("readonly", Self::ReadOnly),
                };
                if let Some(value) = value {
                    let value = value.to_owned();
                    return Err(SpecError::ValueNotWanted { kind, option, value });
                }
                return Ok(Some(filter));
            }
            "discard" => ("discard", "off", value.filter(|v| *v == "off").map(|_| Self::NoDiscard)),
            "delay" => ("delay", DELAY_RIGHT, value.and_then(delay)),
            "error" => ("error", ERROR_RIGHT, value.and_then(error)),
            "limit" => ("limit", LIMIT_RIGHT, value.and_then(limit)),
            "physical" => ("physical", PHYSICAL_RIGHT, value.and_then(physical)),
            _ => return Ok(None),
        };
        let value = || value.unwrap_or_default().to_owned();
        filter.map(Some).ok_or_else(|| SpecError::FilterValue {
            kind,
            option,
            value: value(),
            right,
        })
    }
}

fn delay(value: &str) -> Option<Filter> {
    let (which, time) = match value.split_once(':') {
        None => (Delayed::All, value),
        Some(("read", time)) => (Delayed::Reads, time),
        Some(("write", time)) => (Delayed::Writes, time),
        Some(_) => return None,
    };
    Some(Filter::Delay { which, length: parse_time(time)? })
}

fn error(value: &str) -> Option<Filter> {
    let (fault, when) = if let Some((fault, n)) = value.split_once(':') {
        (fault, When::Every(parse_count(n)?))
    } else if let Some((fault, range)) = value.split_once('@') {
        let (offset, length) = range.split_once('+')?;
        let offset = if offset == "0" { 0 } else { parse_size(offset).ok()? };
        (fault, When::Within { offset, length: parse_size(length).ok()? })
    } else {
        (value, When::Every(1))
    };
    let fault = match fault {
        "read" => Fault::Read,
        "write" => Fault::Write,
        "space" => Fault::Space,
        "flush" if matches!(when, When::Every(_)) => Fault::Flush,
        _ => return None,
    };
    Some(Filter::Error { fault, when })
}

fn physical(value: &str) -> Option<Filter> {
    let bytes = u32::try_from(parse_size(value).ok()?).ok()?;
    let right = bytes.is_power_of_two() && (512..=64 << 10).contains(&bytes);
    right.then_some(Filter::Physical(bytes))
}

fn limit(value: &str) -> Option<Filter> {
    if let Some(operations) = value.strip_suffix("iops") {
        return Some(Filter::Limit(Rate::Operations(parse_count(operations)?)));
    }
    let bytes = parse_size(value.strip_suffix("/s")?).ok()?;
    Some(Filter::Limit(Rate::Bytes(bytes)))
}

impl FromStr for Filter {
    type Err = SpecError;

    /// A filter by itself, as options of stores are written.
    fn from_str(word: &str) -> Result<Self, SpecError> {
        let (option, value) = match word.split_once('=') {
            Some((option, value)) => (option, Some(value)),
            None => (word, None),
        };
        Self::parse("filter", option, value)?
            .ok_or_else(|| SpecError::UnknownFilter { word: word.to_owned() })
    }
}

impl fmt::Display for Filter {
    /// The option that parses to it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReadOnly => f.write_str("readonly"),
            Self::NoDiscard => f.write_str("discard=off"),
            Self::Log => f.write_str("log"),
            Self::Atomic => f.write_str("atomic"),
            Self::Physical(bytes) => write!(f, "physical={bytes}"),
            Self::Delay { which, length } => {
                let which = match which {
                    Delayed::All => "",
                    Delayed::Reads => "read:",
                    Delayed::Writes => "write:",
                };
                write!(f, "delay={which}{}", ExactTime(*length))
            }
            Self::Error { fault, when } => {
                let fault = match fault {
                    Fault::Read => "read",
                    Fault::Write => "write",
                    Fault::Space => "space",
                    Fault::Flush => "flush",
                };
                match when {
                    When::Every(1) => write!(f, "error={fault}"),
                    When::Every(n) => write!(f, "error={fault}:{n}"),
                    When::Within { offset, length } => write!(f, "error={fault}@{offset}+{length}"),
                }
            }
            Self::Limit(Rate::Operations(rate)) => write!(f, "limit={rate}iops"),
            Self::Limit(Rate::Bytes(rate)) => write!(f, "limit={rate}/s"),
        }
    }
}
