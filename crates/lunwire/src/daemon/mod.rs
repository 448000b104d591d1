// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a running daemon has beside its reactors.

pub(crate) mod admin;
pub(crate) mod clients;
pub(crate) mod configuration;
pub(crate) mod descriptors;
pub(crate) mod events;
pub(crate) mod frames;
mod limits;
mod load;
pub(crate) mod log;
pub(crate) mod manager;
mod moderation;
pub(crate) mod periodic;
pub(crate) mod sandboxed;
pub(crate) mod shown;
pub(crate) mod take_over;
mod traces;
pub(crate) mod watch;
