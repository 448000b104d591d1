// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One image: the client that has it open, and its objects.
//!
//! ```text
//! begin --pieces--> line of an object: waits, takes effect, is answered --> last piece: ended
//! ```

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use buf::Slice;
use clock::Instant;

use super::ESHUTDOWN;
use super::Ground;
use super::cache::Cache;
use super::flushes::Flushes;
use super::front::Sight;
use crate::disk::EILSEQ;
use crate::disk::EIO;
use crate::disk::ENOSPC;
use crate::disk::SECTOR;
use crate::disk::Sector;
use crate::disk::What;
use crate::options::Rados;

/// Linux: invalid argument.
pub(super) const EINVAL: i32 = 22;

/// The line of what the client does by itself, in the place of an object.
const CLIENT: u64 = u64::MAX;

/// What the client needs for something by itself, microseconds.
const CLIENT_DELAY: (u64, u64) = (1, 40);

/// After so many of a thousand cached writes an object is written back.
const WRITES_BACK: u64 = 250;

/// Who wants a piece done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Doer {
    /// Work of a disk.
    Work(u64),
    /// The cache.
    Back(u64),
    Flush,
}

/// Something that is under way.
#[derive(Debug)]
struct Deed {
    /// Pieces that are not answered.
    left: usize,
    fails: Option<i32>,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Read,
    /// First byte and length, and the failure before it, which it may repair.
    Change(u64, u64, Option<u64>),
    /// Sectors as they were when it began.
    Back(Vec<(u64, u64)>),
    Flush,
}

/// A part of something, on one object.
#[derive(Debug)]
struct Piece {
    of: Doer,
    does: Does,
    /// Its place among all that were sent.
    number: u64,
}

#[derive(Debug)]
enum Does {
    /// These sectors go into the buffer, from this byte on.
    Read(Range<u64>, usize),
    /// These sectors change; as one, or not at all.
    Change(Vec<(u64, Option<Sector>)>),
    /// The same in the cache.
    Cache(Vec<(u64, Option<Sector>)>),
    /// The same from the cache.
    Back(Vec<(u64, Option<Sector>)>),
    /// These sectors change if they have such contents; as one, or not at all.
    Compare(Vec<(u64, Sector)>, Vec<(u64, Option<Sector>)>),
    Nothing,
    Fail(i32),
}

/// Those who want something of one object, in order.
#[derive(Debug, Default)]
struct Line {
    pieces: VecDeque<Piece>,
    /// Which step it waits for.
    stamp: u64,
    /// The first one has taken effect.
    is_done: bool,
    /// The number of the one that took effect last.
    last: u64,
}

/// Where an image goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    object: u64,
    stamp: u64,
}

/// An image that is open.
#[derive(Debug)]
pub(super) struct Image {
    pub(super) sight: Arc<Sight>,
    /// Its end, as the client knows it, sectors.
    end: u64,
    lines: BTreeMap<u64, Line>,
    deeds: BTreeMap<Doer, Deed>,
    cache: Option<Cache>,
    flushes: Flushes,
    /// When something ended last, or began while nothing was under way.
    beat: Instant,
    next: u64,
    /// Nothing gets done.
    pub(super) fails: Option<i32>,
    /// An object that cannot be read or written, and until when.
    pub(super) bad: Option<(u64, Instant)>,
}

impl Image {
    pub(super) fn open(plan: &Rados, bytes: u64, now: Instant) -> Self {
        Self {
            sight: Arc::default(),
            end: bytes / SECTOR as u64,
            lines: BTreeMap::new(),
            deeds: BTreeMap::new(),
            cache: plan.cache.then(Cache::default),
            flushes: Flushes::new(bytes, plan.cache),
            beat: now,
            next: 0,
            fails: None,
            bad: None,
        }
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.end * SECTOR as u64
    }

    pub(super) fn resize(&mut self, bytes: u64) {
        self.end = bytes / SECTOR as u64;
        self.cache.iter_mut().for_each(|cache| cache.cut(self.end));
    }

