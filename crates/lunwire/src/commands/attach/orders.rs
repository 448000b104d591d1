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
use crate::control_socket::Socket;
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
    socket: Socket,
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
        Ok(Self { shared, thread, socket })
    }

    /// Something about it is different from now on.
    pub(super) fn change(&self, how: impl FnOnce(&mut Attachment)) -> Attachment {
        let mut attachment = self.shared.attachment();
        how(&mut attachment);
        attachment.clone()
    }

    /// How it has ended, for all who order that from now on.
    pub(super) fn ended(&self, how: Reply) {
        *self.shared.end() = Some(how);
    }

    /// Takes the socket away, and waits until those who have given orders have their answer;
    /// whoever takes orders is gone.
    pub(super) fn leave(self, waiting: Vec<Sender<Reply>>) {
        let Self { shared, thread, socket } = self;
        // Who has the answer finds nothing left.
        drop(socket);
        shared.leaving.store(true, Ordering::Release);
        let Some(answer) = shared.end().clone() else { return };
        // Its thread is there as long as one order is not answered.
        let answered = waiting.into_iter().filter(|reply| reply.send(answer.clone()).is_ok());
        if answered.count() > 0 {
            // It ends with its last client, who has a deadline.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that panics has failed
mod tests {
    use control::admin::AttachmentState;

    use super::*;
    use crate::args::AttachedPlace;
    use crate::commands::attach::book::Book;
    use crate::control_socket::asking;

    #[test]
    fn who_hears_of_the_end_finds_nothing_left() {
        let folder = tempfile::tempdir().unwrap();
        let place = AttachedPlace { state_dir: Some(folder.path().join("state")) };
        let book = Book::of(&place).unwrap();
        book.make().unwrap();
        let url = initiator::Url::parse("iscsi://host/iqn.x:disk/0").unwrap();
        let reserved = book.reserve(None, &url).unwrap();
        let path = book.socket(&reserved.name);
        let attachment = Attachment {
            name: reserved.name.clone(),
            url: url.to_string(),
            kind: "file".into(),
            place: "/mnt/disk".into(),
            folder: None,
            bytes: 1 << 20,
            read_only: false,
            pid: 7,
            state: AttachmentState::Works,
        };
        let (tell, told) = mpsc::channel();
        let to = move |order: Detach| tell.send(order.reply).unwrap();
        let orders = Orders::listen(reserved, attachment, to).unwrap();
        let asks = std::thread::spawn(move || {
            let order = Request::Detach { force: false, leave: false };
            let reply = asking::ask(Some(&path), &order);
            (reply, path.exists())
        });
        let waiting = told.recv().unwrap();
        orders.ended(Reply::Detached { warnings: Vec::new() });
        orders.leave(vec![waiting]);
        let (reply, exists) = asks.join().unwrap();
        assert!(matches!(reply, Ok(Reply::Detached { .. })), "{reply:?}");
        assert!(!exists, "the socket is still there");
    }
}
