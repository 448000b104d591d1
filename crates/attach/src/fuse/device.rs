// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The descriptor by which the system asks, and is answered.
//!
//! A message is read into two places: its head, and a buffer of the pool for what stands behind
//! it. So the data of a write lies where it is sent from, on whole pages, and is not copied again.

use std::io;
use std::io::IoSlice;
use std::io::IoSliceMut;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;

use super::message;
use super::message::Answer;
use super::message::HEAD_BYTES;
use super::message::Notice;
use super::message::Odd;
use super::message::Request;
use crate::limits;

/// Parts of an answer that are told to the system without memory for them.
const PARTS: usize = 4;

/// Most parts of an answer, of which its header is one: IOV_MAX of Linux.
const PARTS_MAX: usize = 1024;

/// Of one mount.
#[derive(Debug)]
pub(super) struct Device(OwnedFd);

/// Somebody waits for the answer to a request; dropped, it is that nothing could be done.
#[derive(Debug)]
pub(super) struct Ticket {
    device: Arc<Device>,
    /// None: it is answered.
    unique: Option<u64>,
    /// Who waits; zero: somebody.
    thread: u32,
}

impl Device {
    /// Takes up the session of a mount.
    ///
    /// # Errors
    /// If the system speaks another protocol, or nobody waits there any more.
    pub(super) fn begin(device: OwnedFd) -> io::Result<Self> {
        let device = Self::from(device);
        let mut head = [0; HEAD_BYTES];
        let mut room = vec![0; 8 << 10];
        loop {
            let gone = || io::Error::from(io::ErrorKind::NotConnected);
            let length = device.receive(&mut head, &mut room)?.ok_or_else(gone)?;
            let message = message::parse(&head, length).map_err(|_| odd())?;
            let Request::Init { major, minor, readahead, flags } = message.request else {
                return Err(odd());
            };
            if major > message::MAJOR {
                device.answer(message.unique, Answer::version().bytes());
                continue;
            }
            if (major, minor) < (message::MAJOR, message::MINOR_MIN) {
                device.fail(message.unique, Errno::PROTO);
                let said = format!("the system speaks version {major}.{minor} of FUSE");
                return Err(io::Error::new(io::ErrorKind::Unsupported, said));
            }
            let requests = u16::try_from(limits::REQUESTS_MAX).unwrap_or(u16::MAX);
            let answer = Answer::init(readahead, flags, limits::FUSE_BYTES_MAX, requests);
            device.answer(message.unique, answer.bytes());
            return Ok(device);
        }
    }

