// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The target's end of a connection, whatever carries it.

use buf::Buf;
use iscsi::datamover::{Capabilities, Event, Op};
use wire::iscsi::StatSn;

use crate::counters::Counters;
use crate::local;
use crate::tcp::Tcp;

/// One of the movers. What is the same for all of them is here; how input comes and output goes is
/// the business of each: who carries that matches on it.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums)] // who carries its input and output must know each
pub enum Mover {
    /// Over a byte stream.
    Tcp(Tcp),
    /// To an initiator in the same process.
    Local(local::Target),
}

/// What a connection has carried, as far as its mover knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Bytes that have come.
    pub received: u64,
    /// Bytes that have left.
    pub left: u64,
    /// PDUs of write data that have come.
    pub data_outs: u64,
    /// Payload bytes that were copied, both ways.
    pub copied: u64,
    /// Bytes run through CRC32C, both ways.
    pub digested: u64,
}

impl Mover {
    /// What it can do.
    #[inline]
    pub const fn capabilities(&self) -> Capabilities {
        match self {
            Self::Tcp(mover) => mover.capabilities(),
            Self::Local(mover) => mover.capabilities(),
        }
    }

    /// Takes an op; `Detach` gives the buffer of its task back.
    #[inline]
    pub fn submit(&mut self, op: Op) -> Option<Buf> {
        match self {
            Self::Tcp(mover) => mover.submit(op),
            Self::Local(mover) => mover.submit(op),
        }
    }

    /// Events that ops and sending made (Released).
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        match self {
            Self::Tcp(mover) => mover.poll_event(),
            Self::Local(mover) => mover.poll_event(),
        }
    }

    /// Header of the PDU of the last event, until the next input.
    #[inline]
    pub fn header(&self) -> &[u8] {
        match self {
            Self::Tcp(mover) => mover.header(),
            Self::Local(mover) => mover.header(),
        }
    }

    /// Data segment of the PDU of the last Control event, unless it was a SCSI command; until the
    /// next input.
    #[inline]
    pub fn control_data(&self) -> &[u8] {
        match self {
            Self::Tcp(mover) => mover.control_data(),
            Self::Local(mover) => mover.control_data(),
        }
    }

    /// ExpStatSN of the last write data since this was asked last, of which nobody above hears
    /// (RFC 7143 §4.2.2.2).
    #[inline]
    pub const fn take_acknowledged(&mut self) -> Option<StatSn> {
        match self {
            Self::Tcp(mover) => mover.take_acknowledged(),
            Self::Local(mover) => mover.take_acknowledged(),
        }
    }

    /// Everything was sent and a Terminate op was reached: close the connection.
    #[inline]
    pub fn is_terminated(&self) -> bool {
        match self {
            Self::Tcp(mover) => mover.is_terminated(),
            Self::Local(mover) => mover.is_terminated(),
        }
    }

    /// Bytes that wait to be sent, with those under way.
    #[inline]
    pub fn backlog(&self) -> usize {
        match self {
            Self::Tcp(mover) => mover.backlog(),
            Self::Local(mover) => mover.backlog(),
        }
    }

    /// Tasks that have resources here: zero when all were released.
    pub fn task_count(&self) -> usize {
        match self {
            Self::Tcp(mover) => mover.task_count(),
            Self::Local(mover) => mover.task_count(),
        }
    }

    /// What the connection has carried.
    pub fn carried(&self) -> Carried {
        match self {
            Self::Tcp(mover) => Carried::of(mover.counters(), mover.left()),
            Self::Local(mover) => Carried::of(mover.counters(), mover.counters().bytes_out),
        }
    }

    /// Asserts what always holds. Looks at every op, task and burst: for tests and simulation.
    pub fn check(&self) {
        match self {
            Self::Tcp(mover) => mover.check(),
            Self::Local(mover) => mover.check(),
        }
    }
}

impl Carried {
    const fn of(counters: &Counters, left: u64) -> Self {
        Self {
            received: counters.bytes_in,
            left,
            data_outs: counters.pdus_in.data_out,
            copied: counters.bytes_copied,
            digested: counters.bytes_crc,
        }
    }
}
