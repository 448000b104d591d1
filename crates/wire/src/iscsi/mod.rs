// SPDX-License-Identifier: Apache-2.0 OR MIT
//! iSCSI PDUs (RFC 7143 §11) and text keys (§6).
//!
//! A PDU is `BHS (48) | AHS* | header digest | data, padded to 4 | data digest` (§11.2.3). This
//! module knows the header, that is BHS and AHS: [`BhsView`] serves a receiver that must first
//! learn how long the rest is, [`Request::parse`] and [`Response::parse`] take the whole header.
//! Digests and padding belong to the mover.

mod ahs;
mod asynchronous;
mod bhs;
mod command;
mod data;
mod error;
mod field;
pub mod keys;
mod login;
mod logout;
mod marker;
mod nop;
mod number;
mod pdu;
mod pretty;
mod r2t;
mod reject;
mod response;
mod snack;
#[cfg(test)]
mod testing;
mod text;
mod tmf;
mod view;

pub use ahs::*;
pub use asynchronous::*;
pub use bhs::*;
pub use command::*;
pub use data::*;
pub use error::*;
pub use login::*;
pub use logout::*;
pub use marker::*;
pub use nop::*;
pub use number::*;
pub use pdu::*;
pub use pretty::Pretty;
pub use r2t::*;
pub use reject::*;
pub use response::*;
pub use snack::*;
pub use text::*;
pub use tmf::*;
