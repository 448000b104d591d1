// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds the lines by which a test says which requirements it proves: `/// Covers: LGN-05,
//! KEY-31/I.` directly above a Rust test, `# Covers: LGN-05.` in a script of `interop/`. What holds
//! for both roles is named with the role that is shown to keep it.

use crate::built;
use crate::catalogue::Part;
use crate::lexer;
use crate::workspace::File;

/// One requirement named by one test.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Cover {
    /// The requirement.
    pub(crate) id: String,
    /// Whose part of it, where it says so.
    pub(crate) part: Option<Part>,
    /// `crates/iscsi/src/window.rs: name_of_the_test`.
    pub(crate) test: String,
}

const RUST_MARK: &str = "/// Covers:";
const SCRIPT_MARK: &str = "# Covers:";

/// The lines of a file with tests.
#[derive(Debug)]
pub(crate) struct Lines<'a> {
    whole: Vec<&'a str>,
    /// Without the spaces around them.
    pub(crate) text: Vec<&'a str>,
    /// Without comments and literals: a test in one of these is none.
    code: Vec<String>,
}

impl<'a> Lines<'a> {
    pub(crate) fn of(file: &'a File) -> Self {
        let whole: Vec<&str> = file.text.lines().collect();
        let text = whole.iter().map(|line| line.trim()).collect();
        let is_rust = file.path.ends_with(".rs");
        let code = if is_rust { lexer::split(&file.text).code } else { Vec::new() };
        Self { whole, text, code }
    }

    /// How many tests have this name.
    pub(crate) fn tests_called(&self, name: &str) -> usize {
        let marks = (0..self.text.len()).filter(|index| self.is_code(*index, "#[test]"));
        let names = marks.filter_map(|index| {
            let below = self.text.get(index + 1..)?.iter();
            below.take_while(|line| !line.is_empty()).find_map(|line| function_name(line, "fn "))
        });
        names.filter(|other| other == name).count()
    }

    fn is_code(&self, index: usize, word: &str) -> bool {
        self.code.get(index).is_some_and(|line| line.contains(word))
    }

    /// The first line of each attribute above a line, with comments between them.
    fn attributes_above(&self, at: usize) -> impl Iterator<Item = &str> {
        let above = self.text.get(..at).unwrap_or_default().iter().rev();
        let mut is_within = false;
        let is_above = move |line: &&&str| {
            let begins = line.starts_with(['#', '/']);
            // A long one has lines of its own, of which the last has its bracket.
            is_within = !begins && !line.is_empty() && (is_within || line.ends_with(']'));
            begins || is_within
        };
        above.take_while(is_above).copied()
    }

    /// Whether a module in the file itself that has this line may be left out.
    fn may_be_left_out(&self, index: usize) -> bool {
        let before = self.whole.get(..index).unwrap_or_default();
        let mut inner = self.whole.get(index).map_or(0, |line| indentation(line));
        for (at, line) in before.iter().enumerate().rev().filter(|(_, line)| !line.is_empty()) {
            if indentation(line) >= inner {
                continue;
            }
            inner = indentation(line);
            if self.attributes_above(at).any(built::is_condition) {
                return true;
            }
        }
        false
    }
}

