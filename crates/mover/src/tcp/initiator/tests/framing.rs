// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a PDU is made of, both ways.

use super::*;

/// Covers: FMT-04/I, FMT-10/I, FMT-18/I.
#[test]
fn control_data_is_counted_without_padding_and_digests() {
    for keys in [KEYS, DIGESTS] {
        for length in 0..9 {
            let mut tcp = Tcp::new();
            tcp.submit(Op::NoticeKeys(keys));
            let text = TextRequest {
                immediate: true,
                final_: true,
                continue_: false,
                lun: LunField::default(),
                itt: Itt(1),
                ttt: Ttt::NONE,
                cmd_sn: CmdSn(1),
                exp_stat_sn: StatSn(0),
            };
            let data = vec![b'x'; length];
            tcp.submit(Op::SendControl { request: Request::Text(text), data: data.clone() });
            let bytes = sent(&mut tcp);
            assert_eq!(usize::from(bytes[7]), length);
            assert_eq!(bytes[4..7], [0; 3], "no AHS, and no more than that");
            let header = if keys.header_digest { BHS_LEN + 4 } else { BHS_LEN };
            let digest = if keys.data_digest && length > 0 { 4 } else { 0 };
            assert_eq!(bytes.len(), header + length.next_multiple_of(4) + digest);
            assert_eq!(bytes[header..header + length], data);
            let padding = &bytes[header + length..bytes.len() - digest];
            assert!(padding.iter().all(|byte| *byte == 0));
            let (request, back) = split(keys, &bytes).remove(0);
            assert!(matches!(request, Request::Text(_)) && back == data);
        }
    }
}

/// Covers: FMT-05/I, DGT-02b/I.
#[test]
fn padding_is_zero_and_may_have_any_value() {
    for keys in [KEYS, DIGESTS] {
        for length in 1..=4_u8 {
            let nop = NopIn {
                lun: LunField::default(),
                itt: Itt(1),
                ttt: Ttt::NONE,
                numbers: numbers(9),
            };
            let mut tcp = Tcp::new();
            tcp.submit(Op::NoticeKeys(keys));
            let data = vec![b'x'; usize::from(length)];
            let mut padded = data.clone();
            padded.resize(4, 0xa5);
            // As if all of it were data, but for what the header says.
            let plain = Keys { header_digest: false, ..keys };
            let mut bytes = pdu(plain, Response::NopIn(nop), &padded);
            bytes[7] = length;
            if keys.header_digest {
                let digest = crc::crc32c(&bytes[..BHS_LEN]).to_le_bytes();
                bytes.splice(BHS_LEN..BHS_LEN, digest);
            }
            let events = events(&mut tcp, &bytes);
            assert!(
                matches!(events[..], [Event::Control { response: Response::NopIn(_) }]),
                "{events:?}"
            );
            assert_eq!(tcp.control_data(), data);
        }
    }
}

/// BHS, AHS, digest of both, data, digest of the data.
///
/// Covers: FMT-18/I.
#[test]
fn the_header_digest_stands_behind_the_additional_header() {
    let mut tcp = Tcp::new();
    tcp.submit(Op::NoticeKeys(DIGESTS));
    let data = Slice::from(vec![7_u8; 9]);
    tcp.submit(Op::Attach { task: TASK, write: Some(data), read: None });
    let cdb = Cdb { bytes: [0x7f; 32], len: 32 };
    let command = ScsiCommand { cdb, ..command(false, 9) };
    tcp.submit(Op::SendCommand { task: TASK, command, immediate: 9, unsolicited_end: 9 });
    let bytes = sent(&mut tcp);
    let header = BHS_LEN + 20;
    assert_eq!(bytes[4], 5, "words of AHS");
    assert_eq!(bytes[BHS_LEN..BHS_LEN + 4], [0, 17, 1, 0]);
    assert_eq!(bytes[header..header + 4], crc::crc32c(&bytes[..header]).to_le_bytes());
    let data = &bytes[header + 4..header + 16];
    assert_eq!(data, [7, 7, 7, 7, 7, 7, 7, 7, 7, 0, 0, 0]);
    assert_eq!(bytes[header + 16..], crc::crc32c(data).to_le_bytes());
}

