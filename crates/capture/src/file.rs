// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The file, and the thread that writes it.

mod kept;

use std::fmt;
use std::fs::File;
use std::fs::OpenOptions;
use std::fs::Permissions;
use std::fs::TryLockError;
use std::io;
use std::io::Read;
use std::io::Write;
use std::mem;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use wire::pcap;
use wire::pcap::Segment;

use self::kept::Kept;

/// How large a file gets where nobody says otherwise: one that is forgotten fills no disk.
pub const LIMIT_DEFAULT: u64 = 1 << 30;

/// What may wait to be written, bytes: some tenths of a second of a fast network, while a disk
/// writes back.
const QUEUE_BYTES_MAX: usize = 64 << 20;

/// A queue of more bytes is not kept for the next ones.
const QUEUE_BYTES_KEPT: usize = 4 << 20;

/// From one look at a file that nothing comes for to the next: whether it was deleted.
const LOOK: Duration = Duration::from_secs(2);

/// The kernel takes a moment to close what a process had that was killed.
const LOCK_PATIENCE: Duration = Duration::from_millis(500);
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// What others than the owner may do with a file.
const OTHERS: u32 = 0o077;

/// Why a capture cannot begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Something is there that is no capture, which stays as it is.
    #[error("{path} has something in it that is no capture; try: another name")]
    Occupied {
        /// Where.
        path: String,
    },
    /// Something is there that is no file: a pipe whose reader sleeps would be waited for.
    #[error("{path} is no file; try: another name")]
    NoFile {
        /// Where.
        path: String,
    },
    /// Another process captures to it, or we do already.
    #[error("{path}: another capture is being written there; try: another name")]
    InUse {
        /// Where.
        path: String,
    },
    /// Its owner, who is another user, could read what is captured.
    #[error("{path} belongs to another user, who could read it; try: another name")]
    OfAnother {
        /// Where.
        path: String,
    },
    /// The system does not let us.
    #[error("cannot write {path}: {source}; try: another place")]
    File {
        /// Where.
        path: String,
        /// What the system said.
        source: io::Error,
    },
}

/// Why nothing more is written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// The file is as large as it may get.
    Limit,
    /// The file takes nothing more.
    Failed(String),
    /// The file was deleted: nobody could read what is written.
    Removed,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit => f.write_str("it is as large as it may get"),
            Self::Failed(why) => f.write_str(why),
            Self::Removed => f.write_str("its file was deleted"),
        }
    }
}

/// How far a capture is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Figures {
    /// Segments that were written, or are going to be.
    pub segments: u64,
    /// Bytes that those and the beginning take in the file.
    pub bytes: u64,
    /// Segments that are missing between them: they came faster than they could be written.
    pub lost: u64,
    /// Why nothing more is written, if so.
    pub end: Option<End>,
}

/// A capture that is being written; clones write to the same file.
#[derive(Clone, Debug)]
pub struct Capture(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    limit: u64,
    /// Whether more is taken. A look at it costs nobody anything.
    is_open: AtomicBool,
    queue: Mutex<Queue>,
    /// There is something to be written, or to be over.
    filled: Condvar,
    /// All that was there is written.
    emptied: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Vec<u8>,
    figures: Figures,
    /// The thread has something in its hands.
    is_busy: bool,
    /// The thread is to end when nothing is left.
    is_over: bool,
}

impl Capture {
    /// Makes the file, for its owner alone, since what connections carry is private; one that is
    /// there is replaced only if it is a capture or empty, ours, and not being written. More than
    /// `limit` bytes are not written. `tell` hears, once, why nothing more is written, if that
    /// happens before the end.
    ///
    /// # Errors
    /// If there is something else, or the system does not let us.
    pub fn create(
        path: &Path,
        limit: u64,
        tell: impl FnOnce(&End) + Send + 'static,
    ) -> Result<Self, OpenError> {
        let file = open(path)?.emptied()?;
        Self::begin(path, file, Kept::default(), limit, tell)
    }

