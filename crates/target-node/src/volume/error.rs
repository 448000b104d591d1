// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why a disk stays as it is.

use std::io;

use engine::FileRefused;
use engine::files::SnapshotError;

/// Why a disk stays as it is; the text says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VolumeError {
    /// No such target.
    #[error("no target {0}; try: lunwire status")]
    NoTarget(String),
    /// No such LUN.
    #[error("no LUN {lun} at {target}; try: lunwire status")]
    NoLun {
        /// The target.
        target: String,
        /// The number.
        lun: u16,
    },
    /// Not one writable file.
    #[error(
        "LUN {lun} is not one writable file or image: only file: without protection, and rbd:, \
         both without readonly, can do this"
    )]
    NotAFile {
        /// The number.
        lun: u16,
    },
    /// A file, where there is none.
    #[error(
        "LUN {lun} is an image, whose snapshot has a name and is no file: {path} is none; try: \
         lunwire lun snapshot {lun} {}",
        .path.rsplit('/').find(|part| !part.is_empty()).unwrap_or("monday")
    )]
    NoName {
        /// The number.
        lun: u16,
        /// What was asked for.
        path: String,
    },
    /// What is no file has refused it.
    #[error("LUN {lun}: {said}")]
    Behind {
        /// The number.
        lun: u16,
        /// Why, and what to do.
        said: String,
    },
    /// A device has the size that it has.
    #[error("{path} is a block device: grow it where it comes from, then: lunwire lun rescan")]
    BlockDevice {
        /// The device.
        path: String,
    },
    /// Zero, or not whole blocks.
    #[error(
        "{bytes} bytes is no size for LUN {lun}: it must be a multiple of {block}, and not zero; \
         try: {}",
        nearest(*.bytes, *.block)
    )]
    Size {
        /// The number.
        lun: u16,
        /// The size asked for.
        bytes: u64,
        /// Its block length.
        block: u32,
    },
    /// Smaller, and nobody said that it may.
    #[error(
        "{bytes} bytes is less than the {before} that LUN {lun} has: what lies behind would be \
         lost; try: --shrink, after the file system on it has been made smaller"
    )]
    Smaller {
        /// The number.
        lun: u16,
        /// The size asked for.
        bytes: u64,
        /// Its size.
        before: u64,
    },
    /// What the file holds may not be what hosts were told.
    #[error(
        "{path}, which is LUN {lun}, could not write back: blocks that hosts wrote may be lost; \
         try: write them again and flush, and then this"
    )]
    Lost {
        /// The number.
        lun: u16,
        /// The file.
        path: String,
    },
    /// Requests do not end.
    #[error("requests behind the new end of LUN {lun} did not end in time; it is as it was")]
    Busy {
        /// The number.
        lun: u16,
    },
    /// No file can have that size where it is.
    #[error(
        "{path} cannot have {bytes} bytes: that is more than its file system, or ulimit -f of the \
         daemon, lets a file have; try: a smaller size"
    )]
    TooLarge {
        /// The file.
        path: String,
        /// The size that was asked for.
        bytes: u64,
    },
    /// The kernel says no.
    #[error("cannot resize {path}: {source}")]
    File {
        /// The file.
        path: String,
        /// What the kernel says.
        source: io::Error,
    },
    /// Another one has the number.
    #[error("LUN {lun} is at {target} already; try: another --number")]
    Taken {
        /// The target.
        target: String,
        /// The number.
        lun: u16,
    },
    /// It is for an initiator that may not log in.
    #[error("{name} may not log in to the target; try: one of its [[target.initiator]]")]
    NotAdmitted {
        /// The initiator.
        name: String,
    },
    /// All numbers are taken, or were.
    #[error("each number was used at {target}; try: --number with that of a LUN that was removed")]
    Full {
        /// The target.
        target: String,
    },
    /// FORMAT UNIT or SANITIZE is under way.
    #[error("LUN {lun} is being wiped (FORMAT UNIT or SANITIZE); try: again when that is over")]
    Wiping {
        /// The number.
        lun: u16,
    },
    /// Its work does not end.
    #[error(
        "LUN {lun} is not served any more, but requests to what is behind it do not end: it stays \
         open until {}",
        match .who {
            Some(who) => format!("the {who} answers"),
            None => "the daemon ends".to_owned(),
        }
    )]
    Lingers {
        /// The number.
        lun: u16,
        /// Who does not answer, in a word, where it is somebody elsewhere.
        who: Option<&'static str>,
    },
    /// What was written may not have reached the medium.
    #[error("LUN {lun} is not served any more, but {path} cannot be flushed: {source}")]
    Flush {
        /// The number.
        lun: u16,
        /// The file.
        path: String,
        /// What the kernel says.
        source: io::Error,
    },
    /// The same of what is no file.
    #[error(
        "LUN {lun} is not served any more, but {}",
        match .source {
            store::Error::Silent => {
                "what is behind it does not answer: it is closed when that does".to_owned()
            }
            source => format!(
                "cannot be closed: {source}; writes that were acknowledged may be lost"
            ),
        }
    )]
    Finish {
        /// The number.
        lun: u16,
        /// What is wrong.
        source: store::Error,
    },
    /// A reactor has no place for a file.
    #[error("a file of the disk cannot be served: {0}")]
    Refused(#[from] FileRefused),
    /// Who has asked is gone.
    #[error("nobody waits for it any more: nothing was done")]
    Unwanted,
    /// A reactor does not answer.
    #[error("a reactor does not answer; it is as it was")]
    Silent,
    /// No snapshot.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
}

/// The sizes next to `bytes` that a disk of such blocks can have.
fn nearest(bytes: u64, block: u32) -> String {
    let block = u64::from(block);
    let most = i64::MAX.unsigned_abs() / block * block;
    match bytes - bytes % block {
        0 => format!("{block}"),
        below if below >= most => format!("{most}"),
        below => format!("{below} or {}", below + block),
    }
}
