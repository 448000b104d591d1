// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A disk with three paths that are lost with what is on them, of which some comes late.

mod inherited;
mod modes;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use buf::Pool;
use buf::Slice;
use iscsi::initiator::Ending;
use wire::scsi::Sense;
use wire::scsi::opcode::Opcode;
use wire::scsi::vpd;
use wire::scsi::vpd::Designator;

use super::*;
use crate::Data;
use crate::Done;
use crate::Fate;
use crate::Retry;
use crate::geometry::tests::DISK;

const PATHS: usize = 3;
const BLOCKS: u64 = 4;
const BLOCK: usize = 512;
const PATIENCE: Duration = Duration::from_secs(60);

/// Pseudo-random numbers (xorshift).
struct Dice(u64);

impl Dice {
    fn throw(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap_or(0) % sides
    }
}

fn session(path: usize) -> SessionId {
    SessionId { index: u32::try_from(path).expect("a few"), generation: 1 }
}

/// A write as the target knows it: which one, and where.
#[derive(Clone, Copy, Debug)]
struct Copy {
    write: u64,
    block: u64,
}

/// A session, from the point of view of the target.
#[derive(Default)]
struct Line {
    is_up: bool,
    /// Commands under way: tag, and the write if it is one.
    under_way: Vec<(u64, Option<Copy>, Request)>,
    /// What the session before had under way, as long as none has taken its place.
    late: Vec<Copy>,
}

struct World {
    bundle: Bundle,
    lines: Vec<Line>,
    dice: Dice,
    pool: Pool,
    now: Instant,
    disk: BTreeMap<u64, u64>,
    /// How each write has ended.
    ended: BTreeMap<u64, bool>,
    names: [u8; PATHS],
    /// Who gave them.
    company: u8,
    /// Bytes of a block, and blocks, as each path tells.
    sizes: [(u32, u64); PATHS],
    /// What each path answers to MODE SENSE.
    modes: [Vec<u8>; PATHS],
    /// What questions for modes were answered with that the test has asked.
    heard: Vec<Vec<u8>>,
    /// What each path says in place of a good end: to all commands, to writes alone.
    refuses: [Option<(Refusal, Scope)>; PATHS],
    writes: u64,
    told: Vec<Event>,
    /// As the unit tells it over each path.
    generation: Generation,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// NOT READY, target port in standby state.
    Standby,
    /// There is no such unit.
    Gone,
    /// NOT READY, in process of becoming ready.
    NotReady,
    Busy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    All,
    Writes,
}

impl Refusal {
    fn error(self) -> Error {
        let (key, asc, ascq) = match self {
            Self::Busy => {
                return Error::new(Kind::Status { status: 8, sense: None, raw: Vec::new() });
            }
            Self::Standby => (2, 0x04, 0x0b),
            Self::Gone => (5, 0x25, 0x00),
            Self::NotReady => (2, 0x04, 0x01),
        };
        let sense = [0x70, 0, key, 0, 0, 0, 0, 10, 0, 0, 0, 0, asc, ascq, 0, 0, 0, 0];
        Error::new(Kind::Status { status: 2, sense: Sense::parse(&sense), raw: Vec::new() })
    }
}

impl World {
    fn new(policy: PathPolicy, seed: u64) -> Self {
        let id = SessionId { index: 99, generation: 0 };
        let sessions: Vec<_> = (0..PATHS).map(|path| (session(path), 0)).collect();
        let now = Instant(1_000_000_000);
        let patience = Patience { connect: Duration::ZERO, reconnect: PATIENCE };
        Self {
            bundle: Bundle::new(id, &sessions, policy, patience, now),
            lines: (0..PATHS).map(|_| Line::default()).collect(),
            dice: Dice(seed | 1),
            pool: Pool::new(1 << 24).expect("room"),
            now,
            disk: BTreeMap::new(),
            ended: BTreeMap::new(),
            names: [1; PATHS],
            company: 1,
            sizes: [(512, 1000); PATHS],
            modes: std::array::from_fn(|_| modes::told(true, true, false)),
            heard: Vec::new(),
            refuses: [None; PATHS],
            writes: 0,
            told: Vec::new(),
            generation: Generation::default(),
        }
    }

