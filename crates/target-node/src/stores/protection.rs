// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Opens what stands beside the blocks of a disk with protection information: memory beside memory,
//! `PATH.pi` beside the file `PATH`.

mod guard;

pub use guard::Astray;
pub use guard::expect_unprotected;

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use engine::files::Examined;
use engine::files::FileError;
use engine::files::OpenOptions;
use scsi::FormatError;
use scsi::PROTECTION_HEADER_LEN;
use scsi::PROTECTION_RECORDS_AT;
use scsi::ProtectionFormat;
use scsi::ProtectionType;
use store::Geometry;
use store::Store;
use store::beside::Beside;
use store::spec::FileSpec;
use store::spec::Filter;
use store::spec::Spec;
use store::spec::Unprotectable;

use super::StoreError;
use super::StoreFile;
use super::Stores;
use super::inherited;
use guard::refuse_elsewhere;
use guard::refuse_left_out;
use guard::refuse_orphan;
use guard::side_of;

/// Why a disk cannot have protection information; the text says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProtectionError {
    /// The kind of its store.
    #[error(transparent)]
    Kind(#[from] Unprotectable),
    /// A device has no folder of its own.
    #[error(
        "{path} is a block device, and nothing can be kept beside it: \
         leave protection out, or use a file"
    )]
    BlockDevice {
        /// The device.
        path: String,
    },
    /// A file that is read only, and was never formatted with protection information.
    #[error("{side} is missing or empty: serve {path} without readonly once, so that it is made")]
    NeverMade {
        /// The file beside.
        side: String,
        /// The disk.
        path: String,
    },
    /// The file beside is not what it must be.
    #[error(
        "{side} cannot hold the protection information of {path}: {problem}; \
         try: move it away: the disk is then unprotected until written"
    )]
    Header {
        /// The file beside.
        side: String,
        /// The disk.
        path: String,
        /// What is wrong.
        problem: FormatError,
    },
    /// The file beside is of another disk, or the disk is another one now.
    #[error("{side} is for {found} blocks of {block} bytes, and {path} has {blocks} of {wanted}")]
    Other {
        /// The file beside.
        side: String,
        /// The disk.
        path: String,
        /// Blocks that it is for.
        found: u64,
        /// Their length.
        block: u32,
        /// Blocks of the disk.
        blocks: u64,
        /// Their length.
        wanted: u32,
    },
    /// A disk with protection information that is to be served without: what is written would not
    /// fit what stands beside it.
    #[error(
        "{side} holds protection information of {path}, which would not fit what is written \
         without it; try: protection = {kind} (--protection {kind}) to keep it, readonly to write \
         nothing, or remove {side} to give it up"
    )]
    LeftOut {
        /// The file beside.
        side: String,
        /// The disk.
        path: String,
        /// Type of the protection information.
        kind: u8,
    },
    /// The same for a file that is known by another name now, and what holds the protection
    /// information stands beside the old one.
    #[error(
        "{side} holds protection information of {path}, which has another name there; try: that \
         name, or move {side} to {disk}.pi, and {disk} with protection = {kind} (--protection \
         {kind}); readonly without protection to write nothing; or remove {side} to give it up"
    )]
    Elsewhere {
        /// The file beside the other name.
        side: String,
        /// The disk.
        path: String,
        /// A name by which it can be served with protection: that of the file behind a device.
        disk: String,
        /// Type of the protection information.
        kind: u8,
    },
    /// The same for a device that shows a file with protection information.
    #[error(
        "{side} holds protection information of {disk}, which {path} shows, and which would not \
         fit what is written without it; try: {disk} with protection = {kind} (--protection \
         {kind}) in place of {path}, readonly to write nothing, or remove {side} to give it up"
    )]
    Shown {
        /// The file beside.
        side: String,
        /// The device.
        path: String,
        /// The file behind it.
        disk: String,
        /// Type of the protection information.
        kind: u8,
    },
    /// A disk with protection information that is to be written to as a file.
    #[error(
        "{side} holds protection information of {path}, which would not fit what is written past \
         it; try: the URL of the disk, served with --protection {kind}, or move {side} away to \
         give the protection up"
    )]
    Overwritten {
        /// The file beside.
        side: String,
        /// The file.
        path: String,
        /// Type of the protection information.
        kind: u8,
    },
    /// The disk is gone, and a new one is to be made.
    #[error(
        "{side} holds protection information of a {path} that is not there, and would not fit a \
         new one; try: bring {path} back, or remove {side}, too"
    )]
    Orphan {
        /// The file beside.
        side: String,
        /// The disk.
        path: String,
    },
    /// The file beside cannot be opened.
    #[error("protection information of {path}: {source}")]
    Open {
        /// The disk.
        path: String,
        /// What is wrong with the file beside.
        source: FileError,
    },
    /// The file beside cannot be read or written.
    #[error("cannot use {side}: {source}")]
    Side {
        /// The file beside.
        side: String,
        /// What the kernel says.
        source: io::Error,
    },
}

