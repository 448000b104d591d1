// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an application, the initiator and the kernel's threads use of processors, and what reaches
//! the device meanwhile.

use std::fs;
use std::time::Instant;

use rustix::time::{ClockId, Timespec, clock_gettime};

use super::layer::Layer;
use super::samples::{Samples, Seen, Window};
use crate::measure::real;
use crate::threads::{self, Usage};

/// What the kernel and the device tell until now.
#[derive(Debug)]
pub(super) struct Look {
    /// When it began and when it was over: looking takes milliseconds.
    begun: Moment,
    over: Moment,
    processes: [Option<u32>; 2],
    application: Usage,
    initiator: Usage,
    kernel_ns: u64,
    ios: u64,
}

/// By this process's clock, and by the one that samples have.
#[derive(Clone, Copy, Debug)]
struct Moment {
    at: Instant,
    clock: u64,
}

/// What of it fell to one run, nanoseconds of a processor.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    /// On the wall.
    pub(crate) seconds: f64,
    /// Of the application.
    pub(crate) user: f64,
    /// Of its system calls.
    pub(crate) system: f64,
    /// Of the process that has attached the disk: iSCSI, and what makes a file of the disk.
    pub(crate) initiator: f64,
    /// Of its system calls: TCP and FUSE.
    pub(crate) network: f64,
    /// Of all threads of the kernel: journal, write-back, loop device.
    pub(crate) kernel: f64,
    /// Requests that the device got.
    pub(crate) ios: f64,
    /// How many samples tell the application and its system calls apart.
    pub(crate) samples: u64,
    /// When it was, and who worked.
    pub(super) window: Window,
    /// What samples of the whole machine say; None: there are none.
    pub(crate) seen: Option<Seen>,
}

impl Look {
    /// At these processes, and the device of this name.
    pub(super) fn now(application: Option<u32>, initiator: Option<u32>, device: &str) -> Self {
        let of = |pid: Option<u32>| pid.map(threads::process).unwrap_or_default();
        let begun = Moment::now();
        Self {
            begun,
            processes: [application, initiator],
            application: of(application),
            initiator: of(initiator),
            kernel_ns: threads::kernel_ns(),
            ios: requests(device),
            over: Moment::now(),
        }
    }

    /// Since `before`.
    pub(super) fn since(&self, before: &Self) -> Spent {
        let application = self.application - before.application;
        let [user, system] = application.parts();
        let [initiator, network] = (self.initiator - before.initiator).parts();
        Spent {
            seconds: self.begun.at.duration_since(before.over.at).as_secs_f64(),
            user,
            system,
            initiator,
            network,
            kernel: real(self.kernel_ns.saturating_sub(before.kernel_ns)),
            ios: real(self.ios.saturating_sub(before.ios)),
            samples: application.user + application.system,
            window: Window {
                from: before.over.clock,
                to: self.begun.clock,
                application: self.processes[0],
                initiator: self.processes[1],
            },
            seen: None,
        }
    }
}

impl Moment {
    fn now() -> Self {
        Self { at: Instant::now(), clock: nanoseconds(clock_gettime(ClockId::Monotonic)) }
    }
}

impl Spent {
    /// Percent of the time that a part of it took; what several threads took at once may be more.
    pub(crate) fn percent(&self, nanoseconds: f64) -> f64 {
        nanoseconds / self.seconds.max(1e-9) / 1e7
    }

    /// The initiator, which in the study is a part of the kernel, with its system calls.
    pub(crate) const fn attached(&self) -> f64 {
        self.initiator + self.network
    }

    /// Percent of the time in which the application's side had work.
    pub(crate) fn busy(&self) -> f64 {
        self.percent(self.user + self.system + self.attached()).min(100.0)
    }

    /// Parts what the kernel tells exactly as samples say, of which there are more than the
    /// kernel's own.
    pub(super) fn part(&mut self, samples: &Samples) {
        let seen = samples.seen(self.window);
        (self.user, self.system) = parted(self.user + self.system, [seen.user, seen.system]);
        (self.initiator, self.network) = parted(self.attached(), [seen.initiator, seen.network]);
        self.samples = seen.samples;
        self.seen = Some(seen);
    }

    /// Percent of the system's time that is the file system's, with the page cache.
    pub(crate) fn of_files(&self) -> f64 {
        match &self.seen {
            Some(seen) => {
                let files = seen.layer(Layer::FileSystem) + seen.layer(Layer::PageCache);
                100.0 * files / seen.whole_system().max(1.0)
            }
            None => 100.0 * self.system / self.whole_system().max(1.0),
        }
    }

    /// Percent of the system's time that is spent below the file system.
    pub(crate) fn of_blocks(&self) -> f64 {
        match &self.seen {
            Some(seen) => {
                let below = [Layer::Block, Layer::Fuse, Layer::Network, Layer::Interrupts];
                let below = below.into_iter().map(|layer| seen.layer(layer)).sum::<f64>();
                100.0 * (below + seen.initiator) / seen.whole_system().max(1.0)
            }
            None => 100.0 * (self.kernel + self.attached()) / self.whole_system().max(1.0),
        }
    }

