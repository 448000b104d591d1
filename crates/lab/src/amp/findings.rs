// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the figures say: the study's and ours, side by side.

use super::protocol;
use super::rig::{DEPTH, SESSIONS, Sample};
use super::theirs::{self, BINS};
use super::{Case, Division, Load, Measured, Places};
use crate::measure::{median, real};
use crate::picture::{Bar, Kind, Picture, number};
use crate::study::{Figure, Findings, Table};
use crate::threads::Usage;
use crate::verdict::{Bound, Spread, Test};
use crate::words::{AMOUNT, Comparison, OFTEN};

/// By how many percent the reactor's cost of an I/O has to fall.
const HOST_GAIN: f64 = 30.0;

/// Parts of an I/O's cost.
const PARTS: [&str; 4] = ["reactor, user", "reactor, kernel", "core, user", "core, kernel"];

pub(super) fn report(measured: &Measured) -> Findings {
    Findings {
        title: "AMP: a polling core for the work on sockets (Foong et al., 2005), re-run",
        preface: preface(measured),
        variations: measured.cases.iter().map(Case::variation).collect(),
        figures: vec![
            throughput(measured),
            scaling(measured),
            profile(measured, false),
            profile(measured, true),
            each_cpu(measured),
            layers(measured),
            gains(measured),
            host(measured),
        ],
    }
}

impl Sample {
    /// Microseconds for each I/O.
    fn each_us(&self, cpu_ns: u64) -> f64 {
        real(cpu_ns) / 1000.0 / self.ios
    }

    /// What each I/O costs reactor and core together, microseconds.
    fn target_us(&self) -> f64 {
        self.each_us(self.host.cpu_ns + self.core.cpu_ns)
    }
}

impl Case {
    fn values(&self, of: impl Fn(&Sample) -> f64) -> Vec<f64> {
        self.samples.iter().map(of).collect()
    }

    fn typical(&self, of: impl Fn(&Sample) -> f64) -> f64 {
        median(self.values(of))
    }

    /// Of the throughput.
    fn variation(&self) -> f64 {
        Spread::of(&self.values(|sample| sample.ios / sample.seconds)).variation
    }

    fn megabytes(&self) -> f64 {
        let bytes = f64::from(self.load.bytes);
        self.typical(|sample| sample.ios * bytes / sample.seconds / 1e6)
    }

    /// Percent of one CPU.
    fn busy(&self, of: impl Fn(&Sample) -> u64) -> f64 {
        self.typical(|sample| real(of(sample)) / sample.seconds / 1e7)
    }

    /// GHz for each Gb/s: cycles for each bit.
    fn cycles_per_bit(&self, measured: &Measured) -> f64 {
        let bits = 8.0 * f64::from(self.load.bytes);
        self.typical(|sample| sample.target_us() * measured.per_second / 1e6 / bits)
    }

    /// What an I/O costs, by `PARTS`. The kernel samples user and system time in ticks: all runs
    /// together tell the shares.
    fn parts(&self) -> [f64; 4] {
        let split = |us: f64, of: fn(&Sample) -> Usage| {
            let ticks = |mode: fn(Usage) -> u64| {
                real(self.samples.iter().map(|sample| mode(of(sample))).sum())
            };
            let (user, system) = (ticks(|usage| usage.user), ticks(|usage| usage.system));
            let share = if user + system > 0.0 { user / (user + system) } else { 0.0 };
            [us * share, us * (1.0 - share)]
        };
        let [a, b] = split(self.host_us(), |sample| sample.host);
        let [c, d] = split(self.core_us(), |sample| sample.core);
        [a, b, c, d]
    }

    fn host_us(&self) -> f64 {
        self.typical(|sample| sample.each_us(sample.host.cpu_ns))
    }

    fn core_us(&self) -> f64 {
        self.typical(|sample| sample.each_us(sample.core.cpu_ns))
    }
}

