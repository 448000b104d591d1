// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Portals, nodes and the pump that joins the machines; the daemon and the laboratory call it.
//!
//! [`Target::start`] opens portals and starts reactors; [`Target::stop`] drains, says goodbye and
//! flushes. Read `pump.rs` first: it is the one place where engine, mover, iscsi, scsi and store
//! meet.
#![forbid(unsafe_code)]

mod answers;
mod authentication;
mod failure;
mod identity;
mod inventory;
mod isns;
mod keep;
mod mail;
mod node;
mod pump;
mod reactor;
mod registry;
mod solo;
mod state_folder;
mod stopwatch;
mod stores;
mod strangers;
mod table;
mod volume;

pub use authentication::AuthenticationPolicy;
pub use authentication::Demand;
pub use engine::ppe::Idle;
pub use failure::PANICKED;
pub use failure::end_process_on_panic;
pub use identity::DiskNumber;
pub use identity::IdentityError;
pub use identity::IdentityPolicy;
pub use identity::Sought;
pub use inventory::LUN_NUMBER_MAX;
pub use inventory::NewLun;
pub use keep::Draft;
pub use keep::Shelf;
pub use keep::StateFile;
pub use mail::ConnectionSnapshot;
pub use mail::SessionSnapshot;
pub use node::AccessRule;
pub use node::LunMap;
pub use node::Node;
pub use node::PORTAL_GROUP_TAG;
pub use node::Portal;
pub use node::Redirect;
pub use reactor::Error;
pub use reactor::Mode;
pub use reactor::Plan;
pub use reactor::Target;
pub use registry::SESSIONS_MAX;
pub use solo::Holdings;
pub use solo::Solo;
pub use solo::SoloPlan;
pub use state_folder::StateFolder;
pub use state_folder::StateFolderError;
pub use stopwatch::Times;
pub use stores::Made;
pub use stores::ProtectionError;
pub use stores::StoreError;
pub use stores::Stores;
pub use strangers::ConnectionLimits;
pub use strangers::STRANGERS_MAX;
pub use volume::Rescanned;
pub use volume::Resized;
pub use volume::Shrink;
pub use volume::VolumeError;
