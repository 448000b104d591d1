// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hostile mode: one side tells what is not so, in well formed PDUs.
//!
//! The other side must not believe it. At ErrorRecoveryLevel 0 nothing can be mended (RFC 7143
//! §7.1): an initiator must end the connection, a target at least the command, and no wrong data
//! may reach anybody.

mod segments;

use std::time::Duration;

use clock::Instant;

use self::segments::Told;
use crate::net::LinkId;
use crate::net::Side;
use crate::rng::Rng;
use crate::tap::Heard;
use crate::world::World;

/// How soon a lie must have ended its connection.
const PATIENCE: Duration = Duration::from_secs(60);

/// A lie that was told.
#[derive(Debug)]
pub(crate) struct Lie {
    pub(crate) link: LinkId,
    /// Who must not believe it.
    pub(crate) victim: Side,
    pub(crate) what: &'static str,
    pub(crate) until: Instant,
}

const DATA_OUT: u8 = 0x05;
const RESPONSE: u8 = 0x21;
const DATA_IN: u8 = 0x25;
const R2T: u8 = 0x31;
const TAG: usize = 16;
const STAT_SN: usize = 24;
/// DataSN and R2TSN.
const SEQUENCE: usize = 36;
const OFFSET: usize = 40;

/// Changes a number of one header; says which.
pub(crate) fn tell(header: &mut [u8], rng: &mut Rng) -> Option<&'static str> {
    let opcode = header.first()? & 0x3f;
    let has_data = header.get(5..8)?.iter().any(|byte| *byte != 0);
    let (what, at, step) = match (opcode, rng.chance(500)) {
        (DATA_OUT, true) => ("DataSN of a Data-Out", SEQUENCE, 1),
        (DATA_OUT, false) if has_data => ("offset of a Data-Out", OFFSET, 4),
        (DATA_IN, true) => ("DataSN of a Data-In", SEQUENCE, 1),
        (DATA_IN, false) if has_data => ("offset of a Data-In", OFFSET, 4),
        (RESPONSE, _) => ("StatSN of a response", STAT_SN, 1),
        (R2T, _) => ("R2TSN of an R2T", SEQUENCE, 1),
        _ => return None,
    };
    let field = header.get_mut(at..)?.first_chunk_mut::<4>()?;
    let more = step * u32::try_from(1 + rng.below(3)).unwrap_or(1);
    *field = u32::from_be_bytes(*field).wrapping_add(more).to_be_bytes();
    Some(what)
}

impl World {
    /// A lie that was believed, if there is one.
    pub(crate) fn believed(&mut self) -> Option<String> {
        let (net, now) = (&self.net, self.now);
        self.lies.retain(|lie| {
            net.links.get(&lie.link).is_some_and(|link| !link.ends[lie.victim].closed)
        });
        let believed = self.lies.iter().find(|lie| lie.until <= now)?;
        let side = if believed.victim == 0 { "initiator" } else { "target" };
        Some(format!("the {side} believed a wrong {} (link {})", believed.what, believed.link))
    }

    /// What `side` is about to send may be a lie.
    pub(crate) fn maybe_lie(&mut self, id: LinkId, side: Side, heard: &Heard, bytes: &mut [u8]) {
        let Some(link) = self.net.links.get_mut(&id) else { return };
        if link.pipes[side].lies == 0 {
            return;
        }
        let mut headers = heard.headers.clone();
        if link.tap.takes_lies() {
            for frame in &heard.frames {
                let Some(segment) = bytes.get_mut(frame.clone()) else { continue };
                match segments::tell(segment, &link.tap.checks.memory, &mut self.net_rng) {
                    Some(Told::Pdu(at)) => headers.push(frame.start + at),
                    Some(Told::Lie(what)) => {
                        link.pipes[side].lies -= 1;
                        let (victim, until) = (1 - side, self.now + PATIENCE);
                        self.lies.push(Lie { link: id, victim, what, until });
                        self.tally.mark(what);
                        self.trace.note(self.now, || format!("link {id}.{side}: wrong {what}"));
                        return;
                    }
                    None => {}
                }
            }
        }
        for at in &headers {
            let told = bytes.get_mut(*at..).and_then(|header| tell(header, &mut self.net_rng));
            if let Some(what) = told {
                link.pipes[side].lies -= 1;
                let (victim, until) = (1 - side, self.now + PATIENCE);
                if victim == 0 {
                    self.lies.push(Lie { link: id, victim, what, until });
                } else if let Some(tag) = bytes.get(at + TAG..).and_then(|tag| tag.first_chunk()) {
                    link.tap.checks.distrust(u32::from_be_bytes(*tag));
                }
                self.tally.mark(what);
                self.trace.note(self.now, || format!("link {id}.{side}: wrong {what}"));
                return;
            }
        }
    }
}
