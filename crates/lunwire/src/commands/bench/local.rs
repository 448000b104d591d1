// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `lunwire bench --local`: what the protocol costs without a network.
//!
//! Both roles run in this process, a disk in memory behind them: once over messages, once over TCP
//! on the loopback address, in turns, so that what else the machine does meets both.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use anyhow::Result;
use anyhow::anyhow;
use buf::Slice;
use control::units;
use initiator::LocalTarget;
use initiator::Options;
use initiator::Queue;
use initiator::SessionId;
use initiator::scsi;
use rustix::time::ClockId;
use serde_json::Value;
use serde_json::json;
use target::Identity;
use target::LogicalUnit;
use target::Node;
use target::Plan;
use target::Spec;
use target::Stores;
use target::Target;

use super::Bench;
use super::Load;
use super::Wishes;
use super::check_block;
use super::check_range;
use crate::args::BenchOptions;
use crate::args::Usage;
use crate::client;
use crate::client::place::Disk;
use crate::client::place::Durability;
use crate::client::plot;
use crate::client::progress::Progress;
use crate::output;
use crate::plan::machine;

/// How often each load is measured over each way.
const ROUNDS: u32 = 5;

/// Bytes of the disk where nobody says otherwise: more than the caches of a core, and filled in no
/// time.
const DISK_BYTES: u64 = 64 << 20;

/// The disk takes no more than this part of the free memory: both roles, the kernel and others need
/// some, too, and a machine without any ends processes.
const PART_OF_FREE_MEMORY: u64 = 2;

/// Bytes in a block of the disk.
const BLOCK: u32 = 512;

const TARGET: &str = "iqn.2026-01.io.lunwire:bench";

/// Over what a load goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Messages within the process.
    Local,
    /// TCP on the loopback address.
    Tcp,
}

const WAYS: [Way; 2] = [Way::Local, Way::Tcp];

/// What one measurement gave.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    requests_per_second: f64,
    latency_ns: f64,
    /// Processor time of all threads of the process for each request, microseconds.
    cpu_us: f64,
}

/// A load, and the medians of both ways.
#[derive(Debug)]
struct Comparison {
    load: Load,
    local: Figures,
    tcp: Figures,
}

/// All that was measured.
#[derive(Debug)]
struct Measured {
    engine: &'static str,
    comparisons: Vec<Comparison>,
}

/// Measures each load over both ways.
pub(super) fn run(options: &BenchOptions) -> Result<()> {
    client::isid::refuse_for_two(&options.client, "of --local")?;
    let wishes = Wishes::of(options, &["4K", "64K"], &[1, 32])?;
    let bytes = wishes.range.unwrap_or(DISK_BYTES);
    let most = machine::free_memory() / PART_OF_FREE_MEMORY;
    if bytes > most {
        let (wanted, most) = (units::bytes(bytes), units::bytes(most));
        let given = options.range.as_deref().unwrap_or(&wanted);
        let text = format!(
            "--range {given}: the disk is in memory, and half of what is free is {most}; try: a \
             smaller --range"
        );
        return Err(Usage(text).into());
    }
    let target = Arc::new(start(bytes)?);
    let measured = measure(options, &wishes, &target, bytes);
    let stopped = target.stop(Duration::ZERO).context("cannot stop the target").err();
    let Measured { engine, comparisons } = measured?;
    let interrupted = client::is_interrupted();
    let failed = interrupted
        .then(|| anyhow!("interrupted: the figures are those of the loads that were measured"));
    // What is told says whether that went well, too.
    let failed = failed.or(stopped);
    if options.json {
        output::measured(
            failed.as_ref(),
            json!({
                "engine": engine,
                "interrupted": interrupted,
                "rounds": ROUNDS,
                "results": comparisons.iter().map(Comparison::json).collect::<Vec<Value>>(),
            }),
        );
    }
    failed.map_or(Ok(()), Err)
}

