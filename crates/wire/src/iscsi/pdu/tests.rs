// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What holds for every PDU.

mod strategy;

use super::super::testing::{hex, line, lines};
use super::*;
use proptest::prelude::*;
use strategy::{request, response};

/// The defined bits of each BHS: what an initiator sends, then what a target sends (RFC 7143 §11.3
/// to §11.19).
#[rustfmt::skip]
const LAYOUTS: [(u8, [u32; 12]); 18] = [
    (0x00, [0x7f80_0000, F, F, F, F, F, F, F, 0, 0, 0, 0]),
    (0x01, [0x7fe7_f000, F, F, F, F, F, F, F, F, F, F, F]),
    (0x02, [0x7fff_0000, F, F, F, F, F, F, F, F, F, 0, 0]),
    (0x03, [0x7fcf_ffff, F, F, F, F, 0xffff_0000, F, F, 0, 0, 0, 0]),
    (0x04, [0x7fc0_0000, F, F, F, F, F, F, F, 0, 0, 0, 0]),
    (0x05, [0x3f80_0000, F, F, F, F, F, 0, F, 0, F, F, 0]),
    (0x06, [0x7fff_0000, F, 0, 0, F, 0xffff_0000, F, F, 0, 0, 0, 0]),
    (0x10, [0x3f8f_0000, F, F, F, F, F, 0, F, 0, 0, F, F]),
    (0x20, [0x3f80_0000, F, F, F, F, F, F, F, F, 0, 0, 0]),
    (0x21, [0x3f9e_ffff, F, 0xffff_0000, 0, F, F, F, F, F, F, F, F]),
    (0x22, [0x3f80_ff00, F, 0xffff_ff00, 0, F, 0, F, F, F, 0, 0, 0]),
    (0x23, [0x3fcf_ffff, F, F, F, F, 0, F, F, F, 0xffff_0000, 0, 0]),
    (0x24, [0x3fc0_0000, F, F, F, F, F, F, F, F, 0, 0, 0]),
    (0x25, [0x3fc7_00ff, F, F, F, F, F, F, F, F, F, F, F]),
    (0x26, [0x3f80_ff00, F, 0, 0, F, 0, F, F, F, 0, F, 0]),
    (0x31, [0x3f80_0000, F, F, F, F, F, F, F, F, F, F, F]),
    (0x32, [0x3f80_0000, F, F, F, F, 0, F, F, F, F, F, 0]),
    (0x3f, [0x3f80_ff00, F, 0, 0, F, 0, F, F, F, F, 0, 0]),
];

/// A word of which all bits are defined.
const F: u32 = u32::MAX;

fn layout(opcode: u8) -> Vec<u8> {
    let (_, bits) = LAYOUTS.into_iter().find(|(code, _)| *code == opcode).expect("it is a PDU");
    bits.into_iter().flat_map(u32::to_be_bytes).collect()
}

/// Whether no bit outside of the layout is set.
fn is_clean(header: &[u8]) -> bool {
    layout(header[0] & 0x3f).iter().zip(header).all(|(mask, byte)| byte & !mask == 0)
}

/// The header with bits outside of the layout set as `noise` says.
fn with_noise(header: &[u8], noise: [u8; 48]) -> Vec<u8> {
    let mut noisy = header.to_vec();
    let masks = layout(header[0] & 0x3f);
    for ((byte, mask), noise) in noisy.iter_mut().zip(masks).zip(noise) {
        *byte |= noise & !mask;
    }
    noisy
}

fn emitted(request: &Request) -> Vec<u8> {
    let mut out = Vec::new();
    request.emit(0, &mut out);
    out
}

/// Whatever the bytes are, nothing panics and what is parsed can be sent.
fn swallow(bytes: &[u8]) {
    let _ = (line(bytes), lines(bytes));
    if let Ok(view) = BhsView::new_checked(bytes) {
        let _ = (view.opcode(), view.immediate(), view.lun(), view.itt(), view.total_ahs_length());
    }
    if let Ok(view) = CommandView::new_checked(bytes) {
        let _ = view.ahs().count();
    }
    if let Ok(request) = Request::parse(bytes) {
        assert_eq!(Request::parse(&emitted(&request)), Ok(request));
    }
    if let Ok(response) = Response::parse(bytes) {
        assert_eq!(Response::parse(&response.emit(0)), Ok(response));
    }
}

