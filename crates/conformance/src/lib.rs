// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of the requirements of RFC 7143 on the wire, byte by byte.
//!
//! [`raw`] is a connection that sends any bytes, right or wrong, and reads what comes back;
//! [`login`] is how to log in on it and [`initiator`] the session that follows, every field of
//! which a test may bend; [`host`] an operating system that uses one logical unit through it;
//! [`server`] starts our own target in this process, once on each engine; [`mock`] is a target
//! that a script answers for, and [`disk`] a disk behind it; [`proxy`] is a bad network on the way
//! to a target, and [`mod@line`] a slow one; [`tasks`] keeps tasks open and ends them;
//! [`elsewhere`] is a store that answers when a test lets it. The tests are in `tests/`, a file
//! for each chapter, and say in their first line which requirement they prove.
//!
//! This is a library for tests: what does not come as it must ends in a panic that says so.
#![forbid(unsafe_code)]

pub mod disk;
pub mod elsewhere;
pub mod host;
pub mod initiator;
pub mod line;
mod local;
pub mod login;
pub mod mock;
pub mod proxy;
pub mod raw;
pub mod server;
pub mod tasks;

pub use host::Host;
pub use initiator::Initiator;
pub use line::Line;
pub use login::LoginPlan;
pub use mock::Mock;
pub use proxy::Digests;
pub use proxy::Fate;
pub use proxy::Passing;
pub use proxy::Proxy;
pub use raw::Heard;
pub use raw::Pdu;
pub use raw::Raw;
pub use server::Server;
pub use server::on_each_engine;
pub use server::on_each_plan;
pub use server::on_each_transport;
