// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an application, the initiator and the kernel's threads use of processors, and what reaches
//! the device meanwhile.

use std::fs;
use std::time::Instant;

use crate::measure::real;
use crate::threads::{self, Usage};

/// What the kernel and the device tell until now.
#[derive(Debug)]
pub(super) struct Look {
    at: Instant,
    application: Usage,
    initiator: Usage,
    kernel_ns: u64,
    ios: u64,
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
}

impl Look {
    /// At these processes, and the device of this name.
    pub(super) fn now(application: Option<u32>, initiator: Option<u32>, device: &str) -> Self {
        let of = |pid: Option<u32>| pid.map(threads::process).unwrap_or_default();
        Self {
            at: Instant::now(),
            application: of(application),
            initiator: of(initiator),
            kernel_ns: threads::kernel_ns(),
            ios: requests(device),
        }
    }

    /// Since `before`.
    pub(super) fn since(&self, before: &Self) -> Spent {
        let application = self.application - before.application;
        let [user, system] = application.parts();
        let [initiator, network] = (self.initiator - before.initiator).parts();
        Spent {
            seconds: self.at.duration_since(before.at).as_secs_f64(),
            user,
            system,
            initiator,
            network,
            kernel: real(self.kernel_ns.saturating_sub(before.kernel_ns)),
            ios: real(self.ios.saturating_sub(before.ios)),
            samples: application.user + application.system,
        }
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

    /// All that the study calls system time.
    pub(crate) const fn whole_system(&self) -> f64 {
        self.system + self.attached() + self.kernel
    }
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

    #[test]
    fn what_a_process_works_is_its_own() {
        let pid = Some(std::process::id());
        let before = Look::now(pid, None, "none");
        let from = Instant::now();
        while from.elapsed().as_millis() < 30 {
            std::hint::spin_loop();
        }
        let spent = Look::now(pid, None, "none").since(&before);
        assert!(spent.seconds >= 0.03 && spent.user + spent.system > 1e6, "{spent:?}");
        assert!(spent.attached() < 1.0 && spent.ios < 1.0 && spent.busy() > 0.0, "{spent:?}");
    }

    #[test]
    fn parts_are_percent_of_the_time() {
        let spent =
            Spent { seconds: 2.0, user: 1e9, system: 4e8, network: 6e8, ..Spent::default() };
        assert!((spent.percent(spent.user) - 50.0).abs() < 1e-9);
        assert!((spent.busy() - 100.0).abs() < 1e-9 && (spent.whole_system() - 1e9).abs() < 1.0);
    }
}