    /// The same behind what a capture of ours has that is there, which counts: whoever goes on
    /// where another one has stopped takes nothing of it away.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn go_on(
        path: &Path,
        limit: u64,
        tell: impl FnOnce(&End) + Send + 'static,
    ) -> Result<Self, OpenError> {
        let (file, kept) = open(path)?.shortened()?;
        Self::begin(path, file, kept, limit, tell)
    }

    fn begin(
        path: &Path,
        file: File,
        kept: Kept,
        limit: u64,
        tell: impl FnOnce(&End) + Send + 'static,
    ) -> Result<Self, OpenError> {
        let failed = |source| OpenError::File { path: path.display().to_string(), source };
        let begin = pcap::file_header();
        let waiting = if kept.bytes > 0 { Vec::new() } else { begin.to_vec() };
        let (bytes, segments) = (kept.bytes + waiting.len() as u64, kept.segments);
        let figures = Figures { bytes, segments, ..Figures::default() };
        let queue = Queue { waiting, figures, ..Queue::default() };
        let capture = Self(Arc::new(Inner {
            path: path.to_owned(),
            limit,
            is_open: AtomicBool::new(true),
            queue: Mutex::new(queue),
            filled: Condvar::new(),
            emptied: Condvar::new(),
        }));
        let inner = Arc::clone(&capture.0);
        thread::Builder::new()
            .name("capture".into())
            .spawn(move || inner.write(file, kept, tell))
            .map_err(failed)?;
        Ok(capture)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// How far it is.
    #[must_use]
    pub fn figures(&self) -> Figures {
        self.0.lock().figures.clone()
    }

    /// Whether more is taken.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.0.is_open.load(Ordering::Relaxed)
    }

    /// Takes nothing more, and waits until all is written, but for `patience` at most.
    pub fn finish(&self, patience: Duration) -> Figures {
        self.0.is_open.store(false, Ordering::Relaxed);
        let mut queue = self.0.lock();
        queue.is_over = true;
        self.0.filled.notify_one();
        let is_at_work = |queue: &mut Queue| queue.is_busy || !queue.waiting.is_empty();
        let waited = self.0.emptied.wait_timeout_while(queue, patience, is_at_work);
        let (queue, _) = waited.unwrap_or_else(PoisonError::into_inner);
        queue.figures.clone()
    }

    /// Takes one segment, unless there is no room for it.
    pub(crate) fn push(&self, time: Duration, segment: &Segment<'_>) {
        if !self.is_open() {
            return;
        }
        let length = segment.record_len();
        let mut queue = self.0.lock();
        if queue.is_over {
            return;
        }
        if queue.figures.bytes + length as u64 > self.0.limit {
            self.0.is_open.store(false, Ordering::Relaxed);
            queue.figures.end = Some(End::Limit);
        } else if queue.waiting.len() + length > QUEUE_BYTES_MAX {
            queue.figures.lost += 1;
        } else {
            queue.figures.segments += 1;
            queue.figures.bytes += length as u64;
            segment.emit(time, &mut queue.waiting);
        }
        drop(queue);
        self.0.filled.notify_one();
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread: writes what waits until it is told to end, or cannot go on.
    fn write(&self, mut file: impl Sink, kept: Kept, tell: impl FnOnce(&End)) {
        let mut batch = Vec::new();
        let Kept { bytes: mut written, mut segments } = kept;
        let mut queue = self.lock();
        let end = loop {
            if queue.waiting.is_empty() {
                if let Some(end) = &queue.figures.end {
                    break Some(end.clone());
                }
                if queue.is_over {
                    break None;
                }
                let waited = self.filled.wait_timeout(queue, LOOK);
                let (locked, waited) = waited.unwrap_or_else(PoisonError::into_inner);
                queue = locked;
                if waited.timed_out() && file.is_gone() {
                    break Some(queue.figures.end.insert(End::Removed).clone());
                }
                continue;
            }
            mem::swap(&mut batch, &mut queue.waiting);
            queue.is_busy = true;
            let taken = queue.figures.segments;
            drop(queue);
            let is_gone = file.is_gone();
            let result = append(&mut file, &batch, written);
            match &result {
                Ok(()) => {
                    written += batch.len() as u64;
                    segments = taken;
                }
                Err(short) => {
                    written += short.bytes;
                    segments += short.records;
                    // A reader wants whole records. What cannot be cut, it has to cut short itself.
                    let _ = file.cut(written);
                }
            }
            batch.clear();
            batch.shrink_to(QUEUE_BYTES_KEPT);
            queue = self.lock();
            queue.is_busy = false;
            if is_gone {
                break Some(queue.figures.end.insert(End::Removed).clone());
            }
            if let Err(Short { error, .. }) = result {
                (queue.figures.bytes, queue.figures.segments) = (written, segments);
                let end = queue.figures.end.insert(End::Failed(error.to_string()));
                break Some(end.clone());
            }
        };
        self.is_open.store(false, Ordering::Relaxed);
        queue.is_over = true;
        // Nobody writes what has come since: who waits for the end does not wait for that.
        queue.waiting = Vec::new();
        drop(queue);
        self.emptied.notify_all();
        if let Some(end) = end {
            tell(&end);
        }
    }
}

/// Not all of some records was written.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs)] // who cuts the file must know all of it
pub struct Short {
    /// Bytes of those that were written whole.
    pub bytes: u64,
    /// How many these are.
    pub records: u64,
    /// What the system said.
    pub error: io::Error,
}

