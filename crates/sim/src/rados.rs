// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stores on a simulated cluster: RADOS below librbd, as far as whoever serves an image sees it.
//!
//! ```text
//! front.rs --orders--> image.rs (the client: pieces, cache.rs, flushes.rs) --lines--> objects
//! ```
//!
//! What is modelled, after Ceph's public documents (RADOS, librbd's cache settings, placement
//! groups) and what `crates/rbd` relies on:
//!
//! - An image is cut in objects. Those who work on one object are served in order, each at once and
//!   as a whole; what is for several is answered with its last piece, and its pieces take effect at
//!   times of their own. Between objects there is no order.
//! - What an object has taken is on all replicas: no loss of power takes it. A client may have a
//!   write-back cache in front (`cache.rs`), which goes with its process.
//! - A placement group that is inactive, or a cluster that is away, does not refuse: it is silent,
//!   and goes on when it is back. Full, it refuses what needs space. An object may be unreadable.
//! - A client that is blocklisted, and one whose image was removed, gets nothing done until it
//!   opens the image again. What a client that is gone had sent is over when the next one opens it:
//!   it breaks the lock of the one before, which is blocklisted by that.
//! - Somebody else gives an image another size: the client that has it knows at once, and cuts off
//!   what goes beyond the end (a write then says that all is well), as librbd does; whoever serves
//!   the image hears of it later.

mod cache;
mod flushes;
mod front;
mod image;

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use clock::Instant;

use crate::disk::Disk;
use crate::disk::Owner;
use crate::disk::What;
use crate::elsewhere::Counter;
use crate::elsewhere::Order;
use crate::options::Rados;
use crate::options::Trouble;
use crate::rng::Rng;
use crate::rng::mix;
use crate::world::Due;
use crate::world::World;
use front::Sight;
use image::EINVAL;
use image::Image;
use image::Step;

pub(crate) use front::ImageStore;

/// Linux: no such file, endpoint shut down.
pub(crate) const ENOENT: i32 = 2;
pub(crate) const ESHUTDOWN: i32 = 108;

/// What is wrong with a cluster, and until when.
#[derive(Debug, Default)]
struct Troubles {
    away: Instant,
    full: Instant,
    /// By placement group.
    inactive: BTreeMap<u64, Instant>,
}

/// The cluster behind one target.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) counter: Counter,
    plan: Rados,
    rng: Rng,
    troubles: Troubles,
    /// By disk.
    images: BTreeMap<usize, Image>,
    /// Disks whose images are gone.
    removed: BTreeSet<usize>,
}

/// Everything that an image needs for a step.
#[derive(Debug)]
struct Ground<'a> {
    plan: Rados,
    troubles: &'a Troubles,
    rng: &'a mut Rng,
    disk: &'a mut Disk,
    number: usize,
    now: Instant,
    /// What is due when.
    wanted: Vec<(Instant, Step)>,
    /// Work that has ended, and its errno.
    ended: Vec<(u64, Option<i32>)>,
    marks: Vec<&'static str>,
    broken: Vec<String>,
}

impl Ground<'_> {
    /// Until when the placement group of an object does not answer.
    fn silent_until(&self, object: u64) -> Instant {
        let group = group_of(self.number, object, &self.plan);
        let inactive = self.troubles.inactive.get(&group).copied().unwrap_or_default();
        self.troubles.away.max(inactive)
    }

    fn is_full(&self) -> bool {
        self.now < self.troubles.full
    }
}

/// Where something of a cluster goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    desk: usize,
    disk: usize,
    step: Step,
}

/// The placement group that an object of a disk is in.
const fn group_of(disk: usize, object: u64, plan: &Rados) -> u64 {
    mix((disk as u64) << 32 | object) % plan.groups
}

impl Cluster {
    pub(crate) const fn new(counter: Counter, plan: Rados, rng: Rng) -> Self {
        let troubles = Troubles { away: Instant(0), full: Instant(0), inactive: BTreeMap::new() };
        Self { counter, plan, rng, troubles, images: BTreeMap::new(), removed: BTreeSet::new() }
    }
}

