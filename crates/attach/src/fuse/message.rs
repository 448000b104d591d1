// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the system asks of the server of a file, and what that answers: the messages of
//! `linux/fuse.h`, version 7.38. No I/O.
//!
//! A message stands in memory, so its numbers have this machine's order of bytes. All that is
//! looked at lies in its first [`HEAD_BYTES`]: the data of a write begins right behind them.

use std::time::Duration;

/// The header of a message, and the arguments of the longest that is looked at, which are those of
/// a write.
pub(super) const HEAD_BYTES: usize = HEADER_BYTES + 40;
const HEADER_BYTES: usize = 40;

/// The header of an answer.
const ANSWER_HEADER_BYTES: usize = 16;

/// Behind it, of the longest answer but data: a name and its attributes.
const ANSWER_BYTES_MAX: usize = 128;

/// The version that is spoken here.
pub(super) const MAJOR: u32 = 7;
const MINOR: u32 = 38;

/// The first version whose answer to `FUSE_INIT` is as long as ours: Linux 3.15.
pub(super) const MINOR_MIN: u32 = 23;

const FUSE_ASYNC_READ: u32 = 1;
const FUSE_BIG_WRITES: u32 = 1 << 5;
const FUSE_ASYNC_DIO: u32 = 1 << 15;
const FUSE_MAX_PAGES: u32 = 1 << 22;

const FOPEN_DIRECT_IO: u32 = 1;
const FOPEN_NOFLUSH: u32 = 1 << 5;
const FOPEN_PARALLEL_DIRECT_WRITES: u32 = 1 << 6;

const FATTR_MODE_UID_GID: u32 = 7;
const FATTR_SIZE: u32 = 1 << 3;
const FATTR_FH: u32 = 1 << 6;

const FUSE_NOTIFY_INVAL_INODE: i32 = 2;
const FUSE_NOTIFY_STORE: i32 = 4;

/// The bits of a mode that say what it is.
pub(super) const S_IFDIR: u32 = 0o040_000;
pub(super) const S_IFREG: u32 = 0o100_000;

/// The smallest pages that a system has: of larger ones fewer are needed.
const PAGE_BYTES: u32 = 4096;

/// A message of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message<'a> {
    /// Of the request: its answer names it.
    pub(super) unique: u64,
    /// The file or directory.
    pub(super) node: u64,
    /// Who asks; zero for who cannot be seen from here.
    pub(super) thread: u32,
    pub(super) request: Request<'a>,
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request<'a> {
    Init {
        major: u32,
        minor: u32,
        readahead: u32,
        flags: u32,
    },
    /// Of a longer name only the beginning is here.
    Lookup {
        name: &'a [u8],
    },
    Attributes,
    /// Others may always be changed.
    SetAttributes {
        size: Option<Size>,
        is_of_rights: bool,
    },
    Open {
        flags: u32,
    },
    Read {
        offset: u64,
        size: u32,
    },
    /// Its data lies behind the head.
    Write {
        offset: u64,
        size: u32,
        flags: u32,
    },
    Statfs,
    Fsync,
    Fallocate {
        offset: u64,
        length: u64,
        mode: u32,
    },
    Lseek {
        offset: u64,
        whence: u32,
    },
    OpenFolder,
    ReadFolder {
        offset: u64,
        size: u32,
    },
    /// Of a file or a directory.
    Release,
    /// It has no answer.
    Forget,
    /// Who waits for the answer to this request has a signal. It needs no answer.
    Interrupt {
        unique: u64,
    },
    /// Something is made, moved or taken away.
    Change,
    Destroy,
    Other,
}

/// The size that a file is to have, and by what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    /// By `ftruncate`.
    OfHandle(u64),
    /// By `truncate`, or 0 by `open` with `O_TRUNC`.
    OfPath(u64),
}

/// What is no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Odd {
    /// Who waits for an answer all the same. None: there is no whole header.
    pub(super) unique: Option<u64>,
}

/// A message of which `head` holds the first bytes and that has `length`.
pub(super) fn parse(head: &[u8; HEAD_BYTES], length: usize) -> Result<Message<'_>, Odd> {
    let head = Numbers(head.get(..length.min(HEAD_BYTES)).unwrap_or_default());
    let unique = head.u64(8).filter(|_| length >= HEADER_BYTES);
    message(&head, length).ok_or(Odd { unique })
}

