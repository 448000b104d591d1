// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What all commands that use disks share: how they log in, how they are interrupted, and how they
//! say what is wrong.

mod account;
mod advice;
pub(crate) mod capture;
pub(crate) mod contents;
mod given;
pub(crate) mod guest;
pub(crate) mod histogram;
pub(crate) mod isid;
pub(crate) mod layers;
pub(crate) mod leaving;
pub(crate) mod meant;
mod options;
pub(crate) mod outfile;
pub(crate) mod pipeline;
pub(crate) mod place;
pub(crate) mod plot;
pub(crate) mod progress;
pub(crate) mod refusal;
pub(crate) mod same;
pub(crate) mod waiting;

use std::time::Duration;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use initiator::AccessState;
use initiator::Address;
use initiator::Config;
use initiator::Discovered;
use initiator::Error;
use initiator::Event;
use initiator::Frames;
use initiator::Options;
use initiator::PathChange;
use initiator::Queue;
use initiator::SessionId;
use initiator::Url;

use crate::args::ClientOptions;
pub(crate) use crate::client::account::for_destination;
pub(crate) use crate::client::advice::advised;
pub(crate) use crate::client::advice::besides;
pub(crate) use crate::client::advice::no_unit;
pub(crate) use crate::client::advice::try_command;
pub(crate) use crate::client::given::disk_address;
pub(crate) use crate::client::given::disk_name;
pub(crate) use crate::client::given::disk_url;
pub(crate) use crate::client::given::is_url;
pub(crate) use crate::client::given::portal_url;
pub(crate) use crate::client::given::size;
pub(crate) use crate::client::given::target_url;
pub(crate) use crate::client::given::time;
pub(crate) use crate::client::given::usage;
use crate::client::guest::Guest;
pub(crate) use crate::client::leaving::has_left_something;
pub(crate) use crate::client::leaving::is_interrupted;
pub(crate) use crate::client::leaving::is_to_leave;
pub(crate) use crate::client::leaving::set_last_words;
pub(crate) use crate::client::options::Way;
pub(crate) use crate::client::options::engine;
pub(crate) use crate::client::options::identity_of;
pub(crate) use crate::client::options::options;
use crate::client::options::path_policy;
use crate::client::options::take;
pub(crate) use crate::client::options::way;
use crate::client::refusal::Identity;
use crate::output;

/// Between two looks whether the user wants an end.
pub(crate) const LOOK: Duration = Duration::from_millis(500);

/// A queue as the options want it, which are right as far as that can be seen without a URL.
pub(crate) fn queue(options: &ClientOptions) -> Result<Guest> {
    take(options, &mut Options::new(String::new(), None))?;
    path_policy(options)?;
    capture::limit(options.capture_limit.as_deref())?;
    let config = Config { engine: engine(options)?, ..Config::default() };
    let mut queue = Queue::new(&config).context("cannot start an engine; try: lunwire explain")?;
    queue.listen(leaving::tell_meanwhile);
    let interrupt = queue.interrupt_handle();
    leaving::catch_signals(move || interrupt.interrupt())?;
    Ok(Guest::new(queue))
}

/// Logs in.
pub(crate) fn login(queue: &mut Queue, client: &ClientOptions, url: &Url) -> Result<SessionId> {
    let options = options(client, url)?;
    let identity = Identity::of(&options);
    let session = queue.open(options).map_err(|error| refusal::advised(error, url, &identity))?;
    leaving::leads_to(session, url);
    match first_of(queue, session, url, |event| matches!(event, Event::Up { .. }))? {
        Event::Ended { error, .. } => {
            let error = error.with_context(|| format!("{url}: the session was closed"))?;
            Err(refusal::advised(error, url, &identity))
        }
        _ => {
            tell_frames([url]);
            Ok(session)
        }
    }
}

/// Which way frames go where that was left to us, and why.
pub(crate) fn tell_frames<'a>(urls: impl IntoIterator<Item = &'a Url>) {
    for Frames { interface, by, is_chosen, .. } in urls.into_iter().filter_map(Url::frames) {
        if is_chosen {
            output::say_once(format_args!("frames at {interface}: {by}"));
        }
    }
}

