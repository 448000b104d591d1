// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A stripe whose disks are lost again and again: what is read is what was written last.
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::time::Duration;

use initiator::Chunks;
use initiator::Completion;
use initiator::CompletionQueue;
use initiator::Config;
use initiator::Disk;
use initiator::Durability;
use initiator::Initiator as Client;
use initiator::Kind;
use initiator::Operation;
use initiator::Options;
use initiator::Paths;
use initiator::Slice;
use initiator::Space;
use initiator::Stripe;
use lunwire_conformance::Server;
use lunwire_conformance::proxy::Digests;
use lunwire_conformance::proxy::Fate;
use lunwire_conformance::proxy::Proxy;
use lunwire_conformance::server::TARGET;
use lunwire_conformance::server::plan;

const BLOCK: usize = 512;
const CHUNK: usize = 4096;

/// All is done in so many bytes at the start, and in as many at the end.
const AREA: usize = 40 * CHUNK;

/// Requests under way together, each in a part of its own of both areas.
const LANES: usize = 4;
const LANE: usize = AREA / LANES;

/// So often a disk is lost.
const CUTS: usize = 30;

/// Pseudo-random numbers (xorshift).
struct Dice(u64);

impl Dice {
    fn throw(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap() % sides
    }
}

/// One area of the disk, as it has to be.
struct Area {
    begin: u64,
    bytes: Vec<u8>,
}

/// What a request was, until it has ended.
enum Asked {
    Read { area: usize, at: usize, length: usize },
    Change,
}

struct World {
    disk: Disk,
    queue: CompletionQueue,
    areas: [Area; 2],
    dice: Dice,
}

impl World {
    /// Begins something in the blocks of a lane.
    fn begin(&mut self, lane: usize) -> Asked {
        let area = self.dice.throw(2);
        let blocks = LANE / BLOCK;
        let first = self.dice.throw(blocks);
        let length = (1 + self.dice.throw(blocks - first)) * BLOCK;
        let at = lane * LANE + first * BLOCK;
        let offset = self.areas[area].begin + at as u64;
        let durability = match self.dice.throw(3) {
            0 => Durability::Stable,
            _ => Durability::Cached,
        };
        let to = &mut self.areas[area].bytes[at..at + length];
        let (operation, asked) = match self.dice.throw(8) {
            0 => {
                to.fill(0);
                let (length, space) = (length as u64, Space::GiveBack);
                (Operation::Zero { offset, length, space, durability }, Asked::Change)
            }
            1 => (Operation::Flush, Asked::Change),
            2..=4 => (Operation::read(offset, length as u64), Asked::Read { area, at, length }),
            _ => {
                for (number, block) in to.chunks_mut(BLOCK).enumerate() {
                    let mark = u8::try_from(self.dice.throw(255)).unwrap() + 1;
                    block.fill(mark);
                    block[0] = number.to_le_bytes()[0];
                }
                let data = Slice::from(to.to_vec());
                (Operation::Write { offset, data, durability }, Asked::Change)
            }
        };
        self.disk.submit(&self.queue, lane as u64, operation).unwrap();
        asked
    }

    /// Until `is_over`.
    fn run(&mut self, is_over: &AtomicBool) {
        let mut lanes: Vec<Option<Asked>> = (0..LANES).map(|lane| Some(self.begin(lane))).collect();
        while lanes.iter().any(Option::is_some) {
            let Some(entry) = self.queue.reap() else {
                assert!(self.queue.wait(Some(Duration::from_secs(30))), "nothing ends");
                continue;
            };
            let Completion::Ended { tag, result } = entry else { continue };
            let lane = usize::try_from(tag).unwrap();
            let asked = lanes[lane].take();
            let chunks = match result {
                // The target has lost nothing, but a flush that was lost with its session may have
                // told of it.
                Err(error) if matches!(error.kind(), Kind::WritesLost) => Chunks::default(),
                result => result.unwrap(),
            };
            if let Some(Asked::Read { area, at, length }) = asked {
                let mut found = vec![0; length];
                chunks.copy_to(&mut found);
                let expected = &self.areas[area].bytes[at..at + length];
                assert!(found == expected, "other data in area {area} at {at}");
            }
            if !is_over.load(Ordering::Relaxed) {
                lanes[lane] = Some(self.begin(lane));
            }
        }
    }
}

#[test]
fn what_is_read_is_what_was_written_last_whatever_disk_is_lost() {
    let server =
        Server::start(plan(engine::Choice::Epoll, iscsi::target_role::Settings::default()));
    let plain = Digests { header: false, data: false };
    let proxies: Vec<Proxy> =
        (0..3).map(|_| Proxy::start(server.portal(), plain, |_| Fate::Pass)).collect();
    let options = |portal: SocketAddr| Options::new(portal.to_string(), Some(TARGET.to_owned()));
    let members = (0..).zip(&proxies);
    let members =
        members.map(|(lun, proxy)| Paths::new(vec![(options(proxy.portal()), lun)])).collect();
    let client = Client::start(&Config::default()).unwrap();
    let session = client.connect_stripe(Stripe { chunk: CHUNK as u64, members }).unwrap();
    let disk = Disk::open(&session, 0).unwrap();
    let ends = [0, disk.size() - AREA as u64];
    let areas = ends.map(|begin| Area { begin, bytes: vec![0; AREA] });
    let queue = CompletionQueue::new().unwrap();
    disk.watch(&queue, u64::MAX);
    for area in &areas {
        disk.write_at(area.begin, &area.bytes).unwrap();
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&is_over);
    let cuts = std::thread::spawn(move || {
        let mut dice = Dice(77);
        for _ in 0..CUTS {
            let proxy = &proxies[dice.throw(proxies.len())];
            std::thread::sleep(Duration::from_millis(40));
            match dice.throw(3) {
                0 => {
                    proxy.shut();
                    std::thread::sleep(Duration::from_millis(60));
                    proxy.open();
                }
                _ => proxy.cut(),
            }
        }
        seen.store(true, Ordering::Relaxed);
        proxies
    });
    let mut world = World { disk, queue, areas, dice: Dice(4711) };
    world.run(&is_over);
    // They are needed to the end.
    let _proxies = cuts.join().unwrap();
    for area in &world.areas {
        let mut found = vec![1; AREA];
        world.disk.read_at(area.begin, &mut found).unwrap();
        assert!(found == area.bytes);
    }
    session.logout();
}
