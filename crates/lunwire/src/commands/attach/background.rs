// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `--daemon`: another process attaches the disk, and this one waits until it can be used.
//!
//! The other process is the same program with `--in-background` in the place of `--daemon`. Its
//! standard input is a socket, over which it says that it is ready; until then all else that it
//! says is seen by who has called. Should that one be gone by then, it ends.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::process::ExitStatus;
use std::process::Stdio;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;

use crate::client::leaving;
use crate::output;

/// What says that the disk can be used.
const READY: u8 = b'r';

/// Why the other process ends before it is ready.
pub(super) const FORSAKEN: &str = "nobody waits for it any more";

/// How the other process ended before it was ready. It has said why.
#[derive(Debug)]
pub(super) struct Failed(pub(super) u8);

/// Starts the other process; None: the disk can be used.
pub(super) fn start() -> Result<Option<Failed>> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let (mut ours, theirs) = UnixStream::pair()?;
    let arguments = std::env::args_os().skip(1).map(|word| match word == "--daemon" {
        true => OsString::from("--in-background"),
        false => word,
    });
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .spawn()
        .context("cannot start a process in the background")?;
    let mut said = [0];
    match ours.read(&mut said) {
        Ok(1) if said == [READY] => Ok(None),
        _ => Ok(Some(Failed(code(child.wait().context("cannot wait for the other process")?)))),
    }
}

fn code(status: ExitStatus) -> u8 {
    status.code().and_then(|code| u8::try_from(code).ok()).filter(|code| *code != 0).unwrap_or(1)
}

/// The other process, before anything else: signals of the terminal are not for it.
pub(super) fn part() -> Result<()> {
    rustix::process::setsid().context("cannot part from the terminal")?;
    leaving::set_waited_for(true);
    Ok(())
}

/// It is ready: from now on `log` hears what it says.
pub(super) fn ready(log: &Path) -> Result<()> {
    let shown = log.display();
    let log = File::options().create(true).append(true).open(log);
    let log = log.with_context(|| format!("cannot write {shown}; try: --state-dir PATH"))?;
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    leaving::set_waited_for(false);
    let sent = rustix::io::write(rustix::stdio::stdin(), &[READY]);
    if sent.is_err() {
        bail!(FORSAKEN);
    }
    rustix::stdio::dup2_stdin(&nothing)?;
    rustix::stdio::dup2_stdout(&nothing)?;
    rustix::stdio::dup2_stderr(&log)?;
    output::log();
    Ok(())
}
