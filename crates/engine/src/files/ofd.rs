// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The locks of QEMU's file driver, which flock(2) does not meet: locks of single bytes that belong
//! to the open file (`F_OFD_SETLK`). Who needs a permission holds byte 100 + its number for
//! reading, who does not let others have it byte 200 + its number; then each looks whether others
//! hold what contradicts.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use libc::c_short;

/// QEMU's numbers: consistent read 0, write 1, write of the same 2, resize 3.
const READS: &[i64] = &[0];
const READS_AND_WRITES: &[i64] = &[0, 1, 2, 3];
/// What nobody else may do beside us.
const NOT_SHARED: &[i64] = &[1, 3];

/// The number of the permission to write.
const WRITES: i64 = 1;

const NEEDED: i64 = 100;
const DENIED: i64 = 200;

/// Takes the locks as long as `file` is open. True if somebody holds what contradicts them.
pub(super) fn contradicts(file: &File, read_only: bool) -> bool {
    let needs = if read_only { READS } else { READS_AND_WRITES };
    let own = needs.iter().map(|bit| NEEDED + bit).chain(NOT_SHARED.iter().map(|bit| DENIED + bit));
    for byte in own {
        // File systems without such locks protect nothing, but serve.
        if control(file, libc::F_OFD_SETLK, libc::F_RDLCK, byte).is_err() {
            return false;
        }
    }
    let mut others =
        needs.iter().map(|bit| DENIED + bit).chain(NOT_SHARED.iter().map(|bit| NEEDED + bit));
    others.any(|byte| is_held(file, byte))
}

/// Whether somebody who writes, and locks like this, has `file`. Takes no lock.
pub(super) fn has_writer(file: &File) -> bool {
    is_held(file, NEEDED + WRITES)
}

fn is_held(file: &File, byte: i64) -> bool {
    let found = control(file, libc::F_OFD_GETLK, libc::F_WRLCK, byte);
    found.is_ok_and(|kind| i32::from(kind) != libc::F_UNLCK)
}

/// Sets a lock of one byte, or asks who would be in its way: the kind of that lock.
fn control(file: &File, command: i32, kind: i32, byte: i64) -> io::Result<c_short> {
    let short = |value: i32| c_short::try_from(value).unwrap_or_default();
    let mut lock = libc::flock {
        l_type: short(kind),
        l_whence: short(libc::SEEK_SET),
        l_start: byte,
        l_len: 1,
        l_pid: 0,
    };
    // SAFETY: both commands take a pointer to a `flock`, which lives over the call; the descriptor
    // is open as long as `file` is borrowed.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) };
    if result == 0 { Ok(lock.l_type) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;
    use std::time::Instant;

    use super::*;

    /// What `sees` of a lock that has gone. Another test that starts a process holds all files a
    /// moment longer, between fork and exec.
    fn soon(sees: impl Fn() -> bool) -> bool {
        let end = Instant::now() + Duration::from_secs(5);
        while !sees() {
            if Instant::now() > end {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    #[test]
    fn writers_keep_everybody_out_as_qemu_does() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || File::options().read(true).write(true).open(file.path()).unwrap();
        let (first, second, third) = (open(), open(), open());
        assert!(!contradicts(&first, true));
        assert!(!contradicts(&second, true), "readers share");
        assert!(contradicts(&third, false));
        drop((first, second, third));
        let (writer, other) = (open(), open());
        assert!(soon(|| !contradicts(&writer, false)));
        assert!(contradicts(&other, true));
        // A virtual machine that uses the disk: it writes (101), and others may not (201).
        drop((writer, other));
        let (machine, ours) = (open(), open());
        assert!(soon(|| !has_writer(&ours)));
        for byte in [100, 101, 201, 203] {
            control(&machine, libc::F_OFD_SETLK, libc::F_RDLCK, byte).unwrap();
        }
        assert!(has_writer(&ours));
        assert!(contradicts(&ours, true) && contradicts(&ours, false));
        drop(machine);
        assert!(soon(|| !contradicts(&ours, false)));
    }
}
