// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the words of the command line to arguments, and what is said of words that are none.

use std::any::TypeId;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::Arg;
use clap::Command;
use clap::CommandFactory;
use clap::FromArgMatches;
use clap::builder::OsStringValueParser;
use clap::builder::TypedValueParser;
use clap::error::ErrorKind;

use super::Args;

impl Args {
    /// The arguments of this process. No text and no path is empty.
    pub(crate) fn of_process() -> Result<Self, clap::Error> {
        let mut command = without_empty_words(Self::command());
        let mut matches = command.try_get_matches_from_mut(std::env::args_os())?;
        Self::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
    }
}

/// What is wrong with the words, in one line, for a program: without usage and help.
pub(crate) fn problem(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "a command is missing; try: --help".to_owned();
    }
    let text = error.render().to_string();
    let is_said = |part: &&str| !part.starts_with("Usage:") && !part.starts_with("For more ");
    let parts = text.trim_start_matches("error: ").split("\n\n").map(str::trim);
    let lines = |part: &str| part.split_whitespace().collect::<Vec<_>>().join(" ");
    parts.filter(is_said).map(lines).collect::<Vec<_>>().join("; ")
}

/// The command, and all commands within it.
fn without_empty_words(command: Command) -> Command {
    command.mut_args(refuse_empty).mut_subcommands(without_empty_words)
}

fn refuse_empty(arg: Arg) -> Arg {
    let kind = arg.get_value_parser().type_id();
    if !arg.get_possible_values().is_empty() {
        // No word of a list is empty.
        arg
    } else if kind == TypeId::of::<String>() {
        arg.value_parser(text)
    } else if kind == TypeId::of::<PathBuf>() {
        arg.value_parser(OsStringValueParser::new().try_map(path))
    } else {
        arg
    }
}

const EMPTY: &str = "it is empty";

fn text(word: &str) -> Result<String, &'static str> {
    if word.is_empty() { Err(EMPTY) } else { Ok(word.to_owned()) }
}

fn path(word: OsString) -> Result<PathBuf, &'static str> {
    if word.is_empty() { Err(EMPTY) } else { Ok(word.into()) }
}
