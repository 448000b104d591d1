// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A look at the files of a configuration that opens none for writing, and locks and makes none: a
//! daemon may serve them.

use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::SocketAddr;
use std::path::Path;

use anyhow::Result;
use anyhow::anyhow;
use anyhow::bail;
use control::admin;
use engine::files::Examined;
use engine::files::FileError;
use engine::files::Holder;
use engine::files::OpenOptions;
use engine::files::SECTOR;
use engine::files::examine;
use store::spec::FileSpec;
use store::spec::Spec;
use target::StoreError;

use super::Draft;

/// A file of the configuration.
struct Seen {
    /// Target, number and store of its disk.
    place: String,
    file: Examined,
}

impl Draft {
    /// Whether all files behind the disks are there, or can be made, and none is two disks. Gives
    /// what is odd about them.
    pub(crate) fn examine_files(&self) -> Result<Vec<String>> {
        let mut all: Vec<Seen> = Vec::new();
        let mut odd = Vec::new();
        for target in &self.targets {
            for lun in &target.luns {
                let place =
                    format!("target {}, LUN {}, store {}", target.name, lun.number, lun.store);
                for file in files_of(&lun.spec) {
                    let seen =
                        look(&file, lun.block).map_err(|error| error.context(place.clone()))?;
                    if let Some(other) = all.iter().find(|other| other.file.collides(&seen)) {
                        bail!(
                            "{place}: {} is a file of {} already; \
                             try: each file once, or readonly each time",
                            file.path,
                            other.place
                        );
                    }
                    if let (Some(wanted), Some(bytes)) = (file.size, seen.bytes)
                        && wanted != bytes
                    {
                        odd.push(format!(
                            "{place}: {} is there with {bytes} bytes and not {wanted}, and keeps \
                             its size: size= is for one that is made",
                            file.path
                        ));
                    }
                    all.push(Seen { place: place.clone(), file: seen });
                }
            }
        }
        self.examine_control_socket(&all)?;
        match self.state_dir.as_deref().map(|path| (path, path.metadata())) {
            Some((path, Ok(found))) if !found.is_dir() => {
                bail!("state-dir = \"{}\": it is no folder; try: another path", path.display())
            }
            _ => Ok(odd),
        }
    }

    /// Whether the control socket can be made.
    fn examine_control_socket(&self, disks: &[Seen]) -> Result<()> {
        let Some(path) = &self.control_socket else { return Ok(()) };
        let wrong = |what: &str| {
            anyhow!("control-socket = \"{}\": {what}; try: another path", path.display())
        };
        if SocketAddr::from_pathname(path).is_err() {
            return Err(wrong("it is too long for a socket, which has 107 bytes"));
        }
        match std::fs::symlink_metadata(path) {
            Ok(found) if found.file_type().is_socket() => Ok(()),
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

fn look(file: &FileSpec, block: u32) -> Result<Examined> {
    let FileSpec { path, size, direct, read_only, raw, .. } = file;
    let (direct, read_only, raw) = (*direct, *read_only, *raw);
    let options = OpenOptions { read_only, direct, create_size: *size, raw };
    let seen = examine(path.as_ref(), &options)?;
    if direct && block < seen.direct_block {
        bail!(
            "{path} has blocks of {needs} bytes: past the page cache nothing less can be read or \
             written; try: block = {needs}, or without direct",
            needs = seen.direct_block
        );
    }
    Ok(seen)
}

/// The disks of a target, with its name.
pub(crate) fn luns_of(target: &admin::Target) -> impl Iterator<Item = (&str, &admin::Lun)> {
    target.luns.iter().map(|lun| (target.name.as_str(), lun))
}

/// `error` of a disk that cannot be served; it names the one of `luns` that has its file already.
pub(crate) fn served_already<'a>(
    error: anyhow::Error,
    mut luns: impl Iterator<Item = (&'a str, &'a admin::Lun)>,
) -> anyhow::Error {
    let Some(StoreError::File(
        FileError::InUse { path, holder: Holder::Ourselves } | FileError::SameDisk { path, .. },
    )) = error.downcast_ref::<StoreError>()
    else {
        return error;
    };
    // Read only or not, it is the same file.
    let seen = |path: &Path| examine(path, &OpenOptions { raw: true, ..OpenOptions::default() });
    let Ok(wanted) = seen(path) else { return error };
    let has_it = |lun: &admin::Lun| {
        let files = lun.store.parse::<Spec>().map(|spec| files_of(&spec)).unwrap_or_default();
        files.iter().any(|file| seen(file.path.as_ref()).is_ok_and(|it| it.collides(&wanted)))
    };
    match luns.find(|(_, lun)| has_it(lun)) {
        None => error,
        Some((target, lun)) => anyhow!(
            "{} is given twice: it is LUN {} of {target}; try: once, or readonly each time",
            path.display(),
            lun.number
        ),
    }
}

/// All files of a store.
fn files_of(spec: &Spec) -> Vec<FileSpec> {
    match spec {
        Spec::File(file) => vec![file.clone()],
        Spec::Iso { path } => vec![FileSpec::disc(path.clone())],
        Spec::Stripe { stores, .. } => stores.iter().flat_map(files_of).collect(),
        Spec::Filtered { behind, .. } => files_of(behind),
        Spec::Memory { .. } | Spec::Null { .. } => Vec::new(),
    }
}
