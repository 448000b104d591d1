// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a target says of itself to a name server (RFC 4171 §5.6.5).

use std::collections::VecDeque;
use std::net::IpAddr;
use std::net::SocketAddr;
use std::time::Duration;

use wire::isns::Flags;
use wire::isns::Function;
use wire::isns::NODE_TYPE_TARGET;
use wire::isns::PAYLOAD_LEN_MAX;
use wire::isns::PROTOCOL_ISCSI;
use wire::isns::Payload;
use wire::isns::Tag;

use crate::node::Portal;

/// What is registered.
#[derive(Clone, Debug)]
pub(crate) struct Registration {
    /// Names the daemon; the name of its first target, which no other daemon has.
    pub(crate) entity: String,
    /// The targets: name and alias.
    pub(crate) targets: Vec<(String, Option<String>)>,
    /// Where they are reached. For a wildcard address the one that the server sees is registered.
    pub(crate) portals: Vec<Portal>,
}

/// A message to the server.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) function: Function,
    pub(super) flags: Flags,
    pub(super) payload: Payload,
}

impl Registration {
    /// Everything, cut into messages: the first one replaces what a former life of the daemon left,
    /// the others add targets. `posts`: where inquiries are answered, one for each address.
    pub(super) fn register(&self, local: IpAddr, posts: &[SocketAddr]) -> VecDeque<Request> {
        let portals = self.addresses(local);
        let mut requests = VecDeque::new();
        let mut targets = self.targets.iter().peekable();
        while requests.is_empty() || targets.peek().is_some() {
            let mut payload = self.about();
            payload.push_text(Tag::ENTITY, &self.entity);
            payload.push_number(Tag::PROTOCOL, PROTOCOL_ISCSI);
            payload.push_number(Tag::PERIOD, u32::try_from(PERIOD.as_secs()).unwrap_or(u32::MAX));
            for portal in &portals {
                payload.push_address(Tag::PORTAL_ADDRESS, portal.address.ip());
                payload.push_port(Tag::PORTAL_PORT, portal.address.port());
                if let Some(post) = posts.iter().find(|post| post.ip() == portal.address.ip()) {
                    payload.push_number(Tag::INQUIRY_INTERVAL, INQUIRY_SECONDS);
                    payload.push_udp_port(Tag::INQUIRY_PORT, post.port());
                }
            }
            while payload.as_bytes().len() < REQUEST_TARGETS_MAX
                && let Some((name, alias)) = targets.next()
            {
                add_target(&mut payload, name, alias.as_deref(), &portals);
            }
            let first = requests.is_empty();
            let flags = if first { Flags::REPLACE } else { Flags::default() };
            requests.push_back(Request { function: Function::REGISTER, flags, payload });
        }
        requests
    }

    pub(super) fn query(&self) -> Request {
        let mut payload = self.about();
        payload.push_empty(Tag::ENTITY);
        payload.push_empty(Tag::PERIOD);
        Request { function: Function::QUERY, flags: Flags::default(), payload }
    }

    pub(super) fn deregister(&self) -> Request {
        let mut payload = Payload::new();
        payload.push_text(Tag::NAME, &self.entity);
        payload.push_empty(Tag::DELIMITER);
        payload.push_text(Tag::ENTITY, &self.entity);
        Request { function: Function::DEREGISTER, flags: Flags::default(), payload }
    }

    /// Who speaks, and about which entity.
    fn about(&self) -> Payload {
        let mut payload = Payload::new();
        payload.push_text(Tag::NAME, &self.entity);
        payload.push_text(Tag::ENTITY, &self.entity);
        payload.push_empty(Tag::DELIMITER);
        payload
    }

    /// The portals as others reach them.
    pub(super) fn addresses(&self, local: IpAddr) -> Vec<Portal> {
        let mut portals: Vec<Portal> = Vec::new();
        for portal in self.portals.iter().copied() {
            let address = portal.address;
            let ip = if address.ip().is_unspecified() { local } else { address.ip() };
            let reached = SocketAddr::new(ip, address.port());
            let known = portals.iter().any(|portal| portal.address == reached);
            if ip.is_ipv4() == address.is_ipv4() && !known {
                portals.push(Portal { address: reached, ..portal });
            }
        }
        portals.truncate(PORTALS_MAX);
        portals
    }
}

/// A target and its portal group.
fn add_target(payload: &mut Payload, name: &str, alias: Option<&str>, portals: &[Portal]) {
    payload.push_text(Tag::NAME, name);
    payload.push_number(Tag::NODE_TYPE, NODE_TYPE_TARGET);
    if let Some(alias) = alias {
        payload.push_text(Tag::ALIAS, alias);
    }
    for portal in portals {
        payload.push_text(Tag::GROUP_NAME, name);
        payload.push_address(Tag::GROUP_ADDRESS, portal.address.ip());
        payload.push_port(Tag::GROUP_PORT, portal.address.port());
        payload.push_number(Tag::GROUP_TAG, portal.group.into());
    }
}

/// The registration period that we ask for: a daemon that was killed is forgotten in this time.
pub(super) const PERIOD: Duration = Duration::from_secs(300);

/// How often the server shall ask whether a portal is there, seconds: a few times in a period.
pub(super) const INQUIRY_SECONDS: u32 = 60;

/// Portals that are registered: more than the addresses of a big machine.
const PORTALS_MAX: usize = 64;

/// A request takes no further target beyond so many bytes.
const REQUEST_TARGETS_MAX: usize = 32 << 10;

/// Longest target in a request: names of 223 bytes for node, alias and a group for each portal.
const TARGET_MAX: usize = 2 * 280 + PORTALS_MAX * (240 + 24 + 12 + 12);

const _: () = assert!(REQUEST_TARGETS_MAX + TARGET_MAX <= PAYLOAD_LEN_MAX);
