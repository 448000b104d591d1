// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A DVD that several hosts share, each of which reads all of it and looks at each block; and who
//! may see what: an access list, by what comes of logins and commands.

use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use initiator::scsi::report_luns;
use initiator::{Data, Event, Geometry, Kind, Queue, Request, Retry, SessionId};
use scsi::{Identity, LogicalUnit};
use store::spec::Spec;
use target::{AccessRule, Node, Plan, Stores, Target};

use crate::Error;
use crate::measure::real;
use crate::workplace::{Workplace, lacks_room};

const TARGET: &str = "iqn.2026-01.local.lunwire:lab";

/// Of a disc.
const BLOCK: u32 = 2048;

/// Bytes of a read, and how many are under way for a host.
const READ: u32 = 64 << 10;
const DEPTH: u64 = 4;

/// So long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// What hosts are called.
fn host(number: usize) -> String {
    format!("iqn.2026-01.local.lunwire:host-{number}")
}

/// What came of hosts that read one disc at once.
#[derive(Clone, Debug)]
pub(in crate::ibm) struct Shared {
    pub(in crate::ibm) hosts: usize,
    /// MB/s of all together, each round.
    pub(in crate::ibm) rates: Vec<f64>,
    /// Blocks that were as they should be, and all that were to be read.
    pub(in crate::ibm) blocks: [u64; 2],
    /// Writes that were refused, and all that were tried.
    pub(in crate::ibm) refused: [u64; 2],
}

/// A disc in a drive that hosts reach by TCP.
pub(super) struct Drive {
    target: Target,
    blocks: u64,
    _folder: Workplace,
}

impl Drive {
    /// The reason, where there is no room for the disc.
    pub(super) fn start(bytes: u64) -> Result<Self, String> {
        let folder = Workplace::new().map_err(|error| error.to_string())?;
        let path = folder.path().join("disc.iso");
        let blocks = bytes / u64::from(BLOCK);
        burn(&path, blocks)?;
        Self::insert(folder, &path, blocks).map_err(Error::why)
    }

    fn insert(folder: Workplace, path: &Path, blocks: u64) -> Result<Self, Error> {
        let mut stores = Stores::new();
        let spec = Spec::Iso { path: path.to_string_lossy().into_owned() };
        let store = stores.open(&spec).map_err(Error::rig)?;
        let identity = Identity::derive(TARGET, 0, "LUNWIRE", "DVD");
        let unit = LogicalUnit::optical(identity, store).map_err(Error::rig)?;
        let node = Node::new(TARGET.to_owned(), vec![(0, Arc::new(unit))]);
        Ok(Self { target: serve(node, stores)?, blocks, _folder: folder })
    }

    /// So many hosts read all of it, each in a thread with a session of its own, and then try to
    /// write to it.
    pub(super) fn read_all(&self, hosts: usize, rounds: usize) -> Result<Shared, Error> {
        let mut shared = Shared { hosts, rates: Vec::new(), blocks: [0; 2], refused: [0; 2] };
        let all = Barrier::new(hosts);
        for _ in 0..rounds {
            let of_each = std::thread::scope(|scope| {
                let work = |number| {
                    scope.spawn({
                        let all = &all;
                        move || self.one_host(number, all)
                    })
                };
                let hosts: Vec<_> = (0..hosts).map(work).collect();
                let ended = hosts.into_iter().map(|host| host.join());
                ended.collect::<Vec<_>>()
            });
            let mut longest = 0.0_f64;
            for ended in of_each {
                let read = ended.map_err(|_| Error::rig("a host has panicked"))??;
                longest = longest.max(read.seconds);
                shared.blocks = [shared.blocks[0] + read.good, shared.blocks[1] + self.blocks];
                shared.refused = [shared.refused[0] + read.refused, shared.refused[1] + 1];
            }
            let bytes = real(self.blocks * hosts as u64) * f64::from(BLOCK);
            shared.rates.push(bytes / 1e6 / longest);
        }
        Ok(shared)
    }

    fn one_host(&self, number: usize, all: &Barrier) -> Result<Read, Error> {
        let begun = log_in(&self.target, number);
        // Nobody waits for one that has failed.
        all.wait();
        let (mut queue, session) = begun?;
        let start = Instant::now();
        let good = read_disc(&mut queue, session, self.blocks)?;
        let seconds = start.elapsed().as_secs_f64();
        let block = queue.pool().take(BLOCK as usize).ok_or(Error::Memory(BLOCK as usize))?;
        let write = Request {
            lun: 0,
            cdb: plain(self.blocks).write(0, 1),
            data: Data::Out(block.freeze()),
            retry: Retry::Always,
        };
        let refused = queue.execute(session, write).is_err_and(|error| error.sense().is_some());
        queue.logout(session);
        Ok(Read { good, seconds, refused: u64::from(refused) })
    }

