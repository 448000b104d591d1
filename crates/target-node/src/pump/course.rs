// SPDX-License-Identifier: Apache-2.0 OR MIT
//! With what each command spends its time, where slow ones are to be told of ([`crate::slow`]).

use std::time::Duration;

use clock::Instant;
use engine::Port;
use iscsi::datamover::TaskId;
use wire::iscsi::Cdb;
use wire::scsi::cdb::Group;
use wire::scsi::opcode::Opcode;
use wire::scsi::sam;

use super::services::scene;
use super::services::task_of;
use super::view::SessionView;

/// With what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum With {
    /// The device server, and until it has its turn.
    Server,
    /// Until the data of a write is there.
    Data,
    /// Until there is a buffer.
    Memory,
    /// Until other commands have ended.
    Others,
    /// The work of its store, or of the device that it is for.
    Store,
    /// Until a limit lets it go on.
    Limits,
}

const COUNT: usize = 6;

/// Of one command.
#[derive(Debug)]
pub(super) struct Course {
    of: TaskId,
    cdb: Cdb,
    with: With,
    since: Instant,
    spent: [Duration; COUNT],
}

impl Course {
    const fn begin(of: TaskId, cdb: Cdb, now: Instant) -> Self {
        Self { of, cdb, with: With::Server, since: now, spent: [Duration::ZERO; COUNT] }
    }

    fn turn(&mut self, with: With, now: Instant) {
        if let Some(spent) = self.spent.get_mut(self.with as usize) {
            *spent += now.since(self.since);
        }
        (self.with, self.since) = (with, now);
    }

    fn total(&self) -> Duration {
        self.spent.iter().sum()
    }
}

/// The courses of a session's commands, by `TaskId::index`; none before somebody wants to hear of
/// slow ones.
#[derive(Debug, Default)]
pub(super) struct Courses(Vec<Option<Course>>);

impl Courses {
    fn of(&mut self, id: TaskId) -> Option<&mut Course> {
        let course = self.0.get_mut(id.index as usize)?.as_mut();
        course.filter(|course| course.of == id)
    }

    fn put(&mut self, course: Course) {
        let index = course.of.index as usize;
        if self.0.len() <= index {
            self.0.resize_with(index + 1, || None);
        }
        if let Some(slot) = self.0.get_mut(index) {
            *slot = Some(course);
        }
    }
}

impl<P: Port> SessionView<'_, P> {
    /// A command has come.
    #[inline]
    pub(super) fn sets_out(&mut self, id: TaskId, cdb: Cdb) {
        if self.context.shared.slow.after().is_some() {
            let now = self.context.port.now();
            self.session.courses.put(Course::begin(id, cdb, now));
        }
    }

    /// From now on a command spends its time `with` this.
    #[inline]
    pub(super) fn spends(&mut self, id: TaskId, with: With) {
        if !self.session.courses.0.is_empty()
            && let Some(course) = self.session.courses.of(id)
        {
            course.turn(with, self.context.port.now());
        }
    }

    /// A command is over; with what status, unless it was aborted.
    #[inline]
    pub(super) fn arrives(&mut self, id: TaskId, status: Option<u8>) {
        if !self.session.courses.0.is_empty() {
            self.arrived(id, status);
        }
    }

    fn arrived(&mut self, id: TaskId, status: Option<u8>) {
        let slot = self.session.courses.0.get_mut(id.index as usize);
        let Some(mut course) = slot.and_then(|slot| slot.take_if(|course| course.of == id)) else {
            return;
        };
        let now = self.context.port.now();
        let with = course.with;
        course.turn(with, now);
        let slow = &self.context.shared.slow;
        let is_slow = slow.after().is_some_and(|after| course.total() >= after);
        if is_slow && let Some(left_out) = slow.tell(now) {
            self.tell_slow(&course, status, left_out);
        }
    }

    #[cold]
    fn tell_slow(&mut self, course: &Course, status: Option<u8>, left_out: u64) {
        let session = &mut *self.session;
        let task = task_of(&mut session.tasks, course.of);
        let Some((nexus, task)) = session.nexus.as_ref().zip(task) else { return };
        let unit = task.scsi.place();
        let (target, lun) =
            scene(&self.context.shared, nexus, session.login.target.as_deref()).place(unit);
        let command = course.cdb.bytes.first().and_then(|code| Opcode(*code).name());
        let status = status.map_or(Some("aborted"), sam::name);
        let [server, data, memory, others, store, limits] = course.spent.map(milliseconds);
        tracing::warn!(
            target,
            lun,
            peer = %session.peer,
            initiator = session.login.initiator,
            command,
            cdb = digits(&course.cdb),
            status,
            took_ms = milliseconds(course.total()),
            store_ms = store,
            data_ms = data,
            memory_ms = memory,
            others_ms = others,
            limits_ms = limits,
            server_ms = server,
            left_out,
            "a command was slow"
        );
    }
}

fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

fn digits(cdb: &Cdb) -> String {
    let opcode = cdb.bytes.first().map(|code| Opcode(*code));
    let len = opcode.and_then(Group::of).map_or(cdb.len, |group| group.cdb_len().into());
    let bytes = cdb.bytes.iter().take(len.into());
    bytes.map(|byte| format!("{byte:02x}")).collect()
}
