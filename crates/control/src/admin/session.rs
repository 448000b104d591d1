// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A session, and what its connections are.

use serde::Deserialize;
use serde::Serialize;

/// A session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Target session identifying handle.
    pub tsih: u16,
    /// The initiator's iSCSI name.
    pub initiator: String,
    /// The initiator's alias.
    pub initiator_alias: Option<String>,
    /// ISID, twelve hexadecimal digits.
    pub isid: String,
    /// The target's name; none in a discovery session without one.
    pub target: Option<String>,
    /// Whether it is a discovery session.
    pub discovery: bool,
    /// Seconds since login.
    pub age_s: u64,
    /// Which reactor serves it.
    pub reactor: usize,
    /// Commands under way.
    pub tasks: usize,
    /// Those of them that a limit holds.
    #[serde(default)]
    pub held: usize,
    /// Commands since login.
    pub commands: u64,
    /// Data that the initiator has read, bytes.
    pub read_bytes: u64,
    /// Data that it has written, bytes.
    pub written_bytes: u64,
    /// Negotiated values, by key.
    pub negotiated: Vec<(String, String)>,
    /// Its connections.
    pub connections: Vec<Connection>,
}

/// A connection of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// Connection id.
    pub cid: u16,
    /// The initiator's address.
    pub peer: String,
    /// The portal's address.
    pub portal: String,
    /// What carries it: tcp, iser, ether or local.
    #[serde(default)]
    pub transport: String,
    /// Of one over iSER: what RDMA does on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rdma: Option<RdmaStream>,
}

/// What RDMA does on a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RdmaStream {
    /// Who does it: `software iWARP`, or `RDMA adapter`.
    pub provider: String,
    /// The adapter's name; what follows of CRCs, markers and FPDUs it does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// RDMA Reads of the initiator that are served at once.
    pub ird: usize,
    /// RDMA Reads of the target that the initiator serves at once.
    pub ord: usize,
    /// What software iWARP has agreed on.
    #[serde(flatten)]
    pub iwarp: Option<IwarpStream>,
    /// STags of the target that are good now.
    pub stags: usize,
    /// Bytes of the memory that they name.
    pub registered_bytes: usize,
}

/// What software iWARP has agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IwarpStream {
    /// Whether FPDUs have a CRC.
    pub crc: bool,
    /// Whether what the target sends has markers.
    pub markers_sent: bool,
    /// Whether what it receives has them.
    pub markers_received: bool,
    /// Bytes of the longest FPDU that it sends, without markers.
    pub fpdu_bytes: usize,
}