    fn carry(&mut self) {
        while let Some(output) = self.bundle.poll_output() {
            match output {
                Output::Post { path, tag, request } if self.lines[path].is_up => {
                    let is_write = Opcode(request.cdb.bytes[0]) == Opcode::WRITE_16;
                    let copy = match &request.data {
                        Data::Out(data) if is_write => {
                            let bytes = data.to_vec();
                            let write = u64::from_be_bytes(*bytes.first_chunk().expect("long"));
                            let block = request.cdb.bytes[9].into();
                            Some(Copy { write, block })
                        }
                        _ => None,
                    };
                    self.lines[path].under_way.push((tag, copy, request));
                }
                Output::Post { path, tag, request } => {
                    let error = Error::new(Kind::NoPath);
                    self.bundle.refused(path, tag, (error, request), self.now);
                }
                Output::Tell(Event::Done { tag, result, .. }) => {
                    self.ended.insert(tag, result.is_ok());
                    let data = result.ok().and_then(|done| done.data);
                    self.heard.extend(data.map(|data| data.to_vec()));
                }
                Output::Tell(event) => self.told.push(event),
                Output::Revive(_) | Output::Close(_) => {}
            }
        }
    }

    fn tell(&mut self, path: usize, event: Event) {
        self.bundle.handle(path, event, self.now);
        self.carry();
    }

    fn up(&mut self, path: usize) {
        // The target has ended the session before, with all that it had.
        self.lines[path] = Line { is_up: true, ..Line::default() };
        let peer = SocketAddr::from(([127, 0, 0, 1], 3260));
        self.tell(path, Event::Up { session: session(path), peer });
    }

    fn lose(&mut self, path: usize) {
        self.lines[path].is_up = false;
        let under_way = std::mem::take(&mut self.lines[path].under_way);
        for (tag, copy, _) in under_way {
            self.lines[path].late.extend(copy);
            let error = Error::new(Kind::Ending(Ending::Lost { sent: true }));
            let (session, result) = (session(path), Err(error));
            self.tell(path, Event::Done { session, tag, result });
        }
        let error = Error::new(Kind::NoPath);
        self.tell(path, Event::Down { session: session(path), error });
    }

    /// A login over another portal of the group.
    fn settle(&mut self, path: usize) {
        self.lines[path].late.clear();
        self.tell(path, Event::Settled { session: session(path) });
    }

    /// One of the commands under way ends.
    fn end(&mut self, path: usize) {
        let count = self.lines[path].under_way.len();
        if count == 0 {
            return;
        }
        let at = self.dice.throw(count);
        let (tag, copy, request) = self.lines[path].under_way.remove(at);
        let opcode = Opcode(request.cdb.bytes[0]);
        if let Some((refusal, scope)) = self.refuses[path]
            && opcode != Opcode::INQUIRY
            && (scope == Scope::All || copy.is_some())
        {
            let (session, result) = (session(path), Err(refusal.error()));
            return self.tell(path, Event::Done { session, tag, result });
        }
        let is_gone = matches!(self.refuses[path], Some((Refusal::Gone, Scope::All)));
        if let Some(copy) = copy {
            self.land(copy);
        }
        let answer = match (opcode, request.cdb.bytes[1]) {
            (Opcode::INQUIRY, 0) if is_gone => [&[0x7f, 0, 5, 2, 31][..], &[0; 31]].concat(),
            (Opcode::SERVICE_ACTION_IN_16, _) => {
                let (block, blocks) = self.sizes[path];
                let last = blocks - 1;
                [&last.to_be_bytes()[..], &block.to_be_bytes(), &[0; 20]].concat()
            }
            (Opcode::MODE_SENSE_6, _) => self.modes[path].clone(),
            (Opcode::INQUIRY, 0) => [&[0, 0, 5, 2, 31][..], &[0; 31]].concat(),
            (Opcode::INQUIRY, _) => {
                let mut list = Vec::new();
                let [company, name] = [self.company, self.names[path]];
                let naa = [&[0x60, 0, company, 0][..], &[name; 12]].concat();
                Designator::Naa(naa).emit(&mut list);
                vpd::page(0, vpd::DEVICE_IDENTIFICATION, &list)
            }
            _ => Vec::new(),
        };
        let data = matches!(request.data, Data::In(_)).then(|| {
            let mut buf = self.pool.take(answer.len().max(1)).expect("room");
            buf.truncate(answer.len());
            buf.copy_from_slice(&answer);
            buf
        });
        let result = Ok(Done { data, generation: self.generation });
        self.tell(path, Event::Done { session: session(path), tag, result });
    }