fn preface(measured: &Measured) -> Vec<String> {
    let Places { count, .. } = Places::of(Division::Sleeping);
    let shared = if count < 3 {
        "With fewer than three CPUs the reactor of a divided target shares one with the initiator; \
         the polling core is alone, as in the study. Throughput of AMP then says more about that \
         than about AMP; CPU time for each I/O is counted by thread and does not."
    } else {
        "Reactor, polling core and initiator have a CPU each."
    };
    let counted = match &measured.uncounted {
        Some(why) => format!(
            "The processor's counters (instructions, cache misses) cannot be read here: {why}. \
             Machine clears are counted nowhere."
        ),
        None => "Instructions and cache misses are the processor's, of the threads that are named."
            .into(),
    };
    vec![
        format!(
            "Our target and our initiator in one process over loopback, engine {}, {count} CPUs, \
             counter at {:.2} GHz; {SESSIONS} sessions of {DEPTH} commands, a disk of 32 MiB in \
             memory, no digests; {} runs of {} ms in turn, medians. SMP: one reactor does \
             everything. AMP: a polling core does all work on sockets for it; it sleeps with \
             nothing to do, or polls for ever. Nobody spins else, so that CPU time is work.",
            measured.engine,
            measured.per_second / 1e9,
            measured.options.rounds,
            measured.options.time.as_millis(),
        ),
        shared.into(),
        "The study measured an initiator in the kernel of Linux 2.4 on two CPUs and two network \
         cards; its core replaced the kernel's TCP. Ours is a thread that uses the kernel's TCP, \
         and loopback has no card: interrupts and driver are those of softirqs."
            .into(),
        counted,
    ]
}

fn throughput(measured: &Measured) -> Figure {
    let mut figure =
        Figure::new(&["Figure 3"], "Figure 3: throughput, CPU, and cycles for each bit");
    let mut table =
        Table::new(&["load", "mode", "MB/s", "I/O/s", "reactor %CPU", "core %CPU", "GHz per Gb/s"]);
    for load in Load::ALL {
        for division in Division::ALL {
            let Some(case) = measured.case(division, load) else { continue };
            table.row(vec![
                load.name(),
                division.name().into(),
                number(case.megabytes()),
                number(case.typical(|sample| sample.ios / sample.seconds)),
                number(case.busy(|sample| sample.host.cpu_ns)),
                number(case.busy(|sample| sample.core.cpu_ns)),
                number(case.cycles_per_bit(measured)),
            ]);
        }
    }
    figure.tables.push(table);
    let bars = |of: &dyn Fn(&Case) -> Vec<f64>| {
        let bar = |case: &Case| Bar::new(&case.load.name(), case.division.name(), of(case));
        Load::ALL
            .into_iter()
            .flat_map(|load| Division::ALL.map(|division| (division, load)))
            .filter_map(|(division, load)| measured.case(division, load).map(bar))
            .collect()
    };
    figure.pictures.push(Picture {
        file: "figure3a",
        title: "Throughput".into(),
        unit: "MB/s",
        kind: Kind::Bars { parts: vec!["payload"], bars: bars(&|case| vec![case.megabytes()]) },
    });
    figure.pictures.push(Picture {
        file: "figure3b",
        title: "Cost of a bit: CPU time of reactor and core".into(),
        unit: "GHz per Gb/s",
        kind: Kind::Bars {
            parts: PARTS.to_vec(),
            bars: bars(&|case| {
                let bits = 8.0 * f64::from(case.load.bytes);
                let cycles = |us: f64| us * measured.per_second / 1e6 / bits;
                case.parts().map(cycles).to_vec()
            }),
        },
    });
    let gains = each_load(measured, Sample::target_us);
    let [least, most] = theirs::GAIN;
    figure.claim(
        format!(
            "\"AMP is {least:.0}-{most:.0} % more efficient\" in cycles for each bit of both CPUs \
             together"
        ),
        format!("a bit costs {} with it", list(&gains, AMOUNT)),
        tests(&gains, "% fewer cycles", Bound::Above(least)),
    );
    let slower = each_load(measured, |sample| sample.ios / sample.seconds);
    let faster: Vec<(Load, Spread)> =
        slower.iter().map(|(load, less)| (*load, *less * -1.0)).collect();
    figure.claim(
        format!("\"improved bandwidth\": line rate ({:.0} MB/s) with AMP alone", theirs::LINE_RATE),
        format!("throughput is {}", list(&slower, AMOUNT)),
        tests(&faster, "% more throughput", Bound::Above(0.0)),
    );
    figure
}

