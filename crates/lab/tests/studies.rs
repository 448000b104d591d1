// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Each study from end to end, as short as can be: its page has all that the catalogue names, each
//! figure a verdict, and no picture is empty.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use lunwire_lab::{Audience, By, Course, Effort, Error, Report, STUDIES, Settings, Study};
use serde_json::Value;

mod pictures;

/// Threads of a study are found by their names, and the kernel of CRC is the process's: one study
/// at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn run(study: &Study, settings: &Settings, steps: &Counter) -> Result<Report, Error> {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let before = crc::tier();
    let ran = lunwire_lab::run(study, settings, steps);
    assert_eq!(crc::tier(), before, "the kernel of before");
    ran
}

/// Stops a run after so many steps.
struct Counter {
    steps: AtomicUsize,
    most: usize,
}

impl Counter {
    const fn new(most: usize) -> Self {
        Self { steps: AtomicUsize::new(0), most }
    }
}

impl Audience for Counter {
    fn step(&self, what: &str, done: usize, of: usize) {
        assert!(!what.is_empty() && done < of, "{what}: {done} of {of}");
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    fn is_to_stop(&self) -> bool {
        self.steps.load(Ordering::Relaxed) >= self.most
    }
}

fn study(name: &str) -> &'static Study {
    STUDIES.iter().find(|study| study.name == name).expect("a study")
}

fn smoke(name: &str) -> Report {
    let settings = Settings::new(Effort::Smoke);
    run(study(name), &settings, &Counter::new(usize::MAX)).expect("a run")
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().unwrap_or_else(|| panic!("{name} in {value}"))
}

const VERDICTS: [&str; 5] =
    ["holds", "holds in part", "no longer", "the spread hides it", "cannot be tested here"];

fn check(name: &str, report: &Report) -> Value {
    let results = report.json();
    let mut labels = Vec::new();
    for figure in list(&results, "figures") {
        let title = figure["title"].as_str().expect("a title");
        labels.extend(list(figure, "labels").iter().filter_map(Value::as_str));
        assert!(VERDICTS.contains(&figure["verdict"].as_str().expect("words")), "{figure}");
        assert!(!list(figure, "claims").is_empty(), "{title} claims nothing");
        let tests = list(figure, "claims").iter().flat_map(|claim| list(claim, "tests"));
        let names: Vec<&str> = tests.filter_map(|test| test["of"].as_str()).collect();
        let once: std::collections::BTreeSet<&str> = names.iter().copied().collect();
        assert_eq!(once.len(), names.len(), "each test has a name of its own: {names:?}");
        for claim in list(figure, "claims") {
            assert!(VERDICTS.contains(&claim["verdict"].as_str().expect("words")), "{claim}");
            let why = claim["ours"].as_str().expect("words");
            assert!(!list(claim, "tests").is_empty() || why.starts_with("not here"), "{claim}");
        }
        for table in list(figure, "tables") {
            let columns = list(table, "head").len();
            let rows = list(table, "rows");
            assert!(!rows.is_empty(), "{title} has an empty table");
            assert!(rows.iter().all(|row| row.as_array().is_some_and(|row| row.len() == columns)));
        }
        for picture in list(figure, "pictures") {
            let ours = list(picture, "series").iter().filter(|one| one["published"] == false);
            let points: usize = ours.map(|one| list(one, "points").len()).sum();
            assert!(points > 0, "{title} has an empty picture: {picture}");
        }
    }
    labels.sort_unstable();
    let mut expected = lunwire_lab::labels_of(name);
    expected.sort_unstable();
    assert_eq!(labels, expected, "all that the catalogue says is measured");
    for member in ["machine", "noise", "preface"] {
        assert!(!results[member].is_null(), "{member}");
    }

    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join(name);
    let page = report.write(&out).expect("files");
    assert!(lunwire_lab::is_report(&out));
    let html = std::fs::read_to_string(&page).expect("the page");
    for wrong in ["NaN", "inf\"", ">inf"] {
        let at = html.find(wrong).map(|at| html.get(at.saturating_sub(200)..at));
        assert_eq!(at, None, "figures are numbers");
    }
    for words in ["prefers-color-scheme:dark", "@media print", "class=\"verdict"] {
        assert!(html.contains(words), "{words}");
    }
    let summary = html.find("id=\"summary\"").expect("a summary");
    assert!(summary < html.find("<h2").expect("a figure"), "it is at the top");
    pictures::check_all(&out);
    join(folder.path(), name);
    results
}

