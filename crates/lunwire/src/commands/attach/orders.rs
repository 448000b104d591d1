// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a process that attaches a disk can be asked and told, by its socket.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;

use anyhow::Context;
use anyhow::Result;
use control::admin::Attachment;
use control::admin::Reply;
use control::admin::Request;

use super::book::Reserved;
use crate::daemon::admin::Socket;
use crate::daemon::clients::Clients;
use crate::daemon::clients::Questions;

/// An order to attach the disk no more.
#[derive(Debug)]
pub(super) struct Detach {
    pub(super) force: bool,
    pub(super) leave: bool,
    /// Where the answer goes.
    pub(super) reply: Sender<Reply>,
}

/// The socket, and who answers there.
#[derive(Debug)]
pub(super) struct Orders {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
    _socket: Socket,
}

#[derive(Debug)]
struct Shared {
    attachment: Mutex<Attachment>,
    /// Nobody is served any more who comes now.
    leaving: AtomicBool,
    /// How it has ended.
    end: Mutex<Option<Reply>>,
}

impl Shared {
    fn attachment(&self) -> MutexGuard<'_, Attachment> {
        self.attachment.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self) -> MutexGuard<'_, Option<Reply>> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Asked(Arc<Shared>);

impl Questions for Asked {
    fn answer(&self, request: &Request) -> Option<Reply> {
        match request {
            Request::Attachment => Some(Reply::Attachment(self.0.attachment().clone())),
            Request::Detach { .. } => None,
            _ => Some(Reply::Error {
                message: "this process attaches a disk, and serves none".into(),
            }),
        }
    }
}

impl Orders {
    /// Answers where a name is reserved; `to` gets orders.
    pub(super) fn listen(
        reserved: Reserved,
        attachment: Attachment,
        to: impl Fn(Detach) + Send + Sync + 'static,
    ) -> Result<Self> {
        let Reserved { listener, socket, .. } = reserved;
        let attachment = Mutex::new(attachment);
        let (leaving, end) = (AtomicBool::new(false), Mutex::default());
        let shared = Arc::new(Shared { attachment, leaving, end });
        let (mut clients, orders) =
            Clients::new(listener, Asked(Arc::clone(&shared))).context("cannot serve orders")?;
        let thread = |name: &str| std::thread::Builder::new().name(name.into());
        let known = Arc::clone(&shared);
        thread("orders").spawn(move || {
            orders.run(|order, _| match order {
                Request::Detach { force, leave } => {
                    let (reply, answer) = mpsc::channel();
                    to(Detach { force: *force, leave: *leave, reply });
                    let gone = || Reply::Error { message: "it is about to end".into() };
                    // Who comes late is told the same as the others.
                    answer.recv().unwrap_or_else(|_| known.end().clone().unwrap_or_else(gone))
                }
                _ => Reply::Error { message: "it does not know that order".into() },
            });
        })?;
        let seen = Arc::clone(&shared);
        let thread = thread("admin").spawn(move || {
            while !(seen.leaving.load(Ordering::Acquire) && clients.is_empty()) {
                clients.turn();
            }
        })?;
        Ok(Self { shared, thread, _socket: socket })
    }

    /// The disk has another size.
    pub(super) fn resized(&self, bytes: u64) -> Attachment {
        let mut attachment = self.shared.attachment();
        attachment.bytes = bytes;
        attachment.clone()
    }

    /// How it has ended, for all who order that from now on.
    pub(super) fn ended(&self, how: Reply) {
        *self.shared.end() = Some(how);
    }

    /// Waits until those who have given orders have their answer; whoever takes orders is gone.
    pub(super) fn leave(self, waiting: Vec<Sender<Reply>>) {
        self.shared.leaving.store(true, Ordering::Release);
        let Some(answer) = self.shared.end().clone() else { return };
        // Its thread is there as long as one order is not answered.
        let answered = waiting.into_iter().filter(|reply| reply.send(answer.clone()).is_ok());
        if answered.count() > 0 {
            // It ends with its last client, who has a deadline.
            let _ = self.thread.join();
        }
    }
}
