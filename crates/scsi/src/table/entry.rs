// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A row of the table: one command, how its CDB is checked, and how it is described.

use super::CDB_LEN_MAX;
use super::Supported;
use crate::lun::Context;
use crate::lun::LogicalUnit;
use crate::sense;
use crate::sense::Fault;
use crate::spc::persistent;
use crate::spc::persistent::rights::Guard;
use crate::task::Started;
use wire::iscsi::Cdb;
use wire::scsi::cdb::CdbView;
use wire::scsi::opcode::Opcode;
use wire::scsi::protection::ProtectionType;

/// Bytes of a CDB that are checked at once, and all that commands other than the variable length
/// ones have.
pub(super) const HEAD_LEN: usize = 16;

/// ADDITIONAL CDB LENGTH of the 32-byte commands.
const ADDITIONAL_LENGTH: u8 = 0x18;

/// NACA of CONTROL (SAM-5 §5.2), which every command understands.
const NACA: u8 = 0x04;

/// Makes the first step of a command that has passed the gate.
pub(crate) type Handler = fn(&Context<'_>) -> Result<Started, Fault>;

/// A supported command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) opcode: Opcode,
    pub(crate) service_action: Option<u16>,
    /// CDB length, bytes.
    pub(crate) length: u8,
    /// CDB usage data (SPC-4 §6.35.3): bits that are understood. Any other bit must be zero.
    pub(super) usage: [u8; CDB_LEN_MAX],
    flags: u16,
    /// How it stands to reservations.
    pub(crate) guard: Guard,
    pub(crate) handler: Handler,
}

/// Properties of a command that the gate must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Flag {
    /// Is neither stopped by a unit attention nor clears one as status (SAM-5 §5.14.1).
    Informative = 1,
    /// Needs the unit to be started.
    Medium = 2,
    /// Changes the medium.
    Writes = 4,
    /// Byte 1 bits 7-5 are RDPROTECT, WRPROTECT or VRPROTECT.
    Protect = 8,
    /// Exists only where the store can give space back.
    Discard = 16,
    /// Byte 1 bit 3 is UNMAP, which is understood only where the store can give space back, and
    /// bit 4 is ANCHOR, which is understood only where it can set space aside.
    UnmapBit = 32,
    /// Byte 1 bit 0 is ANCHOR.
    AnchorBit = 1 << 15,
    /// Exists only where state can be kept over a loss of power.
    Kept = 64,
    /// Exists only where hosts may change asymmetric access states.
    Explicit = 1 << 12,
    /// Exists only where the store promises whole writes.
    Atomic = 1 << 13,
    /// Exists only with type 2 protection.
    TypeTwo = 1 << 14,
    /// A device carries it out.
    Passed = 128,
    /// Nobody carries it out, though the device would.
    Refused = 256,
}

impl Entry {
    pub(super) const fn new(opcode: Opcode, usage: &[u8], handler: Handler) -> Self {
        let mut all = [0; CDB_LEN_MAX];
        all[0] = opcode.0;
        let mut index = 0;
        while index < usage.len() {
            all[index + 1] = usage[index];
            index += 1;
        }
        assert!(usage.len() < CDB_LEN_MAX);
        let control = if opcode.0 == Opcode::VARIABLE_LENGTH.0 { 1 } else { usage.len() };
        all[control] |= NACA;
        #[allow(clippy::cast_possible_truncation)] // at most 32, as just asserted
        let length = usage.len() as u8 + 1;
        Self {
            opcode,
            service_action: None,
            length,
            usage: all,
            flags: 0,
            guard: Guard::Unset,
            handler,
        }
    }

    /// With a service action in byte 1.
    pub(super) const fn service(mut self, action: u16) -> Self {
        assert!(action < 32);
        self.service_action = Some(action);
        #[allow(clippy::cast_possible_truncation)] // five bits, as just asserted
        let byte = action as u8;
        self.usage[1] |= byte;
        self
    }

    pub(super) const fn reserve_in(action: u16) -> Self {
        let usage = [0, 0, 0, 0, 0, 0, 0xff, 0xff, 0];
        Self::new(Opcode::PERSISTENT_RESERVE_IN, &usage, persistent::reserve_in)
            .service(action)
            .guarded(Guard::Decides)
    }

    pub(super) const fn reserve_out(action: u16) -> Self {
        let usage = [0, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0];
        Self::new(Opcode::PERSISTENT_RESERVE_OUT, &usage, persistent::reserve_out)
            .service(action)
            .guarded(Guard::Decides)
    }

    /// A 32-byte block command: `flags` of byte 10. A disk has them with type 2 protection only,
    /// whose tags they carry (SBC-4 §5.19 and others).
    pub(super) const fn long(action: u16, flags: u8, handler: Handler) -> Self {
        let mut usage = [0; CDB_LEN_MAX - 1];
        usage[5] = 0x1f;
        usage[6] = ADDITIONAL_LENGTH;
        [usage[7], usage[8]] = action.to_be_bytes();
        usage[9] = flags;
        let mut at = 11;
        while at < usage.len() {
            usage[at] = 0xff;
            at += 1;
        }
        let mut entry = Self::new(Opcode::VARIABLE_LENGTH, &usage, handler);
        entry.service_action = Some(action);
        entry.with(Flag::TypeTwo).with(Flag::Protect)
    }

