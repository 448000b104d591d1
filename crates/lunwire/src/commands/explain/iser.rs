// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `lunwire explain` says of iSER: of this machine, of the portals of a configuration, and of
//! the way to a URL.

use std::net::IpAddr;
use std::net::SocketAddr;
use std::net::ToSocketAddrs;
use std::net::UdpSocket;

use anyhow::Context;
use anyhow::Result;
use control::units;
use initiator::Options;
use initiator::Transport;
use initiator::Url;
use serde_json::Value;
use serde_json::json;

use crate::daemon::shown;
use crate::output;
use crate::plan::DescribedIser;

/// What carries sessions.
pub(super) const TRANSPORT: &str =
    "TCP; iSER over TCP, or over RDMA adapters, where --rdma iwarp or verbs (rdma) asks for it";

/// What becomes of digests that are asked for together with iSER.
pub(super) const DIGESTS: &str = "None, whatever header-digest and data-digest ask for: who \
     agrees on RDMA agrees on no digests (RFC 7145, section 6.1); the CRC of MPA covers each \
     segment instead, if the initiator asks for it, as ours does; adapters have CRCs of their own";

/// Bytes of a buffer for one message over an adapter.
const BUFFER: u64 = 16 << 10;

/// What a configuration has of iSER, and which adapters there are for it.
#[derive(Debug)]
pub(super) struct Looked {
    iser: DescribedIser,
    adapters: Vec<Adapter>,
}

/// An address at which adapters are to listen, and what is there.
#[derive(Debug)]
struct Adapter {
    address: SocketAddr,
    /// The daemon does not start without it.
    must: bool,
    found: Found,
}

type Found = Result<Option<verbs::Ability>, verbs::VerbsError>;

/// How a URL is reached.
#[derive(Debug)]
pub(super) struct Way {
    portal: String,
    provider: &'static str,
    /// Where adapters go out: None over TCP.
    adapter: Option<Result<(IpAddr, Option<verbs::Ability>)>>,
}

impl Looked {
    /// Looks for the adapters of a configuration.
    pub(super) fn at(iser: DescribedIser) -> Self {
        let look = |(address, must): &(SocketAddr, bool)| Adapter {
            address: *address,
            must: *must,
            found: verbs::at(*address),
        };
        let adapters = iser.adapters.iter().map(look).collect();
        Self { iser, adapters }
    }

    /// A row for each portal that speaks iSER, and for each target whose digests are none there.
    pub(super) fn rows(&self) -> Vec<Vec<String>> {
        let mut rows = Vec::new();
        if !self.iser.portals.is_empty() {
            let portals = self.iser.portals.join(", ");
            rows.push(vec!["iSER at".into(), format!("{portals} by {}", shown::IWARP)]);
        }
        for adapter in &self.adapters {
            let without = match (&adapter.found, adapter.must) {
                (Ok(_), _) => "",
                (Err(_), true) => "; the daemon does not start (rdma = verbs)",
                (Err(_), false) => "; it is left out (rdma = auto)",
            };
            let place = format!("RDMA at {}", adapter.address);
            let found = found(&adapter.found);
            // An error names it, too.
            let found = found.strip_prefix(&format!("{place}: ")).unwrap_or(&found);
            let what = format!("{found}{without}");
            rows.push(vec![place, what]);
        }
        for (target, keys) in &self.iser.without_digests {
            let keys = keys.join(" and ");
            rows.push(vec![
                target.clone(),
                format!("{keys} = required holds over TCP alone: there are no digests over iSER"),
            ]);
        }
        rows
    }

    pub(super) fn json(&self) -> Value {
        let without =
            |(target, keys): &(String, Vec<&str>)| json!({ "target": target, "keys": keys });
        let adapter = |one: &Adapter| {
            let mut told = found_json(one.found.as_ref());
            told["portal"] = one.address.to_string().into();
            told["required"] = one.must.into();
            told
        };
        let without = self.iser.without_digests.iter().map(without);
        json!({
            "provider": shown::IWARP,
            "ird": rdma::limits::READS_MAX,
            "ord": rdma::limits::READS_MAX,
            "digests": "None",
            "why_no_digests": DIGESTS,
            "portals": self.iser.portals,
            "adapter_portals": self.adapters.iter().map(adapter).collect::<Vec<Value>>(),
            "digests_required_over_tcp_alone": without.collect::<Vec<Value>>(),
        })
    }
}

impl Way {
    pub(super) fn row(&self) -> Vec<String> {
        let what = match &self.adapter {
            None => self.provider.to_owned(),
            Some(Ok((local, ability))) => {
                let none = || "any adapter".to_owned();
                format!(
                    "{}, from {local}: {}",
                    self.provider,
                    ability.as_ref().map_or_else(none, can)
                )
            }
            Some(Err(error)) => format!("{}: {}", self.provider, output::chain(error)),
        };
        vec![format!("way to {}", self.portal), what]
    }

