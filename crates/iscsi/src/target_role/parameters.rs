// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was negotiated (RFC 7143 §13).

use crate::datamover::Markers;
use crate::params::Id;
use crate::params::Values;

/// How ends of tasks are reported (RFC 7143 §13.23).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // the three of the standard
pub enum TaskReporting {
    /// As RFC 3720 has it.
    Rfc3720,
    /// With response fences.
    ResponseFence,
    /// With response fences and fast multi-task abort.
    FastAbort,
}

/// What was negotiated for RDMA (RFC 7145 §6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RdmaParameters {
    /// MaxOutstandingUnexpectedPDUs of the peer; zero: it states no limit.
    pub unexpected_max: u32,
    /// Of a target what it has stated itself; zero: no limit.
    pub own_unexpected_max: u32,
    /// TaggedBufferForSolicitedDataOnly.
    pub solicited_only: bool,
    /// iSERHelloRequired.
    pub hello: bool,
}

/// All negotiated values of a session and its connection (RFC 7143 §13).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// HeaderDigest is CRC32C.
    pub header_digest: bool,
    /// DataDigest is CRC32C.
    pub data_digest: bool,
    /// MaxRecvDataSegmentLength of the initiator, which bounds what we send, bytes.
    pub max_send_data_segment_length: u32,
    /// MaxRecvDataSegmentLength as we declared it, bytes.
    pub max_recv_data_segment_length: u32,
    /// MaxBurstLength, bytes.
    pub max_burst_length: u32,
    /// FirstBurstLength, bytes; never above MaxBurstLength.
    pub first_burst_length: u32,
    /// InitialR2T.
    pub initial_r2t: bool,
    /// ImmediateData.
    pub immediate_data: bool,
    /// MaxOutstandingR2T.
    pub max_outstanding_r2t: u16,
    /// DefaultTime2Wait, seconds.
    pub time2wait: u16,
    /// DefaultTime2Retain, seconds.
    pub time2retain: u16,
    /// MaxConnections.
    pub max_connections: u16,
    /// ErrorRecoveryLevel.
    pub error_recovery_level: u8,
    /// DataPDUInOrder.
    pub data_pdu_in_order: bool,
    /// DataSequenceInOrder.
    pub data_sequence_in_order: bool,
    /// TaskReporting.
    pub task_reporting: TaskReporting,
    /// iSCSIProtocolLevel.
    pub protocol_level: u8,
    /// IFMarker and IFMarkInt for what we send, OFMarker and OFMarkInt for what we receive.
    pub markers: Markers,
    /// RDMAExtensions, and what goes with it.
    pub rdma: Option<RdmaParameters>,
}

impl Parameters {
    /// What `values` come to, in either role. `declared`: what was declared as our own
    /// MaxRecvDataSegmentLength, or the default.
    pub(crate) fn agreed(values: &Values, declared: &Values, markers: Markers) -> Self {
        let short = |id| u16::try_from(values.get(id)).unwrap_or(u16::MAX);
        let byte = |id| u8::try_from(values.get(id)).unwrap_or(u8::MAX);
        let max_burst_length = values.get(Id::MaxBurstLength);
        // With recovery and data sequences in order, a task has one R2T at a time (RFC 7143
        // §13.19), also where the other keys were agreed on later than MaxOutstandingR2T.
        let recovers = values.get(Id::ErrorRecoveryLevel) > 0;
        let single = recovers && values.is_yes(Id::DataSequenceInOrder);
        Self {
            header_digest: values.is_yes(Id::HeaderDigest),
            data_digest: values.is_yes(Id::DataDigest),
            max_send_data_segment_length: values.get(Id::MaxRecvDataSegmentLength),
            max_recv_data_segment_length: declared.get(Id::MaxRecvDataSegmentLength),
            max_burst_length,
            // A default above the agreed MaxBurstLength can only mean MaxBurstLength.
            first_burst_length: values.get(Id::FirstBurstLength).min(max_burst_length),
            initial_r2t: values.is_yes(Id::InitialR2T),
            immediate_data: values.is_yes(Id::ImmediateData),
            max_outstanding_r2t: if single { 1 } else { short(Id::MaxOutstandingR2T) },
            time2wait: short(Id::DefaultTime2Wait),
            time2retain: short(Id::DefaultTime2Retain),
            max_connections: short(Id::MaxConnections),
            error_recovery_level: byte(Id::ErrorRecoveryLevel),
            data_pdu_in_order: values.is_yes(Id::DataPduInOrder),
            data_sequence_in_order: values.is_yes(Id::DataSequenceInOrder),
            task_reporting: match values.get(Id::TaskReporting) {
                1 => TaskReporting::ResponseFence,
                2 => TaskReporting::FastAbort,
                _ => TaskReporting::Rfc3720,
            },
            protocol_level: byte(Id::ProtocolLevel),
            markers,
            rdma: None,
        }
    }

    /// Over RDMA other keys say how much data a PDU has: `own` for what we take, `peer` for what
    /// the peer does. There are no digests and no markers, whatever was agreed on (RFC 7145 §6.1,
    /// §6.2, §6.6).
    pub(crate) fn over_rdma(self, values: &Values, (own, peer): (Id, Id)) -> Self {
        Self {
            header_digest: false,
            data_digest: false,
            max_send_data_segment_length: values.get(peer),
            max_recv_data_segment_length: values.get(own),
            markers: Markers::default(),
            rdma: Some(RdmaParameters {
                unexpected_max: values.get(Id::MaxOutstandingUnexpectedPdus),
                own_unexpected_max: 0,
                solicited_only: values.is_yes(Id::TaggedBufferForSolicitedDataOnly),
                hello: values.is_yes(Id::IserHelloRequired),
            }),
            ..self
        }
    }

    /// Those of a connection that joins: what each connection has for itself is its own, the rest
    /// is the session's (RFC 7143 §6.3, §13).
    pub(crate) fn joining(self, session: Self) -> Self {
        Self {
            header_digest: self.header_digest,
            data_digest: self.data_digest,
            max_send_data_segment_length: self.max_send_data_segment_length,
            max_recv_data_segment_length: self.max_recv_data_segment_length,
            markers: self.markers,
            ..session
        }
    }
}
