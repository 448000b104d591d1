// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Targets that lose what they had acknowledged and nobody had flushed.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

use target::Io;
use target::IoResult;
use target::Op;
use target::OpError;
use target::Outcome;
use target::Slice;
use target::Store;
use target::Submitted;

use super::*;

const BLOCK: usize = 512;

/// A disk with a volatile cache. It outlives its targets.
#[derive(Debug)]
struct Ground {
    stable: Vec<u8>,
    now: Vec<u8>,
    /// Blocks that differ, or may.
    dirty: BTreeSet<usize>,
    dice: u64,
    /// Most of them at a time.
    most_dirty: usize,
    flushes: usize,
    lost: usize,
    /// Whether targets that begin from now on write through.
    is_through: bool,
    /// The next flush fails.
    fails: bool,
    /// So many writes find no space.
    lacks: usize,
    /// While this is locked nothing is written.
    hold: Arc<Mutex<()>>,
    /// What was done: kind and place.
    done: Vec<(char, u64)>,
}

/// What a target has of it.
#[derive(Debug)]
struct Lossy {
    ground: Arc<Mutex<Ground>>,
    bytes: u64,
    is_through: bool,
}

impl Ground {
    fn new() -> Arc<Mutex<Self>> {
        let bytes = vec![0; usize::try_from(BYTES).unwrap()];
        Arc::new(Mutex::new(Self {
            stable: bytes.clone(),
            now: bytes,
            dirty: BTreeSet::new(),
            dice: 7,
            most_dirty: 0,
            flushes: 0,
            lost: 0,
            is_through: false,
            fails: false,
            lacks: 0,
            hold: Arc::default(),
            done: Vec::new(),
        }))
    }

    fn write(&mut self, offset: u64, length: usize, change: impl FnOnce(&mut [u8])) {
        let start = usize::try_from(offset).unwrap();
        change(&mut self.now[start..start + length]);
        self.dirty.extend(start / BLOCK..(start + length).div_ceil(BLOCK));
        self.most_dirty = self.most_dirty.max(self.dirty.len());
    }

    fn flush(&mut self) {
        for block in std::mem::take(&mut self.dirty) {
            let range = block * BLOCK..(block + 1) * BLOCK;
            self.stable[range.clone()].copy_from_slice(&self.now[range]);
        }
    }

    /// Some blocks are those that they were before the last flush.
    fn lose(&mut self) {
        let mut dice = Dice(self.dice);
        self.dirty.retain(|_| dice.below(3) > 0);
        for block in &self.dirty {
            let range = block * BLOCK..(block + 1) * BLOCK;
            self.now[range.clone()].copy_from_slice(&self.stable[range]);
        }
        self.lost += self.dirty.len();
        self.dice = dice.below(u64::MAX) | 1;
        self.stable.clone_from(&self.now);
        self.dirty.clear();
    }
}

impl Store for Lossy {
    fn geometry(&self) -> target::Geometry {
        target::Geometry {
            bytes: self.bytes,
            read_only: false,
            discard_granularity: Some(4096),
            anchors: false,
            volatile_cache: !self.is_through,
            physical_block: 512,
            rotational: false,
        }
    }

    fn submit(&self, op: &Op) -> Submitted {
        if let Err(error) = self.geometry().check(op) {
            return Submitted::Done(Outcome::Failed(error));
        }
        if let Op::Write { .. } = op {
            let hold = Arc::clone(&self.ground.lock().unwrap().hold);
            drop(hold.lock().unwrap());
        }
        let mut ground = self.ground.lock().unwrap();
        let (offset, length) = op.range();
        let kind = match op {
            Op::Read { .. } => 'r',
            Op::Flush => 'f',
            _ => 'w',
        };
        ground.done.push((kind, offset));
        if offset + length > ground.now.len() as u64 {
            return Submitted::Done(Outcome::Failed(OpError::Range));
        }
        let outcome = match op {
            Op::Read { offset, length } => {
                let start = usize::try_from(*offset).unwrap();
                Outcome::Data(Slice::from(ground.now[start..start + *length as usize].to_vec()))
            }
            Op::Write { .. } if ground.lacks > 0 => {
                ground.lacks -= 1;
                Outcome::Failed(OpError::Space)
            }
            Op::Write { offset, data, durable } => {
                let bytes = data.to_vec();
                ground.write(*offset, bytes.len(), |to| to.copy_from_slice(&bytes));
                if *durable {
                    let start = usize::try_from(*offset).unwrap();
                    ground.stable[start..start + bytes.len()].copy_from_slice(&bytes);
                }
                Outcome::Done
            }
            Op::Clear { offset, length, .. } => {
                ground.write(*offset, usize::try_from(*length).unwrap(), |to| to.fill(0));
                Outcome::Done
            }
            Op::Flush if std::mem::take(&mut ground.fails) => Outcome::Failed(OpError::Internal),
            Op::Flush => {
                ground.flush();
                ground.flushes += 1;
                Outcome::Done
            }
            _ => Outcome::Failed(OpError::Unsupported),
        };
        if self.is_through {
            ground.flush();
        }
        Submitted::Done(outcome)
    }

