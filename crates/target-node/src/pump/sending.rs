// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What leaves: which connections send, when, and how much they may owe.

use buf::SgList;
use clock::Instant;
use engine::Port;
use iscsi::serial::Serial;
use mover::Mover;

use super::Connection;
use super::Kind;
use super::Phase;
use super::Pump;
use super::token;
use super::transport;
use super::transport::Sent;
use super::view::ConnectionView;
use super::view::never;
use crate::table::Key;

/// Answers are held back only while at least so many others are on their way to the initiator: they
/// make it send the commands that are worth waiting for.
const HOLD_DEPTH: u32 = 12;

/// So many answers that wait are enough: more of them would only keep the initiator waiting.
const HOLD_ANSWERS: u32 = 4;

/// From so many bytes on, answers are not held back: they fill segments of their own.
const HOLD_BYTES: usize = 16 << 10;

/// Bytes that wait to be sent on a connection before it is no longer read: two commands' worth of
/// the largest.
const BACKLOG_HIGH: usize = 16 << 20;

/// Backlog under which a connection is read again.
const BACKLOG_LOW: usize = 4 << 20;

/// Which connections send, and when.
#[derive(Debug, Default)]
pub(super) struct Sending {
    /// Connections that may have something to send.
    dirty: Vec<Key>,
    /// `dirty` of the turn before, kept for its memory.
    flushing: Vec<Key>,
    /// Connections whose answers are held back.
    held: Vec<Key>,
    /// When the first connection whose answers are held back must send.
    send_at: Option<Instant>,
}

impl Sending {
    /// A connection may have something to send; `dirty` is its mark.
    #[inline]
    pub(super) fn mark(&mut self, key: Key, dirty: &mut bool) {
        if !std::mem::replace(dirty, true) {
            self.dirty.push(key);
        }
    }

    pub(super) const fn send_at(&self) -> Option<Instant> {
        self.send_at
    }

    fn hold(&mut self, key: Key, until: Instant) {
        self.send_at = Some(self.send_at.map_or(until, |at| at.min(until)));
        self.held.push(key);
    }
}

impl<P: Port> Pump<P> {
    /// A connection that may have gone may have something to send.
    pub(super) fn mark_dirty(&mut self, key: Key) {
        if let Some(mut view) = self.connection(key) {
            view.mark_dirty();
        }
    }

    /// Sends what has gathered since the last wait, many PDUs in one system call.
    pub(super) fn flush(&mut self) {
        let sending = &mut self.context.sending;
        sending.send_at = None;
        if sending.dirty.is_empty() {
            return;
        }
        let now = self.context.port.now();
        let mut flushing = std::mem::take(&mut sending.flushing);
        while !self.context.sending.dirty.is_empty() {
            std::mem::swap(&mut self.context.sending.dirty, &mut flushing);
            for key in flushing.drain(..) {
                // It may have closed since it was marked.
                let Some(mut view) = self.connection(key) else { continue };
                match view.holds_back(now) {
                    Some(until) => self.context.sending.hold(key, until),
                    None => match view.transmit() {
                        Transmitted::InPart => {}
                        Transmitted::Left => self.note_left(key),
                        Transmitted::All => self.end_connection(key),
                    },
                }
            }
        }
        let sending = &mut self.context.sending;
        sending.flushing = flushing;
        std::mem::swap(&mut sending.dirty, &mut sending.held);
    }

    pub(super) fn sent(&mut self, key: Key, list: SgList, result: Result<(), i32>) {
        let Some(ConnectionView { connection, .. }) = self.connection(key) else { return };
        connection.line.take_back(list);
        connection.progress.count_list();
        if let Err(errno) = result {
            return self.disconnected(key, Some(errno));
        }
        transport::handle_sent(&mut connection.mover);
        self.settle_left(key);
        self.mark_dirty(key);
    }

