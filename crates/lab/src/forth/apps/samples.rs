// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What all processors were seen at, a thousand times a second and more: samples that `perf` takes
//! of the whole machine by its clock, with the kernel's callers of what it was at.

use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, OFlags, mkfifoat};

use super::layer::Layer;
use crate::programs::{self, installed};
use crate::study::Effort;
use crate::workplace::Workplace;

/// It has begun, and has written all that it has, after so long.
const BEGIN_MOST: Duration = Duration::from_secs(10);
const END_MOST: Duration = Duration::from_secs(10);

/// Between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// Pipes of its own: it is told to begin by one, and answers by the other.
const ORDERS: &str = "orders";
const ANSWERS: &str = "answers";

/// Samples of each processor in a second: fewer where runs are long. A prime beats with nothing.
pub(super) fn rate(effort: Effort) -> u32 {
    effort.of(1999, 1999, 499)
}

/// Who takes samples.
#[derive(Debug)]
pub(super) struct Sampler {
    program: PathBuf,
    process: Child,
    file: PathBuf,
    /// Samples of each processor in a second.
    rate: u32,
    _folder: Workplace,
}

/// One of a processor that was not idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    /// By the clock that counts from the start of the machine, nanoseconds.
    pub(super) at: u64,
    pub(super) process: u32,
    /// None: a program was at work, not the kernel.
    pub(super) layer: Option<Layer>,
}

/// All that were taken, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples {
    all: Vec<Sample>,
    /// What each stands for, nanoseconds.
    each: f64,
}

/// What was seen within a time, nanoseconds of a processor.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// Of the application, and the kernel for it; and how many samples that are.
    pub(super) user: f64,
    pub(super) system: f64,
    pub(super) samples: u64,
    /// The program that has attached the disk, and the kernel for it.
    pub(crate) initiator: f64,
    pub(super) network: f64,
    /// The targets, with all that the kernel does for them.
    pub(crate) targets: f64,
    /// The kernel for all others, its own threads and interrupts within.
    layers: [f64; Layer::ALL.len()],
}

impl Seen {
    pub(crate) fn layer(&self, layer: Layer) -> f64 {
        let all = Layer::ALL.into_iter().zip(self.layers);
        all.filter(|(one, _)| *one == layer).map(|(_, time)| time).sum()
    }

    /// All that the study calls system time: iSCSI is within.
    pub(crate) fn whole_system(&self) -> f64 {
        self.layers.iter().sum::<f64>() + self.initiator
    }
}

/// Between which times, and who worked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Window {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) application: Option<u32>,
    pub(super) initiator: Option<u32>,
}

