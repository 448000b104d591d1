// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the tests of the commands that use disks share: our own binary, a daemon, files.
#![allow(dead_code)] // each program of tests uses some of it

use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Child;
use std::process::Command;
use std::process::Output;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

pub(crate) const TARGET: &str = "iqn.2026-01.local.lunwire:disk";

pub(crate) fn lunwire(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lunwire")).args(arguments).output().unwrap()
}

/// One that takes signals: who runs the tests may have ours ignore some (nohup, `&` in a script).
pub(crate) fn that_takes_signals() -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP,INT,TERM", env!("CARGO_BIN_EXE_lunwire")]);
    command
}

/// Until `child`, a client, hears signals: one that comes before ends it without a word.
#[track_caller]
pub(crate) fn await_ears(child: &mut Child) {
    let tasks = format!("/proc/{}/task", child.id());
    let begin = Instant::now();
    loop {
        let names = std::fs::read_dir(&tasks).into_iter().flatten().flatten();
        let mut names = names.map(|task| std::fs::read_to_string(task.path().join("comm")));
        if names.any(|name| name.is_ok_and(|name| name == "signals\n")) {
            return;
        }
        assert!(child.try_wait().unwrap().is_none(), "it has ended");
        assert!(begin.elapsed() < Duration::from_secs(60), "it hears no signals");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[track_caller]
pub(crate) fn good(arguments: &[&str]) -> Output {
    let output = lunwire(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    output
}

/// Ends with `code` and says each of `said`.
#[track_caller]
pub(crate) fn fails(code: i32, arguments: &[&str], said: &[&str]) {
    let output = lunwire(arguments);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
    for part in said {
        assert!(text.contains(part), "{arguments:?}: {part:?} is not in {text}");
    }
}

/// A daemon that ends with the test, however the test ends.
pub(crate) struct Daemon {
    pub(crate) child: Child,
    pub(crate) urls: Vec<String>,
    pub(crate) socket: String,
    /// Options besides, which a restart has, too.
    pub(crate) more: Vec<String>,
}

impl Daemon {
    pub(crate) fn start(folder: &Path, luns: &[&str], more: &[&str]) -> Self {
        Self::start_with_log(folder, luns, &[&["--log", "error"], more].concat(), Stdio::inherit())
    }

    /// One that writes what it tells at level `info` to `log` in `folder`.
    pub(crate) fn start_logged(folder: &Path, luns: &[&str], more: &[&str]) -> Self {
        let log = std::fs::File::create(folder.join("log")).unwrap();
        Self::start_with_log(folder, luns, more, log.into())
    }

    /// What it has told until some line says `what`.
    #[track_caller]
    pub(crate) fn told(folder: &Path, what: &str) -> String {
        let begin = Instant::now();
        loop {
            let log = std::fs::read_to_string(folder.join("log")).unwrap();
            let line = log.lines().find(|line| line.contains(what));
            if let Some(line) = line {
                return line.to_owned();
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "{what:?} is not in {log}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// One with a configuration that has `urls` LUNs and portals together.
    pub(crate) fn start_configured(
        folder: &Path,
        config: &str,
        urls: usize,
        more: &[&str],
    ) -> Self {
        let socket = folder.join("control").display().to_string();
        let mut command = Command::new(env!("CARGO_BIN_EXE_lunwire"));
        command.args(["serve", "--config", config, "--control-socket", &socket]);
        let command = command.args(["--log", "error"]).args(more).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().take(urls);
        let url = |line: String| line.strip_prefix("serving ").unwrap().to_owned();
        let urls = lines.map(|line| url(line.unwrap())).collect();
        let more = more.iter().map(|&word| word.to_owned()).collect();
        Self { child, urls, socket, more }
    }

    fn start_with_log(folder: &Path, luns: &[&str], more: &[&str], log: Stdio) -> Self {
        let socket = folder.join("control").display().to_string();
        let mut command = Command::new(env!("CARGO_BIN_EXE_lunwire"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--control-socket", &socket]);
        command.args(["--target", TARGET]).args(more).stderr(log);
        for lun in luns {
            command.args(["--lun", lun]);
        }
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let urls: Vec<String> = lines
            .take(luns.len())
            .map(|line| line.unwrap().strip_prefix("serving ").unwrap().to_owned())
            .collect();
        let more = more.iter().map(|&word| word.to_owned()).collect();
        Self { child, urls, socket, more }
    }

    /// What it answers to `request`, which costs less than a command that asks.
    pub(crate) fn asked(&self, request: &serde_json::Value) -> serde_json::Value {
        let mut stream = UnixStream::connect(&self.socket).unwrap();
        writeln!(stream, "{request}").unwrap();
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        serde_json::from_str(&answer).unwrap()
    }

    /// Until a session has moved data, and what is told of it.
    #[track_caller]
    pub(crate) fn await_work(&self) -> serde_json::Value {
        let begin = Instant::now();
        loop {
            let told = self.asked(&serde_json::json!({ "request": "sessions" }));
            let sessions = told["sessions"].as_array().unwrap();
            let moved = |session: &&serde_json::Value| {
                let moved = ["read_bytes", "written_bytes"].map(|name| session[name].as_u64());
                moved.into_iter().flatten().sum::<u64>() >= 64 << 10
            };
            if let Some(session) = sessions.iter().find(moved) {
                return session.clone();
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "nothing moves: {told}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// The same place and options with other units. Others may hold the port for a moment.
    pub(crate) fn restart(&mut self, portal: &str, luns: &[&str]) {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(40) {
            let mut command = Command::new(env!("CARGO_BIN_EXE_lunwire"));
            command.args(["serve", "--listen", portal, "--control-socket", &self.socket]);
            command.args(["--target", TARGET]).args(&self.more);
            for lun in luns {
                command.args(["--lun", lun]);
            }
            self.child = command.stdout(Stdio::piped()).spawn().unwrap();
            let mut lines = BufReader::new(self.child.stdout.take().unwrap());
            let mut first = String::new();
            if lines.read_line(&mut first).unwrap() > 0 {
                return;
            }
            self.child.wait().unwrap();
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("{portal} stays occupied");
    }

    pub(crate) fn portal(&self) -> &str {
        self.urls[0].split('/').nth(2).unwrap()
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Bytes that tell where they belong.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    let words = 0..u32::try_from(length / 4).unwrap();
    words.flat_map(|at| (at.wrapping_mul(2_654_435_761)).to_be_bytes()).collect()
}

/// Until the copy has begun.
pub(crate) fn wait_for(state: &str) {
    let begin = Instant::now();
    while !Path::new(state).exists() && begin.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) struct Files {
    pub(crate) folder: tempfile::TempDir,
}

impl Files {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    pub(crate) fn with(&self, name: &str, bytes: &[u8]) -> String {
        std::fs::write(self.path(name), bytes).unwrap();
        self.path(name)
    }
}

/// A loop device in front of a file; None without the rights for one.
pub(crate) struct Loop {
    pub(crate) device: String,
}

impl Loop {
    pub(crate) fn of(file: &str, more: &[&str]) -> Option<Self> {
        let mut losetup = Command::new("losetup");
        losetup.args(["--find", "--show"]).args(more).arg(file);
        let output = losetup.stderr(Stdio::null()).output().ok()?;
        let device = String::from_utf8(output.stdout).unwrap().trim().to_owned();
        if !output.status.success() {
            println!("skipped: losetup makes no loop device here");
            return None;
        }
        Some(Self { device })
    }

    pub(crate) fn detach(&self) {
        let mut losetup = Command::new("losetup");
        let _ = losetup.args(["--detach", &self.device]).stderr(Stdio::null()).status();
    }

    /// Shows another file from now on, by the same name.
    pub(crate) fn shows(&self, file: &str) {
        // The file goes when the last one has closed the device, which may be who looks at all.
        for _ in 0..50 {
            self.detach();
            let losetup = Command::new("losetup").args([&self.device, file]).status();
            if losetup.unwrap().success() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("{} is in use", self.device);
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        self.detach();
    }
}