    /// What a store may know: whether nothing has ended for `limit`. True if that is new.
    pub(super) fn look(&mut self, is_busy: bool, now: Instant, limit: Duration) -> bool {
        let is_silent = is_busy && now.since(self.beat) >= limit;
        let was = self.sight.set_silent(is_silent);
        is_silent && !was
    }

    /// Work `id` of the disk begins.
    pub(super) fn begin(&mut self, id: u64, ground: &mut Ground<'_>) {
        let Some(work) = ground.disk.works.get(&id) else { return };
        if ground.disk.works.len() == 1 {
            self.beat = ground.now;
        }
        let doer = Doer::Work(id);
        let (range, kind, changes) = match &work.what {
            What::Sync => return self.flush(id, ground),
            What::Allocation { offset, .. } => {
                let object = offset / ground.plan.object;
                self.deeds.insert(doer, Deed { left: 1, fails: None, kind: Kind::Read });
                return self.post(object, doer, Does::Nothing, ground);
            }
            What::ReadElsewhere { offset, length } => {
                (sectors(*offset, u64::from(*length)), Kind::Read, None)
            }
            What::Read { offset, buf } => (sectors(*offset, buf.len() as u64), Kind::Read, None),
            What::Write { offset, data, .. } => {
                let length = data.len() as u64;
                let noted = self.flushes.note_begin(*offset, length);
                let changes = contents(*offset, length, data);
                (sectors(*offset, length), Kind::Change(*offset, length, noted), Some(changes))
            }
            What::Same { offset, length, data } => {
                let noted = self.flushes.note_begin(*offset, *length);
                let changes = contents(*offset, *length, data);
                (sectors(*offset, *length), Kind::Change(*offset, *length, noted), Some(changes))
            }
            What::Compare { offset, old, new, .. } => {
                let (offset, length) = (*offset, new.len() as u64);
                let noted = self.flushes.note_begin(offset, length);
                let kind = Kind::Change(offset, length, noted);
                self.deeds.insert(doer, Deed { left: 0, fails: None, kind });
                let old = contents(offset, length, old);
                let old = old.into_iter().filter_map(|(at, content)| Some((at, content?)));
                let does = Does::Compare(old.collect(), contents(offset, length, new));
                return self.compare(sectors(offset, length), doer, does, ground);
            }
            What::Clear { offset, length, .. } => {
                let range = sectors(*offset, *length);
                let changes = range.clone().map(|sector| (sector, None)).collect();
                let noted = self.flushes.note_begin(*offset, *length);
                (range, Kind::Change(*offset, *length, noted), Some(changes))
            }
        };
        // The cache has no such operation as the second: it writes.
        let is_write = matches!(work.what, What::Write { .. } | What::Same { .. });
        self.deeds.insert(doer, Deed { left: 0, fails: None, kind });
        if range.start >= self.end {
            return self.want(CLIENT, doer, Does::Fail(EINVAL), ground);
        }
        // Beyond the end there is nothing: a read is short, a write is not told.
        let whole = range.end <= self.end;
        let range = range.start..range.end.min(self.end);
        match changes {
            None => self.read(doer, range, whole, ground),
            Some(changes) => {
                let changes = changes.into_iter().take_while(|(at, _)| *at < range.end).collect();
                self.change(doer, changes, is_write, ground);
            }
        }
    }

    fn read(&mut self, doer: Doer, range: Range<u64>, whole: bool, ground: &mut Ground<'_>) {
        if !whole && let Some(deed) = self.deeds.get_mut(&doer) {
            deed.fails = Some(EINVAL);
        }
        if self.cache.as_ref().is_some_and(|cache| cache.has(range.clone())) {
            ground.marks.push("read from the cache of a client");
            return self.want(CLIENT, doer, Does::Read(range, 0), ground);
        }
        let first = range.start;
        for (object, part) in objects(range, ground.plan.object) {
            let at = usize::try_from(part.start - first).unwrap_or(0) * SECTOR;
            self.want(object, doer, Does::Read(part, at), ground);
        }
    }

