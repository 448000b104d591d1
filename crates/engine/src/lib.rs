// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs work on the kernel and waits for it; the pumps call it.
//!
//! Border 3: a work queue and an event queue (AMP study). (Skeleton: the bodies are being written.)
#![allow(missing_docs, unused_variables, dead_code, clippy::all)]

use buf::{Buf, SgList, Slice};
use clock::Instant;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Chosen by the caller, given back with every event of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(pub u64);

/// A socket that belongs to a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Socket(pub u32);

/// Work to be done. Owns its buffers until its event gives them back.
#[derive(Debug)]
pub enum Work {
    /// Until the port is told `close`: an `Accepted` for each connection.
    Accept { socket: Socket },
    /// Until end of stream, error or `close`: a `Received` for each piece that arrives.
    Receive { socket: Socket },
    /// Sends all of `list`; one per socket at a time. Partial sends are continued by the port.
    Send { socket: Socket, list: SgList },
    Read { file: u32, offset: u64, buf: Buf },
    Write { file: u32, offset: u64, data: Slice, durable: bool },
    Sync { file: u32 },
    Punch { file: u32, offset: u64, length: u64 },
    Zero { file: u32, offset: u64, length: u64 },
}

/// Received bytes: readable by Deref, given back by dropping.
#[derive(Debug)]
pub struct Chunk(Vec<u8>);
impl std::ops::Deref for Chunk {
    type Target = [u8];
    fn deref(&self) -> &[u8] { &self.0 }
}

#[derive(Debug)]
pub enum Event {
    Accepted { connection: OwnedFd, peer: SocketAddr },
    AcceptFailed { errno: i32 },
    Received { bytes: Chunk },
    /// End of stream or error (errno): nothing more will be received.
    ReceiveEnded { error: Option<i32> },
    Sent { list: SgList, result: Result<(), i32> },
    /// `buf` is truncated to what was read.
    Read { buf: Buf, result: Result<usize, i32> },
    Wrote { result: Result<(), i32> },
    Synced { result: Result<(), i32> },
    Punched { result: Result<(), i32> },
    Zeroed { result: Result<(), i32> },
    /// Somebody called `Waker::wake`.
    Woken,
}

/// Wakes a port from another thread; cheap to clone, coalesces.
#[derive(Clone, Debug)]
pub struct Waker(());
impl Waker { pub fn wake(&self) { todo!() } }

/// The work and event queue of one thread.
pub trait Port {
    /// Makes a socket (listening or connected) the port's own; non-blocking, TCP_NODELAY on streams.
    fn add_socket(&mut self, fd: OwnedFd) -> Socket;
    /// Makes `file` known under `id` (same id on every port).
    fn add_file(&mut self, id: u32, file: Arc<OwnedFd>, direct: bool);
    fn remove_file(&mut self, id: u32);
    /// Queues; may start the work at once. Never fails: an error is an event.
    fn submit(&mut self, token: Token, work: Work);
    /// Stops receiving until `resume`: back-pressure.
    fn pause(&mut self, socket: Socket);
    fn resume(&mut self, socket: Socket);
    /// Half-close: no more sends; the peer sees end of stream.
    fn shutdown(&mut self, socket: Socket);
    /// Cancels the socket's work; events of it may still come until all buffers are back, then never again.
    fn close(&mut self, socket: Socket);
    /// The next event, without waiting and without a system call when the queue holds one.
    fn next_event(&mut self) -> Option<(Token, Event)>;
    /// Hands queued work to the kernel and gathers events; waits until there is one or `deadline` (None: for ever);
    /// a deadline in the past polls. Spins first, adaptively, up to the configured time.
    fn wait(&mut self, deadline: Option<Instant>);
    fn now(&self) -> Instant;
    fn waker(&self) -> Waker;
    fn name(&self) -> &'static str;
}
