// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The commands that use disks, used as people do: what must not be lost, and what they are told.
#![allow(clippy::unwrap_used)] // a test that panics has failed

#[path = "../support/mod.rs"]
mod support;

mod accounts;
mod addresses;
mod advice;
mod beside;
mod busy;
mod checks;
mod daemons;
mod ends;
mod flushes;
mod folders;
mod foreign;
mod http;
mod inspecting;
mod laboratory;
mod leaving;
mod limits;
mod logs;
mod messages;
mod outputs;
mod places;
mod reader;
mod secrets;
mod server;
mod sharing;
mod slow;
mod takeovers;
mod terminals;
mod traces;
mod zeroes;