/// A file beside another one.
struct Side<'a> {
    spec: &'a FileSpec,
    path: String,
    wanted: ProtectionFormat,
}

impl Stores {
    /// Opens what `spec` says, and what stands beside it: a disk of `block` bytes a block, that is
    /// formatted with protection information of type `kind` if it was not formatted before.
    ///
    /// # Errors
    /// As [`Stores::open`]; or if the store cannot have protection information.
    pub fn open_protected(
        &mut self,
        spec: &Spec,
        block: u32,
        kind: ProtectionType,
    ) -> Result<(Arc<Beside>, ProtectionFormat), StoreError> {
        spec.protectable().map_err(ProtectionError::from)?;
        if let Spec::File(file) = spec.unfiltered() {
            refuse_orphan(file)?;
            refuse_elsewhere(file)?;
        }
        let (files, data) = (self.files.len(), self.open_whole(spec, block)?);
        let bytes = data.geometry().bytes;
        let format = ProtectionFormat { kind: Some(kind), block, blocks: bytes / u64::from(block) };
        let (side, format): (Arc<dyn Store>, _) = match spec.unfiltered() {
            Spec::File(file) => {
                let disk = self.files.get(files).filter(|disk| !disk.block_device);
                let disk = disk.map(|disk| Arc::clone(&disk.fd));
                let Some(disk) = disk else {
                    return Err(ProtectionError::BlockDevice { path: file.path.clone() }.into());
                };
                let path = side_of(&file.path);
                self.open_side(&Side { spec: file, path, wanted: format }, &disk)?
            }
            _ => (self.open(&Spec::Memory { bytes: format.side_len() })?, format),
        };
        Ok((Arc::new(Beside::new(data, side)), format))
    }

    /// Whether what stands beside the file `spec`, which would be a disk of `bytes` bytes, could be
    /// opened as [`Stores::open_protected`] does it, as far as can be seen without making it.
    ///
    /// # Errors
    /// Why not.
    pub fn examine_side(
        spec: &FileSpec,
        bytes: u64,
        block: u32,
        kind: ProtectionType,
    ) -> Result<Examined, ProtectionError> {
        refuse_orphan(spec)?;
        refuse_elsewhere(spec)?;
        let wanted = ProtectionFormat { kind: Some(kind), block, blocks: bytes / u64::from(block) };
        let side = Side { spec, path: side_of(&spec.path), wanted };
        let path = Path::new(&side.path);
        let options = side.options()?;
        let seen = engine::files::examine(path, &options)
            .map_err(|source| ProtectionError::Open { path: spec.path.clone(), source })?;
        if !seen.missing {
            let failed = |source| ProtectionError::Side { side: side.path.clone(), source };
            side.agreed(&File::open(path).map_err(failed)?)?;
        }
        Ok(seen)
    }

    /// Whether the files of `spec` can be served without protection information: those that are
    /// written to have none beside them. Gives what is to be warned of.
    ///
    /// # Errors
    /// Which one has.
    pub fn examine_unprotected(spec: &Spec) -> Result<Vec<Astray>, ProtectionError> {
        match spec {
            Spec::File(file) if !file.read_only => Ok(refuse_left_out(file)?.into_iter().collect()),
            Spec::Filtered { filter: Filter::ReadOnly, .. } => Ok(Vec::new()),
            Spec::Filtered { behind, .. } => Self::examine_unprotected(behind),
            Spec::Stripe { stores, .. } => {
                let each: Result<Vec<_>, _> =
                    stores.iter().map(Self::examine_unprotected).collect();
                Ok(each?.concat())
            }
            Spec::File(_)
            | Spec::Iso { .. }
            | Spec::Memory { .. }
            | Spec::Null { .. }
            | Spec::Rbd(_)
            | Spec::Remote(_)
            | Spec::Scsi(_) => Ok(Vec::new()),
        }
    }