fn message<'a>(head: &Numbers<'a>, length: usize) -> Option<Message<'a>> {
    if usize::try_from(head.u32(0)?) != Ok(length) {
        return None;
    }
    let arguments = Numbers(head.0.get(HEADER_BYTES..)?);
    let request = request(head.u32(4)?, &arguments)?;
    if let Request::Write { size, .. } = request
        && usize::try_from(size) != Ok(length.checked_sub(HEAD_BYTES)?)
    {
        return None;
    }
    Some(Message { unique: head.u64(8)?, node: head.u64(16)?, thread: head.u32(32)?, request })
}

fn request<'a>(code: u32, from: &Numbers<'a>) -> Option<Request<'a>> {
    Some(match code {
        1 => Request::Lookup { name: from.0.split(|byte| *byte == 0).next()? },
        2 | 42 => Request::Forget,
        3 => Request::Attributes,
        4 => {
            let valid = from.u32(0)?;
            let size = from.u64(16)?;
            let by = if valid & FATTR_FH != 0 { Size::OfHandle } else { Size::OfPath };
            Request::SetAttributes {
                size: (valid & FATTR_SIZE != 0).then(|| by(size)),
                is_of_rights: valid & FATTR_MODE_UID_GID != 0,
            }
        }
        6 | 8..=13 | 35 | 45 => Request::Change,
        14 => Request::Open { flags: from.u32(0)? },
        15 => Request::Read { offset: from.u64(8)?, size: from.u32(16)? },
        16 => Request::Write { offset: from.u64(8)?, size: from.u32(16)?, flags: from.u32(32)? },
        17 => Request::Statfs,
        18 | 29 => Request::Release,
        20 => Request::Fsync,
        26 => Request::Init {
            major: from.u32(0)?,
            minor: from.u32(4)?,
            readahead: from.u32(8)?,
            flags: from.u32(12)?,
        },
        27 => Request::OpenFolder,
        28 => Request::ReadFolder { offset: from.u64(8)?, size: from.u32(16)? },
        36 => Request::Interrupt { unique: from.u64(0)? },
        38 => Request::Destroy,
        43 => {
            Request::Fallocate { offset: from.u64(8)?, length: from.u64(16)?, mode: from.u32(24)? }
        }
        46 => Request::Lseek { offset: from.u64(8)?, whence: from.u32(16)? },
        _ => Request::Other,
    })
}

/// Bytes that are numbers.
struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn u32(&self, at: usize) -> Option<u32> {
        Some(u32::from_ne_bytes(*self.0.get(at..)?.first_chunk()?))
    }

    fn u64(&self, at: usize) -> Option<u64> {
        Some(u64::from_ne_bytes(*self.0.get(at..)?.first_chunk()?))
    }
}

/// What stands in front of an answer to `unique` with `bytes` behind it; `error`: zero, or less.
pub(super) fn header(unique: u64, error: i32, bytes: usize) -> [u8; ANSWER_HEADER_BYTES] {
    let length = u32::try_from(ANSWER_HEADER_BYTES + bytes).unwrap_or(u32::MAX);
    let mut header = [0; ANSWER_HEADER_BYTES];
    header[..4].copy_from_slice(&length.to_ne_bytes());
    header[4..8].copy_from_slice(&error.to_ne_bytes());
    header[8..].copy_from_slice(&unique.to_ne_bytes());
    header
}

/// What stands behind the header of an answer.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    bytes: [u8; ANSWER_BYTES_MAX],
    length: usize,
}

/// A file or directory, as it is told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attributes {
    pub(super) node: u64,
    pub(super) size: u64,
    /// What it is, and who may use it.
    pub(super) mode: u32,
    pub(super) links: u32,
    pub(super) user: u32,
    pub(super) group: u32,
    /// Best for reading and writing, bytes.
    pub(super) block: u32,
    /// Of its last change, since the epoch.
    pub(super) changed: Duration,
}

