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
//! `orders` takes from who has one of `tokens` what the Desk is to do.
//!
//! One thread of its own has it all, at a lower priority than reactors. It asks these by a letter,
//! as the control socket does, and counts nothing itself. Hyper's types stay in `connections` and
//! `routes`.
#![forbid(unsafe_code)]

mod api;
mod connections;
mod health;
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
mod tokens;

pub use api::Desk;
pub use port::Http;
pub use port::HttpError;
pub use port::Listener;
pub use tokens::Tokens;
pub use tokens::TokensError;
