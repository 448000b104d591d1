// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pictures as SVG: lines over sizes in powers of two or over rates, and bars in rows. Each tells
//! in words what it shows, and has colours for bright and for dark screens.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::axis::Axis;
use crate::html::escape;

/// A picture with its axes.
#[derive(Debug)]
pub(crate) struct Picture {
    /// Name of its file, without the end.
    pub(crate) file: &'static str,
    pub(crate) title: String,
    /// What the values count.
    pub(crate) unit: &'static str,
    pub(crate) kind: Kind,
}

#[derive(Debug)]
pub(crate) enum Kind {
    /// Lines over bytes, the axis logarithmic.
    Lines(Vec<Line>),
    /// Lines over what `over` says, from nothing on.
    Curves { over: &'static str, lines: Vec<Line> },
    /// Bars of parts that add up.
    Bars {
        /// Names of the parts, from the left on. With one part alone, each name of a bar has a
        /// colour of its own.
        parts: Vec<&'static str>,
        bars: Vec<Bar>,
    },
}

/// A bar.
#[derive(Debug)]
pub(crate) struct Bar {
    /// What the bars next to each other have in common; may be empty.
    pub(crate) group: String,
    pub(crate) name: String,
    /// As many as there are parts.
    pub(crate) values: Vec<f64>,
}

impl Bar {
    pub(crate) fn new(group: &str, name: &str, values: Vec<f64>) -> Self {
        Self { group: group.to_owned(), name: name.to_owned(), values }
    }

    fn sum(&self) -> f64 {
        self.values.iter().sum()
    }

    fn whole_name(&self) -> String {
        let between = if self.group.is_empty() { "" } else { ", " };
        format!("{}{between}{}", self.group, self.name)
    }
}

#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) name: String,
    /// Bytes, or what a curve is over, and values.
    pub(crate) points: Vec<(u64, f64)>,
    /// Of the study: drawn dashed.
    pub(crate) published: bool,
}

const WIDTH: f64 = 760.0;
/// Height of a picture of lines.
const HEIGHT: f64 = 380.0;
const TOP: f64 = 56.0;
const BOTTOM: f64 = 40.0;
/// Room for the values of the vertical axis.
const LEFT: f64 = 60.0;
/// From one label to the next below it, and from one bar to the next.
const ROW: f64 = 18.0;
/// Width of a character, at most, on average.
const CHARACTER: f64 = 6.2;
const COLORS: usize = 8;
/// Sizes that are named below a picture of lines.
const LABELS_MOST: usize = 8;

/// Colours are classes, so that a dark screen gets others.
const STYLE: &str = "\
    .bg{fill:#fff}.ink{fill:#222}.grid{stroke:#ddd}\
    .f0{fill:#1f5fa8}.f1{fill:#c8501e}.f2{fill:#2b8a3e}.f3{fill:#7b3fa0}\
    .f4{fill:#a88a00}.f5{fill:#0e8a8a}.f6{fill:#b02a5b}.f7{fill:#666}\
    .s0{stroke:#1f5fa8}.s1{stroke:#c8501e}.s2{stroke:#2b8a3e}.s3{stroke:#7b3fa0}\
    .s4{stroke:#a88a00}.s5{stroke:#0e8a8a}.s6{stroke:#b02a5b}.s7{stroke:#666}\
    @media screen and (prefers-color-scheme:dark){\
    .bg{fill:#16181c}.ink{fill:#e4e4e4}.grid{stroke:#3c4046}\
    .f0{fill:#6aa9ee}.f1{fill:#f08a5d}.f2{fill:#63c174}.f3{fill:#b98ae0}\
    .f4{fill:#d8bf45}.f5{fill:#4cc4c4}.f6{fill:#ec7aa2}.f7{fill:#a8a8a8}\
    .s0{stroke:#6aa9ee}.s1{stroke:#f08a5d}.s2{stroke:#63c174}.s3{stroke:#b98ae0}\
    .s4{stroke:#d8bf45}.s5{stroke:#4cc4c4}.s6{stroke:#ec7aa2}.s7{stroke:#a8a8a8}}";

