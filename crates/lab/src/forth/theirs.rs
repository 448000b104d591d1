// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the study published: D. Xinidis, M. Flouris, A. Bilas, "Performance Evaluation of Commodity
//! iSCSI-based Storage Systems", 2005, on nodes of two Athlons at 1.8 GHz with five disks each and
//! Gigabit Ethernet. Its plots are not in its text; what is here is what the text says of them
//! (sections 4.1 and 4.2).

/// Disks of a node, as RAID-0.
pub(super) const DISKS: usize = 5;

/// Targets that the initiator stripes over.
pub(super) const NODES: usize = 3;

/// TCP at the largest packets, Mbit/s, and their size.
pub(super) const NETWORK: f64 = 800.0;
pub(super) const PACKET_MAX: u32 = 128 << 10;

/// A RAM-disk behind iSCSI, one request at a time: MB/s, and at which size.
pub(super) const RAM_DISK: f64 = 50.0;
pub(super) const RAM_DISK_SIZE: u32 = 16 << 10;

/// Percent of the initiator's CPU for reads and for writes, from this size on.
pub(super) const RAM_DISK_CPU: [f64; 2] = [90.0, 80.0];
pub(super) const RAM_DISK_CPU_SIZE: u32 = 1 << 10;

/// Response time at 512 B, microseconds: less than this.
pub(super) const RESPONSE: f64 = 100.0;

/// One disk, sequential, MB/s: reads, writes, and 70 % reads.
pub(super) const DISK: [f64; 3] = [45.0, 20.0, 20.0];

/// Five disks at hand, sequential, MB/s at most: reads, writes, and 70 % reads.
pub(super) const DIRECT: [f64; 3] = [120.0, 50.0, 50.0];

/// The same behind one target.
pub(super) const X1: [f64; 3] = [25.0, 40.0, 20.0];

/// Sizes at which one target does most.
pub(super) const BEST_SIZES: [u32; 2] = [4 << 10, 8 << 10];

/// Percent of CPU with sequential requests: at hand, and behind one target.
pub(super) const CPU_DIRECT: [f64; 2] = [75.0, 90.0];
pub(super) const CPU_X1: [f64; 2] = [60.0, 70.0];
