// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What follows the `?` of a URL, as libiscsi and QEMU write it.

use iscsi::chap::Algorithm;
use iscsi::initiator::DigestOffer;
use station::Place;

use super::Auth;
use super::Url;
use super::UrlError;
use crate::Begin;
use crate::Checks;
use crate::Transport;

impl Url {
    /// iSER; how it begins may have been said before.
    const fn begin_with(&mut self, begin: Begin) {
        if matches!(self.transport, Transport::Tcp) {
            self.transport = Transport::Iser(begin, Checks::Crc);
        }
    }

    /// How frames go: a matter of the place that is connected to.
    fn set_frames(&mut self, value: &str) -> Result<(), UrlError> {
        let place: Option<Place> = self.host.parse().ok();
        let Some(place) = place.filter(|_| self.transport == Transport::Ether) else {
            return Err(UrlError::Value { name: "frames", right: "ether:// beside it" });
        };
        let text = format!("{},frames={}", place.interface.name, value.to_ascii_lowercase());
        let right = "packet, xdp or auto";
        let interface = text.parse().map_err(|_| UrlError::Value { name: "frames", right })?;
        self.host = Place { interface, ..place }.to_string();
        Ok(())
    }

    pub(super) fn take_options(&mut self, text: &str) -> Result<(), UrlError> {
        let (mut start, mut crc, mut by) = (None, None, None);
        for option in text.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            match name {
                "header_digest" => self.header_digest = Some(digest("header_digest", value)?),
                "data_digest" => self.data_digest = Some(digest("data_digest", value)?),
                "auth" => self.auth = Some(auth(value)?),
                "target_user" => self.target_user = Some(value.to_owned()),
                "target_password" => self.target_secret = Some(value.to_owned()),
                // As QEMU and libiscsi write it.
                "iser" | "transport" if self.transport == Transport::Ether => {
                    let name = if name == "iser" { "iser" } else { "transport" };
                    let right = "iscsi:// or iser:// in place of ether://";
                    return Err(UrlError::Value { name, right });
                }
                "iser" if value.is_empty() => self.begin_with(Begin::Rdma),
                "transport" => match value.to_ascii_lowercase().as_str() {
                    "tcp" if self.transport == Transport::Tcp => {}
                    "iser" => self.begin_with(Begin::Rdma),
                    "tcp" => {
                        let right = "iser, or iscsi:// in place of iser://,";
                        return Err(UrlError::Value { name: "transport", right });
                    }
                    _ => return Err(UrlError::Value { name: "transport", right: "tcp or iser" }),
                },
                "frames" => self.set_frames(value)?,
                "iser_start" => start = Some(begin(value)?),
                "mpa_crc" => crc = Some(checks(value)?),
                "provider" => by = Some(provider(value)?),
                // What looks like no name may be half of a secret.
                _ if name.contains(|c: char| !c.is_ascii_alphanumeric() && !"_-.".contains(c)) => {
                    return Err(UrlError::Secret);
                }
                _ if option.len() == name.len() || self.target_secret.is_some() => {
                    return Err(UrlError::NoOption);
                }
                _ => return Err(UrlError::Option(name.to_owned())),
            }
        }
        match &mut self.transport {
            Transport::Iser(..) if by == Some(Provider::Verbs) => {
                if start.is_some() || crc.is_some() {
                    let name = if start.is_some() { "iser_start" } else { "mpa_crc" };
                    return Err(UrlError::Value { name, right: "provider=iwarp beside it" });
                }
                self.transport = Transport::Verbs;
            }
            Transport::Iser(begins, checks) => {
                (*begins, *checks) = (start.unwrap_or(*begins), crc.unwrap_or(*checks));
            }
            Transport::Tcp | Transport::Ether if start.is_some() || crc.is_some() => {
                let name = if start.is_some() { "iser_start" } else { "mpa_crc" };
                return Err(UrlError::Value { name, right: "iser:// or transport=iser beside it" });
            }
            Transport::Tcp | Transport::Ether if by.is_some() => {
                let right = "iser:// or transport=iser beside it";
                return Err(UrlError::Value { name: "provider", right });
            }
            Transport::Tcp | Transport::Verbs | Transport::Ether => {}
        }
        let given = |part: &Option<String>| part.as_ref().is_some_and(|part| !part.is_empty());
        let (user, secret) = (given(&self.target_user), given(&self.target_secret));
        match user == secret && (!user || self.user.is_some()) {
            true => Ok(()),
            false => Err(UrlError::Mutual),
        }
    }
}

