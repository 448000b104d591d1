// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests from their post to their end, over as many sessions and tries as it takes.

use std::collections::VecDeque;
use std::time::Duration;

use buf::Buf;
use buf::Pool;
use buf::Slice;
use clock::Instant;
use engine::Port;
use iscsi::initiator::Command;
use iscsi::initiator::Completion;
use iscsi::initiator::Ending;
use iscsi::initiator::Outcome;
use iscsi::initiator::Step;
use iscsi::initiator::datamover::TaskId;
use slab::Slab;
use wire::iscsi::Attribute;
use wire::iscsi::Cdb;
use wire::iscsi::Residual;
use wire::scsi::Lun;
use wire::scsi::Sense;
use wire::scsi::SenseKey;
use wire::scsi::opcode::Opcode;
use wire::scsi::sam::BUSY;
use wire::scsi::sam::CHECK_CONDITION;
use wire::scsi::sam::CONDITION_MET;
use wire::scsi::sam::GOOD;
use wire::scsi::sam::TASK_ABORTED;
use wire::scsi::sam::TASK_SET_FULL;

use super::SessionDriver;
use super::State;
use super::identity::Question;
use super::overdue::beyond_abort;
use super::paths::Access;
use crate::Data;
use crate::Done;
use crate::Error;
use crate::Event;
use crate::Generation;
use crate::Kind;
use crate::Request;
use crate::Retry;
use crate::limits;
use crate::pump::Context;
use crate::scsi;

/// A request that has not ended.
#[derive(Debug)]
pub(super) struct Job {
    /// The caller's; of a question of ours, that of the request for which it is asked.
    pub(super) tag: u64,
    pub(super) request: Request,
    /// What we ask ourselves, where no caller does.
    pub(super) question: Option<Question>,
    /// Room for data from the unit; with the mover while the command is on a connection.
    pub(super) room: Option<Buf>,
    /// The mover of a connection has the buffers.
    attached: bool,
    losses: u32,
    /// How often it was not answered in time.
    timeouts: u32,
    attentions: u32,
    aborts: u32,
    busy: u32,
    /// When the target was found busy first.
    busy_since: Option<Instant>,
    /// When it was first lost with its session.
    lost_since: Option<Instant>,
    /// Portals behind which the unit was not accessible.
    pub(super) refused_by: Vec<String>,
}

/// What holds for all requests of a session while one is judged.
struct Terms {
    now: Instant,
    closing: bool,
    hands_back: bool,
    /// How long the target may be busy.
    busy: Duration,
    /// For how long one session after the other may be lost.
    losses: Duration,
}

/// All requests of a session.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    jobs: Slab<Job>,
    /// Those that are to be given to the session.
    ready: VecDeque<usize>,
    /// Those that wait before they are tried again.
    delayed: Vec<(Instant, usize)>,
    /// Those that wait for a buffer, and since when: who came first is served first.
    awaiting_buffer: VecDeque<(Instant, usize)>,
    /// When the pool is asked again for them.
    asks_at: Option<Instant>,
    /// Which request a task belongs to, by the slot of the task.
    by_task: Vec<usize>,
    /// The buffer of the task that ends next.
    kept: Option<(TaskId, Option<Buf>)>,
    /// Units, and with what status they are busy, of which was told, and when.
    noticed: Vec<(u16, u8, Instant)>,
}

/// What becomes of a request.
enum Verdict {
    End(Result<(), Kind>),
    Again,
    /// Once more after this was done.
    AfterStep(Step),
    /// Once more after a while; this is what the target says, where that is worth a word.
    Later(Duration, Option<Kind>),
    /// Over another portal, if there is one that has not said the same.
    Elsewhere(Kind),
}

impl Jobs {
    pub(super) fn insert(&mut self, tag: u64, request: Request, room: Option<Buf>) {
        let place = self.jobs.insert(Job::new(tag, request, room));
        self.ready.push_back(place);
    }

