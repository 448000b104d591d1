// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the study left open (section 5.2): unsolicited data, many commands at once, the load of the
//! processor, where reads stood still, files.

use super::super::{CPU_SIZES, Carrier, Load, MANY_SIZES, Measured};
use super::{above, exact, percent, table};
use crate::figure::{Bar, Figure, Kind, bytes, number};
use crate::report::{Section, Table};

/// Immediate and unsolicited data.
pub(super) fn unasked(measured: &Measured) -> Section {
    let mut section = Section::new(
        "Left open: immediate and unsolicited data (the study had to switch both off with iSER)",
    );
    let unasked = |carrier| move |size| Load::of(carrier, true, size).unasked();
    let lines = vec![
        measured.line("iSER, unasked", unasked(Carrier::Iwarp)),
        measured.line("iSER, asked for", exact(Carrier::Iwarp, true)),
        measured.line("iSCSI, unasked", unasked(Carrier::Tcp)),
        measured.line("iSCSI, asked for", exact(Carrier::Tcp, true)),
    ];
    section.tables.push(table(&lines));
    section.figures.push(Figure {
        file: "unasked",
        title: "Writes whose first burst (256 KiB) goes unasked".into(),
        unit: "Mb/s",
        kind: Kind::Lines(lines),
    });
    for carrier in Carrier::BOTH {
        let gains: Vec<(u32, f64)> = measured
            .options
            .sizes()
            .into_iter()
            .filter_map(|size| {
                let asked = measured.megabits(exact(carrier, true)(size))?;
                Some((size, above(measured.megabits(unasked(carrier)(size))?, asked)))
            })
            .collect();
        let small = |(size, gain): &(u32, f64)| (*size <= 8 << 10).then_some(*gain);
        let small = crate::measure::median(gains.iter().filter_map(small).collect());
        let last = gains.iter().rev().find(|(_, gain)| *gain > 5.0).map(|(size, _)| *size);
        let most = gains
            .iter()
            .copied()
            .fold((0, f64::MIN), |best, one| if one.1 > best.1 { one } else { best });
        let up_to = match last {
            Some(size) => format!("it pays (5 % and more) up to {}", bytes(u64::from(size))),
            None => "it pays at no size".into(),
        };
        section.conclude(
            small > 0.0,
            format!(
                "\"It may prove beneficial to circumvent the setup of RDMA for small transfers\": \
                 with {} writes of up to 8 KiB gain {}, most is {} at {}, and {up_to}",
                carrier.name(),
                percent(small),
                percent(most.1),
                bytes(u64::from(most.0))
            ),
        );
    }
    section
}

/// Many commands at once.
pub(super) fn many(measured: &Measured) -> Section {
    let mut section = Section::new(
        "Left open: many commands at once (\"does not appear to work properly with iSER enabled\")",
    );
    let depths = measured.options.depths();
    let names: Vec<String> = depths.iter().map(|depth| format!("{depth} at once")).collect();
    let head: Vec<&str> =
        ["load", "carrier"].into_iter().chain(names.iter().map(String::as_str)).collect();
    let mut table = Table::new(&head);
    let (mut bars, mut gains) = (Vec::new(), Vec::new());
    for size in MANY_SIZES {
        for write in [false, true] {
            let what =
                format!("{} {}", bytes(u64::from(size)), if write { "write" } else { "read" });
            for carrier in Carrier::BOTH {
                let at = |depth: &usize| {
                    measured.megabits(Load::of(carrier, write, size).at_once(*depth)).unwrap_or(0.0)
                };
                let values: Vec<f64> = depths.iter().map(at).collect();
                let cells = values.iter().copied().map(number);
                table.row([what.clone(), carrier.name().into()].into_iter().chain(cells).collect());
                let one = values.first().copied().unwrap_or(0.0);
                let most = values.iter().copied().fold(0.0, f64::max);
                bars.push(Bar::new(&what, &format!("{}, one", carrier.name()), vec![one]));
                bars.push(Bar::new(&what, &format!("{}, most", carrier.name()), vec![most]));
                if carrier == Carrier::Iwarp {
                    gains.push((what.clone(), most / one.max(1e-9)));
                }
            }
        }
    }
    section.tables.push(table);
    section.figures.push(Figure {
        file: "many",
        title: "One command at a time, and the best of up to 32 at once".into(),
        unit: "Mb/s",
        kind: Kind::Bars { parts: vec!["payload"], bars },
    });
    let told: Vec<String> =
        gains.iter().map(|(what, times)| format!("{what} {times:.1} times")).collect();
    section.conclude(
        gains.iter().all(|(_, times)| *times > 1.0),
        format!(
            "Several commands of an initiator at once work over iSER, and carry more than one at a \
             time: {}",
            told.join(", ")
        ),
    );
    section
}

