// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A disk that is attached, until somebody wants an end.

use std::sync::mpsc::Receiver;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::mpsc::Sender;
use std::time::Duration;

use anyhow::Result;
use attach::News;
use control::admin::Attachment;
use control::admin::AttachmentState;
use control::admin::Reply;
use control::units;
use initiator::Address;
use initiator::DiskEvent;
use initiator::Fate;
use initiator::Session;
use initiator::Url;
use serde_json::json;

use super::Word;
use super::background;
use super::book::Book;
use super::book::Reserved;
use super::losses::Losses;
use super::now;
use super::orders::Detach;
use super::orders::Orders;
use super::served::Served;
use crate::args::AttachOptions;
use crate::client;
use crate::output;

/// How long clients get for what is under way when the user wants an end.
const GRACE: Duration = Duration::from_secs(5);

/// How long the target gets to flush what was written before somebody is refused to detach it.
const SETTLING_MOST: Duration = Duration::from_secs(5);

/// Of a last flush that failed.
const UNFLUSHED: &str = "what was written and not flushed may be lost";

/// What becomes of a device at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    Stop,
    /// It stays for the next process.
    Leave,
}

/// A disk that is attached, and what others know of it.
pub(super) struct Attached<'a> {
    pub(super) address: &'a Address,
    /// The first of it.
    pub(super) url: &'a Url,
    pub(super) book: Option<Book>,
    pub(super) served: Served,
    pub(super) orders: Option<Orders>,
    pub(super) losses: Losses,
    /// Why requests failed when the disk was looked at last.
    pub(super) failing: Option<String>,
    /// They fail until it is attached anew.
    pub(super) is_over: bool,
}

