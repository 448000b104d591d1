// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `lunwire attach`, `attached` and `detach`.

mod background;
mod book;
mod detach;
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
use std::sync::mpsc::Receiver;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::mpsc::Sender;
use std::time::Duration;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use attach::News;
use attach::Settings;
use control::admin::Attachment;
use control::admin::AttachmentState;
use control::admin::Reply;
use control::units;
use engine::loops::LoopDevice;
use initiator::Address;
use initiator::Config;
use initiator::Disk;
use initiator::DiskEvent;
use initiator::Fate;
use initiator::Initiator;
use initiator::Options;
use initiator::Session;
use initiator::Url;
use serde_json::json;

use self::background::Failed;
use self::book::Book;
use self::book::Reserved;
use self::losses::Losses;
use self::orders::Detach;
use self::orders::Orders;
use self::served::Place;
use self::served::Served;
use self::served::Wanted;
use self::ublk::Claim;
use self::ublk::Mark;
use self::ublk::Orphan;
use crate::args::AttachOptions;
use crate::client;
use crate::client::Way;
use crate::client::leaving;
use crate::client::refusal;
use crate::client::refusal::Identity;
use crate::output;

/// How long clients get for what is under way when the user wants an end.
const GRACE: Duration = Duration::from_secs(5);

/// And how long all of it may take: the last flush, and the logout.
const LEAVING_MOST: Duration = Duration::from_secs(20);

/// Of a login that takes longer the user hears.
const SOON: Duration = Duration::from_secs(2);

/// Of a last flush that failed.
const UNFLUSHED: &str = "what was written and not flushed may be lost";

/// So many paths more than are given now a disk may have had before.
const PATHS_BEFORE: u16 = 8;

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
    let mut login = patient(client::way(&options.client, &ways)?, patience, claim.as_ref());
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
            end_sessions(&initiator, &mut login, *mark, &url)
        }
        _ => Ok(()),
    };
    let session = ended
        .and_then(|()| log_in(&initiator, login, &address))
        .map_err(|error| ublk::explained(error, claim.as_ref(), &address))?;
    let disk = match Disk::open(&session, url.lun.unwrap_or(0)) {
        Ok(disk) => disk,
        Err(error) => {
            session.logout();
            return Err(ublk::explained(client::advised(error, &url), claim.as_ref(), &address));
        }
    };
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

/// What becomes of a device at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Stop,
    /// It stays for the next process.
    Leave,
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

/// A disk that is attached, and what others know of it.
struct Attached<'a> {
    address: &'a Address,
    /// The first of it.
    url: &'a Url,
    book: Option<Book>,
    served: Served,
    orders: Option<Orders>,
    losses: Losses,
    /// Why requests failed when the disk was looked at last.
    failing: Option<String>,
    /// They fail until it is attached anew.
    is_over: bool,
}

