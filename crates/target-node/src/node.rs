// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Target nodes: names, LUN maps, access lists, and who is let in (RFC 7143 §4.2.7, §6.3).

use std::net::Ipv4Addr;
use std::net::Ipv6Addr;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::RwLock;
use std::sync::RwLockReadGuard;
use std::sync::RwLockWriteGuard;

use iscsi::chap::Account;
use iscsi::chap::Challenge;
use iscsi::target_role::Admission;
use iscsi::target_role::AdmissionRequest;
use iscsi::target_role::Redirection;
use iscsi::target_role::Settings;
use iscsi::target_role::TargetRecord;
use iscsi::target_role::TargetReset;
use scsi::LogicalUnit;

use crate::authentication::AuthenticationPolicy;
use crate::authentication::Demand;

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
    fn account(&self, initiator: &str) -> Option<&Arc<Account>> {
        self.rule(initiator)?.account.as_ref()
    }

    /// What to negotiate for with `initiator`, and what it may do.
    fn settings_for(&self, initiator: &str) -> Settings {
        let own = self.rule(initiator).and_then(|rule| rule.target_reset);
        let target_reset = own.unwrap_or(self.settings.target_reset);
        Settings { target_reset, ..self.settings.clone() }
    }

    /// Whether `initiator` sees the unit of this number.
    fn shows(&self, initiator: &str, number: u16) -> bool {
        self.rule(initiator)
            .and_then(|rule| rule.luns.as_ref())
            .is_none_or(|luns| luns.contains(&number))
    }
}

/// Whether anybody can prove who it is in a session with a disk of `nodes`.
pub(crate) fn takes_proof(nodes: &[Node]) -> bool {
    nodes.iter().any(|node| node.authentication.demand != Demand::Off)
}

/// A node while it is served: its units come and go.
#[derive(Debug)]
pub(crate) struct Served {
    node: Node,
    /// Instead of those of the node.
    luns: RwLock<Luns>,
}

#[derive(Debug)]
struct Luns {
    /// By number.
    map: LunMap,
    /// Units that are for these initiators alone, whatever the rules of the node say.
    only: Vec<(u16, Vec<String>)>,
    /// Numbers of units that have gone.
    gone: Vec<u16>,
}

impl Luns {
    fn shows(&self, node: &Node, initiator: &str, number: u16) -> bool {
        match self.only.iter().find(|(of, _)| *of == number) {
            Some((_, initiators)) => initiators.iter().any(|name| name == initiator),
            None => node.shows(initiator, number),
        }
    }
}

impl Served {
    fn new(node: Node) -> Self {
        let mut node = node;
        let map = std::mem::take(&mut node.luns);
        Self { node, luns: RwLock::new(Luns { map, only: Vec::new(), gone: Vec::new() }) }
    }

    pub(crate) fn node(&self) -> &Node {
        &self.node
    }

    /// The units now, by number.
    pub(crate) fn luns(&self) -> LunMap {
        self.read().map.clone()
    }

    /// The units that `initiator` sees now.
    pub(crate) fn lun_map(&self, initiator: &str) -> LunMap {
        let luns = self.read();
        let shown = luns.map.iter().filter(|(lun, _)| luns.shows(&self.node, initiator, *lun));
        shown.cloned().collect()
    }

    /// Logins from now on see one more unit: those of `initiators`, or without any all that the
    /// rules let see it.
    pub(crate) fn add_lun(&self, lun: u16, unit: Arc<LogicalUnit>, initiators: Vec<String>) {
        let mut luns = self.write();
        luns.map.push((lun, unit));
        luns.map.sort_by_key(|(number, _)| *number);
        if !initiators.is_empty() {
            luns.only.push((lun, initiators));
        }
    }

    /// Whether there is somebody whom the rules let see the unit of this number.
    pub(crate) fn is_for_somebody(&self, lun: u16) -> bool {
        let luns = self.read();
        let (node, access) = (&self.node, &self.node.access);
        access.is_empty() || access.iter().any(|rule| luns.shows(node, &rule.initiator, lun))
    }

