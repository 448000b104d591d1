// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs the test binaries of the workspace, several at once: most of their tests wait, for a
//! time-out, a process or a socket. `cargo test` runs one binary after the other.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use serde_json::Value;

use crate::workspace;

/// Tests of a binary that run at once, for each processor: that many wait for one that computes.
const TESTS_PER_PROCESSOR: usize = 2;

/// Binaries whose tests judge what they measured, be it roughly: nothing runs beside them, and they
/// have no more tests at once than there are processors.
const MEASURING: &[&str] = &["lab: fast05"];

/// So many tests of a whole run may fail beside others and pass alone: a machine that stands still
/// makes one late, a defect makes many fail.
const FAILED_ONCE_MAX: usize = 2;

/// So often such a test has to pass alone.
const AGAIN: usize = 3;

/// How often a binary is asked whether it is done.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// So many of the slowest tests are listed.
const SLOWEST_MAX: usize = 40;

/// Ticks of a second in `/proc/PID/stat`: Linux shows 100 to every program.
const TICKS_PER_SECOND: f64 = 100.0;

/// A program whose tests run in its package's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Binary {
    /// Package and target, as `lunwire-crc: suite`.
    name: String,
    /// What is run, with its arguments.
    command: Vec<String>,
    /// Where it runs.
    folder: PathBuf,
    /// Whether it is of a folder `tests`, where it is sockets and processes that are waited for.
    waits: bool,
    /// Of the program: what is larger takes longer, more often than not.
    bytes: u64,
}

/// How a binary ended.
#[derive(Debug)]
struct Run {
    binary: Binary,
    passed: bool,
    seconds: f64,
    /// Of all its threads, and of the processes that it waited for.
    processor_seconds: f64,
    output: String,
}

/// Builds all tests and runs them; with `timings`, says which binaries and tests took long.
pub(crate) fn run(timings: bool) -> Result<()> {
    let mut binaries = build()?;
    // Those that wait first, so that what computes fills the time.
    binaries.sort_by_key(|binary| std::cmp::Reverse((binary.waits, binary.bytes)));
    let documentation = ["cargo", "test", "--workspace", "--doc", "--locked", "--quiet"];
    binaries.push(Binary {
        name: "examples in documentation".to_owned(),
        command: documentation.map(str::to_owned).to_vec(),
        folder: workspace::root(),
        waits: false,
        bytes: 0,
    });
    let (measuring, others) =
        binaries.into_iter().partition(|binary| MEASURING.contains(&&*binary.name));
    let processors = thread::available_parallelism()?.get();
    let tests = processors * TESTS_PER_PROCESSOR;
    let mut runs = run_all(others, &How { binaries: processors, tests, timings })?;
    let failed_once = run_again(&mut runs)?;
    if runs.iter().all(|run| run.passed) {
        let how = How { binaries: 1, tests: processors, timings };
        runs.extend(run_all(measuring, &how)?);
    }
    if timings {
        print!("{}", table(&runs));
    }
    for test in failed_once {
        println!("FAILED ONCE, passed {AGAIN} times alone: {test}");
    }
    let failed: Vec<_> =
        runs.iter().filter(|run| !run.passed).map(|run| &*run.binary.name).collect();
    match failed.is_empty() {
        true => Ok(()),
        false => bail!("failed: {}", failed.join("; ")),
    }
}

fn build() -> Result<Vec<Binary>> {
    let output = Command::new("cargo")
        .args(["test", "--workspace", "--locked", "--quiet", "--no-run"])
        .arg("--message-format=json-render-diagnostics")
        .current_dir(workspace::root())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start cargo")?;
    if !output.status.success() {
        bail!("the tests do not build");
    }
    let text = String::from_utf8(output.stdout)?;
    text.lines().filter_map(|line| read_message(line).transpose()).collect()
}

