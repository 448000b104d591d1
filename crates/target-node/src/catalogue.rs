// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is served and who is let in (RFC 7143 §4.2.7, §6.3): one generation after the other.

use std::net::Ipv4Addr;
use std::net::Ipv6Addr;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::RwLock;

use iscsi::chap::Account;
use iscsi::chap::Challenge;
use iscsi::target_role::Admission;
use iscsi::target_role::AdmissionRequest;
use iscsi::target_role::TargetRecord;
use scsi::LogicalUnit;

use crate::authentication::AuthenticationPolicy;
use crate::authentication::Demand;
use crate::node::Node;
use crate::node::PORTAL_GROUP_TAG;
use crate::node::Portal;
use crate::node::Redirect;
use crate::rdma::Rdma;
use crate::served::Served;

/// What is served now. It is exchanged as a whole: who takes one generation of it has all of that
/// one and nothing of another.
#[derive(Debug)]
pub(crate) struct Catalogue(RwLock<Arc<Nodes>>);

impl Catalogue {
    pub(crate) fn new(nodes: Nodes) -> Self {
        Self(RwLock::new(Arc::new(nodes)))
    }

    /// The generation of now.
    pub(crate) fn now(&self) -> Arc<Nodes> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// From now on this one.
    pub(crate) fn exchange(&self, next: Arc<Nodes>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = next;
    }
}

/// All nodes of a daemon and the portals they share: one generation of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Nodes {
    pub(crate) nodes: Vec<Arc<Served>>,
    /// Where sockets listen.
    pub(crate) portals: Vec<Portal>,
    /// Where RDMA adapters do, at addresses of sockets or at their own.
    pub(crate) adapters: Vec<Portal>,
    pub(crate) discovery: AuthenticationPolicy,
    /// An initiator is not told that a target exists which it may not use.
    pub(crate) hide: bool,
}

/// What carries a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// A socket, or nothing that initiators elsewhere could use.
    Socket,
    /// An RDMA adapter.
    Adapter,
}

/// On what terms a session was let in.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    /// None: a discovery session without a target.
    served: Option<Arc<Served>>,
    demand: Demand,
    /// What its initiator could prove.
    account: Option<Arc<Account>>,
    /// Whether it had to.
    must_prove: bool,
}

impl Terms {
    /// Its target in the generation that these terms are of.
    pub(crate) fn served(&self) -> Option<&Served> {
        self.served.as_deref()
    }
}

/// Why a session would not be let in again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outdated {
    /// Its target is served no more.
    TargetGone,
    /// Its target is somewhere else now ([`Node::redirect`]).
    TargetMoved,
    /// Its initiator is not on the list of the target any more.
    NotAdmitted,
    /// What its initiator has proved is not what it would have to prove now.
    ProofChanged,
}

impl Outdated {
    /// In words.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::TargetGone => "its target is served no more",
            Self::TargetMoved => "its target has moved",
            Self::NotAdmitted => "its initiator may not use the target any more",
            Self::ProofChanged => "its initiator has to prove something else now",
        }
    }
}

/// A session that what is served now would not let in.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OutdatedSession {
    /// Target session identifying handle.
    pub tsih: u16,
    /// The initiator's iSCSI name.
    pub initiator: String,
    /// None: a discovery session without a target.
    pub target: Option<String>,
    /// Why.
    pub why: Outdated,
}

impl Nodes {
    /// `discovery`: what initiators have to prove in discovery sessions.
    pub(crate) fn new(
        nodes: Vec<Node>,
        portals: Vec<Portal>,
        discovery: AuthenticationPolicy,
    ) -> Self {
        let nodes = nodes.into_iter().map(Served::new).map(Arc::new).collect();
        Self { nodes, portals, adapters: Vec::new(), discovery, hide: false }
    }

    /// RDMA adapters take connections at these, too.
    pub(crate) fn with_adapters(self, adapters: Vec<Portal>) -> Self {
        Self { adapters, ..self }
    }

