// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Section 3.3.2.4: utilization = A * bandwidth + B * frame rate + C * operation rate.

use super::super::{Case, Measured, RUNS, Sample, Way};
use crate::fit::{Again, Factor, Fit, FitError, Point};
use crate::picture::{Bar, Kind, Picture, beside, bytes, number};
use crate::reproduced::Reproduced;
use crate::study::{Figure, Table};
use crate::verdict::{Bound, Spread, Test};

/// The three terms, as they are named; units of their factors; and the parts of a picture.
const TERMS: [&str; 3] = ["bandwidth", "frame rate", "operation rate"];
const FACTORS: [&str; 3] = ["A, ns/byte", "B, us/frame", "C, us/operation"];
const PARTS: [&str; 3] = ["bytes", "frames", "operations"];

/// A model whose residuals are more than this part of the mean does not describe what it is fitted
/// to.
const LEFT_MOST: f64 = 0.25;

/// One of three parts is the largest beyond doubt from a half on.
const MOST: f64 = 0.5;

/// The model of a way in one direction.
struct Model {
    way: Way,
    write: bool,
    /// Of each run; a term that never occurs has no factor.
    factors: [[Option<Factor>; 3]; RUNS],
    /// Standard deviation of the residuals, percent of the processor, and by the mean utilization.
    left: [[f64; 2]; RUNS],
    points: usize,
    /// What the second run gives of what the first one promises.
    again: Vec<Again>,
}

/// What the model adds up, so that its factors are nanoseconds for a byte, and microseconds for a
/// frame and for an operation; and their sum: microseconds of a processor in a second.
fn terms(case: &Case, sample: &Sample) -> [f64; 3] {
    [case.bandwidth(sample) * 1e3, case.frames(sample), case.operations(sample)]
}

impl Model {
    fn of(measured: &Measured, way: Way, write: bool) -> Result<Self, FitError> {
        match way == Way::Local || measured.wireless.is_some() {
            true => Self::fit(measured, way, write, [0, 2]),
            false => Self::fit(measured, way, write, [0, 1, 2]),
        }
    }

    fn fit<const N: usize>(
        measured: &Measured,
        way: Way,
        write: bool,
        which: [usize; N],
    ) -> Result<Self, FitError> {
        let names = which.map(|at| TERMS[at]);
        let fit = |run: usize| {
            let mut points = Vec::new();
            for case in measured.cases_of(way, write) {
                for sample in case.samples.get(run).into_iter().flatten() {
                    let all = terms(case, sample);
                    let value = 1e6 * sample.target.by_loop;
                    points.push(Point { terms: which.map(|at| all[at]), value });
                }
            }
            Fit::of(&points, names)
        };
        let fits = [fit(0)?, fit(1)?];
        let what = |at: usize| format!("{} of {}, {}", FACTORS[at], way.name(), direction(write));
        let again = fits[0].again(&fits[1], which.map(what));
        let factors = [0, 1].map(|run: usize| {
            let mut all = [None; 3];
            which
                .into_iter()
                .zip(fits[run].factors)
                .for_each(|(at, factor)| all[at] = Some(factor));
            all
        });
        let left = [0, 1].map(|run: usize| [fits[run].deviation / 1e4, fits[run].part]);
        let points = fits[0].residuals.len();
        Ok(Self { way, write, factors, left, points, again })
    }

    fn name(&self) -> String {
        format!("{}, {}", self.way.name(), direction(self.write))
    }

    /// A factor of the first run with its interval; nothing of what never occurs.
    fn factor(&self, at: usize) -> Spread {
        let factor = self.factors[0][at].unwrap_or_default();
        let repetitions = Some(self.points);
        let Factor { value, low, high, .. } = factor;
        Spread { median: value, low, high, variation: 0.0, repetitions }
    }

    /// What the runs have below nothing, interval and all, which no cost is.
    fn negative(&self) -> impl Iterator<Item = String> {
        let runs = self.factors.into_iter().zip(["", " in the second run"]);
        let factors = runs.flat_map(|(run, which)| {
            FACTORS.into_iter().zip(run).map(move |(what, factor)| (what, factor, which))
        });
        factors.filter_map(|(what, factor, which)| {
            let Factor { value, low, high, .. } = factor.filter(|factor| factor.high < 0.0)?;
            let [value, low, high] = [value, low, high].map(|one| beside(one, &[0.0]));
            Some(format!("{what} of {}, is {value} ({low} to {high}){which}", self.name()))
        })
    }

