// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the options of a login mean, which all commands that use disks have.

use std::time::Duration;

use anyhow::Context;
use anyhow::Result;
use engine::Choice;
use initiator::Address;
use initiator::DigestOffer;
use initiator::Options;
use initiator::PathPolicy;
use initiator::Paths;
use initiator::Policy;
use initiator::Settings;
use initiator::Stripe;
use initiator::Transport;
use initiator::Url;
use iscsi::chap::Algorithm;

use super::account;
use super::capture;
use super::given::time;
use super::given::usage;
use super::isid;
use super::refusal::Identity;
use crate::args::ClientOptions;
use crate::args::Usage;
use crate::output;

/// How long to try to log in for the first time.
const FIRST_PATIENCE: Duration = Duration::from_secs(10);

/// The engine that is asked for.
pub(crate) fn engine(options: &ClientOptions) -> Result<Choice> {
    match options.engine.as_deref() {
        None | Some("auto") => Ok(Choice::Auto),
        Some("uring") => Ok(Choice::Uring),
        Some("epoll") => Ok(Choice::Epoll),
        Some(other) => Err(usage("--engine", other, "auto, uring or epoll is right")),
    }
}

/// Everything that a login to `url` needs.
pub(crate) fn options(client: &ClientOptions, url: &Url) -> Result<Options> {
    let mut options = Options { connect_patience: FIRST_PATIENCE, ..Options::of_url(url) };
    if let Some(target) = &url.target
        && let Some(departure) = iscsi::name::departure(target)
    {
        let target = output::on_one_line(target);
        output::warn(format!("target {target}: {departure}; it is sent as it is"));
    }
    take(client, &mut options)?;
    warn_of_digests(&options);
    warn_of_the_rest(&options);
    options.account = account::of(client, url)?;
    options.capture = capture::of(client)?;
    Ok(options)
}

/// Who wants digests is told where there are none.
fn warn_of_digests(options: &Options) {
    let Settings { header_digest, data_digest, .. } = &options.settings;
    let wants =
        |offer: &DigestOffer| matches!(offer, DigestOffer::Preferred | DigestOffer::Required);
    if !wants(header_digest) && !wants(data_digest) {
        return;
    }
    let instead = match options.transport {
        Transport::Tcp | Transport::Ether => return,
        Transport::Iser(..) => {
            "the CRC of MPA covers each segment instead, unless the URL has mpa_crc=none"
        }
        Transport::Verbs => "adapters have CRCs of their own on the way",
    };
    output::warn(format!(
        "there are no digests over iSER (RFC 7145): HeaderDigest and DataDigest are None; {instead}"
    ));
}

/// Who wants what else there is on a byte stream alone is told, too.
fn warn_of_the_rest(options: &Options) {
    let Settings { error_recovery_level, markers, .. } = &options.settings;
    if !matches!(options.transport, Transport::Tcp | Transport::Ether) && *markers {
        output::warn("--markers is for iSCSI over TCP: over iSER it does nothing");
    }
    if options.transport == Transport::Verbs && *error_recovery_level > 1 {
        output::warn("--recovery-level: over RDMA adapters it is 1 at most");
    }
}

/// A portal of `--portal`.
fn further_portal(text: &str) -> Result<String> {
    let shown = initiator::without_secrets(text);
    if text.contains('@') {
        return Err(usage("--portal", &shown, "ADDR[:PORT] is right; users go into the URL"));
    }
    if text.contains(['/', '?']) {
        return Err(usage("--portal", &shown, "ADDR[:PORT] alone is right"));
    }
    match Url::parse(&format!("iscsi://{text}")) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(usage("--portal", &shown, error)),
    }
}