/// The study changed the clock; here the cost of a bit is given at the one clock that there is, and
/// what it comes to at the study's.
fn scaling(measured: &Measured) -> Figure {
    let mut figure = Figure::new(&["Figure 4"], "Figure 4: scaling with the processor's clock");
    let mut table = Table::new(&[
        "load",
        "mode",
        "CPU s per Gb",
        "counter, GHz",
        "GHz per Gb/s",
        "Gb/s at 2.4 GHz, if cycles stay",
    ]);
    let mut bars = Vec::new();
    for load in Load::ALL {
        for case in Division::ALL.into_iter().filter_map(|of| measured.case(of, load)) {
            let cycles = case.cycles_per_bit(measured);
            let carried = if cycles > 0.0 { theirs::CLOCK_GHZ / cycles } else { 0.0 };
            table.row(vec![
                load.name(),
                case.division.name().into(),
                number(cycles * 1e9 / measured.per_second),
                number(measured.per_second / 1e9),
                number(cycles),
                number(carried),
            ]);
            bars.push(Bar::new(&load.name(), case.division.name(), vec![carried]));
        }
    }
    figure.tables.push(table);
    figure.pictures.push(Picture {
        file: "figure4",
        title: "Payload that 2.4 GHz of processor carry, if a bit costs the same cycles".into(),
        unit: "Gb/s",
        kind: Kind::Bars { parts: vec!["payload"], bars },
    });
    figure.method = "CPU time times the counter's frequency: no program changes the clock of a \
                     virtual machine, so one clock stands for all; the study's values are in its \
                     plot alone."
        .into();
    let gains = each_load(measured, Sample::target_us);
    figure.claim(
        "AMP carries more for each GHz at every clock",
        format!("a bit costs {} with it", list(&gains, AMOUNT)),
        tests(&gains, "% fewer cycles", Bound::Above(0.0)),
    );
    figure
}

/// Figures 5 and 6: 64 KiB.
fn profile(measured: &Measured, write: bool) -> Figure {
    let (file, labels, what): (_, &[&str], _) = match write {
        true => ("figure6", &["Figure 6"], "Figure 6: profile of 64 KiB writes"),
        false => ("figure5", &["Figure 5"], "Figure 5: profile of 64 KiB reads"),
    };
    let (smp, amp) = match write {
        true => (theirs::SMP_WRITE, theirs::AMP_WRITE),
        false => (theirs::SMP_READ, theirs::AMP_READ),
    };
    let mut figure = Figure::new(labels, what);
    let share = |cycles: f64| 100.0 * cycles / smp.busy();
    figure.pictures.push(Picture {
        file: if write { "figure6-study" } else { "figure5-study" },
        title: format!("{what}, the study's (of Table 1)"),
        unit: "% of the busy cycles of SMP",
        kind: Kind::Bars {
            parts: BINS.to_vec(),
            bars: [&smp, &amp]
                .map(|mode| Bar::new("", mode.name, mode.bins().map(share).to_vec()))
                .into_iter()
                .collect(),
        },
    });
    let load = Load { write, bytes: 64 << 10 };
    let base = measured.case(Division::Smp, load).map_or(1.0, |case| case.parts().iter().sum());
    let bars: Vec<Bar> = Division::ALL
        .into_iter()
        .filter_map(|division| measured.case(division, load))
        .map(|case| {
            let shares = case.parts().map(|us| 100.0 * us / base.max(1e-9));
            Bar::new("", case.division.name(), shares.to_vec())
        })
        .collect();
    let mut table = Table::new(&["mode", PARTS[0], PARTS[1], PARTS[2], PARTS[3], "together"]);
    for Bar { name, values: shares, .. } in &bars {
        let cells = shares.iter().copied().chain([shares.iter().sum()]);
        table.row([name.clone()].into_iter().chain(cells.map(number)).collect());
    }
    figure.tables.push(table);
    figure.pictures.push(Picture {
        file,
        title: format!("{what}, ours"),
        unit: "% of the CPU time of SMP",
        kind: Kind::Bars { parts: PARTS.to_vec(), bars },
    });
    if let Some(case) = measured.case(Division::Smp, load) {
        let runs: Vec<Usage> = case.samples.iter().map(|sample| sample.host).collect();
        protocol::claim(&mut figure, &runs);
    }
    figure
}

