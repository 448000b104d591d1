// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that are read as a whole: with a limit, and only what ends.

use std::fs;
use std::fs::File;
use std::io;
use std::io::ErrorKind;
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

/// Reads a file or pipe of at most `len_max` bytes.
///
/// # Errors
/// What the kernel says, or that it is something else, or longer.
pub fn read_whole(path: &Path, len_max: u64) -> io::Result<Vec<u8>> {
    let file = open_whole(path)?;
    let too_long = || {
        let limit = match len_max {
            bytes if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
            bytes if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
            bytes => format!("{bytes} bytes"),
        };
        io::Error::new(ErrorKind::FileTooLarge, format!("it is longer than {limit}"))
    };
    if file.metadata()?.len() > len_max {
        return Err(too_long());
    }
    let mut bytes = Vec::new();
    file.take(len_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length <= len_max) {
        Ok(bytes)
    } else {
        Err(too_long())
    }
}

/// As [`read_whole`], and it is text.
///
/// # Errors
/// As there.
pub fn read_text(path: &Path, len_max: u64) -> io::Result<String> {
    let wrong = |_| io::Error::new(ErrorKind::InvalidData, "it is no text (UTF-8)");
    String::from_utf8(read_whole(path, len_max)?).map_err(wrong)
}

/// This process serves from now on: [`open_whole`] and what reads by it refuse pipes, whose
/// writers may never come.
pub fn refuse_pipes() {
    REFUSES_PIPES.store(true, Ordering::Relaxed);
}

static REFUSES_PIPES: AtomicBool = AtomicBool::new(false);

fn waits_for_nobody() -> bool {
    REFUSES_PIPES.load(Ordering::Relaxed)
}

/// Opens a file or pipe for reading; a device may never end.
///
/// # Errors
/// What the kernel says, or that it is something else.
pub fn open_whole(path: &Path) -> io::Result<File> {
    let check = |metadata: fs::Metadata| {
        let kind = metadata.file_type();
        match kind.is_dir() {
            true => Err(io::Error::from(ErrorKind::IsADirectory)),
            false if kind.is_file() || kind.is_fifo() && !waits_for_nobody() => Ok(()),
            false if kind.is_fifo() => {
                let why = "it is a pipe, whose writer nobody waits for; try: a file";
                Err(io::Error::new(ErrorKind::InvalidInput, why))
            }
            false => {
                Err(io::Error::new(ErrorKind::InvalidInput, "it is neither a file nor a pipe"))
            }
        }
    };
    // Before it is opened: opening some devices does something.
    check(fs::metadata(path)?)?;
    let mut options = File::options();
    if waits_for_nobody() {
        // It may be a pipe by now.
        options.custom_flags(libc::O_NONBLOCK);
    }
    let file = options.read(true).open(path)?;
    check(file.metadata()?)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for (length, good) in [(0, true), (1024, true), (1025, false), (1 << 40, false)] {
            File::create(&path).unwrap().set_len(length).unwrap();
            let read = read_whole(&path, 1024);
            assert_eq!(read.is_ok(), good, "{length}");
            assert!(good || read.unwrap_err().to_string().contains("1 KiB"));
        }
        // Its length says zero.
        assert!(read_whole(Path::new("/proc/self/status"), 16).is_err());
        assert!(read_text(Path::new("/proc/self/status"), 1 << 20).unwrap().contains("Pid:"));
        for other in ["/dev/zero", "/dev"] {
            assert!(read_whole(Path::new(other), 16).is_err(), "{other}");
        }
        fs::write(&path, [0xff]).unwrap();
        assert!(read_text(&path, 16).unwrap_err().to_string().contains("UTF-8"));
    }
}
