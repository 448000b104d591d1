// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The sockets that a target listens at. Its reactors have them; here is a second descriptor of
//! each, for the process that listens there next.

use std::io;
use std::net::SocketAddr;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

/// The real address of each, and the socket.
#[derive(Debug, Default)]
pub(crate) struct Doors(Mutex<Vec<(SocketAddr, OwnedFd)>>);

impl Doors {
    /// A reactor is about to listen at `socket`.
    pub(crate) fn add(&self, socket: &OwnedFd, address: SocketAddr) -> io::Result<()> {
        let copy = socket.try_clone()?;
        self.all().push((address, copy));
        Ok(())
    }

    /// Nobody is to listen there any more: with a descriptor left connections would still wait.
    pub(crate) fn remove(&self, address: SocketAddr) {
        self.all().retain(|(known, _)| *known != address);
    }

    pub(crate) fn close(&self) {
        self.all().clear();
    }

    pub(super) fn copies(&self) -> io::Result<Vec<(SocketAddr, OwnedFd)>> {
        self.all().iter().map(|(address, socket)| Ok((*address, socket.try_clone()?))).collect()
    }

    fn all(&self) -> MutexGuard<'_, Vec<(SocketAddr, OwnedFd)>> {
        // What the lock guards is whole between any two statements.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A socket that listens at `wanted`, out of those that are `there` already if it is among them,
/// and the address that it really has.
pub(super) fn open(
    wanted: SocketAddr,
    there: &mut Vec<(SocketAddr, OwnedFd)>,
) -> io::Result<(OwnedFd, SocketAddr)> {
    let known = there.iter().position(|(address, _)| *address == wanted);
    let socket = match known {
        Some(index) => there.swap_remove(index).1,
        None => engine::listen(wanted)?,
    };
    let listener = TcpListener::from(socket);
    let address = listener.local_addr()?;
    Ok((listener.into(), address))
}
