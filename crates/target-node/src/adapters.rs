// SPDX-License-Identifier: Apache-2.0 OR MIT
//! At which addresses RDMA adapters take connections.

use crate::node::Portal;
use verbs::Listener;
use verbs::VerbsError;

/// Where RDMA adapters take connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // nowhere, or it must, or it may be
pub enum Adapters {
    /// Nowhere.
    #[default]
    Off,
    /// At these addresses.
    At(Vec<Portal>),
    /// At those of these addresses that an adapter has.
    Where(Vec<Portal>),
}

impl Adapters {
    /// Opens what there is, which `portals` has afterwards.
    pub(crate) fn listen(&self, portals: &mut Vec<Portal>) -> Result<Vec<Listener>, VerbsError> {
        let (wanted, must) = match self {
            Self::Off => return Ok(Vec::new()),
            Self::At(wanted) => (wanted, true),
            Self::Where(wanted) => (wanted, false),
        };
        let mut listeners = Vec::new();
        for portal in wanted.iter().copied() {
            match Listener::new(portal.address) {
                Ok(listener) => {
                    let portal = Portal { address: listener.address(), ..portal };
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
