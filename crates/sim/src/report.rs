// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What runs add up to.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::trace::Digest;

/// Counts of one run or of many.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Tally {
    /// Runs.
    pub runs: u64,
    /// Simulated time.
    pub time: Duration,
    /// Bytes carried.
    pub bytes: u64,
    /// Bits flipped under a digest.
    pub flips: u64,
    /// Faults by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Requests by how they ended.
    pub ends: BTreeMap<String, u64>,
    /// Places that were reached.
    pub marks: BTreeMap<&'static str, u64>,
    /// Broken invariants.
    pub(crate) broken: Vec<String>,
}

impl Tally {
    /// Counts one more of `fault`.
    pub(crate) fn fault(&mut self, fault: &'static str) {
        *self.faults.entry(fault).or_default() += 1;
    }

    /// A request ended in this way.
    pub(crate) fn end(&mut self, how: &str) {
        if let Some(count) = self.ends.get_mut(how) {
            *count += 1;
        } else {
            self.ends.insert(how.to_owned(), 1);
        }
    }

    /// A place was reached.
    pub(crate) fn mark(&mut self, mark: &'static str) {
        *self.marks.entry(mark).or_default() += 1;
    }

    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Self) {
        self.runs += other.runs;
        self.time += other.time;
        self.bytes += other.bytes;
        self.flips += other.flips;
        for (name, count) in &other.faults {
            *self.faults.entry(name).or_default() += count;
        }
        for (name, count) in &other.ends {
            *self.ends.entry(name.clone()).or_default() += count;
        }
        for (name, count) in &other.marks {
            *self.marks.entry(name).or_default() += count;
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hours = self.time.as_secs_f64() / 3600.0;
        writeln!(
            f,
            "{} runs, {hours:.2} simulated hours, {} bytes carried",
            self.runs, self.bytes
        )?;
        let list = |counts: &mut dyn Iterator<Item = (&str, u64)>| {
            let texts: Vec<String> =
                counts.map(|(name, count)| format!("{name} {count}")).collect();
            texts.join(", ")
        };
        let faults = &mut self.faults.iter().map(|(name, count)| (*name, *count));
        writeln!(f, "faults: {}, bits flipped {}", list(faults), self.flips)?;
        let ends = &mut self.ends.iter().map(|(name, count)| (name.as_str(), *count));
        writeln!(f, "requests: {}", list(ends))?;
        let marks = &mut self.marks.iter().map(|(name, count)| (*name, *count));
        write!(f, "marks: {}", list(marks))
    }
}

/// What came of one run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// The trace.
    pub digest: Digest,
    /// Counts.
    pub tally: Tally,
    /// What was wrong; None: nothing.
    pub failure: Option<String>,
}
