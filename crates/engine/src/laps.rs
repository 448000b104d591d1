// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stop-watches: where the time of one thread goes, layer by layer (FORTH's instrument).
//!
//! A pump calls [`Laps::lap`] at each border that it crosses and names the layer that it leaves.
//! One turn in [`TURNS`] is timed, in full: a stamp costs some ten nanoseconds, a command has half
//! a dozen of them and costs two microseconds.

use std::marker::PhantomData;

use crate::cycles;

/// One turn in so many is timed: a prime, so that a load that has a rhythm does not hide from it.
pub const TURNS: u32 = 127;

/// Steps of a histogram for each doubling of time.
const STEPS: usize = 4;

/// Longest time that a histogram tells from a longer one, as a power of two of counts: minutes.
const OCTAVES: usize = 40;

/// Data taken from a stream at once that is more than a few headers: the time went into copying.
const COPY_MIN: usize = 1024;

/// What a pump leaves when it crosses a border: `N` layers, of which every pump has some.
pub trait Border<const N: usize>: Copy {
    /// The layers by number, by the names that users see.
    const NAMES: [&'static str; N];
    /// The mover: bytes to events.
    const RECEIVE: Self;
    /// The mover: received data into its buffer, with the digest.
    const COPY: Self;
    /// The kernel: sending and receiving.
    const KERNEL: Self;
    /// Spinning and sleeping, with what the kernel does meanwhile.
    const IDLE: Self;

    /// The number of the layer, below `N`.
    fn number(self) -> usize;
}

/// The stop-watch of one thread with `N` layers.
#[derive(Debug)]
pub struct Laps<B, const N: usize> {
    on: bool,
    turn: u32,
    last: u64,
    layers: [Layer; N],
    borders: PhantomData<B>,
}

/// Time in one layer.
#[derive(Clone, Debug)]
pub struct Layer {
    /// Counts of the time-stamp counter in all.
    pub cycles: u64,
    /// How often the layer was left.
    pub laps: u64,
    /// Laps by length.
    lengths: [u32; OCTAVES * STEPS],
}

impl Default for Layer {
    fn default() -> Self {
        Self { cycles: 0, laps: 0, lengths: [0; OCTAVES * STEPS] }
    }
}

impl Layer {
    /// Counts one lap.
    pub fn add(&mut self, cycles: u64) {
        self.cycles = self.cycles.wrapping_add(cycles);
        self.laps += 1;
        if let Some(count) = self.lengths.get_mut(step(cycles)) {
            *count = count.saturating_add(1);
        }
    }

    /// The length that `share` of the laps do not exceed, in counts, to a quarter of an octave.
    #[must_use]
    pub fn percentile(&self, share: f64) -> u64 {
        #[allow(clippy::cast_precision_loss)] // far below 2^52
        let wanted = share * self.laps as f64;
        let mut seen = 0.0;
        for (at, count) in self.lengths.iter().enumerate() {
            seen += f64::from(*count);
            if seen >= wanted && *count > 0 {
                return end_of(at);
            }
        }
        0
    }

    /// How many laps were no longer than so many counts, to a quarter of an octave: a step of the
    /// histogram that ends behind it does not count.
    #[must_use]
    pub fn within(&self, cycles: u64) -> u64 {
        let steps = self.lengths.iter().enumerate().take_while(|(at, _)| end_of(*at) <= cycles);
        steps.map(|(_, count)| u64::from(*count)).sum()
    }

    /// Laps by length, as [`Layer::of`] takes them.
    #[must_use]
    pub const fn lengths(&self) -> &[u32] {
        &self.lengths
    }

    /// What another process counted. More lengths than there are here are left out.
    #[must_use]
    pub fn of(cycles: u64, laps: u64, lengths: &[u32]) -> Self {
        let mut layer = Self { cycles, laps, ..Self::default() };
        layer.lengths.iter_mut().zip(lengths).for_each(|(own, other)| *own = *other);
        layer
    }

