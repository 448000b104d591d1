// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `lunwire attach`.

use std::sync::mpsc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use anyhow::Result;
use anyhow::bail;
use attach::Address;
use attach::NbdServer;
use attach::News;
use attach::Settings;
use control::units;
use initiator::Config;
use initiator::Disk;
use initiator::DiskEvent;
use initiator::Fate;
use initiator::Initiator;
use initiator::Options;
use initiator::Session;
use initiator::Url;
use serde_json::json;

use crate::args::AttachOptions;
use crate::args::Usage;
use crate::client;
use crate::client::leaving;
use crate::client::refusal;
use crate::client::refusal::Identity;
use crate::output;

/// How long clients get for what is under way when the user wants an end.
const GRACE: Duration = Duration::from_secs(5);

/// Bounds of what is kept: some requests, and what memory is addressed for.
const KEEP_MIN: u64 = 1 << 20;
const KEEP_MAX: u64 = 64 << 30;

/// And how long all of it may take: the last flush, and the logout.
const LEAVING_MOST: Duration = Duration::from_secs(20);

/// Who uses the disk runs on the same machine as its server, the initiator and often the target: a
/// processor that spins is missing there (docs/PERFORMANCE.md).
const SPIN_MAX: Duration = Duration::ZERO;

/// Serves one disk until the user wants an end.
pub(crate) fn run(options: &AttachOptions) -> Result<()> {
    let url = client::disk_url(&options.disk.url)?;
    let address = address(&options.nbd)?;
    let wait = client::time("--io-timeout", &options.io_timeout)?;
    let keep_bytes = keep_bytes(&options.keep)?;
    let engine = client::engine(&options.disk.client)?;
    let mut login = client::options(&options.disk.client, &url)?;
    login.reconnect_patience = if wait.is_zero() { Duration::MAX } else { wait };
    let (wake, news) = mpsc::channel();
    let interrupted = wake.clone();
    // Who has gone needs no word.
    leaving::catch_signals(move || drop(interrupted.send(None)))?;
    let mut config = Config { engine, spin_max: SPIN_MAX, ..Config::default() };
    // What is kept is taken from nobody.
    let kept = usize::try_from(keep_bytes).unwrap_or(usize::MAX);
    config.pool_bytes_max = config.pool_bytes_max.saturating_add(kept);
    let initiator = Initiator::start(&config)?;
    let session = log_in(&initiator, login, &url)?;
    let disk = match Disk::open(&session, url.lun.unwrap_or(0)) {
        Ok(disk) => disk,
        Err(error) => {
            session.logout();
            return Err(client::advised(error, &url));
        }
    };
    let bytes = disk.size();
    if keep_bytes == 0 && disk.geometry().volatile_cache {
        output::say(format_args!(
            "{url}: nothing is kept of what is written (--keep 0): when the target begins anew, \
             flushes fail"
        ));
    }
    let description = url.to_string();
    let (server, from) = NbdServer::start(
        disk,
        session.pool().clone(),
        &options.name,
        &description,
        &address,
        &Settings { engine, keep_bytes, ..Settings::default() },
    )?;
    if options.json {
        let nbd = server.address();
        output::result(json!({ "url": description, "nbd": nbd, "bytes": bytes }));
    } else {
        output::line(format_args!("{url} is attached as {}", server.address()));
    }
    output::written()?;
    if let Address::Tcp(text) = &address
        && !is_loopback(text)
    {
        output::warn(format!("everybody who reaches {text} can use the disk, without a password"));
    }
    let passed_on = std::thread::Builder::new().name("news".into()).spawn(move || {
        while let Ok(news) = from.recv() {
            if wake.send(Some(news)).is_err() {
                return;
            }
        }
    })?;
    wait_for_end(&news, &url);
    leaving::set_most(LEAVING_MOST);
    let stopped = server.stop(GRACE);
    // It ends with the server.
    let _ = passed_on.join();
    session.logout();
    stopped.map_err(|error| match error {
        attach::Error::Disk(error) => client::advised(error, &url),
        error => anyhow::anyhow!("{url}: {error}"),
    })
}

fn address(text: &str) -> Result<Address> {
    if text.contains("://") {
        let right = "a path, as /run/disk.sock, or HOST:PORT is right";
        return Err(Usage(format!("--nbd {text}: {right}")).into());
    }
    match Address::parse(text) {
        Address::Path(path) if path.as_os_str().is_empty() => {
            Err(Usage("--nbd: it is empty; a path or HOST:PORT is right".into()).into())
        }
        address => Ok(address),
    }
}

/// Most that is kept: none, or a few requests at least.
fn keep_bytes(text: &str) -> Result<u64> {
    let bytes = client::size("--keep", text)?;
    if bytes != 0 && !(KEEP_MIN..=KEEP_MAX).contains(&bytes) {
        let right = "0, or 1M to 64G, is right";
        return Err(Usage(format!("--keep {text}: {right}")).into());
    }
    Ok(bytes)
}

fn is_loopback(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
}

fn log_in(initiator: &Initiator, options: Options, url: &Url) -> Result<Session> {
    let identity = Identity::of(&options);
    match initiator.connect(options) {
        Ok(session) => Ok(session),
        Err(_) if client::is_interrupted() => bail!("{url}: interrupted"),
        Err(error) => Err(refusal::advised(error, url, &identity)),
    }
}

/// Says what happens until the user wants an end.
fn wait_for_end(news: &mpsc::Receiver<Option<News>>, url: &Url) {
    while !client::is_interrupted() {
        match news.recv_timeout(client::LOOK) {
            Ok(Some(News::Disk(event))) => tell(&event, url),
            Ok(Some(News::Client(text))) => output::say(format_args!("{url}: {text}")),
            Ok(Some(News::WritesAgain { bytes })) => output::say(format_args!(
                "{url}: the target may have lost what it had not on stable storage; writing {} \
                 again, reads and writes wait",
                units::bytes(bytes)
            )),
            Ok(Some(News::WrittenAgain)) => {
                output::say(format_args!("{url}: all is written again and flushed"));
            }
            Ok(Some(News::Broken(cause))) => output::say(format_args!(
                "{url}: what was not flushed may be lost, and cannot be written again: {cause}; \
                 reads and writes fail from now on; try: attach it again"
            )),
            Ok(Some(News::KeepsNothing)) => output::say(format_args!(
                "{url}: the disk has a volatile cache that cannot be flushed; nothing is kept of \
                 what is written, and may be lost when the target begins anew"
            )),
            Ok(Some(_)) | Err(RecvTimeoutError::Timeout) => {}
            Ok(None) | Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn tell(event: &DiskEvent, url: &Url) {
    match event {
        DiskEvent::Lost(error) => output::say(format_args!(
            "{url}: {}; reads and writes wait until the session is back",
            client::besides(error, url)
        )),
        DiskEvent::Back => output::say(format_args!("{url}: the session is back")),
        DiskEvent::Resized { was, now } => output::say(format_args!(
            "{url}: the disk has {now} bytes now, {was} before; clients see it when they connect \
             again"
        )),
        DiskEvent::MayHaveLost(Fate::Reset | Fate::Failed) => output::say(format_args!(
            "{url}: the target may have lost what it had not on stable storage; flushes say so"
        )),
        DiskEvent::Ended(error) => output::say(format_args!(
            "{url}: {}; reads and writes fail from now on; try: attach it again",
            client::besides(error, url)
        )),
        _ => {}
    }
}
