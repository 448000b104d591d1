// SPDX-License-Identifier: Apache-2.0 OR MIT
//! ROD tokens: POPULATE TOKEN, WRITE USING TOKEN, RECEIVE ROD TOKEN INFORMATION (SPC-4 §5.16.6,
//! §6.28; SBC-4 §5.9, §5.57).

use super::copy::Cscd;
use super::copy::Malformed;
use super::copy::Progress;
use super::field::get;
use super::field::get_u8;
use super::field::get_u16;
use super::field::get_u32;
use super::field::get_u64;
use super::field::put;
use alloc::vec::Vec;

/// Bytes of a ROD token.
pub const TOKEN_LEN: usize = 512;
/// Bytes of a POPULATE TOKEN list before the range descriptors.
pub const POPULATE_HEADER_LEN: usize = 16;
/// Bytes of a WRITE USING TOKEN list before the range descriptors.
pub const WRITE_HEADER_LEN: usize = 536;
/// Bytes of a block device range descriptor.
pub const RANGE_LEN: usize = 16;
/// Bytes of a token that nobody can guess.
pub const SECRET_LEN: usize = 32;

/// ROD TYPE: the copy manager chooses.
pub const TYPE_ANY: u32 = 0;
/// ROD TYPE: point in time copy, change vulnerable: it ends when the source changes.
pub const TYPE_CHANGE_VULNERABLE: u32 = 0x0080_0001;
/// ROD TYPE: zeros, as many as are asked for.
pub const TYPE_ZERO: u32 = 0xffff_0001;

/// ROD TOKEN LENGTH: of what follows the first eight bytes.
const TOKEN_REST_LEN: u16 = 0x01f8;
/// Where the creator's descriptor stands in a token.
const CREATOR_AT: usize = 16;
/// Where the extended token data stand, which are ours to fill.
const SECRET_AT: usize = 256;

/// A run of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First block.
    pub lba: u64,
    /// Blocks.
    pub blocks: u32,
}

/// A POPULATE TOKEN parameter list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Populate {
    /// IMMED.
    pub immediate: bool,
    /// INACTIVITY TIMEOUT, seconds; zero is the default.
    pub inactivity_s: u32,
    /// ROD TYPE; [`TYPE_ANY`] if RTV is zero.
    pub rod_type: u32,
    /// What the token stands for.
    pub ranges: Vec<Range>,
}

impl Populate {
    /// Reads a list.
    ///
    /// # Errors
    /// If it is not as long as its header says, or its range descriptors are cut.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let head: [u8; POPULATE_HEADER_LEN] = get(bytes, 0).ok_or(Malformed::Length)?;
        check_length(bytes)?;
        let valid = head[2] & 2 != 0;
        Ok(Self {
            immediate: head[2] & 1 != 0,
            inactivity_s: get_u32(&head, 4).unwrap_or(0),
            rod_type: if valid { get_u32(&head, 8).unwrap_or(0) } else { TYPE_ANY },
            ranges: ranges(bytes, POPULATE_HEADER_LEN)?,
        })
    }

    /// Writes a list; None if it does not fit its length fields.
    #[must_use]
    pub fn emit(&self) -> Option<Vec<u8>> {
        let mut bytes = Vec::from([0; POPULATE_HEADER_LEN]);
        let valid = u8::from(self.rod_type != TYPE_ANY) << 1;
        bytes[2] = valid | u8::from(self.immediate);
        put(&mut bytes, 4, self.inactivity_s.to_be_bytes());
        put(&mut bytes, 8, self.rod_type.to_be_bytes());
        append(bytes, &self.ranges)
    }
}

/// A WRITE USING TOKEN parameter list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteUsing {
    /// IMMED.
    pub immediate: bool,
    /// DEL_TKN: the token ends with the command.
    pub delete: bool,
    /// OFFSET INTO ROD, blocks.
    pub offset: u64,
    /// ROD TOKEN.
    pub token: [u8; TOKEN_LEN],
    /// Where its data go.
    pub ranges: Vec<Range>,
}