/// The page of all.
fn join(folder: &Path, name: &str) {
    let page = lunwire_lab::join(folder).expect("one report").page;
    let html = std::fs::read_to_string(page).expect("a page");
    assert!(html.contains(&format!("href=\"{name}/index.html#s0\"")), "{html}");
    assert!(lunwire_lab::is_report(folder));
    let results = folder.join(name).join("results.json");
    let changes = lunwire_lab::compare(&results, &results).expect("the same study");
    let is_nothing = |by| match by {
        By::Percent(by) | By::Points(by) => f64::abs(by) < 1e-9,
        _ => false,
    };
    assert!(!changes.is_empty() && changes.iter().all(|change| change.by.is_none_or(is_nothing)));
}

#[test]
fn fast05_is_whole() {
    let report = smoke("fast05");
    check("fast05", &report);
    assert!(report.text().contains("Figure 17"));
}

#[test]
fn amp_is_whole() {
    let report = smoke("amp");
    let results = check("amp", &report);
    let throughput = &list(&list(&results, "figures")[0], "pictures")[0];
    assert_eq!(list(throughput, "series").len(), 12, "each load by each division");
}

#[test]
fn unh_is_whole() {
    let results = check("unh", &smoke("unh"));
    let rows = list(&list(&list(&results, "figures")[0], "tables")[0], "rows");
    let here = rows.iter().filter(|row| row[6] == "measured").count();
    assert!(here >= 4 && rows.len() >= here + 10, "{here} of {}", rows.len());
    headers_and_messages(&results);
}

/// What is counted does not depend on how fast the machine is.
fn headers_and_messages(results: &Value) {
    let headers = &list(results, "figures")[1];
    assert_eq!(headers["verdict"], "holds", "{headers}");
    let frame = list(&list(headers, "tables")[0], "rows").last().expect("a sum");
    assert!((1..5).all(|at| frame[at] == "1538"), "a full frame: {frame}");
    let messages = &list(results, "figures")[5];
    let rows = list(&list(messages, "tables")[0], "rows");
    let of = |what: &str, carrier: &str, commands: &str| {
        let is_it = |row: &&Value| row[0] == what && row[1] == carrier && row[2] == commands;
        let row = rows.iter().find(is_it);
        let row = row.unwrap_or_else(|| panic!("{what}, {carrier}, {commands} in {rows:?}"));
        row[3].as_str().expect("words").to_owned()
    };
    let (one, two) = ("1 of 1024 KiB", "2 of 512 KiB");
    assert_eq!(
        of("read", "iSER/iWARP", one),
        "1 RDMA Write, 1 Send with SCSI Command, 1 Send with SCSI Response"
    );
    assert_eq!(
        of("write", "iSER/iWARP", two),
        "2 RDMA Read Request, 2 RDMA Read Response, 2 Send with SCSI Command, 2 Send with SCSI \
         Response"
    );
    let plain = of("write", "iSCSI/TCP", two);
    assert!(plain.starts_with("4 Data-Out, 2 R2T, 2 SCSI Command, 2 SCSI Response"), "{plain}");
    let unasked = of("write, first burst unasked", "iSER/iWARP", one);
    assert!(unasked.contains("Send with Data-Out"), "{unasked}");
}

#[test]
fn forth_is_whole() {
    let results = check("forth", &smoke("forth"));
    let lacking = list(&results, "figures").iter().filter(|figure| {
        figure["verdict"] == "cannot be tested here"
            && list(figure, "claims")[0]["ours"].as_str().is_some_and(|why| why.contains("needs"))
    });
    assert_eq!(lacking.count(), 10, "applications are named with what they need");
}

