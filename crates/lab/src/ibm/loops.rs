// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The study's way to measure utilization: a tight loop on a processor, which all other work there
//! slows down. It has the least of all priorities, so nothing else waits for it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use engine::affinity;

use crate::Error;

/// The count is told each time that so many are full: so seldom that the loop has no memory to wait
/// for, and so often that a millisecond has many.
const TOLD_EACH: u64 = 1 << 10;

/// A loop on each of some processors, until it is dropped.
#[derive(Debug)]
pub(super) struct Loops {
    counts: Vec<Arc<AtomicU64>>,
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Loops {
    pub(super) fn start(cpus: &[usize]) -> Result<Self, Error> {
        let mut loops = Self { counts: Vec::new(), over: Arc::default(), threads: Vec::new() };
        for &cpu in cpus {
            let (told, over) = (Arc::new(AtomicU64::new(0)), Arc::clone(&loops.over));
            loops.counts.push(Arc::clone(&told));
            let (ready, is_ready) = mpsc::channel();
            let work = move || {
                // Before it counts: at any other priority it would take what it is to measure.
                let last = affinity::run_last();
                // Where it cannot be pinned it counts where it runs.
                let _ = affinity::pin(cpu);
                let counts = last.is_ok();
                let _ = ready.send(last);
                if counts {
                    count(&told, &over);
                }
            };
            let builder = std::thread::Builder::new().name("lab-loop".into());
            loops.threads.push(builder.spawn(work).map_err(Error::rig)?);
            is_ready.recv().map_err(Error::rig)?.map_err(Error::rig)?;
        }
        Ok(loops)
    }

    /// How far each has counted.
    pub(super) fn counts(&self) -> Vec<u64> {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

fn count(told: &AtomicU64, over: &AtomicBool) {
    let mut sum = 0_u64;
    while !over.load(Ordering::Relaxed) {
        for _ in 0..TOLD_EACH {
            sum = std::hint::black_box(sum + 1);
        }
        told.store(sum, Ordering::Relaxed);
    }
}

/// Which part of a processor others have used, by counts in a second: with them, and when idle.
pub(super) fn utilization(rate: f64, idle: f64) -> f64 {
    if idle > 0.0 { 1.0 - rate / idle } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    /// Others may use the processor, too: it is seen as soon as they leave some of it.
    #[test]
    fn work_beside_a_loop_slows_it_down() {
        let cpu = *affinity::allowed_cpus().last().expect("one");
        let loops = Loops::start(&[cpu]).expect("a loop");
        let during = |what: &dyn Fn()| {
            let (before, begun) = (loops.counts()[0], Instant::now());
            what();
            (loops.counts()[0] - before) as f64 / begun.elapsed().as_secs_f64()
        };
        let busy = || {
            affinity::pin(cpu).expect("pinned");
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(60) {
                std::hint::spin_loop();
            }
        };
        let is_seen = |_| {
            let idle = during(&|| std::thread::sleep(Duration::from_millis(60)));
            let loaded = during(&|| {
                std::thread::scope(|scope| scope.spawn(busy).join().expect("no panic"));
            });
            idle > 0.0 && utilization(loaded, idle) > 0.5
        };
        assert!((0..200).any(is_seen), "the loop does not count");
        assert!(utilization(7.0, 7.0).abs() < 1e-9 && utilization(1.0, 0.0).abs() < 1e-9);
    }
}
