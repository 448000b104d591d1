// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Opens stores and remembers the files behind them, which every reactor must know and a stop must
//! flush.

mod protection;

pub use protection::Astray;
pub use protection::ProtectionError;
pub use protection::expect_unprotected;

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::RwLock;
use std::time::Duration;
use std::time::Instant;

use engine::files::FileError;
use engine::files::Name;
use engine::files::OpenFile;
use engine::files::OpenOptions;
use engine::sg::SgError;
use rbd::Rbd;
use rbd::RbdError;
use store::FileId;
use store::FilterIndex;
use store::Op;
use store::Outcome;
use store::Store;
use store::device::Passage;
use store::filter;
use store::filter::Journal;
use store::health::Health;
use store::health::Verdict;
use store::health::Watch;
use store::health::Watched;
use store::spec::Exactly;
use store::spec::FileSpec;
use store::spec::Filter;
use store::spec::RbdSpec;
use store::spec::RemoteSpec;
use store::spec::ScsiSpec;
use store::spec::Spec;
use store::stripe::Stripe;
use store::stripe::StripeError;

use crate::device;
use crate::device::probe::Known;

/// A file of an open store, under the number that all reactors know it by.
#[derive(Clone, Debug)]
pub(crate) struct StoreFile {
    pub(crate) id: FileId,
    pub(crate) fd: Arc<OwnedFd>,
    pub(crate) direct: bool,
    pub(crate) path: String,
    pub(crate) writable: bool,
    pub(crate) block_device: bool,
    pub(crate) health: Arc<Health>,
    /// Whether it was found by its path at the last look.
    pub(crate) name: Arc<Mutex<Name>>,
    /// Unit of reads and writes past the page cache, bytes.
    direct_block: u32,
    /// What has to stay open with it.
    _behind: Option<Arc<OwnedFd>>,
}

impl StoreFile {
    /// Does `what`, which ends with a sync, with the file, and takes note for all who use it of how
    /// that ended.
    ///
    /// # Errors
    /// What `what` says; or `EIO` if acknowledged writes may be lost that nobody has written again.
    pub(crate) fn synced<T>(&self, what: impl FnOnce(&OwnedFd) -> io::Result<T>) -> io::Result<T> {
        let mut watch = Watch::begin(&self.health, Watched::Sync);
        let result = what(&self.fd);
        if watch.end(result.is_ok()) {
            tracing::error!(
                path = self.path,
                "cannot write back: blocks that were acknowledged may be lost"
            );
        }
        let given = result?;
        let begin = Instant::now();
        let mut verdict = watch.verdict();
        while verdict == Verdict::Wait && begin.elapsed() < OVERLAP_MAX {
            std::thread::sleep(OVERLAP_LOOK);
            verdict = watch.verdict();
        }
        if matches!(verdict, Verdict::Wait | Verdict::Doubtful) || self.health.has_failed() {
            return Err(io::Error::from_raw_os_error(EIO));
        }
        Ok(given)
    }
}

/// A sync waits so long for others that overlap with it: longer than any disk needs.
const OVERLAP_MAX: Duration = Duration::from_secs(60);

/// How often it looks.
const OVERLAP_LOOK: Duration = Duration::from_millis(1);

/// Linux: input/output error.
const EIO: i32 = 5;

/// Opens disks of other targets: who starts a target may have an initiator, and says as whom and
/// with which secrets it logs in.
pub trait Remotes: Send + Sync + fmt::Debug {
    /// Opens the disk of `spec`. Waits for its target.
    ///
    /// # Errors
    /// It cannot be served; the text says which and what to do.
    fn open(&self, spec: &RemoteSpec) -> Result<OpenRemote, RemoteRefused>;
}

/// A disk of another target.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs)] // whoever opens one says all of it
pub struct OpenRemote {
    /// The disk.
    pub store: Arc<dyn Store>,
    /// Bytes of its blocks.
    pub block: u32,
    /// What it is by its own word, by whatever way it is reached.
    pub identity: String,
}

/// A disk of another target that was opened.
#[derive(Debug)]
struct Other {
    spec: RemoteSpec,
    block: u32,
    identity: String,
}

/// Why a disk of another target cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
#[expect(clippy::exhaustive_structs)] // whoever opens one says why
pub struct RemoteRefused(pub String);

