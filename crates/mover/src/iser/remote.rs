// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory of the initiator that each command has named, found by its tag (RFC 7145 §7.3.1: the
//! remote mapping).

use alloc::vec::Vec;

use wire::iscsi::Itt;
use wire::iser::Advertised;

use crate::limits::REMOTE_MAX;

/// What one command has named.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    itt: Itt,
    /// What the target may read.
    pub(super) write: Option<Advertised>,
    /// What it may write to.
    pub(super) read: Option<Advertised>,
    /// Where the data began that was asked for first.
    first: Option<u32>,
}

/// The newest command is last. A command that never became a task leaves its entry behind: the
/// oldest makes room for the newest where there are more than there can be commands.
#[derive(Debug, Default)]
pub(super) struct Remote {
    entries: Vec<Entry>,
}

impl Remote {
    /// A command has come, or goes on here. A tag that comes again names a new one.
    pub(super) fn enter(&mut self, itt: Itt, write: Option<Advertised>, read: Option<Advertised>) {
        let _ = self.take(itt);
        if write.is_none() && read.is_none() {
            return;
        }
        if self.entries.len() >= REMOTE_MAX {
            self.entries.remove(0);
        }
        self.entries.push(Entry { itt, write, read, first: None });
    }

    /// What a command has named.
    pub(super) fn of(&self, itt: Itt) -> Option<Entry> {
        self.entries.iter().rev().find(|entry| entry.itt == itt).copied()
    }

    /// Where the data begins that is asked for, when some is asked for from `offset` on: of a
    /// command in order, that which was asked for first.
    pub(super) fn first(&mut self, itt: Itt, offset: u32) -> Option<u32> {
        let entry = self.entries.iter_mut().rev().find(|entry| entry.itt == itt)?;
        Some(*entry.first.get_or_insert(offset))
    }

    /// A command is over.
    pub(super) fn take(&mut self, itt: Itt) -> Option<Entry> {
        let at = self.entries.iter().rposition(|entry| entry.itt == itt)?;
        Some(self.entries.remove(at))
    }

    pub(super) fn check(&self) {
        assert!(self.entries.len() <= REMOTE_MAX, "names are bounded");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::iwarp::Stag;

    fn memory(stag: u32) -> Option<Advertised> {
        Some(Advertised { stag: Stag(stag), ..Advertised::default() })
    }

    #[test]
    fn the_newest_command_of_a_tag_counts_and_the_oldest_makes_room() {
        let mut remote = Remote::default();
        remote.enter(Itt(1), memory(1), None);
        remote.enter(Itt(1), None, memory(2));
        let entry = remote.of(Itt(1)).unwrap();
        assert_eq!((entry.write, entry.read), (None, memory(2)));
        remote.enter(Itt(1), None, None);
        assert!(remote.of(Itt(1)).is_none(), "it has none");
        for tag in 0..u32::try_from(REMOTE_MAX).unwrap() + 1 {
            remote.enter(Itt(tag), memory(tag), None);
            remote.check();
        }
        assert!(remote.of(Itt(0)).is_none() && remote.of(Itt(1)).is_some());
        assert!(remote.take(Itt(1)).is_some() && remote.take(Itt(1)).is_none());
    }
}