fn indentation(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// All covers of a file, and lines that look like one and are none.
pub(crate) fn find(file: &File) -> (Vec<Cover>, Vec<String>) {
    let mut found = (Vec::new(), Vec::new());
    if !file.text.contains("# Covers:") && !file.text.contains(RUST_MARK) {
        return found;
    }
    let all = Lines::of(file);
    let lines = &all.text;
    for (index, line) in lines.iter().enumerate() {
        let test = if file.path.ends_with(".rs") && line.starts_with(RUST_MARK) {
            rust_test(&all, index)
        } else if file.path.starts_with("interop/") && line.starts_with(SCRIPT_MARK) {
            Some(script_test(lines, index))
        } else {
            continue;
        };
        let at = format!("{}:{}", file.path, index + 1);
        match (test, ids(lines, index)) {
            // Which one runs would be anybody's guess.
            (Some(test), _) if all.tests_called(&test) > 1 => {
                found.1.push(format!("{at}: there are several tests called {test}"));
            }
            (Some(test), Some(ids)) => found.0.extend(ids.into_iter().map(|(id, part)| {
                let test = if test.is_empty() {
                    file.path.clone()
                } else {
                    format!("{}: {test}", file.path)
                };
                Cover { id, part, test }
            })),
            (None, _) => found.1.push(format!("{at}: no #[test] that always runs below this line")),
            (_, None) => found.1.push(format!("{at}: wanted `Covers: ABC-01, ABC-02/T.`")),
        }
    }
    found
}

/// The ids between the mark and the full stop, which may be on a later comment line.
fn ids(lines: &[&str], index: usize) -> Option<Vec<(String, Option<Part>)>> {
    let mut text = String::new();
    for line in lines.get(index..)? {
        let body = line.strip_prefix("///").or_else(|| line.strip_prefix('#'))?.trim();
        text.push_str(body.strip_prefix("Covers:").unwrap_or(body).trim());
        if let Some(list) = text.strip_suffix('.') {
            return list.split(',').map(|word| id_and_part(word.trim())).collect();
        }
        text.push(' ');
    }
    None
}

/// `ABC-01`, `ABC-01a`, `ABC-01/T`.
pub(crate) fn id_and_part(word: &str) -> Option<(String, Option<Part>)> {
    let (id, part) = match word.split_once('/') {
        Some((id, part)) => (id, Some(Part::parse(part)?)),
        None => (word, None),
    };
    is_id(id).then(|| (id.to_owned(), part))
}

/// `ABC-01`: capitals and digits, a hyphen, digits; a small letter where a row has several clauses.
fn is_id(word: &str) -> bool {
    word.split_once('-').is_some_and(|(family, number)| {
        let number = number.strip_suffix(|c: char| c.is_ascii_lowercase()).unwrap_or(number);
        !family.is_empty()
            && !number.is_empty()
            && family.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit())
            && number.chars().all(|c| c.is_ascii_digit())
    })
}

/// Name of the function below, if a test attribute stands between, and nothing by which it may be
/// left out.
pub(crate) fn rust_test(lines: &Lines<'_>, index: usize) -> Option<String> {
    let mut attribute = false;
    for (at, line) in lines.text.iter().enumerate().skip(index + 1) {
        if built::is_condition(line) {
            return None;
        } else if line.starts_with("#[test]") {
            attribute = lines.is_code(at, "#[test]");
        } else if let Some(name) = function_name(line, "fn ") {
            return (attribute && !lines.may_be_left_out(index)).then_some(name);
        } else if !line.starts_with("///") && !line.starts_with("#[") && !line.starts_with("//") {
            return None;
        }
    }
    None
}

/// Name of the function below or of the one around it; empty when there is none.
fn script_test(lines: &[&str], index: usize) -> String {
    let below = lines.iter().skip(index + 1).find(|line| !line.starts_with('#'));
    below.and_then(|line| function_name(line, "def ")).unwrap_or_default()
}

