// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A tiny run of the FAST05 study from end to end.

use lunwire_lab::fast05::{Options, run};

#[test]
fn a_tiny_run_makes_a_whole_report() {
    let before = crc::tier();
    let report = run(&Options { rounds: 2, size_max: 16 << 10 }).expect("a run");
    assert_eq!(crc::tier(), before, "the kernel of before");
    let text = report.text();
    for figure in ["Figure 11", "Figure 12", "Figure 14", "Figure 15", "Figure 16", "Figure 17"] {
        assert!(text.contains(figure), "{figure} in {text}");
    }
    assert!(report.sections.iter().all(|section| !section.conclusions.is_empty()));
    assert!(report.sections.iter().all(|section| {
        let tables = &section.tables;
        tables.iter().all(|table| table.rows.iter().all(|row| row.len() == table.head.len()))
    }));

    let folder = tempfile::tempdir().expect("a folder");
    let page = report.write(&folder.path().join("fast05")).expect("files");
    let html = std::fs::read_to_string(&page).expect("the page");
    assert!(html.matches("<svg").count() >= 7 && html.ends_with("</html>\n"));
    assert!(!html.contains("NaN") && !html.contains("inf\""), "figures are numbers");
    for file in ["figure-11.svg", "figure-17.svg", "results.json"] {
        assert!(page.with_file_name(file).exists(), "{file}");
    }
}

#[test]
fn a_claim_that_nothing_was_measured_of_does_not_count() {
    for size_max in [512, 8 << 10] {
        let report = run(&Options { rounds: 2, size_max }).expect("a run");
        let all: Vec<_> = report.sections.iter().flat_map(|section| &section.conclusions).collect();
        let over: Vec<_> = all.iter().filter(|one| one.supports.is_none()).collect();
        assert!(matches!(&over[..], [one] if one.text.starts_with("Later PDUs")), "{over:?}");
        assert_eq!(over[0].verdict(), "not measured");
        let counted = format!("Of {} claims", all.len() - 1);
        assert!(report.verdict().starts_with(&counted), "{}", report.verdict());
        let profile = &report.sections[0].conclusions[0].text;
        assert!(!profile.contains(" 0/"), "the protocol of a PDU was measured: {profile}");
    }
}
