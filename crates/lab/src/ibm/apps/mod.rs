// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the study proposes in section 3.2 and did not measure: a disc that hosts share, lists of
//! who may have which disk, and copies to a far place.

mod copies;
mod discs;
mod wan;

use std::time::Duration;

use crate::Error;
use crate::progress::Steps;
use crate::study::Settings;
use crate::workplace::Workplace;
pub(super) use copies::{Case, DEEP, Moved, TUNED};
use copies::{Far, Pace};
pub(super) use discs::{Shared, Tried};

/// All of it.
#[derive(Debug)]
pub(super) struct Applications {
    /// The reason, where there is no disc.
    pub(super) discs: Result<Vec<Shared>, String>,
    /// Bytes of the disc.
    pub(super) disc: u64,
    pub(super) access: Vec<Tried>,
    pub(super) copies: Result<Copies, String>,
}

/// Copies over a long line.
#[derive(Debug)]
pub(super) struct Copies {
    pub(super) moved: Vec<Moved>,
    /// Of one that was read back and compared: bytes, and MB/s of the whole.
    pub(super) verified: (u64, f64),
    /// What the line carries at most of streams, MB/s.
    pub(super) most: f64,
}

impl Applications {
    pub(super) fn take(settings: &Settings, steps: &Steps<'_>) -> Result<Self, Error> {
        let effort = settings.effort;
        let disc = effort.of(1 << 20, 32 << 20, 256 << 20);
        let hosts: &[usize] = effort.of(&[1, 2], &[1, 2, 4, 8], &[1, 2, 4, 8, 16]);
        steps.expect(hosts.len() + 1);
        let discs = match discs::Drive::start(disc) {
            Ok(drive) => {
                let mut read = Vec::new();
                for hosts in hosts {
                    steps.next(&format!("{hosts} hosts read a disc"))?;
                    read.push(drive.read_all(*hosts, settings.rounds([3, 6, 10]))?);
                }
                drive.end()?;
                Ok(read)
            }
            Err(why) => Err(why),
        };
        steps.next("lists of access")?;
        let access = discs::try_access()?;
        let copies = match Workplace::new() {
            Ok(place) => match Far::start(settings.program.as_deref(), place.path()) {
                Ok(far) => Ok(Copies::take(far, settings, steps)?),
                Err(why) => Err(why),
            },
            Err(error) => Err(format!("it needs a folder for what is copied ({error})")),
        };
        Ok(Self { discs, disc, access, copies })
    }
}

impl Copies {
    fn take(far: Far<'_>, settings: &Settings, steps: &Steps<'_>) -> Result<Self, Error> {
        let effort = settings.effort;
        let slice = Duration::from_millis(effort.of(10, 250, 1000));
        let before = effort.of(
            (0, Duration::ZERO),
            (10, Duration::from_millis(500)),
            (16, Duration::from_secs(2)),
        );
        let pace = Pace { before, slice, slices: settings.rounds([3, 3, 6]) };
        let cases = effort.of(&Case::some()[..1], &Case::some(), &Case::all()).to_vec();
        steps.expect(cases.len() + 1);
        steps.next("a copy over a long line that is read back")?;
        let verified = far.verify(Case::USUAL, steps)?;
        let mut moved = Vec::new();
        for case in cases {
            steps.next(&format!("a copy over a long line: {}", case.name()))?;
            moved.push(far.run(case, pace, steps)?);
        }
        far.end()?;
        let most = wan::Wan::most(copies::RATE) / 1e6;
        Ok(Self { moved, verified: (copies::WHOLE, verified), most })
    }

    pub(super) fn of(&self, case: Case) -> Option<&Moved> {
        self.moved.iter().find(|moved| moved.case == case)
    }
}
