// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `lunwire_options_set` knows. Names are those of the options of the command `lunwire`, as
//! far as that has them.

use std::fmt;
use std::io::Read;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use initiator::Account;
use initiator::Algorithm;
use initiator::Auth;
use initiator::Capture;
use initiator::Choice;
use initiator::Config;
use initiator::Credentials;
use initiator::DigestOffer;
use initiator::Isid;
use initiator::Options;
use initiator::PathPolicy;
use initiator::Paths;
use initiator::Policy;
use initiator::Secret;
use initiator::Url;
use zeroize::Zeroizing;

use crate::code::Code;
use crate::code::Failure;
use crate::limits;

/// The names that `set` knows.
pub(crate) const NAMES: [&str; 46] = [
    "alias",
    "any-order",
    "capture",
    "capture-limit",
    "chap-algorithms",
    "chap-secret",
    "chap-secret-env",
    "chap-secret-file",
    "chap-user",
    "command-timeout",
    "commands-max",
    "connect-patience",
    "connections",
    "data-digest",
    "engine",
    "enterprise-number",
    "fast-abort",
    "first-burst-length",
    "header-digest",
    "hello",
    "immediate-data",
    "initial-r2t",
    "initiator",
    "isid",
    "login-timeout",
    "markers",
    "max-burst-length",
    "max-outstanding-r2t",
    "max-recv-data-segment-length",
    "mutual-secret",
    "mutual-secret-env",
    "mutual-secret-file",
    "mutual-user",
    "paths",
    "patience",
    "ping-interval",
    "ping-timeout",
    "policy",
    "pool-bytes",
    "portal",
    "reconnect-patience",
    "recovery-level",
    "spin",
    "time2retain",
    "time2wait",
    "unexpected-pdus-max",
];

/// A capture that nobody limits ends there, bytes.
const CAPTURE_LIMIT: u64 = 1 << 30;

/// How long the first connection is tried for unless an option says something else.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// RFC 7143 §13.12 to §13.14.
const SEGMENT: RangeInclusive<u32> = 512..=(1 << 24) - 1;

/// What was set, to be applied to what a URL says.
#[derive(Clone, Default)]
pub(crate) struct Draft {
    changes: Vec<Change>,
    own: Side,
    mutual: Side,
    capture: Option<String>,
    capture_limit: Option<u64>,
    paths: PathPolicy,
}

/// Who proves what.
#[derive(Clone, Default)]
struct Side {
    user: Option<String>,
    secret: Option<Secret>,
}

type Change = Arc<dyn Fn(&mut Config, &mut Options) + Send + Sync>;

