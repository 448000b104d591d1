// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which adapters this machine has.

use crate::abi;
use crate::api::Api;
use crate::domain::Facts;
use crate::domain::name_of;
use crate::error::LibraryError;
use crate::error::VerbsError;
use crate::limits::READS_MAX;
use crate::manager::Id;
use std::net::SocketAddr;
use std::ptr::NonNull;

/// An adapter.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Device {
    /// As the system calls it.
    pub name: String,
    /// What it speaks.
    pub kind: Kind,
}

/// What an adapter speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // its ports are those of TCP, or they are not
pub enum Kind {
    /// iWARP.
    Iwarp,
    /// InfiniBand, on a network of its own or on Ethernet (RoCE).
    Infiniband,
}

/// What a connection over an adapter can have.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ability {
    /// The adapter.
    pub device: Device,
    /// RDMA Reads of a peer that it serves at once (IRD), at most.
    pub ird: u8,
    /// RDMA Reads of ours that it has under way (ORD), at most.
    pub ord: u8,
    /// Buffers for messages that a session's connection registers with it.
    pub buffers: usize,
}

/// The adapter that has an address of this machine, and what it can. None: all of them have it.
/// The port matters to nobody: one that serves there is not disturbed.
///
/// # Errors
/// There is no library, no adapter has the address, or what has it is too small for us.
pub fn at(address: SocketAddr) -> Result<Option<Ability>, VerbsError> {
    look_at(Api::load()?, address)
}

pub(crate) fn look_at(
    api: &'static Api,
    address: SocketAddr,
) -> Result<Option<Ability>, VerbsError> {
    // It keeps its scope, without which an address of a link leads nowhere.
    let mut any_port = address;
    any_port.set_port(0);
    let looked = || {
        let id = Id::new(api)?;
        id.bind(any_port)?;
        let Some(context) = id.device() else { return Ok(None) };
        let facts = Facts::ask(api, context)?;
        let depths = facts.depths(facts.reads_max.min(READS_MAX))?;
        let kind = if facts.is_iwarp { Kind::Iwarp } else { Kind::Infiniband };
        Ok(Some(Ability {
            device: Device { name: facts.device, kind },
            ird: facts.reads_served,
            ord: facts.reads_max.min(READS_MAX),
            buffers: depths.receives,
        }))
    };
    looked().map_err(|error: VerbsError| error.at(address))
}

/// The adapters of this machine.
///
/// # Errors
/// There is no library that could tell.
pub fn devices() -> Result<Vec<Device>, LibraryError> {
    Ok(look(Api::load()?))
}

pub(crate) fn look(api: &Api) -> Vec<Device> {
    let mut count = 0;
    // SAFETY: the place is ours.
    let list = unsafe { (api.ibv_get_device_list)(&raw mut count) };
    let Some(list) = NonNull::new(list) else { return Vec::new() };
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: the library has given a list of so many.
    let all = unsafe { std::slice::from_raw_parts(list.as_ptr().cast_const(), count) };
    let seen = all.iter().filter_map(|device| {
        // SAFETY: what is in the list is there until the list is given back.
        let device = unsafe { device.as_ref() }?;
        let kind = match device.transport_type {
            abi::IWARP => Kind::Iwarp,
            _ => Kind::Infiniband,
        };
        Some(Device { name: name_of(device), kind })
    });
    let seen = seen.collect();
    // SAFETY: it was given just now, and nothing of it is used any more.
    unsafe { (api.ibv_free_device_list)(list.as_ptr()) };
    seen
}
