// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Traces: what connections say, for whoever asks for it while they are there.
//!
//! Over a byte stream of iSCSI the bytes are told, from one PDU to the next. What goes over RDMA,
//! or stays in this process, has no PDUs of data: each burst is told as the one PDU that would have
//! carried it, without the bytes that nobody here has seen. Nobody takes markers of RFC 3720 apart:
//! what a session says is told until they begin.

use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::net::SocketAddr;
use std::time::Duration;

use buf::SgList;
use capture::Follower;
use capture::Framing;
use capture::Side;
use capture::Trace;
use capture::Who;
use engine::Port;
use iscsi::datamover::Event;
use iscsi::datamover::Op;
use mover::Mover;
use mover::tcp::Tcp;
use wire::iscsi::BHS_LEN;
use wire::iscsi::CollapsedStatus;
use wire::iscsi::DataIn;
use wire::iscsi::DataSn;
use wire::iscsi::Itt;
use wire::iscsi::LunField;
use wire::iscsi::Numbers;
use wire::iscsi::R2t;
use wire::iscsi::R2tSn;
use wire::iscsi::StatSn;
use wire::iscsi::Ttt;

use super::Connection;
use super::Phase;
use super::Pump;
use super::Session;
use super::context::Context;
use crate::ends::Ends;
use crate::table::Key;
use crate::table::Table;

/// Longest data segment that a header can tell of (RFC 7143 §11.2.1.6).
const SEGMENT_LEN_MAX: u32 = (1 << 24) - 1;

/// Those at one connection.
#[derive(Debug)]
pub(crate) struct Followers(Vec<Follower>);

impl Followers {
    /// These bytes have come, which the mover has not seen yet.
    #[cold]
    pub(super) fn received(&mut self, now: Duration, bytes: &[u8], mover: &Mover) {
        let Mover::Tcp(mover) = mover else { return };
        if mover.has_markers() {
            return self.0.clear();
        }
        let framing = received_framing(mover);
        self.0.iter_mut().for_each(|one| one.received(now, bytes, framing));
    }

    /// So many bytes have come where they belong.
    #[cold]
    pub(super) fn landed(&mut self, now: Duration, bytes: usize, mover: &Mover) {
        let Mover::Tcp(mover) = mover else { return };
        if mover.has_markers() {
            return self.0.clear();
        }
        let framing = received_framing(mover);
        self.0.iter_mut().for_each(|one| one.landed(now, bytes, framing));
    }

    /// This is what the mover sends.
    #[cold]
    pub(super) fn sent(&mut self, now: Duration, list: &SgList, mover: &Mover) {
        let Mover::Tcp(mover) = mover else { return };
        if mover.is_marked() {
            return self.0.clear();
        }
        let framing = sent_framing(mover);
        self.0.iter_mut().for_each(|one| one.sent(now, list, framing));
    }

    /// The last words before RDMA.
    #[cold]
    pub(super) fn sent_bytes(&mut self, now: Duration, bytes: &[u8]) {
        self.0.iter_mut().for_each(|one| one.sent_bytes(now, bytes, Framing::default()));
    }

    /// A mover without PDUs in its stream has heard this.
    #[cold]
    pub(super) fn heard(&mut self, now: Duration, event: &Event, mover: &Mover) {
        if let (Event::Control { .. } | Event::Rejected { .. }, Mover::Iser(_) | Mover::Local(_)) =
            (event, mover)
        {
            let (header, data) = (mover.header(), mover.control_data());
            self.0.iter_mut().for_each(|one| one.message(now, Side::Initiator, header, data));
        }
    }

    /// It is to say this.
    #[cold]
    pub(super) fn said(&mut self, now: Duration, op: &Op, mover: &Mover) {
        if matches!(mover, Mover::Tcp(_)) {
            return;
        }
        if let Some((header, data)) = message_of(op) {
            self.0.iter_mut().for_each(|one| one.message(now, Side::Target, &header, data));
        }
    }

    /// The login is over.
    #[cold]
    pub(super) fn know(&mut self, now: Duration, who: &Who) {
        self.0.iter_mut().for_each(|one| one.know(now, who.clone()));
    }

    pub(super) fn closed(self, now: Duration) {
        self.0.into_iter().for_each(|one| one.closed(now));
    }
}

impl<P: Port> Context<P> {
    /// Those that a connection has from its beginning.
    pub(super) fn follow_new(&self, key: Key, ends: Ends) -> Option<Box<Followers>> {
        let now = self.port.wall_clock();
        let ends = shown(key, ends);
        let followers: Vec<_> =
            self.traces.iter().map(|trace| Follower::of_new(trace, ends, now)).collect();
        (!followers.is_empty()).then(|| Box::new(Followers(followers)))
    }

    /// Somebody is to be told what connections carry.
    pub(super) fn look_who_observes(&mut self) {
        self.is_observed = self.shared.capture.is_some() || !self.traces.is_empty();
    }
}

impl<P: Port> Pump<P> {
    /// Tells a trace what goes on from now on.
    pub(super) fn begin_trace(&mut self, trace: Trace) {
        let Self { connections, sessions, context, .. } = self;
        let now = context.port.wall_clock();
        for (key, connection) in connections.iter_mut() {
            connection.follow(&trace, key, sessions, now);
        }
        context.traces.push(trace);
        context.look_who_observes();
    }

