// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The connections of a session: how they are made, what comes and goes on them, and how commands
//! get from one to another.

use std::net::SocketAddr;

use buf::Buf;
use buf::SgList;
use clock::Instant;
use engine::Landing;
use engine::Port;
use engine::Socket;
use iscsi::initiator::Carried;
use iscsi::initiator::ConnectionId;
use iscsi::initiator::Login;
use iscsi::initiator::LoginOutput;
use iscsi::initiator::datamover::Event;
use iscsi::initiator::datamover::Op;
use iscsi::initiator::datamover::TaskId;
use mover::tcp::initiator::Tcp;
use mover::tcp::initiator::Touched;

use super::Link;
use super::State;
use crate::SessionId;
use crate::connect::Attempt;
use crate::connect::Connected;
use crate::pump::Context;
use crate::stopwatch::Layer;

/// One connection.
#[derive(Debug, Default)]
pub(super) struct Wire {
    /// Counts connections, so that late events of an old one are known; zero: there is none.
    epoch: u32,
    /// None once it is closed.
    socket: Option<Socket>,
    /// Of a connection that is being made: before it stands, and until it is logged in.
    attempt: Option<Attempt>,
    login: Option<Box<Login>>,
    peer: Option<SocketAddr>,
    portal: String,
    mover: Tcp,
    /// That of the connection before, with the commands that were under way on it.
    before: Option<Box<Tcp>>,
    /// The list to fill; None while it is under way.
    list: Option<SgList>,
    /// Bytes that have come, that the socket took, and that are on their way to it.
    received: u64,
    sent: u64,
    sending: u64,
}

impl Wire {
    /// A connection stands: the login begins.
    pub(super) fn begin<P: Port>(
        &mut self,
        connected: Connected,
        login: Login,
        session: SessionId,
        context: &mut Context<'_, P>,
    ) {
        self.epoch = context.next_epoch();
        let socket = context.take_over(connected.stream.into(), session, self.epoch);
        let old = std::mem::take(&mut self.mover);
        self.before = (old.task_count() > 0).then(|| Box::new(old));
        (self.socket, self.login) = (Some(socket), Some(Box::new(login)));
        (self.peer, self.portal) = (Some(connected.peer), connected.portal);
        self.list = Some(SgList::new());
        (self.received, self.sent, self.sending) = (0, 0, 0);
    }

    /// Full feature phase: commands of the connection before are here from now on.
    pub(super) fn is_in(&mut self) {
        self.login = None;
        for task in self.before.take().into_iter().flat_map(|mut before| before.carry_all()) {
            self.mover.adopt(task);
        }
    }

    /// Ends the connection, on which all is said.
    pub(super) fn part<P: Port>(&mut self, context: &mut Context<'_, P>) {
        if let Some(socket) = self.socket.take() {
            context.part(socket);
        }
        self.hang_up(context);
    }

    /// Closes the connection. Its commands stay.
    pub(super) fn hang_up<P: Port>(&mut self, context: &mut Context<'_, P>) {
        if let Some(socket) = self.socket.take() {
            context.hang_up(socket);
        }
        self.epoch = 0;
        (self.login, self.attempt) = (None, None);
        if let Some(before) = self.before.take() {
            self.mover = *before;
        }
    }

    /// What its login has to say.
    pub(super) fn poll(&mut self) -> Option<LoginOutput> {
        self.login.as_mut()?.poll_output()
    }

    /// When its login takes too long.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.login.as_ref()?.poll_timeout()
    }

    /// Lets the time of its login be `now`.
    pub(super) fn expire(&mut self, now: Instant) {
        if let Some(login) = &mut self.login {
            login.handle_timeout(now);
        }
    }

    pub(super) fn peer(&self) -> SocketAddr {
        self.peer.unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)))
    }

    /// What the connection has carried; zero while there is none.
    fn carried<P: Port>(&self, context: &Context<'_, P>) -> Carried {
        let known = self.socket.map(|socket| context.carried(socket)).unwrap_or_default();
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
    fn holder(&mut self, task: TaskId) -> Option<&mut Tcp> {
        if self.mover.holds(task) {
            return Some(&mut self.mover);
        }
        self.before.as_deref_mut().filter(|before| before.holds(task))
    }
}

impl Link {
    /// Whether a connection is one of this link.
    fn place(&self, epoch: u32) -> Option<usize> {
        self.wires.iter().position(|wire| wire.epoch == epoch)
    }

    /// Bytes of a connection: READ and WRITE come back here.
    pub(crate) fn received<P: Port>(
        &mut self,
        epoch: u32,
        bytes: &[u8],
        context: &mut Context<'_, P>,
    ) {
        if let Some(wire) = self.place(epoch).and_then(|place| self.wires.get_mut(place)) {
            wire.received += bytes.len() as u64;
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let Some(place) = self.place(epoch) else { return };
            let Some(wire) = self.wires.get_mut(place) else { return };
            let (taken, event) = wire.mover.feed(rest);
            rest = rest.get(taken..).unwrap_or_default();
            context.watch.laps.fed(taken);
            if let Some(event) = event {
                self.heard(place, event, context);
            }
        }
        self.land(epoch, context);
        // R2Ts are answered without an event.
        context.touch(self.id);
        self.issue(context);
    }

