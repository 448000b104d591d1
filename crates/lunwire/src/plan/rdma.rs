// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What carries iSER.

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

    /// Where adapters listen.
    pub(super) fn of_adapters(self, portals: Vec<Portal>) -> Adapters {
        match self {
            Self::Off | Self::Iwarp => Adapters::Off,
            Self::Verbs => Adapters::At(portals),
            Self::Auto => Adapters::Where(portals),
        }
    }
}

impl Draft {
    /// The addresses that adapters are to listen at: those of TCP if nobody says others, but for
    /// portals that are to speak no iSER.
    pub(super) fn adapter_portals(&self) -> Vec<Portal> {
        match self.rdma_listen.is_empty() {
            true => {
                let portals = self.portals().into_iter();
                portals.filter(|portal| portal.rdma != Some(Rdma::Off)).collect()
            }
            false => self.rdma_listen.iter().copied().map(Portal::from).collect(),
        }
    }
}