/// What a message of Cargo says of a program with tests; other messages say nothing of one.
fn read_message(line: &str) -> Result<Option<Binary>> {
    let message: Value = serde_json::from_str(line)?;
    let Some(program) = message["executable"].as_str() else { return Ok(None) };
    if message["profile"]["test"] != true {
        return Ok(None);
    }
    let manifest = message["manifest_path"].as_str().context("an artifact without manifest")?;
    let folder = Path::new(manifest).parent().context("a manifest in no folder")?.to_path_buf();
    let package = folder.file_name().unwrap_or_default().to_string_lossy();
    let target = &message["target"];
    let waits = target["kind"][0] == "test";
    Ok(Some(Binary {
        name: format!("{package}: {}", target["name"].as_str().unwrap_or_default()),
        command: vec![program.to_owned()],
        waits,
        bytes: std::fs::metadata(program).map_or(0, |metadata| metadata.len()),
        folder,
    }))
}

/// How binaries run.
#[derive(Debug)]
struct How {
    /// Binaries at once.
    binaries: usize,
    /// Tests of a binary at once.
    tests: usize,
    /// Whether each test tells how long it took.
    timings: bool,
}

/// Runs what failed again, each test alone, where so few failed that the machine may be the cause.
/// Returns those that passed then: somebody has to look at them, but they hold nobody up.
fn run_again(runs: &mut [Run]) -> Result<Vec<String>> {
    let mut passed = Vec::new();
    if !runs.iter().all(|run| run.passed || may_pass_alone(run))
        || failed_tests_of(runs) > FAILED_ONCE_MAX
    {
        return Ok(passed);
    }
    for run in runs.iter_mut().filter(|run| !run.passed) {
        let tests: Vec<_> = failed_tests(&run.output).map(str::to_owned).collect();
        run.passed = true;
        for test in tests {
            let mut binary = run.binary.clone();
            binary.name = format!("{}: {test}, alone", binary.name);
            binary.command.extend(["--exact".to_owned(), test.clone()]);
            let alone = How { binaries: 1, tests: 1, timings: false };
            let again = run_all(vec![binary; AGAIN], &alone)?;
            match again.len() == AGAIN && again.iter().all(|run| run.passed) {
                true => passed.push(format!("{}: {test}", run.binary.name)),
                false => run.passed = false,
            }
        }
    }
    Ok(passed)
}

/// Whether a binary that failed named tests of its own; one that died did not.
fn may_pass_alone(run: &Run) -> bool {
    run.binary.command.len() == 1 && failed_tests(&run.output).next().is_some()
}

fn failed_tests_of(runs: &[Run]) -> usize {
    runs.iter().map(|run| failed_tests(&run.output).count()).sum()
}

/// The names of the tests that failed, of the list at the end of what a binary prints.
fn failed_tests(output: &str) -> impl Iterator<Item = &str> {
    let list = output.rsplit_once("\nfailures:\n").map_or("", |(_, list)| list);
    list.lines().map_while(|line| line.strip_prefix("    "))
}

