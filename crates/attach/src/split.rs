// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a request for bytes is to a disk of blocks. No I/O.

use std::ops::Range;

use initiator::Geometry;
use initiator::Kind;
use initiator::SenseKey;
use initiator::StripeError;
use initiator::scsi::lba_status::Descriptor;
use initiator::scsi::lba_status::Provisioning;
use nbd::Command;
use nbd::Errno;
use nbd::Extent;
use nbd::Request;

use crate::limits;

/// A piece of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Whole blocks, of which `lead` bytes at the start are not wanted.
    Read { blocks: Range<u64>, lead: usize },
    /// The bytes of the request, within these blocks.
    Write { blocks: Range<u64>, lead: usize },
    /// Zeroes within these blocks, `bytes` of them behind `lead`.
    ZeroBytes { blocks: Range<u64>, lead: usize, bytes: usize },
    /// Zeroes over whole blocks.
    Zero { blocks: Range<u64> },
    /// Whole blocks are of no interest any more.
    Discard { blocks: Range<u64> },
    /// All that was written.
    Flush,
    /// Whether blocks from this one on have space.
    Status { first: u64 },
}

/// What a request is made of: three parts at most, none if there is nothing to do.
///
/// # Errors
/// It cannot be carried out.
pub(crate) fn parts(request: &Request, geometry: &Geometry) -> Result<Vec<Part>, Errno> {
    let changes =
        matches!(request.command, Command::Write | Command::Trim | Command::WriteZeroes { .. });
    if changes && geometry.read_only {
        return Err(Errno::Permission);
    }
    let bytes = request.offset..request.offset.saturating_add(request.length.into());
    let asks = matches!(request.command, Command::BlockStatus { .. });
    let has_range = changes || asks || request.command == Command::Read;
    if has_range && bytes.end > geometry.bytes() {
        let is_write = matches!(request.command, Command::Write | Command::WriteZeroes { .. });
        return Err(if is_write { Errno::NoSpace } else { Errno::Invalid });
    }
    if has_range && bytes.is_empty() {
        // An answer has one extent at least, and none is empty.
        return if asks { Err(Errno::Invalid) } else { Ok(Vec::new()) };
    }
    let block = u64::from(geometry.block.max(1));
    let outer = floor(bytes.start, block)..ceil(bytes.end, block);
    let lead = length(outer.start..bytes.start);
    Ok(match request.command {
        Command::Read if request.length > limits::REQUEST_BYTES_MAX => {
            return Err(Errno::Invalid);
        }
        Command::Read => vec![Part::Read { blocks: outer, lead }],
        Command::Write => vec![Part::Write { blocks: outer, lead }],
        Command::Flush => vec![Part::Flush],
        Command::BlockStatus { .. } => vec![Part::Status { first: outer.start / block }],
        Command::Trim => {
            let inner = ceil(bytes.start, block)..floor(bytes.end, block);
            if inner.is_empty() || geometry.unmap_max == 0 {
                return Ok(Vec::new());
            }
            vec![Part::Discard { blocks: inner }]
        }
        Command::WriteZeroes { fast: true, .. } if geometry.same_max == 0 => {
            return Err(Errno::NotSupported);
        }
        Command::WriteZeroes { .. } => zeroes(&bytes, outer, block),
        _ => return Err(Errno::Invalid),
    })
}

/// Whole blocks in the middle, and what is left of one at each end.
fn zeroes(bytes: &Range<u64>, outer: Range<u64>, block: u64) -> Vec<Part> {
    let inner = ceil(bytes.start, block)..floor(bytes.end, block);
    let within = |blocks: Range<u64>| {
        let here = bytes.start.max(blocks.start)..bytes.end.min(blocks.end);
        let lead = length(blocks.start..here.start);
        Part::ZeroBytes { blocks, lead, bytes: length(here) }
    };
    if inner.is_empty() {
        return vec![within(outer)];
    }
    let mut parts = Vec::new();
    if outer.start < inner.start {
        parts.push(within(outer.start..inner.start));
    }
    if inner.end < outer.end {
        parts.push(within(inner.end..outer.end));
    }
    parts.push(Part::Zero { blocks: inner });
    parts
}

