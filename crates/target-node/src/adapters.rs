// SPDX-License-Identifier: Apache-2.0 OR MIT
//! At which addresses RDMA adapters take connections.

use crate::node::Portal;
use crate::rdma::Rdma;
use verbs::Listener;
use verbs::VerbsError;

/// Where RDMA adapters take connections; nowhere by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs)] // it must, or it may be
pub struct Adapters {
    /// At these addresses.
    pub at: Vec<Portal>,
    /// At those of these addresses that an adapter has.
    pub where_any: Vec<Portal>,
}

impl Adapters {
    /// Opens what there is, which `portals` has afterwards.
    pub(crate) fn listen(&self, portals: &mut Vec<Portal>) -> Result<Vec<Listener>, VerbsError> {
        let must = self.at.iter().map(|portal| (*portal, true));
        let may = self.where_any.iter().map(|portal| (*portal, false));
        let mut listeners = Vec::new();
        for (portal, must) in must.chain(may) {
            match Listener::new(portal.address) {
                Ok(listener) => {
                    // Where no socket listens beside it, nothing comes by software iWARP.
                    let rdma = Some(Rdma::Off);
                    let portal = Portal { address: listener.address(), rdma, ..portal };
                    let is_it =
                        |one: &Portal| (one.address, one.group) == (portal.address, portal.group);
                    if !portals.iter().any(is_it) {
                        portals.push(portal);
                    }
                    listeners.push(listener);
                }
                Err(error) if must => return Err(error),
                Err(error) => tracing::info!(%error, "no RDMA adapter at a portal"),
            }
        }
        Ok(listeners)
    }
}