    fn complete(&self, _: &Op, _: &Io, _: IoResult) -> Submitted {
        Submitted::Done(Outcome::Failed(OpError::Internal))
    }
}

fn serve_ground(listen: SocketAddr, ground: &Arc<Mutex<Ground>>, bytes: u64) -> target::Target {
    serve_disk(listen, ground, bytes, 0)
}

/// `number` tells it from others of the target.
fn serve_disk(
    listen: SocketAddr,
    ground: &Arc<Mutex<Ground>>,
    bytes: u64,
    number: u16,
) -> target::Target {
    let is_through = ground.lock().unwrap().is_through;
    let store = Arc::new(Lossy { ground: Arc::clone(ground), bytes, is_through });
    let identity = target::Identity::derive(IQN, number, "EXAMPLE", "LOSSY");
    let unit = target::LogicalUnit::new(identity, store, 512).unwrap();
    let node = target::Node::new(IQN.to_owned(), vec![(0, Arc::new(unit))]);
    let plan = target::Plan::new(vec![listen.into()], vec![node], target::Stores::new());
    target::Target::start(plan).unwrap()
}

const ANYWHERE: ([u8; 4], u16) = ([127, 0, 0, 1], 0);
const PATIENCE: Duration = Duration::from_secs(20);

/// One that writes, zeroes, flushes and reads bytes of its own, some of whose blocks are others'
/// too, until `over`; whatever it reads is what it wrote last. Gives what is there in the end.
fn write_and_verify(mut client: Client, number: u64, over: &AtomicBool) -> (u64, Vec<u8>) {
    let span = 40_001;
    let start = 777 + number * span;
    let mut model = vec![0; usize::try_from(span).unwrap()];
    let mut dice = Dice(number + 1);
    for step in 0_u64.. {
        if over.load(Ordering::Relaxed) {
            break;
        }
        let at = dice.below(span);
        let length = dice.below(span - at).min(9_000) + 1;
        let here = usize::try_from(at).unwrap();
        let range = here..here + usize::try_from(length).unwrap();
        let count = u32::try_from(length).unwrap();
        match dice.below(12) {
            0 => assert_eq!(client.ask(Kind::Flush, 0, 0, &[]), 0),
            1 | 2 => {
                assert_eq!(client.ask(Kind::Zero, start + at, count, &[]), 0);
                model[range].fill(0);
            }
            3..=6 => assert!(client.read(start + at, count) == model[range], "step {step}"),
            kind => {
                let data = vec![u8::try_from(step % 255).unwrap() + 1; range.len()];
                let fua = u16::from(kind == 7);
                client.send(Kind::Write, fua, start + at, count, &data);
                assert_eq!(client.reply().0, 0);
                model[range].copy_from_slice(&data);
            }
        }
    }
    (start, model)
}

const fn is_back(news: &News) -> bool {
    matches!(news, News::Disk(initiator::DiskEvent::Back))
}

