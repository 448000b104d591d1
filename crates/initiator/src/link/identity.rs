// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether the unit behind a LUN is still the one that it was.
//!
//! A LUN is a number; a target that begins anew, or whose units are exchanged, may show another
//! disk behind it, and says so to nobody but in the answers to INQUIRY. So what a unit says of
//! itself is kept ([`facts`]), and asked for again in each new session, and after a unit attention
//! that may mean another unit, before any command goes on or is repeated.
//!
//! ```text
//! Same --new session, unit attention--> Doubtful --a command comes--> Asking --agrees--> Same
//!                                          ^                            |  |
//!                                          +--no answer, never the same-+  +--differs--> Other
//! ```
//!
//! A unit that was never asked anything is not watched.

mod facts;

use std::collections::BTreeMap;

use buf::Buf;
use engine::Port;
use iscsi::initiator::Outcome;
use wire::scsi::Sense;
use wire::scsi::SenseKey;
use wire::scsi::sam::CHECK_CONDITION;

pub(super) use self::facts::Question;

use self::facts::Facts;
use super::SessionDriver;
use super::jobs::Job;
use crate::Data;
use crate::Generation;
use crate::Kind;
use crate::Request;
use crate::Retry;
use crate::limits;
use crate::pump::Context;

/// The units of a session that have said who they are.
#[derive(Debug, Default)]
pub(super) struct Identities {
    units: BTreeMap<u16, Unit>,
    /// Some unit is not known to be the same: until then nobody is looked up.
    watching: bool,
    /// Room for an answer, set aside so that commands that wait for it cannot hold all there is.
    reserve: Option<Buf>,
}

#[derive(Debug, Default)]
struct Unit {
    known: Facts,
    standing: Standing,
    /// The unit attention that each new nexus gets has come (SAM-5 §5.14).
    greeted: bool,
}

#[derive(Debug, Default)]
enum Standing {
    /// It is the one that it was.
    #[default]
    Same,
    /// It may be another one.
    Doubtful,
    /// It is being asked.
    Asking(Check),
    /// It is another one.
    Other(Kind),
}

#[derive(Debug, Default)]
struct Check {
    fresh: Facts,
    asked: Vec<Question>,
    /// How often that began anew.
    rounds: u32,
    /// Requests that wait for the end, by their places.
    held: Vec<usize>,
}

/// Whether a request may be given to the session.
enum Gate {
    Open,
    /// It waits for what the unit says.
    Held,
    /// As `Held`, and the unit is to be asked this.
    Ask(Question),
    Other(Kind),
}

/// What follows from an answer.
enum Next {
    Ask(Question),
    /// These go on, or end with an error.
    Release(Vec<usize>, Result<(), Kind>),
}

impl Identities {
    /// A new session has begun: nothing that was said in the one before counts.
    pub(super) fn is_up(&mut self) {
        for unit in self.units.values_mut() {
            unit.greeted = false;
            unit.doubt();
        }
        self.update_watching();
    }

    /// Why the commands of a unit are refused.
    pub(super) fn refusal(&self, lun: u16) -> Option<Kind> {
        match &self.units.get(&lun)?.standing {
            Standing::Other(kind) => Some(kind.clone()),
            _ => None,
        }
    }