impl Draft {
    /// Takes one option. A name that may come several times: `portal`. Of any other the last holds.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<(), Failure> {
        self.take(name, value).map_err(|why| Failure::new(Code::Option, format!("{name}: {why}")))
    }

    /// The same for several paths to one disk.
    pub(crate) fn applied_to_paths(&self, urls: &[Url]) -> Result<(Config, Paths), Failure> {
        let wrong = |error: &str| Failure::new(Code::Option, error.to_owned());
        let [first, others @ ..] = urls else {
            return Err(Failure::new(Code::Url, "there is no URL"));
        };
        let (config, options) = self.applied_to(first)?;
        if options.isid.is_some() {
            return Err(wrong("isid: it is of one session, and each path has one of its own"));
        }
        if options.portals.len() > 1 {
            return Err(wrong("portal: with several URLs each one is a path by itself"));
        }
        // All are in one.
        let capture = options.capture.clone();
        let mut paths = vec![(options, first.lun.unwrap_or_default())];
        let draft = Self { capture: None, ..self.clone() };
        for url in others {
            let (_, options) = draft.applied_to(url)?;
            let options = Options { capture: capture.clone(), ..options };
            paths.push((options, url.lun.unwrap_or_default()));
        }
        Ok((config, Paths { paths, policy: self.paths }))
    }

    /// All that a login needs.
    pub(crate) fn applied_to(&self, url: &Url) -> Result<(Config, Options), Failure> {
        let mut config = Config::default();
        let mut options = Options { connect_patience: CONNECT_PATIENCE, ..Options::of_url(url) };
        for change in &self.changes {
            change(&mut config, &mut options);
        }
        let wrong = |error: String| Failure::new(Code::Option, error);
        options.account = self.account(url).map_err(wrong)?;
        if let Some(path) = &self.capture {
            let limit = self.capture_limit.unwrap_or(CAPTURE_LIMIT);
            let capture = Capture::create(Path::new(path), limit, |_| {});
            options.capture = Some(capture.map_err(|error| wrong(format!("capture: {error}")))?);
        }
        Ok((config, options))
    }

    fn take(&mut self, name: &str, value: &str) -> Result<(), String> {
        if self.changes.len() >= limits::CHANGES_MAX {
            return Err("there are too many options".into());
        }
        match name {
            "chap-user" => self.own.user = Some(value.to_owned()),
            "chap-secret" => self.own.secret = Some(secret(value.as_bytes())?),
            "chap-secret-env" => self.own.secret = Some(secret_of_environment(value)?),
            "chap-secret-file" => self.own.secret = Some(secret_of_file(value)?),
            "mutual-user" => self.mutual.user = Some(value.to_owned()),
            "mutual-secret" => self.mutual.secret = Some(secret(value.as_bytes())?),
            "mutual-secret-env" => self.mutual.secret = Some(secret_of_environment(value)?),
            "mutual-secret-file" => self.mutual.secret = Some(secret_of_file(value)?),
            "capture" => self.capture = Some(value.to_owned()),
            "paths" => self.paths = path_policy(value)?,
            "capture-limit" => self.capture_limit = Some(number(value, 4096..=u64::MAX)?),
            _ => self.changes.push(change(name, value)?),
        }
        Ok(())
    }

    /// Options come before what the URL says.
    fn account(&self, url: &Url) -> Result<Option<Arc<Account>>, String> {
        if url.auth == Some(Auth::None) {
            return match &self.own.user {
                Some(_) => Err("chap-user: the URL says auth=none".into()),
                None => Ok(None),
            };
        }
        let own = self.own.with(&url.user, &url.secret, "chap")?;
        let target = self.mutual.with(&url.target_user, &url.target_secret, "mutual")?;
        match (own, target) {
            (None, Some(_)) => Err("mutual-user: chap-user and its secret are missing".into()),
            (None, None) if url.auth.is_some() => {
                Err("the URL says auth, and chap-user is missing".into())
            }
            (None, None) => Ok(None),
            (Some(own), target) => {
                let account = Account::new(own, target).map_err(|error| error.to_string())?;
                Ok(Some(Arc::new(account)))
            }
        }
    }
}

impl fmt::Debug for Draft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Draft").field("changes", &self.changes.len()).finish_non_exhaustive()
    }
}

impl Side {
    fn with(
        &self,
        user: &Option<String>,
        written: &Option<String>,
        prefix: &str,
    ) -> Result<Option<Credentials>, String> {
        let written = written.as_ref().map(|text| secret(text.as_bytes())).transpose()?;
        let user = self.user.as_ref().or(user.as_ref());
        let credentials = match (user, self.secret.clone().or(written)) {
            (None, None) => return Ok(None),
            (Some(_), None) => return Err(format!("{prefix}-secret is missing")),
            (None, Some(_)) => return Err(format!("{prefix}-user is missing")),
            (Some(user), Some(secret)) => Credentials::new(user.clone(), secret),
        };
        credentials.map(Some).map_err(|error| format!("{prefix}-user: {error}"))
    }
}

