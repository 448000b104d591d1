// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How commands speak: text for people, JSON for programs, errors with their causes.

use std::io::Write;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

/// Shorter ones are no secrets of CHAP, and would blot out words that have nothing to do with them.
const SECRET_LEN_MIN: usize = 6;

/// What never goes into a message.
static SECRETS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// What was warned of.
static WARNED: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on no message has `secret` in it.
pub(crate) fn hide(secret: &str) {
    if secret.len() >= SECRET_LEN_MIN {
        lock(&SECRETS).push(secret.to_owned());
    }
}

/// A message without secrets, whoever made it: no part of an argument of this process that is one,
/// and none that was told to [`hide`].
pub(crate) fn masked(text: &str) -> String {
    let mut masked = text.to_owned();
    for word in std::env::args_os().skip(1) {
        let word = word.to_string_lossy();
        let shown = initiator::without_secrets(&word);
        let is_place = ["://", "%", "target_password="].iter().any(|sign| word.contains(sign));
        if is_place && shown != word {
            masked = masked.replace(&*word, &shown);
            masked = masked.replace(&word.escape_debug().to_string(), &shown);
            for secret in initiator::secrets_in(&word) {
                if secret.len() >= SECRET_LEN_MIN {
                    masked = masked.replace(secret, "***");
                }
            }
        }
    }
    for secret in &*lock(&SECRETS) {
        masked = masked.replace(secret.as_str(), "***");
    }
    masked
}

/// Warns, once.
pub(crate) fn warn(text: impl std::fmt::Display) {
    let text = masked(&text.to_string());
    let mut warned = lock(&WARNED);
    if !warned.contains(&text) {
        eprintln!("lunwire: warning: {text}");
        warned.push(text);
    }
}

/// Prints the whole chain of an error once.
pub(crate) fn error(error: &anyhow::Error) {
    let mut text = String::new();
    for (depth, cause) in error.chain().enumerate() {
        let cause = cause.to_string();
        // A cause that its parent has quoted already says nothing new.
        if depth == 0 || !text.contains(&cause) {
            if depth > 0 {
                text.push_str(": ");
            }
            text.push_str(&cause);
        }
    }
    eprintln!("lunwire: {}", masked(&text));
}

/// Prints a line; a reader that has gone away is no failure of ours.
pub(crate) fn line(text: impl std::fmt::Display) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// A table with left-aligned columns; the first row is the heading.
pub(crate) fn table(rows: &[Vec<String>]) {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        line(cells.collect::<Vec<_>>().join("  ").trim_end());
    }
}
