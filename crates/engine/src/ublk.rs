// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Block devices that a process serves (`ublk_drv`, `<linux/ublk_cmd.h>`).
//!
//! ```text
//! add --> [new] --queue, start--> [live] --stop--> [dead] --delete--> gone
//!                                 |    ^
//!          its process is gone    v    |  begin_recovery, queue, recover
//!                               [orphan]: requests wait
//! ```
//!
//! Data is moved by `pread` and `pwrite`, so the driver is lent no memory of ours.

mod control;
mod layout;
mod queue;

use std::fs::File;
use std::io;
use std::io::ErrorKind;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

pub use self::queue::Action;
pub use self::queue::Coming;
pub use self::queue::Queue;
pub use self::queue::Request;

use self::layout::DiscardParams;
use self::layout::Info;
use self::layout::Params;
use crate::apart::apart;

const CONTROL: &str = "/dev/ublk-control";

/// The queue of a device, before its number.
const QUEUE: &str = "/dev/ublkc";

/// Sizes are told in sectors.
const SECTOR: u64 = 512;

/// Requests under way: as many as disks that are reached over a network are kept busy with.
pub const DEPTH: u16 = 128;

/// Opening a device that nobody keeps takes less.
const LOOK_MOST: Duration = Duration::from_secs(2);

/// Longest request with data, bytes: as by FUSE.
pub const IO_BYTES_MAX: u32 = 1 << 20;

/// What a driver must be able to do; all of it came with Linux 6.5.
const NEEDED: u64 = layout::USER_RECOVERY
    | layout::USER_RECOVERY_REISSUE
    | layout::IOCTL_ENCODE
    | layout::USER_COPY;

/// Why there is no device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UblkError {
    /// The system has none.
    #[error(
        "{CONTROL}: {0}; try: modprobe ublk_drv (Linux 6.5 or later, CONFIG_BLK_DEV_UBLK), or \
         --loop or --nbd SOCKET in the place of --ublk"
    )]
    NoModule(io::Error),
    /// They are root's.
    #[error("{CONTROL}: {0}; try: as root, or a directory or --nbd SOCKET in the place of --ublk")]
    NotAllowed(io::Error),
    /// The driver lacks something.
    #[error(
        "the ublk driver of this kernel is too old: it lacks user copy or user recovery; try: \
         Linux 6.5 or later, or --loop or --nbd SOCKET in the place of --ublk"
    )]
    TooOld,
    /// io_uring cannot be had.
    #[error("ublk devices need io_uring: {0}; try: sysctl kernel.io_uring_disabled=0")]
    NoRing(io::Error),
    /// No device has this number.
    #[error("there is no {0}")]
    NoDevice(String),
    /// Somebody serves the device.
    #[error("{device} is served by process {pid}; try: end that first")]
    Served {
        /// The device.
        device: String,
        /// Who.
        pid: i32,
    },
    /// It does not wait for anybody.
    #[error("{0} waits for nobody to serve it: it was stopped, or is another program's")]
    NotWaiting(String),
    /// The blocks of a disk.
    #[error("ublk devices have blocks of 512 to {most} bytes, and the disk has {block}")]
    Block {
        /// Those of the disk.
        block: u32,
        /// A page.
        most: usize,
    },
    /// The system says no.
    #[error("{0}: {1}")]
    System(String, io::Error),
}

/// What a device is to be like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs)] // callers choose
pub struct UblkOptions {
    /// Logical block length, bytes: a power of two from 512 up to a page.
    pub block: u32,
    /// Physical block length, bytes.
    pub physical: u32,
    /// Size, bytes.
    pub bytes: u64,
    /// Writes are refused.
    pub read_only: bool,
    /// Discards; None: there are none.
    pub discard: Option<Discard>,
    /// Longest range that is zeroed at a time, bytes; zero: none is.
    pub zero_bytes_max: u32,
    /// What whoever serves it has to say to whoever does after it.
    pub mark: u64,
}

/// Which ranges are discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs)] // callers choose
pub struct Discard {
    /// Bytes of which whole multiples are given back best.
    pub granularity: u32,
    /// Where the first such multiple begins.
    pub alignment: u32,
    /// Longest range at a time, bytes.
    pub bytes_max: u32,
}