/// What an option does to what the URL says.
fn change(name: &str, value: &str) -> Result<Change, String> {
    fn session(set: impl Fn(&mut Options) + Send + Sync + 'static) -> Result<Change, String> {
        Ok(Arc::new(move |_: &mut Config, options: &mut Options| set(options)))
    }
    fn process(set: impl Fn(&mut Config) + Send + Sync + 'static) -> Result<Change, String> {
        Ok(Arc::new(move |config: &mut Config, _: &mut Options| set(config)))
    }
    let text = value.to_owned();
    if let Some(change) = negotiation(name, value) {
        return change;
    }
    match name {
        "alias" => session(move |options| options.alias = Some(text.clone())),
        "chap-algorithms" => {
            let known = algorithms(value)?;
            session(move |options| options.algorithms = known.clone())
        }
        "command-timeout" => {
            let time = time(value)?;
            session(move |options| options.settings.command_timeout = time)
        }
        "connect-patience" => {
            let time = time(value)?;
            session(move |options| options.connect_patience = time)
        }
        "engine" => {
            let choice = match value {
                "auto" => Choice::Auto,
                "uring" => Choice::Uring,
                "epoll" => Choice::Epoll,
                _ => return Err("auto, uring or epoll is right".into()),
            };
            process(move |config| config.engine = choice)
        }
        "enterprise-number" => {
            let number = number(value, 0..=(1 << 24) - 1)?;
            session(move |options| options.enterprise = Some(number))
        }
        "initiator" => session(move |options| options.initiator.clone_from(&text)),
        "isid" => {
            let isid = isid(value)?;
            session(move |options| options.isid = Some(isid))
        }
        "login-timeout" => {
            let time = time(value)?;
            session(move |options| options.settings.login_timeout = time)
        }
        "patience" => {
            let time = time(value)?;
            session(move |options| {
                (options.connect_patience, options.reconnect_patience) = (time, time);
            })
        }
        "ping-interval" => {
            let time = time(value)?;
            session(move |options| options.settings.ping_interval = time)
        }
        "ping-timeout" => {
            let time = time(value)?;
            session(move |options| options.settings.ping_timeout = time)
        }
        "policy" => {
            let policy = match value {
                "round-robin" => Policy::RoundRobin,
                "least-outstanding" => Policy::LeastOutstanding,
                _ => return Err("round-robin or least-outstanding is right".into()),
            };
            session(move |options| options.settings.policy = policy)
        }
        "pool-bytes" => {
            let bytes = number(value, limits::POOL_BYTES_MIN..=usize::MAX)?;
            process(move |config| config.pool_bytes_max = bytes)
        }
        "portal" => {
            let plain = !value.contains(['@', '/', '?']);
            if !plain || Url::parse(&format!("iscsi://{value}")).is_err() {
                return Err("ADDR[:PORT] alone is right".into());
            }
            session(move |options| options.portals.push(text.clone()))
        }
        "reconnect-patience" => {
            let time = time(value)?;
            session(move |options| options.reconnect_patience = time)
        }
        "spin" => {
            let time = time(value)?;
            process(move |config| config.spin_max = time)
        }
        _ => Err(format!("there is no such option; known are {}", NAMES.join(", "))),
    }
}

/// Of what is negotiated; None: the name is of something else.
fn negotiation(name: &str, value: &str) -> Option<Result<Change, String>> {
    /// One field of the settings.
    macro_rules! set {
        ($read:expr, $($field:ident),+) => {
            Some($read.map(|value| -> Change {
                Arc::new(move |_: &mut Config, options: &mut Options| {
                    $(options.settings.$field = value;)+
                })
            }))
        };
    }
    match name {
        "any-order" => {
            set!(flag(value).map(|any| !any), data_pdu_in_order, data_sequence_in_order)
        }
        "commands-max" => set!(number(value, 1..=u32::MAX), commands_max),
        "connections" => set!(number(value, 1..=32), connections),
        "data-digest" => set!(digest(value), data_digest),
        "fast-abort" => set!(flag(value), fast_abort),
        "first-burst-length" => set!(number(value, SEGMENT), first_burst_length),
        "header-digest" => set!(digest(value), header_digest),
        "hello" => set!(flag(value), hello),
        "immediate-data" => set!(flag(value), immediate_data),
        "initial-r2t" => set!(flag(value), initial_r2t),
        "markers" => set!(flag(value), markers),
        "max-burst-length" => set!(number(value, SEGMENT), max_burst_length),
        "max-outstanding-r2t" => set!(number(value, 1..=u16::MAX), max_outstanding_r2t),
        "max-recv-data-segment-length" => {
            set!(number(value, SEGMENT), max_recv_data_segment_length)
        }
        "recovery-level" => set!(number(value, 0..=2), error_recovery_level),
        "time2retain" => set!(number(value, 0..=3600), time2retain),
        "time2wait" => set!(number(value, 0..=3600), time2wait),
        "unexpected-pdus-max" => set!(number(value, 2..=u32::MAX), unexpected_pdus_max),
        _ => None,
    }
}

