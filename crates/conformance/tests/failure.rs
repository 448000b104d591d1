// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections that fail at any point, and session recovery (RFC 7143 §7.1.4).

use lunwire_conformance::initiator::pattern;
use lunwire_conformance::raw::header;
use lunwire_conformance::*;
use wire::iscsi::*;

/// PDUs of the commands below at most, and one more.
const BOUNDARIES: usize = 12;

/// Short bursts, so that a command has many PDUs.
const KEYS: [(&str, &str); 5] = [
    ("InitialR2T", "Yes"),
    ("MaxRecvDataSegmentLength", "1024"),
    ("MaxBurstLength", "2048"),
    ("FirstBurstLength", "1024"),
    ("ImmediateData", "Yes"),
];

/// Reads PDUs of a READ of eight blocks, as many as `count`; true if it is over.
fn read_until(session: &mut Initiator, count: usize) -> bool {
    let command = session.read_blocks(0, 0, 8);
    session.start(&command);
    for _ in 0..count {
        if let Response::DataIn(DataIn { status: Some(_), .. }) = session.read().response() {
            return true;
        }
    }
    false
}

/// Writes eight blocks in PDUs of 512 bytes, stops after `count` PDUs of either side; true if the
/// command is over.
fn write_until(session: &mut Initiator, data: &[u8], count: usize) -> bool {
    let command = session.write_blocks(0, 0, 8);
    session.send(&Request::Command(command), &data[..512]);
    let mut left = count;
    let mut spend = || {
        left = left.saturating_sub(1);
        left == 0
    };
    loop {
        if spend() {
            return false;
        }
        let r2t = match session.read().response() {
            Response::R2t(r2t) => r2t,
            Response::Scsi(answer) => {
                assert_eq!(answer.status, 0);
                return true;
            }
            other => panic!("{other:?}"),
        };
        let whole = session.data_out(&r2t);
        for part in 0..r2t.desired_length.div_ceil(512) {
            if spend() {
                return false;
            }
            let offset = r2t.offset + part * 512;
            let end = (r2t.offset + r2t.desired_length).min(offset + 512);
            let final_ = end == r2t.offset + r2t.desired_length;
            let piece = DataOut { offset, data_sn: DataSn(part), final_, ..whole };
            session.send(&Request::DataOut(piece), &data[offset as usize..end as usize]);
        }
    }
}

/// Covers: ERL-01/T.
#[test]
fn connections_lost_between_any_two_pdus_are_recovered_by_a_new_session() {
    on_each_engine(
        |_| {},
        |server| {
            let plan = LoginPlan::new().with(&KEYS);
            for count in 0..BOUNDARIES {
                let mut session = server.login_with(&plan);
                session.settle(0);
                let over = read_until(&mut session, count);
                assert_eq!(over, count >= 4, "four segments in {count} PDUs");
            }
            let mut done = false;
            for count in 1..=BOUNDARIES + 2 {
                let data = pattern(4096, u8::try_from(count).expect("few"));
                let mut session = server.login_with(&plan);
                session.settle(0);
                done = write_until(&mut session, &data, count);
                drop(session);
                let mut session = server.login_with(&plan);
                session.settle(0);
                let command = session.read_blocks(0, 0, 8);
                let read = session.run(&command).data;
                assert!(!done || read == data, "an acknowledged write is there");
                assert!(write_until(&mut session, &data, usize::MAX), "the next session works");
            }
            assert!(done, "the last round is a whole command");
        },
    );
}

/// The connection of the old session is well, whatever its WRITE waits for.
///
/// Covers: ERL-08/T, ERL-10.
#[test]
fn a_session_may_be_reinstated_in_each_phase_of_a_write() {
    on_each_engine(
        |_| {},
        |server| {
            let plan = LoginPlan::new().with(&KEYS);
            let mut done = false;
            for count in 1..=BOUNDARIES + 2 {
                let data = pattern(4096, u8::try_from(count).expect("few"));
                let mut old = server.login_with(&plan);
                old.settle(0);
                done = write_until(&mut old, &data, count);
                let mut new = server.login_with(&plan);
                assert_ne!(new.tsih, old.tsih);
                new.settle(0);
                // What was said to the old one before its end may be there still.
                while let heard @ (Heard::Pdu(_) | Heard::Nothing) = old.raw.hear(raw::PATIENCE) {
                    assert!(matches!(heard, Heard::Pdu(_)), "the old session has ended");
                }
                assert_eq!(server.target().sessions().len(), 1);
                let command = new.read_blocks(0, 0, 8);
                let read = new.run(&command).data;
                assert!(!done || read == data, "an acknowledged write is there");
                assert!(write_until(&mut new, &data, usize::MAX), "the new session works");
                new.leave();
            }
            assert!(done, "the last round is a whole command");
        },
    );
}

/// Covers: ERL-01/T.
#[test]
fn a_connection_lost_within_a_pdu_is_recovered_by_a_new_session() {
    on_each_engine(
        |_| {},
        |server| {
            let plan = LoginPlan::new();
            let data = pattern(512, 3);
            let length = 48 + data.len();
            for cut in (0..length).step_by(31).chain([length - 1]) {
                let mut session = server.login_with(&plan);
                session.settle(0);
                let command = session.write_blocks(0, 9, 1);
                let mut bytes = header(&Request::Command(command), 512);
                bytes.extend_from_slice(&data);
                session.raw.write(&bytes[..cut]);
                drop(session);
                let mut session = server.login_with(&plan);
                session.settle(0);
                let command = session.read_blocks(0, 9, 1);
                assert_eq!(session.run(&command).data, [0; 512], "the lost write never happened");
            }
        },
    );
}
