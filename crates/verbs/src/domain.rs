// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A device, its protection domain, and the memory that it was shown.
//!
//! Memory of pools is shown once and stays so, slot by slot, as it is used first. No peer can reach
//! it: nobody is told a key of it.

use crate::abi;
use crate::abi::Context;
use crate::abi::DeviceAttr;
use crate::abi::Mr;
use crate::abi::Ops;
use crate::abi::Pd;
use crate::api::Api;
use crate::error::Doing;
use crate::error::VerbsError;
use crate::limits::PIECES;
use crate::limits::RECEIVES;
use crate::limits::SENDS;
use buf::Ground;
use rdma::adapter::Depths;
use std::collections::HashMap;
use std::ffi::CStr;
use std::ffi::c_int;
use std::fmt;
use std::mem::ManuallyDrop;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::ptr::with_exposed_provenance_mut;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::Weak;

/// A protection domain of a device, for all connections of this process that go over it.
pub(crate) struct Domain {
    api: &'static Api,
    context: NonNull<Context>,
    pd: NonNull<Pd>,
    pub(crate) facts: Facts,
    /// Memory of pools that was shown, by address.
    shown: Mutex<HashMap<usize, Shown>>,
}

/// What a device is.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) device: String,
    pub(crate) ops: Ops,
    /// Its Reads name the memory that they fill on the wire.
    pub(crate) is_iwarp: bool,
    pub(crate) invalidates: bool,
    pub(crate) works_max: usize,
    pub(crate) pieces_max: usize,
    pub(crate) completions_max: usize,
    /// Reads that it serves for a peer, and has under way, on one connection.
    pub(crate) reads_served: u8,
    pub(crate) reads_max: u8,
}

struct Shown {
    pages: u64,
    region: Region,
}

/// Memory that a device was shown, until this is dropped.
pub(crate) struct Region {
    api: &'static Api,
    mr: NonNull<Mr>,
}

// SAFETY: the libraries lock what they have for themselves, and nobody else has these pointers.
unsafe impl Send for Domain {}
// SAFETY: as for Send.
unsafe impl Sync for Domain {}
// SAFETY: a region may be given up by any thread.
unsafe impl Send for Region {}

/// Those that are in use, and the addresses of their contexts: who looks for one must not hold
/// another, which its last connection would then leave behind when it closes the device.
static DOMAINS: Mutex<Vec<(usize, Weak<Domain>)>> = Mutex::new(Vec::new());

impl Domain {
    /// That of the device which the library has opened as `context`. It closes one that was taken
    /// away with the last identifier of it, so who has a domain has such an identifier, and ends it
    /// later.
    pub(crate) fn of(
        api: &'static Api,
        context: NonNull<Context>,
    ) -> Result<Arc<Self>, VerbsError> {
        let mut all = DOMAINS.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(_, one)| one.strong_count() > 0);
        let place = context.as_ptr().addr();
        let mut of_device = all.iter().filter(|(known, _)| *known == place);
        if let Some(found) = of_device.find_map(|(_, one)| one.upgrade()) {
            return Ok(found);
        }
        let facts = Facts::ask(api, context)?;
        // SAFETY: the device is open.
        let pd = unsafe { (api.ibv_alloc_pd)(context.as_ptr()) };
        let pd = NonNull::new(pd).ok_or_else(|| VerbsError::last(Doing::Domain))?;
        let domain = Arc::new(Self { api, context, pd, facts, shown: Mutex::default() });
        all.push((place, Arc::downgrade(&domain)));
        Ok(domain)
    }

    pub(crate) const fn context(&self) -> NonNull<Context> {
        self.context
    }

    pub(crate) const fn pd(&self) -> NonNull<Pd> {
        self.pd
    }

    /// The local key of a pool's memory, for who has a buffer there. It is shown now if it was not
    /// before.
    pub(crate) fn key(&self, ground: Ground) -> Result<u32, VerbsError> {
        let mut shown = self.shown();
        if let Some(known) = shown.get(&ground.address)
            && known.pages == ground.pages
        {
            return Ok(known.region.key());
        }
        // What the device knew there is gone from the pool, so nobody uses it.
        shown.remove(&ground.address);
        let region = self.register(ground.address, ground.length, abi::LOCAL_WRITE)?;
        let key = region.key();
        shown.insert(ground.address, Shown { pages: ground.pages, region });
        Ok(key)
    }

    /// Shows a device memory that stays where it is until the region is dropped.
    pub(crate) fn register(
        &self,
        address: usize,
        length: usize,
        access: c_int,
    ) -> Result<Region, VerbsError> {
        let place = with_exposed_provenance_mut(address);
        // SAFETY: the domain is there. The address is only told: what the device may do with memory
        // is said by what is posted.
        let mr = unsafe { (self.api.ibv_reg_mr)(self.pd.as_ptr(), place, length, access) };
        let mr = NonNull::new(mr).ok_or_else(|| VerbsError::last(Doing::Register))?;
        Ok(Region { api: self.api, mr })
    }

    fn shown(&self) -> MutexGuard<'_, HashMap<usize, Shown>> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        self.shown().clear();
        // SAFETY: what was made in the domain is gone: each connection has held it until then.
        unsafe { (self.api.ibv_dealloc_pd)(self.pd.as_ptr()) };
    }
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Domain").field("device", &self.facts.device).finish_non_exhaustive()
    }
}

