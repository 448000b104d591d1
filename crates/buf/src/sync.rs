// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the words of a region take of the machine, so that their model test can take it of loom.

pub(crate) use std::hint::spin_loop;
pub(crate) use std::sync::atomic::AtomicU32;
pub(crate) use std::sync::atomic::Ordering;
pub(crate) use std::thread::yield_now;
