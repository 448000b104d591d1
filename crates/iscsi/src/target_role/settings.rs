// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a node wishes and allows in negotiation, and where it bounds its initiators.

use crate::datamover::Capabilities;
use crate::datamover::Rdma;
use crate::limits;
use crate::limits::UNEXPECTED_BUFFERS;
use alloc::string::String;
use core::time::Duration;

/// What the target wishes and allows in negotiation; one per node, shared by its logins. A wish
/// outside the range of its key is taken as the nearest end of the range (RFC 7143 §13).
#[derive(Clone, Debug)]
pub struct Settings {
    /// Longest data segment that the target takes, bytes (RFC 7143 §13.12).
    pub max_recv_data_segment_length: u32,
    /// Longest burst, bytes (RFC 7143 §13.13).
    pub max_burst_length: u32,
    /// Most unsolicited data of a command, bytes (RFC 7143 §13.14).
    pub first_burst_length: u32,
    /// Whether unsolicited Data-Out is unwelcome (RFC 7143 §13.10).
    pub initial_r2t: bool,
    /// Whether immediate data is welcome (RFC 7143 §13.11).
    pub immediate_data: bool,
    /// Most R2Ts of a task that may be agreed on (RFC 7143 §13.17); no more than 64 are ever open.
    pub max_outstanding_r2t: u16,
    /// Whether PDUs of a sequence must come in order (RFC 7143 §13.18); if not, it is as the
    /// initiator likes.
    pub data_pdu_in_order: bool,
    /// Whether sequences must come in order (RFC 7143 §13.19); if not, as the initiator likes.
    pub data_sequence_in_order: bool,
    /// Whether markers of RFC 3720 are agreed to; if not, their keys are answered with Reject.
    pub markers: bool,
    /// What RDMAExtensions may come to: what the mover says.
    pub rdma: Rdma,
    /// Over RDMA, PDUs that an initiator may send past the command window before it hears from the
    /// target: from 2 on (RFC 7145 §6.7).
    pub unexpected_pdus_max: u32,
    /// Command window: largest MaxCmdSN - ExpCmdSN + 1; zero counts as one.
    pub queue_depth: u16,
    /// Most connections of a session; discovery sessions have one (RFC 7143 §13.2).
    pub max_connections: u16,
    /// Header digests that the target accepts (RFC 7143 §13.1).
    pub header_digest: DigestPolicy,
    /// Data digests that the target accepts (RFC 7143 §13.1).
    pub data_digest: DigestPolicy,
    /// How long a login may take.
    pub login_timeout: Duration,
    /// After so much silence the target pings.
    pub ping_interval: Duration,
    /// A ping that is not answered for so long ends the connection.
    pub ping_timeout: Duration,
    /// DefaultTime2Wait, seconds (RFC 7143 §13.15). A session takes the place of another at any
    /// time, and a lost connection is known to be so when its commands are asked for: nobody has to
    /// wait for that.
    pub time2wait: u16,
    /// DefaultTime2Retain, seconds (RFC 7143 §13.16).
    pub time2retain: u16,
    /// Highest ErrorRecoveryLevel that the target agrees to (RFC 7143 §13.20); discovery sessions
    /// have 0.
    pub error_recovery_level: u8,
    /// Above ErrorRecoveryLevel 0, bytes of unacknowledged read data that a session keeps to send
    /// them again.
    pub kept_bytes_max: usize,
    /// What the node says of its kind as X#NodeArchitecture; None: nothing (RFC 7143 §9.4, §13.26).
    pub node_architecture: Option<String>,
    /// Which resets of the whole target initiators may ask for.
    pub target_reset: TargetReset,
}

impl Default for Settings {
    /// What suits a disk: writes up to 256 KiB need no R2T, a megabyte is one burst.
    fn default() -> Self {
        Self {
            max_recv_data_segment_length: 256 << 10,
            max_burst_length: 1 << 20,
            first_burst_length: 256 << 10,
            initial_r2t: false,
            immediate_data: true,
            max_outstanding_r2t: 8,
            data_pdu_in_order: false,
            data_sequence_in_order: false,
            markers: false,
            rdma: Rdma::Never,
            unexpected_pdus_max: limits::UNEXPECTED_MAX,
            queue_depth: 128,
            max_connections: 4,
            header_digest: DigestPolicy::Any,
            data_digest: DigestPolicy::Any,
            login_timeout: Duration::from_secs(15),
            ping_interval: Duration::from_secs(30),
            ping_timeout: Duration::from_secs(15),
            time2wait: 0,
            time2retain: 20,
            error_recovery_level: 2,
            kept_bytes_max: 16 << 20,
            node_architecture: None,
            target_reset: TargetReset::Warm,
        }
    }
}

impl Settings {
    /// The command window of a session whose movers can do this.
    pub(super) fn depth_over(&self, capabilities: Capabilities) -> u16 {
        let buffered = capabilities.buffers.map(|all| all.saturating_sub(UNEXPECTED_BUFFERS));
        self.queue_depth.min(buffered.unwrap_or(u16::MAX))
    }

    /// What of this a mover can do. A digest that is required guards bytes on their way: where the
    /// mover knows none, there are none on the way.
    pub(super) fn within(mut self, capabilities: Capabilities) -> Self {
        if !capabilities.digests {
            (self.header_digest, self.data_digest) = (DigestPolicy::Off, DigestPolicy::Off);
        }
        self.error_recovery_level = self.error_recovery_level.min(capabilities.recovery_level);
        self.markers &= capabilities.markers;
        self.rdma = capabilities.rdma;
        if let Some(buffers) = capabilities.buffers {
            // A PDU that finds none may end the connection.
            self.initial_r2t = true;
            let most = u32::from(buffers.min(UNEXPECTED_BUFFERS));
            self.unexpected_pdus_max = self.unexpected_pdus_max.min(most);
            self.queue_depth = self.depth_over(capabilities);
        }
        // Nothing is reordered there.
        self.data_pdu_in_order |= capabilities.rdma == Rdma::Always;
        self
    }
}

/// Which digests a target accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // with one algorithm and None there is no fourth
pub enum DigestPolicy {
    /// First of the initiator's list that we know.
    Any,
    /// CRC32C or nothing.
    Required,
    /// None only.
    Off,
}

/// Which resets of a whole target an initiator may ask for (RFC 7143 §11.5.1); others are answered
/// with "function authorization failed".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(clippy::exhaustive_enums)] // the resets of the standard
pub enum TargetReset {
    /// None.
    None,
    /// TARGET WARM RESET: all tasks on the units that the initiator sees end, whoever sent them.
    Warm,
    /// TARGET COLD RESET, too: all sessions of the target end.
    Cold,
}
