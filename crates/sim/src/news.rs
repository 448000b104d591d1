// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Targets that tell once, in the place of a good end, that something which they had acknowledged
//! has failed: by a deferred error (SPC-4 §4.5.7), or by a flush that is aborted.
//!
//! Nothing is lost by that here. But an initiator that lets a later flush stand for what was
//! written before would lose it elsewhere (`host/promises.rs`).

use std::collections::BTreeMap;

use clock::Instant;
use wire::iscsi::BHS_LEN;
use wire::iscsi::LunField;
use wire::scsi::Lun;
use wire::scsi::Sense;
use wire::scsi::SenseKey;
use wire::scsi::opcode::Opcode;
use wire::scsi::sam::CHECK_CONDITION;

use crate::net::LinkId;
use crate::net::Side;
use crate::world::World;

const OPCODE: u8 = 0x3f;
const COMMAND: u8 = 0x01;
const RESPONSE: u8 = 0x21;
const STATUS: usize = 3;
const TAG: usize = 16;
/// Lengths of the AHS and of the data segment.
const LENGTHS: std::ops::Range<usize> = 4..8;

/// What is told on a connection.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// So many of the next writes and flushes.
    pub(crate) wanted: u32,
    /// Writes and flushes that were asked for, by tag: the unit of a flush.
    asked: BTreeMap<[u8; 4], Option<u16>>,
}

/// A flush that did not end well, which its initiator may ask for again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refused {
    pub(crate) host: usize,
    pub(crate) target: usize,
    pub(crate) lun: u16,
    /// When it can be known.
    pub(crate) at: Instant,
}

impl World {
    /// What `side` is about to send, with headers that begin at `headers`, may become news.
    pub(crate) fn maybe_tell(
        &mut self,
        id: LinkId,
        side: Side,
        headers: &[usize],
        bytes: &mut Vec<u8>,
        arrives: Instant,
    ) {
        let Some(link) = self.net.links.get_mut(&id).filter(|link| link.tap.is_plain()) else {
            return;
        };
        for at in headers {
            let Some(header) = bytes.get(*at..).and_then(|bytes| bytes.first_chunk::<BHS_LEN>())
            else {
                return;
            };
            let tag = [0, 1, 2, 3].map(|byte| header[TAG + byte]);
            if side == 0 && header[0] & OPCODE == COMMAND {
                let lun = LunField([0, 1, 2, 3, 4, 5, 6, 7].map(|byte| header[8 + byte]));
                let Some(Lun::Unit(unit)) = Lun::parse(lun) else { continue };
                match Opcode(header[32]) {
                    Opcode::SYNCHRONIZE_CACHE_10 | Opcode::SYNCHRONIZE_CACHE_16 => {
                        link.news.asked.insert(tag, Some(unit));
                    }
                    Opcode::WRITE_10 | Opcode::WRITE_16 => {
                        link.news.asked.insert(tag, None);
                    }
                    _ => {}
                }
            }
            if side == 0 || header[0] & OPCODE != RESPONSE {
                continue;
            }
            let Some(flushed) = link.news.asked.remove(&tag) else { continue };
            let is_good = header[2..4] == [0, 0] && header[LENGTHS] == [0; 4];
            if link.news.wanted == 0 || !is_good {
                continue;
            }
            link.news.wanted -= 1;
            let key = self.net_rng.pick(&[SenseKey::AbortedCommand, SenseKey::MediumError]);
            let sense = match flushed {
                Some(_) => Sense::new(SenseKey::AbortedCommand, 0x44, 0),
                None => Sense::new(key, 0x0c, 0).of_an_earlier_command(),
            };
            let sense = sense.emit_fixed();
            let length = u8::try_from(sense.len()).unwrap_or(0);
            let segment: Vec<u8> = [0, length].into_iter().chain(sense).collect();
            bytes[at + STATUS] = CHECK_CONDITION;
            bytes[at + LENGTHS.end - 1] = length + 2;
            bytes.splice(at + BHS_LEN..at + BHS_LEN, segment);
            let (host, target) = (link.ends[0].desk, self.desks[link.ends[1].desk].home);
            if let Some(lun) = flushed {
                self.refused.push(Refused { host, target, lun, at: arrives });
            }
            let what = if flushed.is_some() { "flush refused" } else { "deferred error" };
            self.tally.mark(what);
            self.trace.note(self.now, || format!("link {id}: {what}"));
            return;
        }
    }
}
