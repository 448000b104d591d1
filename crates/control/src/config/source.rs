// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a configuration came from, how it is read, and where in it an error is.

mod problem;

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::path::PathBuf;

use toml::Spanned;

use super::Config;
use crate::words;

/// More than this is not told at once: who writes a file mends some of it first.
const WRONG_MAX: usize = 64;

/// Where a configuration came from: its name and text, to say where an error is.
#[derive(Clone, Debug)]
pub struct Source {
    name: String,
    text: String,
    folder: Option<PathBuf>,
}

/// What is wrong, where, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// File and line, or "command line".
    pub place: String,
    /// For example `target.lun.store`; empty if the file is no TOML.
    pub field: String,
    /// The value as the file has it, in its quotes; empty if it may be a secret.
    pub value: String,
    /// What is wrong and what would be right.
    pub problem: String,
}

impl Source {
    /// `name`: the file's path as the user gave it.
    #[must_use]
    pub const fn new(name: String, text: String) -> Self {
        Self { name, text, folder: None }
    }

    /// The same, with the folder that its paths count from.
    #[must_use]
    pub fn in_folder(self, folder: Option<PathBuf>) -> Self {
        Self { folder, ..self }
    }

    /// What is read.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The folder that paths count from; none: the current one.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// Reads the text.
    ///
    /// # Errors
    /// Bad TOML, unknown fields, missing fields, wrong types.
    pub fn parse(&self) -> Result<Config, ConfigError> {
        toml::from_str(&self.text).map_err(|error| self.explained(&error))
    }

    /// Reads the text, and goes on behind what is wrong as far as that can be done: what is right,
    /// without what is wrong, and everything that is wrong.
    #[must_use]
    pub fn parse_all(&self) -> (Option<Config>, Vec<ConfigError>) {
        let (mut text, mut wrong, mut taken) = (self.text.clone(), Vec::new(), Vec::new());
        while wrong.len() < WRONG_MAX {
            let error = match toml::from_str(&text) {
                Ok(config) => return (Some(config), wrong),
                Err(error) => error,
            };
            // That a key is missing which was wrong is no news.
            let message: &str = error.message();
            if taken.iter().any(|key| message.contains(&format!("missing field `{key}`"))) {
                break;
            }
            wrong.push(self.explained(&error));
            let Some((rest, key)) = Self::without(&text, &error) else { break };
            text = rest;
            taken.push(key);
        }
        (None, wrong)
    }

    /// Which top-level table a place of an error is in, counted; None: none, it is a key of the
    /// whole.
    #[must_use]
    pub fn table_of(&self, error: &ConfigError) -> Option<usize> {
        let line = error.place.rsplit(':').next()?.parse().ok()?;
        let is_header = |line: &&str| {
            let line = line.trim_start();
            let name = line.trim_start_matches('[').split(']').next().unwrap_or_default();
            line.starts_with('[') && !name.contains('.')
        };
        self.text.lines().take(line).filter(is_header).count().checked_sub(1)
    }

    /// An error about `value`, which stands in `field`.
    pub fn error<T: fmt::Display>(
        &self,
        field: &str,
        value: &Spanned<T>,
        problem: impl fmt::Display,
    ) -> ConfigError {
        ConfigError {
            value: self.written(&value.span(), value.get_ref()),
            ..self.secret_error(field, value, problem)
        }
    }

    /// As [`Source::error`]; the value may be a secret and is not repeated.
    pub fn secret_error<T>(
        &self,
        field: &str,
        value: &Spanned<T>,
        problem: impl fmt::Display,
    ) -> ConfigError {
        ConfigError {
            place: self.place(&value.span()),
            field: field.to_owned(),
            value: String::new(),
            problem: problem.to_string(),
        }
    }

    /// The value at `span` as the file has it, on one line.
    fn written(&self, span: &Range<usize>, value: &impl fmt::Display) -> String {
        match self.text.get(span.clone()) {
            Some(text) if !text.is_empty() && !text.chars().any(char::is_control) => {
                text.to_owned()
            }
            _ => format!("\"{}\"", value.to_string().escape_debug()),
        }
    }

    /// `FILE:LINE`, the line counted from one.
    fn place(&self, span: &Range<usize>) -> String {
        let before = self.text.get(..span.start).unwrap_or(&self.text);
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        format!("{}:{line}", self.name)
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        if !self.field.is_empty() {
            let mark = if self.value.is_empty() { ":" } else { " =" };
            write!(f, "{}{mark} ", self.field)?;
        }
        if !self.value.is_empty() {
            write!(f, "{}: ", words::shown(&self.value))?;
        }
        f.write_str(&self.problem)
    }
}

impl std::error::Error for ConfigError {}
