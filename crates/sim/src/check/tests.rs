// SPDX-License-Identifier: Apache-2.0 OR MIT

use wire::iscsi::Attribute;
use wire::iscsi::Cdb;
use wire::iscsi::DataIn;
use wire::iscsi::DataSn;
use wire::iscsi::LunField;
use wire::iscsi::Residual;
use wire::iscsi::ScsiCommand;
use wire::iscsi::ScsiResponse;
use wire::iscsi::Ttt;

use super::*;

fn checks() -> Checks {
    let (cmd_sn, stat_sn) = (CmdSn(5), StatSn(9));
    Checks { up: true, cmd_sn, stat_sn, ..Checks::default() }
}

fn command(cmd_sn: u32, itt: u32) -> Request {
    Request::Command(ScsiCommand {
        immediate: false,
        final_: true,
        read: true,
        write: false,
        attribute: Attribute::Simple,
        priority: 0,
        lun: LunField::default(),
        itt: Itt(itt),
        expected_length: 512,
        cmd_sn: CmdSn(cmd_sn),
        exp_stat_sn: StatSn(9),
        cdb: Cdb { bytes: [0; 32], len: 16 },
        bidi_read_length: None,
    })
}

fn numbers(stat_sn: u32, exp_cmd_sn: u32, max_cmd_sn: u32) -> Numbers {
    let (exp_cmd_sn, max_cmd_sn) = (CmdSn(exp_cmd_sn), CmdSn(max_cmd_sn));
    Numbers { stat_sn: StatSn(stat_sn), exp_cmd_sn, max_cmd_sn }
}

fn data(itt: u32, data_sn: u32, offset: u32) -> Response {
    Response::DataIn(DataIn {
        final_: true,
        acknowledge: false,
        status: None,
        lun: LunField::default(),
        itt: Itt(itt),
        ttt: Ttt::NONE,
        numbers: numbers(0, 6, 20),
        data_sn: DataSn(data_sn),
        offset,
    })
}

fn response(itt: u32, stat_sn: u32, max_cmd_sn: u32, residual: Residual) -> Response {
    Response::Scsi(ScsiResponse {
        response: 0,
        status: 0,
        status_qualifier: 0,
        itt: Itt(itt),
        snack_tag: 0,
        numbers: numbers(stat_sn, 6, max_cmd_sn),
        exp_data_sn: DataSn(0),
        bidi_read_residual: Residual::None,
        residual,
    })
}

#[test]
fn a_command_with_its_data_and_one_response_is_fine() {
    let mut checks = checks();
    checks.request(&command(5, 1), 0).expect("in order");
    checks.response(&data(1, 0, 0), 512).expect("all of it");
    checks.response(&response(1, 9, 20, Residual::None), 0).expect("the one response");
    assert!(checks.response(&response(1, 10, 20, Residual::None), 0).is_err(), "a second one");
}

#[test]
fn gaps_and_closed_windows_are_found() {
    assert!(checks().request(&command(6, 1), 0).is_err());
    let mut checks = checks();
    checks.request(&command(5, 1), 0).expect("in order");
    assert!(checks.request(&command(6, 1), 0).is_err(), "the tag is in use");
    checks.response(&response(1, 9, 6, Residual::Underflow(512)), 0).expect("no data");
    assert!(checks.request(&command(7, 2), 0).is_err(), "beyond the window");
    assert!(checks.response(&data(1, 0, 0), 512).is_err(), "after its response");
}

#[test]
fn wrong_sums_and_numbers_are_found() {
    let mut checks = checks();
    checks.request(&command(5, 1), 0).expect("in order");
    assert!(checks.response(&data(1, 1, 0), 512).is_err(), "DataSN");
    checks.response(&data(1, 0, 0), 256).expect("half of it");
    assert!(checks.response(&response(1, 10, 20, Residual::None), 0).is_err(), "StatSN");
    assert!(checks.response(&response(1, 9, 20, Residual::None), 0).is_err(), "half is missing");
}

#[test]
fn a_key_is_sent_once() {
    let mut keys = Keys::default();
    keys.hear(0, b"MaxBurstLength=1024\0First").expect("one and a half");
    keys.hear(0, b"BurstLength=512\0").expect("the other half");
    assert_eq!((keys.max_burst, keys.first_burst), (1024, 512));
    assert!(keys.hear(0, b"MaxBurstLength=1024\0").is_err());
}

#[test]
fn a_rejected_command_comes_again_as_it_was_and_is_not_counted_before() {
    let reject = |checks: &mut Checks, cmd_sn| checks.reject(&command(cmd_sn, 1));
    let mut checks = checks();
    checks.request(&command(5, 1), 0).expect("in order");
    assert!(checks.request(&command(5, 1), 0).is_err(), "nobody has rejected it");
    reject(&mut checks, 5);
    checks.window(numbers(0, 5, 20)).expect("it is open");
    assert!(checks.window(numbers(0, 6, 20)).is_err(), "it was not received");
    checks.request(&command(5, 1), 0).expect("it fills the gap");
    checks.window(numbers(0, 6, 20)).expect("now it was received");
    checks.request(&command(6, 2), 0).expect("the next one");
    let mut changed = checks.tasks.len();
    reject(&mut checks, 5);
    let Request::Command(mut other) = command(5, 1) else { unreachable!("made above") };
    other.expected_length = 1024;
    assert!(checks.request(&Request::Command(other), 0).is_err(), "it was another one");
    changed -= checks.tasks.len();
    assert_eq!(changed, 1);
}