impl Facts {
    /// What may be under way on a connection, with so many Reads.
    pub(crate) fn depths(&self, reads: u8) -> Result<Depths, VerbsError> {
        let needs = |what, has, wanted| match has < wanted {
            true => Err(VerbsError::TooFew { device: self.device.clone(), what, has, wanted }),
            false => Ok(()),
        };
        let sends = self.works_max.saturating_sub(usize::from(reads)).min(SENDS);
        needs("pieces of a message", self.pieces_max, PIECES)?;
        needs("receive buffers of a queue pair", self.works_max, RECEIVES)?;
        needs("operations of a queue pair", sends, SENDS / 4)?;
        Ok(Depths { sends, reads: reads.into(), receives: RECEIVES })
    }

    pub(crate) fn ask(api: &Api, context: NonNull<Context>) -> Result<Self, VerbsError> {
        // SAFETY: the device is open, and what the library says there does not change.
        let raw = unsafe { context.as_ref() };
        let mut attr = MaybeUninit::<DeviceAttr>::zeroed();
        // SAFETY: the device is open, and the place is ours.
        let errno = unsafe { (api.ibv_query_device)(context.as_ptr(), attr.as_mut_ptr()) };
        if errno != 0 {
            return Err(VerbsError::of(Doing::Query, errno));
        }
        // SAFETY: any bits are such a value; they are zero where nothing was written.
        let attr = unsafe { attr.assume_init() };
        // SAFETY: the library keeps the devices of open contexts.
        let device = unsafe { raw.device.as_ref() };
        let depth = |depth: c_int| u8::try_from(depth.max(0)).unwrap_or(u8::MAX);
        let count = |count: c_int| usize::try_from(count).unwrap_or(0);
        Ok(Self {
            device: device.map_or_else(String::new, name_of),
            ops: raw.ops,
            is_iwarp: device.is_some_and(|device| device.transport_type == abi::IWARP),
            invalidates: attr.capabilities & abi::INVALIDATES != 0,
            works_max: count(attr.max_qp_wr),
            pieces_max: count(attr.max_sge),
            completions_max: count(attr.max_cqe),
            reads_served: depth(attr.max_qp_rd_atom),
            reads_max: depth(attr.max_qp_init_rd_atom),
        })
    }
}

/// A device's name, which ends with a zero.
pub(crate) fn name_of(device: &abi::Device) -> String {
    let bytes: Vec<u8> = device.name.iter().map(|byte| byte.cast_unsigned()).collect();
    let name = CStr::from_bytes_until_nul(&bytes);
    name.map_or_else(|_| String::new(), |name| name.to_string_lossy().into_owned())
}

impl Region {
    /// Its local key.
    pub(crate) fn key(&self) -> u32 {
        // SAFETY: it is registered, and what the library says there does not change.
        unsafe { self.mr.as_ref() }.lkey
    }

    /// The key by which peers reach it.
    pub(crate) fn remote_key(&self) -> u32 {
        // SAFETY: as in `key`.
        unsafe { self.mr.as_ref() }.rkey
    }

    /// Takes it from the device, and from all peers; an error: the device still has it.
    pub(crate) fn end(self) -> Result<(), VerbsError> {
        match ManuallyDrop::new(self).deregister() {
            0 => Ok(()),
            errno => Err(VerbsError::of(Doing::Deregister, errno.saturating_abs())),
        }
    }

    /// Once.
    fn deregister(&self) -> c_int {
        // SAFETY: it was registered, and nothing that we post is under way in it: who posts keeps
        // it until the end of that.
        unsafe { (self.api.ibv_dereg_mr)(self.mr.as_ptr()) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.deregister();
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region").field("key", &self.key()).finish_non_exhaustive()
    }
}
