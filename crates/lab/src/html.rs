// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pages without anything outside of them: of a study, and of all that were run.

use std::fmt::Write as _;

use control::words;

use crate::report::Report;
use crate::study::{Claim, Figure};

/// The page of a study.
pub(crate) fn page(report: &Report) -> String {
    let title = report.findings.title;
    let mut page = head(title);
    page.push_str(&reading(report.settings.effort.name() == SMOKE));
    page.push_str(&summary(report));
    for line in report.circumstances().iter().chain(&report.findings.preface) {
        let _ = writeln!(page, "<p>{}</p>", prose(line));
    }
    for (at, figure) in report.findings.figures.iter().enumerate() {
        push_figure(&mut page, at, report, figure);
    }
    page.push_str(FOOT);
    page
}

/// What stands before all else.
pub(crate) fn head(title: &str) -> String {
    let title = escape(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title>\n\
         <style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n"
    )
}

/// The effort whose figures say little.
pub(crate) const SMOKE: &str = "smoke";

/// How verdicts are to be read, in the words of docs/STUDIES.md.
pub(crate) fn reading(is_smoke: bool) -> String {
    let mut text = String::new();
    if is_smoke {
        text.push_str(
            "<p><b>A run of seconds (--smoke), to see that all works: its figures and verdicts say \
             little.</b></p>\n",
        );
    }
    text.push_str(
        "<p class=\"how\">A claim <i>holds</i> where the interval in which the median lies is on \
         the claim's side of its bound, holds <i>no longer</i> where it is on the other, and <i>in \
         part</i> where its cases differ. <i>The spread hides it</i> where the bound lies within \
         the interval of more than a third of its cases, or where there were fewer than three \
         runs. What <i>cannot be tested here</i> says what it needs.</p>\n",
    );
    text
}

pub(crate) const FOOT: &str = "</body></html>\n";

/// A verdict with its colour.
pub(crate) fn badge(verdict: &str) -> String {
    // A file may have any word in its place.
    let class: String = verdict
        .chars()
        .map(|letter| if letter.is_ascii_lowercase() { letter } else { '-' })
        .collect();
    format!("<b class=\"verdict {class}\">{}</b>", escape(verdict))
}

/// What came of it.
fn summary(report: &Report) -> String {
    let mut text = format!("<div id=\"summary\"><p><b>{}</b></p>\n<ul>\n", report.verdict());
    for (at, figure) in report.findings.figures.iter().enumerate() {
        let (title, badge) = (escape(&figure.title), badge(figure.verdict().name()));
        let _ = writeln!(text, "<li><a href=\"#s{at}\">{title}</a> {badge}</li>");
    }
    text.push_str("</ul></div>\n");
    text
}

fn push_figure(page: &mut String, at: usize, report: &Report, figure: &Figure) {
    let badge = badge(figure.verdict().name());
    let _ = writeln!(page, "<h2 id=\"s{at}\">{} {badge}</h2>", escape(&figure.title));
    for what in figure.measured_there(report.study.name) {
        let _ = writeln!(page, "<p class=\"how\">Measured there: {}.</p>", escape(what));
    }
    if !figure.method.is_empty() {
        let _ = writeln!(page, "<p class=\"how\">Here: {}</p>", prose(&figure.method));
    }
    for claim in &figure.claims {
        push_claim(page, claim);
    }
    for picture in &figure.pictures {
        let _ = writeln!(page, "<div class=\"wide\" tabindex=\"0\">{}</div>", picture.svg());
    }
    for table in &figure.tables {
        push_table(page, &table.head, &table.rows);
    }
    let _ = writeln!(page, "<p class=\"how\">Again: <code>{}</code></p>", report.command());
}

