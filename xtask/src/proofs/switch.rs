// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The crate that tells a process its mutant. It is in the copy alone.

use anyhow::Context;
use anyhow::Result;

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

/// Its files.
pub(crate) fn files() -> [(String, String); 2] {
    let file = |name: &str, text: &str| (format!("{FOLDER}/{name}"), text.to_owned());
    [file("Cargo.toml", MANIFEST), file("src/lib.rs", SOURCE)]
}

/// A manifest of `crates/` that depends on it, too.
pub(crate) fn manifest_with(text: &str) -> Result<String> {
    const LINE: &str = "mutant-switch = { path = \"../mutant-switch\" }\n";
    const TABLE: &str = "[dependencies]\n";
    if let Some((head, tail)) = text.split_once(TABLE) {
        return Ok(format!("{head}{TABLE}{LINE}{tail}"));
    }
    let (head, _) = text.split_once("[lints]").context("a manifest without [lints]")?;
    let tail = text.get(head.len()..).unwrap_or_default();
    Ok(format!("{head}{TABLE}{LINE}\n{tail}"))
}
