// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a command says about protection information: whether it travels, and what of it is checked
//! (SBC-3 §4.22.3, and the tables of RDPROTECT, WRPROTECT, VRPROTECT and ORPROTECT in §5).

use crate::lun::Context;
use crate::sense;
use crate::sense::Fault;
use wire::scsi::SenseKey;
use wire::scsi::opcode::Opcode;
use wire::scsi::protection::Information;
use wire::scsi::protection::ProtectionType;

/// The terms of one command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    kind: ProtectionType,
    /// RDPROTECT, WRPROTECT, VRPROTECT or ORPROTECT: 0 to 5.
    code: u8,
    /// DPICZ: nothing is checked where the code is zero.
    unchecked_if_zero: bool,
    /// ATO: the application tag is the application's.
    owned_tag: bool,
    expected: Option<Expected>,
}

/// What only 32-byte CDBs say.
#[derive(Clone, Copy, Debug)]
struct Expected {
    /// EXPECTED INITIAL LOGICAL BLOCK REFERENCE TAG.
    reference: u32,
    /// EXPECTED LOGICAL BLOCK APPLICATION TAG.
    application: u16,
    /// LOGICAL BLOCK APPLICATION TAG MASK.
    mask: u16,
}

/// Which fields are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    guard: bool,
    application: bool,
    reference: bool,
}

/// A field that is not as it must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    Guard,
    Application,
    Reference,
}

/// A block of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockPosition {
    /// Its address.
    pub(crate) lba: u64,
    /// Which of the command's blocks it is, from 0.
    pub(crate) index: u64,
}

impl Terms {
    /// What the command at the gate says; the unit is of type `kind`. With type 2, for which alone
    /// the 32-byte commands are, the others cannot carry protection information (SBC-3 §4.22.2.4).
    pub(crate) fn of(context: &Context<'_>, kind: ProtectionType) -> Result<Self, Fault> {
        let cdb = &context.cdb;
        let (code, long) = (cdb.protect(), cdb.opcode() == Opcode::VARIABLE_LENGTH);
        if kind == ProtectionType::Two && !long && code != 0 {
            return Err(sense::INVALID_OPCODE.into());
        }
        if code > CODE_MAX {
            return Err(context.flag_field(7).into());
        }
        let expected = long.then(|| Expected {
            reference: cdb.u32_at(20),
            application: cdb.u16_at(24),
            mask: cdb.u16_at(26),
        });
        let control = context.unit.modes().current().control;
        Ok(Self {
            kind,
            code,
            unchecked_if_zero: control.protection_unchecked_if_zero,
            owned_tag: control.application_tag_owner,
            expected,
        })
    }

    /// True if protection information travels behind each block.
    pub(crate) const fn travels(&self) -> bool {
        self.code != 0
    }

    /// The same with a code of zero.
    pub(crate) const fn internal(self) -> Self {
        Self { code: 0, ..self }
    }

    /// What is looked at.
    pub(crate) const fn rules(&self) -> Rules {
        let (guard, tags) = match self.code {
            0 => (!self.unchecked_if_zero, !self.unchecked_if_zero),
            1 | 5 => (true, true),
            2 => (false, true),
            4 => (true, false),
            _ => (false, false),
        };
        Rules { guard, application: tags, reference: tags }
    }

    /// Checks what stands on the medium beside a block whose CRC is `guard`. Where the application
    /// tag says so nothing is looked at (SBC-3 §4.22.3).
    pub(crate) fn check_medium(
        &self,
        found: Information,
        guard: impl FnOnce() -> u16,
        place: BlockPosition,
    ) -> Result<(), Wrong> {
        if self.is_escape(found) { Ok(()) } else { self.check(found, guard, place) }
    }

    /// Checks what was sent with a block.
    pub(crate) fn check(
        &self,
        found: Information,
        guard: impl FnOnce() -> u16,
        place: BlockPosition,
    ) -> Result<(), Wrong> {
        let rules = self.rules();
        if rules.guard && found.guard != guard() {
            return Err(Wrong::Guard);
        }
        if let (true, true, Some(expected)) = (rules.application, self.owned_tag, self.expected)
            && (found.application ^ expected.application) & expected.mask != 0
        {
            return Err(Wrong::Application);
        }
        let reference = self.reference(place);
        if rules.reference && reference.is_some_and(|reference| reference != found.reference) {
            return Err(Wrong::Reference);
        }
        Ok(())
    }

    /// Compares what was sent with what is on the medium (VERIFY with BYTCHK, SBC-3 §5.29).
    pub(crate) fn compare(&self, sent: Information, found: Information) -> Result<(), Wrong> {
        let of_application = self.kind == ProtectionType::Three && self.owned_tag && self.code != 5;
        if self.code != 2 && sent.guard != found.guard {
            return Err(Wrong::Guard);
        }
        if self.owned_tag && sent.application != found.application {
            return Err(Wrong::Application);
        }
        if !of_application && sent.reference != found.reference {
            return Err(Wrong::Reference);
        }
        Ok(())
    }

    /// What the unit writes by itself where none was sent (WRPROTECT = 000b, SBC-3 §5.32). Without
    /// ATO the application tag is the unit's: not the one that stops checking.
    pub(crate) const fn generated(&self, guard: u16, lba: u64) -> Information {
        let application = if self.owned_tag { u16::MAX } else { 0 };
        let reference = match self.kind {
            ProtectionType::One => low_half(lba),
            ProtectionType::Two | ProtectionType::Three => u32::MAX,
        };
        Information { guard, application, reference }
    }

    /// What belongs to a further block of a command that sends one block for many (WRITE SAME,
    /// SBC-3 §5.42).
    pub(crate) fn repeated(&self, sent: Information, index: u64) -> Information {
        if self.kind == ProtectionType::Three || sent == Information::ONES {
            return sent;
        }
        let reference = sent.reference.wrapping_add(low_half(index));
        Information { reference, ..sent }
    }

    /// The reference tag that a block must have; None where only the application knows.
    fn reference(&self, place: BlockPosition) -> Option<u32> {
        match self.kind {
            ProtectionType::One => Some(low_half(place.lba)),
            ProtectionType::Two => {
                self.expected.map(|first| first.reference.wrapping_add(low_half(place.index)))
            }
            ProtectionType::Three => None,
        }
    }

    fn is_escape(&self, found: Information) -> bool {
        let of_reference = self.kind != ProtectionType::Three || found.reference == u32::MAX;
        found.application == u16::MAX && of_reference
    }
}

impl Wrong {
    /// ABORTED COMMAND, with the block in INFORMATION.
    pub(crate) fn aborted(self, lba: u64) -> Fault {
        self.sense(SenseKey::AbortedCommand).with_information(lba).into()
    }

    /// MISCOMPARE, of what was sent and what was found.
    pub(crate) fn miscompare(self, lba: u64) -> Fault {
        self.sense(SenseKey::Miscompare).with_information(lba).into()
    }

    const fn sense(self, key: SenseKey) -> wire::scsi::Sense {
        match self {
            Self::Guard => sense::guard_check_failed(key),
            Self::Application => sense::application_tag_check_failed(key),
            Self::Reference => sense::reference_tag_check_failed(key),
        }
    }
}

/// Codes above are reserved.
const CODE_MAX: u8 = 5;

/// The low 32 bits.
#[allow(clippy::cast_possible_truncation)] // that is what it is for
const fn low_half(number: u64) -> u32 {
    number as u32
}
