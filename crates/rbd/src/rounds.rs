// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What nobody tells us of an image that is open: its name leads elsewhere, others use it beside a
//! cache. The thread of the image looks now and then.
#![forbid(unsafe_code)]

use crate::image::Facts;
use crate::image::Fate;
use crate::image::Image;
use crate::image::Snap;
use crate::limits::ROUND;
use crate::watches::Watched;
use std::time::Duration;
use std::time::Instant;
use store::spec::RbdSpec;

/// What is looked at now and then.
#[derive(Debug)]
pub(crate) struct Rounds {
    looked: Option<Instant>,
    id: Option<String>,
    snapshot: Option<Snap>,
    /// There is a cache here, which other clients must not have beside them.
    caches: bool,
    others_are_told: bool,
    fate: Fate,
    /// What a start does that does not find it.
    next_start: &'static str,
}

impl Rounds {
    pub(crate) fn of(spec: &RbdSpec, facts: &Facts) -> Self {
        Self {
            looked: None,
            id: facts.id.clone(),
            snapshot: facts.snapshot.clone(),
            caches: spec.snapshot.is_none() && !facts.options.has_no_cache(),
            others_are_told: false,
            fate: Fate::Kept,
            next_start: match spec.create && spec.size.is_some() {
                true => "the next start makes an empty one",
                false => "the daemon will not find it at its next start",
            },
        }
    }

    /// How long it is until the next one.
    pub(crate) fn pause(&self) -> Duration {
        self.looked.map_or(Duration::ZERO, |at| ROUND.saturating_sub(at.elapsed()))
    }

    /// Waits for the cluster.
    pub(crate) fn go(&mut self, image: &Image, watched: &Watched) {
        self.looked = Some(Instant::now());
        self.look_at_name(image, watched);
        if self.caches {
            self.look_at_others(image, watched);
        }
    }

    /// Says so when the image is not found by its name any more, or the snapshot is gone.
    pub(crate) fn look_at_name(&mut self, image: &Image, watched: &Watched) {
        let fate = match image.fate(self.id.as_deref(), self.snapshot.as_ref()) {
            Ok(fate) => fate,
            // Hosts may ask for nothing for a long time.
            Err(refused) => return image.heed(refused.errno),
        };
        if std::mem::replace(&mut self.fate, fate) == fate {
            return;
        }
        watched.note_fate(fate);
        let image = image.name();
        match fate {
            Fate::Kept => {
                tracing::info!(image, "the {} is found by its name again", self.what());
            }
            Fate::Moved => tracing::warn!(
                image,
                how = fate.word(),
                "the {} is served and is not found by its name any more: {}; try: the new name in \
                 the configuration, or {} it back",
                self.what(),
                self.next_start,
                self.renamed_by()
            ),
            Fate::Replaced => tracing::warn!(
                image,
                how = fate.word(),
                "the {} is served and another one has its name: the next start serves that; try: \
                 the new name in the configuration, or {} both back",
                self.what(),
                self.renamed_by()
            ),
            Fate::Removed => tracing::error!(
                image,
                "the snapshot was removed while it is served: reads fail; try: lunwire lun remove"
            ),
        }
    }

    const fn what(&self) -> &'static str {
        if self.snapshot.is_some() { "snapshot" } else { "image" }
    }

    /// What gives another name, of an image or of a snapshot; that of an image may have it as well.
    const fn renamed_by(&self) -> &'static str {
        if self.snapshot.is_some() { "rbd snap rename or rbd mv" } else { "rbd mv" }
    }

    /// Says so when somebody else has the image open, and when nobody has any more.
    fn look_at_others(&mut self, image: &Image, watched: &Watched) {
        let Ok(others) = image.others() else { return };
        watched.note_others(others.len());
        if self.others_are_told != others.is_empty() {
            return;
        }
        self.others_are_told = !others.is_empty();
        let image = image.name();
        if self.others_are_told {
            tracing::warn!(
                image,
                others = others.join(" "),
                "another client has the image open, and there is a cache here, which goes on \
                 giving out what was there before the other one wrote; try: rbd config image set \
                 POOL/IMAGE rbd_cache false, and start the daemon again (a client that was killed \
                 counts for 30 s)"
            );
        } else {
            tracing::info!(image, "no other client has the image open any more");
        }
    }
}
