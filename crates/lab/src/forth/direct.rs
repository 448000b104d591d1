// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks at hand: files that the application reads and writes by itself, one or five as RAID-0; a
//! thread for each request outstanding.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use buf::{Buf, Pool};
use medium::stripe::Layout;
use rustix::fs::OFlags;

use super::{Load, Sample};
use crate::Error;
use crate::measure::real;
use crate::threads::own_ns;

/// Bytes that lie together on a disk.
pub(super) const CHUNK: u64 = 64 << 10;

/// Files as one disk.
#[derive(Debug)]
pub(super) struct Files {
    files: Vec<File>,
    /// None: there is one file.
    layout: Option<Layout>,
    bytes: u64,
}

/// Whether the system's cache is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cache {
    Used,
    PassedBy,
}

impl Files {
    /// `count` files of `bytes` below `folder`, which are there.
    pub(super) fn open(
        folder: &Path,
        count: usize,
        bytes: u64,
        cache: Cache,
    ) -> std::io::Result<Self> {
        let flags = match cache {
            Cache::Used => OFlags::empty(),
            Cache::PassedBy => OFlags::DIRECT,
        };
        let mut options = File::options();
        options.read(true).write(true).custom_flags(flags.bits().cast_signed());
        let files = (0..count).map(|index| options.open(path_of(folder, index)));
        let files = files.collect::<std::io::Result<Vec<_>>>()?;
        let layout = Layout::new(CHUNK, count).ok();
        let whole = layout.map_or(Some(bytes), |layout| layout.bytes(bytes)).unwrap_or(0);
        Ok(Self { files, layout, bytes: whole })
    }

    /// Whether requests of this size are taken; files past the cache refuse small ones.
    pub(super) fn takes(&self, bytes: u32) -> bool {
        let pool = Pool::new(1 << 20).ok();
        let buf = pool.and_then(|pool| pool.take(bytes as usize));
        buf.is_some_and(|mut buf| self.read(0, &mut buf).is_ok())
    }

    fn read(&self, offset: u64, to: &mut [u8]) -> std::io::Result<()> {
        self.pieces(offset, to.len(), |file, at, range| {
            to.get_mut(range).map_or(Ok(()), |part| file.read_exact_at(part, at))
        })
    }

    fn write(&self, offset: u64, from: &[u8]) -> std::io::Result<()> {
        self.pieces(offset, from.len(), |file, at, range| {
            from.get(range).map_or(Ok(()), |part| file.write_all_at(part, at))
        })
    }

    fn pieces(
        &self,
        offset: u64,
        length: usize,
        mut each: impl FnMut(&File, u64, std::ops::Range<usize>) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        let Some(layout) = self.layout else {
            return self.files.first().map_or(Ok(()), |file| each(file, offset, 0..length));
        };
        let mut done = 0;
        for piece in layout.pieces(offset, length as u64) {
            let end = done + usize::try_from(piece.length).unwrap_or(length);
            if let Some(file) = self.files.get(piece.member) {
                each(file, piece.offset, done..end)?;
            }
            done = end;
        }
        Ok(())
    }

    /// Keeps as many requests outstanding as the load has, for so long.
    pub(super) fn run(&self, load: Load, time: Duration) -> Result<Sample, Error> {
        let length = load.bytes as usize;
        let pool_bytes = 2 * load.depth * length + (1 << 20);
        let pool = Pool::new(pool_bytes).map_err(|_| Error::Memory(pool_bytes))?;
        let bufs: Option<Vec<Buf>> = (0..load.depth).map(|_| pool.take(length)).collect();
        let bufs = bufs.ok_or(Error::Memory(pool_bytes))?;
        let (next, over) = (AtomicU64::new(0), AtomicBool::new(false));
        let begun = Instant::now();
        let work = |mut buf: Buf| -> std::io::Result<(u64, u64)> {
            let (before, mut ios) = (own_ns(), 0);
            while !over.load(Ordering::Relaxed) {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let offset = load.offset(number, self.bytes);
                match load.mix.writes(number) {
                    true => self.write(offset, &buf)?,
                    false => self.read(offset, &mut buf)?,
                }
                ios += 1;
                if begun.elapsed() >= time {
                    over.store(true, Ordering::Relaxed);
                }
            }
            Ok((ios, own_ns() - before))
        };
        let (mut ios, mut cpu) = (0, 0);
        std::thread::scope(|scope| {
            let work = &work;
            let running = bufs.into_iter().map(|buf| scope.spawn(move || work(buf)));
            for thread in running.collect::<Vec<_>>() {
                let ended = thread.join().map_err(|_| Error::rig("a thread has panicked"))?;
                let (done, used) = ended.map_err(Error::rig)?;
                ios += done;
                cpu += used;
            }
            Ok::<(), Error>(())
        })?;
        Ok(Sample { ios: real(ios), seconds: begun.elapsed().as_secs_f64(), cpu_ns: cpu })
    }
}

/// The file of a disk.
pub(super) fn path_of(folder: &Path, index: usize) -> std::path::PathBuf {
    folder.join(format!("disk{index}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_files_are_one_disk() {
        let folder = tempfile::tempdir().unwrap();
        for index in 0..5 {
            std::fs::write(path_of(folder.path(), index), vec![0; 256 << 10]).unwrap();
        }
        let files = Files::open(folder.path(), 5, 256 << 10, Cache::Used).unwrap();
        assert_eq!(files.bytes, (5 * 256) << 10);
        let data: Vec<u8> = (0..=255).cycle().take(200_000).collect();
        files.write(60_000, &data).unwrap();
        let mut back = vec![0; data.len()];
        files.read(60_000, &mut back).unwrap();
        assert!(back == data);
        let second = std::fs::read(path_of(folder.path(), 1)).unwrap();
        assert_eq!(second[..100], data[5536..5636], "the second chunk is on the second disk");
        assert!(files.takes(512));
    }
}