/// The load of the processor.
pub(super) fn cpu(measured: &Measured) -> Section {
    let mut section = Section::new("Left open: processor time of iSER and of plain iSCSI");
    let mut table =
        Table::new(&["load", "carrier", "target, us", "initiator, us", "us for a MiB", "Mb/s"]);
    let mut bars = Vec::new();
    let mut costs = Vec::new();
    for size in CPU_SIZES {
        for write in [false, true] {
            let what =
                format!("{} {}", bytes(u64::from(size)), if write { "write" } else { "read" });
            let mut of_both = Vec::new();
            for carrier in Carrier::ALL {
                let Some(case) = measured.case(Load::of(carrier, write, size)) else { continue };
                let [target, initiator] = case.cpu_us();
                let mebibyte = f64::from(1 << 20) / f64::from(size);
                table.row(vec![
                    what.clone(),
                    carrier.name().into(),
                    number(target),
                    number(initiator),
                    number((target + initiator) * mebibyte),
                    number(case.megabits()),
                ]);
                bars.push(Bar::new(&what, carrier.name(), vec![target, initiator]));
                if Carrier::BOTH.contains(&carrier) {
                    of_both.push((carrier, target + initiator));
                }
            }
            let cost = |carrier| {
                of_both.iter().find(|(one, _)| *one == carrier).map_or(0.0, |(_, cost)| *cost)
            };
            costs.push((what, above(cost(Carrier::Iwarp), cost(Carrier::Tcp))));
        }
    }
    section.tables.push(table);
    section.figures.push(Figure {
        file: "cpu",
        title: "Processor time of a transfer, one at a time".into(),
        unit: "us",
        kind: Kind::Bars { parts: vec!["target", "initiator"], bars },
    });
    let told: Vec<String> =
        costs.iter().map(|(what, more)| format!("{what} {}", percent(*more))).collect();
    section.conclude(
        costs.iter().all(|(_, more)| *more < 0.0),
        format!(
            "\"Offloading should greatly reduce the work of the CPU\": without an adapter it does \
             not; both sides together, software iWARP with CRC against TCP without digests: {}",
            told.join(", ")
        ),
    );
    let digests: Vec<f64> = CPU_SIZES
        .into_iter()
        .flat_map(|size| [false, true].map(|write| (size, write)))
        .filter_map(|(size, write)| {
            let cost = |carrier| {
                let case = measured.case(Load::of(carrier, write, size))?;
                Some(case.cpu_us().iter().sum::<f64>())
            };
            Some(above(cost(Carrier::Iwarp)?, cost(Carrier::TcpDigests)?))
        })
        .collect();
    section.pass_over(format!(
        "Where plain iSCSI checks its bytes as well (both digests), iSER takes {} of its processor \
         time, the median of these loads.",
        percent(crate::measure::median(digests))
    ));
    section
}

