// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is kept, at a disk that loses any part of its cache, at any time.
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::collections::VecDeque;

use buf::Slice;
use initiator::Durability;
use initiator::Space;
use proptest::prelude::*;

use super::*;

/// Bytes of the disk, each a block of its own.
const BYTES: u64 = 24;

fn place(at: u64) -> usize {
    usize::try_from(at).unwrap()
}

fn slice(value: u8, range: &Range<u64>) -> Slice {
    Slice::from(vec![value; place(range.end - range.start)])
}

/// What a client asks for; a write of 0 is one of zeroes.
#[derive(Clone, Debug)]
enum Ask {
    Read(Range<u64>),
    Write(Range<u64>, u8, Durability),
    Flush,
}

/// Something at the disk.
#[derive(Clone, Debug)]
struct Job {
    what: What,
    /// Bytes that it has done, and those that it has read.
    done: u64,
    read: Vec<u8>,
    /// When it began at the disk: writes that had ended there.
    begun: usize,
    /// Of a flush that the disk has begun: the last byte in its cache.
    covers: Option<usize>,
}

#[derive(Clone, Debug)]
enum What {
    /// Of a client: its number, and what was kept when it was sent.
    Client(usize, Stamp),
    Rewrite(Operation),
    Flush,
    /// A flush that nobody asked for.
    Background(Stamp),
}

/// What the initiator tells, in order.
#[derive(Clone, Debug)]
enum Told {
    Doubt,
    Ended(Job, Result<(), Flushed>),
}

/// A client's request, with what was acknowledged of each byte when it came.
#[derive(Debug)]
struct Client {
    ask: Ask,
    floor: Vec<usize>,
    cost: Option<u64>,
}

struct Bench {
    keep: Keep,
    stable: Vec<u8>,
    /// Each byte that no flush has brought to stable storage, in order, with its number.
    cache: Vec<(usize, u8, usize)>,
    number: usize,
    /// How often it was lost, and how often the initiator has told that.
    losses: u32,
    told_losses: u32,
    /// The initiator's account of writes, by losses; and that some were lost.
    ended: Vec<u32>,
    lost: bool,
    at_disk: Vec<Job>,
    told: VecDeque<Told>,
    clients: Vec<Option<Client>>,
    again: Vec<usize>,
    lacking: VecDeque<usize>,
    background: bool,
    /// Of each byte what was ever written to it, and which of that was acknowledged last.
    history: Vec<Vec<u8>>,
    acknowledged: Vec<usize>,
    flushes: usize,
}

impl Bench {
    fn new(bytes_max: u64) -> Self {
        let bytes = place(BYTES);
        Self {
            keep: Keep::new(bytes_max, Footing::default()),
            stable: vec![0; bytes],
            cache: Vec::new(),
            number: 0,
            losses: 0,
            told_losses: 0,
            ended: Vec::new(),
            lost: false,
            at_disk: Vec::new(),
            told: VecDeque::new(),
            clients: Vec::new(),
            again: Vec::new(),
            lacking: VecDeque::new(),
            background: false,
            history: vec![vec![0]; bytes],
            acknowledged: vec![0; bytes],
            flushes: 0,
        }
    }

    fn content(&self, at: usize) -> u8 {
        let cached = self.cache.iter().rev().find(|(place, ..)| *place == at);
        cached.map_or(self.stable[at], |(_, value, _)| *value)
    }

    fn ask(&mut self, ask: Ask) {
        if let Ask::Write(range, value, _) = &ask {
            let meets = |client: &Client| match &client.ask {
                Ask::Write(other, ..) => range.start < other.end && other.start < range.end,
                _ => false,
            };
            if self.clients.iter().flatten().any(meets) {
                return;
            }
            for at in range.clone() {
                self.history[place(at)].push(*value);
            }
        }
        let floor = self.acknowledged.clone();
        self.clients.push(Some(Client { ask, floor, cost: None }));
        self.launch(self.clients.len() - 1);
    }

