// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks behind the target: what a sync did not reach can be lost with the power, sector by sector.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::collections::btree_map::Entry;
use std::ops::Range;
use std::time::Duration;

use buf::Buf;
use buf::Slice;
use clock::Instant;
use engine::Token;
use store::Op;
use store::Space;
use store::foreign::Completer;

use crate::rng::Rng;

/// What no loss of power tears, bytes.
pub(crate) const SECTOR: usize = 512;

pub(crate) type Sector = [u8; SECTOR];

/// Linux: input/output error, no space, illegal sequence (other bytes), operation not supported.
pub(crate) const EIO: i32 = 5;
pub(crate) const ENOSPC: i32 = 28;
pub(crate) const EILSEQ: i32 = 84;
const EOPNOTSUPP: i32 = 95;

/// A content of a sector that a loss of power may bring back or bring about.
#[derive(Debug)]
struct Volatile {
    content: Sector,
    /// The write that made it.
    write: u64,
    /// The last work that had been submitted when it ended: a later sync makes it last.
    done: Option<u64>,
}

/// Work under way.
#[derive(Debug)]
pub(crate) struct Work {
    /// The target whose process it belongs to.
    pub(crate) desk: usize,
    pub(crate) owner: Owner,
    pub(crate) what: What,
    /// Errno that it ends with.
    pub(crate) fails: Option<i32>,
    /// When it began.
    since: Option<Instant>,
    /// Bytes of it that took effect.
    applied: usize,
}

/// Who is told of its end.
#[derive(Debug)]
pub(crate) enum Owner {
    /// The port of this desk.
    Port(usize, Token),
    /// Whoever gave work this number to do elsewhere.
    Elsewhere { number: u64, completer: Completer },
}

#[derive(Debug)]
pub(crate) enum What {
    /// Into the buffer of who is told.
    ReadElsewhere {
        offset: u64,
        length: u32,
    },
    Read {
        offset: u64,
        buf: Buf,
    },
    Write {
        offset: u64,
        data: Slice,
        durable: bool,
    },
    /// Writes up to this one are covered.
    Sync,
    /// What is there.
    Allocation {
        offset: u64,
        length: u64,
    },
    Clear {
        offset: u64,
        length: u64,
        leave: Space,
    },
    /// Done by clusters alone, as the next one.
    Compare {
        offset: u64,
        old: Slice,
        new: Slice,
        /// The first byte that is another one, once it was compared.
        differs: Option<u64>,
    },
    Same {
        offset: u64,
        length: u64,
        data: Slice,
    },
}

impl What {
    /// What is asked of a disk that is elsewhere; with `sync` all that is written is to last.
    pub(crate) fn elsewhere(op: Op, sync: bool) -> Self {
        match op {
            Op::Read { offset, length } => Self::ReadElsewhere { offset, length },
            Op::Write { offset, data, durable } => {
                Self::Write { offset, data, durable: durable || sync }
            }
            Op::Flush => Self::Sync,
            Op::Clear { offset, length, leave } => Self::Clear { offset, length, leave },
            Op::ProvisioningStatus { offset, length } => Self::Allocation { offset, length },
            Op::CompareAndWrite { offset, old, new, .. } => {
                Self::Compare { offset, old, new, differs: None }
            }
            Op::WriteSame { offset, length, data } => Self::Same { offset, length, data },
        }
    }
}

/// What a disk can do besides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Abilities {
    pub(crate) punch: bool,
    pub(crate) zero: bool,
    /// No system here writes it back.
    pub(crate) elsewhere: bool,
}

/// A disk.
#[derive(Debug)]
pub(crate) struct Disk {
    /// As readers see it; a sector that is not there is zero.
    visible: BTreeMap<u64, Sector>,
    /// As a loss of power leaves it at the least.
    stable: BTreeMap<u64, Sector>,
    /// In order of effect, by sector.
    volatile: BTreeMap<u64, Vec<Volatile>>,
    pub(crate) works: BTreeMap<u64, Work>,
    next: u64,
    abilities: Abilities,
    /// So many of the next works fail.
    pub(crate) errors: u32,
    /// Sectors of which readers see what the medium never got: writing it back failed.
    lost: BTreeSet<u64>,
    /// Nobody was told of that yet. Who syncs next is, whoever it is, and nobody after.
    untold: bool,
    /// Sectors, if its file was cut or grew.
    end: Option<u64>,
    /// Somebody wrote behind its end.
    pub(crate) overrun: bool,
}

