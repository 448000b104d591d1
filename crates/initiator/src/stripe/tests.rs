// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A stripe of disks that answer in any order, and sometimes have no room.

mod misfits;

use std::net::SocketAddr;

use buf::Slice;
use wire::scsi::capacity::Capacity;
use wire::scsi::capacity::Provisioning;
use wire::scsi::cdb::BlockCommand;
use wire::scsi::cdb::CdbView;
use wire::scsi::command;
use wire::scsi::opcode::Opcode;
use wire::scsi::status;
use wire::scsi::unmap;
use wire::scsi::vpd;
use wire::scsi::vpd::BlockLimits;
use wire::scsi::vpd::Designator;
use wire::scsi::vpd::LogicalBlockProvisioning;

use super::*;
use crate::Data;
use crate::Geometry;
use crate::limits;

const BLOCK: usize = 512;
const CHUNK: u64 = 4096;
const LONG_CHUNK: u64 = limits::CHUNK_COMMAND_MIN;

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

/// A disk as its target has it.
struct Unit {
    bytes: Vec<u8>,
    name: u8,
    block: u32,
    is_protected: bool,
    writes_back: bool,
    generation: Generation,
    flushes: usize,
    under_way: Vec<(u64, Request)>,
}

impl Unit {
    fn new(name: u8, blocks: usize) -> Self {
        Self {
            bytes: vec![0; blocks * BLOCK],
            name,
            block: 512,
            is_protected: false,
            writes_back: true,
            generation: Generation::default(),
            flushes: 0,
            under_way: Vec::new(),
        }
    }

    fn answer(&mut self, request: &Request) -> Vec<u8> {
        let view = CdbView::new(&request.cdb);
        let range = BlockCommand::parse(&request.cdb).map(|command| {
            let first = usize::try_from(command.lba).unwrap_or(0) * BLOCK;
            first..first + command.length as usize * BLOCK
        });
        let data = match &request.data {
            Data::Out(data) => data.to_vec(),
            _ => Vec::new(),
        };
        match (view.opcode(), view.byte(1), view.byte(2)) {
            (Opcode::INQUIRY, 0, _) => [&[0, 0, 5, 2, 31][..], &[0; 31]].concat(),
            (Opcode::INQUIRY, _, vpd::SUPPORTED_PAGES) => {
                vpd::page(0, 0, &[0, vpd::DEVICE_IDENTIFICATION, 0xb0, 0xb2])
            }
            (Opcode::INQUIRY, _, vpd::DEVICE_IDENTIFICATION) => {
                let mut list = Vec::new();
                Designator::Naa(vec![0x60 | self.name; 16]).emit(&mut list);
                vpd::page(0, vpd::DEVICE_IDENTIFICATION, &list)
            }
            (Opcode::INQUIRY, _, code @ vpd::BLOCK_LIMITS) => {
                let limits = BlockLimits {
                    compare_and_write_max: 64,
                    unmap_blocks_max: 1000,
                    unmap_granularity: 2,
                    ..BlockLimits::default()
                };
                vpd::page(0, code, &limits.emit())
            }
            (Opcode::INQUIRY, _, code) => {
                let all = LogicalBlockProvisioning {
                    unmap: true,
                    same: true,
                    ..LogicalBlockProvisioning::default()
                };
                vpd::page(0, code, &all.emit())
            }
            (Opcode::SERVICE_ACTION_IN_16, 0x10, _) => {
                let capacity = Capacity {
                    last_lba: (self.bytes.len() / BLOCK) as u64 - 1,
                    block_length: self.block,
                    protection: None,
                    physical_exponent: 0,
                    provisioning: Provisioning::ManagedZeros,
                    lowest_aligned_lba: 0,
                };
                capacity.emit_16().to_vec()
            }
            (Opcode::SERVICE_ACTION_IN_16, ..) => {
                let first = usize::try_from(view.u64_at(2)).unwrap();
                let is_zero = |block: &[u8]| block.iter().all(|byte| *byte == 0);
                let blocks = self.bytes.chunks(BLOCK).skip(first).map(is_zero).zip(first..);
                let list: Vec<_> = blocks
                    .map(|(zero, at)| status::Descriptor {
                        lba: at as u64,
                        blocks: 1,
                        provisioning: match zero {
                            true => status::Provisioning::Deallocated,
                            false => status::Provisioning::Mapped,
                        },
                    })
                    .take(7)
                    .collect();
                status::emit(&list)
            }
            (Opcode::MODE_SENSE_6, ..) => {
                let flags = if self.is_protected { 0x80 } else { 0 };
                let caching = if self.writes_back { 4 } else { 0 };
                [&[23, 0, flags, 0, 8, 18, caching][..], &[0; 17]].concat()
            }
            (Opcode::READ_10 | Opcode::READ_16, ..) => self.bytes[range.unwrap()].to_vec(),
            (Opcode::WRITE_10 | Opcode::WRITE_16, ..) => {
                self.bytes[range.unwrap()].copy_from_slice(&data);
                Vec::new()
            }
            (Opcode::WRITE_SAME_16, ..) => {
                let whole = &mut self.bytes[range.unwrap()];
                whole.chunks_mut(BLOCK).for_each(|block| block.copy_from_slice(&data));
                Vec::new()
            }
            (Opcode::COMPARE_AND_WRITE, ..) => {
                let (old, new) = data.split_at(data.len() / 2);
                let place = &mut self.bytes[range.unwrap()];
                assert_eq!(place, old);
                place.copy_from_slice(new);
                Vec::new()
            }
            (Opcode::UNMAP, ..) => {
                for range in unmap::View::new(&data).unwrap().ranges() {
                    let first = usize::try_from(range.lba).unwrap() * BLOCK;
                    self.bytes[first..first + range.blocks as usize * BLOCK].fill(0);
                }
                Vec::new()
            }
            (Opcode::SYNCHRONIZE_CACHE_10, ..) => {
                self.flushes += 1;
                Vec::new()
            }
            _ => Vec::new(),
        }
    }
}

