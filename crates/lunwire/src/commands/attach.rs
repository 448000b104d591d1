// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `lunwire attach`.

mod served;

use std::sync::mpsc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use anyhow::Result;
use anyhow::bail;
use attach::Address;
use attach::News;
use initiator::Config;
use initiator::Disk;
use initiator::DiskEvent;
use initiator::Initiator;
use initiator::Options;
use initiator::Session;
use initiator::Url;
use serde_json::json;

use self::served::Place;
use self::served::Served;
use crate::args::AttachOptions;
use crate::client;
use crate::client::leaving;
use crate::client::refusal;
use crate::client::refusal::Identity;
use crate::output;

/// How long clients get for what is under way when the user wants an end.
const GRACE: Duration = Duration::from_secs(5);

/// And how long all of it may take: the last flush, and the logout.
const LEAVING_MOST: Duration = Duration::from_secs(20);

/// Who uses the disk runs on the same machine as its server, the initiator and often the target: a
/// processor that spins is missing there (docs/PERFORMANCE.md).
const SPIN_MAX: Duration = Duration::ZERO;

/// Serves one disk until the user wants an end.
pub(crate) fn run(options: &AttachOptions) -> Result<()> {
    let url = client::disk_url(&options.disk.url)?;
    let place = Place::of(options)?;
    let wait = client::time("--io-timeout", &options.io_timeout)?;
    let engine = client::engine(&options.disk.client)?;
    let mut login = client::options(&options.disk.client, &url)?;
    login.reconnect_patience = if wait.is_zero() { Duration::MAX } else { wait };
    let (wake, news) = mpsc::channel();
    let interrupted = wake.clone();
    // Who has gone needs no word.
    leaving::catch_signals(move || drop(interrupted.send(None)))?;
    let initiator = Initiator::start(&Config { engine, spin_max: SPIN_MAX, ..Config::default() })?;
    let session = log_in(&initiator, login, &url)?;
    let disk = match Disk::open(&session, url.lun.unwrap_or(0)) {
        Ok(disk) => disk,
        Err(error) => {
            session.logout();
            return Err(client::advised(error, &url));
        }
    };
    let bytes = disk.size();
    let description = url.to_string();
    let (served, from) = Served::start(&place, disk, &session, options, &description, engine)?;
    if options.json {
        let (kind, shown) = served.json();
        output::result(json!({ "url": description, kind: shown, "bytes": bytes }));
    } else {
        output::line(format_args!("{url} is attached as {}", served.shown()));
    }
    output::written()?;
    if let Place::Nbd(Address::Tcp(text)) = &place
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
    let stopped = served.stop(GRACE);
    // It ends with the server.
    let _ = passed_on.join();
    session.logout();
    match stopped {
        Ok(None) => Ok(()),
        Ok(Some(warning)) => {
            output::warn(warning);
            Ok(())
        }
        Err(attach::Error::Disk(error)) => Err(client::advised(error, &url)),
        Err(error) => bail!("{url}: {error}"),
    }
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
            Ok(Some(News::Unmounted)) => return,
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
        DiskEvent::Ended(error) => output::say(format_args!(
            "{url}: {}; reads and writes fail from now on; try: attach it again",
            client::besides(error, url)
        )),
        _ => {}
    }
}
