// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reports of others: what is in their files is text, and whatever it is, there is an end.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::course::Course;
use crate::joined::JoinError;
use crate::pace::Pace;
use crate::report::{RESULTS, write_whole};
use crate::study::{Effort, STUDIES, Settings};

/// Ends an attribute and a tag, begins others, and tells a terminal what to do.
const MARKUP: &str = "'\"><script>alert(1)</script><svg onload=x>\u{1b}[31m\u{202e}\u{9b}\0&amp;";

/// What `ask` says, and that it says anything.
fn ended<T: Send + 'static>(ask: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || tell.send(ask()));
    told.recv_timeout(Duration::from_secs(20)).expect("it ends")
}

fn put(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    path
}

/// Results of a study in which every text is `text`.
fn results(study: &str, text: &str) -> Value {
    let measured = json!({ "low": 1, "median": 2, "high": 3 });
    let test = json!({ "of": text, "measured": measured, "answer": text });
    let claim = json!({ "theirs": text, "ours": text, "verdict": text, "tests": [test] });
    let factor = json!({ "value": 1, "error": 1, "low": 0, "high": 2 });
    json!({
        "study": study,
        "title": text,
        "command": text,
        "effort": text,
        "machine": { text: text },
        "figures": [{
            "labels": [text],
            "title": text,
            "verdict": text,
            "claims": [claim],
            "factors": [{ "of": text, "first": factor, "second": factor }],
        }],
    })
}

#[test]
fn no_page_has_markup_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), "amp/results.json", &results("amp", MARKUP).to_string());
    let failed = json!({ "failed": [
        { "study": "amp", "why": MARKUP },
        { "study": "ibm", "why": MARKUP },
        { "study": MARKUP, "why": MARKUP },
    ] });
    put(folder.path(), "unfinished.json", &failed.to_string());
    crate::join(folder.path()).unwrap();
    let page = fs::read_to_string(folder.path().join("index.html")).unwrap();
    for wrong in ["<script", "<svg", "onload=x>", "\u{1b}", "\u{202e}", "\u{9b}", "\0"] {
        assert!(!page.contains(wrong), "{wrong:?}: {page}");
    }
    assert!(page.contains("&lt;script&gt;"), "{page}");
}

/// Others are shown all the same.
#[test]
fn a_report_that_cannot_be_read_is_named_on_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let whole = results("amp", "it").to_string();
    put(folder.path(), "ibm/results.json", &results("ibm", "it").to_string());
    for (text, why) in [
        (&whole[..whole.len() / 2], "is no results.json of a study"),
        ("", "is no results.json of a study"),
        (r#"{"study": "amp", "figures": {"of": "a later version"}}"#, "is no results.json"),
        (&results("unh", "it").to_string(), "is of unh"),
        (&"[".repeat(100_000), "is no results.json of a study"),
    ] {
        put(folder.path(), "amp/results.json", text);
        crate::join(folder.path()).unwrap();
        let page = fs::read_to_string(folder.path().join("index.html")).unwrap();
        let text = page.split("<h2>amp: left out</h2>").nth(1).unwrap_or_default();
        let text = text.split("</p>").next().unwrap_or_default();
        assert!(text.contains("amp/results.json ") && text.contains(why), "{text}, not {why}");
        assert!(text.contains("; try: "), "{text}");
        assert!(page.contains("href=\"ibm/index.html\""), "{page}");
        let json = fs::read_to_string(folder.path().join(RESULTS)).unwrap();
        assert!(json.contains("amp/results.json"), "{json}");
    }
    // Where there is nothing else the error names it.
    fs::remove_dir_all(folder.path().join("ibm")).unwrap();
    let why = crate::join(folder.path()).unwrap_err();
    assert!(why.to_string().contains("amp/results.json"), "{why}");
}

