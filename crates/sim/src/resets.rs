// SPDX-License-Identifier: Apache-2.0 OR MIT
//! After the answer to LOGICAL UNIT RESET nothing that it has ended may still reach the medium,
//! whatever session asked for it and whichever reactor had it.
//!
//! What is under way at a disk when the function is sent was asked for before it, so it must be
//! over when the answer leaves. Reads are not looked at: a copy reads other units than its command
//! is for.
//!
//! What does not end may be left behind when it was waited for long enough: then nothing else
//! begins on that disk before it is over.

use std::collections::BTreeMap;
use std::time::Duration;

use clock::Instant;
use target::END_WAIT_DEFAULT as END_WAIT;

use crate::check::Told;
use crate::disk::Disk;
use crate::net::LinkId;

/// Data of tasks that end is waited for, and messages take a while; besides, what does not end is
/// waited for once for each unit, and functions wait for those before them.
const TIME_MAX: Duration = Duration::from_secs(4);

/// The resets that are under way.
#[derive(Debug, Default)]
pub(crate) struct Resets {
    /// By target: the disks of its units.
    pub(crate) disks: BTreeMap<usize, Vec<usize>>,
    /// By connection and task tag.
    asked: BTreeMap<(LinkId, u32), Asked>,
    /// By disk: up to what an answered reset has left behind.
    left: BTreeMap<usize, u64>,
    /// Copies for other units go on, and use the disk.
    pub(crate) copies: bool,
    /// Nothing goes wrong that could keep an answer.
    pub(crate) prompt: bool,
    pub(crate) broken: Vec<String>,
}

/// A reset that is not answered.
#[derive(Clone, Copy, Debug)]
struct Asked {
    disk: usize,
    /// What the disk had been given.
    mark: u64,
    at: Instant,
}

impl Resets {
    /// A connection to `target` tells of one.
    pub(crate) fn hear(
        &mut self,
        link: LinkId,
        target: usize,
        told: Told,
        (disks, now): (&[Disk], Instant),
    ) {
        match told {
            Told::ResetAsked(itt, lun) => {
                let unit = usize::from(lun.0[1]);
                let own = self.disks.get(&target);
                let disk = own.and_then(|own| own.get(unit));
                if let Some(disk) = disk {
                    let asked = Asked { disk: *disk, mark: disks[*disk].mark(), at: now };
                    self.asked.insert((link, itt.0), asked);
                }
            }
            Told::ResetDone(itt) => {
                if let Some(asked) = self.asked.remove(&(link, itt.0)) {
                    self.answered(asked, (link, target), disks, now);
                }
            }
            Told::Command(..)
            | Told::Reassigned
            | Told::R2t(_)
            | Told::DataOut(..)
            | Told::Ended(..) => {}
        }
    }

    fn answered(
        &mut self,
        asked: Asked,
        (link, target): (LinkId, usize),
        disks: &[Disk],
        now: Instant,
    ) {
        let Asked { disk, mark, at } = asked;
        let took = now.since(at);
        let units = self.disks.get(&target).into_iter().flatten().count();
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        if self.prompt && took > TIME_MAX + END_WAIT * units {
            self.broken.push(format!("a reset of disk {disk} takes {took:?} (link {link})"));
        }
        if !disks[disk].changes_before(mark) {
            return;
        }
        if !disks[disk].has_waited(mark, now, END_WAIT) {
            let text = "is written for what a reset has ended that was answered";
            self.broken.push(format!("disk {disk} {text} (link {link})"));
        }
        let left = self.left.entry(disk).or_default();
        *left = mark.max(*left);
    }

    /// Something is asked of a disk.
    pub(crate) fn begin(&mut self, disk: usize, disks: &[Disk]) {
        let Some(mark) = self.left.get(&disk) else { return };
        // There may be another disk in its place.
        let is_over = disks[disk].mark() < *mark || !disks[disk].changes_before(*mark);
        if is_over {
            self.left.remove(&disk);
        } else if !self.copies {
            let text = "is asked for something beside what an answered reset has left behind";
            self.broken.push(format!("disk {disk} {text}"));
        }
    }
}