    /// Whether a forbidden target is answered as an unknown one (RFC 7143 §11.13.5).
    pub(crate) fn hidden(self, hide: bool) -> Self {
        Self { hide, ..self }
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Arc<Served>> {
        let name = iscsi::name::prepared(name);
        self.nodes.iter().find(|served| served.node().name == name)
    }

    /// All nodes.
    pub(crate) fn all(&self) -> &[Arc<Served>] {
        &self.nodes
    }

    /// The tags of all portal groups, ascending.
    pub(crate) fn portal_groups(&self) -> Vec<u16> {
        let portals = self.portals.iter().chain(&self.adapters);
        let mut tags: Vec<u16> = portals.map(|portal| portal.group).collect();
        tags.sort_unstable();
        tags.dedup();
        tags
    }

    /// A portal that connections from this process count as coming to: the first one.
    pub(crate) fn any_portal(&self) -> SocketAddr {
        let portal = self.portals.first().map(|portal| portal.address);
        let mut portal = portal.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        match portal {
            SocketAddr::V4(address) if address.ip().is_unspecified() => {
                portal.set_ip(Ipv4Addr::LOCALHOST.into());
            }
            SocketAddr::V6(address) if address.ip().is_unspecified() => {
                portal.set_ip(Ipv6Addr::LOCALHOST.into());
            }
            _ => {}
        }
        portal
    }

    /// The addresses of all portals of sockets.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.portals.iter().map(|portal| portal.address).collect()
    }

    /// The portal group that took a connection to `local`.
    pub(crate) fn portal_group(&self, local: SocketAddr) -> u16 {
        let portal = portal_of(&self.portals, local).or_else(|| portal_of(&self.adapters, local));
        portal.map_or(PORTAL_GROUP_TAG, |portal| portal.group)
    }

    /// Whether the portal whose socket took a connection to `local` speaks iSER; None: it has no
    /// word of its own.
    pub(crate) fn rdma(&self, local: SocketAddr) -> Option<Rdma> {
        portal_of(&self.portals, local)?.rdma
    }

    /// All units of the target `name`.
    pub(crate) fn units(&self, name: &str) -> Arc<[Arc<LogicalUnit>]> {
        let luns = self.find(name).map(|served| served.luns()).unwrap_or_default();
        luns.into_iter().map(|(_, unit)| unit).collect()
    }

    /// Decides on a login over a connection to `portal_group_tag` as soon as its names are known
    /// (RFC 7143 §6.3, §11.13.5). `draw` gives a new challenge, or None if there is no randomness.
    pub(crate) fn admit(
        &self,
        request: &AdmissionRequest,
        portal_group_tag: u16,
        draw: impl FnOnce() -> Option<Challenge>,
    ) -> Admission {
        const TARGET_ERROR: u16 = 0x0300;
        const NOT_FOUND: u16 = 0x0203;
        const FORBIDDEN: u16 = 0x0202;
        const UNAVAILABLE: u16 = 0x0301;
        let (settings, target_alias, node) = match &request.target {
            Some(name) => match self.find(name).map(|served| served.node()) {
                None => {
                    let reason = "no such target is served here";
                    return Admission::Refused { status: NOT_FOUND, reason };
                }
                Some(node) if !node.admits(&request.initiator) => {
                    let status = if self.hide { NOT_FOUND } else { FORBIDDEN };
                    let reason = "the initiator is not on the list of the target";
                    return Admission::Refused { status, reason };
                }
                // Before authentication, which RFC 7143 §11.13.5 allows: initiators follow either
                // way, and prove themselves where they arrive.
                Some(Node { redirect: Some(redirect), .. }) if !request.discovery => {
                    let Redirect { address, duration } = redirect.clone();
                    return Admission::Redirected { address, duration };
                }
                Some(node) => {
                    (node.settings_for(&request.initiator), node.alias.clone(), Some(node))
                }
            },
            None => match self.nodes.first() {
                Some(first) => (first.node().settings.clone(), None, None),
                None => {
                    let reason = "no target is served";
                    return Admission::Refused { status: UNAVAILABLE, reason };
                }
            },
        };
        let authentication = match node {
            Some(node) if !request.discovery => {
                node.authentication.authentication(node.account(&request.initiator), draw)
            }
            _ => self.discovery.authentication(None, draw),
        };
        let Some(authentication) = authentication else {
            let reason = "there is no randomness for a challenge";
            return Admission::Refused { status: TARGET_ERROR, reason };
        };
        Admission::Granted { portal_group_tag, target_alias, settings, authentication }
    }

