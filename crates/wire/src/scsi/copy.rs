// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Third-party copies: the parameter lists of EXTENDED COPY and what RECEIVE COPY RESULTS gives
//! (SPC-4 §6.4, §6.5, §6.17-§6.25).

use super::field::get;
use super::field::get_u8;
use super::field::get_u16;
use super::field::get_u32;
use super::field::get_u64;
use super::field::put;
use alloc::vec::Vec;

/// EXTENDED COPY(LID1), service action of THIRD-PARTY COPY OUT.
pub const EXTENDED_COPY_LID1: u16 = 0x00;
/// EXTENDED COPY(LID4).
pub const EXTENDED_COPY_LID4: u16 = 0x01;
/// POPULATE TOKEN.
pub const POPULATE_TOKEN: u16 = 0x10;
/// WRITE USING TOKEN.
pub const WRITE_USING_TOKEN: u16 = 0x11;
/// COPY OPERATION ABORT.
pub const COPY_OPERATION_ABORT: u16 = 0x1c;
/// RECEIVE COPY STATUS(LID1), service action of THIRD-PARTY COPY IN.
pub const COPY_STATUS_LID1: u16 = 0x00;
/// RECEIVE COPY DATA(LID1).
pub const COPY_DATA_LID1: u16 = 0x01;
/// RECEIVE COPY OPERATING PARAMETERS.
pub const OPERATING_PARAMETERS: u16 = 0x03;
/// RECEIVE COPY STATUS(LID4).
pub const COPY_STATUS_LID4: u16 = 0x05;
/// RECEIVE COPY DATA(LID4).
pub const COPY_DATA_LID4: u16 = 0x06;
/// RECEIVE ROD TOKEN INFORMATION.
pub const ROD_TOKEN_INFORMATION: u16 = 0x07;

/// Bytes of a LID1 parameter list before the descriptors.
pub const LID1_HEADER_LEN: usize = 16;
/// Bytes of a LID4 parameter list before the descriptors.
pub const LID4_HEADER_LEN: usize = 48;
/// Bytes of a CSCD descriptor.
pub const CSCD_LEN: usize = 32;
/// Bytes of a block to block segment descriptor.
pub const SEGMENT_LEN: usize = 28;
/// Identification descriptor CSCD descriptor.
pub const CSCD_IDENTIFICATION: u8 = 0xe4;
/// Bytes of a segment descriptor block to block with offset.
pub const OFFSET_SEGMENT_LEN: usize = 32;
/// Copy from block device to block device.
pub const SEGMENT_BLOCK_TO_BLOCK: u8 = 0x02;
/// Copy from block device to block device with offset.
pub const SEGMENT_WITH_OFFSET: u8 = 0x0a;
/// CSCD descriptor id of the unit that the command is for.
pub const CSCD_SELF: u16 = 0xffff;

/// PARAMETER LIST FORMAT of LID4.
const LID4_FORMAT: u8 = 0x01;
/// Designator: binary, of the unit, type NAA.
const NAA_HEAD: [u8; 2] = [0x01, 0x03];

/// LIST ID USAGE (SPC-4 table 139).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // the three that are not reserved
pub enum ListIdUsage {
    /// 00b: results are kept.
    Hold,
    /// 10b: results may be forgotten at once.
    Discard,
    /// 11b: the list has no identifier.
    None,
}

/// What is wrong with a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Malformed {
    /// Shorter than it says, or cut in a descriptor: PARAMETER LIST LENGTH ERROR.
    Length,
    /// The field that starts at this byte: INVALID FIELD IN PARAMETER LIST.
    Field(u16),
}

/// An EXTENDED COPY parameter list whose lengths agree with each other.
#[derive(Clone, Copy, Debug)]
pub struct List<'a> {
    /// LIST IDENTIFIER.
    pub id: u32,
    /// LIST ID USAGE.
    pub usage: ListIdUsage,
    /// IMMED of LID4.
    pub immediate: bool,
    /// G_SENSE of LID4: details of the end as sense data even where it is good.
    pub good_sense: bool,
    /// Bytes of inline data.
    pub inline_len: u32,
    /// CSCD descriptors.
    pub cscds: &'a [u8],
    /// Segment descriptors.
    pub segments: &'a [u8],
    /// Where the CSCD descriptors start in the list.
    pub cscds_at: usize,
}

