// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A store whose work is done elsewhere: what a test does with its answers is its own affair. They
//! come at once, late, in any order, or not at all.

use std::ops::Range;
use std::sync::Arc;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::time::Duration;

use scsi::Identity;
use scsi::LogicalUnit;
use store::Geometry;
use store::Io;
use store::IoResult;
use store::Op;
use store::Outcome;
use store::Run;
use store::Space;
use store::Store;
use store::Submitted;
use store::foreign;
use store::foreign::Completer;
use store::foreign::Errand;
use store::foreign::Foreign;
use target::Plan;

use crate::server::BLOCK;
use crate::server::Server;
use crate::server::TARGET;
use crate::server::on_each_plan;
use crate::tasks::PATIENCE;

/// The number of the unit whose store is elsewhere.
pub const LUN: u8 = 9;

const MIB: usize = 1 << 20;

/// Where the work is done, by whoever takes it.
#[derive(Debug, Default)]
pub struct Elsewhere {
    state: Mutex<State>,
    changed: Condvar,
}

/// What is there now.
#[derive(Debug, Default)]
#[expect(clippy::exhaustive_structs)] // tests look and choose
pub struct State {
    /// The medium.
    pub bytes: Vec<u8>,
    /// Work is done in the call that brings it.
    pub is_eager: bool,
    /// In the order in which it came.
    pub waiting: Vec<Work>,
    /// How often somebody said that nobody waits any more.
    pub cancelled: usize,
    /// Whoever lets go of it has to wait so long.
    pub lingers: Duration,
}

/// Work that has begun; it has failed when it is dropped.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs)] // tests take it apart
pub struct Work {
    /// What is asked for.
    pub op: Op,
    /// Who answers.
    pub completer: Completer,
}

impl Elsewhere {
    fn new() -> Arc<Self> {
        let state = State { bytes: vec![0; MIB], ..State::default() };
        Arc::new(Self { state: Mutex::new(state), changed: Condvar::new() })
    }

    /// What is there now; work stands still while it is held.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `what` is true.
    ///
    /// # Panics
    ///
    /// When it does not become so.
    pub fn expect(&self, what: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let wait = self.changed.wait_timeout_while(self.state(), PATIENCE, |state| !what(state));
        let (state, late) = wait.unwrap_or_else(PoisonError::into_inner);
        assert!(!late.timed_out(), "{state:?}");
        state
    }

    /// Takes so much work, when there is so much.
    #[must_use]
    pub fn take(&self, count: usize) -> Vec<Work> {
        let mut state = self.expect(|state| state.waiting.len() >= count);
        std::mem::take(&mut state.waiting)
    }

    /// Does work and answers, in the thread that calls.
    pub fn carry_out(&self, work: Work) {
        let Work { op, mut completer } = work;
        let (offset, length) = op.range();
        let range = range(offset, length);
        let mut state = self.state();
        match op {
            Op::Read { .. } => completer.room().copy_from_slice(&state.bytes[range]),
            Op::Write { data, .. } => data.copy_to(&mut state.bytes[range]),
            Op::Clear { .. } => state.bytes[range].fill(0),
            Op::Flush => {}
            // Not offered.
            Op::CompareAndWrite { .. } | Op::WriteSame { .. } => {
                return completer.complete(Err(store::Error::Unsupported));
            }
            Op::ProvisioningStatus { .. } => {
                let run = Run { space: Space::Mapped, length };
                return completer.complete_with(Outcome::ProvisioningStatus(run));
            }
        }
        drop(state);
        completer.complete(Ok(()));
    }
}

fn range(offset: u64, length: u64) -> Range<usize> {
    let at = |byte: u64| usize::try_from(byte).expect("a small disk");
    at(offset)..at(offset + length)
}

/// One operation on its way.
#[derive(Debug)]
struct Piece {
    elsewhere: Arc<Elsewhere>,
    op: Op,
}

impl Foreign for Piece {
    fn begin(&self, completer: Completer) {
        let work = Work { op: self.op.clone(), completer };
        let mut state = self.elsewhere.state();
        if state.is_eager {
            drop(state);
            return self.elsewhere.carry_out(work);
        }
        state.waiting.push(work);
        self.elsewhere.changed.notify_all();
    }

    fn cancel(&self) {
        self.elsewhere.state().cancelled += 1;
        self.elsewhere.changed.notify_all();
    }
}

/// The store: all that it does is to ask elsewhere.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs)] // tests build filters on it
pub struct Remote(pub Arc<Elsewhere>);