/// The target loses its power again and again, and with it what was not flushed: clients notice
/// nothing but the pause, and in the end all is on stable storage.
#[test]
fn nothing_acknowledged_is_lost_with_a_target() {
    for (engine, keep_bytes) in [(Choice::Auto, 64 << 20), (Choice::Epoll, 256 << 10)] {
        let ground = Ground::new();
        let mut target = serve_ground(ANYWHERE.into(), &ground, BYTES);
        let portal = target.portals()[0];
        let settings = Settings { engine, keep_bytes, ..Settings::default() };
        let mut attached = attach_as(portal, PATIENCE, &settings);
        let over = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..4_u64)
            .map(|number| {
                let (client, over) = (attached.client(), Arc::clone(&over));
                std::thread::spawn(move || write_and_verify(client, number, &over))
            })
            .collect();
        for loss in 0..6 {
            std::thread::sleep(Duration::from_millis(150));
            target.stop(Duration::ZERO).unwrap();
            ground.lock().unwrap().lose();
            target = serve_ground(portal, &ground, BYTES);
            if loss == 3 {
                // Once more while they are written again.
                attached.hears(|news| matches!(news, News::WritesAgain { .. }));
            } else {
                attached.hears(is_back);
            }
        }
        std::thread::sleep(Duration::from_millis(150));
        over.store(true, Ordering::Relaxed);
        let models: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        attached.stop().unwrap();
        let ground = ground.lock().unwrap();
        assert!(ground.lost > 0, "there is nothing to lose");
        for (start, model) in models {
            let start = usize::try_from(start).unwrap();
            assert!(ground.stable[start..start + model.len()] == model, "{engine:?}");
        }
    }
}

/// Without anything that is kept a flush tells of a loss, and goes on doing so.
#[test]
fn who_keeps_nothing_tells_of_a_loss() {
    for (keep_bytes, error) in [(0, EIO), (1 << 20, 0)] {
        let ground = Ground::new();
        let target = serve_ground(ANYWHERE.into(), &ground, BYTES);
        let portal = target.portals()[0];
        let settings = Settings { keep_bytes, ..Settings::default() };
        let mut attached = attach_as(portal, PATIENCE, &settings);
        let mut client = attached.client();
        assert_eq!(client.write(0, &[1; 8192]), 0);
        target.stop(Duration::ZERO).unwrap();
        ground.lock().unwrap().lose();
        assert!(ground.lock().unwrap().lost > 0);
        let _target = serve_ground(portal, &ground, BYTES);
        assert_eq!(client.ask(Kind::Flush, 0, 0, &[]), error);
        assert_eq!(client.write(9000, &[2; 10]), 0);
        assert_eq!(client.ask(Kind::Flush, 0, 0, &[]), error);
        assert_eq!(ground.lock().unwrap().stable[..8192] == [1; 8192], error == 0);
        drop(client);
        assert_eq!(attached.stop().is_err(), error != 0);
    }
}

/// More is written than may be kept: it is flushed, and what comes waits for that, also while the
/// target is away.
#[test]
fn what_is_kept_has_a_bound() {
    let ground = Ground::new();
    let target = serve_ground(ANYWHERE.into(), &ground, BYTES);
    let portal = target.portals()[0];
    let settings = Settings { keep_bytes: 64 << 10, ..Settings::default() };
    let mut attached = attach_as(portal, PATIENCE, &settings);
    let mut client = attached.client();
    let mut target = Some(target);
    for round in 0..3_u8 {
        if round == 1 {
            target.take().unwrap().stop(Duration::ZERO).unwrap();
            ground.lock().unwrap().lose();
        }
        for at in 0..200 {
            client.send(Kind::Write, 0, at * 5000, 5000, &[round + 1; 5000]);
        }
        // Longer than all that may be kept.
        client.send(Kind::Write, 0, 2 << 20, 1 << 20, &vec![round + 1; 1 << 20]);
        if round == 1 {
            target = Some(serve_ground(portal, &ground, BYTES));
        }
        for _ in 0..201 {
            assert_eq!(client.reply().0, 0);
        }
    }
    assert_eq!(client.read(0, 1_000_000), [3; 1_000_000]);
    assert!(ground.lock().unwrap().flushes >= 6, "{}", ground.lock().unwrap().flushes);
    drop(client);
    attached.stop().unwrap();
    let ground = ground.lock().unwrap();
    assert!(ground.stable[..1_000_000] == [3; 1_000_000] && ground.stable[2 << 20] == 3);
}