impl<'a> List<'a> {
    /// Reads a LID1 list.
    ///
    /// # Errors
    /// If it is not as long as its header says, or LIST ID USAGE is reserved.
    pub fn lid1(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let head: [u8; LID1_HEADER_LEN] = get(bytes, 0).ok_or(Malformed::Length)?;
        let field = |at| get_u32(&head, at).unwrap_or(0);
        let cscds = usize::from(get_u16(&head, 2).unwrap_or(0));
        let segments = usize::try_from(field(8)).map_err(|_| Malformed::Length)?;
        let (cscds, segments) = split(bytes, LID1_HEADER_LEN, cscds, segments, field(12))?;
        Ok(Self {
            id: u32::from(head[0]),
            usage: usage(head[1])?,
            immediate: false,
            good_sense: false,
            inline_len: field(12),
            cscds,
            segments,
            cscds_at: LID1_HEADER_LEN,
        })
    }

    /// Reads a LID4 list.
    ///
    /// # Errors
    /// If it is not as long as its header says, or the header has another format.
    pub fn lid4(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let head: [u8; LID4_HEADER_LEN] = get(bytes, 0).ok_or(Malformed::Length)?;
        let field = |at| usize::from(get_u16(&head, at).unwrap_or(0));
        match (head[0], field(2), head[16]) {
            (LID4_FORMAT, 0x20, 0xff) => {}
            (LID4_FORMAT, 0x20, _) => return Err(Malformed::Field(16)),
            (LID4_FORMAT, _, _) => return Err(Malformed::Field(2)),
            _ => return Err(Malformed::Field(0)),
        }
        let inline_len = u32::from(get_u16(&head, 46).unwrap_or(0));
        let (cscds, segments) = split(bytes, LID4_HEADER_LEN, field(42), field(44), inline_len)?;
        Ok(Self {
            id: get_u32(&head, 20).unwrap_or(0),
            usage: usage(head[1])?,
            immediate: head[15] & 2 != 0,
            good_sense: head[15] & 1 != 0,
            inline_len,
            cscds,
            segments,
            cscds_at: LID4_HEADER_LEN,
        })
    }

    /// Where the segment descriptors start in the list.
    #[must_use]
    pub const fn segments_at(&self) -> usize {
        self.cscds_at + self.cscds.len()
    }
}

fn usage(byte: u8) -> Result<ListIdUsage, Malformed> {
    match byte >> 3 & 3 {
        0 => Ok(ListIdUsage::Hold),
        2 => Ok(ListIdUsage::Discard),
        3 => Ok(ListIdUsage::None),
        _ => Err(Malformed::Field(1)),
    }
}

/// The two lists of descriptors, if they and the inline data are there.
fn split(
    bytes: &[u8],
    header: usize,
    cscds: usize,
    segments: usize,
    inline_len: u32,
) -> Result<(&[u8], &[u8]), Malformed> {
    let inline_len = usize::try_from(inline_len).map_err(|_| Malformed::Length)?;
    let rest = bytes.get(header..).ok_or(Malformed::Length)?;
    let (cscds, rest) = rest.split_at_checked(cscds).ok_or(Malformed::Length)?;
    let (segments, rest) = rest.split_at_checked(segments).ok_or(Malformed::Length)?;
    if rest.len() < inline_len || !cscds.len().is_multiple_of(CSCD_LEN) {
        return Err(Malformed::Length);
    }
    Ok((cscds, segments))
}

/// A copy source or copy destination by its designator (SPC-4 §6.4.5.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cscd {
    /// PERIPHERAL DEVICE TYPE.
    pub device_type: u8,
    /// The designator if it is an NAA of the unit, else empty.
    pub naa: Vec<u8>,
    /// DISK BLOCK LENGTH, bytes.
    pub block: u32,
}

impl Cscd {
    /// Reads a descriptor of type [`CSCD_IDENTIFICATION`]; None if it is of another type or short.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: [u8; CSCD_LEN] = get(bytes, 0)?;
        if bytes[0] != CSCD_IDENTIFICATION {
            return None;
        }
        let is_naa = [bytes[4] & 0x0f, bytes[5] & 0x3f] == NAA_HEAD;
        let length = if is_naa { usize::from(bytes[7]) } else { 0 };
        Some(Self {
            device_type: bytes[1] & 0x1f,
            naa: bytes.get(8..28)?.get(..length).unwrap_or_default().to_vec(),
            block: get_u32(&bytes, 28)? & 0xff_ffff,
        })
    }

    /// Writes the descriptor of a disk; a longer NAA than 20 bytes is cut.
    #[must_use]
    pub fn emit(&self) -> [u8; CSCD_LEN] {
        let mut bytes = [0; CSCD_LEN];
        bytes[0] = CSCD_IDENTIFICATION;
        bytes[1] = self.device_type & 0x1f;
        [bytes[4], bytes[5]] = NAA_HEAD;
        let naa = self.naa.get(..20).unwrap_or(&self.naa);
        bytes[7] = u8::try_from(naa.len()).unwrap_or(0);
        for (to, from) in bytes.iter_mut().skip(8).zip(naa) {
            *to = *from;
        }
        put(&mut bytes, 28, (self.block & 0xff_ffff).to_be_bytes());
        bytes
    }
}

