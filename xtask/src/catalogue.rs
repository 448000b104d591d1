// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The catalogue of requirements (conformance/iscsi.tsv) and what is not built yet
//! (conformance/not-yet.tsv).

use anyhow::Result;
use anyhow::bail;

/// One requirement of a standard.
#[derive(Debug)]
pub(crate) struct Row {
    /// Its name, for example `LGN-05`.
    pub(crate) id: String,
    /// `7143 11.7.4`.
    pub(crate) section: String,
    /// `T`arget, `I`nitiator or `B`oth.
    pub(crate) role: String,
    /// `MUST`, `SHOULD` or `MAY`.
    pub(crate) level: String,
    /// What is required.
    pub(crate) requirement: String,
}

impl Row {
    /// Whether the target role has to satisfy it; if not, the initiator role alone does.
    pub(crate) fn is_of_target(&self) -> bool {
        self.role != "I"
    }
}

/// Requirements that have no test, and why.
#[derive(Debug)]
pub(crate) struct NotYet {
    /// An id, or the beginning of ids and a `*`.
    pub(crate) pattern: String,
    /// Why.
    pub(crate) reason: String,
}

impl NotYet {
    /// Whether it speaks of this id, and not only of its family.
    pub(crate) fn names(&self, id: &str) -> bool {
        self.pattern == id
    }

    /// Whether it holds for this id.
    pub(crate) fn holds_for(&self, id: &str) -> bool {
        match self.pattern.strip_suffix('*') {
            Some(beginning) => id.starts_with(beginning),
            None => self.names(id),
        }
    }
}

/// Reads the catalogue: a head line, then seven fields a line.
pub(crate) fn parse_rows(text: &str) -> Result<Vec<Row>> {
    let mut rows: Vec<Row> = Vec::new();
    for (line, number) in text.lines().zip(1..).skip(1) {
        let fields: Vec<&str> = line.split('\t').collect();
        let [id, rfc, section, role, level, requirement, _how] = fields.as_slice() else {
            bail!("catalogue, line {number}: {} fields instead of 7", fields.len());
        };
        if rows.iter().any(|row| row.id == *id) {
            bail!("catalogue, line {number}: {id} for the second time");
        }
        rows.push(Row {
            id: (*id).to_owned(),
            section: format!("{rfc} {section}"),
            role: (*role).to_owned(),
            level: (*level).to_owned(),
            requirement: (*requirement).to_owned(),
        });
    }
    Ok(rows)
}

/// Reads the list of what is not built yet: pattern, tab, reason; `#` begins a comment line.
pub(crate) fn parse_not_yet(text: &str) -> Result<Vec<NotYet>> {
    let mut list = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match line.split_once('\t') {
            Some((pattern, reason)) if !reason.trim().is_empty() => {
                list.push(NotYet { pattern: pattern.to_owned(), reason: reason.trim().to_owned() })
            }
            _ => bail!("not-yet.tsv, line {number}: wanted an id or ABC-*, a tab and a reason"),
        }
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_seven_fields_and_unique_ids() {
        let head = "id\trfc\tsection\trole\tlevel\trequirement\thow_to_test\n";
        let row = "LGN-05\t7143\t6.2\tB\tMUST\tKeep one.\tSend two.\n";
        let rows = parse_rows(&format!("{head}{row}")).unwrap();
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].section, "7143 6.2");
        assert!(rows[0].is_of_target());
        assert!(parse_rows(&format!("{head}{row}{row}")).is_err());
        assert!(parse_rows(&format!("{head}LGN-05\t7143\n")).is_err());
    }

    #[test]
    fn not_yet_lists_ids_and_families() {
        let list = parse_not_yet("# why\n\nCHP-*\tno CHAP\nSNK-01\tno SNACK\n").unwrap();
        assert!(list[0].holds_for("CHP-12") && !list[0].names("CHP-12"));
        assert!(list[1].names("SNK-01") && !list[1].holds_for("SNK-012"));
        assert!(parse_not_yet("CHP-*\n").is_err());
        assert!(parse_not_yet("CHP-*\t \n").is_err());
    }
}
