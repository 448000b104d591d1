// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stores that fail, in the log of who has to do something about it: hosts are told, but it is not
//! they who can make room or change a disk.

use std::io;

use store::IoResult;
use store::Op;
use store::Outcome;

/// Tells of an operation that has failed; `errno` as the engine said it.
#[inline]
pub(super) fn of(task: &scsi::Task, op: &Op, outcome: &Outcome, errno: Option<i32>) {
    if let Outcome::Failed(error) = outcome {
        tell(task, op, *error, errno);
    }
}

/// What the engine said of work that failed.
#[inline]
pub(super) fn errno(result: &IoResult) -> Option<i32> {
    match result {
        IoResult::Read(Err(errno)) | IoResult::Other(Err(errno)) | IoResult::Status(Err(errno)) => {
            Some(*errno)
        }
        IoResult::Read(Ok(_))
        | IoResult::Other(Ok(()))
        | IoResult::Status(Ok(_))
        | IoResult::Clock(_)
        | IoResult::Foreign(_) => None,
    }
}

#[cold]
fn tell(task: &scsi::Task, op: &Op, error: store::Error, errno: Option<i32>) {
    let disk = task.place().map_or("(none)", |unit| unit.identity().serial.as_str());
    let (offset, length) = op.range();
    let what = name(op);
    match errno.filter(|errno| *errno != 0).map(io::Error::from_raw_os_error) {
        Some(cause) => {
            tracing::warn!(disk, what, offset, length, %error, %cause, "a store has failed");
        }
        None => tracing::warn!(disk, what, offset, length, %error, "a store has failed"),
    }
}

/// What an operation is, in words.
pub(crate) const fn name(op: &Op) -> &'static str {
    match op {
        Op::Read { .. } => "read",
        Op::Write { durable: true, .. } => "durable write",
        Op::Write { .. } => "write",
        Op::Flush => "flush",
        Op::Discard { .. } => "discard",
        Op::Zero { .. } => "zero",
        Op::Anchor { .. } => "anchor",
        Op::Status { .. } => "status",
    }
}
