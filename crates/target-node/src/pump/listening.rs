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
use crate::table::Table;

/// A socket that takes connections.
#[derive(Debug)]
pub(super) struct Listener {
    socket: Socket,
    address: SocketAddr,
    /// It is being closed.
    closing: bool,
    /// This one hears when it is.
    leaving: Option<Sender<()>>,
}

impl<P: Port> Pump<P> {
    /// Takes connections that come to `address`.
    pub(crate) fn listen(&mut self, fd: OwnedFd, address: SocketAddr) {
        if self.context.stopping.is_some() {
            return;
        }
        let socket = self.context.port.add_socket(fd);
        let key =
            self.door.listeners.insert(Listener { socket, address, closing: false, leaving: None });
        self.context.port.submit(token(Kind::Accept, key), Work::Accept { socket });
    }

    /// Takes none any more that come to `address`, and says so when the socket is closed.
    pub(super) fn unlisten(&mut self, address: SocketAddr, reply: Sender<()>) {
        let mut listeners = self.door.listeners.values_mut();
        let found = listeners.find(|one| one.address == address && !one.closing);
        match found {
            Some(listener) => {
                (listener.closing, listener.leaving) = (true, Some(reply));
                self.context.port.close(listener.socket);
            }
            None => {
                // A stop has closed it. Who asked may have given up.
                let _ = reply.send(());
            }
        }
    }

    /// Each is closed when its last event has come: another process may listen at the same socket,
    /// and a connection that came to us meanwhile would wait for nobody.
    pub(super) fn stop_listening(&mut self) {
        let open = self.door.listeners.values_mut().filter(|listener| !listener.closing);
        for listener in open {
            listener.closing = true;
            self.context.port.close(listener.socket);
        }
        self.stop_adapters();
    }

    /// One that the system had given up before has no last event.
    pub(super) fn forget_listeners(&mut self) {
        self.door.listeners = Table::default();
    }

    pub(super) fn listens(&self) -> bool {
        !self.door.listeners.is_empty()
    }

    pub(super) fn accept_failed(&mut self, key: Key, errno: i32) {
        let Some(listener) = self.door.listeners.get(key) else { return };
        if listener.closing {
            if let Some(Listener { leaving: Some(reply), .. }) = self.door.listeners.remove(key) {
                let _ = reply.send(());
            }
            return;
        }
        let error = std::io::Error::from_raw_os_error(errno);
        tracing::warn!(portal = %listener.address, %error, "could not accept a connection");
    }
}
