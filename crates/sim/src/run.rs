// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One run: safety phase under faults, then everything must drain, be right and be gone.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use clock::Instant;
use initiator::Transport;
use target::Holdings;
use target::SteppedTarget;

use crate::claims::Claim;
use crate::host::Host;
use crate::machine::Machine;
use crate::model::Model;
use crate::net::Link;
use crate::net::LinkId;
use crate::options::Class;
use crate::options::Fault;
use crate::options::Options;
use crate::options::Trouble;
use crate::report::Outcome;
use crate::resizing::Sizes;
use crate::rng::Rng;
use crate::settings::Settings;
use crate::stage::Operation;
use crate::stage::Stage;
use crate::tokens::Tokens;
use crate::trace::START;
use crate::world::Due;
use crate::world::Plan;
use crate::world::Shared;
use crate::world::Weather;
use crate::world::World;

/// How often the runner looks whether a phase is over.
const LOOK: Duration = Duration::from_secs(1);

/// Requests, sessions and machines must be done so long after the faults stopped: the longest
/// patience of a session, and what it takes to find a half open connection.
const DRAIN_MAX: Duration = Duration::from_secs(1500);

/// Reading everything again takes no longer.
const VERIFY_MAX: Duration = Duration::from_secs(3000);

/// Sessions log out, and nothing is left of them, in this time.
const LEAVE_MAX: Duration = Duration::from_secs(300);

/// Turns of pumps at one moment: more is a loop without an end.
const TURNS_MAX: u32 = 100_000;

/// Where a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Safety,
    Drain,
    Verify,
    Leave,
    Over,
}

/// A run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) world: Shared,
    pub(crate) machines: Vec<Machine>,
    pub(crate) hosts: Vec<Host>,
    pub(crate) stage: Stage,
    pub(crate) options: Options,
    pub(crate) rng: Rng,
    pub(crate) impostor_rng: Rng,
    /// The port that impostors and hogs come from.
    pub(crate) impostor_desk: usize,
    /// Connections of hogs.
    pub(crate) hogs: Vec<LinkId>,
    /// Those that take what they asked for, with the beginning of the next PDU.
    pub(crate) takers: BTreeMap<LinkId, Vec<u8>>,
    phase: Phase,
    until: Instant,
    turns: u32,
}

/// Runs what `options` say; prints each step with `print`.
#[must_use]
pub fn run(options: &Options, print: bool) -> Outcome {
    let mut run = Run::new(options);
    run.world.borrow_mut().trace.print = print;
    run.start();
    while run.phase != Phase::Over && run.stage.failure.is_none() {
        run.step();
    }
    run.outcome()
}

