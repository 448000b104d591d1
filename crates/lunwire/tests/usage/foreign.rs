// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A disk of somebody else's target: what it promises and what it does are two things. It takes
//! whatever name of a target it is asked for.

use std::sync::Arc;
use std::sync::Mutex;

use conformance::Mock;
use conformance::mock;
use conformance::mock::Answers;
use wire::iscsi::*;
use wire::scsi::opcode::Opcode;
use wire::scsi::sam::CHECK_CONDITION;
use wire::scsi::sam::GOOD;

/// Bytes of a block.
const BLOCK: usize = 512;

/// What becomes of its cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Cache {
    /// It tells nothing of one.
    #[default]
    Untold,
    /// It is kept.
    Kept,
    /// So many flushes end with this sense key and codes, and what they were for is gone.
    FailsFlush(usize, [u8; 3]),
    /// What was written is gone when so many writes have come, which the next command is told: a
    /// deferred error with this sense key and codes.
    Defers(usize, [u8; 3]),
    /// The first of these writes fails, and the second one as with `Defers`.
    FailsThenDefers(usize, usize, [u8; 3]),
    /// What has been flushed is told to be gone, behind the good end of the flush.
    TakesBack([u8; 3]),
    /// There is no SYNCHRONIZE CACHE; WRITE may have FUA, or may not.
    NoFlush { fua: bool },
}

/// What it says of what it acknowledges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Promise {
    /// It may be in a volatile cache.
    #[default]
    Cached,
    /// It is on the medium: there is no write cache.
    Through,
    /// The same, and there is no SYNCHRONIZE CACHE.
    ThroughAlone,
    /// It is on the medium if it was written with FUA. There is no SYNCHRONIZE CACHE.
    Fua,
}

/// How it is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Character {
    pub(crate) cache: Cache,
    pub(crate) promise: Promise,
    /// UNMAP ends well and leaves what is there, as it may.
    pub(crate) keeps_what_is_unmapped: bool,
    /// WRITE SAME(16) is unknown, whatever page B2 says.
    pub(crate) no_write_same: bool,
    /// WRITE SAME with UNMAP leaves blocks as they are, which is a defect.
    pub(crate) broken_write_same: bool,
    /// The answer to SendTargets.
    pub(crate) targets: Vec<u8>,
}

/// A running one.
pub(crate) struct Foreign {
    mock: Mock,
    medium: Arc<Mutex<Medium>>,
}

struct Medium {
    /// What readers see.
    seen: Vec<u8>,
    /// What stays.
    stable: Vec<u8>,
    writes: usize,
    flushes: usize,
    deferred: Option<[u8; 3]>,
}

impl Foreign {
    /// 64 KiB, full of 5Ah. It takes writes of 4 KiB, so that they come as immediate data.
    pub(crate) fn start(character: Character) -> Self {
        let (seen, stable) = (vec![0x5a; 64 << 10], vec![0x5a; 64 << 10]);
        let medium = Medium { seen, stable, writes: 0, flushes: 0, deferred: None };
        let medium = Arc::new(Mutex::new(medium));
        let of_script = Arc::clone(&medium);
        let mock = Mock::start(move |request, data, numbers| match request {
            Request::Command(command) => {
                let medium = &mut *of_script.lock().unwrap();
                if let Some(sense) = medium.deferred.take() {
                    let mut answers = answer(command, Err(sense), numbers);
                    // Behind its length: the response code.
                    answers[0].1[2] = 0x71;
                    return answers;
                }
                let outcome = medium.carry_out(&character, command, data);
                answer(command, outcome, numbers)
            }
            Request::Text(text) => {
                let (final_, continue_, lun, itt) = (true, false, text.lun, text.itt);
                let ttt = Ttt::NONE;
                let response = TextResponse { final_, continue_, lun, itt, ttt, numbers };
                vec![(Response::Text(response), character.targets.clone())]
            }
            _ => Answers::new(),
        });
        Self { mock, medium }
    }

