// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a disk is attached.

use std::io::ErrorKind;
use std::path::Path;
use std::path::PathBuf;
use std::sync::mpsc;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use attach::Address;
use attach::Device;
use attach::Error;
use attach::FuseServer;
use attach::Left;
use attach::NbdServer;
use attach::News;
use attach::Settings;
use attach::UblkServer;
use control::words;
use engine::loops::LoopDevice;
use engine::loops::LoopError;
use engine::loops::LoopOptions;
use engine::ublk::UblkDevice;
use initiator::Disk;
use initiator::Session;

use super::users;
use crate::args::AttachOptions;
use crate::args::Usage;
use crate::client;

/// Who only looks, as `udev` does whenever a device is closed, is gone after so long.
const MOMENT: Duration = Duration::from_secs(2);

/// How long the system may look for partitions on a new device: a few blocks.
const BEGIN_MOST: Duration = Duration::from_secs(30);

/// Between two looks whether something is still in use.
const LOOK: Duration = Duration::from_millis(50);

/// Where the user wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Nbd(Address),
    /// A file in it.
    Folder(PathBuf),
    /// A loop device.
    Loop,
    /// A ublk device: the one with this number, or what is found.
    Ublk(Option<u32>),
}

/// A disk that is attached.
#[derive(Debug)]
pub(super) enum Served {
    Nbd(NbdServer),
    File(FuseServer),
    /// On the file.
    Loop(LoopDevice, FuseServer),
    Ublk(UblkServer),
}

/// What it takes to attach a disk.
#[derive(Debug)]
pub(super) struct Wanted<'a> {
    pub(super) place: &'a Place,
    /// Name of the export of NBD.
    pub(super) export: &'a str,
    pub(super) description: &'a str,
    /// Where a disk is mounted that becomes a loop device.
    pub(super) mount: Option<PathBuf>,
    /// Which ublk device it is to be.
    pub(super) device: Option<Device>,
    pub(super) settings: Settings,
}

impl Place {
    /// Of which the system writes to by itself, also when it needs memory.
    pub(super) const fn is_device(&self) -> bool {
        matches!(self, Self::Loop | Self::Ublk(_))
    }

    pub(super) fn of(options: &AttachOptions, folder: Option<&Path>) -> Result<Self> {
        match (&options.nbd, folder) {
            (Some(_), Some(folder)) => Err(twice(folder, "--nbd")),
            (None, Some(folder)) if options.loops => Err(twice(folder, "--loop")),
            (None, Some(folder)) if options.ublk => Err(twice(folder, "--ublk")),
            (Some(text), None) => Ok(Self::Nbd(address(text)?)),
            (None, Some(folder)) => Ok(Self::Folder(folder.to_owned())),
            (None, None) if options.loops => Ok(Self::Loop),
            (None, None) if options.ublk => Ok(Self::Ublk(options.recover)),
            (None, None) => {
                Err(Usage("where? try: a directory, --nbd SOCKET, --loop or --ublk".into()).into())
            }
        }
    }
}

fn twice(folder: &Path, other: &str) -> anyhow::Error {
    Usage(format!("{}: a directory and {other} exclude each other", folder.display())).into()
}

fn address(text: &str) -> Result<Address> {
    if text.contains("://") {
        let right = "a path, as /run/disk.sock, or HOST:PORT is right";
        return Err(Usage(format!("--nbd {text}: {right}")).into());
    }
    match Address::parse(text) {
        Address::Path(path) if path.as_os_str().is_empty() => {
            Err(Usage("--nbd: it is empty; a path or HOST:PORT is right".into()).into())
        }
        Address::Path(path) if is_meant_as_a_port(&path) => {
            let right = "HOST:PORT is right; a socket of that name is given with ./ before it";
            Err(Usage(format!("--nbd {text}: {right}")).into())
        }
        // It is shown to others, who may be elsewhere.
        Address::Path(path) => Ok(Address::Path(std::path::absolute(path)?)),
        address => Ok(address),
    }
}

/// Whether a path is hardly one.
fn is_meant_as_a_port(path: &Path) -> bool {
    let text = path.to_string_lossy();
    let is_number = text.chars().all(|letter| letter.is_ascii_digit());
    let is_host = text.parse::<std::net::IpAddr>().is_ok();
    !text.contains('/') && (text.contains(':') || is_number || is_host)
}