impl Attached<'_> {
    /// Writes the attachment down, and tells the user.
    fn begin(
        &mut self,
        options: &AttachOptions,
        listed: Option<(Book, Reserved)>,
        attachment: &Attachment,
        wake: &Sender<Word>,
    ) -> Result<()> {
        if let Some((book, reserved)) = listed {
            let to = wake.clone();
            // Who has gone gives no answer.
            let order = move |order| drop(to.send(Word::Detach(order)));
            self.orders = Some(Orders::listen(reserved, attachment.clone(), order)?);
            self.book.insert(book).enter(attachment)?;
        }
        let Attachment { url, kind, place, bytes, .. } = attachment;
        if options.json {
            let name = self.book.is_some().then_some(&attachment.name);
            output::result(json!({ "url": url, kind: place, "bytes": bytes, "name": name }));
        } else {
            output::line(format_args!("{url} is attached as {}", output::on_one_line(place)));
        }
        output::written().map(drop)
    }

    /// In the background: from now on nobody sees what it says.
    fn is_ready(&self, options: &AttachOptions, name: &str) -> Result<()> {
        match &self.book {
            Some(book) if options.in_background => background::ready(&book.log(name)),
            _ => Ok(()),
        }
    }

    /// Says what happens until somebody wants an end: by an order, or otherwise.
    fn wait_for_end(&mut self, words: &Receiver<Word>) -> Option<Detach> {
        while !client::is_interrupted() {
            match words.recv_timeout(client::LOOK) {
                Ok(Word::News(News::Disk(event))) => self.on_event(&event),
                Ok(Word::News(News::Client(text))) => {
                    output::say(format_args!("{}: {text}", self.url));
                }
                Ok(Word::News(News::WritesAgain { bytes })) => output::say(format_args!(
                    "{}: the target may have lost what it had not on stable storage; writing {} \
                     again, reads and writes wait",
                    self.url,
                    units::bytes(bytes)
                )),
                Ok(Word::News(News::WrittenAgain)) => {
                    output::say(format_args!("{}: all is written again and flushed", self.url));
                }
                Ok(Word::News(News::Broken { cause, may_be_lost })) => {
                    let lost = match may_be_lost {
                        true => "what was not flushed may be lost, and cannot be written again: ",
                        false => "",
                    };
                    output::say(format_args!(
                        "{}: {lost}{cause}; reads and writes fail from now on; try: attach it \
                         again",
                        self.url
                    ));
                    self.fails_for_good(cause);
                }
                Ok(Word::News(News::FlushesFail(cause))) => {
                    output::say(format_args!(
                        "{}: {cause}; flushes fail from now on; try: attach it again, and write \
                         again what was not flushed",
                        self.url
                    ));
                    self.fails_for_good(cause);
                }
                Ok(Word::Looked(found)) => self.on_look(found),
                Ok(Word::News(News::KeepsNothing)) => output::say(format_args!(
                    "{}: the disk has a volatile cache that cannot be flushed; nothing is kept of \
                     what is written, and may be lost when the target begins anew",
                    self.url
                )),
                Ok(Word::News(News::Unmounted) | Word::Interrupted)
                | Err(RecvTimeoutError::Disconnected) => return None,
                Ok(Word::Detach(order)) if order.leave && self.served.kind() != "ublk" => {
                    let message = "only a ublk device can be left to the next process".into();
                    // Who does not wait any more does not want to know.
                    let _ = order.reply.send(Reply::Error { message });
                }
                Ok(Word::Detach(order)) if order.force || order.leave => return Some(order),
                Ok(Word::Detach(order)) => match self.served.release() {
                    Ok(()) => return Some(order),
                    Err(users) => {
                        let message = format!(
                            "{users}; try: end that first, or --force, which loses what was not \
                             written"
                        );
                        // Who does not wait any more does not want to know.
                        let _ = order.reply.send(Reply::Error { message });
                    }
                },
                Ok(Word::News(_)) | Err(RecvTimeoutError::Timeout) => {}
            }
        }
        None
    }

    fn on_event(&mut self, event: &DiskEvent) {
        let since = now();
        match event {
            DiskEvent::Lost(error) => {
                self.set_state(AttachmentState::Waits { since, cause: error.to_string() });
            }
            DiskEvent::Back => self.set_state(AttachmentState::Works),
            DiskEvent::Ended(error) => self.fails_for_good(error.to_string()),
            _ => {}
        }
        if self.losses.is_news(event) {
            let about = match event {
                DiskEvent::Lost(error) | DiskEvent::Ended(error) => error.member(),
                _ => None,
            };
            let url = self.address.first_of(about).unwrap_or(self.url);
            tell(event, url, self.served.kind());
        }
        let DiskEvent::Resized { now, .. } = event else { return };
        self.take_size(*now);
        if let (Some(book), Some(orders)) = (&self.book, &self.orders) {
            // The process that is asked knows better than the file.
            let _ = book.enter(&orders.change(|attachment| attachment.bytes = *now));
        }
    }

    /// What becomes of requests, as a look at the disk has found.
    fn on_look(&mut self, found: Result<(), String>) {
        match &found {
            _ if self.is_over => return,
            Ok(()) if self.failing.is_none() => return,
            Ok(()) => {
                output::say(format_args!("{}: requests are carried out again", self.url));
                self.set_state(AttachmentState::Works);
            }
            Err(cause) => {
                if self.failing.as_ref() != Some(cause) {
                    output::say(format_args!("{}: requests fail: {cause}", self.url));
                }
                self.set_state(AttachmentState::Fails { since: now(), cause: cause.clone() });
            }
        }
        self.failing = found.err();
    }

    /// Nothing comes after it.
    fn fails_for_good(&mut self, cause: String) {
        self.set_state(AttachmentState::Fails { since: now(), cause });
        self.is_over = true;
    }

    /// What becomes of requests now; whoever asks is told.
    fn set_state(&self, state: AttachmentState) {
        let Some(orders) = self.orders.as_ref().filter(|_| !self.is_over) else { return };
        orders.change(|attachment| {
            attachment.state = match (&attachment.state, state) {
                // It is one time until the session is back, whatever fails meanwhile.
                (AttachmentState::Waits { since, .. }, AttachmentState::Waits { cause, .. }) => {
                    AttachmentState::Waits { since: *since, cause }
                }
                (
                    AttachmentState::Fails { since, cause: before },
                    AttachmentState::Fails { cause, .. },
                ) if *before == cause => AttachmentState::Fails { since: *since, cause },
                (_, state) => state,
            };
        });
    }

    /// The disk has so many bytes.
    fn take_size(&self, bytes: u64) {
        if let Err(error) = self.served.resized(bytes) {
            output::say(format_args!("{}: the device keeps its size: {error}", self.url));
        }
    }

    /// Ends all, and answers those who have ordered that.
    fn end(
        self,
        session: &Session,
        name: &str,
        order: Option<Detach>,
        how: How,
        words: Receiver<Word>,
    ) -> Result<()> {
        let Self { address: _, url, book, served, orders, .. } = self;
        let stopped = match how {
            How::Stop => served.stop(GRACE),
            How::Leave => served.leave(),
        };
        session.logout();
        if let Some(book) = &book
            && how == How::Stop
        {
            book.strike(name);
        }
        let ended = match stopped {
            Ok(lost) => {
                lost.iter().for_each(output::warn);
                Ok(lost)
            }
            Err(attach::Error::Disk(error)) => Err(client::advised(error, url).context(UNFLUSHED)),
            Err(error) => Err(anyhow::anyhow!("{url}: {error}")),
        };
        if let (Some(book), Ok(_)) = (&book, &ended) {
            // Nothing in it is of interest any more; with the socket the name is free for others.
            let _ = std::fs::remove_file(book.log(name));
        }
        if let Some(orders) = orders {
            orders.ended(match &ended {
                Ok(lost) => Reply::Detached { warnings: lost.clone() },
                Err(error) => {
                    Reply::Error { message: format!("it ended, but {}", output::chain(error)) }
                }
            });
            let ordered_meanwhile = words.try_iter().filter_map(|word| match word {
                Word::Detach(order) => Some(order),
                _ => None,
            });
            let waiting = order.into_iter().chain(ordered_meanwhile).map(|order| order.reply);
            let waiting = waiting.collect();
            drop(words);
            orders.leave(waiting);
        }
        ended.map(drop)
    }
}

