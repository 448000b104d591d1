// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which ublk device a disk is to be: a new one, or one whose process is gone.
//!
//! What a process needs to know that takes a device over is written on the device itself
//! ([`Mark`]): so nothing else has to outlive the process before it.

use std::hash::BuildHasher;
use std::hash::RandomState;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use control::admin::Attachment;
use engine::ublk::UblkDevice;
use engine::ublk::UblkError;
use engine::ublk::UblkInfo;
use initiator::Address;
use initiator::Disk;
use initiator::Isid;
use initiator::Session;
use initiator::scsi;
use wire::scsi::vpd::Association;
use wire::scsi::vpd::Designator;

use super::book::Book;
use super::book::Entry;
use super::served;
use crate::client;

/// Linux before 6.12 looks every 5 s whether the process of a device is gone.
const PATIENCE: Duration = Duration::from_secs(12);

/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// What is written on a device, and comes back as it was.
///
/// A process that is gone may have left writes on their way to the target. They are asked of the
/// next process again, and must not come after what that one writes later: so it logs in with the
/// same ISID, which ends the session before it and all that was under way there (RFC 7143 §6.3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// Behind the first byte of the ISID.
    isid: [u8; 5],
    /// Of what names the disk, and of how a stripe is laid out; zero: nothing does.
    disk: [u8; 3],
}

/// A device, and by which name the disk is listed.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) mark: Mark,
    /// None: a new one.
    pub(super) orphan: Option<Orphan>,
}

/// A device that waits for a process.
#[derive(Debug)]
pub(super) struct Orphan {
    pub(super) device: UblkDevice,
    info: UblkInfo,
    /// By which it was listed.
    pub(super) name: Option<String>,
    /// It was not attached by the URLs that it is to be reached by now, as far as is known.
    pub(super) is_elsewhere: bool,
}

impl Mark {
    /// With an ISID of its own.
    fn new() -> Self {
        let [a, b, c, d, e, ..] = RandomState::new().hash_one(std::process::id()).to_ne_bytes();
        Self { isid: [a, b, c, d, e], disk: [0; 3] }
    }

    fn of(number: u64) -> Self {
        let [x, y, z, a, b, c, d, e] = number.to_be_bytes();
        Self { isid: [a, b, c, d, e], disk: [x, y, z] }
    }

    pub(super) fn number(self) -> u64 {
        let Self { isid: [a, b, c, d, e], disk: [x, y, z] } = self;
        u64::from_be_bytes([x, y, z, a, b, c, d, e])
    }

    /// Of the path with this number: type 10, and a qualifier (RFC 7143 §11.12.5).
    pub(super) fn isid(self, path: u16) -> Isid {
        let [a, b, c, d, e] = self.isid;
        let [high, low] = u16::from_be_bytes([d, e]).wrapping_add(path).to_be_bytes();
        Isid([0x80, a, b, c, high, low])
    }

    pub(super) fn with_disk(self, disk: [u8; 3]) -> Self {
        Self { disk, ..self }
    }
}

impl Claim {
    /// The device of the number `recover`; else one of `url` whose process is gone, if there is
    /// one; else a new one.
    pub(super) fn find(
        recover: Option<u32>,
        alias: Option<&str>,
        book: &Book,
        url: &str,
    ) -> Result<Self> {
        let wanted = recover.map(UblkDevice::of);
        let found = |entry: &Entry| {
            let attachment = &entry.attachment;
            let device = UblkDevice::at(Path::new(&attachment.place))?;
            let is_it = match &wanted {
                Some(wanted) => *wanted == device,
                None => attachment.url == url && alias.is_none_or(|alias| alias == attachment.name),
            };
            // A device that is gone, as after a reboot, is taken over by nobody, and what has its
            // number since is another one.
            let is_left = !entry.alive && is_it && (wanted.is_some() || is_left(attachment));
            is_left.then(|| (device, Some(attachment.name.clone()), attachment.url != url))
        };
        let mut listed: Vec<_> = book.entries()?.iter().filter_map(found).collect();
        if listed.len() > 1 && wanted.is_none() {
            bail!(
                "several devices of {url} wait for a process; try: --recover NUMBER, or --as NAME"
            );
        }
        if listed.is_empty() && wanted.is_none() {
            strike_stopped(book, url)?;
        }
        let device = listed.pop().or_else(|| wanted.map(|device| (device, None, true)));
        let Some((device, name, is_elsewhere)) = device else {
            return Ok(Self { mark: Mark::new(), orphan: None });
        };
        let info = wait_for_orphan(&device)?;
        let orphan = Orphan { device, info, name, is_elsewhere };
        Ok(Self { mark: Mark::of(orphan.info.mark), orphan: Some(orphan) })
    }

