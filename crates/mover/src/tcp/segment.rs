// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the data segment of each PDU goes that a target receives.
//!
//! Read first: RFC 7143 §11.3 (immediate data), §11.7 (Data-Out).

use buf::{Buf, Pool};
use wire::iscsi::{DataOut, Request, ScsiCommand};

use super::burst::{Admission, BurstKey};
use super::frame::Segment;
use super::task::Tasks;
use crate::counters::Counters;
use crate::staging;

/// Reject reason "Invalid PDU field" (RFC 7143 §11.17.1).
const INVALID_PDU_FIELD: u8 = 0x09;

/// What else is needed besides the receiver itself.
#[derive(Debug)]
pub(super) struct Context<'a> {
    pub(super) pool: &'a Pool,
    pub(super) tasks: &'a mut Tasks,
    pub(super) counters: &'a mut Counters,
}

/// Where data goes and what is told at the end.
#[derive(Debug)]
pub(super) enum Sink {
    /// Dropped; then `Rejected`.
    Reject { reason: u8 },
    /// Into `control`.
    Control(Request),
    /// Immediate data, `at` bytes of it there; None while the port fills the buffer.
    Stage { command: ScsiCommand, data: Option<Buf>, at: usize },
    /// Immediate data without a buffer.
    Exhausted { command: ScsiCommand, length: u32 },
    /// Data-Out: the next `room` bytes go to `at`, what is beyond them is dropped.
    Burst { key: BurstKey, pdu: DataOut, at: u32, room: u32 },
    /// Data-Out of an abandoned task.
    Ignored { key: BurstKey, pdu: DataOut },
}

impl Sink {
    pub(super) const NONE: Self = Self::Reject { reason: INVALID_PDU_FIELD };

    #[inline]
    pub(super) fn new(request: Request, length: u32, context: &mut Context<'_>) -> Self {
        match request {
            Request::Command(command) if length > 0 => Self::stage(command, length, context.pool),
            Request::DataOut(pdu) => match context.tasks.bursts.admit(&pdu, length) {
                Admission::Refused => Self::Reject { reason: INVALID_PDU_FIELD },
                Admission::Ignored(key) => Self::Ignored { key, pdu },
                Admission::Accepted { key, at, room } => Self::Burst { key, pdu, at, room },
            },
            _ => Self::Control(request),
        }
    }

    /// A buffer for the immediate data that can become that of the task: see `Immediate`.
    pub(super) fn stage(command: ScsiCommand, length: u32, pool: &Pool) -> Self {
        match staging::stage(&command, length, pool) {
            Some(data) => Self::Stage { command, data: Some(data), at: 0 },
            None => Self::Exhausted { command, length },
        }
    }

    /// Puts the next data bytes where they belong.
    #[inline]
    pub(super) fn place(&mut self, part: &[u8], segment: &mut Segment, context: &mut Context<'_>) {
        let copied = match self {
            Self::Control(_) => {
                segment.keep(part);
                part.len()
            }
            Self::Stage { data, at, .. } => {
                let place = data.as_mut().and_then(|data| data.get_mut(*at..*at + part.len()));
                *at += part.len();
                segment.deposit(place, part)
            }
            Self::Burst { key, at, room, .. } => {
                let inside = part.len().min(*room as usize);
                let (inside, beyond) = part.split_at(inside);
                let place = match inside.len() {
                    0 => None,
                    length => context.tasks.landing(*key, *at, length),
                };
                let taken = u32::try_from(inside.len()).unwrap_or(u32::MAX);
                *at = at.saturating_add(taken);
                *room = room.saturating_sub(taken);
                let copied = segment.deposit(place, inside);
                segment.digest(beyond);
                copied
            }
            Self::Reject { .. } | Self::Ignored { .. } | Self::Exhausted { .. } => {
                segment.digest(part);
                0
            }
        };
        context.counters.bytes_copied += copied as u64;
        if segment.has_digest() {
            context.counters.bytes_crc += part.len() as u64;
        }
    }

    /// Gives out the buffer for the next `length` data bytes, and where in it they begin.
    pub(super) fn lend(&mut self, length: usize, tasks: &mut Tasks) -> Option<(Buf, usize)> {
        match self {
            Self::Stage { data, at, .. } => Some((data.take()?, *at)),
            Self::Burst { key, at, room, .. } if *room as usize >= length => {
                Some((tasks.lend(*key, *at, length)?, *at as usize))
            }
            _ => None,
        }
    }

    /// Takes the buffer back into which `bytes` data bytes have come. One whose task has ended
    /// meanwhile goes back to its pool.
    pub(super) fn landed(
        &mut self,
        buf: Buf,
        bytes: usize,
        segment: &mut Segment,
        context: &mut Context<'_>,
    ) {
        let mut digest = |from: usize| {
            segment.digest(buf.get(from..from + bytes).unwrap_or_default());
        };
        match self {
            Self::Stage { data, at, .. } => {
                digest(*at);
                *at += bytes;
                *data = Some(buf);
            }
            Self::Burst { key, at, room, .. } => {
                digest(*at as usize);
                let taken = u32::try_from(bytes).unwrap_or(u32::MAX);
                *at = at.saturating_add(taken);
                *room = room.saturating_sub(taken);
                context.tasks.give_back(*key, buf);
            }
            _ => debug_assert!(false, "no buffer was given out"),
        }
        if segment.has_digest() {
            context.counters.bytes_crc += bytes as u64;
        }
    }
}
