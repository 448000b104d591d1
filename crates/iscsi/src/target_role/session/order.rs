// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests in the order of their CmdSN (RFC 7143 §4.2.2.1).

use super::Session;
use crate::target_role::names::ConnectionId;
use crate::target_role::numbering::Held;
use crate::target_role::numbering::HeldPdu;
use crate::target_role::numbering::Turn;
use crate::target_role::pdu::Pdu;
use crate::violation::Violation;
use wire::iscsi::CmdSn;
use wire::iscsi::Request;

impl Session {
    /// Lets the initiator send as many commands as there is room for.
    pub(super) fn open_window(&mut self) {
        let running = self.tasks.running() + self.managements.numbered();
        self.numbering.open(running, self.tasks.draining());
    }

    /// Carries a numbered PDU out if it is its turn, or keeps it until then.
    pub(super) fn order(
        &mut self,
        pdu: &Pdu<'_>,
        request: Request,
        cmd_sn: CmdSn,
    ) -> Result<(), Violation> {
        match self.numbering.turn(cmd_sn)? {
            Turn::Now => self.run_numbered(pdu, &request),
            Turn::Later => self.numbering.hold_pdu(pdu, request, cmd_sn),
        }
    }

    /// Runs what stands at ExpCmdSN. A rejected PDU counts as not received (RFC 7143 §7.3).
    fn run_numbered(&mut self, pdu: &Pdu<'_>, request: &Request) -> Result<(), Violation> {
        self.numbering.advance();
        let result = self.run(pdu, request);
        if result.is_err() {
            self.numbering.retreat();
        }
        result
    }

    /// Delivers what no hole holds back any more.
    pub(super) fn deliver_held(&mut self) {
        while !self.is_closed() {
            let task = match self.numbering.next() {
                None => return,
                Some(Held::Command(task)) => Some(*task),
                Some(Held::Other(_)) => None,
            };
            if task.is_some_and(|task| self.is_task_barred(task)) {
                return;
            }
            match self.numbering.take_next() {
                Some(Held::Command(task)) => self.deliver(task),
                Some(Held::Other(held)) => self.run_held(&held),
                None => return debug_assert!(false, "what is next can be taken"),
            }
        }
    }

    /// What waits of a connection that is gone counts as not received.
    pub(super) fn forget_held(&mut self, id: ConnectionId) {
        let tasks = &self.tasks;
        let owns = |task| tasks.live(task).is_some_and(|task| task.connection() == id);
        self.numbering.forget_connection(id, owns);
    }

    fn run_held(&mut self, held: &HeldPdu) {
        let pdu = held.pdu();
        if let Err(violation) = self.run(&pdu, held.request()) {
            self.numbering.retreat();
            self.react(pdu.connection, violation, pdu.header);
        }
    }
}
