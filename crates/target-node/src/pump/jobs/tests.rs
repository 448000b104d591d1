// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A job without a buffer, over a port whose clock is what the pump waits for.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use buf::Buf;
use buf::Pool;
use clock::Instant;
use engine::Event;
use engine::Port;
use engine::Socket;
use engine::Token;
use engine::Waker;
use engine::Work;
use scsi::Identity;
use scsi::Input;
use scsi::LogicalUnit;
use scsi::Nexus;
use scsi::NexusNames;
use scsi::Request;
use scsi::Step;
use store::FileId;
use store::FilterIndex;
use store::Geometry;
use store::Io;
use store::IoResult;
use store::Op;
use store::Store;
use store::Submitted;
use store::filter::Delay;
use store::filter::Delayed;
use store::filter::Limit;
use store::filter::Rate;
use store::foreign::Completer;
use store::foreign::Errand;
use store::foreign::Foreign;
use store::null::Null;
use wire::iscsi::Attribute;
use wire::iscsi::LunField;
use wire::scsi::command::plain;
use wire::scsi::copy;
use wire::scsi::copy::Cscd;
use wire::scsi::copy::Segment;
use wire::scsi::opcode::Opcode;

use super::Pump;
use super::WAIT;
use super::id_of;
use crate::authentication::AuthenticationPolicy;
use crate::pump::Doing;
use crate::pump::storing::StoreUser;
use crate::stepped::SteppedPlan;
use crate::stepped::SteppedTarget;
use crate::table::Key;

/// All that the pool of these tests has.
const POOL_BYTES: usize = 1 << 20;

/// What the job reads.
const LENGTH: u32 = 64 * 1024;

/// Time passes only while the pump waits; work is written down and never done.
#[derive(Debug)]
struct Desk {
    now: Instant,
    waits: usize,
    reads: usize,
    /// What was asked about allocation.
    questions: usize,
    waker: Waker,
}

impl Port for Desk {
    fn add_socket(&mut self, _fd: OwnedFd) -> Socket {
        Socket(0)
    }

    fn add_file(
        &mut self,
        _id: u32,
        _file: Arc<OwnedFd>,
        _direct: bool,
    ) -> Result<(), engine::FileRefused> {
        Ok(())
    }

    fn remove_file(&mut self, _id: u32) {}

    fn submit(&mut self, _token: Token, work: Work) {
        self.reads += usize::from(matches!(work, Work::Read { .. }));
        self.questions += usize::from(matches!(work, Work::Allocation { .. }));
    }

    fn pause(&mut self, _socket: Socket) {}

    fn resume(&mut self, _socket: Socket) {}

    fn shutdown(&mut self, _socket: Socket) {}

    fn close(&mut self, _socket: Socket) {}

    fn next_event(&mut self) -> Option<(Token, Event)> {
        None
    }

    fn wait(&mut self, deadline: Option<Instant>) {
        self.waits += 1;
        self.now = self.now.max(deadline.unwrap_or_default());
    }

    fn wait_n(&mut self, _count: usize, deadline: Instant) {
        self.wait(Some(deadline));
    }

    fn now(&self) -> Instant {
        self.now
    }

    fn random(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        bytes.fill(0);
        Ok(())
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn name(&self) -> &'static str {
        "desk"
    }
}

fn target_of(pool: Pool) -> SteppedTarget<Desk> {
    target_of_reactors([pool])
}

/// A reactor for each pool.
fn target_of_reactors<const COUNT: usize>(pools: [Pool; COUNT]) -> SteppedTarget<Desk> {
    let now = Instant(1_000_000_000);
    let waker = || Waker::new().expect("a descriptor");
    let desk = || Desk { now, waits: 0, reads: 0, questions: 0, waker: waker() };
    let plan = SteppedPlan {
        portals: Vec::new(),
        nodes: Vec::new(),
        discovery: AuthenticationPolicy::default(),
        login_timeout: Duration::from_secs(1),
        rdma: crate::Rdma::Off,
        end_wait: crate::END_WAIT_DEFAULT,
        hold_back: Duration::ZERO,
        sessions_max: 1,
        connections: crate::ConnectionLimits::default(),
    };
    let ports = pools.into_iter().map(|pool| (desk(), pool)).collect();
    SteppedTarget::new(ports, plan, Vec::new())
}

