// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `lunwire attach`, `attached` and `detach`.

mod attached;
mod background;
mod book;
mod detach;
mod login;
mod look;
mod losses;
mod options;
mod orders;
mod served;
mod ublk;
mod users;

pub(crate) use detach::attached;
pub(crate) use detach::detach;

use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context as _;
use anyhow::Result;
use attach::News;
use attach::Settings;
use control::admin::Attachment;
use control::admin::AttachmentState;
use engine::loops::LoopDevice;
use initiator::Config;
use initiator::Disk;
use initiator::Initiator;
use initiator::Url;

use self::attached::Attached;
use self::attached::How;
use self::background::Failed;
use self::book::Book;
use self::book::Reserved;
use self::losses::Losses;
use self::orders::Detach;
use self::served::Place;
use self::served::Served;
use self::served::Wanted;
use self::ublk::Claim;
use self::ublk::Orphan;
use crate::args::AttachOptions;
use crate::client;
use crate::client::leaving;
use crate::output;
use crate::remains::Remains;

/// How long all of an end may take: what clients have under way, the last flush, and the logout.
const LEAVING_MOST: Duration = Duration::from_secs(30);

/// Who wants something of the thread that has attached the disk.
#[derive(Debug)]
enum Word {
    Interrupted,
    News(News),
    /// A look at the disk has found that it is ready, or why it is not.
    Looked(Result<(), String>),
    Detach(Detach),
}

/// Attaches one disk until the user wants an end.
pub(crate) fn run(options: &AttachOptions) -> Result<()> {
    let (address, folder) = options::taken_apart(&options.what)?;
    let place = Place::of(options, folder)?;
    let wait = client::time("--io-timeout", &options.io_timeout)?;
    let keep_bytes = options::keep_bytes(options.keep.as_deref())?;
    let tls = options::tls(options)?;
    let spin_max = client::time("--spin", &options.spin)?;
    options::run_on(&options.cpus)?;
    if options.daemon {
        return match background::start()? {
            None => Ok(()),
            // The other process has said why.
            Some(Failed(status)) => std::process::exit(status.into()),
        };
    }
    if options.in_background {
        background::part()?;
        leaving::outlive_hangups()?;
    }
    let url = address.first().context("there is no URL")?.clone();
    let description = address.to_string();
    let claim = match place {
        Place::Ublk(recover) => {
            Some(Claim::find(recover, options.alias.as_deref(), &book_of(options)?, &description)?)
        }
        Place::Loop => {
            LoopDevice::are_allowed()?;
            None
        }
        Place::Nbd(_) | Place::Folder(_) => None,
    };
    let listed = list(options, &place, &url, claim.as_ref())?;
    let engine = client::engine(&options.client)?;
    let ways = options::with_sessions(&address, options.sessions);
    let patience = if wait.is_zero() { Duration::MAX } else { wait };
    let mut login = login::patient(client::way(&options.client, &ways)?, patience, claim.as_ref());
    let mut remains = listed.as_ref().map(|(book, _)| Remains::of_a_disk(book.folder()));
    if let Some(remains) = &mut remains {
        login::remember(remains, &mut login, &ways);
    }
    if place.is_device()
        && let Err(error) = rustix::process::configure_io_flusher_behavior(true)
    {
        tracing::debug!(%error, "memory may be waited for that the device has to free");
    }
    let (wake, words) = mpsc::channel();
    let interrupted = wake.clone();
    // Who has gone needs no word.
    leaving::catch_signals(move || drop(interrupted.send(Word::Interrupted)))?;
    let mut config = Config { engine, spin_max, ..Config::default() };
    // What is kept is taken from nobody.
    let kept = usize::try_from(keep_bytes).unwrap_or(usize::MAX);
    config.pool_bytes_max = config.pool_bytes_max.saturating_add(kept);
    let initiator = Initiator::start(&config)?;
    let ended = match &claim {
        Some(Claim { mark, orphan: Some(Orphan { is_elsewhere: true, .. }) })
            if options.client.isid.is_none() =>
        {
            login::end_sessions(&initiator, &mut login, *mark, &url)
        }
        _ => Ok(()),
    };
    let session = ended
        .and_then(|()| login::log_in(&initiator, login, &address))
        .map_err(|error| ublk::explained(error, claim.as_ref(), &address))?;
    let disk = match Disk::open(&session, url.lun.unwrap_or(0)) {
        Ok(disk) => disk,
        Err(error) => {
            session.logout();
            return Err(ublk::explained(client::advised(error, &url), claim.as_ref(), &address));
        }
    };
    let left = remains.map_or(Ok(()), |remains| {
        login::end_what_remains(&remains, &initiator, &session, &address, &options.client)
    });
    match (left, &place) {
        // The user is certain that nothing comes any more.
        (Err(error), Place::Ublk(Some(_))) => output::warn(output::chain(&error)),
        (Err(error), _) => {
            session.logout();
            return Err(error);
        }
        (Ok(()), _) => {}
    }
    let geometry = disk.geometry();
    if let Some(text) = options::what_is_kept(options, keep_bytes, &geometry) {
        output::say(format_args!("{url}: {text}"));
    }
    let device = match &claim {
        Some(claim) => match claim.device(&session, &address, &disk) {
            Ok(device) => Some(device),
            Err(error) => {
                session.logout();
                return Err(error);
            }
        },
        None => None,
    };
    let mount = match &listed {
        Some((book, Reserved { name, .. })) if place == Place::Loop => Some(book.make_mount(name)?),
        _ => None,
    };
    let settings = Settings { engine, keep_bytes, tls, ..Settings::default() };
    let wanted = Wanted {
        place: &place,
        export: &options.name,
        description: &description,
        mount,
        device,
        settings,
    };
    let has_grown = claim.as_ref().is_some_and(|claim| claim.has_grown(&disk));
    let is_again = claim.as_ref().is_some_and(|claim| claim.orphan.is_some());
    let looked_at = disk.clone();
    let started = Served::start(&wanted, disk, &session);
    let (served, from) = match started {
        Ok(started) => started,
        Err(error) => {
            // Its socket goes, too. A device that could not be taken over still waits.
            if let Some((book, reserved)) = listed
                && !is_again
            {
                book.strike(&reserved.name);
            }
            session.logout();
            return Err(ublk::outrun(error, claim.as_ref()));
        }
    };
    let name = listed.as_ref().map(|(_, reserved)| reserved.name.clone()).unwrap_or_default();
    let attachment = Attachment {
        name: name.clone(),
        url: description.clone(),
        kind: served.kind().to_owned(),
        place: served.shown(),
        folder: served.folder().map(|folder| folder.display().to_string()),
        bytes: geometry.bytes(),
        read_only: geometry.read_only,
        pid: std::process::id(),
        state: AttachmentState::Works,
    };
    let mut attached = Attached {
        address: &address,
        url: &url,
        book: None,
        served,
        orders: None,
        losses: Losses::default(),
        failing: None,
        is_over: false,
    };
    let ready = attached.begin(options, listed, &attachment, &wake).and_then(|()| {
        for (path, change) in session.troubled_paths() {
            client::tell_of_path(path, &change);
        }
        if let Place::Nbd(attach::Address::Tcp(text)) = &place
            && !options::is_loopback(text)
            && !options.tls_verify_peer
        {
            let without = if options.tls.is_some() { "certificate" } else { "password" };
            output::warn(format!(
                "everybody who reaches {text} can use the disk, without a {without}"
            ));
        }
        attached.is_ready(options, &name)
    });
    if let Err(error) = ready {
        let how = if is_again { How::Leave } else { How::Stop };
        attached.end(&session, &name, None, how, words)?;
        return Err(error);
    }
    if let Some(Claim { orphan: Some(Orphan { name: Some(before), .. }), .. }) = &claim
        && *before != name
        && let Some(book) = &attached.book
    {
        book.clean(before);
    }
    if has_grown {
        attached.take_size(geometry.bytes());
    }
    let to = wake.clone();
    // Who has gone wants to know nothing.
    let looking = look::begin(looked_at, move |found| drop(to.send(Word::Looked(found))))?;
    let passed_on = std::thread::Builder::new().name("news".into()).spawn(move || {
        while let Ok(news) = from.recv() {
            if wake.send(Word::News(news)).is_err() {
                return;
            }
        }
    })?;
    let order = attached.wait_for_end(&words);
    drop(looking);
    leaving::set_most(LEAVING_MOST);
    let how = if order.as_ref().is_some_and(|order| order.leave) { How::Leave } else { How::Stop };
    let ended = attached.end(&session, &name, order, how, words);
    // It ends with the server.
    let _ = passed_on.join();
    ended
}

