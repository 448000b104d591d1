// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The HTTP port of a daemon: metrics for Prometheus, health for who watches it, what the control
//! socket tells, and a page that shows it.
//!
//! ```text
//! clients --> connections --> routes --> looks --> target::Target::figures
//!             (HTTP, limits)    |        (one at a time, shared)
//!                               |------> api ----> Desk: who answers at the control socket
//!                               `------> page
//! ```
//!
//! `orders` takes from who has one of `tokens` what the Desk is to do. `access` says who may ask:
//! where others than this machine reach the port that takes `tls`, and a token.
//!
//! One thread of its own has it all, at a lower priority than reactors. It asks these by a letter,
//! as the control socket does, and counts nothing itself. Hyper's types stay in `connections` and
//! `routes`.
#![forbid(unsafe_code)]

mod access;
mod api;
mod aside;
mod connections;
mod health;
mod kept;
mod limits;
mod looks;
mod metrics;
mod orders;
mod page;
mod port;
mod query;
mod routes;
mod streams;
#[cfg(test)]
mod tests;
mod tls;
mod tokens;

pub use access::Access;
pub use api::Desk;
pub use api::Giver;
pub use port::Http;
pub use port::HttpError;
pub use port::Listener;
pub use tls::Tls;
pub use tls::TlsError;
pub use tls::TlsFiles;
pub use tokens::Tokens;
pub use tokens::TokensError;
