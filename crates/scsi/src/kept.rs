// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a unit keeps over a loss of power: reservations, mode parameters, identification, a wipe
//! that has not ended.
//!
//! ```text
//! magic:4 version:4 unit:8 body sum:4
//! ```
//!
//! All numbers are big-endian; `sum` is the CRC32C of all before it, `unit` ties the bytes to the
//! unit that they are of. Each body stands beside what it keeps: it travels nowhere, and nobody
//! else reads it.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

/// Keeps one kind of state through a loss of power; the target has one for each unit that can.
pub trait Keeper: Send + Sync + fmt::Debug {
    /// Puts `state` in place of what was kept before, on stable storage and as a whole: after a
    /// crash at any point there is the old state or the new one. It may wait as long as the medium
    /// likes, so nobody calls it where others wait ([`Keep::run`]).
    ///
    /// # Errors
    /// If that is not certain; the command that changed the state fails then.
    fn keep(&self, state: &[u8]) -> Result<(), KeepFailed>;
}

/// A state on its way to stable storage. There is one of a kind and a unit at a time.
#[derive(Clone, Debug)]
pub struct Keep {
    keeper: Arc<dyn Keeper>,
    state: Vec<u8>,
}

impl Keep {
    pub(crate) fn new(keeper: &Arc<dyn Keeper>, state: Vec<u8>) -> Self {
        Self { keeper: Arc::clone(keeper), state }
    }

    /// Keeps it, which takes its time.
    ///
    /// # Errors
    /// If it is not certain that it is kept.
    pub fn run(&self) -> Result<(), KeepFailed> {
        self.keeper.keep(&self.state)
    }
}

/// The state could not be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot keep the state of the logical unit")]
pub struct KeepFailed;

/// What is kept, each kind in a place of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // the target must have a place for each
pub enum Kept {
    /// Registrations and the reservation (APTPL).
    Reservations,
    /// Saved mode parameters.
    ModeParameters,
    /// Identifying information.
    Identification,
    /// A FORMAT UNIT or SANITIZE that has not ended well.
    Wipe,
}

impl Kept {
    /// Every kind.
    pub const ALL: [Self; 4] =
        [Self::Reservations, Self::ModeParameters, Self::Identification, Self::Wipe];

    /// Its name, as part of a file's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reservations => "reservations",
            Self::ModeParameters => "modes",
            Self::Identification => "identification",
            Self::Wipe => "wipe",
        }
    }

    const fn magic(self) -> [u8; 4] {
        match self {
            Self::Reservations => *b"LWPR",
            Self::ModeParameters => *b"LWMP",
            Self::Identification => *b"LWID",
            Self::Wipe => *b"LWWI",
        }
    }

    /// The same for all kinds until one changes.
    const VERSION: u32 = 1;
}

/// Why kept state cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// Not the bytes of such state.
    #[error("not a state that this program has written")]
    Foreign,
    /// Of another version.
    #[error("state of format version {0}, which this program does not know")]
    Version(u32),
    /// Of another unit.
    #[error("state of another logical unit")]
    Unit,
    /// Cut or changed.
    #[error("damaged state")]
    Damaged,
}

/// Frames `body` as state of the unit `unit`.
pub(crate) fn seal(kept: Kept, unit: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = kept.magic().to_vec();
    bytes.extend_from_slice(&Kept::VERSION.to_be_bytes());
    bytes.extend_from_slice(&unit.to_be_bytes());
    bytes.extend_from_slice(body);
    bytes.extend_from_slice(&crc::crc32c(&bytes).to_be_bytes());
    bytes
}

/// The body of what `seal` made for the same unit; the bytes are believed in nothing.
pub(crate) fn open(kept: Kept, unit: u64, bytes: &[u8]) -> Result<Reader<'_>, RestoreError> {
    let (body, sum) = bytes.split_last_chunk::<4>().ok_or(RestoreError::Foreign)?;
    let mut rest = Reader(body);
    if rest.take::<4>().ok() != Some(kept.magic()) {
        return Err(RestoreError::Foreign);
    }
    match u32::from_be_bytes(rest.take()?) {
        Kept::VERSION => {}
        other => return Err(RestoreError::Version(other)),
    }
    if crc::crc32c(body) != u32::from_be_bytes(*sum) {
        return Err(RestoreError::Damaged);
    }
    if u64::from_be_bytes(rest.take()?) != unit {
        return Err(RestoreError::Unit);
    }
    Ok(rest)
}

/// Takes bytes from the front.
#[derive(Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn take<const N: usize>(&mut self) -> Result<[u8; N], RestoreError> {
        let (first, rest) = self.0.split_first_chunk::<N>().ok_or(RestoreError::Damaged)?;
        self.0 = rest;
        Ok(*first)
    }

    /// The next `length` bytes.
    pub(crate) fn bytes(&mut self, length: usize) -> Result<&'a [u8], RestoreError> {
        let (first, rest) = self.0.split_at_checked(length).ok_or(RestoreError::Damaged)?;
        self.0 = rest;
        Ok(first)
    }

    /// Nothing may follow.
    pub(crate) const fn end(&self) -> Result<(), RestoreError> {
        if self.0.is_empty() { Ok(()) } else { Err(RestoreError::Damaged) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written by an earlier build, so that files of disks in service stay readable.
    #[test]
    fn vector() {
        let bytes = *b"LWID\0\0\0\x01\0\0\0\0\0\0\0\x07body\xf2\x79\xc6\xb1";
        assert_eq!(seal(Kept::Identification, 7, b"body"), bytes);
    }

    #[test]
    fn what_is_not_ours_is_refused() {
        for kept in Kept::ALL {
            let good = seal(kept, 7, b"body");
            let mut rest = open(kept, 7, &good).expect("ours");
            assert_eq!(rest.end(), Err(RestoreError::Damaged));
            assert_eq!(rest.bytes(4), Ok(&b"body"[..]));
            assert_eq!(rest.end(), Ok(()));
            let refused = |bytes: &[u8], unit| open(kept, unit, bytes).expect_err("refused");
            assert_eq!(refused(&good, 8), RestoreError::Unit);
            assert_eq!(refused(b"", 7), RestoreError::Foreign);
            assert_eq!(refused(b"hello, world", 7), RestoreError::Foreign);
            let mut newer = good.clone();
            newer[7] = 2;
            assert_eq!(refused(&newer, 7), RestoreError::Version(2));
            for cut in 0..good.len() {
                assert!(open(kept, 7, &good[..cut]).is_err(), "cut at {cut}");
            }
            for at in 0..good.len() {
                let mut bad = good.clone();
                bad[at] ^= 0x10;
                assert!(open(kept, 7, &bad).is_err(), "changed at {at}");
            }
            for other in Kept::ALL.into_iter().filter(|other| *other != kept) {
                assert_eq!(open(other, 7, &good).expect_err("foreign"), RestoreError::Foreign);
            }
        }
    }
}
