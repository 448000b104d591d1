// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stores whose work is done elsewhere: a simulated disk behind them answers late, in any order,
//! only when nobody waits any more, or lets its answer drop.
//!
//! The store cannot reach the world, which is of one thread. What it begins lies on a counter until
//! the turn of the pump is over; the world takes it from there.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;

use store::Geometry;
use store::Io;
use store::IoResult;
use store::Op;
use store::Outcome;
use store::Store;
use store::Submitted;
use store::foreign;
use store::foreign::Completer;
use store::foreign::Errand;
use store::foreign::Foreign;

use crate::disk::Owner;
use crate::disk::What;
use crate::options::Remoteness;
use crate::rng::Rng;
use crate::world::Due;
use crate::world::World;

/// Who answers only when nobody waits any more waits so long at the most, seconds.
const SILENCE: (u64, u64) = (30, 600);

/// Where the stores of a target leave their work.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counter(Arc<Mutex<Orders>>);

#[derive(Debug, Default)]
struct Orders {
    begun: Vec<Order>,
    /// Numbers of those that nobody waits for any more.
    cancelled: Vec<u64>,
    last: u64,
}

/// Work that has begun.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) number: u64,
    pub(crate) disk: usize,
    pub(crate) op: Op,
    pub(crate) completer: Completer,
}

impl Counter {
    fn orders(&self) -> MutexGuard<'_, Orders> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the driver is to do for `op` of a disk: lay it on the counter.
    pub(crate) fn ask(&self, disk: usize, op: Op, step: u64) -> Submitted {
        let room = match op {
            Op::Read { length, .. } => length,
            _ => 0,
        };
        let number = {
            let mut orders = self.orders();
            orders.last += 1;
            orders.last
        };
        let work = Piece { counter: self.clone(), number, disk, op };
        Submitted::Io(Io::Foreign(Errand::reading(Arc::new(work), room).at_step(step)))
    }

    /// What has begun, for those who cannot be told that nobody waits any more.
    pub(crate) fn take(&self) -> Vec<Order> {
        let mut orders = self.orders();
        orders.cancelled.clear();
        std::mem::take(&mut orders.begun)
    }
}

/// One operation on its way to the counter.
#[derive(Debug)]
struct Piece {
    counter: Counter,
    number: u64,
    disk: usize,
    op: Op,
}

impl Foreign for Piece {
    fn begin(&self, completer: Completer) {
        let (number, disk, op) = (self.number, self.disk, self.op.clone());
        self.counter.orders().begun.push(Order { number, disk, op, completer });
    }

    fn cancel(&self) {
        self.counter.orders().cancelled.push(self.number);
    }
}

/// The store of a disk that is elsewhere.
#[derive(Debug)]
pub(crate) struct Elsewhere {
    counter: Counter,
    disk: usize,
    /// All but the size.
    geometry: Geometry,
    bytes: AtomicU64,
}

/// The steps of an operation: itself, and the flush that makes it last.
const ITSELF: u64 = 0;
const FLUSH: u64 = 1;

impl Elsewhere {
    pub(crate) fn new(counter: Counter, disk: usize, geometry: Geometry) -> Self {
        let bytes = AtomicU64::new(geometry.bytes);
        Self { counter, disk, geometry, bytes }
    }

    fn ask(&self, op: Op, step: u64) -> Submitted {
        self.counter.ask(self.disk, op, step)
    }
}

impl Store for Elsewhere {
    fn geometry(&self) -> Geometry {
        Geometry { bytes: self.bytes.load(Ordering::Acquire), ..self.geometry.clone() }
    }

    fn set_bytes(&self, bytes: u64) -> bool {
        self.bytes.store(bytes, Ordering::Release);
        true
    }

    fn submit(&self, op: &Op) -> Submitted {
        if let Err(error) = self.geometry().check(op) {
            return Submitted::Done(Outcome::Failed(error));
        }
        match (op, op.range().1) {
            (Op::Read { .. }, 0) => Submitted::Done(Outcome::Data(buf::Slice::empty())),
            (Op::Flush, _) | (_, 1..) => self.ask(op.clone(), ITSELF),
            (_, 0) => Submitted::Done(Outcome::Done),
        }
    }

    fn complete(&self, op: &Op, io: &Io, result: IoResult) -> Submitted {
        let first = matches!(io, Io::Foreign(errand) if errand.step() == ITSELF);
        let lasts = matches!(op, Op::Write { .. }) || !op.changes() || self.geometry.volatile_cache;
        match foreign::ended(result) {
            Submitted::Done(Outcome::Done) if first && !lasts => self.ask(Op::Flush, FLUSH),
            ended => ended,
        }
    }
}

