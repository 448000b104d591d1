// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests of clients: to the carrier, or to the unit itself, and back.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;
use std::task::Poll;
use std::task::Wake;

use engine::Port;
use engine::Waker;
use initiator::DiskEvent;
use initiator::Pending;
use initiator::Pool;
use initiator::Retry;
use initiator::scsi;
use initiator::scsi::command;
use initiator::scsi::lba_status;
use nbd::Command;
use nbd::Errno;
use nbd::Request;

use super::News;
use super::Server;
use crate::carrier::Ended;
use crate::client::Destination;
use crate::client::End;
use crate::client::Writing;
use crate::keep::Footing;
use crate::limits;
use crate::split;
use crate::split::Part;

/// Who has asked, and for what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    client: usize,
    request: Request,
}

/// GET LBA STATUS under way.
#[derive(Debug)]
pub(super) struct Question {
    owner: Owner,
    first: u64,
    /// None: it is asked when all is written again.
    asked: Option<(Footing, Pending)>,
}

/// Wakes the port when an answer has come.
struct Awake(Waker);

impl Wake for Awake {
    fn wake(self: Arc<Self>) {
        self.0.wake();
    }
}

impl<P: Port> Server<P> {
    /// A request has come.
    pub(super) fn accept(&mut self, key: usize, request: Request) {
        let Some(client) = self.clients.get_mut(key) else { return };
        if request.command == Command::Disconnect {
            client.end = End::WhenAnswered;
            return;
        }
        client.owes(&request);
        self.begin(key, request);
    }

    /// Begins a request that is counted, unless there is no memory for it now.
    pub(super) fn begin(&mut self, key: usize, request: Request) {
        let parts = split::parts(&request, &self.disk.geometry());
        let Some(client) = self.clients.get_mut(key) else { return };
        let has_data = request.command == Command::Write && request.length > 0;
        match parts {
            Err(errno) if has_data => {
                client.writing = Some(Writing::new(request, Destination::Nowhere(errno)));
            }
            Err(errno) => client.answer(&request, Err(errno)),
            Ok(parts) if parts.is_empty() => client.answer(&request, Ok(None)),
            Ok(parts) => {
                if let [Part::Status { first }] = parts[..] {
                    return self.ask(key, request, first);
                }
                if let [Part::Write { blocks, lead }] = &parts[..] {
                    match destination(&self.pool, split::length(blocks.clone()), *lead) {
                        Some(to) => client.writing = Some(Writing::new(request, to)),
                        None => {
                            client.blocked = Some(request);
                            self.blocked = true;
                        }
                    }
                    return;
                }
                client.at_disk += 1;
                let owner = Owner { client: key, request };
                self.carrier.begin(owner, &[(request, parts)]);
            }
        }
    }

    /// What has space, from the block `first` on?
    fn ask(&mut self, key: usize, request: Request, first: u64) {
        let Some(client) = self.clients.get_mut(key) else { return };
        if !client.agreed().allocation {
            return client.answer(&request, Err(Errno::Invalid));
        }
        client.at_disk += 1;
        let owner = Owner { client: key, request };
        self.questions.push(Question { owner, first, asked: None });
        self.ask_again();
    }

    /// Asks what was not asked yet, or what had no answer that is right.
    pub(super) fn ask_again(&mut self) {
        if self.questions.iter().all(|question| question.asked.is_some()) {
            return;
        }
        let footing = self.carrier.footing();
        if footing.is_none() && self.carrier.is_broken() {
            for question in self.questions.extract_if(.., |question| question.asked.is_none()) {
                let Owner { client: key, request } = question.owner;
                let Some(client) = self.clients.get_mut(key) else { continue };
                client.at_disk -= 1;
                client.answer(&request, Err(Errno::InputOutput));
                self.touched.push(key);
            }
        }
        let Some(footing) = footing else { return };
        for question in self.questions.iter_mut().filter(|question| question.asked.is_none()) {
            let cdb = command::get_lba_status(question.first, limits::STATUS_BYTES);
            let room = initiator::Data::In(limits::STATUS_BYTES);
            question.asked = Some((footing, self.disk.post(cdb, room, Retry::Always)));
        }
        self.hear();
    }

    /// Looks which questions have their answers.
    pub(super) fn hear(&mut self) {
        if self.questions.is_empty() {
            return;
        }
        let awake = std::task::Waker::from(Arc::new(Awake(self.port.waker())));
        let mut context = Context::from_waker(&awake);
        let mut heard = Vec::new();
        self.questions.retain_mut(|question| {
            let Some((footing, answer)) = &mut question.asked else { return true };
            let Poll::Ready(result) = Pin::new(answer).poll(&mut context) else { return true };
            heard.push((question.owner, question.first, *footing, result));
            false
        });
        // A loss was told before them, over another way.
        if !heard.is_empty() {
            self.reap();
        }
        for (owner, first, footing, result) in heard {
            if self.carrier.footing() != Some(footing) {
                self.questions.push(Question { owner, first, asked: None });
                continue;
            }
            let Owner { client: key, request } = owner;
            let geometry = self.disk.geometry();
            let Some(client) = self.clients.get_mut(key) else { continue };
            client.at_disk -= 1;
            self.touched.push(key);
            match result {
                Ok(done) => {
                    let told = done.data.as_deref().and_then(lba_status::parse);
                    let told = told.unwrap_or_default();
                    client.tell_space(&request, &split::extents(&request, &geometry, &told));
                }
                Err(error) if scsi::is_unsupported(&error) => {
                    client.tell_space(&request, &split::extents(&request, &geometry, &[]));
                }
                Err(error) => {
                    client.answer(&request, Err(split::errno(error.kind(), false)));
                }
            }
        }
    }

    /// All data of a write is there.
    pub(super) fn write(&mut self, key: usize, request: Request, to: Destination) {
        let Some(client) = self.clients.get_mut(key) else { return };
        let (bufs, lead) = match to {
            Destination::Nowhere(errno) => return client.answer(&request, Err(errno)),
            Destination::Buffer { buf, lead } => (vec![buf], lead),
            Destination::Buffers { bufs, lead } => (bufs, lead),
        };
        client.at_disk += 1;
        self.carrier.write(Owner { client: key, request }, request, bufs, lead);
    }

    pub(super) fn reap(&mut self) {
        self.carrier.reap();
        self.deliver();
    }

    /// Tells what has come of requests, and of the disk.
    pub(super) fn deliver(&mut self) {
        for Ended { owner, result } in self.carrier.ended() {
            let Owner { client: key, request } = owner;
            let Some(client) = self.clients.get_mut(key) else { continue };
            client.at_disk -= 1;
            client.answer(&request, result);
            self.touched.push(key);
        }
        for news in self.carrier.news() {
            if let News::Disk(DiskEvent::Resized { now, .. }) = news {
                self.export.bytes = now;
            }
            self.tell(news);
        }
    }
}

/// Where the data of a write goes that is so many bytes in whole blocks; None: there is no memory
/// for it now.
fn destination(pool: &Pool, length: usize, lead: usize) -> Option<Destination> {
    if length <= limits::BUFFER_BYTES_MAX {
        return Some(Destination::Buffer { buf: pool.take(length)?, lead });
    }
    let starts = (0..length).step_by(limits::BUFFER_BYTES_MAX);
    let lengths = starts.map(|start| limits::BUFFER_BYTES_MAX.min(length - start));
    if !pool.could_take(lengths.clone()) {
        return Some(Destination::Nowhere(Errno::NoMemory));
    }
    let bufs = lengths.map(|length| pool.take(length)).collect::<Option<_>>()?;
    Some(Destination::Buffers { bufs, lead })
}
