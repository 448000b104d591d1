// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What disks and sessions have done: counts of one moment. Who asks twice has rates.

use serde::Deserialize;
use serde::Serialize;

use super::LayerTime;

/// Counts since the daemon began, all of one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// Milliseconds since the daemon began to serve: when the counts were these.
    pub uptime_ms: u64,
    /// Counts of the time-stamp counter in a second.
    pub cycles_per_second: u64,
    /// Where the time of all reactors went, in the order in which a command passes the layers.
    pub layers: Vec<LayerTime>,
    /// Logical units, in the order of the configuration.
    pub luns: Vec<LunLoad>,
    /// Logical units that are left out, since there are too many.
    pub luns_left_out: usize,
    /// The oldest sessions, those first.
    pub sessions: Vec<SessionLoad>,
    /// Sessions that are left out, since there are too many.
    pub sessions_left_out: usize,
    /// Reactors that do not answer, whose sessions and times are missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent_reactors: Vec<usize>,
}

/// What a logical unit has done since it came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LunLoad {
    /// iSCSI name of the target.
    pub target: String,
    /// Number of the unit.
    pub lun: u16,
    /// Reads that ended well.
    pub reads: u64,
    /// Writes that ended well.
    pub writes: u64,
    /// Bytes of these reads.
    pub read_bytes: u64,
    /// Bytes of these writes.
    pub written_bytes: u64,
    /// Commands that failed since blocks could not be read or written, or were not what they were
    /// compared with.
    pub errors: u64,
    /// How long commands took in the device server and its store, of those that were timed: one in
    /// a few; by `read`, `write` and `other`. Of the first units alone, where there are many.
    pub times: Vec<LayerTime>,
}

/// What a session has done since its login.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionLoad {
    /// Target session identifying handle.
    pub tsih: u16,
    /// The initiator's iSCSI name.
    pub initiator: String,
    /// The target's name; none in a discovery session without one.
    pub target: Option<String>,
    /// Seconds since login.
    pub age_s: u64,
    /// Commands under way.
    pub tasks: usize,
    /// Commands.
    pub commands: u64,
    /// Data that the initiator has read, bytes.
    pub read_bytes: u64,
    /// Data that it has written, bytes.
    pub written_bytes: u64,
    /// How long its commands took, as `times` of a unit tells it. Of the oldest sessions alone,
    /// where there are many.
    #[serde(default)]
    pub times: Vec<LayerTime>,
}
