// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a daemon is and does.

use serde::Deserialize;
use serde::Serialize;

use super::Target;

/// What a daemon is and does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Of the program.
    pub version: String,
    /// Process id.
    pub pid: u32,
    /// Seconds since it began to serve.
    pub uptime_s: u64,
    /// `uring` or `epoll`.
    pub engine: String,
    /// `smp` or `amp`.
    pub mode: String,
    /// Name of the CRC32C kernel in use.
    pub crc32c: String,
    /// How many threads serve.
    pub reactors: usize,
    /// Addresses it listens on.
    pub portals: Vec<String>,
    /// Those that speak iSER, too, and what there is of that.
    #[serde(default)]
    pub iser: Iser,
    /// Where it takes connections over raw Ethernet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stations: Vec<Station>,
    /// What it serves.
    pub targets: Vec<Target>,
    /// Sessions now.
    pub sessions: usize,
    /// Reactors that do not answer, whose sessions are missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent_reactors: Vec<usize>,
    /// How much LUNs and initiators may have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<Limit>,
    /// Where it speaks HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<String>,
    /// Whether it is spoken by TLS, and not otherwise.
    #[serde(default)]
    pub http_tls: bool,
    /// Where connections are captured to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capture: Option<Capture>,
    /// What it has given up: `privileges`, `calls`, `programs`, `signals`, `files`, `ports`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sandbox: Vec<String>,
}

/// How much a LUN or an initiator may have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// The target.
    pub target: String,
    /// The LUN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lun: Option<u16>,
    /// The initiator, or `*` for each; this or the LUN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initiator: Option<String>,
    /// Commands in a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops: Option<u64>,
    /// Bytes in a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<u64>,
    /// Sessions of an initiator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<u64>,
    /// Commands of the LUN or initiator that are held now, by whatever limit.
    pub held: usize,
    /// Commands that began since the limit is there.
    pub begun: u64,
    /// Those of them that had to wait for it.
    pub delayed: u64,
}

/// A station on an Ethernet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Station {
    /// Its interface.
    pub interface: String,
    /// Its address.
    pub mac: String,
    /// Bytes that a frame carries there.
    pub mtu: usize,
    /// Which way frames come and go, and why not by xdp where it was wanted.
    #[serde(default)]
    pub frames: String,
    /// Connections that stand.
    pub connections: Vec<StationConnection>,
}

/// A connection over raw Ethernet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StationConnection {
    /// Address of the initiator's station.
    pub peer: String,
    /// Longest payload of a frame, bytes.
    pub payload_bytes: usize,
    /// Bytes that were sent, and those of them that have come.
    pub sent_bytes: u64,
    /// See there.
    pub acknowledged_bytes: u64,
    /// Bytes that have come from the initiator.
    pub received_bytes: u64,
    /// Bytes under way, and how many may be.
    pub in_flight_bytes: u64,
    /// See there.
    pub window_bytes: u64,
    /// Frames that were sent once more.
    pub resent_frames: u64,
    /// How long a round trip takes, microseconds; None: it was not measured yet.
    pub round_trip_us: Option<u64>,
}

/// iSER as a daemon speaks it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Iser {
    /// Who moves the data: `software iWARP`, `RDMA adapters`, or both; None: no portal speaks it.
    pub provider: Option<String>,
    /// The portals that do, by software iWARP.
    pub portals: Vec<String>,
    /// Those at which RDMA adapters take connections.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adapter_portals: Vec<String>,
    /// Connections over it, of sessions.
    pub connections: usize,
    /// Bytes of memory that are registered with them now.
    pub registered_bytes: usize,
}

/// A capture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capture {
    /// Where it is.
    pub file: String,
    /// Bytes that it has, or is going to have.
    pub bytes: u64,
    /// Segments of TCP in it.
    pub segments: u64,
    /// Segments that are missing, since they came faster than they could be written.
    pub lost: u64,
    /// Why nothing more is captured, if so.
    #[serde(default)]
    pub ended: Option<String>,
}