    /// The session is over.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// A command has ended: some ends mean that units may be others.
    pub(super) fn note_outcome(&mut self, lun: u16, outcome: &Outcome) {
        let Outcome::Done(completion) = outcome else { return };
        if completion.status != CHECK_CONDITION {
            return;
        }
        let sense = Sense::parse(&completion.sense).filter(|sense| !sense.deferred);
        let Some(sense) = sense else { return };
        match (sense.key, sense.asc, sense.ascq) {
            // REPORTED LUNS DATA HAS CHANGED: any of them.
            (SenseKey::UnitAttention, 0x3f, 0x0e) => {
                self.units.values_mut().for_each(Unit::doubt);
            }
            // INQUIRY DATA HAS CHANGED, DEVICE IDENTIFIER CHANGED, CAPACITY DATA HAS CHANGED.
            (SenseKey::UnitAttention, 0x3f, 0x03 | 0x05)
            | (SenseKey::UnitAttention, 0x2a, 0x09)
            // NOT READY TO READY CHANGE, MEDIUM MAY HAVE CHANGED.
            | (SenseKey::UnitAttention, 0x28, 0x00) => self.doubt(lun),
            // A unit that is new to the nexus greets it by the same words as one that was reset.
            (SenseKey::UnitAttention, 0x29, _) => {
                let unit = self.units.entry(lun).or_default();
                if std::mem::replace(&mut unit.greeted, true) {
                    unit.doubt();
                }
            }
            // LOGICAL UNIT NOT SUPPORTED: another one may come in its place.
            (SenseKey::IllegalRequest, 0x25, 0x00) => self.doubt(lun),
            _ => return,
        }
        self.update_watching();
    }

    fn doubt(&mut self, lun: u16) {
        if let Some(unit) = self.units.get_mut(&lun) {
            unit.doubt();
        }
    }

    fn has_name(&self, lun: u16) -> bool {
        self.units.get(&lun).is_some_and(|unit| !unit.known.is_nameless())
    }

    /// A unit has answered somebody: what it says of itself is kept. None: it has nothing to say.
    fn learn(&mut self, lun: u16, question: Question, data: Option<&[u8]>) {
        let unit = self.units.entry(lun).or_default();
        let mut said = Facts::default();
        said.hear(question, data);
        if !unit.known.has(question) {
            unit.known.add(said);
        } else if unit.known.differs(&said, question) {
            // What all of it says counts.
            unit.doubt();
        } else {
            unit.known.resize(&said);
        }
        self.update_watching();
    }

    fn update_watching(&mut self) {
        self.watching = self.units.values().any(|unit| !matches!(unit.standing, Standing::Same));
    }

    fn gate(&mut self, lun: u16, place: usize) -> Gate {
        if !self.watching {
            return Gate::Open;
        }
        let Some(unit) = self.units.get_mut(&lun) else { return Gate::Open };
        match &mut unit.standing {
            Standing::Same => Gate::Open,
            Standing::Other(kind) => Gate::Other(kind.clone()),
            Standing::Asking(check) => {
                check.held.push(place);
                Gate::Held
            }
            Standing::Doubtful => {
                let check = Check { held: vec![place], ..Check::default() };
                let question = unit.known.questions().next();
                let Some(question) = question else { return Gate::Open };
                unit.standing = Standing::Asking(check);
                Gate::Ask(question)
            }
        }
    }

    /// A unit that is asked has answered; None: it has nothing to say to that.
    fn answered(&mut self, lun: u16, question: Question, data: Option<&[u8]>) -> Option<Next> {
        let unit = self.units.get_mut(&lun)?;
        let Standing::Asking(check) = &mut unit.standing else { return None };
        if data.is_some_and(|data| question.is_absent(data)) {
            return self.failed(lun, facts::not_supported());
        }
        if check.asked.is_empty() {
            check.rounds += 1;
        }
        let rounds = check.rounds;
        if rounds > limits::IDENTITY_ROUNDS_MAX {
            return self.failed(lun, Kind::Unsettled { rounds });
        }
        check.fresh.hear(question, data);
        check.asked.push(question);
        let left = unit.known.questions().find(|question| !check.asked.contains(question));
        if let Some(next) = left {
            return Some(Next::Ask(next));
        }
        let held = std::mem::take(&mut check.held);
        let is_same = unit.known.is_of(&check.fresh);
        let other = || Kind::OtherDisk {
            was: unit.known.beside(&check.fresh),
            now: check.fresh.beside(&unit.known),
        };
        let result = if is_same { Ok(()) } else { Err(other()) };
        unit.standing = match &result {
            Ok(()) => Standing::Same,
            Err(kind) => Standing::Other(kind.clone()),
        };
        self.update_watching();
        Some(Next::Release(held, result))
    }

