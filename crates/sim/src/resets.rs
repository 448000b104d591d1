// SPDX-License-Identifier: Apache-2.0 OR MIT
//! After the answer to LOGICAL UNIT RESET nothing that it has ended may still reach the medium,
//! whatever session asked for it and whichever reactor had it.
//!
//! What is under way at a disk when the function is sent was asked for before it, so it must be
//! over when the answer leaves. Reads are not looked at: a copy reads other units than its command
//! is for.

use std::collections::BTreeMap;

use crate::check::Told;
use crate::disk::Disk;
use crate::net::LinkId;

/// The resets that are under way.
#[derive(Debug, Default)]
pub(crate) struct Resets {
    /// By target: the disks of its units.
    pub(crate) disks: BTreeMap<usize, Vec<usize>>,
    /// By connection and task tag: the disk, and what it had been given.
    asked: BTreeMap<(LinkId, u32), (usize, u64)>,
    pub(crate) broken: Vec<String>,
}

impl Resets {
    /// A connection to `target` tells of one.
    pub(crate) fn hear(&mut self, link: LinkId, target: usize, told: Told, disks: &[Disk]) {
        match told {
            Told::ResetAsked(itt, lun) => {
                let unit = usize::from(lun.0[1]);
                let own = self.disks.get(&target);
                let disk = own.and_then(|own| own.get(unit));
                if let Some(disk) = disk {
                    self.asked.insert((link, itt.0), (*disk, disks[*disk].mark()));
                }
            }
            Told::ResetDone(itt) => {
                let asked = self.asked.remove(&(link, itt.0));
                if let Some((disk, mark)) = asked
                    && disks[disk].changes_before(mark)
                {
                    let text = "is written for what a reset has ended that was answered";
                    self.broken.push(format!("disk {disk} {text} (link {link})"));
                }
            }
            Told::Command(..) | Told::R2t(_) | Told::DataOut(..) | Told::Ended(..) => {}
        }
    }
}