/// What holds for all URLs.
pub(super) fn take(client: &ClientOptions, options: &mut Options) -> Result<()> {
    let portals: Result<Vec<String>> =
        client.portal.iter().map(|text| further_portal(text)).collect();
    options.portals.extend(portals?);
    if let Some(name) = &client.initiator {
        options.initiator = iscsi::name::normalize_configured(name)
            .map_err(|error| usage("--initiator", name, error))?;
    }
    negotiate(client, &mut options.settings)?;
    options.enterprise = client.enterprise_number;
    options.isid = client.isid.as_deref().map(isid::parse).transpose()?;
    if let Some(patience) = &client.patience {
        options.reconnect_patience = time("--patience", patience)?;
        options.connect_patience = options.reconnect_patience;
    }
    if let Some(limit) = &client.command_timeout {
        options.settings.command_timeout = time("--command-timeout", limit)?;
    }
    if !client.chap_algorithms.is_empty() {
        let named = |name: &String| {
            let known = Algorithm::ALL.into_iter().find(|known| known.name() == name);
            let right = "sha3-256, sha256, sha1 or md5 is right";
            known.ok_or_else(|| usage("--chap-algorithms", name, right))
        };
        options.algorithms = client.chap_algorithms.iter().map(named).collect::<Result<_>>()?;
    }
    Ok(())
}

/// What is asked for in negotiation.
fn negotiate(client: &ClientOptions, settings: &mut Settings) -> Result<()> {
    // What the URL says counts unless an option says something else.
    if let Some(offer) = &client.header_digest {
        settings.header_digest = digest("--header-digest", offer)?;
    }
    if let Some(offer) = &client.data_digest {
        settings.data_digest = digest("--data-digest", offer)?;
    }
    settings.connections = client.connections;
    settings.policy = match client.policy.as_deref() {
        None | Some("round-robin") => Policy::RoundRobin,
        Some("least-outstanding") => Policy::LeastOutstanding,
        Some(other) => {
            return Err(usage("--policy", other, "round-robin or least-outstanding is right"));
        }
    };
    settings.error_recovery_level = client.recovery_level;
    settings.data_pdu_in_order = !client.any_order;
    settings.data_sequence_in_order = !client.any_order;
    settings.markers = client.markers;
    settings.fast_abort = client.fast_abort;
    Ok(())
}

fn digest(flag: &str, text: &str) -> Result<DigestOffer> {
    match text {
        "allowed" => Ok(DigestOffer::Allowed),
        "off" => Ok(DigestOffer::Off),
        "preferred" => Ok(DigestOffer::Preferred),
        "required" => Ok(DigestOffer::Required),
        other => Err(usage(flag, other, "off, allowed, preferred or required is right")),
    }
}

/// How to reach a disk.
#[derive(Debug)]
pub(crate) enum Way {
    One(Box<Options>),
    Paths(Paths),
    Stripe(Stripe),
}

/// How to reach what stands at `address`, as the options want it.
pub(crate) fn way(client: &ClientOptions, address: &Address) -> Result<Way> {
    match address {
        Address::Paths(urls) => match urls.as_slice() {
            [url] => {
                path_policy(client)?;
                Ok(Way::One(Box::new(options(client, url)?)))
            }
            urls => paths(client, urls).map(Way::Paths),
        },
        Address::Stripe { chunk, members } => {
            let members = members.iter().map(|urls| paths(client, urls)).collect::<Result<_>>()?;
            Ok(Way::Stripe(Stripe { chunk: *chunk, members }))
        }
    }
}

/// As whom the first path is asked for.
pub(crate) fn identity_of(paths: &Paths) -> Result<Identity> {
    let (first, _) = paths.paths.first().context("there is no URL")?;
    Ok(Identity::of(first))
}

/// The paths of several URLs, as the options want them.
fn paths(client: &ClientOptions, urls: &[Url]) -> Result<Paths> {
    isid::refuse_for_two(client, "of several URLs")?;
    if !client.portal.is_empty() {
        return Err(Usage("--portal: with several URLs each one is a path by itself".into()).into());
    }
    let path = |url: &Url| Ok((options(client, url)?, url.lun.unwrap_or(0)));
    let paths = urls.iter().map(path).collect::<Result<Vec<_>>>()?;
    Ok(Paths { paths, policy: path_policy(client)? })
}

/// Which path a request goes over.
pub(super) fn path_policy(client: &ClientOptions) -> Result<PathPolicy> {
    match client.paths.as_deref() {
        None | Some("least-queued") => Ok(PathPolicy::LeastQueued),
        Some("round-robin") => Ok(PathPolicy::RoundRobin),
        Some("failover") => Ok(PathPolicy::Failover),
        Some(other) => {
            Err(usage("--paths", other, "least-queued, round-robin or failover is right"))
        }
    }
}
