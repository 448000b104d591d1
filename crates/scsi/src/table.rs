// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The one table of commands: what is dispatched, what is checked and what REPORT SUPPORTED
//! OPERATION CODES says. Its rows stand by command set in `table/`.

mod copy;
mod mmc;
mod protected;
mod sbc;
mod spc;

use crate::lun::Context;
use crate::lun::LogicalUnit;
use crate::sense;
use crate::sense::Fault;
use crate::spc::persistent;
use crate::spc::persistent::rights::Guard;
use crate::task::Started;
use wire::iscsi::Cdb;
pub(crate) use wire::scsi::cdb::CDB_LEN_MAX;
use wire::scsi::cdb::CdbView;
use wire::scsi::opcode::Opcode;
use wire::scsi::protection::ProtectionType;

/// Bytes of a CDB that are checked at once, and all that commands other than the variable length
/// ones have.
const HEAD_LEN: usize = 16;

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
    usage: [u8; CDB_LEN_MAX],
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
    /// Byte 1 bit 3 is UNMAP, which is understood only where the store can give space back.
    UnmapBit = 32,
    /// Exists only where state can be kept over a loss of power.
    Kept = 64,
    /// Exists only where hosts may change asymmetric access states.
    Explicit = 1 << 12,
    /// Exists only where the store promises whole writes.
    Atomic = 1 << 13,
    /// Exists only with type 2 protection.
    TypeTwo = 1 << 14,
}