/// What the driver says of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs)] // it is made here alone, and read
pub struct UblkInfo {
    /// Who serves it, or did.
    pub pid: i32,
    /// Whether it waits for somebody to serve it.
    pub is_orphan: bool,
    /// Whether it was made, and nobody can use it, as none has [started](UblkDevice::start) it yet.
    pub is_unused: bool,
    /// As it was given.
    pub mark: u64,
    /// Size, bytes.
    pub bytes: u64,
    /// Logical block length, bytes.
    pub block: u32,
    /// Writes are refused.
    pub read_only: bool,
}

/// A ublk device. It stays when this is dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UblkDevice {
    number: u32,
    path: PathBuf,
}

impl UblkDevice {
    /// Makes a device. It can be used when somebody serves its [`queue`](Self::queue), and it was
    /// [started](Self::start).
    ///
    /// # Errors
    /// If there is none.
    pub fn add(options: &UblkOptions) -> Result<Self, UblkError> {
        let parameters = parameters(options)?;
        examine()?;
        let info = Info {
            queues: 1,
            depth: DEPTH,
            state: 0,
            io_bytes_max: IO_BYTES_MAX,
            // The driver chooses.
            number: u32::MAX,
            pid: own_pid(),
            flags: NEEDED,
            mark: options.mark,
        };
        let mut bytes = info.emit();
        let added = apart("ublk", || {
            control::send(layout::ADD_DEV, u32::MAX, &mut bytes, 0)?;
            Ok(bytes)
        });
        let info = Info::parse(&added.map_err(|error| system(CONTROL, error))?);
        let device = Self::of(info.number);
        let mut bytes = parameters.emit();
        let set = apart("ublk", || control::send(layout::SET_PARAMS, info.number, &mut bytes, 0));
        if let Err(error) = set {
            // The error is what counts.
            let _ = device.delete();
            return Err(device.failed(error));
        }
        Ok(device)
    }

    /// The device of this number, whether there is one or not.
    #[must_use]
    pub fn of(number: u32) -> Self {
        Self { number, path: PathBuf::from(format!("/dev/ublkb{number}")) }
    }

