// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is served: targets, their logical units and their port groups.

use serde::Deserialize;
use serde::Serialize;

/// A target as it is served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// iSCSI name.
    pub name: String,
    /// Names of the initiators that may log in; if empty, everybody.
    #[serde(default)]
    pub access: Vec<String>,
    /// What initiators have to prove, as in the configuration: `off`, `optional`, `required` or
    /// `mutual`; empty: an earlier version did not tell.
    #[serde(default)]
    pub authentication: String,
    /// Logical units.
    pub luns: Vec<Lun>,
}

/// A logical unit as it is served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lun {
    /// Its number.
    #[serde(rename = "lun")]
    pub number: u16,
    /// Its store, as configured.
    pub store: String,
    /// Serial number.
    #[serde(default)]
    pub serial: String,
    /// Names of the initiators that see it; none: all that may log in.
    #[serde(default)]
    pub initiators: Option<Vec<String>>,
    /// Size, bytes.
    pub bytes: u64,
    /// Logical block length, bytes.
    #[serde(rename = "block_bytes")]
    pub block: u32,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Type of its protection information.
    #[serde(default)]
    pub protection: Option<u8>,
    /// Blocks that were acknowledged may be lost, and were not written again since: flushes fail.
    #[serde(default)]
    pub lost_writes: bool,
    /// What has become of its file, if that is not found by its path: `deleted`, `replaced` or
    /// `moved`.
    #[serde(default)]
    pub file_lost: Option<String>,
    /// Commands that wait for its store for a second and longer.
    #[serde(default)]
    pub waiting: Option<Waiting>,
    /// The bytes that are left behind it, where these are less than hosts see.
    #[serde(default)]
    pub shrunk: Option<u64>,
    /// What an image of a cluster is by now.
    #[serde(default)]
    pub image: Option<Image>,
}

impl Lun {
    /// Who sees it, where that are not all that may log in.
    #[must_use]
    pub fn initiators_shown(&self) -> Option<String> {
        let names = self.initiators.as_ref()?;
        Some(match names.is_empty() {
            true => "nobody".to_owned(),
            false => format!("{} alone", names.join(", ")),
        })
    }

    /// Its protection information, to follow what is said of it otherwise.
    #[must_use]
    pub fn protection_shown(&self) -> String {
        self.protection.map(|kind| format!(", protection type {kind}")).unwrap_or_default()
    }
}

/// Commands that wait for a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// Who does not answer, in a word.
    pub who: String,
    /// How many.
    pub commands: usize,
    /// How long the oldest of them has waited, seconds.
    pub oldest_s: u64,
    /// New ones are told BUSY.
    pub busy: bool,
}

/// What an image of a cluster is by now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// The cache of its client: `none`, `writethrough`, `writeback` or `persistent`.
    pub cache: String,
    /// Other clients that have it open, beside a cache that does not hear of them; None: nobody has
    /// looked, as where there is no such cache.
    #[serde(default)]
    pub others: Option<usize>,
    /// The cluster has shut the daemon's client out (blocklisted): all commands fail until the LUN
    /// is removed and added.
    #[serde(default)]
    pub shut_out: bool,
    /// What has become of it, if it is not found by its name: `moved`, `replaced`, or, of a
    /// snapshot, `removed`.
    #[serde(default)]
    pub lost: Option<String>,
}

/// A target port group of a unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortGroup {
    /// iSCSI name of the target.
    pub target: String,
    /// Number of the unit.
    pub lun: u16,
    /// Target port group.
    pub group: u16,
    /// Whether hosts do well to use it.
    pub preferred: bool,
    /// As in the configuration.
    pub state: String,
    /// Tags of its portal groups.
    pub portal_groups: Vec<u16>,
    /// It is a portal group by itself, for the configuration has none: its state stays.
    #[serde(default)]
    pub fixed: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is one thing has one name in all that is told: `inspect` and `bench` say it so, too.
    #[test]
    fn a_disk_is_told_in_the_words_of_the_other_outputs() {
        let lun = Lun {
            number: 3,
            store: "memory:1G".into(),
            serial: "a".into(),
            initiators: None,
            bytes: 1 << 30,
            block: 4096,
            read_only: false,
            protection: None,
            lost_writes: false,
            file_lost: None,
            waiting: None,
            shrunk: None,
            image: None,
        };
        let told = serde_json::to_string(&lun).unwrap();
        assert!(
            told.starts_with(r#"{"lun":3,"#) && told.contains(r#""block_bytes":4096"#),
            "{told}"
        );
    }
}