struct World {
    array: Array,
    units: Vec<Unit>,
    dice: Dice,
    pool: Pool,
    now: Instant,
    /// Of ten posts so many find no room.
    full: usize,
    ended: Vec<(u64, Result<Done, Error>)>,
    told: Vec<Event>,
}

fn session(member: usize) -> SessionId {
    SessionId { index: u32::try_from(member).unwrap(), generation: 1 }
}

impl World {
    fn new(units: Vec<Unit>, seed: u64) -> Self {
        Self::with_chunks(CHUNK, units, seed)
    }

    fn with_chunks(chunk: u64, units: Vec<Unit>, seed: u64) -> Self {
        let parts = (0..units.len()).map(|at| Part {
            session: session(at),
            lun: u16::try_from(at).unwrap(),
            target: Some(format!("iqn.{at}")),
            paths: 1,
        });
        let layout = Layout::new(chunk, units.len()).unwrap();
        let id = SessionId { index: 99, generation: 0 };
        let mut world = Self {
            array: Array::new(id, layout, parts.collect()),
            units,
            dice: Dice(seed | 1),
            pool: Pool::new(1 << 24).unwrap(),
            now: Instant(1_000_000_000),
            full: 0,
            ended: Vec::new(),
            told: Vec::new(),
        };
        for member in 0..world.units.len() {
            let peer = SocketAddr::from(([127, 0, 0, 1], 3260));
            world.tell(member, Event::Up { session: session(member), peer });
        }
        world.drain();
        world
    }

    fn tell(&mut self, member: usize, event: Event) {
        self.array.handle(member, event, &self.pool, self.now);
        self.carry();
    }

    fn carry(&mut self) {
        while let Some(output) = self.array.poll_output() {
            match output {
                Output::Post { member, tag, request } if self.dice.throw(10) < self.full => {
                    let refused = (Error::new(Kind::Full), request);
                    self.array.refused(member, tag, refused, self.now);
                }
                Output::Post { member, tag, request } => {
                    self.units[member].under_way.push((tag, request));
                }
                Output::Tell(Event::Done { tag, result, .. }) => self.ended.push((tag, result)),
                Output::Tell(event) => self.told.push(event),
                Output::Close(member) => {
                    let error = None;
                    self.array.handle(
                        member,
                        Event::Ended { session: session(member), error },
                        &self.pool,
                        self.now,
                    );
                }
            }
        }
    }