/// After a binary whose failure is no matter of a late machine no other begins, and those that run
/// are stopped and not spoken of.
fn run_all(binaries: Vec<Binary>, how: &How) -> Result<Vec<Run>> {
    let waiting = Mutex::new(binaries.into_iter().enumerate().collect::<VecDeque<_>>());
    let runs = Mutex::new(Vec::new());
    let stop = AtomicBool::new(false);
    let work = || -> Result<()> {
        loop {
            let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some((number, binary)) = next.filter(|_| !stop.load(Ordering::Relaxed)) else {
                return Ok(());
            };
            let log = std::env::temp_dir().join(format!("units-{}-{number}", std::process::id()));
            let Some(run) = run_one(&binary, &log, how, &stop)? else { return Ok(()) };
            let mut runs = runs.lock().unwrap_or_else(PoisonError::into_inner);
            print!("{}", report(&run));
            std::io::stdout().flush()?;
            let hopeless = !run.passed && !may_pass_alone(&run);
            runs.push(run);
            if hopeless || failed_tests_of(&runs) > FAILED_ONCE_MAX {
                stop.store(true, Ordering::Relaxed);
            }
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..how.binaries).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| {
            worker.join().map_err(|_| anyhow::anyhow!("a thread that runs tests panicked"))?
        })
    })?;
    Ok(runs.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// None when it was stopped.
fn run_one(binary: &Binary, log_path: &Path, how: &How, stop: &AtomicBool) -> Result<Option<Run>> {
    let begin = Instant::now();
    let log = File::create_new(log_path).with_context(|| format!("{}", log_path.display()))?;
    let (program, arguments) = binary.command.split_first().context("no program")?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir(&binary.folder)
        .env("CARGO_MANIFEST_DIR", &binary.folder)
        .env("RUST_TEST_THREADS", how.tests.to_string())
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    if how.timings && arguments.is_empty() {
        // The only way to learn it of a compiler that is stable.
        command.env("RUSTC_BOOTSTRAP", "1").args(["-Z", "unstable-options", "--report-time"]);
    }
    let mut child = command.spawn().with_context(|| format!("cannot start {program}"))?;
    let mut processor_seconds = 0.0;
    let status = loop {
        processor_seconds = processor_seconds_of(child.id()).unwrap_or(processor_seconds);
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if stop.load(Ordering::Relaxed) {
            child.kill()?;
            child.wait()?;
            break None;
        }
        thread::sleep(LOOK_INTERVAL);
    };
    let output = String::from_utf8_lossy(&std::fs::read(log_path)?).into_owned();
    std::fs::remove_file(log_path)?;
    Ok(status.map(|status| Run {
        binary: binary.clone(),
        passed: status.success(),
        seconds: begin.elapsed().as_secs_f64(),
        processor_seconds,
        output,
    }))
}

/// What a process and those that it waited for have used.
fn processor_seconds_of(process: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // User and system, its own and of its children: fields 14 to 17, counted from 1; the second
    // one, in brackets, may hold spaces.
    let fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11).take(4);
    let ticks: u32 = fields.filter_map(|field| field.parse::<u32>().ok()).sum();
    Some(f64::from(ticks) / TICKS_PER_SECOND)
}

/// A line for what passed; all but the names of the tests that passed for what failed.
fn report(run: &Run) -> String {
    let Run { binary: Binary { name, .. }, seconds, output, .. } = run;
    if run.passed {
        let count: u32 = output.lines().filter_map(passed_in).sum();
        return format!("{name}: {count} passed ({seconds:.1} s)\n");
    }
    let lines =
        output.lines().filter(|line| !(line.starts_with("test ") && line.contains("... ok")));
    let lines: Vec<_> = lines.collect();
    format!("=== {name} FAILED after {seconds:.1} s\n{}\n", lines.join("\n"))
}

/// Tests that passed, of the line that says how many.
fn passed_in(line: &str) -> Option<u32> {
    let (_, counts) = line.split_once("test result: ok. ")?;
    counts.split_once(" passed")?.0.parse().ok()
}

/// The seconds and the name of a test, of a line as `test name ... ok <1.234s>`.
fn test_time(line: &str) -> Option<(f64, &str)> {
    let (name, result) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let seconds = result.rsplit_once('<')?.1.strip_suffix("s>")?;
    Some((seconds.parse().ok()?, name))
}

