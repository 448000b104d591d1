// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The figures and tables of the studies: `catalogue.tsv`, of which `cargo xtask studies`
//! makes docs/STUDIES.md.

/// A figure or a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Published {
    pub(crate) study: &'static str,
    pub(crate) label: &'static str,
    /// What was measured and how; of a drawing, what it shows.
    pub(crate) what: &'static str,
    pub(crate) state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It is measured here.
    Measured,
    /// There is nothing to measure.
    Drawing,
    /// Not yet; what it needs.
    Lacking(&'static str),
}

const DATA: &str = include_str!("catalogue.tsv");

pub(crate) fn all() -> impl Iterator<Item = Published> {
    DATA.lines().filter(|line| !line.starts_with('#')).filter_map(parse)
}

pub(crate) fn of(study: &str) -> impl Iterator<Item = Published> {
    all().filter(move |one| one.study == study)
}

pub(crate) fn find(study: &str, label: &str) -> Option<Published> {
    of(study).find(|one| one.label == label)
}

fn parse(line: &'static str) -> Option<Published> {
    let mut fields = line.split('\t');
    let (study, label, state) = (fields.next()?, fields.next()?, fields.next()?);
    let what = fields.next().filter(|what| !what.is_empty())?;
    let state = match state {
        "measured" => State::Measured,
        "drawing" => State::Drawing,
        needs => State::Lacking(needs.strip_prefix("needs ")?),
    };
    Some(Published { study, label, what, state })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_can_be_read_and_stands_once() {
        let lines = DATA.lines().filter(|line| !line.starts_with('#'));
        for line in lines.clone() {
            assert!(parse(line).is_some(), "{line}");
        }
        let names: std::collections::BTreeSet<_> =
            all().map(|one| (one.study, one.label)).collect();
        assert_eq!(names.len(), lines.count());
        for study in ["fast05", "forth", "unh", "amp", "ibm", "peers"] {
            assert!(of(study).count() > 3, "{study}");
        }
    }
}