impl Disk {
    pub(crate) const fn new(abilities: Abilities) -> Self {
        Self {
            visible: BTreeMap::new(),
            stable: BTreeMap::new(),
            volatile: BTreeMap::new(),
            works: BTreeMap::new(),
            next: 0,
            abilities,
            errors: 0,
            lost: BTreeSet::new(),
            untold: false,
            end: None,
            overrun: false,
        }
    }

    /// An empty one of the same make.
    pub(crate) const fn another(&self) -> Self {
        Self::new(self.abilities)
    }

    /// Takes work; it is to be stepped by its number.
    pub(crate) fn submit(&mut self, desk: usize, owner: Owner, what: What) -> u64 {
        let mut fails = match what {
            What::Clear { leave, .. } => {
                let able = match leave {
                    Space::Deallocated => self.abilities.punch,
                    Space::Mapped | Space::Anchored => self.abilities.zero,
                };
                (!able).then_some(EOPNOTSUPP)
            }
            _ => None,
        };
        if fails.is_none() && self.errors > 0 {
            self.errors -= 1;
            fails = Some(match what {
                What::Write { .. } if self.errors % 2 == 1 => ENOSPC,
                _ => EIO,
            });
        }
        self.next += 1;
        self.works.insert(self.next, Work { desk, owner, what, fails, since: None, applied: 0 });
        self.next
    }

    /// The next part of work `id` takes effect: half of what is left, or all. True: it is done and
    /// is to be taken by `end`.
    pub(crate) fn step(&mut self, id: u64, rng: &mut Rng) -> bool {
        let Some(mut work) = self.works.remove(&id) else { return false };
        let (offset, length) = match &work.what {
            What::Read { offset, buf } => (*offset, buf.len()),
            What::ReadElsewhere { offset, length } => (*offset, *length as usize),
            What::Write { offset, data, .. } => (*offset, data.len()),
            What::Clear { offset, length, .. } => (*offset, usize::try_from(*length).unwrap_or(0)),
            What::Sync | What::Allocation { .. } | What::Compare { .. } | What::Same { .. } => {
                (0, 0)
            }
        };
        let left = length - work.applied;
        let cut = left / SECTOR / 2 * SECTOR;
        let part = if cut > 0 && rng.chance(400) { cut } else { left };
        let failing = work.fails.is_some_and(|errno| errno == EOPNOTSUPP);
        if !failing {
            self.apply(&mut work, id, offset, part);
        }
        work.applied += part;
        let done = work.applied >= length;
        if done {
            self.finish(id, &mut work);
        }
        self.works.insert(id, work);
        done
    }

    fn apply(&mut self, work: &mut Work, id: u64, offset: u64, part: usize) {
        let (from, to) = (work.applied, work.applied + part);
        let begin = (offset + from as u64) / SECTOR as u64;
        match &mut work.what {
            What::Read { buf, .. } => self.show(begin, &mut buf[from..to]),
            What::ReadElsewhere { .. } => {
                if let Owner::Elsewhere { completer, .. } = &mut work.owner {
                    self.show(begin, &mut completer.room()[from..to]);
                }
            }
            What::Write { data, .. } => {
                let data = data.to_vec();
                for (sector, piece) in (begin..).zip(data[from..to].chunks_exact(SECTOR)) {
                    let content = std::array::from_fn(|at| piece[at]);
                    self.change(sector, content, id);
                }
            }
            What::Clear { .. } => {
                for sector in begin..begin + (part / SECTOR) as u64 {
                    self.change(sector, [0; SECTOR], id);
                }
            }
            What::Sync | What::Allocation { .. } | What::Compare { .. } | What::Same { .. } => {}
        }
    }

    /// What readers see from sector `begin` on.
    fn show(&self, begin: u64, to: &mut [u8]) {
        for (sector, piece) in (begin..).zip(to.chunks_mut(SECTOR)) {
            let content = self.visible.get(&sector);
            let content = content.map_or(&[0; SECTOR][..], |content| &content[..]);
            piece.copy_from_slice(&content[..piece.len()]);
        }
    }

