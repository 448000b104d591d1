// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Addresses of disks, in the form of libiscsi and QEMU:
//! `iscsi://[user[%secret]@]host[:port][/target-iqn[/lun]][?option=value[&option=value]...]`, or
//! `iser://` for the same over RDMA, or `ether://`, whose host is `MAC%INTERFACE`, for the same
//! over raw Ethernet.

mod address;
mod frames;
mod options;
mod secrets;

use std::fmt;

use iscsi::chap::Algorithm;
use iscsi::initiator::DigestOffer;
use iscsi::name;
use station::Place;
use station::PlaceError;

use crate::Begin;
use crate::Checks;
use crate::Transport;

pub use frames::Frames;

pub use address::Address;
pub use address::AddressError;
pub use secrets::may_hold_secrets;
pub use secrets::secrets_in;
pub use secrets::without_secrets;

/// The beginnings of a URL.
const ISCSI: &str = "iscsi://";
const ISER: &str = "iser://";
const ETHER: &str = "ether://";
const SCHEMES: [&str; 3] = [ISCSI, ISER, ETHER];

/// The port that IANA gave to iSCSI.
const PORT: u16 = 3260;

/// Where a portal, a target or a disk is. Printed without secrets and options.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Url {
    /// CHAP name.
    pub user: Option<String>,
    /// CHAP secret, as it was written.
    pub secret: Option<String>,
    /// Name or address; IPv6 without brackets. Of `ether://` the address of a station, `%` and the
    /// interface that leads to it, with `frames` behind a comma.
    pub host: String,
    /// TCP port; of `ether://` 0.
    pub port: u16,
    /// iSCSI name of the target, as it was written.
    pub target: Option<String>,
    /// Logical unit number.
    pub lun: Option<u16>,
    /// `iser://`, or `transport`; `provider`, `iser_start` and `mpa_crc`.
    pub transport: Transport,
    /// `header_digest`: crc32c or none.
    pub header_digest: Option<DigestOffer>,
    /// `data_digest`: crc32c or none.
    pub data_digest: Option<DigestOffer>,
    /// `auth`: none, chap or a hash function of it.
    pub auth: Option<Auth>,
    /// `target_user`: the name by which the target must prove itself.
    pub target_user: Option<String>,
    /// `target_password`: its secret, as it was written.
    pub target_secret: Option<String>,
}

/// How a URL says that we prove who we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // what libiscsi knows
pub enum Auth {
    /// Not at all, whatever user there is.
    None,
    /// By CHAP, with this hash function alone if there is one.
    Chap(Option<Algorithm>),
}

/// The options that a URL may have.
pub const URL_OPTIONS: [&str; 10] = [
    "auth",
    "data_digest",
    "frames",
    "header_digest",
    "iser_start",
    "mpa_crc",
    "provider",
    "target_password",
    "target_user",
    "transport",
];

/// What is wrong with a URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// The scheme.
    #[error("it does not begin with iscsi://, iser:// or ether://")]
    Scheme,
    /// The host.
    #[error("the host is missing")]
    Host,
    /// An IPv6 address, whose colons would hide a port.
    #[error("an IPv6 address stands in brackets: {}", bracketed(.0))]
    Brackets(String),
    /// The station of `ether://`: not quoted, for it may be a secret.
    #[error("ether://MAC%INTERFACE/TARGET/LUN is right: {0}")]
    Station(PlaceError),
    /// The host: not quoted, for it may be a secret behind which the host is missing.
    #[error("what stands for the host is none: a name or an address is right")]
    NoHost,
    /// The port: not quoted, for it may be a secret behind which the host is missing.
    #[error("what follows the host is no port: 1 to 65535 is right")]
    Port,
    /// A secret that cannot stand in a URL, or one without a host.
    #[error("'%' and '@' belong before the host; a secret with '/' or '?' goes into a file")]
    Secret,
    /// The user.
    #[error("the user before '@' is empty")]
    User,
    /// The target.
    #[error("{0:?} is no iSCSI name: {1}")]
    Target(String, name::NameError),
    /// The LUN.
    #[error("{0:?} is no LUN: 0 to 65535 is right")]
    Lun(String),
    /// The target is missing.
    #[error("the target is missing: iscsi://HOST[:PORT]/TARGET/LUN is right")]
    NoTarget,
    /// The LUN is missing.
    #[error("the LUN is missing: iscsi://HOST[:PORT]/TARGET/LUN is right")]
    NoLun,
    /// Something follows: not quoted, for it may be a secret.
    #[error("nothing belongs behind the LUN but options, which begin with '?'")]
    Rest,
    /// An option that nobody knows.
    #[error("there is no option {0:?}; known are {known}", known = URL_OPTIONS.join(", "))]
    Option(String),
    /// An option that may be a part of a secret.
    #[error(
        "an option has not the form NAME=VALUE, or a secret has '&', which goes into a file; \
         known are {known}",
        known = URL_OPTIONS.join(", ")
    )]
    NoOption,
    /// The value of an option.
    #[error("{name}: {right} is right")]
    Value {
        /// Of the option.
        name: &'static str,
        /// What would be.
        right: &'static str,
    },
    /// A secret without a name, or the other way round.
    #[error("target_user and target_password need each other, and a user")]
    Mutual,
}

