// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the data segment of each PDU goes, and the one pass over its bytes that copies and checks
//! them.
//!
//! Read first: RFC 7143 §11.3 (immediate data), §11.7 (Data-Out), §11.2.3 (data digest).

use alloc::vec::Vec;

use buf::{Buf, Pool};
use crc::Crc32c;
use wire::iscsi::{DataOut, Request, ScsiCommand};

use super::burst::{Admission, BurstKey};
use super::task::Tasks;
use crate::counters::Counters;
use crate::limits::CONTROL_KEEP;
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

/// The data segment under way.
#[derive(Debug)]
pub(super) struct Pdu {
    /// Bytes of data, then of padding, that are still to come.
    pub(super) data_left: usize,
    pub(super) padding_left: usize,
    /// Some if a data digest follows.
    pub(super) crc: Option<Crc32c>,
    pub(super) sink: Sink,
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
}

impl Pdu {
    pub(super) const EMPTY: Self =
        Self { data_left: 0, padding_left: 0, crc: None, sink: Sink::NONE };

    /// Puts the next data bytes where they belong.
    pub(super) fn place(&mut self, part: &[u8], control: &mut Vec<u8>, context: &mut Context<'_>) {
        let Self { crc, sink, .. } = self;
        let copied = match sink {
            Sink::Control(_) => {
                if control.is_empty() {
                    control.reserve_exact((part.len() + self.data_left).min(CONTROL_KEEP));
                }
                control.extend_from_slice(part);
                update(crc, part);
                part.len()
            }
            Sink::Stage { data, at, .. } => {
                let place = data.as_mut().and_then(|data| data.get_mut(*at..*at + part.len()));
                *at += part.len();
                deposit(crc, place, part)
            }
            Sink::Burst { key, at, room, .. } => {
                let inside = part.len().min(*room as usize);
                let (inside, beyond) = part.split_at(inside);
                let place = match inside.len() {
                    0 => None,
                    length => context.tasks.landing(*key, *at, length),
                };
                let taken = u32::try_from(inside.len()).unwrap_or(u32::MAX);
                *at = at.saturating_add(taken);
                *room = room.saturating_sub(taken);
                let copied = deposit(crc, place, inside);
                update(crc, beyond);
                copied
            }
            Sink::Reject { .. } | Sink::Ignored { .. } | Sink::Exhausted { .. } => {
                update(crc, part);
                0
            }
        };
        context.counters.bytes_copied += copied as u64;
        if crc.is_some() {
            context.counters.bytes_crc += part.len() as u64;
        }
    }
}

impl Pdu {
    /// Gives out the buffer for the data that is to come, and where in it that begins.
    pub(super) fn lend(&mut self, tasks: &mut Tasks) -> Option<(Buf, usize)> {
        match &mut self.sink {
            Sink::Stage { data, at, .. } => Some((data.take()?, *at)),
            Sink::Burst { key, at, room, .. } if *room as usize >= self.data_left => {
                Some((tasks.lend(*key, *at, self.data_left)?, *at as usize))
            }
            _ => None,
        }
    }

    /// Takes the buffer back into which `bytes` data bytes have come. One whose task has ended
    /// meanwhile goes back to its pool.
    pub(super) fn landed(&mut self, buf: Buf, bytes: usize, context: &mut Context<'_>) {
        let Self { data_left, crc, sink, .. } = self;
        *data_left = data_left.saturating_sub(bytes);
        let digest = |crc: &mut Option<Crc32c>, from: usize| {
            update(crc, buf.get(from..from + bytes).unwrap_or_default());
        };
        if crc.is_some() {
            context.counters.bytes_crc += bytes as u64;
        }
        match sink {
            Sink::Stage { data, at, .. } => {
                digest(crc, *at);
                *at += bytes;
                *data = Some(buf);
            }
            Sink::Burst { key, at, room, .. } => {
                digest(crc, *at as usize);
                let taken = u32::try_from(bytes).unwrap_or(u32::MAX);
                *at = at.saturating_add(taken);
                *room = room.saturating_sub(taken);
                context.tasks.give_back(*key, buf);
            }
            _ => debug_assert!(false, "no buffer was given out"),
        }
    }
}

/// Copies into `place`, if there is one; returns how many bytes. All bytes count for the digest.
pub(super) fn deposit(crc: &mut Option<Crc32c>, place: Option<&mut [u8]>, part: &[u8]) -> usize {
    match (place, crc) {
        (Some(place), Some(crc)) => crc.copy_update(place, part),
        (Some(place), None) => buf::copy(place, part),
        (None, crc) => {
            update(crc, part);
            return 0;
        }
    }
    part.len()
}

/// Counts bytes for the digest, if there is one.
pub(super) fn update(crc: &mut Option<Crc32c>, part: &[u8]) {
    if let Some(crc) = crc {
        crc.update(part);
    }
}
