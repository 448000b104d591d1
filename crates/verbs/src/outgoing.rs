// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections that we ask for; safe code.
//!
//! ```text
//!   --resolve_address--> a device --resolve_route--> a way there --connect--> it stands
//! ```

use crate::abi;
use crate::api::Api;
use crate::connection::Connection;
use crate::domain::Domain;
use crate::error::Doing;
use crate::error::VerbsError;
use crate::limits::READS_MAX;
use crate::limits::READS_OF_INITIATORS;
use crate::manager::Happened;
use crate::manager::Id;
use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use std::net::SocketAddr;
use std::time::Duration;
use std::time::Instant;

/// A connection that we have asked for, and that stands.
#[derive(Debug)]
pub struct Outgoing(Connection);

/// How long something may take, and until when.
#[derive(Clone, Copy, Debug)]
struct Patience {
    timeout: Duration,
    until: Instant,
}

impl Outgoing {
    /// Connects to `address` over the adapter that leads there, and tells who is there these bytes.
    /// Waits for that, `timeout` at most.
    ///
    /// # Errors
    /// There is no library, no adapter leads there, it is not fit for it, nobody answers, or who is
    /// there says no.
    pub fn connect(
        address: SocketAddr,
        private_data: &[u8],
        timeout: Duration,
    ) -> Result<Self, VerbsError> {
        Self::with(Api::load()?, address, private_data, timeout)
    }

    pub(crate) fn with(
        api: &'static Api,
        address: SocketAddr,
        private_data: &[u8],
        timeout: Duration,
    ) -> Result<Self, VerbsError> {
        let patience = Patience { timeout, until: Instant::now() + timeout };
        let id = Id::new(api)?;
        id.resolve_address(address, timeout)?;
        patience.wait(&id, Doing::Resolve, abi::ADDRESS_RESOLVED)?;
        id.resolve_route(timeout)?;
        patience.wait(&id, Doing::Route, abi::ROUTE_RESOLVED)?;
        let no_device = || VerbsError::of(Doing::Resolve, NO_DEVICE);
        let domain = Domain::of(api, id.device().ok_or_else(no_device)?)?;
        let facts = &domain.facts;
        let depths = facts.depths(READS_OF_INITIATORS.min(facts.reads_max))?;
        let reads = (facts.reads_served.min(READS_MAX), READS_OF_INITIATORS.min(facts.reads_max));
        let mut connection = Connection::new(api, id, (domain, depths, reads))?;
        connection.id.connect(private_data, reads)?;
        let stands = patience.wait(&connection.id, Doing::Connect, abi::ESTABLISHED)?;
        // Who says nothing of it has agreed.
        if stands.reads != (0, 0) {
            connection.agree(stands.reads);
        }
        Ok(Self(connection))
    }

    /// The connection, which is to be furnished.
    #[must_use]
    pub fn into_connection(self) -> Connection {
        self.0
    }
}

impl Patience {
    /// Waits for an event, which ends what is done.
    fn wait(self, id: &Id, doing: Doing, wanted: i32) -> Result<Happened, VerbsError> {
        loop {
            while let Some(happened) = id.channel.next() {
                if happened.event == wanted {
                    return Ok(happened);
                }
                let errno = happened.status.saturating_abs();
                match happened.event {
                    abi::REJECTED => return Err(VerbsError::Rejected),
                    _ if happened.status == -TIMED_OUT => return Err(self.over(doing)),
                    abi::ADDRESS_ERROR
                    | abi::ROUTE_ERROR
                    | abi::CONNECT_ERROR
                    | abi::UNREACHABLE
                    | abi::DISCONNECTED
                    | abi::DEVICE_REMOVAL => return Err(VerbsError::of(doing, errno)),
                    _ => {}
                }
            }
            let left = self.until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.over(doing));
            }
            let mut fds = [PollFd::from_borrowed_fd(id.channel.fd(), PollFlags::IN)];
            match rustix::event::poll(&mut fds, Timespec::try_from(left).ok().as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(VerbsError::of(doing, errno.raw_os_error())),
            }
        }
    }

    const fn over(self, doing: Doing) -> VerbsError {
        VerbsError::TimedOut { doing, timeout: self.timeout }
    }
}

/// `ENODEV`.
const NO_DEVICE: i32 = 19;

/// `ETIMEDOUT`.
const TIMED_OUT: i32 = 110;
