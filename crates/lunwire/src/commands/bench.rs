// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `lunwire bench URL`.

mod local;
mod losses;
mod outcome;
mod stands;

use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::Result;
use anyhow::anyhow;
use buf::Slice;
use initiator::Event;
use initiator::PathChange;
use initiator::Queue;
use initiator::SessionId;
use initiator::scsi;
use rustix::time::ClockId;
use serde_json::Value;
use serde_json::json;

use self::losses::Losses;
use self::outcome::Checked;
use self::outcome::Outcome;
use self::stands::Stands;
use crate::args::BenchOptions;
use crate::args::Usage;
use crate::client;
use crate::client::contents::Contents;
use crate::client::contents::PLACES_MAX;
use crate::client::histogram::Histogram;
use crate::client::layers::Own;
use crate::client::layers::Watch;
use crate::client::outfile::Outfile;
use crate::client::outfile::Overwrite;
use crate::client::place::Disk;
use crate::client::plot;
use crate::client::plot::Series;
use crate::client::progress::Ticker;
use crate::output;

/// Requests of one session at most: what a queue's pool has room for with blocks of 4 KiB.
const DEPTH_MAX: usize = 8192;

/// One measurement.
#[derive(Clone, Copy, Debug)]
struct Load {
    block: u32,
    depth: usize,
    reads: u64,
    sequential: bool,
    time: Duration,
    /// Bytes of the disk that are used.
    range: u64,
    verify: bool,
}

/// What all loads of a run have in common, and which there are.
#[derive(Debug)]
struct Wishes {
    time: Duration,
    blocks: Vec<u64>,
    depths: Vec<usize>,
    range: Option<u64>,
}

impl Wishes {
    fn of(options: &BenchOptions, blocks: &[&str], depths: &[usize]) -> Result<Self> {
        let time = client::time("--time", &options.time)?;
        if time.is_zero() {
            let text = format!("--time {}: more is right, such as 10s", options.time);
            return Err(Usage(text).into());
        }
        let given: Vec<&str> = options.block.iter().map(String::as_str).collect();
        let blocks = if given.is_empty() { blocks } else { given.as_slice() };
        let blocks: Result<Vec<u64>> =
            blocks.iter().map(|text| client::size("--block", text)).collect();
        let depths = if options.depth.is_empty() { depths } else { options.depth.as_slice() };
        if let Some(depth) = depths.iter().find(|depth| !(1..=DEPTH_MAX).contains(*depth)) {
            return Err(Usage(format!("--depth {depth}: 1 to {DEPTH_MAX} is right")).into());
        }
        let range = options.range.as_deref();
        let range = range.map(|text| client::size("--range", text)).transpose()?;
        Ok(Self { time, blocks: blocks?, depths: depths.to_vec(), range })
    }

    /// Each combination of block size and depth.
    fn pairs(&self) -> impl Iterator<Item = (u64, usize)> {
        self.blocks.iter().flat_map(|block| self.depths.iter().map(|depth| (*block, *depth)))
    }
}

