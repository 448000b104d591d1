// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The one table of commands: what is dispatched, what is checked and what REPORT SUPPORTED
//! OPERATION CODES says. Its rows stand by command set in `table/`, what a row is in `entry.rs`.

mod copy;
mod entry;
mod mmc;
mod passed;
mod protected;
mod sbc;
mod spc;

pub(crate) use entry::Entry;
pub(crate) use entry::Flag;
pub(crate) use entry::Handler;

use crate::sense;
use crate::sense::Fault;
use crate::spc::persistent::rights::Guard;
pub(crate) use wire::scsi::cdb::CDB_LEN_MAX;
use wire::scsi::cdb::CdbView;
use wire::scsi::cdb::Group;
use wire::scsi::opcode::Opcode;

/// The commands of one kind of device.
#[derive(Debug)]
pub(crate) struct Commands {
    /// Ascending.
    entries: &'static [Entry],
    /// Where the entries of each operation code start; the end for those that have none.
    index: [u8; 256],
    /// What has no entry; None: it is refused.
    other: Option<&'static Entry>,
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
        Self { entries, index, other: None }
    }

    /// The same where nothing is unknown.
    const fn or_else(self, other: &'static Entry) -> Self {
        Self { other: Some(other), ..self }
    }

    /// The command of a CDB: 5/20/00 for an unknown operation code, 5/24/00 for an unknown service
    /// action of a known one.
    #[inline]
    pub(crate) fn find(&self, cdb: &CdbView<'_>) -> Result<&'static Entry, Fault> {
        let opcode = cdb.opcode();
        let mut entries = self.of_opcode(opcode);
        let Some(first) = entries.next() else {
            return self.other.ok_or_else(|| sense::INVALID_OPCODE.into());
        };
        if first.service_action.is_none() {
            return Ok(first);
        }
        let action = Some(cdb.service_action());
        if first.service_action == action {
            return Ok(first);
        }
        let entry = entries.find(|entry| entry.service_action == action);
        entry.or(self.other).ok_or_else(|| self.not_found(cdb))
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

    /// True if the CONTROL byte of a CDB is known to be one.
    pub(crate) fn knows_control(&self, opcode: Opcode) -> bool {
        self.of_opcode(opcode).next().is_some()
            || self.other.is_some() && Group::of(opcode).is_some()
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
/// Of a device of the system that is a disk.
pub(crate) static PASSED_DISK: Commands = Commands::new(&passed::DISK).or_else(&passed::OTHER);
/// Of one that is a CD or DVD drive.
pub(crate) static PASSED_OPTICAL: Commands =
    Commands::new(&passed::OPTICAL).or_else(&passed::OTHER);
/// Of any other one.
pub(crate) static PASSED: Commands = Commands::new(&passed::COMMANDS).or_else(&passed::OTHER);

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

/// All of them.
const MERGED: [Entry; total(&SETS)] = merged(&SETS);

/// How many entries some sets have.
const fn total(sets: &[&[Entry]]) -> usize {
    let (mut count, mut set) = (0, 0);
    while set < sets.len() {
        count += sets[set].len();
        set += 1;
    }
    count
}

/// The entries of some sets, ascending by operation code; each set keeps its own order. There are
/// `N` of them.
const fn merged<const N: usize, const S: usize>(sets: &[&[Entry]; S]) -> [Entry; N] {
    let mut all = [sets[0][0]; N];
    let mut taken = [0; S];
    let mut at = 0;
    while at < N {
        let (mut first, mut set) = (S, 0);
        while set < S {
            if taken[set] < sets[set].len() {
                let opcode = sets[set][taken[set]].opcode.0;
                if first == S || opcode < sets[first][taken[first]].opcode.0 {
                    first = set;
                }
            }
            set += 1;
        }
        all[at] = sets[first][taken[first]];
        taken[first] += 1;
        at += 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::entry::HEAD_LEN;
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
            let group = Group::of(entry.opcode).expect("a group");
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
