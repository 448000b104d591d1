// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a SCSI command ends: Data-In and status (RFC 7143 §11.4, §11.7).

use super::names::ConnectionId;
use alloc::vec::Vec;
use buf::Slice;
use wire::iscsi::CollapsedStatus;
use wire::iscsi::DataSn;
use wire::iscsi::Itt;
use wire::iscsi::Numbers;
use wire::iscsi::Residual;
use wire::iscsi::ScsiResponse;
use wire::scsi::sam::BUSY;
use wire::scsi::sam::CONDITION_MET;
use wire::scsi::sam::GOOD;
use wire::scsi::sam::TASK_SET_FULL;

/// In units of 100 ms, for the unit alone (SAM-5 §5.3.2): buffers are free again after a few round
/// trips.
const RETRY_DELAY: u16 = 1;

/// Response code "command completed at target" (RFC 7143 §11.4.3).
const COMPLETED_AT_TARGET: u8 = 0x00;

/// The answer to a command that leaves.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) connection: ConnectionId,
    pub(super) itt: Itt,
    pub(super) status: u8,
    /// Without its length.
    pub(super) sense: Vec<u8>,
    /// What travels of the data that the SCSI side had.
    pub(super) data: Option<Slice>,
    pub(super) residual: Residual,
    pub(super) bidi_read_residual: Residual,
    /// Status Qualifiers are agreed on (RFC 7144 §6.2.1).
    pub(super) qualified: bool,
    /// Its mover lets status travel with data.
    pub(super) collapses: bool,
}

impl Reply {
    /// The status, if it travels with the last data.
    #[inline]
    pub(super) fn collapsed(&self) -> Option<CollapsedStatus> {
        let collapses = self.collapses && may_collapse(self.status) && self.data.is_some();
        collapses.then_some(CollapsedStatus { status: self.status, residual: self.residual })
    }

    /// The SCSI Response. ExpDataSN is not known here.
    pub(super) fn response(&self, numbers: Numbers) -> ScsiResponse {
        ScsiResponse {
            response: COMPLETED_AT_TARGET,
            status: self.status,
            status_qualifier: self.retry_delay(),
            itt: self.itt,
            snack_tag: 0,
            numbers,
            exp_data_sn: DataSn(0),
            bidi_read_residual: self.bidi_read_residual,
            residual: self.residual,
        }
    }

    /// Status Qualifier: when a command that found no room may be tried again (RFC 7144 §6.2.1).
    fn retry_delay(&self) -> u16 {
        let is_full = matches!(self.status, BUSY | TASK_SET_FULL);
        if is_full && self.qualified { RETRY_DELAY } else { 0 }
    }
}

/// True for a status that may travel with the last data (RFC 7143 §11.7.3).
const fn may_collapse(status: u8) -> bool {
    matches!(status, GOOD | CONDITION_MET)
}

/// RFC 7143 §11.4.5.2: what the SCSI layer presents against what the initiator expects.
pub(super) fn residual(expected: u32, presented: u64) -> Residual {
    let wide = u64::from(expected);
    if presented > wide {
        Residual::Overflow(u32::try_from(presented - wide).unwrap_or(u32::MAX))
    } else if presented < wide {
        Residual::Underflow(u32::try_from(wide - presented).unwrap_or(u32::MAX))
    } else {
        Residual::None
    }
}

/// SenseLength and sense data (RFC 7143 §11.4.7.1); nothing without sense.
pub(super) fn sense_segment(sense: &[u8]) -> Vec<u8> {
    if sense.is_empty() {
        return Vec::new();
    }
    let sense = sense.get(..SENSE_MAX).unwrap_or(sense);
    let length = u16::try_from(sense.len()).unwrap_or(0);
    let mut segment = Vec::with_capacity(2 + sense.len());
    segment.extend_from_slice(&length.to_be_bytes());
    segment.extend_from_slice(sense);
    segment
}

/// Longest sense data, bytes (SPC-4 §4.5.2.1).
const SENSE_MAX: usize = 252;

/// The same over RDMA: Linux's ib_iser has room for 128 bytes of data, whatever it has negotiated
/// (ISER_RECV_DATA_SEG_LEN), and a longer message ends its connection.
pub(super) const RDMA_SENSE_MAX: usize = 126;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn residual_table() {
        assert_eq!(residual(4096, 4096), Residual::None);
        assert_eq!(residual(2048, 4096), Residual::Overflow(2048));
        assert_eq!(residual(8192, 4096), Residual::Underflow(4096));
        assert_eq!(residual(36, 36), Residual::None);
        assert_eq!(residual(255, 96), Residual::Underflow(159));
        assert_eq!(residual(512, 0), Residual::Underflow(512));
        assert_eq!(residual(0, u64::MAX), Residual::Overflow(u32::MAX));
    }
}
