// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Target nodes: names, LUN maps, access lists (RFC 7143 §4.2.7).

use std::net::SocketAddr;
use std::sync::Arc;

use iscsi::chap::Account;
use iscsi::name;
use iscsi::name::NameError;
use iscsi::target_role::Redirection;
use iscsi::target_role::Settings;
use iscsi::target_role::TargetReset;
use scsi::LogicalUnit;

use crate::authentication::AuthenticationPolicy;
use crate::rdma::Rdma;

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
    /// Whether it speaks iSER, too; None: as the target does where nothing is said of a portal.
    pub rdma: Option<Rdma>,
}

impl From<SocketAddr> for Portal {
    fn from(address: SocketAddr) -> Self {
        Self { address, group: PORTAL_GROUP_TAG, rdma: None }
    }
}

/// A logical unit under the number that initiators see, before masking.
pub type LunMap = Vec<(u16, Arc<LogicalUnit>)>;

/// A name in a [`Node`] under which nobody could log in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// Its own (RFC 7143 §4.2.7).
    #[error("a target cannot be named {name:?}: {reason}")]
    Target {
        /// As it was given.
        name: String,
        /// What is wrong with it.
        reason: NameError,
    },
    /// That of an initiator in its access list.
    #[error("no initiator that may use {target} is named {name:?}: {reason}")]
    Initiator {
        /// The target.
        target: String,
        /// As it was given.
        name: String,
        /// What is wrong with it.
        reason: NameError,
    },
    /// It is not normalized (RFC 3722).
    #[error("the name {name:?} stands for {normal}; try: that one")]
    Form {
        /// As it was given.
        name: String,
        /// As it is compared.
        normal: String,
    },
}

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
#[derive(Clone, Debug, PartialEq, Eq)]
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

    /// Whether its names are iSCSI names in the form in which they are compared.
    pub(crate) fn check(&self) -> Result<(), NodeError> {
        let is_normal = |name: &str, normal: String| match normal == name {
            true => Ok(()),
            false => Err(NodeError::Form { name: name.to_owned(), normal }),
        };
        let wrong = |reason| NodeError::Target { name: self.name.clone(), reason };
        is_normal(&self.name, name::normalize_configured(&self.name).map_err(wrong)?)?;
        self.access.iter().map(|rule| &rule.initiator).try_for_each(|name| {
            let (target, name) = (self.name.clone(), name.clone());
            let received = name::received_initiator(&name);
            let wrong = |reason| NodeError::Initiator { target, name: name.clone(), reason };
            is_normal(&name, received.map_err(wrong)?)
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(initiator: &str) -> AccessRule {
        AccessRule { initiator: initiator.into(), luns: None, account: None, target_reset: None }
    }

    /// Covers: NAM-08/T.
    #[test]
    fn the_names_of_a_node_are_checked() {
        let check = |name: &str| Node::new(name.to_owned(), Vec::new()).check();
        for good in ["iqn.2026-01.com.example:a", "eui.02004567a425678d", "naa.52004567ba64678d"] {
            assert_eq!(check(good), Ok(()));
        }
        for bad in ["disk", "t10.abc", "xiqn.2026-01.com.example", "iqniqn.2026-01.com.example", ""]
        {
            let error = check(bad);
            assert!(matches!(&error, Err(NodeError::Target { name, .. }) if name == bad), "{bad}");
        }
        let (name, normal) = ("iqn.2026-01.com.example:A", "iqn.2026-01.com.example:a");
        let form = NodeError::Form { name: name.into(), normal: normal.into() };
        assert_eq!(check(name), Err(form.clone()));
        let lets_in = |initiator: &str| {
            let access = vec![rule(normal), rule(initiator)];
            Node { access, ..Node::new(normal.to_owned(), Vec::new()) }.check()
        };
        assert_eq!(lets_in("iqn.hand:made_name"), Ok(()), "others are called as they are");
        assert_eq!(lets_in(name), Err(form));
        assert!(matches!(lets_in("a b"), Err(NodeError::Initiator { name, .. }) if name == "a b"));
    }
}
