// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The write data of one command (RFC 7143 §11.7-11.8): what is on its way, and what comes next.

use super::terms::Terms;
use crate::target_role::recovery::R2tState;
use crate::violation::Violation;
use alloc::boxed::Box;

/// The write data of a task.
#[derive(Debug, Default)]
pub(super) struct Transfer {
    /// What the SCSI side asked for, within what the initiator has.
    pub(super) wanted: Option<u32>,
    /// Where the next R2T begins.
    pub(super) next: u32,
    /// R2Ts whose data has not ended.
    pub(super) open_r2t: u16,
    pub(super) unsolicited: Unsolicited,
    /// Unsolicited data was dropped: the task cannot have all its data any more.
    pub(super) lost: bool,
    /// Its mover has its buffer, before the SCSI side has asked for data.
    pub(super) reserved: bool,
    pub(super) failure: Option<Violation>,
    /// At how many looks for data none had come, since a burst did.
    pub(super) silences: u16,
    /// This look is counted.
    pub(super) silent: bool,
    /// Task management waits for the end of the open bursts: no new ones.
    pub(super) held_back: bool,
    /// The SCSI side was told that all is there.
    pub(super) told: bool,
    /// It has left the connection that it began on.
    pub(super) moved: bool,
    /// Where that is kept: what was asked for, and what was lost.
    pub(super) r2ts: Option<Box<R2tState>>,
}

/// The unsolicited Data-Out PDUs that a command with F=0 announces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Unsolicited {
    /// None announced, or ended.
    #[default]
    None,
    /// Announced; the mover does not know where to put it.
    Undeclared,
    /// On its way into the task's buffer.
    Open,
    /// On its way into the void: the task cannot have it any more.
    Discarded,
}

impl Transfer {
    /// No data is waited for any more.
    pub(super) fn give_up(&mut self) {
        self.open_r2t = 0;
        self.unsolicited = Unsolicited::None;
    }

    /// True while the initiator has data to send that it was asked for or announced.
    pub(super) fn is_open(&self) -> bool {
        self.open_r2t > 0 || self.unsolicited != Unsolicited::None
    }

    /// The connection is gone: nothing is on its way any more, and nothing is asked for until
    /// another one takes over. True if unsolicited data was to come that the task still needs.
    pub(super) fn lose(&mut self) -> bool {
        self.open_r2t = 0;
        self.held_back = true;
        self.reserved = false;
        let before = core::mem::take(&mut self.unsolicited);
        matches!(before, Unsolicited::Open | Unsolicited::Undeclared)
    }

    /// One burst less is on its way.
    pub(super) fn close(&mut self, unsolicited: bool) {
        match self.open_r2t.checked_sub(1) {
            Some(left) if !unsolicited => self.open_r2t = left,
            _ => self.unsolicited = Unsolicited::None,
        }
    }

    /// Its R2Ts, from now on kept.
    pub(super) fn r2ts(&mut self) -> &mut R2tState {
        self.r2ts.get_or_insert_default()
    }

    /// True if something that was lost has not been asked for again.
    fn misses(&self) -> bool {
        self.r2ts.as_ref().is_some_and(|r2ts| r2ts.misses())
    }

    /// The place of the next R2T, which counts as open from now on. None: not now.
    pub(super) fn next_r2t(&mut self, terms: &Terms) -> Option<(u32, u32)> {
        let wanted = self.wanted?;
        let open_max = terms.open_r2t_max;
        if self.held_back || self.failure.is_some() || self.open_r2t >= open_max {
            return None;
        }
        let missing = self.r2ts.as_mut().and_then(|r2ts| r2ts.take_missing());
        let (offset, length) = match missing {
            Some(missing) => missing,
            None if self.next >= wanted => return None,
            None => (self.next, terms.max_burst_length.min(wanted - self.next)),
        };
        self.next = self.next.max(offset + length);
        self.open_r2t += 1;
        Some((offset, length))
    }

    /// True, once, if all that the SCSI side asked for is there and nothing is on its way.
    pub(super) fn is_all_there(&mut self) -> bool {
        let whole = self.wanted.is_some_and(|wanted| self.next >= wanted);
        whole && !self.misses() && !core::mem::replace(&mut self.told, true)
    }
}
