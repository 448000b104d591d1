// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Owned, aligned, bounded buffers, slices of them and scatter-gather lists; any crate may call it.
//!
//! A [`Buf`] comes from a [`Pool`] and has one owner, who may write. Frozen, it becomes a
//! [`Slice`], which is shared and only read. A [`Region`] is memory of which parts are lent while
//! others are written. An [`SgList`] gathers slices and small headers for sending. No user of the
//! crate needs `unsafe`.
//!
//! All buffers are page aligned: on some AMD cores `rep movsb`, by which both the C library and the
//! kernel copy, falls to a twentieth of its speed when destination minus source, modulo 4096, lies
//! in 1..=31, and `O_DIRECT` asks for alignment too.

mod buf;
mod cache;
mod copy;
mod ground;
mod limits;
mod map;
mod pool;
mod region;
mod sg;
mod slice;
mod sync;

pub use buf::Buf;
pub use cache::purge;
pub use copy::copy;
pub use ground::Ground;
pub use limits::{BUF_LEN_MAX, PAGE};
pub use pool::{Claim, Pool, Trimmed};
pub use region::{Region, RegionError};
pub use sg::SgList;
pub use slice::Slice;

/// Why the system gave no memory; named here for crates that do not name `std`.
pub type SystemError = std::io::Error;