/// Measures each combination of block size and depth.
pub(crate) fn run(options: &BenchOptions) -> Result<()> {
    if options.local {
        return local::run(options);
    }
    let reads = options.reads.unwrap_or(100);
    if reads < 100 && !options.destroy_data {
        let text = "--reads below 100 writes to the disk: add --destroy-data if it may be lost";
        return Err(Usage(text.into()).into());
    }
    if reads == 100 && options.verify {
        let text = "--verify needs --reads below 100: it checks what was written";
        return Err(Usage(text.into()).into());
    }
    if options.sessions > 1 {
        client::isid::refuse_for_two(&options.client, "of --sessions")?;
    }
    let wishes = Wishes::of(options, &["4K"], &[32])?;
    let range = wishes.range;
    let overwrite = Overwrite::said(options.overwrite);
    let plot = options.svg.as_deref().map(|path| Outfile::open_for(path, overwrite)).transpose()?;
    let mut queue = client::queue(&options.client)?;
    let paths = options.url.join(" ");
    let address = client::disk_address(&paths)?;
    let disk = Disk::open(&mut queue, &options.client, &paths)?;
    if reads < 100 {
        disk.expect_writable()?;
    }
    let bytes = disk.geometry.bytes();
    if let Some(range) = range.filter(|range| *range > bytes) {
        let (url, size) = (&disk.url, control::units::bytes(bytes));
        return Err(Usage(format!("--range {range}: {url} has {size} ({bytes} bytes)")).into());
    }
    let mut sessions = vec![disk.session];
    for _ in 1..options.sessions {
        let session = client::login_all(&mut queue, &options.client, &address)?;
        sessions.push(session);
        scsi::identify(&mut queue.unit(session, disk.lun))
            .map_err(|error| client::advised(error, &disk.url))?;
    }
    if reads < 100 {
        client::leaving::set_in_doubt(vec![disk.url.to_string()]);
    }
    let watch = options.layers.then(|| watch(options, &disk)).transpose()?;
    let (mut outcomes, mut failed) = (Vec::new(), None);
    let loads = wishes.pairs().map(|(block, depth)| {
        let load = Load {
            block: check_block(&disk, block)?,
            depth,
            reads: reads.into(),
            sequential: options.sequential,
            time: wishes.time,
            range: range.unwrap_or(bytes),
            verify: options.verify,
        };
        check_range(&load, options.range.as_deref()).map(|()| load)
    });
    for load in loads.collect::<Result<Vec<Load>>>()? {
        let before = watch.as_ref().map(|watch| watch.now(&mut queue)).transpose()?;
        let (mut outcome, result) = Bench::new(&mut queue, &disk, &sessions, load).run();
        failed = result.err();
        if let (Some(watch), Some(before), None) = (&watch, before, &failed) {
            outcome.watched = Some(watch.now(&mut queue)?.since(&before));
        }
        if failed.is_none() || outcome.latencies.total() > 0 {
            if !options.json {
                outcome.print();
            }
            outcomes.push(outcome);
        }
        if failed.is_some() || client::is_interrupted() {
            break;
        }
    }
    let is_told = failed.is_none() || !outcomes.is_empty();
    let interrupted = client::is_interrupted();
    if interrupted && failed.is_none() {
        let unread = match options.verify {
            true => ", and not all that was written was read again",
            false => "",
        };
        failed = Some(anyhow!("interrupted: the figures are those up to then{unread}"));
    }
    // What is told says whether that went well, too.
    if let Some(mut plot) = plot {
        let series: Vec<Series> = outcomes.iter().map(Outcome::series).collect();
        let svg = plot::draw(&disk.url.to_string(), &series);
        let unwritten = plot.write(svg.as_bytes()).err();
        failed = failed.or(unwritten);
    }
    if options.json && is_told {
        output::measured(
            failed.as_ref(),
            json!({
                "url": disk.url.to_string(),
                "engine": queue.engine(),
                "frames": disk.url.frames().map(|frames| frames.by),
                "interrupted": interrupted,
                "results": outcomes.iter().map(Outcome::json).collect::<Vec<Value>>(),
            }),
        );
    }
    failed.map_or(Ok(()), Err)
}

/// What tells where the time of the commands to `disk` goes.
fn watch(options: &BenchOptions, disk: &Disk) -> Result<Watch> {
    let initiator = client::options(&options.client, &disk.url)?.initiator;
    let target = disk.url.target.as_deref().unwrap_or_default();
    Watch::new(options.control_socket.clone(), &Own { target, initiator: &initiator })
}

fn check_block(disk: &Disk, block: u64) -> Result<u32> {
    let most = disk.geometry.transfer_bytes();
    let fits = u32::try_from(block).ok().filter(|block| (1..=most).contains(block));
    match fits {
        Some(block) if block.is_multiple_of(disk.geometry.block) => Ok(block),
        _ => {
            let unit = disk.geometry.block;
            let text = format!("--block {block}: a multiple of {unit} up to {most} is right");
            Err(Usage(text).into())
        }
    }
}

/// `asked`: for this range, else for the whole disk.
fn check_range(load: &Load, asked: Option<&str>) -> Result<()> {
    let Load { block, depth, range, .. } = *load;
    let wrong = |why: String| Usage(format!("--range: {why}")).into();
    match load.places() {
        0 if asked.is_none() => {
            let text = format!("--block {block}: the disk has {range} bytes; try: a smaller block");
            Err(Usage(text).into())
        }
        0 => Err(wrong(format!("it holds no request of {block} bytes"))),
        places if load.verify && places < depth as u64 => {
            Err(wrong(format!("{depth} requests at once of {block} bytes do not fit for --verify")))
        }
        places if load.verify && places > PLACES_MAX => Err(wrong(format!(
            "more than {PLACES_MAX} requests fit, which is too much for --verify"
        ))),
        _ => Ok(()),
    }
}

impl Load {
    /// How many requests fit beside each other.
    fn places(&self) -> u64 {
        self.range / u64::from(self.block)
    }

    fn name(&self) -> String {
        let Self { block, depth, reads, sequential, .. } = *self;
        let order = if sequential { "sequential" } else { "random" };
        let size = control::units::bytes(block.into());
        let what = match reads {
            100 => "reads".to_owned(),
            0 => "writes".to_owned(),
            share => format!("{share} % reads"),
        };
        format!("{order} {what} of {size}, {depth} at once")
    }
}