    /// What was written is on the disk: an acknowledged write changes nothing any more.
    fn land(&mut self, copy: Copy) {
        let before = self.disk.insert(copy.block, copy.write);
        let was_told = self.ended.get(&copy.write) == Some(&true);
        let changes = before.is_some_and(|before| before != copy.write);
        assert!(!(was_told && changes), "write {} came over write {before:?}", copy.write);
    }

    fn land_late(&mut self, path: usize) {
        let late = &mut self.lines[path].late;
        if let Some(at) = late.len().checked_sub(1) {
            let at = self.dice.throw(at + 1);
            let copy = self.lines[path].late.remove(at);
            self.land(copy);
        }
    }

    fn write(&mut self) {
        self.writes += 1;
        let block = self.dice.throw(usize::try_from(BLOCKS).expect("a few")) as u64;
        let mut bytes = vec![0; BLOCK];
        bytes[..8].copy_from_slice(&self.writes.to_be_bytes());
        let data = Data::Out(Slice::from(bytes));
        let mut cdb = DISK.write(block, 1);
        cdb.bytes = [0; 32];
        (cdb.bytes[0], cdb.bytes[9], cdb.bytes[13]) = (Opcode::WRITE_16.0, 0, 1);
        cdb.bytes[9] = u8::try_from(block).expect("a few");
        cdb.len = 16;
        let request = Request { lun: 0, cdb, data, retry: Retry::Always };
        self.bundle.post(self.writes, request, self.now).expect("it is open");
        self.carry();
        self.bundle.posted().expect("there is room");
    }

    fn wait(&mut self, time: Duration) {
        self.now = self.now + time;
        if self.bundle.deadline().is_some_and(|at| at <= self.now) {
            self.bundle.expire(self.now);
        }
        self.carry();
    }

    /// All paths are up and everything ends.
    fn drain(&mut self) {
        for path in 0..PATHS {
            if !self.lines[path].is_up {
                self.up(path);
            }
        }
        for _ in 0..400 {
            for path in 0..PATHS {
                self.end(path);
            }
            self.wait(Duration::from_millis(10));
        }
    }
}

fn run(policy: PathPolicy, seed: u64) {
    let mut world = World::new(policy, seed);
    world.drain();
    for _ in 0..400 {
        let path = world.dice.throw(PATHS);
        match world.dice.throw(16) {
            0 if world.lines[path].is_up && world.dice.throw(3) == 0 => world.lose(path),
            1 | 2 if !world.lines[path].is_up => world.up(path),
            3 if !world.lines[path].is_up => world.settle(path),
            4 | 5 => world.land_late(path),
            6..=9 if world.writes - (world.ended.len() as u64) < 8 => world.write(),
            10 => world.wait(Duration::from_millis(30)),
            _ => world.end(path),
        }
    }
    world.drain();
    assert_eq!(world.ended.len() as u64, world.writes, "seed {seed}: all end");
    assert!(world.ended.values().all(|good| *good), "seed {seed}: no path costs anything");
    for path in 0..PATHS {
        world.lose(path);
        while !world.lines[path].late.is_empty() {
            world.land_late(path);
        }
    }
}

#[test]
fn nothing_that_comes_late_comes_over_what_was_told() {
    for policy in [PathPolicy::Failover, PathPolicy::RoundRobin, PathPolicy::LeastQueued] {
        for seed in 1..=500 {
            run(policy, seed * 7919);
        }
    }
}

