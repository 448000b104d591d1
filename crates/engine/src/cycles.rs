// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The time-stamp counter: what costs less to read than a clock, for measurements.

use std::time::{Duration, Instant};

/// The counter now: never less than before on this CPU. Everything before it is done, and nothing
/// after it has begun. Where the processor has none that a program may read, it is a clock in
/// nanoseconds.
///
/// JUSTIFICATION: the clock takes 20 ns and more, a tenth of what it would have to measure.
#[must_use]
pub fn now() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_mm_lfence, _rdtsc};
        // SAFETY: every x86-64 processor has SSE 2.
        unsafe { _mm_lfence() };
        // SAFETY: every x86-64 processor has the counter; Linux lets programs read it.
        let count = unsafe { _rdtsc() };
        // SAFETY: as above.
        unsafe { _mm_lfence() };
        count
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        use std::sync::OnceLock;
        static START: OnceLock<Instant> = OnceLock::new();
        let elapsed = START.get_or_init(Instant::now).elapsed();
        u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// The counter at about now: as [`now`], but the processor may read it a little before what stands
/// before it is done, or after what stands behind it has begun. A third of the cost.
#[must_use]
pub fn glance() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every x86-64 processor has the counter; Linux lets programs read it.
        unsafe { std::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(target_arch = "x86_64"))]
    now()
}

/// Counts in a second, measured for 20 ms. The counter runs at a fixed rate, whatever the clock of
/// the processor does.
#[must_use]
pub fn per_second() -> f64 {
    let (clock, start) = (Instant::now(), now());
    while clock.elapsed() < Duration::from_millis(20) {
        std::hint::spin_loop();
    }
    let (elapsed, end) = (clock.elapsed(), now());
    #[allow(clippy::cast_precision_loss)] // far below 2^52
    let counts = (end - start) as f64;
    counts / elapsed.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::{now, per_second};

    #[test]
    fn the_counter_goes_forward_at_its_rate() {
        let (first, second) = (now(), now());
        assert!(second >= first);
        assert!(per_second() > 1e6);
    }
}
