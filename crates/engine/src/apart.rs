// SPDX-License-Identifier: Apache-2.0 OR MIT
//! System calls on devices that this very process serves.

use std::io;

use libc::c_int;

/// Does `what` in a thread that has no descriptor of this process.
///
/// What is behind a device may be served by this very process, which may be killed while the
/// system has a thread of it wait for an answer. Nobody gives that any more, which the system
/// notices when the descriptor is closed by which the answers come; a thread that waits would keep
/// it open, and wait for ever, and with it all who use the device.
pub(crate) fn apart<T: Send>(
    name: &str,
    what: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name(name.into());
        let thread =
            thread.spawn_scoped(scope, || part_with_descriptors().and_then(|()| what()))?;
        thread.join().unwrap_or_else(|_| Err(io::Error::other("its thread panicked")))
    })
}

/// From now on this thread has a table of its own, without any descriptor but the standard ones.
///
/// JUSTIFICATION: no library offers it, since it takes from a thread what its values may name.
fn part_with_descriptors() -> io::Result<()> {
    // SAFETY: it takes no address, and changes nothing for other threads.
    check(unsafe { libc::unshare(libc::CLONE_FILES) })?;
    // SAFETY: the descriptors are closed in this thread's own table; it has just begun, and what it
    // runs is given no value that names one (`apart`).
    let closed = unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, 0_u32) };
    if closed < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

pub(crate) fn check(result: c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that panics has failed
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn what_is_done_apart_has_no_descriptor_of_others() {
        let file = File::open("/dev/null").unwrap();
        let number = file.as_raw_fd();
        let path = format!("/proc/thread-self/fd/{number}");
        assert!(std::fs::exists(&path).unwrap(), "it is open here");
        assert!(!apart("test", || std::fs::exists(&path)).unwrap(), "and there");
        assert!(file.metadata().is_ok(), "it stays open here");
    }
}
