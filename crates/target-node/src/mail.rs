// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Letters between reactors, and from the daemon to them. Never on the way of a command.

use std::collections::VecDeque;
use std::fmt;
use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::Sender;
use std::time::Duration;
use std::time::Instant;

use engine::FileRefused;
use engine::Waker;
use iscsi::target_role::Parameters;
use scsi::LogicalUnit;
use store::FileId;
use wire::iscsi::Tsih;

use crate::catalogue::Nodes;
use crate::catalogue::Outdated;
use crate::figures::Figures;
use crate::pump::Handover;
use crate::pump::OurEnd;
use crate::registry::Identity;
use crate::stores::StoreFile;
use crate::table::Key;

/// A letter to a reactor.
#[derive(Debug)]
pub(crate) enum Letter {
    /// A connection to take over.
    Connection { fd: OwnedFd, ends: Ends },
    /// A connection from this process to take over.
    Local { end: OurEnd, ends: Ends },
    /// A login under way, for a session that lives here.
    TakeOver(Box<Handover>),
    /// End a session at once: a login on `reactor` reinstates it and waits in `connection`.
    Reinstate { identity: Identity, tsih: Tsih, reactor: usize, connection: Key },
    /// A stranger must make room for others.
    Evict { connection: Key },
    /// The session that `connection` waits for has gone.
    Vacated { connection: Key },
    /// End all tasks of `units` here, for task management that `management` on `reactor` waits for.
    AbortUnits { units: Units, effect: Effect, whose: Whose, reactor: usize, management: Key },
    /// `AbortUnits` is done.
    UnitsAborted { management: Key },
    /// Initiators may have a new file's blocks asked for from now on.
    AddFile { file: StoreFile, reply: Sender<Result<(), FileRefused>> },
    /// Nobody asks for blocks of this file any more.
    RemoveFile { id: FileId, reply: Sender<()> },
    /// The units of a target are others now: all its sessions here see them.
    Remap { target: Arc<str>, reply: Sender<()> },
    /// End the commands for `unit` that are under way here.
    EndTasks { unit: Arc<LogicalUnit>, reply: Sender<()> },
    /// Answer when the work on `unit` that is under way here is done.
    Drain { unit: Arc<LogicalUnit>, reply: Sender<()> },
    /// TARGET COLD RESET: end all sessions with this target.
    EndSessions { target: Arc<str> },
    /// End the session with this TSIH.
    Drop { tsih: Tsih, reply: Sender<bool> },
    /// Ask the initiator of the session with this TSIH to log out within so many seconds.
    Logout { tsih: Tsih, seconds: u16, reply: Sender<bool> },
    /// Which sessions `nodes` would not let in; they are ended within so many seconds, if that is
    /// said, and the others have their terms from it from now on.
    Review { nodes: Arc<Nodes>, ending: Option<u16>, reply: Sender<Vec<OutdatedSession>> },
    /// Take connections that come to this socket.
    Listen { fd: OwnedFd, address: SocketAddr, reply: Sender<()> },
    /// Take none any more that come to this address; answer when its socket is closed.
    Unlisten { address: SocketAddr, reply: Sender<()> },
    /// What there is and what was counted.
    Figures { reply: Sender<Figures> },
    /// Accept no more, ask initiators to log out, end what is left after `grace`, then leave.
    Stop { grace: Duration },
}

/// The addresses of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    /// Where it came from.
    pub(crate) peer: Peer,
    /// Where it came to.
    pub(crate) local: SocketAddr,
}

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // a peer has an address, or is in the same process
pub enum Peer {
    /// Somebody at an address.
    Address(SocketAddr),
    /// Somebody in the process of the target.
    Local,
}

impl Peer {
    /// Where it counts among those who have not said who they are.
    pub(crate) const fn ip(self) -> IpAddr {
        match self {
            Self::Address(address) => address.ip(),
            Self::Local => IpAddr::V4(Ipv4Addr::LOCALHOST),
        }
    }

    /// An IPv4 peer of an IPv6 socket is shown as what it is.
    pub(crate) fn without_mapping(self) -> Self {
        match self {
            Self::Address(address) => Self::Address(without_mapping(address)),
            Self::Local => Self::Local,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Local => f.write_str("local"),
        }
    }
}

/// An address without the mapping of IPv4 into IPv6.
pub(crate) fn without_mapping(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Units that a function is for.
pub(crate) type Units = Arc<[Arc<LogicalUnit>]>;

/// Whose tasks are to end.
#[derive(Clone, Debug)]
pub(crate) enum Whose {
    /// Everybody's.
    All,
    /// Those of these initiator ports.
    Ports(Arc<[String]>),
}

impl Whose {
    pub(crate) fn includes(&self, nexus: &scsi::Nexus) -> bool {
        match self {
            Self::All => true,
            Self::Ports(ports) => ports.contains(&nexus.names().initiator_port),
        }
    }
}

/// What other nexuses notice of a task management function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// CLEAR TASK SET: 2F/00 for a nexus that lost tasks.
    Cleared,
    /// LOGICAL UNIT RESET and TARGET WARM RESET: the unit itself raises 29/03 for all.
    Reset,
    /// TARGET COLD RESET: no task is answered, and all sessions end.
    PowerOn,
}

/// The letter box of a reactor.
#[derive(Debug)]
pub(crate) struct Mailbox {
    /// None: nobody reads it any more.
    letters: Mutex<Option<VecDeque<Letter>>>,
    waker: Waker,
    /// Something has ended that commands may wait for there.
    stirred: AtomicBool,
}

