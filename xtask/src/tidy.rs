// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rules of the house that a machine can judge: ranks, purity, unsafe code, text.

use crate::borders;
use crate::circles;
use crate::configuration;
use crate::judge;
use crate::lessons;
use crate::lexer;
use crate::lexer::Split;
use crate::metadata;
use crate::metadata::Package;
use crate::proofs;
use crate::studies;
use crate::unused;
use crate::workspace;
use crate::workspace::File;
use anyhow::Result;

/// Rank of each crate: it may depend on crates of lower ranks only (ARCHITECTURE.md).
const RANKS: &[(&str, u8)] = &[
    ("lunwire-clock", 0),
    ("lunwire-slots", 0),
    ("lunwire-medium", 0),
    ("lunwire-wire", 0),
    ("lunwire-buf", 0),
    ("lunwire-crc", 0),
    ("lunwire-control", 0),
    ("lunwire-capture", 1),
    ("lunwire-ether", 1),
    ("lunwire-iscsi", 1),
    ("lunwire-nbd", 1),
    ("lunwire-rdma", 1),
    ("lunwire-store", 1),
    ("lunwire-engine", 1),
    ("lunwire-sandbox", 1),
    ("lunwire-mover", 2),
    ("lunwire-station", 2),
    ("lunwire-rbd", 2),
    ("lunwire-verbs", 2),
    ("lunwire-scsi", 2),
    ("lunwire-target", 3),
    ("lunwire-initiator", 3),
    ("lunwire", 5),
    ("lunwire-attach", 4),
    ("lunwire-capi", 4),
    ("lunwire-http", 4),
    ("lunwire-remote", 4),
    ("lunwire-lab", 4),
    ("lunwire-conformance", 4),
    ("lunwire-sim", 4),
    ("xtask", 4),
];

/// Folders below `crates/` whose crates must not be able to name a socket, a clock or a thread.
const PURE: &[&str] = &[
    "clock", "slots", "medium", "wire", "ether", "iscsi", "mover", "nbd", "rdma", "scsi", "store",
];

/// Folders below `crates/`, or beside it, that may have unsafe code.
const UNSAFE: &[&str] = &["crc", "buf", "capi", "engine", "rbd", "verbs", "bench"];

/// Of those, the ones that have it in some files alone, by what their paths begin with.
const UNSAFE_BELOW: &[(&str, &str)] =
    &[("capi", "crates/capi/src/border"), ("bench", "bench/crc/src/isal.rs")];

const SPDX: &str = "SPDX-License-Identifier: Apache-2.0 OR MIT";
/// Citations are written `RFC 7143 \u{a7}11.7.4`; otherwise source is ASCII.
const SECTION_SIGN: char = '\u{a7}';
const COLUMNS_MAX: usize = 100;
/// So many lines before an unsafe block its proof may begin.
const PROOF_LINES_MAX: usize = 12;

/// Runs all rules over the workspace.
pub(crate) fn run() -> Result<()> {
    let packages = metadata::packages()?;
    let mut problems = ranks(&packages);
    let files = workspace::files()?;
    problems.extend(circles::problems(&files));
    problems.extend(unused::problems(&packages, &files, &workspace::root()));
    for file in &files {
        problems.extend(text_rules(file));
        if file.path.ends_with(".rs") {
            problems.extend(rust_rules(file));
        }
    }
    problems.extend(borders::problems(&files));
    problems.extend(pure_roots(&files));
    problems.extend(lessons::problems(&files));
    problems.extend(configuration::problems()?);
    problems.extend(proofs::problems()?);
    problems.extend(studies::problems()?);
    judge("tidy", &problems)
}

fn rank_of(name: &str) -> Option<u8> {
    RANKS.iter().find(|(known, _)| *known == name).map(|(_, rank)| *rank)
}