/// A block to block segment descriptor (SPC-4 §6.4.6.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// SOURCE CSCD DESCRIPTOR ID.
    pub source: u16,
    /// DESTINATION CSCD DESCRIPTOR ID.
    pub destination: u16,
    /// DC: `blocks` counts blocks of the destination.
    pub in_destination_blocks: bool,
    /// BLOCK DEVICE NUMBER OF BLOCKS.
    pub blocks: u16,
    /// SOURCE BLOCK DEVICE LOGICAL BLOCK ADDRESS.
    pub source_lba: u64,
    /// DESTINATION BLOCK DEVICE LOGICAL BLOCK ADDRESS.
    pub destination_lba: u64,
}

/// A segment descriptor block to block with offset (SPC-4 §6.4.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetSegment {
    /// SOURCE CSCD DESCRIPTOR ID.
    pub source: u16,
    /// DESTINATION CSCD DESCRIPTOR ID.
    pub destination: u16,
    /// NUMBER OF BYTES.
    pub bytes: u32,
    /// SOURCE BLOCK DEVICE LOGICAL BLOCK ADDRESS.
    pub source_lba: u64,
    /// DESTINATION BLOCK DEVICE LOGICAL BLOCK ADDRESS.
    pub destination_lba: u64,
    /// SOURCE BLOCK DEVICE BYTE OFFSET.
    pub source_offset: u16,
    /// DESTINATION BLOCK DEVICE BYTE OFFSET.
    pub destination_offset: u16,
}

/// What a segment descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // known, unknown, cut
pub enum SegmentKind {
    /// Block to block.
    BlockToBlock(Segment),
    /// Block to block with offset.
    WithOffset(OffsetSegment),
    /// Of another type, or with a length that its type does not have.
    Unsupported,
    /// The list ends within it.
    Cut,
}

impl Segment {
    /// Writes the descriptor.
    #[must_use]
    pub fn emit(&self) -> [u8; SEGMENT_LEN] {
        let mut bytes = [0; SEGMENT_LEN];
        bytes[0] = SEGMENT_BLOCK_TO_BLOCK;
        bytes[1] = u8::from(self.in_destination_blocks) << 1;
        put(&mut bytes, 2, 0x18_u16.to_be_bytes());
        put(&mut bytes, 4, self.source.to_be_bytes());
        put(&mut bytes, 6, self.destination.to_be_bytes());
        put(&mut bytes, 10, self.blocks.to_be_bytes());
        put(&mut bytes, 12, self.source_lba.to_be_bytes());
        put(&mut bytes, 20, self.destination_lba.to_be_bytes());
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            source: get_u16(bytes, 4)?,
            destination: get_u16(bytes, 6)?,
            in_destination_blocks: get_u8(bytes, 1)? & 2 != 0,
            blocks: get_u16(bytes, 10)?,
            source_lba: get_u64(bytes, 12)?,
            destination_lba: get_u64(bytes, 20)?,
        })
    }
}

impl OffsetSegment {
    /// Writes the descriptor.
    #[must_use]
    pub fn emit(&self) -> [u8; OFFSET_SEGMENT_LEN] {
        let mut bytes = [0; OFFSET_SEGMENT_LEN];
        bytes[0] = SEGMENT_WITH_OFFSET;
        put(&mut bytes, 2, 0x1c_u16.to_be_bytes());
        put(&mut bytes, 4, self.source.to_be_bytes());
        put(&mut bytes, 6, self.destination.to_be_bytes());
        put(&mut bytes, 8, self.bytes.to_be_bytes());
        put(&mut bytes, 12, self.source_lba.to_be_bytes());
        put(&mut bytes, 20, self.destination_lba.to_be_bytes());
        put(&mut bytes, 28, self.source_offset.to_be_bytes());
        put(&mut bytes, 30, self.destination_offset.to_be_bytes());
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            source: get_u16(bytes, 4)?,
            destination: get_u16(bytes, 6)?,
            bytes: get_u32(bytes, 8)?,
            source_lba: get_u64(bytes, 12)?,
            destination_lba: get_u64(bytes, 20)?,
            source_offset: get_u16(bytes, 28)?,
            destination_offset: get_u16(bytes, 30)?,
        })
    }
}

