// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Target nodes: names, LUN maps, access lists, and who is let in (RFC 7143 §4.2.7, §6.3).

use std::net::SocketAddr;
use std::sync::Arc;

use iscsi::target::Admission;
use iscsi::target::AdmissionRequest;
use iscsi::target::Redirection;
use iscsi::target::Settings;
use iscsi::target::TargetRecord;
use scsi::LogicalUnit;

/// The portal group tag of every portal: a daemon is one portal group (RFC 7143 §4.4.1).
pub(crate) const PORTAL_GROUP_TAG: u16 = 1;

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
    /// The initiator's iSCSI name, normalized; compared byte for byte.
    pub initiator: String,
    /// LUN masking: the numbers that it sees; all if None.
    pub luns: Option<Vec<u16>>,
}

impl Node {
    /// Whether `initiator` may log in.
    #[must_use]
    pub fn admits(&self, initiator: &str) -> bool {
        self.access.is_empty() || self.access.iter().any(|rule| rule.initiator == initiator)
    }

    /// The units that `initiator` sees.
    #[must_use]
    pub fn lun_map(&self, initiator: &str) -> LunMap {
        let rule = self.access.iter().find(|rule| rule.initiator == initiator);
        let Some(visible) = rule.and_then(|rule| rule.luns.as_ref()) else {
            return self.luns.clone();
        };
        self.luns.iter().filter(|(number, _)| visible.contains(number)).cloned().collect()
    }
}

/// All nodes of a daemon and the portals they share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Nodes {
    nodes: Vec<Arc<Node>>,
    portals: Vec<SocketAddr>,
    discovery: Option<Settings>,
}

impl Nodes {
    pub(crate) fn new(nodes: Vec<Node>, portals: Vec<SocketAddr>) -> Self {
        let discovery = nodes.first().map(|node| node.settings.clone());
        Self { nodes: nodes.into_iter().map(Arc::new).collect(), portals, discovery }
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Arc<Node>> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// Decides on a login as soon as its names are known (RFC 7143 §6.3, §11.13.5).
    pub(crate) fn admit(&self, request: &AdmissionRequest) -> Admission {
        const NOT_FOUND: u16 = 0x0203;
        const FORBIDDEN: u16 = 0x0202;
        const UNAVAILABLE: u16 = 0x0301;
        let (settings, target_alias) = match &request.target {
            Some(name) => match self.find(name).map(|node| &**node) {
                None => return Admission::Refused { status: NOT_FOUND },
                Some(node) if !node.admits(&request.initiator) => {
                    return Admission::Refused { status: FORBIDDEN };
                }
                Some(Node { redirect: Some(redirect), .. }) if !request.discovery => {
                    let Redirect { address, duration } = redirect.clone();
                    return Admission::Redirected { address, duration };
                }
                Some(node) => (node.settings.clone(), node.alias.clone()),
            },
            None => match &self.discovery {
                Some(settings) => (settings.clone(), None),
                None => return Admission::Refused { status: UNAVAILABLE },
            },
        };
        Admission::Granted { portal_group_tag: PORTAL_GROUP_TAG, target_alias, settings }
    }

    /// What SendTargets tells `initiator`, which reached us at `local` (RFC 7143 §C).
    ///
    /// A portal on the wildcard address is listed as the address that this connection came to.
    pub(crate) fn records(
        &self,
        initiator: &str,
        only: Option<&str>,
        local: SocketAddr,
    ) -> Vec<TargetRecord> {
        let mut addresses = Vec::new();
        for portal in &self.portals {
            let mut address = *portal;
            if address.ip().is_unspecified() {
                if address.is_ipv4() != local.is_ipv4() {
                    continue;
                }
                address.set_ip(local.ip());
            }
            let text = format!("{address},{PORTAL_GROUP_TAG}");
            if !addresses.contains(&text) {
                addresses.push(text);
            }
        }
        self.nodes
            .iter()
            .filter(|node| only.is_none_or(|name| name == node.name) && node.admits(initiator))
            .map(|node| TargetRecord { name: node.name.clone(), addresses: addresses.clone() })
            .collect()
    }
}
