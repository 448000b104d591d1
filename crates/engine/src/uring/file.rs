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
        let step = match result {
            // The kernel could not make a thread that waits for it, as at the bound of a control
            // group: the reactor waits.
            Err(libc::ECANCELED) => Step::Done(work.run(&file.fd, file.direct)),
            result => work.step(result, file.direct),
        };
        match step {
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

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::rc::Rc;
    use std::sync::Arc;

    use super::*;
    use crate::Config;
    use crate::filework::File;
    use crate::filework::FileWork;

    /// Nothing is wrong with the file, of which hosts would hear otherwise.
    #[test]
    fn what_the_kernel_has_no_thread_for_is_done_all_the_same() {
        let Ok(mut port) = Uring::new(&Config::default()) else {
            eprintln!("io_uring is forbidden here; nothing was tested");
            return;
        };
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 1000]).unwrap();
        let file = Rc::new(File { fd: Arc::new(file.into()), direct: false });
        let buf = buf::Pool::new(1 << 20).unwrap().take(1000).unwrap();
        let index = port.works.insert((file, FileWork::read(Token(3), 0, buf)));
        let event = port.file_completed(index, Err(libc::ECANCELED));
        let Some((Token(3), Event::Read { buf, result })) = event else { panic!("{event:?}") };
        assert_eq!((&*buf, result), (&[7; 1000][..], Ok(1000)));
    }
}
