// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the options of `lunwire attach` mean.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::Result;
use anyhow::anyhow;
use attach::Settings;
use attach::Tls;
use attach::TlsError;
use attach::TlsFiles;
use initiator::Address;
use initiator::Geometry;
use initiator::Url;

use crate::args::AttachOptions;
use crate::args::Usage;
use crate::client;
use crate::output;
use crate::plan;

/// Bounds of what is kept: some requests, and what memory is addressed for.
const KEEP_MIN: u64 = 1 << 20;
const KEEP_MAX: u64 = 64 << 30;

/// The disk, and the directory behind it.
pub(super) fn taken_apart(what: &[String]) -> Result<(Address, Option<&Path>)> {
    let (urls, folder) = match what {
        [urls @ .., last] if !urls.is_empty() && !client::is_url(last) => (urls, Some(last)),
        all => (all, None),
    };
    if let Some(other) = urls.iter().find(|word| folder.is_some() && !client::is_url(word)) {
        let right = match client::meant::url_of(other) {
            Some(meant) => format!("did you mean {meant}?"),
            None => "URLs and behind them one directory are right".into(),
        };
        let shown = initiator::without_secrets(other);
        return Err(Usage(format!("{shown}: {right}")).into());
    }
    for (place, url) in urls.iter().enumerate() {
        if urls.iter().take(place).any(|before| before == url) {
            output::warn(format!(
                "{url} is given twice: what cuts one of these paths cuts the other, too; for \
                 several sessions over one path, try: --sessions 2"
            ));
        }
    }
    Ok((client::disk_address(&urls.join(" "))?, folder.map(Path::new)))
}

/// Each way to a disk so many times, which are paths to it.
pub(super) fn with_sessions(address: &Address, sessions: u16) -> Address {
    let each = |urls: &[Url]| -> Vec<Url> {
        urls.iter().flat_map(|url| std::iter::repeat_n(url.clone(), sessions.into())).collect()
    };
    match address {
        Address::Paths(urls) => Address::Paths(each(urls)),
        Address::Stripe { chunk, members } => Address::Stripe {
            chunk: *chunk,
            members: members.iter().map(|urls| each(urls)).collect(),
        },
    }
}

/// Lets this thread, and those that it starts, run where the user wants; anywhere if he does not
/// say.
pub(super) fn run_on(cpus: &[usize]) -> Result<()> {
    for cpu in cpus {
        plan::allowed_cpu(*cpu).map_err(|why| Usage(format!("--cpus {cpu}: {why}")))?;
    }
    if !cpus.is_empty() {
        engine::affinity::confine(cpus)?;
    }
    Ok(())
}

/// Most that is kept: none, or a few requests at least.
pub(super) fn keep_bytes(text: Option<&str>) -> Result<u64> {
    let Some(text) = text else { return Ok(Settings::default().keep_bytes) };
    let bytes = client::size("--keep", text)?;
    if bytes != 0 && !(KEEP_MIN..=KEEP_MAX).contains(&bytes) {
        let right = "0, or 1M to 64G, is right";
        return Err(Usage(format!("--keep {text}: {right}")).into());
    }
    Ok(bytes)
}

/// What clients of NBD are shown, and asked for.
pub(super) fn tls(options: &AttachOptions) -> Result<Option<Tls>> {
    let Some(text) = &options.tls else { return Ok(None) };
    let parts: Vec<&str> = text.split(',').collect();
    let (certificate_and_key, authority) = match parts[..] {
        [folder] if !folder.is_empty() => {
            let folder = Path::new(folder);
            (TlsFiles::of_server(folder), Some(TlsFiles::authority_of(folder)))
        }
        [certificate, key] => (files(certificate, key), None),
        [certificate, key, authority] => (files(certificate, key), Some(authority.into())),
        _ => return Err(Usage(format!("--tls {text}: DIR, or CERT,KEY[,CA], is right")).into()),
    };
    let authority = authority.filter(|_| options.tls_verify_peer);
    if options.tls_verify_peer && authority.is_none() {
        let right = "--tls-verify-peer needs a DIR with ca-cert.pem, or CERT,KEY,CA";
        return Err(Usage(format!("--tls {text}: {right}")).into());
    }
    let files = TlsFiles { authority, ..certificate_and_key };
    if let [file] = parts[..]
        && Path::new(file).is_file()
    {
        let right = "it is a file, and DIR, or CERT,KEY[,CA], is right";
        return Err(Usage(format!("--tls {text}: {right}")).into());
    }
    let tls = Tls::load(&files).map_err(|error| match error {
        TlsError::File { .. } => anyhow!(
            "--tls: {error}; try: a folder with server-cert.pem and server-key.pem, and with \
             ca-cert.pem for --tls-verify-peer"
        ),
        error => anyhow!("--tls: {error}"),
    })?;
    // As with keys of ssh: it may be meant so, and hardly ever is.
    let is_first = !options.in_background;
    if is_first && std::fs::metadata(&files.key).is_ok_and(|facts| facts.mode() & 0o004 != 0) {
        let key = files.key.display();
        output::warn(format!(
            "{key}: everybody on this machine can read the key; try: chmod o= {key}"
        ));
    }
    Ok(Some(tls))
}

fn files(certificate: &str, key: &str) -> TlsFiles {
    TlsFiles { certificate: certificate.into(), key: key.into(), authority: None }
}

/// What whoever attaches a disk should know of what is kept of it; None: it is as he thinks.
pub(super) fn what_is_kept(
    options: &AttachOptions,
    keep_bytes: u64,
    geometry: &Geometry,
) -> Option<&'static str> {
    let can_lose = geometry.volatile_cache && !geometry.read_only;
    if !can_lose {
        return options.keep.as_ref().filter(|_| keep_bytes > 0).map(|_| {
            "the disk has no volatile cache, or is read-only: there is nothing to lose, and \
             nothing is kept (--keep)"
        });
    }
    (keep_bytes == 0).then_some(
        "nothing is kept of what is written (--keep 0): when the target begins anew, flushes fail",
    )
}

pub(super) fn is_loopback(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
}
