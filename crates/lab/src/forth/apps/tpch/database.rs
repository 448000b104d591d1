// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What both databases are to a run: tables on a disk, and answers to queries about them.

use std::fmt::Debug;
use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::Advice;

use super::duckdb::DuckDb;
use super::mariadb::MariaDb;
use crate::Error;
use crate::programs::installed;

/// One that runs, with the tables of TPC-H.
pub(super) trait Database: Debug {
    /// The process that works for queries.
    fn process(&self) -> u32;

    /// What it answers.
    fn ask(&mut self, sql: &str) -> Result<String, Error>;

    /// Nothing of its tables is in memory any more, neither there nor in the system.
    fn forget(&mut self) -> Result<(), Error>;

    /// Lets it end.
    fn end(self: Box<Self>) -> Result<(), Error>;
}

/// Which one, and where its programs are.
#[derive(Debug)]
pub(super) enum Programs {
    MariaDb { server: PathBuf, client: PathBuf },
    DuckDb { program: PathBuf },
}

impl Programs {
    pub(super) fn mariadb() -> Result<Self, String> {
        let server = installed("mariadbd", "mariadb-server-core")?;
        Ok(Self::MariaDb { server, client: installed("mariadb", "mariadb-client-core")? })
    }

    pub(super) fn duckdb() -> Result<Self, String> {
        Ok(Self::DuckDb { program: installed("duckdb", "duckdb-cli of PyPI")? })
    }

    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::MariaDb { .. } => "MariaDB",
            Self::DuckDb { .. } => "DuckDB",
        }
    }

    /// Below `folder`, with the files of `tables` loaded.
    pub(super) fn start(&self, folder: &Path, tables: &Path) -> Result<Box<dyn Database>, Error> {
        Ok(match self {
            Self::MariaDb { server, client } => {
                Box::new(MariaDb::start([server, client], folder, tables)?)
            }
            Self::DuckDb { program } => Box::new(DuckDb::start(program, folder, tables)?),
        })
    }
}

/// The system has nothing of this file in memory any more.
pub(super) fn drop_pages(path: &Path) -> Result<(), Error> {
    let file = File::open(path).map_err(Error::rig)?;
    // What is not on the disk cannot be forgotten.
    file.sync_data().map_err(Error::rig)?;
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).map_err(Error::rig)
}

/// Whether two databases answer the same: they give numbers to so many places each.
pub(super) fn agree(one: &str, other: &str) -> bool {
    let lines = |text: &str| text.lines().count();
    let fields = |line: &str| line.split('\t').count();
    lines(one) == lines(other)
        && one.lines().zip(other.lines()).all(|(one, other)| {
            fields(one) == fields(other)
                && one.split('\t').zip(other.split('\t')).all(|(one, other)| alike(one, other))
        })
}

fn alike(one: &str, other: &str) -> bool {
    let numbers = one.parse::<f64>().ok().zip(other.parse::<f64>().ok());
    one == other || numbers.is_some_and(|(a, b)| (a - b).abs() <= ROUNDED * a.abs().max(1.0))
}

/// MariaDB gives a quotient four more places than its parts have.
const ROUNDED: f64 = 1e-4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_answer_may_have_other_places() {
        assert!(agree("A\t25.5\t0.0500\n", "A\t25.50\t0.05\n") && agree("", ""));
        assert!(agree("1995\t0.03443589\n", "1995\t0.034435890366583144\n"));
        for other in ["A\t25.6\t0.05\n", "A\t25.5\n", "B\t25.5\t0.05\n", "", "A\t25.5\t0.05\nB\n"] {
            assert!(!agree("A\t25.5\t0.05\n", other), "{other}");
        }
    }
}
