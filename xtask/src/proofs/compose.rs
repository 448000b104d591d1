// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Puts all mutants into one tree: the body of each function that one changes becomes a choice, by
//! the number that the process was started with.
//!
//! ```text
//! fn f() -> u8 { match ::mutant_switch::number() {
//! 17 => { the body as mutant 17 has it }
//! _ => { the body } } }
//! ```

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;

use crate::proofs::source;
use crate::proofs::source::Edit;
use crate::proofs::source::Function;
use crate::proofs::source::Source;
use crate::proofs::table::Mutant;
use crate::proofs::table::Subject;

/// Where a mutant may be: the product.
const PRODUCT: &str = "crates/";
/// Below it, what tests it.
const NO_PRODUCT: &[&str] = &["crates/conformance/", "crates/sim/", "crates/lab/"];
/// Of this, what its tests of the system break: the image of a Ceph that only it has.
const SIMULATED: &str = "crates/sim/src/rados";

/// Files and folders beside the sources of the product that have its tests.
const TESTS: &[&str] = &["tests", "tests.rs", "testing.rs"];

/// A mutant and where it changes its file.
#[derive(Debug)]
pub(crate) struct Placed<'a> {
    pub(crate) mutant: &'a Mutant,
    edits: Vec<Edit>,
    /// Whether it has to be built without others: it changes more than bodies of functions.
    pub(crate) alone: bool,
}

/// A file with mutants in it.
#[derive(Debug, Default)]
pub(crate) struct Composed {
    pub(crate) text: String,
    arms: Vec<Arm>,
    /// Functions that are no longer `const`, by name, with their mutants.
    constants: Vec<(String, Vec<u32>)>,
}

/// Which lines, counted from 1, are whose.
#[derive(Debug)]
struct Arm {
    lines: RangeInclusive<usize>,
    /// One: its own body. Several: what they have in common.
    numbers: Vec<u32>,
}

impl Composed {
    /// Who can be to blame for what is wrong in this line.
    pub(crate) fn at_line(&self, line: usize) -> &[u32] {
        let arms = self.arms.iter().filter(|arm| arm.lines.contains(&line));
        let closest = arms.min_by_key(|arm| arm.lines.end() - arm.lines.start());
        closest.map_or(&[], |arm| &arm.numbers)
    }

    /// The text of this line, if a mutant has put it there.
    pub(crate) fn line_of(&self, mutant: &Mutant, line: usize) -> Option<&str> {
        let text = self.text.lines().nth(line.checked_sub(1)?)?;
        let mut added = mutant.changes.iter().flat_map(|change| &change.to);
        let is_own = self.at_line(line) == [mutant.number];
        let is_added = added.any(|added| !added.is_empty() && text.contains(added.as_str()));
        (is_own && is_added).then_some(text)
    }

    /// Who has made a function variable that an error of the compiler names.
    pub(crate) fn named_in(&self, text: &str) -> impl Iterator<Item = u32> {
        let names = |name: &str| {
            let is_word = |(at, _): (usize, &str)| {
                let before = text.get(..at).and_then(|head| head.chars().next_back());
                let after = text.get(at + name.len()..).and_then(|tail| tail.chars().next());
                let ends = |c: Option<char>| !c.is_some_and(|c| c.is_alphanumeric() || c == '_');
                ends(before) && ends(after)
            };
            text.match_indices(name).any(is_word)
        };
        let named = self.constants.iter().filter(move |(name, _)| names(name));
        named.flat_map(|(_, numbers)| numbers.iter().copied())
    }
}

/// Finds the place of each mutant; the texts of the files are kept in `sources`.
pub(crate) fn place<'a>(
    mutants: &'a [Mutant],
    sources: &mut BTreeMap<String, Source>,
    read: impl Fn(&str) -> Option<String>,
) -> (Vec<Placed<'a>>, Vec<String>) {
    let (mut placed, mut problems) = (Vec::new(), Vec::new());
    for mutant in mutants {
        if !sources.contains_key(&mutant.file)
            && let Some(text) = read(&mutant.file)
        {
            sources.insert(mutant.file.clone(), Source::new(&text));
        }
        match place_one(mutant, sources.get(&mutant.file)) {
            Ok(one) => placed.push(one),
            Err(error) => problems.push(format!("{}: {}: {error:#}", mutant.at, mutant.name)),
        }
    }
    (placed, problems)
}