    fn launch(&mut self, number: usize) {
        assert!(!self.keep.is_broken());
        if !self.keep.is_steady() {
            return self.again.push(number);
        }
        let client = self.clients[number].as_mut().unwrap();
        if let (Ask::Write(..), None) = (&client.ask, client.cost) {
            if !self.lacking.is_empty() || !self.keep.reserve(1) {
                return self.lacking.push_back(number);
            }
            client.cost = Some(1);
        }
        let what = What::Client(number, self.keep.mark());
        self.submit(what);
    }

    fn submit(&mut self, what: What) {
        let begun = self.ended.len();
        self.at_disk.push(Job { what, done: 0, read: Vec::new(), begun, covers: None });
    }

    fn ask_of(&self, job: &Job) -> Ask {
        match &job.what {
            What::Client(number, _) => self.clients[*number].as_ref().unwrap().ask.clone(),
            What::Rewrite(operation) => match operation {
                Operation::Write { offset, data, .. } => {
                    let range = *offset..offset + data.len() as u64;
                    Ask::Write(range, data.to_vec()[0], Durability::Cached)
                }
                Operation::Zero { offset, length, .. } => {
                    Ask::Write(*offset..offset + length, 0, Durability::Cached)
                }
                other => panic!("{other:?}"),
            },
            What::Flush | What::Background(_) => Ask::Flush,
        }
    }

    /// The disk does a part of something.
    fn work(&mut self, pick: usize, part: u64) {
        if self.at_disk.is_empty() {
            return;
        }
        let pick = pick % self.at_disk.len();
        let mut job = self.at_disk[pick].clone();
        let mut result = Ok(());
        let over = match self.ask_of(&job) {
            Ask::Read(range) => {
                let end = (range.start + job.done + part).min(range.end);
                for at in range.start + job.done..end {
                    job.read.push(self.content(place(at)));
                }
                job.done = end - range.start;
                end == range.end
            }
            Ask::Write(range, value, durability) => {
                let end = (range.start + job.done + part).min(range.end);
                for at in range.start + job.done..end {
                    match durability {
                        Durability::Cached => {
                            self.number += 1;
                            self.cache.push((place(at), value, self.number));
                        }
                        Durability::Stable => {
                            self.stable[place(at)] = value;
                            self.cache.retain(|(cached, ..)| *cached != place(at));
                        }
                    }
                }
                if durability == Durability::Cached {
                    self.ended.push(self.losses);
                }
                job.done = end - range.start;
                end == range.end
            }
            // It covers what was there when it began.
            Ask::Flush if job.covers.is_none() => {
                job.covers = Some(self.number);
                false
            }
            Ask::Flush => {
                let covers = job.covers.unwrap_or_default();
                for (at, value, _) in self.cache.extract_if(.., |(_, _, of)| *of <= covers) {
                    self.stable[at] = value;
                }
                let before = self.ended.iter().take(job.begun);
                self.lost |= before.clone().any(|losses| *losses < self.losses);
                let covered = before.len();
                if self.lost {
                    result = Err(Flushed::Lost);
                } else {
                    self.ended.drain(..covered);
                    for other in &mut self.at_disk {
                        other.begun = other.begun.saturating_sub(covered);
                    }
                }
                true
            }
        };
        // The first answer behind a loss tells of it.
        if self.told_losses < self.losses {
            self.told_losses = self.losses;
            self.told.push_back(Told::Doubt);
        }
        if over {
            self.at_disk.remove(pick);
            self.told.push_back(Told::Ended(job, result));
        } else {
            self.at_disk[pick] = job;
        }
    }

    /// The disk loses some of what is in its cache.
    fn lose(&mut self, dice: u64) {
        let kept = std::mem::take(&mut self.cache).into_iter().enumerate();
        for job in &mut self.at_disk {
            // It is sent again.
            job.covers = None;
        }
        for (number, (at, value, _)) in kept {
            if dice >> (number % 64) & 1 == 0 {
                self.stable[at] = value;
            }
        }
        self.losses += 1;
    }

