// SPDX-License-Identifier: Apache-2.0 OR MIT
//! docs/CONFIGURATION.md: every key of the configuration file with type, values, default, whether
//! it can change while a daemon runs, and an example, from the schema.

use std::fmt::Write;

use anyhow::Context;
use anyhow::Result;

use crate::judge;
use crate::workspace;

const SCHEMA: &str = "crates/control/src/config.rs";
const EXAMPLES: &str = "crates/control/src/config/examples.toml";
const PAGE: &str = "docs/CONFIGURATION.md";

/// The tables of the file, as they are written there, and their types in the schema.
const TABLES: [(&str, &str); 9] = [
    ("Top of the file", "Config"),
    ("`[[portal-group]]`", "PortalGroup"),
    ("`[[portal]]`", "Portal"),
    ("`[discovery]`", "Discovery"),
    ("`[[target]]`", "Target"),
    ("`[[target.lun]]`", "Lun"),
    ("`[[target.initiator]]`", "Initiator"),
    ("`[[target.port-group]]`", "PortGroup"),
    ("`[[target.limit]]`", "Limit"),
];

const HEAD: &str = "\
# Configuration

<!-- made by `cargo xtask configuration` from crates/control/src/config.rs -->

Every key of the file that `lunwire serve --config FILE` reads (TOML). `lunwire check FILE` \
validates one, and looks at the files, addresses and memory that it needs. Options of the command \
line add to it or replace what it says. Relative paths count from the folder of the file, wherever \
the daemon is started; those of a file that comes through a pipe, and of options, from the current \
folder. Times are whole numbers with a unit: `100us`, `10ms`, \
`15s`, `2m`. Sizes are `512`, `64K`, `1.5G`, `2T` (powers of 1024; also `KiB` and so on) or \
`1GB`, `2TB` (of 1000), and multiples of 512.

`lunwire reload` and SIGHUP have a daemon read the file again. Keys with `yes` under *reload* take \
effect then, negotiated ones with the next login; a file in which another key says something else \
is refused as a whole, and that key named. A disk keeps what is said of it as long as it has its \
number.
";

/// One key.
#[derive(Debug, PartialEq, Eq)]
struct Key {
    name: String,
    kind: String,
    required: bool,
    meaning: String,
    values: String,
    default: String,
    reload: String,
}

/// Writes the page.
pub(crate) fn write() -> Result<()> {
    let (page, problems) = page(&read(SCHEMA)?, &read(EXAMPLES)?);
    judge("configuration", &problems)?;
    Ok(std::fs::write(workspace::root().join(PAGE), page)?)
}

/// What keeps the page from saying all.
pub(crate) fn problems() -> Result<Vec<String>> {
    let (page, mut problems) = page(&read(SCHEMA)?, &read(EXAMPLES)?);
    if std::fs::read_to_string(workspace::root().join(PAGE)).unwrap_or_default() != page {
        problems.push(format!("{PAGE} is stale: run cargo xtask configuration"));
    }
    Ok(problems)
}

fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(workspace::root().join(path)).with_context(|| path.to_owned())
}

fn page(schema: &str, examples: &str) -> (String, Vec<String>) {
    let (mut page, mut problems) = (HEAD.to_owned(), Vec::new());
    for (title, of) in TABLES {
        // Writing to a String cannot fail.
        let _ = write!(page, "\n## {title}\n\n");
        page.push_str("| key | type | what | values | default | reload | example |\n");
        page.push_str("|---|---|---|---|---|---|---|\n");
        let keys = keys(schema, of);
        if keys.is_empty() {
            problems.push(format!("{SCHEMA}: no keys of {of}"));
        }
        for key in keys {
            let Key { name, kind, required, meaning, values, default, reload } = key;
            let place = format!("{SCHEMA}: {of}: `{name}`");
            if meaning.is_empty() || values.is_empty() {
                problems.push(format!("{place} needs a text, and `Values: ...` after it"));
            }
            if required != default.is_empty() {
                problems.push(format!("{place} needs `Default: ...` unless it is required"));
            }
            let example = match &*kind {
                "table" | "tables" => "below".to_owned(),
                _ => match example_of(examples, title, &name) {
                    Some(value) => format!("`{name} = {value}`"),
                    None => {
                        problems.push(format!("{EXAMPLES}: {title}: `{name}` has no example"));
                        continue;
                    }
                },
            };
            let default = if required { "required" } else { &default };
            let what = format!("| `{name}` | {kind} | {meaning}");
            let _ = writeln!(page, "{what} | {values} | {default} | {reload} | {example} |");
        }
    }
    (page, problems)
}

