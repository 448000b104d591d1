// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Violations and what follows from them.

use super::driver::*;
use iscsi::datamover::{Event, StreamViolation};
use iscsi::violation::{Reaction, Sense, Violation};
use wire::iscsi::{
    Cid, CmdSn, DataOut, DataSn, Isid, Itt, LoginRequest, LunField, Request, Response, Snack,
    Stage, StatSn, Tsih, Ttt,
};

/// Covers: REJ-01, REJ-11.
#[test]
fn a_reject_carries_the_header_and_normal_numbers() {
    let mut driver = Setup::new().start();
    driver.header = (0..60).collect();
    let outputs = driver.event(Event::Rejected { reason: 5 }, &[]);
    let Response::Reject(reject) = only(&outputs) else { panic!() };
    assert_eq!((reject.reason, reject.numbers.stat_sn), (5, StatSn(STAT_SN)));
    assert_eq!(reject.numbers.exp_cmd_sn, CmdSn(CMD_SN));
    assert_eq!(reject.numbers.max_cmd_sn, CmdSn(CMD_SN + 7));
    assert_eq!(segment(&outputs), driver.header);
    assert_eq!(driver.exp_stat_sn, STAT_SN + 1);
    let Response::Reject(reject) = only(&driver.event(Event::Rejected { reason: 5 }, &[])) else {
        panic!()
    };
    assert_eq!(reject.numbers.stat_sn, StatSn(STAT_SN + 1));
}

/// Covers: REJ-04, REJ-06, PER-01, PER-04, DOU-10.
#[test]
fn the_movers_reasons_pass() {
    let mut driver = Setup::new().start();
    for reason in [0x04, 0x05, 0x09] {
        assert_eq!(reject(&driver.event(Event::Rejected { reason }, &[])), reason);
    }
    let command = driver.command();
    driver.start(command);
}

/// Covers: DGT-05, DGT-07.
#[test]
fn a_command_with_a_bad_digest_was_not_received() {
    let mut driver = Setup::new().start();
    let command = driver.command();
    assert_eq!(reject(&driver.event(Event::DigestError, &[])), 2);
    assert_eq!(driver.exp_cmd_sn(), CMD_SN);
    driver.send(command);
    assert_eq!(driver.commands.len(), 1);
}

/// Covers: SNK-14.
#[test]
fn snack_is_refused_at_level_0() {
    let mut driver = Setup::new().start();
    for kind in 0..16 {
        let snack = Snack {
            kind,
            lun: LunField::default(),
            itt: Itt(1),
            tag: u32::MAX,
            exp_stat_sn: StatSn(STAT_SN),
            beg_run: 0,
            run_length: 0,
        };
        assert_eq!(reject(&driver.request(Request::Snack(snack), &[])), 5);
    }
}

/// Covers: PER-02, REJ-05, ISP-17/T.
#[test]
fn a_login_in_full_feature_phase_is_refused() {
    let login = LoginRequest {
        transit: true,
        continue_: false,
        current: Stage::Operational,
        next: Some(Stage::FullFeature),
        version_max: 0,
        version_min: 0,
        isid: Isid([0; 6]),
        tsih: Tsih(9),
        itt: Itt(1),
        cid: Cid(CID),
        cmd_sn: CmdSn(CMD_SN),
        exp_stat_sn: StatSn(0x7fff_0000),
    };
    for setup in [Setup::new(), Setup::discovery(), Setup::over_rdma()] {
        let mut driver = setup.start();
        assert_eq!(reject(&driver.request(Request::Login(login), &[])), 4);
        assert!(driver.closed.is_none());
    }
}

#[test]
fn a_data_out_that_reaches_the_session_names_no_transfer() {
    let mut driver = Setup::new().start();
    let data = DataOut {
        final_: true,
        lun: LunField::default(),
        itt: Itt(1),
        ttt: Ttt(5),
        exp_stat_sn: StatSn(STAT_SN),
        data_sn: Default::default(),
        offset: 0,
    };
    assert_eq!(reject(&driver.request(Request::DataOut(data), &[])), 9);
}

