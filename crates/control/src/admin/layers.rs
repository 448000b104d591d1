// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the time of commands went.

use serde::Deserialize;
use serde::Serialize;

/// Where the time of all reactors went since they began, and which bytes they touched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layers {
    /// Counts of the time-stamp counter in a second.
    pub cycles_per_second: u64,
    /// Commands that were timed: one in a few.
    pub commands: u64,
    /// In the order in which a command passes them.
    pub layers: Vec<LayerTime>,
    /// Bytes of data moved.
    pub payload: u64,
    /// Payload bytes copied.
    pub copied: u64,
    /// Payload bytes that stores took at once, which is a copy if they keep them in memory.
    pub stored: u64,
    /// Payload bytes run through CRC32C.
    pub digested: u64,
}

/// Time in one layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerTime {
    /// Its name.
    pub name: String,
    /// Counts of the time-stamp counter.
    pub cycles: u64,
    /// How often it was left.
    pub laps: u64,
    /// Stays by length: four steps for each doubling of the counts.
    pub lengths: Vec<u32>,
}