fn flag(value: &str) -> Result<bool, String> {
    match value {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("yes or no is right".into()),
    }
}

fn number<N>(value: &str, range: RangeInclusive<N>) -> Result<N, String>
where
    N: std::str::FromStr + PartialOrd + fmt::Display,
{
    let known = value.parse().ok().filter(|number| range.contains(number));
    known.ok_or_else(|| format!("{} to {} is right", range.start(), range.end()))
}

fn time(value: &str) -> Result<Duration, String> {
    control::units::duration(value).map_err(str::to_owned)
}

fn digest(value: &str) -> Result<DigestOffer, String> {
    match value {
        "off" => Ok(DigestOffer::Off),
        "allowed" => Ok(DigestOffer::Allowed),
        "preferred" => Ok(DigestOffer::Preferred),
        "required" => Ok(DigestOffer::Required),
        _ => Err("off, allowed, preferred or required is right".into()),
    }
}

fn algorithms(value: &str) -> Result<Vec<Algorithm>, String> {
    let named = |name: &str| {
        let known = Algorithm::ALL.into_iter().find(|known| known.name() == name);
        known
            .ok_or_else(|| "sha3-256, sha256, sha1 or md5 is right, with commas between".to_owned())
    };
    value.split(',').map(named).collect()
}

fn path_policy(value: &str) -> Result<PathPolicy, String> {
    match value {
        "least-queued" => Ok(PathPolicy::LeastQueued),
        "round-robin" => Ok(PathPolicy::RoundRobin),
        "failover" => Ok(PathPolicy::Failover),
        _ => Err("least-queued, round-robin or failover is right".into()),
    }
}

fn isid(value: &str) -> Result<Isid, String> {
    let digits = value.len() == 12 && value.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u64::from_str_radix(value, 16).ok().filter(|_| digits);
    let [_, _, isid @ ..] = number.ok_or("12 hex digits are right")?.to_be_bytes();
    Ok(Isid(isid))
}

fn secret(text: &[u8]) -> Result<Secret, String> {
    Secret::from_text(text).map_err(|error| error.to_string())
}

fn secret_of_environment(name: &str) -> Result<Secret, String> {
    let text = std::env::var(name).map_err(|_| "there is no such variable".to_owned())?;
    secret(Zeroizing::new(text).as_bytes())
}

