// SPDX-License-Identifier: Apache-2.0 OR MIT
//! No file uses one that uses it, straight or by way of others: each tree of modules has an order.
//!
//! A file uses another where it names the other's module: in `use`, or in a path in the code. What
//! a file declares by `mod` it does not use by that alone, so a file may stand above its children
//! or below them, but not both. Tests may use what they like.

use crate::lexer;
use crate::workspace::File;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::collections::VecDeque;

/// A tree of modules that is in order.
struct Tree {
    /// The folder of its files.
    folder: &'static str,
    /// The module that the folder is; empty for a whole crate.
    module: &'static str,
    /// Files, below the folder and without `.rs`, that count as one with the files of the folder of
    /// the same name: one object in parts.
    joined: &'static [&'static str],
}

/// The trees that are in order.
const TREES: &[Tree] = &[
    Tree { folder: "crates/iscsi/src/target_role", module: "target_role", joined: &["session"] },
    Tree { folder: "crates/target-node/src", module: "", joined: &["pump", "stores"] },
];

/// Every circle of every tree.
pub(crate) fn problems(files: &[File]) -> Vec<String> {
    TREES.iter().flat_map(|tree| problems_of(tree, files)).collect()
}

/// A module as it is named from the root of its crate.
type Module = Vec<String>;

/// Which file names which others, and by what.
type Uses = BTreeMap<String, BTreeMap<String, String>>;

fn problems_of(tree: &Tree, files: &[File]) -> Vec<String> {
    let modules = modules(tree, files);
    if modules.is_empty() {
        return vec![format!(
            "{}: is in order, says xtask/src/circles.rs, but is gone",
            tree.folder
        )];
    }
    let mut uses = Uses::new();
    for file in files {
        let Some((module, node)) = modules.get(file.path.as_str()) else { continue };
        let own = uses.entry(node.clone()).or_default();
        for path in paths(&file.text, module, &children(module, &modules)) {
            if let Some(used) = node_of(&path, &modules)
                && used != *node
            {
                own.entry(used).or_insert_with(|| path.join("::"));
            }
        }
    }
    circles(&uses)
}

/// The module and the node of each file of a tree; files of one object are one node.
fn modules<'a>(tree: &Tree, files: &'a [File]) -> BTreeMap<&'a str, (Module, String)> {
    let mut modules = BTreeMap::new();
    for file in files {
        let below = file.path.strip_prefix(tree.folder).and_then(|rest| rest.strip_prefix('/'));
        let Some(name) = below.and_then(|rest| rest.strip_suffix(".rs")) else { continue };
        let mut parts: Vec<&str> = name.split('/').collect();
        if parts.contains(&"tests") {
            continue;
        }
        if matches!(parts.last(), Some(&"mod" | &"lib" | &"main")) {
            parts.pop();
        }
        let is_part = |object: &&&str| parts.join("/").starts_with(&format!("{object}/"));
        let object = tree.joined.iter().find(is_part);
        let node = match object {
            Some(object) => format!("{}/{object}.rs", tree.folder),
            None => file.path.clone(),
        };
        let root = (!tree.module.is_empty()).then_some(tree.module);
        let module = root.into_iter().chain(parts).map(str::to_owned).collect();
        modules.insert(file.path.as_str(), (module, node));
    }
    modules
}

fn children(module: &Module, modules: &BTreeMap<&str, (Module, String)>) -> BTreeSet<String> {
    let of = |(other, _): &(Module, String)| {
        let (name, parent) = other.split_last()?;
        (parent == module.as_slice()).then(|| name.clone())
    };
    modules.values().filter_map(of).collect()
}

/// The file that holds what a path names: that of the longest module it begins with.
fn node_of(path: &[String], modules: &BTreeMap<&str, (Module, String)>) -> Option<String> {
    let begins = modules.values().filter(|(module, _)| path.starts_with(module));
    begins.max_by_key(|(module, _)| module.len()).map(|(_, node)| node.clone())
}

