// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A disk of another target as a store.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::hash::Hasher;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::Weak;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use buf::Slice;
use initiator::Data;
use initiator::Disk;
use initiator::Durability;
use initiator::Error;
use initiator::Operation;
use initiator::Retry;
use initiator::Session;
use initiator::Space as Blocks;
use initiator::scsi;
use initiator::scsi::command;
use store::Elsewhere;
use store::Geometry;
use store::Io;
use store::IoResult;
use store::Op;
use store::Outcome;
use store::Space;
use store::Store;
use store::Submitted;
use store::foreign;
use store::foreign::Completer;
use store::foreign::Errand;
use store::foreign::Foreign;

use crate::flights::Flights;
use crate::limits;
use crate::limits::BLOCK_MIN;
use crate::limits::BUSY_AFTER;
use crate::limits::CLOSE_LOST_MAX;
use crate::limits::CLOSE_MAX;
use crate::limits::LOOK_MAX;
use crate::limits::PAGE_BYTES;
use crate::status::Asker;
use crate::status::Question;

/// Why a disk cannot be served again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// It has no blocks, or blocks that no disk of ours can have.
    #[error("{place} has {blocks} blocks of {block} bytes, which cannot be served")]
    Size {
        /// Its URL.
        place: String,
        /// How many.
        blocks: u64,
        /// Bytes of one.
        block: u32,
    },
    /// Protection information is not passed on.
    #[error(
        "{place} is formatted with protection information, which is not passed on: serve a disk \
         without it"
    )]
    Protected {
        /// Its URL.
        place: String,
    },
    /// The initiator.
    #[error("{place}: {source}")]
    Initiator {
        /// Its URL.
        place: String,
        /// What it says.
        source: Error,
    },
}

/// The use of a disk, which goes on behind the end of its [`Remote`] as long as something of it is
/// under way.
#[derive(Clone, Debug)]
pub struct Using(Weak<Flights>);

impl Using {
    /// Whether it is over for good.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0.strong_count() == 0
    }

    /// Whether all changes that were under way in an outage have ended, within `patience`. Until
    /// then they may come over what is written by way of another session.
    #[must_use]
    pub fn settles(&self, patience: Duration) -> bool {
        let (begun, mut may_have) = (Instant::now(), false);
        loop {
            let Some(flights) = self.0.upgrade() else { return true };
            let may_come_late = flights.may_change_late();
            may_have |= may_come_late;
            if !may_have || !may_come_late && !flights.is_changing() {
                return true;
            }
            drop(flights);
            if begun.elapsed() >= patience {
                return false;
            }
            thread::sleep(limits::SETTLE_LOOK);
        }
    }
}

/// Since when it is being closed, and what tells how that ended.
type Closing = (Instant, Receiver<Result<(), Error>>);

/// A disk of another target.
#[derive(Debug)]
pub struct Remote {
    session: Session,
    disk: Disk,
    flights: Arc<Flights>,
    asker: Arc<Asker>,
    /// By which it is known to gateways that lead to it.
    number: u64,
    /// All but the size.
    geometry: Geometry,
    /// As hosts know it.
    bytes: AtomicU64,
    block: u32,
    compare_unit: Option<u32>,
    busy: Duration,
    /// What tells that it is closed.
    closing: Mutex<Option<Closing>>,
    has_landed: AtomicBool,
}

