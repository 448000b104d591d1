// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What all commands that use disks share: how they log in, how they are interrupted, and how they
//! say what is wrong.

mod account;
pub(crate) mod capture;
pub(crate) mod contents;
pub(crate) mod guest;
pub(crate) mod histogram;
pub(crate) mod isid;
pub(crate) mod layers;
pub(crate) mod leaving;
pub(crate) mod meant;
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
use anyhow::anyhow;
use anyhow::bail;
use control::units;
use control::words;
use engine::Choice;
use initiator::AccessState;
use initiator::Address;
use initiator::AddressError;
use initiator::Begin;
use initiator::Config;
use initiator::DigestOffer;
use initiator::Discovered;
use initiator::Ending;
use initiator::Error;
use initiator::Event;
use initiator::Frames;
use initiator::Kind;
use initiator::Options;
use initiator::PathChange;
use initiator::PathPolicy;
use initiator::Paths;
use initiator::Policy;
use initiator::Queue;
use initiator::SessionId;
use initiator::Settings;
use initiator::Stripe;
use initiator::StripeError;
use initiator::Transport;
use initiator::Url;
use initiator::UrlError;
use iscsi::chap::Algorithm;
use iscsi::initiator::LoginError;
use iscsi::initiator::SessionError;
use wire::scsi::Sense;
use wire::scsi::sam::BUSY;
use wire::scsi::sam::RESERVATION_CONFLICT;
use wire::scsi::sam::TASK_ABORTED;
use wire::scsi::sam::TASK_SET_FULL;

use crate::args::ClientOptions;
use crate::args::Usage;
pub(crate) use crate::client::account::for_destination;
use crate::client::guest::Guest;
pub(crate) use crate::client::leaving::has_left_something;
pub(crate) use crate::client::leaving::is_interrupted;
pub(crate) use crate::client::leaving::is_to_leave;
pub(crate) use crate::client::leaving::set_last_words;
use crate::client::refusal::Identity;
use crate::output;

/// Between two looks whether the user wants an end.
pub(crate) const LOOK: Duration = Duration::from_millis(500);

/// How long to try to log in for the first time.
const FIRST_PATIENCE: Duration = Duration::from_secs(10);

/// Wrong usage that names the option or argument and what it was given.
pub(crate) fn usage(what: &str, given: &str, why: impl std::fmt::Display) -> anyhow::Error {
    Usage(format!("{what} {given}: {why}")).into()
}

/// A number of bytes.
pub(crate) fn size(flag: &str, text: &str) -> Result<u64> {
    store::spec::parse_bytes(text).map_err(|error| usage(flag, text, error))
}

/// A time with its unit.
pub(crate) fn time(flag: &str, text: &str) -> Result<Duration> {
    units::duration(text).map_err(|error| usage(flag, text, error))
}

/// Whether `text` means a disk and not a file.
pub(crate) fn is_url(text: &str) -> bool {
    text.contains("://")
}

/// A URL with target and LUN.
pub(crate) fn disk_url(text: &str) -> Result<Url> {
    Url::parse_disk(text).map_err(|error| wrong_url("URL", text, "", &error))
}

/// A disk: a URL, several with blanks between them that are paths to it, or a stripe of disks.
pub(crate) fn disk_address(text: &str) -> Result<Address> {
    Address::parse(text).map_err(|error| match &error {
        AddressError::Url(text, wrong) => wrong_url("URL", text, "", wrong),
        _ => usage("URL", &initiator::without_secrets(text), error),
    })
}

/// A disk as it was given.
pub(crate) fn disk_name(text: &str) -> Result<String> {
    Ok(disk_address(text)?.to_string())
}

/// A URL with target, and LUN where one is meant.
pub(crate) fn target_url(text: &str) -> Result<Url> {
    match Url::parse(text) {
        Ok(url) if url.target.is_some() => Ok(url),
        _ => disk_url(text),
    }
}

/// A URL that is none, with what may have been meant. `cut`: what nobody wrote before it.
fn wrong_url(what: &str, text: &str, cut: &str, error: &UrlError) -> anyhow::Error {
    let given = initiator::without_secrets(text);
    let given = given.strip_prefix(cut).unwrap_or(&given);
    if let (UrlError::Scheme, Some(meant)) = (error, meant::url_of(given)) {
        return usage(what, given, format!("did you mean {meant}?"));
    }
    if let (UrlError::NoLun, Ok(url)) = (error, Url::parse(text)) {
        let why = format!("{error}; try: lunwire inspect {url}, which shows those that are there");
        return usage(what, given, why);
    }
    let meant = match error {
        UrlError::Option(name) => words::nearest(name, initiator::URL_OPTIONS),
        _ => None,
    };
    match meant {
        Some(meant) => usage(what, given, format!("{error}; did you mean {meant}?")),
        None => usage(what, given, error),
    }
}

