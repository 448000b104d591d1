// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a station's frames come from and go to.

use std::io;
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;

use engine::packet::PacketSocket;
use wire::ether::ETHERTYPE;
use wire::ether::Mac;

use crate::cable::End;
use crate::cable::Role;

/// An interface of the system, or the end of a cable.
#[derive(Debug)]
pub(crate) enum Frames {
    Interface(PacketSocket),
    Cable(End),
}

impl Frames {
    pub(crate) fn open(interface: &str, role: Role) -> io::Result<Self> {
        match End::find(interface, role) {
            Some(end) => Ok(Self::Cable(end)),
            None => Ok(Self::Interface(PacketSocket::open(interface, ETHERTYPE)?)),
        }
    }

    pub(crate) const fn mac(&self) -> Mac {
        match self {
            Self::Interface(socket) => Mac(socket.mac()),
            Self::Cable(end) => end.mac(),
        }
    }

    pub(crate) const fn mtu(&self) -> usize {
        match self {
            Self::Interface(socket) => socket.mtu(),
            Self::Cable(end) => end.mtu(),
        }
    }

    /// Gives the frames to `take` that have come, at most `count` of them; whether there may be
    /// more.
    pub(crate) fn receive(&mut self, count: usize, take: impl FnMut(&[u8])) -> bool {
        match self {
            Self::Interface(socket) => socket.receive(count, take),
            Self::Cable(end) => end.receive(count, take),
        }
    }

    /// Sends a frame that lies in pieces.
    pub(crate) fn send(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        match self {
            Self::Interface(socket) => socket.send(pieces),
            Self::Cable(end) => {
                end.send(pieces);
                Ok(())
            }
        }
    }
}

impl AsFd for Frames {
    /// Readable when frames have come, writable when some may be sent.
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Interface(socket) => socket.as_fd(),
            Self::Cable(end) => end.as_fd(),
        }
    }
}