fn floor(at: u64, block: u64) -> u64 {
    at - at % block
}

/// Sizes of disks are whole blocks, so that no range within one ends where this cannot be said.
fn ceil(at: u64, block: u64) -> u64 {
    at.checked_next_multiple_of(block).unwrap_or(u64::MAX)
}

/// As a number of bytes in memory; ranges that have data are 32 MiB and two blocks at most.
pub(crate) fn length(range: Range<u64>) -> usize {
    usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX)
}

/// What a client is told of the space of a range: of what the unit says no more than was asked for.
/// A unit that says nothing useful has space everywhere.
pub(crate) fn extents(request: &Request, geometry: &Geometry, told: &[Descriptor]) -> Vec<Extent> {
    let block = u64::from(geometry.block.max(1));
    let end = request.offset.saturating_add(request.length.into());
    let mut at = request.offset;
    let mut extents: Vec<Extent> = Vec::new();
    for descriptor in told {
        let start = descriptor.lba.saturating_mul(block);
        let behind = start.saturating_add(u64::from(descriptor.blocks) * block).min(end);
        // What leaves a gap, or goes back, is no answer.
        if start > at || behind <= at || extents.len() >= limits::EXTENTS_MAX {
            break;
        }
        let hole = descriptor.provisioning == Provisioning::Deallocated;
        let zero = descriptor.provisioning != Provisioning::Mapped && geometry.unmap_zeros;
        let length = u32::try_from(behind - at).unwrap_or(u32::MAX);
        match extents.last_mut() {
            Some(last) if (last.hole, last.zero) == (hole, zero) => last.length += length,
            _ => extents.push(Extent { length, hole, zero }),
        }
        at = behind;
    }
    if extents.is_empty() {
        extents.push(Extent { length: request.length, hole: false, zero: false });
    }
    if let Command::BlockStatus { one: true } = request.command {
        extents.truncate(1);
    }
    extents
}

