// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Secrets in URLs: where they are, and texts without them.
//!
//! What somebody gave as a URL and is none may have its secret anywhere. So only what is known to
//! be harmless is shown: host, port and target, and some options with plain values.

use std::net::Ipv6Addr;

use super::Address;
use super::SCHEMES;
use super::Url;
use super::options::decoded;

/// What stands for a secret.
const MASK: &str = "***";

/// The beginnings of iSCSI names, which have colons of their own and are often CHAP names.
const NAMES: [&str; 3] = ["iqn.", "eui.", "naa."];

/// Options whose values are no secrets.
const HARMLESS: [&str; 9] = [
    "auth",
    "data_digest",
    "frames",
    "header_digest",
    "iser_start",
    "mpa_crc",
    "provider",
    "target_user",
    "transport",
];

/// Keys of secrets have one of these in them.
const SECRET_WORDS: [&str; 3] = ["passw", "secret", "pwd"];

/// Longest name of an interface, bytes (IFNAMSIZ).
const ZONE_LEN_MAX: usize = 15;

/// Beginnings of stores, which are no user names.
const STORES: [&str; 7] = ["file:", "iso:", "memory:", "null:", "rbd:", "scsi:", "stripe:"];

/// Whether `text` is the store of a disk, which no secret is in: the `@` of `rbd:POOL/IMAGE@SNAP`
/// ends no login.
fn is_store(text: &str) -> bool {
    STORES.iter().any(|start| text.starts_with(start))
        && !text.contains("://")
        && !names_secret(text)
}

/// What has the form of a stripe or of several paths: what is before its first URL, its URLs and
/// what parts them, what is behind them. None: a secret of it may be anywhere, as in what is no
/// URL.
fn several(text: &str) -> Option<(&str, &str, &str)> {
    let text = text.trim();
    let (start, disks, end) = match Address::is_stripe(text) {
        true => {
            let at = text.find('(')? + 1;
            (text.get(..at)?, text.get(at..)?.strip_suffix(')')?, ")")
        }
        false => ("", text, ""),
    };
    let mut urls = disks.split(';').flat_map(str::split_whitespace);
    // What parts them may be in a secret, whose rest is no URL then.
    let is_sure = start.chars().all(|letter| is_plain(letter) || matches!(letter, ':' | '('))
        && (!start.is_empty() || disks.contains([' ', ';']))
        && !disks.contains(['(', ')'])
        && urls.all(|url| SCHEMES.iter().any(|scheme| url.starts_with(scheme)));
    is_sure.then_some((start, disks, end))
}

/// User and secret: `user%secret`, or `user:secret` where the user is no iSCSI name.
pub(super) fn split_login(login: &str) -> (&str, Option<&str>) {
    let colon = !NAMES.iter().any(|name| login.starts_with(name));
    let apart = login.split_once('%').or_else(|| login.split_once(':').filter(|_| colon));
    apart.map_or((login, None), |(user, secret)| (user, Some(secret)))
}

/// A user without what may have been meant as a secret.
pub(super) fn shown_user(user: &str) -> String {
    match user.find(|letter| !is_plain(letter)) {
        Some(end) if user.get(end..).is_some_and(|rest| rest.starts_with(':')) => {
            format!("{}:{MASK}", user.get(..end).unwrap_or_default())
        }
        Some(end) => format!("{}{MASK}", user.get(..end).unwrap_or_default()),
        None => user.to_owned(),
    }
}

/// A part of a URL for a message, unless it may be a secret.
pub(super) fn shown_part(part: &str) -> String {
    let odd = |letter: char| !is_plain(letter) && !matches!(letter, ':' | ' ');
    if part.contains(odd) || names_secret(part) { MASK.to_owned() } else { part.to_owned() }
}

/// What somebody gave as a URL, whether it is one or not, without what may be a secret in it.
#[must_use]
pub fn without_secrets(text: &str) -> String {
    if is_store(text) {
        return text.to_owned();
    }
    if let Some((start, disks, end)) = several(text) {
        let paths =
            |disk: &str| disk.split_whitespace().map(without_secrets).collect::<Vec<_>>().join(" ");
        let disks = disks.split(';').map(paths).collect::<Vec<_>>().join(";");
        return format!("{start}{disks}{end}");
    }
    let scheme = text.find("://").map_or(0, |at| at + 3);
    let (head, rest) = text.split_at_checked(scheme).unwrap_or(("", text));
    let plain_head = |letter| is_plain(letter) || matches!(letter, ':' | '/' | ' ');
    let head = if head.chars().all(plain_head) { head } else { "***://" };
    let end = rest.find(['?', '#', '&', ';', '=']).unwrap_or(rest.len());
    let (place, options) = rest.split_at_checked(end).unwrap_or((rest, ""));
    let (login, place) = match place.rsplit_once('@') {
        Some((_, place)) => ("***@", place),
        None => ("", place),
    };
    // Nobody knows where a secret with such letters in it begins.
    if options.contains('@') || is_odd_host(place, scheme > 0 || !login.is_empty()) {
        return format!("{head}{MASK}");
    }
    let place = match shown_place(place, options) {
        Ok(place) => place,
        Err(cut) => return format!("{head}{login}{cut}{MASK}"),
    };
    format!("{head}{login}{place}{}", shown_options(options))
}

