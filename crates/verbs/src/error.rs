// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What fails, in words: what was done, why, and what to do about it.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// Why the libraries of adapters cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LibraryError {
    /// Not there.
    #[error(
        "RDMA adapters need {file}, which cannot be loaded: {said}; try: install rdma-core \
         (Debian, Ubuntu: apt-get install librdmacm1 ibverbs-providers; Fedora, RHEL, openSUSE: \
         librdmacm and libibverbs), or software iWARP, which needs none (--rdma iwarp; \
         provider=iwarp in a URL)"
    )]
    Missing {
        /// The file that was looked for.
        file: &'static str,
        /// What the loader says.
        said: String,
    },
    /// There, and not to be loaded.
    #[error(
        "RDMA adapters need {file}, which is there and cannot be loaded: {said}; try: librdmacm1 \
         and libibverbs1 for this machine, whole"
    )]
    Broken {
        /// The file that was looked for.
        file: &'static str,
        /// What the loader says.
        said: String,
    },
    /// There, and of another time.
    #[error("RDMA adapters need {name}, which {file} does not have; try: a newer rdma-core")]
    TooOld {
        /// The file.
        file: &'static str,
        /// The function.
        name: &'static str,
    },
}

impl LibraryError {
    pub(crate) fn of_loader(file: &'static str, said: String) -> Self {
        // In the words of C: nobody has asked for another language.
        match said.contains("No such file or directory") {
            true => Self::Missing { file, said },
            false => Self::Broken { file, said },
        }
    }
}

/// What was done when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Doing {
    /// Talking to the connection manager of the kernel.
    Begin,
    /// Taking an address.
    Bind,
    /// Listening at it.
    Listen,
    /// Asking a device what it is.
    Query,
    /// Making a protection domain.
    Domain,
    /// Showing memory to a device.
    Register,
    /// Making a completion queue.
    CompletionQueue,
    /// Making a queue pair.
    QueuePair,
    /// Taking over a connection that asks to begin.
    TakeOver,
    /// Answering it.
    Accept,
    /// Looking for a device that leads to an address.
    Resolve,
    /// Looking for the way there.
    Route,
    /// Asking for a connection.
    Connect,
    /// Taking memory from a device.
    Deregister,
}

/// Why adapters cannot do what they are asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerbsError {
    /// There is no library for it.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// The kernel, or a device, says no.
    #[error("RDMA: {}: {source}{}", InWords(*.doing), advice(*.doing, .source))]
    Failed {
        /// What was done.
        doing: Doing,
        /// What it says.
        source: io::Error,
    },
    /// Nothing can be had at an address.
    #[error("RDMA at {address}: {}: {source}{}", InWords(*.doing), advice(*.doing, .source))]
    At {
        /// The address.
        address: SocketAddr,
        /// What was done.
        doing: Doing,
        /// What the kernel says.
        source: io::Error,
    },
    /// A device has too few of something.
    #[error("the RDMA device {device} takes {has} {what}, and {wanted} are needed")]
    TooFew {
        /// Its name.
        device: String,
        /// Of what.
        what: &'static str,
        /// How many it has.
        has: usize,
        /// How many are needed.
        wanted: usize,
    },
    /// A device is taken away.
    #[error("the RDMA device at {address} is gone")]
    Gone {
        /// Where it listened.
        address: SocketAddr,
    },
    /// An operation of a connection.
    #[error("RDMA: {} (status {status}, vendor's code {vendor:#x})", operation(*.status))]
    Operation {
        /// `ibv_wc_status`.
        status: i32,
        /// What the vendor says.
        vendor: u32,
    },
    /// A device is taken away.
    #[error("the RDMA device {device} is taken away")]
    Removed {
        /// Its name.
        device: String,
    },
    /// Who is there says no.
    #[error(
        "RDMA: the connection was refused: nobody takes RDMA connections at that port, or not from \
         us; try: the port of the target's RDMA portal, or provider=iwarp if it has software iWARP"
    )]
    Rejected,
    /// Nobody answers.
    #[error("RDMA: {}: no answer within {} s", InWords(*.doing), .timeout.as_secs())]
    TimedOut {
        /// What was done.
        doing: Doing,
        /// How long that took.
        timeout: Duration,
    },
    /// The pool has no room for one more connection.
    #[error("no memory for one more RDMA connection")]
    NoBuffers,
}

impl VerbsError {
    /// What the system has just said.
    pub(crate) fn last(doing: Doing) -> Self {
        Self::Failed { doing, source: io::Error::last_os_error() }
    }

