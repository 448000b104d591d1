// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The images that this process has open to serve them. Two disks on one image would each know
//! nothing of what hosts of the other one write and reserve, and have two serial numbers; and what
//! is written by one that is being closed may come after what the next one writes.
#![forbid(unsafe_code)]

use crate::limits::CLOSE_MAX;
use std::collections::BTreeMap;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::time::Duration;
use std::time::Instant;

/// The right to serve an image or a snapshot, as long as this is there.
#[derive(Debug)]
pub(crate) struct Claim(String);

/// Who has an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A disk that is served.
    Disk,
    /// Nobody any more, and it is not closed yet.
    Closing,
}

/// What is claimed.
#[derive(Clone, Debug)]
pub(crate) struct Claimed {
    /// `POOL[/NAMESPACE]/IMAGE[@SNAP]`.
    pub(crate) place: String,
    /// Its cache may have what was acknowledged.
    pub(crate) keeps_writes: bool,
    /// Since when it is not a disk any more.
    closing: Option<Instant>,
}

impl Claimed {
    pub(crate) const fn new(place: String, keeps_writes: bool) -> Self {
        Self { place, keeps_writes, closing: None }
    }

    const fn owner(&self) -> Owner {
        if self.closing.is_some() { Owner::Closing } else { Owner::Disk }
    }
}

/// By the identities of the images.
static CLAIMED: Mutex<BTreeMap<String, Claimed>> = Mutex::new(BTreeMap::new());
static FREED: Condvar = Condvar::new();

impl Claim {
    /// Claims the image; waits while it is being closed, if that does not take too long.
    ///
    /// # Errors
    /// Who has it.
    pub(crate) fn of(identity: &str, what: Claimed, patience: Duration) -> Result<Self, Owner> {
        let begun = Instant::now();
        let mut claimed = claimed();
        while let Some(owner) = claimed.get(identity).map(Claimed::owner) {
            let left = patience.saturating_sub(begun.elapsed());
            if owner == Owner::Disk || left.is_zero() {
                return Err(owner);
            }
            claimed = wait(claimed, left);
        }
        claimed.insert(identity.to_owned(), what);
        Ok(Self(identity.to_owned()))
    }

    /// No disk has it any more.
    pub(crate) fn begin_to_close(&self) {
        if let Some(claimed) = claimed().get_mut(&self.0) {
            claimed.closing.get_or_insert_with(Instant::now);
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        claimed().remove(&self.0);
        FREED.notify_all();
    }
}

/// Nothing is served any more: waits until all images are closed whose caches may have what was
/// acknowledged, also those whose LUNs were removed before. Gives those that are not closed in
/// time, as `POOL/IMAGE`.
#[must_use]
pub fn wait_until_closed() -> Vec<String> {
    wait_until_closed_of(|_| true, CLOSE_MAX)
}

/// Those are meant whose identities are.
fn wait_until_closed_of(is_meant: impl Fn(&str) -> bool, patience: Duration) -> Vec<String> {
    let begun = Instant::now();
    let mut claimed = claimed();
    loop {
        let mut open = Vec::new();
        let mut left = Duration::ZERO;
        for (_, one) in claimed.iter().filter(|(who, one)| one.keeps_writes && is_meant(who)) {
            open.push(one.place.clone());
            left = left.max(patience.saturating_sub(one.closing.unwrap_or(begun).elapsed()));
        }
        if left.is_zero() {
            return open;
        }
        claimed = wait(claimed, left);
    }
}

type All<'a> = MutexGuard<'a, BTreeMap<String, Claimed>>;

/// Until one is closed, but no longer than `patience`.
fn wait(claimed: All<'_>, patience: Duration) -> All<'_> {
    FREED.wait_timeout(claimed, patience).unwrap_or_else(PoisonError::into_inner).0
}

fn claimed() -> All<'static> {
    // What the lock guards is whole between any two statements.
    CLAIMED.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(20);

    fn claim(identity: &str, patience: Duration) -> Result<Claim, Owner> {
        let keeps_writes = identity.ends_with("keeps");
        Claim::of(identity, Claimed::new("a/b".to_owned(), keeps_writes), patience)
    }

    #[test]
    fn who_comes_while_it_is_being_closed_waits_for_that() {
        let first = claim("claims/one", SHORT).expect("free");
        assert_eq!(claim("claims/one", LONG).err(), Some(Owner::Disk));
        first.begin_to_close();
        assert_eq!(claim("claims/one", SHORT).err(), Some(Owner::Closing));
        let second = std::thread::spawn(|| claim("claims/one", LONG));
        std::thread::sleep(SHORT);
        drop(first);
        let second = second.join().expect("no panic").expect("it is closed");
        assert_eq!(claim("claims/one", SHORT).err(), Some(Owner::Disk));
        drop(second);
        assert!(claim("claims/one", SHORT).is_ok());
    }

    #[test]
    fn an_end_waits_for_caches_alone_and_not_for_ever() {
        let wait = |patience| wait_until_closed_of(|who| who.starts_with("ends/"), patience);
        let other = claim("ends/loses-nothing", SHORT).expect("free");
        assert!(wait(LONG).is_empty());
        // One that is removed at the same time is not begun to be closed.
        let kept = claim("ends/keeps", SHORT).expect("free");
        assert_eq!(wait(SHORT), ["a/b"]);
        let waiting = std::thread::spawn(move || wait(LONG));
        std::thread::sleep(SHORT);
        kept.begin_to_close();
        drop(kept);
        assert!(waiting.join().expect("no panic").is_empty());
        // One that was given up before is not waited for again.
        let kept = claim("ends/keeps", SHORT).expect("free");
        kept.begin_to_close();
        std::thread::sleep(2 * SHORT);
        let begun = Instant::now();
        assert_eq!(wait(LONG), ["a/b"]);
        assert!(begun.elapsed() < LONG);
        drop((kept, other));
    }
}