impl Url {
    /// Reads a URL of any length: portal, target or disk.
    ///
    /// # Errors
    /// [`UrlError`].
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let mut url = Self::default();
        let schemes = [
            (ISCSI, Transport::Tcp),
            (ISER, Transport::Iser(Begin::Rdma, Checks::Crc)),
            (ETHER, Transport::Ether),
        ];
        let found = schemes
            .into_iter()
            .find_map(|(scheme, transport)| Some((text.strip_prefix(scheme)?, transport)));
        let rest;
        (rest, url.transport) = found.ok_or(UrlError::Scheme)?;
        let (place, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = place.split_once('/').unwrap_or((place, ""));
        let (login, place) = match authority.rsplit_once('@') {
            Some((login, place)) => (Some(login), place),
            None => (None, authority),
        };
        if path.contains('@') {
            return Err(UrlError::Secret);
        }
        if let Some(login) = login {
            let (user, secret) = secrets::split_login(login);
            if user.is_empty() {
                return Err(UrlError::User);
            }
            url.user = Some(user.to_owned());
            url.secret = secret.filter(|secret| !secret.is_empty()).map(str::to_owned);
        }
        (url.host, url.port) = match url.transport {
            Transport::Ether => {
                let place: Place = place.parse().map_err(UrlError::Station)?;
                (place.to_string(), 0)
            }
            _ => host_and_port(place)?,
        };
        let mut parts = path.splitn(3, '/').filter(|part| !part.is_empty());
        if let Some(target) = parts.next() {
            let target = options::decoded(target).ok_or(UrlError::Secret)?;
            name::validate_received(&target)
                .map_err(|error| UrlError::Target(secrets::shown_part(&target), error))?;
            url.target = Some(target);
        }
        if let Some(lun) = parts.next() {
            url.lun = Some(lun.parse().map_err(|_| UrlError::Lun(secrets::shown_part(lun)))?);
        }
        if parts.next().is_some() {
            return Err(UrlError::Rest);
        }
        url.take_options(options)?;
        Ok(url)
    }

    /// As [`Url::parse`], and the URL names a disk: target and LUN.
    ///
    /// # Errors
    /// [`UrlError`].
    pub fn parse_disk(text: &str) -> Result<Self, UrlError> {
        let url = Self::parse(text)?;
        match (&url.target, url.lun) {
            (None, _) => Err(UrlError::NoTarget),
            (_, None) => Err(UrlError::NoLun),
            _ => Ok(url),
        }
    }

    /// `host:port`, IPv6 in brackets; of `ether://` `MAC%INTERFACE`.
    #[must_use]
    pub fn portal(&self) -> String {
        if self.transport == Transport::Ether {
            return self.host.clone();
        }
        portal(&self.host, self.port)
    }
}

/// `host:port` as the system resolves it; the port of iSCSI where there is none.
pub(crate) fn with_port(portal_text: &str) -> String {
    match host_and_port(portal_text) {
        Ok((host, port)) => portal(&host, port),
        Err(_) => portal_text.to_owned(),
    }
}

