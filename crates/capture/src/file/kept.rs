// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a capture has that is there already, and goes on.

use std::fs::File;
use std::io;
use std::io::BufReader;
use std::io::Read;
use std::io::Seek;

use wire::pcap;
use wire::pcap::FILE_HEADER_LEN;
use wire::pcap::RECORD_HEADER_LEN;

/// How far a file is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Kept {
    /// Of its beginning and its whole records.
    pub(super) bytes: u64,
    pub(super) segments: u64,
}

/// What of `file` stays; nothing of one that we have not written.
pub(super) fn of(file: &mut File) -> io::Result<Kept> {
    file.rewind()?;
    let length = file.metadata()?.len();
    let mut reader = BufReader::new(file);
    let (mut begin, mut header) = ([0; FILE_HEADER_LEN], [0; RECORD_HEADER_LEN]);
    if length < FILE_HEADER_LEN as u64 {
        return Ok(Kept::default());
    }
    reader.read_exact(&mut begin)?;
    if begin != pcap::file_header() {
        return Ok(Kept::default());
    }
    let mut kept = Kept { bytes: FILE_HEADER_LEN as u64, segments: 0 };
    // The process that wrote it may have been killed within the last one.
    while kept.bytes + (RECORD_HEADER_LEN as u64) <= length {
        reader.read_exact(&mut header)?;
        let packet = pcap::kept_len(&header);
        let end = kept.bytes + RECORD_HEADER_LEN as u64 + u64::from(packet);
        if end > length {
            break;
        }
        reader.seek_relative(i64::from(packet))?;
        kept = Kept { bytes: end, segments: kept.segments + 1 };
    }
    Ok(kept)
}
