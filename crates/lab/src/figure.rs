// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Figures as SVG: lines over sizes in powers of two, and stacked bars.

use std::fmt::Write as _;

use crate::html::escape;

/// A figure with its axes.
#[derive(Debug)]
pub(crate) struct Figure {
    /// Name of its file, without the end.
    pub(crate) file: &'static str,
    pub(crate) title: String,
    /// What the vertical axis counts.
    pub(crate) unit: &'static str,
    pub(crate) kind: Kind,
}

#[derive(Debug)]
pub(crate) enum Kind {
    /// Lines over bytes, the axis logarithmic.
    Lines(Vec<Line>),
    /// Bars of parts that add up.
    Bars {
        /// Names of the parts, from the bottom on.
        parts: Vec<&'static str>,
        /// Names of the bars and what their parts are.
        bars: Vec<(String, Vec<f64>)>,
    },
}

#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) name: String,
    /// Bytes and values.
    pub(crate) points: Vec<(u64, f64)>,
    /// Of the study: drawn dashed.
    pub(crate) published: bool,
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 36.0;
const BOTTOM: f64 = 60.0;
const COLORS: [&str; 8] =
    ["#1f5fa8", "#c8501e", "#2b8a3e", "#7b3fa0", "#a88a00", "#0e8a8a", "#b02a5b", "#555555"];

impl Figure {
    pub(crate) fn svg(&self) -> String {
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             width=\"{WIDTH}\" height=\"{HEIGHT}\" font-family=\"sans-serif\" font-size=\"11\">\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
        );
        text(&mut svg, LEFT, 18.0, "start", &self.title);
        let top = self.largest() * 1.05;
        for step in 0..=5 {
            let value = top * f64::from(step) / 5.0;
            let y = height_of(value, top);
            let _ = writeln!(
                svg,
                "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>",
                WIDTH - RIGHT
            );
            text(&mut svg, LEFT - 6.0, y + 4.0, "end", &number(value));
        }
        text(&mut svg, 6.0, TOP - 6.0, "start", self.unit);
        match &self.kind {
            Kind::Lines(lines) => draw_lines(&mut svg, lines, top),
            Kind::Bars { parts, bars } => draw_bars(&mut svg, parts, bars, top),
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn largest(&self) -> f64 {
        let values: Vec<f64> = match &self.kind {
            Kind::Lines(lines) => {
                lines.iter().flat_map(|line| line.points.iter().map(|point| point.1)).collect()
            }
            Kind::Bars { bars, .. } => bars.iter().map(|(_, parts)| parts.iter().sum()).collect(),
        };
        values.into_iter().fold(1e-9, f64::max)
    }
}

fn draw_lines(svg: &mut String, lines: &[Line], top: f64) {
    let mut sizes: Vec<u64> =
        lines.iter().flat_map(|line| line.points.iter().map(|point| point.0)).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let ends = (sizes.first().copied().unwrap_or(1), sizes.last().copied().unwrap_or(1));
    for size in &sizes {
        text(svg, place_of(*size, ends), HEIGHT - BOTTOM + 16.0, "middle", &bytes(*size));
    }
    for (at, (line, color)) in lines.iter().zip(COLORS.iter().cycle()).enumerate() {
        let points: Vec<String> = line
            .points
            .iter()
            .map(|(size, value)| {
                format!("{:.1},{:.1}", place_of(*size, ends), height_of(*value, top))
            })
            .collect();
        let dash = if line.published { " stroke-dasharray=\"5 4\"" } else { "" };
        let _ = writeln!(
            svg,
            "<polyline fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"{dash} points=\"{}\"/>",
            points.join(" ")
        );
        for point in &points {
            if let Some((x, y)) = point.split_once(',') {
                let _ = writeln!(svg, "<circle cx=\"{x}\" cy=\"{y}\" r=\"2.5\" fill=\"{color}\"/>");
            }
        }
        legend(svg, at, color, &line.name);
    }
}

fn draw_bars(svg: &mut String, parts: &[&str], bars: &[(String, Vec<f64>)], top: f64) {
    let count = u32::try_from(bars.len().max(1)).unwrap_or(1);
    let room = (WIDTH - LEFT - RIGHT) / f64::from(count);
    let mut x = LEFT;
    for (name, values) in bars {
        let mut below = 0.0;
        for (value, color) in values.iter().zip(COLORS.iter().cycle()) {
            let (upper, lower) = (height_of(below + value, top), height_of(below, top));
            let _ = writeln!(
                svg,
                "<rect x=\"{:.1}\" y=\"{upper:.1}\" width=\"{:.1}\" height=\"{:.1}\" \
                 fill=\"{color}\"/>",
                x + room * 0.12,
                room * 0.76,
                lower - upper
            );
            below += value;
        }
        for (line, word) in name.split(' ').zip(0_u32..) {
            let y = HEIGHT - BOTTOM + 16.0 + 13.0 * f64::from(word);
            text(svg, x + room / 2.0, y, "middle", line);
        }
        x += room;
    }
    for (at, (part, color)) in parts.iter().zip(COLORS.iter().cycle()).enumerate() {
        legend(svg, at, color, part);
    }
}

fn legend(svg: &mut String, at: usize, color: &str, name: &str) {
    let y = TOP + 16.0 * f64::from(u32::try_from(at).unwrap_or(0));
    let x = WIDTH - RIGHT + 10.0;
    let _ = writeln!(
        svg,
        "<rect x=\"{x}\" y=\"{:.1}\" width=\"10\" height=\"10\" fill=\"{color}\"/>",
        y - 9.0
    );
    text(svg, x + 14.0, y, "start", name);
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    let words = escape(words);
    let _ =
        writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>");
}

fn height_of(value: f64, top: f64) -> f64 {
    let room = HEIGHT - TOP - BOTTOM;
    TOP + room * (1.0 - value / top)
}

fn place_of(size: u64, (first, last): (u64, u64)) -> f64 {
    let log = |size: u64| crate::measure::real(size).log2();
    let share = (log(size) - log(first)) / (log(last) - log(first)).max(1e-9);
    LEFT + 16.0 + share * (WIDTH - LEFT - RIGHT - 32.0)
}

/// Bytes as people write them.
pub(crate) fn bytes(size: u64) -> String {
    if size >= 1024 && size.is_multiple_of(1024) {
        format!("{} KiB", size / 1024)
    } else {
        format!("{size} B")
    }
}

/// With as many digits as one reads.
pub(crate) fn number(value: f64) -> String {
    if value >= 100.0 {
        format!("{value:.0}")
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}
