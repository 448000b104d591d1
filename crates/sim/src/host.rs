// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A host: the initiator's pump, its sessions, and the load that it puts on them.

mod copying;
mod ending;
mod promises;

use std::collections::BTreeMap;
use std::time::Duration;

use clock::Instant;
use initiator::Config;
use initiator::Error;
use initiator::Event;
use initiator::Kind;
use initiator::Management;
use initiator::Options;
use initiator::Pump;
use initiator::Request;
use initiator::Retry;
use initiator::SessionId;
use initiator::Settings;
use iscsi::initiator::Policy;

use self::copying::Next;
use self::ending::kind_name;
use self::promises::Promises;
use crate::claims::Action;
use crate::claims::Nexus;
use crate::claims::Sweep;
use crate::copies::Step;
use crate::model::Version;
use crate::options::RESTS;
use crate::options::Secrets;
use crate::options::SessionPlan;
use crate::port::SimConnector;
use crate::port::SimPort;
use crate::request::Form;
use crate::request::What;
use crate::rng::Rng;
use crate::secrets;
use crate::stage::Operation;
use crate::stage::Stage;
use crate::trace::START;
use crate::world;
use crate::world::Due;
use crate::world::Plan;
use crate::world::Shared;

/// Data buffers of a host, bytes.
const POOL: usize = 32 << 20;

/// So many of a thousand requests of a guard are about its reservation.
const GUARDS: u64 = 80;

/// Name of target `number`.
pub(crate) fn target_name(number: usize) -> String {
    format!("iqn.2026-01.local.lunwire.sim:target-{number}")
}

/// One session of a host, over all its lives.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) plan: SessionPlan,
    id: Option<SessionId>,
    nexus: Nexus,
    up: bool,
    left: u32,
    pub(crate) operations: BTreeMap<u64, Operation>,
    /// Of each unit of the target.
    promises: BTreeMap<usize, Promises>,
    /// The next block to verify, of each unit of the target.
    pub(crate) verified: Vec<usize>,
    planned: bool,
    /// It posts nothing before.
    rests_until: Instant,
    /// POPULATE TOKENs that are still to fill a table.
    flood: u32,
    /// What is next of its copies by token, and when.
    steps: Vec<(Instant, Version, Next)>,
}

/// A host.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) index: usize,
    pub(crate) desk: usize,
    pub(crate) pump: Option<Pump<SimPort>>,
    pub(crate) slots: Vec<Slot>,
    rng: Rng,
    world: Shared,
    tag: u64,
}

impl Host {
    pub(crate) fn new(world: &Shared, index: usize, plans: &[SessionPlan], seed: u64) -> Self {
        let desk = world.borrow_mut().add_desk(format!("host {index}"));
        let slots = plans.iter().map(|plan| Slot {
            plan: plan.clone(),
            id: None,
            nexus: 0,
            up: false,
            left: plan.operations,
            operations: BTreeMap::new(),
            promises: BTreeMap::new(),
            verified: Vec::new(),
            planned: false,
            rests_until: START,
            flood: 0,
            steps: Vec::new(),
        });
        Self {
            index,
            desk,
            pump: None,
            slots: slots.collect(),
            rng: Rng::stream(seed, 100 + index as u64),
            world: Shared::clone(world),
            tag: 0,
        }
    }

    /// Boots, and opens its sessions.
    pub(crate) fn start(&mut self) {
        let rng = Rng::new(self.rng.next());
        let port = SimPort::new(&self.world, self.desk, rng, Vec::new());
        let connector = SimConnector { world: Shared::clone(&self.world), desk: self.desk };
        let config = Config { pool_bytes_max: POOL, ..Config::default() };
        let pump = Pump::new(port, Box::new(connector), &config);
        self.pump = Some(pump.expect("address space is left for a pool"));
        self.world.borrow_mut().desks[self.desk].state = world::State::Up;
        for slot in 0..self.slots.len() {
            self.plan(slot, Duration::ZERO);
        }
    }

