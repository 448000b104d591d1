// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Command numbering (RFC 7143 §4.2.2.1): requests are carried out in the order of their CmdSN, and
//! the window says how many may come.
//!
//! What comes before its turn waits in the window. SCSI commands wait as tasks, which own their
//! immediate data; other PDUs as they came, within a bound on their bytes.

use super::limits;
use super::names::ConnectionId;
use super::pdu::Pdu;
use super::session::Session;
use crate::datamover::TaskId;
use crate::violation::Violation;
use crate::window::Position;
use alloc::boxed::Box;
use alloc::vec::Vec;
use wire::iscsi::{CmdSn, Request};

/// What waits in the window for the commands before it.
#[derive(Debug)]
pub(super) enum Held {
    Command(TaskId),
    Other(Box<HeldPdu>),
}

#[derive(Debug)]
pub(super) struct HeldPdu {
    connection: ConnectionId,
    request: Request,
    header: Vec<u8>,
    data: Vec<u8>,
}

impl Session {
    /// Lets the initiator send as many commands as there is room for.
    pub(super) fn open_window(&mut self) {
        let depth = u32::from(self.window.depth());
        let running = u32::from(self.tasks.running() + self.managements.numbered());
        let used = running + u32::from(self.tasks.draining());
        let allowed = depth.saturating_sub(running).min((2 * depth).saturating_sub(used));
        self.window.open(u16::try_from(allowed).unwrap_or(u16::MAX));
    }

    /// Carries a numbered PDU out if it is its turn, or keeps it until then.
    pub(super) fn order(
        &mut self,
        pdu: &Pdu<'_>,
        request: Request,
        cmd_sn: CmdSn,
    ) -> Result<(), Violation> {
        match self.window.position(cmd_sn) {
            Position::Outside => Err(Violation::OutsideWindow(cmd_sn)),
            Position::Duplicate => Err(Violation::DuplicateCommand(cmd_sn)),
            Position::Next => self.run_numbered(pdu, &request),
            Position::Ahead => self.hold(pdu, request, cmd_sn),
        }
    }

    /// Runs what stands at ExpCmdSN. A rejected PDU counts as not received (RFC 7143 §7.3).
    fn run_numbered(&mut self, pdu: &Pdu<'_>, request: &Request) -> Result<(), Violation> {
        self.window.advance();
        let result = self.run(pdu, request);
        if result.is_err() {
            self.window.retreat();
        }
        result
    }

    /// Keeps a PDU until the hole before it is filled.
    fn hold(&mut self, pdu: &Pdu<'_>, request: Request, cmd_sn: CmdSn) -> Result<(), Violation> {
        let bytes = pdu.header.len() + pdu.data.len();
        if self.held_bytes + bytes > limits::HELD_BYTES_MAX {
            return Err(Violation::TextTooLong);
        }
        let held = HeldPdu {
            connection: pdu.connection,
            request,
            header: pdu.header.to_vec(),
            data: pdu.data.to_vec(),
        };
        if self.window.hold(cmd_sn, Held::Other(Box::new(held))) {
            self.held_bytes += bytes;
        }
        Ok(())
    }

    /// Delivers what no hole holds back any more.
    pub(super) fn deliver_held(&mut self) {
        while !self.is_closed() {
            let task = match self.window.peek() {
                None => return,
                Some(Held::Command(task)) => Some(*task),
                Some(Held::Other(_)) => None,
            };
            if task.is_some_and(|task| self.is_task_barred(task)) {
                return;
            }
            match self.window.pop() {
                Some(Held::Command(task)) => self.deliver(task),
                Some(Held::Other(held)) => self.run_held(&held),
                None => return,
            }
        }
    }

    /// What waits of a connection that is gone counts as not received (RFC 7143 §11.14).
    pub(super) fn forget_held(&mut self, id: ConnectionId) {
        let Self { window, tasks, held_bytes, .. } = self;
        let forgotten = window.forget(|held| match held {
            Held::Command(task) => tasks.live_ref(*task).is_some_and(|task| task.connection == id),
            Held::Other(held) => held.connection == id,
        });
        for held in forgotten {
            if let Held::Other(held) = held {
                *held_bytes -= held.header.len() + held.data.len();
            }
        }
    }

    fn run_held(&mut self, held: &HeldPdu) {
        self.held_bytes -= held.header.len() + held.data.len();
        let HeldPdu { connection, request, header, data } = held;
        let pdu = Pdu { connection: *connection, header, data };
        if let Err(violation) = self.run(&pdu, request) {
            self.window.retreat();
            self.react(*connection, violation, header);
        }
    }
}