/// A request under way.
#[derive(Clone, Copy, Debug)]
struct Slot {
    begun: Instant,
    place: u64,
    write: bool,
    /// It has not ended well.
    open: bool,
}

/// One measurement under way.
struct Bench<'a> {
    queue: &'a mut Queue,
    disk: &'a Disk,
    sessions: &'a [SessionId],
    load: Load,
    /// Written again and again.
    data: Slice,
    contents: Option<Contents>,
    slots: Vec<Slot>,
    at: u64,
    random: u64,
    under_way: usize,
    lost: Losses<SessionId>,
    stands: Stands,
}

impl<'a> Bench<'a> {
    fn new(queue: &'a mut Queue, disk: &'a Disk, sessions: &'a [SessionId], load: Load) -> Self {
        let data: Vec<u8> = (0..load.block).map(|at| at.to_le_bytes()[0] | 1).collect();
        let data = match queue.pool().take(data.len()) {
            Some(mut buf) => {
                buf.copy_from_slice(&data);
                buf.freeze()
            }
            None => Slice::from(data),
        };
        let begun = Instant::now();
        let slots = vec![Slot { begun, place: 0, write: false, open: false }; load.depth];
        let contents = load.verify.then(|| Contents::new(load.places(), load.block));
        let random = 0x9e37_79b9_7f4a_7c15;
        let (at, under_way, lost) = (0, 0, Losses::new());
        let stands = Stands::new(begun);
        Self {
            queue,
            disk,
            sessions,
            load,
            data,
            contents,
            slots,
            at,
            random,
            under_way,
            lost,
            stands,
        }
    }

    /// Measures, and gives what came up to the end or the first error.
    fn run(mut self) -> (Outcome, Result<()>) {
        let mut latencies = Histogram::default();
        let before = self.queue.times();
        let (begin, cpu) = (Instant::now(), cpu_time(ClockId::ThreadCPUTime));
        self.stands = Stands::new(begin);
        let mut result = self.load_up(begin, &mut latencies);
        // Whatever ended it: time without an answer is a part of what was measured.
        let end = Instant::now();
        self.stands.ends(end);
        let unended = self.note_unended(end, &mut latencies);
        let cpu_seconds = (cpu_time(ClockId::ThreadCPUTime) - cpu).as_secs_f64();
        let after = self.queue.times();
        let mut is_read_again = false;
        if result.is_ok() && !client::is_interrupted() {
            (is_read_again, result) = match self.read_again() {
                Ok(all) => (all, Ok(())),
                Err(error) => (false, Err(error)),
            };
        }
        let copied = after.copied.saturating_sub(before.copied);
        let digested = after.digested.saturating_sub(before.digested);
        let checked =
            self.contents.map(|contents| Checked { reads: contents.checked, is_read_again });
        let (load, lost, watched) = (self.load, self.lost.count, None);
        let seconds = end.duration_since(begin).as_secs_f64();
        let outcome = Outcome {
            load,
            seconds,
            cpu_seconds,
            latencies,
            copied,
            digested,
            lost,
            unended,
            stands: self.stands,
            checked,
            watched,
        };
        (outcome, result)
    }

    /// How many requests have not ended well up to `end`: the longest latency is theirs, too.
    fn note_unended(&self, end: Instant, latencies: &mut Histogram) -> usize {
        let open = self.slots.iter().filter(|slot| slot.open);
        open.inspect(|slot| latencies.reach(nanoseconds(slot.begun, end))).count()
    }

    /// Keeps requests under way for as long as it is to take.
    fn load_up(&mut self, begin: Instant, latencies: &mut Histogram) -> Result<()> {
        for slot in 0..self.load.depth {
            self.post(slot, begin)?;
        }
        let mut going = true;
        let mut ticker = Ticker::new(begin, self.load.time);
        while self.under_way > 0 {
            self.queue.wait_n(1, client::LOOK);
            let now = Instant::now();
            going &= now.duration_since(begin) < self.load.time;
            // What is under way ends, and its figures count.
            going &= !client::is_interrupted();
            let before = latencies.total();
            while let Some(slot) = self.reap()? {
                if let Some(Slot { begun, .. }) = self.slots.get(slot) {
                    latencies.add(nanoseconds(*begun, now));
                }
                // Latencies count from here, before the post: the clock is read once for all.
                if going {
                    self.post(slot, now)?;
                }
            }
            if latencies.total() > before {
                self.stands.ends(now);
            }
            ticker.show(now, latencies.total(), || {
                let sessions = self.sessions.iter();
                sessions.filter_map(|session| self.queue.busy_for(*session)).max()
            });
            if client::is_to_leave(self.queue, self.sessions) {
                break;
            }
        }
        Ok(())
    }