    /// Tells the session what its connections have carried and, when it is due, how far its
    /// commands are.
    pub(super) fn note_carried<P: Port>(&mut self, context: &Context<'_, P>) {
        let State::Up(session) = &mut self.state else { return };
        for (index, wire) in self.wires.iter().enumerate() {
            session.note_carried(connection(index), wire.carried(context), context.now);
        }
        if session.looks_at().is_some_and(|at| at <= context.now) {
            let wires = &self.wires;
            let progress = |at: ConnectionId, task| {
                let wire = wires.get(usize::from(at.0))?;
                wire.mover.progress(task)
            };
            session.note_progress(progress, context.now);
        }
    }

    /// Bytes have come where they belong.
    pub(crate) fn landed<P: Port>(
        &mut self,
        epoch: u32,
        buf: Buf,
        bytes: usize,
        context: &mut Context<'_, P>,
    ) {
        let Some(place) = self.place(epoch) else { return };
        let Some(wire) = self.wires.get_mut(place) else { return };
        wire.received += bytes as u64;
        let event = wire.mover.landed(buf, bytes);
        context.watch.laps.fed(0);
        if let Some(event) = event {
            self.heard(place, event, context);
        }
        self.land(epoch, context);
        context.touch(self.id);
        self.issue(context);
    }

    /// Many bytes of data that are to come go straight to where they belong, if the port can do
    /// that.
    fn land<P: Port>(&mut self, epoch: u32, context: &mut Context<'_, P>) {
        let Some(place) = self.place(epoch) else { return };
        let Some(wire) = self.wires.get_mut(place) else { return };
        if let Some(socket) = wire.socket
            && let Some((buf, at, end)) = wire.mover.landing()
            && let Some(back) = context.land(socket, Landing { buf, at, end })
        {
            let event = wire.mover.landed(back.buf, 0);
            debug_assert!(event.is_none(), "nothing has come");
        }
    }

    /// What a mover made of bytes.
    fn heard<P: Port>(&mut self, place: usize, event: Event, context: &mut Context<'_, P>) {
        let Some(wire) = self.wires.get_mut(place) else { return };
        let data = wire.mover.control_data();
        match (&mut wire.login, &mut self.state) {
            (Some(login), _) => login.handle_event(event, data, context.now),
            (None, State::Up(session)) => {
                session.handle_event_at(connection(place), event, data, context.now);
            }
            _ => return,
        }
        self.settle(context);
        context.watch.laps.lap(Layer::Protocol);
    }

    /// What the connections that are there have done to payload bytes.
    pub(crate) fn touched(&self) -> Touched {
        let mut all = Touched::default();
        for touched in self.wires.iter().map(|wire| wire.mover.touched()) {
            all.copied += touched.copied;
            all.digested += touched.digested;
        }
        all
    }

    /// A connection is gone.
    pub(crate) fn disconnected<P: Port>(&mut self, epoch: u32, context: &mut Context<'_, P>) {
        let Some(place) = self.place(epoch) else { return };
        let Some(wire) = self.wires.get_mut(place) else { return };
        match (&mut wire.login, &mut self.state) {
            (Some(login), _) => login.handle_disconnect(),
            (None, State::Up(session)) => {
                session.handle_disconnect_at(connection(place), context.now);
            }
            _ => return,
        }
        self.settle(context);
    }

    /// A list has left.
    pub(crate) fn sent<P: Port>(
        &mut self,
        epoch: u32,
        mut list: SgList,
        result: Result<(), i32>,
        context: &mut Context<'_, P>,
    ) {
        let Some(place) = self.place(epoch) else { return };
        let Some(wire) = self.wires.get_mut(place) else { return };
        wire.sent += list.len() as u64;
        wire.sending = 0;
        list.clear();
        wire.list = Some(list);
        wire.mover.handle_sent();
        if result.is_err() {
            self.disconnected(epoch, context);
        }
        context.touch(self.id);
    }

    /// Fills the next lists and gives them out: socket, list and epoch of each.
    pub(crate) fn transmit(&mut self, mut send: impl FnMut(Socket, SgList, u32)) {
        for (wire, at) in self.wires.iter_mut().zip(0..) {
            let exp_stat_sn = match (&wire.login, &self.state) {
                (Some(login), _) => login.exp_stat_sn(),
                (None, State::Up(session)) => session.exp_stat_sn_at(ConnectionId(at)),
                _ => continue,
            };
            let Some(socket) = wire.socket else { continue };
            let Some(mut list) = wire.list.take() else { continue };
            if wire.mover.poll_transmit(&mut list, exp_stat_sn) {
                wire.sending = list.len() as u64;
                send(socket, list, wire.epoch);
            } else {
                wire.list = Some(list);
            }
        }
    }

    /// An op that is about no task.
    pub(super) fn submit(&mut self, at: ConnectionId, op: Op) {
        if let Some(wire) = self.wires.get_mut(usize::from(at.0)) {
            wire.mover.submit(op);
        }
    }