/// Every path in the code of a module that begins at a known place, from the root of the crate.
fn paths(text: &str, module: &Module, children: &BTreeSet<String>) -> Vec<Module> {
    let code = without_tests(&lexer::split(text).code);
    let tokens = tokens(&code);
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let before = at.checked_sub(1).and_then(|before| tokens.get(before));
        // `in` stands in `pub(in crate::a)`: who may use it, not what is used.
        let is_first = before.is_none_or(|before| before != "::" && before != "in");
        let is_path = tokens.get(at + 1).is_some_and(|next| next == "::");
        let base = match token.as_str() {
            "crate" => Some(Vec::new()),
            "self" => Some(module.clone()),
            "super" => module.split_last().map(|(_, parent)| parent.to_vec()),
            child if children.contains(child) => {
                Some(module.iter().cloned().chain([child.to_owned()]).collect())
            }
            _ => None,
        };
        at += 1;
        if let Some(base) = base.filter(|_| is_first && is_path) {
            at = follow(&tokens, at, base, &mut found);
        }
    }
    found
}

/// Reads what follows the beginning of a path, lists in braces too; gives where it ends.
fn follow(tokens: &[String], mut at: usize, mut path: Module, found: &mut Vec<Module>) -> usize {
    while tokens.get(at).is_some_and(|token| token == "::") {
        at += 1;
        match tokens.get(at).map(String::as_str) {
            Some("{") => {
                at += 1;
                while tokens.get(at).is_some_and(|token| token != "}") {
                    let name = tokens.get(at).cloned().unwrap_or_default();
                    at += 1;
                    if is_word(&name) {
                        let mut inner = path.clone();
                        if name != "self" {
                            inner.push(name);
                        }
                        at = follow(tokens, at, inner, found);
                    }
                }
                return at + 1;
            }
            Some("super") => {
                path.pop();
                at += 1;
            }
            Some(name) if is_word(name) => {
                path.push(name.to_owned());
                at += 1;
            }
            _ => break,
        }
    }
    found.push(path);
    at
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphanumeric() || c == '_')
}

/// Words, `::` and single other characters.
fn tokens(code: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let word = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let length = match word {
            0 if rest.starts_with("::") => 2,
            0 => first.len_utf8(),
            word => word,
        };
        let (token, after) = rest.split_at(length);
        tokens.push(token.to_owned());
        rest = after.trim_start();
    }
    tokens
}

/// The code without its test modules, which stand last in a file.
fn without_tests(lines: &[String]) -> String {
    let opens = |at: usize| {
        let next = lines.get(at + 1).map_or("", |line| line.trim());
        next.starts_with("mod ") && next.ends_with('{')
    };
    let mut marks = lines.iter().enumerate().filter(|(_, line)| line.trim() == "#[cfg(test)]");
    let end = marks.find(|(at, _)| opens(*at)).map_or(lines.len(), |(at, _)| at);
    lines.get(..end).unwrap_or(lines).join("\n")
}

/// One circle for each file that is in one, the shortest through it; each circle is told once.
fn circles(uses: &Uses) -> Vec<String> {
    let mut told = BTreeSet::new();
    let mut problems = Vec::new();
    for start in uses.keys() {
        if told.contains(start) {
            continue;
        }
        if let Some(circle) = shortest_circle(start, uses) {
            let steps = circle.windows(2).filter_map(|pair| match pair {
                [from, to] => uses.get(from)?.get(to).map(|by| format!("{from} uses {by}")),
                _ => None,
            });
            problems.push(format!("circle: {}", steps.collect::<Vec<_>>().join(", ")));
            told.extend(circle);
        }
    }
    problems
}