impl Run {
    fn new(options: &Options) -> Self {
        let weather = Weather {
            latency: options.latency,
            piece: options.piece,
            window: options.windows(),
            disk: options.disk,
            disk_factor: 1,
        };
        let world = Rc::new(RefCell::new(World::new(options.seed, weather)));
        world.borrow_mut().disorder = options.disorder;
        let depths = options.targets.iter().enumerate();
        let depths = depths.filter_map(|(target, plan)| Some((target, plan.depths?)));
        world.borrow_mut().depths = depths.collect();
        let mut sessions = options.hosts.iter().flatten();
        let are_alone =
            sessions.all(|one| one.transport != Transport::Verbs || one.connections == 1);
        world.borrow_mut().adapters.plan = options.adapters;
        world.borrow_mut().frame_plan = options.frames;
        world.borrow_mut().adapters.are_alone = are_alone;
        world.borrow_mut().locals.is_used = options.hosts.iter().flatten().any(|one| one.local);
        world.borrow_mut().orders.is_judged = options.is_undisturbed();
        world.borrow_mut().resets.prompt = options.impatient;
        let copies = options.hosts.iter().flatten().any(|session| session.copies > 0);
        world.borrow_mut().resets.copies = copies;
        let seed = options.seed;
        let mut machines: Vec<Machine> = options
            .targets
            .iter()
            .map(|plan| Machine::new(&world, plan, options.blocks, seed))
            .collect();
        let hosts = (0..).zip(&options.hosts);
        let hosts = hosts.map(|(index, plans)| Host::new(&world, index, plans, seed)).collect();
        let impostor_desk = world.borrow_mut().add_desk("impostors".to_owned());
        machines.iter_mut().for_each(|machine| machine.add_reactors(seed));
        let mut models = Vec::new();
        let mut units = Vec::new();
        let mut claims = Vec::new();
        let mut sizes = Vec::new();
        let mut settings = Vec::new();
        let mut tokens = Vec::new();
        for target in &options.targets {
            units.push((models.len()..models.len() + usize::from(target.luns)).collect());
            for _ in 0..target.luns {
                let unit = models.len() as u64 + 1;
                sizes.push(Sizes::new(START, options.blocks));
                settings.push(Settings::new());
                tokens.push(Tokens::default());
                claims.push(Claim::new(target.reservation));
                models.push(Model::new(unit, options.blocks, target.block_len, START));
            }
        }
        // What takes too long three times ends its session.
        let overdue = options.hosts.iter().flatten().any(|session| session.command_timeout > 0);
        let exchanges = vec![Vec::new(); models.len()];
        let stage = Stage {
            claims,
            sizes,
            settings,
            tokens,
            keeps: options.targets.iter().map(|target| target.keeping.is_some()).collect(),
            next_nexus: 1,
            models,
            units,
            secrets: options.targets.iter().map(|target| target.secrets).collect(),
            two_groups: options.targets.iter().map(|target| target.two_groups).collect(),
            readable: options.targets.iter().map(|target| target.readable()).collect(),
            always_durable: options.targets.iter().map(|target| target.sync).collect(),
            exchanges,
            exchanging: options.faults.iter().any(|(_, fault)| {
                matches!(fault, Fault::Exchange(_) | Fault::Cluster(Trouble::Removed(_)))
            }),
            outages: vec![Vec::new(); options.targets.len()],
            ghosts: Vec::new(),
            next_version: 1,
            copies: BTreeMap::new(),
            loading: true,
            verifying: false,
            may_lose: overdue
                || options.faults.iter().any(|(_, fault)| {
                    !matches!(
                        fault,
                        Fault::DiskError(_)
                            | Fault::Writeback
                            | Fault::News(_)
                            | Fault::SetClock(_)
                    )
                }),
            may_fail: options.class != Class::Calm,
            disks: machines.iter().flat_map(|machine| machine.disks.clone()).collect(),
            judges_silence: options.is_silent_at_most(),
            hogs: !options.hogs.is_empty(),
            failure: None,
        };
        let until = START + options.length;
        let (rng, impostor_rng) = (Rng::stream(seed, 4), Rng::stream(seed, 15));
        let (options, phase, turns) = (options.clone(), Phase::Safety, 0);
        Self {
            world,
            machines,
            hosts,
            stage,
            options,
            rng,
            impostor_rng,
            impostor_desk,
            hogs: Vec::new(),
            takers: BTreeMap::new(),
            phase,
            until,
            turns,
        }
    }

    fn start(&mut self) {
        self.machines.iter_mut().for_each(Machine::start);
        self.hosts.iter_mut().for_each(Host::start);
        let mut world = self.world.borrow_mut();
        for (index, (at, _)) in self.options.faults.iter().enumerate() {
            world.at(START + *at, Due::Plan(Plan::Fault(index)));
        }
        for at in &self.options.impostors {
            world.at(START + *at, Due::Plan(Plan::Impostor));
        }
        for (index, (at, _)) in self.options.hogs.iter().enumerate() {
            world.at(START + *at, Due::Plan(Plan::Hog(index)));
        }
        for at in &self.options.hasty {
            world.at(START + *at, Due::Plan(Plan::Hasty));
        }
        for (index, (at, _)) in self.options.rogues.iter().enumerate() {
            world.at(START + *at, Due::Plan(Plan::Rogue(index)));
        }
        for resize in &self.options.resizes {
            world.at(START + resize.at, Due::Plan(Plan::Resize(*resize)));
        }
        for limit in &self.options.limits {
            world.at(START + limit.at, Due::Plan(Plan::Limit(*limit)));
        }
        world.after(LOOK, Due::Plan(Plan::Look));
    }

    /// Gives all pumps that have something to do their turns, then goes on in time.
    fn step(&mut self) {
        let ready = self.world.borrow_mut().ready.pop_first();
        if let Some(desk) = ready {
            self.turns += 1;
            if self.turns > TURNS_MAX {
                let name = self.world.borrow().desks[desk].name.clone();
                return self.stage.fail(format!("{name} turns without an end"));
            }
            let home = self.world.borrow().desks[desk].home;
            match self.machines.get_mut(home) {
                Some(machine) => machine.turn(desk),
                None => {
                    if let Some(host) = self.hosts.iter_mut().find(|host| host.desk == desk) {
                        host.turn(&mut self.stage);
                    }
                }
            }
            return self.judge();
        }
        let before = self.world.borrow().now;
        let stepped = self.world.borrow_mut().step();
        if self.world.borrow().now > before {
            self.turns = 0;
        }
        match stepped {
            Ok(true) => {}
            Ok(false) => self.stage.fail("nothing will ever happen again".to_owned()),
            Err(plan) => self.carry_out(plan),
        }
        self.judge();
    }

