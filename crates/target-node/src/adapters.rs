// SPDX-License-Identifier: Apache-2.0 OR MIT
//! At which addresses RDMA adapters take connections.

use crate::catalogue::portal_of;
use crate::node::Portal;
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
    /// Opens what there is, beside the sockets of `portals`, and tells where it is.
    pub(crate) fn listen(
        &self,
        portals: &[Portal],
    ) -> Result<(Vec<Listener>, Vec<Portal>), VerbsError> {
        let must = self.at.iter().map(|portal| (*portal, true));
        let may = self.where_any.iter().map(|portal| (*portal, false));
        let (mut listeners, mut places) = (Vec::new(), Vec::new());
        for (portal, must) in must.chain(may) {
            match Listener::new(portal.address) {
                Ok(listener) => {
                    let portal = Portal { address: listener.address(), ..portal };
                    places.push(beside(portals, portal));
                    listeners.push(listener);
                }
                Err(error) if must => return Err(error),
                Err(error) => tracing::info!(%error, "no RDMA adapter at a portal"),
            }
        }
        Ok((listeners, places))
    }
}

/// An adapter's portal at an address that sockets have, too, is in their portal group: an address
/// is in one (RFC 7143 §4.4.1).
fn beside(portals: &[Portal], adapter: Portal) -> Portal {
    let socket = portal_of(portals, adapter.address);
    Portal { group: socket.map_or(adapter.group, |socket| socket.group), ..adapter }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_in_one_portal_group() {
        let portal = |text: &str, group| {
            let address: std::net::SocketAddr = text.parse().unwrap();
            Portal { group, ..address.into() }
        };
        let sockets =
            [portal("0.0.0.0:3260", 2), portal("[::]:3260", 3), portal("192.0.2.1:3261", 4)];
        for (address, group) in [
            ("192.0.2.1:3260", 2),
            ("[2001:db8::1]:3260", 3),
            ("192.0.2.1:3261", 4),
            ("192.0.2.2:3261", 1),
            ("192.0.2.1:3262", 1),
        ] {
            assert_eq!(beside(&sockets, portal(address, 1)), portal(address, group));
        }
    }
}