    /// Carries out an op of the session.
    pub(super) fn session_op<P: Port>(
        &mut self,
        at: ConnectionId,
        op: Op,
        context: &mut Context<'_, P>,
    ) {
        match &op {
            Op::SendCommand { task, .. } => match self.jobs.take_buffers(*task) {
                Some((write, read)) => {
                    if let Some(wire) = self.wires.get_mut(usize::from(at.0)) {
                        wire.mover.submit(Op::Attach { task: *task, write, read });
                    }
                }
                None => self.bring(*task, at),
            },
            Op::Reassign { task, .. } => self.bring(*task, at),
            Op::Release { task } => {
                let wire = self.wires.get_mut(usize::from(at.0));
                let mover = wire.and_then(|wire| wire.holder(*task));
                let Some(mover) = mover else { return self.jobs.keep(*task, None) };
                self.jobs.keep(*task, mover.submit(Op::Detach { task: *task }));
                mover.submit(op);
                return;
            }
            Op::Terminate => {
                if let Some(wire) = self.wires.get_mut(usize::from(at.0)) {
                    wire.hang_up(context);
                }
                return;
            }
            _ => {}
        }
        self.submit(at, op);
    }

    /// Takes a command from the connection that it was on to another one.
    fn bring(&mut self, task: TaskId, to: ConnectionId) {
        let to = usize::from(to.0);
        if self.wires.get(to).is_some_and(|wire| wire.mover.holds(task)) {
            return;
        }
        let carried = self.wires.iter_mut().find_map(|wire| wire.holder(task)?.carry(task));
        if let (Some(carried), Some(wire)) = (carried, self.wires.get_mut(to)) {
            wire.mover.adopt(carried);
        }
    }

    /// Begins to make the connections that the session wants to have.
    pub(super) fn join_wanted<P: Port>(&mut self, context: &mut Context<'_, P>) {
        while let State::Up(session) = &mut self.state
            && let Some(id) = session.wanted(context.now)
        {
            session.begin_join(id);
            let place = usize::from(id.0);
            if self.wires.len() <= place {
                self.wires.resize_with(place + 1, Wire::default);
            }
            let attempt = self.attempt(place, context);
            if let Some(wire) = self.wires.get_mut(place) {
                wire.attempt = Some(attempt);
            }
        }
    }

    /// Connects to one of the portals, another one for each connection as far as there are several.
    fn attempt<P: Port>(&self, place: usize, context: &mut Context<'_, P>) -> Attempt {
        let leading = self.wires.iter().map(Wire::portal).find(|portal| !portal.is_empty());
        let (portals, others) = self.portals.of_connection(place, leading.unwrap_or_default());
        context.connect(portals, others)
    }

    /// Looks which connections of a session stand.
    pub(super) fn look_for_joins<P: Port>(&mut self, context: &mut Context<'_, P>) {
        for place in 0..self.wires.len() {
            let Some(wire) = self.wires.get_mut(place) else { return };
            let result = match wire.attempt.as_ref().map(Attempt::try_recv) {
                None | Some(Err(std::sync::mpsc::TryRecvError::Empty)) => continue,
                Some(Ok(Ok(connected))) => Some(connected),
                Some(Ok(Err(_)) | Err(std::sync::mpsc::TryRecvError::Disconnected)) => None,
            };
            wire.attempt = None;
            let State::Up(session) = &mut self.state else { return };
            let joining = session.joining(connection(place));
            let login = joining.and_then(|joining| self.login(Some(joining), context).ok());
            match (result, login, self.wires.get_mut(place)) {
                (Some(connected), Some(login), Some(wire)) => {
                    wire.begin(connected, login, self.id, context);
                }
                _ => self.join_failed(connection(place), false, context),
            }
            self.settle(context);
        }
    }

    /// The login of one more connection is over.
    pub(super) fn join_ended<P: Port>(
        &mut self,
        at: ConnectionId,
        output: LoginOutput,
        context: &mut Context<'_, P>,
    ) {
        let hopeless = match output {
            LoginOutput::Op(_) => return,
            LoginOutput::Done(login) => {
                if let Some(wire) = self.wires.get_mut(usize::from(at.0)) {
                    wire.is_in();
                }
                if let State::Up(session) = &mut self.state {
                    session.joined(at, &login, context.now);
                }
                return;
            }
            LoginOutput::Redirected { .. } => true,
            LoginOutput::Failed(error) => !error.is_transient(),
        };
        if let Some(wire) = self.wires.get_mut(usize::from(at.0)) {
            wire.hang_up(context);
        }
        self.join_failed(at, hopeless, context);
    }

    fn join_failed<P: Port>(&mut self, at: ConnectionId, hopeless: bool, context: &Context<'_, P>) {
        if let State::Up(session) = &mut self.state {
            session.join_failed(at, hopeless, context.now);
        }
    }
}

/// The place of a wire as the session names it. There are fewer than its numbers.
fn connection(place: usize) -> ConnectionId {
    ConnectionId(u16::try_from(place).unwrap_or(u16::MAX))
}
