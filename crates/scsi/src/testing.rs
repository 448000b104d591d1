// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A small disk in memory and a nexus to it, for the tests of this crate.

use crate::Completion;
use crate::DRAWN_LEN;
use crate::Drawn;
use crate::Identity;
use crate::Input;
use crate::KeepFailed;
use crate::Keeper;
use crate::Kept;
use crate::LogicalUnit;
use crate::Nexus;
use crate::NexusNames;
use crate::ProtectionFormat;
use crate::ProtectionType;
use crate::Request;
use crate::RestoreError;
use crate::Step;
use crate::Task;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use buf::Slice;
use clock::Instant;
use core::ops::Range;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::AtomicU8;
use core::sync::atomic::Ordering;
use core::time::Duration;
use store::Error;
use store::Geometry;
use store::Io;
use store::IoResult;
use store::Op;
use store::Outcome;
use store::Run;
use store::Space;
use store::Store;
use store::Submitted;
use store::beside::Beside;
use wire::iscsi::Attribute;
use wire::iscsi::Cdb;
use wire::iscsi::LunField;
use wire::scsi::Lun;
use wire::scsi::Sense;

/// More steps than any command of the limits can need.
const STEPS_MAX: usize = 2000;

/// Blocks of 512 bytes in the default disk: 2 MiB.
pub(crate) const BLOCKS: u64 = 4096;

/// Milliseconds since 1970 of the tests.
pub(crate) const NOW: u64 = 1_700_000_000_000;

/// A disk in a vector.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) geometry: Geometry,
    pub(crate) bytes: spin::Mutex<Vec<u8>>,
    /// Fails the operation with this error.
    pub(crate) error: spin::Mutex<Option<Error>>,
    /// Refuses changes, as one does that ends with a process which is about to.
    pub(crate) held: AtomicBool,
    /// Ranges that were ever anchored.
    anchored: spin::Mutex<Vec<Range<u64>>>,
    /// Every operation that came, without data.
    pub(crate) log: spin::Mutex<Vec<Seen>>,
    /// Reads and writes that it was told to expect.
    pub(crate) expected: spin::Mutex<Vec<Seen>>,
}

/// An operation as the store saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Read(u64, u64),
    Write(u64, u64),
    Durable(u64, u64),
    Flush,
    Discard(u64, u64),
    Zero(u64, u64),
    Anchor(u64, u64),
    Status(u64, u64),
    Compare(u64, u64),
    DurableCompare(u64, u64),
    Same(u64, u64),
}

pub(crate) fn geometry() -> Geometry {
    Geometry {
        bytes: BLOCKS * 512,
        read_only: false,
        discard_granularity: Some(4096),
        anchors: true,
        volatile_cache: true,
        physical_block: 4096,
        rotational: false,
    }
}

impl Disk {
    pub(crate) fn new(geometry: Geometry) -> Arc<Self> {
        let size = usize::try_from(geometry.bytes.min(64 << 20)).expect("a small disk");
        Arc::new(Self {
            geometry,
            bytes: spin::Mutex::new(vec![0; size]),
            error: spin::Mutex::new(None),
            held: AtomicBool::new(false),
            anchored: spin::Mutex::new(Vec::new()),
            log: spin::Mutex::new(Vec::new()),
            expected: spin::Mutex::new(Vec::new()),
        })
    }