impl WriteUsing {
    /// Reads a list.
    ///
    /// # Errors
    /// If it is not as long as its header says, or its range descriptors are cut.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let head: [u8; WRITE_HEADER_LEN] = get(bytes, 0).ok_or(Malformed::Length)?;
        check_length(bytes)?;
        Ok(Self {
            immediate: head[2] & 1 != 0,
            delete: head[2] & 2 != 0,
            offset: get_u64(&head, 8).unwrap_or(0),
            token: get(&head, 16).ok_or(Malformed::Length)?,
            ranges: ranges(bytes, WRITE_HEADER_LEN)?,
        })
    }

    /// Writes a list; None if it does not fit its length fields.
    #[must_use]
    pub fn emit(&self) -> Option<Vec<u8>> {
        let mut bytes = Vec::from([0; WRITE_HEADER_LEN]);
        bytes[2] = u8::from(self.delete) << 1 | u8::from(self.immediate);
        put(&mut bytes, 8, self.offset.to_be_bytes());
        put(&mut bytes, 16, self.token);
        append(bytes, &self.ranges)
    }
}

/// The first two bytes count those that follow them.
fn check_length(bytes: &[u8]) -> Result<(), Malformed> {
    let announced = get_u16(bytes, 0).ok_or(Malformed::Length)?;
    if bytes.len() < usize::from(announced) + 2 { Err(Malformed::Length) } else { Ok(()) }
}

/// The range descriptors behind a header whose last two bytes are their length.
fn ranges(bytes: &[u8], header: usize) -> Result<Vec<Range>, Malformed> {
    let length = usize::from(get_u16(bytes, header - 2).ok_or(Malformed::Length)?);
    let announced = usize::from(get_u16(bytes, 0).ok_or(Malformed::Length)?) + 2;
    let at = u16::try_from(header - 2).unwrap_or(0);
    if !length.is_multiple_of(RANGE_LEN) || length == 0 || header + length > announced {
        return Err(Malformed::Field(at));
    }
    let list = bytes.get(header..header + length).ok_or(Malformed::Length)?;
    list.chunks_exact(RANGE_LEN)
        .map(|one| Some(Range { lba: get_u64(one, 0)?, blocks: get_u32(one, 8)? }))
        .collect::<Option<_>>()
        .ok_or(Malformed::Length)
}

fn append(mut bytes: Vec<u8>, ranges: &[Range]) -> Option<Vec<u8>> {
    let length = u16::try_from(ranges.len() * RANGE_LEN).ok()?;
    let at = bytes.len() - 2;
    put(&mut bytes, at, length.to_be_bytes());
    for range in ranges {
        bytes.extend_from_slice(&range.lba.to_be_bytes());
        bytes.extend_from_slice(&range.blocks.to_be_bytes());
        bytes.extend_from_slice(&[0; 4]);
    }
    let announced = u16::try_from(bytes.len() - 2).ok()?;
    put(&mut bytes, 0, announced.to_be_bytes());
    Some(bytes)
}

/// A ROD token (SPC-4 §5.16.6.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// ROD TYPE.
    pub rod_type: u32,
    /// COPY MANAGER ROD TOKEN IDENTIFIER.
    pub id: u64,
    /// CREATOR LOGICAL UNIT DESCRIPTOR.
    pub creator: Cscd,
    /// NUMBER OF BYTES REPRESENTED.
    pub bytes: u64,
    /// What nobody can guess.
    pub secret: [u8; SECRET_LEN],
}

impl Token {
    /// Writes the token.
    #[must_use]
    pub fn emit(&self) -> [u8; TOKEN_LEN] {
        let mut bytes = [0; TOKEN_LEN];
        put(&mut bytes, 0, self.rod_type.to_be_bytes());
        put(&mut bytes, 6, TOKEN_REST_LEN.to_be_bytes());
        put(&mut bytes, 8, self.id.to_be_bytes());
        put(&mut bytes, CREATOR_AT, self.creator.emit());
        put(&mut bytes, 48, u128::from(self.bytes).to_be_bytes());
        put(&mut bytes, 96, self.creator.block.to_be_bytes());
        put(&mut bytes, SECRET_AT, self.secret);
        bytes
    }

