// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What all studies share: a study, its figures, and the claims of these.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use crate::catalogue::{self, State};
use crate::fit::Again;
use crate::picture::{Picture, beside, number};
use crate::progress::Steps;
use crate::tally::cases;
use crate::verdict::{Answer, Bound, Spread, Test, Verdict};
use crate::{Error, amp, fast05, forth, ibm, peers, unh};

/// A published study that can be run here.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Study {
    /// How it is called.
    pub name: &'static str,
    /// What it is about, on one line.
    pub about: &'static str,
    pub(crate) run: fn(&Settings, &Steps<'_>) -> Result<Findings, Error>,
}

/// Those that there are.
pub const STUDIES: [Study; 6] = [
    Study {
        name: "fast05",
        about: "The fast path of an initiator without a network (Joglekar et al., FAST 2005)",
        run: fast05::run,
    },
    Study {
        name: "amp",
        about: "A polling core for the work on sockets, or none (Foong et al., 2005)",
        run: amp::run,
    },
    Study {
        name: "unh",
        about: "iSCSI whose data moves by RDMA, beside plain iSCSI (Burns, 2008)",
        run: unh::run,
    },
    Study {
        name: "forth",
        about: "Disks of one target and of three, beside those of one's own (Xinidis et al., 2005)",
        run: forth::run,
    },
    Study {
        name: "ibm",
        about: "What SCSI costs over TCP, raw Ethernet and RDMA (Menon and Fuente, 2000)",
        run: ibm::run,
    },
    Study {
        name: "peers",
        about: "Our target beside others that are installed here: SPDK, tgt, istgt",
        run: peers::run,
    },
];

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // a study has a way for each
pub enum Effort {
    /// Seconds: whether it works. Its figures say little.
    Smoke,
    /// Less than three minutes for each study.
    Quick,
    /// All that the study measured.
    Full,
}

impl Effort {
    /// As in `--quick`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Smoke => "smoke",
            Self::Quick => "quick",
            Self::Full => "full",
        }
    }

    /// What a study is to take at most, as `--help` has it.
    pub(crate) const fn most(self) -> Duration {
        Duration::from_secs(match self {
            Self::Smoke => 60,
            Self::Quick => 180,
            Self::Full => 1800,
        })
    }

    /// What is meant for each of the three.
    pub(crate) fn of<T>(self, smoke: T, quick: T, full: T) -> T {
        match self {
            Self::Smoke => smoke,
            Self::Quick => quick,
            Self::Full => full,
        }
    }
}

/// What the user says of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settings {
    /// How much is measured.
    pub effort: Effort,
    /// Repetitions of each case; None: as many as the effort has of the study.
    pub rounds: Option<usize>,
    /// The command `lunwire`, by which disks are attached; None: nothing is measured of these.
    pub program: Option<PathBuf>,
}

impl Settings {
    /// As many repetitions as the effort has.
    #[must_use]
    pub const fn new(effort: Effort) -> Self {
        Self { effort, rounds: None, program: None }
    }

    pub(crate) fn rounds(&self, [smoke, quick, full]: [usize; 3]) -> usize {
        self.rounds.unwrap_or_else(|| self.effort.of(smoke, quick, full))
    }
}

/// What a study found.
#[derive(Debug)]
pub(crate) struct Findings {
    pub(crate) title: &'static str,
    /// How and on what it was measured, and where that differs from the study.
    pub(crate) preface: Vec<String>,
    pub(crate) figures: Vec<Figure>,
    /// How much each case varied from run to run: coefficients of variation.
    pub(crate) variations: Vec<f64>,
}

