// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What goes wrong, done.

use std::time::Duration;

use clock::Instant;
use target::SteppedTarget;

use crate::net::LinkId;
use crate::net::Pipe;
use crate::options::Fault;
use crate::run::Run;
use crate::tap::Tap;
use crate::world::Due;
use crate::world::Plan;

/// Longest loss of power while something is kept, milliseconds.
const DARKNESS_MAX: u64 = 20_000;

pub(crate) fn millis(count: u32) -> Duration {
    Duration::from_millis(u64::from(count))
}

impl Run {
    /// Does `fault`; which connection or machine it meets is drawn now.
    pub(crate) fn inflict(&mut self, fault: Fault) {
        let world = std::rc::Rc::clone(&self.world);
        {
            let mut world = world.borrow_mut();
            let now = world.now;
            world.trace.step(now, &[5], || format!("fault: {fault:?}"));
        }
        let met = match fault {
            Fault::Cut => self.on_link(|world, link| world.cut(link)),
            Fault::Stall(length) => self.on_link(|world, id| {
                let until = world.now + millis(length);
                if let Some(link) = world.net.links.get_mut(&id) {
                    link.stalled_until = link.stalled_until.max(until);
                }
            }),
            Fault::HalfOpen => self.on_link(|world, id| {
                if let Some(link) = world.net.links.get_mut(&id) {
                    link.dead = true;
                }
            }),
            Fault::Flip => self.on_pipe(Tap::has_digests, |pipe| pipe.flips += 1),
            Fault::Lie => self.on_pipe(Tap::takes_lies, |pipe| pipe.lies += 1),
            Fault::Tear => self.on_pipe(Tap::is_rdma, |pipe| pipe.tears += 1),
            Fault::Kill(length) => self.stop_machine(false, length),
            Fault::PowerLoss(length) => self.stop_machine(true, length),
            Fault::Exchange(length) => self.exchange(length),
            Fault::HostCrash(length) => self.stop_host(length),
            Fault::SlowDisk(length) => {
                let mut world = world.borrow_mut();
                world.weather.disk_factor = self.options.slow;
                world.after(millis(length), Due::Plan(Plan::Recover));
                true
            }
            Fault::DiskError(count) => {
                let mut world = world.borrow_mut();
                let disk = self.rng.index(world.disks.len());
                world.disks[disk].errors = count;
                true
            }
            Fault::Writeback => {
                let mut world = world.borrow_mut();
                let disk = self.rng.index(world.disks.len());
                world.disks[disk].fail_writeback(&mut self.rng)
            }
            Fault::News(count) => {
                let mut world = world.borrow_mut();
                let links = world.net.links.values_mut().filter(|link| link.tap.is_plain());
                links.map(|link| link.news.wanted += count).count() > 0
            }
            Fault::Sleep(length) => {
                let mut world = world.borrow_mut();
                world.now = world.now + millis(length);
                true
            }
            Fault::SetClock(seconds) => {
                world.borrow_mut().wall += i64::from(seconds);
                true
            }
            Fault::Cluster(trouble) => self.trouble(trouble),
        };
        if met {
            world.borrow_mut().tally.fault(fault.name());
        }
    }

    /// Does something to a connection, if there is one.
    fn on_link(&mut self, what: impl FnOnce(&mut crate::world::World, LinkId)) -> bool {
        let mut world = self.world.borrow_mut();
        let ids: Vec<LinkId> = world.net.links.keys().copied().collect();
        let Some(id) = ids.get(self.rng.index(ids.len())).copied() else { return false };
        what(&mut world, id);
        true
    }

    /// Does something to a direction of a connection that is `fit`, if there is one.
    fn on_pipe(&mut self, fit: fn(&Tap) -> bool, what: impl FnOnce(&mut Pipe)) -> bool {
        let mut world = self.world.borrow_mut();
        let links = world.net.links.iter().filter(|(_, link)| fit(&link.tap));
        let ids: Vec<LinkId> = links.map(|(id, _)| *id).collect();
        let Some(id) = ids.get(self.rng.index(ids.len())) else { return false };
        let side = self.rng.index(2);
        if let Some(link) = world.net.links.get_mut(id) {
            what(&mut link.pipes[side]);
        }
        true
    }

