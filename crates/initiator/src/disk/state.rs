// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What all clones of a disk share with the thread behind their initiator.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::Weak;

use wire::scsi::capacity::Capacity;
use wire::scsi::mode::Header;
use wire::scsi::mode::ModeData;

use crate::DiskEvent;
use crate::Generation;
use crate::Geometry;
use crate::Ledger;
use crate::SessionId;
use crate::completions::Shared;
use crate::limits;
use crate::scsi::writes_back;
use crate::session::lock;

/// What all clones of a disk share.
#[derive(Debug)]
pub(crate) struct DiskState {
    pub(crate) session: SessionId,
    pub(crate) lun: u16,
    inner: Mutex<DiskInner>,
}

/// What changes.
#[derive(Debug)]
pub(crate) struct DiskInner {
    pub(crate) geometry: Geometry,
    pub(crate) ledger: Ledger,
    /// Behind which resets the unit was found to have the cache of the geometry.
    cache_seen: Generation,
    /// Bytes in its blocks, if they are not those of the geometry any more.
    pub(crate) reformatted: Option<u32>,
    /// Who is told of events, and under which tag. A queue that everybody has dropped goes: it
    /// would keep the data of what has ended there.
    pub(crate) watchers: Vec<(Weak<Shared>, u64)>,
    news: Vec<(Arc<Shared>, u64, DiskEvent)>,
    question: Question,
    /// How often it was asked in a row.
    asked: u32,
}

/// What a unit tells of its cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cache {
    volatile: bool,
    write_through: bool,
    /// When it told that.
    seen: Generation,
}

impl Cache {
    /// By the answer to MODE SENSE(6) for all pages, if there is one.
    pub(crate) fn of(mode: Option<&[u8]>, seen: Generation) -> Self {
        let data = mode.and_then(|bytes| ModeData::parse(Header::Six, bytes));
        let write_through = data.is_some_and(|data| data.specific.dpo_fua);
        Self { volatile: mode.is_none_or(writes_back), write_through, seen }
    }
}

/// Whether the unit is being asked for its size and its cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    None,
    Asked,
    /// The answer may be of before the last change.
    AskedTooEarly,
}

impl DiskState {
    /// Of a unit that told its geometry behind the resets of `seen`.
    pub(crate) fn new(session: SessionId, lun: u16, geometry: Geometry, seen: Generation) -> Self {
        let inner = DiskInner {
            geometry,
            ledger: Ledger::default(),
            cache_seen: seen,
            reformatted: None,
            watchers: Vec::new(),
            news: Vec::new(),
            question: Question::None,
            asked: 0,
        };
        Self { session, lun, inner: Mutex::new(inner) }
    }

    pub(crate) fn inner(&self) -> MutexGuard<'_, DiskInner> {
        lock(&self.inner)
    }
}

impl DiskInner {
    /// Notes an event for all who watch.
    pub(crate) fn happened(&mut self, event: DiskEvent) {
        self.watchers.retain(|(queue, _)| queue.strong_count() > 0);
        let watchers =
            self.watchers.iter().filter_map(|(queue, tag)| Some((queue.upgrade()?, *tag)));
        self.news.extend(watchers.map(|(queue, tag)| (queue, tag, event.clone())));
    }

    /// Events that are to be passed on.
    pub(crate) fn take_news(&mut self) -> Vec<(Arc<Shared>, u64, DiskEvent)> {
        std::mem::take(&mut self.news)
    }

    /// The unit has told its size, and what cache it has.
    pub(crate) fn learned(&mut self, capacity: Option<&Capacity>, cache: Option<Cache>) {
        if let Some(capacity) = capacity {
            let (block, blocks) = (capacity.block_length, capacity.last_lba.saturating_add(1));
            self.resize(Geometry { block, blocks, ..self.geometry });
        }
        if let Some(Cache { volatile, write_through, seen }) = cache {
            self.geometry = Geometry { volatile_cache: volatile, write_through, ..self.geometry };
            self.cache_seen = seen;
            self.happened(DiskEvent::Cache { volatile });
        }
    }

    /// A write has ended well in `generation`, without FUA.
    pub(crate) fn wrote(&mut self, generation: Generation) {
        // Whether the unit still is as it was before a reset is not known until it says so.
        let is_known = !generation.is_reset_since(self.cache_seen);
        match is_known && !self.geometry.volatile_cache {
            true => self.ledger.wrote_durably(generation),
            false => self.ledger.wrote(generation),
        }
    }

