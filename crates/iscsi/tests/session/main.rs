// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Full feature phase of the target, driven at the level of ops and events: the tests play
//! initiator, mover and SCSI side with values, and the driver checks every PDU that leaves.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)] // values of the tests themselves

extern crate lunwire_iscsi as iscsi;

mod commands;
mod connections;
mod deadlines;
mod driver;
mod early;
mod fastabort;
mod fences;
mod joining;
mod logout;
mod management;
mod numbers;
mod ping;
mod random;
mod rdma;
mod reads;
mod recovery;
mod rejects;
mod resets;
mod text;
mod writes;
