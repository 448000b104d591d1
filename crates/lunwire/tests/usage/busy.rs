// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A target that answers and carries nothing out, since its store does not answer.

use conformance::mock;
use conformance::mock::Mock;
use wire::iscsi::Request;
use wire::scsi::sam::BUSY;
use wire::scsi::sam::TASK_SET_FULL;

use crate::support::fails;

/// What is waited for is `--patience`, and not `--command-timeout`: the target answers in time.
#[test]
fn a_disk_that_is_busy_is_waited_for_and_then_told_where_to_look() {
    for (status, said) in [
        (BUSY, "its store does not answer; look at lunwire status there"),
        (TASK_SET_FULL, "the target has more to do than it takes"),
    ] {
        let mock = Mock::start(move |request, _, numbers| match request {
            Request::Command(command) => mock::ended(command, numbers, status, None),
            _ => Vec::new(),
        });
        let url = format!("iscsi://{}/iqn.2026-01.example:t/3", mock.portal());
        let name = if status == BUSY { "BUSY" } else { "TASK SET FULL" };
        let (waits, ends) = (
            format!("{name} for 1"),
            format!("{url}: INQUIRY: the target has answered {name} for 2"),
        );
        let patience = ["--patience", "2s", "--command-timeout", "1s"];
        fails(
            1,
            &[&["inspect", &url][..], &patience].concat(),
            &["trying again for a while", &waits, &ends, said],
        );
    }
}