    /// What an object has in the place of a sector; None: nothing.
    pub(crate) fn sector(&self, sector: u64) -> Option<Sector> {
        self.visible.get(&sector).copied()
    }

    /// An object gets that, on all its replicas.
    pub(crate) fn put(&mut self, sector: u64, content: Option<Sector>) {
        for sectors in [&mut self.visible, &mut self.stable] {
            match content {
                Some(content) => drop(sectors.insert(sector, content)),
                None => drop(sectors.remove(&sector)),
            }
        }
    }

    /// Bytes that were read for work `id`, which begin so far behind its first one.
    pub(crate) fn give(&mut self, id: u64, at: usize, bytes: &[u8]) {
        if let Some(Work { owner: Owner::Elsewhere { completer, .. }, .. }) =
            self.works.get_mut(&id)
            && let Some(room) = completer.room().get_mut(at..at + bytes.len())
        {
            room.copy_from_slice(bytes);
        }
    }

    /// Nobody goes on with work `id`: what it has done stays, or a little more.
    pub(crate) fn abandon(&mut self, id: u64, rng: &mut Rng) -> Option<Work> {
        if rng.chance(500) {
            self.step(id, rng);
        }
        let work = self.works.remove(&id)?;
        if let What::Write { offset, .. } | What::Clear { offset, .. } = &work.what {
            let begin = offset / SECTOR as u64;
            for sector in begin..begin + (work.applied / SECTOR) as u64 {
                self.end_write(sector, id, false);
            }
        }
        Some(work)
    }

    /// What stands behind the byte at `offset`, and where that ends.
    pub(crate) fn allocation(&self, offset: u64) -> (Space, u64) {
        let sector = offset / SECTOR as u64;
        if !self.visible.contains_key(&sector) {
            let next = self.visible.range(sector..).next().map(|(next, _)| *next);
            let end = next.or(self.end).map_or(u64::MAX, |next| next * SECTOR as u64);
            return (Space::Deallocated, end);
        }
        let end = (sector..).find(|sector| !self.visible.contains_key(sector)).unwrap_or(sector);
        (Space::Mapped, end * SECTOR as u64)
    }

    /// The file gets another size, and that is on the medium.
    pub(crate) fn set_bytes(&mut self, bytes: u64) {
        let end = bytes / SECTOR as u64;
        self.end = Some(end);
        drop(self.visible.split_off(&end));
        drop(self.stable.split_off(&end));
        drop(self.volatile.split_off(&end));
        drop(self.lost.split_off(&end));
    }

    fn change(&mut self, sector: u64, content: Sector, write: u64) {
        self.overrun |= self.end.is_some_and(|end| sector >= end);
        self.lost.remove(&sector);
        self.visible.insert(sector, content);
        self.volatile.entry(sector).or_default().push(Volatile { content, write, done: None });
    }

    /// All of `work` took effect.
    fn finish(&mut self, id: u64, work: &mut Work) {
        let failed = work.fails.is_some();
        let syncs = matches!(work.what, What::Sync | What::Write { durable: true, .. });
        if syncs && !failed && std::mem::take(&mut self.untold) {
            // What it was to do itself is done.
            work.fails = Some(EIO);
        }
        match &work.what {
            // What a failed write has done is there like any other content: a sync covers it.
            What::Write { offset, data, durable } => {
                let begin = offset / SECTOR as u64;
                for sector in begin..begin + (data.len() / SECTOR) as u64 {
                    self.end_write(sector, id, *durable && !failed);
                }
            }
            What::Sync if failed => {}
            What::Clear { offset, length, .. } => {
                let begin = offset / SECTOR as u64;
                for sector in begin..begin + length / SECTOR as u64 {
                    self.end_write(sector, id, false);
                }
            }
            What::Sync => self.sync(id),
            What::Read { .. }
            | What::ReadElsewhere { .. }
            | What::Allocation { .. }
            | What::Compare { .. }
            | What::Same { .. } => {}
        }
    }