    /// The device at a path, by its name or that of its queue, which alone is there before it can
    /// be used.
    #[must_use]
    pub fn at(path: &Path) -> Option<Self> {
        let path = path.to_str()?;
        let number = path.strip_prefix("/dev/ublkb").or_else(|| path.strip_prefix(QUEUE))?;
        number.parse().ok().map(Self::of)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the driver says of it.
    ///
    /// # Errors
    /// [`UblkError::NoDevice`], and if the driver cannot be asked.
    pub fn info(&self) -> Result<UblkInfo, UblkError> {
        examine()?;
        let asked = apart("ublk", || {
            let mut info = [0; Info::BYTES];
            control::send(layout::GET_DEV_INFO, self.number, &mut info, 0)?;
            let mut params = Params::asking();
            control::send(layout::GET_PARAMS, self.number, &mut params, 0)?;
            Ok((Info::parse(&info), Params::parse(&params)))
        });
        let (info, params) = asked.map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::InvalidInput => UblkError::NoDevice(self.shown()),
            _ if error.raw_os_error() == Some(libc::ENODEV) => UblkError::NoDevice(self.shown()),
            _ => self.failed(error),
        })?;
        const DEAD: u16 = 0;
        const QUIESCED: u16 = 2;
        let is_ours = info.queues == 1 && info.depth == DEPTH && info.flags & NEEDED == NEEDED;
        Ok(UblkInfo {
            pid: info.pid,
            is_orphan: info.state == QUIESCED && is_ours,
            is_unused: info.state == DEAD && is_ours,
            mark: info.mark,
            bytes: params.sectors.saturating_mul(SECTOR),
            block: 1_u32.checked_shl(params.logical_shift.into()).unwrap_or(0),
            read_only: params.attributes & Params::READ_ONLY != 0,
        })
    }

    /// Begins to serve it: the calling thread does so from now on, and waits for `watched`, too.
    ///
    /// # Errors
    /// [`ErrorKind::ResourceBusy`] if somebody else does.
    pub fn queue(&self, watched: &[BorrowedFd<'_>]) -> io::Result<Queue> {
        Queue::new(self.open_queue()?, watched)
    }

    /// Whether somebody has its queue, as who serves it does, or is about to.
    #[must_use]
    pub fn has_server(&self) -> bool {
        self.open_queue().is_err_and(|error| error.kind() == ErrorKind::ResourceBusy)
    }

    fn open_queue(&self) -> io::Result<File> {
        File::options().read(true).write(true).open(format!("{QUEUE}{}", self.number))
    }

    /// Shows the device to its users: waits until its queue is served, and looks for partitions,
    /// which reads from it.
    ///
    /// # Errors
    /// If the system says no.
    pub fn start(&self) -> Result<(), UblkError> {
        self.order(layout::START_DEV, pid_value()).map_err(|error| self.failed(error))
    }

    /// Begins to take over a device whose process is gone.
    ///
    /// # Errors
    /// [`ErrorKind::ResourceBusy`] if that still ends, or serves it.
    pub fn begin_recovery(&self) -> io::Result<()> {
        self.order(layout::START_USER_RECOVERY, 0)
    }

    /// Has its requests go on, when its queue is served: those first that were under way.
    ///
    /// # Errors
    /// If the system says no.
    pub fn recover(&self) -> Result<(), UblkError> {
        self.order(layout::END_USER_RECOVERY, pid_value()).map_err(|error| self.failed(error))
    }

    /// Takes the block device away: requests that are under way are waited for, and who still has
    /// it open gets errors.
    ///
    /// # Errors
    /// If the system says no.
    pub fn stop(&self) -> io::Result<()> {
        self.order(layout::STOP_DEV, 0)
    }

    /// Takes all of it away, for which nobody serves it any more. It may last as long as somebody
    /// has it open.
    ///
    /// # Errors
    /// If the system says no.
    pub fn delete(&self) -> io::Result<()> {
        match self.order(layout::DEL_DEV_ASYNC, 0) {
            // Before Linux 6.9.
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                self.order(layout::DEL_DEV, 0)
            }
            result => result,
        }
    }

    /// Gives it another size.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] before Linux 6.16.
    pub fn resize(&self, bytes: u64) -> io::Result<()> {
        if features()? & layout::UPDATE_SIZE_FEATURE == 0 {
            return Err(ErrorKind::Unsupported.into());
        }
        self.order(layout::UPDATE_SIZE, bytes / SECTOR)
    }

    /// Whether nobody has it alone, as who has mounted it does.
    ///
    /// # Errors
    /// [`ErrorKind::ResourceBusy`] if somebody has; also if that cannot be seen in time, as while
    /// the system looks for partitions, which it waits for.
    pub fn is_free(&self) -> io::Result<()> {
        let (tell, told) = mpsc::channel();
        let device = self.clone();
        let thread = std::thread::Builder::new().name("ublk-look".into());
        // Who has gone needs no word.
        thread.spawn(move || drop(tell.send(device.look())))?;
        told.recv_timeout(LOOK_MOST).unwrap_or_else(|_| Err(ErrorKind::ResourceBusy.into()))
    }

    fn look(&self) -> io::Result<()> {
        apart("ublk", || {
            let opened = File::options().read(true).custom_flags(libc::O_EXCL).open(&self.path);
            match opened {
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                other => other.map(drop),
            }
        })
    }

    fn order(&self, code: u32, value: u64) -> io::Result<()> {
        apart("ublk", || control::command(code, self.number, value))
    }

    fn shown(&self) -> String {
        self.path.display().to_string()
    }

    fn failed(&self, error: io::Error) -> UblkError {
        system(&self.shown(), error)
    }
}

fn own_pid() -> i32 {
    std::process::id().cast_signed()
}

/// As commands have it.
fn pid_value() -> u64 {
    std::process::id().into()
}

fn system(what: &str, error: io::Error) -> UblkError {
    UblkError::System(what.to_owned(), error)
}

/// Whether there is a driver that can do what is needed.
fn examine() -> Result<(), UblkError> {
    let opened = File::options().read(true).write(true).open(CONTROL);
    if let Err(error) = opened {
        return Err(match error.kind() {
            ErrorKind::PermissionDenied => UblkError::NotAllowed(error),
            _ => UblkError::NoModule(error),
        });
    }
    match features() {
        Ok(features) if features & NEEDED == NEEDED => Ok(()),
        Ok(_) => Err(UblkError::TooOld),
        Err(error) => Err(match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES | libc::ENOSYS) => UblkError::NoRing(error),
            Some(libc::EOPNOTSUPP | libc::EINVAL) => UblkError::TooOld,
            _ => system(CONTROL, error),
        }),
    }
}

