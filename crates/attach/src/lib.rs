// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Remote disks for programs that know nothing of iSCSI. The command `lunwire attach` calls it.
//!
//! [`NbdServer`] serves one [`Disk`](initiator::Disk) to any number of NBD clients, in a thread of
//! its own:
//!
//! ```text
//! door.rs ---connections---> server/thread.rs <---ends of operations--- initiator::CompletionQueue
//!                              | client.rs   a connection: nbd::Handshake, nbd::Receiver, replies
//!                              | split.rs    what a request is to a disk of blocks
//!                              ' carrier.rs  requests, from their parts to their ends
//!                                 | work.rs  what is under way, and what must wait for it
//!                                 ' keep.rs  what was written and not flushed
//! ```
//!
//! [`FuseServer`] makes it a file (`fuse.rs`), [`UblkServer`] a block device (`ublk.rs`), on the
//! same carrier.
//!
//! Clients may read and write any bytes; the disk has blocks. A write that begins or ends within a
//! block has the rest of it read before, and no other write is under way there meanwhile
//! (`work.rs`): so two clients that write to one block lose nothing of each other.
#![forbid(unsafe_code)]

mod carrier;
mod client;
mod door;
mod edges;
mod fuse;
mod keep;
mod limits;
mod server;
mod settling;
mod split;
mod tls;
mod ublk;
mod work;

pub use door::Address;
pub use door::AddressError;
pub use door::forget_socket;
pub use fuse::FuseServer;
pub use fuse::Left;
pub use fuse::MountError;
pub use fuse::forget;
pub use fuse::is_served;
pub use server::Error;
pub use server::NbdServer;
pub use server::News;
pub use server::Settings;
pub use tls::Tls;
pub use tls::TlsError;
pub use tls::TlsFiles;
pub use ublk::Device;
pub use ublk::UblkServer;