    pub(super) fn json(&self) -> Value {
        let mut told = match &self.adapter {
            None => json!({}),
            Some(Ok((local, ability))) => {
                let mut told = ability.as_ref().map_or_else(|| json!({}), ability_json);
                told["local"] = local.to_string().into();
                told
            }
            Some(Err(error)) => json!({ "error": output::chain(error) }),
        };
        told["portal"] = self.portal.clone().into();
        told["provider"] = self.provider.into();
        told
    }
}

/// A URL, if this is one and no file.
pub(super) fn url(text: &str) -> Option<Result<Url>> {
    let is_one =
        text.starts_with("iscsi://") || text.starts_with("iser://") || text.starts_with("ether://");
    is_one.then(|| Url::parse(text).map_err(|error| crate::args::Usage(error.to_string()).into()))
}

/// How it is reached. Nobody there hears of it.
pub(super) fn way(url: &Url) -> Way {
    let portal = url.portal();
    let (provider, adapter) = match Options::of_url(url).transport {
        Transport::Tcp => ("TCP", None),
        Transport::Ether => ("raw Ethernet", None),
        Transport::Iser(..) => (shown::IWARP, None),
        Transport::Verbs => {
            let looked = local_to(&portal).and_then(|local| Ok((local.ip(), verbs::at(local)?)));
            (shown::ADAPTER, Some(looked))
        }
    };
    Way { portal, provider, adapter }
}

/// The address of this machine from which packets go there, of whichever port.
fn local_to(portal: &str) -> Result<SocketAddr> {
    let looked = || {
        let peer = portal.to_socket_addrs()?.next().ok_or(std::io::ErrorKind::NotFound)?;
        let any: IpAddr = match peer {
            SocketAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(peer)?;
        socket.local_addr()
    };
    let found: std::io::Result<SocketAddr> = looked();
    found.with_context(|| format!("no way to {portal} is known"))
}

/// Who does RDMA, and what it offers.
pub(super) fn provided() -> String {
    let reads = rdma::limits::READS_MAX;
    format!(
        "software iWARP, which needs nothing of the kernel: IRD {reads}, ORD {reads}, CRC as the \
         initiator wants, markers where it asks for them, FPDUs cut to TCP's segments; lunwire \
         sessions tells what is in force"
    )
}

fn found(found: &Found) -> String {
    match found {
        Ok(Some(ability)) => can(ability),
        Ok(None) => "all adapters of this machine".into(),
        Err(verbs::VerbsError::Library(error)) => missing(error),
        Err(error) => error.to_string(),
    }
}

fn found_json(found: Result<&Option<verbs::Ability>, &verbs::VerbsError>) -> Value {
    match found {
        Ok(ability) => ability.as_ref().map_or_else(|| json!({}), ability_json),
        Err(error) => json!({ "error": error.to_string() }),
    }
}

fn can(ability: &verbs::Ability) -> String {
    let verbs::Ability { device, ird, ord, .. } = ability;
    let memory = units::bytes(memory(ability));
    let (name, speaks) = (&device.name, speaks(device));
    format!("{name} ({speaks}): IRD {ird}, ORD {ord}, {memory} registered for each session")
}

fn ability_json(ability: &verbs::Ability) -> Value {
    json!({
        "device": ability.device.name,
        "speaks": speaks(&ability.device),
        "ird": ability.ird,
        "ord": ability.ord,
        "registered_bytes_of_session": memory(ability),
    })
}

/// What a session registers for its messages.
fn memory(ability: &verbs::Ability) -> u64 {
    ability.buffers as u64 * BUFFER
}

/// The RDMA adapters, or why there are none.
pub(super) fn adapters(found: &Result<Vec<verbs::Device>, verbs::LibraryError>) -> String {
    match found {
        Ok(devices) if devices.is_empty() => {
            "this machine has no adapter; try: rdma link, or --rdma iwarp, which needs none".into()
        }
        Ok(devices) => {
            let name = |device: &verbs::Device| format!("{} ({})", device.name, speaks(device));
            devices.iter().map(name).collect::<Vec<_>>().join(", ")
        }
        Err(error) => missing(error),
    }
}

/// What is missing, and what to do.
fn missing(error: &verbs::LibraryError) -> String {
    match error {
        verbs::LibraryError::Missing { file, .. } => {
            let name = file.split('.').next().unwrap_or_default();
            format!("{name} is missing: install librdmacm1, ibverbs-providers (for adapters alone)")
        }
        verbs::LibraryError::Broken { file, said, .. } => {
            format!("{file} cannot be loaded: {said} (for adapters alone)")
        }
        error => error.to_string(),
    }
}

fn speaks(device: &verbs::Device) -> &'static str {
    match device.kind {
        verbs::Kind::Iwarp => "iWARP",
        verbs::Kind::Infiniband => "InfiniBand or RoCE",
    }
}

fn adapter_json(device: &verbs::Device) -> Value {
    json!({ "name": device.name, "speaks": speaks(device) })
}

pub(super) fn adapters_json(found: &Result<Vec<verbs::Device>, verbs::LibraryError>) -> Value {
    match found {
        Ok(devices) => {
            let adapters: Vec<Value> = devices.iter().map(adapter_json).collect();
            json!({ "adapters": adapters })
        }
        Err(error) => json!({ "error": error.to_string() }),
    }
}