/// Logs in to a disk, over all its paths, or to all its parts.
pub(crate) fn login_all(
    queue: &mut Queue,
    client: &ClientOptions,
    address: &Address,
) -> Result<SessionId> {
    let url = address.first().context("there is no URL")?;
    let (opened, identity) = match way(client, address)? {
        Way::One(_) => return login(queue, client, url),
        Way::Paths(paths) => {
            let identity = identity_of(&paths)?;
            (queue.open_paths(paths), identity)
        }
        Way::Stripe(stripe) => {
            let identity = identity_of(stripe.members.first().context("there is no URL")?)?;
            (queue.open_stripe(stripe), identity)
        }
    };
    let session = opened.map_err(|error| refusal::advised(error, url, &identity))?;
    leaving::leads_to(session, url);
    match first_of(queue, session, url, |event| matches!(event, Event::Up { .. }))? {
        Event::Ended { error, .. } => {
            let error = error.with_context(|| format!("{url}: the session was closed"))?;
            let url = address.first_of(error.member()).unwrap_or(url);
            Err(refusal::advised(error, url, &identity))
        }
        _ => {
            tell_frames(address.urls());
            Ok(session)
        }
    }
}

/// The targets that are told at `url`. The outer error: the user wanted an end.
pub(crate) fn discover(
    queue: &mut Queue,
    options: Options,
    url: &Url,
) -> Result<Result<Vec<Discovered>, Error>> {
    let session = match queue.open(Options { target: None, ..options }) {
        Ok(session) => session,
        Err(error) => return Ok(Err(error)),
    };
    match first_of(queue, session, url, |event| matches!(event, Event::Targets { .. }))? {
        Event::Targets { result, .. } => {
            queue.logout(session);
            Ok(result)
        }
        Event::Ended { error, .. } => {
            let error = error.with_context(|| format!("{url}: the session was closed"))?;
            Ok(Err(error))
        }
        _ => bail!("{url}: no list of targets came"),
    }
}

/// What becomes of a session that was just opened: the event that `is_it`, or its end. Says
/// meanwhile what is waited for.
fn first_of(
    queue: &mut Queue,
    session: SessionId,
    url: &Url,
    is_it: fn(&Event) -> bool,
) -> Result<Event> {
    let mut told = String::new();
    loop {
        if is_interrupted() {
            bail!("{url}: interrupted before the login was over");
        }
        queue.wait_n(1, LOOK);
        while let Some(event) = queue.reap() {
            match event {
                Event::Up { session: of, .. }
                | Event::Targets { session: of, .. }
                | Event::Ended { session: of, .. }
                    if of == session && (is_it(&event) || matches!(event, Event::Ended { .. })) =>
                {
                    return Ok(event);
                }
                Event::Down { session: of, error } if of == session => {
                    let error = besides(&error, url);
                    if told != error {
                        output::say(format_args!(
                            "{url}: {error}; trying to reach the target for a while"
                        ));
                        told = error;
                    }
                }
                event => tell(&event),
            }
        }
    }
}

/// Says what nobody asked for and everybody should know.
pub(crate) fn tell(event: &Event) {
    match event {
        Event::Down { error, .. } => {
            output::say(format_args!("{error}; trying to get the session back"));
        }
        Event::Overdue { error, .. } => output::say(error),
        Event::Elsewhere { error, .. } => {
            output::say(format_args!("{error}; trying another portal"))
        }
        Event::Again { error, .. } => {
            output::say(format_args!("{error}; trying again for a while"))
        }
        Event::Deferred { error, .. } => output::say(format_args!("warning: {error}")),
        Event::Path { path, change, .. } => tell_of_path(*path, change),
        Event::Adapter { error, .. } => output::say(error),
        Event::Oddity { oddity, .. } => output::say(format_args!("warning: {oddity}")),
        _ => {}
    }
}

pub(crate) fn tell_of_path(path: usize, change: &PathChange) {
    let number = path + 1;
    match change {
        PathChange::Lost(error) => {
            output::say(format_args!("path {number} is lost, and is tried again: {error}"));
        }
        PathChange::Back => output::say(format_args!("path {number} is used")),
        PathChange::Refused(error) => {
            output::say(format_args!("path {number} is not used: {error}"));
        }
        PathChange::Access(state) => {
            let state = match state {
                AccessState::ActiveOptimized => "active, optimized",
                AccessState::ActiveNonOptimized => "active, not optimized",
                AccessState::Standby => "standby",
                AccessState::Transitioning => "transitioning",
                _ => "unavailable",
            };
            output::say(format_args!("path {number}: the access state of its port is {state}"));
        }
        _ => {}
    }
}