    fn change(
        &mut self,
        doer: Doer,
        changes: Vec<(u64, Option<Sector>)>,
        is_write: bool,
        ground: &mut Ground<'_>,
    ) {
        if is_write && self.cache.as_ref().is_some_and(|cache| cache.has_room(changes.len())) {
            return self.want(CLIENT, doer, Does::Cache(changes), ground);
        }
        let mut parts = by_object(changes, ground.plan.object);
        if parts.len() > 1 {
            ground.marks.push("change of several objects");
        }
        while let Some((object, part)) = parts.pop_first() {
            self.want(object, doer, Does::Change(part), ground);
        }
    }

    /// What lies in one object is compared and written as one. Nothing else is asked for.
    fn compare(&mut self, range: Range<u64>, doer: Doer, does: Does, ground: &mut Ground<'_>) {
        let each = ground.plan.object / SECTOR as u64;
        let object = range.start / each;
        if self.cache.is_some() || range.end > (object + 1) * each {
            ground.broken.push(format!("sectors {range:?} are not compared as one"));
        }
        if range.end > self.end {
            return self.want(CLIENT, doer, Does::Fail(EINVAL), ground);
        }
        ground.marks.push("compared by an object");
        self.want(object, doer, does, ground);
    }

    fn flush(&mut self, id: u64, ground: &mut Ground<'_>) {
        if self.flushes.refuse() {
            return ground.ended.push((id, Some(EIO)));
        }
        self.flushes.waiting.push(id);
        self.board(ground);
    }

    /// Begins a flush for those who wait for one, if none is under way.
    fn board(&mut self, ground: &mut Ground<'_>) {
        if !self.flushes.board() {
            return;
        }
        self.write_back(u64::MAX, ground);
        let changes = |(doer, deed): (&Doer, &Deed)| {
            matches!(deed.kind, Kind::Change(..) | Kind::Back(_)).then_some(*doer)
        };
        self.flushes.pending = self.deeds.iter().filter_map(changes).collect();
        self.flushes.pending.insert(Doer::Flush);
        self.deeds.insert(Doer::Flush, Deed { left: 0, fails: None, kind: Kind::Flush });
        self.want(CLIENT, Doer::Flush, Does::Nothing, ground);
    }

    /// What is dirty is on its way to so many objects.
    fn write_back(&mut self, most: u64, ground: &mut Ground<'_>) {
        let Some(cache) = &self.cache else { return };
        let dirty = cache.dirty().collect();
        let parts = by_object(dirty, ground.plan.object);
        let skip = if most < parts.len() as u64 { ground.rng.index(parts.len()) } else { 0 };
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        for (object, part) in parts.into_iter().skip(skip).take(most) {
            let Some(cache) = &self.cache else { return };
            let versions = part.iter().filter_map(|(at, _)| Some((*at, cache.version(*at)?)));
            let kind = Kind::Back(versions.collect());
            self.next += 1;
            let doer = Doer::Back(self.next);
            self.deeds.insert(doer, Deed { left: 0, fails: None, kind });
            self.want(object, doer, Does::Back(part), ground);
        }
    }

    fn want(&mut self, object: u64, of: Doer, does: Does, ground: &mut Ground<'_>) {
        if let Some(deed) = self.deeds.get_mut(&of) {
            deed.left += 1;
        }
        self.post(object, of, does, ground);
    }

    fn post(&mut self, object: u64, of: Doer, does: Does, ground: &mut Ground<'_>) {
        self.next += 1;
        let piece = Piece { of, does, number: self.next };
        let line = self.lines.entry(object).or_default();
        line.pieces.push_back(piece);
        if line.pieces.len() == 1 {
            self.schedule(object, ground);
        }
    }

    /// The first one of a line goes on when its object answers.
    fn schedule(&mut self, object: u64, ground: &mut Ground<'_>) {
        self.next += 1;
        let stamp = self.next;
        let Some(line) = self.lines.get_mut(&object) else { return };
        line.stamp = stamp;
        let (low, high) = if object == CLIENT { CLIENT_DELAY } else { ground.plan.delay };
        let begin = if object == CLIENT { ground.now } else { ground.silent_until(object) };
        let delay = ground.rng.micros(low / 2..=high / 2);
        ground.wanted.push((begin.max(ground.now) + delay, Step { object, stamp }));
    }