    fn has_costs(&self) -> bool {
        self.negative().next().is_none()
    }

    /// The parts of an operation, microseconds of each, by the first run.
    fn parts(&self, case: &Case) -> [f64; 3] {
        let ops = case.typical(Case::operations).max(1e-9);
        let rates = [case.typical(Case::bandwidth) * 1e3, case.typical(Case::frames), ops];
        let part = |at: usize| self.factor(at).median * rates[at] / ops;
        [0, 1, 2].map(part)
    }

    /// The part that a term has of the whole, as far as its factor is known.
    fn share(&self, case: &Case, at: usize) -> Spread {
        let parts = self.parts(case);
        let whole: f64 = parts.iter().sum();
        let factor = self.factor(at);
        let scale = if factor.median == 0.0 { 0.0 } else { parts[at] / factor.median };
        factor * (scale / whole.max(1e-9))
    }

    /// The largest operations in the smallest frames.
    fn largest<'a>(&self, measured: &'a Measured) -> Option<&'a Case> {
        let cases = measured.cases_of(self.way, self.write);
        cases.max_by_key(|case| (case.load.bytes, std::cmp::Reverse(case.load.frame)))
    }
}

/// Why nothing is said of what factors cost: where one is below nothing, the others have taken what
/// it lacks, and neither they nor their sum mean anything.
fn no_costs<'a>(models: impl Iterator<Item = &'a Model>) -> Option<String> {
    let told: Vec<String> = models.flat_map(Model::negative).collect();
    let why = || format!("no cost is below nothing, and by the fit {}", told.join("; "));
    (!told.is_empty()).then(why)
}

/// Those that are made of costs, and what is said of the others where a claim is of all.
fn of_costs(models: &[Model]) -> (Vec<&Model>, String) {
    let judged: Vec<&Model> = models.iter().filter(|model| model.has_costs()).collect();
    let not = no_costs(models.iter()).map(|why| format!("; not judged, because {why}"));
    (judged, not.unwrap_or_default())
}

const fn direction(write: bool) -> &'static str {
    super::super::direction(write)
}

pub(super) fn figure(measured: &Measured) -> Figure {
    let label = &["Cost model of section 3.3.2.4"];
    let mut figure = Figure::new(label, "Section 3.3.2.4: bytes, frames and operations");
    figure.method =
        "Least squares over all samples of a way, once for each run; A, B and C with the \
                     interval in which they lie in 95 of 100 cases. A factor of the second run \
                     reproduces where it lies within the interval of the first; as it is by \
                     chance, too, not all do, and how many do not by chance alone is told."
            .into();
    let (mut models, mut refused) = (Vec::new(), Vec::new());
    for way in Way::ALL.into_iter().filter(|way| measured.has(*way)) {
        for write in [false, true] {
            match Model::of(measured, way, write) {
                Ok(model) => models.push(model),
                Err(why) => refused.push(format!("{}, {}: {why}", way.name(), direction(write))),
            }
        }
    }
    let again = "Only what runs stable is used: a second run gives the same factors";
    if models.is_empty() {
        figure.not_here(again, format!("nothing can be fitted: {}", refused.join("; ")));
        return figure;
    }
    figure.tables.push(table(&models));
    figure.pictures.push(picture(measured, &models));
    adds_up(&mut figure, &models, &refused);
    figure.factors = models.iter().flat_map(|model| model.again.clone()).collect();
    let (judged, not) = of_costs(&models);
    let reproduced = Reproduced::of(judged.iter().flat_map(|model| model.again.clone()).collect());
    match no_costs(models.iter()).filter(|_| judged.is_empty()) {
        Some(why) => figure.not_here(again, why),
        None => {
            let told = format!("{}{not}", reproduced.told(["first", "second"]));
            figure.claim(again, told, vec![reproduced.test()]);
        }
    }
    shares(&mut figure, measured, &models);
    saved(&mut figure, measured, &models);
    figure
}

