// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds out who a disk is: what is served, and not where it is served.
//!
//! A file has a number of its own, which is kept beside its blocks (`engine/files/identity.rs`).
//! Where nothing can be kept, as on a block device, the number follows from the host and from the
//! names that the device has of its own. Memory is new each time. A stripe is who its members are.
//!
//! Earlier versions made the number from target name and LUN number. Disks that hosts know by it
//! keep it: those of which state was kept under it, and all of a target whose configuration says
//! `identity = "name"`. With a state folder such a number is one disk's for ever: another disk at
//! the same place does not get it.

use std::fs::OpenOptions;
use std::io;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use engine::files;
use scsi::Identity;
use scsi::Kept;
use store::Store;
use store::spec::RbdSpec;
use store::spec::RemoteSpec;
use store::spec::ScsiSpec;
use store::spec::Spec;

use crate::keep;
use crate::stores::StoreFile;
use crate::stores::Stores;

/// Longest record of who has a number: facts with a path of 4 KiB for each of some hundred members.
const OWNER_LEN_MAX: u64 = 1 << 20;

/// What the number of a disk follows from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // the two that there are
pub enum IdentityPolicy {
    /// The disk.
    #[default]
    Own,
    /// Target name and LUN number, as in earlier versions.
    Name,
}

/// Where a disk is served.
#[derive(Clone, Copy, Debug)]
pub struct Sought<'a> {
    /// The name of its target.
    pub target: &'a str,
    /// Its LUN number.
    pub lun: u16,
    /// What its number is to follow from.
    pub policy: IdentityPolicy,
    /// The folder for what outlives the daemon.
    pub state_dir: Option<&'a Path>,
}

/// The number of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskNumber {
    /// What its identity is made of.
    pub number: u64,
    /// False for a disk that is gone with the daemon.
    pub lasting: bool,
}

/// Why nobody knows who a disk is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// Its file cannot be asked or marked.
    #[error("cannot tell who the disk {path} is: {source}; try: give it a serial number")]
    File {
        /// The file.
        path: String,
        /// What the kernel says.
        source: io::Error,
    },
    /// The state folder cannot be used.
    #[error("cannot use {path}: {source}")]
    Owner {
        /// The file in it.
        path: String,
        /// What the kernel says.
        source: io::Error,
    },
    /// The system has no randomness.
    #[error("cannot make a number for a new disk: {0}")]
    Random(io::Error),
}

/// Facts of a store, from its word.
#[derive(Debug, Default)]
struct Leaves {
    files: usize,
    /// Some of it is gone with the daemon.
    fleeting: bool,
    /// What makes other content of the same files.
    chunks: Vec<u8>,
    /// What is elsewhere.
    away: Vec<Away>,
    /// A device, which is all of it.
    device: Option<ScsiSpec>,
}

/// What is elsewhere, and has a name of its own there.
#[derive(Debug)]
enum Away {
    Image(RbdSpec),
    Remote(RemoteSpec),
}

impl Away {
    /// What it was found to be: a word for the kind, and its name.
    fn found<'a>(&self, stores: &'a Stores) -> Option<(&'static [u8], &'a str)> {
        match self {
            Self::Image(spec) => stores.image_of(spec).map(|image| (&b"rbd"[..], image)),
            Self::Remote(spec) => stores.remote_of(spec).map(|disk| (&b"iscsi"[..], disk)),
        }
    }
}

impl Leaves {
    fn of(spec: &Spec) -> Self {
        let mut leaves = Self::default();
        leaves.gather(spec);
        leaves
    }

