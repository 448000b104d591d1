// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the study published: A. Joglekar, M. Kounavis, F. Berry, "A Scalable and High Performance
//! Software iSCSI Implementation", FAST '05, on a Pentium M at 1.7 GHz. Its plots are not in its
//! text; what is here is what the text says of them (§5.1, §5.2).

/// Commands of a run, dealt out to the connections in turn.
pub(crate) const COMMANDS: usize = 40;

/// Connections.
pub(crate) const CONNECTIONS: u16 = 8;

/// MaxRecvDataSegmentLength, bytes.
pub(crate) const SEGMENT: u32 = 8192;

/// MaxBurstLength, bytes.
pub(crate) const BURST: u32 = 256 << 10;

/// Cycles for the protocol of a Data-In, everything cold.
pub(crate) const PROTOCOL_COLD: f64 = 1800.0;

/// The same, the mean over the eight of a read of 64 KiB.
pub(crate) const PROTOCOL_64K: f64 = 770.0;

/// The same, everything in cache: a simulation.
pub(crate) const PROTOCOL_WARM: f64 = 430.0;

/// Cycles to copy a byte.
pub(crate) const COPY: f64 = 2.15;

/// Cycles to take the CRC of a byte by Sarwate's table and by slicing-by-8.
pub(crate) const SARWATE: f64 = 6.55;
pub(crate) const SLICING8: f64 = 2.15;

/// Cycles for a Data-In of 8 KiB by Sarwate's table and by slicing-by-8, the copy included.
pub(crate) const TOTAL_SARWATE: f64 = 73_761.0;
pub(crate) const TOTAL_SLICING8: f64 = 37_579.0;

/// Percent for protocol, copy and CRC of a Data-In of 512 bytes by Sarwate's table.
pub(crate) const SHARES_512: [f64; 3] = [28.0, 14.0, 58.0];

/// The same for 8 KiB.
pub(crate) const SHARES_8K: [f64; 3] = [3.0, 24.0, 73.0];

/// The same for 8 KiB by slicing-by-8.
pub(crate) const SHARES_8K_SLICING8: [f64; 3] = [5.0, 47.0, 47.0];

/// Percent that copying and CRC in one go saves of the two by Sarwate's table and by slicing-by-8.
pub(crate) const SAVED_SARWATE: f64 = 18.0;
pub(crate) const SAVED_SLICING8: f64 = 32.0;

/// MB/s of reads, with a TCP stack below: before and with both improvements.
pub(crate) const BEFORE: f64 = 175.0;
pub(crate) const AFTER: f64 = 445.0;

/// MB/s of payload that 10 GbE carries: 1,460 of 1,538 bytes of a frame, less 56 for each 8 KiB.
pub(crate) const LINE_RATE: f64 = 1250.0 * 1460.0 / 1538.0 * 8192.0 / 8248.0;