/// Table 1.
fn each_cpu(measured: &Measured) -> Figure {
    let mut figure = Figure::new(&["Table 1"], "Table 1: what each CPU does for an I/O of 64 KiB");
    let mut study = Table::new(&[
        "the study's",
        "CPU",
        "busy cycles, % of SMP",
        "idle",
        "instructions",
        "machine clears",
        "L2 misses",
    ]);
    for (smp, modes) in [
        (&theirs::SMP_WRITE, [&theirs::SMP_WRITE, &theirs::AMP_WRITE]),
        (&theirs::SMP_READ, [&theirs::SMP_READ, &theirs::AMP_READ]),
    ] {
        for mode in modes {
            for ((cpu, [cycles, instructions, clears, misses]), idle) in
                mode.totals.iter().enumerate().zip(mode.idle)
            {
                study.row(vec![
                    mode.name.into(),
                    format!("CPU{cpu}"),
                    number(100.0 * cycles / smp.busy()),
                    number(100.0 * idle / smp.busy()),
                    number(*instructions),
                    number(*clears),
                    number(*misses),
                ]);
            }
        }
    }
    figure.tables.push(study);
    let mut ours = Table::new(&[
        "load",
        "mode",
        "thread",
        "CPU us",
        "user us",
        "kernel us",
        "slept",
        "preempted",
        "system calls",
    ]);
    let mut machine = Table::new(&[
        "load",
        "mode",
        "device",
        "timer",
        "CPU to CPU",
        "network softirqs",
        "instructions",
        "cache misses",
    ]);
    for load in Load::ALL {
        for case in Division::ALL.into_iter().filter_map(|of| measured.case(of, load)) {
            threads(&mut ours, case);
            machine_row(&mut machine, case);
        }
    }
    figure.tables.push(ours);
    figure.tables.push(machine);
    let sleeps = each_load(measured, |sample| real(sample.host.voluntary) / sample.ios);
    figure.claim(
        "fewer intrusions on the host: 76 to 85 % fewer machine clears on CPU 0",
        format!(
            "machine clears are counted nowhere here; in their place, the reactor sleeps {} for an \
             I/O",
            list(&sleeps, OFTEN)
        ),
        tests(&sleeps, "% fewer sleeps", Bound::Above(0.0)),
    );
    figure
}

fn threads(table: &mut Table, case: &Case) {
    let [host_user, host_kernel, core_user, core_kernel] = case.parts();
    let calls =
        |at: usize| case.calls.map_or_else(|| "not counted".into(), |calls| number(calls[at]));
    let mut row = |thread: &str, cpu: f64, user, kernel, of: fn(&Sample) -> Usage, at| {
        let each = |count: fn(Usage) -> u64| {
            number(case.typical(|sample| real(count(of(sample))) / sample.ios))
        };
        table.row(vec![
            case.load.name(),
            case.division.name().into(),
            thread.into(),
            number(cpu),
            number(user),
            number(kernel),
            each(|usage| usage.voluntary),
            each(|usage| usage.involuntary),
            calls(at),
        ]);
    };
    row("reactor", case.host_us(), host_user, host_kernel, |sample| sample.host, 0);
    if case.division != Division::Smp {
        row("core", case.core_us(), core_user, core_kernel, |sample| sample.core, 1);
    }
}

fn machine_row(table: &mut Table, case: &Case) {
    let each =
        |count: fn(&Sample) -> u64| number(case.typical(|sample| real(count(sample)) / sample.ios));
    let event = |at: usize| {
        let known = case.samples.iter().all(|sample| sample.events.is_some());
        let each = |sample: &Sample| sample.events.map_or(0.0, |events| events[at] / sample.ios);
        if known { number(case.typical(each)) } else { "not counted".into() }
    };
    table.row(vec![
        case.load.name(),
        case.division.name().into(),
        each(|sample| sample.interrupts.devices),
        each(|sample| sample.interrupts.timers),
        each(|sample| sample.interrupts.between),
        each(|sample| sample.interrupts.network),
        event(0),
        event(1),
    ]);
}

/// What the stop-watches of the reactor say; those of the study were its profile's bins.
fn layers(measured: &Measured) -> Figure {
    let mut figure = Figure::new(&[], "Cost by layer: the reactor's stop-watch, ns for an I/O");
    let names: Vec<&str> = measured
        .cases
        .iter()
        .find_map(|case| case.samples.first())
        .map(|sample| sample.layers.iter().map(|(name, _)| *name).collect())
        .unwrap_or_default();
    let head: Vec<&str> = ["load", "mode"].into_iter().chain(names.iter().copied()).collect();
    let mut table = Table::new(&head);
    for load in Load::ALL {
        for case in Division::ALL.into_iter().filter_map(|of| measured.case(of, load)) {
            let cells = (0..names.len()).map(|at| {
                let cycles = |sample: &Sample| sample.layers.get(at).map_or(0.0, |layer| layer.1);
                number(case.typical(cycles) / measured.per_second * 1e9)
            });
            let name = [case.load.name(), case.division.name().to_owned()];
            table.row(name.into_iter().chain(cells).collect());
        }
    }
    figure.tables.push(table);
    figure.not_here(
        "the study's bins were functions of its kernel",
        "ours are other layers; what they cost stands in the table",
    );
    figure
}

