// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Datamovers: what carries PDUs and data between iSCSI nodes; only a pump drives them.
//!
//! A datamover stands between the core of `iscsi` and a transport (RFC 5047). The core speaks in
//! bursts ([`iscsi::datamover::Op`], [`iscsi::datamover::Event`]); the mover turns them into PDUs
//! and keeps what is booked for each PDU: DataSN, R2TSN, target transfer tags, segment lengths and
//! digests.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod counters;
pub mod iser;
pub mod limits;
pub mod local;
mod mover;
mod staging;
mod stamp;
pub mod tcp;

pub use mover::Mover;