/// Whether `text` looks like a URL, or what was meant as one, so that secrets may be in it.
#[must_use]
pub fn may_hold_secrets(text: &str) -> bool {
    let lower = text.trim_start().to_ascii_lowercase();
    let starts = |with: &[&str]| with.iter().any(|start| lower.starts_with(start));
    let is_login = |login: &str| login.contains(['%', ':']) && !starts(&STORES);
    lower.contains("://")
        || starts(&["iscsi:", "iser:"])
        || names_secret(&lower) && lower.contains(['?', '&', '#'])
        || !starts(&["/", "."]) && lower.rsplit_once('@').is_some_and(|(login, _)| is_login(login))
}

/// What may be a secret in what somebody gave as a URL, and each part of it that a message could
/// quote.
#[must_use]
pub fn secrets_in(text: &str) -> Vec<String> {
    const APART: [char; 10] = ['/', '?', '@', '%', ':', '&', '=', '#', ';', ' '];
    if is_store(text) {
        return Vec::new();
    }
    if let Some((_, disks, _)) = several(text) {
        return disks.split(';').flat_map(str::split_whitespace).flat_map(secrets_in).collect();
    }
    if let Ok(url) = Url::parse(text) {
        return [url.secret, url.target_secret].into_iter().flatten().collect();
    }
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    let mut found: Vec<&str> = Vec::new();
    if let Some((login, _)) = rest.rsplit_once('@') {
        let secret = login.split_once(['%', ':', '/', '?', ';', '#', '&', '=']);
        found.extend(secret.map(|(_, secret)| secret));
    } else if !rest.starts_with('[') {
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        let is_known = is_bare_ipv6(authority) || is_station(authority);
        let authority = if is_known { "" } else { authority };
        found.extend(authority.split_once(['%', ':', ';', '=']).map(|(_, secret)| secret));
    }
    let end = rest.find(['?', '#', '&', ';', '=']).map(|at| at + 1);
    let options = end.and_then(|end| rest.get(end..)).unwrap_or_default();
    let harmless = options.split('&').take_while(|option| is_harmless(option));
    let harmless: usize = harmless.map(|option| option.len() + 1).sum();
    let rest = options.get(harmless..).unwrap_or_default();
    let value = rest.split_once('=').filter(|(key, _)| key.chars().all(is_plain));
    found.push(value.map_or(rest, |(_, value)| value));
    // What is behind '@' is the host.
    let before = text.rsplit_once('@').map_or(text, |(login, _)| login);
    found.extend(before.split_once('%').map(|(_, rest)| rest));
    let lower = text.to_ascii_lowercase();
    let named = SECRET_WORDS.iter().filter_map(|word| Some(lower.find(word)? + word.len())).min();
    found.extend(named.and_then(|end| before.get(end..).or_else(|| text.get(end..))));
    let parts: Vec<&str> = found.iter().flat_map(|secret| secret.split(APART)).collect();
    found.extend(parts);
    let is_key = |part: &&str| super::URL_OPTIONS.contains(part) || HARMLESS.contains(part);
    found.retain(|part| !part.is_empty() && !is_key(part));
    found.into_iter().map(str::to_owned).collect()
}

/// Whether `place` is an IPv6 address that lacks its brackets, perhaps with the name of an
/// interface. No secret looks like one.
pub(super) fn is_bare_ipv6(place: &str) -> bool {
    let (address, zone) = place.split_once('%').unwrap_or((place, ""));
    address.parse::<Ipv6Addr>().is_ok() && zone.len() <= ZONE_LEN_MAX && zone.chars().all(is_plain)
}

/// Whether `place` is a station on an Ethernet. No secret looks like one.
fn is_station(place: &str) -> bool {
    place.parse::<station::Place>().is_ok()
}

/// Host and port that are none. `sure`: the text has the form of a URL.
fn is_odd_host(place: &str, sure: bool) -> bool {
    let authority = place.split('/').next().unwrap_or_default();
    if is_bare_ipv6(authority) || is_station(authority) {
        return false;
    }
    let port = match authority.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((host, port))
                if host.chars().all(|letter| is_plain(letter) || ":%".contains(letter)) =>
            {
                port
            }
            _ => return true,
        },
        None if !sure => return false,
        None => authority.trim_start_matches(is_plain),
    };
    let digits = port.strip_prefix(':').unwrap_or(port);
    !digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Host, port and path; Err: as much as can be shown of them, and nothing that follows.