    pub(crate) fn run(&self, op: &Op) -> Outcome {
        if op.changes() && self.is_held_back() {
            return Outcome::Failed(Error::Silent);
        }
        let mut bytes = self.bytes.lock();
        let place = |offset: u64, length: u64| {
            let start = usize::try_from(offset).expect("an offset within the disk");
            start..start + usize::try_from(length).expect("a length within the disk")
        };
        let (seen, outcome) = match op {
            Op::Read { offset, length } => {
                let length = u64::from(*length);
                let read = bytes[place(*offset, length)].to_vec();
                (Seen::Read(*offset, length), Outcome::Data(Slice::from(read)))
            }
            Op::Write { offset, data, durable } => {
                let length = data.len() as u64;
                data.copy_to(&mut bytes[place(*offset, length)]);
                let seen = if *durable { Seen::Durable } else { Seen::Write };
                (seen(*offset, length), Outcome::Done)
            }
            Op::Flush => (Seen::Flush, Outcome::Done),
            Op::Clear { offset, length, leave } => {
                bytes[place(*offset, *length)].fill(0);
                let seen = match leave {
                    Space::Deallocated => Seen::Discard,
                    Space::Mapped => Seen::Zero,
                    Space::Anchored => {
                        self.anchored.lock().push(*offset..*offset + *length);
                        Seen::Anchor
                    }
                };
                (seen(*offset, *length), Outcome::Done)
            }
            Op::ProvisioningStatus { offset, length } => {
                let anchored = self.anchored.lock();
                let space = |at: u64| match bytes[place(at, 1)][0] {
                    1.. => Space::Mapped,
                    0 if anchored.iter().any(|range| range.contains(&at)) => Space::Anchored,
                    0 => Space::Deallocated,
                };
                let mut others = (*offset..*offset + *length).step_by(512);
                let end = others.position(|at| space(at) != space(*offset));
                let length = end.map_or(*length, |end| end as u64 * 512);
                let run = Run { space: space(*offset), length };
                (Seen::Status(*offset, length), Outcome::ProvisioningStatus(run))
            }
            Op::CompareAndWrite { offset, old, new, durable } => {
                let length = new.len() as u64;
                let there = &mut bytes[place(*offset, length)];
                let differs = there.iter().zip(old.bytes()).position(|(is, old)| is != old);
                if differs.is_none() {
                    new.copy_to(there);
                }
                let outcome =
                    differs.map_or(Outcome::Done, |at| Outcome::Miscompare(Some(at as u64)));
                let seen = if *durable { Seen::DurableCompare } else { Seen::Compare };
                (seen(*offset, length), outcome)
            }
            Op::WriteSame { offset, length, data } => {
                let places = bytes[place(*offset, *length)].chunks_exact_mut(data.len());
                places.for_each(|place| data.copy_to(place));
                (Seen::Same(*offset, *length), Outcome::Done)
            }
        };
        self.log.lock().push(seen);
        self.error.lock().map_or(outcome, Outcome::Failed)
    }
}

impl Store for Disk {
    fn geometry(&self) -> Geometry {
        self.geometry.clone()
    }

    fn expect_read(&self, offset: u64, length: u32) {
        self.expected.lock().push(Seen::Read(offset, length.into()));
    }

    fn expect_write(&self, offset: u64, length: u32) {
        self.expected.lock().push(Seen::Write(offset, length.into()));
    }

    fn is_held_back(&self) -> bool {
        self.held.load(Ordering::Relaxed)
    }

    fn submit(&self, op: &Op) -> Submitted {
        Submitted::Done(self.run(op))
    }

    fn complete(&self, _: &Op, _: &Io, _: IoResult) -> Submitted {
        unreachable!("the disk never asks for input or output")
    }
}

/// A disk that compares and writes, and repeats, by itself; the one in as many bytes.
#[derive(Debug)]
struct Able(Arc<Disk>, u32);

impl Store for Able {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn compare_unit(&self) -> Option<u32> {
        Some(self.1)
    }

    fn writes_same(&self) -> bool {
        true
    }

    fn submit(&self, op: &Op) -> Submitted {
        self.0.submit(op)
    }

    fn complete(&self, op: &Op, io: &Io, result: IoResult) -> Submitted {
        self.0.complete(op, io, result)
    }
}

/// Keeps one state, or fails.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    pub(crate) state: spin::Mutex<Option<Vec<u8>>>,
    pub(crate) broken: spin::Mutex<bool>,
}

impl Keeper for Shelf {
    fn keep(&self, state: &[u8]) -> Result<(), KeepFailed> {
        if *self.broken.lock() {
            return Err(KeepFailed);
        }
        *self.state.lock() = Some(state.to_vec());
        Ok(())
    }
}

/// A disk at LUN 0 and a nexus whose first unit attention has been reported.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) disk: Arc<Disk>,
    pub(crate) unit: Arc<LogicalUnit>,
    pub(crate) nexus: Nexus,
}

pub(crate) fn names(initiator: &str) -> NexusNames {
    NexusNames {
        initiator_port: initiator.to_string(),
        target_device: "iqn.2026-01.org.example:target".to_string(),
        portal_group_tag: 1,
        relative_port: 1,
    }
}

