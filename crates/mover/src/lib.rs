// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Datamovers: what carries PDUs and data between iSCSI nodes; only a pump drives them.
//! (Skeleton: the bodies are being written.)
#![allow(missing_docs, unused_variables, dead_code, clippy::all)]
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod tcp {
    use buf::{Buf, Pool, SgList};
    use iscsi::datamover::{Event, Op, TaskId};

    /// The target's end of one connection over a byte stream.
    #[derive(Debug)]
    pub struct Tcp(());

    impl Tcp {
        /// In the state before login: `Keys::LOGIN`.
        pub fn new() -> Self { todo!() }
        /// Takes bytes up to and including the one that makes an event; returns how many, and the event.
        pub fn feed(&mut self, bytes: &[u8], pool: &Pool) -> (usize, Option<Event>) { todo!() }
        /// Header (BHS and AHS) of the PDU of the last event.
        pub fn header(&self) -> &[u8] { todo!() }
        /// Data segment of the PDU of the last Control event, unless it was a SCSI command.
        pub fn control_data(&self) -> &[u8] { todo!() }
        /// Gives a task the buffer that its Data-Outs fill.
        pub fn attach(&mut self, task: TaskId, buf: Buf) { todo!() }
        pub fn detach(&mut self, task: TaskId) -> Option<Buf> { todo!() }
        pub fn submit(&mut self, op: Op) { todo!() }
        /// Fills `list` with what is to be sent next, up to the budget; false if there is nothing.
        /// One list is under way at a time.
        pub fn poll_transmit(&mut self, list: &mut SgList, pool: &Pool) -> bool { todo!() }
        /// The list of the last `poll_transmit` has left.
        pub fn handle_sent(&mut self) { todo!() }
        /// Events that `handle_sent` or `submit` made (Released).
        pub fn poll_event(&mut self) -> Option<Event> { todo!() }
        /// Everything was sent and a Terminate op was reached: close the socket.
        pub fn is_terminated(&self) -> bool { todo!() }
        /// Bytes and PDUs that wait to be sent (the pump pauses receiving above a limit).
        pub fn backlog(&self) -> usize { todo!() }
    }
}
