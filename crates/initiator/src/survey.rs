// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The questions that tell size and limits of a disk, one after the other.
//!
//! ```text
//! Inquiry -> Ready -> LongCapacity -> Pages -> one after the other -> Mode -> Done
//!                          |             ^    (those that are listed)
//!                          +-> ShortCapacity (where there is no other)
//! ```

use wire::iscsi::Cdb;
use wire::scsi::capacity::Capacity;
use wire::scsi::capacity::Provisioning;
use wire::scsi::command;
use wire::scsi::inquiry;
use wire::scsi::inquiry::Standard;
use wire::scsi::mode;
use wire::scsi::mode::ModeData;
use wire::scsi::opcode::Opcode;
use wire::scsi::vpd;

use crate::Data;
use crate::Done;
use crate::Error;
use crate::Generation;
use crate::Geometry;
use crate::Kind;
use crate::scsi::capacity_of_10;
use crate::scsi::is_conflict;
use crate::scsi::is_unsupported;
use crate::scsi::writes_back;

/// What a disk has told so far. Whoever has it sends [`Survey::question`] and passes on what comes
/// of it, until there is none.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    question: Question,
    capacity: Option<Capacity>,
    /// VPD pages that the unit lists.
    pages: Vec<u8>,
    limits: vpd::BlockLimits,
    provisioning: Option<vpd::LogicalBlockProvisioning>,
    mode: Option<Vec<u8>>,
    seen: Generation,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Question {
    #[default]
    Inquiry,
    Ready,
    LongCapacity,
    ShortCapacity,
    Pages,
    Identification,
    Serial,
    Limits,
    Provisioning,
    Mode,
    Done,
}

/// The pages that are asked for, in this order. By the first two the session knows the unit again
/// after a reconnect.
const PAGES: [(Question, u8); 4] = [
    (Question::Identification, vpd::DEVICE_IDENTIFICATION),
    (Question::Serial, vpd::UNIT_SERIAL_NUMBER),
    (Question::Limits, vpd::BLOCK_LIMITS),
    (Question::Provisioning, vpd::LOGICAL_BLOCK_PROVISIONING),
];

impl Survey {
    /// The next command; None: all is known.
    pub(crate) fn question(&self) -> Option<(Cdb, Data)> {
        let page = |code| (command::inquiry(Some(code), PAGE_LEN), Data::In(PAGE_LEN.into()));
        Some(match self.question {
            Question::Inquiry => (command::inquiry(None, 255), Data::In(255)),
            Question::Ready => (command::plain(Opcode::TEST_UNIT_READY), Data::None),
            Question::LongCapacity => (command::read_capacity_16(32), Data::In(32)),
            Question::ShortCapacity => (command::plain(Opcode::READ_CAPACITY_10), Data::In(8)),
            Question::Pages => page(vpd::SUPPORTED_PAGES),
            Question::Identification => page(vpd::DEVICE_IDENTIFICATION),
            Question::Serial => page(vpd::UNIT_SERIAL_NUMBER),
            Question::Limits => page(vpd::BLOCK_LIMITS),
            Question::Provisioning => page(vpd::LOGICAL_BLOCK_PROVISIONING),
            Question::Mode => (command::mode_sense_6(mode::ALL_PAGES, 255), Data::In(255)),
            Question::Done => return None,
        })
    }

    /// What came of the question.
    ///
    /// # Errors
    /// The error, unless the unit may do without; [`Kind::NotADisk`], [`Kind::Malformed`].
    pub(crate) fn answer(&mut self, result: Result<Done, Error>) -> Result<(), Error> {
        let asked = self.question;
        let done = match result {
            Ok(done) => Some(done),
            Err(error) if is_unsupported(&error) && asked.may_be_missing() => None,
            // Who is kept out by a reservation is told no more than the size (SPC-4 §5.13.1).
            Err(error) if is_conflict(&error) && asked == Question::Mode => None,
            Err(error) => return Err(error),
        };
        if let Some(done) = &done {
            self.seen = done.generation;
        }
        let data = done.as_ref().and_then(|done| done.data.as_deref());
        self.question = match asked {
            Question::Inquiry => {
                is_disk(data.and_then(Standard::parse).ok_or_else(malformed("INQUIRY data"))?)?;
                Question::Ready
            }
            Question::Ready => Question::LongCapacity,
            Question::LongCapacity if done.is_none() => Question::ShortCapacity,
            Question::LongCapacity => self.measured(data.and_then(Capacity::parse_16))?,
            Question::ShortCapacity => {
                let told = data.and_then(Capacity::parse_10);
                self.measured(told.map(|(last, block)| capacity_of_10(last, block)))?
            }
            Question::Pages => {
                let pages = data.and_then(|data| vpd::content(data, vpd::SUPPORTED_PAGES));
                self.pages = pages.unwrap_or_default().to_vec();
                self.page_after(asked)
            }
            Question::Identification | Question::Serial => self.page_after(asked),
            Question::Limits => {
                let page = data.and_then(|data| vpd::content(data, vpd::BLOCK_LIMITS));
                self.limits = page.and_then(vpd::BlockLimits::parse).unwrap_or_default();
                self.page_after(asked)
            }
            Question::Provisioning => {
                let code = vpd::LOGICAL_BLOCK_PROVISIONING;
                let page = data.and_then(|data| vpd::content(data, code));
                self.provisioning = page.and_then(vpd::LogicalBlockProvisioning::parse);
                Question::Mode
            }
            Question::Mode => {
                self.mode = data.map(<[u8]>::to_vec);
                Question::Done
            }
            Question::Done => Question::Done,
        };
        Ok(())
    }

