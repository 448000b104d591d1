// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The prompt of the shell: lines that can be edited, those of before, names that are completed.

use anyhow::Context as _;
use anyhow::Result;
use rustyline::Config;
use rustyline::Context;
use rustyline::Editor;
use rustyline::Helper;
use rustyline::completion::Completer;
use rustyline::completion::FilenameCompleter;
use rustyline::completion::Pair;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::MemHistory;
use rustyline::validate::Validator;

use super::COMMANDS;

const PROMPT: &str = "lunwire> ";

/// Words after the bytes of `scsi`.
const DATA_WORDS: [&str; 2] = ["in", "out"];

/// Lines from a terminal. What was typed is kept in memory alone: URLs may hold secrets.
pub(super) struct Prompt {
    editor: Editor<Names, MemHistory>,
}

impl Prompt {
    /// # Errors
    /// If the terminal cannot be used.
    pub(super) fn open() -> Result<Self> {
        let config = Config::builder().auto_add_history(true).build();
        let history = MemHistory::with_config(&config);
        let mut editor =
            Editor::with_history(config, history).context("cannot use the terminal")?;
        editor.set_helper(Some(Names::default()));
        Ok(Self { editor })
    }

    /// The next line; None at the end (Ctrl-D). Ctrl-C drops what was typed.
    ///
    /// # Errors
    /// If the terminal is gone.
    pub(super) fn line(&mut self) -> Result<Option<String>> {
        match self.editor.readline(PROMPT) {
            Ok(line) => Ok(Some(line)),
            Err(ReadlineError::Interrupted) => Ok(Some(String::new())),
            Err(ReadlineError::Eof) => Ok(None),
            Err(error) => Err(error).context("cannot read a command"),
        }
    }
}

/// Completes commands, their words, and files where a command takes one.
#[derive(Default)]
struct Names {
    files: FilenameCompleter,
}

/// What the word under the cursor may be.
#[derive(Debug, PartialEq, Eq)]
enum Word {
    OneOf(&'static [&'static str]),
    File,
    Other,
}

/// What comes behind these words.
fn kind(before: &[&str]) -> Word {
    match before {
        [] => Word::OneOf(&COMMANDS),
        ["read" | "write", _, _] | ["repeat", _] | ["log"] => Word::File,
        ["scsi", .., "out"] => Word::File,
        ["scsi", .., "in"] | ["scsi"] => Word::Other,
        ["scsi", ..] => Word::OneOf(&DATA_WORDS),
        _ => Word::Other,
    }
}

impl Completer for Names {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        pos: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let typed = line.get(..pos).unwrap_or(line);
        let start = typed.rfind(char::is_whitespace).map_or(0, |at| at + 1);
        let (before, word) = typed.split_at(start);
        let before: Vec<&str> = before.split_whitespace().collect();
        match kind(&before) {
            Word::OneOf(names) => Ok((start, completions(names, word))),
            Word::File => self.files.complete_path(line, pos),
            Word::Other => Ok((start, Vec::new())),
        }
    }
}

/// Those that begin like that, with the space behind them.
fn completions(names: &[&str], word: &str) -> Vec<Pair> {
    let fits = names.iter().filter(|name| name.starts_with(word));
    let pair = |name: &&str| Pair { display: (*name).to_owned(), replacement: format!("{name} ") };
    fits.map(pair).collect()
}

impl Hinter for Names {
    type Hint = String;
}
impl Highlighter for Names {}
impl Validator for Names {}
impl Helper for Names {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::SHELL_EXAMPLES;

    fn offered(line: &str) -> Vec<String> {
        let history = MemHistory::default();
        let (_, pairs) = Names::default()
            .complete(line, line.len(), &Context::new(&history))
            .expect("names can be looked up");
        pairs.into_iter().map(|pair| pair.replacement).collect()
    }

    #[test]
    fn commands_and_their_words_are_completed() {
        assert_eq!(offered("log"), ["login ", "logout ", "log "]);
        assert_eq!(offered("se"), ["segment "]);
        assert_eq!(offered("scsi 0 0 0 0 0 0 i"), ["in "]);
        assert_eq!(offered("scsi i"), [""; 0]);
        assert_eq!(offered("read 0 "), [""; 0], "a number");
        assert_eq!(offered("").len(), COMMANDS.len());
    }

    #[test]
    fn files_are_completed_where_one_is_due() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("image"), b"").expect("a file");
        let begun = folder.path().join("im").display().to_string();
        for before in ["read 0 1", "write 0 1", "repeat 3", "log", "scsi 0 0 0 0 0 0 out"] {
            let [file] = &offered(&format!("{before} {begun}"))[..] else { panic!("{before}") };
            assert!(file.ends_with("image"), "{file}");
        }
    }

    #[test]
    fn help_names_every_command() {
        for name in COMMANDS {
            assert!(SHELL_EXAMPLES.contains(name), "{name}");
        }
    }
}