    /// A unit that is asked does not answer.
    fn failed(&mut self, lun: u16, kind: Kind) -> Option<Next> {
        let unit = self.units.get_mut(&lun)?;
        let Standing::Asking(check) = &mut unit.standing else { return None };
        let held = std::mem::take(&mut check.held);
        unit.standing = Standing::Doubtful;
        Some(Next::Release(held, Err(kind)))
    }
}

impl Unit {
    fn doubt(&mut self) {
        match &mut self.standing {
            Standing::Same if self.known.is_empty() => {}
            Standing::Same => self.standing = Standing::Doubtful,
            // All of it is to be of one unit.
            Standing::Asking(check) => {
                check.fresh = Facts::default();
                check.asked.clear();
            }
            Standing::Doubtful | Standing::Other(_) => {}
        }
    }
}

impl SessionDriver {
    /// Whether the request at `place`, which is the next one, may go to its unit. If not, it is
    /// taken from those that are ready.
    pub(super) fn may_go<P: Port>(&mut self, place: usize, context: &mut Context<'_, P>) -> bool {
        let Some(job) = self.jobs.get_mut(place) else { return true };
        if job.question.is_some() {
            return true;
        }
        let (tag, lun) = (job.tag, job.request.lun);
        match self.identities.gate(lun, place) {
            Gate::Open => return true,
            Gate::Held => self.jobs.hold_first(),
            Gate::Ask(question) => {
                self.jobs.hold_first();
                self.ask(tag, lun, question, context);
            }
            Gate::Other(kind) => {
                self.jobs.hold_first();
                self.finish(place, Err(kind), (0, Generation::default()), context);
            }
        }
        false
    }

    /// Asks a unit, for the request `tag`, who it is.
    fn ask<P: Port>(
        &mut self,
        tag: u64,
        lun: u16,
        question: Question,
        context: &mut Context<'_, P>,
    ) {
        let (cdb, data) = (question.cdb(), Data::In(limits::IDENTITY_BYTES));
        let request = Request { lun, cdb, data, retry: Retry::Always };
        let room = self.identities.reserve.take();
        self.jobs.insert_question(Job::new(tag, request, room).asking(question), context);
    }

    /// A question of ours has ended.
    pub(super) fn replied<P: Port>(
        &mut self,
        job: Job,
        question: Question,
        result: Result<u32, Kind>,
        context: &mut Context<'_, P>,
    ) {
        let lun = job.request.lun;
        let room = job.room;
        let next = match result {
            Ok(received) => {
                let data = room.as_ref().and_then(|room| room.get(..received as usize));
                self.identities.answered(lun, question, Some(data.unwrap_or_default()))
            }
            Err(kind) if facts::is_unsupported(&kind) => {
                self.identities.answered(lun, question, None)
            }
            // What is not ready, or is reserved, carries out nothing that its blocks matter to.
            Err(Kind::Status { .. }) if question.is_size() && self.identities.has_name(lun) => {
                self.identities.answered(lun, question, None)
            }
            Err(kind) => {
                let kind = self.cause(kind);
                self.identities.failed(lun, kind)
            }
        };
        self.identities.reserve = room;
        match next {
            Some(Next::Ask(question)) => self.ask(job.tag, lun, question, context),
            Some(Next::Release(held, Ok(()))) => self.jobs.release(held),
            Some(Next::Release(held, Err(kind))) => {
                for place in held {
                    self.finish(place, Err(kind.clone()), (0, Generation::default()), context);
                }
            }
            None => {}
        }
    }

    /// What a unit said to a caller.
    pub(super) fn learn<P: Port>(
        &mut self,
        job: &Job,
        result: Result<u32, &Kind>,
        context: &Context<'_, P>,
    ) {
        let Some(question) = Question::of(&job.request.cdb) else { return };
        let data = match result {
            Ok(received) => job.room.as_ref().and_then(|room| room.get(..received as usize)),
            Err(kind) if facts::is_unsupported(kind) => None,
            Err(_) => return,
        };
        if self.identities.reserve.is_none() {
            self.identities.reserve = context.pool.take(limits::IDENTITY_BYTES as usize);
        }
        self.identities.learn(job.request.lun, question, data);
    }
}
