// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the study left open (section 5.2): unsolicited data, many commands at once, the load of the
//! processor, where reads stood still, files.

use super::super::rig::Sample;
use super::super::{CPU_SIZES, Carrier, Load, MANY_SIZES, Measured};
use super::{above, exact, for_sizes, gain, middle, percent, table};
use crate::picture::{Bar, Kind, Picture, bytes, number};
use crate::study::{Figure, Table};
use crate::verdict::{Answer, Bound, Spread, Test, Verdict};
use crate::words::AMOUNT;

/// Immediate and unsolicited data.
pub(super) fn unasked(measured: &Measured) -> Figure {
    let mut figure = Figure::new(
        &[],
        "Left open: immediate and unsolicited data (the study had to switch both off with iSER)",
    );
    let unasked = |carrier| move |size| Load::of(carrier, true, size).unasked();
    let lines = vec![
        measured.line("iSER, unasked", unasked(Carrier::Iwarp)),
        measured.line("iSER, asked for", exact(Carrier::Iwarp, true)),
        measured.line("iSCSI, unasked", unasked(Carrier::Tcp)),
        measured.line("iSCSI, asked for", exact(Carrier::Tcp, true)),
    ];
    figure.tables.push(table(&lines));
    figure.pictures.push(Picture {
        file: "unasked",
        title: "Writes whose first burst (256 KiB) goes unasked".into(),
        unit: "Mb/s",
        kind: Kind::Lines(lines),
    });
    for carrier in Carrier::BOTH {
        let of = |size: u32| measured.gain(unasked(carrier)(size), exact(carrier, true)(size));
        let sizes = measured.options.sizes();
        let name = format!("% gained with {}", carrier.name());
        let all = for_sizes(sizes.clone(), &name, of, Bound::Above(PAYS));
        let small = for_sizes(
            sizes.iter().copied().filter(|size| *size <= SMALL),
            &name,
            of,
            Bound::Above(0.0),
        );
        let gains = sizes.iter().zip(&all).map(|(size, test)| (*size, test.spread.median));
        let last = gains.clone().rfind(|(_, gain)| *gain > PAYS).map(|(size, _)| size);
        let most = gains.fold((0, f64::MIN), |best, one| if one.1 > best.1 { one } else { best });
        let up_to = match last {
            Some(size) => {
                format!("it pays ({PAYS:.0} % and more) up to {}", bytes(u64::from(size)))
            }
            None => "it pays at no size".into(),
        };
        figure.claim(
            "\"It may prove beneficial to circumvent the setup of RDMA for small transfers\"",
            format!(
                "with {} writes of up to {} gain {}, most is {} at {}, and {up_to}",
                carrier.name(),
                bytes(u64::from(SMALL)),
                percent(middle(&small)),
                percent(most.1),
                bytes(u64::from(most.0))
            ),
            small,
        );
    }
    figure
}

/// Small transfers are no larger than this, bytes.
const SMALL: u32 = 8 << 10;

/// Percent that are worth it.
const PAYS: f64 = 5.0;

/// Many commands at once.
pub(super) fn many(measured: &Measured) -> Figure {
    let mut figure = Figure::new(
        &[],
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
                let load = Load::of(carrier, write, size);
                let cases = depths.iter().filter_map(|depth| measured.case(load.at_once(*depth)));
                let best = cases.max_by(|a, b| a.megabits().total_cmp(&b.megabits()));
                if let (Carrier::Iwarp, Some(one), Some(best)) =
                    (carrier, measured.case(load.at_once(1)), best)
                {
                    let times = Spread::paired(&best.rates(), &one.rates(), |a, b| a / b);
                    gains.push(Test::new(format!("{what}, times"), times, Bound::Below(1.0)));
                }
            }
        }
    }
    figure.tables.push(table);
    figure.pictures.push(Picture {
        file: "many",
        title: "One command at a time, and the best of up to 32 at once".into(),
        unit: "Mb/s",
        kind: Kind::Bars { parts: vec!["payload"], bars },
    });
    let told = gains.iter().map(|test| {
        let what = test.name.strip_suffix(", times").unwrap_or(&test.name);
        format!("{what} {:.1}", test.spread.median)
    });
    let told = told.collect::<Vec<_>>().join("; ");
    figure.claim(
        "Several commands of an initiator at once do not appear to work with iSER",
        format!("they do; throughput of the best of several, times that of one: {told}"),
        gains,
    );
    figure
}

