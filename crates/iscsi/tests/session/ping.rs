// SPDX-License-Identifier: Apache-2.0 OR MIT
//! NOP-Out and NOP-In.

use super::driver::*;
use core::time::Duration;
use iscsi::target_role::{Output, Traffic};
use wire::iscsi::{
    AsyncMessage, Itt, LunField, NopIn, NopOut, Request, Response, ScsiCommand, Ttt,
};

fn nop_in(outputs: &[Output]) -> NopIn {
    match only(outputs) {
        Response::NopIn(nop) => nop,
        other => panic!("{other:?}"),
    }
}

fn pinging() -> Driver {
    let mut setup = Setup::new();
    setup.settings.ping_interval = Duration::from_secs(30);
    setup.start()
}

/// Covers: NOP-01.
#[test]
fn a_ping_is_echoed_up_to_the_initiators_limit() {
    for (sent, echoed) in [(0, 0), (1, 1), (512, 512), (8192, 8192), (9000, 8192)] {
        let setup = Setup::new().keys(|keys| keys.max_send_data_segment_length = 8192);
        let mut driver = setup.start();
        let data: Vec<u8> = (0..sent).map(|n: usize| (n % 256) as u8).collect();
        let itt = driver.next_itt();
        let nop = driver.nop(itt, Ttt::NONE);
        let outputs = driver.request(Request::NopOut(nop), &data);
        let answer = nop_in(&outputs);
        assert_eq!((answer.itt, answer.ttt), (itt, Ttt::NONE));
        assert_eq!(segment(&outputs), data[..echoed]);
    }
}

#[test]
fn a_ping_in_order_takes_a_command_number() {
    let mut driver = Setup::new().start();
    let itt = driver.next_itt();
    let cmd_sn = driver.take_cmd_sn();
    let nop = NopOut { immediate: false, cmd_sn, ..driver.nop(itt, Ttt::NONE) };
    let answer = nop_in(&driver.request(Request::NopOut(nop), b"hello"));
    assert_eq!(answer.numbers.exp_cmd_sn.0, CMD_SN + 1);
    assert_eq!(answer.numbers.max_cmd_sn.0, CMD_SN + 8);
}

/// Covers: NOP-05.
#[test]
fn an_acknowledgement_has_no_answer() {
    let mut driver = Setup::new().start();
    assert!(driver.acknowledge().is_empty());
}

/// Covers: NOP-09.
#[test]
fn a_nop_without_a_tag_must_be_immediate() {
    let mut driver = Setup::new().start();
    let nop = NopOut { immediate: false, ..driver.nop(Itt::NONE, Ttt::NONE) };
    assert_eq!(reject(&driver.request(Request::NopOut(nop), &[])), 4);
    assert_eq!(driver.exp_cmd_sn(), CMD_SN);
}

#[test]
fn a_nop_with_both_tags_is_an_error() {
    let mut driver = Setup::new().start();
    let nop = driver.nop(Itt(1), Ttt(1));
    assert_eq!(reject(&driver.request(Request::NopOut(nop), &[])), 4);
}

#[test]
fn an_answer_to_no_ping_is_an_error() {
    let mut driver = Setup::new().start();
    let nop = driver.nop(Itt::NONE, Ttt(77));
    assert_eq!(reject(&driver.request(Request::NopOut(nop), &[])), 9);
}

/// Covers: NOP-06, NOP-07, STS-02.
#[test]
fn a_silent_initiator_is_pinged() {
    let mut driver = pinging();
    let lun = LunField([0, 5, 0, 0, 0, 0, 0, 0]);
    let command = ScsiCommand { lun, ..driver.command() };
    let task = driver.start(command);
    driver.complete(task, good());
    assert!(driver.wait(Duration::from_secs(29)).is_empty());
    let outputs = driver.wait(Duration::from_secs(1));
    let ping = nop_in(&outputs);
    assert_eq!((ping.itt, ping.lun), (Itt::NONE, lun));
    assert_ne!(ping.ttt, Ttt::NONE);
    assert!(segment(&outputs).is_empty());
    let answer = driver.nop(Itt::NONE, ping.ttt);
    assert!(driver.request(Request::NopOut(answer), &[]).is_empty());
    assert!(driver.wait(Duration::from_secs(29)).is_empty());
    let next = nop_in(&driver.wait(Duration::from_secs(1)));
    assert_ne!(next.ttt, ping.ttt);
    assert_eq!(next.numbers.stat_sn, ping.numbers.stat_sn, "a ping does not advance StatSN");
}

