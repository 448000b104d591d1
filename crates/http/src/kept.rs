// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that are for their owner alone: tokens, and the key of a certificate.

use std::fs::File;
use std::io;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use zeroize::Zeroizing;

/// Why such a file is not read.
#[derive(Debug)]
pub(crate) enum Unkept {
    Read(io::Error),
    /// Others can read it; its mode.
    Open(u32),
    /// It has more bytes than it may have.
    Long,
}

/// All of a file that nobody but its owner can read, and that has `len_max` bytes at most.
pub(crate) fn read(path: &Path, len_max: usize) -> Result<Zeroizing<Vec<u8>>, Unkept> {
    let not_whole = || io::Error::new(io::ErrorKind::InvalidInput, "it is no file");
    let check = |is_file: bool| if is_file { Ok(()) } else { Err(not_whole()) };
    let open = || {
        // Who opens a pipe may wait for ever.
        check(std::fs::metadata(path)?.is_file())?;
        let file = File::open(path)?;
        let facts = file.metadata()?;
        check(facts.is_file())?;
        Ok((file, facts))
    };
    let (file, facts) = open().map_err(Unkept::Read)?;
    is_kept(facts.mode(), facts.uid(), facts.gid())?;
    // One byte more than may be, and no reallocation that would leave copies behind.
    let mut text = Zeroizing::new(Vec::with_capacity(len_max + 1));
    let limit = u64::try_from(len_max + 1).unwrap_or(u64::MAX);
    file.take(limit).read_to_end(&mut text).map_err(Unkept::Read)?;
    if text.len() > len_max { Err(Unkept::Long) } else { Ok(text) }
}

/// Whether nobody but its owner, and root, can read a file with these.
fn is_kept(mode: u32, owner: u32, group: u32) -> Result<(), Unkept> {
    const ROOT: u32 = 0;
    // systemd hands credentials over as files of root with an entry for the service in their list
    // of access, whose mask stands where the rights of the group are.
    let others = if (owner, group) == (ROOT, ROOT) { 0o037 } else { 0o077 };
    if mode & others == 0 { Ok(()) } else { Err(Unkept::Open(mode & 0o7777)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_other_account_can_read_the_file() {
        for (mode, owner, group) in [(0o600, 7, 7), (0o400, 0, 7), (0o440, 0, 0), (0o640, 0, 0)] {
            assert!(is_kept(0o100_000 | mode, owner, group).is_ok(), "{mode:o} {owner} {group}");
        }
        for (mode, owner, group) in
            [(0o640, 0, 7), (0o440, 7, 0), (0o660, 0, 0), (0o444, 0, 0), (0o441, 0, 0)]
        {
            let said = is_kept(0o100_000 | mode, owner, group);
            assert!(matches!(said, Err(Unkept::Open(it)) if it == mode), "{owner} {group}");
        }
    }
}
