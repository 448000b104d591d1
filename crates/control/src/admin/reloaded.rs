// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is otherwise when a configuration is read again, and what of it cannot be.

use std::fmt;

use serde::Deserialize;
use serde::Serialize;

/// What is otherwise in a configuration that was read again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloaded {
    /// Whether it is served now; else nothing has changed.
    pub applied: bool,
    /// What comes, changes and goes.
    pub differences: Vec<Difference>,
    /// What cannot change while the daemon runs. With any of these nothing does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Refused>,
    /// Sessions that end by it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<EndedSession>,
    /// What is to be thought of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// One thing that is otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// What becomes of it.
    pub change: Change,
    /// Such as `target iqn.2026-01.com.example:disk` or `portal 127.0.0.1:3260`.
    pub what: String,
    /// The keys that say something else now; of a disk that comes or goes, its store.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<String>,
}

/// As one line: `~ target iqn.2026-01.com.example:disk: alias`.
impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match self.change {
            Change::Added => '+',
            Change::Changed => '~',
            Change::Removed => '-',
        };
        write!(f, "{mark} {}", self.what)?;
        match self.keys.is_empty() {
            true => Ok(()),
            false => write!(f, ": {}", self.keys.join(", ")),
        }
    }
}

/// What becomes of a part of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(clippy::exhaustive_enums)] // there is no fourth
pub enum Change {
    /// It comes.
    Added,
    /// It stays, and something about it is otherwise.
    Changed,
    /// It goes.
    Removed,
}

/// What cannot change while a daemon runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The key, or the part of the configuration.
    pub what: String,
    /// Why, and what to do.
    pub why: String,
}

/// A session that ends because what is served has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedSession {
    /// Target session identifying handle.
    pub tsih: u16,
    /// The initiator's iSCSI name.
    pub initiator: String,
    /// None: a discovery session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Why.
    pub why: String,
}
