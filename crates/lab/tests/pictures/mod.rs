// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a machine can check of pictures: labels stay within them and apart from each other, bars
//! say what they are of, there are words for who cannot see them, and colours for a dark screen.

use std::path::Path;

/// Width of a character of 11 pixels height, at most, on average.
const CHARACTER: f64 = 6.2;

/// A label: left, right and foot.
#[derive(Debug)]
struct Label {
    #[expect(dead_code)] // for who reads a failure
    words: String,
    left: f64,
    right: f64,
    foot: f64,
}

fn attribute<'a>(tag: &'a str, name: &str) -> &'a str {
    let at = format!(" {name}=\"");
    tag.split_once(&at).and_then(|(_, rest)| rest.split_once('"')).map_or("", |(value, _)| value)
}

fn number(tag: &str, name: &str) -> f64 {
    attribute(tag, name).parse().expect("a number")
}

fn labels(svg: &str) -> Vec<Label> {
    let texts = svg.split("<text").skip(1).map(|rest| rest.split_once("</text>").expect("an end"));
    let label = |text: &str| {
        let (tag, words) = text.split_once('>').expect("a tag");
        let words = words.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
        let width = CHARACTER * words.chars().map(|_| 1.0).sum::<f64>();
        let x = number(tag, "x");
        let left = match attribute(tag, "text-anchor") {
            "end" => x - width,
            "middle" => x - width / 2.0,
            _ => x,
        };
        Label { words, left, right: left + width, foot: number(tag, "y") }
    };
    texts.map(|(text, _)| label(text)).collect()
}

fn check(name: &str, svg: &str) {
    let (width, height) = (number(svg, "width"), number(svg, "height"));
    let labels = labels(svg);
    assert!(!labels.is_empty(), "{name} says nothing");
    for (at, label) in labels.iter().enumerate() {
        let inside = label.left >= 0.0 && label.right <= width && label.foot <= height;
        assert!(inside, "{name} ({width} x {height}): {label:?} is cut off");
        for other in &labels[at + 1..] {
            let apart = (label.foot - other.foot).abs() >= 10.0
                || label.right < other.left
                || other.right < label.left;
            assert!(apart, "{name}: {label:?} lies over {other:?}");
        }
    }
    check_ticks(name, svg);
    assert!(svg.contains("role=\"img\"") && svg.contains("<title>"), "{name} has no alt text");
    let said = svg.split_once("<desc>").map_or("", |(_, rest)| rest);
    assert!(
        said.split("</desc>").next().is_some_and(|text| text.len() > 40),
        "{name} tells little"
    );
    assert!(svg.contains("prefers-color-scheme:dark"), "{name} is for bright screens alone");
    for line in svg.split("<polyline").skip(1) {
        assert!(attribute(line, "points").contains(' '), "{name} has a line of a single point");
    }
}

/// Axes have few figures, and round ones.
fn check_ticks(name: &str, svg: &str) {
    let texts = svg.split("<text class=\"ink tick\"").skip(1);
    let texts = texts.map(|rest| rest.split_once("</text>").expect("an end").0);
    let ticks = texts.map(|text| text.split_once('>').expect("a tag")).collect::<Vec<_>>();
    assert!(ticks.len() >= 2, "{name} has no axis");
    for anchor in ["end", "middle"] {
        let of = ticks.iter().filter(|(tag, _)| attribute(tag, "text-anchor") == anchor);
        let words = of.map(|(_, words)| *words).collect::<Vec<_>>();
        assert!(words.len() <= 8, "{name} has many ticks: {words:?}");
        for word in words.iter().filter(|word| word.parse::<f64>().is_ok()) {
            let digits: String = word.chars().filter(char::is_ascii_digit).collect();
            let digits = digits.trim_start_matches('0').trim_end_matches('0');
            assert!(digits.len() <= 2, "{name}: {word} is not round");
        }
    }
}

/// All pictures of a folder.
pub(crate) fn check_all(folder: &Path) {
    let mut pictures = 0;
    let entries = std::fs::read_dir(folder).expect("a folder");
    for entry in entries.map(|entry| entry.expect("readable").path()) {
        if entry.extension().is_some_and(|end| end == "svg") {
            let svg = std::fs::read_to_string(&entry).expect("a picture");
            check(&entry.display().to_string(), &svg);
            pictures += 1;
        }
    }
    assert!(pictures >= 3);
}
