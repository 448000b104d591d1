// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What leaves: which connections send, when, and how much they may owe.

use buf::SgList;
use clock::Instant;
use engine::Port;
use iscsi::serial::Serial;

use super::Connection;
use super::Kind;
use super::Phase;
use super::Pump;
use super::token;
use super::transport;
use super::transport::Sending;
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

impl<P: Port> Pump<P> {
    pub(super) fn mark_dirty(&mut self, key: Key) {
        if let Some(connection) = self.connections.get_mut(key)
            && !connection.dirty
        {
            connection.dirty = true;
            self.context.dirty.push(key);
        }
    }

    /// Sends what has gathered since the last wait, many PDUs in one system call.
    pub(super) fn flush(&mut self) {
        self.context.send_at = None;
        if self.context.dirty.is_empty() {
            return;
        }
        let now = self.context.port.now();
        let mut flushing = std::mem::take(&mut self.context.flushing);
        while !self.context.dirty.is_empty() {
            std::mem::swap(&mut self.context.dirty, &mut flushing);
            for key in flushing.drain(..) {
                match self.holds_back(key, now) {
                    Some(until) => {
                        self.context.send_at =
                            Some(self.context.send_at.map_or(until, |at| at.min(until)));
                        self.context.held.push(key);
                    }
                    None => self.transmit(key),
                }
            }
        }
        self.context.flushing = flushing;
        std::mem::swap(&mut self.context.dirty, &mut self.context.held);
    }

    /// Until when the answers of a connection wait for others to go with them.
    ///
    /// An initiator that keeps many commands outstanding gains from a short delay: it saves
    /// a wake-up for each answer that shares a segment with another; so do we.
    pub(super) fn holds_back(&mut self, key: Key, now: Instant) -> Option<Instant> {
        let connection = self.connections.get_mut(key)?;
        let Phase::Session { session, id } = connection.phase else { return None };
        if self.context.shared.hold_back.is_zero()
            || !connection.line.gains_from_waiting()
            || !(1..HOLD_BYTES).contains(&connection.mover.backlog())
        {
            return None;
        }
        let machine = &self.sessions.get(session)?.machine;
        // Of those that it has not acknowledged, some have not left: nobody will answer them.
        let waiting = machine.next_stat_sn(id).steps_from(connection.told);
        let on_their_way = machine.unacknowledged(id).saturating_sub(waiting);
        if waiting >= HOLD_ANSWERS || on_their_way < HOLD_DEPTH {
            return None;
        }
        let until = *connection.held_until.get_or_insert(now + self.context.shared.hold_back);
        (now < until).then_some(until)
    }

    pub(super) fn transmit(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.dirty = false;
        connection.held_until = None;
        if matches!(connection.phase, Phase::Moving(_)) {
            return;
        }
        let backlog = connection.mover.backlog();
        if !connection.paused && backlog > BACKLOG_HIGH {
            connection.paused = true;
            connection.line.pause(&mut self.context.port);
        } else if connection.paused && backlog < BACKLOG_LOW {
            connection.paused = false;
            connection.line.resume(&mut self.context.port);
        }
        let Connection { line, mover, .. } = connection;
        match line.send(mover, token(Kind::Send, key), &mut self.context.port) {
            Sending::UnderWay => {}
            Sending::Begun => {
                if let Phase::Session { session, id } = connection.phase
                    && let Some(session) = self.sessions.get(session)
                {
                    connection.told = session.machine.next_stat_sn(id);
                }
            }
            Sending::Left => {
                self.left(key);
                self.end_if_terminated(key);
            }
            Sending::Nothing => {
                if connection.mover.backlog() > 0 {
                    self.context.memory_queue.wait_to_send(key);
                }
                self.end_if_terminated(key);
            }
        }
    }

    pub(super) fn sent(&mut self, key: Key, list: SgList, result: Result<(), i32>) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.line.take_back(list);
        if let Err(errno) = result {
            return self.disconnected(key, Some(errno));
        }
        transport::handle_sent(&mut connection.mover);
        self.left(key);
        self.mark_dirty(key);
    }

    /// What was handed out has left: tasks may end, and others go on.
    fn left(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.sends.count();
        if let Phase::Session { session, .. } = connection.phase {
            self.settle(session);
            self.paid(session);
        }
    }
}