/// Every violation has its reaction.
///
/// Covers: OBS-06/T, OBS-11.
#[test]
fn all_violations() {
    let aborted = |code, qualifier| Reaction::FailTask(Sense { key: 0x0b, code, qualifier });
    let bidirectional = Sense { key: 0x05, code: 0x20, qualifier: 0 };
    let table = [
        (Violation::OutsideWindow(CmdSn(1)), Reaction::Ignore),
        (Violation::DuplicateCommand(CmdSn(1)), Reaction::Ignore),
        (Violation::Malformed(0x09), Reaction::Reject(0x09)),
        (Violation::Malformed(0x01), Reaction::Reject(0x04)),
        (Violation::Malformed(0x0b), Reaction::Reject(0x04)),
        (Violation::DataDigest, Reaction::Reject(0x02)),
        (Violation::LoginRequest, Reaction::Reject(0x04)),
        (Violation::NotInDiscovery, Reaction::Reject(0x04)),
        (Violation::Snack, Reaction::Reject(0x05)),
        (Violation::NothingToResend(DataSn(3)), Reaction::Reject(0x04)),
        (Violation::NotKept, Reaction::Reject(0x03)),
        (Violation::SnackField, Reaction::Reject(0x09)),
        (Violation::DataAcknowledgement, Reaction::Reject(0x08)),
        (Violation::Unacknowledged, Reaction::DropConnection),
        (Violation::UnknownTransfer, Reaction::Reject(0x09)),
        (Violation::ReservedTaskTag, Reaction::Reject(0x09)),
        (Violation::TaskInProgress, Reaction::Reject(0x07)),
        (Violation::TooManyImmediate, Reaction::Reject(0x06)),
        (Violation::OutOfTasks, Reaction::Reject(0x0a)),
        (Violation::FinalMissing, Reaction::Reject(0x09)),
        (Violation::UnexpectedUnsolicited, aborted(0x0c, 0x0c)),
        (Violation::IncorrectAmount, aborted(0x0c, 0x0d)),
        (Violation::LostData, aborted(0x47, 0x05)),
        (Violation::NoBuffer, Reaction::RefuseTask(0x28)),
        (Violation::Bidirectional, Reaction::FailTask(bidirectional)),
        (Violation::NopNotImmediate, Reaction::Reject(0x04)),
        (Violation::NopBothTags, Reaction::Reject(0x04)),
        (Violation::UnknownPing, Reaction::Reject(0x09)),
        (Violation::UnknownLogoutReason(3), Reaction::Reject(0x09)),
        (Violation::TextContinueFinal, Reaction::Reject(0x04)),
        (Violation::UnknownTextExchange, Reaction::Reject(0x09)),
        (Violation::TextMalformed, Reaction::Reject(0x04)),
        (Violation::TextRepeatedKey, Reaction::Reject(0x04)),
        (Violation::TextInterrupted, Reaction::Reject(0x04)),
        (Violation::TextUnanswered, Reaction::Reject(0x04)),
        (Violation::TextTooLong, Reaction::Reject(0x0a)),
        (Violation::Stream(StreamViolation::HeaderDigest), Reaction::DropConnection),
        (Violation::PingTimeout, Reaction::DropConnection),
        (Violation::LogoutTimeout, Reaction::DropConnection),
        (Violation::DiscoveryIdle, Reaction::DropConnection),
    ];
    for (violation, reaction) in table {
        assert_eq!(violation.reaction(), reaction, "{violation}");
        let obsolete = [Reaction::Reject(0x01), Reaction::Reject(0x0b)];
        assert!(!obsolete.contains(&violation.reaction()), "{violation}");
        let text = violation.to_string();
        assert!(text.starts_with(char::is_lowercase) && !text.ends_with('.'), "{text}");
    }
}