/// FORMAT UNIT of a disk in a file, as a job.
fn job_on_file() -> scsi::Task {
    job(file())
}

fn file() -> Arc<dyn Store> {
    let geometry = Geometry {
        bytes: 1 << 20,
        read_only: false,
        anchors: false,
        discard_granularity: None,
        volatile_cache: false,
        physical_block: 4096,
        rotational: false,
    };
    Arc::new(store::file::File::new(FileId(0), geometry, false))
}

/// FORMAT UNIT of a disk, as a job.
fn job(store: Arc<dyn Store>) -> scsi::Task {
    job_and_unit(store).0
}

fn job_and_unit(store: Arc<dyn Store>) -> (scsi::Task, Arc<LogicalUnit>) {
    let (nexus, unit) = nexus_and_unit(store);
    match nexus.start(&request(Opcode::FORMAT_UNIT)).1 {
        Step::Spawn { job, .. } => (*job, unit),
        other => panic!("no job but {other:?}"),
    }
}

fn nexus_and_unit(store: Arc<dyn Store>) -> (Nexus, Arc<LogicalUnit>) {
    let identity = Identity::derive("iqn.t", 0, "LUNWIRE", "disk");
    let unit = Arc::new(LogicalUnit::new(identity, store, 512).expect("a unit"));
    let names = NexusNames {
        initiator_port: "iqn.i,i,0x1".to_owned(),
        target_device: "iqn.t".to_owned(),
        portal_group_tag: 1,
        relative_port: 1,
    };
    let nexus = Nexus::new(names, vec![(0, Arc::clone(&unit))]);
    // The unit tells of power on first.
    drop(nexus.start(&request(Opcode::TEST_UNIT_READY)));
    (nexus, unit)
}

/// EXTENDED COPY of the first half of a disk to the second one, which goes on after its command.
fn copy_job(store: Arc<dyn Store>) -> scsi::Task {
    copy_job_and_unit(store).0
}

fn copy_job_and_unit(store: Arc<dyn Store>) -> (scsi::Task, Arc<LogicalUnit>) {
    let half = store.geometry().bytes / 1024;
    let (nexus, unit) = nexus_and_unit(store);
    let cscd = Cscd { device_type: 0, naa: unit.identity().naa.clone(), block: 512 };
    let segment = Segment {
        source: 0,
        destination: 0,
        in_destination_blocks: false,
        blocks: u16::try_from(half).expect("a small disk"),
        source_lba: 0,
        destination_lba: half,
    };
    let list = copy::emit_lid4(7, true, &[cscd], &[segment]).expect("a short list");
    let length = u32::try_from(list.len()).expect("a short list");
    let mut command = Request { expected_out: length, ..request(Opcode::THIRD_PARTY_COPY_OUT) };
    command.cdb.bytes[1] = u8::try_from(copy::EXTENDED_COPY_LID4).expect("five bits");
    command.cdb.bytes[10..14].copy_from_slice(&length.to_be_bytes());
    let (mut task, _) = nexus.start(&command);
    match task.resume(&nexus, Input::DataOut(list.into())) {
        Step::Spawn { job, .. } => (*job, unit),
        other => panic!("no job but {other:?}"),
    }
}