    /// Write `id` of `sector` is over; with `durable` nothing older can come back.
    fn end_write(&mut self, sector: u64, id: u64, durable: bool) {
        let Entry::Occupied(mut entry) = self.volatile.entry(sector) else { return };
        let list = entry.get_mut();
        let Some(at) = list.iter().position(|content| content.write == id) else { return };
        list[at].done = Some(self.next);
        if durable {
            self.stable.insert(sector, list[at].content);
            list.drain(..=at);
            if list.is_empty() {
                entry.remove();
            }
        }
    }

    /// What was done when sync `id` was submitted lasts from here on.
    fn sync(&mut self, id: u64) {
        let Self { volatile, stable, .. } = self;
        volatile.retain(|sector, list| {
            if let Some(at) = list.iter().rposition(|old| old.done.is_some_and(|at| at < id)) {
                stable.insert(*sector, list[at].content);
                list.drain(..=at);
            }
            !list.is_empty()
        });
    }

    /// The power goes: each sector keeps what was stable, or any of the contents that it had since.
    /// Work under way is forgotten.
    pub(crate) fn lose_power(&mut self, rng: &mut Rng) {
        self.works.clear();
        for (sector, list) in std::mem::take(&mut self.volatile) {
            let choice = rng.index(list.len() + 1);
            if let Some(kept) = list.get(choice) {
                self.stable.insert(sector, kept.content);
            }
        }
        self.visible.clone_from(&self.stable);
        self.lost.clear();
        self.untold = false;
    }

    /// The system writes back what nobody has synced, and fails at about half of it: the medium
    /// keeps what it had. False: there was nothing to lose.
    pub(crate) fn fail_writeback(&mut self, rng: &mut Rng) -> bool {
        if self.abilities.elsewhere {
            return false;
        }
        let before = self.lost.len();
        let Self { volatile, lost, .. } = self;
        volatile.retain(|sector, list| {
            let fails = list.iter().all(|old| old.done.is_some()) && rng.chance(500);
            if fails {
                lost.insert(*sector);
            }
            !fails
        });
        let met = self.lost.len() > before;
        self.untold |= met;
        met
    }

    /// A process opens it and syncs at once. False: it was told that a writeback had failed.
    pub(crate) fn open(&mut self) -> bool {
        if std::mem::take(&mut self.untold) {
            return false;
        }
        self.sync(self.next + 1);
        true
    }

    /// The process behind `desk` is killed: each of its works ends where it is or is done in full,
    /// and nobody hears of it. What could not be written back is gone with it. True: there was
    /// some.
    pub(crate) fn lose_process(&mut self, desk: usize, rng: &mut Rng) -> bool {
        let of_desk = self.works.iter().filter(|(_, work)| work.desk == desk);
        let ids: Vec<u64> = of_desk.map(|(id, _)| *id).collect();
        for id in ids {
            let finish = rng.chance(500);
            while finish && !self.step(id, rng) {}
            self.works.remove(&id);
        }
        let lost = std::mem::take(&mut self.lost);
        for sector in &lost {
            match self.stable.get(sector) {
                Some(content) => self.visible.insert(*sector, *content),
                None => self.visible.remove(sector),
            };
        }
        self.untold = false;
        !lost.is_empty()
    }

    /// Writes that were submitted up to now.
    pub(crate) const fn mark(&self) -> u64 {
        self.next
    }

    /// Work `id` begins.
    pub(crate) fn note_begin(&mut self, id: u64, now: Instant) {
        if let Some(work) = self.works.get_mut(&id) {
            work.since = Some(now);
        }
    }

    /// Whether something is under way that was submitted up to `mark` and changes blocks.
    pub(crate) fn changes_before(&self, mark: u64) -> bool {
        self.changes_up_to(mark).next().is_some()
    }

    /// The sectors that what is under way changes.
    pub(crate) fn changing(&self) -> Vec<Range<usize>> {
        let sectors = |offset: u64, length: u64| {
            let [begin, end] = [offset, offset + length].map(usize::try_from);
            begin.unwrap_or(0) / SECTOR..end.unwrap_or(usize::MAX).div_ceil(SECTOR)
        };
        let range = |work: &Work| match &work.what {
            What::Write { offset, data, .. } => Some(sectors(*offset, data.len() as u64)),
            What::Clear { offset, length, .. } => Some(sectors(*offset, *length)),
            _ => None,
        };
        self.works.values().filter_map(range).collect()
    }

