// SPDX-License-Identifier: Apache-2.0 OR MIT
//! iWARP in software, as sans-IO machines; only movers and pumps drive it.
//!
//! A connection begins with [`mpa::Initiator`] or [`mpa::Responder`], which agree on what an FPDU
//! looks like. [`mpa::Receiver`] finds FPDUs in the stream, [`mpa::Sender`] makes them.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod limits;
pub mod mpa;
pub mod violation;
