// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The images that this process has open to serve them. Two disks on one image would each know
//! nothing of what hosts of the other one write and reserve, and have two serial numbers; and what
//! is written by one that is being closed may come after what the next one writes.
#![forbid(unsafe_code)]

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

static CLAIMED: Mutex<BTreeMap<String, Owner>> = Mutex::new(BTreeMap::new());
static FREED: Condvar = Condvar::new();

impl Claim {
    /// Claims the image; waits while it is being closed, if that does not take too long.
    ///
    /// # Errors
    /// Who has it.
    pub(crate) fn of(identity: &str, patience: Duration) -> Result<Self, Owner> {
        let begun = Instant::now();
        let mut claimed = claimed();
        while let Some(owner) = claimed.get(identity).copied() {
            let left = patience.saturating_sub(begun.elapsed());
            if owner == Owner::Disk || left.is_zero() {
                return Err(owner);
            }
            let waited = FREED.wait_timeout(claimed, left);
            claimed = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        claimed.insert(identity.to_owned(), Owner::Disk);
        Ok(Self(identity.to_owned()))
    }

    /// No disk has it any more.
    pub(crate) fn begin_to_close(&self) {
        claimed().insert(self.0.clone(), Owner::Closing);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        claimed().remove(&self.0);
        FREED.notify_all();
    }
}

fn claimed() -> MutexGuard<'static, BTreeMap<String, Owner>> {
    // What the lock guards is whole between any two statements.
    CLAIMED.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_while_it_is_being_closed_waits_for_that() {
        let short = Duration::from_millis(20);
        let first = Claim::of("claims/one", short).expect("free");
        assert_eq!(Claim::of("claims/one", Duration::MAX).err(), Some(Owner::Disk));
        first.begin_to_close();
        assert_eq!(Claim::of("claims/one", short).err(), Some(Owner::Closing));
        let second = std::thread::spawn(|| Claim::of("claims/one", Duration::from_secs(20)));
        std::thread::sleep(short);
        drop(first);
        let second = second.join().expect("no panic").expect("it is closed");
        assert_eq!(Claim::of("claims/one", short).err(), Some(Owner::Disk));
        drop(second);
        assert!(Claim::of("claims/one", short).is_ok());
    }
}
