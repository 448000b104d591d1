// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Standard input and output as places.

use std::io::ErrorKind;
use std::io::Read;
use std::io::Write;
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::Context;
use anyhow::Result;
use anyhow::anyhow;
use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::client;

/// A file or device that standard output is redirected to is brought to stable storage, too.
pub(super) fn flush_stdout() -> std::io::Result<()> {
    let mut stdout = std::io::stdout();
    stdout.flush()?;
    let kind = rustix::fs::fstat(&stdout).map(|stat| FileType::from_raw_mode(stat.st_mode));
    match kind {
        Ok(FileType::RegularFile | FileType::BlockDevice) => Ok(rustix::fs::fsync(&stdout)?),
        _ => Ok(()),
    }
}

/// Writes all of `bytes` to standard output.
pub(crate) fn write_stdout(bytes: &[u8]) -> Result<()> {
    std::io::stdout().write_all(bytes).map_err(unwritten)
}

pub(super) fn unwritten(error: std::io::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::BrokenPipe => anyhow!("who read standard output has gone away before the end"),
        _ => {
            anyhow::Error::new(error).context("cannot write standard output; try: a FILE elsewhere")
        }
    }
}

/// Fills `to` from standard input as far as there is something; gives how much.
pub(crate) fn read_stdin(to: &mut [u8]) -> Result<usize> {
    fill_from(&mut Patient(std::io::stdin()), to).context("cannot read standard input")
}

/// An input that is waited for, but not by one who wants an end.
struct Patient<F>(F);

impl<F: AsFd> Read for Patient<F> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        loop {
            if client::is_interrupted() {
                return Err(std::io::Error::new(ErrorKind::Interrupted, "interrupted"));
            }
            let mut input = [PollFd::new(&self.0, PollFlags::IN)];
            let look = Timespec::try_from(INPUT_LOOK).ok();
            match rustix::event::poll(&mut input, look.as_ref()) {
                Ok(0) | Err(Errno::INTR) => {}
                // What cannot be waited for is read, which tells why.
                Ok(_) | Err(_) => return Ok(rustix::io::read(&self.0, to)?),
            }
        }
    }
}

/// Between two looks whether the user wants an end, while nothing comes.
const INPUT_LOOK: Duration = Duration::from_millis(100);

/// Reads until `to` is full or the input ends. A signal is not the end.
fn fill_from(input: &mut impl Read, to: &mut [u8]) -> std::io::Result<usize> {
    let mut have = 0;
    while let Some(rest) = to.get_mut(have..).filter(|rest| !rest.is_empty()) {
        match input.read(rest) {
            Ok(0) => break,
            Ok(count) => have += count,
            Err(error) if error.kind() == ErrorKind::Interrupted && !client::is_interrupted() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(have)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    /// Gives a byte every second time, and is disturbed in between.
    struct Disturbed(u8);

    impl Read for Disturbed {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            self.0 += 1;
            match (self.0, to.first_mut()) {
                (21.., _) | (_, None) => Ok(0),
                (count, _) if count % 2 == 1 => Err(ErrorKind::Interrupted.into()),
                (count, Some(byte)) => {
                    *byte = count;
                    Ok(1)
                }
            }
        }
    }

    #[test]
    fn a_signal_is_not_the_end_of_the_input() {
        let mut to = [0; 100];
        assert_eq!(fill_from(&mut Disturbed(0), &mut to).expect("it can be read"), 10);
        assert_eq!(to[..11], [2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 0]);
    }
}
