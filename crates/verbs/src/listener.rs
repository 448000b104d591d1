// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where connections over adapters come in; safe code.

use crate::abi;
use crate::adapter::Adapter;
use crate::adapter::Asking;
use crate::api::Api;
use crate::connection::Connection;
use crate::domain::Domain;
use crate::error::Doing;
use crate::error::VerbsError;
use crate::limits::BACKLOG;
use crate::limits::READS_MAX;
use crate::manager::Id;
use crate::manager::Request;
use crate::manager::watch;
use buf::Pool;
use rdma::adapter::Depths;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// An address at which adapters take connections.
#[derive(Debug)]
pub struct Listener {
    api: &'static Api,
    id: Id,
    address: SocketAddr,
    /// Can be read when there is something to be accepted.
    watched: OwnedFd,
}

impl Listener {
    /// Takes connections that come to `address`, over any adapter that has it; port 0 lets the
    /// system choose.
    ///
    /// # Errors
    /// There is no library, no adapter has the address, or it is taken.
    pub fn new(address: SocketAddr) -> Result<Self, VerbsError> {
        Self::with(Api::load()?, address)
    }

    pub(crate) fn with(api: &'static Api, address: SocketAddr) -> Result<Self, VerbsError> {
        let opened = || {
            let id = Id::new(api)?;
            if address.is_ipv6() {
                id.keep_to_family()?;
            }
            id.bind(address)?;
            id.listen(BACKLOG)?;
            Ok(id)
        };
        let id: Id = opened().map_err(|error: VerbsError| error.at(address))?;
        let watched = watch([id.channel.fd()])
            .map_err(|errno| VerbsError::of(Doing::Listen, errno.raw_os_error()).at(address))?;
        let address = id.local().unwrap_or(address);
        Ok(Self { api, id, address, watched })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// A descriptor that can be read when there is something to be accepted.
    ///
    /// # Errors
    /// There are too many descriptors.
    pub fn watched(&self) -> io::Result<OwnedFd> {
        self.watched.try_clone()
    }

    /// The next connection that wants to begin, if any.
    ///
    /// # Errors
    /// There was one, and it cannot be served: the device is not fit for it, or something is
    /// exhausted. [`VerbsError::Gone`]: none comes any more, and the device waits for the end of
    /// the listener.
    pub fn next(&self) -> Result<Option<Incoming>, VerbsError> {
        while let Some(happened) = self.id.channel.next() {
            match happened.request {
                Some(request) => return Incoming::new(self.api, request).map(Some),
                None if happened.event == abi::DEVICE_REMOVAL => {
                    return Err(VerbsError::Gone { address: self.address });
                }
                None => {}
            }
        }
        Ok(None)
    }
}

/// A connection that wants to begin. Who asked is told no if it is dropped.
#[derive(Debug)]
pub struct Incoming {
    api: &'static Api,
    /// In that order, as in a connection. None: it has begun.
    asked: Option<(Arc<Domain>, Id)>,
    private_data: Vec<u8>,
    depths: Depths,
    /// Reads that the adapter serves, and has under way.
    reads: (u8, u8),
    peer: SocketAddr,
    local: SocketAddr,
}

impl Incoming {
    fn new(api: &'static Api, request: Request) -> Result<Self, VerbsError> {
        let Request { id, private_data, reads_asked, reads_served } = request;
        let id = Id::of_request(api, id)?;
        let gone = || VerbsError::of(Doing::TakeOver, NO_DEVICE);
        let domain = Domain::of(api, id.device().ok_or_else(gone)?)?;
        let (peer, local) = (id.peer().ok_or_else(gone)?, id.local().ok_or_else(gone)?);
        let facts = &domain.facts;
        let reads = reads_served.min(facts.reads_max).min(READS_MAX);
        let depths = facts.depths(reads)?;
        let reads = (reads_asked.min(facts.reads_served), reads);
        let asked = Some((domain, id));
        Ok(Self { api, asked, private_data, depths, reads, peer, local })
    }

    /// What the peer says to the upper layer.
    #[must_use]
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// What may be under way.
    #[must_use]
    pub const fn depths(&self) -> Depths {
        self.depths
    }

    /// Who asks.
    #[must_use]
    pub const fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Where.
    #[must_use]
    pub const fn local(&self) -> SocketAddr {
        self.local
    }

    /// Makes the queue pair; it has no buffers yet, and nothing comes before `accept`. What it
    /// needs itself it takes from `pool`.
    ///
    /// # Errors
    /// Something is exhausted.
    pub fn prepare(mut self, pool: &Pool) -> Result<Connection, VerbsError> {
        let Some((domain, id)) = self.asked.take() else {
            return Err(VerbsError::of(Doing::TakeOver, NO_DEVICE));
        };
        let mut connection = Connection::new(self.api, id, (domain, self.depths, self.reads))?;
        connection.furnish(pool)?;
        Ok(connection)
    }
}

impl Asking for Incoming {
    fn private_data(&self) -> &[u8] {
        Self::private_data(self)
    }

    fn depths(&self) -> Depths {
        Self::depths(self)
    }

    fn peer(&self) -> SocketAddr {
        Self::peer(self)
    }

    fn local(&self) -> SocketAddr {
        Self::local(self)
    }

    fn prepare(self: Box<Self>, pool: &Pool) -> Result<Box<dyn Adapter>, VerbsError> {
        Ok(Box::new(Self::prepare(*self, pool)?))
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if let Some((_, id)) = &self.asked {
            id.reject();
        }
    }
}

/// `ENODEV`.
const NO_DEVICE: i32 = 19;
