// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Images of Ceph as stores, by librbd, which is loaded when one is opened; `target` opens them.
//!
//! ```text
//! disk.rs       an Op becomes an errand (border 4); safe code
//! image.rs      an open image; below it operations.rs begins an errand: a flight gets a number,
//!               the library gets the number, and names.rs looks what has become of its name
//! flight.rs     the library says the number when it is over, from a thread of its own; the
//!               completer of the flight tells the reactor
//! flushes.rs    one flush at a time, and what is lost when one fails; safe code
//! claims.rs     the images that are open to be served; safe code
//! pulse.rs      whether the cluster answers; safe code
//! keyring.rs    the file of the user's key; safe code
//! look.rs       what stands behind bytes, as the library tells it
//! worker.rs     a thread for each image, for what waits; safe code
//! libraries.rs  which files that are, and of which version
//! rounds.rs     what that thread looks at now and then; safe code
//! api.rs        the functions of the libraries, found by name
//! ```
//!
//! Ends come by librbd's call back and not by its completion queue and descriptor: the library
//! writes to such a descriptor for each operation, and a queue belongs to one reader, while an
//! image is shared by all reactors. By call back the answer goes into the inbox of the reactor that
//! has asked, which is woken once for all that come until it looks.

mod api;
mod cache;
mod claims;
mod cluster;
mod disk;
mod error;
mod flight;
mod flushes;
mod image;
mod keyring;
mod libraries;
mod limits;
mod look;
mod pulse;
mod rounds;
mod watches;
mod worker;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;

pub use crate::api::is_loaded;
pub use crate::claims::wait_until_closed;
pub use crate::disk::MadeOf;
pub use crate::disk::Rbd;
pub use crate::disk::Seen;
pub use crate::disk::examine;
pub use error::Doing;
pub use error::LibraryError;
pub use error::RbdError;
pub use libraries::Loaded;
pub use libraries::libraries;
