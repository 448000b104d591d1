// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Our initiator at a target that took a part of a WRITE, or brought a part of a READ, and says
//! GOOD (RFC 7143 §11.4.5.1).
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::time::Duration;

use initiator::Config;
use initiator::Data;
use initiator::Done;
use initiator::Error;
use initiator::Event;
use initiator::Kind;
use initiator::Options;
use initiator::Queue;
use initiator::Request as Wish;
use initiator::Retry;
use lunwire_conformance::mock;
use lunwire_conformance::mock::Mock;
use wire::iscsi::*;
use wire::scsi::sam::CONDITION_MET;
use wire::scsi::sam::GOOD;

/// How a WRITE of 512 bytes ends to which the target answers so.
fn write(status: u8, residual: Residual, retry: Retry) -> Result<(), Error> {
    let mock = Mock::start(move |request, _, numbers| match request {
        Request::Command(command) => {
            let answer = ScsiResponse { residual, ..mock::status(command, numbers, status) };
            vec![(Response::Scsi(answer), Vec::new())]
        }
        _ => Vec::new(),
    });
    let data = Data::Out(vec![1; 512].into());
    carry_out(&mock, cdb(0x2a, 1), data, retry).map(drop)
}

/// A CDB of 10 bytes for so many blocks, or for so much parameter data.
fn cdb(code: u8, length: u8) -> Cdb {
    let mut bytes = [0; 32];
    (bytes[0], bytes[8]) = (code, length);
    Cdb { bytes, len: 16 }
}

/// How a command ends.
fn carry_out(mock: &Mock, cdb: Cdb, data: Data, retry: Retry) -> Result<Done, Error> {
    let target = Some("iqn.2026-01.example:t".to_owned());
    let mut queue = Queue::new(&Config::default()).unwrap();
    let id = queue.login(Options::new(mock.portal().to_string(), target)).unwrap();
    queue.post(id, 1, Wish { lun: 0, cdb, data, retry }).unwrap();
    loop {
        queue.wait_n(1, Duration::from_secs(10));
        while let Some(event) = queue.reap() {
            if let Event::Done { result, .. } = event {
                return result;
            }
        }
    }
}

#[test]
fn a_write_that_the_target_took_in_part_is_no_success() {
    assert!(write(GOOD, Residual::None, Retry::Always).is_ok());
    for residual in [Residual::Underflow(1), Residual::Underflow(512), Residual::Overflow(512)] {
        let end = write(GOOD, residual, Retry::Always);
        let end = end.expect_err("data is missing");
        assert!(matches!(end.kind(), Kind::Untaken(_)), "{residual:?}: {end}");
    }
    // Whoever wants to see all that a target says sees it.
    assert!(write(GOOD, Residual::Underflow(1), Retry::Never).is_ok());
}

#[test]
fn no_write_ends_with_condition_met() {
    let end = write(CONDITION_MET, Residual::None, Retry::Always);
    let end = end.expect_err("nothing was met");
    assert!(matches!(end.kind(), Kind::Status { status: CONDITION_MET, .. }), "{end}");
}

/// A READ of 4096 bytes with GOOD and so many of them, each way to say so.
fn read(code: u8, bytes: usize, residual: Residual, retry: Retry) -> Result<Done, Error> {
    let mock = Mock::start(move |request, _, numbers| match request {
        Request::Command(command) if bytes == 0 => {
            let answer = ScsiResponse { residual, ..mock::status(command, numbers, GOOD) };
            vec![(Response::Scsi(answer), Vec::new())]
        }
        Request::Command(command) => {
            let mut answers = mock::data(command, numbers, vec![1; bytes]);
            if let Some((Response::DataIn(data), _)) = answers.first_mut() {
                data.status = Some(CollapsedStatus { status: GOOD, residual });
            }
            answers
        }
        _ => Vec::new(),
    });
    carry_out(&mock, cdb(code, 8), Data::In(4096), retry)
}

#[test]
fn a_read_that_brought_less_than_its_blocks_is_no_success() {
    for code in [0x08, 0x28, 0xa8, 0x88] {
        for (bytes, residual) in [
            (0, Residual::None),
            (0, Residual::Underflow(4096)),
            (512, Residual::None),
            (512, Residual::Underflow(3584)),
            (4096, Residual::Underflow(1)),
        ] {
            let end = read(code, bytes, residual, Retry::Always).map(drop);
            let end = end.expect_err("data is missing");
            let short = matches!(end.kind(), Kind::Short { expected: 4096, .. });
            assert!(short, "{code:#x} {bytes} {residual:?}: {end}");
        }
    }
    assert!(read(0x28, 4096, Residual::None, Retry::Always).is_ok());
    // Parameter data is as long as it is, and whoever wants to see all that comes sees it.
    for (code, retry) in [(0x5a, Retry::Always), (0x28, Retry::Never)] {
        let done = read(code, 512, Residual::Underflow(3584), retry).unwrap();
        assert_eq!(done.data.unwrap().len(), 512);
    }
}
