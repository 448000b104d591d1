// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What becomes of the answers of members: one answer of the stripe.

use buf::Buf;
use medium::stripe::Layout;
use wire::iscsi::Cdb;
use wire::scsi::capacity::Capacity;
use wire::scsi::cdb::CdbView;
use wire::scsi::status;
use wire::scsi::status::Descriptor;

use super::volume::Volume;
use crate::Error;
use crate::Kind;
use crate::limits;
use crate::modes::Mode;
use crate::scsi;

/// How the answers to the commands of a request are gathered.
#[derive(Debug)]
pub(super) enum Gather {
    /// There is one, and it is the answer.
    Sole(Option<Buf>),
    /// All have the same data for it, or none has.
    All,
    /// All have brought to stable storage what they have.
    Flush,
    /// Their data is put in order: of each chunk, where chunks are long ([`is_by_chunk`]), else of
    /// each member.
    Read(Buf, Extent),
    /// Their sizes are that of the stripe. The buffer is for the answer.
    Capacity(Vec<Option<Capacity>>, Form, Buf),
    /// What they say of their caches is said of that of the stripe; None: nothing new.
    Modes(Vec<Option<Mode>>, Cdb, Buf),
    /// What they say of their blocks is said of those of the stripe.
    Status(Vec<Vec<Descriptor>>, Extent, Buf),
}

/// A range of the stripe, bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub(super) offset: u64,
    pub(super) length: u64,
}

/// READ CAPACITY (16) and (10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Long,
    Short,
}

impl Gather {
    /// Takes what a member has answered.
    pub(super) fn take(
        &mut self,
        layout: Layout,
        (part, member): (usize, usize),
        data: Option<Buf>,
    ) -> Result<(), Error> {
        let bytes = data.as_deref().unwrap_or_default();
        match self {
            Self::Sole(answer) => *answer = data,
            Self::All | Self::Flush => {}
            Self::Read(buf, extent) if is_by_chunk(layout) => {
                put_chunk(buf, *extent, layout, part, bytes)?;
            }
            Self::Read(buf, extent) => put_in_order(buf, *extent, layout, member, bytes)?,
            Self::Capacity(told, ..) => {
                let capacity = Capacity::parse_16(bytes).or_else(|| {
                    let (last, block) = Capacity::parse_10(bytes)?;
                    Some(scsi::capacity_of_10(last, block))
                });
                if let Some(place) = told.get_mut(member) {
                    *place = capacity;
                }
            }
            Self::Modes(told, ..) => {
                if let Some(place) = told.get_mut(member) {
                    *place = Some(Mode::of(bytes));
                }
            }
            Self::Status(told, ..) => {
                if let Some(place) = told.get_mut(member) {
                    *place = status::parse(bytes).unwrap_or_default();
                }
            }
        }
        Ok(())
    }

    /// The answer of the stripe, when all have answered well. `volume` is what it is like, unless
    /// it ends.
    pub(super) fn answer(self, volume: Option<&mut Volume>) -> Result<Option<Buf>, Error> {
        let volume = || volume.ok_or_else(|| Error::new(Kind::Closed));
        Ok(match self {
            Self::Sole(data) => data,
            Self::All | Self::Flush => None,
            Self::Read(buf, _) => Some(buf),
            Self::Capacity(told, form, buf) => {
                let told: Option<Vec<Capacity>> = told.into_iter().collect();
                let told = told.ok_or_else(|| Error::new(Kind::Malformed("capacity")))?;
                let capacity = volume()?.learn_capacities(&told)?;
                let bytes = match form {
                    Form::Long => capacity.emit_16().to_vec(),
                    Form::Short => capacity.emit_10().to_vec(),
                };
                Some(filled(buf, &bytes))
            }
            Self::Modes(told, cdb, buf) => {
                let bytes = volume()?.learn_modes(&told, &CdbView::new(&cdb))?;
                Some(filled(buf, &bytes))
            }
            Self::Status(told, extent, buf) => {
                let most = buf.len().saturating_sub(status::HEADER_LEN) / status::DESCRIPTOR_LEN;
                let list = status::emit(&statuses(volume()?, &told, extent, most));
                Some(filled(buf, &list))
            }
        })
    }
}