#[test]
fn another_disk_is_not_used() {
    let mut world = World::new(PathPolicy::RoundRobin, 1);
    world.names[2] = 2;
    world.drain();
    let ended = world.told.iter().any(|event| {
        matches!(event, Event::Path { path: 2, .. })
            || matches!(event, Event::Ended { error: Some(_), .. })
    });
    let error = world.bundle.post(1, request(), world.now).map_err(|(error, _)| error);
    assert!(ended || matches!(error.unwrap_err().kind(), Kind::OtherPath { .. }));
}

/// A session that has taken the place of a lost one knows no better.
/// Two targets may have given it to two disks.
#[test]
fn a_name_within_a_target_does_not_join_paths_by_several() {
    for spans in [false, true] {
        let mut world = World::new(PathPolicy::LeastQueued, 1);
        world.company = 0;
        if spans {
            world.bundle.spans_targets();
        }
        world.drain();
        let posted = world.bundle.post(1, request(), world.now).map_err(|(error, _)| error);
        match posted {
            Ok(()) => assert!(!spans),
            Err(error) => assert!(spans && matches!(error.kind(), Kind::LocalName { .. })),
        }
    }
}

#[test]
fn a_path_that_comes_back_tells_of_no_loss_that_others_would_know() {
    let mut world = World::new(PathPolicy::Failover, 5);
    world.drain();
    let tells = |world: &mut World, path| {
        world.told.clear();
        let fate = Fate::Reset;
        world.tell(path, Event::MayHaveLost { session: session(path), lun: 0, fate });
        world.told.iter().any(|event| matches!(event, Event::MayHaveLost { .. }))
    };
    assert!(tells(&mut world, 0), "it has been there all the time");
    world.lose(1);
    assert!(!tells(&mut world, 1));
    assert!(tells(&mut world, 2));
    world.lose(0);
    world.lose(2);
    assert!(tells(&mut world, 1), "nobody was there");
}

/// Some are on their way back when the last one goes that has been there all the time.
#[test]
fn the_first_path_that_is_back_tells_of_a_loss_that_nobody_has_heard_of() {
    let mut world = World::new(PathPolicy::LeastQueued, 7);
    world.drain();
    world.lose(0);
    world.lose(1);
    world.up(0);
    world.lose(2);
    world.told.clear();
    let fate = Fate::Reset;
    world.tell(0, Event::MayHaveLost { session: session(0), lun: 0, fate });
    assert!(world.told.iter().any(|event| matches!(event, Event::MayHaveLost { .. })));
    world.generation.reset();
    for _ in 0..50 {
        world.end(0);
        world.wait(Duration::from_millis(50));
    }
    world.write();
    world.end(0);
    assert_eq!(world.ended.get(&1), Some(&true));
    assert!(world.bundle.generation.is_reset_since(Generation::default()));
}

/// One that says nothing keeps nobody waiting for longer than a second.
#[test]
fn who_has_a_path_does_not_wait_for_all() {
    let mut world = World::new(PathPolicy::Failover, 13);
    world.up(1);
    for _ in 0..45 {
        world.end(1);
        world.wait(Duration::from_millis(20));
    }
    assert!(!world.bundle.is_up(), "the others may be better");
    world.wait(Duration::from_millis(100));
    assert!(world.bundle.is_up());
}

/// A path that was never there knows nothing; one that was knows that nothing has happened.
#[test]
fn a_path_without_a_past_that_comes_first_may_have_missed_a_loss() {
    for (first, is_lost) in [(2, true), (1, false)] {
        let mut world = World::new(PathPolicy::Failover, 11);
        let run = |world: &mut World| {
            for _ in 0..100 {
                (0..PATHS).for_each(|path| world.end(path));
                world.wait(Duration::from_millis(20));
            }
        };
        (0..2).for_each(|path| world.up(path));
        run(&mut world);
        assert!(world.bundle.is_up());
        (0..2).for_each(|path| world.lose(path));
        world.told.clear();
        world.up(first);
        run(&mut world);
        assert!(world.bundle.is_up());
        assert_eq!(world.bundle.generation.is_reset_since(Generation::default()), is_lost);
        let told = world.told.iter().any(|event| matches!(event, Event::MayHaveLost { .. }));
        assert_eq!(told, is_lost);
    }
}