impl Remote {
    /// Of `disk`, which is reached by `session` and called `place`. Hosts are told BUSY when there
    /// has been no session for `busy`; None: for the usual time.
    ///
    /// # Errors
    /// It cannot be served.
    pub fn new(
        session: Session,
        disk: Disk,
        place: &str,
        busy: Option<Duration>,
    ) -> Result<Self, RemoteError> {
        let facts = disk.geometry();
        let place = place.to_owned();
        if facts.blocks == 0 || !u64::from(facts.block).is_multiple_of(BLOCK_MIN) {
            let (blocks, block) = (facts.blocks, facts.block);
            return Err(RemoteError::Size { place, blocks, block });
        }
        if facts.protection.is_some() {
            return Err(RemoteError::Protected { place });
        }
        let gives_back = !facts.read_only && facts.unmap_max > 0 && facts.same_max > 0;
        let granularity = facts.unmap_granularity.max(1).saturating_mul(facts.block);
        let geometry = Geometry {
            bytes: facts.bytes(),
            read_only: facts.read_only,
            discard_granularity: gives_back.then_some(granularity),
            anchors: false,
            volatile_cache: facts.volatile_cache && !facts.read_only,
            physical_block: physical_block(facts.physical, facts.block),
            rotational: false,
        };
        let compared = u32::from(facts.compare_max).saturating_mul(facts.block);
        let compare_unit = compared.checked_ilog2().map(|bits| 1 << bits);
        let flights = Flights::start(&disk, place.clone())
            .map_err(|source| RemoteError::Initiator { place: place.clone(), source })?;
        // Different for each one, which is all that is asked of it.
        let number = RandomState::new().build_hasher().finish();
        if let Some(behind) = gateways(&disk) {
            flights.is_circle(number, behind);
        }
        tracing::info!(disk = place, bytes = geometry.bytes, "a disk of another target is open");
        Ok(Self {
            session,
            disk,
            flights,
            asker: Arc::default(),
            number,
            bytes: AtomicU64::new(geometry.bytes),
            geometry,
            block: facts.block,
            compare_unit: compare_unit.filter(|_| !facts.read_only),
            busy: busy.unwrap_or(BUSY_AFTER),
            closing: Mutex::default(),
            has_landed: AtomicBool::new(false),
        })
    }

    /// Bytes of its blocks: nothing less can be read or written.
    #[must_use]
    pub const fn block(&self) -> u32 {
        self.block
    }

    /// What knows whether it is in use, also when it is dropped.
    #[must_use]
    pub fn using(&self) -> Using {
        Using(Arc::downgrade(&self.flights))
    }

    fn check(&self, op: &Op) -> Result<(), store::Error> {
        let mut geometry = self.geometry();
        geometry.bytes = geometry.bytes.min(self.disk.size());
        geometry.check(op)
    }

    fn ask(&self, op: &Op, room: u32, step: u64) -> Submitted {
        let (flights, asker) = (Arc::clone(&self.flights), Arc::clone(&self.asker));
        let work = Arc::new(Piece { disk: self.disk.clone(), flights, asker, op: op.clone() });
        Submitted::Io(Io::Foreign(Errand::reading(work, room).at_step(step)))
    }

    /// Whether the other target compares and writes these bytes as one.
    fn is_one(&self, offset: u64, length: u64) -> bool {
        let unit = self.compare_unit.map(u64::from);
        unit.is_some_and(|unit| offset % unit + length <= unit)
    }

    /// A loss of power at the other target would be one of what was acknowledged.
    fn is_dirty(&self) -> bool {
        self.may_be_volatile() && self.flights.is_dirty()
    }

    /// Whether it has a volatile cache, or may have one since it has begun anew, whatever hosts are
    /// told.
    fn may_be_volatile(&self) -> bool {
        !self.geometry.read_only && self.flights.may_be_volatile()
    }

    /// Asks behind which gateways it is now, in a thread of its own. When it is in a circle the
    /// session ends, and with it what goes round there.
    fn look_for_circle(&self) {
        let (session, disk) = (self.session.clone(), self.disk.clone());
        let (flights, number) = (Arc::clone(&self.flights), self.number);
        let asked = thread::Builder::new().name("remote-circle".into()).spawn(move || {
            let behind = gateways(&disk);
            drop(disk);
            if behind.is_some_and(|behind| flights.is_circle(number, behind)) {
                session.logout();
            }
        });
        if let Err(error) = asked {
            tracing::warn!(%error, "no thread left to look for a circle of gateways");
        }
    }

    fn closing(&self) -> MutexGuard<'_, Option<Closing>> {
        // What the lock guards is whole between any two statements.
        self.closing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Brings what was written to stable storage and logs out, in a thread of its own.
    fn close(&self) {
        let mut closing = self.closing();
        if closing.is_some() {
            return;
        }
        self.flights.leave();
        let (tell, told) = mpsc::channel();
        let (session, disk) = (self.session.clone(), self.disk.clone());
        let is_to_flush = self.is_dirty();
        let flights = Arc::clone(&self.flights);
        let closed = thread::Builder::new().name("remote-close".into()).spawn(move || {
            let flushed = if is_to_flush { disk.flush() } else { Ok(()) };
            flights.end();
            session.logout();
            flights.land(&disk);
            // Who has given up needs no word.
            let _ = tell.send(flushed);
        });
        if let Err(error) = closed {
            tracing::warn!(%error, "no thread left for the end of a disk of another target");
        }
        self.has_landed.store(true, Ordering::Release);
        *closing = Some((Instant::now(), told));
    }
}