impl Served {
    pub(super) fn start(
        wanted: &Wanted<'_>,
        disk: Disk,
        session: &Session,
    ) -> Result<(Self, Receiver<News>)> {
        let pool = session.pool().clone();
        match wanted.place {
            Place::Nbd(address) => {
                let Wanted { export, description, .. } = *wanted;
                let (server, news) =
                    NbdServer::start(disk, pool, export, description, address, &wanted.settings)?;
                Ok((Self::Nbd(server), news))
            }
            Place::Folder(folder) => {
                let (server, news) =
                    FuseServer::start(disk, pool, folder, wanted.settings.keep_bytes)?;
                Ok((Self::File(server), news))
            }
            Place::Loop => {
                let folder = wanted.mount.as_deref().context("there is no place for the file")?;
                let geometry = disk.geometry();
                let (server, news) =
                    FuseServer::start(disk, pool, folder, wanted.settings.keep_bytes)?;
                let options = LoopOptions { block: geometry.block, read_only: geometry.read_only };
                match device_on(&server, options)? {
                    Ok(device) => Ok((Self::Loop(device, server), news)),
                    Err(error) => {
                        // Nobody has used it.
                        let _ = server.stop(MOMENT);
                        Err(error.into())
                    }
                }
            }
            Place::Ublk(_) => {
                let device = wanted.device.clone().context("there is no device")?;
                let is_new = matches!(device, Device::New(_));
                let (server, news) =
                    UblkServer::start(disk, pool, device, wanted.settings.keep_bytes)?;
                let begun = begin(&server, is_new);
                if let Err(error) = begun {
                    // Another one has users, who wait. The error is what counts.
                    if is_new {
                        let _ = server.abandon();
                    } else {
                        let _ = server.leave();
                    }
                    return Err(error);
                }
                Ok((Self::Ublk(server), news))
            }
        }
    }

    /// `nbd`, `file`, `loop` or `ublk`.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Nbd(_) => "nbd",
            Self::File(_) => "file",
            Self::Loop(..) => "loop",
            Self::Ublk(_) => "ublk",
        }
    }

    /// Where it is.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Nbd(server) => server.address().to_owned(),
            Self::File(server) => server.path().display().to_string(),
            Self::Loop(device, _) => device.path().display().to_string(),
            Self::Ublk(server) => server.device().path().display().to_string(),
        }
    }

    /// The directory that is mounted.
    pub(super) fn folder(&self) -> Option<PathBuf> {
        match self {
            Self::Nbd(_) | Self::Ublk(_) => None,
            Self::File(server) | Self::Loop(_, server) => {
                server.path().parent().map(Path::to_path_buf)
            }
        }
    }

    /// The disk has another size.
    pub(super) fn resized(&self, bytes: u64) -> std::io::Result<()> {
        match self {
            Self::Nbd(_) => Ok(()),
            Self::File(server) => {
                server.resized(bytes);
                Ok(())
            }
            Self::Loop(device, server) => {
                server.resized(bytes);
                // That a file is smaller the system hears when somebody asks it, and at no other
                // time.
                std::fs::metadata(server.path())?;
                device.resize()
            }
            Self::Ublk(server) => server.device().resize(bytes).map_err(|error| {
                let why = "the system can give it another one since Linux 6.16; try: detach it, \
                           and attach it again";
                match error.kind() {
                    ErrorKind::Unsupported => std::io::Error::other(why),
                    _ => error,
                }
            }),
        }
    }

    /// Serves it no more, where it outlives the process. As [`stop`](Self::stop).
    pub(super) fn leave(self) -> (Vec<String>, Result<(), Error>) {
        match self {
            Self::Ublk(server) => (Vec::new(), server.leave()),
            other => other.stop(Duration::ZERO),
        }
    }

    /// Flushes what was written, well or not.
    ///
    /// # Errors
    /// [`Error::Silent`] if the disk does not answer within `patience`.
    pub(super) fn settle(&self, patience: Duration) -> Result<(), Error> {
        match self {
            Self::Nbd(server) => server.settle(patience),
            Self::File(server) | Self::Loop(_, server) => server.settle(patience),
            Self::Ublk(server) => server.settle(patience),
        }
    }

    /// Lets go of it, if nobody uses it.
    ///
    /// # Errors
    /// Who does.
    pub(super) fn release(&self) -> Result<(), String> {
        match self {
            Self::Nbd(_) => self.users().map_or(Ok(()), Err),
            Self::File(server) => {
                soon(|| server.unmount()).map_err(|error| used(&server.path(), &error))
            }
            Self::Loop(device, server) => {
                soon(|| device.detach()).map_err(|error| used(device.path(), &error))?;
                soon(|| server.unmount()).map_err(|error| used(&server.path(), &error))
            }
            Self::Ublk(server) => {
                let path = server.device().path();
                soon(|| is_unused(server.device())).map_err(|error| used(path, &error))
            }
        }
    }

    /// Who uses it, as far as that is known and somebody does.
    pub(super) fn users(&self) -> Option<String> {
        let of =
            |path: &Path| Some(format!("{} is in use by {}", path.display(), users::known(path)?));
        match self {
            Self::Nbd(server) => match server.clients() {
                0 => None,
                count => Some(format!(
                    "clients of {} have {} open",
                    server.address(),
                    words::count(count as u64, "connection")
                )),
            },
            Self::File(server) => of(&server.path()),
            Self::Loop(device, _) => of(device.path()),
            Self::Ublk(server) => of(server.device().path()),
        }
    }

    /// Ends it: those who use it have `grace` for what is under way. Gives what they are to know,
    /// whether it ends well or not.
    ///
    /// # Errors
    /// If what was written is not certain to be on stable storage.
    pub(super) fn stop(self, grace: Duration) -> (Vec<String>, Result<(), Error>) {
        let until = Instant::now() + grace;
        let mut lost = Vec::new();
        let server = match self {
            Self::Nbd(server) => {
                if server.clients() > 0 {
                    let connections = words::count(server.clients() as u64, "connection");
                    lost.push(format!(
                        "{connections} of clients end: what they have not written is lost"
                    ));
                }
                return (lost, server.stop(grace));
            }
            Self::Ublk(server) => {
                if let Err(error) = retry(until, || is_unused(server.device())) {
                    lost.push(in_use(server.device().path(), &error));
                }
                let left = until.saturating_duration_since(Instant::now()).max(MOMENT);
                return (lost, server.stop(left));
            }
            Self::File(server) => server,
            Self::Loop(device, server) => {
                if let Err(error) = retry(until, || device.detach()) {
                    lost.push(in_use(device.path(), &error));
                    // It goes when nobody uses it any more.
                    let _ = device.clear();
                }
                server
            }
        };
        let path = server.path();
        let users = match server.unmount() {
            Err(error) if error.kind() == ErrorKind::ResourceBusy => Some(in_use(&path, &error)),
            _ => None,
        };
        let grace = match lost.is_empty() {
            true => until.saturating_duration_since(Instant::now()),
            false => Duration::ZERO,
        };
        let stopped = server.stop(grace);
        if !matches!(stopped, Ok(Left::Unused)) && lost.is_empty() {
            lost.extend(users);
        }
        (lost, stopped.map(drop))
    }
}

