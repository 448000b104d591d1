// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Portals that a reactor listens at, which come and go.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::mpsc::Sender;

use engine::Port;
use engine::Socket;
use engine::Work;

use super::Kind;
use super::Pump;
use super::token;
use crate::table::Key;

/// A socket that takes connections.
#[derive(Debug)]
pub(super) struct Listener {
    socket: Socket,
    address: SocketAddr,
    /// It is being closed, and this one hears when it is.
    leaving: Option<Sender<()>>,
}

impl<P: Port> Pump<P> {
    /// Takes connections that come to `address`.
    pub(crate) fn listen(&mut self, fd: OwnedFd, address: SocketAddr) {
        if self.context.stopping.is_some() {
            return;
        }
        let socket = self.context.port.add_socket(fd);
        let key = self.door.listeners.insert(Listener { socket, address, leaving: None });
        self.context.port.submit(token(Kind::Accept, key), Work::Accept { socket });
    }

    /// Takes none any more that come to `address`, and says so when the socket is closed.
    pub(super) fn unlisten(&mut self, address: SocketAddr, reply: Sender<()>) {
        let mut listeners = self.door.listeners.values_mut();
        let found = listeners.find(|one| one.address == address && one.leaving.is_none());
        match found {
            Some(listener) => {
                listener.leaving = Some(reply);
                self.context.port.close(listener.socket);
            }
            None => {
                // A stop has closed it. Who asked may have given up.
                let _ = reply.send(());
            }
        }
    }

    pub(super) fn stop_listening(&mut self) {
        for listener in std::mem::take(&mut self.door.listeners).values_mut() {
            self.context.port.close(listener.socket);
        }
        self.stop_adapters();
    }

    pub(super) fn accept_failed(&mut self, key: Key, errno: i32) {
        let Some(listener) = self.door.listeners.get(key) else { return };
        if listener.leaving.is_some() {
            if let Some(Listener { leaving: Some(reply), .. }) = self.door.listeners.remove(key) {
                let _ = reply.send(());
            }
            return;
        }
        let error = std::io::Error::from_raw_os_error(errno);
        tracing::warn!(portal = %listener.address, %error, "could not accept a connection");
    }
}