    /// The slot of a request that has ended well.
    fn reap(&mut self) -> Result<Option<usize>> {
        while let Some(event) = self.queue.reap() {
            let (tag, result) = match event {
                Event::Done { tag, result, .. } => (tag, result),
                Event::Down { session, .. } => {
                    self.lost.is_down(session);
                    continue;
                }
                Event::Up { session, .. } => {
                    self.lost.is_up(session);
                    continue;
                }
                event @ Event::Path { .. } => {
                    let is_lost = matches!(&event, Event::Path { change: PathChange::Lost(_), .. });
                    self.lost.count += u64::from(is_lost);
                    client::tell(&event);
                    continue;
                }
                // Figures of writes that were not kept are none.
                Event::Deferred { error, .. } if self.load.reads < 100 => {
                    return Err(self.disk.explain(self.queue, error));
                }
                _ => continue,
            };
            self.under_way -= 1;
            let slot = usize::try_from(tag).unwrap_or(usize::MAX);
            let done = match result {
                Ok(done) => done,
                Err(error) => return Err(self.disk.explain(self.queue, error)),
            };
            if let (Some(contents), Some(slot)) = (&mut self.contents, self.slots.get(slot)) {
                contents.release(slot.place);
                if !slot.write {
                    let data = done.data.as_deref().unwrap_or_default();
                    contents.check(slot.place, data).with_context(|| self.disk.url.to_string())?;
                }
            }
            if let Some(ended) = self.slots.get_mut(slot) {
                ended.open = false;
            }
            return Ok(Some(slot));
        }
        Ok(None)
    }

    fn post(&mut self, slot: usize, now: Instant) -> Result<()> {
        let places = self.load.places();
        let mut place = if self.load.sequential {
            self.at = (self.at + 1) % places;
            self.at
        } else {
            self.next_random() % places
        };
        let write = self.next_random() % 100 >= self.load.reads;
        if let Some(contents) = &mut self.contents {
            place = contents.take(place).context("more requests than places")?;
        }
        self.post_at(slot, place, write, now)
    }

    fn post_at(&mut self, slot: usize, place: u64, write: bool, now: Instant) -> Result<()> {
        let offset = place * u64::from(self.load.block);
        let request = match write {
            true => self.disk.write(offset, self.data_for(place)),
            false => self.disk.read(offset, self.load.block),
        };
        let session = self.sessions.get(slot % self.sessions.len().max(1)).copied();
        let session = session.unwrap_or(self.disk.session);
        if let Some(kept) = self.slots.get_mut(slot) {
            *kept = Slot { begun: now, place, write, open: true };
        }
        if let Err((error, _)) = self.queue.post(session, slot as u64, request) {
            return Err(self.disk.explain(self.queue, error));
        }
        self.under_way += 1;
        Ok(())
    }

    /// What to write there.
    fn data_for(&mut self, place: u64) -> Slice {
        let Some(contents) = &mut self.contents else { return self.data.clone() };
        match self.queue.pool().take(self.load.block as usize) {
            Some(mut buf) => {
                contents.stamp(place, &mut buf);
                buf.freeze()
            }
            None => {
                let mut bytes = vec![0; self.load.block as usize];
                contents.stamp(place, &mut bytes);
                Slice::from(bytes)
            }
        }
    }

    /// Reads all that was written, and checks it; false: somebody wants an end before.
    fn read_again(&mut self) -> Result<bool> {
        let mut free: Vec<usize> = (0..self.load.depth).collect();
        let mut from = 0;
        loop {
            while let Some(slot) = free.pop() {
                let Some(contents) = &self.contents else { return Ok(true) };
                let Some(place) = contents.next_written(from) else { break };
                from = place + 1;
                self.post_at(slot, place, false, Instant::now())?;
            }
            if self.under_way == 0 {
                return Ok(from != u64::MAX);
            }
            self.queue.wait_n(1, client::LOOK);
            if client::is_interrupted() {
                from = u64::MAX;
            }
            if client::is_to_leave(self.queue, self.sessions) {
                return Ok(false);
            }
            while let Some(slot) = self.reap()? {
                free.push(slot);
            }
        }
    }

    /// xorshift64*: the same places in each run.
    const fn next_random(&mut self) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }
}

fn nanoseconds(begun: Instant, end: Instant) -> u64 {
    u64::try_from(end.saturating_duration_since(begun).as_nanos()).unwrap_or(u64::MAX)
}

/// Processor time by `clock`: that of this thread, which does all the work of our side, or of the
/// process.
fn cpu_time(clock: ClockId) -> Duration {
    let time = rustix::time::clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanoseconds)
}
