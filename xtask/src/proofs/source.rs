// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds in a source file what a mutant changes, and the function whose body has it.

use std::ops::Range;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;

use crate::lexer;
use crate::proofs::table::Change;

/// A file, character by character.
#[derive(Debug)]
pub(crate) struct Source {
    /// As it is.
    pub(crate) text: Vec<char>,
    functions: Vec<Function>,
    /// What of it is there for tests alone.
    tests: Vec<Range<usize>>,
}

/// A function with a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    /// From the line of `fn` to the end of the body.
    whole: Range<usize>,
    /// With its braces.
    pub(crate) body: Range<usize>,
    /// The word `const` of a `const fn`, which cannot ask for the number: it loses the word, and
    /// is built alone where somebody needs a constant.
    pub(crate) constant: Option<Range<usize>>,
    /// Whether its body can be a choice of several: not where it returns `impl`, since each would
    /// be of a type of its own.
    can_choose: bool,
}

/// What stands in place of some characters of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Edit {
    pub(crate) place: Range<usize>,
    pub(crate) text: String,
}

impl Source {
    pub(crate) fn new(text: &str) -> Self {
        let text: Vec<char> = text.chars().collect();
        let string: String = text.iter().collect();
        let code = lexer::split(&string).code;
        let code: Vec<char> = code.join("\n").chars().collect();
        let (functions, tests) = (functions(&code), items_of_tests(&code));
        Self { text, functions, tests }
    }

    /// The edit that a change means, reduced to what differs.
    pub(crate) fn edit(&self, change: &Change, function: Option<&str>) -> Result<Edit> {
        let place = self.place(change, function)?;
        if place.iter().any(|at| self.tests.iter().any(|item| item.contains(at))) {
            bail!("what it changes is a test");
        }
        let from: Vec<char> = place.iter().filter_map(|at| self.text.get(*at)).copied().collect();
        let to: Vec<char> = change.to.join("\n").chars().collect();
        let equal = |(a, b): &(&char, &char)| a == b;
        let head = from.iter().zip(&to).take_while(equal).count();
        let rest = from.len().min(to.len()) - head;
        let tail = from.iter().rev().zip(to.iter().rev()).take(rest).take_while(equal).count();
        let text = to.get(head..to.len() - tail).unwrap_or_default().iter().collect();
        let differs = place.get(head..place.len() - tail).unwrap_or_default();
        let place = match (differs.first(), differs.last()) {
            (Some(first), Some(last)) => *first..*last + 1,
            _ => {
                // Something is added, and nothing is taken away.
                let at = head.checked_sub(1).and_then(|at| place.get(at)).map(|at| at + 1);
                let at = at.or_else(|| place.first().copied()).context("an empty place")?;
                at..at
            }
        };
        Ok(Edit { place, text })
    }

    /// Where each character of the change stands, a line end between two lines; once.
    fn place(&self, change: &Change, function: Option<&str>) -> Result<Vec<usize>> {
        let lines = self.lines();
        let within = |places: &Vec<usize>| match function {
            None => true,
            Some(name) => self.functions.iter().any(|one| {
                one.name == name && places.iter().all(|place| one.whole.contains(place))
            }),
        };
        let wanted: Vec<Vec<char>> =
            change.from.iter().map(|line| line.chars().collect()).collect();
        let is_there = |window: &&[Range<usize>]| {
            let pairs = window.iter().zip(&wanted);
            pairs.into_iter().all(|(line, wanted)| self.text.get(line.clone()) == Some(wanted))
        };
        let whole = lines.windows(wanted.len()).filter(is_there).map(|window| {
            let mut places = Vec::new();
            for line in window {
                if let Some(last) = places.last_mut().filter(|_| !line.is_empty()) {
                    // The end of the line before; it has one, or there would be none behind it.
                    let end = self.line_end(*last);
                    places.push(end);
                }
                places.extend(line.clone());
            }
            places
        });
        let mut found: Vec<Vec<usize>> = whole.filter(within).collect();
        if let ([], [part]) = (found.as_slice(), wanted.as_slice()) {
            let starts = 0..self.text.len().saturating_sub(part.len());
            let parts = starts
                .filter(|start| self.text.get(*start..start + part.len()) == Some(part))
                .map(|start| (start..start + part.len()).collect());
            found = parts.filter(within).collect();
        }
        match (found.len(), function) {
            (1, _) => found.pop().context("one place"),
            (0, None) => bail!("what it changes is not there: {}", change.from.join(" / ")),
            (0, Some(name)) => {
                bail!("what it changes is not in a function {name}: {}", change.from.join(" / "))
            }
            (many, None) => bail!("what it changes is there {many} times: name the function"),
            (many, Some(name)) => {
                bail!("what it changes is {many} times in {name}: say more of it")
            }
        }
    }

