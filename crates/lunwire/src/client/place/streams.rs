// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Standard input and output as places.

use std::fmt;
use std::io::ErrorKind;
use std::io::Read;
use std::io::Write;

use anyhow::Context;
use anyhow::Result;
use rustix::fs::FileType;

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

/// Who read standard output has gone away.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NobodyReads;

impl fmt::Display for NobodyReads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nobody reads standard output any more")
    }
}

impl std::error::Error for NobodyReads {}

/// Writes all of `bytes` to standard output.
///
/// # Errors
/// [`NobodyReads`], or however it fails.
pub(crate) fn write_stdout(bytes: &[u8]) -> Result<()> {
    std::io::stdout().write_all(bytes).map_err(unwritten)
}

pub(super) fn unwritten(error: std::io::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::BrokenPipe => NobodyReads.into(),
        _ => anyhow::Error::new(error).context("cannot write standard output"),
    }
}

/// Fills `to` from standard input as far as there is something; gives how much.
pub(crate) fn read_stdin(to: &mut [u8]) -> Result<usize> {
    fill_from(&mut std::io::stdin().lock(), to).context("cannot read standard input")
}

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
