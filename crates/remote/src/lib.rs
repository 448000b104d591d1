// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks of other targets as block stores: what a target serves may be another target's.
//!
//! ```text
//! hosts --> our target --> Remote --> initiator --> the other target
//! ```
//!
//! An operation begins in the reactor that wants it, goes to the initiator's thread, and its end
//! comes back through the thread of the store, which gives it to the reactor
//! ([`store::foreign`]). Bytes that are read are copied once on this way, bytes that are written
//! are not.
//!
//! What was acknowledged is as safe as the other target says it is: a write that it keeps in a
//! volatile cache is lost with that, and each flush from then on fails
//! ([`Kind::WritesLost`](initiator::Kind)) until the store is opened again.
#![forbid(unsafe_code)]

mod flights;
mod limits;
mod outcome;
mod remote;
mod status;

pub use remote::Remote;
pub use remote::RemoteError;
pub use remote::Using;
