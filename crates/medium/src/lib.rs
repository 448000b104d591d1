// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What stands behind the bytes of a disk, in the words that stores and the engine share.
#![no_std]
#![forbid(unsafe_code)]

pub mod stripe;

/// What stands behind bytes (SBC-3 §4.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // all states that a block can have
pub enum Space {
    /// Space that holds data; what cannot tell says so of all its bytes.
    Mapped,
    /// Space that was set aside and holds nothing: nobody else can take it.
    Anchored,
    /// No space.
    Deallocated,
}