/// A figure or table of the study, or some that belong together, and ours.
#[derive(Debug)]
pub(crate) struct Figure {
    /// As the catalogue names them; empty for what is beside its figures: ours.
    pub(crate) labels: &'static [&'static str],
    pub(crate) title: String,
    /// How it was measured here, where it is not as the preface says.
    pub(crate) method: String,
    /// The values of both, side by side.
    pub(crate) tables: Vec<Table>,
    pub(crate) pictures: Vec<Picture>,
    pub(crate) claims: Vec<Claim>,
    /// Of a model that was fitted in two runs.
    pub(crate) factors: Vec<Again>,
}

/// What the study says, what was measured of it here, and whether it is so.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) theirs: String,
    pub(crate) ours: String,
    /// None at all where nothing can be measured of it, for the reason that `ours` gives.
    pub(crate) tests: Vec<Test>,
}

/// Rows of text under a head.
#[derive(Debug)]
pub(crate) struct Table {
    /// Names of the columns.
    pub(crate) head: Vec<String>,
    /// As many cells each.
    pub(crate) rows: Vec<Vec<String>>,
}

impl Figure {
    pub(crate) fn new(labels: &'static [&'static str], title: impl Into<String>) -> Self {
        Self {
            labels,
            title: title.into(),
            method: String::new(),
            tables: Vec::new(),
            pictures: Vec::new(),
            claims: Vec::new(),
            factors: Vec::new(),
        }
    }

    /// A claim of the study, and what decides it.
    pub(crate) fn claim(
        &mut self,
        theirs: impl Into<String>,
        ours: impl Into<String>,
        tests: Vec<Test>,
    ) {
        self.claims.push(Claim { theirs: theirs.into(), ours: ours.into(), tests });
    }

    /// A claim of which nothing can be measured here.
    pub(crate) fn not_here(&mut self, theirs: impl Into<String>, why: impl Into<String>) {
        self.claim(theirs, format!("not here, because {}", why.into()), Vec::new());
    }

    /// What cannot be measured yet of a study: as the catalogue says.
    pub(crate) fn lacking(study: &'static str) -> impl Iterator<Item = Self> {
        catalogue::of(study).filter_map(|published| {
            let State::Lacking(needs) = published.state else { return None };
            // For good: a label is known when the catalogue is read, once a run.
            let labels: &[&str] = Box::leak(Box::new([published.label]));
            let mut figure = Self::new(labels, format!("{}: {}", published.label, published.what));
            figure.not_here(published.what, format!("it needs {needs}"));
            Some(figure)
        })
    }

    pub(crate) fn verdict(&self) -> Verdict {
        let tests = self.claims.iter().flat_map(|claim| &claim.tests);
        Verdict::of(&tests.map(Test::answer).collect::<Vec<_>>())
    }

    /// What the study measured, and how: by the catalogue, once for what belongs together.
    pub(crate) fn measured_there(&self, study: &str) -> Vec<&'static str> {
        let mut told: Vec<&str> = Vec::new();
        for label in self.labels {
            let what = catalogue::find(study, label).map_or("", |published| published.what);
            if !what.is_empty() && !told.contains(&what) {
                told.push(what);
            }
        }
        told
    }

    pub(crate) fn json(&self, study: &str) -> Value {
        let tables = self.tables.iter();
        let tables = tables.map(|table| json!({ "head": table.head, "rows": table.rows }));
        let claims = self.claims.iter().map(|claim| {
            json!({
                "theirs": claim.theirs,
                "ours": claim.ours,
                "verdict": claim.verdict().name(),
                "tests": claim.tests.iter().map(Test::json).collect::<Vec<_>>(),
            })
        });
        let mut all = json!({
            "labels": self.labels,
            "title": self.title,
            "measured_there": self.measured_there(study),
            "method": self.method,
            "verdict": self.verdict().name(),
            "claims": claims.collect::<Vec<_>>(),
            "tables": tables.collect::<Vec<_>>(),
            "pictures": self.pictures.iter().map(Picture::json).collect::<Vec<_>>(),
        });
        if !self.factors.is_empty() {
            all["factors"] = self.factors.iter().map(Again::json).collect();
        }
        all
    }
}

