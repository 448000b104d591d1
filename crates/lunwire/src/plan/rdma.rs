// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What carries iSER.

use std::net::SocketAddr;

use target::Adapters;
use target::Portal;
use target::Rdma;

use super::Draft;

/// Who does RDMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Provider {
    Off,
    /// Software iWARP.
    Iwarp,
    /// Adapters.
    Verbs,
    /// Software iWARP, and adapters where there are some.
    Auto,
}

impl Provider {
    pub(super) fn has_adapters(self) -> bool {
        matches!(self, Self::Verbs | Self::Auto)
    }

    /// What connections of TCP may become.
    pub(super) fn of_sockets(self) -> Rdma {
        match self {
            Self::Off | Self::Verbs => Rdma::Off,
            Self::Iwarp | Self::Auto => Rdma::Iwarp,
        }
    }
}

impl Draft {
    /// What a portal says itself, if it does.
    pub(super) fn own_provider(&self, address: SocketAddr) -> Option<Provider> {
        self.rdma_of.iter().find(|(one, _)| *one == address).map(|(_, provider)| *provider)
    }

    /// Where adapters listen: at the portals that say so, and, where most say nothing, at the other
    /// addresses that are named for it, or else at all that have no other word.
    pub(super) fn adapters(&self) -> Adapters {
        let mut adapters = Adapters::default();
        let named = self.rdma_listen.iter().copied().map(|address| (address.into(), self.rdma));
        let of_portals = self.portals().into_iter().filter_map(|portal: Portal| {
            let others = || self.rdma_listen.is_empty().then_some(self.rdma);
            Some((portal, self.own_provider(portal.address).or_else(others)?))
        });
        for (portal, provider) in named.chain(of_portals) {
            match provider {
                Provider::Off | Provider::Iwarp => {}
                Provider::Verbs => adapters.at.push(portal),
                Provider::Auto => adapters.where_any.push(portal),
            }
        }
        adapters
    }
}