    /// One of the commands under way ends.
    fn end_one(&mut self, member: usize) {
        let unit = &mut self.units[member];
        let Some(at) = unit.under_way.len().checked_sub(1) else { return };
        let at = self.dice.throw(at + 1);
        let (tag, request) = unit.under_way.remove(at);
        assert_eq!(usize::from(request.lun), member);
        let answer = unit.answer(&request);
        let data = match request.data {
            Data::In(room) => {
                let length = answer.len().min(room as usize);
                let mut buf = self.pool.take(length.max(1)).unwrap();
                buf.truncate(length);
                buf.copy_from_slice(&answer[..length]);
                Some(buf)
            }
            _ => None,
        };
        let result = Ok(Done { data, generation: unit.generation });
        self.tell(member, Event::Done { session: session(member), tag, result });
    }

    fn drain(&mut self) {
        for _ in 0..10_000 {
            self.now = self.now + std::time::Duration::from_millis(2);
            self.array.expire(&self.pool, self.now);
            self.carry();
            let member = self.dice.throw(self.units.len());
            self.end_one(member);
            if self.units.iter().all(|unit| unit.under_way.is_empty())
                && self.array.deadline().is_none()
            {
                return;
            }
        }
        panic!("it does not end");
    }

    fn post(&mut self, tag: u64, cdb: wire::iscsi::Cdb, data: Data) -> Result<(), Error> {
        let request = Request { lun: 0, cdb, data, retry: Retry::Always };
        self.array.post(tag, request, &self.pool).map_err(|(error, _)| error)?;
        self.carry();
        self.array.posted().map_err(|(error, _)| error)
    }

    /// Posts until there is room, and waits.
    fn execute(&mut self, cdb: wire::iscsi::Cdb, data: &dyn Fn() -> Data) -> Result<Done, Error> {
        while let Err(error) = self.post(7, cdb, data()) {
            assert!(matches!(error.kind(), Kind::Full), "{error}");
            self.drain();
        }
        self.drain();
        assert_eq!(self.ended.len(), 1);
        self.ended.pop().unwrap().1
    }

    fn geometry(&self) -> Geometry {
        let Stage::Up(volume) = &self.array.stage else { panic!("{:?}", self.array.stage) };
        volume.geometry
    }

    fn ended_by(&self) -> String {
        let ended = self.told.iter().find_map(|event| match event {
            Event::Ended { error: Some(error), .. } => Some(error.to_string()),
            _ => None,
        });
        ended.unwrap_or_else(|| panic!("{:?}", self.told))
    }
}

fn units() -> Vec<Unit> {
    vec![Unit::new(1, 43), Unit::new(2, 40), Unit::new(3, 64)]
}

#[test]
fn it_is_as_its_members_allow() {
    let mut world = World::new(units(), 1);
    assert!(world.array.is_up() && matches!(world.told[..], [Event::Up { .. }]));
    let known = world.geometry();
    assert_eq!((known.bytes(), known.block), (3 * 5 * CHUNK, 512), "whole chunks of the smallest");
    assert_eq!((known.compare_max, known.unmap_granularity), (8, 2));
    // A disk that is asked in the usual way says the same.
    let mut survey = Survey::default();
    while let Some((cdb, data)) = survey.question() {
        let Data::In(room) = data else {
            let result = world.execute(cdb, &|| Data::None);
            survey.answer(result).unwrap();
            continue;
        };
        let result = world.execute(cdb, &|| Data::In(room));
        survey.answer(result).unwrap();
    }
    assert_eq!(survey.geometry().unwrap(), known);
    assert_eq!(survey.names.len(), 3);
}

