// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a unit says of its cache and its protection by MODE SENSE.

use wire::iscsi::Cdb;
use wire::scsi::cdb::CdbView;
use wire::scsi::mode;
use wire::scsi::mode::Caching;
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
        let at = match header {
            Header::Six => 2,
            Header::Ten => 3,
        };
        if let Some(specific) = bytes.get_mut(at) {
            *specific |= if self.read_only == Some(true) { 0x80 } else { 0 };
            *specific &= if self.write_through { 0xff } else { !0x10 };
        }
        if !self.volatile_cache {
            return;
        }
        let page = ModeData::parse(header, bytes).and_then(|data| data.page(mode::CACHING));
        let place = page
            .and_then(|page| bytes.windows(page.len()).position(|part| std::ptr::eq(part, page)));
        let weak = Caching { write_cache: true }.emit();
        if let Some(flags) = place.and_then(|place| bytes.get_mut(place + 2)) {
            *flags |= weak[2];
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
    use wire::scsi::mode::DeviceSpecific;

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
        for mut bytes in [vec![], vec![3, 0, 0x90, 0], vec![9, 0, 0x90, 0, 0x08, 18]] {
            let before = bytes.clone();
            weak.and(Mode { write_through: true, ..strong }).weaken(&six, &mut bytes);
            bytes.iter_mut().skip(2).take(1).for_each(|flags| *flags |= 0x10);
            assert_eq!(bytes, before);
        }
        assert!(!asks_modes(&command::plain(Opcode::TEST_UNIT_READY)));
    }
}
