// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A PDU as a message: the header of iSER, then BHS, AHS and data as on a stream, without digests
//! (RFC 7145 §7.2, §9.1).

use alloc::vec::Vec;
use core::ops::Range;

use buf::Slice;
use rdma::verbs::Head;
use wire::iscsi::BHS_LEN;
use wire::iscsi::BhsView;
use wire::iscsi::pad4;
use wire::iser::ISER_LEN;
use wire::iser::IserHeader;

use crate::limits::AHS_LEN_MAX;
use crate::limits::ISER_DATA_MAX;

/// Longest message that anybody may send.
pub(super) const MESSAGE_LEN_MAX: usize =
    ISER_LEN + BHS_LEN + AHS_LEN_MAX + pad4(ISER_DATA_MAX as usize);

/// Where a message has what.
#[derive(Clone, Debug, Default)]
pub(super) struct Parts {
    /// BHS and AHS.
    pub(super) header: Range<usize>,
    /// The data segment, without padding.
    pub(super) data: Range<usize>,
}

/// Finds the parts of a message; None if it does not have the length that its PDU says.
pub(super) fn parts(message: &[u8]) -> Option<Parts> {
    let pdu = message.get(ISER_LEN..)?;
    let view = BhsView::new_checked(pdu).ok()?;
    let start = ISER_LEN + BHS_LEN + view.total_ahs_length();
    let length = usize::try_from(view.data_segment_length()).ok()?;
    let end = start.checked_add(length)?;
    // Who leaves the padding out says the same.
    let is_whole = message.len() == end || message.len() == start + pad4(length);
    is_whole.then_some(Parts { header: ISER_LEN..start, data: start..end })
}

/// How a message begins; None if the header of its PDU is too long.
pub(super) fn head(iser: IserHeader, pdu: &[u8]) -> Option<Head> {
    Head::of(&[&iser.emit(), pdu])
}

/// Data with its padding.
pub(super) fn padded(data: Slice) -> Slice {
    if data.len().is_multiple_of(4) { data } else { padded_vec(data.to_vec()) }
}

/// As `padded`, of a value of its own.
pub(super) fn padded_vec(mut data: Vec<u8>) -> Slice {
    data.resize(pad4(data.len()), 0);
    if data.is_empty() { Slice::empty() } else { Slice::from(data) }
}