    /// Each line without the spaces around it.
    fn lines(&self) -> Vec<Range<usize>> {
        let mut lines = Vec::new();
        let mut start = 0;
        for line in self.text.split(|c| *c == '\n') {
            let blanks = line.iter().take_while(|c| c.is_whitespace()).count();
            let tail = line.iter().rev().take_while(|c| c.is_whitespace()).count();
            let end = (start + line.len() - tail).max(start + blanks);
            lines.push(start + blanks..end);
            start += line.len() + 1;
        }
        lines
    }

    fn line_end(&self, at: usize) -> usize {
        let rest = self.text.get(at..).unwrap_or_default();
        at + rest.iter().take_while(|c| **c != '\n').count()
    }

    /// The outermost function whose body has this place; None: there is none, or its body cannot
    /// be a choice.
    pub(crate) fn function_around(&self, place: &Range<usize>) -> Option<&Function> {
        let is_around = |one: &&Function| one.body.start < place.start && place.end < one.body.end;
        let outermost = self.functions.iter().find(is_around)?;
        outermost.can_choose.then_some(outermost)
    }

    /// The text of a range with edits in it.
    pub(crate) fn edited(&self, range: Range<usize>, edits: &[&Edit]) -> String {
        let mut edits: Vec<&Edit> = edits.to_vec();
        edits.sort_by_key(|edit| edit.place.start);
        let (mut text, mut at) = (String::new(), range.start);
        for edit in edits {
            text.extend(self.text.get(at..edit.place.start).unwrap_or_default());
            text.push_str(&edit.text);
            at = edit.place.end;
        }
        text.extend(self.text.get(at..range.end).unwrap_or_default());
        text
    }
}

/// Whether each bracket has its like, whatever else is wrong with the code.
pub(crate) fn is_balanced(text: &str) -> bool {
    let mut open = Vec::new();
    for character in lexer::split(text).code.iter().flat_map(|line| line.chars()) {
        match character {
            '(' => open.push(')'),
            '[' => open.push(']'),
            '{' => open.push('}'),
            ')' | ']' | '}' if open.pop() != Some(character) => return false,
            _ => {}
        }
    }
    open.is_empty()
}

/// Each item that only tests have, with its attributes.
fn items_of_tests(code: &[char]) -> Vec<Range<usize>> {
    const MARK: &str = "#[cfg(test)]";
    let mark: Vec<char> = MARK.chars().collect();
    let starts =
        (0..code.len()).filter(|at| code.get(*at..).is_some_and(|it| it.starts_with(&mark)));
    starts.map(|start| start..end_of_item(code, start + mark.len())).collect()
}

/// Behind an item: its body, or the end of its statement.
fn end_of_item(code: &[char], from: usize) -> usize {
    let mut depth = 0_usize;
    for (place, character) in code.iter().enumerate().skip(from) {
        match character {
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            ';' | '}' if depth == 0 => return place + 1,
            '{' if depth == 0 => return closing(code, place).map_or(code.len(), |end| end + 1),
            _ => {}
        }
    }
    code.len()
}

/// All functions with bodies, in the order in which they begin.
fn functions(code: &[char]) -> Vec<Function> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < code.len() {
        let length = word_at(code, at);
        if length == 2 && code.get(at..at + 2) == Some(&['f', 'n']) {
            found.extend(function_at(code, at));
        }
        at += length.max(1);
    }
    found
}

/// The length of the word that begins here.
fn word_at(code: &[char], at: usize) -> usize {
    let rest = code.get(at..).unwrap_or_default();
    rest.iter().take_while(|c| c.is_alphanumeric() || **c == '_').count()
}

const CONST: [char; 5] = ['c', 'o', 'n', 's', 't'];

/// Of the `fn` that stands at `at`; None: a type, or it has no body.
fn function_at(code: &[char], at: usize) -> Option<Function> {
    let blanks = code.get(at + 2..)?.iter().take_while(|c| c.is_whitespace()).count();
    let name_at = at + 2 + blanks;
    let name: String = code.get(name_at..name_at + word_at(code, name_at))?.iter().collect();
    if name.is_empty() || blanks == 0 {
        return None;
    }
    let mut depth = 0_usize;
    let mut place = name_at + name.len();
    let open = loop {
        match code.get(place)? {
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            ';' if depth == 0 => return None,
            '{' if depth == 0 => break place,
            _ => {}
        }
        place += 1;
    };
    let close = closing(code, open)?;
    let head: String = code.get(name_at..open)?.iter().collect();
    let returns = head.split_once("->").map_or("", |(_, returns)| returns);
    let before = code.get(..at)?.iter().rev().take_while(|c| !"{};]".contains(**c)).count();
    let constant = (at - before..at).find(|place| {
        let is_first = !code.get(place.wrapping_sub(1)).is_some_and(|c| c.is_alphanumeric());
        is_first && word_at(code, *place) == 5 && code.get(*place..place + 5) == Some(&CONST)
    });
    let constant = constant.map(|place| place..place + CONST.len());
    let can_choose = !has_word(returns, "impl");
    let line = code.get(..at)?.iter().rev().take_while(|c| **c != '\n').count();
    Some(Function {
        name,
        whole: at - line..close + 1,
        body: open..close + 1,
        constant,
        can_choose,
    })
}

