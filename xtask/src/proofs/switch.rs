// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The crate that tells a process its mutant. It is in the copy alone.

use std::collections::BTreeMap;

use anyhow::Context;
use anyhow::Result;

use crate::metadata::Package;
use crate::workspace;

/// By which a process is told its mutant.
pub(crate) const VARIABLE: &str = "LUNWIRE_MUTANT";

/// Where it stands in the copy.
const FOLDER: &str = "crates/mutant-switch";

const MANIFEST: &str = "\
[package]
name = \"mutant-switch\"
version = \"0.0.0\"
edition = \"2024\"
publish = false
";

const SOURCE: &str = "\
use std::sync::OnceLock;

static NUMBER: OnceLock<u32> = OnceLock::new();

/// The mutant that this process runs with; 0: none.
#[inline]
pub fn number() -> u32 {
    *NUMBER.get_or_init(|| match std::env::var(\"LUNWIRE_MUTANT\") {
        Ok(number) => number.parse().expect(\"a number\"),
        Err(_) => 0,
    })
}
";

/// Its files, and the manifests of `crates/`, which all depend on it.
pub(crate) fn files(packages: &[Package]) -> Result<BTreeMap<String, String>> {
    let root = workspace::root();
    let file = |name: &str, text: &str| (format!("{FOLDER}/{name}"), text.to_owned());
    let mut files = BTreeMap::from([file("Cargo.toml", MANIFEST), file("src/lib.rs", SOURCE)]);
    for package in packages.iter().filter(|package| package.member) {
        let below = package.folder.strip_prefix(&root)?.join("Cargo.toml");
        let path = below.to_string_lossy().into_owned();
        if path.starts_with("crates/") {
            let text = std::fs::read_to_string(root.join(&below))?;
            files.insert(path, manifest_with(&text)?);
        }
    }
    Ok(files)
}

fn manifest_with(text: &str) -> Result<String> {
    const LINE: &str = "mutant-switch = { path = \"../mutant-switch\" }\n";
    const TABLE: &str = "[dependencies]\n";
    if let Some((head, tail)) = text.split_once(TABLE) {
        return Ok(format!("{head}{TABLE}{LINE}{tail}"));
    }
    let (head, _) = text.split_once("[lints]").context("a manifest without [lints]")?;
    let tail = text.get(head.len()..).unwrap_or_default();
    Ok(format!("{head}{TABLE}{LINE}\n{tail}"))
}