impl Store for Remote {
    fn geometry(&self) -> Geometry {
        Geometry {
            bytes: MIB as u64,
            read_only: false,
            discard_granularity: Some(512),
            anchors: false,
            volatile_cache: true,
            physical_block: 512,
            rotational: false,
        }
    }

    fn submit(&self, op: &Op) -> Submitted {
        if let Err(error) = self.geometry().check(op) {
            return Submitted::Done(Outcome::Failed(error));
        }
        let work = Arc::new(Piece { elsewhere: Arc::clone(&self.0), op: op.clone() });
        Submitted::Io(Io::Foreign(match op {
            Op::Read { length, .. } => Errand::reading(work, *length),
            _ => Errand::new(work),
        }))
    }

    fn complete(&self, _op: &Op, _io: &Io, result: IoResult) -> Submitted {
        foreign::ended(result)
    }

    fn finish(&self) -> Result<(), store::Error> {
        let lingers = self.0.state().lingers;
        std::thread::sleep(lingers);
        Ok(())
    }
}

/// Runs `check` on each engine with a unit of which `store` makes the store.
pub fn with_store(
    store: impl Fn(&Arc<Elsewhere>) -> Arc<dyn Store>,
    check: impl Fn(&Server, &Arc<Elsewhere>),
) {
    with_store_and_plan(store, |_| {}, check);
}

fn with_store_and_plan(
    store: impl Fn(&Arc<Elsewhere>) -> Arc<dyn Store>,
    adjust: impl Fn(&mut Plan),
    check: impl Fn(&Server, &Arc<Elsewhere>),
) {
    with_stores_and_plan(1, store, adjust, |server, elsewheres| {
        elsewheres.iter().for_each(|elsewhere| check(server, elsewhere));
    });
}

/// `count` units, from `LUN` on, each with a place of its own.
fn with_stores_and_plan(
    count: u8,
    store: impl Fn(&Arc<Elsewhere>) -> Arc<dyn Store>,
    adjust: impl Fn(&mut Plan),
    check: impl Fn(&Server, &[Arc<Elsewhere>]),
) {
    let places: Mutex<Vec<Arc<Elsewhere>>> = Mutex::default();
    let places = || places.lock().unwrap_or_else(PoisonError::into_inner);
    let widen = |plan: &mut Plan| {
        places().clear();
        let node = plan.nodes.iter_mut().find(|node| node.name == TARGET).expect("the target");
        for lun in (LUN..).take(count.into()) {
            let elsewhere = Elsewhere::new();
            let identity = Identity::derive(TARGET, lun.into(), "LUNWIRE", "VIRTUAL DISK");
            let unit = LogicalUnit::new(identity, store(&elsewhere), BLOCK).expect("a legal unit");
            node.luns.push((lun.into(), Arc::new(unit)));
            places().push(elsewhere);
        }
        adjust(plan);
    };
    on_each_plan(
        |_| {},
        widen,
        |server| {
            let elsewheres = places().clone();
            check(server, &elsewheres);
            elsewheres.iter().for_each(|elsewhere| elsewhere.state().waiting.clear());
        },
    );
}

/// The same where the store is that of `Elsewhere` itself.
pub fn with_remote(check: impl Fn(&Server, &Arc<Elsewhere>)) {
    with_store(|elsewhere| Arc::new(Remote(Arc::clone(elsewhere))), check);
}

/// The same where nobody waits longer than `end_wait` for the answers to what has ended.
pub fn with_deaf_remote(end_wait: Duration, check: impl Fn(&Server, &Arc<Elsewhere>)) {
    with_deaf_remote_of(end_wait, |_| {}, check);
}

/// The same; `adjust` changes the plan of the whole daemon.
pub fn with_deaf_remote_of(
    end_wait: Duration,
    adjust: impl Fn(&mut Plan),
    check: impl Fn(&Server, &Arc<Elsewhere>),
) {
    let adjust = |plan: &mut Plan| {
        plan.end_wait = end_wait;
        adjust(plan);
    };
    with_store_and_plan(|elsewhere| Arc::new(Remote(Arc::clone(elsewhere))), adjust, check);
}

/// The same with several units of the kind, from `LUN` on.
pub fn with_deaf_remotes(
    end_wait: Duration,
    count: u8,
    check: impl Fn(&Server, &[Arc<Elsewhere>]),
) {
    let store = |elsewhere: &Arc<Elsewhere>| Arc::new(Remote(Arc::clone(elsewhere))) as Arc<_>;
    with_stores_and_plan(count, store, |plan| plan.end_wait = end_wait, check);
}
