// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How commands speak: text for people, JSON for programs, errors with their causes.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::io::IsTerminal;
use std::io::Write;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use anyhow::bail;
use control::words;
use serde_json::Value;
use serde_json::json;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::fmt::time::SystemTime;

/// The end of a daemon waits so long for who reads why.
const LAST_ERROR_MAX: Duration = Duration::from_millis(500);

/// Shorter ones are no secrets of CHAP, and would blot out words that have nothing to do with them.
const SECRET_LEN_MIN: usize = 6;

/// What never goes into a message.
static SECRETS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Words that may have secrets in them, of scripts.
static WORDS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// A result was told: a program that reads one object gets no other one.
static TOLD: AtomicBool = AtomicBool::new(false);

/// Why standard output could not be written.
static UNWRITTEN: Mutex<Option<std::io::Error>> = Mutex::new(None);

/// What is told to people goes to a log.
static LOGS: AtomicBool = AtomicBool::new(false);

/// A line stands on the terminal that is rewritten.
static REWRITTEN: AtomicBool = AtomicBool::new(false);

/// What was warned of.
static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on no message has `secret` in it.
pub(crate) fn hide(secret: &str) {
    if secret.len() >= SECRET_LEN_MIN {
        lock(&SECRETS).push(secret.to_owned());
    }
}

/// From now on no message has the secrets in it that are in the words of `line`, which somebody
/// else than the command line gave.
pub(crate) fn hide_secrets_in(line: &str) {
    let words = line.split_whitespace().chain([line.trim()]);
    let new = words.filter(|word| initiator::may_hold_secrets(word)).map(str::to_owned);
    let mut known = lock(&WORDS);
    for word in new {
        if !known.contains(&word) {
            known.push(word);
        }
    }
}

/// A message without secrets, whoever made it: no part of an argument of this process that is one,
/// and none that was told to [`hide`] or [`hide_secrets_in`].
pub(crate) fn masked(text: &str) -> String {
    let mut masked = text.to_owned();
    for word in std::env::args_os().skip(1) {
        let word = word.to_string_lossy();
        let value = word.split_once('=').filter(|_| word.starts_with("--"));
        mask_word(&mut masked, value.map_or(&*word, |(_, value)| value));
    }
    for word in &*lock(&WORDS) {
        mask_word(&mut masked, word);
    }
    for secret in &*lock(&SECRETS) {
        masked = masked.replace(secret.as_str(), "***");
    }
    masked
}

/// Takes out of `text` what may be a secret in `word`.
fn mask_word(text: &mut String, word: &str) {
    if !initiator::may_hold_secrets(word) {
        return;
    }
    let shown = initiator::without_secrets(word);
    *text = text.replace(word, &shown).replace(&word.escape_debug().to_string(), &shown);
    for secret in initiator::secrets_in(word) {
        if secret.len() >= SECRET_LEN_MIN {
            *text = text.replace(&secret, "***");
        }
    }
}

/// Warns, once.
pub(crate) fn warn(text: impl std::fmt::Display) {
    say_once(format_args!("warning: {text}"));
}

/// Says something that is not to be said again.
pub(crate) fn say_once(text: impl std::fmt::Display) {
    let text = masked(&text.to_string());
    let mut said = lock(&SAID);
    if !said.contains(&text) {
        say(&text);
        said.push(text);
    }
}

/// The command that runs: the first argument.
pub(crate) fn command() -> Option<String> {
    std::env::args_os().nth(1).map(|word| word.to_string_lossy().into_owned())
}

/// Whether a program wants to read what comes, also what goes wrong.
pub(crate) fn speaks_json() -> bool {
    std::env::args_os().skip(1).take_while(|word| word != "--").any(|word| word == "--json")
}

/// A failure for a program, on standard output: people read it on standard error.
pub(crate) fn failure(text: &str, exit_status: u8) {
    if speaks_json() && !TOLD.load(Ordering::Relaxed) {
        line(json!({ "ok": false, "error": masked(text), "exit_status": exit_status }));
    }
}