    fn gather(&mut self, spec: &Spec) {
        match spec {
            Spec::File(_) | Spec::Iso { .. } => self.files += 1,
            Spec::Memory { .. } | Spec::Null { .. } => self.fleeting = true,
            Spec::Rbd(image) => self.away.push(Away::Image(image.clone())),
            Spec::Remote(disk) => self.away.push(Away::Remote(disk.clone())),
            Spec::Scsi(device) => self.device = Some(device.clone()),
            Spec::Filtered { behind, .. } => self.gather(behind),
            Spec::Stripe { chunk, stores } => {
                self.chunks.extend_from_slice(&chunk.to_be_bytes());
                let members = u64::try_from(stores.len()).unwrap_or(u64::MAX);
                self.chunks.extend_from_slice(&members.to_be_bytes());
                stores.iter().for_each(|spec| self.gather(spec));
            }
        }
    }
}

impl Stores {
    /// The number of the disk on `store`, which was opened by `spec`.
    ///
    /// # Errors
    /// If nobody can tell.
    pub fn disk_number(
        &self,
        store: &dyn Store,
        spec: &Spec,
        sought: Sought<'_>,
    ) -> Result<DiskNumber, IdentityError> {
        let leaves = Leaves::of(spec);
        if let Some(device) = &leaves.device {
            return Ok(self.device_number(device, sought));
        }
        let find = |id| self.files.iter().find(|file| file.id == id);
        let files: Vec<_> = store.files().into_iter().take(leaves.files).filter_map(find).collect();
        let own = match &*files {
            [file] if !leaves.fleeting && leaves.chunks.is_empty() => Some(*file),
            _ => None,
        };
        let recorded = own.map(recorded).transpose()?.flatten();
        if sought.policy == IdentityPolicy::Own
            && let Some(number) = recorded
        {
            return Ok(DiskNumber { number, lasting: true });
        }
        let away: Vec<_> = leaves.away.iter().filter_map(|away| away.found(self)).collect();
        if let Some(number) = former(&files, &away, leaves.fleeting, sought)? {
            if let Some(file) = own.filter(|file| file.writable && recorded != Some(number)) {
                record(file, number)?;
            }
            return Ok(DiskNumber { number, lasting: true });
        }
        if leaves.fleeting {
            let number = files::fresh().map_err(IdentityError::Random)?;
            return Ok(DiskNumber { number, lasting: false });
        }
        if let Some(file) = own {
            return Ok(DiskNumber { number: number_of(file, sought)?, lasting: true });
        }
        // The same for every gateway, and when an image is renamed.
        if let ([(kind, name)], true) = (&*away, leaves.chunks.is_empty()) {
            let number = Identity::number_of(kind, name.as_bytes());
            return Ok(DiskNumber { number, lasting: true });
        }
        let mut members = leaves.chunks;
        for (kind, name) in away {
            members.extend_from_slice(&Identity::number_of(kind, name.as_bytes()).to_be_bytes());
        }
        for file in files {
            members.extend_from_slice(&number_of(file, sought)?.to_be_bytes());
        }
        Ok(DiskNumber { number: Identity::number_of(b"stripe", &members), lasting: true })
    }
}

impl Stores {
    /// A device that names itself is the same wherever it is served; another one is what is at its
    /// place.
    fn device_number(&self, spec: &ScsiSpec, sought: Sought<'_>) -> DiskNumber {
        match self.device_of(spec).and_then(|known| known.name.as_ref()) {
            Some(name) => DiskNumber { number: Identity::number_of(b"scsi", name), lasting: true },
            None => DiskNumber {
                number: Identity::number_of_place(sought.target, sought.lun),
                lasting: false,
            },
        }
    }

    /// `identity` as the device says it that was opened by `spec`, as far as it does.
    #[must_use]
    pub fn identity_of_device(&self, spec: &ScsiSpec, identity: Identity) -> Identity {
        let Some(known) = self.device_of(spec) else { return identity };
        Identity {
            vendor: known.vendor.clone(),
            product: known.product.clone(),
            serial: known.serial.clone().unwrap_or(identity.serial),
            naa: known.naa.clone().unwrap_or(identity.naa),
            ..identity
        }
    }
}

/// A number for what a disk that is opened by `spec` holds, if that is gone with the daemon: a name
/// that stays does not tell it.
///
/// # Errors
/// If the system has no randomness.
pub fn content_number(spec: &Spec) -> Result<Option<u64>, IdentityError> {
    let number = || files::fresh().map_err(IdentityError::Random);
    Leaves::of(spec).fleeting.then(number).transpose()
}