    pub(crate) fn portal(&self) -> String {
        self.mock.portal().to_string()
    }

    /// Each TargetName of a login.
    pub(crate) fn names(&self) -> Vec<String> {
        self.mock.names()
    }

    pub(crate) fn url(&self, target: &str) -> String {
        format!("iscsi://{}/{target}/0", self.mock.portal())
    }

    pub(crate) fn content(&self) -> Vec<u8> {
        self.medium.lock().unwrap().seen.clone()
    }

    /// What would be there after a loss of power.
    pub(crate) fn stable(&self) -> Vec<u8> {
        self.medium.lock().unwrap().stable.clone()
    }

    /// How often a command came.
    pub(crate) fn count(&self, opcode: Opcode) -> usize {
        let said = self.mock.said();
        let of = |request: &Request| match request {
            Request::Command(command) => command.cdb.bytes[0] == opcode.0,
            _ => false,
        };
        said.iter().filter(|(request, _)| of(request)).count()
    }
}

impl Promise {
    const fn is_through(self) -> bool {
        matches!(self, Self::Through | Self::ThroughAlone)
    }
}

impl Character {
    /// Whether there is a SYNCHRONIZE CACHE.
    const fn flushes(&self) -> bool {
        matches!(self.promise, Promise::Cached | Promise::Through)
            && !matches!(self.cache, Cache::NoFlush { .. })
    }

    /// Whether WRITE has FUA.
    fn has_fua(&self) -> bool {
        self.promise == Promise::Fua || self.cache == Cache::NoFlush { fua: true }
    }
}

impl Medium {
    /// As [`carry_out`], and what it does to the cache.
    fn carry_out(
        &mut self,
        character: &Character,
        command: &ScsiCommand,
        data: &[u8],
    ) -> Result<Vec<u8>, [u8; 3]> {
        let opcode = Opcode(command.cdb.bytes[0]);
        if opcode == Opcode::SYNCHRONIZE_CACHE_10 && !character.flushes() {
            return Err([5, 0x20, 0]);
        }
        let outcome = carry_out(character, &mut self.seen, command, data)?;
        match (opcode, character.cache) {
            (Opcode::WRITE_10, Cache::FailsThenDefers(at, _, sense)) if self.writes + 1 == at => {
                self.writes += 1;
                self.seen.copy_from_slice(&self.stable);
                return Err(sense);
            }
            (
                Opcode::WRITE_10,
                Cache::Defers(after, sense) | Cache::FailsThenDefers(_, after, sense),
            ) if self.writes + 1 == after => {
                self.writes += 1;
                self.seen.copy_from_slice(&self.stable);
                self.deferred = Some(sense);
            }
            (Opcode::WRITE_10, cache) => {
                self.writes += 1;
                let is_lost = matches!(cache, Cache::FailsFlush(..));
                let stays = command.cdb.bytes[1] & 0x08 != 0 || character.promise.is_through();
                if stays && !is_lost {
                    self.stable.copy_from_slice(&self.seen);
                }
            }
            (Opcode::SYNCHRONIZE_CACHE_10, Cache::FailsFlush(times, sense))
                if self.seen != self.stable && self.flushes < times =>
            {
                self.flushes += 1;
                self.seen.copy_from_slice(&self.stable);
                return Err(sense);
            }
            (Opcode::SYNCHRONIZE_CACHE_10, Cache::TakesBack(sense)) if self.seen != self.stable => {
                self.stable.copy_from_slice(&self.seen);
                self.deferred = Some(sense);
            }
            (Opcode::SYNCHRONIZE_CACHE_10, _) => self.stable.copy_from_slice(&self.seen),
            _ => {}
        }
        Ok(outcome)
    }
}