/// The load of the processor.
pub(super) fn cpu(measured: &Measured) -> Figure {
    let mut figure = Figure::new(&[], "Left open: processor time of iSER and of plain iSCSI");
    let mut table =
        Table::new(&["load", "carrier", "target, us", "initiator, us", "us for a MiB", "Mb/s"]);
    let mut bars = Vec::new();
    let mut costs: Vec<Test> = Vec::new();
    for size in CPU_SIZES {
        for write in [false, true] {
            let what =
                format!("{} {}", bytes(u64::from(size)), if write { "write" } else { "read" });
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
            }
            let values = |carrier| {
                let case = measured.case(Load::of(carrier, write, size))?;
                Some(case.values(Sample::cpu_us))
            };
            if let (Some(iser), Some(plain)) = (values(Carrier::Iwarp), values(Carrier::Tcp)) {
                let more = Spread::paired(&iser, &plain, above);
                costs.push(Test::new(format!("{what}, % more"), more, Bound::Below(0.0)));
            }
        }
    }
    figure.tables.push(table);
    figure.pictures.push(Picture {
        file: "cpu",
        title: "Processor time of a transfer, one at a time".into(),
        unit: "us",
        kind: Kind::Bars { parts: vec!["target", "initiator"], bars },
    });
    let told: Vec<String> =
        costs.iter().map(|test| format!("{} {}", test.name, percent(test.spread.median))).collect();
    figure.claim(
        "\"Offloading should greatly reduce the work of the CPU\"",
        format!(
            "{}; both sides together, software iWARP with CRC against TCP without digests: {}",
            without_adapter(&costs),
            told.join("; ")
        ),
        costs,
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
    figure.method = format!(
        "Where plain iSCSI checks its bytes as well (both digests), iSER takes {} of its processor \
         time, the median of these loads.",
        AMOUNT.by(crate::measure::median(digests))
    );
    figure
}

/// As far as it can be told.
fn without_adapter(costs: &[Test]) -> &'static str {
    let answers: Vec<Answer> = costs.iter().map(Test::answer).collect();
    match Verdict::of(&answers) {
        Verdict::Holds => "without an adapter less work is left, too",
        Verdict::InPart => "without an adapter some loads leave less work, and some do not",
        Verdict::NoLonger => "without an adapter no less work is left",
        Verdict::Hidden | Verdict::NotHere => {
            "whether less work is left without an adapter, the spread hides"
        }
    }
}

/// Whether commands that do not wait for each other make reads faster.
fn which_it_is(gained: &Test) -> &'static str {
    match gained.answer() {
        Answer::Yes => "so it is the wait between pieces and commands",
        Answer::No => "so it is the way of the data",
        Answer::Hidden => "and which of both it is the spread hides",
    }
}