#[test]
fn figures_of_any_size_and_kind_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    let median = |median: &str| {
        let figures = r#"[1, null, "x", {"claims": 7}, {"title": "f", "claims": [{"tests": [5,
            {"of": "it", "measured": {"median": MEDIAN, "low": "NaN", "high": null}}]}]}]"#;
        let text = format!(r#"{{"study": "ibm", "study": "amp", "figures": {figures}}}"#);
        put(folder.path(), median, &text.replace("MEDIAN", median))
    };
    let all = [
        "0",
        "-0.0",
        "1e308",
        "-1e308",
        "5e-324",
        "null",
        "\"NaN\"",
        "[]",
        "1",
        "99999999999999999999",
    ];
    for a in all {
        for b in all {
            let changes = crate::compare(&median(a), &median(b)).unwrap();
            let cells = changes.iter().find(|one| one.what == "it").unwrap().cells();
            let is_told = !["NaN", "inf"].iter().any(|wrong| cells[4].contains(wrong));
            assert!(is_told, "{a}, {b}: {cells:?}");
        }
    }
    let from = |a, b| crate::compare(&median(a), &median(b)).unwrap().remove(1).cells();
    assert_eq!(from("1", "1.5")[4], "+50 %, within the spread");
    assert_ne!(from("0", "12")[4], "+0 %, within the spread", "it has changed");
    let too_large = crate::compare(&median("1e400"), &median("1"));
    assert!(matches!(too_large, Err(JoinError::Foreign(_))), "{too_large:?}");
}

#[test]
fn a_hundred_thousand_of_everything_are_compared_in_time() {
    let folder = tempfile::tempdir().unwrap();
    let measured = json!({ "low": 1, "median": 2, "high": 3 });
    let tests = (0..100_000).map(|at| json!({ "of": format!("case {at}"), "measured": measured }));
    let figure = json!({ "title": "f", "claims": [{ "tests": tests.collect::<Vec<_>>() }] });
    let many = json!({ "study": "amp", "figures": [figure] });
    let path = put(folder.path(), "tests", &many.to_string());
    let changes = ended(move || crate::compare(&path, &path).unwrap());
    assert_eq!(changes.len(), 100_000);
    assert_eq!(changes[99_999].what, "case 99999");
    let first = json!({ "value": 1, "error": 1, "low": 0, "high": 2 });
    let factors = (0..100_000).map(|at| json!({ "of": format!("factor {at}"), "first": first }));
    let figure = json!({ "factors": factors.collect::<Vec<_>>() });
    let many = json!({ "study": "ibm", "figures": [figure] });
    let path = put(folder.path(), "factors", &many.to_string());
    let reproduced = ended(move || crate::reproduced(&path, &path).map(|_| ()));
    assert!(matches!(reproduced, Err(JoinError::Foreign(_))), "{reproduced:?}");
}

#[test]
fn what_a_run_left_in_another_form_is_no_end_of_the_next() {
    let folder = tempfile::tempdir().unwrap();
    for text in [
        r#"{"courses": [1, "x", [], null, {"done": 5}, {"done": [7]}], "failed": [1, null]}"#,
        r#"{"courses": {"done": ["amp"]}, "failed": "amp"}"#,
        "[]",
    ] {
        put(folder.path(), "unfinished.json", text);
        let settings = Settings::new(Effort::Quick);
        let mut course = Course::of(folder.path(), &settings, &["amp", "unh"]);
        course.note("amp").unwrap();
        assert!(Course::of(folder.path(), &settings, &["amp", "unh"]).is_done("amp"), "{text}");
        course.finish().unwrap();
    }
}