    /// Looks at what is to hold after every step.
    fn judge(&mut self) {
        let broken = {
            let mut world = self.world.borrow_mut();
            world.ring_locals();
            world.serve_adapters();
            let believed = if world.lies.is_empty() { None } else { world.believed() };
            believed.or_else(|| world.tally.broken.pop()).or_else(|| world.resets.broken.pop())
        };
        if let Some(broken) = broken {
            self.stage.fail(broken);
        }
        if self.is_shrinking() {
            self.cut_files();
        }
        if !self.stage.ghosts.is_empty() {
            self.settle_ghosts();
        }
    }

    fn carry_out(&mut self, plan: Plan) {
        match plan {
            Plan::Fault(index) if self.phase == Phase::Safety => {
                let fault = self.options.faults[index].1;
                self.inflict(fault);
            }
            Plan::Impostor if self.phase == Phase::Safety => self.send_impostor(),
            Plan::Unmask(link, discovery) => self.unmask(link, discovery),
            Plan::Hog(index) if self.phase == Phase::Safety => self.send_hog(index),
            Plan::HogAsks(link, index) => self.hog_asks(link, index),
            Plan::HogLeaves(link, index) => self.hog_leaves(link, index),
            Plan::HogTakes(link, index) => self.hog_takes(link, index),
            Plan::Hasty if self.phase == Phase::Safety => self.send_hasty(),
            Plan::HastyJoins(link) => self.hasty_joins(link),
            Plan::HastyPings(link) => self.hasty_pings(link),
            Plan::HastyLeaves(links) => self.hasty_leaves(links),
            Plan::Rogue(index) if self.phase == Phase::Safety => self.send_rogue(index),
            Plan::RogueIsLooked(link, index) => self.look_at_rogue(link, index),
            Plan::Limit(limit) if self.phase == Phase::Safety => self.limit(&limit),
            Plan::Resize(resize) if self.phase == Phase::Safety => self.resize(resize),
            Plan::Fault(_)
            | Plan::Impostor
            | Plan::Hog(_)
            | Plan::Hasty
            | Plan::Rogue(_)
            | Plan::Limit(_)
            | Plan::Resize(_) => {}
            Plan::Darkness(desk) if self.phase == Phase::Safety => self.darken(desk),
            Plan::Darkness(_) => {}
            Plan::Start(desk) => self.revive(desk),
            Plan::Restart(index, removed) => self.restart(index, removed),
            Plan::Hear(index, lun) => self.hear(index, lun),
            Plan::Recover => self.world.borrow_mut().weather.disk_factor = 1,
            Plan::Load(host, slot) => self.hosts[host].load(slot, &mut self.stage),
            Plan::Look => {
                self.look();
                self.world.borrow_mut().after(LOOK, Due::Plan(Plan::Look));
            }
        }
    }

    fn revive(&mut self, desk: usize) {
        if let Some(machine) = self.machines.get_mut(desk) {
            if machine.target.is_none() {
                machine.start();
            }
        } else if let Some(host) = self.hosts.iter_mut().find(|host| host.desk == desk)
            && host.pump.is_none()
        {
            host.start();
        }
    }

    /// Whether the phase is over, or takes too long.
    fn look(&mut self) {
        let now = self.world.borrow().now;
        self.look_at_what_is_kept();
        let idle = self.hosts.iter().all(Host::is_idle);
        let exhausted =
            idle && !self.is_somebody_slow() && self.hosts.iter().all(Host::is_exhausted);
        self.look_for_overdue(now);
        self.look_for_held_up();
        match self.phase {
            Phase::Safety if now >= self.until || exhausted => self.calm(),
            Phase::Drain if idle && self.is_up() && !self.is_shrinking() => {
                if self.stage.ghosts.is_empty() {
                    self.verify();
                } else {
                    self.hang_up();
                }
            }
            Phase::Verify if self.hosts.iter().all(|host| host.has_verified(&self.stage)) => {
                self.phase = Phase::Leave;
                self.until = now + LEAVE_MAX;
                self.stage.verifying = false;
                for host in &mut self.hosts {
                    host.log_out(&mut self.stage);
                }
            }
            Phase::Leave if self.leftovers().is_empty() => self.phase = Phase::Over,
            Phase::Drain | Phase::Verify | Phase::Leave if now >= self.until => self.overdue(),
            _ => {}
        }
    }

    fn look_at_what_is_kept(&mut self) {
        let broken = self.world.borrow().keepers.values().find_map(|one| one.cupboard.broken());
        if let Some(broken) = broken {
            self.stage.fail(broken);
        }
    }

