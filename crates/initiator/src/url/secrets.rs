// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Secrets in URLs: where they are, and texts without them.

/// What stands for a secret.
const MASK: &str = "***";

/// The option whose value is one.
const PASSWORD: &str = "target_password=";

/// The beginnings of iSCSI names, which have colons of their own and are often CHAP names.
const NAMES: [&str; 3] = ["iqn.", "eui.", "naa."];

/// User and secret: `user%secret`, or `user:secret` where the user is no iSCSI name.
pub(super) fn split_login(login: &str) -> (&str, Option<&str>) {
    let colon = !NAMES.iter().any(|name| login.starts_with(name));
    let apart = login.split_once('%').or_else(|| login.split_once(':').filter(|_| colon));
    apart.map_or((login, None), |(user, secret)| (user, Some(secret)))
}

/// A user without what may have been meant as a secret.
pub(super) fn shown_user(user: &str) -> String {
    match user.split_once(':') {
        Some((head, _)) => format!("{head}:{MASK}"),
        None => user.to_owned(),
    }
}

/// What somebody gave as a URL, whether it is one or not, without what may be a secret in it.
#[must_use]
pub fn without_secrets(text: &str) -> String {
    let text = without_password(text);
    let scheme = text.find("://").map_or(0, |at| at + 3);
    let (head, rest) = text.split_at_checked(scheme).unwrap_or((&text, ""));
    // Secrets may hold anything, also '/' and '@'.
    if let Some(at) = rest.rfind('@') {
        let (login, place) = rest.split_at_checked(at).unwrap_or((rest, ""));
        return match login.find(['%', ':']) {
            Some(from) => format!("{head}{}{MASK}{place}", login.get(..=from).unwrap_or_default()),
            None => text,
        };
    }
    // A secret without a host.
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(end).unwrap_or((rest, ""));
    let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    match authority.find('%').or_else(|| authority.find(':')) {
        _ if authority.starts_with('[') => text,
        Some(from) if scheme > 0 && !authority.get(from + 1..).is_some_and(is_port) => {
            format!("{head}{}{MASK}{path}", authority.get(..=from).unwrap_or_default())
        }
        _ => text,
    }
}

/// What may be a secret in what somebody gave as a URL, and each part of it that a message could
/// quote.
#[must_use]
pub fn secrets_in(text: &str) -> Vec<&str> {
    let mut found: Vec<&str> = Vec::new();
    let mut passwords = text.split(PASSWORD);
    let url = passwords.next().unwrap_or_default();
    found.extend(passwords.filter_map(|rest| rest.split('&').next()));
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let end = rest.rfind('@').or_else(|| rest.find(['/', '?'])).unwrap_or(rest.len());
    let login = rest.get(..end).unwrap_or_default();
    if let Some((_, secret)) = login.split_once(['%', ':']).filter(|_| !rest.starts_with('[')) {
        found.push(secret);
        found.extend(secret.split(['/', '?', '@', '%', ':']));
    }
    found
}

/// Nothing behind `target_password=`.
fn without_password(text: &str) -> String {
    let mut parts = text.split(PASSWORD);
    let mut masked = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.find('&').and_then(|end| part.get(end..)).unwrap_or_default();
        masked.push_str(PASSWORD);
        masked.push_str(MASK);
        masked.push_str(rest);
    }
    masked
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
    }

    #[test]
    fn no_secret_is_shown() {
        for (text, shown) in [
            ("iscsi://me%s3cret@host/a/0", "iscsi://me%***@host/a/0"),
            ("iscsi://me:s3cret@host/a/0", "iscsi://me:***@host/a/0"),
            ("iscsi://me%s3/c@cret@host/a/0", "iscsi://me%***@host/a/0"),
            ("iscsi://me%s3?cret@host/a/0", "iscsi://me%***@host/a/0"),
            ("iscsi://me%s3cret/a/0", "iscsi://me%***/a/0"),
            ("iscsi://me:s3cret/a/0", "iscsi://me:***/a/0"),
            ("me%s3cret@host", "me%***@host"),
            ("iscsi://h/a/0?target_password=s3cret", "iscsi://h/a/0?target_password=***"),
            (
                "iscsi://me@h/a/0?target_password=s3cret&auth=x",
                "iscsi://me@h/a/0?target_password=***&auth=x",
            ),
            ("http://me:s3cret@host/", "http://me:***@host/"),
        ] {
            assert_eq!(without_secrets(text), shown);
        }
        assert_eq!(secrets_in("iscsi://me%s3/cret@h/a?target_password=b&c")[..2], ["b", "s3/cret"]);
        assert_eq!(secrets_in("me:s3cret@h").first(), Some(&"s3cret"));
        assert!(secrets_in("iscsi://[fe80::1]/a/0").is_empty());
        for plain in [
            "iscsi://host:3260/iqn.2026-01.com.example:a/0",
            "iscsi://me@[::1]:3260/iqn.2026-01.com.example:a/0",
            "iscsi://[fe80::1%eth0]/iqn.2026-01.com.example:a/0",
            "disk:1.img",
        ] {
            assert_eq!(without_secrets(plain), plain);
        }
    }
}