impl SegmentKind {
    fn parse(bytes: &[u8]) -> Self {
        let kind = match (get_u8(bytes, 0), bytes.len()) {
            (Some(SEGMENT_BLOCK_TO_BLOCK), SEGMENT_LEN) => {
                Segment::parse(bytes).map(Self::BlockToBlock)
            }
            (Some(SEGMENT_WITH_OFFSET), OFFSET_SEGMENT_LEN) => {
                OffsetSegment::parse(bytes).map(Self::WithOffset)
            }
            _ => None,
        };
        kind.unwrap_or(Self::Unsupported)
    }
}

/// The segment descriptors of a list, with the offset of each in it.
pub fn segments(list: &[u8]) -> impl Iterator<Item = (usize, SegmentKind)> {
    let mut at = 0;
    core::iter::from_fn(move || {
        let rest = list.get(at..).filter(|rest| !rest.is_empty())?;
        let start = at;
        let length = get_u16(rest, 2).map(|length| 4 + usize::from(length));
        let Some(one) = length.and_then(|length| rest.get(..length)) else {
            at = list.len();
            return Some((start, SegmentKind::Cut));
        };
        at += one.len();
        Some((start, SegmentKind::parse(one)))
    })
}

/// A LID1 parameter list; None if it does not fit its length fields.
#[must_use]
pub fn emit_lid1(
    id: u8,
    usage: ListIdUsage,
    cscds: &[Cscd],
    segments: &[Segment],
) -> Option<Vec<u8>> {
    let usage = match usage {
        ListIdUsage::Hold => 0,
        ListIdUsage::Discard => 2,
        ListIdUsage::None => 3,
    };
    let mut bytes = Vec::from([0; LID1_HEADER_LEN]);
    bytes[0] = id;
    bytes[1] = usage << 3;
    let cscds_len = u16::try_from(cscds.len() * CSCD_LEN).ok()?;
    let segments_len = u32::try_from(segments.len() * SEGMENT_LEN).ok()?;
    put(&mut bytes, 2, cscds_len.to_be_bytes());
    put(&mut bytes, 8, segments_len.to_be_bytes());
    append(&mut bytes, cscds, segments);
    Some(bytes)
}

/// A LID4 parameter list; None if it does not fit its length fields.
#[must_use]
pub fn emit_lid4(
    id: u32,
    immediate: bool,
    cscds: &[Cscd],
    segments: &[Segment],
) -> Option<Vec<u8>> {
    let mut bytes = Vec::from([0; LID4_HEADER_LEN]);
    bytes[0] = LID4_FORMAT;
    bytes[3] = 0x20;
    bytes[15] = u8::from(immediate) << 1;
    bytes[16] = 0xff;
    put(&mut bytes, 20, id.to_be_bytes());
    put(&mut bytes, 42, u16::try_from(cscds.len() * CSCD_LEN).ok()?.to_be_bytes());
    put(&mut bytes, 44, u16::try_from(segments.len() * SEGMENT_LEN).ok()?.to_be_bytes());
    append(&mut bytes, cscds, segments);
    Some(bytes)
}

fn append(bytes: &mut Vec<u8>, cscds: &[Cscd], segments: &[Segment]) {
    for cscd in cscds {
        bytes.extend_from_slice(&cscd.emit());
    }
    for segment in segments {
        bytes.extend_from_slice(&segment.emit());
    }
}

/// Parameter data of RECEIVE COPY OPERATING PARAMETERS (SPC-4 §6.20).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operating {
    /// MAXIMUM CSCD DESCRIPTOR COUNT.
    pub cscds_max: u16,
    /// MAXIMUM SEGMENT DESCRIPTOR COUNT.
    pub segments_max: u16,
    /// MAXIMUM DESCRIPTOR LIST LENGTH, bytes.
    pub descriptors_len_max: u32,
    /// MAXIMUM SEGMENT LENGTH, bytes.
    pub segment_max: u32,
    /// TOTAL CONCURRENT COPIES.
    pub copies_total: u16,
    /// MAXIMUM CONCURRENT COPIES.
    pub copies_max: u8,
    /// DATA SEGMENT GRANULARITY, as a power of two.
    pub granularity: u8,
}