    /// Takes a question of ours, which goes before all others when it has room for the answer.
    pub(super) fn insert_question<P: Port>(&mut self, job: Job, context: &mut Context<'_, P>) {
        let has_room = job.has_room();
        let place = self.jobs.insert(job);
        match has_room {
            true => self.ready.push_front(place),
            false => self.again(place, context),
        }
    }

    /// The first one that is ready is to wait.
    pub(super) fn hold_first(&mut self) {
        self.ready.pop_front();
    }

    /// Those that had to wait go on, in their order and before what came later.
    pub(super) fn release(&mut self, held: Vec<usize>) {
        for place in held.into_iter().rev() {
            self.ready.push_front(place);
        }
    }

    pub(super) fn keep(&mut self, task: TaskId, buf: Option<Buf>) {
        self.kept = Some((task, buf));
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.delayed.iter().map(|(at, _)| *at).chain(self.asks_at).min()
    }

    /// True if a request has waited long enough.
    pub(super) fn wake<P: Port>(&mut self, context: &mut Context<'_, P>) -> bool {
        let (now, before) = (context.now, self.ready.len());
        if self.asks_at.is_some_and(|at| at <= now) {
            self.find_rooms(context);
        }
        let mut delayed = std::mem::take(&mut self.delayed);
        delayed.retain(|(at, place)| {
            if *at <= now {
                self.again(*place, context);
            }
            *at > now
        });
        self.delayed = delayed;
        self.ready.len() > before
    }

    /// A request is to be given to the session once more: at once, or when there is a buffer.
    fn again<P: Port>(&mut self, place: usize, context: &mut Context<'_, P>) {
        let Some(job) = self.jobs.get_mut(place) else { return };
        if self.awaiting_buffer.is_empty() && job.find_room(context.pool) || job.has_room() {
            return self.ready.push_back(place);
        }
        self.awaiting_buffer.push_back((context.now, place));
        *context.awaiting_buffer += 1;
        self.asks_at.get_or_insert(context.now + limits::ROOM_INTERVAL);
    }

    /// Asks the pool for those that wait, up to the first one for which it has nothing.
    fn find_rooms<P: Port>(&mut self, context: &mut Context<'_, P>) {
        while let Some((_, place)) = self.awaiting_buffer.front().copied() {
            if !self.jobs.get_mut(place).is_none_or(|job| job.find_room(context.pool)) {
                break;
            }
            self.awaiting_buffer.pop_front();
            *context.awaiting_buffer -= 1;
            self.ready.push_back(place);
        }
        let waiting = !self.awaiting_buffer.is_empty();
        self.asks_at = waiting.then(|| context.now + limits::ROOM_INTERVAL);
    }

    /// There is a session again. As with commands, no time counts while there is none.
    pub(super) fn is_up(&mut self, now: Instant) {
        for (since, _) in &mut self.awaiting_buffer {
            *since = now;
        }
    }

    /// Takes a request out that has waited for a buffer for all of `patience`; zero: for ever.
    /// While data moves those that have a buffer come to an end, and time begins anew when it
    /// `moved`.
    fn overdue<P: Port>(
        &mut self,
        patience: Duration,
        moved: Option<Instant>,
        context: &mut Context<'_, P>,
    ) -> Option<Job> {
        let (since, place) = *self.awaiting_buffer.front()?;
        let since = moved.map_or(since, |moved| moved.max(since));
        if patience.is_zero() || context.now.since(since) < patience {
            return None;
        }
        self.awaiting_buffer.pop_front();
        *context.awaiting_buffer -= 1;
        self.jobs.try_remove(place)
    }

    /// Whether something that was given to a session may leave something behind.
    pub(super) fn may_change(&self) -> bool {
        self.jobs.iter().any(|(_, job)| job.attached && job.changes())
    }

    pub(super) fn take_all<P: Port>(&mut self, context: &mut Context<'_, P>) -> Vec<Job> {
        self.ready.clear();
        self.delayed.clear();
        *context.awaiting_buffer -= self.awaiting_buffer.len();
        self.awaiting_buffer.clear();
        self.asks_at = None;
        self.jobs.drain().collect()
    }

