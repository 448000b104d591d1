// SPDX-License-Identifier: Apache-2.0 OR MIT
//! docs/LESSONS.md names tests: each must exist, each lesson must have one.

use crate::workspace::File;

const DOCUMENT: &str = "docs/LESSONS.md";

/// Rows without a test, and tests that are not there.
pub(crate) fn problems(files: &[File]) -> Vec<String> {
    let Some(document) = files.iter().find(|file| file.path == DOCUMENT) else {
        return vec![format!("{DOCUMENT}: is missing")];
    };
    let mut problems = Vec::new();
    for (number, line) in (1..).zip(document.text.lines()) {
        let Some(tests) = last_cell(line) else { continue };
        let named: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        if named.is_empty() {
            problems.push(format!("{DOCUMENT}:{number}: a lesson without a test"));
        }
        let missing = named.iter().filter(|test| !exists(files, test));
        problems.extend(missing.map(|test| format!("{DOCUMENT}:{number}: no test `{test}`")));
    }
    problems
}

/// The last cell of a row of a table; None for its head and for other lines.
fn last_cell(line: &str) -> Option<&str> {
    let row = line.strip_prefix('|')?.strip_suffix('|')?;
    let (_, last) = row.rsplit_once('|')?;
    let last = last.trim();
    let is_head = last == "tests" || last.starts_with("---");
    (!is_head).then_some(last)
}

/// `FILE: FUNCTION`, a test in Rust or a check in a script.
fn exists(files: &[File], test: &str) -> bool {
    let Some((path, name)) = test.split_once(": ") else { return false };
    let heads = [format!("fn {name}("), format!("def {name}(")];
    let is_there = |file: &File| heads.iter().any(|head| file.text.contains(head));
    files.iter().any(|file| file.path == path && is_there(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(row: &str) -> Vec<String> {
        let text = format!("# Lessons\n\n| what | tests |\n|---|---|\n{row}\n");
        let file = |path: &str, text: &str| File { path: path.into(), text: text.into() };
        problems(&[
            file(DOCUMENT, &text),
            file("crates/a/src/b.rs", "#[test]\nfn good() {}\n"),
            file("interop/c", "def fine(target):\n"),
        ])
    }

    #[test]
    fn rows_name_tests_that_are_there() {
        assert!(check("| x | `crates/a/src/b.rs: good`, `interop/c: fine` |").is_empty());
        assert_eq!(check("| x | `crates/a/src/b.rs: goo` |").len(), 1);
        assert_eq!(check("| x | `crates/b.rs: good` |").len(), 1);
        assert_eq!(check("| x | `good` |").len(), 1);
        assert_eq!(check("| x | none |"), ["docs/LESSONS.md:5: a lesson without a test"]);
        assert_eq!(problems(&[]), ["docs/LESSONS.md: is missing"]);
    }
}