#[test]
fn bytes_are_where_they_belong() {
    // Short chunks, of which members are asked for several at once, and long ones.
    for (chunk, most, seed, full) in [
        (CHUNK, 40, 11, 0),
        (CHUNK, 40, 12, 0),
        (CHUNK, 40, 13, 3),
        (CHUNK, 40, 14, 6),
        (LONG_CHUNK, 400, 15, 0),
        (LONG_CHUNK, 400, 16, 3),
    ] {
        let factor = usize::try_from(chunk / CHUNK).unwrap();
        let units = [43, 40, 64].map(|blocks| blocks * factor).into_iter().zip(1..);
        let units = units.map(|(blocks, name)| Unit::new(name, blocks)).collect();
        let mut world = World::with_chunks(chunk, units, seed);
        world.full = full;
        let geometry = world.geometry();
        let blocks = usize::try_from(geometry.blocks).unwrap();
        let mut model = vec![0_u8; blocks * BLOCK];
        for turn in 0..400_u32 {
            let first = world.dice.throw(blocks);
            let count = 1 + world.dice.throw((blocks - first).min(most));
            let (lba, length) = (first as u64, u32::try_from(count).unwrap());
            let range = first * BLOCK..(first + count) * BLOCK;
            let fill = turn.to_le_bytes()[0] | 1;
            let bytes: Vec<u8> = (0..count * BLOCK).map(|at| fill ^ at.to_le_bytes()[1]).collect();
            match world.dice.throw(6) {
                0 | 1 => {
                    let cdb = geometry.write(lba, length);
                    world.execute(cdb, &|| Data::Out(Slice::from(bytes.clone()))).unwrap();
                    model[range].copy_from_slice(&bytes);
                }
                2 => {
                    let cdb = geometry.write_same(lba, length).unwrap();
                    world.execute(cdb, &|| Data::Out(Slice::from(vec![fill; BLOCK]))).unwrap();
                    model[range].fill(fill);
                }
                3 => {
                    let (cdb, list) = crate::scsi::unmap_command(lba, length);
                    world.execute(cdb, &|| Data::Out(list.clone())).unwrap();
                    model[range].fill(0);
                }
                _ => {
                    let room = u32::try_from(range.len()).unwrap();
                    let done = world.execute(geometry.read(lba, length), &|| Data::In(room));
                    assert_eq!(done.unwrap().data.as_deref().unwrap(), &model[range]);
                }
            }
        }
        let cdb = command::get_lba_status(0, 4096);
        let done = world.execute(cdb, &|| Data::In(4096)).unwrap();
        let list = status::parse(&done.data.unwrap()).unwrap();
        assert!(!list.is_empty());
        let mut at = 0;
        for run in list {
            assert_eq!(run.lba, at);
            let zeros = matches!(run.provisioning, status::Provisioning::Deallocated);
            for block in at..at + u64::from(run.blocks) {
                let first = usize::try_from(block).unwrap() * BLOCK;
                assert_eq!(model[first..first + BLOCK].iter().all(|byte| *byte == 0), zeros);
            }
            at += u64::from(run.blocks);
        }
        assert!(world.array.jobs.is_empty() && world.array.held.is_empty());
    }
}

#[test]
fn what_no_pool_has_room_for_is_refused_before_it_begins() {
    let mut world = World::new(units(), 15);
    world.pool = Pool::new(64 << 10).unwrap();
    let read = |world: &mut World, blocks: u32| {
        let cdb = world.geometry().read(0, blocks);
        world.post(1, cdb, Data::In(blocks * 512)).map_err(|error| error.kind().clone())
    };
    assert!(matches!(read(&mut world, 120), Err(Kind::Full)));
    assert!(world.units.iter().all(|unit| unit.under_way.is_empty()));
    assert!(read(&mut world, 24).is_ok());
    world.drain();
    assert!(matches!(world.ended[..], [(1, Ok(_))]));
}

#[test]
fn what_is_one_operation_stays_one() {
    let mut world = World::new(units(), 3);
    let geometry = world.geometry();
    let both = || Data::Out(Slice::from([vec![0; 1024], vec![9; 1024]].concat()));
    world.execute(geometry.compare_and_write(9, 2).unwrap(), &both).unwrap();
    assert_eq!(world.units[1].bytes[512..1536], [9; 1024]);
    let error = world.execute(geometry.compare_and_write(7, 2).unwrap(), &both).unwrap_err();
    assert!(matches!(error.kind(), Kind::Stripe(StripeError::Across { chunk: CHUNK })), "{error}");
    for opcode in [Opcode::PERSISTENT_RESERVE_IN, Opcode::MODE_SENSE_10, Opcode::REPORT_LUNS] {
        let error = world.execute(command::plain(opcode), &|| Data::In(512)).unwrap_err();
        assert!(crate::scsi::is_unsupported(&error), "{error}");
    }
    let beyond = geometry.read(geometry.blocks, 1);
    assert_eq!(world.execute(beyond, &|| Data::In(512)).unwrap_err().sense().unwrap().asc, 0x21);
}

