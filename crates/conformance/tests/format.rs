// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The format of PDUs, right and wrong (RFC 7143 §7.7, §11.1, §11.2).

use lunwire_conformance::raw::header;
use lunwire_conformance::*;
use wire::iscsi::*;
use wire::scsi::sam::BUSY;

/// Covers: FMT-19, LGO-15/T, ASY-07, FMT-16/T, FMT-09/T.
#[test]
fn lengths_that_cannot_be_trusted_end_the_session() {
    on_each_engine(
        |_| {},
        |server| {
            let mut bystander = server.login();
            for (at, value) in [(4, 1), (5, 0xff)] {
                let keys = [("DefaultTime2Wait", "5"), ("DefaultTime2Retain", "0")];
                let plan = LoginPlan { cid: Cid(5), ..LoginPlan::new().with(&keys) };
                let mut session = server.login_with(&plan);
                let mut bytes = header(&Request::NopOut(session.ping()), 0);
                bytes[at] = value;
                session.raw.write(&bytes);
                let message = session.expect_dropped();
                assert!(message.event == 3 || message.parameter1 == 5, "{message:?}");
                assert_eq!((message.parameter2, message.parameter3), (5, 0));
                // Session recovery.
                server.login_with(&plan).expect_quiet();
            }
            bystander.expect_quiet();
        },
    );
}

/// Covers: FMT-08, REJ-06.
#[test]
fn unknown_opcodes_are_rejected() {
    on_each_engine(
        |_| {},
        |server| {
            let mut session = server.login();
            for opcode in (0..0x40).filter(|opcode| !matches!(opcode, 0..=6 | 0x10)) {
                let mut bytes = vec![0; 48];
                bytes[0] = opcode;
                bytes[1] = 0x80;
                session.raw.send_header(&bytes, &[]);
                let reject = session.read();
                let Response::Reject(answer) = reject.response() else { panic!("{reject:x?}") };
                assert_eq!(answer.reason, 5, "opcode {opcode:#x}: {answer:?}");
                assert_eq!(reject.data, bytes);
            }
            session.expect_quiet();
        },
    );
}

/// Covers: FMT-03/T.
#[test]
fn reserved_codes_are_errors() {
    on_each_engine(
        |_| {},
        |server| {
            let mut session = server.login();
            for kind in 4..16 {
                let mut bytes = vec![0; 48];
                bytes[0] = 0x10;
                bytes[1] = 0x80 | kind;
                session.raw.send_header(&bytes, &[]);
                assert!(matches!(session.read().response(), Response::Reject(_)), "SNACK {kind}");
            }
            for reason in 3..0x80 {
                let request = session.logout(reason);
                session.send(&Request::Logout(request), &[]);
                session.expect_reject(0x09);
            }
            for function in [0, 15, 0x7f] {
                let request = session.management(function, 0, Itt::NONE);
                session.send(&Request::TaskManagement(request), &[]);
                assert_eq!(session.read_management(), 5);
            }
            session.expect_quiet();
        },
    );
}

/// Covers: FMT-02/T, FMT-05/T.
#[test]
fn reserved_bits_and_padding_are_not_looked_at() {
    on_each_engine(
        |_| {},
        |server| {
            let mut session = server.login();
            session.settle(0);
            let ping = session.ping();
            let mut bytes = header(&Request::NopOut(ping), 5);
            bytes[0] |= 0x80;
            bytes[1] |= 0x7f;
            bytes[2..4].fill(0xff);
            bytes[32..48].fill(0xff);
            bytes.extend_from_slice(b"hello\xff\xff\xff");
            session.raw.write(&bytes);
            let pdu = session.read();
            assert_eq!(
                (pdu.opcode(), &pdu.data[..], &pdu.padding[..]),
                (0x20, &b"hello"[..], &[0; 3][..])
            );

            let command = session.test_unit_ready(0);
            let mut bytes = header(&Request::Command(command), 0);
            bytes[0] |= 0x80;
            bytes[1] |= 0x18;
            bytes[3] = 0xff;
            session.raw.send_header(&bytes, &[]);
            assert_eq!(session.finish(command.itt).code, 0);
        },
    );
}

