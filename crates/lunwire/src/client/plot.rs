// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A plot of latencies as SVG: percentiles to the right, time upwards, both logarithmic.

use std::fmt::Write;

/// Points of the percentile axis, in parts of 10,000, and their labels.
pub(crate) const POINTS: [(u64, &str); 7] = [
    (5000, "p50"),
    (7500, "p75"),
    (9000, "p90"),
    (9500, "p95"),
    (9900, "p99"),
    (9990, "p99.9"),
    (9999, "p99.99"),
];

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 80.0;
const TOP: f64 = 30.0;
const COLOURS: [&str; 6] = ["#1b6ca8", "#d1495b", "#2e8b57", "#8a5cb4", "#c98a1b", "#555555"];

/// One line: its name and a value in nanoseconds for each of [`POINTS`].
#[derive(Debug)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) values: Vec<u64>,
}

/// Draws all lines.
pub(crate) fn draw(title: &str, series: &[Series]) -> String {
    let values = || series.iter().flat_map(|line| &line.values).map(|value| (*value).max(1) as f64);
    let low = values().fold(f64::MAX, f64::min).log10().floor().clamp(0.0, 18.0);
    let high = values().fold(1.0, f64::max).log10().ceil().clamp(low + 1.0, 20.0);
    let x = |place: usize| LEFT + place as f64 * (WIDTH - LEFT - 160.0) / 6.0;
    let y = |value: f64| {
        let share = (value.max(1.0).log10() - low) / (high - low);
        HEIGHT - 40.0 - share * (HEIGHT - 40.0 - TOP)
    };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"18\">{}</text>\n",
        escaped(title)
    );
    let mut decade = low;
    while decade <= high {
        let (at, value) = (y(10f64.powf(decade)), 10f64.powf(decade));
        let right = x(POINTS.len() - 1);
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{right:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\" \
             stroke=\"#dddddd\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            at + 4.0,
            time(value)
        );
        decade += 1.0;
    }
    for (place, (_, label)) in POINTS.iter().enumerate() {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
            x(place),
            HEIGHT - 20.0
        );
    }
    for (line, colour) in series.iter().zip(COLOURS.iter().cycle()) {
        let points: Vec<String> = line
            .values
            .iter()
            .enumerate()
            .map(|(place, value)| format!("{:.1},{:.1}", x(place), y(*value as f64)))
            .collect();
        let last = line.values.last().copied().unwrap_or(1);
        let _ = writeln!(
            svg,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" fill=\"{colour}\">{}</text>",
            points.join(" "),
            x(POINTS.len() - 1) + 6.0,
            y(last as f64) + 4.0,
            escaped(&line.name)
        );
    }
    svg.push_str("</svg>\n");
    svg
}

/// Nanoseconds for people.
pub(crate) fn time(nanoseconds: f64) -> String {
    match nanoseconds {
        n if n < 1e3 => format!("{n:.0} ns"),
        n if n < 1e6 => format!("{:.1} us", n / 1e3),
        n if n < 1e9 => format!("{:.2} ms", n / 1e6),
        n => format!("{:.2} s", n / 1e9),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_has_each_line_and_no_markup_of_others() {
        let values = vec![80_000, 90_000, 100_000, 120_000, 200_000, 900_000, 2_000_000];
        let series = [Series { name: "4K <x>".into(), values }];
        let svg = draw("disk & more", &series);
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
        assert!(svg.contains("4K &lt;x&gt;") && svg.contains("disk &amp; more"));
        assert!(svg.contains("p99.99") && svg.contains("10.0 us") && !svg.contains("NaN"));
        assert!(!draw("empty", &[]).contains("NaN"));
    }
}