impl Sampler {
    /// So many samples of each processor in a second, from now on; the reason, where that cannot
    /// be.
    pub(super) fn start(rate: u32) -> Result<Self, String> {
        let program = installed("perf", "linux-perf")?;
        let folder = Workplace::new().map_err(|error| error.to_string())?;
        let file = folder.path().join("samples");
        // It writes its file's head, and looks at all processes, long before it takes samples:
        // only its answer tells that it does.
        let pipe = |name| pipe(&folder.path().join(name)).map_err(|error| error.to_string());
        let (mut orders, mut answers) = (pipe(ORDERS)?, pipe(ANSWERS)?);
        let process = Command::new(&program)
            .args(["record", "-q", "-a", "-e", "cpu-clock", "-k", "CLOCK_MONOTONIC"])
            .args(["-g", "--kernel-callchains", "-F", &rate.to_string()])
            .args(["--delay=-1", "--control", &format!("fifo:{ORDERS},{ANSWERS}"), "-o"])
            .arg(&file)
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|error| format!("perf: {error}"))?;
        let mut sampler = Self { program, process, file, rate, _folder: folder };
        orders.write_all(b"enable\n").map_err(|error| format!("perf: {error}"))?;
        let until = Instant::now() + BEGIN_MOST;
        while !has_answered(&mut answers).map_err(|error| format!("perf: {error}"))? {
            if let Ok(Some(_)) = sampler.process.try_wait() {
                return Err(sampler.why());
            }
            if Instant::now() >= until {
                return Err("perf record does not begin".into());
            }
            std::thread::sleep(LOOK);
        }
        Ok(sampler)
    }

    /// What it says of why it cannot.
    fn why(&mut self) -> String {
        let mut said = String::new();
        if let Some(mut from) = self.process.stderr.take() {
            let _ = from.read_to_string(&mut said);
        }
        let first = said.lines().map(str::trim).find(|line| line.len() > "Error:".len());
        format!(
            "perf may not sample the machine, for which it needs root or a kernel.\
             perf_event_paranoid of -1: {}",
            first.unwrap_or("it does not say why")
        )
    }

    /// All that it took.
    pub(super) fn end(mut self) -> Result<Samples, String> {
        programs::end(&mut self.process, "perf", END_MOST).map_err(|error| error.to_string())?;
        let mut script = Command::new(&self.program)
            .args(["script", "--ns", "--no-inline", "-F", "pid,time,ip,sym", "-i"])
            .arg(&self.file)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(|error| format!("perf: {error}"))?;
        let from = script.stdout.take().ok_or("perf has no output")?;
        let all = read(BufReader::new(from), self.process.id());
        let ended = script.wait();
        let all =
            all.and_then(|all| ended.map(|_| all)).map_err(|error| format!("perf: {error}"))?;
        let is_told = |sample: &Sample| sample.layer.is_some_and(|layer| layer != Layer::Other);
        match all.iter().any(is_told) {
            true => Ok(Samples::new(all, 1e9 / f64::from(self.rate))),
            false => Err("perf sees no names of the kernel's functions, for which it needs \
                          kernel.kptr_restrict to be 0"
                .into()),
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Samples {
    pub(super) const fn new(all: Vec<Sample>, each: f64) -> Self {
        Self { all, each }
    }

    /// Of a processor in a second.
    pub(super) fn rate(&self) -> f64 {
        1e9 / self.each
    }

    pub(super) fn seen(&self, window: Window) -> Seen {
        let begin = self.all.partition_point(|sample| sample.at < window.from);
        let within = self.all.iter().skip(begin).take_while(|sample| sample.at < window.to);
        let targets = std::process::id();
        let mut seen = Seen::default();
        for sample in within {
            let process = Some(sample.process);
            if sample.process == targets {
                seen.targets += self.each;
                continue;
            }
            seen.samples += u64::from(process == window.application);
            let sum = match sample.layer {
                None if process == window.application => &mut seen.user,
                None if process == window.initiator => &mut seen.initiator,
                None => continue,
                Some(_) if process == window.application => &mut seen.system,
                Some(_) if process == window.initiator => &mut seen.network,
                Some(_) => &mut 0.0,
            };
            *sum += self.each;
            let layers = Layer::ALL.into_iter().zip(&mut seen.layers);
            for (_, sum) in layers.filter(|(layer, _)| Some(*layer) == sample.layer) {
                *sum += self.each;
            }
        }
        seen
    }
}

/// Whose other end need not be open.
fn pipe(path: &Path) -> io::Result<File> {
    mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR)?;
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    File::options().read(true).write(true).custom_flags(flags).open(path)
}

fn has_answered(answers: &mut File) -> io::Result<bool> {
    match answers.read(&mut [0; 16]) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
        read => read.map(|count| count > 0),
    }
}

/// What `perf script` says, but for what `perf` itself did.
fn read(from: impl BufRead, perf: u32) -> io::Result<Vec<Sample>> {
    let mut all = Vec::new();
    let mut head = None;
    let mut functions: Vec<String> = Vec::new();
    for line in from.lines().chain([Ok(String::new())]) {
        let line = line?;
        if line.starts_with('\t') {
            let name = line.split_whitespace().nth(1).unwrap_or_default();
            functions.push(name.to_owned());
        } else if line.trim().is_empty() {
            let names = functions.iter().map(String::as_str);
            // A program has no functions here: the kernel's are asked for alone.
            let layer = match functions.is_empty() {
                true => Some(None),
                false => Layer::of(names).map(Some),
            };
            if let Some(((process, at), layer)) = head.take().zip(layer)
                && process != perf
            {
                all.push(Sample { at, process, layer });
            }
            functions.clear();
        } else {
            head = head_of(&line);
        }
    }
    all.sort_by_key(|sample| sample.at);
    Ok(all)
}