    /// Logins from now on see a unit no more.
    pub(crate) fn remove_lun(&self, lun: u16) {
        let mut luns = self.write();
        luns.map.retain(|(number, _)| *number != lun);
        luns.only.retain(|(number, _)| *number != lun);
        if !luns.gone.contains(&lun) {
            luns.gone.push(lun);
        }
    }

    /// True if no unit had this number since the target is served.
    pub(crate) fn is_unused(&self, lun: u16) -> bool {
        let luns = self.read();
        !luns.gone.contains(&lun) && !luns.map.iter().any(|(number, _)| *number == lun)
    }

    fn read(&self) -> RwLockReadGuard<'_, Luns> {
        self.luns.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Luns> {
        self.luns.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All nodes of a daemon and the portals they share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Nodes {
    nodes: Vec<Arc<Served>>,
    portals: Vec<Portal>,
    settings: Option<Settings>,
    discovery: AuthenticationPolicy,
    /// An initiator is not told that a target exists which it may not use.
    hide: bool,
}

impl Nodes {
    /// `discovery`: what initiators have to prove in discovery sessions.
    pub(crate) fn new(
        nodes: Vec<Node>,
        portals: Vec<Portal>,
        discovery: AuthenticationPolicy,
    ) -> Self {
        let settings = nodes.first().map(|node| node.settings.clone());
        let nodes = nodes.into_iter().map(Served::new).map(Arc::new).collect();
        Self { nodes, portals, settings, discovery, hide: false }
    }

    /// Whether a forbidden target is answered as an unknown one (RFC 7143 §11.13.5).
    pub(crate) fn hidden(self, hide: bool) -> Self {
        Self { hide, ..self }
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Arc<Served>> {
        let name = iscsi::name::prepared(name);
        self.nodes.iter().find(|served| served.node.name == name)
    }

    /// All nodes.
    pub(crate) fn all(&self) -> &[Arc<Served>] {
        &self.nodes
    }

    /// The tags of all portal groups, ascending.
    pub(crate) fn portal_groups(&self) -> Vec<u16> {
        let mut tags: Vec<u16> = self.portals.iter().map(|portal| portal.group).collect();
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

    /// The portal group that took a connection to `local`.
    pub(crate) fn portal_group(&self, local: SocketAddr) -> u16 {
        let of_port = || self.portals.iter().filter(|portal| portal.address.port() == local.port());
        let exact = of_port().find(|portal| portal.address.ip() == local.ip());
        exact.or_else(|| of_port().next()).map_or(PORTAL_GROUP_TAG, |portal| portal.group)
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
            None => match &self.settings {
                Some(settings) => (settings.clone(), None, None),
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

#[cfg(test)]
mod tests {
    use super::*;
    use iscsi::chap::Algorithm;
    use iscsi::chap::Credentials;
    use iscsi::chap::Secret;
    use iscsi::target_role::Authentication;
    use wire::iscsi::Cid;
    use wire::iscsi::Isid;
    use wire::iscsi::Tsih;

    const DISK: &str = "iqn.2026-01.com.example:disk";

    fn account(user: &str) -> Option<Arc<Account>> {
        let secret = Secret::new(format!("secret of {user}!").as_bytes()).unwrap();
        let credentials = Credentials::new(user.into(), secret).unwrap();
        Some(Arc::new(Account::new(credentials, None).unwrap()))
    }

    fn policy(demand: Demand, user: Option<&str>) -> AuthenticationPolicy {
        let algorithms = Algorithm::ALL.to_vec();
        AuthenticationPolicy { demand, algorithms, account: user.and_then(account) }
    }

    /// One target with access for `a` and `b`, each with its own account.
    fn nodes(discovery: AuthenticationPolicy) -> Nodes {
        let rule = |name: &str| AccessRule {
            initiator: format!("iqn.2026-01.com.example:{name}"),
            luns: None,
            account: account(name),
            target_reset: None,
        };
        let node = Node {
            name: DISK.into(),
            alias: None,
            luns: Vec::new(),
            access: vec![rule("alice"), rule("bob")],
            authentication: policy(Demand::Required, None),
            settings: Settings::default(),
            redirect: None,
        };
        Nodes::new(vec![node], Vec::new(), discovery)
    }

    fn request(initiator: &str, target: Option<&str>, discovery: bool) -> AdmissionRequest {
        AdmissionRequest {
            initiator: format!("iqn.2026-01.com.example:{initiator}"),
            target: target.map(Into::into),
            discovery,
            isid: Isid([0; 6]),
            tsih: Tsih(0),
            cid: Cid(0),
        }
    }

    fn admit(nodes: &Nodes, request: &AdmissionRequest) -> Authentication {
        match nodes.admit(request, 1, || Challenge::new(1, &[1; 32])) {
            Admission::Granted { authentication, .. } => authentication,
            refused => panic!("{refused:?}"),
        }
    }

    #[test]
    fn portals_are_listed_with_their_groups() {
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let portals = vec![
            Portal { address: address("0.0.0.0:3260"), group: 1 },
            Portal { address: address("192.0.2.2:3261"), group: 7 },
        ];
        let node = nodes(AuthenticationPolicy::default()).nodes[0].node().clone();
        let nodes = Nodes::new(vec![node], portals, AuthenticationPolicy::default());
        let local = address("192.0.2.2:3260");
        let records = nodes.records("iqn.2026-01.com.example:alice", None, local);
        assert_eq!(records[0].addresses, ["192.0.2.2:3260,1", "192.0.2.2:3261,7"]);
        assert_eq!(nodes.portal_group(local), 1);
        assert_eq!(nodes.portal_group(address("192.0.2.2:3261")), 7);
        assert_eq!(nodes.portal_group(address("192.0.2.2:9")), PORTAL_GROUP_TAG);
    }

    /// The peer of a daemon that hides its targets cannot tell these apart; we can.
    #[test]
    fn a_refusal_has_its_reason_for_the_log() {
        let stranger = request("mallory", Some(DISK), false);
        let lost = request("alice", Some("iqn.2026-01.com.example:none"), false);
        for hide in [false, true] {
            let nodes = nodes(AuthenticationPolicy::default()).hidden(hide);
            let reason = |request| match nodes.admit(request, 1, || None) {
                Admission::Refused { status, reason } => (status, reason),
                admitted => panic!("{admitted:?}"),
            };
            let status = if hide { 0x0203 } else { 0x0202 };
            let listed = "the initiator is not on the list of the target";
            assert_eq!(reason(&stranger), (status, listed));
            assert_eq!(reason(&lost), (0x0203, "no such target is served here"));
        }
    }

    #[test]
    fn an_initiator_can_prove_its_own_name_only() {
        let nodes = nodes(policy(Demand::Off, None));
        let shown = format!("{:?}", admit(&nodes, &request("alice", Some(DISK), false)));
        assert!(shown.contains("\"alice\"") && !shown.contains("\"bob\""), "{shown}");
        let stranger = nodes.admit(&request("carol", Some(DISK), false), 1, || None);
        assert!(matches!(stranger, Admission::Refused { status: 0x0202, .. }));
    }

    #[test]
    fn discovery_has_a_policy_of_its_own() {
        for target in [None, Some(DISK)] {
            let request = request("alice", target, true);
            let open = nodes(policy(Demand::Off, None));
            assert!(matches!(admit(&open, &request), Authentication::Off));
            let guarded = nodes(policy(Demand::Required, Some("finder")));
            let Authentication::Required(exchange) = admit(&guarded, &request) else {
                panic!("discovery must be guarded");
            };
            let shown = format!("{exchange:?}");
            assert!(shown.contains("\"finder\"") && !shown.contains("\"alice\""), "{shown}");
        }
    }

    #[test]
    fn without_randomness_a_login_is_refused() {
        let nodes = nodes(policy(Demand::Off, None));
        let refused = nodes.admit(&request("alice", Some(DISK), false), 1, || None);
        assert!(matches!(refused, Admission::Refused { status: 0x0300, .. }));
    }
}