fn table(models: &[Model]) -> Table {
    let head = ["way", "run"].into_iter().chain(FACTORS).chain(["residuals, % points", "samples"]);
    let mut table = Table::new(&head.collect::<Vec<_>>());
    for model in models {
        for (run, factors) in model.factors.iter().enumerate() {
            let told = |factor: &Option<Factor>| match factor {
                Some(Factor { value, low, high, .. }) => {
                    let [value, low, high] = [value, low, high].map(|one| number(*one));
                    format!("{value} ({low} to {high})")
                }
                None => "-".to_owned(),
            };
            let mut row = vec![model.name(), (run + 1).to_string()];
            row.extend(factors.iter().map(told));
            let [points, part] = model.left.get(run).copied().unwrap_or_default();
            let left = format!("{} ({:.0} % of the mean)", number(points), 100.0 * part);
            row.extend([left, model.points.to_string()]);
            table.row(row);
        }
    }
    table
}

/// What the largest operation is made of, in the smallest frames.
fn picture(measured: &Measured, models: &[Model]) -> Picture {
    let bar = |model: &Model| {
        let case = model.largest(measured)?;
        // A part below nothing is chance; a bar has none.
        let parts = model.parts(case).map(|part| part.max(0.0)).to_vec();
        Some(Bar::new(direction(model.write), model.way.name(), parts))
    };
    let largest = measured.options.sizes.last().copied().unwrap_or(0);
    let title = format!("One operation of {} by the model", bytes(u64::from(largest)));
    let mut bars: Vec<Bar> = models.iter().filter_map(bar).collect();
    bars.sort_by(|a, b| a.group.cmp(&b.group));
    let kind = Kind::Bars { parts: PARTS.to_vec(), bars };
    Picture { file: "model", title, unit: "us of the target's processor", kind }
}

fn adds_up(figure: &mut Figure, models: &[Model], refused: &[String]) {
    let theirs =
        "Utilization is the sum of a cost for each byte, each frame and each operation, a baseline";
    let (judged, not) = of_costs(models);
    if let Some(why) = no_costs(models.iter()).filter(|_| judged.is_empty()) {
        figure.not_here(theirs, why);
        return;
    }
    let tests: Vec<Test> = judged
        .into_iter()
        .map(|model| {
            let [[_, a], [_, b]] = model.left;
            let spread = Spread {
                median: f64::midpoint(a, b),
                low: a.min(b),
                high: a.max(b),
                variation: 0.0,
                repetitions: Some(model.points),
            };
            Test::new(
                format!("residuals by mean, {}", model.name()),
                spread,
                Bound::Below(LEFT_MOST),
            )
        })
        .collect();
    let refused = match refused {
        [] => String::new(),
        refused => format!("; not fitted: {}", refused.join("; ")),
    };
    let typical = 100.0 * super::middle(&tests);
    let told = format!("it leaves {} % of the mean at the median{refused}{not}", number(typical));
    figure.claim(theirs, told, tests);
}

/// Which of the terms is what much of.
fn shares(figure: &mut Figure, measured: &Measured, models: &[Model]) {
    let shares = |at: usize, bound| -> Vec<Test> {
        let test = |model: &Model| {
            let case = model.largest(measured)?;
            let name = format!("part of {}, {}", TERMS[at], case.load.name());
            Some(Test::new(name, model.share(case, at), bound))
        };
        models.iter().filter(|model| model.way == Way::Tcp).filter_map(test).collect()
    };
    let told = |tests: &[Test]| {
        let parts = tests.iter().map(|test| format!("{:.0} %", 100.0 * test.spread.median));
        parts.collect::<Vec<_>>().join(" and ")
    };
    let theirs =
        "What is done for each byte, copies and checksums, is most of large operations over TCP";
    let of_bytes = shares(0, Bound::Above(MOST));
    let no_costs = match of_bytes.is_empty() {
        true => Some("there is no fit of TCP".to_owned()),
        false => no_costs(models.iter().filter(|model| model.way == Way::Tcp)),
    };
    match &no_costs {
        Some(why) => figure.not_here(theirs, why),
        None => {
            figure.claim(theirs, format!("{} of reads and of writes", told(&of_bytes)), of_bytes);
        }
    }
    let why = "what is done for each frame is the next most";
    if measured.wireless.is_some() {
        figure.not_here(capital(why), measured.why(Way::Ether));
        return;
    }
    if let Some(no_costs) = no_costs {
        figure.not_here(capital(why), no_costs);
        return;
    }
    let [frames, operations] = [1, 2].map(|at| shares(at, Bound::Above(0.0)));
    let tests: Vec<Test> = frames
        .iter()
        .zip(&operations)
        .map(|(frame, operation)| {
            let name = format!("{} less that of operations", frame.name);
            Test::new(name, frame.spread - operation.spread, Bound::Above(0.0))
        })
        .collect();
    figure.claim(
        capital(why),
        format!("frames have {}, operations {}", told(&frames), told(&operations)),
        tests,
    );
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect::<String>())
}