#[test]
fn times_that_no_run_has_taken_are_not_gone_by() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings::new(Effort::Quick);
    let new = || Pace::of(&STUDIES[0], &settings, folder.path());
    new().keep(Duration::from_secs(1)).unwrap();
    let path = folder.path().join("times.json");
    let kept = fs::read_to_string(&path).unwrap();
    let left = |seconds: &str| {
        fs::write(&path, kept.replace("[1.0]", seconds)).unwrap();
        let mut pace = new();
        pace.step(Duration::ZERO);
        format!("{:?}", pace.left())
    };
    let without = left("[]");
    assert_ne!(left("[0.0, 5.0]"), without);
    for seconds in [
        "[-5.5, 1]",
        "[1e308, 1e308]",
        "[3, 2, 1]",
        "[\"NaN\", 1]",
        "{}",
        "[-1e308, 1e308]",
        "[0, 1e9]",
    ] {
        assert_eq!(left(seconds), without, "{seconds}");
    }
}

#[test]
fn a_link_where_a_page_is_written_leads_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let other = put(folder.path(), "other", "of somebody else");
    std::os::unix::fs::symlink(&other, folder.path().join("index.html.new")).unwrap();
    std::os::unix::fs::symlink(&other, folder.path().join("index.html")).unwrap();
    let page = folder.path().join("index.html");
    write_whole(&page, "the page").unwrap();
    assert_eq!(fs::read_to_string(&other).unwrap(), "of somebody else");
    assert_eq!(fs::read_to_string(&page).unwrap(), "the page");
    assert!(fs::symlink_metadata(&page).unwrap().is_file());
}

#[test]
fn a_name_without_end_is_not_held_for_each_test() {
    let folder = tempfile::tempdir().unwrap();
    let tests = |of: &str| vec![json!({ "of": of }); 10];
    let long = "\u{e9}".repeat(100_000);
    let figure = json!({ "title": long, "claims": [{ "tests": tests(&long) }] });
    let results = json!({ "study": "amp", "figures": [figure] });
    let path = put(folder.path(), "long", &results.to_string());
    for change in crate::compare(&path, &path).unwrap() {
        let names = [change.figure, change.what];
        assert!(names.iter().all(|name| long.starts_with(name) && name.len() <= 1000));
    }
}

/// Each costs more memory than it has bytes in the file.
#[test]
fn no_report_has_figures_or_tests_without_end() {
    let folder = tempfile::tempdir().unwrap();
    let foreign = |json: &Value| {
        let path = put(folder.path(), "amp/results.json", &json.to_string());
        let compared = crate::compare(&path, &path).map(|all| all.len());
        assert!(matches!(compared, Err(JoinError::Foreign(_))), "{compared:?}");
    };
    foreign(&json!({ "study": "amp", "figures": vec![json!({}); 20_000] }));
    let joined = crate::join(folder.path()).map(drop);
    assert!(matches!(joined, Err(JoinError::Foreign(_))), "{joined:?}");
    let claim = json!({ "tests": vec![json!({}); 300_000] });
    foreign(&json!({ "study": "amp", "figures": [{ "claims": [claim] }] }));
}

/// Each of its lines would be set in as deep as it lies.
#[test]
fn what_lies_deep_in_a_report_is_not_in_that_of_all() {
    let folder = tempfile::tempdir().unwrap();
    let deep = (0..100).fold(json!(vec![0; 1000]), |inner, _| json!([inner]));
    let mut results = results("amp", "it");
    for name in ["title", "command", "seconds", "machine", "noise"] {
        results[name] = json!({ "in": deep });
    }
    results["figures"][0]["title"] = deep;
    put(folder.path(), "amp/results.json", &results.to_string());
    crate::join(folder.path()).unwrap();
    let json = fs::read_to_string(folder.path().join(RESULTS)).unwrap();
    assert!(json.len() < 10_000, "{} bytes", json.len());
}

#[test]
fn a_name_of_a_file_stays_on_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = put(folder.path(), "a\u{1b}[31m\nb", "{}");
    for path in [path.clone(), path.with_extension("none")] {
        let why = crate::compare(&path, &path).unwrap_err().to_string();
        assert!(why.contains("a\\u{1b}[31m\\nb"), "{why:?}");
    }
}