    pub(super) fn end_trace(&mut self, trace: &Trace) {
        for connection in self.connections.values_mut() {
            if let Some(followers) = &mut connection.followers {
                followers.0.retain(|one| !one.is_of(trace));
            }
            connection.followers.take_if(|followers| followers.0.is_empty());
        }
        self.context.traces.retain(|one| !one.is(trace));
        self.context.look_who_observes();
    }

    /// Goes on with those that have come from another reactor.
    pub(super) fn follow_on(&mut self, key: Key, followers: Option<Box<Followers>>) {
        let Self { connections, sessions, context, .. } = self;
        let Some(connection) = connections.get_mut(key) else { return };
        connection.followers = followers.filter(|_| !context.traces.is_empty());
        if let Some(followers) = &mut connection.followers {
            followers.0.retain(|one| context.traces.iter().any(|trace| one.is_of(trace)));
        }
        let now = context.port.wall_clock();
        for trace in &context.traces {
            let has = |followers: &Followers| followers.0.iter().any(|one| one.is_of(trace));
            if !connection.followers.as_deref().is_some_and(has) {
                connection.follow(trace, key, sessions, now);
            }
        }
    }
}

impl Connection {
    /// Has a trace follow it, if that is about it.
    fn follow(&mut self, trace: &Trace, key: Key, sessions: &Table<Session>, now: Duration) {
        let ends = shown(key, Ends { peer: self.peer, local: self.local });
        let who = match self.phase {
            Phase::Session { session, .. } => sessions.get(session).map(Session::who),
            Phase::Login(_) => None,
            Phase::Moving(_) | Phase::Closing => return,
        };
        let (left, begun) = match &self.mover {
            // Nobody makes them any more, and who would read them?
            Mover::Tcp(mover) if mover.has_markers() => return,
            Mover::Tcp(mover) if who.is_none() && mover.counters().bytes_in == 0 => {
                return self.add_follower(Follower::of_new(trace, ends, now));
            }
            Mover::Tcp(mover) => match mover.left_of_pdu() {
                Some(left) => (left, &[][..]),
                None => (0, mover.header()),
            },
            Mover::Iser(_) | Mover::Local(_) => (0, &[][..]),
        };
        let Some(mut follower) = Follower::of_old(trace, ends, who, left) else { return };
        follower.received(Duration::ZERO, begun, Framing::default());
        self.add_follower(follower);
    }

    fn add_follower(&mut self, follower: Follower) {
        self.followers.get_or_insert_with(|| Box::new(Followers(Vec::new()))).0.push(follower);
    }
}

impl Session {
    /// For traces.
    pub(super) fn who(&self) -> Who {
        Who {
            initiator: Some(self.login.initiator.clone()),
            target: self.login.target.clone(),
            tsih: Some(self.tsih.0),
        }
    }
}

/// The ends of a connection as a trace shows them, ours first; made up where it has none.
fn shown(key: Key, ends: Ends) -> (SocketAddr, SocketAddr) {
    #[expect(clippy::cast_possible_truncation)] // any number that others do not have now
    let number = key.to_bits() as u16;
    let ends = Ends { peer: ends.peer.without_mapping(), ..ends };
    ends.captured(number).unwrap_or_else(|| {
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        (SocketAddr::new(here, ends.local.port()), SocketAddr::new(here, 0xc000 | number))
    })
}

fn received_framing(mover: &Tcp) -> Framing {
    framing(mover.received_framing())
}

fn sent_framing(mover: &Tcp) -> Framing {
    framing(mover.sent_framing())
}

const fn framing(of: mover::tcp::Framing) -> Framing {
    Framing { header_digest: of.header_digest, data_digest: of.data_digest }
}

/// The PDU that would have carried it, and what is there of its data; None: it says nothing.
fn message_of(op: &Op) -> Option<([u8; BHS_LEN], &[u8])> {
    let length = |data: &[u8]| u32::try_from(data.len()).unwrap_or(u32::MAX).min(SEGMENT_LEN_MAX);
    Some(match op {
        Op::SendControl { response, data, .. } => (response.emit(length(data)), data.as_slice()),
        Op::PutData { itt, data, offset, numbers, status, .. } => {
            (data_in(*itt, *offset, *numbers, *status).emit(length(data.bytes())), data.bytes())
        }
        Op::PutNumbered(put) => {
            let header = data_in(put.itt, put.offset, put.numbers, put.status);
            (header.emit(length(put.data.bytes())), put.data.bytes())
        }
        Op::GetData { itt, lun, offset, length, numbers, .. } => {
            (r2t((*itt, *lun), (*offset, *length), *numbers).emit(0), &[])
        }
        Op::GetNumbered(get) => {
            (r2t((get.itt, get.lun), (get.offset, get.length), get.numbers).emit(0), &[])
        }
        _ => return None,
    })
}

const fn data_in(
    itt: Itt,
    offset: u32,
    numbers: Numbers,
    status: Option<CollapsedStatus>,
) -> DataIn {
    let numbers = match status {
        Some(_) => numbers,
        None => Numbers { stat_sn: StatSn(0), ..numbers },
    };
    DataIn {
        final_: true,
        acknowledge: false,
        status,
        lun: LunField([0; 8]),
        itt,
        ttt: Ttt::NONE,
        numbers,
        data_sn: DataSn(0),
        offset,
    }
}

const fn r2t(
    (itt, lun): (Itt, LunField),
    (offset, desired_length): (u32, u32),
    numbers: Numbers,
) -> R2t {
    R2t { lun, itt, ttt: Ttt(0), numbers, r2t_sn: R2tSn(0), offset, desired_length }
}