fn place_one<'a>(mutant: &'a Mutant, source: Option<&Source>) -> Result<Placed<'a>> {
    let file = &mutant.file;
    let source = source.with_context(|| format!("there is no file {file}"))?;
    let is_product = file.starts_with(PRODUCT) && file.contains("/src/") && file.ends_with(".rs");
    let is_test = file.split('/').any(|part| TESTS.contains(&part));
    let is_simulated = mutant.subject == Subject::System && file.starts_with(SIMULATED);
    let tests = NO_PRODUCT.iter().any(|folder| file.starts_with(folder)) && !is_simulated;
    if !is_product || is_test || tests {
        bail!("{file} is no source of the product");
    }
    let edits: Vec<Edit> = mutant
        .changes
        .iter()
        .map(|change| source.edit(change, mutant.function.as_deref()))
        .collect::<Result<_>>()?;
    let mut places: Vec<_> = edits.iter().map(|edit| &edit.place).collect();
    places.sort_by_key(|place| place.start);
    if places.windows(2).any(|pair| matches!(pair, [a, b] if a.end > b.start)) {
        bail!("changes the same place twice");
    }
    let whole = source.edited(0..source.text.len(), &edits.iter().collect::<Vec<_>>());
    if !source::is_balanced(&whole) {
        bail!("its brackets do not match");
    }
    let alone = edits.iter().any(|edit| source.function_around(&edit.place).is_none());
    Ok(Placed { mutant, edits, alone })
}

/// The file of a mutant with it alone.
pub(crate) fn alone(placed: &Placed<'_>, source: &Source) -> String {
    source.edited(0..source.text.len(), &placed.edits.iter().collect::<Vec<_>>())
}

