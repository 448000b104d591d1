// SPDX-License-Identifier: Apache-2.0 OR MIT
//! MariaDB: a server of our own, with its files below a folder, and one client.

use std::fs;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::client::Client;
use super::database::{Database, drop_pages};
use crate::Error;
use crate::programs;

/// It answers after so long.
const BEGIN_MOST: Duration = Duration::from_secs(20);

/// And has ended after so long.
const END_MOST: Duration = Duration::from_secs(10);

/// Between two looks.
const LOOK: Duration = Duration::from_millis(5);

const TABLES: &str = include_str!("mariadb.sql");

/// A server that runs.
#[derive(Debug)]
pub(super) struct MariaDb {
    server: Child,
    client: Option<Client>,
    folder: PathBuf,
    is_over: bool,
}

impl MariaDb {
    pub(super) fn start(
        [server, client]: [&Path; 2],
        folder: &Path,
        tables: &Path,
    ) -> Result<Self, Error> {
        let folder = folder.join("database");
        fs::create_dir(&folder).map_err(Error::rig)?;
        let socket = folder.join("socket");
        let place = |name: &str| format!("--{name}={}", folder.display());
        let file = |name: &str, file: &str| format!("--{name}={}", folder.join(file).display());
        let server = Command::new(server)
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
        let mut command = Command::new(client);
        command
            .args(["--no-defaults", "--user=root", "--batch", "--skip-column-names"])
            .arg("--unbuffered")
            .arg(file("socket", "socket"));
        database.client = Some(Client::start("mariadb", &mut command)?);
        database.ask(&TABLES.replace("FOLDER", &tables.display().to_string()))?;
        Ok(database)
    }

    fn stop(&mut self) -> Result<(), Error> {
        self.is_over = true;
        let client = self.client.take().map_or(Ok(()), |mut client| client.end());
        programs::end(&mut self.server, "mariadbd", END_MOST).and(client)
    }

    /// The end of what it wrote.
    fn log(&self) -> String {
        let text = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(3).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("; ")
    }
}

impl Database for MariaDb {
    fn process(&self) -> u32 {
        self.server.id()
    }

    fn ask(&mut self, sql: &str) -> Result<String, Error> {
        self.client.as_mut().ok_or_else(|| Error::rig("there is no client"))?.ask(sql)
    }

    fn forget(&mut self) -> Result<(), Error> {
        self.ask("flush tables;")?;
        for entry in fs::read_dir(self.folder.join("tpch")).map_err(Error::rig)? {
            drop_pages(&entry.map_err(Error::rig)?.path())?;
        }
        Ok(())
    }

    fn end(mut self: Box<Self>) -> Result<(), Error> {
        self.stop()
    }
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        if !self.is_over {
            // An error before this one is told.
            let _ = self.stop();
        }
    }
}