    /// Loses its power. Nobody will ever know how its requests ended.
    pub(crate) fn crash(&mut self, stage: &mut Stage) {
        self.pump = None;
        self.world.borrow_mut().crash(self.desk, true);
        for slot in 0..self.slots.len() {
            for (_, operation) in std::mem::take(&mut self.slots[slot].operations) {
                match operation.what {
                    What::Write { .. } => self.haunt(slot, &operation, stage),
                    What::Copy(version, Step::Progress) => self.abandon(slot, version, stage),
                    What::Guard(Action::Join) | What::Read | What::Flush | What::Copy(..) => {}
                    What::Guard(_) => stage.claims[operation.unit].abandon(),
                    What::Setting(_) => stage.settings[operation.unit].abandon(),
                }
            }
            self.drop_steps(slot, stage);
            (self.slots[slot].id, self.slots[slot].up) = (None, false);
            self.slots[slot].planned = false;
        }
    }

    /// Looks again at a slot after `delay`.
    fn plan(&mut self, slot: usize, delay: Duration) {
        if !std::mem::replace(&mut self.slots[slot].planned, true) {
            let plan = Plan::Load(self.index, slot);
            self.world.borrow_mut().after(delay, Due::Plan(plan));
        }
    }

    /// Plans all slots that may have something to do.
    pub(crate) fn plan_all(&mut self) {
        for slot in 0..self.slots.len() {
            self.plan(slot, Duration::from_micros(1));
        }
    }

    /// A planned look: opens the session or posts requests.
    pub(crate) fn load(&mut self, slot: usize, stage: &mut Stage) {
        self.slots[slot].planned = false;
        let Some(pump) = &mut self.pump else { return };
        let entry = &mut self.slots[slot];
        if !stage.loading {
            entry.steps.retain(|(_, _, next)| *next == Next::Step(Step::Progress));
        }
        let wanted = (stage.loading && entry.left > 0)
            || stage.verifying && !entry.verified.is_empty()
            || !entry.steps.is_empty();
        if !wanted {
            return;
        }
        if entry.id.is_none() {
            let secrets = stage.secrets[entry.plan.target];
            let two = stage.two_groups[entry.plan.target];
            match pump.open(options(&entry.plan, self.index, secrets, two)) {
                Ok(id) => {
                    (entry.id, entry.nexus) = (Some(id), stage.next_nexus);
                    entry.promises.clear();
                    stage.next_nexus += 1;
                }
                Err(error) => stage.fail(format!("cannot open a session: {error}")),
            }
            self.turn(stage);
            return;
        }
        if self.go_on_copying(slot, stage) {
            return self.turn(stage);
        }
        let entry = &self.slots[slot];
        if !stage.verifying && (entry.left == 0 || !stage.loading) {
            return;
        }
        if !stage.verifying && entry.rests_until > self.world.borrow().now {
            return;
        }
        let posted =
            if stage.verifying { self.verify(slot, stage) } else { self.post(slot, stage) };
        self.turn(stage);
        let entry = &self.slots[slot];
        if posted && entry.operations.len() < entry.plan.depth {
            let pause = self.rng.micros(0..=entry.plan.pause);
            self.plan(slot, pause);
        }
    }

    /// Posts one request of the load. False if there was no place for it.
    fn post(&mut self, slot: usize, stage: &mut Stage) -> bool {
        let entry = &self.slots[slot];
        if entry.operations.len() >= entry.plan.depth {
            return false;
        }
        let units = &stage.units[entry.plan.target];
        let lun = self.rng.index(units.len());
        let unit = units[lun];
        let model = &stage.models[unit];
        let count = 1 + self.rng.index(entry.plan.blocks_max.min(model.len()));
        let lba = self.rng.index(model.len() - count + 1);
        let durable = self.rng.chance(150);
        let mut what = match self.rng.below(100) {
            0..45 => What::Read,
            45..92 => What::Write { version: stage.next_version, durable, form: Form::Write },
            _ => What::Flush,
        };
        if entry.plan.copies > 0 && self.rng.chance(entry.plan.copies) {
            return self.begin_copy(slot, stage);
        }
        if entry.plan.floods > 0 && self.rng.chance(entry.plan.floods) {
            return self.begin_flood(slot, stage);
        }
        let mut count = count;
        if entry.plan.rare > 0 && self.rng.chance(entry.plan.rare) {
            count = what.vary(model, lba, count, &mut self.rng);
        }
        if entry.plan.guard
            && self.rng.chance(GUARDS)
            && let Some(action) = stage.claims[unit].next(entry.nexus)
        {
            what = What::Guard(action);
        }
        if entry.plan.registers && self.rng.chance(GUARDS) {
            what = What::Guard(Action::Join);
        }
        if entry.plan.modes > 0
            && self.rng.chance(entry.plan.modes)
            && let Some(setting) = stage.settings[unit].next(self.rng.chance(400))
        {
            what = What::Setting(setting);
        }
        if matches!(what, What::Write { .. }) && !model.is_free(lba, count) {
            return true;
        }
        self.slots[slot].left = self.slots[slot].left.saturating_sub(1);
        self.maybe_rest(slot);
        let operation = self.operation(what, unit, lba, count);
        self.submit(slot, lun, operation, stage);
        self.maybe_manage(slot, lun);
        true
    }

