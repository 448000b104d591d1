// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What waits to leave for an initiator that does not take it.
//!
//! A store in memory lends its pages to what is sent, and others who write to lent pages need new
//! ones, of which there is a bounded number. So a session to which much is owed reads no more until
//! some of that has left: however slowly it takes its data, it keeps few pages from the others. And
//! what all of them together are owed is lent up to a bound, and copied beyond that. Pages are lent
//! in groups, so what counts there is what others find lent: of a block it is far more than it has.
//!
//! Messages, such as the answers to pings, are in no pool: who does not take them is not heard any
//! more when it has the most that one may have, or a little and all together have the most.

use engine::Port;
use iscsi::datamover::TaskId;
use iscsi::target_role::ConnectionId;
use scsi::Step;

use super::Phase;
use super::awaiting_memory::Want;
use super::services::task_of;
use super::view::SessionView;

/// What all reactors keep from those who write, bytes, each its part: half of the new pages that a
/// disk in memory may need. More is copied, as data of a file is; for what finds no memory there is
/// another time.
const LENT_ALL: usize = 128 << 20;

/// What all sessions may be owed, bytes: a quarter of the new pages that a disk in memory may need.
/// Each has its part in it, within the next two.
const OWED_ALL: usize = 64 << 20;

/// What a session may be owed, bytes: eight lists of PDUs on top of all that a socket holds, so
/// that no line that takes it waits for us.
const OWED_MAX: usize = 16 << 20;

/// What it may be owed however many there are: two lists on top of what a socket of Linux holds by
/// default at most is as much as a line needs to be busy.
pub(super) const OWED_MIN: usize = 4 << 20;

/// What may wait of messages, bytes, on all connections, before none may have more than
const MESSAGES_ALL: usize = 64 << 20;

/// several times what the statuses of a whole command window take.
const MESSAGES_MIN: usize = 256 << 10;

/// What may wait on one as long as all have less.
const MESSAGES_MAX: usize = 16 << 20;

/// What the sessions of a reactor are owed together.
#[derive(Debug, Default)]
pub(super) struct Owed {
    /// Bytes that those who write find lent: as a rule more than what waits.
    lent: usize,
    sessions: usize,
    /// Bytes of messages that wait on all connections.
    messages: usize,
}

impl Owed {
    /// Another session is there, to which nothing is owed.
    pub(super) const fn open(&mut self) {
        self.sessions += 1;
    }

    /// A session has gone.
    pub(super) const fn close(&mut self, lent: &Lent) {
        self.sessions -= 1;
        self.come_back(lent.bytes);
    }

    /// So many bytes are lent no more.
    pub(super) const fn come_back(&mut self, bytes: usize) {
        self.lent = self.lent.saturating_sub(bytes);
    }

    /// Whether so many bytes more may be lent, on one of so many reactors.
    pub(super) fn lends(&self, bytes: usize, reactors: usize) -> bool {
        self.lent.saturating_add(bytes) <= LENT_ALL / reactors.max(1)
    }

    /// An answer of a session has lent so many bytes.
    pub(super) fn lend(&mut self, session: &mut Lent, answer: Answer) {
        self.lent = self.lent.saturating_add(answer.bytes);
        self.come_back(session.add(answer));
    }

    /// What a session may be owed, on one of so many reactors.
    fn max(&self, reactors: usize) -> usize {
        let sessions = self.sessions.saturating_mul(reactors);
        (OWED_ALL / sessions.max(1)).clamp(OWED_MIN, OWED_MAX)
    }

    /// On a connection other bytes of messages wait than before.
    pub(super) const fn replace_messages(&mut self, before: usize, now: usize) {
        self.messages = self.messages.saturating_sub(before).saturating_add(now);
    }

    /// What may wait of messages on a connection, on one of so many reactors.
    pub(super) fn messages_max(&self, reactors: usize) -> usize {
        match self.messages < MESSAGES_ALL / reactors.max(1) {
            true => MESSAGES_MAX,
            false => MESSAGES_MIN,
        }
    }

    /// Panics if it knows of another number of sessions, or of what is lent to none, or of messages
    /// that wait on no connection.
    pub(super) fn check<'a>(&self, sessions: impl Iterator<Item = &'a Lent>, messages: usize) {
        let (count, lent) = sessions.fold((0, 0), |(count, sum), one| (count + 1, sum + one.bytes));
        assert_eq!(self.sessions, count, "each session has its part in what may be owed");
        assert_eq!(self.lent, lent, "what is lent is counted once, and no longer");
        assert_eq!(self.messages, messages, "what waits is counted once, and no longer");
    }
}

/// What the answers of a session have lent that have not left, by `TaskId::index`.
#[derive(Debug, Default)]
pub(super) struct Lent {
    bytes: usize,
    answers: Vec<Option<Answer>>,
}

/// An answer of which data is lent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub(super) task: TaskId,
    pub(super) connection: ConnectionId,
    /// That those who write find lent.
    pub(super) bytes: usize,
}

impl Lent {
    /// Gives the bytes of the one that had its place before.
    fn add(&mut self, answer: Answer) -> usize {
        let index = answer.task.index as usize;
        if index >= self.answers.len() {
            self.answers.resize(index + 1, None);
        }
        let Some(place) = self.answers.get_mut(index) else { return answer.bytes };
        let before = place.replace(answer).map_or(0, |before| before.bytes);
        self.bytes = self.bytes - before + answer.bytes;
        before
    }

