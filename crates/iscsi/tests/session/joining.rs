// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A connection that joins has the values of its session, whatever its own login would come to.

use super::driver::*;
use core::time::Duration;
use iscsi::datamover::{Capabilities, Immediate, Keys, Op};
use iscsi::target_role::{ConnectionId, Output, Parameters, TaskReporting};
use wire::iscsi::{Cid, Response};

const OWN_CID: u16 = 8;

/// A session whose second connection says of each key the opposite.
fn joined() -> (Driver, ConnectionId) {
    let (driver, second, _) = told();
    (driver, second)
}

/// The same, and what the mover of the second one is told.
fn told() -> (Driver, ConnectionId, Keys) {
    told_of(200)
}

/// The same, and the second one would be retained for `time2retain` seconds.
fn told_of(time2retain: u16) -> (Driver, ConnectionId, Keys) {
    let setup = Setup::new().keys(|keys| {
        keys.max_connections = 2;
        keys.max_burst_length = 4096;
        keys.first_burst_length = 2048;
        keys.max_outstanding_r2t = 1;
        keys.initial_r2t = true;
        (keys.time2wait, keys.time2retain) = (3, 7);
    });
    let mut driver = setup.start();
    let other = |own: &mut Parameters| {
        own.max_connections = 8;
        own.max_burst_length = 65536;
        own.first_burst_length = 65536;
        own.max_outstanding_r2t = 4;
        own.initial_r2t = false;
        own.error_recovery_level = 2;
        own.task_reporting = TaskReporting::FastAbort;
        (own.time2wait, own.time2retain) = (100, time2retain);
    };
    let (second, outputs) = driver.join_with(OWN_CID, 9000, other);
    let [Output::Op(_, Op::NoticeKeys(keys))] = outputs[..] else { panic!("{outputs:?}") };
    (driver, second, keys)
}

/// Covers: SES-30/T.
#[test]
fn what_the_first_connection_agreed_on_for_itself_is_its_own() {
    let setup = Setup::new().keys(|keys| {
        keys.max_connections = 2;
        (keys.header_digest, keys.data_digest) = (true, true);
        (keys.max_send_data_segment_length, keys.max_recv_data_segment_length) = (65536, 32768);
    });
    let mut driver = setup.start();
    let (_, outputs) = driver.join_with(OWN_CID, 9000, |own| {
        (own.header_digest, own.data_digest) = (false, false);
        (own.max_send_data_segment_length, own.max_recv_data_segment_length) = (8192, 8192);
    });
    let [Output::Op(_, Op::NoticeKeys(keys))] = outputs[..] else { panic!("{outputs:?}") };
    assert!(!keys.header_digest && !keys.data_digest);
    let lengths = (keys.max_send_data_segment_length, keys.max_recv_data_segment_length);
    assert_eq!(lengths, (8192, 8192));
}

/// Covers: KEY-24b/T.
#[test]
fn unsolicited_data_is_as_long_as_the_session_agreed() {
    let (mut driver, second, keys) = told();
    assert_eq!(keys.first_burst_length, 2048);
    driver.on(second);
    let (command, staged) = (driver.write(4096), driver.staged(4096, 4096));
    assert_eq!(sense(&driver.send_with(command, staged)), (0x0b, 0x0c, 0x0d));
}

/// Covers: KEY-14b/T, KEY-23b/T, KEY-28b/T.
#[test]
fn data_is_asked_for_as_the_session_agreed() {
    let (mut driver, second) = joined();
    driver.on(second);
    let command = driver.write(4096 * 3);
    let (_, outputs) = driver.start_write(command, Immediate::None, 4096 * 3);
    assert_eq!(asked(&outputs), [(0, 4096)], "one R2T, of one burst");
    let unsolicited = driver.write_more(4096);
    assert_eq!(expected(&driver.send(unsolicited)), [(0, 2048, true)], "it is dropped");
}

/// In either way, on each connection.
///
/// Covers: KEY-15b/T.
#[test]
fn immediate_data_is_taken_as_the_session_agreed() {
    for agreed in [false, true] {
        let setup = Setup::new().keys(|keys| {
            keys.max_connections = 2;
            keys.immediate_data = agreed;
        });
        let mut driver = setup.start();
        let (second, outputs) = driver.join_with(OWN_CID, 9000, |own| own.immediate_data = !agreed);
        let [Output::Op(_, Op::NoticeKeys(keys))] = outputs[..] else { panic!("{outputs:?}") };
        assert_eq!(keys.first_burst_length > 0, agreed);
        for connection in [second, OWN] {
            driver.on(connection);
            let (command, staged) = (driver.write(512), driver.staged(512, 512));
            let outputs = driver.send_with(command, staged);
            match agreed {
                true => assert!(responses(&outputs).is_empty(), "{outputs:?}"),
                false => assert_eq!(sense(&outputs), (0x0b, 0x0c, 0x0c)),
            }
        }
    }
}

/// Whether the ends of tasks are told, on each connection.
///
/// Covers: KEY-35b/T.
#[test]
fn ends_of_tasks_are_reported_as_the_session_agreed() {
    for (agreed, of_second) in [
        (TaskReporting::Rfc3720, TaskReporting::FastAbort),
        (TaskReporting::ResponseFence, TaskReporting::FastAbort),
        (TaskReporting::FastAbort, TaskReporting::Rfc3720),
    ] {
        let setup = Setup::new().keys(|keys| {
            (keys.max_connections, keys.task_reporting) = (2, agreed);
            keys.initial_r2t = true;
        });
        let mut driver = setup.start();
        let (second, _) = driver.join_with(OWN_CID, 9000, |own| own.task_reporting = of_second);
        for connection in [OWN, second] {
            driver.on(connection);
            let write = driver.write(4096);
            let (task, _) = driver.start_write(write, Immediate::None, 4096);
            driver.session.terminate(&[task], None);
            let outputs = driver.drain();
            let told = responses(&outputs).into_iter().any(|response| match response {
                Response::Async(message) => message.event == 5,
                _ => false,
            });
            assert_eq!(told, agreed == TaskReporting::FastAbort, "{agreed:?}");
        }
    }
}

/// Covers: KEY-05b/T, LGN-44.
#[test]
fn there_are_as_many_connections_as_the_session_agreed() {
    let (driver, _) = joined();
    assert_eq!(driver.session.admits(Cid(9), Capabilities::STREAM), Err(0x0206));
}

/// Covers: KEY-26b/T, KEY-27b/T, KEY-32b/T.
#[test]
fn a_connection_that_is_lost_is_kept_as_the_session_agreed() {
    for time2retain in [200, 1] {
        let (mut driver, second, _) = told_of(time2retain);
        driver.on(second);
        let write = driver.write(4096);
        driver.start_write(write, Immediate::None, 4096);
        driver.on(OWN);
        let outputs = driver.lose(second);
        assert!(driver.session.tasks(None).is_empty(), "level 0 keeps no task");
        let told = responses(&outputs).into_iter().find_map(|response| match response {
            Response::Async(message) => Some((message.parameter2, message.parameter3)),
            _ => None,
        });
        assert_eq!(told, Some((3, 7)));
        driver.lose(OWN);
        driver.wait(Duration::from_millis(9999));
        assert!(driver.closed.is_none());
        driver.wait(Duration::from_millis(1));
        assert!(driver.closed.is_some());
    }
}