    /// The same, and the log is told what is to be warned of.
    pub(super) fn expect_unprotected(spec: &Spec) -> Result<(), ProtectionError> {
        for astray in Self::examine_unprotected(spec)? {
            tracing::warn!("{astray}");
        }
        Ok(())
    }

    fn open_side(
        &mut self,
        side: &Side<'_>,
        disk: &OwnedFd,
    ) -> Result<(Arc<dyn Store>, ProtectionFormat), StoreError> {
        let length = side.wanted.side_len();
        let options = side.options()?;
        let open = engine::files::open(side.path.as_ref(), &options)
            .map_err(|source| ProtectionError::Open { path: side.spec.path.clone(), source })?;
        self.note(&side.path, &open, PROTECTION_RECORDS_AT);
        let failed = |source| ProtectionError::Side { side: side.path.clone(), source };
        let format = side.formatted(&open.fd.try_clone().map_err(failed)?.into(), open.bytes)?;
        if !side.spec.read_only {
            side.bind(disk, &open.fd);
        }
        let id = self.free_id();
        let geometry = Geometry {
            bytes: open.bytes.max(length),
            read_only: side.spec.read_only,
            discard_granularity: open.discard_granularity,
            anchors: open.reserves,
            volatile_cache: open.volatile_cache && !side.spec.sync,
            physical_block: open.physical_block,
            rotational: open.rotational,
        };
        let store = store::file::File::new(id, geometry, side.spec.sync);
        let store = Arc::new(inherited(store, &side.path, engine::files::sync(&open.fd)));
        self.files.push(StoreFile {
            id,
            fd: Arc::clone(&open.fd),
            direct: false,
            path: side.path.clone(),
            writable: !side.spec.read_only,
            block_device: false,
            health: store.health(id).expect("a file has a health"),
            name: Arc::default(),
            direct_block: open.direct_block,
            _behind: open.behind,
        });
        Ok((store, format))
    }
}

