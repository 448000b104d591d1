// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client of NFS 4.1 (RFC 8881) that does what a load needs, one call after the other on a
//! connection of its own, as those of SFS are, which have no cache either.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::xdr::{Reader, Writer};

/// So long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// An answer longer than this is none.
const ANSWER_MAX: u32 = 4 << 20;

/// Bytes that a READ or a WRITE carries at most.
pub(crate) const DATA_MAX: u32 = 64 << 10;

/// Operations (RFC 8881 §16.2).
mod operation {
    pub(super) const ACCESS: u32 = 3;
    pub(super) const CLOSE: u32 = 4;
    pub(super) const COMMIT: u32 = 5;
    pub(super) const GETATTR: u32 = 9;
    pub(super) const GETFH: u32 = 10;
    pub(super) const LOOKUP: u32 = 15;
    pub(super) const OPEN: u32 = 18;
    pub(super) const PUTFH: u32 = 22;
    pub(super) const PUTROOTFH: u32 = 24;
    pub(super) const READ: u32 = 25;
    pub(super) const READDIR: u32 = 26;
    pub(super) const REMOVE: u32 = 28;
    pub(super) const SETATTR: u32 = 34;
    pub(super) const WRITE: u32 = 38;
    pub(super) const EXCHANGE_ID: u32 = 42;
    pub(super) const CREATE_SESSION: u32 = 43;
    pub(super) const DESTROY_SESSION: u32 = 44;
    pub(super) const SEQUENCE: u32 = 53;
    pub(super) const DESTROY_CLIENTID: u32 = 57;
    pub(super) const RECLAIM_COMPLETE: u32 = 58;
}

/// Type, size and time of a change, and the mode; the second word of the set.
const ATTRIBUTES: [u32; 2] = [1 << 1 | 1 << 4, 1 << (53 - 32)];

/// The mode alone, and what is set.
const MODE: [u32; 2] = [0, 1 << 1];
const MODE_OF_FILE: u32 = 0o644;

/// A file or a folder, as the server knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Handle(Vec<u8>);

/// The server may write later.
const UNSTABLE: u32 = 0;

/// Who has said that a file is open.
type State = [u8; 16];

/// Nobody: READ and WRITE need nobody who has opened the file (RFC 8881 §8.2.3).
const NOBODY: State = [0; 16];

/// A connection with a session.
#[derive(Debug)]
pub(crate) struct Client {
    stream: TcpStream,
    number: u32,
    client: u64,
    session: [u8; 16],
    sequence: u32,
}

