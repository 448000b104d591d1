// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests ("Request message").

use crate::Violation;
use crate::number::take;
use crate::number::take_u16;
use crate::number::take_u32;
use crate::number::take_u64;

/// Longest data of a write, bytes: what clients may send where nobody has told them ("Block size
/// constraints").
pub const PAYLOAD_MAX: u32 = 32 << 20;

const MAGIC: u32 = 0x2560_9513;
const HEADER: usize = 28;

const FLAG_FUA: u16 = 1 << 0;
const FLAG_NO_HOLE: u16 = 1 << 1;
const FLAG_DF: u16 = 1 << 2;
const FLAG_REQ_ONE: u16 = 1 << 3;
const FLAG_FAST_ZERO: u16 = 1 << 4;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command {
    /// `NBD_CMD_READ`.
    Read,
    /// `NBD_CMD_WRITE`; data follows.
    Write,
    /// `NBD_CMD_DISC`: the client leaves; it wants no answer.
    Disconnect,
    /// `NBD_CMD_FLUSH`.
    Flush,
    /// `NBD_CMD_TRIM`.
    Trim,
    /// `NBD_CMD_WRITE_ZEROES`.
    WriteZeroes {
        /// `NBD_CMD_FLAG_NO_HOLE`: space is kept.
        keep_space: bool,
        /// `NBD_CMD_FLAG_FAST_ZERO`: fails rather than be as slow as a write.
        fast: bool,
    },
    /// `NBD_CMD_BLOCK_STATUS`.
    BlockStatus {
        /// `NBD_CMD_FLAG_REQ_ONE`: of one extent.
        one: bool,
    },
    /// Another number, or flags that the command has not: it is refused.
    Unknown,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs)] // it is what came
pub struct Request {
    /// What.
    pub command: Command,
    /// On stable storage before it is answered (`NBD_CMD_FLAG_FUA`).
    pub durable: bool,
    /// Goes back with the reply.
    pub cookie: u64,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u32,
}

/// What has come.
#[derive(Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // a server must treat every one
pub enum Item<'a> {
    /// A request. Of a write, its data follows.
    Request(Request),
    /// The next data of the last write, as much as has come.
    Data(&'a [u8]),
}

/// What reads requests out of a stream.
#[derive(Debug, Default)]
pub struct Receiver {
    header: [u8; HEADER],
    /// Bytes of the header that are there.
    there: usize,
    /// Bytes of data that are still to come.
    data_left: usize,
}

impl Receiver {
    /// The next item of `bytes`, which is moved behind it; None: there is none yet.
    ///
    /// # Errors
    /// The client does not speak the protocol.
    pub fn next<'a>(&mut self, bytes: &mut &'a [u8]) -> Result<Option<Item<'a>>, Violation> {
        if bytes.is_empty() {
            return Ok(None);
        }
        if self.data_left > 0 {
            let (here, behind) = bytes.split_at(bytes.len().min(self.data_left));
            self.data_left -= here.len();
            *bytes = behind;
            return Ok(Some(Item::Data(here)));
        }
        let room = self.header.get_mut(self.there..).unwrap_or_default();
        let (here, behind) = bytes.split_at(bytes.len().min(room.len()));
        room.iter_mut().zip(here).for_each(|(to, from)| *to = *from);
        self.there += here.len();
        *bytes = behind;
        if self.there < HEADER {
            return Ok(None);
        }
        self.there = 0;
        let request = Request::parse(&self.header)?;
        if request.command == Command::Write {
            if request.length > PAYLOAD_MAX {
                return Err(Violation::Payload(request.length));
            }
            self.data_left = usize::try_from(request.length).unwrap_or(usize::MAX);
        }
        Ok(Some(Item::Request(request)))
    }
}

impl Request {
    fn parse(header: &[u8; HEADER]) -> Result<Self, Violation> {
        let mut rest = &header[..];
        let magic = take_u32(&mut rest).unwrap_or_default();
        if magic != MAGIC {
            return Err(Violation::RequestMagic(magic));
        }
        let flags = take_u16(&mut rest).unwrap_or_default();
        let kind = take_u16(&mut rest).unwrap_or_default();
        let cookie = take(&mut rest).map_or(0, u64::from_be_bytes);
        let offset = take_u64(&mut rest).unwrap_or_default();
        let length = take_u32(&mut rest).unwrap_or_default();
        let has = |flag| flags & flag != 0;
        let zeroes =
            Command::WriteZeroes { keep_space: has(FLAG_NO_HOLE), fast: has(FLAG_FAST_ZERO) };
        // FUA may come with any command, and means nothing with some ("Command flags").
        let (command, known) = match kind {
            0 => (Command::Read, FLAG_DF),
            1 => (Command::Write, 0),
            2 => (Command::Disconnect, 0),
            3 => (Command::Flush, 0),
            4 => (Command::Trim, 0),
            6 => (zeroes, FLAG_NO_HOLE | FLAG_FAST_ZERO),
            7 => (Command::BlockStatus { one: has(FLAG_REQ_ONE) }, FLAG_REQ_ONE),
            _ => (Command::Unknown, 0),
        };
        let unknown = flags & !(known | FLAG_FUA) != 0;
        // The data of a write is on its way, whatever its flags are: it must be read to be skipped.
        let command = match command {
            Command::Write | Command::Disconnect => command,
            _ if unknown => Command::Unknown,
            _ => command,
        };
        Ok(Self { command, durable: has(FLAG_FUA), cookie, offset, length })
    }
}
