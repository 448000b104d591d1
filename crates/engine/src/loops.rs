// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loop devices: block devices of the system on files (`<linux/loop.h>`).

use std::fs::File;
use std::io;
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::path::PathBuf;

use libc::c_int;

use crate::apart::apart;
use crate::apart::check;

const CONTROL: &str = "/dev/loop-control";

/// Between getting the number of a free device and taking it another process may have taken it.
const TRIES: u32 = 16;

const LOOP_SET_STATUS64: libc::Ioctl = 0x4c04;
const LOOP_GET_STATUS64: libc::Ioctl = 0x4c05;
const LOOP_CLR_FD: libc::Ioctl = 0x4c01;
const LOOP_SET_CAPACITY: libc::Ioctl = 0x4c07;
const LOOP_CONFIGURE: libc::Ioctl = 0x4c0a;
const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4c82;

const READ_ONLY: u32 = 1;
const AUTOCLEAR: u32 = 4;
const PARTSCAN: u32 = 8;
const DIRECT_IO: u32 = 16;

/// `struct loop_info64`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Status {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Configuration {
    fd: u32,
    block_size: u32,
    status: Status,
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<Status>() == 232 && size_of::<Configuration>() == 304);

impl Status {
    const NONE: Self = Self {
        device: 0,
        inode: 0,
        rdevice: 0,
        offset: 0,
        size_limit: 0,
        number: 0,
        encrypt_type: 0,
        encrypt_key_size: 0,
        flags: 0,
        file_name: [0; 64],
        crypt_name: [0; 64],
        encrypt_key: [0; 32],
        init: [0; 2],
    };
}

/// Why there is no loop device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoopError {
    /// The system has none.
    #[error("{CONTROL}: {0}; try: modprobe loop")]
    NoModule(io::Error),
    /// They are root's.
    #[error("{0}: {1}; try: as root, or a directory or --nbd SOCKET in the place of --loop")]
    NotAllowed(String, io::Error),
    /// The system says no.
    #[error("{0}: {1}")]
    System(String, io::Error),
}

/// What a device is to be like.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs)] // callers choose
pub struct LoopOptions {
    /// Logical block length, bytes: a power of two up to a page.
    pub block: u32,
    /// Writes are refused.
    pub read_only: bool,
}

/// A loop device. It stays when this is dropped.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
    /// Device and inode of the file behind it, by which it is still ours; None: it was found.
    file: Option<(u64, u64)>,
}

fn control() -> Result<File, LoopError> {
    File::options().read(true).write(true).open(CONTROL).map_err(|error| match error.kind() {
        ErrorKind::PermissionDenied => LoopError::NotAllowed(CONTROL.into(), error),
        _ => LoopError::NoModule(error),
    })
}

impl LoopDevice {
    /// Whether this process may have such devices.
    ///
    /// # Errors
    /// [`LoopError::NoModule`], [`LoopError::NotAllowed`].
    pub fn are_allowed() -> Result<(), LoopError> {
        control().map(drop)
    }

    /// Makes a device of `file`, past the system's cache of it (direct I/O). It is found by its
    /// partitions, too.
    ///
    /// # Errors
    /// If there is none.
    pub fn attach(file: &Path, options: LoopOptions) -> Result<Self, LoopError> {
        let failed = |error| LoopError::System(file.display().to_string(), error);
        apart("loop", || Ok(Self::attach_here(file, options))).map_err(failed)?
    }

    fn attach_here(file: &Path, options: LoopOptions) -> Result<Self, LoopError> {
        let shown = file.display().to_string();
        let failed = |error| LoopError::System(shown.clone(), error);
        let opened = File::options()
            .read(true)
            .write(!options.read_only)
            .custom_flags(libc::O_DIRECT)
            .open(file)
            .map_err(failed)?;
        let facts = opened.metadata().map_err(failed)?;
        let control = control()?;
        let mut flags = DIRECT_IO | PARTSCAN;
        if options.read_only {
            flags |= READ_ONLY;
        }
        let configuration = Configuration {
            fd: opened.as_raw_fd().cast_unsigned(),
            block_size: options.block,
            status: Status { flags, file_name: name_of(file), ..Status::NONE },
            reserved: [0; 8],
        };
        let mut tries = 0;
        loop {
            tries += 1;
            let number = free(&control).map_err(|error| match error.kind() {
                ErrorKind::PermissionDenied => LoopError::NotAllowed(CONTROL.into(), error),
                _ => LoopError::System(CONTROL.into(), error),
            })?;
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let shown = path.display().to_string();
            let device = open(&path).map_err(|error| match error.kind() {
                ErrorKind::PermissionDenied => LoopError::NotAllowed(shown.clone(), error),
                _ => LoopError::System(shown.clone(), error),
            })?;
            match configure(&device, &configuration) {
                Ok(()) => return Ok(Self { path, file: Some((facts.dev(), facts.ino())) }),
                Err(error) if error.kind() == ErrorKind::ResourceBusy && tries < TRIES => {}
                Err(error) => return Err(LoopError::System(shown, error)),
            }
        }
    }

