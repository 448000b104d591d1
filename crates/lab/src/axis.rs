// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The axis of values of a picture: round figures, few of them, logarithmic where else most of what
//! is drawn would lie on its foot.

/// From its low end to its high one, both of which are ticks.
#[derive(Debug)]
pub(crate) struct Axis {
    low: f64,
    high: f64,
    scale: Scale,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Scale {
    /// From one tick to the next; as many digits behind the point.
    Even(f64, usize),
    /// Powers of ten.
    Powers,
}

/// Spaces between ticks of an even axis, at most.
const SPACES_MOST: f64 = 6.0;

/// Powers of ten from the low end to the high one that all have ticks, at most.
const POWERS_MOST: i32 = 7;

/// More than half of the values below this part of the largest one are crowded.
const CROWDED: f64 = 0.05;

impl Axis {
    /// Even, from nothing on.
    pub(crate) fn even(values: &[f64]) -> Self {
        let most = most(values);
        let power = (most / SPACES_MOST).log10().floor();
        let unit = 10_f64.powf(power);
        let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * unit);
        let fits = |step: &f64| most / step <= SPACES_MOST + 1e-9;
        let step = steps.into_iter().find(fits).unwrap_or(10.0 * unit);
        let digits = (0..=9_u8).rev().find(|digits| f64::from(*digits) <= -power).unwrap_or(0);
        let digits = if step > 9.9 * unit { digits.saturating_sub(1) } else { digits };
        let high = step * (most / step - 1e-9).ceil();
        Self { low: 0.0, high, scale: Scale::Even(step, usize::from(digits)) }
    }

    /// As the values want it.
    pub(crate) fn fitting(values: &[f64]) -> Self {
        let most = most(values);
        let crowded = values.iter().filter(|value| **value < CROWDED * most).count();
        let least = values.iter().copied().filter(|value| value.is_finite()).fold(most, f64::min);
        if 2 * crowded <= values.len() || least <= 0.0 {
            return Self::even(values);
        }
        let [low, high] = [least.log10().floor(), most.log10().ceil()].map(|at| 10_f64.powf(at));
        Self { low, high, scale: Scale::Powers }
    }

    pub(crate) fn is_logarithmic(&self) -> bool {
        self.scale == Scale::Powers
    }

    /// Where a value is: 0 at the low end, 1 at the high one.
    pub(crate) fn share(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Even(..) => value / self.high,
            Scale::Powers => {
                (value.max(self.low) / self.low).log10() / (self.high / self.low).log10()
            }
        }
    }

    /// Values with their words, ascending.
    pub(crate) fn ticks(&self) -> Vec<(f64, String)> {
        match self.scale {
            Scale::Even(step, digits) => {
                let values = (0_u8..).map(|at| step * f64::from(at));
                let values = values.take_while(|value| *value <= self.high * (1.0 + 1e-9));
                values.map(|value| (value, format!("{value:.digits$}"))).collect()
            }
            Scale::Powers => {
                let spaces = (-20..20).find(|at| 10_f64.powi(*at) * self.low >= self.high * 0.99);
                let spaces = spaces.unwrap_or(1).max(1);
                let stride = (spaces + POWERS_MOST - 1) / POWERS_MOST;
                let values = (0..=spaces).step_by(usize::try_from(stride).unwrap_or(1));
                let values = values.map(|at| self.low * 10_f64.powi(at));
                values.map(|value| (value, power(value))).collect()
            }
        }
    }
}

fn most(values: &[f64]) -> f64 {
    let most = values.iter().copied().filter(|value| value.is_finite()).fold(0.0, f64::max);
    if most > 0.0 { most } else { 1.0 }
}

/// A power of ten without what the arithmetic adds.
fn power(value: f64) -> String {
    let digits = (0..=9_usize).find(|digits| {
        let text = format!("{value:.digits$}");
        text.parse::<f64>().is_ok_and(|read| (read / value - 1.0).abs() < 1e-6)
    });
    format!("{value:.0$}", digits.unwrap_or(9))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(axis: &Axis) -> Vec<String> {
        axis.ticks().into_iter().map(|(_, words)| words).collect()
    }

    #[test]
    fn ticks_are_round_and_few() {
        for (most, wanted) in [
            (10895.0, "0 2000 4000 6000 8000 10000 12000"),
            (23.7, "0 5 10 15 20 25"),
            (100.0, "0 20 40 60 80 100"),
            (3.07, "0 1 2 3 4"),
            (0.92, "0.0 0.2 0.4 0.6 0.8 1.0"),
            (0.0123, "0.000 0.005 0.010 0.015"),
            (0.0, "0.0 0.2 0.4 0.6 0.8 1.0"),
        ] {
            assert_eq!(words(&Axis::even(&[0.0, most])).join(" "), wanted, "{most}");
        }
        for exponent in -6..9 {
            for tenth in 10..100 {
                let most = f64::from(tenth) * 10_f64.powi(exponent);
                let axis = Axis::even(&[most]);
                let words = words(&axis);
                assert!((3..=8).contains(&words.len()), "{most}: {words:?}");
                assert!(axis.share(most) <= 1.0 + 1e-6 && axis.share(most) > 0.6, "{most}");
                let once: std::collections::BTreeSet<_> = words.iter().collect();
                assert_eq!(once.len(), words.len(), "{most}: {words:?}");
            }
        }
    }

    #[test]
    fn an_axis_is_logarithmic_where_most_lies_on_its_foot() {
        let crowded = Axis::fitting(&[12.0, 30.0, 90.0, 8000.0]);
        assert!(crowded.is_logarithmic());
        assert_eq!(words(&crowded), ["10", "100", "1000", "10000"]);
        assert!((crowded.share(100.0) - 1.0 / 3.0).abs() < 1e-9);
        assert_eq!(
            words(&Axis::fitting(&[0.002, 0.003, 9.0])),
            ["0.001", "0.01", "0.1", "1", "10"]
        );
        let long = Axis::fitting(&[1e-3, 1e-3, 1e9]);
        assert!(words(&long).len() <= 8, "{long:?}");
        assert!(!Axis::fitting(&[12.0, 5000.0, 8000.0]).is_logarithmic());
        assert!(!Axis::fitting(&[0.0, 0.0, 8000.0]).is_logarithmic(), "nothing has no logarithm");
    }
}
