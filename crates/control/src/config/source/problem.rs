// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the parser says, in the words of who writes the file: the key, the value, what is right and
//! an example. The value of a key that names a secret is never repeated.

use std::ops::Range;

use toml::Spanned;
use toml::de::DeTable;
use toml::de::DeValue;

use super::ConfigError;
use super::Source;
use crate::words;

/// Types as the message of the parser names them, as a file has them, and an example.
const TYPES: [(&str, &str, &str); 6] = [
    ("a sequence", "a list is right", "[\"...\"]"),
    ("a boolean", "true or false is right", "true"),
    ("a string", "a text in quotes is right", "\"...\""),
    ("a map", "a table is right", ""),
    ("struct", "a table is right", ""),
    ("usize", NUMBER, "1"),
];

/// What stands for a key where its own value helps nobody.
const EXAMPLES: [(&[&str], &str); 12] = [
    (&["listen"], "[\"127.0.0.1:3260\"]"),
    (&["ether"], "[\"eth1\"]"),
    (&["engine"], "\"auto\""),
    (&["mode"], "\"smp\""),
    (&["log"], "\"info\""),
    (&["spin"], "\"100us\""),
    (&["login-timeout", "ping-interval", "ping-timeout"], "\"15s\""),
    (&["isns"], "\"isns.example.com:3205\""),
    (&["store"], "\"memory:1G\""),
    (&["space-warning"], "\"10G\""),
    (&["name"], "\"iqn.2026-01.com.example:disk\""),
    (
        &[
            "control-socket",
            "state-dir",
            "chap-secret-file",
            "mutual-secret-file",
            "http-token-file",
            "http-certificate",
            "http-key",
        ],
        "\"/path\"",
    ),
];

/// Numbers that stand for keys which do not take any.
const NUMBERS: [(&str, &str); 2] = [("block", "4096"), ("tag", "2")];

const NUMBER: &str = "a whole number without quotes is right";

/// Keys of secrets have one of these in them.
const SECRET_WORDS: [&str; 4] = ["secret", "passw", "pwd", "token"];

/// How the keys of files with secrets end.
const SECRET_FILE: &str = "-secret-file";

/// Where the parser found something wrong.
struct Found {
    /// With the tables that it stands in, by dots.
    key: String,
    /// It has the value that is wrong; the key itself is known.
    of_value: bool,
}

impl Source {
    /// What is wrong with the text.
    pub(super) fn explained(&self, error: &toml::de::Error) -> ConfigError {
        let span = error.span().unwrap_or_default();
        let message = error.message();
        let written = self.text.get(span.clone()).unwrap_or_default();
        let value = written.lines().next().unwrap_or_default().trim();
        let unquoted = value.trim_matches('"').trim_matches('\'').to_owned();
        let whole = DeTable::parse(&self.text).ok();
        let found = whole.as_ref().and_then(|table| key_at(table.get_ref(), &span));
        let (field, value, problem) = match found {
            Some(Found { key, of_value: true }) if names_secret(&key) || names_secret(written) => {
                let right = problem(message, "", &key);
                let right = right.split_once("; ").map_or(right.as_str(), |(_, right)| right);
                (key, String::new(), right.to_owned())
            }
            Some(Found { key, of_value: true })
                if is_list(&key) && message.contains("type: map") =>
            {
                let problem = double_brackets(&key);
                (key, String::new(), problem)
            }
            Some(Found { key, of_value: true }) if message.contains(", expected ") => {
                let problem = problem(message, &unquoted, &key);
                (key, value.to_owned(), problem)
            }
            Some(_) => (String::new(), value.to_owned(), problem(message, &unquoted, "")),
            None if message.contains("duplicate key")
                && let Some(key) = self.header_at(&span) =>
            {
                (String::new(), String::new(), double_brackets(&key))
            }
            None if self.is_near_secret(&span) => {
                let problem = match self.bare_text_at(&span) {
                    Some((key, _)) => format!("{TEXT}; that of {key} is not"),
                    None => message.to_owned(),
                };
                (String::new(), String::new(), problem)
            }
            None if let Some((key, text)) = self.bare_text_at(&span) => {
                let problem = format!("{TEXT}, for example {key} = \"{text}\"");
                (key, text, problem)
            }
            None => (String::new(), value.to_owned(), problem(message, &unquoted, "")),
        };
        ConfigError { place: self.place(&span), field, value, problem }
    }

