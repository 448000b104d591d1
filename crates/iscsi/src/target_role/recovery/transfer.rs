// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Write data that was asked for and has not come: recovery R2T and R2T SNACK (RFC 7143 §7.1.4.1,
//! §7.8, §7.9, §11.8, §11.16).

use crate::target_role::limits;
use alloc::vec::Vec;
use wire::iscsi::Snack;

/// The R2Ts of a task, and what is to be asked for again; not kept at level 0.
#[derive(Debug, Default)]
pub(in crate::target_role) struct R2tState {
    /// R2Ts whose data has not come.
    asked: Vec<Asked>,
    /// Offset and length of what was lost and must be asked for again.
    again: Vec<(u32, u32)>,
    /// The next R2TSN.
    next: u32,
    /// How often data of this task was asked for again.
    tries: u16,
    /// All R2Ts before are satisfied, since the connection was lost that they were sent on.
    satisfied: u32,
}

/// An R2T.
#[derive(Clone, Copy, Debug)]
pub(in crate::target_role) struct Asked {
    pub(in crate::target_role) r2t_sn: u32,
    pub(in crate::target_role) offset: u32,
    pub(in crate::target_role) length: u32,
}

impl R2tState {
    /// An R2T leaves: gives its number.
    pub(in crate::target_role) fn ask(&mut self, offset: u32, length: u32) -> u32 {
        let r2t_sn = self.next;
        self.next = r2t_sn.wrapping_add(1);
        self.asked.push(Asked { r2t_sn, offset, length });
        r2t_sn
    }

    /// Something is to be asked for once more. False if that was done too often.
    pub(in crate::target_role) fn try_again(&mut self) -> bool {
        let may = self.tries < limits::RECOVERY_TRIES_MAX;
        self.tries += u16::from(may);
        may
    }

    /// The next R2TSN.
    pub(in crate::target_role) const fn next(&self) -> u32 {
        self.next
    }

    /// True if something that was lost has not been asked for again.
    pub(in crate::target_role) fn misses(&self) -> bool {
        !self.again.is_empty()
    }

    /// What is to be asked for again.
    pub(in crate::target_role) fn take_missing(&mut self) -> Option<(u32, u32)> {
        self.again.pop()
    }

    /// A burst has ended.
    pub(in crate::target_role) fn close(&mut self, offset: u32, length: u32) {
        self.asked.retain(|asked| (asked.offset, asked.length) != (offset, length));
    }

    /// A burst must be asked for again, unless it had no data: no R2T asks for nothing (RFC 7143
    /// §11.8.4).
    pub(in crate::target_role) fn miss(&mut self, offset: u32, length: u32) {
        if length > 0 {
            self.again.push((offset, length));
        }
    }

    /// The connection is gone: all that is open must be asked for again, and `unasked` too.
    pub(in crate::target_role) fn lose(&mut self, unasked: Option<(u32, u32)>) {
        let open = self.asked.iter().map(|asked| asked.r2t_sn);
        self.satisfied = open.min().unwrap_or(self.next);
        self.again.extend(self.asked.drain(..).map(|asked| (asked.offset, asked.length)));
        if let Some((offset, length)) = unasked {
            self.miss(offset, length);
        }
        // The lowest is asked for first.
        self.again.sort_unstable_by_key(|(offset, _)| core::cmp::Reverse(*offset));
    }

    /// Another connection goes on: what the initiator has seen keeps its number, the rest is
    /// numbered anew (RFC 7143 §7.2.2).
    pub(in crate::target_role) fn resume(&mut self, expected: u32) {
        let is_valid = expected > self.satisfied && expected <= self.next;
        self.next = if is_valid { expected } else { self.satisfied };
    }

    /// The open R2Ts that a SNACK asks for; None if one of them was never sent or its data is here.
    pub(in crate::target_role) fn wanted(&self, snack: &Snack) -> Option<Vec<Asked>> {
        let (from, to) = match (snack.beg_run, snack.run_length) {
            (from, 0) => (from, self.next),
            (from, count) => (from, from.checked_add(count)?),
        };
        let within = |asked: &&Asked| (from..to).contains(&asked.r2t_sn);
        let open: Vec<Asked> = self.asked.iter().filter(within).copied().collect();
        let all = (snack.beg_run, snack.run_length) == (0, 0);
        let whole = open.len() == to.saturating_sub(from) as usize && from < to && to <= self.next;
        let is_right = if all { self.next > 0 } else { whole };
        is_right.then_some(open)
    }
}
