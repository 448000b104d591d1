// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The connection manager: identifiers and what happens to them.

use crate::abi;
use crate::abi::CmEvent;
use crate::abi::CmId;
use crate::abi::ConnParam;
use crate::abi::Context;
use crate::abi::EventChannel;
use crate::abi::SocketAddress;
use crate::api::Api;
use crate::error::Doing;
use crate::error::VerbsError;
use crate::limits::PRIVATE_MAX;
use rustix::event::epoll;
use std::ffi::c_int;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::ptr::null;
use std::ptr::null_mut;
use std::time::Duration;

/// Where events of identifiers come.
#[derive(Debug)]
pub(crate) struct Channel {
    api: &'static Api,
    raw: NonNull<EventChannel>,
}

// SAFETY: the library locks what it has for itself; each channel has one owner.
unsafe impl Send for Channel {}

/// What has happened.
#[derive(Debug)]
pub(crate) struct Happened {
    pub(crate) event: c_int,
    pub(crate) status: c_int,
    /// Of a connection that stands: Reads that each side serves and has under way.
    pub(crate) reads: (u8, u8),
    /// Of a connection that wants to begin: it is ours from now on.
    pub(crate) request: Option<Request>,
}

/// A connection that wants to begin.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) id: NonNull<CmId>,
    pub(crate) private_data: Vec<u8>,
    /// Reads that the peer has under way, and that it serves.
    pub(crate) reads_asked: u8,
    pub(crate) reads_served: u8,
}

impl Channel {
    pub(crate) fn new(api: &'static Api) -> Result<Self, VerbsError> {
        // SAFETY: it takes nothing.
        let raw = unsafe { (api.rdma_create_event_channel)() };
        let raw = NonNull::new(raw).ok_or_else(|| VerbsError::last(Doing::Begin))?;
        let channel = Self { api, raw };
        let failed = |error: rustix::io::Errno| VerbsError::of(Doing::Begin, error.raw_os_error());
        rustix::io::ioctl_fionbio(channel.fd(), true).map_err(failed)?;
        Ok(channel)
    }

    /// Can be read when something has happened.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel is there, and its descriptor does not change.
        let fd = unsafe { self.raw.as_ref() }.fd;
        // SAFETY: it is open as long as the channel is there.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }

    /// The next thing that has happened, if any.
    pub(crate) fn next(&self) -> Option<Happened> {
        let mut event: *mut CmEvent = null_mut();
        // SAFETY: the channel is there, and the place is ours.
        let failed = unsafe { (self.api.rdma_get_cm_event)(self.raw.as_ptr(), &raw mut event) };
        if failed != 0 {
            return None;
        }
        // SAFETY: the library has given it, until it is acknowledged below.
        let seen = unsafe { event.as_ref() }?;
        let request = match seen.event {
            abi::CONNECT_REQUEST => NonNull::new(seen.id).map(|id| Request {
                id,
                private_data: private_data(&seen.conn),
                reads_asked: seen.conn.responder_resources,
                reads_served: seen.conn.initiator_depth,
            }),
            _ => None,
        };
        let reads = (seen.conn.responder_resources, seen.conn.initiator_depth);
        let happened = Happened { event: seen.event, status: seen.status, reads, request };
        // SAFETY: it was given just now, and nobody looks at it any more.
        unsafe { (self.api.rdma_ack_cm_event)(event) };
        Some(happened)
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: its identifiers are gone: they hold it, and are destroyed before it. All events
        // were acknowledged.
        unsafe { (self.api.rdma_destroy_event_channel)(self.raw.as_ptr()) };
    }
}

fn private_data(param: &ConnParam) -> Vec<u8> {
    let length = usize::from(param.private_data_len).min(PRIVATE_MAX);
    if param.private_data.is_null() || length == 0 {
        return Vec::new();
    }
    // SAFETY: the event that has it was not acknowledged, and says how long it is.
    unsafe { std::slice::from_raw_parts(param.private_data.cast::<u8>(), length) }.to_vec()
}

