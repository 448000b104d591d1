// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A look at the files of a configuration that writes to none, locks none and makes none that has a
//! name: a daemon may serve them.

use std::collections::VecDeque;
use std::io;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use anyhow::anyhow;
use anyhow::bail;
use control::units;
use engine::files::Examined;
use engine::files::FileError;
use engine::files::Holder;
use engine::files::OpenOptions;
use engine::files::SECTOR;
use engine::files::examine;
use engine::files::examine_folder;
use rbd::Seen;
use scsi::Identity;
use scsi::LogicalUnit;
use scsi::ProtectionFormat;
use store::Store;
use store::spec::FileSpec;
use store::spec::Filter;
use store::spec::RbdSpec;
use store::spec::Spec;
use store::stripe;
use target::Astray;
use target::IdentityError;
use target::IdentityPolicy;
use target::ProtectionError;
use target::StateFolder;
use target::StateFolderError;
use target::StoreError;
use target::Stores;
use wire::scsi::mmc::BLOCK_LEN;

use super::Draft;
use super::images;
use super::images::images_of;
use super::lun::DraftLun;
use super::unit::examine_kept;
use super::unit::same_identity;
use crate::remotes;

/// A file of the configuration.
struct SeenFile {
    /// Target, number and store of its disk.
    place: String,
    file: Examined,
}

/// What a disk would be made of.
#[derive(Default)]
struct Found {
    files: Vec<(FileSpec, Examined)>,
    /// What is in memory, which is there as long as this.
    memory: Vec<Arc<dyn Store>>,
    astray: Vec<Astray>,
    /// Images of Ceph that are still to be looked at.
    images: VecDeque<Result<Seen>>,
    /// Images that would be made, and their sizes.
    new_images: Vec<(String, u64)>,
}

/// A disk of the configuration and the designator that hosts will know it by, if that is known.
struct Named<'a> {
    target: &'a str,
    lun: u16,
    naa: Vec<u8>,
}

/// What was found while looking.
#[derive(Default)]
struct Look<'a> {
    files: Vec<SeenFile>,
    named: Vec<Named<'a>>,
    /// All at once, as it would be served; what nobody writes to takes no room.
    memory: Vec<Arc<dyn Store>>,
    odd: Vec<String>,
}

/// What there is to say of a configuration.
#[derive(Debug, Default)]
pub(crate) struct Examination {
    /// What does not prevent serving.
    pub(crate) odd: Vec<String>,
    /// What does, each with its place.
    pub(crate) wrong: Vec<anyhow::Error>,
}

impl Draft {
    /// Whether all disks could be opened, as far as can be seen without doing it, and none of their
    /// files is two disks; whether control socket and state folder could be made.
    pub(crate) fn examine_files(&self) -> Examination {
        let mut look = Look::default();
        let mut wrong = Vec::new();
        let luns = self.targets.iter().flat_map(|target| &target.luns);
        let images: Vec<&RbdSpec> = luns.flat_map(|lun| images_of(&lun.spec)).collect();
        let mut seen_images = images::examine(&images);
        for target in &self.targets {
            for lun in &target.luns {
                let place =
                    format!("target {}, LUN {}, store {}", target.name, lun.number, lun.store);
                let folder = self.state_dir.as_deref();
                let images = seen_images.drain(..images_of(&lun.spec).len()).collect();
                let found = find(lun, images);
                let seen = found.and_then(|found| {
                    look.take(&target.name, target.identity, lun, found, (folder, &place))
                });
                wrong.extend(seen.err().map(|error| error.context(place)));
            }
        }
        wrong.extend(self.examine_control_socket(&look.files).err());
        wrong.extend(self.examine_state_folder().err());
        Examination { odd: look.odd, wrong }
    }

    fn examine_state_folder(&self) -> Result<()> {
        let Some(folder) = &self.state_dir else { return Ok(()) };
        StateFolder::examine(folder).map_err(|error| {
            let problem = match (folder.metadata(), &error) {
                (Ok(found), _) if !found.is_dir() => {
                    "it is no folder; try: another path".to_owned()
                }
                (_, StateFolderError::Nowhere { .. }) => error.to_string(),
                _ => format!("{error}; try: another path"),
            };
            anyhow!("state-dir = \"{}\": {problem}", folder.display())
        })
    }