/// Runs jobs to their end; gives what they read and wrote, bytes.
fn finish(pump: &mut Pump<Desk>) -> (u64, u64) {
    let (mut read, mut written) = (0, 0);
    for _ in 0..1_000_000 {
        if pump.jobs.is_empty() {
            return (read, written);
        }
        assert!(pump.turn(), "it is not stopped");
        let under_way = pump.context.ios.iter().filter_map(|(key, pending)| match &pending.doing {
            Doing::Store { io, .. } => Some((key, io.clone())),
            Doing::Keep | Doing::Device(_) | Doing::Reset(_) => None,
        });
        for (key, io) in under_way.collect::<Vec<_>>() {
            let result = match io {
                Io::Read { length, .. } => {
                    read += u64::from(length);
                    IoResult::Read(Ok(vec![0; length as usize].into()))
                }
                Io::Write { data, .. } => {
                    written += data.len() as u64;
                    IoResult::Other(Ok(()))
                }
                Io::Clock { .. } | Io::Pause { .. } => continue,
                _ => IoResult::Other(Ok(())),
            };
            pump.io_done(key, result);
        }
    }
    panic!("no end");
}

/// A job has work for its store.
fn submit(pump: &mut Pump<Desk>, job: Key, op: Op, io: Io) {
    pump.job(job).expect("it is there").submit_io(id_of(job), op, io);
    pump.carry_out_effects();
}

/// A command of six bytes, all zero but the first.
fn request(opcode: Opcode) -> Request {
    let (lun, cdb) = (LunField([0; 8]), plain(opcode));
    Request {
        lun,
        cdb,
        attribute: Attribute::Simple,
        expected_out: 0,
        expected_in: 0,
        unaware: false,
    }
}

/// All of the pool.
fn drain(pool: &Pool) -> Vec<Buf> {
    std::iter::from_fn(|| pool.take(LENGTH as usize)).collect()
}

#[test]
fn a_job_without_a_buffer_rests_between_its_tries() {
    let pool = Pool::new(POOL_BYTES).expect("memory");
    let mut target = target_of(pool.clone());
    let pump = &mut target.pumps[0];
    pump.begin_job(job_on_file(), None);
    let (key, _) = pump.context.job_turns.pop_front().expect("its first turn");
    let all = drain(&pool);
    let io = Io::Read { file: FileId(0), offset: 0, length: LENGTH };
    submit(pump, key, Op::Read { offset: 0, length: LENGTH }, io);

    let begin = pump.context.port.now();
    let tries = 100;
    for _ in 0..tries {
        assert!(pump.turn(), "it is not stopped");
    }
    assert_eq!(pump.context.port.reads, 0, "there is no buffer");
    assert_eq!(pump.context.port.waits, tries);
    assert!(pump.context.port.now().since(begin) >= WAIT * 99, "it spins");

    drop(all);
    assert!(pump.turn());
    assert_eq!(pump.context.port.reads, 1, "it goes on when there is one");
}

/// The file system may have to look it up, so it is work for the port; others go on meanwhile.
#[test]
fn what_a_file_has_where_is_not_asked_on_the_reactor() {
    let mut target = target_of(Pool::new(POOL_BYTES).expect("memory"));
    let pump = &mut target.pumps[0];
    pump.begin_job(job_on_file(), None);
    let (key, _) = pump.context.job_turns.pop_front().expect("its first turn");
    let io = Io::ProvisioningStatus { file: FileId(0), offset: 0 };
    submit(pump, key, Op::ProvisioningStatus { offset: 0, length: 512 }, io);
    assert_eq!((pump.context.port.questions, pump.context.ios.len()), (1, 1));
    assert!(pump.turn(), "it goes on");
    let io = pump.context.ios.iter().next().map(|(key, _)| key).expect("it waits");
    pump.io_done(io, IoResult::ProvisioningStatus(Ok((store::Space::Mapped, 512))));
    assert!(pump.context.ios.is_empty() && !pump.context.job_turns.is_empty());
}