/// Where reads in user space stood still.
pub(super) fn reads(measured: &Measured) -> Section {
    let mut section = Section::new("Left open: where reads in user space stood still");
    let mut table = Table::new(&[
        "read over",
        "transfer",
        "us",
        "target's CPU",
        "initiator's CPU",
        "target sleeps",
        "initiator sleeps",
        "Mb/s",
        "Mb/s, spinning",
    ]);
    let mut bars = Vec::new();
    let mut gains = Vec::new();
    for case in &measured.spinning {
        let load = case.load;
        let Some(sleeping) = measured.case(load) else { continue };
        let (all, [target, initiator]) = (sleeping.each_us(), sleeping.cpu_us());
        let [of_target, of_initiator] = sleeping.sleeps();
        let size = bytes(u64::from(load.bytes));
        let cells = [all, target, initiator, of_target, of_initiator];
        let cells = cells.into_iter().chain([sleeping.megabits(), case.megabits()]);
        let names = [load.carrier.name().to_owned(), size.clone()];
        table.row(names.into_iter().chain(cells.map(number)).collect());
        let mebibyte = f64::from(1 << 20) / f64::from(load.bytes);
        // Both may work at the same time.
        let nobody = (all - target - initiator).max(0.0);
        let parts = [target, initiator, nobody].map(|us| us * mebibyte);
        bars.push(Bar::new(&size, load.carrier.name(), parts.to_vec()));
        if load.carrier == Carrier::Iwarp {
            gains.push((size, sleeping.megabits(), case.megabits(), of_initiator));
        }
    }
    section.tables.push(table);
    bars.sort_by_key(|bar| bar.name.clone());
    section.figures.push(Figure {
        file: "reads",
        title: "Time of a MiB that is read, one transfer at a time, both sides asleep meanwhile"
            .into(),
        unit: "us",
        kind: Kind::Bars { parts: vec!["target", "initiator", "nobody"], bars },
    });
    let most = gains.iter().max_by(|a, b| (a.2 / a.1.max(1e-9)).total_cmp(&(b.2 / b.1.max(1e-9))));
    if let Some((size, asleep, spinning, sleeps)) = most {
        section.conclude(
            spinning > asleep,
            format!(
                "One read at a time leaves both processors idle while the pieces of its data \
                 come: whoever waits for a piece sleeps, and has to be woken. It shows most at \
                 {size}, where the initiator sleeps {sleeps:.1} times in a read: {asleep:.0} \
                 Mb/s, and {spinning:.0} where both sides look for more for a while before they \
                 sleep. Whether its reads met the same, the study does not say",
            ),
        );
    }
    let size = MANY_SIZES.last().copied().unwrap_or(0);
    let at = |write, depth| {
        measured.megabits(Load::of(Carrier::Iwarp, write, size).at_once(depth)).unwrap_or(0.0)
    };
    let most = |write| {
        measured.options.depths().into_iter().map(|depth| at(write, depth)).fold(0.0, f64::max)
    };
    let (one, many) = (at(false, 1), most(false));
    section.conclude(
        many > one,
        format!(
            "Several at once leave no time to sleep: reads of {} go from {one:.0} to {many:.0} \
             Mb/s (writes from {:.0} to {:.0}), so it is not the way of the data that stands \
             still but the wait between pieces and commands",
            bytes(u64::from(size)),
            at(true, 1),
            most(true)
        ),
    );
    section
}

/// FILEIO.
pub(super) fn files(measured: &Measured) -> Section {
    let mut section = Section::new("FILEIO: a file in place of memory");
    let mut lines = Vec::new();
    for (write, what) in [(false, "read"), (true, "write")] {
        for carrier in Carrier::BOTH {
            let name = format!("{what}, {}", carrier.name());
            lines.push(measured.line(&name, |size| Load::of(carrier, write, size).in_file()));
        }
    }
    section.tables.push(table(&lines));
    section.figures.push(Figure {
        file: "fileio",
        title: "FILEIO: a file of 32 MiB, which the system has in memory".into(),
        unit: "Mb/s",
        kind: Kind::Lines(lines),
    });
    let best = |write, in_file: bool| {
        measured.best(|size| {
            let load = Load::of(Carrier::Iwarp, write, size);
            if in_file { load.in_file() } else { load }
        })
    };
    let losses = [false, true].map(|write| above(best(write, true), best(write, false)));
    section.conclude(
        losses.iter().all(|loss| *loss < 0.0),
        format!(
            "Memory shows the stack without the disk (chapter 4): a file costs iSER {} for reads \
             and {} for writes of the largest throughput here, though it is in the system's memory",
            percent(losses[0]),
            percent(losses[1])
        ),
    );
    section
}