/// The result of what has gone well, for a program: an object, and `ok` is in it as it is in that
/// of a failure.
pub(crate) fn result(mut result: Value) {
    if let Value::Object(members) = &mut result {
        members.insert("ok".to_owned(), true.into());
    }
    line(result);
}

/// The result of something that may fail all the same, which says itself whether it is `ok`.
pub(crate) fn partial(result: impl std::fmt::Display) {
    TOLD.store(true, Ordering::Relaxed);
    line(result);
}

/// The figures of a measurement, for a program, and why there are no more of them, as a failure
/// tells it; what says so ends the command with exit status 1.
pub(crate) fn measured(failed: Option<&anyhow::Error>, mut figures: Value) {
    if let Value::Object(members) = &mut figures {
        members.insert("ok".to_owned(), failed.is_none().into());
        let error = failed.map(|error| masked(&chain(error)));
        members.insert("error".to_owned(), error.into());
        if failed.is_some() {
            members.insert("exit_status".to_owned(), 1.into());
        }
    }
    partial(figures);
}

/// That something is done which has no other result.
pub(crate) fn done(json: bool, text: &str) {
    if json {
        result(json!({ "reply": "done" }));
    } else {
        line(text);
    }
}

/// A figure with three decimals: more of them nobody has measured.
pub(crate) fn rounded(figure: f64) -> f64 {
    (figure * 1000.0).round() / 1000.0
}

/// Whether standard error takes colours, and the user (no-color.org).
pub(crate) fn colors() -> bool {
    let refused = std::env::var_os("NO_COLOR");
    takes_colors(refused.as_deref(), std::io::stderr().is_terminal())
}

fn takes_colors(refused: Option<&OsStr>, terminal: bool) -> bool {
    terminal && refused.is_none_or(OsStr::is_empty)
}

/// Prints the whole chain of an error once; gives it back.
pub(crate) fn error(error: &anyhow::Error) -> String {
    let text = masked(&chain(error));
    say(&text);
    text
}

/// As [`error`], of a daemon: one who does not read what it says is no reason to stay.
pub(crate) fn last_error(error: &anyhow::Error) -> String {
    let text = masked(&chain(error));
    let (said, heard) = mpsc::channel();
    let words = text.clone();
    let saying = thread::Builder::new().spawn(move || {
        say(words);
        // Who waits may have given up.
        let _ = said.send(());
    });
    if saying.is_ok() {
        let _ = heard.recv_timeout(LAST_ERROR_MAX);
    }
    text
}

/// All causes, and behind them what to try.
pub(crate) fn chain(error: &anyhow::Error) -> String {
    let (mut text, mut advice) = (String::new(), String::new());
    for (depth, cause) in error.chain().enumerate() {
        let cause = cause.to_string();
        let (what, tried) = cause.split_at(cause.find(ADVICE).unwrap_or(cause.len()));
        // A cause that its parent has quoted already says nothing new.
        if depth == 0 || !text.contains(what) {
            if depth > 0 {
                text.push_str(": ");
            }
            text.push_str(what);
        }
        if !advice.contains(tried) {
            advice.push_str(tried);
        }
    }
    text + &advice
}

/// Where an error ends and advice begins.
const ADVICE: &str = "; try: ";

/// Prints a line. What becomes of it is told by [`written`].
pub(crate) fn line(text: impl std::fmt::Display) {
    note(writeln!(std::io::stdout(), "{text}"));
}

/// Keeps the first failure to write standard output.
pub(crate) fn note(result: std::io::Result<()>) {
    if let Err(error) = result {
        lock(&UNWRITTEN).get_or_insert(error);
    }
}

