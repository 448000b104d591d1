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

/// Width of the lines themselves.
const PLOT: f64 = 480.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 80.0;
const TOP: f64 = 30.0;
/// Width of a character, at most, on average.
const CHARACTER: f64 = 6.8;
/// From one name to the next below it.
const ROW: f64 = 14.0;
const COLOURS: usize = 6;

/// Colours are classes, so that a dark screen gets others.
const STYLE: &str = "\
    .bg{fill:#fff}text{fill:#222}.grid{stroke:#ddd}\
    .c0{stroke:#1b6ca8}.c1{stroke:#d1495b}.c2{stroke:#2e8b57}\
    .c3{stroke:#8a5cb4}.c4{stroke:#c98a1b}.c5{stroke:#555}\
    .t0{fill:#1b6ca8}.t1{fill:#d1495b}.t2{fill:#2e8b57}\
    .t3{fill:#8a5cb4}.t4{fill:#c98a1b}.t5{fill:#555}\
    @media (prefers-color-scheme:dark){.bg{fill:#16181c}text{fill:#e4e4e4}.grid{stroke:#3c4046}\
    .c0{stroke:#6aa9ee}.c1{stroke:#f08a8a}.c2{stroke:#63c174}\
    .c3{stroke:#b98ae0}.c4{stroke:#d8bf45}.c5{stroke:#a8a8a8}\
    .t0{fill:#6aa9ee}.t1{fill:#f08a8a}.t2{fill:#63c174}\
    .t3{fill:#b98ae0}.t4{fill:#d8bf45}.t5{fill:#a8a8a8}}";

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
    let x = |place: usize| LEFT + place as f64 * PLOT / 6.0;
    let y = |value: f64| {
        let share = (value.max(1.0).log10() - low) / (high - low);
        HEIGHT - 40.0 - share * (HEIGHT - 40.0 - TOP)
    };
    let names = series.iter().map(|line| width_of(&line.name)).fold(0.0, f64::max);
    let width = (LEFT + PLOT + names + 14.0).max(width_of(title) + LEFT + 8.0).ceil();
    let said = series.iter().map(|line| {
        let values = POINTS.iter().zip(&line.values);
        let values = values.map(|((_, label), value)| format!("{label} {}", time(*value as f64)));
        format!("{}: {}.", line.name, values.collect::<Vec<_>>().join(", "))
    });
    let said = said.collect::<Vec<_>>().join(" ");
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {HEIGHT}\" \
         width=\"{width}\" height=\"{HEIGHT}\" role=\"img\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<title>{title}</title>\n<desc>Latencies. {}</desc>\n\
         <style>{STYLE}</style>\n<rect class=\"bg\" width=\"100%\" height=\"100%\"/>\n\
         <text x=\"{LEFT}\" y=\"18\">{title}</text>\n",
        escaped(&said),
        title = escaped(title),
    );
    let mut decade = low;
    while decade <= high {
        let (at, value) = (y(10f64.powf(decade)), 10f64.powf(decade));
        let right = x(POINTS.len() - 1);
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{right:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\" \
             class=\"grid\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
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
    let last = |line: &Series| y(line.values.last().copied().unwrap_or(1) as f64) + 4.0;
    let feet = apart(&series.iter().map(last).collect::<Vec<_>>());
    for ((at, line), foot) in series.iter().enumerate().zip(feet) {
        let colour = at % COLOURS;
        let points: Vec<String> = line
            .values
            .iter()
            .enumerate()
            .map(|(place, value)| format!("{:.1},{:.1}", x(place), y(*value as f64)))
            .collect();
        let _ = writeln!(
            svg,
            "<polyline class=\"c{colour}\" fill=\"none\" stroke-width=\"2\" points=\"{}\"/>\
             <text class=\"t{colour}\" x=\"{:.1}\" y=\"{foot:.1}\">{}</text>",
            points.join(" "),
            x(POINTS.len() - 1) + 6.0,
            escaped(&line.name)
        );
    }
    svg.push_str("</svg>\n");
    svg
}

/// The feet of names that stand at `wanted`, so far from each other that all can be read.
fn apart(wanted: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|a, b| wanted[*b].total_cmp(&wanted[*a]));
    let mut feet = wanted.to_vec();
    let mut lowest = HEIGHT - 40.0;
    for at in order {
        feet[at] = feet[at].min(lowest);
        lowest = feet[at] - ROW;
    }
    feet
}

/// Room that a text takes.
fn width_of(text: &str) -> f64 {
    CHARACTER * text.chars().count() as f64
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

    #[test]
    fn names_are_whole_and_apart() {
        let values = vec![80_000; POINTS.len()];
        let name = "64 KiB sequential write, depth 128, of a name that has no end";
        let series =
            [1, 2, 3].map(|at| Series { name: format!("{name} {at}"), values: values.clone() });
        let svg = draw("disk", &series);
        let number = |tag: &str, key: &str| {
            let rest = tag.split_once(&format!(" {key}=\"")).unwrap().1;
            rest.split('"').next().unwrap().parse::<f64>().unwrap()
        };
        let (width, mut feet) = (number(&svg, "width"), Vec::new());
        for tag in svg.split("<text").skip(1).filter(|tag| tag.contains("no end")) {
            assert!(number(tag, "x") + CHARACTER * (name.len() + 2) as f64 <= width);
            feet.push(number(tag, "y"));
        }
        assert_eq!(feet.len(), 3);
        assert!((0..2).all(|at| (feet[at] - feet[at + 1]).abs() >= ROW - 0.1), "{feet:?}");
        for wanted in ["role=\"img\"", "<title>", "p99.99 80.0 us", "prefers-color-scheme:dark"] {
            assert!(svg.contains(wanted), "{wanted}");
        }
    }
}