impl Claim {
    pub(crate) fn verdict(&self) -> Verdict {
        Verdict::of(&self.tests.iter().map(Test::answer).collect::<Vec<_>>())
    }

    /// How many cases say what, where they do not all say the same.
    pub(crate) fn cases(&self) -> Option<String> {
        let tests: Vec<Value> = self.tests.iter().map(Test::json).collect();
        cases(&json!({ "tests": tests }))
    }

    /// What there is of it here, as a sentence of its own.
    pub(crate) fn told(&self) -> String {
        match self.ours.strip_prefix("not here, ") {
            Some(why) => format!("Not here, {why}"),
            None => format!("Here: {}", self.ours),
        }
    }

    /// The tests, what they ask and what they answer, on a line each.
    pub(crate) fn reasons(&self) -> Vec<String> {
        self.tests.iter().map(reason).collect()
    }
}

fn reason(test: &Test) -> String {
    let Spread { median, low, high, repetitions, .. } = test.spread;
    let (bound, limits) = match test.bound {
        Bound::Above(least) => (format!("above {}", number(least)), vec![least]),
        Bound::Below(most) => (format!("below {}", number(most)), vec![most]),
        Bound::Within(least, most) => {
            (format!("{} to {}", number(least), number(most)), vec![least, most])
        }
    };
    let number = |value: f64| beside(value, &limits);
    let answer = match test.answer() {
        Answer::Yes => "yes",
        Answer::No => "no",
        Answer::Hidden => "hidden",
    };
    let measured = match repetitions {
        None => format!("{}, counted", number(median)),
        Some(count) => {
            let [middle, low, high] = [median, low, high].map(number);
            format!("{middle} ({low} to {high}, {count} times)")
        }
    };
    format!("{}: {measured}; {bound}? {answer}", test.name)
}

impl Table {
    pub(crate) fn new(head: &[&str]) -> Self {
        Self { head: head.iter().map(|cell| (*cell).to_owned()).collect(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_what_its_claims_are() {
        let test = |value: f64| Test::new("it", Spread::exact(value), Bound::Above(1.0));
        let mut figure = Figure::new(&[], "Figure 1");
        figure.not_here("a", "there is no adapter");
        assert_eq!(figure.verdict(), Verdict::NotHere);
        figure.claim("b", "ours", vec![test(2.0)]);
        assert_eq!(figure.verdict(), Verdict::Holds);
        figure.claim("c", "ours", vec![test(0.5)]);
        assert_eq!(figure.verdict(), Verdict::InPart);
        let told: Vec<_> = figure.claims.iter().map(|claim| claim.verdict().name()).collect();
        assert_eq!(told, ["cannot be tested here", "holds", "no longer"]);
        assert_eq!(figure.claims[1].reasons(), ["it: 2.00, counted; above 1.00? yes"]);
        assert_eq!(figure.json("none")["verdict"], "holds in part");
        let near = figure.claims[1].tests.iter().map(|one| Test {
            spread: Spread { median: 1.002, low: 1.0004, high: 1.3, ..Spread::of(&[1.0; 3]) },
            ..one.clone()
        });
        let near = Claim { theirs: String::new(), ours: String::new(), tests: near.collect() };
        assert_eq!(near.reasons(), ["it: 1.002 (1.0004 to 1.30, 3 times); above 1.00? yes"]);
        assert_eq!(near.cases(), None);
        assert_eq!(figure.claims[0].told(), "Not here, because there is no adapter");
        assert_eq!(figure.claims[1].told(), "Here: ours");
    }

    #[test]
    fn the_effort_decides_where_the_user_does_not() {
        let settings = Settings::new(Effort::Quick);
        assert_eq!(settings.rounds([1, 2, 3]), 2);
        assert_eq!(Settings { rounds: Some(9), ..settings }.rounds([1, 2, 3]), 9);
    }
}