fn start(bytes: u64) -> Result<Target> {
    let mut stores = Stores::new();
    let store = stores.open(&Spec::Memory { bytes }).context("--range: no such disk in memory")?;
    let identity = Identity::derive(TARGET, 0, "LUNWIRE", "BENCH");
    let unit = LogicalUnit::new(identity, store, BLOCK).context("--range: no such disk")?;
    let node = Node::new(TARGET.to_owned(), vec![(0, Arc::new(unit))]);
    let portal = SocketAddr::from(([127, 0, 0, 1], 0)).into();
    Target::start(Plan::new(vec![portal], vec![node], stores)).context("cannot start the target")
}

fn measure(
    options: &BenchOptions,
    wishes: &Wishes,
    target: &Arc<Target>,
    bytes: u64,
) -> Result<Measured> {
    let mut queue = client::queue(&options.client)?;
    let portals = target.portals();
    let address = portals.first().context("the target has no portal")?;
    let url = format!("iscsi://{address}/{TARGET}/0");
    let tcp = Disk::open(&mut queue, &options.client, &url)?;
    let local = open_local(&mut queue, options, target, &tcp)?;
    fill(&mut queue, &local, bytes)?;
    let mut loads = Vec::new();
    for reads in options.reads.map_or_else(|| vec![100, 0], |reads| vec![reads]) {
        for (block, depth) in wishes.pairs() {
            let load = Load {
                block: check_block(&local, block)?,
                depth,
                reads: reads.into(),
                sequential: options.sequential,
                time: wishes.time / (2 * ROUNDS),
                range: bytes,
                verify: false,
            };
            check_range(&load, options.range.as_deref())?;
            loads.push(load);
        }
    }
    let mut comparisons = Vec::new();
    for load in loads {
        if client::is_interrupted() {
            break;
        }
        let Some(comparison) = compare(&mut queue, [&local, &tcp], load)? else { break };
        if !options.json {
            comparison.print();
        }
        comparisons.push(comparison);
    }
    Ok(Measured { engine: queue.engine(), comparisons })
}

/// The disk that `tcp` is, without a network.
fn open_local(
    queue: &mut Queue,
    options: &BenchOptions,
    target: &Arc<Target>,
    tcp: &Disk,
) -> Result<Disk> {
    let weak = Arc::downgrade(target);
    let way = LocalTarget::new(move || {
        let target = weak.upgrade().ok_or_else(|| io::Error::other("the target has stopped"))?;
        Ok(target.connect_local())
    });
    let login = client::options(&options.client, &tcp.url)?;
    let login = Options { local: Some(way), portals: Vec::new(), ..login };
    let session: SessionId = queue.login(login)?;
    let geometry = scsi::geometry(&mut queue.unit(session, 0))?;
    let durability = Durability::Flush;
    let (url, address) = (tcp.url.clone(), tcp.address.clone());
    Ok(Disk { url, address, session, lun: 0, geometry, durability })
}

/// Writes all of the disk, unless the user wants an end: what was never written is read from a page
/// of zeroes, which costs less, and takes its memory when it is written first, which costs more.
fn fill(queue: &mut Queue, disk: &Disk, bytes: u64) -> Result<()> {
    const PIECE: u64 = 1 << 20;
    let piece = Slice::from(vec![0x5a; 1 << 20]);
    let is_quick = bytes <= DISK_BYTES;
    if !is_quick {
        output::say(format_args!("filling a disk of {} in memory", units::bytes(bytes)));
    }
    let mut progress = Progress::new("filled", 0, Some(bytes), is_quick);
    for offset in (0..bytes / u64::from(BLOCK) * u64::from(BLOCK)).step_by(1 << 20) {
        let length = usize::try_from(PIECE.min(bytes - offset)).unwrap_or(1 << 20);
        let length = length / BLOCK as usize * BLOCK as usize;
        let data = piece.part(0..length).unwrap_or_default();
        if client::is_interrupted() {
            return Ok(());
        }
        queue.execute(disk.session, disk.write(offset, data))?;
        progress.show(offset, || None);
    }
    progress.finish(bytes);
    Ok(())
}