    /// Whether the control socket can be made.
    fn examine_control_socket(&self, disks: &[SeenFile]) -> Result<()> {
        let Some(path) = &self.control_socket else { return Ok(()) };
        let wrong = |what: &str| {
            anyhow!("control-socket = \"{}\": {what}; try: another path", path.display())
        };
        if SocketAddr::from_pathname(path).is_err() {
            return Err(wrong("it is too long for a socket, which has 107 bytes"));
        }
        match std::fs::symlink_metadata(path) {
            // Where the daemon that made it is gone it is made anew.
            Ok(found) if found.file_type().is_socket() => {
                let folder = path.parent().filter(|folder| *folder != Path::new(""));
                examine_folder(folder.unwrap_or_else(|| Path::new(".")))
                    .map_err(|error| wrong(&error.to_string()))
            }
            Ok(_) => Err(wrong("what is there is no socket")),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let made = OpenOptions { create_size: Some(SECTOR), ..OpenOptions::default() };
                let seen = examine(path, &made).map_err(|error| match error {
                    FileError::FolderMissing { .. } => {
                        anyhow!("control-socket = \"{}\": {error}", path.display())
                    }
                    error => wrong(&error.to_string()),
                })?;
                match disks.iter().find(|disk| disk.file.collides(&seen)) {
                    Some(disk) => Err(wrong(&format!("it is a file of {}", disk.place))),
                    None => Ok(()),
                }
            }
            Err(error) => Err(wrong(&error.to_string())),
        }
    }
}

impl<'a> Look<'a> {
    /// One more disk, which is `lun` of `target`.
    fn take(
        &mut self,
        target: &'a str,
        policy: IdentityPolicy,
        lun: &DraftLun,
        found: Found,
        (state_folder, place): (Option<&Path>, &str),
    ) -> Result<()> {
        let Found { files, memory, astray, new_images, .. } = found;
        self.memory.extend(memory);
        self.odd.extend(new_images.iter().map(|(image, bytes)| {
            let size = units::bytes(*bytes);
            format!("{place}: a new, empty image {image} of {size} would be made (create)")
        }));
        self.odd.extend(astray.iter().map(|astray| format!("{place}: {astray}")));
        let identity = identity_of(lun, policy, &files)?;
        for (file, seen) in files {
            if let Some(other) = self.files.iter().find(|other| other.file.collides(&seen)) {
                bail!(
                    "{} is a file of {} already; try: each file once, or readonly each time",
                    file.path,
                    other.place
                );
            }
            let bytes = seen.bytes;
            if let Some(wanted) = file.size.filter(|wanted| *wanted != bytes) {
                self.odd.push(format!(
                    "{place}: {} is there with {bytes} bytes and not {wanted}, and keeps its \
                     size: size= is for one that is made",
                    file.path
                ));
            }
            self.files.push(SeenFile { place: place.to_owned(), file: seen });
        }
        let Some(identity) = identity else { return Ok(()) };
        if let Some(other) = self.named.iter().find(|other| other.naa == identity.naa) {
            return Err(same_identity(other.target, other.lun, &identity));
        }
        if let (Some(folder), false) = (state_folder, lun.spec.is_optical()) {
            examine_kept(folder, &identity)?;
        }
        self.named.push(Named { target, lun: lun.number, naa: identity.naa });
        Ok(())
    }
}

/// What a disk would be made of, if it fits together; `images`: what those of its store are.
fn find(lun: &DraftLun, images: VecDeque<Result<Seen>>) -> Result<Found> {
    let mut found = Found { images, ..Found::default() };
    let bytes = look_at(&lun.spec, lun.block, &mut found)?;
    let block = if lun.spec.is_optical() { BLOCK_LEN } else { lun.block };
    if !lun.spec.is_device() {
        LogicalUnit::check_size(bytes, block).map_err(anyhow::Error::msg)?;
    }
    let Some(kind) = lun.protection else {
        found.astray = Stores::examine_unprotected(&lun.spec)?;
        return Ok(found);
    };
    if let Spec::File(file) = lun.spec.unfiltered() {
        if found.files.iter().any(|(_, seen)| seen.block_device) {
            return Err(ProtectionError::BlockDevice { path: file.path.clone() }.into());
        }
        let seen = Stores::examine_side(file, bytes, block, kind)?;
        let side = FileSpec { path: format!("{}.pi", file.path), size: None, ..file.clone() };
        found.files.push((side, seen));
    } else {
        let format = ProtectionFormat { kind: Some(kind), block, blocks: bytes / u64::from(block) };
        found.memory.push(Stores::new().open(&Spec::Memory { bytes: format.side_len() })?);
    }
    Ok(found)
}

