// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What each login of a session says of who we are and what we want.

use std::time::Duration;

use clock::Instant;
use engine::Port;
use iscsi::datamover::Capabilities;
use iscsi::datamover::Rdma;
use iscsi::initiator::Identity;
use iscsi::initiator::Joining;
use iscsi::initiator::Login;
use mover::iser;
use mover::local;
use wire::iscsi::Cid;
use wire::iscsi::CmdSn;

use super::SessionDriver;
use super::State;
use crate::Begin;
use crate::Error;
use crate::Transport;
use crate::connect::Line;
use crate::limits;
use crate::pump::Context;

/// CHAP_I of the logins of a session: never that of the one before, as a random number is once in
/// 256 times (RFC 1994 §2.3).
#[derive(Debug)]
pub(super) struct Identifiers(u8);

impl Identifiers {
    pub(super) const fn new(first: u8) -> Self {
        Self(first)
    }

    fn next(&mut self) -> u8 {
        self.0 = self.0.wrapping_add(1);
        self.0
    }
}

impl SessionDriver {
    /// How long to go on trying to get a session.
    pub(super) const fn patience(&self) -> Duration {
        match self.was_up {
            true => self.options.reconnect_patience,
            false => self.options.connect_patience,
        }
    }

    /// How long a login may take: no longer than there is patience left. Without any it is the one
    /// try that there is.
    fn login_timeout(&self, now: Instant) -> Duration {
        let (most, patience) = (self.options.settings.login_timeout, self.patience());
        if let Some(until) = self.replace_until {
            return until.since(now).max(limits::LOGIN_MIN).min(most);
        }
        if patience.is_zero() {
            return most;
        }
        let spent = self.down_since.map_or(Duration::ZERO, |since| now.since(since));
        patience.saturating_sub(spent).max(limits::LOGIN_MIN).min(most)
    }

    /// What carries a connection of this session. Discovery is plain text where there is a choice
    /// (RFC 7145 §6.3): LIO's portals for RDMA take nothing else.
    pub(super) fn transport(&self) -> Transport {
        match (&self.options.target, self.options.transport) {
            (None, Transport::Iser(Begin::Login, _)) => Transport::Tcp,
            (_, transport) => transport,
        }
    }

    /// What a mover over a line can do.
    pub(super) fn capabilities(&self, line: &Line) -> Capabilities {
        let rdma = match (line, self.transport()) {
            (Line::Local(_), _) => return local::CAPABILITIES,
            (Line::Adapter(_), _) => return iser::OF_ADAPTERS,
            (Line::Stream(_), Transport::Tcp | Transport::Verbs | Transport::Ether) => Rdma::Never,
            (Line::Stream(_), Transport::Iser(Begin::Login, _)) => Rdma::Possible,
            (Line::Stream(_), Transport::Iser(Begin::Rdma, _)) => return Capabilities::RDMA,
        };
        Capabilities { rdma, ..Capabilities::STREAM }
    }

    pub(super) fn login<P: Port>(
        &mut self,
        joining: Option<Joining>,
        capabilities: Capabilities,
        context: &mut Context<'_, P>,
    ) -> Result<Login, Error> {
        let options = &self.options;
        let mut settings = options.settings.clone().within(capabilities);
        if joining.is_none() {
            settings.login_timeout = self.login_timeout(context.now);
        }
        let identity = Identity {
            initiator: options.initiator.clone(),
            initiator_alias: options.alias.clone(),
            target: options.target.clone(),
            discovery: options.target.is_none(),
            isid: self.isid,
            cid: Cid(0),
            // A session spans portals of one group only (RFC 7143 §4.4.3).
            portal_group_tag: match &self.state {
                State::Up(session) => session.login().portal_group_tag,
                _ => self.portals.group(),
            },
            reinstates: joining.is_some() || self.portals.is_in_doubt(),
        };
        let mut random = [0; limits::CHALLENGE_LEN + 4];
        context.random(&mut random)?;
        let [a, b, c, d, challenge @ ..] = random;
        let identifier = self.identifiers.next();
        let client = options.account.clone().and_then(|account| {
            let challenge = iscsi::chap::Challenge::new(identifier, &challenge)?;
            Some(iscsi::chap::Client::new(account, options.algorithms.clone(), challenge))
        });
        let (settings, now) = (&settings, context.now);
        Ok(match joining {
            Some(joining) => Login::join(identity, settings, client, joining, now),
            None => {
                let cmd_sn = CmdSn(u32::from_be_bytes([a, b, c, d]));
                Login::new(identity, settings, client, cmd_sn, now)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Covers: CHP-22b/I.
    #[test]
    fn no_login_has_the_identifier_of_the_one_before() {
        let mut identifiers = Identifiers::new(250);
        let drawn: Vec<u8> = (0..1000).map(|_| identifiers.next()).collect();
        assert!(drawn.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