    /// The text without the key that `error` is about, whose place is blank, and the name of that
    /// key. None: it is not about one key alone, or the rest would be no TOML.
    pub(super) fn without(text: &str, error: &toml::de::Error) -> Option<(String, String)> {
        let (key, blank) = {
            let table = DeTable::parse(text).ok()?;
            entry_at(table.get_ref(), &error.span()?)?
        };
        let (before, rest) = text.split_at_checked(blank.start)?;
        let (taken, after) = rest.split_at_checked(blank.len())?;
        // What follows stays in its line and column.
        let blank: String =
            taken.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }).collect();
        let text = [before, &blank, after].concat();
        DeTable::parse(&text).is_ok().then_some((text, key))
    }

    /// The line that `span` begins in.
    fn line_at(&self, span: &Range<usize>) -> &str {
        let (before, rest) = self.text.split_at_checked(span.start).unwrap_or((&self.text, ""));
        let start = before.rfind('\n').map_or(0, |at| at + 1);
        let end = span.start.min(self.text.len()) + rest.find('\n').unwrap_or(rest.len());
        self.text.get(start..end).unwrap_or_default().trim()
    }

    /// The table whose header in single brackets is at `span`, if there can be several.
    fn header_at(&self, span: &Range<usize>) -> Option<String> {
        let name = self.line_at(span).strip_prefix('[')?.split(']').next()?.trim();
        is_list(name).then(|| name.to_owned())
    }

    /// Key and value at `span`, if the value is a text without quotes.
    fn bare_text_at(&self, span: &Range<usize>) -> Option<(String, String)> {
        let (key, value) = self.line_at(span).split_once('=')?;
        let (key, value) = (key.trim(), value.split('#').next().unwrap_or_default().trim());
        let is_key = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
        let is_bare = value.starts_with(|first: char| first.is_alphabetic() || first == '/')
            && !value.contains(['"', '\'', '[', '{'])
            && !matches!(value, "true" | "false" | "inf" | "nan");
        let good = is_bare && !key.is_empty() && key.chars().all(is_key);
        good.then(|| (key.to_owned(), value.to_owned()))
    }

    /// Whether the text at `span`, which is no TOML, may belong to a secret: one is named in its
    /// line, or in its table before it.
    fn is_near_secret(&self, span: &Range<usize>) -> bool {
        let line_end = |at: usize| {
            let rest = self.text.get(at..).unwrap_or_default();
            at + rest.find('\n').unwrap_or(rest.len())
        };
        let before = self.text.get(..line_end(span.end)).unwrap_or(&self.text);
        let table = before.rfind("\n[[").unwrap_or(0);
        before.get(table..).is_some_and(names_secret)
    }
}

/// What to say where a text has no quotes.
const TEXT: &str = "a text stands in quotes";

/// Whether there can be several tables of this name.
fn is_list(key: &str) -> bool {
    let name = key.rsplit('.').next().unwrap_or_default();
    matches!(name, "target" | "lun" | "initiator" | "portal-group" | "port-group" | "limit")
}

fn double_brackets(name: &str) -> String {
    format!("there can be several of these: write [[{name}]] with double brackets")
}

fn names_secret(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    SECRET_WORDS.iter().any(|word| lower.contains(word))
}

/// The key that is at `span`, or whose value is.
fn key_at(table: &DeTable<'_>, span: &Range<usize>) -> Option<Found> {
    table.iter().find_map(|(key, value)| {
        if key.span() == *span {
            return Some(Found { key: key.get_ref().to_string(), of_value: false });
        }
        let inner = in_value(value, span)?;
        let name = key.get_ref();
        let key =
            if inner.key.is_empty() { name.to_string() } else { [name, &*inner.key].join(".") };
        Some(Found { key, ..inner })
    })
}

