// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a unit says of its cache and its protection by MODE SENSE.

use wire::iscsi::Cdb;
use wire::scsi::cdb::CdbView;
use wire::scsi::mode;
use wire::scsi::mode::Caching;
use wire::scsi::mode::DeviceSpecific;
use wire::scsi::mode::Header;
use wire::scsi::mode::ModeData;
use wire::scsi::mode::PageControl;
use wire::scsi::opcode::Opcode;

use crate::scsi::writes_back;

/// What a unit says by MODE SENSE(6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mode {
    pub(crate) volatile_cache: bool,
    pub(crate) write_through: bool,
    /// None: it does not tell.
    pub(crate) read_only: Option<bool>,
}

impl Mode {
    /// Of one that says nothing: it may have anything.
    pub(crate) const SILENT: Self =
        Self { volatile_cache: true, write_through: false, read_only: None };

    pub(crate) fn of(bytes: &[u8]) -> Self {
        let specific = ModeData::parse(Header::Six, bytes).map(|data| data.specific);
        Self {
            volatile_cache: writes_back(bytes),
            write_through: specific.is_some_and(|specific| specific.dpo_fua),
            read_only: specific.map(|specific| specific.write_protected),
        }
    }

    /// What holds over this way to the unit, and over `other`.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            volatile_cache: self.volatile_cache || other.volatile_cache,
            write_through: self.write_through && other.write_through,
            read_only: self.read_only.max(other.read_only),
        }
    }

    /// Has the answer to a [question for the modes](asks_modes) promise no more than this does.
    pub(crate) fn weaken(self, cdb: &Cdb, bytes: &mut [u8]) {
        let header = mode::Sense::parse(&CdbView::new(cdb)).header;
        if let Some(specific) = DeviceSpecific::parse(header, bytes) {
            let write_protected = specific.write_protected || self.read_only == Some(true);
            let dpo_fua = specific.dpo_fua && self.write_through;
            DeviceSpecific { write_protected, dpo_fua }.put_into(header, bytes);
        }
        if self.volatile_cache
            && let Some(page) = mode::page_mut(header, bytes, mode::CACHING)
        {
            Caching { write_cache: true }.put_into(page);
        }
    }
}

/// Whether `cdb` asks what modes are in force.
pub(crate) fn asks_modes(cdb: &Cdb) -> bool {
    let view = CdbView::new(cdb);
    matches!(view.opcode(), Opcode::MODE_SENSE_6 | Opcode::MODE_SENSE_10)
        && mode::Sense::parse(&view).control == PageControl::Current
}

#[cfg(test)]
mod tests {
    use wire::scsi::command;
    use wire::scsi::mode::BlockDescriptor;
    use wire::scsi::mode::Control;

    use super::*;

    #[test]
    fn an_answer_says_what_is_weakest_and_else_what_it_said() {
        let descriptor = BlockDescriptor::Short { blocks: 7, length: 512 };
        let answer = |header, of: Mode| {
            let specific = DeviceSpecific {
                write_protected: of.read_only == Some(true),
                dpo_fua: of.write_through,
            };
            let caching = Caching { write_cache: of.volatile_cache }.emit();
            let pages = [&Control::default().emit()[..], &caching[..]].concat();
            mode::emit(header, specific, Some(descriptor), &pages)
        };
        let strong = Mode { volatile_cache: false, write_through: true, read_only: Some(false) };
        let weak = Mode { volatile_cache: true, write_through: false, read_only: Some(true) };
        let six = command::mode_sense_6(mode::ALL_PAGES, 255);
        let mut ten = six;
        ten.bytes[0] = Opcode::MODE_SENSE_10.0;
        for (cdb, header) in [(six, Header::Six), (ten, Header::Ten)] {
            assert!(asks_modes(&cdb));
            for (own, all) in [(strong, strong), (strong, weak), (weak, strong), (weak, weak)] {
                let mut bytes = answer(header, own);
                own.and(all).weaken(&cdb, &mut bytes);
                assert_eq!(bytes, answer(header, own.and(all)), "{own:?} and {all:?}");
            }
        }
        assert_eq!(strong.and(weak), weak);
        assert_eq!(
            strong.and(Mode::SILENT).read_only,
            Some(false),
            "what is not told is not known"
        );
        // What is cut, or has no such page, stays as it is.
        for mut bytes in
            [vec![], vec![3, 0, 0x90], vec![3, 0, 0x90, 0], vec![9, 0, 0x90, 0, 0x08, 18]]
        {
            let before = bytes.clone();
            weak.and(Mode { write_through: true, ..strong }).weaken(&six, &mut bytes);
            bytes.iter_mut().skip(2).take(1).for_each(|flags| *flags |= 0x10);
            assert_eq!(bytes, before);
        }
        assert!(!asks_modes(&command::plain(Opcode::TEST_UNIT_READY)));
    }
}
