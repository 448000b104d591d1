// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was negotiated, as far as the invariants need it.

use std::collections::BTreeSet;

use crate::net::Side;

/// The outcome of a login so far.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    /// MaxRecvDataSegmentLength that each side declared, bytes.
    pub(super) segment: [u32; 2],
    /// As much as PDUs over RDMA have,
    pub(super) segment_rdma: [u32; 2],
    /// which its connections are, or become.
    pub(super) rdma: bool,
    pub(super) max_burst: u32,
    pub(super) first_burst: u32,
    pub(super) initial_r2t: bool,
    pub(super) immediate_data: bool,
    pub(super) outstanding_r2t: u32,
    pub(super) error_recovery_level: u32,
    pub(super) max_connections: u32,
    /// DataPDUInOrder and DataSequenceInOrder.
    pub(super) in_order: [bool; 2],
    /// Keys that each side has sent.
    seen: [BTreeSet<String>; 2],
    /// The part of a pair that the PDU before ended with.
    begun: [Vec<u8>; 2],
}

impl Default for Keys {
    /// RFC 7143 §13.
    fn default() -> Self {
        Self {
            segment: [8192; 2],
            segment_rdma: [8192; 2],
            rdma: false,
            max_burst: 262_144,
            first_burst: 65_536,
            initial_r2t: true,
            immediate_data: true,
            outstanding_r2t: 1,
            error_recovery_level: 0,
            max_connections: 1,
            in_order: [true; 2],
            seen: Default::default(),
            begun: Default::default(),
        }
    }
}

impl Keys {
    /// What holds for a connection that joins a session with these: all that the session agreed on,
    /// and its own MaxRecvDataSegmentLength (RFC 7143 §13).
    pub(super) fn join(&mut self, session: &Self) {
        let segment = self.segment;
        *self = Self { segment, ..session.clone() };
    }

    /// Whether PDUs may come twice, and tasks on another connection: over RDMA nothing is asked for
    /// again below level 2 (RFC 7143 §7.1.5, RFC 7145 §10.2).
    pub(super) const fn recovers(&self) -> bool {
        self.error_recovery_level > if self.rdma { 1 } else { 0 }
    }

    /// The text of a login PDU. A key is sent once (RFC 7143 §6.3), and the last word on it is the
    /// answer.
    pub(super) fn hear(&mut self, side: Side, text: &[u8]) -> Result<(), String> {
        let mut all = std::mem::take(&mut self.begun[side]);
        all.extend_from_slice(text);
        let mut pairs: Vec<&[u8]> = all.split(|byte| *byte == 0).collect();
        let rest = pairs.pop().unwrap_or_default().to_vec();
        for pair in pairs.into_iter().filter(|pair| !pair.is_empty()) {
            let pair = String::from_utf8_lossy(pair);
            let Some((key, value)) = pair.split_once('=') else {
                return Err(format!("side {side} sends {pair:?} as a pair"));
            };
            if !self.seen[side].insert(key.to_owned()) {
                return Err(format!("side {side} sends {key} twice"));
            }
            self.learn(side, key, value);
        }
        self.begun[side] = rest;
        Ok(())
    }

    fn learn(&mut self, side: Side, key: &str, value: &str) {
        let number = value.parse::<u32>();
        match (key, number) {
            ("MaxRecvDataSegmentLength", Ok(number)) => self.segment[side] = number,
            ("TargetRecvDataSegmentLength", Ok(number)) => self.segment_rdma[1] = number,
            ("InitiatorRecvDataSegmentLength", Ok(number)) => self.segment_rdma[0] = number,
            ("MaxBurstLength", Ok(number)) => self.max_burst = number,
            ("FirstBurstLength", Ok(number)) => self.first_burst = number,
            ("MaxOutstandingR2T", Ok(number)) => self.outstanding_r2t = number,
            ("ErrorRecoveryLevel", Ok(number)) => self.error_recovery_level = number,
            ("MaxConnections", Ok(number)) => self.max_connections = number,
            ("DataPDUInOrder", _) => self.in_order[0] = value == "Yes",
            ("DataSequenceInOrder", _) => self.in_order[1] = value == "Yes",
            ("InitialR2T", _) => self.initial_r2t = value == "Yes",
            ("ImmediateData", _) => self.immediate_data = value == "Yes",
            _ => {}
        }
    }
}