/// The brace that closes the one at `open`.
fn closing(code: &[char], open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (offset, character) in code.get(open..)?.iter().enumerate() {
        match character {
            '{' => depth += 1,
            '}' if depth == 1 => return Some(open + offset),
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|token| token == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
impl A {
    /// Not fn f() {
    pub fn f(&self, x: [u8; 4]) -> bool {
        let brace = '{';
        fn inner() { one() }
        if self.a {
            two(\"}\");
        }
        same();
        self.b
    }

    const fn g(&self) -> u8 { same(); self.c }
    fn h(&self, _: fn(u8) -> u8) -> impl Iterator<Item = u8> { self.d() }
    fn none(&self);
    fn i(&self) -> u8 { self.same() }
}
#[cfg(test)]
fn helper(&self, x: [u8; 4]) -> u8 { four() }
fn last() { five() }
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    fn t() { three() }
}
";

    fn edit(from: &[&str], to: &[&str], function: Option<&str>) -> Result<Edit> {
        let lines = |lines: &[&str]| lines.iter().map(|&line| line.to_owned()).collect();
        Source::new(TEXT).edit(&Change { from: lines(from), to: lines(to) }, function)
    }

    /// The body with the edit in it; None: that has to be built alone.
    fn body(from: &[&str], to: &[&str], function: Option<&str>) -> Option<String> {
        let source = Source::new(TEXT);
        let edit = edit(from, to, function).unwrap();
        let function = source.function_around(&edit.place)?;
        Some(source.edited(function.body.clone(), &[&edit]))
    }

    #[test]
    fn lines_are_found_whatever_their_indentation() {
        let body = body(&["if self.a {", "two(\"}\");", "}"], &["two(\"}\");"], None).unwrap();
        assert!(body.starts_with("{\n        let brace") && body.ends_with("self.b\n    }"));
        assert!(
            body.contains("fn inner() { one() }\n        two(\"}\");\n        same();"),
            "{body}"
        );
        assert!(is_balanced(&body), "{body}");
    }

    #[test]
    fn a_part_of_a_line_will_do() {
        assert!(body(&["self.b"], &["!self.b"], None).unwrap().contains("        !self.b\n"));
        assert_eq!(body(&["self.same()"], &["0"], None).unwrap(), "{ 0 }");
        assert_eq!(
            body(&["fn i(&self) -> u8 { self.same() }"], &["fn i(&self) -> u8 { 1 }"], None)
                .unwrap(),
            "{ 1 }"
        );
    }

    #[test]
    fn lines_are_added_and_taken_away() {
        assert!(!body(&["same();"], &[], Some("f")).unwrap().contains("same"));
        let more = body(&["same();"], &["same();", "same();"], Some("f")).unwrap();
        assert_eq!(more.matches("same();").count(), 2, "{more}");
    }

    #[test]
    fn what_is_not_there_once_is_told() {
        for (from, function) in
            [("nothing", None), ("same", None), ("same();", Some("i")), ("three()", None)]
        {
            assert!(edit(&[from], &["x"], function).is_err(), "{from}");
        }
    }

    #[test]
    fn what_only_tests_have_is_no_product() {
        assert!(edit(&["four()"], &["x"], None).is_err());
        assert!(edit(&["three()"], &["x"], None).is_err());
        assert!(edit(&["five()"], &["x"], None).is_ok());
    }

    #[test]
    fn inner_functions_belong_to_the_outer_one() {
        assert!(body(&["one()"], &["1"], Some("inner")).unwrap().contains("let brace"));
    }

    #[test]
    fn what_cannot_be_a_choice_is_built_alone() {
        assert!(body(&["self.c"], &["0"], None).is_some());
        let source = Source::new(TEXT);
        let constant = source.functions.iter().find_map(|one| one.constant.clone()).unwrap();
        assert_eq!(source.text.get(constant), Some(CONST.as_slice()));
        assert_eq!(source.functions.iter().filter(|one| one.constant.is_some()).count(), 1);
        assert_eq!(body(&["self.d()"], &["0"], None), None);
        assert_eq!(body(&["fn none(&self);"], &["fn some(&self);"], None), None);
    }

    #[test]
    fn brackets_are_in_balance() {
        assert!(is_balanced("{ f([')']) } \"{\"") && !is_balanced("( [ ) ]"));
        assert!(!is_balanced("{ f( }") && !is_balanced("{") && !is_balanced("}"));
    }
}
