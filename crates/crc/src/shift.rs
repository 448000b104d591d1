// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Moving a register by a fixed number of bytes through tables, to join streams.

use crate::combine::{multiply, power_of_bytes};

/// What a fixed number of zero bytes does to each byte of a register.
pub(crate) struct Shift([[u32; 256]; 4]);

impl Shift {
    pub(crate) const fn new(bytes: u64) -> Self {
        let power = power_of_bytes(bytes);
        let mut tables = [[0; 256]; 4];
        let mut byte = 0;
        let mut value = 0;
        while byte < 256 {
            let mut table = 0;
            while table < 4 {
                tables[table][byte] = multiply(power, value << (8 * table));
                table += 1;
            }
            byte += 1;
            value += 1;
        }
        Self(tables)
    }

    #[inline]
    pub(crate) fn apply(&self, register: u32) -> u32 {
        let [a, b, c, d] = register.to_le_bytes();
        let [first, second, third, fourth] = &self.0;
        let low = first[usize::from(a)] ^ second[usize::from(b)];
        low ^ third[usize::from(c)] ^ fourth[usize::from(d)]
    }
}
