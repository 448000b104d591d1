// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The frame: 48 bytes, as long as an iSCSI header, and the data of a block behind some.

use std::ops::RangeInclusive;

/// Bytes of a frame without data: those of a basic header segment of iSCSI.
pub(crate) const FRAME: usize = 48;

/// Bytes that the server holds.
pub(crate) const DISK: u64 = 1 << 30;

/// Bytes of a block.
pub(crate) const BLOCKS: RangeInclusive<u32> = 512..=16 << 20;

/// A request; its answer is the same frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    /// The data goes to the server.
    pub(crate) write: bool,
    /// Which of the requests of the connection.
    pub(crate) slot: u32,
    /// Bytes of data.
    pub(crate) length: u32,
    /// Where on the disk.
    pub(crate) offset: u64,
}

impl Frame {
    pub(crate) fn emit(self) -> [u8; FRAME] {
        let mut bytes = [0; FRAME];
        let fields = [
            u64::from(self.write).to_be_bytes(),
            u64::from(self.slot).to_be_bytes(),
            u64::from(self.length).to_be_bytes(),
            self.offset.to_be_bytes(),
        ];
        bytes.iter_mut().zip(fields.as_flattened()).for_each(|(to, from)| *to = *from);
        bytes
    }

    /// None if no such frame was emitted.
    pub(crate) fn parse(bytes: &[u8; FRAME]) -> Option<Self> {
        let (fields, _) = bytes.as_chunks::<8>();
        let [write, slot, length, offset, ..] = fields else { return None };
        Some(Self {
            write: u64::from_be_bytes(*write) != 0,
            slot: u32::try_from(u64::from_be_bytes(*slot)).ok()?,
            length: u32::try_from(u64::from_be_bytes(*length)).ok()?,
            offset: u64::from_be_bytes(*offset),
        })
    }
}

/// Takes frames and their data from a stream, however it is cut.
#[derive(Debug)]
pub(crate) struct Reader {
    bytes: [u8; FRAME],
    have: usize,
    /// The frame whose data is coming, and how much of it has come.
    under_way: Option<(Frame, usize)>,
}

/// What a stream has given.
#[derive(Debug)]
pub(crate) enum Piece<'a> {
    /// A frame; `data` bytes follow, in pieces.
    Frame(Frame),
    /// Data of the frame, from byte `at` on.
    Data { frame: Frame, at: usize, bytes: &'a [u8], last: bool },
}

impl Reader {
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; FRAME], have: 0, under_way: None }
    }

    /// The next piece of `rest`, which is cut by it; None once there is none. `has_data`: whether
    /// data follows a frame.
    pub(crate) fn next<'a>(
        &mut self,
        rest: &mut &'a [u8],
        has_data: impl Fn(&Frame) -> bool,
    ) -> Option<Piece<'a>> {
        if let Some((frame, at)) = self.under_way {
            if rest.is_empty() {
                return None;
            }
            let bytes = cut(rest, frame.length as usize - at);
            let now = at + bytes.len();
            let last = now == frame.length as usize;
            self.under_way = (!last).then_some((frame, now));
            return Some(Piece::Data { frame, at, bytes, last });
        }
        let bytes = cut(rest, FRAME - self.have);
        let place = self.bytes.iter_mut().skip(self.have);
        place.zip(bytes).for_each(|(to, from)| *to = *from);
        self.have += bytes.len();
        if self.have < FRAME {
            return None;
        }
        self.have = 0;
        let frame = Frame::parse(&self.bytes)?;
        if has_data(&frame) {
            self.under_way = Some((frame, 0));
        }
        Some(Piece::Frame(frame))
    }
}

fn cut<'a>(rest: &mut &'a [u8], most: usize) -> &'a [u8] {
    let (head, tail) = rest.split_at(most.min(rest.len()));
    *rest = tail;
    head
}