impl World {
    /// A client opens the image of a disk, which has so many bytes.
    pub(crate) fn open_image(&mut self, desk: usize, disk: usize, bytes: u64) -> Arc<Sight> {
        let Some(cluster) = self.clusters.get_mut(&desk) else { return Arc::default() };
        let mut image = Image::open(&cluster.plan, bytes, self.now);
        image.fails = cluster.removed.contains(&disk).then_some(ENOENT);
        let sight = Arc::clone(&image.sight);
        cluster.images.insert(disk, image);
        sight
    }

    /// A disk of a target gets another size from who serves it.
    pub(crate) fn resize(&mut self, desk: usize, disk: usize, bytes: u64) {
        self.resize_image(desk, disk, bytes);
        self.hear_of_size(desk, disk, bytes);
    }

    /// The same from somebody else.
    pub(crate) fn resize_image(&mut self, desk: usize, disk: usize, bytes: u64) {
        self.disks[disk].set_bytes(bytes);
        if let Some(image) = self.image(desk, disk) {
            image.resize(bytes);
        }
    }

    /// Whoever serves an image hears of its size. True if more is there than hosts see.
    pub(crate) fn hear_of_size(&mut self, desk: usize, disk: usize, bytes: u64) -> bool {
        self.image(desk, disk).is_some_and(|image| image.sight.hear(bytes))
    }

    fn image(&mut self, desk: usize, disk: usize) -> Option<&mut Image> {
        self.clusters.get_mut(&desk)?.images.get_mut(&disk)
    }

    /// Something befalls the cluster of a target, and the image of one of its disks. False: it has
    /// none.
    pub(crate) fn trouble(
        &mut self,
        desk: usize,
        disk: usize,
        trouble: Trouble,
        draw: u64,
    ) -> bool {
        let now = self.now;
        self.note_silence(desk, trouble, draw);
        let Some(cluster) = self.clusters.get_mut(&desk) else { return false };
        let Cluster { plan, troubles, images, removed, .. } = cluster;
        let Some(image) = images.get_mut(&disk) else { return false };
        let until = |length| now + Duration::from_millis(u64::from(length));
        let group = draw % plan.groups;
        match trouble {
            Trouble::Inactive(length) => {
                troubles.inactive.insert(group, until(length));
            }
            Trouble::Away(length) => troubles.away = until(length),
            Trouble::Full(length) => troubles.full = until(length),
            Trouble::Unreadable(length) => {
                let bytes = image.bytes();
                image.bad = Some((draw % bytes.div_ceil(plan.object).max(1), until(length)));
            }
            Trouble::Blocklisted(_) => {
                images.values_mut().for_each(|image| image.fails = Some(ESHUTDOWN));
            }
            Trouble::Removed(_) => {
                image.fails = Some(ENOENT);
                removed.insert(disk);
            }
            Trouble::Resized(_) => {}
        }
        true
    }

    fn note_silence(&mut self, desk: usize, trouble: Trouble, draw: u64) {
        let (Trouble::Inactive(length) | Trouble::Away(length)) = trouble else { return };
        let Some(Cluster { plan, images, .. }) = self.clusters.get(&desk) else { return };
        let until = self.now + Duration::from_millis(u64::from(length));
        for (disk, image) in images {
            let mut objects = 0..image.bytes().div_ceil(plan.object);
            let met = |object| group_of(*disk, object, plan) == draw % plan.groups;
            if matches!(trouble, Trouble::Away(_)) || objects.any(met) {
                self.silences.add(*disk, self.now, until);
            }
        }
    }

    /// Nothing befalls clusters any more: all that waits goes on.
    pub(crate) fn mend_clusters(&mut self) {
        self.silences.end(self.now);
        for cluster in self.clusters.values_mut() {
            cluster.troubles = Troubles::default();
        }
        let desks: Vec<(usize, Vec<usize>)> = (self.clusters.iter())
            .map(|(desk, cluster)| (*desk, cluster.images.keys().copied().collect()))
            .collect();
        for (desk, disks) in desks {
            for disk in disks {
                self.on_image(desk, disk, Image::hasten);
            }
        }
    }

