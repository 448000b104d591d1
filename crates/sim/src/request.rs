// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What hosts ask for, as commands.

use initiator::Data;
use wire::iscsi::Cdb;
use wire::scsi::cdb::BlockCommand;
use wire::scsi::command;
use wire::scsi::mode;
use wire::scsi::opcode::Opcode;
use wire::scsi::persistent;
use wire::scsi::persistent::Type;
use wire::scsi::unmap;

use crate::claims::Access;
use crate::claims::Action;
use crate::copies::Copy;
use crate::copies::Step;
use crate::model::ALIKE;
use crate::model::Model;
use crate::model::Version;
use crate::rng::Rng;
use crate::settings;
use crate::settings::Setting;

/// FUA in the flags of a block command (SBC-4 §5.40).
const FUA: u8 = 0x08;

/// UNMAP in the flags of WRITE SAME (SBC-4 §5.53).
const UNMAP: u8 = 0x08;

/// What a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Read,
    Write {
        version: Version,
        durable: bool,
        form: Form,
    },
    Flush,
    /// The guard's.
    Guard(Action),
    /// About a mode parameter.
    Setting(Setting),
    /// Part of a copy by token.
    Copy(Version, Step),
}

/// How a write is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Write,
    /// COMPARE AND WRITE: it is there, or it never was.
    Compare {
        with: Version,
        equal: bool,
    },
    /// WRITE SAME.
    Same,
    /// WRITE SAME of zeroes that may unmap.
    Zero,
    /// UNMAP: the blocks become zeroes or stay.
    Unmap,
    /// WRITE USING TOKEN; whether it is answered before it is done.
    Token {
        immediate: bool,
    },
}

/// The key of all guards.
const KEY: u64 = 0x6775_6172_6400_0001;

/// The key of others who register.
const OTHER_KEY: u64 = 0x6f74_6865_7200_0001;

/// APTPL, in byte 20 of the list (SPC-4 §6.16.3).
const PERSISTS: u8 = 0x01;

/// PF and SP of MODE SELECT(6) (SPC-4 §6.9).
const PAGE_FORMAT_SAVE: u8 = 0x11;

/// What MODE SENSE is asked for, bytes.
const SENSE_LEN: u8 = 64;

fn guard(action: Action, kind: Type, persists: bool) -> (Cdb, Data) {
    let (code, key, action_key) = match action {
        Action::Register => (persistent::REGISTER_AND_IGNORE_EXISTING_KEY, 0, KEY),
        Action::Reserve => (persistent::RESERVE, KEY, 0),
        Action::Preempt => (persistent::PREEMPT, KEY, KEY),
        Action::Release => (persistent::RELEASE, KEY, 0),
        Action::Clear => (persistent::CLEAR, KEY, 0),
        Action::Join => (persistent::REGISTER_AND_IGNORE_EXISTING_KEY, 0, OTHER_KEY),
    };
    let cdb = command::persistent_reserve_out(code, kind);
    let mut list = persistent::emit_list(key, action_key);
    if persists && matches!(action, Action::Register | Action::Join) {
        list[20] = PERSISTS;
    }
    (cdb, Data::Out(list.to_vec().into()))
}

fn setting(setting: Setting) -> (Cdb, Data) {
    match setting {
        Setting::Read => {
            (command::mode_sense_6(mode::CONTROL, SENSE_LEN), Data::In(SENSE_LEN.into()))
        }
        Setting::Save(value) => {
            let list = settings::list(value);
            let mut cdb = command::plain(Opcode::MODE_SELECT_6);
            cdb.bytes[1] = PAGE_FORMAT_SAVE;
            cdb.bytes[4] = u8::try_from(list.len()).unwrap_or(0);
            (cdb, Data::Out(list.into()))
        }
    }
}