    /// An answer has left: gives the bytes that it had lent.
    pub(super) fn take(&mut self, task: TaskId) -> usize {
        let place = self.answers.get_mut(task.index as usize);
        let answer = place.and_then(|place| place.take_if(|answer| answer.task == task));
        let bytes = answer.map_or(0, |answer| answer.bytes);
        self.bytes -= bytes;
        bytes
    }

    /// Those of connections that have gone have lent nothing: gives the bytes that they had.
    fn forget(&mut self, is_there: impl Fn(ConnectionId) -> bool) -> usize {
        let mut bytes = 0;
        for place in &mut self.answers {
            let has_gone = |answer: &mut Answer| !is_there(answer.connection);
            bytes += place.take_if(has_gone).map_or(0, |answer| answer.bytes);
        }
        self.bytes -= bytes;
        bytes
    }
}

impl<P: Port> SessionView<'_, P> {
    /// A connection of the session has gone: what it had to send holds up nothing any more.
    pub(super) fn owes_less(&mut self) {
        let connections = (0..).zip(&self.session.connections);
        let there = connections.filter_map(|(index, key)| {
            let connection = self.connections.get(*key)?;
            matches!(connection.phase, Phase::Session { .. }).then_some(ConnectionId(index))
        });
        let there: Vec<_> = there.collect();
        let came_back = self.session.lent.forget(|id| there.contains(&id));
        self.context.owed.come_back(came_back);
        self.paid();
    }

    /// What a command wants of its store, in a session to which much is owed or in which others
    /// wait; None if it reads for its initiator and waits for the line.
    #[cold]
    pub(super) fn read_or_wait(&mut self, id: TaskId, op: store::Op) -> Option<store::Op> {
        let store::Op::Read { length, .. } = &op else { return Some(op) };
        let length = usize::try_from(*length).unwrap_or(usize::MAX);
        let owed = self.session.owed;
        let max = self.context.owed.max(self.context.shared.mailboxes.len());
        let has_room = owed < OWED_MIN || owed.saturating_add(length) <= max;
        let is_behind_others = self.is_behind_others();
        let task = task_of(&mut self.session.tasks, id)?;
        // Who has begun holds blocks and memory, for which others wait, too.
        let is_first = task.is_reading || task.overtakes;
        if !task.sends || (has_room && (is_first || !is_behind_others)) {
            return Some(op);
        }
        self.await_memory(id, Want::Line { op: Box::new(op) }, 0);
        None
    }

    /// Others wait for the line already. What has left since is for them: who came later would take
    /// it each time, until they are refused.
    fn is_behind_others(&self) -> bool {
        let mut waiting = self.session.awaiting_memory.iter();
        !self.context.memory_queue.is_serving()
            && waiting.any(|waiter| matches!(waiter.want, Want::Line { .. }))
    }

    /// A list has left on a connection of the session, or the connection has.
    pub(super) fn paid(&mut self) {
        let (session, context) = (&mut *self.session, &mut *self.context);
        let connections = session.connections.iter().filter_map(|key| self.connections.get(*key));
        let owed = connections
            .filter(|one| matches!(one.phase, Phase::Session { .. }))
            .map(|one| one.mover.backlog())
            .sum();
        session.owed = owed;
        if !session.awaiting_memory.is_empty() {
            session.paid = context.port.now();
            context.memory_queue.look_again();
        }
    }

    /// Goes on with a command that has waited for its line.
    pub(super) fn read_at_last(&mut self, id: TaskId, op: store::Op) {
        self.advance(id, Step::Store(op));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(index: u32, generation: u32, connection: u16, bytes: usize) -> Answer {
        let task = TaskId { index, generation };
        Answer { task, connection: ConnectionId(connection), bytes }
    }

    #[test]
    fn what_is_lent_comes_back_once() {
        let (mut owed, mut lent) = (Owed::default(), Lent::default());
        owed.open();
        for answer in [answer(3, 1, 0, 5), answer(0, 1, 1, 7), answer(0, 2, 1, 70)] {
            owed.lend(&mut lent, answer);
        }
        owed.check([&lent].into_iter(), 0);
        assert_eq!(owed.lent, 75, "a new tenant takes the place of one that nobody spoke of");
        let of = |index, generation| TaskId { index, generation };
        for (task, bytes) in [(of(0, 1), 0), (of(9, 1), 0), (of(3, 1), 5), (of(3, 1), 0)] {
            let came_back = lent.take(task);
            assert_eq!(came_back, bytes, "{task:?}");
            owed.come_back(came_back);
        }
        owed.lend(&mut lent, answer(4, 1, 0, 1000));
        owed.come_back(lent.forget(|id| id == ConnectionId(0)));
        assert_eq!(owed.lent, 1000, "a connection has gone");
        assert!(owed.lends(LENT_ALL - 1000, 1) && !owed.lends(LENT_ALL - 999, 1));
        owed.close(&lent);
        owed.check([].into_iter(), 0);
    }

    /// However they come: one by one, in sessions of several connections, and on some of the
    /// reactors only.
    #[test]
    fn messages_for_all_connections_have_one_bound() {
        for reactors in [1, 2, 16] {
            let (mut owed, connections) = (Owed::default(), 500);
            for _ in 0..connections {
                owed.replace_messages(0, owed.messages_max(reactors));
            }
            let most = MESSAGES_ALL / reactors + MESSAGES_MAX + connections * MESSAGES_MIN;
            assert!((MESSAGES_ALL / reactors..most).contains(&owed.messages), "{owed:?}");
            assert_eq!(owed.messages_max(reactors), MESSAGES_MIN);
            owed.replace_messages(owed.messages, 0);
            assert_eq!(owed.messages_max(reactors), MESSAGES_MAX, "all has left");
        }
    }
}
