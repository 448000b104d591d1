// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Our initiator at a target that took a part of a WRITE and says GOOD (RFC 7143 §11.4.5.1).
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::time::Duration;

use initiator::Config;
use initiator::Data;
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
    let target = Some("iqn.2026-01.example:t".to_owned());
    let mut queue = Queue::new(&Config::default()).unwrap();
    let id = queue.login(Options::new(mock.portal().to_string(), target)).unwrap();
    let mut bytes = [0; 32];
    (bytes[0], bytes[8]) = (0x2a, 1);
    let data = Data::Out(vec![1; 512].into());
    queue.post(id, 1, Wish { lun: 0, cdb: Cdb { bytes, len: 16 }, data, retry }).unwrap();
    loop {
        queue.wait_n(1, Duration::from_secs(10));
        while let Some(event) = queue.reap() {
            if let Event::Done { result, .. } = event {
                return result.map(drop);
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
