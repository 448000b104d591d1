// SPDX-License-Identifier: Apache-2.0 OR MIT
//! DuckDB: its command with a database in one file, of columns.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::client::Client;
use super::database::{Database, drop_pages};
use crate::Error;

const TABLES: &str = include_str!("duckdb.sql");

/// One that runs.
#[derive(Debug)]
pub(super) struct DuckDb {
    client: Client,
    process: u32,
    file: PathBuf,
    /// Whether it has the file open.
    is_open: bool,
}

impl DuckDb {
    pub(super) fn start(program: &Path, folder: &Path, tables: &Path) -> Result<Self, Error> {
        // What it cannot keep in memory is on the same disk, which also tells whose it is.
        let beside = format!("set temp_directory = '{}/beside'", folder.display());
        let mut client = Client::start(
            "duckdb",
            Command::new(program)
                .args(["-batch", "-no-init", "-bail", "-list", "-noheader"])
                .args(["-separator", "\t", "-nullvalue", "NULL", "-cmd"])
                .arg(beside),
        )?;
        // Python's package has a script in front of the program.
        let process = client.ask(".system echo $PPID")?;
        let process = process.trim().parse().map_err(|_| {
            Error::Rig(format!("duckdb does not tell its process, but {}", process.trim()))
        })?;
        // One thread, as the other database has for a query; nothing is fetched.
        client.ask(
            "set threads = 1; set autoinstall_known_extensions = false; \
             set autoload_known_extensions = false;",
        )?;
        let file = folder.join("tpch.duckdb");
        let mut database = Self { client, process, file, is_open: false };
        database.ask(&TABLES.replace("FOLDER", &tables.display().to_string()))?;
        Ok(database)
    }
}

impl Database for DuckDb {
    fn process(&self) -> u32 {
        self.process
    }

    fn ask(&mut self, sql: &str) -> Result<String, Error> {
        let open = match self.is_open {
            true => String::new(),
            false => format!("attach '{}' as tpch; use tpch;\n", self.file.display()),
        };
        self.is_open = true;
        self.client.ask(&format!("{open}{sql}"))
    }

    /// A query opens the file again, as the other database does its tables.
    fn forget(&mut self) -> Result<(), Error> {
        if std::mem::take(&mut self.is_open) {
            self.client.ask("use memory; detach tpch;")?;
        }
        drop_pages(&self.file)
    }

    fn end(mut self: Box<Self>) -> Result<(), Error> {
        self.client.end()
    }
}