impl Picture {
    pub(crate) fn svg(&self) -> String {
        match &self.kind {
            Kind::Lines(lines) if sizes_of(lines).len() > 1 => self.draw_lines(lines, None),
            Kind::Curves { over, lines } => self.draw_lines(lines, Some(over)),
            // A line of one point shows nothing; a bar does.
            Kind::Lines(lines) => {
                let bars: Vec<Bar> = lines.iter().filter_map(bar_of).collect();
                self.draw_bars(&[""], &bars)
            }
            Kind::Bars { parts, bars } => self.draw_bars(parts, bars),
        }
    }

    /// What the picture shows, for who cannot see it.
    fn told(&self) -> String {
        let of_lines = |lines: &[Line], place: &dyn Fn(u64) -> String| {
            let told = |line: &Line| {
                let points = line.points.iter();
                let points = points.map(|(at, value)| format!("{} {}", place(*at), number(*value)));
                format!("{}: {}", line.name, points.collect::<Vec<_>>().join(", "))
            };
            lines.iter().map(told).collect()
        };
        let shown: Vec<String> = match &self.kind {
            Kind::Lines(lines) => of_lines(lines, &bytes),
            Kind::Curves { over, lines } => of_lines(lines, &|at| format!("at {at} {over}")),
            Kind::Bars { parts, bars } => {
                let told = |bar: &Bar| {
                    let values = parts.iter().zip(&bar.values);
                    let values = values.map(|(part, value)| format!("{part} {}", number(*value)));
                    format!("{}: {}", bar.whole_name(), values.collect::<Vec<_>>().join(", "))
                };
                bars.iter().map(told).collect()
            }
        };
        format!("{}, in {}. {}.", self.title, self.unit, shown.join("; "))
    }

    /// Its values, for programs.
    pub(crate) fn json(&self) -> Value {
        let series: Vec<Value> = match &self.kind {
            Kind::Lines(lines) | Kind::Curves { lines, .. } => {
                let one = |line: &Line| {
                    let Line { name, published, points } = line;
                    json!({ "name": name, "published": published, "points": points })
                };
                lines.iter().map(one).collect()
            }
            Kind::Bars { parts, bars } => {
                let one = |bar: &Bar| {
                    let points = parts.iter().zip(&bar.values).collect::<Vec<_>>();
                    json!({ "name": bar.whole_name(), "published": false, "points": points })
                };
                bars.iter().map(one).collect()
            }
        };
        json!({ "file": self.file, "title": self.title, "unit": self.unit, "series": series })
    }

