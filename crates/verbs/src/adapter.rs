// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What pumps know of an adapter: a connection that takes posts and tells what it has done, however
//! it does that. [`Connection`](crate::Connection) is one over rdma-core; tests and the simulator
//! play others.

use crate::connection::Facts;
use crate::error::VerbsError;
use buf::Pool;
use rdma::adapter::Depths;
use rdma::adapter::Done;
use rdma::adapter::Post;
use rdma::adapter::Registry;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// A connection over an adapter: takes [`Post`]s, gives [`Done`]s.
pub trait Adapter: fmt::Debug + Send {
    /// Takes what it needs itself from `pool`, before anything is posted.
    ///
    /// # Errors
    /// There is no memory for it.
    fn furnish(&mut self, pool: &Pool) -> Result<(), VerbsError>;

    /// Says yes to who asked for the connection, with these bytes. Buffers for what comes first
    /// were posted.
    ///
    /// # Errors
    /// It is gone.
    fn accept(&self, private_data: &[u8]) -> Result<(), VerbsError>;

    /// Begins what is posted. What cannot be begun ends the connection.
    fn post(&mut self, post: Post);

    /// The descriptor can be read: what there is to be looked at, `poll` finds.
    fn look(&mut self);

    /// The next thing that the adapter has done.
    fn poll(&mut self) -> Option<Done>;

    /// Whether `poll` has something that it found already.
    fn has_done(&self) -> bool;

    /// Sends, Writes and Reads that are under way.
    fn under_way(&self) -> usize;

    /// Ends the connection in good order: nothing is under way.
    fn shutdown(&self);

    /// A descriptor that can be read when there is something to be looked at.
    ///
    /// # Errors
    /// There are too many descriptors.
    fn watched(&self) -> io::Result<OwnedFd>;

    /// What lets the peer reach memory of ours.
    fn registry(&self) -> Box<dyn Registry>;

    /// What may be under way.
    fn depths(&self) -> Depths;

    /// Whether it goes over iWARP.
    fn is_iwarp(&self) -> bool;

    /// Why it has ended, if something went wrong; once.
    fn take_failure(&self) -> Option<VerbsError>;

    /// What it is, for people. Looks at all that is under way.
    fn facts(&self) -> Facts;
}

/// A connection over an adapter that somebody asks for. Who asked is told no if it is dropped.
pub trait Asking: fmt::Debug + Send {
    /// What the peer says to the upper layer.
    fn private_data(&self) -> &[u8];

    /// What may be under way.
    fn depths(&self) -> Depths;

    /// Who asks.
    fn peer(&self) -> SocketAddr;

    /// Where.
    fn local(&self) -> SocketAddr;

    /// Makes the connection; it has no buffers yet, and nothing comes before it is accepted. What
    /// it needs itself it takes from `pool`.
    ///
    /// # Errors
    /// Something is exhausted.
    fn prepare(self: Box<Self>, pool: &Pool) -> Result<Box<dyn Adapter>, VerbsError>;
}