/// An identifier: of a listener, or of one connection.
#[derive(Debug)]
pub(crate) struct Id {
    api: &'static Api,
    raw: NonNull<CmId>,
    /// Dropped behind `raw`, which the destructor ends.
    pub(crate) channel: Channel,
}

// SAFETY: as for `Channel`.
unsafe impl Send for Id {}
// SAFETY: the library locks an identifier where several threads may use one, and the kernel a
// channel.
unsafe impl Sync for Id {}

impl Id {
    /// One that nothing has happened to.
    pub(crate) fn new(api: &'static Api) -> Result<Self, VerbsError> {
        let channel = Channel::new(api)?;
        let mut id = null_mut();
        let (place, ports) = (&raw mut id, abi::PORTS_OF_TCP);
        // SAFETY: the channel is there and outlives the identifier; the place is ours.
        let failed =
            unsafe { (api.rdma_create_id)(channel.raw.as_ptr(), place, null_mut(), ports) };
        match NonNull::new(id) {
            Some(raw) if failed == 0 => Ok(Self { api, raw, channel }),
            _ => Err(VerbsError::last(Doing::Begin)),
        }
    }

    /// That of a connection that wants to begin, with a channel of its own.
    pub(crate) fn of_request(api: &'static Api, raw: NonNull<CmId>) -> Result<Self, VerbsError> {
        let moved = Channel::new(api).and_then(|channel| {
            // SAFETY: both are there, and all events of the identifier were acknowledged.
            match unsafe { (api.rdma_migrate_id)(raw.as_ptr(), channel.raw.as_ptr()) } {
                0 => Ok(channel),
                _ => Err(VerbsError::last(Doing::TakeOver)),
            }
        });
        match moved {
            Ok(channel) => Ok(Self { api, raw, channel }),
            Err(error) => {
                // SAFETY: the library has given it to us, and nobody else knows it. Who asked is
                // told no.
                unsafe { (api.rdma_destroy_id)(raw.as_ptr()) };
                Err(error)
            }
        }
    }

    pub(crate) const fn raw(&self) -> NonNull<CmId> {
        self.raw
    }

    /// What it listens at is of one family: two may listen at `0.0.0.0` and at `[::]`, as with
    /// sockets. Comes before `bind`.
    pub(crate) fn keep_to_family(&self) -> Result<(), VerbsError> {
        let (level, option) = abi::OWN_FAMILY_ALONE;
        let mut yes: c_int = 1;
        let (value, length) = ((&raw mut yes).cast(), size_of::<c_int>());
        let id = self.raw.as_ptr();
        // SAFETY: the identifier is there, and the value is as long as is said.
        match unsafe { (self.api.rdma_set_option)(id, level, option, value, length) } {
            0 => Ok(()),
            _ => Err(VerbsError::last(Doing::Bind)),
        }
    }

    pub(crate) fn bind(&self, address: SocketAddr) -> Result<(), VerbsError> {
        let mut raw = SocketAddress::from(address);
        // SAFETY: the identifier is there, and the address is whole.
        match unsafe { (self.api.rdma_bind_addr)(self.raw.as_ptr(), &raw mut raw) } {
            0 => Ok(()),
            _ => Err(VerbsError::last(Doing::Bind)),
        }
    }

    pub(crate) fn listen(&self, backlog: c_int) -> Result<(), VerbsError> {
        // SAFETY: the identifier is there.
        match unsafe { (self.api.rdma_listen)(self.raw.as_ptr(), backlog) } {
            0 => Ok(()),
            _ => Err(VerbsError::last(Doing::Listen)),
        }
    }

    /// The device that it goes over.
    pub(crate) fn device(&self) -> Option<NonNull<Context>> {
        NonNull::new(self.look().verbs)
    }

