// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Builds the copy with all mutants in it, and runs for each of them the tests that must notice.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::thread;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;

use crate::catalogue::Part;
use crate::metadata::Package;
use crate::proofs::build;
use crate::proofs::build::Built;
use crate::proofs::build::Fault;
use crate::proofs::build::Wanted;
use crate::proofs::compose;
use crate::proofs::compose::Composed;
use crate::proofs::compose::Placed;
use crate::proofs::killers;
use crate::proofs::killers::Home;
use crate::proofs::killers::Test;
use crate::proofs::killers::Tests;
use crate::proofs::seed;
use crate::proofs::source::Source;
use crate::proofs::switch;
use crate::proofs::table::Mutant;
use crate::proofs::trial;
use crate::proofs::trial::Ended;
use crate::proofs::trial::Trial;
use crate::tree;
use crate::workspace;

/// So many tests run at once: others work on the machine, too.
const RUNS_MAX: usize = 2;
/// A test has noticed when it failed twice in so many runs.
const TRIES_MAX: usize = 3;
/// So many times the tree is built without those that did not compile.
const BUILDS_MAX: usize = 12;

/// A mutant and the tests that must notice it: one of each group.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    pub(crate) placed: &'a Placed<'a>,
    pub(crate) groups: Vec<Group<'a>>,
}

/// Tests, `FILE: FUNCTION`, of which one will do.
#[derive(Debug)]
pub(crate) struct Group<'a> {
    /// For which role they speak, where there are two.
    pub(crate) whose: Option<Part>,
    pub(crate) tests: Vec<&'a str>,
}

/// What became of a mutant.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// By which test, after how many seconds, and whether it was stopped.
    Noticed(String, f64, bool),
    /// Of which roles, where it was noticed by tests of the other.
    Survived(String),
    /// It tells nothing: why.
    Useless(String),
}

/// The copy and what it is made of.
#[derive(Debug)]
pub(crate) struct Workshop<'a> {
    tree: PathBuf,
    target: PathBuf,
    log: PathBuf,
    packages: &'a [Package],
    sources: &'a BTreeMap<String, Source>,
    /// The manifests, and the crate that tells the number.
    added: BTreeMap<String, String>,
}

impl<'a> Workshop<'a> {
    pub(crate) fn new(
        packages: &'a [Package],
        sources: &'a BTreeMap<String, Source>,
    ) -> Result<Self> {
        let folder = workspace::root().join("target/proofs");
        Ok(Self {
            tree: folder.join("tree"),
            target: folder.join("target"),
            log: folder.join("log"),
            packages,
            sources,
            added: switch::files(packages)?,
        })
    }

