// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A short run of the UNH study from end to end.

use std::time::Duration;

use lunwire_lab::unh::{Options, run};

#[test]
fn a_short_run_makes_a_whole_report() {
    let options = Options { rounds: 1, time: Duration::from_millis(1), quick: true };
    let report = run(&options).expect("a run");
    let text = report.text();
    for part in ["Table 4.1", "Tables 4.2", "4-1 to 4-3", "4-4 to 4-6", "4-12", "Table 5.1"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(report.sections.iter().all(|section| !section.conclusions.is_empty()));
    for table in report.sections.iter().flat_map(|section| &section.tables) {
        assert!(table.rows.iter().all(|row| row.len() == table.head.len()), "{table:?}");
    }
    let combinations = &report.sections[0].tables[0].rows;
    let (here, not) =
        combinations.iter().fold((0, 0), |(here, not), row| match row.last().map(String::as_str) {
            Some("measured") => (here + 1, not),
            Some(why) if why.starts_with("not here, because ") => (here, not + 1),
            other => panic!("{other:?}"),
        });
    assert!(here >= 4 && not >= 10, "{here} and {not}");

    let folder = tempfile::tempdir().expect("a folder");
    let page = report.write(&folder.path().join("unh")).expect("files");
    let html = std::fs::read_to_string(&page).expect("the page");
    assert!(!html.contains("NaN") && !html.contains("inf"), "figures are numbers");
    for figure in [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13] {
        let file = page.with_file_name(format!("figure-4-{figure}.svg"));
        assert!(file.exists(), "{}", file.display());
    }
    assert!(page.with_file_name("table-5-1.svg").exists());
}

/// What is counted does not depend on how fast the machine is.
#[test]
fn headers_and_messages_are_those_of_the_standards() {
    let options = Options { rounds: 1, time: Duration::from_millis(1), quick: true };
    let report = run(&options).expect("a run");
    let headers = &report.sections[1];
    assert_eq!(headers.conclusions[0].supports, Some(true), "{headers:?}");
    let frame = headers.tables[0].rows.last().expect("a sum");
    assert_eq!(frame[1..], ["1538"; 4].map(str::to_owned), "a full frame");
    let messages = &report.sections[5].tables[0].rows;
    let of = |what: &str, carrier: &str, commands: &str| {
        let row = messages.iter().find(|row| row[..3] == [what, carrier, commands]);
        row.unwrap_or_else(|| panic!("{what}, {carrier}, {commands} in {messages:?}"))[3].as_str()
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
