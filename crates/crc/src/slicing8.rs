// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Eight bytes at a time through eight tables (Kounavis and Berry): for processors without an
//! instruction.

use crate::bitwise::advance_byte;
use crate::limits::COPY_STEP;

type Tables = [[u32; 256]; 8];

/// The register behind `bytes`.
pub(crate) fn update(mut register: u32, bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<8>();
    for [a, b, c, d, e, f, g, h] in words {
        let low = register ^ u32::from_le_bytes([*a, *b, *c, *d]);
        let [a, b, c, d] = low.to_le_bytes();
        register = at(7, a) ^ at(6, b) ^ at(5, c) ^ at(4, d);
        register ^= at(3, *e) ^ at(2, *f) ^ at(1, *g) ^ at(0, *h);
    }
    for byte in rest {
        let [low, ..] = register.to_le_bytes();
        register = (register >> 8) ^ at(0, low ^ byte);
    }
    register
}

/// Copies `src` to `dst`, which has the same length, in steps that stay in the nearest cache; the
/// register behind the bytes.
pub(crate) fn copy_update(mut register: u32, dst: &mut [u8], src: &[u8]) -> u32 {
    for (dst, src) in dst.chunks_mut(COPY_STEP).zip(src.chunks(COPY_STEP)) {
        dst.copy_from_slice(src);
        register = update(register, dst);
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
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    let mut value = 0;
    while byte < 256 {
        let mut register = advance_byte(value);
        let mut table = 0;
        while table < 8 {
            tables[table][byte] = register;
            register = advance_byte(register);
            table += 1;
        }
        byte += 1;
        value += 1;
    }
    tables
}