/// Which terms raw Ethernet and RDMA save against TCP.
fn saved(figure: &mut Figure, measured: &Measured, models: &[Model]) {
    for (way, theirs, at) in [
        (Way::Ether, "Without TCP/IP each frame takes less of the processor", 1),
        (Way::Iser, "RDMA saves what is done for each byte", 0),
    ] {
        if !measured.has(way) || (at == 1 && measured.wireless.is_some()) {
            figure.not_here(theirs, measured.why(Way::Ether));
            continue;
        }
        let compared = models.iter().filter(|model| [Way::Tcp, way].contains(&model.way));
        if let Some(why) = no_costs(compared) {
            figure.not_here(theirs, why);
            continue;
        }
        let (mut tests, mut told) = (Vec::new(), Vec::new());
        for write in [false, true] {
            let of = |way| models.iter().find(|model| (model.way, model.write) == (way, write));
            let Some((tcp, other)) = of(Way::Tcp).zip(of(way)) else { continue };
            let name = format!("{} that {} saves, {}", FACTORS[at], way.name(), direction(write));
            let less = tcp.factor(at) - other.factor(at);
            tests.push(Test::new(name, less, Bound::Above(0.0)));
            told.push(format!("{}s: {}", direction(write), changes(tcp, other)));
        }
        let told = told.join("; ");
        match tests.is_empty() {
            true => figure.not_here(theirs, "there is no fit of both"),
            false => figure.claim(theirs, told, tests),
        }
    }
}