impl Side<'_> {
    /// How to open it.
    fn options(&self) -> Result<OpenOptions, ProtectionError> {
        let there = Path::new(&self.path).exists();
        if !there && self.spec.read_only {
            return Err(self.never_made());
        }
        Ok(OpenOptions {
            read_only: self.spec.read_only,
            direct: false,
            create_size: (!there).then_some(self.wanted.side_len()),
            raw: true,
        })
    }

    /// How the disk is formatted, and whether that is written there.
    fn agreed(&self, file: &File) -> Result<(ProtectionFormat, bool), ProtectionError> {
        let failed = |source| ProtectionError::Side { side: self.path.clone(), source };
        let mut header = [0; PROTECTION_HEADER_LEN];
        file.read_exact_at(&mut header, 0).map_err(failed)?;
        let found = ProtectionFormat::parse(&header).map_err(|problem| self.damaged(problem))?;
        match found {
            None if self.spec.read_only => Err(self.never_made()),
            None => Ok((self.wanted, false)),
            Some(found) => Ok((self.fitting(found)?, true)),
        }
    }

    /// How the disk is formatted, which is written down if it was not yet. A disk that has grown
    /// while nobody served it has more blocks beside it.
    fn formatted(&self, file: &File, bytes: u64) -> Result<ProtectionFormat, ProtectionError> {
        let failed = |source| ProtectionError::Side { side: self.path.clone(), source };
        let (format, is_written) = self.agreed(file)?;
        if !self.spec.read_only {
            // Also when it is there already: it may be there for readers only, if the daemon that
            // made it could not sync it. The system does not tell that a second time.
            self.make(file, bytes, &format).map_err(failed)?;
        }
        if !is_written {
            tracing::info!(
                side = self.path,
                "made; blocks that are on the disk already are protected once they are written"
            );
        }
        Ok(format)
    }

    /// What the header says, if the disk still is what it says.
    fn fitting(&self, found: ProtectionFormat) -> Result<ProtectionFormat, ProtectionError> {
        let wanted = self.wanted;
        let grown = wanted.blocks > found.blocks;
        if found.block != wanted.block
            || found.blocks > wanted.blocks
            || (grown && self.spec.read_only)
        {
            return Err(ProtectionError::Other {
                side: self.path.clone(),
                path: self.spec.path.clone(),
                found: found.blocks,
                block: found.block,
                blocks: wanted.blocks,
                wanted: wanted.block,
            });
        }
        if found.kind != wanted.kind {
            let number = found.kind.map_or(0, ProtectionType::number);
            let asked = wanted.kind.map_or(0, ProtectionType::number);
            tracing::info!(
                side = self.path,
                "the disk is formatted with protection type {number} and keeps it; the {asked} of \
                 the configuration is for a new one, and FORMAT UNIT by a host changes it"
            );
        }
        Ok(ProtectionFormat { blocks: wanted.blocks, ..found })
    }

    /// Gives the file its length and its header, and the folder its entry, on stable storage.
    fn make(&self, file: &File, bytes: u64, format: &ProtectionFormat) -> io::Result<()> {
        if bytes < format.side_len() {
            file.set_len(format.side_len())?;
        }
        file.write_all_at(&format.emit(), 0)?;
        file.sync_all()?;
        engine::files::sync_name(Path::new(&self.path), file)
    }

    /// Takes down with the disk where its protection information is. Without that it is not found
    /// when the disk is opened by another name.
    fn bind(&self, disk: &OwnedFd, side: &OwnedFd) {
        match engine::files::bind(disk, side, Path::new(&self.path)) {
            // Not all file systems have a place for it.
            Ok(true | false) => {}
            Err(error) => tracing::warn!(
                path = self.spec.path,
                %error,
                "cannot take down where the protection information is: serve the disk by this \
                 name only"
            ),
        }
    }

    fn never_made(&self) -> ProtectionError {
        ProtectionError::NeverMade { side: self.path.clone(), path: self.spec.path.clone() }
    }

    fn damaged(&self, problem: FormatError) -> ProtectionError {
        let (side, path) = (self.path.clone(), self.spec.path.clone());
        ProtectionError::Header { side, path, problem }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn spec(folder: &Path, more: &str) -> Spec {
        format!("file:{}/disk{more}", folder.display()).parse().unwrap()
    }

    fn open(spec: &Spec) -> Result<ProtectionFormat, String> {
        let mut stores = Stores::new();
        let opened = stores.open_protected(spec, 512, ProtectionType::One);
        opened.map(|(_, format)| format).map_err(|error| error.to_string())
    }

    #[test]
    fn a_side_file_is_made_once_and_grows_with_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let side = folder.path().join("disk.pi");
        let format = open(&spec(folder.path(), ",size=1M")).unwrap();
        assert_eq!((format.kind, format.blocks), (Some(ProtectionType::One), 2048));
        assert_eq!(fs::metadata(&side).unwrap().len(), format.side_len());
        // A host has formatted it otherwise.
        let other = ProtectionFormat { kind: Some(ProtectionType::Three), ..format };
        let file = File::options().write(true).open(&side).unwrap();
        file.write_all_at(&other.emit(), 0).unwrap();
        assert_eq!(open(&spec(folder.path(), "")), Ok(other));
        assert_eq!(open(&spec(folder.path(), ",readonly")), Ok(other));
        let disk = File::options().write(true).open(folder.path().join("disk")).unwrap();
        disk.set_len(2 << 20).unwrap();
        assert!(open(&spec(folder.path(), ",readonly")).is_err(), "it cannot be made longer");
        assert_eq!(open(&spec(folder.path(), "")), Ok(ProtectionFormat { blocks: 4096, ..other }));
        assert_eq!(fs::metadata(&side).unwrap().len(), 4096 + 4096 * 32);
        disk.set_len(1 << 20).unwrap();
        let error = open(&spec(folder.path(), "")).unwrap_err();
        assert!(error.contains("4096 blocks") && error.contains("disk.pi"), "{error}");
    }

    #[test]
    fn what_cannot_be_protected_is_refused_and_told_why() {
        let folder = tempfile::tempdir().unwrap();
        let never = spec(folder.path(), ",readonly");
        fs::write(folder.path().join("disk"), [0; 4096]).unwrap();
        assert!(open(&never).unwrap_err().contains("without readonly once"));
        fs::write(folder.path().join("disk.pi"), [7; 8192]).unwrap();
        let error = open(&spec(folder.path(), "")).unwrap_err();
        assert!(error.contains("no protection information of ours"), "{error}");
        for (word, why) in [
            ("null:1M", "keeps nothing"),
            ("iso:/disc", "CD or DVD"),
            ("stripe:64K(memory:1M;memory:1M)", "no one file"),
            ("memory:1M,atomic", "atomic"),
        ] {
            let error = open(&word.parse().unwrap()).unwrap_err();
            assert!(error.contains(why), "{word}: {error}");
        }
        assert!(open(&"memory:1M,log".parse().unwrap()).is_ok());
    }
}