impl Mailbox {
    pub(crate) fn new(waker: Waker) -> Self {
        Self { letters: Mutex::new(Some(VecDeque::new())), waker, stirred: AtomicBool::new(false) }
    }

    pub(crate) fn send(&self, letter: Letter) {
        if let Some(letters) = &mut *self.letters() {
            letters.push_back(letter);
        }
        self.waker.wake();
    }

    /// Lets commands that wait try again; once, however often it is said before they do.
    pub(crate) fn stir(&self) {
        if !self.stirred.swap(true, Ordering::SeqCst) {
            self.waker.wake();
        }
    }

    /// Whether somebody said so since the last call.
    pub(crate) fn take_stirred(&self) -> bool {
        self.stirred.load(Ordering::SeqCst) && self.stirred.swap(false, Ordering::SeqCst)
    }

    pub(crate) fn take(&self) -> Option<Letter> {
        self.letters().as_mut()?.pop_front()
    }

    /// Nobody reads it any more: what was not read, and what still comes, is dropped, so that
    /// whoever waits for an answer hears that there is none.
    pub(crate) fn close(&self) {
        drop(self.letters().take());
    }

    fn letters(&self) -> MutexGuard<'_, Option<VecDeque<Letter>>> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The answers of all reactors to a letter.
#[derive(Debug)]
pub struct Answers<T> {
    /// Of reactors that have not answered, by number.
    open: Vec<(usize, Receiver<T>)>,
    answers: Vec<T>,
}

impl<T> Answers<T> {
    pub(crate) fn ask(mailboxes: &[Mailbox], letter: impl Fn(Sender<T>) -> Letter) -> Self {
        let mut open = Vec::with_capacity(mailboxes.len());
        for (reactor, mailbox) in mailboxes.iter().enumerate() {
            let (reply, replies) = mpsc::channel();
            mailbox.send(letter(reply));
            open.push((reactor, replies));
        }
        Self { open, answers: Vec::with_capacity(mailboxes.len()) }
    }

    /// Whether all reactors have answered.
    pub fn are_complete(&mut self) -> bool {
        self.open.retain(|(_, replies)| match replies.try_recv() {
            Ok(answer) => {
                self.answers.push(answer);
                false
            }
            Err(_) => true,
        });
        self.open.is_empty()
    }

    /// What came within that time, and which reactors have not answered.
    pub(crate) fn within(mut self, time: Duration) -> Answered<T> {
        let deadline = Instant::now() + time;
        let mut silent = Vec::new();
        for (reactor, replies) in self.open {
            let left = deadline.saturating_duration_since(Instant::now());
            match replies.recv_timeout(left) {
                Ok(answer) => self.answers.push(answer),
                Err(_) => silent.push(reactor),
            }
        }
        Answered { answers: self.answers, silent }
    }
}

/// What reactors have answered in time.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Answered<T> {
    /// By those that did.
    pub answers: Vec<T>,
    /// The numbers of those that did not, ascending.
    pub silent: Vec<usize>,
}

/// A session that what is served now would not let in.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OutdatedSession {
    /// Target session identifying handle.
    pub tsih: u16,
    /// The initiator's iSCSI name.
    pub initiator: String,
    /// None: a discovery session without a target.
    pub target: Option<String>,
    /// Why.
    pub why: Outdated,
}

/// A session as administration shows it.
#[derive(Clone, Debug)]
pub struct SessionSnapshot {
    /// Target session identifying handle.
    pub tsih: u16,
    /// The initiator's iSCSI name.
    pub initiator: String,
    /// The initiator's alias, if it told one.
    pub initiator_alias: Option<String>,
    /// ISID as twelve hexadecimal digits.
    pub isid: String,
    /// None: a discovery session without a target.
    pub target: Option<String>,
    /// True for a discovery session.
    pub discovery: bool,
    /// Age since login.
    pub age: Duration,
    /// Reactor that serves it.
    pub reactor: usize,
    /// Commands in the hands of the device server now.
    pub tasks: usize,
    /// Commands since login.
    pub commands: u64,
    /// Bytes sent to the initiator as data.
    pub bytes_in: u64,
    /// Bytes taken from the initiator as data.
    pub bytes_out: u64,
    /// Negotiated values.
    pub parameters: Parameters,
    /// Its connections.
    pub connections: Vec<ConnectionSnapshot>,
}

/// A connection as administration shows it.
#[derive(Clone, Debug)]
pub struct ConnectionSnapshot {
    /// Connection id.
    pub cid: u16,
    /// The initiator's address.
    pub peer: Peer,
    /// The portal's address.
    pub local: SocketAddr,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_waits_for_nobody_longer_than_it_said() {
        let mailbox = || Mailbox::new(Waker::new().expect("a descriptor"));
        let mailboxes = [mailbox(), mailbox(), mailbox()];
        let mut answers = Answers::ask(&mailboxes, |reply| Letter::Drop { tsih: Tsih(1), reply });
        assert!(!answers.are_complete());
        for (mailbox, answer) in [(&mailboxes[2], true), (&mailboxes[0], false)] {
            let Some(Letter::Drop { reply, .. }) = mailbox.take() else { panic!("a letter") };
            reply.send(answer).expect("somebody asked");
        }
        assert!(!answers.are_complete(), "one is missing");
        let begun = Instant::now();
        let answered = answers.within(Duration::from_millis(50));
        assert!(begun.elapsed() >= Duration::from_millis(50));
        assert_eq!(answered.silent, [1]);
        assert_eq!(answered.answers, [false, true], "in their order");
    }
}
