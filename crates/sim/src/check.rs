// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Invariants that can be seen on the wire, over the headers as both sides sent them.

use wire::iscsi::BHS_LEN;

use crate::net::Side;

/// What is known of one connection.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    up: bool,
    /// Broken invariants, to be taken by the runner.
    pub(crate) broken: Vec<String>,
}

impl Checks {
    /// A PDU of the login phase.
    pub(crate) fn login(&mut self, _side: Side, _bhs: &[u8; BHS_LEN], _text: &[u8]) {}

    /// Full feature phase begins.
    pub(crate) const fn begin(&mut self) {
        self.up = true;
    }

    /// A PDU of the full feature phase.
    pub(crate) fn pdu(&mut self, _side: Side, _bhs: &[u8; BHS_LEN], _data_len: usize) {}
}
