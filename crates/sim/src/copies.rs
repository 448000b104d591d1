// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Copies by token: POPULATE TOKEN, RECEIVE ROD TOKEN INFORMATION, WRITE USING TOKEN, and for those
//! with IMMED their progress.

use clock::Instant;
use initiator::Data;
use wire::iscsi::Cdb;
use wire::scsi::command;
use wire::scsi::copy;
use wire::scsi::opcode::Opcode;
use wire::scsi::token::Populate;
use wire::scsi::token::Range;
use wire::scsi::token::TOKEN_LEN;
use wire::scsi::token::TYPE_ANY;
use wire::scsi::token::WriteUsing;

use crate::model::Model;
use crate::model::Version;

/// What the answers of RECEIVE ROD TOKEN INFORMATION need.
const INFORMATION_LEN: u32 = 1024;

/// A copy: of which blocks, to where, and when.
#[derive(Clone, Debug)]
pub(crate) struct Copy {
    /// The unit and first block that are read.
    pub(crate) source: (usize, usize),
    /// Those that are written.
    pub(crate) destination: (usize, usize),
    pub(crate) count: usize,
    /// Blocks of one range of the destination: each is read and written by itself.
    pub(crate) run: usize,
    /// Seconds after which the token expires if nobody uses it.
    pub(crate) inactivity: u32,
    pub(crate) immediate: bool,
    /// The token ends with the copy.
    pub(crate) delete: bool,
    /// When its token was asked for.
    pub(crate) asked: Instant,
    /// When there certainly was a token.
    pub(crate) populated: Instant,
    /// When its use was asked for.
    pub(crate) used: Instant,
    pub(crate) token: [u8; TOKEN_LEN],
}

/// What comes next of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// POPULATE TOKEN.
    Populate,
    /// POPULATE TOKEN of one that nobody uses, to fill the table.
    Fill,
    /// RECEIVE ROD TOKEN INFORMATION for the token.
    Fetch,
    /// RECEIVE ROD TOKEN INFORMATION for how far it is.
    Progress,
}

/// How far a copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Underway,
    Done,
    Failed,
}

fn third_party(opcode: Opcode, service_action: u16, id: (usize, u32), length: u32) -> Cdb {
    let mut cdb = command::plain(opcode);
    cdb.bytes[1] = u8::try_from(service_action).unwrap_or(0);
    cdb.bytes[id.0..id.0 + 4].copy_from_slice(&id.1.to_be_bytes());
    cdb.bytes[10..14].copy_from_slice(&length.to_be_bytes());
    cdb
}

/// LIST IDENTIFIER of a copy.
fn id(version: Version) -> u32 {
    u32::try_from(version & u64::from(u32::MAX)).unwrap_or(0)
}

fn out(service_action: u16, version: Version, list: Vec<u8>) -> (Cdb, Data) {
    let length = u32::try_from(list.len()).unwrap_or(0);
    let cdb = third_party(Opcode::THIRD_PARTY_COPY_OUT, service_action, (6, id(version)), length);
    (cdb, Data::Out(list.into()))
}

fn ranges(lba: usize, count: usize, run: usize) -> Vec<Range> {
    (0..count)
        .step_by(run)
        .map(|at| Range {
            lba: (lba + at) as u64,
            blocks: u32::try_from(run.min(count - at)).unwrap_or(0),
        })
        .collect()
}

impl Copy {
    /// The command of a step, and its data.
    pub(crate) fn command(&self, version: Version, step: Step) -> (Cdb, Data) {
        if !matches!(step, Step::Populate | Step::Fill) {
            let (action, length) = (copy::ROD_TOKEN_INFORMATION, INFORMATION_LEN);
            let place = (2, id(version));
            let cdb = third_party(Opcode::THIRD_PARTY_COPY_IN, action, place, length);
            return (cdb, Data::In(length));
        }
        let list = Populate {
            immediate: self.immediate,
            inactivity_s: self.inactivity,
            rod_type: TYPE_ANY,
            ranges: ranges(self.source.1, self.count, self.count),
        };
        out(copy::POPULATE_TOKEN, version, list.emit().expect("one range"))
    }

    /// WRITE USING TOKEN, and its list.
    pub(crate) fn write(&self, version: Version) -> (Cdb, Data) {
        let list = WriteUsing {
            immediate: self.immediate,
            delete: self.delete,
            offset: 0,
            token: self.token,
            ranges: ranges(self.destination.1, self.count, self.run),
        };
        out(copy::WRITE_USING_TOKEN, version, list.emit().expect("some ranges"))
    }

    /// It ended well: each sector is what it was from the making of the token to the use of it at
    /// the least.
    pub(crate) fn succeeded(&self, version: Version, models: &mut [Model]) {
        self.conclude(version, (self.populated, self.used), models);
    }

    /// It is over, and did not end well: what it wrote was there while it was under way.
    pub(crate) fn failed(&self, version: Version, now: Instant, models: &mut [Model]) {
        self.conclude(version, (now, self.used), models);
    }

    fn conclude(&self, version: Version, span: (Instant, Instant), models: &mut [Model]) {
        let origins = models[self.source.0].origins(self.source.1, self.count, span);
        models[self.destination.0].trace_back(version, self.destination.1, origins);
    }
}

/// What RECEIVE ROD TOKEN INFORMATION says.
pub(crate) fn progress(bytes: &[u8]) -> Progress {
    match bytes.get(5) {
        Some(status) if *status == copy::CopyStatus::Done as u8 => Progress::Done,
        Some(status)
            if *status == copy::CopyStatus::Foreground as u8
                || *status == copy::CopyStatus::Background as u8 =>
        {
            Progress::Underway
        }
        _ => Progress::Failed,
    }
}