    pub(super) fn end(self) -> Result<(), Error> {
        self.target.stop(Duration::ZERO).map_err(Error::rig)
    }
}

/// What one host has read.
struct Read {
    good: u64,
    seconds: f64,
    refused: u64,
}

/// What each block has in it: its number, and what follows of that.
fn block(number: u64, to: &mut Vec<u8>) {
    to.clear();
    for word in 0..u64::from(BLOCK) / 8 {
        let mixed = (number << 8 | word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        to.extend((mixed ^ mixed >> 29).to_le_bytes());
    }
}

fn burn(path: &Path, blocks: u64) -> Result<(), String> {
    let burnt = || {
        let mut file = BufWriter::new(std::fs::File::create(path)?);
        let mut bytes = Vec::new();
        (0..blocks).try_for_each(|number| {
            block(number, &mut bytes);
            file.write_all(&bytes)
        })?;
        file.flush()
    };
    let below = path.parent().unwrap_or(path);
    burnt().map_err(|error| lacks_room(below, blocks * u64::from(BLOCK), error))
}

/// How a disc is read: what else it is like says nothing here.
fn plain(blocks: u64) -> Geometry {
    Geometry {
        block: BLOCK,
        blocks,
        transfer_max: READ / BLOCK,
        unmap_max: 0,
        unmap_granularity: 0,
        unmap_alignment: 0,
        same_max: 0,
        compare_max: 0,
        unmap_zeros: false,
        physical: BLOCK,
        read_only: true,
        volatile_cache: false,
        write_through: false,
        protection: None,
    }
}

/// Reads it from the first block to the last; gives how many were as they should be.
fn read_disc(queue: &mut Queue, session: SessionId, blocks: u64) -> Result<u64, Error> {
    let geometry = plain(blocks);
    let each = u64::from(READ / BLOCK);
    let mut good = 0;
    let mut expected = Vec::new();
    let (mut next, mut under_way) = (0, 0);
    loop {
        while next < blocks && under_way < DEPTH {
            let count = each.min(blocks - next);
            let count = u32::try_from(count).map_err(Error::rig)?;
            let data = Data::In(count * BLOCK);
            let request =
                Request { lun: 0, cdb: geometry.read(next, count), data, retry: Retry::Always };
            queue.post(session, next, request).map_err(|(error, _)| Error::rig(error))?;
            next += u64::from(count);
            under_way += 1;
        }
        if under_way == 0 {
            return Ok(good);
        }
        if queue.wait_n(1, PATIENCE) == 0 {
            return Err(Error::rig("a disc is not read"));
        }
        while let Some(event) = queue.reap() {
            let Event::Done { tag, result, .. } = event else { continue };
            under_way -= 1;
            let data = result.map_err(Error::rig)?.data;
            let data = data.as_deref().unwrap_or_default();
            for (number, found) in (tag..).zip(data.chunks(BLOCK as usize)) {
                block(number, &mut expected);
                good += u64::from(found == expected);
            }
        }
    }
}

fn serve(node: Node, stores: Stores) -> Result<Target, Error> {
    let portal = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let plan = Plan::new(vec![portal.into()], vec![node], stores);
    Target::start(Plan { spin_max: Duration::ZERO, ..plan }).map_err(Error::rig)
}

fn options(target: &Target, number: usize) -> Result<initiator::Options, Error> {
    let portal = target.portals().first().copied();
    let portal = portal.ok_or_else(|| Error::rig("it does not listen"))?;
    let mut options = initiator::Options::new(portal.to_string(), Some(TARGET.to_owned()));
    options.initiator = host(number);
    options.reconnect_patience = Duration::ZERO;
    Ok(options)
}

fn queue() -> Result<Queue, Error> {
    let config = initiator::Config { spin_max: Duration::ZERO, ..initiator::Config::default() };
    Queue::new(&config).map_err(Error::rig)
}

fn log_in(target: &Target, number: usize) -> Result<(Queue, SessionId), Error> {
    let mut queue = queue()?;
    let session = queue.login(options(target, number)?).map_err(Error::rig)?;
    Ok((queue, session))
}

/// What was tried of an access list: what it was, and whether it came out as the list says.
#[derive(Clone, Debug)]
pub(in crate::ibm) struct Tried {
    pub(in crate::ibm) what: &'static str,
    pub(in crate::ibm) as_listed: bool,
}

/// Two disks; the first host has the first one, the second host the second one, and a third host is
/// on no list.
pub(super) fn try_access() -> Result<Vec<Tried>, Error> {
    let mut stores = Stores::new();
    let mut luns = Vec::new();
    for lun in 0..2 {
        let store = stores.open(&Spec::Memory { bytes: 1 << 20 }).map_err(Error::rig)?;
        let identity = Identity::derive(TARGET, lun, "LUNWIRE", "VIRTUAL DISK");
        luns.push((lun, Arc::new(LogicalUnit::new(identity, store, 512).map_err(Error::rig)?)));
    }
    let mut node = Node::new(TARGET.to_owned(), luns);
    let rule = |number: u16| AccessRule {
        initiator: host(number.into()),
        luns: Some(vec![number]),
        account: None,
        target_reset: None,
    };
    node.access = vec![rule(0), rule(1)];
    let target = serve(node, stores)?;
    let tried = (0..2).map(|number| try_own(&target, number)).collect::<Result<Vec<_>, _>>();
    let stranger = queue().and_then(|mut queue| Ok(queue.login(options(&target, 2)?)));
    target.stop(Duration::ZERO).map_err(Error::rig)?;
    let mut tried = tried?.concat();
    let refused = stranger?.is_err_and(|error| matches!(error.kind(), Kind::Login(_)));
    tried.push(Tried { what: "a host that is on no list is refused", as_listed: refused });
    Ok(tried)
}

/// A host of the list: what it sees, and what comes of using its disk and the other one.
fn try_own(target: &Target, number: u16) -> Result<Vec<Tried>, Error> {
    let (mut queue, session) = log_in(target, number.into())?;
    let seen = report_luns(&mut queue.unit(session, 0)).map_err(Error::rig)?;
    let mut uses = |lun: u16| {
        let geometry = initiator::scsi::geometry(&mut queue.unit(session, lun))?;
        let data = buf::Slice::from(vec![0x5a; 512]);
        let request = |cdb, data| Request { lun, cdb, data, retry: Retry::Always };
        queue.execute(session, request(geometry.write(0, 1), Data::Out(data)))?;
        let done = queue.execute(session, request(geometry.read(0, 1), Data::In(512)))?;
        Ok::<_, initiator::Error>(done.data.is_some_and(|data| data[..] == [0x5a; 512]))
    };
    let own = uses(number).is_ok_and(|same| same);
    let other = uses(1 - number);
    queue.logout(session);
    let [sees, does, others] = match number {
        0 => [
            "the first host sees its disk alone",
            "the first host writes to its disk and reads it",
            "the first host cannot use the other disk",
        ],
        _ => [
            "the second host sees its disk alone",
            "the second host writes to its disk and reads it",
            "the second host cannot use the other disk",
        ],
    };
    Ok(vec![
        Tried { what: sees, as_listed: seen == [number] },
        Tried { what: does, as_listed: own },
        Tried { what: others, as_listed: other.is_err() },
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_share_a_disc_whole_and_cannot_write_to_it() {
        let drive = Drive::start(300 << 10).unwrap();
        let shared = drive.read_all(3, 2).unwrap();
        drive.end().unwrap();
        assert_eq!((shared.hosts, shared.rates.len()), (3, 2));
        assert_eq!(shared.blocks, [900, 900]);
        assert_eq!(shared.refused, [6, 6]);
    }

    #[test]
    fn a_disc_that_there_is_no_room_for_says_how_much_it_needs() {
        let why = burn(Path::new("/dev/full"), 1024).unwrap_err();
        assert_eq!(why, "it needs 2 MiB below /dev: No space left on device (os error 28)");
    }

    #[test]
    fn a_block_is_none_of_the_others() {
        let (mut one, mut other) = (Vec::new(), Vec::new());
        block(0, &mut one);
        block(1, &mut other);
        assert!(one.len() == BLOCK as usize && one != other);
    }

    #[test]
    fn lists_of_access_hold() {
        let tried = try_access().unwrap();
        assert_eq!(tried.len(), 7);
        assert!(tried.iter().all(|one| one.as_listed), "{tried:?}");
    }
}
