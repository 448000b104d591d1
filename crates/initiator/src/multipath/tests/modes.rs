// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Paths over which the disk tells of another cache, or of another protection.

use wire::scsi::SenseKey;
use wire::scsi::command;
use wire::scsi::mode;
use wire::scsi::mode::Caching;
use wire::scsi::mode::DeviceSpecific;
use wire::scsi::mode::Header;
use wire::scsi::mode::ModeData;

use super::*;

/// An answer to MODE SENSE(6).
pub(super) fn told(write_cache: bool, dpo_fua: bool, write_protected: bool) -> Vec<u8> {
    let specific = DeviceSpecific { write_protected, dpo_fua };
    mode::emit(Header::Six, specific, None, &Caching { write_cache }.emit())
}

const TAG: u64 = 1 << 40;

impl World {
    /// Of which all paths say this.
    fn with_modes(modes: &[u8]) -> Self {
        let mut world = Self::new(PathPolicy::Failover, 1);
        world.modes = std::array::from_fn(|_| modes.to_vec());
        world
    }

    fn post_mode_sense(&mut self, page: u8) {
        let mut cdb = command::mode_sense_6(mode::ALL_PAGES, 255);
        cdb.bytes[2] = page;
        let request = Request { lun: 0, cdb, data: Data::In(255), retry: Retry::Always };
        self.heard.clear();
        self.bundle.post(TAG, request, self.now).expect("it is open");
        self.carry();
        self.bundle.posted().expect("there is room");
    }

    /// What the disk says over all its paths: WCE, DPOFUA, WP.
    fn modes(&mut self) -> (bool, bool, bool) {
        self.post_mode_sense(mode::ALL_PAGES);
        self.drain();
        self.last_modes().expect("an answer")
    }

    fn last_modes(&self) -> Option<(bool, bool, bool)> {
        let data = ModeData::parse(Header::Six, self.heard.last()?)?;
        let caching = data.page(mode::CACHING).and_then(Caching::parse)?;
        Some((caching.write_cache, data.specific.dpo_fua, data.specific.write_protected))
    }

    fn attention(&mut self, path: usize, asc: u8, ascq: u8) {
        let sense = Sense::new(SenseKey::UnitAttention, asc, ascq);
        self.tell(path, Event::Attention { session: session(path), lun: 0, sense });
    }

    fn resets(&self) -> usize {
        let is_reset = |event: &&Event| matches!(event, Event::MayHaveLost { .. });
        self.told.iter().filter(is_reset).count()
    }
}

#[test]
fn one_path_with_a_volatile_cache_makes_it_one_of_the_disk() {
    let mut world = World::with_modes(&told(false, true, false));
    world.drain();
    assert_eq!(world.modes(), (false, true, false));
    let mut world = World::with_modes(&told(false, true, false));
    world.modes[1] = told(true, true, false);
    world.modes[2] = told(false, false, false);
    world.drain();
    // The answer is that of path 0.
    assert_eq!(world.modes(), (true, false, false));
    world.post_mode_sense(0x40 | mode::CACHING);
    world.drain();
    assert_eq!(world.last_modes(), Some((false, true, false)), "that is what can be changed");
}

/// One that does not tell may have anything.
#[test]
fn a_path_that_tells_no_cache_has_a_volatile_one() {
    let mut world = World::with_modes(&told(false, true, false));
    world.modes[2] = Vec::new();
    world.drain();
    assert_eq!(world.modes(), (true, false, false));
}

/// What is written over it from its first command on may be lost: that is told before.
#[test]
fn a_path_that_comes_back_with_a_volatile_cache_is_news() {
    let mut world = World::with_modes(&told(false, true, false));
    world.drain();
    world.lose(1);
    let (before, resets) = (world.bundle.generation, world.resets());
    world.modes[1] = told(true, true, false);
    world.drain();
    assert!(world.bundle.generation.is_reset_since(before) && world.resets() > resets);
    assert_eq!(world.modes(), (true, true, false));
    // Without it as well: what went over it may still be in that cache.
    world.lose(1);
    world.post_mode_sense(mode::ALL_PAGES);
    world.end(0);
    assert_eq!(world.last_modes(), Some((true, true, false)));
    // It is back without one: there is none any more, and that is no news for what was written.
    let before = world.bundle.generation;
    world.modes[1] = told(false, true, false);
    world.drain();
    assert_eq!(world.modes(), (false, true, false));
    assert!(!world.bundle.generation.is_reset_since(before));
}

