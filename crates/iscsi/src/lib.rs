// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The iSCSI protocol as sans-IO machines; only a pump (`target`, `initiator`, `sim`) drives them.
//!
//! A connection of a target lives in [`target_role::Login`] until its login ends and then belongs
//! to a [`target_role::Session`]. `handle_*` takes what the mover gives ([`datamover::Event`]),
//! plain verbs take what the node and the SCSI layer give, `poll_output` gives what must go out:
//! drain it after each call, then ask `poll_timeout`.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod chap;
pub mod datamover;
pub mod initiator;
pub mod limits;
pub mod name;
pub mod negotiate;
pub mod params;
pub mod serial;
pub mod service;
pub mod status;
pub mod target_role;
pub mod violation;
pub mod window;