/// The size of a store; what it would be made of comes behind what is in `found`.
fn look_at(spec: &Spec, block: u32, found: &mut Found) -> Result<u64> {
    let file = match spec {
        Spec::File(file) => file.clone(),
        Spec::Iso { path } => FileSpec::disc(path.clone()),
        Spec::Memory { bytes } | Spec::Null { bytes } => {
            found.memory.push(Stores::new().open(spec)?);
            return Ok(*bytes);
        }
        Spec::Rbd(image) => {
            let seen = found.images.pop_front().expect("one for each, in the same order")?;
            if seen.made_of.is_none() {
                found.new_images.push((image.place().to_string(), seen.bytes));
            }
            return Ok(seen.bytes);
        }
        Spec::Remote(disk) => return remotes::bytes_of(disk),
        // It has no blocks of ours.
        Spec::Scsi(device) => return Ok(Stores::examine_device(device).map(|()| 0)?),
        Spec::Filtered { behind, .. } => return look_at(behind, block, found),
        Spec::Stripe { chunk, stores } => {
            let sizes: Result<Vec<u64>> =
                stores.iter().map(|store| look_at(store, block, found)).collect();
            return Ok(stripe::bytes_of(*chunk, &sizes?).map_err(StoreError::from)?);
        }
    };
    let (read_only, direct, raw) = (file.read_only, file.direct, file.raw);
    let options = OpenOptions { read_only, direct, create_size: file.size, raw };
    let seen = examine(file.path.as_ref(), &options)?;
    if direct && block < seen.direct_block {
        let (path, needs) = (file.path, seen.direct_block);
        return Err(StoreError::DirectBlock { path, needs, block }.into());
    }
    let bytes = seen.bytes;
    found.files.push((file, seen));
    Ok(bytes)
}

/// Who a disk will be, where that is said or written beside its only file. One that is only read
/// gets another identity where there is one already.
fn identity_of(
    lun: &DraftLun,
    policy: IdentityPolicy,
    files: &[(FileSpec, Examined)],
) -> Result<Option<Identity>> {
    if let (IdentityPolicy::Own, Some(serial)) = (policy, &lun.serial) {
        return Ok(Some(Identity::of_serial(serial, "", "")));
    }
    let (Spec::File(_) | Spec::Iso { .. }, [(file, seen), ..]) = (lun.spec.unfiltered(), files)
    else {
        return Ok(None);
    };
    let number = seen.number.as_ref().map_err(|error| {
        let source = io::Error::new(error.kind(), error.to_string());
        IdentityError::File { path: file.path.clone(), source }
    })?;
    if policy == IdentityPolicy::Own && !is_read_only(&lun.spec) {
        return Ok(number.map(|number| Identity::of(number, "", "")));
    }
    Ok(None)
}

fn is_read_only(spec: &Spec) -> bool {
    match spec {
        Spec::File(file) => file.read_only,
        Spec::Filtered { behind, filter } => *filter == Filter::ReadOnly || is_read_only(behind),
        Spec::Iso { .. } => true,
        Spec::Rbd(image) => image.snapshot.is_some(),
        Spec::Stripe { .. }
        | Spec::Memory { .. }
        | Spec::Null { .. }
        | Spec::Remote(_)
        | Spec::Scsi(_) => false,
    }
}

/// `error` of a disk that cannot be served; it names the one of `luns` (target, number, store) that
/// has its file already.
pub(crate) fn served_already<'a>(
    error: anyhow::Error,
    mut luns: impl Iterator<Item = (&'a str, u16, &'a str)>,
) -> anyhow::Error {
    let Some(StoreError::File(
        FileError::InUse { path, holder: Holder::Ourselves } | FileError::SameDisk { path, .. },
    )) = error.downcast_ref::<StoreError>()
    else {
        return error;
    };
    // Read only or not, it is the same file, and the loop device that shows it may be ours.
    let reading = OpenOptions { read_only: true, raw: true, ..OpenOptions::default() };
    let seen = |path: &Path| examine(path, &reading);
    let Ok(wanted) = seen(path) else { return error };
    let has_it = |store: &str| {
        let files = store.parse::<Spec>().map(|spec| files_of(&spec)).unwrap_or_default();
        files.iter().any(|file| seen(file.path.as_ref()).is_ok_and(|it| it.is_same(&wanted)))
    };
    match luns.find(|(_, _, store)| has_it(store)) {
        None => error,
        Some((target, number, _)) => anyhow!(
            "{} is given twice: it is LUN {number} of {target}; try: once, or readonly each time",
            path.display(),
        ),
    }
}

/// The files that hosts may write to.
pub(super) fn files_written(spec: &Spec) -> Vec<FileSpec> {
    let files = if is_read_only(spec) { Vec::new() } else { files_of(spec) };
    files.into_iter().filter(|file| !file.read_only).collect()
}

/// All files of a store.
fn files_of(spec: &Spec) -> Vec<FileSpec> {
    match spec {
        Spec::File(file) => vec![file.clone()],
        Spec::Iso { path } => vec![FileSpec::disc(path.clone())],
        Spec::Stripe { stores, .. } => stores.iter().flat_map(files_of).collect(),
        Spec::Filtered { behind, .. } => files_of(behind),
        Spec::Memory { .. }
        | Spec::Null { .. }
        | Spec::Rbd(_)
        | Spec::Remote(_)
        | Spec::Scsi(_) => Vec::new(),
    }
}
