// SPDX-License-Identifier: Apache-2.0 OR MIT
//! iSCSI disks for programs in C: what liblunwire is made of. Programs call it by its header.
//!
//! `include/lunwire.h` says how it is used.
//!
//! ```text
//! border.rs, border/   the functions of the header: all unsafe code is here
//!   | border/memory.rs   texts, buffers and places for results, which belong to the caller
//! handles.rs     what the numbers mean that a caller has in place of objects
//! disk.rs        a session with one disk
//! ring.rs        a completion queue with its depth, and where the data of reads goes
//! options.rs     what `lunwire_options_set` knows
//! code.rs        errors as numbers and text
//! ```
//!
//! A caller holds numbers, not addresses, so that a handle which was closed, or never was one, is
//! an error. Two faults are left that nobody can catch here: a pointer to memory that is not there,
//! and a length that is not that of the memory.

mod border;
#[forbid(unsafe_code)]
mod code;
#[forbid(unsafe_code)]
mod disk;
#[forbid(unsafe_code)]
mod handles;
#[forbid(unsafe_code)]
mod limits;
#[forbid(unsafe_code)]
mod options;
#[forbid(unsafe_code)]
mod ring;
