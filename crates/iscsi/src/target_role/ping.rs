// SPDX-License-Identifier: Apache-2.0 OR MIT
//! NOP-Out and NOP-In (RFC 7143 §11.18-11.19): the initiator's pings, ours, and the news of an open
//! window.

use super::connection::Connection;
use super::limits;
use super::names::ConnectionId;
use super::pdu::Pdu;
use super::session::Session;
use crate::serial::Serial;
use crate::violation::Violation;
use alloc::vec::Vec;
use clock::Instant;
use wire::iscsi::{Itt, NopIn, NopOut, Response, Ttt};

/// A NOP-In of ours that waits for its NOP-Out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ping {
    pub(super) ttt: Ttt,
    pub(super) deadline: Instant,
    /// What it stands behind: known from the first note of traffic after it.
    behind: Option<Behind>,
}

/// Up to where a connection may be while it still carries what is in front of a ping, or of its
/// answer.
#[derive(Clone, Copy, Debug)]
struct Behind {
    taken: u64,
    received: u64,
}

/// What a connection has carried since it began, in bytes, as far as its target can know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs)] // the pump makes it
pub struct Traffic {
    /// The initiator's side has taken so much.
    pub taken: u64,
    /// What it would have taken if all that waits to leave had come to it.
    pub asked: u64,
    /// So much has come from it.
    pub received: u64,
    /// Data-Out PDUs among that.
    pub data_outs: u64,
}

impl Ping {
    /// True if what stands in front of it, or of its answer, gets on.
    fn gets_on(&mut self, before: Traffic, now: Traffic) -> bool {
        let behind = *self.behind.get_or_insert_with(|| Behind {
            taken: now.asked.saturating_add(limits::BEHIND_PING_MAX),
            received: now.received.saturating_add(limits::BEHIND_PING_MAX),
        });
        let takes = now.taken.saturating_sub(before.taken) >= limits::PROGRESS_MIN;
        let gives = now.data_outs != before.data_outs;
        takes && now.taken < behind.taken || gives && now.received < behind.received
    }
}

impl Session {
    /// Tells what a connection has carried. Call it before each [`handle_timeout`]: an initiator on
    /// a slow line finds a ping only behind all that it has asked for before, and answers behind
    /// what it writes. As long as that gets on it is there.
    ///
    /// [`handle_timeout`]: Self::handle_timeout
    pub fn note_traffic(&mut self, id: ConnectionId, traffic: Traffic, now: Instant) {
        let timeout = self.ping_timeout;
        let Some(connection) = self.connection_mut(id) else { return };
        let before = core::mem::replace(&mut connection.traffic, traffic);
        if let Some(ping) = &mut connection.ping
            && ping.gets_on(before, traffic)
        {
            ping.deadline = now + timeout;
        }
    }

    /// What can be wrong with a NOP-Out by itself (RFC 7143 §11.18.1-2).
    pub(super) fn check_nop(&self, pdu: &Pdu<'_>, nop: &NopOut) -> Result<(), Violation> {
        match (nop.itt == Itt::NONE, nop.ttt == Ttt::NONE) {
            (true, _) if !nop.immediate => Err(Violation::NopNotImmediate),
            (false, false) => Err(Violation::NopBothTags),
            (true, false) => {
                let awaited = self.connection(pdu.connection).and_then(|c| c.ping);
                match awaited {
                    Some(ping) if ping.ttt == nop.ttt => Ok(()),
                    _ => Err(Violation::UnknownPing),
                }
            }
            _ => Ok(()),
        }
    }

    /// Answers a ping with its data, or takes the answer to ours.
    pub(super) fn run_nop(&mut self, pdu: &Pdu<'_>, nop: &NopOut) {
        if nop.itt == Itt::NONE {
            if nop.ttt == Ttt::NONE {
                self.confirm_termination(pdu, nop);
            } else if let Some(connection) = self.connection_mut(pdu.connection) {
                connection.ping = None;
            }
            return;
        }
        let Some(connection) = self.connection(pdu.connection) else { return };
        let limit =
            usize::try_from(connection.keys.max_send_data_segment_length).unwrap_or(usize::MAX);
        let data = pdu.data.get(..limit).unwrap_or(pdu.data).to_vec();
        let numbers = self.response_numbers(pdu.connection);
        let lun = Default::default();
        let answer = NopIn { lun, itt: nop.itt, ttt: Ttt::NONE, numbers };
        self.send(pdu.connection, Response::NopIn(answer), data);
    }

    /// Asks whether the initiator is there, and for its ExpStatSN, unless it was asked already.
    pub(super) fn send_ping(&mut self, id: ConnectionId) {
        let deadline = self.now + self.ping_timeout;
        let Some(connection) = self.connection_mut(id) else { return };
        if connection.ping.is_some() {
            return;
        }
        let ttt = connection.next_ttt();
        connection.ping = Some(Ping { ttt, deadline, behind: None });
        let lun = connection.last_lun;
        let numbers = self.numbers(id);
        let nop = NopIn { lun, itt: Itt::NONE, ttt, numbers };
        self.send(id, Response::NopIn(nop), Vec::new());
    }

    /// Tells of a window that was closed when the initiator heard of it last (RFC 7143 §11.4.11).
    pub(super) fn tell_open_window(&mut self) {
        let (exp, max) = (self.window.exp(), self.window.max());
        let unaware = |told| exp.is_after(told) && max.is_after(told);
        if self.is_discovery() || !unaware(self.told_max_cmd_sn) {
            return;
        }
        let Some(id) = self.connections.first() else { return };
        let numbers = self.numbers(id);
        let lun = Default::default();
        let nop = NopIn { lun, itt: Itt::NONE, ttt: Ttt::NONE, numbers };
        self.send(id, Response::NopIn(nop), Vec::new());
    }

    /// Pings that are due, and pings that stayed unanswered, on each connection.
    pub(super) fn handle_ping_timeout(&mut self) {
        while let Some((id, pinged)) = self.due_ping() {
            if pinged {
                self.react(id, Violation::PingTimeout, &[]);
            } else if self.is_discovery() {
                self.react(id, Violation::DiscoveryIdle, &[]);
            } else {
                self.send_ping(id);
            }
            if self.is_closed() {
                return;
            }
        }
    }

    /// A connection on which something is due, and whether a ping is open there.
    fn due_ping(&self) -> Option<(ConnectionId, bool)> {
        let is_due = |connection: &&Connection| {
            self.ping_deadline_of(connection).is_some_and(|deadline| deadline <= self.now)
        };
        let connection = self.connections.iter().find(is_due)?;
        Some((connection.id, connection.ping.is_some()))
    }

    /// When `handle_ping_timeout` has something to do.
    pub(super) fn ping_deadline(&self) -> Option<Instant> {
        self.connections.iter().filter_map(|connection| self.ping_deadline_of(connection)).min()
    }

    /// When a discovery session ends that was heard of last at `heard`.
    fn discovery_deadline(&self, heard: Instant) -> Instant {
        match self.login.proved {
            true => heard + limits::DISCOVERY_IDLE,
            false => {
                (heard + limits::OPEN_DISCOVERY_IDLE).min(self.begun + limits::OPEN_DISCOVERY_LIFE)
            }
        }
    }

    fn ping_deadline_of(&self, connection: &Connection) -> Option<Instant> {
        if let Some(ping) = connection.ping {
            return Some(ping.deadline);
        }
        if self.is_discovery() {
            return Some(self.discovery_deadline(connection.heard));
        }
        (!self.ping_interval.is_zero()).then(|| connection.heard + self.ping_interval)
    }
}
