// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One table, a byte a step (Sarwate, 1988): the baseline of the FAST05 study.

use crate::bitwise::advance_byte;

/// The register behind `bytes`.
pub(crate) fn update(mut register: u32, bytes: &[u8]) -> u32 {
    for byte in bytes {
        register = step(register, *byte);
    }
    register
}

/// Copies `src` to `dst`, which has the same length, a word at a time, each of which is taken in
/// while it is at hand; the register behind the bytes.
pub(crate) fn copy_update(mut register: u32, dst: &mut [u8], src: &[u8]) -> u32 {
    let (to, dst) = dst.as_chunks_mut::<8>();
    let (from, src) = src.as_chunks::<8>();
    for (to, from) in to.iter_mut().zip(from) {
        *to = *from;
        for byte in from {
            register = step(register, *byte);
        }
    }
    dst.copy_from_slice(src);
    update(register, src)
}

/// The register behind one more byte.
#[inline]
pub(crate) fn step(register: u32, byte: u8) -> u32 {
    let [low, ..] = register.to_le_bytes();
    (register >> 8) ^ TABLE[usize::from(low ^ byte)]
}

/// The register after a byte.
static TABLE: [u32; 256] = table();

pub(crate) const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    let mut value = 0;
    while byte < 256 {
        table[byte] = advance_byte(value);
        byte += 1;
        value += 1;
    }
    table
}
