// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `serve --take-over`: a process gets sockets, disks and state from the one that serves. What they
//! say stands in `control::admin::Word`.
//!
//! Who serves is decided by the locks of disks and state folder alone, which end with a process:
//! whatever is said, and whoever is killed when, no two write to one disk. The sockets are open in
//! both until one ends, so that connections wait in them meanwhile. The one before closes its disks
//! and stays until the next one serves; until then it takes them back when that one fails or goes.
//! One that stands still is given up: the one before waits for what that has, and ends when it
//! serves after all.

mod door;
pub(crate) mod gate;
pub(crate) mod giving;
pub(crate) mod losses;
mod sockets;
pub(crate) mod taking;
mod talk;
mod waiting;

pub(crate) use door::Doors;
pub(crate) use sockets::Sockets;
pub(crate) use taking::Entry;
pub(crate) use waiting::Holder;
pub(crate) use waiting::Waited;
