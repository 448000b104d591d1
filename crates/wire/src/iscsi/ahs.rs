// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Additional header segments (RFC 7143 §11.2.2).
//!
//! `AHSLength (2) | type (1) | type-specific`, padded to words. AHSLength counts what follows the
//! type byte, without padding.

use super::{ParseError, pad4};
use alloc::vec::Vec;

/// AHS type 1: the bytes of a CDB from 16 on (RFC 7143 §11.2.2.3).
pub const AHS_EXTENDED_CDB: u8 = 1;

/// AHS type 2: the length of the read part of a bidirectional command (RFC 7143 §11.2.2.4).
pub const AHS_BIDI_READ_LENGTH: u8 = 2;

/// AHSLength and type.
const PREFIX_LEN: usize = 3;

/// One AHS as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ahs<'a> {
    /// Type code, bits 0-5 of byte 2.
    pub kind: u8,
    /// What follows the type byte, without padding; its first byte is reserved in both known types.
    pub body: &'a [u8],
}

/// Walks through a list of AHS; ends after the first error.
#[derive(Clone, Copy, Debug)]
pub struct AhsList<'a> {
    rest: &'a [u8],
}

impl<'a> AhsList<'a> {
    /// `bytes` are all AHS of a PDU, as long as TotalAHSLength says.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    fn take(&mut self) -> Result<Ahs<'a>, ParseError> {
        const OVERRUN: ParseError =
            ParseError::Inconsistent { what: "AHS longer than TotalAHSLength" };
        let Some((&[high, low, kind], _)) = self.rest.split_first_chunk() else {
            return Err(OVERRUN);
        };
        let end = PREFIX_LEN + usize::from(u16::from_be_bytes([high, low]));
        let body = self.rest.get(PREFIX_LEN..end).ok_or(OVERRUN)?;
        self.rest = self.rest.get(pad4(end)..).ok_or(OVERRUN)?;
        Ok(Ahs { kind: kind & 0x3f, body })
    }
}

impl<'a> Iterator for AhsList<'a> {
    type Item = Result<Ahs<'a>, ParseError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let item = self.take();
        if item.is_err() {
            self.rest = &[];
        }
        Some(item)
    }
}

/// Appends one AHS: the reserved byte, then `content`, then zeros up to `content_len` and to a
/// whole word.
pub(super) fn push_ahs(out: &mut Vec<u8>, kind: u8, content: &[u8], content_len: u16) {
    let start = out.len();
    out.extend_from_slice(&content_len.saturating_add(1).to_be_bytes());
    out.extend_from_slice(&[kind, 0]);
    out.extend_from_slice(content);
    out.resize(start + pad4(PREFIX_LEN + 1 + usize::from(content_len)), 0);
}