fn function_name(line: &str, keyword: &str) -> Option<String> {
    let at = line.find(keyword)?;
    let head = line.get(..at)?;
    let plain = head.is_empty() || head.ends_with(' ') && !head.contains(['/', '"', '=']);
    let rest = line.get(at + keyword.len()..)?;
    let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    (plain && !name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find_in(path: &str, text: &str) -> (Vec<(String, String)>, usize) {
        let file = File { path: path.to_owned(), text: text.to_owned() };
        let (covers, problems) = find(&file);
        (covers.into_iter().map(|cover| (cover.id, cover.test)).collect(), problems.len())
    }

    #[test]
    fn a_rust_test_names_its_requirements() {
        let text = "    /// Covers: LGN-05, P44-01.\n    #[test]\n    fn one_at_a_time() {\n";
        let (covers, problems) = find_in("crates/a/src/b.rs", text);
        let test = "crates/a/src/b.rs: one_at_a_time".to_owned();
        assert_eq!(covers, [("LGN-05".into(), test.clone()), ("P44-01".into(), test)]);
        assert_eq!(problems, 0);
    }

    #[test]
    fn what_holds_for_both_roles_is_named_with_one() {
        let text = "/// Covers: KEY-31/T, KEY-24a/I, FMT-01/S, CMD-02b.\n#[test]\nfn x() {}\n";
        let file = File { path: "a.rs".to_owned(), text: text.to_owned() };
        let covers = find(&file).0.into_iter().map(|cover| (cover.id, cover.part));
        let wanted = [
            ("KEY-31", Some(Part::Target)),
            ("KEY-24a", Some(Part::Initiator)),
            ("FMT-01", Some(Part::Shared)),
            ("CMD-02b", None),
        ];
        assert!(covers.eq(wanted.map(|(id, part)| (id.to_owned(), part))));
    }

    #[test]
    fn the_list_may_go_on_in_the_next_line() {
        let text = "/// Covers: LGN-05,\n/// LGN-06.\n/// And prose.\n#[test]\nfn x() {}\n";
        assert_eq!(find_in("a.rs", text).0.len(), 2);
        let text = "/// Prose.\n/// Covers: LGN-05.\n#[should_panic]\n#[test]\nfn x() {}\n";
        assert_eq!(find_in("a.rs", text).0.len(), 1);
    }

    #[test]
    fn what_is_no_test_or_no_list_is_a_problem() {
        for text in [
            "/// Covers: LGN-05.\nfn helper() {}\n",
            "/// Covers: LGN-05\n#[test]\nfn x() {}\n",
            "/// Covers: LGN-05/B.\n#[test]\nfn x() {}\n",
            "/// Covers: LGN-05ab.\n#[test]\nfn x() {}\n",
            "/// Covers: LGN-a.\n#[test]\nfn x() {}\n",
            "/// Covers: login.\n#[test]\nfn x() {}\n",
            "/// Covers: LGN-05.\n\n#[test]\nfn x() {}\n",
            "/// Covers: LGN-05.\n#[test]\n#[ignore = \"slow\"]\nfn x() {}\n",
            "/// Covers: LGN-05.\n#[cfg(feature = \"a\")]\n#[test]\nfn x() {}\n",
            "/// Covers: LGN-05.\n#[test] #[ignore]\nfn x() {}\n",
            "/// Covers: LGN-05.\n#[test]\nfn x() {}\nmod a {\n    #[test]\n    fn x() {}\n}\n",
            "/*\n/// Covers: LGN-05.\n#[test]\nfn x() {}\n*/\n",
            "const A: &str = \"\n/// Covers: LGN-05.\n#[test]\nfn x() {}\n\";\n",
            "#[cfg(all(\n    unix,\n    feature = \"a\",\n))]\nmod off {\n    /// Covers: \
             LGN-05.\n    #[test]\n    fn x() {}\n}\n",
            "#[cfg(any())]\nmod off {\n    mod in {\n\n        /// Covers: LGN-05.\n        \
             #[test]\n        fn x() {}\n    }\n}\n",
        ] {
            assert_eq!(find_in("a.rs", text), (Vec::new(), 1), "{text}");
        }
    }

    #[test]
    fn a_module_of_tests_is_no_condition() {
        let text = "#[cfg(any())]\nfn off() {}\n\n#[cfg(test)]\nmod tests {\n    /// Covers: \
                    LGN-05.\n    #[test]\n    fn x() {}\n}\n";
        assert_eq!(find_in("a.rs", text).0.len(), 1);
    }

    #[test]
    fn scripts_of_interop_count() {
        let text = "# Covers: PER-03.\ndef random_bytes(server):\n";
        assert_eq!(find_in("interop/x", text).0[0].1, "interop/x: random_bytes");
        let text = "# Covers: PER-03.\nSUITES = 1\n";
        assert_eq!(find_in("interop/x", text).0[0].1, "interop/x");
        assert_eq!(find_in("scripts/x", text).0.len(), 0);
    }
}
