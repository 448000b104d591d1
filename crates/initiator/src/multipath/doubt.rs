// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was sent over paths that are lost, and may still change the unit.
//!
//! What a lost path carries may be on its way for as long as it likes: in the network, or in a
//! target that stands still. It is settled when another session has taken the place of the one that
//! sent it (RFC 7143 §6.3.5), and by nothing else that every target has. Until then
//!
//! - the same data may be written to the same place over another path: coming late, the first copy
//!   changes nothing;
//! - nothing else that changes the place is sent, since the late copy would come over it;
//! - what was under way to the place already, over another path, does not end, and neither does
//!   what was lost if there is such: it may be that the late copy comes last.

use wire::scsi::cdb::BlockCommand;
use wire::scsi::opcode::Opcode;
use wire::scsi::unmap;

use crate::Data;
use crate::Request;

/// Blocks that a command may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    first: u64,
    /// The one behind the last one.
    end: u64,
}

impl Extent {
    /// All that a unit has, settings too.
    const WHOLE: Self = Self { first: 0, end: u64::MAX };

    /// What `request` may change; None: nothing. What was written before does not change when it
    /// comes to stable storage.
    pub(super) fn of(request: &Request) -> Option<Self> {
        let [code, .., blocks, _, _] = *request.cdb.bytes.first_chunk::<16>()?;
        let opcode = Opcode(code);
        if matches!(request.data, Data::In(_)) {
            return None;
        }
        let block = || BlockCommand::parse(&request.cdb);
        let (first, length) = match opcode {
            Opcode::TEST_UNIT_READY
            | Opcode::SYNCHRONIZE_CACHE_10
            | Opcode::SYNCHRONIZE_CACHE_16 => return None,
            Opcode::WRITE_6
            | Opcode::WRITE_10
            | Opcode::WRITE_12
            | Opcode::WRITE_16
            | Opcode::WRITE_SAME_10
            | Opcode::WRITE_SAME_16 => match block() {
                // WRITE SAME of none: up to the end.
                Some(block) if block.length > 0 => (block.lba, u64::from(block.length)),
                _ => return Some(Self::WHOLE),
            },
            Opcode::COMPARE_AND_WRITE => match block() {
                Some(block) => (block.lba, u64::from(blocks)),
                None => return Some(Self::WHOLE),
            },
            Opcode::UNMAP => {
                let Data::Out(data) = &request.data else { return Some(Self::WHOLE) };
                let data = data.to_vec();
                let Ok(list) = unmap::View::new(&data) else { return Some(Self::WHOLE) };
                let ranges = || (0..list.len()).filter_map(|at| list.range(at));
                let first = ranges().map(|range| range.lba).min()?;
                let end = |range: unmap::Range| range.lba.saturating_add(range.blocks.into());
                let end = ranges().map(end).max()?;
                return Some(Self { first, end });
            }
            _ => return Some(Self::WHOLE),
        };
        Some(Self { first, end: first.saturating_add(length) })
    }

    pub(super) const fn meets(self, other: Self) -> bool {
        self.first < other.end && other.first < self.end
    }
}

/// One command that was lost with its path.
#[derive(Clone, Copy, Debug)]
struct Entry {
    path: usize,
    /// Which request it belongs to; these numbers are never used again.
    serial: u64,
    extent: Extent,
}

/// All commands that may still come about.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    entries: Vec<Entry>,
}

impl Doubts {
    /// A command of request `serial` was lost with `path`.
    pub(super) fn add(&mut self, path: usize, serial: u64, extent: Extent) {
        let known = |entry: &Entry| entry.path == path && entry.serial == serial;
        if !self.entries.iter().any(known) {
            self.entries.push(Entry { path, serial, extent });
        }
    }

    /// Nothing that went over `path` can come about any more; true if anything could.
    pub(super) fn settle(&mut self, path: usize) -> bool {
        let before = self.entries.len();
        self.entries.retain(|entry| entry.path != path);
        self.entries.len() < before
    }

    /// Whether another request than `serial` may still change what is in `extent`.
    pub(super) fn concern(&self, serial: u64, extent: Extent) -> bool {
        self.entries.iter().any(|entry| entry.serial != serial && entry.extent.meets(extent))
    }

    /// Whether a copy of this request may still come about.
    pub(super) fn hold(&self, serial: u64) -> bool {
        self.entries.iter().any(|entry| entry.serial == serial)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Retry;
    use crate::geometry::tests::DISK;
    use crate::scsi::unmap_command;
    use buf::Slice;
    use wire::iscsi::Cdb;
    use wire::scsi::command;

    fn extent(cdb: Cdb, data: Data) -> Option<(u64, u64)> {
        let request = Request { lun: 0, cdb, data, retry: Retry::Always };
        Extent::of(&request).map(|extent| (extent.first, extent.end))
    }

    #[test]
    fn what_a_command_changes_is_known_or_all() {
        let out = || Data::Out(Slice::from(vec![0; 512]));
        assert_eq!(extent(DISK.read(8, 4), Data::In(2048)), None);
        assert_eq!(extent(DISK.write(8, 4), out()), Some((8, 12)));
        assert_eq!(extent(command::synchronize_cache(), Data::None), None);
        let (cdb, list) = unmap_command(100, 50);
        assert_eq!(extent(cdb, Data::Out(list)), Some((100, 150)));
        let mut same = command::plain(Opcode::COMPARE_AND_WRITE);
        (same.bytes[9], same.bytes[13]) = (8, 2);
        assert_eq!(extent(same, out()), Some((8, 10)));
        let none = command::plain(Opcode::WRITE_SAME_16);
        assert_eq!(extent(none, out()), Some((0, u64::MAX)));
        let cdb = command::plain(Opcode(0x15));
        assert_eq!(extent(cdb, out()), Some((0, u64::MAX)), "MODE SELECT");
    }

    #[test]
    fn a_request_is_not_in_its_own_way() {
        let extent = |first, end| Extent { first, end };
        let mut doubts = Doubts::default();
        doubts.add(0, 1, extent(10, 20));
        doubts.add(0, 1, extent(10, 20));
        doubts.add(1, 2, extent(30, 40));
        assert!(!doubts.concern(1, extent(10, 20)) && doubts.hold(1));
        assert!(doubts.concern(3, extent(19, 21)) && doubts.concern(1, extent(39, 50)));
        assert!(!doubts.concern(3, extent(20, 30)));
        assert!(doubts.settle(0) && !doubts.settle(0));
        assert!(!doubts.concern(3, extent(10, 20)) && doubts.hold(2));
        assert!(doubts.settle(1) && !doubts.hold(2));
    }
}
