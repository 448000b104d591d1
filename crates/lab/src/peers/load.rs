// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The load: our initiator, in the thread of the study.

use std::time::{Duration, Instant};

use initiator::{Data, DigestOffer, Event, Geometry, Queue, Request, Retry, SessionId};

use super::servers::Server;
use super::{Case, DISK_BYTES, Shape};
use crate::measure::real;
use crate::threads::{find, usage};
use crate::{Error, LOAD_NAME};

/// So long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// So long a logout may take.
const LEAVE_MOST: Duration = Duration::from_secs(5);

/// Before it counts, a load runs for this part of its time.
const WARM: u32 = 5;

/// What a disk is filled and looked through with.
const FILL_BYTES: u32 = 1 << 20;

/// So many places of a disk are looked at.
const LOOKED_AT: u64 = 64;

/// What one run gave.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sample {
    pub(super) ios: f64,
    pub(super) seconds: f64,
    /// Time that the target worked, seconds.
    pub(super) target: f64,
    /// And the load.
    pub(super) load: f64,
    /// 99 of 100 answers came within this, microseconds.
    pub(super) p99_us: f64,
}

impl Sample {
    pub(super) fn rate(&self) -> f64 {
        self.ios / self.seconds
    }

    /// What an I/O costs the target, microseconds.
    pub(super) fn target_us(&self) -> f64 {
        self.target * 1e6 / self.ios
    }

    /// How much of its processor the load takes.
    pub(super) fn load_share(&self) -> f64 {
        self.load / self.seconds
    }
}

/// Writes all blocks of the disk: who has memory for it only then has it now. Gives how many of the
/// places that are looked at have what was written there, in percent.
pub(super) fn fill(server: &Server) -> Result<f64, Error> {
    let mut load = Load::log_in(server, Shape::PLAIN)?;
    let all = DISK_BYTES / u64::from(FILL_BYTES);
    for number in 0..all {
        load.write(number)?;
    }
    let mut intact = 0;
    for number in (0..LOOKED_AT).map(|at| at * all / LOOKED_AT) {
        intact += u64::from(load.is_intact(number)?);
    }
    load.leave();
    Ok(100.0 * real(intact) / real(LOOKED_AT))
}

/// What stands at this place, byte by byte: no two places have the same.
fn pattern(number: u64) -> Vec<u8> {
    let word = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    word.into_iter().cycle().take(FILL_BYTES as usize).collect()
}

/// The place of the next request, of as many as there are: all come, in an order that no cache
/// foresees.
fn leap(number: u64, places: u64) -> u64 {
    /// Odd, so that all places of a power of two come.
    const LEAP: u64 = 0x9e37_79b9_7f4a_7c15;
    let power = places.next_power_of_two();
    number.wrapping_mul(LEAP) % power % places
}

fn p99(mut latencies: Vec<u64>) -> f64 {
    latencies.sort_unstable();
    let at = latencies.len().saturating_sub(1) * 99 / 100;
    latencies.get(at).map_or(0.0, |ns| real(*ns) / 1000.0)
}

/// Sessions with one target, and what is asked for in them.
pub(super) struct Load {
    queue: Queue,
    sessions: Vec<SessionId>,
    geometry: Geometry,
    lun: u16,
    number: u64,
}

impl Load {
    pub(super) fn log_in(server: &Server, shape: Shape) -> Result<Self, Error> {
        let Shape { sessions, digests } = shape;
        let config = initiator::Config { spin_max: Duration::ZERO, ..initiator::Config::default() };
        let mut queue = Queue::new(&config).map_err(Error::rig)?;
        let (portal, target) = server.place(digests);
        let mut logged_in = Vec::new();
        for _ in 0..sessions {
            let mut options = initiator::Options::new(portal.to_string(), Some(target.to_owned()));
            let offer = if digests { DigestOffer::Required } else { DigestOffer::Off };
            let settings = &mut options.settings;
            (settings.header_digest, settings.data_digest) = (offer, offer);
            logged_in.push(queue.login(options).map_err(Error::rig)?);
        }
        let first = *logged_in.first().ok_or_else(|| Error::rig("no session"))?;
        let lun = server.lun();
        let geometry = initiator::scsi::geometry(&mut queue.unit(first, lun));
        let geometry = geometry.map_err(Error::rig)?;
        Ok(Self { queue, sessions: logged_in, geometry, lun, number: 0 })
    }

    /// One run of a case.
    pub(super) fn measure(
        &mut self,
        server: &Server,
        case: Case,
        time: Duration,
    ) -> Result<Sample, Error> {
        self.try_measure(server, case, time)
            .map_err(|error| Error::Rig(format!("{}, {}: {error}", server.peer.name(), case.name)))
    }

