// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether portals speak iSER (RFC 7145).

use iscsi::datamover::Capabilities;
use iscsi::datamover::Rdma as Extensions;

/// Whether a target, or one of its portals, speaks iSER.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // it does not, or this is how
pub enum Rdma {
    /// It does not.
    #[default]
    Off,
    /// By software iWARP, beside iSCSI.
    Iwarp,
}

impl Rdma {
    /// What a connection of TCP can do before its first byte.
    pub(crate) fn stream(self) -> Capabilities {
        let rdma = match self {
            Self::Off => Extensions::Never,
            Self::Iwarp => Extensions::Possible,
        };
        Capabilities { rdma, ..Capabilities::STREAM }
    }
}
