// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What arguments mean: URLs, portals, sizes and times, and why one is none.

use std::time::Duration;

use anyhow::Result;
use control::units;
use control::words;
use initiator::Address;
use initiator::AddressError;
use initiator::Url;
use initiator::UrlError;

use super::meant;
use crate::args::Usage;

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