fn features() -> io::Result<u64> {
    apart("ublk", || {
        let mut bytes = [0; 8];
        control::send(layout::GET_FEATURES, u32::MAX, &mut bytes, 0)?;
        Ok(u64::from_ne_bytes(bytes))
    })
}

fn parameters(options: &UblkOptions) -> Result<Params, UblkError> {
    let UblkOptions { block, physical, bytes, read_only, discard, zero_bytes_max, .. } = *options;
    let most = rustix::param::page_size();
    if !block.is_power_of_two() || block < 512 || block as usize > most {
        return Err(UblkError::Block { block, most });
    }
    let physical = physical.max(block).checked_next_power_of_two().unwrap_or(block);
    let shift = |bytes: u32| u8::try_from(bytes.trailing_zeros()).unwrap_or(9);
    // Flushes come even if the disk has no cache now: it may have one later.
    let attributes = match read_only {
        true => Params::READ_ONLY,
        false => Params::VOLATILE_CACHE | Params::FUA,
    };
    let sectors = |bytes: u32| bytes / 512;
    let has_ranges = !read_only && (discard.is_some() || zero_bytes_max > 0);
    let of_ranges = DiscardParams {
        alignment: discard.map_or(0, |discard| discard.alignment),
        granularity: discard
            .map_or(0, |discard| discard.granularity.min(discard.bytes_max))
            .max(block),
        discard_sectors_max: sectors(discard.map_or(0, |discard| discard.bytes_max)),
        zero_sectors_max: sectors(zero_bytes_max),
    };
    Ok(Params {
        attributes,
        logical_shift: shift(block),
        physical_shift: shift(physical),
        io_sectors_max: sectors(IO_BYTES_MAX),
        sectors: bytes / SECTOR,
        discard: has_ranges.then_some(of_ranges),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: UblkOptions = UblkOptions {
        block: 512,
        physical: 4096,
        bytes: 1 << 30,
        read_only: false,
        discard: None,
        zero_bytes_max: 0,
        mark: 0,
    };

    #[test]
    fn parameters_follow_from_the_disk() {
        let plain = parameters(&PLAIN).expect("it is right");
        assert_eq!((plain.logical_shift, plain.physical_shift, plain.sectors), (9, 12, 1 << 21));
        assert_eq!(plain.attributes, Params::VOLATILE_CACHE | Params::FUA);
        assert_eq!(plain.discard, None);
        let zeroes = UblkOptions { zero_bytes_max: 1 << 30, physical: 0, ..PLAIN };
        let zeroes = parameters(&zeroes).expect("it is right");
        let ranges = zeroes.discard.expect("there are some");
        assert_eq!((ranges.discard_sectors_max, ranges.zero_sectors_max), (0, 1 << 21));
        assert_eq!((ranges.granularity, zeroes.physical_shift), (512, 9));
        let discard = Discard { granularity: 8192, alignment: 512, bytes_max: 1 << 20 };
        let thin = UblkOptions { discard: Some(discard), ..PLAIN };
        let ranges = parameters(&thin).expect("it is right").discard.expect("there are some");
        assert_eq!((ranges.granularity, ranges.alignment), (8192, 512));
        assert_eq!(ranges.discard_sectors_max, 2048);
        let read_only = parameters(&UblkOptions { read_only: true, ..thin }).expect("it is right");
        assert_eq!((read_only.attributes, read_only.discard), (Params::READ_ONLY, None));
        for block in [0, 256, 520, 1 << 20] {
            let odd = parameters(&UblkOptions { block, ..PLAIN });
            assert!(matches!(odd, Err(UblkError::Block { .. })), "{block}");
        }
    }

    #[test]
    fn devices_are_known_by_their_paths() {
        for path in ["/dev/ublkb7", "/dev/ublkc7"] {
            assert_eq!(UblkDevice::at(Path::new(path)), Some(UblkDevice::of(7)));
        }
        for odd in ["/dev/ublkb", "/dev/ublkb7p1", "/dev/loop7", "ublkb7"] {
            assert_eq!(UblkDevice::at(Path::new(odd)), None, "{odd}");
        }
    }
}
