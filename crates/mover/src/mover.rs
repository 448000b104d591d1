// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The target's end of a connection, whatever carries it.

use alloc::boxed::Box;

use buf::Buf;
use iscsi::datamover::{Capabilities, Event, Op};
use wire::iscsi::StatSn;

use crate::counters::Counters;
use crate::iser;
use crate::local;
use crate::tcp::Tcp;

/// One of the movers. What is the same for all of them is here; how input comes and output goes is
/// the business of each: who carries that matches on it.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums)] // who carries its input and output must know each
pub enum Mover {
    /// Over a byte stream.
    Tcp(Tcp),
    /// Over an RDMA stream.
    Iser(Box<iser::Target>),
    /// To an initiator in the same process.
    Local(local::Target),
}

impl Mover {
    /// What it can do.
    #[inline]
    pub const fn capabilities(&self) -> Capabilities {
        match self {
            Self::Tcp(mover) => mover.capabilities(),
            Self::Iser(mover) => mover.capabilities(),
            Self::Local(mover) => mover.capabilities(),
        }
    }

    /// What carries the connection, for people.
    pub const fn transport(&self) -> &'static str {
        match self {
            Self::Tcp(_) => "tcp",
            Self::Iser(_) => "iser",
            Self::Local(_) => "local",
        }
    }

    /// What it has agreed on below iSER; None: it is none, or has not begun.
    pub fn facts(&self) -> Option<iser::Facts> {
        match self {
            Self::Iser(mover) => mover.facts(),
            Self::Tcp(_) | Self::Local(_) => None,
        }
    }

    /// What it has of its pool as long as it is there: buffers of so many bytes each.
    pub fn standing_buffers(&self) -> impl Iterator<Item = usize> {
        let iser = match self {
            Self::Iser(mover) => Some(mover),
            Self::Tcp(_) | Self::Local(_) => None,
        };
        iser.into_iter().flat_map(|mover| mover.standing_buffers())
    }

    /// Takes an op; `Detach` gives the buffer of its task back.
    #[inline]
    pub fn submit(&mut self, op: Op) -> Option<Buf> {
        match self {
            Self::Tcp(mover) => mover.submit(op),
            Self::Iser(mover) => mover.submit(op),
            Self::Local(mover) => mover.submit(op),
        }
    }

    /// Events that ops and sending made (Released).
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        match self {
            Self::Tcp(mover) => mover.poll_event(),
            Self::Iser(mover) => mover.poll_event(),
            Self::Local(mover) => mover.poll_event(),
        }
    }

    /// Header of the PDU of the last event, until the next input.
    #[inline]
    pub fn header(&self) -> &[u8] {
        match self {
            Self::Tcp(mover) => mover.header(),
            Self::Iser(mover) => mover.header(),
            Self::Local(mover) => mover.header(),
        }
    }

    /// Data segment of the PDU of the last Control event, unless it was a SCSI command; until the
    /// next input.
    #[inline]
    pub fn control_data(&self) -> &[u8] {
        match self {
            Self::Tcp(mover) => mover.control_data(),
            Self::Iser(mover) => mover.control_data(),
            Self::Local(mover) => mover.control_data(),
        }
    }

    /// ExpStatSN of the last write data since this was asked last, of which nobody above hears
    /// (RFC 7143 §4.2.2.2).
    #[inline]
    pub const fn take_acknowledged(&mut self) -> Option<StatSn> {
        match self {
            Self::Tcp(mover) => mover.take_acknowledged(),
            Self::Iser(mover) => mover.take_acknowledged(),
            Self::Local(mover) => mover.take_acknowledged(),
        }
    }

    /// Everything was sent and a Terminate op was reached: close the connection.
    #[inline]
    pub fn is_terminated(&self) -> bool {
        match self {
            Self::Tcp(mover) => mover.is_terminated(),
            Self::Iser(mover) => mover.is_terminated(),
            Self::Local(mover) => mover.is_terminated(),
        }
    }

    /// Bytes that wait to be sent, with those under way.
    #[inline]
    pub fn backlog(&self) -> usize {
        match self {
            Self::Tcp(mover) => mover.backlog(),
            Self::Iser(mover) => mover.backlog(),
            Self::Local(mover) => mover.backlog(),
        }
    }

    /// Of these bytes, those that make it wise to hear no more of the initiator for now.
    pub fn burden(&self) -> usize {
        match self {
            Self::Iser(mover) => mover.burden(),
            Self::Tcp(_) | Self::Local(_) => self.backlog(),
        }
    }

    /// Bytes of messages, which are no data, that wait to be sent: no pool bounds them. Those for
    /// who shares our process have their place there, too.
    pub fn messages(&self) -> usize {
        match self {
            Self::Tcp(mover) => mover.messages(),
            Self::Iser(mover) => mover.messages(),
            Self::Local(_) => 0,
        }
    }

    /// Tasks that have resources here: zero when all were released.
    pub fn task_count(&self) -> usize {
        match self {
            Self::Tcp(mover) => mover.task_count(),
            Self::Iser(mover) => mover.task_count(),
            Self::Local(mover) => mover.task_count(),
        }
    }

    /// Bytes that have left.
    pub fn left(&self) -> u64 {
        match self {
            Self::Tcp(mover) => mover.left(),
            // What is given out is there, or nearly.
            Self::Iser(mover) => mover.counters().bytes_out,
            Self::Local(mover) => mover.counters().bytes_out,
        }
    }

    /// What the connection has counted: where there are no PDUs, messages.
    pub fn counters(&self) -> &Counters {
        match self {
            Self::Tcp(mover) => mover.counters(),
            Self::Iser(mover) => mover.counters(),
            Self::Local(mover) => mover.counters(),
        }
    }

    /// Asserts what always holds. Looks at every op, task and burst: for tests and simulation.
    pub fn check(&self) {
        match self {
            Self::Tcp(mover) => mover.check(),
            Self::Iser(mover) => mover.check(),
            Self::Local(mover) => mover.check(),
        }
    }
}
