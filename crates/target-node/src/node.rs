// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Target nodes: names, LUN maps, access lists (RFC 7143 §4.2.7).

use std::net::SocketAddr;
use std::sync::Arc;

use iscsi::chap::Account;
use iscsi::target_role::Redirection;
use iscsi::target_role::Settings;
use iscsi::target_role::TargetReset;
use scsi::LogicalUnit;

use crate::authentication::AuthenticationPolicy;

/// The portal group tag of portals that are given none (RFC 7143 §4.4.1).
pub const PORTAL_GROUP_TAG: u16 = 1;

/// An address to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Portal {
    /// Port 0 picks a free one.
    pub address: SocketAddr,
    /// Tag of its portal group, which is the SCSI target port that initiators reach here; sessions
    /// never span two (RFC 7143 §4.4.1).
    pub group: u16,
}

impl From<SocketAddr> for Portal {
    fn from(address: SocketAddr) -> Self {
        Self { address, group: PORTAL_GROUP_TAG }
    }
}

/// A logical unit under the number that initiators see, before masking.
pub type LunMap = Vec<(u16, Arc<LogicalUnit>)>;

/// One target node as it is served.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its iSCSI name, normalized.
    pub name: String,
    /// A name for people, sent as TargetAlias.
    pub alias: Option<String>,
    /// Its logical units.
    pub luns: LunMap,
    /// Who may log in: everybody if empty.
    pub access: Vec<AccessRule>,
    /// What initiators have to prove.
    pub authentication: AuthenticationPolicy,
    /// What it wishes in negotiation.
    pub settings: Settings,
    /// Where it is now, if it has moved: whoever may log in is sent there.
    pub redirect: Option<Redirect>,
}

/// The new place of a target (RFC 7143 §11.13.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// `ADDRESS:PORT`, IPv6 in brackets.
    pub address: String,
    /// Whether initiators are to remember it.
    pub duration: Redirection,
}

/// Lets one initiator in.
#[derive(Clone, Debug)]
pub struct AccessRule {
    /// The initiator's iSCSI name, normalized, as those of initiators are when they log in.
    pub initiator: String,
    /// LUN masking: the numbers that it sees; all if None.
    pub luns: Option<Vec<u16>>,
    /// How it proves that it is the one of that name.
    pub account: Option<Arc<Account>>,
    /// Which resets of the whole target it may ask for, if not what the target allows to all.
    pub target_reset: Option<TargetReset>,
}

impl Node {
    /// A target with these units that everybody may use without proof. `name` is normalized, as
    /// iSCSI names are in lower case.
    #[must_use]
    pub fn new(name: String, luns: LunMap) -> Self {
        Self {
            name,
            alias: None,
            luns,
            access: Vec::new(),
            authentication: AuthenticationPolicy::default(),
            settings: Settings::default(),
            redirect: None,
        }
    }

    /// Whether `initiator` may log in.
    #[must_use]
    pub fn admits(&self, initiator: &str) -> bool {
        self.access.is_empty() || self.rule(initiator).is_some()
    }

    fn rule(&self, initiator: &str) -> Option<&AccessRule> {
        self.access.iter().find(|rule| rule.initiator == initiator)
    }

    /// The account of `initiator` alone: it proves that name and no other (RFC 7143 §9.2).
    pub(crate) fn account(&self, initiator: &str) -> Option<&Arc<Account>> {
        self.rule(initiator)?.account.as_ref()
    }

    /// What to negotiate for with `initiator`, and what it may do.
    pub(crate) fn settings_for(&self, initiator: &str) -> Settings {
        let own = self.rule(initiator).and_then(|rule| rule.target_reset);
        let target_reset = own.unwrap_or(self.settings.target_reset);
        Settings { target_reset, ..self.settings.clone() }
    }

    /// Whether `initiator` sees the unit of this number.
    pub(crate) fn shows(&self, initiator: &str, number: u16) -> bool {
        self.rule(initiator)
            .and_then(|rule| rule.luns.as_ref())
            .is_none_or(|luns| luns.contains(&number))
    }
}
