// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The folder that files of states are in: the system's, or a simulated one.

use std::fmt;
use std::fs::File;
use std::io;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use engine::files;

/// Longest file that is read: far more than any state that was ever written.
pub(super) const STATE_LEN_MAX: u64 = 1 << 20;

/// Files by name.
pub trait Shelf: Send + Sync + fmt::Debug {
    /// What is in a file; None if there is none.
    ///
    /// # Errors
    /// If it cannot be read or is too long.
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>>;

    /// Sets space for `length` bytes aside for a file; false if there is none.
    ///
    /// # Errors
    /// There is not so much space.
    fn set_aside(&self, name: &str, length: usize) -> io::Result<bool>;

    /// The file with what is in it, made if there is none, and with space for `length` bytes.
    ///
    /// # Errors
    /// There is not so much space.
    fn open(&self, name: &str, length: usize) -> io::Result<Box<dyn Draft>>;

    /// Lets two files change places at once; false: that cannot be done here.
    ///
    /// # Errors
    /// Then all is as before.
    fn exchange(&self, one: &str, other: &str) -> io::Result<bool>;

    /// Gives a file another name at once, in place of what has that.
    ///
    /// # Errors
    /// Then all is as before.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Takes a file away.
    ///
    /// # Errors
    /// Then it is still there.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Brings the names of the files to stable storage.
    ///
    /// # Errors
    /// Then nobody knows which of the last changes are there after a crash.
    fn sync(&self) -> io::Result<()>;
}

/// A file that is written.
pub trait Draft {
    /// Puts `bytes` over what is in it, and cuts what is longer.
    ///
    /// # Errors
    /// Then any part of them may be there.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Brings its content to stable storage.
    ///
    /// # Errors
    /// Then any part of it may be there after a crash.
    fn sync(&mut self) -> io::Result<()>;
}

impl Draft for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)?;
        self.set_len(bytes.len() as u64)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

/// A folder of the system.
#[derive(Debug)]
pub(super) struct Folder(pub(super) PathBuf);

impl Shelf for Folder {
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let path = self.0.join(name);
        match files::read_whole(&path, STATE_LEN_MAX) {
            Ok(state) => Ok(Some(state)),
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                Err(io::Error::other(format!("{} is too long", path.display())))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn set_aside(&self, name: &str, length: usize) -> io::Result<bool> {
        match File::options().write(true).open(self.0.join(name)) {
            Ok(file) => files::set_aside(&file, length as u64).map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn open(&self, name: &str, length: usize) -> io::Result<Box<dyn Draft>> {
        let options = File::options().write(true).create(true).truncate(false).mode(0o600).clone();
        let file = options.open(self.0.join(name))?;
        files::set_aside(&file, length as u64)?;
        Ok(Box::new(file))
    }

    fn exchange(&self, one: &str, other: &str) -> io::Result<bool> {
        files::exchange(&self.0.join(one), &self.0.join(other))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.0.join(from), self.0.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.0.join(name))
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.0)?.sync_all()
    }
}