#[test]
fn a_path_whose_modes_have_changed_is_asked_before_the_disk_tells() {
    for (asc, ascq) in [(0x2a, 0x01), (0x2a, 0x00), (0x29, 0x00)] {
        let mut world = World::with_modes(&told(false, true, false));
        world.drain();
        world.modes[2] = told(true, true, false);
        world.attention(2, asc, ascq);
        world.post_mode_sense(mode::ALL_PAGES);
        world.end(0);
        assert!(world.heard.is_empty(), "path 2 has not told yet");
        world.drain();
        assert_eq!(world.last_modes(), Some((true, true, false)), "{asc:x}/{ascq:x}");
        assert!(world.bundle.generation.is_reset_since(Generation::default()));
    }
    // That its nexus was lost, or the size has changed, says nothing of it.
    for (asc, ascq) in [(0x29, 0x07), (0x2a, 0x09)] {
        let mut world = World::with_modes(&told(false, true, false));
        world.drain();
        world.attention(2, asc, ascq);
        assert!(world.bundle.paths[2].rank().is_some());
    }
}

#[test]
fn paths_of_which_one_is_write_protected_are_refused() {
    for protected in 0..PATHS {
        let mut world = World::with_modes(&told(false, true, false));
        world.modes[protected] = told(false, true, true);
        world.drain();
        let error = world.bundle.post(1, request(), world.now).map_err(|(error, _)| error);
        let error = error.unwrap_err();
        let Kind::OtherProtection { protected: by, writable } = error.kind() else {
            panic!("{error}")
        };
        assert_eq!(*by, format!("path {} (127.0.0.1:3260)", protected + 1));
        assert!(writable.starts_with("path ") && writable != by, "{error}");
    }
    let mut world = World::with_modes(&told(false, true, true));
    world.drain();
    assert_eq!(world.modes(), (false, true, true), "all are");
}

#[test]
fn a_path_that_comes_back_write_protected_is_not_used() {
    let mut world = World::with_modes(&told(false, true, false));
    world.drain();
    world.lose(1);
    changes(&mut world, 1);
    world.modes[1] = told(false, true, true);
    world.drain();
    let changes = changes(&mut world, 1);
    let [PathChange::Refused(error)] = &changes[..] else { panic!("{changes:?}") };
    assert!(matches!(error.kind(), Kind::OtherProtection { .. }), "{error}");
    assert_eq!(world.modes(), (false, true, false), "it has no say");
    world.write();
    world.drain();
    assert_eq!(world.ended.get(&1), Some(&true));
}

/// The disk is: as one of a single session it fails writes, and says so.
#[test]
fn a_disk_that_becomes_write_protected_costs_no_path() {
    let mut world = World::with_modes(&told(false, true, false));
    world.drain();
    (0..PATHS).for_each(|path| drop(changes(&mut world, path)));
    world.modes = std::array::from_fn(|_| told(false, true, true));
    world.attention(0, 0x2a, 0x01);
    world.drain();
    assert_eq!(world.modes(), (false, true, true), "by the word of one path");
    world.lose(1);
    world.up(1);
    world.attention(2, 0x2a, 0x01);
    world.drain();
    let changes = changes(&mut world, 1);
    let refused = |change: &PathChange| matches!(change, PathChange::Refused(_));
    assert!(!changes.iter().any(refused), "{changes:?}");
    // All are lost while it is taken off: what the others said before counts no more.
    (0..PATHS).for_each(|path| world.lose(path));
    world.modes = std::array::from_fn(|_| told(false, true, false));
    world.drain();
    assert_eq!(world.modes(), (false, true, false));
    assert!(world.bundle.paths.iter().all(|path| path.rank().is_some()));
}
