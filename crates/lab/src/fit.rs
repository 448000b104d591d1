// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Least squares: a value as a sum of terms, each a factor times what was measured beside it, and
//! how well the factors are known.
//!
//! Three terms make normal equations of three rows, which are solved here by Cholesky's way: that
//! takes fewer lines than a library of linear algebra takes to be named. Each column is divided by
//! its length before, so the squares under the roots are what a column has of its own, between 0
//! and 1: where that is next to nothing, two terms cannot be told apart, and nothing is fitted.

use serde_json::{Value, json};

use crate::measure::real;

/// One measurement: what the terms were, and the value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point<const N: usize> {
    pub(crate) terms: [f64; N],
    pub(crate) value: f64,
}

/// A factor, and where it lies in 95 of 100 cases if what is left is by chance.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Factor {
    pub(crate) value: f64,
    pub(crate) error: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// What was fitted.
#[derive(Clone, Debug)]
pub(crate) struct Fit<const N: usize> {
    pub(crate) factors: [Factor; N],
    /// What the fit leaves of each value.
    pub(crate) residuals: Vec<f64>,
    /// Their standard deviation.
    pub(crate) deviation: f64,
    /// The same by the mean of the values.
    pub(crate) part: f64,
}

/// Why nothing can be fitted.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub(crate) enum FitError {
    /// Chance cannot be told from the factors.
    #[error("{0} measurements are too few for {1} terms")]
    Few(usize, usize),
    /// A term is nothing, or follows from those before it.
    #[error("the {0} cannot be told from the other terms: it is nothing, or follows from them")]
    Collinear(&'static str),
    /// Something is no number.
    #[error("a measurement is no number")]
    NoNumber,
}

/// Fewer degrees of freedom leave intervals that say nothing.
const FREE_MIN: usize = 3;

/// So much of its length, squared, a column must have of its own: with less its interval is ten
/// times that of a term that stands alone.
const OWN_MIN: f64 = 1e-2;

impl<const N: usize> Fit<N> {
    /// Fits `points`; `names` are those of the terms.
    ///
    /// # Errors
    /// See [`FitError`].
    pub(crate) fn of(points: &[Point<N>], names: [&'static str; N]) -> Result<Self, FitError> {
        let free = points.len().saturating_sub(N);
        if free < FREE_MIN {
            return Err(FitError::Few(points.len(), N));
        }
        let numbers = points.iter().flat_map(|point| point.terms.iter().chain([&point.value]));
        if !numbers.into_iter().all(|number| number.is_finite()) {
            return Err(FitError::NoNumber);
        }
        let lengths = std::array::from_fn(|at| {
            let squares = points.iter().map(|point| point.terms[at].powi(2)).sum::<f64>();
            squares.sqrt()
        });
        let inverse = inverse(&normal(points, &lengths), names)?;
        let right: [f64; N] = std::array::from_fn(|row| {
            let products = points.iter().map(|point| point.terms[row] * point.value);
            products.sum::<f64>() / lengths[row]
        });
        let values: [f64; N] = std::array::from_fn(|row| {
            let sum: f64 = inverse[row].iter().zip(right).map(|(a, b)| a * b).sum();
            sum / lengths[row]
        });
        let fitted = |point: &Point<N>| {
            let parts = point.terms.iter().zip(values).map(|(term, factor)| term * factor);
            parts.sum::<f64>()
        };
        let residuals: Vec<f64> = points.iter().map(|point| point.value - fitted(point)).collect();
        let squares: f64 = residuals.iter().map(|residual| residual.powi(2)).sum();
        let deviation = (squares / real(free as u64)).sqrt();
        let wide = student(free);
        let factors = std::array::from_fn(|at| {
            let error = deviation * inverse[at][at].max(0.0).sqrt() / lengths[at];
            let value = values[at];
            Factor { value, error, low: value - wide * error, high: value + wide * error }
        });
        let mean = points.iter().map(|point| point.value).sum::<f64>() / real(points.len() as u64);
        let part = if mean == 0.0 { 0.0 } else { deviation / mean.abs() };
        Ok(Self { factors, residuals, deviation, part })
    }

    /// What the intervals of this one promise of a second run.
    pub(crate) fn again(&self, second: &Self, names: [String; N]) -> Vec<Again> {
        let pairs = self.factors.iter().zip(second.factors).zip(names);
        pairs.map(|((first, second), name)| Again { name, first: *first, second }).collect()
    }
}

/// A factor in two runs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Again {
    pub(crate) name: String,
    pub(crate) first: Factor,
    pub(crate) second: Factor,
}