/// Opens stores: those of a daemon that is being set up, or of one more unit.
#[derive(Debug, Default)]
pub struct Stores {
    /// Those that were opened.
    pub(crate) files: Vec<StoreFile>,
    /// Numbers that others have.
    taken: Vec<FileId>,
    /// Files that were not there before.
    made: Made,
    /// Images of Ceph that were opened, and which they are.
    images: Vec<(RbdSpec, String)>,
    /// Those that were not there before.
    new_images: Vec<NewImage>,
    /// Devices that were opened, and what they have said of themselves.
    devices: Vec<(ScsiSpec, Known)>,
    /// Disks of other targets that were opened.
    others: Vec<Other>,
    /// What opens them; None: nobody has an initiator.
    remotes: Option<Arc<dyn Remotes>>,
    /// What is odd about others.
    odd: Vec<OddSize>,
}

/// A file, or an image, that was there with another size than the one to make it with, and keeps
/// it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{path} is there with {bytes} bytes and not {wanted}, and keeps its size: size= is for one \
     that is made"
)]
#[non_exhaustive]
pub struct OddSize {
    /// Its path.
    pub path: String,
    /// What it has.
    pub bytes: u64,
    /// What it would have been made with.
    pub wanted: u64,
}

/// An image of Ceph that was made for a store. Nobody takes it away again.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NewImage {
    /// `POOL[/NAMESPACE]/IMAGE`.
    pub place: String,
    /// Its size.
    pub bytes: u64,
}

impl fmt::Display for NewImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "made a new, empty image {} of {} (create)", self.place, Exactly(self.bytes))
    }
}

/// Files that were made for stores.
#[derive(Debug, Default)]
pub struct Made(Vec<MadeFile>);

#[derive(Debug)]
struct MadeFile {
    path: String,
    fd: Arc<OwnedFd>,
    /// Where begins what hosts write, bytes.
    content: u64,
}

impl Made {
    /// Takes them away again, for what they were made for has failed. One that somebody has written
    /// to stays.
    pub fn take_back(self) {
        for MadeFile { path, fd, content } in self.0 {
            engine::files::take_back(path.as_ref(), &fd, content);
        }
    }
}

/// The files of a daemon that runs. Asked only for what is rare.
#[derive(Debug, Default)]
pub(crate) struct Files {
    files: RwLock<Vec<StoreFile>>,
    /// Of the stores that they are of, for those that come later.
    remotes: Option<Arc<dyn Remotes>>,
}

impl Files {
    pub(crate) fn new(stores: Stores) -> Self {
        Self { files: RwLock::new(stores.files), remotes: stores.remotes }
    }

    pub(crate) fn find(&self, id: FileId) -> Option<StoreFile> {
        self.with(id, StoreFile::clone)
    }

    /// The name of a file.
    pub(crate) fn path(&self, id: FileId) -> Option<String> {
        self.with(id, |file| file.path.clone())
    }

    fn with<T>(&self, id: FileId, what: impl FnOnce(&StoreFile) -> T) -> Option<T> {
        let files = self.files.read().unwrap_or_else(PoisonError::into_inner);
        files.iter().find(|file| file.id == id).map(what)
    }