    /// Reads a token. The bytes are the initiator's: who gets them must compare them with those
    /// that were given out.
    ///
    /// # Errors
    /// If it has another length than tokens have, or no descriptor of a creator.
    pub fn parse(bytes: &[u8; TOKEN_LEN]) -> Result<Self, Malformed> {
        if get_u16(bytes, 6) != Some(TOKEN_REST_LEN) {
            return Err(Malformed::Length);
        }
        let creator = bytes.get(CREATOR_AT..).and_then(Cscd::parse).ok_or(Malformed::Field(16))?;
        Ok(Self {
            rod_type: type_of(bytes),
            id: get_u64(bytes, 8).unwrap_or(0),
            creator,
            bytes: get_u64(bytes, 56).unwrap_or(0),
            secret: get(bytes, SECRET_AT).unwrap_or([0; SECRET_LEN]),
        })
    }
}

/// ROD TYPE of a token.
#[must_use]
pub fn type_of(token: &[u8; TOKEN_LEN]) -> u32 {
    get_u32(token, 0).unwrap_or(0)
}

/// The well known token of zeros (SBC-4 §4.31).
#[must_use]
pub fn zero() -> [u8; TOKEN_LEN] {
    let mut bytes = [0; TOKEN_LEN];
    put(&mut bytes, 0, TYPE_ZERO.to_be_bytes());
    put(&mut bytes, 6, TOKEN_REST_LEN.to_be_bytes());
    bytes
}

/// Parameter data of RECEIVE ROD TOKEN INFORMATION (SPC-4 §6.28).
#[must_use]
pub fn emit_information(progress: &Progress<'_>, token: Option<&[u8; TOKEN_LEN]>) -> Vec<u8> {
    let mut bytes = progress.emit_lid4();
    let descriptor = if token.is_some() { 2 + TOKEN_LEN } else { 0 };
    bytes.extend_from_slice(&u32::try_from(descriptor).unwrap_or(0).to_be_bytes());
    if let Some(token) = token {
        bytes.extend_from_slice(&[0, 0]);
        bytes.extend_from_slice(token);
    }
    let length = u32::try_from(bytes.len() - 4).unwrap_or(0);
    put(&mut bytes, 0, length.to_be_bytes());
    bytes
}

