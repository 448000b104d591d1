// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Replies ("Simple reply message", "Structured reply chunk message").

use alloc::vec::Vec;

use crate::Agreed;
use crate::Command;
use crate::Request;

const SIMPLE: u32 = 0x6744_6698;
const STRUCTURED: u32 = 0x668e_33ef;
const FLAG_DONE: u16 = 1;
const NONE: u16 = 0;
const OFFSET_DATA: u16 = 1;
const BLOCK_STATUS: u16 = 5;
const ERROR: u16 = (1 << 15) | 1;

/// What `base:allocation` is called in replies.
pub(crate) const ALLOCATION_ID: u32 = 1;

/// `NBD_STATE_HOLE`, `NBD_STATE_ZERO`.
const HOLE: u32 = 1 << 0;
const ZERO: u32 = 1 << 1;

/// A run of bytes ("`base:allocation`").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs)] // two facts
pub struct Extent {
    /// Bytes.
    pub length: u32,
    /// It takes no space.
    pub hole: bool,
    /// It reads as zeroes.
    pub zero: bool,
}

/// "Error values".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Errno {
    /// `NBD_EPERM`: the export is read-only.
    Permission,
    /// `NBD_EIO`.
    InputOutput,
    /// `NBD_ENOMEM`.
    NoMemory,
    /// `NBD_EINVAL`: no such command, flag or range.
    Invalid,
    /// `NBD_ENOSPC`: no space, or a write behind the end.
    NoSpace,
    /// `NBD_ENOTSUP`: zeroes would not be fast.
    NotSupported,
    /// `NBD_ESHUTDOWN`: the server is about to end.
    Shutdown,
}

impl Errno {
    /// Its number, which is Linux' too.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Permission => 1,
            Self::InputOutput => 5,
            Self::NoMemory => 12,
            Self::Invalid => 22,
            Self::NoSpace => 28,
            Self::NotSupported => 95,
            Self::Shutdown => 108,
        }
    }
}

/// The start of a reply: its bytes, which data of a read follows where there is some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    bytes: [u8; LONGEST],
    length: usize,
}

const LONGEST: usize = 28;

impl Reply {
    /// That a request is done. Of a read, `request.length` bytes of data follow.
    #[must_use]
    pub fn done(agreed: Agreed, request: &Request) -> Self {
        let reply = Self::empty();
        if request.command != Command::Read || !agreed.structured {
            return reply.simple(request, 0);
        }
        if request.length == 0 {
            return reply.chunk(request, NONE, 0);
        }
        // Its length counts the offset, which cannot make it too long: data has 32 MiB at most.
        let reply = reply.chunk(request, OFFSET_DATA, request.length.saturating_add(8));
        reply.with(&request.offset.to_be_bytes())
    }

    /// That a request has failed.
    #[must_use]
    pub fn failed(agreed: Agreed, request: &Request, errno: Errno) -> Self {
        let reply = Self::empty();
        let in_chunks = matches!(request.command, Command::Read | Command::BlockStatus { .. });
        if !in_chunks || !agreed.structured {
            return reply.simple(request, errno.number());
        }
        // An error, and a message of no bytes.
        reply.chunk(request, ERROR, 6).with(&errno.number().to_be_bytes()).with(&[0, 0])
    }

    /// What has space, from `request.offset` on: the whole answer to `NBD_CMD_BLOCK_STATUS`.
    #[must_use]
    pub fn extents(request: &Request, extents: &[Extent]) -> Vec<u8> {
        let length = u32::try_from(extents.len() * 8 + 4).unwrap_or(u32::MAX);
        let head = Self::empty().chunk(request, BLOCK_STATUS, length);
        let mut bytes = head.with(&ALLOCATION_ID.to_be_bytes()).bytes().to_vec();
        for Extent { length, hole, zero } in extents {
            let flags = if *hole { HOLE } else { 0 } | if *zero { ZERO } else { 0 };
            bytes.extend_from_slice(&length.to_be_bytes());
            bytes.extend_from_slice(&flags.to_be_bytes());
        }
        bytes
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    const fn empty() -> Self {
        Self { bytes: [0; LONGEST], length: 0 }
    }

    fn with(mut self, bytes: &[u8]) -> Self {
        let room = self.bytes.iter_mut().skip(self.length);
        room.zip(bytes).for_each(|(to, from)| *to = *from);
        self.length += bytes.len();
        self
    }

    fn simple(self, request: &Request, error: u32) -> Self {
        let start = self.with(&SIMPLE.to_be_bytes()).with(&error.to_be_bytes());
        start.with(&request.cookie.to_be_bytes())
    }

    fn chunk(self, request: &Request, kind: u16, length: u32) -> Self {
        self.with(&STRUCTURED.to_be_bytes())
            .with(&FLAG_DONE.to_be_bytes())
            .with(&kind.to_be_bytes())
            .with(&request.cookie.to_be_bytes())
            .with(&length.to_be_bytes())
    }
}
