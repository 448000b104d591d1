// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How commands speak: text for people, JSON for programs, errors with their causes.

use std::io::Write;

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
    eprintln!("lunwire: {text}");
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
