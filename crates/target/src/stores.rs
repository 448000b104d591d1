// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Opens stores and remembers the files behind them, which every reactor must know and a stop must
//! flush.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use engine::files::FileError;
use engine::files::OpenOptions;
use store::FileId;
use store::Store;
use store::spec::Spec;

/// A file of an open store, under the number that all reactors know it by.
#[derive(Clone, Debug)]
pub(crate) struct StoreFile {
    pub(crate) id: FileId,
    pub(crate) fd: Arc<OwnedFd>,
    pub(crate) direct: bool,
    pub(crate) path: String,
    pub(crate) writable: bool,
}

/// The stores of a daemon while it is being set up.
#[derive(Debug, Default)]
pub struct Stores {
    pub(crate) files: Vec<StoreFile>,
}

/// Why a store cannot be opened; the text says which and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The file behind it.
    #[error(transparent)]
    File(#[from] FileError),
    /// The memory behind it.
    #[error("cannot reserve {bytes} bytes of memory: {source}; choose a smaller size")]
    Memory {
        /// Size asked for.
        bytes: u64,
        /// What the system said.
        source: std::io::Error,
    },
}

impl Stores {
    /// No store yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens what `spec` says.
    ///
    /// # Errors
    /// If the file cannot be used as a store, or memory cannot be reserved.
    pub fn open(&mut self, spec: &Spec) -> Result<Arc<dyn Store>, StoreError> {
        match spec {
            Spec::Memory { bytes } => {
                let memory = store::memory::Memory::new(*bytes)
                    .map_err(|source| StoreError::Memory { bytes: *bytes, source })?;
                Ok(Arc::new(memory))
            }
            Spec::Null { bytes } => {
                let null = store::null::Null::new(*bytes)
                    .map_err(|source| StoreError::Memory { bytes: *bytes, source })?;
                Ok(Arc::new(null))
            }
            Spec::File(file) => self.open_file(file),
        }
    }

    fn open_file(&mut self, spec: &store::spec::FileSpec) -> Result<Arc<dyn Store>, StoreError> {
        let open = engine::files::open(
            spec.path.as_ref(),
            &OpenOptions { read_only: spec.read_only, direct: spec.direct, create_size: spec.size },
        )?;
        let id = FileId(u32::try_from(self.files.len()).expect("far fewer than 2^32 stores"));
        self.files.push(StoreFile {
            id,
            fd: Arc::clone(&open.fd),
            direct: spec.direct,
            path: spec.path.clone(),
            writable: !spec.read_only,
        });
        let geometry = store::Geometry {
            bytes: open.bytes,
            read_only: spec.read_only,
            discard_granularity: open.discard_granularity,
            volatile_cache: open.volatile_cache && !spec.sync,
            physical_block: open.physical_block,
            rotational: open.rotational,
        };
        Ok(Arc::new(store::file::File::new(id, geometry, spec.sync)))
    }
}
