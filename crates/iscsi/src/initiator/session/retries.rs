// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands that were sent again: how far the numbers may go on meanwhile. Read first: RFC 7143
//! §4.2.2.1, §10.4.
//!
//! An old copy of a command that is 2^31 numbers behind would be a new command to the target. Once
//! a later command of the same connection is acknowledged, none is under way there any more.

use alloc::vec::Vec;

use wire::iscsi::CmdSn;

use crate::initiator::ConnectionId;
use crate::serial::Serial;

/// How far the numbers may go on beyond one that was sent again.
const AHEAD_MAX: u32 = (1 << 31) - 1;

/// One for each connection at most on which a command was sent again.
#[derive(Debug, Default)]
pub(super) struct Retries {
    all: Vec<Retry>,
}

#[derive(Clone, Copy, Debug)]
struct Retry {
    at: ConnectionId,
    /// The first one that was sent again.
    number: CmdSn,
    /// The first new command that was sent on the same connection behind it.
    later: Option<CmdSn>,
}

impl Retries {
    /// The command `number` is sent again.
    pub(super) fn note(&mut self, at: ConnectionId, number: CmdSn) {
        let new = Retry { at, number, later: None };
        let Some(known) = self.all.iter_mut().find(|retry| retry.at == at) else {
            return self.all.push(new);
        };
        let first = if number.is_before(known.number) { number } else { known.number };
        *known = Retry { number: first, ..new };
    }

    /// Where the next new command goes, so that the numbers can go on.
    pub(super) fn wants(&self) -> Option<ConnectionId> {
        self.all.iter().find(|retry| retry.later.is_none()).map(|retry| retry.at)
    }

    /// A new command leaves.
    pub(super) fn sent(&mut self, at: ConnectionId, number: CmdSn) {
        if let Some(retry) = self.all.iter_mut().find(|retry| retry.at == at) {
            retry.later.get_or_insert(number);
        }
    }

    /// The target has all commands before `expected`.
    pub(super) fn acknowledged(&mut self, expected: CmdSn) {
        self.all.retain(|retry| retry.later.is_none_or(|later| !later.is_before(expected)));
    }

    /// The connection is gone, with all that was under way.
    pub(super) fn forget(&mut self, at: ConnectionId) {
        self.all.retain(|retry| retry.at != at);
    }

    /// Whether a new command may have this number.
    pub(super) fn allow(&self, number: CmdSn) -> bool {
        self.all.iter().all(|retry| number.steps_from(retry.number) <= AHEAD_MAX)
    }
}
