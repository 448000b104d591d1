// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the laboratory says of names that are none, and of reports of others.

use std::fs;
use std::process::Command;

use serde_json::json;

use super::support::fails;
use super::support::good;
use super::support::lunwire;
use super::support::stderr;
use super::support::stdout;

#[test]
fn which_studies_there_are_is_said_where_none_is_meant() {
    let all = "fast05, amp, unh, forth, ibm, peers, all; try: lunwire lab list";
    fails(2, &["lab", "run"], &["which study is missing; there are", all]);
    fails(2, &["lab", "run", "--smoke"], &["which study is missing; there are", all]);
    fails(2, &["lab", "run", "nothing\u{1b}"], &["nothing\\u{1b} is no study; there are", all]);
    for (word, meant) in [("ibn", "ibm"), ("AMP", "amp"), ("fast5", "fast05"), ("al", "all")] {
        let said = format!("{word} is no study; did you mean {meant}?");
        fails(2, &["lab", "run", "unh", word], &[&said]);
    }
}

#[test]
fn what_a_report_says_does_nothing_to_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let bad = "\u{1b}[31m\u{202e}\u{9b}\n";
    let measured = json!({ "low": 10, "median": 10, "high": 10 });
    let more = json!({ "low": 12, "median": 12, "high": 12 });
    let first = json!({ "value": 1, "error": 1, "low": 0.9, "high": 1.1 });
    for (name, study, measured, value) in [("a", "ibm", measured, 1), ("b", "ibm", more, 5)] {
        let test = json!({ "of": format!("% saved, {bad}"), "measured": measured, "answer": bad });
        let mut factor = json!({ "of": bad, "first": first });
        factor["first"]["value"] = value.into();
        let figure = json!({ "title": bad, "claims": [{ "tests": [test] }], "factors": [factor] });
        let results = json!({
            "study": study,
            "command": bad,
            "effort": format!("{bad}{name}"),
            "machine": { bad: bad },
            "figures": [figure],
        });
        fs::write(path(name), results.to_string()).unwrap();
    }
    let said = stdout(&good(&["lab", "report", "--compare", &path("a"), &path("b")]));
    assert!(!said.chars().any(|letter| letter != '\n' && letter.is_control()), "{said:?}");
    assert!(!said.contains('\u{202e}'), "{said:?}");
    assert!(said.contains("+2.0 points") && said.contains("the change is in points"), "{said}");
    let other = json!({ "study": bad, "figures": [] });
    fs::write(path("c"), other.to_string()).unwrap();
    let said = stderr(&lunwire(&["lab", "report", "--compare", &path("a"), &path("c")]));
    assert!(said.contains("different studies") && !said.contains('\u{1b}'), "{said:?}");
}

#[test]
fn a_report_that_is_no_report_is_named_and_the_others_are_joined() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().display().to_string();
    for (study, text) in
        [("amp", "{\"study\": \"amp\""), ("ibm", "{\"study\": \"ibm\", \"figures\": []}")]
    {
        fs::create_dir(folder.path().join(study)).unwrap();
        fs::write(folder.path().join(study).join("results.json"), text).unwrap();
    }
    let said = stderr(&good(&["lab", "report", "--out", &out]));
    assert!(said.contains("amp/results.json is no results.json of a study; try: "), "{said}");
    let told: serde_json::Value =
        serde_json::from_str(&stdout(&good(&["lab", "report", "--json", "--out", &out]))).unwrap();
    assert_eq!(told["left_out"].as_array().unwrap().len(), 1, "{told}");
}

#[test]
fn a_page_is_not_written_beside_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().display().to_string();
    fs::create_dir(folder.path().join("ibm")).unwrap();
    let results = "{\"study\": \"ibm\", \"figures\": []}";
    fs::write(folder.path().join("ibm/results.json"), results).unwrap();
    let held = fs::File::open(folder.path()).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let said = [out.as_str(), "a run writes its reports to", "try: wait for it"];
    fails(1, &["lab", "report", "--out", &out], &said);
    drop(held);
    good(&["lab", "report", "--out", &out]);
}

/// The page of before stays, and nothing is left of the one that had no room.
#[test]
fn a_page_that_has_no_room_is_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().display();
    let title = "t".repeat(100_000);
    let results = json!({ "study": "ibm", "title": title, "figures": [] }).to_string();
    let script = format!(
        "mount -t tmpfs -o size=300k none {disk} || {{ echo no tmpfs; exit 77; }}; cd {disk}; \
         mkdir ibm; echo '{{\"study\": \"ibm\", \"figures\": []}}' > ibm/results.json; \
         $LUNWIRE lab report --out . || exit 1; cp index.html before; cat > ibm/results.json; \
         head -c 1M /dev/zero > full 2>&-; $LUNWIRE lab report --out .; echo status $?; \
         cmp before index.html && ls -A"
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script]).env("LUNWIRE", env!("CARGO_BIN_EXE_lunwire"));
    let input = folder.path().with_extension("json");
    fs::write(&input, results).unwrap();
    let ended = command.stdin(fs::File::open(&input).unwrap()).output();
    fs::remove_file(&input).unwrap();
    let Ok(ended) = ended else {
        println!("skipped: no unshare");
        return;
    };
    let (said, wrong) = (stdout(&ended), stderr(&ended));
    if said.contains("no tmpfs") || !said.contains("all reports") {
        println!("skipped: no mounts of our own: {wrong}");
        return;
    }
    assert!(said.contains("status 1") && ended.status.success(), "{said}{wrong}");
    assert!(wrong.contains("cannot write the page of all reports to .: No space left"), "{wrong}");
    assert!(wrong.contains("; try: "), "{wrong}");
    assert!(!said.contains(".new"), "{said}");
}
