// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A host: the initiator's pump, its sessions, and the load that it puts on them.

mod copying;
mod ending;
mod events;
mod knowing;
mod posting;
mod promises;

use std::collections::BTreeMap;
use std::time::Duration;

use clock::Instant;
use engine::Port;
use initiator::Config;
use initiator::Options;
use initiator::Paths;
use initiator::Pump;
use initiator::SessionId;
use initiator::Settings;
use iscsi::initiator::Policy;

use self::copying::Next;
use self::knowing::Acquaintance;
use self::promises::Promises;
use crate::claims::Action;
use crate::claims::Nexus;
use crate::copies::Step;
use crate::locals::local_portal;
use crate::model::Version;
use crate::options::Secrets;
use crate::options::SessionPlan;
use crate::port::SimConnector;
use crate::port::SimPort;
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
    known: Acquaintance,
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
            known: Acquaintance::default(),
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
        self.world.borrow_mut().locals.begin(self.desk, port.waker());
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
            self.slots[slot].known = Acquaintance::default();
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
            let options = options(&entry.plan, self.index, secrets, two);
            let opened = match entry.plan.paths {
                0 | 1 => pump.open(options),
                _ => pump.open_paths(paths(&entry.plan, options)),
            };
            match opened {
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
        if stage.exchanging && !self.knows_all(slot, stage) {
            return self.turn(stage);
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

    /// Requests under way that may have to wait for what is being kept.
    pub(crate) fn may_be_kept(&self) -> usize {
        let operations = self.slots.iter().flat_map(|slot| slot.operations.values());
        operations.filter(|one| one.may_be_kept()).count()
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

/// One path over each of these portals in turn, to the only unit of the target.
fn paths(plan: &SessionPlan, options: Options) -> Paths {
    let portals = options.portals.iter().cycle().take(plan.paths);
    let path = |portal: &String| Options { portals: vec![portal.clone()], ..options.clone() };
    Paths { paths: portals.map(|portal| (path(portal), 0)).collect(), policy: plan.path_policy }
}

/// The options of a session.
fn options(plan: &SessionPlan, host: usize, secrets: Secrets, two_groups: bool) -> Options {
    let mut portals = vec![world::portal(plan.target)];
    portals.extend(two_groups.then(|| world::second_portal(plan.target)));
    if plan.local {
        portals = vec![local_portal(plan.target)];
    }
    Options {
        portals,
        account: secrets::of_initiator(plan.target, secrets),
        initiator: format!("iqn.2026-01.local.lunwire.sim:host-{host}"),
        transport: plan.transport,
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
            unexpected_pdus_max: match plan.unexpected {
                0 => Settings::default().unexpected_pdus_max,
                few => few,
            },
            hello: plan.hello,
            ..Settings::default()
        },
        connect_patience: Duration::from_secs(plan.patience),
        reconnect_patience: Duration::from_secs(plan.patience),
        ..Options::new(world::portal(plan.target), Some(target_name(plan.target)))
    }
}
