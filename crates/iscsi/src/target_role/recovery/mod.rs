// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Error recovery above level 0 (RFC 7143 §7). Read first: §7.1.5 (the levels), §7.2.2 (allegiance
//! reassignment), §7.8, §7.9, §11.16 (SNACK).
//!
//! At level 0 nothing of this runs: the session looks at [`Recovery::is_on`] where a command ends
//! and where a response leaves, and nowhere else.
//!
//! - `retained`: responses stay with their connection until ExpStatSN acknowledges them; Status
//!   SNACK sends them again.
//! - `answer`: a command that was answered stays a task, with its data, until its status is
//!   acknowledged; Data SNACK, R-Data SNACK and DataACK. `runs`: which DataSN its bytes had.
//! - `transfer`: which write data was asked for and has not come: recovery R2T, R2T SNACK.
//! - `allegiance`: at level 2, tasks whose connection is gone, and TASK REASSIGN.

mod allegiance;
mod answer;
mod retained;
mod runs;
mod transfer;

pub(super) use allegiance::Reassignment;
pub(super) use answer::{Answer, keeps_data};
pub(super) use retained::Entry;
pub(super) use retained::Retained;
pub(super) use retained::with_window;
pub(super) use transfer::Books;

use allegiance::Lost;

use super::Parameters;
use super::pdu::Pdu;
use super::session::Session;
use crate::violation::Violation;
use alloc::vec::Vec;
use clock::Instant;
use wire::iscsi::{Itt, Snack, Ttt};

/// SNACK types (RFC 7143 §11.16.1).
const DATA_OR_R2T: u8 = 0;
const STATUS: u8 = 1;
const DATA_ACK: u8 = 2;
const R_DATA: u8 = 3;

/// What a session keeps for recovery.
#[derive(Debug)]
pub(super) struct Recovery {
    /// ErrorRecoveryLevel.
    level: u8,
    /// Bytes of answered reads that may be kept for sending again.
    kept_bytes_max: usize,
    kept_bytes: usize,
    /// Connections that are gone and whose tasks are not.
    lost: Vec<Lost>,
    next_lost: u32,
}

impl Recovery {
    pub(super) const fn new(parameters: &Parameters, kept_bytes_max: usize) -> Self {
        let level = parameters.error_recovery_level;
        Self { level, kept_bytes_max, kept_bytes: 0, lost: Vec::new(), next_lost: 0 }
    }

    /// Whether tasks may be reassigned: ErrorRecoveryLevel is 2.
    pub(super) const fn reassigns(&self) -> bool {
        self.level >= 2
    }

    /// Whether anything is kept and sent again: ErrorRecoveryLevel is above 0.
    pub(super) const fn is_on(&self) -> bool {
        self.level > 0
    }
}

impl Session {
    /// Carries out a SNACK Request (RFC 7143 §11.16).
    pub(super) fn run_snack(&mut self, pdu: &Pdu<'_>, snack: &Snack) -> Result<(), Violation> {
        if !self.recovery.is_on() {
            return Err(Violation::Snack);
        }
        let tagged = snack.tag != Ttt::NONE.0;
        match snack.kind {
            DATA_OR_R2T if snack.itt != Itt::NONE && !tagged => self.resend_data(pdu, snack),
            STATUS if snack.itt == Itt::NONE && !tagged => {
                self.resend_status(pdu.connection, snack)
            }
            DATA_ACK => self.acknowledge_data(pdu.connection, snack),
            R_DATA => self.resend_resegmented(pdu, snack),
            _ => Err(Violation::SnackField),
        }
    }

    /// When recovery has something to do by itself.
    pub(super) fn recovery_deadline(&self) -> Option<Instant> {
        if !self.recovery.is_on() {
            return None;
        }
        let deadlines = [self.status_deadline(), self.lost_deadline()];
        deadlines.into_iter().flatten().min()
    }

    /// Does what is due.
    pub(super) fn handle_recovery_timeout(&mut self) {
        if self.recovery.is_on() {
            self.ask_for_acknowledgements();
            self.expire_lost();
        }
    }

    /// Panics if an invariant does not hold.
    pub(super) fn check_recovery(&self) {
        let kept: usize = self.tasks.answers().map(Answer::kept_bytes).sum();
        assert_eq!(kept, self.recovery.kept_bytes, "bytes kept for sending again");
        assert!(kept <= self.recovery.kept_bytes_max, "more bytes kept than allowed");
        if !self.recovery.is_on() {
            assert!(self.tasks.answers().next().is_none(), "nothing is kept at level 0");
        }
        self.check_lost();
    }
}