    /// All that was handed out has left at once.
    fn note_left(&mut self, key: Key) {
        let Some(mut view) = self.connection(key) else { return never("it has just sent") };
        view.connection.progress.count_list();
        // It may be read again, which the next look finds.
        if view.connection.paused {
            view.mark_dirty();
        }
        self.settle_left(key);
        if let Some(view) = self.connection(key)
            && view.connection.has_said_all()
        {
            self.end_connection(key);
        }
    }

    /// What has left ends tasks, and lets others go on.
    pub(super) fn settle_left(&mut self, key: Key) {
        let Some(ConnectionView { connection, .. }) = self.connection(key) else { return };
        if let Phase::Session { session, .. } = connection.phase {
            self.settle(session);
            if let Some(mut view) = self.session(session) {
                view.paid();
            }
        }
    }
}

/// What came of sending what there was.
enum Transmitted {
    /// Something is under way, or there is more to come.
    InPart,
    /// Something has left.
    Left,
    /// The connection has said all that it has to say.
    All,
}

impl Connection {
    fn has_said_all(&self) -> bool {
        !self.ended && self.mover.is_terminated()
    }
}

impl<P: Port> ConnectionView<'_, P> {
    pub(super) fn mark_dirty(&mut self) {
        self.context.sending.mark(self.key, &mut self.connection.dirty);
    }

    /// Until when the answers of a connection wait for others to go with them.
    ///
    /// An initiator that keeps many commands outstanding gains from a short delay: it saves
    /// a wake-up for each answer that shares a segment with another; so do we.
    fn holds_back(&mut self, now: Instant) -> Option<Instant> {
        let hold_back = self.context.shared.hold_back;
        let (connection, session, id) = self.session()?;
        if hold_back.is_zero()
            || !connection.line.gains_from_waiting()
            || !(1..HOLD_BYTES).contains(&connection.mover.backlog())
        {
            return None;
        }
        let machine = &session.machine;
        // Of those that it has not acknowledged, some have not left: nobody will answer them.
        let waiting = machine.next_stat_sn(id).steps_from(connection.told);
        let on_their_way = machine.unacknowledged(id).saturating_sub(waiting);
        if waiting >= HOLD_ANSWERS || on_their_way < HOLD_DEPTH {
            return None;
        }
        let until = *connection.held_until.get_or_insert(now + hold_back);
        (now < until).then_some(until)
    }

    /// Sends what there is.
    fn transmit(&mut self) -> Transmitted {
        let (connection, context) = (&mut *self.connection, &mut *self.context);
        connection.dirty = false;
        connection.held_until = None;
        if matches!(connection.phase, Phase::Moving(_)) {
            return Transmitted::InPart;
        }
        let (burden, messages) = (connection.mover.burden(), connection.mover.messages());
        let counted = std::mem::replace(&mut connection.messages, messages);
        context.owed.replace_messages(counted, messages);
        let most = context.owed.messages_max(context.shared.mailboxes.len());
        if !connection.paused && (burden > BACKLOG_HIGH || messages > most) {
            connection.paused = true;
            connection.line.pause(&mut context.port);
        } else if connection.paused && burden < BACKLOG_LOW && messages <= most / 4 {
            connection.paused = false;
            connection.line.resume(&mut context.port);
        }
        let Connection { line, mover, followers, .. } = connection;
        let sent = line.send(mover, followers, token(Kind::Send, self.key), &mut context.port);
        if line.is_stirred() {
            context.stirred.push(self.key);
            context.port.waker().wake();
        }
        match sent {
            // Its end marks the connection again.
            Sent::UnderWay => Transmitted::InPart,
            Sent::Begun => {
                if let Some((connection, session, id)) = self.session() {
                    connection.told = session.machine.next_stat_sn(id);
                }
                Transmitted::InPart
            }
            Sent::Left => Transmitted::Left,
            Sent::Nothing => {
                // Data that is asked for by RDMA waits for no memory.
                let waits = !matches!(connection.mover, Mover::Iser(_));
                if waits && connection.mover.backlog() > 0 {
                    context.memory_queue.wait_to_send(self.key);
                }
                match connection.has_said_all() {
                    true => Transmitted::All,
                    false => Transmitted::InPart,
                }
            }
        }
    }
}
