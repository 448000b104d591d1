// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands that a limit holds ([`crate::limits`]).
//!
//! A command that reads or changes what is on a medium is charged once, when it would begin to move
//! data or to use its store: it has its place in the task set by then, and holds nothing of the
//! unit while it waits. Those of one session and one unit go on in the order in which they came;
//! the first of them pays to the limit of its initiator, then to that of the unit. It may wait for
//! the latter with the former paid, one in each session and unit: so a disk that is slow holds up
//! no other one of its initiator, and nobody pays for what others wait for.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::Weak;

use clock::Instant;
use engine::Port;
use iscsi::datamover::TaskId;
use iscsi::service;
use scsi::Input;
use scsi::LogicalUnit;
use scsi::Step;
use wire::scsi::cdb::CdbView;
use wire::scsi::opcode::Opcode;

use super::Pump;
use super::Session;
use super::course::With;
use super::services::task_of;
use super::view::SessionView;
use super::view::never;
use crate::figures::HeldCommands;
use crate::limits::Limits;
use crate::limits::Meters;
use crate::limits::meter::Meter;
use crate::limits::meter::Standing;
use crate::table::Key;

/// Commands that go on in one turn of a reactor at most: others want theirs.
const RELEASES_MAX: usize = 256;

/// Sessions of a reactor that have held commands.
#[derive(Debug, Default)]
pub(super) struct HeldBoard {
    sessions: Vec<Key>,
    /// When some of them are looked at again.
    next: Option<Instant>,
    /// Of the limits, at the last look.
    generation: u64,
}

/// What limits a session, and what of it waits.
#[derive(Debug, Default)]
pub(super) struct Held {
    generation: u64,
    meters: Meters,
    flows: Vec<Flow>,
}

/// Commands of a session for one unit.
#[derive(Debug)]
struct Flow {
    /// It closes when it is removed: who waits for it has it.
    unit: Weak<LogicalUnit>,
    meter: Option<Arc<Meter>>,
    queue: VecDeque<(TaskId, u64)>,
    at_initiator: Standing,
    at_unit: Standing,
    /// The first one has paid to the limit of its initiator.
    has_paid: Option<Arc<Meter>>,
}

impl HeldBoard {
    pub(super) fn next(&self) -> Option<Instant> {
        self.next.filter(|_| !self.sessions.is_empty())
    }

    fn add(&mut self, session: Key, look: Instant) {
        if !self.sessions.contains(&session) {
            self.sessions.push(session);
        }
        self.next = Some(self.next.map_or(look, |next| next.min(look)));
    }
}

impl Flow {
    /// When its first command, which moves so many bytes, looks again; None: it goes on.
    fn ask(&mut self, initiator: Option<&Arc<Meter>>, now: Instant, bytes: u64) -> Option<Instant> {
        if self.has_paid.is_none()
            && let Some(meter) = initiator
        {
            if let Some(look) = self.at_initiator.ask(meter, now, bytes) {
                return Some(look);
            }
            self.has_paid = Some(Arc::clone(meter));
        }
        if let Some(meter) = &self.meter
            && let Some(look) = self.at_unit.ask(meter, now, bytes)
        {
            return Some(look);
        }
        self.has_paid = None;
        None
    }

    /// The first command is over before it has begun.
    fn give_up(&mut self, bytes: u64) {
        self.at_initiator.leave();
        self.at_unit.leave();
        if let Some(meter) = self.has_paid.take() {
            meter.refund(bytes);
        }
    }
}

impl Held {
    /// Sees which limits there are now.
    fn renew(&mut self, limits: &Limits, target: Option<&str>, initiator: &str) {
        let generation = limits.generation();
        if self.generation == generation {
            return;
        }
        self.generation = generation;
        self.meters = target.map(|target| limits.meters(target, initiator)).unwrap_or_default();
        // Their units may have other limits, or other numbers.
        self.flows.retain(|flow| !flow.queue.is_empty());
    }