    fn begin(&self, height: f64, axis: &Axis) -> String {
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
             width=\"{WIDTH}\" height=\"{height}\" role=\"img\" font-family=\"sans-serif\" \
             font-size=\"11\">\n<title>{}</title>\n<desc>{}</desc>\n<style>{STYLE}</style>\n\
             <rect class=\"bg\" width=\"{WIDTH}\" height=\"{height}\"/>\n",
            escape(&self.title),
            escape(&self.told())
        );
        let scale = if axis.is_logarithmic() { ", logarithmic" } else { "" };
        let title = format!("{}, {}{scale}", self.title, self.unit);
        text(&mut svg, 8.0, 18.0, "start", &title);
        svg
    }

    /// Over bytes, or over what `over` says.
    fn draw_lines(&self, lines: &[Line], over: Option<&str>) -> String {
        let values = lines.iter().flat_map(|line| &line.points).map(|point| point.1);
        let axis = Axis::fitting(&values.collect::<Vec<_>>());
        let mut svg = self.begin(HEIGHT, &axis);
        let names = lines.iter().map(|line| line.name.as_str());
        let right = WIDTH - 34.0 - width_of(names);
        let y = |value: f64| TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - axis.share(value));
        for (value, words) in axis.ticks() {
            grid(&mut svg, [LEFT, right], [y(value), y(value)]);
            tick(&mut svg, [LEFT - 6.0, y(value) + 4.0], "end", &words);
        }
        let sizes = sizes_of(lines);
        let along = |size: u64| match over {
            Some(_) => crate::measure::real(size),
            None => crate::measure::real(size).log2(),
        };
        let below = Axis::even(&[along(sizes.last().copied().unwrap_or(1))]);
        let ends = [sizes.first(), sizes.last()].map(|size| along(size.copied().unwrap_or(1)));
        let at = |place: f64| {
            let share = match over {
                Some(_) => below.share(place),
                None => (place - ends[0]) / (ends[1] - ends[0]).max(1e-9),
            };
            LEFT + 16.0 + share * (right - LEFT - 32.0)
        };
        let x = |size: u64| at(along(size));
        // Of what is measured itself no two lines have the same places.
        let labels: Vec<(f64, String)> = match over {
            Some(_) => below.ticks(),
            None => {
                let every = sizes.len().div_ceil(LABELS_MOST).max(1);
                sizes.iter().step_by(every).map(|size| (along(*size), label(*size))).collect()
            }
        };
        let mut free = f64::MIN;
        for (place, label) in labels {
            let half = width_of([label.as_str()]) / 2.0;
            if at(place) - half > free {
                tick(&mut svg, [at(place), HEIGHT - BOTTOM + 18.0], "middle", &label);
                free = at(place) + half + 4.0;
            }
        }
        if let Some(over) = over {
            text(&mut svg, right, HEIGHT - BOTTOM + 34.0, "end", over);
        }
        for (at, line) in lines.iter().enumerate() {
            let dash = if line.published { " stroke-dasharray=\"5 4\"" } else { "" };
            let points: Vec<String> = line
                .points
                .iter()
                .map(|(size, value)| format!("{:.1},{:.1}", x(*size), y(*value)))
                .collect();
            if points.len() > 1 {
                let _ = writeln!(
                    svg,
                    "<polyline class=\"s{}\" fill=\"none\" stroke-width=\"2\"{dash} \
                     points=\"{}\"/>",
                    at % COLORS,
                    points.join(" ")
                );
            }
            for (x, y) in points.iter().filter_map(|point| point.split_once(',')) {
                let color = at % COLORS;
                let _ =
                    writeln!(svg, "<circle class=\"f{color}\" cx=\"{x}\" cy=\"{y}\" r=\"2.5\"/>");
            }
            legend(&mut svg, right + 12.0, TOP + ROW * place(at), at, &line.name);
        }
        svg.push_str("</svg>\n");
        svg
    }

    /// A row for each bar, with its name before it and its value behind it.
    fn draw_bars(&self, parts: &[&str], bars: &[Bar]) -> String {
        let single = parts.len() < 2;
        let names: BTreeSet<&str> = bars.iter().map(|bar| bar.name.as_str()).collect();
        let groups = bars.chunk_by(|a, b| a.group == b.group).filter(|of| is_named(of)).count();
        let legend_height = if single { 0.0 } else { ROW + 4.0 };
        let height = TOP + legend_height + ROW * (place(bars.len()) + 1.3 * place(groups)) + BOTTOM;
        let axis = Axis::even(&bars.iter().map(Bar::sum).collect::<Vec<_>>());
        let mut svg = self.begin(height, &axis);
        let left = 24.0 + width_of(names.iter().copied());
        let right = WIDTH - 70.0;
        let x = |value: f64| left + (right - left) * axis.share(value);
        let foot = height - BOTTOM + 4.0;
        for (value, words) in axis.ticks() {
            grid(&mut svg, [x(value), x(value)], [TOP + legend_height - 14.0, foot]);
            tick(&mut svg, [x(value), foot + 16.0], "middle", &words);
        }
        if !single {
            let mut at = 8.0;
            for (color, part) in parts.iter().enumerate() {
                legend(&mut svg, at, 40.0, color, part);
                at += 34.0 + width_of([*part]);
            }
        }
        let mut y = TOP + legend_height;
        for group in bars.chunk_by(|a, b| a.group == b.group) {
            if is_named(group) {
                y += ROW * 0.3;
                text(&mut svg, 8.0, y, "start", &group[0].group);
                y += ROW;
            }
            for bar in group {
                text(&mut svg, left - 8.0, y, "end", &bar.name);
                let own = names.iter().position(|name| *name == bar.name).unwrap_or(0);
                let mut below = 0.0;
                for (at, value) in bar.values.iter().enumerate() {
                    let color = if single { own } else { at } % COLORS;
                    let (begin, end) = (x(below), x(below + value));
                    let _ = writeln!(
                        svg,
                        "<rect class=\"f{color}\" x=\"{begin:.1}\" y=\"{:.1}\" width=\"{:.1}\" \
                         height=\"13\"/>",
                        y - 10.0,
                        end - begin
                    );
                    below += value;
                }
                text(&mut svg, x(below) + 6.0, y, "start", &number(below));
                y += ROW;
            }
        }
        svg.push_str("</svg>\n");
        svg
    }
}

