// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Literal PDUs for tests.

use super::*;
use alloc::format;
use alloc::string::String;
use alloc::string::ToString;
use alloc::vec::Vec;

/// The bytes of a hex dump.
pub(super) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().filter_map(|c| c.to_digit(16)).map(|d| u8::try_from(d).unwrap()).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// Checks that `dump` and `request` are the same thing; gives the bytes.
pub(super) fn request_vector(request: Request, data_segment_length: u32, dump: &str) -> Vec<u8> {
    let bytes = hex(dump);
    assert_eq!(Request::parse(&bytes), Ok(request));
    let mut out = Vec::new();
    request.emit(data_segment_length, &mut out);
    assert_eq!(out, bytes);
    assert_eq!(BhsView::new_checked(&bytes).unwrap().data_segment_length(), data_segment_length);
    bytes
}

/// Checks that `dump` and `response` are the same thing; gives the bytes.
pub(super) fn response_vector(response: Response, data_segment_length: u32, dump: &str) -> Vec<u8> {
    let bytes = hex(dump);
    assert_eq!(Response::parse(&bytes), Ok(response));
    assert_eq!(response.emit(data_segment_length).as_slice(), bytes);
    assert_eq!(BhsView::new_checked(&bytes).unwrap().data_segment_length(), data_segment_length);
    bytes
}

/// What a target answers to `header` with byte `at` replaced.
pub(super) fn reject_reason_with(header: &[u8], at: usize, byte: u8) -> Option<u8> {
    let mut header = header.to_vec();
    header[at] = byte;
    Request::parse(&header).err().map(|error| error.reject_reason())
}

/// A header as one line.
pub(super) fn line(header: &[u8]) -> String {
    Pretty(header).to_string()
}

/// A header as many lines.
pub(super) fn lines(header: &[u8]) -> String {
    format!("{:#}", Pretty(header))
}
