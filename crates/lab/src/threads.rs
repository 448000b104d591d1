// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the kernel knows of our threads and of the machine's interrupts.

use std::fs;
use std::ops::{Add, Sub};
use std::path::Path;

use crate::measure::real;

/// What a thread has used so far, or within a time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// Time on a CPU, nanoseconds.
    pub(crate) cpu_ns: u64,
    /// Of that, in ticks, as the kernel samples it.
    pub(crate) user: u64,
    pub(crate) system: u64,
    /// Times that it slept.
    pub(crate) voluntary: u64,
    /// Times that it had to make room.
    pub(crate) involuntary: u64,
}

/// Interrupts of the whole machine.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Interrupts {
    /// Of devices.
    pub(crate) devices: u64,
    /// Of timers.
    pub(crate) timers: u64,
    /// From one CPU to another: to run something there, or to schedule.
    pub(crate) between: u64,
    /// Runs of the network's receive work, which loopback has in place of a device's interrupts.
    pub(crate) network: u64,
}

impl Sub for Usage {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns.saturating_sub(before.cpu_ns),
            user: self.user.saturating_sub(before.user),
            system: self.system.saturating_sub(before.system),
            voluntary: self.voluntary.saturating_sub(before.voluntary),
            involuntary: self.involuntary.saturating_sub(before.involuntary),
        }
    }
}

impl Add for Usage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns + other.cpu_ns,
            user: self.user + other.user,
            system: self.system + other.system,
            voluntary: self.voluntary + other.voluntary,
            involuntary: self.involuntary + other.involuntary,
        }
    }
}

impl Usage {
    /// Time of the program and of its system calls, nanoseconds: the exact sum in the parts that
    /// the kernel has sampled.
    pub(crate) fn parts(&self) -> [f64; 2] {
        let ticks = real(self.user + self.system);
        let share = if ticks > 0.0 { real(self.user) / ticks } else { 0.0 };
        let all = real(self.cpu_ns);
        [all * share, all * (1.0 - share)]
    }
}

impl Sub for Interrupts {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            devices: self.devices.saturating_sub(before.devices),
            timers: self.timers.saturating_sub(before.timers),
            between: self.between.saturating_sub(before.between),
            network: self.network.saturating_sub(before.network),
        }
    }
}

/// The thread of this process that has this name.
pub(crate) fn find(name: &str) -> Option<u32> {
    fs::read_dir("/proc/self/task").ok()?.flatten().find_map(|entry| {
        let comm = fs::read_to_string(entry.path().join("comm")).ok()?;
        (comm.trim_end() == name).then(|| entry.file_name().to_str()?.parse().ok())?
    })
}

/// The threads of this process.
pub(crate) fn all() -> Vec<u32> {
    let entries = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// What the thread has used until now; nothing if there is none.
pub(crate) fn usage(tid: u32) -> Usage {
    usage_of(Path::new(&format!("/proc/self/task/{tid}")))
}

/// What the calling thread has used, nanoseconds: as of now, and not of its last tick.
pub(crate) fn own_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let [seconds, nanoseconds] =
        [time.tv_sec, time.tv_nsec].map(|part| u64::try_from(part).unwrap_or(0));
    seconds * 1_000_000_000 + nanoseconds
}

/// What the threads that a process has now have used until now; nothing if there is none.
pub(crate) fn process(pid: u32) -> Usage {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.map(|thread| usage_of(&thread.path())).fold(Usage::default(), Add::add)
}

/// What all threads of the kernel have used until now, nanoseconds.
pub(crate) fn kernel_ns() -> u64 {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_of_kernel = |folder: &Path| stat(folder).get(PARENT).copied() == Some(KTHREADD);
    let threads = all.map(|one| one.path()).filter(|folder| is_of_kernel(folder));
    threads.map(|folder| usage_of(&folder).cpu_ns).sum()
}

/// Its place in `stat`, behind the name; and who is the parent of all threads of the kernel.
const PARENT: usize = 1;
const KTHREADD: u64 = 2;

/// The numbers behind the name, which may hold anything; what is none, as the state, counts 0.
fn stat(folder: &Path) -> Vec<u64> {
    let text = fs::read_to_string(folder.join("stat")).unwrap_or_default();
    let behind = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    behind.split_whitespace().map(|word| word.parse().unwrap_or(0)).collect()
}

fn usage_of(folder: &Path) -> Usage {
    let read = |file: &str| fs::read_to_string(folder.join(file));
    let words = stat(folder);
    let word = |at: usize| words.get(at).copied().unwrap_or(0);
    let status = read("status").unwrap_or_default();
    let switches = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.rsplit('\t').next()?.trim().parse().ok()).unwrap_or(0)
    };
    let schedstat = read("schedstat").unwrap_or_default();
    let exact = schedstat.split_whitespace().next().and_then(|word| word.parse().ok());
    let (user, system) = (word(11), word(12));
    Usage {
        cpu_ns: exact.filter(|ns| *ns > 0).unwrap_or((user + system) * TICK_NS),
        user,
        system,
        voluntary: switches("voluntary_ctxt_switches"),
        involuntary: switches("nonvoluntary_ctxt_switches"),
    }
}

/// The tick in which the kernel tells times, on every machine that Linux runs on.
const TICK_NS: u64 = 10_000_000;

/// The interrupts until now.
pub(crate) fn interrupts() -> Interrupts {
    let mut sum = Interrupts::default();
    for (name, count) in rows("/proc/interrupts") {
        match name.as_str() {
            "LOC" => sum.timers += count,
            "RES" | "CAL" | "TLB" => sum.between += count,
            number if number.bytes().all(|byte| byte.is_ascii_digit()) => sum.devices += count,
            _ => {}
        }
    }
    sum.network =
        rows("/proc/softirqs").iter().filter(|(name, _)| name == "NET_RX").map(|row| row.1).sum();
    sum
}

/// Rows such as `LOC:  12  34  words`: the name, and the sum over all CPUs.
fn rows(path: &str) -> Vec<(String, u64)> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let row = |line: &str| {
        let (name, rest) = line.split_once(':')?;
        let counts = rest.split_whitespace().map_while(|word| word.parse::<u64>().ok());
        Some((name.trim().to_owned(), counts.sum()))
    };
    text.lines().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_works_and_sleeps_is_seen() {
        let busy = std::thread::Builder::new().name("lab-busy".into());
        let busy = busy.spawn(|| {
            let tid = find("lab-busy").expect("this thread");
            assert!(all().contains(&tid) && all().len() > 1);
            let before = usage(tid);
            let from = std::time::Instant::now();
            while from.elapsed().as_millis() < 50 {
                std::hint::spin_loop();
            }
            for _ in 0..5 {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            usage(tid) - before
        });
        let used = busy.expect("a thread").join().expect("no panic");
        assert!(used.cpu_ns > 1_000_000 && used.voluntary >= 5, "{used:?}");
        assert!(interrupts().timers > 0);
        assert!(find("no-such-thread").is_none());
        assert!(process(std::process::id()).cpu_ns >= used.cpu_ns.min(1_000_000));
        assert!(kernel_ns() > 0, "there are threads of the kernel");
    }

    #[test]
    fn time_is_parted_as_the_samples_are() {
        let used = Usage { cpu_ns: 1000, user: 1, system: 3, ..Usage::default() };
        let [user, system] = (used + Usage::default()).parts();
        assert!((user - 250.0).abs() < 1e-9 && (system - 750.0).abs() < 1e-9);
        // Too short for a sample.
        assert!(Usage { cpu_ns: 10, ..Usage::default() }.parts()[0].abs() < 1e-9);
    }
}