    /// What another thread counted joins this.
    pub fn join(&mut self, other: &Self) {
        self.cycles = self.cycles.wrapping_add(other.cycles);
        self.laps += other.laps;
        for (own, other) in self.lengths.iter_mut().zip(&other.lengths) {
            *own = own.saturating_add(*other);
        }
    }

    /// What came since `before`, a copy of this from then.
    pub fn subtract(&mut self, before: &Self) {
        self.cycles = self.cycles.wrapping_sub(before.cycles);
        self.laps = self.laps.saturating_sub(before.laps);
        for (own, before) in self.lengths.iter_mut().zip(&before.lengths) {
            *own = own.saturating_sub(*before);
        }
    }
}

impl<B, const N: usize> Default for Laps<B, N> {
    fn default() -> Self {
        let layers = std::array::from_fn(|_| Layer::default());
        Self { on: false, turn: 0, last: 0, layers, borders: PhantomData }
    }
}

impl<B: Border<N>, const N: usize> Laps<B, N> {
    /// A turn of the pump begins; true if it is one that is timed.
    pub fn begin(&mut self) -> bool {
        self.turn += 1;
        self.on = self.turn == TURNS;
        if self.on {
            self.turn = 0;
            self.last = cycles::now();
        }
        self.on
    }

    /// What is left of this turn is not timed: whoever drives the pump does something else now.
    pub const fn stop(&mut self) {
        self.on = false;
    }

    /// Whether this turn is timed.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.on
    }

    /// The time since the lap before was spent in `layer`.
    pub fn lap(&mut self, layer: B) {
        if self.on {
            let now = cycles::now();
            self.count(layer, now.wrapping_sub(self.last));
            self.last = now;
        }
    }

    /// The mover took so many bytes from a stream.
    pub fn fed(&mut self, bytes: usize) {
        self.lap(if bytes < COPY_MIN { B::RECEIVE } else { B::COPY });
    }

    /// The port has waited, of that so long in system calls, which is at most all of it.
    pub fn waited(&mut self, kernel_cycles: u64) {
        if self.on {
            let now = cycles::now();
            let whole = now.wrapping_sub(self.last);
            let kernel = kernel_cycles.min(whole);
            self.count(B::KERNEL, kernel);
            self.count(B::IDLE, whole - kernel);
            self.last = now;
        }
    }

    /// Work begins that is not time of this thread: when, or zero in a turn that is not timed.
    #[must_use]
    pub fn stamp(&self) -> u64 {
        if self.on { cycles::glance() } else { 0 }
    }

    /// Work that began at `stamp` is done; until then it was in `layer`.
    pub fn since(&mut self, layer: B, stamp: u64) {
        if stamp != 0 {
            self.count(layer, cycles::glance().wrapping_sub(stamp));
        }
    }

    /// What was counted so far, by name.
    #[must_use]
    pub fn layers(&self) -> Vec<(&'static str, Layer)> {
        B::NAMES.into_iter().zip(self.layers.iter().cloned()).collect()
    }

    fn count(&mut self, layer: B, cycles: u64) {
        if let Some(layer) = self.layers.get_mut(layer.number()) {
            layer.add(cycles);
        }
    }
}

/// Where a length is counted.
fn step(cycles: u64) -> usize {
    if cycles < STEPS as u64 {
        return usize::try_from(cycles).unwrap_or(0);
    }
    let octave = cycles.ilog2() as usize;
    let step = usize::try_from(cycles >> (octave - 2)).unwrap_or(0) % STEPS;
    let at = (octave - 1) * STEPS + step;
    if at < OCTAVES * STEPS { at } else { OCTAVES * STEPS - 1 }
}

