// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Alternating runs and their medians.

use crc::{Tier, force};
use std::time::{Duration, Instant};

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Runs of each contestant; they alternate.
    pub(crate) runs: usize,
    /// Length of a run.
    pub(crate) ms_each: u64,
}

/// Something that handles some bytes when it is called.
pub(crate) struct Contestant<'a> {
    pub(crate) name: String,
    /// The kernel that it needs.
    tier: Option<Tier>,
    work: Box<dyn FnMut() + 'a>,
}

impl<'a> Contestant<'a> {
    pub(crate) fn new(name: impl Into<String>, work: impl FnMut() + 'a) -> Self {
        Self { name: name.into(), tier: None, work: Box::new(work) }
    }

    /// One of ours.
    pub(crate) fn ours(tier: Tier, work: impl FnMut() + 'a) -> Self {
        Self { tier: Some(tier), ..Self::new(tier.name(), work) }
    }

    fn prepare(&self) {
        if let Some(tier) = self.tier {
            force(tier).expect("only kernels that the processor has take part");
        }
    }
}

/// Bytes per nanosecond of each contestant, `bytes` a call: medians of alternating runs.
pub(crate) fn rates(effort: Effort, bytes: usize, contestants: &mut [Contestant<'_>]) -> Vec<f64> {
    let length = Duration::from_millis(effort.ms_each);
    let batches: Vec<u32> = contestants.iter_mut().map(batch).collect();
    let mut all = vec![Vec::new(); contestants.len()];
    for _ in 0..effort.runs {
        for ((one, batch), rates) in contestants.iter_mut().zip(&batches).zip(&mut all) {
            one.prepare();
            rates.push(rate(length, *batch, bytes, &mut one.work));
        }
    }
    all.into_iter().map(median).collect()
}

/// Calls that take about 20 us, so that reading the clock costs nothing.
fn batch(contestant: &mut Contestant<'_>) -> u32 {
    contestant.prepare();
    let start = Instant::now();
    let mut calls = 0;
    while start.elapsed() < Duration::from_millis(1) {
        (contestant.work)();
        calls += 1;
    }
    (calls / 50).max(1)
}

fn rate(length: Duration, batch: u32, bytes: usize, work: &mut dyn FnMut()) -> f64 {
    let start = Instant::now();
    let mut calls = 0_u64;
    loop {
        for _ in 0..batch {
            work();
        }
        calls += u64::from(batch);
        let elapsed = start.elapsed();
        if elapsed >= length {
            return (calls * bytes as u64) as f64 / elapsed.as_nanos() as f64;
        }
    }
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    values.get(middle).copied().unwrap_or_default()
}
