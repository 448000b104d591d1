// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The CRC of a whole from the CRCs of its parts.
//!
//! A register is a polynomial over GF(2), bit 31 its constant term. Zero bytes multiply it by x^8
//! each, modulo the generator.

/// The generator 0x1edc6f41 of RFC 7143 §13.1 with its bits in reverse; the x^32 term is implied.
pub(crate) const POLYNOMIAL: u32 = 0x82f6_3b78;

/// The CRC of A followed by B, where `crc_a` and `crc_b` are theirs and B has `len_b` bytes.
pub fn combine(crc_a: u32, crc_b: u32, len_b: u64) -> u32 {
    multiply(power_of_bytes(len_b), crc_a) ^ crc_b
}

/// The product of two polynomials modulo the generator.
pub(crate) const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut mask = 1 << 31;
    while mask != 0 {
        if a & mask != 0 {
            product ^= b;
        }
        let carry = b & 1;
        b >>= 1;
        if carry == 1 {
            b ^= POLYNOMIAL;
        }
        mask >>= 1;
    }
    product
}

/// x^(8 * `bytes`) modulo the generator.
pub(crate) const fn power_of_bytes(mut bytes: u64) -> u32 {
    let mut power = ONE;
    let mut square = X8;
    while bytes != 0 {
        if bytes & 1 == 1 {
            power = multiply(power, square);
        }
        square = multiply(square, square);
        bytes >>= 1;
    }
    power
}

/// The polynomial 1.
const ONE: u32 = 1 << 31;

/// The polynomial x^8.
const X8: u32 = 1 << 23;
