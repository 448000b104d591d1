// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What additional sense codes say (SPC-4 annex F), as far as a disk or its transport uses them.

use super::SenseKey;

/// The meaning of an additional sense code and its qualifier; None for one that is not listed here.
#[must_use]
pub const fn text(asc: u8, ascq: u8) -> Option<&'static str> {
    Some(match (asc, ascq) {
        (0x00, 0x00) => "no additional sense information",
        (0x04, 0x00) => "not ready, cause not reportable",
        (0x04, 0x01) => "becoming ready",
        (0x04, 0x02) => "not ready, start unit required",
        (0x04, 0x03) => "not ready, manual intervention required",
        (0x04, 0x0a) => "not accessible, asymmetric access state transition",
        (0x04, 0x0b) => "not accessible, target port in standby state",
        (0x04, 0x0c) => "not accessible, target port in unavailable state",
        (0x08, 0x00) => "communication failure",
        (0x0c, 0x00) => "write error",
        (0x0c, 0x02) => "write error, auto reallocation failed",
        (0x0c, 0x0c) => "write error, unexpected unsolicited data",
        (0x0c, 0x0d) => "write error, not enough unsolicited data",
        (0x10, 0x01) => "logical block guard check failed",
        (0x11, 0x00) => "unrecovered read error",
        (0x1a, 0x00) => "parameter list length error",
        (0x1d, 0x00) => "miscompare during verify operation",
        (0x20, 0x00) => "invalid command operation code",
        (0x20, 0x02) => "access denied, no access rights",
        (0x21, 0x00) => "logical block address out of range",
        (0x24, 0x00) => "invalid field in CDB",
        (0x25, 0x00) => "logical unit not supported",
        (0x26, 0x00) => "invalid field in parameter list",
        (0x27, 0x00) => "write protected",
        (0x27, 0x02) => "logical unit software write protected",
        (0x27, 0x07) => "space allocation failed, the disk is full",
        (0x28, 0x00) => "medium may have changed",
        (0x29, 0x00) => "power on, reset, or bus device reset occurred",
        (0x29, 0x01) => "power on occurred",
        (0x29, 0x02) => "bus reset occurred",
        (0x29, 0x03) => "bus device reset function occurred",
        (0x29, 0x04) => "device internal reset",
        (0x29, 0x07) => "I_T nexus loss occurred",
        (0x2a, 0x01) => "mode parameters changed",
        (0x2a, 0x03) => "reservations preempted",
        (0x2a, 0x04) => "reservations released",
        (0x2a, 0x05) => "registrations preempted",
        (0x2a, 0x06) => "asymmetric access state changed",
        (0x2a, 0x09) => "capacity data has changed",
        (0x2c, 0x00) => "command sequence error",
        (0x2f, 0x00) => "commands cleared by another initiator",
        (0x3a, 0x00) => "medium not present",
        (0x3e, 0x00) => "logical unit has not self-configured yet",
        (0x3e, 0x01) => "logical unit failure",
        (0x3f, 0x01) => "microcode has been changed",
        (0x3f, 0x03) => "inquiry data has changed",
        (0x3f, 0x0e) => "reported LUNs data has changed",
        (0x44, 0x00) => "internal target failure",
        (0x47, 0x00) => "SCSI parity error",
        (0x47, 0x03) => "information unit CRC error",
        (0x47, 0x05) => "protocol service CRC error",
        (0x47, 0x7f) => "some commands cleared by iSCSI protocol event",
        (0x48, 0x00) => "initiator detected error message received",
        (0x49, 0x00) => "invalid message error",
        (0x4e, 0x00) => "overlapped commands attempted",
        (0x55, 0x03) => "insufficient resources",
        (0x5d, 0x00) => "failure prediction threshold exceeded",
        _ => return None,
    })
}

/// The name of a sense key.
#[must_use]
pub const fn key_name(key: SenseKey) -> &'static str {
    match key {
        SenseKey::NoSense => "NO SENSE",
        SenseKey::RecoveredError => "RECOVERED ERROR",
        SenseKey::NotReady => "NOT READY",
        SenseKey::MediumError => "MEDIUM ERROR",
        SenseKey::HardwareError => "HARDWARE ERROR",
        SenseKey::IllegalRequest => "ILLEGAL REQUEST",
        SenseKey::UnitAttention => "UNIT ATTENTION",
        SenseKey::DataProtect => "DATA PROTECT",
        SenseKey::BlankCheck => "BLANK CHECK",
        SenseKey::VendorSpecific => "VENDOR SPECIFIC",
        SenseKey::CopyAborted => "COPY ABORTED",
        SenseKey::AbortedCommand => "ABORTED COMMAND",
        SenseKey::Reserved => "RESERVED",
        SenseKey::VolumeOverflow => "VOLUME OVERFLOW",
        SenseKey::Miscompare => "MISCOMPARE",
        SenseKey::Completed => "COMPLETED",
    }
}