    /// The next page that the unit lists: some targets answer others in a way that costs the
    /// session.
    fn page_after(&self, asked: Question) -> Question {
        let after = PAGES.iter().position(|(question, _)| *question == asked);
        let mut pages = PAGES.iter().skip(after.map_or(0, |at| at + 1));
        let next = pages.find(|(_, page)| self.pages.contains(page));
        next.map_or(Question::Mode, |(question, _)| *question)
    }

    fn measured(&mut self, capacity: Option<Capacity>) -> Result<Question, Error> {
        let capacity = capacity.ok_or_else(malformed("capacity"))?;
        let block = capacity.block_length;
        if !(512..=65536).contains(&block) || !block.is_power_of_two() {
            return Err(not_a_disk(format!("blocks of {block} bytes are not supported")));
        }
        self.capacity = Some(capacity);
        Ok(Question::Pages)
    }

    /// Behind which resets of the unit that was.
    pub(crate) const fn seen(&self) -> Generation {
        self.seen
    }

    /// What was told.
    ///
    /// # Errors
    /// [`Kind::Malformed`] before the unit has told its capacity.
    pub(crate) fn geometry(&self) -> Result<Geometry, Error> {
        let capacity = self.capacity.ok_or_else(malformed("capacity"))?;
        let (block, limits) = (capacity.block_length, &self.limits);
        let mode = self.mode.as_deref();
        let specific = mode
            .and_then(|bytes| ModeData::parse(mode::Header::Six, bytes))
            .map(|data| data.specific);
        let (announced, optimal) = (limits.transfer_max, limits.transfer_optimal);
        let same = self.provisioning.as_ref().is_some_and(|provisioning| provisioning.same);
        // Zero: it tells no limit.
        let same_max = match u32::try_from(limits.write_same_max) {
            _ if !same => 0,
            Ok(0) | Err(_) => u32::MAX,
            Ok(max) => max,
        };
        let unmap = self.provisioning.as_ref().is_some_and(|provisioning| provisioning.unmap);
        Ok(Geometry {
            block,
            blocks: capacity.last_lba.saturating_add(1),
            transfer_max: Geometry::bounded(block, announced, optimal),
            unmap_max: if unmap { limits.unmap_blocks_max } else { 0 },
            unmap_granularity: limits.unmap_granularity,
            unmap_alignment: limits.unmap_alignment.unwrap_or(0),
            same_max,
            compare_max: limits.compare_and_write_max,
            unmap_zeros: capacity.provisioning == Provisioning::ManagedZeros,
            physical: block.checked_shl(capacity.physical_exponent.into()).unwrap_or(block),
            read_only: specific.is_some_and(|specific| specific.write_protected),
            volatile_cache: mode.is_none_or(writes_back),
            write_through: specific.is_some_and(|specific| specific.dpo_fua),
            protection: capacity.protection,
        })
    }
}

impl Question {
    /// Whether a disk may have no such command or page.
    const fn may_be_missing(self) -> bool {
        !matches!(self, Self::Inquiry | Self::Ready | Self::ShortCapacity)
    }
}

/// Allocation length of a VPD page, bytes.
const PAGE_LEN: u16 = 4096;

fn malformed(what: &'static str) -> impl Fn() -> Error {
    move || Error::new(Kind::Malformed(what))
}

fn not_a_disk(what: String) -> Error {
    Error::new(Kind::NotADisk(what))
}

fn is_disk(standard: Standard) -> Result<(), Error> {
    match standard.peripheral {
        inquiry::TYPE_DISK | 0x0e => Ok(()),
        inquiry::NOT_SUPPORTED => Err(not_a_disk("the target has no such logical unit".into())),
        other => {
            let kind = other & 0x1f;
            let name = if kind == inquiry::TYPE_OPTICAL { " (CD or DVD)" } else { "" };
            let text = format!("the unit is no disk but of device type {kind:02X}h{name}");
            Err(not_a_disk(text))
        }
    }
}