/// What is behind the stores of one target.
#[derive(Debug)]
pub(crate) struct Remote {
    pub(crate) counter: Counter,
    pub(crate) plan: Remoteness,
    pub(crate) rng: Rng,
    /// Disk and work of those that answer when nobody waits for them any more.
    silent: Vec<(usize, u64)>,
}

impl Remote {
    pub(crate) const fn new(counter: Counter, plan: Remoteness, rng: Rng) -> Self {
        Self { counter, plan, rng, silent: Vec::new() }
    }
}

impl World {
    /// Takes what the stores of a target have begun in a turn of its pump.
    pub(crate) fn take_orders(&mut self, desk: usize) {
        let Some(remote) = self.remotes.get_mut(&desk) else { return };
        let counter = remote.counter.clone();
        let mut orders = counter.orders();
        if orders.begun.is_empty() && orders.cancelled.is_empty() {
            return;
        }
        let (begun, cancelled) =
            (std::mem::take(&mut orders.begun), std::mem::take(&mut orders.cancelled));
        drop(orders);
        begun.into_iter().for_each(|order| self.take_order(desk, order));
        cancelled.into_iter().for_each(|number| self.cancel(desk, number));
    }

    fn take_order(&mut self, desk: usize, order: Order) {
        let Order { number, disk, op, completer } = order;
        let Some(remote) = self.remotes.get_mut(&desk) else { return };
        let what = What::elsewhere(op, remote.plan.sync);
        self.resets.begin(disk, &self.disks);
        let id = self.disks[disk].submit(desk, Owner::Elsewhere { number, completer }, what);
        self.disks[disk].note_begin(id, self.now);
        let (low, high) = remote.plan.delay;
        let delay = remote.rng.micros(low..=high);
        let (silent, dropped) = (remote.plan.silent, remote.plan.dropped);
        let fate = remote.rng.below(1000);
        if fate < silent && !self.is_calm {
            remote.silent.push((disk, id));
            let seconds = remote.rng.within(SILENCE.0..=SILENCE.1);
            self.tally.mark("silence elsewhere");
            self.after(Duration::from_secs(seconds), Due::Disk(disk, id));
        } else if fate < silent + dropped && !self.is_calm {
            self.tally.mark("dropped elsewhere");
            self.after(delay, Due::Drop(disk, id));
        } else {
            self.tally.mark("done elsewhere");
            self.after(delay, Due::Disk(disk, id));
        }
    }

    /// Nobody waits for the result of work `number` any more. It may still be done.
    fn cancel(&mut self, desk: usize, number: u64) {
        let Some(remote) = self.remotes.get_mut(&desk) else { return };
        if remote.plan.deaf {
            return self.tally.mark("not cancelled elsewhere");
        }
        let is_it =
            |owner: &Owner| matches!(owner, Owner::Elsewhere { number: own, .. } if *own == number);
        let mut works = self
            .disks
            .iter()
            .enumerate()
            .flat_map(|(disk, all)| all.works.iter().map(move |(id, work)| (disk, *id, work)));
        let found = works.find(|(_, _, work)| work.desk == desk && is_it(&work.owner));
        let Some((disk, id, _)) = found else { return };
        self.tally.mark("cancelled elsewhere");
        let was_silent = remote.silent.contains(&(disk, id));
        remote.silent.retain(|one| *one != (disk, id));
        let (low, high) = remote.plan.delay;
        let delay = remote.rng.micros(low..=high);
        match remote.rng.chance(500) {
            true => self.after(delay, Due::Drop(disk, id)),
            false if was_silent => self.after(delay, Due::Disk(disk, id)),
            // It goes on as it would.
            false => {}
        }
    }

    /// The faults stop: all that was begun is done soon.
    pub(crate) fn end_silence(&mut self) {
        self.is_calm = true;
        let silent: Vec<(usize, u64)> =
            self.remotes.values_mut().flat_map(|remote| remote.silent.drain(..)).collect();
        for (disk, id) in silent {
            self.after(Duration::ZERO, Due::Disk(disk, id));
        }
    }

    /// Whoever had to answer for work lets it drop, with a part done or none.
    pub(crate) fn drop_work(&mut self, disk: usize, id: u64) {
        let Some(work) = self.disks[disk].abandon(id, &mut self.disk_rng) else { return };
        let parts = [9, disk as u64, id];
        self.trace.step(self.now, &parts, || format!("disk {disk}: work {id} is dropped"));
        let desk = work.desk;
        drop(work);
        self.rouse(desk);
    }
}
