// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The session with the target, which the user may have to wait for.

use std::sync::mpsc;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::mpsc::Sender;
use std::time::Duration;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use initiator::Address;
use initiator::Initiator;
use initiator::Options;
use initiator::Session;
use initiator::Url;

use super::background;
use super::ublk::Claim;
use super::ublk::Mark;
use crate::args::ClientOptions;
use crate::client;
use crate::client::Way;
use crate::client::refusal;
use crate::client::refusal::Identity;
use crate::client::same;
use crate::client::waiting;
use crate::output;
use crate::remains::Remains;

/// Of a login that takes longer the user hears.
const SOON: Duration = Duration::from_secs(2);

/// So many paths more than are given now a disk may have had before.
const PATHS_BEFORE: u16 = 8;

/// Operations wait for `patience` when there is no way. Sessions go by the names of `claim`.
pub(super) fn patient(mut way: Way, patience: Duration, claim: Option<&Claim>) -> Way {
    for (number, options) in (0..).zip(options_of(&mut way)) {
        options.reconnect_patience = patience;
        options.takes_over = claim.is_some_and(|claim| claim.orphan.is_some());
        options.isid = options.isid.or_else(|| claim.map(|claim| claim.mark.isid(number)));
    }
    way
}

/// Has the sessions written down, which are over the URLs of `ways`.
pub(super) fn remember(remains: &mut Remains, way: &mut Way, ways: &Address) {
    for (url, options) in ways.urls().zip(options_of(way)) {
        remains.remember(url, options);
    }
}

/// Ends what processes that are gone have left of theirs.
pub(super) fn end_what_remains(
    remains: &Remains,
    initiator: &Initiator,
    session: &Session,
    address: &Address,
    client: &ClientOptions,
) -> Result<()> {
    let url = address.first().context("there is no URL")?;
    let name = same::name_of(session, url).map_err(|error| client::advised(error, url))?;
    let what = "trying to end what a process that was killed has left of its session";
    let _patience = Patience::begin(format!("{address}: {what}"))?;
    remains.end(&name, initiator, |url| client::options(client, url))
}

/// Of each path.
fn options_of(way: &mut Way) -> Vec<&mut Options> {
    match way {
        Way::One(options) => vec![options],
        Way::Paths(paths) => paths.paths.iter_mut().map(|(options, _)| options).collect(),
        Way::Stripe(stripe) => {
            let members = stripe.members.iter_mut();
            members.flat_map(|paths| &mut paths.paths).map(|(options, _)| options).collect()
        }
    }
}

/// Ends what the process before has left of its sessions where the disk is now, whichever path of
/// how many that was: each had the next ISID.
pub(super) fn end_sessions(
    initiator: &Initiator,
    way: &mut Way,
    mark: Mark,
    url: &Url,
) -> Result<()> {
    let all = options_of(way);
    let before = PATHS_BEFORE.saturating_add(u16::try_from(all.len()).unwrap_or(u16::MAX));
    for options in all {
        for path in 0..before {
            let isid = Some(mark.isid(path));
            let session = initiator.connect(Options { isid, ..options.clone() });
            let identity = Identity::of(options);
            session.map_err(|error| refusal::advised(error, url, &identity))?.logout();
        }
    }
    Ok(())
}

pub(super) fn log_in(initiator: &Initiator, way: Way, address: &Address) -> Result<Session> {
    let url = address.first().context("there is no URL")?;
    let _patience = Patience::begin(format!("{address}: trying to reach the target for a while"))?;
    let (login, identity) = match way {
        Way::One(options) => {
            let identity = Identity::of(&options);
            (initiator.begin(*options), identity)
        }
        Way::Paths(paths) => {
            let identity = client::identity_of(&paths)?;
            (initiator.begin_paths(paths), identity)
        }
        Way::Stripe(stripe) => {
            let first = stripe.members.first().context("there is no URL")?;
            let identity = client::identity_of(first)?;
            (initiator.begin_stripe(stripe), identity)
        }
    };
    match waiting::unless_given_up(login) {
        Some(Ok(session)) => {
            client::tell_frames(address.urls());
            Ok(session)
        }
        None if !client::is_interrupted() => bail!(background::FORSAKEN),
        None => bail!("{url}: interrupted before the login was over"),
        Some(Err(_)) if client::is_interrupted() => bail!("{url}: interrupted"),
        Some(Err(error)) => {
            let url = address.first_of(error.member()).unwrap_or(url);
            Err(refusal::advised(error, url, &identity))
        }
    }
}

/// Tells what takes long, unless it is dropped before.
struct Patience {
    _end: Sender<()>,
}

impl Patience {
    fn begin(what: String) -> Result<Self> {
        let (end, ended) = mpsc::channel::<()>();
        std::thread::Builder::new().name("patience".into()).spawn(move || {
            if ended.recv_timeout(SOON) == Err(RecvTimeoutError::Timeout) {
                output::say(what);
            }
        })?;
        Ok(Self { _end: end })
    }
}