/// The number that earlier versions gave the disk, if it is this disk's.
fn former(
    files: &[&StoreFile],
    away: &[(&[u8], &str)],
    fleeting: bool,
    sought: Sought<'_>,
) -> Result<Option<u64>, IdentityError> {
    let number = Identity::number_of_place(sought.target, sought.lun);
    let by_name = sought.policy == IdentityPolicy::Name;
    let Some(folder) = sought.state_dir else { return Ok(by_name.then_some(number)) };
    let naa = Identity::of(number, "", "").naa;
    let has_state = || Kept::ALL.iter().any(|kept| keep::place(folder, &naa, kept.name()).exists());
    // Those who named disks by their places alone knew nothing that is elsewhere.
    let is_new = fleeting || !away.is_empty();
    if !by_name && (is_new || !has_state() || !have_content(files)?) {
        return Ok(None);
    }
    let owner = keep::place(folder, &naa, "disk");
    let wrong = |source| IdentityError::Owner { path: owner.display().to_string(), source };
    let mut disk = String::new();
    for (_, name) in away {
        disk.push_str(name);
        disk.push('\n');
    }
    for file in files {
        disk.push_str(&facts(file)?);
        disk.push('\n');
    }
    match files::read_text(&owner, OWNER_LEN_MAX) {
        Ok(known) if known == disk => Ok(Some(number)),
        Ok(_) => {
            let Sought { target, lun, .. } = sought;
            tracing::warn!(
                target, lun, owner = %owner.display(),
                "another disk was here: this one does not get its identity"
            );
            Ok(None)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            put(folder, &owner, &disk).map_err(wrong)?;
            Ok(Some(number))
        }
        Err(error) => Err(wrong(error)),
    }
}

/// True if none of them was just made.
fn have_content(files: &[&StoreFile]) -> Result<bool, IdentityError> {
    for file in files {
        if !files::has_content(&file.fd).map_err(|source| wrong(file, source))? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The number of one file or device, which it gets now if it can.
fn number_of(file: &StoreFile, sought: Sought<'_>) -> Result<u64, IdentityError> {
    if let Some(number) = recorded(file)? {
        return Ok(number);
    }
    if file.writable {
        let number = files::fresh().map_err(IdentityError::Random)?;
        if record(file, number)? {
            let Sought { target, lun, .. } = sought;
            let serial = format!("{number:016x}");
            tracing::info!(target, lun, path = file.path, serial, "a disk gets its identity");
            return Ok(number);
        }
    }
    Ok(Identity::number_of(files::host().as_bytes(), facts(file)?.as_bytes()))
}

/// The number that the file has; what an earlier version wrote is brought up to date.
fn recorded(file: &StoreFile) -> Result<Option<u64>, IdentityError> {
    let number = files::recorded(&file.fd).map_err(|source| wrong(file, source))?;
    if let Some(number) = number
        && file.writable
        && let Err(error) = files::renew(&file.fd, number)
    {
        // It is as good as it was.
        tracing::warn!(path = file.path, %error, "the record of a disk's identity is of old form");
    }
    Ok(number)
}

fn record(file: &StoreFile, number: u64) -> Result<bool, IdentityError> {
    files::record(&file.fd, number).map_err(|source| wrong(file, source))
}

fn facts(file: &StoreFile) -> Result<String, IdentityError> {
    files::facts(&file.fd, file.path.as_ref()).map_err(|source| wrong(file, source))
}

fn wrong(file: &StoreFile, source: io::Error) -> IdentityError {
    IdentityError::File { path: file.path.clone(), source }
}

/// Whole, or not at all.
fn put(folder: &Path, path: &Path, text: &str) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let draft = path.with_extension("disk.new");
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&draft, path)?;
    std::fs::File::open(folder)?.sync_all()
}
