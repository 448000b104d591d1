// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Text Requests: the connection has the exchange, the node knows the targets.

use super::Session;
use crate::datamover::Op;
use crate::target_role::connection::Connection;
use crate::target_role::names::ConnectionId;
use crate::target_role::names::TargetRecord;
use crate::target_role::output::Output;
use crate::target_role::pdu::Pdu;
use crate::target_role::text::Next;
use crate::target_role::text::Scope;
use crate::violation::Violation;
use alloc::vec::Vec;
use wire::iscsi::LunField;
use wire::iscsi::Response;
use wire::iscsi::TextRequest;
use wire::iscsi::TextResponse;

impl Session {
    /// Node side: what SendTargets may show this initiator; the answer to `Output::Targets`.
    /// Records of targets that were not asked for are left out.
    pub fn targets(&mut self, records: Vec<TargetRecord>) {
        let asking = |at: &&mut Connection| at.text().is_asking();
        // The connection may have gone meanwhile.
        let Some(connection) = self.connections.iter_mut().find(asking) else { return };
        let id = connection.id();
        if let Err(header) = connection.text_mut().found(&records) {
            return self.react(id, Violation::TextTooLong, &header);
        }
        self.send_text(id);
        self.settle();
    }

    /// A Text Request whose turn it is, or an immediate one.
    pub(super) fn run_text(
        &mut self,
        pdu: &Pdu<'_>,
        request: &TextRequest,
    ) -> Result<(), Violation> {
        let id = pdu.connection;
        let Some(connection) = self.connections.present_mut(id) else { return Ok(()) };
        let discovery = self.login.discovery;
        let scope = Scope { discovery, target: self.login.target.as_deref() };
        let next = connection.text_mut().take(pdu, request, scope)?;
        self.open_window();
        match next {
            Next::Say => self.send_text(id),
            Next::Ask(only) => self.outputs.push(Output::Targets(only)),
        }
        Ok(())
    }

    fn send_text(&mut self, id: ConnectionId) {
        let connection = self.connections.present_mut(id);
        let Some(part) = connection.and_then(Connection::next_text) else { return };
        let numbers = self.response_numbers(id);
        let answer = TextResponse {
            final_: part.over,
            continue_: part.more,
            lun: LunField::default(),
            itt: part.itt,
            ttt: part.ttt,
            numbers,
        };
        self.send(id, Response::Text(answer), part.data);
        if let Some(limit) = part.new_limit
            && let Some(connection) = self.connections.present_mut(id)
        {
            let keys = connection.change_limit(limit);
            self.outputs.op(id, Op::NoticeKeys(keys));
        }
    }
}