    fn hear(&mut self) {
        match self.told.pop_front() {
            None => {}
            Some(Told::Doubt) => self.keep.doubt(Fate::Reset),
            Some(Told::Ended(job, result)) => match job.what {
                What::Rewrite(_) => {
                    let how = if result.is_ok() { Rewritten::Good } else { Rewritten::Failed };
                    assert!(self.keep.rewritten(how).is_none());
                }
                What::Flush => {
                    let step = self.keep.flush_ended(result.err().unwrap_or(Flushed::Good));
                    assert_eq!(step.is_some(), self.keep.ranges.is_empty());
                }
                What::Background(mark) => {
                    self.background = false;
                    if self.keep.is_steady() {
                        assert_eq!(result, Ok(()));
                        self.keep.flushed(mark);
                    }
                }
                What::Client(number, mark) => self.client_ended(number, mark, &job.read, result),
            },
        }
        self.go_on();
    }

    fn client_ended(
        &mut self,
        number: usize,
        mark: Stamp,
        read: &[u8],
        result: Result<(), Flushed>,
    ) {
        let client = self.clients[number].take().unwrap();
        let steady = self.keep.is_steady();
        match &client.ask {
            Ask::Read(_) | Ask::Flush if !steady => {
                self.clients[number] = Some(client);
                self.again.push(number);
            }
            Ask::Read(range) => {
                for (at, value) in range.clone().zip(read) {
                    let since = &self.history[place(at)][client.floor[place(at)]..];
                    assert!(since.contains(value), "{at}: {value} of {since:?}");
                }
            }
            Ask::Flush => {
                assert_eq!(result, Ok(()));
                self.keep.flushed(mark);
                for (at, floor) in client.floor.iter().enumerate() {
                    let since = &self.history[at][*floor..];
                    assert!(since.contains(&self.stable[at]), "{at} of {since:?} is not flushed");
                }
                self.flushes += 1;
            }
            Ask::Write(range, value, durability) => {
                for at in range.clone() {
                    self.acknowledged[place(at)] = self.history[place(at)].len() - 1;
                }
                let content = match value {
                    0 => Content::Zero(Space::GiveBack),
                    _ => Content::Data(slice(*value, range)),
                };
                match durability {
                    Durability::Cached => self.keep.wrote(range.clone(), content, 1),
                    Durability::Stable => self.keep.wrote_durably(range.clone(), 1),
                }
            }
        }
    }

    fn go_on(&mut self) {
        loop {
            let idle = self.at_disk.is_empty()
                && !self.told.iter().any(|told| matches!(told, Told::Ended(..)));
            match self.keep.next(idle) {
                None => break,
                Some(Step::Begin(_)) => (self.lost, self.ended) = (false, Vec::new()),
                Some(Step::Write(operation)) => self.submit(What::Rewrite(operation)),
                Some(Step::Flush) => self.submit(What::Flush),
                Some(step) => panic!("{step:?}"),
            }
        }
        if self.keep.is_steady() {
            for number in std::mem::take(&mut self.again) {
                self.launch(number);
            }
            while let Some(number) = self.lacking.front().copied() {
                if !self.keep.reserve(1) {
                    break;
                }
                self.lacking.pop_front();
                self.clients[number].as_mut().unwrap().cost = Some(1);
                let mark = self.keep.mark();
                self.submit(What::Client(number, mark));
            }
            let waits = if self.lacking.is_empty() { Waits::Nobody } else { Waits::ForRoom };
            if !self.background && self.keep.wants_flush(waits) {
                self.background = true;
                self.submit(What::Background(self.keep.mark()));
            }
        }
        self.keep.ranges.check();
    }
}

#[derive(Clone, Debug)]
enum Move {
    Ask(Ask),
    Work(usize, u64),
    Hear,
    Lose(u64),
}

