// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the study published: `theirs.tsv`, its tables, and which combinations it had in mind.

use crate::picture::Line;

/// What the text says of the figures, each with its source.
const DATA: &str = include_str!("theirs.tsv");

/// A line of [`DATA`].
#[derive(Debug)]
pub(super) struct Said {
    pub(super) figure: &'static str,
    pub(super) line: &'static str,
    /// Sizes of transfers that it is said of; zero: of the largest throughput.
    pub(super) sizes: [u64; 2],
    pub(super) megabits: f64,
}

/// All that is said of one figure, or table.
pub(super) fn said(figure: &str) -> Vec<Said> {
    let lines = DATA.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(parse).filter(|said| said.figure == figure).collect()
}

fn parse(line: &'static str) -> Option<Said> {
    let mut fields = line.split('\t');
    let (figure, line) = (fields.next()?, fields.next()?);
    let sizes = [fields.next()?.parse().ok()?, fields.next()?.parse().ok()?];
    let megabits = fields.next()?.parse().ok()?;
    fields.next().filter(|source| !source.is_empty())?;
    Some(Said { figure, line, sizes, megabits })
}

/// What is said of a figure, as lines from the smallest to the largest size that it is said of.
pub(super) fn lines(figure: &str) -> Vec<Line> {
    let line = |said: Said| Line {
        name: format!("study: {}", said.line),
        points: said.sizes.map(|size| (size, said.megabits)).to_vec(),
        published: true,
    };
    said(figure).into_iter().map(line).collect()
}

/// A layer, and its bytes of a frame, with RDMA and without.
type Layer = (&'static str, Option<u32>, Option<u32>);

/// Tables 4.2 and 4.3.
pub(super) const LAYERS: [Layer; 9] = [
    ("Ethernet inter-frame gap", Some(12), Some(12)),
    ("Ethernet preamble", Some(8), Some(8)),
    ("Ethernet header", Some(14), Some(14)),
    ("IP header", Some(20), Some(20)),
    ("TCP header", Some(20), Some(20)),
    ("tagged RDMA header", Some(16), None),
    ("payload", Some(1440), Some(1460)),
    ("MPA CRC", Some(4), None),
    ("Ethernet CRC", Some(4), Some(4)),
];

/// Megabits a second of a 10-Gigabit Ethernet that are payload, by the study's tables: with RDMA
/// and without.
pub(super) const PAYLOAD_MAX: [f64; 2] = [9360.0, 9490.0];

/// Reads that the study could not explain stand still here, in Megabits a second (section 4.2.3).
pub(super) const READS_STAND_STILL: f64 = 5500.0;

/// A row of table 4.1: protocols and environments of initiator and target, and the mode.
#[derive(Clone, Copy, Debug)]
pub(super) struct Combination {
    pub(super) protocols: [&'static str; 2],
    pub(super) spaces: [&'static str; 2],
    pub(super) mode: &'static str,
    /// Whether the study measured it.
    pub(super) measured: bool,
}

const fn row(
    protocols: [&'static str; 2],
    spaces: [&'static str; 2],
    mode: &'static str,
    measured: bool,
) -> Combination {
    Combination { protocols, spaces, mode, measured }
}

const USER: &str = "user";
const KERNEL: &str = "kernel";
const MEMORY: &str = "MEMORYIO";
const DISK: &str = "DISKIO";

/// Table 4.1, with FILEIO, which the study had and thought not worth measuring. Of the rows of TCP
/// the text has lost the cells but for "DISKIO": here are those that it says were run, and one of a
/// disk.
pub(super) const COMBINATIONS: [Combination; 21] = [
    row(["TCP", "TCP"], [USER, USER], MEMORY, true),
    row(["TCP", "TCP"], [USER, USER], "FILEIO", false),
    row(["TCP", "TCP"], [KERNEL, KERNEL], MEMORY, true),
    row(["TCP", "TCP"], [KERNEL, KERNEL], DISK, false),
    row(["OSC", "OSC"], [USER, USER], MEMORY, false),
    row(["OSC", "OSC"], [USER, USER], "FILEIO", false),
    row(["iWARP", "OSC"], [USER, USER], MEMORY, false),
    row(["iWARP", "OSC"], [KERNEL, USER], MEMORY, false),
    row(["OSC", "iWARP"], [USER, USER], MEMORY, false),
    row(["OSC", "iWARP"], [USER, KERNEL], MEMORY, false),
    row(["OSC", "iWARP"], [USER, KERNEL], DISK, false),
    row(["iWARP", "iWARP"], [USER, USER], MEMORY, true),
    row(["iWARP", "iWARP"], [USER, KERNEL], MEMORY, false),
    row(["iWARP", "iWARP"], [USER, KERNEL], DISK, false),
    row(["iWARP", "iWARP"], [KERNEL, KERNEL], MEMORY, true),
    row(["iWARP", "iWARP"], [KERNEL, KERNEL], DISK, false),
    row(["Infiniband", "Infiniband"], [USER, USER], MEMORY, false),
    row(["Infiniband", "Infiniband"], [USER, KERNEL], MEMORY, false),
    row(["Infiniband", "Infiniband"], [USER, KERNEL], DISK, false),
    row(["Infiniband", "Infiniband"], [KERNEL, KERNEL], MEMORY, false),
    row(["Infiniband", "Infiniband"], [KERNEL, KERNEL], DISK, false),
];

impl Combination {
    /// Why it is not run here; None: it is.
    pub(super) fn why_not(&self) -> Option<&'static str> {
        if self.spaces.contains(&KERNEL) {
            return Some("the kernel's side needs root and modules (interop/iser, interop/kernel)");
        }
        if self.protocols.contains(&"iWARP") || self.protocols.contains(&"Infiniband") {
            return Some("no adapter is driven here; software iWARP (OSC) stands for it");
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_said_has_a_source_and_can_be_read() {
        let rows = DATA.lines().filter(|line| !line.starts_with('#'));
        for row in rows {
            assert!(parse(row).is_some(), "{row}");
        }
        for figure in
            ["4-1", "4-2", "4-3", "4-4", "4-5", "4-6", "4-7", "4-8", "4-9", "4-12", "4-13"]
        {
            assert!(!lines(figure).is_empty(), "{figure}");
        }
        assert_eq!(said("5.1").len(), 8);
    }

    /// 93.6 and 94.9 % of 1538 bytes.
    #[test]
    fn the_tables_agree_with_each_other() {
        let sum = |of: fn(&Layer) -> Option<u32>| LAYERS.iter().filter_map(of).sum::<u32>();
        assert_eq!((sum(|row| row.1), sum(|row| row.2)), (1538, 1538));
        for (payload, most) in [1440.0, 1460.0].into_iter().zip(PAYLOAD_MAX) {
            assert!((payload / 1538.0 * 10_000.0_f64 - most).abs() < 5.0);
        }
        let maxima = said("5.1");
        assert!(maxima.iter().take(2).map(|said| said.megabits).eq(PAYLOAD_MAX));
    }
}
