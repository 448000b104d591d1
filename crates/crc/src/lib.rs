// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CRC32C, the digest of iSCSI and of MPA, and the guard of T10 protection information; any crate
//! may call it.
//!
//! RFC 7143 §13.1: generator 0x11edc6f41, input and output reflected, initial value and final
//! complement all ones. The fastest kernel that the processor has is found once, at the first use;
//! the variable `LUNWIRE_CRC`, which takes the [names](Tier::name) of [`Tier`], or [`force`] choose
//! another one, for tests and measurements.

#[cfg(target_arch = "aarch64")]
mod aarch64;
mod bitwise;
#[cfg(target_arch = "x86_64")]
mod clmul128;
#[cfg(target_arch = "x86_64")]
mod clmul256;
#[cfg(target_arch = "x86_64")]
mod clmul512;
mod combine;
mod dif;
mod dispatch;
#[cfg(target_arch = "x86_64")]
mod fold;
mod limits;
mod sarwate;
mod sg;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod shift;
mod slicing8;
#[cfg(target_arch = "x86_64")]
mod sse42;

pub use combine::combine;
pub use dif::crc16_t10dif;
pub use dispatch::{Tier, Unavailable, force, tier};
pub use sg::{Piece, PieceMut};

/// The CRC of `bytes` with its own wire form appended (the residue): what a check over data and
/// digest together must give.
pub const RESIDUE: u32 = 0x4867_4bc7;

/// The CRC32C of `bytes`. On the wire its least significant byte comes first
/// ([`u32::to_le_bytes`]).
pub fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = Crc32c::new();
    crc.update(bytes);
    crc.finish()
}

/// A CRC32C over bytes that come in pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crc32c {
    /// The register before the final complement.
    register: u32,
}

impl Crc32c {
    /// Of no bytes yet.
    pub const fn new() -> Self {
        Self { register: !0 }
    }

    /// Continues behind bytes whose CRC is `crc`.
    pub const fn resume(crc: u32) -> Self {
        Self { register: !crc }
    }

    /// Takes in `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        self.register = dispatch::update(self.register, bytes);
    }

    /// Copies `src` to `dst`, which has the same length, and takes in the bytes that arrived in
    /// `dst`: in steps that stay in the nearest cache, so that memory is read once. Other lengths
    /// are a caller's mistake, which panics.
    pub fn copy_update(&mut self, dst: &mut [u8], src: &[u8]) {
        assert_eq!(dst.len(), src.len(), "both sides have the same length");
        self.register = dispatch::copy_update(self.register, dst, src);
    }

    /// The CRC of all that was taken in.
    pub const fn finish(self) -> u32 {
        !self.register
    }
}

impl Default for Crc32c {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