/// Such as ` 4711 46334.576556238: `.
fn head_of(line: &str) -> Option<(u32, u64)> {
    let mut words = line.split_whitespace();
    let process = words.next()?.parse().ok()?;
    let (seconds, parts) = words.next()?.strip_suffix(':')?.split_once('.')?;
    let (seconds, parts): (u64, u64) = (seconds.parse().ok()?, parts.parse().ok()?);
    Some((process, seconds.checked_mul(1_000_000_000)?.checked_add(parts)?))
}

#[cfg(test)]
mod tests {
    use std::io::Seek;

    use super::*;
    use crate::forth::apps::account::nanoseconds;
    use crate::threads::own_ns;

    const SAID: &str = "\
    7 10.000000100: \n\n\
    7 10.000000200: \n\tffffffff81768d03 __memcpy\n\tffffffff8168c05d ext4_da_write_end\n\n\
    8 10.000000300: \n\tffffffff8168c05d tcp_sendmsg_locked\n\n\
    8 10.000000400: \n\n\
    0 10.000000500: \n\tffffffff8168c05d pv_native_safe_halt\n\tffffffff821f4735 default_idle\n\n\
    0 10.000000600: \n\tffffffff8168c05d handle_softirqs\n\n\
    9 10.000000700: \n\tffffffff8168c05d vfs_write\n\n\
    5 10.000000800: \n\n\
    7 10.000000900: \n\n";

    #[test]
    fn samples_are_of_who_worked_and_of_layers() {
        let all = read(SAID.as_bytes(), 9).unwrap();
        assert_eq!(all.len(), 7, "neither idle nor perf: {all:?}");
        assert_eq!(all[0], Sample { at: 10_000_000_100, process: 7, layer: None });
        let samples = Samples::new(all, 100.0);
        let window = Window {
            from: 10_000_000_000,
            to: 10_000_000_900,
            application: Some(7),
            initiator: Some(8),
        };
        let seen = samples.seen(window);
        let parts = [seen.user, seen.system, seen.initiator, seen.network, seen.targets];
        assert_eq!(parts, [100.0, 100.0, 100.0, 100.0, 0.0], "{seen:?}");
        assert_eq!(seen.samples, 2, "the last one is later");
        let layers = [Layer::FileSystem, Layer::Network, Layer::Interrupts, Layer::Block];
        assert_eq!(layers.map(|layer| seen.layer(layer)), [100.0, 100.0, 100.0, 0.0]);
        assert!((seen.whole_system() - 400.0).abs() < 1e-9);
    }

    #[test]
    fn what_cannot_be_read_is_no_sample() {
        for text in ["", "\n\n", "perf 1.2:\n\n", "1 2\n\n", "1 99999999999999999999.1: \n\n"] {
            assert_eq!(read(text.as_bytes(), 0).unwrap(), [], "{text:?}");
        }
    }

    #[test]
    fn this_process_is_that_of_targets_from_the_beginning() {
        let Ok(sampler) = Sampler::start(1999) else { return };
        let now = || nanoseconds(rustix::time::clock_gettime(rustix::time::ClockId::Monotonic));
        // Others may have the processor, which is nobody's fault: what this thread has used counts.
        let (from, begun) = (now(), own_ns());
        let mut file = tempfile::tempfile().unwrap();
        let mut work = |ns: u64| {
            while own_ns() - begun < ns {
                // The kernel has something to do whose names are told.
                file.write_all(&[0x5a; 4096]).unwrap();
                file.rewind().unwrap();
            }
        };
        work(30_000_000);
        let window = Window { from, to: now(), ..Window::default() };
        // A sampler that begins too late sees this alone.
        work(200_000_000);
        // A machine may have no names of functions to tell.
        let Ok(samples) = sampler.end() else { return };
        assert!(samples.seen(window).targets > 5e6, "{:?}", samples.seen(window));
    }
}
