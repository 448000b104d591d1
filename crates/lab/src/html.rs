// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A report as one page without anything outside of it.

use std::fmt::Write as _;

use crate::report::{Report, Section, Table};

/// The page.
pub(crate) fn page(report: &Report) -> String {
    let title = escape(&report.title);
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title>\n\
         <style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n"
    );
    page.push_str(&summary(report));
    for line in &report.preface {
        let _ = writeln!(page, "<p>{}</p>", escape(line));
    }
    for (at, section) in report.sections.iter().enumerate() {
        push_section(&mut page, at, section);
    }
    page.push_str("</body></html>\n");
    page
}

/// What came of it, before all else.
fn summary(report: &Report) -> String {
    let mut text = format!("<div id=\"summary\"><p><b>{}</b></p>\n<ul>\n", report.verdict());
    for (at, section) in report.sections.iter().enumerate() {
        let title = escape(&section.title);
        let _ = write!(text, "<li><a href=\"#s{at}\">{title}</a>");
        let verdicts = section.conclusions.iter().map(|one| {
            let verdict = one.verdict();
            let class = verdict.replace(' ', "-");
            format!(" <span class=\"{class}\"><b>{verdict}</b></span>")
        });
        text.extend(verdicts);
        text.push_str("</li>\n");
    }
    text.push_str("</ul></div>\n");
    text
}

fn push_section(page: &mut String, at: usize, section: &Section) {
    let _ = writeln!(page, "<h2 id=\"s{at}\">{}</h2>", escape(&section.title));
    for conclusion in &section.conclusions {
        let (verdict, text) = (conclusion.verdict(), escape(&conclusion.text));
        let class = verdict.replace(' ', "-");
        let _ = writeln!(page, "<p class=\"{class}\"><b>{verdict}</b>: {text}</p>");
    }
    for figure in &section.figures {
        page.push_str(&figure.svg());
    }
    for table in &section.tables {
        push_table(page, table);
    }
}

fn push_table(page: &mut String, table: &Table) {
    let row = |tag: &str, cells: &[String]| {
        let cells = cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell)));
        format!("<tr>{}</tr>\n", cells.collect::<String>())
    };
    page.push_str("<div class=\"wide\"><table>\n");
    page.push_str(&row("th", &table.head));
    for cells in &table.rows {
        page.push_str(&row("td", cells));
    }
    page.push_str("</table></div>\n");
}

/// Text that is no markup.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

const STYLE: &str = "body{font-family:sans-serif;max-width:56em;margin:2em auto;padding:0 1em;\
    line-height:1.4}table{border-collapse:collapse;margin:1em 0}th,td{border:1px solid #bbb;\
    padding:.2em .6em;text-align:right}th{background:#eee}.supported b{color:#176d2c}\
    .contradicted b{color:#a3201a}\
    body{color:#222;background:#fff}a{color:#1f5fa8}#summary{border-left:4px solid #1f5fa8;\
    padding:.1em 1em}div.wide{overflow-x:auto}\
    @media (prefers-color-scheme:dark){body{color:#e4e4e4;background:#16181c}a{color:#6aa9ee}\
    th{background:#2a2d33}th,td{border-color:#4a4e55}.supported b{color:#63c174}\
    .contradicted b{color:#f0857d}}svg{max-width:100%;height:auto;display:block;margin:1em 0}";
