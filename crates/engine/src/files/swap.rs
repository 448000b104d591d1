// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that the system swaps to.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use super::same::place;

/// Whether a file is swap space of the system: no lock tells, and the kernel writes past it.
pub(super) fn is_swap(metadata: &fs::Metadata) -> bool {
    let text = fs::read("/proc/swaps").unwrap_or_default();
    swaps(&text)
        .iter()
        .any(|path| fs::metadata(path).is_ok_and(|swap| place(&swap) == place(metadata)))
}

/// The names in the text of `/proc/swaps`, below its heading; blanks in them are written `\040`.
fn swaps(text: &[u8]) -> Vec<PathBuf> {
    let lines = text.split(|byte| *byte == b'\n').skip(1);
    let names = lines.filter_map(|line| line.split(|byte| matches!(byte, b' ' | b'\t')).next());
    names
        .filter(|name| !name.is_empty())
        .map(|name| OsString::from_vec(plain(name)).into())
        .collect()
}

/// `name` with each `\` and three octal digits as the byte that they mean.
fn plain(name: &[u8]) -> Vec<u8> {
    let (mut plain, mut rest) = (Vec::with_capacity(name.len()), name);
    while let [first, behind @ ..] = rest {
        let digits = behind.get(..3).filter(|_| *first == b'\\');
        let digits = digits.and_then(|digits| str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                plain.push(byte);
                rest = behind.get(3..).unwrap_or_default();
            }
            None => {
                plain.push(*first);
                rest = behind;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::super::FileError;
    use super::super::OpenOptions;
    use super::super::examine;
    use super::super::open;
    use super::super::take_alone;
    use super::super::tests::open_again;
    use super::*;
    use std::fs::File;
    use std::path::Path;
    use std::process::Command;

    #[test]
    fn names_of_swap_space_are_read() {
        let text = b"Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n\
                     /dev/dm-1                               partition\t8388604\t\t0\t\t-2\n\
                     /a\\040swap\\134\\12\tfile\t\t16380\t\t0\t\t-3\n";
        let right = ["/dev/dm-1", "/a swap\\\\12"].map(PathBuf::from);
        assert_eq!(swaps(text), right);
        assert!(swaps(b"").is_empty());
    }

    /// Swap space that goes with the test.
    struct Swap<'a>(&'a Path);

    impl Drop for Swap<'_> {
        fn drop(&mut self) {
            let _ = Command::new("swapoff").arg(self.0).status();
        }
    }

    #[test]
    fn swap_space_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        // Not in memory, where no swap space may be.
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = folder.path().join("swap space");
        fs::write(&path, vec![0; 1 << 20]).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let done = |program| {
            let output = Command::new(program).arg(&path).output();
            output.is_ok_and(|output| output.status.success())
        };
        if !done("mkswap") || !done("swapon") {
            return println!("skipped: no swap space can be made here");
        }
        let swap = Swap(&path);
        let plain = OpenOptions::default();
        let refused = open(&path, &plain).unwrap_err();
        assert!(matches!(refused, FileError::Swap { .. }), "{refused}");
        let file = File::open(&path).unwrap();
        let refused = take_alone(&path, &file).unwrap_err();
        assert!(matches!(refused, FileError::Swap { .. }), "{refused}");
        drop(file);
        assert!(examine(&path, &plain).is_err());
        assert!(open(&path, &OpenOptions { read_only: true, ..plain }).is_ok());
        drop(swap);
        assert!(open_again(&path, &plain).is_ok());
    }
}