impl Client {
    /// `name` is that of this client alone.
    pub(crate) fn connect(server: SocketAddr, name: &str) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&server, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut client = Self { stream, number: 0, client: 0, session: [0; 16], sequence: 0 };
        client.begin(name)?;
        Ok(client)
    }

    fn begin(&mut self, name: &str) -> io::Result<()> {
        let mut call = Writer::default();
        call.number(operation::EXCHANGE_ID).long(1).opaque(name.as_bytes());
        // No flags, no protection of its state, no words about us.
        call.numbers(&[]).number(0).numbers(&[]);
        let answer = self.call(1, &call)?;
        let mut answer = Reader::new(&answer);
        expect(&mut answer, operation::EXCHANGE_ID)?;
        let (client, sequence) = answer.long().zip(answer.number()).ok_or_else(short)?;
        self.client = client;
        let mut call = Writer::default();
        call.number(operation::CREATE_SESSION).long(client).number(sequence).number(0);
        let length = DATA_MAX + 4096;
        for _ in 0..2 {
            // Padding, longest call, answer and kept answer, operations, calls at once, no RDMA.
            call.number(0).number(length).number(length).number(4096).number(8).number(1);
            call.numbers(&[]);
        }
        // No way back, and nobody who proves himself on it.
        call.number(0).number(1).number(0);
        let answer = self.call(1, &call)?;
        let mut answer = Reader::new(&answer);
        expect(&mut answer, operation::CREATE_SESSION)?;
        let session = answer.fixed(16).and_then(|id| id.try_into().ok());
        self.session = session.ok_or_else(short)?;
        let mut call = Writer::default();
        call.number(operation::RECLAIM_COMPLETE).number(0);
        self.within(1, &call, &[operation::RECLAIM_COMPLETE], |_| Some(()))
    }

    /// The folder below the root that has this name.
    pub(crate) fn root(&mut self, name: &str) -> io::Result<Handle> {
        let mut call = Writer::default();
        call.number(operation::PUTROOTFH).number(operation::LOOKUP).opaque(name.as_bytes());
        call.number(operation::GETFH);
        let all = [operation::PUTROOTFH, operation::LOOKUP, operation::GETFH];
        self.within(3, &call, &all, handle)
    }

    pub(crate) fn look_up(&mut self, folder: &Handle, name: &str) -> io::Result<Handle> {
        let mut call = at(folder);
        call.number(operation::LOOKUP).opaque(name.as_bytes()).number(operation::GETFH);
        let all = [operation::PUTFH, operation::LOOKUP, operation::GETFH];
        self.within(3, &call, &all, handle)
    }

    /// Gives how many bytes there are of its attributes.
    pub(crate) fn attributes(&mut self, file: &Handle) -> io::Result<usize> {
        let mut call = at(file);
        call.number(operation::GETATTR).numbers(&ATTRIBUTES);
        self.within(2, &call, &[operation::PUTFH, operation::GETATTR], |answer| {
            answer.numbers()?;
            answer.opaque().map(<[u8]>::len)
        })
    }

    pub(crate) fn set_mode(&mut self, file: &Handle) -> io::Result<()> {
        let mut call = at(file);
        call.number(operation::SETATTR).fixed(&NOBODY).numbers(&MODE);
        call.opaque(&MODE_OF_FILE.to_be_bytes());
        self.within(2, &call, &[operation::PUTFH, operation::SETATTR], |_| Some(()))
    }

    pub(crate) fn access(&mut self, file: &Handle) -> io::Result<u32> {
        let mut call = at(file);
        call.number(operation::ACCESS).number(0x3f);
        self.within(2, &call, &[operation::PUTFH, operation::ACCESS], |answer| {
            answer.number()?;
            answer.number()
        })
    }

    /// Gives the names of a part of the folder, from its beginning.
    pub(crate) fn read_folder(&mut self, folder: &Handle) -> io::Result<Vec<String>> {
        let mut call = at(folder);
        call.number(operation::READDIR).long(0).long(0).number(2048).number(8192);
        call.numbers(&ATTRIBUTES);
        self.within(2, &call, &[operation::PUTFH, operation::READDIR], |answer| {
            answer.long()?;
            let mut names = Vec::new();
            while answer.number()? == 1 {
                answer.long()?;
                names.push(String::from_utf8_lossy(answer.opaque()?).into_owned());
                answer.numbers()?;
                answer.opaque()?;
            }
            Some(names)
        })
    }

    /// Into `data`, which may be as long as `DATA_MAX`; gives how much there was.
    pub(crate) fn read(
        &mut self,
        file: &Handle,
        offset: u64,
        data: &mut [u8],
    ) -> io::Result<usize> {
        let mut call = at(file);
        let length = u32::try_from(data.len()).unwrap_or(DATA_MAX);
        call.number(operation::READ).fixed(&NOBODY).long(offset).number(length);
        self.within(2, &call, &[operation::PUTFH, operation::READ], |answer| {
            answer.number()?;
            let found = answer.opaque()?;
            data.get_mut(..found.len())?.copy_from_slice(found);
            Some(found.len())
        })
    }

    /// It is on the disk with its COMMIT.
    pub(crate) fn write(&mut self, file: &Handle, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut call = at(file);
        call.number(operation::WRITE).fixed(&NOBODY).long(offset).number(UNSTABLE);
        call.opaque(data);
        let written = self.within(2, &call, &[operation::PUTFH, operation::WRITE], |answer| {
            usize::try_from(answer.number()?).ok()
        })?;
        match written == data.len() {
            true => Ok(()),
            false => Err(io::Error::other(format!("{written} of {} bytes written", data.len()))),
        }
    }

    /// All that was written to the file is on the disk.
    pub(crate) fn commit(&mut self, file: &Handle) -> io::Result<()> {
        let mut call = at(file);
        call.number(operation::COMMIT).long(0).number(0);
        self.within(2, &call, &[operation::PUTFH, operation::COMMIT], |_| Some(()))
    }

    /// Makes an empty file, or opens the one that has this name, and closes it again.
    pub(crate) fn create(&mut self, folder: &Handle, name: &str) -> io::Result<Handle> {
        let mut call = at(folder);
        // To read and write, without a delegation; nobody is denied anything.
        call.number(operation::OPEN).number(0).number(3 | 0x400).number(0);
        call.long(self.client).opaque(b"lab");
        // Create, whether or not it is there; its name.
        call.number(1).number(0).numbers(&MODE).opaque(&MODE_OF_FILE.to_be_bytes());
        call.number(0).opaque(name.as_bytes()).number(operation::GETFH);
        // That which was opened just now (RFC 8881 §16.2.3.1.2).
        call.number(operation::CLOSE).number(0).number(1).fixed(&[0; 12]);
        self.within(4, &call, &[operation::PUTFH, operation::OPEN], |answer| {
            answer.fixed(16 + 4 + 8 + 8 + 4)?;
            answer.numbers()?;
            match answer.number()? {
                0 => {}
                // None, with the reason.
                3 if matches!(answer.number()?, 1 | 2) => drop(answer.number()?),
                3 => {}
                _ => return None,
            }
            expect(answer, operation::GETFH).ok()?;
            let handle = handle(answer)?;
            expect(answer, operation::CLOSE).ok()?;
            Some(handle)
        })
    }

    pub(crate) fn remove(&mut self, folder: &Handle, name: &str) -> io::Result<()> {
        let mut call = at(folder);
        call.number(operation::REMOVE).opaque(name.as_bytes());
        self.within(2, &call, &[operation::PUTFH, operation::REMOVE], |_| Some(()))
    }

    /// Ends the session, so that the server keeps nothing of us.
    pub(crate) fn end(mut self) -> io::Result<()> {
        let mut call = Writer::default();
        call.number(operation::DESTROY_SESSION).fixed(&self.session);
        expect(&mut Reader::new(&self.call(1, &call)?), operation::DESTROY_SESSION)?;
        let mut call = Writer::default();
        call.number(operation::DESTROY_CLIENTID).long(self.client);
        expect(&mut Reader::new(&self.call(1, &call)?), operation::DESTROY_CLIENTID)
    }

    /// Operations in the session; what `take` makes of the answer of the last one of `expected`.
    fn within<T>(
        &mut self,
        count: u32,
        operations: &Writer,
        expected: &[u32],
        take: impl FnOnce(&mut Reader<'_>) -> Option<T>,
    ) -> io::Result<T> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut call = Writer::default();
        // The only slot, whose answer need not be kept.
        call.number(operation::SEQUENCE).fixed(&self.session).number(self.sequence);
        call.number(0).number(0).number(0).fixed(&operations.bytes);
        let answer = self.call(count + 1, &call)?;
        let mut answer = Reader::new(&answer);
        expect(&mut answer, operation::SEQUENCE)?;
        answer.fixed(16 + 5 * 4).ok_or_else(short)?;
        // Those before the last one say no more than that they are done.
        expected.iter().try_for_each(|one| expect(&mut answer, *one))?;
        take(&mut answer).ok_or_else(short)
    }

    /// A COMPOUND of so many operations; what follows their count in the answer (RFC 5531).
    fn call(&mut self, count: u32, operations: &Writer) -> io::Result<Vec<u8>> {
        self.number = self.number.wrapping_add(1);
        let mut call = Writer::default();
        // The length, a call of RPC 2, NFS 4, COMPOUND.
        call.number(0).number(self.number).number(0).number(2).number(100_003).number(4).number(1);
        // Who calls: root; nobody proves it.
        let mut who = Writer::default();
        who.number(0).opaque(b"lab").number(0).number(0).numbers(&[]);
        call.number(1).opaque(&who.bytes).number(0).number(0);
        call.opaque(b"").number(1).number(count).fixed(&operations.bytes);
        let length = u32::try_from(call.bytes.len() - 4).unwrap_or(u32::MAX);
        if let Some(head) = call.bytes.first_chunk_mut() {
            *head = (length | LAST).to_be_bytes();
        }
        self.stream.write_all(&call.bytes)?;
        let answer = self.answer()?;
        let mut reader = Reader::new(&answer);
        let mut number = || reader.number().ok_or_else(short);
        let [call, kind, denied] = [number()?, number()?, number()?];
        if (call, kind, denied) != (self.number, 1, 0) {
            return Err(io::Error::other("the server takes no such call"));
        }
        number()?;
        reader.opaque().ok_or_else(short)?;
        match reader.number() {
            Some(0) => {}
            why => return Err(io::Error::other(format!("the call was not taken: {why:?}"))),
        }
        // The status is that of the last operation, which is looked at with it.
        reader.number().and_then(|_| reader.opaque()).ok_or_else(short)?;
        reader.number().ok_or_else(short)?;
        Ok(reader.rest().to_vec())
    }

    /// All fragments of the next answer.
    fn answer(&mut self) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        loop {
            let mut head = [0; 4];
            self.stream.read_exact(&mut head)?;
            let head = u32::from_be_bytes(head);
            let length = head & !LAST;
            if length > ANSWER_MAX {
                return Err(io::Error::other(format!("an answer of {length} bytes")));
            }
            let begin = all.len();
            all.resize(begin + length as usize, 0);
            self.stream.read_exact(all.get_mut(begin..).unwrap_or_default())?;
            if head & LAST != 0 {
                return Ok(all);
            }
        }
    }
}

/// The last fragment of a record (RFC 5531 §11).
const LAST: u32 = 1 << 31;

/// Operations on this file.
fn at(file: &Handle) -> Writer {
    let mut call = Writer::default();
    call.number(operation::PUTFH).opaque(&file.0);
    call
}

fn handle(answer: &mut Reader<'_>) -> Option<Handle> {
    answer.opaque().map(|handle| Handle(handle.to_vec()))
}

/// NFS4ERR_NOENT (RFC 8881 §15.1).
const NO_ENTRY: u32 = 2;

/// The next operation is this one, and went well.
fn expect(answer: &mut Reader<'_>, operation: u32) -> io::Result<()> {
    match answer.number().zip(answer.number()) {
        Some((one, 0)) if one == operation => Ok(()),
        Some((one, status)) => {
            let kind = if status == NO_ENTRY { ErrorKind::NotFound } else { ErrorKind::Other };
            Err(io::Error::new(kind, format!("operation {one} of NFS failed: status {status}")))
        }
        None => Err(short()),
    }
}

fn short() -> io::Error {
    io::Error::other("an answer of NFS that is too short")
}
