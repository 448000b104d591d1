// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a session takes from its initiator.

use super::names::ConnectionId;

/// A PDU at hand.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pdu<'a> {
    pub(super) connection: ConnectionId,
    /// BHS and AHS.
    pub(super) header: &'a [u8],
    pub(super) data: &'a [u8],
}
