// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Looks at an attached disk, whether anybody uses it or not: a unit tells of another size, or of a
//! reset, in answer to a command, and whether requests are carried out at all.

use std::io;
use std::sync::mpsc;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::mpsc::Sender;
use std::time::Duration;

use initiator::Data;
use initiator::Disk;
use initiator::Error;
use initiator::Kind;
use initiator::Retry;
use initiator::scsi::Opcode;
use initiator::scsi::command;

/// Between two looks (docs/ATTACH.md): one small command.
const INTERVAL: Duration = Duration::from_secs(4);

/// It looks until this is dropped.
pub(super) struct Looking {
    _end: Sender<()>,
}

/// Asks `disk` in a thread of its own whether it is ready, again and again, and passes on what it
/// says of that.
///
/// # Errors
/// If there can be no thread.
pub(super) fn begin(
    disk: Disk,
    tell: impl Fn(Result<(), String>) + Send + 'static,
) -> io::Result<Looking> {
    let (end, ended) = mpsc::channel();
    std::thread::Builder::new().name("look".into()).spawn(move || {
        while ended.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
            let question = command::plain(Opcode::TEST_UNIT_READY);
            // What else it says of itself the disk tells to who watches it.
            let answer = disk.post(question, Data::None, Retry::Always).wait();
            match answer {
                Ok(_) => tell(Ok(())),
                Err(error) if is_of_disk(&error) => tell(Err(error.to_string())),
                // Of the way there, or of this process: who uses the disk waits.
                Err(_) => {}
            }
        }
    })?;
    Ok(Looking { _end: end })
}

/// Whether the disk itself has said that, or that it is another one.
fn is_of_disk(error: &Error) -> bool {
    matches!(error.kind(), Kind::Status { .. } | Kind::OtherDisk { .. })
}
