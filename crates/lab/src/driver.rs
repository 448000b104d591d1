// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests on a session: as many at once as are wanted, for a time.

use std::time::{Duration, Instant};

use buf::Slice;
use initiator::{Data, Event, Geometry, Queue, Request, Retry, SessionId};

use crate::Error;

/// So long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// What keeps a disk busy.
pub(crate) struct Driver<'a> {
    pub(crate) queue: &'a mut Queue,
    pub(crate) session: SessionId,
    pub(crate) geometry: &'a Geometry,
    /// What is written; its length is that of each request.
    pub(crate) data: &'a Slice,
    /// Requests at once.
    pub(crate) depth: usize,
}

/// A request: the byte at which it begins, and whether it is a write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) offset: u64,
    pub(crate) write: bool,
}

impl Driver<'_> {
    /// Keeps requests outstanding for so long, and one of each depth at least, the next one as
    /// `ask` says of its number and the bytes of the disk; gives how many were answered, and the
    /// seconds.
    pub(crate) fn keep_busy(
        mut self,
        time: Duration,
        ask: impl Fn(u64, u64) -> Ask,
    ) -> Result<(u64, f64), Error> {
        let size = self.geometry.blocks * u64::from(self.geometry.block);
        let begun = Instant::now();
        let mut number = 0;
        let mut next = || {
            number += 1;
            ask(number - 1, size)
        };
        for slot in 0..self.depth {
            self.post(slot as u64, next())?;
        }
        let (mut ios, mut under_way) = (0, self.depth);
        while under_way > 0 {
            self.queue.wait_n(1, PATIENCE);
            if begun.elapsed() > time + PATIENCE {
                return Err(Error::rig(format!("no answer within {} s", PATIENCE.as_secs())));
            }
            while let Some(event) = self.queue.reap() {
                let tag = match event {
                    Event::Done { tag, result, .. } => result.map(|_| tag).map_err(Error::rig)?,
                    Event::Down { error, .. } => return Err(Error::rig(error)),
                    _ => continue,
                };
                ios += 1;
                if begun.elapsed() < time {
                    self.post(tag, next())?;
                } else {
                    under_way -= 1;
                }
            }
        }
        Ok((ios, begun.elapsed().as_secs_f64()))
    }

    fn post(&mut self, tag: u64, ask: Ask) -> Result<(), Error> {
        let block = self.geometry.block;
        let bytes = u32::try_from(self.data.len()).map_err(Error::rig)?;
        let (lba, blocks) = (ask.offset / u64::from(block), bytes / block);
        let (cdb, data) = match ask.write {
            true => (self.geometry.write(lba, blocks), Data::Out(self.data.clone())),
            false => (self.geometry.read(lba, blocks), Data::In(bytes)),
        };
        let request = Request { lun: 0, cdb, data, retry: Retry::Always };
        self.queue.post(self.session, tag, request).map_err(|(error, _)| Error::rig(error))
    }
}
