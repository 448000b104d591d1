// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was negotiated that tasks must know.

use crate::datamover::Capabilities;
use crate::target_role::limits;
use crate::target_role::parameters::Parameters;

/// The keys that decide about a command and its data (RFC 7143 §13.10-13.20).
#[derive(Clone, Copy, Debug)]
pub(in crate::target_role) struct Terms {
    pub(super) initial_r2t: bool,
    pub(super) immediate_data: bool,
    pub(super) first_burst_length: u32,
    pub(super) max_burst_length: u32,
    /// R2Ts of a task that may be open. With recovery and DataSequenceInOrder=Yes that is one,
    /// whatever the initiator would take (§13.19): the login agrees on no more.
    pub(super) open_r2t_max: u16,
    /// ErrorRecoveryLevel is above 0, and what is lost on its way is asked for again.
    pub(super) recovers: bool,
    /// Answers are kept until they are acknowledged, and what was asked for until it has come: to
    /// be sent again, or on another connection.
    pub(super) keeps: bool,
    /// iSCSIProtocolLevel is 2: priorities and Status Qualifiers count (RFC 7144 §4, §6.2.1).
    pub(super) has_level_two: bool,
    /// Status may travel with the last data.
    pub(super) collapses: bool,
}

impl Terms {
    pub(in crate::target_role) fn new(parameters: &Parameters, capabilities: Capabilities) -> Self {
        let level = parameters.error_recovery_level;
        let recovers = level > 0 && capabilities.numbers_data;
        Self {
            initial_r2t: parameters.initial_r2t,
            immediate_data: parameters.immediate_data,
            first_burst_length: parameters.first_burst_length,
            max_burst_length: parameters.max_burst_length,
            open_r2t_max: parameters.max_outstanding_r2t.clamp(1, limits::OPEN_R2T_MAX),
            recovers,
            keeps: recovers || level >= 2,
            has_level_two: parameters.protocol_level >= 2,
            collapses: capabilities.collapses_status,
        }
    }
}