/// What a client is told of an operation that has failed.
pub(crate) fn errno(kind: &Kind, is_write: bool) -> Errno {
    match kind {
        Kind::Range { .. } if is_write => Errno::NoSpace,
        Kind::Range { .. } | Kind::Unaligned(_) => Errno::Invalid,
        Kind::Status { sense: Some(sense), .. } if sense.key == SenseKey::DataProtect => {
            // SPACE ALLOCATION FAILED WRITE PROTECT: a thin disk has no room.
            if (sense.asc, sense.ascq) == (0x27, 7) { Errno::NoSpace } else { Errno::Permission }
        }
        Kind::Stripe(StripeError::ReadOnly { .. }) => Errno::Permission,
        Kind::Full => Errno::NoMemory,
        _ => Errno::InputOutput,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry() -> Geometry {
        Geometry {
            block: 512,
            blocks: 100,
            transfer_max: 64,
            unmap_max: 64,
            unmap_granularity: 0,
            unmap_alignment: 0,
            same_max: 64,
            compare_max: 0,
            unmap_zeros: true,
            physical: 512,
            read_only: false,
            volatile_cache: true,
            write_through: true,
            protection: None,
        }
    }

    fn of(command: Command, offset: u64, length: u32) -> Result<Vec<Part>, Errno> {
        let request = Request { command, durable: false, cookie: 0, offset, length };
        parts(&request, &geometry())
    }

    const ZEROES: Command = Command::WriteZeroes { keep_space: false, fast: false };

    #[test]
    fn bytes_are_rounded_outwards_to_be_read_and_written() {
        assert_eq!(
            of(Command::Read, 512, 512),
            Ok(vec![Part::Read { blocks: 512..1024, lead: 0 }])
        );
        assert_eq!(of(Command::Read, 513, 1), Ok(vec![Part::Read { blocks: 512..1024, lead: 1 }]));
        let write = Part::Write { blocks: 0..1024, lead: 511 };
        assert_eq!(of(Command::Write, 511, 2), Ok(vec![write]));
        assert_eq!(of(Command::Flush, 0, 0), Ok(vec![Part::Flush]));
    }

    #[test]
    fn what_is_trimmed_is_rounded_inwards() {
        let discard = Part::Discard { blocks: 512..1024 };
        assert_eq!(of(Command::Trim, 1, 1500), Ok(vec![discard]));
        assert_eq!(of(Command::Trim, 1, 600), Ok(vec![]));
    }

    #[test]
    fn zeroes_are_bytes_at_the_ends() {
        assert_eq!(of(ZEROES, 0, 512), Ok(vec![Part::Zero { blocks: 0..512 }]));
        let both = vec![
            Part::ZeroBytes { blocks: 0..512, lead: 10, bytes: 502 },
            Part::ZeroBytes { blocks: 1024..1536, lead: 0, bytes: 4 },
            Part::Zero { blocks: 512..1024 },
        ];
        assert_eq!(of(ZEROES, 10, 1018), Ok(both));
        let one = Part::ZeroBytes { blocks: 0..1024, lead: 500, bytes: 100 };
        assert_eq!(of(ZEROES, 500, 100), Ok(vec![one]));
    }

    #[test]
    fn of_what_the_unit_says_no_more_is_told_than_was_asked_for() {
        use Provisioning::Anchored;
        use Provisioning::Deallocated;
        use Provisioning::Mapped;
        let run = |lba, blocks, provisioning| Descriptor { lba, blocks, provisioning };
        let told = |one, list: &[Descriptor]| {
            let command = Command::BlockStatus { one };
            let request = Request { command, durable: false, cookie: 0, offset: 700, length: 2000 };
            let all = extents(&request, &geometry(), list);
            all.iter().map(|e| (e.length, e.hole, e.zero)).collect::<Vec<_>>()
        };
        let list = [run(1, 1, Deallocated), run(2, 1, Deallocated), run(3, 9, Mapped)];
        assert_eq!(told(false, &list), [(836, true, true), (1164, false, false)]);
        assert_eq!(told(true, &list), [(836, true, true)]);
        assert_eq!(told(false, &[run(0, 99, Anchored)]), [(2000, false, true)]);
        // Nothing, a gap, a run that ends before, one that has no blocks.
        for odd in [&[][..], &[run(2, 1, Mapped)], &[run(0, 1, Deallocated)], &[run(1, 0, Mapped)]]
        {
            assert_eq!(told(false, odd), [(2000, false, false)]);
        }
        let gap = [run(1, 1, Deallocated), run(3, 1, Deallocated)];
        assert_eq!(told(false, &gap), [(324, true, true)]);
        let status = Command::BlockStatus { one: false };
        assert_eq!(of(status, 1030, 5), Ok(vec![Part::Status { first: 2 }]));
        assert_eq!(of(status, 0, 0), Err(Errno::Invalid));
    }

    #[test]
    fn what_is_not_there_is_refused() {
        let end = 512 * 100;
        assert_eq!(of(Command::Read, end, 1), Err(Errno::Invalid));
        assert_eq!(of(Command::Read, u64::MAX, 1), Err(Errno::Invalid));
        assert_eq!(of(Command::Write, end - 1, 2), Err(Errno::NoSpace));
        assert_eq!(of(ZEROES, end - 1, 2), Err(Errno::NoSpace));
        assert_eq!(of(Command::Trim, end - 1, 2), Err(Errno::Invalid));
        assert_eq!(of(Command::Unknown, 0, 1), Err(Errno::Invalid));
        assert_eq!(of(Command::Read, end, 0), Ok(vec![]));
        let read_only = Geometry { read_only: true, ..geometry() };
        let command = |command| Request { command, durable: true, cookie: 1, offset: 0, length: 1 };
        for changes in [Command::Write, Command::Trim, ZEROES] {
            assert_eq!(parts(&command(changes), &read_only), Err(Errno::Permission));
        }
        assert!(parts(&command(Command::Read), &read_only).is_ok());
        let slow = Geometry { same_max: 0, ..geometry() };
        let fast = Command::WriteZeroes { keep_space: false, fast: true };
        assert_eq!(parts(&command(fast), &slow), Err(Errno::NotSupported));
        assert!(parts(&command(ZEROES), &slow).is_ok());
    }
}