    /// One that never ends would else be found only when all else is over.
    fn look_for_overdue(&mut self, now: Instant) {
        let Some(most) = self.stage.time_max() else { return };
        let late = |one: &&Operation| now.since(one.asked) > most;
        if let Some(request) = self.hosts.iter().filter_map(Host::oldest).find(late) {
            let text = format!("{request:?} has not ended");
            self.stage.fail(text);
        }
    }

    fn is_up(&self) -> bool {
        self.machines.iter().all(|machine| machine.target.is_some())
            && self.hosts.iter().all(|host| host.pump.is_some())
    }

    /// The faults stop.
    fn calm(&mut self) {
        self.phase = Phase::Drain;
        self.stage.loading = false;
        self.dismiss_hogs();
        // What is kept is kept one after the other.
        self.lift_limits();
        let kept: usize = self.hosts.iter().map(Host::may_be_kept).sum();
        let plans = self.options.targets.iter().filter_map(|target| target.keeping);
        let longest = Duration::from_micros(plans.map(|plan| plan.time.1).max().unwrap_or(0));
        let mut world = self.world.borrow_mut();
        let now = world.now;
        self.until = now + DRAIN_MAX + longest * u32::try_from(kept).unwrap_or(u32::MAX);
        world.trace.note(now, || "the faults stop".to_owned());
        world.weather.disk_factor = 1;
        world.end_silence();
        world.mend_clusters();
        world.disks.iter_mut().for_each(|disk| disk.errors = 0);
        world.keepers.values().for_each(|keeper| keeper.cupboard.mend());
        for link in world.net.links.values_mut() {
            link.stalled_until = now;
            link.news.wanted = 0;
            link.pipes.iter_mut().for_each(|pipe| (pipe.flips, pipe.lies) = (0, 0));
        }
    }

    /// Doubtful writes are over when their connections are: those that nobody ends are cut.
    fn hang_up(&mut self) {
        let mut world = self.world.borrow_mut();
        let links: Vec<u64> =
            self.stage.ghosts.iter().flat_map(|ghost| ghost.links.iter().copied()).collect();
        links.into_iter().for_each(|link| world.cut(link));
    }

    /// Everything is read once more.
    fn verify(&mut self) {
        self.phase = Phase::Verify;
        self.restore_all();
        let mut world = self.world.borrow_mut();
        world.hasten_keeping();
        self.until = world.now + VERIFY_MAX;
        drop(world);
        self.stage.verifying = true;
        if let Some(unit) = self.stage.models.iter().position(|model| !model.is_quiet()) {
            self.stage.fail(format!("unit {} has writes under way that nobody knows", unit + 1));
        }
        let mut targets: Vec<bool> = vec![false; self.machines.len()];
        for host in &mut self.hosts {
            for slot in &mut host.slots {
                let target = slot.plan.target;
                if !std::mem::replace(&mut targets[target], true) {
                    slot.verified = vec![0; self.stage.units[target].len()];
                }
            }
            host.plan_all();
        }
    }

    /// What is still there though everybody has left.
    fn leftovers(&self) -> String {
        let mut left = Vec::new();
        for machine in &self.machines {
            let holdings = machine.target.iter().flat_map(SteppedTarget::holdings).enumerate();
            for (reactor, held) in holdings.filter(|(_, held)| *held != Holdings::default()) {
                left.push(format!("target {}, reactor {reactor} holds {held:?}", machine.desk));
            }
        }
        for host in &self.hosts {
            let bytes = host.pump.as_ref().map_or(0, |pump| pump.pool().bytes_in_use());
            if !host.is_gone() || bytes > 0 {
                left.push(format!("host {} has sessions, or {bytes} bytes", host.index));
            }
        }
        let world = self.world.borrow();
        // An end that no port has taken belongs to an attempt that was given up.
        let open = |link: &&Link| link.ends.iter().any(|end| end.fd.is_some() && !end.closed);
        let links = world.net.links.values().filter(open).count();
        if links > 0 {
            left.push(format!("{links} connections are open"));
        }
        left.join("; ")
    }

    fn overdue(&mut self) {
        let mut text = format!("{:?} does not end", self.phase);
        for host in &self.hosts {
            for (number, slot) in host.slots.iter().enumerate() {
                let count = slot.operations.len();
                text.push_str(&format!("; host {}.{number}: {count} requests", host.index));
            }
        }
        let left = self.leftovers();
        self.stage.fail(format!("{text}; {left}"));
    }

    fn outcome(mut self) -> Outcome {
        let mut world = self.world.borrow_mut();
        let now = world.now;
        let mut tally = std::mem::take(&mut world.tally);
        tally.runs = 1;
        tally.time = now.since(START);
        let failure = self
            .stage
            .failure
            .take()
            .map(|text| format!("{:.6} s: {text}", crate::trace::seconds(now)));
        Outcome { digest: world.trace.digest(), tally, failure }
    }
}