/// The gateways through which the other target serves it; None: it does not say now.
fn gateways(disk: &Disk) -> Option<Vec<u64>> {
    let page = |code| {
        let cdb = command::inquiry(Some(code), PAGE_BYTES);
        match disk.post(cdb, Data::In(PAGE_BYTES.into()), Retry::Always).wait() {
            Ok(done) => {
                let content = done.data.as_deref().and_then(|data| scsi::page_content(data, code));
                Some(content.unwrap_or_default().to_vec())
            }
            Err(error) if scsi::is_unsupported(&error) => Some(Vec::new()),
            Err(_) => None,
        }
    };
    // What it does not list is not asked for: some targets end the session then.
    let listed = page(0)?.contains(&scsi::GATEWAYS);
    if listed {
        page(scsi::GATEWAYS).map(|content| scsi::gateways(&content))
    } else {
        Some(Vec::new())
    }
}

/// A power of two, at least the block.
const fn physical_block(physical: u32, block: u32) -> u32 {
    if physical.is_power_of_two() && physical >= block { physical } else { block }
}

impl Drop for Remote {
    fn drop(&mut self) {
        if !self.has_landed.load(Ordering::Acquire) {
            self.flights.leave();
            // The session logs out with its last owner, and the flush behind that fails.
            self.flights.land(&self.disk);
        }
    }
}

/// A step of a change: the second one is the flush that makes it last.
const FLUSH: u64 = 1;

impl Store for Remote {
    fn geometry(&self) -> Geometry {
        Geometry { bytes: self.bytes.load(Ordering::Acquire), ..self.geometry.clone() }
    }

    fn set_bytes(&self, bytes: u64) -> bool {
        self.bytes.store(bytes, Ordering::Release);
        true
    }

    fn compare_unit(&self) -> Option<u32> {
        self.compare_unit
    }

    fn lose_unknown(&self) {
        self.flights.lose();
    }

    fn may_have_lost(&self) -> bool {
        self.flights.has_lost()
    }

    fn bytes_behind(&self) -> Option<u64> {
        Some(self.disk.size())
    }

    fn look_behind(&self) -> Option<Result<(), String>> {
        let (tell, told) = mpsc::channel();
        let disk = self.disk.clone();
        // Who has given up needs no word.
        let asked = thread::Builder::new()
            .name("remote-look".into())
            .spawn(move || drop(tell.send(disk.learn())));
        let answer = asked.ok().and_then(|_| told.recv_timeout(LOOK_MAX).ok());
        Some(match answer {
            Some(Ok(_)) => Ok(()),
            Some(Err(error)) => Err(error.to_string()),
            None => Err(format!("the other target has not answered for {} s", LOOK_MAX.as_secs())),
        })
    }

    fn elsewhere(&self) -> Option<Elsewhere> {
        Some(Elsewhere {
            who: "other target",
            advice: "lunwire inspect and its URL",
            busy_after: self.busy,
            is_busy: self.flights.is_lost(self.busy),
            cache: if self.may_be_volatile() { "writeback" } else { "none" },
            others: None,
            shut_out: self.flights.is_shut_out(),
            lost: self.flights.is_replaced().then_some("replaced"),
        })
    }

    fn gateways(&self) -> Vec<u64> {
        std::iter::once(self.number).chain(self.flights.behind()).collect()
    }

    fn begin_finish(&self) {
        self.close();
    }

    fn finish(&self) -> Result<(), store::Error> {
        let is_dirty = self.is_dirty();
        self.close();
        let closing = self.closing();
        let is_lost = self.flights.is_lost(Duration::ZERO);
        let patience = if is_lost { CLOSE_LOST_MAX } else { CLOSE_MAX };
        let flushed = closing.as_ref().and_then(|(since, told)| {
            told.recv_timeout(patience.saturating_sub(since.elapsed())).ok()
        });
        match flushed {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => {
                self.flights.note(&error);
                Err(store::Error::Write)
            }
            None if is_dirty => {
                self.flights.lose();
                Err(store::Error::Write)
            }
            // Nothing can be lost any more.
            None => Ok(()),
        }
    }

