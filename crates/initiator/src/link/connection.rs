// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One connection of a session: its mover, and what that goes over.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use buf::SgList;
use capture::Capture;
use capture::Side;
use capture::Tap;
use clock::Instant;
use engine::Port;
use engine::Socket;
use iscsi::initiator::Carried;
use iscsi::initiator::LoggedIn;
use iscsi::initiator::Login;
use iscsi::initiator::LoginOutput;
use iscsi::initiator::datamover::Op;
use iscsi::initiator::datamover::TaskId;
use mover::iser;
use mover::local;
use mover::local::ToInitiator;
use mover::tcp::initiator::ByteCounters;

use super::adapter::Adapter;
use super::mover::Mover;
use crate::Begin;
use crate::SessionId;
use crate::Transport;
use crate::connect::Attempt;
use crate::connect::Connected;
use crate::connect::Line;
use crate::connect::LocalEnd;
use crate::limits::NUDGE_AFTER;
use crate::pump::Context;

/// One connection.
#[derive(Debug, Default)]
pub(super) struct Connection {
    /// Counts connections, so that late events of an old one are known; zero: there is none.
    pub(super) epoch: u32,
    pub(super) path: Path,
    /// Of a connection that is being made: before it stands, and until it is logged in.
    pub(super) attempt: Option<Attempt>,
    pub(super) login: Option<Box<Login>>,
    /// When a target that does not answer its login is nudged, and how long that was waited for.
    nudge: Option<(Instant, Duration)>,
    peer: Option<SocketAddr>,
    portal: String,
    pub(super) mover: Mover,
    /// The mover that follows when the login is done.
    successor: Option<Box<iser::Initiator>>,
    /// That of the connection before, with the commands that were under way on it.
    before: Option<Box<Mover>>,
    /// What movers that are gone did to payload bytes.
    past: ByteCounters,
    /// Bytes that have come, that the other side took, and that are on their way to it.
    pub(super) received: u64,
    pub(super) sent: u64,
    pub(super) sending: u64,
}

/// What a connection goes over.
#[derive(Debug, Default)]
pub(super) enum Path {
    /// It is closed, or does not stand yet.
    #[default]
    None,
    Stream {
        socket: Socket,
        /// The list to fill; None while it is under way.
        list: Option<SgList>,
        /// Is told what comes and goes.
        tap: Option<Box<Tap>>,
    },
    Local {
        end: LocalEnd,
        /// What was received and not treated; empty between turns.
        inbox: VecDeque<ToInitiator>,
    },
    Adapter(Box<Adapter>),
}

impl Connection {
    /// A connection stands: the login begins.
    pub(super) fn begin<P: Port>(
        &mut self,
        connected: Connected,
        login: Login,
        (session, transport): (SessionId, Transport),
        capture: Option<&Capture>,
        context: &mut Context<'_, P>,
    ) {
        self.epoch = context.next_epoch();
        let mover;
        self.successor = None;
        let ends = connected.ends(transport);
        (mover, self.path) = match connected.line {
            Line::Stream(stream) => {
                let tap = capture.zip(ends).and_then(|(capture, ends)| {
                    Tap::open(capture, Side::Initiator, ends, context.wall_clock())
                });
                let socket = context.take_over(stream.into(), session, self.epoch);
                let (list, tap) = (Some(SgList::new()), tap.map(Box::new));
                (self.stream_mover(transport, socket, context), Path::Stream { socket, list, tap })
            }
            Line::Local(end) => {
                end.attach(context.waker());
                let inbox = VecDeque::new();
                let mover = Mover::Local(local::Initiator::new());
                (Some(mover), Path::Local { end, inbox })
            }
            Line::Adapter(outgoing) => {
                match Adapter::open(outgoing, (session, self.epoch), context) {
                    Some((mover, adapter)) => (Some(mover), Path::Adapter(Box::new(adapter))),
                    None => (None, Path::None),
                }
            }
        };
        let lacks_memory = mover.is_none();
        let old = std::mem::replace(&mut self.mover, mover.unwrap_or_default());
        self.before.take().iter().for_each(|gone| self.past += gone.byte_counters());
        match old.task_count() > 0 {
            true => self.before = Some(Box::new(old)),
            false => self.past += old.byte_counters(),
        }
        let login = self.login.insert(Box::new(login));
        if lacks_memory {
            login.handle_disconnect();
        }
        (self.peer, self.portal) = (Some(connected.peer), connected.portal);
        (self.received, self.sent, self.sending) = (0, 0, 0);
        let (at, wait) = (context.now + NUDGE_AFTER, NUDGE_AFTER);
        let may_wait = match &self.path {
            Path::Stream { .. } => matches!(self.mover, Mover::Iser(_)),
            Path::Adapter(adapter) => adapter.is_iwarp(),
            Path::Local { .. } | Path::None => false,
        };
        self.nudge = may_wait.then_some((at, wait));
    }

