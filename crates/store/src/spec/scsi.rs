// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A device of the system as it is written: `NODE[,timeout=TIME]`.

use super::SpecError;
use super::error::SCSI_USAGE;
use super::size::ExactTime;
use super::size::parse_time_up_to;
use crate::limits::DEVICE_TIME_MAX;
use alloc::borrow::ToOwned;
use alloc::string::String;
use core::fmt;
use core::time::Duration;

/// A device whose commands are passed on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs)] // whoever opens one needs all of it
pub struct ScsiSpec {
    /// Its node; not empty, and ends at the first comma.
    pub path: String,
    /// After so long the system gives a command up; None: after the usual time.
    pub timeout: Option<Duration>,
}

impl ScsiSpec {
    /// What stands before the first comma.
    pub(super) fn new(path: &str) -> Result<Self, SpecError> {
        if path.is_empty() {
            return Err(SpecError::EmptyPath { kind: "scsi", usage: SCSI_USAGE });
        }
        Ok(Self { path: path.to_owned(), timeout: None })
    }

    /// Takes an option that devices have; false if they have it not.
    pub(super) fn take(&mut self, option: &str, value: Option<&str>) -> Result<bool, SpecError> {
        let kind = "scsi";
        if option != "timeout" {
            return Ok(false);
        }
        if self.timeout.is_some() {
            return Err(SpecError::Repeated { kind, option: "timeout" });
        }
        let text = value.unwrap_or_default();
        let time = parse_time_up_to(text, DEVICE_TIME_MAX);
        self.timeout = Some(time.ok_or_else(|| SpecError::FilterValue {
            kind,
            option: "timeout",
            value: text.to_owned(),
            right: "a time up to 86400s, such as 120s",
        })?);
        Ok(true)
    }
}

impl fmt::Display for ScsiSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        self.timeout.iter().try_for_each(|time| write!(f, ",timeout={}", ExactTime(*time)))
    }
}
