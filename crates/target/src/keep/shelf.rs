// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The folder that states are kept in, as far as keeping needs one.

use std::fmt;
use std::fs::File;
use std::io;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::path::PathBuf;

use engine::files;

use super::STATE_LEN_MAX;

/// A folder that files of states are in: the system's, or a simulated one.
pub trait Shelf: Send + Sync + fmt::Debug {
    /// What is in a file; None if there is none.
    ///
    /// # Errors
    /// If it cannot be read or is too long.
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>>;

    /// Makes a file of these bytes, which are not yet on stable storage; one of that name is
    /// written over, and keeps the space that it has.
    ///
    /// # Errors
    /// Then any part of it may be there.
    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<Box<dyn Draft>>;

    /// Sets space for `length` bytes aside for a file, which looks as before; false: there is none
    /// of that name.
    ///
    /// # Errors
    /// There is not so much space.
    fn set_aside(&self, name: &str, length: usize) -> io::Result<bool>;

    /// Lets two files change places, at once for everybody who looks; false: that cannot be done
    /// here.
    ///
    /// # Errors
    /// Then all is as before.
    fn exchange(&self, one: &str, other: &str) -> io::Result<bool>;

    /// Gives a file another name, in place of what has that, at once for everybody who looks.
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

/// A file that was written.
pub trait Draft {
    /// Brings its content to stable storage.
    ///
    /// # Errors
    /// Then any part of it may be there after a crash.
    fn sync(&self) -> io::Result<()>;
}

impl Draft for File {
    fn sync(&self) -> io::Result<()> {
        self.sync_all()
    }
}

/// A folder of the system.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    /// The folder `path`, which is made if it is missing.
    pub(super) fn new(path: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(path)?;
        Ok(Self(path.to_owned()))
    }
}

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

    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<Box<dyn Draft>> {
        // Over what is in it, which gives no space back before it is used again.
        let options = File::options().write(true).create(true).truncate(false).mode(0o600).clone();
        let mut file = options.open(self.0.join(name))?;
        files::set_aside(&file, bytes.len() as u64)?;
        file.write_all(bytes)?;
        file.set_len(bytes.len() as u64)?;
        Ok(Box::new(file))
    }

    fn set_aside(&self, name: &str, length: usize) -> io::Result<bool> {
        match File::options().write(true).open(self.0.join(name)) {
            Ok(file) => files::set_aside(&file, length as u64).map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
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