/// True if a group of bars has a line of its own above them.
fn is_named(group: &[Bar]) -> bool {
    group.first().is_some_and(|bar| !bar.group.is_empty())
}

fn sizes_of(lines: &[Line]) -> Vec<u64> {
    let sizes = lines.iter().flat_map(|line| line.points.iter().map(|point| point.0));
    sizes.collect::<BTreeSet<_>>().into_iter().collect()
}

/// The only point of a line.
fn bar_of(line: &Line) -> Option<Bar> {
    let (size, value) = line.points.first()?;
    Some(Bar::new(&bytes(*size), &line.name, vec![*value]))
}

/// Room that the longest of these takes.
fn width_of<'a>(names: impl IntoIterator<Item = &'a str>) -> f64 {
    CHARACTER * names.into_iter().map(|name| place(name.chars().count())).fold(0.0, f64::max)
}

fn place(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

fn grid(svg: &mut String, [from, to]: [f64; 2], [above, below]: [f64; 2]) {
    let _ = writeln!(
        svg,
        "<line class=\"grid\" x1=\"{from:.1}\" x2=\"{to:.1}\" y1=\"{above:.1}\" y2=\"{below:.1}\"/>"
    );
}

fn legend(svg: &mut String, x: f64, y: f64, color: usize, name: &str) {
    let color = color % COLORS;
    let _ = writeln!(
        svg,
        "<rect class=\"f{color}\" x=\"{x:.1}\" y=\"{:.1}\" width=\"10\" height=\"10\"/>",
        y - 9.0
    );
    text(svg, x + 14.0, y, "start", name);
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    written(svg, [x, y], "ink", (anchor, words));
}

fn tick(svg: &mut String, place: [f64; 2], anchor: &str, words: &str) {
    written(svg, place, "ink tick", (anchor, words));
}

fn written(svg: &mut String, [x, y]: [f64; 2], class: &str, (anchor, words): (&str, &str)) {
    let words = escape(words);
    let _ = writeln!(
        svg,
        "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>"
    );
}

/// Bytes below an axis, where there is little room.
fn label(size: u64) -> String {
    match size {
        _ if size >= 1 << 20 && size.is_multiple_of(1 << 20) => format!("{} MiB", size >> 20),
        _ => bytes(size),
    }
}

/// Bytes as people write them.
pub(crate) fn bytes(size: u64) -> String {
    if size >= 1024 && size.is_multiple_of(1024) {
        format!("{} KiB", size / 1024)
    } else {
        format!("{size} B")
    }
}

/// With as many digits as one reads. A ratio has no end where its divisor may be nothing.
pub(crate) fn number(value: f64) -> String {
    if value.is_infinite() { "any".to_owned() } else { format!("{value:.0$}", digits(value)) }
}

fn digits(value: f64) -> usize {
    match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        _ => 2,
    }
}

/// More digits than these are noise.
const DIGITS_MOST: usize = 6;

/// The same with as many digits as make it lie on that side of each limit, as it is printed itself,
/// on which it is.
pub(crate) fn beside(value: f64, limits: &[f64]) -> String {
    let printed = |text: &str| text.parse::<f64>().unwrap_or(value);
    let is_told = |text: &String| {
        let side = |limit: &f64| {
            printed(text).partial_cmp(&printed(&number(*limit))) == value.partial_cmp(limit)
        };
        limits.iter().all(side)
    };
    let longer = (digits(value)..=DIGITS_MOST).map(|digits| format!("{value:.digits$}"));
    longer.into_iter().find(is_told).filter(|_| value.is_finite()).unwrap_or_else(|| number(value))
}
