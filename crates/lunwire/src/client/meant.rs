// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names that would be those of files, and that nobody means as such: URLs without their scheme, or
//! with one that is misspelt.

use std::net::IpAddr;
use std::net::Ipv6Addr;
use std::path::Path;

use anyhow::Result;
use control::words;
use initiator::Url;

/// How all URLs of disks begin.
const SCHEME: &str = "iscsi";

/// Fails for a file name that looks like a URL without its beginning, unless there is such a file.
pub(crate) fn expect_file(what: &str, text: &str) -> Result<()> {
    if is_plainly_file(text) {
        return Ok(());
    }
    let Some(meant) = url_of(text) else { return Ok(()) };
    let shown = initiator::without_secrets(text);
    let why = format!("did you mean {meant}? A file of that name is given with ./ before it");
    Err(super::usage(what, &shown, why))
}

/// Whether nothing but a file can be meant.
fn is_plainly_file(text: &str) -> bool {
    let path = Path::new(text);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    ["/", "./", "../"].iter().any(|start| text.starts_with(start))
        || path.symlink_metadata().is_ok()
        || folder.is_some_and(Path::is_dir)
}

/// The URL that `text` was meant as, which is none, without secrets.
pub(crate) fn url_of(text: &str) -> Option<String> {
    let shown = initiator::without_secrets(text);
    let place = behind_scheme(&shown).or_else(|| is_place(&shown).then_some(&*shown))?;
    Some(completed(place.trim_end_matches('/')))
}

/// What stands behind a scheme that is misspelt, or lacks its colon or slashes.
pub(super) fn behind_scheme(text: &str) -> Option<&str> {
    let end = text.find(|letter: char| !letter.is_ascii_alphabetic())?;
    let (scheme, after) = text.split_at_checked(end)?;
    let place = after.trim_start_matches(':').trim_start_matches('/');
    let is_near = words::nearest(scheme, [SCHEME]).is_some();
    let is_host = after.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
    let is_apart = after.starts_with(':') || after.starts_with("//") || is_place(place);
    let is_right = matches!(scheme, SCHEME | "iser" | "ether") && after.starts_with("://");
    (is_near && is_apart && !is_host && !is_right && !place.is_empty()).then_some(place)
}

/// Whether `text` begins as what follows the scheme does: with an address, a host and its port, or
/// a host and the name of a target; or with the name of a target.
fn is_place(text: &str) -> bool {
    let mut parts = text.split('/');
    let first = parts.next().unwrap_or_default();
    let host = first.rsplit_once('@').map_or(first, |(_, host)| host);
    is_target(host)
        || is_address(host)
        || has_port(host)
        || !host.is_empty() && parts.next().is_some_and(is_target)
}

fn is_target(word: &str) -> bool {
    iscsi::name::departure(word).is_none() || word.starts_with("iqn.") && word.contains(':')
}

fn is_address(word: &str) -> bool {
    let bare = word.strip_prefix('[').and_then(|word| word.strip_suffix(']')).unwrap_or(word);
    bare.parse::<IpAddr>().is_ok()
}

fn has_port(word: &str) -> bool {
    let Some((host, port)) = word.rsplit_once(':') else { return false };
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "-._".contains(letter);
    let is_name = !host.is_empty() && host.chars().all(is_letter);
    (is_name || is_address(host)) && port.parse::<u16>().is_ok_and(|port| port > 0)
}

/// A URL of a disk, with words for what is missing.
fn completed(place: &str) -> String {
    let (first, rest) = place.split_at(place.find('/').unwrap_or(place.len()));
    let authority = match first {
        target if is_target(target) => format!("HOST/{target}"),
        address if address.parse::<Ipv6Addr>().is_ok() => format!("[{address}]"),
        host => host.to_owned(),
    };
    let url = format!("{SCHEME}://{authority}{rest}");
    match Url::parse(&url) {
        Ok(Url { target: None, .. }) => format!("{url}/TARGET/LUN"),
        Ok(Url { lun: None, .. }) => format!("{url}/LUN"),
        _ => url,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_without_their_beginning_are_known() {
        let target = "iqn.2026-01.com.example:slow";
        for (given, meant) in [
            ("127.0.0.1:18880".to_owned(), "127.0.0.1:18880/TARGET/LUN".to_owned()),
            ("10.0.0.1".into(), "10.0.0.1/TARGET/LUN".into()),
            ("[::1]:3260".into(), "[::1]:3260/TARGET/LUN".into()),
            ("::1".into(), "[::1]/TARGET/LUN".into()),
            ("host:3260/x/0".into(), "host:3260/x/0".into()),
            (target.into(), format!("HOST/{target}/LUN")),
            (format!("{target}/0"), format!("HOST/{target}/0")),
            (format!("host/{target}/0/"), format!("host/{target}/0")),
            (format!("me@host/{target}"), format!("***@host/{target}/LUN")),
            (format!("iscsi//host/{target}/0"), format!("host/{target}/0")),
            (format!("iscsi/host/{target}/0"), format!("host/{target}/0")),
            ("iscsi:/host/x/0".into(), "host/x/0".into()),
            ("iscsi:host".into(), "host/TARGET/LUN".into()),
            ("iscis://host/x/0".into(), "host/x/0".into()),
            ("ISCSI://host/x/0".into(), "host/x/0".into()),
            ("scsi:/host/x/0".into(), "host/x/0".into()),
            ("iscsi:3260".into(), "iscsi:3260/TARGET/LUN".into()),
        ] {
            let meant = format!("iscsi://{meant}");
            assert_eq!(url_of(&given).as_deref(), Some(&*meant), "{given}");
        }
    }

    #[test]
    fn files_are_files() {
        for name in [
            "disk.img",
            "images/disk.img",
            "iscsi/disk.img",
            "iscsi.img",
            "scsi:",
            "disk-10:30.img",
            "2026-11-23",
            "iqn.img",
            "file:disk.img",
            "iscsi://host/x/0",
            "a@b",
            "",
        ] {
            assert_eq!(url_of(name), None, "{name}");
        }
    }

    #[test]
    fn what_is_there_or_says_so_is_a_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let inside = folder.path().join("10.0.0.1:3260").display().to_string();
        for name in [&inside, "./10.0.0.1:3260", "../iqn.2026-01.com.example:a", "disk.img"] {
            assert!(expect_file("FILE", name).is_ok(), "{name}");
        }
        assert!(expect_file("FILE", "10.0.0.1:3260").is_err());
    }
}
