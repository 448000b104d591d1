// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory of ours that peers reach: of one task each, under a key of its own, with no more rights
//! than the task needs.

use crate::abi;
use crate::domain::Domain;
use crate::domain::Region;
use crate::error::VerbsError;
use crate::failure::Failure;
use crate::manager::Id;
use rdma::adapter::Registry;
use rdma::region::Memory;
use std::collections::HashMap;
use std::sync::Arc;
use wire::iwarp::Stag;
use wire::iwarp::TaggedOffset;

/// Lets the peer of a connection reach memory. It is in here as long as that can.
#[derive(Debug)]
pub struct Keys {
    shown: HashMap<u32, Shown>,
    failure: Failure,
    /// Behind `shown`: it takes the memory from the device that it was shown to.
    domain: Arc<Domain>,
    /// Last: a device that was taken away is closed with the last identifier of it.
    #[expect(dead_code, reason = "held, not read")]
    id: Arc<Id>,
}

#[derive(Debug)]
struct Shown {
    region: Region,
    memory: Memory,
}

impl Keys {
    pub(crate) fn new((domain, id): (Arc<Domain>, Arc<Id>), failure: Failure) -> Self {
        Self { shown: HashMap::new(), failure, domain, id }
    }

    fn register(&self, memory: &Memory) -> Result<(Region, usize), VerbsError> {
        let (address, length, access) = match memory {
            Memory::Sink(buf) => (buf.as_ptr(), buf.len(), abi::LOCAL_WRITE | abi::REMOTE_WRITE),
            Memory::Source(slice) => (slice.as_ptr(), slice.len(), abi::REMOTE_READ),
        };
        let address = address.expose_provenance();
        Ok((self.domain.register(address, length, access)?, address))
    }
}

impl Registry for Keys {
    fn show(&mut self, memory: Memory) -> Result<(Stag, TaggedOffset), Memory> {
        match self.register(&memory) {
            Ok((region, address)) => {
                let key = region.remote_key();
                let before = self.shown.insert(key, Shown { region, memory });
                debug_assert!(before.is_none(), "a device has each key once");
                Ok((Stag(key), TaggedOffset(address as u64)))
            }
            Err(error) => {
                // With others under way there may be room later.
                if self.shown.is_empty() {
                    self.failure.note(error);
                }
                Err(memory)
            }
        }
    }

    fn take_back(&mut self, key: Stag) -> Option<Memory> {
        let Shown { region, memory } = self.shown.remove(&key.0)?;
        match region.end() {
            Ok(()) => Some(memory),
            Err(error) => {
                tracing::error!(device = self.domain.facts.device, %error, "memory is lost");
                self.failure.note(error);
                // The peer may reach it as long as this process lives.
                std::mem::forget(memory);
                None
            }
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        let keys: Vec<u32> = self.shown.keys().copied().collect();
        for key in keys {
            drop(self.take_back(Stag(key)));
        }
    }
}
