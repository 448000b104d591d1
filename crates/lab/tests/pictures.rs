// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a machine can check of pictures: labels stay within them and apart from each other, bars
//! say what they are of, there are words for who cannot see them, and colours for a dark screen.

use std::path::Path;
use std::time::Duration;

/// Width of a character of 11 pixels height, at most, on average.
const CHARACTER: f64 = 6.2;

/// A label: left, right and foot.
#[derive(Debug)]
struct Label {
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

fn check_page(page: &Path) {
    let html = std::fs::read_to_string(page).expect("a page");
    assert!(html.contains("prefers-color-scheme:dark"));
    let summary = html.find("id=\"summary\"").expect("a summary");
    assert!(summary < html.find("<h2").expect("a section"), "it is at the top");
    let folder = std::fs::read_dir(page.parent().expect("a folder")).expect("readable");
    let mut pictures = 0;
    for entry in folder.map(|entry| entry.expect("readable").path()) {
        if entry.extension().is_some_and(|end| end == "svg") {
            let svg = std::fs::read_to_string(&entry).expect("a picture");
            check(&entry.display().to_string(), &svg);
            pictures += 1;
        }
    }
    assert!(pictures >= 5);
}

#[test]
fn those_of_fast05_can_be_read() {
    let folder = tempfile::tempdir().expect("a folder");
    for size_max in [8 << 10, 16 << 10] {
        let options = lunwire_lab::fast05::Options { rounds: 1, size_max };
        let report = lunwire_lab::fast05::run(&options).expect("a run");
        check_page(&report.write(folder.path()).expect("files"));
    }
}

#[test]
fn those_of_amp_can_be_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = lunwire_lab::amp::Options { rounds: 1, time: Duration::from_millis(50) };
    let report = lunwire_lab::amp::run(&options).expect("a run");
    let page = report.write(folder.path()).expect("files");
    check_page(&page);
    let bars = std::fs::read_to_string(page.with_file_name("figure3a.svg")).expect("a picture");
    let words: Vec<_> = labels(&bars).into_iter().map(|label| label.words).collect();
    for mode in ["SMP", "AMP", "AMP, polling"] {
        assert!(words.iter().filter(|word| *word == mode).count() >= 4, "{mode} in {words:?}");
    }
}

#[test]
fn those_of_unh_can_be_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let time = Duration::from_millis(1);
    let options = lunwire_lab::unh::Options { rounds: 1, time, quick: false };
    let report = lunwire_lab::unh::run(&options).expect("a run");
    check_page(&report.write(folder.path()).expect("files"));
}