    /// On what terms an initiator is let in, from what it says who it is. An error says why it
    /// would not be.
    pub(crate) fn terms(
        &self,
        initiator: &str,
        target: Option<&str>,
        discovery: bool,
    ) -> Result<Terms, Outdated> {
        let served = match target {
            None => None,
            Some(name) => Some(self.find(name).ok_or(Outdated::TargetGone)?),
        };
        let node = served.map(|served| served.node());
        if node.is_some_and(|node| !node.admits(initiator)) {
            return Err(Outdated::NotAdmitted);
        }
        let (policy, own) = match node {
            Some(node) if !discovery => (&node.authentication, node.account(initiator)),
            _ => (&self.discovery, None),
        };
        if !discovery && node.is_some_and(|node| node.redirect.is_some()) {
            return Err(Outdated::TargetMoved);
        }
        Ok(Terms {
            served: served.cloned(),
            demand: policy.demand,
            account: own.or(policy.account.as_ref()).cloned(),
            must_prove: match policy.demand {
                Demand::Off => false,
                Demand::Optional => own.is_some(),
                Demand::Required | Demand::Mutual => true,
            },
        })
    }

    /// The terms of now of a session that was let in on the `old` ones, having proved something or
    /// nothing. An error says why it would not be let in now.
    pub(crate) fn review(
        &self,
        old: &Terms,
        initiator: &str,
        target: Option<&str>,
        discovery: bool,
        has_proved: bool,
    ) -> Result<Terms, Outdated> {
        let new = self.terms(initiator, target, discovery)?;
        if let (Some(old), Some(new)) = (&old.served, &new.served)
            && !old.is_same_as(new)
        {
            return Err(Outdated::TargetGone);
        }
        let is_proof_good = match (new.demand, has_proved) {
            (Demand::Off, _) => true,
            (_, false) => !new.must_prove,
            // Whether the target had to prove itself to it is not known.
            (Demand::Mutual, true) if old.demand != Demand::Mutual => false,
            (_, true) => old.account == new.account,
        };
        if is_proof_good { Ok(new) } else { Err(Outdated::ProofChanged) }
    }

    /// Whether anybody can prove who it is in a session with a disk.
    pub(crate) fn takes_proof(&self) -> bool {
        self.nodes.iter().any(|served| served.node().authentication.demand != Demand::Off)
    }

    /// What SendTargets tells `initiator`, which reached us at `local` (RFC 7143 §C).
    ///
    /// A portal on the wildcard address is listed as the address that this connection came to. Who
    /// came over a socket is told where sockets listen, and who came over an adapter where those
    /// do: SendTargets has no word for what a portal speaks.
    pub(crate) fn records(
        &self,
        initiator: &str,
        only: Option<&str>,
        (way, local): (Way, SocketAddr),
    ) -> Vec<TargetRecord> {
        let portals = match way {
            Way::Socket => &self.portals,
            Way::Adapter => &self.adapters,
        };
        let mut addresses = Vec::new();
        for portal in portals {
            let mut address = portal.address;
            if address.ip().is_unspecified() {
                if address.is_ipv4() != local.is_ipv4() {
                    continue;
                }
                address.set_ip(local.ip());
            }
            let text = format!("{address},{}", portal.group);
            if !addresses.contains(&text) {
                addresses.push(text);
            }
        }
        self.nodes
            .iter()
            .map(|served| served.node())
            .filter(|node| only.is_none_or(|name| name == node.name) && node.admits(initiator))
            .map(|node| TargetRecord { name: node.name.clone(), addresses: addresses.clone() })
            .collect()
    }
}

/// That of `portals` to which a connection to `local` comes: the one that has this address, or else
/// the one of all addresses of its family.
pub(crate) fn portal_of(portals: &[Portal], local: SocketAddr) -> Option<&Portal> {
    let of_port = || portals.iter().filter(|portal| portal.address.port() == local.port());
    let all = |portal: &&Portal| {
        let address = portal.address;
        address.ip().is_unspecified() && address.is_ipv4() == local.is_ipv4()
    };
    of_port().find(|portal| portal.address.ip() == local.ip()).or_else(|| of_port().find(all))
}

#[cfg(test)]
mod tests;