    fn submit(&self, op: &Op) -> Submitted {
        if let Err(error) = self.check(op) {
            return Submitted::Done(Outcome::Failed(error));
        }
        if self.flights.take_move() {
            self.look_for_circle();
        }
        if self.flights.is_shut_out() {
            let error = match op {
                Op::Flush => store::Error::Write,
                _ => store::Error::Internal,
            };
            return Submitted::Done(Outcome::Failed(error));
        }
        if self.flights.is_lost(self.busy) {
            return Submitted::Done(Outcome::Failed(store::Error::Silent));
        }
        let (offset, length) = op.range();
        match op {
            Op::Read { length: 0, .. } => Submitted::Done(Outcome::Data(Slice::empty())),
            Op::Read { length, .. } => self.ask(op, *length, 0),
            Op::Flush if self.flights.has_lost() => {
                Submitted::Done(Outcome::Failed(store::Error::Write))
            }
            Op::Flush if !self.may_be_volatile() => Submitted::Done(Outcome::Done),
            Op::Flush => self.ask(op, 0, 0),
            _ if length == 0 => Submitted::Done(Outcome::Done),
            Op::CompareAndWrite { .. } if !self.is_one(offset, length) => {
                Submitted::Done(Outcome::Failed(store::Error::Unsupported))
            }
            Op::WriteSame { .. } => Submitted::Done(Outcome::Failed(store::Error::Unsupported)),
            Op::Write { .. }
            | Op::Clear { .. }
            | Op::CompareAndWrite { .. }
            | Op::ProvisioningStatus { .. } => self.ask(op, 0, 0),
        }
    }

    fn complete(&self, op: &Op, io: &Io, result: IoResult) -> Submitted {
        let step = if let Io::Foreign(errand) = io { errand.step() } else { 0 };
        // Hosts that were told of no cache do not flush: what ends is on stable storage.
        let is_to_last = match op {
            Op::CompareAndWrite { durable: true, .. } => true,
            _ => !self.geometry.volatile_cache && op.changes(),
        };
        match foreign::ended(result) {
            Submitted::Done(Outcome::Done)
                if is_to_last && step != FLUSH && self.may_be_volatile() =>
            {
                self.ask(&Op::Flush, 0, FLUSH)
            }
            ended => ended,
        }
    }
}

/// One operation on its way to the initiator, which cannot be told that nobody waits any more.
#[derive(Debug)]
struct Piece {
    disk: Disk,
    flights: Arc<Flights>,
    asker: Arc<Asker>,
    op: Op,
}

impl Foreign for Piece {
    fn begin(&self, completer: Completer) {
        if let Op::ProvisioningStatus { offset, length } = self.op {
            let disk = self.disk.clone();
            return self.asker.ask(Question { disk, offset, length, completer });
        }
        match operation(&self.op) {
            Some(operation) => self.flights.begin(&self.disk, &self.op, operation, completer),
            None => completer.complete(Err(store::Error::Internal)),
        }
    }
}

/// What the initiator is asked for.
fn operation(op: &Op) -> Option<Operation> {
    Some(match op {
        Op::Read { offset, length } => Operation::read(*offset, u64::from(*length)),
        Op::Write { offset, data, durable } => {
            let write = Operation::write(*offset, data.clone());
            if *durable { write.durable() } else { write }
        }
        Op::Flush => Operation::Flush,
        Op::Clear { offset, length, leave } => Operation::Zero {
            offset: *offset,
            length: *length,
            space: if *leave == Space::Deallocated { Blocks::GiveBack } else { Blocks::Keep },
            durability: Durability::Cached,
        },
        Op::CompareAndWrite { offset, old, new, .. } => {
            Operation::CompareAndWrite { offset: *offset, expected: old.clone(), new: new.clone() }
        }
        Op::WriteSame { .. } | Op::ProvisioningStatus { .. } => return None,
    })
}
