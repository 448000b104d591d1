// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Status codes (SAM-5 §5.3.1).

/// GOOD.
pub const GOOD: u8 = 0x00;
/// CHECK CONDITION: sense data says more.
pub const CHECK_CONDITION: u8 = 0x02;
/// CONDITION MET.
pub const CONDITION_MET: u8 = 0x04;
/// BUSY.
pub const BUSY: u8 = 0x08;
/// RESERVATION CONFLICT.
pub const RESERVATION_CONFLICT: u8 = 0x18;
/// TASK SET FULL.
pub const TASK_SET_FULL: u8 = 0x28;
/// ACA ACTIVE.
pub const ACA_ACTIVE: u8 = 0x30;
/// TASK ABORTED: by another nexus than that of the task.
pub const TASK_ABORTED: u8 = 0x40;

/// The name of a status code.
#[must_use]
pub const fn name(status: u8) -> Option<&'static str> {
    Some(match status {
        GOOD => "GOOD",
        CHECK_CONDITION => "CHECK CONDITION",
        CONDITION_MET => "CONDITION MET",
        BUSY => "BUSY",
        RESERVATION_CONFLICT => "RESERVATION CONFLICT",
        TASK_SET_FULL => "TASK SET FULL",
        ACA_ACTIVE => "ACA ACTIVE",
        TASK_ABORTED => "TASK ABORTED",
        _ => return None,
    })
}
