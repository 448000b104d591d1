// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Section 3.3.4.3 on the initiator's side: file systems on disks beside a file server.

use super::super::Way;
use super::super::bursts::{Bursts, Case, Goal, Of, Took, WRITE};
use super::{NO_COPY, about, middle};
use crate::measure::{median, real};
use crate::picture::{Bar, Kind, Picture, bytes, number};
use crate::study::{Figure, Table};
use crate::verdict::{Bound, Spread, Test};

/// The study's method, and the kernel's accounts beside it.
const BY_LOOP: Of = |took| took.by_loop;
const BY_ACCOUNTS: Of = |took| took.by_accounts;

/// What is comparable is at least half as much, and at most twice as much.
const COMPARABLE: f64 = 1.0;

const FILES: &str = "Files on a disk and a server of files \"will have comparable performance on \
                     the initiator side\"";
const ADDED: &str =
    "A file system \"adds significantly to the baseline cost of a SCSI implementation\"";
const REDUCED: &str = "It \"will tend to reduce the relative impact\" of how SCSI is carried";

pub(super) fn figure(bursts: Result<&Bursts, &str>) -> Figure {
    let title = "Section 3.3.4.3: the initiator, files on disks and a server of files";
    let mut figure = Figure::new(&["Initiator of section 3.3.4.3"], title);
    match bursts {
        Ok(bursts) => {
            figure.method = method(bursts);
            show(&mut figure, bursts);
            comparable(&mut figure, bursts);
            added(&mut figure, bursts);
            reduced(&mut figure, bursts);
        }
        Err(why) => [FILES, ADDED, REDUCED].into_iter().for_each(|one| figure.not_here(one, why)),
    }
    figure.not_here("Files over Ethernet without copies, beside the others", NO_COPY);
    figure
}

fn method(bursts: &Bursts) -> String {
    let Bursts { writes, rounds, .. } = bursts;
    let mut method = format!(
        "A burst is {writes} writes of {} with as much between two of them, so that none can be \
         made one of others, and ends when all are written (fsync, or COMMIT of NFS); {rounds} \
         rounds of each in turn, frames of 1,500 bytes, medians. Disks are in memory: the \
         target's, which `lunwire attach --loop` makes devices, and for \"no network\" a file at \
         hand; file systems are ext4. So a write to a disk passes the kernel's loop device and \
         FUSE and comes back to a process, where the study's initiator was in the kernel. NFS is \
         that of a client of this program, which has no cache, asks for one write after the other, \
         and has no file system in the kernel above it. \"By the loops\" is what loops on both \
         processors missed while the burst lasted, without what the target's threads, or the \
         server of NFS, used by the kernel's accounts; so interrupts of the target's side count \
         for the initiator. \"By accounts\" is what the kernel has for the thread that writes, for \
         the process that has attached the disk and for the kernel's own threads; interrupts \
         count for nobody, or for whom they interrupt.",
        bytes(u64::from(WRITE)),
    );
    for (way, why) in &bursts.lacking {
        method.push_str(&format!(" Not here: {}, because {why}.", way.name()));
    }
    method
}

fn show(figure: &mut Figure, bursts: &Bursts) {
    if bursts.cases.is_empty() {
        return;
    }
    let head = ["what", "ms", "us/write by the loops", "us/write by accounts", "MB/s"];
    let mut table = Table::new(&head);
    let mut bars = Vec::new();
    let writes = real(bursts.writes);
    for case in &bursts.cases {
        let typical = |of: Of| median(case.values(of));
        let each = |of: Of| typical(of) * 1e6 / writes;
        let seconds = typical(|took: &Took| took.seconds);
        let rate = writes * f64::from(WRITE) / seconds.max(1e-9) / 1e6;
        let values = [seconds * 1e3, each(BY_LOOP), each(BY_ACCOUNTS), rate];
        let mut row = vec![case.goal.name()];
        row.extend(values.map(number));
        table.row(row);
        bars.push(Bar::new(&case.goal.name(), "the loops", vec![each(BY_LOOP).max(0.0)]));
        bars.push(Bar::new(&case.goal.name(), "accounts", vec![each(BY_ACCOUNTS)]));
    }
    figure.tables.push(table);
    figure.pictures.push(Picture {
        file: "initiator",
        title: "What a write of a burst takes of the initiator's side".into(),
        unit: "us of a processor",
        kind: Kind::Bars { parts: vec![""], bars },
    });
}

impl Bursts {
    fn why(&self, way: Way) -> String {
        let found = self.lacking.iter().find(|(lacking, _)| *lacking == way);
        found.map_or_else(|| "it was not measured".to_owned(), |(_, why)| why.clone())
    }

    /// One by another, round by round; or why not.
    fn ratio(&self, goals: [Goal; 2], of: Of) -> Result<Spread, String> {
        let [a, b] = goals.map(|goal| self.case(goal).ok_or_else(|| self.why(goal.way)));
        Ok(Spread::ratio(&a?.values(of), &b?.values(of)))
    }

    /// Times no network, round by round.
    fn impact(&self, way: Way, files: bool) -> Result<Vec<f64>, String> {
        let of = |way| {
            let found = self.case(Goal { way, files });
            found.map(|case: &Case| case.values(BY_LOOP)).ok_or_else(|| self.why(way))
        };
        let (carried, floor) = (of(way)?, of(Way::Local)?);
        Ok(carried.iter().zip(&floor).map(|(a, b)| a / b).collect())
    }
}

