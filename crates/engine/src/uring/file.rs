// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Work on files through the ring.

use std::os::fd::AsRawFd;

use io_uring::opcode;
use io_uring::squeue;
use io_uring::types::Fd;
use io_uring::types::FsyncFlags;

use super::Uring;
use super::ring::Key;
use super::ring::Kind;
use crate::Event;
use crate::Token;
use crate::filework::Call;
use crate::filework::Step;

impl Uring {
    /// Submits the next call of work `index`; its event if there is nothing to do.
    pub(super) fn continue_file(&mut self, index: usize) -> Option<(Token, Event)> {
        let (file, work) = self.works.get_mut(index)?;
        if let Some(call) = work.call() {
            let entry = entry(Fd(file.fd.as_raw_fd()), call);
            self.ring.push(Key::new(Kind::File, index), entry);
            return None;
        }
        Some(self.works.remove(index).1.into_event(Ok(0)))
    }

    pub(super) fn file_completed(
        &mut self,
        index: usize,
        result: Result<usize, i32>,
    ) -> Option<(Token, Event)> {
        let (file, work) = self.works.get_mut(index)?;
        match work.step(result, file.direct) {
            Step::Again => self.continue_file(index),
            Step::Done(result) => Some(self.works.remove(index).1.into_event(result)),
        }
    }
}

fn entry(fd: Fd, call: Call) -> squeue::Entry {
    // Buffers are far smaller than 4 GiB; a shorter call is continued.
    let clamp = |len: usize| u32::try_from(len).unwrap_or(!0xfff);
    match call {
        Call::Read { base, len, offset } => {
            opcode::Read::new(fd, base, clamp(len)).offset(offset).build()
        }
        Call::Write { base, len, offset, flags } => {
            opcode::Write::new(fd, base, clamp(len)).offset(offset).rw_flags(flags).build()
        }
        Call::Sync => opcode::Fsync::new(fd).flags(FsyncFlags::DATASYNC).build(),
        Call::Allocate { mode, offset, len } => {
            opcode::Fallocate::new(fd, len).offset(offset).mode(mode).build()
        }
    }
}
