// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a reactor tells of itself.

use engine::Port;

use super::Connection;
use super::Pump;
use super::Session;
use crate::ends::Peer;
use crate::figures::ConnectionSnapshot;
use crate::figures::Figures;
use crate::figures::SessionSnapshot;
use crate::figures::TIMED_SESSIONS_MAX;
use crate::figures::Traffic;
use crate::stopwatch::Times;

impl<P: Port> Pump<P> {
    pub(crate) fn figures(&self) -> Figures {
        let traffic = self.traffic();
        Figures {
            reactor: self.context.reactor,
            sessions: self.snapshot(),
            holdings: self.holdings(),
            pool_bytes_max: self.context.pool.bytes_max(),
            waits: self.waits(),
            held: self.held_commands(),
            traffic,
            visits: self.context.tally.visits.clone(),
            disks: self.context.tally.disks(),
            times: self.times(&traffic),
        }
    }

    /// What came and went, with what is there no more.
    fn traffic(&self) -> Traffic {
        let mut traffic = self.gone;
        for (_, session) in self.sessions.iter() {
            traffic.count_session(session.commands, session.bytes_in, session.bytes_out);
        }
        for (_, connection) in self.connections.iter() {
            traffic.connections.join(connection.mover.counters());
        }
        traffic
    }

    fn times(&self, traffic: &Traffic) -> Times {
        let mut times = self.context.watch.times();
        times.payload += traffic.bytes_in + traffic.bytes_out;
        times.copied += traffic.connections.bytes_copied;
        times.digested += traffic.connections.bytes_crc;
        times
    }

    pub(crate) fn snapshot(&self) -> Vec<SessionSnapshot> {
        let now = self.context.port.now();
        let live = || self.sessions.iter().filter(|(_, session)| !session.closed);
        let begin = |session: &Session| (session.since, session.tsih.0);
        let mut begins: Vec<_> = live().map(|(_, session)| begin(session)).collect();
        let last_timed = match begins.len() > TIMED_SESSIONS_MAX {
            true => Some(*begins.select_nth_unstable(TIMED_SESSIONS_MAX - 1).1),
            false => None,
        };
        let is_timed = |session| last_timed.is_none_or(|last| begin(session) <= last);
        live()
            .map(|(_, session)| SessionSnapshot {
                tsih: session.tsih.0,
                initiator: session.login.initiator.clone(),
                initiator_alias: session.login.initiator_alias.clone(),
                isid: session.login.isid.0.iter().map(|byte| format!("{byte:02x}")).collect(),
                target: session.login.target.clone(),
                discovery: session.login.discovery,
                age: now.since(session.since),
                reactor: self.context.reactor,
                tasks: session.tasks.iter().flatten().count(),
                held: session.held.count(),
                commands: session.commands,
                bytes_in: session.bytes_in,
                bytes_out: session.bytes_out,
                took: match is_timed(session) {
                    true => session.took.told(),
                    false => Vec::new(),
                },
                parameters: session.login.parameters.clone(),
                connections: session
                    .machine
                    .connections()
                    .filter_map(|(id, cid)| {
                        let key = session.connections.get(usize::from(id.0))?;
                        let connection = self.connections.get(*key)?;
                        let Connection { peer, local, .. } = *connection;
                        let transport = match peer {
                            Peer::Station(_) => "ether",
                            _ => connection.mover.transport(),
                        };
                        let iser = connection.mover.facts();
                        let adapter = connection.line.adapter_facts();
                        let cid = cid.0;
                        Some(ConnectionSnapshot { cid, peer, local, transport, iser, adapter })
                    })
                    .collect(),
            })
            .collect()
    }
}