/// Whether a read has a command for each chunk, and not for each member: a piece of this length is
/// copied while it is in the cache of the processor, at less than what its command costs.
pub(super) fn is_by_chunk(layout: Layout) -> bool {
    layout.chunk() >= limits::CHUNK_COMMAND_MIN
}

/// The bytes of a piece of `extent`, by its number, go to where they belong in `buf`.
fn put_chunk(
    buf: &mut Buf,
    extent: Extent,
    layout: Layout,
    part: usize,
    bytes: &[u8],
) -> Result<(), Error> {
    let first = layout.first(extent.offset, extent.length).length;
    let from = match part.checked_sub(1) {
        None => 0,
        Some(before) => first + before as u64 * layout.chunk(),
    };
    let left = extent.length.saturating_sub(from);
    expect_all(bytes, if part == 0 { first } else { left.min(layout.chunk()) })?;
    let from = usize::try_from(from).unwrap_or(usize::MAX);
    let place = buf.get_mut(from..).and_then(|rest| rest.get_mut(..bytes.len()));
    if let Some(place) = place {
        place.copy_from_slice(bytes);
    }
    Ok(())
}

fn expect_all(bytes: &[u8], length: u64) -> Result<(), Error> {
    let number = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    let (received, expected) = (number(bytes.len() as u64), number(length));
    match received == expected {
        true => Ok(()),
        false => Err(Error::new(Kind::Short { received, expected })),
    }
}

/// The bytes that a member has of `extent` go to where they belong in `buf`.
fn put_in_order(
    buf: &mut Buf,
    extent: Extent,
    layout: Layout,
    member: usize,
    bytes: &[u8],
) -> Result<(), Error> {
    let Some(share) = layout.share(member, extent.offset, extent.length) else { return Ok(()) };
    expect_all(bytes, share.length)?;
    let (mut from, mut rest) = (bytes, &mut buf[..]);
    for piece in layout.pieces(extent.offset, extent.length) {
        let length = usize::try_from(piece.length).unwrap_or(usize::MAX);
        let (here, after) = rest.split_at_mut(length.min(rest.len()));
        if piece.member == member {
            let (own, others) = from.split_at(here.len().min(from.len()));
            here.copy_from_slice(own);
            from = others;
        }
        rest = after;
    }
    Ok(())
}

/// What is said of the blocks of the stripe from the start of `extent` on, as far as all members
/// tell.
fn statuses(
    volume: &Volume,
    told: &[Vec<Descriptor>],
    extent: Extent,
    most: usize,
) -> Vec<Descriptor> {
    let block = u64::from(volume.geometry.block);
    let mut list: Vec<Descriptor> = Vec::new();
    let mut lba = extent.offset / block;
    for piece in volume.layout.pieces(extent.offset, extent.length).take(STATUS_PIECES_MAX) {
        let (mut at, end) = (piece.offset / block, (piece.offset + piece.length) / block);
        while at < end {
            let lists = told.get(piece.member).into_iter().flatten();
            let behind = |one: &Descriptor| one.lba.saturating_add(one.blocks.into());
            let mut found = lists.filter(|one| one.lba <= at && at < behind(one));
            let Some(found) = found.next() else { return list };
            let blocks = u32::try_from(behind(found).min(end) - at).unwrap_or(u32::MAX);
            let (provisioning, is_last) = (found.provisioning, list.len() >= most);
            match list.last_mut().filter(|last| last.provisioning == provisioning) {
                Some(last) if last.blocks.checked_add(blocks).is_some() => last.blocks += blocks,
                _ if is_last => return list,
                _ => list.push(Descriptor { lba, blocks, provisioning }),
            }
            at += u64::from(blocks);
            lba += u64::from(blocks);
        }
    }
    list
}

/// `buf` with `bytes` in it, or as many as there is room for.
pub(super) fn filled(mut buf: Buf, bytes: &[u8]) -> Buf {
    let length = buf.len().min(bytes.len());
    buf.truncate(length);
    buf.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    buf
}

/// Most chunks that one such answer is about: little work, and much of a disk.
const STATUS_PIECES_MAX: usize = 16_384;