proptest! {
    #[test]
    fn requests_come_back(request in request()) {
        prop_assert_eq!(Request::parse(&emitted(&request)), Ok(request));
    }

    #[test]
    fn responses_come_back(response in response()) {
        prop_assert_eq!(Response::parse(&response.emit(0)), Ok(response));
    }

    /// Covers: FMT-01/S.
    #[test]
    fn reserved_bits_are_sent_as_zero(request in request(), response in response()) {
        prop_assert!(is_clean(&emitted(&request)));
        prop_assert!(is_clean(&response.emit(0)));
    }

    /// Covers: FMT-02/S.
    #[test]
    fn reserved_bits_are_ignored(request in request(), response in response(), noise: [u8; 48]) {
        prop_assert_eq!(Request::parse(&with_noise(&emitted(&request), noise)), Ok(request));
        prop_assert_eq!(Response::parse(&with_noise(&response.emit(0), noise)), Ok(response));
    }

    /// Covers: FMT-09/S, SRS-13.
    #[test]
    fn only_commands_have_ahs(request in request(), response in response()) {
        let mut bytes = emitted(&request);
        if !matches!(request, Request::Command(_)) {
            prop_assert_eq!((bytes.len(), bytes[4]), (48, 0));
            bytes[4] = 1;
            bytes.extend([0, 1, 1, 0]);
            let error = Request::parse(&bytes).unwrap_err();
            prop_assert_eq!(error.reject_reason(), 0x04);
        }
        prop_assert_eq!(response.emit(0)[4], 0);
    }

    /// Covers: FMT-06/S, FMT-07/T, FMT-07/I.
    #[test]
    fn each_side_sends_opcodes_of_its_own(request in request(), response in response()) {
        let bytes = emitted(&request);
        prop_assert!(matches!(bytes[0] & 0x3f, 0x00..=0x06 | 0x10), "0x{:02x}", bytes[0]);
        let bytes = response.emit(0);
        prop_assert!(matches!(bytes[0], 0x20..=0x26 | 0x31 | 0x32 | 0x3f), "0x{:02x}", bytes[0]);
        prop_assert_eq!(bytes[0], response.opcode());
    }

    #[test]
    fn cut_headers_are_refused(request in request(), response in response(), cut in 1_usize..200) {
        let bytes = emitted(&request);
        let short = bytes.len().saturating_sub(cut);
        let refused = Request::parse(&bytes[..short]);
        let needed = if short < 48 { 48 } else { bytes.len() };
        prop_assert_eq!(refused, Err(ParseError::Truncated { needed, given: short }));
        prop_assert!(Response::parse(&response.emit(0)[..48_usize.saturating_sub(cut)]).is_err());
    }

    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
        swallow(&bytes);
    }

    /// As `any_bytes`, but past the opcode and the flags that most bytes fail at.
    #[test]
    fn any_bytes_of_a_known_opcode(
        opcode in prop::sample::select(LAYOUTS.map(|(opcode, _)| opcode).to_vec()),
        immediate in prop::sample::select(alloc::vec![0x00_u8, 0x40]),
        ahs in 0_u8..6,
        mut bytes in proptest::collection::vec(any::<u8>(), 48..100),
    ) {
        bytes[0] = opcode | immediate;
        bytes[4] = if opcode == OPCODE_SCSI_COMMAND { ahs } else { 0 };
        swallow(&bytes);
    }

    #[test]
    fn broken_pdus(request in request(), at in 0_usize..80, byte: u8) {
        let mut bytes = emitted(&request);
        let at = at % bytes.len();
        bytes[at] = byte;
        swallow(&bytes);
    }
}

