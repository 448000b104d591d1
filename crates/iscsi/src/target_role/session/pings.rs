// SPDX-License-Identifier: Apache-2.0 OR MIT
//! NOP-Out and NOP-In (RFC 7143 §11.18-11.19): the initiator's pings, ours, and the news of an open
//! window.

use super::Session;
use crate::target_role::connection::Connection;
use crate::target_role::names::ConnectionId;
use crate::target_role::pdu::Pdu;
use crate::target_role::ping::Traffic;
use crate::violation::Violation;
use alloc::vec::Vec;
use clock::Instant;
use wire::iscsi::Itt;
use wire::iscsi::LunField;
use wire::iscsi::NopIn;
use wire::iscsi::NopOut;
use wire::iscsi::Response;
use wire::iscsi::Ttt;

impl Session {
    /// Tells what a connection has carried. Call it before each [`handle_timeout`]: an initiator on
    /// a slow line finds a ping only behind all that it has asked for before, and answers behind
    /// what it writes. As long as that gets on it is there.
    ///
    /// [`handle_timeout`]: Self::handle_timeout
    pub fn note_traffic(&mut self, id: ConnectionId, traffic: Traffic, now: Instant) {
        if let Some(connection) = self.connections.get_mut(id) {
            connection.life_mut().note(traffic, &self.patience, now);
            self.note_received();
        }
    }

    /// Tells the tasks what has come on all connections.
    pub(super) fn note_received(&mut self) {
        let received = self.connections.iter().map(|at| at.life().received()).sum();
        self.tasks.note_received(received);
    }

    /// Answers a ping with its data, or takes the answer to ours.
    pub(super) fn run_nop(&mut self, pdu: &Pdu<'_>, nop: &NopOut) {
        let Some(connection) = self.connections.present_mut(pdu.connection) else { return };
        match (nop.itt, nop.ttt) {
            (Itt::NONE, Ttt::NONE) => {
                let stopped = connection.terminations_mut().confirm(nop);
                self.forget_bursts(pdu.connection, stopped);
            }
            (Itt::NONE, _) => connection.life_mut().answered(),
            (itt, _) => {
                let data = connection.fitting(pdu.data).to_vec();
                let numbers = self.response_numbers(pdu.connection);
                let answer = NopIn { lun: LunField::default(), itt, ttt: Ttt::NONE, numbers };
                self.send(pdu.connection, Response::NopIn(answer), data);
            }
        }
    }

    /// Asks whether the initiator is there, and for its ExpStatSN, unless it was asked already.
    pub(super) fn send_ping(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.present_mut(id) else { return };
        if connection.life().is_asked() {
            return;
        }
        let (ttt, lun) = connection.ask(&self.patience, self.now);
        let numbers = self.numbers(id);
        let nop = NopIn { lun, itt: Itt::NONE, ttt, numbers };
        self.send(id, Response::NopIn(nop), Vec::new());
    }

    /// Tells of a window that was closed when the initiator heard of it last (RFC 7143 §11.4.11).
    pub(super) fn tell_open_window(&mut self) {
        if self.is_discovery() || !self.numbering.is_news() {
            return;
        }
        let Some(id) = self.connections.first() else { return };
        let numbers = self.numbers(id);
        let nop = NopIn { lun: LunField::default(), itt: Itt::NONE, ttt: Ttt::NONE, numbers };
        self.send(id, Response::NopIn(nop), Vec::new());
    }

    /// Pings that are due, and pings that stayed unanswered, on each connection.
    pub(super) fn handle_ping_timeout(&mut self) {
        while let Some((id, violation)) = self.due_ping() {
            match violation {
                Some(violation) => self.react(id, violation, &[]),
                None => self.send_ping(id),
            }
            if self.is_closed() {
                return;
            }
        }
    }

    /// A connection on which something is due: a ping, or its end.
    fn due_ping(&self) -> Option<(ConnectionId, Option<Violation>)> {
        let is_due = |at: &&Connection| {
            at.life().deadline(&self.patience).is_some_and(|deadline| deadline <= self.now)
        };
        let connection = self.connections.iter().find(is_due)?;
        let violation = match (connection.life().is_asked(), self.is_discovery()) {
            (true, _) => Some(Violation::PingTimeout),
            (false, true) => Some(Violation::DiscoveryIdle),
            (false, false) => None,
        };
        Some((connection.id(), violation))
    }

    /// When `handle_ping_timeout` has something to do.
    pub(super) fn ping_deadline(&self) -> Option<Instant> {
        self.connections.iter().filter_map(|at| at.life().deadline(&self.patience)).min()
    }
}
