// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What all hosts share besides the world: what is known of units, and what may still come about.

use std::collections::BTreeMap;
use std::time::Duration;

use clock::Instant;
use initiator::FlushMark;

use crate::claims::Claim;
use crate::claims::Nexus;
use crate::copies::Copy;
use crate::model::Model;
use crate::model::Version;
use crate::options::Secrets;
use crate::request::What;
use crate::resizing::Sizes;
use crate::settings::Settings;
use crate::tokens::Tokens;

/// A request under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    pub(crate) what: What,
    pub(crate) unit: usize,
    pub(crate) lba: usize,
    pub(crate) count: usize,
    pub(crate) asked: Instant,
    /// Of a flush: what was written before.
    pub(crate) mark: Option<FlushMark>,
}

/// A write whose end is not known: it may still come about.
#[derive(Debug)]
pub(crate) struct Ghost {
    pub(crate) unit: usize,
    pub(crate) lba: usize,
    pub(crate) count: usize,
    pub(crate) host: usize,
    pub(crate) slot: usize,
    pub(crate) target: usize,
    /// Connections that it may have gone over.
    pub(crate) links: Vec<u64>,
    /// The targets' ends are closed; when this much disk work is done it is over.
    pub(crate) mark: Option<Vec<(usize, u64)>>,
    /// It may be a job, which outlives its session.
    pub(crate) job: bool,
}

/// What all hosts share besides the world.
#[derive(Debug)]
pub(crate) struct Stage {
    /// All units of all targets.
    pub(crate) models: Vec<Model>,
    /// Of each unit: who may write.
    pub(crate) claims: Vec<Claim>,
    /// Of each unit: the tokens of its blocks.
    pub(crate) tokens: Vec<Tokens>,
    /// Of each unit: what was saved.
    pub(crate) settings: Vec<Settings>,
    /// Of each target: whether it keeps states through a loss of power.
    pub(crate) keeps: Vec<bool>,
    /// Of each unit: how large it was when.
    pub(crate) sizes: Vec<Sizes>,
    pub(crate) next_nexus: Nexus,
    /// Of each target: its units in `models`.
    pub(crate) units: Vec<Vec<usize>>,
    /// Of each target: what a login has to prove.
    pub(crate) secrets: Vec<Secrets>,
    /// Of each target: whether it has two portal groups.
    pub(crate) two_groups: Vec<bool>,
    /// Of each target: as many blocks as it has memory to read at once.
    pub(crate) readable: Vec<usize>,
    /// Whose writes all go to stable storage.
    pub(crate) always_durable: Vec<bool>,
    /// Of each unit: when another disk took its place.
    pub(crate) exchanges: Vec<Vec<Instant>>,
    /// There are such.
    pub(crate) exchanging: bool,
    /// Of each target: when it lost its power.
    pub(crate) outages: Vec<Vec<Instant>>,
    pub(crate) ghosts: Vec<Ghost>,
    pub(crate) next_version: Version,
    /// Copies by token that are under way.
    pub(crate) copies: BTreeMap<Version, Copy>,
    /// New load is wanted.
    pub(crate) loading: bool,
    /// Units are being read as a whole.
    pub(crate) verifying: bool,
    /// Sessions may be lost.
    pub(crate) may_lose: bool,
    /// Requests may fail.
    pub(crate) may_fail: bool,
    /// Of each unit: its disk.
    pub(crate) disks: Vec<usize>,
    /// Nothing goes wrong but that images are silent.
    pub(crate) judges_silence: bool,
    /// Some initiators ask for more than there is.
    pub(crate) hogs: bool,
    pub(crate) failure: Option<String>,
}

/// Without faults no request takes longer, however deep the queue and narrow the window.
const CALM_MAX: Duration = Duration::from_secs(20);

/// Small requests without much depth take no longer beside hogs.
const HOGS_MAX: Duration = Duration::from_secs(10);

impl Operation {
    /// It may have to wait for what is being kept, which takes its time.
    pub(crate) const fn may_be_kept(&self) -> bool {
        matches!(self.what, What::Guard(_) | What::Setting(_))
    }
}

impl Stage {
    /// How long a request may take, if that is known.
    pub(crate) const fn time_max(&self) -> Option<Duration> {
        match (self.may_fail, self.hogs) {
            (true, _) => None,
            (false, true) => Some(HOGS_MAX),
            (false, false) => Some(CALM_MAX),
        }
    }

    pub(crate) fn fail(&mut self, text: String) {
        self.failure.get_or_insert(text);
    }
}