/// What is on its way to the disk counts as kept, so that there is never more to lose.
#[test]
fn what_may_be_lost_has_a_bound() {
    const KEPT: usize = 64 << 10;
    let ground = Ground::new();
    let target = serve_ground(ANYWHERE.into(), &ground, BYTES);
    let settings = Settings { keep_bytes: KEPT as u64, ..Settings::default() };
    let mut attached = attach_as(target.portals()[0], PATIENCE, &settings);
    let mut client = attached.client();
    for at in 0..250 {
        client.send(Kind::Write, 0, at * 4096, 4096, &[1; 4096]);
    }
    for _ in 0..250 {
        assert_eq!(client.reply().0, 0);
    }
    assert!(ground.lock().unwrap().most_dirty * BLOCK <= KEPT);
    drop(client);
    attached.stop().unwrap();
}

/// Nothing begins before all is written again and flushed: a read would find what was there before,
/// and a write could be overtaken by an older one.
#[test]
fn nothing_begins_while_it_is_written_again() {
    let ground = Ground::new();
    let target = serve_ground(ANYWHERE.into(), &ground, BYTES);
    let portal = target.portals()[0];
    let mut attached = attach_as(portal, PATIENCE, &Settings::default());
    let (mut client, mut other) = (attached.client(), attached.client());
    for at in 0..100 {
        assert_eq!(client.write(at * 8192, &[1; 4096]), 0);
    }
    target.stop(Duration::ZERO).unwrap();
    let hold = Arc::clone(&ground.lock().unwrap().hold);
    ground.lock().unwrap().lose();
    ground.lock().unwrap().done.clear();
    let held = hold.lock().unwrap();
    let _target = serve_ground(portal, &ground, BYTES);
    client.send(Kind::Read, 0, 0, 4096, &[]);
    attached.hears(|news| matches!(news, News::WritesAgain { bytes: 409_600 }));
    other.send(Kind::Write, 0, 0, 4096, &[2; 4096]);
    // It comes to the server meanwhile.
    std::thread::sleep(Duration::from_millis(200));
    drop(held);
    assert_eq!(other.reply().0, 0);
    assert_eq!(client.reply().0, 0);
    let done = std::mem::take(&mut ground.lock().unwrap().done);
    let flush = done.iter().position(|(kind, _)| *kind == 'f').unwrap();
    let written: Vec<_> = done[..flush].iter().filter(|(kind, _)| *kind == 'w').collect();
    assert_eq!(written.len(), 100, "{written:?}");
    assert!(done[flush..].contains(&('w', 0)), "{done:?}");
    drop((client, other));
    attached.stop().unwrap();
}

/// Another disk, or less of it, comes back in the place of the one that was: nothing is written to
/// it, and all requests fail from then on.
#[test]
fn another_disk_is_not_written_to() {
    for (number, bytes) in [(1, BYTES), (0, BYTES / 2)] {
        let ground = Ground::new();
        let target = serve_ground(ANYWHERE.into(), &ground, BYTES);
        let portal = target.portals()[0];
        let mut attached = attach_as(portal, PATIENCE, &Settings::default());
        let mut client = attached.client();
        assert_eq!(client.write(BYTES - 4096, &[1; 4096]), 0);
        target.stop(Duration::ZERO).unwrap();
        let other = Ground::new();
        let _target = serve_disk(portal, &other, bytes, number);
        assert_eq!(client.ask(Kind::Flush, 0, 0, &[]), EIO);
        attached.hears(|news| matches!(news, News::Broken { may_be_lost: true, .. }));
        assert_eq!(client.ask(Kind::Read, 0, 512, &[]), EIO);
        assert_eq!(client.write(0, &[2; 512]), EIO);
        // Bytes within a block, and others that wait for them.
        client.send(Kind::Write, 0, 100, 10, &[3; 10]);
        client.send(Kind::Write, 0, 105, 10, &[3; 10]);
        assert_eq!((client.reply().0, client.reply().0), (EIO, EIO));
        assert_eq!(client.ask(Kind::Flush, 0, 0, &[]), EIO);
        assert!(other.lock().unwrap().now.iter().all(|byte| *byte == 0));
        drop(client);
        attached.stop().expect_err("what was written is lost");
    }
}

