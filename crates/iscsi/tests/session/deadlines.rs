// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Write data that was asked for, or announced, and does not come (RFC 7143 §7.8).

use super::driver::*;
use core::time::Duration;
use iscsi::datamover::{DataError, Immediate, Op};
use iscsi::target_role::ConnectionId;
use iscsi::target_role::Output;
use iscsi::target_role::Traffic;

/// Runs the clock until the mover is asked to look for what is overdue; how long that took.
fn look(driver: &mut Driver) -> Option<Duration> {
    let is_look = |output: &Output| matches!(output, Output::Op(_, Op::Overdue { .. }));
    (1..=120_u64)
        .find(|_| driver.wait(Duration::from_secs(1)).iter().any(is_look))
        .map(Duration::from_secs)
}

/// At ErrorRecoveryLevel 0 nothing is asked for again: the command ends.
#[test]
fn write_data_that_never_comes_ends_its_command() {
    for announced in [false, true] {
        let mut driver = Setup::new().start();
        let write = if announced { driver.write_more(8192) } else { driver.write(8192) };
        let (task, _) = driver.start_write(write, Immediate::None, 8192);
        // Something may have come until the first look; between two of them nothing has.
        for _ in 0..2 {
            let waited = look(&mut driver).expect("a look");
            assert!(waited <= Duration::from_secs(20), "{waited:?}");
        }
        let outputs = driver.failed(task, DataError::Overdue);
        assert!(dropped(&outputs, task));
        assert_eq!(sense(&outputs), (0x0b, 0x47, 0x05));
        driver.released(task);
        assert_eq!(look(&mut driver), None, "nothing is waited for any more");
    }
}

/// A slow line brings one burst after the other: the last one is not late while others come, but
/// not for ever.
#[test]
fn data_that_comes_puts_the_look_off_for_a_while() {
    let mut driver = Setup::new().start();
    let write = driver.write(8192);
    driver.start_write(write, Immediate::None, 8192);
    let mut looks = 0;
    let mut quiet = 0;
    for second in 0..180 {
        if second % 3 == 0 {
            let write = driver.write(4096);
            let (task, _) = driver.start_write(write, Immediate::None, 4096);
            let outputs = driver.done(task, 0, 4096);
            assert!(received(&outputs, task));
            driver.complete(task, good());
        }
        let outputs = driver.wait(Duration::from_secs(1));
        let looked = outputs.iter().any(|out| matches!(out, Output::Op(_, Op::Overdue { .. })));
        looks += u32::from(looked);
        quiet += u32::from(looks == 0);
    }
    assert!(quiet > 30, "{quiet} s");
    assert!(looks >= 2, "{looks}");
}

/// How many seconds pass without a look when sixteen commands of 1 MiB are asked for, and so many
/// bytes come each second.
fn without_a_look(rate: u64, seconds: u64) -> u64 {
    let mut driver = Setup::new().start();
    for _ in 0..16 {
        let write = driver.write(1 << 20);
        driver.start_write(write, Immediate::None, 1 << 20);
    }
    let is_look = |output: &Output| matches!(output, Output::Op(_, Op::Overdue { .. }));
    let quiet = |second: &u64| {
        let received = second * rate;
        let traffic = Traffic { received, data_outs: received / 8192, ..Traffic::default() };
        let now = driver.now + Duration::from_secs(1);
        driver.session.note_traffic(ConnectionId(0), traffic, now);
        !driver.wait(Duration::from_secs(1)).iter().any(is_look)
    };
    u64::try_from((1..=seconds).take_while(quiet).count()).expect("few")
}

/// The last of many bursts waits long for its turn on a slow line; not for ever, and a trickle is
/// no line.
#[test]
fn data_that_comes_slowly_is_not_late() {
    assert_eq!(without_a_look(100_000, 170), 170, "16 MiB take so long");
    assert!(without_a_look(100_000, 600) < 400);
    assert!(without_a_look(10_000, 600) < 30);
    assert!(without_a_look(0, 600) < 30);
}

/// Above level 0 it is asked for again, but a hog does not hold up others for minutes.
#[test]
fn data_that_does_not_come_again_and_again_ends_the_command() {
    let mut driver = Setup::new().keys(|keys| keys.error_recovery_level = 1).start();
    let write = driver.write(8192);
    let (task, _) = driver.start_write(write, Immediate::None, 8192);
    let mut waited = Duration::ZERO;
    let sense = loop {
        waited += look(&mut driver).expect("a look");
        let outputs = driver.failed(task, DataError::Overdue);
        if dropped(&outputs, task) {
            break sense(&outputs);
        }
        driver.acknowledge();
    };
    assert_eq!(sense, (0x0b, 0x47, 0x05));
    assert!(waited <= Duration::from_secs(40), "{waited:?}");
}
