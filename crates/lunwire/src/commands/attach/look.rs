// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Looks at an attached disk that nobody uses: a unit tells of another size, or of a reset, in
//! answer to a command.

use std::io;
use std::sync::mpsc;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::mpsc::Sender;
use std::time::Duration;

use initiator::Data;
use initiator::Disk;
use initiator::Retry;
use initiator::scsi::Opcode;
use initiator::scsi::command;

/// Between two looks (docs/ATTACH.md): one small command.
const INTERVAL: Duration = Duration::from_secs(4);

/// It looks until this is dropped.
pub(super) struct Looking {
    _end: Sender<()>,
}

/// Asks `disk` in a thread of its own whether it is ready, again and again.
///
/// # Errors
/// If there can be no thread.
pub(super) fn begin(disk: Disk) -> io::Result<Looking> {
    let (end, ended) = mpsc::channel();
    std::thread::Builder::new().name("look".into()).spawn(move || {
        while ended.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
            let question = command::plain(Opcode::TEST_UNIT_READY);
            // What it says of itself the disk tells to who watches it; whether it is ready those
            // who use it see.
            let _ = disk.post(question, Data::None, Retry::Always).wait();
        }
    })?;
    Ok(Looking { _end: end })
}