#[test]
fn a_stop_does_not_wait_for_the_pause_of_a_job() {
    let mut target = target_of(Pool::new(POOL_BYTES).expect("memory"));
    let pump = &mut target.pumps[0];
    let hour = Duration::from_secs(3600);
    let null = Null::new(1 << 20).expect("a size");
    // The second pause would begin when the first one has ended.
    let inner = Delay::new(Arc::new(null), FilterIndex(0), Delayed::All, hour);
    let store = Arc::new(Delay::new(Arc::new(inner), FilterIndex(1), Delayed::All, hour));
    pump.begin_job(job(store), None);
    pump.take_job_turns();
    assert_eq!(pump.context.ios.len(), 1, "it is in its first pause");

    let begin = pump.context.port.now();
    pump.stop(Duration::from_secs(2));
    while pump.turn() {
        assert!(pump.context.port.now().since(begin) < hour, "the pause holds the stop up");
    }
}

/// Work that is done elsewhere by nobody. Cancelled, it may answer.
#[derive(Debug)]
struct Nobody {
    gives_up: bool,
    open: Mutex<Option<Completer>>,
}

impl Foreign for Nobody {
    fn begin(&self, completer: Completer) {
        *self.open.lock().expect("no panic") = Some(completer);
    }

    fn cancel(&self) {
        if self.gives_up {
            drop(self.open.lock().expect("no panic").take());
        }
    }
}

/// How long a stop takes while a job waits for such work.
fn stop_of_unanswered(gives_up: bool) -> Duration {
    let mut target = target_of(Pool::new(POOL_BYTES).expect("memory"));
    let pump = &mut target.pumps[0];
    pump.begin_job(job_on_file(), None);
    let (key, _) = pump.context.job_turns.pop_front().expect("its first turn");
    let work = Arc::new(Nobody { gives_up, open: Mutex::default() });
    let io = Io::Foreign(Errand::new(Arc::clone(&work) as Arc<dyn Foreign>));
    submit(pump, key, Op::Flush, io);
    assert_eq!(pump.context.ios.len(), 1);
    let begin = pump.context.port.now();
    pump.stop(Duration::from_secs(2));
    while pump.turn() {
        assert!(pump.context.port.now().since(begin) < Duration::from_secs(60), "it does not end");
    }
    let length = pump.context.port.now().since(begin);
    // Its answer comes too late for anybody.
    drop(work.open.lock().expect("no panic").take());
    pump.take_answers();
    length
}

/// A copy waits for work that nobody does, elsewhere or here; task management that concerns it, or
/// not, waits for it.
fn wait_for_copy(is_cancelled: bool, is_elsewhere: bool) -> (Duration, bool) {
    let mut target = target_of(Pool::new(POOL_BYTES).expect("memory"));
    let pump = &mut target.pumps[0];
    let (job, unit) = copy_job_and_unit(file());
    pump.begin_job(job, None);
    // To the write of its first piece.
    pump.take_job_turns();
    let (io, length) = (pump.context.ios.iter())
        .find_map(|(key, pending)| match &pending.doing {
            Doing::Store { io: Io::Read { length, .. }, .. } => Some((key, *length)),
            _ => None,
        })
        .expect("it reads");
    let read = pump.context.pool.take(length as usize).expect("memory").freeze();
    pump.io_done(io, IoResult::Read(Ok(read)));
    let work = Arc::new(Nobody { gives_up: false, open: Mutex::default() });
    if is_elsewhere {
        let (key, step) = pump.context.job_turns.pop_front().expect("it writes");
        let Some(Step::Store(op)) = step else { panic!("{step:?}") };
        let io = Io::Foreign(Errand::new(Arc::clone(&work) as Arc<dyn Foreign>));
        submit(pump, key, op, io);
    } else {
        // A file system that is frozen: the port never does it.
        pump.take_job_turns();
    }
    let (write, _) = pump.context.ios.iter().next().expect("it writes");
    if is_cancelled {
        unit.end_copies();
    }
    let begin = pump.context.port.now();
    pump.preempt_for_nobody(Key::NOBODY, &unit, &[]);
    let (reply, replies) = std::sync::mpsc::channel();
    pump.drain(&unit, reply);
    while pump.holdings().managements > 1 {
        let next = pump.context.timers.next_deadline();
        pump.context.port.wait(next);
        pump.expire();
        assert!(pump.context.port.now().since(begin) < Duration::from_secs(60), "for ever");
    }
    let (length, fenced) = (pump.context.port.now().since(begin), unit.is_fenced());
    assert!(replies.try_recv().is_err(), "who touches what is behind it waits for the end");
    // The next one does not wait if it must not.
    pump.preempt_for_nobody(Key::NOBODY, &unit, &[]);
    assert_eq!(pump.holdings().managements, if is_cancelled { 1 } else { 2 });
    match is_elsewhere {
        true => drop(work.open.lock().expect("no panic").take()),
        false => pump.io_done(write, IoResult::Other(Ok(()))),
    }
    pump.take_answers();
    assert!(replies.try_recv().is_ok());
    while !pump.jobs.is_empty() {
        pump.take_job_turns();
    }
    assert!(!unit.is_fenced() && pump.holdings().managements == 0);
    (length, fenced)
}

