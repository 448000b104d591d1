// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How many RDMA Reads may be under way, and who speaks first (RFC 6581 §5, §9).

use crate::limits::READS_MAX;
use crate::violation::Violation;
use wire::iwarp::DEPTH_UNSAID;
use wire::iwarp::Enhanced;
use wire::iwarp::ReadyTypes;

/// RDMA Reads at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depths {
    /// Those of the peer that we serve.
    pub ird: u16,
    /// Those of ours that the peer serves.
    pub ord: u16,
}

impl Default for Depths {
    fn default() -> Self {
        Self { ird: READS_MAX, ord: READS_MAX }
    }
}

/// The message by which the initiator says that it is ready (RFC 6581 §5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // RFC 6581 has three
pub enum ReadyType {
    /// A Send without payload.
    Send,
    /// An RDMA Write without payload.
    Write,
    /// An RDMA Read of nothing.
    Read,
}

impl ReadyType {
    /// Alone.
    pub(super) const fn alone(self) -> ReadyTypes {
        ReadyTypes {
            send: matches!(self, Self::Send),
            write: matches!(self, Self::Write),
            read: matches!(self, Self::Read),
        }
    }

    /// The one to choose of those that are offered: that which costs the receiver least.
    pub(super) const fn choose(offered: ReadyTypes) -> Option<Self> {
        match offered {
            ReadyTypes { write: true, .. } => Some(Self::Write),
            ReadyTypes { read: true, .. } => Some(Self::Read),
            ReadyTypes { send: true, .. } => Some(Self::Send),
            ReadyTypes { .. } => None,
        }
    }
}

/// The depths of a responder with `own`, and the answer to `asked` (RFC 6581 §9).
pub(super) fn answer(own: Depths, asked: Enhanced) -> (Depths, Enhanced) {
    let depths = Depths { ird: lowered(own.ird, asked.ord), ord: lowered(own.ord, asked.ird) };
    let ready = ReadyType::choose(asked.ready).filter(|_| asked.peer_to_peer);
    let answer = Enhanced {
        peer_to_peer: asked.peer_to_peer,
        ready: ready.map(ReadyType::alone).unwrap_or_default(),
        ird: depths.ird,
        ord: depths.ord,
    };
    (depths, answer)
}

/// The depths of an initiator with `own`, and the message to begin with, once the responder has
/// answered its offer.
pub(super) fn settle(
    own: Depths,
    offered: Option<ReadyTypes>,
    answered: Enhanced,
) -> Result<(Depths, Option<ReadyType>), Violation> {
    if answered.ord != DEPTH_UNSAID && answered.ord > own.ird {
        return Err(Violation::Depth { wanted: answered.ord, served: own.ird });
    }
    let depths = Depths { ird: own.ird, ord: lowered(own.ord, answered.ird) };
    let Some(offered) = offered else { return Ok((depths, None)) };
    let chosen = ReadyTypes {
        send: offered.send && answered.ready.send,
        write: offered.write && answered.ready.write,
        read: offered.read && answered.ready.read,
    };
    match ReadyType::choose(chosen) {
        Some(ready) => Ok((depths, Some(ready))),
        None => Err(Violation::ReadyType),
    }
}

fn lowered(own: u16, told: u16) -> u16 {
    if told == DEPTH_UNSAID { own } else { own.min(told) }
}