fn moves() -> impl Strategy<Value = Move> {
    let range = (0..BYTES, 1..8_u64).prop_map(|(at, length)| at..(at + length).min(BYTES));
    let durability = prop_oneof![
        5 => Just(Durability::Cached),
        1 => Just(Durability::Stable),
    ];
    prop_oneof![
        2 => range.clone().prop_map(|range| Move::Ask(Ask::Read(range))),
        4 => (range, 0..=255_u8, durability).prop_map(|(range, value, durability)| {
            Move::Ask(Ask::Write(range, value, durability))
        }),
        1 => Just(Move::Ask(Ask::Flush)),
        8 => (any::<usize>(), 1..8_u64).prop_map(|(pick, part)| Move::Work(pick, part)),
        8 => Just(Move::Hear),
        1 => any::<u64>().prop_map(Move::Lose),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    /// Reads give nothing older than what was acknowledged, flushes mean it, and all is there in
    /// the end; everything that was asked for ends.
    #[test]
    fn nothing_acknowledged_is_lost(
        bytes_max in 2..40_u64,
        moves in prop::collection::vec(moves(), 1..400),
    ) {
        let mut bench = Bench::new(bytes_max);
        for one in moves {
            match one {
                Move::Ask(ask) => bench.ask(ask),
                Move::Work(pick, part) => bench.work(pick, part),
                Move::Hear => bench.hear(),
                Move::Lose(dice) => bench.lose(dice),
            }
        }
        bench.ask(Ask::Flush);
        let mut patience = 10_000;
        while bench.clients.iter().any(Option::is_some) {
            bench.work(0, 8);
            bench.hear();
            patience -= 1;
            prop_assert!(patience > 0, "something does not end: {:?}", bench.keep);
        }
        for (at, acknowledged) in bench.acknowledged.iter().enumerate() {
            prop_assert_eq!(bench.content(at), bench.history[at][*acknowledged]);
        }
        // What no flush covers is still kept.
        bench.lose(u64::MAX);
        bench.ask(Ask::Flush);
        bench.ask(Ask::Read(0..BYTES));
        while bench.clients.iter().any(Option::is_some) {
            bench.work(0, 8);
            bench.hear();
            patience -= 1;
            prop_assert!(patience > 0, "something does not end: {:?}", bench.keep);
        }
        prop_assert!(bench.cache.is_empty() && bench.flushes > 0);
        for (at, acknowledged) in bench.acknowledged.iter().enumerate() {
            prop_assert_eq!(bench.stable[at], bench.history[at][*acknowledged]);
        }
    }
}

/// A disk that fails to flush now and then, and can in between, is as good as any.
#[test]
fn failures_count_until_a_good_flush() {
    let mut keep = Keep::new(100, Footing::default());
    for _ in 0..5 * limits::DELAYS_MAX {
        assert!(keep.delay().is_none());
        keep.wrote(0..1, Content::Discard, 0);
        keep.flushed(keep.mark());
    }
    for _ in 0..limits::DELAYS_MAX {
        assert!(keep.delay().is_none());
    }
    assert!(matches!(keep.delay(), Some(Step::Broken)));
}

/// All of it is written again, when what is under way has ended, and not for ever.
#[test]
fn what_is_not_taken_yet_is_written_once_more() {
    let mut keep = Keep::new(100, Footing::default());
    for at in 0..2 {
        keep.wrote(at * 9..at * 9 + 1, Content::Discard, 0);
    }
    keep.doubt(Fate::Reset);
    for round in 0..=limits::DELAYS_MAX {
        assert!(matches!(keep.next(true), Some(Step::Begin(2))));
        for _ in 0..2 {
            assert!(matches!(keep.next(true), Some(Step::Write(_))));
        }
        assert!(keep.rewritten(Rewritten::NotYet).is_none() && keep.next(true).is_none());
        let step = keep.rewritten(Rewritten::Good);
        assert_eq!(step.is_some(), round == limits::DELAYS_MAX, "{round}");
    }
    assert!(keep.is_broken());
}

/// Whoever hears an answer late cannot take one of before a loss for one of after it.
#[test]
fn no_footing_outlasts_a_loss() {
    let mut keep = Keep::new(100, Footing::default());
    let before = keep.footing();
    assert!(before.is_some());
    keep.doubt(Fate::Reset);
    assert_eq!(keep.footing(), None);
    assert!(matches!(keep.next(true), Some(Step::Begin(0))));
    assert!(keep.footing().is_some() && keep.footing() != before);
}