#[test]
fn a_copy_that_was_cancelled_is_left_behind_and_fences_its_unit() {
    for is_elsewhere in [true, false] {
        let (length, fenced) = wait_for_copy(true, is_elsewhere);
        assert!((crate::END_WAIT_DEFAULT..Duration::from_secs(10)).contains(&length), "{length:?}");
        assert!(fenced);
        let (_, fenced) = wait_for_copy(false, is_elsewhere);
        assert!(!fenced, "it goes on");
    }
}

#[test]
fn a_stop_waits_for_foreign_work_but_not_for_ever() {
    assert!(stop_of_unanswered(true) < Duration::from_secs(2));
    let longest = stop_of_unanswered(false);
    let some_time = Duration::from_secs(3)..Duration::from_secs(9);
    assert!(some_time.contains(&longest), "it has some time: {longest:?}");
}

/// Whoever looks after a store hears that it does not answer without a new command, and in the end
/// nobody looks any more.
#[test]
fn a_store_that_does_not_answer_is_found_as_time_passes() {
    let mut target = target_of(Pool::new(POOL_BYTES).expect("memory"));
    let pump = &mut target.pumps[0];
    let (job, unit) = job_and_unit(file());
    pump.begin_job(job, None);
    let (key, _) = pump.context.job_turns.pop_front().expect("its first turn");
    let work = Arc::new(Nobody { gives_up: false, open: Mutex::default() });
    let io = Io::Foreign(Errand::new(Arc::clone(&work) as Arc<dyn Foreign>));
    submit(pump, key, Op::Flush, io);
    let begin = pump.context.port.now();
    let (disk, mut shown) = (unit.identity().serial.clone(), Vec::new());
    while pump.context.shared.silences.is_empty() {
        shown.push(pump.waits().iter().map(|wait| (wait.disk == disk, wait.commands)).collect());
        assert!(pump.turn(), "it is not stopped");
        assert!(pump.context.port.now().since(begin) < Duration::from_secs(9), "not found");
    }
    assert!(pump.context.port.now().since(begin) >= Duration::from_secs(5), "too soon");
    assert_eq!(shown.first(), Some(&Vec::new()), "it has just begun");
    assert_eq!(shown.last(), Some(&vec![(true, 1)]));
    drop(work.open.lock().expect("no panic").take());
    for _ in 0..3 {
        pump.turn();
    }
    assert!(pump.context.shared.silences.is_empty() && pump.waits().is_empty());
    assert!(!pump.context.looks_for_silence);
}