fn push_claim(page: &mut String, claim: &Claim) {
    let badge = badge(claim.verdict().name());
    let (theirs, ours) = (escape(&claim.theirs), escape(&claim.told()));
    let _ = writeln!(page, "<p>{badge} {theirs}<br>{ours}</p>");
    let reasons: Vec<String> =
        claim.reasons().iter().map(|reason| format!("<li>{}</li>", escape(reason))).collect();
    if !reasons.is_empty() {
        let reasons = reasons.concat();
        let cases = claim.cases().map(|cases| format!(": {cases}")).unwrap_or_default();
        let _ =
            writeln!(page, "<details><summary>why{cases}</summary><ul>{reasons}</ul></details>");
    }
}

pub(crate) fn push_table(page: &mut String, head: &[String], rows: &[Vec<String>]) {
    let row = |tag: &str, cells: &[String]| {
        let cells = cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell)));
        format!("<tr>{}</tr>\n", cells.collect::<String>())
    };
    page.push_str("<div class=\"wide\" tabindex=\"0\"><table>\n");
    page.push_str(&row("th", head));
    for cells in rows {
        page.push_str(&row("td", cells));
    }
    page.push_str("</table></div>\n");
}

/// Sentences; what stands between grave accents is a command or the like.
fn prose(text: &str) -> String {
    let escaped = escape(text);
    let parts: Vec<&str> = escaped.split('`').collect();
    if parts.len().is_multiple_of(2) {
        // One of them has no other.
        return escaped;
    }
    let tags = ["<code>", "</code>"].into_iter().cycle().map(Some);
    let tags = [None].into_iter().chain(tags);
    tags.zip(parts).map(|(tag, part)| format!("{}{part}", tag.unwrap_or(""))).collect()
}

/// Text that is no markup, and of which each letter is seen.
pub(crate) fn escape(text: &str) -> String {
    let text = words::shown(text);
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

const STYLE: &str = "body{font-family:sans-serif;max-width:56em;margin:2em auto;padding:0 1em;\
    line-height:1.4;color:#222;background:#fff}table{border-collapse:collapse;margin:1em 0}\
    th,td{border:1px solid #bbb;padding:.2em .6em;text-align:right}th{background:#eee}\
    a{color:#1f5fa8}.how{color:#555}.verdict{font-size:.85rem;border:1px solid;\
    border-radius:.3em;padding:0 .4em;white-space:nowrap}.holds{color:#176d2c}\
    .holds-in-part{color:#7a6200}.no-longer{color:#a3201a}\
    #summary{border-left:4px solid #1f5fa8;padding:.1em 1em}\
    div.wide{--paper:#fff;--edge:#0005;overflow-x:auto;\
    background:linear-gradient(to right,var(--paper) 40%,transparent) left/3em 100% local,\
    linear-gradient(to left,var(--paper) 40%,transparent) right/3em 100% local,\
    linear-gradient(to right,var(--edge),transparent) left/.8em 100% scroll,\
    linear-gradient(to left,var(--edge),transparent) right/.8em 100% scroll;\
    background-repeat:no-repeat}div.wide svg .bg{fill-opacity:0}\
    svg{max-width:100%;min-width:640px;height:auto;display:block;margin:1em 0}\
    details{margin:0 0 1em 1em}\
    td.left,th.left{text-align:left}\
    @media screen and (prefers-color-scheme:dark){body{color:#e4e4e4;background:#16181c}\
    div.wide{--paper:#16181c;--edge:#fff6}\
    a{color:#6aa9ee}th{background:#2a2d33}th,td{border-color:#4a4e55}.how{color:#a8a8a8}\
    .holds{color:#63c174}.holds-in-part{color:#d8bf45}.no-longer{color:#f0857d}}\
    @media print{body{max-width:none;margin:0}svg,table,p{break-inside:avoid}\
    h2{break-after:avoid}div.wide{overflow:visible;background:none}\
    svg{min-width:0}table{font-size:.8em}}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_between_grave_accents_is_code() {
        assert_eq!(prose("`a <b>` took 5 s"), "<code>a &lt;b&gt;</code> took 5 s");
        assert_eq!(prose("by `a` and `b`."), "by <code>a</code> and <code>b</code>.");
        assert_eq!(prose("a ` alone"), "a ` alone");
    }
}
