// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands that become ORDERED or HEAD OF QUEUE on their way, since our initiator sends SIMPLE
//! ones alone; and what the target must make of that, over all sessions and reactors (SAM-5 §8.6).
//!
//! A command for which the target has sent an R2T is in the task set. An ORDERED one that is sent
//! behind that R2T, over whatever connection, must not end well before the data of the other one
//! has come: a status may stand behind other things that leave, so that its place tells little.

use std::collections::BTreeMap;

use wire::iscsi::LunField;

use crate::check::Told;
use crate::net::LinkId;
use crate::net::Side;
use crate::world::World;

const COMMAND: u8 = 0x01;
/// Task attributes (RFC 7143 §11.3.1).
const ATTRIBUTE: u8 = 0x07;
const SIMPLE: u8 = 1;
const ORDERED: u8 = 2;
const HEAD_OF_QUEUE: u8 = 3;
const TAG: usize = 16;
const CDB: usize = 32;
/// READ and WRITE, of 10 and 16 bytes.
const TRANSFERS: [u8; 4] = [0x28, 0x2a, 0x88, 0x8a];

/// A command under way.
#[derive(Debug)]
struct Open {
    /// Target and unit.
    unit: (usize, LunField),
    /// Bytes of data that its initiator has not sent.
    left: u32,
    /// When the first R2T for it was sent,
    asked: Option<u64>,
    /// and when it was sent itself, if it is ORDERED.
    ordered: Option<u64>,
}

/// Commands under way, by connection and task tag.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    /// Every command of the run ends with a status of its own.
    pub(crate) is_judged: bool,
    open: BTreeMap<(LinkId, u32), Open>,
    /// Moments are counted.
    moment: u64,
    pub(crate) broken: Vec<String>,
}

impl Orders {
    /// A connection to `target` tells of a command.
    pub(crate) fn hear(&mut self, link: LinkId, target: usize, told: Told) {
        if !self.is_judged {
            return;
        }
        self.moment += 1;
        match told {
            Told::Command(itt, lun, left) => {
                let unit = (target, lun);
                self.open.insert((link, itt.0), Open { unit, left, asked: None, ordered: None });
            }
            Told::DataOut(itt, length) => {
                if let Some(open) = self.open.get_mut(&(link, itt.0)) {
                    open.left = open.left.saturating_sub(length);
                }
            }
            Told::R2t(itt) => {
                if let Some(open) = self.open.get_mut(&(link, itt.0)) {
                    open.asked.get_or_insert(self.moment);
                }
            }
            Told::Ended(itt, good) => {
                let ended = self.open.remove(&(link, itt.0));
                if let Some(Open { unit, ordered: Some(sent), .. }) = ended
                    && good
                {
                    // Of others the status may be on its way.
                    let older = |one: &Open| {
                        one.unit == unit && one.left > 0 && one.asked.is_some_and(|at| at < sent)
                    };
                    let older = self.open.iter().find(|(_, one)| older(one));
                    if let Some(((other, tag), _)) = older {
                        self.broken.push(format!(
                            "an ORDERED command (link {link}) ends before an older one \
                             (link {other}, tag {tag:#x})"
                        ));
                    }
                }
            }
            Told::ResetAsked(..) | Told::ResetDone(_) | Told::Reassigned => {}
        }
    }
}

impl World {
    /// What an initiator sends may get other attributes; its headers begin at `headers`.
    pub(crate) fn maybe_order(
        &mut self,
        id: LinkId,
        side: Side,
        headers: &[usize],
        bytes: &mut [u8],
    ) {
        let Some(link) = self.net.links.get(&id) else { return };
        let home = self.desks[link.ends[1].desk].home;
        // What is sent again must be as it was: for recovery, or after a Reject of damaged data.
        if side != 0 || !link.tap.is_bare() || link.tap.has_digests() || link.tap.checks.recovers()
        {
            return;
        }
        for at in headers {
            let Some(header) = bytes.get_mut(*at..) else { continue };
            let is_transfer = header.get(CDB).is_some_and(|code| TRANSFERS.contains(code));
            let (Some(tag), Some([opcode, flags])) = (
                header.get(TAG..).and_then(|tag| tag.first_chunk::<4>().copied()),
                header.first_chunk_mut::<2>(),
            ) else {
                continue;
            };
            if *opcode & 0x3f != COMMAND || *flags & ATTRIBUTE != SIMPLE || !is_transfer {
                continue;
            }
            let Some(head) = self.draws_attribute(home) else { continue };
            *flags = *flags & !ATTRIBUTE | if head { HEAD_OF_QUEUE } else { ORDERED };
            self.tally.mark(if head { "command goes to the head" } else { "command in order" });
            let moment = self.orders.moment;
            let open = self.orders.open.get_mut(&(id, u32::from_be_bytes(tag)));
            if let Some(open) = open.filter(|_| !head) {
                open.ordered = Some(moment);
            }
        }
    }
}