    /// Whether all of that has begun, and something that was asked for there is under way for so
    /// long that nobody need wait for the rest.
    pub(crate) fn has_waited(&self, mark: u64, now: Instant, long: Duration) -> bool {
        let waited = |work: &Work| work.since.is_some_and(|since| now.since(since) >= long);
        self.changes_up_to(mark).all(|work| work.since.is_some())
            && self.works.range(..=mark).any(|(_, work)| waited(work))
    }

    fn changes_up_to(&self, mark: u64) -> impl Iterator<Item = &Work> {
        let changes = |what: &What| matches!(what, What::Write { .. } | What::Clear { .. });
        let works = self.works.range(..=mark).map(|(_, work)| work);
        works.filter(move |work| changes(&work.what))
    }

    /// Whether nothing is under way that was submitted up to `mark`.
    pub(crate) fn is_past(&self, mark: u64) -> bool {
        self.works.range(..=mark).next().is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> Disk {
        Disk::new(Abilities { punch: true, zero: true, elsewhere: false })
    }

    fn run(disk: &mut Disk, what: What) -> Work {
        let id = disk.submit(0, Owner::Port(0, Token(0)), what);
        let mut rng = Rng::new(1);
        while !disk.step(id, &mut rng) {}
        disk.works.remove(&id).expect("it was submitted")
    }

    fn write(disk: &mut Disk, byte: u8, durable: bool) {
        let data = Slice::from(vec![byte; 4 * SECTOR]);
        run(disk, What::Write { offset: 0, data, durable });
    }

    fn first(disk: &Disk) -> Vec<u8> {
        (0..4).map(|sector| disk.visible.get(&sector).map_or(0, |content| content[0])).collect()
    }

    #[test]
    fn what_was_synced_stays_and_the_rest_is_torn() {
        let mut torn = 0;
        for seed in 0..50 {
            let mut disk = disk();
            write(&mut disk, 1, false);
            run(&mut disk, What::Sync);
            write(&mut disk, 2, false);
            assert_eq!(first(&disk), [2; 4]);
            disk.lose_power(&mut Rng::new(seed));
            let left = first(&disk);
            assert!(left.iter().all(|byte| matches!(byte, 1 | 2)));
            torn += usize::from(left.contains(&1) && left.contains(&2));
        }
        assert!(torn > 10, "{torn}");
    }

    #[test]
    fn a_durable_write_stays() {
        let mut disk = disk();
        write(&mut disk, 1, false);
        write(&mut disk, 2, true);
        disk.lose_power(&mut Rng::new(3));
        assert_eq!(first(&disk), [2; 4]);
    }

    #[test]
    fn a_failed_writeback_is_told_once_and_to_whoever_syncs() {
        let mut disk = disk();
        write(&mut disk, 1, true);
        write(&mut disk, 2, false);
        assert!((0..20).any(|seed| disk.fail_writeback(&mut Rng::new(seed))));
        assert_eq!(first(&disk), [2; 4], "readers do not see it");
        let told = [(); 2].map(|()| run(&mut disk, What::Sync).fails);
        assert_eq!(told, [Some(EIO), None]);
        disk.lose_power(&mut Rng::new(1));
        assert!(first(&disk).contains(&1));
    }

    #[test]
    fn who_opens_it_is_told_of_what_failed_before() {
        let mut disk = disk();
        write(&mut disk, 1, false);
        assert!((0..20).any(|seed| disk.fail_writeback(&mut Rng::new(seed))));
        assert_eq!([(); 2].map(|()| disk.open()), [false, true]);
        write(&mut disk, 2, false);
        assert!(disk.open());
        disk.lose_power(&mut Rng::new(1));
        assert_eq!(first(&disk), [2; 4], "opening it has synced it");
    }

    #[test]
    fn a_sync_covers_only_what_was_done_before_it() {
        let mut disk = disk();
        let data = Slice::from(vec![9; SECTOR]);
        let late = disk.submit(
            0,
            Owner::Port(0, Token(0)),
            What::Write { offset: 0, data, durable: false },
        );
        run(&mut disk, What::Sync);
        assert!(!disk.is_past(disk.mark()));
        while !disk.step(late, &mut Rng::new(1)) {}
        assert!(!disk.volatile.is_empty());
    }
}