/// What took long: each binary, and the slowest tests of all.
fn table(runs: &[Run]) -> String {
    let mut runs: Vec<_> = runs.iter().collect();
    runs.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    let mut text = "\n seconds  processor  binary\n".to_owned();
    for Run { binary: Binary { name, .. }, seconds, processor_seconds, .. } in &runs {
        text.push_str(&format!("{seconds:8.1} {processor_seconds:10.1}  {name}\n"));
    }
    let mut tests: Vec<_> = runs
        .iter()
        .flat_map(|run| {
            run.output.lines().filter_map(test_time).map(|test| (test, &run.binary.name))
        })
        .collect();
    tests.sort_by(|((a, _), _), ((b, _), _)| b.total_cmp(a));
    text.push_str("\n seconds  slowest tests\n");
    for ((seconds, test), binary) in tests.into_iter().take(SLOWEST_MAX) {
        text.push_str(&format!("{seconds:8.1}  {binary}: {test}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_with_tests_are_found_among_the_messages() {
        let message = r#"{"reason":"compiler-artifact","manifest_path":"/w/crates/crc/Cargo.toml",
            "target":{"kind":["test"],"name":"suite"},"profile":{"test":true},
            "executable":"/w/target/suite-1"}"#;
        let binary = read_message(message).unwrap().unwrap();
        assert_eq!(binary.name, "crc: suite");
        assert_eq!(binary.folder, Path::new("/w/crates/crc"));
        assert!(binary.waits);
        let program = message.replace(r#""test":true"#, r#""test":false"#);
        assert_eq!(read_message(&program).unwrap(), None);
        assert_eq!(read_message(r#"{"reason":"build-finished","success":true}"#).unwrap(), None);
    }

    #[test]
    fn times_and_counts_are_read_from_the_output() {
        assert_eq!(test_time("test a::b ... ok <1.250s>"), Some((1.25, "a::b")));
        assert_eq!(
            test_time("test a - should panic ... ok <0.5s>"),
            Some((0.5, "a - should panic"))
        );
        assert_eq!(test_time("test a::b ... ignored"), None);
        assert_eq!(passed_in("test result: ok. 12 passed; 0 failed; 0 ignored"), Some(12));
    }

    #[test]
    fn what_failed_is_shown_without_what_passed() {
        let said = report(&failed("true"));
        assert!(said.contains("x: y FAILED") && said.contains("b stdout"), "{said}");
        assert!(!said.contains("test a"), "{said}");
    }

    /// A run in which the test `b` failed, of a binary that `program` stands for.
    fn failed(program: &str) -> Run {
        let output = "test a ... ok\ntest b ... FAILED\n\nfailures:\n\n---- b stdout ----\nno\n\n\
                      failures:\n    b\n\ntest result: FAILED. 1 passed; 1 failed\n";
        Run {
            binary: Binary {
                name: "x: y".to_owned(),
                command: vec![program.to_owned()],
                folder: workspace::root(),
                waits: false,
                bytes: 0,
            },
            passed: false,
            seconds: 1.0,
            processor_seconds: 0.5,
            output: output.to_owned(),
        }
    }

    #[test]
    fn what_fails_once_passes_only_when_it_passes_alone() {
        assert_eq!(failed_tests(&failed("true").output).collect::<Vec<_>>(), ["b"]);
        let mut runs = vec![failed("true")];
        assert_eq!(run_again(&mut runs).unwrap(), ["x: y: b"]);
        assert!(runs[0].passed);
        let mut runs = vec![failed("false")];
        assert_eq!(run_again(&mut runs).unwrap(), [""; 0]);
        assert!(!runs[0].passed);
        // Many that fail, or a binary that dies, are no matter of a late machine.
        let mut runs = vec![failed("true"), failed("true"), failed("true")];
        assert_eq!(run_again(&mut runs).unwrap(), [""; 0]);
        assert!(runs.iter().all(|run| !run.passed));
        let mut runs = vec![Run { output: "test a ...\n".to_owned(), ..failed("true") }];
        assert_eq!(run_again(&mut runs).unwrap(), [""; 0]);
        assert!(!runs[0].passed);
    }

    /// Who asks for what is none is not told that it passed.
    #[test]
    fn stages_that_are_none_have_not_passed() {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/test");
        let asked = |turn: &str, words: &[&str]| {
            let folder = tempfile::tempdir().unwrap();
            let mut command = Command::new(script);
            command.args(words).env("TURN", turn).env("TMPDIR", folder.path());
            let output = command.output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            (output.status.code(), text.contains("PASSED"))
        };
        for words in [&["nothing"][..], &["fmt tidy"], &["fmt", "short long"], &[""]] {
            assert_eq!(asked("", words), (Some(2), false), "{words:?}");
        }
        for turn in ["08", "1.5", "-1", "1 1", "x", "99999999999999999999"] {
            assert_eq!(asked(turn, &["fmt"]), (Some(2), false), "{turn}");
        }
    }
}