/// Covers: FMT-06/S, FMT-07/T, FMT-07/I.
#[test]
fn opcodes() {
    let initiator = [0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x10];
    let target = [0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x31, 0x32, 0x3f];
    for first in 0..=u8::MAX {
        let mut bytes = [0; BHS_LEN];
        bytes[0] = first;
        let opcode = first & 0x3f;
        assert_eq!(BhsView::new_checked(&bytes).unwrap().opcode(), opcode);
        let unknown = ParseError::UnknownOpcode(opcode);
        assert_eq!(Request::parse(&bytes) == Err(unknown), !initiator.contains(&opcode));
        assert_eq!(Response::parse(&bytes) == Err(unknown), !target.contains(&opcode));
        assert_eq!(unknown.reject_reason(), 0x05);
        assert_eq!(
            BhsView::new_checked(&bytes[..47]),
            Err(ParseError::Truncated { needed: 48, given: 47 })
        );
    }
}

#[test]
fn a_view_of_another_pdu_is_refused() {
    let mut bytes = [0; BHS_LEN];
    bytes[0] = 0x20;
    let view = CommandView::new_checked(&bytes).unwrap();
    assert_eq!(ScsiCommand::parse(&view), Err(ParseError::UnknownOpcode(0x20)));
    assert!(alloc::format!("{view}").starts_with("SCSI Command Opcode=0x20"));
}

#[test]
fn tasks_have_a_tag() {
    for (opcode, flags) in
        [(0x01, 0x80), (0x02, 0x81), (0x03, 0), (0x04, 0x80), (0x05, 0), (0x06, 0x80)]
    {
        let mut bytes = [0; BHS_LEN];
        bytes[..2].copy_from_slice(&[opcode, flags]);
        assert!(Request::parse(&bytes).is_ok());
        bytes[16..20].fill(0xff);
        assert_eq!(Request::parse(&bytes).unwrap_err().reject_reason(), 0x09);
    }
}

/// Covers: FMT-11/T, FMT-11/I.
#[test]
fn lun_stands_in_bytes_8_to_15() {
    for lun in ["0000", "00ff", "4100", "7fff"] {
        let lun = hex(&alloc::format!("{lun}000000000000"));
        let mut bytes = [0; BHS_LEN];
        bytes[..2].copy_from_slice(&[0x01, 0x80]);
        bytes[8..16].copy_from_slice(&lun);
        let Ok(Request::Command(command)) = Request::parse(&bytes) else { unreachable!() };
        assert_eq!(command.lun.0, lun[..]);
        assert_eq!(emitted(&Request::Command(command)), bytes);
    }
}

#[test]
fn padding() {
    for (len, padded) in [(0, 0), (1, 4), (2, 4), (3, 4), (4, 4), (5, 8), (8191, 8192)] {
        assert_eq!(pad4(len), padded);
    }
    assert_eq!(pad4(usize::MAX), usize::MAX & !3);
}

#[test]
fn what_is_no_pdu_is_shown_as_hex() {
    assert_eq!(line(&[0x20, 0x80]), "no header: 2080");
    let mut bytes = [0; BHS_LEN];
    bytes[0] = 0x5f;
    bytes[16..20].fill(0xff);
    assert!(line(&bytes).starts_with("BHS Opcode=0x1f I: 5f00"));
    let (mut cut, end) = ([0; BHS_LEN], "00".repeat(43));
    cut[..5].copy_from_slice(&[0x01, 0x80, 0, 0, 2]);
    assert_eq!(line(&cut), alloc::format!("BHS Opcode=0x01 AHS=8 ITT=0x00000000: 0180000002{end}"));
    assert_eq!(
        alloc::format!("{:#}", BhsView::new_checked(&bytes).unwrap()),
        "BHS\n  Opcode: 0x1f\n  I: 1\n  AHS: 0\n  Data: 0\n  LUN: 0000000000000000\n  \
         ITT: 0xffffffff"
    );
}

#[test]
fn errors_as_text() {
    use alloc::string::ToString;
    let reserved = ParseError::ReservedValue { field: "CSG", value: 2 };
    assert_eq!(reserved.to_string(), "reserved value 0x2 in CSG");
    assert_eq!(ParseError::UnknownOpcode(0x1f).to_string(), "unknown opcode 0x1f");
    let truncated = ParseError::Truncated { needed: 56, given: 48 };
    assert_eq!(truncated.to_string(), "header of 56 bytes cut to 48");
    assert_eq!(truncated.reject_reason(), 0x04);
    assert_eq!(
        ParseError::Inconsistent { what: "text with C and F" }.to_string(),
        "text with C and F"
    );
}
