// SPDX-License-Identifier: Apache-2.0 OR MIT
//! docs/STUDIES.md: each figure and table of the five studies and of the comparison with other
//! targets, theirs and ours, from the catalogue of the laboratory and from the results that it
//! wrote.

use std::fmt::Write;

use anyhow::Context;
use anyhow::Result;
use serde_json::Value;

use crate::judge;
use crate::workspace;

/// The words of the pages that a run writes.
#[path = "../../crates/lab/src/tally.rs"]
mod tally;

const CATALOGUE: &str = "crates/lab/src/catalogue.tsv";
const PAGE: &str = "docs/STUDIES.md";

/// The studies with their names in words, in the order of the page.
const STUDIES: [(&str, &str); 6] = [
    ("fast05", "FAST05: the fast path of an initiator (Joglekar et al., FAST 2005)"),
    ("forth", "FORTH: disks of commodity targets (Xinidis et al., 2005)"),
    ("unh", "UNH: iSCSI over RDMA (Burns, 2008)"),
    ("amp", "AMP: a polling core for the network (Foong et al., 2005)"),
    ("ibm", "IBM: SCSI over TCP, raw Ethernet and Fibre Channel (Menon and Fuente, 2000)"),
    ("peers", "Peers: beside other targets, which is no study but a comparison of this project's"),
];

const HEAD: &str = "\
# The studies

