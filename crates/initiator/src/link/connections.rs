// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The connections of a session: how they are made, what comes and goes on them, and how commands
//! get from one to another.

use buf::Buf;
use buf::SgList;
use engine::Landing;
use engine::Port;
use engine::Socket;
use iscsi::initiator::ConnectionId;
use iscsi::initiator::LoginOutput;
use iscsi::initiator::datamover::Event;
use iscsi::initiator::datamover::Op;
use iscsi::initiator::datamover::TaskId;
use mover::tcp::initiator::ByteCounters;

use super::SessionDriver;
use super::State;
use super::connection::Connection;
use super::connection::Path;
use super::mover::Mover;
use crate::connect::Attempt;
use crate::pump::Context;
use crate::stopwatch::Layer;

impl SessionDriver {
    /// Whether a connection is one of this link.
    pub(super) fn place(&self, epoch: u32) -> Option<usize> {
        self.connections.iter().position(|connection| connection.epoch == epoch)
    }

    /// Bytes of a connection: READ and WRITE come back here.
    pub(crate) fn received<P: Port>(
        &mut self,
        epoch: u32,
        bytes: &[u8],
        context: &mut Context<'_, P>,
    ) {
        if let Some(connection) =
            self.place(epoch).and_then(|place| self.connections.get_mut(place))
        {
            connection.received += bytes.len() as u64;
            if let Path::Stream { tap: Some(tap), .. } = &mut connection.path {
                tap.received(context.wall_clock(), bytes);
            }
        }
        let mut rest = bytes;
        loop {
            let Some(place) = self.place(epoch) else { return };
            let Some(connection) = self.connections.get_mut(place) else { return };
            if rest.is_empty() && !connection.mover.has_more() {
                break;
            }
            let Some((taken, event)) = connection.mover.feed(rest) else { return };
            rest = rest.get(taken..).unwrap_or_default();
            context.watch.laps.fed(taken);
            if let Some(event) = event {
                self.handle_mover_event(place, event, context);
            }
        }
        self.land(epoch, context);
        // R2Ts are answered without an event.
        context.mark_dirty(self.id);
        self.issue(context);
    }

    /// Takes what has come over local connections: READ and WRITE come back here.
    pub(super) fn look_for_messages<P: Port>(&mut self, context: &mut Context<'_, P>) {
        for place in 0..self.connections.len() {
            let Some(connection) = self.connections.get_mut(place) else { return };
            let Path::Local { end, inbox } = &mut connection.path else { continue };
            end.receive(inbox);
            let epoch = connection.epoch;
            while let Some((place, event)) = self.next_local_event(epoch, context) {
                self.handle_mover_event(place, event, context);
            }
            // Whoever closes it later wakes us.
            if self.is_over(epoch) {
                self.disconnected(epoch, context);
            }
            context.mark_dirty(self.id);
            self.issue(context);
        }
    }

    /// The next event of what a local connection has brought, if that is still there.
    fn next_local_event<P: Port>(
        &mut self,
        epoch: u32,
        context: &mut Context<'_, P>,
    ) -> Option<(usize, Event)> {
        let place = self.place(epoch)?;
        let connection = self.connections.get_mut(place)?;
        let (Path::Local { inbox, .. }, Mover::Local(local)) =
            (&mut connection.path, &mut connection.mover)
        else {
            return None;
        };
        loop {
            let message = inbox.pop_front()?;
            let length = message.data_len();
            connection.received += length as u64;
            let event = local.receive(message);
            context.watch.laps.fed(length);
            if let Some(event) = event {
                return Some((place, event));
            }
        }
    }

    /// The other side of a local connection has closed it, and said nothing more before that.
    fn is_over(&self, epoch: u32) -> bool {
        let connection = self.place(epoch).and_then(|place| self.connections.get(place));
        match connection.map(|connection| &connection.path) {
            Some(Path::Local { end, .. }) => end.is_over(),
            _ => false,
        }
    }

