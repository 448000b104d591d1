// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the pumps of a target share.

use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::time::Duration;

use capture::Capture;
use wire::ether::Mac;

use super::LocalEnd;
use super::letter::Letter;
use super::transport::local_ends;
use super::waiting::Board;
use crate::authentication::Challenges;
use crate::catalogue::Catalogue;
use crate::ends::Ends;
use crate::ends::Peer;
use crate::limits::Limit;
use crate::limits::Limits;
use crate::mail::Mailbox;
use crate::rdma::Rdma;
use crate::registry::Registry;
use crate::silences::Silences;
use crate::slow::Slow;
use crate::stores::Files;
use crate::strangers::Strangers;

/// What all reactors share; read only but for the locks of registry and strangers, which only
/// connections that come, log in or go take.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) catalogue: Catalogue,
    pub(crate) challenges: Challenges,
    pub(crate) registry: Registry,
    pub(crate) strangers: Strangers,
    pub(crate) mailboxes: Vec<Mailbox<Letter>>,
    pub(crate) board: Board,
    /// Disks whose stores do not answer.
    pub(crate) silences: Silences,
    /// How much initiators and disks may have.
    pub(crate) limits: Limits,
    /// Commands that are told of.
    pub(crate) slow: Slow,
    /// For administration, and for the names of files in the log.
    pub(crate) files: Files,
    pub(crate) login_timeout: Duration,
    /// Of portals that have no word of their own.
    pub(crate) rdma: Rdma,
    /// Where connections are captured to.
    pub(crate) capture: Option<Capture>,
    /// Whoever wants commands to be over waits so long for what is done elsewhere for them.
    pub(crate) end_wait: Duration,
    /// How long answers may wait for others to go with them; zero where reactors never spin, since
    /// sleeping for so short a time would cost more than it saves.
    pub(crate) hold_back: Duration,
    /// Connections so far that come to no reactor's socket: the reactors take them in turn.
    pub(crate) locals: AtomicUsize,
}

impl Shared {
    /// From now on these limits; who waits for one looks again.
    pub(crate) fn limit(&self, limits: Vec<(String, Vec<Limit>)>) {
        self.limits.set(limits);
        self.mailboxes.iter().for_each(Mailbox::stir);
    }

    /// Takes a connection over frames, which looks like one of TCP from here.
    pub(crate) fn take_stream(&self, fd: OwnedFd, peer: Mac) {
        let ends = Ends { peer: Peer::Station(peer), local: self.catalogue.now().any_portal() };
        let number = self.locals.fetch_add(1, Ordering::Relaxed);
        if let Some(mailbox) = self.mailboxes.get(number % self.mailboxes.len().max(1)) {
            mailbox.send(Letter::Connection { fd, ends });
        }
    }

    /// Opens a connection from this process to the next reactor in turn.
    pub(crate) fn open_local(&self) -> LocalEnd {
        let (theirs, end) = local_ends();
        let ends = Ends { peer: Peer::Local, local: self.catalogue.now().any_portal() };
        let number = self.locals.fetch_add(1, Ordering::Relaxed);
        if let Some(mailbox) = self.mailboxes.get(number % self.mailboxes.len().max(1)) {
            mailbox.send(Letter::Local { end, ends });
        }
        theirs
    }
}