/// Each member against each member that it depends on.
fn ranks(packages: &[Package]) -> Vec<String> {
    let members: Vec<&Package> = packages.iter().filter(|package| package.member).collect();
    let mut problems = Vec::new();
    for package in &members {
        let Some(rank) = rank_of(&package.name) else {
            problems.push(format!("{}: has no rank in xtask/src/tidy.rs", package.name));
            continue;
        };
        for dependency in &package.dependencies {
            if !members.iter().any(|member| member.name == *dependency) {
                continue;
            }
            if rank_of(dependency).is_some_and(|lower| lower >= rank) {
                problems.push(format!(
                    "{}: rank {rank} may not depend on {dependency}, which is not lower",
                    package.name
                ));
            }
        }
    }
    problems
}

/// The crate root of each crate: `no_std` where it is demanded, `forbid(unsafe_code)` elsewhere.
fn pure_roots(files: &[File]) -> Vec<String> {
    let mut problems = Vec::new();
    for file in files.iter().filter(|file| is_root(&file.path)) {
        let Some(folder) = folder_of(&file.path) else { continue };
        let code = lexer::split(&file.text).code.join("\n");
        if PURE.contains(&folder) && !code.contains("#![no_std]") {
            problems.push(format!("{}: a protocol crate is #![no_std]", file.path));
        }
        if !UNSAFE.contains(&folder) && !code.contains("#![forbid(unsafe_code)]") {
            problems.push(format!("{}: has no #![forbid(unsafe_code)]", file.path));
        }
    }
    problems
}

fn is_root(path: &str) -> bool {
    path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs")
}

/// `wire` of `crates/wire/src/lib.rs`, `xtask` of `xtask/src/main.rs`.
fn folder_of(path: &str) -> Option<&str> {
    let mut parts = path.split('/');
    match parts.next() {
        Some("crates") => parts.next(),
        other => other,
    }
}

/// What holds for every text that people write.
fn text_rules(file: &File) -> Vec<String> {
    let source = ["rs", "py", "sh", "toml", "tsv"]
        .iter()
        .any(|end| file.path.rsplit_once('.').is_some_and(|(_, extension)| extension == *end))
        || file.text.starts_with("#!");
    let mut problems = Vec::new();
    for (line, number) in file.text.split('\n').zip(1..) {
        let at = format!("{}:{number}", file.path);
        for folder in machine_folders() {
            if line.contains(&folder) && !file.path.starts_with("conformance/") {
                problems.push(format!("{at}: names a folder of somebody's machine"));
            }
        }
        if source && line.chars().any(|c| !c.is_ascii() && c != SECTION_SIGN) {
            problems.push(format!("{at}: not ASCII"));
        }
        if file.path.ends_with(".rs") && line.chars().count() > COLUMNS_MAX {
            problems.push(format!("{at}: longer than {COLUMNS_MAX} columns"));
        }
    }
    if !file.path.ends_with(".rs") {
        problems.extend(hasty_readers(file));
    }
    if file.text.starts_with("#!/") && !file.text.contains(SPDX) {
        problems.push(format!("{}: no SPDX line", file.path));
    }
    problems
}

/// Who leaves a pipe before its end kills the writer, when that is slow enough: under `pipefail`
/// the check fails although the text was there, and a `!` before it holds although it was.
fn hasty_readers(file: &File) -> Vec<String> {
    let shell = file.text.starts_with("#!") || file.path.contains("interop/");
    let lines = file.text.split('\n').zip(1..).filter(|_| shell);
    lines
        .filter(|(line, _)| ["| grep -q", "| head -n"].iter().any(|hasty| line.contains(hasty)))
        .map(|(_, number)| {
            format!("{}:{number}: leaves the pipe early: grep > /dev/null, sed -n 1p", file.path)
        })
        .collect()
}

/// Composed, or this file would break its own rule.
fn machine_folders() -> Vec<String> {
    ["home", "root", "work", "farm"].iter().map(|name| format!("/{name}/")).collect()
}

