// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The connections of a session, and what belongs to one of them: StatSN, pings, a text exchange
//! (RFC 7143 §4.2.5.1).

use super::logged_in::LoggedIn;
use super::names::ConnectionId;
use super::parameters::Parameters;
use super::ping::{Ping, Traffic};
use super::recovery::Retained;
use super::termination::Termination;
use super::text::Exchange;
use crate::datamover::Keys;
use crate::status::StatusNumbers;
use alloc::vec::Vec;
use clock::Instant;
use wire::iscsi::{Cid, CmdSn, LunField, Ttt};

/// One connection in full feature phase.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) id: ConnectionId,
    pub(super) cid: Cid,
    pub(super) status: StatusNumbers,
    /// The MaxCmdSN that the initiator heard last on this connection.
    pub(super) told_max_cmd_sn: CmdSn,
    /// What its mover works with.
    pub(super) keys: Keys,
    pub(super) text: Option<Exchange>,
    /// When the last PDU came.
    pub(super) heard: Instant,
    pub(super) ping: Option<Ping>,
    /// What it had carried when that was noted last.
    pub(super) traffic: Traffic,
    /// LUN of the last command: goes into pings, which need a valid one (RFC 7143 §11.19.3).
    pub(super) last_lun: LunField,
    /// Its initiator has logged it out and waits for the answer: nothing is taken any more.
    pub(super) logged_out: bool,
    /// Above ErrorRecoveryLevel 0: what its initiator has not acknowledged.
    pub(super) retained: Retained,
    /// Ends of tasks that the initiator was told and has not confirmed.
    pub(super) terminations: Vec<Termination>,
    last_ttt: u32,
}

impl Connection {
    /// `session`: the values that its leading login negotiated; `max`: MaxCmdSN as the login told
    /// it.
    fn new(
        id: ConnectionId,
        login: &LoggedIn,
        session: &Parameters,
        max: CmdSn,
        now: Instant,
    ) -> Self {
        Self {
            id,
            cid: login.cid,
            status: StatusNumbers::new(login.stat_sn),
            told_max_cmd_sn: max,
            keys: keys(&login.parameters, session, login.discovery),
            text: None,
            heard: now,
            ping: None,
            traffic: Traffic::default(),
            last_lun: LunField::default(),
            logged_out: false,
            retained: Retained::new(login.stat_sn, now),
            terminations: Vec::new(),
            last_ttt: 0,
        }
    }

    /// A tag for a ping or a text exchange: unlike the one before, never the reserved one.
    pub(super) fn next_ttt(&mut self) -> Ttt {
        self.last_ttt = self.last_ttt.wrapping_add(1);
        if Ttt(self.last_ttt) == Ttt::NONE {
            self.last_ttt = 1;
        }
        Ttt(self.last_ttt)
    }
}

/// What holds for a connection: digests and segments are its own, the rest is the session's (RFC
/// 7143 §6.3, §13).
fn keys(own: &Parameters, session: &Parameters, discovery: bool) -> Keys {
    let immediate = session.immediate_data && !discovery;
    Keys {
        header_digest: own.header_digest,
        data_digest: own.data_digest,
        max_send_data_segment_length: own.max_send_data_segment_length,
        max_recv_data_segment_length: own.max_recv_data_segment_length,
        first_burst_length: if immediate { session.first_burst_length } else { 0 },
        data_pdu_in_order: session.data_pdu_in_order,
        markers: own.markers,
    }
}

/// The connections of a session by their ids. The id of a closed one is given again.
#[derive(Debug, Default)]
pub(super) struct Connections {
    slots: Vec<Option<Connection>>,
}

impl Connections {
    /// Takes a connection in; gives its id.
    pub(super) fn insert(
        &mut self,
        login: &LoggedIn,
        session: &Parameters,
        max: CmdSn,
        now: Instant,
    ) -> ConnectionId {
        let free = self.slots.iter().position(Option::is_none);
        let index = free.unwrap_or(self.slots.len());
        if free.is_none() {
            self.slots.push(None);
        }
        let id = ConnectionId(u16::try_from(index).expect("fewer connections than CIDs"));
        if let Some(slot) = self.slots.get_mut(index) {
            *slot = Some(Connection::new(id, login, session, max, now));
        }
        id
    }

    pub(super) fn remove(&mut self, id: ConnectionId) -> Option<Connection> {
        self.slots.get_mut(usize::from(id.0))?.take()
    }

    pub(super) fn get(&self, id: ConnectionId) -> Option<&Connection> {
        self.slots.get(usize::from(id.0))?.as_ref()
    }

    pub(super) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.slots.get_mut(usize::from(id.0))?.as_mut()
    }

    pub(super) fn find(&self, cid: Cid) -> Option<ConnectionId> {
        self.iter().find(|connection| connection.cid == cid).map(|connection| connection.id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Connection> {
        self.slots.iter().flatten()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Connection> {
        self.slots.iter_mut().flatten()
    }

    /// The first one that takes messages for the whole session.
    pub(super) fn first(&self) -> Option<ConnectionId> {
        self.iter().find(|connection| !connection.logged_out).map(|connection| connection.id)
    }

    pub(super) fn count(&self) -> usize {
        self.iter().count()
    }
}
