// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of what a session has and tells.

use alloc::string::String;
use alloc::vec::Vec;

/// Names a connection within its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId(pub u16);

/// One target as SendTargets lists it.
#[derive(Clone, Debug)]
pub struct TargetRecord {
    /// Its iSCSI name.
    pub name: String,
    /// `address:port,tag` as they go into TargetAddress.
    pub addresses: Vec<String>,
}

/// Where tasks are that no connection has. No session has so many connections.
pub(super) const NOWHERE: ConnectionId = ConnectionId(u16::MAX);
