// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The connections of a session, and what belongs to one of them: StatSN, pings, a text exchange
//! (RFC 7143 §4.2.5.1).

use super::logged_in::LoggedIn;
use super::names::ConnectionId;
use super::parameters::Parameters;
use super::ping::Liveness;
use super::ping::Patience;
use super::recovery::Retained;
use super::tags::Tags;
use super::termination::Terminations;
use super::text::Part;
use super::text::Texts;
use crate::datamover::Keys;
use crate::datamover::TaskId;
use crate::status::StatusNumbers;
use alloc::vec::Vec;
use clock::Instant;
use wire::iscsi::Cid;
use wire::iscsi::CmdSn;
use wire::iscsi::LunField;
use wire::iscsi::Numbers;
use wire::iscsi::StatSn;
use wire::iscsi::Ttt;

/// One connection in full feature phase.
#[derive(Debug)]
pub(super) struct Connection {
    id: ConnectionId,
    cid: Cid,
    status: StatusNumbers,
    /// The MaxCmdSN that the initiator heard last on this connection.
    told_max_cmd_sn: CmdSn,
    /// What its mover works with.
    keys: Keys,
    text: Texts,
    life: Liveness,
    /// LUN of the last command: goes into pings, which need a valid one (RFC 7143 §11.19.3).
    last_lun: LunField,
    /// Its initiator has logged it out and waits for the answer: nothing is taken any more.
    logged_out: bool,
    /// Above ErrorRecoveryLevel 0: what its initiator has not acknowledged.
    retained: Retained,
    terminations: Terminations,
    tags: Tags,
    /// The last tag that asked for a DataACK of what has been acknowledged by its status since.
    released: Option<Ttt>,
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
            text: Texts::default(),
            life: Liveness::new(now),
            last_lun: LunField::default(),
            logged_out: false,
            retained: Retained::new(login.stat_sn, now),
            terminations: Terminations::default(),
            tags: Tags::default(),
            released: None,
        }
    }

    /// Numbers of a PDU that does not advance StatSN. The initiator will hear of the window as it
    /// is now: `exp` and `max`.
    #[inline]
    pub(super) fn numbers(&mut self, exp_cmd_sn: CmdSn, max_cmd_sn: CmdSn) -> Numbers {
        self.told_max_cmd_sn = max_cmd_sn;
        Numbers { stat_sn: self.status.next(), exp_cmd_sn, max_cmd_sn }
    }

    /// Numbers of a response: takes the next StatSN.
    #[inline]
    pub(super) fn response_numbers(&mut self, exp_cmd_sn: CmdSn, max_cmd_sn: CmdSn) -> Numbers {
        self.told_max_cmd_sn = max_cmd_sn;
        Numbers { stat_sn: self.status.assign(), exp_cmd_sn, max_cmd_sn }
    }

    /// Takes an ExpStatSN.
    #[inline]
    pub(super) fn acknowledge(&mut self, expected: StatSn) {
        self.status.acknowledge(expected);
    }

    /// Forgets the responses that are acknowledged; gives the tasks among them.
    pub(super) fn take_acknowledged(&mut self, now: Instant) -> Vec<TaskId> {
        self.retained.take_acknowledged(&self.status, now)
    }

    /// Everything that is retained, out of a connection whose tasks wait for another one.
    pub(super) fn take_retained(&mut self, now: Instant) -> Retained {
        self.retained.take(now)
    }

    /// Draws the tag of a ping that leaves; gives its LUN, too.
    pub(super) fn ask(&mut self, patience: &Patience, now: Instant) -> (Ttt, LunField) {
        let ttt = self.tags.next();
        self.life.ask(ttt, patience, now);
        (ttt, self.last_lun)
    }

    /// The next part of the answer to a text; None if there is none.
    pub(super) fn next_text(&mut self) -> Option<Part> {
        let limit = self.segment_max();
        self.text.next_part(limit, &mut self.tags)
    }

    /// The initiator's new MaxRecvDataSegmentLength is in force.
    pub(super) fn change_limit(&mut self, limit: u32) -> Keys {
        self.keys.max_send_data_segment_length = limit;
        self.keys
    }

    pub(super) fn note_released(&mut self, tag: Ttt) {
        if !self.has_released(tag) {
            self.released = Some(tag);
        }
    }

    /// True if this tag was given out before one that asked for what has been acknowledged since.
    pub(super) fn has_released(&self, tag: Ttt) -> bool {
        const HALF: u32 = 1 << 31;
        self.released.is_some_and(|last| tag.0 != 0 && last.0.wrapping_sub(tag.0) < HALF)
    }

    #[inline]
    pub(super) fn note_lun(&mut self, lun: LunField) {
        self.last_lun = lun;
    }

    pub(super) fn next_ttt(&mut self) -> Ttt {
        self.tags.next()
    }

    pub(super) fn log_out(&mut self) {
        self.logged_out = true;
    }

    pub(super) fn text_mut(&mut self) -> &mut Texts {
        &mut self.text
    }

    pub(super) fn life_mut(&mut self) -> &mut Liveness {
        &mut self.life
    }

    pub(super) fn retained_mut(&mut self) -> &mut Retained {
        &mut self.retained
    }

    pub(super) fn terminations_mut(&mut self) -> &mut Terminations {
        &mut self.terminations
    }

    pub(super) const fn id(&self) -> ConnectionId {
        self.id
    }

    pub(super) const fn cid(&self) -> Cid {
        self.cid
    }

    pub(super) const fn keys(&self) -> &Keys {
        &self.keys
    }

    pub(super) const fn status(&self) -> &StatusNumbers {
        &self.status
    }

    pub(super) const fn told_max_cmd_sn(&self) -> CmdSn {
        self.told_max_cmd_sn
    }

    pub(super) const fn is_logged_out(&self) -> bool {
        self.logged_out
    }

    pub(super) const fn text(&self) -> &Texts {
        &self.text
    }

    pub(super) const fn life(&self) -> &Liveness {
        &self.life
    }

    pub(super) const fn retained(&self) -> &Retained {
        &self.retained
    }

    /// What of `data` fits into a data segment for its initiator.
    pub(super) fn fitting<'a>(&self, data: &'a [u8]) -> &'a [u8] {
        data.get(..self.segment_max()).unwrap_or(data)
    }

    /// Panics if an invariant does not hold.
    pub(super) fn check(&self, retains: bool) {
        self.status.check();
        self.terminations.check();
        self.text.check();
        self.retained.check(retains, &self.status);
    }

    fn segment_max(&self) -> usize {
        usize::try_from(self.keys.max_send_data_segment_length).unwrap_or(usize::MAX)
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
        solicited_only: session.rdma.is_some_and(|rdma| rdma.solicited_only),
        unexpected_max: session.rdma.map_or(0, |rdma| rdma.unexpected_max),
        own_unexpected_max: session.rdma.map_or(0, |rdma| rdma.own_unexpected_max),
        hello: session.rdma.is_some_and(|rdma| rdma.hello),
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

    /// One of which something is at hand: what waits of a connection leaves with it.
    pub(super) fn present_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        let connection = self.get_mut(id);
        debug_assert!(connection.is_some(), "something is left of a connection that is gone");
        connection
    }

    pub(super) fn find(&self, cid: Cid) -> Option<ConnectionId> {
        self.iter().find(|connection| connection.cid == cid).map(Connection::id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Connection> {
        self.slots.iter().flatten()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Connection> {
        self.slots.iter_mut().flatten()
    }

    /// The first one that takes messages for the whole session.
    pub(super) fn first(&self) -> Option<ConnectionId> {
        self.iter().find(|connection| !connection.logged_out).map(Connection::id)
    }

    pub(super) fn count(&self) -> usize {
        self.iter().count()
    }
}
