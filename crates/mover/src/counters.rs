// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a connection counts. Plain numbers: one thread owns a connection.

use wire::iscsi::{Request, Response};

/// Counters of one connection since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes taken from the stream.
    pub bytes_in: u64,
    /// Bytes handed out for sending, headers and digests included.
    pub bytes_out: u64,
    /// Payload bytes copied by the mover, both ways.
    pub bytes_copied: u64,
    /// Bytes run through CRC32C, both ways.
    pub bytes_crc: u64,
    /// PDUs whose header digest was wrong: each ends its connection.
    pub header_digest_errors: u64,
    /// PDUs whose data digest was wrong.
    pub data_digest_errors: u64,
    /// PDUs received, by kind.
    pub pdus_in: PdusIn,
    /// PDUs handed out for sending, by kind.
    pub pdus_out: PdusOut,
}

/// PDUs received (RFC 7143 §11.2.1.2), counted when their header is whole and verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // each field is named for its PDU
pub struct PdusIn {
    pub nop_out: u64,
    pub scsi_command: u64,
    pub task_management: u64,
    pub login: u64,
    pub text: u64,
    pub data_out: u64,
    pub logout: u64,
    pub snack: u64,
    /// PDUs that no parser took.
    pub malformed: u64,
}

/// PDUs handed out for sending (RFC 7143 §11.2.1.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // each field is named for its PDU
pub struct PdusOut {
    pub nop_in: u64,
    pub scsi_response: u64,
    pub task_management: u64,
    pub login: u64,
    pub text: u64,
    pub data_in: u64,
    pub logout: u64,
    pub r2t: u64,
    pub async_message: u64,
    pub reject: u64,
}

impl Counters {
    /// Those of another connection join these.
    pub fn join(&mut self, other: &Self) {
        let Self {
            bytes_in,
            bytes_out,
            bytes_copied,
            bytes_crc,
            header_digest_errors,
            data_digest_errors,
            pdus_in,
            pdus_out,
        } = other;
        self.bytes_in += bytes_in;
        self.bytes_out += bytes_out;
        self.bytes_copied += bytes_copied;
        self.bytes_crc += bytes_crc;
        self.header_digest_errors += header_digest_errors;
        self.data_digest_errors += data_digest_errors;
        self.pdus_in.join(pdus_in);
        self.pdus_out.join(pdus_out);
    }
}

impl PdusIn {
    fn join(&mut self, other: &Self) {
        let Self {
            nop_out,
            scsi_command,
            task_management,
            login,
            text,
            data_out,
            logout,
            snack,
            malformed,
        } = other;
        self.nop_out += nop_out;
        self.scsi_command += scsi_command;
        self.task_management += task_management;
        self.login += login;
        self.text += text;
        self.data_out += data_out;
        self.logout += logout;
        self.snack += snack;
        self.malformed += malformed;
    }

    pub(crate) fn count(&mut self, request: &Request) {
        *match request {
            Request::NopOut(_) => &mut self.nop_out,
            Request::Command(_) => &mut self.scsi_command,
            Request::TaskManagement(_) => &mut self.task_management,
            Request::Login(_) => &mut self.login,
            Request::Text(_) => &mut self.text,
            Request::DataOut(_) => &mut self.data_out,
            Request::Logout(_) => &mut self.logout,
            Request::Snack(_) => &mut self.snack,
        } += 1;
    }
}

impl PdusOut {
    fn join(&mut self, other: &Self) {
        let Self {
            nop_in,
            scsi_response,
            task_management,
            login,
            text,
            data_in,
            logout,
            r2t,
            async_message,
            reject,
        } = other;
        self.nop_in += nop_in;
        self.scsi_response += scsi_response;
        self.task_management += task_management;
        self.login += login;
        self.text += text;
        self.data_in += data_in;
        self.logout += logout;
        self.r2t += r2t;
        self.async_message += async_message;
        self.reject += reject;
    }

    pub(crate) fn count(&mut self, response: &Response) {
        *match response {
            Response::NopIn(_) => &mut self.nop_in,
            Response::Scsi(_) => &mut self.scsi_response,
            Response::TaskManagement(_) => &mut self.task_management,
            Response::Login(_) => &mut self.login,
            Response::Text(_) => &mut self.text,
            Response::DataIn(_) => &mut self.data_in,
            Response::Logout(_) => &mut self.logout,
            Response::R2t(_) => &mut self.r2t,
            Response::Async(_) => &mut self.async_message,
            Response::Reject(_) => &mut self.reject,
        } += 1;
    }
}