    /// The devices of `file`, whose server may be gone by now.
    #[must_use]
    pub fn of(file: &Path) -> Vec<Self> {
        let Ok(all) = std::fs::read_dir("/sys/block") else { return Vec::new() };
        let is_of_file = |folder: &Path| {
            let behind = std::fs::read(folder.join("loop/backing_file"));
            behind.is_ok_and(|behind| {
                behind.strip_suffix(b"\n") == Some(file.as_os_str().as_encoded_bytes())
            })
        };
        all.flatten()
            .filter(|one| is_of_file(&one.path()))
            .map(|one| Self { path: Path::new("/dev").join(one.file_name()), file: None })
            .collect()
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes over the size of its file.
    ///
    /// # Errors
    /// If the device is gone.
    pub fn resize(&self) -> io::Result<()> {
        apart("loop", || {
            let device = open(&self.path)?;
            // SAFETY: the request has no argument (`<linux/loop.h>`), and the descriptor is open.
            check(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_SET_CAPACITY) })
        })
    }

    /// Takes the device away; nothing is done if it has gone before.
    ///
    /// # Errors
    /// [`ErrorKind::ResourceBusy`] if somebody uses it, and it stays.
    pub fn detach(&self) -> io::Result<()> {
        apart("loop", || self.detach_here())
    }

    fn detach_here(&self) -> io::Result<()> {
        // Who has mounted it, or given it to another driver, has it alone.
        let alone = File::options().read(true).custom_flags(libc::O_EXCL).open(&self.path)?;
        if !self.has(&alone) {
            return Ok(());
        }
        drop(alone);
        self.clear_here()?;
        // Whoever else has it open keeps it until he closes it, and then it goes by itself.
        let device = open(&self.path)?;
        if !self.has(&device) {
            return Ok(());
        }
        if let Ok(mut status) = status(&device) {
            status.flags &= !AUTOCLEAR;
            set_status(&device, &status)?;
        }
        Err(ErrorKind::ResourceBusy.into())
    }

    /// The same, but who uses the device keeps it until he closes it.
    ///
    /// # Errors
    /// If the system says no.
    pub fn clear(&self) -> io::Result<()> {
        apart("loop", || self.clear_here())
    }

    fn clear_here(&self) -> io::Result<()> {
        let device = open(&self.path)?;
        if !self.has(&device) {
            return Ok(());
        }
        // SAFETY: the request has no argument (`<linux/loop.h>`), and the descriptor is open.
        check(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CLR_FD) })
    }

    /// Whether our file is behind an open device.
    fn has(&self, device: &File) -> bool {
        match status(device) {
            Ok(status) => self.file.is_none_or(|file| file == (status.device, status.inode)),
            // Nothing is; another error comes from a file whose server is gone.
            Err(error) => error.raw_os_error() != Some(libc::ENXIO),
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    // A device that is read-only is opened for writing, too: the system looks at that later.
    File::options().read(true).write(true).open(path).or_else(|_| File::open(path))
}

/// As much of the path as there is room for, and a zero.
fn name_of(file: &Path) -> [u8; 64] {
    let mut name = [0; 64];
    let text = file.as_os_str().as_encoded_bytes();
    for (to, from) in name.iter_mut().take(63).zip(text) {
        *to = *from;
    }
    name
}

/// JUSTIFICATION: no library has the ioctls of loop devices as safe calls.
fn free(control: &File) -> io::Result<c_int> {
    // SAFETY: the request has no argument (`<linux/loop.h>`), and the descriptor is open.
    let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
    check(number).map(|()| number)
}

fn configure(device: &File, configuration: &Configuration) -> io::Result<()> {
    let configuration = std::ptr::from_ref(configuration);
    // SAFETY: the request reads a `loop_config`, whose layout that is, and keeps no address of it;
    // it is borrowed until this returns. The descriptor is open.
    check(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, configuration) })
}

fn status(device: &File) -> io::Result<Status> {
    let mut status = Status::NONE;
    // SAFETY: the request writes a `loop_info64`, whose layout that is and which may have any
    // bytes, and keeps no address of it. The descriptor is open.
    check(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64, &raw mut status) })?;
    Ok(status)
}

fn set_status(device: &File, status: &Status) -> io::Result<()> {
    let status = std::ptr::from_ref(status);
    // SAFETY: the request reads a `loop_info64`, whose layout that is, and keeps no address of it;
    // it is borrowed until this returns. The descriptor is open.
    check(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_SET_STATUS64, status) })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that panics has failed
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_and_end() {
        let long = "/".repeat(70);
        let name = name_of(Path::new(&long));
        assert!(name[..63].iter().all(|byte| *byte == b'/') && name[63] == 0);
        assert_eq!(&name_of(Path::new("/a"))[..3], b"/a\0");
    }

    #[test]
    fn what_is_no_loop_device_is_not_found() {
        assert!(LoopDevice::of(Path::new("/no such file")).is_empty());
    }
}
