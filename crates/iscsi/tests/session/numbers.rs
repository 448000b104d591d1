// SPDX-License-Identifier: Apache-2.0 OR MIT
//! StatSN of all responses.

use super::driver::*;
use iscsi::datamover::Event;
use wire::iscsi::{Cid, Itt, LogoutRequest, Request, ScsiCommand, Ttt};

/// Each kind of response takes the next StatSN; the driver compares each with the one before.
///
/// Covers: STS-01, STS-03/T.
#[test]
fn every_response_takes_the_next_number() {
    let mut driver = Setup::new().start();
    let read = driver.read(4096);
    let read = driver.start(read);
    driver.complete(read, data(4096));
    // Data whose status does not travel with it takes no number.
    let read = driver.read(4096);
    let read = driver.start(read);
    let failed = iscsi::service::Completion { status: CHECK_CONDITION, ..data(4096) };
    let response = scsi(&driver.complete(read, failed));
    assert_eq!(response.numbers.stat_sn.0, STAT_SN + 1);
    let write = driver.write(4096);
    let (write, outputs) = driver.start_write(write, iscsi::datamover::Immediate::None, 4096);
    assert_eq!(asked(&outputs).len(), 1);
    driver.done(write, 0, 4096);
    driver.complete(write, good());
    let request = driver.management(0);
    driver.manage(request);
    let text = driver.text();
    driver.ask(text, b"X-a=1\0");
    driver.event(Event::Rejected { reason: 9 }, &[]);
    // Of a connection that is not there: this one goes on.
    let logout = LogoutRequest { cid: Cid(99), ..driver.logout(1) };
    driver.log_out(logout);
    let nop = driver.nop(Itt(1), Ttt::NONE);
    driver.request(Request::NopOut(nop), &[]);
    driver.session.request_logout(10);
    driver.drain();
    let logout = driver.logout(0);
    driver.log_out(logout);
    assert_eq!(driver.exp_stat_sn, STAT_SN + 10);
}

#[test]
fn many_commands_at_once_keep_the_numbers_in_order() {
    let mut driver = Setup::new().depth(32).start();
    let mut tasks = Vec::new();
    for n in 0..32 {
        let command = ScsiCommand { read: n % 2 == 0, expected_length: 512, ..driver.command() };
        tasks.push(driver.start(command));
    }
    for (n, task) in tasks.into_iter().rev().enumerate() {
        let completion = if n % 3 == 0 { status(8) } else { data(512) };
        driver.complete(task, completion);
    }
    assert_eq!(driver.exp_stat_sn, STAT_SN + 32);
    assert_eq!(driver.max_cmd_sn(), CMD_SN + 63);
}