impl Entry {
    const fn new(opcode: Opcode, usage: &[u8], handler: Handler) -> Self {
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
    const fn service(mut self, action: u16) -> Self {
        assert!(action < 32);
        self.service_action = Some(action);
        #[allow(clippy::cast_possible_truncation)] // five bits, as just asserted
        let byte = action as u8;
        self.usage[1] |= byte;
        self
    }

    const fn reserve_in(action: u16) -> Self {
        let usage = [0, 0, 0, 0, 0, 0, 0xff, 0xff, 0];
        Self::new(Opcode::PERSISTENT_RESERVE_IN, &usage, persistent::reserve_in)
            .service(action)
            .guarded(Guard::Decides)
    }

    const fn reserve_out(action: u16) -> Self {
        let usage = [0, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0];
        Self::new(Opcode::PERSISTENT_RESERVE_OUT, &usage, persistent::reserve_out)
            .service(action)
            .guarded(Guard::Decides)
    }

    /// A 32-byte block command: `flags` of byte 10. A disk has them with type 2 protection only,
    /// whose tags they carry (SBC-4 §5.19 and others).
    const fn long(action: u16, flags: u8, handler: Handler) -> Self {
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

    const fn with(mut self, flag: Flag) -> Self {
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
    const fn guarded(mut self, guard: Guard) -> Self {
        self.guard = guard;
        self
    }

    /// True if the command has the property.
    pub(crate) const fn has(&self, flag: Flag) -> bool {
        self.flags & flag as u16 != 0
    }

    /// False if the unit lacks what the command is for.
    pub(crate) fn supported(&self, unit: &LogicalUnit) -> bool {
        (!self.has(Flag::Discard) || unit.can_discard())
            && (!self.has(Flag::Kept) || unit.identification().is_kept())
            && (!self.has(Flag::Explicit) || unit.access().is_explicit())
            && (!self.has(Flag::Atomic) || unit.atomic_max().is_some())
            && (!self.has(Flag::TypeTwo) || unit.protection_type() == Some(ProtectionType::Two))
    }

    /// CDB usage data as it is true for `unit`.
    pub(crate) fn usage_for(&self, unit: &LogicalUnit) -> ([u8; CDB_LEN_MAX], usize) {
        let mut usage = self.usage;
        if self.has(Flag::UnmapBit) && !unit.can_discard() {
            usage[usize::from(self.flags_at())] &= !0x08;
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

    fn described(&self, device: &'static str) -> Supported {
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
    const fn flags_at(&self) -> u8 {
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

/// The commands of one kind of device.
#[derive(Debug)]
pub(crate) struct Commands {
    /// Ascending.
    entries: &'static [Entry],
    /// Where the entries of each operation code start; the end for those that have none.
    index: [u8; 256],
}

impl Commands {
    #[allow(clippy::cast_possible_truncation)] // far fewer than 256 commands, as is asserted
    const fn new(entries: &'static [Entry]) -> Self {
        assert!(entries.len() < 256);
        let none = entries.len() as u8;
        let mut index = [none; 256];
        let mut at = none;
        while at > 0 {
            at -= 1;
            let entry = &entries[at as usize];
            assert!(at + 1 == none || entry.opcode.0 <= entries[at as usize + 1].opcode.0);
            assert!(!matches!(entry.guard, Guard::Unset), "every command is guarded");
            index[entry.opcode.0 as usize] = at;
        }
        Self { entries, index }
    }

    /// The command of a CDB: 5/20/00 for an unknown operation code, 5/24/00 for an unknown service
    /// action of a known one.
    #[inline]
    pub(crate) fn find(&self, cdb: &CdbView<'_>) -> Result<&'static Entry, Fault> {
        let opcode = cdb.opcode();
        let mut entries = self.of_opcode(opcode);
        let Some(first) = entries.next() else { return Err(sense::INVALID_OPCODE.into()) };
        if first.service_action.is_none() {
            return Ok(first);
        }
        let action = Some(cdb.service_action());
        if first.service_action == action {
            return Ok(first);
        }
        entries.find(|entry| entry.service_action == action).ok_or_else(|| self.not_found(cdb))
    }

    /// Why a command is refused that the unit has not what it takes for.
    #[cold]
    pub(crate) fn not_supported(&self, entry: &Entry, cdb: &CdbView<'_>) -> Fault {
        // SBC-3 §4.22.2: where type 2 protection is not enabled.
        if entry.has(Flag::TypeTwo) { sense::INVALID_OPCODE.into() } else { self.not_found(cdb) }
    }

    /// Why an unknown command is refused: for its service action where the operation code has some,
    /// else for the operation code.
    #[cold]
    fn not_found(&self, cdb: &CdbView<'_>) -> Fault {
        let has_actions = self.of_opcode(cdb.opcode()).any(|entry| entry.service_action.is_some());
        match cdb.opcode() {
            Opcode::VARIABLE_LENGTH => sense::invalid_field(8).into(),
            _ if has_actions => sense::invalid_bit(1, 4).into(),
            _ => sense::INVALID_OPCODE.into(),
        }
    }

    /// The commands that share an operation code.
    #[inline]
    pub(crate) fn of_opcode(&self, opcode: Opcode) -> impl Iterator<Item = &'static Entry> + use<> {
        let first = usize::from(self.index[usize::from(opcode.0)]);
        let rest = self.entries.get(first..).unwrap_or_default();
        rest.iter().take_while(move |entry| entry.opcode == opcode)
    }

    /// All commands, ascending.
    pub(crate) fn all(&self) -> impl Iterator<Item = &'static Entry> + use<> {
        self.entries.iter()
    }
}

/// Of a disk.
pub(crate) static DISK: Commands = Commands::new(&MERGED);
/// Of a disk that can be formatted with protection information.
pub(crate) static PROTECTED: Commands = Commands::new(&protected::COMMANDS);
/// Of a CD or DVD drive.
pub(crate) static OPTICAL: Commands = Commands::new(mmc::COMMANDS);

/// All commands of a disk, ascending.
#[cfg(test)]
pub(crate) fn all() -> impl Iterator<Item = &'static Entry> {
    DISK.all()
}

/// A supported command, for those who list them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Supported {
    /// OPERATION CODE.
    pub opcode: u8,
    /// SERVICE ACTION, if the operation code has one.
    pub service_action: Option<u16>,
    /// Its name in the standard.
    pub name: &'static str,
    /// Kind of device that has it.
    pub device: &'static str,
    /// CDB length, bytes.
    pub cdb_len: u8,
    /// What a unit must have for it; None: every unit of the device has it.
    pub condition: Option<&'static str>,
}

/// Every command that any unit supports, by device, ascending.
pub fn supported_commands() -> impl Iterator<Item = Supported> {
    let disk = DISK.all().map(|entry| entry.described("disk"));
    disk.chain(OPTICAL.all().map(|entry| entry.described("CD/DVD")))
}

/// The command sets of a disk, each ascending.
const SETS: [&[Entry]; 3] = [spc::COMMANDS, sbc::COMMANDS, copy::COMMANDS];

const COUNT: usize = {
    let (mut count, mut set) = (0, 0);
    while set < SETS.len() {
        count += SETS[set].len();
        set += 1;
    }
    count
};

/// All of them, ascending by operation code; each set keeps its own order.
const MERGED: [Entry; COUNT] = {
    let mut all = [spc::COMMANDS[0]; COUNT];
    let mut taken = [0; SETS.len()];
    let mut at = 0;
    while at < COUNT {
        let (mut first, mut set) = (SETS.len(), 0);
        while set < SETS.len() {
            if taken[set] < SETS[set].len() {
                let opcode = SETS[set][taken[set]].opcode.0;
                if first == SETS.len() || opcode < SETS[first][taken[first]].opcode.0 {
                    first = set;
                }
            }
            set += 1;
        }
        all[at] = SETS[first][taken[first]];
        taken[first] += 1;
        at += 1;
    }
    all
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bench;
    use crate::testing::codes;
    use wire::scsi::sense::FieldOf;

    #[test]
    fn every_entry_is_found_by_its_cdb() {
        for commands in [&DISK, &OPTICAL] {
            for entry in commands.all() {
                let cdb = crate::testing::cdb(&entry.bare());
                let found = commands.find(&CdbView::new(&cdb)).expect("in the table");
                let of = |entry: &Entry| (entry.opcode, entry.service_action);
                assert_eq!(of(found), of(entry));
                assert!(entry.opcode.name().is_some());
            }
        }
    }

    #[test]
    fn every_length_is_that_of_its_group() {
        for entry in DISK.all().chain(OPTICAL.all()) {
            let group = wire::scsi::cdb::Group::of(entry.opcode).expect("a group");
            assert_eq!(entry.length, group.cdb_len(), "{:?}", entry.opcode.name());
        }
    }

    #[test]
    fn every_other_opcode_is_invalid() {
        let bench = Bench::new();
        for code in 0..=u8::MAX {
            if DISK.of_opcode(Opcode(code)).next().is_none() {
                let mut cdb = [0xff; 16];
                cdb[0] = code;
                assert_eq!(codes(bench.sense(&cdb)), (5, 0x20, 0), "opcode {code:02x}");
            }
        }
    }

    #[test]
    fn every_other_service_action_is_an_invalid_field() {
        let bench = Bench::new();
        for opcode in [Opcode::SERVICE_ACTION_IN_16, Opcode::MAINTENANCE_IN] {
            for action in 0..32_u8 {
                if DISK.of_opcode(opcode).any(|entry| entry.service_action == Some(action.into())) {
                    continue;
                }
                let sense = bench.sense(&[opcode.0, action]).expect("refused");
                assert_eq!(codes(Some(sense)), (5, 0x24, 0));
                let field = sense.field.expect("a field pointer");
                assert_eq!((field.of, field.byte, field.bit), (FieldOf::Cdb, 1, Some(4)));
            }
        }
    }

    #[test]
    fn every_bit_that_is_not_understood_is_refused() {
        let bench = Bench::new();
        for entry in all().filter(|entry| entry.supported(&bench.unit)) {
            for byte in 1..entry.length {
                for bit in 0..8 {
                    let long = usize::from(entry.length) > HEAD_LEN;
                    let action = entry.service_action.is_some() && !long && byte == 1 && bit < 5
                        || long && (7..10).contains(&byte);
                    if entry.usage[usize::from(byte)] >> bit & 1 == 1 || action {
                        continue;
                    }
                    let mut cdb = entry.bare();
                    cdb[usize::from(byte)] |= 1 << bit;
                    let sense = bench.sense(&cdb).expect("refused");
                    let what = entry.opcode.name().expect("named");
                    assert_eq!(codes(Some(sense)), (5, 0x24, 0), "{what} {byte}.{bit}");
                    let field = sense.field.expect("a field pointer");
                    let protect = entry.has(Flag::Protect) && byte == entry.flags_at() && bit >= 5;
                    let expected = if protect { 7 } else { bit };
                    assert_eq!(field.of, FieldOf::Cdb);
                    assert_eq!((field.byte, field.bit), (byte.into(), Some(expected)), "{what}");
                }
            }
        }
        assert_eq!(bench.log(), [], "nothing reached the store");
    }

    #[test]
    fn bytes_behind_the_cdb_are_padding() {
        let bench = Bench::new();
        let mut cdb = [0xff; 16];
        cdb[..6].fill(0);
        assert_eq!(bench.sense(&cdb), None);
    }
}
