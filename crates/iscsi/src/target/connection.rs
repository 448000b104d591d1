// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What belongs to one connection of a session: StatSN, pings, a text exchange (RFC 7143 §4.2.5.1).

use super::ping::Ping;
use super::text::Exchange;
use super::{ConnectionId, LoggedIn};
use crate::status::StatusNumbers;
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
    /// Longest data segment that the initiator takes, bytes.
    pub(super) max_send_data_segment_length: u32,
    pub(super) text: Option<Exchange>,
    /// When the last PDU came.
    pub(super) heard: Instant,
    pub(super) ping: Option<Ping>,
    /// LUN of the last command: goes into pings, which need a valid one (RFC 7143 §11.19.3).
    pub(super) last_lun: LunField,
    last_ttt: u32,
}

impl Connection {
    pub(super) fn new(id: ConnectionId, login: &LoggedIn, max: CmdSn, now: Instant) -> Self {
        Self {
            id,
            cid: login.cid,
            status: StatusNumbers::new(login.stat_sn),
            told_max_cmd_sn: max,
            max_send_data_segment_length: login.parameters.max_send_data_segment_length,
            text: None,
            heard: now,
            ping: None,
            last_lun: LunField::default(),
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