    /// All that is silent is asked again: it answers by now.
    pub(super) fn hasten(&mut self, ground: &mut Ground<'_>) {
        self.bad = None;
        let objects: Vec<u64> = self.lines.keys().copied().collect();
        objects.into_iter().for_each(|object| self.schedule(object, ground));
    }

    pub(super) fn step(&mut self, step: Step, ground: &mut Ground<'_>) {
        let Step { object, stamp } = step;
        let Some(line) = self.lines.get_mut(&object) else { return };
        if line.stamp != stamp {
            return;
        }
        if object != CLIENT && ground.now < ground.silent_until(object) {
            ground.marks.push("object silent");
            return self.schedule(object, ground);
        }
        let Some(mut piece) = line.pieces.pop_front() else { return };
        if !std::mem::replace(&mut line.is_done, true) {
            if piece.number < std::mem::replace(&mut line.last, piece.number) {
                ground.broken.push(format!("object {object} serves {:?} out of order", piece.of));
            }
            let failed = self.take_effect(object, &mut piece, ground).err();
            if let Some(deed) = self.deeds.get_mut(&piece.of) {
                deed.fails = deed.fails.or(failed);
            }
            if let Some(line) = self.lines.get_mut(&object) {
                line.pieces.push_front(piece);
            }
            return self.schedule(object, ground);
        }
        line.is_done = false;
        if line.pieces.is_empty() {
            self.lines.remove(&object);
        } else {
            self.schedule(object, ground);
        }
        self.answered(piece.of, ground);
    }

    fn take_effect(
        &mut self,
        object: u64,
        piece: &mut Piece,
        ground: &mut Ground<'_>,
    ) -> Result<(), i32> {
        self.fails.map_or(Ok(()), Err)?;
        if self.bad.is_some_and(|(bad, until)| bad == object && ground.now < until) {
            return Err(EIO);
        }
        let end = self.end;
        match &mut piece.does {
            Does::Nothing => {}
            Does::Fail(errno) => return Err(*errno),
            Does::Read(range, at) => {
                let Doer::Work(id) = piece.of else { return Ok(()) };
                let mut bytes = Vec::new();
                for sector in range.clone() {
                    let cached = self.cache.as_ref().and_then(|cache| cache.get(sector));
                    let content = cached.unwrap_or_else(|| ground.disk.sector(sector));
                    bytes.extend_from_slice(&content.unwrap_or([0; SECTOR]));
                }
                ground.disk.give(id, *at, &bytes);
            }
            Does::Cache(changes) => {
                if let Some(cache) = &mut self.cache {
                    let kept = changes.drain(..).filter(|(sector, _)| *sector < end);
                    kept.for_each(|(sector, content)| cache.put(sector, content));
                }
                if ground.rng.chance(WRITES_BACK) {
                    self.write_back(1, ground);
                }
            }
            Does::Compare(old, changes) => {
                if ground.is_full() {
                    return Err(ENOSPC);
                }
                if let Some(at) = differs(old, ground) {
                    if let Doer::Work(id) = piece.of
                        && let Some(work) = ground.disk.works.get_mut(&id)
                        && let What::Compare { differs, .. } = &mut work.what
                    {
                        *differs = Some(at);
                    }
                    return Err(EILSEQ);
                }
                for (sector, content) in changes.iter().filter(|(sector, _)| *sector < end) {
                    ground.disk.put(*sector, *content);
                }
            }
            Does::Change(changes) | Does::Back(changes) => {
                // Giving space back is let through.
                if ground.is_full() && changes.iter().any(|(_, content)| content.is_some()) {
                    return Err(ENOSPC);
                }
                if let (Doer::Back(_), Some(cache)) = (piece.of, &self.cache) {
                    // A change that was before it in the line has taken the place of these.
                    changes.retain(|(sector, _)| cache.get(*sector).is_some());
                }
                for (sector, content) in changes.iter().filter(|(sector, _)| *sector < end) {
                    ground.disk.put(*sector, *content);
                }
            }
        }
        if let (Does::Change(changes), Some(cache)) = (&piece.does, &mut self.cache) {
            changes.iter().for_each(|(sector, _)| cache.forget(*sector));
        }
        Ok(())
    }