/// Who has flushed all, or has written nothing, or whose disk had no cache, has lost nothing by
/// that.
#[test]
fn another_disk_takes_nothing_of_what_was_flushed() {
    let keeps_nothing = Settings { keep_bytes: 0, ..Settings::default() };
    for settings in [Settings::default(), keeps_nothing] {
        for (writes, flushes) in [(false, false), (true, true), (true, false)] {
            let ground = Ground::new();
            let target = serve_ground(ANYWHERE.into(), &ground, BYTES);
            let portal = target.portals()[0];
            let mut attached = attach_as(portal, PATIENCE, &settings);
            let mut client = attached.client();
            if writes {
                assert_eq!(client.write(0, &[1; 4096]), 0);
            }
            if flushes {
                assert_eq!(client.ask(Kind::Flush, 0, 0, &[]), 0);
            }
            let may_be_lost = writes && !flushes;
            target.stop(Duration::ZERO).unwrap();
            let _target = serve_disk(portal, &Ground::new(), BYTES, 1);
            assert_eq!(client.ask(Kind::Read, 0, 512, &[]), EIO);
            attached.hears(|news| match news {
                News::Broken { may_be_lost: told, .. } => *told == may_be_lost,
                _ => false,
            });
            drop(client);
            assert_eq!(attached.stop().is_err(), may_be_lost);
        }
    }
}

/// Flushes fail where nothing is kept, until it is attached anew: that is told once.
#[test]
fn flushes_that_fail_for_good_are_told_of() {
    let ground = Ground::new();
    let target = serve_ground(ANYWHERE.into(), &ground, BYTES);
    let portal = target.portals()[0];
    let settings = Settings { keep_bytes: 0, ..Settings::default() };
    let mut attached = attach_as(portal, PATIENCE, &settings);
    let mut client = attached.client();
    assert_eq!(client.write(0, &[1; 4096]), 0);
    target.stop(Duration::ZERO).unwrap();
    ground.lock().unwrap().lose();
    let _target = serve_ground(portal, &ground, BYTES);
    assert_eq!(client.ask(Kind::Flush, 0, 0, &[]), EIO);
    attached.hears(|news| matches!(news, News::FlushesFail(_)));
    assert_eq!(client.ask(Kind::Flush, 0, 0, &[]), EIO);
    assert_eq!(client.write(4096, &[2; 4096]), 0);
    drop(client);
    attached.stop().expect_err("what was written may be lost");
}

/// A target that comes back does not take at once what is written again.
#[test]
fn what_is_written_again_is_tried_for_a_while() {
    let ground = Ground::new();
    let target = serve_ground(ANYWHERE.into(), &ground, BYTES);
    let portal = target.portals()[0];
    let mut attached = attach_as(portal, PATIENCE, &Settings::default());
    let mut client = attached.client();
    for at in 0..10 {
        assert_eq!(client.write(at * 8192, &[1; 4096]), 0);
    }
    target.stop(Duration::ZERO).unwrap();
    ground.lock().unwrap().lose();
    ground.lock().unwrap().lacks = 13;
    let _target = serve_ground(portal, &ground, BYTES);
    assert_eq!(client.ask(Kind::Flush, 0, 0, &[]), 0);
    for at in 0..10 {
        assert_eq!(client.read(at * 8192, 4096), [1; 4096]);
    }
    drop(client);
    attached.stop().unwrap();
    let told = attached.news.try_iter().filter(|news| matches!(news, News::WritesAgain { .. }));
    assert_eq!(told.count(), 1, "it is told again and again");
}

/// More of it: all goes on.
#[test]
fn a_disk_that_has_grown_is_written_to() {
    let ground = Ground::new();
    let target = serve_ground(ANYWHERE.into(), &ground, BYTES / 2);
    let portal = target.portals()[0];
    let mut attached = attach_as(portal, PATIENCE, &Settings::default());
    let mut client = attached.client();
    assert_eq!(client.write(0, &[1; 4096]), 0);
    target.stop(Duration::ZERO).unwrap();
    ground.lock().unwrap().lose();
    let _target = serve_ground(portal, &ground, BYTES);
    assert_eq!(client.read(0, 4096), [1; 4096]);
    attached.hears(|news| matches!(news, News::WrittenAgain));
    assert_eq!(client.write(BYTES - 1, &[1]), 0);
    drop(client);
    attached.stop().unwrap();
}