    /// What a function has returned.
    pub(crate) fn of(doing: Doing, errno: i32) -> Self {
        Self::Failed { doing, source: io::Error::from_raw_os_error(errno) }
    }

    /// A device that asks by TCP may say at once that nobody listens.
    pub(crate) fn or_refused(self) -> Self {
        match self {
            Self::Failed { doing: Doing::Connect, source }
                if source.kind() == io::ErrorKind::ConnectionRefused =>
            {
                Self::Rejected
            }
            other => other,
        }
    }

    pub(crate) fn at(self, address: SocketAddr) -> Self {
        match self {
            Self::Failed { doing, source } => Self::At { address, doing, source },
            other => other,
        }
    }
}

struct InWords(Doing);

impl fmt::Display for InWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Doing::Begin => "the kernel's connection manager cannot be used",
            Doing::Bind => "the address cannot be had",
            Doing::Listen => "nobody can listen there",
            Doing::Query => "a device does not say what it is",
            Doing::Domain => "a device makes no protection domain",
            Doing::Register => "a device takes no more memory",
            Doing::CompletionQueue => "a device makes no completion queue",
            Doing::QueuePair => "a device makes no queue pair",
            Doing::TakeOver => "a connection cannot be taken over",
            Doing::Accept => "a connection cannot be accepted",
            Doing::Resolve => "no RDMA device of this machine leads there",
            Doing::Route => "there is no way there over RDMA",
            Doing::Connect => "no connection",
            Doing::Deregister => "a device does not let go of memory",
        })
    }
}

/// What it means for people that an operation has ended so.
fn operation(status: i32) -> &'static str {
    match status {
        1 | 2 | 4 => "this machine's adapter refuses an operation of ours",
        9 | 11 => "the peer's adapter refuses an operation of ours",
        10 => "the peer does not let us reach its memory",
        12 => "the peer does not answer",
        13 => "the peer has no buffer for what we send",
        19 => "the adapter does not answer",
        _ => "an operation failed",
    }
}

fn advice(doing: Doing, source: &io::Error) -> &'static str {
    match (doing, source.kind()) {
        (Doing::Begin, io::ErrorKind::PermissionDenied) => {
            "; try: the rights to open /dev/infiniband/rdma_cm"
        }
        (Doing::Begin, _) => {
            "; try: modprobe rdma_ucm, and rdma link, which shows this machine's devices"
        }
        (Doing::Bind | Doing::Listen, io::ErrorKind::AddrInUse) => {
            "; it is taken, and a port of an iWARP adapter is one of TCP, too; \
             try: --rdma-listen with another port"
        }
        (Doing::Bind, _) => {
            "; try: rdma link, which shows this machine's devices and their networks, \
             or --rdma-listen with an address of one of them"
        }
        (Doing::Resolve | Doing::Route, _) => {
            "; try: rdma link, which shows this machine's devices and their networks, or \
             provider=iwarp, which needs none"
        }
        (Doing::Register, _) => "; try: a larger limit of locked memory (ulimit -l, LimitMEMLOCK=)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_what_to_install() {
        let said = "librdmacm.so.1: cannot open shared object file: No such file or directory";
        let error = LibraryError::of_loader("librdmacm.so.1", said.into()).to_string();
        assert!(error.contains("apt-get install librdmacm1 ibverbs-providers"), "{error}");
        assert!(error.contains("--rdma iwarp"), "{error}");
        let error = LibraryError::of_loader("librdmacm.so.1", "wrong ELF class".into());
        assert!(matches!(error, LibraryError::Broken { .. }));
    }

    #[test]
    fn who_is_refused_at_once_is_told_so() {
        let refused = |errno| VerbsError::of(Doing::Connect, errno).or_refused();
        assert!(matches!(refused(111), VerbsError::Rejected));
        assert!(matches!(refused(22), VerbsError::Failed { .. }));
    }

    #[test]
    fn failures_say_what_to_try() {
        let address = SocketAddr::from(([192, 0, 2, 1], 3260));
        for (doing, errno, wanted) in [
            (Doing::Listen, 98, "--rdma-listen with another port"),
            (Doing::Bind, 19, "rdma link"),
            (Doing::Register, 12, "ulimit -l"),
            (Doing::Begin, 2, "modprobe rdma_ucm"),
            (Doing::Begin, 13, "/dev/infiniband/rdma_cm"),
        ] {
            let error = VerbsError::of(doing, errno).at(address).to_string();
            assert!(error.starts_with("RDMA at 192.0.2.1:3260: "), "{error}");
            assert!(error.contains(wanted), "{error}");
        }
    }
}
