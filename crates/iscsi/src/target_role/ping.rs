// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether an initiator is still there (RFC 7143 §4.6.3.2, §11.18-11.19): what a connection heard,
//! and the NOP-In by which its target asks.
//!
//! ```text
//!   heard --interval--> asked --answer--> heard
//!                         |  ^
//!                         |  +-- what stands before the ping gets on
//!                         +--timeout--> gone
//! ```

use super::limits;
use super::logged_in::LoggedIn;
use super::settings::Settings;
use crate::violation::Violation;
use clock::Instant;
use core::time::Duration;
use wire::iscsi::Itt;
use wire::iscsi::NopOut;
use wire::iscsi::Ttt;

/// How long the connections of a session may be silent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// After so much silence a connection is asked; zero: never.
    interval: Duration,
    timeout: Duration,
    /// A discovery session is not asked (RFC 7143 §7.4.3).
    discovery: Option<Idle>,
}

#[derive(Clone, Copy, Debug)]
struct Idle {
    /// It ends after so much silence.
    silence: Duration,
    /// It ends then whatever it does.
    end: Option<Instant>,
}

impl Patience {
    pub(super) fn new(login: &LoggedIn, settings: &Settings, now: Instant) -> Self {
        let discovery = login.discovery.then(|| match login.proved {
            true => Idle { silence: limits::DISCOVERY_IDLE, end: None },
            false => Idle {
                silence: limits::OPEN_DISCOVERY_IDLE,
                end: Some(now + limits::OPEN_DISCOVERY_LIFE),
            },
        });
        Self { interval: settings.ping_interval, timeout: settings.ping_timeout, discovery }
    }

    /// When a connection that was heard at `heard` is asked, or ends.
    fn deadline(&self, heard: Instant) -> Option<Instant> {
        match self.discovery {
            Some(Idle { silence, end: Some(end) }) => Some(end.min(heard + silence)),
            Some(Idle { silence, end: None }) => Some(heard + silence),
            None => (!self.interval.is_zero()).then(|| heard + self.interval),
        }
    }
}

/// What tells whether the initiator of a connection is there.
#[derive(Debug)]
pub(super) struct Liveness {
    /// When the last PDU came.
    heard: Instant,
    ping: Option<Ping>,
    /// What the connection had carried when that was noted last.
    traffic: Traffic,
}

/// A NOP-In of ours that waits for its NOP-Out.
#[derive(Clone, Copy, Debug)]
struct Ping {
    ttt: Ttt,
    deadline: Instant,
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

impl Liveness {
    pub(super) fn new(now: Instant) -> Self {
        Self { heard: now, ping: None, traffic: Traffic::default() }
    }

    /// A PDU has come.
    #[inline]
    pub(super) fn hear(&mut self, now: Instant) {
        self.heard = now;
    }

    /// Notes what the connection has carried: as long as that gets on, its initiator is there.
    pub(super) fn note(&mut self, traffic: Traffic, patience: &Patience, now: Instant) {
        let timeout = patience.timeout;
        let before = core::mem::replace(&mut self.traffic, traffic);
        if let Some(ping) = &mut self.ping
            && ping.gets_on(before, traffic)
        {
            ping.deadline = now + timeout;
        }
    }

    /// Bytes that have come, as far as was noted.
    pub(super) const fn received(&self) -> u64 {
        self.traffic.received
    }

    /// A ping with the tag `ttt` leaves.
    pub(super) fn ask(&mut self, ttt: Ttt, patience: &Patience, now: Instant) {
        debug_assert!(self.ping.is_none(), "one ping at a time");
        self.ping = Some(Ping { ttt, deadline: now + patience.timeout, behind: None });
    }

    /// The ping was answered.
    pub(super) fn answered(&mut self) {
        self.ping = None;
    }

    /// True if a ping waits for its answer.
    pub(super) fn is_asked(&self) -> bool {
        self.ping.is_some()
    }

    /// When it has to be asked, or its time is over.
    pub(super) fn deadline(&self, patience: &Patience) -> Option<Instant> {
        match self.ping {
            Some(ping) => Some(ping.deadline),
            None => patience.deadline(self.heard),
        }
    }

    /// What can be wrong with a NOP-Out by itself (RFC 7143 §11.18.1-2).
    pub(super) fn check_nop(&self, nop: &NopOut) -> Result<(), Violation> {
        match (nop.itt == Itt::NONE, nop.ttt == Ttt::NONE) {
            (true, _) if !nop.immediate => Err(Violation::NopNotImmediate),
            (false, false) => Err(Violation::NopBothTags),
            (true, false) => match self.ping {
                Some(ping) if ping.ttt == nop.ttt => Ok(()),
                _ => Err(Violation::UnknownPing),
            },
            _ => Ok(()),
        }
    }
}
