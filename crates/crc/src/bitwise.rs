// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One bit at a time: the definition itself, against which all other kernels are checked.

use crate::combine::POLYNOMIAL;
use crate::limits::COPY_STEP;

/// The register behind `bytes`.
pub(crate) fn update(mut register: u32, bytes: &[u8]) -> u32 {
    for byte in bytes {
        register = advance_byte(register ^ u32::from(*byte));
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

/// The register after eight more bits, once the byte was added to its low end.
pub(crate) const fn advance_byte(mut register: u32) -> u32 {
    let mut bit = 0;
    while bit < 8 {
        let carry = register & 1;
        register >>= 1;
        if carry == 1 {
            register ^= POLYNOMIAL;
        }
        bit += 1;
    }
    register
}