    /// The buffers of a task that is sent for the first time; None if they are with a mover.
    pub(super) fn take_buffers(&mut self, task: TaskId) -> Option<(Option<Slice>, Option<Buf>)> {
        let place = self.of_task(task)?;
        let job = self.jobs.get_mut(place).filter(|job| !job.attached)?;
        job.attached = true;
        let write = match &job.request.data {
            Data::Out(data) => Some(data.clone()),
            Data::None | Data::In(_) => None,
        };
        Some((write, job.room.take()))
    }

    fn bind(&mut self, task: TaskId, place: usize) {
        let slot = task.index as usize;
        if self.by_task.len() <= slot {
            self.by_task.resize(slot + 1, usize::MAX);
        }
        if let Some(entry) = self.by_task.get_mut(slot) {
            *entry = place;
        }
    }

    /// The request that a task belongs to: its tag, unit and command.
    pub(super) fn named(&self, task: TaskId) -> Option<(u64, u16, Cdb)> {
        let job = self.jobs.get(self.of_task(task)?)?;
        Some((job.tag, job.request.lun, job.request.cdb))
    }

    /// Whether it was not told for some time that this unit answers so.
    pub(super) fn is_news(&mut self, lun: u16, kind: &Kind, now: Instant) -> bool {
        let Kind::Status { status, .. } = kind else { return false };
        self.noticed.retain(|(.., told)| now.since(*told) < limits::NOTICE_INTERVAL);
        let known = self.noticed.iter().any(|(of, with, _)| (*of, *with) == (lun, *status));
        let is_news = !known && self.noticed.len() < limits::NOTICES_MAX;
        if is_news {
            self.noticed.push((lun, *status, now));
        }
        is_news
    }

    /// Since when a request is told that the target is busy, of those that wait to be tried again.
    pub(super) fn busy_since(&self) -> Option<Instant> {
        let waiting = self.delayed.iter().filter_map(|(_, place)| self.jobs.get(*place));
        waiting.filter_map(|job| job.busy_since).min()
    }

    pub(super) fn get_mut(&mut self, place: usize) -> Option<&mut Job> {
        self.jobs.get_mut(place)
    }

    fn of_task(&self, task: TaskId) -> Option<usize> {
        self.by_task.get(task.index as usize).copied()
    }
}

impl SessionDriver {
    /// Whether a request is to be given to the session.
    pub(crate) fn has_ready(&self) -> bool {
        !self.jobs.ready.is_empty()
    }

    /// Gives the session what it takes.
    pub(crate) fn issue<P: Port>(&mut self, context: &mut Context<'_, P>) {
        let mut any = false;
        while let Some(place) = self.jobs.ready.front().copied() {
            if !matches!(self.state, State::Up(_)) {
                break;
            }
            if !self.may_go(place, context) {
                continue;
            }
            let State::Up(session) = &mut self.state else { break };
            let Some(job) = self.jobs.jobs.get_mut(place) else {
                self.jobs.ready.pop_front();
                continue;
            };
            let (data_out, data_in) = match &job.request.data {
                Data::None => (0, 0),
                Data::Out(data) => (u32::try_from(data.len()).unwrap_or(u32::MAX), 0),
                Data::In(length) => (0, *length),
            };
            let command = Command {
                lun: Lun::Unit(job.request.lun).emit(),
                cdb: job.request.cdb,
                attribute: Attribute::Simple,
                data_out,
                data_in,
            };
            let Ok(task) = session.command(command, context.now) else { break };
            job.attached = false;
            self.jobs.ready.pop_front();
            self.jobs.bind(task, place);
            any = true;
        }
        if any {
            self.settle(context);
        }
    }

