// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A disk that is attached, and what becomes of requests to it.

use serde::Deserialize;
use serde::Serialize;

/// A disk that is attached. Who attaches one keeps this in a file, too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// By which it is found.
    pub name: String,
    /// The disk, without secrets.
    pub url: String,
    /// `nbd`, `file`, `loop` or `ublk`.
    pub kind: String,
    /// Where it is used: the address of an NBD server, a file, a device.
    pub place: String,
    /// The mounted directory, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// Size, bytes.
    pub bytes: u64,
    /// Whether writes are refused.
    pub read_only: bool,
    /// The process.
    pub pid: u32,
    /// What becomes of requests.
    #[serde(default)]
    pub state: AttachmentState,
}

/// What becomes of requests to an attached disk. Times are in seconds since the epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
#[expect(clippy::exhaustive_enums)] // there is no fourth
pub enum AttachmentState {
    /// They are carried out.
    #[default]
    Works,
    /// They wait for the target.
    Waits {
        /// Since when.
        since: u64,
        /// What failed last.
        cause: String,
    },
    /// They fail: until the disk is attached anew, or it answers otherwise.
    Fails {
        /// Since when.
        since: u64,
        /// Why.
        cause: String,
    },
}