/// It says that it has more than it has: what lies behind its end fails, and nothing else. When it
/// comes back with less, and says nothing of that, what is not there any more is lost.
#[test]
fn a_target_may_lie_about_its_size() {
    let ground = Ground::new();
    let target = serve_ground(ANYWHERE.into(), &ground, 1 << 50);
    let portal = target.portals()[0];
    let mut attached = attach_as(portal, PATIENCE, &Settings::default());
    let mut client = attached.client();
    for offset in [BYTES - 512, BYTES, 1 << 49, (1 << 50) - 1024] {
        assert_ne!(client.write(offset, &[1; 1024]), 0);
        assert_ne!(client.write(offset + 1, &[1; 600]), 0);
        assert_ne!(client.ask(Kind::Read, offset, 1024, &[]), 0);
        assert_ne!(client.ask(Kind::Zero, offset, 1024, &[]), 0);
    }
    assert_eq!(client.ask(Kind::Flush, 0, 0, &[]), 0);
    assert_eq!(client.write(BYTES - 1024, &[2; 1024]), 0);
    assert_eq!(client.read(BYTES - 1024, 1024), [2; 1024]);
    target.stop(Duration::ZERO).unwrap();
    {
        let mut ground = ground.lock().unwrap();
        ground.lose();
        ground.now.truncate(usize::try_from(BYTES).unwrap() - 512);
    }
    let _target = serve_ground(portal, &ground, 1 << 50);
    assert_eq!(client.ask(Kind::Flush, 0, 0, &[]), EIO);
    attached.hears(|news| matches!(news, News::Broken { .. }));
    drop(client);
    attached.stop().expect_err("what was written is lost");
}

/// A target that wrote through comes back with a volatile cache, and goes again with what was in
/// that: from its return on all is kept, also before it has told of its cache.
#[test]
fn what_is_written_is_kept_once_the_disk_has_a_cache() {
    let ground = Ground::new();
    ground.lock().unwrap().is_through = true;
    let target = serve_ground(ANYWHERE.into(), &ground, BYTES);
    let portal = target.portals()[0];
    let mut attached = attach_as(portal, PATIENCE, &Settings::default());
    let mut client = attached.client();
    assert_eq!(client.write(0, &[1; 4096]), 0);
    target.stop(Duration::ZERO).unwrap();
    ground.lock().unwrap().is_through = false;
    // Under way while the target is away, within a block and whole.
    client.send(Kind::Write, 0, 8000, 500, &[2; 500]);
    client.send(Kind::Write, 0, 16384, 4096, &[3; 4096]);
    let target = serve_ground(portal, &ground, BYTES);
    assert_eq!((client.reply().0, client.reply().0), (0, 0));
    let cache = |is: bool| {
        use initiator::DiskEvent::Cache;
        move |news: &News| matches!(news, News::Disk(Cache { volatile }) if *volatile == is)
    };
    attached.hears(cache(true));
    for at in 0..50 {
        assert_eq!(client.write(32768 + at * 4096, &[4; 4096]), 0);
    }
    target.stop(Duration::ZERO).unwrap();
    ground.lock().unwrap().lose();
    assert!(ground.lock().unwrap().lost > 0);
    // Without a cache again: what is kept goes to it, and nothing is kept from then on.
    ground.lock().unwrap().is_through = true;
    let target = serve_ground(portal, &ground, BYTES);
    assert_eq!(client.ask(Kind::Flush, 0, 0, &[]), 0);
    attached.hears(cache(false));
    for (at, length, byte) in [(0, 4096, 1), (8000, 500, 2), (16384, 4096, 3), (32768, 204_800, 4)]
    {
        assert!(client.read(at, length).iter().all(|found| *found == byte), "{byte}");
    }
    assert_eq!(client.write(0, &[5; 4096]), 0);
    // It wrote through: nothing is lost, and no flush says that something is.
    target.stop(Duration::ZERO).unwrap();
    let target = serve_ground(portal, &ground, BYTES);
    assert_eq!(client.ask(Kind::Flush, 0, 0, &[]), 0);
    assert_eq!(client.read(0, 4096), [5; 4096]);
    drop(client);
    attached.stop().unwrap();
    drop(target);
}