fn shown_place<'a>(place: &'a str, options: &str) -> Result<&'a str, &'a str> {
    let path = place.find('/').unwrap_or(place.len());
    let name = place.get(path + 1..).unwrap_or_default();
    if let Some(at) = place.get(path..).and_then(|path| path.find('%')) {
        let whole = decoded(name).unwrap_or_default().to_ascii_lowercase();
        if !NAMES.iter().any(|start| whole.starts_with(start)) || names_secret(&whole) {
            return Err(place.get(..path + at).unwrap_or_default());
        }
    }
    let lower = place.to_ascii_lowercase();
    if let Some(at) = SECRET_WORDS.iter().filter_map(|word| lower.find(word)).min() {
        return Err(place.get(..at).unwrap_or_default());
    }
    match options.chars().next() {
        None | Some('?') => Ok(place),
        // What is before it is a key, or was meant as one.
        Some(_) => Err(place.trim_end_matches(|letter| letter != '/')),
    }
}

/// The options with their `?`, up to the first one that may be a secret.
fn shown_options(options: &str) -> String {
    let mut shown = String::new();
    let Some(options) = options.strip_prefix('?') else { return shown };
    for (at, option) in options.split('&').enumerate() {
        shown.push(if at == 0 { '?' } else { '&' });
        if is_harmless(option) {
            shown.push_str(option);
            continue;
        }
        if let Some((key, _)) = option.split_once('=').filter(|(key, _)| key.chars().all(is_plain))
        {
            shown.push_str(key);
            shown.push('=');
        }
        shown.push_str(MASK);
        break;
    }
    shown
}

/// An option that can be shown with its value.
fn is_harmless(option: &str) -> bool {
    let (key, value) = option.split_once('=').unwrap_or((option, ""));
    key.is_empty() || HARMLESS.contains(&key) && value.chars().all(is_plain)
}

/// Whether a key in `text`, however it is written, says that a secret follows.
fn names_secret(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    SECRET_WORDS.iter().any(|word| lower.contains(word))
}

