// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A database server of our own, with its files below a folder, and one client.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::Advice;

use crate::Error;
use crate::programs::{self, installed};

/// It answers after so long.
const BEGIN_MOST: Duration = Duration::from_secs(20);

/// And has ended after so long.
const END_MOST: Duration = Duration::from_secs(10);

/// Between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// The client says this when all before it is done.
const DONE: &str = "lunwire: done";

/// Where its programs are.
#[derive(Debug)]
pub(super) struct Programs {
    server: PathBuf,
    client: PathBuf,
}

impl Programs {
    pub(super) fn find() -> Result<Self, String> {
        let server = installed("mariadbd", "mariadb-server-core")?;
        Ok(Self { server, client: installed("mariadb", "mariadb-client-core")? })
    }
}

/// A server that runs.
#[derive(Debug)]
pub(super) struct Database {
    server: Child,
    client: Option<(Child, ChildStdin, BufReader<ChildStdout>)>,
    folder: PathBuf,
    is_over: bool,
}

impl Database {
    /// Below `folder`, with nothing in it.
    pub(super) fn start(programs: &Programs, folder: &Path) -> Result<Self, Error> {
        let folder = folder.join("database");
        fs::create_dir(&folder).map_err(Error::rig)?;
        let socket = folder.join("socket");
        let place = |name: &str| format!("--{name}={}", folder.display());
        let file = |name: &str, file: &str| format!("--{name}={}", folder.join(file).display());
        let server = Command::new(&programs.server)
            .arg("--no-defaults")
            .args([place("datadir"), place("tmpdir"), file("socket", "socket")])
            .args([file("pid-file", "pid"), file("log-error", "log")])
            // Tables as MySQL made them then, and no users: the socket is this user's alone.
            .args(["--user=root", "--skip-networking", "--skip-grant-tables", "--skip-innodb"])
            .args(["--default-storage-engine=MyISAM", "--key-buffer-size=1M"])
            .args(["--query-cache-type=0", "--thread-handling=one-thread-per-connection"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(Error::rig)?;
        let mut database = Self { server, client: None, folder: folder.clone(), is_over: false };
        let until = Instant::now() + BEGIN_MOST;
        while UnixStream::connect(&socket).is_err() {
            let ended = database.server.try_wait().map_err(Error::rig)?;
            if ended.is_some() || Instant::now() >= until {
                return Err(Error::Rig(format!("mariadbd does not begin: {}", database.log())));
            }
            std::thread::sleep(LOOK);
        }
        let mut client = Command::new(&programs.client)
            .args(["--no-defaults", "--user=root", "--batch", "--skip-column-names"])
            .arg("--unbuffered")
            .arg(file("socket", "socket"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(Error::rig)?;
        let (to, from) = (client.stdin.take(), client.stdout.take());
        let (to, from) = to.zip(from).ok_or_else(|| Error::rig("mariadb has no pipes"))?;
        database.client = Some((client, to, BufReader::new(from)));
        Ok(database)
    }

    pub(super) fn process(&self) -> u32 {
        self.server.id()
    }

    /// What it answers.
    pub(super) fn ask(&mut self, sql: &str) -> Result<String, Error> {
        let (client, to, from) =
            self.client.as_mut().ok_or_else(|| Error::rig("there is no client"))?;
        let asked = to.write_all(format!("{sql}\nselect '{DONE}';\n").as_bytes());
        asked.and_then(|()| to.flush()).map_err(Error::rig)?;
        let mut said = String::new();
        loop {
            let begin = said.len();
            if from.read_line(&mut said).map_err(Error::rig)? == 0 {
                let mut why = String::new();
                if let Some(mut from) = client.stderr.take() {
                    let _ = from.read_to_string(&mut why);
                }
                return Err(Error::Rig(format!("mariadb: {}", why.trim())));
            }
            if said.get(begin..).is_some_and(|line| line.trim_end() == DONE) {
                said.truncate(begin);
                return Ok(said);
            }
        }
    }

    /// Nothing of its tables is in memory any more, neither here nor in the system.
    pub(super) fn forget(&mut self) -> Result<(), Error> {
        self.ask("flush tables;")?;
        for entry in fs::read_dir(self.folder.join("tpch")).map_err(Error::rig)? {
            let file = File::open(entry.map_err(Error::rig)?.path()).map_err(Error::rig)?;
            // What is not on the disk cannot be forgotten.
            file.sync_data().map_err(Error::rig)?;
            rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).map_err(Error::rig)?;
        }
        Ok(())
    }

    /// Lets it end.
    pub(super) fn end(mut self) -> Result<(), Error> {
        self.stop()
    }

    fn stop(&mut self) -> Result<(), Error> {
        self.is_over = true;
        if let Some((mut client, to, _)) = self.client.take() {
            // At the end of its orders it ends.
            drop(to);
            let _ = client.kill();
            let _ = client.wait();
        }
        programs::end(&mut self.server, "mariadbd", END_MOST)
    }

    /// The end of what it wrote.
    fn log(&self) -> String {
        let text = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(3).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("; ")
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if !self.is_over {
            // An error before this one is told.
            let _ = self.stop();
        }
    }
}