    pub(crate) fn local(&self) -> Option<SocketAddr> {
        self.look().local.address()
    }

    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.look().peer.address()
    }

    /// Looks for a device that leads to an address; an event tells.
    pub(crate) fn resolve_address(
        &self,
        address: SocketAddr,
        timeout: Duration,
    ) -> Result<(), VerbsError> {
        let mut raw = SocketAddress::from(address);
        let (id, to) = (self.raw.as_ptr(), &raw mut raw);
        // SAFETY: the identifier is there, and the address is whole; ours is left to the system.
        match unsafe { (self.api.rdma_resolve_addr)(id, null_mut(), to, millis(timeout)) } {
            0 => Ok(()),
            _ => Err(VerbsError::last(Doing::Resolve)),
        }
    }

    /// Looks for the way there; an event tells.
    pub(crate) fn resolve_route(&self, timeout: Duration) -> Result<(), VerbsError> {
        // SAFETY: the identifier is there.
        match unsafe { (self.api.rdma_resolve_route)(self.raw.as_ptr(), millis(timeout)) } {
            0 => Ok(()),
            _ => Err(VerbsError::last(Doing::Route)),
        }
    }

    /// Asks for a connection, with these bytes; an event tells.
    pub(crate) fn connect(&self, private_data: &[u8], reads: (u8, u8)) -> Result<(), VerbsError> {
        let mut param = connection_param(private_data, reads);
        // SAFETY: the identifier is there and has a queue pair; the private data is copied.
        match unsafe { (self.api.rdma_connect)(self.raw.as_ptr(), &raw mut param) } {
            0 => Ok(()),
            _ => Err(VerbsError::last(Doing::Connect).or_refused()),
        }
    }

    /// Says yes, with these bytes.
    pub(crate) fn accept(&self, private_data: &[u8], reads: (u8, u8)) -> Result<(), VerbsError> {
        let mut param = connection_param(private_data, reads);
        // SAFETY: the identifier is there and has a queue pair; the private data is copied.
        match unsafe { (self.api.rdma_accept)(self.raw.as_ptr(), &raw mut param) } {
            0 => Ok(()),
            _ => Err(VerbsError::last(Doing::Accept)),
        }
    }

    /// Says no.
    pub(crate) fn reject(&self) {
        // SAFETY: the identifier is there. Who asked may be gone.
        unsafe { (self.api.rdma_reject)(self.raw.as_ptr(), null(), 0) };
    }

    /// Ends the connection; the peer hears of it.
    pub(crate) fn disconnect(&self) {
        // SAFETY: the identifier is there. It may have ended already.
        unsafe { (self.api.rdma_disconnect)(self.raw.as_ptr()) };
    }

    fn look(&self) -> &CmId {
        // SAFETY: the identifier is there; what is read was set before we were given it.
        unsafe { self.raw.as_ref() }
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        // SAFETY: nobody else has it; its queue pair is gone, and its events were acknowledged.
        unsafe { (self.api.rdma_destroy_id)(self.raw.as_ptr()) };
    }
}

fn connection_param(private_data: &[u8], (reads_served, reads): (u8, u8)) -> ConnParam {
    ConnParam {
        private_data: private_data.as_ptr().cast(),
        private_data_len: u8::try_from(private_data.len()).unwrap_or(0),
        responder_resources: reads_served,
        initiator_depth: reads,
        flow_control: 1,
        retry_count: RETRIES,
        rnr_retry_count: FOR_EVER,
        srq: 0,
        qp_number: 0,
    }
}

fn millis(time: Duration) -> c_int {
    c_int::try_from(time.as_millis()).unwrap_or(c_int::MAX).max(1)
}

/// One descriptor that can be read when any of these can: who watches it does not change how they
/// are read.
pub(crate) fn watch<const N: usize>(fds: [BorrowedFd<'_>; N]) -> rustix::io::Result<OwnedFd> {
    let all = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for fd in fds {
        epoll::add(&all, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    }
    Ok(all)
}

/// How often the adapter sends again what is not acknowledged; the most that there is.
const RETRIES: u8 = 7;

/// And what the peer has no buffer for: for ever.
const FOR_EVER: u8 = 7;