    /// How many wait, by unit.
    pub(super) fn counts(&self) -> impl Iterator<Item = (Arc<LogicalUnit>, usize)> {
        let waiting = self.flows.iter().filter(|flow| !flow.queue.is_empty());
        waiting.filter_map(|flow| Some((flow.unit.upgrade()?, flow.queue.len())))
    }

    pub(super) fn count(&self) -> usize {
        self.flows.iter().map(|flow| flow.queue.len()).sum()
    }

    /// The command is over.
    pub(super) fn forget(&mut self, id: TaskId) {
        for flow in &mut self.flows {
            let Some(place) = flow.queue.iter().position(|(task, _)| *task == id) else { continue };
            if let Some((_, bytes)) = flow.queue.remove(place)
                && place == 0
            {
                flow.give_up(bytes);
            }
        }
    }

    /// All are.
    pub(super) fn forget_all(&mut self) {
        for flow in &mut self.flows {
            if let Some((_, bytes)) = flow.queue.front() {
                flow.give_up(*bytes);
            }
        }
        self.flows.clear();
    }
}

impl Session {
    /// Sees which limits there are now, of each unit by the number that it has.
    fn renew_limits(&mut self, limits: &Limits) {
        let Self { held, login, nexus, .. } = self;
        if held.generation == limits.generation() {
            return;
        }
        held.renew(limits, login.target.as_deref(), &login.initiator);
        for flow in &mut held.flows {
            let unit = flow.unit.upgrade();
            let number = unit.and_then(|unit| nexus.as_ref()?.number_of(&unit));
            flow.meter = held.meters.of(number);
        }
    }

    /// The flow of a unit; None: nothing limits it.
    fn flow_of(&mut self, unit: &Arc<LogicalUnit>) -> Option<(Option<Arc<Meter>>, &mut Flow)> {
        let Self { held: Held { meters, flows, .. }, nexus, .. } = self;
        let place = flows.iter().position(|flow| flow.unit.as_ptr() == Arc::as_ptr(unit));
        let place = place.unwrap_or_else(|| {
            let number = nexus.as_ref().and_then(|nexus| nexus.number_of(unit));
            flows.retain(|flow| flow.unit.strong_count() > 0 || !flow.queue.is_empty());
            flows.push(Flow {
                unit: Arc::downgrade(unit),
                meter: meters.of(number),
                queue: VecDeque::new(),
                at_initiator: Standing::default(),
                at_unit: Standing::default(),
                has_paid: None,
            });
            flows.len() - 1
        });
        let flow = flows.get_mut(place)?;
        let initiator = meters.initiator.clone();
        (initiator.is_some() || flow.meter.is_some()).then_some((initiator, flow))
    }
}

impl<P: Port> SessionView<'_, P> {
    /// A command that has not paid is to take this step: it does, unless it waits.
    #[cold]
    pub(super) fn pay(&mut self, id: TaskId, step: Step) -> Option<Step> {
        let moved = match &step {
            Step::Store(op) if op.reads() => op.range().1,
            Step::Store(_) | Step::Device(_) => 0,
            Step::ReceiveDataOut { length } => u64::from(*length),
            _ => return Some(step),
        };
        let session = &mut *self.session;
        let task = task_of(&mut session.tasks, id);
        let Some((unit, charge)) =
            task.and_then(|task| Some((task.scsi.unit().cloned()?, task.charge.take()?)))
        else {
            return Some(step);
        };
        session.renew_limits(&self.context.shared.limits);
        let bytes = charge.max(moved);
        let Some((initiator, flow)) = session.flow_of(&unit) else { return Some(step) };
        let now = self.context.port.now();
        if flow.queue.is_empty() {
            let Some(look) = flow.ask(initiator.as_ref(), now, bytes) else { return Some(step) };
            self.context.held.add(self.key, look);
        }
        flow.queue.push_back((id, bytes));
        match task_of(&mut session.tasks, id) {
            Some(task) => task.scsi.hold_back(step),
            None => never("it has just been looked at"),
        }
        self.spends(id, With::Limits);
        None
    }

    /// A held command that may go on now; else when the session is to be looked at again.
    fn next_released(&mut self, now: Instant) -> Result<TaskId, Option<Instant>> {
        let session = &mut *self.session;
        session.renew_limits(&self.context.shared.limits);
        let Held { meters, flows, .. } = &mut session.held;
        let mut next: Option<Instant> = None;
        for flow in flows.iter_mut() {
            let Some((id, bytes)) = flow.queue.front().copied() else { continue };
            match flow.ask(meters.initiator.as_ref(), now, bytes) {
                None => {
                    flow.queue.pop_front();
                    return Ok(id);
                }
                Some(look) => next = Some(next.map_or(look, |next| next.min(look))),
            }
        }
        Err(next)
    }
}