#[test]
fn nothing_is_written_again_to_a_disk_that_writes_through() {
    let ground = Ground::new();
    ground.lock().unwrap().is_through = true;
    let mut target = serve_ground(ANYWHERE.into(), &ground, BYTES);
    let portal = target.portals()[0];
    let mut attached = attach_as(portal, PATIENCE, &Settings::default());
    let mut client = attached.client();
    for byte in 1..4 {
        assert_eq!(client.write(0, &[byte; 4096]), 0);
        target.stop(Duration::ZERO).unwrap();
        client.send(Kind::Write, 0, 16384, 4096, &[byte; 4096]);
        target = serve_ground(portal, &ground, BYTES);
        assert_eq!(client.reply().0, 0);
        assert_eq!(client.ask(Kind::Flush, 0, 0, &[]), 0);
    }
    assert_eq!(client.read(16384, 4096), [3; 4096]);
    drop(client);
    attached.stop().unwrap();
    let mut told = attached.news.try_iter();
    assert!(told.all(|news| !matches!(news, News::WritesAgain { .. })));
    target.stop(Duration::ZERO).unwrap();
}

/// The same while much is under way, which overlaps and shares blocks.
#[test]
fn a_cache_that_comes_and_goes_loses_nothing() {
    let ground = Ground::new();
    ground.lock().unwrap().is_through = true;
    let mut target = serve_ground(ANYWHERE.into(), &ground, BYTES);
    let portal = target.portals()[0];
    let mut attached = attach_as(portal, PATIENCE, &Settings::default());
    let over = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..4_u64)
        .map(|number| {
            let (client, over) = (attached.client(), Arc::clone(&over));
            std::thread::spawn(move || write_and_verify(client, number, &over))
        })
        .collect();
    for loss in 0..8 {
        std::thread::sleep(Duration::from_millis(100));
        target.stop(Duration::ZERO).unwrap();
        ground.lock().unwrap().lose();
        ground.lock().unwrap().is_through = loss % 3 == 1;
        target = serve_ground(portal, &ground, BYTES);
        attached.hears(is_back);
    }
    std::thread::sleep(Duration::from_millis(100));
    over.store(true, Ordering::Relaxed);
    let models: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
    attached.stop().unwrap();
    let ground = ground.lock().unwrap();
    assert!(ground.lost > 0, "there is nothing to lose");
    for (start, model) in models {
        let start = usize::try_from(start).unwrap();
        assert!(ground.stable[start..start + model.len()] == model);
    }
}

/// A unit tells that it failed to keep what it had acknowledged when it had no cache. That is kept
/// nowhere: no flush says that it is there, though a cache comes, and is lost, afterwards.
#[test]
fn a_failure_that_nothing_is_kept_of_stays_one() {
    for is_told_before in [true, false] {
        let ground = Ground::new();
        ground.lock().unwrap().is_through = true;
        let target = serve_ground(ANYWHERE.into(), &ground, BYTES);
        let portal = target.portals()[0];
        let mut attached = attach_as(portal, PATIENCE, &Settings::default());
        let (mut client, mut other) = (attached.client(), attached.client());
        assert_eq!(client.write(0, &[1; 4096]), 0);
        if is_told_before {
            ground.lock().unwrap().fails = true;
            assert_eq!(other.ask(Kind::Flush, 0, 0, &[]), EIO);
        }
        let mut target = Some(target);
        // Whatever is written again is flushed, and that tells.
        for loss in 0..1 + u8::from(is_told_before) {
            target.take().unwrap().stop(Duration::ZERO).unwrap();
            ground.lock().unwrap().lose();
            ground.lock().unwrap().is_through = false;
            target = Some(serve_ground(portal, &ground, BYTES));
            attached.hears(is_back);
            assert_eq!(other.write(8192, &[loss; 4096]), 0);
        }
        ground.lock().unwrap().fails = !is_told_before;
        assert_eq!(client.ask(Kind::Flush, 0, 0, &[]), EIO, "told before: {is_told_before}");
        drop((client, other));
        attached.stop().expect_err("what was written may be lost");
    }
}