/// From `start` back to it, both ends included.
fn shortest_circle(start: &String, uses: &Uses) -> Option<Vec<String>> {
    let mut before: BTreeMap<&String, &String> = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(file) = queue.pop_front() {
        for next in uses.get(file)?.keys() {
            if next == start {
                let mut circle = vec![start.clone(), file.clone()];
                let mut at = file;
                while let Some(earlier) = before.get(at) {
                    circle.push((*earlier).clone());
                    at = earlier;
                }
                circle.reverse();
                return Some(circle);
            }
            if !before.contains_key(next) {
                before.insert(next, file);
                queue.push_back(next);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: Tree = Tree { folder: "c/src/role", module: "role", joined: &["session"] };

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let file = |(path, text): &(&str, &str)| File {
            path: format!("c/src/role/{path}"),
            text: (*text).to_owned(),
        };
        problems_of(&TREE, &files.iter().map(file).collect::<Vec<_>>())
    }

    #[test]
    fn an_order_is_no_circle() {
        let map = ("mod.rs", "mod a;\nmod b;\npub use b::B;\n");
        let a = ("a.rs", "pub struct A;\n");
        let b = ("b.rs", "use super::a::A;\nuse crate::other::C;\n");
        assert_eq!(found(&[map, a, b]), [""; 0]);
    }

    #[test]
    fn whoever_uses_the_map_is_in_a_circle() {
        let map = ("mod.rs", "mod a;\npub use a::A;\npub struct B;\n");
        for user in ["use super::B;\n", "use crate::role::B;\n", "fn f(_: super::B) {}\n"] {
            assert_eq!(found(&[map, ("a.rs", user)]).len(), 1, "{user}");
        }
        for text in ["// super::B\n", "pub(in crate::role) struct A;\n"] {
            assert_eq!(found(&[map, ("a.rs", text)]), [""; 0], "{text}");
        }
    }

    #[test]
    fn a_circle_by_way_of_others_is_named_once_and_whole() {
        let a = ("a.rs", "use super::{b::{self, B}, d::D};\n");
        let b = ("b.rs", "use crate::role::c::{C as Other};\n");
        let c = ("c/mod.rs", "fn f() { super::a::g() }\n");
        let d = ("d.rs", "");
        let circle = "circle: c/src/role/a.rs uses role::b, \
                      c/src/role/b.rs uses role::c::C, c/src/role/c/mod.rs uses role::a::g";
        assert_eq!(found(&[a, b, c, d]), [circle]);
    }

    #[test]
    fn children_stand_above_their_parent_or_below_it() {
        let child = ("a/b.rs", "use super::A;\n");
        assert_eq!(found(&[("a.rs", "mod b;\npub struct A;\n"), child]), [""; 0]);
        assert_eq!(found(&[("a.rs", "mod b;\nuse b::B;\npub struct A;\n"), child]).len(), 1);
        assert_eq!(found(&[("a.rs", "mod b;\nuse self::b::B;\n"), child]).len(), 1);
        let deep = ("a/b.rs", "use super::super::a::A;\n");
        assert_eq!(found(&[("a.rs", "mod b;\nfn f() { b::g() }\n"), deep]).len(), 1);
        assert_eq!(found(&[("a.rs", "mod b;\nuse b::B;\n"), ("a/b.rs", "")]), [""; 0]);
    }

    #[test]
    fn parts_of_one_object_count_as_one() {
        let session = ("session.rs", "mod life;\nuse life::Life;\nuse super::a::A;\n");
        let life = ("session/life.rs", "use super::Session;\nuse crate::role::a::A;\n");
        assert_eq!(found(&[session, life, ("a.rs", "")]), [""; 0]);
        assert_eq!(found(&[session, life, ("a.rs", "use super::session::Session;\n")]).len(), 1);
    }

    #[test]
    fn tests_use_what_they_like() {
        let a = ("a.rs", "use super::b::B;\n");
        let b = ("b.rs", "fn f() {}\n#[cfg(test)]\nmod tests {\n    use crate::role::a::A;\n}\n");
        assert_eq!(found(&[a, b, ("b/tests.rs", "use crate::role::a::A;\n")]), [""; 0]);
    }

    #[test]
    fn a_whole_crate_is_a_tree_and_one_that_is_gone_is_told() {
        let tree = Tree { folder: "c/src", module: "", joined: &[] };
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        let lib = || file("c/src/lib.rs", "mod a;\npub use a::A;\npub struct B;\n");
        assert_eq!(problems_of(&tree, &[lib(), file("c/src/a.rs", "")]), [""; 0]);
        assert_eq!(problems_of(&tree, &[lib(), file("c/src/a.rs", "use crate::B;\n")]).len(), 1);
        assert_eq!(problems_of(&tree, &[file("d/src/lib.rs", "")]).len(), 1);
    }
}