fn identity() -> Identity {
    Identity::derive("iqn.2026-01.org.example:target", 0, "LUNWIRE", "disk")
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(geometry(), 512)
    }

    pub(crate) fn with(geometry: Geometry, block: u32) -> Self {
        Self::of(geometry, |identity, disk| LogicalUnit::new(identity, disk, block))
    }

    /// A disk of such blocks that compares and writes `unit` bytes by itself, and repeats a block.
    pub(crate) fn able(geometry: Geometry, block: u32, unit: u32) -> Self {
        let able = |disk| Arc::new(Able(disk, unit));
        Self::of(geometry, |identity, disk| LogicalUnit::new(identity, able(disk), block))
    }

    /// A DVD drive with a disc of so many blocks.
    pub(crate) fn optical(blocks: u64) -> Self {
        let bytes = blocks * 2048;
        let geometry = Geometry { bytes, read_only: true, discard_granularity: None, ..geometry() };
        Self::of(geometry, |identity, disk| LogicalUnit::optical(identity, disk))
    }

    /// A disk that is formatted with protection information, and what stands beside it.
    pub(crate) fn protected(kind: Option<ProtectionType>, block: u32) -> (Self, Arc<Disk>) {
        let format = ProtectionFormat { kind, block, blocks: geometry().bytes / u64::from(block) };
        let side = Disk::new(Geometry { bytes: format.side_len(), ..geometry() });
        let beside = Arc::<Disk>::clone(&side);
        let bench = Self::of(geometry(), |identity, disk| {
            LogicalUnit::protected(identity, Arc::new(Beside::new(disk, beside)), format)
        });
        (bench, side)
    }

    fn of(
        geometry: Geometry,
        unit: impl FnOnce(Identity, Arc<Disk>) -> Result<LogicalUnit, crate::UnitError>,
    ) -> Self {
        let disk = Disk::new(geometry);
        let unit = unit(identity(), Arc::<Disk>::clone(&disk)).expect("a good disk");
        Self::at(disk, unit)
    }

    /// A unit as after power on, with what `shelf` holds.
    pub(crate) fn powered_on(kept: Kept, shelf: &Arc<Shelf>) -> Result<Self, RestoreError> {
        let disk = Disk::new(geometry());
        let unit = LogicalUnit::new(identity(), Arc::<Disk>::clone(&disk), 512);
        let state = shelf.state.lock().clone();
        let keeper = Arc::<Shelf>::clone(shelf);
        let unit = unit.expect("a good disk").with_keeper(kept, keeper, state.as_deref())?;
        Ok(Self::at(disk, unit))
    }

    /// A new disk of which `keeper` keeps one kind of state.
    pub(crate) fn with_keeper(kept: Kept, keeper: Arc<dyn Keeper>) -> Self {
        let disk = Disk::new(geometry());
        let unit = LogicalUnit::new(identity(), Arc::<Disk>::clone(&disk), 512);
        let unit = unit.expect("a good disk").with_keeper(kept, keeper, None);
        Self::at(disk, unit.expect("nothing to restore"))
    }

    fn at(disk: Arc<Disk>, unit: LogicalUnit) -> Self {
        let unit = Arc::new(unit);
        let nexus = Nexus::new(names("iqn.a,i,0x1"), vec![(0, Arc::clone(&unit))]);
        let bench = Self { disk, unit, nexus };
        assert_eq!(bench.sense(&[0; 6]).map(|sense| (sense.asc, sense.ascq)), Some((0x29, 0)));
        bench
    }

    pub(crate) fn run(&self, cdb: &[u8], out: &[u8], expected_in: u32) -> Completion {
        run(&self.nexus, request(Lun::Unit(0), cdb, out, expected_in), out)
    }

    /// Runs a command without data out and gives its data.
    pub(crate) fn data(&self, cdb: &[u8]) -> Vec<u8> {
        let completion = self.run(cdb, &[], 1 << 20);
        assert_eq!(completion.status, 0, "{:?}", Sense::parse(&completion.sense));
        let data = completion.data_in.map(|data| data.to_vec()).unwrap_or_default();
        assert_eq!(completion.presented, data.len() as u64);
        data
    }

    /// Runs a command that may send nothing; its sense data if it fails.
    pub(crate) fn sense(&self, cdb: &[u8]) -> Option<Sense> {
        self.sense_out(cdb, &[])
    }

    pub(crate) fn sense_out(&self, cdb: &[u8], out: &[u8]) -> Option<Sense> {
        sense_of(&self.run(cdb, out, 1 << 20))
    }

    pub(crate) fn log(&self) -> Vec<Seen> {
        core::mem::take(&mut *self.disk.log.lock())
    }
}