impl Again {
    /// Whether the value of the second run lies in the interval of the first.
    pub(crate) fn is_within(&self) -> bool {
        (self.first.low..=self.first.high).contains(&self.second.value)
    }

    pub(crate) fn json(&self) -> Value {
        let factor = |one: &Factor| {
            let Factor { value, error, low, high } = *one;
            json!({ "value": value, "error": error, "low": low, "high": high })
        };
        let (first, second) = (factor(&self.first), factor(&self.second));
        json!({ "of": self.name, "first": first, "second": second })
    }

    /// How often it does not by chance alone, if both runs measure the same. The interval has the
    /// true value in 95 of 100 cases; the second run does not give that, but its own value beside
    /// it, so that two runs that are equally sure miss each other in 17 of 100.
    pub(crate) fn chance(&self) -> f64 {
        let half = (self.first.high - self.first.low) / 2.0;
        let error = self.first.error.hypot(self.second.error);
        if error > 0.0 { 2.0 * above(half / error) } else { 0.0 }
    }
}

/// How many of some factors lie outside by chance: as many as are expected, and the most, which
/// are exceeded in 5 of 100 cases at most.
pub(crate) fn expected_outside(chances: &[f64]) -> (f64, usize) {
    // How likely it is that so many of those up to here do.
    let mut likely = vec![1.0];
    for chance in chances {
        let inside = likely.iter().map(|one| one * (1.0 - chance)).chain([0.0]);
        let outside = [0.0].into_iter().chain(likely.iter().map(|one| one * chance));
        likely = inside.zip(outside).map(|(a, b)| a + b).collect();
    }
    let mut up_to = 0.0;
    let most = likely.iter().position(|one| {
        up_to += one;
        up_to >= 0.95
    });
    (chances.iter().sum(), most.unwrap_or(chances.len()))
}