    /// A piece was answered: with the last one its deed is over.
    fn answered(&mut self, doer: Doer, ground: &mut Ground<'_>) {
        let Some(deed) = self.deeds.get_mut(&doer) else { return };
        deed.left = deed.left.saturating_sub(1);
        if deed.left > 0 {
            return;
        }
        let Some(Deed { fails, kind, .. }) = self.deeds.remove(&doer) else { return };
        match (kind, fails) {
            (Kind::Change(offset, length, noted), None) => {
                self.flushes.note_end(noted, offset, length);
            }
            (Kind::Back(versions), None) => {
                self.cache.iter_mut().for_each(|cache| cache.clean(&versions));
            }
            // What could not be written back stays, and the next flush is told.
            (Kind::Back(_) | Kind::Flush, Some(errno)) => {
                ground.marks.push("flush to be told of a failure");
                self.flushes.news.get_or_insert(errno);
            }
            _ => {}
        }
        if fails == Some(ESHUTDOWN) {
            self.flushes.lose_unknown();
        }
        if let Doer::Work(id) = doer {
            self.beat = ground.now;
            ground.ended.push((id, fails));
        }
        if self.flushes.pending.remove(&doer) && self.flushes.pending.is_empty() {
            self.beat = ground.now;
            let (riders, failed) = self.flushes.ended();
            ground.ended.extend(riders.into_iter().map(|id| (id, failed)));
            self.board(ground);
        }
    }

    /// The process of the client is gone. Of what each object was sent, in order, some was done;
    /// what was in the cache alone is lost. True: there was some.
    pub(super) fn crash(&mut self, ground: &mut Ground<'_>) -> bool {
        for (object, line) in std::mem::take(&mut self.lines) {
            let answers = object != CLIENT && ground.now >= ground.silent_until(object);
            let done = if answers { ground.rng.index(line.pieces.len() + 1) } else { 0 };
            let skip = usize::from(line.is_done);
            for mut piece in line.pieces.into_iter().take(done).skip(skip) {
                if !matches!(piece.does, Does::Read(..)) {
                    // Nobody is told.
                    let _ = self.take_effect(object, &mut piece, ground);
                }
            }
        }
        self.deeds.clear();
        self.fails = Some(ESHUTDOWN);
        self.cache.take().is_some_and(|cache| !cache.is_empty())
    }
}

/// The first byte of what an object has that is not as in `old`.
fn differs(old: &[(u64, Sector)], ground: &Ground<'_>) -> Option<u64> {
    let there = old.iter().flat_map(|(at, _)| ground.disk.sector(*at).unwrap_or([0; SECTOR]));
    let wanted = old.iter().flat_map(|(_, content)| content);
    there.zip(wanted).position(|(is, wanted)| is != *wanted).map(|at| at as u64)
}

/// What sectors are to hold when so many bytes are `data`, over and over.
fn contents(offset: u64, length: u64, data: &Slice) -> Changes {
    let bytes = data.to_vec();
    let pieces = bytes.chunks_exact(SECTOR).cycle();
    let pieces = pieces.map(|piece| Some(std::array::from_fn(|at| piece[at])));
    sectors(offset, length).zip(pieces).collect()
}

fn sectors(offset: u64, length: u64) -> Range<u64> {
    offset / SECTOR as u64..(offset + length) / SECTOR as u64
}

/// The parts of a range that lie in one object each.
fn objects(range: Range<u64>, object: u64) -> impl Iterator<Item = (u64, Range<u64>)> {
    let each = object / SECTOR as u64;
    (range.start / each..range.end.div_ceil(each)).map(move |number| {
        let (begin, end) = (number * each, (number + 1) * each);
        (number, range.start.max(begin)..range.end.min(end))
    })
}

type Changes = Vec<(u64, Option<Sector>)>;

fn by_object(changes: Changes, object: u64) -> BTreeMap<u64, Changes> {
    let each = object / SECTOR as u64;
    let mut parts = BTreeMap::<u64, Changes>::new();
    for (sector, content) in changes {
        parts.entry(sector / each).or_default().push((sector, content));
    }
    parts
}
