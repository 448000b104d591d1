// SPDX-License-Identifier: Apache-2.0 OR MIT
//! On what was measured, and what else that did meanwhile.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::congestion;
use crate::measure::real;

/// The machine at the beginning of a run.
#[derive(Debug)]
pub(crate) struct Machine {
    begun: Instant,
    load: String,
    busy: f64,
    times: Times,
}

/// What was noted of it.
#[derive(Debug)]
pub(crate) struct Noted {
    pub(crate) facts: Vec<(&'static str, String)>,
    pub(crate) took: Duration,
    /// Of the processors' time, what a hypervisor gave to others, in percent.
    pub(crate) steal: f64,
    /// Of the processors' time just before, what other programs had, in percent.
    pub(crate) busy: f64,
}

/// Of the processors' time, what other programs may have before a run: more shows in its figures.
const BUSY_PERCENT_MAX: f64 = 20.0;

/// Over how long it is looked at what other programs do.
const LOOK: Duration = Duration::from_millis(200);

impl Machine {
    pub(crate) fn look() -> Self {
        let before = Times::now();
        std::thread::sleep(LOOK);
        let times = Times::now();
        let busy = times.busy_since(before);
        Self { begun: Instant::now(), load: load(), busy, times }
    }

    pub(crate) fn note(&self) -> Noted {
        let after = Times::now();
        let all = after.all.saturating_sub(self.times.all);
        let stolen = after.stolen.saturating_sub(self.times.stolen);
        let engine = engine::probe();
        let cpus = engine::affinity::allowed_cpus().len();
        let facts = vec![
            ("processor", processor()),
            ("processors", cpus.to_string()),
            ("memory", memory()),
            ("kernel", engine.kernel.clone()),
            ("engine", engine.choice.name().to_owned()),
            ("CRC32C", crc::tier().name().to_owned()),
            ("lunwire", env!("CARGO_PKG_VERSION").to_owned()),
            ("clock governor", governor()),
            ("TCP", congestion::current()),
            ("load before", self.load.clone()),
        ];
        let steal = 100.0 * real(stolen) / real(all.max(1));
        Noted { facts, took: self.begun.elapsed(), steal, busy: self.busy }
    }
}

impl Noted {
    pub(crate) fn json(&self) -> Value {
        let facts = self.facts.iter().map(|(name, value)| ((*name).to_owned(), json!(value)));
        Value::Object(facts.collect())
    }

    /// That others had so much to do that the figures say little, if they had.
    pub(crate) fn disturbed(&self) -> Option<String> {
        (self.busy > BUSY_PERCENT_MAX).then(|| {
            format!(
                "Other programs had {:.0} % of the processors' time just before: what they do \
                 shows in the figures, and in the verdicts. Let the machine be idle, and run it \
                 again.",
                self.busy
            )
        })
    }

    /// In one sentence.
    pub(crate) fn text(&self) -> String {
        let facts = self.facts.iter().map(|(name, value)| format!("{name} {value}"));
        facts.collect::<Vec<_>>().join(", ")
    }
}

/// Ticks of all processors.
#[derive(Clone, Copy, Debug)]
struct Times {
    all: u64,
    idle: u64,
    stolen: u64,
}

impl Times {
    fn now() -> Self {
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        let ticks: Vec<u64> = text
            .lines()
            .next()
            .map(|line| line.split_whitespace().filter_map(|word| word.parse().ok()).collect())
            .unwrap_or_default();
        // Time of guests, behind it, is within that of users.
        let all = ticks.iter().take(STEAL + 1).sum();
        let idle = IDLE.into_iter().filter_map(|at| ticks.get(at)).sum();
        Self { all, idle, stolen: ticks.get(STEAL).copied().unwrap_or(0) }
    }

    /// Percent of the processors' time in which they had work.
    fn busy_since(self, before: Self) -> f64 {
        let all = self.all.saturating_sub(before.all);
        let idle = self.idle.saturating_sub(before.idle);
        100.0 * real(all.saturating_sub(idle)) / real(all.max(1))
    }
}

/// Their places in a line of /proc/stat.
const STEAL: usize = 7;
const IDLE: [usize; 2] = [3, 4];
const WORK: [usize; 4] = [0, 2, 5, 6];

/// Seconds that a processor has worked, as the kernel counts them in its ticks: for users that are
/// not nice, for itself, and for interrupts. None where it does not tell.
pub(crate) fn worked(cpu: usize) -> Option<f64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    worked_of(&text, cpu)
}

fn worked_of(stat: &str, cpu: usize) -> Option<f64> {
    let name = format!("cpu{cpu}");
    let mut lines = stat.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let words = lines.find(|words| words.first() == Some(&name.as_str()))?;
    let ticks = |at: usize| words.get(at + 1).and_then(|word| word.parse::<u64>().ok());
    let sum = WORK.into_iter().filter_map(ticks).sum();
    Some(real(sum) * TICK_SECONDS)
}

/// The tick in which the kernel tells times, on every machine that Linux runs on.
const TICK_SECONDS: f64 = 0.01;

fn first_line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().next().map(|line| line.trim().to_owned())
}

fn load() -> String {
    let line = first_line("/proc/loadavg").unwrap_or_default();
    line.split_whitespace().next().unwrap_or("unknown").to_owned()
}

fn governor() -> String {
    let governor = first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    governor.unwrap_or_else(|| "unknown".to_owned())
}

fn memory() -> String {
    let line = first_line("/proc/meminfo").unwrap_or_default();
    let kib: Option<u64> = line.split_whitespace().nth(1).and_then(|word| word.parse().ok());
    kib.map_or_else(|| "unknown".to_owned(), |kib| format!("{} MiB", kib >> 10))
}

/// What the processor calls itself.
pub(crate) fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("model name"));
    let name = line.and_then(|line| line.split_once(": ")).map(|(_, name)| name.to_owned());
    name.unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_tells_its_work_without_what_is_nice() {
        let stat = "cpu  9 9 9 9 9 9 9 9\ncpu0 1 20 300 4000 5000 60000 700000 8\ncpu10 1 0 0 0";
        let worked = worked_of(stat, 0).expect("it is there");
        assert!((worked - 7603.01).abs() < 1e-9, "{worked}");
        assert_eq!(worked_of(stat, 1), None);
        assert!(worked_of(stat, 10).is_some_and(|worked| (worked - 0.01).abs() < 1e-9));
    }

    #[test]
    fn processors_are_busy_as_far_as_they_are_not_idle() {
        let at = |all, idle| Times { all, idle, stolen: 0 };
        let busy = at(140, 70).busy_since(at(100, 40));
        assert!((busy - 25.0).abs() < 1e-9, "{busy}");
        assert!(at(100, 40).busy_since(at(100, 40)).abs() < 1e-9);
    }

    #[test]
    fn a_run_beside_other_work_is_told_to_say_little() {
        let noted = |busy| Noted { facts: Vec::new(), took: LOOK, steal: 0.0, busy };
        assert_eq!(noted(20.0).disturbed(), None);
        let told = noted(51.2).disturbed().expect("half of the time is much");
        assert!(told.contains(" 51 % ") && told.contains("run it again"), "{told}");
    }

    #[test]
    fn a_machine_tells_what_it_is() {
        let noted = Machine::look().note();
        assert!(noted.facts.iter().all(|(_, value)| !value.is_empty()), "{noted:?}");
        assert!((0.0..=100.0).contains(&noted.steal) && (0.0..=100.0).contains(&noted.busy));
        assert!(noted.json()["kernel"].is_string() && noted.text().contains("processors"));
    }
}
