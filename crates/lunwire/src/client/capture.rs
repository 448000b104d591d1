// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Captures of what a command says to its targets, in one file for all of its sessions.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use anyhow::Result;
use anyhow::bail;
use capture::Capture;
use capture::Figures;

use super::place::STANDARD;
use super::size;
use super::usage;
use crate::args::ClientOptions;
use crate::args::Usage;
use crate::output;

/// How long a command waits for its capture to be written at its end.
pub(crate) const WRITE_PATIENCE: Duration = Duration::from_secs(5);

/// Less has no connection in it.
const LIMIT_MIN: u64 = 1 << 10;

/// The capture of this process.
static CAPTURE: Mutex<Option<Capture>> = Mutex::new(None);

/// The bytes that a capture may take, as an option says it.
pub(crate) fn limit(text: Option<&str>) -> Result<u64> {
    let Some(text) = text else { return Ok(capture::LIMIT_DEFAULT) };
    match size("--capture-limit", text)? {
        // Nor is 0 none.
        limit if limit < LIMIT_MIN => Err(usage("--capture-limit", text, "1K or more is right")),
        limit => Ok(limit),
    }
}

/// A capture is a file: `-` is standard output elsewhere.
pub(crate) fn refuse_stream(path: &Path) -> Result<()> {
    match path == Path::new(STANDARD) {
        true => {
            Err(Usage("--capture: a file is wanted, not -; try: ./- if it is called so".into())
                .into())
        }
        false => Ok(()),
    }
}

/// Where sessions are captured to, if the options want that.
pub(super) fn of(client: &ClientOptions) -> Result<Option<Capture>> {
    let Some(path) = &client.capture else { return Ok(None) };
    refuse_stream(path)?;
    let limit = limit(client.capture_limit.as_deref())?;
    let mut capture = CAPTURE.lock().unwrap_or_else(PoisonError::into_inner);
    if capture.is_none() {
        let file = path.clone();
        let tell = move |end: &capture::End| output::say(ended(&file, end));
        *capture = Some(Capture::create(path, limit, tell)?);
    }
    Ok(capture.clone())
}

/// Fails if the file of a command, such as the source of a copy, would be replaced by its capture.
pub(crate) fn spare(client: &ClientOptions, file: &str) -> Result<()> {
    let Some(capture) = &client.capture else { return Ok(()) };
    let of = |path: &Path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    let streams = [Path::new("/dev/stdin"), Path::new("/dev/stdout")];
    let named = [Path::new(file)];
    let files = if file == STANDARD { &streams[..] } else { &named };
    match of(capture) {
        Some(found) if files.iter().any(|file| of(file) == Some(found)) => {
            let path = capture.display();
            bail!("--capture {path}: the command itself reads or writes it; try: another name")
        }
        _ => Ok(()),
    }
}

/// The command is over: what it has captured is written.
pub(crate) fn finish() {
    let capture = CAPTURE.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(capture) = capture {
        let figures = capture.finish(WRITE_PATIENCE);
        lacking(capture.path(), &figures).iter().for_each(output::say);
    }
}

/// That nothing more is captured.
pub(crate) fn ended(path: &Path, end: &capture::End) -> String {
    format!("warning: {}: {end}; nothing more is captured", path.display())
}

/// That something is missing in a capture.
pub(crate) fn lacking(path: &Path, figures: &Figures) -> Option<String> {
    let lost = figures.lost;
    (lost > 0).then(|| {
        let path = path.display();
        format!("warning: {path}: {lost} segments came faster than they could be written")
    })
}