fn secret_of_file(path: &str) -> Result<Secret, String> {
    let cannot = |error: std::io::Error| format!("cannot read the secret: {error}");
    let file = initiator::engine::files::open_whole(path.as_ref()).map_err(cannot)?;
    let mut text = Zeroizing::new(Vec::with_capacity(limits::SECRET_FILE_LEN_MAX + 1));
    file.take(limits::SECRET_FILE_LEN_MAX as u64 + 1).read_to_end(&mut text).map_err(cannot)?;
    if text.len() > limits::SECRET_FILE_LEN_MAX {
        return Err(format!("the file has more than {} bytes", limits::SECRET_FILE_LEN_MAX));
    }
    secret(&text)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that panics has failed
mod tests {
    use super::*;

    const URL: &str = "iscsi://192.0.2.1/iqn.2026-01.com.example:disks/0";

    fn with(options: &[(&str, &str)], url: &str) -> Result<(Config, Options), String> {
        let mut draft = Draft::default();
        for (name, value) in options {
            draft.set(name, value).map_err(|failure| failure.text())?;
        }
        draft.applied_to(&Url::parse(url).unwrap()).map_err(|failure| failure.text())
    }

    /// A value for each name: what is listed is known, and in order.
    #[test]
    fn each_name_that_is_listed_is_known() {
        assert!(NAMES.is_sorted());
        for name in NAMES {
            let good =
                ["1", "5s", "yes", "allowed", "auto", "80c0ffee0001", "round-robin", "md5", "PATH"];
            let long = ["65536", "16777216", "a secret of ours", "/dev/null"];
            let set = |value: &&str| Draft::default().set(name, value).is_ok();
            let file = name.ends_with("-file");
            assert!(file || good.iter().chain(&long).any(set), "{name}");
            let wrong = Draft::default().set(name, "").map_err(|failure| failure.text());
            assert!(!format!("{wrong:?}").contains("no such option"), "{name}");
        }
        let said = Draft::default().set("chap_user", "a").unwrap_err();
        assert!(said.text().contains("chap-user") && said.code() == Code::Option);
    }

    #[test]
    fn options_come_before_the_url() {
        let url = format!("{URL}?header_digest=crc32c");
        let (_, options) = with(&[], &url).unwrap();
        let from_url = options.settings.header_digest;
        let (config, options) = with(
            &[
                ("header-digest", "required"),
                ("portal", "192.0.2.2"),
                ("portal", "[::1]:3261"),
                ("spin", "0"),
                ("patience", "3s"),
                ("any-order", "yes"),
            ],
            &url,
        )
        .unwrap();
        assert_ne!(from_url, DigestOffer::Off);
        assert_eq!(options.settings.header_digest, DigestOffer::Required);
        assert_eq!(options.portals, ["192.0.2.1:3260", "192.0.2.2", "[::1]:3261"]);
        assert_eq!(config.spin_max, Duration::ZERO);
        assert_eq!(options.reconnect_patience, Duration::from_secs(3));
        assert!(!options.settings.data_pdu_in_order && !options.settings.data_sequence_in_order);
    }

    #[test]
    fn secrets_need_their_users_and_the_other_way_round() {
        let own = [("chap-user", "host"), ("chap-secret", "a secret of ours")];
        assert!(with(&own, URL).unwrap().1.account.is_some());
        assert!(with(&[], URL).unwrap().1.account.is_none());
        let named = "iscsi://host@192.0.2.1/iqn.2026-01.com.example:disks/0";
        assert!(with(&own[1..], named).unwrap().1.account.is_some());
        for (options, url, what) in [
            (&own[..1], URL, "chap-secret is missing"),
            (&own[1..], URL, "chap-user is missing"),
            (&[], named, "chap-secret is missing"),
            (&own[..], "iscsi://192.0.2.1/iqn.2026-01.com.example:a/0?auth=none", "auth=none"),
            (&[("mutual-user", "t"), ("mutual-secret", "another secret")], URL, "chap-user"),
            (&[("chap-secret", "short")], URL, "at least 12"),
            (&[("chap-secret-file", "/nonexistent")], URL, "cannot read"),
            (&[("portal", "me%secret@host")], URL, "ADDR"),
            (&[("connections", "33")], URL, "1 to 32"),
        ] {
            let said = with(options, url).err().unwrap();
            assert!(said.contains(what), "{said}");
            assert!(!said.contains("a secret of ours"), "{said}");
        }
    }

    #[test]
    fn several_urls_are_paths() {
        const OTHER: &str = "iscsi://192.0.2.2/iqn.2026-01.com.example:disks/3";
        let urls = [URL, OTHER].map(|url| Url::parse(url).unwrap());
        let with = |name, value| {
            let mut draft = Draft::default();
            draft.set(name, value).unwrap();
            draft.applied_to_paths(&urls).map_err(|failure| failure.text())
        };
        let (_, paths) = with("paths", "failover").unwrap();
        assert_eq!(paths.policy, PathPolicy::Failover);
        let found = paths.paths.iter().map(|(options, lun)| (&*options.portals[0], *lun));
        assert_eq!(found.collect::<Vec<_>>(), [("192.0.2.1:3260", 0), ("192.0.2.2:3260", 3)]);
        for (name, value) in [("isid", "80c0ffee0001"), ("portal", "192.0.2.3")] {
            assert!(with(name, value).unwrap_err().starts_with(name));
        }
    }
}