    /// Runs the jobs, and tells each outcome as it is known; `all` are in the tree, so that it is
    /// the same whichever of them are chosen. Gives those that do not compile and are no jobs.
    pub(crate) fn run<'b>(
        &self,
        all: &[Placed<'b>],
        jobs: &[Job<'_>],
        tell: impl Fn(&Job<'_>, Outcome) + Sync,
    ) -> Result<Vec<&'b Mutant>> {
        std::fs::create_dir_all(&self.log)?;
        seed::seed(&workspace::root().join("target"), &self.target)?;
        let homes = self.homes(jobs)?;
        let (binaries, composed, unfit) = self.build_together(all, jobs, &homes)?;
        let tests = Tests::list(binaries, &homes.values().collect::<Vec<_>>())?;
        let known = self.try_without(jobs, &homes, &tests)?;
        let (alone, together): (Vec<&Job<'_>>, Vec<&Job<'_>>) = jobs
            .iter()
            .filter(|job| !matches!(unfit.get(&job.number()), Some(Unfit::Broken(_))))
            .partition(|job| job.placed.alone || unfit.contains_key(&job.number()));
        for job in jobs {
            if let Some(Unfit::Broken(text)) = unfit.get(&job.number()) {
                tell(job, Outcome::Useless(format!("does not compile:\n{text}")));
            }
        }
        side_by_side(together, |job, worker| {
            let trial = Trial { job, number: job.number(), composed: Some(&composed), worker };
            tell(job, self.try_on(&trial, &homes, &tests, &known)?);
            Ok(())
        })?;
        for job in alone {
            tell(job, self.build_alone(job, &composed, &homes, &known)?);
        }
        let is_broken = |one: &&Mutant| {
            let is_job = jobs.iter().any(|job| job.number() == one.number);
            !is_job && matches!(unfit.get(&one.number), Some(Unfit::Broken(_)))
        };
        Ok(all.iter().map(|placed| placed.mutant).filter(is_broken).collect())
    }

    /// Where the tests of each file are.
    fn homes(&self, jobs: &[Job<'_>]) -> Result<BTreeMap<String, Home>> {
        let mut homes = BTreeMap::new();
        for (file, _) in jobs.iter().flat_map(Job::files_and_names) {
            if !homes.contains_key(file) {
                let home = killers::home_of(file, self.packages);
                let home = home.with_context(|| format!("no program has the tests of {file}"))?;
                homes.insert(file.to_owned(), home);
            }
        }
        Ok(homes)
    }

    /// Builds all that can be together; who cannot is left out, with the reason.
    fn build_together(
        &self,
        all: &[Placed<'_>],
        jobs: &[Job<'_>],
        homes: &BTreeMap<String, Home>,
    ) -> Result<(Vec<build::Binary>, Files, BTreeMap<u32, Unfit>)> {
        let mut wanted = Wanted::default();
        homes.values().for_each(|home| wanted.add(home));
        let mut unfit = BTreeMap::new();
        for _ in 0..BUILDS_MAX {
            let fit = |one: &&Placed<'_>| !one.alone && !unfit.contains_key(&one.mutant.number);
            let composed =
                compose::together(&all.iter().filter(fit).collect::<Vec<_>>(), self.sources);
            let texts = composed.iter().map(|(file, one)| (file.clone(), one.text.clone()));
            tree::write(&self.tree, &self.added.clone().into_iter().chain(texts).collect())?;
            match build::build(&self.tree, &self.target, &wanted)? {
                Built::Binaries(binaries) => return Ok((binaries, composed, unfit)),
                Built::Faults(faults) => {
                    let blamed = blame(&faults, &composed);
                    if blamed.is_empty() {
                        let text: Vec<&str> =
                            faults.iter().map(|fault| fault.text.as_str()).collect();
                        bail!("the copy does not build:\n{}", text.join("\n"));
                    }
                    for number in blamed.keys() {
                        let names = all.iter().filter(|one| one.mutant.number == *number);
                        let is_chosen = jobs.iter().any(|job| job.number() == *number);
                        for one in names.filter(|_| !is_chosen) {
                            println!(
                                "{}: left out, does not compile with the others",
                                one.mutant.name
                            );
                        }
                    }
                    unfit.extend(blamed);
                }
            }
        }
        bail!("the copy does not build, whatever is left out")
    }

    /// Each test with nothing broken: how long it takes.
    fn try_without(
        &self,
        jobs: &[Job<'_>],
        homes: &BTreeMap<String, Home>,
        tests: &Tests,
    ) -> Result<BTreeMap<Test, f64>> {
        let mut wanted = BTreeSet::new();
        for (file, name) in jobs.iter().flat_map(Job::files_and_names) {
            let home = homes.get(file).context("each file has a home")?;
            wanted.insert(tests.find(home, file, name)?);
        }
        let known = Mutex::new(BTreeMap::new());
        let failed = Mutex::new(Vec::new());
        side_by_side(wanted.iter().collect(), |test, worker| {
            let log = self.log.join(worker.to_string());
            let mut ended = trial::run(test, 0, &log)?;
            if ended.0 == Ended::Failed {
                // The machine may have been busy.
                ended = trial::run(test, 0, &log)?;
            }
            match ended {
                (Ended::Passed, seconds) => {
                    lock(&known).insert(test.clone(), seconds);
                }
                (ended, _) => lock(&failed).push(format!("{}: {ended:?}", test.name)),
            }
            Ok(())
        })?;
        let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
        if !failed.is_empty() {
            bail!("with nothing broken:\n{}", failed.join("\n"));
        }
        Ok(known.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Runs the tests of a mutant, the quickest first.
    fn try_on(
        &self,
        trial: &Trial<'_>,
        homes: &BTreeMap<String, Home>,
        tests: &Tests,
        known: &BTreeMap<Test, f64>,
    ) -> Result<Outcome> {
        let Trial { job, number, worker, .. } = *trial;
        // Each with the groups that have it.
        let mut found: BTreeMap<Test, Vec<usize>> = BTreeMap::new();
        for (index, group) in job.groups.iter().enumerate() {
            for (file, name) in group.files_and_names() {
                let home = homes.get(file).context("each file has a home")?;
                found.entry(tests.find(home, file, name)?).or_default().push(index);
            }
        }
        let seconds = |test: &Test| {
            let same = |(other, _): &(&Test, &f64)| other.name == test.name;
            known.iter().find(same).map_or(0.0, |(_, seconds)| *seconds)
        };
        let mut found: Vec<(Test, Vec<usize>)> = found.into_iter().collect();
        found.sort_by(|(a, _), (b, _)| seconds(a).total_cmp(&seconds(b)));
        let log = self.log.join(worker.to_string());
        let mut left: BTreeSet<usize> = (0..job.groups.len()).collect();
        let (mut whole, mut by) = (0.0, Vec::new());
        let mut is_late = false;
        for (test, groups) in found {
            if !groups.iter().any(|group| left.contains(group)) {
                continue;
            }
            // Once may be the machine's fault, not the mutant's.
            let mut failures = 0;
            for round in 0..TRIES_MAX {
                let (ended, seconds) = trial::run(&test, number, &log)?;
                whole += seconds;
                is_late |= ended == Ended::TooLate;
                match ended {
                    Ended::Failed | Ended::TooLate => failures += 1,
                    Ended::Passed if round > 0 && failures > 0 => {}
                    Ended::Passed => break,
                    Ended::NotRun => bail!("{} is not run", test.name),
                }
                if failures > 1 {
                    if let Some(line) = trial.own_end(&std::fs::read(&log)?) {
                        let why = format!("ends the program itself: {line}");
                        return Ok(Outcome::Useless(why));
                    }
                    trial.try_whole(&test, &log)?;
                    left.retain(|group| !groups.contains(group));
                    by.push(test.name);
                    break;
                }
            }
            if left.is_empty() {
                return Ok(Outcome::Noticed(by.join(" and "), whole, is_late));
            }
        }
        let whose = job.groups.iter().enumerate().filter(|(index, _)| left.contains(index));
        let whose =
            whose.filter_map(|(_, group)| group.whose.map(|part| part.letter().to_string()));
        Ok(Outcome::Survived(whose.collect::<Vec<_>>().join(" and ")))
    }

    /// One that cannot be a choice: in a build of its own.
    fn build_alone(
        &self,
        job: &Job<'_>,
        composed: &Files,
        homes: &BTreeMap<String, Home>,
        known: &BTreeMap<Test, f64>,
    ) -> Result<Outcome> {
        let file = &job.placed.mutant.file;
        let source = self.sources.get(file).context("its file was read")?;
        tree::renew(&self.tree, file, compose::alone(job.placed, source).as_bytes())?;
        let own: Vec<&Home> =
            job.files_and_names().filter_map(|(file, _)| homes.get(file)).collect();
        let mut wanted = Wanted::default();
        own.iter().for_each(|home| wanted.add(home));
        let outcome = match build::build(&self.tree, &self.target, &wanted)? {
            Built::Faults(faults) => {
                let text: Vec<&str> = faults.iter().map(|fault| fault.text.as_str()).collect();
                Outcome::Useless(format!("does not compile:\n{}", text.join("\n")))
            }
            Built::Binaries(binaries) => {
                let tests = Tests::list(binaries, &own)?;
                let trial = Trial { job, number: 0, composed: None, worker: 0 };
                self.try_on(&trial, homes, &tests, known)?
            }
        };
        let text = match composed.get(file) {
            Some(composed) => composed.text.clone(),
            None => source.edited(0..source.text.len(), &[]),
        };
        tree::renew(&self.tree, file, text.as_bytes())?;
        Ok(outcome)
    }
}

/// The files that are not as in the workspace.
pub(crate) type Files = BTreeMap<String, Composed>;

/// Why a mutant is not among the others.
#[derive(Debug)]
enum Unfit {
    /// What the compiler says of it.
    Broken(String),
    /// It may be whole alone.
    Alone,
}

impl Job<'_> {
    fn number(&self) -> u32 {
        self.placed.mutant.number
    }

    fn files_and_names(&self) -> impl Iterator<Item = (&str, &str)> {
        self.groups.iter().flat_map(Group::files_and_names)
    }
}

impl Group<'_> {
    fn files_and_names(&self) -> impl Iterator<Item = (&str, &str)> {
        self.tests.iter().filter_map(|test| killers::file_and_name(test))
    }
}

/// Whose faults these are.
fn blame(faults: &[Fault], composed: &Files) -> BTreeMap<u32, Unfit> {
    let mut blamed = BTreeMap::new();
    for fault in faults {
        // A constant was wanted of what is no longer one.
        let is_of_constant = fault.text.starts_with("error[E0015]");
        for composed in composed.values().filter(|_| is_of_constant) {
            for number in composed.named_in(&fault.text) {
                blamed.entry(number).or_insert(Unfit::Alone);
            }
        }
        for (file, line) in fault.places.iter().filter(|_| !is_of_constant) {
            let Some(composed) = composed.get(file) else { continue };
            match composed.at_line(*line) {
                [number] => {
                    blamed.insert(*number, Unfit::Broken(fault.text.clone()));
                }
                several => {
                    for number in several {
                        blamed.entry(*number).or_insert(Unfit::Alone);
                    }
                }
            }
        }
    }
    blamed
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does something with each of them, a few at once; what is done knows the number of its worker.
fn side_by_side<T: Send>(
    items: Vec<T>,
    work: impl Fn(T, usize) -> Result<()> + Sync,
) -> Result<()> {
    let waiting = Mutex::new(VecDeque::from(items));
    let (waiting, work) = (&waiting, &work);
    thread::scope(|scope| {
        let one = |worker: usize| {
            move || -> Result<()> {
                loop {
                    let next = lock(waiting).pop_front();
                    let Some(item) = next else { return Ok(()) };
                    if let Err(error) = work(item, worker) {
                        lock(waiting).clear();
                        return Err(error);
                    }
                }
            }
        };
        let workers: Vec<_> = (0..RUNS_MAX).map(|worker| scope.spawn(one(worker))).collect();
        workers.into_iter().try_for_each(|worker| {
            worker.join().map_err(|_| anyhow::anyhow!("a thread that runs tests panicked"))?
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Target;
    use crate::proofs::table;
    use crate::workspace::File;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    const FILE: &str = "crates/a/src/b.rs";

    #[test]
    fn an_error_has_an_owner_or_several() {
        let blocks = format!("A-01 {FILE}\n- one();\n+ two();\n\nA-01 {FILE}\n- c();\n+ d();\n");
        let path = "conformance/mutants/A.txt".to_owned();
        let (mutants, _) = table::mutants(&[File { path, text: blocks }]);
        let mut sources = BTreeMap::new();
        let text = "const fn f() {\n    one();\n    c();\n}\n";
        let (placed, _) = compose::place(&mutants, &mut sources, |_| Some(text.to_owned()));
        let composed = compose::together(&placed.iter().collect::<Vec<_>>(), &sources);
        let lines: Vec<&str> = composed.get(FILE).unwrap().text.lines().collect();
        let line_of = |text: &str| lines.iter().position(|line| line.contains(text)).unwrap() + 1;
        let blamed = |text: &str, line: usize| {
            let places = vec![(FILE.to_owned(), line)];
            blame(&[Fault { places, text: text.to_owned() }], &composed)
        };
        let own = blamed("error[E0425]: no", line_of("two();"));
        assert!(matches!(own.get(&mutants[0].number), Some(Unfit::Broken(_))));
        assert_eq!(own.len(), 1);
        let all = |blamed: BTreeMap<u32, Unfit>| {
            blamed.len() == 2 && blamed.values().all(|unfit| matches!(unfit, Unfit::Alone))
        };
        assert!(all(blamed("error[E0308]: no", line_of("_ => "))));
        assert!(all(blamed("error[E0015]: cannot call `f` in constants", 1)));
        assert!(blamed("error[E0425]: no", lines.len() + 1).is_empty());
    }

    /// A program with one test of each role, of which that of the target notices mutant 7, both
    /// notice 8, and that of the initiator breaks down with 9 once. With 5 both end in the line of
    /// a mutant, and since 4 nothing goes well.
    const PROGRAM: &str = "#!/bin/sh
if [ $1 = --list ]; then printf 'of_target: test\nof_initiator: test\n'; exit; fi
if [ -d sick ] || [ $LUNWIRE_MUTANT = 4 ]; then mkdir sick; exit 101; fi
if [ $LUNWIRE_MUTANT = 5 ]; then
    echo \"thread 'a' panicked at crates/a/src/b.rs:3:1:\"; exit 101
fi
case $2$LUNWIRE_MUTANT in of_target7 | of_target8 | of_initiator8) exit 101;; esac
if [ $2$LUNWIRE_MUTANT = of_initiator9 ] && mkdir once 2> /dev/null; then exit 101; fi
echo 'test result: ok. 1 passed'
";

    #[test]
    fn a_mutant_of_both_roles_is_noticed_by_a_test_of_each() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        std::fs::write(&program, PROGRAM).unwrap();
        std::fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        let (file, root) = ("crates/a/src/b.rs", "crates/a/src/lib.rs".to_owned());
        let target = Target { name: "a".into(), kind: "lib".into(), root: "src/lib.rs".into() };
        let packages = [Package {
            name: "a".to_owned(),
            member: true,
            dependencies: Vec::new(),
            declared: Vec::new(),
            library: None,
            folder: workspace::root().join("crates/a"),
            targets: vec![target],
        }];
        let workshop = Workshop {
            tree: PathBuf::new(),
            target: PathBuf::new(),
            log: folder.path().to_path_buf(),
            packages: &packages,
            sources: &BTreeMap::new(),
            added: BTreeMap::new(),
        };
        let path = "conformance/mutants/A.txt".to_owned();
        let text = format!("A-01/S {file}\n- a\n+ b\n");
        let (mutants, _) = table::mutants(&[File { path, text }]);
        let read = |_: &str| Some("fn f() {\n    a\n}\n".to_owned());
        let mut sources = BTreeMap::new();
        let (placed, _) = compose::place(&mutants, &mut sources, read);
        let composed = compose::together(&[&placed[0]], &sources);
        let tests = [format!("{file}: of_target"), format!("{file}: of_initiator")];
        let group = |whose, test| Group { whose: Some(whose), tests: vec![test] };
        let groups = vec![group(Part::Target, &*tests[0]), group(Part::Initiator, &*tests[1])];
        let job = Job { placed: &placed[0], groups };
        let homes = workshop.homes(std::slice::from_ref(&job)).unwrap();
        let binary = build::Binary { root, folder: folder.path().to_path_buf(), program };
        let tests = Tests::list(vec![binary], &homes.values().collect::<Vec<_>>()).unwrap();
        let try_on = |number| {
            let trial = Trial { job: &job, number, composed: Some(&composed), worker: 0 };
            workshop.try_on(&trial, &homes, &tests, &BTreeMap::new())
        };
        let tried = |number| try_on(number).unwrap();
        assert!(matches!(tried(6), Outcome::Survived(whose) if whose == "T and I"));
        assert!(matches!(tried(7), Outcome::Survived(whose) if whose == "I"));
        let both = "of_initiator and of_target";
        assert!(matches!(tried(8), Outcome::Noticed(by, _, false) if by == both));
        assert!(matches!(tried(9), Outcome::Survived(whose) if whose == "T and I"), "once");
        assert!(matches!(tried(5), Outcome::Useless(why) if why.ends_with("itself: b")));
        assert!(try_on(4).is_err(), "nothing is proven where the test fails anyway");
    }

    #[test]
    fn all_is_done_whoever_does_it_and_an_error_ends_it() {
        let done = Mutex::new(Vec::new());
        let work = |number: i32, _: usize| {
            lock(&done).push(number);
            Ok(())
        };
        side_by_side((0..10).collect(), work).unwrap();
        lock(&done).sort_unstable();
        assert_eq!(*lock(&done), (0..10).collect::<Vec<_>>());
        let fails = |number: i32, _: usize| if number == 3 { bail!("no") } else { Ok(()) };
        assert!(side_by_side((0..10).collect(), fails).is_err());
    }
}