/// What holds for Rust source.
fn rust_rules(file: &File) -> Vec<String> {
    let mut problems = Vec::new();
    if file.text.lines().next() != Some(&format!("// {SPDX}")) {
        problems.push(format!("{}:1: the first line is not // {SPDX}", file.path));
    }
    let split = lexer::split(&file.text);
    let folder = folder_of(&file.path).unwrap_or_default();
    for (index, code) in split.code.iter().enumerate() {
        let at = format!("{}:{}", file.path, index + 1);
        if PURE.contains(&folder) && names_std(&split, index) && !file.path.contains("/tests/") {
            problems.push(format!("{at}: std in a protocol crate, outside #[cfg(test)]"));
        }
        if has_word(code, "unsafe") {
            problems.extend(
                unsafe_rules(&split, index, &file.path).map(|what| format!("{at}: {what}")),
            );
        }
        let comment = split.comments.get(index).map_or("", String::as_str);
        if left_over(code, comment) {
            problems.push(format!("{at}: unfinished work without an issue: write TODO(#12)"));
        }
    }
    problems
}

fn names_std(split: &Split, index: usize) -> bool {
    let line = |index: usize| split.code.get(index).map_or("", |line| line.trim());
    line(index).starts_with("extern crate std")
        && !(index > 0 && line(index - 1).starts_with("#[cfg(test)]"))
}

fn unsafe_rules(split: &Split, index: usize, path: &str) -> Option<String> {
    let folder = folder_of(path).unwrap_or_default();
    if !UNSAFE.contains(&folder) {
        return Some(format!("unsafe code is for {UNSAFE:?} only"));
    }
    let below = UNSAFE_BELOW.iter().find(|(known, _)| *known == folder);
    if let Some((_, start)) = below.filter(|(_, start)| !path.starts_with(start)) {
        let forbids =
            split.code.get(index).is_some_and(|code| code.contains("forbid(unsafe_code)"));
        return (!forbids).then(|| format!("unsafe code of {folder} is below {start} only"));
    }
    let code = split.code.get(index)?;
    let opens = ["unsafe {", "unsafe impl"].iter().any(|form| code.contains(form));
    let first = index.saturating_sub(PROOF_LINES_MAX);
    let proven = split.comments.get(first..=index)?.iter().any(|line| line.contains("SAFETY:"));
    (opens && !proven).then(|| "unsafe without a SAFETY: comment above".to_owned())
}

fn left_over(code: &str, comment: &str) -> bool {
    let marks = ["TODO", "FIXME", "XXX"];
    let noted = marks.iter().any(|mark| {
        comment.match_indices(mark).any(|(at, _)| {
            !comment.get(at + mark.len()..).is_some_and(|rest| rest.starts_with("(#"))
        })
    });
    noted || ["todo!(", "unimplemented!("].iter().any(|form| code.contains(form))
}

