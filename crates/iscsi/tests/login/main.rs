// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The login phase of the target role against the requirements of RFC 7143.

extern crate lunwire_iscsi as iscsi;

mod authentication;
mod driver;
mod headers;
mod keys;
mod levels;
mod names;
mod property;
mod rdma;
mod reach;
mod texts;