    fn try_measure(
        &mut self,
        server: &Server,
        case: Case,
        time: Duration,
    ) -> Result<Sample, Error> {
        let mut latencies = Vec::new();
        self.keep_busy(case, time / WARM, &mut latencies)?;
        latencies.clear();
        let own = find(LOAD_NAME);
        let own_used = || own.map_or(0.0, |tid| real(usage(tid).cpu_ns) / 1e9);
        let before = (server.worked()?, own_used());
        let (ios, seconds) = self.keep_busy(case, time, &mut latencies)?;
        let after = (server.worked()?, own_used());
        let (target, load) = (after.0 - before.0, after.1 - before.1);
        Ok(Sample { ios: real(ios), seconds, target, load, p99_us: p99(latencies) })
    }

    pub(super) fn leave(mut self) {
        self.queue.leave(LEAVE_MOST, LEAVE_MOST);
    }

    /// Keeps all requests outstanding for so long; gives how many were answered, and the seconds.
    fn keep_busy(
        &mut self,
        case: Case,
        time: Duration,
        latencies: &mut Vec<u64>,
    ) -> Result<(u64, f64), Error> {
        let no_memory = || Error::Memory(case.bytes as usize);
        let data = self.queue.pool().take(case.bytes as usize).ok_or_else(no_memory)?.freeze();
        let slots = case.sessions * case.depth;
        let begun = Instant::now();
        let mut posted = vec![begun; slots];
        for (slot, at) in posted.iter_mut().enumerate() {
            *at = Instant::now();
            self.post(slot, case, &data)?;
        }
        let (mut ios, mut under_way) = (0, slots);
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
                let now = Instant::now();
                let slot = usize::try_from(tag).map_err(Error::rig)?;
                let at = posted.get_mut(slot).ok_or_else(|| Error::rig("a strange tag"))?;
                let took = now.saturating_duration_since(*at).as_nanos();
                latencies.push(u64::try_from(took).unwrap_or(u64::MAX));
                if now.saturating_duration_since(begun) < time {
                    *at = now;
                    self.post(slot, case, &data)?;
                } else {
                    under_way -= 1;
                }
            }
        }
        Ok((ios, begun.elapsed().as_secs_f64()))
    }

    fn post(&mut self, slot: usize, case: Case, data: &buf::Slice) -> Result<(), Error> {
        let session = self.sessions.get(slot % case.sessions.max(1));
        let session = *session.ok_or_else(|| Error::rig("no session"))?;
        let places = DISK_BYTES / u64::from(case.bytes);
        let place = if case.random { leap(self.number, places) } else { self.number % places };
        self.number += 1;
        let blocks = case.bytes / self.geometry.block;
        let lba = place * u64::from(blocks);
        let (cdb, data) = match case.write {
            true => (self.geometry.write(lba, blocks), Data::Out(data.clone())),
            false => (self.geometry.read(lba, blocks), Data::In(case.bytes)),
        };
        let request = Request { lun: self.lun, cdb, data, retry: Retry::Always };
        let posted = self.queue.post(session, slot as u64, request);
        posted.map_err(|(error, _)| Error::rig(error))
    }

    fn one(&mut self, number: u64, data: Option<buf::Slice>) -> Result<initiator::Done, Error> {
        let blocks = FILL_BYTES / self.geometry.block;
        let lba = number * u64::from(blocks);
        let (cdb, data) = match data {
            Some(data) => (self.geometry.write(lba, blocks), Data::Out(data)),
            None => (self.geometry.read(lba, blocks), Data::In(FILL_BYTES)),
        };
        let session = *self.sessions.first().ok_or_else(|| Error::rig("no session"))?;
        let request = Request { lun: self.lun, cdb, data, retry: Retry::Always };
        self.queue.execute(session, request).map_err(Error::rig)
    }

    fn write(&mut self, number: u64) -> Result<(), Error> {
        let no_memory = || Error::Memory(FILL_BYTES as usize);
        let mut data = self.queue.pool().take(FILL_BYTES as usize).ok_or_else(no_memory)?;
        data.copy_from_slice(&pattern(number));
        self.one(number, Some(data.freeze())).map(|_| ())
    }

    fn is_intact(&mut self, number: u64) -> Result<bool, Error> {
        let done = self.one(number, None)?;
        Ok(done.data.is_some_and(|data| *data == *pattern(number)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_comes_once() {
        let places = DISK_BYTES / 4096;
        let all: std::collections::BTreeSet<u64> =
            (0..places).map(|number| leap(number, places)).collect();
        assert_eq!(all.len() as u64, places);
        assert_ne!(leap(1, places), 1);
        assert_ne!(pattern(0), pattern(1));
    }

    #[test]
    fn the_slowest_hundredth_begins_behind_the_others() {
        assert!((p99((1..=200).map(|us| us * 1000).collect()) - 198.0).abs() < 1e-9);
        assert!(p99(Vec::new()).abs() < 1e-9);
    }
}
