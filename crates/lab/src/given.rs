// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that a user names, or that lie where he says: they may be anything.

use std::fs::File;
use std::io;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

/// Most bytes of such a file: the longest report so far has less than a twentieth of it. What is
/// read of it takes a hundred times as many where each member is short.
const BYTES_MOST: u64 = 16 << 20;

/// All of a regular file.
///
/// # Errors
/// It is none, or longer than [`BYTES_MOST`]; or those of the file system.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let other = |why: String| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    // A pipe would have us wait for who writes to it, some devices do something when opened.
    if !std::fs::metadata(path)?.is_file() {
        return other("it is no regular file".into());
    }
    let file = File::options().read(true).custom_flags(waits_not()).open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return other("it is no regular file".into());
    }
    if found.len() > BYTES_MOST {
        let (len, most) = (found.len(), BYTES_MOST >> 20);
        return other(format!("it has {len} bytes, and no report has more than {most} MiB"));
    }
    let mut bytes = Vec::new();
    // It may have become longer.
    file.take(BYTES_MOST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Makes a file with this text, in the place of whatever has its name: a link leads nowhere.
pub(crate) fn write(path: &Path, text: &str) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    File::create_new(path)?.write_all(text.as_bytes())
}

/// A pipe that nobody has open at its other end is an error.
const fn waits_not() -> i32 {
    OFlags::NONBLOCK.bits().cast_signed()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use rustix::fs::{CWD, FileType, Mode};

    use super::*;
    use crate::course::Course;
    use crate::report::{RESULTS, is_report, write_whole};
    use crate::study::{Effort, Settings};

    /// What `ask` says of `path`, and that it says anything.
    fn ended<T: Send + 'static>(path: &Path, ask: fn(&Path) -> T) -> T {
        let (path, (tell, told)) = (path.to_owned(), mpsc::channel());
        thread::spawn(move || tell.send(ask(&path)));
        told.recv_timeout(Duration::from_secs(10)).expect("it ends")
    }

    fn pipe(folder: &Path, name: &str) -> PathBuf {
        let path = folder.join(name);
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(CWD, &path, FileType::Fifo, mode, 0).expect("a pipe");
        path
    }

    #[test]
    fn what_is_no_file_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let compare = |path: &Path| crate::compare(path, path).map(|_| ());
        let path = pipe(folder.path(), RESULTS);
        let why = |error: crate::JoinError| match error {
            crate::JoinError::Unread(_, why) => why.to_string(),
            other => other.to_string(),
        };
        assert_eq!(ended(&path, compare).map_err(why), Err("it is no regular file".into()));
        assert!(!ended(folder.path(), is_report));
        pipe(folder.path(), "unfinished.json");
        let is_done =
            |path: &Path| Course::of(path, &Settings::new(Effort::Quick), &["amp"]).is_done("amp");
        assert!(!ended(folder.path(), is_done));
        let joined = |path: &Path| crate::join(path).is_ok();
        assert!(!ended(folder.path(), joined));
        let beside = pipe(folder.path(), "page.new");
        let write = |path: &Path| write_whole(path, "").is_err();
        assert!(!ended(&folder.path().join("page"), write));
        assert!(!beside.exists(), "it was in the way");
        for device in ["/dev/zero", "/dev/urandom"] {
            assert_eq!(ended(Path::new(device), compare).map_err(why).unwrap_err(), {
                "it is no regular file"
            });
        }
    }

    #[test]
    fn what_is_too_long_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(RESULTS);
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        let why = read(&path).unwrap_err().to_string();
        assert_eq!(why, "it has 1099511627776 bytes, and no report has more than 16 MiB");
        assert!(!is_report(folder.path()));
        std::fs::write(&path, "{}").unwrap();
        assert_eq!(read(&path).unwrap(), b"{}");
    }
}