    /// A mover for a connection of TCP, and what follows it; None without memory or randomness.
    fn stream_mover<P: Port>(
        &mut self,
        transport: Transport,
        socket: Socket,
        context: &mut Context<'_, P>,
    ) -> Option<Mover> {
        let Transport::Iser(begin, checks) = transport else { return Some(Mover::default()) };
        let mut seed = [0; 4];
        context.random(&mut seed).ok()?;
        let iser = iser::Initiator::with_checks(context.pool, u32::from_ne_bytes(seed), checks)?;
        let mut iser = Box::new(iser);
        if let Some(length) = context.segment_len(socket) {
            iser.set_segment_len(length);
        }
        match begin {
            Begin::Rdma => Some(Mover::Iser(iser)),
            Begin::Login => {
                self.successor = Some(iser);
                Some(Mover::default())
            }
        }
    }

    /// Full feature phase: commands of the connection before are here from now on. What was a byte
    /// stream goes on with RDMA where that was agreed on.
    pub(super) fn finish_login(&mut self, login: &LoggedIn) {
        self.login = None;
        let successor = self.successor.take();
        if let Some(mut iser) = successor.filter(|_| login.parameters.rdma.is_some()) {
            iser.submit(Op::NoticeKeys(login.keys()));
            self.replace_mover(Mover::Iser(iser));
        }
        if let Some(mut before) = self.before.take() {
            self.past += before.byte_counters();
            before.carry_all().into_iter().for_each(|task| self.mover.adopt(task));
        }
    }

    /// Ends the connection, on which all is said.
    pub(super) fn part<P: Port>(&mut self, context: &mut Context<'_, P>) {
        match std::mem::take(&mut self.path) {
            Path::Stream { socket, tap, .. } => {
                context.part(socket);
                tap.into_iter().for_each(|tap| tap.closed(context.wall_clock()));
            }
            other => self.path = other,
        }
        self.hang_up(context);
    }

    /// Closes the connection. Its commands stay.
    pub(super) fn hang_up<P: Port>(&mut self, context: &mut Context<'_, P>) {
        match std::mem::take(&mut self.path) {
            Path::Stream { socket, list, tap } => {
                let last = list.and_then(|list| self.mover.last_word(list));
                if let Some(mut tap) = tap {
                    let now = context.wall_clock();
                    last.iter().for_each(|last| tap.sent(now, last));
                    tap.closed(now);
                }
                match last {
                    Some(list) => context.part_with(socket, list),
                    None => context.hang_up(socket),
                }
            }
            Path::Adapter(adapter) => adapter.hang_up(&mut self.mover, context),
            Path::Local { .. } | Path::None => {}
        }
        self.epoch = 0;
        (self.login, self.attempt) = (None, None);
        if let Some(before) = self.before.take() {
            self.replace_mover(*before);
        }
    }

    fn replace_mover(&mut self, mover: Mover) {
        self.past += self.mover.byte_counters();
        self.mover = mover;
    }

    /// What all its movers have done to payload bytes.
    pub(super) fn byte_counters(&self) -> ByteCounters {
        let mut all = self.past;
        all += self.mover.byte_counters();
        self.before.iter().for_each(|before| all += before.byte_counters());
        all
    }

    /// What its login has to say.
    pub(super) fn poll(&mut self) -> Option<LoginOutput> {
        self.login.as_mut()?.poll_output()
    }

    /// When its login takes too long.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let over = self.login.as_ref()?.poll_timeout();
        let nudge = self.nudge.map(|(at, _)| at);
        over.into_iter().chain(nudge).min()
    }

    /// Lets the time of its login be `now`.
    pub(super) fn expire(&mut self, now: Instant) {
        let Some(login) = &mut self.login else { return };
        login.handle_timeout(now);
        if let Some((at, wait)) = &mut self.nudge
            && *at <= now
        {
            *wait *= 2;
            *at = now + *wait;
            self.mover.nudge();
        }
    }

    pub(super) fn peer(&self) -> SocketAddr {
        self.peer.unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)))
    }

    /// What the connection has carried; zero while there is none.
    pub(super) fn carried<P: Port>(&self, context: &Context<'_, P>) -> Carried {
        let known = match self.path {
            Path::Stream { socket, .. } => context.carried(socket),
            Path::None | Path::Local { .. } | Path::Adapter(_) => crate::pump::Carried::default(),
        };
        let taken = known.taken.unwrap_or(self.sent).min(self.sent + self.sending);
        Carried {
            // Bytes that are landing count there and not here.
            received: known.received.unwrap_or(0).max(self.received),
            arriving: self.mover.arriving() as u64,
            taken,
            leaving: (self.sent + self.sending).saturating_sub(taken),
        }
    }

    pub(super) fn portal(&self) -> &str {
        &self.portal
    }

    /// Where a task is: here, or on the connection before.
    pub(super) fn holder(&mut self, task: TaskId) -> Option<&mut Mover> {
        if self.mover.holds(task) {
            return Some(&mut self.mover);
        }
        self.before.as_deref_mut().filter(|before| before.holds(task))
    }
}