    /// Work of an image has ended.
    fn end_in_cluster(&mut self, desk: usize, disk: usize, id: u64, errno: Option<i32>) {
        let Some(work) = self.disks[disk].works.remove(&id) else { return };
        let parts = [10, disk as u64, id, u64::from(errno.unwrap_or(0).unsigned_abs())];
        self.trace.step(self.now, &parts, || format!("image {disk}: work {id} ends, {errno:?}"));
        let Owner::Elsewhere { completer, .. } = work.owner else { return };
        match (errno, &work.what) {
            (Some(ENOENT | ESHUTDOWN), _) => completer.complete(Err(store::Error::Internal)),
            (Some(EINVAL), _) => completer.complete(Err(store::Error::Range)),
            _ => self.answer(disk, completer, &work.what, errno),
        }
        self.rouse(desk);
    }

    /// Takes what the stores of a target have begun in a turn of its pump.
    pub(crate) fn take_cluster_orders(&mut self, desk: usize) {
        let Some(cluster) = self.clusters.get(&desk) else { return };
        for Order { number, disk, op, completer } in cluster.counter.take() {
            if self.image(desk, disk).is_some_and(|image| image.sight.is_silent()) {
                let broken = format!("{op:?} of disk {disk} is not told that its image is silent");
                self.tally.broken.push(broken);
            }
            let what = What::elsewhere(op, false);
            let owner = Owner::Elsewhere { number, completer };
            self.resets.begin(disk, &self.disks);
            let id = self.disks[disk].submit(desk, owner, what);
            self.disks[disk].note_begin(id, self.now);
            self.on_image(desk, disk, |image, ground| image.begin(id, ground));
        }
    }

    /// Something on a line of an image goes on.
    pub(crate) fn go_on_in_cluster(&mut self, place: Place) {
        let Place { desk, disk, step } = place;
        self.on_image(desk, disk, |image, ground| image.step(step, ground));
    }

    fn on_image(
        &mut self,
        desk: usize,
        disk: usize,
        deed: impl FnOnce(&mut Image, &mut Ground<'_>),
    ) {
        let Some(cluster) = self.clusters.get_mut(&desk) else { return };
        let Cluster { plan, rng, troubles, images, .. } = cluster;
        let Some(image) = images.get_mut(&disk) else { return };
        let mut ground = Ground {
            plan: *plan,
            troubles,
            rng,
            disk: &mut self.disks[disk],
            number: disk,
            now: self.now,
            wanted: Vec::new(),
            ended: Vec::new(),
            marks: Vec::new(),
            broken: Vec::new(),
        };
        deed(image, &mut ground);
        let Ground { wanted, ended, marks, broken, .. } = ground;
        marks.into_iter().for_each(|mark| self.tally.mark(mark));
        self.tally.broken.extend(broken);
        for (at, step) in wanted {
            self.at(at, Due::Object(Place { desk, disk, step }));
        }
        for (id, errno) in ended {
            self.end_in_cluster(desk, disk, id, errno);
        }
    }

    /// There is another image behind a disk.
    pub(crate) fn put_image(&mut self, desk: usize, disk: usize) {
        if let Some(cluster) = self.clusters.get_mut(&desk) {
            cluster.removed.remove(&disk);
        }
    }

    /// Before a turn of a target: what its stores know of their images by then.
    pub(crate) fn look_at_images(&mut self, desk: usize) {
        let now = self.now;
        let Some(cluster) = self.clusters.get_mut(&desk) else { return };
        let limit = Duration::from_secs(cluster.plan.busy);
        for (disk, image) in &mut cluster.images {
            let is_idle = self.disks[*disk].works.is_empty();
            if image.look(!is_idle, now, limit) {
                self.tally.mark("image silent");
            }
        }
    }

    /// The process of a client is gone. True for each disk that may have lost what was not flushed.
    pub(crate) fn lose_clients(&mut self, desk: usize, disks: &[usize]) -> Vec<bool> {
        let mut lose = |disk: &usize| {
            let mut lost = false;
            self.on_image(desk, *disk, |image, ground| lost = image.crash(ground));
            self.disks[*disk].works.clear();
            lost
        };
        disks.iter().map(&mut lose).collect()
    }
}

#[cfg(test)]
mod tests;
