// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Eight bytes at a time through eight tables (Kounavis and Berry): for processors without an
//! instruction.

use crate::bitwise::advance_byte;
use crate::sarwate;

type Tables = [[u32; 256]; 8];

/// The register behind `bytes`.
pub(crate) fn update(mut register: u32, bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks();
    for word in words {
        register = step(register, word);
    }
    finish(register, rest)
}

/// Copies `src` to `dst`, which has the same length, a word at a time, each of which is taken in
/// while it is at hand; the register behind the bytes.
pub(crate) fn copy_update(mut register: u32, dst: &mut [u8], src: &[u8]) -> u32 {
    let (to, dst) = dst.as_chunks_mut();
    let (from, src) = src.as_chunks();
    for (to, from) in to.iter_mut().zip(from) {
        *to = *from;
        register = step(register, from);
    }
    dst.copy_from_slice(src);
    finish(register, src)
}

/// The register behind one more word.
#[inline]
fn step(register: u32, [a, b, c, d, e, f, g, h]: &[u8; 8]) -> u32 {
    let low = register ^ u32::from_le_bytes([*a, *b, *c, *d]);
    let [a, b, c, d] = low.to_le_bytes();
    let low = at(7, a) ^ at(6, b) ^ at(5, c) ^ at(4, d);
    low ^ at(3, *e) ^ at(2, *f) ^ at(1, *g) ^ at(0, *h)
}

/// The register behind less than a word, by the first of the tables.
fn finish(mut register: u32, rest: &[u8]) -> u32 {
    for byte in rest {
        let [low, ..] = register.to_le_bytes();
        register = (register >> 8) ^ at(0, low ^ byte);
    }
    register
}

#[inline]
fn at(table: usize, byte: u8) -> u32 {
    TABLES[table][usize::from(byte)]
}

/// `TABLES[k][b]`: the register after byte `b` and `k` zero bytes.
static TABLES: Tables = tables();

const fn tables() -> Tables {
    let mut tables = [sarwate::table(); 8];
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            tables[table][byte] = advance_byte(tables[table - 1][byte]);
            byte += 1;
        }
        table += 1;
    }
    tables
}
