// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What came of a load, for people and as JSON.

use serde_json::Value;
use serde_json::json;

use super::Load;
use super::stands::STAND;
use super::stands::Stands;
use crate::client::histogram::Histogram;
use crate::client::layers::Watched;
use crate::client::plot;
use crate::client::plot::POINTS;
use crate::client::plot::Series;
use crate::output;

/// What was read that was written before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Checked {
    /// Reads that were found right.
    pub(super) reads: u64,
    /// All that was written was read at the end.
    pub(super) is_read_again: bool,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) load: Load,
    pub(super) seconds: f64,
    pub(super) cpu_seconds: f64,
    pub(super) latencies: Histogram,
    /// Payload bytes copied, and run through CRC32C, by our side.
    pub(super) copied: u64,
    pub(super) digested: u64,
    /// How often a connection was lost.
    pub(super) lost: u64,
    /// Requests that have not ended well.
    pub(super) unended: usize,
    pub(super) stands: Stands,
    /// None: none was checked.
    pub(super) checked: Option<Checked>,
    pub(super) watched: Option<Watched>,
}

impl Outcome {
    pub(super) fn iops(&self) -> f64 {
        self.latencies.total() as f64 / self.seconds.max(1e-9)
    }

    pub(super) fn print(&self) {
        let bytes = self.iops() * f64::from(self.load.block);
        let cpu = self.cpu_seconds * 1e6 / (self.latencies.total().max(1) as f64);
        output::line(format!(
            "{}: {:.0} requests/s, {:.1} MiB/s, {cpu:.1} us of CPU each",
            self.load.name(),
            self.iops(),
            bytes / f64::from(1 << 20)
        ));
        let mut parts = vec![format!("mean {}", plot::time(self.latencies.mean() as f64))];
        for (share, label) in POINTS {
            let value = self.latencies.percentile(share) as f64;
            parts.push(format!("{label} {}", plot::time(value)));
        }
        parts.push(format!("max {}", plot::time(self.latencies.max() as f64)));
        output::line(format!("  {}", parts.join(", ")));
        let times = |bytes: u64| bytes as f64 / self.payload().max(1) as f64;
        let (copied, digested) = (times(self.copied), times(self.digested));
        let kernel = crc::tier().name();
        output::line(format!(
            "  each byte of data copied {copied:.2} times, digested {digested:.2} times ({kernel})"
        ));
        if self.lost > 0 {
            output::line(format!("  connections lost: {}", self.lost));
        }
        if self.unended > 0 {
            let unended = control::words::count(self.unended as u64, "request");
            output::line(format!("  {unended} had no good end: the longest time counts theirs"));
        }
        if self.stands.count > 0 {
            let (times, least) =
                (control::words::count(self.stands.count, "time"), STAND.as_secs());
            let seconds = self.stands.time.as_secs_f64();
            output::line(format!(
                "  no answer for {least} s or longer: {times}, {seconds:.1} s together"
            ));
        }
        if let Some(Checked { reads, is_read_again }) = self.checked {
            let rest = if is_read_again { "" } else { "; not all that was written was read again" };
            output::line(format!("  {reads} reads gave what was written last{rest}"));
        }
        if let Some(watched) = &self.watched {
            watched.print(self.payload());
        }
    }

    /// Bytes of data that were moved.
    pub(super) fn payload(&self) -> u64 {
        self.latencies.total() * u64::from(self.load.block)
    }

    pub(super) fn json(&self) -> Value {
        let percentiles: serde_json::Map<String, Value> = POINTS
            .iter()
            .map(|(share, label)| ((*label).to_owned(), json!(self.latencies.percentile(*share))))
            .collect();
        let payload = self.payload().max(1) as f64;
        let per_byte = |bytes: u64| output::rounded(bytes as f64 / payload);
        json!({
            "block_bytes": self.load.block,
            "depth": self.load.depth,
            "reads_percent": self.load.reads,
            "sequential": self.load.sequential,
            "seconds": output::rounded(self.seconds),
            "requests": self.latencies.total(),
            "requests_per_second": output::rounded(self.iops()),
            "bytes_per_second": output::rounded(self.iops() * f64::from(self.load.block)),
            "cpu_seconds": output::rounded(self.cpu_seconds),
            "copied_per_byte": per_byte(self.copied),
            "digested_per_byte": per_byte(self.digested),
            "connections_lost": self.lost,
            "unended_requests": self.unended,
            "standstills": self.stands.count,
            "standstill_seconds": output::rounded(self.stands.time.as_secs_f64()),
            "checked_reads": self.checked.map(|checked| checked.reads),
            "read_again": self.checked.map(|checked| checked.is_read_again),
            "layers": self.watched.as_ref().map(|watched| watched.json(self.payload())),
            "latency_ns": {
                "mean": self.latencies.mean(),
                "max": self.latencies.max(),
                "percentiles": percentiles,
            },
        })
    }

    pub(super) fn series(&self) -> Series {
        let values = POINTS.iter().map(|(share, _)| self.latencies.percentile(*share));
        Series { name: self.load.name(), values: values.collect() }
    }
}