    fn stop_machine(&mut self, dark: bool, length: u32) -> bool {
        let index = self.rng.index(self.machines.len());
        self.stop(index, dark, length)
    }

    /// A target comes back with another disk.
    fn exchange(&mut self, length: u32) -> bool {
        let index = self.rng.index(self.machines.len());
        if !self.stop(index, true, length) {
            return false;
        }
        let lun = self.rng.index(self.stage.units[index].len());
        self.put_another_disk(index, lun);
        true
    }

    pub(crate) fn put_another_disk(&mut self, index: usize, lun: usize) {
        let (unit, now) = (self.stage.units[index][lun], self.world.borrow().now);
        self.machines[index].exchange(lun);
        self.stage.models[unit].exchange(now);
        self.stage.exchanges[unit].push(now);
    }

    /// The power goes while a target keeps something.
    pub(crate) fn darken(&mut self, index: usize) {
        let length = u32::try_from(self.rng.within(1..=DARKNESS_MAX)).unwrap_or(1);
        if self.stop(index, true, length) {
            let world = std::rc::Rc::clone(&self.world);
            let mut world = world.borrow_mut();
            let now = world.now;
            world.trace.step(now, &[8], || format!("target {index} is dark for {length} ms"));
            world.tally.fault("power losses while something is kept");
        }
    }

    pub(crate) fn stop(&mut self, index: usize, dark: bool, length: u32) -> bool {
        let machine = &mut self.machines[index];
        let speaks = self.world.borrow().locals.is_under_way();
        if machine.target.is_none() || machine.plan.memory || speaks {
            return false;
        }
        let lost = machine.crash(dark);
        let mut world = self.world.borrow_mut();
        if lost.contains(&true) {
            self.stage.outages[index].push(world.now);
        }
        for (unit, lost) in self.stage.units[index].iter().zip(lost) {
            match lost {
                true if dark => self.stage.models[*unit].power_lost(world.now),
                true if machine.plan.rados.is_some() => {
                    self.stage.models[*unit].cache_lost(world.now);
                }
                true => self.stage.models[*unit].pages_lost(world.now),
                false => {}
            }
            // Who keeps reservations still knows of them.
            if machine.plan.keeping.is_none() {
                self.stage.claims[*unit].forget(world.now);
            }
        }
        world.after(millis(length), Due::Plan(Plan::Start(machine.desk)));
        true
    }

    fn stop_host(&mut self, length: u32) -> bool {
        let index = self.rng.index(self.hosts.len());
        let host = &mut self.hosts[index];
        if host.pump.is_none() {
            return false;
        }
        host.crash(&mut self.stage);
        let desk = host.desk;
        self.world.borrow_mut().after(millis(length), Due::Plan(Plan::Start(desk)));
        true
    }

    /// Writes of sessions that are over cannot come about any more: once the target's ends of their
    /// connections are closed and the disks have done what was submitted until then.
    pub(crate) fn settle_ghosts(&mut self) {
        let world = self.world.borrow();
        let now: Instant = world.now;
        let (machines, models) = (&self.machines, &mut self.stage.models);
        self.stage.ghosts.retain_mut(|ghost| {
            let closed =
                |id: &LinkId| world.net.links.get(id).is_none_or(|link| link.ends[1].closed);
            let disks = &machines[ghost.target].disks;
            let works = |target: &SteppedTarget<_>| target.holdings().any(|held| held.jobs > 0);
            let job = ghost.job && machines[ghost.target].target.as_ref().is_some_and(works);
            if ghost.mark.is_none() && !job && ghost.links.iter().all(closed) {
                ghost.mark =
                    Some(disks.iter().map(|disk| (*disk, world.disks[*disk].mark())).collect());
            }
            let past = |mark: &Vec<(usize, u64)>| {
                mark.iter().all(|(disk, mark)| world.disks[*disk].is_past(*mark))
            };
            let over = ghost.mark.as_ref().is_some_and(past);
            if over {
                models[ghost.unit].exorcise(ghost.lba, ghost.count, now);
            }
            !over
        });
    }
}