impl Attached<'_> {
    /// Writes the attachment down, and tells the user.
    pub(super) fn begin(
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
    pub(super) fn is_ready(&self, options: &AttachOptions, name: &str) -> Result<()> {
        match &self.book {
            Some(book) if options.in_background => {
                background::ready(&book.log(name))?;
                let (disk, place) = (self.address, self.served.shown());
                output::say(format_args!("{disk} is attached as {}", output::on_one_line(&place)));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Says what happens until somebody wants an end: by an order, or otherwise.
    pub(super) fn wait_for_end(&mut self, words: &Receiver<Word>) -> Option<Detach> {
        while !client::is_interrupted() {
            match words.recv_timeout(client::LOOK) {
                Ok(Word::News(News::Disk(event))) => self.on_event(&event),
                Ok(Word::News(News::Client(text))) => {
                    output::say(format_args!("{}: {text}", self.disk()));
                }
                Ok(Word::News(News::WritesAgain { bytes })) => output::say(format_args!(
                    "{}: the target may have lost what it had not on stable storage; writing {} \
                     again, reads and writes wait",
                    self.disk(),
                    units::bytes(bytes)
                )),
                Ok(Word::News(News::WrittenAgain)) => {
                    output::say(format_args!("{}: all is written again and flushed", self.disk()));
                }
                Ok(Word::News(News::Broken { cause, may_be_lost })) => {
                    let lost = match may_be_lost {
                        true => "what was not flushed may be lost, and cannot be written again: ",
                        false => "",
                    };
                    output::say(format_args!(
                        "{}: {lost}{cause}; reads and writes fail from now on; try: attach it \
                         again",
                        self.disk()
                    ));
                    self.fails_for_good(cause);
                }
                Ok(Word::News(News::FlushesFail(cause))) => {
                    output::say(format_args!(
                        "{}: {cause}; flushes fail from now on; try: attach it again, and write \
                         again what was not flushed",
                        self.disk()
                    ));
                    self.fails_for_good(cause);
                }
                Ok(Word::Looked(found)) => self.on_look(found),
                Ok(Word::News(News::KeepsNothing)) => output::say(format_args!(
                    "{}: the disk has a volatile cache that cannot be flushed; nothing is kept of \
                     what is written, and may be lost when the target begins anew",
                    self.disk()
                )),
                Ok(Word::News(News::Unmounted) | Word::Interrupted)
                | Err(RecvTimeoutError::Disconnected) => return None,
                Ok(Word::Detach(order)) if order.leave && self.served.kind() != "ublk" => {
                    let message = "only a ublk device can be left to the next process".into();
                    // Who does not wait any more does not want to know.
                    let _ = order.reply.send(Reply::Error { message });
                }
                Ok(Word::Detach(order)) if order.force || order.leave => return Some(order),
                Ok(Word::Detach(order)) => match self.release() {
                    Ok(()) => return Some(order),
                    // Who does not wait any more does not want to know.
                    Err(message) => drop(order.reply.send(Reply::Error { message })),
                },
                Ok(Word::News(_)) | Err(RecvTimeoutError::Timeout) => {}
            }
        }
        None
    }

    /// Lets go of the disk, if nothing is lost by that.
    ///
    /// # Errors
    /// Who uses it, or that the target is away.
    fn release(&self) -> Result<(), String> {
        if self.served.settle(SETTLING_MOST).is_err() {
            let users = self.served.users().map(|users| format!("; {users}")).unwrap_or_default();
            return Err(format!(
                "the target has not answered a flush for {} s, and what was written and not \
                 flushed would be lost{users}; try: again when it is back, or --force, which loses \
                 that",
                SETTLING_MOST.as_secs()
            ));
        }
        self.served.release().map_err(|users| {
            format!("{users}; try: end that first, or --force, which loses what was not written")
        })
    }

    /// What is attached, for people: one disk by its first path.
    fn disk(&self) -> String {
        match self.address {
            Address::Stripe { .. } => self.address.to_string(),
            Address::Paths(_) => self.url.to_string(),
        }
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
            let disk = about.map_or_else(|| self.disk(), |_| url.to_string());
            tell(event, &disk, url, self.served.kind());
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
        if let (Some(book), Some(orders)) = (&self.book, &self.orders) {
            // Who cleans folders of old files takes those of processes that live, too.
            book.enter_again(&orders.change(|_| {}));
        }
        match &found {
            _ if self.is_over => return,
            Ok(()) if self.failing.is_none() => return,
            Ok(()) => {
                output::say(format_args!("{}: requests are carried out again", self.disk()));
                self.set_state(AttachmentState::Works);
            }
            Err(cause) => {
                if self.failing.as_ref() != Some(cause) {
                    output::say(format_args!("{}: requests fail: {cause}", self.disk()));
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
    pub(super) fn take_size(&self, bytes: u64) {
        if let Err(error) = self.served.resized(bytes) {
            output::say(format_args!("{}: the device keeps its size: {error}", self.disk()));
        }
    }

    /// Ends all, and answers those who have ordered that.
    pub(super) fn end(
        self,
        session: &Session,
        name: &str,
        order: Option<Detach>,
        how: How,
        words: Receiver<Word>,
    ) -> Result<()> {
        let disk = self.disk();
        client::set_last_words(format!("{disk}: {UNFLUSHED}, if anything was"));
        let Self { address: _, url, book, served, orders, .. } = self;
        let (lost, stopped) = match how {
            How::Stop => served.stop(GRACE),
            How::Leave => served.leave(),
        };
        session.logout();
        if let Some(book) = &book
            && how == How::Stop
        {
            book.strike(name);
        }
        lost.iter().for_each(output::warn);
        let ended = match stopped {
            Ok(()) => Ok(()),
            Err(attach::Error::Disk(error)) => Err(client::advised(error, url).context(UNFLUSHED)),
            Err(error) => Err(anyhow::anyhow!("{url}: {error}")),
        };
        let is_told = lost.is_empty() || order.is_some();
        if let (Some(book), Ok(()), true) = (&book, &ended, is_told) {
            // Nothing in it is of interest any more; with the socket the name is free for others.
            let _ = std::fs::remove_file(book.log(name));
        }
        if let Some(orders) = orders {
            orders.ended(match &ended {
                Ok(()) => Reply::Detached { warnings: lost },
                Err(error) => {
                    let lost: String = lost.iter().map(|lost| format!("{lost}; ")).collect();
                    let error = output::chain(error);
                    Reply::Error { message: format!("it ended, but {lost}{error}") }
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
        ended
    }
}

fn tell(event: &DiskEvent, disk: &str, url: &Url, kind: &str) {
    match event {
        DiskEvent::Lost(error) => output::say(format_args!(
            "{disk}: {}; reads and writes wait until the session is back",
            client::besides(error, url)
        )),
        DiskEvent::Path { path, change } => client::tell_of_path(*path, change),
        DiskEvent::Back => output::say(format_args!("{disk}: the session is back")),
        DiskEvent::Resized { was, now } => {
            let seen = if kind == "nbd" { "; clients see it when they connect again" } else { "" };
            output::say(format_args!("{disk}: the disk has {now} bytes now, {was} before{seen}"));
        }
        DiskEvent::Cache { volatile } => output::say(format_args!(
            "{disk}: the disk {} volatile cache now (WCE)",
            if *volatile { "has a" } else { "has no" }
        )),
        DiskEvent::MayHaveLost(Fate::Reset | Fate::Failed) => output::say(format_args!(
            "{disk}: the target may have lost what it had not on stable storage; flushes say so"
        )),
        DiskEvent::Ended(error) => output::say(format_args!(
            "{disk}: {}; reads and writes fail from now on; try: attach it again",
            client::besides(error, url)
        )),
        _ => {}
    }
}