/// The data that a command gives, or its sense data: key, ASC, ASCQ.
fn carry_out(
    character: &Character,
    medium: &mut [u8],
    command: &ScsiCommand,
    data: &[u8],
) -> Result<Vec<u8>, [u8; 3]> {
    let cdb = command.cdb.bytes;
    let number = |from: usize, to: usize| {
        cdb[from..to].iter().fold(0_usize, |sum, byte| sum << 8 | usize::from(*byte))
    };
    let range = |lba: usize, blocks: usize| lba * BLOCK..(lba + blocks) * BLOCK;
    match Opcode(cdb[0]) {
        Opcode::INQUIRY if cdb[1] & 1 == 0 => Ok([&[0, 0, 6, 2, 31][..], &[b' '; 31]].concat()),
        Opcode::INQUIRY => match cdb[2] {
            0 => Ok(vec![0, 0, 0, 3, 0, 0xb0, 0xb2]),
            0xb0 => {
                let mut page = vec![0; 64];
                page[1] = 0xb0;
                page[3] = 60;
                page[11] = 8; // MAXIMUM TRANSFER LENGTH
                page[23] = 128; // MAXIMUM UNMAP LBA COUNT
                page[27] = 1; // and of descriptors
                Ok(page)
            }
            0xb2 => Ok(vec![0, 0xb2, 0, 4, 0, 0xe4, 2, 0]),
            _ => Err([5, 0x24, 0]),
        },
        Opcode::SERVICE_ACTION_IN_16 if cdb[1] & 0x1f == 0x10 => {
            let last = (medium.len() / BLOCK - 1) as u64;
            let block = u32::try_from(BLOCK).unwrap();
            // LBPME and LBPRZ.
            let rest = [0, 0, 0xc0, 0].into_iter().chain([0; 16]);
            Ok([&last.to_be_bytes()[..], &block.to_be_bytes()]
                .concat()
                .into_iter()
                .chain(rest)
                .collect())
        }
        Opcode::TEST_UNIT_READY | Opcode::SYNCHRONIZE_CACHE_10 => Ok(Vec::new()),
        Opcode::MODE_SENSE_6 if character.cache == Cache::Untold => Ok(vec![3, 0, 0, 0]),
        Opcode::MODE_SENSE_6 => {
            let fua = u8::from(character.has_fua()) << 4;
            let caching = u8::from(!character.promise.is_through()) << 2;
            Ok([&[23, 0, fua, 0, 0x08, 18, caching][..], &[0; 17]].concat())
        }
        Opcode::READ_10 => Ok(medium[range(number(2, 6), number(7, 9))].to_vec()),
        Opcode::WRITE_10 => {
            medium[range(number(2, 6), number(7, 9))].copy_from_slice(data);
            Ok(Vec::new())
        }
        Opcode::UNMAP => {
            let lba = usize::from(data[14]) << 8 | usize::from(data[15]);
            let blocks = usize::from(data[18]) << 8 | usize::from(data[19]);
            if !character.keeps_what_is_unmapped {
                medium[range(lba, blocks)].fill(0);
            }
            Ok(Vec::new())
        }
        Opcode::WRITE_SAME_16 if !character.no_write_same => {
            let range = range(number(2, 10), number(10, 14));
            if !character.broken_write_same {
                medium[range].chunks_mut(BLOCK).for_each(|block| block.copy_from_slice(data));
            }
            Ok(Vec::new())
        }
        _ => Err([5, 0x20, 0]),
    }
}

fn answer(command: &ScsiCommand, outcome: Result<Vec<u8>, [u8; 3]>, numbers: Numbers) -> Answers {
    let length = command.expected_length;
    match outcome {
        Ok(mut data) if command.read => {
            data.truncate(length as usize);
            mock::data(command, numbers, data)
        }
        Ok(_) => mock::ended(command, numbers, GOOD, None),
        Err(sense) => {
            let mut answers = mock::ended(command, numbers, CHECK_CONDITION, Some(sense));
            if let Some((Response::Scsi(response), _)) = answers.first_mut()
                && length > 0
            {
                response.residual = Residual::Underflow(length);
            }
            answers
        }
    }
}