    /// A command has ended.
    pub(super) fn ended<P: Port>(
        &mut self,
        task: TaskId,
        outcome: Outcome,
        context: &mut Context<'_, P>,
    ) {
        let buf = match self.jobs.kept.take() {
            Some((of, buf)) if of == task => buf,
            _ => None,
        };
        let Some(place) = self.jobs.of_task(task) else { return };
        let Some(job) = self.jobs.jobs.get_mut(place) else { return };
        if matches!(outcome, Outcome::Failed(Ending::Lost { sent: true })) && job.changes() {
            self.portals.doubt();
        }
        if job.attached {
            job.room = buf;
        }
        let lun = job.request.lun;
        if let Some(kind) = deferred(&outcome) {
            let error = Error::new(kind).at_target(self.options.target.as_deref());
            let (session, error) = (self.id, error.at_lun(lun));
            context.tell(Event::Deferred { session, error });
        }
        if let Some(sense) = attention(&outcome) {
            context.tell(Event::Attention { session: self.id, lun, sense });
        }
        let generation = self.caches.note_outcome(lun, &job.request.cdb, &outcome);
        if let Some(fate) = self.caches.take_loss() {
            // Before the end of any command of the new generation.
            context.tell(Event::MayHaveLost { session: self.id, lun, fate });
        }
        self.identities.note_outcome(lun, &outcome);
        let received = match &outcome {
            Outcome::Done(completion) => {
                self.carries = true;
                completion.received
            }
            Outcome::Failed(_) => 0,
        };
        let terms = Terms {
            now: context.now,
            closing: self.closing,
            hands_back: self.hands_back,
            busy: match self.hands_back {
                true => limits::PATH_BUSY,
                false => self.options.busy_patience(),
            },
            losses: self.options.reconnect_patience,
        };
        match job.judge(outcome, &terms) {
            Verdict::Again => self.jobs.again(place, context),
            Verdict::AfterStep(step) => {
                let lun = job.request.lun;
                // Behind it in order: what is sent from now on is not meant by it.
                self.escalate(task, step, lun, context);
                self.jobs.again(place, context);
            }
            Verdict::Later(pause, said) => {
                let (tag, lun, cdb) = (job.tag, job.request.lun, job.request.cdb);
                let since = job.busy_since;
                self.jobs.delayed.push((context.now + pause, place));
                if let Some(kind) = said
                    && self.jobs.is_news(lun, &kind, context.now)
                {
                    let error = self.error(kind).at_lun(lun).during(&cdb);
                    let error = error.busy_since(since, context.now);
                    context.tell(Event::Again { session: self.id, tag, error });
                }
            }
            Verdict::Elsewhere(kind) if self.moves_for(place, &kind, context) => {
                self.jobs.again(place, context);
            }
            Verdict::Elsewhere(kind) => {
                self.finish(place, Err(kind), (received, generation), context);
            }
            Verdict::End(result) => self.finish(place, result, (received, generation), context),
        }
    }

    /// A request has its last word: how many bytes came for it, and in which generation it ended.
    pub(super) fn finish<P: Port>(
        &mut self,
        place: usize,
        result: Result<(), Kind>,
        (received, generation): (u32, Generation),
        context: &mut Context<'_, P>,
    ) {
        let Some(mut job) = self.jobs.jobs.try_remove(place) else { return };
        if let Some(question) = job.question {
            let result = result.map(|()| received);
            return self.replied(job, question, result, context);
        }
        self.learn(&job, result.as_ref().map(|()| received), context);
        let data = job.room.take().map(|mut buf| {
            buf.truncate(received as usize);
            buf
        });
        let result = result.map(|()| Done { data, generation }).map_err(|kind| {
            let kind = self.cause(kind);
            let error: Error = self.error(kind);
            let error = error.busy_since(job.busy_since, context.now);
            error.at_lun(job.request.lun).during(&job.request.cdb)
        });
        context.tell(Event::Done { session: self.id, tag: job.tag, result });
    }
}

