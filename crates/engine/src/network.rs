// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Networks of their own for threads of this process: interfaces and addresses that nobody else
//! sees, and that are gone when their threads and values are.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;

use rustix::thread::LinkNameSpaceType;
use rustix::thread::UnshareFlags;

/// A network namespace without a name: nothing of it outlives this process.
#[derive(Debug)]
pub struct Network {
    space: File,
}

impl Network {
    /// A new one, whose loopback interface is down.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_SYS_ADMIN; others where the kernel has none, or no more.
    pub fn new() -> io::Result<Self> {
        let space = in_thread(|| {
            leave()?;
            File::open("/proc/thread-self/ns/net")
        })??;
        Ok(Self { space })
    }

    /// The calling thread is in it from now on, and so are threads and processes that it starts.
    ///
    /// # Errors
    /// `PermissionDenied`, see [`Network::new`].
    pub fn enter(&self) -> io::Result<()> {
        let kind = Some(LinkNameSpaceType::Network);
        Ok(rustix::thread::move_into_link_name_space(self.as_fd(), kind)?)
    }

    /// Does `what` within it, in a thread of its own.
    ///
    /// # Errors
    /// As [`Network::enter`].
    pub fn within<T: Send>(&self, what: impl FnOnce() -> T + Send) -> io::Result<T> {
        in_thread(|| self.enter().map(|()| what()))?
    }
}

impl AsFd for Network {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.space.as_fd()
    }
}

/// Gives the calling thread a network without anything.
///
/// JUSTIFICATION: the safe call that there was is gone, as it takes the flag for tables of
/// descriptors, too.
fn leave() -> io::Result<()> {
    // SAFETY: of all that can be unshared, only CLONE_FILES touches what values of others name.
    Ok(unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?)
}

fn in_thread<T: Send>(what: impl FnOnce() -> T + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("network".into());
        let thread = thread.spawn_scoped(scope, what)?;
        thread.join().map_err(|_| io::Error::other("its thread panicked"))
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that panics has failed
mod tests {
    use super::*;

    fn space() -> std::path::PathBuf {
        std::fs::read_link("/proc/thread-self/ns/net").unwrap()
    }

    #[test]
    fn a_network_is_of_the_threads_that_are_in_it() {
        let network = match Network::new() {
            Ok(network) => network,
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
                return;
            }
        };
        let before = space();
        let read = || std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
        let (inside, interfaces) = network.within(|| (space(), read())).unwrap();
        assert_ne!(inside, before);
        assert_eq!(space(), before, "this thread has stayed");
        assert_eq!(interfaces.lines().count(), 3, "two lines of a head, and loopback");
        let child = network.within(|| std::thread::spawn(space).join().unwrap()).unwrap();
        assert_eq!(child, inside, "threads are where those are that start them");
        assert_ne!(Network::new().unwrap().within(space).unwrap(), inside);
    }
}
