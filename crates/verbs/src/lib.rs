// SPDX-License-Identifier: Apache-2.0 OR MIT
//! RDMA adapters by rdma-core, which is loaded when one is asked for; pumps drive the connections.
//!
//! ```text
//! adapter.rs     what pumps drive, whoever carries it out; safe code
//! listener.rs    an address, and connections that want to begin; safe code
//! outgoing.rs    connections that we ask for; safe code
//! connection.rs  a Post begins under a number; the adapter says the number when it is complete,
//!                which makes a Done
//! keys.rs        memory that peers reach, and its keys
//! queue.rs       queue pair and completion queue
//! failure.rs     why a connection has ended, for who asks later; safe code
//! domain.rs      a device, and the memory that it was shown
//! manager.rs     the connection manager's identifiers and events
//! device.rs      which devices there are
//! address.rs     addresses as the C library has them; safe code
//! abi.rs         what the libraries have in memory
//! api.rs         their functions, found by name
//! ```
//!
//! Whether a connection goes over RoCE, InfiniBand or an iWARP adapter, only `domain.rs` asks.

mod abi;
mod adapter;
mod address;
mod api;
mod connection;
mod device;
mod domain;
mod error;
mod failure;
mod keys;
mod limits;
mod listener;
mod manager;
mod outgoing;
mod queue;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;

pub use adapter::Adapter;
pub use adapter::Asking;
pub use connection::Connection;
pub use connection::Facts;
pub use device::Ability;
pub use device::Device;
pub use device::Kind;
pub use device::at;
pub use device::devices;
pub use error::Doing;
pub use error::LibraryError;
pub use error::VerbsError;
pub use keys::Keys;
pub use listener::Incoming;
pub use listener::Listener;
pub use outgoing::Outgoing;
