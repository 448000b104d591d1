// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The mode pages of a disk (SPC-4 §7.5, SBC-3 §6.5).

use super::CACHING;
use super::CONTROL;
use super::INFORMATIONAL_EXCEPTIONS;
use crate::scsi::field::get;
use crate::scsi::field::get_u8;
use crate::scsi::field::put;

/// Caching mode page (SBC-3 §6.5.5), 20 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caching {
    /// WCE: a write can be lost until it is synchronized.
    pub write_cache: bool,
}

impl Caching {
    const WCE: u8 = 0x04;

    /// Writes the page.
    #[must_use]
    pub fn emit(&self) -> [u8; 20] {
        let mut bytes = [0; 20];
        bytes[0] = CACHING;
        bytes[1] = 18;
        self.put_into(&mut bytes);
        bytes
    }

    /// Takes the place of what `page` says; nothing is done if it is short.
    pub fn put_into(&self, page: &mut [u8]) {
        if let Some(flags) = page.get_mut(2) {
            *flags = *flags & !Self::WCE | if self.write_cache { Self::WCE } else { 0 };
        }
    }

    /// Reads the page; None if short.
    #[must_use]
    pub fn parse(page: &[u8]) -> Option<Self> {
        Some(Self { write_cache: get_u8(page, 2)? & Self::WCE != 0 })
    }
}

/// QERR: what happens to other commands when one ends with CHECK CONDITION (SPC-4 §7.5.8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // two bits, of which one value is reserved
#[repr(u8)]
pub enum QueueError {
    /// 00b: they go on, after an ACA condition if there is one.
    #[default]
    Continue = 0,
    /// 01b: those of the task set are aborted.
    AbortTaskSet = 1,
    /// 11b: those of the same nexus are aborted.
    AbortNexus = 3,
}

impl QueueError {
    /// From the low two bits of `code`; None for the reserved value.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code & 3 {
            0 => Some(Self::Continue),
            1 => Some(Self::AbortTaskSet),
            3 => Some(Self::AbortNexus),
            _ => None,
        }
    }
}

/// Control mode page (SPC-4 §7.5.8), 12 bytes: unrestricted reordering.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Control {
    /// TST = 001b: each nexus has a task set of its own.
    pub task_set_each_nexus: bool,
    /// D_SENSE: sense data are in descriptor format.
    pub descriptor_sense: bool,
    /// QERR.
    pub queue_error: QueueError,
    /// SWP: writing is refused.
    pub software_write_protect: bool,
    /// TAS: commands that another nexus aborts end with TASK ABORTED.
    pub task_aborted_status: bool,
    /// ATO: application tags of protection information belong to the hosts (SBC-3 §4.22.3).
    pub application_tag_owner: bool,
    /// DPICZ: protection information of a command whose protection field is zero is not checked.
    pub protection_unchecked_if_zero: bool,
}

impl Control {
    /// The page as a mask of the fields that mean something for every unit: TST (its lowest bit),
    /// D_SENSE, QERR, SWP and TAS.
    pub const CHANGEABLE: [u8; 12] = [CONTROL, 10, 0x24, 0x06, 0x08, 0x40, 0, 0, 0, 0, 0, 0];

    /// With those of protection information too: DPICZ and ATO.
    pub const PROTECTED_CHANGEABLE: [u8; 12] =
        [CONTROL, 10, 0x2c, 0x06, 0x08, 0xc0, 0, 0, 0, 0, 0, 0];

    /// Writes the page: QUEUE ALGORITHM MODIFIER is 1, for simple tasks are not ordered among each
    /// other; BUSY TIMEOUT PERIOD is FFFFh, for no limit is promised.
    #[must_use]
    pub fn emit(&self) -> [u8; 12] {
        let bit = |set: bool, bit: u8| if set { 1 << bit } else { 0 };
        let mut bytes = [0; 12];
        bytes[0] = CONTROL;
        bytes[1] = 10;
        bytes[2] = bit(self.task_set_each_nexus, 5) | bit(self.descriptor_sense, 2);
        bytes[2] |= bit(self.protection_unchecked_if_zero, 3);
        bytes[3] = 0x10 | (self.queue_error as u8) << 1;
        bytes[4] = bit(self.software_write_protect, 3);
        bytes[5] = bit(self.task_aborted_status, 6) | bit(self.application_tag_owner, 7);
        put(&mut bytes, 8, [0xff, 0xff]);
        bytes
    }

    /// Reads the page; None if short, or with a task set type or a QERR that is reserved.
    #[must_use]
    pub fn parse(page: &[u8]) -> Option<Self> {
        let [_, _, two, three, four, five] = get(page, 0)?;
        Some(Self {
            task_set_each_nexus: match two >> 5 {
                0 => false,
                1 => true,
                _ => return None,
            },
            descriptor_sense: two & 0x04 != 0,
            queue_error: QueueError::from_code(three >> 1)?,
            software_write_protect: four & 0x08 != 0,
            task_aborted_status: five & 0x40 != 0,
            application_tag_owner: five & 0x80 != 0,
            protection_unchecked_if_zero: two & 0x08 != 0,
        })
    }
}

/// Subpage of the control extension mode page.
pub const CONTROL_EXTENSION: u8 = 0x01;

/// Control extension mode page (SPC-4 §7.5.9), 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlExtension {
    /// SCSIP: a timestamp that an initiator sets wins over any other.
    pub scsi_precedence: bool,
    /// MAXIMUM SENSE DATA LENGTH, bytes.
    pub sense_len_max: u8,
}

impl ControlExtension {
    /// Writes the page; INITIAL COMMAND PRIORITY is none.
    #[must_use]
    pub fn emit(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[0] = 0x40 | CONTROL;
        bytes[1] = CONTROL_EXTENSION;
        bytes[3] = 28;
        bytes[4] = if self.scsi_precedence { 0x02 } else { 0 };
        bytes[6] = self.sense_len_max;
        bytes
    }

    /// Reads the page; None if short.
    #[must_use]
    pub fn parse(page: &[u8]) -> Option<Self> {
        Some(Self {
            scsi_precedence: get_u8(page, 4)? & 0x02 != 0,
            sense_len_max: get_u8(page, 6)?,
        })
    }
}

/// Informational exceptions control mode page (SPC-4 §7.5.14), 12 bytes, with reporting disabled
/// (DEXCPT = 1).
#[must_use]
pub const fn informational_exceptions() -> [u8; 12] {
    [INFORMATIONAL_EXCEPTIONS, 10, 0x08, 0, 0, 0, 0, 0, 0, 0, 0, 0]
}