impl What {
    /// For counting.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Flush => "flush",
            Self::Guard(Action::Register) => "register",
            Self::Guard(Action::Reserve) => "reserve",
            Self::Guard(Action::Preempt) => "preempt",
            Self::Guard(Action::Release) => "release",
            Self::Guard(Action::Clear) => "clear",
            Self::Guard(Action::Join) => "register beside the guard",
            Self::Setting(Setting::Save(_)) => "save mode parameters",
            Self::Setting(Setting::Read) => "mode sense",
            Self::Copy(_, Step::Populate) => "populate token",
            Self::Copy(_, Step::Fill) => "fill the table of tokens",
            Self::Copy(_, Step::Fetch) => "fetch token",
            Self::Copy(_, Step::Progress) => "progress of a copy",
            Self::Write { form: Form::Token { immediate: false }, .. } => "write using token",
            Self::Write { form: Form::Token { immediate: true }, .. } => "write using token later",
            Self::Write { form: Form::Write, .. } => "write",
            Self::Write { form: Form::Compare { equal: true, .. }, .. } => "compare and write",
            Self::Write { form: Form::Compare { equal: false, .. }, .. } => "compare in vain",
            Self::Write { form: Form::Same, .. } => "write same",
            Self::Write { form: Form::Zero, .. } => "write same of zeroes",
            Self::Write { form: Form::Unmap, .. } => "unmap",
        }
    }

    /// What it does to the medium, as reservations see it; None: they do not keep it out.
    pub(crate) const fn access(self) -> Option<Access> {
        match self {
            Self::Read => Some(Access::Read),
            Self::Write { .. } | Self::Flush => Some(Access::Write),
            Self::Guard(_) | Self::Setting(_) | Self::Copy(..) => None,
        }
    }

    /// Whether doing it twice is as good as doing it once.
    pub(crate) const fn repeats(self) -> bool {
        let form = match self {
            Self::Write { form, .. } => form,
            other => return !matches!(other, Self::Copy(..)),
        };
        !matches!(form, Form::Compare { .. } | Form::Token { .. })
    }

    /// Makes a rare command out of a write; how many blocks it has then.
    pub(crate) fn vary(&mut self, model: &Model, lba: usize, count: usize, rng: &mut Rng) -> usize {
        let Self::Write { version, durable, form } = self else { return count };
        *durable = false;
        *form = match rng.below(5) {
            0 => Form::Same,
            1 => Form::Zero,
            2 => Form::Unmap,
            choice => match model.certain(lba) {
                Some(with) if choice == 3 => Form::Compare { with, equal: true },
                // Nobody wrote or will write that.
                _ => Form::Compare { with: *version | 1 << 62, equal: false },
            },
        };
        match form {
            Form::Compare { .. } => return 1,
            Form::Zero | Form::Unmap => *version = 0,
            Form::Same => *version |= ALIKE,
            Form::Write | Form::Token { .. } => {}
        }
        count
    }

    /// The command, and its data.
    pub(crate) fn command(
        self,
        model: &Model,
        lba: usize,
        count: usize,
        (kind, persists): (Type, bool),
        copy: Option<&Copy>,
    ) -> (Cdb, Data) {
        let block = |opcode, flags| {
            let length = u32::try_from(count).unwrap_or(0);
            let (lba, group_number) = (lba as u64, 0);
            let command = BlockCommand { opcode, lba, length, flags, group_number };
            command.emit().expect("a small range fits sixteen bytes")
        };
        let bytes = u32::try_from(count * model.block_len()).unwrap_or(0);
        let out = |bytes: Vec<u8>| Data::Out(bytes.into());
        let Self::Write { version, durable, form } = self else {
            return match self {
                Self::Flush => (block(Opcode::SYNCHRONIZE_CACHE_16, 0), Data::None),
                Self::Guard(action) => guard(action, kind, persists),
                Self::Setting(of) => setting(of),
                Self::Copy(version, step) => copy.expect("a copy under way").command(version, step),
                _ => (block(Opcode::READ_16, 0), Data::In(bytes)),
            };
        };
        let new = |count| model.content(lba, count, version);
        match form {
            Form::Write => {
                (block(Opcode::WRITE_16, if durable { FUA } else { 0 }), out(new(count)))
            }
            Form::Compare { with, .. } => {
                let both = [model.content(lba, 1, with), new(1)].concat();
                (block(Opcode::COMPARE_AND_WRITE, 0), out(both))
            }
            Form::Token { .. } => copy.expect("a copy under way").write(version),
            Form::Same => (block(Opcode::WRITE_SAME_16, 0), out(new(1))),
            Form::Zero => (block(Opcode::WRITE_SAME_16, UNMAP), out(new(1))),
            Form::Unmap => {
                let blocks = u32::try_from(count).unwrap_or(0);
                let list = unmap::emit(&[unmap::Range { lba: lba as u64, blocks }]);
                let list = list.expect("one range");
                (command::unmap(u16::try_from(list.len()).unwrap_or(0)), out(list))
            }
        }
    }
}