/// Covers: NOP-10/T, ASY-07, LGO-15/T.
#[test]
fn a_ping_without_answer_ends_the_connection() {
    let mut driver = pinging();
    driver.wait(Duration::from_secs(30));
    assert!(driver.wait(Duration::from_secs(4)).is_empty());
    let outputs = driver.wait(Duration::from_secs(1));
    let Response::Async(AsyncMessage { event, parameter1, parameter2, parameter3, .. }) =
        only(&outputs)
    else {
        panic!()
    };
    assert_eq!((event, parameter1, parameter2, parameter3), (2, CID, 2, 0));
    assert!(nexus_lost(&outputs) && driver.terminated);
    assert_eq!(driver.closed.as_deref(), Some("no answer to a ping"));
}

#[test]
fn traffic_keeps_pings_away() {
    let mut driver = pinging();
    for _ in 0..10 {
        assert!(driver.wait(Duration::from_secs(29)).is_empty());
        driver.acknowledge();
    }
}

#[test]
fn traffic_does_not_replace_the_answer_to_a_ping() {
    let mut driver = pinging();
    driver.wait(Duration::from_secs(30));
    driver.acknowledge();
    driver.wait(Duration::from_secs(5));
    assert!(driver.closed.is_some());
}

#[test]
fn no_interval_means_no_pings() {
    let mut driver = Setup::new().start();
    assert_eq!(driver.session.poll_timeout(), None);
    assert!(driver.wait(Duration::from_secs(100_000)).is_empty());
}

/// What a connection has carried: taken, asked for, received and Data-Outs.
fn carried(taken: u64, asked: u64, received: u64, data_outs: u64) -> Traffic {
    Traffic { taken, asked, received, data_outs }
}

/// As the pump tells the time: with what was carried until then.
fn wait(driver: &mut Driver, seconds: u64, traffic: Traffic) -> Vec<Output> {
    let now = driver.now + Duration::from_secs(seconds);
    driver.session.note_traffic(OWN, traffic, now);
    driver.wait(Duration::from_secs(seconds))
}

/// Far more than is on its way when a ping has left.
const FAR: u64 = 1 << 30;

#[test]
fn a_ping_waits_behind_data_that_is_taken() {
    let mut driver = pinging();
    wait(&mut driver, 30, carried(0, FAR, 0, 0));
    for seconds in 1..1000 {
        assert!(wait(&mut driver, 4, carried(seconds * 200_000, FAR, 0, 0)).is_empty());
    }
    let before = carried(999 * 200_000, FAR, 0, 0);
    assert!(wait(&mut driver, 4, before).is_empty());
    wait(&mut driver, 1, before);
    assert!(driver.closed.is_some(), "nothing is taken any more");
}

#[test]
fn a_ping_waits_behind_data_that_comes() {
    let mut driver = pinging();
    wait(&mut driver, 30, carried(0, 0, 0, 0));
    for part in 1..100 {
        assert!(wait(&mut driver, 4, carried(0, 0, part * 200_000, part)).is_empty());
    }
    wait(&mut driver, 5, carried(0, 0, 100 * 200_000, 99));
    assert!(driver.closed.is_some(), "it has sent other things than data");
}

#[test]
fn an_initiator_that_reads_and_writes_has_to_answer_pings() {
    let steps: [fn(u64) -> Traffic; 3] = [
        |step| carried(step << 20, (step + 1) << 20, 0, 0),
        |step| carried(0, 0, step << 20, step),
        |step| carried(step << 20, step << 20, step << 20, step),
    ];
    for step in steps {
        let mut driver = pinging();
        wait(&mut driver, 30, step(0));
        let end = (1..200).find(|at| {
            wait(&mut driver, 4, step(*at));
            driver.closed.is_some()
        });
        assert!(end.is_some_and(|at| at > 60), "{end:?}");
    }
}

/// Pings, and answers of its system to them, are no sign of an initiator.
#[test]
fn a_few_bytes_do_not_replace_the_answer_to_a_ping() {
    let mut driver = pinging();
    wait(&mut driver, 30, carried(0, 0, 0, 0));
    wait(&mut driver, 5, carried(48, 48, 48, 0));
    assert!(driver.closed.is_some());
}
