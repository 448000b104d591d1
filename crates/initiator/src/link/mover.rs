// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The datamover of a connection, of either kind.

use buf::Buf;
use buf::SgList;
use iscsi::datamover::Capabilities;
use iscsi::initiator::datamover::Event;
use iscsi::initiator::datamover::Op;
use iscsi::initiator::datamover::TaskId;
use iscsi::initiator::datamover::Violation;
use mover::iser;
use mover::local;
use mover::tcp;
use mover::tcp::initiator::ByteCounters;
use mover::tcp::initiator::Tcp;
use wire::iscsi::Response;
use wire::iscsi::StatSn;
use wire::iscsi::Ttt;

use crate::limits::ECHOES_MAX;

/// A task on its way from one connection to another of the same kind.
#[derive(Debug)]
pub(super) enum Carried {
    Tcp(tcp::initiator::Carried),
    Iser(iser::Carried),
}

/// One of the movers that there are.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "the large one is nearly always the one")]
pub(super) enum Mover {
    Tcp(Tcp),
    Iser(Box<iser::Initiator>),
    Local(local::Initiator),
}

impl Default for Mover {
    fn default() -> Self {
        Self::Tcp(Tcp::new())
    }
}

impl Mover {
    pub(super) fn submit(&mut self, op: Op) -> Option<Buf> {
        match self {
            Self::Tcp(mover) => mover.submit(op),
            Self::Iser(mover) => mover.submit(op),
            Self::Local(mover) => mover.submit(op),
        }
    }

    /// Takes bytes up to the next event: how many, and that; None of a mover that takes none.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Option<(usize, Option<Event>)> {
        let (taken, event) = match self {
            Self::Tcp(mover) => mover.feed(bytes),
            Self::Iser(mover) => mover.feed(bytes),
            Self::Local(_) => return None,
        };
        let is_ping = matches!(
            &event,
            Some(Event::Control { response: Response::NopIn(pdu) }) if pdu.ttt != Ttt::NONE
        );
        let event = match is_ping && self.echoes() >= ECHOES_MAX {
            true => Some(Event::Violation(Violation::TooManyPings(ECHOES_MAX))),
            false => event,
        };
        Some((taken, event))
    }

    /// Answers to pings of the target that wait to be sent.
    fn echoes(&self) -> usize {
        match self {
            Self::Tcp(mover) => mover.echoes(),
            Self::Iser(mover) => mover.echoes(),
            Self::Local(_) => 0,
        }
    }

    /// There is an event of what was fed: feed once more, perhaps nothing.
    pub(super) fn has_more(&self) -> bool {
        matches!(self, Self::Iser(mover) if mover.has_more())
    }

    /// Appends what is to be sent; None of a mover that sends no bytes.
    pub(super) fn poll_transmit(&mut self, list: &mut SgList, newest: StatSn) -> Option<bool> {
        match self {
            Self::Tcp(mover) => Some(mover.poll_transmit(list, newest)),
            Self::Iser(mover) => Some(mover.poll_transmit(list, newest)),
            Self::Local(_) => None,
        }
    }

    /// Why the connection is over, if the other side is told.
    pub(super) fn last_word(&mut self, mut list: SgList) -> Option<SgList> {
        match self {
            Self::Iser(mover) => mover.poll_last_word(&mut list).then_some(list),
            Self::Tcp(_) | Self::Local(_) => None,
        }
    }

    /// A list has left.
    pub(super) fn handle_sent(&mut self) {
        match self {
            Self::Tcp(mover) => mover.handle_sent(),
            Self::Iser(mover) => mover.handle_sent(),
            Self::Local(_) => {}
        }
    }

    /// See [`iser::Initiator::nudge`].
    pub(super) fn nudge(&mut self) {
        if let Self::Iser(mover) = self {
            mover.nudge();
        }
    }

    pub(super) const fn capabilities(&self) -> Capabilities {
        match self {
            Self::Tcp(_) => Capabilities::STREAM,
            Self::Iser(mover) => mover.capabilities(),
            Self::Local(_) => local::CAPABILITIES,
        }
    }

    pub(super) fn control_data(&self) -> &[u8] {
        match self {
            Self::Tcp(mover) => mover.control_data(),
            Self::Iser(mover) => mover.control_data(),
            Self::Local(mover) => mover.control_data(),
        }
    }

    pub(super) fn holds(&self, task: TaskId) -> bool {
        match self {
            Self::Tcp(mover) => mover.holds(task),
            Self::Iser(mover) => mover.holds(task),
            Self::Local(mover) => mover.holds(task),
        }
    }

    pub(super) fn progress(&self, task: TaskId) -> Option<u64> {
        match self {
            Self::Tcp(mover) => mover.progress(task),
            Self::Iser(mover) => mover.progress(task),
            Self::Local(mover) => mover.progress(task),
        }
    }

    pub(super) fn task_count(&self) -> usize {
        match self {
            Self::Tcp(mover) => mover.task_count(),
            Self::Iser(mover) => mover.task_count(),
            Self::Local(mover) => mover.task_count(),
        }
    }

    /// Bytes of what is under way that have not come.
    pub(super) fn arriving(&self) -> usize {
        match self {
            Self::Tcp(mover) => mover.arriving(),
            Self::Iser(_) | Self::Local(_) => 0,
        }
    }

    pub(super) const fn byte_counters(&self) -> ByteCounters {
        match self {
            Self::Tcp(mover) => mover.byte_counters(),
            Self::Iser(mover) => ByteCounters { copied: mover.copied(), digested: 0 },
            Self::Local(mover) => ByteCounters { copied: mover.copied(), digested: 0 },
        }
    }

    /// Takes a task out, to go on with it, or send its command again, on another connection. Of a
    /// session within a process there is no other one.
    pub(super) fn carry(&mut self, task: TaskId) -> Option<Carried> {
        match self {
            Self::Tcp(mover) => mover.carry(task).map(Carried::Tcp),
            Self::Iser(mover) => mover.carry(task).map(Carried::Iser),
            Self::Local(_) => None,
        }
    }

    pub(super) fn carry_all(&mut self) -> Vec<Carried> {
        match self {
            Self::Tcp(mover) => mover.carry_all().into_iter().map(Carried::Tcp).collect(),
            Self::Iser(mover) => mover.carry_all().into_iter().map(Carried::Iser).collect(),
            Self::Local(_) => Vec::new(),
        }
    }

    pub(super) fn adopt(&mut self, carried: Carried) {
        match (self, carried) {
            (Self::Tcp(mover), Carried::Tcp(carried)) => mover.adopt(carried),
            (Self::Iser(mover), Carried::Iser(carried)) => mover.adopt(carried),
            _ => debug_assert!(false, "connections of a session are of one kind"),
        }
    }
}