/// It was there all the time, and is asked for its groups when a path comes that was not.
#[test]
fn what_a_path_is_asked_first_keeps_nobody_from_hearing_it() {
    let mut world = World::new(PathPolicy::Failover, 13);
    let ends = |world: &mut World, path: usize| {
        for _ in 0..60 {
            world.end(path);
            world.wait(Duration::from_millis(20));
        }
    };
    world.up(1);
    ends(&mut world, 1);
    assert!(world.bundle.is_up());
    let now = world.now;
    world.bundle.paths[1].ask(Question::Groups, now);
    world.wait(Duration::from_millis(1));
    world.generation.reset();
    world.up(0);
    ends(&mut world, 0);
    assert!(world.bundle.paths[0].rank().is_none(), "the other one knows more");
    (0..3).for_each(|_| ends(&mut world, 1));
    assert!(world.bundle.generation.is_reset_since(Generation::default()));
    ends(&mut world, 0);
    assert!(world.bundle.paths[0].rank().is_some());
}

fn request() -> Request {
    let cdb = wire::scsi::command::plain(Opcode::TEST_UNIT_READY);
    Request { lun: 0, cdb, data: Data::None, retry: Retry::Always }
}

#[test]
fn without_a_path_what_waits_fails_in_time() {
    let mut world = World::new(PathPolicy::Failover, 3);
    world.drain();
    world.write();
    for path in 0..PATHS {
        world.lose(path);
    }
    world.wait(PATIENCE / 2);
    assert!(world.ended.is_empty());
    world.wait(PATIENCE);
    assert_eq!(world.ended.get(&1), Some(&false));
}

/// What has happened to a path since it was asked last.
fn changes(world: &mut World, path: usize) -> Vec<PathChange> {
    let told = world.told.drain(..).filter_map(|event| match event {
        Event::Path { path: of, change, .. } if of == path => Some(change),
        _ => None,
    });
    told.collect()
}

/// Names may lie: written over both, one of such disks would have what belongs to the other.
#[test]
fn disks_of_one_name_and_another_size_are_not_one() {
    for other in [(4096, 1000), (512, 999)] {
        let mut world = World::new(PathPolicy::RoundRobin, 1);
        world.sizes[1] = other;
        world.drain();
        let error = world.bundle.post(1, request(), world.now).map_err(|(error, _)| error);
        assert!(matches!(error.unwrap_err().kind(), Kind::OtherSize { .. }), "{other:?}");
        // One that comes back may have been given more blocks, and no others.
        let mut world = World::new(PathPolicy::RoundRobin, 1);
        world.drain();
        world.lose(1);
        changes(&mut world, 1);
        world.sizes[1] = other;
        world.drain();
        let changes = changes(&mut world, 1);
        match other {
            (512, _) => assert!(matches!(changes[..], [PathChange::Back]), "{changes:?}"),
            _ => assert!(matches!(changes[..], [PathChange::Refused(_)]), "{changes:?}"),
        }
        world.write();
        world.drain();
        assert_eq!(world.ended.get(&1), Some(&true));
    }
}

/// A unit that is taken away behind one path is there behind the others.
/// What it is like is not known: it may have other blocks, or take no writes.
#[test]
fn a_path_that_is_not_ready_carries_nothing_before_it_is_known() {
    for (block, is_used) in [(512, true), (4096, false)] {
        let mut world = World::new(PathPolicy::RoundRobin, 1);
        world.drain();
        world.lose(1);
        drop(changes(&mut world, 1));
        world.refuses[1] = Some((Refusal::NotReady, Scope::All));
        world.sizes[1] = (block, 1000);
        world.drain();
        assert!(world.bundle.paths[1].rank().is_none() && changes(&mut world, 1).is_empty());
        for _ in 0..6 {
            world.write();
        }
        world.drain();
        assert!((1..=6).all(|write| world.ended.get(&write) == Some(&true)), "{:?}", world.ended);
        world.refuses[1] = None;
        world.drain();
        let changes = changes(&mut world, 1);
        let is_back = matches!(changes[..], [PathChange::Back]);
        assert!(is_back == is_used && changes.len() == 1, "{block}: {changes:?}");
    }
}