    pub(super) const fn with(mut self, flag: Flag) -> Self {
        self.flags |= flag as u16;
        match flag {
            Flag::Informative => self.guard = Guard::Always,
            Flag::Writes => self.guard = Guard::Writes,
            Flag::Medium if matches!(self.guard, Guard::Unset) => self.guard = Guard::Reads,
            _ => {}
        }
        self
    }

    /// Under reservations: other than by its flags.
    pub(super) const fn guarded(mut self, guard: Guard) -> Self {
        self.guard = guard;
        self
    }

    /// True if the command has the property.
    pub(crate) const fn has(&self, flag: Flag) -> bool {
        self.flags & flag as u16 != 0
    }

    /// False if the unit lacks what the command is for.
    pub(crate) fn supported(&self, unit: &LogicalUnit) -> bool {
        !self.has(Flag::Refused)
            && (!self.has(Flag::Discard) || unit.can_discard())
            && (!self.has(Flag::Kept) || unit.identification().is_kept())
            && (!self.has(Flag::Explicit) || unit.access().is_explicit())
            && (!self.has(Flag::Atomic) || unit.atomic_max().is_some())
            && (!self.has(Flag::TypeTwo) || unit.protection_type() == Some(ProtectionType::Two))
    }

    /// CDB usage data as it is true for `unit`.
    pub(crate) fn usage_for(&self, unit: &LogicalUnit) -> ([u8; CDB_LEN_MAX], usize) {
        let mut usage = self.usage;
        let flags = &mut usage[usize::from(self.flags_at())];
        if self.has(Flag::UnmapBit) && !unit.can_discard() {
            *flags &= !0x08;
        }
        if self.has(Flag::UnmapBit) && !unit.can_anchor() {
            *flags &= !0x10;
        }
        if self.has(Flag::AnchorBit) && !unit.can_anchor() {
            *flags &= !0x01;
        }
        (usage, usize::from(self.length))
    }

    /// Refuses bits that are not understood, LINK and FLAG among them. The field pointer
    /// names the first byte and its leftmost wrong bit, or the leftmost of the protection field.
    #[inline]
    pub(crate) fn check(&self, cdb: &Cdb) -> Result<(), Fault> {
        let (head, _) = cdb.bytes.split_first_chunk::<HEAD_LEN>().expect("32 is more than 16");
        let wrong = u128::from_be_bytes(*head) & self.forbidden();
        if wrong != 0 {
            return Err(self.wrong_bit(wrong.leading_zeros()));
        }
        if usize::from(self.length) > HEAD_LEN { self.check_long(cdb) } else { Ok(()) }
    }

    /// The rest of a variable length CDB, whose last bytes are all understood.
    #[cold]
    fn check_long(&self, cdb: &Cdb) -> Result<(), Fault> {
        let view = CdbView::new(cdb);
        if view.byte(7) != ADDITIONAL_LENGTH || cdb.len < u16::from(self.length) {
            return Err(sense::invalid_field(7).into());
        }
        Ok(())
    }

    #[cold]
    fn wrong_bit(&self, first: u32) -> Fault {
        let (byte, bit) = (first / 8, 7 - first % 8);
        let protect = self.has(Flag::Protect) && byte == u32::from(self.flags_at()) && bit >= 5;
        let bit = if protect { 7 } else { bit };
        let byte = u16::try_from(byte).expect("below 16");
        sense::invalid_bit(byte, u8::try_from(bit).expect("below 8")).into()
    }

    pub(super) fn described(&self, device: &'static str) -> Supported {
        let action = self.service_action.and_then(|action| self.opcode.action_name(action));
        let conditions = [
            (Flag::Discard, "the store can give space back"),
            (Flag::Kept, "state is kept (`--state-dir`)"),
            (Flag::Explicit, "hosts may change access states"),
            (Flag::Atomic, "the store promises whole writes"),
            (Flag::TypeTwo, "type 2 protection"),
        ];
        Supported {
            opcode: self.opcode.0,
            service_action: self.service_action,
            name: action.or_else(|| self.opcode.name()).unwrap_or_default(),
            device,
            cdb_len: self.length,
            condition: conditions.iter().find(|(flag, _)| self.has(*flag)).map(|(_, text)| *text),
        }
    }

    /// The CDB with every other field zero.
    #[cfg(test)]
    pub(crate) fn bare(&self) -> [u8; CDB_LEN_MAX] {
        let mut bytes = [0; CDB_LEN_MAX];
        bytes[0] = self.opcode.0;
        match self.service_action {
            Some(action) if usize::from(self.length) > HEAD_LEN => {
                bytes[7] = ADDITIONAL_LENGTH;
                bytes[8..10].copy_from_slice(&action.to_be_bytes());
            }
            Some(action) => bytes[1] = u8::try_from(action).expect("five bits"),
            None => {}
        }
        bytes
    }

    /// Where the byte of protection, DPO and FUA stands.
    pub(super) const fn flags_at(&self) -> u8 {
        if self.opcode.0 == Opcode::VARIABLE_LENGTH.0 { 10 } else { 1 }
    }

    const fn forbidden(&self) -> u128 {
        let (head, _) = self.usage.split_first_chunk::<HEAD_LEN>().expect("32 is more than 16");
        let mut allowed = u128::from_be_bytes(*head) | 0xff << 120;
        if self.length as usize > HEAD_LEN {
            allowed |= 0xff_ffff << 48;
        } else if self.service_action.is_some() {
            allowed |= 0x1f << 112;
        }
        let beyond = u128::MAX.checked_shr(self.length as u32 * 8);
        !(allowed
            | match beyond {
                Some(beyond) => beyond,
                None => 0,
            })
    }
}