    fn operation(&self, what: What, unit: usize, lba: usize, count: usize) -> Operation {
        Operation { what, unit, lba, count, asked: self.world.borrow().now, mark: None }
    }

    /// Aborts or resets what is under way on the unit, now and then.
    fn maybe_manage(&mut self, slot: usize, lun: usize) {
        let entry = &self.slots[slot];
        if entry.plan.manages == 0 || !self.rng.chance(entry.plan.manages) {
            return;
        }
        let lun = u16::try_from(lun).unwrap_or(0);
        let management = match self.rng.below(3) {
            0 => Management::AbortTaskSet(lun),
            1 => Management::ClearTaskSet(lun),
            _ => Management::LogicalUnitReset(lun),
        };
        self.tag += 1;
        let (Some(pump), Some(id)) = (&mut self.pump, entry.id) else { return };
        // A session that is lost, or has asked for enough, takes none.
        let taken = pump.post_management(id, self.tag, management).is_ok();
        let mut world = self.world.borrow_mut();
        world.tally.mark(if taken { "management asked" } else { "management not taken" });
    }

    /// Goes to rest after each part of the load.
    fn maybe_rest(&mut self, slot: usize) {
        let entry = &mut self.slots[slot];
        let SessionPlan { rest, operations, .. } = entry.plan;
        if rest == 0 || entry.left == 0 || !entry.left.is_multiple_of(operations / (RESTS + 1)) {
            return;
        }
        let mut world = self.world.borrow_mut();
        let until = world.now + Duration::from_secs(1 + self.rng.below(rest));
        entry.rests_until = until;
        world.at(until, Due::Plan(Plan::Load(self.index, slot)));
        world.tally.mark("rest");
    }

    /// Posts the next request that reads a unit as a whole. A guard lets everybody read before.
    fn verify(&mut self, slot: usize, stage: &mut Stage) -> bool {
        let entry = &mut self.slots[slot];
        let units = &stage.units[entry.plan.target];
        for (lun, unit) in units.iter().copied().enumerate().filter(|_| entry.plan.guard) {
            match stage.claims[unit].sweep(entry.nexus) {
                Sweep::Clean => {}
                Sweep::Wait => return false,
                Sweep::Do(action) => {
                    let operation = self.operation(What::Guard(action), unit, 0, 0);
                    self.submit(slot, lun, operation, stage);
                    return true;
                }
            }
        }
        let open = (0..)
            .zip(&entry.verified)
            .find(|(lun, at)| units.get(*lun).is_some_and(|unit| **at < stage.models[*unit].len()));
        let Some((lun, lba)) = open.map(|(lun, at)| (lun, *at)) else { return false };
        let unit = units[lun];
        let count = entry.plan.blocks_max.min(stage.models[unit].len() - lba);
        entry.verified[lun] += count;
        let operation = self.operation(What::Read, unit, lba, count);
        self.submit(slot, lun, operation, stage);
        true
    }

