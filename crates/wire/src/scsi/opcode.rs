// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Operation codes (SPC-4 annex E) and service actions.

/// An operation code, byte 0 of a CDB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Opcode(pub u8);

macro_rules! opcodes {
    ($($name:ident = $value:literal, $text:literal;)*) => {
        impl Opcode {
            $(#[doc = $text] pub const $name: Self = Self($value);)*

            /// The name in the standard; None for a code that this crate does not know.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

opcodes! {
    TEST_UNIT_READY = 0x00, "TEST UNIT READY";
    REQUEST_SENSE = 0x03, "REQUEST SENSE";
    FORMAT_UNIT = 0x04, "FORMAT UNIT";
    READ_6 = 0x08, "READ(6)";
    WRITE_6 = 0x0a, "WRITE(6)";
    INQUIRY = 0x12, "INQUIRY";
    MODE_SELECT_6 = 0x15, "MODE SELECT(6)";
    RESERVE_6 = 0x16, "RESERVE(6)";
    RELEASE_6 = 0x17, "RELEASE(6)";
    MODE_SENSE_6 = 0x1a, "MODE SENSE(6)";
    START_STOP_UNIT = 0x1b, "START STOP UNIT";
    RECEIVE_DIAGNOSTIC_RESULTS = 0x1c, "RECEIVE DIAGNOSTIC RESULTS";
    SEND_DIAGNOSTIC = 0x1d, "SEND DIAGNOSTIC";
    PREVENT_ALLOW_MEDIUM_REMOVAL = 0x1e, "PREVENT ALLOW MEDIUM REMOVAL";
    READ_CAPACITY_10 = 0x25, "READ CAPACITY(10)";
    READ_10 = 0x28, "READ(10)";
    WRITE_10 = 0x2a, "WRITE(10)";
    WRITE_AND_VERIFY_10 = 0x2e, "WRITE AND VERIFY(10)";
    VERIFY_10 = 0x2f, "VERIFY(10)";
    PRE_FETCH_10 = 0x34, "PRE-FETCH(10)";
    SYNCHRONIZE_CACHE_10 = 0x35, "SYNCHRONIZE CACHE(10)";
    READ_DEFECT_DATA_10 = 0x37, "READ DEFECT DATA(10)";
    WRITE_BUFFER = 0x3b, "WRITE BUFFER";
    READ_BUFFER_10 = 0x3c, "READ BUFFER(10)";
    WRITE_SAME_10 = 0x41, "WRITE SAME(10)";
    UNMAP = 0x42, "UNMAP";
    READ_TOC = 0x43, "READ TOC/PMA/ATIP";
    GET_CONFIGURATION = 0x46, "GET CONFIGURATION";
    SANITIZE = 0x48, "SANITIZE";
    GET_EVENT_STATUS_NOTIFICATION = 0x4a, "GET EVENT STATUS NOTIFICATION";
    LOG_SELECT = 0x4c, "LOG SELECT";
    LOG_SENSE = 0x4d, "LOG SENSE";
    READ_DISC_INFORMATION = 0x51, "READ DISC INFORMATION";
    READ_TRACK_INFORMATION = 0x52, "READ TRACK INFORMATION";
    MODE_SELECT_10 = 0x55, "MODE SELECT(10)";
    RESERVE_10 = 0x56, "RESERVE(10)";
    RELEASE_10 = 0x57, "RELEASE(10)";
    MODE_SENSE_10 = 0x5a, "MODE SENSE(10)";
    PERSISTENT_RESERVE_IN = 0x5e, "PERSISTENT RESERVE IN";
    PERSISTENT_RESERVE_OUT = 0x5f, "PERSISTENT RESERVE OUT";
    VARIABLE_LENGTH = 0x7f, "variable length CDB";
    THIRD_PARTY_COPY_OUT = 0x83, "THIRD-PARTY COPY OUT";
    THIRD_PARTY_COPY_IN = 0x84, "THIRD-PARTY COPY IN";
    READ_16 = 0x88, "READ(16)";
    COMPARE_AND_WRITE = 0x89, "COMPARE AND WRITE";
    WRITE_16 = 0x8a, "WRITE(16)";
    ORWRITE_16 = 0x8b, "ORWRITE(16)";
    WRITE_AND_VERIFY_16 = 0x8e, "WRITE AND VERIFY(16)";
    VERIFY_16 = 0x8f, "VERIFY(16)";
    PRE_FETCH_16 = 0x90, "PRE-FETCH(16)";
    SYNCHRONIZE_CACHE_16 = 0x91, "SYNCHRONIZE CACHE(16)";
    WRITE_SAME_16 = 0x93, "WRITE SAME(16)";
    WRITE_ATOMIC_16 = 0x9c, "WRITE ATOMIC(16)";
    SERVICE_ACTION_IN_16 = 0x9e, "SERVICE ACTION IN(16)";
    REPORT_LUNS = 0xa0, "REPORT LUNS";
    MAINTENANCE_IN = 0xa3, "MAINTENANCE IN";
    MAINTENANCE_OUT = 0xa4, "MAINTENANCE OUT";
    READ_12 = 0xa8, "READ(12)";
    WRITE_12 = 0xaa, "WRITE(12)";
    READ_DISC_STRUCTURE = 0xad, "READ DISC STRUCTURE";
    WRITE_AND_VERIFY_12 = 0xae, "WRITE AND VERIFY(12)";
    VERIFY_12 = 0xaf, "VERIFY(12)";
    READ_DEFECT_DATA_12 = 0xb7, "READ DEFECT DATA(12)";
    SET_CD_SPEED = 0xbb, "SET CD SPEED";
    MECHANISM_STATUS = 0xbd, "MECHANISM STATUS";
    READ_CD = 0xbe, "READ CD";
}

/// READ CAPACITY(16), service action of SERVICE ACTION IN(16) (SBC-3 §5.16).
pub const READ_CAPACITY_16: u16 = 0x10;
/// GET LBA STATUS, service action of SERVICE ACTION IN(16) (SBC-3 §5.4).
pub const GET_LBA_STATUS_16: u16 = 0x12;
/// READ(32), service action of the variable length CDB (SBC-3 §5.14).
pub const READ_32: u16 = 0x0009;
/// VERIFY(32) (SBC-3 §5.33).
pub const VERIFY_32: u16 = 0x000a;
/// WRITE(32) (SBC-3 §5.38).
pub const WRITE_32: u16 = 0x000b;
/// WRITE AND VERIFY(32) (SBC-3 §5.42).
pub const WRITE_AND_VERIFY_32: u16 = 0x000c;
/// WRITE SAME(32) (SBC-3 §5.46).
pub const WRITE_SAME_32: u16 = 0x000d;
/// REPORT IDENTIFYING INFORMATION, service action of MAINTENANCE IN (SPC-4 §6.32).
pub const REPORT_IDENTIFYING_INFORMATION: u16 = 0x05;
/// SET IDENTIFYING INFORMATION, service action of MAINTENANCE OUT (SPC-4 §6.43).
pub const SET_IDENTIFYING_INFORMATION: u16 = 0x06;
/// REPORT TIMESTAMP, service action of MAINTENANCE IN (SPC-4 §6.38).
pub const REPORT_TIMESTAMP: u16 = 0x0f;
/// SET TIMESTAMP, service action of MAINTENANCE OUT (SPC-4 §6.45).
pub const SET_TIMESTAMP: u16 = 0x0f;
/// REPORT TARGET PORT GROUPS, service action of MAINTENANCE IN (SPC-4 §6.37).
pub const REPORT_TARGET_PORT_GROUPS: u16 = 0x0a;
/// SET TARGET PORT GROUPS, service action of MAINTENANCE OUT (SPC-4 §6.45).
pub const SET_TARGET_PORT_GROUPS: u16 = 0x0a;
/// REPORT SUPPORTED OPERATION CODES, service action of MAINTENANCE IN (SPC-4 §6.35).
pub const REPORT_SUPPORTED_OPERATION_CODES: u16 = 0x0c;
/// REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS, service action of MAINTENANCE IN (SPC-4 §6.36).
pub const REPORT_SUPPORTED_TASK_MANAGEMENT_FUNCTIONS: u16 = 0x0d;

impl Opcode {
    /// The name of a service action of this operation code in the standard; None for one that this
    /// crate does not know.
    #[must_use]
    pub const fn action_name(self, action: u16) -> Option<&'static str> {
        Some(match (self, action) {
            (Self::SANITIZE, 0x01) => "SANITIZE, overwrite",
            (Self::SANITIZE, 0x02) => "SANITIZE, block erase",
            (Self::SANITIZE, 0x03) => "SANITIZE, cryptographic erase",
            (Self::SANITIZE, 0x1f) => "SANITIZE, exit failure mode",
            (Self::PERSISTENT_RESERVE_IN, 0x00) => "PERSISTENT RESERVE IN, READ KEYS",
            (Self::PERSISTENT_RESERVE_IN, 0x01) => "PERSISTENT RESERVE IN, READ RESERVATION",
            (Self::PERSISTENT_RESERVE_IN, 0x02) => "PERSISTENT RESERVE IN, REPORT CAPABILITIES",
            (Self::PERSISTENT_RESERVE_IN, 0x03) => "PERSISTENT RESERVE IN, READ FULL STATUS",
            (Self::PERSISTENT_RESERVE_OUT, 0x00) => "PERSISTENT RESERVE OUT, REGISTER",
            (Self::PERSISTENT_RESERVE_OUT, 0x01) => "PERSISTENT RESERVE OUT, RESERVE",
            (Self::PERSISTENT_RESERVE_OUT, 0x02) => "PERSISTENT RESERVE OUT, RELEASE",
            (Self::PERSISTENT_RESERVE_OUT, 0x03) => "PERSISTENT RESERVE OUT, CLEAR",
            (Self::PERSISTENT_RESERVE_OUT, 0x04) => "PERSISTENT RESERVE OUT, PREEMPT",
            (Self::PERSISTENT_RESERVE_OUT, 0x05) => "PERSISTENT RESERVE OUT, PREEMPT AND ABORT",
            (Self::PERSISTENT_RESERVE_OUT, 0x06) => {
                "PERSISTENT RESERVE OUT, REGISTER AND IGNORE EXISTING KEY"
            }
            (Self::PERSISTENT_RESERVE_OUT, 0x07) => "PERSISTENT RESERVE OUT, REGISTER AND MOVE",
            (Self::VARIABLE_LENGTH, READ_32) => "READ(32)",
            (Self::VARIABLE_LENGTH, VERIFY_32) => "VERIFY(32)",
            (Self::VARIABLE_LENGTH, WRITE_32) => "WRITE(32)",
            (Self::VARIABLE_LENGTH, WRITE_AND_VERIFY_32) => "WRITE AND VERIFY(32)",
            (Self::VARIABLE_LENGTH, WRITE_SAME_32) => "WRITE SAME(32)",
            (Self::THIRD_PARTY_COPY_OUT, 0x00) => "EXTENDED COPY(LID1)",
            (Self::THIRD_PARTY_COPY_OUT, 0x01) => "EXTENDED COPY(LID4)",
            (Self::THIRD_PARTY_COPY_OUT, 0x10) => "POPULATE TOKEN",
            (Self::THIRD_PARTY_COPY_OUT, 0x11) => "WRITE USING TOKEN",
            (Self::THIRD_PARTY_COPY_OUT, 0x1c) => "COPY OPERATION ABORT",
            (Self::THIRD_PARTY_COPY_IN, 0x00) => "RECEIVE COPY STATUS(LID1)",
            (Self::THIRD_PARTY_COPY_IN, 0x01) => "RECEIVE COPY DATA(LID1)",
            (Self::THIRD_PARTY_COPY_IN, 0x03) => "RECEIVE COPY OPERATING PARAMETERS",
            (Self::THIRD_PARTY_COPY_IN, 0x04) => "RECEIVE COPY FAILURE DETAILS(LID1)",
            (Self::THIRD_PARTY_COPY_IN, 0x05) => "RECEIVE COPY STATUS(LID4)",
            (Self::THIRD_PARTY_COPY_IN, 0x06) => "RECEIVE COPY DATA(LID4)",
            (Self::THIRD_PARTY_COPY_IN, 0x07) => "RECEIVE ROD TOKEN INFORMATION",
            (Self::THIRD_PARTY_COPY_IN, 0x08) => "REPORT ALL ROD TOKENS",
            (Self::SERVICE_ACTION_IN_16, READ_CAPACITY_16) => "READ CAPACITY(16)",
            (Self::SERVICE_ACTION_IN_16, GET_LBA_STATUS_16) => "GET LBA STATUS",
            (Self::MAINTENANCE_IN, REPORT_IDENTIFYING_INFORMATION) => {
                "REPORT IDENTIFYING INFORMATION"
            }
            (Self::MAINTENANCE_IN, REPORT_TARGET_PORT_GROUPS) => "REPORT TARGET PORT GROUPS",
            (Self::MAINTENANCE_IN, REPORT_SUPPORTED_OPERATION_CODES) => {
                "REPORT SUPPORTED OPERATION CODES"
            }
            (Self::MAINTENANCE_IN, REPORT_SUPPORTED_TASK_MANAGEMENT_FUNCTIONS) => {
                "REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS"
            }
            (Self::MAINTENANCE_IN, REPORT_TIMESTAMP) => "REPORT TIMESTAMP",
            (Self::MAINTENANCE_OUT, SET_IDENTIFYING_INFORMATION) => "SET IDENTIFYING INFORMATION",
            (Self::MAINTENANCE_OUT, SET_TARGET_PORT_GROUPS) => "SET TARGET PORT GROUPS",
            (Self::MAINTENANCE_OUT, SET_TIMESTAMP) => "SET TIMESTAMP",
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_of_the_standard() {
        assert_eq!(Opcode::READ_10.name(), Some("READ(10)"));
        assert_eq!(Opcode(0xff).name(), None);
        assert_eq!(Opcode::MAINTENANCE_IN.action_name(0x0f), Some("REPORT TIMESTAMP"));
        assert_eq!(Opcode::MAINTENANCE_IN.action_name(0x1f), None);
    }
}
