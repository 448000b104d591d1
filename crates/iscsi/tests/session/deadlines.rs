// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Write data that was asked for, or announced, and does not come (RFC 7143 §7.8).

use super::driver::*;
use core::time::Duration;
use iscsi::datamover::{DataError, Immediate, Op};
use iscsi::target_role::Output;

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