    pub(crate) fn all(&self) -> Vec<StoreFile> {
        self.files.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// For stores that are opened beside these.
    pub(crate) fn beside(&self) -> Stores {
        let taken = self.all().iter().map(|file| file.id).collect();
        Stores { taken, remotes: self.remotes.clone(), ..Stores::new() }
    }

    pub(crate) fn add(&self, more: Vec<StoreFile>) {
        self.files.write().unwrap_or_else(PoisonError::into_inner).extend(more);
    }

    pub(crate) fn remove(&self, ids: &[FileId]) {
        let mut files = self.files.write().unwrap_or_else(PoisonError::into_inner);
        files.retain(|file| !ids.contains(&file.id));
    }
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
        source: io::Error,
    },
    /// A device whose blocks are larger than those of the disk: nothing less can be read or written
    /// past the page cache.
    #[error(
        "{path} has blocks of {needs} bytes, and the disk would have blocks of {block}: past the \
         page cache nothing less than a whole block can be read or written; \
         try: block = {needs} (lunwire lun add: --block {needs}), or without direct"
    )]
    DirectBlock {
        /// The device, or the file on it.
        path: String,
        /// Length of its blocks.
        needs: u32,
        /// That of the disk.
        block: u32,
    },
    /// The image of Ceph behind it.
    #[error(transparent)]
    Rbd(#[from] RbdError),
    /// The disk of another target behind it.
    #[error(transparent)]
    Remote(#[from] RemoteRefused),
    /// Nobody said how to open disks of other targets.
    #[error("{url} is a disk of another target, and there is no initiator here to open it")]
    NoInitiator {
        /// Its URL.
        url: String,
    },
    /// A disk of another target whose blocks are larger than those of ours.
    #[error(
        "{url} has blocks of {needs} bytes, and the disk would have blocks of {block}; \
         try: block = {needs} (lunwire lun add: --block {needs})"
    )]
    RemoteBlock {
        /// Its URL.
        url: String,
        /// Length of its blocks.
        needs: u32,
        /// That of the disk.
        block: u32,
    },
    /// The device in its place.
    #[error(transparent)]
    Sg(#[from] SgError),
    /// Stores that are no stripe.
    #[error("cannot stripe these stores: {0}")]
    Stripe(#[from] StripeError),
    /// A disk that cannot have protection information.
    #[error(transparent)]
    Protection(#[from] ProtectionError),
}

/// Writes the operations of a store to the log of the daemon.
#[derive(Debug)]
struct Logged {
    store: String,
}

impl Journal for Logged {
    fn ended(&self, op: &Op, outcome: &Outcome) {
        let (offset, length) = op.range();
        let what = op.name();
        let store = &self.store;
        match outcome {
            Outcome::Failed(error) => {
                tracing::info!(store, what, offset, length, %error, "operation failed");
            }
            _ => tracing::info!(store, what, offset, length, "operation done"),
        }
    }
}

impl Stores {
    /// No store yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// No store yet; disks of other targets are opened by `remotes`, also those that are added
    /// while the target is served.
    #[must_use]
    pub fn with_remotes(remotes: Arc<dyn Remotes>) -> Self {
        Self { remotes: Some(remotes), ..Self::default() }
    }

    /// The files of other sizes that were opened since the last time that somebody asked.
    #[must_use]
    pub fn odd_sizes(&mut self) -> Vec<OddSize> {
        std::mem::take(&mut self.odd)
    }

    /// The files that were made since the last time that somebody asked.
    #[must_use]
    pub fn made(&mut self) -> Made {
        std::mem::take(&mut self.made)
    }

    /// The images that were made since the last time that somebody asked.
    #[must_use]
    pub fn new_images(&mut self) -> Vec<NewImage> {
        std::mem::take(&mut self.new_images)
    }

    /// Takes note of `open`, which is `path`, if it was made. Hosts write from byte `content` on.
    fn note(&mut self, path: &str, open: &OpenFile, content: u64) {
        if open.made {
            // Who has not mounted what should hold it learns it here.
            tracing::info!(path, "made a new, empty file");
            let (path, fd) = (path.to_owned(), Arc::clone(&open.fd));
            self.made.0.push(MadeFile { path, fd, content });
        }
    }

    /// Opens what `spec` says.
    ///
    /// # Errors
    /// If the file cannot be used as a store, memory cannot be reserved, or protection information
    /// stands beside a file.
    pub fn open(&mut self, spec: &Spec) -> Result<Arc<dyn Store>, StoreError> {
        Self::expect_unprotected(spec)?;
        Ok(self.open_layered(spec)?.0)
    }

    /// Opens what `spec` says for a disk with blocks of `block` bytes.
    ///
    /// # Errors
    /// As [`Stores::open`]; or if a device takes larger blocks only.
    pub fn open_for(&mut self, spec: &Spec, block: u32) -> Result<Arc<dyn Store>, StoreError> {
        Self::expect_unprotected(spec)?;
        self.open_whole(spec, block)
    }

    /// The same, whatever stands beside its files.
    fn open_whole(&mut self, spec: &Spec, block: u32) -> Result<Arc<dyn Store>, StoreError> {
        let (files, others) = (self.files.len(), self.others.len());
        let (store, _) = self.open_layered(spec)?;
        self.fits(files, block)?;
        let mut others = self.others.iter().skip(others);
        if let Some(other) = others.find(|other| block < other.block) {
            let (url, needs) = (other.spec.url.clone(), other.block);
            return Err(StoreError::RemoteBlock { url, needs, block });
        }
        Ok(store)
    }

    /// Whether the files behind the first `before` ones can be read in blocks of `block` bytes.
    fn fits(&self, before: usize, block: u32) -> Result<(), StoreError> {
        for file in self.files.iter().skip(before) {
            if file.direct && block < file.direct_block {
                let (path, needs) = (file.path.clone(), file.direct_block);
                return Err(StoreError::DirectBlock { path, needs, block });
            }
        }
        Ok(())
    }

    /// The store, and the place of the next filter in front of it.
    fn open_layered(&mut self, spec: &Spec) -> Result<(Arc<dyn Store>, FilterIndex), StoreError> {
        let memory = |bytes: &u64, source| StoreError::Memory { bytes: *bytes, source };
        let store: Arc<dyn Store> = match spec {
            Spec::Memory { bytes } => Arc::new(
                store::memory::Memory::new(*bytes).map_err(|source| memory(bytes, source))?,
            ),
            Spec::Null { bytes } => {
                Arc::new(store::null::Null::new(*bytes).map_err(|source| memory(bytes, source))?)
            }
            Spec::File(file) => self.open_file(file)?,
            Spec::Iso { path } => self.open_file(&FileSpec::disc(path.clone()))?,
            Spec::Rbd(image) => self.open_image(image)?,
            Spec::Remote(disk) => self.open_remote(disk)?,
            Spec::Scsi(device) => self.open_device(device)?,
            Spec::Stripe { chunk, stores } => {
                let mut open = |spec| Ok::<_, StoreError>(self.open_layered(spec)?.0);
                let stores: Result<Vec<_>, _> = stores.iter().map(&mut open).collect();
                Arc::new(Stripe::new(*chunk, stores?)?)
            }
            Spec::Filtered { behind, filter } => {
                let name = behind.to_string();
                let (behind, index) = self.open_layered(behind)?;
                let store = put_in_front(behind, index, filter, name);
                return Ok((store, FilterIndex(index.0.saturating_add(1))));
            }
        };
        Ok((store, FilterIndex(0)))
    }

    fn open_image(&mut self, spec: &RbdSpec) -> Result<Arc<dyn Store>, StoreError> {
        let image = Rbd::open(spec)?;
        let (place, bytes) = (spec.place().to_string(), image.geometry().bytes);
        match spec.size {
            _ if image.was_made() => self.new_images.push(NewImage { place, bytes }),
            Some(wanted) if wanted != bytes => {
                tracing::warn!(
                    image = place,
                    bytes,
                    wanted,
                    "the image is there with another size, which it keeps: size= is for a new one"
                );
                self.odd.push(OddSize { path: format!("rbd:{place}"), bytes, wanted });
            }
            _ => {}
        }
        self.images.push((spec.clone(), image.identity().to_owned()));
        Ok(Arc::new(image))
    }

    fn open_remote(&mut self, spec: &RemoteSpec) -> Result<Arc<dyn Store>, StoreError> {
        let url = || spec.url.clone();
        let remotes =
            self.remotes.as_ref().ok_or_else(|| StoreError::NoInitiator { url: url() })?;
        let OpenRemote { store, block, identity } = remotes.open(spec)?;
        self.others.push(Other { spec: spec.clone(), block, identity });
        Ok(store)
    }

    /// What an image of Ceph is that could be served, or would be made. Waits for the cluster.
    ///
    /// # Errors
    /// It cannot be served.
    pub fn examine_image(spec: &RbdSpec) -> Result<rbd::Seen, StoreError> {
        Ok(rbd::examine(spec)?)
    }

    fn open_device(&mut self, spec: &ScsiSpec) -> Result<Arc<dyn Store>, StoreError> {
        let (device, known) = device::open(spec)?;
        self.devices.push((spec.clone(), known));
        Ok(Arc::new(Passage::new(device)))
    }

    /// Whether a device could be opened, as far as can be seen without sending it anything.
    ///
    /// # Errors
    /// It cannot.
    pub fn examine_device(spec: &ScsiSpec) -> Result<(), StoreError> {
        Ok(engine::sg::examine(spec.path.as_ref())?)
    }

    /// What the device has said that was opened by `spec`.
    pub(crate) fn device_of(&self, spec: &ScsiSpec) -> Option<&Known> {
        self.devices.iter().find(|(opened, _)| opened == spec).map(|(_, known)| known)
    }

    /// Which disk of another target was opened by `spec`.
    pub(crate) fn remote_of(&self, spec: &RemoteSpec) -> Option<&str> {
        let opened = self.others.iter().find(|other| other.spec == *spec);
        opened.map(|other| other.identity.as_str())
    }

    /// Which image of Ceph was opened by `spec`.
    pub(crate) fn image_of(&self, spec: &RbdSpec) -> Option<&str> {
        let opened = self.images.iter().find(|(known, _)| known == spec);
        opened.map(|(_, identity)| identity.as_str())
    }

    /// A number that no file has: small ones, since engines have a table of them.
    fn free_id(&self) -> FileId {
        let is_free =
            |id: &FileId| !self.taken.contains(id) && !self.files.iter().any(|file| file.id == *id);
        (0..).map(FileId).find(is_free).expect("far fewer than 2^32 stores")
    }

    fn open_file(&mut self, spec: &FileSpec) -> Result<Arc<dyn Store>, StoreError> {
        let open = engine::files::open(
            spec.path.as_ref(),
            &OpenOptions {
                read_only: spec.read_only,
                direct: spec.direct,
                create_size: spec.size,
                raw: spec.raw,
            },
        )?;
        self.note(&spec.path, &open, 0);
        if let Some(wanted) = spec.size.filter(|wanted| *wanted != open.bytes) {
            tracing::warn!(
                path = spec.path,
                bytes = open.bytes,
                wanted,
                "the file is there with another size, which it keeps: size= is for one that is made"
            );
            self.odd.push(OddSize { path: spec.path.clone(), bytes: open.bytes, wanted });
        }
        let id = self.free_id();
        let geometry = store::Geometry {
            bytes: open.bytes,
            read_only: spec.read_only,
            discard_granularity: open.discard_granularity,
            anchors: open.reserves,
            volatile_cache: open.volatile_cache && !spec.sync,
            physical_block: open.physical_block,
            rotational: open.rotational,
        };
        let mut store = store::file::File::new(id, geometry, spec.sync);
        if spec.direct {
            store = store.past_the_cache();
        }
        let store = Arc::new(inherited(store, &spec.path, engine::files::sync(&open.fd)));
        self.files.push(StoreFile {
            id,
            fd: Arc::clone(&open.fd),
            direct: spec.direct,
            path: spec.path.clone(),
            writable: !spec.read_only,
            block_device: open.block_device,
            health: store.health(id).expect("a file has a health"),
            name: Arc::default(),
            direct_block: open.direct_block,
            _behind: open.behind,
        });
        Ok(store)
    }
}

/// `store` with what it has from those who wrote to the file before: a process that was killed may
/// have left acknowledged writes to the system. The system tells it once if these are lost, and who
/// opens the file next hears it.
fn inherited(store: store::file::File, path: &str, synced: io::Result<()>) -> store::file::File {
    if store.geometry().read_only {
        return store;
    }
    let Err(error) = synced else { return store };
    tracing::error!(
        path,
        %error,
        "cannot write back what was written before the file was opened: blocks that were \
         acknowledged may be lost. Flushes and durable writes fail until it is opened again: \
         check the device and the data, then restart the daemon"
    );
    store.after_a_loss()
}

/// `filter` before `behind`, whose word is `name`.
fn put_in_front(
    behind: Arc<dyn Store>,
    index: FilterIndex,
    filter: &Filter,
    name: String,
) -> Arc<dyn Store> {
    match *filter {
        Filter::ReadOnly => Arc::new(filter::ReadOnly::new(behind)),
        Filter::NoDiscard => Arc::new(filter::NoDiscard::new(behind)),
        Filter::Delay { which, length } => {
            Arc::new(filter::Delay::new(behind, index, which, length))
        }
        Filter::Error { fault, when } => Arc::new(filter::Failing::new(behind, fault, when)),
        Filter::Limit(rate) => Arc::new(filter::Limit::new(behind, index, rate)),
        Filter::Physical(bytes) => Arc::new(filter::Physical::new(behind, bytes)),
        Filter::Atomic => Arc::new(filter::Atomic::new(behind)),
        Filter::Log => Arc::new(filter::Log::new(behind, Arc::new(Logged { store: name }))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_synced_when_it_is_opened_has_lost_something() {
        let file = |read_only| {
            let geometry = store::Geometry {
                bytes: 4096,
                read_only,
                discard_granularity: None,
                anchors: false,
                volatile_cache: true,
                physical_block: 512,
                rotational: false,
            };
            store::file::File::new(FileId(0), geometry, false)
        };
        let failed = |read_only, synced| {
            let store = inherited(file(read_only), "disk", synced);
            store.health(FileId(0)).is_some_and(|health| health.has_failed())
        };
        let error = || Err(io::Error::from_raw_os_error(EIO));
        assert!(!failed(false, Ok(())));
        assert!(failed(false, error()));
        assert!(!failed(true, error()), "nobody writes to it");
    }

    #[test]
    fn blocks_that_are_smaller_than_those_of_the_device_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let spec: Spec = format!("file:{}/disk,size=1M", folder.path().display()).parse().unwrap();
        let mut stores = Stores::new();
        assert!(stores.open_for(&spec, 512).is_ok());
        let file = &mut stores.files[0];
        (file.direct, file.direct_block) = (true, 4096);
        assert!(stores.fits(0, 4096).is_ok());
        let error = stores.fits(0, 512).unwrap_err().to_string();
        assert!(error.contains("block = 4096"), "{error}");
    }
}