/// What a way saves of each term, costs more, or leaves as it is, as far as the intervals tell.
fn changes(tcp: &Model, other: &Model) -> String {
    let change = |at: usize| {
        let (before, after) = (tcp.factor(at), other.factor(at));
        let verb = match (after.high < before.low, after.low > before.high) {
            (true, _) => "saved",
            (_, true) => "more",
            _ => "within the intervals",
        };
        let [before, after] = [before, after].map(|one| number(one.median));
        format!("{} {before} to {after} ({verb})", FACTORS[at])
    };
    [0, 1, 2].map(change).join(", ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::super::{Load, Options, Use};
    use super::*;
    use crate::verdict::Verdict;

    /// What an operation costs: nanoseconds for a byte, microseconds for a frame and for itself.
    type Cost = [f64; 3];

    const COPY: Cost = [0.5, 2.0, 20.0];

    fn sample(load: Load, cost: Cost, noise: f64) -> Sample {
        let bytes = f64::from(load.bytes);
        let frames = load.frame.map_or(0.0, |mtu| (bytes / f64::from(mtu)).ceil() + 2.0);
        let busy = cost[0] * bytes / 1e3 + cost[1] * frames + cost[2];
        let ops = 1e6 / (busy + 50.0);
        let by_loop = (ops * busy / 1e6) * (1.0 + noise);
        let both = Use { by_loop, by_kernel: by_loop };
        let (target, initiator) = (both, both);
        Sample {
            ops,
            seconds: 1.0,
            frames: ops * frames,
            loops: [0.0; 2],
            target,
            initiator,
            threads: by_loop,
        }
    }

    /// What would be measured if ways cost so much in the two runs.
    fn measured(cost: impl Fn(Way, usize) -> Cost, wireless: Option<&str>) -> Measured {
        let options = Options {
            rounds: 3,
            time: Duration::ZERO,
            sizes: vec![4096, 16384, 65536, 262_144],
            mtus: vec![1500, 9000],
        };
        let mut measured = Measured {
            options,
            engine: "none",
            cases: Vec::new(),
            lacking: wireless.map(|why| (Way::Ether, why.to_owned())).into_iter().collect(),
            wireless: wireless.map(str::to_owned),
            unsteered: None,
        };
        let case = |load: Load| {
            let of = |run| [-0.01, 0.0, 0.01].map(|noise| sample(load, cost(load.way, run), noise));
            Case { load, samples: [of(0).to_vec(), of(1).to_vec()] }
        };
        let loads = measured.loads().into_iter();
        let loads =
            loads.filter(|load| ![Way::Ether, Way::Xdp].contains(&load.way) || wireless.is_none());
        measured.cases = loads.map(case).collect();
        measured
    }

    /// A claim's verdict, and what is said of it.
    fn told(figure: &Figure, theirs: &str) -> (Verdict, String) {
        let claim = figure.claims.iter().find(|claim| claim.theirs.contains(theirs));
        let claim = claim.unwrap_or_else(|| panic!("{theirs} in {figure:?}"));
        (claim.verdict(), claim.ours.clone())
    }

    #[test]
    fn known_costs_are_found_and_what_saves_which_is_told() {
        let cost = |way, _| match way {
            Way::Local => [0.0, 0.0, 5.0],
            Way::Tcp => COPY,
            Way::Iser => [0.2, 2.0, 20.0],
            Way::Ether | Way::Xdp | Way::Nfs => [0.5, 1.0, 40.0],
        };
        let measured = measured(cost, None);
        let model = Model::of(&measured, Way::Tcp, false).expect("a fit");
        for (at, known) in COPY.into_iter().enumerate() {
            let Spread { low, high, median, .. } = model.factor(at);
            assert!(low < known && known < high && (median / known - 1.0).abs() < 0.1, "{at}");
        }
        let largest = model.largest(&measured).expect("a case");
        assert_eq!((largest.load.bytes, largest.load.frame), (262_144, Some(1500)));
        let frames = model.parts(largest)[1];
        assert!((frames / (2.0 * 177.0) - 1.0).abs() < 0.1, "{frames} us of 177 frames");
        let figure = figure(&measured);
        assert_eq!(figure.tables[0].rows.len(), 5 * 2 * RUNS);
        assert_eq!(told(&figure, "second run").0, Verdict::Holds);
        assert_eq!(told(&figure, "sum of a cost").0, Verdict::Holds);
        assert_eq!(told(&figure, "copies and checksums").0, Verdict::NoLonger, "131 of 505 us");
        assert_eq!(told(&figure, "next most").0, Verdict::Holds);
        let (ether, ours) = told(&figure, "each frame takes less");
        assert_eq!(ether, Verdict::Holds, "{ours}");
        assert!(ours.contains("us/frame 2.0") && ours.contains("(saved)"), "{ours}");
        assert!(ours.contains("us/operation 20") && ours.contains("(more)"), "{ours}");
        let (rdma, ours) = told(&figure, "RDMA saves");
        assert_eq!(rdma, Verdict::Holds, "{ours}");
        assert!(ours.contains("(within the intervals)"), "{ours}");
    }

    #[test]
    fn what_is_not_fitted_is_told() {
        let mut measured = measured(|_, _| COPY, None);
        measured.cases.retain(|case| case.load.way != Way::Tcp);
        let figure = figure(&measured);
        for theirs in ["copies and checksums", "next most", "each frame takes less", "RDMA saves"] {
            let (verdict, why) = told(&figure, theirs);
            assert_eq!(verdict, Verdict::NotHere, "{why}");
            assert!(why.starts_with("not here, because there is no fit of "), "{why}");
        }
    }

    #[test]
    fn what_costs_less_than_nothing_decides_nothing() {
        let verdicts = |ways: &[Way], a| {
            let cost = |way: Way, _| [if ways.contains(&way) { a } else { 0.5 }, 2.0, 20.0];
            let figure = figure(&measured(cost, None));
            ["copies and checksums", "next most", "each frame takes less", "RDMA saves"]
                .map(|theirs| told(&figure, theirs))
        };
        let tcp = verdicts(&[Way::Tcp], -0.1);
        for (verdict, why) in &tcp {
            assert_eq!(*verdict, Verdict::NotHere, "{why}");
            assert!(why.contains("below nothing") && why.contains("of TCP, read, is -0."), "{why}");
        }
        let rdma = verdicts(&[Way::Iser], -0.1).map(|(verdict, _)| verdict == Verdict::NotHere);
        assert_eq!(rdma, [false, false, false, true], "of those that are made of it");
        // The others are still a sum, which a second run has again.
        let of_sums = |ways: &[Way], second: f64| {
            let cost = |way: Way, run: usize| {
                let a = if run == 0 { -0.1 } else { second };
                [if ways.contains(&way) { a } else { 0.5 }, 2.0, 20.0]
            };
            let figure = figure(&measured(cost, None));
            let tests = |at: usize| figure.claims[at].tests.len();
            assert_eq!(figure.factors.len(), 5 * 3 * 2 - 2, "all are kept");
            (["sum of a cost", "second run"].map(|theirs| told(&figure, theirs)), tests(0))
        };
        let ([sum, again], tests) = of_sums(&[Way::Tcp], -0.1);
        assert_eq!([sum.0, again.0], [Verdict::Holds; 2], "{sum:?}, {again:?}");
        assert_eq!(tests, 4 * 2, "without those of TCP");
        for (_, ours) in [sum, again] {
            assert!(ours.contains("; not judged, because no cost is below nothing"), "{ours}");
            assert!(ours.contains("of TCP, write, is -0."), "{ours}");
        }
        let ([sum, again], tests) =
            of_sums(&[Way::Local, Way::Tcp, Way::Iser, Way::Ether, Way::Xdp], -0.1);
        assert_eq!(([sum.0, again.0], tests), ([Verdict::NotHere; 2], 0), "{sum:?}, {again:?}");
        // One run of two is enough: there is no second one of the same costs.
        let cost = |way: Way, run: usize| match (way, run) {
            (Way::Tcp, 1) => [-0.1, 2.0, 20.0],
            _ => COPY,
        };
        let figure = figure(&measured(cost, None));
        let (verdict, why) = told(&figure, "RDMA saves");
        assert_eq!(verdict, Verdict::NotHere, "{why}");
        assert!(why.contains(") in the second run"), "{why}");
        // Chance may have it a little below.
        assert!(verdicts(&[Way::Tcp], 0.0).iter().all(|told| told.0 != Verdict::NotHere));
    }

    #[test]
    fn no_run_uses_less_than_nothing() {
        let load = Load { way: Way::Tcp, write: false, bytes: 4096, frame: None };
        let mut sample = sample(load, COPY, 0.0);
        sample.loops = [80.0, 25.0];
        // It was faster than the loops alone: these were disturbed.
        sample.settle([80.0, 100.0]);
        assert!(sample.target.by_loop.abs() < 1e-9);
        assert!((sample.initiator.by_loop - 0.75).abs() < 1e-9);
    }

    #[test]
    fn a_second_run_that_differs_is_no_reproduction() {
        let cost = |_, run: usize| if run == 0 { COPY } else { [1.5, 6.0, 60.0] };
        let figure = figure(&measured(cost, None));
        assert_eq!(told(&figure, "second run").0, Verdict::NoLonger);
    }

    #[test]
    fn without_a_wire_frames_have_no_term() {
        let figure = figure(&measured(|_, _| COPY, Some("there is no root")));
        assert_eq!(figure.tables[0].rows.len(), 3 * 2 * RUNS);
        assert!(figure.tables[0].rows.iter().all(|row| row[3] == "-"), "no frames");
        assert_eq!(told(&figure, "second run").0, Verdict::Holds);
        for claim in ["next most", "each frame takes less"] {
            let (verdict, why) = told(&figure, claim);
            assert_eq!(verdict, Verdict::NotHere);
            assert!(why.contains("there is no root"), "{why}");
        }
    }

    #[test]
    fn what_cannot_be_fitted_says_why() {
        let mut few = measured(|_, _| COPY, None);
        few.cases.iter_mut().for_each(|case| {
            case.samples.iter_mut().for_each(Vec::clear);
        });
        let figure = figure(&few);
        assert_eq!(figure.verdict(), Verdict::NotHere);
        assert!(figure.claims[0].ours.contains("0 measurements are too few"), "{figure:?}");
    }
}