/// Reactors stop one after the other: task management of those that still have sessions, which
/// waits for the answers of all, does not wait for one that has gone.
#[test]
fn a_reactor_that_has_stopped_does_not_hold_up_task_management() {
    let pool = || Pool::new(POOL_BYTES).expect("memory");
    let unit = job_and_unit(file()).1;
    for is_gone in [true, false] {
        let mut target = target_of_reactors([pool(), pool()]);
        let [first, second] = &mut target.pumps[..] else { panic!("two") };
        if is_gone {
            second.stop(Duration::ZERO);
            while second.turn() {}
        }
        first.preempt_for_nobody(Key::NOBODY, &unit, &[]);
        if !is_gone {
            // The letter came behind the last look.
            second.leave();
        }
        first.letters();
        assert_eq!(first.holdings().managements, 0, "gone before: {is_gone}");
    }
}

/// A file does not become smaller while a job writes to it: the write would make it longer again.
#[test]
fn a_drain_waits_for_the_work_of_jobs() {
    let mut target = target_of(Pool::new(POOL_BYTES).expect("memory"));
    let pump = &mut target.pumps[0];
    let (job, unit) = job_and_unit(file());
    pump.begin_job(job, None);
    pump.take_job_turns();
    let io = pump.context.ios.iter().next().map(|(key, _)| key).expect("it writes");
    let (reply, replies) = std::sync::mpsc::channel();
    pump.drain(&unit, reply);
    assert!(replies.try_recv().is_err(), "the job's write is under way");
    pump.io_done(io, IoResult::Other(Ok(())));
    assert!(replies.try_recv().is_ok());
    // Work of another unit is not waited for.
    pump.take_job_turns();
    assert_eq!(pump.context.ios.len(), 1, "it goes on");
    let (_, other) = job_and_unit(file());
    let (reply, replies) = std::sync::mpsc::channel();
    pump.drain(&other, reply);
    assert!(replies.try_recv().is_ok());
}

/// The pieces of a copy are longer than all of such a pool.
#[test]
fn a_copy_gets_on_however_small_the_pool_is() {
    let mut target = target_of(Pool::new(64 << 10).expect("memory"));
    let pump = &mut target.pumps[0];
    pump.begin_job(copy_job(file()), None);
    assert_eq!(finish(pump), (512 << 10, 512 << 10));
}

/// What others hold all the time, and never give back for a copy, it does not need.
#[test]
fn a_copy_takes_what_others_leave() {
    let pool = Pool::new(POOL_BYTES).expect("memory");
    let mut target = target_of(pool.clone());
    let mut others: Vec<Buf> = std::iter::from_fn(|| pool.take(4096)).collect();
    others.pop();
    let pump = &mut target.pumps[0];
    pump.begin_job(copy_job(file()), None);
    assert_eq!(finish(pump), (512 << 10, 512 << 10));
}

/// What a limit in front of a disk lets through is not paid for once more with each try.
#[test]
fn a_copy_without_memory_costs_others_nothing() {
    let pool = Pool::new(POOL_BYTES).expect("memory");
    let mut target = target_of(pool.clone());
    let pump = &mut target.pumps[0];
    let limited = |store| Limit::new(store, FilterIndex(0), Rate::Operations(100));
    let store: Arc<dyn Store> = Arc::new(limited(file()));
    let all: Vec<Buf> = std::iter::from_fn(|| pool.take(4096)).collect();
    pump.begin_job(copy_job(Arc::clone(&store)), None);
    for _ in 0..1000 {
        assert!(pump.turn());
    }
    assert_eq!(pump.context.port.reads, 0);
    let begin = pump.context.port.now();
    // Another one comes now.
    let op = Op::Read { offset: 0, length: 512 };
    let Submitted::Io(clock) = store.submit(&op) else { panic!("it asks for the time") };
    match store.complete(&op, &clock, IoResult::Clock(begin)) {
        Submitted::Io(Io::Read { .. }) => {}
        other => panic!("it must wait: {other:?}"),
    }
    drop(all);
}