/// The innermost key that has `span` in it or in its value: its name, and its place with the value.
fn entry_at(table: &DeTable<'_>, span: &Range<usize>) -> Option<(String, Range<usize>)> {
    table.iter().find_map(|(key, value)| {
        let within = |place: &Range<usize>| place.start <= span.start && span.end <= place.end;
        let inner = match value.get_ref() {
            DeValue::Table(table) => entry_at(table, span),
            DeValue::Array(list) => list.iter().find_map(|value| match value.get_ref() {
                DeValue::Table(table) => entry_at(table, span),
                _ => None,
            }),
            _ => None,
        };
        let is_plain = |value: &DeValue<'_>| match value {
            DeValue::Table(_) => false,
            DeValue::Array(list) => {
                !list.iter().any(|value| matches!(value.get_ref(), DeValue::Table(_)))
            }
            _ => true,
        };
        inner.or_else(|| {
            let whole = key.span().start..value.span().end;
            let is_it = within(&key.span()) || within(&value.span());
            (is_it && is_plain(value.get_ref()) && whole.start < whole.end)
                .then(|| (key.get_ref().to_string(), whole))
        })
    })
}

fn in_value(value: &Spanned<DeValue<'_>>, span: &Range<usize>) -> Option<Found> {
    let inside = match value.get_ref() {
        DeValue::Table(table) => key_at(table, span),
        DeValue::Array(list) => list.iter().find_map(|value| in_value(value, span)),
        _ => None,
    };
    let is_it = value.span() == *span;
    inside.or_else(|| is_it.then(|| Found { key: String::new(), of_value: true }))
}

/// What the parser says of `value`, which stands in `key`.
fn problem(message: &str, value: &str, key: &str) -> String {
    let Some((given, expected)) = message.split_once(", expected ") else {
        return message.to_owned();
    };
    if let Some(field) = given.strip_prefix("unknown field ") {
        let names = expected.split('`').skip(1).step_by(2);
        let field = field.trim_matches('`');
        // What goes on behind it is a key of a file or of the environment, misspelt.
        if names_secret(field) && !field.contains("secret-") && expected.contains(SECRET_FILE) {
            let side = if field.starts_with("mutual") { "mutual" } else { "chap" };
            let name = format!("{side}{SECRET_FILE}");
            return format!(
                "{given}; a secret does not stand in the configuration: write it into a file of \
                 its own, and {name} = \"/path\""
            );
        }
        return match words::nearest(field, names) {
            Some(meant) => format!("{given}; did you mean `{meant}`?"),
            None => format!("{given}; no key has a name like it"),
        };
    }
    let is_number = |text: &str| matches!(text.as_bytes(), [b'u' | b'i', b'1'..=b'9', ..]);
    let known = TYPES.iter().find(|(name, ..)| expected.starts_with(name));
    let (right, example) = match known {
        Some((_, right, example)) => (*right, *example),
        None if is_number(expected) => (NUMBER, "1"),
        None => return message.to_owned(),
    };
    let quoted = given.contains("string");
    let last = key.rsplit('.').next().unwrap_or_default();
    let of_key = EXAMPLES.iter().find(|(names, _)| names.contains(&last)).map(|(_, text)| *text);
    let is_time = matches!(last, "login-timeout" | "ping-interval" | "ping-timeout");
    let whole = value.parse::<u64>().is_ok();
    let example = match known {
        Some(("a string", ..)) if is_time && whole => format!("\"{value}s\""),
        Some(("a string" | "a sequence", ..)) if of_key.is_some() && !quoted => {
            of_key.unwrap_or_default().to_owned()
        }
        Some(("a string", ..)) if !value.is_empty() => format!("\"{value}\""),
        Some(("a sequence", ..)) if whole && !quoted => format!("[{value}]"),
        _ if quoted && right == NUMBER && value.parse::<u64>().is_ok() => value.to_owned(),
        _ if right == NUMBER => {
            let of_key = NUMBERS.iter().find(|(name, _)| *name == last);
            of_key.map_or(example, |(_, number)| *number).to_owned()
        }
        Some(("a sequence", ..)) if quoted && !value.is_empty() => format!("[\"{value}\"]"),
        _ => example.to_owned(),
    };
    match last.is_empty() || example.is_empty() {
        true => format!("{given}; {right}"),
        false => format!("{given}; {right}, for example {last} = {example}"),
    }
}