/// Measures a load in turns; None if it was interrupted.
fn compare(queue: &mut Queue, disks: [&Disk; 2], load: Load) -> Result<Option<Comparison>> {
    let mut figures: [Vec<Figures>; 2] = Default::default();
    for round in 0..ROUNDS {
        let mut turns = [0, 1];
        if round % 2 == 1 {
            turns.reverse();
        }
        for turn in turns {
            let (Some(disk), Some(list)) = (disks.get(turn), figures.get_mut(turn)) else {
                continue;
            };
            list.push(once(queue, disk, load)?);
            if client::is_interrupted() {
                return Ok(None);
            }
        }
    }
    let [local, tcp] = figures.map(|list| median(&list));
    Ok(Some(Comparison { load, local, tcp }))
}

fn once(queue: &mut Queue, disk: &Disk, load: Load) -> Result<Figures> {
    let before = super::cpu_time(ClockId::ProcessCPUTime);
    let (outcome, result) = Bench::new(queue, disk, &[disk.session], load).run();
    result?;
    let cpu = super::cpu_time(ClockId::ProcessCPUTime) - before;
    let requests = outcome.latencies.total().max(1) as f64;
    Ok(Figures {
        requests_per_second: outcome.iops(),
        latency_ns: outcome.latencies.mean() as f64,
        cpu_us: cpu.as_secs_f64() * 1e6 / requests,
    })
}

/// The median of each figure.
fn median(list: &[Figures]) -> Figures {
    let middle = |figure: fn(&Figures) -> f64| {
        let mut values: Vec<f64> = list.iter().map(figure).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or_default()
    };
    Figures {
        requests_per_second: middle(|figures| figures.requests_per_second),
        latency_ns: middle(|figures| figures.latency_ns),
        cpu_us: middle(|figures| figures.cpu_us),
    }
}

impl Way {
    const fn name(self) -> &'static str {
        match self {
            Self::Local => "without a network",
            Self::Tcp => "over loopback TCP",
        }
    }
}

impl Comparison {
    fn figures(&self, way: Way) -> Figures {
        match way {
            Way::Local => self.local,
            Way::Tcp => self.tcp,
        }
    }

    fn print(&self) {
        output::line(format!("{}:", self.load.name()));
        for way in WAYS {
            let Figures { requests_per_second, latency_ns, cpu_us } = self.figures(way);
            let bytes = requests_per_second * f64::from(self.load.block);
            output::line(format!(
                "  {}: {requests_per_second:.0} requests/s, {:.1} MiB/s, mean {}, {cpu_us:.1} us \
                 of CPU each in both roles",
                way.name(),
                bytes / f64::from(1 << 20),
                plot::time(latency_ns),
            ));
        }
    }

    fn json(&self) -> Value {
        let way = |way: Way| {
            let figures = self.figures(way);
            let bytes = figures.requests_per_second * f64::from(self.load.block);
            json!({
                "requests_per_second": output::rounded(figures.requests_per_second),
                "bytes_per_second": output::rounded(bytes),
                "mean_latency_ns": output::rounded(figures.latency_ns),
                "cpu_us_per_request": output::rounded(figures.cpu_us),
            })
        };
        json!({
            "block_bytes": self.load.block,
            "depth": self.load.depth,
            "reads_percent": self.load.reads,
            "sequential": self.load.sequential,
            "local": way(Way::Local),
            "tcp": way(Way::Tcp),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_those_of_each_figure() {
        let figures = |a, b, c| Figures { requests_per_second: a, latency_ns: b, cpu_us: c };
        let of = median(&[figures(1.0, 9.0, 5.0), figures(3.0, 7.0, 4.0), figures(2.0, 8.0, 6.0)]);
        assert_eq!((of.requests_per_second, of.latency_ns, of.cpu_us), (2.0, 8.0, 5.0));
    }
}