/// The longest length that is counted there.
const fn end_of(at: usize) -> u64 {
    if at < STEPS {
        return at as u64;
    }
    let octave = at / STEPS + 1;
    let next = (STEPS + at % STEPS + 1) as u64;
    (next << (octave - 2)) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_counted_within_a_quarter_of_itself() {
        for length in (0..5000).chain([1 << 20, (1 << 30) + 12345, u64::from(u32::MAX)]) {
            let end = end_of(step(length));
            assert!(end >= length, "{length} in one that ends at {end}");
            assert!(end - length <= length / 4, "{length} in one that ends at {end}");
        }
        assert_eq!(step(u64::MAX), OCTAVES * STEPS - 1);
    }

    #[derive(Clone, Copy)]
    enum Way {
        Receive,
        Copy,
        Kernel,
        Idle,
        Disk,
    }

    impl Border<5> for Way {
        const NAMES: [&'static str; 5] = ["receive", "copy", "kernel", "idle", "disk"];
        const RECEIVE: Self = Self::Receive;
        const COPY: Self = Self::Copy;
        const KERNEL: Self = Self::Kernel;
        const IDLE: Self = Self::Idle;

        fn number(self) -> usize {
            self as usize
        }
    }

    fn counts(laps: &Laps<Way, 5>) -> Vec<u64> {
        laps.layers().iter().map(|(_, layer)| layer.laps).collect()
    }

    #[test]
    fn one_turn_in_a_few_is_timed_and_all_of_it() {
        let mut laps = Laps::<Way, 5>::default();
        let timed: Vec<bool> = (0..2 * TURNS).map(|_| laps.begin()).collect();
        assert_eq!(timed.iter().filter(|on| **on).count(), 2);
        assert!(timed.last() == Some(&true) && laps.is_on());
        laps.lap(Way::Receive);
        laps.lap(Way::Idle);
        laps.waited(u64::MAX);
        assert_eq!(counts(&laps), [1, 0, 1, 2, 0]);
        let layers = laps.layers();
        let (name, idle) = &layers[Way::Idle as usize];
        assert_eq!(*name, "idle");
        assert!(idle.percentile(0.5) <= idle.percentile(1.0));
        laps.stop();
        laps.lap(Way::Receive);
        laps.begin();
        laps.lap(Way::Receive);
        assert_eq!(counts(&laps), [1, 0, 1, 2, 0], "this turn is not timed");
    }

    #[test]
    fn headers_are_received_and_data_are_copied() {
        let mut laps = Laps::<Way, 5>::default();
        while !laps.begin() {}
        laps.fed(COPY_MIN - 1);
        laps.fed(COPY_MIN);
        assert_eq!(counts(&laps), [1, 1, 0, 0, 0]);
    }

    #[test]
    fn work_elsewhere_counts_if_its_begin_was_timed() {
        let mut laps = Laps::<Way, 5>::default();
        laps.since(Way::Disk, laps.stamp());
        assert_eq!(counts(&laps), [0, 0, 0, 0, 0]);
        while !laps.begin() {}
        let stamp = laps.stamp();
        laps.stop();
        laps.since(Way::Disk, stamp);
        assert_eq!(counts(&laps), [0, 0, 0, 0, u64::from(stamp != 0)]);
    }

    #[test]
    fn layers_add_up_and_differ() {
        let mut early = Layer::default();
        early.add(100);
        let mut late = early.clone();
        late.add(1000);
        late.add(1000);
        late.subtract(&early);
        assert_eq!((late.laps, late.cycles), (2, 2000));
        assert!((1000..1250).contains(&late.percentile(0.5)));
        let mut late = Layer::of(late.cycles, late.laps, late.lengths());
        late.join(&early);
        assert_eq!((late.laps, late.cycles), (3, 2100));
        assert!((100..125).contains(&late.percentile(0.1)));
        assert_eq!(Layer::default().percentile(0.5), 0);
    }

    #[test]
    fn laps_within_a_length_are_those_that_were_no_longer() {
        let mut layer = Layer::default();
        [3, 100, 1000, 1_000_000].into_iter().for_each(|cycles| layer.add(cycles));
        assert_eq!([2, 3, 127, 1279, u64::MAX].map(|cycles| layer.within(cycles)), [0, 1, 2, 3, 4]);
        for cycles in 0..5000 {
            assert!(layer.within(cycles) <= layer.within(cycles + 1));
        }
    }
}