    /// The device that `disk`, which is at `address`, is to be.
    pub(super) fn device(
        &self,
        session: &Session,
        address: &Address,
        disk: &Disk,
    ) -> Result<attach::Device> {
        let names = names(session, address)?;
        let Some(Orphan { device, info, .. }) = &self.orphan else {
            return Ok(attach::Device::New(self.mark.with_disk(names).number()));
        };
        let shown = device.path().display();
        let geometry = disk.geometry();
        if self.mark.disk != names {
            bail!("{shown} was another disk than this one; try: the URL that it was attached with");
        }
        if info.block != geometry.block || info.bytes > geometry.bytes() {
            bail!(
                "{shown} has {} bytes in blocks of {}, and the disk {} in blocks of {}; \
                 try: lunwire detach {shown}",
                info.bytes,
                info.block,
                geometry.bytes(),
                geometry.block
            );
        }
        if geometry.read_only && !info.read_only {
            bail!("{shown} can be written, and the disk cannot any more");
        }
        let until = Instant::now() + PATIENCE;
        while let Err(error) = device.begin_recovery() {
            let is_invalid = error.kind() == ErrorKind::InvalidInput;
            let info = device.info()?;
            let is_begun = is_invalid && info.is_orphan;
            if is_begun && !device.has_server() {
                // By a process that was killed before it served it.
                break;
            }
            let is_passing = is_begun || error.kind() == ErrorKind::ResourceBusy;
            if is_passing || is_invalid {
                // Somebody else may have been quicker, and even have begun to serve it.
                expect_unserved(device, &info)?;
            }
            if !is_passing || Instant::now() >= until || client::is_interrupted() {
                return Err(error).with_context(|| format!("cannot take {shown} over"));
            }
            std::thread::sleep(LOOK);
        }
        Ok(attach::Device::Orphan(device.clone()))
    }

    /// Bytes that the device lacks of the disk, of which its users see nothing.
    pub(super) fn has_grown(&self, disk: &Disk) -> bool {
        self.orphan.as_ref().is_some_and(|orphan| orphan.info.bytes < disk.size())
    }
}

/// Why a device could not be taken over: somebody was quicker, whose session ends ours, or one of
/// its paths is not there.
pub(super) fn explained(
    error: anyhow::Error,
    claim: Option<&Claim>,
    address: &Address,
) -> anyhow::Error {
    let Some(Orphan { device, .. }) = claim.and_then(|claim| claim.orphan.as_ref()) else {
        return error;
    };
    if let Ok(info) = device.info()
        && let Err(served) = expect_unserved(device, &info)
    {
        return served.into();
    }
    if !has_paths(address) {
        return error;
    }
    let shown = device.path().display();
    let number = shown.to_string().replace("/dev/ublkb", "");
    error.context(format!(
        "{shown} goes on waiting until all its paths are there, as what the process before had on \
         its way over one could come late; try: --recover {number} with the URLs that are there, \
         when that is certain not to come any more"
    ))
}

/// Why a device could not be served: somebody was quicker, and is about to serve it.
pub(super) fn outrun(error: anyhow::Error, claim: Option<&Claim>) -> anyhow::Error {
    let Some(Orphan { device, .. }) = claim.and_then(|claim| claim.orphan.as_ref()) else {
        return error;
    };
    let until = Instant::now() + PATIENCE;
    while device.has_server() && Instant::now() < until {
        if let Ok(info) = device.info()
            && let Err(served) = expect_unserved(device, &info)
        {
            return served.into();
        }
        std::thread::sleep(LOOK);
    }
    error
}

/// Whether a disk is there over several paths.
fn has_paths(address: &Address) -> bool {
    match address {
        Address::Paths(urls) => urls.len() > 1,
        Address::Stripe { members, .. } => members.iter().any(|urls| urls.len() > 1),
    }
}

/// Whether the system has a device of this path.
pub(super) fn exists(place: &str) -> bool {
    let device = UblkDevice::at(Path::new(place));
    device.is_some_and(|device| {
        !matches!(device.info(), Err(UblkError::NoDevice(_) | UblkError::NoModule(_)))
    })
}

/// Whether the device of an attachment whose process is gone waits for the next one, and is not
/// another one that has its number since.
pub(super) fn is_left(attachment: &Attachment) -> bool {
    let Some(device) = device_of(attachment) else { return false };
    match device.info() {
        Ok(info) if info.is_unused => false,
        Ok(info) => u32::try_from(info.pid) == Ok(attachment.pid) || !lives(info.pid),
        Err(error) => !matches!(error, UblkError::NoDevice(_) | UblkError::NoModule(_)),
    }
}

fn device_of(attachment: &Attachment) -> Option<UblkDevice> {
    UblkDevice::at(Path::new(&attachment.place)).filter(|_| attachment.kind == "ublk")
}

/// Takes away the device of an attachment whose process was killed when it had stopped it. False:
/// there is none.
pub(super) fn take_stopped(attachment: &Attachment) -> Result<bool> {
    match device_of(attachment).filter(is_nobodys) {
        Some(device) => delete(&device).map(|()| true),
        None => Ok(false),
    }
}

