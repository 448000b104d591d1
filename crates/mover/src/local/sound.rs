// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a control message brings: what its PDU would have brought, or nothing.
//!
//! A value can say what no PDU can. It is written as a PDU and read again, which is no matter: such
//! messages are rare. What cannot be written is found before.

use alloc::vec::Vec;

use wire::iscsi::BHS_LEN;
use wire::iscsi::Cdb;
use wire::iscsi::LoginRequest;
use wire::iscsi::LoginResponse;
use wire::iscsi::ParseError;
use wire::iscsi::Request;
use wire::iscsi::Response;
use wire::iscsi::TextRequest;
use wire::iscsi::TextResponse;

/// The request as a target reads it; its header goes into `header`.
pub(super) fn read_request(
    request: &Request,
    data: &[u8],
    header: &mut Vec<u8>,
) -> Result<Request, ParseError> {
    write_header(request, data.len(), header);
    check_request(request, data)?;
    Request::parse(header)
}

/// The header of a message as a PDU would have it; empty if there is no such PDU.
pub(super) fn write_header(request: &Request, data_len: usize, header: &mut Vec<u8>) {
    header.clear();
    let mut request = *request;
    if let Request::Command(command) = &mut request {
        command.cdb.len = command.cdb.len.min(Cdb::LEN_MAX);
    }
    if check_request(&request, &[]).is_ok() {
        let has_data = has_data(&request);
        let length = u32::try_from(data_len).ok().filter(|length| has_data && *length < 1 << 24);
        request.emit(length.unwrap_or(0), header);
    }
}

/// The response as an initiator reads it; None for what ends a command or moves its data, which
/// have messages of their own, and for what there is not.
pub(super) fn read_response(response: &Response, data: &[u8]) -> Option<Response> {
    let has_data = match response {
        Response::Scsi(_) | Response::DataIn(_) | Response::R2t(_) => return None,
        Response::TaskManagement(_) | Response::Logout(_) => false,
        Response::Login(LoginResponse { transit, continue_, next, .. }) => {
            if *transit && *continue_ || *transit != next.is_some() {
                return None;
            }
            true
        }
        Response::Text(TextResponse { final_: true, continue_: true, .. }) => return None,
        Response::Text(_) | Response::NopIn(_) | Response::Async(_) | Response::Reject(_) => true,
    };
    if !has_data && !data.is_empty() {
        return None;
    }
    let header: [u8; BHS_LEN] = response.emit(0);
    Response::parse(&header).ok()
}

fn check_request(request: &Request, data: &[u8]) -> Result<(), ParseError> {
    let is_sound = match request {
        Request::Login(LoginRequest { transit, continue_, next, .. }) => {
            !(*transit && *continue_) && *transit == next.is_some()
        }
        Request::Text(TextRequest { final_, continue_, .. }) => !(*final_ && *continue_),
        _ => has_data(request) || data.is_empty(),
    };
    let what = "a request that no pdu can bring";
    if is_sound { Ok(()) } else { Err(ParseError::Inconsistent { what }) }
}

const fn has_data(request: &Request) -> bool {
    !matches!(request, Request::TaskManagement(_) | Request::Logout(_) | Request::Snack(_))
}