#[test]
fn a_flush_is_one_of_all_members_and_tells_of_any_loss() {
    let mut world = World::new(units(), 4);
    let geometry = world.geometry();
    let bytes = || Data::Out(Slice::from(vec![1; 8192]));
    let mut ledger = crate::Ledger::default();
    let wrote = world.execute(geometry.write(0, 16), &bytes).unwrap();
    ledger.wrote(wrote.generation);
    let mark = ledger.mark();
    let flushed = world.execute(command::synchronize_cache(), &|| Data::None).unwrap();
    assert!(matches!(ledger.flushed(mark, flushed.generation), crate::Fate::Kept));
    assert!(world.units.iter().all(|unit| unit.flushes == 1));

    // The first part has ended when the power goes, and the second one ends after that.
    world.post(1, geometry.write(0, 16), bytes()).unwrap();
    world.end_one(0);
    world.units[0].generation.reset();
    world.post(2, geometry.read(0, 1), Data::In(512)).unwrap();
    world.end_one(0);
    world.drain();
    let write = world.ended.iter().position(|(tag, _)| *tag == 1).unwrap();
    ledger.wrote(world.ended.remove(write).1.unwrap().generation);
    world.ended.clear();
    let mark = ledger.mark();
    let flushed = world.execute(command::synchronize_cache(), &|| Data::None).unwrap();
    assert!(matches!(ledger.flushed(mark, flushed.generation), crate::Fate::Reset));
}

#[test]
fn the_first_error_of_a_range_is_told_with_its_disk() {
    let mut world = World::new(units(), 5);
    world.post(1, world.geometry().read(0, 24), Data::In(24 * 512)).unwrap();
    for member in [2, 1, 0] {
        let (tag, _) = world.units[member].under_way.pop().unwrap();
        let error = Error::new(Kind::NoPath).at_target(Some(&format!("iqn.{member}"))).at_lun(0);
        let result = match member {
            0 => {
                let data = world.pool.take(4096);
                Ok(Done { data, generation: Generation::default() })
            }
            _ => Err(error),
        };
        world.tell(member, Event::Done { session: session(member), tag, result });
    }
    let error = world.ended.pop().unwrap().1.unwrap_err();
    assert_eq!(
        error.to_string(),
        "disk 2 of the stripe, iqn.1, LUN 0: no path to the disk can be used now"
    );
    assert_eq!(error.member(), Some(1));
}

/// A range that begins in the third disk: what is wrong there comes first.
#[test]
fn the_order_of_a_range_is_not_that_of_disks() {
    let mut world = World::new(units(), 5);
    world.post(1, world.geometry().read(16, 24), Data::In(24 * 512)).unwrap();
    for member in [0, 1, 2] {
        let (tag, _) = world.units[member].under_way.pop().unwrap();
        let result = Err(Error::new(Kind::NoPath));
        world.tell(member, Event::Done { session: session(member), tag, result });
    }
    let error = world.ended.pop().unwrap().1.unwrap_err();
    assert_eq!(error.member(), Some(2));
}

#[test]
fn a_member_that_is_lost_stops_nobody_else() {
    let mut world = World::new(units(), 6);
    let geometry = world.geometry();
    let error = Error::new(Kind::NoPath);
    world.tell(1, Event::Down { session: session(1), error });
    assert!(!world.array.is_up());
    world.post(1, geometry.read(8, 1), Data::In(512)).unwrap();
    world.post(2, geometry.read(0, 1), Data::In(512)).unwrap();
    world.end_one(0);
    assert!(matches!(world.ended[..], [(2, Ok(_))]));
    let peer = SocketAddr::from(([127, 0, 0, 1], 3260));
    world.tell(1, Event::Up { session: session(1), peer });
    assert!(matches!(world.told[..], [Event::Up { .. }, Event::Down { .. }, Event::Up { .. }]));
    world.drain();
    assert_eq!(world.ended.len(), 2);
    // One that ends for good ends all.
    let error = Some(Error::new(Kind::NoPath));
    world.tell(1, Event::Ended { session: session(1), error });
    assert!(world.array.is_over());
    assert!(world.ended_by().starts_with("disk 2 of the stripe"));
    assert!(world.post(3, geometry.read(0, 1), Data::In(512)).is_err());
}