/// Whether `word` stands in `code` as an identifier of its own.
fn has_word(code: &str, word: &str) -> bool {
    code.split(|c: char| !c.is_alphanumeric() && c != '_').any(|token| token == word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn package(name: &str, dependencies: &[&str]) -> Package {
        Package {
            name: name.to_owned(),
            member: true,
            dependencies: dependencies.iter().map(|&name| name.to_owned()).collect(),
            declared: Vec::new(),
            library: None,
            folder: PathBuf::new(),
            targets: Vec::new(),
        }
    }

    fn rust(path: &str, body: &str) -> Vec<String> {
        let text = format!("// {SPDX}\n{body}");
        rust_rules(&File { path: path.to_owned(), text })
    }

    #[test]
    fn a_crate_depends_on_lower_ranks_only() {
        let wire = package("lunwire-wire", &["serde"]);
        let iscsi = package("lunwire-iscsi", &["lunwire-wire"]);
        assert_eq!(ranks(&[wire, iscsi]), [""; 0]);
        let store = package("lunwire-store", &["lunwire-iscsi"]);
        let iscsi = package("lunwire-iscsi", &[]);
        assert_eq!(ranks(&[store, iscsi]).len(), 1);
        assert_eq!(ranks(&[package("lunwire-new", &[])]).len(), 1);
    }

    #[test]
    fn unsafe_code_has_its_place_and_its_proof() {
        let bare = "fn f() {\n    unsafe { g() }\n}\n";
        let proven = "fn f() {\n    // SAFETY: g has no precondition.\n    unsafe { g() }\n}\n";
        assert_eq!(rust("crates/buf/src/a.rs", bare).len(), 1);
        assert_eq!(rust("crates/buf/src/a.rs", proven), [""; 0]);
        assert_eq!(rust("crates/wire/src/a.rs", proven).len(), 1);
        assert_eq!(rust("crates/capi/src/border/a.rs", proven), [""; 0]);
        assert_eq!(rust("crates/capi/src/a.rs", proven).len(), 1);
        assert_eq!(
            rust("crates/wire/src/a.rs", "// unsafe { }\n#![forbid(unsafe_code)]\n"),
            [""; 0]
        );
    }

    #[test]
    fn std_is_for_tests_of_protocol_crates() {
        assert_eq!(rust("crates/wire/src/a.rs", "extern crate std;\n").len(), 1);
        assert_eq!(rust("crates/wire/src/a.rs", "#[cfg(test)]\nextern crate std;\n"), [""; 0]);
        assert_eq!(rust("crates/target-node/src/a.rs", "extern crate std;\n"), [""; 0]);
    }

    #[test]
    fn unfinished_work_names_its_issue() {
        for (body, count) in [
            (concat!("// TO", "DO: later\n"), 1),
            (concat!("// TO", "DO(#7): later\n"), 0),
            (concat!("fn f() { to", "do!() }\n"), 1),
            (concat!("let a = \"TO", "DO\";\n"), 0),
        ] {
            assert_eq!(rust("crates/wire/src/a.rs", body).len(), count, "{body}");
        }
    }

    #[test]
    fn text_is_ascii_narrow_and_of_no_machine() {
        let check = |path: &str, text: String| text_rules(&File { path: path.to_owned(), text });
        assert_eq!(check("a.rs", "x".repeat(100)), [""; 0]);
        assert_eq!(check("a.rs", "x".repeat(101)).len(), 1);
        assert_eq!(check("a.rs", "// \u{e9}".to_owned()).len(), 1);
        assert_eq!(check("a.md", "\u{e9}".to_owned()), [""; 0]);
        assert_eq!(check("a.md", format!("see {}x", machine_folders()[0])).len(), 1);
        assert_eq!(check("a", "#!/bin/sh\n".to_owned()).len(), 1);
    }

    #[test]
    fn readers_of_pipes_stay_to_the_end() {
        let check = |path: &str, text: &str| {
            hasty_readers(&File { path: path.to_owned(), text: text.to_owned() }).len()
        };
        assert_eq!(check("scripts/a", "#!/bin/bash\nfile a | grep -q ELF\n"), 1);
        assert_eq!(check("scripts/a", "#!/bin/bash\nfile a | grep ELF > /dev/null\n"), 0);
        assert_eq!(check("interop/a.py", "run('ls | head -n 1')\n"), 1);
        assert_eq!(check("docs/a.md", "ls | head -n 1\n"), 0);
    }

    #[test]
    fn roots_of_protocol_crates_are_pure() {
        let check = |path: &str, text: &str| {
            pure_roots(&[File { path: path.to_owned(), text: text.to_owned() }]).len()
        };
        assert_eq!(check("crates/wire/src/lib.rs", "#![no_std]\n#![forbid(unsafe_code)]\n"), 0);
        assert_eq!(check("crates/wire/src/lib.rs", "//! #![no_std]\n"), 2);
        assert_eq!(check("crates/target-node/src/lib.rs", "#![forbid(unsafe_code)]\n"), 0);
        assert_eq!(check("crates/engine/src/lib.rs", "\n"), 0);
    }
}