/// Covers: FMT-15.
#[test]
fn bad_additional_headers_are_rejected() {
    on_each_engine(
        |_| {},
        |server| {
            let mut session = server.login();
            session.settle(0);
            let tails: [&[u8]; 4] = [
                &[0, 0xff, 1, 0],                      // overruns
                &[0, 1, 0x3f, 0],                      // unknown type
                &[0, 0, 0, 0],                         // no type at all
                &[0, 5, 2, 0, 0, 0, 2, 0, 0, 1, 2, 0], // a read length, and one cut short
            ];
            for tail in tails {
                let command = session.test_unit_ready(0);
                session.cmd_sn = command.cmd_sn;
                let mut bytes = header(&Request::Command(command), 0);
                bytes[4] = u8::try_from(tail.len() / 4).unwrap();
                bytes.extend_from_slice(tail);
                session.raw.send_header(&bytes, &[]);
                let reject = session.read();
                let Response::Reject(answer) = reject.response() else { panic!("{reject:x?}") };
                assert!(matches!(answer.reason, 4 | 9), "{answer:?}");
                assert_eq!(reject.data, bytes, "BHS and AHS");
            }
            session.expect_quiet();
        },
    );
}

/// A byte at a time makes no difference.
///
/// Covers: FMT-04/T, FMT-10/T.
#[test]
fn segments_of_all_lengths_and_cuts() {
    on_each_engine(
        |_| {},
        |server| {
            let mut session = server.login();
            for length in 0..9 {
                let ping = session.ping();
                let data = vec![b'x'; length];
                let bytes = session.raw.assemble(&header(&Request::NopOut(ping), length), &data);
                assert_eq!(bytes.len() % 4, 0);
                for byte in bytes {
                    session.raw.write(&[byte]);
                }
                let pdu = session.read();
                assert_eq!((pdu.data, pdu.padding.iter().all(|b| *b == 0)), (data, true));
            }
        },
    );
}

/// Every byte of every request, changed: the target goes on serving others.
///
/// Covers: PER-03.
#[test]
fn no_changed_byte_harms_a_bystander() {
    on_each_engine(
        |_| {},
        |server| {
            let mut bystander = server.login();
            bystander.settle(0);
            for kind in 0..8 {
                for at in 0..48 {
                    // A lost session leaves no ACA condition behind, which a changed CONTROL byte
                    // can establish.
                    let plan = LoginPlan::new().with(&[("DefaultTime2Retain", "0")]);
                    let mut session = server.login_with(&plan);
                    let request = match kind {
                        0 => Request::NopOut(session.ping()),
                        1 => Request::Command(session.read_blocks(0, 0, 1)),
                        2 => Request::Command(session.write_blocks(0, 0, 1)),
                        3 => Request::TaskManagement(session.management(1, 0, Itt(1))),
                        4 => Request::Text(session.text()),
                        5 => Request::Logout(session.logout(0)),
                        6 => Request::Login(LoginPlan::new().request()),
                        _ => {
                            let write = session.write_blocks(0, 0, 1);
                            session.start(&write);
                            Request::DataOut(DataOut {
                                final_: true,
                                lun: write.lun,
                                itt: write.itt,
                                ttt: Ttt(0),
                                exp_stat_sn: StatSn(0),
                                data_sn: DataSn(0),
                                offset: 0,
                            })
                        }
                    };
                    let mut bytes = header(&request, 0);
                    bytes[at] ^= 0xff;
                    session.raw.write(&bytes);
                    session.raw.write(&[0; 52]);
                }
                bystander.expect_quiet();
            }
            let mut code = BUSY;
            for _ in 0..500 {
                let read = bystander.read_blocks(0, 0, 8);
                code = bystander.run(&read).code;
                if code != BUSY {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            assert_eq!(code, 0);
        },
    );
}