fn book_of(options: &AttachOptions) -> Result<Book> {
    let book = Book::required(&options.place)?;
    book.make()?;
    Ok(book)
}

/// Where the attachment is written down, and by which name. In the foreground it may be listed
/// nowhere.
fn list(
    options: &AttachOptions,
    place: &Place,
    url: &Url,
    claim: Option<&Claim>,
) -> Result<Option<(Book, Reserved)>> {
    let wanted = options.alias.as_deref();
    if let Some(Claim { orphan: Some(Orphan { name: Some(name), .. }), .. }) = claim
        && wanted.is_none_or(|wanted| wanted == name)
    {
        let book = book_of(options)?;
        let reserved = book.reserve_again(name)?;
        return Ok(Some((book, reserved)));
    }
    let reserve = |book: Book| {
        book.make()?;
        let reserved = book.reserve(wanted, url)?;
        Ok((book, reserved))
    };
    let is_chosen = options.place.state_dir.is_some();
    if options.in_background || is_chosen || place.is_device() {
        return reserve(Book::required(&options.place)?).map(Some);
    }
    let Some(book) = Book::of(&options.place) else { return Ok(None) };
    match reserve(book) {
        Ok(listed) => Ok(Some(listed)),
        // The user has named it.
        Err(error) if wanted.is_some() => Err(error),
        Err(error) => {
            output::warn(format!("lunwire attached will not list it: {}", output::chain(&error)));
            Ok(None)
        }
    }
}

/// Seconds since the epoch.
fn now() -> u64 {
    std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs()
}