/// A loop device on the file of `server`, which the system reads first: that may take as long as
/// the target is away, but not longer than the user wants it.
fn device_on(server: &FuseServer, options: LoopOptions) -> Result<Result<LoopDevice, LoopError>> {
    let (tell, told) = mpsc::channel();
    let file = server.path();
    let begin = std::thread::Builder::new().name("loop-begin".into());
    // Who has gone needs no word.
    begin.spawn(move || drop(tell.send(LoopDevice::attach(&file, options))))?;
    loop {
        match told.recv_timeout(LOOK) {
            Ok(attached) => return Ok(attached),
            Err(RecvTimeoutError::Timeout) if !client::is_interrupted() => {}
            Err(_) => break,
        }
    }
    server.cut()?;
    if let Ok(Ok(device)) = told.recv() {
        device.clear()?;
    }
    bail!("interrupted")
}

/// Shows a ublk device to its users, which the system reads first.
///
/// It holds a lock of the driver meanwhile. Should this process be killed before the target has
/// answered, Linux 6.12 waits for ever with that lock, and the device can be neither taken over nor
/// away: so this is short, whatever the user waits for otherwise.
fn begin(server: &UblkServer, is_new: bool) -> Result<()> {
    std::thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        let thread = std::thread::Builder::new().name("ublk-begin".into());
        // Who has gone needs no word.
        thread.spawn_scoped(scope, move || drop(tell.send(server.begin())))?;
        let until = Instant::now() + BEGIN_MOST;
        let mut is_failing = false;
        loop {
            match told.recv_timeout(LOOK) {
                Ok(begun) if !is_failing => return Ok(begun?),
                Ok(_) if client::is_interrupted() => bail!("interrupted"),
                Ok(_) => bail!("the target does not answer what the system reads of the device"),
                Err(RecvTimeoutError::Disconnected) => bail!("its thread stopped"),
                // Of one that is taken over nothing is read.
                Err(RecvTimeoutError::Timeout) => {
                    let is_late = client::is_interrupted() || Instant::now() >= until;
                    if is_new && !is_failing && is_late {
                        is_failing = true;
                        server.fail();
                    }
                }
            }
        }
    })
}

/// Whether nobody has mounted the device or has it open.
pub(super) fn is_unused(device: &UblkDevice) -> std::io::Result<()> {
    device.is_free()?;
    match users::has_some(device.path()) {
        true => Err(ErrorKind::ResourceBusy.into()),
        false => Ok(()),
    }
}

fn used(path: &Path, error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::ResourceBusy => format!("{} is in use by {}", path.display(), users::of(path)),
        _ => format!("{}: {error}", path.display()),
    }
}

fn in_use(path: &Path, error: &std::io::Error) -> String {
    let used = used(path, error);
    format!("{used}: what they have not written is lost, and they get errors from now on")
}

/// What may be done in a moment.
pub(super) fn soon(what: impl FnMut() -> std::io::Result<()>) -> std::io::Result<()> {
    retry(Instant::now() + MOMENT, what)
}

fn retry(until: Instant, mut what: impl FnMut() -> std::io::Result<()>) -> std::io::Result<()> {
    loop {
        match what() {
            Err(error) if error.kind() == ErrorKind::ResourceBusy && Instant::now() < until => {
                std::thread::sleep(LOOK);
            }
            result => return result,
        }
    }
}
