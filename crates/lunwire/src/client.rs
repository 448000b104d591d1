// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What all commands that use disks share: how they log in, how they are interrupted, and how they
//! say what is wrong.

pub(crate) mod histogram;
pub(crate) mod pipeline;
pub(crate) mod place;
pub(crate) mod plot;
pub(crate) mod progress;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context;
use anyhow::Result;
use anyhow::anyhow;
use control::units;
use engine::Choice;
use initiator::Config;
use initiator::DigestOffer;
use initiator::Error;
use initiator::Kind;
use initiator::Options;
use initiator::Queue;
use initiator::SessionId;
use initiator::Url;
use iscsi::chap::Account;
use iscsi::chap::Credentials;
use iscsi::chap::Secret;
use iscsi::initiator::LoginError;
use signal_hook::consts::SIGINT;
use signal_hook::consts::SIGTERM;

use crate::args::ClientOptions;
use crate::args::Usage;
use crate::credentials::Accounts;
use crate::credentials::secret_of_environment;

/// Wrong usage that names the option or argument and what it was given.
fn usage(what: &str, given: &str, why: impl std::fmt::Display) -> anyhow::Error {
    Usage(format!("{what} {given}: {why}")).into()
}

/// A size with K, M, G or T.
pub(crate) fn size(flag: &str, text: &str) -> Result<u64> {
    store::spec::parse_size(text).map_err(|error| usage(flag, text, error))
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
    Url::parse_disk(text).map_err(|error| usage("URL", &without_secret(text), error))
}

/// A portal: a URL without target, or a bare address.
pub(crate) fn portal_url(text: &str) -> Result<Url> {
    let full = if is_url(text) { text.to_owned() } else { format!("iscsi://{text}") };
    Url::parse(&full).map_err(|error| usage("PORTAL", &without_secret(text), error))
}

/// Secrets do not go into messages.
fn without_secret(text: &str) -> String {
    match (text.find('%'), text.rfind('@')) {
        (Some(from), Some(to)) if from < to => {
            let (head, tail) = (text.get(..from), text.get(to..));
            format!("{}{}", head.unwrap_or_default(), tail.unwrap_or_default())
        }
        _ => text.to_owned(),
    }
}

/// A queue as the options want it.
pub(crate) fn queue(options: &ClientOptions) -> Result<Queue> {
    let engine = match options.engine.as_deref() {
        None | Some("auto") => Choice::Auto,
        Some("uring") => Choice::Uring,
        Some("epoll") => Choice::Epoll,
        Some(other) => return Err(usage("--engine", other, "auto, uring or epoll is right")),
    };
    let config = Config { engine, ..Config::default() };
    Queue::new(&config).context("cannot start an engine; try: lunwire explain")
}

/// Everything that a login to `url` needs.
pub(crate) fn options(client: &ClientOptions, url: &Url) -> Result<Options> {
    let mut options = Options::of_url(url);
    options.portals.extend(client.portal.iter().cloned());
    if let Some(name) = &client.initiator {
        options.initiator = iscsi::name::normalize_configured(name)
            .map_err(|error| usage("--initiator", name, error))?;
    }
    options.settings.header_digest = digest("--header-digest", client.header_digest.as_deref())?;
    options.settings.data_digest = digest("--data-digest", client.data_digest.as_deref())?;
    if let Some(patience) = &client.patience {
        options.reconnect_patience = time("--patience", patience)?;
    }
    options.account = account(client, url)?;
    Ok(options)
}

fn digest(flag: &str, text: Option<&str>) -> Result<DigestOffer> {
    match text {
        None | Some("allowed") => Ok(DigestOffer::Allowed),
        Some("off") => Ok(DigestOffer::Off),
        Some("preferred") => Ok(DigestOffer::Preferred),
        Some("required") => Ok(DigestOffer::Required),
        Some(other) => Err(usage(flag, other, "off, allowed, preferred or required is right")),
    }
}

/// By what we prove who we are; options come before the URL.
fn account(client: &ClientOptions, url: &Url) -> Result<Option<Arc<Account>>> {
    let mut accounts = Accounts::default();
    let own = match (&client.chap_secret_env, &client.chap_secret_file, &url.secret) {
        (Some(variable), _, _) => {
            let user = client.chap_user.as_ref().or(url.user.as_ref());
            let user =
                user.ok_or_else(|| usage("--chap-secret-env", variable, "--chap-user is missing"))?;
            let secret = secret_of_environment(variable)
                .map_err(|error| usage("--chap-secret-env", variable, error))?;
            Some(credentials(user, secret)?)
        }
        (None, None, Some(secret)) => {
            let user = client.chap_user.as_ref().or(url.user.as_ref());
            let secret = Secret::from_text(secret.as_bytes())
                .map_err(|error| usage("URL", &url.to_string(), error))?;
            user.map(|user| credentials(user, secret)).transpose()?
        }
        (None, file, _) => {
            let user = client.chap_user.as_ref().or(url.user.as_ref());
            accounts.pair("chap", user, file.as_ref())?
        }
    };
    let (user, file) = (client.mutual_user.as_ref(), client.mutual_secret_file.as_ref());
    let target = accounts.pair("mutual", user, file)?;
    for warning in accounts.warnings() {
        eprintln!("lunwire: warning: {warning}");
    }
    match (own, target) {
        (None, None) => Ok(None),
        (None, Some(_)) => {
            Err(Usage("--mutual-user: --chap-user and its secret are missing".into()).into())
        }
        (Some(own), target) => {
            let account = Account::new(own, target);
            Ok(Some(Arc::new(account.map_err(|error| Usage(error.to_string()))?)))
        }
    }
}

fn credentials(user: &str, secret: Secret) -> Result<Credentials> {
    Credentials::new(user.to_owned(), secret).map_err(|error| usage("--chap-user", user, error))
}

/// Logs in.
pub(crate) fn login(queue: &mut Queue, client: &ClientOptions, url: &Url) -> Result<SessionId> {
    queue.login(options(client, url)?).map_err(|error| advised(error, url))
}

/// An error with what to do about it, where there is something to do.
pub(crate) fn advised(error: Error, url: &Url) -> anyhow::Error {
    let portal = url.portal();
    let advice = match error.kind() {
        Kind::Unreachable { .. } => {
            format!("is the target running there? try: lunwire discover {portal}")
        }
        Kind::Login(LoginError::Refused(0x0203)) => format!("try: lunwire discover {portal}"),
        Kind::Login(LoginError::Refused(0x0201 | 0x0202) | LoginError::AuthMethod) => {
            "try: --chap-user NAME --chap-secret-file FILE, or another --initiator".into()
        }
        Kind::NotADisk(_) => format!("try: lunwire inspect {url}"),
        _ => return anyhow!("{url}: {error}"),
    };
    anyhow!("{url}: {error}; {advice}")
}

/// Set once the user wants an end (SIGINT, SIGTERM); a second signal ends the process at once.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on signals set the flag, and wake `queue`.
    pub(crate) fn catch(queue: &Queue) -> Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // The second one, which finds the flag set.
            signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&flag))
                .context("cannot catch signals")?;
            signal_hook::flag::register(signal, Arc::clone(&flag))
                .context("cannot catch signals")?;
        }
        let waker = queue.waker();
        let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            for _ in signals.forever() {
                waker.wake();
            }
        })?;
        Ok(Self(flag))
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
