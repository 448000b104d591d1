// SPDX-License-Identifier: Apache-2.0 OR MIT
//! iWARP in software, as sans-IO machines; only movers and pumps drive it.
//!
//! A connection begins with [`mpa::Initiator`] or [`mpa::Responder`], which agree on what an FPDU
//! looks like, and goes on as a [`qp::QueuePair`]: operations and bytes go in, events and bytes
//! come out. Peers reach memory by the STags of [`region::Regions`], and nothing else.
//!
//! Where an adapter does all that, [`adapter::Queue`] stands in its place, in the same words.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod adapter;
mod filled;
mod inbound;
pub mod limits;
pub mod mpa;
mod outbound;
pub mod qp;
pub mod region;
pub mod verbs;
pub mod violation;