#[test]
fn another_size_is_that_of_the_smallest() {
    let mut world = World::new(units(), 7);
    for (sizes, chunks) in [([64, 64, 64], 8), ([64, 16, 64], 2), ([40, 43, 64], 5)] {
        for (unit, blocks) in world.units.iter_mut().zip(sizes) {
            unit.bytes.resize(blocks * BLOCK, 0);
        }
        let sense = wire::scsi::Sense::new(wire::scsi::SenseKey::UnitAttention, 0x2a, 9);
        world.told.clear();
        world.tell(1, Event::Attention { session: session(1), lun: 1, sense });
        world.tell(1, Event::Attention { session: session(1), lun: 0, sense });
        assert!(matches!(world.told[..], [Event::Attention { lun: 0, .. }]), "{:?}", world.told);
        let done = world.execute(command::read_capacity_16(32), &|| Data::In(32)).unwrap();
        let capacity = Capacity::parse_16(&done.data.unwrap()).unwrap();
        assert_eq!(capacity.last_lba + 1, 3 * chunks * CHUNK / 512);
        assert_eq!(world.geometry().blocks, 3 * chunks * CHUNK / 512);
    }
}

/// A cache that a member gets, or loses, while the stripe is used.
#[test]
fn it_has_a_cache_as_soon_as_a_disk_has_one() {
    let mut all = units();
    all.iter_mut().for_each(|unit| unit.writes_back = false);
    let mut world = World::new(all, 8);
    let ask = command::mode_sense_6(wire::scsi::mode::ALL_PAGES, 255);
    let says = |world: &mut World| {
        let done = world.execute(ask, &|| Data::In(255)).unwrap();
        crate::scsi::writes_back(&done.data.unwrap())
    };
    assert!(!says(&mut world) && !world.geometry().volatile_cache);
    world.units[1].writes_back = true;
    assert!(says(&mut world) && world.geometry().volatile_cache);
    world.units[1].writes_back = false;
    assert!(!says(&mut world) && !world.geometry().volatile_cache);

    // Who tells nothing any more is as before.
    world.units[2].writes_back = true;
    assert!(says(&mut world));
    world.post(1, ask, Data::In(255)).unwrap();
    let (tag, _) = world.units[2].under_way.pop().unwrap();
    let (session, result) = (session(2), Err(volume::illegal(0x20)));
    world.tell(2, Event::Done { session, tag, result });
    world.drain();
    let (_, result) = world.ended.pop().unwrap();
    assert!(crate::scsi::writes_back(&result.unwrap().data.unwrap()));
}

#[test]
fn disks_that_are_no_stripe_are_refused() {
    let refused = |change: &dyn Fn(&mut Vec<Unit>)| {
        let mut all = units();
        change(&mut all);
        World::new(all, 8).ended_by()
    };
    assert_eq!(
        refused(&|all| all[2].name = 1),
        format!("disks 1 and 3 of the stripe are the same one, naa.{}", "61".repeat(16))
    );
    assert_eq!(
        refused(&|all| all[1].block = 4096),
        "disk 2 of the stripe has blocks of 4096 bytes, and disk 1 of 512"
    );
    assert_eq!(
        refused(&|all| all[0].bytes.truncate(7 * BLOCK)),
        "disk 1 of the stripe has 3584 bytes, less than a chunk of 4096"
    );
    let mut all = units();
    all[1].is_protected = true;
    let mut world = World::new(all, 9);
    let geometry = world.geometry();
    assert!(geometry.read_only);
    let bytes = || Data::Out(Slice::from(vec![1; 512]));
    let error = world.execute(geometry.write(0, 1), &bytes).unwrap_err();
    assert!(error.to_string().contains("disk 2 of the stripe is write protected"), "{error}");
    assert!(world.units[0].bytes.iter().all(|byte| *byte == 0));
}
