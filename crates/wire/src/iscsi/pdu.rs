// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All PDUs of one direction as one value.

use super::*;
use alloc::vec::Vec;

/// What an initiator sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // those of the standard
pub enum Request {
    /// NOP-Out.
    NopOut(NopOut),
    /// SCSI Command.
    Command(ScsiCommand),
    /// Task Management Function Request.
    TaskManagement(TaskManagementRequest),
    /// Login Request.
    Login(LoginRequest),
    /// Text Request.
    Text(TextRequest),
    /// SCSI Data-Out.
    DataOut(DataOut),
    /// Logout Request.
    Logout(LogoutRequest),
    /// SNACK Request.
    Snack(Snack),
}

impl Request {
    /// Takes a header, BHS and AHS without digest, apart. Bytes after it are not looked at.
    ///
    /// # Errors
    /// [`ParseError`], whose [`reject_reason`](ParseError::reject_reason) a target answers with.
    #[inline]
    pub fn parse(header: &[u8]) -> Result<Self, ParseError> {
        Ok(match BhsView::new_checked(header)?.opcode() {
            OPCODE_SCSI_COMMAND => {
                Self::Command(ScsiCommand::parse(&CommandView::new_checked(header)?)?)
            }
            OPCODE_DATA_OUT => Self::DataOut(DataOut::parse(&DataOutView::new_checked(header)?)?),
            OPCODE_NOP_OUT => Self::NopOut(NopOut::parse(&NopOutView::new_checked(header)?)?),
            OPCODE_TASK_MANAGEMENT_REQUEST => {
                let view = TaskManagementRequestView::new_checked(header)?;
                Self::TaskManagement(TaskManagementRequest::parse(&view)?)
            }
            OPCODE_LOGIN_REQUEST => {
                Self::Login(LoginRequest::parse(&LoginRequestView::new_checked(header)?)?)
            }
            OPCODE_TEXT_REQUEST => {
                Self::Text(TextRequest::parse(&TextRequestView::new_checked(header)?)?)
            }
            OPCODE_LOGOUT_REQUEST => {
                Self::Logout(LogoutRequest::parse(&LogoutRequestView::new_checked(header)?)?)
            }
            OPCODE_SNACK => Self::Snack(Snack::parse(&SnackView::new_checked(header)?)?),
            opcode => return Err(ParseError::UnknownOpcode(opcode)),
        })
    }

    /// Appends the header: BHS, and AHS where a command needs them.
    pub fn emit(&self, data_segment_length: u32, out: &mut Vec<u8>) {
        let header = match self {
            Self::Command(pdu) => return pdu.emit(data_segment_length, out),
            Self::NopOut(pdu) => pdu.emit(data_segment_length),
            Self::TaskManagement(pdu) => pdu.emit(data_segment_length),
            Self::Login(pdu) => pdu.emit(data_segment_length),
            Self::Text(pdu) => pdu.emit(data_segment_length),
            Self::DataOut(pdu) => pdu.emit(data_segment_length),
            Self::Logout(pdu) => pdu.emit(data_segment_length),
            Self::Snack(pdu) => pdu.emit(data_segment_length),
        };
        out.extend_from_slice(&header);
    }
}

/// What a target sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // those of the standard
pub enum Response {
    /// NOP-In.
    NopIn(NopIn),
    /// SCSI Response.
    Scsi(ScsiResponse),
    /// Task Management Function Response.
    TaskManagement(TaskManagementResponse),
    /// Login Response.
    Login(LoginResponse),
    /// Text Response.
    Text(TextResponse),
    /// SCSI Data-In.
    DataIn(DataIn),
    /// Logout Response.
    Logout(LogoutResponse),
    /// Ready To Transfer.
    R2t(R2t),
    /// Asynchronous Message.
    Async(AsyncMessage),
    /// Reject.
    Reject(Reject),
}

impl Response {
    /// The opcode of its header.
    pub const fn opcode(&self) -> u8 {
        match self {
            Self::NopIn(_) => OPCODE_NOP_IN,
            Self::Scsi(_) => OPCODE_SCSI_RESPONSE,
            Self::TaskManagement(_) => OPCODE_TASK_MANAGEMENT_RESPONSE,
            Self::Login(_) => OPCODE_LOGIN_RESPONSE,
            Self::Text(_) => OPCODE_TEXT_RESPONSE,
            Self::DataIn(_) => OPCODE_DATA_IN,
            Self::Logout(_) => OPCODE_LOGOUT_RESPONSE,
            Self::R2t(_) => OPCODE_R2T,
            Self::Async(_) => OPCODE_ASYNC_MESSAGE,
            Self::Reject(_) => OPCODE_REJECT,
        }
    }

    /// Takes a header, without digest, apart. Bytes after it are not looked at.
    ///
    /// # Errors
    /// [`ParseError`]: a format error, which ends the session (RFC 7143 §7.7).
    #[inline]
    pub fn parse(header: &[u8]) -> Result<Self, ParseError> {
        Ok(match BhsView::new_checked(header)?.opcode() {
            OPCODE_DATA_IN => Self::DataIn(DataIn::parse(&DataInView::new_checked(header)?)?),
            OPCODE_R2T => Self::R2t(R2t::parse(&R2tView::new_checked(header)?)?),
            OPCODE_SCSI_RESPONSE => {
                Self::Scsi(ScsiResponse::parse(&ResponseView::new_checked(header)?)?)
            }
            OPCODE_NOP_IN => Self::NopIn(NopIn::parse(&NopInView::new_checked(header)?)?),
            OPCODE_TASK_MANAGEMENT_RESPONSE => {
                let view = TaskManagementResponseView::new_checked(header)?;
                Self::TaskManagement(TaskManagementResponse::parse(&view)?)
            }
            OPCODE_LOGIN_RESPONSE => {
                Self::Login(LoginResponse::parse(&LoginResponseView::new_checked(header)?)?)
            }
            OPCODE_TEXT_RESPONSE => {
                Self::Text(TextResponse::parse(&TextResponseView::new_checked(header)?)?)
            }
            OPCODE_LOGOUT_RESPONSE => {
                Self::Logout(LogoutResponse::parse(&LogoutResponseView::new_checked(header)?)?)
            }
            OPCODE_ASYNC_MESSAGE => {
                Self::Async(AsyncMessage::parse(&AsyncMessageView::new_checked(header)?)?)
            }
            OPCODE_REJECT => Self::Reject(Reject::parse(&RejectView::new_checked(header)?)?),
            opcode => return Err(ParseError::UnknownOpcode(opcode)),
        })
    }

    /// The BHS; targets send no AHS.
    #[inline]
    pub fn emit(&self, data_segment_length: u32) -> [u8; BHS_LEN] {
        match self {
            Self::NopIn(pdu) => pdu.emit(data_segment_length),
            Self::Scsi(pdu) => pdu.emit(data_segment_length),
            Self::TaskManagement(pdu) => pdu.emit(data_segment_length),
            Self::Login(pdu) => pdu.emit(data_segment_length),
            Self::Text(pdu) => pdu.emit(data_segment_length),
            Self::DataIn(pdu) => pdu.emit(data_segment_length),
            Self::Logout(pdu) => pdu.emit(data_segment_length),
            Self::R2t(pdu) => pdu.emit(data_segment_length),
            Self::Async(pdu) => pdu.emit(data_segment_length),
            Self::Reject(pdu) => pdu.emit(data_segment_length),
        }
    }
}

#[cfg(test)]
mod tests;
