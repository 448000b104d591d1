// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What each reactor has and has counted: the one way to ask for it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use engine::laps;
use iscsi::target_role::Parameters;
use mover::iser::Facts as Iser;
use mover::tcp::Counters;

use crate::ends::Peer;
use crate::stopwatch::Times;

/// Sessions of a reactor whose times are told, the oldest ones: a histogram for each operation.
pub const TIMED_SESSIONS_MAX: usize = 256;

/// The figures of one reactor, all of one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Figures {
    /// Its number.
    pub reactor: usize,
    /// Its sessions.
    pub sessions: Vec<SessionSnapshot>,
    /// What it holds.
    pub holdings: Holdings,
    /// Bound on its data buffers, bytes.
    pub pool_bytes_max: usize,
    /// What waits for stores whose work is done elsewhere, for a second and longer, by disk.
    pub waits: Vec<Wait>,
    /// What limits hold now.
    pub held: Vec<HeldCommands>,
    /// What came and went since it began.
    pub traffic: Traffic,
    /// Who came, and how it went.
    pub visits: Visits,
    /// What its commands were like, by disk.
    pub disks: Vec<DiskFigures>,
    /// Where its time went.
    pub times: Times,
}

/// Commands that a limit holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldCommands {
    /// The target.
    pub target: Option<String>,
    /// Whose they are.
    pub initiator: String,
    /// Serial number of the disk that they are for.
    pub disk: String,
    /// How many.
    pub commands: usize,
}

/// Logins and losses since a reactor began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Visits {
    /// Logins that went well: of new sessions, and of connections that joined one.
    pub logins: u64,
    /// Logins that were refused, by status (RFC 7143 §11.13.5).
    pub refused: BTreeMap<u16, u64>,
    /// Of those with status 0302 the ones that a limit of sessions has refused.
    pub limited: u64,
    /// Connections that ended before their login did, without a status.
    pub closed_early: u64,
    /// Connections of sessions that ended by an error of the network.
    pub lost_connections: u64,
    /// Sessions that ended since their initiator logged in anew in their place.
    pub reinstated_sessions: u64,
}

impl Visits {
    /// A login has ended with this status, or with none.
    pub(crate) fn note_failure(&mut self, status: Option<u16>) {
        match status {
            Some(status) => *self.refused.entry(status).or_default() += 1,
            None => self.closed_early += 1,
        }
    }
}

/// What the commands of a disk were like that one reactor had, since it began.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DiskFigures {
    /// Serial number; None: commands for no disk.
    pub disk: Option<String>,
    /// How long they took, of those that were timed: one in a few.
    pub took: Vec<(Operation, laps::Layer)>,
    /// How many failed, and how.
    pub failures: Vec<(Failure, u64)>,
}

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(clippy::exhaustive_enums)] // the rest is other
pub enum Operation {
    /// It reads blocks.
    Read,
    /// It writes blocks.
    Write,
    /// Anything else.
    Other,
}

impl Operation {
    /// All, in the order of their numbers.
    pub(crate) const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Other];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Other => "other",
        }
    }
}

/// How a command ended that did not end well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Failure {
    /// SCSI status.
    pub status: u8,
    /// Sense key, of CHECK CONDITION.
    pub sense_key: Option<u8>,
}

/// Commands of a disk that wait for its store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Wait {
    /// Serial number of the disk.
    pub disk: String,
    /// How many pieces of work.
    pub commands: usize,
    /// For how long the oldest of them.
    pub oldest: Duration,
}

/// What has come and gone since a reactor began, with the sessions and connections that are there
/// no more: it never becomes less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Commands.
    pub commands: u64,
    /// Bytes sent to initiators as data.
    pub bytes_in: u64,
    /// Bytes taken from initiators as data.
    pub bytes_out: u64,
    /// What connections have carried: bytes of the streams, and PDUs by kind.
    pub connections: Counters,
}

impl Traffic {
    /// That of another reactor joins this.
    pub fn join(&mut self, other: &Self) {
        self.count_session(other.commands, other.bytes_in, other.bytes_out);
        self.connections.join(&other.connections);
    }

    pub(crate) fn count_session(&mut self, commands: u64, bytes_in: u64, bytes_out: u64) {
        self.commands += commands;
        self.bytes_in += bytes_in;
        self.bytes_out += bytes_out;
    }
}

/// What a reactor holds; all zero when nobody is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// Connections, of whatever phase.
    pub connections: usize,
    /// Sessions, of whatever state.
    pub sessions: usize,
    /// Store work under way.
    pub ios: usize,
    /// Task management functions under way.
    pub managements: usize,
    /// Commands that wait for others.
    pub waiting: usize,
    /// Commands that a limit holds.
    pub held: usize,
    /// Jobs that belong to no session.
    pub jobs: usize,
    /// Bytes of the pool in use.
    pub pool_bytes: usize,
    /// Bytes of the pool that have memory, in use or not.
    pub warm_bytes: usize,
}

/// A session as administration shows it.
#[derive(Clone, Debug)]
pub struct SessionSnapshot {
    /// Target session identifying handle.
    pub tsih: u16,
    /// The initiator's iSCSI name.
    pub initiator: String,
    /// The initiator's alias, if it told one.
    pub initiator_alias: Option<String>,
    /// ISID as twelve hexadecimal digits.
    pub isid: String,
    /// None: a discovery session without a target.
    pub target: Option<String>,
    /// True for a discovery session.
    pub discovery: bool,
    /// Age since login.
    pub age: Duration,
    /// Reactor that serves it.
    pub reactor: usize,
    /// Commands in the hands of the device server now.
    pub tasks: usize,
    /// Those of them that a limit holds.
    pub held: usize,
    /// Commands since login.
    pub commands: u64,
    /// Bytes sent to the initiator as data.
    pub bytes_in: u64,
    /// Bytes taken from the initiator as data.
    pub bytes_out: u64,
    /// How long its commands took, of those that were timed; empty if more sessions of its reactor
    /// than [`TIMED_SESSIONS_MAX`] are older.
    pub took: Vec<(Operation, laps::Layer)>,
    /// Negotiated values.
    pub parameters: Parameters,
    /// Its connections.
    pub connections: Vec<ConnectionSnapshot>,
}

/// A connection as administration shows it.
#[derive(Clone, Debug)]
pub struct ConnectionSnapshot {
    /// Connection id.
    pub cid: u16,
    /// The initiator's address.
    pub peer: Peer,
    /// The portal's address.
    pub local: SocketAddr,
    /// What carries it: tcp, iser, ether or local.
    pub transport: &'static str,
    /// Of one over software iWARP: what it has agreed on.
    pub iser: Option<Iser>,
    /// Of one over an RDMA adapter.
    pub adapter: Option<verbs::Facts>,
}
