// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What travels over the rings between a host and a core.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::Event;
use crate::Socket;
use crate::Token;
use crate::Work;
use crate::receive::Lent;

/// From a host to its core. Sockets have the numbers that the host gave them.
#[derive(Debug)]
pub(super) enum Order {
    Work(Token, Work),
    AddSocket(Socket, OwnedFd),
    AddFile { id: u32, file: Arc<OwnedFd>, direct: bool },
    RemoveFile(u32),
    Pause(Socket),
    Resume(Socket),
    Shutdown(Socket),
    Close(Socket),
}

/// From a core to a host.
pub(super) type Report = (Token, Event<Lent>);