/// Strikes out attachments of `url` whose devices nobody can take over.
fn strike_stopped(book: &Book, url: &str) -> Result<()> {
    for Entry { attachment, alive } in book.entries()? {
        if !alive
            && attachment.url == url
            && let Some(_alone) = book.hold(&attachment)?
            && take_stopped(&attachment)?
        {
            book.clean(&attachment.name);
        }
    }
    Ok(())
}

/// Whether nobody can use a device, and nobody is about to change that: its process was killed
/// before it was shown, or after it was stopped.
fn is_nobodys(device: &UblkDevice) -> bool {
    device.info().is_ok_and(|info| info.is_unused && !lives(info.pid)) && !device.has_server()
}

fn delete(device: &UblkDevice) -> Result<()> {
    device.delete().with_context(|| format!("cannot take {} away", device.path().display()))
}

/// Takes away a device whose process is gone; `force`: even if somebody uses it.
pub(super) fn take_away(place: &str, force: bool) -> Result<()> {
    let Some(device) = UblkDevice::at(Path::new(place)).filter(|_| exists(place)) else {
        return Ok(());
    };
    // Who may not ask may do nothing else.
    device.info()?;
    if is_nobodys(&device) {
        return delete(&device);
    }
    if !force && served::soon(|| served::is_unused(&device)).is_err() {
        let users = super::users::of(device.path());
        bail!(
            "{place} is in use by {users}, whose reads and writes wait; try: attach it again, or \
             --force, which loses what was not written"
        );
    }
    wait_for_orphan(&device)?;
    device.stop().with_context(|| format!("cannot take {place} away"))?;
    delete(&device)
}

/// Waits until the system has noticed that the process of a device is gone.
fn wait_for_orphan(device: &UblkDevice) -> Result<UblkInfo> {
    let until = Instant::now() + PATIENCE;
    loop {
        let info = device.info()?;
        if info.is_orphan {
            return Ok(info);
        }
        expect_unserved(device, &info)?;
        let shown = device.path().display().to_string();
        if is_nobodys(device) {
            bail!(
                "{shown}: its process was killed before anybody could use it, or when it had \
                 stopped it; try: lunwire detach {shown}"
            );
        }
        if Instant::now() >= until || client::is_interrupted() {
            return Err(UblkError::NotWaiting(shown).into());
        }
        std::thread::sleep(LOOK);
    }
}

/// Fails if somebody serves the device.
fn expect_unserved(device: &UblkDevice, info: &UblkInfo) -> Result<(), UblkError> {
    match !info.is_orphan && lives(info.pid) {
        true => {
            let device = device.path().display().to_string();
            Err(UblkError::Served { device, pid: info.pid })
        }
        false => Ok(()),
    }
}

/// Whether there is this process. Of one that ends there is this folder until it has ended.
fn lives(pid: i32) -> bool {
    pid > 0 && Path::new(&format!("/proc/{pid}/exe")).exists()
}

/// Three bytes of what names a disk; zeroes if nothing does. The same disks in other chunks are
/// another one.
fn names(session: &Session, address: &Address) -> Result<[u8; 3]> {
    let lun = address.first().and_then(|url| url.lun).unwrap_or(0);
    let mut bytes = match address {
        Address::Stripe { chunk, .. } => chunk.to_be_bytes().to_vec(),
        Address::Paths(_) => Vec::new(),
    };
    for name in scsi::designators(&mut session.unit(lun))? {
        let is_of_unit = match &name {
            Designator::Naa(_)
            | Designator::Eui(_)
            | Designator::T10Vendor(_)
            | Designator::Content(_) => true,
            Designator::ScsiName { of, .. } => *of == Association::LogicalUnit,
            _ => false,
        };
        if is_of_unit {
            name.emit(&mut bytes);
        }
    }
    if bytes.is_empty() {
        return Ok([0; 3]);
    }
    let [_, rest @ ..] = crc::crc32c(&bytes).to_be_bytes();
    Ok(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_comes_back_as_it_was() {
        let mark = Mark { isid: [1, 2, 3, 0xff, 0xff], disk: [7, 8, 9] };
        assert_eq!(Mark::of(mark.number()), mark);
        assert_eq!(mark.isid(0), Isid([0x80, 1, 2, 3, 0xff, 0xff]));
        assert_eq!(mark.isid(1), Isid([0x80, 1, 2, 3, 0, 0]));
        assert!(mark.isid(2).is_proper());
        assert_ne!(Mark::new(), Mark::new());
    }

    #[test]
    fn what_is_no_device_is_not_there() {
        assert!(!exists("/dev/loop0") && !exists("nonsense"));
        assert!(take_away("/dev/loop0", false).is_ok());
    }
}