fn portal(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// What was meant by an IPv6 address without brackets, whose last number may be a port.
fn bracketed(address: &str) -> String {
    let port = address.rsplit_once(':').filter(|(host, port)| {
        secrets::is_bare_ipv6(host) && port.parse::<u16>().is_ok_and(|port| port > 1024)
    });
    match port {
        Some((host, port)) => format!("[{address}], or [{host}]:{port}"),
        None => format!("[{address}]"),
    }
}

fn host_and_port(place: &str) -> Result<(String, u16), UrlError> {
    if secrets::is_bare_ipv6(place) {
        return Err(UrlError::Brackets(place.to_owned()));
    }
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']').ok_or(UrlError::Host)?;
            (host, after.strip_prefix(':').or(if after.is_empty() { None } else { Some(after) }))
        }
        None => match place.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (place, None),
        },
    };
    if host.is_empty() {
        return Err(UrlError::Host);
    }
    let bracketed = place.starts_with('[');
    // The zone of an IPv6 address follows a '%'.
    if host.contains('@') || host.contains('%') && !bracketed {
        return Err(UrlError::Secret);
    }
    let good = |letter| secrets::is_plain(letter) || bracketed && matches!(letter, ':' | '%');
    if !host.chars().all(good) {
        return Err(UrlError::NoHost);
    }
    let port = match port {
        None => PORT,
        Some(port) => port.parse().ok().filter(|port| *port > 0).ok_or(UrlError::Port)?,
    };
    Ok((host.to_owned(), port))
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.transport {
            Transport::Tcp => ISCSI,
            Transport::Iser(..) | Transport::Verbs => ISER,
            Transport::Ether => ETHER,
        })?;
        if let Some(user) = &self.user {
            write!(f, "{}@", secrets::shown_user(user))?;
        }
        f.write_str(&self.portal())?;
        if let Some(target) = &self.target {
            write!(f, "/{}", target.escape_debug())?;
        }
        match self.lun {
            Some(lun) => write!(f, "/{lun}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that panics has failed
mod tests {
    use super::*;

    #[test]
    fn all_parts() {
        let url = Url::parse("iscsi://me%s/cret@host:1/iqn.2026-01.com.example:a/3");
        assert!(url.is_err(), "a slash ends the authority");
        let url = Url::parse_disk("iscsi://me%se@ret@host:1/iqn.2026-01.com.example:A/3").unwrap();
        assert_eq!((url.user.as_deref(), url.secret.as_deref()), (Some("me"), Some("se@ret")));
        assert_eq!((url.host.as_str(), url.port), ("host", 1));
        assert_eq!(url.target.as_deref(), Some("iqn.2026-01.com.example:A"));
        assert_eq!(url.lun, Some(3));
        let shown = "iscsi://me@host:1/iqn.2026-01.com.example:A/3";
        assert_eq!((url.to_string(), format!("{url:?}")), (shown.into(), shown.into()));
    }

    /// What discovery gives is what is sent.
    #[test]
    fn names_of_targets_stay_as_they_are() {
        for name in [
            "iqn.2000-01.com.synology:DiskStation.Target-1",
            "iqn.test",
            "iqn.2004-04.com.qnap:ts-453be:iscsi.my_disk.1a2b3c",
            "disk",
            "iqn.2026-01.com.example:pl\u{e4}tte",
        ] {
            let url = Url::parse_disk(&format!("iscsi://host/{name}/0")).unwrap();
            assert_eq!(url.target.as_deref(), Some(name));
        }
        let url = Url::parse_disk("iscsi://host/iqn.2026-01.com.example%3adisk%2F1/0").unwrap();
        assert_eq!(url.target.as_deref(), Some("iqn.2026-01.com.example:disk/1"));
    }

    /// Covers: NAM-17/I.
    #[test]
    fn short_forms() {
        let url = Url::parse("iscsi://[::1]").unwrap();
        assert_eq!((url.host.as_str(), url.port, url.target), ("::1", 3260, None));
        let url = Url::parse("iscsi://10.0.0.1:3261/").unwrap();
        assert_eq!(url.portal(), "10.0.0.1:3261");
        assert_eq!(with_port("[fe80::1]"), "[fe80::1]:3260");
        assert_eq!(with_port("a:5"), "a:5");
    }

    #[test]
    fn stations_have_urls() {
        let text = "ether://me%secret@02:00:5e:10:00:01%eth0/iqn.2026-01.com.example:a/3";
        let url = Url::parse_disk(text).unwrap();
        assert_eq!((url.user.as_deref(), url.secret.as_deref()), (Some("me"), Some("secret")));
        assert_eq!((url.portal().as_str(), url.lun), ("02:00:5e:10:00:01%eth0", Some(3)));
        let shown = "ether://me@02:00:5e:10:00:01%eth0/iqn.2026-01.com.example:a/3";
        assert_eq!(url.to_string(), shown);
        let past = Url::parse_disk(&format!("{shown}?frames=xdp")).unwrap();
        assert_eq!(past.portal(), "02:00:5e:10:00:01%eth0,frames=xdp");
        assert_eq!(Url::parse_disk(&past.to_string()), Ok(past));
        assert_eq!(Url::parse_disk(&format!("{shown}?frames=packet")), Url::parse_disk(shown));
        assert_eq!(Url::parse_disk(&shown.replace("me@", "")).unwrap().user, None);
        assert_eq!(with_port(&url.portal()), url.portal());
        let plain = shown.replace("me@", "");
        assert_eq!(without_secrets(&plain), plain);
        for (text, what) in [
            ("ether://host/iqn.2026-01.com.example:a/0", "interface"),
            ("ether://02:00:5e:10:00:01/iqn.2026-01.com.example:a/0", "interface"),
            ("ether://ff:ff:ff:ff:ff:ff%eth0/iqn.2026-01.com.example:a/0", "one station"),
            ("ether://02:00:5e:10:00:01%eth0/iqn.2026-01.com.example:a/0?iser", "ether://"),
            ("ether://02:00:5e:10:00:01%eth0/iqn.2026-01.com.example:a/0?frames=fast", "xdp"),
            (
                "ether://02:00:5e:10:00:01%eth0/iqn.2026-01.com.example:a/0?transport=tcp",
                "ether://",
            ),
            (
                "ether://02:00:5e:10:00:01%eth0/iqn.2026-01.com.example:a/0?provider=iwarp",
                "iser://",
            ),
        ] {
            let error = Url::parse_disk(text).unwrap_err().to_string();
            assert!(error.contains(what), "{text}: {error}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let cases = [
            ("http://host/iqn.2026-01.com.example:a/0", "iscsi://"),
            ("iscsi:///iqn.2026-01.com.example:a/0", "host"),
            ("iscsi://host:0/iqn.2026-01.com.example:a/0", "port"),
            ("iscsi://2001:db8::1/iqn.2026-01.com.example:a/0", "brackets: [2001:db8::1]"),
            ("iscsi://::1:3260/iqn.2026-01.com.example:a/0", "[::1:3260], or [::1]:3260"),
            ("iscsi://fe80::1%eth0", "brackets: [fe80::1%eth0]"),
            ("iscsi://host:x/iqn.2026-01.com.example:a/0", "port"),
            ("iscsi://@host/iqn.2026-01.com.example:a/0", "user"),
            ("iscsi://host/my disk/0", "\"my disk\""),
            ("iscsi://me%se/cret@host/iqn.2026-01.com.example:a/0", "file"),
            ("iscsi://me%secret/iqn.2026-01.com.example:a/0", "before the host"),
            ("iscsi://host/iqn.2026-01.com.example:a/x", "\"x\""),
            ("iscsi://host/iqn.2026-01.com.example:a/65536", "65535"),
            ("iscsi://host", "target"),
            ("iscsi://host/iqn.2026-01.com.example:a", "LUN"),
            ("iscsi://host/iqn.2026-01.com.example:a/0/1", "behind"),
        ];
        for (text, what) in cases {
            let error = Url::parse_disk(text).unwrap_err().to_string();
            assert!(error.contains(what), "{text}: {error}");
        }
    }
}