    /// Tells the session what its connections have carried and, when it is due, how far its
    /// commands are.
    pub(super) fn note_carried<P: Port>(&mut self, context: &Context<'_, P>) {
        let State::Up(session) = &mut self.state else { return };
        for (index, connection) in self.connections.iter().enumerate() {
            session.note_carried(id_of(index), connection.carried(context), context.now);
        }
        if session.looks_at().is_some_and(|at| at <= context.now) {
            let connections = &self.connections;
            let progress = |at: ConnectionId, task| {
                let connection = connections.get(usize::from(at.0))?;
                connection.mover.progress(task)
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
        let Some(connection) = self.connections.get_mut(place) else { return };
        let Mover::Tcp(tcp) = &mut connection.mover else { return };
        connection.received += bytes as u64;
        let event = tcp.landed(buf, bytes);
        context.watch.laps.fed(0);
        if let Some(event) = event {
            self.handle_mover_event(place, event, context);
        }
        self.land(epoch, context);
        context.mark_dirty(self.id);
        self.issue(context);
    }

    /// Many bytes of data that are to come go straight to where they belong, if the port can do
    /// that.
    fn land<P: Port>(&mut self, epoch: u32, context: &mut Context<'_, P>) {
        let Some(place) = self.place(epoch) else { return };
        let Some(connection) = self.connections.get_mut(place) else { return };
        // Who captures what comes must see it.
        if let (Path::Stream { socket, tap: None, .. }, Mover::Tcp(tcp)) =
            (&connection.path, &mut connection.mover)
            && let Some((buf, at, end)) = tcp.landing()
            && let Some(back) = context.land(*socket, Landing { buf, at, end })
        {
            let event = tcp.landed(back.buf, 0);
            debug_assert!(event.is_none(), "nothing has come");
        }
    }

    /// What a mover made of bytes.
    fn handle_mover_event<P: Port>(
        &mut self,
        place: usize,
        event: Event,
        context: &mut Context<'_, P>,
    ) {
        let Some(connection) = self.connections.get_mut(place) else { return };
        let data = connection.mover.control_data();
        match (&mut connection.login, &mut self.state) {
            (Some(login), _) => login.handle_event(event, data, context.now),
            (None, State::Up(session)) => {
                session.handle_event_at(id_of(place), event, data, context.now);
            }
            _ => return,
        }
        self.settle(context);
        context.watch.laps.lap(Layer::Protocol);
    }

    /// What its connections have done to payload bytes, those that are gone, too.
    pub(crate) fn byte_counters(&self) -> ByteCounters {
        let mut all = self.past;
        self.connections.iter().for_each(|connection| all += connection.byte_counters());
        all
    }

    /// Nothing more comes on a connection.
    pub(crate) fn note_ended<P: Port>(
        &mut self,
        epoch: u32,
        error: Option<i32>,
        context: &Context<'_, P>,
    ) {
        if let Some(connection) =
            self.place(epoch).and_then(|place| self.connections.get_mut(place))
            && let Path::Stream { tap: Some(tap), .. } = &mut connection.path
        {
            tap.ended(context.wall_clock(), error.is_some());
        }
    }

    /// A connection is gone.
    pub(crate) fn disconnected<P: Port>(&mut self, epoch: u32, context: &mut Context<'_, P>) {
        let Some(place) = self.place(epoch) else { return };
        let Some(connection) = self.connections.get_mut(place) else { return };
        match (&mut connection.login, &mut self.state) {
            (Some(login), _) => login.handle_disconnect(),
            (None, State::Up(session)) => {
                session.handle_disconnect_at(id_of(place), context.now);
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
        let Some(connection) = self.connections.get_mut(place) else { return };
        connection.sent += list.len() as u64;
        connection.sending = 0;
        list.clear();
        if let Path::Stream { list: place, .. } = &mut connection.path {
            *place = Some(list);
            connection.mover.handle_sent();
        }
        if result.is_err() {
            self.disconnected(epoch, context);
        }
        context.mark_dirty(self.id);
    }

    /// Fills the next lists and gives them out: socket, list and epoch of each. Gives the epochs of
    /// those connections of adapters that are to be looked at, though nothing wakes for them.
    pub(crate) fn transmit<P: Port>(
        &mut self,
        port: &mut P,
        mut send: impl FnMut(&mut P, Socket, SgList, u32),
    ) -> Vec<u32> {
        let mut stirred = Vec::new();
        for (connection, at) in self.connections.iter_mut().zip(0..) {
            let exp_stat_sn = match (&connection.login, &self.state) {
                (Some(login), _) => login.exp_stat_sn(),
                (None, State::Up(session)) => session.exp_stat_sn_at(ConnectionId(at)),
                _ => continue,
            };
            match (&mut connection.path, &mut connection.mover) {
                (Path::Stream { socket, list: place, tap }, mover) => {
                    let Some(mut list) = place.take() else { continue };
                    if mover.poll_transmit(&mut list, exp_stat_sn) == Some(true) {
                        connection.sending = list.len() as u64;
                        if let Some(tap) = tap {
                            tap.sent(port.wall_clock(), &list);
                        }
                        send(port, *socket, list, connection.epoch);
                    } else {
                        *place = Some(list);
                    }
                }
                (Path::Local { end, .. }, Mover::Local(local)) => {
                    let sent = &mut connection.sent;
                    // Without room the other end wakes us when there is some.
                    end.send_from(|| {
                        let message = local.poll_message(exp_stat_sn)?;
                        let length = message.data_len();
                        *sent += length as u64;
                        Some((message, length))
                    });
                }
                (Path::Adapter(adapter), Mover::Iser(iser)) => {
                    if adapter.transmit(iser, exp_stat_sn) {
                        stirred.push(connection.epoch);
                    }
                    connection.sending = iser.leaving() as u64;
                }
                _ => debug_assert!(matches!(connection.path, Path::None), "each has its mover"),
            }
        }
        stirred
    }

    /// An op that is about no task.
    pub(super) fn submit(&mut self, at: ConnectionId, op: Op) {
        if let Some(connection) = self.connections.get_mut(usize::from(at.0)) {
            connection.mover.submit(op);
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
                    if let Some(connection) = self.connections.get_mut(usize::from(at.0)) {
                        connection.mover.submit(Op::Attach { task: *task, write, read });
                    }
                }
                None => self.bring(*task, at),
            },
            Op::Reassign { task, .. } => self.bring(*task, at),
            Op::Release { task } => {
                let connection = self.connections.get_mut(usize::from(at.0));
                let mover = connection.and_then(|connection| connection.holder(*task));
                let Some(mover) = mover else { return self.jobs.keep(*task, None) };
                self.jobs.keep(*task, mover.submit(Op::Detach { task: *task }));
                mover.submit(op);
                return;
            }
            Op::Terminate => {
                if let Some(connection) = self.connections.get_mut(usize::from(at.0)) {
                    connection.hang_up(context);
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
        if self.connections.get(to).is_some_and(|connection| connection.mover.holds(task)) {
            return;
        }
        let carried =
            self.connections.iter_mut().find_map(|connection| connection.holder(task)?.carry(task));
        if let (Some(carried), Some(connection)) = (carried, self.connections.get_mut(to)) {
            connection.mover.adopt(carried);
        }
    }

    /// Begins to make the connections that the session wants to have.
    pub(super) fn join_wanted<P: Port>(&mut self, context: &mut Context<'_, P>) {
        while let State::Up(session) = &mut self.state
            && let Some(id) = session.wanted(context.now)
        {
            session.begin_join(id);
            let place = usize::from(id.0);
            if self.connections.len() <= place {
                self.connections.resize_with(place + 1, Connection::default);
            }
            let attempt = self.attempt(place, context);
            if let Some(connection) = self.connections.get_mut(place) {
                connection.attempt = Some(attempt);
            }
        }
    }

    /// Connects to one of the portals, another one for each connection as far as there are several.
    fn attempt<P: Port>(&self, place: usize, context: &mut Context<'_, P>) -> Attempt {
        let leading =
            self.connections.iter().map(Connection::portal).find(|portal| !portal.is_empty());
        let (portals, others) = self.portals.of_connection(place, leading.unwrap_or_default());
        match &self.options.local {
            Some(target) => context.connect_local(target),
            None => context.connect(self.transport(), portals, others),
        }
    }

    /// Looks which connections of a session stand.
    pub(super) fn look_for_joins<P: Port>(&mut self, context: &mut Context<'_, P>) {
        for place in 0..self.connections.len() {
            let Some(connection) = self.connections.get_mut(place) else { return };
            let result = match connection.attempt.as_ref().map(Attempt::try_recv) {
                None | Some(Err(std::sync::mpsc::TryRecvError::Empty)) => continue,
                Some(Ok(Ok(connected))) => Some(connected),
                Some(Ok(Err(_)) | Err(std::sync::mpsc::TryRecvError::Disconnected)) => None,
            };
            connection.attempt = None;
            let transport = self.transport();
            let State::Up(session) = &mut self.state else { return };
            let joining = session.joining(id_of(place));
            let login = joining.zip(result.as_ref()).and_then(|(joining, connected)| {
                let capabilities = self.capabilities(&connected.line);
                self.login(Some(joining), capabilities, context).ok()
            });
            match (result, login, self.connections.get_mut(place)) {
                (Some(connected), Some(login), Some(connection)) => {
                    let capture = self.options.capture.as_ref();
                    connection.begin(connected, login, (self.id, transport), capture, context);
                }
                _ => self.join_failed(id_of(place), false, context),
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
                if let Some(connection) = self.connections.get_mut(usize::from(at.0)) {
                    connection.finish_login(&login);
                }
                if let State::Up(session) = &mut self.state {
                    session.joined(at, &login, context.now);
                }
                return;
            }
            LoginOutput::Redirected { .. } => true,
            LoginOutput::Failed(error) => !error.is_transient(),
        };
        if let Some(connection) = self.connections.get_mut(usize::from(at.0)) {
            connection.hang_up(context);
        }
        self.join_failed(at, hopeless, context);
    }

    fn join_failed<P: Port>(&mut self, at: ConnectionId, hopeless: bool, context: &Context<'_, P>) {
        if let State::Up(session) = &mut self.state {
            session.join_failed(at, hopeless, context.now);
        }
    }
}

/// The place of a connection as the session names it. There are fewer than its numbers.
fn id_of(place: usize) -> ConnectionId {
    ConnectionId(u16::try_from(place).unwrap_or(u16::MAX))
}
