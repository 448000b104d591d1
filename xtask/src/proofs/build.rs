// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Builds the tests of a copy, and says where the errors are when that fails.

use std::collections::BTreeSet;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Stdio;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use serde_json::Value;

/// What is built.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) packages: BTreeSet<String>,
    /// Which targets of these: `--lib`, `--bins`, `--test=suite`.
    pub(crate) targets: BTreeSet<String>,
}

/// A program with tests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Binary {
    /// Its first source, below the copy: `crates/iscsi/src/lib.rs`.
    pub(crate) root: String,
    /// The folder of its package.
    pub(crate) folder: PathBuf,
    pub(crate) program: PathBuf,
}

/// An error of the compiler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Each place of the workspace that it is about: file and line.
    pub(crate) places: Vec<(String, usize)>,
    /// What the compiler says.
    pub(crate) text: String,
}

/// What became of a build.
#[derive(Debug)]
pub(crate) enum Built {
    Binaries(Vec<Binary>),
    Faults(Vec<Fault>),
}

/// Builds with the product's own settings, so that what is foreign need not be built twice.
pub(crate) fn build(tree: &Path, target: &Path, wanted: &Wanted) -> Result<Built> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["test", "--no-run", "--offline", "--message-format=json"]);
    for package in &wanted.packages {
        command.args(["--package", package]);
    }
    let output = command
        .args(&wanted.targets)
        .current_dir(tree)
        .env("CARGO_TARGET_DIR", target)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start cargo")?;
    let text = String::from_utf8(output.stdout)?;
    let (mut faults, mut binaries) = (Vec::new(), Vec::new());
    for line in text.lines().filter(|line| line.starts_with('{')) {
        let message: Value = serde_json::from_str(line)?;
        binaries.extend(binary_of(&message, tree));
        if let Some(fault) = fault_of(&message)
            && !faults.contains(&fault)
        {
            faults.push(fault);
        }
    }
    match (output.status.success(), faults.is_empty()) {
        (true, _) => Ok(Built::Binaries(binaries)),
        (false, false) => Ok(Built::Faults(faults)),
        (false, true) => bail!("the tests do not build"),
    }
}

fn binary_of(message: &Value, tree: &Path) -> Option<Binary> {
    let program = message["executable"].as_str()?;
    if message["profile"]["test"] != true {
        return None;
    }
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_path_buf();
    let root = Path::new(message["target"]["src_path"].as_str()?);
    let root = root.strip_prefix(tree).ok()?.to_string_lossy().into_owned();
    Some(Binary { root, folder, program: PathBuf::from(program) })
}

fn fault_of(message: &Value) -> Option<Fault> {
    let message = message.get("message").filter(|message| message["level"] == "error")?;
    let spans = message["spans"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut places = Vec::new();
    for span in spans.iter().filter(|span| span["is_primary"] == true) {
        // What a macro makes is told at the macro; outside of it stands who called it.
        let mut span = span;
        while !span.is_null() {
            let file = span["file_name"].as_str().unwrap_or_default().to_owned();
            let line = span["line_start"].as_u64().and_then(|line| usize::try_from(line).ok());
            places.extend(line.map(|line| (file, line)));
            span = &span["expansion"]["span"];
        }
    }
    let text = message["rendered"].as_str().unwrap_or_default().to_owned();
    // The last one counts the others.
    (!spans.is_empty()).then_some(Fault { places, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_with_tests_are_found() {
        let text = r#"{"reason": "compiler-artifact", "manifest_path": "/w/crates/a/Cargo.toml",
            "target": {"src_path": "/w/crates/a/tests/suite.rs"}, "profile": {"test": true},
            "executable": "/t/suite-1"}"#;
        let message: Value = serde_json::from_str(text).unwrap();
        let binary = binary_of(&message, Path::new("/w")).unwrap();
        assert_eq!(binary.root, "crates/a/tests/suite.rs");
        assert_eq!(binary.folder, Path::new("/w/crates/a"));
        assert_eq!(fault_of(&message), None);
    }

    #[test]
    fn errors_are_placed_where_the_macro_was_called_too() {
        let text = r#"{"reason": "compiler-message", "message": {"level": "error",
            "rendered": "no", "spans": [
                {"is_primary": false, "file_name": "x.rs", "line_start": 1},
                {"is_primary": true, "file_name": "/rust/macros.rs", "line_start": 2,
                 "expansion": {"span": {"file_name": "a.rs", "line_start": 3, "expansion": null}}}
            ]}}"#;
        let message: Value = serde_json::from_str(text).unwrap();
        let fault = fault_of(&message).unwrap();
        assert_eq!(fault.places, [("/rust/macros.rs".to_owned(), 2), ("a.rs".to_owned(), 3)]);
        let warning = text.replace("\"error\"", "\"warning\"");
        assert_eq!(fault_of(&serde_json::from_str(&warning).unwrap()), None);
    }
}
