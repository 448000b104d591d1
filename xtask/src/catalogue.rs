// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The catalogue of requirements (conformance/iscsi.tsv) and what is not built yet
//! (conformance/not-yet.tsv).

use anyhow::Result;
use anyhow::bail;

/// Whose part of a requirement a test shows, or a mutant breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// The target's.
    Target,
    /// The initiator's.
    Initiator,
    /// Of code that both roles run: it counts for both.
    Shared,
}

impl Part {
    /// `T`, `I` or `S`.
    pub(crate) fn parse(word: &str) -> Option<Self> {
        match word {
            "T" => Some(Self::Target),
            "I" => Some(Self::Initiator),
            "S" => Some(Self::Shared),
            _ => None,
        }
    }

    /// As [`Part::parse`] reads it.
    pub(crate) fn letter(self) -> char {
        match self {
            Self::Target => 'T',
            Self::Initiator => 'I',
            Self::Shared => 'S',
        }
    }

    /// Whether it counts for this role.
    pub(crate) fn is_of(self, role: Self) -> bool {
        self == Self::Shared || self == role
    }
}

/// The roles, in the order of the tables.
pub(crate) const ROLES: [Part; 2] = [Part::Target, Part::Initiator];

/// How much is required.
pub(crate) const LEVELS: [&str; 3] = ["MUST", "SHOULD", "MAY"];

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
    /// Whether this role has to satisfy it.
    pub(crate) fn is_of(&self, role: Part) -> bool {
        self.role == "B" || self.role == role.letter().to_string()
    }

    /// Whether both have to.
    pub(crate) fn is_of_both(&self) -> bool {
        self.role == "B"
    }

    /// The roles that have to satisfy it.
    pub(crate) fn roles(&self) -> impl Iterator<Item = Part> {
        ROLES.into_iter().filter(|role| self.is_of(*role))
    }

    /// Whose part is meant where none is named: that of the only role; None: there are two.
    pub(crate) fn part_of(&self, named: Option<Part>) -> Option<Part> {
        named.or_else(|| Part::parse(&self.role))
    }

    /// `KEY-31/I`, or the id alone where only one role is meant.
    pub(crate) fn name_in(&self, role: Part) -> String {
        match self.is_of_both() {
            true => format!("{}/{}", self.id, role.letter()),
            false => self.id.clone(),
        }
    }
}

/// Requirements that have no test, and why.
#[derive(Debug)]
pub(crate) struct NotYet {
    /// An id, one with a role (`KEY-31/I`), or the beginning of ids and a `*`.
    pub(crate) pattern: String,
    /// Why.
    pub(crate) reason: String,
}

impl NotYet {
    /// Whether it speaks of this row in this role, and not only of its family.
    pub(crate) fn names(&self, row: &Row, role: Part) -> bool {
        match self.pattern.split_once('/') {
            Some((id, part)) => id == row.id && Part::parse(part) == Some(role),
            None => self.pattern == row.id,
        }
    }

    /// Whether it holds for this row in this role.
    pub(crate) fn holds_for(&self, row: &Row, role: Part) -> bool {
        match self.pattern.strip_suffix('*') {
            Some(beginning) => row.id.starts_with(beginning),
            None => self.names(row, role),
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
        if !matches!(*role, "T" | "I" | "B") {
            bail!("catalogue, line {number}: {role} is no role: T, I or B");
        }
        if !LEVELS.contains(level) {
            bail!("catalogue, line {number}: {level} is no level: MUST, SHOULD or MAY");
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
        assert!(rows[0].is_of(Part::Target) && rows[0].is_of(Part::Initiator));
        assert_eq!(rows[0].name_in(Part::Initiator), "LGN-05/I");
        assert!(parse_rows(&format!("{head}{row}{row}")).is_err());
        assert!(parse_rows(&format!("{head}LGN-05\t7143\n")).is_err());
        // A row that is of nobody, or asks for nothing, would be counted nowhere.
        for wrong in [row.replace("MUST", "Must"), row.replace("\tB\t", "\tb\t")] {
            assert!(parse_rows(&format!("{head}{wrong}")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn not_yet_lists_ids_and_families() {
        let row = |id: &str| {
            parse_rows(&format!("head\n{id}\t7143\t1\tB\tMAY\tx\ty\n")).unwrap().remove(0)
        };
        let text = "# why\n\nCHP-*\tno CHAP\nSNK-01\tno SNACK\nKEY-31/I\tnot ours\n";
        let list = parse_not_yet(text).unwrap();
        let (chap, target, initiator) = (row("CHP-12"), Part::Target, Part::Initiator);
        assert!(list[0].holds_for(&chap, target) && !list[0].names(&chap, target));
        assert!(list[1].names(&row("SNK-01"), initiator));
        assert!(!list[1].holds_for(&row("SNK-012"), target));
        assert!(list[2].names(&row("KEY-31"), initiator));
        assert!(!list[2].holds_for(&row("KEY-31"), target));
        assert!(parse_not_yet("CHP-*\n").is_err());
        assert!(parse_not_yet("CHP-*\t \n").is_err());
    }
}
