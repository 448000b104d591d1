// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line of lunwire.
//!
//! Exit status: 0 done, 1 the operation failed (stderr says what and what to do), 2 wrong usage;
//! 70 a defect of `serve` itself ([`target::PANICKED`]).
#![forbid(unsafe_code)]

mod args;
mod client;
mod commands;
mod control_socket;
mod credentials;
mod daemon;
mod inherited;
mod output;
mod plan;
mod ports;
mod remains;
mod remotes;

use std::io::Write;
use std::num::ParseIntError;
use std::process::ExitCode;
use std::time::Duration;

use clap::error::ContextKind;
use clap::error::ContextValue;

use crate::args::Args;
use crate::args::Command;

/// A value of an option that is none, as we say it of all others.
fn wrong_value(error: &clap::Error) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let (option, value) = (text(ContextKind::InvalidArg)?, text(ContextKind::InvalidValue)?);
    let option = option.split(' ').next().filter(|name| name.starts_with('-')).unwrap_or(option);
    let cause = std::error::Error::source(error)?;
    if !cause.is::<ParseIntError>() {
        let cause = cause.to_string();
        let range = cause.split_once(" is not in ").and_then(|(_, range)| range.split_once("..="));
        return Some(match range {
            Some((least, most)) => format!("{option} {value}: {least} to {most} is right"),
            None => format!("{option} {value}: {cause}"),
        });
    }
    let digits = value.split(|letter: char| !letter.is_ascii_digit()).next().unwrap_or_default();
    let example = if digits.is_empty() || digits.len() > 5 { "1" } else { digits };
    let example =
        if option.starts_with('-') { format!("{option} {example}") } else { example.into() };
    Some(format!("{option} {value}: a whole number is right, for example {example}"))
}

/// A value behind a blank, of the option whose value is optional.
fn apart_value(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidArg) else { return None };
    let words: Vec<_> = std::env::args_os().collect();
    let is_apart = words.windows(2).any(
        |pair| matches!(pair, [option, word] if option == "--sandbox" && word == value.as_str()),
    );
    let right = if ["auto", "yes", "no"].contains(&value.as_str()) { value } else { "yes" };
    is_apart.then(|| format!("--sandbox {value}: --sandbox={right} is right, with = and no blank"))
}

/// What clap says of arguments, or help, without secrets.
fn wrong_arguments(error: &clap::Error) -> u8 {
    if let Some(text) = wrong_value(error).or_else(|| apart_value(error)) {
        let text = output::error(&anyhow::Error::msg(text));
        output::failure(&text, 2);
        return 2;
    }
    let text = error.render().to_string();
    let masked = output::masked(&text);
    if masked == text {
        let printed = error.print();
        if !error.use_stderr() {
            output::note(printed);
        }
    } else {
        let _ = write!(std::io::stderr(), "{masked}");
    }
    let status = u8::try_from(error.exit_code()).unwrap_or(2);
    if error.use_stderr() {
        output::failure(&args::problem(error), status);
        return status;
    }
    told()
}

/// The end of a command that has done all that it had to do: whether it could tell the result.
fn told() -> u8 {
    match output::written() {
        Ok(_) => 0,
        Err(error) => {
            output::error(&error);
            1
        }
    }
}

/// So long this process stays for what it has left to say over raw Ethernet: of what is over TCP
/// the system says it.
const SETTLE_PATIENCE: Duration = Duration::from_millis(200);

/// As diff(1) has it.
const DIFFERS: u8 = 1;

fn main() -> ExitCode {
    let status = carry_out();
    initiator::settle(SETTLE_PATIENCE);
    if rbd::is_loaded() {
        // Without hooks, which would abort the process under the threads of Ceph's client.
        let _ = std::io::stdout().flush();
        signal_hook::low_level::exit(status.into());
    }
    ExitCode::from(status)
}

/// Does what is asked for; gives the status.
fn carry_out() -> u8 {
    let args = match Args::of_process() {
        Ok(args) => args,
        Err(error) => return wrong_arguments(&error),
    };
    // What a daemon prints is where it serves: it goes on whoever hears that.
    let has_result = !matches!(args.command, Command::Serve(_));
    let result = match args.command {
        Command::Serve(options) => commands::serve::run(&options),
        Command::Check(options) => commands::check::run(&options),
        Command::Explain(options) => commands::explain::run(&options),
        Command::Status(options) => commands::status::status(&options),
        Command::Sessions(options) => commands::status::sessions(&options),
        Command::Top(options) => commands::top::run(&options),
        Command::Events(options) => commands::events::run(&options),
        Command::Session(options) => commands::status::session(&options),
        Command::Lun(options) => commands::lun::run(&options),
        Command::Reload(options) => match commands::reload::run(&options) {
            Ok(false) => return told().max(DIFFERS),
            result => result.map(drop),
        },
        Command::Diff(options) => match commands::reload::diff(&options) {
            Ok(true) => return told().max(DIFFERS),
            result => result.map(drop),
        },
        Command::Dump(options) => commands::reload::dump(&options),
        Command::Discover(options) => commands::discover::run(&options),
        Command::Inspect(options) => commands::inspect::run(&options),
        Command::Read(options) => commands::transfer::read(&options),
        Command::Write(options) => commands::transfer::write(&options),
        Command::Copy(options) => commands::transfer::copy(&options),
        Command::Bench(options) => commands::bench::run(&options),
        Command::Attach(options) => commands::attach::run(&options),
        Command::Attached(options) => commands::attach::attached(&options),
        Command::Detach(options) => commands::attach::detach(&options),
        Command::Shell(options) => commands::shell::run(&options),
        Command::Alua(options) => commands::alua::run(&options),
        Command::Limit(options) => commands::limit::run(&options),
        Command::Trace(options) => commands::trace::run(&options),
        Command::Lab(options) => commands::lab::run(&options),
    };
    client::capture::finish();
    match result {
        // A warning has said why.
        Ok(()) if client::has_left_something() => 1,
        Ok(()) if has_result => told(),
        Ok(()) => 0,
        Err(error) => {
            let status = if error.is::<args::Usage>() { 2 } else { 1 };
            let text = match has_result {
                true => output::error(&error),
                false => output::last_error(&error),
            };
            output::failure(&text, status);
            status
        }
    }
}