impl Answer {
    fn new() -> Self {
        Self { bytes: [0; ANSWER_BYTES_MAX], length: 0 }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    /// To `FUSE_INIT`: data of so many bytes at most, so many requests at a time.
    pub(super) fn init(readahead: u32, offered: u32, bytes_max: u32, requests_max: u16) -> Self {
        // Without FUSE_ATOMIC_O_TRUNC, after which the system takes the file for empty.
        let wanted = FUSE_ASYNC_READ | FUSE_BIG_WRITES | FUSE_ASYNC_DIO | FUSE_MAX_PAGES;
        let pages = u16::try_from(bytes_max.div_ceil(PAGE_BYTES)).unwrap_or(u16::MAX);
        Self::new()
            .u32s(&[MAJOR, MINOR, readahead, offered & wanted])
            .put(&requests_max.to_ne_bytes())
            .put(&requests_max.to_ne_bytes())
            // Times have nanoseconds.
            .u32s(&[bytes_max, 1])
            .put(&pages.to_ne_bytes())
            .put(&[0; 34])
    }

    /// To `FUSE_INIT` of a system that speaks a later protocol: it asks again, in ours.
    pub(super) fn version() -> Self {
        Self::new().u32s(&[MAJOR, MINOR]).put(&[0; 56])
    }

    /// A name. The system asks again each time: what it says may change.
    pub(super) fn entry(of: &Attributes) -> Self {
        Self::new().u64s(&[of.node, 0, 0, 0, 0]).of(of)
    }

    pub(super) fn attributes(of: &Attributes) -> Self {
        Self::new().u64s(&[0, 0]).of(of)
    }

    /// Nothing is cached by the system, and writes go on beside each other.
    pub(super) fn opened() -> Self {
        let flags = FOPEN_DIRECT_IO | FOPEN_NOFLUSH | FOPEN_PARALLEL_DIRECT_WRITES;
        Self::new().u64s(&[0]).u32s(&[flags, 0])
    }

    pub(super) fn opened_folder() -> Self {
        Self::new().u64s(&[0, 0])
    }

    pub(super) fn written(bytes: u32) -> Self {
        Self::new().u32s(&[bytes, 0])
    }

    pub(super) fn offset(offset: u64) -> Self {
        Self::new().u64s(&[offset])
    }

    pub(super) fn statfs(blocks: u64, block: u32) -> Self {
        let (files, name_max) = (1, 255);
        Self::new().u64s(&[blocks, 0, 0, files, 0]).u32s(&[block, name_max, block]).put(&[0; 28])
    }

    /// Those of `entries` (node, mode, name) behind the first `offset` that `size` bytes have room
    /// for.
    pub(super) fn folder(entries: &[(u64, u32, &str)], offset: u64, size: u32) -> Self {
        let mut answer = Self::new();
        for (next, (node, mode, name)) in (1u64..).zip(entries) {
            let room = usize::try_from(size).unwrap_or(usize::MAX).min(ANSWER_BYTES_MAX);
            let padding = name.len().next_multiple_of(8) - name.len();
            if next <= offset {
                continue;
            }
            if answer.length + 24 + name.len() + padding > room {
                break;
            }
            let length = u32::try_from(name.len()).unwrap_or(u32::MAX);
            answer = answer.u64s(&[*node, next]).u32s(&[length, mode >> 12]);
            answer = answer.put(name.as_bytes()).put(&[0; 8][..padding]);
        }
        answer
    }

    /// What the system knows of a file is old; goes with [`notice`].
    pub(super) fn changed(node: u64) -> Self {
        let (all, nothing) = (u64::MAX, 0);
        Self::new().u64s(&[node, all, nothing])
    }

    /// A file has so many bytes at least; goes with [`notice`]. It can only be said by a byte that
    /// is there: the system has the others of that page from a read, and then this one, too.
    pub(super) fn grown(node: u64, size: u64) -> Self {
        let (length, padding) = (1, 0);
        Self::new().u64s(&[node, size.saturating_sub(1)]).u32s(&[length, padding]).put(&[0])
    }

    fn of(self, of: &Attributes) -> Self {
        let (seconds, nanoseconds) = (of.changed.as_secs(), of.changed.subsec_nanos());
        self.u64s(&[of.node, of.size, of.size / 512, seconds, seconds, seconds])
            .u32s(&[nanoseconds, nanoseconds, nanoseconds])
            .u32s(&[of.mode, of.links, of.user, of.group, 0, of.block, 0])
    }

    fn u32s(self, numbers: &[u32]) -> Self {
        numbers.iter().fold(self, |answer, number| answer.put(&number.to_ne_bytes()))
    }

    fn u64s(self, numbers: &[u64]) -> Self {
        numbers.iter().fold(self, |answer, number| answer.put(&number.to_ne_bytes()))
    }

    fn put(mut self, bytes: &[u8]) -> Self {
        let end = self.length + bytes.len();
        let room = self.bytes.get_mut(self.length..end);
        room.expect("the longest answer has room").copy_from_slice(bytes);
        self.length = end;
        self
    }
}

/// What the system is told without having asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(super) enum Notice {
    Changed = FUSE_NOTIFY_INVAL_INODE,
    Grown = FUSE_NOTIFY_STORE,
}

