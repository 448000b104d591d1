// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What each reactor has and has counted: the one way to ask for it.

use mover::tcp::Counters;

use crate::mail::SessionSnapshot;
use crate::stepped::Holdings;
use crate::stopwatch::Times;

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
    /// What came and went since it began.
    pub traffic: Traffic,
    /// Where its time went.
    pub times: Times,
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
