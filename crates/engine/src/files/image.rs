// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Images of virtual machines: their bytes are not those of the disk that they hold, and who writes
//! to them destroys it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::FileError;
use super::identity::recorded;

/// Where a format shows, by what, and its name.
const MARKS: &[(usize, &[u8], &str)] = &[
    (0, b"QFI\xfb", "qcow2"),
    (0, b"QED\0", "QED"),
    (0, b"KDMV", "VMDK"),
    (0, b"COWD", "VMDK"),
    (0, b"# Disk DescriptorFile", "VMDK"),
    (0, b"vhdxfile", "VHDX"),
    (0, b"conectix", "VHD"),
    (64, b"\x7f\x10\xda\xbe", "VDI"),
];

/// Bytes in which all of them show.
const HEAD_LEN: usize = 512;

/// Refuses a file that begins as such an image does, unless it is known as a disk already: then a
/// host has written that, which must not keep the daemon from its next start.
pub(super) fn refuse(path: &Path, file: &File) -> Result<(), FileError> {
    match image_format(path, file)? {
        Some(format) => Err(FileError::Image { path: path.into(), format }),
        None => Ok(()),
    }
}

/// The format of a file that begins as the image of a virtual machine does and is not known as a
/// disk.
///
/// # Errors
/// `file`, which is `path`, cannot be read.
pub fn image_format(path: &Path, file: &File) -> Result<Option<&'static str>, FileError> {
    // Past the page cache nothing but whole, aligned sectors can be read.
    #[repr(align(4096))]
    struct Head([u8; 4096]);
    let mut head = Head([0; 4096]);
    let read = match file.read_at(&mut head.0, 0) {
        Ok(read) => read,
        Err(source) => return Err(FileError::Other { path: path.into(), source }),
    };
    let format = format_of(head.0.get(..read.min(HEAD_LEN)).unwrap_or_default());
    Ok(format.filter(|_| !matches!(recorded(file), Ok(Some(_)))))
}

fn format_of(head: &[u8]) -> Option<&'static str> {
    let shows = |at: usize, mark: &[u8]| head.get(at..).is_some_and(|rest| rest.starts_with(mark));
    MARKS.iter().find(|(at, mark, _)| shows(*at, mark)).map(|(_, _, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_show_in_the_first_sector() {
        assert_eq!(format_of(b"QFI\xfb\0\0\0\x03"), Some("qcow2"));
        assert_eq!(format_of(b"# Disk DescriptorFile\nversion=1"), Some("VMDK"));
        let mut vdi = [b'<'; 512];
        assert_eq!(format_of(&vdi), None);
        vdi[64..68].copy_from_slice(&[0x7f, 0x10, 0xda, 0xbe]);
        assert_eq!(format_of(&vdi), Some("VDI"));
        assert_eq!(format_of(b"vhdxfile"), Some("VHDX"));
        for raw in [&b""[..], b"QFI", &[0; 512]] {
            assert_eq!(format_of(raw), None);
        }
    }
}