#[test]
fn a_path_that_never_was_of_use_is_told_of_once() {
    let mut world = World::new(PathPolicy::RoundRobin, 1);
    world.up(0);
    for _ in 0..200 {
        world.end(0);
        world.wait(Duration::from_millis(10));
    }
    world.write();
    world.end(0);
    assert!(changes(&mut world, 1).is_empty(), "nothing is known of it");
    for _ in 0..3 {
        world.lose(1);
        world.wait(Duration::from_secs(1));
    }
    assert!(matches!(changes(&mut world, 1)[..], [PathChange::Lost(_)]));
    world.drain();
    assert!(matches!(changes(&mut world, 1)[..], [PathChange::Back]));
}

#[test]
fn a_path_that_is_busy_costs_no_command() {
    for (policy, refusal) in [
        (PathPolicy::RoundRobin, Refusal::Busy),
        (PathPolicy::Failover, Refusal::Busy),
        (PathPolicy::Failover, Refusal::NotReady),
    ] {
        let mut world = World::new(policy, 1);
        world.drain();
        drop(changes(&mut world, 0));
        world.refuses[0] = Some((refusal, Scope::All));
        for _ in 0..6 {
            world.write();
        }
        world.drain();
        assert!((1..=6).all(|write| world.ended.get(&write) == Some(&true)), "{:?}", world.ended);
        assert!(matches!(changes(&mut world, 0)[..], [PathChange::Lost(_)]));
        world.refuses[0] = None;
        world.drain();
        assert!(matches!(changes(&mut world, 0)[..], [PathChange::Back]));
        // All are, for longer than anybody waits.
        world.refuses = [Some((refusal, Scope::All)); PATHS];
        world.write();
        world.drain();
        assert_eq!(world.ended.get(&7), None);
        world.wait(PATIENCE);
        assert_eq!(world.ended.get(&7), Some(&false));
    }
}

#[test]
fn a_unit_that_is_gone_behind_one_path_costs_no_command() {
    let mut world = World::new(PathPolicy::RoundRobin, 1);
    world.drain();
    changes(&mut world, 0);
    world.refuses[0] = Some((Refusal::Gone, Scope::All));
    for _ in 0..6 {
        world.write();
        world.drain();
    }
    assert!(world.ended.len() == 6 && world.ended.values().all(|good| *good));
    let lost = changes(&mut world, 0);
    assert!(matches!(lost[..], [PathChange::Lost(_)]), "{lost:?}");
    world.refuses[0] = None;
    world.drain();
    let back = changes(&mut world, 0);
    assert!(matches!(back[..], [PathChange::Back]), "{back:?}");
    // Behind none of them: commands wait for it.
    world.refuses = [Some((Refusal::Gone, Scope::All)); PATHS];
    world.write();
    world.drain();
    assert_eq!(world.ended.len(), 6);
    world.refuses = [None; PATHS];
    world.drain();
    assert_eq!(world.ended.get(&7), Some(&true));
}

/// One without target port groups has nothing but its answers to tell that it takes commands again.
#[test]
fn a_path_without_groups_is_taken_back_when_it_takes_commands() {
    let mut world = World::new(PathPolicy::LeastQueued, 1);
    world.drain();
    world.refuses = [Some((Refusal::Standby, Scope::All)); PATHS];
    world.write();
    world.drain();
    assert!(world.ended.is_empty());
    world.refuses = [None; PATHS];
    world.drain();
    assert_eq!(world.ended.get(&1), Some(&true));
}