impl SessionDriver {
    /// Ends what has waited for a buffer as long as a command may take.
    pub(super) fn end_overdue<P: Port>(&mut self, context: &mut Context<'_, P>) {
        let patience = self.options.settings.command_timeout;
        let State::Up(session) = &self.state else { return };
        let moved = session.moved();
        while let Some(job) = self.jobs.overdue(patience, moved, context) {
            if let Some(question) = job.question {
                self.replied(job, question, Err(Kind::Full), context);
                continue;
            }
            let error = self.error(Kind::Full).at_lun(job.request.lun);
            let result = Err(error.during(&job.request.cdb));
            context.tell(Event::Done { session: self.id, tag: job.tag, result });
        }
    }

    /// Of a command that was lost with its session: why that ended.
    pub(super) fn cause(&self, kind: Kind) -> Kind {
        match (&self.state, &kind) {
            _ if self.hands_back => kind,
            (State::Up(session), Kind::Ending(Ending::Lost { .. })) => {
                session.ended_by().map_or(kind, Kind::Session)
            }
            _ => kind,
        }
    }
}

/// What a unit tells of an earlier command, in the place of an answer to this one.
fn deferred(outcome: &Outcome) -> Option<Kind> {
    // It may come beside any status, of which it says nothing.
    let Outcome::Done(Completion { status, sense: raw, .. }) = outcome else {
        return None;
    };
    let sense = Sense::parse(raw).filter(|sense| sense.deferred)?;
    Some(Kind::Status { status: *status, sense: Some(sense), raw: raw.clone() })
}

/// The unit attention that a command ended with.
fn attention(outcome: &Outcome) -> Option<Sense> {
    let Outcome::Done(Completion { status: CHECK_CONDITION, sense, .. }) = outcome else {
        return None;
    };
    Sense::parse(sense).filter(|sense| sense.key == SenseKey::UnitAttention && !sense.deferred)
}

impl Job {
    pub(super) const fn new(tag: u64, request: Request, room: Option<Buf>) -> Self {
        Self {
            tag,
            request,
            question: None,
            room,
            attached: false,
            losses: 0,
            timeouts: 0,
            attentions: 0,
            aborts: 0,
            busy: 0,
            busy_since: None,
            lost_since: None,
            refused_by: Vec::new(),
        }
    }

    pub(super) fn asking(self, question: Question) -> Self {
        Self { question: Some(question), ..self }
    }

    /// Whether it may leave something on the medium or in the unit. What was written before does
    /// not change when it comes to stable storage.
    const fn changes(&self) -> bool {
        let [opcode, ..] = self.request.cdb.bytes;
        let is_harmless = matches!(
            Opcode(opcode),
            Opcode::TEST_UNIT_READY | Opcode::SYNCHRONIZE_CACHE_10 | Opcode::SYNCHRONIZE_CACHE_16
        );
        !is_harmless && !matches!(self.request.data, Data::In(_))
    }

    const fn has_room(&self) -> bool {
        self.room.is_some() || !matches!(self.request.data, Data::In(_))
    }

    /// The port had the buffer when the connection was closed: it may be sent again with another.
    /// False if there is none.
    fn find_room(&mut self, pool: &Pool) -> bool {
        if let (Data::In(length), None) = (&self.request.data, &self.room) {
            self.room = pool.take(*length as usize);
        }
        self.has_room()
    }

