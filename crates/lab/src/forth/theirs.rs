// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the study published: D. Xinidis, M. Flouris, A. Bilas, "Performance Evaluation of Commodity
//! iSCSI-based Storage Systems", 2005, on nodes of two Athlons at 1.8 GHz with five disks each and
//! Gigabit Ethernet. Its plots are not in its text; what is here is what the text says of them
//! (sections 4.1 to 4.4) and its tables.

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

/// A size of PostMark, and what a machine with five disks at hand did with it (table 1).
#[derive(Clone, Copy, Debug)]
pub(super) struct Mail {
    pub(super) files: u32,
    pub(super) transactions: u32,
    /// Transactions a second; KB/s read and written.
    pub(super) rates: [f64; 3],
}

impl Mail {
    pub(super) fn name(&self) -> String {
        format!("{}K/{}K", self.files / 1000, self.transactions / 1000)
    }
}

pub(super) const POSTMARK: [Mail; 4] = [
    Mail { files: 50_000, transactions: 50_000, rates: [204.0, 272.54, 855.81] },
    Mail { files: 50_000, transactions: 100_000, rates: [165.0, 302.93, 627.81] },
    Mail { files: 100_000, transactions: 100_000, rates: [81.0, 126.52, 394.30] },
    Mail { files: 100_000, transactions: 200_000, rates: [74.0, 150.61, 312.88] },
];

/// Transactions behind one target by those direct.
pub(super) const POSTMARK_X1: [f64; 2] = [0.8, 1.0];

/// Percent of PostMark's system time that is the file system's, at least.
pub(super) const FILE_SYSTEM: f64 = 90.0;

/// Seconds of a query of TPC-H with five disks at hand (table 2).
pub(super) const TPCH: [(&str, f64); 10] = [
    ("q1", 77.34),
    ("q3", 54.91),
    ("q5", 60.73),
    ("q6", 10.91),
    ("q7", 56.89),
    ("q8", 147.97),
    ("q11", 26.92),
    ("q12", 15.75),
    ("q14", 24.30),
    ("q19", 17.18),
];

/// The query that takes longest, and the one that takes least.
pub(super) const TPCH_ENDS: [&str; 2] = ["q8", "q6"];

/// Execution time behind three targets by that at hand, at most; and without their cache by that
/// with it.
pub(super) const TPCH_X3: f64 = 1.4;
pub(super) const TPCH_UNCACHED: f64 = 1.07;

/// Requests a second of SFS at which it saturates: at hand, and behind one target.
pub(super) const SFS_MOST: [f64; 2] = [700.0, 600.0];

/// Response time by that at hand, at most: behind one target, and behind three.
pub(super) const SFS_RESPONSE: [f64; 2] = [1.4, 1.25];

/// Percent of the system's time of these queries that is block I/O, at least.
pub(super) const BLOCK_IO: f64 = 30.0;
pub(super) const BLOCK_QUERIES: [&str; 7] = [" q3", " q5", " q6", " q7", " q12", " q14", " q19"];