    /// The unit has told what it is like, behind the resets of `seen`.
    pub(crate) fn replace(&mut self, geometry: Geometry, seen: Generation) {
        let volatile = geometry.volatile_cache;
        let is_other = volatile != self.geometry.volatile_cache;
        self.resize(geometry);
        if self.reformatted.is_none() {
            self.cache_seen = seen;
            if is_other {
                self.happened(DiskEvent::Cache { volatile });
            }
        }
    }

    fn resize(&mut self, geometry: Geometry) {
        if geometry.block != self.geometry.block {
            // Offsets would be those of other blocks.
            self.reformatted = Some(geometry.block);
            return;
        }
        let (was, now) = (self.geometry.bytes(), geometry.bytes());
        (self.geometry, self.reformatted) = (geometry, None);
        if was != now {
            self.happened(DiskEvent::Resized { was, now });
        }
    }

    /// The size may have changed: gives what to ask with, unless it is being asked for.
    pub(crate) fn begin_question(&mut self) -> Option<Geometry> {
        let free = self.question == Question::None;
        self.question = if free { Question::Asked } else { Question::AskedTooEarly };
        self.asked += u32::from(free);
        free.then_some(self.geometry)
    }

    /// True if it has to be asked for once more: not for ever by a unit that always says so.
    pub(crate) fn end_question(&mut self) -> bool {
        let early =
            std::mem::replace(&mut self.question, Question::None) == Question::AskedTooEarly;
        let again = early && self.asked < limits::SIZE_QUESTIONS_MAX;
        if !again {
            self.asked = 0;
        }
        again
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that panics has failed
mod tests {
    use super::*;
    use crate::CompletionQueue;

    fn disk() -> DiskState {
        let geometry = Geometry { blocks: 100, ..crate::geometry::tests::DISK };
        DiskState::new(SessionId { index: 0, generation: 1 }, 0, geometry, Generation::default())
    }

    fn capacity(block_length: u32, last_lba: u64) -> Capacity {
        Capacity { last_lba, block_length, ..crate::scsi::capacity_of_10(0, 512) }
    }

    #[test]
    fn watchers_hear_of_another_size() {
        let (disk, queue) = (disk(), CompletionQueue::new().unwrap());
        disk.inner().watchers.push((Arc::downgrade(&queue.0), 7));
        disk.inner().learned(Some(&capacity(512, 99)), None);
        assert!(disk.inner().take_news().is_empty(), "it is the same");
        disk.inner().learned(Some(&capacity(512, 199)), None);
        let news = disk.inner().take_news();
        let [(_, 7, DiskEvent::Resized { was: 51200, now: 102400 })] = news[..] else {
            panic!("{news:?}")
        };
        assert_eq!(disk.inner().geometry.blocks, 200);
        drop(news);
        let shared = Arc::downgrade(&queue.0);
        drop(queue);
        assert!(shared.upgrade().is_none(), "it keeps what nobody reaps");
        disk.inner().learned(Some(&capacity(512, 99)), None);
        assert!(disk.inner().take_news().is_empty() && disk.inner().watchers.is_empty());
    }

    #[test]
    fn other_blocks_are_another_disk() {
        let disk = disk();
        disk.inner().learned(Some(&capacity(4096, 99)), None);
        assert_eq!(disk.inner().reformatted, Some(4096));
        assert_eq!(disk.inner().geometry.bytes(), 51200);
        disk.inner().learned(Some(&capacity(512, 99)), None);
        assert_eq!(disk.inner().reformatted, None);
    }

    #[test]
    fn a_change_during_the_question_is_asked_for_again() {
        let disk = disk();
        assert!(disk.inner().begin_question().is_some());
        assert!(disk.inner().begin_question().is_none());
        assert!(disk.inner().end_question());
        assert!(disk.inner().begin_question().is_some());
        assert!(!disk.inner().end_question());
    }

    #[test]
    fn a_unit_that_tells_of_a_change_at_each_question_is_not_asked_for_ever() {
        let disk = disk();
        for _ in 0..2 {
            let mut asked = 0;
            loop {
                assert!(disk.inner().begin_question().is_some());
                asked += 1;
                assert!(asked <= limits::SIZE_QUESTIONS_MAX, "it is asked for ever");
                // The unit attention that it answers with at first.
                assert!(disk.inner().begin_question().is_none());
                if !disk.inner().end_question() {
                    break;
                }
            }
            assert_eq!(asked, limits::SIZE_QUESTIONS_MAX, "the next change has it asked again");
        }
    }
}