#[test]
fn a_command_that_all_paths_refuse_for_ever_ends() {
    for refusal in [Refusal::Standby, Refusal::Gone] {
        let mut world = World::new(PathPolicy::LeastQueued, 1);
        world.drain();
        // All but this command is as it should be.
        world.refuses = [Some((refusal, Scope::Writes)); PATHS];
        world.write();
        for _ in 0..20 {
            world.drain();
        }
        assert_eq!(world.ended.get(&1), Some(&false), "{refusal:?}");
        world.refuses = [None; PATHS];
        world.drain();
        world.write();
        world.drain();
        assert_eq!(world.ended.get(&2), Some(&true), "{refusal:?}");
    }
}

/// Another disk has come in the place of the one that was, behind all paths: nobody waits for it.
#[test]
fn when_all_paths_lead_to_another_disk_all_is_over() {
    let mut world = World::new(PathPolicy::LeastQueued, 1);
    world.drain();
    world.write();
    for path in 0..PATHS {
        world.lose(path);
    }
    world.names = [2; PATHS];
    world.told.clear();
    world.drain();
    let refused =
        |event: &&Event| matches!(event, Event::Path { change: PathChange::Refused(_), .. });
    assert_eq!(world.told.iter().filter(refused).count(), PATHS);
    assert_eq!(world.ended.get(&1), Some(&false));
    let error = world.bundle.post(2, request(), world.now).map_err(|(error, _)| error);
    assert!(matches!(error.unwrap_err().kind(), Kind::OtherPath { .. }));
}

/// All are waited for a second when one is there, and no longer.
/// Users that tell others to come later must hear of it, whatever has become of each path.
#[test]
fn that_no_path_is_left_is_told_though_some_have_a_session() {
    let downs = |world: &World| {
        let is_down = |event: &&Event| matches!(event, Event::Down { .. });
        world.told.iter().filter(is_down).count()
    };
    let mut world = World::new(PathPolicy::LeastQueued, 1);
    world.drain();
    world.lose(1);
    world.names[1] = 2;
    world.refuses[2] = Some((Refusal::Gone, Scope::All));
    world.drain();
    world.write();
    world.drain();
    assert_eq!((world.ended.get(&1), downs(&world)), (Some(&true), 0), "path 0 is left");
    world.lose(0);
    world.write();
    world.wait(limits::PATHS_DOWN_AFTER);
    assert_eq!((world.ended.get(&2), downs(&world)), (None, 1));
    world.wait(limits::PATHS_DOWN_AFTER);
    assert_eq!(downs(&world), 1, "once is enough");
    world.told.clear();
    world.drain();
    assert!(world.told.iter().any(|event| matches!(event, Event::Up { .. })));
    assert_eq!(world.ended.get(&2), Some(&true));
    world.refuses = [Some((Refusal::Standby, Scope::All)); PATHS];
    world.write();
    world.drain();
    assert_eq!(downs(&world), 0, "that takes a while");
    world.wait(limits::PATHS_DOWN_AFTER);
    assert_eq!((world.ended.get(&3), downs(&world)), (None, 1));
}

#[test]
fn a_path_that_is_silent_from_the_beginning_is_not_waited_for() {
    let mut world = World::new(PathPolicy::LeastQueued, 1);
    world.up(0);
    for _ in 0..20 {
        world.end(0);
    }
    let is_up = |world: &World| world.told.iter().any(|event| matches!(event, Event::Up { .. }));
    world.wait(limits::PATHS_OPEN_PATIENCE / 2);
    assert!(!is_up(&world), "the others may come");
    world.wait(limits::PATHS_OPEN_PATIENCE);
    assert!(is_up(&world));
    assert!(world.bundle.deadline().is_none_or(|at| at > world.now), "it is looked at for ever");
}

#[test]
fn where_no_path_leads_to_a_unit_that_is_told_at_once() {
    let mut world = World::new(PathPolicy::LeastQueued, 1);
    world.bundle.patience.connect = PATIENCE;
    world.refuses = [Some((Refusal::Gone, Scope::All)); PATHS];
    for path in 0..PATHS {
        world.up(path);
    }
    for _ in 0..3 {
        (0..PATHS).for_each(|path| world.end(path));
    }
    let error = world.bundle.post(1, request(), world.now).map_err(|(error, _)| error);
    assert!(matches!(error.unwrap_err().kind(), Kind::NotADisk(_)));
}
