// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Configuration schema, admin messages, units and words; the command line and the daemon call it.
#![forbid(unsafe_code)]

pub mod admin;
pub mod config;
pub mod units;
pub mod words;