/// Whether all that was told could be written; false: its reader has gone away, which is no failure
/// of ours, and nobody hears what else there is to tell.
pub(crate) fn written() -> Result<bool> {
    note(std::io::stdout().flush());
    if engine::standard::output_is_missing() {
        bail!("standard output is closed: the result went nowhere");
    }
    match &*lock(&UNWRITTEN) {
        None => Ok(true),
        Some(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Some(error) => bail!("cannot write standard output: {error}; try: a FILE elsewhere"),
    }
}

/// Rewrites the line that shows on a terminal how far something has come.
pub(crate) fn rewrite(text: &str) {
    REWRITTEN.store(true, Ordering::Relaxed);
    let _ = write!(std::io::stderr(), "\r{text}\x1b[K");
}

/// Takes that line away.
pub(crate) fn clear() {
    if REWRITTEN.swap(false, Ordering::Relaxed) {
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
}

/// Tells people what happens meanwhile. Whoever does not hear it sees the result.
pub(crate) fn say(text: impl std::fmt::Display) {
    clear();
    let time = if LOGS.load(Ordering::Relaxed) { now() } else { String::new() };
    let _ = writeln!(std::io::stderr(), "{time}lunwire: {text}");
}

/// From now on what is told to people has its time, as in the log of a daemon: it is read later.
pub(crate) fn log() {
    LOGS.store(true, Ordering::Relaxed);
}

fn now() -> String {
    let mut time = String::new();
    // It is written to memory, and without a clock there is no time.
    let _ = SystemTime.format_time(&mut Writer::new(&mut time));
    time + " "
}

/// A name that others chose, in a line: what would begin another one, tell a terminal what to do,
/// or not be seen, is written as characters.
pub(crate) fn on_one_line(name: &str) -> String {
    words::shown(name)
}

/// A table with left-aligned columns; the first row is the heading.
pub(crate) fn table(rows: &[Vec<String>]) {
    lines(rows).into_iter().for_each(line);
}

/// Others are set in no further by what a file or a peer calls something.
const CELL_WIDTH_MOST: usize = 200;

fn lines(rows: &[Vec<String>]) -> Vec<String> {
    let shown = |row: &Vec<String>| row.iter().map(|cell| on_one_line(cell)).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(shown).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
            widest.min(CELL_WIDTH_MOST)
        })
        .collect();
    let told = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(told).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colors_are_for_terminals_whose_users_want_them() {
        assert!(takes_colors(None, true) && takes_colors(Some(OsStr::new("")), true));
        assert!(!takes_colors(Some(OsStr::new("1")), true) && !takes_colors(None, false));
    }

    #[test]
    fn a_name_stays_on_its_line() {
        assert_eq!(on_one_line("/a b\\\u{e9}"), "/a b\\\u{e9}");
        assert_eq!(on_one_line("a\nb\x1b[1m\u{9b}"), "a\\nb\\u{1b}[1m\\u{9b}");
    }

    #[test]
    fn a_cell_without_end_sets_no_other_in() {
        let long = "x".repeat(70_000);
        let rows = [[long.as_str(), "1"], ["y", "2"]].map(|row| row.map(str::to_owned).to_vec());
        let lines = lines(&rows);
        assert_eq!(lines[0], format!("{long}  1"));
        assert!(lines[1].len() < 1000, "{} bytes", lines[1].len());
    }

    #[test]
    fn advice_comes_behind_all_causes() {
        let chained = |causes: &[&'static str]| {
            let mut causes = causes.iter().rev();
            let first = anyhow::Error::msg(*causes.next().expect("one"));
            chain(&causes.fold(first, |error, cause| error.context(*cause)))
        };
        assert_eq!(
            chained(&["cannot reach x; try: lunwire serve", "no such file"]),
            "cannot reach x: no such file; try: lunwire serve"
        );
        assert_eq!(
            chained(&["x: no such file; try: y", "no such file"]),
            "x: no such file; try: y"
        );
        assert_eq!(chained(&["a", "b; try: c", "d; try: c"]), "a: b: d; try: c");
        assert_eq!(chained(&["only; try: this"]), "only; try: this");
    }

    #[test]
    fn figures_have_three_decimals() {
        assert_eq!(format!("{}", rounded(0.457_312_345_504_760_74)), "0.457");
        assert_eq!(format!("{}", rounded(1234.5)), "1234.5");
    }
}