/// How much of the normal distribution is above `z`, which is not negative: by Zelen and Severo
/// (Abramowitz and Stegun 26.2.17), exact to 1e-7.
fn above(z: f64) -> f64 {
    const FACTORS: [f64; 5] =
        [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let t = 1.0 / (1.0 + 0.231_641_9 * z);
    let sum = FACTORS.iter().rev().fold(0.0, |sum, factor| (sum + factor) * t);
    sum * (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt()
}

/// The products of the columns, each of length 1.
fn normal<const N: usize>(points: &[Point<N>], lengths: &[f64; N]) -> [[f64; N]; N] {
    std::array::from_fn(|row| {
        std::array::from_fn(|column| {
            let products = points.iter().map(|point| point.terms[row] * point.terms[column]);
            products.sum::<f64>() / (lengths[row] * lengths[column])
        })
    })
}

/// The inverse of a symmetric matrix with ones on its diagonal, by its root (Cholesky).
fn inverse<const N: usize>(
    matrix: &[[f64; N]; N],
    names: [&'static str; N],
) -> Result<[[f64; N]; N], FitError> {
    let mut root = [[0.0; N]; N];
    for row in 0..N {
        for column in 0..=row {
            let sum: f64 = (0..column).map(|at| root[row][at] * root[column][at]).sum();
            let rest = matrix[row][column] - sum;
            if row != column {
                root[row][column] = rest / root[column][column];
            } else if rest > OWN_MIN {
                root[row][row] = rest.sqrt();
            } else {
                // A column of zeros has no direction, and its rest is no number.
                return Err(FitError::Collinear(names[row]));
            }
        }
    }
    // Each column of the inverse solves root * transposed root * x = a column of ones and zeros.
    let mut inverse = [[0.0; N]; N];
    for (column, solved) in inverse.iter_mut().enumerate() {
        for row in 0..N {
            let one = if row == column { 1.0 } else { 0.0 };
            let sum: f64 = (0..row).map(|at| root[row][at] * solved[at]).sum();
            solved[row] = (one - sum) / root[row][row];
        }
        for row in (0..N).rev() {
            let sum: f64 = (row + 1..N).map(|at| root[at][row] * solved[at]).sum();
            solved[row] = (solved[row] - sum) / root[row][row];
        }
    }
    // It is symmetric: rows are columns.
    Ok(inverse)
}

/// Student's t with so many degrees of freedom, which is exceeded, either way, in 5 of 100 cases:
/// by its expansion from the normal distribution, exact to 0.01 from [`FREE_MIN`] on.
fn student(free: usize) -> f64 {
    let z = 1.959_963_985_f64;
    let n = real(free as u64);
    let terms = [
        (z.powi(3) + z) / 4.0,
        (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0,
        (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0,
        (79.0 * z.powi(9) + 776.0 * z.powi(7) + 1482.0 * z.powi(5)
            - 1920.0 * z.powi(3)
            - 945.0 * z)
            / 92160.0,
    ];
    let power = |(power, term): (i32, f64)| term / n.powi(power);
    z + (1..).zip(terms).map(power).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 3] = ["bandwidth", "frame rate", "operation rate"];

    fn is_near(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-9 * b.abs().max(1e-9)
    }

    fn line(data: &[(f64, f64)]) -> Fit<1> {
        let points: Vec<_> =
            data.iter().map(|(x, value)| Point { terms: [*x], value: *value }).collect();
        Fit::of(&points, ["x"]).expect("a fit")
    }

    /// NIST StRD, NoInt1: certified values of a regression through the origin.
    #[test]
    fn certified_data_have_their_certified_answer() {
        let data: Vec<(f64, f64)> =
            (0..11).map(f64::from).map(|at| (60.0 + at, 130.0 + at)).collect();
        let fit = line(&data);
        assert!(is_near(fit.factors[0].value, 2.074_380_165_289_26), "{fit:?}");
        assert!(is_near(fit.factors[0].error, 0.016_528_925_619_834_7), "{fit:?}");
        assert!(is_near(fit.deviation, 3.567_530_340_063_38), "{fit:?}");
        let half = (fit.factors[0].high - fit.factors[0].low) / 2.0;
        assert!((half - 2.228 * fit.factors[0].error).abs() < 1e-4, "t of 10 degrees");
        assert!(is_near(fit.part, fit.deviation / 135.0));
    }

    /// What the study's model looks like: operations of several sizes in frames of two.
    fn points(factors: [f64; 3], noise: impl Fn(usize) -> f64) -> Vec<Point<3>> {
        let mut points = Vec::new();
        for frame in [1460.0, 8960.0] {
            for size in [4096.0_f64, 16384.0, 65536.0, 262_144.0] {
                let rate = 3e9 / (size + 100_000.0);
                let terms =
                    [rate * size / 1e9, rate * ((size / frame).ceil() + 2.0) / 1e6, rate / 1e6];
                let value: f64 = terms.iter().zip(factors).map(|(a, b)| a * b).sum();
                points.push(Point { terms, value: value + noise(points.len()) });
            }
        }
        points
    }

    #[test]
    fn three_known_factors_are_found_again() {
        let known = [0.5, 4.0, 20.0];
        let fit = Fit::of(&points(known, |_| 0.0), NAMES).expect("a fit");
        for (factor, known) in fit.factors.iter().zip(known) {
            assert!((factor.value - known).abs() < 1e-6, "{fit:?}");
            assert!(factor.high - factor.low < 1e-6, "nothing is left to chance: {fit:?}");
        }
        let noisy = Fit::of(&points(known, |at| [0.01, -0.01, 0.005][at % 3]), NAMES).expect("one");
        for (factor, known) in noisy.factors.iter().zip(known) {
            assert!(factor.low < known && known < factor.high, "{noisy:?}");
            assert!(factor.error > 0.0 && (factor.value - known).abs() > 1e-9);
        }
        assert!(noisy.deviation > 0.003 && noisy.deviation < 0.02, "{noisy:?}");
    }

    /// Two columns that are at right angles: each factor is what it would be alone.
    #[test]
    fn errors_are_those_of_the_book() {
        let data = [
            (1.0, 0.0, 2.1),
            (-1.0, 0.0, -1.9),
            (0.0, 2.0, 6.2),
            (0.0, -2.0, -5.8),
            (0.0, 0.0, 0.3),
        ];
        let points = data.map(|(a, b, value)| Point { terms: [a, b], value });
        let fit = Fit::of(&points, ["a", "b"]).expect("a fit");
        // 4/2 and 24/8; residuals 0.1, 0.1, 0.2, 0.2, 0.3; squares 0.19 by 3 degrees of freedom.
        assert!(is_near(fit.factors[0].value, 2.0) && is_near(fit.factors[1].value, 3.0));
        assert!(is_near(fit.deviation.powi(2), 0.19 / 3.0));
        assert!(is_near(fit.factors[0].error.powi(2), 0.19 / 3.0 / 2.0));
        assert!(is_near(fit.factors[1].error.powi(2), 0.19 / 3.0 / 8.0));
    }

    #[test]
    fn what_cannot_be_told_apart_is_refused() {
        let mut same = points([1.0; 3], |_| 0.0);
        same.iter_mut().for_each(|point| point.terms[1] = 3.0 * point.terms[0]);
        let refused = Fit::of(&same, NAMES).expect_err("frames follow from bandwidth");
        assert_eq!(refused, FitError::Collinear("frame rate"));
        assert!(refused.to_string().contains("frame rate cannot be told from"), "{refused}");
        // In frames of one size these follow from bandwidth and operations, but for rounding.
        let one = points([1.0; 3], |_| 0.0)[..4].to_vec();
        assert_eq!(Fit::of(&one, NAMES).err(), Some(FitError::Few(4, 3)));
        let often: Vec<_> = one.iter().cycle().take(40).copied().collect();
        assert_eq!(Fit::of(&often, NAMES).err(), Some(FitError::Collinear("frame rate")));
        same.iter_mut().for_each(|point| point.terms[1] = 0.0);
        assert_eq!(Fit::of(&same, NAMES).err(), Some(FitError::Collinear("frame rate")));
        let mut wrong = points([1.0; 3], |_| 0.0);
        wrong[2].value = f64::NAN;
        assert_eq!(Fit::of(&wrong, NAMES).err(), Some(FitError::NoNumber));
        assert_eq!(Fit::<3>::of(&[], NAMES).err(), Some(FitError::Few(0, 3)));
    }

    #[test]
    fn a_second_run_is_held_against_the_intervals_of_the_first() {
        let noise = |at: usize| [0.02, -0.02, 0.01, -0.01][at % 4];
        let fit = |factors, shift| {
            Fit::of(&points(factors, |at| noise(at + shift)), NAMES).expect("a fit")
        };
        let first = fit([0.5, 4.0, 20.0], 0);
        let within = |second: Fit<3>| {
            let all = first.again(&second, NAMES.map(str::to_owned));
            all.iter().map(Again::is_within).collect::<Vec<_>>()
        };
        assert_eq!(within(first.clone()), [true; 3], "itself");
        assert_eq!(within(fit([0.5, 4.0, 20.0], 1)), [true; 3]);
        assert_eq!(within(fit([1.5, 4.0, 20.0], 0)), [false, true, true]);
        assert_eq!(within(fit([1.5, 9.0, 90.0], 0)), [false; 3]);
    }

    #[test]
    fn two_runs_that_measure_the_same_miss_each_other_in_17_of_100() {
        let factor = |error: f64| Factor {
            value: 1.0,
            error,
            low: 1.0 - 1.96 * error,
            high: 1.0 + 1.96 * error,
        };
        let again = |first, second| {
            let (first, second) = (factor(first), factor(second));
            Again { name: String::new(), first, second }.chance()
        };
        assert!((again(0.1, 0.1) - 0.1658).abs() < 1e-3, "{}", again(0.1, 0.1));
        assert!((again(0.1, 0.0) - 0.05).abs() < 1e-4, "a second one that is true");
        assert!(again(0.1, 1.0) > 0.8 && again(0.0, 0.0).abs() < 1e-9);
        for (z, part) in [(0.0, 0.5), (1.0, 0.158_655), (1.96, 0.024_998), (3.0, 0.001_350)] {
            assert!((above(z) - part).abs() < 1e-6, "{z}: {}", above(z));
        }
    }

    #[test]
    fn as_many_lie_outside_as_chance_says() {
        // 20 with 1 of 20 each: none in 36 of 100 cases, up to three in 98 of 100.
        let (expected, most) = expected_outside(&[0.05; 20]);
        assert!((expected - 1.0).abs() < 1e-9 && most == 3, "{expected}, {most}");
        let (expected, most) = expected_outside(&[0.1658; 22]);
        assert!((expected - 3.65).abs() < 0.01 && most == 7, "{expected}, {most}");
        assert_eq!(expected_outside(&[]), (0.0, 0));
        assert_eq!(expected_outside(&[1.0; 4]).1, 4);
    }

    #[test]
    fn students_t_is_that_of_the_tables() {
        for (free, t) in [(3, 3.182), (5, 2.571), (10, 2.228), (30, 2.042), (1000, 1.962)] {
            assert!((student(free) - t).abs() < 0.01, "{free}: {}", student(free));
        }
    }
}
