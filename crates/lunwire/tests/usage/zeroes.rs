// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Zeroes that are copied to a disk are zeroes there, whatever it does with UNMAP.

use wire::scsi::opcode::Opcode;

use crate::foreign::Character;
use crate::foreign::Foreign;
use crate::support::Files;
use crate::support::fails;
use crate::support::good;
use crate::support::pattern;

const NAME: &str = "iqn.2026-01.com.example:foreign";

/// 64 KiB with zeroes from 16 to 48 KiB.
fn image() -> Vec<u8> {
    let mut bytes = pattern(64 << 10);
    bytes[16 << 10..48 << 10].fill(0);
    bytes
}

/// A device server may leave mapped what UNMAP names, with its data (SBC-3 §4.7.3.4).
#[test]
fn zeroes_are_written_where_unmap_leaves_data() {
    let files = Files::new();
    let source = files.with("image", &image());
    let disk = Foreign::start(Character { keeps_what_is_unmapped: true, ..Character::default() });
    good(&["copy", &source, &disk.url(NAME), "--quiet", "--verify"]);
    assert!(disk.content() == image());
    assert_eq!(disk.count(Opcode::UNMAP), 0);
    assert_eq!(disk.count(Opcode::WRITE_SAME_16), 8, "4 KiB each, and space is given back");
}

#[test]
fn zeroes_are_written_where_write_same_is_unknown() {
    let files = Files::new();
    let source = files.with("image", &image());
    let disk = Foreign::start(Character { no_write_same: true, ..Character::default() });
    good(&["copy", &source, &disk.url(NAME), "--quiet", "--verify"]);
    assert!(disk.content() == image());
    let tried = disk.count(Opcode::WRITE_SAME_16);
    assert!((1..=8).contains(&tried), "{tried}: what was under way at once");
}

#[test]
fn zeroes_that_did_not_arrive_are_found() {
    let files = Files::new();
    let source = files.with("image", &image());
    let disk = Foreign::start(Character { broken_write_same: true, ..Character::default() });
    let words = ["copy", &source, &disk.url(NAME), "--quiet", "--verify"];
    fails(1, &words, &["the destination differs", "between bytes 16384 and 20480"]);
}