impl<P: Port> Pump<P> {
    /// Lets held commands go on as far as the limits let them.
    pub(super) fn release_held(&mut self) {
        let board = &mut self.context.held;
        if board.sessions.is_empty() {
            return;
        }
        let now = self.context.port.now();
        let generation = self.context.shared.limits.generation();
        let is_due = board.next.is_none_or(|next| next <= now);
        if !is_due && board.generation == generation {
            return;
        }
        (board.generation, board.next) = (generation, None);
        let mut budget = RELEASES_MAX;
        let mut at = 0;
        let (mut any, mut next) = (false, None::<Instant>);
        // In turn, one of each: they stay listed meanwhile.
        loop {
            let Some(key) = self.context.held.sessions.get(at).copied() else {
                if !any {
                    break;
                }
                (at, any, next) = (0, false, None);
                continue;
            };
            let released = self.session(key).map_or(Err(None), |mut view| view.next_released(now));
            match released {
                Ok(_) | Err(Some(_)) => at += 1,
                // There is nothing of it any more.
                Err(None) => drop(self.context.held.sessions.remove(at)),
            }
            match released {
                Ok(id) => {
                    any = true;
                    self.resume(key, id, Input::Turn);
                    budget -= 1;
                    if budget == 0 {
                        next = Some(now);
                        break;
                    }
                }
                Err(look) => next = next.into_iter().chain(look).min(),
            }
        }
        self.context.held.next = self.context.held.next.into_iter().chain(next).min();
    }

    /// What is held, for whom.
    pub(super) fn held_commands(&self) -> Vec<HeldCommands> {
        let sessions = self.sessions.iter().filter(|(_, session)| !session.closed);
        let all = sessions.flat_map(|(_, session)| {
            session.held.counts().map(|(unit, commands)| HeldCommands {
                target: session.login.target.clone(),
                initiator: session.login.initiator.clone(),
                disk: unit.identity().serial.clone(),
                commands,
            })
        });
        all.collect()
    }
}

/// What a command has to pay that is for what is on a medium: bytes. None: it only asks, or is one
/// by which hosts agree on who may do what; these are never held.
#[cold]
pub(super) fn charge(command: &service::Command) -> Option<u64> {
    let is_counted = matches!(
        CdbView::new(&command.cdb).opcode(),
        Opcode::READ_6
            | Opcode::READ_10
            | Opcode::READ_12
            | Opcode::READ_16
            | Opcode::WRITE_6
            | Opcode::WRITE_10
            | Opcode::WRITE_12
            | Opcode::WRITE_16
            | Opcode::VARIABLE_LENGTH
            | Opcode::READ_CD
            | Opcode::WRITE_AND_VERIFY_10
            | Opcode::WRITE_AND_VERIFY_12
            | Opcode::WRITE_AND_VERIFY_16
            | Opcode::WRITE_ATOMIC_16
            | Opcode::ORWRITE_16
            | Opcode::COMPARE_AND_WRITE
            | Opcode::VERIFY_10
            | Opcode::VERIFY_12
            | Opcode::VERIFY_16
            | Opcode::PRE_FETCH_10
            | Opcode::PRE_FETCH_16
            | Opcode::SYNCHRONIZE_CACHE_10
            | Opcode::SYNCHRONIZE_CACHE_16
            | Opcode::WRITE_SAME_10
            | Opcode::WRITE_SAME_16
            | Opcode::UNMAP
            | Opcode::THIRD_PARTY_COPY_OUT
    );
    is_counted.then(|| u64::from(command.expected_in.max(command.expected_out)))
}