impl Operating {
    /// Writes the data; the descriptors are those of this file, and SNLID is set.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let mut bytes = Vec::from([0; 44]);
        bytes[4] = 1;
        put(&mut bytes, 8, self.cscds_max.to_be_bytes());
        put(&mut bytes, 10, self.segments_max.to_be_bytes());
        put(&mut bytes, 12, self.descriptors_len_max.to_be_bytes());
        put(&mut bytes, 16, self.segment_max.to_be_bytes());
        put(&mut bytes, 34, self.copies_total.to_be_bytes());
        bytes[36] = self.copies_max;
        bytes[37] = self.granularity;
        bytes[43] = 3;
        bytes.extend_from_slice(&[
            SEGMENT_BLOCK_TO_BLOCK,
            SEGMENT_WITH_OFFSET,
            CSCD_IDENTIFICATION,
        ]);
        let length = u32::try_from(bytes.len() - 4).unwrap_or(0);
        put(&mut bytes, 0, length.to_be_bytes());
        bytes
    }
}

/// How far a copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[expect(clippy::exhaustive_enums)] // those that are built
pub enum CopyStatus {
    /// Completed without errors.
    Done = 0x01,
    /// Completed with errors.
    Failed = 0x02,
    /// In progress within its command.
    Foreground = 0x10,
    /// In progress after its command.
    Background = 0x11,
    /// Terminated, by COPY OPERATION ABORT for example.
    Terminated = 0x60,
}

/// What is known of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress<'a> {
    /// RESPONSE TO SERVICE ACTION: the one that began it.
    pub service_action: u16,
    /// How far it is.
    pub status: CopyStatus,
    /// SEGMENTS PROCESSED.
    pub segments: u16,
    /// Blocks that were written.
    pub blocks: u64,
    /// ESTIMATED STATUS UPDATE DELAY, milliseconds, while it is under way.
    pub delay_ms: u32,
    /// Status of the command that began it.
    pub completion: u8,
    /// Sense data of its end, if it failed.
    pub sense: &'a [u8],
}

/// TRANSFER COUNT UNITS: logical blocks.
const UNITS_BLOCKS: u8 = 0xf1;
/// Bytes of the data of LID4 status before the sense data.
const PROGRESS_LEN: usize = 32;

impl Progress<'_> {
    /// Parameter data of RECEIVE COPY STATUS(LID1) (SPC-4 §6.24).
    #[must_use]
    pub fn emit_lid1(&self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[3] = 8;
        bytes[4] = match self.status {
            CopyStatus::Foreground | CopyStatus::Background => 0,
            CopyStatus::Done => 1,
            CopyStatus::Failed | CopyStatus::Terminated => 2,
        };
        put(&mut bytes, 5, self.segments.to_be_bytes());
        bytes[7] = UNITS_BLOCKS;
        put(&mut bytes, 8, u32::try_from(self.blocks).unwrap_or(u32::MAX).to_be_bytes());
        bytes
    }

    /// Parameter data of RECEIVE COPY STATUS(LID4) (SPC-4 §6.25); those of RECEIVE ROD TOKEN
    /// INFORMATION begin the same way.
    #[must_use]
    pub fn emit_lid4(&self) -> Vec<u8> {
        let sense = self.sense.get(..usize::from(u8::MAX)).unwrap_or(self.sense);
        let mut bytes = Vec::from([0; PROGRESS_LEN]);
        bytes[4] = u8::try_from(self.service_action & 0x1f).unwrap_or(0);
        bytes[5] = self.status as u8;
        let delay = match self.status {
            CopyStatus::Foreground | CopyStatus::Background => self.delay_ms,
            _ => u32::MAX - 1,
        };
        put(&mut bytes, 8, delay.to_be_bytes());
        bytes[12] = self.completion;
        bytes[13] = u8::try_from(sense.len()).unwrap_or(0);
        bytes[14] = bytes[13];
        bytes[15] = UNITS_BLOCKS;
        put(&mut bytes, 16, self.blocks.to_be_bytes());
        put(&mut bytes, 24, self.segments.to_be_bytes());
        bytes.extend_from_slice(sense);
        let length = u32::try_from(bytes.len() - 4).unwrap_or(0);
        put(&mut bytes, 0, length.to_be_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests;
