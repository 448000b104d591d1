// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A disk of another target as it is written:
//! `iscsi://[USER@]HOST[:PORT]/TARGET/LUN[?...][,secret-file=FILE]
//! [,mutual-user=USER,mutual-secret-file=FILE][,wait=TIME][,busy=TIME]`, `iser://`, or
//! `ether://` with `MAC%INTERFACE` in the place of the host. Several URLs with blanks between them
//! are paths to one disk.

use super::SpecError;
use super::error::REMOTE_USAGE;
use super::size::ExactTime;
use super::size::parse_time;
use super::size::parse_time_up_to;
use crate::limits::REMOTE_WAIT_MAX;
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use core::fmt;
use core::time::Duration;

/// A disk of another target, by which a unit of ours is backed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs)] // whoever opens one needs all of it
pub struct RemoteSpec {
    /// Its URL, or several with blanks between them; ends at the first comma, and has no secret in
    /// it.
    pub url: String,
    /// The file of the secret by which we prove who we are, as the user of the URL.
    pub secret_file: Option<String>,
    /// Who the target has to be.
    pub mutual_user: Option<String>,
    /// The file of the secret by which it proves that.
    pub mutual_secret_file: Option<String>,
    /// Commands wait so long for a session that was lost; None: the usual time.
    pub wait: Option<Duration>,
    /// Hosts are told BUSY when there has been no session for so long; None: the usual time.
    pub busy: Option<Duration>,
}

impl RemoteSpec {
    /// What stands before the first comma. `scheme` is one of those that URLs of disks have.
    pub(super) fn new(scheme: &str, rest: &str) -> Result<Self, SpecError> {
        let place = rest.strip_prefix("//").unwrap_or_default();
        if place.is_empty() {
            return Err(SpecError::EmptyPath { kind: kind(scheme), usage: REMOTE_USAGE });
        }
        let places = rest.split_whitespace();
        let mut places = places.map(|url| url.split_once("//").map_or(url, |(_, place)| place));
        if places.any(shows_secret) {
            return Err(SpecError::RemoteSecret);
        }
        let url = format!("{scheme}:{rest}");
        let (secret_file, mutual_user, mutual_secret_file) = (None, None, None);
        Ok(Self { url, secret_file, mutual_user, mutual_secret_file, wait: None, busy: None })
    }

    /// The scheme of its URL.
    pub(super) fn kind(&self) -> &'static str {
        kind(self.url.split(':').next().unwrap_or_default())
    }

    /// Takes an option that disks of other targets have; false if they have it not.
    pub(super) fn take(&mut self, option: &str, value: Option<&str>) -> Result<bool, SpecError> {
        let kind = self.kind();
        let text = value.unwrap_or_default();
        let wrong = |option: &'static str, right: &'static str| {
            let value = text.to_owned();
            SpecError::FilterValue { kind, option, value, right }
        };
        let twice = |option: &'static str| SpecError::Repeated { kind, option };
        match option {
            "secret-file" | "mutual-user" | "mutual-secret-file" => {
                let file = "a file that holds one secret";
                let (option, slot, right) = match option {
                    "secret-file" => ("secret-file", &mut self.secret_file, file),
                    "mutual-user" => ("mutual-user", &mut self.mutual_user, "a name"),
                    _ => ("mutual-secret-file", &mut self.mutual_secret_file, file),
                };
                if text.is_empty() || text.contains('\0') {
                    return Err(wrong(option, right));
                }
                if slot.replace(text.to_owned()).is_some() {
                    return Err(twice(option));
                }
            }
            "wait" => {
                let wait = parse_time_up_to(text, REMOTE_WAIT_MAX)
                    .ok_or_else(|| wrong("wait", "a time up to 86400s, such as 300s"))?;
                if self.wait.replace(wait).is_some() {
                    return Err(twice("wait"));
                }
            }
            "busy" => {
                let busy = parse_time(text)
                    .ok_or_else(|| wrong("busy", "a time up to 60s, such as 30s"))?;
                if self.busy.replace(busy).is_some() {
                    return Err(twice("busy"));
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Whether a URL, behind its scheme, has a secret in it, which would be shown by ps, by status and
/// in logs.
fn shows_secret(place: &str) -> bool {
    let options = place.split_once('?').map_or("", |(_, options)| options);
    let login = place.split(['/', '?']).next().and_then(|host| host.rsplit_once('@'));
    let secrets = ["passw", "secret", "pwd"];
    let is_name = |login: &str| login.starts_with("iqn.") || login.starts_with("eui.");
    login.is_some_and(|(login, _)| login.contains('%') || login.contains(':') && !is_name(login))
        || secrets.iter().any(|word| options.contains(word))
}

fn kind(scheme: &str) -> &'static str {
    match scheme {
        "iser" => "iser",
        "ether" => "ether",
        _ => "iscsi",
    }
}

impl fmt::Display for RemoteSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)?;
        let words = [
            ("secret-file", &self.secret_file),
            ("mutual-user", &self.mutual_user),
            ("mutual-secret-file", &self.mutual_secret_file),
        ];
        for (name, word) in words {
            word.iter().try_for_each(|word| write!(f, ",{name}={word}"))?;
        }
        for (name, time) in [("wait", self.wait), ("busy", self.busy)] {
            time.iter().try_for_each(|time| write!(f, ",{name}={}", ExactTime(*time)))?;
        }
        Ok(())
    }
}