    /// Waits for a message, and gives its length; `room` is for [`limits::FUSE_BYTES_MAX`] bytes.
    /// None: it is unmounted.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn receive(
        &self,
        head: &mut [u8; HEAD_BYTES],
        room: &mut [u8],
    ) -> io::Result<Option<usize>> {
        loop {
            let mut both = [IoSliceMut::new(head), IoSliceMut::new(room)];
            match rustix::io::readv(&self.0, &mut both) {
                Ok(length) => return Ok(Some(length)),
                // A request that was there a moment ago was taken back.
                Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
                Err(Errno::NODEV) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Answers what is no message.
    ///
    /// # Errors
    /// If nobody can be answered: the system speaks something else.
    pub(super) fn refuse(&self, what: Odd) -> io::Result<()> {
        let unique = what.unique.ok_or_else(odd)?;
        self.fail(unique, Errno::INVAL);
        Ok(())
    }

    /// Tells that what is known of a file is old.
    pub(super) fn changed(&self, node: u64) {
        self.notify(Notice::Changed, &Answer::changed(node));
    }

    /// Tells the size of a file that has grown, for which nobody asks before an asynchronous read.
    /// It waits as long as the system reads its last page.
    pub(super) fn grown(&self, node: u64, size: u64) {
        self.notify(Notice::Grown, &Answer::grown(node, size));
    }

    fn notify(&self, what: Notice, answer: &Answer) {
        let bytes = answer.bytes();
        let header = message::notice(what, bytes.len());
        // It fails for a file that the system knows nothing of.
        let _ = rustix::io::writev(&self.0, &[IoSlice::new(&header), IoSlice::new(bytes)]);
    }

    fn answer(&self, unique: u64, bytes: &[u8]) {
        let header = message::header(unique, 0, bytes.len());
        self.send(unique, &[IoSlice::new(&header), IoSlice::new(bytes)]);
    }

    fn fail(&self, unique: u64, error: Errno) {
        let header = message::header(unique, -error.raw_os_error(), 0);
        // It fails when nobody waits for it any more.
        let _ = rustix::io::write(&self.0, &header);
    }

    fn send(&self, unique: u64, parts: &[IoSlice<'_>]) {
        // Should it not be because nobody waits for it any more, somebody still does.
        if rustix::io::writev(&self.0, parts).is_err() {
            self.fail(unique, Errno::IO);
        }
    }
}

/// What came is no message, or not the one that belongs there.
fn odd() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the system sent what is no request of FUSE")
}

impl From<OwnedFd> for Device {
    /// One whose session has begun.
    fn from(device: OwnedFd) -> Self {
        Self(device)
    }
}

impl Ticket {
    pub(super) fn new(device: &Arc<Device>, unique: u64) -> Self {
        Self { device: Arc::clone(device), unique: Some(unique), thread: 0 }
    }

    /// This thread waits for it.
    pub(super) fn of_thread(mut self, thread: u32) -> Self {
        self.thread = thread;
        self
    }

    pub(super) const fn thread(&self) -> u32 {
        self.thread
    }

    /// The request whose answer its thread waits for; None: it has one.
    pub(super) fn waits(&self) -> Option<(u64, u32)> {
        Some((self.unique?, self.thread))
    }

    pub(super) fn done(self) {
        self.bytes(&[]);
    }

    pub(super) fn answer(self, answer: &Answer) {
        self.bytes(answer.bytes());
    }

    pub(super) fn bytes(mut self, bytes: &[u8]) {
        if let Some(unique) = self.unique.take() {
            self.device.answer(unique, bytes);
        }
    }

    /// Data in several places, which the system puts one behind the other.
    pub(super) fn parts<'a>(mut self, parts: impl Iterator<Item = &'a [u8]> + Clone) {
        let count = 1 + parts.clone().count();
        if count > PARTS_MAX {
            return self.bytes(&parts.collect::<Vec<_>>().concat());
        }
        let Some(unique) = self.unique.take() else { return };
        let header = message::header(unique, 0, parts.clone().map(<[u8]>::len).sum());
        let (mut few, mut many) = ([IoSlice::new(&[]); PARTS], Vec::new());
        let all = match few.get_mut(..count) {
            Some(few) => few,
            None => {
                many.resize(count, IoSlice::new(&[]));
                &mut *many
            }
        };
        if let Some((first, rest)) = all.split_first_mut() {
            *first = IoSlice::new(&header);
            rest.iter_mut().zip(parts).for_each(|(to, part)| *to = IoSlice::new(part));
        }
        self.device.send(unique, all);
    }

    pub(super) fn error(mut self, error: Errno) {
        self.end(error);
    }

    /// As `error`, while what is asked for goes on.
    pub(super) fn end(&mut self, error: Errno) {
        if let Some(unique) = self.unique.take() {
            self.device.fail(unique, error);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(unique) = self.unique.take() {
            self.device.fail(unique, Errno::IO);
        }
    }
}

/// So many bytes of `parts`, behind the first `lead`.
pub(super) fn within<'a>(
    parts: impl Iterator<Item = &'a [u8]> + Clone,
    lead: usize,
    bytes: usize,
) -> impl Iterator<Item = &'a [u8]> + Clone {
    let mut at = 0;
    parts.filter_map(move |part| {
        let start = lead.saturating_sub(at);
        let end = (lead + bytes).saturating_sub(at).min(part.len());
        at += part.len();
        part.get(start..end).filter(|part| !part.is_empty())
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that panics has failed
mod tests {
    use super::*;
    use rustix::net::AddressFamily;
    use rustix::net::SocketFlags;
    use rustix::net::SocketType;

    /// A device, and the end where the system would be.
    fn pair() -> (OwnedFd, OwnedFd) {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        // A test does not wait for what does not come.
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        rustix::net::socketpair(family, kind, flags, None).unwrap()
    }

    fn init(major: u32, minor: u32) -> Vec<u8> {
        let header = [104u32, 26, 5, 0, 0, 0, 0, 0, 0, 0];
        let arguments = [major, minor, 4096, u32::MAX, 0];
        let mut bytes: Vec<_> =
            header.iter().chain(&arguments).flat_map(|it| it.to_ne_bytes()).collect();
        bytes.resize(104, 0);
        bytes
    }

    fn read(system: &OwnedFd) -> Vec<u8> {
        let mut bytes = vec![0; 64 << 10];
        let length = rustix::io::read(system, &mut bytes).unwrap();
        bytes.truncate(length);
        bytes
    }

    #[test]
    fn a_later_version_is_told_ours_and_an_old_one_that_it_is_too_old() {
        let (ours, system) = pair();
        rustix::io::write(&system, &init(8, 0)).unwrap();
        rustix::io::write(&system, &init(7, 41)).unwrap();
        Device::begin(ours).unwrap();
        let (first, second) = (read(&system), read(&system));
        assert_eq!((first.len(), second.len()), (80, 80));
        assert!(first[24..] == [0; 56], "of the first time the version alone is told");
        assert_eq!(second[16..20], 7u32.to_ne_bytes());

        let (ours, system) = pair();
        rustix::io::write(&system, &init(7, 22)).unwrap();
        let error = Device::begin(ours).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert_eq!(read(&system)[4..8], (-Errno::PROTO.raw_os_error()).to_ne_bytes());
    }

    #[test]
    fn what_stands_behind_the_head_lies_at_the_start_of_the_room() {
        let (ours, system) = pair();
        let message: Vec<_> = (0..=255).collect();
        rustix::io::write(&system, &message).unwrap();
        let (mut head, mut room) = ([0; HEAD_BYTES], vec![0; 4096]);
        let length = Device(ours).receive(&mut head, &mut room).unwrap();
        assert_eq!(length, Some(message.len()));
        assert_eq!(head[..], message[..HEAD_BYTES]);
        assert_eq!(room[..256 - HEAD_BYTES], message[HEAD_BYTES..]);
    }

    #[test]
    fn who_waits_gets_an_answer_whatever_becomes_of_the_request() {
        let (ours, system) = pair();
        let device = Arc::new(Device(ours));
        drop(Ticket::new(&device, 3));
        assert_eq!(read(&system), message::header(3, -Errno::IO.raw_os_error(), 0));
        Ticket::new(&device, 4).done();
        assert_eq!(read(&system), message::header(4, 0, 0));
        // Few parts, many, and more than the system takes.
        for count in [1, PARTS, 3 * PARTS, PARTS_MAX - 1, PARTS_MAX, 3000] {
            let parts = vec![*b"data"; count];
            Ticket::new(&device, 5).parts(parts.iter().map(|part| &part[..]));
            let mut wanted = message::header(5, 0, 4 * count).to_vec();
            wanted.extend(parts.concat());
            assert_eq!(read(&system), wanted);
        }
        // What the system does not take, here as it is too long.
        let long = vec![0; 16 << 20];
        Ticket::new(&device, 6).parts([&long[..]].into_iter());
        assert_eq!(read(&system), message::header(6, -Errno::IO.raw_os_error(), 0));
        Ticket::new(&device, 7).bytes(&long);
        assert_eq!(read(&system), message::header(7, -Errno::IO.raw_os_error(), 0));
    }

    #[test]
    fn what_was_asked_for_is_taken_out_of_all_parts_and_none_is_empty() {
        let of = |lead, bytes| {
            let parts = [&b"abcd"[..], b"", b"ef", b"ghij"];
            within(parts.into_iter(), lead, bytes).collect::<Vec<_>>()
        };
        assert_eq!(of(0, 10), [&b"abcd"[..], b"ef", b"ghij"]);
        assert_eq!(of(1, 2), [b"bc"]);
        assert_eq!(of(3, 4), [&b"d"[..], b"ef", b"g"]);
        assert_eq!(of(4, 2), [b"ef"]);
        assert!(of(4, 0).is_empty());
    }
}