/// Table 2.
fn gains(measured: &Measured) -> Figure {
    let mut figure = Figure::new(&["Table 2"], "Table 2: what AMP saves, in percent of SMP");
    let mut study = Table::new(&["the study's, 64 KiB", "write", "read"]);
    let [writes, reads] = theirs::IMPROVED;
    for ((bin, write), read) in BINS.iter().zip(writes).zip(reads) {
        study.row(vec![(*bin).into(), percent(write), percent(read)]);
    }
    let [write, read] = theirs::IMPROVED_TOTAL;
    study.row(vec!["total, of all cycles".into(), percent(write), percent(read)]);
    let busy = |smp: &theirs::Mode, amp: &theirs::Mode| percent(change(smp.busy(), amp.busy()));
    study.row(vec![
        "total, of the cycles that are not idle".into(),
        busy(&theirs::SMP_WRITE, &theirs::AMP_WRITE),
        busy(&theirs::SMP_READ, &theirs::AMP_READ),
    ]);
    figure.tables.push(study);
    let mut ours = Table::new(&["ours", "mode", "user", "kernel", "together"]);
    for load in Load::ALL {
        let Some(smp) = measured.case(Division::Smp, load) else { continue };
        for division in [Division::Sleeping, Division::Polling] {
            let Some(amp) = measured.case(division, load) else { continue };
            let (before, after) = (smp.parts(), amp.parts());
            let all: f64 = before.iter().sum();
            let of = |first: usize| {
                let sum = |parts: &[f64; 4]| parts[first] + parts[first + 2];
                100.0 * (sum(&before) - sum(&after)) / all.max(1e-9)
            };
            let together = change(all, after.iter().sum());
            ours.row(vec![
                load.name(),
                division.name().into(),
                percent(of(0)),
                percent(of(1)),
                percent(together),
            ]);
        }
    }
    figure.tables.push(ours);
    let saved = each_load(measured, Sample::target_us);
    figure.claim(
        format!("a third of all cycles is saved ({write} and {read} %)"),
        format!("reactor and a core that sleeps take {} together", list(&saved, AMOUNT)),
        tests(&saved, "% saved", Bound::Above(theirs::GAIN[0])),
    );
    figure
}

/// What is asked of this project.
fn host(measured: &Measured) -> Figure {
    let mut figure = Figure::new(&[], "The reactor alone: does its cost of an I/O fall by 30 %?");
    let mut table = Table::new(&["load", "SMP, us", "AMP, us", "AMP polling, us", "saved, %"]);
    for load in Load::ALL {
        let us = |division| measured.case(division, load).map_or(0.0, Case::host_us);
        let [smp, sleeping, polling] = Division::ALL.map(us);
        let gain = change(smp, sleeping);
        table.row(vec![
            load.name(),
            number(smp),
            number(sleeping),
            number(polling),
            format!("{} / {}", percent(gain), percent(change(smp, polling))),
        ]);
    }
    figure.tables.push(table);
    let saved = each_load(measured, |sample| sample.each_us(sample.host.cpu_ns));
    figure.claim(
        format!("the reactor's CPU time for an I/O falls by {HOST_GAIN:.0} % or more"),
        format!("it takes {}", list(&saved, AMOUNT)),
        tests(&saved, "% less of the reactor", Bound::Above(HOST_GAIN)),
    );
    figure
}

/// By how many percent something of each I/O is less in AMP with a core that sleeps than in SMP,
/// for each load: of runs that followed upon each other.
fn each_load(measured: &Measured, of: impl Fn(&Sample) -> f64) -> Vec<(Load, Spread)> {
    let pair = |load| {
        let values = |division| Some(measured.case(division, load)?.values(&of));
        let [smp, amp] = [values(Division::Smp)?, values(Division::Sleeping)?];
        Some((load, Spread::paired(&smp, &amp, change)))
    };
    Load::ALL.into_iter().filter_map(pair).collect()
}

fn tests(values: &[(Load, Spread)], what: &str, bound: Bound) -> Vec<Test> {
    let test = |(load, spread): &(Load, Spread)| {
        Test::new(format!("{what}, {}", load.name()), *spread, bound)
    };
    values.iter().map(test).collect()
}

/// Percent by which `after` is less than `before`.
fn change(before: f64, after: f64) -> f64 {
    if before > 0.0 { 100.0 * (before - after) / before } else { 0.0 }
}

fn percent(value: f64) -> String {
    format!("{value:.1}")
}

/// Of percent by which something is less.
fn list(values: &[(Load, Spread)], comparison: Comparison) -> String {
    let one = |(load, value): &(Load, Spread)| {
        format!("{} ({})", comparison.by(-value.median), load.name())
    };
    values.iter().map(one).collect::<Vec<_>>().join(", ")
}