/// A portal: a URL without target, or a bare address.
pub(crate) fn portal_url(text: &str) -> Result<Url> {
    if let Some(place) = meant::behind_scheme(&initiator::without_secrets(text)) {
        let shown = initiator::without_secrets(text);
        return Err(usage("PORTAL", &shown, format!("did you mean iscsi://{place}?")));
    }
    let cut = if is_url(text) { "" } else { "iscsi://" };
    let full = format!("{cut}{text}");
    Url::parse(&full).map_err(|error| wrong_url("PORTAL", &full, cut, &error))
}

/// The engine that is asked for.
pub(crate) fn engine(options: &ClientOptions) -> Result<Choice> {
    match options.engine.as_deref() {
        None | Some("auto") => Ok(Choice::Auto),
        Some("uring") => Ok(Choice::Uring),
        Some("epoll") => Ok(Choice::Epoll),
        Some(other) => Err(usage("--engine", other, "auto, uring or epoll is right")),
    }
}

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
fn take(client: &ClientOptions, options: &mut Options) -> Result<()> {
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
fn path_policy(client: &ClientOptions) -> Result<PathPolicy> {
    match client.paths.as_deref() {
        None | Some("least-queued") => Ok(PathPolicy::LeastQueued),
        Some("round-robin") => Ok(PathPolicy::RoundRobin),
        Some("failover") => Ok(PathPolicy::Failover),
        Some(other) => {
            Err(usage("--paths", other, "least-queued, round-robin or failover is right"))
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

/// An error with what to do about it, where there is something to do.
pub(crate) fn advised(error: Error, url: &Url) -> anyhow::Error {
    let what = besides(&error, url);
    match advice(&error, url) {
        Some(advice) => anyhow!("{url}: {what}; {advice}"),
        None => anyhow!("{url}: {what}"),
    }
}

/// What an error says besides the target and the LUN that `url` names before it.
pub(crate) fn besides(error: &Error, url: &Url) -> String {
    let text = error.to_string();
    let target = url.target.as_deref().unwrap_or_default().escape_debug().to_string();
    let lun = format!(", LUN {}", url.lun.unwrap_or(0));
    let rest = text.strip_prefix(&target).map(|rest| rest.strip_prefix(&lun).unwrap_or(rest));
    match rest.and_then(|rest| rest.strip_prefix(": ")) {
        Some(rest) => rest.to_owned(),
        None => text,
    }
}

/// Why the unit of `url` is not one to work with. Where it is not there, those that are.
pub(crate) fn no_unit(
    queue: &mut Queue,
    session: SessionId,
    error: Error,
    url: &Url,
) -> anyhow::Error {
    let may_be_missing = matches!(error.kind(), Kind::NotADisk(_))
        || error.sense().is_some_and(|sense| sense.asc == LOGICAL_UNIT_NOT_SUPPORTED);
    // Any LUN takes it, also one that is not there (SPC-4 §6.33); 0 does at all targets.
    let told = may_be_missing.then(|| initiator::scsi::report_luns(&mut queue.unit(session, 0)));
    let Some(Ok(mut luns)) = told else { return advised(error, url) };
    if luns.contains(&url.lun.unwrap_or(0)) {
        return advised(error, url);
    }
    luns.sort_unstable();
    let error = besides(&error, url);
    let shown: Vec<_> = luns.iter().take(LUNS_SHOWN_MAX).map(u16::to_string).collect();
    match (shown.join(", "), luns.len().saturating_sub(LUNS_SHOWN_MAX)) {
        (_, _) if luns.is_empty() => anyhow!("{url}: {error}, and no other one for us"),
        (shown, 0) => anyhow!("{url}: {error}; LUNs that are there: {shown}"),
        (shown, more) => anyhow!("{url}: {error}; LUNs that are there: {shown} and {more} more"),
    }
}

/// ASC of LOGICAL UNIT NOT SUPPORTED (SPC-4 §F.2).
const LOGICAL_UNIT_NOT_SUPPORTED: u8 = 0x25;

/// More LUNs than these are only counted.
const LUNS_SHOWN_MAX: usize = 32;

/// `; try: lunwire COMMAND WHERE`, unless that is what is being done.
pub(crate) fn try_command(command: &str, place: impl std::fmt::Display) -> String {
    match output::command().is_some_and(|running| running == command) {
        true => String::new(),
        false => format!("; try: lunwire {command} {place}"),
    }
}

const fn begins_with_rdma(url: &Url) -> bool {
    matches!(url.transport, Transport::Iser(Begin::Rdma, _))
}

/// What to do about an error.
fn advice(error: &Error, url: &Url) -> Option<String> {
    let discover = try_command("discover", url.portal());
    let inspect = try_command("inspect", url);
    let alone = |command: &str| command.strip_prefix("; ").map(str::to_owned);
    Some(match error.kind() {
        // It is not the other side that lacks something.
        Kind::Unreachable { .. } if error.to_string().contains("; try: ") => return None,
        Kind::Unreachable { .. } if url.transport == Transport::Ether => {
            let host = &url.host;
            format!(
                "is lunwire serve --ether running there, at the interface with that address, \
                     and is {host} on the same wire?"
            )
        }
        Kind::Unreachable { .. } => {
            let discover = discover.trim_start_matches(';');
            format!("is the target running there?{discover}")
        }
        Kind::Login(LoginError::NotIscsi) => "is the port right? That of iSCSI is 3260".into(),
        Kind::Login(LoginError::NoRdma) => {
            "try: iscsi:// here, or lunwire serve --rdma iwarp there".into()
        }
        Kind::Login(LoginError::Disconnected) if begins_with_rdma(url) => {
            "does it speak iSER, and does its connection begin so? try: ?iser_start=login, \
             iscsi:// in place of iser://, or lunwire serve --rdma iwarp there"
                .into()
        }
        Kind::Login(LoginError::Timeout) => {
            "is it an iSCSI target that listens there, and the port right? --patience TIME says \
             how long to try"
                .into()
        }
        Kind::Login(LoginError::Refused(0x0203)) => return alone(&discover),
        Kind::Login(LoginError::Refused(0x0201 | 0x0202) | LoginError::AuthMethod) => {
            format!(
                "try: --chap-user NAME --chap-secret-file FILE{}, or another --initiator",
                for_destination()
            )
        }
        Kind::Login(LoginError::DigestRequired(key)) => {
            let flag = if *key == "HeaderDigest" { "--header-digest" } else { "--data-digest" };
            format!("try: {flag} preferred")
        }
        Kind::Session(SessionError::TextTimeout(_)) => {
            "is it an iSCSI target? --command-timeout TIME says how long to wait for an answer"
                .into()
        }
        Kind::Session(_) => {
            "try: again; --patience TIME says how long to try to get a session back".into()
        }
        Kind::Status { status: RESERVATION_CONFLICT, .. } => {
            format!("another host has reserved the disk{inspect}")
        }
        Kind::Status { sense: Some(Sense { asc: 0x04, ascq: 0x0b | 0x0c, .. }), .. } => {
            format!(
                "another portal group may be active; try: --portal with a portal of it, of those \
                 that lunwire discover {} shows",
                url.portal()
            )
        }
        Kind::Status { status: BUSY, .. } if error.busy_for().is_some() => {
            "its store does not answer; look at lunwire status there, or wait for longer with \
             --patience TIME"
                .into()
        }
        Kind::Status { status: BUSY | TASK_SET_FULL, .. } => {
            "the target has more to do than it takes; try: again later".into()
        }
        Kind::Status { status: TASK_ABORTED, .. } => {
            "another host ends what is under way there; try: again when it does not".into()
        }
        Kind::OtherDisk { .. } => match output::command().as_deref() {
            Some("shell") => format!("try: login {url}, to go on with the new one"),
            _ => "try: again, from the beginning, if this is the disk that is meant".into(),
        },
        Kind::Ending(Ending::TimedOut) => {
            "try: --command-timeout with more TIME, where the disk is only slow".into()
        }
        Kind::CannotFlush => {
            "try: with its write cache turned off (WCE in the Caching mode page)".into()
        }
        Kind::NotADisk(_) => {
            let target = Url { lun: None, ..url.clone() };
            return alone(&try_command("inspect", format_args!("{target}, which lists its units")));
        }
        Kind::Range { .. } | Kind::Unaligned(_) | Kind::Reformatted { .. } => {
            return alone(&inspect);
        }
        Kind::Fenced { expected, .. } => {
            format!("try: a portal of group {expected} too; nothing is sent before")
        }
        Kind::GroupUntold => "try: when the portal of the lost session is there again".into(),
        Kind::Unsettled { .. } => {
            "try: again, when nobody changes the LUNs of the target; if that is the same the \
             target is at fault"
                .into()
        }
        Kind::Stripe(StripeError::ReadOnly { .. } | StripeError::Same { .. }) => {
            "try: lunwire inspect with each URL".into()
        }
        Kind::OtherPath { .. } | Kind::OtherSize { .. } => {
            "try: lunwire inspect with each URL, which shows names and size of the disk".into()
        }
        Kind::OtherProtection { .. } => {
            "try: the protection of the disk made the same behind both, or the URLs of one kind \
             alone; lunwire inspect shows it"
                .into()
        }
        Kind::InDoubt => {
            "try: a portal of each group in the list of paths, or the lost path brought back".into()
        }
        Kind::WritesLost => "try: again; what was not flushed has to be written once more".into(),
        Kind::Full => "try: fewer or smaller requests at once".into(),
        _ => return None,
    })
}