/// What carries iSER.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Provider {
    Iwarp,
    Verbs,
}

fn provider(value: &str) -> Result<Provider, UrlError> {
    match value.to_ascii_lowercase().as_str() {
        "iwarp" => Ok(Provider::Iwarp),
        "verbs" => Ok(Provider::Verbs),
        _ => Err(UrlError::Value { name: "provider", right: "iwarp or verbs" }),
    }
}

fn begin(value: &str) -> Result<Begin, UrlError> {
    match value.to_ascii_lowercase().as_str() {
        "rdma" => Ok(Begin::Rdma),
        "login" => Ok(Begin::Login),
        _ => Err(UrlError::Value { name: "iser_start", right: "rdma or login" }),
    }
}

fn checks(value: &str) -> Result<Checks, UrlError> {
    match value.to_ascii_lowercase().as_str() {
        "crc32c" => Ok(Checks::Crc),
        "none" => Ok(Checks::None),
        _ => Err(UrlError::Value { name: "mpa_crc", right: "crc32c or none" }),
    }
}

/// As libiscsi has it, a digest that is asked for is the only one that is offered.
fn digest(name: &'static str, value: &str) -> Result<DigestOffer, UrlError> {
    match value.to_ascii_lowercase().as_str() {
        "crc32c" => Ok(DigestOffer::Required),
        "crc32c-none" => Ok(DigestOffer::Preferred),
        "none-crc32c" => Ok(DigestOffer::Allowed),
        "none" => Ok(DigestOffer::Off),
        _ => Err(UrlError::Value { name, right: "crc32c, none, crc32c-none or none-crc32c" }),
    }
}

fn auth(value: &str) -> Result<Auth, UrlError> {
    const RIGHT: &str = "none, chap, md5, sha1, sha256 or sha3-256";
    match value.to_ascii_lowercase().as_str() {
        "none" => Ok(Auth::None),
        "chap" => Ok(Auth::Chap(None)),
        "md5" => Ok(Auth::Chap(Some(Algorithm::Md5))),
        "sha1" | "sha-1" => Ok(Auth::Chap(Some(Algorithm::Sha1))),
        "sha256" | "sha-256" => Ok(Auth::Chap(Some(Algorithm::Sha256))),
        "sha3-256" => Ok(Auth::Chap(Some(Algorithm::Sha3_256))),
        _ => Err(UrlError::Value { name: "auth", right: RIGHT }),
    }
}

