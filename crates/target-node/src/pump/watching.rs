// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Syncs and durable writes: what they tell of a file is for all who use it, also when nobody waits
//! for them any more ([`store::health`]).

use std::sync::Arc;
use std::time::Duration;

use clock::Instant;
use engine::Port;
use engine::Work;
use store::Io;
use store::IoResult;
use store::Store;
use store::health::Verdict;
use store::health::Watch;

use super::Doing;
use super::Kind;
use super::context::Context;
use super::token;
use crate::table::Key;

/// A sync that ended well waits at least so long for those that overlapped with it: a good part of
/// what a fast disk needs.
const HOLD_MIN: Duration = Duration::from_micros(50);

/// It looks again after a quarter of the time that it has waited, at most after so long.
const HOLD_MAX: Duration = Duration::from_millis(50);

/// Linux: input/output error.
const EIO: i32 = 5;

/// Linux: no space left on the device, and none that the owner of the file may have.
const ENOSPC: i32 = 28;
const EDQUOT: i32 = 122;

/// A watch over work under way.
#[derive(Debug)]
pub(super) struct Watching {
    watch: Watch,
    /// Since when it waits for others.
    held: Option<Instant>,
    /// Why a durable write failed that is tried again as another one.
    refused: Option<i32>,
}

impl Watching {
    /// A watch over what is done for a task of this store, if that is a sync or a durable write.
    #[inline]
    pub(super) fn of(doing: &Doing, store: Option<&Arc<dyn Store>>) -> Option<Self> {
        let Doing::Store { io, .. } = doing else { return None };
        let (file, what) = io.watched()?;
        let health = store?.health(file)?;
        Some(Self { watch: Watch::begin(&health, what), held: None, refused: None })
    }
}

impl<P: Port> Context<P> {
    /// The result of work that has ended, for all whom it concerns. None: it is not known yet.
    pub(super) fn judged(&mut self, key: Key, result: IoResult) -> Option<IoResult> {
        let Some(pending) = self.ios.get_mut(key) else { return Some(result) };
        let Some(watching) = &mut pending.watching else { return Some(result) };
        let result = match (watching.refused, &result) {
            (None, IoResult::Other(Err(errno @ (ENOSPC | EDQUOT)))) => {
                if let Some(work) = plain_write(&pending.doing) {
                    watching.refused = Some(*errno);
                    self.port.submit(token(Kind::Io, key), work);
                    return None;
                }
                result
            }
            (Some(_), IoResult::Other(Err(_))) => {
                let _ = watching.watch.end(true);
                return Some(result);
            }
            (Some(errno), _) => IoResult::Other(Err(errno)),
            (None, _) => result,
        };
        // The timer of one that is held says nothing of how it ended, which was well.
        let result = if watching.held.is_some() { IoResult::Other(Ok(())) } else { result };
        let well = matches!(result, IoResult::Other(Ok(())));
        let file = match &pending.doing {
            Doing::Store { io, .. } => io.watched().map(|(file, _)| file),
            Doing::Keep | Doing::Device(_) | Doing::Reset(_) => None,
        };
        let failed = watching.watch.end(well);
        let verdict = if well { watching.watch.verdict() } else { Verdict::Good };
        if verdict == Verdict::Wait {
            let now = self.port.now();
            let waited = now.since(*watching.held.get_or_insert(now));
            let end = now + (waited / 4).clamp(HOLD_MIN, HOLD_MAX);
            self.timers.set(token(Kind::Io, key).0, end);
            return None;
        }
        if failed || verdict == Verdict::Repaired {
            let found = file.and_then(|file| self.shared.files.find(file));
            let path = found.map_or_else(String::new, |file| file.path);
            if failed {
                tracing::error!(
                    path,
                    ?result,
                    "cannot write back: blocks that were acknowledged may be lost. Flushes and \
                     durable writes fail until they are written again and flushed"
                );
            } else {
                tracing::info!(path, "what may have been lost was written again and flushed");
            }
        }
        Some(if verdict == Verdict::Doubtful { IoResult::Other(Err(EIO)) } else { result })
    }
}

/// A durable write as a plain one. Where there was no space for it, nothing was synced and no news
/// taken from others: then there is none for the plain one either. Where that one finds space, what
/// failed was the sync.
fn plain_write(doing: &Doing) -> Option<Work> {
    let Doing::Store { io, .. } = doing else { return None };
    match io.innermost() {
        Io::Write { file, offset, data, durable: true } => {
            let (file, offset, data) = (file.0, *offset, data.clone());
            Some(Work::Write { file, offset, data, durable: false })
        }
        _ => None,
    }
}