    /// All that the study calls system time.
    pub(crate) const fn whole_system(&self) -> f64 {
        self.system + self.attached() + self.kernel
    }
}

/// A time in the shares that samples have; where there is none, all is the kernel's.
fn parted(all: f64, [user, system]: [f64; 2]) -> (f64, f64) {
    let share = if user + system > 0.0 { user / (user + system) } else { 0.0 };
    (all * share, all * (1.0 - share))
}

pub(super) fn nanoseconds(time: Timespec) -> u64 {
    let [seconds, rest] = [time.tv_sec, time.tv_nsec].map(|part| u64::try_from(part).unwrap_or(0));
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

/// Reads and writes that the block device has ended.
fn requests(device: &str) -> u64 {
    let text = fs::read_to_string(format!("/sys/block/{device}/stat")).unwrap_or_default();
    let words: Vec<u64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    [READS, WRITES].iter().filter_map(|at| words.get(*at)).sum()
}

/// Places in `/sys/block/NAME/stat`.
const READS: usize = 0;
const WRITES: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forth::apps::samples::Sample;

    #[test]
    fn what_a_process_works_is_its_own() {
        let pid = Some(std::process::id());
        let before = Look::now(pid, None, "none");
        let from = Instant::now();
        // Others may have the processor for a while.
        let spent = loop {
            let spent = Look::now(pid, None, "none").since(&before);
            if spent.seconds >= 0.03 && spent.user + spent.system > 1e6 {
                break spent;
            }
            assert!(from.elapsed().as_secs() < 20, "{spent:?}");
        };
        assert!(spent.attached() < 1.0 && spent.ios < 1.0 && spent.busy() > 0.0, "{spent:?}");
    }

    #[test]
    fn looking_takes_no_time_of_what_is_looked_at() {
        let looks = (0..5).map(|_| {
            let begun = Instant::now();
            let before = Look::now(None, None, "none");
            let took = begun.elapsed().as_secs_f64();
            let spent = Look::now(None, None, "none").since(&before);
            let within = nanoseconds_of(spent.window.from, spent.window.to);
            (spent.seconds.max(within), took)
        });
        let looks: Vec<_> = looks.collect();
        assert!(looks.iter().any(|(spent, took)| spent * 10.0 < *took), "{looks:?}");
    }

    fn nanoseconds_of(from: u64, to: u64) -> f64 {
        real(to.saturating_sub(from)) / 1e9
    }

    #[test]
    fn parts_are_percent_of_the_time() {
        let spent =
            Spent { seconds: 2.0, user: 1e9, system: 4e8, network: 6e8, ..Spent::default() };
        assert!((spent.percent(spent.user) - 50.0).abs() < 1e-9);
        assert!((spent.busy() - 100.0).abs() < 1e-9 && (spent.whole_system() - 1e9).abs() < 1.0);
    }

    #[test]
    fn samples_part_what_the_kernel_tells_exactly() {
        assert_eq!(parted(80.0, [1.0, 3.0]), (20.0, 60.0));
        assert_eq!(parted(80.0, [0.0, 0.0]), (0.0, 80.0), "without a sample it is the kernel's");
        let mut spent = Spent { user: 8e6, initiator: 6e6, network: 2e6, ..Spent::default() };
        spent.window = Window { from: 10, to: 20, application: Some(7), initiator: Some(8) };
        let sample = |at, process, layer| Sample { at, process, layer };
        spent.part(&Samples::new(
            vec![
                sample(9, 7, None),
                sample(10, 7, None),
                sample(11, 7, Some(Layer::FileSystem)),
                sample(12, 7, Some(Layer::PageCache)),
                sample(13, 7, Some(Layer::Other)),
                sample(14, 8, Some(Layer::Network)),
                sample(15, 8, None),
                sample(16, 0, Some(Layer::Interrupts)),
                sample(17, 2, Some(Layer::Block)),
                sample(18, std::process::id(), Some(Layer::Network)),
            ],
            1000.0,
        ));
        assert_eq!([spent.user, spent.system], [2e6, 6e6]);
        assert_eq!([spent.initiator, spent.network], [4e6, 4e6]);
        assert_eq!(spent.samples, 4);
        // Of seven: iSCSI is a part of the system, the targets are not.
        assert!((spent.of_files() - 200.0 / 7.0).abs() < 1e-9, "{}", spent.of_files());
        assert!((spent.of_blocks() - 400.0 / 7.0).abs() < 1e-9, "{}", spent.of_blocks());
    }

    #[test]
    fn without_samples_the_kernels_accounts_decide() {
        let spent = Spent { system: 6.0, kernel: 1.0, network: 3.0, ..Spent::default() };
        assert!((spent.of_files() - 60.0).abs() < 1e-9 && (spent.of_blocks() - 40.0).abs() < 1e-9);
    }
}