<!-- made by `cargo xtask studies` from crates/lab/src/catalogue.tsv and docs/*.json -->

Every figure and table of the five studies that this project implements, and of the comparison \
with other targets that it runs the same way: what was measured \
there and how, what the study says of it, what was measured here, and the verdict.

To run them on your machine, each in less than three minutes (`--quick`, \
the default; `--smoke`: seconds, whose figures say little; `--full`: all, up to half an hour \
each), while the machine does nothing else:

    lunwire lab list
    lunwire lab run amp
    lunwire lab run all --out reports
    lunwire lab report --out reports
    lunwire lab report --compare docs/amp.json reports/amp/results.json

A run prints its tables and writes a page with pictures; `report` joins the pages of a folder, or \
sets two runs of a study side by side.

A claim *holds* where the interval in which the median lies is on the claim's side of its bound, \
*no longer* where it is on the other, *in part* where some of its cases are so and some so.
*The spread hides it* where the bound is within the interval of more than a third of its cases, \
or where there were fewer than three runs; *cannot be tested here* says what it needs.

Verdicts are computed from the repetitions of a run by rules that are the same for all \
(`crates/lab/src/verdict.rs` has them and their tests). Cases that are hidden and are no \
more than a third decide nothing. Where the cases of a claim do not all say the same, it is told \
how many say *yes*, how many *no*, and of how many the spread *hides* it; what stands under *ours* \
is their median or their range. A figure's own verdict, in bold, is by the same rule, of the cases \
of all its claims. The page that a run writes \
tells every case. Rows that begin \
with *ours* are no figure of the study, but what was measured beside it. Drawings, of which \
nothing can be measured, stand below each table.
";

/// Writes the page.
pub(crate) fn write() -> Result<()> {
    Ok(std::fs::write(workspace::root().join(PAGE), page(&read)?)?)
}

/// What keeps the page from saying what the results do.
pub(crate) fn problems() -> Result<Vec<String>> {
    let made = page(&read)?;
    let stale = read(PAGE).ok().is_none_or(|written| written != made);
    let problem = || format!("{PAGE}: is stale; run: cargo xtask studies");
    Ok(stale.then(problem).into_iter().collect())
}

/// Fails where the page is stale.
pub(crate) fn check() -> Result<()> {
    judge("studies", &problems()?)
}

fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(workspace::root().join(path)).with_context(|| format!("no {path}"))
}

/// The page, from files that `read` gives.
fn page(read: &dyn Fn(&str) -> Result<String>) -> Result<String> {
    let catalogue = read(CATALOGUE)?;
    let mut page = HEAD.to_owned();
    for (study, title) in STUDIES {
        let results = match read(&format!("docs/{study}.json")) {
            Ok(text) => {
                serde_json::from_str(&text).with_context(|| format!("docs/{study}.json"))?
            }
            Err(_) => Value::Null,
        };
        push_study(&mut page, &catalogue, (study, title), &results)?;
    }
    Ok(page)
}

fn push_study(
    page: &mut String,
    catalogue: &str,
    (study, title): (&str, &str),
    results: &Value,
) -> Result<()> {
    writeln!(page, "\n## {title}\n")?;
    if let Some(figures) = results["figures"].as_array() {
        let summary = tally::tally(figures);
        let machine = results["machine"].as_object().into_iter().flatten();
        let machine = machine.map(|(name, value)| format!("{name} {}", words(value)));
        let machine = machine.collect::<Vec<_>>().join(", ");
        let [variation, steal] = ["variation_percent", "steal_percent"]
            .map(|name| results["noise"][name].as_f64().unwrap_or(0.0));
        writeln!(
            page,
            "{summary} {machine}. Coefficient of variation {variation:.1} % at the median, \
             {steal:.1} % of the time stolen.\n"
        )?;
    }
    page.push_str("| | measured there | theirs | ours | verdict | command |\n");
    page.push_str("|---|---|---|---|---|---|\n");
    let mut drawings = Vec::new();
    for line in catalogue.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split('\t').collect();
        let [of, label, state, what] = fields[..] else { continue };
        match state {
            _ if of != study => {}
            "drawing" => drawings.push(label),
            "measured" if results["figures"].is_null() => {
                let (what, command) = (cell(what), format!("`lunwire lab run {study}`"));
                writeln!(page, "| {label} | {what} | | | not yet run here | {command} |")?;
            }
            "measured" => push_row(page, label, what, results)
                .with_context(|| format!("{study}: {label} is not in docs/{study}.json"))?,
            _ if named(results, label).is_some() => push_row(page, label, what, results)?,
            needs => {
                let what = cell(what);
                writeln!(page, "| {label} | {what} | | | not yet | {needs} |")?;
            }
        }
    }
    let figures = results["figures"].as_array().into_iter().flatten();
    for figure in figures.filter(|figure| figure["labels"].get(0).is_none()) {
        push_claims(page, "*ours*", words(&figure["title"]), figure, words(&results["command"]))?;
    }
    if !drawings.is_empty() {
        writeln!(page, "\nDrawings: {}.", drawings.join(", "))?;
    }
    Ok(())
}

/// The figure of a label.
fn named<'a>(results: &'a Value, label: &str) -> Option<&'a Value> {
    let names = |figure: &&Value| {
        figure["labels"].as_array().is_some_and(|labels| labels.iter().any(|one| one == label))
    };
    results["figures"].as_array()?.iter().find(names)
}

/// The row of a figure that was measured.
fn push_row(page: &mut String, label: &str, what: &str, results: &Value) -> Result<()> {
    let figure = named(results, label).context("no such figure")?;
    let command = words(&results["command"]);
    let first = figure["labels"].get(0).map_or("", words);
    if first == label {
        return push_claims(page, label, what, figure, command);
    }
    // It stands in the row of the first one already.
    let (shown, told) = (cell(what), format!("as {first}: one run is of both"));
    let verdict = words(&figure["verdict"]);
    writeln!(page, "| {label} | {shown} | {told} | | {verdict} | `{command}` |")?;
    Ok(())
}

/// The row of a figure with its claims.
fn push_claims(
    page: &mut String,
    label: &str,
    what: &str,
    figure: &Value,
    command: &str,
) -> Result<()> {
    let shown = cell(what);
    let claims = figure["claims"].as_array().context("no claims")?;
    let numbered = |of: &dyn Fn(&Value) -> String| {
        let all = (1..).zip(claims);
        let told = all.map(|(number, claim)| match claims.len() {
            1 => of(claim),
            _ => format!("({number}) {}", of(claim)),
        });
        cell(&told.collect::<Vec<_>>().join("<br>"))
    };
    let [theirs, ours] =
        ["theirs", "ours"].map(|name| numbered(&|claim| words(&claim[name]).into()));
    let verdicts = numbered(&|claim| {
        let cases = tally::cases(claim).map(|cases| format!(": {cases}")).unwrap_or_default();
        format!("{}{cases}", words(&claim["verdict"]))
    });
    let verdict = match claims.len() {
        1 => verdicts,
        _ => format!("**{}**<br>{verdicts}", words(&figure["verdict"])),
    };
    writeln!(page, "| {label} | {shown} | {theirs} | {ours} | {verdict} | `{command}` |")?;
    Ok(())
}

fn words(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Text within a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;

    const ROWS: &str = "\
# head
amp\tFigure 1\tdrawing\ta
amp\tFigure 3\tmeasured\tb
amp\tFigure 4\tmeasured\tc
ibm\tT\tneeds root\tc
";

    fn with(results: &str) -> Result<String> {
        page(&|path| match path {
            CATALOGUE => Ok(ROWS.to_owned()),
            "docs/amp.json" => Ok(results.to_owned()),
            _ => bail!("no file"),
        })
    }

    /// Who opens the page knows how to have it again and how to read it before the first table.
    #[test]
    fn it_begins_with_how_to_run_and_to_read() {
        let page = with("{}").unwrap();
        let head = page.split("\n## ").next().unwrap();
        for words in [
            "\n    lunwire lab list\n",
            "\n    lunwire lab run amp\n",
            "\n    lunwire lab report --compare ",
            "\nA claim *holds* where",
            "*no longer* where",
        ] {
            assert!(head.contains(words), "{words} in {head}");
        }
        let reading = head.lines().position(|line| line.starts_with("A claim *holds*"));
        assert!(reading.is_some_and(|line| line < 25), "{head}");
    }

    #[test]
    fn each_figure_has_a_row() {
        let results = r#"{"command": "run amp", "figures": [{"labels": ["Figure 3",
            "Figure 4"], "verdict": "holds in part", "claims": [{"theirs": "x|y", "ours": "z",
            "verdict": "holds", "tests": [{"answer": "yes"}, {"answer": "yes"},
            {"answer": "hidden"}]}, {"theirs": "v", "ours": "w", "verdict": "no longer"}]}]}"#;
        let page = with(results).unwrap();
        let row = "| Figure 3 | b | (1) x\\|y<br>(2) v | (1) z<br>(2) w | **holds in \
                   part**<br>(1) holds: 2 yes, 1 hidden<br>(2) no longer | `run amp` |\n";
        assert!(page.contains(row), "{page}");
        let other =
            "| Figure 4 | c | as Figure 3: one run is of both | | holds in part | `run amp` |\n";
        assert!(page.contains(other), "{page}");
        let summary =
            "Figures and tables, 2: 2 hold in part. What they claim, 2: 1 hold, 1 hold no longer.";
        assert!(page.contains(summary), "{page}");
        assert!(page.contains("Drawings: Figure 1."), "{page}");
        assert!(page.contains("| T | c | | | not yet | needs root |"), "{page}");
    }

    #[test]
    fn what_is_measured_and_has_no_results_fails() {
        assert!(with(r#"{"figures": []}"#).is_err());
        let without = with("{}").unwrap();
        assert!(
            without.contains("| Figure 3 | b | | | not yet run here | `lunwire lab run amp` |")
        );
    }
    /// The number after `before`.
    fn number_after(text: &str, before: &str) -> Option<usize> {
        let (_, rest) = text.split_once(before)?;
        rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
    }

    #[test]
    fn each_head_counts_what_its_table_lists() {
        let page = page(&read).unwrap();
        let mut seen = 0;
        for study in page.split("\n## ").skip(1) {
            let rows: Vec<Vec<&str>> = study
                .lines()
                .filter(|line| line.starts_with("| ") && !line.starts_with("| | measured"))
                .map(|row| row.split(" | ").collect())
                .collect();
            // A verdict for each claim, and nothing where another row has them.
            let claims = |row: &Vec<&str>| match row
                .iter()
                .any(|cell| cell.ends_with(": one run is of both"))
            {
                true => 0,
                false => row[row.len() - 2].matches("<br>").count().max(1),
            };
            let Some(figures) = number_after(study, "Figures and tables, ") else { continue };
            assert_eq!(figures, rows.len(), "{study}");
            let claimed = number_after(study, "What they claim, ");
            assert_eq!(claimed, Some(rows.iter().map(claims).sum()), "{study}");
            seen += 1;
        }
        assert_eq!(seen, STUDIES.len());
    }
}
