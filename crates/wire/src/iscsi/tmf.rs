// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Task Management Function Request and Response (RFC 7143 §11.5, §11.6).

use super::bhs::{BHS_LEN, CMD_SN, EXP_STAT_SN, FINAL, IMMEDIATE, ITT, LUN, NUMBERS};
use super::field::Bits;
use super::field::Field;
use super::field::Header;
use super::field::Three;
use super::view::view;
use super::{CmdSn, DataSn, Itt, LunField, Numbers, ParseError, StatSn};

/// Opcode of a Task Management Function Request.
pub const OPCODE_TASK_MANAGEMENT_REQUEST: u8 = 0x02;

/// Opcode of a Task Management Function Response.
pub const OPCODE_TASK_MANAGEMENT_RESPONSE: u8 = 0x22;

const FUNCTION: Bits = Bits { at: 1, mask: 0x7f };
const REFERENCED_TASK: Field<Itt> = Field::at(20);
const REF_CMD_SN: Field<CmdSn> = Field::at(32);
const EXP_DATA_SN: Field<DataSn> = Field::at(36);
const RESPONSE: Field<u8> = Field::at(2);
const ADDITIONAL: Three = Three { at: 8 };

view! {
    /// The header of a Task Management Function Request (RFC 7143 §11.5).
    pub struct TaskManagementRequestView(
        "Task Management Request",
        OPCODE_TASK_MANAGEMENT_REQUEST
    ) {
        /// I: immediate delivery.
        "I" immediate: bool = IMMEDIATE;
        /// Function code.
        "Function" function: u8 = FUNCTION;
        /// Logical unit.
        "LUN" lun: LunField = LUN;
        /// Initiator Task Tag.
        "ITT" itt: Itt = ITT;
        /// Referenced Task Tag.
        "RTT" referenced_task: Itt = REFERENCED_TASK;
        /// CmdSN.
        "CmdSN" cmd_sn: CmdSn = CMD_SN;
        /// ExpStatSN.
        "ExpStatSN" exp_stat_sn: StatSn = EXP_STAT_SN;
        /// RefCmdSN.
        "RefCmdSN" ref_cmd_sn: CmdSn = REF_CMD_SN;
        /// ExpDataSN.
        "ExpDataSN" exp_data_sn: DataSn = EXP_DATA_SN;
    }
}

view! {
    /// The header of a Task Management Function Response (RFC 7143 §11.6).
    pub struct TaskManagementResponseView(
        "Task Management Response",
        OPCODE_TASK_MANAGEMENT_RESPONSE
    ) {
        /// Response code.
        "Response" response: u8 = RESPONSE;
        /// Additional response information, 24 bits.
        "Additional" additional: u32 = ADDITIONAL;
        /// Initiator Task Tag.
        "ITT" itt: Itt = ITT;
        /// StatSN, ExpCmdSN and MaxCmdSN.
        "StatSN/ExpCmdSN/MaxCmdSN" numbers: Numbers = NUMBERS;
    }
}

/// A task management function (RFC 7143 §11.5). It has neither AHS nor data (§11.5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskManagementRequest {
    /// I: deliver at once, outside of CmdSN order.
    pub immediate: bool,
    /// Function code as it came, 7 bits; `iscsi` decides which it supports.
    pub function: u8,
    /// Logical unit of the functions that address one.
    pub lun: LunField,
    /// Initiator Task Tag of the request itself.
    pub itt: Itt,
    /// The task that ABORT TASK, TASK REASSIGN or QUERY TASK names, else [`Itt::NONE`].
    pub referenced_task: Itt,
    /// CmdSN.
    pub cmd_sn: CmdSn,
    /// ExpStatSN.
    pub exp_stat_sn: StatSn,
    /// CmdSN of the task that ABORT TASK names.
    pub ref_cmd_sn: CmdSn,
    /// The next Data-In or R2T that TASK REASSIGN expects.
    pub exp_data_sn: DataSn,
}

impl TaskManagementRequest {
    /// Takes the header apart.
    ///
    /// # Errors
    /// [`ParseError::Inconsistent`] for AHS or data.
    pub fn parse<T: AsRef<[u8]>>(view: &TaskManagementRequestView<T>) -> Result<Self, ParseError> {
        view.bhs().expect_bare(OPCODE_TASK_MANAGEMENT_REQUEST)?;
        Ok(Self {
            immediate: view.immediate(),
            function: view.function(),
            lun: view.lun(),
            itt: view.bhs().task_tag()?,
            referenced_task: view.referenced_task(),
            cmd_sn: view.cmd_sn(),
            exp_stat_sn: view.exp_stat_sn(),
            ref_cmd_sn: view.ref_cmd_sn(),
            exp_data_sn: view.exp_data_sn(),
        })
    }