/// The keys of the type `of`.
fn keys(schema: &str, of: &str) -> Vec<Key> {
    let begin = format!("pub struct {of} {{");
    let body = schema.lines().skip_while(|line| *line != begin).skip(1);
    let (mut keys, mut text, mut may_miss) = (Vec::new(), String::new(), false);
    for line in body.take_while(|line| *line != "}").map(str::trim) {
        if let Some(more) = line.strip_prefix("///") {
            text.push_str(more);
        } else if line == "#[serde(default)]" {
            may_miss = true;
        } else if let Some((name, kind)) =
            line.strip_prefix("pub ").and_then(|field| field.split_once(": "))
        {
            let kind = kind.trim_end_matches(',');
            let (rest, reload) = split(&text, " Reload: ");
            let (rest, default) = split(rest, " Default: ");
            let (meaning, values) = split(rest, " Values: ");
            keys.push(Key {
                name: name.replace('_', "-"),
                kind: shown(kind).to_owned(),
                required: !may_miss && !kind.starts_with("Option<"),
                meaning: meaning.trim().trim_end_matches('.').to_owned(),
                values: values.to_owned(),
                default: default.to_owned(),
                reload: if reload.is_empty() { "yes" } else { reload }.to_owned(),
            });
            text.clear();
            may_miss = false;
        }
    }
    keys
}

/// What the examples say of a key of a table.
fn example_of<'a>(examples: &'a str, title: &str, name: &str) -> Option<&'a str> {
    let mut here = TABLES.first().map_or("", |(top, _)| *top);
    examples.lines().find_map(|line| match line.split_once(" = ") {
        Some((key, value)) => (here == title && key == name).then_some(value),
        None if line.starts_with('[') => {
            let named = TABLES.iter().find(|(title, _)| title.trim_matches('`') == line);
            here = named.map_or("", |(title, _)| *title);
            None
        }
        None => None,
    })
}

fn split<'a>(text: &'a str, at: &str) -> (&'a str, &'a str) {
    let (before, after) = text.split_once(at).unwrap_or((text, ""));
    (before, after.trim_end_matches('.'))
}

/// A type of the schema, in words of the file.
fn shown(kind: &str) -> &'static str {
    let inner = kind.replace("Option<", "").replace("Spanned<", "");
    let is_list = inner.starts_with("Vec<");
    let inner = inner.replace("Vec<", "");
    match (is_list, inner.trim_end_matches('>')) {
        (false, "String") => "string",
        (true, "String") => "list of strings",
        (false, "bool") => "boolean",
        (false, "u8" | "u16" | "u32" | "u64" | "usize") => "integer",
        (true, "u8" | "u16" | "u32" | "u64" | "usize") => "list of integers",
        (false, _) => "table",
        (true, _) => "tables",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_with_all_that_is_said_of_it() {
        let schema = "\
pub struct Lun {
    /// Its
    /// number. Values: 0
    /// to 9. Default: 3.
    /// Reload: no.
    pub lun_number: Option<Spanned<u16>>,
    /// Names. Values: text.
    pub names: Vec<Spanned<String>>,
    #[serde(default)]
    pub shut: bool,
}
";
        let examples = "lun-number = 1\n[[target.lun]]\nnames = [\"a\"]\n\n[portal]\nshut = true\n";
        assert_eq!(example_of(examples, "`[[target.lun]]`", "names"), Some("[\"a\"]"));
        assert_eq!(example_of(examples, "`[[target.lun]]`", "lun-number"), None);
        assert_eq!(example_of(examples, TABLES[0].0, "lun-number"), Some("1"));
        let keys = keys(schema, "Lun");
        let number = Key {
            name: "lun-number".into(),
            kind: "integer".into(),
            required: false,
            meaning: "Its number".into(),
            values: "0 to 9".into(),
            default: "3".into(),
            reload: "no".into(),
        };
        assert_eq!(keys.first(), Some(&number));
        assert_eq!((&*keys[1].kind, keys[1].required), ("list of strings", true));
        assert_eq!(keys[1].reload, "yes");
        assert!(!keys[2].required && keys[2].meaning.is_empty());
        let (_, problems) = page(schema, "");
        assert_eq!(problems.iter().filter(|problem| problem.contains("`shut`")).count(), 3);
        let of_names = problems.iter().filter(|problem| problem.contains("names"));
        assert_eq!(
            of_names.collect::<Vec<_>>(),
            [&format!("{EXAMPLES}: `[[target.lun]]`: `names` has no example")]
        );
    }
}
