// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The part of README.md that tells what works: counted from the requirements and their tests.

use std::fmt::Write;

use anyhow::Context;
use anyhow::Result;

use crate::catalogue::Part;
use crate::catalogue::ROLES;

/// The part of README.md that is generated stands between these lines.
const BEGIN: &str = "<!-- works: begin (cargo xtask compliance) -->\n";
const END: &str = "<!-- works: end -->";

/// What the groups of the catalogue are about, in the order of the table.
const GROUPS: [(&str, &[&str]); 13] = [
    ("names, sessions and the ISID rule", &["NAM", "SES"]),
    ("login and text negotiation", &["LGN", "NEG", "KEY", "OBS", "TXT"]),
    ("discovery by SendTargets", &["DIS"]),
    ("CHAP", &["CHP"]),
    ("command numbering and the window", &["CMD", "STS", "DSN"]),
    ("PDU format, digests, rejects", &["FMT", "DGT", "REJ", "PER"]),
    ("reads, writes, residuals", &["SCC", "SRS", "DIN", "DOU", "R2T"]),
    ("task management", &["TMF"]),
    ("pings, asynchronous messages, logout", &["NOP", "ASY", "LGO"]),
    ("several connections, reinstatement, redirection", &["MCS", "TMO", "RDR", "CLR"]),
    ("error recovery levels 1 and 2", &["ERL", "SNK", "REA"]),
    ("FastAbort", &["FAB"]),
    ("RFC 7144", &["P44"]),
];

/// One requirement of a role: its id, and whether it is proven.
pub(crate) struct Requirement<'a> {
    pub(crate) id: &'a str,
    pub(crate) role: Part,
    pub(crate) proven: bool,
}

/// `readme` with the generated part made anew.
///
/// # Errors
/// If the lines that enclose the part are not there.
pub(crate) fn renew(readme: &str, requirements: &[Requirement<'_>]) -> Result<String> {
    let (head, rest) = readme.split_once(BEGIN).context("README.md has no line 'works: begin'")?;
    let (_, tail) = rest.split_once(END).context("README.md has no line 'works: end'")?;
    Ok(format!("{head}{BEGIN}{}{END}{tail}", table(requirements)))
}

fn table(requirements: &[Requirement<'_>]) -> String {
    let mut text = String::from("\n| MUST of RFC 7143 and 7144, proven | target | initiator |\n");
    text.push_str("|---|---|---|\n");
    for (title, prefixes) in GROUPS {
        let cells = ROLES.map(|role| {
            let of_group = requirements.iter().filter(|requirement| {
                let prefix = requirement.id.split_once('-').map(|(prefix, _)| prefix);
                requirement.role == role && prefix.is_some_and(|prefix| prefixes.contains(&prefix))
            });
            let proven = of_group.clone().filter(|requirement| requirement.proven).count();
            match of_group.count() {
                0 => "-".to_owned(),
                all => format!("{proven} of {all}"),
            }
        });
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| {title} | {} |", cells.join(" | "));
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_part_between_the_lines_is_made_anew() {
        let readme = format!("before\n{BEGIN}old\n{END}\nafter\n");
        let requirements = [
            Requirement { id: "NAM-01", role: Part::Target, proven: true },
            Requirement { id: "NAM-01", role: Part::Initiator, proven: false },
            Requirement { id: "SES-01", role: Part::Target, proven: false },
            Requirement { id: "FAB-01", role: Part::Target, proven: true },
        ];
        let new = renew(&readme, &requirements).unwrap();
        assert!(new.starts_with("before\n") && new.ends_with("\nafter\n"));
        assert!(new.contains("| names, sessions and the ISID rule | 1 of 2 | 0 of 1 |"));
        assert!(new.contains("| FastAbort | 1 of 1 | - |"));
        assert!(!new.contains("old"));
        assert_eq!(renew(&new, &requirements).unwrap(), new);
        assert!(renew("nothing", &requirements).is_err());
    }
}
