// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lines of JSON over a socket of this machine, with descriptors behind them.

use std::collections::VecDeque;
use std::io;
use std::io::ErrorKind;
use std::io::IoSlice;
use std::io::IoSliceMut;
use std::io::Write;
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use std::time::Instant;

use rustix::net::RecvAncillaryBuffer;
use rustix::net::RecvAncillaryMessage;
use rustix::net::RecvFlags;
use rustix::net::SendAncillaryBuffer;
use rustix::net::SendAncillaryMessage;
use rustix::net::SendFlags;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Descriptors with one byte; Linux takes 253 (SCM_MAX_FD).
const FDS_MAX: usize = 64;

/// Longest line, bytes: reservations of many thousand disks.
const LINE_LEN_MAX: usize = 64 << 20;

/// How long the other side may leave what we say untaken.
const SAY_PATIENCE: Duration = Duration::from_secs(10);

/// Why nothing was heard.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unheard {
    #[error("it has ended")]
    Gone,
    #[error("it says nothing")]
    Silent,
    #[error("it is not understood: {0}")]
    Strange(String),
}

/// One side of it.
#[derive(Debug)]
pub(crate) struct Talk {
    stream: UnixStream,
    /// What has come and was not read.
    bytes: VecDeque<u8>,
    fds: VecDeque<OwnedFd>,
}

impl Talk {
    pub(super) fn over(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(SAY_PATIENCE))?;
        Ok(Self { stream, bytes: VecDeque::new(), fds: VecDeque::new() })
    }

    /// The process at the other side.
    pub(super) fn peer(&self) -> Option<(u32, rustix::process::Uid)> {
        let peer = rustix::net::sockopt::socket_peercred(&self.stream).ok()?;
        Some((u32::try_from(peer.pid.as_raw_nonzero().get()).ok()?, peer.uid))
    }

    /// Another one who speaks to the same process, and hears nothing.
    pub(super) fn teller(&self) -> io::Result<Self> {
        let stream = self.stream.try_clone()?;
        Ok(Self { stream, bytes: VecDeque::new(), fds: VecDeque::new() })
    }

    /// What the other side says from now on is not heard, and it knows so; what it has said is.
    pub(super) fn deafen(&self) {
        // At worst it is heard, and does not know that it is not.
        let _ = self.stream.shutdown(Shutdown::Read);
    }

    pub(super) fn say(&self, word: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(word)?;
        line.push(b'\n');
        (&self.stream).write_all(&line)
    }

    /// Gives the other side descriptors of the same files.
    pub(super) fn pass(&self, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        for some in fds.chunks(FDS_MAX) {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if !control.push(SendAncillaryMessage::ScmRights(some)) {
                return Err(ErrorKind::InvalidInput.into());
            }
            // An empty line.
            let byte = [IoSlice::new(b"\n")];
            rustix::net::sendmsg(&self.stream, &byte, &mut control, SendFlags::NOSIGNAL)?;
        }
        Ok(())
    }

    /// So many descriptors that were passed.
    pub(super) fn fds(
        &mut self,
        count: usize,
        patience: Duration,
    ) -> Result<Vec<OwnedFd>, Unheard> {
        let deadline = Instant::now() + patience;
        while self.fds.len() < count {
            self.receive(deadline)?;
        }
        Ok(self.fds.drain(..count).collect())
    }

    /// The next word of the other side.
    pub(super) fn hear<T: DeserializeOwned>(&mut self, patience: Duration) -> Result<T, Unheard> {
        let deadline = Instant::now() + patience;
        let mut looked = 0;
        loop {
            if let Some(end) = self.bytes.iter().skip(looked).position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.bytes.drain(..=looked + end).collect();
                looked = 0;
                if line.len() == 1 {
                    continue;
                }
                let strange = |error: serde_json::Error| Unheard::Strange(error.to_string());
                return serde_json::from_slice(&line).map_err(strange);
            }
            looked = self.bytes.len();
            if looked > LINE_LEN_MAX {
                return Err(Unheard::Strange("its line has no end".to_owned()));
            }
            self.receive(deadline)?;
        }
    }

    fn receive(&mut self, deadline: Instant) -> Result<(), Unheard> {
        let rest = deadline.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return Err(Unheard::Silent);
        }
        if self.stream.set_read_timeout(Some(rest)).is_err() {
            return Err(Unheard::Gone);
        }
        let mut part = [0; 16 << 10];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut into = [IoSliceMut::new(&mut part)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let received = match rustix::net::recvmsg(&self.stream, &mut into, &mut control, flags) {
            Ok(received) => received.bytes,
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(rustix::io::Errno::AGAIN) => return Err(Unheard::Silent),
            Err(_) => return Err(Unheard::Gone),
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                self.fds.extend(fds);
            }
        }
        if received == 0 {
            return Err(Unheard::Gone);
        }
        self.bytes.extend(part.iter().take(received));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::thread;

    use control::admin::Word;

    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    fn pair() -> (Talk, Talk) {
        let (one, other) = UnixStream::pair().expect("a pair");
        (Talk::over(one).expect("ours"), Talk::over(other).expect("ours"))
    }

    #[test]
    fn words_and_descriptors_come_in_order() {
        let (one, mut other) = pair();
        let file = File::open("/dev/zero").expect("it is there");
        let count = FDS_MAX * 2 + 3;
        let saying = thread::spawn(move || {
            one.say(&Word::Take).expect("heard");
            one.pass(&vec![file.as_fd(); count]).expect("taken");
            one.say(&Word::Failed { message: "x".repeat(100_000) }).expect("heard");
        });
        assert_eq!(other.hear::<Word>(SOON).expect("said"), Word::Take);
        let fds = other.fds(count, SOON).expect("passed");
        let Word::Failed { message } = other.hear(SOON).expect("said") else { panic!("another") };
        assert_eq!((message.len(), fds.len()), (100_000, count));
        let mut byte = [1];
        let mut last = fds.into_iter().map(File::from).next_back().expect("some");
        last.read_exact(&mut byte).expect("it is the same file");
        assert_eq!(byte, [0]);
        saying.join().expect("it has said all");
    }

    #[test]
    fn silence_ends_and_nonsense_are_told_apart() {
        let (one, mut other) = pair();
        let short = Duration::from_millis(20);
        assert!(matches!(other.hear::<Word>(short), Err(Unheard::Silent)));
        one.say(&"hello").expect("heard");
        assert!(matches!(other.hear::<Word>(SOON), Err(Unheard::Strange(_))));
        one.say(&Word::Serving).expect("heard");
        drop(one);
        assert_eq!(other.hear::<Word>(SOON).expect("said before"), Word::Serving);
        assert!(matches!(other.hear::<Word>(SOON), Err(Unheard::Gone)));
        assert!(matches!(other.fds(1, SOON), Err(Unheard::Gone)));
    }
}