/// In front of it.
pub(super) fn notice(what: Notice, bytes: usize) -> [u8; ANSWER_HEADER_BYTES] {
    header(0, what as i32, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A message as the system writes it, and its whole length.
    fn message(code: u32, node: u64, arguments: &[u8], data: usize) -> ([u8; HEAD_BYTES], usize) {
        let length = HEADER_BYTES + arguments.len() + data;
        let mut head = Vec::new();
        head.extend(u32::try_from(length).unwrap_or(0).to_ne_bytes());
        head.extend(code.to_ne_bytes());
        head.extend(77u64.to_ne_bytes());
        head.extend(node.to_ne_bytes());
        head.extend([0; 16]);
        head.extend(arguments);
        head.resize(HEAD_BYTES, 0xEE);
        (head.try_into().unwrap_or([0; HEAD_BYTES]), length)
    }

    fn request_of(code: u32, arguments: &[u8], data: usize) -> Option<String> {
        let (head, length) = message(code, 2, arguments, data);
        parse(&head, length).ok().map(|message| {
            assert_eq!((message.unique, message.node), (77, 2));
            format!("{:?}", message.request)
        })
    }

    /// The arguments of a read or a write.
    fn range(offset: u64, size: u32, flags: u32) -> Vec<u8> {
        let (handle, owner, padding) = (9u64.to_ne_bytes(), 8u64.to_ne_bytes(), [0; 4]);
        let (offset, flags) = (offset.to_ne_bytes(), flags.to_ne_bytes());
        let size = [size.to_ne_bytes(), [0; 4]].concat();
        [&handle[..], &offset, &size, &owner, &flags, &padding].concat()
    }

    #[test]
    fn a_write_says_where_it_goes_and_its_data_lies_behind_the_head() {
        let arguments = range(1 << 40, 700, 0o10001);
        assert_eq!(arguments.len(), HEAD_BYTES - HEADER_BYTES);
        let write = Request::Write { offset: 1 << 40, size: 700, flags: 0o10001 };
        assert_eq!(request_of(16, &arguments, 700), Some(format!("{write:?}")));
        for wrong in [0, 699, 701] {
            assert_eq!(request_of(16, &arguments, wrong), None, "{wrong} bytes are there");
        }
        let read = Request::Read { offset: 3, size: 700 };
        assert_eq!(request_of(15, &range(3, 700, 0), 0), Some(format!("{read:?}")));
    }

    #[test]
    fn what_is_shorter_than_its_arguments_or_its_length_is_nothing() {
        for code in [4, 14, 15, 16, 26, 28, 43, 46] {
            assert_eq!(request_of(code, &[], 0), None, "{code}");
        }
        let (head, length) = message(3, 1, &[0; 16], 0);
        assert!(parse(&head, length).is_ok());
        for wrong in [0, 3, HEADER_BYTES - 1] {
            assert_eq!(parse(&head, wrong), Err(Odd { unique: None }), "{wrong}");
        }
        for wrong in [HEADER_BYTES, length - 1, length + 1, 1 << 20] {
            assert_eq!(parse(&head, wrong), Err(Odd { unique: Some(77) }), "{wrong}");
        }
    }

    #[test]
    fn names_end_at_their_zero() {
        assert_eq!(
            request_of(1, b"disk\0", 0),
            Some(format!("{:?}", Request::Lookup { name: b"disk" }))
        );
        let long = [b'x'; 300];
        let name = &[b'x'; HEAD_BYTES - HEADER_BYTES];
        assert_eq!(request_of(1, &long, 0), Some(format!("{:?}", Request::Lookup { name })));
    }

    #[test]
    fn a_size_counts_where_it_is_said_to_be_one() {
        let of = |valid: u32| {
            let mut arguments = [0; 88];
            arguments[..4].copy_from_slice(&valid.to_ne_bytes());
            arguments[16..24].copy_from_slice(&512u64.to_ne_bytes());
            let (head, length) = message(4, 2, &arguments[..40], 48);
            parse(&head, length).ok().map(|message| match message.request {
                Request::SetAttributes { size, is_of_rights } => (size, is_of_rights),
                other => panic!("{other:?}"),
            })
        };
        assert_eq!(of(1 << 3), Some((Some(Size::OfPath(512)), false)));
        assert_eq!(of(1 << 3 | 1 << 6), Some((Some(Size::OfHandle(512)), false)));
        // Times alone; rights.
        assert_eq!((of(1 << 4), of(1)), (Some((None, false)), Some((None, true))));
    }

    #[test]
    fn answers_are_as_long_as_those_of_the_header_file() {
        let attributes = Attributes {
            node: 2,
            size: 4096,
            mode: S_IFREG | 0o600,
            links: 1,
            user: 5,
            group: 6,
            block: 4096,
            changed: Duration::new(10, 20),
        };
        let lengths = [
            Answer::init(1, u32::MAX, 1 << 20, 256).bytes().len(),
            Answer::version().bytes().len(),
            Answer::entry(&attributes).bytes().len(),
            Answer::attributes(&attributes).bytes().len(),
            Answer::opened().bytes().len(),
            Answer::opened_folder().bytes().len(),
            Answer::written(1).bytes().len(),
            Answer::offset(1).bytes().len(),
            Answer::statfs(1, 512).bytes().len(),
            Answer::changed(2).bytes().len(),
            Answer::grown(2, 512).bytes().len(),
        ];
        assert_eq!(lengths, [64, 64, 128, 104, 16, 16, 8, 8, 80, 24, 24 + 1]);
        let entry = Answer::entry(&attributes);
        let behind = Numbers(&entry.bytes()[40..]);
        assert_eq!((behind.u64(0), behind.u64(8), behind.u64(16)), (Some(2), Some(4096), Some(8)));
        assert_eq!((behind.u32(60), behind.u32(80)), (Some(attributes.mode), Some(4096)));
    }

    #[test]
    fn a_mebibyte_is_one_request_and_nothing_is_asked_for_that_is_not_offered() {
        let answer = Answer::init(1, FUSE_MAX_PAGES | 2, 1 << 20, 256);
        let told = Numbers(answer.bytes());
        assert_eq!((told.u32(12), told.u32(20)), (Some(FUSE_MAX_PAGES), Some(1 << 20)));
        assert_eq!(told.u32(28), Some(256), "pages, and no alignment");
    }

    #[test]
    fn a_folder_tells_what_fits_and_goes_on_behind_it() {
        let entries = [(1, S_IFDIR, "."), (1, S_IFDIR, ".."), (2, S_IFREG, "disk")];
        let of = |offset, size| Answer::folder(&entries, offset, size).bytes().to_vec();
        assert_eq!([0, 1, 3, 9].map(|offset| of(offset, 4096).len()), [96, 64, 0, 0]);
        assert_eq!([95, 32, 31].map(|size| of(0, size).len()), [64, 32, 0]);
        let last = of(2, 4096);
        let numbers = Numbers(&last);
        assert_eq!((numbers.u64(0), numbers.u64(8)), (Some(2), Some(3)));
        assert_eq!((numbers.u32(16), numbers.u32(20)), (Some(4), Some(8)));
        assert_eq!(&last[24..], b"disk\0\0\0\0");
    }

    proptest! {
        #[test]
        fn nothing_is_too_odd(
            bytes in proptest::array::uniform32(any::<u8>()),
            code in 0u32..64,
            length in 0usize..200,
        ) {
            let mut head = [0; HEAD_BYTES];
            for (to, from) in head.iter_mut().zip(bytes.iter().cycle()) {
                *to = *from;
            }
            head[..4].copy_from_slice(&u32::try_from(length).unwrap_or(0).to_ne_bytes());
            head[4..8].copy_from_slice(&code.to_ne_bytes());
            match parse(&head, length) {
                Ok(message) => prop_assert!(length >= HEADER_BYTES, "{:?}", message),
                Err(odd) => prop_assert_eq!(odd.unique.is_some(), length >= HEADER_BYTES),
            }
        }
    }
}