/// Operations wait for `patience` when there is no way. Sessions go by the names of `claim`.
fn patient(mut way: Way, patience: Duration, claim: Option<&Claim>) -> Way {
    for (number, options) in (0..).zip(options_of(&mut way)) {
        options.reconnect_patience = patience;
        options.takes_over = claim.is_some_and(|claim| claim.orphan.is_some());
        options.isid = options.isid.or_else(|| claim.map(|claim| claim.mark.isid(number)));
    }
    way
}

/// Of each path.
fn options_of(way: &mut Way) -> Vec<&mut Options> {
    match way {
        Way::One(options) => vec![options],
        Way::Paths(paths) => paths.paths.iter_mut().map(|(options, _)| options).collect(),
        Way::Stripe(stripe) => {
            let members = stripe.members.iter_mut();
            members.flat_map(|paths| &mut paths.paths).map(|(options, _)| options).collect()
        }
    }
}

/// Ends what the process before has left of its sessions where the disk is now, whichever path of
/// how many that was: each had the next ISID.
fn end_sessions(initiator: &Initiator, way: &mut Way, mark: Mark, url: &Url) -> Result<()> {
    let all = options_of(way);
    let before = PATHS_BEFORE.saturating_add(u16::try_from(all.len()).unwrap_or(u16::MAX));
    for options in all {
        for path in 0..before {
            let isid = Some(mark.isid(path));
            let session = initiator.connect(Options { isid, ..options.clone() });
            let identity = Identity::of(options);
            session.map_err(|error| refusal::advised(error, url, &identity))?.logout();
        }
    }
    Ok(())
}

fn log_in(initiator: &Initiator, way: Way, address: &Address) -> Result<Session> {
    let url = address.first().context("there is no URL")?;
    let _patience = Patience::begin(address.to_string())?;
    let (session, identity) = match way {
        Way::One(options) => {
            let identity = Identity::of(&options);
            (initiator.connect(*options), identity)
        }
        Way::Paths(paths) => {
            let identity = client::identity_of(&paths)?;
            (initiator.connect_paths(paths), identity)
        }
        Way::Stripe(stripe) => {
            let first = stripe.members.first().context("there is no URL")?;
            let identity = client::identity_of(first)?;
            (initiator.connect_stripe(stripe), identity)
        }
    };
    match session {
        Ok(session) => Ok(session),
        Err(_) if client::is_interrupted() => bail!("{url}: interrupted"),
        Err(error) => {
            let url = address.first_of(error.member()).unwrap_or(url);
            Err(refusal::advised(error, url, &identity))
        }
    }
}

/// Tells that a login takes long, unless it is dropped before.
struct Patience {
    _end: Sender<()>,
}

impl Patience {
    fn begin(place: String) -> Result<Self> {
        let (end, ended) = mpsc::channel::<()>();
        std::thread::Builder::new().name("patience".into()).spawn(move || {
            if ended.recv_timeout(SOON) == Err(RecvTimeoutError::Timeout) {
                output::say(format_args!("{place}: trying to reach the target for a while"));
            }
        })?;
        Ok(Self { _end: end })
    }
}

/// Seconds since the epoch.
fn now() -> u64 {
    std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs()
}

fn tell(event: &DiskEvent, url: &Url, kind: &str) {
    match event {
        DiskEvent::Lost(error) => output::say(format_args!(
            "{url}: {}; reads and writes wait until the session is back",
            client::besides(error, url)
        )),
        DiskEvent::Path { path, change } => client::tell_of_path(*path, change),
        DiskEvent::Back => output::say(format_args!("{url}: the session is back")),
        DiskEvent::Resized { was, now } => {
            let seen = if kind == "nbd" { "; clients see it when they connect again" } else { "" };
            output::say(format_args!("{url}: the disk has {now} bytes now, {was} before{seen}"));
        }
        DiskEvent::Cache { volatile } => output::say(format_args!(
            "{url}: the disk {} a volatile cache now (WCE)",
            if *volatile { "has" } else { "has no" }
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