#[test]
fn ibm_is_whole() {
    let results = check("ibm", &smoke("ibm"));
    let figures = list(&results, "figures");
    let rows = list(&list(&figures[0], "tables")[0], "rows");
    let of = |way: &str| rows.iter().filter(|row| row[0] == way).collect::<Vec<_>>();
    assert_eq!(of("no network").len(), 4, "two sizes, both directions");
    let preface = list(&results, "preface").iter().filter_map(Value::as_str);
    let wireless = preface.clone().any(|line| line.starts_with("No wire"));
    assert_eq!(of("TCP").len(), if wireless { 4 } else { 8 }, "and two frames: {rows:?}");
    assert_eq!(of("iSER/iWARP").len(), of("TCP").len());
    let no_nfs = preface.clone().any(|line| line.starts_with("Not here: NFS, because"));
    assert_eq!(of("NFS").len(), if no_nfs { 0 } else { 2 }, "both directions: {rows:?}");
    let lacks = preface.clone().any(|line| line.starts_with("Not here: raw Ethernet, because"));
    assert_eq!(of("raw Ethernet").is_empty(), lacks, "it is there, or said why it is not");
    let lacks_xdp = preface.clone().any(|line| line.starts_with("Not here: AF_XDP, because"));
    assert_eq!(of("AF_XDP").is_empty(), lacks_xdp, "it is there, or said why it is not");
    if !wireless {
        let framed = |row: &&Value| row[0] != "no network";
        let frames = rows.iter().filter(framed).all(|row| row[5] != "0" && row[5] != "0.00");
        assert!(frames, "frames are counted: {rows:?}");
    }
    let initiator = &list(&figures[3], "claims")[0]["ours"];
    assert!(
        initiator.as_str().is_some_and(|why| why.contains("the command lunwire")),
        "{initiator}"
    );
    let model = &figures[2];
    let fitted = list(&list(model, "tables")[0], "rows");
    let ways = 3 + usize::from(!lacks) + usize::from(!lacks_xdp);
    assert!(fitted.len() <= 4 * ways && fitted.len() >= 4, "both runs of each: {fitted:?}");
    let again = &list(model, "claims")[1];
    assert!(again["theirs"].as_str().is_some_and(|text| text.contains("second run")), "{again}");
    let ours = again["ours"].as_str().unwrap_or_default();
    let of = ours.split_once(" of ").and_then(|(_, rest)| rest.split_once(" factors"));
    let factors = of.and_then(|(count, _)| count.parse().ok()).unwrap_or(0);
    assert!(factors >= fitted.len(), "each factor is held against its interval: {again}");
    assert!(!list(again, "tests").is_empty(), "what chance brings is a bound: {again}");
}

#[test]
fn peers_is_whole() {
    // Without the command there is nothing of ours to compare; what others do is there.
    let results = check("peers", &smoke("peers"));
    let figures = list(&results, "figures");
    let ours = &list(&figures[3], "claims")[0];
    assert!(ours["ours"].as_str().is_some_and(|why| why.contains("the command lunwire")), "{ours}");
    let compared = figures.iter().take(3).flat_map(|figure| list(figure, "claims"));
    assert!(compared.clone().all(|claim| claim["verdict"] == "cannot be tested here"));
    assert_eq!(compared.count(), 12, "three quantities beside four others");
}

#[test]
fn one_run_is_too_few_for_a_verdict() {
    let mut settings = Settings::new(Effort::Smoke);
    settings.rounds = Some(1);
    let report = run(study("fast05"), &settings, &Counter::new(usize::MAX)).expect("a run");
    assert!(report.text().contains("too few for a verdict"));
    for figure in list(&report.json(), "figures") {
        assert_eq!(figure["verdict"], "the spread hides it", "{figure}");
    }
}

#[test]
fn a_run_that_is_stopped_leaves_nothing() {
    let settings = Settings::new(Effort::Smoke);
    for study in &STUDIES {
        let counter = Counter::new(2);
        let stopped = run(study, &settings, &counter);
        assert!(matches!(stopped, Err(Error::Stopped)), "{}", study.name);
        assert_eq!(counter.steps.load(Ordering::Relaxed), 2);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let course = Course::of(folder.path(), &settings, &["amp"]);
    assert!(!course.is_done("amp"));
}
