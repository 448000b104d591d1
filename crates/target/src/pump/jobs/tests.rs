// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A job without a buffer, over a port whose clock is what the pump waits for.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
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
use iscsi::datamover::TaskId;
use scsi::Identity;
use scsi::LogicalUnit;
use scsi::Nexus;
use scsi::NexusNames;
use scsi::Request;
use scsi::Step;
use store::FileId;
use store::Geometry;
use store::Io;
use store::Layer;
use store::Op;
use store::Store;
use store::filter::Delay;
use store::filter::Delayed;
use store::null::Null;
use wire::iscsi::Attribute;
use wire::iscsi::LunField;
use wire::scsi::command::plain;
use wire::scsi::opcode::Opcode;

use super::WAIT;
use super::id_of;
use crate::authentication::AuthenticationPolicy;
use crate::solo::Solo;
use crate::solo::SoloPlan;
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

fn solo(pool: Pool) -> Solo<Desk> {
    let now = Instant(1_000_000_000);
    let desk = Desk { now, waits: 0, reads: 0, waker: Waker::new().expect("a descriptor") };
    let plan = SoloPlan {
        portals: Vec::new(),
        nodes: Vec::new(),
        discovery: AuthenticationPolicy::default(),
        pool,
        login_timeout: Duration::from_secs(1),
        hold_back: Duration::ZERO,
        sessions_max: 1,
        connections: crate::ConnectionLimits::default(),
    };
    Solo::new(desk, plan, Vec::new())
}

/// FORMAT UNIT of a disk in a file, as a job.
fn job_on_file() -> scsi::Task {
    let geometry = Geometry {
        bytes: 1 << 20,
        read_only: false,
        anchors: false,
        discard_granularity: None,
        volatile_cache: false,
        physical_block: 4096,
        rotational: false,
    };
    job(Arc::new(store::file::File::new(FileId(0), geometry, false)))
}

/// FORMAT UNIT of a disk, as a job.
fn job(store: Arc<dyn Store>) -> scsi::Task {
    let identity = Identity::derive("iqn.t", 0, "LUNWIRE", "disk");
    let unit = Arc::new(LogicalUnit::new(identity, store, 512).expect("a unit"));
    let names = NexusNames {
        initiator_port: "iqn.i,i,0x1".to_owned(),
        target_device: "iqn.t".to_owned(),
        portal_group_tag: 1,
        relative_port: 1,
    };
    let nexus = Nexus::new(names, vec![(0, unit)]);
    // The unit tells of power on first.
    drop(nexus.start(&request(Opcode::TEST_UNIT_READY)));
    match nexus.start(&request(Opcode::FORMAT_UNIT)).1 {
        Step::Spawn { job, .. } => *job,
        other => panic!("no job but {other:?}"),
    }
}

/// A command of six bytes, all zero but the first.
fn request(opcode: Opcode) -> Request {
    let (lun, cdb) = (LunField([0; 8]), plain(opcode));
    Request { lun, cdb, attribute: Attribute::Simple, expected_out: 0, expected_in: 0 }
}

/// All of the pool.
fn drain(pool: &Pool) -> Vec<Buf> {
    std::iter::from_fn(|| pool.take(LENGTH as usize)).collect()
}

#[test]
fn a_job_without_a_buffer_rests_between_its_tries() {
    let pool = Pool::new(POOL_BYTES).expect("memory");
    let mut solo = solo(pool.clone());
    let pump = &mut solo.pump;
    pump.spawn(Key::NOBODY, TaskId { index: 0, generation: 0 }, job_on_file(), None);
    let (key, _) = pump.job_turns.pop_front().expect("its first turn");
    let all = drain(&pool);
    let io = Io::Read { file: FileId(0), offset: 0, length: LENGTH };
    pump.submit_io(Key::NOBODY, id_of(key), Op::Read { offset: 0, length: LENGTH }, io);

    let begin = pump.port.now();
    let tries = 100;
    for _ in 0..tries {
        assert!(pump.turn(), "it is not stopped");
    }
    assert_eq!(pump.port.reads, 0, "there is no buffer");
    assert_eq!(pump.port.waits, tries);
    assert!(pump.port.now().since(begin) >= WAIT * 99, "it spins");

    drop(all);
    assert!(pump.turn());
    assert_eq!(pump.port.reads, 1, "it goes on when there is one");
}

#[test]
fn a_stop_does_not_wait_for_the_pause_of_a_job() {
    let mut solo = solo(Pool::new(POOL_BYTES).expect("memory"));
    let pump = &mut solo.pump;
    let hour = Duration::from_secs(3600);
    let null = Null::new(1 << 20).expect("a size");
    // The second pause would begin when the first one has ended.
    let inner = Delay::new(Arc::new(null), Layer(0), Delayed::All, hour);
    let store = Arc::new(Delay::new(Arc::new(inner), Layer(1), Delayed::All, hour));
    pump.spawn(Key::NOBODY, TaskId { index: 0, generation: 0 }, job(store), None);
    pump.take_job_turns();
    assert_eq!(pump.ios.len(), 1, "it is in its first pause");

    let begin = pump.port.now();
    pump.stop(Duration::from_secs(2));
    while pump.turn() {
        assert!(pump.port.now().since(begin) < hour, "the pause holds the stop up");
    }
}