/// A claim of what was tested, or why nothing was.
fn claim(figure: &mut Figure, theirs: &str, what: &str, tests: Vec<Result<Test, String>>) {
    let whys: Vec<String> = tests.iter().filter_map(|test| test.clone().err()).collect();
    let tests: Vec<Test> = tests.into_iter().flatten().collect();
    match whys.first() {
        Some(why) if tests.is_empty() => figure.not_here(theirs, why.clone()),
        _ => {
            let ours = format!("{} {what}, the median of all", number(middle(&tests)));
            figure.claim(theirs, ours, tests);
        }
    }
}

const NETWORK: [Way; 2] = [Way::Tcp, Way::Ether];

fn comparable(figure: &mut Figure, bursts: &Bursts) {
    let nfs = Goal { way: Way::Nfs, files: false };
    let mut tests = Vec::new();
    for way in NETWORK {
        for (by, of) in [("the loops", BY_LOOP), ("accounts", BY_ACCOUNTS)] {
            let goal = Goal { way, files: true };
            let test = |ratio| {
                let name = format!("NFS by {}: {by}", goal.name());
                Test::new(name, ratio, about(COMPARABLE))
            };
            tests.push(bursts.ratio([nfs, goal], of).map(test));
        }
    }
    claim(figure, FILES, "times what files on a disk take", tests);
}

fn added(figure: &mut Figure, bursts: &Bursts) {
    let tests = NETWORK.map(|way| {
        let goals = [true, false].map(|files| Goal { way, files });
        let test = |ratio| {
            let name = format!("{} by the disk alone", goals[0].name());
            Test::new(name, ratio, Bound::Above(1.0))
        };
        bursts.ratio(goals, BY_LOOP).map(test)
    });
    claim(figure, ADDED, "times what the disk alone takes", tests.into());
}

fn reduced(figure: &mut Figure, bursts: &Bursts) {
    let tests = NETWORK.map(|way| -> Result<Test, String> {
        let (with, without) = (bursts.impact(way, true)?, bursts.impact(way, false)?);
        let name = format!("{} by no network, with a file system by without", way.name());
        Ok(Test::new(name, Spread::ratio(&with, &without), Bound::Below(1.0)))
    });
    claim(figure, REDUCED, "times the impact without a file system", tests.into());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Verdict;

    /// Three bursts to each goal, of which each takes so many seconds.
    fn bursts(cost: impl Fn(Goal) -> Option<f64>) -> Bursts {
        let took = |cost: f64| {
            [0.99, 1.0, 1.01].map(|noise| Took {
                seconds: 1.0,
                by_loop: cost * noise,
                by_accounts: 0.9 * cost * noise,
            })
        };
        let case = |goal| Some(Case { goal, took: took(cost(goal)?).to_vec() });
        Bursts {
            writes: 2048,
            rounds: 3,
            cases: Goal::ALL.into_iter().filter_map(case).collect(),
            lacking: vec![(Way::Nfs, "there is no server".into())],
        }
    }

    fn cost(goal: Goal) -> f64 {
        match goal.way {
            Way::Local => {
                if goal.files {
                    3.0
                } else {
                    1.0
                }
            }
            Way::Nfs => 10.0,
            _ => {
                if goal.files {
                    12.0
                } else {
                    8.0
                }
            }
        }
    }

    fn verdicts(bursts: Result<&Bursts, &str>) -> Vec<Verdict> {
        figure(bursts).claims.iter().map(crate::study::Claim::verdict).collect()
    }

    #[test]
    fn what_the_study_says_is_found_where_it_is_so() {
        use Verdict::{Holds, NotHere};
        let all = bursts(|goal| Some(cost(goal)));
        assert_eq!(verdicts(Ok(&all)), [Holds, Holds, Holds, NotHere]);
        let figure = figure(Ok(&all));
        assert!(figure.claims[0].ours.starts_with("0.83 times"), "{:?}", figure.claims);
        assert_eq!(figure.claims[0].tests.len(), 4, "two disks, two ways to measure");
        assert_eq!(figure.tables[0].rows.len(), Goal::ALL.len());
        let row = &figure.tables[0].rows[3];
        assert_eq!(row[..2], ["NFS".to_owned(), "1000".to_owned()], "{row:?}");
    }

    #[test]
    fn what_is_not_so_is_told() {
        use Verdict::{NoLonger, NotHere};
        let other = bursts(|goal| {
            Some(match goal {
                Goal { way: Way::Nfs, .. } => 30.0,
                Goal { way: Way::Local, files: true } => 0.5,
                Goal { files: true, .. } => 7.0,
                goal => cost(goal),
            })
        });
        assert_eq!(verdicts(Ok(&other)), [NoLonger, NoLonger, NoLonger, NotHere]);
    }

    #[test]
    fn what_is_lacking_is_named() {
        use Verdict::{Holds, NotHere};
        let no_server = bursts(|goal| Some(cost(goal)).filter(|_| goal.way != Way::Nfs));
        let told = figure(Ok(&no_server));
        assert_eq!(verdicts(Ok(&no_server)), [NotHere, Holds, Holds, NotHere]);
        assert!(told.claims[0].ours.ends_with("there is no server"), "{:?}", told.claims);
        assert!(told.method.ends_with("Not here: NFS, because there is no server."));
        assert_eq!(verdicts(Err("it needs root")), [NotHere; 4]);
        let none = figure(Err("it needs root"));
        assert!(none.tables.is_empty() && none.pictures.is_empty());
        assert_eq!(none.claims[1].ours, "not here, because it needs root");
        let nothing = bursts(|_| None);
        assert!(figure(Ok(&nothing)).tables.is_empty());
    }
}