fn login_response() -> LoginResponse {
    LoginResponse {
        transit: false,
        continue_: false,
        current: Stage::Operational,
        next: None,
        version_max: 0,
        version_active: 0,
        isid: Isid([0x80, 0, 0, 0, 0, 1]),
        tsih: Tsih(1),
        itt: Itt(1),
        numbers: numbers(9),
        status: 0,
    }
}

/// Covers: LGN-06/I.
#[test]
fn a_login_response_has_8192_bytes_at_most() {
    let response = Response::Login(login_response());
    for (length, fits) in [(8192, true), (8193, false), (8196, false)] {
        let mut tcp = Tcp::new();
        let bytes = pdu(Keys::LOGIN, response, &vec![b'x'; length]);
        if fits {
            let events = events(&mut tcp, &bytes);
            assert!(matches!(events[..], [Event::Control { response: Response::Login(_) }]));
        } else {
            violates(&mut tcp, &bytes, |violation| {
                matches!(violation, Violation::SegmentTooLong { limit: 8192, .. })
            });
        }
    }
}

/// Covers: FMT-09/I.
#[test]
fn no_pdu_of_a_target_has_an_ahs() {
    for opcode in [0x20, 0x21, 0x22, 0x24, 0x25, 0x26, 0x31, 0x32, 0x3f] {
        let mut bytes = pdu(KEYS, Response::Scsi(status(0, 0)), &[]);
        (bytes[0], bytes[4]) = (opcode, 1);
        bytes.extend([0, 1, 1, 0]);
        violates(
            &mut reading(KEYS, 500),
            &bytes,
            |violation| matches!(violation, Violation::Malformed { opcode: of } if *of == opcode),
        );
    }
}

/// Covers: FMT-03/I.
#[test]
fn reserved_codes_of_a_target_are_errors() {
    for (at, value) in [(1, 0x08), (1, 0x82), (1, 0x86)] {
        let mut bytes = pdu(Keys::LOGIN, Response::Login(login_response()), &[]);
        bytes[at] = value;
        violates(&mut Tcp::new(), &bytes, |violation| {
            matches!(violation, Violation::Malformed { opcode: 0x23 })
        });
    }
    // Opcodes that are reserved, or that only an initiator has.
    for opcode in (0..0x40).filter(|code| !matches!(code, 0x20..=0x26 | 0x31 | 0x32 | 0x3f)) {
        let mut bytes = [0; BHS_LEN];
        bytes[0] = opcode;
        let mut tcp = Tcp::new();
        events(&mut tcp, &pdu(Keys::LOGIN, Response::Login(login_response()), &[]));
        violates(
            &mut tcp,
            &bytes,
            |violation| matches!(violation, Violation::Malformed { opcode: of } if *of == opcode),
        );
    }
}

/// Servers of other protocols are known before a header is whole, which may never come.
#[test]
fn a_stream_that_is_none_of_a_target_is_known_by_its_first_bytes() {
    for line in [&b"SSH-2.0-x\r\n"[..], b"HTTP/1.1 400", b"220 mail", b"\xff\xfd", b"\x15\x03"] {
        for split in 0..line.len() {
            let (first, second) = line.split_at(split);
            let mut tcp = Tcp::new();
            events(&mut tcp, first);
            violates(&mut tcp, second, |violation| *violation == Violation::NotIscsi);
        }
    }
    // What a target may send is none of it, reserved bits or not, nor what follows a header.
    let response = pdu(Keys::LOGIN, Response::Login(login_response()), &[]);
    for reserved in [0, 0x40, 0x80] {
        let mut bytes = response.clone();
        bytes[0] |= reserved;
        for split in 0..=2 {
            let mut tcp = Tcp::new();
            let (_, event) = tcp.feed(&bytes[..split]);
            assert!(event.is_none(), "{reserved:#x}, {split}: {event:?}");
        }
    }
    let mut tcp = Tcp::new();
    events(&mut tcp, &response);
    assert!(tcp.feed(b"SSH").1.is_none());
}