    fn judge(&mut self, outcome: Outcome, terms: &Terms) -> Verdict {
        let always = self.request.retry == Retry::Always;
        let is_lost = matches!(outcome, Outcome::Failed(Ending::Lost { .. }));
        let in_time = !is_lost || {
            // A target that was lost may be busy anew.
            self.busy_since = None;
            let since = *self.lost_since.get_or_insert(terms.now);
            since == terms.now || terms.now.since(since) < terms.losses
        };
        match outcome {
            Outcome::Done(completion) => self.judge_status(completion, terms),
            Outcome::Failed(Ending::Lost { .. }) if terms.closing => {
                Verdict::End(Err(Kind::Closed))
            }
            Outcome::Failed(ending @ Ending::Lost { .. }) if terms.hands_back => {
                Verdict::End(Err(Kind::Ending(ending)))
            }
            Outcome::Failed(Ending::Lost { sent: false }) if in_time => Verdict::Again,
            Outcome::Failed(ending @ (Ending::Lost { .. } | Ending::Damaged | Ending::Reset)) => {
                self.losses += 1;
                if always && in_time && self.losses <= limits::LOSSES_MAX {
                    Verdict::Again
                } else {
                    Verdict::End(Err(Kind::Ending(ending)))
                }
            }
            Outcome::Failed(Ending::TimedOut) if always && self.timeouts < limits::TIMEOUTS_MAX => {
                self.timeouts += 1;
                beyond_abort(self.timeouts).map_or(Verdict::Again, Verdict::AfterStep)
            }
            Outcome::Failed(ending) => Verdict::End(Err(Kind::Ending(ending))),
        }
    }

    fn judge_status(&mut self, completion: Completion, terms: &Terms) -> Verdict {
        let Completion { status, sense: raw, residual, received } = completion;
        let sends = matches!(self.request.data, Data::Out(_)) && self.request.retry != Retry::Never;
        match status {
            GOOD if sends && residual != Residual::None => {
                return Verdict::End(Err(Kind::Untaken(residual)));
            }
            GOOD if received < self.request.least() => {
                let expected = self.request.least();
                return Verdict::End(Err(Kind::Short { received, expected }));
            }
            GOOD => return Verdict::End(Ok(())),
            // PRE-FETCH ends so, no command with data does.
            CONDITION_MET if !sends => return Verdict::End(Ok(())),
            _ => {}
        }
        let sense = Sense::parse(&raw);
        let ended_so = sense.filter(|_| status == CHECK_CONDITION);
        let is_deferred = ended_so.is_some_and(|sense| sense.deferred);
        // What is deferred is not about this command.
        let own = ended_so.filter(|_| !is_deferred);
        let key = own.map(|sense| sense.key);
        let access = own.filter(|_| key == Some(SenseKey::NotReady)).and_then(Access::of);
        match (status, key, self.request.retry) {
            (_, _, Retry::Never) => {}
            // Who chooses paths has others.
            _ if access.is_some() && terms.hands_back => {}
            _ if access == Some(Access::Elsewhere) => {
                return Verdict::Elsewhere(Kind::Status { status, sense, raw });
            }
            (TASK_ABORTED, ..) if self.request.retry != Retry::Always => {}
            // Another host may reset the unit again and again.
            _ if matches!(status, BUSY | TASK_SET_FULL | TASK_ABORTED)
                || key == Some(SenseKey::UnitAttention)
                    && self.attentions >= limits::ATTENTIONS_MAX
                || access == Some(Access::Soon)
                || own.is_some_and(scsi::is_becoming_ready) =>
            {
                let since = *self.busy_since.get_or_insert(terms.now);
                let (busy, left) = (terms.now.since(since), since + terms.busy);
                if busy < terms.busy {
                    let pause = limits::BUSY_MIN * (1 << self.busy.min(16));
                    let pause = pause.min(limits::BUSY_MAX).min(left.since(terms.now));
                    self.busy += 1;
                    let said = (busy >= limits::BUSY_NOTICE).then_some(Kind::Status {
                        status,
                        sense,
                        raw,
                    });
                    return Verdict::Later(pause, said);
                }
            }
            _ if (key == Some(SenseKey::UnitAttention) || is_deferred)
                && self.attentions < limits::ATTENTIONS_MAX =>
            {
                self.attentions += 1;
                return Verdict::Again;
            }
            (_, Some(SenseKey::AbortedCommand), Retry::Always)
                if self.aborts < limits::ABORTS_MAX =>
            {
                self.aborts += 1;
                return Verdict::Again;
            }
            _ => {}
        }
        Verdict::End(Err(Kind::Status { status, sense, raw }))
    }
}