pub(crate) fn cdb(bytes: &[u8]) -> Cdb {
    Cdb::new(bytes).expect("32 bytes at most")
}

pub(crate) fn request(lun: Lun, bytes: &[u8], out: &[u8], expected_in: u32) -> Request {
    request_at(lun.emit(), bytes, out, expected_in)
}

pub(crate) fn request_at(lun: LunField, bytes: &[u8], out: &[u8], expected_in: u32) -> Request {
    Request {
        lun,
        cdb: cdb(bytes),
        attribute: Attribute::Simple,
        expected_out: u32::try_from(out.len()).expect("a short list"),
        expected_in,
        unaware: false,
    }
}

/// Runs a command to its end, as a pump would.
pub(crate) fn run(nexus: &Nexus, request: Request, out: &[u8]) -> Completion {
    run_at(nexus, request, out, Duration::ZERO)
}

/// The same, so long after the start.
pub(crate) fn run_at(nexus: &Nexus, request: Request, out: &[u8], now: Duration) -> Completion {
    let (mut task, mut step) = nexus.start(&request);
    for _ in 0..STEPS_MAX {
        let input = match step {
            Step::Complete(completion) => return completion,
            Step::ReceiveDataOut { length } => {
                assert!(length > 0 && length <= request.expected_out, "asks for what is there");
                Input::DataOut(Slice::from(out[..length as usize].to_vec()))
            }
            Step::Wait => panic!("nobody else is there"),
            Step::Abort { .. } => Input::Turn,
            Step::Clock => Input::Clock(NOW),
            Step::Draw => Input::Drawn(drawn(now)),
            Step::Keep(keep) => Input::Kept(keep.run()),
            Step::Spawn { job, completion } => {
                work(*job);
                match completion {
                    Some(completion) => return completion,
                    None => Input::Turn,
                }
            }
            Step::Store(op) => Input::Store(submit(&task, &op)),
            Step::Device(errand) => Input::Device(crate::pass::tests::carried_out(&errand)),
        };
        step = task.resume(nexus, input);
        nexus.units().for_each(|unit| unit.check());
    }
    panic!("no end after {STEPS_MAX} steps");
}

/// Runs a job to its end.
pub(crate) fn work(mut job: Task) {
    let mut step = job.work(Input::Turn);
    for _ in 0..STEPS_MAX {
        let input = match step {
            Step::Store(op) => Input::Store(submit(&job, &op)),
            Step::Keep(keep) => Input::Kept(keep.run()),
            _ => break,
        };
        step = job.work(input);
    }
    assert!(matches!(step, Step::Complete(_)), "{step:?}");
}

/// Other bytes each time.
pub(crate) fn drawn(now: Duration) -> Drawn {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let byte = NEXT.fetch_add(1, Ordering::Relaxed);
    Drawn { random: Some([byte; DRAWN_LEN]), now: Instant(1) + now }
}

pub(crate) fn submit(task: &Task, op: &Op) -> Outcome {
    let store = task.store().expect("a task with store steps has a store");
    match store.submit(op) {
        Submitted::Done(outcome) => outcome,
        Submitted::Io(_) => unreachable!("the disk never asks for input or output"),
    }
}

pub(crate) fn sense_of(completion: &Completion) -> Option<Sense> {
    if completion.status == 0 {
        assert!(completion.sense.is_empty());
        return None;
    }
    assert_eq!(completion.status, 2);
    assert!(completion.data_in.is_none());
    Some(Sense::parse(&completion.sense).expect("sense data"))
}

/// (key, asc, ascq)
pub(crate) fn codes(sense: Option<Sense>) -> (u8, u8, u8) {
    sense.map_or((0, 0, 0), |sense| (sense.key as u8, sense.asc, sense.ascq))
}
