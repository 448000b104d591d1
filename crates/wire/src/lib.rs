// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The byte layout of every PDU, CDB, page and key; any crate may call it.
//!
//! Each layout has two faces. A **View** wraps bytes: total and faithful, every bit reachable, no
//! accessor panics once the view has checked its length. A **Repr** is a value that holds only what
//! is legal: `parse` makes it from a view, `emit` writes it, and `parse(emit(r)) == r`. Reserved
//! bits are zero on emit and ignored on parse. All integers are big-endian on the wire and native
//! in a Repr.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod ether;
pub mod iscsi;
pub mod iser;
pub mod isns;
pub mod iwarp;
pub mod pcap;
pub mod scsi;
