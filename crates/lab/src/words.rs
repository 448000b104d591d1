// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Figures in words: what is less is said to be less, whatever the sign of its number.

use crate::picture::number;

/// What is compared: for example less, more, and as much.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Comparison {
    pub(crate) less: &'static str,
    pub(crate) more: &'static str,
    /// How many times as this.
    pub(crate) as_: &'static str,
}

/// Of an amount.
pub(crate) const AMOUNT: Comparison = Comparison { less: "less", more: "more", as_: "much" };

/// Of how often something happens.
pub(crate) const OFTEN: Comparison =
    Comparison { less: "less often", more: "more often", as_: "often" };

/// What is twice as much, or more, is told by how many times it is.
const TWICE: f64 = 100.0;

impl Comparison {
    /// Something is by so many percent more than something else.
    pub(crate) fn by(self, percent_more: f64) -> String {
        let Self { less, more, as_ } = self;
        match percent_more {
            _ if percent_more.is_infinite() => format!("any number of times as {as_}"),
            _ if percent_more >= TWICE => {
                format!("{} times as {as_}", number(1.0 + percent_more / 100.0))
            }
            _ if percent_more <= -0.5 => format!("{:.0} % {less}", -percent_more),
            _ => format!("{:.0} % {more}", percent_more.max(0.0)),
        }
    }
}

/// By so many percent above, or below.
pub(crate) fn beside(percent: f64) -> String {
    let side = if percent <= -0.5 { "below" } else { "above" };
    format!("{:.0} % {side}", percent.abs())
}

/// Percent without the sign of what is nothing.
pub(crate) fn percent(value: f64) -> String {
    let value = if value.abs() < 0.5 { 0.0 } else { value };
    format!("{value:.0} %")
}

/// From the least to the most; once, where they are the same.
pub(crate) fn range(values: impl IntoIterator<Item = f64>) -> String {
    let ends = values.into_iter().fold(None, |ends: Option<(f64, f64)>, value| match ends {
        None => Some((value, value)),
        Some((least, most)) => Some((least.min(value), most.max(value))),
    });
    let Some((least, most)) = ends else { return "none".to_owned() };
    let [least, most] = [least, most].map(number);
    if least == most { least } else { format!("{least} to {most}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_and_more_have_no_sign() {
        assert_eq!(AMOUNT.by(-37.4), "37 % less");
        assert_eq!(AMOUNT.by(74.0), "74 % more");
        assert_eq!(AMOUNT.by(-0.2), "0 % more");
        assert_eq!(AMOUNT.by(102.0), "2.02 times as much");
        assert_eq!(OFTEN.by(11_961.0), "121 times as often");
        assert_eq!(OFTEN.by(-85.0), "85 % less often");
        assert_eq!([beside(-25.2), beside(25.2)], ["25 % below", "25 % above"]);
        assert_eq!([percent(-0.3), percent(-3.0)], ["0 %", "-3 %"]);
    }

    #[test]
    fn a_range_of_one_is_told_once() {
        assert_eq!(range([1.12, 1.12]), "1.12");
        assert_eq!(range([1.47, 1.04]), "1.04 to 1.47");
        assert_eq!(range([]), "none");
    }
}