    fn submit(&mut self, slot: usize, lun: usize, mut operation: Operation, stage: &mut Stage) {
        let Operation { what, unit, lba, count, asked, .. } = operation;
        let model = &mut stage.models[unit];
        if let What::Write { version, .. } = what {
            stage.next_version += 1;
            model.begin(lba, count, version, asked);
            stage.tokens[unit].touch(lba, count, asked);
        }
        if what == What::Flush {
            let promises = self.slots[slot].promises.entry(unit).or_default();
            operation.mark = Some(promises.mark());
        }
        let copy = match what {
            What::Write { version, .. } | What::Copy(version, _) => stage.copies.get(&version),
            _ => None,
        };
        let entry = &mut self.slots[slot];
        let reservation = (stage.claims[unit].kind(), stage.keeps[entry.plan.target]);
        let (cdb, data) = what.command(model, lba, count, reservation, copy);
        if let What::Setting(setting) = what {
            stage.settings[unit].ask(setting);
        }
        if let What::Guard(action) = what {
            stage.claims[unit].ask(entry.nexus, action, asked);
        }
        let retry = match what {
            _ if !what.repeats() => Retry::IfNotDone,
            What::Write { .. } if !entry.plan.repeat => Retry::IfNotDone,
            _ => Retry::Always,
        };
        let lun = u16::try_from(lun).unwrap_or(0);
        self.tag += 1;
        let request = Request { lun, cdb, data, retry };
        let (Some(pump), Some(id)) = (&mut self.pump, entry.id) else { return };
        match pump.post(id, self.tag, request) {
            Ok(()) => {
                entry.operations.insert(self.tag, operation);
            }
            Err((error, _)) => {
                match what {
                    What::Write { version, .. } => model.retract(lba, count, version),
                    What::Guard(action) => {
                        stage.claims[unit].end(entry.nexus, action, false, asked);
                    }
                    What::Setting(setting) => stage.settings[unit].failed(setting, true),
                    What::Copy(version, Step::Progress) => self.abandon(slot, version, stage),
                    What::Read | What::Flush | What::Copy(..) => {}
                }
                self.world.borrow_mut().tally.end(&format!("not taken: {}", kind_name(&error)));
            }
        }
    }

    /// Lets the pump run, and takes what it tells.
    pub(crate) fn turn(&mut self, stage: &mut Stage) {
        let Some(pump) = &mut self.pump else { return };
        pump.turn(None);
        // What the turn found may have changed what it waits for.
        pump.turn(None);
        while let Some(event) = self.pump.as_mut().and_then(Pump::next_event) {
            self.event(event, stage);
        }
    }

    fn slot_of(&self, session: SessionId) -> Option<usize> {
        self.slots.iter().position(|slot| slot.id == Some(session))
    }

    fn event(&mut self, event: Event, stage: &mut Stage) {
        match event {
            Event::Done { session, tag, result } => {
                let Some(slot) = self.slot_of(session) else { return };
                let Some(operation) = self.slots[slot].operations.remove(&tag) else {
                    return stage.fail(format!("request {tag} of host {} ended twice", self.index));
                };
                self.ended(slot, &operation, result, stage);
                self.plan(slot, Duration::from_micros(1));
            }
            Event::Up { session, .. } => {
                let Some(slot) = self.slot_of(session) else { return };
                self.slots[slot].up = true;
                let (host, now) = (self.index, self.world.borrow().now);
                self.world.borrow_mut().tally.mark("session up");
                // The session is a new one in the place of the old one: nothing of that can come.
                let Stage { ghosts, models, .. } = stage;
                ghosts.retain(|ghost| {
                    let laid = ghost.host == host
                        && ghost.slot == slot
                        && !ghost.links.is_empty()
                        && !ghost.job;
                    if laid {
                        models[ghost.unit].exorcise(ghost.lba, ghost.count, now);
                    }
                    !laid
                });
                self.plan(slot, Duration::from_micros(1));
            }
            Event::Down { session, error } => {
                let Some(slot) = self.slot_of(session) else { return };
                self.slots[slot].up = false;
                let mut world = self.world.borrow_mut();
                world.tally.end(&format!("down: {}", kind_name(&error)));
                let now = world.now;
                world.trace.note(now, || format!("host {}: {error}", self.index));
                drop(world);
                if !stage.may_lose {
                    stage.fail(format!("a session was lost without a fault: {error}"));
                }
            }
            Event::Managed { result, .. } => {
                let how = result.as_ref().map_or_else(kind_name, |()| "good".to_owned());
                self.world.borrow_mut().tally.end(&format!("management {how}"));
                if let Err(error) = result
                    && matches!(error.kind(), Kind::Management(_))
                {
                    stage.fail(format!("a task management function fails: {error}"));
                }
            }
            Event::Ended { session, error } => self.closed(session, error, stage),
            _ => {}
        }
    }

