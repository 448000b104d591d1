// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which commands each asymmetric access state lets through (SPC-4 §5.15.2.4).

use crate::table::Entry;
use crate::table::Flag;
use wire::scsi::opcode;
use wire::scsi::opcode::Opcode;

/// The states that let a command through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reach {
    /// The active ones.
    Active,
    /// Standby too.
    Standby,
    /// Standby and unavailable too.
    Unavailable,
    /// All, transitioning among them.
    Always,
}

impl Reach {
    /// Of a command. READ CAPACITY is not in the list of the standard, which allows more than it
    /// lists: hosts ask for it when they find a path, whatever the state.
    pub(crate) fn of(entry: &Entry) -> Self {
        if entry.has(Flag::Informative) {
            return Self::Always;
        }
        match (entry.opcode, entry.service_action) {
            (Opcode::MAINTENANCE_IN, Some(opcode::REPORT_TARGET_PORT_GROUPS)) => Self::Always,
            (Opcode::MAINTENANCE_OUT, Some(opcode::SET_TARGET_PORT_GROUPS))
            | (Opcode::READ_BUFFER_10 | Opcode::WRITE_BUFFER, _) => Self::Unavailable,
            (
                Opcode::LOG_SELECT
                | Opcode::LOG_SENSE
                | Opcode::MODE_SELECT_6
                | Opcode::MODE_SELECT_10
                | Opcode::MODE_SENSE_6
                | Opcode::MODE_SENSE_10
                | Opcode::RECEIVE_DIAGNOSTIC_RESULTS
                | Opcode::SEND_DIAGNOSTIC
                | Opcode::PERSISTENT_RESERVE_IN
                | Opcode::PERSISTENT_RESERVE_OUT
                | Opcode::READ_CAPACITY_10,
                _,
            )
            | (Opcode::SERVICE_ACTION_IN_16, Some(opcode::READ_CAPACITY_16))
            | (Opcode::MAINTENANCE_IN, Some(opcode::REPORT_SUPPORTED_OPERATION_CODES)) => {
                Self::Standby
            }
            _ => Self::Active,
        }
    }
}