/// Writes whole records behind the `written` bytes of a capture, or its beginning and records.
///
/// # Errors
/// If not all of it is written: it is to be cut behind the last whole record.
pub fn append(file: &mut impl Write, records: &[u8], written: u64) -> Result<(), Short> {
    let mut rest = records;
    let error = loop {
        if rest.is_empty() {
            return Ok(());
        }
        match file.write(rest) {
            Ok(0) => break io::ErrorKind::WriteZero.into(),
            Ok(length) => rest = rest.get(length..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break error,
        }
    };
    let taken = records.get(..records.len() - rest.len()).unwrap_or_default();
    let begin = if written == 0 { pcap::FILE_HEADER_LEN } else { 0 };
    let whole = taken.get(begin..).map(pcap::whole_records);
    let (records, bytes) = whole.map_or((0, 0), |(records, bytes)| (records, begin + bytes));
    Err(Short { bytes: bytes as u64, records, error })
}

/// What a capture is written to.
trait Sink: Write {
    /// Leaves the first `length` bytes.
    fn cut(&mut self, length: u64) -> io::Result<()>;

    /// Whether it has no name any more.
    fn is_gone(&self) -> bool;
}

impl Sink for File {
    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn is_gone(&self) -> bool {
        self.metadata().is_ok_and(|facts| facts.nlink() == 0)
    }
}

/// A file that may become a capture: new, and for its owner alone, or an old one, which stays as it
/// was until [`Opened::emptied`]. A new one goes when this is dropped before.
#[derive(Debug)]
pub struct Opened {
    file: File,
    path: String,
    fresh: Fresh,
}

/// The name of a new file.
#[derive(Debug)]
struct Fresh(Option<PathBuf>);

impl Drop for Fresh {
    fn drop(&mut self) {
        if let Some(path) = self.0.take() {
            // At worst it is there, and empty.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Opened {
    /// For its owner alone, and without what it had.
    ///
    /// # Errors
    /// If the system does not let us.
    pub fn emptied(self) -> Result<File, OpenError> {
        Ok(self.cut(|_| Ok(Kept::default()))?.0)
    }

    /// For its owner alone, and at its end, behind what is whole of it.
    fn shortened(self) -> Result<(File, Kept), OpenError> {
        self.cut(kept::of)
    }

    /// For its owner alone, and behind what stays of it.
    fn cut(
        self,
        what_stays: impl FnOnce(&mut File) -> io::Result<Kept>,
    ) -> Result<(File, Kept), OpenError> {
        let Self { mut file, path, mut fresh } = self;
        fresh.0 = None;
        let cut = |file: &mut File| {
            if file.metadata()?.mode() & OTHERS != 0 {
                file.set_permissions(Permissions::from_mode(0o600))?;
            }
            let kept = what_stays(file)?;
            file.set_len(kept.bytes)?;
            io::Seek::seek(file, io::SeekFrom::Start(kept.bytes))?;
            Ok(kept)
        };
        match cut(&mut file) {
            Ok(kept) => Ok((file, kept)),
            Err(source) => Err(OpenError::File { path, source }),
        }
    }
}

/// Opens one, and keeps it from every other capture.
///
/// # Errors
/// If there is something else, or the system does not let us.
pub fn open(path: &Path) -> Result<Opened, OpenError> {
    let name = || path.display().to_string();
    let failed = |source| OpenError::File { path: name(), source };
    let mut options = OpenOptions::new();
    // Whoever is at the other end of a pipe is not waited for.
    options.read(true).write(true).truncate(false).mode(0o600);
    let opened = match options.clone().create_new(true).open(path) {
        Ok(file) => Ok((file, Fresh(Some(path.to_owned())))),
        // A link may lead to a place where nothing is yet.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            options.create(true).open(path).map(|file| (file, Fresh(None)))
        }
        Err(error) => Err(error),
    };
    let (mut file, fresh) = opened.map_err(failed)?;
    let facts = file.metadata().map_err(failed)?;
    if !facts.is_file() {
        return Err(OpenError::NoFile { path: name() });
    }
    if facts.uid() != rustix::process::geteuid().as_raw() {
        return Err(OpenError::OfAnother { path: name() });
    }
    lock(&file, path)?;
    // Of what is there now, and not before somebody has let go of it.
    if file.metadata().map_err(failed)?.len() > 0 {
        let mut begin = [0; pcap::FILE_HEADER_LEN];
        let is_whole = file.read_exact(&mut begin).is_ok();
        if !is_whole || !pcap::is_capture(&begin) {
            return Err(OpenError::Occupied { path: name() });
        }
    }
    Ok(Opened { file, path: name(), fresh })
}

/// Keeps every other capture from the file, as long as it is open: two that write to it write over
/// each other. One that is about to end is waited for.
fn lock(file: &File, path: &Path) -> Result<(), OpenError> {
    let begin = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if begin.elapsed() < LOCK_PATIENCE => {
                thread::sleep(LOCK_PAUSE);
            }
            Err(TryLockError::WouldBlock) => {
                return Err(OpenError::InUse { path: path.display().to_string() });
            }
            // File systems without locks protect nothing, but take what is written.
            Err(TryLockError::Error(_)) => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
