// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The limits of this crate, each with its reason.

/// Largest buffer, bytes: the largest burst that the target offers, with room for a whole transfer
/// of the largest size that `scsi` announces.
pub const BUF_LEN_MAX: usize = 8 << 20;

/// Page size that the crate assumes, bytes: x86-64 has no other base page, and on machines with
/// larger pages the areas are still aligned to it.
pub const PAGE: usize = 4096;

/// Sizes of the pool's buffers, bytes, ascending. Steps of four waste less than 75 % at worst and 0
/// % for the powers of four that block sizes and bursts are; 8 MiB is added for [`BUF_LEN_MAX`].
pub(crate) const CLASS_SIZES: [usize; 7] =
    [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, BUF_LEN_MAX];

/// Largest bound of a pool, bytes: slots are numbered by 32 bits, and a third more than the number
/// of 4 KiB slots is needed.
pub(crate) const POOL_BYTES_MAX: usize = 4 << 40;

/// What one taker may have: so many times the square of the part of the pool that is free. One
/// alone gets three fifths of the pool, enough to keep any path busy. Those who take all they can
/// and give nothing back, one after the other, leave a part in `4n + 1`: 12 MiB of 512 behind ten
/// of them.
pub(crate) const SHARE_OF_MUCH: u64 = 4;

/// Where little is free, and that square is next to nothing, a taker may still have one part in so
/// many: behind a hundred who take all they can, small commands go on.
pub(crate) const SHARE_OF_LITTLE: usize = 32;

/// Length from which bytes are streamed past the caches into a region, bytes. Measured on a server
/// processor of 2023: 128 KiB blocks over 1 GiB go in at 16 to 19 GB/s in place of 9, and a
/// target's writes of 128 KiB and 1 MiB are a fifth to a third quicker. With 4 KiB writes there is
/// nothing in it, and a small block may well be read again while the cache has it.
pub(crate) const STREAM_MIN: usize = 32 << 10;

/// Length from which lent bytes are fetched before the kernel copies them, bytes, where that pays
/// ([`Slice::fetch`](crate::Slice::fetch)). Measured on an AMD EPYC with AVX-512: a target's reads
/// of 128 KiB cost 0.87 of what they did, those of 4 KiB 1.09.
pub(crate) const FETCH_MIN: usize = 16 << 10;

/// And as much at once, bytes, as a second cache surely has.
pub(crate) const FETCH_MAX: usize = 256 << 10;

/// References to one buffer: past this a counter that leaks references would wrap and free memory
/// in use, so the process ends instead (as `Arc` does).
pub(crate) const REFERENCES_MAX: u32 = u32::MAX / 2;

/// Bytes of headers for which a fresh list has room: 48-byte headers with digests of a window of
/// 32.
pub(crate) const SG_ARENA_CAPACITY: usize = 2048;

/// Elements for which a fresh list has room: header, data and trailer of a window of 32.
pub(crate) const SG_PIECES_CAPACITY: usize = 96;

/// Slices of one group of pages of a region: as for [`REFERENCES_MAX`].
pub(crate) const LENDS_MAX: u32 = 1 << 28;

/// Bytes that a region may take for lent pages that were written to, and for copies of them. Only
/// what waits to be sent is lent, so that it takes readers that do not read and others that write
/// to the same blocks to come here; then commands end with TASK SET FULL until pages come back.
pub(crate) const SPARE_BYTES_MAX: usize = 256 << 20;

/// Most bytes of a region that are locked for one copy: long enough for streaming to pay, short
/// enough (some 10 us) to wait for.
pub(crate) const WRITE_STEP: usize = 128 << 10;

/// Most bytes of a region that are locked to be given back to the system: many huge pages as a
/// whole.
pub(crate) const DISCARD_STEP: usize = 32 << 20;

const _: () = {
    let mut class = 0;
    while class < CLASS_SIZES.len() {
        assert!(CLASS_SIZES[class].is_multiple_of(PAGE));
        assert!(class == 0 || CLASS_SIZES[class - 1] < CLASS_SIZES[class]);
        class += 1;
    }
    assert!(CLASS_SIZES[CLASS_SIZES.len() - 1] == BUF_LEN_MAX);
    assert!(POOL_BYTES_MAX / PAGE * 2 < u32::MAX as usize);
    assert!((POOL_BYTES_MAX / PAGE).ilog2() <= 31, "the square of the pages fits 64 bits");
};
