// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A program that is told SQL and tells the answers, line by line.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::Error;

/// Told nothing more, it has ended after so long.
const END_MOST: Duration = Duration::from_secs(10);

/// Between two looks.
const LOOK: Duration = Duration::from_millis(2);

/// It says this when all before it is done.
const DONE: &str = "lunwire: done";

/// One that runs.
#[derive(Debug)]
pub(super) struct Client {
    name: &'static str,
    process: Child,
    /// None: it is told nothing more.
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Client {
    pub(super) fn start(name: &'static str, command: &mut Command) -> Result<Self, Error> {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(Error::rig)?;
        let pipes = process.stdin.take().zip(process.stdout.take());
        let (to, from) = pipes.ok_or_else(|| Error::Rig(format!("{name} has no pipes")))?;
        Ok(Self { name, process, to: Some(to), from: BufReader::new(from) })
    }

    /// What it answers.
    pub(super) fn ask(&mut self, sql: &str) -> Result<String, Error> {
        // One that has ended says why.
        if let Some(to) = &mut self.to {
            let asked = to.write_all(format!("{sql}\nselect '{DONE}';\n").as_bytes());
            let _ = asked.and_then(|()| to.flush());
        }
        let mut said = String::new();
        loop {
            let begin = said.len();
            if self.from.read_line(&mut said).map_err(Error::rig)? == 0 {
                let mut why = String::new();
                if let Some(mut from) = self.process.stderr.take() {
                    let _ = from.read_to_string(&mut why);
                }
                return Err(Error::Rig(format!("{}: {}", self.name, why.trim())));
            }
            if said.get(begin..).is_some_and(|line| line.trim_end() == DONE) {
                said.truncate(begin);
                return Ok(said);
            }
        }
    }

    /// Lets it end, which it does at the end of its orders.
    pub(super) fn end(&mut self) -> Result<(), Error> {
        self.to = None;
        let until = Instant::now() + END_MOST;
        while self.process.try_wait().map_err(Error::rig)?.is_none() {
            if Instant::now() >= until {
                // With whatever it has started.
                let _ = kill_process_group(Pid::from_child(&self.process), Signal::KILL);
                let _ = self.process.wait();
                return Err(Error::Rig(format!("{} did not end, and was killed", self.name)));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // An error before this one is told.
        let _ = self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Client {
        Client::start("sh", Command::new("sh").args(["-c", script])).unwrap()
    }

    #[test]
    fn answers_are_told_apart() {
        let mut client = sh("while read -r line; do case $line in *\\'*) echo 'lunwire: done';; \
                             *) echo \"= $line\";; esac; done");
        assert_eq!(client.ask("one").unwrap(), "= one\n");
        assert_eq!(client.ask("two\nthree").unwrap(), "= two\n= three\n");
        client.end().unwrap();
    }

    #[test]
    fn one_that_ends_says_why() {
        let mut client = sh("read -r line; echo \"no such table: $line\" >&2; exit 1");
        let why = client.ask("orders").unwrap_err().to_string();
        assert!(why.ends_with("sh: no such table: orders"), "{why}");
        assert!(client.ask("again").is_err(), "and nothing else");
    }
}