/// The letters of hosts and of plain names.
pub(super) fn is_plain(letter: char) -> bool {
    letter.is_alphanumeric() || matches!(letter, '-' | '_' | '.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_a_secret() {
        assert_eq!(split_login("me"), ("me", None));
        assert_eq!(split_login("me%se:cret"), ("me", Some("se:cret")));
        assert_eq!(split_login("me:se@cret"), ("me", Some("se@cret")));
        let name = "iqn.2026-01.com.example:host";
        assert_eq!(split_login(name), (name, None));
        assert_eq!(split_login(&format!("{name}%secret")), (name, Some("secret")));
        assert_eq!(shown_user(name), "iqn.2026-01.com.example:***");
        assert_eq!(shown_user("me;s3cret"), "me***");
    }

    #[test]
    fn no_secret_is_shown() {
        for (text, shown) in [
            ("iscsi://me%s3cret@host/a/0", "iscsi://***@host/a/0"),
            ("iscsi://me:s3cret@host/a/0", "iscsi://***@host/a/0"),
            ("iscsi://me%s3/c@cret@host/a/0", "iscsi://***@host/a/0"),
            ("iscsi://me/s3cret@host/a/0", "iscsi://***@host/a/0"),
            ("iscsi://me%s3?cret@host/a/0", "iscsi://***"),
            ("iscsi://me%s3cret/a/0", "iscsi://***"),
            ("iscsi://me:s3cret/a/0", "iscsi://***"),
            ("iscsi://me;s3cret/a/0", "iscsi://***"),
            ("me%s3cret@host", "***@host"),
            ("iscsi://h/a/0?target_password=s3cret", "iscsi://h/a/0?target_password=***"),
            ("iscsi://h/a/0?TARGET_PASSWORD=s3cret", "iscsi://h/a/0?TARGET_PASSWORD=***"),
            ("iscsi://h/a/0?target%5Fpassword=s3cret", "iscsi://h/a/0?***"),
            ("iscsi://h/a/0?target_password:s3cret", "iscsi://h/a/0?***"),
            ("iscsi://h/a/0?foo&password=s3cret", "iscsi://h/a/0?***"),
            ("iscsi://h/a/0?auth=md5&password=s3cret", "iscsi://h/a/0?auth=md5&password=***"),
            ("iscsi://h/a/0?target_password=x&auth=s3cret", "iscsi://h/a/0?target_password=***"),
            ("iscsi://h/a/0?target_user=u%s3cret", "iscsi://h/a/0?target_user=***"),
            ("iscsi://h/?user=u%s3cret", "iscsi://h/?user=***"),
            ("iscsi://h/a/0#target_password=s3cret", "iscsi://h/a/***"),
            ("iscsi://h/a/0&target_password=s3cret", "iscsi://h/a/***"),
            ("iscsi://h/a/target_password=s3cret", "iscsi://h/a/target_***"),
            ("iscsi://h/a/key=s3cret", "iscsi://h/a/***"),
            ("iscsi://h/a/target_password/s3cret", "iscsi://h/a/target_***"),
            ("iscsi://h/u%s3cret/0", "iscsi://h/u***"),
            ("iscsi://me@h/a/0?target_password=an@s3cret&auth=x", "iscsi://***"),
            ("x u%s3cret iscsi://h/a/0", "***://h/a/0"),
            ("http://me:s3cret@host/", "http://***@host/"),
        ] {
            assert_eq!(without_secrets(text), shown, "{text}");
            assert!(may_hold_secrets(text), "{text}");
            let mut message = format!("{text} {}", decoded(text).unwrap_or_default());
            for secret in secrets_in(text).iter().filter(|secret| secret.len() >= 6) {
                message = message.replace(secret, MASK);
            }
            assert!(text.contains("s3/") || text.contains("s3?") || !message.contains("s3cret"));
        }
        for plain in [
            "iscsi://host:3260/iqn.2026-01.com.example:a/0",
            "iscsi://[::1]:3260/iqn.2026-01.com.example:a/0",
            "iscsi://[fe80::1%eth0]/iqn.2026-01.com.example:a/0",
            "iscsi://2001:db8::1234:5678/iqn.2026-01.com.example:a/0",
            "iscsi://host/iqn.2026-01.com.example%3aa/0?header_digest=crc32c",
            "disk:1.img",
            "100%.img",
            "rbd:pool/image@snap",
            "rbd:pool/image@snap,id=lunwire,conf=/etc/ceph/ceph.conf",
        ] {
            assert_eq!(without_secrets(plain), plain);
            assert!(secrets_in(plain).iter().all(|secret| secret.len() < 6), "{plain}");
        }
        for plain in
            ["/data/10:00@home.img", "disk@home.img", "file:/data/a@b,size=1G", "rbd:p/i@s", "a?b"]
        {
            assert!(!may_hold_secrets(plain), "{plain}");
        }
    }

    #[test]
    fn of_several_urls_the_secrets_are_hidden_and_nothing_else() {
        for plain in [
            "stripe:64K(iscsi://10.0.0.1:33180/iqn.2026-01.com.example:a/0;\
             iscsi://host/iqn.2026-01.com.example:b/1 iscsi://[::1]/iqn.2026-01.com.example:b/1)",
            "stripe:64K(iscsi://host/iqn.2026-01.com.example:a/0;iser://host/b)",
            "stripe:64K(iscsi://10.0.0.1:33180/iqn.2026-01.com.example:a/0)",
            "iscsi://10.0.0.1/iqn.2026-01.com.example:a/0 \
             iscsi://10.0.1.1/iqn.2026-01.com.example:a/0",
        ] {
            assert_eq!(without_secrets(plain), plain);
            assert!(secrets_in(plain).iter().all(|secret| secret.len() < 6), "{plain}");
        }
        let text = "stripe:64K(iscsi://h/a/0;iscsi://me%s3cret@h/b/1?target_password=an0ther)";
        let shown = "stripe:64K(iscsi://h/a/0;iscsi://***@h/b/1?target_password=***)";
        assert_eq!(without_secrets(text), shown);
        assert!(
            ["s3cret", "an0ther"].iter().all(|secret| secrets_in(text).contains(&(*secret).into()))
        );
        // What parts the disks is in a secret: nobody knows where that begins.
        for odd in [
            "stripe:64K(iscsi://h/a/0;iscsi://me%an;s3cret@h/b/1)",
            "stripe:64K(iscsi://h/a/0;iscsi://me%an s3cret@h/b/1)",
            "stripe:64K(iscsi://h/a/0;iscsi://me%an)s3cret@h/b/1)",
            "stripe:64K(iscsi://h/a/0;iscsi://me%an(s3cret@h/b/1)",
        ] {
            assert!(!without_secrets(odd).contains("s3cret"), "{}", without_secrets(odd));
            let secrets = secrets_in(odd);
            let message = secrets.iter().filter(|secret| secret.len() >= 6);
            let message = message.fold(odd.to_owned(), |text, secret| text.replace(secret, MASK));
            assert!(!message.contains("s3cret"), "{odd}: {message}");
        }
    }
}