/// A text with its `%3a` resolved; None for one that is cut, or no text.
pub(super) fn decoded(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        let digits = Some(digits).filter(|text| text.bytes().all(|b| b.is_ascii_hexdigit()))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that panics has failed
mod tests {
    use super::*;

    const DISK: &str = "iscsi://me%secret@host/iqn.2026-01.com.example:a/0";

    #[test]
    fn the_options_of_libiscsi_are_taken() {
        let url = Url::parse_disk(&format!(
            "{DISK}?header_digest=crc32c&data_digest=none&auth=sha3-256&target_user=disk&\
             target_password=an@ther%se/cret"
        ));
        let url = url.unwrap();
        assert_eq!(url.header_digest, Some(DigestOffer::Required));
        assert_eq!(url.data_digest, Some(DigestOffer::Off));
        assert_eq!(url.auth, Some(Auth::Chap(Some(Algorithm::Sha3_256))));
        assert_eq!(url.target_user.as_deref(), Some("disk"));
        assert_eq!(url.target_secret.as_deref(), Some("an@ther%se/cret"));
        assert_eq!(url.to_string(), "iscsi://me@host:3260/iqn.2026-01.com.example:a/0");
        assert_eq!(Url::parse_disk(&format!("{DISK}?")).unwrap().auth, None);
    }

    #[test]
    fn the_transport_is_said_in_several_ways() {
        let by = |begin| Transport::Iser(begin, Checks::Crc);
        let (rdma, login) = (by(Begin::Rdma), by(Begin::Login));
        let unchecked = Transport::Iser(Begin::Login, Checks::None);
        let iser = DISK.replace("iscsi://", "iser://");
        for (text, transport) in [
            (DISK.to_owned(), Transport::Tcp),
            (format!("{DISK}?transport=tcp"), Transport::Tcp),
            (format!("{DISK}?iser"), rdma),
            (format!("{DISK}?transport=iser"), rdma),
            (format!("{DISK}?transport=iser&iser_start=login"), login),
            (format!("{DISK}?iser_start=login&transport=iser"), login),
            (iser.clone(), rdma),
            (format!("{iser}?iser_start=rdma"), rdma),
            (format!("{iser}?iser_start=login&auth=chap"), login),
            (format!("{iser}?mpa_crc=none&iser_start=login"), unchecked),
            (format!("{DISK}?mpa_crc=crc32c&transport=iser"), rdma),
            (format!("{iser}?provider=verbs"), Transport::Verbs),
            (format!("{DISK}?provider=VERBS&iser"), Transport::Verbs),
            (format!("{iser}?provider=iwarp&mpa_crc=none&iser_start=login"), unchecked),
        ] {
            let url = Url::parse_disk(&text).unwrap();
            assert_eq!(url.transport, transport, "{text}");
            let shown = if transport == Transport::Tcp { "iscsi://" } else { "iser://" };
            assert!(url.to_string().starts_with(shown));
        }
        let error = Url::parse(&format!("{iser}?transport=tcp")).expect_err("one or the other");
        let right = "transport: iser, or iscsi:// in place of iser://, is right";
        assert_eq!(error.to_string(), right);
    }

    #[test]
    fn what_is_unknown_is_named() {
        for (options, what) in [
            ("header-digest=crc32c", "\"header-digest\"; known are auth, data_digest"),
            ("timeout=5", "\"timeout\""),
            ("header_digest=md5", "header_digest: crc32c, none"),
            ("auth=kerberos", "auth: none, chap"),
            ("target_user=disk", "need each other"),
            ("target_password=secret", "need each other"),
            ("iser_start=login", "iser_start: iser://"),
            ("transport=iser&iser_start=both", "iser_start: rdma or login"),
            ("mpa_crc=none", "mpa_crc: iser://"),
            ("transport=iser&mpa_crc=crc64", "mpa_crc: crc32c or none"),
            ("transport=infiniband", "transport: tcp or iser"),
            ("provider=verbs", "provider: iser:// or transport=iser"),
            ("iser&provider=auto", "provider: iwarp or verbs"),
            ("iser&provider=verbs&mpa_crc=none", "mpa_crc: provider=iwarp"),
            ("iser&provider=verbs&iser_start=login", "iser_start: provider=iwarp"),
            ("frames=xdp", "frames: ether:// beside it"),
            ("s3cret", "the form NAME=VALUE"),
            ("target_password=ab&s3cret=cd", "the form NAME=VALUE"),
            ("cret@host/iqn", "a file"),
        ] {
            let error = Url::parse_disk(&format!("{DISK}?{options}")).unwrap_err().to_string();
            assert!(error.contains(what), "{options}: {error}");
        }
    }

    #[test]
    fn escapes_are_two_digits() {
        assert_eq!(decoded("a%3Ab").as_deref(), Some("a:b"));
        for wrong in ["a%", "a%3", "a%zz", "%+1", "%ff", "a%\u{e4}"] {
            assert_eq!(decoded(wrong), None, "{wrong}");
        }
    }
}