/// Where reads in user space stood still.
pub(super) fn reads(measured: &Measured) -> Figure {
    let mut figure = Figure::new(&[], "Left open: where reads in user space stood still");
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
    let (mut gains, mut tests) = (Vec::new(), Vec::new());
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
            let more = gain(case, sleeping);
            tests.push(Test::new(format!("% gained, {size}"), more, Bound::Above(0.0)));
            gains.push((size, sleeping.megabits(), case.megabits(), of_initiator));
        }
    }
    figure.tables.push(table);
    bars.sort_by_key(|bar| bar.name.clone());
    figure.pictures.push(Picture {
        file: "reads",
        title: "Time of a MiB that is read, one transfer at a time, both sides asleep meanwhile"
            .into(),
        unit: "us",
        kind: Kind::Bars { parts: vec!["target", "initiator", "nobody"], bars },
    });
    let most = gains.iter().max_by(|a, b| (a.2 / a.1.max(1e-9)).total_cmp(&(b.2 / b.1.max(1e-9))));
    if let Some((size, asleep, spinning, sleeps)) = most {
        figure.claim(
            "Reads in user space stand still far below writes; why, the study does not know",
            format!(
                "one read at a time leaves both processors idle while the pieces of its data \
                 come: whoever waits for a piece sleeps, and has to be woken. It shows most at \
                 {size}, where the initiator sleeps {sleeps:.1} times in a read: {asleep:.0} \
                 Mb/s, and {spinning:.0} where both sides look for more for a while before they \
                 sleep. Whether its reads met the same, the study does not say",
            ),
            tests,
        );
    }
    let size = MANY_SIZES.last().copied().unwrap_or(0);
    let at = |write, depth| measured.case(Load::of(Carrier::Iwarp, write, size).at_once(depth));
    let most = |write| {
        let cases = measured.options.depths().into_iter().filter_map(|depth| at(write, depth));
        cases.max_by(|a, b| a.megabits().total_cmp(&b.megabits()))
    };
    let pair = |write| Some((at(write, 1)?, most(write)?));
    if let (Some((one, many)), Some((one_write, many_writes))) = (pair(false), pair(true)) {
        let gained = Test::new("% gained by several at once", gain(many, one), Bound::Above(0.0));
        figure.claim(
            "Whether it is the way of the data or the wait between commands, the study does not \
             say: that it is the wait",
            format!(
                "several at once leave no time to sleep: reads of {} go from {:.0} to {:.0} Mb/s \
                 (writes from {:.0} to {:.0}), {}",
                bytes(u64::from(size)),
                one.megabits(),
                many.megabits(),
                one_write.megabits(),
                many_writes.megabits(),
                which_it_is(&gained)
            ),
            vec![gained],
        );
    }
    figure
}

/// FILEIO.
pub(super) fn files(measured: &Measured) -> Figure {
    let mut figure = Figure::new(&[], "FILEIO: a file in place of memory");
    let mut lines = Vec::new();
    for (write, what) in [(false, "read"), (true, "write")] {
        for carrier in Carrier::BOTH {
            let name = format!("{what}, {}", carrier.name());
            lines.push(measured.line(&name, |size| Load::of(carrier, write, size).in_file()));
        }
    }
    figure.tables.push(table(&lines));
    figure.pictures.push(Picture {
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
    let mut tests = Vec::new();
    for (write, what) in [(false, "reads"), (true, "writes")] {
        if let (Some(file), Some(memory)) = (best(write, true), best(write, false)) {
            let name = format!("% that a file changes {what}");
            tests.push(Test::new(name, gain(file, memory), Bound::Below(0.0)));
        }
    }
    let told = tests.iter().map(|test| format!("{}: {}", test.name, percent(test.spread.median)));
    figure.claim(
        "Memory shows the stack without the disk (chapter 4): a file in its place is slower",
        format!(
            "largest throughput of iSER, the file in the system's memory: {}",
            told.collect::<Vec<_>>().join(", ")
        ),
        tests,
    );
    figure
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_spread_hides_is_not_said_to_be_so() {
        let test = |values: &[f64], bound| Test::new("it", Spread::of(values), bound);
        let [yes, no, hidden] = [[1.0, 2.0, 3.0], [-1.0, -2.0, -3.0], [-1.0, 1.0, 2.0]];
        let gained = |values| which_it_is(&test(values, Bound::Above(0.0)));
        assert!(gained(&yes).contains("it is the wait"));
        assert!(gained(&no).contains("it is the way"));
        assert!(gained(&hidden).contains("the spread hides"));
        let costs = |all: &[&[f64]]| {
            let tests: Vec<Test> =
                all.iter().map(|values| test(values, Bound::Below(0.0))).collect();
            without_adapter(&tests)
        };
        assert!(costs(&[&no, &no]).ends_with("left, too"));
        assert!(costs(&[&yes, &yes]).contains("no less"));
        assert!(costs(&[&yes, &no]).contains("some loads"));
        assert!(costs(&[&hidden, &yes]).contains("the spread hides"));
    }
}
