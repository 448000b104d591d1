// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The PDUs as values. (This file is split into one PDU pair a file, each with its View.)
#![allow(missing_docs)]

use super::{Cid, CmdSn, DataSn, Isid, Itt, LunField, R2tSn, StatSn, Tsih, Ttt};

/// The three numbers that every numbered target PDU carries (bytes 24-35).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    pub stat_sn: StatSn,
    pub exp_cmd_sn: CmdSn,
    pub max_cmd_sn: CmdSn,
}

/// A CDB as it came: `len` is its full length, `bytes` its first 32 bytes, zero filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cdb {
    pub bytes: [u8; 32],
    pub len: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attribute {
    Untagged,
    Simple,
    Ordered,
    HeadOfQueue,
    Aca,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScsiCommand {
    pub immediate: bool,
    pub final_: bool,
    pub read: bool,
    pub write: bool,
    pub attribute: Attribute,
    /// RFC 7144 command priority, 0-15.
    pub priority: u8,
    pub lun: LunField,
    pub itt: Itt,
    /// Expected Data Transfer Length in bytes; of the write part if bidirectional.
    pub expected_length: u32,
    pub cmd_sn: CmdSn,
    pub exp_stat_sn: StatSn,
    pub cdb: Cdb,
    /// From the AHS of type 2.
    pub bidi_read_length: Option<u32>,
}

/// Residual of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Residual {
    #[default]
    None,
    Overflow(u32),
    Underflow(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScsiResponse {
    pub response: u8,
    pub status: u8,
    pub itt: Itt,
    pub snack_tag: u32,
    pub numbers: Numbers,
    pub exp_data_sn: DataSn,
    pub bidi_read_residual: Residual,
    pub residual: Residual,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskManagementRequest {
    pub immediate: bool,
    /// Function code as it came; `iscsi` decides which it supports.
    pub function: u8,
    pub lun: LunField,
    pub itt: Itt,
    pub referenced_task: Itt,
    pub cmd_sn: CmdSn,
    pub exp_stat_sn: StatSn,
    pub ref_cmd_sn: CmdSn,
    pub exp_data_sn: DataSn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskManagementResponse {
    pub response: u8,
    /// RFC 7144 additional response information, 24 bits.
    pub additional: u32,
    pub itt: Itt,
    pub numbers: Numbers,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataOut {
    pub final_: bool,
    pub lun: LunField,
    pub itt: Itt,
    pub ttt: Ttt,
    pub exp_stat_sn: StatSn,
    pub data_sn: DataSn,
    pub offset: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataIn {
    pub final_: bool,
    pub acknowledge: bool,
    /// Some when the S bit is set: status and its StatSN travel in this PDU.
    pub status: Option<CollapsedStatus>,
    pub lun: LunField,
    pub itt: Itt,
    pub ttt: Ttt,
    /// `stat_sn` counts only when `status` is Some and is zero otherwise.
    pub numbers: Numbers,
    pub data_sn: DataSn,
    pub offset: u32,
}

/// Status that travels in the last Data-In (RFC 7143 §11.7.2): only good ones may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollapsedStatus {
    pub status: u8,
    pub residual: Residual,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct R2t {
    pub lun: LunField,
    pub itt: Itt,
    pub ttt: Ttt,
    pub numbers: Numbers,
    pub r2t_sn: R2tSn,
    pub offset: u32,
    pub desired_length: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncMessage {
    pub lun: LunField,
    pub numbers: Numbers,
    pub event: u8,
    pub vcode: u8,
    pub parameter1: u16,
    pub parameter2: u16,
    pub parameter3: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextRequest {
    pub immediate: bool,
    pub final_: bool,
    pub continue_: bool,
    pub lun: LunField,
    pub itt: Itt,
    pub ttt: Ttt,
    pub cmd_sn: CmdSn,
    pub exp_stat_sn: StatSn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextResponse {
    pub final_: bool,
    pub continue_: bool,
    pub lun: LunField,
    pub itt: Itt,
    pub ttt: Ttt,
    pub numbers: Numbers,
}

/// Stage of the login phase; codes 0, 1 and 3 (2 is reserved).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Security,
    Operational,
    FullFeature,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginRequest {
    pub transit: bool,
    pub continue_: bool,
    pub current: Stage,
    /// Some only with `transit`.
    pub next: Option<Stage>,
    pub version_max: u8,
    pub version_min: u8,
    pub isid: Isid,
    pub tsih: Tsih,
    pub itt: Itt,
    pub cid: Cid,
    pub cmd_sn: CmdSn,
    pub exp_stat_sn: StatSn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginResponse {
    pub transit: bool,
    pub continue_: bool,
    pub current: Stage,
    pub next: Option<Stage>,
    pub version_max: u8,
    pub version_active: u8,
    pub isid: Isid,
    pub tsih: Tsih,
    pub itt: Itt,
    pub numbers: Numbers,
    /// Class in the high byte, detail in the low byte: 0x0203 is "not found".
    pub status: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogoutRequest {
    pub immediate: bool,
    /// Reason code as it came.
    pub reason: u8,
    pub itt: Itt,
    pub cid: Cid,
    pub cmd_sn: CmdSn,
    pub exp_stat_sn: StatSn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogoutResponse {
    pub response: u8,
    pub itt: Itt,
    pub numbers: Numbers,
    pub time2wait: u16,
    pub time2retain: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snack {
    /// Type code as it came.
    pub kind: u8,
    pub lun: LunField,
    pub itt: Itt,
    /// Target transfer tag or SNACK tag.
    pub tag: u32,
    pub exp_stat_sn: StatSn,
    pub beg_run: u32,
    pub run_length: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reject {
    pub reason: u8,
    pub numbers: Numbers,
    pub data_sn: DataSn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NopOut {
    pub immediate: bool,
    pub lun: LunField,
    pub itt: Itt,
    pub ttt: Ttt,
    pub cmd_sn: CmdSn,
    pub exp_stat_sn: StatSn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NopIn {
    pub lun: LunField,
    pub itt: Itt,
    pub ttt: Ttt,
    pub numbers: Numbers,
}

/// What an initiator sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    NopOut(NopOut),
    Command(ScsiCommand),
    TaskManagement(TaskManagementRequest),
    Login(LoginRequest),
    Text(TextRequest),
    DataOut(DataOut),
    Logout(LogoutRequest),
    Snack(Snack),
}

/// What a target sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Response {
    NopIn(NopIn),
    Scsi(ScsiResponse),
    TaskManagement(TaskManagementResponse),
    Login(LoginResponse),
    Text(TextResponse),
    DataIn(DataIn),
    Logout(LogoutResponse),
    R2t(R2t),
    Async(AsyncMessage),
    Reject(Reject),
}
