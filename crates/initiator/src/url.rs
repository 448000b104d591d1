// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Addresses of disks, in the form of libiscsi and QEMU:
//! `iscsi://[user[%secret]@]host[:port][/target-iqn[/lun]]`.

use std::fmt;

use iscsi::name;

/// The port that IANA gave to iSCSI.
const PORT: u16 = 3260;

/// Where a portal, a target or a disk is. Printed without its secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    /// CHAP name.
    pub user: Option<String>,
    /// CHAP secret, as it was written.
    pub secret: Option<String>,
    /// Name or address; IPv6 without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// iSCSI name of the target.
    pub target: Option<String>,
    /// Logical unit number.
    pub lun: Option<u16>,
}

/// What is wrong with a URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// The scheme.
    #[error("it does not begin with iscsi://")]
    Scheme,
    /// The host.
    #[error("the host is missing")]
    Host,
    /// The port.
    #[error("{0:?} is no port: 1 to 65535 is right")]
    Port(String),
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
    /// Something follows.
    #[error("{0:?} does not belong behind the LUN")]
    Rest(String),
}

impl Url {
    /// Reads a URL of any length: portal, target or disk.
    ///
    /// # Errors
    /// [`UrlError`].
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let rest = text.strip_prefix("iscsi://").ok_or(UrlError::Scheme)?;
        let (authority, path) = match rest.split_once('/') {
            Some((authority, path)) => (authority, path),
            None => (rest, ""),
        };
        let (login, place) = match authority.rsplit_once('@') {
            Some((login, place)) => (Some(login), place),
            None => (None, authority),
        };
        let (user, secret) = match login.map(|login| login.split_once('%').unwrap_or((login, ""))) {
            Some(("", _)) => return Err(UrlError::User),
            Some((user, "")) => (Some(user.to_owned()), None),
            Some((user, secret)) => (Some(user.to_owned()), Some(secret.to_owned())),
            None => (None, None),
        };
        let (host, port) = host_and_port(place)?;
        let mut parts = path.splitn(3, '/').filter(|part| !part.is_empty());
        let target = parts.next().map(|target| {
            name::normalize_configured(target)
                .map_err(|error| UrlError::Target(target.to_owned(), error))
        });
        let lun = parts.next().map(|lun| lun.parse().map_err(|_| UrlError::Lun(lun.to_owned())));
        if let Some(rest) = parts.next() {
            return Err(UrlError::Rest(rest.to_owned()));
        }
        Ok(Self { user, secret, host, port, target: target.transpose()?, lun: lun.transpose()? })
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

    /// `host:port`, IPv6 in brackets.
    #[must_use]
    pub fn portal(&self) -> String {
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

fn host_and_port(place: &str) -> Result<(String, u16), UrlError> {
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
    let wrong = |port: &str| UrlError::Port(port.to_owned());
    let port = match port {
        None => PORT,
        Some(port) => port.parse().ok().filter(|port| *port > 0).ok_or_else(|| wrong(port))?,
    };
    Ok((host.to_owned(), port))
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("iscsi://")?;
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        f.write_str(&self.portal())?;
        if let Some(target) = &self.target {
            write!(f, "/{target}")?;
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
        assert_eq!(url.target.as_deref(), Some("iqn.2026-01.com.example:a"));
        assert_eq!(url.lun, Some(3));
        let shown = "iscsi://me@host:1/iqn.2026-01.com.example:a/3";
        assert_eq!((url.to_string(), format!("{url:?}")), (shown.into(), shown.into()));
    }

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
    fn what_is_wrong_is_named() {
        let cases = [
            ("http://host/iqn.2026-01.com.example:a/0", "iscsi://"),
            ("iscsi:///iqn.2026-01.com.example:a/0", "host"),
            ("iscsi://host:0/iqn.2026-01.com.example:a/0", "port"),
            ("iscsi://host:x/iqn.2026-01.com.example:a/0", "\"x\""),
            ("iscsi://@host/iqn.2026-01.com.example:a/0", "user"),
            ("iscsi://host/disk/0", "\"disk\""),
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
