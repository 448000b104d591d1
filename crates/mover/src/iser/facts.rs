// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a connection has agreed on below iSER, for people.

use rdma::mpa::Framing;

use super::stream::Stream;

/// What iWARP does on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Facts {
    /// RDMA Reads of the peer that are served at once (IRD).
    pub ird: usize,
    /// RDMA Reads of ours that the peer serves at once (ORD).
    pub ord: usize,
    /// Whether there are CRCs, and markers in each direction.
    pub framing: Framing,
    /// Bytes of the longest FPDU that is sent, without markers.
    pub fpdu_len: usize,
    /// STags that are good now.
    pub stags: usize,
    /// Bytes of the memory that they name.
    pub registered: usize,
}

impl Stream {
    /// None: it has not begun, or is over.
    pub(super) fn facts(&self) -> Option<Facts> {
        let qp = self.queue_pair()?;
        let (ird, ord) = qp.depths();
        let (stags, registered) = (self.regions.len(), self.regions.bytes());
        let (framing, fpdu_len) = (qp.framing(), qp.fpdu_len());
        Some(Facts { ird, ord, framing, fpdu_len, stags, registered })
    }
}