/// The files of those that can be together.
pub(crate) fn together(
    placed: &[&Placed<'_>],
    sources: &BTreeMap<String, Source>,
) -> BTreeMap<String, Composed> {
    let mut files: BTreeMap<&str, Vec<&Placed<'_>>> = BTreeMap::new();
    for one in placed {
        files.entry(&one.mutant.file).or_default().push(one);
    }
    let compose = |(file, placed): (&str, Vec<&Placed<'_>>)| {
        let source = sources.get(file)?;
        Some((file.to_owned(), compose_file(source, &placed)))
    };
    files.into_iter().filter_map(compose).collect()
}

fn compose_file(source: &Source, placed: &[&Placed<'_>]) -> Composed {
    // By the beginning of the body: the function, and the edits of each mutant.
    let mut bodies: BTreeMap<usize, (&Function, BTreeMap<u32, Vec<&Edit>>)> = BTreeMap::new();
    for one in placed {
        for edit in &one.edits {
            let Some(function) = source.function_around(&edit.place) else { continue };
            let body = bodies.entry(function.body.start);
            let (_, choices) = body.or_insert_with(|| (function, BTreeMap::new()));
            choices.entry(one.mutant.number).or_default().push(edit);
        }
    }
    let mut composed = Composed::default();
    let mut at = 0;
    for (start, (function, choices)) in bodies {
        let end = function.body.end;
        let variable = function.constant.clone().map(|place| Edit { place, text: String::new() });
        composed.push(&source.edited(at..start, &variable.iter().collect::<Vec<_>>()));
        let first = composed.line();
        composed.push("{ match ::mutant_switch::number() {\n");
        for (number, edits) in &choices {
            let line = composed.line();
            let body = source.edited(start..end, edits);
            composed.push(&format!("{number} => {body}\n"));
            let last = composed.line() - 1;
            composed.arms.push(Arm { lines: line..=last, numbers: vec![*number] });
        }
        composed.push(&format!("_ => {} }} }}", source.edited(start..end, &[])));
        let numbers: Vec<u32> = choices.into_keys().collect();
        if variable.is_some() {
            composed.constants.push((function.name.clone(), numbers.clone()));
        }
        let last = composed.line();
        composed.arms.push(Arm { lines: first..=last, numbers });
        at = end;
    }
    composed.push(&source.edited(at..source.text.len(), &[]));
    composed
}

impl Composed {
    fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// In which line the next character stands.
    fn line(&self) -> usize {
        self.text.matches('\n').count() + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proofs::table;
    use crate::workspace::File;

    const FILE: &str = "crates/a/src/b.rs";
    const TEXT: &str = "\
const LIMIT: u8 = 3;
pub const fn f(a: u8) -> u8 {
    a + 1
}
fn g() -> u8 {
    let b = f(1);
    b * LIMIT
}
";

    /// The mutants of a table, put into one file.
    fn composed(blocks: &str) -> (Vec<Mutant>, Composed, Vec<bool>) {
        let path = "conformance/mutants/A.txt".to_owned();
        let (mutants, problems) = table::mutants(&[File { path, text: blocks.to_owned() }]);
        assert_eq!(problems, [""; 0]);
        let mut sources = BTreeMap::new();
        let (placed, problems) = place(&mutants, &mut sources, |_| Some(TEXT.to_owned()));
        assert_eq!(problems, [""; 0]);
        let alone = placed.iter().map(|one| one.alone).collect();
        let fit: Vec<&Placed<'_>> = placed.iter().filter(|one| !one.alone).collect();
        let composed = together(&fit, &sources).remove(FILE).unwrap_or_default();
        drop(placed);
        (mutants, composed, alone)
    }

    fn blocks(mutants: &[&str]) -> String {
        let block = |text: &&str| format!("A-01 {FILE}\n{text}\n\n");
        mutants.iter().map(block).collect()
    }

    #[test]
    fn a_body_becomes_a_choice() {
        let (mutants, composed, _) = composed(&blocks(&["- b * LIMIT\n+ b"]));
        let number = mutants[0].number;
        let body = "{\n    let b = f(1);\n    b";
        let wanted = format!(
            "fn g() -> u8 {{ match ::mutant_switch::number() {{\n\
             {number} => {body}\n}}\n_ => {body} * LIMIT\n}} }} }}\n"
        );
        let text = composed.text.strip_prefix(&TEXT[..TEXT.find("fn g").unwrap()]).unwrap();
        assert_eq!(text, wanted);
    }

    #[test]
    fn several_in_a_function_are_one_choice_and_errors_have_an_owner() {
        let changes = ["- b * LIMIT\n+ b", "- let b = f(1);\n+ let b = 1;"];
        let (mutants, composed, _) = composed(&blocks(&changes));
        assert_eq!(composed.text.matches("match ::mutant").count(), 1);
        let line = |text: &str| {
            let at = composed.text.find(text).unwrap();
            composed.text[..at].matches('\n').count() + 1
        };
        assert_eq!(composed.at_line(line("let b = 1;")), [mutants[1].number]);
        let own = |mutant, line| composed.line_of(mutant, line).map(str::trim);
        assert_eq!(own(&mutants[1], line("let b = 1;")), Some("let b = 1;"));
        assert_eq!(own(&mutants[0], line("let b = 1;")), None);
        assert_eq!(own(&mutants[1], line("let b = 1;") + 1), None);
        let mut both = [mutants[0].number, mutants[1].number];
        both.sort_unstable();
        assert_eq!(composed.at_line(line("_ => ")), both);
        assert_eq!(composed.at_line(1), [0; 0]);
    }

    #[test]
    fn one_mutant_may_change_two_functions() {
        let (mutants, composed, _) = composed(&blocks(&["- a + 1\n+ a\n- b * LIMIT\n+ b + LIMIT"]));
        assert_eq!(composed.text.matches(&format!("\n{} => ", mutants[0].number)).count(), 2);
    }

    #[test]
    fn a_constant_function_becomes_variable() {
        let (mutants, composed, _) = composed(&blocks(&["- a + 1\n+ a"]));
        assert!(composed.text.contains("pub  fn f(a: u8) -> u8 { match"), "{}", composed.text);
        let blamed: Vec<u32> = composed.named_in("cannot call `f` in constants").collect();
        assert_eq!(blamed, [mutants[0].number]);
        assert_eq!(composed.named_in("cannot call `of` in constants").count(), 0);
    }

    #[test]
    fn what_is_in_no_body_is_built_alone() {
        let (_, composed, alone) =
            composed(&blocks(&["- const LIMIT: u8 = 3;\n+ const LIMIT: u8 = 4;"]));
        assert_eq!((alone, composed.text.as_str()), (vec![true], ""));
    }

    #[test]
    fn what_has_no_place_is_told() {
        let told = |file: &str, change: &str| {
            let path = "conformance/mutants/A.txt".to_owned();
            let text = format!("A-01 {file}\n{change}\n");
            let (mutants, _) = table::mutants(&[File { path, text }]);
            let read = |file: &str| (!file.contains("gone")).then(|| TEXT.to_owned());
            place(&mutants, &mut BTreeMap::new(), read).1.len()
        };
        assert_eq!(told(FILE, "- b * LIMIT\n+ b"), 0);
        assert_eq!(told("crates/a/src/gone.rs", "- b * LIMIT\n+ b"), 1);
        assert_eq!(told("crates/a/tests/b.rs", "- b * LIMIT\n+ b"), 1);
        assert_eq!(told("crates/conformance/src/b.rs", "- b * LIMIT\n+ b"), 1);
        assert_eq!(told("crates/a/src/b/tests.rs", "- b * LIMIT\n+ b"), 1);
        assert_eq!(told("crates/a/src/b/tests/c.rs", "- b * LIMIT\n+ b"), 1);
        assert_eq!(told(FILE, "- b * LIMIT\n+ (b"), 1);
        assert_eq!(told(FILE, "- b * LIMIT\n+ b\n- LIMIT\n+ 2"), 1);
    }
}