/// The token in what RECEIVE ROD TOKEN INFORMATION gave, if there is one.
#[must_use]
pub fn in_information(bytes: &[u8]) -> Option<[u8; TOKEN_LEN]> {
    let at = 32 + usize::from(get_u8(bytes, 13)?);
    if usize::try_from(get_u32(bytes, at)?).ok()? < 2 + TOKEN_LEN {
        return None;
    }
    get(bytes, at + 6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scsi::copy::CopyStatus;
    use alloc::vec;
    use proptest::prelude::*;

    fn token() -> Token {
        Token {
            rod_type: TYPE_CHANGE_VULNERABLE,
            id: 0x0102_0304_0506_0708,
            creator: Cscd { device_type: 0, naa: vec![0x31, 2, 3, 4, 5, 6, 7, 8], block: 512 },
            bytes: 0x1000,
            secret: [0xa5; SECRET_LEN],
        }
    }

    #[test]
    fn token_vector() {
        let bytes = token().emit();
        assert_eq!(bytes[..12], [0, 0x80, 0, 1, 0, 0, 1, 0xf8, 1, 2, 3, 4]);
        assert_eq!(bytes[16..26], [0xe4, 0, 0, 0, 1, 3, 0, 8, 0x31, 2]);
        assert_eq!(bytes[60..64], [0, 0, 0x10, 0]);
        assert_eq!(bytes[96..100], [0, 0, 2, 0]);
        assert_eq!(Token::parse(&bytes), Ok(token()));
        let mut short = bytes;
        short[7] = 0xf7;
        assert_eq!(Token::parse(&short), Err(Malformed::Length));
        assert_eq!(Token::parse(&zero()), Err(Malformed::Field(16)));
        assert_eq!(type_of(&zero()), TYPE_ZERO);
    }

    #[test]
    fn populate_vector() {
        let ranges = vec![Range { lba: 0x0102, blocks: 3 }];
        let list = Populate { immediate: true, inactivity_s: 60, rod_type: TYPE_ANY, ranges };
        let bytes = list.emit().expect("small");
        assert_eq!(bytes[..8], [0, 30, 1, 0, 0, 0, 0, 60]);
        assert_eq!(bytes[14..28], [0, 16, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 3]);
        for cut in 0..bytes.len() {
            assert_eq!(Populate::parse(&bytes[..cut]), Err(Malformed::Length), "cut at {cut}");
        }
        for wrong in [0, 15, 32] {
            let mut bytes = bytes.clone();
            bytes[15] = wrong;
            assert_eq!(Populate::parse(&bytes), Err(Malformed::Field(14)));
        }
    }

    #[test]
    fn write_using_vector() {
        let list = WriteUsing {
            immediate: false,
            delete: true,
            offset: 7,
            token: token().emit(),
            ranges: vec![Range { lba: 9, blocks: 8 }],
        };
        let bytes = list.emit().expect("small");
        assert_eq!(bytes[..3], [0x02, 0x26, 2]);
        assert_eq!((bytes[15], bytes[16], bytes[17]), (7, 0, 0x80));
        assert_eq!(bytes[534..536], [0, 16]);
        assert_eq!(bytes.len(), 552);
        assert_eq!(WriteUsing::parse(&bytes), Ok(list));
    }

    #[test]
    fn information_carries_the_token() {
        let progress = Progress {
            service_action: 0x10,
            status: CopyStatus::Done,
            segments: 0,
            blocks: 8,
            delay_ms: 0,
            completion: 0,
            sense: &[],
        };
        let bytes = emit_information(&progress, Some(&token().emit()));
        assert_eq!(bytes[..6], [0, 0, 0x02, 0x22, 0x10, 1]);
        assert_eq!(bytes[32..38], [0, 0, 2, 2, 0, 0]);
        assert_eq!(in_information(&bytes), Some(token().emit()));
        assert_eq!(in_information(&emit_information(&progress, None)), None);
    }

    proptest! {
        #[test]
        fn round_trip(
            immediate: bool, delete: bool, inactivity_s: u32, rod_type: u32, offset: u64,
            list in proptest::collection::vec(any::<(u64, u32)>(), 1..20), fill: u8,
        ) {
            let ranges: Vec<_> = list.iter().map(|&(lba, blocks)| Range { lba, blocks }).collect();
            let populate = Populate { immediate, inactivity_s, rod_type, ranges: ranges.clone() };
            let bytes = populate.emit().expect("small");
            prop_assert_eq!(Populate::parse(&bytes), Ok(populate));
            let write = WriteUsing { immediate, delete, offset, token: [fill; TOKEN_LEN], ranges };
            let bytes = write.emit().expect("small");
            prop_assert_eq!(WriteUsing::parse(&bytes), Ok(write));
        }

        #[test]
        fn parse_is_total(bytes in proptest::collection::vec(any::<u8>(), 0..700), small: u8) {
            let mut bytes = bytes;
            let _ = (Populate::parse(&bytes), WriteUsing::parse(&bytes), in_information(&bytes));
            for at in [15, 535] {
                if bytes.len() > 536 {
                    bytes[..2].copy_from_slice(&[0, 255]);
                    bytes[at - 1..=at].copy_from_slice(&[0, small]);
                }
            }
            let _ = (Populate::parse(&bytes), WriteUsing::parse(&bytes));
            if let Some(token) = bytes.first_chunk() {
                let _ = Token::parse(token);
            }
        }
    }
}