    fn closed(&mut self, session: SessionId, error: Option<Error>, stage: &mut Stage) {
        let Some(slot) = self.slot_of(session) else { return };
        if let Some(pump) = &mut self.pump {
            pump.forget(session);
        }
        self.drop_steps(slot, stage);
        (self.slots[slot].id, self.slots[slot].up) = (None, false);
        for ghost in &mut stage.ghosts {
            // The next session has another name and takes no place.
            if ghost.host == self.index && ghost.slot == slot {
                ghost.slot = usize::MAX;
            }
        }
        if let Some(error) = error {
            self.world.borrow_mut().tally.end(&format!("given up: {}", kind_name(&error)));
            if !stage.may_lose {
                stage.fail(format!("a session ended without a fault: {error}"));
            }
        }
        let pause = self.rng.micros(1000..=5_000_000);
        self.plan(slot, pause);
    }

    /// Asks all sessions to log out.
    pub(crate) fn log_out(&mut self, stage: &mut Stage) {
        let Some(pump) = &mut self.pump else { return };
        for slot in &mut self.slots {
            slot.left = 0;
            slot.verified.clear();
            if let Some(id) = slot.id {
                pump.close(id);
            }
        }
        self.turn(stage);
    }

    /// The oldest request under way that waits for nothing that is being kept.
    pub(crate) fn oldest(&self) -> Option<&Operation> {
        let operations = self.slots.iter().flat_map(|slot| slot.operations.values());
        let operations = operations.filter(|one| !one.may_be_kept());
        operations.min_by_key(|operation| operation.asked)
    }

    /// Whether all its load is done.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.slots.iter().all(|slot| slot.left == 0)
    }

    /// Whether no request is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.slots.iter().all(|slot| slot.operations.is_empty() && slot.steps.is_empty())
    }

    /// Whether all that `verify` wanted was read.
    pub(crate) fn has_verified(&self, stage: &Stage) -> bool {
        self.slots.iter().all(|slot| {
            let units = &stage.units[slot.plan.target];
            let whole = |(at, unit): (&usize, &usize)| *at >= stage.models[*unit].len();
            slot.operations.is_empty() && slot.verified.iter().zip(units).all(whole)
        })
    }

    /// Whether no session is left.
    pub(crate) fn is_gone(&self) -> bool {
        self.slots.iter().all(|slot| slot.id.is_none())
    }
}

/// The options of a session.
fn options(plan: &SessionPlan, host: usize, secrets: Secrets, two_groups: bool) -> Options {
    let mut portals = vec![world::portal(plan.target)];
    portals.extend(two_groups.then(|| world::second_portal(plan.target)));
    Options {
        portals,
        account: secrets::of_initiator(plan.target, secrets),
        initiator: format!("iqn.2026-01.local.lunwire.sim:host-{host}"),
        settings: Settings {
            max_recv_data_segment_length: plan.segment,
            max_burst_length: plan.burst,
            first_burst_length: plan.first_burst,
            initial_r2t: plan.initial_r2t,
            immediate_data: plan.immediate,
            max_outstanding_r2t: plan.r2t,
            data_pdu_in_order: plan.in_order[0],
            data_sequence_in_order: plan.in_order[1],
            header_digest: plan.digests[0],
            data_digest: plan.digests[1],
            command_timeout: Duration::from_secs(plan.command_timeout),
            error_recovery_level: plan.recovery,
            connections: plan.connections,
            policy: if plan.least { Policy::LeastOutstanding } else { Policy::RoundRobin },
            markers: plan.markers,
            ..Settings::default()
        },
        connect_patience: Duration::from_secs(plan.patience),
        reconnect_patience: Duration::from_secs(plan.patience),
        ..Options::new(world::portal(plan.target), Some(target_name(plan.target)))
    }
}
