// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Images whose cluster is silent: who asks for something of another one is answered in time all
//! the same, nobody is told BUSY of one that answers, and of silence nothing fails.

use std::time::Duration;

use clock::Instant;
use initiator::Error;
use initiator::Kind;
use wire::scsi::sense::SenseKey;

use crate::run::Run;
use crate::stage::Operation;
use crate::world::World;

/// Nothing that no silence keeps takes longer, where nothing else goes wrong.
const TIME_MAX: Duration = Duration::from_secs(20);

/// SAM-5 §5.3.1.
const BUSY: u8 = 0x08;

/// Times in which a part of an image did not answer.
#[derive(Debug, Default)]
pub(crate) struct Silences(Vec<Silence>);

#[derive(Clone, Copy, Debug)]
struct Silence {
    disk: usize,
    from: Instant,
    until: Instant,
}

impl Silences {
    pub(crate) fn add(&mut self, disk: usize, from: Instant, until: Instant) {
        self.0.push(Silence { disk, from, until });
    }

    pub(crate) fn end(&mut self, now: Instant) {
        self.0.iter_mut().for_each(|silence| silence.until = silence.until.min(now));
    }

    /// Whether one may have kept what was under way between these moments.
    fn was(&self, disk: usize, asked: Instant, now: Instant) -> bool {
        self.0.iter().any(|silence| {
            silence.disk == disk && silence.from <= now && asked <= silence.until + TIME_MAX
        })
    }
}

impl World {
    /// What is wrong about how long an operation of a disk has taken by now, or about how it has
    /// failed.
    pub(crate) fn judge_silence(
        &self,
        disk: usize,
        operation: &Operation,
        error: Option<&Error>,
    ) -> Option<String> {
        let Operation { what, unit, asked, .. } = *operation;
        match error.map(Error::kind) {
            Some(Kind::Status { status: BUSY, .. })
                if !self.silences.was(disk, asked, self.now) =>
            {
                return Some(format!(
                    "{what:?} of unit {unit} is told BUSY, and its image answers"
                ));
            }
            Some(Kind::Status { sense: Some(sense), .. })
                if matches!(sense.key, SenseKey::HardwareError | SenseKey::MediumError) =>
            {
                return Some(format!("{what:?} of unit {unit} fails for silence: {sense:?}"));
            }
            _ => {}
        }
        let took = self.now.since(asked);
        let late = took > TIME_MAX && !operation.may_be_kept();
        (late && !self.silences.was(disk, asked, self.now))
            .then(|| format!("{what:?} of unit {unit} takes {took:?} beside silent images"))
    }
}

impl Run {
    /// Looks for what is kept by the silence of another image.
    pub(crate) fn look_for_held_up(&mut self) {
        if !self.stage.judges_silence {
            return;
        }
        let world = self.world.borrow();
        let operations = self.hosts.iter().flat_map(|host| &host.slots);
        let operations = operations.flat_map(|slot| slot.operations.values());
        let wrong = operations
            .filter_map(|one| world.judge_silence(self.stage.disks[one.unit], one, None))
            .next();
        drop(world);
        if let Some(wrong) = wrong {
            self.stage.fail(wrong);
        }
    }
}