    /// The BHS. `data_segment_length` must be 0, and 0 is what goes out.
    pub fn emit(&self, data_segment_length: u32) -> [u8; BHS_LEN] {
        Header::bare(OPCODE_TASK_MANAGEMENT_REQUEST, data_segment_length)
            .with(IMMEDIATE, self.immediate)
            .with(FINAL, true)
            .with(FUNCTION, self.function)
            .with(LUN, self.lun)
            .with(ITT, self.itt)
            .with(REFERENCED_TASK, self.referenced_task)
            .with(CMD_SN, self.cmd_sn)
            .with(EXP_STAT_SN, self.exp_stat_sn)
            .with(REF_CMD_SN, self.ref_cmd_sn)
            .with(EXP_DATA_SN, self.exp_data_sn)
            .done()
    }
}

/// The end of a task management function (RFC 7143 §11.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskManagementResponse {
    /// Response code (RFC 7143 §11.6.1).
    pub response: u8,
    /// RFC 7144 additional response information, 24 bits.
    pub additional: u32,
    /// Initiator Task Tag of the request.
    pub itt: Itt,
    /// StatSN, ExpCmdSN and MaxCmdSN.
    pub numbers: Numbers,
}

impl TaskManagementResponse {
    /// Takes the header apart.
    ///
    /// # Errors
    /// [`ParseError::Inconsistent`] for AHS or data.
    pub fn parse<T: AsRef<[u8]>>(view: &TaskManagementResponseView<T>) -> Result<Self, ParseError> {
        view.bhs().expect_bare(OPCODE_TASK_MANAGEMENT_RESPONSE)?;
        Ok(Self {
            response: view.response(),
            additional: view.additional(),
            itt: view.bhs().task_tag()?,
            numbers: view.numbers(),
        })
    }

    /// The BHS. `data_segment_length` must be 0, and 0 is what goes out.
    pub fn emit(&self, data_segment_length: u32) -> [u8; BHS_LEN] {
        Header::bare(OPCODE_TASK_MANAGEMENT_RESPONSE, data_segment_length)
            .with(FINAL, true)
            .with(RESPONSE, self.response)
            .with(ADDITIONAL, self.additional)
            .with(ITT, self.itt)
            .with(NUMBERS, self.numbers)
            .done()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{line, reject_reason_with, request_vector, response_vector};
    use super::super::*;
    use super::*;

    /// Covers: TMF-27/S, FMT-11/T, FMT-11/I.
    #[test]
    fn request() {
        let pdu = TaskManagementRequest {
            immediate: true,
            function: 1,
            lun: LunField([0x40, 1, 0, 0, 0, 0, 0, 0]),
            itt: Itt(0x30),
            referenced_task: Itt(0x22),
            cmd_sn: CmdSn(6),
            exp_stat_sn: StatSn(0x68),
            ref_cmd_sn: CmdSn(5),
            exp_data_sn: DataSn(9),
        };
        let bytes = request_vector(
            Request::TaskManagement(pdu),
            0,
            "42 81 00 00 00 00 00 00 40 01 00 00 00 00 00 00
             00 00 00 30 00 00 00 22 00 00 00 06 00 00 00 68
             00 00 00 05 00 00 00 09 00 00 00 00 00 00 00 00",
        );
        assert_eq!(
            line(&bytes),
            "Task Management Request I Function=0x01 LUN=4001000000000000 ITT=0x00000030 \
             RTT=0x00000022 CmdSN=6 ExpStatSN=104 RefCmdSN=5 ExpDataSN=9"
        );
        assert_eq!(reject_reason_with(&bytes, 7, 1), Some(0x04), "data");
        assert_eq!(reject_reason_with(&[&bytes[..], &[0; 4]].concat(), 4, 1), Some(0x04), "AHS");
        assert_eq!(reject_reason_with(&bytes, 1, 0xff), None, "functions are not judged here");
    }

    /// Covers: TMF-27/S.
    #[test]
    fn response() {
        let pdu = TaskManagementResponse {
            response: 7,
            additional: 0x0001_0203,
            itt: Itt(0x30),
            numbers: Numbers {
                stat_sn: StatSn(0x68),
                exp_cmd_sn: CmdSn(6),
                max_cmd_sn: CmdSn(0x25),
            },
        };
        let bytes = response_vector(
            Response::TaskManagement(pdu),
            0,
            "22 80 07 00 00 00 00 00 01 02 03 00 00 00 00 00
             00 00 00 30 00 00 00 00 00 00 00 68 00 00 00 06
             00 00 00 25 00 00 00 00 00 00 00 00 00 00 00 00",
        );
        assert_eq!(
            line(&bytes),
            "Task Management Response Response=0x07 Additional=66051 ITT=0x00000030 \
             StatSN/ExpCmdSN/MaxCmdSN=104/6/37"
        );
    }
}
